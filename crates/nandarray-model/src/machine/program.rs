//! Programs of conventional flash management: issued, ended, done elsewhere when they failed.
//!
//! A page is in the controller's memory until its program has ended. One that failed and for which no plane has room stays there
//! until reclaim, or a trim, makes room; whoever waited for it is told that there is no space.

use super::block::Status;
use super::{Machine, Waiting};
use crate::flash::{Cause, Op, Operation, Outcome, Place};
use crate::time::Ps;

/// A program under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    place: Place,
    cause: Cause,
    waiting: Waiting,
    /// Which flushes wait for it.
    epoch: u64,
}

impl Machine {
    /// Reads or programs a page; who waits is told when that has ended, programs that failed having been done elsewhere.
    pub(super) fn issue_page(&mut self, now: Ps, op: Op, cause: Cause, place: Place, bytes: u32, waiting: Waiting) {
        let mut waiting = waiting;
        if op == Op::Program {
            let blocks = self.blocks();
            let epoch = blocks.flushes.program_begins();
            *blocks.writing.entry(place).or_default() += 1;
            waiting = Waiting::Program(blocks.under_way.insert(Program { place, cause, waiting, epoch }) as u32);
        }
        self.issue(now, Operation { op, cause, place, bytes, token: waiting.token(bytes) });
    }

    fn leaves_memory(&mut self, place: Place) {
        let writing = &mut self.blocks().writing;
        let left = writing.get_mut(&place).expect("a page in memory is being written");
        *left -= 1;
        if *left == 0 {
            writing.remove(&place);
        }
    }

    pub(super) fn program_over(&mut self, now: Ps, program: u32, outcome: Outcome) {
        let Program { place, cause, waiting, epoch } = self.blocks().under_way.remove(program as usize);
        let renewed = match outcome {
            Outcome::Failed => self.blocks().ftl.program_failed(place, cause),
            _ => Ok(None),
        };
        let bytes = self.description.geometry.page_bytes;
        match renewed {
            Ok(None) => self.leaves_memory(place),
            Ok(Some(renewed)) => {
                self.issue_page(now, Op::Program, cause, renewed.place, bytes, waiting);
                self.leaves_memory(place);
            }
            Err(_) => {
                self.blocks().homeless.push((place, cause));
                if let Waiting::Page(part) = waiting {
                    self.fail(part, Status::NoSpace);
                }
            }
        }
        if outcome == Outcome::Failed {
            // Its block is to be emptied.
            let plane = place.die * self.description.geometry.planes + u32::from(place.plane);
            self.reclaim(now, plane);
        }
        if !matches!(renewed, Ok(Some(_))) {
            match waiting {
                Waiting::Page(part) => self.page_operation_ended(now, part, Outcome::Done),
                Waiting::MoveTo(plane) => self.move_written(now, plane),
                _ => {}
            }
        }
        self.blocks().flushes.program_ended(epoch);
        self.go_on_flushing(now);
    }

    /// Looks for places anew for pages whose programs failed.
    pub(super) fn retry_homeless(&mut self, now: Ps) {
        if self.blocks().homeless.is_empty() {
            return;
        }
        let bytes = self.description.geometry.page_bytes;
        for (place, cause) in std::mem::take(&mut self.blocks().homeless) {
            match self.blocks().ftl.program_failed(place, cause) {
                // Moved, overwritten or trimmed meanwhile.
                Ok(None) => self.leaves_memory(place),
                Ok(Some(renewed)) => {
                    self.issue_page(now, Op::Program, cause, renewed.place, bytes, Waiting::Nobody);
                    self.leaves_memory(place);
                }
                Err(_) => self.blocks().homeless.push((place, cause)),
            }
        }
    }
}
