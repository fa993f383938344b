//! The data of a command in memory of this process, which a transport fills or sends.

use nandarray::nvme::DataBuffer;
use nandarray_nvme_spec::{AdminCommand, FABRICS_OPCODE, Status, SubmissionEntry};

/// Direction of a command's data, as seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferDirection {
    /// No data.
    None,
    /// From the host to the controller.
    ToController,
    /// From the controller to the host.
    ToHost,
}

impl TransferDirection {
    /// Returns the direction that the opcode encodes or, for a fabrics command, its type. Code 11b counts as no data;
    /// so do commands of the admin queue (`is_admin`) that transfer none with these fields.
    pub fn of(entry: &SubmissionEntry, is_admin: bool) -> Self {
        let code = if entry.opcode == FABRICS_OPCODE { entry.nsid.get() as u8 } else { entry.opcode };
        let has_none = is_admin && AdminCommand::transfers_nothing(entry);
        match code & 3 {
            _ if has_none => Self::None,
            1 => Self::ToController,
            2 => Self::ToHost,
            _ => Self::None,
        }
    }
}

/// The data buffer of a command.
#[derive(Debug)]
pub enum Payload<'a> {
    /// The command has no data.
    None,
    /// Data that the host sent.
    ToController(&'a [u8]),
    /// Room for data to the host. It may hold data of earlier commands: a command that succeeds fills all of it.
    ToHost(&'a mut [u8]),
}

impl<'a> Payload<'a> {
    /// Converts the payload to the engine's buffer.
    pub(crate) fn into_buffer(self) -> DataBuffer<'a> {
        match self {
            Self::None => DataBuffer::NONE,
            Self::ToController(bytes) => DataBuffer::to_controller(bytes),
            Self::ToHost(bytes) => DataBuffer::to_host(bytes),
        }
    }

    /// Returns the host's data; an error if the command has none.
    pub(crate) fn source(&self) -> Result<&[u8], Status> {
        match self {
            Self::ToController(bytes) => Ok(bytes),
            _ => Err(Status::DATA_LENGTH_INVALID),
        }
    }

    /// Returns the room for data to the host; an error if the command has none.
    pub(crate) fn room(&mut self) -> Result<&mut [u8], Status> {
        match self {
            Self::ToHost(bytes) => Ok(bytes),
            _ => Err(Status::DATA_LENGTH_INVALID),
        }
    }

    /// Copies a data structure, from byte `offset` on, into the room for data to the host, as much as fits; fills the
    /// rest with zeroes.
    ///
    /// # Errors
    /// Invalid field: the offset lies behind the end. Data SGL length invalid: there is no room.
    pub(crate) fn give(&mut self, bytes: &[u8], offset: u64) -> Result<(), Status> {
        let room = self.room()?;
        let from = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).ok_or(Status::INVALID_FIELD)?;
        let n = from.len().min(room.len());
        room[..n].copy_from_slice(&from[..n]);
        room[n..].fill(0);
        Ok(())
    }
}
