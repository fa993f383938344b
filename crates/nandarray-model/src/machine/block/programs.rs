//! Page programs of conventional flash management: issues them and, after a failure, repeats them at another address;
//! also issues operations of the map.
//!
//! A page's data stays in the controller's memory until its program has ended. If the program failed and no plane has
//! room, the data stays there until reclaim or a trim makes room, and the write fails for lack of space. Programs are
//! counted by epochs: a flush ends the current epoch and waits for all programs of this and earlier epochs, so that
//! later writes and reclaim do not hold it up.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::BlockWaiter;
use crate::flash::{OpCause, OpKind, OpOutcome, PageAddress};
use crate::ftl::{MapOp, PageMapped};
use crate::machine::clients::Waiter;
use crate::machine::fabric::Fabric;
use nandarray_sim::Ps;

/// A page program in flight.
#[derive(Clone, Copy, Debug)]
struct PageProgram {
    place: PageAddress,
    cause: OpCause,
    waiter: BlockWaiter,
    /// Epoch (time between two flushes) in which the program was issued; a flush of this or a later epoch waits for it.
    epoch: u64,
}

/// A program that has ended. The client handles the fields in this order.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgramEnd {
    /// Page of the write that fails because no plane has room for it; `None` if no write fails.
    pub(super) unplaced: Option<u32>,
    /// Plane of the block that failed and must be emptied; `None` if no block failed.
    pub(super) failed_plane: Option<u32>,
    /// Waiter of the program; `None` if the program is repeated elsewhere.
    pub(super) waiter: Option<BlockWaiter>,
    /// Epoch of the program, to be passed to [`Epochs::ended`] last.
    pub(super) epoch: u64,
}

/// Number of programs in flight by epoch, the time between two flushes; the last epoch is the current one.
#[derive(Debug)]
pub(super) struct Epochs {
    programs: VecDeque<u64>,
    first: u64,
}

impl Epochs {
    fn begins(&mut self) -> u64 {
        *self.programs.back_mut().expect("an epoch runs") += 1;
        self.first + self.programs.len() as u64 - 1
    }

    /// Counts the end of a program that was issued in `epoch`.
    pub(super) fn ended(&mut self, epoch: u64) {
        assert!(epoch >= self.first, "a program of epoch {epoch} ends behind epoch {}", self.first);
        let left = &mut self.programs[(epoch - self.first) as usize];
        assert!(*left > 0, "a program of epoch {epoch} ends that did not begin");
        *left -= 1;
        self.forget();
    }

    fn forget(&mut self) {
        while self.programs.len() > 1 && self.programs[0] == 0 {
            self.programs.pop_front();
            self.first += 1;
        }
    }

    /// Begins another epoch, for a flush; returns the number of the previous one.
    pub(super) fn next(&mut self) -> u64 {
        let epoch = self.first + self.programs.len() as u64 - 1;
        self.programs.push_back(0);
        self.forget();
        epoch
    }

    /// Whether all programs of this and earlier epochs have ended.
    pub(super) fn is_over(&self, epoch: u64) -> bool {
        self.first > epoch
    }
}

/// Page-mapped flash management, with its programs in flight.
#[derive(Debug)]
pub(crate) struct PagePrograms {
    pub(super) ftl: PageMapped,
    in_flight: slab::Slab<PageProgram>,
    /// Pages whose data is in the controller's memory until their programs end, each with the number of these
    /// programs.
    writing: FxHashMap<PageAddress, u32>,
    /// Failed programs for whose data no other page was free: the data stays in the controller's memory.
    unplaced: Vec<(PageAddress, OpCause)>,
    /// Logical pages whose content was lost when they were moved or merged; they are unreadable until they are written
    /// as a whole.
    pub(super) lost: FxHashSet<u64>,
    pub(super) epochs: Epochs,
    pub(super) map_ops: Vec<MapOp>,
}

impl PagePrograms {
    pub(super) fn new(ftl: PageMapped) -> Self {
        Self {
            ftl,
            in_flight: slab::Slab::new(),
            writing: FxHashMap::default(),
            unplaced: Vec::new(),
            lost: FxHashSet::default(),
            epochs: Epochs { programs: VecDeque::from([0]), first: 0 },
            map_ops: Vec::new(),
        }
    }

    /// Whether a page's data is still in the controller's memory.
    pub(super) fn is_in_memory(&self, place: PageAddress) -> bool {
        self.writing.contains_key(&place)
    }

    /// Whether the content of logical page `lpa` was lost.
    pub(super) fn is_lost(&self, lpa: u64) -> bool {
        !self.lost.is_empty() && self.lost.contains(&lpa)
    }

    /// Whether the data of a failed program still waits for a free page.
    pub(super) fn has_unplaced(&self) -> bool {
        !self.unplaced.is_empty()
    }

    /// Whether no program is in flight.
    pub(super) fn is_still(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Issues a page read; `waiter` is notified of its end.
    pub(super) fn read(
        &self,
        fabric: &mut Fabric,
        now: Ps,
        cause: OpCause,
        place: PageAddress,
        bytes: u32,
        waiter: BlockWaiter,
    ) {
        fabric.issue(now, OpKind::Read, cause, place, bytes, Waiter::BlockClient(waiter));
    }

    /// Issues a page program; `waiter` is notified when the page is programmed, here or, after a failure, elsewhere.
    pub(super) fn program(
        &mut self,
        fabric: &mut Fabric,
        now: Ps,
        cause: OpCause,
        place: PageAddress,
        waiter: BlockWaiter,
    ) {
        let epoch = self.epochs.begins();
        *self.writing.entry(place).or_default() += 1;
        let program = self.in_flight.insert(PageProgram { place, cause, waiter, epoch }) as u32;
        let bytes = fabric.description.geometry.page_bytes;
        fabric.issue(now, OpKind::Program, cause, place, bytes, Waiter::BlockClient(BlockWaiter::Program(program)));
    }

    /// Issues an operation of the map as a read or program of a whole page.
    pub(super) fn issue_map(&mut self, fabric: &mut Fabric, now: Ps, op: MapOp, waiter: BlockWaiter) {
        let bytes = fabric.description.geometry.page_bytes;
        match op {
            MapOp::Read(place) => self.read(fabric, now, OpCause::Map, place, bytes, waiter),
            MapOp::Program(place) => self.program(fabric, now, OpCause::Map, place, waiter),
        }
    }

    fn leaves_memory(&mut self, place: PageAddress) {
        let left = self.writing.get_mut(&place).expect("a page in memory is being written");
        assert!(*left > 0, "{place:?} leaves memory without a program");
        *left -= 1;
        if *left == 0 {
            self.writing.remove(&place);
        }
    }

    /// Handles the end of a program; after a failure, repeats it elsewhere if there is room.
    pub(super) fn over(&mut self, fabric: &mut Fabric, now: Ps, program: u32, outcome: OpOutcome) -> ProgramEnd {
        let PageProgram { place, cause, waiter, epoch } = self.in_flight.remove(program as usize);
        assert_ne!(outcome, OpOutcome::Uncorrectable, "a program of {place:?} reads nothing");
        let renewed = match outcome {
            OpOutcome::Failed => self.ftl.program_failed(place, cause),
            _ => Ok(None),
        };
        let planes = fabric.description.geometry.planes;
        let mut unplaced = None;
        match renewed {
            Ok(None) => self.leaves_memory(place),
            Ok(Some(renewed)) => {
                self.program(fabric, now, cause, renewed.place, waiter);
                self.leaves_memory(place);
            }
            Err(_) => {
                self.unplaced.push((place, cause));
                if let BlockWaiter::Page(part) = waiter {
                    unplaced = Some(part);
                }
            }
        }
        let failed_plane = (outcome == OpOutcome::Failed).then(|| place.die * planes + u32::from(place.plane));
        let waiter = if matches!(renewed, Ok(Some(_))) { None } else { Some(waiter) };
        ProgramEnd { unplaced, failed_plane, waiter, epoch }
    }

    /// Retries the failed programs for which no page was free.
    pub(super) fn retry_unplaced(&mut self, fabric: &mut Fabric, now: Ps) {
        if self.unplaced.is_empty() {
            return;
        }
        for (place, cause) in std::mem::take(&mut self.unplaced) {
            match self.ftl.program_failed(place, cause) {
                // The page was moved, overwritten or trimmed meanwhile.
                Ok(None) => self.leaves_memory(place),
                Ok(Some(renewed)) => {
                    self.program(fabric, now, cause, renewed.place, BlockWaiter::None);
                    self.leaves_memory(place);
                }
                Err(_) => self.unplaced.push((place, cause)),
            }
        }
    }

    /// Writes as many changed pages of a cached map as find room. The unwritten ones could be rebuilt at recovery from
    /// the data pages, whose spare bytes name their owners.
    pub(super) fn write_map(&mut self, fabric: &mut Fabric, now: Ps) {
        let mut map_ops = std::mem::take(&mut self.map_ops);
        while self.ftl.flush_map(&mut map_ops) {
            for op in map_ops.drain(..) {
                self.issue_map(fabric, now, op, BlockWaiter::None);
            }
        }
        map_ops.clear();
        self.map_ops = map_ops;
    }

    pub(super) fn check_at_rest(&self) {
        assert!(self.in_flight.is_empty(), "a program was left in flight");
        assert_eq!(self.writing.len(), self.unplaced.len(), "pages in memory and programs that found no place");
        assert_eq!(self.epochs.programs, [0], "a program was left in flight");
    }
}
