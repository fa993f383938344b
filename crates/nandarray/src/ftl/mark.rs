//! The durable mark: up to which number journal records are durable, told by the file as soon as a barrier has
//! returned.
//!
//! A record tells how far the records before it were durable; nothing would say so of the newest until another follows
//! it. A flipped bit in it, or in a page that it maps, would look like the torn end that a loss of power leaves, and a
//! write that was flushed would be dropped without a word. So the number is written once more, behind the barrier and
//! without one of its own: a killed process leaves it in the page cache, and a loss of power may take it only until the
//! system has written it back.
//!
//! ```text
//! head     | superblock 0 | superblock 1 | mark 0, zeroes | mark 1, zeroes | zeroes ... |     4 KiB each
//! ```
//!
//! Two places are written in turn, each within a sector, so that the mark before is there whatever becomes of a write.
//! A mark that is not intact, or of another store, is not believed, and is no damage: then the store knows what records
//! tell, as it did without marks. A mark is older than the superblock that counts where a version that knows no marks
//! wrote since; the superblock is believed then.

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

/// Offsets of the two marks: behind the superblocks, in pages of their own.
const PLACES: [u64; 2] = [2 * SUPERBLOCK_BYTES, 3 * SUPERBLOCK_BYTES];

/// Content of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The store's.
    pub uuid: [u8; 16],
    /// Generation of the superblock that counted when it was written.
    pub generation: u64,
    /// Journal records up to this number are durable.
    pub lsn: u64,
}

impl Mark {
    /// Writes the mark to one of the places, 0 or 1.
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

/// Both marks, as far as they are intact.
///
/// Beside a writer they are read before superblocks and journal: what a mark says is durable is there by then.
///
/// # Errors
/// The medium's.
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

/// The newest LSN that the marks show to be durable, beside the newest intact superblock; 0 if they show none.
pub fn marked(marks: &[Option<Mark>; 2], newest: &Superblock) -> u64 {
    let counts = |m: &&Mark| m.uuid == newest.uuid && m.generation >= newest.generation;
    marks.iter().flatten().filter(counts).map(|m| m.lsn).max().unwrap_or(0)
}

/// The place to write to next, so that the newer mark stays.
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
}
