//! Tests of the instruction table: no encoding matches two rows; decoding what was encoded, and assembling what was
//! disassembled, gives the same instruction.

mod compressed;
mod text;

use super::*;
use proptest::prelude::*;

/// Makes an instruction of a row, with random operands in the ranges of the row's format.
fn with_operands(row: &Row, seed: u64, bits: u32) -> Instruction {
    let word = row.bits | (seed as u32 & !row.mask);
    match decode32(word, bits, Extensions::ALL) {
        Some(op) if op.code == row.code => op,
        // Rounding modes 5 and 6, and shifts beyond 31, are illegal: clear the bits that make them so.
        _ => decode32(word & !(1 << 25 | 7 << 12) | row.bits, bits, Extensions::ALL).expect(row.name),
    }
}

#[test]
fn rows_are_in_the_order_of_their_codes() {
    for (i, row) in TABLE.iter().enumerate() {
        assert_eq!(row.code as usize, i);
        assert_eq!(row.bits & !row.mask, 0, "{}", row.name);
        assert!(row.format == Format::Illegal || row.bits & 3 == 3, "{}", row.name);
    }
}

#[test]
fn rows_exclude_each_other() {
    for (i, a) in TABLE.iter().enumerate() {
        for b in TABLE[i + 1..].iter().filter(|b| b.format != Format::Illegal) {
            let apart = (a.width == Width::Rv32 && b.width == Width::Rv64)
                || (a.width == Width::Rv64 && b.width == Width::Rv32);
            let common = a.mask & b.mask;
            assert!(apart || a.bits & common != b.bits & common, "{} and {}", a.name, b.name);
        }
    }
}

#[test]
fn zero_and_ones_are_illegal() {
    for bits in [32, 64] {
        for word in [0, 0xffff_ffff, 0x0000_ffff] {
            assert_eq!(decode(word, bits, Extensions::ALL).code, Code::Illegal);
        }
    }
}

#[test]
fn an_extension_that_is_off_is_illegal() {
    let mul = assemble("mul a0, a1, a2", 64).unwrap();
    let without = Extensions::ALL.without(Extension::M);
    assert_eq!(decode(encode(&mul), 64, Extensions::ALL).code, Code::Mul);
    assert_eq!(decode(encode(&mul), 64, without).code, Code::Illegal);
    assert_eq!(decode(0x4505, 64, Extensions::ALL).code, Code::Addi);
    assert_eq!(decode(0x4505, 64, Extensions::ALL.without(Extension::C)).code, Code::Illegal);
}

#[test]
fn known_words() {
    for (word, text) in [
        (0x0000_0013, "addi zero, zero, 0"),
        (0xfe01_0113, "addi sp, sp, -32"),
        (0x0080_00ef, "jal ra, . + 8"),
        (0xfe05_1ee3, "bne a0, zero, . - 4"),
        (0x0005_2503, "lw a0, 0(a0)"),
        (0x00b5_3023, "sd a1, 0(a0)"),
        (0x1234_5537, "lui a0, 0x12345"),
        (0x3020_0073, "mret"),
        (0x02b5_0533, "mul a0, a0, a1"),
        (0x0ff0_000f, "fence iorw, iorw"),
        (0x00c5_f553, "fadd.s fa0, fa1, fa2"),
        (0xc005_1553, "fcvt.w.s a0, fa0, rtz"),
        (0x3020_2573, "csrrs a0, medeleg, zero"),
        (0x8850_2573, "csrrs a0, iend5, zero"),
        (0x0000_850b, "streamload.b a0, 1"),
        (0x00a1_a02b, "streamstore.w a0, 3"),
    ] {
        assert_eq!(disassemble(&decode(word, 64, Extensions::ALL)), text, "{word:#010x}");
    }
    for (half, text) in [
        (0x4505, "addi a0, zero, 1"),
        (0x8082, "jalr zero, 0(ra)"),
        (0x852e, "add a0, zero, a1"),
        (0x1141, "addi sp, sp, -16"),
        (0xe406, "sd ra, 8(sp)"),
        (0x60a2, "ld ra, 8(sp)"),
        (0x9002, "ebreak"),
        (0x6105, "addi sp, sp, 32"),
        (0x0505, "addi a0, a0, 1"),
        (0xfd75, "bne a0, zero, . - 4"),
    ] {
        assert_eq!(disassemble(&decode(half, 64, Extensions::ALL)), text, "{half:#06x}");
    }
}

#[test]
fn what_is_wrong_in_a_line_is_said() {
    assert_eq!(assemble("frob a0", 64), Err(AssembleError::Mnemonic("frob".into())));
    assert_eq!(assemble("ld a0, 0(a1)", 32), Err(AssembleError::Mnemonic("ld".into())));
    assert_eq!(assemble("addi a0, a1", 64), Err(AssembleError::Count(2)));
    assert_eq!(assemble("addi a0, a1, 2048", 64), Err(AssembleError::Operand("2048".into())));
    assert_eq!(assemble("addi a0, a32, 1", 64), Err(AssembleError::Operand("a32".into())));
    assert_eq!(assemble("slli a0, a0, 32", 32), Err(AssembleError::Operand("32".into())));
    assert_eq!(assemble("jal ra, . + 3", 32), Err(AssembleError::Operand(". + 3".into())));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn bits_and_text_come_back(index in 0..TABLE.len() - 1, seed: u64, wide: bool) {
        let row = &TABLE[index];
        let bits = if wide { 64 } else { 32 };
        prop_assume!(row.width.has(bits));
        let op = with_operands(row, seed, bits);
        prop_assert_eq!(op.code, row.code);
        prop_assert_eq!(decode32(encode(&op), bits, Extensions::ALL), Some(op));
        let text = disassemble(&op);
        let again = assemble(&text, bits);
        if text.starts_with('.') {
            prop_assert_eq!(again.unwrap().imm as u32, encode(&op));
        } else {
            prop_assert_eq!(again, Ok(op), "{}", text);
        }
    }

    #[test]
    fn any_bits_decode(word: u32, wide: bool) {
        let bits = if wide { 64 } else { 32 };
        let op = decode(word, bits, Extensions::ALL);
        prop_assert_eq!(op.len, length(word as u16));
        let _ = disassemble(&op);
        if op.len == 2 && op.code != Code::Illegal {
            // The 32-bit instruction that a 16-bit instruction abbreviates exists.
            let long = Instruction { len: 4, ..op };
            prop_assert_eq!(decode32(encode(&long), bits, Extensions::ALL), Some(Instruction { rm: long.rm, ..long }));
        }
    }
}
