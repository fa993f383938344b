//! The interface of a machine: submitting requests and commands, taking completions, letting time pass.

use super::fabric::ClientContext;
use super::power::Power;
use super::{
    Machine, PlatformPart, Programmed, RequestEnded, SpaceJobDone, SpaceJobId, SpaceJobKind, block, cores, space,
};
use crate::describe::Description;
use crate::flash::OpCause;
use crate::flash_trace::FlashTrace;
use crate::ftl::{FtlSetupError, PageMapped};
use crate::workload::IoRequest;
use nandarray_sim::Ps;

/// An event that an executor of programs waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification {
    /// A command, or an input or output of programs, is done.
    Done(SpaceJobDone),
    /// A block of an input of programs is in the device's memory: the input, and the block's index in it.
    Arrived(SpaceJobId, usize),
    /// A core's work is over.
    CoreFree(u32),
}

impl Machine {
    /// The description of the machine's device.
    pub fn description(&self) -> &Description {
        &self.fabric.description
    }

    /// The modelled time: that of the last event.
    pub fn now(&self) -> Ps {
        self.fabric.events.now()
    }

    /// Number of events so far, pending ones included.
    pub fn events(&self) -> u64 {
        self.fabric.events.pushed()
    }

    /// The hash of all events so far: two runs with the same hash did the same things at the same times.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Lets the power fail after `events` more events. Simulation continues as if it had not; [`Machine::power_failed`]
    /// has the contents of the flash at that moment.
    pub fn fail_power_after(&mut self, events: u64) {
        assert!(self.power.is_none(), "the power of a machine fails once");
        self.power = Some(Power::fails_after(events));
    }

    /// The contents of the flash when the power failed; `None` if it has not.
    pub fn power_failed(&self) -> Option<&Programmed> {
        self.power.as_ref()?.failed()
    }

    // Conventional requests
    // -----------------------------------------------------------------------------------------------

    /// Adds page-mapped flash management ([`PlatformPart::Blocks`]) to the device.
    ///
    /// # Errors
    /// If the description leaves no flash to manage.
    pub fn attach_blocks(&mut self, seed: u64) -> Result<(), FtlSetupError> {
        self.add([PlatformPart::Blocks { seed }])
    }

    /// Page-mapped flash management, for preconditioning and reports.
    ///
    /// # Panics
    /// If the device has none.
    pub fn ftl(&mut self) -> &mut PageMapped {
        self.block().ftl_mut()
    }

    /// Bytes that requests can address.
    ///
    /// # Panics
    /// If the device has no page-mapped flash management.
    pub fn capacity_bytes(&mut self) -> u64 {
        self.block().capacity_bytes()
    }

    pub(super) fn block(&mut self) -> &mut block::BlockClient {
        self.clients.block.as_mut().expect("a device with page-mapped flash management")
    }

    /// The host submits a request, now.
    pub(super) fn submit_request(&mut self, now: Ps, request: IoRequest) {
        let block = self.clients.block.as_mut().expect("a device with page-mapped flash management");
        block.submit(&mut ClientContext { fabric: &mut self.fabric, io: &mut self.io }, now, request);
    }

    /// The next request that has ended and was not returned yet.
    pub(super) fn take_ended(&mut self) -> Option<RequestEnded> {
        self.block().take_ended()
    }

    // Commands of the store
    // -----------------------------------------------------------------------------------------------

    fn spaces(&mut self) -> &mut space::SpaceClient {
        self.clients.spaces.as_mut().expect("a machine with an attached store")
    }

    /// The host submits a command with its flash trace, at a time, on a queue; any number may be in flight.
    ///
    /// # Panics
    /// If no store is attached, or the time has passed.
    pub fn submit_job(&mut self, at: Ps, kind: SpaceJobKind, queue: u32, trace: FlashTrace) -> SpaceJobId {
        let spaces = self.clients.spaces.as_mut().expect("a machine with an attached store");
        spaces.submit(&mut self.fabric, at, kind, queue, trace)
    }

    /// Lets time pass until a command is done.
    ///
    /// # Panics
    /// If it never is: no event is pending that could end it.
    pub fn run_job(&mut self, id: SpaceJobId) -> SpaceJobDone {
        loop {
            if let Some(done) = self.spaces().take_done_of(id) {
                return done;
            }
            assert!(self.step(), "nothing waits, and command {id:?} is not done");
        }
    }

    /// The first completion that was not returned yet, letting time pass until there is one; `None` when nothing is in
    /// flight.
    pub fn next_job(&mut self) -> Option<SpaceJobDone> {
        self.next_job_until(Ps::MAX)
    }

    /// The same, but without handling events later than `until`: `None` when no command is done by then. A command may
    /// be submitted at `until` afterwards.
    pub fn next_job_until(&mut self, until: Ps) -> Option<SpaceJobDone> {
        loop {
            if let Some(done) = self.spaces().take_done() {
                return Some(done);
            }
            if self.fabric.events.next_at().is_none_or(|at| at > until) {
                return None;
            }
            self.step();
        }
    }

    /// The next happening of commands or cores, letting time pass until there is one; `None` when nothing is in flight.
    /// Of several at one event, blocks come first, then cores, then commands.
    pub fn next_notification(&mut self) -> Option<Notification> {
        self.next_notification_until(Ps::MAX)
    }

    /// Time of the next event; `None` when nothing is pending.
    pub fn next_event(&self) -> Option<Ps> {
        self.fabric.events.next_at()
    }

    /// As [`Self::next_notification`], without handling events later than `until`. A command may be submitted at
    /// `until` afterwards.
    pub fn next_notification_until(&mut self, until: Ps) -> Option<Notification> {
        loop {
            if let Some((job, piece)) = self.spaces().take_arrived() {
                return Some(Notification::Arrived(job, piece));
            }
            if let Some(core) = self.clients.cores.as_mut().and_then(|cores| cores.take_free()) {
                return Some(Notification::CoreFree(core));
            }
            if let Some(done) = self.spaces().take_done() {
                return Some(Notification::Done(done));
            }
            if self.fabric.events.next_at().is_none_or(|at| at > until) {
                return None;
            }
            self.step();
        }
    }

    fn compute(&mut self) -> (&mut cores::CoreClient, ClientContext<'_>) {
        let cores = self.clients.cores.as_mut().expect("a machine with cores for programs");
        (cores, ClientContext { fabric: &mut self.fabric, io: &mut self.io })
    }

    /// Lets a core work for a time, beginning now; [`Notification::CoreFree`] is its end.
    ///
    /// # Panics
    /// If there is no such core, or it is at work.
    pub fn work(&mut self, core: u32, time: Ps) {
        let now = self.now();
        let (cores, mut ctx) = self.compute();
        cores.work(&mut ctx, now, core, time);
    }

    /// A core gets a program, or returns it: in between it works or waits.
    ///
    /// # Panics
    /// If there is no such core, or it has one already, or none.
    pub fn occupy(&mut self, core: u32, has_program: bool) {
        let now = self.now();
        self.compute().0.occupy(now, core, has_program);
    }

    /// Lets an input that goes by credits fetch a further number of its pages, from a time on.
    ///
    /// # Panics
    /// If it is done: it has no such pages.
    pub fn credit(&mut self, at: Ps, id: SpaceJobId, pages: u64) {
        let now = self.now();
        let spaces = self.clients.spaces.as_mut().expect("a machine with an attached store");
        let mut ctx = ClientContext { fabric: &mut self.fabric, io: &mut self.io };
        spaces.credit(&mut ctx, now, at, id, pages);
    }

    /// Gives up the pages of an input that were not requested yet: it is done when the others have arrived.
    pub fn give_up(&mut self, id: SpaceJobId) {
        let now = self.now();
        let spaces = self.clients.spaces.as_mut().expect("a machine with an attached store");
        spaces.give_up(&mut ClientContext { fabric: &mut self.fabric, io: &mut self.io }, now, id);
    }

    /// Lets a core wait until a time, for room or for the firmware; [`Notification::CoreFree`] is its end.
    ///
    /// # Panics
    /// If there is no such core, or it is at work.
    pub fn hold(&mut self, core: u32, until: Ps) {
        let now = self.now();
        let (cores, mut ctx) = self.compute();
        cores.hold(&mut ctx, now, core, until);
    }

    /// Books a line of a core in DRAM, now; returns the time at which it is there.
    pub fn line(&mut self, bytes: u64) -> Ps {
        let now = self.now();
        self.fabric.dram_line(now, bytes)
    }

    /// Books the drain of an output's bytes from a core to DRAM, now; returns its end.
    pub fn drain_output(&mut self, core: u32, bytes: u64) -> Ps {
        let now = self.now();
        let crossed = self.fabric.through_crossbar(now, core, bytes, "output");
        crossed.max(self.fabric.through_dram(now, bytes, "output", OpCause::Host))
    }

    /// Books the firmware's management of cores for a time, now; returns its end.
    pub fn manage(&mut self, lasts: Ps) -> Ps {
        let now = self.now();
        self.fabric.manage_cores(now, lasts)
    }

    /// A state of a core, for the timeline.
    pub fn core_state(&mut self, core: u32, start: Ps, end: Ps, what: &'static str) {
        self.fabric.core_span(core, start, end, what);
    }

    /// Traffic of programs' data: bytes through the crossbar, pages that went past DRAM, pages that went across it.
    pub fn core_traffic(&self) -> (u64, u64, u64) {
        let crossed = self.fabric.crossbar.iter().map(nandarray_sim::TransferPort::bytes).sum();
        (crossed, self.fabric.pages_past_dram.0, self.fabric.pages_past_dram.1)
    }

    /// Bytes through DRAM so far.
    pub fn dram_bytes(&self) -> u64 {
        self.fabric.dram.bytes()
    }

    /// Lets everything in flight end, in the background too.
    pub fn settle(&mut self) {
        while self.step() {}
        self.check();
    }
}
