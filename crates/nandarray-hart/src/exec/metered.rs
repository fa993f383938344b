//! Steps that notify a meter, and then execute the instruction by its own function.
//!
//! They replace the plain functions only in harts whose meter observes the instruction, and are the only functions here
//! that are compiled for each type of meter. The meter is at the place where [`Env::open`] put it, without its type: a
//! hart selects steps for its own meter only, and executes only steps that it selected.

use super::{
    Env, Exit, Flow, Handler, HartState, NEXT, Step, StepSlot, TAKEN, atomic, control, enter, follow, mem, next,
    operands, otherwise, stream, varve,
};
use crate::isa::{Code, Extension, Instruction};
use crate::meter::{DataAccess, Meter, MeterAnswer, StreamAccess};
use crate::work::VectorWork;
use crate::xlen::Xlen;

/// The block number of a block that is not in the cache.
pub(crate) const PART: u32 = u32::MAX;

/// Evaluates to the meter of the hart that executes the step.
macro_rules! meter {
    ($e:expr) => {
        // SAFETY: this function was selected for the meter of the hart that executes it, and that hart lent its meter
        // for the run.
        unsafe { $e.meter::<M>() }
    };
}

/// Returns the index, within the block, of the instruction that a step executes.
#[inline(always)]
fn index<X: Xlen, M: Meter>(step: *const StepSlot<X>, s: &HartState<X>) -> u32 {
    ((step as usize - s.block as usize) / size_of::<StepSlot<X>>()) as u32 - u32::from(M::BLOCKS)
}

/// Notifies the meter that a block is entered, before its first instruction.
#[allow(clippy::missing_safety_doc, reason = "see `Handler`")]
pub(super) unsafe fn enter<X: Xlen, M: Meter>(
    step: *const StepSlot<X>,
    s: &mut HartState<X>,
    e: &mut Env<'_, '_>,
) -> Flow {
    // SAFETY: this is the first step of its block.
    let unit = unsafe { super::header(step) }.unit;
    if !meter!(e).quick_enter(unit) {
        otherwise!(enter_at_length::<X, M>, step, s, e)
    }
    next!(step, s, e)
}

/// Notifies the meter that a block is entered, if [`Meter::quick_enter`] refused to count it.
#[inline(never)]
unsafe fn enter_at_length<X: Xlen, M: Meter>(
    step: *const StepSlot<X>,
    s: &mut HartState<X>,
    e: &mut Env<'_, '_>,
) -> Flow {
    // SAFETY: this is the first step of its block.
    let unit = unsafe { super::header(step) }.unit;
    if unit != PART {
        meter!(e).enter(unit);
    }
    next!(step, s, e)
}

/// Defines functions with the names of a module's plain ones, each of which first notifies the meter by `$notify` and
/// stops if it answers with a pause.
macro_rules! observed {
    ($module:ident: $($name:ident ($step:ident, $o:ident, $s:ident, $e:ident) $notify:expr;)*) => {$(
        #[allow(unused_variables, reason = "not every position needs the operands")]
        #[inline(never)]
        pub(super) unsafe fn $name<X: Xlen, M: Meter>(
            $step: *const StepSlot<X>,
            $s: &mut HartState<X>,
            $e: &mut Env<'_, '_>,
        ) -> Flow {
            let $o = operands!($step);
            if $notify == MeterAnswer::Pause {
                return $s.leave($step, Exit::Paused);
            }
            otherwise!($module::$name, $step, $s, $e)
        }
    )*};
}

/// Defines observed accesses to memory, and the function that selects among them by instruction.
macro_rules! accesses {
    ($chooses:ident $module:ident $address:ident: $($kind:ident $n:literal { $($code:ident $name:ident)* })*) => {
        mod $chooses {
            use super::*;
            /// The functions for accesses that [`Meter::quick_access`] refused to count.
            mod at_length {
                use super::*;
                $(observed! { $module: $(
                    $name (step, o, s, e)
                        meter!(e).access(index::<X, M>(step, s), DataAccess::$kind, $address(o, s), $n);
                )* })*
            }
            $($(
                unsafe fn $name<X: Xlen, M: Meter>(
                    step: *const StepSlot<X>,
                    s: &mut HartState<X>,
                    e: &mut Env<'_, '_>,
                ) -> Flow {
                    let address = $address(operands!(step), s);
                    if !meter!(e).quick_access(index::<X, M>(step, s), DataAccess::$kind, address, $n) {
                        otherwise!(at_length::$name::<X, M>, step, s, e)
                    }
                    otherwise!($module::$name, step, s, e)
                }
            )*)*
            pub(super) fn choose<X: Xlen, M: Meter>(code: Code) -> Option<Handler<X>> {
                Some(match code {
                    $($(Code::$code => $name::<X, M>,)*)*
                    _ => return None,
                })
            }
        }
    };
}

fn offset<X: Xlen>(o: &Step<X>, s: &HartState<X>) -> u64 {
    mem::address(o, s)
}

fn plain<X: Xlen>(o: &Step<X>, s: &HartState<X>) -> u64 {
    X::unsigned(s.x[o.rs1 as usize])
}

accesses! {
    memory mem offset:
    Load 1 { Lb lb Lbu lbu }
    Load 2 { Lh lh Lhu lhu }
    Load 4 { Lw lw Lwu lwu Flw flw }
    Load 8 { Ld ld Fld fld }
    Store 1 { Sb sb }
    Store 2 { Sh sh }
    Store 4 { Sw sw Fsw fsw }
    Store 8 { Sd sd Fsd fsd }
}

accesses! {
    atomics atomic plain:
    Load 4 { LrW lr_w }
    Load 8 { LrD lr_d }
    Atomic 4 {
        ScW sc_w AmoswapW amoswap_w AmoaddW amoadd_w AmoxorW amoxor_w AmoandW amoand_w AmoorW amoor_w AmominW amomin_w
        AmomaxW amomax_w AmominuW amominu_w AmomaxuW amomaxu_w
    }
    Atomic 8 {
        ScD sc_d AmoswapD amoswap_d AmoaddD amoadd_d AmoxorD amoxor_d AmoandD amoand_d AmoorD amoor_d AmominD amomin_d
        AmomaxD amomax_d AmominuD amominu_d AmomaxuD amomaxu_d
    }
}

/// Defines observed branches and jumps, and the function that selects among them by instruction.
macro_rules! branches {
    ($($code:ident $name:ident)*) => {
        mod branch {
            use super::*;
            use control::Condition;
            /// The functions for branches that [`Meter::quick_branch`] refused to count.
            mod at_length {
                use super::*;
                observed! { control: $(
                    $name (step, o, s, e) {
                        meter!(e).branch(control::$name::holds(o, s));
                        MeterAnswer::Proceed
                    };
                )* }
            }
            $(
                unsafe fn $name<X: Xlen, M: Meter>(
                    step: *const StepSlot<X>,
                    s: &mut HartState<X>,
                    e: &mut Env<'_, '_>,
                ) -> Flow {
                    if control::$name::holds(operands!(step), s) {
                        if !meter!(e).quick_branch(true) {
                            otherwise!(at_length::$name::<X, M>, step, s, e)
                        }
                        follow!(TAKEN, step, s, e)
                    }
                    if !meter!(e).quick_branch(false) {
                        otherwise!(at_length::$name::<X, M>, step, s, e)
                    }
                    follow!(NEXT, step, s, e)
                }
            )*
            observed! { control: jalr (step, o, s, e) {
                meter!(e).jump(target(o, s));
                MeterAnswer::Proceed
            }; jump_register (step, o, s, e) {
                meter!(e).jump(target(o, s));
                MeterAnswer::Proceed
            }; }
            pub(super) fn choose<X: Xlen, M: Meter>(op: &Instruction) -> Option<Handler<X>> {
                Some(match op.code {
                    $(Code::$code => $name::<X, M>,)*
                    Code::Jalr if op.rd == 0 => jump_register::<X, M>,
                    Code::Jalr => jalr::<X, M>,
                    _ => return None,
                })
            }
        }
    };
}

fn target<X: Xlen>(o: &Step<X>, s: &HartState<X>) -> u64 {
    mem::address(o, s) & !1
}

branches! { Beq beq Bne bne Blt blt Bge bge Bltu bltu Bgeu bgeu }

/// Defines observed accesses to streams, and the function that selects among them by instruction.
macro_rules! streams {
    ($($kind:ident $position:ident $n:literal { $($code:ident $name:ident)* })*) => {
        mod streamed {
            use super::*;
            $(observed! { stream: $(
                $name (step, o, s, e) tell::<X, M>(step, s, e, StreamAccess::$kind, $position::<X>, $n);
            )* })*
            observed! { stream:
                wait (step, o, s, e) {
                    let bytes = X::unsigned(s.x[o.rs2 as usize]);
                    tell::<X, M>(step, s, e, StreamAccess::Wait, head_in::<X>, bytes)
                };
                read_register (step, o, s, e) tell::<X, M>(step, s, e, StreamAccess::Register, register::<X>, 0);
            }
            pub(super) fn choose<X: Xlen, M: Meter>(op: &Instruction) -> Option<Handler<X>> {
                Some(match op.code {
                    $($(Code::$code => $name::<X, M>,)*)*
                    Code::StreamWait => wait::<X, M>,
                    _ if op.reads_stream_register() => read_register::<X, M>,
                    _ => return None,
                })
            }
        }
    };
}

streams! {
    Load head_in 1 { StreamLoadB load_b StreamLoadBu load_bu }
    Load head_in 2 { StreamLoadH load_h StreamLoadHu load_hu }
    Load head_in 4 { StreamLoadW load_w StreamLoadWu load_wu }
    Load head_in 8 { StreamLoadD load_d }
    Store head_out 1 { StreamStoreB store_b }
    Store head_out 2 { StreamStoreH store_h }
    Store head_out 4 { StreamStoreW store_w }
    Store head_out 8 { StreamStoreD store_d }
    LookIn before_end 1 { ReadIStreamB input_b ReadIStreamBu input_bu }
    LookIn before_end 2 { ReadIStreamH input_h ReadIStreamHu input_hu }
    LookIn before_end 4 { ReadIStreamW input_w ReadIStreamWu input_wu }
    LookIn before_end 8 { ReadIStreamD input_d }
    LookIn ahead 1 { PeekIStreamB peek_b PeekIStreamBu peek_bu }
    LookIn ahead 2 { PeekIStreamH peek_h PeekIStreamHu peek_hu }
    LookIn ahead 4 { PeekIStreamW peek_w PeekIStreamWu peek_wu }
    LookIn ahead 8 { PeekIStreamD peek_d }
    LookOut behind_head 1 { ReadOStreamB output_b ReadOStreamBu output_bu }
    LookOut behind_head 2 { ReadOStreamH output_h ReadOStreamHu output_hu }
    LookOut behind_head 4 { ReadOStreamW output_w ReadOStreamWu output_wu }
    LookOut behind_head 8 { ReadOStreamD output_d }
}

/// Notifies the meter of an access at a position of a stream. There is no notification if the stream does not exist,
/// since the access then traps.
fn tell<X: Xlen, M: Meter>(
    step: *const StepSlot<X>,
    s: &HartState<X>,
    e: &mut Env<'_, '_>,
    kind: StreamAccess,
    position: impl Fn(&Step<X>, &HartState<X>, &mut Env<'_, '_>) -> Option<u64>,
    bytes: u64,
) -> MeterAnswer {
    let o = operands!(step);
    let stream = if kind == StreamAccess::Register { o.imm as u8 & 31 } else { o.rs1 };
    match position(o, s, e) {
        Some(position) => meter!(e).stream(index::<X, M>(step, s), kind, stream, position, bytes),
        None => MeterAnswer::Proceed,
    }
}

fn head_in<X: Xlen>(o: &Step<X>, _s: &HartState<X>, e: &mut Env<'_, '_>) -> Option<u64> {
    Some(e.streams().inputs.get(o.rs1 as usize)?.head())
}

fn head_out<X: Xlen>(o: &Step<X>, _s: &HartState<X>, e: &mut Env<'_, '_>) -> Option<u64> {
    Some(e.streams().outputs.get(o.rs1 as usize)?.head())
}

/// Returns the position of a read that is counted back from an input's end. While the end is not known, this is the
/// position of the head, where the read waits.
fn before_end<X: Xlen>(o: &Step<X>, s: &HartState<X>, e: &mut Env<'_, '_>) -> Option<u64> {
    let input = e.streams().inputs.get(o.rs1 as usize)?;
    let back = X::unsigned(s.x[o.rs2 as usize]);
    Some(input.end().map_or(input.head(), |end| end.wrapping_sub(back)))
}

fn ahead<X: Xlen>(o: &Step<X>, s: &HartState<X>, e: &mut Env<'_, '_>) -> Option<u64> {
    let head = head_in(o, s, e)?;
    Some(head.wrapping_add_signed(X::signed(s.x[o.rs2 as usize])))
}

fn behind_head<X: Xlen>(o: &Step<X>, s: &HartState<X>, e: &mut Env<'_, '_>) -> Option<u64> {
    let head = head_out(o, s, e)?;
    Some(head.wrapping_sub(X::unsigned(s.x[o.rs2 as usize])))
}

/// Returns the position of the head of the stream to which a stream register belongs; `None` if there is no such
/// stream.
fn register<X: Xlen>(o: &Step<X>, _s: &HartState<X>, e: &mut Env<'_, '_>) -> Option<u64> {
    let (number, stream) = ((o.imm - stream::REGISTERS.start) >> 5, (o.imm & 31) as usize);
    let streams = e.streams();
    if matches!(number, 2 | 3) {
        Some(streams.outputs.get(stream)?.head())
    } else {
        Some(streams.inputs.get(stream)?.head())
    }
}

/// Vector instructions that the meter observes, and the function that selects among them by group.
mod vectors {
    use super::*;
    use crate::exec::vector::{self, VectorGroup};
    observed! { vector:
        set_type (step, o, s, e) report::<X, M>(step, s, e, VectorWork::default());
        access (step, o, s, e) report::<X, M>(step, s, e, vector::work(step, s));
        to_register (step, o, s, e) report::<X, M>(step, s, e, vector::work(step, s));
        permute_float (step, o, s, e) report::<X, M>(step, s, e, vector::work(step, s));
        float (step, o, s, e) report::<X, M>(step, s, e, vector::work(step, s));
        mask (step, o, s, e) report::<X, M>(step, s, e, vector::work(step, s));
        permute (step, o, s, e) report::<X, M>(step, s, e, vector::work(step, s));
        reduce (step, o, s, e) report::<X, M>(step, s, e, vector::work(step, s));
        fixed (step, o, s, e) report::<X, M>(step, s, e, vector::work(step, s));
        widen (step, o, s, e) report::<X, M>(step, s, e, vector::work(step, s));
        integer (step, o, s, e) report::<X, M>(step, s, e, vector::work(step, s));
    }
    observed! { varve:
        varve (step, o, s, e) {
            let work = varve::work(o, s, &mut e.spans);
            report::<X, M>(step, s, e, work)
        };
    }
    fn report<X: Xlen, M: Meter>(
        step: *const StepSlot<X>,
        s: &HartState<X>,
        e: &mut Env<'_, '_>,
        work: VectorWork,
    ) -> MeterAnswer {
        meter!(e).vector(index::<X, M>(step, s), &work)
    }
    pub(super) fn choose<X: Xlen, M: Meter>(op: &Instruction) -> Option<Handler<X>> {
        if op.row().extension < Extension::Zve32x {
            return None;
        }
        Some(match vector::group(op) {
            VectorGroup::SetType => set_type::<X, M>,
            VectorGroup::Access => access::<X, M>,
            VectorGroup::ToRegister => to_register::<X, M>,
            VectorGroup::PermuteFloat => permute_float::<X, M>,
            VectorGroup::Float => float::<X, M>,
            VectorGroup::Mask => mask::<X, M>,
            VectorGroup::Permute => permute::<X, M>,
            VectorGroup::Reduce => reduce::<X, M>,
            VectorGroup::Fixed => fixed::<X, M>,
            VectorGroup::Widen => widen::<X, M>,
            VectorGroup::Integer => integer::<X, M>,
            VectorGroup::Varve => varve::<X, M>,
        })
    }
}

/// Returns the function that notifies the meter of an instruction before executing it; `None` if the meter does not
/// observe it.
/// `accesses`: whether it observes accesses to memory at present.
pub(super) fn handler<X: Xlen, M: Meter>(op: &Instruction, accesses: bool) -> Option<Handler<X>> {
    let memory = || memory::choose::<X, M>(op.code).or_else(|| atomics::choose::<X, M>(op.code));
    let wanted = |wants: bool, choose: &dyn Fn() -> Option<Handler<X>>| if wants { choose() } else { None };
    wanted(M::ACCESSES && accesses, &memory)
        .or_else(|| wanted(M::BRANCHES, &|| branch::choose::<X, M>(op)))
        .or_else(|| wanted(M::STREAMS, &|| streamed::choose::<X, M>(op)))
        .or_else(|| wanted(M::VECTORS, &|| vectors::choose::<X, M>(op)))
}
