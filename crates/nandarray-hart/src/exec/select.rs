//! From decoded instructions to steps: selects the function that executes each instruction.

use super::{
    BlockHeader, Handler, SINK, Step, StepSlot, Steps, UnitsOff, atomic, bits, control, convert, float, fuse, int, mem,
    metered, nowhere, stream, vector,
};
use crate::block::BasicBlock;
use crate::float::{Double, Single};
use crate::isa::{Code, Extension, Format, Instruction};
use crate::meter::Meter;
use crate::xlen::Xlen;

/// Builds the steps of a block, which has number `unit` in the cache: one for each instruction, and a final one if the
/// last does not jump. Instructions of units that are `off` are illegal. For a meter that observes blocks, a step
/// before all others notifies it; instructions that it observes get functions that notify it. `accesses`: whether it
/// observes accesses to memory at present.
pub(crate) fn steps<X: Xlen, M: Meter>(block: &BasicBlock, unit: u32, off: UnitsOff, accesses: bool) -> Steps<X> {
    let mut steps: Vec<Step<X>> = Vec::with_capacity(block.ops.len() + 1);
    let mut offset = 0;
    for op in &block.ops {
        let mut step = step::<X>(op, offset);
        let extension = op.row().extension;
        let is_vector = extension >= Extension::Zve32x;
        if off.float && (op.row().format.float() || extension == Extension::Zve32f) || off.vector && is_vector {
            step.run = control::system;
        } else if let Some(run) = metered::handler::<X, M>(op, accesses) {
            step.run = run;
        }
        steps.push(step);
        offset += u16::from(op.len);
    }
    if !block.ops.last().is_some_and(Instruction::ends_block) {
        steps.push(Step { run: control::end, rd: SINK, rs1: 0, rs2: 0, rs3: 0, imm: 0 });
    }
    debug_assert!(usize::from(offset) <= 4 * block.ops.len(), "{} instructions have {offset} bytes", block.ops.len());
    fuse::fuse(&block.ops, &mut steps, |op| observes::<M>(op, accesses));
    let header = BlockHeader { pc: block.pc, count: block.ops.len() as u32, unit };
    let mut slots = Vec::with_capacity(steps.len() + 3);
    slots.push(StepSlot { header });
    if M::BLOCKS {
        slots.push(StepSlot { step: Step { run: metered::enter::<X, M>, rd: SINK, rs1: 0, rs2: 0, rs3: 0, imm: 0 } });
    }
    slots.extend(steps.into_iter().map(|step| StepSlot { step }));
    slots.push(StepSlot { links: [nowhere(); 2] });
    Steps::new(slots, M::BLOCKS)
}

/// Whether a meter observes an instruction, so that it must not be fused with another.
fn observes<M: Meter>(op: &Instruction, accesses: bool) -> bool {
    match op.row().format {
        Format::Branch => M::BRANCHES,
        Format::Load | Format::Store => M::ACCESSES && accesses,
        _ => false,
    }
}

fn step<X: Xlen>(op: &Instruction, offset: u16) -> Step<X> {
    let format = op.row().format;
    let writes_other = matches!(
        format,
        Format::FloatLoad
            | Format::FloatFused
            | Format::FloatRounded
            | Format::FloatUnaryRounded
            | Format::FloatRegister
            | Format::IntToFloatRounded
            | Format::IntToFloat
    ) || format.vector()
        && !matches!(
            format,
            Format::VectorToX
                | Format::VectorSet
                | Format::VectorSetImmediate
                | Format::VarveEnd
                | Format::VarveNumber
                | Format::VarveCount
                | Format::VarvePack
        );
    let rd = if op.rd == 0 && !writes_other { SINK } else { op.rd };
    let mut step = Step { run: handler::<X>(op), rd, rs1: op.rs1, rs2: op.rs2, rs3: op.rs3, imm: op.imm };
    if format.rounded() {
        step.imm = i32::from(op.rm);
    }
    if format.vector() || op.code == Code::Vsetvl {
        vector::pack(op, &mut step);
    }
    let next = offset + u16::from(op.len);
    match op.code {
        Code::Auipc => [step.rs1, step.rs2] = offset.to_le_bytes(),
        Code::Jal => step.imm = i32::from(next),
        Code::Jalr => [step.rs2, step.rs3] = next.to_le_bytes(),
        _ => {}
    }
    step
}

/// Returns the function that executes an instruction.
fn handler<X: Xlen>(op: &Instruction) -> Handler<X> {
    use Code::*;
    match op.code {
        Lui => int::lui,
        Auipc => int::auipc,
        Jal if op.rd == 0 => control::jump,
        Jal => control::jal,
        Jalr if op.rd == 0 => control::jump_register,
        Jalr => control::jalr,
        Beq => control::beq,
        Bne => control::bne,
        Blt => control::blt,
        Bge => control::bge,
        Bltu => control::bltu,
        Bgeu => control::bgeu,
        Lb => mem::lb,
        Lh => mem::lh,
        Lw => mem::lw,
        Ld => mem::ld,
        Lbu => mem::lbu,
        Lhu => mem::lhu,
        Lwu => mem::lwu,
        Sb => mem::sb,
        Sh => mem::sh,
        Sw => mem::sw,
        Sd => mem::sd,
        Addi if op.rd == 0 => int::nop,
        Addi if op.imm == 0 => int::mv,
        Addi => int::addi,
        Slti => int::slti,
        Sltiu => int::sltiu,
        Xori => int::xori,
        Ori => int::ori,
        Andi => int::andi,
        Slli => int::slli,
        Srli => int::srli,
        Srai => int::srai,
        Add => int::add,
        Sub => int::sub,
        Sll => int::sll,
        Slt => int::slt,
        Sltu => int::sltu,
        Xor => int::xor,
        Srl => int::srl,
        Sra => int::sra,
        Or => int::or,
        And => int::and,
        Addiw => int::addiw,
        Slliw => int::slliw,
        Srliw => int::srliw,
        Sraiw => int::sraiw,
        Addw => int::addw,
        Subw => int::subw,
        Sllw => int::sllw,
        Srlw => int::srlw,
        Sraw => int::sraw,
        Fence => int::nop,
        Csrrs | Csrrc | Csrrsi | Csrrci if op.reads_stream_register() => stream::read_register,
        FenceI | Ecall | Ebreak | Csrrw | Csrrs | Csrrc | Csrrwi | Csrrsi | Csrrci | Mret | Sret | Wfi | SfenceVma => {
            control::system
        }
        Illegal => control::illegal,
        Mul => int::mul,
        Mulh => int::mulh,
        Mulhsu => int::mulhsu,
        Mulhu => int::mulhu,
        Div => int::div,
        Divu => int::divu,
        Rem => int::rem,
        Remu => int::remu,
        Mulw => int::mulw,
        Divw => int::divw,
        Divuw => int::divuw,
        Remw => int::remw,
        Remuw => int::remuw,
        LrW => atomic::lr_w,
        ScW => atomic::sc_w,
        AmoswapW => atomic::amoswap_w,
        AmoaddW => atomic::amoadd_w,
        AmoxorW => atomic::amoxor_w,
        AmoandW => atomic::amoand_w,
        AmoorW => atomic::amoor_w,
        AmominW => atomic::amomin_w,
        AmomaxW => atomic::amomax_w,
        AmominuW => atomic::amominu_w,
        AmomaxuW => atomic::amomaxu_w,
        LrD => atomic::lr_d,
        ScD => atomic::sc_d,
        AmoswapD => atomic::amoswap_d,
        AmoaddD => atomic::amoadd_d,
        AmoxorD => atomic::amoxor_d,
        AmoandD => atomic::amoand_d,
        AmoorD => atomic::amoor_d,
        AmominD => atomic::amomin_d,
        AmomaxD => atomic::amomax_d,
        AmominuD => atomic::amominu_d,
        AmomaxuD => atomic::amomaxu_d,
        Flw => mem::flw,
        Fsw => mem::fsw,
        Fld => mem::fld,
        Fsd => mem::fsd,
        FmaddS => float::fmadd::<X, Single>,
        FmsubS => float::fmsub::<X, Single>,
        FnmsubS => float::fnmsub::<X, Single>,
        FnmaddS => float::fnmadd::<X, Single>,
        FaddS => float::add::<X, Single>,
        FsubS => float::sub::<X, Single>,
        FmulS => float::mul::<X, Single>,
        FdivS => float::div::<X, Single>,
        FsqrtS => float::sqrt::<X, Single>,
        FsgnjS => float::sgnj::<X, Single>,
        FsgnjnS => float::sgnjn::<X, Single>,
        FsgnjxS => float::sgnjx::<X, Single>,
        FminS => float::min::<X, Single>,
        FmaxS => float::max::<X, Single>,
        FcvtWS => convert::to_w::<X, Single>,
        FcvtWuS => convert::to_wu::<X, Single>,
        FcvtLS => convert::to_l::<X, Single>,
        FcvtLuS => convert::to_lu::<X, Single>,
        FmvXW => convert::move_x_w,
        FeqS => float::feq::<X, Single>,
        FltS => float::flt::<X, Single>,
        FleS => float::fle::<X, Single>,
        FclassS => convert::classify::<X, Single>,
        FcvtSW => convert::from_w::<X, Single>,
        FcvtSWu => convert::from_wu::<X, Single>,
        FcvtSL => convert::from_l::<X, Single>,
        FcvtSLu => convert::from_lu::<X, Single>,
        FmvWX => convert::move_w_x,
        FmaddD => float::fmadd::<X, Double>,
        FmsubD => float::fmsub::<X, Double>,
        FnmsubD => float::fnmsub::<X, Double>,
        FnmaddD => float::fnmadd::<X, Double>,
        FaddD => float::add::<X, Double>,
        FsubD => float::sub::<X, Double>,
        FmulD => float::mul::<X, Double>,
        FdivD => float::div::<X, Double>,
        FsqrtD => float::sqrt::<X, Double>,
        FsgnjD => float::sgnj::<X, Double>,
        FsgnjnD => float::sgnjn::<X, Double>,
        FsgnjxD => float::sgnjx::<X, Double>,
        FminD => float::min::<X, Double>,
        FmaxD => float::max::<X, Double>,
        FcvtSD => convert::single_from_double,
        FcvtDS => convert::double_from_single,
        FeqD => float::feq::<X, Double>,
        FltD => float::flt::<X, Double>,
        FleD => float::fle::<X, Double>,
        FclassD => convert::classify::<X, Double>,
        FcvtWD => convert::to_w::<X, Double>,
        FcvtWuD => convert::to_wu::<X, Double>,
        FcvtLD => convert::to_l::<X, Double>,
        FcvtLuD => convert::to_lu::<X, Double>,
        FmvXD => convert::move_x_d,
        FcvtDW => convert::from_w::<X, Double>,
        FcvtDWu => convert::from_wu::<X, Double>,
        FcvtDL => convert::from_l::<X, Double>,
        FcvtDLu => convert::from_lu::<X, Double>,
        FmvDX => convert::move_d_x,
        Sh1add => bits::sh1add,
        Sh2add => bits::sh2add,
        Sh3add => bits::sh3add,
        AddUw => bits::add_uw,
        Sh1addUw => bits::sh1add_uw,
        Sh2addUw => bits::sh2add_uw,
        Sh3addUw => bits::sh3add_uw,
        SlliUw => bits::slli_uw,
        Andn => bits::andn,
        Orn => bits::orn,
        Xnor => bits::xnor,
        Clz => bits::clz,
        Ctz => bits::ctz,
        Cpop => bits::cpop,
        SextB => bits::sext_b,
        SextH => bits::sext_h,
        ZextH32 | ZextH64 => bits::zext_h,
        Min => bits::min,
        Minu => bits::minu,
        Max => bits::max,
        Maxu => bits::maxu,
        Rol => bits::rol,
        Ror => bits::ror,
        Rori => bits::rori,
        OrcB => bits::orc_b,
        Rev8In32 | Rev8In64 => bits::rev8,
        Clzw => bits::clzw,
        Ctzw => bits::ctzw,
        Cpopw => bits::cpopw,
        Rolw => bits::rolw,
        Rorw => bits::rorw,
        Roriw => bits::roriw,
        Bclr => bits::bclr,
        Bclri => bits::bclri,
        Bext => bits::bext,
        Bexti => bits::bexti,
        Binv => bits::binv,
        Binvi => bits::binvi,
        Bset => bits::bset,
        Bseti => bits::bseti,
        StreamLoadB => stream::load_b,
        StreamLoadH => stream::load_h,
        StreamLoadW => stream::load_w,
        StreamLoadD => stream::load_d,
        StreamLoadBu => stream::load_bu,
        StreamLoadHu => stream::load_hu,
        StreamLoadWu => stream::load_wu,
        StreamStoreB => stream::store_b,
        StreamStoreH => stream::store_h,
        StreamStoreW => stream::store_w,
        StreamStoreD => stream::store_d,
        ReadIStreamB => stream::input_b,
        ReadIStreamH => stream::input_h,
        ReadIStreamW => stream::input_w,
        ReadIStreamD => stream::input_d,
        ReadIStreamBu => stream::input_bu,
        ReadIStreamHu => stream::input_hu,
        ReadIStreamWu => stream::input_wu,
        PeekIStreamB => stream::peek_b,
        PeekIStreamH => stream::peek_h,
        PeekIStreamW => stream::peek_w,
        PeekIStreamD => stream::peek_d,
        PeekIStreamBu => stream::peek_bu,
        PeekIStreamHu => stream::peek_hu,
        PeekIStreamWu => stream::peek_wu,
        StreamWait => stream::wait,
        ReadOStreamB => stream::output_b,
        ReadOStreamH => stream::output_h,
        ReadOStreamW => stream::output_w,
        ReadOStreamD => stream::output_d,
        ReadOStreamBu => stream::output_bu,
        ReadOStreamHu => stream::output_hu,
        ReadOStreamWu => stream::output_wu,
        _ => vector::handler::<X>(op),
    }
}
