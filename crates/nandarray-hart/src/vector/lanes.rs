//! Loops over the elements of register groups, in chunks of 16 bytes.
//!
//! An operation is computed for all elements of a chunk, which compilers turn into vector instructions of the host; the
//! results of inactive elements are dropped. So an operation must be defined for any operands. The sources of a chunk
//! are read before its destination is written; register groups that overlap begin at the same register.

use super::{REGISTER_BYTES_MAX, VectorOp, VectorResult, VectorUnit};

const CHUNK: usize = 16;
/// Bytes of all registers. Taking the remainder of an offset by it changes nothing, but proves to the compiler that the
/// offset lies within the registers.
const REGISTERS: usize = 32 * REGISTER_BYTES_MAX;

/// An integer type of vector elements, with conversions of chunks of 16 bytes.
pub(super) trait Element: Copy + Default {
    const LANES: usize;
    /// An array of the elements in 16 bytes.
    type Lanes: Copy + AsRef<[Self]>;
    fn unpack(bytes: &[u8; CHUNK]) -> Self::Lanes;
    fn pack(lanes: Self::Lanes) -> [u8; CHUNK];
    fn build(lane: impl FnMut(usize) -> Self) -> Self::Lanes;
    /// Takes each lane from `new` if its bit of `active` is set, else from `old`.
    fn blend(active: u32, new: Self::Lanes, old: Self::Lanes) -> Self::Lanes;
    fn cut(value: u64) -> Self;
}

// Loops over arrays of known length become single instructions of the host, which nested `array::from_fn` do not.
macro_rules! elements {
    ($($t:ident $lanes:literal)*) => {$(
        impl Element for $t {
            const LANES: usize = $lanes;
            type Lanes = [$t; $lanes];
            #[inline(always)]
            fn unpack(bytes: &[u8; CHUNK]) -> Self::Lanes {
                let mut lanes = [0; $lanes];
                for (lane, bytes) in lanes.iter_mut().zip(bytes.as_chunks().0) {
                    *lane = $t::from_le_bytes(*bytes);
                }
                lanes
            }
            #[inline(always)]
            fn pack(lanes: Self::Lanes) -> [u8; CHUNK] {
                let mut bytes = [0; CHUNK];
                for (bytes, lane) in bytes.as_chunks_mut().0.iter_mut().zip(lanes) {
                    *bytes = lane.to_le_bytes();
                }
                bytes
            }
            #[inline(always)]
            fn build(mut lane: impl FnMut(usize) -> Self) -> Self::Lanes {
                let mut lanes = [0; $lanes];
                for (n, value) in lanes.iter_mut().enumerate() {
                    *value = lane(n);
                }
                lanes
            }
            #[inline(always)]
            fn blend(active: u32, new: Self::Lanes, old: Self::Lanes) -> Self::Lanes {
                let mut lanes = old;
                for (n, (lane, new)) in lanes.iter_mut().zip(new).enumerate() {
                    if active & 1 << n != 0 {
                        *lane = new;
                    }
                }
                lanes
            }
            #[inline(always)]
            fn cut(value: u64) -> Self {
                value as $t
            }
        }
    )*};
}

elements! { u8 16 u16 8 u32 4 u64 2 }

impl VectorUnit {
    /// Returns the 16 bytes from offset `at` of the registers on; memory after the last register allows a chunk to
    /// begin in it.
    #[inline(always)]
    fn chunk(&self, at: usize) -> &[u8; CHUNK] {
        self.registers[at % REGISTERS..].first_chunk().expect("a chunk within the registers")
    }

    /// Returns the active elements among the `lanes` elements from `i` on, one bit each; `i` is a multiple of `lanes`.
    #[inline(always)]
    fn active_lanes(&self, o: &VectorOp, i: usize, lanes: usize) -> u32 {
        debug_assert!(lanes <= CHUNK && i < self.vl, "{lanes} lanes from element {i} of {}", self.vl);
        let all = (1u32 << lanes) - 1;
        let mut active = all;
        if i + lanes > self.vl {
            active &= (1u32 << (self.vl - i)) - 1;
        }
        if i < self.vstart {
            let skipped = (self.vstart - i).min(lanes);
            active &= !((1 << skipped) - 1);
        }
        if o.masked {
            let word = u16::from_le_bytes([self.registers[i / 8], self.registers[i / 8 + 1]]);
            active &= u32::from(word) >> (i % 8);
        }
        active
    }

    /// Computes `vd[i] = f(vd[i], vs2[i], vs1[i])` for all active elements.
    #[inline(always)]
    pub(super) fn lanes<E: Element>(&mut self, o: &VectorOp, f: impl Fn(E, E, E) -> E) -> VectorResult {
        self.check_same(o)?;
        let [to, first, second] = [o.vd, o.vs1, o.vs2].map(|register| register as usize * self.vlenb);
        let splat = E::build(|_| E::cut(o.scalar));
        let all_active = !o.masked && self.vstart == 0;
        let mut i = 0;
        while i < self.vl {
            let by = i * (CHUNK / E::LANES);
            let a = E::unpack(self.chunk(second + by));
            let b = if o.is_scalar { splat } else { E::unpack(self.chunk(first + by)) };
            let d = E::unpack(self.chunk(to + by));
            let (left, right, old) = (a.as_ref(), b.as_ref(), d.as_ref());
            let mut new = E::build(|lane| f(old[lane], left[lane], right[lane]));
            if !all_active || i + E::LANES > self.vl {
                new = E::blend(self.active_lanes(o, i, E::LANES), new, d);
            }
            let place = self.registers[(to + by) % REGISTERS..].first_chunk_mut();
            *place.expect("a chunk within the registers") = E::pack(new);
            i += E::LANES;
        }
        self.vstart = 0;
        Ok(())
    }

    /// Sets bit `i` of the mask `vd` to `f(vs2[i], vs1[i])` for all active elements.
    #[inline(always)]
    pub(super) fn compare<E: Element>(&mut self, o: &VectorOp, f: impl Fn(E, E) -> bool) -> VectorResult {
        self.check_mask_out(o)?;
        let width = CHUNK / E::LANES;
        let [first, second] = [o.vs1, o.vs2].map(|register| register as usize * self.vlenb);
        let splat = E::build(|_| E::cut(o.scalar));
        let to = o.vd as usize * self.vlenb;
        let mut i = 0;
        while i < self.vl {
            let a = E::unpack(self.chunk(second + i * width));
            let b = if o.is_scalar { splat } else { E::unpack(self.chunk(first + i * width)) };
            let (a, b) = (a.as_ref(), b.as_ref());
            let set = (0..E::LANES).fold(0u32, |bits, lane| bits | u32::from(f(a[lane], b[lane])) << lane);
            let active = self.active_lanes(o, i, E::LANES);
            // The elements' bits lie in at most two bytes of the mask.
            let (active, set) = (active << (i % 8), (set & active) << (i % 8));
            for (byte, at) in [to + i / 8, to + i / 8 + 1].into_iter().enumerate() {
                let (kept, new) = (!(active >> (8 * byte)) as u8, (set >> (8 * byte)) as u8);
                if kept != 0xff {
                    self.registers[at] = self.registers[at] & kept | new;
                }
            }
            i += E::LANES;
        }
        self.vstart = 0;
        Ok(())
    }
}
