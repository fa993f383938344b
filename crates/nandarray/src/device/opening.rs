//! Journal records that were ignored when a store was opened, for `check` and for callers of `open`.
//!
//! A loss of power leaves journal records that no flush has made durable; opening drops these, from the first
//! incomplete one on. Durable records are dropped only by a salvage, which counts as damage. `recover` decides which
//! records are dropped; this file only describes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::Catalog;
use super::salvage::Rebuilt;
use super::wire::{JournalOp, RecordBody};
use crate::stl::space::SpaceId;

/// Facts about a store that were found when it was opened.
#[derive(Debug, Default)]
pub(super) struct Opening {
    /// Journal records that were ignored; `None` if all were applied.
    pub(super) dropped: Option<Dropped>,
    /// The reason why the newest checkpoint was unusable and the one before it was read; `None` if the newest was used.
    pub(super) passed_over: Option<String>,
    /// Whether one of the superblocks was damaged.
    pub(super) superblock_damaged: bool,
    /// Whether opening wrote a new checkpoint, and with it replaced a damaged superblock or an unusable checkpoint.
    pub(super) written_anew: bool,
    /// Whether a crash interrupted the creation of the store before its second superblock was written; nothing had been
    /// flushed by then.
    pub(super) unfinished: bool,
    /// Indexes that were rebuilt because the store was opened for salvage.
    pub(super) rebuilt: Rebuilt,
}

impl Opening {
    /// Describes the damage that opening has repaired, one text for each.
    pub(super) fn mended(&self) -> Vec<String> {
        let passed_over = self.passed_over.as_ref().map(|why| {
            format!("the newest checkpoint could not be used ({why}), the one before it was, and a new one was written")
        });
        let superblock = "one of the two superblocks was damaged, and was written anew when the store was opened";
        let damaged = self.superblock_damaged.then(|| superblock.to_owned());
        passed_over.into_iter().chain(damaged).filter(|_| self.written_anew).collect()
    }
}

/// Journal records that were written, but ignored when the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Number of the first ignored record.
    pub first: u64,
    /// Number of the last ignored record, as far as it is known.
    pub last: u64,
    /// Whether the first ignored record was durable, so that flushed data is lost. Otherwise no flush had covered any
    /// of them.
    pub durable: bool,
    /// Names of arrays that the ignored records change, if the records can be read; `number N` for an array without a
    /// known name.
    pub arrays: Vec<String>,
    /// Number of pages, written after the last applied record, that a salvage could add to their arrays.
    pub pages_taken: u64,
    /// Number of pages, written after the last applied record, whose array is unknown or whose place in the array is.
    pub pages_lost: u64,
}

impl Dropped {
    /// Returns the number of ignored records.
    pub fn records(&self) -> u64 {
        assert!(self.first <= self.last, "records {} to {} were ignored", self.first, self.last);
        self.last - self.first + 1
    }

    /// Sets `arrays` to the names of the arrays that the records with these payloads change.
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
                    JournalOp::Move(moved) => moved.space,
                    JournalOp::Switch { .. } | JournalOp::Snapshot { .. } | JournalOp::DeleteSnapshot(_) => continue,
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
