//! Every victim, and every block that is opened, beside a watcher that knows only the addresses of pages: it counts
//! live pages, ages and erases itself and searches all blocks for the one that the policy names.

use std::collections::BTreeMap;

use super::{POLICIES, description, device};
use crate::describe::GcPolicy;
use crate::flash::PageAddress;
use crate::ftl::{FtlError, Moved, Owner, PageMapped, ReclaimStep};

/// Seed of the devices of these tests, from which d-choices draws blocks.
const SEED: u64 = 1;

/// A block as its pages show it.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    written: u16,
    erases: u32,
    /// Number of pages programmed on the device when the block was closed.
    closed_at: u64,
    /// Number of the last change of the closed block's live pages.
    changed: u64,
    /// Number of the erase by which the block became free; 0 for a block that was never used.
    freed: u64,
}

struct Watcher {
    policy: GcPolicy,
    least_worn_first: bool,
    pages: u16,
    blocks: Vec<Watched>,
    places: BTreeMap<u64, PageAddress>,
    given: u64,
    changes: u64,
    freed: u64,
    behind_last: usize,
    chance: fastrand::Rng,
}

impl Watcher {
    fn new(policy: GcPolicy, least_worn_first: bool, blocks: u32, pages: u16) -> Self {
        Self {
            policy,
            least_worn_first,
            pages,
            blocks: vec![Watched::default(); blocks as usize],
            places: BTreeMap::new(),
            given: 0,
            changes: 0,
            freed: 0,
            behind_last: 0,
            chance: fastrand::Rng::with_seed(SEED),
        }
    }

    fn live(&self, block: usize) -> u64 {
        self.places.values().filter(|place| place.block as usize == block).count() as u64
    }

    /// Returns the closed blocks with a dead page, each with its live pages.
    fn candidates(&self) -> Vec<(usize, u64)> {
        let closed = (0..self.blocks.len()).filter(|&block| self.blocks[block].written == self.pages);
        closed.map(|block| (block, self.live(block))).filter(|&(_, live)| live < u64::from(self.pages)).collect()
    }

    /// A page was programmed: checks that its block was the one to be opened, if it was.
    fn programmed(&mut self, lpa: u64, place: PageAddress) {
        let block = place.block as usize;
        if place.page == 0 {
            let free = (0..self.blocks.len()).filter(|&b| self.blocks[b].written == 0);
            let rank = |b: &usize| {
                let of = self.blocks[*b];
                let order = if self.least_worn_first { u64::from(of.erases) } else { of.freed };
                (of.freed > 0, if of.freed > 0 { order } else { 0 }, *b)
            };
            assert_eq!(Some(block), free.min_by_key(rank), "the block that is opened, {:?}", self.blocks);
        }
        assert_eq!(self.blocks[block].written, place.page, "pages of a block are written in order");
        self.blocks[block].written += 1;
        self.given += 1;
        self.changes += 1;
        let before = self.places.insert(lpa, place);
        if self.blocks[block].written == self.pages {
            (self.blocks[block].closed_at, self.blocks[block].changed) = (self.given, self.changes);
        }
        if let Some(before) = before {
            self.died(before);
        }
    }

    fn died(&mut self, place: PageAddress) {
        self.changes += 1;
        self.blocks[place.block as usize].changed = self.changes;
    }

    /// Returns the victim by the definition of the policy.
    fn victim(&mut self) -> Option<usize> {
        let candidates = self.candidates();
        let latest = |&&(block, live): &&(usize, u64)| (live, std::cmp::Reverse(self.blocks[block].changed));
        let picked = match self.policy {
            GcPolicy::Greedy => candidates.iter().min_by_key(latest).copied(),
            GcPolicy::RoundRobin => {
                let from = self.behind_last;
                candidates.iter().min_by_key(|&&(block, _)| (block < from, block)).copied()
            }
            GcPolicy::CostBenefit => {
                let score = |&(block, live): &(usize, u64)| {
                    let age = u128::from(self.given - self.blocks[block].closed_at + 1);
                    (age * (u128::from(self.pages) - u128::from(live)), u128::from(2 * live))
                };
                let mut best: Option<(usize, u64)> = None;
                for one in &candidates {
                    let better = |other: &(usize, u64)| {
                        let ((a, b), (c, d)) = (score(one), score(other));
                        a * d > c * b
                    };
                    if best.as_ref().is_none_or(better) {
                        best = Some(*one);
                    }
                }
                best
            }
            GcPolicy::WindowedGreedy(w) => {
                let mut oldest = candidates.clone();
                oldest.sort_by_key(|&(block, _)| self.blocks[block].closed_at);
                oldest.truncate(w as usize);
                oldest.into_iter().min_by_key(|&(_, live)| live)
            }
            GcPolicy::DChoices(d) => {
                let mut drawn = Vec::new();
                for _ in 0..4 * d {
                    let block = self.chance.u32(0..self.blocks.len() as u32) as usize;
                    drawn.extend(candidates.iter().find(|one| one.0 == block));
                    if drawn.len() == d as usize {
                        break;
                    }
                }
                drawn.into_iter().copied().min_by_key(|&(_, live)| live)
            }
        };
        let picked = picked.map(|(block, _)| block);
        self.behind_last = picked.map_or(self.behind_last, |block| (block + 1) % self.blocks.len());
        picked
    }

    /// Runs the job that a write waits for, and checks which block it empties.
    fn reclaim(&mut self, ftl: &mut PageMapped, what: &str) {
        let expected = self.victim();
        let emptiest = self.candidates().into_iter().map(|(_, live)| live).min();
        let mut emptied = None;
        loop {
            let step = ftl.step(0);
            let block = match step {
                ReclaimStep::Move(m) => m.from.block as usize,
                ReclaimStep::Erase { place, .. } => place.block as usize,
                other => panic!("{what}: {other:?} while a write waits"),
            };
            if emptied.is_none() {
                match expected {
                    Some(expected) => assert_eq!(block, expected, "{what}: the victim, {:?}", self.blocks),
                    // A policy that draws blocks may find none; then the emptiest is taken.
                    None => assert_eq!(Some(self.live(block)), emptiest, "{what}: an emptiest block"),
                }
                emptied = Some(block);
            }
            assert_eq!(emptied, Some(block), "{what}: one victim at a time");
            match step {
                ReclaimStep::Move(m) => {
                    let Owner::Page(lpa) = m.owner else { panic!("{what}: a map page") };
                    assert_eq!(self.places[&lpa], m.from, "{what}: a live page is moved");
                    let Ok(Moved::To(place)) = ftl.relocate(&m) else { panic!("{what}: {m:?} found no room") };
                    self.programmed(lpa, place);
                }
                _ => {
                    assert_eq!(self.live(block), 0, "{what}: an erased block has no live page");
                    ftl.erased(PageAddress { die: 0, block: block as u32, page: 0, plane: 0 });
                    self.freed += 1;
                    let b = &mut self.blocks[block];
                    (b.written, b.erases, b.freed) = (0, b.erases + 1, self.freed);
                    return;
                }
            }
        }
    }

    fn write(&mut self, ftl: &mut PageMapped, lpa: u64, what: &str) {
        loop {
            match ftl.write(lpa, true, 0, |_| 0, &mut Vec::new()) {
                Ok(written) => return self.programmed(lpa, written.place),
                Err(FtlError::NotNow { plane: 0 }) => self.reclaim(ftl, what),
                Err(e) => panic!("{what}: {e}"),
            }
        }
    }
}

#[test]
fn every_victim_is_the_one_that_its_policy_defines() {
    let more = [GcPolicy::DChoices(1), GcPolicy::DChoices(3), GcPolicy::WindowedGreedy(1), GcPolicy::WindowedGreedy(3)];
    for policy in POLICIES.into_iter().chain(more) {
        for least_worn_first in [false, true] {
            let what = format!("{policy:?}, least worn first: {least_worn_first}");
            let (blocks, pages) = (18, 7);
            let mut d = description([1, 1, 1, 1], blocks, u32::from(pages), 0.3);
            (d.ftl.gc, d.ftl.wear_dynamic) = (policy, least_worn_first);
            let mut ftl = device(&d);
            let mut watcher = Watcher::new(policy, least_worn_first, blocks, pages);
            let mut chance = fastrand::Rng::with_seed(5);
            let capacity = ftl.capacity_pages();
            for n in 0..1_200 {
                // Half of the writes go to a few pages; now and then pages are trimmed.
                let lpa = if chance.bool() { chance.u64(0..capacity) } else { chance.u64(0..5) };
                if n % 40 == 39 {
                    let there = watcher.places.remove(&lpa);
                    assert_eq!(ftl.trim(lpa, 1, &mut Vec::new()), Ok(u64::from(there.is_some())), "{what}");
                    there.into_iter().for_each(|place| watcher.died(place));
                } else {
                    watcher.write(&mut ftl, lpa, &what);
                }
            }
            ftl.audit();
            let report = ftl.report();
            let erases = watcher.blocks.iter().map(|b| u64::from(b.erases)).sum::<u64>();
            assert!(erases > 60, "{what}: {erases} erases");
            assert_eq!((report.erases[2], report.live_pages), (erases, watcher.places.len() as u64), "{what}");
            let (least, most) =
                (watcher.blocks.iter().map(|b| b.erases).min(), watcher.blocks.iter().map(|b| b.erases).max());
            assert_eq!((Some(report.wear.least), Some(report.wear.most)), (least, most), "{what}");
            assert_eq!(report.wear.histogram.iter().map(|&(e, n)| u64::from(e) * n).sum::<u64>(), erases, "{what}");
        }
    }
}

/// Static wear levelling: with a threshold, erase counts never differ by much more; without, cold blocks stay.
#[test]
fn erase_counts_stay_as_close_as_the_threshold_says() {
    let spread = |threshold: Option<u32>| {
        let mut d = description([1, 1, 1, 1], 40, 8, 0.25);
        (d.ftl.wear_dynamic, d.ftl.wear_static_threshold) = (true, threshold);
        let mut ftl = device(&d);
        ftl.fill_sequential().unwrap();
        let mut chance = fastrand::Rng::with_seed(6);
        let hot = ftl.capacity_pages() / 8;
        let mut widest = 0;
        for n in 0..20_000 {
            super::steady::write(&mut ftl, chance.u64(0..hot), &mut Vec::new());
            ftl.reclaim_at_once(0).unwrap();
            if n % 50 == 0 {
                let wear = ftl.report().wear;
                widest = widest.max(wear.most - wear.least);
            }
        }
        ftl.audit();
        widest
    };
    let never = spread(None);
    for threshold in [2, 5, 20] {
        let widest = spread(Some(threshold));
        // A cold block is emptied after an erase that makes it due; meanwhile a few more erases happen.
        assert!(widest <= threshold + 4 && widest < never, "{widest} at a threshold of {threshold}, {never} without");
    }
}
