//! Streams of bits, lowest bits first, for bit packing and for values of varying widths.

/// Returns a number whose lowest `width` bits are set; `width` is at most 64.
#[inline(always)]
pub(super) fn low(width: u32) -> u64 {
    u64::MAX.checked_shr(64 - width).unwrap_or(0)
}

/// Decodes a little-endian number of at most eight bytes.
#[inline(always)]
pub(super) fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Returns the number of bits of a value without its leading zeroes.
#[inline(always)]
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

/// Whether the processor deposits and extracts bits by one fast instruction (`pdep`, `pext`): it has BMI2, and is not
/// an AMD processor before Zen 3, on which these take a step for each bit.
#[cfg(target_arch = "x86_64")]
pub(super) fn has_fast_pdep() -> bool {
    use core::arch::x86_64::__cpuid;
    static FAST: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *FAST.get_or_init(|| {
        let vendor = __cpuid(0);
        let amd = [vendor.ebx, vendor.edx, vendor.ecx] == [b"Auth", b"enti", b"cAMD"].map(|t| u32::from_le_bytes(*t));
        // Base and extended family; Zen 3 is 0x19.
        let version = __cpuid(1).eax;
        let family = (version >> 8 & 0xf) + (version >> 20 & 0xff);
        is_x86_feature_detected!("bmi2") && (!amd || family >= 0x19)
    })
}

/// Writes a stream of bits to a slice, which must have room for all of them. There is no branch on the number of bits,
/// which would often be predicted wrongly: each call stores eight bytes, and the next call overwrites those that are
/// not full.
pub(super) struct BitWriter<'a> {
    data: &'a mut [u8],
    /// Index of the first byte that is not full.
    at: usize,
    /// Bits of that byte; always fewer than eight.
    pending: u64,
    filled: u32,
}

impl<'a> BitWriter<'a> {
    pub(super) fn new(data: &'a mut [u8]) -> Self {
        Self { data, at: 0, pending: 0, filled: 0 }
    }

    /// Appends the lowest `width` bits of `value`; the other bits must be zero.
    #[inline(always)]
    pub(super) fn put(&mut self, value: u64, width: u32) {
        debug_assert!(value & !low(width) == 0, "{value:#x} has more than {width} bits");
        if width > 56 {
            self.put_at_once(value & low(32), 32);
            return self.put_at_once(value >> 32, width - 32);
        }
        self.put_at_once(value, width);
    }

    /// Appends at most 56 bits.
    #[inline(always)]
    fn put_at_once(&mut self, value: u64, width: u32) {
        self.pending |= value << self.filled;
        let bytes = self.pending.to_le_bytes();
        if let Some(room) = self.data.get_mut(self.at..self.at + 8) {
            room.copy_from_slice(&bytes);
        } else {
            store_end(&mut self.data[self.at..], bytes);
        }
        self.filled += width;
        self.at += self.filled as usize / 8;
        self.pending >>= self.filled & !7;
        self.filled &= 7;
    }

    /// Appends the lowest `width` bits of each element; the other bits must be zero.
    #[inline(always)]
    pub(super) fn put_all<const BYTES: usize>(&mut self, values: &[[u8; BYTES]], width: u32) {
        for value in values {
            self.put(little(value), width);
        }
    }

    /// Ends the stream of bits, which must fill the slice.
    ///
    /// # Panics
    /// If the bits do not fill the slice exactly.
    pub(super) fn finish(self) {
        let bytes = self.filled.div_ceil(8) as usize;
        assert_eq!(self.at + bytes, self.data.len(), "the bits fill the slice");
    }
}

/// Stores as many of the bytes as there is room for. Not a method, so that the writer's fields stay in registers.
#[cold]
fn store_end(room: &mut [u8], bytes: [u8; 8]) {
    let there = room.len().min(8);
    room[..there].copy_from_slice(&bytes[..there]);
}
