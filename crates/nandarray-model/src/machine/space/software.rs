//! The host's side of a command of the store (software NDS; paper, section 5.2): it translates block by block, asks for the
//! extents of each by ios of their own, and copies runs between pages and the caller's memory.

use super::{At, JobKind, Part, Steps};
use crate::flash::Op;
use crate::footprint::Step;
use crate::machine::io::{For, Io, Way};
use crate::machine::{Event, Machine};
use crate::time::Ps;

impl Machine {
    /// The host takes up the next block of a job: translates it, one after the other.
    pub(in crate::machine) fn host_work(&mut self, now: Ps, job: u32) {
        let (t_translate, core) = {
            let j = &self.jobs[job as usize];
            (self.description.host.t_translate, self.cpu.core_of(j.queue))
        };
        let j = &mut self.jobs[job as usize];
        if j.next == j.pieces.len() {
            return self.pieces_progress(now, job);
        }
        let (piece, from) = (j.pieces[j.next], j.next.checked_sub(1).map_or(0, |i| j.pieces[i].steps_end));
        j.next += 1;
        j.open += 1;
        j.open_bytes += piece.bytes;
        j.waiting += 1;
        let way = j.way(from, piece.steps_end);
        let steps = Steps::Extents { from, to: piece.steps_end };
        let part = Part { way, steps, runs: piece.runs, bytes: piece.bytes, ..Part::new(job) };
        let part = self.parts.insert(part) as u32;
        let booked = self.cpu.work(now, core, t_translate);
        self.host_span(booked, "translate", u64::from(part));
        self.events.push(booked.end, Event::HostPiece(part));
        self.events.push(booked.end, Event::HostWork(job));
    }

    /// A block is translated, or copied: what is next for it.
    pub(in crate::machine) fn host_piece(&mut self, now: Ps, part: u32) {
        let p = self.parts[part as usize];
        match (p.at, p.way) {
            (At::Translated, _) => self.ask_extents(now, part, At::Reading, Op::Read),
            (At::Reading, _) => {
                // All of it is in host memory: copy its runs, to the caller or into pages.
                self.parts[part as usize].at = if p.way == Way::Write { At::Scattered } else { At::Gathered };
                let core = self.cpu.core_of(self.jobs[p.job as usize].queue);
                let booked = self.cpu.copy(now, Some(core), p.runs, p.bytes);
                self.host_span(booked, "copy", u64::from(part));
                self.events.push(booked.end, Event::HostPiece(part));
            }
            (At::Scattered, _) => self.composed(now, part),
            _ => self.delivered(now, part),
        }
    }

    /// A block is composed: programmed now, or once all of its command are.
    fn composed(&mut self, now: Ps, part: u32) {
        let p = self.parts[part as usize];
        let j = &mut self.jobs[p.job as usize];
        if p.log || j.kind != JobKind::Write || !self.description.host.composes_commands {
            return self.ask_extents(now, part, At::Programming, Op::Program);
        }
        j.composed.push(part);
        if j.composed.len() == j.pieces.len() {
            for part in std::mem::take(&mut j.composed) {
                self.ask_extents(now, part, At::Programming, Op::Program);
            }
        }
    }

    fn ask_extents(&mut self, now: Ps, part: u32, at: At, op: Op) {
        let p = self.parts[part as usize];
        let store = self.places().store();
        let (page, most) = (store.page_bytes, (self.description.host.transfer_max_bytes / store.page_bytes).max(1));
        let queue = self.jobs[p.job as usize].queue;
        let mut extents = Vec::new();
        for step in self.steps_of(&p).into_iter().filter(|s| s.op == op) {
            let mut done = 0;
            while done < step.pages {
                let pages = most.min(step.pages - done);
                let first = nandarray::flash::Ppa(step.first.0 + u64::from(done));
                // A host asks for whole pages.
                extents.push(Step { first, pages, last_bytes: page, ..step });
                done += pages;
            }
        }
        self.parts[part as usize].at = at;
        self.parts[part as usize].left = extents.len() as u32;
        if extents.is_empty() {
            return self.host_piece(now, part);
        }
        let way = if op == Op::Program { Way::Write } else { Way::Read };
        for step in extents {
            let asked_by = For::Extent { whole: part, step };
            self.submit_io(now, Io { asked_by, way, queue, submitted: now, parts_left: 1 });
        }
    }

    pub(in crate::machine) fn extent_decoded(&mut self, now: Ps, io: u32, whole: u32, step: Step) {
        let page = u64::from(self.places().store().page_bytes);
        let way = self.ios[io as usize].way;
        let at = if way == Way::Write { At::Down } else { At::Translated };
        let (bytes, steps) = (u64::from(step.pages) * page, Steps::One(step));
        let job = self.parts[whole as usize].job;
        self.start_part(now, Part { io: Some(io), way, steps, bytes, at, ..Part::new(job) });
    }

    pub(in crate::machine) fn extent_done(&mut self, now: Ps, whole: u32) {
        let p = &mut self.parts[whole as usize];
        p.left -= 1;
        if p.left == 0 {
            self.host_piece(now, whole);
        }
    }
}
