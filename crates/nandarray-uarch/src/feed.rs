//! The data of a task as its core receives it: how many bytes of each input have arrived, and the units (pages or
//! buffer halves) by which inputs are freed and outputs are drained.
//!
//! The bytes belong to the caller, and a program could read all of them at once. A core whose owner models their
//! arrival pauses before an access to bytes that have not arrived, and each time it has consumed or filled a unit: a
//! page of a stream buffer, or a half of a ping-pong buffer. The owner decides when the core goes on.

use crate::hierarchy::LineRequest;

/// Number of address bits within a region: a region has 64 MiB.
const REGION_BITS: u32 = 26;
/// Number of regions of the address space, which has 2 GiB.
const REGIONS: usize = 32;

/// The reason for which a core has paused, or what it has to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreNeed {
    /// The core needs lines of shared memory.
    Lines(LineRequest),
    /// The core needs bytes of an input that have not arrived.
    Input {
        /// Number of the input.
        input: usize,
        /// End of the bytes that the core needs, counted from the input's beginning.
        until: u64,
    },
    /// The core has consumed whole units of an input, which can be freed; it needs nothing.
    Taken {
        /// Number of the input.
        input: usize,
        /// Bytes of the input consumed since the task began, in whole units.
        bytes: u64,
    },
    /// The core has stored whole units of an output, which can be drained; it needs room for more.
    Stored {
        /// Number of the output.
        output: usize,
        /// Bytes of the output stored since the task began, in whole units.
        bytes: u64,
    },
}

/// An input of a task: its length, and how much of it has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputGate {
    /// Number of bytes that have arrived.
    pub arrived: u64,
    /// Length of the input, in bytes.
    pub end: u64,
    /// Size of the units in which the input is freed as it is consumed, in bytes; 0 if it is freed as a whole.
    pub unit: u64,
    reported: u64,
}

impl InputGate {
    /// Creates an input of `end` bytes of which nothing has arrived; `unit` as in [`InputGate::unit`].
    pub fn new(end: u64, unit: u64) -> Self {
        Self { arrived: 0, end, unit, reported: 0 }
    }

    /// Returns the end of the bytes that an access up to byte `until` has to wait for; `None` if all of them have
    /// arrived.
    #[inline]
    fn missing(&self, until: u64) -> Option<u64> {
        let until = until.min(self.end);
        debug_assert!(self.arrived <= self.end, "{} bytes arrived of {}", self.arrived, self.end);
        (until > self.arrived).then_some(until)
    }
}

/// A region of 64 MiB of a program's address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AddressRegion {
    /// Distance from an address in this region to its address in shared memory, modulo 2^64.
    offset: u64,
    /// Number of the input whose window lies in this region, plus one; 0 if the region holds no input.
    window: u8,
}

/// The inputs and outputs of one task, and the addresses of their windows in shared memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFeed {
    /// Inputs of the task, by number.
    pub inputs: Vec<InputGate>,
    /// Size of a unit of the output streams, in bytes; 0 if outputs are not reported.
    pub output_unit: u64,
    stored: Vec<u64>,
    regions: [AddressRegion; REGIONS],
}

impl TaskFeed {
    /// Maps the 64 MiB of addresses that begin at `window` to shared memory from `address` on. `input` is the number of
    /// the input whose window this is; `None` for other memory.
    ///
    /// # Panics
    /// If the window does not begin at a multiple of 64 MiB below 2 GiB.
    pub fn place(&mut self, window: u64, input: Option<usize>, address: u64) {
        let region = window >> REGION_BITS;
        assert!(region < REGIONS as u64 && region << REGION_BITS == window, "a window at {window:#x}");
        let window_of = input.map_or(0, |input| u8::try_from(input + 1).expect("a program has few inputs"));
        self.regions[region as usize] = AddressRegion { offset: address.wrapping_sub(window), window: window_of };
    }

    /// Returns whether an access to a window may have to wait for bytes of an input.
    pub(crate) fn has_windows(&self) -> bool {
        self.regions.iter().any(|region| region.window > 0)
    }

    /// Returns the address in shared memory of an address of the program.
    #[inline]
    pub(crate) fn address(&self, address: u64) -> u64 {
        address.wrapping_add(self.regions[(address >> REGION_BITS) as usize % REGIONS].offset)
    }

    /// Returns whether all bytes of an access to memory have arrived, or belong to no input.
    #[inline(always)]
    pub(crate) fn has_arrived(&self, address: u64, bytes: u64) -> bool {
        let window = self.regions[(address >> REGION_BITS) as usize % REGIONS].window;
        let until = (address & ((1 << REGION_BITS) - 1)) + bytes;
        window == 0 || self.inputs.get(usize::from(window) - 1).is_some_and(|input| until <= input.arrived)
    }

    /// Returns the reason to pause before an access to memory; `None` if the access can proceed.
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

    /// Returns whether an access that takes bytes of an input stream proceeds: the bytes have arrived, and no unit has
    /// been consumed that was not reported.
    #[inline(always)]
    pub(crate) fn reads_on(&self, input: usize, position: u64, bytes: u64) -> bool {
        self.inputs.get(input).is_some_and(|gate| {
            position.saturating_add(bytes) <= gate.arrived && (gate.unit == 0 || position < gate.reported + gate.unit)
        })
    }

    /// Returns the reason to pause before an access to an input stream; `None` if the access can proceed. `takes` says
    /// whether the access consumes the bytes.
    #[inline]
    pub(crate) fn read(&mut self, input: usize, position: u64, bytes: u64, takes: bool) -> Option<CoreNeed> {
        let gate = self.inputs.get_mut(input)?;
        if takes && gate.unit > 0 && position >= gate.reported + gate.unit {
            gate.reported = position / gate.unit * gate.unit;
            debug_assert!(gate.reported <= position, "{} bytes are freed at {position}", gate.reported);
            return Some(CoreNeed::Taken { input, bytes: gate.reported });
        }
        gate.missing(position.saturating_add(bytes)).map(|until| CoreNeed::Input { input, until })
    }

    /// Returns the reason to pause before a store to an output stream; `None` if the store can proceed.
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
        debug_assert!(*stored > 0 && *stored <= position, "{stored} bytes are reported at {position}");
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
    /// A program that reads a stream by random steps, while its bytes arrive by random steps, never gets a byte that
    /// has not arrived; each whole unit is reported once, in order, when and not before all of its bytes are consumed.
    #[test]
    fn a_stream_is_read_behind_its_bytes_and_freed_behind_its_reader() {
        for seed in 0..200 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let (end, unit) = (chance.u64(1..400), [0, 1, 7, 64][chance.usize(0..4)]);
            let mut feed = TaskFeed { inputs: vec![InputGate::new(end, unit)], ..TaskFeed::default() };
            let (mut position, mut freed, mut waits) = (0, 0, 0);
            while position < end {
                let bytes = chance.u64(1..9).min(end - position);
                if chance.u8(..4) == 0 {
                    // A look ahead consumes nothing and frees nothing.
                    let far = chance.u64(0..90);
                    let missing = feed.read(0, position, far, false);
                    let until = (position + far).min(end);
                    let wanted = (until > feed.inputs[0].arrived).then_some(CoreNeed::Input { input: 0, until });
                    assert_eq!(missing, wanted, "seed {seed}, {far} bytes from {position}");
                }
                let quick = feed.reads_on(0, position, bytes);
                match feed.read(0, position, bytes, true) {
                    None => {
                        assert!(position + bytes <= feed.inputs[0].arrived, "seed {seed}, at {position}");
                        assert!(unit == 0 || position < freed + unit, "seed {seed}, at {position}: {freed} are freed");
                        assert!(quick, "seed {seed}, at {position}");
                        position += bytes;
                    }
                    Some(CoreNeed::Taken { input: 0, bytes: taken }) => {
                        assert!(!quick && taken > freed && taken <= position, "seed {seed}: {taken} at {position}");
                        assert_eq!(taken, position / unit * unit, "seed {seed}: whole units");
                        freed = taken;
                    }
                    Some(CoreNeed::Input { input: 0, until }) => {
                        assert!(!quick && until == position + bytes, "seed {seed}: {until} at {position}");
                        let arrived = feed.inputs[0].arrived;
                        assert!(until > arrived, "seed {seed}: {arrived} bytes are there");
                        feed.inputs[0].arrived = (arrived + chance.u64(1..60)).min(end);
                        waits += 1;
                    }
                    Some(other) => panic!("seed {seed}: {other:?}"),
                }
            }
            assert!(waits > 0 && feed.inputs[0].arrived >= end, "seed {seed}");
        }
    }

    #[test]
    fn windows_lie_side_by_side_and_each_waits_for_its_own_input() {
        let mut feed = TaskFeed { inputs: vec![InputGate::new(1 << 20, 0); 3], ..TaskFeed::default() };
        let windows = [0x1000_0000u64, 0x1400_0000, 0x7c00_0000];
        for (n, &window) in windows.iter().enumerate() {
            feed.place(window, Some(n), (n as u64 + 5) << 32);
            feed.inputs[n].arrived = 100 * (n as u64 + 1);
        }
        feed.place(0x1800_0000, None, 0x9_0000_0000);
        let mut chance = fastrand::Rng::with_seed(11);
        for _ in 0..4_000 {
            let n = chance.usize(0..3);
            let (offset, bytes) = (chance.u64(0..400), 1 << chance.u32(0..4));
            let address = windows[n] + offset;
            let until = offset + bytes;
            let missing = (until > feed.inputs[n].arrived).then_some(CoreNeed::Input { input: n, until });
            assert_eq!(feed.access(address, bytes), missing, "{bytes} bytes at {address:#x}");
            assert_eq!(feed.has_arrived(address, bytes), missing.is_none(), "{bytes} bytes at {address:#x}");
            assert_eq!(feed.address(address), ((n as u64 + 5) << 32) + offset);
        }
        let last = 0x1800_0000 + (1 << REGION_BITS) - 1;
        assert_eq!((feed.address(last), feed.access(last, 1)), (0x9_0000_0000 + (1 << REGION_BITS) - 1, None));
        for window in [0x1000_0001, 0x8000_0000, 1 << 25] {
            let found = std::panic::catch_unwind(|| TaskFeed::default().place(window, None, 0)).unwrap_err();
            let text = found.downcast_ref::<String>().unwrap();
            assert!(text.contains(&format!("a window at {window:#x}")), "{text}");
        }
    }
}
