//! NVMe: typed commands for hosts that use NVMe, and the controller that executes them.
//!
//! A command arrives as a 64-byte submission entry or as an [`NvmeCommand`], together with its buffers
//! ([`DataBuffer`]); a [`Controller`] translates it to commands of `crate::device` and returns a [`Completion`].
//! Entries, commands, pages and status codes are those of `nandarray-nvme-spec`, which this module offers again. A
//! namespace is a one-dimensional space of logical blocks. N-D commands follow the NDS paper (section 5.3.1).
//!
//! | file | one idea |
//! | --- | --- |
//! | `errors` | the mapping of the engine's errors to status codes |
//! | `data_buffer` | the data buffer of a command, with its length and direction |
//! | `controller` | the execution of a command, at once or in flight |
//! | `namespace` | namespaces, and the NVM command set on them |
//! | `access` | the arrays that a controller's host may use |
//! | `spaces`, `views` | the N-D commands; the open views of a controller |
//! | `elements` | elements in packed memory, for hosts whose requests are no entries |
//! | `identify` | the descriptions of a controller and its namespaces |
//!
//! Not here: queues, doorbells, PRP and SGL lists, admin commands (these belong to transports; the data of identify is
//! here), metadata and end-to-end protection, fused commands.

mod access;
mod controller;
mod data_buffer;
mod elements;
mod errors;
mod identify;
mod namespace;
mod spaces;
mod views;

pub use nandarray_nvme_spec::{
    Blocks, BoxPage, CompletionEntry, Coordinates, CopyRange, DsmRange, IDENTIFY_BYTES, IdentifyController,
    IdentifyNamespace, LbaFormat, NSID_ALL, NdBox, NdCapabilities, NvmeCommand, Opcode, OpenAction,
    SPACE_NAME_BYTES_MAX, SpaceFlags, SpacePage, Status, SubmissionEntry, Unit, from_text, put_descriptors, text,
};

pub use access::{AllArrays, ArrayAccess};
pub use controller::{Completion, Controller};
pub use data_buffer::DataBuffer;
pub use elements::{Elements, MOVE_BYTES_MAX, WRITE_ROWS_MAX, append_elements, read_elements, write_elements};
pub use identify::namespace_uuid;
pub use namespace::{COPY_BYTES_MAX, NewNamespace};
pub use spaces::ResolvedBox;
pub use views::VIEWS_MAX;
