//! The queue of an object far away: units that are wanted, pieces on their way, and readers that wait.
//!
//! Units are wanted once, however many readers ask for them. A piece is taken where a reader waits, otherwise in the
//! order of the object from the place of the last piece on, as an elevator does. It is joined with the wanted units
//! behind it over gaps of at most [`GAP_UNITS`], as long as at most a quarter more is fetched than was wanted: a gap
//! costs bytes, a request a round trip, and requests are made side by side.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use parking_lot::{Condvar, Mutex};

use super::FetchError;
use super::units::UNIT_BYTES;
use crate::sim::process::Home;

/// Largest gap in units within a piece: 1 MiB.
const GAP_UNITS: u64 = (1 << 20) / UNIT_BYTES;
/// Largest piece in units: 4 MiB, so that a link of 200 MB/s and a round trip of 20 ms has several at a time, and a
/// reader of the first unit of a long scan does not wait for all of it.
pub(super) const PIECE_UNITS: u64 = (4 << 20) / UNIT_BYTES;
/// Share of a piece, as a divisor of what is wanted in it, that gaps may have.
const WASTE_SHARE: u64 = 4;

/// The queue of a process.
pub(super) struct ProcessQueue {
    pub(super) queue: Mutex<PieceQueue>,
    /// Signalled when something is wanted, or has come.
    pub(super) news: Condvar,
    pub(super) home: Home,
}

impl Default for ProcessQueue {
    fn default() -> Self {
        Self { queue: Mutex::default(), news: Condvar::new(), home: Home::here() }
    }
}

/// Wanted units, pieces on their way, and waiting readers.
#[derive(Default)]
pub(super) struct PieceQueue {
    /// Ranges of wanted units by their beginnings, apart from one another.
    wanted: BTreeMap<u64, u64>,
    units: u64,
    /// Units that readers wait for, in the order in which they asked.
    urgent: VecDeque<u64>,
    flying: Vec<Range<u64>>,
    waiting: Vec<PieceWaiter>,
    next_waiter: u64,
    /// The unit behind the piece that was taken last.
    hand: u64,
    pub(super) threads: usize,
    pub(super) idle: usize,
    /// Threads that were started and do not run yet.
    pub(super) starting: usize,
}

struct PieceWaiter {
    number: u64,
    units: Range<u64>,
    error: Option<FetchError>,
}

impl PieceQueue {
    /// Wants a unit, unless it is wanted or on its way; `urgently` if a reader waits for it.
    pub(super) fn want(&mut self, unit: Range<u64>, urgently: bool) {
        debug_assert_eq!(unit.end, unit.start + 1, "one unit");
        let Range { start: mut from, end: mut to } = unit;
        if self.flying.iter().any(|piece| piece.contains(&from)) {
            return;
        }
        if urgently && !self.urgent.contains(&from) {
            self.urgent.push_back(from);
        }
        if let Some((&start, &end)) = self.wanted.range(..=from).next_back() {
            if end > from {
                return;
            }
            if end == from {
                from = start;
            }
        }
        self.units += 1;
        if let Some(end) = self.wanted.remove(&to) {
            to = end;
        }
        self.wanted.insert(from, to);
    }

    pub(super) fn wanted_units(&self) -> u64 {
        self.units
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Returns a number of pieces that are wanted, not less than there are.
    pub(super) fn pieces(&self) -> usize {
        self.wanted.len() + (self.units / PIECE_UNITS) as usize
    }

    /// Takes the next piece, which is on its way from now on; `None` if nothing is wanted, or `most` units are on their
    /// way.
    pub(super) fn take(&mut self, most: u64) -> Option<Range<u64>> {
        let flying: u64 = self.flying.iter().map(|piece| piece.end - piece.start).sum();
        if flying > 0 && flying + PIECE_UNITS > most {
            return None;
        }
        let start = self.next_start()?;
        let (&first, &end) = self.wanted.range(..=start).next_back().expect("it is wanted");
        // Where a reader waits in the middle of a long range, the piece begins there.
        let from = if start - first < PIECE_UNITS { first } else { start };
        let mut piece = from..end.min(from + PIECE_UNITS);
        let mut useful = piece.end - piece.start;
        self.forget(&piece);
        while let Some((&next, &end)) = self.wanted.range(piece.end..).next() {
            let gap = next - piece.end;
            let end = end.min(piece.start + PIECE_UNITS);
            let waste = (piece.end - piece.start) + gap - useful;
            if gap > GAP_UNITS || end <= next || waste * WASTE_SHARE > useful + (end - next) {
                break;
            }
            self.forget(&(next..end));
            useful += end - next;
            piece.end = end;
        }
        self.hand = piece.end;
        self.flying.push(piece.clone());
        Some(piece)
    }

    /// Returns the wanted unit at which the next piece begins.
    fn next_start(&mut self) -> Option<u64> {
        while let Some(unit) = self.urgent.pop_front() {
            if self.wanted.range(..=unit).next_back().is_some_and(|(_, &end)| end > unit) {
                return Some(unit);
            }
        }
        let behind = self.wanted.range(self.hand..).next();
        behind.or_else(|| self.wanted.iter().next()).map(|(&start, _)| start)
    }

    /// Wants units of one range no longer.
    fn forget(&mut self, units: &Range<u64>) {
        let (&start, &end) = self.wanted.range(..=units.start).next_back().expect("it is wanted");
        assert!(units.end <= end, "units {units:?} of {start}..{end}");
        self.wanted.remove(&start);
        if start < units.start {
            self.wanted.insert(start, units.start);
        }
        if units.end < end {
            self.wanted.insert(units.end, end);
        }
        self.units -= units.end - units.start;
    }

    /// Ends the flight of a piece; its error is that of all who wait for units of it.
    pub(super) fn landed(&mut self, piece: &Range<u64>, error: Option<&FetchError>) {
        let at = self.flying.iter().position(|flying| flying == piece).expect("it was taken");
        self.flying.swap_remove(at);
        if let Some(error) = error {
            let waits = |w: &&mut PieceWaiter| w.units.start < piece.end && piece.start < w.units.end;
            self.waiting.iter_mut().filter(waits).for_each(|w| w.error = Some(error.clone()));
        }
    }

    /// Adds a waiter for units; returns its number.
    pub(super) fn waiter(&mut self, units: Range<u64>) -> u64 {
        self.next_waiter += 1;
        self.waiting.push(PieceWaiter { number: self.next_waiter, units, error: None });
        self.next_waiter
    }

    /// Returns the error that a waiter got.
    pub(super) fn error_of(&mut self, number: u64) -> Option<FetchError> {
        self.waiting.iter_mut().find(|w| w.number == number)?.error.take()
    }

    pub(super) fn leave(&mut self, number: u64) {
        self.waiting.retain(|w| w.number != number);
    }
}
