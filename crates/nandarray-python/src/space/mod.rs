//! A space: reads and writes of its boxes, outer selections and points, to and from NumPy's memory.

mod send;

use std::sync::Arc;

use nandarray::{Axis, Device, Error, Source, Space, SpaceId, SpaceRecord, Target, command};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use parking_lot::{Mutex, RwLock};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::buffers::{axis, lend};
use crate::errors::to_py;
use crate::flight::PyFlight;
use crate::handle::{SharedRuntime, device_of, fail, numbers, sizes};

/// An array as the engine sees it: elements of some bytes, addressed by boxes and points, without a dtype's meaning.
#[pyclass(module = "nandarray._nandarray", name = "Space", frozen)]
pub(crate) struct PySpace {
    device: SharedRuntime,
    id: SpaceId,
    /// The space's name at the last look-up, for error messages and for opening the space again after a refresh.
    name: RwLock<String>,
    key: Option<Vec<u8>>,
    /// Commands that were submitted and that `take_flights` has not returned; `None` on a handle that executes reads
    /// and writes instead of submitting them.
    flights: Option<Mutex<Vec<PyFlight>>>,
}

impl PySpace {
    pub(crate) fn new(device: SharedRuntime, space: &Space, key: Option<Vec<u8>>) -> Self {
        let name = RwLock::new(space.peek().record.name.clone());
        Self { device, id: space.id, name, key, flights: None }
    }

    /// The space's number in the device.
    pub(crate) fn number(&self) -> SpaceId {
        self.id
    }

    /// Whether the space belongs to this device.
    pub(crate) fn of(&self, device: &Arc<Device>) -> bool {
        self.device.read().as_ref().is_some_and(|own| Arc::ptr_eq(own.device(), device))
    }

    pub(crate) fn look<T>(&self, py: Python<'_>, f: impl FnOnce(&Space, &SpaceRecord) -> T) -> PyResult<T> {
        let device = fail(py, device_of(&self.device))?;
        let space = fail(py, device.by_id(self.id))?;
        let inner = space.peek();
        // The name rarely changes. Every read passes here, and there may be millions of small ones, so the write lock
        // is avoided.
        if *self.name.read() != inner.record.name {
            *self.name.write() = inner.record.name.clone();
        }
        Ok(f(&space, &inner.record))
    }

    /// Calls `f` with the shape `view`, or with the space's own. Returns `None`, without a call, if elements of the
    /// space do not have `item_bytes` bytes, the shape has no dimensions, or the view has another number of elements.
    pub(crate) fn with_shape<T>(
        &self,
        py: Python<'_>,
        view: Option<&[u64]>,
        item_bytes: usize,
        f: impl FnOnce(&[u64]) -> PyResult<Option<T>>,
    ) -> PyResult<Option<T>> {
        self.look(py, |space, record| {
            let own = record.shape();
            let alike = view.is_none_or(|view| volume(view).is_some_and(|n| volume(own) == Some(n)));
            let shape = view.unwrap_or(own);
            let fits = alike && !shape.is_empty() && space.shape.item_bytes == item_bytes;
            if fits { f(shape) } else { Ok(None) }
        })?
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
        self.transfer(py, target, lent.first, out, array)
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
        self.transfer(py, target, lent.first, out, array)
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
        let counts: Vec<u64> = axes.iter().map(Axis::count).collect();
        if counts != lent.shape {
            let e = Error::Invalid(format!("the selection has shape {counts:?}; the buffer has {:?}", lent.shape));
            return Err(to_py(py, &e, None));
        }
        let target = Target::Outer { axes: &axes, strides: &lent.strides };
        self.transfer(py, target, lent.first, out, array)
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
        self.transfer(py, target, lent.first, out, array)
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
impl PySpace {
    /// Returns a handle of the same space that submits reads and writes instead of executing them, and collects the
    /// flights.
    fn in_flight(&self) -> Self {
        let name = RwLock::new(self.name.read().clone());
        Self { device: self.device.clone(), id: self.id, name, key: self.key.clone(), flights: Some(Mutex::default()) }
    }

    /// Takes the commands that this handle has submitted since the last call.
    fn take_flights(&self) -> Vec<PyFlight> {
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
        self.send(py, command::SetAttrs { space: self.id, attrs })
    }

    fn resize(&self, py: Python<'_>, shape: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let shape = sizes(py, &shape)?;
        self.send(py, command::Resize { space: self.id, shape: &shape })
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

    /// Grows the space along an axis and writes `src` to the new part, as one command; returns the new shape.
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
        PyTuple::new(py, self.send(py, command::Append { space: self.id, axis, count, strides, source })?)
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

    /// Calls `work` once all commands so far have ended: at once, since this handle executes them.
    #[staticmethod]
    fn after(work: &Bound<'_, PyAny>) -> PyResult<()> {
        work.call0().map(drop)
    }

    fn deallocate(&self, py: Python<'_>, start: Vec<u64>, count: Vec<u64>) -> PyResult<()> {
        self.send(py, command::Deallocate { space: self.id, start: &start, count: &count })
    }

    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u64>>> {
        Ok(self.send(py, command::ListBlocks { space: self.id })?.into_pyarray(py))
    }

    /// Copies building blocks from a space with the same elements, building block, compression and fill value, as they
    /// are stored; returns for each whether it was copied. A block without content, or with a part in a write buffer,
    /// is not.
    fn copy_stored(&self, py: Python<'_>, source: &Self, blocks: &Bound<'_, PyArray2<u64>>) -> PyResult<Vec<bool>> {
        let each = blocks.shape()[1];
        let blocks = blocks.to_vec()?;
        let found = source.send(py, command::ReadStored { space: source.id, blocks: &blocks })?;
        let payloads: Vec<&[u8]> = found.iter().flatten().map(Vec::as_slice).collect();
        let there = found.iter().zip(blocks.chunks_exact(each)).filter(|(payload, _)| payload.is_some());
        let blocks: Vec<u64> = there.flat_map(|(_, at)| at).copied().collect();
        if !payloads.is_empty() {
            self.send(py, command::WriteStored { space: self.id, blocks: &blocks, payloads: &payloads })?;
        }
        Ok(found.iter().map(Option::is_some).collect())
    }

    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        numbers(py, self.send(py, command::StatSpace { space: self.id })?)
    }
}

/// Returns the number of elements of a shape; `None` if it exceeds 64 bits.
fn volume(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1u64, |n, &size| n.checked_mul(size))
}
