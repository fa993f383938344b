//! Programs on the cores of a modelled device: an executor of the runtime, under the modelled clock.
//!
//! ```text
//! pick a job -> fetch: pages from the flash to the device's memory   (blocks arrive one by one)
//!            -> call: the core executes until it needs a byte that has not arrived; the block that brings it wakes it
//!            -> deliver: results over the link, or into the flash
//! ```
//!
//! The agenda decides which job is next, the machine decides when it is done.
//! Bytes are fetched from the engine when a task begins; the program gets them as their blocks arrive. A block that is
//! one run of the stream lets the program go on up to its end; where the elements of blocks lie mixed in the stream (a
//! box of several dimensions) all of an input must have arrived. A program cannot observe when its bytes arrived, so
//! its outputs are the same on any executor.
//!
//! This file has cores that take one instruction a cycle; those of a description with a core are in `timed`.

use std::collections::BTreeMap;
use std::sync::Arc;

use nandarray_cores::{Advance, Call, Core, LoadError, Program, RunError};
use nandarray_runtime::{Agenda, Delivery, Executor, InputLocation, Job, JobKind, JobStep, Next, OutputSink};

use super::Clock;
use super::timed::TimedRun;
use super::timed_cores::TimedCores;
use crate::describe::Compute;
use crate::flash_trace::{BlockOps, FlashTrace};
use crate::machine::{Notification, SpaceJobId, SpaceJobKind};
use nandarray_sim::Ps;

/// An executor on the cores of a modelled device.
#[derive(Debug)]
pub struct Modelled {
    clock: Arc<Clock>,
    compute: Compute,
    timed: Option<TimedCores>,
}

impl Modelled {
    /// Makes an executor on the cores of this clock's device.
    ///
    /// # Errors
    /// [`nandarray::Error::Invalid`] if the device's description has no cores for programs.
    pub fn new(clock: &Arc<Clock>) -> nandarray::Result<Self> {
        let compute = clock.machine(|machine| machine.description().compute);
        let compute = compute.ok_or_else(|| {
            let name = clock.machine(|machine| machine.description().name.clone());
            nandarray::Error::invalid(format!(
                "device {name:?} has no cores for programs: give compute.cores and compute.clock, for example \
                 compute.cores = 8, compute.clock = \"1 GHz\""
            ))
        })?;
        let timed = clock.machine(|machine| TimedCores::of(machine.description()));
        Ok(Self { clock: clock.clone(), compute, timed })
    }
}

impl Executor for Modelled {
    fn workers(&self) -> usize {
        // While a timed core runs one job, the inputs of a second job are on their way to it.
        self.compute.cores as usize * if self.timed.is_some() { 2 } else { 1 }
    }

    fn accepts(&self, program: &Program) -> nandarray::Result<()> {
        self.timed.as_ref().map_or(Ok(()), |timed| timed.accepts(program))
    }

    fn accepts_cores(&self, program: &str, cores: &[u32]) -> nandarray::Result<()> {
        let number = self.compute.cores;
        if cores.is_empty() || self.timed.is_some() && cores.iter().all(|&core| core < number) {
            return Ok(());
        }
        let (key, allowed) = if self.timed.is_some() {
            (format!("compute.cores = {number}"), format!("there are 0 to {}", number - 1))
        } else {
            ("compute.core = none".to_owned(), "cores of one instruction a cycle are not chosen".to_owned())
        };
        Err(nandarray::Error::invalid(format!("{key}: program {program:?} is to run on cores {cores:?}; {allowed}")))
    }

    fn core<'p>(&self, program: &'p Program) -> Option<Result<Core<'p>, LoadError>> {
        self.timed.as_ref().map(|timed| timed.core(program))
    }

    fn counts_instructions(&self) -> bool {
        true
    }

    fn run(&self, agenda: &mut Agenda<'_, '_>, sink: &mut dyn OutputSink) {
        // Flash operations recorded until now belong to the command itself.
        let before = self.clock.recorder.take();
        let running = RunningProgram::on(&self.clock);
        if let Some(timed) = &self.timed {
            TimedRun::new(&self.clock, timed, agenda, sink).all(before);
        } else {
            let cores = (0..self.compute.cores).map(|_| None).collect();
            let occupied = vec![(false, false); self.workers()];
            let mut run = ModelRun { executor: self, agenda, sink, cores, moving: BTreeMap::new(), occupied };
            run.command(before);
            run.all();
        }
        // The host continues when the run's last output has arrived.
        drop(running);
        self.clock.with(|state| state.host = state.host.max(state.machine.now()));
    }
}

/// Guard of a running program: commands of the host that end while it exists are counted as having ended beside a
/// program.
struct RunningProgram<'c>(&'c Clock);

impl<'c> RunningProgram<'c> {
    fn on(clock: &'c Clock) -> Self {
        clock.with(|state| {
            assert!(!state.program_runs, "one program runs at a time");
            state.program_runs = true;
        });
        Self(clock)
    }
}

impl Drop for RunningProgram<'_> {
    fn drop(&mut self) {
        self.0.with(|state| state.program_runs = false);
    }
}

/// The purpose of a job of the machine that moves data.
#[derive(Clone, Copy, Debug)]
enum MovePurpose {
    /// The job brings blocks of the store for the program's job on this core.
    Stored(usize),
    /// The job brings the caller's bytes for the program's job on this core.
    Host(usize),
    /// The job moves an output, or is the command itself: only the end of the run waits for it.
    Out,
}

/// An input of a task, some of whose bytes may not have arrived.
#[derive(Clone, Debug)]
struct ArrivingInput {
    /// Size of the input in bytes.
    bytes: u64,
    /// Number of bytes that were passed to the program.
    pushed: u64,
    /// The input's range among the blocks of its job: index of the first block, and index after the last.
    blocks: (usize, usize),
    /// Whether the caller's bytes are still on the link.
    on_link: bool,
}

/// A job of the run that occupies a core.
struct CoreJob<'s, 'p> {
    job: Job<'s, 'p>,
    call: Option<Call<'p>>,
    /// The outcome of the call, once the core's work for the call has ended; `None` before.
    over: Option<Result<Vec<u64>, RunError>>,
    works: bool,
    inputs: Vec<ArrivingInput>,
    blocks: Vec<BlockOps>,
    arrived: Vec<bool>,
    /// Number of the machine's jobs in flight that bring data for this job.
    pending: u32,
    /// The outcome of the job, kept while data for the job is still in flight; `None` while the job goes on.
    ended: Option<Result<(), RunError>>,
}

/// The state of a job after all steps that are possible now.
enum JobProgress {
    /// The job waits for data, or its core works.
    Waits,
    /// The job has ended with this result.
    Over(Result<(), RunError>),
}

struct ModelRun<'r, 's, 'p> {
    executor: &'r Modelled,
    agenda: &'r mut Agenda<'s, 'p>,
    sink: &'r mut dyn OutputSink,
    cores: Vec<Option<CoreJob<'s, 'p>>>,
    moving: BTreeMap<SpaceJobId, MovePurpose>,
    /// For each core, whether it has a program, and whether it works.
    occupied: Vec<(bool, bool)>,
}

impl Drop for ModelRun<'_, '_, '_> {
    /// Leaves the machine at rest if the run ended by a panic: jobs in flight end, and cores are returned.
    fn drop(&mut self) {
        while !self.moving.is_empty() || self.occupied.iter().any(|&(_, works)| works) {
            match self.clock().next_notification() {
                Some(Notification::Done(done)) => drop(self.moving.remove(&done.id)),
                Some(Notification::CoreFree(core)) => self.occupied[core as usize].1 = false,
                Some(Notification::Arrived(..)) => {}
                None => return,
            }
        }
        for core in 0..self.occupied.len() {
            if self.occupied[core].0 {
                self.clock().with(|state| state.machine.occupy(core as u32, false));
            }
        }
    }
}

impl ArrivingInput {
    /// Returns the number of bytes, from the beginning of the input, that the program may read now.
    fn available(&self, blocks: &[BlockOps], arrived: &[bool]) -> u64 {
        if self.on_link {
            return 0;
        }
        let range = self.blocks.0..self.blocks.1;
        let in_order = blocks[range.clone()].iter().all(|block| block.runs <= 1);
        if !in_order {
            return if arrived[range].iter().all(|&there| there) { self.bytes } else { 0 };
        }
        let there = blocks[range.clone()].iter().zip(&arrived[range.clone()]).take_while(|(_, there)| **there);
        let (count, bytes) = there.fold((0, 0), |(count, bytes), (block, _)| (count + 1, bytes + block.bytes));
        // Bytes of no block (fill, which is not stored) arrive with the last block.
        if count == range.len() { self.bytes } else { bytes.min(self.bytes) }
    }
}

impl<'s, 'p> ModelRun<'_, 's, 'p> {
    fn clock(&self) -> &Clock {
        &self.executor.clock
    }

    /// Submits the command of the run itself, which crosses the link.
    fn command(&mut self, before: FlashTrace) {
        self.submit(SpaceJobKind::Other, before, MovePurpose::Out);
    }

    fn submit(&mut self, kind: SpaceJobKind, trace: FlashTrace, why: MovePurpose) {
        let id = self.clock().with(|state| {
            let at = state.host.max(state.machine.now());
            state.machine.submit_job(at, kind, 0, trace)
        });
        self.moving.insert(id, why);
    }

    /// Executes all jobs.
    fn all(&mut self) {
        loop {
            let over = self.fill();
            if over && self.moving.is_empty() && self.cores.iter().all(Option::is_none) {
                return;
            }
            match self.clock().next_notification() {
                Some(Notification::CoreFree(core)) => {
                    let core = core as usize;
                    self.occupied[core].1 = false;
                    self.cores[core].as_mut().expect("a core that worked has a job").works = false;
                    self.go_on(core);
                }
                Some(Notification::Arrived(id, block)) => {
                    if let Some(&MovePurpose::Stored(core)) = self.moving.get(&id) {
                        self.on(core).arrived[block] = true;
                        self.wake(core);
                    }
                }
                Some(Notification::Done(done)) => {
                    let why = self.moving.remove(&done.id).expect("a job of this run");
                    match why {
                        MovePurpose::Out => {}
                        MovePurpose::Stored(core) => {
                            let on = self.on(core);
                            on.pending -= 1;
                            on.arrived.fill(true);
                            self.wake(core);
                        }
                        MovePurpose::Host(core) => {
                            let on = self.on(core);
                            on.pending -= 1;
                            on.inputs.iter_mut().for_each(|input| input.on_link = false);
                            self.wake(core);
                        }
                    }
                }
                None => {
                    self.agenda.abort(RunError::Worker("the modelled device stands still".to_owned()));
                    return;
                }
            }
        }
    }

    fn on(&mut self, core: usize) -> &mut CoreJob<'s, 'p> {
        self.cores[core].as_mut().expect("what arrives is for a job on its core")
    }

    /// Assigns jobs to free cores; returns whether there are no more jobs.
    fn fill(&mut self) -> bool {
        while let Some(core) = self.cores.iter().position(Option::is_none) {
            match self.agenda.pick() {
                Next::Over => return true,
                Next::Wait => return false,
                Next::Job(job) => {
                    self.occupied[core].0 = true;
                    self.clock().with(|state| {
                        state.programs.tasks += u64::from(matches!(job.kind(), JobKind::Task { .. }));
                        state.machine.occupy(core as u32, true);
                    });
                    let (call, over, works) = (None, None, false);
                    let (inputs, blocks, arrived) = (vec![], vec![], vec![]);
                    self.cores[core] =
                        Some(CoreJob { job, call, over, works, inputs, blocks, arrived, pending: 0, ended: None });
                    self.go_on(core);
                }
            }
        }
        false
    }

    fn wake(&mut self, core: usize) {
        if !self.on(core).works {
            self.go_on(core);
        }
    }

    /// Executes the steps of a core's job that are possible now.
    fn go_on(&mut self, core: usize) {
        let mut on = self.cores[core].take().expect("a core with a job");
        match self.steps(core, &mut on) {
            JobProgress::Waits => self.cores[core] = Some(on),
            JobProgress::Over(done) if on.pending > 0 => {
                // The core is kept until all data in flight for it has arrived.
                on.ended = Some(done);
                self.cores[core] = Some(on);
            }
            JobProgress::Over(done) => {
                self.occupied[core].0 = false;
                self.clock().with(|state| state.machine.occupy(core as u32, false));
                match done {
                    Ok(()) => self.agenda.done(on.job),
                    Err(error) => self.agenda.fail(on.job, error),
                }
            }
        }
    }

    fn steps(&mut self, core: usize, on: &mut CoreJob<'s, 'p>) -> JobProgress {
        if let Some(done) = on.ended.take() {
            return JobProgress::Over(done);
        }
        loop {
            let done = if on.call.is_some() {
                match self.call(core, on) {
                    Ok(true) => return JobProgress::Waits,
                    Ok(false) => Ok(()),
                    Err(error) => Err(error),
                }
            } else {
                match on.job.step() {
                    JobStep::Done => return JobProgress::Over(Ok(())),
                    JobStep::Fetch => self.fetch(core, on),
                    JobStep::Deliver => self.deliver(on),
                    JobStep::Call => match on.job.begin_call() {
                        Ok(Some(call)) => {
                            on.call = Some(call);
                            Ok(())
                        }
                        Ok(None) => {
                            let before = on.job.instructions();
                            let done = on.job.call();
                            let executed = on.job.instructions() - before;
                            if done.is_ok() && executed > 0 {
                                self.work(core, on, executed);
                                return JobProgress::Waits;
                            }
                            done
                        }
                        Err(error) => Err(error),
                    },
                }
            };
            if let Err(error) = done {
                return JobProgress::Over(Err(error));
            }
        }
    }

    /// Books the core's work for a number of instructions, at one cycle each.
    fn work(&mut self, core: usize, on: &mut CoreJob<'s, 'p>, instructions: u64) {
        assert!(instructions > 0 && !on.works, "core {core} works on {instructions} instructions");
        on.works = true;
        self.occupied[core].1 = true;
        let hz = u128::from(self.executor.compute.clock_hz);
        let time = Ps((u128::from(instructions) * 1_000_000_000_000).div_ceil(hz) as u64);
        self.clock().with(|state| {
            state.programs.instructions += instructions;
            state.machine.work(core as u32, time);
        });
    }

    /// Continues a core's call with the bytes that have arrived. Returns whether the core then works or waits; false if
    /// the call has ended.
    fn call(&mut self, core: usize, on: &mut CoreJob<'s, 'p>) -> Result<bool, RunError> {
        if let Some(result) = on.over.take() {
            let call = on.call.take().expect("a call that is over was under way");
            return on.job.end_call(call, result).map(|()| false);
        }
        let call = on.call.as_mut().expect("a call that is under way");
        for (number, input) in on.inputs.iter_mut().enumerate() {
            let available = input.available(&on.blocks, &on.arrived);
            if available > input.pushed {
                let bytes = &on.job.input(number)[input.pushed as usize..available as usize];
                input.pushed += call.input_mut(number).push(bytes) as u64;
            }
        }
        let before = call.instructions();
        let advance = call.run(None, on.job.stop());
        let executed = call.instructions() - before;
        match advance {
            Advance::Done(result) => on.over = Some(result),
            Advance::WaitInput { input } if executed == 0 => {
                if on.pending == 0 {
                    return Err(call.starved(input));
                }
                return Ok(true);
            }
            Advance::WaitOutput { output } => {
                return Err(RunError::Worker(format!("output {output} waits for room, and has got all of it")));
            }
            Advance::WaitInput { .. } | Advance::OutOfBudget | Advance::Paused => {}
        }
        if executed > 0 {
            self.work(core, on, executed);
            return Ok(true);
        }
        self.call(core, on)
    }

    /// Reads a job's inputs from the engine, and submits the machine's jobs that bring them to the device's memory.
    fn fetch(&mut self, core: usize, on: &mut CoreJob<'s, 'p>) -> Result<(), RunError> {
        let read = on.job.fetch();
        let trace = self.clock().recorder.take();
        let external = read?;
        let inputs = on.job.inputs();
        let host: u64 =
            inputs.iter().map(|input| if let InputLocation::Host(bytes) = input { *bytes } else { 0 }).sum();
        on.blocks.clone_from(&trace.blocks);
        on.arrived = vec![false; trace.blocks.len()];
        on.inputs = arriving(&inputs, &trace.blocks);
        self.clock().with(|state| {
            state.programs.stored_bytes += external - host;
            state.programs.host_bytes += host;
        });
        if trace != FlashTrace::default() {
            on.pending += 1;
            self.submit(SpaceJobKind::Input, trace, MovePurpose::Stored(core));
        }
        if host > 0 {
            on.pending += 1;
            let blocks = vec![BlockOps { ops_end: 0, runs: 1, bytes: host }];
            self.submit(SpaceJobKind::Write, FlashTrace { blocks, ..FlashTrace::default() }, MovePurpose::Host(core));
        }
        Ok(())
    }

    /// Delivers an output of a job over the link, or into the flash.
    fn deliver(&mut self, on: &mut CoreJob<'s, 'p>) -> Result<(), RunError> {
        let delivered = on.job.deliver(self.sink);
        let trace = self.clock().recorder.take();
        let Delivery { sink, is_stored, bytes, .. } = delivered?;
        if sink.is_some() && !is_stored && bytes > 0 {
            self.clock().with(|state| state.programs.result_bytes += bytes);
            let blocks = vec![BlockOps { ops_end: 0, runs: 1, bytes }];
            self.submit(SpaceJobKind::Read, FlashTrace { blocks, ..FlashTrace::default() }, MovePurpose::Out);
        }
        if is_stored {
            self.clock().with(|state| state.programs.written_bytes += bytes);
        }
        // Small outputs are buffered, and written with later ones or at the end of the command.
        if trace != FlashTrace::default() {
            self.submit(SpaceJobKind::Output, trace, MovePurpose::Out);
        }
        Ok(())
    }
}

/// Returns the inputs of a job, each with the range of building blocks that bring it: blocks are read input by input.
fn arriving(inputs: &[InputLocation], blocks: &[BlockOps]) -> Vec<ArrivingInput> {
    let mut next = 0;
    let all = inputs.iter().map(|input| {
        let first = next;
        let (bytes, on_link) = match *input {
            InputLocation::Here(bytes) | InputLocation::Queued { bytes, .. } => (bytes, false),
            InputLocation::Host(bytes) => (bytes, true),
            InputLocation::Stored(bytes) => {
                let mut left = bytes;
                while next < blocks.len() && blocks[next].bytes <= left && left > 0 {
                    left -= blocks[next].bytes;
                    next += 1;
                }
                (bytes, false)
            }
        };
        ArrivingInput { bytes, pushed: 0, blocks: (first, next), on_link }
    });
    all.collect()
}
