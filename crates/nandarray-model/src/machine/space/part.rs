//! A part of a command of the store: the share of one building block, or one extent of it, which passes through
//! stages.
//!
//! Each part is in one [`PartStage`] at a time; [`SpacePart::next_stage`] alone defines their order. The client books
//! their times.

use crate::flash_trace::ExtentOp;
use crate::machine::host_io::IoDirection;
use nandarray_sim::Ps;

/// Stage of a part of a command; at its end the part enters the next stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartStage {
    /// The part's data crosses the link to the device.
    Down,
    /// Written data moves into DRAM.
    Landed,
    /// The assembler scatters the part's runs into pages.
    Scattered,
    /// The translator looks up the part's pages.
    Translated,
    /// The allocator finds free pages for the part's programs.
    Allocated,
    /// The part's pages are read.
    Reading,
    /// The part's pages are programmed.
    Programming,
    /// The pages read are in DRAM; the assembler gathers the part's runs from them.
    Gathered,
    /// The part's data leaves DRAM for the link.
    Leaving,
    /// The part's data goes from DRAM to a core that runs a program.
    Crossing,
    /// The part's data goes from the crossbar to a core.
    Passing,
    /// The part's data is with the host, or safe in the flash.
    Delivered,
}

/// Flash operations of a part.
#[derive(Clone, Copy, Debug)]
pub(super) enum PartOps {
    /// A range of operations of the part's job.
    Of { from: usize, to: usize },
    /// The operation of one extent.
    One(ExtentOp),
    /// A range of operations of the part's job, each extent of which is a command of its own on the link (software
    /// NDS).
    Extents { from: usize, to: usize },
}

/// The share of one building block in a command, or one extent of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpacePart {
    /// The part's job, which may have ended before an extent in the write cache is programmed.
    pub(super) job: u32,
    /// Age of the part's job (the job's number in order of submission), which remains valid after the job has ended.
    pub(super) age: u64,
    /// Index of the block in the job.
    pub(super) number: usize,
    pub(super) io: Option<u32>,
    pub(super) direction: IoDirection,
    pub(super) ops: PartOps,
    pub(super) runs: u64,
    pub(super) bytes: u64,
    pub(super) at: PartStage,
    pub(super) left: u32,
    /// Time at which the part's last page is in DRAM.
    pub(super) ready: Ps,
    /// Total time of cache lines that DRAM had served ahead of transfers when the part's last page was booked; later
    /// lines delay the part.
    pub(super) lines_ahead: Ps,
    /// Whether the part's command was completed early, once the data was in the write cache.
    pub(super) completed_early: bool,
    /// Whether the part is the journal or checkpoint pages that the host writes (software NDS), and no building block.
    pub(super) log: bool,
    pub(super) failed: bool,
}

impl SpacePart {
    /// Makes a part of a job, without data or operations yet.
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

    /// Returns the stage after the current one. `to_core`: the data stays in the device's memory, for a program.
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
            (PartStage::Leaving | PartStage::Programming | PartStage::Crossing | PartStage::Passing, _) => {
                PartStage::Delivered
            }
            (PartStage::Down | PartStage::Delivered, _) => panic!("a part leaves a stage that it is not in: {self:?}"),
        }
    }
}
