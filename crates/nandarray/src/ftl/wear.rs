//! Wear: erase counts of segments, kept while the store is closed. An erase is counted when a segment is opened.
//!
//! A checkpoint has the counts at its time. Later ones are in the headers of the segments that journal records name,
//! and in those of the lowest free segments, which may have been opened for commands that were never committed. Under a
//! capacity the medium stands for a device of fixed size: a truncated segment comes back when the medium grows, but
//! without its header. Its erases since the checkpoint are counted from the journal: a page that is named a second time
//! was erased in between. Erases without any named page are missed. Without a capacity truncated segments belong to the
//! file system, and their wear is forgotten.

use std::collections::BTreeMap;

use super::{Ftl, FtlState};
use crate::flash::{Geometry, Run, Segment};

/// The segments that were opened since a checkpoint, as the journal records after it show.
#[derive(Debug, Default)]
pub struct OpenedSince {
    /// For each segment, the number of erases that the journal shows since the checkpoint; 0 for segments whose headers
    /// have the counts.
    times: BTreeMap<Segment, u32>,
    /// Runs of pages that records named since the pages' segment was opened: first page, and end. `None` in a store
    /// without a capacity, where erases are not counted.
    pages: Option<BTreeMap<u64, u64>>,
    last: Option<Segment>,
}

impl OpenedSince {
    /// Creates the record without segments; `counted` is whether erases are counted, as in a store with a capacity.
    pub fn new(counted: bool) -> Self {
        Self { pages: counted.then(BTreeMap::new), ..Self::default() }
    }

    /// Returns the segment of the pages that the journal names last; `None` if it names none.
    pub fn last(&self) -> Option<Segment> {
        self.last
    }

    /// Notes that a record names a run of pages; `was_live` is whether its segment had live pages before.
    pub fn name(&mut self, geometry: &Geometry, run: Run, was_live: bool) {
        let segment = geometry.segment_of(run.ppa);
        let again = self.last.replace(segment) == Some(segment);
        let Some(pages) = &mut self.pages else {
            if !again {
                self.times.entry(segment).or_default();
            }
            return;
        };
        let (first, behind) = (run.ppa.0, run.ppa.0 + u64::from(run.count));
        // A segment with live pages was opened before the checkpoint.
        let times = self.times.entry(segment).or_insert(u32::from(!was_live));
        if pages.range(..behind).next_back().is_some_and(|(_, &end)| end > first) {
            *times = times.saturating_add(1);
            let all = geometry.ppa(segment, 0).0..geometry.ppa(segment, geometry.pages_per_segment() - 1).0 + 1;
            let gone: Vec<u64> = pages.range(all).map(|(&first, _)| first).collect();
            gone.iter().for_each(|first| {
                pages.remove(first);
            });
        }
        match pages.range_mut(..=first).next_back() {
            // Pages of two segments never touch.
            Some((_, end)) if *end == first => *end = behind,
            _ => {
                pages.insert(first, behind);
            }
        }
    }

    /// Adds segments whose erase counts are in their headers.
    pub fn extend(&mut self, segments: impl Iterator<Item = Segment>) {
        segments.for_each(|segment| {
            self.times.entry(segment).or_default();
        });
    }
}

impl Ftl {
    /// Stores which segments were opened since the checkpoint from which the segment table was read.
    pub fn wear_is_older(&self, opened: OpenedSince) {
        let s = &mut *self.state.lock();
        let mut within = opened.times;
        let beyond = within.split_off(&(s.segments.len() as Segment));
        beyond.iter().for_each(|(&segment, &times)| s.segments.wear_beyond(segment, times));
        s.opened_since = within;
    }

    /// Reads the erase counts of segments that were opened since the checkpoint from their headers. Opening a store
    /// does not need this, since a segment's header is read before the segment is opened again.
    pub fn learn_wear(&self) {
        let s = &mut *self.state.lock();
        let named: Vec<Segment> = s.opened_since.keys().copied().collect();
        if named.is_empty() {
            return;
        }
        let within = s.segments.len() as Segment;
        for &segment in named.iter().take_while(|&&n| n < within) {
            self.wear_from_header(s, segment);
        }
        s.opened_since.clear();
        let mut next = 0;
        while let Some(&free) = s.segments.free().range(next..).next() {
            next = free + 1;
            if named.binary_search(&free).is_err() && !self.wear_from_header(s, free) {
                break;
            }
        }
    }

    /// Raises a segment's erase count to that of its header; `false` if the count was as high already. Without an
    /// intact header (the segment was truncated, or the header is damaged) the number of erases in the journal is added
    /// instead.
    pub(super) fn wear_from_header(&self, s: &mut FtlState, segment: Segment) -> bool {
        let counted = s.opened_since.remove(&segment).unwrap_or(0);
        let erases = match self.header_of(segment).ok().flatten() {
            Some(header) => header.erases(),
            None => s.segments.info(segment).erases.saturating_add(counted),
        };
        s.segments.restore_wear(segment, erases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::Ppa;

    #[test]
    fn a_page_that_is_named_again_was_erased_in_between() {
        let g = Geometry::TINY;
        let run = |segment, page, count| Run { unit: 0, count, ppa: Ppa(g.ppa(segment, page).0) };
        let mut opened = OpenedSince::new(true);
        opened.name(&g, run(3, 8, 4), true); // open at the checkpoint
        opened.name(&g, run(5, 0, 8), false);
        opened.name(&g, run(3, 12, 4), true);
        opened.name(&g, run(5, 16, 16), true);
        opened.name(&g, run(5, 8, 8), true); // of a command that was applied later
        opened.name(&g, run(6, 0, 1), false);
        assert_eq!(opened.times, BTreeMap::from([(3, 0), (5, 1), (6, 1)]));
        opened.name(&g, run(5, 3, 2), false);
        opened.name(&g, run(5, 0, 3), true);
        opened.name(&g, run(5, 6, 20), true);
        assert_eq!(opened.times, BTreeMap::from([(3, 0), (5, 2), (6, 1)]));
        opened.name(&g, run(5, 31, 1), false);
        opened.name(&g, run(5, 25, 1), false);
        assert_eq!(opened.times[&5], 3);
        let mut uncounted = OpenedSince::new(false);
        (0..9).for_each(|_| uncounted.name(&g, run(5, 0, 32), false));
        assert_eq!((uncounted.times, uncounted.last), (BTreeMap::from([(5, 0)]), Some(5)));
    }
}
