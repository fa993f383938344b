//! Programs of conventional flash management: issued, ended, done elsewhere when they failed; and what the map asks
//! for.
//!
//! A page is in the controller's memory until its program has ended. One that failed and for which no plane has room
//! stays there until reclaim, or a trim, makes room; whoever waited for it is told that there is no space. Programs are
//! counted by epochs: a flush ends the running one and waits until nothing is left of it and those before, so that
//! writes and reclaim that go on do not hold it up.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Wait;
use crate::flash::{OpCause, OpKind, OpOutcome, PageAddress};
use crate::ftl::{MapOp, PageMapped};
use crate::machine::clients::Waiting;
use crate::machine::fabric::Fabric;
use nandarray_sim::Ps;

/// A program under way.
#[derive(Clone, Copy, Debug)]
struct Program {
    place: PageAddress,
    cause: OpCause,
    waiting: Wait,
    /// Which flushes wait for it.
    epoch: u64,
}

/// A program that has ended, for the client to act on in this order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Over {
    /// The part that is told that nothing has room for its page.
    pub(super) homeless: Option<u32>,
    /// The plane of a block that failed and is to be emptied.
    pub(super) failed_plane: Option<u32>,
    /// Who waited for it; `None` if it is done again elsewhere.
    pub(super) waiting: Option<Wait>,
    /// Its epoch, to be ended with [`Epochs::ended`] last.
    pub(super) epoch: u64,
}

/// How many programs are under way, by epoch; the last one runs.
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

    /// A program of that epoch has ended.
    pub(super) fn ended(&mut self, epoch: u64) {
        self.programs[(epoch - self.first) as usize] -= 1;
        self.forget();
    }

    fn forget(&mut self) {
        while self.programs.len() > 1 && self.programs[0] == 0 {
            self.programs.pop_front();
            self.first += 1;
        }
    }

    /// Begins another epoch; says which one ran.
    pub(super) fn next(&mut self) -> u64 {
        let epoch = self.first + self.programs.len() as u64 - 1;
        self.programs.push_back(0);
        self.forget();
        epoch
    }

    /// Whether all programs of an epoch, and of those before, have ended.
    pub(super) fn is_over(&self, epoch: u64) -> bool {
        self.first > epoch
    }
}

/// Page-mapped flash management, and its programs under way.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(super) ftl: PageMapped,
    under_way: slab::Slab<Program>,
    /// Pages whose data is in the controller until their programs end; how many programs each waits for.
    writing: FxHashMap<PageAddress, u32>,
    /// Programs that failed and for which there was no other place: their data stays in the controller.
    homeless: Vec<(PageAddress, OpCause)>,
    /// Logical pages whose content was lost when it was moved or merged; they cannot be read until they are written
    /// whole.
    pub(super) lost: FxHashSet<u64>,
    pub(super) epochs: Epochs,
    pub(super) map_ops: Vec<MapOp>,
}

impl Programs {
    pub(super) fn new(ftl: PageMapped) -> Self {
        Self {
            ftl,
            under_way: slab::Slab::new(),
            writing: FxHashMap::default(),
            homeless: Vec::new(),
            lost: FxHashSet::default(),
            epochs: Epochs { programs: VecDeque::from([0]), first: 0 },
            map_ops: Vec::new(),
        }
    }

    /// Whether a page's data is still in the controller.
    pub(super) fn is_in_memory(&self, place: PageAddress) -> bool {
        self.writing.contains_key(&place)
    }

    /// Whether a logical page was lost.
    pub(super) fn is_lost(&self, lpa: u64) -> bool {
        !self.lost.is_empty() && self.lost.contains(&lpa)
    }

    /// Whether a page has no place in flash.
    pub(super) fn has_homeless(&self) -> bool {
        !self.homeless.is_empty()
    }

    /// Whether nothing is being programmed.
    pub(super) fn is_still(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Reads a page; `waiting` is told when that has ended.
    pub(super) fn read(
        &self,
        fabric: &mut Fabric,
        now: Ps,
        cause: OpCause,
        place: PageAddress,
        bytes: u32,
        waiting: Wait,
    ) {
        fabric.issue(now, OpKind::Read, cause, place, bytes, Waiting::Block(waiting));
    }

    /// Programs a page; `waiting` is told when that has ended, here or, if it failed here, elsewhere.
    pub(super) fn program(&mut self, fabric: &mut Fabric, now: Ps, cause: OpCause, place: PageAddress, waiting: Wait) {
        let epoch = self.epochs.begins();
        *self.writing.entry(place).or_default() += 1;
        let program = self.under_way.insert(Program { place, cause, waiting, epoch }) as u32;
        let bytes = fabric.description.geometry.page_bytes;
        fabric.issue(now, OpKind::Program, cause, place, bytes, Waiting::Block(Wait::Program(program)));
    }

    /// Does what the map asks for.
    pub(super) fn issue_map(&mut self, fabric: &mut Fabric, now: Ps, op: MapOp, waiting: Wait) {
        let bytes = fabric.description.geometry.page_bytes;
        match op {
            MapOp::Read(place) => self.read(fabric, now, OpCause::Map, place, bytes, waiting),
            MapOp::Program(place) => self.program(fabric, now, OpCause::Map, place, waiting),
        }
    }

    fn leaves_memory(&mut self, place: PageAddress) {
        let left = self.writing.get_mut(&place).expect("a page in memory is being written");
        *left -= 1;
        if *left == 0 {
            self.writing.remove(&place);
        }
    }

    /// A program has ended.
    pub(super) fn over(&mut self, fabric: &mut Fabric, now: Ps, program: u32, outcome: OpOutcome) -> Over {
        let Program { place, cause, waiting, epoch } = self.under_way.remove(program as usize);
        let renewed = match outcome {
            OpOutcome::Failed => self.ftl.program_failed(place, cause),
            _ => Ok(None),
        };
        let planes = fabric.description.geometry.planes;
        let mut homeless = None;
        match renewed {
            Ok(None) => self.leaves_memory(place),
            Ok(Some(renewed)) => {
                self.program(fabric, now, cause, renewed.place, waiting);
                self.leaves_memory(place);
            }
            Err(_) => {
                self.homeless.push((place, cause));
                if let Wait::Page(part) = waiting {
                    homeless = Some(part);
                }
            }
        }
        let failed_plane = (outcome == OpOutcome::Failed).then(|| place.die * planes + u32::from(place.plane));
        let waiting = if matches!(renewed, Ok(Some(_))) { None } else { Some(waiting) };
        Over { homeless, failed_plane, waiting, epoch }
    }

    /// Looks for places anew for pages whose programs failed.
    pub(super) fn retry_homeless(&mut self, fabric: &mut Fabric, now: Ps) {
        if self.homeless.is_empty() {
            return;
        }
        for (place, cause) in std::mem::take(&mut self.homeless) {
            match self.ftl.program_failed(place, cause) {
                // Moved, overwritten or trimmed meanwhile.
                Ok(None) => self.leaves_memory(place),
                Ok(Some(renewed)) => {
                    self.program(fabric, now, cause, renewed.place, Wait::Nobody);
                    self.leaves_memory(place);
                }
                Err(_) => self.homeless.push((place, cause)),
            }
        }
    }

    /// Writes the changed pages of a cached map, as many as find room; what is not written is found again from the
    /// pages themselves, which name their owners.
    pub(super) fn write_map(&mut self, fabric: &mut Fabric, now: Ps) {
        let mut map_ops = std::mem::take(&mut self.map_ops);
        while self.ftl.flush_map(&mut map_ops) {
            for op in map_ops.drain(..) {
                self.issue_map(fabric, now, op, Wait::Nobody);
            }
        }
        map_ops.clear();
        self.map_ops = map_ops;
    }

    pub(super) fn check_at_rest(&self) {
        assert!(self.under_way.is_empty(), "a program was left on its way");
        assert_eq!(self.writing.len(), self.homeless.len(), "pages in memory and programs that found no place");
        assert_eq!(self.epochs.programs, [0], "a program was left on its way");
    }
}
