//! Properties of a controller: the registers that a host reads and writes by fabrics commands.
//!
//! Properties that the specification reserves for controllers of this kind (interrupts, queues and buffers in memory)
//! read as zero, and cannot be written (base 2.0, section 3.1.3).

use nandarray_nvme_spec::{
    Capabilities, ControllerConfiguration, ControllerStatus, Property, PropertyWidth, SUBSYSTEM_RESET, Status,
    VERSION_2_0, ready_timeouts,
};

use crate::limits::QUEUE_ENTRIES_MAX;

/// Time until the controller is ready, in units of 500 ms: 7.5 s.
const READY_TIME: u8 = 15;
const CAP: u64 = Capabilities {
    entries_z: QUEUE_ENTRIES_MAX - 1,
    contiguous: true,
    timeout: READY_TIME,
    subsystem_reset: true,
    command_sets: (true, true),
    ready_with_media: true,
}
.encode();
const CRTO: u32 = ready_timeouts(READY_TIME as u16, READY_TIME as u16);
/// Dwords of the properties that are there.
const IN_USE: [u32; 7] =
    [Property::CAP, Property::CAP + 4, Property::VS, Property::CC, Property::CSTS, Property::NSSR, Property::CRTO];

/// The effect of a host's write of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PropertyWrite {
    /// The configuration gets this value.
    Configuration(ControllerConfiguration),
    /// The subsystem is reset.
    Reset,
    /// Nothing happens.
    Nothing,
}

/// Returns the value of a property, as dwords 0 and 1 of the completion of Property Get.
///
/// # Errors
/// Invalid field: no property begins there, or it has another width.
pub(crate) fn get(
    offset: u32,
    width: PropertyWidth,
    cc: ControllerConfiguration,
    csts: ControllerStatus,
) -> Result<(u32, u32), Status> {
    let bytes = width.bytes();
    let (value, own) = match offset {
        Property::CAP => ((CAP as u32, (CAP >> 32) as u32), 8),
        Property::VS => ((VERSION_2_0, 0), 4),
        Property::CC => ((cc.bits(), 0), 4),
        Property::CSTS => ((csts.encode(), 0), 4),
        Property::NSSR => ((0, 0), 4),
        Property::CRTO => ((CRTO, 0), 4),
        offset => {
            let is_reserved = offset < Property::END
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
pub(crate) fn set(
    offset: u32,
    width: PropertyWidth,
    value: u64,
    cc: ControllerConfiguration,
) -> Result<PropertyWrite, Status> {
    if width != PropertyWidth::Four {
        return Err(Status::INVALID_FIELD);
    }
    // The upper half of the field is reserved for a property of 4 bytes.
    let value = value as u32;
    match offset {
        Property::CC => {
            let next = ControllerConfiguration::from_bits(value);
            // While the controller is enabled, and stays so, it keeps its command sets (base 2.0, figure 46, CC.CSS).
            let is_kept = !(cc.is_enabled() && next.is_enabled()) || cc.has_sets_of(next);
            if next.is_supported() && is_kept {
                Ok(PropertyWrite::Configuration(next))
            } else {
                Err(Status::INVALID_FIELD)
            }
        }
        Property::NSSR if value == SUBSYSTEM_RESET => Ok(PropertyWrite::Reset),
        Property::NSSR => Ok(PropertyWrite::Nothing),
        _ => Err(Status::INVALID_FIELD),
    }
}
