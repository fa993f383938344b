//! NVMe: typed commands for hosts that use NVMe, and the controller that executes them.
//!
//! A command arrives as a 64-byte submission entry or as an [`NvmeCommand`], together with its buffers
//! ([`DataBuffer`]); a [`Controller`] translates it to commands of `crate::device` and returns a [`Completion`].
//! Formats, sizes and status codes are those of the NVMe base specification 2.0 and the NVM command set specification
//! 1.0; zero-based fields of the wire format end in `_z`. A namespace is a one-dimensional space of logical blocks. N-D
//! commands follow the NDS paper (section 5.3.1).
//!
//! | file | one idea |
//! | --- | --- |
//! | `entry` | submission and completion entries, byte for byte |
//! | `status` | status codes, and their mapping from the engine's errors |
//! | `command` | typed commands, and their conversion from and to entries |
//! | `pages` | data structures that accompany a command |
//! | `data_buffer` | the data buffer of a command, with its length and direction |
//! | `controller` | the execution of a command, at once or in flight |
//! | `namespace` | namespaces, and the NVM command set on them |
//! | `spaces`, `views` | the N-D commands; the open views of a controller |
//! | `elements` | elements in packed memory, for hosts whose requests are no entries |
//! | `identify` | the descriptions of a controller and its namespaces |
//!
//! Not here: queues, doorbells, PRP and SGL lists, admin commands (these belong to transports; the data of identify is
//! here), metadata and end-to-end protection, fused commands.

mod command;
mod controller;
mod data_buffer;
mod elements;
mod entry;
mod identify;
mod namespace;
mod pages;
mod spaces;
mod status;
mod views;

pub use command::{Blocks, Coordinates, NdBox, NvmeCommand, Opcode, OpenAction, Unit};
pub use controller::{Completion, Controller};
pub use data_buffer::DataBuffer;
pub use elements::{Elements, MOVE_BYTES_MAX, append_elements, read_elements, write_elements};
pub use entry::{CompletionEntry, SubmissionEntry};
pub use identify::{
    IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, LbaFormat, NdCapabilities, namespace_uuid, put_descriptors,
};
pub use namespace::{COPY_BYTES_MAX, NSID_ALL, NewNamespace};
pub use pages::{BoxPage, CopyRange, DsmRange, SPACE_NAME_BYTES_MAX, SpaceFlags, SpacePage, from_text, text};
pub use spaces::ResolvedBox;
pub use status::Status;
pub use views::VIEWS_MAX;
