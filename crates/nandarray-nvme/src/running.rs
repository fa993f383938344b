//! The executions of one host: their numbers, their progress as an operator sees it, and their end.
//!
//! An execution may take long, and its host may go away, be reset, or lose its server meanwhile: no process waits for
//! its outputs then. It is stopped between two instructions, and writes nothing. The operator of the server may stop
//! one, too, by its number, which no other execution of the subsystem has.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use nandarray::waits::IsStopped;
use nandarray_runtime::Progress;
use parking_lot::Mutex;

use crate::budget::OutputMemory;
use crate::cpu_time::CpuTime;

/// Maximum number of instructions of all tasks of one execution: about two hours of one thread.
pub(crate) const RUN_INSTRUCTIONS_MAX: u64 = 20_000_000_000_000;

/// The command that an execution belongs to: its queue and its identifier there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunCommand {
    pub(crate) qid: u16,
    pub(crate) cid: u16,
}

/// The limits of one execution.
#[derive(Clone, Debug)]
pub(crate) struct RunLimits {
    /// Number of instructions of all tasks.
    pub(crate) instructions_max: u64,
    /// Time from its beginning on.
    pub(crate) time_max: Duration,
    /// Memory of its outputs.
    pub(crate) outputs: Arc<OutputMemory>,
}

/// Why the server has stopped an execution whose host is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopReason {
    /// The operator of the server ended it.
    Operator,
    /// Its host has aborted the command.
    Host,
    /// It has taken longer than its tenant's runs may.
    Time(Duration),
}

impl StopReason {
    fn told(self, number: u64) -> String {
        match self {
            Self::Operator => format!("run {number} was stopped by the operator of the server"),
            Self::Host => format!("run {number} was aborted by its host"),
            Self::Time(most) => format!("run {number} was stopped: a run must end within {} s", most.as_secs()),
        }
    }
}

/// One execution that has begun and not ended.
#[derive(Debug)]
struct BegunExecution {
    progress: Progress,
    cpu: Arc<CpuTime>,
    /// Whether the execution runs programs, and is listed: a request on arrays need not.
    runs_programs: bool,
    begun: (Instant, SystemTime),
    /// Name of its program, or of its programs, once it is known.
    programs: OnceLock<String>,
    command: RunCommand,
    time_max: Duration,
    outputs: Arc<OutputMemory>,
    stopped: OnceLock<StopReason>,
    /// Why it has failed.
    failure: OnceLock<String>,
}

impl BegunExecution {
    /// Stops it for a reason, of which the first stays.
    fn stop(&self, reason: StopReason) {
        // In this order: an execution that finds itself stopped knows why.
        self.stopped.get_or_init(|| reason);
        self.progress.stop.store(true, Ordering::SeqCst);
    }
}

/// A run of programs, as an operator sees it.
#[derive(Clone, Debug)]
pub struct RunStatus {
    /// Number of the run, which no other run of the subsystem has.
    pub number: u64,
    /// Name of the host.
    pub host: String,
    /// Identifier of the host's controller.
    pub cntlid: u16,
    /// Name of the program, or of the programs; empty if it is not known yet.
    pub programs: String,
    /// Time at which it began, and the time since then.
    pub since: (SystemTime, Duration),
    /// Number of instructions of the tasks that are done.
    pub instructions: u64,
    /// Number of tasks that are done, and of those that are known so far.
    pub tasks: (u64, u64),
    /// Bytes read from the store so far.
    pub bytes_in: u64,
    /// Bytes of memory that its cores have for their programs.
    pub memory_bytes: u64,
    /// Time for which its threads have had a processor.
    pub cpu: Duration,
    /// Whether it is about to stop.
    pub is_stopping: bool,
}

/// The executions of one host that have begun and not ended.
#[derive(Debug, Default)]
pub(crate) struct RunningExecutions {
    begun: Mutex<BTreeMap<u64, Arc<BegunExecution>>>,
}

/// One of the executions, until it is dropped.
#[derive(Debug)]
pub(crate) struct RunningExecution<'a> {
    of: &'a RunningExecutions,
    number: u64,
    execution: Arc<BegunExecution>,
}

#[expect(clippy::disallowed_methods, reason = "an operator is told since when an execution runs")]
fn now() -> (Instant, SystemTime) {
    (Instant::now(), SystemTime::now())
}

impl RunningExecutions {
    /// Adds an execution that is about to begin; `last` is the number of the subsystem's last execution.
    pub(crate) fn begin(
        &self,
        last: &AtomicU64,
        command: RunCommand,
        runs_programs: bool,
        limits: RunLimits,
    ) -> RunningExecution<'_> {
        let cpu = Arc::new(CpuTime::default());
        let mut progress = Progress::limited_to(limits.instructions_max.min(RUN_INSTRUCTIONS_MAX));
        progress.observer = Some(cpu.clone());
        progress.collected = Some(limits.outputs.clone());
        let execution = Arc::new(BegunExecution {
            progress,
            cpu,
            runs_programs,
            begun: now(),
            programs: OnceLock::new(),
            command,
            time_max: limits.time_max,
            outputs: limits.outputs,
            stopped: OnceLock::new(),
            failure: OnceLock::new(),
        });
        let number = last.fetch_add(1, Ordering::Relaxed) + 1;
        self.begun.lock().insert(number, execution.clone());
        RunningExecution { of: self, number, execution }
    }

    /// Stops those that have taken longer than they may.
    pub(crate) fn stop_overdue(&self) {
        let now = now().0;
        for execution in self.begun.lock().values() {
            if now.saturating_duration_since(execution.begun.0) > execution.time_max {
                execution.stop(StopReason::Time(execution.time_max));
            }
        }
    }

    /// Stops all of them.
    pub(crate) fn stop(&self) {
        for execution in self.begun.lock().values() {
            execution.progress.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Stops the execution of a command that its host aborts; returns whether there is one.
    pub(crate) fn abort(&self, command: RunCommand) -> bool {
        let begun = self.begun.lock();
        let found = begun.values().find(|execution| execution.command == command);
        found.inspect(|execution| execution.stop(StopReason::Host)).is_some()
    }

    /// Stops the run with this number, for the server's operator; returns whether there is one.
    pub(crate) fn kill(&self, number: u64) -> bool {
        let begun = self.begun.lock();
        let Some(execution) = begun.get(&number).filter(|execution| execution.runs_programs) else { return false };
        execution.stop(StopReason::Operator);
        true
    }

    /// Returns the runs of programs, in order of their numbers.
    pub(crate) fn list(&self, host: &str, cntlid: u16) -> Vec<RunStatus> {
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let status = |(&number, execution): (&u64, &Arc<BegunExecution>)| RunStatus {
            number,
            host: host.to_owned(),
            cntlid,
            programs: execution.programs.get().cloned().unwrap_or_default(),
            since: (execution.begun.1, now().0.saturating_duration_since(execution.begun.0)),
            instructions: of(&execution.progress.instructions),
            tasks: (of(&execution.progress.done), of(&execution.progress.tasks)),
            bytes_in: of(&execution.progress.bytes_in),
            memory_bytes: of(&execution.progress.memory_bytes),
            cpu: execution.cpu.total(),
            is_stopping: execution.progress.stop.load(Ordering::Relaxed),
        };
        self.begun.lock().iter().filter(|(_, execution)| execution.runs_programs).map(status).collect()
    }
}

impl RunningExecution<'_> {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the memory of its outputs.
    pub(crate) fn outputs(&self) -> &OutputMemory {
        &self.execution.outputs
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.execution.progress
    }

    /// Returns whether it was stopped, as waits for other commands ask.
    pub(crate) fn is_stopped(&self) -> Rc<IsStopped> {
        let execution = self.execution.clone();
        Rc::new(move || execution.progress.stop.load(Ordering::Relaxed))
    }

    /// Names the programs that it executes.
    pub(crate) fn name(&self, programs: String) {
        // The first name stays.
        drop(self.execution.programs.set(programs));
    }

    /// Whether programs have begun to run.
    pub(crate) fn has_begun(&self) -> bool {
        self.execution.programs.get().is_some()
    }

    /// Notes why it has failed; returns that, or that the server's operator has stopped it.
    pub(crate) fn fail(&self, why: String) -> String {
        let why = self.stopped().unwrap_or(why);
        drop(self.execution.failure.set(why.clone()));
        why
    }

    /// Returns why it has failed; `None` if it has not.
    pub(crate) fn failure(&self) -> Option<String> {
        self.execution.failure.get().cloned()
    }

    /// Returns why it has ended, if the server stopped it.
    pub(crate) fn stopped(&self) -> Option<String> {
        self.execution.stopped.get().map(|reason| reason.told(self.number))
    }

    /// Returns the name of the programs, the time since it began, its instructions and its processor time.
    pub(crate) fn costs(&self) -> (String, Duration, u64, Duration) {
        let BegunExecution { progress, cpu, begun, programs, .. } = &*self.execution;
        let since = now().0.saturating_duration_since(begun.0);
        let instructions = progress.instructions.load(Ordering::Relaxed);
        (programs.get().cloned().unwrap_or_default(), since, instructions, cpu.total())
    }
}

impl Drop for RunningExecution<'_> {
    fn drop(&mut self) {
        self.of.begun.lock().remove(&self.number);
    }
}
