//! Loads and stores of vectors: unit-stride, strided, indexed, segments, masks, whole registers, fault-only-first.
//!
//! Kind and element width are read from the bits of the instruction's table row. An access that faults sets `vstart` to
//! its element; fields before the one that faulted may have been loaded. Consecutive bytes that lie in one memory
//! region are moved at once.

use super::{VectorOp, VectorResult, VectorTrap, VectorUnit, group, legal, overlap};
use crate::access::{AccessKind, Fault};
use crate::memory::RegionTable;

/// The addresses of a vector access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) base: u64,
    /// Distance in bytes between elements, for strided accesses.
    pub(crate) stride: u64,
    /// Mask of the bits that an address has.
    pub(crate) mask: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VectorPattern {
    Unit,
    FaultFirst,
    Mask,
    Whole,
    Strided,
    Indexed,
}

/// The pattern, widths and number of elements of an access.
#[derive(Clone, Copy, Debug)]
pub(super) struct VectorShape {
    pub(super) pattern: VectorPattern,
    pub(super) store: bool,
    /// Bits of each element in memory.
    pub(super) eew: u32,
    /// Base-two logarithm of the number of registers for each field.
    emul: i32,
    /// Bits of each index, for indexed accesses.
    index: u32,
    /// Number of elements, including those before `vstart`: `vl`; for whole registers, as many as they hold; for masks,
    /// the bytes of `vl` bits.
    pub(super) count: usize,
}

fn log(bits: u32) -> i32 {
    bits.trailing_zeros() as i32
}

impl VectorUnit {
    pub(super) fn shape(&self, o: &VectorOp) -> Result<VectorShape, VectorTrap> {
        let bits = crate::isa::TABLE[o.code as usize].bits;
        let store = bits & 0x20 != 0;
        let width = match bits >> 12 & 7 {
            0 => 8,
            code => 8 << (code - 4),
        };
        let pattern = match (bits >> 26 & 3, bits >> 20 & 31) {
            (0, 0) => VectorPattern::Unit,
            (0, 8) => VectorPattern::Whole,
            (0, 11) => VectorPattern::Mask,
            (0, _) => VectorPattern::FaultFirst,
            (2, _) => VectorPattern::Strided,
            _ => VectorPattern::Indexed,
        };
        let mut shape = VectorShape { pattern, store, eew: width, emul: 0, index: width, count: self.vl };
        if pattern == VectorPattern::Whole {
            let registers = (bits >> 29) as u8 + 1;
            legal(width <= self.elen && o.vd & (registers - 1) == 0)?;
            shape.emul = log(u32::from(registers));
            shape.count = registers as usize * self.vlenb * 8 / width as usize;
            return Ok(shape);
        }
        self.ready()?;
        legal(width <= self.elen)?;
        match pattern {
            VectorPattern::Mask => shape.count = self.vl.div_ceil(8),
            VectorPattern::Indexed => (shape.eew, shape.emul) = (self.sew, self.lmul),
            _ => shape.emul = self.lmul + log(width) - log(self.sew),
        }
        let fields = o.more_fields + 1;
        let registers = fields as u32 * u32::from(group(shape.emul));
        legal((-3..=3).contains(&shape.emul) && Self::aligned(o.vd, shape.emul))?;
        legal(registers <= 8 && u32::from(o.vd) + registers <= 32)?;
        legal(store || Self::unmasks(o))?;
        if pattern == VectorPattern::Indexed {
            let index_emul = self.lmul + log(width) - log(self.sew);
            legal((-3..=3).contains(&index_emul) && Self::aligned(o.vs2, index_emul))?;
            if !store {
                let field = group(self.lmul);
                let apart = |vd: u8| {
                    let overlaps = overlap(vd, field, o.vs2, group(index_emul));
                    !overlaps
                        || fields == 1
                            && match width.cmp(&self.sew) {
                                std::cmp::Ordering::Equal => true,
                                std::cmp::Ordering::Greater => vd == o.vs2,
                                std::cmp::Ordering::Less => Self::widens_apart(vd, self.lmul, o.vs2, index_emul),
                            }
                };
                legal((0..fields).all(|n| apart(o.vd + n * field)))?;
            }
        }
        Ok(shape)
    }

    pub(super) fn offset(&self, o: &VectorOp, shape: &VectorShape, at: &Addresses, i: usize) -> u64 {
        let element = u64::from(shape.eew / 8);
        match shape.pattern {
            VectorPattern::Strided => at.stride.wrapping_mul(i as u64),
            VectorPattern::Indexed => self.get(o.vs2, i, shape.index),
            _ => i as u64 * element * u64::from(o.more_fields + 1),
        }
    }
}

fn move_one(
    u: &mut VectorUnit,
    (register, i): (u8, usize),
    shape: &VectorShape,
    address: u64,
    spans: &mut RegionTable,
) -> Result<(), Fault> {
    macro_rules! of_width {
        ($bytes:literal) => {
            if shape.store {
                let value = u.get(register, i, shape.eew).to_le_bytes();
                spans.store::<$bytes>(address, std::array::from_fn(|byte| value[byte]))
            } else {
                let mut value = [0; 8];
                value[..$bytes].copy_from_slice(&spans.load::<$bytes>(address)?);
                u.set(register, i, shape.eew, u64::from_le_bytes(value));
                Ok(())
            }
        };
    }
    debug_assert!(matches!(shape.eew, 8 | 16 | 32 | 64), "an element of {} bits", shape.eew);
    match shape.eew {
        8 => of_width!(1),
        16 => of_width!(2),
        32 => of_width!(4),
        _ => of_width!(8),
    }
}

/// Executes the most frequent accesses: of the current element width, unit-stride, without mask and segments, in one
/// region. Returns whether it did so; if not, nothing has changed.
#[inline(always)]
fn simple_access(u: &mut VectorUnit, o: &VectorOp, at: &Addresses, spans: &mut RegionTable) -> bool {
    let bits = crate::isa::TABLE[o.code as usize].bits;
    // The bits of the pattern and of its variants are 0; width codes are 0 and 5 to 7.
    let unit_stride = bits & 0x0df0_0000 == 0;
    let eew = 8 << (bits >> 12 & 3);
    let simple = unit_stride && eew == u.sew && !o.masked && o.more_fields == 0 && u.vstart == 0;
    if !simple || !VectorUnit::aligned(o.vd, u.lmul) {
        return false;
    }
    let from = o.vd as usize * u.vlenb;
    let bytes = &mut u.registers[from..from + u.vl * eew as usize / 8];
    let address = at.base & at.mask;
    if bits & 0x20 != 0 { spans.store_bytes(address, bytes) } else { spans.load_bytes(address, bytes) }
}

/// Executes a vector load or store.
pub(crate) fn access(u: &mut VectorUnit, o: &VectorOp, at: Addresses, spans: &mut RegionTable) -> VectorResult {
    if simple_access(u, o, &at, spans) {
        return Ok(());
    }
    let shape = u.shape(o)?;
    // An index must not be wider than an address.
    legal(shape.pattern != VectorPattern::Indexed || shape.index < 64 || at.mask > u64::from(u32::MAX))?;
    let fields = o.more_fields + 1;
    let together = !matches!(shape.pattern, VectorPattern::Strided | VectorPattern::Indexed) && !o.masked;
    if together && u.vstart == 0 && fields == 1 {
        let from = o.vd as usize * u.vlenb;
        let bytes = &mut u.registers[from..from + shape.count * shape.eew as usize / 8];
        let done = if shape.store {
            spans.store_bytes(at.base & at.mask, bytes)
        } else {
            spans.load_bytes(at.base & at.mask, bytes)
        };
        if done {
            return Ok(());
        }
    }
    let kind = if shape.store { AccessKind::Store } else { AccessKind::Load };
    for i in u.vstart..shape.count {
        if !u.active(o, i) {
            continue;
        }
        let offset = u.offset(o, &shape, &at, i);
        for field in 0..fields {
            let address = at.base.wrapping_add(offset).wrapping_add(u64::from(field) * u64::from(shape.eew / 8));
            let register = o.vd + field * group(shape.emul);
            debug_assert!(register < 32, "field {field} in v{register}");
            if let Err(fault) = move_one(u, (register, i), &shape, address & at.mask, spans) {
                if shape.pattern == VectorPattern::FaultFirst && i > 0 {
                    (u.vl, u.vstart) = (i, 0);
                    return Ok(());
                }
                u.vstart = i;
                return Err(VectorTrap::Fault(fault, kind));
            }
        }
    }
    u.vstart = 0;
    Ok(())
}
