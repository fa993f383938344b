//! Commands in flight: submitted on a modelled device, delivered while a caller lets its time pass.
//!
//! A space that collects ([`PySpace`](crate::space::PySpace)'s `in_flight`) submits reads and writes where another
//! would execute them. The buffer of a command is kept until it is delivered, whether or not Python keeps the flight.
//! Waiting lets modelled time pass, without the GIL. Python joins several commands to one future
//! (`nandarray.array.futures`).

use std::sync::{Arc, Weak};

use nandarray::probe::FlightId;
use nandarray::{Device, Error, OwnedCommand, Result};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::errors::{detached, to_py};

/// The result of a command in flight, once it is delivered.
type ResultSlot = Arc<Mutex<Option<Result<()>>>>;

/// A command in flight.
#[pyclass(module = "nandarray._nandarray", name = "Flight", frozen)]
pub(crate) struct PyFlight {
    /// Not to keep the file of a closed store.
    device: Weak<Device>,
    id: Option<FlightId>,
    slot: ResultSlot,
}

impl PyFlight {
    /// Submits a command, and keeps an object until it is delivered.
    pub(crate) fn submit(
        py: Python<'_>,
        device: &Arc<Device>,
        command: OwnedCommand,
        kept: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let slot = ResultSlot::default();
        let to = slot.clone();
        let done = Box::new(move |result| {
            // Let go of only now: the engine moves bytes of it until here.
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
