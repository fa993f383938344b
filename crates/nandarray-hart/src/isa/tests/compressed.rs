//! The 16-bit instructions against the tables of the specification: every one of the 65,536 words, for both widths.
//!
//! A row has the bits of the instruction as the specification writes them, from the highest on, and the instruction
//! that it abbreviates. `imm[5:4|9]` names the bits of the immediate that stand there; a register with `'` has three
//! bits.

use super::*;

/// Encoding, meaning, width (0 for both) and operands that are not zero.
type CompressedSpec = (&'static str, &'static str, u32, &'static str);

/// Sections 26.2 to 26.8 of the unprivileged specification; a row comes before the more general ones that it excludes.
const SPEC: &[CompressedSpec] = &[
    ("000 uimm[5:4|9:6|2|3] rd' 00", "addi rd 2 uimm", 0, "uimm"),
    ("001 uimm[5:3] rs1' uimm[7:6] rd' 00", "fld rd rs1 uimm", 0, ""),
    ("010 uimm[5:3] rs1' uimm[2|6] rd' 00", "lw rd rs1 uimm", 0, ""),
    ("011 uimm[5:3] rs1' uimm[2|6] rd' 00", "flw rd rs1 uimm", 32, ""),
    ("011 uimm[5:3] rs1' uimm[7:6] rd' 00", "ld rd rs1 uimm", 64, ""),
    ("101 uimm[5:3] rs1' uimm[7:6] rs2' 00", "fsd rs2 rs1 uimm", 0, ""),
    ("110 uimm[5:3] rs1' uimm[2|6] rs2' 00", "sw rs2 rs1 uimm", 0, ""),
    ("111 uimm[5:3] rs1' uimm[2|6] rs2' 00", "fsw rs2 rs1 uimm", 32, ""),
    ("111 uimm[5:3] rs1' uimm[7:6] rs2' 00", "sd rs2 rs1 uimm", 64, ""),
    ("000 imm[5] rd imm[4:0] 01", "addi rd rd imm", 0, ""),
    ("001 imm[11|4|9:8|10|6|7|3:1|5] 01", "jal 1 imm", 32, ""),
    ("001 imm[5] rd imm[4:0] 01", "addiw rd rd imm", 64, "rd"),
    ("010 imm[5] rd imm[4:0] 01", "addi rd 0 imm", 0, ""),
    ("011 imm[9] 00010 imm[4|6|8:7|5] 01", "addi 2 2 imm", 0, "imm"),
    ("011 imm[17] rd imm[16:12] 01", "lui rd imm", 0, "imm sp"),
    ("100 uimm[5] 00 rd' uimm[4:0] 01", "srli rd rd uimm", 0, "shift"),
    ("100 uimm[5] 01 rd' uimm[4:0] 01", "srai rd rd uimm", 0, "shift"),
    ("100 imm[5] 10 rd' imm[4:0] 01", "andi rd rd imm", 0, ""),
    ("100 0 11 rd' 00 rs2' 01", "sub rd rd rs2", 0, ""),
    ("100 0 11 rd' 01 rs2' 01", "xor rd rd rs2", 0, ""),
    ("100 0 11 rd' 10 rs2' 01", "or rd rd rs2", 0, ""),
    ("100 0 11 rd' 11 rs2' 01", "and rd rd rs2", 0, ""),
    ("100 1 11 rd' 00 rs2' 01", "subw rd rd rs2", 64, ""),
    ("100 1 11 rd' 01 rs2' 01", "addw rd rd rs2", 64, ""),
    ("101 imm[11|4|9:8|10|6|7|3:1|5] 01", "jal 0 imm", 0, ""),
    ("110 imm[8|4:3] rs1' imm[7:6|2:1|5] 01", "beq rs1 0 imm", 0, ""),
    ("111 imm[8|4:3] rs1' imm[7:6|2:1|5] 01", "bne rs1 0 imm", 0, ""),
    ("000 uimm[5] rd uimm[4:0] 10", "slli rd rd uimm", 0, "shift"),
    ("001 uimm[5] rd uimm[4:3|8:6] 10", "fld rd 2 uimm", 0, ""),
    ("010 uimm[5] rd uimm[4:2|7:6] 10", "lw rd 2 uimm", 0, "rd"),
    ("011 uimm[5] rd uimm[4:2|7:6] 10", "flw rd 2 uimm", 32, ""),
    ("011 uimm[5] rd uimm[4:3|8:6] 10", "ld rd 2 uimm", 64, "rd"),
    ("100 0 rs1 00000 10", "jalr 0 rs1", 0, "rs1"),
    ("100 0 rd rs2 10", "add rd 0 rs2", 0, "rs2"),
    ("100 1 00000 00000 10", "ebreak", 0, ""),
    ("100 1 rs1 00000 10", "jalr 1 rs1", 0, "rs1"),
    ("100 1 rd rs2 10", "add rd rd rs2", 0, "rs2"),
    ("101 uimm[5:3|8:6] rs2 10", "fsd rs2 2 uimm", 0, ""),
    ("110 uimm[5:2|7:6] rs2 10", "sw rs2 2 uimm", 0, ""),
    ("111 uimm[5:2|7:6] rs2 10", "fsw rs2 2 uimm", 32, ""),
    ("111 uimm[5:3|8:6] rs2 10", "sd rs2 2 uimm", 64, ""),
];

/// The fields of a 16-bit word, by name.
#[derive(Clone, Copy, Default)]
struct Fields {
    rd: u8,
    rs1: u8,
    rs2: u8,
    imm: i32,
}

/// Reads the fields of a word by a row's encoding; `None` if the word is none of the row's.
fn fields(encoding: &str, half: u16) -> Option<Fields> {
    let mut left = 16;
    let mut next = |count: u32| {
        left -= count;
        half >> left & ((1 << count) - 1)
    };
    let (mut found, mut top, mut signed) = (Fields::default(), 0, false);
    for token in encoding.split(' ') {
        if let Some((name, places)) = token.trim_end_matches(']').split_once('[') {
            signed = name == "imm";
            for part in places.split('|') {
                let (high, low) = part.split_once(':').unwrap_or((part, part));
                let (high, low): (u32, u32) = (high.parse().unwrap(), low.parse().unwrap());
                found.imm |= i32::from(next(high - low + 1)) << low;
                top = top.max(high);
            }
            continue;
        }
        let (name, short) = token.strip_suffix('\'').map_or((token, false), |name| (name, true));
        let register = match name {
            "rd" => &mut found.rd,
            "rs1" => &mut found.rs1,
            "rs2" => &mut found.rs2,
            bits => {
                if next(bits.len() as u32) != u16::from_str_radix(bits, 2).unwrap() {
                    return None;
                }
                continue;
            }
        };
        *register = if short { 8 + next(3) as u8 } else { next(5) as u8 };
    }
    assert_eq!(left, 0, "{encoding} has 16 bits");
    if signed && found.imm >> top & 1 == 1 {
        found.imm -= 2 << top;
    }
    Some(found)
}

/// Returns the instruction that a row's word abbreviates; `None` if its operands are not allowed.
fn meaning(spec: &CompressedSpec, code: Code, found: Fields, bits: u32) -> Option<Instruction> {
    let (_, means, _, wanted) = spec;
    let allowed = wanted.split(' ').all(|what| match what {
        "uimm" | "imm" => found.imm != 0,
        "rd" => found.rd != 0,
        "rs1" => found.rs1 != 0,
        "rs2" => found.rs2 != 0,
        // The stack pointer has an instruction of its own there.
        "sp" => found.rd != 2,
        "shift" => bits == 64 || found.imm < 32,
        _ => true,
    });
    let named = |text: &str| match text {
        "rd" => found.rd,
        "rs1" => found.rs1,
        "rs2" => found.rs2,
        number => number.parse().unwrap(),
    };
    let mut op = Instruction { code, rd: 0, rs1: 0, rs2: 0, rs3: 0, rm: 0, len: 2, imm: 0 };
    let operands: Vec<&str> = means.split(' ').skip(1).collect();
    match (TABLE[code as usize].format, operands.as_slice()) {
        (Format::Store | Format::FloatStore, &[value, base, _]) => (op.rs2, op.rs1) = (named(value), named(base)),
        (Format::Branch, &[a, b, _]) => (op.rs1, op.rs2) = (named(a), named(b)),
        (Format::Register, &[d, a, b]) => (op.rd, op.rs1, op.rs2) = (named(d), named(a), named(b)),
        (Format::Jump | Format::Upper, &[d, _]) => op.rd = named(d),
        (_, &[d, a, ..]) => (op.rd, op.rs1) = (named(d), named(a)),
        _ => {}
    }
    op.imm = if means.ends_with("imm") { found.imm } else { 0 };
    allowed.then_some(op)
}

#[test]
fn every_word_of_16_bits_is_what_the_specification_says() {
    let code = |spec: &CompressedSpec| {
        let name = spec.1.split(' ').next().unwrap();
        TABLE.iter().find(|row| row.name == name).expect(name).code
    };
    let codes: Vec<Code> = SPEC.iter().map(code).collect();
    for bits in [32, 64] {
        let (mut legal, mut used) = (0, vec![0; SPEC.len()]);
        for half in (0..=u16::MAX).filter(|half| half & 3 != 3) {
            let rows = SPEC.iter().zip(&codes).enumerate().filter(|(_, (spec, _))| spec.2 == 0 || spec.2 == bits);
            let means = rows.filter_map(|(n, (spec, code))| {
                fields(spec.0, half).and_then(|found| meaning(spec, *code, found, bits)).map(|op| (n, op))
            });
            let means: Vec<(usize, Instruction)> = means.collect();
            let ours = decode16(half, bits, Extensions::ALL);
            // `addi` of the stack pointer and `ebreak` are also words of a more general row.
            assert_eq!(ours, means.first().map(|(_, op)| *op), "RV{bits}: {half:#06x}");
            if let Some((n, op)) = means.first() {
                (legal, used[*n]) = (legal + 1, used[*n] + 1);
                let long = Instruction { len: 4, ..*op };
                assert_eq!(decode32(encode(&long), bits, Extensions::ALL), Some(long), "RV{bits}: {half:#06x}");
            }
        }
        let unused = used.iter().zip(SPEC).filter(|(used, spec)| **used == 0 && (spec.2 == 0 || spec.2 == bits));
        assert_eq!(unused.count(), 0, "{used:?}");
        assert!(legal > 40_000, "{legal} words are instructions");
    }
}

#[test]
fn words_of_floating_point_need_its_extensions() {
    for half in (0..=u16::MAX).filter(|half| half & 3 != 3) {
        for bits in [32, 64] {
            let all = decode16(half, bits, Extensions::ALL);
            for lacks in [Extension::F, Extension::D] {
                let found = decode16(half, bits, Extensions::ALL.without(lacks));
                let needs = all.is_some_and(|op| op.row().extension == lacks);
                assert_eq!(found, all.filter(|_| !needs), "RV{bits} without {lacks:?}: {half:#06x}");
            }
        }
    }
}
