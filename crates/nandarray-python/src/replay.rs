//! Replays for Python: a description's text and settings as JSON in, a report as JSON out. No state is kept here.
//!
//! The GIL is released during a replay, and taken now and then to report progress and to check for Ctrl-C.

use nandarray_model::describe::Sheet;
use nandarray_model::{ReplayError, ReplayPhase, ReplaySettings, WorkloadError, replay as run};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::errors::detached;

/// Replays a workload on a described device and returns the report as JSON. `progress(phase, share, requests, bytes,
/// seconds)` is called now and then with the phase ("preconditioning" or "replaying"), the share that is done (`None`
/// if it is not known), and the totals so far.
#[pyfunction]
#[pyo3(signature = (toml, settings, progress=None))]
pub(crate) fn replay(py: Python<'_>, toml: &str, settings: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
    let description = Sheet::parse(toml).and_then(|sheet| sheet.description());
    let description = description.map_err(|e| super::device::to_py(py, &e))?;
    let settings: ReplaySettings = serde_json::from_str(settings).map_err(|e| invalid(py, &e.to_string()))?;
    let mut raised = None;
    let report = detached(py, || {
        run(&description, &settings, &mut |phase| match Python::attach(|py| tell(py, progress.as_ref(), phase)) {
            Ok(()) => true,
            Err(error) => {
                raised = Some(error);
                false
            }
        })
    });
    let report = report.map_err(|e| crate::errors::to_py(py, &e, None))?;
    match (report, raised) {
        (_, Some(error)) => Err(error),
        (Ok(report), None) => Ok(report.to_json()),
        (Err(error), None) => Err(to_py(py, &error)),
    }
}

fn tell(py: Python<'_>, progress: Option<&Py<PyAny>>, phase: ReplayPhase) -> PyResult<()> {
    py.check_signals()?;
    let Some(progress) = progress else { return Ok(()) };
    match phase {
        ReplayPhase::Preconditioning(share) => progress.call1(py, ("preconditioning", Some(share), 0, 0, 0.0))?,
        ReplayPhase::Replaying { share, requests, bytes, now } => {
            progress.call1(py, ("replaying", share, requests, bytes, now.seconds()))?
        }
    };
    Ok(())
}

/// Converts an error of a replay to a Python exception: to `OSError` if the operating system reported the error,
/// otherwise to `InvalidError`.
fn to_py(py: Python<'_>, error: &ReplayError) -> PyErr {
    let system = match error {
        ReplayError::Workload(WorkloadError::Io { error, .. }) | ReplayError::Timeline(error) => error.raw_os_error(),
        _ => None,
    };
    match system {
        Some(code) => PyOSError::new_err((code, error.to_string())),
        None => invalid(py, &error.to_string()),
    }
}

fn invalid(py: Python<'_>, text: &str) -> PyErr {
    let class = py.import("nandarray.errors").and_then(|m| m.getattr("InvalidError"));
    match class.and_then(|c| c.call1((text,))) {
        Ok(error) => PyErr::from_value(error),
        Err(_) => PyValueError::new_err(text.to_owned()),
    }
}
