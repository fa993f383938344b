//! A hart: registers, the blocks that it has decoded, and the loop that executes them.
//!
//! [`Hart::run`] executes until something stops it, and can be called again: a hart that must wait for a stream
//! returns, and does not spin. Between blocks it checks the limit and, every few thousand instructions, the stop flag.
//! The caller owns memory and streams and lends them for each run. A hart does not load programs (`program`), and does
//! not model time.

mod port;
#[cfg(feature = "bare")]
mod privileged;
#[cfg(not(feature = "bare"))]
#[path = "unprivileged.rs"]
mod privileged;
mod stop;
mod system;

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::access::AccessKind;
use crate::block::{BasicBlock, OPS_MAX};
use crate::cache::Cache;
use crate::exec::{self, Env, Exit, HartState, JUMP, LEAVE, UnitsOff};
use crate::isa::{Extension, Extensions};
use crate::memory::Memory;
use crate::meter::{Meter, Unmetered};
use crate::streams::Streams;
use crate::trap::Cause;
use crate::varve::VarveUnit;
use crate::vector::VectorUnit;
use crate::xlen::Xlen;
pub use port::{MappedRegion, Registers, TranslatorPort};
use privileged::Privileged;
pub use stop::{Limits, Stop};
use system::SystemOutcome;

/// Default alignment, in bits, of elements in the datapath of a VarVE unit.
const VARVE_ALIGNMENT: u32 = 8;
/// Number of instructions between two checks of the stop flag.
const SLICE: u64 = if cfg!(debug_assertions) { 1 << 9 } else { 1 << 12 };

/// The environment that a hart provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HartMode {
    /// A program of one function in user mode; a trap stops the hart.
    Program,
    /// A bare machine that begins in machine mode and handles its own traps.
    #[cfg(feature = "bare")]
    Bare,
}

/// A RISC-V hart with registers of width `X`, [`Rv32`](crate::Rv32) or [`Rv64`](crate::Rv64); the meter `M` observes
/// the instructions.
#[derive(Debug)]
pub struct Hart<X: Xlen, M: Meter = Unmetered> {
    pub(crate) state: HartState<X>,
    pub(crate) cache: Cache<X>,
    pub(crate) extensions: Extensions,
    pub(crate) mode: HartMode,
    /// Address of the next instruction, valid between runs of blocks.
    pub(crate) pc: u64,
    #[cfg_attr(not(feature = "bare"), expect(dead_code, reason = "it has no state then"))]
    privileged: Privileged,
    /// Number of instructions executed.
    pub(crate) retired: u64,
    /// Addresses from which the kept blocks were decoded.
    pub(crate) code: Range<u64>,
    /// The meter; `None` only during a run, to which it is lent.
    meter: Option<Box<M>>,
    /// Whether the kept blocks report accesses to memory to the meter.
    reports_accesses: bool,
}

/// The reason why a run of blocks ended.
enum LoopExit {
    /// Too few instructions are left for the next block.
    Slice,
    /// A block, with this number in the cache, was left at one of its steps.
    Leave { unit: usize },
    /// No instruction can be fetched at the program counter.
    Fetch,
    /// The program jumped to [`Hart::RETURN`].
    Returned,
}

impl<X: Xlen> Hart<X> {
    /// Creates a hart with all registers zero.
    pub fn new(mode: HartMode, extensions: Extensions) -> Self {
        Self::with_meter(mode, extensions, Unmetered)
    }

    /// The value of `ra` when a program's function is entered; a jump to this address returns from the function. No
    /// memory may be at it.
    pub const RETURN: u64 = if X::BITS == 32 { 0xffff_fff0 } else { 0xffff_ffff_ffff_fff0 };
}

impl<X: Xlen, M: Meter> Hart<X, M> {
    /// Creates a hart with all registers zero, and with a meter.
    ///
    /// # Panics
    /// If the hart has vectors, and the length of their registers is not from 32 (64 with elements of 64 bits) to
    /// [`VLEN_MAX`](crate::VLEN_MAX) bits.
    pub fn with_meter(mode: HartMode, extensions: Extensions, meter: M) -> Self {
        let mut state = HartState::new();
        state.vector = VectorUnit::new(extensions);
        let varve = extensions.has(Extension::Varve) && state.vector.is_some();
        state.varve = varve.then(|| VarveUnit::new(extensions.vlen(), VARVE_ALIGNMENT));
        Self {
            state,
            cache: Cache::new(),
            extensions,
            mode,
            pc: 0,
            privileged: Privileged::new(mode, extensions),
            retired: 0,
            code: 0..0,
            meter: Some(Box::new(meter)),
            reports_accesses: false,
        }
    }

    /// Sets the alignment, in bits, of elements in the datapath of the VarVE unit, if there is one, and resets the
    /// unit's state.
    ///
    /// # Panics
    /// If the alignment is not a power of two up to 64.
    pub fn set_varve_alignment(&mut self, bits: u32) {
        if self.state.varve.is_some() {
            self.state.varve = Some(VarveUnit::new(self.vlen(), bits));
        }
    }

    /// Returns the number of bits of a vector register; 0 for a hart without vectors.
    pub fn vlen(&self) -> u32 {
        self.state.vector.as_ref().map_or(0, |unit| 8 * unit.vlenb as u32)
    }

    /// Returns the bytes of vector register `number`; empty for a hart without vectors.
    pub fn v(&self, number: usize) -> &[u8] {
        self.state.vector.as_ref().map_or(&[], |unit| unit.register(number & 31))
    }

    /// Prepares a call of the function at `entry` with at most eight arguments; `stack` is the end of the stack.
    /// [`Hart::run`] then executes it.
    ///
    /// # Panics
    /// If there are more than eight arguments, which would be passed on the stack.
    pub fn call(&mut self, entry: u64, stack: u64, arguments: &[u64]) {
        assert!(arguments.len() <= 8, "arguments beyond the eighth are passed on the stack");
        self.set_pc(entry);
        self.set_x(1, Hart::<X>::RETURN);
        self.set_x(2, stack & !15);
        for (i, value) in arguments.iter().enumerate() {
            self.set_x(10 + i, *value);
        }
    }

    /// Returns the value of integer register `number`, zero-extended.
    pub fn x(&self, number: usize) -> u64 {
        X::unsigned(self.state.x[number & 31])
    }

    /// Sets integer register `number` to the low bits of `value`; register 0 stays 0.
    pub fn set_x(&mut self, number: usize, value: u64) {
        if number & 31 != 0 {
            self.state.x[number & 31] = X::word(value);
        }
    }

    /// Returns the bits of floating-point register `number`.
    pub fn f(&self, number: usize) -> u64 {
        self.state.f[number & 31]
    }

    /// Sets the bits of floating-point register `number`; the upper half of a single-precision value must be all ones
    /// (boxed).
    pub fn set_f(&mut self, number: usize, bits: u64) {
        self.state.f[number & 31] = bits;
    }

    /// Returns the floating-point control and status register: flags in bits 4:0, rounding mode in bits 7:5.
    pub fn fcsr(&self) -> u8 {
        self.state.frm << 5 | self.state.fflags
    }

    /// Sets the floating-point control and status register.
    pub fn set_fcsr(&mut self, value: u8) {
        self.state.fflags = value & 31;
        self.state.set_frm(value >> 5);
    }

    /// Returns the program counter.
    pub fn pc(&self) -> u64 {
        self.pc
    }

    /// Sets the program counter.
    pub fn set_pc(&mut self, pc: u64) {
        self.pc = X::unsigned(X::word(pc)) & !1;
    }

    /// Returns the number of instructions executed so far.
    pub fn instructions(&self) -> u64 {
        self.retired
    }

    /// Returns the blocks that were decoded, in the order in which they were first reached.
    pub fn blocks(&self) -> &[BasicBlock] {
        &self.cache.blocks
    }

    /// Drops decoded blocks. Call this after changing code in memory.
    pub fn forget_blocks(&mut self) {
        self.cache.clear();
        self.state.forget_blocks();
        self.code = 0..0;
    }

    /// Returns the hart's meter.
    pub fn meter(&self) -> &M {
        self.meter.as_deref().expect("between runs the meter is here")
    }

    /// Consumes the hart and returns its meter.
    pub fn into_meter(self) -> M {
        *self.meter.expect("between runs the meter is here")
    }

    /// Returns the hart's meter, for changing it.
    pub fn meter_mut(&mut self) -> &mut M {
        self.meter.as_deref_mut().expect("between runs the meter is here")
    }

    /// Executes instructions until something stops the hart; returns the reason.
    pub fn run(&mut self, memory: &mut Memory<'_>, streams: &mut Streams<'_>, limits: Limits<'_>) -> Stop {
        let mut meter = self.meter.take().expect("between runs the meter is here");
        if M::ACCESSES && meter.observes_accesses() != self.reports_accesses {
            self.reports_accesses = !self.reports_accesses;
            self.forget_blocks();
        }
        let env = Env::open(memory, streams, (&raw mut *meter).cast(), &self.code);
        let stop = self.run_in(env, limits);
        self.meter = Some(meter);
        stop
    }

    fn run_in(&mut self, env: &mut Env<'_, '_>, limits: Limits<'_>) -> Stop {
        self.cache.unmark();
        self.begin_run();
        let mut left = limits.instructions.unwrap_or(u64::MAX);
        loop {
            if limits.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Stop::Interrupted;
            }
            if left == 0 {
                return self.out_of_instructions();
            }
            self.between_blocks(env);
            let before = self.retired;
            let stop =
                if left < OPS_MAX as u64 { self.part(env, left as usize) } else { self.slice(env, left.min(SLICE)) };
            // A trap counts as an instruction here, so that a run ends even if a trap's handler traps again at once.
            left -= (self.retired - before).max(1);
            if let Some(stop) = stop {
                return stop;
            }
        }
    }

    /// Returns the reason for stopping when no instruction may be executed any more: the limit, unless the function has
    /// just returned.
    pub fn out_of_instructions(&self) -> Stop {
        if self.pc == Hart::<X>::RETURN && self.mode == HartMode::Program {
            Stop::Returned { code: self.x(10) }
        } else {
            Stop::InstructionLimit
        }
    }

    /// Executes whole blocks, of at most `most` instructions together; returns why the hart stopped, or `None` if it
    /// can continue.
    fn slice(&mut self, env: &mut Env<'_, '_>, most: u64) -> Option<Stop> {
        self.state.left = most as i64;
        let why = self.blocks_until(env);
        debug_assert!(
            (0..=most as i64).contains(&self.state.left),
            "{} of {most} instructions are left",
            self.state.left
        );
        self.retired += most - self.state.left as u64;
        match why {
            // No instructions are left for the next block.
            LoopExit::Slice => None,
            LoopExit::Fetch if self.state.left == 0 => None,
            LoopExit::Fetch => self.fetch_trap(env),
            LoopExit::Returned => Some(Stop::Returned { code: self.x(10) }),
            LoopExit::Leave { unit } => {
                let index = self.cache.steps[unit].index(self.state.at);
                let block = &self.cache.blocks[unit];
                self.retired -= block.ops.len() as u64 - index as u64;
                let (pc, op) = (block.address(index), block.ops[index]);
                if M::BLOCKS {
                    Self::meter_of(env).left(block, index);
                }
                self.left(pc, &op, env)
            }
        }
    }

    /// Executes block after block until something ends the loop, or fewer instructions are left than the next block
    /// has.
    fn blocks_until(&mut self, env: &mut Env<'_, '_>) -> LoopExit {
        let mut unit = match self.find(env) {
            Ok(unit) => unit,
            Err(why) => return why,
        };
        loop {
            let first = self.cache.steps[unit].first();
            if self.state.left < self.cache.blocks[unit].ops.len() as i64 {
                return LoopExit::Slice;
            }
            // SAFETY: steps and their links are dropped together, never while they are executed; enough instructions
            // are left.
            let flow = unsafe { exec::run(first, &mut self.state, env) };
            // SAFETY: the cache has not changed.
            let from = unsafe { exec::header(self.state.block) }.unit as usize;
            if flow == LEAVE {
                return LoopExit::Leave { unit: from };
            }
            unit = match self.follow(env, from, flow) {
                Ok(next) => next,
                Err(why) => return why,
            };
        }
    }

    /// Returns the number of the block that follows block `unit` by `flow`; decodes it if it is new, and links it.
    fn follow(&mut self, env: &mut Env<'_, '_>, unit: usize, flow: exec::Flow) -> Result<usize, LoopExit> {
        debug_assert!(flow <= JUMP, "a block that was left at a step does not continue");
        let block = &self.cache.blocks[unit];
        self.pc = match flow {
            exec::TAKEN => block.taken(X::BITS).unwrap_or(block.pc),
            exec::NEXT => block.next(X::BITS),
            _ => self.state.target,
        };
        let dropped = self.cache.full();
        let next = self.find(env)?;
        let first = self.cache.steps[next].first();
        if flow == JUMP {
            self.state.note_recent(self.pc, first);
        } else if !dropped {
            self.cache.steps[unit].link(flow, first);
        }
        Ok(next)
    }

    /// Returns the number of the block at the program counter; decodes it if it is new.
    fn find(&mut self, env: &mut Env<'_, '_>) -> Result<usize, LoopExit> {
        let pc = self.pc;
        if pc == Hart::<X>::RETURN && self.mode == HartMode::Program {
            return Err(LoopExit::Returned);
        }
        debug_assert_eq!(pc & 1, 0, "instructions begin at even addresses");
        if let Some(unit) = self.cache.find(pc) {
            return Ok(unit);
        }
        let block = self.decode(env, OPS_MAX).ok_or(LoopExit::Fetch)?;
        if self.cache.full() {
            self.forget_code(env);
        }
        env.spans.note_decoded(pc, block.bytes());
        self.code = env.spans.decoded_range();
        if M::BLOCKS {
            Self::meter_of(env).decoded(self.cache.blocks.len() as u32, &block);
        }
        Ok(self.cache.insert::<M>(block, self.units_off(), self.reports_accesses))
    }

    /// Decodes at most `most` instructions at the program counter; `None` if none can be fetched there.
    fn decode(&self, env: &mut Env<'_, '_>, most: usize) -> Option<BasicBlock> {
        let spans = &mut env.spans;
        let (pc, end) = (self.pc, spans.block_end(self.pc));
        // After the end of a page, the bytes at the next address may be of another page than the next in memory.
        let mut fetch = |at: u64| if at == pc || at <= end - 4 { spans.fetch(at).ok() } else { None };
        BasicBlock::decode(pc, X::BITS, self.extensions, most, &mut fetch)
    }

    fn units_off(&self) -> UnitsOff {
        UnitsOff { float: self.float_off(), vector: self.vector_off() }
    }

    /// Traps because no instruction can be fetched at the program counter; returns why the hart stopped, if it did.
    fn fetch_trap(&mut self, env: &mut Env<'_, '_>) -> Option<Stop> {
        let fault = env.spans.fetch(self.pc).err()?;
        self.trapped(fault.cause(AccessKind::Fetch), fault.address, self.pc)
    }

    /// Executes at most `most` instructions of the block at the program counter, when the limit is near; returns why
    /// the hart stopped, if it did.
    fn part(&mut self, env: &mut Env<'_, '_>, most: usize) -> Option<Stop> {
        let pc = self.pc;
        if pc == Hart::<X>::RETURN && self.mode == HartMode::Program {
            return Some(Stop::Returned { code: self.x(10) });
        }
        debug_assert!(most <= OPS_MAX, "a part of {most} instructions");
        let Some(block) = self.decode(env, most) else { return self.fetch_trap(env) };
        let steps = exec::steps::<X, M>(&block, exec::PART, self.units_off(), self.reports_accesses);
        if M::BLOCKS {
            Self::meter_of(env).part(&block);
        }
        // No instructions are left after this block, so that it ends even if its steps could continue elsewhere.
        self.state.left = block.ops.len() as i64;
        // SAFETY: the steps were just built from the block, and have no links.
        let flow = unsafe { exec::run(steps.first(), &mut self.state, env) };
        if flow == LEAVE {
            let index = steps.index(self.state.at);
            self.retired += index as u64;
            if M::BLOCKS {
                Self::meter_of(env).left(&block, index);
            }
            return self.left(block.address(index), &block.ops[index], env);
        }
        self.retired += block.ops.len() as u64;
        self.pc = match flow {
            exec::TAKEN => block.taken(X::BITS).unwrap_or(pc),
            exec::NEXT => block.next(X::BITS),
            _ => self.state.target,
        };
        None
    }

    /// Handles the reason for which a basic block ended before its last instruction: a trap, a wait, a system
    /// instruction. `op` at address `pc` is the instruction that ended it; it is counted as executed if this finishes
    /// it. Returns why the hart stopped; `None` if it goes on.
    fn left(&mut self, pc: u64, op: &crate::isa::Instruction, env: &mut Env<'_, '_>) -> Option<Stop> {
        let behind = X::unsigned(X::word(pc.wrapping_add(u64::from(op.len))));
        self.pc = pc;
        let exit = if self.state.exit == Exit::System {
            match self.system(op, pc, env) {
                SystemOutcome::Leave(exit) => exit,
                outcome => {
                    self.retire(pc, op, env);
                    self.pc = if let SystemOutcome::Jump(to) = outcome { to } else { behind };
                    return if let SystemOutcome::Stop(stop) = outcome { Some(stop) } else { None };
                }
            }
        } else {
            self.state.exit
        };
        match exit {
            Exit::Trap { cause: Cause::IllegalInstruction, .. } => {
                let bits = env.spans.fetch(pc).unwrap_or(0);
                self.trapped(Cause::IllegalInstruction, u64::from(bits), pc)
            }
            Exit::Trap { cause, value } => self.trapped(cause, value, pc),
            Exit::Stored => {
                self.retire(pc, op, env);
                self.pc = behind;
                if std::mem::take(&mut env.spans.code_written) {
                    self.forget_code(env);
                }
                let told = std::mem::take(&mut env.spans.watch_hit).then(|| env.spans.watched_value());
                told.filter(|value| *value != 0).map(Stop::ToHost)
            }
            Exit::Paused => Some(Stop::Paused),
            Exit::WaitInput(stream) => Some(Stop::WaitInput { stream }),
            Exit::WaitOutput(stream) => Some(Stop::WaitOutput { stream }),
            Exit::Exhausted(stream) => {
                let left = env.streams().inputs[stream as usize].left().unwrap_or_default() as u8;
                Some(Stop::InputExhausted { stream, left })
            }
            Exit::Full(stream) => Some(Stop::OutputFull { stream }),
            Exit::System | Exit::Marked => None,
        }
    }

    /// Counts an instruction that was executed outside of blocks.
    fn retire(&mut self, pc: u64, op: &crate::isa::Instruction, env: &mut Env<'_, '_>) {
        self.retired += 1;
        if M::BLOCKS {
            Self::meter_of(env).single(pc, op);
        }
    }

    /// Returns the meter lent to this run.
    fn meter_of<'e>(env: &'e mut Env<'_, '_>) -> &'e mut M {
        // SAFETY: `run` lent this hart's own meter, and no other reference to it exists meanwhile; harts of translators
        // have none, and never call this.
        unsafe { env.meter::<M>() }
    }

    fn trapped(&mut self, cause: Cause, value: u64, pc: u64) -> Option<Stop> {
        self.enter_trap(cause, value, pc).err().map(Stop::Trap)
    }
}

#[cfg(test)]
mod tests;
