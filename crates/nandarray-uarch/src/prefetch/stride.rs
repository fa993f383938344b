//! Stride prefetcher: records each instruction's last address and the distance from the address before (Fu, Patel,
//! Janssens, MICRO 1992).

use super::{CachePrefetcher, Suggestions};

/// Number of entries of the table, which are chosen by the instruction's address.
const ENTRIES: usize = 256;
/// Number of equal strides in a row after which a stride is used.
const CONFIDENCE: u8 = 2;
/// Number of strides ahead that are fetched.
const DEGREE: u64 = 2;

#[derive(Clone, Copy, Debug, Default)]
struct StrideEntry {
    pc: u64,
    address: u64,
    stride: i64,
    confidence: u8,
}

/// Prefetcher that suggests the next addresses of an instruction that accesses memory with a constant stride.
#[derive(Clone, Debug)]
pub struct Stride {
    table: Vec<StrideEntry>,
    line_bytes: u64,
}

impl Stride {
    /// Makes a prefetcher for lines of `line_bytes` bytes.
    pub fn new(line_bytes: u64) -> Self {
        Self { table: vec![StrideEntry::default(); ENTRIES], line_bytes }
    }
}

impl CachePrefetcher for Stride {
    fn access(&mut self, pc: u64, address: u64, _missed: bool, suggestions: &mut Suggestions) {
        let entry = &mut self.table[(pc >> 1) as usize % ENTRIES];
        if entry.pc != pc {
            *entry = StrideEntry { pc, address, ..StrideEntry::default() };
            return;
        }
        let stride = address.wrapping_sub(entry.address) as i64;
        entry.address = address;
        if stride == 0 {
            return;
        }
        if stride == entry.stride {
            entry.confidence = (entry.confidence + 1).min(CONFIDENCE);
        } else {
            (entry.stride, entry.confidence) = (stride, 0);
        }
        if entry.confidence == CONFIDENCE {
            // With a stride shorter than a line, the next line is suggested.
            let step =
                if stride.unsigned_abs() < self.line_bytes { self.line_bytes as i64 * stride.signum() } else { stride };
            for ahead in 1..=DEGREE as i64 {
                suggestions.push(address.wrapping_add_signed(step.wrapping_mul(ahead)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// The algorithm once more, over the list of all addresses of an instruction so far: repeats of an address aside,
    /// the last three distances have to be equal.
    fn slowly(addresses: &[u64]) -> Vec<u64> {
        let mut moves = addresses.to_vec();
        let last = moves[moves.len() - 1];
        if moves.len() > 1 && moves[moves.len() - 2] == last {
            return Vec::new();
        }
        moves.dedup();
        let strides: Vec<i64> = moves.windows(2).map(|two| two[1].wrapping_sub(two[0]) as i64).collect();
        match strides[..] {
            [.., a, b, c] if a == b && b == c => {
                let step = if c.abs() < 64 { 64 * c.signum() } else { c };
                vec![last.wrapping_add_signed(step), last.wrapping_add_signed(2 * step)]
            }
            _ => Vec::new(),
        }
    }

    #[test]
    fn on_recorded_traces_it_suggests_what_the_slow_one_suggests() {
        let mut suggested = 0;
        for trace in super::super::traces::recorded() {
            let mut addresses: HashMap<u64, Vec<u64>> = HashMap::new();
            let mut stride = Stride::new(64);
            for (i, &(pc, address)) in trace.iter().enumerate() {
                let mine = addresses.entry(pc).or_default();
                mine.push(address);
                // Older addresses say nothing new.
                let from = mine.len().saturating_sub(64);
                let mut suggestions = Suggestions::default();
                stride.access(pc, address, true, &mut suggestions);
                assert_eq!(suggestions.as_slice(), slowly(&mine[from..]), "access {i}, at {pc:#x}");
                suggested += suggestions.as_slice().len();
            }
        }
        assert!(suggested > 1_000, "{suggested} lines");
    }

    #[test]
    fn a_stride_is_believed_after_it_was_seen_three_times() {
        let mut stride = Stride::new(64);
        let mut told = vec![];
        for i in 0..5u64 {
            let mut suggestions = Suggestions::default();
            stride.access(0x100, 0x1000 + i * 256, false, &mut suggestions);
            told.push(suggestions.as_slice().to_vec());
        }
        assert!(told[..3].iter().all(Vec::is_empty), "{told:x?}");
        assert_eq!(told[3], [0x1000 + 4 * 256, 0x1000 + 5 * 256]);
    }
    #[test]
    fn strides_over_half_of_the_addresses_wrap() {
        for step in [1u64 << 62, 3 << 62, 1 << 63, u64::MAX - 63] {
            let mut stride = Stride::new(64);
            let mut addresses = Vec::new();
            for i in 0..6u64 {
                addresses.push(step.wrapping_mul(i));
                let mut suggestions = Suggestions::default();
                stride.access(0x40, addresses[i as usize], true, &mut suggestions);
                let wanted = if i < 3 { vec![] } else { vec![step.wrapping_mul(i + 1), step.wrapping_mul(i + 2)] };
                assert_eq!(suggestions.as_slice(), wanted, "a stride of {step:#x}, access {i}");
            }
        }
    }
}
