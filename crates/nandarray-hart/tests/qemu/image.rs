//! Builds an ELF file that executes sequences one after the other, each in an area of its own, and writes all areas to
//! its output.
//!
//! An area holds a sequence's initial registers, then its final registers, then its memory. The file is written byte by
//! byte: a header, two program headers, code and data.

use nandarray_hart::isa::{assemble, encode};

use super::generate::Sequence;

const TEXT: u64 = 0x1_0000;
const DATA: u64 = 0x100_0000;
/// Size of an area in bytes.
pub const AREA: usize = 2048;
/// Offset in an area of the final registers.
const AFTER: usize = 512;
/// Offset in an area at which memory begins.
const MEMORY: usize = 1152;
/// Offset in an area to which the base register points; it lies within the memory.
const BASE: usize = 1280;
/// Offset of the floating-point registers among an area's registers, after the integer registers. The places of x0 and
/// of the reserved registers x29 to x31 are not used.
const FLOATS: usize = 232;
/// Offset of the floating-point flags among an area's registers.
const FLAGS: usize = 488;

struct Code {
    bytes: Vec<u8>,
    bits: u32,
}

impl Code {
    fn line(&mut self, line: &str) {
        let op = assemble(line, self.bits).unwrap_or_else(|e| panic!("{line}: {e}"));
        self.bytes.extend_from_slice(&encode(&op).to_le_bytes());
    }

    /// Loads a constant below 2^31 into a register.
    fn constant(&mut self, register: &str, value: u64) {
        let high = (value + 0x800) >> 12;
        self.line(&format!("lui {register}, {high:#x}"));
        self.line(&format!("addi {register}, {register}, {}", value as i64 - (high << 12) as i64));
    }

    fn sequence(&mut self, sequence: &Sequence, area: u64) {
        let (load, store) = if self.bits == 64 { ("ld", "sd") } else { ("lw", "sw") };
        self.constant("x31", area);
        self.line(&format!("lw x30, {FLAGS}(x31)"));
        self.line("csrrw x0, fcsr, x30");
        (0..32).for_each(|f| self.line(&format!("fld f{f}, {}(x31)", FLOATS + 8 * f)));
        (1..29).for_each(|x| self.line(&format!("{load} x{x}, {}(x31)", 8 * x)));
        self.line(&format!("addi x29, x31, {BASE}"));
        for (op, word) in sequence.ops.iter().zip(&sequence.words) {
            self.bytes.extend_from_slice(&word.to_le_bytes()[..usize::from(op.len)]);
        }
        (1..29).for_each(|x| self.line(&format!("{store} x{x}, {}(x31)", AFTER + 8 * x)));
        (0..32).for_each(|f| self.line(&format!("fsd f{f}, {}(x31)", AFTER + FLOATS + 8 * f)));
        self.line("csrrs x30, fcsr, x0");
        self.line(&format!("sw x30, {}(x31)", AFTER + FLAGS));
        if !self.bytes.len().is_multiple_of(4) {
            self.bytes.extend_from_slice(&0x0001u16.to_le_bytes());
        }
    }
}

/// Builds the ELF file for harts with registers of `bits` bits.
pub fn elf(sequences: &[Sequence], bits: u32) -> Vec<u8> {
    let mut code = Code { bytes: Vec::new(), bits };
    let mut data = vec![0; sequences.len() * AREA];
    for (i, (sequence, area)) in sequences.iter().zip(data.chunks_mut(AREA)).enumerate() {
        (1..29).for_each(|x| area[8 * x..8 * x + 8].copy_from_slice(&sequence.x[x].to_le_bytes()));
        for (f, value) in sequence.f.iter().enumerate() {
            area[FLOATS + 8 * f..FLOATS + 8 * f + 8].copy_from_slice(&value.to_le_bytes());
        }
        area[FLAGS] = sequence.fcsr;
        area[MEMORY..MEMORY + sequence.memory.len()].copy_from_slice(&sequence.memory);
        code.sequence(sequence, DATA + (i * AREA) as u64);
    }
    code.constant("a1", DATA);
    code.constant("a2", data.len() as u64);
    for line in ["addi a0, x0, 1", "addi a7, x0, 64", "ecall", "addi a0, x0, 0", "addi a7, x0, 93", "ecall"] {
        code.line(line);
    }
    file(&code.bytes, &data, bits)
}

fn file(text: &[u8], data: &[u8], bits: u32) -> Vec<u8> {
    let wide = bits == 64;
    let (header, entry) = if wide { (64, 56) } else { (52, 32) };
    let text_at = 4096;
    let data_at = (text_at + text.len()).next_multiple_of(4096);
    let mut file = Vec::new();
    let word =
        |file: &mut Vec<u8>, value: u64| file.extend_from_slice(&value.to_le_bytes()[..if wide { 8 } else { 4 }]);
    file.extend_from_slice(&[0x7f, b'E', b'L', b'F', if wide { 2 } else { 1 }, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    file.extend_from_slice(&[2, 0, 243, 0, 1, 0, 0, 0]);
    word(&mut file, TEXT);
    word(&mut file, header);
    word(&mut file, 0);
    // The header's flags (16-bit instructions, double-precision calling convention), then sizes and numbers of headers.
    file.extend_from_slice(&5u32.to_le_bytes());
    for value in [header as u16, entry, 2, 0, 0, 0] {
        file.extend_from_slice(&value.to_le_bytes());
    }
    for (flags, offset, address, length) in [(5u32, text_at, TEXT, text.len()), (6, data_at, DATA, data.len())] {
        file.extend_from_slice(&1u32.to_le_bytes());
        if wide {
            file.extend_from_slice(&flags.to_le_bytes());
        }
        for value in [offset as u64, address, address, length as u64, length as u64] {
            word(&mut file, value);
        }
        if !wide {
            file.extend_from_slice(&flags.to_le_bytes());
        }
        word(&mut file, 4096);
    }
    file.resize(text_at, 0);
    file.extend_from_slice(text);
    file.resize(data_at, 0);
    file.extend_from_slice(data);
    file
}

/// Describes the differences of two areas in words.
pub fn differences(ours: &[u8], theirs: &[u8]) -> String {
    let at = |area: &[u8], offset: usize| u64::from_le_bytes(area[offset..offset + 8].try_into().unwrap());
    let mut lines = Vec::new();
    for offset in (0..AREA).step_by(8).filter(|o| at(ours, *o) != at(theirs, *o)) {
        let name = match offset {
            AFTER.. if offset < AFTER + FLOATS => format!("x{}", (offset - AFTER) / 8),
            _ if (AFTER + FLOATS..AFTER + FLAGS).contains(&offset) => format!("f{}", (offset - AFTER - FLOATS) / 8),
            _ if offset == AFTER + FLAGS => "fcsr".to_owned(),
            _ => format!("byte {}", offset as i64 - BASE as i64),
        };
        let register = (offset - AFTER).min(AFTER);
        let before = at(ours, register);
        lines.push(format!("  {name}: {:#x} {:#x} (before {before:#x})", at(ours, offset), at(theirs, offset)));
    }
    lines.join("\n")
}
