//! The text of vector instructions: names of registers, vector types and masks, and the operands of each format.
//!
//! Segment loads and stores have names of their own (`vlseg3e32.v` for `vle32.v` with three fields), which are derived
//! here from the table's names. Encodings are in the table only.

use super::text::{F, Parsed, X, memory, register, within, wrong};
use super::{Code, Format, Instruction, Row, TABLE};

const V: [&str; 32] = [
    "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17",
    "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31",
];
const SEW: [&str; 4] = ["e8", "e16", "e32", "e64"];
const LMUL: [&str; 8] = ["m1", "m2", "m4", "m8", "", "mf8", "mf4", "mf2"];

/// Formats a vector type as in `vsetvli`: `e32, m1, ta, ma`, or as a number if it is not valid.
fn vtype(bits: i32) -> String {
    let (lmul, sew) = (LMUL[bits as usize & 7], bits as usize >> 3 & 7);
    if bits >> 8 != 0 || sew > 3 || lmul.is_empty() {
        return format!("{bits}");
    }
    let (tail, mask) = (["tu", "ta"][bits as usize >> 6 & 1], ["mu", "ma"][bits as usize >> 7 & 1]);
    format!("{}, {lmul}, {tail}, {mask}", SEW[sew])
}

fn vtype_of(parts: &[&str], most: i64) -> Parsed<i32> {
    match parts {
        [number] => within(number, 0, most),
        [sew, lmul, tail, mask] => {
            let at = |names: &[&str], text: &str| {
                names.iter().position(|name| *name == text).map_or_else(|| wrong(text), |at| Ok(at as i32))
            };
            let (tail, mask) = (at(&["tu", "ta"], tail)?, at(&["mu", "ma"], mask)?);
            Ok(at(&LMUL, lmul)? | at(&SEW, sew)? << 3 | tail << 6 | mask << 7)
        }
        _ => wrong(&parts.join(", ")),
    }
}

/// Formats a vector instruction as text.
pub(super) fn disassemble(op: &Instruction) -> String {
    let row = op.row();
    let (x, f, v) = (|n: u8| X[n as usize & 31], |n: u8| F[n as usize & 31], |n: u8| V[n as usize & 31]);
    let (rd, rs1, rs2, imm) = (op.rd, op.rs1, op.rs2, op.imm);
    let mut operands = match row.format {
        Format::VectorSet => format!("{}, {}, {}", x(rd), x(rs1), vtype(imm)),
        Format::VectorSetImmediate => format!("{}, {rs1}, {}", x(rd), vtype(imm)),
        Format::VectorVv => format!("{}, {}, {}", v(rd), v(rs2), v(rs1)),
        Format::VectorVx => format!("{}, {}, {}", v(rd), v(rs2), x(rs1)),
        Format::VectorVi | Format::VectorVu => format!("{}, {}, {imm}", v(rd), v(rs2)),
        Format::VectorVf => format!("{}, {}, {}", v(rd), v(rs2), f(rs1)),
        Format::VectorMulV => format!("{}, {}, {}", v(rd), v(rs1), v(rs2)),
        Format::VectorMulX => format!("{}, {}, {}", v(rd), x(rs1), v(rs2)),
        Format::VectorMulF => format!("{}, {}, {}", v(rd), f(rs1), v(rs2)),
        Format::VectorUnary => format!("{}, {}", v(rd), v(rs2)),
        Format::VectorMoveV => format!("{}, {}", v(rd), v(rs1)),
        Format::VectorMoveX => format!("{}, {}", v(rd), x(rs1)),
        Format::VectorMoveI => format!("{}, {imm}", v(rd)),
        Format::VectorMoveF => format!("{}, {}", v(rd), f(rs1)),
        Format::VectorToX => format!("{}, {}", x(rd), v(rs2)),
        Format::VectorToF => format!("{}, {}", f(rd), v(rs2)),
        Format::VectorUnit => format!("{}, ({})", v(rd), x(rs1)),
        Format::VectorStrided => format!("{}, ({}), {}", v(rd), x(rs1), x(rs2)),
        Format::VectorIndexed => format!("{}, ({}), {}", v(rd), x(rs1), v(rs2)),
        Format::VarveOpen => format!("{rd}, {}, {}, {}", x(rs1), x(rs2), x(op.rs3)),
        Format::VarveConsume => format!("{rs2}, {}", x(rs1)),
        Format::VarveEnd => format!("{}, {rs2}", x(rd)),
        Format::VarveNumber => x(rd).to_owned(),
        Format::VarveCount => format!("{}, {}", x(rd), v(rs1)),
        Format::VarveUnpack => format!("{}, {rs2}", v(rd)),
        Format::VarvePack => format!("{}, {}, {rs2}", x(rd), v(rs1)),
        Format::VarveVunpack => format!("{}, {rs2}, {}", v(rd), x(rs1)),
        Format::VarveIndex => format!("{}, {}, {}", v(rd), x(rs1), x(rs2)),
        _ => v(rd).to_owned(),
    };
    match (row.mask >> 25 & 1, row.bits >> 25 & 1) {
        _ if matches!(row.format, Format::VectorSet | Format::VectorSetImmediate | Format::VarveOpen) => {}
        (1, 0) => operands.push_str(", v0"),
        (0, _) if op.rm == 0 => operands.push_str(", v0.t"),
        _ => {}
    }
    let name = if row.format.vector_memory() && op.rs3 > 0 { segments(row.name, op.rs3) } else { row.name.into() };
    format!("{name} {operands}")
}

/// Returns the name of a load or store of segments with `more` fields besides the first: `vlseg3e32.v`,
/// `vsuxseg2ei8.v`.
fn segments(name: &str, more: u8) -> String {
    let at = name.find('e').unwrap_or(name.len());
    format!("{}seg{}{}", &name[..at], more + 1, &name[at..])
}

/// Finds the row for the name of a segment load or store, and sets `op.rs3` to its number of fields less one; `None`
/// for any other name.
pub(super) fn row_of(name: &str, op: &mut Instruction) -> Option<&'static Row> {
    let (at, fields) = match name.find("seg") {
        Some(at) => (at, name.as_bytes().get(at + 3).map(|c| c.wrapping_sub(b'1')).filter(|n| (1..8).contains(n))?),
        None => return None,
    };
    let plain = format!("{}{}", &name[..at], name.get(at + 4..)?);
    let row = TABLE.iter().find(|r| r.name == plain && r.format.vector_memory() && r.mask >> 29 == 0)?;
    op.rs3 = fields;
    Some(row)
}

/// Parses the operands of a vector instruction into `op`; returns `None` if their number is wrong.
pub(super) fn operands(op: &mut Instruction, texts: &[&str]) -> Parsed<Option<()>> {
    let row = op.row();
    let (x, f, v) = (|t: &str| register(&X, 'x', t), |t: &str| register(&F, 'f', t), |t: &str| register(&V, 'v', t));
    let base = |t: &str| match memory(t)? {
        (base, 0) => Ok(base),
        _ => wrong(t),
    };
    let mut texts = texts;
    let is_set = matches!(row.format, Format::VectorSet | Format::VectorSetImmediate | Format::VarveOpen);
    let stream = |t: &str| within(t, 0, 31).map(|number| number as u8);
    if !is_set && (row.mask >> 25 & 1, row.bits >> 25 & 1) == (1, 0) {
        let Some((&"v0", rest)) = texts.split_last() else { return Ok(None) };
        texts = rest;
    } else if !is_set && row.mask >> 25 & 1 == 0 {
        op.rm = 1;
        if let Some((&"v0.t", rest)) = texts.split_last() {
            (texts, op.rm) = (rest, 0);
        }
    }
    match (row.format, texts) {
        (Format::VectorSet, [d, a, rest @ ..]) => (op.rd, op.rs1, op.imm) = (x(d)?, x(a)?, vtype_of(rest, 0x7ff)?),
        (Format::VectorSetImmediate, [d, a, rest @ ..]) => {
            (op.rd, op.rs1, op.imm) = (x(d)?, within(a, 0, 31)? as u8, vtype_of(rest, 0x3ff)?);
        }
        (Format::VectorVv, [d, b, a]) => (op.rd, op.rs2, op.rs1) = (v(d)?, v(b)?, v(a)?),
        (Format::VectorVx, [d, b, a]) => (op.rd, op.rs2, op.rs1) = (v(d)?, v(b)?, x(a)?),
        (Format::VectorVi, [d, b, a]) => (op.rd, op.rs2, op.imm) = (v(d)?, v(b)?, within(a, -16, 15)?),
        (Format::VectorVu, [d, b, a]) => (op.rd, op.rs2, op.imm) = (v(d)?, v(b)?, within(a, 0, 31)?),
        (Format::VectorVf, [d, b, a]) => (op.rd, op.rs2, op.rs1) = (v(d)?, v(b)?, f(a)?),
        (Format::VectorMulV, [d, a, b]) => (op.rd, op.rs1, op.rs2) = (v(d)?, v(a)?, v(b)?),
        (Format::VectorMulX, [d, a, b]) => (op.rd, op.rs1, op.rs2) = (v(d)?, x(a)?, v(b)?),
        (Format::VectorMulF, [d, a, b]) => (op.rd, op.rs1, op.rs2) = (v(d)?, f(a)?, v(b)?),
        (Format::VectorUnary, [d, b]) => (op.rd, op.rs2) = (v(d)?, v(b)?),
        (Format::VectorMoveV, [d, a]) => (op.rd, op.rs1) = (v(d)?, v(a)?),
        (Format::VectorMoveX, [d, a]) => (op.rd, op.rs1) = (v(d)?, x(a)?),
        (Format::VectorMoveI, [d, a]) => (op.rd, op.imm) = (v(d)?, within(a, -16, 15)?),
        (Format::VectorMoveF, [d, a]) => (op.rd, op.rs1) = (v(d)?, f(a)?),
        (Format::VectorToX, [d, b]) => (op.rd, op.rs2) = (x(d)?, v(b)?),
        (Format::VectorToF, [d, b]) => (op.rd, op.rs2) = (f(d)?, v(b)?),
        (Format::VectorId, [d]) => op.rd = v(d)?,
        (Format::VectorUnit, [d, m]) => (op.rd, op.rs1) = (v(d)?, base(m)?),
        (Format::VectorStrided, [d, m, s]) => (op.rd, op.rs1, op.rs2) = (v(d)?, base(m)?, x(s)?),
        (Format::VectorIndexed, [d, m, i]) => (op.rd, op.rs1, op.rs2) = (v(d)?, base(m)?, v(i)?),
        (Format::VarveOpen, [d, a, b, c]) => (op.rd, op.rs1, op.rs2, op.rs3) = (stream(d)?, x(a)?, x(b)?, x(c)?),
        (Format::VarveConsume, [s, a]) => (op.rs2, op.rs1) = (stream(s)?, x(a)?),
        (Format::VarveEnd, [d, s]) => (op.rd, op.rs2) = (x(d)?, stream(s)?),
        (Format::VarveNumber, [d]) => op.rd = x(d)?,
        (Format::VarveCount, [d, a]) => (op.rd, op.rs1) = (x(d)?, v(a)?),
        (Format::VarveUnpack, [d, s]) => (op.rd, op.rs2) = (v(d)?, stream(s)?),
        (Format::VarvePack, [d, a, s]) => (op.rd, op.rs1, op.rs2) = (x(d)?, v(a)?, stream(s)?),
        (Format::VarveVunpack, [d, s, a]) => (op.rd, op.rs2, op.rs1) = (v(d)?, stream(s)?, x(a)?),
        (Format::VarveIndex, [d, a, b]) => (op.rd, op.rs1, op.rs2) = (v(d)?, x(a)?, x(b)?),
        _ => return Ok(None),
    }
    debug_assert_ne!(op.code, Code::Illegal);
    Ok(Some(()))
}
