//! Journal records that opening a store left out, for `check` and for callers of `open`.
//!
//! A loss of power leaves journal records that no flush had promised; opening drops those from the first that is not
//! whole. Records that were durable are dropped only by a salvage, and that is damage. `recover` decides; this file
//! only describes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::Catalog;
use super::salvage::Rebuilt;
use super::wire::{JournalOp, RecordBody};
use crate::stl::space::SpaceId;

/// Findings of opening, beside the store itself.
#[derive(Debug, Default)]
pub(super) struct Opening {
    /// The journal's records that are not part of the store.
    pub(super) dropped: Option<Dropped>,
    /// The reason why the newest checkpoint could not be used, if the one before was read instead.
    pub(super) passed_over: Option<String>,
    /// Whether one of the superblocks was damaged.
    pub(super) superblock_damaged: bool,
    /// Whether a new checkpoint was made, and with it the superblock that was damaged or passed over.
    pub(super) written_anew: bool,
    /// Whether the store's second superblock was not written yet, and nothing had been flushed: the making of the store
    /// was cut short behind the point from which it is one.
    pub(super) unfinished: bool,
    /// Indexes that a salvage rebuilt.
    pub(super) rebuilt: Rebuilt,
}

impl Opening {
    /// Damage that opening has repaired, in words.
    pub(super) fn mended(&self) -> Vec<String> {
        let passed_over = self.passed_over.as_ref().map(|why| {
            format!("the newest checkpoint could not be used ({why}), the one before it was, and a new one was written")
        });
        let superblock = "one of the two superblocks was damaged, and was written anew when the store was opened";
        let damaged = self.superblock_damaged.then(|| superblock.to_owned());
        passed_over.into_iter().chain(damaged).filter(|_| self.written_anew).collect()
    }
}

/// Records of the journal that are not part of the store, though they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// The first record's number.
    pub first: u64,
    /// The last known record's number.
    pub last: u64,
    /// Whether the first of them was durable: they are lost to damage. Otherwise no flush had promised any of them.
    pub durable: bool,
    /// Arrays that they changed, as far as they can be read; those without a name that is known by their number.
    pub arrays: Vec<String>,
    /// Pages written since the last record that was applied, which a salvage gave to their arrays.
    pub pages_taken: u64,
    /// Pages written since then whose array or place in it is not known.
    pub pages_lost: u64,
}

impl Dropped {
    /// Number of records.
    pub fn records(&self) -> u64 {
        self.last - self.first + 1
    }

    /// Notes the names of the arrays that these records change.
    pub(super) fn name_arrays<'a>(&mut self, bodies: impl Iterator<Item = &'a [u8]>, catalog: &Catalog) {
        let mut made: BTreeMap<SpaceId, String> = BTreeMap::new();
        let mut names = BTreeSet::new();
        for body in bodies.filter_map(|payload| postcard::from_bytes::<RecordBody>(payload).ok()) {
            for op in body.ops {
                let id = match op {
                    JournalOp::Create(record) => {
                        made.insert(record.id, record.name);
                        record.id
                    }
                    JournalOp::Delete(id)
                    | JournalOp::Resize(id, _)
                    | JournalOp::Attrs(id, _)
                    | JournalOp::Rename(id, _) => id,
                    JournalOp::Update(update) => update.space,
                    JournalOp::Switch { .. } => continue,
                };
                let known = || catalog.by_id.get(&id).map(|space| space.peek().record.name.clone());
                names.insert(made.get(&id).cloned().or_else(known).unwrap_or_else(|| format!("number {id}")));
            }
        }
        self.arrays = names.into_iter().collect();
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.records();
        let records = if count == 1 { "record" } else { "records" };
        let range = if count == 1 { self.first.to_string() } else { format!("{} to {}", self.first, self.last) };
        if self.durable {
            write!(f, "the journal was damaged: {count} {records} ({range}) lost")?;
        } else {
            write!(f, "opening dropped {count} journal {records} ({range}) that no flush had promised")?;
        }
        match &self.arrays[..] {
            [] => {}
            [one] => write!(f, "; changed array {one:?}")?,
            many => write!(f, "; changed {} arrays: {many:?}", many.len())?,
        }
        if self.durable {
            write!(f, "; newer pages: {} taken, {} lost", self.pages_taken, self.pages_lost)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dropped_is_told_with_its_numbers() {
        let one = Dropped { first: 8, last: 8, arrays: vec!["a".to_owned()], ..Dropped::default() };
        assert_eq!(
            one.to_string(),
            "opening dropped 1 journal record (8) that no flush had promised; changed array \"a\""
        );
        let arrays = vec!["a".to_owned(), "number 3".to_owned()];
        let many = Dropped { first: 4, last: 7, durable: true, arrays, pages_taken: 13, pages_lost: 2 };
        assert_eq!(
            many.to_string(),
            "the journal was damaged: 4 records (4 to 7) lost; changed 2 arrays: [\"a\", \"number 3\"]; newer pages: \
             13 taken, 2 lost"
        );
    }
}
