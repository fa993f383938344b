//! A command of the store on its way: what it asked of the flash, sorted into blocks, log and background; and how far
//! it is.

use std::collections::VecDeque;

use crate::flash::{OpCause, OpKind};
use crate::footprint::{Footprint, Piece, Step};
use crate::machine::host_io::Way;
use nandarray_sim::Ps;

/// A command of the store on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(pub(super) u64);

/// What a command of the store moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Elements to the host.
    Read,
    /// Elements to the device.
    Write,
    /// None: flush, create, and so on.
    Other,
    /// Elements into the device's memory, for a program that runs there. No command on the link: the program's own
    /// asked for it.
    Input,
    /// An output of such a program, from the device's memory into the flash.
    Output,
}

impl JobKind {
    /// Whether it is a program's, and crosses no link.
    pub fn is_programs(self) -> bool {
        matches!(self, Self::Input | Self::Output)
    }
}

/// A command of the store that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobDone {
    /// Which.
    pub id: JobId,
    /// What it moved.
    pub kind: JobKind,
    /// Bytes of elements moved.
    pub bytes: u64,
    /// When the host gave it.
    pub submitted: Ps,
    /// When the host had its answer.
    pub done: Ps,
    /// Whether a page could not be read.
    pub failed: bool,
}

/// Something in the background of a job, in order.
#[derive(Clone, Debug)]
pub(super) enum Background {
    /// Pages read, then programmed elsewhere.
    Chunk(Vec<Step>),
    /// A segment to erase, once all before is done.
    Erase(u32),
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Blocks are on their way.
    Moving,
    /// All programs of the device must end before the log is written.
    Settling,
    /// Pages of the log are programmed.
    Logging,
    /// The host has its answer; the background may go on.
    Done,
}

/// A command, and how far it is.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: JobId,
    pub(super) kind: JobKind,
    pub(super) queue: u32,
    pub(super) submitted: Ps,
    pub(super) steps: Vec<Step>,
    pub(super) pieces: Vec<Piece>,
    pub(super) log: Vec<Step>,
    pub(super) settle: bool,
    pub(super) background: VecDeque<Background>,
    pub(super) chunks_left: u32,
    pub(super) phase: Phase,
    pub(super) next: usize,
    /// Parts that take room in the device.
    pub(super) open: u32,
    pub(super) open_bytes: u64,
    /// Parts that the host waits for.
    pub(super) waiting: u32,
    pub(super) log_left: u32,
    pub(super) bytes: u64,
    pub(super) io: Option<u32>,
    pub(super) failed: bool,
    /// Blocks that the host has composed and not programmed, until it has composed all of the command.
    pub(super) composed: Vec<u32>,
}

impl Job {
    /// Which way some of its steps go.
    pub(super) fn way(&self, from: usize, to: usize) -> Way {
        let programs = self.steps[from..to].iter().any(|s| s.op == OpKind::Program);
        if matches!(self.kind, JobKind::Write | JobKind::Output) || programs { Way::Write } else { Way::Read }
    }

    /// Sorts what a command asked for: blocks, what reclaim moved, the log.
    pub(super) fn new(id: JobId, kind: JobKind, queue: u32, now: Ps, footprint: Footprint) -> Self {
        let (mut steps, mut pieces, mut log) = (Vec::new(), Vec::new(), Vec::new());
        let mut background: VecDeque<Background> = VecDeque::new();
        let mut ends = footprint.pieces.iter().copied().peekable();
        let mut freed = footprint.freed.iter().copied().peekable();
        let mut see = |before: usize, steps: &Vec<Step>, background: &mut VecDeque<Background>| {
            while let Some(piece) = ends.next_if(|p| p.steps_end <= before) {
                pieces.push(Piece { steps_end: steps.len(), ..piece });
            }
            while let Some((_, segment)) = freed.next_if(|(at, _)| *at <= before) {
                background.push_back(Background::Erase(segment));
            }
        };
        let last_piece = footprint.pieces.last().map_or(0, |p| p.steps_end);
        let mut rest = Vec::new();
        for (i, &step) in footprint.steps.iter().enumerate() {
            see(i, &steps, &mut background);
            match step.cause {
                OpCause::Map => log.push(step),
                OpCause::Gc | OpCause::Wear => match background.back_mut() {
                    Some(Background::Chunk(chunk))
                        if step.op == OpKind::Program || chunk.last().is_some_and(|s| s.op == OpKind::Read) =>
                    {
                        chunk.push(step);
                    }
                    _ => background.push_back(Background::Chunk(vec![step])),
                },
                OpCause::Host if i < last_piece => steps.push(step),
                // Units that had gathered, written by a flush: blocks of their own, whose bytes came before.
                OpCause::Host => rest.push(step),
            }
        }
        see(footprint.steps.len(), &steps, &mut background);
        for step in rest {
            steps.push(step);
            pieces.push(Piece { steps_end: steps.len(), runs: 0, bytes: 0 });
        }
        let bytes = pieces.iter().map(|p| p.bytes).sum();
        Self {
            id,
            kind,
            queue,
            submitted: now,
            steps,
            pieces,
            settle: footprint.barriers > 0,
            log,
            background,
            chunks_left: 0,
            phase: Phase::Moving,
            next: 0,
            open: 0,
            open_bytes: 0,
            waiting: 0,
            log_left: 0,
            bytes,
            io: None,
            failed: false,
            composed: Vec::new(),
        }
    }
}
