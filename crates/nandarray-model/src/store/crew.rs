//! Parts that the executors of a modelled device share: the run's agenda and outputs, its cores, and the machine's jobs
//! that move data for it.
//!
//! An executor decides what a core does next: `executor` for cores of one instruction a cycle, `timed` for described
//! ones. A crew that is dropped, even by a panic, leaves the machine at rest.

use std::collections::BTreeMap;

use nandarray_cores::RunError;
use nandarray_runtime::{Agenda, Delivery, InputLocation, Job, JobKind, OutputSink};

use super::Clock;
use crate::flash_trace::{BlockOps, FlashTrace};
use crate::machine::{Notification, SpaceJobId, SpaceJobKind};
use nandarray_sim::Ps;

/// An event of the machine for a run, whose jobs of the machine have purposes `W`.
pub(super) enum CrewEvent<W> {
    /// A core has done its work.
    CoreFree(usize),
    /// A block (its number) of a job of the machine has arrived; `None` if the job has ended, so that all have.
    Arrived(SpaceJobId, Option<usize>, W),
    /// A job of the machine has progressed for which only the end of the run waits.
    Other,
}

/// Use of a core by the run.
#[derive(Clone, Copy, Default)]
struct CoreUse {
    /// Whether the core has a job.
    is_occupied: bool,
    /// Whether the core works, up to a known time.
    works: bool,
}

/// The state of a run that every executor has.
pub(super) struct RunCrew<'r, 's, 'p, W> {
    pub(super) clock: &'r Clock,
    pub(super) agenda: &'r mut Agenda<'s, 'p>,
    sink: &'r mut dyn OutputSink,
    /// Jobs of the machine in flight, each with its purpose; `None` if only the end of the run waits for it.
    moving: BTreeMap<SpaceJobId, Option<W>>,
    cores: Vec<CoreUse>,
}

impl<W> Drop for RunCrew<'_, '_, '_, W> {
    /// Leaves the machine at rest if the run ended by a panic: jobs in flight end, and cores are returned.
    fn drop(&mut self) {
        for &job in self.moving.keys() {
            self.clock.with(|state| state.machine.give_up(job));
        }
        while !self.moving.is_empty() || self.cores.iter().any(|core| core.works) {
            match self.clock.next_notification() {
                Some(Notification::Done(done)) => drop(self.moving.remove(&done.id)),
                Some(Notification::CoreFree(core)) => self.cores[core as usize].works = false,
                Some(Notification::Arrived(..)) => {}
                None => return,
            }
        }
        for core in 0..self.cores.len() {
            if self.cores[core].is_occupied {
                self.occupy(core, false);
            }
        }
    }
}

impl<'r, 's, 'p, W: Copy> RunCrew<'r, 's, 'p, W> {
    /// Makes the crew of a run on `cores` cores, and submits the run's own command, with the flash operations that it
    /// has caused `before`.
    pub(super) fn new(
        clock: &'r Clock,
        cores: usize,
        agenda: &'r mut Agenda<'s, 'p>,
        sink: &'r mut dyn OutputSink,
        before: FlashTrace,
    ) -> Self {
        let cores = vec![CoreUse::default(); cores];
        let mut crew = Self { clock, agenda, sink, moving: BTreeMap::new(), cores };
        crew.submit(SpaceJobKind::Other, before, None);
        crew
    }

    /// Submits a job of the machine, with its purpose.
    pub(super) fn submit(&mut self, kind: SpaceJobKind, trace: FlashTrace, why: Option<W>) -> SpaceJobId {
        let id = self.clock.with(|state| {
            let at = state.host.max(state.machine.now());
            state.machine.submit_job(at, kind, 0, trace)
        });
        let before = self.moving.insert(id, why);
        assert!(before.is_none(), "two jobs of the machine have one number");
        id
    }

    /// Submits a job of the machine that moves bytes of no block, over the link.
    pub(super) fn submit_bytes(&mut self, kind: SpaceJobKind, bytes: u64, why: Option<W>) -> SpaceJobId {
        let blocks = vec![BlockOps { ops_end: 0, runs: 1, bytes }];
        self.submit(kind, FlashTrace { blocks, ..FlashTrace::default() }, why)
    }

    /// Starts nothing more of a job of the machine that is in flight.
    pub(super) fn give_up(&self, job: SpaceJobId) {
        if self.moving.contains_key(&job) {
            self.clock.with(|state| state.machine.give_up(job));
        }
    }

    /// Whether no job of the machine is in flight.
    pub(super) fn has_arrived(&self) -> bool {
        self.moving.is_empty()
    }

    /// Lets time pass to the next event; `None` if the machine stands still.
    pub(super) fn next_event(&mut self) -> Option<CrewEvent<W>> {
        let (id, block, why) = match self.clock.next_notification()? {
            Notification::CoreFree(core) => {
                let works = std::mem::replace(&mut self.cores[core as usize].works, false);
                assert!(works, "core {core} ends work that it has not begun");
                return Some(CrewEvent::CoreFree(core as usize));
            }
            Notification::Arrived(id, block) => (id, Some(block), self.moving.get(&id).copied()),
            Notification::Done(done) => (done.id, None, self.moving.remove(&done.id)),
        };
        Some(why.flatten().map_or(CrewEvent::Other, |why| CrewEvent::Arrived(id, block, why)))
    }

    /// Ends the run, because nothing would ever happen again.
    pub(super) fn stands_still(&mut self) {
        self.agenda.abort(RunError::Worker("the modelled device stands still".to_owned()));
    }

    /// Counts a job that gets a core.
    pub(super) fn assigned(&self, job: &Job<'s, 'p>) {
        self.clock.with(|state| state.programs.tasks += u64::from(matches!(job.kind(), JobKind::Task { .. })));
    }

    /// Returns a job to the agenda, with its outcome.
    pub(super) fn ended(&mut self, job: Job<'s, 'p>, outcome: Result<(), RunError>) {
        match outcome {
            Ok(()) => self.agenda.done(job),
            Err(error) => self.agenda.fail(job, error),
        }
    }

    /// Makes a core work for `time`, in which it executes `instructions` instructions.
    pub(super) fn work(&mut self, core: usize, instructions: u64, time: Ps) {
        self.begins_work(core);
        self.clock.with(|state| {
            state.programs.instructions += instructions;
            state.machine.work(core as u32, time);
        });
    }

    /// Makes a core wait until a time.
    pub(super) fn hold(&mut self, core: usize, until: Ps) {
        self.begins_work(core);
        self.clock.with(|state| state.machine.hold(core as u32, until));
    }

    fn begins_work(&mut self, core: usize) {
        let worked = std::mem::replace(&mut self.cores[core].works, true);
        assert!(!worked, "core {core} begins work while it works");
    }

    /// Whether a core works, up to a known time.
    pub(super) fn works(&self, core: usize) -> bool {
        self.cores[core].works
    }

    /// Reads a job's inputs from the engine; returns where they lie, the flash operations that bring them, and the
    /// number of the caller's bytes among them.
    pub(super) fn fetch(&self, job: &mut Job<'s, 'p>) -> Result<(Vec<InputLocation>, FlashTrace, u64), RunError> {
        let read = job.fetch();
        let trace = self.clock.recorder.take();
        let external = read?;
        let inputs = job.inputs();
        let of_host = |input: &InputLocation| if let InputLocation::Host(bytes) = input { *bytes } else { 0 };
        let host: u64 = inputs.iter().map(of_host).sum();
        assert!(host <= external, "{host} of {external} bytes are the caller's");
        self.clock.with(|state| {
            state.programs.stored_bytes += external - host;
            state.programs.host_bytes += host;
        });
        Ok((inputs, trace, host))
    }

    /// Delivers an output of a job over the link, or into the flash.
    pub(super) fn deliver(&mut self, job: &mut Job<'s, 'p>) -> Result<Delivery, RunError> {
        let delivered = job.deliver(self.sink);
        let trace = self.clock.recorder.take();
        let delivery = delivered?;
        let Delivery { is_stored, bytes, .. } = delivery;
        if delivery.sink.is_some() && !is_stored && bytes > 0 {
            self.clock.with(|state| state.programs.result_bytes += bytes);
            self.submit_bytes(SpaceJobKind::Read, bytes, None);
        }
        if is_stored {
            self.clock.with(|state| state.programs.written_bytes += bytes);
        }
        // Small outputs are buffered, and written with later ones or at the end of the command.
        if trace != FlashTrace::default() {
            self.submit(SpaceJobKind::Output, trace, None);
        }
        Ok(delivery)
    }
}

impl<W> RunCrew<'_, '_, '_, W> {
    /// Gives a core to the run, or returns it.
    pub(super) fn occupy(&mut self, core: usize, is_occupied: bool) {
        self.cores[core].is_occupied = is_occupied;
        self.clock.with(|state| state.machine.occupy(core as u32, is_occupied));
    }
}
