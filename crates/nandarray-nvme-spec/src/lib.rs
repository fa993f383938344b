//! NVMe as hosts and controllers write it: entries, statuses, commands and data structures, byte for byte.
//!
//! Formats, sizes and status codes are those of the NVMe base specification 2.0 and the NVM command set specification
//! 1.0; zero-based fields of the wire format end in `_z`. N-D commands follow the NDS paper (section 5.3.1). Each field
//! is declared here alone, once, with its encoding and its decoding: the controller, the target, the initiator and the
//! binding use the types of this crate, and none of them shifts a dword.
//!
//! | file | one idea |
//! | --- | --- |
//! | `entry` | submission and completion entries |
//! | `status` | status codes |
//! | `fields` | fields of an entry, each a type that encodes and decodes it |
//! | `sets` | command sets and their namespaces |
//! | `io` | commands of namespaces and views: the NVM command set |
//! | `nd` | the same commands of views, stored boxes and array requests: command set 30h |
//! | `pages` | data structures that accompany these |
//! | `memory` | commands of Subsystem Local Memory: command set 3 |
//! | `programs` | commands of Computational Programs, and their structures: command set 4 |
//! | `reservations` | commands of registrants and reservations of a namespace, and their structures |
//! | `admin` | commands of the admin queue |
//! | `identify`, `features`, `logs` | what these describe, set and return |
//! | `fabrics` | fabrics commands, connect, the location of data |
//! | `properties` | registers of a controller |
//!
//! Not here: what a command does, and any limit of a controller; queues, doorbells, PRP lists; metadata and end-to-end
//! protection, fused commands. This crate uses no other of the project.

mod admin;
mod entry;
mod fabrics;
mod features;
mod fields;
mod identify;
mod io;
mod logs;
mod memory;
mod nd;
mod pages;
mod programs;
mod properties;
mod reservations;
mod sets;
mod status;

pub use admin::{AdminCommand, AdminOpcode};
pub use entry::{CompletionEntry, SubmissionEntry};
pub use fabrics::{
    ADMIN_IN_CAPSULE_BYTES, AuthFields, CNTLID_ANY, CONNECT_AUTHENTICATE, CONNECT_SECURE_CHANNEL, ConnectData,
    ConnectFields, DISCOVERY_NQN, DataDescriptor, DataLocation, DiscoveryEntry, FABRICS_OPCODE, FabricsCommand,
    FabricsType, PROTOCOL_SPECIFIC, SECURITY_PROTOCOL, TREQ_SECURE_CHANNEL, TSAS_TLS_13,
};
pub use features::{EventMask, Feature, FeatureCapabilities, FeatureChange, FeatureSelect, QueueCounts};
pub use identify::{
    Cns, IDENTIFY_BYTES, IdentifyController, IdentifyMemory, IdentifyNamespace, IdentifyNd, IdentifyPrograms,
    LbaFormat, NamespaceOfAnySet, NdCapabilities, put_descriptors,
};
pub use io::{BlockPart, Blocks, Coordinates, NdBox, NvmeCommand, Opcode, OpenAction, Unit};
pub use logs::{
    ChangedPage, DiscoveryHeader, EffectsPage, ErrorEntry, FirmwarePage, HealthPage, LogPage, LogRequest, NamesPage,
    PathState, PathsGroup, PathsHeader, SupportedBits, SupportedPage,
};
pub use memory::{MemoryCommand, MemoryCopyRange, MemoryOpcode};
pub use nd::{NdCommand, NdOpcode, NdPlace, ReplyPart, RequestPart};
pub use pages::{
    BoxPage, CopyRange, DIMENSIONS_MAX, DsmRange, SPACE_NAME_BYTES_MAX, SpaceFlags, SpacePage, from_text, text,
};
pub use programs::{
    Activation, ExecuteProgram, ExecutionAccount, LOAD_TAG, MemoryRange, PROGRAM_TYPE_RISCV, ProgramCommand,
    ProgramLoad, ProgramOpcode, ProgramSlotEntry, RangeSetAction, RangeSetEntry, SlotOccupancy,
};
pub use properties::{
    Capabilities, ControllerConfiguration, ControllerStatus, Property, PropertyWidth, SUBSYSTEM_RESET, VERSION_2_0,
    ready_timeouts,
};
pub use reservations::{
    AcquireAction, AcquireKeys, PersistenceChange, RegisterAction, RegisterKeys, RegistrantStatus, ReleaseAction,
    ReleaseKey, ReservationCapabilities, ReservationCommand, ReservationNoticeKind, ReservationNoticePage,
    ReservationOpcode, ReservationStatus, ReservationType,
};
pub use sets::{CommandSet, NSID_ALL, NSID_MEMORY, NSID_ND, NSID_PROGRAMS};
pub use status::Status;
