//! Transactions: writes to several spaces that are applied as one.
//!
//! Python applies or aborts a transaction; one that is dropped is aborted. Its writes may come from many threads.

use nandarray::{Error, Source, Target, TransactionId, command};
use numpy::PyUntypedArray;
use pyo3::prelude::*;

use crate::buffers::{BorrowedArray, lend};
use crate::errors::{detached, to_py};
use crate::handle::{SharedRuntime, changes, device_of, run};
use crate::space::PySpace;
use crate::store::PyStore;

/// A transaction: spaces that it holds, and writes staged for them.
#[pyclass(module = "nandarray._nandarray", name = "Transaction", frozen)]
pub(crate) struct PyTransaction {
    /// The slot that all objects of the store share. The device itself would keep the file of a closed store open.
    device: SharedRuntime,
    id: TransactionId,
}

fn of_another_store(py: Python<'_>) -> PyErr {
    to_py(py, &Error::Invalid("a transaction takes arrays of its own store".to_owned()), None)
}

#[pymethods]
impl PyTransaction {
    /// Begins a transaction that holds the given spaces; each comes with the shape that it will have when the
    /// transaction is applied.
    #[new]
    fn new(py: Python<'_>, store: &PyStore, spaces: Vec<(PyRef<'_, PySpace>, Vec<u64>)>) -> PyResult<Self> {
        let device = device_of(&store.device).map_err(|e| to_py(py, &e, None))?;
        if spaces.iter().any(|(space, _)| !space.of(&device)) {
            return Err(of_another_store(py));
        }
        let spaces: Vec<_> = spaces.into_iter().map(|(space, shape)| (space.number(), shape)).collect();
        let id = run(py, move || {
            let spaces: Vec<_> = spaces.iter().map(|(id, shape)| (*id, shape.as_slice())).collect();
            device.execute(command::Begin { spaces: &spaces })
        })?;
        Ok(Self { device: store.device.clone(), id })
    }

    /// Stages a write of the box that begins at `start` and has the shape of `src`.
    fn write(&self, py: Python<'_>, space: &PySpace, src: &Bound<'_, PyUntypedArray>, start: Vec<u64>) -> PyResult<()> {
        let own = device_of(&self.device).map_err(|e| to_py(py, &e, None))?;
        if !space.of(&own) {
            return Err(of_another_store(py));
        }
        let item_bytes = space.look(py, |s, _| s.shape.item_bytes)?;
        let lent = lend(src, item_bytes, false).map_err(|e| to_py(py, &e, None))?;
        let (transaction, space) = (self.id, space.number());
        run(py, move || {
            let lent: BorrowedArray = lent;
            let step = vec![1; start.len()];
            let target =
                Target::Box { start: &start, step: &step, count: &lent.shape, strides: &lent.strides, view: None };
            // SAFETY: address, shape and strides are those of a NumPy array that the Python caller holds, whose
            // elements have the bytes of the space's, which is this store's; the target's counts are that shape, so
            // every element that it reaches is the array's.
            let source = unsafe { Source::from_raw(lent.first) };
            own.execute(command::StageWrite { transaction, space, target, source })
        })
    }

    /// Applies the staged writes, then deletes, renames, and sets attributes by name, in this order, all as one.
    #[pyo3(signature = (*, delete=vec![], rename=vec![], attrs=vec![]))]
    fn apply(
        &self,
        py: Python<'_>,
        delete: Vec<String>,
        rename: Vec<(String, String)>,
        attrs: Vec<(String, String)>,
    ) -> PyResult<()> {
        let (device, transaction) = (&self.device, self.id);
        run(py, move || {
            let changes = changes(&delete, &rename, &attrs);
            device_of(device)?.execute(command::Apply { transaction, changes: &changes })
        })
    }

    /// Discards the staged writes and releases the spaces; without effect once the transaction is over.
    fn abort(&self, py: Python<'_>) {
        let (device, transaction) = (&self.device, self.id);
        // A closed store has no transactions left to abort.
        let _ = detached(py, || device_of(device)?.execute(command::Abort { transaction }));
    }
}

impl Drop for PyTransaction {
    fn drop(&mut self) {
        let _ = device_of(&self.device).and_then(|device| device.execute(command::Abort { transaction: self.id }));
    }
}
