//! Properties of a controller: the registers that a host reads and writes by fabrics commands (base 2.0, 3.1.3).

use crate::fields::numbers;

/// Properties, by the offsets of the registers.
#[derive(Clone, Copy, Debug)]
pub struct Property;

impl Property {
    /// Capabilities, 8 bytes ([`Capabilities`]).
    pub const CAP: u32 = 0x00;
    /// Version.
    pub const VS: u32 = 0x08;
    /// Configuration ([`ControllerConfiguration`]).
    pub const CC: u32 = 0x14;
    /// Status ([`ControllerStatus`]).
    pub const CSTS: u32 = 0x1c;
    /// Subsystem reset.
    pub const NSSR: u32 = 0x20;
    /// Ready timeouts ([`ready_timeouts`]).
    pub const CRTO: u32 = 0x68;
    /// First offset behind the properties, where a transport may have its own.
    pub const END: u32 = 0x1000;
}

numbers! {
    /// Width of a property (ATTRIB.SIZE; base 2.0, figure 391).
    PropertyWidth {
        /// 4 bytes.
        Four = 0,
        /// 8 bytes.
        Eight = 1,
    }
}

impl PropertyWidth {
    /// Returns the width in bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
        }
    }
}

/// Version 2.0 of the base specification, as in the property VS and in Identify.
pub const VERSION_2_0: u32 = 2 << 16;
/// Value that resets the subsystem when written to the property NSSR: "NVMe" in ASCII.
pub const SUBSYSTEM_RESET: u32 = 0x4e56_4d65;

/// The property CAP (base 2.0, figure 36).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Maximum number of entries of a queue minus one (MQES).
    pub entries_z: u16,
    /// Queues have to be contiguous in memory (CQR).
    pub contiguous: bool,
    /// Time until the controller is ready, in units of 500 ms (TO).
    pub timeout: u8,
    /// The subsystem can be reset (NSSRS).
    pub subsystem_reset: bool,
    /// The NVM command set (CSS bit 0), and all that Identify names (CSS bit 6).
    pub command_sets: (bool, bool),
    /// Controller ready with media (CRMS bit 0).
    pub ready_with_media: bool,
}

impl Capabilities {
    /// Encodes the register.
    pub const fn encode(self) -> u64 {
        self.entries_z as u64
            | (self.contiguous as u64) << 16
            | (self.timeout as u64) << 24
            | (self.subsystem_reset as u64) << 36
            | (self.command_sets.0 as u64) << 37
            | (self.command_sets.1 as u64) << 43
            | (self.ready_with_media as u64) << 59
    }
}

/// Encodes the property CRTO (base 2.0, figure 57): times until the controller is ready, in units of 500 ms.
pub const fn ready_timeouts(with_media: u16, without_media: u16) -> u32 {
    with_media as u32 | (without_media as u32) << 16
}

/// The property CC (base 2.0, figure 46).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerConfiguration(u32);

impl ControllerConfiguration {
    const ENABLE: u32 = 1;
    const COMMAND_SETS: u32 = 7 << 4;
    const ALL_COMMAND_SETS: u32 = 6 << 4;
    const PAGE_SIZE: u32 = 0xf << 7;
    const ARBITRATION: u32 = 7 << 11;
    const SHUTDOWN: u32 = 3 << 14;
    /// Sizes of submission and completion entries, as powers of two.
    const ENTRY_SIZES: u32 = 6 << 16 | 4 << 20;
    /// An enabled controller with all command sets, and entries of 64 and 16 bytes.
    pub const ENABLED: Self = Self(Self::ENABLE | Self::ALL_COMMAND_SETS | Self::ENTRY_SIZES);

    /// Reads the register.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns the register.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Whether the controller is enabled (EN).
    pub fn is_enabled(self) -> bool {
        self.0 & Self::ENABLE != 0
    }

    /// Returns the configuration, not enabled.
    pub fn disabled(self) -> Self {
        Self(self.0 & !Self::ENABLE)
    }

    /// Whether the host announces that the controller is shut down (SHN).
    pub fn shuts_down(self) -> bool {
        self.0 & Self::SHUTDOWN != 0
    }

    /// Whether pages have 4 KiB (MPS), queues are arbitrated in turn (AMS), and the command sets are NVM alone or all
    /// (CSS): the only values that a controller with these [`Capabilities`] takes.
    pub fn is_supported(self) -> bool {
        self.0 & (Self::PAGE_SIZE | Self::ARBITRATION) == 0
            && matches!(self.0 & Self::COMMAND_SETS, 0 | Self::ALL_COMMAND_SETS)
    }

    /// Whether both configurations have the same command sets (CSS).
    pub fn has_sets_of(self, other: Self) -> bool {
        (self.0 ^ other.0) & Self::COMMAND_SETS == 0
    }
}

/// The property CSTS (base 2.0, figure 47).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerStatus {
    /// The controller is ready (RDY).
    pub ready: bool,
    /// The controller has failed, and must be reset (CFS).
    pub fatal: bool,
    /// The controller is shut down (SHST).
    pub shut_down: bool,
}

impl ControllerStatus {
    /// Reads the register.
    pub fn decode(bits: u32) -> Self {
        Self { ready: bits & 1 != 0, fatal: bits & 1 << 1 != 0, shut_down: bits >> 2 & 3 == 2 }
    }

    /// Encodes the register.
    pub fn encode(self) -> u32 {
        u32::from(self.ready) | u32::from(self.fatal) << 1 | if self.shut_down { 2 << 2 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_those_of_the_specification() {
        assert_eq!(ControllerConfiguration::ENABLED.bits(), 0x0046_0061);
        assert!(ControllerConfiguration::ENABLED.is_supported() && ControllerConfiguration::ENABLED.is_enabled());
        assert!(!ControllerConfiguration::from_bits(1 << 7).is_supported(), "pages of 8 KiB");
        assert!(!ControllerConfiguration::from_bits(1 << 4).is_supported(), "command sets 1");
        assert!(ControllerConfiguration::from_bits(1 << 14).shuts_down());
        for bits in 0..16 {
            let status = ControllerStatus::decode(bits);
            assert_eq!(ControllerStatus::decode(status.encode()), status, "{bits:#x}");
        }
        assert_eq!(ControllerStatus { ready: true, fatal: false, shut_down: true }.encode(), 9);
    }
}
