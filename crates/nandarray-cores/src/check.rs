//! The check of a kernel's description table: compares what its screens access on sample data with what the table
//! declares.
//!
//! Each screen may access every section as a whole, while a meter notes the bytes of every load and store. Screens run
//! one after the other, so each result is that of a serial run even if the table is wrong.

use std::collections::BTreeMap;
use std::ops::Range;

use nandarray_hart::{DataAccess, Meter, MeterAnswer};

use crate::kernel::{KernelProgram, ScreenCall, ScreenError, ScreenRule, SectionRole, SectionWindow, WindowBytes};
use crate::kernel_metered::metered_screen;

/// Most instructions that one screen may execute in a check.
const INSTRUCTIONS_MAX: u64 = 1 << 33;

/// Bytes of a section that were accessed, as disjoint ranges: first byte to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TouchedBytes(BTreeMap<u64, u64>);

impl TouchedBytes {
    fn add(&mut self, first: u64, end: u64) {
        if let Some((_, to)) = self.0.range_mut(..=first).next_back() {
            if *to >= end {
                return;
            }
            if *to >= first {
                *to = end;
                return self.close(first);
            }
        }
        self.0.insert(first, end);
        self.close(first);
    }

    /// Joins the range that contains `first` with the ranges that it now overlaps or adjoins.
    fn close(&mut self, first: u64) {
        let (&start, &end) = self.0.range(..=first).next_back().expect("it was added");
        let mut reach = end;
        while let Some((&next, &to)) = self.0.range(start + 1..=reach).next() {
            self.0.remove(&next);
            reach = reach.max(to);
        }
        self.0.insert(start, reach);
    }

    /// Returns the first accessed byte outside of the `allowed` range; `None` if all lie inside.
    fn outside(&self, allowed: &Range<u64>) -> Option<u64> {
        self.0.iter().find_map(|(first, end)| match () {
            () if *first < allowed.start => Some(*first),
            () if *end > allowed.end => Some((*first).max(allowed.end)),
            () => None,
        })
    }

    /// Returns a byte that both sets contain; `None` if they are disjoint.
    fn common(&self, other: &Self) -> Option<u64> {
        self.0.iter().find_map(|(first, end)| {
            let before = other.0.range(..=*first).next_back().filter(|(_, to)| **to > *first).map(|_| *first);
            before.or_else(|| other.0.range(*first..*end).next().map(|(at, _)| *at))
        })
    }
}

/// A meter that notes which bytes of each section a screen reads and writes.
#[derive(Clone, Debug, Default)]
struct TouchMeter {
    windows: Vec<Range<u64>>,
    reads: Vec<TouchedBytes>,
    writes: Vec<TouchedBytes>,
}

impl Meter for TouchMeter {
    const ACCESSES: bool = true;

    fn access(&mut self, _index: u32, kind: DataAccess, address: u64, bytes: u32) -> MeterAnswer {
        if let Some(section) = self.windows.iter().position(|w| w.contains(&address)) {
            let first = address - self.windows[section].start;
            let end = first + u64::from(bytes);
            if kind != DataAccess::Store {
                self.reads[section].add(first, end);
            }
            if kind != DataAccess::Load {
                self.writes[section].add(first, end);
            }
        }
        MeterAnswer::Proceed
    }
}

/// Checks a kernel's table by running the kernel on sample data, which the kernel changes. `screens` is the number of
/// screens of each microblock whose table leaves the number to the scheduler. Returns a message for each fault of the
/// table; an empty list if the table is right.
///
/// # Errors
/// [`ScreenError`]: a screen failed, for instance by an access outside of all sections.
pub fn check(
    kernel: &KernelProgram,
    sections: &mut [(Vec<u64>, Vec<u8>)],
    scalars: &[u64],
    screens: u64,
) -> Result<Vec<String>, ScreenError> {
    let table = &kernel.table;
    let mut wrong = Vec::new();
    for (microblock, block) in table.microblocks.iter().enumerate() {
        let rows = |section: usize| sections[section].0.first().copied().unwrap_or(1);
        let count = block.screens(table, screens, rows).min(screens.max(1));
        let count = if block.screens == ScreenRule::Count(1) { 1 } else { count };
        let mut touched: Vec<TouchMeter> = Vec::new();
        for screen in 0..count {
            let meter = observed(kernel, sections, scalars, (microblock, screen, count))?;
            for (section, (shape, bytes)) in sections.iter().enumerate() {
                let (rows, name) = (shape.first().copied().unwrap_or(1), &table.sections[section].name);
                let row = (bytes.len() as u64).checked_div(rows).unwrap_or(0);
                let declared = |part: Option<crate::kernel::MappedPart>| {
                    let rows = part.map_or(0..0, |part| part.rows(rows, screen, count));
                    rows.start * row..rows.end * row
                };
                let (write, read) = (declared(block.writes.get(&section).copied()), declared(block.mapped(section)));
                let who = format!("screen {screen} of {} of microblock {}", count, block.entry);
                if let Some(byte) = meter.reads[section].outside(&read) {
                    wrong.push(format!("{who} reads byte {byte} of {name}; its table says {read:?}"));
                }
                if let Some(byte) = meter.writes[section].outside(&write) {
                    wrong.push(format!("{who} writes byte {byte} of {name}; its table says {write:?}"));
                }
                for (other, earlier) in touched.iter().enumerate() {
                    let both = [
                        meter.writes[section].common(&earlier.writes[section]),
                        meter.writes[section].common(&earlier.reads[section]),
                        meter.reads[section].common(&earlier.writes[section]),
                    ];
                    if let Some(byte) = both.into_iter().flatten().next() {
                        let entry = &block.entry;
                        wrong
                            .push(format!("screens {other} and {screen} of {entry} conflict at byte {byte} of {name}"));
                    }
                }
            }
            touched.push(meter);
        }
    }
    Ok(wrong)
}

/// Runs a screen with all sections mapped as a whole, and returns the meter that noted its accesses.
fn observed(
    kernel: &KernelProgram,
    sections: &mut [(Vec<u64>, Vec<u8>)],
    scalars: &[u64],
    (microblock, screen, screens): (usize, u64, u64),
) -> Result<TouchMeter, ScreenError> {
    let count = sections.len();
    let window = |n: usize| kernel.window(n)..kernel.window(n) + sections[n].1.len() as u64;
    let windows = (0..count).map(window).collect();
    let none = vec![TouchedBytes::default(); count];
    let meter = TouchMeter { windows, reads: none.clone(), writes: none };
    let call = whole_call(kernel, sections, scalars, (microblock, screen, screens));
    metered_screen(kernel, meter, call, Some(INSTRUCTIONS_MAX))
}

/// Builds the call of a screen that maps every section as a whole.
pub fn whole_call<'w>(
    kernel: &KernelProgram,
    sections: &'w mut [(Vec<u64>, Vec<u8>)],
    scalars: &'w [u64],
    (microblock, screen, screens): (usize, u64, u64),
) -> ScreenCall<'w> {
    let roles = kernel.table.sections.iter().map(|s| s.role);
    let sections = sections.iter_mut().zip(roles).map(|((shape, bytes), role)| SectionWindow {
        offset: 0,
        shape,
        bytes: Some(if role == SectionRole::Input { WindowBytes::Read(bytes) } else { WindowBytes::Write(bytes) }),
    });
    ScreenCall { microblock, screen, screens, scalars, sections: sections.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_bytes_join_and_are_compared() {
        let mut touched = TouchedBytes::default();
        for (first, end) in [(8, 12), (20, 24), (12, 16), (0, 4), (10, 22), (4, 6)] {
            touched.add(first, end);
        }
        assert_eq!(touched.0, BTreeMap::from([(0, 6), (8, 24)]));
        assert_eq!(touched.outside(&(0..24)), None);
        assert_eq!(touched.outside(&(0..20)), Some(20));
        assert_eq!(touched.outside(&(4..24)), Some(0));
        let mut other = TouchedBytes::default();
        other.add(6, 8);
        assert_eq!(touched.common(&other), None);
        other.add(22, 30);
        assert_eq!((touched.common(&other), other.common(&touched)), (Some(22), Some(22)));
    }

    #[test]
    fn touched_bytes_are_the_bytes_that_were_touched() {
        for seed in 0..2_000 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let mut sets = [(TouchedBytes::default(), [false; 80]), (TouchedBytes::default(), [false; 80])];
            for step in 0..chance.usize(..24) {
                let (touched, plain) = &mut sets[chance.usize(..2)];
                let first = chance.u64(..72);
                let end = first + [1, 2, 4, 8][chance.usize(..4)];
                touched.add(first, end);
                plain[first as usize..end as usize].fill(true);
                // Ranges are apart: none overlaps or adjoins the next.
                let mut wanted = BTreeMap::new();
                let begins = (0..80).filter(|n| plain[*n] && (*n == 0 || !plain[*n - 1]));
                wanted.extend(begins.map(|n| (n as u64, (n..80).find(|m| !plain[*m]).unwrap_or(80) as u64)));
                assert_eq!(touched.0, wanted, "seed {seed}, step {step}");
                let from = chance.u64(..80);
                let allowed = from..from + chance.u64(..40);
                let out = (0..80).find(|n| plain[*n as usize] && !allowed.contains(n));
                assert_eq!(touched.outside(&allowed), out, "seed {seed}, step {step}: {allowed:?}");
            }
            let [(a, of_a), (b, of_b)] = &sets;
            let both = (0..80).find(|n| of_a[*n] && of_b[*n]).map(|n| n as u64);
            assert_eq!((a.common(b), b.common(a)), (both, both), "seed {seed}");
        }
    }
}
