//! The host's side of a command of the store (software NDS; paper, section 5.2): it translates block by block, asks for
//! the extents of each by ios of their own, and copies runs between pages and the caller's memory.
//!
//! Each step ends with ios or an event on their way, or says that it had nothing to do; what comes next is the client's
//! to say.

use super::{At, For, Part, SpaceEvent, Spaces, Steps};
use crate::flash::OpKind;
use crate::footprint::Step;
use crate::machine::clients::Asker;
use crate::machine::fabric::Lent;
use crate::machine::host_io::{Io, Way};
use nandarray_sim::Ps;

impl Spaces {
    /// The host translates the next block of a job, one after the other; `false` if there is none.
    pub(super) fn host_translates(&mut self, lent: &mut Lent<'_>, now: Ps, job: u32) -> bool {
        let j = &mut self.jobs[job as usize];
        if j.next == j.pieces.len() {
            return false;
        }
        let (piece, from) = (j.pieces[j.next], j.next.checked_sub(1).map_or(0, |i| j.pieces[i].steps_end));
        j.next += 1;
        j.open += 1;
        j.open_bytes += piece.bytes;
        j.waiting += 1;
        let way = j.way(from, piece.steps_end);
        let steps = Steps::Extents { from, to: piece.steps_end };
        let core = lent.fabric.cpu.core_of(j.queue);
        let part = Part { way, steps, runs: piece.runs, bytes: piece.bytes, ..Part::new(job, self.age(job)) };
        let part = self.parts.insert(part) as u32;
        let booked = lent.fabric.cpu.work(now, core, lent.fabric.description.host.t_translate);
        lent.fabric.host_span(booked, "translate", u64::from(part));
        lent.push(booked.end, SpaceEvent::HostPiece(part));
        lent.push(booked.end, SpaceEvent::HostWork(job));
        true
    }

    /// The host asks for the pages of a block; without any it copies at once.
    pub(super) fn host_reads(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32) {
        if !self.ask_extents(lent, now, part, At::Reading, OpKind::Read) {
            self.host_copies(lent, now, part);
        }
    }

    /// All of a block is in host memory: a core copies its runs, to the caller or into pages.
    pub(super) fn host_copies(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32) {
        let p = &mut self.parts[part as usize];
        p.at = if p.way == Way::Write { At::Scattered } else { At::Gathered };
        let core = lent.fabric.cpu.core_of(self.jobs[p.job as usize].queue);
        let booked = lent.fabric.cpu.copy(now, Some(core), p.runs, p.bytes);
        lent.fabric.host_span(booked, "copy", u64::from(part));
        lent.push(booked.end, SpaceEvent::HostPiece(part));
    }

    /// The host writes the pages of a block; `false` if there are none.
    pub(super) fn host_programs(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32) -> bool {
        self.ask_extents(lent, now, part, At::Programming, OpKind::Program)
    }

    fn ask_extents(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32, at: At, op: OpKind) -> bool {
        let p = self.parts[part as usize];
        let page = self.flash.page_bytes();
        let most = (lent.fabric.description.host.transfer_max_bytes / page).max(1);
        let queue = self.jobs[p.job as usize].queue;
        let mut extents = Vec::new();
        for step in self.steps_of(&p).into_iter().filter(|s| s.op == op) {
            let mut done = 0;
            while done < step.pages {
                let pages = most.min(step.pages - done);
                let first = nandarray::file_format::Ppa(step.first.0 + u64::from(done));
                // A host asks for whole pages.
                extents.push(Step { first, pages, last_bytes: page, ..step });
                done += pages;
            }
        }
        self.parts[part as usize].at = at;
        self.parts[part as usize].left = extents.len() as u32;
        let asks = !extents.is_empty();
        let way = if op == OpKind::Program { Way::Write } else { Way::Read };
        for step in extents {
            let asker = Asker::Spaces(For::Extent { whole: part, step });
            lent.io.submit(lent.fabric, now, Io { asker, way, queue, submitted: now, parts_left: 1 });
        }
        asks
    }
}
