//! Streams of bits, lowest bits first, for bit packing and for values of varying widths.

/// Returns a number whose lowest `width` bits are set; `width` is at most 64.
#[inline(always)]
pub(super) fn low(width: u32) -> u64 {
    u64::MAX.checked_shr(64 - width).unwrap_or(0)
}

/// Decodes a little-endian number of at most eight bytes.
#[inline]
pub(super) fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Returns the number of bits of a value without its leading zeroes.
pub(super) fn width_of(value: u64) -> u32 {
    64 - value.leading_zeros()
}

/// Returns 64 bits of nine bytes, from bit `shift` on; `shift` is below 8.
#[inline(always)]
pub(super) fn of_nine(bytes: &[u8; 9], shift: u32) -> u64 {
    let (first, last) = bytes.split_first_chunk::<8>().expect("nine bytes");
    // Shifted twice, since the language does not allow a shift by 64, which is needed if `shift` is 0.
    u64::from_le_bytes(*first) >> shift | u64::from(last[0]) << 1 << (63 - shift)
}

/// Returns 64 bits of `data` from bit `at` on; bits after the end are zero.
pub(super) fn near_end(data: &[u8], at: usize) -> u64 {
    let mut nine = [0; 9];
    let there = data.get(at / 8..).unwrap_or(&[]);
    let there = &there[..there.len().min(9)];
    nine[..there.len()].copy_from_slice(there);
    of_nine(&nine, at as u32 % 8)
}

/// Moves the lowest bits of `word` to the positions of the ones of `mask` (as `pdep`), which form lanes of equal width.
pub(super) fn deposit(word: u64, mask: u64) -> u64 {
    let (mut word, mut mask, mut out) = (word, mask, 0);
    while mask != 0 {
        let at = mask.trailing_zeros();
        let run = (mask >> at).trailing_ones();
        out |= (word & low(run)) << at;
        word = word.checked_shr(run).unwrap_or(0);
        mask &= !(low(run) << at);
    }
    out
}

/// Collects the bits of `word` at the ones of `mask` (as `pext`) into the lowest bits of the result.
pub(super) fn extract(word: u64, mask: u64) -> u64 {
    let (mut mask, mut out, mut filled) = (mask, 0, 0);
    while mask != 0 {
        let at = mask.trailing_zeros();
        let run = (mask >> at).trailing_ones();
        out |= (word >> at & low(run)) << filled;
        filled += run;
        mask &= !(low(run) << at);
    }
    out
}

/// Writes a stream of bits to a slice, which must have room for all of them.
pub(super) struct BitWriter<'a> {
    data: &'a mut [u8],
    at: usize,
    pending: u64,
    filled: u32,
}

impl<'a> BitWriter<'a> {
    pub(super) fn new(data: &'a mut [u8]) -> Self {
        Self { data, at: 0, pending: 0, filled: 0 }
    }

    /// Appends the lowest `width` bits of `value`; the other bits must be zero.
    pub(super) fn put(&mut self, value: u64, width: u32) {
        debug_assert!(value & !low(width) == 0, "{value:#x} has more than {width} bits");
        self.pending |= value << self.filled;
        self.filled += width;
        if self.filled < 64 {
            return;
        }
        self.data[self.at..self.at + 8].copy_from_slice(&self.pending.to_le_bytes());
        self.at += 8;
        self.filled -= 64;
        self.pending = value.checked_shr(width - self.filled).unwrap_or(0);
    }

    /// Writes the bits that are still pending.
    ///
    /// # Panics
    /// If the bits do not fill the slice exactly.
    pub(super) fn finish(self) {
        let bytes = self.filled.div_ceil(8) as usize;
        assert_eq!(self.at + bytes, self.data.len(), "the bits fill the slice");
        self.data[self.at..].copy_from_slice(&self.pending.to_le_bytes()[..bytes]);
    }
}
