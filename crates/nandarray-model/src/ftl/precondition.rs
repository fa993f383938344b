//! Preconditioning: brings a device into a used state without the modelled time of the writes, by a formula for a
//! sequential fill, or by random writes with immediate reclaim.

use super::{FtlError, PageMapped, ReclaimStep, Urgency};

impl PageMapped {
    /// Writes every logical page that is not mapped, in order. On a device that was never written this applies a
    /// formula and takes no memory. Counts of operations do not change.
    ///
    /// # Errors
    /// `NoSpace` if blocks failed before and too few are left.
    pub fn fill_sequential(&mut self) -> Result<(), FtlError> {
        let counts = self.counts.clone();
        let planes = self.planes();
        let even = (0..planes).all(|p| {
            let rows = self.map.fill.rows_of(p, self.lpas);
            rows <= self.blocks.planes[p as usize].live_max
        });
        if even && self.blocks.untouched() {
            self.map.fill_to(self.lpas);
            for plane in 0..planes {
                let rows = self.map.fill.rows_of(plane, self.lpas);
                self.blocks.fill(plane, rows, &self.map.fill);
                self.counts.given += u64::from(rows);
            }
        } else {
            for lpa in 0..self.capacity_pages() {
                if self.place_of(lpa)?.is_none() {
                    self.write_at_once(lpa)?;
                }
            }
        }
        let mut ops = Vec::new();
        for page in 0..self.owners - self.lpas {
            if self.map.get(self.lpas + page) == super::map::NOWHERE {
                self.write_map_page(page, &mut ops);
                ops.clear();
            }
        }
        let given = self.counts.given;
        self.counts = super::report::FtlCounts { given, grown_bad: self.counts.grown_bad, ..counts };
        Ok(())
    }

    /// Writes `writes` random pages of the first `working_set_pages`, with immediate reclaim, so that the device is as
    /// after long use. Counts of operations are reset afterwards; wear stays.
    ///
    /// # Errors
    /// `NoSpace` if too few good blocks are left.
    pub fn steady_state(&mut self, seed: u64, working_set_pages: u64, writes: u64) -> Result<(), FtlError> {
        let pages = working_set_pages.clamp(1, self.capacity_pages());
        let mut chance = fastrand::Rng::with_seed(seed);
        for _ in 0..writes {
            self.write_at_once(chance.u64(0..pages))?;
        }
        self.forget_counts();
        Ok(())
    }

    /// Writes a page, and runs all reclaim that the write requires.
    fn write_at_once(&mut self, lpa: u64) -> Result<(), FtlError> {
        // Without a clock no die is busy: dynamic striping uses one die after the other.
        let mut ops = Vec::new();
        let plane = loop {
            match self.write(lpa, true, 0, |_| 0, &mut ops) {
                Ok(done) if done.reclaim == Urgency::None => return Ok(()),
                Ok(done) => break done.plane,
                Err(FtlError::NotNow { plane }) => {
                    if !self.reclaim_at_once(plane)? {
                        return Err(self.no_space(lpa as u32));
                    }
                }
                Err(e) => return Err(e),
            }
        };
        self.reclaim_at_once(plane)?;
        Ok(())
    }

    /// Runs one reclaim job of a plane to its end; returns `false` if none was due.
    ///
    /// # Errors
    /// `NoSpace` if the job found no room for a page.
    pub fn reclaim_at_once(&mut self, plane: u32) -> Result<bool, FtlError> {
        let mut worked = false;
        loop {
            match self.step(plane) {
                ReclaimStep::Move(moved) => {
                    self.relocate(&moved)?;
                    worked = true;
                }
                ReclaimStep::Erase { place, .. } => {
                    self.erased(place);
                    return Ok(true);
                }
                ReclaimStep::Wait | ReclaimStep::Idle => return Ok(worked),
            }
        }
    }
}
