//! The map from logical to physical pages: one number a page, in chunks that are allocated when an entry in them is
//! first written.
//!
//! The pages of the map itself are owners like logical pages, numbered after these, so that reclaim handles one kind
//! of page. An entry is 0 while its page lies where the initial fill put it, so that a chunk begins as zeroed memory.

use super::fill::Fill;
use super::scatter::Scatter;

/// Value that stands for "not mapped", "no block" and "no page".
pub(super) const NOWHERE: u32 = u32::MAX;
/// Maximum number of flash pages: a map entry holds a page's number plus one, and two values are reserved.
pub(super) const PAGES_MAX: u64 = u32::MAX as u64 - 2;

/// Entries of a chunk, which is 4 KiB.
const CHUNK: usize = 1024;

/// The map from owners (logical pages and map pages) to physical pages.
#[derive(Clone, Debug)]
pub(super) struct Map {
    chunks: Vec<Option<Box<[u32; CHUNK]>>>,
    /// Owners below this number lie at the page that `fill` computes, until they are written.
    filled: u32,
    pub(super) fill: Fill,
}

impl Map {
    pub(super) fn new(owners: u32, fill: Fill) -> Self {
        Self { chunks: vec![None; (owners as usize).div_ceil(CHUNK)], filled: 0, fill }
    }

    /// Maps all owners below `filled` by the fill formula; only for a map that was never written.
    pub(super) fn fill_to(&mut self, filled: u32) {
        debug_assert!(self.chunks.iter().all(Option::is_none), "a device that was written");
        self.filled = filled;
    }

    /// Maps all owners below `filled` by the formula of `scatter`.
    pub(super) fn scatter(&mut self, filled: u32, scatter: Scatter) {
        self.fill = self.fill.clone().scattered(scatter);
        self.fill_to(filled);
    }

    /// Returns the physical page of an owner, or [`NOWHERE`].
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

    /// Maps an owner to a physical page, or unmaps it with [`NOWHERE`].
    pub(super) fn set(&mut self, owner: u32, page: u32) {
        let chunk = self.chunks[owner as usize / CHUNK]
            .get_or_insert_with(|| vec![0; CHUNK].into_boxed_slice().try_into().expect("a chunk of its size"));
        debug_assert!(page == NOWHERE || u64::from(page) < PAGES_MAX, "owner {owner} at page {page}");
        chunk[owner as usize % CHUNK] = if page == NOWHERE { u32::MAX } else { page + 1 };
    }
}
