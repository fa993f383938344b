//! A chain of segments that is written and read as one stream of bytes; journal and checkpoint are such streams.
//!
//! ```text
//! stream   | payload of segment a | payload of segment b | ...        payload = the segment's data area less 32 bytes
//! segment  | payload ............................. | link to the next segment |
//! ```
//!
//! A link carries the chain's nonce (a random number) and its own CRC-32C, so that neither a stale nor a damaged link
//! is followed. The stream has no records and no checksums; its content must bring its own.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::superblock::ChainStart;
use crate::error::{Error, Result};
use crate::flash::{Geometry, Segment, crc32c};
use crate::media::Media;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ChainLink {
    magic: [u8; 8],
    nonce: U64,
    next: U32,
    crc: U32,
    _reserved: [u8; 8],
}

const LINK_BYTES: u64 = size_of::<ChainLink>() as u64;
const _: () = assert!(LINK_BYTES == 32);
const LINK_MAGIC: [u8; 8] = *b"NANDLINK";

impl ChainLink {
    fn new(nonce: u64, next: Segment) -> Self {
        let mut link = Self {
            magic: LINK_MAGIC,
            nonce: U64::new(nonce),
            next: U32::new(next),
            crc: U32::new(0),
            _reserved: [0; 8],
        };
        link.crc = U32::new(crc32c(&link.as_bytes()[..20]));
        link
    }

    fn next(&self, nonce: u64) -> Option<Segment> {
        let good =
            self.magic == LINK_MAGIC && self.nonce.get() == nonce && self.crc.get() == crc32c(&self.as_bytes()[..20]);
        good.then(|| self.next.get())
    }
}

/// A chain: a stream of bytes in one segment after another, each of which ends with a link to the next one. Holds the
/// segments found so far, in order.
#[derive(Clone, Debug)]
pub struct Chain {
    geometry: Geometry,
    nonce: u64,
    segments: Vec<Segment>,
}

impl Chain {
    /// Creates a chain whose first segment is `start.first`.
    pub fn begin(geometry: Geometry, start: ChainStart) -> Self {
        Self { geometry, nonce: start.nonce, segments: vec![start.first] }
    }

    /// Returns the chain's first segment and the chain's random number, with which recovery finds the chain.
    pub fn start(&self) -> ChainStart {
        ChainStart { first: self.segments[0], nonce: self.nonce }
    }

    /// Returns the geometry of the flash that holds the chain.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the known segments in order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    fn payload_bytes(&self) -> u64 {
        self.geometry.segment_data_bytes() - LINK_BYTES
    }

    /// Returns the number of bytes that can be written from stream offset `at` on without another segment.
    pub fn room_from(&self, at: u64) -> u64 {
        (self.segments.len() as u64 * self.payload_bytes()).saturating_sub(at)
    }

    /// Returns the number of further segments needed to write `bytes` bytes at stream offset `at`.
    pub fn segments_needed(&self, at: u64, bytes: u64) -> u64 {
        (at + bytes).div_ceil(self.payload_bytes()).saturating_sub(self.segments.len() as u64)
    }

    /// Appends a segment, which the caller has opened, to the chain; the link to it is written by `write(offset,
    /// bytes)`.
    pub fn extend(&mut self, write: impl FnOnce(u64, &[u8]) -> Result<()>, segment: Segment) -> Result<()> {
        let last = *self.segments.last().expect("a chain has a segment");
        debug_assert!(!self.segments.contains(&segment), "segment {segment} is in the chain already");
        write(self.geometry.pages_offset(last) + self.payload_bytes(), ChainLink::new(self.nonce, segment).as_bytes())?;
        self.segments.push(segment);
        Ok(())
    }

    fn pieces(&self, at: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> + '_ {
        let payload = self.payload_bytes();
        let mut done = 0;
        std::iter::from_fn(move || {
            (done < len).then(|| {
                let here = at + done as u64;
                let n = ((payload - here % payload) as usize).min(len - done);
                let segment = self.segments[(here / payload) as usize];
                let piece = (self.geometry.pages_offset(segment) + here % payload, done..done + n);
                done += n;
                piece
            })
        })
    }

    /// Writes bytes at stream offset `at` by calls of `write(offset, bytes)`; the chain must have all segments needed.
    pub fn write(&self, write: impl Fn(u64, &[u8]) -> Result<()>, at: u64, bytes: &[u8]) -> Result<()> {
        assert!(self.segments_needed(at, bytes.len() as u64) == 0, "a chain is extended before it is written");
        self.pieces(at, bytes.len()).try_for_each(|(offset, part)| write(offset, &bytes[part]))
    }

    /// Returns where up to `bytes` bytes from stream offset `at` lie on the medium, as (offset, length). Ends with the
    /// chain's last segment.
    pub fn next_bytes(&self, at: u64, bytes: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let bytes = bytes.min(self.room_from(at)) as usize;
        self.pieces(at, bytes).map(|(offset, part)| (offset, part.len() as u64))
    }

    /// Reads from the stream, following links as needed; `false` if the chain or the medium ends before.
    pub fn read(&mut self, media: &dyn Media, at: u64, out: &mut [u8]) -> Result<bool> {
        let end =
            at.checked_add(out.len() as u64).ok_or_else(|| Error::corrupt("a chain is longer than the medium"))?;
        while end > self.segments.len() as u64 * self.payload_bytes() {
            if !self.follow(media)? {
                return Ok(false);
            }
        }
        for (offset, part) in self.pieces(at, out.len()) {
            if offset + part.len() as u64 > media.len() {
                return Ok(false);
            }
            media.read_at(offset, &mut out[part])?;
        }
        Ok(true)
    }

    /// Follows the link at the end of the last known segment; `false` if there is none.
    pub fn follow(&mut self, media: &dyn Media) -> Result<bool> {
        let last = *self.segments.last().expect("a chain has a segment");
        let mut bytes = [0; LINK_BYTES as usize];
        let within = self.geometry.segments_within(media.len());
        if u64::from(last) >= within {
            return Ok(false);
        }
        media.read_at(self.geometry.pages_offset(last) + self.payload_bytes(), &mut bytes)?;
        let link = ChainLink::read_from_bytes(&bytes).expect("the link has its size");
        match link.next(self.nonce) {
            // A chain with a link to one of its own segments, or beyond the medium, is damaged: it ends here.
            Some(next) if u64::from(next) < within && !self.segments.contains(&next) => {
                self.segments.push(next);
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::memory::MemoryMedia;

    #[test]
    fn a_stream_crosses_segments_and_is_found_again() {
        let g = Geometry::TINY;
        let media = MemoryMedia::default();
        media.set_len(g.medium_bytes(4)).unwrap();
        let start = ChainStart { first: 2, nonce: 99 };
        let mut chain = Chain::begin(g, start);
        let bytes: Vec<u8> = (0..40_000u32).map(|i| i as u8).collect();
        assert_eq!(chain.segments_needed(0, bytes.len() as u64), 2);
        let write = |at: u64, bytes: &[u8]| media.write_at(at, bytes);
        chain.extend(write, 0).unwrap();
        chain.extend(write, 3).unwrap();
        chain.write(write, 0, &bytes).unwrap();
        let mut back = vec![0; bytes.len()];
        let mut reader = Chain::begin(g, start);
        assert!(reader.read(&media, 0, &mut back).unwrap());
        assert_eq!((back, reader.segments()), (bytes, &[2, 0, 3][..]));
        let mut stale = Chain::begin(g, ChainStart { first: 2, nonce: 98 });
        assert!(!stale.read(&media, 30_000, &mut [0; 10]).unwrap());
    }

    /// Creates a medium of `segments` segments, and a chain that is extended as needed to hold `bytes` from offset 0.
    fn chain_of(segments: &[Segment], bytes: &[u8]) -> (MemoryMedia, Chain) {
        let media = MemoryMedia::default();
        media.set_len(Geometry::TINY.medium_bytes(12)).unwrap();
        let mut chain = Chain::begin(Geometry::TINY, ChainStart { first: segments[0], nonce: 7 });
        let write = |at: u64, bytes: &[u8]| media.write_at(at, bytes);
        for &segment in &segments[1..] {
            chain.extend(write, segment).unwrap();
        }
        chain.write(write, 0, bytes).unwrap();
        (media, chain)
    }

    proptest::proptest! {
        #[test]
        fn a_chain_is_one_stream_whatever_the_order_of_its_segments(
            order in proptest::sample::subsequence((0..12u32).collect::<Vec<_>>(), 1..6),
            turned: bool,
            writes in proptest::collection::vec((0u64..70_000, 0usize..20_000), 0..8),
        ) {
            let mut segments = order;
            if turned { segments.reverse(); }
            let payload = Geometry::TINY.segment_data_bytes() - LINK_BYTES;
            let room = payload * segments.len() as u64;
            let (media, chain) = chain_of(&segments, &[]);
            let mut model = vec![0u8; room as usize];
            let write = |at: u64, bytes: &[u8]| media.write_at(at, bytes);
            for (i, (at, len)) in writes.into_iter().enumerate() {
                let at = at % room;
                let bytes = vec![i as u8 + 1; len.min((room - at) as usize)];
                proptest::prop_assert_eq!(chain.room_from(at), room - at);
                proptest::prop_assert_eq!(chain.segments_needed(at, bytes.len() as u64), 0);
                proptest::prop_assert_eq!(chain.segments_needed(at, room - at + 1), 1);
                chain.write(write, at, &bytes).unwrap();
                model[at as usize..][..bytes.len()].copy_from_slice(&bytes);
                // The same bytes, found without the chain: every piece lies in one segment, before its link.
                let pieces: Vec<_> = chain.next_bytes(at, bytes.len() as u64).collect();
                proptest::prop_assert_eq!(pieces.iter().map(|p| p.1).sum::<u64>(), bytes.len() as u64);
                for (offset, len) in pieces {
                    let within = segments.iter().map(|&s| Geometry::TINY.pages_offset(s));
                    proptest::prop_assert!(within.into_iter().any(|s| s <= offset && offset + len <= s + payload));
                    let mut found = vec![0; len as usize];
                    media.read_at(offset, &mut found).unwrap();
                    proptest::prop_assert!(found.iter().all(|&b| b == i as u8 + 1));
                }
            }
            let mut found = vec![9; room as usize];
            let mut reader = Chain::begin(Geometry::TINY, chain.start());
            proptest::prop_assert!(reader.read(&media, 0, &mut found).unwrap());
            proptest::prop_assert!(found == model);
            proptest::prop_assert_eq!(reader.segments(), &segments[..]);
            proptest::prop_assert!(!reader.read(&media, room, &mut [0]).unwrap(), "no link leads further");
        }
    }

    #[test]
    fn a_link_with_a_flipped_bit_ends_the_chain_and_leads_nowhere() {
        let payload = Geometry::TINY.segment_data_bytes() - LINK_BYTES;
        let bytes = vec![5; payload as usize + 100];
        let (media, chain) = chain_of(&[3, 8], &bytes);
        let at = Geometry::TINY.pages_offset(3) + payload;
        for bit in 0..LINK_BYTES * 8 {
            let mut byte = [0];
            media.read_at(at + bit / 8, &mut byte).unwrap();
            media.write_at(at + bit / 8, &[byte[0] ^ 1 << (bit % 8)]).unwrap();
            let mut reader = Chain::begin(Geometry::TINY, chain.start());
            // The last bytes are reserved, and nothing looks at them.
            assert_eq!(reader.follow(&media).unwrap(), bit / 8 >= 24, "bit {bit}");
            assert!(reader.read(&media, 0, &mut vec![0; payload as usize]).unwrap(), "what lies before it is read");
            assert_eq!(reader.read(&media, payload - 1, &mut [0; 2]).unwrap(), bit / 8 >= 24, "bit {bit}");
            media.write_at(at + bit / 8, &byte).unwrap();
        }
    }

    #[test]
    fn links_in_a_circle_to_themselves_or_beyond_the_medium_are_not_followed() {
        let payload = Geometry::TINY.segment_data_bytes() - LINK_BYTES;
        for (last, next) in [(8, 3), (8, 8), (8, 12), (8, u32::MAX)] {
            let (media, chain) = chain_of(&[3, 8], &[]);
            let link = ChainLink::new(7, next);
            media.write_at(Geometry::TINY.pages_offset(last) + payload, link.as_bytes()).unwrap();
            let mut reader = Chain::begin(Geometry::TINY, chain.start());
            while reader.follow(&media).unwrap() {}
            assert_eq!(reader.segments(), [3, 8], "a link from {last} to {next}");
        }
        let (media, chain) = chain_of(&[3, 8], &[]);
        media.set_len(Geometry::TINY.medium_bytes(8)).unwrap();
        let mut reader = Chain::begin(Geometry::TINY, chain.start());
        assert!(!reader.follow(&media).unwrap(), "segment 8 was cut off");
        let mut reader = Chain::begin(Geometry::TINY, ChainStart { first: 9, nonce: 7 });
        assert!(!reader.read(&media, 0, &mut [0]).unwrap(), "the first segment was cut off");
        let far = reader.read(&media, u64::MAX, &mut [0; 2]).unwrap_err();
        assert_eq!(far.to_string(), "the store is damaged: a chain is longer than the medium");
    }
}
