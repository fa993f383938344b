//! Integers bit-packed, or with a width per value: a frame in groups of 1024 elements, each less its group's least.
//!
//! A group begins with a byte and a reference of an element's bytes. `bitpack`: the byte is the width w of all values,
//! then come their differences from the reference, w bits each. `varwidth`: the byte is the bits of a width, then come
//! the widths of the values, then their differences in these. Bits are counted from the lowest of the first byte; each
//! of these runs ends with a whole byte, so that it is a stream that VarVE instructions unpack. Signed and unsigned
//! elements are told apart by what gives the smaller range. Bits of elements are kept exactly, whatever they mean.
//!
//! Does not: look at more than a group to choose a width, or trust a packed frame.

/// Elements of a group.
const GROUP: usize = 1024;

/// Elements of 1, 2, 4 or 8 bytes.
trait Element: Copy {
    const BYTES: usize;
    fn load(bytes: &[u8]) -> u64;
    fn signed(value: u64) -> i64;
}

macro_rules! elements {
    ($($t:ident $s:ident)*) => {$(
        impl Element for $t {
            const BYTES: usize = size_of::<$t>();
            #[inline(always)]
            fn load(bytes: &[u8]) -> u64 {
                u64::from($t::from_le_bytes(std::array::from_fn(|at| bytes[at])))
            }
            #[inline(always)]
            fn signed(value: u64) -> i64 {
                i64::from(value as $t as $s)
            }
        }
    )*};
}

elements! { u8 i8 u16 i16 u32 i32 u64 i64 }

/// The packing of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    /// One width a group.
    Bits,
    /// A width per value.
    Widths,
}

/// Whether elements of so many bytes can be packed.
pub(super) fn packs(element_bytes: usize) -> bool {
    matches!(element_bytes, 1 | 2 | 4 | 8)
}

fn bits(value: u64) -> u32 {
    64 - value.leading_zeros()
}

fn mask(width: u32) -> u64 {
    if width == 64 { u64::MAX } else { (1 << width) - 1 }
}

/// Appends bits, the lowest first.
struct Writer<'o> {
    out: &'o mut Vec<u8>,
    held: u128,
    count: u32,
}

impl Writer<'_> {
    fn put(&mut self, value: u64, width: u32) {
        self.held |= u128::from(value) << self.count;
        self.count += width;
        while self.count >= 8 {
            self.out.push(self.held as u8);
            self.held >>= 8;
            self.count -= 8;
        }
    }

    fn end(&mut self) {
        if self.count > 0 {
            self.out.push(self.held as u8);
        }
        (self.held, self.count) = (0, 0);
    }
}

/// `width` bits (at most 64) at bit `at`; zero behind the end.
#[inline(always)]
fn bits_at(packed: &[u8], at: usize, width: u32) -> u64 {
    let (byte, shift) = (at / 8, (at % 8) as u32);
    let mut bytes = [0; 16];
    let there = packed.len().saturating_sub(byte).min(16);
    bytes[..there].copy_from_slice(&packed[byte.min(packed.len())..][..there]);
    (u128::from_le_bytes(bytes) >> shift) as u64 & mask(width)
}

/// The least element and the most that one differs from it, in the reading that makes this smaller.
fn range<E: Element>(raw: &[u8]) -> (u64, u64) {
    let (mut low, mut high, mut least, mut most) = (u64::MAX, 0, i64::MAX, i64::MIN);
    for element in raw.chunks_exact(E::BYTES) {
        let value = E::load(element);
        (low, high) = (low.min(value), high.max(value));
        (least, most) = (least.min(E::signed(value)), most.max(E::signed(value)));
    }
    let (unsigned, signed) = (high - low, most.wrapping_sub(least) as u64);
    if signed < unsigned { (least as u64, signed) } else { (low, unsigned) }
}

fn encode_as<E: Element>(packing: Packing, raw: &[u8], out: &mut Vec<u8>) {
    let all = mask(8 * E::BYTES as u32);
    for group in raw.chunks(GROUP * E::BYTES) {
        let (reference, most) = range::<E>(group);
        let differences = || group.chunks_exact(E::BYTES).map(|e| E::load(e).wrapping_sub(reference) & all);
        let width = bits(most);
        let bits_of_width = if packing == Packing::Widths { bits(u64::from(width)) } else { width };
        out.push(bits_of_width as u8);
        out.extend_from_slice(&reference.to_le_bytes()[..E::BYTES]);
        let mut writer = Writer { out, held: 0, count: 0 };
        if packing == Packing::Widths {
            differences().for_each(|d| writer.put(u64::from(bits(d)), bits_of_width));
            writer.end();
        }
        for difference in differences() {
            writer.put(difference, if packing == Packing::Widths { bits(difference) } else { width });
        }
        writer.end();
    }
}

/// Packs a frame of whole elements of 1, 2, 4 or 8 bytes to the end of `out`; bytes behind the last whole element
/// follow as they are.
pub(super) fn encode(packing: Packing, element_bytes: usize, raw: &[u8], out: &mut Vec<u8>) {
    let whole = raw.len() / element_bytes * element_bytes;
    match element_bytes {
        1 => encode_as::<u8>(packing, &raw[..whole], out),
        2 => encode_as::<u16>(packing, &raw[..whole], out),
        4 => encode_as::<u32>(packing, &raw[..whole], out),
        8 => encode_as::<u64>(packing, &raw[..whole], out),
        _ => unreachable!("elements of {element_bytes} bytes are not packed"),
    }
    out.extend_from_slice(&raw[whole..]);
}

/// Unpacks values of `W` bits: eight at a time, which are `W` bytes.
fn unpack<E: Element, const W: usize>(packed: &[u8], reference: u64, raw: &mut [u8]) {
    let mut at = 0;
    let mut chunks = raw.chunks_exact_mut(8 * E::BYTES);
    let narrow = W <= 56;
    for chunk in &mut chunks {
        // Eight bytes from the last value's first byte on.
        let Some(bytes) = packed.get(at..).filter(|rest| narrow && rest.len() >= W + 8) else {
            for (k, element) in chunk.chunks_exact_mut(E::BYTES).enumerate() {
                let value = bits_at(packed, 8 * at + k * W, W as u32).wrapping_add(reference);
                element.copy_from_slice(&value.to_le_bytes()[..E::BYTES]);
            }
            at += W;
            continue;
        };
        for (k, element) in chunk.chunks_exact_mut(E::BYTES).enumerate() {
            let from = k * W / 8;
            let word = u64::from_le_bytes(std::array::from_fn(|byte| bytes[from + byte]));
            let value = (word >> (k * W % 8) & mask(W as u32)).wrapping_add(reference);
            element.copy_from_slice(&value.to_le_bytes()[..E::BYTES]);
        }
        at += W;
    }
    for (k, element) in chunks.into_remainder().chunks_exact_mut(E::BYTES).enumerate() {
        let value = bits_at(packed, 8 * at + k * W, W as u32).wrapping_add(reference);
        element.copy_from_slice(&value.to_le_bytes()[..E::BYTES]);
    }
}

fn unpack_widths<E: Element>(packed: &[u8], width_bits: u32, reference: u64, raw: &mut [u8]) -> Option<usize> {
    let count = raw.len() / E::BYTES;
    let widths = (count * width_bits as usize).div_ceil(8);
    let data = packed.get(widths..)?;
    let mut at = 0;
    for (k, element) in raw.chunks_exact_mut(E::BYTES).enumerate() {
        let width = bits_at(packed, k * width_bits as usize, width_bits) as u32;
        if width > 8 * E::BYTES as u32 {
            return None;
        }
        let value = bits_at(data, at, width).wrapping_add(reference);
        element.copy_from_slice(&value.to_le_bytes()[..E::BYTES]);
        at += width as usize;
    }
    let bytes = at.div_ceil(8);
    (bytes <= data.len()).then_some(widths + bytes)
}

/// The function for each width.
macro_rules! by_width {
    ($width:expr, $packed:expr, $reference:expr, $raw:expr; $($w:literal)*) => {
        match $width {
            $($w => unpack::<E, $w>($packed, $reference, $raw),)*
            _ => return None,
        }
    };
}

/// Unpacks one group; the bytes that it took.
fn group<E: Element>(packing: Packing, packed: &[u8], raw: &mut [u8]) -> Option<usize> {
    let head = 1 + E::BYTES;
    let (first, rest) = (*packed.first()?, packed.get(head..)?);
    let reference = E::load(&packed[1..head]);
    let count = raw.len() / E::BYTES;
    if packing == Packing::Widths {
        return (first <= 7).then(|| unpack_widths::<E>(rest, u32::from(first), reference, raw))?.map(|n| head + n);
    }
    let width = first as usize;
    if width > 8 * E::BYTES {
        return None;
    }
    let data = rest.get(..(count * width).div_ceil(8))?;
    by_width!(width, data, reference, raw;
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40
        41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64);
    Some(head + data.len())
}

fn decode_as<E: Element>(packing: Packing, mut packed: &[u8], raw: &mut [u8]) -> bool {
    let whole = raw.len() / E::BYTES * E::BYTES;
    let (elements, tail) = raw.split_at_mut(whole);
    for part in elements.chunks_mut(GROUP * E::BYTES) {
        let Some(taken) = group::<E>(packing, packed, part) else { return false };
        packed = &packed[taken..];
    }
    if packed.len() != tail.len() {
        return false;
    }
    tail.copy_from_slice(packed);
    true
}

/// Unpacks a frame into `raw`; false if `packed` is no frame of that length, and `raw` holds arbitrary bytes then.
pub(super) fn decode(packing: Packing, element_bytes: usize, packed: &[u8], raw: &mut [u8]) -> bool {
    match element_bytes {
        1 => decode_as::<u8>(packing, packed, raw),
        2 => decode_as::<u16>(packing, packed, raw),
        4 => decode_as::<u32>(packing, packed, raw),
        8 => decode_as::<u64>(packing, packed, raw),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn frames_come_back(
            log in 0u32..4, width in 0u32..65, base: u64, count in 0usize..3000, tail in 0usize..3, seed: u64, by_width: bool,
        ) {
            let element = 1usize << log;
            let packing = if by_width { Packing::Widths } else { Packing::Bits };
            let mut state = seed | 1;
            let mut raw = Vec::new();
            for _ in 0..count {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let value = base.wrapping_add((state >> 7) & mask(width.min(8 * element as u32)));
                raw.extend_from_slice(&value.to_le_bytes()[..element]);
            }
            raw.extend(std::iter::repeat_n(7, tail % element));
            let mut packed = Vec::new();
            encode(packing, element, &raw, &mut packed);
            let mut back = vec![0; raw.len()];
            prop_assert!(decode(packing, element, &packed, &mut back));
            prop_assert_eq!(&back, &raw);
            // A frame that is cut short or too long is none.
            if packed.len() > 1 {
                prop_assert!(!decode(packing, element, &packed[..packed.len() - 1], &mut back));
            }
            packed.push(0);
            prop_assert!(!decode(packing, element, &packed, &mut back));
        }

        #[test]
        fn any_bytes_are_a_frame_or_none(packed: Vec<u8>, log in 0u32..4, count in 0usize..2000, by_width: bool) {
            let packing = if by_width { Packing::Widths } else { Packing::Bits };
            let mut raw = vec![0; count << log];
            decode(packing, 1 << log, &packed, &mut raw);
        }
    }

    #[test]
    fn small_values_around_zero_take_few_bits() {
        let raw: Vec<u8> = (-512i64..512).flat_map(|v| (v % 4).to_le_bytes()).collect();
        let mut packed = Vec::new();
        encode(Packing::Bits, 8, &raw, &mut packed);
        assert_eq!(packed.len(), 9 + 1024 * 3 / 8);
    }
}
