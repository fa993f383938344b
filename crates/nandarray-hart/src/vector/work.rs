//! The work of vector instructions, computed before they are executed.
//!
//! Elements count with their width, and twice it where an instruction widens or narrows; masks with one bit an element.
//! Elements that are masked off pass through the datapath and carry no value. A load or store of consecutive elements
//! has its bytes as one piece, masked or not; others have a piece for each active element.

use super::access::{Addresses, VectorPattern};
use super::{VectorOp, VectorUnit};
use crate::isa::{Code, Format, TABLE};
use crate::work::{VectorWork, VectorWorkKind};

/// Returns the number of bits of a value in two's complement; 0 for the value zero.
fn width(value: i64) -> u32 {
    if value == 0 { 0 } else { 65 - if value < 0 { (!value).leading_zeros() } else { value.leading_zeros() } }
}

/// The way in which the widths of the operands determine the bits that an operation needs (Table 8.3).
#[derive(Clone, Copy, PartialEq, Eq)]
enum BitRule {
    Sum,
    Product,
    Widest,
    /// All bits of the elements count: floating-point numbers.
    Whole,
}

fn rule(name: &str) -> BitRule {
    let begins = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    if name.starts_with("vf") {
        BitRule::Whole
    } else if begins(&["vadd", "vsub", "vrsub", "vwadd", "vwsub", "vadc", "vsbc", "vsadd", "vssub", "vaadd", "vasub"]) {
        BitRule::Sum
    } else if begins(&["vmul", "vwmul", "vsmul", "vmacc", "vwmacc", "vmadd", "vnmsac", "vnmsub"]) {
        BitRule::Product
    } else {
        BitRule::Widest
    }
}

/// Returns the work of an instruction that computes on elements of vectors.
pub(crate) fn work(u: &VectorUnit, o: &VectorOp) -> VectorWork {
    let row = &TABLE[o.code as usize];
    let name = row.name;
    let mut work = VectorWork { kind: VectorWorkKind::Compute, ..VectorWork::default() };
    let one_bit = name.ends_with(".mm") || matches!(row.format, Format::VectorToX) && o.code != Code::VmvXS;
    if one_bit {
        work.elements = u.vl as u64;
        (work.datapath_bits, work.value_bits) = (work.elements, work.elements);
        return work;
    }
    let whole = match o.code {
        Code::Vmv1rV => 1,
        Code::Vmv2rV => 2,
        Code::Vmv4rV => 4,
        Code::Vmv8rV => 8,
        _ => 0,
    };
    if whole > 0 {
        work.datapath_bits = whole * 8 * u.vlenb as u64;
        (work.elements, work.value_bits) = (1, work.datapath_bits);
        return work;
    }
    if u.sew == 0 {
        return work;
    }
    if matches!(o.code, Code::VmvXS | Code::VfmvFS | Code::VmvSX | Code::VfmvSF) {
        (work.elements, work.datapath_bits) = (1, u64::from(u.sew));
        work.kind = VectorWorkKind::Scalar;
        return work;
    }
    if name.contains("div") || name.contains("rem") || name.contains("sqrt") {
        work.kind = VectorWorkKind::Divide;
    }
    let twice = ["vw", "vfw", "vns", "vnc", "vfn"].iter().any(|start| name.starts_with(start))
        && !["vnmsac", "vnmsub", "vfnm"].iter().any(|start| name.starts_with(start));
    let sew = if twice { 2 * u.sew } else { u.sew };
    let rule = rule(name);
    let copies = matches!(row.format, Format::VectorMoveV | Format::VectorMoveX | Format::VectorMoveI);
    // Registers that a group does not have would trap: only those that exist are looked at.
    let in_registers = |register: u8| (32 - register as usize) * u.vlenb * 8 / u.sew as usize;
    let second = u.vl.min(in_registers(o.vs2));
    let first = if o.is_scalar { u.vl } else { u.vl.min(in_registers(o.vs1)) };
    for i in u.vstart..second.min(first) {
        if !u.active(o, i) {
            continue;
        }
        let left = if copies { 0 } else { width(u.get_signed(o.vs2, i, u.sew)) };
        let right = width(super::signed(u.first(o, i), u.sew));
        let bits = match rule {
            BitRule::Whole => sew,
            BitRule::Sum => left.max(right) + u32::from(left.max(right) > 0),
            BitRule::Product => left + right,
            BitRule::Widest => left.max(right),
        };
        work.value_bits += u64::from(bits.min(sew));
    }
    work.elements = u.vl.saturating_sub(u.vstart) as u64;
    work.datapath_bits = work.elements * u64::from(sew);
    work
}

/// Returns the work of a load or store.
pub(crate) fn access_work(u: &VectorUnit, o: &VectorOp, at: &Addresses) -> VectorWork {
    let mut work = VectorWork { kind: VectorWorkKind::Consecutive, ..VectorWork::default() };
    let Ok(shape) = u.shape(o) else { return work };
    let fields = u64::from(o.more_fields) + 1;
    let element = u64::from(shape.eew / 8);
    work.elements = shape.count.saturating_sub(u.vstart) as u64 * fields;
    work.datapath_bits = work.elements * u64::from(shape.eew);
    work.value_bits = work.datapath_bits;
    if matches!(shape.pattern, VectorPattern::Strided | VectorPattern::Indexed) {
        work.kind = VectorWorkKind::Scattered;
        for i in (u.vstart..shape.count).filter(|&i| u.active(o, i)) {
            let address = at.base.wrapping_add(u.offset(o, &shape, at, i));
            work.touch(address & at.mask, element * fields, shape.store, None);
        }
    } else if work.elements > 0 {
        let first = at.base.wrapping_add(u.vstart as u64 * element * fields);
        work.touch(first & at.mask, work.elements * element, shape.store, None);
    }
    work
}
