//! Commands on the link (ios), from a host core into a queue, to the device, and back with a completion.
//!
//! ```text
//! host core: submit -> doorbell -> fetched by arbitration -> entry crosses the link -> command handler -> decoded ...
//! ... parts done -> command handler -> completion crosses the link -> interrupt or poll -> host core: reap -> answered
//! ```
//!
//! Clients submit ios and report their progress; they are notified when an io is decoded and when the host has reaped
//! its completion ([`IoDone`]). Doorbells and the device's requests for queue entries are messages without payload:
//! the time of fetching an entry includes them. A sleeping device ([`Sleep`]) fetches commands once it is awake.

use std::collections::VecDeque;

use slab::Slab;

use super::account::Totals;
use super::clients::Requester;
use super::fabric::Fabric;
use super::sleep::Sleep;
use super::stages::FirmwareStage;
use crate::describe::Description;
use crate::host::{Direction, Queues};
use crate::report::Slept;
use nandarray_sim::Ps;

/// Direction in which a command on the link moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IoDirection {
    /// Data moves to the host.
    Read,
    /// Data moves to the device.
    Write,
    /// The command moves no data.
    Neither,
}

/// A command on the link (an io).
#[derive(Clone, Copy, Debug)]
pub(super) struct Io {
    pub(super) requester: Requester,
    pub(super) direction: IoDirection,
    pub(super) queue: u32,
    pub(super) submitted: Ps,
    /// Number of parts of the command's work that are not done, plus one while more may be added.
    pub(super) parts_left: u32,
    /// Whether the device has fetched the command from its queue.
    fetched: bool,
}

impl Io {
    /// Makes a command that waits for `parts_left` parts of its work.
    pub(super) fn new(requester: Requester, direction: IoDirection, queue: u32, parts_left: u32) -> Self {
        Self { requester, direction, queue, submitted: Ps::ZERO, parts_left, fetched: false }
    }
}

/// An event of a command on the link; carries the command's number unless stated otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IoEvent {
    /// A doorbell reaches the device: the number of its queue.
    Doorbell(u32),
    /// The command's submission entry is in the controller.
    Arrived(u32),
    /// The command handler has decoded the command.
    Decoded(u32),
    /// One of the parts that the command waits for is done.
    Progress(u32),
    /// All parts of the command are done, so its completion can be sent.
    Finished(u32),
    /// The command's completion entry is in the host's memory.
    Completed(u32),
    /// A host core notices the completion.
    Noticed(u32),
    /// A host core has reaped the completion.
    Reaped(u32),
    /// The device has woken up.
    Awake,
}

impl IoEvent {
    pub(super) fn code(self) -> (u64, u32) {
        match self {
            Self::Doorbell(queue) => (1, queue),
            Self::Arrived(io) => (2, io),
            Self::Decoded(io) => (3, io),
            Self::Finished(io) => (8, io),
            Self::Completed(io) => (9, io),
            Self::Noticed(io) => (10, io),
            Self::Reaped(io) => (11, io),
            Self::Progress(io) => (20, io),
            Self::Awake => (25, 0),
        }
    }
}

/// A notification for the client that requested a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum IoDone {
    /// The device has decoded this command.
    Decoded(u32, Requester),
    /// The host has reaped the command's completion; its number is free again.
    Reaped(Requester),
}

/// The commands on the link, with their queue pairs.
pub(crate) struct HostIo {
    ios: Slab<Io>,
    queues: Queues<u32>,
    /// Commands that wait on the host for room in their queue, by queue.
    backlog: Vec<VecDeque<u32>>,
    in_device: u32,
    /// Number of commands in the device that hold no command slot ([`Self::give_way`]).
    without_slot: u32,
    sleep: Sleep,
}

impl HostIo {
    /// Makes the queue pairs of an idle device, with no command on the link.
    pub(super) fn new(d: &Description) -> Self {
        Self {
            ios: Slab::new(),
            queues: Queues::new(d.host.queues, d.host.queue_entries, &d.host.arbitration),
            backlog: vec![VecDeque::new(); d.host.queues as usize],
            in_device: 0,
            without_slot: 0,
            sleep: Sleep::new(&d.idle_states),
        }
    }

    /// Handles an event and what follows from it; returns the client's notification, if the event causes one.
    pub(super) fn handle(&mut self, fabric: &mut Fabric, now: Ps, event: IoEvent) -> Option<IoDone> {
        match event {
            IoEvent::Doorbell(queue) => self.doorbell(fabric, now, queue),
            IoEvent::Arrived(io) => {
                let at = fabric.run_stage(FirmwareStage::Command, now, fabric.description.controller.t_command);
                if at == now {
                    return Some(self.decoded(io));
                }
                fabric.push(at, IoEvent::Decoded(io));
            }
            IoEvent::Decoded(io) => return Some(self.decoded(io)),
            IoEvent::Progress(io) => self.progress(fabric, now, io),
            IoEvent::Finished(io) => self.finished(fabric, now, io),
            IoEvent::Completed(io) => return self.completed(fabric, now, io),
            IoEvent::Noticed(io) => return self.noticed(fabric, now, io),
            IoEvent::Reaped(io) => return Some(self.reaped(fabric, now, io)),
            IoEvent::Awake => self.fetch(fabric, now),
        }
        None
    }

    /// Submits a command of the host and returns its number; the command waits on the host while its queue is full.
    pub(super) fn submit(&mut self, fabric: &mut Fabric, now: Ps, io: Io) -> u32 {
        assert!(io.parts_left > 0, "an io without parts never ends: {io:?}");
        let queue = io.queue;
        let io = self.ios.insert(Io { submitted: now, ..io }) as u32;
        fabric.totals.submitted += 1;
        if self.queues.room(queue) == 0 {
            self.backlog[queue as usize].push_back(io);
        } else {
            self.enqueue(fabric, now, io);
        }
        io
    }

    /// Returns the requester of a command.
    pub(super) fn requester(&self, io: u32) -> Requester {
        self.ios[io as usize].requester
    }

    /// Returns the direction of a command's data.
    pub(super) fn direction(&self, io: u32) -> IoDirection {
        self.ios[io as usize].direction
    }

    /// Adds parts that a command waits for.
    pub(super) fn add_parts(&mut self, io: u32, parts: u32) {
        assert!(self.parts_left(io) > 0, "io {io} is finished and gets {parts} parts");
        self.ios[io as usize].parts_left += parts;
    }

    /// Returns the number of parts that a command still waits for.
    pub(super) fn parts_left(&self, io: u32) -> u32 {
        self.ios[io as usize].parts_left
    }

    fn enqueue(&mut self, fabric: &mut Fabric, now: Ps, io: u32) {
        let queue = self.ios[io as usize].queue;
        self.queues.submit(queue, io).expect("the queue had room");
        let core = fabric.cpu.core_of(queue);
        let booked = fabric.cpu.submit(now, core);
        fabric.host_span(booked, "submit", u64::from(io));
        if booked.end == now {
            self.doorbell(fabric, now, queue);
        } else {
            fabric.push(booked.end, IoEvent::Doorbell(queue));
        }
    }

    /// Handles a doorbell at the device: commands are fetched now, or when the device is awake.
    fn doorbell(&mut self, fabric: &mut Fabric, now: Ps, queue: u32) {
        let shown = self.queues.show(queue, 1);
        assert_eq!(shown, 1, "a doorbell of queue {queue} is that of one command");
        let awake = self.sleep.wakes(now);
        if awake > now { fabric.push(awake, IoEvent::Awake) } else { self.fetch(fabric, now) }
    }

    /// Fetches commands from the queues while the device has free command slots.
    fn fetch(&mut self, fabric: &mut Fabric, now: Ps) {
        while self.in_device - self.without_slot < fabric.description.controller.command_slots {
            let Some(fetched) = self.queues.fetch() else { return };
            self.in_device += 1;
            self.ios[fetched.command as usize].fetched = true;
            assert!(
                self.queues.room(fetched.queue) < fabric.description.host.queue_entries,
                "{fetched:?} has no entry"
            );
            let entry = u64::from(fabric.description.link.command_bytes);
            let sent = fabric.send_entry(now, Direction::Down, entry, "command");
            fabric.push(sent.end, IoEvent::Arrived(fetched.command));
        }
    }

    /// Whether the device has fetched a command from its queue.
    pub(super) fn is_fetched(&self, io: u32) -> bool {
        self.ios[io as usize].fetched
    }

    /// Takes the command slot from a command in the device that waits for a command which the device has not fetched
    /// yet: commands that hold every slot could otherwise wait for ever.
    pub(super) fn give_way(&mut self, fabric: &mut Fabric, now: Ps, io: u32) {
        assert!(self.is_fetched(io) && self.without_slot < self.in_device, "io {io} holds no slot");
        self.without_slot += 1;
        self.fetch(fabric, now);
    }

    /// Gives a command that gave way a slot again, though none may be free: the device fetches nothing until one is.
    pub(super) fn take_slot_again(&mut self) {
        assert!(self.without_slot > 0, "no command gave way");
        self.without_slot -= 1;
    }

    fn decoded(&self, io: u32) -> IoDone {
        IoDone::Decoded(io, self.requester(io))
    }

    /// Marks one of the parts that a command waits for as done; after the last, sends its completion.
    pub(super) fn progress(&mut self, fabric: &mut Fabric, now: Ps, io: u32) {
        let one = &mut self.ios[io as usize];
        assert!(one.parts_left > 0, "an io that was finished makes progress");
        one.parts_left -= 1;
        if one.parts_left == 0 {
            let at = fabric.run_stage(FirmwareStage::Command, now, fabric.description.controller.t_complete);
            if at == now { self.finished(fabric, now, io) } else { fabric.push(at, IoEvent::Finished(io)) }
        }
    }

    /// Ends a command whose last part is data that has just left for the host: the completion is sent right after the
    /// data.
    pub(super) fn finished_with_data(&mut self, fabric: &mut Fabric, now: Ps, io: u32) {
        let parts = std::mem::replace(&mut self.ios[io as usize].parts_left, 0);
        assert_eq!(parts, 1, "io {io} ends with its last part");
        self.finished(fabric, now, io);
    }

    fn finished(&mut self, fabric: &mut Fabric, now: Ps, io: u32) {
        assert_eq!(self.parts_left(io), 0, "io {io} is finished with parts left");
        let entry = u64::from(fabric.description.link.completion_bytes);
        let sent = fabric.send_entry(now, Direction::Up, entry, "completion");
        fabric.push(sent.end, IoEvent::Completed(io));
    }

    fn completed(&mut self, fabric: &mut Fabric, now: Ps, io: u32) -> Option<IoDone> {
        self.queues.post(self.ios[io as usize].queue, io);
        assert!(self.in_device > 0, "io {io} completes, and none is in the device");
        self.in_device -= 1;
        self.fetch(fabric, now);
        let at = fabric.cpu.notices(now);
        if at == now {
            return self.noticed(fabric, now, io);
        }
        fabric.push(at, IoEvent::Noticed(io));
        None
    }

    fn noticed(&mut self, fabric: &mut Fabric, now: Ps, io: u32) -> Option<IoDone> {
        let core = fabric.cpu.core_of(self.ios[io as usize].queue);
        let booked = fabric.cpu.complete(now, core);
        fabric.host_span(booked, "complete", u64::from(io));
        if booked.end == now {
            return Some(self.reaped(fabric, now, io));
        }
        fabric.push(booked.end, IoEvent::Reaped(io));
        None
    }

    fn reaped(&mut self, fabric: &mut Fabric, now: Ps, io: u32) -> IoDone {
        let one = self.ios.remove(io as usize);
        let oldest = self.queues.reap(one.queue);
        assert_eq!(oldest, Some(io), "completions are reaped in order");
        fabric.totals.completed += 1;
        let Totals { submitted, completed, .. } = fabric.totals;
        assert!(completed <= submitted, "{completed} commands are reaped of {submitted} submitted");
        let what = match one.direction {
            IoDirection::Read => "read",
            IoDirection::Write => "write",
            IoDirection::Neither => "command",
        };
        fabric.io_span(one.queue, one.submitted, now, what, io);
        if let Some(next) = self.backlog[one.queue as usize].pop_front() {
            self.enqueue(fabric, now, next);
        }
        IoDone::Reaped(one.requester)
    }

    /// Whether commands on the link allow the device to rest now; `false` if it already rests or has no idle states.
    pub(super) fn may_rest(&self, now: Ps) -> bool {
        self.sleep.is_up(now) && self.in_device == 0 && self.queues.visible() == 0
    }

    /// Begins a rest of the device at `now`.
    pub(super) fn rest(&mut self, now: Ps) {
        assert!(self.may_rest(now), "the device rests at {now} with {} commands", self.in_device);
        self.sleep.rests(now);
    }

    /// Returns the time until `now` in each idle state.
    pub(super) fn slept_until(&self, now: Ps) -> Vec<Slept> {
        self.sleep.slept_until(now)
    }

    /// Checks that no command was left in flight.
    ///
    /// # Panics
    /// If one was left: the model is wrong.
    pub(super) fn check_at_rest(&self) {
        assert!(self.ios.is_empty(), "a command was left in flight on the link");
    }
}
