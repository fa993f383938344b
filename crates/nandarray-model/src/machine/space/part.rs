//! A part of a command of the store: a building block's share, or one extent of it, on its way from stage to stage.
//!
//! Each part has one [`PartStage`] at a time; [`SpacePart::next_stage`] is the only order of stages. The client books
//! their times.

use crate::flash_trace::ExtentOp;
use crate::machine::host_io::IoDirection;
use nandarray_sim::Ps;

/// The stage of a part of a command; when its time is over, the part enters the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartStage {
    /// Its data crosses the link to the device.
    Down,
    /// Its data moves into DRAM, to be written.
    Landed,
    /// The assembler scatters its runs into pages.
    Scattered,
    /// The translator finds its pages.
    Translated,
    /// The allocator finds pages for it.
    Allocated,
    /// Pages are read.
    Reading,
    /// Pages are programmed.
    Programming,
    /// The pages that were read are in DRAM; the assembler gathers their runs.
    Gathered,
    /// Its data leaves DRAM for the link.
    Leaving,
    /// Its data crosses from the channel, or from DRAM, to a core.
    Crossing,
    /// It is with the host, or safe in the flash.
    Delivered,
}

/// The flash operations of a part.
#[derive(Clone, Copy, Debug)]
pub(super) enum PartOps {
    /// A range of its job's operations.
    Of { from: usize, to: usize },
    /// The operation of one extent.
    One(ExtentOp),
    /// A range of its job's operations, whose extents are ios of their own (software NDS).
    Extents { from: usize, to: usize },
}

/// A building block's share of a command, or an extent of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpacePart {
    /// Its job, which may be over before an extent that went into the write cache is programmed.
    pub(super) job: u32,
    /// The age of its job (its number among all), which outlives the job.
    pub(super) age: u64,
    /// The block's index in the job.
    pub(super) number: usize,
    pub(super) io: Option<u32>,
    pub(super) direction: IoDirection,
    pub(super) ops: PartOps,
    pub(super) runs: u64,
    pub(super) bytes: u64,
    pub(super) at: PartStage,
    pub(super) left: u32,
    /// Time at which its last page is in DRAM.
    pub(super) ready: Ps,
    /// Time of lines ahead of transfers when its last page was booked: later lines delay it.
    pub(super) lines_ahead: Ps,
    /// Whether its io was completed early, from the write cache.
    pub(super) completed_early: bool,
    /// Whether it is the log, which the host writes (software NDS).
    pub(super) log: bool,
    pub(super) failed: bool,
}

impl SpacePart {
    /// A part of a job of this age, without data or operations yet.
    pub(super) fn new(job: u32, age: u64) -> Self {
        Self {
            job,
            age,
            number: 0,
            io: None,
            direction: IoDirection::Read,
            ops: PartOps::Of { from: 0, to: 0 },
            runs: 0,
            bytes: 0,
            at: PartStage::Translated,
            left: 0,
            ready: Ps::ZERO,
            lines_ahead: Ps::ZERO,
            completed_early: false,
            log: false,
            failed: false,
        }
    }

    /// The stage behind the present one. `to_core`: the data stays in the device's memory, for a program.
    ///
    /// # Panics
    /// If the part's data is still on the link, or the part is delivered.
    pub(super) fn next_stage(&self, to_core: bool) -> PartStage {
        match (self.at, self.direction) {
            (PartStage::Landed, _) => PartStage::Scattered,
            (PartStage::Scattered, _) => PartStage::Translated,
            (PartStage::Translated, IoDirection::Write) => PartStage::Allocated,
            (PartStage::Translated | PartStage::Allocated, _) => PartStage::Reading,
            (PartStage::Reading, IoDirection::Write) => PartStage::Programming,
            (PartStage::Reading, _) => PartStage::Gathered,
            (PartStage::Gathered, _) if to_core => PartStage::Delivered,
            (PartStage::Gathered, _) => PartStage::Leaving,
            (PartStage::Leaving | PartStage::Programming | PartStage::Crossing, _) => PartStage::Delivered,
            (PartStage::Down | PartStage::Delivered, _) => panic!("a part leaves a stage that it is not in: {self:?}"),
        }
    }
}
