//! Instructions on masks: logic, population count, first set bit, bits before and at it, prefix sums, element numbers.

use super::{VectorOp, VectorResult, VectorUnit, group, legal, overlap};
use crate::isa::Code;

/// Executes an instruction on masks; counts are returned in `result`.
pub(crate) fn mask(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    use Code::*;
    u.ready()?;
    let sew = u.sew;
    match o.code {
        VidV => {
            legal(VectorUnit::aligned(o.vd, u.lmul) && VectorUnit::unmasks(o))?;
            u.each(o, |u, i| u.set(o.vd, i, sew, i as u64))
        }
        ViotaM => {
            let apart = !overlap(o.vd, group(u.lmul), o.vs2, 1);
            legal(u.vstart == 0 && VectorUnit::aligned(o.vd, u.lmul) && VectorUnit::unmasks(o) && apart)?;
            let mut count = 0;
            u.each(o, |u, i| {
                u.set(o.vd, i, sew, count);
                count += u64::from(u.bit(o.vs2, i));
            })
        }
        VcpopM => {
            legal(u.vstart == 0)?;
            u.result = (0..u.vl).filter(|i| u.active(o, *i) && u.bit(o.vs2, *i)).count() as u64;
            Ok(())
        }
        VfirstM => {
            legal(u.vstart == 0)?;
            let first = (0..u.vl).find(|i| u.active(o, *i) && u.bit(o.vs2, *i));
            u.result = first.map_or(u64::MAX, |i| i as u64);
            Ok(())
        }
        VmsbfM | VmsifM | VmsofM => {
            legal(u.vstart == 0 && VectorUnit::unmasks(o) && o.vd != o.vs2)?;
            let mut found = false;
            u.each(o, |u, i| {
                let here = !found && u.bit(o.vs2, i);
                let value = match o.code {
                    VmsbfM => !found && !here,
                    VmsifM => !found,
                    _ => here,
                };
                found |= here;
                u.set_bit(o.vd, i, value);
            })
        }
        _ => logic(u, o),
    }
}

fn logic(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    use Code::*;
    let of = |a: u8, b: u8| match o.code {
        VmandnMm => a & !b,
        VmandMm => a & b,
        VmorMm => a | b,
        VmxorMm => a ^ b,
        VmornMm => a | !b,
        VmnandMm => !(a & b),
        VmnorMm => !(a | b),
        VmxnorMm => !(a ^ b),
        code => unreachable!("{code:?} is no instruction on masks"),
    };
    for byte in u.vstart / 8..u.vl.div_ceil(8) {
        let (from, to) = (u.vstart.saturating_sub(8 * byte).min(8), (u.vl - 8 * byte).min(8));
        let kept = !(((1u16 << to) - 1) & !((1u16 << from) - 1)) as u8;
        let (a, b) = (u.register(o.vs2 as usize)[byte], u.register(o.vs1 as usize)[byte]);
        let place = &mut u.register_mut(o.vd as usize)[byte];
        *place = *place & kept | of(a, b) & !kept;
    }
    u.vstart = 0;
    Ok(())
}
