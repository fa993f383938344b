//! An interval tree: a set of intervals of integers, each with a number, in which overlapping intervals are found.
//!
//! The tree is a treap ordered by (first, number); each node has the largest end in its subtree. Priorities are a hash
//! of the number, so that the tree depends on its content only. Insertion and removal take O(log n), a search O(log n +
//! found).

/// An interval in the tree, with its subtrees.
#[derive(Debug)]
struct IntervalNode {
    first: u64,
    last: u64,
    number: u64,
    /// Largest `last` in the subtree of this node.
    reach: u64,
    below: [Option<Box<IntervalNode>>; 2],
}

type Link = Option<Box<IntervalNode>>;

/// A set of intervals `first..=last`, each with a number.
#[derive(Debug, Default)]
pub(crate) struct IntervalTree {
    root: Link,
}

/// Returns a hash of a number (SplitMix64), which is the priority of its node.
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl IntervalNode {
    fn key(&self) -> (u64, u64) {
        (self.first, self.number)
    }

    fn settle(mut self: Box<Self>) -> Box<Self> {
        let below = self.below.iter().flatten().map(|n| n.reach).max();
        self.reach = self.last.max(below.unwrap_or(0));
        self
    }
}

/// Splits a tree into the nodes before `key` and the nodes from `key` on.
fn split(link: Link, key: (u64, u64)) -> (Link, Link) {
    let Some(mut node) = link else { return (None, None) };
    if node.key() < key {
        let (left, right) = split(node.below[1].take(), key);
        node.below[1] = left;
        (Some(node.settle()), right)
    } else {
        let (left, right) = split(node.below[0].take(), key);
        node.below[0] = right;
        (left, Some(node.settle()))
    }
}

/// Joins two trees; all nodes of `left` must come before all of `right`.
fn join(left: Link, right: Link) -> Link {
    match (left, right) {
        (None, one) | (one, None) => one,
        (Some(mut a), Some(mut b)) => Some(if mixed(a.number) >= mixed(b.number) {
            a.below[1] = join(a.below[1].take(), Some(b));
            a.settle()
        } else {
            b.below[0] = join(Some(a), b.below[0].take());
            b.settle()
        }),
    }
}

impl IntervalTree {
    /// Adds an interval; `number` must differ from the numbers of all intervals in the tree.
    pub(crate) fn insert(&mut self, first: u64, last: u64, number: u64) {
        assert!(first <= last, "an interval from {first} to {last}");
        let (left, right) = split(self.root.take(), (first, number));
        let node = Box::new(IntervalNode { first, last, number, reach: last, below: [None, None] });
        self.root = join(join(left, Some(node)), right);
    }

    /// Removes the interval with this first element and number, which must exist.
    pub(crate) fn remove(&mut self, first: u64, number: u64) {
        let (left, rest) = split(self.root.take(), (first, number));
        let (own, right) = split(rest, (first, number + 1));
        assert!(own.is_some(), "no interval {number} begins at {first}");
        self.root = join(left, right);
    }

    /// Whether the tree has no interval.
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Calls `found` with the number of each interval that overlaps `first..=last`.
    pub(crate) fn overlapping(&self, first: u64, last: u64, found: &mut dyn FnMut(u64)) {
        let mut left: Vec<&IntervalNode> = self.root.as_deref().into_iter().collect();
        while let Some(node) = left.pop() {
            if node.reach < first {
                continue;
            }
            left.extend(node.below[0].as_deref());
            if node.first <= last {
                if node.last >= first {
                    found(node.number);
                }
                left.extend(node.below[1].as_deref());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_same_as_a_list() {
        let mut chance = crate::sim::Chance::seeded(18);
        let (mut tree, mut list) = (IntervalTree::default(), Vec::<(u64, u64, u64)>::new());
        for number in 0..3_000u64 {
            if chance.below(3) == 0 && !list.is_empty() {
                let (first, _, number) = list.swap_remove(chance.below(list.len() as u64) as usize);
                tree.remove(first, number);
            } else {
                let first = chance.below(200);
                let last = first + chance.below(20);
                tree.insert(first, last, number);
                list.push((first, last, number));
            }
            let (first, width) = (chance.below(220), chance.below(10));
            let mut found = Vec::new();
            tree.overlapping(first, first + width, &mut |n| found.push(n));
            let mut wanted: Vec<u64> =
                list.iter().filter(|(a, b, _)| *a <= first + width && first <= *b).map(|(.., n)| *n).collect();
            found.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(found, wanted, "seed 18, step {number}");
        }
        for (first, _, number) in list {
            tree.remove(first, number);
        }
        assert!(tree.is_empty());
    }
}
