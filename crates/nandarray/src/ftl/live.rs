//! The end of a page's staging, and of its life: adopted or abandoned, later dead, free once its death is durable.

use super::Ftl;
use crate::error::Result;
use crate::flash::Run;
use crate::flash::geometry::OOB_BYTES;

impl Ftl {
    /// Makes staged pages live, when their command is applied.
    pub fn adopt(&self, runs: &[Run]) {
        self.state.lock().segments.adopt(runs);
    }

    /// Drops staged pages of a failed command. Wipes their out-of-band records, so that no scan mistakes the pages for
    /// live.
    pub fn abandon(&self, runs: &[Run]) {
        self.abandon_all(runs, self.is_tight());
    }

    /// Drops staged pages as [`Self::abandon`] does, and deallocates their disk blocks at once: no record names them,
    /// so no reader has them.
    pub fn give_back(&self, runs: &[Run]) {
        self.abandon_all(runs, true);
    }

    fn abandon_all(&self, runs: &[Run], discards: bool) {
        for run in runs {
            let wipe = vec![0; run.count as usize * OOB_BYTES as usize];
            // If the medium fails here, recovery still knows from the journal that no command owns these pages.
            let _ = self.media.write_at(self.geometry.oob_offset(run.ppa), &wipe);
        }
        if discards {
            runs.iter().for_each(|run| self.discard_pages(*run));
        }
        let s = &mut *self.state.lock();
        let freed = s.segments.abandon(runs, discards, s.next_lsn);
        self.report_freed(&freed);
    }

    /// Marks live pages as dead, because they were superseded.
    pub fn release(&self, runs: impl Iterator<Item = Run>) {
        let s = &mut *self.state.lock();
        for run in runs {
            s.segments.release(run, s.next_lsn);
        }
    }

    /// Frees segments whose freeing record is durable (its number is at most `durable_lsn`), unless another process
    /// reads the medium.
    pub fn free_durable(&self, durable_lsn: u64) -> Result<()> {
        if !self.state.lock().segments.has_frees_by(durable_lsn) {
            return Ok(());
        }
        let mut freed = Vec::new();
        self.media.if_no_readers(&mut || {
            let segments = &mut self.state.lock().segments;
            freed = segments.free_durable(durable_lsn);
            debug_assert!(!segments.has_frees_by(durable_lsn), "segments wait for record {durable_lsn}");
            Ok(())
        })?;
        self.report_freed(&freed);
        Ok(())
    }
}
