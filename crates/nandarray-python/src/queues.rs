//! Queue pairs in shared memory: a server on a store, and a client of any server of this machine.

use std::sync::Arc;
use std::time::Duration;

use nandarray::{Device, Error, Home};
use nandarray_queues::{QueueClient, QueueError, QueueServer, RegionGeometry, ServeOptions, region_path};
use numpy::{PyArray1, PyArrayMethods, PyUntypedArray};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::buffers::lend;
use crate::errors::{detached, to_py};
use crate::handle::{at_home, numbers};

/// Converts an error of the queues to the engine's error with the same meaning, from which the Python exception is
/// made.
fn engine(error: QueueError) -> Error {
    match error {
        QueueError::Store(error) => error,
        QueueError::Gone(_) | QueueError::Forked(_) | QueueError::TimedOut(_) => Error::Closed(error.to_string()),
        other => Error::Invalid(other.to_string()),
    }
}

fn run<T: Send>(py: Python<'_>, call: impl Send + FnOnce() -> Result<T, QueueError>) -> PyResult<T> {
    detached(py, call).and_then(|done| done.map_err(engine)).map_err(|e| to_py(py, &e, None))
}

/// Returns the path of the region of a name.
#[pyfunction]
pub(crate) fn queue_path(name: &str) -> String {
    region_path(name).display().to_string()
}

/// A server of queue pairs in shared memory.
#[pyclass(module = "nandarray._nandarray", name = "QueueServer", frozen)]
pub(crate) struct PyQueueServer {
    server: Mutex<QueueServer>,
    home: Home,
}

impl PyQueueServer {
    pub(crate) fn start(
        py: Python<'_>,
        device: &Arc<Device>,
        name: &str,
        (queues, depth, data_bytes, threads): (u32, u32, u64, u32),
        (writable, group): (bool, Option<u32>),
        catalog: Vec<u8>,
    ) -> PyResult<Self> {
        let geometry = RegionGeometry { queues, depth, data_bytes, threads };
        let server = run(py, || QueueServer::start(device, name, ServeOptions { geometry, writable, group, catalog }))?;
        Ok(Self { server: Mutex::new(server), home: Home::here() })
    }
}

#[pymethods]
impl PyQueueServer {
    fn stop(&self, py: Python<'_>) {
        // The server of a process that forked goes on there; its lock may be held by a thread that stayed behind.
        if self.home.is_here() {
            py.detach(|| self.server.lock().stop());
        }
    }

    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        at_home(py, self.home, "server")?;
        let c = self.server.lock().counts();
        numbers(py, vec![("commands", c.commands), ("served", c.served), ("dead", c.dead)])
    }

    fn arrays(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        at_home(py, self.home, "server")?;
        Ok(self.server.lock().arrays())
    }

    fn lost(&self, py: Python<'_>) -> PyResult<bool> {
        at_home(py, self.home, "server")?;
        Ok(self.server.lock().lost())
    }

    fn failed(&self, py: Python<'_>) -> PyResult<bool> {
        at_home(py, self.home, "server")?;
        Ok(self.server.lock().failed())
    }
}

/// A client's queue pair, claimed from a server of this machine.
#[pyclass(module = "nandarray._nandarray", name = "QueueClient", frozen)]
pub(crate) struct PyQueueClient {
    client: QueueClient,
}

/// Returns address and length in bytes of a contiguous array of bytes; fails for any other array, and for a read-only
/// one if `write`.
fn memory(py: Python<'_>, array: &Bound<'_, PyUntypedArray>, write: bool) -> PyResult<(usize, u64)> {
    let lent = lend(array, 1, write).map_err(|e| to_py(py, &e, None))?;
    let (&[bytes], &[stride]) = (&lent.shape[..], &lent.strides[..]) else {
        let e = Error::Invalid(format!("memory must have one dimension, not {}", lent.shape.len()));
        return Err(to_py(py, &e, None));
    };
    if stride != 1 && bytes > 1 {
        return Err(to_py(py, &Error::Invalid(format!("memory with a stride of {stride} bytes")), None));
    }
    Ok((lent.first as usize, bytes))
}

#[pymethods]
impl PyQueueClient {
    #[staticmethod]
    #[pyo3(signature = (name, *, deadline_ms))]
    fn open(py: Python<'_>, name: &str, deadline_ms: u64) -> PyResult<Self> {
        let client = run(py, || QueueClient::open(name, Duration::from_millis(deadline_ms)))?;
        Ok(Self { client })
    }

    fn arrays(&self) -> Vec<(u32, String, String, Vec<u64>, u32, u64, bool)> {
        let row =
            |a: nandarray_queues::NamespaceInfo| (a.nsid, a.name, a.dtype, a.shape, a.item_bytes, a.bytes, a.writable);
        self.client.arrays().into_iter().map(row).collect()
    }

    fn gather(
        &self,
        py: Python<'_>,
        nsid: u32,
        record_bytes: u64,
        records: &Bound<'_, PyArray1<u64>>,
        out: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<()> {
        let records = records.readonly();
        let records = records.as_slice()?;
        let (to, bytes) = memory(py, out, true)?;
        if record_bytes.checked_mul(records.len() as u64) != Some(bytes) {
            let what = format!("{bytes} bytes for {} records of {record_bytes}", records.len());
            return Err(to_py(py, &Error::Invalid(what), None));
        }
        // SAFETY: the caller's frame keeps the array, which has room for all records.
        run(py, || unsafe { self.client.gather(nsid, record_bytes, records, to as *mut u8) })
    }

    fn read(&self, py: Python<'_>, nsid: u32, first_byte: u64, out: &Bound<'_, PyUntypedArray>) -> PyResult<()> {
        let (to, bytes) = memory(py, out, true)?;
        // SAFETY: as in `gather`.
        run(py, || unsafe { self.client.read(nsid, first_byte, bytes, to as *mut u8) })
    }

    fn write(&self, py: Python<'_>, nsid: u32, first_byte: u64, data: &Bound<'_, PyUntypedArray>) -> PyResult<()> {
        let (from, bytes) = memory(py, data, false)?;
        // SAFETY: the caller's frame keeps the array.
        run(py, || unsafe { self.client.write(nsid, first_byte, bytes, from as *const u8) })
    }

    /// Writes runs of equal size, one behind the other in `data`, from the bytes `firsts` on.
    fn write_runs(
        &self,
        py: Python<'_>,
        nsid: u32,
        item_bytes: u64,
        firsts: &Bound<'_, PyArray1<u64>>,
        data: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<()> {
        let firsts = firsts.readonly();
        let firsts = firsts.as_slice()?;
        let (from, bytes) = memory(py, data, false)?;
        let each = bytes / (firsts.len() as u64).max(1);
        if each * firsts.len() as u64 != bytes || item_bytes == 0 || !each.is_multiple_of(item_bytes) {
            let what = format!("{bytes} bytes for {} runs of elements of {item_bytes}", firsts.len());
            return Err(to_py(py, &Error::Invalid(what), None));
        }
        // SAFETY: the caller's frame keeps the array, which has the bytes of all runs.
        run(py, || unsafe { self.client.write_runs(nsid, item_bytes, firsts, each, from as *const u8) })
    }

    fn catalog<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.client.catalog())
    }

    fn flush(&self, py: Python<'_>, nsid: u32) -> PyResult<()> {
        run(py, || self.client.flush(nsid))
    }
}
