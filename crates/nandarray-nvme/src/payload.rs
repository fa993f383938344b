//! The data of a command as memory of this process, which a transport fills or sends.

use nandarray::nvme::{DataBuffer, Status, SubmissionEntry};

use crate::wire::AdminOpcode;

/// Direction of a command's data, seen from the host.
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
    /// The direction that an opcode encodes; of a fabrics command, its type. 11b has no direction.
    pub fn of(entry: &SubmissionEntry) -> Self {
        let code = if entry.opcode == AdminOpcode::FABRICS { entry.nsid.get() as u8 } else { entry.opcode };
        match code & 3 {
            1 => Self::ToController,
            2 => Self::ToHost,
            _ => Self::None,
        }
    }
}

/// The data of a command.
#[derive(Debug)]
pub enum Payload<'a> {
    /// None.
    None,
    /// The host's data.
    ToController(&'a [u8]),
    /// Room for the controller's data, all zeroes at first.
    ToHost(&'a mut [u8]),
}

impl<'a> Payload<'a> {
    /// As the engine takes it.
    pub(crate) fn into_buffer(self) -> DataBuffer<'a> {
        match self {
            Self::None => DataBuffer::NONE,
            Self::ToController(bytes) => DataBuffer::to_controller(bytes),
            Self::ToHost(bytes) => DataBuffer::to_host(bytes),
        }
    }

    /// The host's data.
    pub(crate) fn source(&self) -> Result<&[u8], Status> {
        match self {
            Self::ToController(bytes) => Ok(bytes),
            _ => Err(Status::DATA_LENGTH_INVALID),
        }
    }

    /// Room for the controller's data.
    pub(crate) fn room(&mut self) -> Result<&mut [u8], Status> {
        match self {
            Self::ToHost(bytes) => Ok(bytes),
            _ => Err(Status::DATA_LENGTH_INVALID),
        }
    }

    /// Gives the part of a data structure that the host has room for, from an offset.
    pub(crate) fn give(&mut self, bytes: &[u8], offset: u64) -> Result<(), Status> {
        let room = self.room()?;
        let from = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
        let n = from.len().min(room.len());
        room[..n].copy_from_slice(&from[..n]);
        room[n..].fill(0);
        Ok(())
    }
}
