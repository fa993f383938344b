//! Entry points that run to their end at once: their bytes are computed when they are called, and the core spends their
//! ticks as soon as it runs nothing else.
//!
//! A core that runs a task owes these ticks until the task is over; those that no later job has spent are spent at the
//! end of the run. Their waits for lines take a fixed time.

use nandarray_cores::RunError;

use super::{AtEnd, CoreState, TimedRun};

impl TimedRun<'_, '_, '_> {
    /// Calls an entry point, which runs to its end at once; the core spends its ticks now, or before its next task.
    /// Returns whether the core works on them now.
    pub(super) fn entry_point(&mut self, core: usize, slot: usize) -> Result<bool, RunError> {
        let on = self.slots[core].slots[slot].as_mut().expect("a slot with a job");
        let (before, instructions) = (self.cores.spent(), on.job.instructions());
        let done = on.job.call();
        let executed = on.job.instructions() - instructions;
        self.clock.with(|state| state.programs.instructions += executed);
        self.slots[core].debt += self.cores.spent() - before;
        done?;
        Ok(self.spend(core, slot))
    }

    /// Makes a core spend the ticks that it owes for entry points, if it runs nothing else. Returns whether the core
    /// works on them now.
    pub(super) fn spend(&mut self, core: usize, slot: usize) -> bool {
        let idle = self.slots[core].active.is_none() && self.slots[core].at_end.is_none();
        if !idle || self.slots[core].debt == 0 {
            return false;
        }
        let debt = std::mem::take(&mut self.slots[core].debt);
        self.slots[core].active = Some(slot);
        self.set_state(core, CoreState::Running);
        self.slots[core].at_end = Some(AtEnd::Settled);
        let time = self.cores.tick() * debt;
        self.clock.with(|state| state.programs.entry_ticks += debt);
        self.crew.work(core, 0, time);
        true
    }

    /// Makes cores spend, at the end of a run, the ticks that they still owe for entry points.
    pub(super) fn spend_leftovers(&mut self) {
        for core in 0..self.slots.len() {
            let debt = std::mem::take(&mut self.slots[core].debt);
            if debt > 0 {
                self.slots[core].at_end = Some(AtEnd::Leftover);
                self.set_state(core, CoreState::Running);
                let time = self.cores.tick() * debt;
                self.clock.with(|state| state.programs.entry_ticks += debt);
                self.crew.occupy(core, true);
                self.crew.work(core, 0, time);
            }
        }
    }
}
