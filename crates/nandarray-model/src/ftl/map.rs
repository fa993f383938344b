//! Logical to physical: one number a page, in chunks that exist once something in them was written.
//!
//! Pages of the map itself are owners like logical pages, numbered behind them, so that reclaim knows one kind of page.
//! An entry is 0 while it is as the fill left it, so that a chunk begins as zeroed memory.

use super::fill::Fill;
use super::scatter::Scatter;

/// Not mapped; no block; no place.
pub(super) const NOWHERE: u32 = u32::MAX;
/// Most pages of a flash: entries are one more than a page's number, and two values mean something else.
pub(super) const PAGES_MAX: u64 = u32::MAX as u64 - 2;

/// A chunk is 4 KiB.
const CHUNK: usize = 1024;

/// The map.
#[derive(Clone, Debug)]
pub(super) struct Map {
    chunks: Vec<Option<Box<[u32; CHUNK]>>>,
    /// Owners below this lie where the formula says, until they are written.
    filled: u32,
    pub(super) fill: Fill,
}

impl Map {
    pub(super) fn new(owners: u32, fill: Fill) -> Self {
        Self { chunks: vec![None; (owners as usize).div_ceil(CHUNK)], filled: 0, fill }
    }

    /// Lets owners below `filled` lie where the formula says.
    pub(super) fn fill_to(&mut self, filled: u32) {
        debug_assert!(self.chunks.iter().all(Option::is_none), "a device that was written");
        self.filled = filled;
    }

    /// Lets owners below `filled` lie where another formula says.
    pub(super) fn scatter(&mut self, filled: u32, scatter: Scatter) {
        self.fill = self.fill.clone().scattered(scatter);
        self.fill_to(filled);
    }

    /// Where an owner lies, or [`NOWHERE`].
    pub(super) fn get(&self, owner: u32) -> u32 {
        let entry = match &self.chunks[owner as usize / CHUNK] {
            Some(chunk) => chunk[owner as usize % CHUNK],
            None => 0,
        };
        match entry {
            0 if owner < self.filled => self.fill.page_of(owner),
            0 => NOWHERE,
            u32::MAX => NOWHERE,
            page => page - 1,
        }
    }

    /// Maps an owner, or unmaps it with [`NOWHERE`].
    pub(super) fn set(&mut self, owner: u32, page: u32) {
        let chunk = self.chunks[owner as usize / CHUNK]
            .get_or_insert_with(|| vec![0; CHUNK].into_boxed_slice().try_into().expect("a chunk of its size"));
        debug_assert!(page == NOWHERE || u64::from(page) < PAGES_MAX, "owner {owner} at page {page}");
        chunk[owner as usize % CHUNK] = if page == NOWHERE { u32::MAX } else { page + 1 };
    }
}
