//! The index of a space's building blocks: a tree with one level per dimension (NDS paper, section 4.2, figure 6).
//!
//! The root level is the slowest-varying dimension. A node maps a block coordinate along its dimension to a node of the
//! next level; a leaf maps it to the [`BlockMap`] of a building block, the list of the physical pages of its access
//! units. Nodes are sparse in chunks of [`CHUNK`] slots: a dense space costs 16 bytes a block, and a sparse space with
//! sides of 2^64 blocks costs memory only for the chunks in use.
//!
//! The tree holds locations only: no checksums, no states, no data. It does no locking; the space that owns it is
//! locked. A copy of an index, as a snapshot takes it, shares all chunks with the original; a chunk that one of them
//! changes is copied then.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::flash::{Ppa, Run};

/// Number of slots of a chunk of a [`Sparse`] array.
const CHUNK: u64 = 32;

/// The pages of one building block, by access unit. A unit without a page reads as the fill value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockMap {
    /// Units `0..count` on consecutive pages, packed: 48 bits of page number above 16 bits of count - 1.
    One(u64),
    /// Any other map: runs in order of units, possibly with units between them that have no page.
    #[expect(clippy::box_collection, reason = "16 bytes a block: a `Vec` would make it 32")]
    Many(Box<Vec<Run>>),
}

impl BlockMap {
    /// Creates a map of these runs, which must be in order and not overlap; `None` if there are none.
    pub fn from_runs(mut runs: Vec<Run>) -> Option<Self> {
        runs.dedup_by(|next, last| {
            let joins = last.end() == next.unit && last.ppa.0 + u64::from(last.count) == next.ppa.0;
            if joins {
                last.count += next.count;
            }
            joins
        });
        match runs[..] {
            [] => None,
            [Run { unit: 0, count, ppa }] if count <= 1 << 16 && ppa.0 < 1 << 48 => {
                Some(Self::One(ppa.0 << 16 | u64::from(count - 1)))
            }
            _ => {
                runs.shrink_to_fit();
                Some(Self::Many(Box::new(runs)))
            }
        }
    }

    /// Creates a map of units `0..count` on consecutive pages from `ppa`; `None` if the count is 0 or a number is too
    /// large.
    pub fn one_run(count: u32, ppa: Ppa) -> Option<Self> {
        ((1..=1 << 16).contains(&count) && ppa.0 < 1 << 48).then(|| Self::One(ppa.0 << 16 | u64::from(count - 1)))
    }

    fn one(packed: u64) -> Run {
        Run { unit: 0, count: (packed & 0xffff) as u32 + 1, ppa: Ppa(packed >> 16) }
    }

    /// Returns the runs in order of units.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let (one, many) = match self {
            Self::One(packed) => (Some(Self::one(*packed)), &[][..]),
            Self::Many(runs) => (None, &runs[..]),
        };
        one.into_iter().chain(many.iter().copied())
    }

    /// Returns the run that has all of these units; `None` if one of them has no page or they are in several runs.
    #[inline]
    pub fn covering(&self, units: std::ops::Range<u32>) -> Option<Run> {
        debug_assert!(!units.is_empty(), "units {units:?}");
        match self {
            Self::One(packed) => {
                let run = Self::one(*packed);
                (units.end <= run.end()).then_some(run)
            }
            Self::Many(runs) => {
                let at = runs.partition_point(|r| r.end() <= units.start);
                runs.get(at).copied().filter(|r| r.unit <= units.start && units.end <= r.end())
            }
        }
    }

    /// Returns the run that has this unit, or else the next one after it; `None` if there is no later run.
    pub fn next_run(&self, unit: u32) -> Option<Run> {
        match self {
            Self::One(packed) => Some(Self::one(*packed)).filter(|r| unit < r.end()),
            Self::Many(runs) => runs.get(runs.partition_point(|r| r.end() <= unit)).copied(),
        }
    }

    /// Returns the page of one unit; `None` if it has no page.
    pub fn page_of(&self, unit: u32) -> Option<Ppa> {
        self.covering(unit..unit + 1).map(|r| r.page_of(unit))
    }

    /// Returns the number of mapped pages.
    pub fn pages(&self) -> u64 {
        self.runs().map(|r| u64::from(r.count)).sum()
    }

    /// Returns the map `old` without the pages of the units for which `gone` is true, and with the runs `new` (in order
    /// of units) added; `None` if no unit has a page then.
    pub fn replaced(old: Option<&Self>, gone: impl Fn(u32) -> bool, new: &[Run]) -> Option<Self> {
        let mut runs: Vec<Run> = Vec::with_capacity(new.len() + 2);
        for run in old.into_iter().flat_map(Self::runs) {
            let mut start = None;
            for unit in run.unit..=run.end() {
                let kept = unit < run.end() && !gone(unit);
                match (kept, start) {
                    (true, None) => start = Some(unit),
                    (false, Some(from)) => {
                        runs.push(Run { unit: from, count: unit - from, ppa: run.page_of(from) });
                        start = None;
                    }
                    _ => {}
                }
            }
        }
        runs.extend_from_slice(new);
        runs.sort_unstable_by_key(|r| r.unit);
        assert!(runs.windows(2).all(|w| w[0].end() <= w[1].unit), "units of a block overlap: {runs:?}");
        Self::from_runs(runs)
    }
}

/// A sparse array, stored as chunks of slots; chunks without a value take no memory. Copies share chunks.
#[derive(Clone, Debug)]
struct Sparse<T> {
    chunks: BTreeMap<u64, Arc<Chunk<T>>>,
}

type Chunk<T> = [Option<T>; CHUNK as usize];

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self { chunks: BTreeMap::new() }
    }
}

impl<T: Clone> Sparse<T> {
    fn get(&self, at: u64) -> Option<&T> {
        self.chunks.get(&(at / CHUNK))?[(at % CHUNK) as usize].as_ref()
    }

    fn slot(&mut self, at: u64) -> &mut Option<T> {
        let chunk = self.chunks.entry(at / CHUNK).or_insert_with(|| Arc::new([const { None }; CHUNK as usize]));
        &mut Arc::make_mut(chunk)[(at % CHUNK) as usize]
    }

    fn get_mut(&mut self, at: u64) -> Option<&mut T> {
        Arc::make_mut(self.chunks.get_mut(&(at / CHUNK))?)[(at % CHUNK) as usize].as_mut()
    }

    /// Removes and returns the value of a slot, `None` if it has none; frees the chunk if it has no other value.
    fn take(&mut self, at: u64) -> Option<T> {
        let chunk = Arc::make_mut(self.chunks.get_mut(&(at / CHUNK))?);
        let gone = chunk[(at % CHUNK) as usize].take();
        if chunk.iter().all(Option::is_none) {
            self.chunks.remove(&(at / CHUNK));
        }
        gone
    }

    fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.chunks.iter().flat_map(|(&c, chunk)| {
            chunk.iter().enumerate().filter_map(move |(i, s)| Some((c * CHUNK + i as u64, s.as_ref()?)))
        })
    }
}

#[derive(Clone, Debug)]
enum Node {
    Inner(Sparse<Node>),
    Leaf(Sparse<BlockMap>),
}

/// Builds an index from blocks in ascending order of coordinates, ten times as fast as setting them one by one.
#[derive(Debug)]
pub struct Builder {
    index: Index,
    /// Coordinates of the leaf being filled: all but the last coordinate of its blocks. Not a `Vec`, whose dangling
    /// pointer when empty makes AVX-512 comparisons take a suppressed fault, which took half of the time of reading a
    /// one-dimensional index.
    outer: SmallVec<[u64; 4]>,
    leaf: Sparse<BlockMap>,
    chunk: Option<(u64, Box<Chunk<BlockMap>>)>,
    last: Option<u64>,
}

impl Builder {
    /// Creates a builder of an index with this number of dimensions, which is empty at first.
    pub fn new(dimensions: usize) -> Self {
        Self { index: Index::new(dimensions), outer: SmallVec::new(), leaf: Sparse::default(), chunk: None, last: None }
    }

    /// Adds a block; returns `false`, without adding it, if it does not follow the one before in order of coordinates.
    #[must_use]
    pub fn push(&mut self, at: &[u64], map: BlockMap) -> bool {
        let (&last, outer) = at.split_last().expect("a block has coordinates");
        if self.last.is_none() || self.outer.as_slice() != outer {
            if self.last.is_some() && self.outer.as_slice() > outer {
                return false;
            }
            self.end_leaf();
            self.outer.clear();
            self.outer.extend_from_slice(outer);
        } else if self.last >= Some(last) {
            return false;
        }
        self.last = Some(last);
        debug_assert_eq!(at.len(), self.index.dimensions, "coordinates of a block");
        let number = last / CHUNK;
        if self.chunk.as_ref().is_none_or(|(n, _)| *n != number) {
            self.end_chunk();
            self.chunk = Some((number, Box::new([const { None }; CHUNK as usize])));
        }
        let (_, chunk) = self.chunk.as_mut().expect("set above");
        chunk[(last % CHUNK) as usize] = Some(map);
        self.index.blocks += 1;
        true
    }

    fn end_chunk(&mut self) {
        if let Some((number, chunk)) = self.chunk.take() {
            self.leaf.chunks.insert(number, Arc::from(chunk));
        }
    }

    fn end_leaf(&mut self) {
        self.end_chunk();
        if self.leaf.is_empty() {
            return;
        }
        let leaf = std::mem::take(&mut self.leaf);
        *self.index.leaf_mut(&self.outer) = leaf;
    }

    /// Returns the finished index.
    pub fn finish(mut self) -> Index {
        self.end_leaf();
        self.index
    }
}

/// The index of one space: its building blocks with at least one page.
#[derive(Clone, Debug)]
pub struct Index {
    dimensions: usize,
    root: Node,
    blocks: u64,
}

/// A lookup that remembers the path through the index to the last block, since neighbouring blocks share most of it.
#[derive(Clone, Debug, Default)]
pub struct Cursor<'a> {
    /// Nodes on the path from the root; node `i + 1` is the child of node `i` at coordinate `at[i]`. Shorter than the
    /// number of dimensions if the last lookup found no node.
    path: SmallVec<[&'a Node; 5]>,
    at: SmallVec<[u64; 4]>,
    /// The chunk of the leaf that was used last, with its number; `None` before the first lookup.
    chunk: Option<(u64, &'a Chunk<BlockMap>)>,
}

impl<'a> Cursor<'a> {
    /// Returns the pages of the block at these coordinates; `None` if it has none.
    #[inline]
    pub fn get(&mut self, index: &'a Index, at: &[u64]) -> Option<&'a BlockMap> {
        let (&last, outer) = at.split_last().expect("a block has coordinates");
        if self.path.len() != at.len() || self.at.iter().zip(outer).any(|(a, b)| a != b) {
            self.walk(index, outer)?;
        }
        let number = last / CHUNK;
        let chunk = match self.chunk {
            Some((n, chunk)) if n == number => chunk,
            _ => {
                let Some(Node::Leaf(blocks)) = self.path.last() else {
                    unreachable!("levels end at the last dimension")
                };
                let chunk = blocks.chunks.get(&number)?;
                self.chunk = Some((number, chunk));
                chunk
            }
        };
        chunk[(last % CHUNK) as usize].as_ref()
    }

    /// Moves to the leaf at `outer`, all but the last coordinate of a block, beginning where its path leaves the
    /// present path; `None` if the leaf does not exist.
    fn walk(&mut self, index: &'a Index, outer: &[u64]) -> Option<()> {
        assert_eq!(outer.len() + 1, index.dimensions);
        self.chunk = None;
        if self.path.is_empty() {
            self.path.push(&index.root);
        }
        let same = self.at.iter().zip(outer).take_while(|(a, b)| a == b).count();
        self.at.truncate(same);
        self.path.truncate(same + 1);
        for &coordinate in &outer[same..] {
            let Some(Node::Inner(children)) = self.path.last() else {
                unreachable!("levels end at the last dimension")
            };
            self.path.push(children.get(coordinate)?);
            self.at.push(coordinate);
        }
        Some(())
    }
}

impl Index {
    /// Creates an empty index with this number of dimensions, at least 1.
    pub fn new(dimensions: usize) -> Self {
        assert!(dimensions > 0);
        let root = if dimensions == 1 { Node::Leaf(Sparse::default()) } else { Node::Inner(Sparse::default()) };
        Self { dimensions, root, blocks: 0 }
    }

    /// Returns the number of building blocks that have a page.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the leaf at `outer`, all but the last coordinate of a block; creates it and the nodes above it if
    /// necessary.
    fn leaf_mut(&mut self, outer: &[u64]) -> &mut Sparse<BlockMap> {
        debug_assert_eq!(outer.len() + 1, self.dimensions, "coordinates of a leaf");
        let mut node = &mut self.root;
        for (level, &coordinate) in outer.iter().enumerate() {
            let Node::Inner(children) = node else { unreachable!("levels end at the last dimension") };
            let below_is_leaf = level + 2 == self.dimensions;
            node = children.slot(coordinate).get_or_insert_with(|| {
                if below_is_leaf { Node::Leaf(Sparse::default()) } else { Node::Inner(Sparse::default()) }
            });
        }
        let Node::Leaf(blocks) = node else { unreachable!("levels end at the last dimension") };
        blocks
    }

    /// Returns the pages of the block at these coordinates; `None` if it has none.
    pub fn get(&self, at: &[u64]) -> Option<&BlockMap> {
        Cursor::default().get(self, at)
    }

    /// Sets the pages of a block, or removes the block if `map` is `None`; returns the pages that it had.
    pub fn set(&mut self, at: &[u64], map: Option<BlockMap>) -> Option<BlockMap> {
        assert_eq!(at.len(), self.dimensions);
        let old = match map {
            Some(map) => {
                let (last, outer) = at.split_last().expect("checked above");
                self.blocks += 1;
                self.leaf_mut(outer).slot(*last).replace(map)
            }
            None => Self::take(&mut self.root, at),
        };
        self.blocks -= u64::from(old.is_some());
        old
    }

    fn take(node: &mut Node, at: &[u64]) -> Option<BlockMap> {
        match node {
            Node::Leaf(blocks) => blocks.take(at[0]),
            Node::Inner(children) => {
                let child = children.get_mut(at[0])?;
                let gone = Self::take(child, &at[1..]);
                let empty = match child {
                    Node::Inner(c) => c.is_empty(),
                    Node::Leaf(b) => b.is_empty(),
                };
                if empty {
                    children.take(at[0]);
                }
                gone
            }
        }
    }

    /// Calls `see` with the coordinates and pages of every block, in order of coordinates.
    pub fn for_each(&self, see: &mut dyn FnMut(&[u64], &BlockMap)) {
        fn walk(node: &Node, at: &mut Vec<u64>, see: &mut dyn FnMut(&[u64], &BlockMap)) {
            match node {
                Node::Inner(children) => {
                    for (coordinate, child) in children.iter() {
                        at.push(coordinate);
                        walk(child, at, see);
                        at.pop();
                    }
                }
                Node::Leaf(blocks) => {
                    for (coordinate, map) in blocks.iter() {
                        at.push(coordinate);
                        see(at, map);
                        at.pop();
                    }
                }
            }
        }
        walk(&self.root, &mut Vec::with_capacity(self.dimensions), see);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn run(unit: u32, count: u32, ppa: u64) -> Run {
        Run { unit, count, ppa: Ppa(ppa) }
    }

    #[test]
    fn a_slot_is_two_words() {
        assert_eq!(size_of::<Option<BlockMap>>(), 16);
    }

    #[test]
    fn replacing_units_splits_and_joins_runs() {
        let whole = BlockMap::from_runs(vec![run(0, 8, 100)]).unwrap();
        let map = BlockMap::replaced(Some(&whole), |u| u == 3, &[run(3, 1, 500)]).unwrap();
        assert_eq!(map.runs().collect::<Vec<_>>(), [run(0, 3, 100), run(3, 1, 500), run(4, 4, 104)]);
        assert_eq!(map.page_of(3), Some(Ppa(500)));
        assert_eq!(map.covering(4..8), Some(run(4, 4, 104)));
        assert_eq!(map.covering(3..5), None);
        let back = BlockMap::replaced(Some(&map), |u| u == 3, &[run(3, 1, 103)]).unwrap();
        assert_eq!(back, whole);
        assert_eq!(BlockMap::replaced(Some(&whole), |_| true, &[]), None);
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(
            ops in prop::collection::vec(
                (
                    prop::collection::vec(prop_oneof![0u64..5, Just(u64::MAX), Just(1 << 40)], 3),
                    any::<bool>(),
                    1u64..1000,
                ),
                0..200,
            ),
        ) {
            let mut index = Index::new(3);
            let mut model: BTreeMap<Vec<u64>, u64> = BTreeMap::new();
            for (at, put, ppa) in ops {
                let map = put.then(|| BlockMap::from_runs(vec![run(0, 4, ppa)]).unwrap());
                let old = index.set(&at, map).map(|m| m.page_of(0).unwrap().0);
                let expected = if put { model.insert(at, ppa) } else { model.remove(&at) };
                prop_assert_eq!(old, expected);
                prop_assert_eq!(index.blocks(), model.len() as u64);
            }
            // A copy keeps what it has while the original changes.
            let (copy, before) = (index.clone(), model.clone());
            for (i, at) in before.keys().enumerate() {
                let map = (i % 2 == 0).then(|| BlockMap::from_runs(vec![run(0, 4, 5000)]).unwrap());
                index.set(at, map);
            }
            prop_assert_eq!(copy.blocks(), before.len() as u64);
            for (at, &ppa) in &before {
                prop_assert_eq!(copy.get(at).and_then(|map| map.page_of(0)), Some(Ppa(ppa)));
            }
            let index = copy;
            let mut builder = Builder::new(3);
            for (at, ppa) in &model {
                prop_assert!(builder.push(at, BlockMap::from_runs(vec![run(0, 4, *ppa)]).unwrap()));
                let again = BlockMap::from_runs(vec![run(0, 4, *ppa)]).unwrap();
                prop_assert!(!builder.push(at, again), "twice is refused");
            }
            let built = builder.finish();
            prop_assert_eq!(built.blocks(), index.blocks());
            index.for_each(&mut |at, map| assert_eq!(built.get(at), Some(map)));
            let mut seen = Vec::new();
            index.for_each(&mut |at, map| seen.push((at.to_vec(), map.page_of(0).unwrap().0)));
            prop_assert_eq!(seen, model.clone().into_iter().collect::<Vec<_>>());
            // One cursor, to what is there and to what is not, in order and out of it.
            let mut cursor = Cursor::default();
            for (at, ppa) in model.iter().chain(model.iter().rev()) {
                prop_assert_eq!(index.get(at).unwrap().page_of(0), Some(Ppa(*ppa)));
                for axis in 0..3 {
                    let mut beside = at.clone();
                    beside[axis] ^= 1;
                    let expected = model.get(&beside).map(|&ppa| Ppa(ppa));
                    prop_assert_eq!(cursor.get(&index, &beside).and_then(|map| map.page_of(0)), expected);
                    prop_assert_eq!(cursor.get(&index, at).and_then(|map| map.page_of(0)), Some(Ppa(*ppa)));
                }
            }
        }
    }
}
