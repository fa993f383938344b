//! The instruction set as one table, with a row of name, format, match and mask for every 32-bit instruction that a
//! hart supports.
//!
//! Decoder, encoder, disassembler, assembler and the random tests all read these rows; nothing else in the crate
//! contains encodings, except `compressed.rs` for the 16-bit ones. Sources: the RISC-V unprivileged and privileged
//! specifications (2024), and for the stream instructions Table 7.2 of the ASSASIN dissertation, which gives their
//! fields; the choice of the four custom opcodes, and `peekistream` and `streamwait`, are additions of this project.
//! The effects of instructions are in `exec`.

use super::vector_rows::with_vector_rows;
use super::{Extension::*, Format, Row, Width::*};

macro_rules! table {
    ($($code:ident $name:literal $ext:ident $width:ident $format:ident $mask:literal $match:literal;)*) => {
        /// The operation of an instruction, without its operands: the index of its row in [`TABLE`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        #[expect(missing_docs, reason = "each is the instruction of its name")]
        pub enum Code { $($code,)* }

        /// The instruction table: a row for every [`Code`], in the same order.
        pub static TABLE: &[Row] = &[$(
            Row {
                code: Code::$code,
                name: $name,
                extension: $ext,
                width: $width,
                format: Format::$format,
                mask: $mask,
                bits: $match,
            },
        )*];
    };
}

with_vector_rows! { table
    // RV32I and RV64I
    Lui "lui" I Both Upper 0x7f 0x37;
    Auipc "auipc" I Both Upper 0x7f 0x17;
    Jal "jal" I Both Jump 0x7f 0x6f;
    Jalr "jalr" I Both JumpRegister 0x707f 0x67;
    Beq "beq" I Both Branch 0x707f 0x63;
    Bne "bne" I Both Branch 0x707f 0x1063;
    Blt "blt" I Both Branch 0x707f 0x4063;
    Bge "bge" I Both Branch 0x707f 0x5063;
    Bltu "bltu" I Both Branch 0x707f 0x6063;
    Bgeu "bgeu" I Both Branch 0x707f 0x7063;
    Lb "lb" I Both Load 0x707f 0x3;
    Lh "lh" I Both Load 0x707f 0x1003;
    Lw "lw" I Both Load 0x707f 0x2003;
    Ld "ld" I Rv64 Load 0x707f 0x3003;
    Lbu "lbu" I Both Load 0x707f 0x4003;
    Lhu "lhu" I Both Load 0x707f 0x5003;
    Lwu "lwu" I Rv64 Load 0x707f 0x6003;
    Sb "sb" I Both Store 0x707f 0x23;
    Sh "sh" I Both Store 0x707f 0x1023;
    Sw "sw" I Both Store 0x707f 0x2023;
    Sd "sd" I Rv64 Store 0x707f 0x3023;
    Addi "addi" I Both Immediate 0x707f 0x13;
    Slti "slti" I Both Immediate 0x707f 0x2013;
    Sltiu "sltiu" I Both Immediate 0x707f 0x3013;
    Xori "xori" I Both Immediate 0x707f 0x4013;
    Ori "ori" I Both Immediate 0x707f 0x6013;
    Andi "andi" I Both Immediate 0x707f 0x7013;
    Slli "slli" I Both Shift 0xfc00707f 0x1013;
    Srli "srli" I Both Shift 0xfc00707f 0x5013;
    Srai "srai" I Both Shift 0xfc00707f 0x40005013;
    Add "add" I Both Register 0xfe00707f 0x33;
    Sub "sub" I Both Register 0xfe00707f 0x40000033;
    Sll "sll" I Both Register 0xfe00707f 0x1033;
    Slt "slt" I Both Register 0xfe00707f 0x2033;
    Sltu "sltu" I Both Register 0xfe00707f 0x3033;
    Xor "xor" I Both Register 0xfe00707f 0x4033;
    Srl "srl" I Both Register 0xfe00707f 0x5033;
    Sra "sra" I Both Register 0xfe00707f 0x40005033;
    Or "or" I Both Register 0xfe00707f 0x6033;
    And "and" I Both Register 0xfe00707f 0x7033;
    Addiw "addiw" I Rv64 Immediate 0x707f 0x1b;
    Slliw "slliw" I Rv64 ShiftWord 0xfe00707f 0x101b;
    Srliw "srliw" I Rv64 ShiftWord 0xfe00707f 0x501b;
    Sraiw "sraiw" I Rv64 ShiftWord 0xfe00707f 0x4000501b;
    Addw "addw" I Rv64 Register 0xfe00707f 0x3b;
    Subw "subw" I Rv64 Register 0xfe00707f 0x4000003b;
    Sllw "sllw" I Rv64 Register 0xfe00707f 0x103b;
    Srlw "srlw" I Rv64 Register 0xfe00707f 0x503b;
    Sraw "sraw" I Rv64 Register 0xfe00707f 0x4000503b;
    Fence "fence" I Both Fence 0x707f 0xf;
    FenceI "fence.i" Zifencei Both Bare 0x707f 0x100f;
    Ecall "ecall" I Both Bare 0xffffffff 0x73;
    Ebreak "ebreak" I Both Bare 0xffffffff 0x100073;
    // M
    Mul "mul" M Both Register 0xfe00707f 0x2000033;
    Mulh "mulh" M Both Register 0xfe00707f 0x2001033;
    Mulhsu "mulhsu" M Both Register 0xfe00707f 0x2002033;
    Mulhu "mulhu" M Both Register 0xfe00707f 0x2003033;
    Div "div" M Both Register 0xfe00707f 0x2004033;
    Divu "divu" M Both Register 0xfe00707f 0x2005033;
    Rem "rem" M Both Register 0xfe00707f 0x2006033;
    Remu "remu" M Both Register 0xfe00707f 0x2007033;
    Mulw "mulw" M Rv64 Register 0xfe00707f 0x200003b;
    Divw "divw" M Rv64 Register 0xfe00707f 0x200403b;
    Divuw "divuw" M Rv64 Register 0xfe00707f 0x200503b;
    Remw "remw" M Rv64 Register 0xfe00707f 0x200603b;
    Remuw "remuw" M Rv64 Register 0xfe00707f 0x200703b;
    // A; the bits aq and rl are kept in the immediate
    LrW "lr.w" A Both LoadReserved 0xf9f0707f 0x1000202f;
    ScW "sc.w" A Both Atomic 0xf800707f 0x1800202f;
    AmoswapW "amoswap.w" A Both Atomic 0xf800707f 0x800202f;
    AmoaddW "amoadd.w" A Both Atomic 0xf800707f 0x202f;
    AmoxorW "amoxor.w" A Both Atomic 0xf800707f 0x2000202f;
    AmoandW "amoand.w" A Both Atomic 0xf800707f 0x6000202f;
    AmoorW "amoor.w" A Both Atomic 0xf800707f 0x4000202f;
    AmominW "amomin.w" A Both Atomic 0xf800707f 0x8000202f;
    AmomaxW "amomax.w" A Both Atomic 0xf800707f 0xa000202f;
    AmominuW "amominu.w" A Both Atomic 0xf800707f 0xc000202f;
    AmomaxuW "amomaxu.w" A Both Atomic 0xf800707f 0xe000202f;
    LrD "lr.d" A Rv64 LoadReserved 0xf9f0707f 0x1000302f;
    ScD "sc.d" A Rv64 Atomic 0xf800707f 0x1800302f;
    AmoswapD "amoswap.d" A Rv64 Atomic 0xf800707f 0x800302f;
    AmoaddD "amoadd.d" A Rv64 Atomic 0xf800707f 0x302f;
    AmoxorD "amoxor.d" A Rv64 Atomic 0xf800707f 0x2000302f;
    AmoandD "amoand.d" A Rv64 Atomic 0xf800707f 0x6000302f;
    AmoorD "amoor.d" A Rv64 Atomic 0xf800707f 0x4000302f;
    AmominD "amomin.d" A Rv64 Atomic 0xf800707f 0x8000302f;
    AmomaxD "amomax.d" A Rv64 Atomic 0xf800707f 0xa000302f;
    AmominuD "amominu.d" A Rv64 Atomic 0xf800707f 0xc000302f;
    AmomaxuD "amomaxu.d" A Rv64 Atomic 0xf800707f 0xe000302f;
    // Zicsr
    Csrrw "csrrw" Zicsr Both Csr 0x707f 0x1073;
    Csrrs "csrrs" Zicsr Both Csr 0x707f 0x2073;
    Csrrc "csrrc" Zicsr Both Csr 0x707f 0x3073;
    Csrrwi "csrrwi" Zicsr Both CsrImmediate 0x707f 0x5073;
    Csrrsi "csrrsi" Zicsr Both CsrImmediate 0x707f 0x6073;
    Csrrci "csrrci" Zicsr Both CsrImmediate 0x707f 0x7073;
    // privileged
    Mret "mret" Privileged Both Bare 0xffffffff 0x30200073;
    Sret "sret" Privileged Both Bare 0xffffffff 0x10200073;
    Wfi "wfi" Privileged Both Bare 0xffffffff 0x10500073;
    SfenceVma "sfence.vma" Privileged Both FenceVma 0xfe007fff 0x12000073;
    // F
    Flw "flw" F Both FloatLoad 0x707f 0x2007;
    Fsw "fsw" F Both FloatStore 0x707f 0x2027;
    FmaddS "fmadd.s" F Both FloatFused 0x600007f 0x43;
    FmsubS "fmsub.s" F Both FloatFused 0x600007f 0x47;
    FnmsubS "fnmsub.s" F Both FloatFused 0x600007f 0x4b;
    FnmaddS "fnmadd.s" F Both FloatFused 0x600007f 0x4f;
    FaddS "fadd.s" F Both FloatRounded 0xfe00007f 0x53;
    FsubS "fsub.s" F Both FloatRounded 0xfe00007f 0x8000053;
    FmulS "fmul.s" F Both FloatRounded 0xfe00007f 0x10000053;
    FdivS "fdiv.s" F Both FloatRounded 0xfe00007f 0x18000053;
    FsqrtS "fsqrt.s" F Both FloatUnaryRounded 0xfff0007f 0x58000053;
    FsgnjS "fsgnj.s" F Both FloatRegister 0xfe00707f 0x20000053;
    FsgnjnS "fsgnjn.s" F Both FloatRegister 0xfe00707f 0x20001053;
    FsgnjxS "fsgnjx.s" F Both FloatRegister 0xfe00707f 0x20002053;
    FminS "fmin.s" F Both FloatRegister 0xfe00707f 0x28000053;
    FmaxS "fmax.s" F Both FloatRegister 0xfe00707f 0x28001053;
    FcvtWS "fcvt.w.s" F Both FloatToIntRounded 0xfff0007f 0xc0000053;
    FcvtWuS "fcvt.wu.s" F Both FloatToIntRounded 0xfff0007f 0xc0100053;
    FcvtLS "fcvt.l.s" F Rv64 FloatToIntRounded 0xfff0007f 0xc0200053;
    FcvtLuS "fcvt.lu.s" F Rv64 FloatToIntRounded 0xfff0007f 0xc0300053;
    FmvXW "fmv.x.w" F Both FloatToInt 0xfff0707f 0xe0000053;
    FeqS "feq.s" F Both FloatCompare 0xfe00707f 0xa0002053;
    FltS "flt.s" F Both FloatCompare 0xfe00707f 0xa0001053;
    FleS "fle.s" F Both FloatCompare 0xfe00707f 0xa0000053;
    FclassS "fclass.s" F Both FloatToInt 0xfff0707f 0xe0001053;
    FcvtSW "fcvt.s.w" F Both IntToFloatRounded 0xfff0007f 0xd0000053;
    FcvtSWu "fcvt.s.wu" F Both IntToFloatRounded 0xfff0007f 0xd0100053;
    FcvtSL "fcvt.s.l" F Rv64 IntToFloatRounded 0xfff0007f 0xd0200053;
    FcvtSLu "fcvt.s.lu" F Rv64 IntToFloatRounded 0xfff0007f 0xd0300053;
    FmvWX "fmv.w.x" F Both IntToFloat 0xfff0707f 0xf0000053;
    // D
    Fld "fld" D Both FloatLoad 0x707f 0x3007;
    Fsd "fsd" D Both FloatStore 0x707f 0x3027;
    FmaddD "fmadd.d" D Both FloatFused 0x600007f 0x2000043;
    FmsubD "fmsub.d" D Both FloatFused 0x600007f 0x2000047;
    FnmsubD "fnmsub.d" D Both FloatFused 0x600007f 0x200004b;
    FnmaddD "fnmadd.d" D Both FloatFused 0x600007f 0x200004f;
    FaddD "fadd.d" D Both FloatRounded 0xfe00007f 0x2000053;
    FsubD "fsub.d" D Both FloatRounded 0xfe00007f 0xa000053;
    FmulD "fmul.d" D Both FloatRounded 0xfe00007f 0x12000053;
    FdivD "fdiv.d" D Both FloatRounded 0xfe00007f 0x1a000053;
    FsqrtD "fsqrt.d" D Both FloatUnaryRounded 0xfff0007f 0x5a000053;
    FsgnjD "fsgnj.d" D Both FloatRegister 0xfe00707f 0x22000053;
    FsgnjnD "fsgnjn.d" D Both FloatRegister 0xfe00707f 0x22001053;
    FsgnjxD "fsgnjx.d" D Both FloatRegister 0xfe00707f 0x22002053;
    FminD "fmin.d" D Both FloatRegister 0xfe00707f 0x2a000053;
    FmaxD "fmax.d" D Both FloatRegister 0xfe00707f 0x2a001053;
    FcvtSD "fcvt.s.d" D Both FloatUnaryRounded 0xfff0007f 0x40100053;
    FcvtDS "fcvt.d.s" D Both FloatUnaryRounded 0xfff0007f 0x42000053;
    FeqD "feq.d" D Both FloatCompare 0xfe00707f 0xa2002053;
    FltD "flt.d" D Both FloatCompare 0xfe00707f 0xa2001053;
    FleD "fle.d" D Both FloatCompare 0xfe00707f 0xa2000053;
    FclassD "fclass.d" D Both FloatToInt 0xfff0707f 0xe2001053;
    FcvtWD "fcvt.w.d" D Both FloatToIntRounded 0xfff0007f 0xc2000053;
    FcvtWuD "fcvt.wu.d" D Both FloatToIntRounded 0xfff0007f 0xc2100053;
    FcvtLD "fcvt.l.d" D Rv64 FloatToIntRounded 0xfff0007f 0xc2200053;
    FcvtLuD "fcvt.lu.d" D Rv64 FloatToIntRounded 0xfff0007f 0xc2300053;
    FmvXD "fmv.x.d" D Rv64 FloatToInt 0xfff0707f 0xe2000053;
    FcvtDW "fcvt.d.w" D Both IntToFloatRounded 0xfff0007f 0xd2000053;
    FcvtDWu "fcvt.d.wu" D Both IntToFloatRounded 0xfff0007f 0xd2100053;
    FcvtDL "fcvt.d.l" D Rv64 IntToFloatRounded 0xfff0007f 0xd2200053;
    FcvtDLu "fcvt.d.lu" D Rv64 IntToFloatRounded 0xfff0007f 0xd2300053;
    FmvDX "fmv.d.x" D Rv64 IntToFloat 0xfff0707f 0xf2000053;
    // Zba
    Sh1add "sh1add" Zba Both Register 0xfe00707f 0x20002033;
    Sh2add "sh2add" Zba Both Register 0xfe00707f 0x20004033;
    Sh3add "sh3add" Zba Both Register 0xfe00707f 0x20006033;
    AddUw "add.uw" Zba Rv64 Register 0xfe00707f 0x800003b;
    Sh1addUw "sh1add.uw" Zba Rv64 Register 0xfe00707f 0x2000203b;
    Sh2addUw "sh2add.uw" Zba Rv64 Register 0xfe00707f 0x2000403b;
    Sh3addUw "sh3add.uw" Zba Rv64 Register 0xfe00707f 0x2000603b;
    SlliUw "slli.uw" Zba Rv64 Shift 0xfc00707f 0x800101b;
    // Zbb
    Andn "andn" Zbb Both Register 0xfe00707f 0x40007033;
    Orn "orn" Zbb Both Register 0xfe00707f 0x40006033;
    Xnor "xnor" Zbb Both Register 0xfe00707f 0x40004033;
    Clz "clz" Zbb Both Unary 0xfff0707f 0x60001013;
    Ctz "ctz" Zbb Both Unary 0xfff0707f 0x60101013;
    Cpop "cpop" Zbb Both Unary 0xfff0707f 0x60201013;
    SextB "sext.b" Zbb Both Unary 0xfff0707f 0x60401013;
    SextH "sext.h" Zbb Both Unary 0xfff0707f 0x60501013;
    ZextH32 "zext.h" Zbb Rv32 Unary 0xfff0707f 0x8004033;
    ZextH64 "zext.h" Zbb Rv64 Unary 0xfff0707f 0x800403b;
    Min "min" Zbb Both Register 0xfe00707f 0xa004033;
    Minu "minu" Zbb Both Register 0xfe00707f 0xa005033;
    Max "max" Zbb Both Register 0xfe00707f 0xa006033;
    Maxu "maxu" Zbb Both Register 0xfe00707f 0xa007033;
    Rol "rol" Zbb Both Register 0xfe00707f 0x60001033;
    Ror "ror" Zbb Both Register 0xfe00707f 0x60005033;
    Rori "rori" Zbb Both Shift 0xfc00707f 0x60005013;
    OrcB "orc.b" Zbb Both Unary 0xfff0707f 0x28705013;
    Rev8In32 "rev8" Zbb Rv32 Unary 0xfff0707f 0x69805013;
    Rev8In64 "rev8" Zbb Rv64 Unary 0xfff0707f 0x6b805013;
    Clzw "clzw" Zbb Rv64 Unary 0xfff0707f 0x6000101b;
    Ctzw "ctzw" Zbb Rv64 Unary 0xfff0707f 0x6010101b;
    Cpopw "cpopw" Zbb Rv64 Unary 0xfff0707f 0x6020101b;
    Rolw "rolw" Zbb Rv64 Register 0xfe00707f 0x6000103b;
    Rorw "rorw" Zbb Rv64 Register 0xfe00707f 0x6000503b;
    Roriw "roriw" Zbb Rv64 ShiftWord 0xfe00707f 0x6000501b;
    // Zbs
    Bclr "bclr" Zbs Both Register 0xfe00707f 0x48001033;
    Bclri "bclri" Zbs Both Shift 0xfc00707f 0x48001013;
    Bext "bext" Zbs Both Register 0xfe00707f 0x48005033;
    Bexti "bexti" Zbs Both Shift 0xfc00707f 0x48005013;
    Binv "binv" Zbs Both Register 0xfe00707f 0x68001033;
    Binvi "binvi" Zbs Both Shift 0xfc00707f 0x68001013;
    Bset "bset" Zbs Both Register 0xfe00707f 0x28001033;
    Bseti "bseti" Zbs Both Shift 0xfc00707f 0x28001013;
    // Streams: the field rs1 is the stream's number; unused bits are ignored by the decoder, and encoded as zero
    StreamLoadB "streamload.b" Stream Both StreamLoad 0x707f 0xb;
    StreamLoadH "streamload.h" Stream Both StreamLoad 0x707f 0x100b;
    StreamLoadW "streamload.w" Stream Both StreamLoad 0x707f 0x200b;
    StreamLoadD "streamload.d" Stream Rv64 StreamLoad 0x707f 0x300b;
    StreamLoadBu "streamload.bu" Stream Both StreamLoad 0x707f 0x400b;
    StreamLoadHu "streamload.hu" Stream Both StreamLoad 0x707f 0x500b;
    StreamLoadWu "streamload.wu" Stream Rv64 StreamLoad 0x707f 0x600b;
    StreamStoreB "streamstore.b" Stream Both StreamStore 0x707f 0x2b;
    StreamStoreH "streamstore.h" Stream Both StreamStore 0x707f 0x102b;
    StreamStoreW "streamstore.w" Stream Both StreamStore 0x707f 0x202b;
    StreamStoreD "streamstore.d" Stream Rv64 StreamStore 0x707f 0x302b;
    ReadIStreamB "readistream.b" Stream Both StreamRead 0xfe00707f 0x5b;
    ReadIStreamH "readistream.h" Stream Both StreamRead 0xfe00707f 0x105b;
    ReadIStreamW "readistream.w" Stream Both StreamRead 0xfe00707f 0x205b;
    ReadIStreamD "readistream.d" Stream Rv64 StreamRead 0xfe00707f 0x305b;
    ReadIStreamBu "readistream.bu" Stream Both StreamRead 0xfe00707f 0x405b;
    ReadIStreamHu "readistream.hu" Stream Both StreamRead 0xfe00707f 0x505b;
    ReadIStreamWu "readistream.wu" Stream Rv64 StreamRead 0xfe00707f 0x605b;
    PeekIStreamB "peekistream.b" Stream Both StreamRead 0xfe00707f 0x200005b;
    PeekIStreamH "peekistream.h" Stream Both StreamRead 0xfe00707f 0x200105b;
    PeekIStreamW "peekistream.w" Stream Both StreamRead 0xfe00707f 0x200205b;
    PeekIStreamD "peekistream.d" Stream Rv64 StreamRead 0xfe00707f 0x200305b;
    PeekIStreamBu "peekistream.bu" Stream Both StreamRead 0xfe00707f 0x200405b;
    PeekIStreamHu "peekistream.hu" Stream Both StreamRead 0xfe00707f 0x200505b;
    PeekIStreamWu "peekistream.wu" Stream Rv64 StreamRead 0xfe00707f 0x200605b;
    StreamWait "streamwait" Stream Both StreamRead 0xfe00707f 0x705b;
    ReadOStreamB "readostream.b" Stream Both StreamRead 0x707f 0x7b;
    ReadOStreamH "readostream.h" Stream Both StreamRead 0x707f 0x107b;
    ReadOStreamW "readostream.w" Stream Both StreamRead 0x707f 0x207b;
    ReadOStreamD "readostream.d" Stream Rv64 StreamRead 0x707f 0x307b;
    ReadOStreamBu "readostream.bu" Stream Both StreamRead 0x707f 0x407b;
    ReadOStreamHu "readostream.hu" Stream Both StreamRead 0x707f 0x507b;
    ReadOStreamWu "readostream.wu" Stream Rv64 StreamRead 0x707f 0x607b;
}
