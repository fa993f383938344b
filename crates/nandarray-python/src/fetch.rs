//! Python's interface to runs of warps that fetch from several modelled devices. Arguments are texts of descriptions, a
//! platform as JSON and a recording as columns; the result is a report as JSON. The GIL is released during a run.

use nandarray_model::describe::{Description, Sheet};
use nandarray_model::{FetchRecording, run_fetches};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use crate::errors::{detached, to_py};

/// Replays a recording on a platform and returns the report as JSON. The recording consists of rows of six numbers
/// (phase, task, group, kind, fetch, atomics), and of the first byte and the size of each fetch.
#[pyfunction]
pub(crate) fn fetch_run(
    py: Python<'_>,
    devices: Vec<String>,
    platform: &str,
    rows: PyReadonlyArray1<'_, u32>,
    addresses: PyReadonlyArray1<'_, u64>,
    bytes: PyReadonlyArray1<'_, u32>,
    seed: u64,
) -> PyResult<String> {
    let invalid = |what: String| to_py(py, &nandarray::Error::Invalid(what), None);
    let platform = serde_json::from_str(platform).map_err(|e| invalid(format!("platform: {e}")))?;
    let described = devices.iter().map(|toml| Sheet::parse(toml).and_then(|sheet| sheet.description()));
    let devices: Vec<Description> = described.collect::<Result<_, _>>().map_err(|e| crate::device::to_py(py, &e))?;
    let recording = FetchRecording::new(rows.as_slice()?, addresses.as_slice()?.to_vec(), bytes.as_slice()?.to_vec());
    let recording = recording.map_err(invalid)?;
    let done = detached(py, || run_fetches(&devices, &platform, &recording, seed));
    let report = done.map_err(|e| to_py(py, &e, None))?.map_err(invalid)?;
    Ok(serde_json::to_string(&report).expect("a report is written"))
}
