//! Tenants of a node for Python's doors beside NVMe: rules, budgets of memory, rates.
//!
//! Time is the door's: seconds since it was opened. Tenants and their limits are `nandarray-nvme`'s.

use std::time::Duration;

use nandarray_nvme::{DoorMemory, DoorTenant, DoorTenants};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::nvme_tcp::{RulesText, rules_of};

/// Adds the classes to the module.
pub(crate) fn add_classes(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyDoorTenants>()?;
    m.add_class::<PyDoorTenant>()?;
    m.add_class::<PyDoorMemory>()
}

/// The tenants of a node.
#[pyclass(module = "nandarray._nandarray", name = "DoorTenants", frozen)]
pub(crate) struct PyDoorTenants(DoorTenants);

#[pymethods]
impl PyDoorTenants {
    #[new]
    fn new(py: Python<'_>, rules: Option<RulesText>) -> PyResult<Self> {
        Ok(Self(DoorTenants::new(rules_of(py, rules)?)))
    }

    /// The tenant of a host; None if it is none's. `peer`: where a host is whose name nothing proves.
    fn admit(&self, hostnqn: &str, peer: Option<&str>) -> Option<PyDoorTenant> {
        self.0.admit(hostnqn, peer).map(PyDoorTenant)
    }

    /// Whether a host still belongs to the tenant that it was admitted as.
    fn is_host_of(&self, hostnqn: &str, tenant: &PyDoorTenant) -> bool {
        self.0.is_host_of(hostnqn, &tenant.0)
    }

    /// Replaces the rules; those that are wrong change nothing.
    fn replace(&self, py: Python<'_>, rules: Option<RulesText>) -> PyResult<()> {
        self.0.replace(rules_of(py, rules)?);
        Ok(())
    }

    /// Bytes that are reserved, and the limit of the node.
    fn memory(&self) -> (u64, u64) {
        self.0.memory()
    }

    /// Name, reserved bytes and limit of each tenant that has a state.
    fn in_use(&self) -> Vec<(String, u64, u64)> {
        self.0.in_use()
    }
}

/// One tenant.
#[pyclass(module = "nandarray._nandarray", name = "DoorTenant", frozen)]
pub(crate) struct PyDoorTenant(DoorTenant);

#[pymethods]
impl PyDoorTenant {
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    fn reads(&self, array: &str) -> bool {
        self.0.reads(array)
    }

    fn writes(&self, array: &str) -> bool {
        self.0.writes(array)
    }

    /// The limits in force that a door keeps, by their keys.
    fn limits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (rules, dict) = (self.0.rules(), PyDict::new(py));
        dict.set_item("programs", rules.programs)?;
        dict.set_item("slots", rules.slots)?;
        dict.set_item("memory_mib", rules.memory_mib)?;
        dict.set_item("runs", rules.runs)?;
        dict.set_item("instructions", rules.instructions)?;
        dict.set_item("seconds", rules.seconds)?;
        Ok(dict)
    }

    /// Counts a step that moves some bytes, at some seconds since the door was opened; returns the seconds to wait.
    fn pace(&self, now: f64, bytes: u64) -> f64 {
        self.0.pace(Duration::try_from_secs_f64(now).unwrap_or_default(), bytes).as_secs_f64()
    }

    /// Reserves bytes; None if the tenant, or the node, has fewer left.
    fn reserve(&self, bytes: u64) -> Option<PyDoorMemory> {
        self.0.reserve(bytes).map(PyDoorMemory)
    }
}

/// Bytes that are reserved until they are given back.
#[pyclass(module = "nandarray._nandarray", name = "DoorMemory", frozen)]
pub(crate) struct PyDoorMemory(DoorMemory);

#[pymethods]
impl PyDoorMemory {
    fn give_back(&self) {
        self.0.give_back();
    }
}
