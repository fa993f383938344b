//! Commands of the store in flight: the operations of a command's flash trace, sorted into blocks, log and background
//! work, with the command's state.

use std::collections::VecDeque;

use crate::flash::{OpCause, OpKind};
use crate::flash_trace::{BlockOps, ExtentOp, FlashTrace};
use crate::machine::host_io::IoDirection;
use nandarray_sim::Ps;

/// Number of a command of the store, in order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpaceJobId(pub(super) u64);

#[cfg(test)]
impl SpaceJobId {
    /// Makes the identifier with this number, for tests of code that keeps identifiers.
    pub(crate) fn for_test(number: u64) -> Self {
        Self(number)
    }
}

/// Kind of a command of the store, by the data that it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceJobKind {
    /// Elements go to the host.
    Read,
    /// Elements go to the device.
    Write,
    /// No elements are moved: flush, create, and so on.
    Other,
    /// Elements go into the device's memory, as an input of a program that runs there. No command crosses the link:
    /// the input is part of the program's command.
    Input,
    /// An output of a program goes from the device's memory into the flash.
    Output,
    /// Pages of an input go in order from the flash to a core, without passing DRAM. Each block of the trace is one
    /// page, read when a credit for it was granted.
    Stream {
        /// Number of the core.
        core: u32,
    },
    /// Pages of an input that is in the device's memory go to a core, one for each credit.
    Feed {
        /// Number of the core.
        core: u32,
    },
    /// Pages that are on the crossbar, from other cores, go to a core, one for each credit.
    Pass {
        /// Number of the core.
        core: u32,
    },
}

impl SpaceJobKind {
    /// Whether this is an input or output of a program, which does not cross the link.
    pub fn is_programs(self) -> bool {
        matches!(self, Self::Input | Self::Output | Self::Stream { .. } | Self::Feed { .. } | Self::Pass { .. })
    }

    /// Returns the core that the pages go to; `None` for commands that feed no core.
    pub(super) fn core(self) -> Option<u32> {
        match self {
            Self::Stream { core } | Self::Feed { core } | Self::Pass { core } => Some(core),
            Self::Read | Self::Write | Self::Other | Self::Input | Self::Output => None,
        }
    }
}

/// Completion of a command of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceJobDone {
    /// Number of the command.
    pub id: SpaceJobId,
    /// Kind of the command.
    pub kind: SpaceJobKind,
    /// Bytes of elements that the command moved.
    pub bytes: u64,
    /// Time of the command's submission.
    pub submitted: Ps,
    /// Time at which the host reaped the command's completion.
    pub done: Ps,
    /// Whether one of the command's pages could not be read.
    pub failed: bool,
}

/// A piece of a job's background work.
#[derive(Clone, Debug)]
pub(super) enum Background {
    /// Pages that are read, then programmed elsewhere (reclaim).
    Chunk(Vec<ExtentOp>),
    /// A segment to erase, after all background work before it.
    Erase(u32),
}

/// Phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobPhase {
    /// The job's blocks are read or written.
    Moving,
    /// The job waits for the programs that must end before its pages of the log (journal or checkpoint) are written.
    Settling,
    /// The job's pages of the log (journal or checkpoint) are read or programmed.
    Logging,
    /// The job is completed for the host; its background work may go on.
    Done,
}

/// A command of the store in flight.
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
    /// Number of blocks in flight that take room in the device.
    pub(super) open: u32,
    pub(super) open_bytes: u64,
    /// Number of further blocks that may be started, if the job is fed by credits.
    pub(super) credits: u64,
    /// Credits that the firmware will grant, in order.
    pub(super) credits_due: VecDeque<u64>,
    /// Whether the device has begun to execute the job.
    pub(super) begun: bool,
    /// Whether blocks are being started; the job is kept meanwhile.
    pub(super) starting: bool,
    /// Number of started blocks whose end the completion waits for.
    pub(super) waiting: u32,
    pub(super) log_left: u32,
    pub(super) bytes: u64,
    pub(super) io: Option<u32>,
    /// Whether the job's command holds no command slot, since it waits for an older barrier outside the device.
    pub(super) gave_way: bool,
    pub(super) failed: bool,
    /// Blocks that the host has composed and not programmed yet, when it composes all blocks of a command first.
    pub(super) composed: Vec<u32>,
}

impl SpaceJob {
    /// Starts the job's next block: counts it as in flight, and returns it with the index of its first operation.
    pub(super) fn start_block(&mut self) -> (BlockOps, usize) {
        assert!(self.next < self.blocks.len(), "{:?} has {} blocks, and all were started", self.id, self.next);
        let (block, from) = (self.blocks[self.next], self.next.checked_sub(1).map_or(0, |i| self.blocks[i].ops_end));
        self.next += 1;
        self.open += 1;
        self.open_bytes += block.bytes;
        self.waiting += 1;
        (block, from)
    }

    /// Returns the direction of a block's data, given the range of the job's operations that belong to the block.
    pub(super) fn direction(&self, from: usize, to: usize) -> IoDirection {
        let programs = self.ops[from..to].iter().any(|s| s.op == OpKind::Program);
        if matches!(self.kind, SpaceJobKind::Write | SpaceJobKind::Output) || programs {
            IoDirection::Write
        } else {
            IoDirection::Read
        }
    }

    /// Makes a job and sorts its trace into blocks, background work and the log (pages of the journal or of a
    /// checkpoint).
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
                // Pages of the write buffer that a flush writes: each extent becomes a block without bytes, since its
                // bytes came with earlier commands.
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
            starting: false,
            waiting: 0,
            log_left: 0,
            bytes,
            io: None,
            gave_way: false,
            failed: false,
            composed: Vec::new(),
        }
    }
}
