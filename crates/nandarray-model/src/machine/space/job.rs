//! Commands of the store in flight: the operations of a command's trace, sorted into blocks, log and background, and
//! its state.

use std::collections::VecDeque;

use crate::flash::{Cause, Op};
use crate::footprint::{Footprint, Piece, Step};
use crate::machine::host_io::Way;
use nandarray_sim::Ps;

/// The number of a command of the store in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(pub(super) u64);

/// The kind of a command of the store, by the data that it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
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
}

impl JobKind {
    /// Whether it is an input or output of a program, which crosses no link.
    pub fn is_programs(self) -> bool {
        matches!(self, Self::Input | Self::Output)
    }
}

/// A command of the store that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobDone {
    /// Its number.
    pub id: JobId,
    /// Its kind.
    pub kind: JobKind,
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
    Chunk(Vec<Step>),
    /// A segment to erase, after all work before it.
    Erase(u32),
}

/// The phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
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
    /// Number of blocks that take room in the device.
    pub(super) open: u32,
    pub(super) open_bytes: u64,
    /// Number of blocks that the host waits for.
    pub(super) waiting: u32,
    pub(super) log_left: u32,
    pub(super) bytes: u64,
    pub(super) io: Option<u32>,
    pub(super) failed: bool,
    /// Blocks that the host has composed and not programmed yet: it first composes all of the command.
    pub(super) composed: Vec<u32>,
}

impl Job {
    /// The direction of a block with these operations.
    pub(super) fn way(&self, from: usize, to: usize) -> Way {
        let programs = self.steps[from..to].iter().any(|s| s.op == Op::Program);
        if matches!(self.kind, JobKind::Write | JobKind::Output) || programs { Way::Write } else { Way::Read }
    }

    /// Sorts a trace into blocks, background work and the log.
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
                Cause::Map => log.push(step),
                Cause::Gc | Cause::Wear => match background.back_mut() {
                    Some(Background::Chunk(chunk))
                        if step.op == Op::Program || chunk.last().is_some_and(|s| s.op == Op::Read) =>
                    {
                        chunk.push(step);
                    }
                    _ => background.push_back(Background::Chunk(vec![step])),
                },
                Cause::Host if i < last_piece => steps.push(step),
                // Pages of the write buffer, written by a flush: blocks of their own, whose bytes came with earlier
                // commands.
                Cause::Host => rest.push(step),
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
