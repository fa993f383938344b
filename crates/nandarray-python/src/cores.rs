//! Described cores: their descriptions, and the figures of a run on such cores, as Python dictionaries.

use nandarray_cores::{CoreFigures, CoreTimer};
use nandarray_uarch::{CoreDescription, CoreReport, DescribeError, FunctionalUnit, PRESET_NAMES};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::to_py;

/// A core's description in TOML, and (key, value) pairs that replace values of it.
pub(crate) type CoreArg = (String, Vec<(String, String)>);

fn invalid(py: Python<'_>, error: &DescribeError) -> PyErr {
    to_py(py, &nandarray::Error::Invalid(error.to_string()), None)
}

fn described(py: Python<'_>, (text, changes): &CoreArg) -> PyResult<CoreDescription> {
    let changes: Vec<(&str, &str)> = changes.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    CoreDescription::parse_with(text, &changes).map_err(|e| invalid(py, &e))
}

/// Returns the names of the core descriptions that come with the product.
#[pyfunction]
pub(crate) fn core_names() -> Vec<&'static str> {
    PRESET_NAMES.to_vec()
}

/// Returns the TOML of a core description that comes with the product.
#[pyfunction]
pub(crate) fn core_text(py: Python<'_>, name: &str) -> PyResult<&'static str> {
    CoreDescription::preset_text(name).map_err(|e| invalid(py, &e))
}

/// Checks a core description in which `changes` replace some values, and returns the values that Python needs.
#[pyfunction]
pub(crate) fn core_describe(
    py: Python<'_>,
    text: String,
    changes: Vec<(String, String)>,
) -> PyResult<Bound<'_, PyDict>> {
    let core = described(py, &(text, changes))?;
    let given = PyDict::new(py);
    given.set_item("name", &core.name)?;
    given.set_item("source", &core.source)?;
    given.set_item("isa", &core.isa)?;
    given.set_item("issue", format!("{:?}", core.issue))?;
    given.set_item("clock_hz", 1e12 / (core.tick_ps * u64::from(core.cycle)) as f64)?;
    given.set_item("streams", core.streams)?;
    for (level, cache) in [("l1i", core.l1i), ("l1d", core.l1d), ("l2", core.l2)] {
        given.set_item(level, cache.map(|cache| (cache.size_bytes, cache.ways, cache.line_bytes)))?;
    }
    given.set_item("scratchpad_bytes", core.scratchpad_bytes)?;
    let parts = core.parts.iter().map(|p| (p.name.clone(), p.count, p.area_mm2, p.active_mw, p.shared));
    given.set_item("parts", parts.collect::<Vec<_>>())?;
    Ok(given)
}

/// Returns a timer of cores with this description.
pub(crate) fn timer(py: Python<'_>, core: &CoreArg) -> PyResult<CoreTimer> {
    described(py, core).map(CoreTimer::new)
}

/// Converts the figures of a run: a report of each core; for each instruction its address, its executions, its ticks in
/// the pipeline, and the ticks for which it held the pipeline up; and the beginnings of each core's calls.
pub(crate) fn figures<'py>(py: Python<'py>, found: &CoreFigures) -> PyResult<Bound<'py, PyDict>> {
    let given = PyDict::new(py);
    let reports: Vec<_> = found.reports.iter().map(|report| reported(py, report)).collect::<PyResult<_>>()?;
    given.set_item("reports", reports)?;
    let addresses = found.addresses.iter().map(|(pc, at)| (*pc, at.times, at.pipeline, at.frozen));
    given.set_item("addresses", addresses.collect::<Vec<_>>())?;
    given.set_item("calls", found.calls.clone())?;
    Ok(given)
}

fn reported<'py>(py: Python<'py>, report: &CoreReport) -> PyResult<Bound<'py, PyDict>> {
    let given = PyDict::new(py);
    given.set_item("core", &report.core)?;
    given.set_item("tick_ps", report.tick_ps)?;
    given.set_item("ticks_a_cycle", report.cycle)?;
    given.set_item("ticks", report.ticks)?;
    given.set_item("instructions", report.instructions())?;
    let reasons = PyDict::new(py);
    report.reasons().into_iter().try_for_each(|(reason, ticks)| reasons.set_item(reason, ticks))?;
    given.set_item("reasons", reasons)?;
    let units = PyDict::new(py);
    let counted = FunctionalUnit::ALL.into_iter().zip(report.instructions_by_unit).filter(|(_, times)| *times > 0);
    counted.into_iter().try_for_each(|(unit, times)| units.set_item(unit.word(), times))?;
    given.set_item("units", units)?;
    let caches = PyDict::new(py);
    for (level, counts) in ["l1i", "l1d", "l2"].into_iter().zip(report.caches) {
        let Some(counts) = counts else { continue };
        let cache = PyDict::new(py);
        cache.set_item("reads", counts.reads)?;
        cache.set_item("read_misses", counts.read_misses)?;
        cache.set_item("writes", counts.writes)?;
        cache.set_item("write_misses", counts.write_misses)?;
        cache.set_item("write_backs", counts.write_backs)?;
        cache.set_item("prefetches", counts.prefetches)?;
        caches.set_item(level, cache)?;
    }
    given.set_item("caches", caches)?;
    let memory = PyDict::new(py);
    memory.set_item("lines_read", report.memory.lines_read)?;
    memory.set_item("lines_written", report.memory.lines_written)?;
    memory.set_item("lines_prefetched", report.memory.lines_prefetched)?;
    given.set_item("memory", memory)?;
    let vector = PyDict::new(py);
    vector.set_item("operations", report.vector.operations)?;
    vector.set_item("elements", report.vector.elements)?;
    vector.set_item("offered_bits", report.vector.offered_bits)?;
    vector.set_item("occupied_bits", report.vector.occupied_bits)?;
    vector.set_item("value_bits", report.vector.value_bits)?;
    vector.set_item("packed_bits", report.vector.packed_bits)?;
    given.set_item("vector", vector)?;
    let parts = report.parts.iter().map(|part| (part.name.clone(), part.area_mm2, part.energy_j));
    given.set_item("parts", parts.collect::<Vec<_>>())?;
    Ok(given)
}
