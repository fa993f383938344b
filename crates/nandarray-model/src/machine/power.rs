//! A moment at which the power fails, and what was in the flash then.

use std::collections::BTreeMap;

use crate::flash::PageAddress;
use nandarray_sim::Ps;

/// The contents of the flash when the power failed.
#[derive(Clone, Debug, Default)]
pub struct Programmed {
    /// Programs of each page that had ended.
    pub ended: BTreeMap<PageAddress, u32>,
    /// Modelled time.
    pub at: Ps,
}

/// Counts events down to the one at which the power fails.
#[derive(Debug, Default)]
pub(super) struct Power {
    events_left: u64,
    now: Programmed,
    failed: Option<Programmed>,
}

impl Power {
    /// It fails when so many more events have happened.
    pub(super) fn fails_after(events: u64) -> Self {
        Self { events_left: events, ..Self::default() }
    }

    /// Another event happens.
    pub(super) fn tick(&mut self, now: Ps) {
        if self.failed.is_none() {
            if self.events_left == 0 {
                self.failed = Some(Programmed { at: now, ..self.now.clone() });
            } else {
                self.events_left -= 1;
            }
        }
    }

    /// A page is programmed.
    pub(super) fn programmed(&mut self, place: PageAddress) {
        *self.now.ended.entry(place).or_default() += 1;
    }

    /// The contents of the flash, if it has failed.
    pub(super) fn failed(&self) -> Option<&Programmed> {
        self.failed.as_ref()
    }
}
