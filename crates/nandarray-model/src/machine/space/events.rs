//! Events of the store's commands, and the parts of the client that wait for flash operations or commands on the link.

use crate::flash_trace::ExtentOp;
use crate::machine::clients::Packed;

/// An event of a command of the store (a job); carries the number of a job, of a part (a job's share of one building
/// block, or an extent of it), or of a command on the link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SpaceEvent {
    /// The host submits this job.
    Submitted(u32),
    /// The device's request for the coordinates of this command on the link reaches the host's memory.
    CoordinatesAsked(u32),
    /// The coordinates of this command on the link are in the device.
    CoordinatesThere(u32),
    /// The command handler has decoded the coordinates of this job.
    Translating(u32),
    /// The data of this part has crossed the link to the device.
    DataDown(u32),
    /// The current stage of this part has ended.
    Staged(u32),
    /// The bytes of this part are with the host, or safe in the device.
    Delivered(u32),
    /// A host core is free for the next block of this job.
    HostWork(u32),
    /// A host core has translated or copied the block of this part.
    HostBlock(u32),
    /// The firmware grants this job credits for further pages.
    Credited(u32),
}

/// The party within this client that waits for a flash operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpaceWaiter {
    /// A part of a command.
    Part(u32),
    /// A chunk of reclaim: a group of pages that are read and then programmed elsewhere.
    Chunk(u32),
    /// A job that programs pages of the log (journal or checkpoint).
    Log(u32),
    /// A job that reads pages of the log (journal or checkpoint).
    LogRead(u32),
    /// An erase of a block of this segment.
    Erase(u32),
}

impl Packed for SpaceWaiter {
    fn pack(self) -> (u8, u32) {
        match self {
            Self::Part(n) => (0, n),
            Self::Chunk(n) => (1, n),
            Self::Log(n) => (2, n),
            Self::LogRead(n) => (3, n),
            Self::Erase(n) => (4, n),
        }
    }

    fn unpack(kind: u8, number: u32) -> Self {
        match kind {
            0 => Self::Part(number),
            1 => Self::Chunk(number),
            2 => Self::Log(number),
            3 => Self::LogRead(number),
            4 => Self::Erase(number),
            other => panic!("an operation of kind {other}"),
        }
    }
}

/// The party within this client that requested a command on the link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SpaceRequester {
    /// A job that the device translates.
    Job(u32),
    /// One extent of a block of a job that the host translates.
    Extent {
        /// The part that stands for the whole block.
        parent: u32,
        /// The extent's pages.
        extent: ExtentOp,
    },
}

impl SpaceEvent {
    /// Returns the event's number for the hash of a run: its kind and the number it carries.
    pub(super) fn code(self) -> (u64, u32) {
        match self {
            Self::DataDown(part) => (4, part),
            Self::Staged(part) => (5, part),
            Self::Delivered(part) => (7, part),
            Self::HostWork(job) => (12, job),
            Self::HostBlock(part) => (13, part),
            Self::Submitted(job) => (14, job),
            Self::Credited(job) => (27, job),
            Self::CoordinatesAsked(io) => (22, io),
            Self::CoordinatesThere(io) => (23, io),
            Self::Translating(job) => (24, job),
        }
    }
}
