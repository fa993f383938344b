//! Commands in flight: submitted on a modelled device, delivered while somebody lets its time pass.
//!
//! A space that collects ([`Space::in_flight`](crate::store::Space)) submits reads and writes where another would
//! execute them. The buffer of a command is kept until it is delivered, whether or not anybody keeps its flight.
//! Waiting lets modelled time pass, without the GIL. What several commands make together is Python's business
//! (`nandarray.array.futures`).

use std::sync::{Arc, Weak};

use nandarray::device::{Device, OwnedCommand, Reply};
use nandarray::sim::FlightId;
use nandarray::{Error, Result};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::errors::{detached, to_py};
use crate::store::{Store, device_of};

/// Where the result of a command in flight will be.
type Slot = Arc<Mutex<Option<Result<Reply>>>>;

/// A command in flight.
#[pyclass(module = "nandarray._nandarray", frozen)]
pub(crate) struct Flight {
    /// Not to keep the file of a closed store.
    device: Weak<Device>,
    id: Option<FlightId>,
    slot: Slot,
}

/// Something of Python's that a command needs until it is delivered.
pub(crate) type Kept = Option<Py<PyAny>>;

impl Flight {
    /// Submits a command, and keeps an object until it is delivered.
    pub(crate) fn submit(py: Python<'_>, device: &Arc<Device>, command: OwnedCommand, kept: Kept) -> PyResult<Self> {
        let slot = Slot::default();
        let to = slot.clone();
        let done = Box::new(move |result| {
            // Let go of only now: the engine moves bytes of it until here.
            drop(kept);
            *to.lock() = Some(result);
        });
        let command = Addressed(command);
        let id = detached(py, || {
            let Addressed(command) = { command };
            device.submit(command, done)
        });
        let id = id.map_err(|e| to_py(py, &e, None))?;
        Ok(Self { device: Arc::downgrade(device), id, slot })
    }
}

/// A command on its way to a thread without the GIL.
struct Addressed(OwnedCommand);

// SAFETY: what makes a command not `Send` is the address of a buffer, which is kept until the command is delivered.
unsafe impl Send for Addressed {}

#[pymethods]
impl Flight {
    /// Whether its result is known.
    fn done(&self) -> bool {
        self.slot.lock().is_some()
    }

    /// Lets modelled time pass until its result is known; raises its error.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        if !self.done() {
            let driven = detached(py, || match self.device.upgrade() {
                Some(device) => device.drive(self.id).map(drop),
                None => Ok(()),
            });
            driven.flatten().map_err(|e| to_py(py, &e, None))?;
        }
        match &*self.slot.lock() {
            Some(Ok(_)) => Ok(()),
            Some(Err(e)) => Err(to_py(py, e, None)),
            None => Err(to_py(py, &Error::Internal("the modelled clock has stopped".to_owned()), None)),
        }
    }

    /// Cancels the command if it has not begun.
    fn cancel(&self, py: Python<'_>) -> PyResult<bool> {
        match (self.device.upgrade(), self.id) {
            (Some(device), Some(id)) if !self.done() => {
                detached(py, || device.cancel(id)).map_err(|e| to_py(py, &e, None))
            }
            _ => Ok(false),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Commands in flight keep the device, and what they lead to keeps them: let them end.
        if let Ok(device) = device_of(&self.device) {
            Python::attach(|py| py.detach(|| while let Ok(true) = device.drive(None) {}));
        }
    }
}
