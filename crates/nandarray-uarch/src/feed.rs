//! The data of a task as a core gets it: how far each input has arrived, and the units in which inputs are freed and
//! outputs are drained.
//!
//! The bytes are the caller's: a program could read all of them at once. A core whose owner knows when each arrives
//! pauses before an access to bytes that are not there yet, and once a unit (a page of a stream buffer, a half of a
//! ping-pong buffer) that it has taken or filled. The owner says when it goes on.

use crate::hierarchy::LineRequest;

/// Bits of an address within a region.
const REGION_BITS: u32 = 26;
/// Number of regions.
const REGIONS: usize = 32;

/// The reason for which a core has paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreNeed {
    /// Lines of memory that it shares.
    Lines(LineRequest),
    /// An input, up to this byte of it.
    Input {
        /// The input.
        input: usize,
        /// End of the bytes that it needs.
        until: u64,
    },
    /// Nothing: these bytes of an input were taken, whole units.
    Taken {
        /// The input.
        input: usize,
        /// Bytes of it taken since the task began.
        bytes: u64,
    },
    /// Nothing, unless there is no room: these bytes of an output were stored, whole units.
    Stored {
        /// The output.
        output: usize,
        /// Bytes of it stored since the task began.
        bytes: u64,
    },
}

/// An input of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputGate {
    /// Bytes that have arrived.
    pub arrived: u64,
    /// All of its bytes.
    pub end: u64,
    /// Bytes of a unit; 0 if it is freed as a whole.
    pub unit: u64,
    reported: u64,
}

impl InputGate {
    /// An input of `end` bytes of which nothing has arrived.
    pub fn new(end: u64, unit: u64) -> Self {
        Self { arrived: 0, end, unit, reported: 0 }
    }

    /// End of the bytes that are missing for an access up to `until`, if any are.
    #[inline]
    fn missing(&self, until: u64) -> Option<u64> {
        let until = until.min(self.end);
        (until > self.arrived).then_some(until)
    }
}

/// A part of the address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AddressRegion {
    /// Distance to its address in shared memory.
    offset: u64,
    /// One more than the input whose window it is; 0 if it is none.
    window: u8,
}

/// The data of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFeed {
    /// Its inputs.
    pub inputs: Vec<InputGate>,
    /// Bytes of a unit of an output stream; 0 if there are none.
    pub output_unit: u64,
    stored: Vec<u64>,
    regions: [AddressRegion; REGIONS],
}

impl TaskFeed {
    /// Places the 64 MiB that begin at `window` at an address of shared memory; they hold an input, or none.
    ///
    /// # Panics
    /// If the window does not begin at a multiple of 64 MiB below 2 GiB.
    pub fn place(&mut self, window: u64, input: Option<usize>, address: u64) {
        let region = window >> REGION_BITS;
        assert!(region < REGIONS as u64 && region << REGION_BITS == window, "a window at {window:#x}");
        let window_of = input.map_or(0, |input| u8::try_from(input + 1).expect("a program has few inputs"));
        self.regions[region as usize] = AddressRegion { offset: address.wrapping_sub(window), window: window_of };
    }

    /// Whether an access of a window may have to wait.
    pub(crate) fn has_windows(&self) -> bool {
        self.regions.iter().any(|region| region.window > 0)
    }

    /// The address in shared memory.
    #[inline]
    pub(crate) fn address(&self, address: u64) -> u64 {
        address.wrapping_add(self.regions[(address >> REGION_BITS) as usize % REGIONS].offset)
    }

    /// The reason to pause before an access of memory.
    #[inline]
    pub(crate) fn access(&self, address: u64, bytes: u64) -> Option<CoreNeed> {
        let region = &self.regions[(address >> REGION_BITS) as usize % REGIONS];
        if region.window == 0 {
            return None;
        }
        let input = usize::from(region.window) - 1;
        let until = self.inputs.get(input)?.missing((address & ((1 << REGION_BITS) - 1)) + bytes)?;
        Some(CoreNeed::Input { input, until })
    }

    /// The reason to pause before an access of an input stream; `takes` if it moves the head.
    #[inline]
    pub(crate) fn read(&mut self, input: usize, position: u64, bytes: u64, takes: bool) -> Option<CoreNeed> {
        let gate = self.inputs.get_mut(input)?;
        if takes && gate.unit > 0 && position >= gate.reported + gate.unit {
            gate.reported = position / gate.unit * gate.unit;
            return Some(CoreNeed::Taken { input, bytes: gate.reported });
        }
        gate.missing(position.saturating_add(bytes)).map(|until| CoreNeed::Input { input, until })
    }

    /// The reason to pause before an output stream is stored to.
    #[inline]
    pub(crate) fn store(&mut self, output: usize, position: u64) -> Option<CoreNeed> {
        if self.output_unit == 0 {
            return None;
        }
        if self.stored.len() <= output {
            self.stored.resize(output + 1, 0);
        }
        let stored = &mut self.stored[output];
        if position < *stored + self.output_unit {
            return None;
        }
        *stored = position / self.output_unit * self.output_unit;
        Some(CoreNeed::Stored { output, bytes: *stored })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_reports_each_unit_once_and_waits_for_what_is_missing() {
        let mut feed = TaskFeed { inputs: vec![InputGate::new(20, 8)], output_unit: 4, ..TaskFeed::default() };
        assert_eq!(feed.read(0, 0, 4, true), Some(CoreNeed::Input { input: 0, until: 4 }));
        feed.inputs[0].arrived = 8;
        assert_eq!(feed.read(0, 4, 4, true), None);
        assert_eq!(feed.read(0, 8, 4, true), Some(CoreNeed::Taken { input: 0, bytes: 8 }), "before it waits for more");
        assert_eq!(feed.read(0, 8, 4, true), Some(CoreNeed::Input { input: 0, until: 12 }));
        assert_eq!(feed.read(0, 8, 99, false), Some(CoreNeed::Input { input: 0, until: 20 }), "not beyond its end");
        assert_eq!(feed.read(1, 8, 4, true), None, "a stream that it does not know is somebody else's");
        assert_eq!(feed.store(0, 3), None);
        assert_eq!(feed.store(0, 4), Some(CoreNeed::Stored { output: 0, bytes: 4 }));
        assert_eq!(feed.store(0, 4), None);
    }

    #[test]
    fn a_window_has_its_own_place_and_waits_for_its_bytes() {
        let mut feed = TaskFeed { inputs: vec![InputGate::new(100, 0)], ..TaskFeed::default() };
        feed.place(0x2000_0000, Some(0), 0x7_0000_0000);
        assert_eq!(feed.address(0x2000_0010), 0x7_0000_0010);
        assert_eq!(feed.address(0x1_0000), 0x1_0000);
        assert_eq!(feed.access(0x2000_0010, 8), Some(CoreNeed::Input { input: 0, until: 24 }));
        feed.inputs[0].arrived = 24;
        assert_eq!(feed.access(0x2000_0010, 8), None);
        assert_eq!(feed.access(0x1_0000, 8), None);
    }
}
