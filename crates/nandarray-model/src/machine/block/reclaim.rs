//! Reclaim, wear levelling and failed blocks of conventional requests: what flash management asks for, done in the
//! background.
//!
//! A plane's job is pulled step by step (`crate::ftl`, reclaim): a page is read, found a new place, programmed; at the
//! end its block is erased. Some moves are under way at once. Where reclaim is pre-emptible and not urgent, it takes
//! its next step only when nothing waits for its die; it is looked at again whenever something else of that die has
//! ended.
//!
//! Reclaim tells the client when a move or an erase may have made room; the client then tries again what found none.

use super::Wait;
use super::programs::Programs;
use crate::flash::{OpKind, OpOutcome, PageAddress};
use crate::ftl::{Move, Moved, Owner, ReclaimStep, Urgency};
use crate::machine::clients::Waiting;
use crate::machine::fabric::Fabric;
use nandarray_sim::Ps;

/// Moves of a plane under way at once: one page is read while others are programmed.
const MOVES_AT_ONCE: u16 = 4;

/// A move under way.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    plane: u32,
    moved: Move,
}

/// Whether room may have been made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// As it was.
    Same,
    /// There may be some: what found none is to be tried again, then reclaim of the plane goes on.
    Perhaps,
}

/// Reclaim under way, plane by plane.
#[derive(Debug)]
pub(super) struct Reclaim {
    moves: slab::Slab<UnderWay>,
    moving: Vec<u16>,
    erasing: Vec<Option<PageAddress>>,
    /// Planes whose reclaim gave way, and whether each is among them.
    postponed: Vec<u32>,
    is_postponed: Vec<bool>,
    /// Whether a plane's reclaim is urgent, as the flash was told.
    is_urgent: Vec<bool>,
}

impl Reclaim {
    pub(super) fn new(planes: usize) -> Self {
        Self {
            moves: slab::Slab::new(),
            moving: vec![0; planes],
            erasing: vec![None; planes],
            postponed: Vec::new(),
            is_postponed: vec![false; planes],
            is_urgent: vec![false; planes],
        }
    }

    /// What is under way and what gave way, for a reader who looks for what never ends.
    pub(super) fn waiting(&self) -> String {
        let moving: Vec<_> = self.moving.iter().enumerate().filter(|m| *m.1 > 0).collect();
        format!("postponed {:?}, moving {moving:?}", self.postponed)
    }

    /// Whether each plane's reclaim is urgent, as the flash was told.
    #[cfg(test)]
    pub(super) fn told_urgent(&self) -> &[bool] {
        &self.is_urgent
    }

    /// Whether nothing is being moved.
    pub(super) fn is_still(&self) -> bool {
        self.moves.is_empty()
    }

    /// Lets reclaim of a plane go on as far as it may.
    pub(super) fn go_on(&mut self, programs: &mut Programs, fabric: &mut Fabric, now: Ps, plane: u32) -> Room {
        self.tell_urgency(programs, fabric, plane);
        let room = self.steps(programs, fabric, now, plane);
        self.tell_urgency(programs, fabric, plane);
        room
    }

    /// Tells the flash whether a die's background work goes before or behind the host's.
    fn tell_urgency(&mut self, programs: &Programs, fabric: &mut Fabric, plane: u32) {
        let planes = fabric.description.geometry.planes;
        let urgent = programs.ftl.urgency(plane) == Urgency::Urgent;
        if std::mem::replace(&mut self.is_urgent[plane as usize], urgent) != urgent {
            let die = plane / planes;
            let of_die = (die * planes) as usize..((die + 1) * planes) as usize;
            fabric.flash.set_urgent(die, self.is_urgent[of_die].contains(&true));
        }
    }

    fn steps(&mut self, programs: &mut Programs, fabric: &mut Fabric, now: Ps, plane: u32) -> Room {
        let planes = fabric.description.geometry.planes;
        let preemptible = fabric.description.ftl.gc_preemptible;
        let at = plane as usize;
        let mut room = Room::Same;
        loop {
            let waits = fabric.flash.queued(plane / planes) > 0;
            if self.moving[at] >= MOVES_AT_ONCE {
                return room;
            }
            let urgency = programs.ftl.urgency(plane);
            if preemptible && waits && urgency == Urgency::Background {
                if !std::mem::replace(&mut self.is_postponed[at], true) {
                    self.postponed.push(plane);
                }
                return room;
            }
            match programs.ftl.step(plane) {
                ReclaimStep::Move(moved) => {
                    self.moving[at] += 1;
                    let in_memory = programs.is_in_memory(moved.from);
                    let slot = self.moves.insert(UnderWay { plane, moved }) as u32;
                    if in_memory {
                        if let Some(plane) = self.read_over(programs, fabric, now, slot, OpOutcome::Done) {
                            self.moving[plane as usize] -= 1;
                            room = Room::Perhaps;
                        }
                    } else {
                        let (bytes, wait) = (fabric.description.geometry.page_bytes, Wait::Move(slot));
                        programs.read(fabric, now, moved.cause, moved.from, bytes, wait);
                    }
                }
                ReclaimStep::Erase { place, cause } => {
                    self.erasing[at] = Some(place);
                    fabric.issue(now, OpKind::Erase, cause, place, 0, Waiting::Block(Wait::Erase(plane)));
                    return room;
                }
                ReclaimStep::Wait | ReclaimStep::Idle => return room,
            }
        }
    }

    /// The next plane from `i` on whose reclaim gave way and for whose die nothing waits any more.
    pub(super) fn resumes(&mut self, fabric: &Fabric, i: &mut usize) -> Option<u32> {
        let planes = fabric.description.geometry.planes;
        while let Some(&plane) = self.postponed.get(*i) {
            if fabric.flash.queued(plane / planes) > 0 {
                *i += 1;
                continue;
            }
            self.postponed.swap_remove(*i);
            self.is_postponed[plane as usize] = false;
            return Some(plane);
        }
        None
    }

    /// A page of a victim was read: it goes where there is room. Returns its plane if it goes nowhere, for then the
    /// move is over.
    ///
    /// One that could not be read goes too, for its block is erased; it is remembered as lost. A page of the map that
    /// is lost is made anew from what pages say of themselves.
    pub(super) fn read_over(
        &mut self,
        programs: &mut Programs,
        fabric: &mut Fabric,
        now: Ps,
        slot: u32,
        outcome: OpOutcome,
    ) -> Option<u32> {
        let UnderWay { plane, moved } = self.moves.remove(slot as usize);
        match programs.ftl.relocate(&moved) {
            Ok(Moved::To(place)) => {
                if let (OpOutcome::Uncorrectable, Owner::Page(lpa)) = (outcome, moved.owner) {
                    programs.lost.insert(lpa);
                }
                let bytes = fabric.description.geometry.page_bytes;
                fabric.through_dram(now, 2 * u64::from(bytes), "moved page", moved.cause);
                programs.program(fabric, now, moved.cause, place, Wait::MoveTo(plane));
                None
            }
            // Overwritten meanwhile, or no room anywhere: then it stays where it is.
            Ok(Moved::Overwritten) | Err(_) => Some(plane),
        }
    }

    /// A move of a plane is over.
    pub(super) fn move_over(&mut self, plane: u32) {
        self.moving[plane as usize] -= 1;
    }

    /// A victim was erased, or is bad.
    pub(super) fn erased(&mut self, programs: &mut Programs, fabric: &mut Fabric, plane: u32, outcome: OpOutcome) {
        let place = self.erasing[plane as usize].take().expect("an erase under way has a place");
        match outcome {
            OpOutcome::Failed => programs.ftl.erase_failed(place),
            _ => programs.ftl.erased(place),
        }
        self.tell_urgency(programs, fabric, plane);
    }

    pub(super) fn check_at_rest(&self) {
        assert!(self.postponed.is_empty(), "something still waits for reclaim");
        assert!(self.moves.is_empty(), "a move was left on its way");
    }
}
