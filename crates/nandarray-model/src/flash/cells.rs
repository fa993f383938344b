//! Cells: the trait that says how long a die's cells take and when they fail, and its implementation for a described
//! device.
//!
//! Injected faults (`fault`) wrap an implementation of this trait.

use super::operation::PageAddress;
use super::reliability::{Failures, is_factory_bad};
use crate::describe::{Cell, Description, FlashGeometry};
use nandarray_sim::Ps;

/// Result of reading a page, with all its retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Number of sensings that fail and are followed by another one.
    pub retries: u16,
    /// Whether the page cannot be corrected even after all retries.
    pub lost: bool,
}

impl Verdict {
    /// A page that is read without a retry.
    pub const GOOD: Self = Self { retries: 0, lost: false };
}

/// Time and failures of a device's flash cells.
pub trait Cells: Send {
    /// Returns the time to sense a page; `retry` is 0 for the first attempt.
    fn t_sense(&mut self, now: Ps, place: PageAddress, retry: u16) -> Ps;
    /// Returns the time to program a page or, with one-shot programming, the word line that begins with the page.
    fn t_program(&mut self, now: Ps, place: PageAddress) -> Ps;
    /// Returns the time to erase a block.
    fn t_erase(&mut self, now: Ps, place: PageAddress) -> Ps;
    /// Decides the result of reading `bytes` of a page; called once for each read, before its retries.
    fn read(&mut self, now: Ps, place: PageAddress, bytes: u32) -> Verdict;
    /// Records that a page was programmed; returns whether it succeeded.
    fn programmed(&mut self, now: Ps, place: PageAddress) -> bool;
    /// Records that a block was erased; returns whether it succeeded.
    fn erased(&mut self, now: Ps, place: PageAddress) -> bool;
    /// Whether a block is bad from the factory.
    fn is_factory_bad(&self, die: u32, plane: u32, block: u32) -> bool;
    /// Returns the number of error-correction code words that hold `bytes` bytes; 0 without error correction.
    fn codewords(&self, bytes: u32) -> u32;
}

/// Cells of a device with the times and failure rates of its [`Description`].
#[derive(Debug)]
pub struct NandCells {
    geometry: FlashGeometry,
    cell: Cell,
    t_read: Vec<Ps>,
    t_program: Vec<Ps>,
    t_erase: Ps,
    t_read_retry: Ps,
    one_shot: bool,
    factory_bad_ppm: u32,
    retries_max: u16,
    seed: u64,
    failures: Failures,
}

impl NandCells {
    /// Makes the cells of a described device; `seed` decides which blocks are bad and which reads fail.
    pub fn new(description: &Description, seed: u64) -> Self {
        let Description { geometry, nand, reliability, .. } = description;
        Self {
            geometry: *geometry,
            cell: nand.cell,
            t_read: nand.t_read.clone(),
            t_program: nand.t_program.clone(),
            t_erase: nand.t_erase,
            t_read_retry: reliability.t_read_retry,
            one_shot: nand.one_shot,
            factory_bad_ppm: reliability.factory_bad_ppm,
            retries_max: u16::try_from(reliability.read_retries_max).expect("the key's range ends at 1,000"),
            seed,
            failures: Failures::new(description, seed),
        }
    }

    fn block_index(&self, place: PageAddress) -> usize {
        let plane = place.die as usize * self.geometry.planes as usize + usize::from(place.plane);
        plane * self.geometry.blocks as usize + place.block as usize
    }
}

/// Returns the kind of a page within its word line (0 for LSB), by which sensing and programming times are chosen.
///
/// With one-shot programming, the pages of a word line are consecutive. Otherwise TLC pages are ordered as in MQSim,
/// SimpleSSD and FEMU (Yaakobi et al., ICNC 2012): eight pages to begin with, then LSB, CSB, MSB in pairs. QLC follows
/// the same rule with four kinds, which none of the three simulators models.
pub fn kind_of_page(cell: Cell, one_shot: bool, page: u16) -> usize {
    let page = usize::from(page);
    match cell {
        _ if one_shot => page % cell.bits(),
        Cell::Slc => 0,
        Cell::Mlc => page % 2,
        Cell::Tlc => match page {
            0..=5 => 0,
            6..=7 => 1,
            _ => ((page - 8) >> 1) % 3,
        },
        Cell::Qlc => match page {
            0..=5 => 0,
            6..=7 => 1,
            _ => ((page - 8) >> 1) % 4,
        },
    }
}

impl Cells for NandCells {
    fn t_sense(&mut self, _now: Ps, place: PageAddress, retry: u16) -> Ps {
        let t = self.t_read[kind_of_page(self.cell, self.one_shot, place.page)];
        if retry == 0 { t } else { t + self.t_read_retry }
    }

    fn t_program(&mut self, _now: Ps, place: PageAddress) -> Ps {
        self.t_program[if self.one_shot { 0 } else { kind_of_page(self.cell, false, place.page) }]
    }

    fn t_erase(&mut self, _now: Ps, _place: PageAddress) -> Ps {
        self.t_erase
    }

    fn read(&mut self, _now: Ps, place: PageAddress, bytes: u32) -> Verdict {
        let block = self.block_index(place);
        match self.failures.read(block, bytes) {
            Some(retries) => Verdict { retries, lost: false },
            None => Verdict { retries: self.retries_max, lost: true },
        }
    }

    fn programmed(&mut self, _now: Ps, _place: PageAddress) -> bool {
        !self.failures.grows_bad()
    }

    fn erased(&mut self, _now: Ps, place: PageAddress) -> bool {
        let block = self.block_index(place);
        let lasts = self.failures.erased(block);
        lasts && !self.failures.grows_bad()
    }

    fn is_factory_bad(&self, die: u32, plane: u32, block: u32) -> bool {
        let place = PageAddress { die, block, page: 0, plane: plane as u16 };
        is_factory_bad(self.seed, self.factory_bad_ppm, self.block_index(place) as u64)
    }

    fn codewords(&self, bytes: u32) -> u32 {
        self.failures.codewords(bytes)
    }
}
