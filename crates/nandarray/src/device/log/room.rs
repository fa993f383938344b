//! Disk blocks for the journal, allocated before a command needs them.

use std::sync::atomic::Ordering;

use super::Log;
use crate::device::Device;
use crate::error::Result;

/// Number of bytes of the journal, beyond the pending changes, for which disk blocks are allocated in advance.
const JOURNAL_BYTES_AHEAD: u64 = 16 << 10;
/// Limits [`JOURNAL_BYTES_AHEAD`] to a segment's bytes divided by this.
const JOURNAL_AHEAD_PART: u64 = 4;
/// Estimated bytes of a change in a journal record.
const CHANGE_BYTES: u64 = 64;
/// Estimated bytes in a journal record for each page of the write buffer.
const BUFFERED_PAGE_BYTES: u64 = 32;

impl Device {
    /// Prepares the journal for a command that adds data: checks that no barrier has failed, commits changes of earlier
    /// commands that could not be committed, and allocates room for the record of a deletion.
    pub(in crate::device) fn ready(&self) -> Result<()> {
        self.sound()?;
        if self.behind.load(Ordering::Relaxed) {
            self.commit_with_room(false)?;
        }
        self.ftl.allocate_spare()?;
        self.hold_journal(0)
    }

    /// Allocates disk blocks for the next journal records: for the pending changes and `more` bytes.
    pub(in crate::device) fn hold_journal(&self, more: u64) -> Result<()> {
        self.allocate_journal(&mut self.log.lock(), more)
    }

    /// Allocates disk blocks for the next records and `more` bytes, so that a deletion can be recorded even when the
    /// disk is full. Allocates no further than the end of the journal's last segment, which the spare segment follows.
    pub(super) fn allocate_journal(&self, log: &mut Log, more: u64) -> Result<()> {
        let Some(chain) = &log.chain else { return Ok(()) };
        let ahead = JOURNAL_BYTES_AHEAD.min(self.geometry().segment_data_bytes() / JOURNAL_AHEAD_PART);
        let known = log.pending.len() as u64 * CHANGE_BYTES + self.ftl.promised() * BUFFERED_PAGE_BYTES + more;
        let end = log.at + chain.room_from(log.at);
        if log.allocated_to < end.min(log.at + known + ahead / 2) {
            let to = end.min(log.at + known + ahead);
            assert!(log.at <= to && to <= end, "room from {} to {to} of a journal that ends at {end}", log.at);
            chain.next_bytes(log.at, to - log.at).try_for_each(|(offset, len)| self.ftl.hold(offset, len))?;
            log.allocated_to = to;
        }
        Ok(())
    }
}
