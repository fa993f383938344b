//! A compound command: a sequence of reads, and of staged writes that are applied together, which its caller decides
//! step by step.
//!
//! Programs beside the data work this way (`nandarray-runtime`): they read boxes as they go, and their output is kept
//! in [`StagedWrite`]s, which are applied together at the end. To a probe, and to a process that is forked in between,
//! all of it is one command. Several threads may work for one compound command, each reading for itself. Between its
//! calls the caller holds no lock of the engine except the block ranges of its staged writes, or none: the bytes of a
//! [`Spool`] are staged when the programs have ended.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Device;
use super::command::Target;
use super::spool::Spool;
use super::staged_write::StagedWrite;
use crate::error::{Error, Result};
use crate::sched::{BlockBox, RangeTicket, Share};
use crate::sim::{Moves, Order};
use crate::stl::read::BufferMut;
use crate::stl::space::{Space, SpaceId};
use crate::stl::work::Workers;

/// A compound command while it is executed: one command that a closure of the caller carries out in several steps.
#[derive(Debug)]
pub struct Compound<'d> {
    device: &'d Device,
    /// A pool without helper threads: every thread of the command reads by itself, as helpers would compete with the
    /// command's other threads.
    alone: Workers,
}

impl Device {
    /// Runs `work` as one command; `writes` is whether it will stage writes.
    ///
    /// Under a clock, a command that only reads begins beside other commands in flight ([`Order::Beside`]), and lets
    /// time pass inside of `work`; a command that stages writes begins when every earlier command has ended.
    ///
    /// A panic in `work` counts as a panic of the engine, after which the store accepts no more commands: a caller
    /// whose own code may panic must catch it within `work`. Calls of the engine in `work` report their own panics as
    /// [`Error::Internal`].
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for writes to a store that is open for reading; [`Error::Closed`], [`Error::Internal`] as
    /// for any command.
    pub fn compound<T: Send>(&self, writes: bool, work: impl FnOnce(&Compound<'_>) -> T + Send) -> Result<T> {
        let _inside = self.enter()?;
        if self.read_only && writes {
            return Err(Error::ReadOnly);
        }
        let order = if writes { Order::Alone } else { Order::Beside };
        self.as_command(order, Moves::Nothing, || Ok(work(&Compound { device: self, alone: Workers::alone() })))
    }

    /// Checks that the store accepts commands from this process.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Internal`] as for any command.
    pub fn usable(&self) -> Result<()> {
        self.enter().map(drop)
    }

    /// Whether the store has a probe, such as a modelled clock.
    pub fn is_watched(&self) -> bool {
        self.ftl.probe().is_some()
    }
}

impl<'d> Compound<'d> {
    /// Returns a space by its number, which may be a version that a snapshot keeps.
    ///
    /// # Errors
    /// [`Error::Closed`] if it was deleted.
    pub fn space(&self, id: SpaceId) -> Result<Arc<Space>> {
        self.device.space_to_read(id)
    }

    /// Reads elements on the calling thread. The read sees either all of a write or none of it.
    ///
    /// # Errors
    /// As [`super::command::Read`].
    pub fn read(&self, space: SpaceId, target: Target<'_>, out: BufferMut) -> Result<()> {
        self.device.guarded(|| self.device.read_by(&self.alone, space, &target, out))
    }

    /// Appends elements of a one-dimensional space that packs integers to `out`, in the form in which they are stored:
    /// frame by frame, each behind a head (docs/reference/program-abi.md, "Packed inputs").
    ///
    /// # Errors
    /// As [`super::command::Read`]; [`Error::Invalid`] if the space does not have one dimension, or packs no integers.
    pub fn read_packed(&self, space: SpaceId, elements: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        self.device.guarded(|| self.device.read_packed(space, elements, out))
    }

    /// Calls `f` with the target's bytes in place, without copying; `f` is not called if the bytes are not contiguous.
    /// The space cannot be written during the call: `f` must return, must not panic, and must not call this device.
    ///
    /// # Errors
    /// As [`super::command::Read`]; `f` was not called then.
    pub fn lend(&self, space: SpaceId, target: Target<'_>, f: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.device.guarded(|| self.device.lend(space, target, f))
    }

    /// Begins a staged write to a space and locks these building blocks (first and last block along each dimension; an
    /// empty box locks all) against other writes. A caller that begins several must do so in the order of their spaces'
    /// numbers.
    ///
    /// # Errors
    /// As [`super::command::Write`], before any byte is written.
    pub fn stage(&self, space: Arc<Space>, blocks: BlockBox) -> Result<StagedWrite<'d>> {
        self.device.guarded(|| StagedWrite::begin(self.device, space, blocks))
    }

    /// Waits for other runs of programs that write to these building blocks and keeps later ones from beginning, and
    /// the space from being deleted or shrunk, until the tickets are dropped. An empty box is all blocks, and keeps the
    /// space from growing, too. A caller that waits for several does so in the order of their spaces' numbers, before
    /// it stages anything. Other writes go on.
    ///
    /// # Errors
    /// [`Error::Cancelled`] once `stop` is set; [`Error::Closed`] if the store was closed. Under a clock it waits for
    /// nothing: [`Error::Busy`].
    pub fn hold_run(&self, space: &Space, blocks: BlockBox, stop: &AtomicBool) -> Result<Vec<RangeTicket>> {
        self.device.guarded(|| {
            let is_stopped = || stop.load(Ordering::Relaxed);
            let is_whole = blocks.is_empty();
            let mut held =
                vec![self.device.granted(space, space.runs.request(blocks, Share::Exclusive), Some(&is_stopped))?];
            if is_whole {
                let growth = space.growth.request(vec![], Share::Exclusive);
                held.push(self.device.granted(space, growth, Some(&is_stopped))?);
            }
            Ok(held)
        })
    }

    /// Returns a spool, which keeps bytes for a space until the command stages them.
    ///
    /// # Errors
    /// [`Error::WrongKey`] if the space is encrypted and was not unlocked.
    pub fn spool(&self, space: Arc<Space>) -> Result<Spool<'d>> {
        Spool::new(self.device, space)
    }

    /// Applies staged writes together, all of them or none.
    ///
    /// # Errors
    /// [`Error::Closed`] if the store was closed, or a space deleted, since the writes began.
    pub fn apply(&self, writes: Vec<StagedWrite<'d>>) -> Result<()> {
        self.device.guarded(|| self.device.apply_staged(writes))
    }

    /// Reports to the probe how many programs this command runs interpreted, and how many translated.
    pub fn runs_programs(&self, interpreted: u64, translated: u64) {
        if let Some(probe) = self.device.ftl.probe() {
            probe.executed(interpreted, translated);
        }
    }
}
