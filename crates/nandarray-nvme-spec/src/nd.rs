//! The command set of N-D commands (30h, the vendor's), for hosts whose commands have only one buffer.
//!
//! The opcodes are those of the N-D commands in the NVM command set without their highest bit; Store Box, Delete Box,
//! Array Request, Array Reply and Run Output exist here alone. An N-D read or write has its coordinates in the entry,
//! names a stored box, or, if it writes, has a page of coordinates in front of its data.

use crate::entry::SubmissionEntry;
use crate::fields::{Bit, DwordBits};
use crate::io::{Coordinates, NdBox, NvmeCommand, Opcode};
use crate::sets::NSID_ND;
use crate::status::Status;

/// Opcodes of the command set; the others are those of the NVM command set without [`Self::VENDOR`].
#[derive(Clone, Copy, Debug)]
pub struct NdOpcode;

impl NdOpcode {
    /// The highest bit of the N-D commands' opcodes in the NVM command set, which marks vendor commands.
    pub const VENDOR: u8 = 0x80;
    /// N-D Write.
    pub const WRITE: u8 = Opcode::ND_WRITE & !Self::VENDOR;
    /// N-D Read.
    pub const READ: u8 = Opcode::ND_READ & !Self::VENDOR;
    /// Store Box.
    pub const STORE_BOX: u8 = 0x0d;
    /// Delete Box.
    pub const DELETE_BOX: u8 = 0x10;
    /// Array Request.
    pub const ARRAY_REQUEST: u8 = 0x11;
    /// Array Reply.
    pub const ARRAY_REPLY: u8 = 0x12;
    /// Run Output.
    pub const RUN_OUTPUT: u8 = 0x16;
}

/// The coordinates are in a page in front of the data.
type InPage = Bit<11, 9>;
/// The coordinates are those of a stored box.
type ByHandle = Bit<11, 10>;
/// Force unit access.
type Fua = Bit<11, 30>;
/// Handle of a stored box.
type Handle = DwordBits<12, 31, 0>;
/// Tag of an array request, which the host chooses.
type RequestTag = DwordBits<10, 31, 0>;
/// The array request may change the store.
type Changes = Bit<11, 0>;
/// Whether an array request runs programs.
type RunsPrograms = Bit<11, 1>;
/// Whether the host fetches outputs of an array request's run with Run Output while it goes on.
type FetchesOutputs = Bit<11, 2>;
/// Size of the whole array request in bytes.
type RequestBytes = DwordBits<12, 31, 0>;
/// First byte of this part in the array request.
type RequestOffset = DwordBits<13, 31, 0>;
/// Handle of an array request's reply.
type ReplyHandle = DwordBits<10, 31, 0>;
/// First byte of this part in the reply.
type ReplyOffset = DwordBits<12, 31, 0>;

/// The place of the coordinates of an N-D read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdPlace {
    /// In the entry.
    Entry(NdBox),
    /// In a page ([`crate::BoxPage`]) in front of the data, which only a write has.
    Data(NdBox),
    /// In a stored box.
    Stored {
        /// Handle of the box.
        handle: u32,
        /// Force unit access.
        fua: bool,
    },
}

/// A part of an array request, a message of text with data behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestPart {
    /// Tag that all parts of one request have; the host chooses it.
    pub tag: u32,
    /// Whether the request may change the store.
    pub changes: bool,
    /// Whether the request runs programs: it may take long.
    pub programs: bool,
    /// Whether the host fetches outputs of the programs with Run Output while they run.
    pub fetches: bool,
    /// Size of the whole request in bytes.
    pub size: u32,
    /// First byte of this part.
    pub offset: u32,
}

/// A part of the reply to an array request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyPart {
    /// Handle of the reply.
    pub handle: u32,
    /// First byte of this part.
    pub offset: u32,
}

/// A command of the command set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdCommand {
    /// Reads a sub-block of a view.
    Read(NdPlace),
    /// Writes a sub-block of a view.
    Write(NdPlace),
    /// Stores a sub-block, whose coordinates are in the command's data; returns its handle.
    StoreBox(NdBox),
    /// Deletes a stored box.
    DeleteBox {
        /// Handle of the box.
        handle: u32,
    },
    /// Sends a part of an array request.
    ArrayRequest(RequestPart),
    /// Fetches a part of an array request's reply.
    ArrayReply(ReplyPart),
    /// Fetches the next bytes of an output of a run, as soon as there are enough of them.
    RunOutput {
        /// Tag of the array request that runs.
        tag: u32,
    },
    /// Another N-D command, as the NVM command set has it.
    View(NvmeCommand),
}

impl NdCommand {
    /// Decodes an entry.
    ///
    /// # Errors
    /// Invalid opcode, or invalid field.
    pub fn decode(entry: &SubmissionEntry) -> Result<Self, Status> {
        Ok(match entry.opcode {
            NdOpcode::READ => Self::Read(place(entry)?),
            NdOpcode::WRITE => Self::Write(place(entry)?),
            NdOpcode::STORE_BOX => Self::StoreBox(paged(nd_box(entry)?)),
            NdOpcode::DELETE_BOX => Self::DeleteBox { handle: Handle::get(entry) },
            NdOpcode::ARRAY_REQUEST => Self::ArrayRequest(RequestPart {
                tag: RequestTag::get(entry),
                changes: Changes::flag(entry),
                programs: RunsPrograms::flag(entry),
                fetches: FetchesOutputs::flag(entry),
                size: RequestBytes::get(entry),
                offset: RequestOffset::get(entry),
            }),
            NdOpcode::ARRAY_REPLY => {
                Self::ArrayReply(ReplyPart { handle: ReplyHandle::get(entry), offset: ReplyOffset::get(entry) })
            }
            NdOpcode::RUN_OUTPUT => Self::RunOutput { tag: RequestTag::get(entry) },
            opcode if opcode & NdOpcode::VENDOR != 0 => return Err(Status::INVALID_OPCODE),
            opcode => {
                Self::View(NvmeCommand::decode(&SubmissionEntry { opcode: opcode | NdOpcode::VENDOR, ..*entry })?)
            }
        })
    }

    /// Encodes the command as the submission entry of a host, without pointers to data.
    ///
    /// # Panics
    /// If a command of [`Self::View`] is no N-D command.
    pub fn encode(&self, cid: u16) -> SubmissionEntry {
        let new = |opcode: u8| SubmissionEntry::new(opcode, NSID_ND, cid);
        match *self {
            Self::Read(place) => placed(NdOpcode::READ, place, cid),
            Self::Write(place) => placed(NdOpcode::WRITE, place, cid),
            Self::StoreBox(nd) => {
                let mut entry = of_view(NvmeCommand::NdRead(paged(nd)), cid);
                entry.opcode = NdOpcode::STORE_BOX;
                InPage::put(&mut entry, false);
                entry
            }
            Self::DeleteBox { handle } => {
                let mut entry = new(NdOpcode::DELETE_BOX);
                Handle::put(&mut entry, handle);
                entry
            }
            Self::ArrayRequest(part) => {
                let mut entry = new(NdOpcode::ARRAY_REQUEST);
                RequestTag::put(&mut entry, part.tag);
                Changes::put(&mut entry, part.changes);
                RunsPrograms::put(&mut entry, part.programs);
                FetchesOutputs::put(&mut entry, part.fetches);
                RequestBytes::put(&mut entry, part.size);
                RequestOffset::put(&mut entry, part.offset);
                entry
            }
            Self::ArrayReply(part) => {
                let mut entry = new(NdOpcode::ARRAY_REPLY);
                ReplyHandle::put(&mut entry, part.handle);
                ReplyOffset::put(&mut entry, part.offset);
                entry
            }
            Self::RunOutput { tag } => {
                let mut entry = new(NdOpcode::RUN_OUTPUT);
                RequestTag::put(&mut entry, tag);
                entry
            }
            Self::View(command) => of_view(command, cid),
        }
    }
}

/// Returns a sub-block whose coordinates are in a page that no pointer names.
fn paged(nd: NdBox) -> NdBox {
    NdBox { coordinates: Coordinates::Page { pointer: 0 }, ..nd }
}

/// Decodes the sub-block that an entry has by itself.
fn nd_box(entry: &SubmissionEntry) -> Result<NdBox, Status> {
    let read = SubmissionEntry { opcode: Opcode::ND_READ, ..*entry };
    match NvmeCommand::decode(&read)? {
        NvmeCommand::NdRead(nd) => Ok(nd),
        other => unreachable!("an N-D read was decoded as {other:?}"),
    }
}

fn place(entry: &SubmissionEntry) -> Result<NdPlace, Status> {
    let nd = nd_box(entry)?;
    Ok(match nd.coordinates {
        _ if ByHandle::flag(entry) => NdPlace::Stored { handle: Handle::get(entry), fua: Fua::flag(entry) },
        Coordinates::Page { .. } => NdPlace::Data(paged(nd)),
        Coordinates::Inline { .. } => NdPlace::Entry(nd),
    })
}

fn placed(opcode: u8, place: NdPlace, cid: u16) -> SubmissionEntry {
    let mut entry = match place {
        NdPlace::Entry(nd) => of_view(NvmeCommand::NdRead(nd), cid),
        NdPlace::Data(nd) => of_view(NvmeCommand::NdRead(paged(nd)), cid),
        NdPlace::Stored { handle, fua } => {
            let mut entry = SubmissionEntry::new(opcode, NSID_ND, cid);
            ByHandle::put(&mut entry, true);
            Handle::put(&mut entry, handle);
            Fua::put(&mut entry, fua);
            entry
        }
    };
    entry.opcode = opcode;
    entry
}

/// Encodes an N-D command of the NVM command set for this one.
fn of_view(command: NvmeCommand, cid: u16) -> SubmissionEntry {
    let entry = command.encode(cid);
    assert!(entry.opcode & NdOpcode::VENDOR != 0, "{command:?} is no N-D command");
    SubmissionEntry { opcode: entry.opcode & !NdOpcode::VENDOR, nsid: NSID_ND.into(), ..entry }
}
