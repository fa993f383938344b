//! Lost power under the modelled clock: what of the medium was in the flash at that moment.
//!
//! The engine is ahead of the modelled clock by the command that it executes: its writes are on the medium before their
//! programs have ended. A [`WriteLog`] keeps every write; with the programs that had ended when the power failed it
//! tells which bytes a real device would still have: a page (and the record beside it) if its program had ended; a
//! superblock, which the controller writes behind a barrier, if every program before it had; lengths and segment
//! headers, which are the controller's own, if they were written at all. A page whose program was under way keeps what
//! it had.

use std::collections::BTreeMap;

use nandarray::{Media, Result, SparseMedia};

use crate::flash::PageAddress;

/// A write of the engine.
#[derive(Clone, Debug)]
pub(super) enum Written {
    /// The medium was given a length.
    Length(u64),
    /// A superblock, or something else in the head.
    Head(u64, Vec<u8>),
    /// The controller's own: a segment's header and empty records.
    Own(u64, Vec<u8>),
    /// Pages from an offset on, the first from byte `within` of it; the place of each.
    Pages { offset: u64, within: usize, bytes: Vec<u8>, places: Vec<PageAddress> },
    /// Records of pages, each with the place of its page; bytes of one record.
    Records(u64, Vec<u8>, Vec<PageAddress>),
}

/// Every write since a medium was made.
#[derive(Debug, Default)]
pub struct WriteLog {
    pub(super) writes: Vec<Written>,
}

impl WriteLog {
    /// How many writes there were.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// The medium as it is when the power comes back: all of the first `before` writes, whose programs are known to
    /// have ended, and of the following up to `writes` those whose programs are among `ended`.
    ///
    /// # Errors
    /// None that a medium in memory has.
    pub fn survives(
        &self,
        before: usize,
        writes: usize,
        ended: &BTreeMap<PageAddress, u32>,
        page_bytes: usize,
    ) -> Result<SparseMedia> {
        let medium = SparseMedia::default();
        let mut issued: BTreeMap<PageAddress, u32> = BTreeMap::new();
        let mut all_ended = true;
        for (n, write) in self.writes[..writes].iter().enumerate() {
            match write {
                Written::Pages { offset, bytes, .. } | Written::Records(offset, bytes, _) if n < before => {
                    medium.write_at(*offset, bytes)?;
                }
                Written::Length(bytes) => medium.set_len(*bytes)?,
                Written::Own(offset, bytes) => medium.write_at(*offset, bytes)?,
                Written::Head(offset, bytes) if all_ended => medium.write_at(*offset, bytes)?,
                Written::Head(..) => {}
                Written::Pages { offset, within, bytes, places } => {
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
                Written::Records(offset, bytes, places) => {
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
