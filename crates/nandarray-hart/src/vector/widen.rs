//! Integer instructions whose operands differ in width: widening sums and products, narrowing shifts, extensions.

use super::{VectorOp, VectorResult, VectorUnit, group, legal, overlap, signed};
use crate::isa::Code;

/// Executes an integer instruction whose operands differ in width.
pub(crate) fn widen(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    use Code::*;
    match o.code {
        VzextVf2 | VsextVf2 => extend(u, o, 1),
        VzextVf4 | VsextVf4 => extend(u, o, 2),
        VzextVf8 | VsextVf8 => extend(u, o, 3),
        VnsrlWv | VnsrlWx | VnsrlWi | VnsraWv | VnsraWx | VnsraWi => narrow(u, o),
        _ => twice(u, o),
    }
}

fn extend(u: &mut VectorUnit, o: &VectorOp, by: u32) -> VectorResult {
    let (sew, narrow) = (u.sew, u.lmul - by as i32);
    u.ready()?;
    let from = sew >> by;
    legal(from >= 8 && narrow >= -3 && VectorUnit::unmasks(o) && o.vd != o.vs2)?;
    legal(VectorUnit::aligned(o.vd, u.lmul) && VectorUnit::aligned(o.vs2, narrow))?;
    legal(VectorUnit::widens_apart(o.vd, u.lmul, o.vs2, narrow))?;
    legal(narrow >= 0 || !overlap(o.vd, group(u.lmul), o.vs2, 1))?;
    let sign = matches!(o.code, Code::VsextVf2 | Code::VsextVf4 | Code::VsextVf8);
    u.each(o, |u, i| {
        let value = u.get(o.vs2, i, from);
        u.set(o.vd, i, sew, if sign { signed(value, from) as u64 } else { value });
    })
}

fn narrow(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    u.check_narrowing(o)?;
    let sew = u.sew;
    let sign = matches!(o.code, Code::VnsraWv | Code::VnsraWx | Code::VnsraWi);
    u.each(o, |u, i| {
        let (a, by) = (u.get(o.vs2, i, 2 * sew), u.first(o, i) as u32 & (2 * sew - 1));
        u.set(o.vd, i, sew, if sign { (signed(a, 2 * sew) >> by) as u64 } else { a >> by });
    })
}

fn twice(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    use Code::*;
    let wide_source =
        matches!(o.code, VwadduWv | VwadduWx | VwaddWv | VwaddWx | VwsubuWv | VwsubuWx | VwsubWv | VwsubWx);
    u.check_widening(o, wide_source)?;
    let sew = u.sew;
    // Whether each operand is signed: first `vs2`, then `vs1`.
    let (sign_a, sign_b) = match o.code {
        VwadduVv | VwadduVx | VwsubuVv | VwsubuVx | VwadduWv | VwadduWx | VwsubuWv | VwsubuWx | VwmuluVv | VwmuluVx
        | VwmaccuVv | VwmaccuVx => (false, false),
        VwmulsuVv | VwmulsuVx | VwmaccusVx => (true, false),
        VwmaccsuVv | VwmaccsuVx => (false, true),
        _ => (true, true),
    };
    u.each(o, |u, i| {
        let extended = |value: u64, bits: u32, sign: bool| if sign { signed(value, bits) as u64 } else { value };
        let bits = if wide_source { 2 * sew } else { sew };
        let a = extended(u.get(o.vs2, i, bits), bits, sign_a);
        let b = extended(u.first(o, i), sew, sign_b);
        let value = match o.code {
            VwadduVv | VwadduVx | VwaddVv | VwaddVx | VwadduWv | VwadduWx | VwaddWv | VwaddWx => a.wrapping_add(b),
            VwsubuVv | VwsubuVx | VwsubVv | VwsubVx | VwsubuWv | VwsubuWx | VwsubWv | VwsubWx => a.wrapping_sub(b),
            VwmuluVv | VwmuluVx | VwmulsuVv | VwmulsuVx | VwmulVv | VwmulVx => a.wrapping_mul(b),
            _ => a.wrapping_mul(b).wrapping_add(u.get(o.vd, i, 2 * sew)),
        };
        u.set(o.vd, i, 2 * sew, value);
    })
}
