//! The device of a store, shared by all Python objects that refer to it: spaces, clocks, controllers, transactions.

use std::sync::Arc;

use nandarray::{Change, Device, Error, Home, Result};
use nandarray_runtime::Runtime;
use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{detached, to_py};

/// The device with its runtime of programs; `None` once the store is closed, so that the file is released although
/// arrays still refer to it.
pub(crate) type SharedRuntime = Arc<RwLock<Option<Arc<Runtime>>>>;

pub(crate) fn runtime_of(shared: &SharedRuntime) -> Result<Arc<Runtime>> {
    shared.read().clone().ok_or_else(|| Error::Closed("the store is closed".to_owned()))
}

pub(crate) fn device_of(shared: &SharedRuntime) -> Result<Arc<Device>> {
    let found = shared.read().as_ref().map(|runtime| runtime.device().clone());
    found.ok_or_else(|| Error::Closed("the store is closed".to_owned()))
}

/// Runs an engine call without the GIL and converts its error to a Python exception.
pub(crate) fn run<T: Send>(py: Python<'_>, call: impl Send + FnOnce() -> Result<T>) -> PyResult<T> {
    fail(py, detached(py, call).flatten())
}

/// Converts the error of a result to a Python exception.
pub(crate) fn fail<T>(py: Python<'_>, done: Result<T>) -> PyResult<T> {
    done.map_err(|e| to_py(py, &e, None))
}

/// Fails in a process that was forked from the one, `home`, that has this server, session or connection: its threads
/// did not come along, and its locks may be held for ever.
pub(crate) fn at_home(py: Python<'_>, home: Home, what: &str) -> PyResult<()> {
    let away = || Error::Closed(format!("this process was forked from the one that has the {what}; open one here"));
    if home.is_here() { Ok(()) } else { Err(to_py(py, &away(), None)) }
}

/// Converts sizes along dimensions from Python's integers, which are unbounded, to 64 bits; fails for any that does not
/// fit.
pub(crate) fn sizes(py: Python<'_>, given: &[Bound<'_, PyAny>]) -> PyResult<Vec<u64>> {
    let one = |size: &Bound<'_, PyAny>| {
        size.extract::<u64>().map_err(|_| {
            let e = Error::Invalid(format!("a dimension of size {size}; sizes are from 0 to {}", u64::MAX));
            to_py(py, &e, None)
        })
    };
    given.iter().map(one).collect()
}

/// Converts the named numbers of a reply to a dictionary.
pub(crate) fn numbers<'py>(py: Python<'py>, numbers: Vec<(&'static str, u64)>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in numbers {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

/// Builds the list of changes to the catalog in the order in which they apply: deletions, renames (from, to), then new
/// attributes (array, JSON).
pub(crate) fn changes<'a>(
    delete: &'a [String],
    rename: &'a [(String, String)],
    attrs: &'a [(String, String)],
) -> Vec<Change<'a>> {
    (delete.iter().map(|name| Change::Delete { name }))
        .chain(rename.iter().map(|(from, to)| Change::Rename { from, to }))
        .chain(attrs.iter().map(|(name, attrs)| Change::SetAttrs { name, attrs }))
        .collect()
}
