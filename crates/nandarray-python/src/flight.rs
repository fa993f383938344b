//! Commands in flight: submitted to a modelled device, completed while a caller lets the device's time pass.
//!
//! A space object whose `in_flight` is set ([`PySpace`](crate::space::PySpace)) submits reads and writes instead of
//! executing them. The buffer of a command is kept until the command completes, whether or not Python keeps the flight.
//! Waiting lets modelled time pass, without the GIL. Python combines several commands in one future
//! (`nandarray.array.futures`).

use std::sync::{Arc, Weak};

use nandarray::probe::FlightId;
use nandarray::{Device, Error, OwnedCommand, Result};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::errors::{detached, to_py};

/// The result of a command in flight; `None` until the command completes.
type ResultSlot = Arc<Mutex<Option<Result<()>>>>;

/// A command in flight, as Python holds it.
#[pyclass(module = "nandarray._nandarray", name = "Flight", frozen)]
pub(crate) struct PyFlight {
    /// The device. The reference is weak, so that a flight does not keep the file of a closed store open.
    device: Weak<Device>,
    id: Option<FlightId>,
    slot: ResultSlot,
}

impl PyFlight {
    /// Submits a command and keeps the Python object `kept`, such as its buffer, until the command completes.
    pub(crate) fn submit(
        py: Python<'_>,
        device: &Arc<Device>,
        command: OwnedCommand,
        kept: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let slot = ResultSlot::default();
        let to = slot.clone();
        let done = Box::new(move |result| {
            // The object is released only now: the engine moves the buffer's bytes until this point.
            drop(kept);
            *to.lock() = Some(result);
        });
        let id = detached(py, || device.submit(command, done));
        let id = id.map_err(|e| to_py(py, &e, None))?;
        Ok(Self { device: Arc::downgrade(device), id, slot })
    }
}

#[pymethods]
impl PyFlight {
    /// Whether the command's result is known.
    fn done(&self) -> bool {
        self.slot.lock().is_some()
    }

    /// Lets modelled time pass until the command's result is known; raises its error, if it failed.
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

    /// Cancels the command if it has not begun; returns whether it was cancelled.
    fn cancel(&self, py: Python<'_>) -> PyResult<bool> {
        match (self.device.upgrade(), self.id) {
            (Some(device), Some(id)) if !self.done() => {
                detached(py, || device.cancel(id)).map_err(|e| to_py(py, &e, None))
            }
            _ => Ok(false),
        }
    }
}
