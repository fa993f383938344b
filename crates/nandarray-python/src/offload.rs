//! Programs beside the data: loaded, run over boxes of spaces, watched and cancelled.
//!
//! Inputs and outputs come as tuples of a space and a box, or as bytes. What a run gives is a dictionary; what it prints and
//! how dtypes are named is Python's.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nandarray::device::{Command, Device, Execution, Given, Input, Output, ProgramId, Reply};
use nandarray::stl::space::SpaceId;
use nandarray_cores::{Form, Native, Options, Profiler, Progress};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::to_py;
use crate::store::Space;

/// An instruction that was counted: address, class, text, times.
type CountedOp = (u64, &'static str, String, u64);

/// What a run has done so far; another thread may look, and stop it.
#[pyclass(module = "nandarray._nandarray", frozen)]
#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) progress: Arc<Progress>,
}

#[pymethods]
impl Watch {
    /// A watch; with `profile`, one that has the run's instructions counted.
    #[new]
    #[pyo3(signature = (*, profile = false))]
    fn new(profile: bool) -> Self {
        let progress = Progress { profiler: profile.then(Profiler::default), ..Progress::default() };
        Self { progress: Arc::new(progress) }
    }

    /// (tasks done, tasks there are, bytes read)
    fn state(&self) -> (u64, u64, u64) {
        let p = &self.progress;
        (p.done.load(Ordering::Relaxed), p.tasks.load(Ordering::Relaxed), p.bytes_in.load(Ordering::Relaxed))
    }

    /// End the run soon.
    fn cancel(&self) {
        self.progress.stop.store(true, Ordering::Relaxed);
    }

    /// What was counted: ([(address, class, text, times)], [(address, instructions, times)] of blocks).
    fn profile(&self) -> (Vec<CountedOp>, Vec<(u64, u32, u64)>) {
        let profile = self.progress.profiler.as_ref().map(Profiler::take).unwrap_or_default();
        let ops = profile.instructions();
        let ops = ops.map(|(pc, op, times)| (pc, op.class().name(), nandarray_hart::isa::disassemble(&op), times));
        (ops.collect(), profile.blocks().collect())
    }
}

/// A box of a space: the space, first coordinates, distances, counts, shape of the view.
type Boxed<'py> = (PyRef<'py, Space>, Vec<u64>, Vec<u64>, Vec<u64>, Option<Vec<u64>>);

#[derive(FromPyObject)]
pub(crate) enum GivenInput<'py> {
    Box(Boxed<'py>),
    Bytes(Bound<'py, PyBytes>),
}

/// A box without its borrow of Python.
struct Owned {
    space: SpaceId,
    start: Vec<u64>,
    step: Vec<u64>,
    count: Vec<u64>,
    view: Option<Vec<u64>>,
}

fn owned(py: Python<'_>, device: &Arc<Device>, boxed: &Boxed<'_>) -> PyResult<Owned> {
    let (space, start, step, count, view) = boxed;
    if !space.of(device) {
        let e = nandarray::Error::Invalid("an array of another store; a program runs beside the arrays of one".into());
        return Err(to_py(py, &e, None));
    }
    let (space, start, step) = (space.number(), start.clone(), step.clone());
    Ok(Owned { space, start, step, count: count.clone(), view: view.clone() })
}

/// One run, as Python asks for it.
#[derive(FromPyObject)]
pub(crate) struct Asked<'py> {
    program: ProgramId,
    form: String,
    /// Addresses of nd_begin, of the task, of nd_merge and nd_end in this process, for the form "native"; 0 is none.
    entries: Option<[usize; 4]>,
    inputs: Vec<GivenInput<'py>>,
    scalars: Vec<u64>,
    outputs: Vec<Option<Boxed<'py>>>,
    threads: usize,
    task_bytes: u64,
    instructions: Option<u64>,
}

pub(crate) fn load(py: Python<'_>, device: &Arc<Device>, elf: &[u8], metadata: Option<&[u8]>) -> PyResult<ProgramId> {
    match device.execute(Command::LoadProgram { elf, metadata }) {
        Ok(Reply::Program(id)) => Ok(id),
        Ok(other) => panic!("a program was to be loaded, and the reply is {other:?}"),
        Err(e) => Err(to_py(py, &e, None)),
    }
}

fn form_of(py: Python<'_>, asked: &Asked<'_>) -> PyResult<Form> {
    let found = match (asked.form.as_str(), asked.entries) {
        ("interpreted", None) => Some(Form::Interpreted),
        // SAFETY: the package takes them of a library that it compiled of a trusted program and never closes.
        ("native", Some(entries)) => unsafe { Native::new(entries) }.map(Form::Native),
        _ => None,
    };
    let wrong =
        || nandarray::Error::Invalid(format!("there is no form {:?} of a program, or not with these", asked.form));
    found.ok_or_else(|| to_py(py, &wrong(), None))
}

pub(crate) fn execute<'py>(
    py: Python<'py>,
    device: &Arc<Device>,
    asked: &Asked<'py>,
    watch: &Watch,
) -> PyResult<Bound<'py, PyDict>> {
    enum Held<'h> {
        Bytes(&'h [u8]),
        Box(Owned),
    }
    let inputs: Vec<Held<'_>> = asked
        .inputs
        .iter()
        .map(|input| match input {
            GivenInput::Bytes(bytes) => Ok(Held::Bytes(bytes.as_bytes())),
            GivenInput::Box(boxed) => owned(py, device, boxed).map(Held::Box),
        })
        .collect::<PyResult<_>>()?;
    let inputs: Vec<Input<'_>> = inputs
        .iter()
        .map(|held| match held {
            Held::Bytes(bytes) => Input::Bytes(bytes),
            Held::Box(b) => {
                let view = b.view.as_deref();
                Input::Box { space: b.space, start: &b.start, step: &b.step, count: &b.count, view }
            }
        })
        .collect();
    let boxes: Vec<Option<Owned>> =
        asked.outputs.iter().map(|o| o.as_ref().map(|b| owned(py, device, b)).transpose()).collect::<PyResult<_>>()?;
    let outputs: Vec<Output<'_>> = boxes
        .iter()
        .map(|output| match output {
            None => Output::Collect,
            Some(b) => {
                let view = b.view.as_deref();
                Output::Box { space: b.space, start: &b.start, count: &b.count, view }
            }
        })
        .collect();
    let options = Options { threads: asked.threads, task_bytes: asked.task_bytes, instructions: asked.instructions };
    let form = form_of(py, asked)?;
    let (program, scalars, progress) = (asked.program, &asked.scalars[..], watch.progress.clone());
    let done = py.detach(|| {
        device.execute(Command::Execute(Execution {
            program,
            form,
            inputs: &inputs,
            scalars,
            outputs,
            options,
            progress: &progress,
        }))
    });
    let outcome = match done {
        Ok(Reply::Executed(outcome)) => outcome,
        Ok(other) => panic!("a program was to be run, and the reply is {other:?}"),
        Err(e) => return Err(to_py(py, &e, None)),
    };
    let given = PyDict::new(py);
    let mut gathered: Vec<Py<PyAny>> = Vec::new();
    for output in outcome.outputs {
        gathered.push(match output {
            Given::Bytes(bytes) => PyBytes::new(py, &bytes).into_any().unbind(),
            Given::Elements(written) => written.into_pyobject(py)?.into_any().unbind(),
        });
    }
    given.set_item("outputs", gathered)?;
    given.set_item("state", PyBytes::new(py, &outcome.state))?;
    let account = outcome.account;
    given.set_item("tasks", account.tasks)?;
    given.set_item("bytes_in", account.bytes_in)?;
    given.set_item("bytes_out", account.bytes_out)?;
    given.set_item("instructions", account.instructions)?;
    Ok(given)
}

/// The instructions of an ELF, function by function: (address, bytes as hex, text), with symbols between.
#[pyfunction]
pub(crate) fn program_disassemble(py: Python<'_>, elf: &[u8]) -> PyResult<Vec<(u64, Option<String>, String)>> {
    use nandarray_hart::{Extensions, Program, isa};
    let program = Program::from_elf(elf, Extensions::ALL)
        .map_err(|e| to_py(py, &nandarray::Error::Program(Box::new(nandarray_cores::LoadError::Elf(e))), None))?;
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
