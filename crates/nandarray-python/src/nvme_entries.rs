//! Entries of commands that Python's client of a drive gives as numbers: log pages, programs, memory, stored boxes.
//!
//! Layouts are those of `nandarray-nvme-spec`. Nothing is executed here.

use nandarray_nvme_spec::{
    Activation, AdminCommand, ExecuteProgram, ExecutionAccount, LogRequest, MemoryCommand, MemoryRange, NdBox,
    NdCommand, PROGRAM_TYPE_RISCV, ProgramCommand, ProgramLoad, SubmissionEntry, Unit,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use zerocopy::IntoBytes;

use crate::errors::of_kind;

fn bytes_of<'py>(py: Python<'py>, entry: &SubmissionEntry) -> Bound<'py, PyBytes> {
    PyBytes::new(py, entry.as_bytes())
}

/// Encodes Get Log Page: `size` bytes of a page from `offset` on; `tag` of the account of an execution.
#[pyfunction]
#[pyo3(signature = (lid, size, offset=0, tag=0))]
pub(crate) fn nvme_log_entry(
    py: Python<'_>,
    lid: u8,
    size: u64,
    offset: u64,
    tag: u16,
) -> PyResult<Bound<'_, PyBytes>> {
    let dwords_z = (size / 4).checked_sub(1).filter(|_| size.is_multiple_of(4)).map(u32::try_from);
    let Some(Ok(dwords_z)) = dwords_z else {
        return Err(of_kind(py, "invalid", &format!("a log page must have 4 or more bytes, by fours, not {size}")));
    };
    let request = LogRequest { lid, dwords_z, offset, specific: tag, ..LogRequest::default() };
    Ok(bytes_of(py, &AdminCommand::GetLogPage(request).encode(0)))
}

/// Encodes Load Program: a part of a program of `size` bytes in a slot.
#[pyfunction]
#[pyo3(signature = (slot, size, program_id, part_bytes, offset))]
pub(crate) fn nvme_load_entry(
    py: Python<'_>,
    slot: u16,
    size: u32,
    program_id: u64,
    part_bytes: u32,
    offset: u32,
) -> Bound<'_, PyBytes> {
    let load = ProgramLoad::Part { ptype: PROGRAM_TYPE_RISCV, size, id: program_id, bytes: part_bytes, offset };
    bytes_of(py, &AdminCommand::LoadProgram { pind: slot, load }.encode(0))
}

/// Encodes Load Program that unloads the program in a slot.
#[pyfunction]
pub(crate) fn nvme_unload_entry(py: Python<'_>, slot: u16) -> Bound<'_, PyBytes> {
    bytes_of(py, &AdminCommand::LoadProgram { pind: slot, load: ProgramLoad::Unload }.encode(0))
}

/// Encodes Program Activation Management.
#[pyfunction]
pub(crate) fn nvme_activate_entry(py: Python<'_>, slot: u16, active: bool) -> Bound<'_, PyBytes> {
    let action = if active { Activation::Activate } else { Activation::Deactivate };
    bytes_of(py, &AdminCommand::ActivateProgram { pind: slot, action }.encode(0))
}

/// Encodes Execute Program with ranges (namespace, first byte or handle, bytes) and scalars; returns the entry and its
/// data.
#[pyfunction]
pub(crate) fn nvme_execute_entry<'py>(
    py: Python<'py>,
    slot: u16,
    ranges: Vec<(u32, u64, u32)>,
    scalars: Vec<u64>,
    tag: u16,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let list: Vec<MemoryRange> = ranges.iter().map(|&(nsid, first, len)| MemoryRange::new(nsid, first, len)).collect();
    let data = [list.as_bytes(), scalars.as_bytes()].concat();
    let (Ok(ranges), Ok(data_bytes)) = (u32::try_from(list.len()), u32::try_from(data.len())) else {
        return Err(of_kind(py, "invalid", &format!("{} bytes of ranges and scalars", data.len())));
    };
    let execute = ExecuteProgram { pind: slot, ranges, data_bytes, tag, ..ExecuteProgram::default() };
    Ok((bytes_of(py, &ProgramCommand::Execute(execute).encode(0)), PyBytes::new(py, &data)))
}

/// Encodes Memory Write or Memory Read.
#[pyfunction]
pub(crate) fn nvme_memory_entry(py: Python<'_>, writes: bool, first: u64, size: u32) -> Bound<'_, PyBytes> {
    let command = match writes {
        true => MemoryCommand::Write { first, bytes: size },
        false => MemoryCommand::Read { first, bytes: size },
    };
    bytes_of(py, &command.encode(0))
}

/// Encodes Store Box of a view, whose coordinates count elements.
#[pyfunction]
pub(crate) fn nvme_store_box_entry(py: Python<'_>, dsid: u32, ndim: u8) -> Bound<'_, PyBytes> {
    bytes_of(py, &NdCommand::StoreBox(NdBox::paged(dsid, Unit::Element, ndim)).encode(0))
}

/// Encodes Delete Box.
#[pyfunction]
pub(crate) fn nvme_delete_box_entry(py: Python<'_>, handle: u32) -> Bound<'_, PyBytes> {
    bytes_of(py, &NdCommand::DeleteBox { handle }.encode(0))
}

/// Returns the lengths of the outputs and the number of instructions in the account of an execution; None if the
/// account is that of a failure.
#[pyfunction]
pub(crate) fn nvme_account(text: &str) -> Option<(Vec<u64>, u64)> {
    match ExecutionAccount::decode(text) {
        ExecutionAccount::Done { outputs, instructions } => Some((outputs, instructions)),
        ExecutionAccount::Failed { .. } => None,
    }
}
