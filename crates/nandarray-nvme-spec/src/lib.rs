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
//! | `io` | commands of namespaces and views |
//! | `pages` | data structures that accompany these |
//! | `identify` | the descriptions of a controller and its namespaces |
//! | `fabrics` | numbers and structures of admin and fabrics commands |
//!
//! Not here: what a command does, and any limit of a controller; queues, doorbells, PRP lists; metadata and end-to-end
//! protection, fused commands. This crate uses no other of the project.

mod entry;
mod fabrics;
mod identify;
mod io;
mod pages;
mod status;

pub use entry::{CompletionEntry, SubmissionEntry};
pub use fabrics::*;
pub use identify::{IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, LbaFormat, NdCapabilities, put_descriptors};
pub use io::{Blocks, Coordinates, NSID_ALL, NdBox, NvmeCommand, Opcode, OpenAction, Unit};
pub use pages::{
    BoxPage, CopyRange, DIMENSIONS_MAX, DsmRange, SPACE_NAME_BYTES_MAX, SpaceFlags, SpacePage, from_text, text,
};
pub use status::Status;
