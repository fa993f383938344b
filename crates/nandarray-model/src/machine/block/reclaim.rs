//! Background work of conventional flash management: garbage collection, wear levelling, emptying of failed blocks.
//!
//! A plane's reclaim job (`crate::ftl`) is executed step by step: live pages are read, cross DRAM in and out, get new
//! addresses and are programmed, several at once; at the end their block is erased. Where reclaim is pre-emptible and
//! not urgent, it takes its next step only when no operation waits for its die; it is retried whenever an operation of
//! that die has ended.
//!
//! Reclaim returns whether a move or an erase may have made room; the client then retries the writes that found no
//! free page.

use super::programs::PagePrograms;
use super::{BlockEvent, BlockWaiter};
use crate::flash::{OpKind, OpOutcome, PageAddress};
use crate::ftl::{Move, Moved, Owner, ReclaimStep, Urgency};
use crate::machine::Event;
use crate::machine::clients::Waiter;
use crate::machine::fabric::Fabric;
use nandarray_sim::Ps;

/// Maximum number of moves of a plane in flight, so that one page is read while others are programmed.
const MOVES_AT_ONCE: u16 = 4;

/// A page that reclaim moves, while it is read or crosses DRAM.
#[derive(Clone, Copy, Debug)]
struct MoveInFlight {
    plane: u32,
    moved: Move,
    /// Outcome of the read, once it has ended.
    read: OpOutcome,
}

/// Whether reclaim may have made room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoomChange {
    /// No room was made.
    Unchanged,
    /// There may be room: the client retries the writes that found none, then continues reclaim of the plane.
    Perhaps,
}

/// Reclaim of all planes, with its moves and erases in flight.
#[derive(Debug)]
pub(super) struct Reclaim {
    moves: slab::Slab<MoveInFlight>,
    moving: Vec<u16>,
    erasing: Vec<Option<PageAddress>>,
    /// Planes whose reclaim gave way to other operations; `is_postponed` holds the same by plane.
    postponed: Vec<u32>,
    is_postponed: Vec<bool>,
    /// Whether each plane's reclaim is urgent, as last reported to the flash.
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

    /// Returns a text with the moves in flight and the planes that gave way, for messages about requests that never
    /// end.
    pub(super) fn waiting(&self) -> String {
        let moving: Vec<_> = self.moving.iter().enumerate().filter(|m| *m.1 > 0).collect();
        format!("postponed {:?}, moving {moving:?}", self.postponed)
    }

    /// Returns, for each plane, whether its reclaim is urgent, as last reported to the flash.
    #[cfg(test)]
    pub(super) fn urgent_planes(&self) -> &[bool] {
        &self.is_urgent
    }

    /// Whether no move is in flight.
    pub(super) fn is_still(&self) -> bool {
        self.moves.is_empty()
    }

    /// Executes the next steps of a plane's reclaim, as many as are allowed now; returns whether there may be room.
    pub(super) fn go_on(
        &mut self,
        programs: &mut PagePrograms,
        fabric: &mut Fabric,
        now: Ps,
        plane: u32,
    ) -> RoomChange {
        self.set_urgency(programs, fabric, plane);
        let room = self.steps(programs, fabric, now, plane);
        self.set_urgency(programs, fabric, plane);
        room
    }

    /// Tells the flash that a die's background work goes before the host's if reclaim of one of its planes is urgent.
    fn set_urgency(&mut self, programs: &PagePrograms, fabric: &mut Fabric, plane: u32) {
        let planes = fabric.description.geometry.planes;
        let urgent = programs.ftl.urgency(plane) == Urgency::Urgent;
        if std::mem::replace(&mut self.is_urgent[plane as usize], urgent) != urgent {
            let die = plane / planes;
            let of_die = (die * planes) as usize..((die + 1) * planes) as usize;
            fabric.flash.set_urgent(die, self.is_urgent[of_die].contains(&true));
        }
    }

    fn steps(&mut self, programs: &mut PagePrograms, fabric: &mut Fabric, now: Ps, plane: u32) -> RoomChange {
        let planes = fabric.description.geometry.planes;
        let preemptible = fabric.description.ftl.gc_preemptible;
        let at = plane as usize;
        let mut room = RoomChange::Unchanged;
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
                    let slot = self.moves.insert(MoveInFlight { plane, moved, read: OpOutcome::Done }) as u32;
                    if in_memory {
                        if let Some(plane) = self.cross_dram(programs, fabric, now, slot, 1) {
                            self.moving[plane as usize] -= 1;
                            room = RoomChange::Perhaps;
                        }
                    } else {
                        let (bytes, wait) = (fabric.description.geometry.page_bytes, BlockWaiter::Move(slot));
                        programs.read(fabric, now, moved.cause, moved.from, bytes, wait);
                    }
                }
                ReclaimStep::Erase { place, cause } => {
                    let is_read = self.moves.iter().any(|(_, one)| one.plane == plane);
                    assert!(!is_read && self.erasing[at].is_none(), "{place:?} is erased while it is read or erased");
                    self.erasing[at] = Some(place);
                    fabric.issue(now, OpKind::Erase, cause, place, 0, Waiter::BlockClient(BlockWaiter::Erase(plane)));
                    return room;
                }
                ReclaimStep::Wait | ReclaimStep::Idle => return room,
            }
        }
    }

    /// Removes from the postponed planes, and returns, the first one from index `i` on for whose die no operation waits
    /// any more; sets `i` to its index. `None` if there is none.
    pub(super) fn resumes(&mut self, fabric: &Fabric, i: &mut usize) -> Option<u32> {
        let planes = fabric.description.geometry.planes;
        while let Some(&plane) = self.postponed.get(*i) {
            if fabric.flash.queued(plane / planes) > 0 {
                *i += 1;
                continue;
            }
            self.postponed.swap_remove(*i);
            assert!(self.is_postponed[plane as usize], "plane {plane} goes on without having been postponed");
            self.is_postponed[plane as usize] = false;
            return Some(plane);
        }
        None
    }

    /// Handles the end of a victim page's read: the page crosses DRAM, in and out. Returns the plane if the move ends
    /// here, since the page was overwritten.
    pub(super) fn read_over(
        &mut self,
        programs: &mut PagePrograms,
        fabric: &mut Fabric,
        now: Ps,
        slot: u32,
        outcome: OpOutcome,
    ) -> Option<u32> {
        self.moves[slot as usize].read = outcome;
        self.cross_dram(programs, fabric, now, slot, 2)
    }

    /// Books a page's transfers through DRAM; the page is programmed when they are over. Returns the plane if the page
    /// stays where it is, which ends the move.
    fn cross_dram(
        &mut self,
        programs: &mut PagePrograms,
        fabric: &mut Fabric,
        now: Ps,
        slot: u32,
        crossings: u64,
    ) -> Option<u32> {
        let MoveInFlight { moved, .. } = self.moves[slot as usize];
        if programs.ftl.is_current(&moved) {
            let bytes = u64::from(fabric.description.geometry.page_bytes);
            let there = fabric.through_dram(now, crossings * bytes, "moved page", moved.cause);
            if there > now {
                fabric.push(there, Event::Client(BlockEvent::MoveThere(slot).into()));
                return None;
            }
        }
        self.relocate(programs, fabric, now, slot)
    }

    /// Programs a page that has crossed DRAM at its new address. Returns the plane if the page stays where it is, which
    /// ends the move.
    ///
    /// An unreadable page is moved too, since its block will be erased; its content is recorded as lost. An unreadable
    /// page of the map is rebuilt from the data pages, whose spare bytes name their owners.
    pub(super) fn relocate(
        &mut self,
        programs: &mut PagePrograms,
        fabric: &mut Fabric,
        now: Ps,
        slot: u32,
    ) -> Option<u32> {
        let MoveInFlight { plane, moved, read } = self.moves.remove(slot as usize);
        assert!(self.moving[plane as usize] > 0, "plane {plane} has no move in flight: {moved:?}");
        match programs.ftl.relocate(&moved) {
            Ok(Moved::To(place)) => {
                if let (OpOutcome::Uncorrectable, Owner::Page(lpa)) = (read, moved.owner) {
                    programs.lost.insert(lpa);
                }
                programs.program(fabric, now, moved.cause, place, BlockWaiter::MoveTo(plane));
                None
            }
            // The page was overwritten meanwhile, or no plane has room: it stays where it is.
            Ok(Moved::Overwritten) | Err(_) => Some(plane),
        }
    }

    /// Counts the end of a move of a plane.
    pub(super) fn move_over(&mut self, plane: u32) {
        assert!(self.moving[plane as usize] > 0, "plane {plane} ends a move that it did not begin");
        self.moving[plane as usize] -= 1;
    }

    /// Records that a plane's victim was erased, or became bad if the erase failed.
    pub(super) fn erased(&mut self, programs: &mut PagePrograms, fabric: &mut Fabric, plane: u32, outcome: OpOutcome) {
        let place = self.erasing[plane as usize].take().expect("an erase under way has a place");
        match outcome {
            OpOutcome::Failed => programs.ftl.erase_failed(place),
            _ => programs.ftl.erased(place),
        }
        self.set_urgency(programs, fabric, plane);
    }

    pub(super) fn check_at_rest(&self) {
        assert!(self.postponed.is_empty(), "something still waits for reclaim");
        assert!(self.moves.is_empty(), "a move was left in flight");
    }
}
