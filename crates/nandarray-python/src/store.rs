//! The two classes of the native module: a store, and a space of it.

use std::path::PathBuf;
use std::sync::Arc;

use nandarray::device::{Command, Device, Mode, NewSpace, Options, OwnedCommand, Reply, Target};
use nandarray::flash::Geometry;
use nandarray::stl::read::BufferMut;
use nandarray::stl::space as engine;
use nandarray::stl::write::Source;
use nandarray::{Error, Result};
use nandarray_model::describe::Description;
use nandarray_model::store::Bytes;
use nandarray_runtime::Runtime;
use numpy::{PyArray2, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use parking_lot::{Mutex, RwLock};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::buffers::{axis, lend};
use crate::clock::{self, Clock};
use crate::errors::{detached, to_py};
use crate::flight::Flight;
use crate::nvme::Nvme;
use crate::options;
use crate::transaction::changes;
use crate::{offload, report};

/// Runs an engine call without the GIL and turns its error into an exception.
pub(crate) fn run<T: Send>(py: Python<'_>, call: impl Send + FnOnce() -> Result<T>) -> PyResult<T> {
    fail(py, detached(py, call).flatten())
}

fn fail<T>(py: Python<'_>, done: Result<T>) -> PyResult<T> {
    done.map_err(|e| to_py(py, &e, None))
}

/// How a store was opened: to open it again on `refresh`.
#[derive(Clone)]
struct Opening {
    path: PathBuf,
    options: Options,
    model: Option<Model>,
}

/// The device that a store is modelled on.
#[derive(Clone)]
struct Model {
    description: Description,
    bytes: Bytes,
}

/// The device of a store object with its programs; none once it is closed, so that the file is let go of while arrays
/// still refer to it.
pub(crate) type Shared = Arc<RwLock<Option<Arc<Runtime>>>>;

fn runtime_of(shared: &Shared) -> Result<Arc<Runtime>> {
    shared.read().clone().ok_or_else(|| Error::Closed("the store is closed".to_owned()))
}

pub(crate) fn device_of(shared: &Shared) -> Result<Arc<Device>> {
    let found = shared.read().as_ref().map(|runtime| runtime.device().clone());
    found.ok_or_else(|| Error::Closed("the store is closed".to_owned()))
}

fn beside(device: Device) -> Option<Arc<Runtime>> {
    Some(Arc::new(Runtime::new(Arc::new(device))))
}

#[pyclass(module = "nandarray._nandarray", frozen)]
pub(crate) struct Store {
    pub(crate) device: Shared,
    opening: Opening,
    read_only: bool,
    clock: Mutex<Option<Py<Clock>>>,
}

/// Sizes along dimensions; Python's integers have no end, ours do.
fn sizes(py: Python<'_>, given: &[Bound<'_, PyAny>]) -> PyResult<Vec<u64>> {
    let one = |size: &Bound<'_, PyAny>| {
        size.extract::<u64>().map_err(|_| {
            let e = Error::Invalid(format!("a dimension of size {size}; sizes are from 0 to {}", u64::MAX));
            to_py(py, &e, None)
        })
    };
    given.iter().map(one).collect()
}

#[pymethods]
impl Store {
    #[staticmethod]
    #[pyo3(signature = (path, mode, *, capacity=None, preset=None, geometry=None, placement=None, gc_policy=None,
        verify="once", io="map", threads=None, write_buffer=None, seed=0, salvage=false))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only options, one for one with the stub")]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        mode: &str,
        capacity: Option<u64>,
        preset: Option<&str>,
        geometry: Option<&Bound<'_, PyDict>>,
        placement: Option<String>,
        gc_policy: Option<String>,
        verify: &str,
        io: &str,
        threads: Option<usize>,
        write_buffer: Option<usize>,
        seed: u64,
        salvage: bool,
    ) -> PyResult<Self> {
        let geometry = fail(py, options::geometry(preset, geometry)?)?;
        let mode = fail(py, Mode::parse(mode))?;
        let policies = (placement, gc_policy);
        let options =
            options::options_of(geometry, capacity, policies, (verify, io), threads, write_buffer, (seed, salvage));
        let options = fail(py, options)?;
        let opened = detached(py, || Device::open_file(&path, mode, &options)).flatten();
        let device = opened.map_err(|e| to_py(py, &e, Some(&path.display().to_string())))?;
        let read_only = device.read_only();
        let device = Arc::new(RwLock::new(beside(device)));
        Ok(Self { device, opening: Opening { path, options, model: None }, read_only, clock: Mutex::new(None) })
    }

    /// A store on a described device, under the modelled clock. `device` is TOML, `overrides` a JSON object.
    #[staticmethod]
    #[pyo3(signature = (path, mode, device, overrides, *, bytes="file", placement=None, gc_policy=None, verify="once",
        write_buffer=None, seed=0, trace=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only options, one for one with the stub")]
    fn open_modelled(
        py: Python<'_>,
        path: PathBuf,
        mode: &str,
        device: &str,
        overrides: &str,
        bytes: &str,
        placement: Option<String>,
        gc_policy: Option<String>,
        verify: &str,
        write_buffer: Option<usize>,
        seed: u64,
        trace: Option<PathBuf>,
    ) -> PyResult<Self> {
        let description = crate::device::description(py, device, overrides)?;
        let bytes = match bytes {
            "file" => Bytes::File(path.clone()),
            "memory" => Bytes::Memory,
            "nowhere" => Bytes::Nowhere,
            _ => {
                let what = format!("unknown bytes {bytes:?}; there are \"file\", \"memory\" and \"nowhere\"");
                return Err(to_py(py, &Error::Invalid(what), None));
            }
        };
        let mode = fail(py, Mode::parse(mode))?;
        let policies = (placement, gc_policy);
        let options =
            options::options_of(Geometry::FILE, None, policies, (verify, "read"), Some(1), write_buffer, (seed, false));
        let options = fail(py, options)?;
        let opened = detached(py, || clock::open(&bytes, mode, options.clone(), &description, trace)).flatten();
        let (device, clock, timeline) = opened.map_err(|e| to_py(py, &e, Some(&path.display().to_string())))?;
        let read_only = device.read_only();
        let device: Shared = Arc::new(RwLock::new(beside(device)));
        let clock = Py::new(py, Clock::new(clock, device.clone(), timeline))?;
        let opening = Opening { path, options, model: Some(Model { description, bytes }) };
        Ok(Self { device, opening, read_only, clock: Mutex::new(Some(clock)) })
    }

    /// The modelled clock, if the store has one.
    #[getter]
    fn clock(&self, py: Python<'_>) -> Option<Py<Clock>> {
        self.clock.lock().as_ref().map(|clock| clock.clone_ref(py))
    }

    #[getter]
    fn path(&self) -> String {
        self.opening.path.display().to_string()
    }

    #[getter]
    fn read_only(&self) -> bool {
        self.read_only
    }

    #[getter]
    fn closed(&self) -> bool {
        self.device.read().is_none()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(device) = device_of(&self.device) else { return Ok(()) };
        // If the last flush fails (a full disk), the store stays open and nothing is lost. After a refused barrier, or
        // if the engine panicked, it is closed.
        let done = detached(py, || device.close()).flatten();
        if done.is_err() && !device.closed() {
            return fail(py, done);
        }
        let is_here = device.is_here();
        let gone = (self.device.write().take(), device);
        fail(py, detached(py, || drop(gone)))?;
        let done = fail(py, done);
        let clock = match &*self.clock.lock() {
            // In a forked process the clock, and the timeline, are the other's.
            Some(clock) if is_here => {
                let clock = clock.get();
                fail(py, detached(py, || clock.close()).flatten())
            }
            _ => Ok(()),
        };
        done.and(clock)
    }

    /// Panics inside of a command, as a broken invariant would: for tests.
    fn panic_on_purpose(&self, py: Python<'_>) -> PyResult<()> {
        let device = fail(py, device_of(&self.device))?;
        run(py, move || device.panic_on_purpose())
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.command(py, Command::Flush).map(drop)
    }

    /// Submits a flush.
    fn submit_flush(&self, py: Python<'_>) -> PyResult<Flight> {
        Flight::submit(py, &fail(py, device_of(&self.device))?, OwnedCommand::Flush, None)
    }

    /// Lets modelled time pass until the next command in flight is delivered; whether there was one.
    fn drive(&self, py: Python<'_>) -> PyResult<bool> {
        let device = fail(py, device_of(&self.device))?;
        run(py, move || device.drive(None))
    }

    #[pyo3(signature = (elf, metadata=None))]
    fn load_program(&self, py: Python<'_>, elf: &[u8], metadata: Option<&[u8]>) -> PyResult<u32> {
        let runtime = fail(py, runtime_of(&self.device))?;
        offload::load(py, &runtime, elf, metadata)
    }

    fn unload_program(&self, py: Python<'_>, program: u32) -> PyResult<()> {
        let runtime = fail(py, runtime_of(&self.device))?;
        offload::unload(py, &runtime, program)
    }

    /// Runs a program. `asked` has the attributes of `nandarray.programs.run.Asked`.
    fn execute<'py>(
        &self,
        py: Python<'py>,
        asked: offload::ExecuteRequest<'py>,
        watch: &offload::Watch,
    ) -> PyResult<Bound<'py, PyDict>> {
        let runtime = fail(py, runtime_of(&self.device))?;
        let clock = self.clock.lock().as_ref().map(|clock| clock.get().clock.clone());
        offload::execute(py, &runtime, clock.as_ref(), &asked, watch)
    }

    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        fail(py, device_of(&self.device))?;
        if !self.read_only {
            return Ok(());
        }
        let Opening { path, options, model } = self.opening.clone();
        if let Some(Model { description, bytes }) = model {
            // Another opening, on a clock of its own.
            let (new, clock, _) = run(py, move || clock::open(&bytes, Mode::Read, options, &description, None))?;
            *self.device.write() = beside(new);
            *self.clock.lock() = Some(Py::new(py, Clock::new(clock, self.device.clone(), None))?);
            return Ok(());
        }
        // The new one is open before the old one is let go of: the readers' lock is never free in between.
        let new = run(py, move || Device::open_file(&path, Mode::Read, &options))?;
        *self.device.write() = beside(new);
        Ok(())
    }

    fn nvme(&self, py: Python<'_>) -> PyResult<Nvme> {
        fail(py, Nvme::new(self.device.clone()))
    }

    #[pyo3(signature = (name, shape, itemsize, dtype, *, building_block=None, compression=None, encryption_key=None,
        fill=None, attrs="{}"))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only options, one for one with the stub")]
    fn create(
        &self,
        py: Python<'_>,
        name: &str,
        shape: Vec<Bound<'_, PyAny>>,
        itemsize: u32,
        dtype: &str,
        building_block: Option<Vec<u64>>,
        compression: Option<&str>,
        encryption_key: Option<Vec<u8>>,
        fill: Option<Vec<u8>>,
        attrs: &str,
    ) -> PyResult<Space> {
        let shape = sizes(py, &shape)?;
        let new = NewSpace {
            name,
            shape: &shape,
            item_bytes: itemsize,
            dtype,
            block: building_block.as_deref(),
            compression,
            key: encryption_key.as_deref(),
            fill: fill.as_deref(),
            attrs,
        };
        let space = self.command(py, Command::Create(new))?.into_space();
        Ok(self.handle(space, encryption_key))
    }

    #[pyo3(signature = (name, *, encryption_key=None))]
    fn open_space(&self, py: Python<'_>, name: &str, encryption_key: Option<Vec<u8>>) -> PyResult<Space> {
        let command = Command::Open { name, key: encryption_key.as_deref() };
        let space = self.command(py, command)?.into_space();
        Ok(self.handle(space, encryption_key))
    }

    fn delete(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.command(py, Command::Delete { name }).map(drop)
    }

    fn rename(&self, py: Python<'_>, old: &str, new: &str) -> PyResult<()> {
        self.command(py, Command::Rename { from: old, to: new }).map(drop)
    }

    /// Deletes, renames, and sets attributes by name, in this order, all as one.
    #[pyo3(signature = (*, delete=vec![], rename=vec![], attrs=vec![]))]
    fn together(
        &self,
        py: Python<'_>,
        delete: Vec<String>,
        rename: Vec<(String, String)>,
        attrs: Vec<(String, String)>,
    ) -> PyResult<()> {
        let changes = changes(&delete, &rename, &attrs);
        self.command(py, Command::Together { changes: &changes }).map(drop)
    }

    fn __contains__(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        let device = fail(py, device_of(&self.device))?;
        match device.describe(name) {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(e) => Err(to_py(py, &e, None)),
        }
    }

    #[pyo3(signature = (prefix=""))]
    fn names(&self, py: Python<'_>, prefix: &str) -> PyResult<Vec<String>> {
        match self.command(py, Command::List { prefix })? {
            Reply::Names(names) => Ok(names),
            other => unreachable!("a listing gives names, not {other:?}"),
        }
    }

    fn describe<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        let device = fail(py, device_of(&self.device))?;
        let space = fail(py, device.describe(name))?;
        let record = space.peek().record.clone();
        let dict = PyDict::new(py);
        dict.set_item("name", &record.name)?;
        dict.set_item("shape", PyTuple::new(py, record.shape())?)?;
        dict.set_item("itemsize", record.item_bytes)?;
        dict.set_item("dtype", &record.dtype)?;
        dict.set_item("building_block", PyTuple::new(py, record.block())?)?;
        dict.set_item("compression", &record.compression)?;
        dict.set_item("encrypted", record.encryption.is_some())?;
        dict.set_item("fill", PyBytes::new(py, &record.fill))?;
        dict.set_item("attrs", &record.attrs)?;
        Ok(dict)
    }

    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        numbers(py, self.command(py, Command::Stat)?)
    }

    /// The numbers of every space by its name.
    fn stat_arrays<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let device = fail(py, device_of(&self.device))?;
        let dict = PyDict::new(py);
        for name in self.names(py, "")? {
            let Ok(space) = device.describe(&name) else { continue }; // deleted meanwhile
            dict.set_item(name, numbers(py, self.command(py, Command::StatSpace { space: space.id })?)?)?;
        }
        Ok(dict)
    }

    #[getter]
    fn dropped<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        fail(py, device_of(&self.device))?.dropped().map(|d| report::of_dropped(py, d)).transpose()
    }

    #[pyo3(signature = (*, repair=false, accept_older=false))]
    fn check<'py>(&self, py: Python<'py>, repair: bool, accept_older: bool) -> PyResult<Bound<'py, PyDict>> {
        let Reply::Checked(report) = self.command(py, Command::Check { repair, accept_older })? else {
            unreachable!("a check gives a report")
        };
        report::of_check(py, &report)
    }

    fn compact<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Reply::Bytes(freed) = self.command(py, Command::Compact)? else { unreachable!("compaction gives bytes") };
        let dict = PyDict::new(py);
        dict.set_item("bytes_freed", freed)?;
        Ok(dict)
    }

    fn geometry<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let device = fail(py, device_of(&self.device))?;
        let g = device.geometry();
        let (placement, gc_policy) = device.policies();
        let dict = PyDict::new(py);
        dict.set_item("page_bytes", g.page_bytes)?;
        dict.set_item("channels", g.channels)?;
        dict.set_item("banks", g.banks)?;
        dict.set_item("pages_per_block", g.pages_per_block)?;
        dict.set_item("segment_bytes", g.segment_bytes())?;
        dict.set_item("capacity_bytes", device.capacity_bytes())?;
        dict.set_item("placement", placement)?;
        dict.set_item("gc_policy", gc_policy)?;
        dict.set_item("uuid", PyBytes::new(py, &device.uuid()))?;
        Ok(dict)
    }
}

impl Store {
    fn command(&self, py: Python<'_>, command: Command<'_>) -> PyResult<Reply> {
        let device = fail(py, device_of(&self.device))?;
        let command = Sent(command);
        run(py, move || {
            let Sent(command) = { command };
            device.execute(command)
        })
    }

    fn handle(&self, space: Arc<engine::Space>, key: Option<Vec<u8>>) -> Space {
        Space {
            device: self.device.clone(),
            id: space.id,
            name: RwLock::new(space.peek().record.name.clone()),
            key,
            flights: None,
        }
    }
}

fn numbers<'py>(py: Python<'py>, reply: Reply) -> PyResult<Bound<'py, PyDict>> {
    let Reply::Numbers(numbers) = reply else { unreachable!("a stat gives numbers") };
    let dict = PyDict::new(py);
    for (name, value) in numbers {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

/// A command on its way to a thread without the GIL.
struct Sent<'a>(Command<'a>);

// SAFETY: what makes a command not `Send` is the address of a lent buffer, which the caller's frame keeps alive.
unsafe impl Send for Sent<'_> {}

#[pyclass(module = "nandarray._nandarray", frozen)]
pub(crate) struct Space {
    device: Shared,
    id: engine::SpaceId,
    /// The name when it was last looked up: to find the space again after a refresh, and for messages.
    name: RwLock<String>,
    key: Option<Vec<u8>>,
    /// Where reads and writes go that are submitted instead of executed.
    flights: Option<Mutex<Vec<Flight>>>,
}

impl Space {
    /// Its number in the device.
    pub(crate) fn number(&self) -> engine::SpaceId {
        self.id
    }

    /// Whether it is a space of this device.
    pub(crate) fn of(&self, device: &Arc<Device>) -> bool {
        self.device.read().as_ref().is_some_and(|own| Arc::ptr_eq(own.device(), device))
    }

    pub(crate) fn send(&self, py: Python<'_>, command: Command<'_>) -> PyResult<Reply> {
        let device = fail(py, device_of(&self.device))?;
        let command = Sent(command);
        let (key, name) = (&self.key, &self.name);
        run(py, move || {
            let Sent(command) = { command };
            if key.is_some() {
                // After a refresh the engine has forgotten the key.
                let name = name.read().clone();
                let _ = device.execute(Command::Open { name: &name, key: key.as_deref() });
            }
            device.execute(command)
        })
    }

    pub(crate) fn look<T>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&engine::Space, &engine::SpaceRecord) -> T,
    ) -> PyResult<T> {
        let device = fail(py, device_of(&self.device))?;
        let space = fail(py, device.by_id(self.id))?;
        let inner = space.peek();
        // Nearly always the same: a look is a part of every read, and small reads come by the million.
        if *self.name.read() != inner.record.name {
            *self.name.write() = inner.record.name.clone();
        }
        Ok(f(&space, &inner.record))
    }

    fn item_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.look(py, |s, _| s.shape.item_bytes)
    }

    fn boxed(&self, py: Python<'_>, array: &Bound<'_, PyUntypedArray>, selection: BoxArgs, out: bool) -> PyResult<()> {
        let lent = fail(py, lend(array, self.item_bytes(py)?, out))?;
        let BoxArgs { start, step, view } = selection;
        let step = step.unwrap_or_else(|| vec![1; start.len()]);
        let target = Target::Box {
            start: &start,
            step: &step,
            count: &lent.shape,
            strides: &lent.strides,
            view: view.as_deref(),
        };
        self.move_elements(py, self.transfer(target, lent.first, out), array)
    }

    /// Executes or submits a read or a write of an array's memory.
    fn move_elements(&self, py: Python<'_>, command: Command<'_>, array: &Bound<'_, PyUntypedArray>) -> PyResult<()> {
        let Some(flights) = &self.flights else { return self.send(py, command).map(drop) };
        let device = fail(py, device_of(&self.device))?;
        let command = OwnedCommand::of(&command).expect("reads and writes can be submitted");
        let kept = Some(array.clone().into_any().unbind());
        flights.lock().push(Flight::submit(py, &device, command, kept)?);
        Ok(())
    }

    fn transfer<'a>(&self, target: Target<'a>, first: *mut u8, out: bool) -> Command<'a> {
        let space = self.id;
        // SAFETY: address, shape and strides are those of a NumPy array that the Python caller holds; the target's
        // counts are that shape, so every element that it reaches is the array's. Writability was checked for `out`.
        unsafe {
            if out {
                Command::Read { space, target, out: BufferMut::from_raw(first) }
            } else {
                Command::Write { space, target, source: Source::from_raw(first) }
            }
        }
    }

    fn boxes(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyUntypedArray>,
        selection: BoxesArgs<'_, '_>,
        out: bool,
    ) -> PyResult<()> {
        let lent = fail(py, lend(array, self.item_bytes(py)?, out))?;
        let BoxesArgs { starts, step, view } = selection;
        let [boxes, dimensions] = [starts.shape()[0], starts.shape()[1]];
        if lent.shape.len() != dimensions + 1 || lent.shape[0] != boxes as u64 {
            let e = format!("{boxes} boxes of {dimensions} dimensions; the buffer has shape {:?}", lent.shape);
            return Err(to_py(py, &Error::Invalid(e), None));
        }
        let starts = starts.to_vec()?;
        let (count, strides, stride) = (&lent.shape[1..], &lent.strides[1..], lent.strides[0]);
        let target = Target::Boxes { starts: &starts, step: &step, count, strides, stride, view: view.as_deref() };
        self.move_elements(py, self.transfer(target, lent.first, out), array)
    }

    fn outer(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyUntypedArray>,
        axes: Vec<Bound<'_, PyAny>>,
        out: bool,
    ) -> PyResult<()> {
        let lent = fail(py, lend(array, self.item_bytes(py)?, out))?;
        let axes = axes.iter().map(axis).collect::<PyResult<Vec<_>>>()?;
        let counts: Vec<u64> = axes.iter().map(nandarray::stl::plan::Axis::count).collect();
        if counts != lent.shape {
            let e = Error::Invalid(format!("the selection has shape {counts:?}; the buffer has {:?}", lent.shape));
            return Err(to_py(py, &e, None));
        }
        let target = Target::Outer { axes, strides: &lent.strides };
        self.move_elements(py, self.transfer(target, lent.first, out), array)
    }

    fn points(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyUntypedArray>,
        coordinates: &Bound<'_, PyArray2<u64>>,
        out: bool,
    ) -> PyResult<()> {
        let lent = fail(py, lend(array, self.item_bytes(py)?, out))?;
        let points = coordinates.shape()[0];
        if lent.shape != [points as u64] {
            let e = Error::Invalid(format!("{points} points need a buffer of shape ({points},), not {:?}", lent.shape));
            return Err(to_py(py, &e, None));
        }
        let coordinates = coordinates.to_vec()?;
        let target = Target::Points { coordinates: &coordinates, stride: lent.strides[0] };
        self.move_elements(py, self.transfer(target, lent.first, out), array)
    }
}

struct BoxesArgs<'a, 'py> {
    starts: &'a Bound<'py, PyArray2<u64>>,
    step: Vec<u64>,
    view: Option<Vec<u64>>,
}

struct BoxArgs {
    start: Vec<u64>,
    step: Option<Vec<u64>>,
    view: Option<Vec<u64>>,
}

#[pymethods]
impl Space {
    /// The same space, whose reads and writes are submitted and collected.
    fn in_flight(&self) -> Self {
        let name = RwLock::new(self.name.read().clone());
        Self { device: self.device.clone(), id: self.id, name, key: self.key.clone(), flights: Some(Mutex::default()) }
    }

    /// The commands that were submitted since the last time.
    fn take_flights(&self) -> Vec<Flight> {
        self.flights.as_ref().map(|flights| std::mem::take(&mut *flights.lock())).unwrap_or_default()
    }

    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        self.look(py, |_, r| r.name.clone())
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.look(py, |_, r| r.shape().to_vec())?)
    }

    #[getter]
    fn itemsize(&self, py: Python<'_>) -> PyResult<usize> {
        self.item_bytes(py)
    }

    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<String> {
        self.look(py, |_, r| r.dtype.clone())
    }

    #[getter]
    fn building_block<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.look(py, |_, r| r.block().to_vec())?)
    }

    #[getter]
    fn compression(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.look(py, |_, r| r.compression.clone())
    }

    #[getter]
    fn encrypted(&self, py: Python<'_>) -> PyResult<bool> {
        self.look(py, |s, _| s.encrypted())
    }

    #[getter]
    fn fill<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.look(py, |_, r| r.fill.clone())?))
    }

    #[getter]
    fn attrs(&self, py: Python<'_>) -> PyResult<String> {
        self.look(py, |_, r| r.attrs.clone())
    }

    fn set_attrs(&self, py: Python<'_>, attrs: &str) -> PyResult<()> {
        self.send(py, Command::SetAttrs { space: self.id, attrs }).map(drop)
    }

    fn resize(&self, py: Python<'_>, shape: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let shape = sizes(py, &shape)?;
        self.send(py, Command::Resize { space: self.id, shape: &shape }).map(drop)
    }

    #[pyo3(signature = (out, start, step=None, view=None))]
    fn read(
        &self,
        py: Python<'_>,
        out: &Bound<'_, PyUntypedArray>,
        start: Vec<u64>,
        step: Option<Vec<u64>>,
        view: Option<Vec<u64>>,
    ) -> PyResult<()> {
        self.boxed(py, out, BoxArgs { start, step, view }, true)
    }

    #[pyo3(signature = (src, start, step=None, view=None))]
    fn write(
        &self,
        py: Python<'_>,
        src: &Bound<'_, PyUntypedArray>,
        start: Vec<u64>,
        step: Option<Vec<u64>>,
        view: Option<Vec<u64>>,
    ) -> PyResult<()> {
        self.boxed(py, src, BoxArgs { start, step, view }, false)
    }

    /// Grows the space along an axis and writes the new part, as one; the shape then.
    fn append<'py>(
        &self,
        py: Python<'py>,
        src: &Bound<'_, PyUntypedArray>,
        axis: usize,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let lent = fail(py, lend(src, self.item_bytes(py)?, false))?;
        // SAFETY: as in `transfer`.
        let source = unsafe { Source::from_raw(lent.first) };
        let (count, strides) = (&lent.shape, &lent.strides);
        match self.send(py, Command::Append { space: self.id, axis, count, strides, source })? {
            Reply::Shape(shape) => PyTuple::new(py, shape),
            other => unreachable!("an append gives a shape, not {other:?}"),
        }
    }

    #[pyo3(signature = (out, starts, step, view=None))]
    fn read_boxes(
        &self,
        py: Python<'_>,
        out: &Bound<'_, PyUntypedArray>,
        starts: &Bound<'_, PyArray2<u64>>,
        step: Vec<u64>,
        view: Option<Vec<u64>>,
    ) -> PyResult<()> {
        self.boxes(py, out, BoxesArgs { starts, step, view }, true)
    }

    #[pyo3(signature = (src, starts, step, view=None))]
    fn write_boxes(
        &self,
        py: Python<'_>,
        src: &Bound<'_, PyUntypedArray>,
        starts: &Bound<'_, PyArray2<u64>>,
        step: Vec<u64>,
        view: Option<Vec<u64>>,
    ) -> PyResult<()> {
        self.boxes(py, src, BoxesArgs { starts, step, view }, false)
    }

    fn read_outer(&self, py: Python<'_>, out: &Bound<'_, PyUntypedArray>, axes: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        self.outer(py, out, axes, true)
    }

    fn write_outer(
        &self,
        py: Python<'_>,
        src: &Bound<'_, PyUntypedArray>,
        axes: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.outer(py, src, axes, false)
    }

    fn read_points(
        &self,
        py: Python<'_>,
        out: &Bound<'_, PyUntypedArray>,
        coords: &Bound<'_, PyArray2<u64>>,
    ) -> PyResult<()> {
        self.points(py, out, coords, true)
    }

    fn write_points(
        &self,
        py: Python<'_>,
        src: &Bound<'_, PyUntypedArray>,
        coords: &Bound<'_, PyArray2<u64>>,
    ) -> PyResult<()> {
        self.points(py, src, coords, false)
    }

    fn deallocate(&self, py: Python<'_>, start: Vec<u64>, count: Vec<u64>) -> PyResult<()> {
        self.send(py, Command::Deallocate { space: self.id, start: &start, count: &count }).map(drop)
    }

    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        numbers(py, self.send(py, Command::StatSpace { space: self.id })?)
    }
}
