//! Sessions: kernels loaded, submitted, waited for and cancelled.
//!
//! Sections are passed as boxes of spaces or as bytes, which are copied. A job's result is a list with the bytes of
//! each collected section; dtypes and shapes are Python's business.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nandarray_cores::kernel::{KernelFunctions, SectionRole};
use nandarray_model::{AcceleratorOptions, AcceleratorPlatform, AcceleratorSession, screen_cost};
use nandarray_runtime::schedule::{KernelFacts, KernelScheduler, SchedulerMaker, by_name, names, register};
use nandarray_runtime::{
    KernelForm, KernelRequest, KernelState, LoadedKernel, SectionBinding, SectionBox, SectionSource, SectionTarget,
    Session, SessionJob, SessionOptions,
};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::errors::{detached, run_to_py, to_py};
use crate::handle::{SharedRuntime, at_home, fail, runtime_of};
use crate::space::PySpace;

/// A loaded kernel, which any session can run.
#[pyclass(module = "nandarray._nandarray", name = "Kernel", frozen)]
pub(crate) struct PyKernel {
    pub(crate) loaded: Arc<LoadedKernel>,
}

#[pymethods]
impl PyKernel {
    #[new]
    fn new(py: Python<'_>, elf: &[u8], table: &[u8]) -> PyResult<Self> {
        let loaded = LoadedKernel::new(elf, table).map_err(|e| run_to_py(py, &e))?;
        Ok(Self { loaded: Arc::new(loaded) })
    }

    /// Runs each microblock as one screen on a timed core, on sample data; returns (cycles, instructions, bytes of
    /// memory) of each.
    fn cost(
        &self,
        py: Python<'_>,
        sections: Vec<(Vec<u64>, PyReadonlyArray1<'_, u8>)>,
        scalars: Vec<u64>,
        core: String,
    ) -> PyResult<Vec<(f64, u64, u64)>> {
        let (program, mut held) = (self.loaded.program(), samples(sections)?);
        let all = detached(py, || -> std::result::Result<Vec<_>, String> {
            let cost = |microblock| {
                let cost = screen_cost(program, &mut held, &scalars, microblock, &core)?;
                Ok((cost.cycles, cost.instructions, cost.bytes_dram))
            };
            (0..program.table.microblocks.len()).map(cost).collect()
        });
        all.map_err(|e| to_py(py, &e, None))?.map_err(|what| to_py(py, &nandarray::Error::Invalid(what), None))
    }

    /// Runs screens on sample data; returns, in words, their accesses that the kernel's table does not declare.
    fn check(
        &self,
        py: Python<'_>,
        sections: Vec<(Vec<u64>, PyReadonlyArray1<'_, u8>)>,
        scalars: Vec<u64>,
        screens: u64,
    ) -> PyResult<Vec<String>> {
        let (program, mut held) = (self.loaded.program(), samples(sections)?);
        let done = detached(py, || nandarray_cores::check::check(program, &mut held, &scalars, screens));
        done.map_err(|e| to_py(py, &e, None))?.map_err(|error| {
            let kernel = program.table.name.clone();
            run_to_py(py, &nandarray_runtime::Error::Kernel { kernel, error: Box::new(error) })
        })
    }
}

/// Runs phantom kernels on a modelled accelerator and returns the report; arguments and report are JSON. The scheduler
/// "simd" runs them one after the other, as a host does.
#[pyfunction]
pub(crate) fn accelerator_run(py: Python<'_>, platform: &str, scheduler: &str, kernels: &str) -> PyResult<String> {
    use nandarray_model::{run_accelerator, run_host};
    let invalid = |what: String| to_py(py, &nandarray::Error::Invalid(what), None);
    let platform = serde_json::from_str(platform).map_err(|e| invalid(format!("platform: {e}")))?;
    let kernels: Vec<_> = serde_json::from_str(kernels).map_err(|e| invalid(format!("kernels: {e}")))?;
    let done = detached(py, || match scheduler {
        "simd" => run_host(&platform, &kernels),
        _ => {
            let platform: AcceleratorPlatform = platform;
            run_accelerator(&platform, platform.scheduler(scheduler)?, &kernels)
        }
    });
    let report = done.map_err(|e| to_py(py, &e, None))?.map_err(invalid)?;
    Ok(serde_json::to_string(&report).expect("a report is written"))
}

/// Makes `decisions` decisions with a scheduler that has `kernels` kernels ready, for measuring its speed; returns the
/// number made.
#[pyfunction]
pub(crate) fn schedule_decisions(py: Python<'_>, scheduler: &str, kernels: u64, decisions: u64) -> PyResult<u64> {
    let workers = 6;
    let made = by_name(scheduler, workers);
    let mut policy = made.map_err(|what| to_py(py, &nandarray::Error::Invalid(what), None))?;
    Ok(py.detach(|| {
        let screens = if policy.splits() { 6 } else { 1 };
        let arrive = |number: u64, policy: &mut dyn nandarray_runtime::schedule::KernelScheduler| {
            policy.arrived(&KernelFacts { number, application: number, ..KernelFacts::default() });
            policy.ready(number, screens);
        };
        (0..kernels).for_each(|number| arrive(number, &mut *policy));
        let mut left: std::collections::BTreeMap<u64, u64> = std::collections::BTreeMap::new();
        let (mut made, mut next, mut worker) = (0, kernels, 0);
        while made < decisions {
            worker = (worker + 1) % workers;
            let Some(kernel) = policy.next(worker) else { continue };
            made += 1;
            let left_of = left.entry(kernel).or_insert(screens);
            *left_of -= 1;
            if *left_of == 0 {
                left.remove(&kernel);
                policy.ended(kernel);
                arrive(next, &mut *policy);
                next += 1;
            }
        }
        made
    }))
}

/// Copies the sample data of sections: a shape and the bytes of each.
fn samples(sections: Vec<(Vec<u64>, PyReadonlyArray1<'_, u8>)>) -> PyResult<Vec<(Vec<u64>, Vec<u8>)>> {
    sections.into_iter().map(|(shape, bytes)| Ok((shape, bytes.as_slice()?.to_vec()))).collect()
}

/// A kernel that was submitted to a session.
#[pyclass(module = "nandarray._nandarray", name = "SessionJob", frozen)]
pub(crate) struct PySessionJob {
    job: Arc<SessionJob>,
}

#[pymethods]
impl PySessionJob {
    #[getter]
    fn number(&self) -> u64 {
        self.job.number
    }

    /// Whether the kernel has ended.
    fn done(&self) -> bool {
        self.job.has_ended()
    }

    /// Returns (screens done, number of microblocks).
    fn progress(&self) -> (u64, usize) {
        (self.job.screens_done(), self.job.microblocks())
    }

    /// Takes the bytes of the kernel's sections, with `None` for those not collected; raises the kernel's error, if it
    /// failed. Returns `None` before the kernel has ended, and after its result was taken.
    fn take(&self, py: Python<'_>) -> PyResult<Option<Vec<Option<Py<PyAny>>>>> {
        match self.job.take() {
            None => Ok(None),
            Some(Err(error)) => Err(run_to_py(py, &error)),
            Some(Ok(given)) => {
                let array = |bytes: Vec<u8>| PyArray1::from_vec(py, bytes).into_any().unbind();
                Ok(Some(given.into_iter().map(|bytes| bytes.map(array)).collect()))
            }
        }
    }
}

type SectionBoxArg<'py> = (PyRef<'py, PySpace>, Vec<u64>, Vec<u64>, Vec<u64>, Option<Vec<u64>>);

/// The source of a section's initial bytes.
#[derive(FromPyObject)]
enum SourceArg<'py> {
    Box(SectionBoxArg<'py>),
    Bytes(PyReadonlyArray1<'py, u8>),
}

/// The destination of a section's bytes after the kernel has run; a true `Wanted` returns them to the caller.
#[derive(FromPyObject)]
enum TargetArg<'py> {
    Box(SectionBoxArg<'py>),
    Wanted(bool),
}

/// A kernel to be submitted, with its sections and conditions.
#[derive(FromPyObject)]
struct SubmitRequest<'py> {
    kernel: PyRef<'py, PyKernel>,
    form: String,
    /// For the form "native", addresses of the microblocks' functions in this process.
    entries: Option<Vec<usize>>,
    /// Of each section, its shape, source (without one, it begins as zeros) and destination.
    sections: Vec<(Vec<u64>, Option<SourceArg<'py>>, TargetArg<'py>)>,
    scalars: Vec<u64>,
    name: String,
    /// Number of the application that the kernel belongs to; a negative number makes the kernel an application of its
    /// own.
    application: i64,
    priority: i64,
    deadline: Option<u64>,
    work: u64,
    after: Vec<u64>,
    after_names: Vec<String>,
    instructions: Option<u64>,
}

/// Kernels that run at the same time on one store, under a scheduler.
#[pyclass(module = "nandarray._nandarray", name = "Session", frozen)]
pub(crate) struct PySession {
    session: SessionClock,
    device: SharedRuntime,
}

/// A session, under either clock.
enum SessionClock {
    /// Threads of this machine.
    Wall(Session),
    /// The modelled accelerator.
    Modelled(Box<AcceleratorSession>),
}

#[pymethods]
impl PySession {
    /// Returns the names of all schedulers.
    #[staticmethod]
    fn schedulers() -> Vec<String> {
        names()
    }

    fn submit(&self, py: Python<'_>, request: SubmitRequest<'_>) -> PyResult<PySessionJob> {
        self.at_home(py)?;
        let made = self.request(py, request)?;
        let submit = || match &self.session {
            SessionClock::Wall(session) => session.submit(made),
            SessionClock::Modelled(session) => session.submit(made),
        };
        let done = detached(py, submit).map_err(|e| to_py(py, &e, None))?;
        Ok(PySessionJob { job: done.map_err(|e| run_to_py(py, &e))? })
    }

    /// Waits until a kernel has ended; returns whether it has. `seconds`, if given, is the longest time to wait, of the
    /// wall clock in a modelled session, too.
    #[pyo3(signature = (job, seconds=None))]
    fn wait(&self, py: Python<'_>, job: &PySessionJob, seconds: Option<f64>) -> PyResult<bool> {
        if job.job.has_ended() {
            return Ok(true);
        }
        self.at_home(py)?;
        let time = seconds.map(duration);
        let waited = detached(py, || match &self.session {
            SessionClock::Wall(session) => Ok(session.wait(&job.job, time)),
            SessionClock::Modelled(session) => {
                #[expect(clippy::disallowed_methods, reason = "the caller's limit is of the wall clock")]
                let begun = Instant::now();
                session.wait(&job.job, &mut || time.is_some_and(|time| begun.elapsed() >= time))
            }
        });
        waited.map_err(|e| to_py(py, &e, None))?.map_err(|e| run_to_py(py, &e))
    }

    /// Cancels a kernel unless its outputs are already being written; returns whether it ends as cancelled.
    fn cancel(&self, py: Python<'_>, job: &PySessionJob) -> PyResult<bool> {
        self.at_home(py)?;
        Ok(py.detach(|| match &self.session {
            SessionClock::Wall(session) => session.cancel(&job.job),
            SessionClock::Modelled(session) => session.cancel(&job.job),
        }))
    }

    /// Returns the state of a kernel, and the number of the microblock that runs, if one does; `None` once the kernel
    /// has ended.
    fn state(&self, py: Python<'_>, job: &PySessionJob) -> PyResult<Option<(&'static str, Option<usize>)>> {
        if job.job.has_ended() {
            return Ok(None);
        }
        self.at_home(py)?;
        let state = py.detach(|| match &self.session {
            SessionClock::Wall(session) => session.state(&job.job),
            SessionClock::Modelled(session) => session.state(&job.job),
        });
        Ok(state.map(|state| match state {
            KernelState::Submitted => ("submitted", None),
            KernelState::Blocked => ("blocked", None),
            KernelState::Admitted => ("admitted", None),
            KernelState::Mapping => ("mapping", None),
            KernelState::Running { microblock } => ("running", Some(microblock)),
            KernelState::Draining => ("draining", None),
            KernelState::Stopping => ("stopping", None),
        }))
    }

    /// Closes the session to further kernels; with `cancel`, cancels those that were submitted. On the modelled
    /// accelerator, waits for them, too.
    #[pyo3(signature = (*, cancel=false))]
    fn begin_close(&self, py: Python<'_>, cancel: bool) -> PyResult<()> {
        let closed = detached(py, || match &self.session {
            SessionClock::Wall(session) => {
                session.begin_close(cancel);
                Ok(())
            }
            SessionClock::Modelled(session) => session.close(cancel),
        });
        closed.map_err(|e| to_py(py, &e, None))?.map_err(|e| run_to_py(py, &e))
    }

    /// Waits for the kernels of a closed session, `seconds` at most; returns (number, kernel, whether it is in native
    /// form) of those that have not ended.
    fn wait_closed(&self, py: Python<'_>, seconds: f64) -> Vec<(u64, String, bool)> {
        let left = match &self.session {
            SessionClock::Wall(session) => py.detach(|| session.wait_closed(Some(duration(seconds)))),
            SessionClock::Modelled(_) => Vec::new(),
        };
        left.into_iter().map(|one| (one.number, one.kernel, one.is_native)).collect()
    }

    /// Leaves the workers of a closed session to themselves.
    fn abandon(&self) {
        if let SessionClock::Wall(session) = &self.session {
            session.abandon();
        }
    }

    /// Returns the report of the modelled accelerator from the beginning to now, as JSON; `None` for a session on the
    /// wall clock.
    fn report(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let SessionClock::Modelled(session) = &self.session else { return Ok(None) };
        self.at_home(py)?;
        let report = py.detach(|| session.report());
        Ok(Some(serde_json::to_string(&report).expect("a report is written")))
    }
}

impl Drop for PySession {
    /// Releases the GIL while the session is closed: its workers may need the interpreter for a scheduler written in
    /// Python.
    fn drop(&mut self) {
        if let SessionClock::Wall(session) = &self.session {
            Python::attach(|py| py.detach(|| session.end()));
        }
    }
}

/// Converts a number of seconds of the caller's, which may be negative or beyond any clock.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX / 4)
}

impl PySession {
    /// Fails in a process that was forked from the one that has the session.
    fn at_home(&self, py: Python<'_>) -> PyResult<()> {
        let home = match &self.session {
            SessionClock::Wall(session) => session.home(),
            SessionClock::Modelled(session) => session.home(),
        };
        at_home(py, home, "session")
    }

    fn request(&self, py: Python<'_>, request: SubmitRequest<'_>) -> PyResult<KernelRequest> {
        let mut sections = Vec::new();
        for (number, (shape, source, target)) in request.sections.into_iter().enumerate() {
            let role = request.kernel.loaded.program().table.sections.get(number).map(|s| s.role);
            let source = match source {
                Some(SourceArg::Box(boxed)) => SectionSource::Box(self.boxed(py, boxed)?),
                Some(SourceArg::Bytes(bytes)) => SectionSource::Bytes(Arc::new(bytes.as_slice()?.to_vec())),
                None => SectionSource::Zeros,
            };
            let target = match target {
                TargetArg::Box(boxed) => SectionTarget::Box(self.boxed(py, boxed)?),
                TargetArg::Wanted(true) if role != Some(SectionRole::Input) => SectionTarget::Collect,
                TargetArg::Wanted(_) => SectionTarget::Nowhere,
            };
            sections.push(SectionBinding { shape, source, target });
        }
        let form = match (request.form.as_str(), &request.entries) {
            ("interpreted", None) => Some(KernelForm::Interpreted),
            ("translated", None) => Some(KernelForm::Translated),
            // SAFETY: the addresses are of functions in a library that the package compiled from a trusted kernel and
            // never closes.
            ("native", Some(entries)) => unsafe { KernelFunctions::new(entries) }.map(KernelForm::Native),
            _ => None,
        };
        let wrong = || nandarray::Error::Invalid(format!("there is no form {:?} of a kernel", request.form));
        let form = fail(py, form.ok_or_else(wrong))?;
        let (priority, deadline) = (request.priority, request.deadline);
        let application = u64::try_from(request.application).unwrap_or(u64::MAX);
        Ok(KernelRequest {
            kernel: request.kernel.loaded.clone(),
            form,
            sections,
            scalars: request.scalars,
            name: request.name,
            facts: KernelFacts { number: 0, application, priority, deadline, work: request.work },
            after: request.after,
            after_names: request.after_names,
            instructions: request.instructions,
        })
    }

    fn boxed(&self, py: Python<'_>, boxed: SectionBoxArg<'_>) -> PyResult<SectionBox> {
        let (space, start, step, count, view) = boxed;
        let runtime = fail(py, runtime_of(&self.device))?;
        if !space.of(runtime.device()) {
            let e = nandarray::Error::Invalid("an array of another store; a session is beside one store".into());
            return Err(to_py(py, &e, None));
        }
        Ok(SectionBox { space: space.number(), start, step, count, view })
    }
}

/// A scheduler that is written in Python. An exception in one of its methods becomes a panic, which the session
/// catches: its kernels then fail with the exception's text.
struct PyScheduler {
    object: Py<PyAny>,
    splits: bool,
}

impl std::fmt::Debug for PyScheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PyScheduler").finish_non_exhaustive()
    }
}

impl PyScheduler {
    fn new(py: Python<'_>, object: Py<PyAny>) -> PyResult<Self> {
        let splits = object.getattr(py, "splits")?.extract(py)?;
        Ok(Self { object, splits })
    }

    fn call<A: for<'p> pyo3::call::PyCallArgs<'p>>(&self, method: &str, arguments: A) -> Option<u64> {
        let called = Python::attach(|py| {
            let found = self.object.call_method1(py, method, arguments)?;
            found.extract::<Option<u64>>(py)
        });
        called.unwrap_or_else(|error| panic!("scheduler's method {method}: {error}"))
    }
}

impl KernelScheduler for PyScheduler {
    fn splits(&self) -> bool {
        self.splits
    }

    fn arrived(&mut self, kernel: &KernelFacts) {
        let KernelFacts { number, application, priority, deadline, work } = *kernel;
        self.call("arrived", (number, application, priority, deadline, work));
    }

    fn ready(&mut self, kernel: u64, screens: u64) {
        self.call("ready", (kernel, screens));
    }

    fn next(&mut self, worker: usize) -> Option<u64> {
        self.call("next", (worker,))
    }

    fn ended(&mut self, kernel: u64) {
        self.call("ended", (kernel,));
    }

    fn lost(&mut self, worker: usize) {
        self.call("lost", (worker,));
    }
}

/// Registers a Python class under a name as a scheduler; it is called with the number of workers.
#[pyfunction]
pub(crate) fn register_scheduler(py: Python<'_>, name: &str, maker: Py<PyAny>) -> PyResult<()> {
    let make: SchedulerMaker = Arc::new(move |workers| {
        let made = Python::attach(|py| PyScheduler::new(py, maker.call1(py, (workers,))?));
        made.map(|made| Box::new(made) as Box<dyn KernelScheduler>).map_err(|error| error.to_string())
    });
    register(name, make).map_err(|what| to_py(py, &nandarray::Error::Invalid(what), None))
}

/// Opens a session on a store. If `accelerator` is given (an accelerator's platform as JSON, and its core), the session
/// runs under a modelled clock.
pub(crate) fn open(
    py: Python<'_>,
    device: &SharedRuntime,
    scheduler: String,
    (workers, memory_bytes, window_bytes): (usize, u64, u64),
    accelerator: Option<(String, String)>,
) -> PyResult<PySession> {
    let runtime = fail(py, runtime_of(device))?;
    let invalid = |what: String| to_py(py, &nandarray::Error::Invalid(what), None);
    let session = match accelerator {
        None => {
            let options = SessionOptions { scheduler, workers, memory_bytes, window_bytes };
            let opened = detached(py, || Session::new(&runtime, &options)).map_err(|e| to_py(py, &e, None))?;
            SessionClock::Wall(opened.map_err(|e| run_to_py(py, &e))?)
        }
        Some((platform, core)) => {
            let platform: AcceleratorPlatform =
                serde_json::from_str(&platform).map_err(|e| invalid(format!("accelerator: {e}")))?;
            let policy = platform.scheduler(&scheduler).map_err(invalid)?;
            let options = AcceleratorOptions { platform, core, memory_bytes, window_bytes };
            let session = AcceleratorSession::new(&runtime, &options, policy).map_err(|e| run_to_py(py, &e))?;
            SessionClock::Modelled(Box::new(session))
        }
    };
    Ok(PySession { session, device: device.clone() })
}
