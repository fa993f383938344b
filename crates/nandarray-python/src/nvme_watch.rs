//! An NVMe/TCP server as Python's operators see it: its status, its runs, its counts, and what happened.
//!
//! Names and units of keys are those of the page docs/reference/metrics.md and of `python/nandarray/serving`; nothing
//! here counts or decides.

use std::time::SystemTime;

use nandarray_nvme::tcp::{Endpoint, ServerStatus};
use nandarray_nvme::{BUCKET_FIRST_LOG2, BUCKETS, EventKind, EventValue, RunStatus, ServerEvent, Subsystem};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Builds the status of a server.
pub(crate) fn of_status<'py>(py: Python<'py>, status: ServerStatus) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let addresses: Vec<String> = status.endpoints.iter().map(Endpoint::to_string).collect();
    dict.set_item("address", &addresses[0])?;
    dict.set_item("addresses", addresses)?;
    dict.set_item("nqn", status.nqn)?;
    dict.set_item("connections", status.connections)?;
    dict.set_item("half_open", status.half_open)?;
    dict.set_item("associations", status.associations)?;
    let peers: Vec<(u16, u32, i32)> = status.peers.iter().map(|(cntlid, p)| (*cntlid, p.uid, p.pid)).collect();
    dict.set_item("peers", peers)?;
    dict.set_item("memory_bytes", status.memory.0)?;
    dict.set_item("memory_limit_bytes", status.memory.1)?;
    dict.set_item("tenants", status.tenants)?;
    dict.set_item("refused_logins", status.refused_logins)?;
    dict.set_item("unfinished_logins", status.unfinished_logins)?;
    for (name, value) in status.numbers {
        dict.set_item(name, value)?;
    }
    let running: Vec<Bound<'py, PyDict>> =
        status.running.into_iter().map(|run| of_run(py, run)).collect::<PyResult<_>>()?;
    dict.set_item("running", running)?;
    dict.set_item("in_flight", status.in_flight)?;
    let workers = PyDict::new(py);
    for (name, counts) in status.workers {
        let one = PyDict::new(py);
        one.set_item("waiting", counts.waiting)?;
        one.set_item("blocked", counts.blocked)?;
        one.set_item("busy", counts.busy)?;
        one.set_item("workers", counts.workers)?;
        workers.set_item(name, one)?;
    }
    dict.set_item("workers", workers)?;
    Ok(dict)
}

fn of_run(py: Python<'_>, run: RunStatus) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("id", run.number)?;
    dict.set_item("host", run.host)?;
    dict.set_item("controller", run.cntlid)?;
    dict.set_item("programs", run.programs)?;
    dict.set_item("since", unix_seconds(run.since.0))?;
    dict.set_item("seconds", run.since.1.as_secs_f64())?;
    dict.set_item("cpu_seconds", run.cpu.as_secs_f64())?;
    dict.set_item("instructions", run.instructions)?;
    dict.set_item("tasks_done", run.tasks.0)?;
    dict.set_item("tasks", run.tasks.1)?;
    dict.set_item("bytes_in", run.bytes_in)?;
    dict.set_item("memory_bytes", run.memory_bytes)?;
    dict.set_item("stopping", run.is_stopping)?;
    Ok(dict)
}

/// Builds the counts of commands: `operations`, a list of tenant, kind, failed, bytes from and to hosts, sum of
/// durations in nanoseconds, and commands by bucket of durations; `failures`, commands by the name of their status;
/// `bounds_ns`, the upper bounds of all buckets but the last.
pub(crate) fn of_operations<'py>(py: Python<'py>, subsystem: &Subsystem) -> PyResult<Bound<'py, PyDict>> {
    let (operations, dict) = (PyList::empty(py), PyDict::new(py));
    for (tenant, kinds) in subsystem.operations() {
        for c in kinds {
            let row = (&tenant, c.kind.name(), c.failed, c.bytes_in, c.bytes_out, c.nanoseconds, c.buckets.to_vec());
            operations.append(row)?;
        }
    }
    dict.set_item("operations", operations)?;
    let failures = PyDict::new(py);
    for (name, count) in subsystem.failures() {
        failures.set_item(name, count)?;
    }
    dict.set_item("failures", failures)?;
    let bounds: Vec<u64> = (0..BUCKETS as u32 - 1).map(|i| 1 << (BUCKET_FIRST_LOG2 + i)).collect();
    dict.set_item("bounds_ns", bounds)?;
    Ok(dict)
}

/// Builds an event: its kind, its time in seconds since 1970, and its fields.
pub(crate) fn of_event<'py>(py: Python<'py>, event: &ServerEvent) -> PyResult<(&'static str, f64, Bound<'py, PyDict>)> {
    let dict = PyDict::new(py);
    for (name, value) in &event.fields {
        match value {
            EventValue::Number(number) => dict.set_item(name, number)?,
            EventValue::Text(text) => dict.set_item(name, text)?,
        }
    }
    Ok((event.kind.name(), unix_seconds(event.at), dict))
}

/// Returns the kinds of events that a server has.
#[pyfunction]
pub(crate) fn nvme_event_kinds() -> Vec<&'static str> {
    EventKind::ALL.iter().map(|kind| kind.name()).collect()
}
