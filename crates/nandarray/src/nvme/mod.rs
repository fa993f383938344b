//! NVMe: typed commands, the only entrance for hosts that speak NVMe.
//!
//! A command arrives as a 64-byte submission entry or as a [`NvmeCommand`], with its buffers ([`DataBuffer`]); a
//! [`Controller`] turns it into commands of [`crate::device`] and answers with a [`Completion`]. Formats, sizes and
//! status codes are those of the NVMe base specification 2.0 and the NVM command set specification 1.0; fields that
//! count from zero on the wire end in `_z`. A namespace is a one-dimensional space of logical blocks. N-D commands
//! follow the NDS paper (section 5.3.1).
//!
//! | file | one idea |
//! | --- | --- |
//! | `entry` | submission and completion entries, byte for byte |
//! | `status` | status codes, and their mapping from the engine's errors |
//! | `command` | typed commands, from and to entries |
//! | `pages` | data that is part of a command |
//! | `data_buffer` | the data buffer of a command, with its length and direction |
//! | `controller` | the entrance: from a command to the function that executes it |
//! | `namespace` | spaces that are namespaces; the NVM command set on them |
//! | `spaces`, `views` | the N-D commands; the open views of a controller |
//! | `identify` | the descriptions of a controller and its namespaces |
//!
//! Not here: queues, doorbells, PRP and SGL lists, admin commands (a transport has them; their data is in
//! `identify`), metadata and end-to-end protection, fused commands.

mod command;
mod controller;
mod data_buffer;
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
pub use entry::{CompletionEntry, SubmissionEntry};
pub use identify::{IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, LbaFormat, NdCapabilities};
pub use namespace::{COPY_BYTES_MAX, NSID_ALL, NewNamespace};
pub use pages::{BoxPage, CopyRange, DsmRange, SPACE_NAME_BYTES_MAX, SpaceFlags, SpacePage, from_text, text};
pub use spaces::ResolvedBox;
pub use status::Status;
pub use views::VIEWS_MAX;
