//! Locks on ranges of several spaces which an owner requests together, e.g. a kernel for its data sections.
//!
//! Readers share a range; a writer excludes readers and writers of overlapping ranges. A request has all of its ranges
//! and gets a number; it is granted once no earlier request that still exists conflicts with it. Conflicting requests
//! are granted in the order of their arrival, so none starves. Requesting never blocks.
//!
//! An owner may request more while it holds ranges, and may wait for another owner for other reasons. Owners that wait
//! for each other in a circle would wait for ever, so a request or wait that would close a circle is refused, with the
//! owners in the circle.

use std::collections::{BTreeMap, BTreeSet};

use super::Share;
use super::intervals::IntervalTree;

/// A range `first..=last` of a space, in elements or building blocks, as the caller counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedRange {
    /// Number of the space.
    pub space: u64,
    /// First element or block.
    pub first: u64,
    /// Last element or block, inclusive.
    pub last: u64,
    /// Whether the range is read (shared) or written (exclusive).
    pub share: Share,
}

/// A deadlock of owners that was prevented: each would wait for the next one, and the last for the first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("owners {owners:?} would wait for each other")]
pub struct WaitCircle {
    /// Numbers of the owners, beginning with the one that was refused.
    pub owners: Vec<u64>,
}

#[derive(Debug)]
struct TableRequest {
    owner: u64,
    ranges: Vec<SharedRange>,
    /// Numbers of the earlier requests that this one waits for.
    before: BTreeSet<u64>,
    /// Numbers of the later requests that wait for this one.
    behind: BTreeSet<u64>,
}

/// The table of granted and waiting requests for ranges. An owner, e.g. a kernel, may have several requests; the caller
/// chooses its number.
#[derive(Debug, Default)]
pub struct RangeTable {
    next: u64,
    readers: BTreeMap<u64, IntervalTree>,
    writers: BTreeMap<u64, IntervalTree>,
    requests: BTreeMap<u64, TableRequest>,
    /// Numbers of the requests of each owner.
    owned: BTreeMap<u64, BTreeSet<u64>>,
    /// For each owner, the owners that it waits for by [`RangeTable::wait_for`].
    waits: BTreeMap<u64, BTreeSet<u64>>,
}

impl RangeTable {
    /// Requests ranges for an owner and returns the request's number. Ranges of one owner never exclude each other.
    ///
    /// # Errors
    /// [`WaitCircle`] if the owner would wait for an owner that waits for it; nothing is requested then.
    pub fn request(&mut self, owner: u64, ranges: &[SharedRange]) -> Result<u64, WaitCircle> {
        let (number, ranges) = (self.next, apart(ranges));
        let mut before = BTreeSet::new();
        for range in &ranges {
            let mut found = |n: u64| {
                before.insert(n);
            };
            let trees = [Some(&self.writers), (range.share == Share::Exclusive).then_some(&self.readers)];
            for tree in trees.into_iter().flatten().filter_map(|trees| trees.get(&range.space)) {
                tree.overlapping(range.first, range.last, &mut found);
            }
        }
        before.retain(|n| self.requests[n].owner != owner);
        let holds = self.owned.contains_key(&owner) || self.waits.values().any(|on| on.contains(&owner));
        if holds {
            let on: BTreeSet<u64> = before.iter().map(|n| self.requests[n].owner).collect();
            self.circle(owner, &on)?;
        }
        self.next += 1;
        for range in &ranges {
            self.trees(range.share).entry(range.space).or_default().insert(range.first, range.last, number);
        }
        for earlier in &before {
            self.requests.get_mut(earlier).expect("found in a tree").behind.insert(number);
        }
        self.owned.entry(owner).or_default().insert(number);
        self.requests.insert(number, TableRequest { owner, ranges, before, behind: BTreeSet::new() });
        Ok(number)
    }

    /// Records that an owner waits for another one.
    ///
    /// # Errors
    /// [`WaitCircle`] if owner `on` waits for `owner`, directly or indirectly; nothing is recorded then.
    pub fn wait_for(&mut self, owner: u64, on: u64) -> Result<(), WaitCircle> {
        self.circle(owner, &BTreeSet::from([on]))?;
        self.waits.entry(owner).or_default().insert(on);
        Ok(())
    }

    /// Whether a request is granted; once true, this stays true until the request is released.
    ///
    /// # Panics
    /// If there is no such request.
    pub fn is_granted(&self, number: u64) -> bool {
        self.requests[&number].before.is_empty()
    }

    /// Withdraws a request, or releases its ranges. Returns the requests that are granted as a result.
    ///
    /// # Panics
    /// If there is no such request.
    pub fn release(&mut self, number: u64) -> Vec<u64> {
        let gone = self.requests.remove(&number).expect("a request that exists");
        for range in &gone.ranges {
            let trees = self.trees(range.share);
            let tree = trees.get_mut(&range.space).expect("the tree of a range");
            tree.remove(range.first, number);
            if tree.is_empty() {
                trees.remove(&range.space);
            }
        }
        for earlier in &gone.before {
            self.requests.get_mut(earlier).expect("it is still waited for").behind.remove(&number);
        }
        let mut granted = Vec::new();
        for later in &gone.behind {
            let waits = self.requests.get_mut(later).expect("it still waits");
            waits.before.remove(&number);
            if waits.before.is_empty() {
                granted.push(*later);
            }
        }
        let own = self.owned.get_mut(&gone.owner).expect("its owner");
        own.remove(&number);
        if own.is_empty() {
            self.owned.remove(&gone.owner);
        }
        granted
    }

    /// Removes the waits that [`Self::wait_for`] recorded for an owner, in both directions.
    pub fn forget(&mut self, owner: u64) {
        self.waits.remove(&owner);
        for on in self.waits.values_mut() {
            on.remove(&owner);
        }
        self.waits.retain(|_, on| !on.is_empty());
    }

    /// Returns the number of requests, granted or waiting.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    fn trees(&mut self, share: Share) -> &mut BTreeMap<u64, IntervalTree> {
        if share == Share::Exclusive { &mut self.writers } else { &mut self.readers }
    }

    /// Returns the owners that this owner waits for, because of its requests or by [`Self::wait_for`].
    fn waited(&self, owner: u64) -> BTreeSet<u64> {
        let own = self.owned.get(&owner).into_iter().flatten();
        let before = own.flat_map(|n| &self.requests[n].before).map(|n| self.requests[n].owner);
        before.chain(self.waits.get(&owner).into_iter().flatten().copied()).collect()
    }

    /// Returns an error if one of the owners `on` waits for `owner`, so that `owner` must not wait for them.
    fn circle(&self, owner: u64, on: &BTreeSet<u64>) -> Result<(), WaitCircle> {
        let mut from: BTreeMap<u64, u64> = on.iter().map(|o| (*o, owner)).collect();
        let mut left: Vec<u64> = on.iter().copied().collect();
        while let Some(at) = left.pop() {
            if at == owner {
                let (mut owners, mut one) = (Vec::new(), from[&at]);
                while one != owner {
                    owners.push(one);
                    one = from[&one];
                }
                owners.push(owner);
                owners.reverse();
                return Err(WaitCircle { owners });
            }
            for next in self.waited(at) {
                if let std::collections::btree_map::Entry::Vacant(entry) = from.entry(next) {
                    entry.insert(at);
                    left.push(next);
                }
            }
        }
        Ok(())
    }
}

/// Returns the same ranges, sorted and disjoint: overlapping ranges are joined, to an exclusive one if either is.
fn apart(ranges: &[SharedRange]) -> Vec<SharedRange> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable_by_key(|r| (r.space, r.first, r.last));
    let mut made: Vec<SharedRange> = Vec::new();
    for range in sorted {
        match made.last_mut() {
            Some(last) if last.space == range.space && range.first <= last.last => {
                last.last = last.last.max(range.last);
                if range.share == Share::Exclusive {
                    last.share = Share::Exclusive;
                }
            }
            _ => made.push(range),
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(space: u64, first: u64, last: u64, share: Share) -> SharedRange {
        SharedRange { space, first, last, share }
    }

    #[test]
    fn readers_share_and_writers_exclude_in_the_order_of_arrival() {
        let mut table = RangeTable::default();
        let a = table.request(1, &[range(0, 0, 9, Share::Shared)]).unwrap();
        let b = table.request(2, &[range(0, 5, 5, Share::Shared)]).unwrap();
        let w = table.request(3, &[range(0, 9, 20, Share::Exclusive), range(1, 0, 0, Share::Shared)]).unwrap();
        let late = table.request(4, &[range(0, 15, 15, Share::Shared)]).unwrap();
        assert!(table.is_granted(a) && table.is_granted(b) && !table.is_granted(w) && !table.is_granted(late));
        assert_eq!(table.release(a), [w]);
        assert_eq!(table.release(w), [late]);
        table.release(b);
        table.release(late);
        assert!(table.is_empty() && table.readers.is_empty() && table.writers.is_empty());
    }

    #[test]
    fn a_circle_of_waits_is_refused_with_its_owners() {
        let mut table = RangeTable::default();
        let hold =
            |table: &mut RangeTable, owner: u64| table.request(owner, &[range(owner, 0, 9, Share::Exclusive)]).unwrap();
        let held: Vec<u64> = (1..=3).map(|owner| hold(&mut table, owner)).collect();
        table.request(1, &[range(2, 3, 3, Share::Shared)]).unwrap();
        table.request(2, &[range(3, 3, 3, Share::Shared)]).unwrap();
        let error = table.request(3, &[range(1, 0, 0, Share::Exclusive)]).unwrap_err();
        assert_eq!(error.owners, [3, 1, 2]);
        assert_eq!(table.wait_for(3, 1).unwrap_err().owners, [3, 1, 2]);
        table.release(held[0]);
        assert!(table.wait_for(3, 4).is_ok());
        assert_eq!(table.wait_for(4, 4).unwrap_err().owners, [4]);
        table.forget(3);
        assert!(table.wait_for(4, 3).is_ok());
    }

    #[test]
    fn agrees_with_its_definition() {
        let mut chance = crate::sim::Chance::seeded(1808);
        let mut table = RangeTable::default();
        let mut live: Vec<(u64, SharedRange)> = Vec::new();
        for step in 0..3_000u64 {
            if chance.below(2) == 0 || live.is_empty() {
                let first = chance.below(30);
                let share = if chance.below(3) == 0 { Share::Exclusive } else { Share::Shared };
                let asked = range(chance.below(2), first, first + chance.below(5), share);
                live.push((table.request(step, &[asked]).unwrap(), asked));
            } else {
                let (number, _) = live.remove(chance.below(live.len() as u64) as usize);
                table.release(number);
            }
            for (i, (number, own)) in live.iter().enumerate() {
                let blocked = live[..i].iter().any(|(_, other)| {
                    (own.share == Share::Exclusive || other.share == Share::Exclusive)
                        && own.space == other.space
                        && own.first <= other.last
                        && other.first <= own.last
                });
                assert_eq!(table.is_granted(*number), !blocked, "seed 1808, step {step}, request {i}");
            }
        }
    }
}
