//! Engine errors as the exceptions of `nandarray.errors`, chosen by the error's kind.

use nandarray::panics::caught;
use nandarray::{Error, Result};
use nandarray_runtime as runtime;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Returns the names of all kinds of errors of the engine and the runtime.
#[pyfunction]
pub(crate) fn error_kinds() -> Vec<&'static str> {
    [&nandarray::KINDS[..], &runtime::KINDS[..]].concat()
}

/// Builds the exception that belongs to a kind of error, with the given text.
pub(crate) fn of_kind(py: Python<'_>, kind: &str, text: &str) -> PyErr {
    class(py, kind).and_then(|c| Ok(PyErr::from_value(c.call1((text,))?))).unwrap_or_else(|e| e)
}

/// Builds the exception for an error of the engine; the text of an operating system's error begins with `path`.
pub(crate) fn to_py(py: Python<'_>, error: &Error, path: Option<&str>) -> PyErr {
    if let Some(raised) = crate::far::raised(py, error) {
        return raised;
    }
    let text = match path {
        Some(path) if error.os_error().is_some() => format!("{path}: {error}"),
        _ => error.to_string(),
    };
    match error.os_error() {
        Some(code) => media(py, error, code, &text),
        None => Ok(of_kind(py, error.kind(), &text)),
    }
    .unwrap_or_else(|e| e)
}

/// Builds the exception for an error of the runtime. That of a failed program has the stage, program counter, caller
/// and task as attributes.
pub(crate) fn run_to_py(py: Python<'_>, error: &runtime::Error) -> PyErr {
    if let runtime::Error::Engine(error) = error {
        return to_py(py, error, None);
    }
    let made = class(py, error.kind()).and_then(|c| {
        let made = c.call1((error.to_string(),))?;
        if let runtime::Error::Execution(failed) = error {
            made.setattr("stage", failed.stage)?;
            made.setattr("pc", failed.error.pc())?;
            made.setattr("caller", failed.error.caller())?;
            made.setattr("task", failed.error.task())?;
            let noted = failed.error.noted().filter(|n| *n != [0; 2]);
            made.setattr("noted", noted.map(|[first, second]| (first, second)))?;
        }
        Ok(PyErr::from_value(made))
    });
    made.unwrap_or_else(|e| e)
}

/// Runs a call without the GIL. A panic in it becomes an [`Error::Internal`], which `except Exception` catches.
pub(crate) fn detached<T: Send>(py: Python<'_>, call: impl Send + FnOnce() -> T) -> Result<T> {
    py.detach(|| caught(call)).map_err(Error::Internal)
}

fn media(py: Python<'_>, error: &Error, code: i32, text: &str) -> PyResult<PyErr> {
    Ok(PyErr::from_value(class(py, error.kind())?.call1((code, text))?))
}

fn class<'py>(py: Python<'py>, kind: &str) -> PyResult<Bound<'py, PyAny>> {
    let table = py.import("nandarray.errors")?.getattr("BY_KIND")?.cast_into::<PyDict>()?;
    match table.get_item(kind)? {
        Some(class) => Ok(class),
        None => py.import("nandarray.errors")?.getattr("NandarrayError"),
    }
}
