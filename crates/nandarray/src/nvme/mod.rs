//! NVMe: typed commands, the only way in for a device whose host speaks NVMe.
//!
//! A command arrives as a 64-byte submission entry or as a [`NvmeCommand`], with buffers lent to it ([`Lent`]); a
//! [`Controller`] turns it into commands of [`crate::device`] and answers with a [`Completion`]. Formats, sizes and
//! status codes are those of the NVMe base specification 2.0 and the NVM command set specification 1.0; fields that
//! count from zero on the wire end in `_z`. A namespace is a one-dimensional space of logical blocks. N-D commands
//! follow the NDS paper (section 5.3.1).
//!
//! | file | one idea |
//! | --- | --- |
//! | `entry` | submission and completion entries, byte for byte |
//! | `status` | status codes, and which error of the engine becomes which |
//! | `command` | typed commands, from and to entries |
//! | `pages` | what a command's data says where the data is part of the command |
//! | `lent` | buffers lent to one command, and their lengths |
//! | `controller` | the entrance: from a command to who executes it |
//! | `namespace` | spaces that are namespaces; the NVM command set on them |
//! | `spaces` | dynamic space ids, and the N-D commands |
//! | `identify` | what a controller tells of itself and of its namespaces |
//!
//! Not here: queues, doorbells, PRP and SGL lists, admin commands (a transport has them; what they tell is in
//! `identify`), metadata and end-to-end protection, fused commands.

mod command;
mod controller;
mod entry;
mod identify;
mod lent;
mod namespace;
mod pages;
mod spaces;
mod status;

pub use command::{Blocks, Coordinates, NdBox, NvmeCommand, Opcode, OpenAction, Unit};
pub use controller::{Completion, Controller};
pub use entry::{CompletionEntry, SubmissionEntry};
pub use identify::{IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, LbaFormat, NdCapabilities};
pub use lent::Lent;
pub use namespace::{COPY_BYTES_MAX, NSID_ALL, NewNamespace};
pub use pages::{BoxPage, CopyRange, DsmRange, SPACE_NAME_BYTES_MAX, SpaceFlags, SpacePage, from_text, text};
pub use spaces::VIEWS_MAX;
pub use status::Status;
