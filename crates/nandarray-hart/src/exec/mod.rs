//! Executing instructions: the registers, and a function for each instruction.
//!
//! A block's instructions become [`Step`]s: a pointer to the function that executes it, and its operands. Each function
//! ends by calling the next step's in tail position, which an optimising build turns into a jump, so that the host's
//! branch predictor sees a jump for every instruction of the program. The last step of a block goes on with the first
//! of the block that it is linked to, as long as [`HartState::left`] allows; then it returns a [`Flow`]. A build that
//! makes calls of these jumps nests no deeper than one run has instructions, so those are few. Rare cases (faults,
//! memory outside the main region, inexact rounding) are in functions of their own, so that the common ones need no
//! stack.
//!
//! `int`, `bits`, `mem`, `atomic`, `float`, `convert`, `stream` and `control` hold the functions by instruction group,
//! `select` chooses among them, `fuse` joins pairs, `metered` notifies the meter first. Nothing here knows blocks,
//! privilege, or control and status registers.

mod atomic;
mod bits;
mod control;
mod convert;
mod float;
mod fuse;
mod int;
mod mem;
mod metered;
mod select;
mod stream;
mod varve;
mod vector;

pub(crate) use metered::PART;
pub(crate) use select::steps;
pub(crate) use stream::register as stream_register;

use std::marker::PhantomData;
use std::ops::Range;

use crate::memory::{Memory, RegionTable};
use crate::streams::Streams;
use crate::trap::Cause;
use crate::varve::VarveUnit;
use crate::vector::VectorUnit;
use crate::xlen::Xlen;

/// The index that writes to register 0 go to: nothing reads it.
const SINK: u8 = 32;

/// Why a run of blocks ended.
pub(crate) type Flow = usize;
/// The block that ended at [`HartState::at`] jumps or branches to its target, and that is not linked, or too long for
/// what is left.
pub(crate) const TAKEN: Flow = 0;
/// The same, to the instruction behind it.
pub(crate) const NEXT: Flow = 1;
/// The same, to [`HartState::target`].
pub(crate) const JUMP: Flow = 2;
/// The block was left at [`HartState::at`]; [`HartState::exit`] says why.
pub(crate) const LEAVE: Flow = 3;

/// Units that are switched off, so that their instructions are illegal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitsOff {
    pub(crate) float: bool,
    pub(crate) vector: bool,
}

/// Why a block was left in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The instruction cannot be executed.
    Trap { cause: Cause, value: u64 },
    /// It is one that the hart executes outside of blocks.
    System,
    /// The block is marked: a translator has code for it.
    Marked,
    /// A meter wants it executed later.
    Paused,
    /// It was executed, but instructions decoded behind it may have been overwritten, or `tohost` was written.
    Stored,
    /// It waits for bytes of an input stream.
    WaitInput(u8),
    /// The input stream is closed and holds too few bytes.
    Exhausted(u8),
    /// It waits for room in an output stream.
    WaitOutput(u8),
    /// The output stream has all the bytes that it may have.
    Full(u8),
}

/// Entries of the table by which indirect jumps find their target.
const RECENT: usize = 1 << 10;

/// The registers, and the state of a run of blocks.
#[derive(Debug)]
pub(crate) struct HartState<X: Xlen> {
    /// Instructions that may still be executed in this run of blocks.
    pub(crate) left: i64,
    /// The first step of the block that is executed; its [`BlockHeader`] is before it.
    pub(crate) block: *const StepSlot<X>,
    /// The step at which the blocks were left.
    pub(crate) at: *const StepSlot<X>,
    /// Blocks that indirect jumps went to lately, by a part of their address; never null.
    recent: Box<[*const StepSlot<X>; RECENT]>,
    /// Integer registers, then the sink of register 0. A byte indexes all of them, so that no index is checked.
    pub(crate) x: [X::Word; 256],
    /// Floating-point registers; single precision is boxed in ones.
    pub(crate) f: [u64; 32],
    /// Accrued exceptions: NV 16, DZ 8, OF 4, UF 2, NX 1.
    pub(crate) fflags: u8,
    /// Dynamic rounding mode.
    pub(crate) frm: u8,
    /// The rounding-mode fields that now mean "to nearest, ties to even": bit 0, and bit 7 if `frm` says so.
    pub(crate) nearest: u8,
    /// Where [`JUMP`] goes.
    pub(crate) target: u64,
    /// Why the block was left.
    pub(crate) exit: Exit,
    /// The reserved address and its value.
    pub(crate) reserved: Option<(u64, u64)>,
    /// The vector unit, of harts that have one.
    pub(crate) vector: Option<Box<VectorUnit>>,
    /// The VarVE unit, of harts that have one.
    pub(crate) varve: Option<Box<VarveUnit>>,
}

impl<X: Xlen> HartState<X> {
    pub(crate) fn new() -> Self {
        Self {
            left: 0,
            block: nowhere(),
            at: nowhere(),
            recent: Box::new([nowhere(); RECENT]),
            x: [X::Word::default(); 256],
            f: [0; 32],
            fflags: 0,
            frm: 0,
            nearest: 0x81,
            target: 0,
            exit: Exit::System,
            reserved: None,
            vector: None,
            varve: None,
        }
    }

    pub(crate) fn set_frm(&mut self, frm: u8) {
        self.frm = frm & 7;
        self.nearest = if self.frm == 0 { 0x81 } else { 0x01 };
    }

    /// Address of the block that is executed.
    #[inline(always)]
    fn pc(&self) -> u64 {
        // SAFETY: while steps are executed, `block` is the first step of a block, and a header is before it.
        unsafe { (*self.block.sub(1)).header.pc }
    }

    /// Note that indirect jumps to `pc` go to the block that begins at `first`.
    pub(crate) fn note_recent(&mut self, pc: u64, first: *const StepSlot<X>) {
        self.recent[(pc >> 1) as usize % RECENT] = first;
    }

    /// Forget all pointers to steps.
    pub(crate) fn forget_blocks(&mut self) {
        self.recent.fill(nowhere());
        (self.block, self.at) = (nowhere(), nowhere());
    }

    /// Leave the block at `step`.
    fn leave(&mut self, step: *const StepSlot<X>, exit: Exit) -> Flow {
        self.exit = exit;
        self.at = step;
        LEAVE
    }

    /// Leave the block at its end, `step`.
    #[cold]
    fn end(&mut self, step: *const StepSlot<X>, flow: Flow) -> Flow {
        self.at = step;
        flow
    }

    fn trap(&mut self, step: *const StepSlot<X>, cause: Cause, value: u64) -> Flow {
        self.leave(step, Exit::Trap { cause, value })
    }
}

/// The environment of a run: memory, and beside it the streams and the meter.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Env<'e, 's> {
    pub(crate) spans: RegionTable,
    streams: PhantomData<&'e mut Streams<'s>>,
}

impl<'e, 's> Env<'e, 's> {
    /// The environment for a run of a hart that has decoded the instructions at `code`, with the meter at `meter`.
    pub(crate) fn open(
        memory: &'e mut Memory<'_>,
        streams: &'e mut Streams<'s>,
        meter: *mut (),
        code: &Range<u64>,
    ) -> &'e mut Self {
        let spans = memory.spans();
        spans.begin(code);
        spans.beside = [(&raw mut *streams).cast(), meter];
        // SAFETY: it is the same thing by another name: `Self` is transparent.
        unsafe { &mut *(&raw mut *spans).cast() }
    }

    #[inline(always)]
    pub(crate) fn streams(&mut self) -> &mut Streams<'s> {
        // SAFETY: `open` put them there, and borrows them exclusively for as long as this is there.
        unsafe { &mut *self.spans.beside[0].cast() }
    }

    /// The meter of the run.
    ///
    /// # Safety
    /// It is an `M`, which nothing else refers to.
    #[inline(always)]
    pub(crate) unsafe fn meter<M>(&mut self) -> &mut M {
        // SAFETY: the caller's promise, and that of who called `open`.
        unsafe { &mut *self.spans.beside[1].cast() }
    }
}

// SAFETY: the pointers are to steps that the hart's own cache holds, which goes wherever this goes.
unsafe impl<X: Xlen> Send for HartState<X> {}
// SAFETY: as above; nothing is changed through a shared reference.
unsafe impl<X: Xlen> Sync for HartState<X> {}

/// Executes one step and what follows.
///
/// # Safety
/// `step` is a step of a [`Steps`], this function was chosen for it, and that and all it is linked to still exist.
type Handler<X> = for<'e, 's> unsafe fn(*const StepSlot<X>, &mut HartState<X>, &mut Env<'e, 's>) -> Flow;

/// One instruction as it is executed. `rd` is [`SINK`] where the program says register 0.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Step<X: Xlen> {
    run: Handler<X>,
    rd: u8,
    rs1: u8,
    rs2: u8,
    /// Third source register.
    rs3: u8,
    imm: i32,
}

/// The record before the first step of a block.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct BlockHeader {
    /// Address of the block.
    pub(crate) pc: u64,
    /// Instructions in it; [`UNLINKED`] for a block that there is not.
    pub(crate) count: u32,
    /// Its number in the cache.
    pub(crate) unit: u32,
}

/// More instructions than are ever left.
const UNLINKED: u32 = u32::MAX;

/// A place in the steps of a block: its header, its steps, and behind the last of them the blocks that follow.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union StepSlot<X: Xlen> {
    header: BlockHeader,
    step: Step<X>,
    /// First steps of the block that a jump or branch goes to, and of the one behind.
    links: [*const StepSlot<X>; 2],
}

/// The block that stands for all that are not known: no run has enough instructions left to enter it.
fn nowhere<X: Xlen>() -> *const StepSlot<X> {
    struct Nowhere<X: Xlen>(std::marker::PhantomData<X>);
    impl<X: Xlen> Nowhere<X> {
        // Its first step is never executed, so there is only a header, and the address behind it.
        const HEADER: &'static [StepSlot<X>; 2] = &[
            StepSlot { header: BlockHeader { pc: u64::MAX, count: UNLINKED, unit: UNLINKED } },
            StepSlot { header: BlockHeader { pc: u64::MAX, count: UNLINKED, unit: UNLINKED } },
        ];
    }
    &raw const Nowhere::<X>::HEADER[1]
}

/// The steps of a block, where they stay until they are dropped.
#[derive(Debug)]
pub(crate) struct Steps<X: Xlen> {
    slots: std::ptr::NonNull<[StepSlot<X>]>,
    /// Number of steps before that of the first instruction: 1 if a meter observes blocks.
    before: usize,
    /// Handler of the first step where the block is marked.
    marked: Option<Handler<X>>,
}

// SAFETY: it owns its slots; what those point to is owned by the same cache.
unsafe impl<X: Xlen> Send for Steps<X> {}
// SAFETY: slots are changed through exclusive references only.
unsafe impl<X: Xlen> Sync for Steps<X> {}

impl<X: Xlen> Steps<X> {
    /// Slots as `select` makes them: a header, steps, links.
    fn new(slots: Vec<StepSlot<X>>, observed: bool) -> Self {
        let slots = std::ptr::NonNull::from(Box::leak(slots.into_boxed_slice()));
        Self { slots, before: usize::from(observed), marked: None }
    }

    /// The first step.
    pub(crate) fn first(&self) -> *const StepSlot<X> {
        // SAFETY: a header is before it.
        unsafe { self.slots.as_ptr().cast::<StepSlot<X>>().cast_const().add(1) }
    }

    /// The instruction that `step` of these executes.
    pub(crate) fn index(&self, step: *const StepSlot<X>) -> usize {
        (step as usize - self.first() as usize) / size_of::<StepSlot<X>>() - self.before
    }

    /// Have the block left before its first instruction, or no longer.
    pub(crate) fn mark(&mut self, marked: bool) {
        // SAFETY: the slot behind the header is the first step; the reference is exclusive.
        let run = unsafe { &mut (*self.slots.as_ptr().cast::<StepSlot<X>>().add(1)).step.run };
        match (marked, self.marked) {
            (true, None) => self.marked = Some(std::mem::replace(run, control::marked)),
            (false, Some(own)) => (*run, self.marked) = (own, None),
            _ => {}
        }
    }

    /// Link the block to the one whose first step is `first`: by [`TAKEN`] or [`NEXT`].
    pub(crate) fn link(&mut self, flow: Flow, first: *const StepSlot<X>) {
        // SAFETY: the links are the last slot; the reference is exclusive.
        unsafe { (*self.slots.as_ptr().cast::<StepSlot<X>>().add(self.slots.len() - 1)).links[flow] = first };
    }
}

impl<X: Xlen> Drop for Steps<X> {
    fn drop(&mut self) {
        // SAFETY: it was leaked from such a box.
        drop(unsafe { Box::from_raw(self.slots.as_ptr()) });
    }
}

/// The header of the block that begins at `first`.
///
/// # Safety
/// `first` is the first step of a block that still exists.
pub(crate) unsafe fn header<X: Xlen>(first: *const StepSlot<X>) -> BlockHeader {
    // SAFETY: a header is before the first step.
    unsafe { (*first.sub(1)).header }
}

/// Execute the block that begins at `first`, and those that it is linked to.
///
/// # Safety
/// `first` is the first step of a block; it and all that it is linked to exist. [`HartState::left`] has room for its
/// count.
pub(crate) unsafe fn run<X: Xlen>(first: *const StepSlot<X>, state: &mut HartState<X>, env: &mut Env<'_, '_>) -> Flow {
    // SAFETY: the caller's promise is the handler's.
    unsafe {
        state.left -= i64::from((*first.sub(1)).header.count);
        state.block = first;
        ((*first).step.run)(first, state, env)
    }
}

/// Define the functions of instructions: their body, with `$step`, `$state`, `$env` named by the caller.
macro_rules! handlers {
    ($(
        $(#[$note:meta])* fn $name:ident $(<$p:ident : $bound:path>)? ($step:ident, $s:ident, $e:ident) $body:block
    )*) => {$(
        $(#[$note])*
        #[allow(unused_variables, unused_unsafe, reason = "not every instruction looks at everything")]
        #[allow(clippy::missing_safety_doc, reason = "see `Handler`")]
        pub(super) unsafe fn $name<X: Xlen $(, $p: $bound)?>(
            $step: *const crate::exec::StepSlot<X>,
            $s: &mut crate::exec::HartState<X>,
            $e: &mut crate::exec::Env<'_, '_>,
        ) -> crate::exec::Flow $body
    )*};
}

/// The operands of a step.
macro_rules! operands {
    ($step:expr) => {
        // SAFETY: a handler is given a slot that is there and is a step.
        unsafe { &(*$step).step }
    };
}

/// Go on with the next step; `next!(2, ...)` with the one behind it.
macro_rules! next {
    ($step:expr, $s:expr, $e:expr) => {
        next!(1, $step, $s, $e)
    };
    ($count:literal, $step:expr, $s:expr, $e:expr) => {{
        // SAFETY: a step that goes on is not the last of its block, and one that stands for two is not the last but
        // one.
        unsafe {
            let next = $step.add($count);
            return ((*next).step.run)(next, $s, $e);
        }
    }};
}

/// Go on with another function for the same step.
macro_rules! otherwise {
    ($handler:expr, $step:expr, $s:expr, $e:expr) => {{
        // SAFETY: the same step, which `$handler` takes as this function does.
        return unsafe { $handler($step, $s, $e) };
    }};
}

/// Go on with the block that begins at `$first`, if it may be executed; end the block at `$step` by `$flow` otherwise.
macro_rules! enter {
    ($first:expr, $flow:expr, $step:expr, $s:expr, $e:expr) => {{
        let first: *const crate::exec::StepSlot<X> = $first;
        // SAFETY: links and recent blocks are first steps of blocks that exist, with a header before them; the one that
        // stands for unknown blocks asks for more than is left.
        unsafe {
            let left = $s.left - i64::from((*first.sub(1)).header.count);
            if left < 0 {
                return $s.end($step, $flow);
            }
            $s.left = left;
            $s.block = first;
            return ((*first).step.run)(first, $s, $e);
        }
    }};
}

/// Go on with the block that is linked behind the last step, `$step`.
macro_rules! follow {
    ($flow:expr, $step:expr, $s:expr, $e:expr) => {{
        // SAFETY: the last step of a block has its links behind it.
        let first = unsafe { (*$step.add(1)).links[$flow] };
        enter!(first, $flow, $step, $s, $e)
    }};
}

use {enter, follow, handlers, next, operands, otherwise};
