//! Properties of a controller: the registers that a host reads and writes by fabrics commands.
//!
//! Properties that the specification reserves for controllers of this kind (interrupts, queues and buffers in memory)
//! read as zero, and cannot be written.

use nandarray::nvme::{Status, SubmissionEntry};

use crate::limits::QUEUE_ENTRIES_MAX;
use nandarray_nvme_spec::Property;

/// Controller capabilities (CAP): queue entries, contiguous queues, 7.5 s to become ready, subsystem reset, NVM and
/// other command sets, ready modes.
const CAP: u64 = (QUEUE_ENTRIES_MAX as u64 - 1) | 1 << 16 | 15 << 24 | 1 << 36 | 1 << 37 | 1 << 43 | 1 << 59;
/// Version 2.0 of the NVMe base specification.
const VERSION: u32 = 2 << 16;
/// Ready timeouts (CRTO): 7.5 s until ready, with media and without, in units of 500 ms.
const CRTO: u32 = 15 | 15 << 16;
/// Value that resets the subsystem when written to its property NSSR: "NVMe" in ASCII.
const RESET: u32 = 0x4e56_4d65;
/// Bits of the property CSTS (status).
pub(crate) const READY: u32 = 1;
pub(crate) const FATAL: u32 = 1 << 1;
pub(crate) const SHUTDOWN_COMPLETE: u32 = 2 << 2;
/// Bits of the property CC (configuration): enable, and shutdown notification.
pub(crate) const ENABLE: u32 = 1;
pub(crate) const SHUTDOWN: u32 = 3 << 14;
/// Fields of CC with one possible value, 0: memory page size (MPS), arbitration mechanism (AMS).
const ZERO: u32 = 0xf << 7 | 7 << 11;
/// Command sets in use (CSS), in CC: 0 for the NVM command set, 6 for all.
const COMMAND_SETS: u32 = 7 << 4;
const ALL_COMMAND_SETS: u32 = 6 << 4;
/// First offset behind the properties, where a transport may have its own.
const PROPERTIES_END: u32 = 0x1000;
/// Dwords of the properties that are there.
const IN_USE: [u32; 7] =
    [Property::CAP, Property::CAP + 4, Property::VS, Property::CC, Property::CSTS, Property::NSSR, Property::CRTO];

/// The effect of a host's write of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PropertyWrite {
    /// The configuration gets this value.
    Configuration(u32),
    /// The subsystem is reset.
    Reset,
    /// Nothing happens.
    Nothing,
}

/// Returns the width of the access of a Property Get or Set command, in bytes.
fn width(entry: &SubmissionEntry) -> Result<u32, Status> {
    match entry.cdw(10) & 7 {
        0 => Ok(4),
        1 => Ok(8),
        _ => Err(Status::INVALID_FIELD),
    }
}

/// Returns the property that a Property Get command names, as dwords 0 and 1 of its completion.
///
/// # Errors
/// Invalid field: no property begins there, or it has another width.
pub(crate) fn get(entry: &SubmissionEntry, cc: u32, csts: u32) -> Result<(u32, u32), Status> {
    let (offset, bytes) = (entry.cdw(11), width(entry)?);
    let (value, own) = match offset {
        Property::CAP => ((CAP as u32, (CAP >> 32) as u32), 8),
        Property::VS => ((VERSION, 0), 4),
        Property::CC => ((cc, 0), 4),
        Property::CSTS => ((csts, 0), 4),
        Property::NSSR => ((0, 0), 4),
        Property::CRTO => ((CRTO, 0), 4),
        offset => {
            let is_reserved = offset < PROPERTIES_END
                && offset.is_multiple_of(bytes)
                && !IN_USE.iter().any(|dword| (offset..offset + bytes).contains(dword));
            if !is_reserved {
                return Err(Status::INVALID_FIELD);
            }
            ((0, 0), bytes)
        }
    };
    if bytes == own { Ok(value) } else { Err(Status::INVALID_FIELD) }
}

/// Checks a Property Set command of a controller with configuration `cc`; returns what it asks for.
///
/// # Errors
/// Invalid field: the property cannot be written, has another width, or does not take this value now.
pub(crate) fn set(entry: &SubmissionEntry, cc: u32) -> Result<PropertyWrite, Status> {
    let (offset, value) = (entry.cdw(11), entry.cdw(12));
    if width(entry)? != 4 {
        return Err(Status::INVALID_FIELD);
    }
    match offset {
        Property::CC => {
            let is_known = value & ZERO == 0 && matches!(value & COMMAND_SETS, 0 | ALL_COMMAND_SETS);
            // While the controller is enabled, and stays so, it keeps its command sets.
            let is_kept = cc & value & ENABLE == 0 || (cc ^ value) & COMMAND_SETS == 0;
            if is_known && is_kept { Ok(PropertyWrite::Configuration(value)) } else { Err(Status::INVALID_FIELD) }
        }
        Property::NSSR if value == RESET => Ok(PropertyWrite::Reset),
        Property::NSSR => Ok(PropertyWrite::Nothing),
        _ => Err(Status::INVALID_FIELD),
    }
}
