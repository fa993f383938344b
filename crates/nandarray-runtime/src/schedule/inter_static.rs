//! Static inter-kernel scheduling: an application's kernels run on one worker, one after the other (FlashAbacus 4.1).

use std::collections::BTreeMap;

use super::{KernelFacts, KernelOrder, KernelScheduler};

/// The scheduler: kernels of application `a` run on worker `a` modulo the number of workers.
#[derive(Debug)]
pub struct InterStatic {
    /// For each worker its kernels, with the number of their ready screens.
    queues: Vec<BTreeMap<KernelOrder, u64>>,
    /// For each worker the worker that runs its applications: itself, unless it has failed.
    heirs: Vec<usize>,
    /// The worker of each kernel, and the kernel's place in the queue of that worker.
    places: BTreeMap<u64, (usize, KernelOrder)>,
}

impl InterStatic {
    /// Makes a scheduler for this number of workers.
    pub fn new(workers: usize) -> Self {
        let queues = vec![BTreeMap::new(); workers.max(1)];
        Self { heirs: (0..queues.len()).collect(), queues, places: BTreeMap::new() }
    }
}

impl KernelScheduler for InterStatic {
    fn splits(&self) -> bool {
        false
    }

    fn arrived(&mut self, kernel: &KernelFacts) {
        let worker = self.heirs[(kernel.application % self.queues.len() as u64) as usize];
        self.queues[worker].insert(kernel.order(), 0);
        self.places.insert(kernel.number, (worker, kernel.order()));
    }

    fn ready(&mut self, kernel: u64, screens: u64) {
        let (worker, order) = self.places[&kernel];
        *self.queues[worker].get_mut(&order).expect("a kernel that arrived") += screens;
    }

    fn next(&mut self, worker: usize) -> Option<u64> {
        let mut first = self.queues[worker].first_entry()?;
        let kernel = first.key().1;
        *first.get_mut() = first.get().checked_sub(1)?;
        Some(kernel)
    }

    fn ended(&mut self, kernel: u64) {
        if let Some((worker, order)) = self.places.remove(&kernel) {
            self.queues[worker].remove(&order);
        }
    }

    /// Moves the applications of a failed worker to the next worker that works.
    fn lost(&mut self, worker: usize) {
        let workers = self.queues.len();
        let heir = (1..workers).map(|k| (worker + k) % workers).find(|w| self.heirs[*w] == *w);
        let Some(heir) = heir else { return };
        for of in &mut self.heirs {
            *of = if *of == worker { heir } else { *of };
        }
        for (order, ready) in std::mem::take(&mut self.queues[worker]) {
            self.queues[heir].insert(order, ready);
            self.places.insert(order.1, (heir, order));
        }
    }
}
