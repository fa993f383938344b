//! The commands of a space: executed without the GIL, or submitted on a handle in flight.

use nandarray::{BufferMut, Command, OwnedCommand, OwnedTarget, Source, Target, command};
use numpy::PyUntypedArray;
use pyo3::prelude::*;

use super::PySpace;
use crate::flight::PyFlight;
use crate::handle::{device_of, fail, run};

impl PySpace {
    pub(crate) fn send<C: Command>(&self, py: Python<'_>, command: C) -> PyResult<C::Reply> {
        let device = fail(py, device_of(&self.device))?;
        let (key, name) = (&self.key, &self.name);
        run(py, move || {
            if key.is_some() {
                // After a refresh the engine no longer has the key.
                let name = name.read().clone();
                let _ = device.execute(command::Open { name: &name, key: key.as_deref() });
            }
            device.execute(command)
        })
    }

    /// Reads into the memory of an array (`out`), or writes from it; the command is executed or, on a handle in flight,
    /// submitted. `first` is the address of the array's first element.
    pub(super) fn transfer(
        &self,
        py: Python<'_>,
        target: Target<'_>,
        first: *mut u8,
        out: bool,
        array: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<()> {
        let space = self.id;
        // SAFETY: address, shape and strides are those of a NumPy array that the Python caller holds; the target's
        // counts are that shape, so every element that it reaches is the array's. Writability was checked for `out`.
        let (to, source) = (|| unsafe { BufferMut::from_raw(first) }, || unsafe { Source::from_raw(first) });
        let Some(flights) = &self.flights else {
            return match out {
                true => self.send(py, command::Read { space, target, out: to() }),
                false => self.send(py, command::Write { space, target, source: source() }),
            };
        };
        let device = fail(py, device_of(&self.device))?;
        let target = OwnedTarget::of(&target);
        let command = match out {
            true => OwnedCommand::Read { space, target, out: to() },
            false => OwnedCommand::Write { space, target, source: source() },
        };
        let kept = Some(array.clone().into_any().unbind());
        flights.lock().push(PyFlight::submit(py, &device, command, kept)?);
        Ok(())
    }
}
