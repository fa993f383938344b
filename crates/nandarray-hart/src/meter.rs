//! Meters observe the instructions of a hart and may pause it: the interface for timing models, caches, profiles.
//!
//! A [`Meter`] belongs to a hart's type, and declares by constants the events that it observes: a hart whose meter
//! observes none, as [`Unmetered`], executes the same host code as if there were no meters. Blocks are reported by
//! number, so that a meter can keep its data on each in a table of its own. An access is reported before it is
//! executed, and also if it will trap or wait; a meter may pause the hart there: the instruction is left as if a stream
//! had run dry, and reported again when the hart goes on. A meter knows no time.

use std::fmt::Debug;

use crate::block::BasicBlock;
use crate::isa::Instruction;

/// A meter's answer to an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterAnswer {
    /// It is executed.
    Proceed,
    /// The run ends before it with [`Stop::Paused`](crate::Stop::Paused).
    Pause,
}

/// An access of an instruction to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DataAccess {
    /// Loads; a load-reserved does, too.
    Load,
    /// Stores.
    Store,
    /// Loads and stores, or stores if a reservation holds.
    Atomic,
}

/// An access of an instruction to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamAccess {
    /// Takes bytes at an input's head.
    Load,
    /// Puts bytes at an output's head.
    Store,
    /// Looks at bytes of an input.
    LookIn,
    /// Looks at bytes of an output.
    LookOut,
    /// Waits for bytes of an input.
    Wait,
    /// Reads a register of an input or an output: waits, or gives a number.
    Register,
}

/// An observer of the instructions that a hart executes. Indices are of instructions in the block entered last, from 0
/// on.
pub trait Meter: Debug + Send {
    /// It observes blocks: [`decoded`](Self::decoded), [`enter`](Self::enter), [`part`](Self::part),
    /// [`left`](Self::left) and [`single`](Self::single) are called.
    const BLOCKS: bool = false;
    /// It observes branches: [`branch`](Self::branch) and [`jump`](Self::jump) are called.
    const BRANCHES: bool = false;
    /// It observes memory: [`access`](Self::access) is called.
    const ACCESSES: bool = false;
    /// It observes streams: [`stream`](Self::stream) is called.
    const STREAMS: bool = false;

    /// From now on, `unit` is the number of this block. Numbers count from 0; when blocks were dropped they begin anew.
    fn decoded(&mut self, unit: u32, block: &BasicBlock) {
        let _ = (unit, block);
    }

    /// A block is entered, and executed to its end unless [`left`](Self::left) is called.
    fn enter(&mut self, unit: u32) {
        let _ = unit;
    }

    /// The same, of a block without a number: instructions up to a limit.
    fn part(&mut self, block: &BasicBlock) {
        let _ = block;
    }

    /// The block entered last, which this is, was left before its instruction `index`.
    fn left(&mut self, block: &BasicBlock, index: usize) {
        let _ = (block, index);
    }

    /// The instruction before which the block was left was executed outside of blocks.
    fn single(&mut self, pc: u64, op: &Instruction) {
        let _ = (pc, op);
    }

    /// The conditional branch at the block's end is taken, or not.
    fn branch(&mut self, taken: bool) {
        let _ = taken;
    }

    /// The block ends with a jump to an address in a register.
    fn jump(&mut self, target: u64) {
        let _ = target;
    }

    /// Instruction `index` is to reach `bytes` bytes of memory at `address`.
    fn access(&mut self, index: u32, kind: DataAccess, address: u64, bytes: u32) -> MeterAnswer {
        let _ = (index, kind, address, bytes);
        MeterAnswer::Proceed
    }

    /// Instruction `index` is to reach `bytes` bytes of a stream from `position` on; it waits if they are not there.
    fn stream(&mut self, index: u32, kind: StreamAccess, stream: u8, position: u64, bytes: u64) -> MeterAnswer {
        let _ = (index, kind, stream, position, bytes);
        MeterAnswer::Proceed
    }
}

/// The meter that observes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unmetered;

impl Meter for Unmetered {}
