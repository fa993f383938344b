//! Power failure at a chosen event, and a record of what the flash held at that moment.

use std::collections::BTreeMap;

use crate::flash::PageAddress;
use nandarray_sim::Ps;

/// Contents of the flash when the power failed.
#[derive(Clone, Debug, Default)]
pub struct Programmed {
    /// Number of programs of each page that had ended.
    pub ended: BTreeMap<PageAddress, u32>,
    /// Modelled time of the failure.
    pub at: Ps,
}

/// Countdown of events to a power failure, with the programs that have ended so far.
#[derive(Debug, Default)]
pub(super) struct Power {
    events_left: u64,
    now: Programmed,
    failed: Option<Programmed>,
}

impl Power {
    /// Schedules a power failure after `events` more events.
    pub(super) fn fails_after(events: u64) -> Self {
        Self { events_left: events, ..Self::default() }
    }

    /// Counts an event at time `now`; records the flash's contents if the power fails at it.
    pub(super) fn tick(&mut self, now: Ps) {
        assert!(self.failed.as_ref().is_none_or(|failed| failed.at <= now), "{now} is before the failure");
        if self.failed.is_none() {
            if self.events_left == 0 {
                self.failed = Some(Programmed { at: now, ..self.now.clone() });
            } else {
                self.events_left -= 1;
            }
        }
    }

    /// Counts a program of `place` that has ended.
    pub(super) fn programmed(&mut self, place: PageAddress) {
        *self.now.ended.entry(place).or_default() += 1;
    }

    /// Returns the contents of the flash when the power failed; `None` before that.
    pub(super) fn failed(&self) -> Option<&Programmed> {
        self.failed.as_ref()
    }
}
