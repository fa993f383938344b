//! Fixed-point instructions: saturating and averaging sums, fractional products, scaling shifts, narrowing clips.

use super::{VectorOp, VectorResult, VectorUnit, legal, signed};
use crate::isa::Code;

/// Computes `value / 2^shift`, rounded according to `vxrm`.
fn rounded(value: i128, shift: u32, vxrm: u8) -> i128 {
    debug_assert!(shift < 127, "a shift by {shift} bits");
    if shift == 0 {
        return value;
    }
    let (whole, rest, half) = (value >> shift, value & ((1 << shift) - 1), 1i128 << (shift - 1));
    let up = match vxrm {
        0 => rest >= half,
        1 => rest > half || rest == half && whole & 1 != 0,
        2 => false,
        _ => rest != 0 && whole & 1 == 0,
    };
    whole + i128::from(up)
}

/// Executes a fixed-point instruction.
pub(crate) fn fixed(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    use Code::*;
    let narrows = matches!(o.code, VnclipWv | VnclipWx | VnclipWi | VnclipuWv | VnclipuWx | VnclipuWi);
    let multiplies = matches!(o.code, VsmulVv | VsmulVx);
    if narrows {
        u.check_narrowing(o)?;
    } else {
        u.check_same(o)?;
    }
    let (sew, vxrm) = (u.sew, u.vxrm);
    legal(!multiplies || sew < 64 || u.full)?;
    let (least, most) = (-(1i128 << (sew - 1)), (1i128 << (sew - 1)) - 1);
    let all = (1i128 << sew) - 1;
    u.each(o, |u, i| {
        let wide = if narrows { 2 * sew } else { sew };
        let (a, b) = (u.get(o.vs2, i, wide), u.first(o, i));
        let (ua, ub) = (i128::from(a), i128::from(b));
        let (sa, sb) = (i128::from(signed(a, wide)), i128::from(signed(b, sew)));
        let shift = b as u32 & (wide - 1);
        let (value, low, high) = match o.code {
            VsadduVv | VsadduVx | VsadduVi => (ua + ub, 0, all),
            VsaddVv | VsaddVx | VsaddVi => (sa + sb, least, most),
            VssubuVv | VssubuVx => (ua - ub, 0, all),
            VssubVv | VssubVx => (sa - sb, least, most),
            VaadduVv | VaadduVx => (rounded(ua + ub, 1, vxrm), i128::MIN, i128::MAX),
            VaaddVv | VaaddVx => (rounded(sa + sb, 1, vxrm), i128::MIN, i128::MAX),
            VasubuVv | VasubuVx => (rounded(ua - ub, 1, vxrm), i128::MIN, i128::MAX),
            VasubVv | VasubVx => (rounded(sa - sb, 1, vxrm), i128::MIN, i128::MAX),
            VsmulVv | VsmulVx => (rounded(sa * sb, sew - 1, vxrm), least, most),
            VssrlVv | VssrlVx | VssrlVi => (rounded(ua, shift, vxrm), i128::MIN, i128::MAX),
            VssraVv | VssraVx | VssraVi => (rounded(sa, shift, vxrm), i128::MIN, i128::MAX),
            VnclipuWv | VnclipuWx | VnclipuWi => (rounded(ua, shift, vxrm), 0, all),
            VnclipWv | VnclipWx | VnclipWi => (rounded(sa, shift, vxrm), least, most),
            code => unreachable!("{code:?} is none of the fixed-point instructions"),
        };
        let clamped = value.clamp(low, high);
        u.vxsat |= clamped != value;
        u.set(o.vd, i, sew, clamped as u64);
    })
}
