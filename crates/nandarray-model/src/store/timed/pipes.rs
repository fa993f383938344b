//! Programs on cores of their own within a run: which job a core may get, and pages that go from core to core.

use nandarray_runtime::Next;

use super::{AtEnd, CoreSlots, CoreState, TimedRun};
use crate::machine::SpaceJobId;
use crate::store::connections::{PageRoom, StageOutput};
use nandarray_sim::Ps;

impl<'s, 'p> TimedRun<'_, 's, 'p> {
    /// Picks the next job and a core with a free slot for it, cores without a job first.
    pub(super) fn pick(&mut self) -> (Next<'s, 'p>, usize) {
        let with = |slots: usize| move |core: &CoreSlots<'_, '_>| core.slots.iter().flatten().count() == slots;
        let stages = self.crew.agenda.stages();
        if stages.iter().all(|stage| stage.cores.is_empty()) {
            let core = [0, 1].into_iter().find_map(|jobs| self.slots.iter().position(with(jobs)));
            return core.map_or((Next::Wait, 0), |core| (self.crew.agenda.pick(), core));
        }
        let may =
            |stage: usize, core: usize| stages[stage].cores.is_empty() || stages[stage].cores.contains(&(core as u32));
        for jobs in [0, 1] {
            for core in 0..self.slots.len() {
                if with(jobs)(&self.slots[core]) {
                    match self.crew.agenda.pick_among(&|stage| may(stage, core)) {
                        Next::Wait => {}
                        found => return (found, core),
                    }
                }
            }
        }
        if !self.crew.agenda.is_idle() {
            return (Next::Wait, 0);
        }
        // All wait for more than may be queued between them: the agenda allows it, and every core is free.
        let next = self.crew.agenda.pick();
        let core = match &next {
            Next::Job(job) => (0..self.slots.len()).find(|&core| may(job.stage(), core)).expect("a core of the stage"),
            Next::Wait | Next::Over => 0,
        };
        (next, core)
    }

    /// Handles the storing of whole pages of a connected output: the core holds them, waits for room, or sends them to
    /// DRAM.
    pub(super) fn stored_in_buffers(&mut self, core: usize, output: usize, bytes: u64) {
        let t_request = self.cores.compute.t_request;
        let (_, on) = self.active(core);
        let drained = on.call.as_ref().expect("a call that stores").drained[output];
        let room = self.connections.store(core, output, bytes - drained);
        if room == PageRoom::Wait {
            self.connections.wait(core, output, bytes);
            return self.set_state(core, CoreState::WaitsForRoom);
        }
        let (_, on) = self.active(core);
        on.call.as_mut().expect("a call that stores").drained[output] = bytes;
        let now = self.now();
        let end = self.clock.with(|state| {
            state.machine.manage(t_request);
            if room == PageRoom::Spill { state.machine.drain_output(core as u32, bytes - drained) } else { now }
        });
        self.go_on_at(core, end);
    }

    fn go_on_at(&mut self, core: usize, at: Ps) {
        if at > self.now() {
            self.set_state(core, CoreState::WaitsForRoom);
            self.hold(core, at, AtEnd::Resume);
        } else {
            self.run(core);
        }
    }

    /// Sends pages of a connected output, given by offset and bytes, to the core that has credits for them.
    pub(super) fn send(&mut self, job: SpaceJobId, of: StageOutput, pages: &[(u64, u64)]) {
        let t_request = self.cores.compute.t_request;
        for &(from, bytes) in pages {
            let (parts, freed) = self.connections.take(of, from, bytes);
            let end = self.clock.with(|state| {
                let mut end = state.machine.manage(t_request);
                for (holder, bytes) in parts {
                    end = end.max(state.machine.send_from(holder.map(|core| core as u32), bytes));
                }
                state.machine.credit(end, job, 1);
                end
            });
            for core in freed {
                // Only a core that waits for room stores again; it does so when the page has left.
                if let Some((output, bytes)) = self.connections.resume(core) {
                    self.hold(core, end, AtEnd::Retry(output, bytes));
                }
            }
        }
    }

    /// Makes the first core that waits for room send its pages to DRAM. Returns whether a core waited.
    pub(super) fn spill(&mut self) -> bool {
        let Some(core) = self.connections.spill_one() else { return false };
        let (output, bytes) = self.connections.resume(core).expect("a core that waits");
        self.stored_in_buffers(core, output, bytes);
        true
    }
}
