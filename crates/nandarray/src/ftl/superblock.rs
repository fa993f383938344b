//! The superblock, from which recovery starts. There are two slots of 4 KiB; the intact one with the higher generation
//! is current.
//!
//! Writing a new checkpoint never overwrites the current slot, so a torn superblock does no harm: the other slot names
//! the previous checkpoint and journal, which are kept for that purpose.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, Result};
use crate::flash::geometry::{SEGMENTS_MAX, SUPERBLOCK_BYTES};
use crate::flash::{Geometry, Layout, Segment, crc32c};
use crate::media::Media;

/// Version of the file format, raised with each change of a layout; docs/reference/file-format.md describes all
/// versions.
pub const FORMAT_VERSION: u32 = 4;

/// First version of the file format with snapshots. A store has it while it has a snapshot, and otherwise the version
/// that it was made with.
pub const SNAPSHOT_FORMAT: u32 = 4;

const MAGIC: [u8; 8] = *b"\x89NANDAR\n";
/// Exclusive bound of all counters, so that a sum of two fits into 64 bits.
pub(super) const NUMBER_MAX: u64 = 1 << 60;
/// Largest number of a journal record. It is below [`NUMBER_MAX`], since a salvage may continue above a number that
/// damaged data contains.
pub const LSN_MAX: u64 = NUMBER_MAX / 2;

#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SuperblockWire {
    magic: [u8; 8],
    version: U32,
    crc: U32,
    uuid: [u8; 16],
    generation: U64,
    page_bytes: U32,
    channels: U32,
    banks: U32,
    pages_per_block: U32,
    capacity_bytes: U64,
    checkpoint_nonce: U64,
    checkpoint_first: U32,
    directory_crc: U32,
    directory_at: [U64; 2],
    directory_bytes: U64,
    checkpoint_bytes: U64,
    journal_nonce: U64,
    journal_first: U32,
    clean: U32,
    journal_lsn: U64,
    clean_lsn: U64,
    open_segment: U32,
    placement: [u8; 12],
    victim: [u8; 16],
    open_crc: U32,
    _reserved: [u8; 3916],
}

const _: () = assert!(size_of::<SuperblockWire>() as u64 == SUPERBLOCK_BYTES);

/// Content of a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identifier of the store, which never changes.
    pub uuid: [u8; 16],
    /// Generation: the number of checkpoints so far.
    pub generation: u64,
    /// Version of the file format: that of the software which created the store. Determines the layout of segments.
    pub version: u32,
    /// Sizes of pages and segments.
    pub geometry: Geometry,
    /// Largest size of the medium in bytes; 0 if it may grow without limit.
    pub capacity_bytes: u64,
    /// Start of the checkpoint's chain.
    pub checkpoint: ChainStart,
    /// Length of the checkpoint's stream in bytes.
    pub checkpoint_bytes: u64,
    /// Offsets in the checkpoint's stream of the two copies of its directory, the list of spaces and segments.
    pub directory_at: [u64; 2],
    /// Length of the directory in bytes.
    pub directory_bytes: u64,
    /// CRC-32C of the directory.
    pub directory_crc: u32,
    /// Start of the journal's chain.
    pub journal: ChainStart,
    /// Number of the first record of the journal.
    pub journal_lsn: u64,
    /// If the store was closed properly: the number of the last journal record, and the segment that was open. `None`
    /// while the store is open for writing.
    pub clean: Option<(u64, Option<ResumePoint>)>,
    /// Name of the placement policy.
    pub placement: String,
    /// Name of the victim policy.
    pub victim: String,
}

/// The open segment of a store that was closed, in which pages may be allocated again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    /// Number of the segment.
    pub segment: Segment,
    /// CRC-32C of the segment's out-of-band records; if it differs, it is unknown which pages are free.
    pub crc: u32,
}

/// The start of a chain of segments: all that is needed to find and follow the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainStart {
    /// First segment of the chain.
    pub first: Segment,
    /// Random number of the chain, which its links carry, so that links of older chains are not followed.
    pub nonce: u64,
}

impl SuperblockWire {
    /// Computes the CRC of everything after the magic number, with the field of the CRC as zero. Magic number, version
    /// and CRC have the same place in every version of the format.
    fn crc_of_rest(&self) -> u32 {
        let without = Self { crc: U32::new(0), ..self.clone() };
        crc32c(&without.as_bytes()[8..])
    }
}

fn name_bytes<const N: usize>(name: &str) -> [u8; N] {
    let mut bytes = [0; N];
    assert!(name.len() <= N, "policy names fit their field");
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes
}

fn name_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

impl Superblock {
    fn to_wire(&self) -> SuperblockWire {
        let none = ResumePoint { segment: u32::MAX, crc: 0 };
        let (clean, clean_lsn, open) = match self.clean {
            Some((lsn, open)) => (1, lsn, open.unwrap_or(none)),
            None => (0, 0, none),
        };
        let mut wire = SuperblockWire {
            magic: MAGIC,
            version: U32::new(self.version),
            crc: U32::new(0),
            uuid: self.uuid,
            generation: U64::new(self.generation),
            page_bytes: U32::new(self.geometry.page_bytes),
            channels: U32::new(self.geometry.channels),
            banks: U32::new(self.geometry.banks),
            pages_per_block: U32::new(self.geometry.pages_per_block),
            capacity_bytes: U64::new(self.capacity_bytes),
            checkpoint_nonce: U64::new(self.checkpoint.nonce),
            checkpoint_first: U32::new(self.checkpoint.first),
            directory_crc: U32::new(self.directory_crc),
            directory_at: self.directory_at.map(U64::new),
            directory_bytes: U64::new(self.directory_bytes),
            checkpoint_bytes: U64::new(self.checkpoint_bytes),
            journal_nonce: U64::new(self.journal.nonce),
            journal_first: U32::new(self.journal.first),
            clean: U32::new(clean),
            journal_lsn: U64::new(self.journal_lsn),
            clean_lsn: U64::new(clean_lsn),
            open_segment: U32::new(open.segment),
            placement: name_bytes(&self.placement),
            victim: name_bytes(&self.victim),
            open_crc: U32::new(open.crc),
            _reserved: [0; 3916],
        };
        wire.crc = U32::new(wire.crc_of_rest());
        wire
    }

    fn from_wire(wire: &SuperblockWire) -> Result<Self> {
        let geometry = Geometry {
            page_bytes: wire.page_bytes.get(),
            channels: wire.channels.get(),
            banks: wire.banks.get(),
            pages_per_block: wire.pages_per_block.get(),
            layout: Layout::of_format(wire.version.get()),
        };
        geometry.validate().map_err(|e| Error::corrupt(format!("in a superblock, {e}")))?;
        let open = ResumePoint { segment: wire.open_segment.get(), crc: wire.open_crc.get() };
        let open = (open.segment != u32::MAX).then_some(open);
        let numbers = [
            ("generation", wire.generation.get(), 0..NUMBER_MAX),
            ("checkpoint_bytes", wire.checkpoint_bytes.get(), 0..NUMBER_MAX),
            ("directory_at[0]", wire.directory_at[0].get(), 0..NUMBER_MAX),
            ("directory_at[1]", wire.directory_at[1].get(), 0..NUMBER_MAX),
            ("directory_bytes", wire.directory_bytes.get(), 0..NUMBER_MAX),
            ("journal_lsn", wire.journal_lsn.get(), 1..NUMBER_MAX),
            ("clean_lsn", wire.clean_lsn.get(), 0..NUMBER_MAX),
            ("checkpoint_first", wire.checkpoint_first.get().into(), 0..SEGMENTS_MAX),
            ("journal_first", wire.journal_first.get().into(), 0..SEGMENTS_MAX),
            ("open_segment", open.map_or(0, |o| o.segment).into(), 0..SEGMENTS_MAX),
        ];
        if let Some((name, value, range)) = numbers.into_iter().find(|(_, value, range)| !range.contains(value)) {
            let (low, high) = (range.start, range.end - 1);
            return Err(Error::corrupt(format!("in a superblock, {name} is {value}, not within {low}..={high}")));
        }
        Ok(Self {
            uuid: wire.uuid,
            generation: wire.generation.get(),
            version: wire.version.get(),
            geometry,
            capacity_bytes: wire.capacity_bytes.get(),
            checkpoint: ChainStart { first: wire.checkpoint_first.get(), nonce: wire.checkpoint_nonce.get() },
            checkpoint_bytes: wire.checkpoint_bytes.get(),
            directory_at: wire.directory_at.map(|at| at.get()),
            directory_bytes: wire.directory_bytes.get(),
            directory_crc: wire.directory_crc.get(),
            journal: ChainStart { first: wire.journal_first.get(), nonce: wire.journal_nonce.get() },
            journal_lsn: wire.journal_lsn.get(),
            clean: (wire.clean.get() == 1).then(|| (wire.clean_lsn.get(), open)),
            placement: name_of(&wire.placement),
            victim: name_of(&wire.victim),
        })
    }

    /// Writes this superblock to slot 0 or 1, without a barrier.
    pub fn write(&self, media: &dyn Media, slot: usize) -> Result<()> {
        media.write_at(slot as u64 * SUPERBLOCK_BYTES, self.to_wire().as_bytes())
    }
}

/// Reads the intact superblocks, each with its slot, the newest first; at least one.
///
/// # Errors
/// [`Error::NotAStore`] if neither slot has the magic number, [`Error::Version`] for a newer format, [`Error::Corrupt`]
/// if the slots with the magic number are damaged.
pub fn read_slots(media: &dyn Media, name: &str) -> Result<Vec<(usize, Superblock)>> {
    let not_ours = |what: &str| Error::NotAStore { path: name.to_owned(), what: what.to_owned() };
    if media.len() < 2 * SUPERBLOCK_BYTES {
        return Err(not_ours(&format!("it has {} bytes, too few for a store", media.len())));
    }
    let mut found = Vec::new();
    let mut ours = 0;
    for slot in 0..2 {
        let mut bytes = vec![0; SUPERBLOCK_BYTES as usize];
        media.read_at(slot as u64 * SUPERBLOCK_BYTES, &mut bytes)?;
        let wire = SuperblockWire::read_from_bytes(&bytes).expect("the slot has the size of the struct");
        if wire.magic != MAGIC {
            continue;
        }
        ours += 1;
        // The CRC is checked first, so that damage to the version is not reported as a newer format.
        if wire.crc.get() != wire.crc_of_rest() {
            continue;
        }
        let version = wire.version.get();
        if !(1..=FORMAT_VERSION).contains(&version) {
            return Err(Error::Version { found: version, known: FORMAT_VERSION });
        }
        found.push((slot, Superblock::from_wire(&wire)?));
    }
    match (found.is_empty(), ours) {
        (true, 0) => Err(not_ours("it does not begin with the magic number of a store")),
        (true, _) => Err(Error::corrupt("no superblock is intact")),
        (false, _) => {
            found.sort_by_key(|(_, s)| std::cmp::Reverse(s.generation));
            Ok(found)
        }
    }
}

/// Whether a slot has only zeroes, so that it was never written.
///
/// # Errors
/// [`crate::error::Error::Media`]: the medium cannot be read.
pub fn is_blank(media: &dyn Media, slot: usize) -> Result<bool> {
    let mut bytes = vec![0; SUPERBLOCK_BYTES as usize];
    media.read_at(slot as u64 * SUPERBLOCK_BYTES, &mut bytes)?;
    Ok(bytes.iter().all(|&b| b == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::memory::MemoryMedia;

    fn some() -> Superblock {
        Superblock {
            uuid: [7; 16],
            generation: 3,
            version: 3,
            geometry: Geometry::TINY,
            capacity_bytes: 0,
            checkpoint: ChainStart { first: 1, nonce: 2 },
            checkpoint_bytes: 100,
            directory_at: [3, 4],
            directory_bytes: 5,
            directory_crc: 6,
            journal: ChainStart { first: 7, nonce: 8 },
            journal_lsn: 9,
            clean: Some((10, Some(ResumePoint { segment: 11, crc: 12 }))),
            placement: "nds".into(),
            victim: "greedy".into(),
        }
    }

    #[test]
    fn the_newest_intact_slot_counts() {
        let media = MemoryMedia::with_bytes(vec![0; 65536]);
        assert!(matches!(read_slots(&media, "x"), Err(Error::NotAStore { .. })));
        some().write(&media, 0).unwrap();
        let newer = Superblock { generation: 4, clean: None, ..some() };
        newer.write(&media, 1).unwrap();
        assert_eq!(read_slots(&media, "x").unwrap(), [(1, newer), (0, some())]);
        media.write_at(SUPERBLOCK_BYTES + 100, &[0xff]).unwrap();
        assert_eq!(read_slots(&media, "x").unwrap(), [(0, some())]);
        media.write_at(100, &[0xff]).unwrap();
        assert!(matches!(read_slots(&media, "x"), Err(Error::Corrupt(_))));
    }

    #[test]
    fn numbers_out_of_range_are_refused_with_the_number() {
        let media = MemoryMedia::with_bytes(vec![0; 65536]);
        let told = |sb: Superblock| {
            sb.write(&media, 0).unwrap();
            read_slots(&media, "x").unwrap_err().to_string()
        };
        let far = ChainStart { first: 1 << 24, nonce: 8 };
        assert!(
            told(Superblock { journal: far, ..some() }).contains("journal_first is 16777216, not within 0..=16777215")
        );
        let geometry = Geometry { channels: 0, ..Geometry::TINY };
        assert!(told(Superblock { geometry, ..some() }).contains("channels is 0, not within 1..=4096"));
        assert!(told(Superblock { journal_lsn: 0, ..some() }).contains("journal_lsn is 0"));
    }

    #[test]
    fn the_future_is_refused_by_its_number() {
        let media = MemoryMedia::with_bytes(vec![0; 65536]);
        some().write(&media, 0).unwrap();
        media.write_at(8, &2u32.to_le_bytes()).unwrap();
        assert!(matches!(read_slots(&media, "x"), Err(Error::Corrupt(_))), "a flipped bit is not the future");
        let mut wire = some().to_wire();
        wire.version = U32::new(5);
        wire.crc = U32::new(wire.crc_of_rest());
        media.write_at(0, wire.as_bytes()).unwrap();
        assert!(matches!(read_slots(&media, "x"), Err(Error::Version { found: 5, known: 4 })));
    }
}
