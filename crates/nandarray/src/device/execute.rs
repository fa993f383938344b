//! Execution of each command: its order among commands in flight, its two halves, and the calls that do its work.
//!
//! A command runs whole, or in two halves under a modelled clock (`flight`). Only reads have work in the second half:
//! the first locates pages, the second moves bytes. All other commands do everything in the first half.

use std::sync::Arc;

use super::check::CheckReport;
use super::command::{
    Abort, Append, Apply, Batch, Begin, Change, Check, Compact, Create, Deallocate, Delete, Flush, List, ListBlocks,
    Open, Read, ReadStored, Rename, Resize, SetAttrs, Settle, StageWrite, Stat, StatSpace, Write, WriteStored,
};
use super::transaction::TransactionId;
use super::{Device, Target};
use crate::error::Result;
use crate::sched::{RangeTicket, Share};
use crate::sim::{Moves, Order};
use crate::stl::space::{Space, SpaceId};

/// A command for [`Device::execute`]: one of the structs of [`super::command`]. `C::Reply` is the type of its result.
///
/// Sealed: no other crate can add a command, since the device must know how each is executed.
pub trait Command: Execute {}

impl<C: Execute> Command for C {}

/// A command as the device uses it. Other crates only see [`Command`], with which it can be executed.
pub trait Execute: Send {
    /// The result of the command.
    type Reply: Send;

    /// Returns the command's order among commands in flight.
    fn order(&self) -> Order {
        Order::Alone
    }

    /// Returns the direction in which the command moves elements.
    fn moves(&self) -> Moves {
        Moves::Nothing
    }

    /// Whether the command changes the store.
    fn writes(&self) -> bool {
        true
    }

    /// Requests the range lock of the command's building blocks; `None` if it touches none, or locks them as it runs.
    fn request(&self, _device: &Device) -> Result<Option<RangeTicket>> {
        Ok(None)
    }

    /// Runs the first half; `_granted` is whether the requested blocks are locked. Returns the reply, or `None` if a
    /// second half is needed.
    fn first_half(&self, device: &Device, _granted: bool) -> Result<Option<Self::Reply>> {
        self.run(device).map(Some)
    }

    /// Runs the second half of a command whose first half returned no reply.
    fn second_half(&self, device: &Device) -> Result<Self::Reply> {
        self.run(device)
    }

    /// Runs the whole command at once.
    fn run(&self, device: &Device) -> Result<Self::Reply>;
}

/// Requests the range lock of a target's blocks; `None` if the target touches none.
fn request(device: &Device, space: SpaceId, target: &Target<'_>, share: Share) -> Result<Option<RangeTicket>> {
    let space = device.space(space)?;
    let shape = space.read()?.record.shape.clone();
    let blocks = super::target::blocks_of(&space, &shape, target)?;
    Ok(blocks.map(|blocks| space.ranges.request(blocks, share)))
}

impl Execute for Read<'_> {
    type Reply = ();

    fn order(&self) -> Order {
        Order::Blocks
    }

    fn moves(&self) -> Moves {
        Moves::Out
    }

    fn writes(&self) -> bool {
        false
    }

    fn request(&self, device: &Device) -> Result<Option<RangeTicket>> {
        request(device, self.space, &self.target, Share::Shared)
    }

    fn first_half(&self, device: &Device, _granted: bool) -> Result<Option<()>> {
        device.locate(self.space, &self.target).map(|()| None)
    }

    fn second_half(&self, device: &Device) -> Result<()> {
        device.read_located(self.space, &self.target, self.out)
    }

    fn run(&self, device: &Device) -> Result<()> {
        device.read(self.space, &self.target, self.out)
    }
}

impl Execute for Write<'_> {
    type Reply = ();

    fn order(&self) -> Order {
        Order::Blocks
    }

    fn moves(&self) -> Moves {
        Moves::In
    }

    fn request(&self, device: &Device) -> Result<Option<RangeTicket>> {
        request(device, self.space, &self.target, Share::Exclusive)
    }

    fn first_half(&self, device: &Device, granted: bool) -> Result<Option<()>> {
        device.write(self.space, &self.target, self.source, granted).map(Some)
    }

    fn run(&self, device: &Device) -> Result<()> {
        device.write(self.space, &self.target, self.source, false)
    }
}

impl Execute for Append<'_> {
    type Reply = Vec<u64>;

    fn moves(&self) -> Moves {
        Moves::In
    }

    fn run(&self, device: &Device) -> Result<Vec<u64>> {
        device.append(self.space, self.axis, self.count, self.strides, self.source)
    }
}

impl Execute for StageWrite<'_> {
    type Reply = ();

    fn order(&self) -> Order {
        Order::Between
    }

    fn moves(&self) -> Moves {
        Moves::In
    }

    fn run(&self, device: &Device) -> Result<()> {
        device.stage(self.transaction, self.space, &self.target, self.source)
    }
}

impl Execute for Check {
    type Reply = CheckReport;

    fn writes(&self) -> bool {
        self.repair
    }

    fn run(&self, device: &Device) -> Result<CheckReport> {
        device.check(self.repair, self.accept_older)
    }
}

/// Implements [`Execute`] for commands that move no elements, from their order, whether they change the store, the type
/// of the reply, and the code.
macro_rules! commands {
    ($($command:ty: $order:ident, $writes:literal, |$self:ident, $device:ident| -> $reply:ty $run:block)*) => {$(
        impl Execute for $command {
            type Reply = $reply;

            fn order(&self) -> Order {
                Order::$order
            }

            fn writes(&self) -> bool {
                $writes
            }

            fn run(&$self, $device: &Device) -> Result<$reply> $run
        }
    )*};
}

commands! {
    Create<'_>: Alone, true, |self, device| -> Arc<Space> { device.create(&self.0) }
    Open<'_>: Free, false, |self, device| -> Arc<Space> { device.open_space(self.name, self.key) }
    Delete<'_>: Alone, true, |self, device| -> () { device.delete(self.name) }
    Rename<'_>: Alone, true, |self, device| -> () { device.batch(&[Change::Rename { from: self.from, to: self.to }]) }
    Batch<'_>: Alone, true, |self, device| -> () { device.batch(self.changes) }
    Begin<'_>: Alone, true, |self, device| -> TransactionId { device.begin(self.spaces) }
    Apply<'_>: Between, true, |self, device| -> () { device.apply_transaction(self.transaction, self.changes) }
    Abort: Between, true, |self, device| -> () { device.abort(self.transaction); Ok(()) }
    Resize<'_>: Alone, true, |self, device| -> () { device.resize(self.space, self.shape) }
    SetAttrs<'_>: Alone, true, |self, device| -> () { device.set_attrs(self.space, self.attrs) }
    Deallocate<'_>: Alone, true, |self, device| -> () { device.deallocate(self.space, self.start, self.count) }
    ReadStored<'_>: Alone, false, |self, device| -> Vec<Option<Vec<u8>>> { device.read_stored(self.space, self.blocks) }
    WriteStored<'_>: Alone, true, |self, device| -> () { device.write_stored(self.space, self.blocks, self.payloads) }
    Flush: Behind, true, |self, device| -> () { device.flush() }
    Settle: Behind, true, |self, device| -> () { device.commit_with_room(false) }
    Compact: Alone, true, |self, device| -> u64 { device.compact() }
    Stat: Free, false, |self, device| -> Vec<(&'static str, u64)> { Ok(device.stat()) }
    StatSpace: Free, false, |self, device| -> Vec<(&'static str, u64)> { device.stat_space(self.space) }
    ListBlocks: Free, false, |self, device| -> Vec<u64> { device.list_blocks(self.space) }
    List<'_>: Free, false, |self, device| -> Vec<String> { Ok(device.list(self.prefix)) }
}
