//! Dynamic inter-kernel scheduling: a free worker takes the next kernel and runs all of it (FlashAbacus 4.1).

use std::collections::BTreeMap;

use super::{KernelFacts, KernelOrder, KernelScheduler};

/// The scheduler: kernels wait in one queue, and each runs on one worker.
#[derive(Debug)]
pub struct InterDynamic {
    /// Kernels that no worker has taken.
    waiting: BTreeMap<KernelOrder, ()>,
    /// The kernel that each worker has taken; `None` if it has none.
    owned: Vec<Option<u64>>,
    /// Each kernel's place in the order, and the number of its ready screens.
    kernels: BTreeMap<u64, (KernelOrder, u64)>,
}

impl InterDynamic {
    /// Makes a scheduler for this number of workers.
    pub fn new(workers: usize) -> Self {
        Self { waiting: BTreeMap::new(), owned: vec![None; workers.max(1)], kernels: BTreeMap::new() }
    }
}

impl KernelScheduler for InterDynamic {
    fn splits(&self) -> bool {
        false
    }

    fn arrived(&mut self, kernel: &KernelFacts) {
        self.waiting.insert(kernel.order(), ());
        self.kernels.insert(kernel.number, (kernel.order(), 0));
    }

    fn ready(&mut self, kernel: u64, screens: u64) {
        self.kernels.get_mut(&kernel).expect("a kernel that arrived").1 += screens;
    }

    fn next(&mut self, worker: usize) -> Option<u64> {
        let kernel = match self.owned[worker].filter(|kernel| self.kernels.contains_key(kernel)) {
            Some(kernel) => kernel,
            None => self.waiting.pop_first()?.0.1,
        };
        self.owned[worker] = Some(kernel);
        let ready = &mut self.kernels.get_mut(&kernel).expect("a kernel that arrived").1;
        *ready = ready.checked_sub(1)?;
        Some(kernel)
    }

    fn ended(&mut self, kernel: u64) {
        if let Some((order, _)) = self.kernels.remove(&kernel) {
            self.waiting.remove(&order);
        }
    }

    /// Returns the kernel of a failed worker to the queue, for another worker.
    fn lost(&mut self, worker: usize) {
        if let Some((order, _)) = self.owned[worker].take().and_then(|kernel| self.kernels.get(&kernel)) {
            self.waiting.insert(*order, ());
        }
    }
}
