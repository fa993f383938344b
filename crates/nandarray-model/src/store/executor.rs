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

use std::sync::Arc;

use nandarray_cores::{Advance, Call, Core, LoadError, Program, RunError};
use nandarray_runtime::{Agenda, Executor, InputLocation, Job, JobStep, Next, OutputSink};

use super::Clock;
use super::crew::{CrewEvent, RunCrew};
use super::timed::TimedRun;
use super::timed_cores::TimedCores;
use crate::describe::Compute;
use crate::flash_trace::{BlockOps, FlashTrace};
use crate::machine::SpaceJobKind;
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
        let compute = clock.machine(|machine| machine.description().compute.clone());
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
        let cores = self.compute.cores as usize;
        if let Some(timed) = &self.timed {
            TimedRun::new(timed, RunCrew::new(&self.clock, cores, agenda, sink, before)).all();
        } else {
            let crew = RunCrew::new(&self.clock, cores, agenda, sink, before);
            ModelRun { crew, clock_hz: self.compute.clock_hz, cores: (0..cores).map(|_| None).collect() }.all();
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

/// The purpose of a job of the machine that moves data to a core.
#[derive(Clone, Copy, Debug)]
enum MovePurpose {
    /// The job brings blocks of the store for the program's job on this core.
    Stored(usize),
    /// The job brings the caller's bytes for the program's job on this core.
    Host(usize),
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
    crew: RunCrew<'r, 's, 'p, MovePurpose>,
    clock_hz: u64,
    cores: Vec<Option<CoreJob<'s, 'p>>>,
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
    /// Executes all jobs.
    fn all(&mut self) {
        loop {
            let over = self.fill();
            if over && self.crew.has_arrived() && self.cores.iter().all(Option::is_none) {
                return;
            }
            match self.crew.next_event() {
                Some(CrewEvent::CoreFree(core)) => self.go_on(core),
                Some(CrewEvent::Arrived(_, Some(block), MovePurpose::Stored(core))) => {
                    self.on(core).arrived[block] = true;
                    self.wake(core);
                }
                Some(CrewEvent::Arrived(_, None, why)) => self.has_all(why),
                Some(CrewEvent::Arrived(_, Some(_), MovePurpose::Host(_)) | CrewEvent::Other) => {}
                None => return self.crew.stands_still(),
            }
        }
    }

    /// Continues the job of a core for which all data of a job of the machine has arrived.
    fn has_all(&mut self, why: MovePurpose) {
        let (MovePurpose::Stored(core) | MovePurpose::Host(core)) = why;
        let on = self.on(core);
        on.pending -= 1;
        match why {
            MovePurpose::Stored(_) => on.arrived.fill(true),
            MovePurpose::Host(_) => on.inputs.iter_mut().for_each(|input| input.on_link = false),
        }
        self.wake(core);
    }

    fn on(&mut self, core: usize) -> &mut CoreJob<'s, 'p> {
        self.cores[core].as_mut().expect("what arrives is for a job on its core")
    }

    /// Assigns jobs to free cores; returns whether there are no more jobs.
    fn fill(&mut self) -> bool {
        while let Some(core) = self.cores.iter().position(Option::is_none) {
            match self.crew.agenda.pick() {
                Next::Over => return true,
                Next::Wait => return false,
                Next::Job(job) => {
                    self.crew.assigned(&job);
                    self.crew.occupy(core, true);
                    let (inputs, blocks, arrived) = (vec![], vec![], vec![]);
                    self.cores[core] =
                        Some(CoreJob { job, call: None, over: None, inputs, blocks, arrived, pending: 0, ended: None });
                    self.go_on(core);
                }
            }
        }
        false
    }

    fn wake(&mut self, core: usize) {
        if !self.crew.works(core) {
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
                self.crew.occupy(core, false);
                self.crew.ended(on.job, done);
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
                    JobStep::Deliver => self.crew.deliver(&mut on.job).map(|_| ()),
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
                                self.work(core, executed);
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
    fn work(&mut self, core: usize, instructions: u64) {
        let hz = u128::from(self.clock_hz);
        let time = Ps((u128::from(instructions) * 1_000_000_000_000).div_ceil(hz) as u64);
        assert!(time > Ps::ZERO, "core {core} works on {instructions} instructions");
        self.crew.work(core, instructions, time);
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
            self.work(core, executed);
            return Ok(true);
        }
        self.call(core, on)
    }

    /// Reads a job's inputs from the engine, and submits the machine's jobs that bring them to the device's memory.
    fn fetch(&mut self, core: usize, on: &mut CoreJob<'s, 'p>) -> Result<(), RunError> {
        let (inputs, trace, host) = self.crew.fetch(&mut on.job)?;
        on.blocks.clone_from(&trace.blocks);
        on.arrived = vec![false; trace.blocks.len()];
        on.inputs = arriving(&inputs, &trace.blocks);
        if trace != FlashTrace::default() {
            on.pending += 1;
            self.crew.submit(SpaceJobKind::Input, trace, Some(MovePurpose::Stored(core)));
        }
        if host > 0 {
            on.pending += 1;
            self.crew.submit_bytes(SpaceJobKind::Write, host, Some(MovePurpose::Host(core)));
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
