//! Bare-metal tests: runs an ELF file on a bare machine, with the same progress and interruption as other runs.

use nandarray_hart::bare::{self, BareOptions, BareStatus};
use nandarray_hart::{Extensions, Limits, Stop, VLEN_MAX};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::{detached, run_to_py, to_py};
use crate::offload::Watch;

/// Runs a bare-metal test; `isa` is an architecture string such as "rv64gc", `vlen` the bits of a vector register,
/// `granularity` the bytes per line of the signature, `instructions` a limit. Returns the outcome as a dictionary.
#[pyfunction]
#[pyo3(signature = (elf, watch, *, isa = None, vlen = None, granularity = 4, instructions = None))]
pub(crate) fn program_run_bare<'py>(
    py: Python<'py>,
    elf: &[u8],
    watch: &Watch,
    isa: Option<&str>,
    vlen: Option<u32>,
    granularity: usize,
    instructions: Option<u64>,
) -> PyResult<Bound<'py, PyDict>> {
    let invalid = |text: String| to_py(py, &nandarray::Error::Invalid(text), None);
    if !matches!(granularity, 4 | 8) {
        return Err(invalid(format!("a line of a signature is 4 or 8 bytes, not {granularity}")));
    }
    let (bits, extensions) = match isa.map(Extensions::parse) {
        None => (None, Extensions::ALL),
        Some(Ok((bits, extensions))) => (Some(bits), extensions),
        Some(Err(name)) => {
            let asked = isa.unwrap_or_default();
            return Err(invalid(format!("the architecture {asked:?} has {name:?}, which no hart here has")));
        }
    };
    let (least, vlen) = (extensions.vlen(), vlen.unwrap_or(extensions.vlen()));
    if !vlen.is_power_of_two() || !(least..=VLEN_MAX).contains(&vlen) {
        return Err(invalid(format!(
            "a vector register has {least} to {VLEN_MAX} bits here, a power of two, not {vlen}"
        )));
    }
    let extensions = extensions.with_vlen(vlen);
    let limits = Limits { instructions, stop: Some(&watch.progress.stop) };
    let options = BareOptions { granularity, bits, extensions, limits };
    let outcome = detached(py, || bare::run(elf, options)).map_err(|e| to_py(py, &e, None))?;
    let outcome = outcome.map_err(|e| {
        let error = nandarray_runtime::Error::Program(Box::new(nandarray_cores::LoadError::Elf(e)));
        run_to_py(py, &error)
    })?;
    let given = PyDict::new(py);
    let (status, test, stop) = match outcome.status {
        BareStatus::Passed => ("passed", None, None),
        BareStatus::Failed { test } => ("failed", Some(test), None),
        BareStatus::Stopped(stop) => (of_stop(stop), None, Some(stop.to_string())),
    };
    given.set_item("status", status)?;
    given.set_item("test", test)?;
    given.set_item("stop", stop)?;
    given.set_item("exit_status", outcome.status.exit_status())?;
    given.set_item("pc", outcome.pc)?;
    given.set_item("symbol", outcome.symbol.map(|(name, by)| format!("{name}+{by:#x}")))?;
    given.set_item("instructions", outcome.instructions)?;
    given.set_item("signature", outcome.signature)?;
    given.set_item("output", PyBytes::new(py, &outcome.output))?;
    Ok(given)
}

fn of_stop(stop: Stop) -> &'static str {
    match stop {
        Stop::InstructionLimit => "limit",
        Stop::Interrupted => "interrupted",
        Stop::Trap(_) => "trap",
        _ => "stopped",
    }
}
