//! A call of a task on its timed core: its place in modelled time, and what it has drained.

use std::collections::VecDeque;

use nandarray_cores::{Call, RunError};
use nandarray_uarch::{CoreReport, TimedCore};

use crate::store::feeds::FeedRules;
use nandarray_sim::Ps;

/// A task's call on its core.
pub(super) struct TimedCall<'p> {
    pub(super) call: Call<'p>,
    /// A modelled time with the core's tick at that time, by which times and ticks are converted.
    pub(super) origin: (Ps, u64),
    /// The core's figures when the call began.
    pub(super) before: CoreReport,
    /// For each output, the end times of the transfers to DRAM that are in progress.
    pub(super) drains: Vec<VecDeque<Ps>>,
    /// Number of bytes of each output that were transferred to DRAM or are being transferred.
    pub(super) drained: Vec<u64>,
}

impl TimedCall<'_> {
    /// Returns the modelled time of a tick.
    pub(super) fn time_of(&self, tick: u64, tick_time: Ps) -> Ps {
        let (time, origin) = self.origin;
        time + tick_time * tick.checked_sub(origin).expect("a call is behind its beginning")
    }

    /// Returns the first tick that begins at or after a modelled time.
    pub(super) fn tick_of(&self, time: Ps, tick_time: Ps) -> u64 {
        let (began, origin) = self.origin;
        origin + time.since(began).0.div_ceil(tick_time.0)
    }
}

/// Makes the error of a program that needs bytes farther ahead than its stream buffer reaches, for which its core would
/// wait for ever.
pub(super) fn too_far(starved: &RunError, (at, until): (u64, u64), rules: &FeedRules) -> RunError {
    let (pages, page) = (rules.read_ahead, rules.page_bytes);
    RunError::Inputs(format!(
        "{starved}: compute.read_ahead = {pages}: byte {until} is needed while the core is in the page of byte {at}; \
         its stream buffer holds {pages} pages of {page} B. Look less far ahead, or give it more pages"
    ))
}

/// Returns the meter of a call on a timed core.
pub(super) fn meter<'c>(call: &'c mut Call<'_>) -> &'c mut TimedCore {
    call.meter().expect("a call on a timed core has its meter")
}
