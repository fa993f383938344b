//! A runtime: programs beside the data of one device, which are loaded, run over boxes of spaces, and unloaded.
//!
//! The calls correspond to NVMe's Computational Programs command set: load, execute on ranges of memory, unload. An
//! execution may name several programs, where an output of one is an input of another; this corresponds to one execute
//! command for each, joined by private ranges of memory. A program sees the elements of a box as a sequence, with the
//! last dimension fastest or tile by tile (`tiles`), whatever the building blocks; elements are fetched task by task
//! into a core's windows, so that an array is never in memory as a whole. Each task's fetch is a read of its own: tasks
//! that are fetched after a concurrent write see what was written.
//!
//! The outputs of tasks are concatenated in the order of tasks: in memory, or in a box of a space (`outputs`). The
//! runtime does not know what a program computes, nor what executes it.

use std::sync::Arc;

use nandarray::panics::caught;
use nandarray::{Compound, Device};
use nandarray_cores::{ALL_BYTES, CoreTimer, Form, Metadata, Program, RunError, Tasks, check};
use parking_lot::RwLock;

use crate::agenda::StageDone;
use crate::cut::{NextCut, Supply};
use crate::error::{Error, Result, StageError, of_stage};
use crate::executor::{Executor, Threads};
use crate::inputs::InputReader;
use crate::io::InputSource;
use crate::outputs::{OutputWriter, spaces_of};
use crate::pipeline::pipeline_share;
use crate::programs::{LoadedProgram, ProgramId, ProgramTable};
use crate::request::{Executed, ExecutedStage, Execution, Input, OutputValue, StageRequest};
use crate::share::{Share, TaskCuts, check_share, external_cutter, is_divisible};
use crate::stage::{Origin, Stage, tasks_a_run};
use crate::typed::typed;

/// A device, and the programs that are loaded beside it.
#[derive(Debug)]
pub struct Runtime {
    device: Arc<Device>,
    programs: RwLock<ProgramTable>,
}

impl Runtime {
    /// Returns the name of a loaded program; `None` if there is no such program.
    pub fn program_name(&self, program: ProgramId) -> Option<String> {
        let loaded = self.programs.read().get(program).ok()?;
        Some(loaded.program.metadata().name.clone())
    }

    /// Makes a runtime beside a device, without programs.
    pub fn new(device: Arc<Device>) -> Self {
        Self { device, programs: RwLock::default() }
    }

    /// Returns the device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns an executor with `threads` host threads; with one thread if the device has a probe, since a probe
    /// observes one command at a time.
    pub fn threads(&self, threads: usize) -> Threads {
        Threads(if self.device.is_watched() { 1 } else { threads })
    }

    /// Loads a program: a RISC-V ELF with its metadata (docs/reference/program-abi.md), or with `metadata` in place of
    /// the ELF's. Returns the handle of the program.
    ///
    /// # Errors
    /// [`Error::Program`]: the program cannot be loaded; [`Error::Engine`]: the device takes no commands.
    pub fn load(&self, elf: &[u8], metadata: Option<&[u8]>) -> Result<ProgramId> {
        self.device.usable()?;
        let done = caught(|| self.programs.write().load(elf, metadata));
        done.unwrap_or_else(|what| Err(Error::Engine(nandarray::Error::Internal(what))))
    }

    /// Loads a program that the caller has parsed from these bytes, with the ELF's metadata.
    ///
    /// # Errors
    /// [`Error::Engine`]: the device takes no commands.
    pub fn load_program(&self, elf: &[u8], program: &Program) -> Result<ProgramId> {
        self.device.usable()?;
        let done = caught(|| self.programs.write().load_by(elf, None, || Ok(program.clone())));
        done.unwrap_or_else(|what| Err(Error::Engine(nandarray::Error::Internal(what))))
    }

    /// Unloads a program. Executions that are running the program go on.
    ///
    /// # Errors
    /// [`Error::Engine`]: there is no such program, or the device takes no commands.
    pub fn unload(&self, program: ProgramId) -> Result<()> {
        self.device.usable()?;
        self.programs.write().unload(program)
    }

    /// Returns the memory of one core that runs a loaded program, in bytes: the program's memory and its scratchpad.
    ///
    /// # Errors
    /// [`Error::Engine`]: there is no such program.
    pub fn core_bytes(&self, program: ProgramId) -> Result<u64> {
        let loaded = self.programs.read().get(program)?;
        let ports = loaded.program.metadata();
        Ok(ports.memory_bytes.saturating_add(ports.scratchpad()))
    }

    /// Runs programs beside the data; returns their outputs, states and costs.
    ///
    /// # Errors
    /// [`Error::Execution`] if a program failed, or the worker that ran it; [`Error::Engine`] for invalid requests and
    /// for errors of the store. Spaces are unchanged then, and the store stays usable unless the error is the engine's
    /// own ([`nandarray::Error::Internal`]).
    pub fn execute(&self, execution: &Execution<'_>) -> Result<Executed> {
        self.execute_share(execution, Share::All)
    }

    /// Runs a share of a program beside the data; returns as [`Self::execute`] does.
    ///
    /// # Errors
    /// As for [`Self::execute`]; [`Error::Engine`] as well if the execution has several programs or its tasks cannot be
    /// divided, and if the share is none of it.
    pub fn execute_share(&self, execution: &Execution<'_>, share: Share<'_>) -> Result<Executed> {
        let cuts = match (share, execution.stages) {
            (Share::All, _) => None,
            (_, [stage]) => match self.task_cuts(stage)? {
                None => return Err(Error::invalid("a program whose tasks cannot be divided must run whole")),
                cuts => cuts,
            },
            (_, stages) => {
                let several = stages.len();
                return Err(Error::invalid(format!("a share is of one program: there must not be {several}")));
            }
        };
        self.device.compound(execution.writes(), |compound| {
            // A panic of the runtime is no fault of the engine, whose calls catch their own panics.
            let fault = |what| {
                let failed = StageError { stage: 0, program: "the runtime".to_owned(), error: RunError::Worker(what) };
                Err(Error::Execution(Box::new(failed)))
            };
            caught(|| self.run(compound, execution, (share, cuts.as_ref()))).unwrap_or_else(fault)
        })?
    }

    fn ready(&self, program: ProgramId) -> Result<Arc<LoadedProgram>> {
        self.programs.read().get(program)
    }

    /// Returns the places where the inputs of a program would be cut into tasks; `None` if its tasks cannot be divided
    /// among several executions.
    ///
    /// # Errors
    /// [`Error::Engine`]: the request is invalid; [`Error::Execution`]: the inputs do not fit the program.
    pub fn task_cuts(&self, stage: &StageRequest<'_>) -> Result<Option<TaskCuts>> {
        self.device.compound(false, |compound| {
            let ready = self.ready(stage.program)?;
            let metadata = ready.program.metadata();
            if !is_divisible(metadata) {
                return Ok(None);
            }
            check_task_bytes(metadata, stage.task_bytes)?;
            let mut reader = InputReader::new(compound, None);
            let inputs: Vec<usize> = (stage.inputs.iter().enumerate())
                .map(|(number, input)| match input {
                    Input::Output { .. } => Err(Error::invalid("a share is of one program: its inputs must be data")),
                    Input::Bytes(_) | Input::Box { .. } => Ok(reader.add(input, metadata.inputs.get(number))?),
                })
                .collect::<Result<_>>()?;
            if inputs.len() != metadata.inputs.len() {
                let (given, wanted) = (inputs.len(), metadata.inputs.len());
                return Err(Error::invalid(format!("{given} inputs for a program that takes {wanted}")));
            }
            let supply = |&input: &usize| Supply { bytes: reader.bytes(input), closed: true };
            let supplies: Vec<Supply> = inputs.iter().map(supply).collect();
            let mut cutter = external_cutter(metadata, &reader, inputs[0], stage.task_bytes);
            let mut edges = vec![0];
            let name = || metadata.name.clone();
            let misfit = |error| Error::Execution(Box::new(StageError { stage: 0, program: name(), error }));
            while let NextCut::Task(cut, _) = cutter.next(metadata, &supplies, None).map_err(misfit)? {
                cutter.take(cut);
                edges.push(cut.first + cut.records);
            }
            Ok(Some(TaskCuts { edges, tasks_a_run: tasks_a_run(metadata) }))
        })?
    }

    fn run(
        &self,
        compound: &Compound<'_>,
        execution: &Execution<'_>,
        (share, cuts): (Share<'_>, Option<&TaskCuts>),
    ) -> Result<Executed> {
        let Execution { stages, executor, hold_bytes, collect_bytes, locks_at_end, progress } = *execution;
        check_forms(stages, executor)?;
        let programs: Vec<Arc<LoadedProgram>> =
            stages.iter().map(|stage| self.ready(stage.program)).collect::<Result<_>>()?;
        let mut reader = InputReader::new(compound, progress.collected.as_deref());
        let (profiler, timer) = (progress.profiler.as_ref(), progress.timer.as_ref());
        if let Some(timer) = timer {
            timed(stages, executor, &programs, timer)?;
        }
        programs.iter().try_for_each(|ready| executor.accepts(&ready.program))?;
        let makers = programs.iter().zip(stages).map(|(ready, stage)| {
            let usual = ready.cores(stage.form, profiler, timer);
            move |program| executor.core(program).unwrap_or_else(|| usual(program))
        });
        let makers: Vec<_> = makers.collect();
        let metadata: Vec<&Metadata> = programs.iter().map(|ready| ready.program.metadata()).collect();
        check_states(&metadata, collect_bytes)?;
        if let Some(cuts) = cuts {
            check_share(metadata[0], share, cuts)?;
        }
        let scalars: Vec<Vec<u64>> = (stages.iter().zip(&metadata))
            .map(|(stage, own)| typed(compound, own, stage, &metadata))
            .collect::<Result<_>>()?;
        let (mut steps, mut wanted) = (Vec::new(), Vec::new());
        for (((stage, ready), core), scalars) in stages.iter().zip(&programs).zip(&makers).zip(&scalars) {
            let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
            for (number, input) in stage.inputs.iter().enumerate() {
                let port = ready.program.metadata().inputs.get(number);
                inputs.push(match *input {
                    Input::Output { .. } if port.is_some_and(|port| port.packed.is_some()) => {
                        let text = format!("input {number} is read packed: it must be an array, not another output");
                        return Err(Error::invalid(text));
                    }
                    Input::Output { stage, output } => Origin::Stage { stage, output },
                    Input::Bytes(_) | Input::Box { .. } => Origin::External(reader.add(input, port)?),
                });
            }
            for output in stage.outputs {
                outputs.push(output.as_ref().map(|output| {
                    wanted.push(output);
                    wanted.len() - 1
                }));
            }
            check_task_bytes(ready.program.metadata(), stage.task_bytes)?;
            check_tiles(ready.program.metadata(), stage.inputs)?;
            let (task_bytes, instructions) = (stage.task_bytes, stage.instructions);
            let (program, cores) = (&ready.program, stage.cores);
            executor.accepts_cores(&program.metadata().name, cores)?;
            steps.push(Stage { program, core, scalars, inputs, outputs, task_bytes, instructions, cores });
        }
        let spaces = spaces_of(compound, &wanted)?;
        let count = |form: fn(&Form) -> bool| stages.iter().filter(|stage| form(&stage.form)).count() as u64;
        compound.runs_programs(
            count(|form| matches!(form, Form::Interpreted)),
            count(|form| matches!(form, Form::Translated)),
        );
        // Under a clock a run that writes is alone.
        let at_end = locks_at_end && !self.device.is_watched();
        let mut writer = OutputWriter::begin(compound, &spaces, &wanted, (collect_bytes, at_end), Some(progress))?;
        let edges = cuts.map_or(&[][..], |cuts| &cuts.edges);
        let done = pipeline_share(&steps, &reader, &mut writer, executor, hold_bytes, progress, (share, edges));
        let done = done.map_err(|e| of_stage(e, stages.len()))?;
        let mut given: Vec<Option<OutputValue>> =
            writer.finish(compound, &spaces, &wanted)?.into_iter().map(Some).collect();
        let stage = |(step, done): (&Stage<'_, '_>, StageDone)| ExecutedStage {
            outputs: step.outputs.iter().map(|number| number.and_then(|n| given[n].take())).collect(),
            state: done.state,
            states: done.states,
            account: done.account,
        };
        Ok(Executed { stages: steps.iter().zip(done.stages).map(stage).collect(), account: done.account })
    }
}

/// Checks that a program that takes its inputs whole is given them so.
fn check_task_bytes(metadata: &Metadata, task_bytes: u64) -> Result<()> {
    if metadata.tasks == Tasks::Whole && task_bytes != ALL_BYTES {
        let name = &metadata.name;
        return Err(Error::invalid(format!(
            "{name} takes its inputs whole: the size of a task must be left out, not {task_bytes} bytes"
        )));
    }
    Ok(())
}

/// Checks that there are programs, in forms that the executor has.
fn check_forms(stages: &[StageRequest<'_>], executor: &dyn Executor) -> Result<()> {
    if stages.is_empty() {
        return Err(Error::invalid("an execution without a program"));
    }
    if executor.counts_instructions() && stages.iter().any(|stage| matches!(stage.form, Form::Native(_))) {
        return Err(Error::invalid(
            "form=\"native\" is for the wall clock: on a modelled device a program runs interpreted or \
             translated, so that its instructions are counted",
        ));
    }
    Ok(())
}

/// Checks that the states of the programs fit what is given back of a run.
fn check_states(metadata: &[&Metadata], collect_bytes: u64) -> Result<()> {
    let states = metadata.iter().map(|own| own.state_bytes).fold(0u64, u64::saturating_add);
    if states > collect_bytes {
        return Err(Error::invalid(format!(
            "the states of the programs have {states} bytes; at most {collect_bytes} are given back"
        )));
    }
    Ok(())
}

/// Checks that inputs with lengths of their own, of which the program says what it takes, are not cut into tiles.
fn check_tiles(metadata: &Metadata, inputs: &[Input<'_>]) -> Result<()> {
    let is_tiled = |input: &Input<'_>| matches!(input, Input::Box { tiles: Some(_), .. });
    if metadata.is_paced() && inputs.iter().any(is_tiled) {
        let name = &metadata.name;
        return Err(Error::invalid(format!("{name} says itself what it takes of its inputs: they must have no tiles")));
    }
    Ok(())
}

/// Checks that an execution can be timed: it has one thread and no native form, and the timer's core can run its
/// programs.
fn timed(
    stages: &[StageRequest<'_>],
    executor: &dyn Executor,
    programs: &[Arc<LoadedProgram>],
    timer: &CoreTimer,
) -> Result<()> {
    if executor.workers() > 1 || executor.counts_instructions() {
        return Err(Error::invalid("a described core is timed alone: one thread, and no modelled device"));
    }
    if stages.iter().any(|stage| matches!(stage.form, Form::Native(_))) {
        return Err(Error::invalid("form=\"native\" has no instructions that a described core could take time for"));
    }
    let refused = |e| Error::Program(Box::new(e));
    programs.iter().try_for_each(|ready| check(&ready.program, timer.description())).map_err(refused)
}
