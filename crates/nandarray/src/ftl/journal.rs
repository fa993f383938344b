//! The journal: records in a chain of segments, numbered without gaps; each is whole or absent.
//!
//! ```text
//! record   | header 40 bytes | payload | zeroes to a multiple of 8 |
//! ```
//!
//! A record is valid if its CRC-32C is right and it carries the journal's nonce and the next number. The journal ends
//! before the first record that is not valid. Every record also says up to which number records were durable when it
//! was written. Later records may refer to pages that a loss of power took, so these pages have to be verified before
//! the records are applied. A valid record *after* the end which says that the missing one was durable proves that the
//! end is damage, not a torn write. Payloads are not interpreted here.
//!
//! A record also carries the CRC of the record before. A crash may leave records after the end whose predecessor was
//! lost. Once another record is written in its place, their numbers and places may fit again, but their predecessor's
//! CRC does not.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::chain::Chain;
use crate::error::Result;
use crate::flash::crc32c;
use crate::media::Media;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    crc: U32,
    magic: [u8; 4],
    lsn: U64,
    nonce: U64,
    durable: U64,
    len: U32,
    before: U32,
}

const HEADER_BYTES: usize = size_of::<Header>();
const _: () = assert!(HEADER_BYTES == 40);
const MAGIC: [u8; 4] = *b"NREC";
/// Largest payload of a record in bytes, so that a damaged length cannot make the reader allocate too much memory.
const RECORD_BYTES_MAX: u32 = 1 << 30;

/// Number of bytes of a chain that are read at once: its segments may be larger than the machine's memory.
const LOOK_BYTES: usize = 1 << 20;

/// A record that was read from the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number of the record (LSN).
    pub lsn: u64,
    /// Number of the newest record that was durable when this one was written.
    pub durable: u64,
    /// CRC of the record, which the next record carries.
    pub crc: u32,
    /// CRC of the record before; 0 in the first record of a journal.
    pub before: u32,
    /// Content of the record.
    pub payload: Vec<u8>,
}

impl Record {
    /// Returns the number of bytes that the record takes in the journal.
    pub fn bytes(&self) -> u64 {
        (HEADER_BYTES + self.payload.len()).next_multiple_of(8) as u64
    }
}

/// Encodes a record; returns its bytes, ready to be written, and its CRC. `before` is the CRC of the record before it
/// in its journal, 0 for the first.
pub fn encode(lsn: u64, nonce: u64, durable: u64, before: u32, payload: &[u8]) -> (Vec<u8>, u32) {
    assert!(payload.len() <= RECORD_BYTES_MAX as usize, "a record has {} bytes", payload.len());
    let header = Header {
        crc: U32::new(0),
        magic: MAGIC,
        lsn: U64::new(lsn),
        nonce: U64::new(nonce),
        durable: U64::new(durable),
        len: U32::new(payload.len() as u32),
        before: U32::new(before),
    };
    let mut bytes = Vec::with_capacity((HEADER_BYTES + payload.len()).next_multiple_of(8));
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(payload);
    let crc = crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    (bytes, crc)
}

/// Remains of a journal after the place where it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// Whether the header of the record that would come next exists, although that record is not valid.
    pub torn: bool,
    /// Intact records after the end, whose numbers are higher than that of the missing record.
    pub records: Vec<Record>,
}

/// The way in which a journal ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// After the last record there is nothing that was ever part of this journal.
    Proper,
    /// After the last record there are remains of records that are not known to have been durable: a torn tail.
    Torn(Behind),
    /// After the end there is a record which says that the record missing before it was durable: the missing records
    /// are damaged.
    Damaged(Behind),
}

impl End {
    /// Returns the remains of the journal after its end; `None` if there are none.
    pub fn behind(&self) -> Option<&Behind> {
        match self {
            Self::Proper => None,
            Self::Torn(behind) | Self::Damaged(behind) => Some(behind),
        }
    }
}

/// Reads all records from the start of a chain; returns the records, the stream offset where the journal ends, and the
/// way in which it ends. `last_lsn` is the number of the last record of a store that was closed properly: nothing is
/// searched for after that record.
pub fn read_all(
    media: &dyn Media,
    chain: &mut Chain,
    first_lsn: u64,
    last_lsn: Option<u64>,
) -> Result<(Vec<Record>, u64, End)> {
    let nonce = chain.start().nonce;
    let (mut at, mut next, mut before) = (0, first_lsn, 0);
    let mut records = Vec::new();
    let mut looked = None;
    loop {
        let start = next;
        while let Some((record, bytes)) = read_one(media, chain, at, nonce)? {
            if (record.lsn, record.before) != (next, before) {
                break;
            }
            before = record.crc;
            records.push(record);
            at += bytes;
            next += 1;
        }
        if last_lsn == Some(next - 1) {
            return Ok((records, at, End::Proper));
        }
        match looked {
            // The record is still missing after the second look.
            Some(end) if next == start => return Ok((records, at, end)),
            _ => {}
        }
        match look_behind(media, chain, at, nonce, next)? {
            End::Proper => return Ok((records, at, End::Proper)),
            // A writer in another process may have written the record and later ones since it was looked for: look
            // again.
            end => looked = Some(end),
        }
    }
}

fn read_one(media: &dyn Media, chain: &mut Chain, at: u64, nonce: u64) -> Result<Option<(Record, u64)>> {
    let mut head = [0; HEADER_BYTES];
    if !chain.read(media, at, &mut head)? {
        return Ok(None);
    }
    let header = Header::read_from_bytes(&head).expect("the header has its size");
    if header.magic != MAGIC || header.nonce.get() != nonce || header.len.get() > RECORD_BYTES_MAX {
        return Ok(None);
    }
    let len = header.len.get() as usize;
    if len as u64 > media.len() {
        return Ok(None);
    }
    let mut bytes = head.to_vec();
    bytes.resize(HEADER_BYTES + len, 0);
    if !chain.read(media, at + HEADER_BYTES as u64, &mut bytes[HEADER_BYTES..])? {
        return Ok(None);
    }
    if header.crc.get() != crc32c(&bytes[4..]) {
        return Ok(None);
    }
    let payload = bytes.split_off(HEADER_BYTES);
    let (crc, before) = (header.crc.get(), header.before.get());
    let record = Record { lsn: header.lsn.get(), durable: header.durable.get(), crc, before, payload };
    let taken = record.bytes();
    Ok(Some((record, taken)))
}

/// Looks for records of this journal after its end, in the segments that the chain has or links to.
fn look_behind(media: &dyn Media, chain: &mut Chain, from: u64, nonce: u64, next: u64) -> Result<End> {
    while chain.follow(media)? {}
    let mut found = Behind { torn: is_torn(media, chain, from, nonce, next)?, records: Vec::new() };
    let behind = from + chain.room_from(from);
    let mut bytes = vec![0; LOOK_BYTES];
    let mut at = from;
    while at + HEADER_BYTES as u64 <= behind {
        // The last header-sized part of a piece is also the beginning of the next, where a header in it is complete.
        let piece = &mut bytes[..LOOK_BYTES.min((behind - at) as usize)];
        if !chain.read(media, at, piece)? {
            break;
        }
        let places = (piece.len() - HEADER_BYTES) / 8 + 1;
        let mut place = 0;
        while place < places {
            let offset = place * 8;
            place += 1;
            if piece[offset + 4..offset + 8] == MAGIC {
                if let Some((record, taken)) = read_one(media, chain, at + offset as u64, nonce)? {
                    if record.lsn > next {
                        found.records.push(record);
                        // Records do not overlap; this also limits the memory for records to the size of the journal.
                        place += taken as usize / 8 - 1;
                    }
                }
            }
        }
        at += place as u64 * 8;
    }
    let damaged = found.records.iter().any(|r| r.durable >= next);
    Ok(match found {
        found if damaged => End::Damaged(found),
        found if found.torn || !found.records.is_empty() => End::Torn(found),
        _ => End::Proper,
    })
}

/// Whether the header of the next record exists although the record is not valid: the rest of it is missing, or it was
/// written after another record than the last valid one.
fn is_torn(media: &dyn Media, chain: &mut Chain, at: u64, nonce: u64, next: u64) -> Result<bool> {
    let mut head = [0; HEADER_BYTES];
    if !chain.read(media, at, &mut head)? {
        return Ok(false);
    }
    let header = Header::read_from_bytes(&head).expect("the header has its size");
    Ok((header.magic, header.nonce.get(), header.lsn.get()) == (MAGIC, nonce, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::Geometry;
    use crate::ftl::superblock::ChainStart;
    use crate::media::memory::MemoryMedia;

    fn written(durable: impl Fn(u64) -> u64) -> (MemoryMedia, ChainStart, Vec<u64>) {
        let g = Geometry::TINY;
        let media = MemoryMedia::default();
        media.set_len(g.medium_bytes(1)).unwrap();
        let start = ChainStart { first: 0, nonce: 5 };
        let chain = Chain::begin(g, start);
        let (mut at, mut ends, mut before) = (0, vec![0], 0);
        for lsn in 1..=5 {
            let (bytes, crc) = encode(lsn, 5, durable(lsn), before, &vec![lsn as u8; 100 + lsn as usize]);
            before = crc;
            chain.write(|offset, bytes: &[u8]| media.write_at(offset, bytes), at, &bytes).unwrap();
            at += bytes.len() as u64;
            ends.push(at);
        }
        (media, start, ends)
    }

    #[test]
    fn records_come_back_in_order() {
        let (media, start, ends) = written(|_| 0);
        let (records, at, end) = read_all(&media, &mut Chain::begin(Geometry::TINY, start), 1, None).unwrap();
        assert_eq!(records.iter().map(|r| r.lsn).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert_eq!(records[2].payload, vec![3; 103]);
        assert_eq!((at, end), (ends[5], End::Proper));
    }

    #[test]
    fn what_a_lost_record_left_behind_does_not_follow_another() {
        let (media, start, ends) = written(|_| 0);
        let mut chain = Chain::begin(Geometry::TINY, start);
        let (records, ..) = read_all(&media, &mut chain, 1, None).unwrap();
        let (bytes, _) = encode(3, 5, 0, records[1].crc, &[99; 103]);
        chain.write(|offset, bytes: &[u8]| media.write_at(offset, bytes), ends[2], &bytes).unwrap();
        let (records, at, _) = read_all(&media, &mut chain, 1, None).unwrap();
        assert_eq!((records.len(), at), (3, ends[3]), "record 4 followed the old record 3");
    }

    #[test]
    fn a_flipped_bit_ends_the_journal_and_durable_records_behind_tell_that_it_is_damage() {
        for (durable, damaged) in [(0, false), (2, false), (3, true)] {
            let (media, start, ends) = written(|_| durable);
            let at = Geometry::TINY.pages_offset(0) + ends[2] + 60;
            let mut byte = [0];
            media.read_at(at, &mut byte).unwrap();
            media.write_at(at, &[byte[0] ^ 4]).unwrap();
            let (records, _, end) = read_all(&media, &mut Chain::begin(Geometry::TINY, start), 1, None).unwrap();
            assert_eq!(records.len(), 2);
            assert_eq!(matches!(end, End::Damaged(_)), damaged);
            let behind = end.behind().unwrap();
            assert!(behind.torn, "its header is there");
            assert_eq!(behind.records.iter().map(|r| r.lsn).collect::<Vec<_>>(), [4, 5]);
        }
    }
}
