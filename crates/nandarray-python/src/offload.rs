//! Programs beside the data: loaded, run over boxes of spaces, watched and cancelled.
//!
//! An input or output is a tuple of a space and a box, an array of bytes in memory, or an output of another program of
//! the run. A run's outcome is a dictionary; printing it, and dtypes, are Python's business.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nandarray::{Device, SpaceId};
use nandarray_cores::{CoreTimer, Form, Native, Profiler};
use nandarray_model::store::{Clock, Modelled};
use nandarray_runtime::{
    Account, Boundary, Execution, Executor, Halo, Input, Output, OutputValue, ProgramId, Progress, Runtime, Share,
    StageRequest, Tiles,
};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::cores;
use crate::errors::{detached, run_to_py, to_py};
use crate::space::PySpace;

/// A counted instruction: its address, class and text, and the number of its executions.
type CountedOp = (u64, &'static str, String, u64);

/// Progress of a run; another thread can read it, and stop the run.
#[pyclass(module = "nandarray._nandarray", frozen)]
#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) progress: Arc<Progress>,
}

#[pymethods]
impl Watch {
    /// Creates a watch for one run. With `profile`, the run's instructions are counted; with `core`, they are timed on
    /// that described core.
    #[new]
    #[pyo3(signature = (*, profile = false, core = None))]
    fn new(py: Python<'_>, profile: bool, core: Option<cores::CoreArg>) -> PyResult<Self> {
        let timer = core.as_ref().map(|core| cores::timer(py, core)).transpose()?;
        let progress = match timer {
            Some(timer) => Progress::timed_by(timer),
            None if profile => Progress::counted_by(Profiler::default()),
            None => Progress::default(),
        };
        Ok(Self { progress: Arc::new(progress) })
    }

    /// Returns (tasks done, tasks in all, bytes read).
    fn state(&self) -> (u64, u64, u64) {
        let p = &self.progress;
        (p.done.load(Ordering::Relaxed), p.tasks.load(Ordering::Relaxed), p.bytes_in.load(Ordering::Relaxed))
    }

    /// Returns (tasks done, tasks in all) of each program of the run.
    fn stages(&self) -> Vec<(u64, u64)> {
        self.progress.stages()
    }

    /// Requests that the run end soon.
    fn cancel(&self) {
        self.progress.stop.store(true, Ordering::Relaxed);
    }

    /// Takes the profile: ([(address, class, text, executions)] of instructions, [(address, instructions, executions)]
    /// of basic blocks).
    fn profile(&self) -> (Vec<CountedOp>, Vec<(u64, u32, u64)>) {
        let profile = self.progress.profiler.as_ref().map(Profiler::take).unwrap_or_default();
        let ops = profile.instructions();
        let ops = ops.map(|(pc, op, times)| (pc, op.class().name(), nandarray_hart::isa::disassemble(&op), times));
        (ops.collect(), profile.blocks().collect())
    }

    /// Takes the figures of the described cores: their reports, and ticks by instruction address.
    fn timing<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = self.progress.timer.as_ref().map(CoreTimer::take).unwrap_or_default();
        cores::figures(py, &found)
    }
}

/// A halo of tiles: (depth, and what is beyond the box, along each dimension: a word, and the bytes of a constant).
type HaloArg = (Vec<u64>, Vec<(String, Vec<u8>)>);

/// Tiles of a box: (end of the first tile, size of the following tiles, dimensions whose extents programs are passed,
/// the halo of an input).
type TilesArg = (Vec<u64>, Vec<u64>, Vec<usize>, Option<HaloArg>);

/// A box of a space: (space, first coordinates, steps, counts, shape of the view if the box is of one).
type BoxArg<'py> = (PyRef<'py, PySpace>, Vec<u64>, Vec<u64>, Vec<u64>, Option<Vec<u64>>);

#[derive(FromPyObject)]
pub(crate) enum InputArg<'py> {
    Box(BoxArg<'py>),
    /// A box whose elements are passed tile by tile.
    Tiled((BoxArg<'py>, TilesArg)),
    /// Bytes of the caller's memory, borrowed until the run has ended. The borrow keeps the memory alive, and keeps
    /// Rust code from writing to it; only the caller can keep other Python threads from it (see `run_input`).
    Bytes(PyReadonlyArray1<'py, u8>),
    /// An output of an earlier program: (number of that program in the run, number of its output).
    Output((usize, usize)),
}

#[derive(FromPyObject)]
pub(crate) enum OutputArg<'py> {
    Box(BoxArg<'py>),
    /// A box whose elements are written tile by tile.
    Tiled((BoxArg<'py>, TilesArg)),
    /// An output that is not stored: returned as bytes if true, discarded if false.
    Wanted(bool),
}

/// A box of a space, with the space's number in place of the borrowed Python object.
struct OwnedBox {
    space: SpaceId,
    start: Vec<u64>,
    step: Vec<u64>,
    count: Vec<u64>,
    view: Option<Vec<u64>>,
    tiles: Option<TilesArg>,
    /// Elements beyond the box, along each dimension, if the tiles have a halo.
    boundary: Vec<Boundary>,
}

impl OwnedBox {
    fn tiles(&self) -> Option<Tiles<'_>> {
        self.tiles.as_ref().map(|(first, size, told, halo)| {
            let halo = halo.as_ref().map(|(depth, _)| Halo { depth, boundary: &self.boundary });
            Tiles { first, size, extent_axes: told, halo }
        })
    }
}

fn owned(
    py: Python<'_>,
    device: &Arc<Device>,
    boxed: &BoxArg<'_>,
    tiles: Option<&TilesArg>,
) -> PyResult<Box<OwnedBox>> {
    let (space, start, step, count, view) = boxed;
    if !space.of(device) {
        let e = nandarray::Error::Invalid("an array of another store; a program runs beside the arrays of one".into());
        return Err(to_py(py, &e, None));
    }
    let (space, start, step) = (space.number(), start.clone(), step.clone());
    let words = tiles.and_then(|tiles| tiles.3.as_ref()).map_or(&[][..], |(_, words)| words);
    let boundary = words.iter().map(boundary_of).collect::<PyResult<_>>()?;
    let (count, view, tiles) = (count.clone(), view.clone(), tiles.cloned());
    Ok(Box::new(OwnedBox { space, start, step, count, view, tiles, boundary }))
}

fn boundary_of((word, constant): &(String, Vec<u8>)) -> PyResult<Boundary> {
    Boundary::named(word, constant).ok_or_else(|| PyValueError::new_err(format!("no boundary is called {word:?}")))
}

/// One program of a run, as Python passes it.
#[derive(FromPyObject)]
struct StageArg<'py> {
    program: ProgramId,
    form: String,
    /// For the form "native", addresses in this process of nd_begin, the task, nd_merge and nd_end; 0 for a function
    /// that the program lacks.
    entries: Option<[usize; 4]>,
    inputs: Vec<InputArg<'py>>,
    scalars: Vec<u64>,
    outputs: Vec<OutputArg<'py>>,
    task_bytes: u64,
    instructions: Option<u64>,
    /// Cores of a modelled device; empty for all.
    cores: Vec<u32>,
}

/// The share of a run, where several executions divide its tasks.
#[derive(FromPyObject)]
enum ShareArg {
    /// The tasks from a number on and below another, without the program's end.
    Tasks((u64, u64)),
    /// The program's end: how many tasks there were, and the states of all runs of them.
    End((u64, Vec<Vec<u8>>)),
}

/// One run, as Python passes it.
#[derive(FromPyObject)]
pub(crate) struct ExecuteRequest<'py> {
    stages: Vec<StageArg<'py>>,
    threads: usize,
    hold_bytes: u64,
    /// None for all of the run.
    share: Option<ShareArg>,
}

/// An input, with its memory borrowed and its box copied, so that no Python object is needed.
enum LentInput<'h> {
    Bytes(&'h [u8]),
    Box(Box<OwnedBox>),
    Output(usize, usize),
}

enum StoredOutput {
    None,
    Collect,
    Box(Box<OwnedBox>),
}

fn run_input<'h>(py: Python<'_>, device: &Arc<Device>, input: &'h InputArg<'_>) -> PyResult<LentInput<'h>> {
    match input {
        // SAFETY: `as_slice` is a safe function, but a `&[u8]` promises that no thread writes to the memory, which
        // NumPy cannot ensure: the interpreter's lock is released during the run, and another thread may write through
        // this array or through one that shares its memory. Python's `offload` therefore asks its caller not to change
        // the arrays until the run has ended. Bounds do not depend on that: length and address are read here, and the
        // array object is held, so no access leaves the memory. If a caller writes all the same, NumPy's rule for races
        // holds: values are unspecified. The engine only copies these bytes or lends them to a program, whose checks
        // treat them as any other values; it bases no decision of its own on them.
        InputArg::Bytes(bytes) => Ok(LentInput::Bytes(bytes.as_slice()?)),
        InputArg::Box(boxed) => owned(py, device, boxed, None).map(LentInput::Box),
        InputArg::Tiled((boxed, tiles)) => owned(py, device, boxed, Some(tiles)).map(LentInput::Box),
        InputArg::Output((stage, output)) => Ok(LentInput::Output(*stage, *output)),
    }
}

fn run_output(py: Python<'_>, device: &Arc<Device>, output: &OutputArg<'_>) -> PyResult<StoredOutput> {
    match output {
        OutputArg::Wanted(false) => Ok(StoredOutput::None),
        OutputArg::Wanted(true) => Ok(StoredOutput::Collect),
        OutputArg::Box(boxed) => owned(py, device, boxed, None).map(StoredOutput::Box),
        OutputArg::Tiled((boxed, tiles)) => owned(py, device, boxed, Some(tiles)).map(StoredOutput::Box),
    }
}

fn input_of<'h>(held: &'h LentInput<'_>) -> Input<'h> {
    match held {
        LentInput::Bytes(bytes) => Input::Bytes(bytes),
        LentInput::Output(stage, output) => Input::Output { stage: *stage, output: *output },
        LentInput::Box(b) => {
            let view = b.view.as_deref();
            let tiles = b.tiles();
            Input::Box { space: b.space, start: &b.start, step: &b.step, count: &b.count, view, tiles }
        }
    }
}

fn output_of(held: &StoredOutput) -> Option<Output<'_>> {
    match held {
        StoredOutput::None => None,
        StoredOutput::Collect => Some(Output::Collect),
        StoredOutput::Box(b) => {
            let view = b.view.as_deref();
            let tiles = b.tiles();
            Some(Output::Box { space: b.space, start: &b.start, count: &b.count, view, tiles })
        }
    }
}

pub(crate) fn load(py: Python<'_>, runtime: &Runtime, elf: &[u8], metadata: Option<&[u8]>) -> PyResult<ProgramId> {
    runtime.load(elf, metadata).map_err(|e| run_to_py(py, &e))
}

pub(crate) fn unload(py: Python<'_>, runtime: &Runtime, program: ProgramId) -> PyResult<()> {
    runtime.unload(program).map_err(|e| run_to_py(py, &e))
}

fn form_of(py: Python<'_>, request: &StageArg<'_>) -> PyResult<Form> {
    let found = match (request.form.as_str(), request.entries) {
        ("interpreted", None) => Some(Form::Interpreted),
        ("translated", None) => Some(Form::Translated),
        // SAFETY: the addresses are of functions in a library that the package compiled from a trusted program and
        // never closes.
        ("native", Some(entries)) => unsafe { Native::new(entries) }.map(Form::Native),
        _ => None,
    };
    let wrong =
        || nandarray::Error::Invalid(format!("there is no form {:?} of a program, or not with these", request.form));
    found.ok_or_else(|| to_py(py, &wrong(), None))
}

/// Calls `work` with the stages of a request, whose memory is borrowed and whose boxes are copied.
fn with_stages<T>(
    py: Python<'_>,
    runtime: &Runtime,
    request: &ExecuteRequest<'_>,
    work: impl FnOnce(&[StageRequest<'_>]) -> PyResult<T>,
) -> PyResult<T> {
    let device = runtime.device();
    let mut held = Vec::new();
    for stage in &request.stages {
        let inputs: Vec<_> = stage.inputs.iter().map(|i| run_input(py, device, i)).collect::<PyResult<_>>()?;
        let outputs: Vec<_> = stage.outputs.iter().map(|o| run_output(py, device, o)).collect::<PyResult<_>>()?;
        held.push((inputs, outputs));
    }
    let lent: Vec<(Vec<Input<'_>>, Vec<Option<Output<'_>>>)> = held
        .iter()
        .map(|(inputs, outputs)| (inputs.iter().map(input_of).collect(), outputs.iter().map(output_of).collect()))
        .collect();
    let forms: Vec<Form> = request.stages.iter().map(|stage| form_of(py, stage)).collect::<PyResult<_>>()?;
    let stages: Vec<StageRequest<'_>> = request
        .stages
        .iter()
        .zip(&lent)
        .zip(forms)
        .map(|((stage, (inputs, outputs)), form)| StageRequest {
            program: stage.program,
            form,
            inputs,
            scalars: &stage.scalars,
            outputs,
            task_bytes: stage.task_bytes,
            instructions: stage.instructions,
            cores: &stage.cores,
        })
        .collect();
    work(&stages)
}

/// Returns the places where the inputs of a request's program would be cut into tasks: the first record of each and the
/// end of the last, and the number of consecutive tasks that have one state; `None` if they cannot be divided.
pub(crate) fn task_cuts(
    py: Python<'_>,
    runtime: &Runtime,
    request: &ExecuteRequest<'_>,
) -> PyResult<Option<(Vec<u64>, u64)>> {
    with_stages(py, runtime, request, |stages| {
        let [stage] = stages else {
            return Err(PyValueError::new_err(format!("tasks of {} programs are not divided", stages.len())));
        };
        let done = detached(py, || runtime.task_cuts(stage));
        let cuts = done.map_err(|e| to_py(py, &e, None))?.map_err(|e| run_to_py(py, &e))?;
        Ok(cuts.map(|cuts| (cuts.edges, cuts.tasks_a_run)))
    })
}

pub(crate) fn execute<'py>(
    py: Python<'py>,
    runtime: &Runtime,
    clock: Option<&Arc<Clock>>,
    request: &ExecuteRequest<'py>,
    watch: &Watch,
) -> PyResult<Bound<'py, PyDict>> {
    let executor: Box<dyn Executor> = match clock {
        Some(clock) => Box::new(Modelled::new(clock).map_err(|e| to_py(py, &e, None))?),
        None => Box::new(runtime.threads(request.threads)),
    };
    let (hold_bytes, progress) = (request.hold_bytes, watch.progress.clone());
    let share = match &request.share {
        None => Share::All,
        Some(ShareArg::Tasks((first, end))) => Share::Tasks { first: *first, end: *end },
        Some(ShareArg::End((tasks, states))) => Share::End { tasks: *tasks, states },
    };
    let outcome = with_stages(py, runtime, request, |stages| {
        let done = detached(py, || {
            let execution = Execution {
                stages,
                executor: &*executor,
                hold_bytes,
                collect_bytes: u64::MAX,
                locks_at_end: false,
                progress: &progress,
            };
            runtime.execute_share(&execution, share)
        });
        done.map_err(|e| to_py(py, &e, None))?.map_err(|e| run_to_py(py, &e))
    })?;
    let given = accounted(py, outcome.account)?;
    let mut parts = Vec::new();
    for stage in outcome.stages {
        let part = accounted(py, stage.account)?;
        let mut outputs: Vec<Option<Py<PyAny>>> = Vec::new();
        for output in stage.outputs {
            outputs.push(match output {
                None => None,
                Some(OutputValue::Bytes(bytes)) => Some(PyArray1::from_vec(py, bytes).into_any().unbind()),
                Some(OutputValue::Elements(written)) => Some(written.into_pyobject(py)?.into_any().unbind()),
            });
        }
        part.set_item("outputs", outputs)?;
        part.set_item("state", PyBytes::new(py, &stage.state))?;
        let states: Vec<_> = stage.states.iter().map(|state| PyBytes::new(py, state)).collect();
        part.set_item("states", states)?;
        parts.push(part);
    }
    given.set_item("stages", parts)?;
    Ok(given)
}

fn accounted(py: Python<'_>, account: Account) -> PyResult<Bound<'_, PyDict>> {
    let given = PyDict::new(py);
    given.set_item("tasks", account.tasks)?;
    given.set_item("bytes_in", account.bytes_in)?;
    given.set_item("bytes_out", account.bytes_out)?;
    given.set_item("instructions", account.instructions)?;
    Ok(given)
}

/// Checks a program's metadata, and the names of the entry points that it defines; returns them as JSON with all
/// defaults filled in, except what only NumPy can read: dtypes and the defaults of scalars.
#[pyfunction]
pub(crate) fn program_metadata(py: Python<'_>, text: &[u8], entries: Vec<String>) -> PyResult<String> {
    let checked = nandarray_cores::Metadata::parse(text).and_then(|metadata| {
        metadata.check_entries(|name| entries.iter().any(|entry| entry == name))?;
        Ok(metadata.filled())
    });
    checked.map_err(|e| run_to_py(py, &nandarray_runtime::Error::Program(Box::new(e))))
}

/// Disassembles the executable segments of an ELF file: (address, instruction in hex, text) in order of addresses; a
/// line without hex is the symbol at that address.
#[pyfunction]
pub(crate) fn program_disassemble(py: Python<'_>, elf: &[u8]) -> PyResult<Vec<(u64, Option<String>, String)>> {
    use nandarray_hart::{ElfProgram, Extensions, isa};
    let program = ElfProgram::from_elf(elf, Extensions::ALL).map_err(|e| {
        let error = nandarray_runtime::Error::Program(Box::new(nandarray_cores::LoadError::Elf(e)));
        run_to_py(py, &error)
    })?;
    let mut lines = Vec::new();
    for segment in program.segments.iter().filter(|s| s.executable) {
        let mut at = 0usize;
        while at + 2 <= segment.bytes.len() {
            let address = segment.address + at as u64;
            for (name, _) in program.symbols().filter(|(name, a)| *a == address && !name.starts_with('$')) {
                lines.push((address, None, name.to_owned()));
            }
            let half = u16::from_le_bytes([segment.bytes[at], segment.bytes[at + 1]]);
            let long = half & 3 == 3 && at + 4 <= segment.bytes.len();
            let bytes = &segment.bytes[at..at + if long { 4 } else { 2 }];
            let word = bytes.iter().rev().fold(0u32, |word, b| word << 8 | u32::from(*b));
            let op = isa::decode(word, program.bits, Extensions::ALL);
            let hex = if long { format!("{word:08x}") } else { format!("{word:04x}") };
            lines.push((address, Some(hex), isa::disassemble(&op)));
            at += bytes.len();
        }
    }
    Ok(lines)
}
