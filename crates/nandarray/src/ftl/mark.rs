//! The durable mark: the number of the newest durable journal record, written to the file as soon as a barrier has
//! returned.
//!
//! A record says which earlier records were durable; for the newest record nothing says so until another one follows.
//! Damage to it, or to a page that it maps, would look like the torn end that a loss of power leaves, and a flushed
//! write would be dropped silently. So the number is written to the mark after the barrier, without a barrier of its
//! own: if the process is killed the mark is in the page cache, and a loss of power may take it only until the system
//! has written it back.
//!
//! ```text
//! head     | superblock 0 | superblock 1 | mark 0, zeroes | mark 1, zeroes | zeroes ... |     4 KiB each
//! ```
//!
//! There are two marks, written in turn, each within a sector, so that the older one survives a torn write of the
//! newer. A damaged mark, or one of another store, is ignored and does not count as damage: then the store relies on
//! its records, as it did before there were marks. A mark is older than the current superblock if an older version of
//! the software, which knows no marks, has written since; then the superblock is used.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::superblock::{NUMBER_MAX, Superblock};
use crate::error::Result;
use crate::flash::crc32c;
use crate::flash::geometry::SUPERBLOCK_BYTES;
use crate::media::{Media, SECTOR_BYTES};

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct MarkWire {
    magic: [u8; 8],
    crc: U32,
    _padding: U32,
    uuid: [u8; 16],
    generation: U64,
    lsn: U64,
    _reserved: [u8; 16],
}

const MARK_BYTES: usize = size_of::<MarkWire>();
const _: () = assert!(MARK_BYTES == 64 && MARK_BYTES <= SECTOR_BYTES);
const MAGIC: [u8; 8] = *b"NANDMARK";

/// Offsets in the file of the two durable marks: after the superblocks, each in a page of its own.
const PLACES: [u64; 2] = [2 * SUPERBLOCK_BYTES, 3 * SUPERBLOCK_BYTES];

/// Content of a durable mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Identifier of the store.
    pub uuid: [u8; 16],
    /// Generation of the current superblock when the mark was written.
    pub generation: u64,
    /// Number of the newest journal record that is durable.
    pub lsn: u64,
}

impl Mark {
    /// Writes the mark to place 0 or 1, without a barrier.
    pub fn write(&self, media: &dyn Media, place: usize) -> Result<()> {
        let mut wire = MarkWire {
            magic: MAGIC,
            crc: U32::new(0),
            _padding: U32::new(0),
            uuid: self.uuid,
            generation: U64::new(self.generation),
            lsn: U64::new(self.lsn),
            _reserved: [0; 16],
        };
        wire.crc = U32::new(crc32c(&wire.as_bytes()[12..]));
        media.write_at(PLACES[place], wire.as_bytes())
    }

    fn parse(bytes: &[u8; MARK_BYTES]) -> Option<Self> {
        let wire = MarkWire::read_from_bytes(bytes).expect("the mark has its size");
        let mark = Self { uuid: wire.uuid, generation: wire.generation.get(), lsn: wire.lsn.get() };
        let intact = wire.magic == MAGIC && wire.crc.get() == crc32c(&bytes[12..]);
        (intact && mark.generation < NUMBER_MAX && mark.lsn < NUMBER_MAX).then_some(mark)
    }
}

/// Reads both durable marks; `None` for one that is absent or damaged.
///
/// If another process may be writing the store, read the marks before superblocks and journal: the records that the
/// marks name exist by then.
///
/// # Errors
/// [`crate::error::Error::Media`]: the medium cannot be read.
pub fn read_marks(media: &dyn Media) -> Result<[Option<Mark>; 2]> {
    let mut marks = [None; 2];
    for (mark, at) in marks.iter_mut().zip(PLACES) {
        let mut bytes = [0; MARK_BYTES];
        if at + MARK_BYTES as u64 <= media.len() {
            media.read_at(at, &mut bytes)?;
            *mark = Mark::parse(&bytes);
        }
    }
    Ok(marks)
}

/// Returns the newest LSN that the durable marks show to be durable, 0 if they show none. `newest` is the newest intact
/// superblock.
pub fn marked(marks: &[Option<Mark>; 2], newest: &Superblock) -> u64 {
    let counts = |m: &&Mark| m.uuid == newest.uuid && m.generation >= newest.generation;
    marks.iter().flatten().filter(counts).map(|m| m.lsn).max().unwrap_or(0)
}

/// Returns the place, 0 or 1, of the next mark to be written: that of the older or damaged one.
pub fn next_place(marks: &[Option<Mark>; 2]) -> usize {
    let order = |mark: &Option<Mark>| mark.map(|m| (m.generation, m.lsn));
    usize::from(order(&marks[0]) > order(&marks[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::memory::MemoryMedia;

    fn mark(generation: u64, lsn: u64) -> Mark {
        Mark { uuid: [7; 16], generation, lsn }
    }

    #[test]
    fn marks_come_back_and_the_older_place_is_written_next() {
        let media = MemoryMedia::with_bytes(vec![0; 65_536]);
        assert_eq!(read_marks(&media).unwrap(), [None, None]);
        for (lsn, place) in [(3, 0), (4, 1), (9, 0)] {
            assert_eq!(next_place(&read_marks(&media).unwrap()), place);
            mark(2, lsn).write(&media, place).unwrap();
            assert_eq!(read_marks(&media).unwrap()[place], Some(mark(2, lsn)));
        }
        assert_eq!(read_marks(&MemoryMedia::with_bytes(vec![0; 8192])).unwrap(), [None, None]);
    }

    #[test]
    fn a_mark_with_a_flipped_bit_is_not_believed() {
        let media = MemoryMedia::with_bytes(vec![0; 65_536]);
        for bit in 0..8 * MARK_BYTES as u64 {
            mark(2, 5).write(&media, 0).unwrap();
            let mut byte = [0];
            media.read_at(PLACES[0] + bit / 8, &mut byte).unwrap();
            media.write_at(PLACES[0] + bit / 8, &[byte[0] ^ 1 << (bit % 8)]).unwrap();
            assert_eq!(read_marks(&media).unwrap()[0], None, "bit {bit}");
        }
        mark(1, u64::MAX).write(&media, 0).unwrap();
        assert_eq!(read_marks(&media).unwrap()[0], None, "no journal has such a number");
    }

    fn newest(generation: u64) -> Superblock {
        let nowhere = crate::ftl::superblock::ChainStart { first: 0, nonce: 0 };
        Superblock {
            uuid: [7; 16],
            generation,
            version: 3,
            geometry: crate::flash::Geometry::TINY,
            capacity_bytes: 0,
            checkpoint: nowhere,
            checkpoint_bytes: 0,
            directory_at: [0; 2],
            directory_bytes: 0,
            directory_crc: 0,
            journal: nowhere,
            journal_lsn: 1,
            clean: None,
            placement: String::new(),
            victim: String::new(),
        }
    }

    #[test]
    fn marks_of_other_stores_and_of_generations_before_the_superblocks_say_nothing() {
        let other = Mark { uuid: [8; 16], ..mark(9, 99) };
        let rows = [
            ([None, None], 5, 0),
            ([Some(mark(5, 30)), None], 5, 30),
            ([None, Some(mark(6, 30))], 5, 30),
            ([Some(mark(4, 30)), None], 5, 0),
            ([Some(mark(4, 30)), Some(mark(5, 20))], 5, 20),
            ([Some(mark(5, 30)), Some(mark(6, 31))], 5, 31),
            ([Some(other), Some(mark(5, 2))], 5, 2),
            ([Some(other), None], 0, 0),
        ];
        for (marks, generation, lsn) in rows {
            assert_eq!(marked(&marks, &newest(generation)), lsn, "{marks:?} beside generation {generation}");
            let turned = [marks[1], marks[0]];
            assert_eq!(marked(&turned, &newest(generation)), lsn, "{turned:?} beside generation {generation}");
        }
    }

    #[test]
    fn of_two_marks_a_torn_one_is_replaced_first_and_the_newer_one_never() {
        let marks = [None, Some(mark(1, 5)), Some(mark(1, 6)), Some(mark(2, 1))];
        for (older, newer) in (0..4).flat_map(|newer| (0..newer).map(move |older| (older, newer))) {
            assert_eq!(next_place(&[marks[older], marks[newer]]), 0, "{older} {newer}");
            assert_eq!(next_place(&[marks[newer], marks[older]]), 1, "{newer} {older}");
        }
    }
}
