//! The wire format of journal records and of a checkpoint's directory and indexes, in Postcard
//! (docs/reference/file-format.md).
//!
//! The types here define the format: changing one requires a new version of the file format. Their fields hold the
//! state to restore.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::flash::geometry::SEGMENTS_MAX;
use crate::flash::{Geometry, Ppa, Run};
use crate::ftl::superblock::SNAPSHOT_FORMAT;
use crate::stl::index::{BlockMap, Builder, Index};
use crate::stl::space::{SpaceId, SpaceRecord, WireRuns, to_wire};
use crate::stl::write::Gone;

/// One change of the store's state in a journal record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum JournalOp {
    /// A space was created.
    Create(SpaceRecord),
    /// A space was deleted, and its pages freed.
    Delete(SpaceId),
    /// A space got a new shape.
    Resize(SpaceId, Vec<u64>),
    /// A space got new attributes.
    Attrs(SpaceId, String),
    /// A space got a new name.
    Rename(SpaceId, String),
    /// A building block got new pages, or lost some.
    Update(Update),
    /// The journal continues in another chain of segments, which begins with the next record.
    Switch {
        /// First segment of the chain in which the journal continues.
        first: u32,
        /// Random number that the links of the new chain carry, to tell them from links of older chains.
        nonce: u64,
    },
    /// A snapshot was taken: it has all spaces as the changes before this one left them.
    Snapshot {
        /// Name of the snapshot.
        name: String,
        /// Time at which it was taken, as the caller told it.
        time: u64,
        /// Sequence number of the command that took it; commands before it have smaller ones.
        seq: u64,
    },
    /// A snapshot was deleted, and the pages freed that only it had.
    DeleteSnapshot(String),
    /// Pages of a building block were moved, in all versions of the space that have them.
    Move(MovedPages),
}

/// Pages of a building block that were moved, in a space of which snapshots keep versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MovedPages {
    /// Number of the block's space.
    pub(super) space: SpaceId,
    /// Sequence number of the command that wrote the pages' content.
    pub(super) seq: u64,
    /// Coordinate of the block, in blocks.
    pub(super) at: Vec<u64>,
    /// The pages before, as runs: (first access unit, number of units, first page).
    pub(super) from: WireRuns,
    /// The pages of the same units after.
    pub(super) to: WireRuns,
}

/// A change of the pages of a building block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Update {
    /// Number of the block's space.
    pub(super) space: SpaceId,
    /// Sequence number of the command that wrote the new pages' content, which their out-of-band records carry.
    pub(super) seq: u64,
    /// Coordinate of the block, in blocks.
    pub(super) at: Vec<u64>,
    /// Ranges of access units (first, end) that lose their page; `None` means all units.
    pub(super) gone: Option<Vec<(u32, u32)>>,
    /// New pages as runs: (first access unit, number of units, first page).
    pub(super) runs: WireRuns,
}

impl Update {
    /// Creates the change of a block: its units `gone` lose their pages, and it gets the pages `runs`. Replay rejects a
    /// record that would fail an assertion here.
    pub(super) fn new(space: SpaceId, seq: u64, at: &[u64], gone: &Gone, runs: &[Run]) -> Self {
        for run in runs {
            let replaced = gone.has(run.unit) && gone.has(run.end() - 1);
            assert!(run.count > 0 && replaced, "{run:?} of space {space}, block {at:?}, maps units twice: {gone:?} go");
        }
        assert!(runs.is_sorted_by(|a, b| a.end() <= b.unit), "runs of space {space}, block {at:?}: {runs:?}");
        Self { space, seq, at: at.to_vec(), gone: Self::wire_gone(gone), runs: to_wire(runs) }
    }

    /// Returns the access units that lose their page.
    pub(super) fn gone(&self) -> Gone {
        match &self.gone {
            None => Gone::All,
            Some(ranges) => Gone::Units(ranges.iter().map(|&(a, b)| a..b).collect()),
        }
    }

    /// Converts the units that lose their page to the form of the field `gone`; `None` stands for all units.
    fn wire_gone(gone: &Gone) -> Option<Vec<(u32, u32)>> {
        match gone {
            Gone::All => None,
            Gone::Units(ranges) => Some(ranges.iter().map(|r| (r.start, r.end)).collect()),
        }
    }

    /// Returns the new pages.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if these are not valid runs in ascending order.
    pub(super) fn runs(&self) -> Result<Vec<Run>> {
        from_wire(&self.runs)
    }
}

/// Converts runs from their stored form, and checks that they are valid and in ascending order.
pub(super) fn from_wire(wire: &WireRuns) -> Result<Vec<Run>> {
    let mut next = 0u64;
    wire.iter()
        .map(|&(unit, count, ppa)| {
            let end = u64::from(unit) + u64::from(count);
            let sound = u64::from(unit) >= next && count > 0 && end <= 1 << 16 && ppa < 1 << 48;
            next = end;
            if sound {
                Ok(Run { unit, count, ppa: Ppa(ppa) })
            } else {
                Err(Error::corrupt("a list of pages makes no sense"))
            }
        })
        .collect()
}

/// Payload of a journal record.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct RecordBody {
    /// The highest command sequence number in use when the record was written.
    pub(super) seq: u64,
    /// The changes, in the order in which they were made.
    pub(super) ops: Vec<JournalOp>,
}

/// State of a segment in the checkpoint's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SegmentEntry {
    /// Number of live pages.
    pub(super) live: u32,
    /// Number of times that the segment was opened for writing.
    pub(super) erases: u32,
    /// Whether a write to the segment failed, so that it is not used any more.
    pub(super) bad: bool,
}

/// Place of an index in the checkpoint's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IndexPlace {
    /// Offset in the stream, in bytes.
    pub(super) at: u64,
    /// Length of the index in bytes.
    pub(super) bytes: u64,
    /// CRC-32C of the stored index.
    pub(super) crc: u32,
    /// Number of building blocks in the index.
    pub(super) blocks: u64,
}

/// A space in the checkpoint's directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SpaceEntry {
    /// Name, shape and other properties of the space.
    pub(super) record: SpaceRecord,
    /// Place of the space's index.
    pub(super) index: IndexPlace,
}

/// The directory of a checkpoint: all spaces and segments.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Directory {
    /// The highest command sequence number in use.
    pub(super) seq: u64,
    /// Number of the next space to be created.
    pub(super) next_space: SpaceId,
    /// All segments up to the last one in use, in order.
    pub(super) segments: Vec<SegmentEntry>,
    /// All spaces.
    pub(super) spaces: Vec<SpaceEntry>,
}

/// A snapshot in the checkpoint's directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SnapshotEntry {
    /// Name of the snapshot.
    pub(super) name: String,
    /// Time at which it was taken, as the caller told it.
    pub(super) time: u64,
    /// Sequence number of the command that took it.
    pub(super) seq: u64,
    /// The versions of spaces that it keeps, with the numbers of these spaces.
    pub(super) spaces: Vec<SpaceEntry>,
}

/// Encodes a directory; its snapshots follow it from format version [`SNAPSHOT_FORMAT`] on.
pub(super) fn encode_directory(directory: &Directory, snapshots: &[SnapshotEntry], version: u32) -> Vec<u8> {
    let bytes = postcard::to_stdvec(directory).expect("a Vec takes any directory");
    assert!(snapshots.is_empty() || version >= SNAPSHOT_FORMAT, "snapshots in a store of format version {version}");
    if version < SNAPSHOT_FORMAT {
        return bytes;
    }
    postcard::to_extend(snapshots, bytes).expect("a Vec takes any directory")
}

/// Decodes a directory and its snapshots.
///
/// # Errors
/// [`Error::Corrupt`] if the bytes are no directory.
pub(super) fn decode_directory(bytes: &[u8], version: u32) -> Result<(Directory, Vec<SnapshotEntry>)> {
    let bad = |e: postcard::Error| Error::corrupt(format!("the directory cannot be read: {e}"));
    let (directory, rest) = postcard::take_from_bytes(bytes).map_err(bad)?;
    let snapshots = if version < SNAPSHOT_FORMAT { vec![] } else { postcard::from_bytes(rest).map_err(bad)? };
    Ok((directory, snapshots))
}

/// Encodes an index: all blocks in order, each as the number of leading coordinates equal to those of the block before,
/// the other coordinates, and the runs.
pub(super) fn encode_index(index: &Index) -> Vec<u8> {
    let mut out = Vec::new();
    let mut last: Vec<u64> = Vec::new();
    let mut next_ppa = 0u64;
    index.for_each(&mut |at, map| {
        assert!(last.is_empty() || last.as_slice() < at, "an index gives blocks in order: {last:?}, then {at:?}");
        let shared = at.iter().zip(&last).take_while(|(a, b)| a == b).count();
        let mut put = |v: u64| out = postcard::to_extend(&v, std::mem::take(&mut out)).expect("a Vec takes any byte");
        put(shared as u64);
        for (i, &coordinate) in at.iter().enumerate().skip(shared) {
            // The first coordinate that is not shared is larger than before, so the difference is stored.
            put(if i == shared && last.len() > i { coordinate - last[i] } else { coordinate });
        }
        let runs: Vec<Run> = map.runs().collect();
        put(runs.len() as u64);
        for run in runs {
            put(u64::from(run.unit));
            put(u64::from(run.count));
            put(zigzag(run.ppa.0.wrapping_sub(next_ppa) as i64));
            next_ppa = run.ppa.0 + u64::from(run.count);
        }
        last.clear();
        last.extend_from_slice(at);
    });
    out
}

fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

/// Decodes one number from the front of `bytes` (LEB128, as Postcard writes a `u64`); `None` if it is cut off or too
/// large.
fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        shift += 7;
    }
}

/// Decodes an index written by [`encode_index`]. All its pages have valid addresses, but may lie beyond the medium's
/// end.
///
/// # Errors
/// [`Error::Corrupt`] if the bytes are not such an index.
pub(super) fn decode_index(mut bytes: &[u8], dimensions: usize, geometry: &Geometry) -> Result<Index> {
    let bad = || Error::corrupt("an index cannot be read");
    let mut builder = Builder::new(dimensions);
    let mut at: Vec<u64> = Vec::with_capacity(dimensions);
    let mut next_ppa = 0u64;
    while !bytes.is_empty() {
        let shared = take(&mut bytes).ok_or_else(bad)? as usize;
        if shared >= dimensions || (at.is_empty() && shared > 0) {
            return Err(bad());
        }
        let before = at.get(shared).copied().unwrap_or(0);
        at.truncate(shared);
        at.push(take(&mut bytes).and_then(|step| step.checked_add(before)).ok_or_else(bad)?);
        while at.len() < dimensions {
            at.push(take(&mut bytes).ok_or_else(bad)?);
        }
        let count = take(&mut bytes).ok_or_else(bad)?;
        let mut one = || -> Result<(u32, u32, u64)> {
            let mut number = || take(&mut bytes).ok_or_else(bad);
            let (unit, units) = (number()?, number()?);
            let ppa = next_ppa.wrapping_add(unzigzag(number()?) as u64);
            next_ppa = ppa.wrapping_add(units);
            let narrow = |v: u64| u32::try_from(v).map_err(|_| bad());
            let run = Run { unit: narrow(unit)?, count: narrow(units)?, ppa: Ppa(ppa) };
            if run.count > 1 << 16 || !geometry.has_run(run, SEGMENTS_MAX) {
                return Err(Error::corrupt(format!(
                    "an index maps {units} units from page {ppa} on, which no segment has"
                )));
            }
            Ok((run.unit, run.count, ppa))
        };
        let map = if count == 1 {
            match one()? {
                (0, units, ppa) => BlockMap::one_run(units, Ppa(ppa)),
                run => BlockMap::from_runs(from_wire(&vec![run])?),
            }
        } else {
            let mut runs = WireRuns::new();
            for _ in 0..count {
                runs.push(one()?);
            }
            BlockMap::from_runs(from_wire(&runs)?)
        };
        if !builder.push(&at, map.ok_or_else(bad)?) {
            return Err(bad());
        }
    }
    Ok(builder.finish())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A geometry of large segments, so that there are many pages.
    const WIDE: Geometry = Geometry { pages_per_block: 1 << 12, ..Geometry::FILE };

    #[test]
    fn only_a_store_with_snapshots_has_them_in_its_directory() {
        let directory = Directory { seq: 7, next_space: 3, ..Directory::default() };
        let snapshot = SnapshotEntry { name: "a".to_owned(), time: 1, seq: 2, spaces: vec![] };
        let old = encode_directory(&directory, &[], SNAPSHOT_FORMAT - 1);
        assert_eq!(old, postcard::to_stdvec(&directory).unwrap());
        let new = encode_directory(&directory, std::slice::from_ref(&snapshot), SNAPSHOT_FORMAT);
        let (back, snapshots) = decode_directory(&new, SNAPSHOT_FORMAT).unwrap();
        assert_eq!((back.seq, snapshots.len(), &*snapshots[0].name), (7, 1, "a"));
        assert!(decode_directory(&old, SNAPSHOT_FORMAT - 1).unwrap().1.is_empty());
        assert!(decode_directory(&old, SNAPSHOT_FORMAT).is_err());
    }

    #[test]
    fn pages_that_no_segment_has_are_refused() {
        let read = |ppa, count| {
            let mut index = Index::new(1);
            index.set(&[0], BlockMap::from_runs(vec![Run { unit: 0, count, ppa: Ppa(ppa) }]));
            decode_index(&encode_index(&index), 1, &Geometry::TINY)
        };
        assert!(read(31, 1).is_ok() && read(33, 32).is_ok());
        let pages = (1 << 24) * 33;
        for (ppa, count) in [(31, 2), (32, 1), (pages, 1), (1 << 47, 1), (0, 33)] {
            let e = read(ppa, count).unwrap_err().to_string();
            assert!(e.contains(&format!("{count} units from page {ppa} on")), "{e}");
        }
    }

    /// Generates blocks by coordinate: the number of units of the first run, the place of its page, and whether there
    /// is a second run.
    fn blocks() -> impl Strategy<Value = BTreeMap<Vec<u64>, (u32, u64, bool)>> {
        let at = prop::collection::vec(prop_oneof![0u64..4, Just(u64::MAX)], 3);
        prop::collection::btree_map(at, (1u32..60, 0u64..1 << 40, any::<bool>()), 0..40)
    }

    proptest! {
        #[test]
        fn an_index_round_trips(blocks in blocks()) {
            let mut index = Index::new(3);
            for (at, (count, ppa, split)) in &blocks {
                let ppa = WIDE.ppa((ppa >> 16) as u32, *ppa as u32 & 0xffff);
                let mut runs = vec![Run { unit: 0, count: *count, ppa }];
                if *split { runs.push(Run { unit: *count + 3, count: 2, ppa: Ppa(7) }); }
                index.set(at, BlockMap::from_runs(runs));
            }
            let bytes = encode_index(&index);
            let back = decode_index(&bytes, 3, &WIDE).unwrap();
            prop_assert_eq!(back.blocks(), index.blocks());
            index.for_each(&mut |at, map| assert_eq!(back.get(at), Some(map)));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), dimensions in 1usize..4) {
            let _ = decode_index(&bytes, dimensions, &WIDE);
        }
    }
}
