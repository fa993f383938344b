//! Device descriptions for Python: texts in, texts out. A description is passed as its TOML text and a JSON object of
//! changed values; nothing is kept here. Errors are `nandarray.errors.DescriptionError` with all problems at once.

use nandarray_model::describe::{self, Description, Invalid, Sheet, Value, mqsim};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{Value as Json, json};

/// Returns the names of the device descriptions that come with the product.
#[pyfunction]
pub(crate) fn device_presets() -> Vec<&'static str> {
    describe::presets().to_vec()
}

/// Returns the TOML of a preset, unchanged from its file.
#[pyfunction]
pub(crate) fn device_preset(py: Python<'_>, name: &str) -> PyResult<&'static str> {
    describe::preset_text(name).map_err(|e| to_py(py, &e))
}

/// Returns the units of each kind of quantity with their factors, as [`describe::units`] does.
#[pyfunction]
pub(crate) fn device_units() -> Vec<(&'static str, Vec<(&'static str, f64)>)> {
    describe::units().map(|(kind, units)| (kind, units.to_vec())).to_vec()
}

/// Returns all keys of a device description as JSON: a list of objects.
#[pyfunction]
pub(crate) fn device_keys() -> String {
    describe::DEVICES.keys_json().to_string()
}

/// Returns a description as JSON: the values as written, the same in the simulation's units, and values derived from
/// them.
#[pyfunction]
pub(crate) fn device_json(py: Python<'_>, toml: &str, overrides: &str) -> PyResult<String> {
    let sheet = sheet(py, toml, overrides)?;
    Ok(sheet.to_json().map_err(|e| to_py(py, &e))?.to_string())
}

/// Returns a description, with its changes applied, as one TOML text that refers to no other.
#[pyfunction]
pub(crate) fn device_toml(py: Python<'_>, toml: &str, overrides: &str) -> PyResult<String> {
    let sheet = sheet(py, toml, overrides)?;
    sheet.description().map_err(|e| to_py(py, &e))?;
    Ok(sheet.to_toml())
}

/// Converts a configuration of MQSim to JSON: `toml` is the description, `notes` lists settings that a description
/// cannot express.
#[pyfunction]
pub(crate) fn device_import_mqsim(py: Python<'_>, xml: &str, name: &str) -> PyResult<String> {
    let imported = mqsim::import(xml, name).map_err(|e| to_py(py, &e))?;
    imported.sheet.description().map_err(|e| to_py(py, &e))?;
    Ok(json!({"toml": imported.sheet.to_toml(), "notes": imported.notes}).to_string())
}

/// Parses a description and applies its changes; the result is in the simulation's units.
pub(crate) fn description(py: Python<'_>, toml: &str, overrides: &str) -> PyResult<Description> {
    sheet(py, toml, overrides)?.description().map_err(|e| to_py(py, &e))
}

/// Parses a description and applies its changes, a JSON object from dotted keys to values. A string among the values
/// may be a quoted or a bare TOML value: `"8"` is a number.
fn sheet(py: Python<'_>, toml: &str, overrides: &str) -> PyResult<Sheet> {
    let sheet = Sheet::parse(toml).map_err(|e| to_py(py, &e))?;
    let overrides: Json = serde_json::from_str(overrides).map_err(|e| PyValueError::new_err(e.to_string()))?;
    let Json::Object(overrides) = overrides else {
        return Err(PyValueError::new_err("overrides are a JSON object"));
    };
    if overrides.is_empty() {
        return Ok(sheet);
    }
    let mut values = Vec::with_capacity(overrides.len());
    for (key, value) in &overrides {
        let value = value_of(value).ok_or_else(|| {
            to_py(py, &Invalid::one("device", sheet.name(), key, &value.to_string(), "is no value of a description"))
        })?;
        values.push((key.as_str(), value));
    }
    sheet.with(values).map_err(|e| to_py(py, &e))
}

fn value_of(json: &Json) -> Option<Value> {
    Some(match json {
        Json::Bool(flag) => Value::Flag(*flag),
        Json::Number(n) => n.as_i64().map(Value::Whole).or_else(|| n.as_f64().map(Value::Real))?,
        Json::String(text) => Value::from_bare(text),
        Json::Array(all) => Value::List(all.iter().map(value_of).collect::<Option<_>>()?),
        Json::Null => Value::Text("none".to_owned()),
        Json::Object(_) => return None,
    })
}

/// Builds the Python exception for an invalid description: its text, and the list of problems as JSON.
pub(crate) fn to_py(py: Python<'_>, invalid: &Invalid) -> PyErr {
    let class = py.import("nandarray.errors").and_then(|m| m.getattr("DescriptionError"));
    let problems: Vec<Json> = invalid
        .problems
        .iter()
        .map(|p| {
            let mut json = json!(p);
            json["text"] = json!(p.to_string());
            json
        })
        .collect();
    let problems = Json::Array(problems).to_string();
    match class.and_then(|c| c.call1((invalid.to_string(), problems))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// Adds the functions on descriptions of devices to the module.
pub(crate) fn add_functions(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(device_presets, m)?)?;
    m.add_function(wrap_pyfunction!(device_preset, m)?)?;
    m.add_function(wrap_pyfunction!(device_keys, m)?)?;
    m.add_function(wrap_pyfunction!(device_json, m)?)?;
    m.add_function(wrap_pyfunction!(device_toml, m)?)?;
    m.add_function(wrap_pyfunction!(device_units, m)?)?;
    m.add_function(wrap_pyfunction!(device_import_mqsim, m)?)?;
    Ok(())
}
