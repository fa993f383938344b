//! Power failure at a chosen event, and the contents of the flash at that moment.

use std::collections::BTreeMap;

use crate::flash::PageAddress;
use nandarray_sim::Ps;

/// The contents of the flash when the power failed.
#[derive(Clone, Debug, Default)]
pub struct Programmed {
    /// Ended programs of each page.
    pub ended: BTreeMap<PageAddress, u32>,
    /// Modelled time of the failure.
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
    /// A power failure after `events` more events.
    pub(super) fn fails_after(events: u64) -> Self {
        Self { events_left: events, ..Self::default() }
    }

    /// Counts an event.
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

    /// Counts the end of a page's program.
    pub(super) fn programmed(&mut self, place: PageAddress) {
        *self.now.ended.entry(place).or_default() += 1;
    }

    /// The contents of the flash, if it has failed.
    pub(super) fn failed(&self) -> Option<&Programmed> {
        self.failed.as_ref()
    }
}
