//! The interface of a machine: submits requests and commands, returns completions, lets time pass.

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
    /// A command, or an input or output of programs, has been completed.
    Done(SpaceJobDone),
    /// A block of an input of programs has arrived in the device's memory: the input, and the block's index in it.
    Arrived(SpaceJobId, usize),
    /// The work or wait of this core has ended.
    CoreFree(u32),
}

impl Machine {
    /// Returns the description of the machine's device.
    pub fn description(&self) -> &Description {
        &self.fabric.description
    }

    /// Returns the modelled time, which is that of the last event.
    pub fn now(&self) -> Ps {
        self.fabric.events.now()
    }

    /// Returns the number of events so far, pending ones included.
    pub fn events(&self) -> u64 {
        self.fabric.events.pushed()
    }

    /// Returns the hash of all events so far: two runs with the same hash did the same at the same times.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Makes the power fail after `events` more events. The simulation continues as if it had not failed;
    /// [`Machine::power_failed`] returns what the flash held at that moment.
    pub fn fail_power_after(&mut self, events: u64) {
        assert!(self.power.is_none(), "the power of a machine fails once");
        self.power = Some(Power::fails_after(events));
    }

    /// Returns the contents of the flash when the power failed; `None` before that.
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

    /// Returns the page-mapped flash management, for preconditioning and reports.
    ///
    /// # Panics
    /// If the device has none.
    pub fn ftl(&mut self) -> &mut PageMapped {
        self.block().ftl_mut()
    }

    /// Returns the number of bytes that requests can address.
    ///
    /// # Panics
    /// If the device has no page-mapped flash management.
    pub fn capacity_bytes(&mut self) -> u64 {
        self.block().capacity_bytes()
    }

    pub(super) fn block(&mut self) -> &mut block::BlockClient {
        self.clients.block.as_mut().expect("a device with page-mapped flash management")
    }

    /// Submits a request of the host at time `now`.
    pub(crate) fn submit_request(&mut self, now: Ps, request: IoRequest) {
        let block = self.clients.block.as_mut().expect("a device with page-mapped flash management");
        block.submit(&mut ClientContext { fabric: &mut self.fabric, io: &mut self.io }, now, request);
    }

    /// Returns the next request that has ended, each once; `None` if there is none.
    pub(crate) fn take_ended(&mut self) -> Option<RequestEnded> {
        self.block().take_ended()
    }

    /// Returns the time of the next event, for a caller that runs several machines side by side; `None` when nothing is
    /// pending.
    pub(crate) fn next_event_at(&self) -> Option<Ps> {
        self.fabric.events.next_at()
    }

    // Commands of the store
    // -----------------------------------------------------------------------------------------------

    fn spaces(&mut self) -> &mut space::SpaceClient {
        self.clients.spaces.as_mut().expect("a machine with an attached store")
    }

    /// Submits a command of the host, with its flash trace, at time `at` on a queue; any number may be in flight.
    ///
    /// # Panics
    /// If no store is attached, or `at` has passed.
    pub fn submit_job(&mut self, at: Ps, kind: SpaceJobKind, queue: u32, trace: FlashTrace) -> SpaceJobId {
        let spaces = self.clients.spaces.as_mut().expect("a machine with an attached store");
        spaces.submit(&mut self.fabric, at, kind, queue, trace)
    }

    /// Lets time pass until a command is completed, and returns its completion.
    ///
    /// # Panics
    /// If no pending event can complete it.
    pub fn run_job(&mut self, id: SpaceJobId) -> SpaceJobDone {
        loop {
            if let Some(done) = self.spaces().take_done_of(id) {
                return done;
            }
            assert!(self.step(), "nothing waits, and command {id:?} is not done");
        }
    }

    /// Returns the oldest completion that was not returned yet, letting time pass until there is one; `None` when
    /// nothing is in flight.
    pub fn next_job(&mut self) -> Option<SpaceJobDone> {
        self.next_job_until(Ps::MAX)
    }

    /// Returns the oldest completion as [`Self::next_job`] does, but handles no event later than `until`: `None` when
    /// no command is completed by then. A command may be submitted at `until` afterwards.
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

    /// Returns the next notification of commands or cores, letting time pass until there is one; `None` when nothing
    /// is in flight. Of several at one event, arrived blocks come first, then cores, then commands.
    pub fn next_notification(&mut self) -> Option<Notification> {
        self.next_notification_until(Ps::MAX)
    }

    /// Returns the time of the next event; `None` when nothing is pending.
    pub fn next_event(&self) -> Option<Ps> {
        self.fabric.events.next_at()
    }

    /// Returns the next notification as [`Self::next_notification`] does, but handles no event later than `until`:
    /// `None` when there is none by then. A command may be submitted at `until` afterwards.
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

    /// Makes a core work for `time`, beginning now; a [`Notification::CoreFree`] reports the end.
    ///
    /// # Panics
    /// If there is no such core, or it already works.
    pub fn work(&mut self, core: u32, time: Ps) {
        let now = self.now();
        let (cores, mut ctx) = self.compute();
        cores.work(&mut ctx, now, core, time);
    }

    /// Records that a core gets a program (`has_program`) or gives it back; in between it works or waits.
    ///
    /// # Panics
    /// If there is no such core, or it already is in that state.
    pub fn occupy(&mut self, core: u32, has_program: bool) {
        let now = self.now();
        self.compute().0.occupy(now, core, has_program);
    }

    /// Allows an input that is read by credits to fetch `pages` more of its pages from time `at` on.
    ///
    /// # Panics
    /// If the input is completed: it has no pages to fetch.
    pub fn credit(&mut self, at: Ps, id: SpaceJobId, pages: u64) {
        let now = self.now();
        let spaces = self.clients.spaces.as_mut().expect("a machine with an attached store");
        let mut ctx = ClientContext { fabric: &mut self.fabric, io: &mut self.io };
        spaces.credit(&mut ctx, now, at, id, pages);
    }

    /// Cancels the pages of an input that were not requested yet; the input is completed when the requested pages have
    /// arrived.
    pub fn give_up(&mut self, id: SpaceJobId) {
        let now = self.now();
        let spaces = self.clients.spaces.as_mut().expect("a machine with an attached store");
        spaces.give_up(&mut ClientContext { fabric: &mut self.fabric, io: &mut self.io }, now, id);
    }

    /// Makes a core wait until a time, for room or for the firmware; a [`Notification::CoreFree`] reports the end.
    ///
    /// # Panics
    /// If there is no such core, or it works.
    pub fn hold(&mut self, core: u32, until: Ps) {
        let now = self.now();
        let (cores, mut ctx) = self.compute();
        cores.hold(&mut ctx, now, core, until);
    }

    /// Books the transfer of a cache line between DRAM and a core, now; returns the time at which it has arrived.
    pub fn line(&mut self, bytes: u64) -> Ps {
        let now = self.now();
        self.fabric.dram_line(now, bytes)
    }

    /// Books the transfer of an output's bytes from a core to DRAM, now; returns its end.
    pub fn drain_output(&mut self, core: u32, bytes: u64) -> Ps {
        let now = self.now();
        let crossed = self.fabric.through_crossbar(now, core, bytes, "output");
        crossed.max(self.fabric.through_dram(now, bytes, "output", OpCause::Host))
    }

    /// Books the transfer of an output's bytes onto the crossbar, now, from a core that holds them or from DRAM;
    /// returns its end.
    pub fn send_from(&mut self, core: Option<u32>, bytes: u64) -> Ps {
        let now = self.now();
        match core {
            Some(core) => self.fabric.through_crossbar(now, core, bytes, "page out"),
            None => self.fabric.through_dram(now, bytes, "data out", OpCause::Host),
        }
    }

    /// Books `lasts` of firmware work that manages cores, now; returns its end.
    pub fn manage(&mut self, lasts: Ps) -> Ps {
        let now = self.now();
        self.fabric.manage_cores(now, lasts)
    }

    /// Reports the state of a core between two times to the timeline.
    pub fn core_state(&mut self, core: u32, start: Ps, end: Ps, what: &'static str) {
        self.fabric.core_span(core, start, end, what);
    }

    /// Returns the traffic of programs' data: bytes through the crossbar's ports, pages that bypassed DRAM, pages that
    /// went through DRAM, pages that came from other cores.
    pub fn core_traffic(&self) -> (u64, u64, u64, u64) {
        let crossed = self.fabric.crossbar.iter().map(nandarray_sim::TransferPort::bytes).sum();
        let (past, through) = self.fabric.pages_past_dram;
        (crossed, past, through, self.fabric.pages_between_cores)
    }

    /// Returns the number of bytes that went through DRAM so far.
    pub fn dram_bytes(&self) -> u64 {
        self.fabric.dram.bytes()
    }

    /// Lets time pass until nothing is in flight, background work included, and checks the machine's consistency.
    pub fn settle(&mut self) {
        while self.step() {}
        self.check();
    }
}
