//! Command sets, and the namespaces with which this project's drives offer them.

/// The namespace identifier that stands for all namespaces, in a flush.
pub const NSID_ALL: u32 = u32::MAX;
/// Identifier of the namespace of Subsystem Local Memory.
pub const NSID_MEMORY: u32 = 1022;
/// Identifier of the namespace of Computational Programs.
pub const NSID_PROGRAMS: u32 = 1023;
/// Identifier of the namespace of the N-D commands.
pub const NSID_ND: u32 = 1024;

/// Command set identifiers (base 2.0, section 3.1.4.1; values from 30h are the vendor's).
#[derive(Clone, Copy, Debug)]
pub struct CommandSet;

impl CommandSet {
    /// The NVM command set.
    pub const NVM: u8 = 0;
    /// Subsystem Local Memory.
    pub const MEMORY: u8 = 3;
    /// Computational Programs.
    pub const PROGRAMS: u8 = 4;
    /// The N-D commands, in the range for vendors.
    pub const ND: u8 = 0x30;
}
