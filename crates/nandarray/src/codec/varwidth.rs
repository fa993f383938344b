//! Packing of integers of 1, 2, 4 or 8 bytes with variable widths: each value has as many bits as it needs.
//!
//! ```text
//! packed frame := widths, 1 byte a value
//!                 values, each with as many bits as its width   the first in the lowest bits of the first byte
//!                 bytes after the last whole element
//! ```
//! These are the two streams of variable-width values of Zou's dissertation (section 8.2): a packed stream of bits, and
//! a stream of widths. The width of a value is the number of its bits without leading zeroes: 0 takes no bits, a
//! negative number takes all.
//!
//! It does not know whether elements are signed.

use super::bits::{self, BitWriter};

/// Writes the packed form of `raw` to the front of `packed` and returns its length in bytes; `None` if it does not fit.
pub(super) fn pack(element_bytes: usize, raw: &[u8], packed: &mut [u8]) -> Option<usize> {
    let (values, rest) = raw.split_at(raw.len() / element_bytes * element_bytes);
    let count = values.len() / element_bytes;
    let widths = packed.get_mut(..count)?;
    let mut total = 0;
    for (width, value) in widths.iter_mut().zip(values.chunks_exact(element_bytes)) {
        *width = bits::width_of(bits::little(value)) as u8;
        total += usize::from(*width);
    }
    let length = count + total.div_ceil(8) + rest.len();
    let (widths, data) = packed.get_mut(..length)?.split_at_mut(count);
    let (data, last) = data.split_at_mut(total.div_ceil(8));
    let mut writer = BitWriter::new(data);
    for (width, value) in widths.iter().zip(values.chunks_exact(element_bytes)) {
        writer.put(bits::little(value), u32::from(*width));
    }
    writer.finish();
    last.copy_from_slice(rest);
    Some(length)
}

/// Unpacks a frame into `raw`; `false` if `packed` is not the packed form of a frame with this length.
pub(super) fn unpack(element_bytes: usize, packed: &[u8], raw: &mut [u8]) -> bool {
    let whole = raw.len() / element_bytes * element_bytes;
    let (values, rest) = raw.split_at_mut(whole);
    let Some((widths, body)) = packed.split_at_checked(values.len() / element_bytes) else { return false };
    let most = 8 * element_bytes as u8;
    let (mut total, mut good) = (0, true);
    for &width in widths {
        total += usize::from(width);
        good &= width <= most;
    }
    if !good || body.len() != total.div_ceil(8) + rest.len() {
        return false;
    }
    let (data, last) = body.split_at(total.div_ceil(8));
    match element_bytes {
        1 => unpack_of::<1>(widths, data, values),
        2 => unpack_of::<2>(widths, data, values),
        4 => unpack_of::<4>(widths, data, values),
        8 => unpack_of::<8>(widths, data, values),
        _ => unreachable!("elements of {element_bytes} bytes are refused by the spec"),
    }
    rest.copy_from_slice(last);
    true
}

fn unpack_of<const BYTES: usize>(widths: &[u8], data: &[u8], values: &mut [u8]) {
    let values = values.as_chunks_mut::<BYTES>().0;
    // From this bit on fewer than nine bytes are left.
    let fast_until = (data.len() + 1).saturating_sub(9) * 8;
    let mut at = 0;
    for (width, value) in widths.iter().zip(values) {
        let bits = match data.get(at / 8..at / 8 + 9) {
            Some(nine) if at < fast_until => bits::of_nine(nine.try_into().expect("nine bytes"), at as u32 % 8),
            _ => bits::near_end(data, at),
        };
        let bits = bits & bits::low(u32::from(*width));
        value.copy_from_slice(&bits.to_le_bytes()[..BYTES]);
        at += usize::from(*width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_two_streams_lie_one_behind_the_other() {
        let raw: Vec<u8> = [5u32, 0, 1, 300].iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut packed = [0; 32];
        // 101, nothing, 1, 100101100: 0b100101100_1_101.
        assert_eq!(pack(4, &raw, &mut packed), Some(6));
        assert_eq!(packed[..6], [3, 0, 1, 9, 0b1100_1101, 0b1_0010]);
        let mut out = [9; 16];
        assert!(unpack(4, &packed[..6], &mut out));
        assert_eq!(out[..], raw);
        for bad in [&packed[..5], &packed[..7], &[33, 0, 0, 0, 1, 2, 3, 4, 5][..], &[]] {
            assert!(!unpack(4, bad, &mut out), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_integers_come_back(
            size in 0usize..4, rest in 0usize..8, values in prop::collection::vec((any::<u64>(), 0u32..=64), 0..200),
        ) {
            let bytes = 1 << size;
            let mut raw: Vec<u8> =
                values.iter().flat_map(|(v, width)| (v & bits::low(*width)).to_le_bytes()[..bytes].to_vec()).collect();
            raw.extend((0..rest % bytes).map(|i| i as u8));
            let mut packed = vec![0xa5; 2 * raw.len() + 64];
            let length = pack(bytes, &raw, &mut packed).expect("room");
            let mut out = vec![0x5a; raw.len()];
            prop_assert!(unpack(bytes, &packed[..length], &mut out));
            prop_assert_eq!(out, raw);
        }
    }
}
