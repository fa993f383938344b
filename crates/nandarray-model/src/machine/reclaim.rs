//! Reclaim, wear levelling and failed blocks of conventional requests: what flash management asks for, done in the background.
//!
//! A plane's job is pulled step by step (`crate::ftl`, reclaim): a page is read, found a new place, programmed; at the end its
//! block is erased. Some moves are under way at once. Where reclaim is pre-emptible and not urgent, it takes its next step only
//! when nothing waits for its die; it is looked at again whenever something else of that die has ended.

use super::{Machine, Waiting};
use crate::flash::{Op, Operation, Outcome};
use crate::ftl::{Move, Moved, Owner, Step, Urgency};
use crate::time::Ps;

/// Moves of a plane under way at once: one page is read while others are programmed.
const MOVES_AT_ONCE: u16 = 4;

/// A move under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnderWay {
    plane: u32,
    moved: Move,
}

impl Machine {
    /// Lets reclaim of a plane go on as far as it may.
    pub(super) fn reclaim(&mut self, now: Ps, plane: u32) {
        self.tell_urgency(plane);
        self.reclaim_steps(now, plane);
        self.tell_urgency(plane);
    }

    /// Tells the flash whether a die's background work goes before or behind the host's.
    fn tell_urgency(&mut self, plane: u32) {
        let planes = self.description.geometry.planes;
        let blocks = self.block.as_mut().expect("blocks are attached");
        let urgent = blocks.ftl.urgency(plane) == Urgency::Urgent;
        if std::mem::replace(&mut blocks.is_urgent[plane as usize], urgent) != urgent {
            let die = plane / planes;
            let of_die = (die * planes) as usize..((die + 1) * planes) as usize;
            self.flash.set_urgent(die, blocks.is_urgent[of_die].contains(&true));
        }
    }

    fn reclaim_steps(&mut self, now: Ps, plane: u32) {
        loop {
            let planes = self.description.geometry.planes;
            let preemptible = self.description.ftl.gc_preemptible;
            let waits = self.flash.queued(plane / planes) > 0;
            let blocks = self.block.as_mut().expect("blocks are attached");
            let at = plane as usize;
            if blocks.moving[at] >= MOVES_AT_ONCE {
                return;
            }
            let urgency = blocks.ftl.urgency(plane);
            if preemptible && waits && urgency == Urgency::Background {
                if !std::mem::replace(&mut blocks.is_postponed[at], true) {
                    blocks.postponed.push(plane);
                }
                return;
            }
            match blocks.ftl.step(plane) {
                Step::Move(moved) => {
                    blocks.moving[at] += 1;
                    let in_memory = blocks.writing.contains_key(&moved.from);
                    let slot = blocks.moves.insert(UnderWay { plane, moved }) as u32;
                    if in_memory {
                        self.move_read(now, slot, Outcome::Done);
                    } else {
                        let bytes = self.description.geometry.page_bytes;
                        self.issue_page(now, Op::Read, moved.cause, moved.from, bytes, Waiting::Move(slot));
                    }
                }
                Step::Erase { place, cause } => {
                    let token = Waiting::Block(plane).token(0);
                    blocks.erasing[at] = Some(place);
                    return self.issue(now, Operation { op: Op::Erase, cause, place, bytes: 0, token });
                }
                Step::Wait | Step::Idle => return,
            }
        }
    }

    /// Planes whose reclaim gave way go on if nothing waits for their dies any more.
    pub(super) fn resume_postponed(&mut self, now: Ps) {
        let planes = self.description.geometry.planes;
        let mut i = 0;
        while let Some(&plane) = self.block.as_ref().and_then(|b| b.postponed.get(i)) {
            if self.flash.queued(plane / planes) > 0 {
                i += 1;
                continue;
            }
            let blocks = self.blocks();
            blocks.postponed.swap_remove(i);
            blocks.is_postponed[plane as usize] = false;
            self.reclaim(now, plane);
        }
    }

    /// A page of a victim was read: it goes where there is room.
    ///
    /// One that could not be read goes too, for its block is erased; it is remembered as lost. A page of the map that is lost is
    /// made anew from what pages say of themselves.
    pub(super) fn move_read(&mut self, now: Ps, slot: u32, outcome: Outcome) {
        let blocks = self.blocks();
        let UnderWay { plane, moved } = blocks.moves.remove(slot as usize);
        match blocks.ftl.relocate(&moved) {
            Ok(Moved::To(place)) => {
                if let (Outcome::Uncorrectable, Owner::Page(lpa)) = (outcome, moved.owner) {
                    blocks.lost.insert(lpa);
                }
                let bytes = self.description.geometry.page_bytes;
                self.through_dram(now, 2 * u64::from(bytes), "moved page", moved.cause);
                self.issue_page(now, Op::Program, moved.cause, place, bytes, Waiting::MoveTo(plane));
            }
            // Overwritten meanwhile, or no room anywhere: then it stays where it is.
            Ok(Moved::Overwritten) | Err(_) => self.move_written(now, plane),
        }
    }

    /// A moved page is where it should be.
    pub(super) fn move_written(&mut self, now: Ps, plane: u32) {
        self.blocks().moving[plane as usize] -= 1;
        self.reclaim(now, plane);
        self.retry_stalled(now);
    }

    /// A victim was erased, or is bad.
    pub(super) fn block_erased(&mut self, now: Ps, plane: u32, outcome: Outcome) {
        let blocks = self.blocks();
        let place = blocks.erasing[plane as usize].take().expect("an erase under way has a place");
        match outcome {
            Outcome::Failed => blocks.ftl.erase_failed(place),
            _ => blocks.ftl.erased(place),
        }
        self.tell_urgency(plane);
        self.retry_stalled(now);
        if self.blocks().ftl.urgency(plane) != Urgency::None {
            self.reclaim(now, plane);
        }
    }
}
