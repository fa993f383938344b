//! A compound command: reads, and writes that are applied as one, of a caller that decides in between what comes next.
//!
//! Programs beside the data work so (`nandarray-runtime`): they read boxes as they go, and their output is staged in
//! [`StagedWrite`]s, which are applied together at the end. To a probe, and to a process that is forked meanwhile, all
//! of it is one command. Several threads may work for one compound command; each reads for itself. Between its calls a
//! caller holds no lock of the engine but the block ranges of its staged writes.

use std::sync::Arc;

use super::Device;
use super::command::Target;
use super::staged_write::StagedWrite;
use crate::error::{Error, Result};
use crate::sched::BlockBox;
use crate::sim::{Moves, Order};
use crate::stl::read::BufferMut;
use crate::stl::space::{Space, SpaceId};
use crate::stl::work::Workers;

/// A compound command under way.
#[derive(Debug)]
pub struct Compound<'d> {
    device: &'d Device,
    /// A thread reads by itself: the device's helpers would take the processors of the other threads.
    alone: Workers,
}

impl Device {
    /// Runs `work` as one command; `writes` says whether it stages writes.
    ///
    /// Under a clock, one that only reads begins beside other commands in flight ([`Order::Beside`]), and lets time
    /// pass inside of `work`; one that stages writes begins when every earlier command has ended.
    ///
    /// A panic inside of `work` counts as one of the engine, after which the store takes no more commands: a caller
    /// whose own code may panic catches that inside of `work`. The engine's calls in it report their own panics as
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

    /// Whether the store takes commands, from this process.
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
    /// A space by its number.
    ///
    /// # Errors
    /// [`Error::Closed`] if it was deleted.
    pub fn space(&self, id: SpaceId) -> Result<Arc<Space>> {
        self.device.space(id)
    }

    /// Reads elements on the calling thread. The read sees every write whole or not at all.
    ///
    /// # Errors
    /// As [`super::command::Read`].
    pub fn read(&self, space: SpaceId, target: Target<'_>, out: BufferMut) -> Result<()> {
        self.device.guarded(|| self.device.read_by(&self.alone, space, &target, out))
    }

    /// Calls `f` with a target's bytes where they lie; does not if they do not lie together. The space cannot be
    /// written meanwhile: `f` must come to its end, must not panic, and must call nothing of this device.
    ///
    /// # Errors
    /// As [`super::command::Read`]; `f` was not called then.
    pub fn lend(&self, space: SpaceId, target: Target<'_>, f: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.device.guarded(|| self.device.lend(space, target, f))
    }

    /// Begins a staged write to a space, and reserves these building blocks against other writes (first and last one
    /// along each dimension; none reserves all). Several are begun in the order of their spaces' numbers.
    ///
    /// # Errors
    /// As [`super::command::Write`], before any byte is written.
    pub fn stage(&self, space: Arc<Space>, blocks: BlockBox) -> Result<StagedWrite<'d>> {
        self.device.guarded(|| StagedWrite::begin(self.device, space, blocks))
    }

    /// Applies staged writes together, all or none.
    ///
    /// # Errors
    /// [`Error::Closed`] if the store was closed or a space deleted meanwhile.
    pub fn apply(&self, writes: Vec<StagedWrite<'d>>) -> Result<()> {
        self.device.guarded(|| self.device.apply_staged(writes))
    }

    /// Reports to the probe the number of programs that this command runs, interpreted and translated.
    pub fn runs_programs(&self, interpreted: u64, translated: u64) {
        if let Some(probe) = self.device.ftl.probe() {
            probe.executed(interpreted, translated);
        }
    }
}
