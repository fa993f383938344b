//! Instructions that move elements: slides, gathers, compression, single elements, whole registers.

use super::{VectorOp, VectorResult, VectorUnit, group, legal, overlap};
use crate::float::{Double, FloatFormat, Single};
use crate::isa::Code;

/// Executes an instruction that moves elements; a single element that leaves the vector unit is returned in `result`.
pub(crate) fn permute(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    use Code::*;
    u.ready()?;
    let sew = u.sew;
    match o.code {
        VmvXS => {
            u.result = u.get_signed(o.vs2, 0, sew) as u64;
            u.vstart = 0;
            Ok(())
        }
        VmvSX => {
            if u.vstart < u.vl {
                u.set(o.vd, 0, sew, o.scalar);
            }
            u.vstart = 0;
            Ok(())
        }
        VfmvFS | VfmvSF => float_element(u, o),
        Vmv1rV => whole(u, o, 1),
        Vmv2rV => whole(u, o, 2),
        Vmv4rV => whole(u, o, 4),
        Vmv8rV => whole(u, o, 8),
        VcompressVm => compress(u, o),
        VrgatherVv | VrgatherVx | VrgatherVi | Vrgatherei16Vv => gather(u, o),
        _ => slide(u, o),
    }
}

fn float_element(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    legal(u.frm < 5 && u.has_float(u.sew))?;
    let sew = u.sew;
    if o.code == Code::VfmvFS {
        let bits = u.get(o.vs2, 0, sew);
        u.result = if sew == 32 { Single::to_register(bits) } else { bits };
    } else if u.vstart < u.vl {
        let value = u.float_scalar(o, sew);
        u.set(o.vd, 0, sew, value);
    }
    u.vstart = 0;
    Ok(())
}

impl VectorUnit {
    /// Whether the unit supports floating-point elements of `sew` bits.
    pub(super) fn has_float(&self, sew: u32) -> bool {
        sew == 32 && self.single || sew == 64 && self.double
    }

    /// Returns the bits of the scalar floating-point operand, in the format of `sew` bits.
    pub(super) fn float_scalar(&self, o: &VectorOp, sew: u32) -> u64 {
        if sew == 32 { Single::from_register(o.scalar) } else { Double::from_register(o.scalar) }
    }
}

fn whole(u: &mut VectorUnit, o: &VectorOp, count: u8) -> VectorResult {
    debug_assert!(count.is_power_of_two(), "a move of {count} registers");
    legal((o.vd | o.vs2) & (count - 1) == 0)?;
    let from = u.vstart * u.sew as usize / 8;
    let all = count as usize * u.vlenb;
    if from < all {
        let [to, source] = [o.vd, o.vs2].map(|register| register as usize * u.vlenb);
        u.registers.copy_within(source + from..source + all, to + from);
    }
    u.vstart = 0;
    Ok(())
}

fn compress(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    let count = group(u.lmul);
    legal(u.vstart == 0 && (o.vd | o.vs2) & (count - 1) == 0)?;
    legal(o.vd != o.vs2 && !overlap(o.vd, count, o.vs1, 1))?;
    let (sew, mut to) = (u.sew, 0);
    for i in 0..u.vl {
        if u.bit(o.vs1, i) {
            let value = u.get(o.vs2, i, sew);
            u.set(o.vd, to, sew, value);
            to += 1;
        }
    }
    Ok(())
}

fn gather(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    let (sew, vlmax, lmul) = (u.sew, u.vlmax as u64, u.lmul);
    let index_sew = if o.code == Code::Vrgatherei16Vv { 16 } else { sew };
    let index_lmul = lmul + index_sew.trailing_zeros() as i32 - sew.trailing_zeros() as i32;
    legal(VectorUnit::aligned(o.vd, lmul) && VectorUnit::aligned(o.vs2, lmul))?;
    legal(o.vd != o.vs2 && VectorUnit::unmasks(o))?;
    if !o.is_scalar {
        legal((-3..=3).contains(&index_lmul) && VectorUnit::aligned(o.vs1, index_lmul))?;
        legal(!overlap(o.vd, group(lmul), o.vs1, group(index_lmul)))?;
    }
    u.each(o, |u, i| {
        let index = if o.is_scalar { o.scalar } else { u.get(o.vs1, i, index_sew) };
        let value = if index < vlmax { u.get(o.vs2, index as usize, sew) } else { 0 };
        u.set(o.vd, i, sew, value);
    })
}

fn slide(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    use Code::*;
    let (sew, vlmax, vl) = (u.sew, u.vlmax, u.vl);
    let is_float = matches!(o.code, Vfslide1upVf | Vfslide1downVf);
    let up = matches!(o.code, VslideupVx | VslideupVi | Vslide1upVx | Vfslide1upVf);
    legal((o.vd | o.vs2) & (group(u.lmul) - 1) == 0 && VectorUnit::unmasks(o))?;
    legal(!up || o.vd != o.vs2)?;
    if is_float {
        legal(u.frm < 5 && u.has_float(sew))?;
    }
    let by = usize::try_from(o.scalar).unwrap_or(usize::MAX);
    let one = if is_float { u.float_scalar(o, sew) } else { o.scalar };
    let at_once = !matches!(o.code, VslideupVx | VslideupVi | VslidedownVx | VslidedownVi);
    if up {
        let by = if at_once { 1 } else { by };
        if !at_once {
            u.vstart = u.vstart.max(by.min(vl));
        }
        u.each(o, |u, i| {
            let value = if i < by { one } else { u.get(o.vs2, i - by, sew) };
            u.set(o.vd, i, sew, value);
        })
    } else {
        let by = if at_once { 1 } else { by };
        u.each(o, |u, i| {
            let value = match i.checked_add(by) {
                Some(_) if at_once && i == vl - 1 => one,
                Some(from) if from < vlmax => u.get(o.vs2, from, sew),
                _ => 0,
            };
            u.set(o.vd, i, sew, value);
        })
    }
}
