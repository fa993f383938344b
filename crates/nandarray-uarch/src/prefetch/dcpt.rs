//! Delta-correlating prediction tables (Grannaes, Jahre, Natvig: "Storage Efficient Hardware Prefetching using
//! Delta-Correlating Prediction Tables", JILP 2011).
//!
//! The table has an entry for each load or store instruction: its last address, the last address prefetched for it,
//! and a ring of the distances between its successive addresses. The last two distances are searched in the ring, from
//! the newest on; if they occurred before, the distances that followed them are added to the address in turn.
//! Addresses up to the last one prefetched are left out.

use super::{CachePrefetcher, Suggestions};

/// Number of entries of the table.
const ENTRIES: usize = 128;
/// Number of distances in an entry.
const DELTAS: usize = 16;
/// Bits of a distance; one that needs more is stored as 0, which never matches.
const DELTA_BITS: u32 = 12;

#[derive(Clone, Debug)]
struct DcptEntry {
    pc: u64,
    last_address: u64,
    last_prefetch: u64,
    /// Distances in lines, oldest first.
    deltas: Vec<i32>,
    used: u64,
}

/// Prefetcher that suggests the lines that followed the last two distances when these occurred before.
#[derive(Clone, Debug)]
pub struct Dcpt {
    entries: Vec<DcptEntry>,
    /// Index of the entry for each hash of an instruction's address: a hint that is checked before use.
    hints: Vec<u16>,
    line_shift: u32,
    clock: u64,
}

impl Dcpt {
    /// Makes a prefetcher for lines of `line_bytes` bytes.
    pub fn new(line_bytes: u64) -> Self {
        assert!(line_bytes.is_power_of_two(), "{line_bytes} bytes a line");
        Self { entries: Vec::new(), hints: vec![0; 1_024], line_shift: line_bytes.trailing_zeros(), clock: 0 }
    }

    fn find(&mut self, pc: u64) -> Option<usize> {
        let hint = (pc >> 1) as usize % self.hints.len();
        let at = usize::from(self.hints[hint]);
        if self.entries.get(at).is_some_and(|entry| entry.pc == pc) {
            return Some(at);
        }
        let found = self.entries.iter().position(|entry| entry.pc == pc)?;
        self.hints[hint] = found as u16;
        Some(found)
    }

    fn insert(&mut self, pc: u64, address: u64) {
        let used = self.clock;
        let entry = DcptEntry { pc, last_address: address, last_prefetch: 0, deltas: Vec::with_capacity(DELTAS), used };
        if self.entries.len() < ENTRIES {
            self.entries.push(entry);
        } else {
            let oldest = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.used).expect("a full table").0;
            self.entries[oldest] = entry;
        }
    }
}

impl CachePrefetcher for Dcpt {
    fn access(&mut self, pc: u64, address: u64, _missed: bool, suggestions: &mut Suggestions) {
        self.clock += 1;
        // Distances are counted in lines: accesses within one line count as one access.
        let line = address >> self.line_shift;
        let Some(at) = self.find(pc) else { return self.insert(pc, line) };
        let (clock, shift) = (self.clock, self.line_shift);
        let entry = &mut self.entries[at];
        entry.used = clock;
        let delta = line.wrapping_sub(entry.last_address) as i64;
        if delta == 0 {
            return;
        }
        let limit = 1i64 << (DELTA_BITS - 1);
        let kept = if (-limit..limit).contains(&delta) { delta as i32 } else { 0 };
        if entry.deltas.len() == DELTAS {
            entry.deltas.remove(0);
        }
        entry.deltas.push(kept);
        entry.last_address = line;
        for candidate in candidates(entry) {
            suggestions.push(candidate << shift);
            entry.last_prefetch = candidate;
        }
    }
}

/// Returns the lines that follow from the last two distances, if these two occurred before; leaves out those up to the
/// line prefetched last.
fn candidates(entry: &DcptEntry) -> Vec<u64> {
    let deltas = &entry.deltas;
    let Some([before, last]) = deltas.last_chunk::<2>() else { return Vec::new() };
    if *before == 0 || *last == 0 {
        return Vec::new();
    }
    let end = deltas.len() - 2;
    let Some(found) = (0..end).rev().find(|&i| deltas[i] == *before && deltas[i + 1] == *last) else {
        return Vec::new();
    };
    let mut line = entry.last_address;
    let mut lines = Vec::new();
    for &delta in &deltas[found + 2..] {
        line = line.wrapping_add_signed(i64::from(delta));
        lines.push(line);
        if line == entry.last_prefetch {
            // All lines up to this one were prefetched before.
            lines.clear();
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Computes the suggestions by the published algorithm, slowly, over plain lists of all addresses of an
    /// instruction.
    fn slowly(addresses: &[u64]) -> Vec<Vec<u64>> {
        let mut last_prefetch = 0u64;
        let mut told = Vec::new();
        let mut lines: Vec<u64> = Vec::new();
        for &address in addresses {
            let line = address / 64;
            let mut out = Vec::new();
            if lines.last().is_some_and(|&l| l != line) || lines.is_empty() {
                lines.push(line);
                let all: Vec<i64> = lines.windows(2).map(|w| w[1] as i64 - w[0] as i64).collect();
                let kept: Vec<i64> = all[all.len().saturating_sub(16)..]
                    .iter()
                    .map(|&d| if d.abs() > 2_047 && d != -2_048 { 0 } else { d })
                    .collect();
                let n = kept.len();
                if n >= 3 && kept[n - 1] != 0 && kept[n - 2] != 0 {
                    for i in (0..n - 2).rev() {
                        if kept[i] == kept[n - 2] && kept[i + 1] == kept[n - 1] {
                            let mut at = line as i64;
                            for d in &kept[i + 2..] {
                                at += d;
                                out.push(at as u64);
                                if at as u64 == last_prefetch {
                                    out.clear();
                                }
                            }
                            break;
                        }
                    }
                }
                if let Some(&last) = out.last() {
                    last_prefetch = last;
                }
            }
            told.push(out.iter().map(|line| line * 64).collect());
        }
        told
    }

    #[test]
    fn it_suggests_what_the_published_algorithm_suggests() {
        for seed in 0..40 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let pattern: Vec<u64> = (0..rng.usize(1..5)).map(|_| rng.u64(1..40) * 32).collect();
            let mut at = 1 << 30;
            let addresses: Vec<u64> = (0..300)
                .map(|i| {
                    at += if rng.u8(..20) == 0 { rng.u64(..1 << 20) } else { pattern[i % pattern.len()] };
                    at
                })
                .collect();
            let mut dcpt = Dcpt::new(64);
            for (i, (&address, expected)) in addresses.iter().zip(slowly(&addresses)).enumerate() {
                let mut suggestions = Suggestions::default();
                dcpt.access(0x40, address, true, &mut suggestions);
                assert_eq!(suggestions.as_slice(), expected, "seed {seed}, access {i}");
            }
        }
    }

    #[test]
    fn on_recorded_traces_it_suggests_what_the_published_algorithm_suggests() {
        let mut suggested = 0;
        for trace in super::super::traces::recorded() {
            let mut by_pc: HashMap<u64, Vec<u64>> = HashMap::new();
            trace.iter().for_each(|&(pc, address)| by_pc.entry(pc).or_default().push(address));
            assert!(by_pc.len() <= ENTRIES, "every instruction keeps its entry");
            let expected: HashMap<u64, Vec<Vec<u64>>> =
                by_pc.iter().map(|(&pc, addresses)| (pc, slowly(addresses))).collect();
            let mut turns: HashMap<u64, usize> = HashMap::new();
            let mut dcpt = Dcpt::new(64);
            for (i, &(pc, address)) in trace.iter().enumerate() {
                let mut suggestions = Suggestions::default();
                dcpt.access(pc, address, true, &mut suggestions);
                let turn = turns.entry(pc).or_default();
                assert_eq!(suggestions.as_slice(), expected[&pc][*turn], "access {i}, at {pc:#x}");
                *turn += 1;
                suggested += suggestions.as_slice().len();
            }
        }
        assert!(suggested > 1_000, "{suggested} lines");
    }

    #[test]
    fn instructions_have_entries_of_their_own_and_the_oldest_leaves() {
        let mut dcpt = Dcpt::new(64);
        for round in 0..4u64 {
            for pc in 0..200u64 {
                let mut suggestions = Suggestions::default();
                dcpt.access(pc * 4, (pc << 20) + round * 64, true, &mut suggestions);
                assert!(suggestions.as_slice().is_empty(), "no entry of {ENTRIES} lives through 200 instructions");
            }
        }
        assert_eq!(dcpt.entries.len(), ENTRIES);
    }
}
