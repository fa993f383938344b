//! NVMe controllers for Python: submission entries in, completion entries out.
//!
//! A command arrives as the 64 bytes that any host would submit (`nvme_commands` encodes Python's commands). A store
//! that was refreshed has another device, which gets a new controller; views that were open end, as at a reset of a
//! controller.

use std::sync::Arc;

use nandarray::Error;
use nandarray::nvme::{Controller, DataBuffer, NewNamespace, Status};
use numpy::PyUntypedArray;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffers::lend;
use crate::errors::{detached, to_py};
use crate::handle::{SharedRuntime, device_of};

/// Returns every status code: the 15 bits of the status field, and the name.
#[pyfunction]
pub(crate) fn nvme_statuses() -> Vec<(u16, &'static str)> {
    Status::ALL.iter().map(|(status, name)| (status.bits(), *name)).collect()
}

/// An NVMe controller on a store.
#[pyclass(module = "nandarray._nandarray", name = "Nvme", frozen)]
pub(crate) struct PyNvme {
    device: SharedRuntime,
    controller: Mutex<Arc<Controller>>,
}

impl PyNvme {
    pub(crate) fn new(device: SharedRuntime) -> nandarray::Result<Self> {
        let controller = Mutex::new(Arc::new(Controller::new(&device_of(&device)?)));
        Ok(Self { device, controller })
    }

    fn controller(&self) -> Arc<Controller> {
        let mut controller = self.controller.lock();
        if let Some(device) = device_of(&self.device).ok().filter(|d| !controller.serves(d)) {
            *controller = Arc::new(Controller::new(&device));
        }
        controller.clone()
    }
}

fn bits(done: Result<(), Status>) -> u16 {
    done.err().unwrap_or(Status::SUCCESS).bits()
}

#[pymethods]
impl PyNvme {
    #[pyo3(signature = (entry, data=None, *, to_host=false, page=None))]
    fn submit<'py>(
        &self,
        py: Python<'py>,
        entry: &[u8],
        data: Option<&Bound<'py, PyUntypedArray>>,
        to_host: bool,
        page: Option<&[u8]>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let fail = |what: String| to_py(py, &Error::Invalid(what), None);
        let entry: [u8; 64] =
            entry.try_into().map_err(|_| fail(format!("an entry must have 64 bytes, not {}", entry.len())))?;
        let lent = match data.map(|array| lend(array, 1, to_host)).transpose().map_err(|e| to_py(py, &e, None))? {
            None => DataBuffer::NONE,
            Some(lent) => {
                let ([bytes], [stride]) = (&lent.shape[..], &lent.strides[..]) else {
                    return Err(fail(format!("data must have one dimension, not {}", lent.shape.len())));
                };
                if *stride != 1 && *bytes > 1 {
                    return Err(fail(format!("data must be contiguous, not with a stride of {stride} bytes")));
                }
                // SAFETY: the caller's frame keeps the array, whose bytes these are, until the command is done.
                unsafe {
                    if to_host {
                        DataBuffer::to_host_raw(lent.first, *bytes)
                    } else {
                        DataBuffer::to_controller_raw(lent.first, *bytes)
                    }
                }
            }
        };
        let lent = lent.with_page(page.unwrap_or_default());
        let controller = self.controller();
        let completion =
            detached(py, move || controller.submit_bytes(&entry, lent)).map_err(|e| to_py(py, &e, None))?;
        Ok(PyBytes::new(py, &completion))
    }

    #[pyo3(signature = (nsid, nsze, lba_bytes, *, compression=None, encryption_key=None))]
    fn create_namespace(
        &self,
        py: Python<'_>,
        nsid: u32,
        nsze: u64,
        lba_bytes: u32,
        compression: Option<&str>,
        encryption_key: Option<&[u8]>,
    ) -> PyResult<u16> {
        let new = NewNamespace { nsid, nsze, lba_bytes, compression, key: encryption_key };
        let controller = self.controller();
        let done = detached(py, move || controller.create_namespace(&new));
        done.map(bits).map_err(|e| to_py(py, &e, None))
    }

    fn delete_namespace(&self, py: Python<'_>, nsid: u32) -> PyResult<u16> {
        let controller = self.controller();
        let done = detached(py, move || controller.delete_namespace(nsid));
        done.map(bits).map_err(|e| to_py(py, &e, None))
    }

    /// Executes an Identify command; returns the status, and the data, which is empty if the command failed.
    fn identify<'py>(&self, py: Python<'py>, cns: u8, nsid: u32) -> PyResult<(u16, Bound<'py, PyBytes>)> {
        let controller = self.controller();
        let answer = detached(py, move || controller.identify(cns, nsid)).map_err(|e| to_py(py, &e, None))?;
        Ok(match answer {
            Ok(data) => (Status::SUCCESS.bits(), PyBytes::new(py, &data)),
            Err(status) => (status.bits(), PyBytes::new(py, &[])),
        })
    }
}
