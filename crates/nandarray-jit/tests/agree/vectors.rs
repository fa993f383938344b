//! Random instructions of V and VarVE, and the beginning of a program for them: a type, filled registers, streams.

use crate::generate::{BASE, Chance, FRAME, WINDOW, line};
use nandarray_hart::isa::{self, Extensions, Format, Instruction, TABLE};

/// Types that a program sets: mostly one register a group, of any element.
const VTYPES: [u32; 12] = [0, 8, 16, 24, 0, 8, 16, 24, 1, 17, 2, 7];

/// Sets a legal type and a length.
fn sets(chance: &mut Chance) -> u32 {
    0xc000_7057 | VTYPES[chance.below(VTYPES.len())] << 20 | (chance.below(32) as u32) << 15
}

/// Fills the vector registers from memory, reads values into variable-width vectors, describes streams, sets a type.
pub(crate) fn opening(chance: &mut Chance, bits: u32) -> Vec<u32> {
    let mut lines = vec![
        "vsetivli x0, 16, e8, m1, ta, ma".to_owned(),
        "addi x24, x0, 200".to_owned(),
        format!("addi x25, x0, {}", 128 + 1 + chance.below(20)),
        format!("frstream 0, x{BASE}, x24, x25"),
        format!("frstream 2, x{WINDOW}, x24, x25"),
        "addi x25, x0, 192".to_owned(),
        format!("addi x23, x{BASE}, -2000"),
        "fwstream 1, x23, x24, x25".to_owned(),
        format!("fwstream 3, x{BASE}, x24, x25"),
    ];
    for register in 0..32 {
        lines.push(format!("addi x25, x{BASE}, {}", chance.below(4000) as i32 - 2000));
        lines.push(format!("vle8.v v{register}, (x25)"));
        if register % 2 == 0 {
            lines.push(format!("vunpack v{register}, {}, x0", 2 * chance.below(2)));
        }
    }
    let set = sets(chance);
    lines.iter().map(|text| line(text, bits)).chain([set]).collect()
}

/// Draws an instruction; often one that sets a type or describes a stream, seldom one that traps.
pub(crate) fn instruction(chance: &mut Chance, bits: u32) -> Instruction {
    const EXTENSIONS: Extensions = Extensions::PROGRAM_VECTOR;
    if chance.one_in(6) {
        return isa::decode32(sets(chance), bits, EXTENSIONS).expect("vsetivli");
    }
    loop {
        let row = &TABLE[chance.below(TABLE.len())];
        if !row.format.vector() || row.format == Format::VectorSet {
            continue;
        }
        let mut word = row.bits | chance.bits() as u32 & !row.mask;
        if row.format.vector_memory() && !chance.one_in(6) {
            word &= !(7 << 29); // one field
        }
        let Some(mut op) = isa::decode32(word, bits, EXTENSIONS) else { continue };
        if op.code != row.code {
            continue;
        }
        if !chance.one_in(12) {
            operands(chance, &mut op);
        }
        op.rd %= FRAME;
        return op;
    }
}

/// Changes operands so that most groups are legal, and accesses are to memory and streams that exist.
fn operands(chance: &mut Chance, op: &mut Instruction) {
    // Streams 0 and 2 are inputs, 1 and 3 outputs; small numbers and addresses are where a program's frame keeps them.
    let (stream, small) = (chance.below(4) as u8, 27 + chance.below(2) as u8);
    let base = if chance.one_in(3) { WINDOW } else { BASE };
    let row = op.row();
    if row.format.vector() {
        // Groups of four registers, each operand its own.
        let first = chance.below(6) as u8;
        let group = |n: u8| 4 * (1 + (first + n) % 6);
        op.rd = group(0);
        match row.format {
            Format::VectorVv | Format::VectorMulV => (op.rs1, op.rs2) = (group(1), group(2)),
            Format::VectorMoveV | Format::VarveCount | Format::VarvePack => op.rs1 = group(1),
            _ => op.rs2 = group(2),
        }
    }
    match row.format {
        Format::VectorUnit | Format::VectorIndexed => op.rs1 = base,
        Format::VectorStrided => (op.rs1, op.rs2) = (base, small),
        Format::VarveOpen => {
            let (reads, fixed) = (row.name.as_bytes()[1] == b'r', row.name.starts_with('f'));
            (op.rd, op.rs1, op.rs2) = (stream & 2 | u8::from(!reads), base, small);
            op.rs3 = if fixed { small } else { base };
        }
        Format::VarveConsume => (op.rs1, op.rs2) = (small, stream & 2),
        Format::VarveEnd => op.rs2 = stream & 2 | u8::from(row.name == "ewstream"),
        Format::VarveUnpack => op.rs2 = stream & 2,
        Format::VarvePack => op.rs2 = stream | 1,
        Format::VarveVunpack => (op.rs1, op.rs2) = (0, stream & 2),
        _ => {}
    }
}
