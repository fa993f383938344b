//! Execution of instructions: the registers, and a function for each instruction.
//!
//! A block's instructions become [`Step`]s: each is a pointer to the function that executes it, and its operands. Each
//! function ends by calling the next step's function in tail position, which an optimising build turns into a jump, so
//! that the host's branch predictor sees a separate jump for every instruction of the program. The last step of a block
//! continues with the first step of the block that it is linked to, as long as [`HartState::left`] allows; then it
//! returns a [`Flow`]. A build that does not turn these calls into jumps nests as deep as one run has instructions, so
//! runs are short there. Rare cases (faults, memory outside of the main region, inexact rounding) are in functions of
//! their own, so that the common ones need no stack.
//!
//! `int`, `bits`, `mem`, `atomic`, `float`, `convert`, `stream` and `control` hold the functions by instruction group,
//! `select` chooses among them, `fuse` joins pairs, `metered` notifies a meter first. Nothing here depends on the cache
//! of blocks, on privilege, or on control and status registers.

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

/// Index of the register that takes the writes to register 0; no instruction reads it.
const SINK: u8 = 32;

/// The reason why a run of linked blocks ended: one of the four values below.
pub(crate) type Flow = usize;
/// The block that ended at [`HartState::at`] jumps or branches. The run ended because the block is not linked to its
/// target, or because too few instructions are left to execute the target.
pub(crate) const TAKEN: Flow = 0;
/// The block that ended at [`HartState::at`] continues at the next instruction. The run ended because the following
/// block is not linked, or because too few instructions are left to execute it.
pub(crate) const NEXT: Flow = 1;
/// The block that ended at [`HartState::at`] jumps to the address [`HartState::target`]. The run ended because the
/// block there is not known, or because too few instructions are left to execute it.
pub(crate) const JUMP: Flow = 2;
/// The block was left at the step [`HartState::at`]; [`HartState::exit`] has the reason.
pub(crate) const LEAVE: Flow = 3;

/// The units (floating-point, vector) that are switched off, so that their instructions are illegal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitsOff {
    pub(crate) float: bool,
    pub(crate) vector: bool,
}

/// The reason why a block was left before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The instruction cannot be executed and traps.
    Trap { cause: Cause, value: u64 },
    /// The hart must execute the instruction outside of blocks.
    System,
    /// The block is marked: a translator has host code for it, which is to be executed instead.
    Marked,
    /// The meter paused the hart before the instruction, which is executed later.
    Paused,
    /// The instruction was executed, but it may have overwritten decoded instructions that follow, or it wrote
    /// `tohost`.
    Stored,
    /// The instruction waits for bytes of this input stream.
    WaitInput(u8),
    /// This input stream has ended, and fewer bytes are left than the instruction needs.
    Exhausted(u8),
    /// The instruction waits for room in this output stream.
    WaitOutput(u8),
    /// This output stream has all the bytes that it may have.
    Full(u8),
}

/// Number of entries of the table in which indirect jumps look up their target.
const RECENT: usize = 1 << 10;

/// The registers, and the state of a run of linked blocks.
#[derive(Debug)]
pub(crate) struct HartState<X: Xlen> {
    /// Number of instructions that may still be executed in this run.
    pub(crate) left: i64,
    /// The first step of the block that is being executed; its [`BlockHeader`] is in the slot before it.
    pub(crate) block: *const StepSlot<X>,
    /// The step at which the run of blocks ended.
    pub(crate) at: *const StepSlot<X>,
    /// First steps of recent targets of indirect jumps, indexed by a part of their address; never null.
    recent: Box<[*const StepSlot<X>; RECENT]>,
    /// Integer registers, then the sink for register 0. The array has an element for every index of one byte, so that
    /// no index needs a check.
    pub(crate) x: [X::Word; 256],
    /// Floating-point registers; the upper half of a single-precision value is all ones (boxed).
    pub(crate) f: [u64; 32],
    /// Accrued exceptions: NV 16, DZ 8, OF 4, UF 2, NX 1.
    pub(crate) fflags: u8,
    /// Dynamic rounding mode, as encoded in `frm`.
    pub(crate) frm: u8,
    /// Bit `n` is set if the rounding-mode field `n` now means "to nearest, ties to even": always bit 0, and bit 7 if
    /// `frm` is 0.
    pub(crate) nearest: u8,
    /// Target address of the last [`JUMP`].
    pub(crate) target: u64,
    /// The reason for the last [`LEAVE`].
    pub(crate) exit: Exit,
    /// The reserved address and its value, after a load-reserved; `None` without a reservation.
    pub(crate) reserved: Option<(u64, u64)>,
    /// The vector unit; `None` for harts without vectors.
    pub(crate) vector: Option<Box<VectorUnit>>,
    /// The VarVE unit; `None` for harts without it.
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

    /// Returns the address of the block that is being executed.
    #[inline(always)]
    fn pc(&self) -> u64 {
        // SAFETY: while steps are executed, `block` is the first step of a block, which follows a header.
        unsafe { (*self.block.sub(1)).header.pc }
    }

    /// Notes that indirect jumps to `pc` continue at the block that begins at `first`.
    pub(crate) fn note_recent(&mut self, pc: u64, first: *const StepSlot<X>) {
        debug_assert!(!first.is_null(), "no steps at {pc:#x}");
        self.recent[(pc >> 1) as usize % RECENT] = first;
    }

    /// Clears all pointers to steps.
    pub(crate) fn forget_blocks(&mut self) {
        self.recent.fill(nowhere());
        (self.block, self.at) = (nowhere(), nowhere());
    }

    /// Records that the block is left at `step`, and for which reason; returns [`LEAVE`].
    fn leave(&mut self, step: *const StepSlot<X>, exit: Exit) -> Flow {
        self.exit = exit;
        self.at = step;
        LEAVE
    }

    /// Records that the block ended at `step`, its last; returns `flow`.
    #[cold]
    fn end(&mut self, step: *const StepSlot<X>, flow: Flow) -> Flow {
        self.at = step;
        flow
    }

    fn trap(&mut self, step: *const StepSlot<X>, cause: Cause, value: u64) -> Flow {
        self.leave(step, Exit::Trap { cause, value })
    }
}

/// The environment of a run: memory, with the streams and the meter beside it.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Env<'e, 's> {
    pub(crate) spans: RegionTable,
    streams: PhantomData<&'e mut Streams<'s>>,
}

impl<'e, 's> Env<'e, 's> {
    /// Prepares the environment for a run of a hart that has decoded the instructions at the addresses `code`; `meter`
    /// points to its meter.
    pub(crate) fn open(
        memory: &'e mut Memory<'_>,
        streams: &'e mut Streams<'s>,
        meter: *mut (),
        code: &Range<u64>,
    ) -> &'e mut Self {
        let spans = memory.spans();
        spans.begin(code);
        spans.beside = [(&raw mut *streams).cast(), meter];
        // SAFETY: `Self` is transparent, so it has the layout of the table that it refers to.
        unsafe { &mut *(&raw mut *spans).cast() }
    }

    #[inline(always)]
    pub(crate) fn streams(&mut self) -> &mut Streams<'s> {
        debug_assert!(!self.spans.beside[0].is_null(), "an environment without streams");
        // SAFETY: `open` stored this pointer, and the streams stay exclusively borrowed as long as this environment
        // lives.
        unsafe { &mut *self.spans.beside[0].cast() }
    }

    /// Returns the meter of the run.
    ///
    /// # Safety
    /// The meter passed to [`Env::open`] is an `M`, and no other reference to it exists.
    #[inline(always)]
    pub(crate) unsafe fn meter<M>(&mut self) -> &mut M {
        debug_assert!(!self.spans.beside[1].is_null(), "an environment without a meter");
        // SAFETY: the caller promises this, as does the caller of `open`.
        unsafe { &mut *self.spans.beside[1].cast() }
    }
}

// SAFETY: the pointers are to steps in the cache of the same hart, which moves together with this.
unsafe impl<X: Xlen> Send for HartState<X> {}
// SAFETY: as above; a shared reference changes nothing.
unsafe impl<X: Xlen> Sync for HartState<X> {}

/// The function of a step: executes it, and then the steps that follow.
///
/// # Safety
/// The argument must be a step of a [`Steps`] for which this function was selected; that block and all blocks that it
/// is linked to must still exist.
type Handler<X> = for<'e, 's> unsafe fn(*const StepSlot<X>, &mut HartState<X>, &mut Env<'e, 's>) -> Flow;

/// One instruction in executable form: its function and operands. `rd` is [`SINK`] if the instruction names register 0.
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

/// The header in the slot before the first step of a block.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct BlockHeader {
    /// Address of the block.
    pub(crate) pc: u64,
    /// Number of instructions in the block; [`UNLINKED`] in the header that stands for unknown blocks.
    pub(crate) count: u32,
    /// The block's number in the cache.
    pub(crate) unit: u32,
}

/// A number of instructions that is more than any run has left, so that a block with this number is never entered.
const UNLINKED: u32 = u32::MAX;

/// One slot of a block's memory: the header, a step, or after the last step the links to the blocks that follow.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union StepSlot<X: Xlen> {
    header: BlockHeader,
    step: Step<X>,
    /// First steps of the blocks that follow: the target of the jump or branch, and the block at the next address.
    links: [*const StepSlot<X>; 2],
}

/// Returns the first step of a block that stands for all unknown ones: it claims more instructions than any run has
/// left, so that no run enters it.
fn nowhere<X: Xlen>() -> *const StepSlot<X> {
    struct Nowhere<X: Xlen>(std::marker::PhantomData<X>);
    impl<X: Xlen> Nowhere<X> {
        // This first step is never executed, so only the header before it matters.
        const HEADER: &'static [StepSlot<X>; 2] = &[
            StepSlot { header: BlockHeader { pc: u64::MAX, count: UNLINKED, unit: UNLINKED } },
            StepSlot { header: BlockHeader { pc: u64::MAX, count: UNLINKED, unit: UNLINKED } },
        ];
    }
    &raw const Nowhere::<X>::HEADER[1]
}

/// The steps of a block; they stay at one address until they are dropped.
#[derive(Debug)]
pub(crate) struct Steps<X: Xlen> {
    slots: std::ptr::NonNull<[StepSlot<X>]>,
    /// Number of steps before the step of the first instruction: 1 if a meter observes blocks, otherwise 0.
    before: usize,
    /// The original function of the first step, while the block is marked; otherwise `None`.
    marked: Option<Handler<X>>,
}

// SAFETY: this type owns its slots, and the same cache owns the blocks that they point to.
unsafe impl<X: Xlen> Send for Steps<X> {}
// SAFETY: slots are changed through exclusive references only.
unsafe impl<X: Xlen> Sync for Steps<X> {}

impl<X: Xlen> Steps<X> {
    /// Takes over the slots that `select` has built: a header, steps, links. If `observed`, the first step notifies a
    /// meter.
    fn new(slots: Vec<StepSlot<X>>, observed: bool) -> Self {
        assert!(slots.len() >= 3, "a header, a step and links need {} slots", slots.len());
        let slots = std::ptr::NonNull::from(Box::leak(slots.into_boxed_slice()));
        Self { slots, before: usize::from(observed), marked: None }
    }

    /// Returns a pointer to the first step.
    pub(crate) fn first(&self) -> *const StepSlot<X> {
        // SAFETY: the first slot is the header.
        unsafe { self.slots.as_ptr().cast::<StepSlot<X>>().cast_const().add(1) }
    }

    /// Returns the index of the instruction that `step`, a step of this block, executes.
    pub(crate) fn index(&self, step: *const StepSlot<X>) -> usize {
        debug_assert!(step >= self.first(), "a step of another block");
        (step as usize - self.first() as usize) / size_of::<StepSlot<X>>() - self.before
    }

    /// Marks the block, so that it is left before its first instruction, or removes the mark.
    pub(crate) fn mark(&mut self, marked: bool) {
        // SAFETY: the slot after the header is the first step; the reference is exclusive.
        let run = unsafe { &mut (*self.slots.as_ptr().cast::<StepSlot<X>>().add(1)).step.run };
        match (marked, self.marked) {
            (true, None) => self.marked = Some(std::mem::replace(run, control::marked)),
            (false, Some(own)) => (*run, self.marked) = (own, None),
            _ => {}
        }
    }

    /// Links the block to the one whose first step is `first`; `flow` is [`TAKEN`] or [`NEXT`].
    pub(crate) fn link(&mut self, flow: Flow, first: *const StepSlot<X>) {
        assert!(flow <= NEXT, "a block has two links, not one for flow {flow}");
        // SAFETY: the links are the last slot; the reference is exclusive.
        unsafe { (*self.slots.as_ptr().cast::<StepSlot<X>>().add(self.slots.len() - 1)).links[flow] = first };
    }
}

impl<X: Xlen> Drop for Steps<X> {
    fn drop(&mut self) {
        // SAFETY: `new` leaked these slots from such a box.
        drop(unsafe { Box::from_raw(self.slots.as_ptr()) });
    }
}

/// Returns the header of the block that begins at `first`.
///
/// # Safety
/// `first` must be the first step of a block that still exists.
pub(crate) unsafe fn header<X: Xlen>(first: *const StepSlot<X>) -> BlockHeader {
    // SAFETY: a header precedes the first step.
    unsafe { (*first.sub(1)).header }
}

/// Executes the block that begins at `first`, and the blocks that it is linked to; returns why they ended.
///
/// # Safety
/// `first` must be the first step of a block; that block and all that it is linked to must exist. [`HartState::left`]
/// must be at least the block's number of instructions.
pub(crate) unsafe fn run<X: Xlen>(first: *const StepSlot<X>, state: &mut HartState<X>, env: &mut Env<'_, '_>) -> Flow {
    // SAFETY: the caller promises what the handler needs.
    unsafe {
        state.left -= i64::from((*first.sub(1)).header.count);
        debug_assert!(state.left >= 0, "{} instructions are left", state.left);
        state.block = first;
        ((*first).step.run)(first, state, env)
    }
}

/// Defines the functions of instructions from their bodies; the caller names the step, the state and the environment.
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

/// Evaluates to the operands of a step.
macro_rules! operands {
    ($step:expr) => {
        // SAFETY: the argument of a handler is an existing slot that holds a step.
        unsafe { &(*$step).step }
    };
}

/// Continues with the next step; `next!(2, ...)` with the one after it.
macro_rules! next {
    ($step:expr, $s:expr, $e:expr) => {
        next!(1, $step, $s, $e)
    };
    ($count:literal, $step:expr, $s:expr, $e:expr) => {{
        // SAFETY: a step that continues is not the last of its block, and one that stands for two instructions is not
        // among the last two.
        unsafe {
            let next = $step.add($count);
            return ((*next).step.run)(next, $s, $e);
        }
    }};
}

/// Continues with another function for the same step.
macro_rules! otherwise {
    ($handler:expr, $step:expr, $s:expr, $e:expr) => {{
        // SAFETY: the step is the same, and `$handler` requires the same of it as this function.
        return unsafe { $handler($step, $s, $e) };
    }};
}

/// Continues with the block that begins at `$first` if enough instructions are left; otherwise ends the run at `$step`
/// with `$flow`.
macro_rules! enter {
    ($first:expr, $flow:expr, $step:expr, $s:expr, $e:expr) => {{
        let first: *const crate::exec::StepSlot<X> = $first;
        // SAFETY: links and recent targets are first steps of existing blocks, which follow a header; the block that
        // stands for unknown ones needs more instructions than are ever left.
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

/// Continues with the block that is linked after the last step, `$step`.
macro_rules! follow {
    ($flow:expr, $step:expr, $s:expr, $e:expr) => {{
        // SAFETY: the links follow the last step of a block.
        let first = unsafe { (*$step.add(1)).links[$flow] };
        enter!(first, $flow, $step, $s, $e)
    }};
}

use {enter, follow, handlers, next, operands, otherwise};
