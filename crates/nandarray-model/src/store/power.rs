//! Power failure on the modelled clock: the contents of the flash at that moment.
//!
//! The engine is ahead of the modelled clock by the command that it executes: its writes are on the medium before
//! their modelled programs have ended. A [`WriteLog`] keeps every write. Together with the programs that had ended
//! when the power failed, it gives the bytes that a real device would still hold. A page and its out-of-band record
//! are there if the page's program had ended; a superblock, which the controller writes after a barrier, if every
//! program before it had ended; lengths and segment headers, which the controller keeps itself, if they were written
//! at all. A page whose program was in flight keeps its old content.

use std::collections::BTreeMap;

use nandarray::{Media, Result, SparseMedia};

use crate::flash::PageAddress;

/// A write of the engine, at an offset of the medium in bytes.
#[derive(Clone, Debug)]
pub(super) enum LoggedWrite {
    /// A new length of the medium.
    Length(u64),
    /// A write to the head of the medium, such as a superblock.
    Head(u64, Vec<u8>),
    /// A write to memory of the controller: a segment's header and empty records.
    Own(u64, Vec<u8>),
    /// A write to pages, which begins at byte `within` of the first page, with the flash address of each page.
    Pages { offset: u64, within: usize, bytes: Vec<u8>, places: Vec<PageAddress> },
    /// A write of out-of-band records, with the flash address of each record's page.
    Records(u64, Vec<u8>, Vec<PageAddress>),
}

/// Log of every write to a medium since it was made.
#[derive(Debug, Default)]
pub struct WriteLog {
    pub(super) writes: Vec<LoggedWrite>,
}

impl WriteLog {
    /// Returns the number of writes in the log.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Returns the medium as it is when the power comes back: all of the first `before` writes, whose programs are
    /// known to have ended, and of the following writes up to `writes` those whose programs are among `ended`.
    ///
    /// # Errors
    /// Only those of a medium in memory, which has none.
    pub fn survives(
        &self,
        before: usize,
        writes: usize,
        ended: &BTreeMap<PageAddress, u32>,
        page_bytes: usize,
    ) -> Result<SparseMedia> {
        assert!(before <= writes && writes <= self.len(), "{before}, {writes} of {} writes", self.len());
        let medium = SparseMedia::default();
        let mut issued: BTreeMap<PageAddress, u32> = BTreeMap::new();
        let mut all_ended = true;
        for (n, write) in self.writes[..writes].iter().enumerate() {
            match write {
                LoggedWrite::Pages { offset, bytes, .. } | LoggedWrite::Records(offset, bytes, _) if n < before => {
                    medium.write_at(*offset, bytes)?;
                }
                LoggedWrite::Length(bytes) => medium.set_len(*bytes)?,
                LoggedWrite::Own(offset, bytes) => medium.write_at(*offset, bytes)?,
                LoggedWrite::Head(offset, bytes) if all_ended => medium.write_at(*offset, bytes)?,
                LoggedWrite::Head(..) => {}
                LoggedWrite::Pages { offset, within, bytes, places } => {
                    let mut from = 0;
                    for (i, place) in places.iter().enumerate() {
                        let end = ((i + 1) * page_bytes - within).min(bytes.len());
                        let count = issued.entry(*place).or_default();
                        *count += 1;
                        if ended.get(place).is_some_and(|done| done >= count) {
                            medium.write_at(offset + from as u64, &bytes[from..end])?;
                        } else {
                            all_ended = false;
                        }
                        from = end;
                    }
                }
                LoggedWrite::Records(offset, bytes, places) => {
                    let each = bytes.len() / places.len();
                    for (i, place) in places.iter().enumerate() {
                        let count = issued.get(place).copied().unwrap_or(0);
                        if count == 0 || ended.get(place).is_some_and(|&done| done >= count) {
                            medium.write_at(offset + (i * each) as u64, &bytes[i * each..][..each])?;
                        }
                    }
                }
            }
        }
        Ok(medium)
    }
}
