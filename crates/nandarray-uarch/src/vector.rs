//! Descriptions of vector units: widths of datapath and memory path, alignment, unpacking ahead of use.
//!
//! The length of registers and whether there is VarVE are part of the instruction set (`rv64gcv_zvl256b_xvarve`), and
//! latencies are those of the units `vector_*` and `varve_*`. A key that is left out has the value that its field says.

use nandarray_describe::table;

use crate::error::{DescribeError, range, within};

table! {
    /// Description of a core's vector unit; times are in ticks.
    #[derive(Copy, Default, Eq)]
    pub struct VectorDescription {
        datapath_bits: u32, "bits of elements that the datapath takes in a cycle; 0 for those of a register", default;
        memory_bits: u32, "bits that a load or store of consecutive elements moves in a cycle; 0 for those of the \
            datapath", default;
        t_element in 0..=4_096 "ticks": u32, "ticks of each element of a load or store whose elements have addresses \
            of their own; 0 for a cycle", default;
        align_bits: u32, "w: bits to which VarVE rounds up the width of each element in the datapath; 0 for 8",
            default;
        t_align in 0..=4_096 "ticks": u32, "ticks of the pipeline step that aligns elements, which VarVE operations \
            take beyond the latency of their unit", default;
        unpack_lines in 0..=64: u32, "number of lines of each packed stream that are fetched and unpacked ahead of \
            their use; 0 for none", default;
        unpack_bits: u32, "number of packed bits of all streams together that are unpacked or packed in a cycle; 0 \
            for any number", default;
        t_unpack in 0..=4_096 "ticks": u32, "ticks that an instruction takes beyond its unit's latency to unpack \
            values that were not unpacked ahead", default;
    }
}

/// Alignment of a unit whose description does not say one.
const ALIGN_BITS: u32 = 8;

impl VectorDescription {
    /// Checks the values for registers of `vlen` bits.
    pub(crate) fn check(&self, vlen: u32) -> Result<(), DescribeError> {
        let widths = [
            ("vector.datapath_bits", self.datapath_bits),
            ("vector.memory_bits", self.memory_bits),
            ("vector.unpack_bits", self.unpack_bits),
        ];
        for (key, bits) in widths {
            if bits != 0 && (!bits.is_power_of_two() || !(8..=8_192).contains(&bits)) {
                return Err(range(key, bits, "0, or a power of two from 8 to 8192 is needed"));
            }
        }
        if self.datapath_bits > vlen {
            return Err(range(
                "vector.datapath_bits",
                self.datapath_bits,
                "at most the bits of a register are allowed",
            ));
        }
        if self.align_bits != 0 && (!self.align_bits.is_power_of_two() || self.align_bits > 64) {
            return Err(range("vector.align_bits", self.align_bits, "0, or a power of two from 1 to 64 is needed"));
        }
        within("vector", self.out_of_range())
    }

    /// Returns the alignment of elements in bits.
    pub fn alignment(&self) -> u32 {
        if self.align_bits == 0 { ALIGN_BITS } else { self.align_bits }
    }
}

/// Counts of a vector unit, from which its datapath efficiency follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorCounts {
    /// Number of instructions that used the datapath.
    pub operations: u64,
    /// Number of elements that instructions computed in the datapath.
    pub elements: u64,
    /// Bits that the datapath can take in the cycles for which instructions used it.
    pub offered_bits: u64,
    /// Bits that elements occupied, with padding and alignment.
    pub occupied_bits: u64,
    /// Bits that the values of elements needed (Table 8.3 of Zou 2023).
    pub value_bits: u64,
    /// Bits read from packed streams, or written to them.
    pub packed_bits: u64,
}

impl VectorCounts {
    /// Returns the share of the datapath's bits that carried values; 0 without operations.
    pub fn efficiency(&self) -> f64 {
        if self.offered_bits == 0 { 0.0 } else { self.value_bits as f64 / self.offered_bits as f64 }
    }

    /// Returns the counts since an earlier state of the same unit.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            operations: self.operations - earlier.operations,
            elements: self.elements - earlier.elements,
            offered_bits: self.offered_bits - earlier.offered_bits,
            occupied_bits: self.occupied_bits - earlier.occupied_bits,
            value_bits: self.value_bits - earlier.value_bits,
            packed_bits: self.packed_bits - earlier.packed_bits,
        }
    }
}

/// The progress of unpacking ahead of use: how much is unpacked, and when.
#[derive(Clone, Debug)]
pub(crate) struct UnpackEngine {
    /// For each packed stream and array of widths, the end of the lines fetched so far.
    fetched: [u64; STREAMS],
    /// For each packed stream and array of widths, the end of the bytes unpacked or packed so far.
    unpacked: [u64; STREAMS],
    /// Tick at which all values requested so far are unpacked.
    free_at: u64,
}

/// Number of packed streams, and of arrays of their widths.
const STREAMS: usize = 64;

impl Default for UnpackEngine {
    fn default() -> Self {
        Self { fetched: [0; STREAMS], unpacked: [0; STREAMS], free_at: 0 }
    }
}

impl UnpackEngine {
    /// Forgets what was fetched and unpacked of a stream, which is described again and begins at an address.
    pub(crate) fn begin(&mut self, stream: u8, address: u64) {
        debug_assert!(usize::from(stream) < STREAMS, "packed stream {stream}");
        self.fetched[usize::from(stream) % STREAMS] = address;
        self.unpacked[usize::from(stream) % STREAMS] = address;
    }

    /// Returns the part of `from..to` that a stream has not fetched before, and notes that it is fetched.
    pub(crate) fn advance(&mut self, stream: u8, from: u64, to: u64) -> std::ops::Range<u64> {
        debug_assert!(usize::from(stream) < STREAMS, "packed stream {stream}");
        let fetched = &mut self.fetched[usize::from(stream) % STREAMS];
        let new = from.max(*fetched)..to;
        *fetched = (*fetched).max(to);
        new
    }

    /// Returns how many of a stream's bytes `from..to` were not unpacked before, and notes that they are.
    pub(crate) fn new_bytes(&mut self, stream: u8, from: u64, to: u64) -> u64 {
        let unpacked = &mut self.unpacked[usize::from(stream) % STREAMS];
        let new = to.saturating_sub(from.max(*unpacked));
        *unpacked = (*unpacked).max(to);
        new
    }

    /// Unpacks values that take `ticks` of work, and may have been begun up to `ahead` ticks before `now`; returns the
    /// ticks until they are unpacked.
    pub(crate) fn unpack(&mut self, now: u64, ticks: u64, ahead: u64) -> u64 {
        self.free_at = self.free_at.max(now.saturating_sub(ahead)) + ticks;
        self.free_at.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with sets of bytes: none is fetched or unpacked twice while a stream goes forward, and each stream has
    /// its own.
    #[test]
    fn each_byte_of_a_stream_is_fetched_and_unpacked_once() {
        for seed in 0..40 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let mut engine = UnpackEngine::default();
            let mut seen = vec![[std::collections::BTreeSet::new(), std::collections::BTreeSet::new()]; 3];
            let mut at = [0u64; 3];
            for step in 0..300 {
                let n = chance.usize(0..3);
                let stream = [0u8, 31, 63][n];
                if chance.u8(..20) == 0 {
                    at[n] = chance.u64(0..1_000);
                    engine.begin(stream, at[n]);
                    seen[n].iter_mut().for_each(std::collections::BTreeSet::clear);
                }
                // Values may be read again before they are consumed.
                let (from, to) = (at[n], at[n] + chance.u64(0..40));
                let new = engine.advance(stream, from, to + 64);
                let fetched: Vec<u64> = (from..to + 64).filter(|&byte| seen[n][0].insert(byte)).collect();
                assert_eq!(new.clone().collect::<Vec<_>>(), fetched, "seed {seed}, step {step}: {new:?}");
                let unpacked = (from..to).filter(|&byte| seen[n][1].insert(byte)).count() as u64;
                assert_eq!(engine.new_bytes(stream, from, to), unpacked, "seed {seed}, step {step}");
                if chance.bool() {
                    at[n] = to;
                }
            }
        }
    }

    /// Compares with a queue that is worked off tick by tick, in which work may begin some ticks before its use.
    #[test]
    fn unpacking_ahead_is_late_by_what_a_queue_has_left() {
        for seed in 0..60 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let (mut engine, ahead) = (UnpackEngine::default(), chance.u64(0..30));
            let (mut now, mut done) = (0u64, 0u64);
            for step in 0..200 {
                now += chance.u64(0..12);
                let work = chance.u64(0..15);
                for _ in 0..work {
                    // The next tick of work begins where the last one ended, but not more than so far ahead of its use.
                    done = if done + ahead < now { now - ahead } else { done } + 1;
                }
                let late = engine.unpack(now, work, ahead);
                if work > 0 {
                    assert_eq!(late, done.saturating_sub(now), "seed {seed}, step {step}, {ahead} ticks ahead");
                }
                now += late;
            }
        }
    }
}
