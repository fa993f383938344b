//! The life of a command on the link: from the host's core into a queue, fetched, decoded; and back.
//!
//! ```text
//! host core: submit -> doorbell -> fetched by arbitration -> entry crosses the link -> command handler -> parts ...
//! ... parts done -> command handler -> completion crosses the link -> interrupt or poll -> host core: reap
//! ```
//!
//! Doorbells and the device's asking for an entry are messages without payload: they are part of what fetching an entry takes.

use super::{Event, Machine, Stage};
use crate::flash::Cause;
use crate::footprint::Step;
use crate::host::{Booked, Direction};
use crate::spans::{Span, Spans, Track};
use crate::time::Ps;

/// Who asked for an io.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// A conventional request.
    Request(u32),
    /// A command of the store, translated in the device.
    Job(u32),
    /// Some consecutive pages for a piece of a command of the store, translated by the host.
    Extent {
        /// The part that the host made for the piece.
        whole: u32,
        /// The pages.
        step: Step,
    },
}

/// Which way an io's data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To the host.
    Read,
    /// To the device.
    Write,
    /// None.
    Neither,
}

/// A command on the link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Io {
    pub(super) asked_by: For,
    pub(super) way: Way,
    pub(super) queue: u32,
    pub(super) submitted: Ps,
    /// Parts that are not done, plus one while more are to come.
    pub(super) parts_left: u32,
}

impl Machine {
    /// The host builds a command; it waits on the host while its queue is full.
    pub(super) fn submit_io(&mut self, now: Ps, io: Io) -> u32 {
        let queue = io.queue;
        let io = self.ios.insert(Io { submitted: now, ..io }) as u32;
        self.totals.submitted += 1;
        if self.queues.room(queue) == 0 {
            self.space.backlog[queue as usize].push_back(io);
        } else {
            self.enqueue(now, io);
        }
        io
    }

    fn enqueue(&mut self, now: Ps, io: u32) {
        let queue = self.ios[io as usize].queue;
        self.queues.submit(queue, io).expect("the queue had room");
        let booked = self.cpu.submit(now, self.cpu.core_of(queue));
        self.host_span(booked, "submit", u64::from(io));
        if booked.end == now { self.doorbell(now, queue) } else { self.events.push(booked.end, Event::Doorbell(queue)) }
    }

    pub(super) fn host_span(&mut self, booked: Booked, what: &'static str, detail: u64) {
        if let Some(spans) = &mut self.spans {
            if booked.end > booked.start {
                spans.span(self.cpu.span(booked, what, detail));
            }
        }
    }

    pub(super) fn doorbell(&mut self, now: Ps, queue: u32) {
        self.queues.show(queue, 1);
        self.wake_and_fetch(now);
    }

    /// The device takes commands while it has slots for them.
    pub(super) fn fetch(&mut self, now: Ps) {
        while self.in_device < self.description.controller.command_slots {
            let Some(fetched) = self.queues.fetch() else { return };
            self.in_device += 1;
            let entry = u64::from(self.description.link.command_bytes);
            let sent = self.send_entry(now, Direction::Down, entry, "command");
            self.events.push(sent.end, Event::Arrived(fetched.command));
        }
    }

    pub(super) fn arrived(&mut self, now: Ps, io: u32) {
        let t_command = self.description.controller.t_command;
        let at = self.stages.run(Stage::Command, now, t_command, Cause::Host, &mut self.spans);
        if at == now { self.decoded(now, io) } else { self.events.push(at, Event::Decoded(io)) }
    }

    pub(super) fn decoded(&mut self, now: Ps, io: u32) {
        match self.ios[io as usize].asked_by {
            For::Request(asked) => self.request_decoded(now, io, asked),
            For::Job(_) if self.fetches_coordinates(io) => {
                // A request without payload: what a read of host memory begins with.
                let sent = self.send_entry(now, Direction::Up, 0, "coordinates");
                self.events.push(sent.end, Event::CoordinatesAsked(io));
            }
            For::Job(job) => self.job_decoded(now, job),
            For::Extent { whole, step } => self.extent_decoded(now, io, whole, step),
        }
    }

    fn fetches_coordinates(&self, io: u32) -> bool {
        self.description.controller.coordinates_bytes > 0 && self.ios[io as usize].way != Way::Neither
    }

    pub(super) fn coordinates_asked(&mut self, now: Ps, io: u32) {
        let bytes = u64::from(self.description.controller.coordinates_bytes);
        let sent = self.send_entry(now, Direction::Down, bytes, "coordinates");
        self.events.push(sent.end, Event::CoordinatesThere(io));
    }

    /// The command handler takes the command up again, with its coordinates.
    pub(super) fn coordinates_there(&mut self, now: Ps, io: u32) {
        let For::Job(job) = self.ios[io as usize].asked_by else { unreachable!("only commands of a store have them") };
        // The second time: `Decoded` would ask for them again.
        let t_command = self.description.controller.t_command;
        let at = self.stages.run(Stage::Command, now, t_command, Cause::Host, &mut self.spans);
        if at == now { self.job_decoded(now, job) } else { self.events.push(at, Event::Translating(job)) }
    }

    /// One thing less to wait for before an io is finished.
    pub(super) fn io_progress(&mut self, now: Ps, io: u32) {
        let one = &mut self.ios[io as usize];
        assert!(one.parts_left > 0, "an io that was finished makes progress");
        one.parts_left -= 1;
        if one.parts_left == 0 {
            let t_complete = self.description.controller.t_complete;
            let at = self.stages.run(Stage::Command, now, t_complete, Cause::Host, &mut self.spans);
            if at == now { self.finished(now, io) } else { self.events.push(at, Event::Finished(io)) }
        }
    }

    pub(super) fn finished(&mut self, now: Ps, io: u32) {
        let entry = u64::from(self.description.link.completion_bytes);
        let sent = self.send_entry(now, Direction::Up, entry, "completion");
        self.events.push(sent.end, Event::Completed(io));
    }

    pub(super) fn completed(&mut self, now: Ps, io: u32) {
        let one = self.ios[io as usize];
        self.queues.post(one.queue, io);
        self.in_device -= 1;
        self.fetch(now);
        let at = self.cpu.notices(now);
        if at == now { self.noticed(now, io) } else { self.events.push(at, Event::Noticed(io)) }
    }

    pub(super) fn noticed(&mut self, now: Ps, io: u32) {
        let queue = self.ios[io as usize].queue;
        let booked = self.cpu.complete(now, self.cpu.core_of(queue));
        self.host_span(booked, "complete", u64::from(io));
        if booked.end == now { self.reaped(now, io) } else { self.events.push(booked.end, Event::Reaped(io)) }
    }

    pub(super) fn reaped(&mut self, now: Ps, io: u32) {
        let one = self.ios.remove(io as usize);
        let oldest = self.queues.reap(one.queue);
        debug_assert_eq!(oldest, Some(io), "completions are taken in order");
        self.totals.completed += 1;
        if let Some(spans) = &mut self.spans {
            let what = match one.way {
                Way::Read => "read",
                Way::Write => "write",
                Way::Neither => "command",
            };
            let (track, detail) = (Track::Request(one.queue), u64::from(io));
            spans.span(Span { track, start: one.submitted, end: now, what, cause: Cause::Host, detail });
        }
        if let Some(next) = self.space.backlog[one.queue as usize].pop_front() {
            self.enqueue(now, next);
        }
        match one.asked_by {
            For::Request(asked) => self.request_done(now, asked),
            For::Job(job) => self.job_done(now, job),
            For::Extent { whole, .. } => self.extent_done(now, whole),
        }
    }
}
