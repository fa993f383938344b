//! Findings of a check, and journal records that opening left out, as dictionaries. The engine writes the sentences.

use nandarray::{CheckReport, Dropped, Finding};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Converts the findings of a check to a dictionary.
pub(crate) fn of_check<'py>(py: Python<'py>, report: &CheckReport) -> PyResult<Bound<'py, PyDict>> {
    let line = |f: &Finding, tail: &str| match &f.array {
        Some(array) => format!("array {array:?}: {}{tail}", f.message),
        None => format!("{}{tail}", f.message),
    };
    let dict = PyDict::new(py);
    dict.set_item("ok", report.ok())?;
    let open = report.findings.iter().filter(|f| f.repaired.is_none()).map(|f| line(f, ""));
    dict.set_item("errors", open.collect::<Vec<_>>())?;
    let repaired = report.findings.iter().filter_map(|f| Some(line(f, &format!(": {}", f.repaired.as_ref()?))));
    dict.set_item("repaired", report.mended.iter().cloned().chain(repaired).collect::<Vec<_>>())?;
    dict.set_item("dropped", report.dropped.as_ref().map(|d| of_dropped(py, d)).transpose()?)?;
    dict.set_item("arrays", report.arrays)?;
    dict.set_item("blocks", report.blocks)?;
    dict.set_item("pages", report.pages)?;
    Ok(dict)
}

/// Converts the description of journal records that opening left out to a dictionary.
pub(crate) fn of_dropped<'py>(py: Python<'py>, dropped: &Dropped) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("message", dropped.to_string())?;
    dict.set_item("records", dropped.records())?;
    dict.set_item("first", dropped.first)?;
    dict.set_item("last", dropped.last)?;
    dict.set_item("flushed", dropped.durable)?;
    dict.set_item("arrays", &dropped.arrays)?;
    dict.set_item("pages_taken", dropped.pages_taken)?;
    dict.set_item("pages_lost", dropped.pages_lost)?;
    Ok(dict)
}
