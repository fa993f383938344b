//! Meters observe the instructions of a hart and may pause it; timing models, caches and profiles use this interface.
//!
//! A [`Meter`] is a part of a hart's type, and declares by constants the events that it observes. A hart whose meter
//! observes none, as [`Unmetered`], executes the same host code as if meters did not exist. Blocks are reported by
//! number, so that a meter can keep its data about each in a table of its own. An access is reported before it is
//! executed, even if it will trap or wait. A meter may pause the hart there; execution then stops before the
//! instruction, as when a stream has too few bytes, and the access is reported again when the hart continues. A meter
//! is not given any time.

use std::fmt::Debug;

use crate::block::BasicBlock;
use crate::isa::Instruction;
use crate::work::VectorWork;

/// A meter's answer when an access is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterAnswer {
    /// The access is executed.
    Proceed,
    /// The run ends before the access, with [`Stop::Paused`](crate::Stop::Paused).
    Pause,
}

/// The kind of an access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DataAccess {
    /// A load, or a load-reserved.
    Load,
    /// A store.
    Store,
    /// A load and a store by one instruction, or a store-conditional.
    Atomic,
}

/// The kind of an access to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamAccess {
    /// Takes bytes at an input's head.
    Load,
    /// Appends bytes at an output's head.
    Store,
    /// Reads bytes of an input without taking them.
    LookIn,
    /// Reads bytes of an output that were written before.
    LookOut,
    /// Waits for bytes of an input.
    Wait,
    /// Reads a register of an input or an output, which may wait.
    Register,
}

/// An observer of the instructions that a hart executes. An `index` is that of an instruction in the block entered
/// last, from 0 on.
pub trait Meter: Debug + Send {
    /// Whether it observes blocks: [`decoded`](Self::decoded), [`enter`](Self::enter), [`part`](Self::part),
    /// [`left`](Self::left) and [`single`](Self::single) are called.
    const BLOCKS: bool = false;
    /// Whether it observes branches: [`branch`](Self::branch) and [`jump`](Self::jump) are called.
    const BRANCHES: bool = false;
    /// Whether it observes memory: [`access`](Self::access) is called.
    const ACCESSES: bool = false;
    /// Whether it observes streams: [`stream`](Self::stream) is called.
    const STREAMS: bool = false;
    /// Whether it observes vectors: [`vector`](Self::vector) is called.
    const VECTORS: bool = false;

    /// Returns whether accesses to memory are to be reported at present, if [`ACCESSES`](Self::ACCESSES) says that they
    /// can be. The hart calls this when a run begins, and drops its blocks when the answer has changed.
    fn observes_accesses(&self) -> bool {
        Self::ACCESSES
    }

    /// Reports that a block was decoded and has the number `unit`. Numbers count from 0; they start again when all
    /// blocks have been dropped.
    fn decoded(&mut self, unit: u32, block: &BasicBlock) {
        let _ = (unit, block);
    }

    /// Reports that the block `unit` is entered; it is executed to its end unless [`left`](Self::left) is called.
    fn enter(&mut self, unit: u32) {
        let _ = unit;
    }

    /// Counts the entry of block `unit` and returns true, if the meter has nothing else to do for it. Otherwise changes
    /// nothing and returns false; the hart then calls [`enter`](Self::enter).
    #[inline(always)]
    fn quick_enter(&mut self, unit: u32) -> bool {
        let _ = unit;
        false
    }

    /// Reports the entry of a block that has no number: the first instructions of a block, cut short by a limit.
    fn part(&mut self, block: &BasicBlock) {
        let _ = block;
    }

    /// Reports that `block`, the one entered last, was left before its instruction `index`.
    fn left(&mut self, block: &BasicBlock, index: usize) {
        let _ = (block, index);
    }

    /// Reports that the instruction before which the block was left has been executed outside of blocks.
    fn single(&mut self, pc: u64, op: &Instruction) {
        let _ = (pc, op);
    }

    /// Reports whether the conditional branch at the block's end is taken.
    fn branch(&mut self, taken: bool) {
        let _ = taken;
    }

    /// Counts a branch and returns true, if the meter has nothing else to do for it. Otherwise changes nothing and
    /// returns false; the hart then calls [`branch`](Self::branch).
    #[inline(always)]
    fn quick_branch(&mut self, taken: bool) -> bool {
        let _ = taken;
        false
    }

    /// Reports that the block ends with a jump to `target`, an address from a register.
    fn jump(&mut self, target: u64) {
        let _ = target;
    }

    /// Reports that instruction `index` is about to access `bytes` bytes of memory at `address`; returns whether it may
    /// proceed.
    fn access(&mut self, index: u32, kind: DataAccess, address: u64, bytes: u32) -> MeterAnswer {
        let _ = (index, kind, address, bytes);
        MeterAnswer::Proceed
    }

    /// Counts an access and returns true, if the access proceeds and the meter has nothing else to do for it. Otherwise
    /// changes nothing and returns false; the hart then calls [`access`](Self::access).
    #[inline(always)]
    fn quick_access(&mut self, index: u32, kind: DataAccess, address: u64, bytes: u32) -> bool {
        let _ = (index, kind, address, bytes);
        false
    }

    /// Reports that instruction `index` is about to access `bytes` bytes of stream number `stream` from `position` on,
    /// and will wait if they are not available. Returns whether it may proceed.
    fn stream(&mut self, index: u32, kind: StreamAccess, stream: u8, position: u64, bytes: u64) -> MeterAnswer {
        let _ = (index, kind, stream, position, bytes);
        MeterAnswer::Proceed
    }

    /// Reports the work of instruction `index`, a vector instruction that is about to be executed; returns whether it
    /// may proceed. The same instruction is reported again when the hart continues after a pause.
    fn vector(&mut self, index: u32, work: &VectorWork) -> MeterAnswer {
        let _ = (index, work);
        MeterAnswer::Proceed
    }
}

/// A meter that observes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unmetered;

impl Meter for Unmetered {}
