//! Commands of the store in flight: the operations of a command's trace, sorted into blocks, log and background, and
//! its state.

use std::collections::VecDeque;

use crate::flash::{OpCause, OpKind};
use crate::flash_trace::{BlockOps, ExtentOp, FlashTrace};
use crate::machine::host_io::IoDirection;
use nandarray_sim::Ps;

/// The number of a command of the store in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpaceJobId(pub(super) u64);

#[cfg(test)]
impl SpaceJobId {
    /// A number, for tests of those who keep them.
    pub(crate) fn for_test(number: u64) -> Self {
        Self(number)
    }
}

/// The kind of a command of the store, by the data that it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceJobKind {
    /// Elements to the host.
    Read,
    /// Elements to the device.
    Write,
    /// No elements: flush, create, and so on.
    Other,
    /// Elements into the device's memory, for a program that runs there. There is no command on the link: it belongs to
    /// the program's own.
    Input,
    /// An output of such a program, from the device's memory into the flash.
    Output,
    /// Pages of an input, in order, from the flash to a core past DRAM: each block is one, read when there is a credit
    /// for it.
    Stream {
        /// The core.
        core: u32,
    },
    /// Pages of an input that is in the device's memory, on to a core, by credits as well.
    Feed {
        /// The core.
        core: u32,
    },
}

impl SpaceJobKind {
    /// Whether it is an input or output of a program, which crosses no link.
    pub fn is_programs(self) -> bool {
        matches!(self, Self::Input | Self::Output | Self::Stream { .. } | Self::Feed { .. })
    }

    /// The core that its pages go to, if they do.
    pub(super) fn core(self) -> Option<u32> {
        match self {
            Self::Stream { core } | Self::Feed { core } => Some(core),
            Self::Read | Self::Write | Self::Other | Self::Input | Self::Output => None,
        }
    }
}

/// A command of the store that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceJobDone {
    /// Its number.
    pub id: SpaceJobId,
    /// Its kind.
    pub kind: SpaceJobKind,
    /// Bytes of elements moved.
    pub bytes: u64,
    /// Time of its submission.
    pub submitted: Ps,
    /// Time at which the host had its completion.
    pub done: Ps,
    /// Whether a page could not be read.
    pub failed: bool,
}

/// A piece of background work of a job.
#[derive(Clone, Debug)]
pub(super) enum Background {
    /// Pages that are read, then programmed elsewhere.
    Chunk(Vec<ExtentOp>),
    /// A segment to erase, after all work before it.
    Erase(u32),
}

/// The phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobPhase {
    /// Blocks are in flight.
    Moving,
    /// Waits for the programs that must end before the log is written.
    Settling,
    /// Pages of the log are in flight.
    Logging,
    /// The host has its completion; background work may go on.
    Done,
}

/// A command and its state.
#[derive(Debug)]
pub(super) struct SpaceJob {
    pub(super) id: SpaceJobId,
    pub(super) kind: SpaceJobKind,
    pub(super) queue: u32,
    pub(super) submitted: Ps,
    pub(super) ops: Vec<ExtentOp>,
    pub(super) blocks: Vec<BlockOps>,
    pub(super) log: Vec<ExtentOp>,
    pub(super) settle: bool,
    pub(super) background: VecDeque<Background>,
    pub(super) chunks_left: u32,
    pub(super) phase: JobPhase,
    pub(super) next: usize,
    /// Number of blocks that take room in the device.
    pub(super) open: u32,
    pub(super) open_bytes: u64,
    /// Blocks that may still be started, if it goes by credits.
    pub(super) credits: u64,
    /// Credits that the firmware is about to give, in order.
    pub(super) credits_due: VecDeque<u64>,
    /// Whether the device has begun with it.
    pub(super) begun: bool,
    /// Number of blocks that the host waits for.
    pub(super) waiting: u32,
    pub(super) log_left: u32,
    pub(super) bytes: u64,
    pub(super) io: Option<u32>,
    pub(super) failed: bool,
    /// Blocks that the host has composed and not programmed yet: it first composes all of the command.
    pub(super) composed: Vec<u32>,
}

impl SpaceJob {
    /// The direction of a block with these operations.
    pub(super) fn direction(&self, from: usize, to: usize) -> IoDirection {
        let programs = self.ops[from..to].iter().any(|s| s.op == OpKind::Program);
        if matches!(self.kind, SpaceJobKind::Write | SpaceJobKind::Output) || programs {
            IoDirection::Write
        } else {
            IoDirection::Read
        }
    }

    /// Sorts a trace into blocks, background work and the log.
    pub(super) fn new(id: SpaceJobId, kind: SpaceJobKind, queue: u32, now: Ps, trace: FlashTrace) -> Self {
        let (mut ops, mut blocks, mut log) = (Vec::new(), Vec::new(), Vec::new());
        let mut background: VecDeque<Background> = VecDeque::new();
        let mut ends = trace.blocks.iter().copied().peekable();
        let mut freed = trace.freed.iter().copied().peekable();
        let mut see = |before: usize, ops: &Vec<ExtentOp>, background: &mut VecDeque<Background>| {
            while let Some(block) = ends.next_if(|p| p.ops_end <= before) {
                blocks.push(BlockOps { ops_end: ops.len(), ..block });
            }
            while let Some((_, segment)) = freed.next_if(|(at, _)| *at <= before) {
                background.push_back(Background::Erase(segment));
            }
        };
        let last_block = trace.blocks.last().map_or(0, |p| p.ops_end);
        let mut rest = Vec::new();
        for (i, &extent) in trace.ops.iter().enumerate() {
            see(i, &ops, &mut background);
            match extent.cause {
                OpCause::Map => log.push(extent),
                OpCause::Gc | OpCause::Wear => match background.back_mut() {
                    Some(Background::Chunk(chunk))
                        if extent.op == OpKind::Program || chunk.last().is_some_and(|s| s.op == OpKind::Read) =>
                    {
                        chunk.push(extent);
                    }
                    _ => background.push_back(Background::Chunk(vec![extent])),
                },
                OpCause::Host if i < last_block => ops.push(extent),
                // Pages of the write buffer, written by a flush: blocks of their own, whose bytes came with earlier
                // commands.
                OpCause::Host => rest.push(extent),
            }
        }
        see(trace.ops.len(), &ops, &mut background);
        for extent in rest {
            ops.push(extent);
            blocks.push(BlockOps { ops_end: ops.len(), runs: 0, bytes: 0 });
        }
        assert_eq!(blocks.last().map_or(0, |b| b.ops_end), ops.len(), "each operation of {kind:?} {id:?} is a block's");
        let bytes = blocks.iter().map(|p| p.bytes).sum();
        Self {
            id,
            kind,
            queue,
            submitted: now,
            ops,
            blocks,
            settle: trace.barriers > 0,
            log,
            background,
            chunks_left: 0,
            phase: JobPhase::Moving,
            next: 0,
            open: 0,
            open_bytes: 0,
            credits: 0,
            credits_due: VecDeque::new(),
            begun: false,
            waiting: 0,
            log_left: 0,
            bytes,
            io: None,
            failed: false,
            composed: Vec::new(),
        }
    }
}
