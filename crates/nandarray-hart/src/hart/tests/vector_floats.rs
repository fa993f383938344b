//! Promise: a vector instruction on floating-point numbers does with each element what the scalar instruction does with
//! a register, in all rounding modes, and raises the flags of all its active elements together.

use super::lanes::PlainVectors;
use super::vectors::{bring, found, random};
use super::*;
use crate::isa::{Format, decode32};

/// Vector instructions, and the scalar ones that do the same: `a` is the element of `vs2`, `b` that of `vs1` or the
/// scalar, `d` that of the destination; `S` is the format, `I` an integer of its width.
const SAME: &[(&str, &[&str])] = &[
    ("vfadd", &["fadd.S d, a, b"]),
    ("vfsub", &["fsub.S d, a, b"]),
    ("vfrsub", &["fsub.S d, b, a"]),
    ("vfmul", &["fmul.S d, a, b"]),
    ("vfdiv", &["fdiv.S d, a, b"]),
    ("vfrdiv", &["fdiv.S d, b, a"]),
    ("vfmin", &["fmin.S d, a, b"]),
    ("vfmax", &["fmax.S d, a, b"]),
    ("vfsgnj", &["fsgnj.S d, a, b"]),
    ("vfsgnjn", &["fsgnjn.S d, a, b"]),
    ("vfsgnjx", &["fsgnjx.S d, a, b"]),
    ("vfmacc", &["fmadd.S d, a, b, d"]),
    ("vfnmacc", &["fnmadd.S d, a, b, d"]),
    ("vfmsac", &["fmsub.S d, a, b, d"]),
    ("vfnmsac", &["fnmsub.S d, a, b, d"]),
    ("vfmadd", &["fmadd.S d, d, b, a"]),
    ("vfnmadd", &["fnmadd.S d, d, b, a"]),
    ("vfmsub", &["fmsub.S d, d, b, a"]),
    ("vfnmsub", &["fnmsub.S d, d, b, a"]),
    ("vfsqrt", &["fsqrt.S d, a"]),
    ("vfclass", &["fclass.S x, a"]),
    ("vmfeq", &["feq.S x, a, b"]),
    ("vmfne", &["feq.S x, a, b", "xori x, x, 1"]),
    ("vmflt", &["flt.S x, a, b"]),
    ("vmfle", &["fle.S x, a, b"]),
    ("vmfgt", &["flt.S x, b, a"]),
    ("vmfge", &["fle.S x, b, a"]),
    ("vfcvt.x.f", &["fcvt.I.S x, a"]),
    ("vfcvt.xu.f", &["fcvt.Iu.S x, a"]),
    ("vfcvt.rtz.x.f", &["fcvt.I.S x, a, rtz"]),
    ("vfcvt.rtz.xu.f", &["fcvt.Iu.S x, a, rtz"]),
    ("vfcvt.f.x", &["fmv.x.M x, a", "fcvt.S.I d, x"]),
    ("vfcvt.f.xu", &["fmv.x.M x, a", "fcvt.S.Iu d, x"]),
];

/// Instructions from single to double precision, whose operands the scalar ones widen first, and back.
const WIDE: &[(&str, &[&str])] = &[
    ("vfwadd", &["fadd.d d, a, b"]),
    ("vfwsub", &["fsub.d d, a, b"]),
    ("vfwmul", &["fmul.d d, a, b"]),
    ("vfwmacc", &["fmadd.d d, a, b, d"]),
    ("vfwnmacc", &["fnmadd.d d, a, b, d"]),
    ("vfwmsac", &["fmsub.d d, a, b, d"]),
    ("vfwnmsac", &["fnmsub.d d, a, b, d"]),
];

/// A hart that executes scalar instructions on the operands of one element.
struct Scalars {
    hart: Hart<Rv64>,
    memory: Memory<'static>,
}

impl Scalars {
    /// Executes lines on the bits of `a`, `b` and `d`, which are of single precision where `narrow` says so; returns
    /// the registers `d` and `x`. Flags accumulate in the hart.
    fn run(&mut self, lines: &[String], operands: [u64; 3], narrow: [bool; 3]) -> (u64, u64) {
        for (n, line) in lines.iter().enumerate() {
            let mut words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
            for word in &mut words[1..] {
                let names = [("a", "f1"), ("b", "f2"), ("d", "f3"), ("x", "x5")];
                *word = names.iter().find(|(name, _)| word == name).map_or(*word, |(_, register)| register);
            }
            let text = format!("{} {}", words[0], words[1..].join(", "));
            let code = encode(&assemble(&text, 64).unwrap_or_else(|e| panic!("{text}: {e}"))).to_le_bytes();
            let at = CODE + 4 * n as u64;
            self.memory.get_mut(at..at + 4).unwrap().copy_from_slice(&code);
        }
        for (register, (bits, narrow)) in operands.into_iter().zip(narrow).enumerate() {
            self.hart.set_f(1 + register, if narrow { bits | 0xffff_ffff << 32 } else { bits });
        }
        self.hart.set_pc(CODE);
        let limits = Limits { instructions: Some(lines.len() as u64), stop: None };
        assert_eq!(self.hart.run(&mut self.memory, &mut Streams::none(), limits), Stop::InstructionLimit);
        (self.hart.f(3), self.hart.x(5))
    }
}

/// Fills registers with floating-point numbers of a width, many of them special.
fn numbers(plain: &mut PlainVectors, bits: u32, chance: &mut fastrand::Rng) {
    let fraction = if bits == 32 { 23 } else { 52 };
    let ones = (1u64 << (bits - 1 - fraction)) - 1;
    for register in 8..32 {
        for i in 0..plain.vlenb * 8 / bits as usize {
            let exponent = match chance.u8(..6) {
                0 => 0,
                1 => ones,
                2 | 3 => ones / 2 + chance.u64(..8) - 4,
                _ => chance.u64(..=ones),
            };
            let low = [0, 1, (1 << fraction) - 1, 1 << (fraction - 1), chance.u64(..1 << fraction)][chance.usize(..5)];
            let sign = u64::from(chance.bool()) << (bits - 1);
            plain.set(register, i, bits, i128::from(sign | exponent << fraction | low));
        }
    }
}

/// Executes a vector instruction on a hart and its scalar ones on each element, and compares registers and flags.
fn case(name: &str, scalar: &[&str], wide: bool, seed: u64) {
    let mut chance = fastrand::Rng::with_seed(seed);
    let has = Extensions::PROGRAM_VECTOR.with_vlen([128, 256][seed as usize % 2]);
    let mut hart = Hart::<Rv64>::new(HartMode::Program, has);
    let (mut plain, _) = random(has.vlen(), &mut chance);
    let sew = if wide { 32 } else { 32 << chance.u32(..2) };
    (plain.sew, plain.lmul) = (sew, chance.i32(0..2));
    let vtype = u64::from(sew.trailing_zeros() - 3) << 3 | plain.lmul as u64;
    plain.vl = chance.usize(..=plain.vlmax());
    plain.vstart = if chance.u8(..4) == 0 { chance.usize(..=plain.vl) } else { 0 };
    numbers(&mut plain, sew, &mut chance);
    let kinds: Vec<&crate::isa::Row> = crate::isa::TABLE
        .iter()
        .filter(|row| row.name.rsplit_once('.').is_some_and(|(base, _)| base == name) && row.format.vector())
        .collect();
    let row = kinds[chance.usize(..kinds.len())];
    let word = row.bits | chance.u32(..) & !row.mask;
    let mut op = decode32(word, 64, Extensions::ALL).expect(row.name);
    op.rd = 8;
    op.rs2 = if row.mask >> 20 & 31 == 0 { 16 } else { op.rs2 };
    op.rs1 = if row.mask >> 15 & 31 == 0 { 24 } else { op.rs1 };
    let frm = chance.u8(..5);
    let (_, mut memory) = program::<Rv64>(&[]);
    memory.get_mut(CODE..CODE + 4).unwrap().copy_from_slice(&encode(&op).to_le_bytes());
    bring(hart.state.vector.as_mut().unwrap(), &plain, vtype);
    let first = plain.get(24, 0, sew) as u64;
    hart.set_f(24, if sew == 32 { first | 0xffff_ffff << 32 } else { first });
    hart.set_fcsr(frm << 5);
    hart.set_pc(CODE);
    let stop = hart.run(&mut memory, &mut Streams::none(), Limits { instructions: Some(1), stop: None });
    let place = format!("seed {seed}: {} with frm {frm}, {plain:?}", crate::isa::disassemble(&op));
    assert_eq!(stop, Stop::InstructionLimit, "{place}");
    let (_, own) = program::<Rv64>(&[]);
    let mut scalars = Scalars { hart: Hart::new(HartMode::Program, Extensions::PROGRAM), memory: own };
    scalars.hart.set_fcsr(frm << 5);
    let wide_source = row.name.contains(".w");
    let mut lines: Vec<String> = Vec::new();
    if wide && !wide_source {
        lines.push("fcvt.d.s a, a".into());
    }
    if wide {
        lines.push("fcvt.d.s b, b".into());
    }
    let (format, integer, moved) = if sew == 32 { ("s", "w", "w") } else { ("d", "l", "d") };
    lines.extend(scalar.iter().map(|l| l.replace('S', format).replace('I', integer).replace('M', moved)));
    let (to, before) = (if wide { 64 } else { sew }, plain.clone());
    for i in plain.vstart..plain.vl {
        if op.rm == 0 && row.mask >> 25 & 1 == 0 && !before.bit(0, i) {
            continue;
        }
        let a = before.get(op.rs2, i, if wide_source { 64 } else { sew }) as u64;
        let vector = matches!(row.format, Format::VectorVv | Format::VectorMulV);
        let b = if vector { before.get(24, i, sew) as u64 } else { first };
        let narrow = [sew == 32 && !wide_source, sew == 32, to == 32];
        let (d, x) = scalars.run(&lines, [a, b, before.get(8, i, to) as u64], narrow);
        let to_integer = lines.last().expect("a line").split([' ', ',']).nth(1) == Some("x");
        if name.starts_with("vmf") {
            let byte = &mut plain.bytes[8 * plain.vlenb + i / 8];
            *byte = *byte & !(1 << (i % 8)) | (x as u8 & 1) << (i % 8);
        } else {
            plain.set(8, i, to, i128::from(if to_integer { x } else { d }));
        }
    }
    plain.vstart = 0;
    assert_eq!(found(&hart, &plain), plain, "{place}");
    assert_eq!(hart.fcsr(), scalars.hart.fcsr(), "{place}");
}

#[test]
fn elements_are_computed_as_registers_are() {
    let rounds = if std::env::var_os("NANDARRAY_DEEP").is_some() { 2_000 } else { 30 };
    for (n, (name, scalar)) in SAME.iter().enumerate() {
        (0..rounds).for_each(|round| case(name, scalar, false, (n as u64) << 32 | round));
    }
    for (n, (name, scalar)) in WIDE.iter().enumerate() {
        (0..rounds).for_each(|round| case(name, scalar, true, (n as u64 + 100) << 32 | round));
    }
}

#[test]
fn sums_and_extremes_are_those_of_the_elements_in_order() {
    let folds = [("vfredosum.vs", "fadd.S"), ("vfredmin.vs", "fmin.S"), ("vfredmax.vs", "fmax.S")];
    for seed in 0..300u64 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let (name, scalar) = folds[chance.usize(..3)];
        let (mut plain, _) = random(256, &mut chance);
        (plain.sew, plain.lmul, plain.vstart) = (32 << chance.u32(..2), 1, 0);
        plain.vl = chance.usize(..=plain.vlmax());
        let sew = plain.sew;
        numbers(&mut plain, sew, &mut chance);
        let masked = if chance.bool() { ", v0.t" } else { "" };
        let (mut hart, mut memory) = program::<Rv64>(&[&format!("{name} v8, v16, v24{masked}")]);
        hart = Hart::with_meter(HartMode::Program, Extensions::PROGRAM_VECTOR.with_vlen(256), *hart.meter());
        bring(hart.state.vector.as_mut().unwrap(), &plain, u64::from(sew.trailing_zeros() - 3) << 3 | 1);
        let frm = chance.u8(..5);
        hart.set_fcsr(frm << 5);
        hart.set_pc(CODE);
        let stop = hart.run(&mut memory, &mut Streams::none(), Limits { instructions: Some(1), stop: None });
        assert_eq!(stop, Stop::InstructionLimit, "seed {seed}");
        let (_, own) = program::<Rv64>(&[]);
        let mut scalars = Scalars { hart: Hart::new(HartMode::Program, Extensions::PROGRAM), memory: own };
        scalars.hart.set_fcsr(frm << 5);
        let lines = [format!("{} d, a, b", scalar.replace('S', if sew == 32 { "s" } else { "d" }))];
        let mut all = plain.get(24, 0, sew) as u64;
        for i in (0..plain.vl).filter(|i| masked.is_empty() || plain.bit(0, *i)) {
            let value = plain.get(16, i, sew) as u64;
            all = scalars.run(&lines, [all, value, 0], [sew == 32; 3]).0;
        }
        if plain.vl > 0 {
            plain.set(8, 0, sew, i128::from(all));
        }
        assert_eq!(found(&hart, &plain), plain, "seed {seed}: {name}{masked}, frm {frm}");
        assert_eq!(hart.fcsr(), scalars.hart.fcsr(), "seed {seed}: {name}{masked}, frm {frm}");
    }
}
