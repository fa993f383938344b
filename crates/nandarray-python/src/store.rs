//! A store: opened, closed and refreshed; its arrays by name; programs loaded and run.

use std::path::PathBuf;
use std::sync::Arc;

use nandarray::{
    Command, Device, Error, Geometry, IdentityChoice, Mode, NewSpace, Options, OwnedCommand, Space, command, names,
};
use nandarray_model::describe::Description;
use nandarray_model::store::Backing;
use nandarray_runtime::Runtime;
use parking_lot::{Mutex, RwLock};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::clock::{self, PyClock};
use crate::errors::{detached, to_py};
use crate::flight::PyFlight;
use crate::handle::sizes;
use crate::handle::{SharedRuntime, changes, device_of, fail, numbers, run, runtime_of};
use crate::nvme::PyNvme;
use crate::queues::PyQueueServer;
use crate::space::PySpace;
use crate::{offload, options, report, session};

/// Arguments with which a store was opened; `refresh` opens it again with them.
#[derive(Clone)]
struct ReopenArgs {
    path: PathBuf,
    options: Options,
    model: Option<Model>,
    /// Whether the bytes are those of an object far away, which stay as they are.
    far: bool,
}

/// The described device of a modelled store, and the place of the store's bytes.
#[derive(Clone)]
struct Model {
    description: Description,
    bytes: Backing,
}

/// Checks a new name of an array by the engine's rule; `chosen` is whether a user has chosen it.
#[pyfunction]
#[pyo3(signature = (name, *, chosen))]
pub(crate) fn check_name(py: Python<'_>, name: &str, chosen: bool) -> PyResult<()> {
    fail(py, if chosen { names::check_chosen_name(name) } else { names::check_name(name) })
}

fn beside(device: Device) -> Option<Arc<Runtime>> {
    Some(Arc::new(Runtime::new(Arc::new(device))))
}

/// An open or closed store.
#[pyclass(module = "nandarray._nandarray", name = "Store", frozen)]
pub(crate) struct PyStore {
    pub(crate) device: SharedRuntime,
    opening: ReopenArgs,
    read_only: bool,
    clock: Mutex<Option<Py<PyClock>>>,
    /// The snapshot whose arrays are seen; `None` for the store as it is.
    snapshot: Option<Shown>,
}

#[pymethods]
impl PyStore {
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
        Ok(Self {
            device,
            opening: ReopenArgs { path, options, model: None, far: false },
            read_only,
            clock: Mutex::new(None),
            snapshot: None,
        })
    }

    /// Opens, for reading, the store in an object far away.
    #[staticmethod]
    #[pyo3(signature = (far, *, verify="once", threads=None))]
    fn open_far(py: Python<'_>, far: &crate::far::PyFar, verify: &str, threads: Option<usize>) -> PyResult<Self> {
        let path = PathBuf::from(&far.url);
        let options =
            options::options_of(Geometry::FILE, None, (None, None), (verify, "map"), threads, None, (0, false));
        let options = fail(py, options)?;
        let media = far.media.clone();
        let opened = detached(py, || Device::open(media, &far.url, Mode::Read, &options)).flatten();
        let device = opened.map_err(|e| to_py(py, &e, Some(&far.url)))?;
        let device = Arc::new(RwLock::new(beside(device)));
        let opening = ReopenArgs { path, options, model: None, far: true };
        Ok(Self { device, opening, read_only: true, clock: Mutex::new(None), snapshot: None })
    }

    /// Opens a store on a described device, under the modelled clock. `device` is the description in TOML, `overrides`
    /// a JSON object of changed values, `bytes` the place of the store's bytes ("file", "memory" or "nowhere"), `trace`
    /// a file for the timeline.
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
            "file" => Backing::File(path.clone()),
            "memory" => Backing::Memory,
            "nowhere" => Backing::Nowhere,
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
        let device: SharedRuntime = Arc::new(RwLock::new(beside(device)));
        let clock = Py::new(py, PyClock::new(clock, device.clone(), timeline))?;
        let opening = ReopenArgs { path, options, model: Some(Model { description, bytes }), far: false };
        Ok(Self { device, opening, read_only, clock: Mutex::new(Some(clock)), snapshot: None })
    }

    /// Returns the store as a snapshot keeps it, for reading.
    fn at(&self, py: Python<'_>, snapshot: String) -> PyResult<Self> {
        let taken = fail(py, fail(py, device_of(&self.device))?.snapshot_taken(&snapshot))?;
        let snapshot = Shown { name: snapshot, taken };
        let device = Arc::new(RwLock::new(Some(fail(py, runtime_of(&self.device))?)));
        let clock = Mutex::new(self.clock(py));
        Ok(Self { device, opening: self.opening.clone(), read_only: true, clock, snapshot: Some(snapshot) })
    }

    fn take_snapshot(&self, py: Python<'_>, name: &str, time: u64) -> PyResult<()> {
        self.check_live(py)?;
        self.command(py, command::TakeSnapshot { name, time })
    }

    fn delete_snapshot(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.check_live(py)?;
        self.command(py, command::DeleteSnapshot { name })
    }

    /// Number of the command that took the snapshot that is seen, and its time; `None` for a store as it is.
    #[getter]
    fn taken(&self) -> Option<(u64, u64)> {
        self.snapshot.as_ref().map(|shown| shown.taken)
    }

    /// Returns name, time, number of arrays and bytes held of every snapshot, the oldest first.
    fn snapshots(&self, py: Python<'_>) -> PyResult<Vec<(String, u64, u64, u64)>> {
        let all = self.command(py, command::Snapshots)?;
        Ok(all.into_iter().map(|one| (one.name, one.time, one.spaces, one.bytes_held)).collect())
    }

    /// Opens a session in which kernels run on this store; with the JSON of a platform and of a core, on a modelled
    /// accelerator.
    #[pyo3(signature = (scheduler, workers, memory_bytes, window_bytes, accelerator=None))]
    fn session(
        &self,
        py: Python<'_>,
        scheduler: String,
        workers: usize,
        memory_bytes: u64,
        window_bytes: u64,
        accelerator: Option<(String, String)>,
    ) -> PyResult<session::PySession> {
        session::open(py, &self.device, scheduler, (workers, memory_bytes, window_bytes), accelerator)
    }

    /// The store's modelled clock; `None` for a store that is not modelled.
    #[getter]
    pub(crate) fn clock(&self, py: Python<'_>) -> Option<Py<PyClock>> {
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
        if self.snapshot.is_some() {
            // The store itself stays open.
            let gone = (self.device.write().take(), device);
            return fail(py, detached(py, || drop(gone)));
        }
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
            // In a forked process, clock and timeline belong to the process that opened the store.
            Some(clock) if is_here => {
                let clock = clock.get();
                fail(py, detached(py, || clock.close()).flatten())
            }
            _ => Ok(()),
        };
        done.and(clock)
    }

    /// Panics inside a command, as a broken invariant would; used by tests.
    fn panic_on_purpose(&self, py: Python<'_>) -> PyResult<()> {
        let device = fail(py, device_of(&self.device))?;
        run(py, move || device.panic_on_purpose())
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.check_live(py)?;
        self.command(py, command::Flush)
    }

    /// Submits a flush without waiting for it.
    fn submit_flush(&self, py: Python<'_>) -> PyResult<PyFlight> {
        self.check_live(py)?;
        PyFlight::submit(py, &fail(py, device_of(&self.device))?, OwnedCommand::Flush, None)
    }

    /// Lets modelled time pass until the next command in flight completes; returns false if no command was in flight.
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

    /// Runs programs. `asked` has the attributes of `_Asked` in `nandarray.programs.run`.
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

    /// Returns where the inputs of a request's only program would be cut into tasks: the first records of all tasks and
    /// the end of the last one; and how many consecutive tasks have one state. None if they cannot be divided.
    fn task_cuts(&self, py: Python<'_>, asked: offload::ExecuteRequest<'_>) -> PyResult<Option<(Vec<u64>, u64)>> {
        let runtime = fail(py, runtime_of(&self.device))?;
        offload::task_cuts(py, &runtime, &asked)
    }

    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        fail(py, device_of(&self.device))?;
        if !self.read_only || self.snapshot.is_some() || self.opening.far {
            return Ok(());
        }
        let ReopenArgs { path, options, model, .. } = self.opening.clone();
        if let Some(Model { description, bytes }) = model {
            // The store is opened anew, on a new clock.
            let (new, clock, _) = run(py, move || clock::open(&bytes, Mode::Read, options, &description, None))?;
            *self.device.write() = beside(new);
            *self.clock.lock() = Some(Py::new(py, PyClock::new(clock, self.device.clone(), None))?);
            return Ok(());
        }
        // The new device is opened before the old one is dropped, so that the readers' lock is never free in between.
        let new = run(py, move || Device::open_file(&path, Mode::Read, &options))?;
        *self.device.write() = beside(new);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "keyword-only options, one for one with the stub")]
    #[pyo3(signature = (name, *, queues, depth, data_bytes, threads, writable, group=None, catalog=None))]
    fn serve_queues(
        &self,
        py: Python<'_>,
        name: &str,
        queues: u32,
        depth: u32,
        data_bytes: u64,
        threads: u32,
        writable: bool,
        group: Option<u32>,
        catalog: Option<Vec<u8>>,
    ) -> PyResult<PyQueueServer> {
        self.check_served(py)?;
        let device = fail(py, device_of(&self.device))?;
        PyQueueServer::start(
            py,
            &device,
            name,
            (queues, depth, data_bytes, threads),
            (writable, group),
            catalog.unwrap_or_default(),
        )
    }

    /// Chooses the identity that the store has as a drive: "own", "kept" or "new"; returns the identity that a copy of
    /// a file gives up, or None.
    fn choose_identity(&self, py: Python<'_>, choice: &str) -> PyResult<Option<[u8; 16]>> {
        self.check_served(py)?;
        let choice = match choice {
            "own" => IdentityChoice::Own,
            "kept" => IdentityChoice::Kept,
            "new" => IdentityChoice::New,
            _ => {
                let what = format!("identity {choice:?}; it must be \"own\", \"kept\" or \"new\"");
                return Err(to_py(py, &Error::Invalid(what), None));
            }
        };
        let device = fail(py, device_of(&self.device))?;
        run(py, move || device.choose_identity(choice))
    }

    /// Returns the state of the store's file now; None for a store in no file.
    fn file_state<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(state) = fail(py, device_of(&self.device))?.file_state() else { return Ok(None) };
        let dict = PyDict::new(py);
        dict.set_item("uid", state.uid)?;
        dict.set_item("gid", state.gid)?;
        dict.set_item("mode", state.mode)?;
        dict.set_item("names", state.names)?;
        dict.set_item("at_path", state.at_path)?;
        Ok(Some(dict))
    }

    fn nvme(&self, py: Python<'_>) -> PyResult<PyNvme> {
        self.check_served(py)?;
        fail(py, PyNvme::new(self.device.clone()))
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
    ) -> PyResult<PySpace> {
        self.check_live(py)?;
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
        let space = self.command(py, command::Create(new))?;
        Ok(self.handle(&space, encryption_key))
    }

    #[pyo3(signature = (name, *, encryption_key=None))]
    fn open_space(&self, py: Python<'_>, name: &str, encryption_key: Option<Vec<u8>>) -> PyResult<PySpace> {
        let key = encryption_key.as_deref();
        let space = match &self.snapshot {
            None => self.command(py, command::Open { name, key })?,
            Some(shown) => {
                let space = self.command(py, command::OpenAt { snapshot: &shown.name, name, key })?;
                fail(py, shown.check(&*fail(py, device_of(&self.device))?))?;
                space
            }
        };
        Ok(self.handle(&space, encryption_key))
    }

    fn delete(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.check_live(py)?;
        self.command(py, command::Delete { name })
    }

    fn rename(&self, py: Python<'_>, old: &str, new: &str) -> PyResult<()> {
        self.check_live(py)?;
        self.command(py, command::Rename { from: old, to: new })
    }

    /// Deletes arrays, then renames arrays (from, to), then sets attributes (array, JSON), all as one command.
    #[pyo3(signature = (*, delete=vec![], rename=vec![], attrs=vec![]))]
    fn together(
        &self,
        py: Python<'_>,
        delete: Vec<String>,
        rename: Vec<(String, String)>,
        attrs: Vec<(String, String)>,
    ) -> PyResult<()> {
        self.check_live(py)?;
        let changes = changes(&delete, &rename, &attrs);
        self.command(py, command::Batch { changes: &changes })
    }

    fn __contains__(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        match self.find(py, name)? {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(e) => Err(to_py(py, &e, None)),
        }
    }

    #[pyo3(signature = (prefix=""))]
    fn names(&self, py: Python<'_>, prefix: &str) -> PyResult<Vec<String>> {
        match &self.snapshot {
            None => self.command(py, command::List { prefix }),
            Some(shown) => {
                let names = self.command(py, command::ListAt { snapshot: &shown.name, prefix })?;
                fail(py, shown.check(&*fail(py, device_of(&self.device))?))?;
                Ok(names)
            }
        }
    }

    fn describe<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        let found = self.find(py, name)?;
        let space = fail(py, found)?;
        let record = space.peek().record.clone();
        let dict = PyDict::new(py);
        dict.set_item("array", record.id)?;
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
        numbers(py, self.command(py, command::Stat)?)
    }

    /// Returns a dictionary from the name of every array to its counters.
    fn stat_arrays<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for name in self.names(py, "")? {
            let Ok(space) = self.find(py, &name)? else { continue }; // deleted meanwhile
            dict.set_item(name, numbers(py, self.command(py, command::StatSpace { space: space.id })?)?)?;
        }
        Ok(dict)
    }

    #[getter]
    fn dropped<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        fail(py, device_of(&self.device))?.dropped().map(|d| report::of_dropped(py, d)).transpose()
    }

    #[pyo3(signature = (*, repair=false, accept_older=false))]
    fn check<'py>(&self, py: Python<'py>, repair: bool, accept_older: bool) -> PyResult<Bound<'py, PyDict>> {
        if repair {
            self.check_live(py)?;
        }
        report::of_check(py, &self.command(py, command::Check { repair, accept_older })?)
    }

    fn compact<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.check_live(py)?;
        let freed = self.command(py, command::Compact)?;
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

/// A snapshot whose arrays a store sees.
struct Shown {
    name: String,
    /// As [`Device::snapshot_taken`] told it.
    taken: (u64, u64),
}

impl Shown {
    /// Checks, after a command on the snapshot, that it was this one: another may have got its name since.
    fn check(&self, device: &Device) -> Result<(), Error> {
        let name = &self.name;
        match device.snapshot_taken(name)? {
            taken if taken == self.taken => Ok(()),
            _ => Err(Error::Closed(format!(
                "snapshot {name:?} was deleted, and another one has its name: open that one by at({name:?})"
            ))),
        }
    }
}

impl PyStore {
    fn command<C: Command>(&self, py: Python<'_>, command: C) -> PyResult<C::Reply> {
        let device = fail(py, device_of(&self.device))?;
        run(py, move || device.execute(command))
    }

    /// Finds an array by its name, in the store as it is or in the snapshot.
    fn find(&self, py: Python<'_>, name: &str) -> PyResult<nandarray::Result<Arc<Space>>> {
        let device = fail(py, device_of(&self.device))?;
        Ok(match &self.snapshot {
            None => device.describe(name),
            Some(shown) => {
                let found = device.describe_at(&shown.name, name);
                fail(py, shown.check(&device))?;
                found
            }
        })
    }

    /// Refuses changes to a snapshot.
    fn check_live(&self, py: Python<'_>) -> PyResult<()> {
        fail(py, if self.snapshot.is_some() { Err(Error::ReadOnly) } else { Ok(()) })
    }

    /// Refuses to serve a snapshot: hosts would see the store as it is.
    fn check_served(&self, py: Python<'_>) -> PyResult<()> {
        let Some(Shown { name, .. }) = &self.snapshot else { return Ok(()) };
        let what = format!("snapshot {name:?} cannot be served: serve the store, or a copy of the snapshot");
        fail(py, Err(Error::Invalid(what)))
    }

    fn handle(&self, space: &Arc<Space>, key: Option<Vec<u8>>) -> PySpace {
        PySpace::new(self.device.clone(), space, key)
    }
}

impl Drop for PyStore {
    fn drop(&mut self) {
        // Commands in flight keep the device alive, and their callbacks keep the buffers: let them end.
        if let Ok(device) = device_of(&self.device) {
            Python::attach(|py| py.detach(|| while let Ok(true) = device.drive(None) {}));
        }
    }
}
