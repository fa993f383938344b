//! Erase blocks: their states, the free ones, the open ones of each stream, and the owner of each page.
//!
//! A plane has one open block per stream. The next free block to be opened is the least worn, or the one that was
//! freed first; blocks that were never used come before all others, in order of their numbers. The owners of a block's
//! pages are kept in a row, a table that a block gets when it is opened and returns when it is erased.

use super::fill::Fill;
use super::map::NOWHERE;
use super::scatter::Scatter;
use nandarray::policy::WearLevelling;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use strength_reduce::StrengthReducedU32;

/// Streams of writes; the pages of each stream are written to separate blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stream {
    /// The host's pages; only the cold ones if hot pages are separated.
    Host,
    /// The host's hot pages.
    Hot,
    /// Pages of the map.
    Map,
    /// Pages that reclaim and wear levelling move, and pages whose program failed.
    Moved,
}

/// Number of variants of [`Stream`].
pub(super) const STREAMS: usize = 4;

/// Number of free blocks of a plane that only [`Stream::Moved`] may open: one to empty a victim into, one for a block
/// that fails meanwhile.
pub(super) const KEPT_BLOCKS: u32 = 2;

/// State of an erase block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum BlockState {
    /// Erased or never used; waits to be opened.
    Free,
    /// Pages of the block are being assigned, in order, to one stream.
    Open,
    /// All pages of the block were assigned; the block is a candidate for reclaim.
    Closed,
    /// Reclaim or wear levelling moves the block's live pages out.
    Leaving,
    /// None of the block's pages is live and its erase was requested.
    Erasing,
    /// A program in the block failed; once its live pages have been moved, it is bad.
    Retiring,
    /// The block is never used again.
    Bad,
}

/// Counts and state of an erase block.
#[derive(Clone, Copy, Debug)]
pub(super) struct EraseBlock {
    /// Number of pages that the map points to.
    pub(super) live: u16,
    /// Number of pages that were assigned; also the number of the page to assign next.
    pub(super) next: u16,
    /// Number of erases.
    pub(super) erases: u32,
    /// Index in `rows` of the row with its pages' owners; [`NOWHERE`] for a free block, and for one whose owners the
    /// formula of [`Fill`] gives.
    row: u32,
    /// State of the block.
    pub(super) state: BlockState,
}

/// State of a plane.
#[derive(Clone, Debug)]
pub(super) struct Plane {
    /// Number of free blocks, those never used included.
    pub(super) free: u32,
    /// Number of blocks that are neither bad nor retiring.
    pub(super) good: u32,
    /// Number of live pages, those in retiring blocks included.
    pub(super) live: u32,
    /// Minimum number of free blocks at which streams other than [`Stream::Moved`] may open one.
    pub(super) floor: u32,
    /// Number of live pages up to which the host and the map may write, so that reclaim always finds a dead page.
    pub(super) live_max: u32,
    /// Open block of each stream; [`NOWHERE`] if there is none.
    pub(super) open: [u32; STREAMS],
    /// Number of pages assigned to each stream, rounded up where a block was left early: modulo the pages of a block,
    /// this is the page that the stream writes next.
    given: [u64; STREAMS],
    /// Failed blocks that wait to be emptied.
    pub(super) retiring: VecDeque<u32>,
    /// Whether erase counts differ so much that static wear levelling is due.
    pub(super) wear_due: bool,
    /// First block that was never used; bad blocks after it are skipped.
    unused: u32,
    /// Free blocks that were used before: the rank that orders them (erase count or order of freeing), and the block.
    used: BinaryHeap<Reverse<(u64, u32)>>,
    /// Number of good blocks by erase count; maintained only for static wear levelling.
    by_erases: BTreeMap<u32, u32>,
}

/// All erase blocks of a device.
#[derive(Clone, Debug)]
pub(super) struct EraseBlocks {
    /// Number of blocks of a plane.
    pub(super) per_plane: u32,
    /// Number of pages of a block.
    pub(super) pages: u32,
    pub(super) blocks: Vec<EraseBlock>,
    pub(super) planes: Vec<Plane>,
    /// One bit per page, set if the page was assigned and has died. The table is 32 times smaller than the map, and
    /// parts of it where all pages are live are never accessed.
    dead: Vec<u64>,
    /// Number of 64-bit words of `dead` per block.
    words: u32,
    /// Divisor of a block's number in the device: the number of blocks of a plane.
    by_blocks: StrengthReducedU32,
    by_pages: StrengthReducedU32,
    rows: Vec<Box<[u32]>>,
    rows_free: Vec<u32>,
    pub(super) levelling: WearLevelling,
    freed: u64,
}

impl EraseBlocks {
    /// Makes unused blocks; `bad` says which are bad from the factory, by plane and block.
    pub(super) fn new(
        (planes, per_plane, pages): (u32, u32, u32),
        levelling: WearLevelling,
        bad: impl Fn(u32, u32) -> bool,
    ) -> Self {
        let fresh = EraseBlock { live: 0, next: 0, erases: 0, row: NOWHERE, state: BlockState::Free };
        let mut blocks = vec![fresh; planes as usize * per_plane as usize];
        let words = pages.div_ceil(64);
        let dead = vec![0; blocks.len() * words as usize];
        let planes = (0..planes)
            .map(|plane| {
                let mut good = 0;
                for block in 0..per_plane {
                    if bad(plane, block) {
                        blocks[(plane * per_plane + block) as usize].state = BlockState::Bad;
                    } else {
                        good += 1;
                    }
                }
                Plane {
                    free: good,
                    good,
                    live: 0,
                    floor: 0,
                    live_max: 0,
                    open: [NOWHERE; STREAMS],
                    given: [0; STREAMS],
                    retiring: VecDeque::new(),
                    wear_due: false,
                    unused: 0,
                    used: BinaryHeap::new(),
                    by_erases: BTreeMap::from([(0, good)]),
                }
            })
            .collect();
        Self {
            per_plane,
            pages,
            blocks,
            planes,
            dead,
            words,
            by_blocks: StrengthReducedU32::new(per_plane),
            by_pages: StrengthReducedU32::new(pages),
            rows: Vec::new(),
            rows_free: Vec::new(),
            levelling,
            freed: 0,
        }
    }

    /// Returns the plane of a block, which is numbered through the whole device.
    pub(super) fn plane_of(&self, block: u32) -> u32 {
        block / self.by_blocks
    }

    /// Returns the block of a page, both numbered through the whole device.
    pub(super) fn block_of(&self, page: u32) -> u32 {
        page / self.by_pages
    }

    /// Returns the block of a page, both numbered through the whole device, and the page within the block.
    pub(super) fn split(&self, page: u32) -> (u32, u32) {
        StrengthReducedU32::div_rem(page, self.by_pages)
    }

    /// Returns the plane of a block, which is numbered through the whole device, and the block within the plane.
    pub(super) fn split_block(&self, block: u32) -> (u32, u32) {
        StrengthReducedU32::div_rem(block, self.by_blocks)
    }

    /// Whether a plane has a page for a stream, in its open block or in a free one that it may open.
    pub(super) fn has_page(&self, plane: u32, stream: Stream) -> bool {
        let p = &self.planes[plane as usize];
        p.open[stream as usize] != NOWHERE || p.free >= if stream == Stream::Moved { 1 } else { p.floor }
    }

    /// Returns the number of pages assigned to a stream in a plane; modulo the pages of a block, the page that the
    /// stream writes next.
    pub(super) fn given(&self, plane: u32, stream: Stream) -> u64 {
        self.planes[plane as usize].given[stream as usize]
    }

    /// Returns the number of pages of a plane that could be given to [`Stream::Moved`].
    pub(super) fn room(&self, plane: u32) -> u64 {
        let p = &self.planes[plane as usize];
        let open = match p.open[Stream::Moved as usize] {
            NOWHERE => 0,
            block => self.pages - u32::from(self.blocks[block as usize].next),
        };
        u64::from(p.free) * u64::from(self.pages) + u64::from(open)
    }

    /// Gives the next page of a stream's open block to an owner, as a live page. Returns the page, and whether it was
    /// the block's last one.
    ///
    /// # Panics
    /// If there is no such page; call [`EraseBlocks::has_page`] first.
    pub(super) fn take(&mut self, plane: u32, stream: Stream, owner: u32) -> (u32, bool) {
        let mut block = self.planes[plane as usize].open[stream as usize];
        if block == NOWHERE {
            block = self.open(plane);
            let p = &mut self.planes[plane as usize];
            p.open[stream as usize] = block;
            p.given[stream as usize] = p.given[stream as usize].next_multiple_of(u64::from(self.pages));
        }
        let p = &mut self.planes[plane as usize];
        p.given[stream as usize] += 1;
        let b = &mut self.blocks[block as usize];
        let page = u32::from(b.next);
        assert!(b.state == BlockState::Open && page < self.pages, "block {block} is {:?}, page {page}", b.state);
        self.rows[b.row as usize][page as usize] = owner;
        b.next += 1;
        b.live += 1;
        p.live += 1;
        assert!(b.live <= b.next, "block {block}: {} live pages of {} given out", b.live, b.next);
        let last = u32::from(b.next) == self.pages;
        if last {
            b.state = BlockState::Closed;
            p.open[stream as usize] = NOWHERE;
        }
        (block * self.pages + page, last)
    }

    fn open(&mut self, plane: u32) -> u32 {
        let first = plane * self.per_plane;
        let p = &mut self.planes[plane as usize];
        while p.unused < self.per_plane && self.blocks[(first + p.unused) as usize].state != BlockState::Free {
            p.unused += 1;
        }
        let block = if p.unused < self.per_plane {
            p.unused += 1;
            first + p.unused - 1
        } else {
            p.used.pop().expect("a free block").0.1
        };
        assert!(p.free > 0, "plane {plane} has no free block");
        p.free -= 1;
        let row = self.row();
        let b = &mut self.blocks[block as usize];
        assert!(b.state == BlockState::Free && b.next == 0 && b.live == 0, "block {block} is opened: {b:?}");
        b.state = BlockState::Open;
        b.row = row;
        block
    }

    fn row(&mut self) -> u32 {
        self.rows_free.pop().unwrap_or_else(|| {
            self.rows.push(vec![0; self.pages as usize].into_boxed_slice());
            self.rows.len() as u32 - 1
        })
    }

    /// Returns the owner that a page was given to.
    pub(super) fn owner(&self, page: u32, fill: &Fill) -> u32 {
        let (block, in_block) = self.split(page);
        self.owner_in(block, in_block, fill)
    }

    /// Returns the owner that a page of a block was given to.
    pub(super) fn owner_in(&self, block: u32, in_block: u32, fill: &Fill) -> u32 {
        match self.blocks[block as usize].row {
            NOWHERE => fill.lpa_at(self.plane_of(block), block % self.per_plane, in_block),
            row => self.rows[row as usize][in_block as usize],
        }
    }

    /// Whether a page that was assigned is live.
    pub(super) fn is_live(&self, block: u32, in_block: u32) -> bool {
        self.dead[(block * self.words + in_block / 64) as usize] >> (in_block % 64) & 1 == 0
    }

    /// Returns the first live page of a block from page `from` on; `None` if there is none.
    pub(super) fn next_live(&self, block: u32, from: u32) -> Option<u32> {
        let end = u32::from(self.blocks[block as usize].next);
        let mut at = from;
        while at < end {
            let live = !self.dead[(block * self.words + at / 64) as usize] >> (at % 64);
            if live != 0 {
                return Some(at + live.trailing_zeros()).filter(|&page| page < end);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Marks a page as dead; returns its block with the block's remaining live pages and state.
    pub(super) fn forget(&mut self, page: u32) -> (u32, u16, BlockState) {
        let (block, in_block) = self.split(page);
        let plane = self.plane_of(block);
        let (word, bit) = (&mut self.dead[(block * self.words + in_block / 64) as usize], 1 << (in_block % 64));
        assert!(*word & bit == 0, "page {in_block} of block {block} dies twice");
        *word |= bit;
        let b = &mut self.blocks[block as usize];
        assert!(in_block < u32::from(b.next) && b.live > 0, "page {in_block} of block {block} dies: {b:?}");
        b.live -= 1;
        self.planes[plane as usize].live -= 1;
        (block, b.live, b.state)
    }

    /// Marks a block as free after a successful erase, and counts the erase.
    pub(super) fn erased(&mut self, block: u32) {
        self.give_back_row(block);
        let plane = self.plane_of(block);
        let p = &mut self.planes[plane as usize];
        let b = &mut self.blocks[block as usize];
        assert!(b.state == BlockState::Erasing && b.live == 0, "an erase of block {block}, which is {:?}", b.state);
        b.state = BlockState::Free;
        b.next = 0;
        b.erases += 1;
        p.free += 1;
        self.freed += 1;
        p.used.push(Reverse((self.levelling.rank(b.erases, self.freed), block)));
        if self.levelling.threshold.is_some() {
            count_down(&mut p.by_erases, b.erases - 1);
            *p.by_erases.entry(b.erases).or_insert(0) += 1;
            let (least, most) = (p.by_erases.first_key_value(), p.by_erases.last_key_value());
            p.wear_due = least.zip(most).is_some_and(|((&least, _), (&most, _))| self.levelling.is_due(least, most));
        }
    }

    /// Takes a block out of use and gives it this state, retiring or bad; its live pages stay live until they are
    /// moved.
    pub(super) fn retire(&mut self, block: u32, state: BlockState) {
        let plane = self.plane_of(block);
        let p = &mut self.planes[plane as usize];
        let b = &mut self.blocks[block as usize];
        let good = matches!(b.state, BlockState::Open | BlockState::Closed | BlockState::Leaving | BlockState::Erasing);
        assert!(good && p.good > 0, "block {block} is retired: {b:?}");
        for open in &mut p.open {
            if *open == block {
                *open = NOWHERE;
            }
        }
        b.state = state;
        p.good -= 1;
        if self.levelling.threshold.is_some() {
            count_down(&mut p.by_erases, b.erases);
        }
    }

    /// Marks a retiring block as bad, once it holds no live pages.
    pub(super) fn bad(&mut self, block: u32) {
        self.give_back_row(block);
        let b = &mut self.blocks[block as usize];
        assert!(b.live == 0 && b.state == BlockState::Retiring, "block {block} is bad: {b:?}");
        b.next = 0;
        b.state = BlockState::Bad;
    }

    /// Frees a block's row of owners, and clears its bits in `dead`.
    fn give_back_row(&mut self, block: u32) {
        self.dead[(block * self.words) as usize..][..self.words as usize].fill(0);
        let row = std::mem::replace(&mut self.blocks[block as usize].row, NOWHERE);
        if row != NOWHERE {
            self.rows_free.push(row);
        }
    }

    /// Returns the highest erase count of a plane's good blocks; maintained only for static wear levelling.
    pub(super) fn most_erases(&self, plane: u32) -> u32 {
        self.planes[plane as usize].by_erases.last_key_value().map_or(0, |(&erases, _)| erases)
    }

    /// Whether no block was ever opened or filled.
    pub(super) fn untouched(&self) -> bool {
        self.planes.iter().all(|p| p.unused == 0 && p.used.is_empty())
    }

    /// Marks the first `rows` pages of a plane's good blocks as assigned, with the owners that the formula of `fill`
    /// gives; if the last of these blocks is not full, it becomes the host's open block.
    pub(super) fn fill(&mut self, plane: u32, rows: u32, fill: &Fill) {
        let (full, rest) = (rows / self.pages, rows % self.pages);
        let first = plane * self.per_plane;
        for nth in 0..full {
            let b = &mut self.blocks[(first + fill.nth_good(plane, nth)) as usize];
            assert_eq!(b.state, BlockState::Free);
            (b.state, b.live, b.next) = (BlockState::Closed, self.pages as u16, self.pages as u16);
        }
        let p = &mut self.planes[plane as usize];
        assert!(full <= p.free, "plane {plane}: {rows} pages in {} free blocks", p.free);
        p.free -= full;
        p.live += rows;
        p.unused = if full == 0 { 0 } else { fill.nth_good(plane, full - 1) + 1 };
        if rest > 0 {
            let block = self.open(plane);
            let p = &mut self.planes[plane as usize];
            p.open[Stream::Host as usize] = block;
            p.given[Stream::Host as usize] = u64::from(rest);
            let b = &mut self.blocks[block as usize];
            (b.live, b.next) = (rest as u16, rest as u16);
            for page in 0..rest {
                self.rows[b.row as usize][page as usize] = fill.lpa_at(plane, block - first, page);
            }
        }
    }
}

/// State of a block, for a device whose state after long use is computed and not reached by writing.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaidOut {
    /// Number of the block in the device.
    pub(super) block: u32,
    /// Stream that the block is open for; `None` for a closed block.
    pub(super) open: Option<Stream>,
    /// Number of pages that were assigned.
    pub(super) next: u32,
    /// Number of live pages among the assigned ones.
    pub(super) live: u32,
}

impl EraseBlocks {
    /// Puts the blocks of an untouched plane into the given states; the plane's other good blocks are free, in the
    /// order of `free`. [`EraseBlocks::lay_out_pages`] then marks the dead pages.
    pub(super) fn lay_out(&mut self, plane: u32, blocks: &[LaidOut], free: &[u32]) {
        for laid in blocks {
            let b = &mut self.blocks[laid.block as usize];
            assert!(b.state == BlockState::Free && laid.live <= laid.next && laid.next <= self.pages, "{laid:?}");
            (b.live, b.next) = (laid.live as u16, laid.next as u16);
            b.state = if laid.open.is_some() { BlockState::Open } else { BlockState::Closed };
            self.planes[plane as usize].live += laid.live;
            if let Some(stream) = laid.open {
                let p = &mut self.planes[plane as usize];
                p.open[stream as usize] = laid.block;
                p.given[stream as usize] = u64::from(laid.next);
            }
        }
        let p = &mut self.planes[plane as usize];
        p.unused = self.per_plane;
        p.free = free.len() as u32;
        for &block in free {
            self.freed += 1;
            p.used.push(Reverse((self.levelling.rank(0, self.freed), block)));
        }
    }

    /// Marks the dead pages of open and closed blocks, and gives open blocks their rows of owners.
    pub(super) fn lay_out_pages(&mut self, scatter: &Scatter, fill: &Fill) {
        for block in 0..self.blocks.len() as u32 {
            let EraseBlock { live, next, state, .. } = self.blocks[block as usize];
            if !matches!(state, BlockState::Open | BlockState::Closed) {
                continue;
            }
            for page in scatter.pages_of(block).skip(usize::from(live)).filter(|&page| page < u32::from(next)) {
                self.dead[(block * self.words + page / 64) as usize] |= 1 << (page % 64);
            }
            if state == BlockState::Open {
                let row = self.row();
                for page in 0..u32::from(next) {
                    self.rows[row as usize][page as usize] = scatter.lpa_at(block, page, fill);
                }
                self.blocks[block as usize].row = row;
            }
        }
    }
}

fn count_down(counts: &mut BTreeMap<u32, u32>, key: u32) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
