//! Consumption of inputs: the bytes of each input that a task gets, and whole inputs. Not here: where inputs are cut,
//! and when.

use std::collections::BTreeMap;

use nandarray_cores::TaskPlace;

use crate::cut::Cut;
use crate::scheduler::{RunPlan, Scheduler};
use crate::stage::{Origin, PendingTask, TaskInput};

impl<'p> Scheduler<'p> {
    /// Consumes the inputs of a task that was cut, and makes the task.
    pub(super) fn pending(&mut self, plan: &RunPlan<'_, 'p>, stage: usize, cut: Cut, turn: u64) -> PendingTask {
        let this = &plan.stages[stage];
        let number = self.stages[stage].cutter.count();
        self.stages[stage].cutter.take(cut);
        let (mut inputs, mut positions) = (Vec::new(), vec![0; this.inputs.len()]);
        let paced = self.stages[stage]
            .cutter
            .paced()
            .map(|paced| (paced.seen().to_vec(), paced.paces(this.program.metadata())));
        for (input, port) in this.program.metadata().inputs.iter().enumerate() {
            if port.whole {
                inputs.push(TaskInput::Whole(self.stages[stage].whole[input].clone()));
                continue;
            }
            let (from, to) = match &paced {
                Some((seen, _)) => (seen[input].range.start, seen[input].range.end),
                None => (cut.first * port.record_bytes, (cut.first + cut.records) * port.record_bytes),
            };
            let reader = self.stages[stage].readers[input];
            inputs.push(match this.inputs[input] {
                Origin::External(external) => TaskInput::External(from, to.min(plan.source.bytes(external)) - from),
                Origin::Stage { stage, output } => {
                    let queue = &mut self.stages[stage].queues[output];
                    positions[input] = queue.position(reader);
                    let to = to.min(queue.end());
                    TaskInput::Chunks(if paced.is_some() { queue.peek(reader, to) } else { queue.take(reader, to) })
                }
            });
        }
        let place = match (this.inputs[0], inputs.first()) {
            (Origin::External(external), Some(TaskInput::External(from, _))) => {
                let records = plan.source.bytes(external).div_ceil(this.program.metadata().inputs[0].record_bytes);
                let place = plan.source.place(external, *from);
                if place.total.is_empty() { TaskPlace { total: vec![records], ..place } } else { place }
            }
            _ => TaskPlace::default(),
        };
        let place = TaskPlace { paces: paced.map_or_else(Vec::new, |(_, paces)| paces), ..place };
        PendingTask { number, cut, turn, place, inputs, positions }
    }

    /// Consumes what a task took of inputs that have paces of their own, in bytes.
    pub(crate) fn advance(&mut self, plan: &RunPlan<'_, 'p>, stage: usize, taken: &[u64]) {
        let this = &plan.stages[stage];
        let positions = self.stages[stage].cutter.advance(this.program.metadata(), taken);
        for (input, (origin, to)) in this.inputs.iter().zip(positions).enumerate() {
            let is_whole = this.program.metadata().inputs[input].whole;
            if let (Origin::Stage { stage: from, output }, false) = (origin, is_whole) {
                let reader = self.stages[stage].readers[input];
                self.stages[*from].queues[*output].take(reader, to);
            }
        }
    }

    /// Consumes a stage's whole inputs; returns them by input number.
    pub(super) fn wholes(&mut self, plan: &RunPlan<'_, 'p>, stage: usize) -> BTreeMap<usize, TaskInput> {
        let mut found = BTreeMap::new();
        for (input, _) in plan.stages[stage].program.metadata().inputs.iter().enumerate().filter(|(_, p)| p.whole) {
            let reader = self.stages[stage].readers[input];
            let whole = match plan.stages[stage].inputs[input] {
                Origin::External(external) => TaskInput::External(0, plan.source.bytes(external)),
                Origin::Stage { stage, output } => {
                    let queue = &mut self.stages[stage].queues[output];
                    let end = queue.end();
                    TaskInput::Chunks(queue.take(reader, end))
                }
            };
            found.insert(input, whole);
        }
        found
    }
}
