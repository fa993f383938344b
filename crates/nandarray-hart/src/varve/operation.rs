//! Operations on variable-width vectors: element by element, as many as fit in the datapath (equation 8.1, Table 8.3).

use super::{VarveResult, VarveTrap, VarveUnit, width, wrap};
use crate::isa::Code;
use crate::vector::VectorUnit;
use crate::work::{VectorWork, VectorWorkKind};

/// The operands of an operation on vectors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VarveOp {
    pub(crate) code: Code,
    pub(crate) vd: u8,
    pub(crate) vs1: u8,
    pub(crate) vs2: u8,
    /// The scalar that replaces `vs1`; `None` if the operand is a vector.
    pub(crate) scalar: Option<i64>,
    /// The value of a second integer register, for operations that use one.
    pub(crate) second: i64,
    pub(crate) masked: bool,
}

/// Returns the number of bits that an operation on these elements needs in the datapath, as in Table 8.3; for a shift,
/// the greater of the widths before and after it.
fn datapath_bits(code: Code, a: i64, b: i64) -> u32 {
    use Code::*;
    let (left, right) = (width(a), width(b));
    match code {
        VvAddV | VvAddI | VvSubV | VvSubI | VvDivV | VvDivI => left.max(right) + u32::from(left.max(right) > 0),
        VvMulV | VvMulI => left + right,
        VvAslV | VvAslI => left + (b as u32 & 63) * u32::from(left > 0),
        VvAsrV | VvAsrI => left,
        _ => left.max(right),
    }
}

fn compute(code: Code, a: i64, b: i64) -> i64 {
    use Code::*;
    match code {
        VvAddV | VvAddI => a.wrapping_add(b),
        VvSubV | VvSubI => a.wrapping_sub(b),
        VvMaxV | VvMaxI => a.max(b),
        VvMinV | VvMinI => a.min(b),
        VvMulV | VvMulI => a.wrapping_mul(b),
        VvDivV | VvDivI if b == 0 => -1,
        VvDivV | VvDivI => a.wrapping_div(b),
        VvAndV | VvAndI => a & b,
        VvBicV | VvBicI => a & !b,
        VvEorV | VvEorI => a ^ b,
        VvOrrV | VvOrrI => a | b,
        VvAsrV | VvAsrI => a >> (b & 63),
        VvAslV | VvAslI => a << (b & 63),
        VvCmpeqV | VvCmpeqI => i64::from(a == b),
        VvCmpneV | VvCmpneI => i64::from(a != b),
        VvCmpltV | VvCmpltI => i64::from(a < b),
        VvCmpleV | VvCmpleI => i64::from(a <= b),
        code => unreachable!("{code:?} is no operation on variable-width vectors"),
    }
}

fn compares(code: Code) -> bool {
    use Code::*;
    matches!(code, VvCmpeqV | VvCmpeqI | VvCmpneV | VvCmpneI | VvCmpltV | VvCmpltI | VvCmpleV | VvCmpleI)
}

/// Returns the number of elements that an operation processes: that of the shorter of its source vectors.
fn shared(unit: &VarveUnit, o: &VarveOp) -> usize {
    let left = unit.vector(o.vs2).values.len();
    if o.scalar.is_some() { left } else { left.min(unit.vector(o.vs1).values.len()) }
}

/// Returns both operands of element `i`; zeros if the mask excludes it, so that it needs no room in the datapath.
fn operands(unit: &VarveUnit, vectors: &VectorUnit, o: &VarveOp, i: usize) -> (i64, i64) {
    debug_assert!(i < shared(unit, o), "element {i} of {}", shared(unit, o));
    if o.masked && !vectors.mask_bit(i) {
        return (0, 0);
    }
    (unit.vector(o.vs2).values[i], o.scalar.unwrap_or_else(|| unit.vector(o.vs1).values[i]))
}

fn bits_of_element(unit: &VarveUnit, vectors: &VectorUnit, o: &VarveOp, i: usize) -> u32 {
    let (a, b) = operands(unit, vectors, o, i);
    datapath_bits(o.code, a, b)
}

/// Returns the work of an operation on variable-width vectors.
pub(crate) fn operation_work(unit: &VarveUnit, vectors: &VectorUnit, o: &VarveOp) -> VectorWork {
    use Code::{VvCpy, VvDivI, VvDivV, VvDup, VvIndex, VvTvs};
    let kind = match o.code {
        VvDivV | VvDivI => VectorWorkKind::Divide,
        _ => VectorWorkKind::Compute,
    };
    let mut work = VectorWork { kind, ..VectorWork::default() };
    let vlen = u64::from(unit.vlen);
    let mut add = |bits: u32| {
        let aligned = u64::from(bits.next_multiple_of(unit.align));
        let fits = work.datapath_bits + aligned <= vlen && work.elements < unit.elements_max() as u64;
        if fits {
            work.elements += 1;
            work.datapath_bits += aligned;
            work.value_bits += u64::from(bits);
        }
        fits
    };
    match o.code {
        VvTvs => {
            for value in vectors.elements(o.vs2).unwrap_or_default() {
                if !add(width(value)) {
                    break;
                }
            }
        }
        VvCpy | VvDup | VvIndex => {
            let step = if o.code == VvIndex { o.second } else { 0 };
            let mut value = o.scalar.unwrap_or_default();
            while add(width(value)) {
                value = value.wrapping_add(step);
            }
        }
        _ => {
            for i in 0..shared(unit, o) {
                if !add(bits_of_element(unit, vectors, o, i)) {
                    break;
                }
            }
        }
    }
    work
}

/// Executes an operation; the result of a comparison is a mask in the vector unit, with zeros after its elements.
pub(crate) fn operate(unit: &mut VarveUnit, vectors: &mut VectorUnit, o: &VarveOp) -> VarveResult {
    match o.code {
        Code::VvTvs => return from_fixed(unit, vectors, o),
        Code::VvCpy | Code::VvDup | Code::VvIndex => {
            let (first, step) = (o.scalar.unwrap_or_default(), if o.code == Code::VvIndex { o.second } else { 0 });
            let nth = |i: usize| first.wrapping_add(step.wrapping_mul(i as i64));
            let most = unit.elements_max();
            let count = unit.fitting((0..most).map(|i| width(nth(i))));
            unit.yield_vector(o.vd, (0..count).map(nth).collect(), 64);
            return Ok(());
        }
        _ => {}
    }
    let (left, right) = (unit.vector(o.vs2), unit.vector(o.vs1));
    let active = |i: usize| !o.masked || vectors.mask_bit(i);
    let operands = |i: usize| operands(unit, vectors, o, i);
    let count = unit.fitting((0..shared(unit, o)).map(|i| bits_of_element(unit, vectors, o, i)));
    let most_bits = if o.scalar.is_some() { left.most_bits } else { left.most_bits.min(right.most_bits) };
    let result = |i: usize| {
        let (a, b) = operands(i);
        if active(i) { wrap(compute(o.code, a, b), most_bits) } else { 0 }
    };
    if compares(o.code) {
        let mask: Vec<bool> = (0..count)
            .map(|i| {
                active(i) && {
                    let (a, b) = operands(i);
                    compute(o.code, a, b) != 0
                }
            })
            .collect();
        unit.num_e = unit.num_e.min(count as u64);
        vectors.put_mask(o.vd, &mask);
    } else {
        let values: Vec<i64> = (0..count).map(result).collect();
        // Results fit in the datapath; a register has the same number of bits.
        let mut used = 0;
        let kept = values
            .iter()
            .take_while(|v| {
                used += width(**v);
                used <= unit.vlen
            })
            .count();
        debug_assert!(kept <= count, "{kept} elements were kept of {count}");
        unit.yield_vector(o.vd, values[..kept].to_vec(), most_bits);
    }
    Ok(())
}

/// Converts a fixed-width vector to a variable-width one, with as many elements as fit in a register.
fn from_fixed(unit: &mut VarveUnit, vectors: &VectorUnit, o: &VarveOp) -> VarveResult {
    let values = vectors.elements(o.vs2).ok_or(VarveTrap::Illegal)?;
    let active = |i: usize| !o.masked || vectors.mask_bit(i);
    let mut bits = 0;
    let fits = |(i, value): (usize, &i64)| {
        let value = if active(i) { *value } else { 0 };
        bits += width(value);
        (bits <= unit.vlen && i < unit.elements_max()).then_some(value)
    };
    let values: Vec<i64> = values.iter().enumerate().map_while(fits).collect();
    unit.yield_vector(o.vd, values, 64);
    Ok(())
}
