//! Reductions of integers: `vd[0] = vs1[0] op vs2[..]`, in the element width or in twice that.

use super::{VectorOp, VectorResult, VectorUnit, legal, low, signed};
use crate::isa::Code;

/// Executes a reduction of integers.
pub(crate) fn reduce(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    use Code::*;
    let wide = matches!(o.code, VwredsumVs | VwredsumuVs);
    u.ready()?;
    legal(u.vstart == 0 && VectorUnit::aligned(o.vs2, u.lmul) && (!wide || 2 * u.sew <= u.elen))?;
    if u.vl == 0 {
        return Ok(());
    }
    let sew = u.sew;
    let to = if wide { 2 * sew } else { sew };
    let mut all = u.get(o.vs1, 0, to);
    u.each(o, |u, i| {
        let value = u.get(o.vs2, i, sew);
        let order = |least: bool, is_less: bool| if least == is_less { value } else { all };
        all = match o.code {
            VredsumVs | VwredsumuVs => all.wrapping_add(value),
            VwredsumVs => all.wrapping_add(signed(value, sew) as u64),
            VredandVs => all & value,
            VredorVs => all | value,
            VredxorVs => all ^ value,
            VredminuVs => order(true, value < low(all, sew)),
            VredmaxuVs => order(false, value < low(all, sew)),
            VredminVs => order(true, signed(value, sew) < signed(all, sew)),
            VredmaxVs => order(false, signed(value, sew) < signed(all, sew)),
            code => unreachable!("{code:?} is no reduction of integers"),
        };
    })?;
    u.set(o.vd, 0, to, all);
    Ok(())
}
