//! In-order intra-kernel scheduling: all workers share the screens of the oldest kernel (FlashAbacus 4.2).

use std::collections::BTreeMap;

use super::{KernelFacts, KernelOrder, KernelScheduler};

/// The scheduler: all workers run screens of one kernel at a time.
#[derive(Debug, Default)]
pub struct IntraInOrder {
    /// Kernels, with the number of their ready screens.
    queue: BTreeMap<KernelOrder, u64>,
    orders: BTreeMap<u64, KernelOrder>,
    /// The kernel that runs until it ends: a kernel that arrives later, with a higher priority, waits.
    running: Option<KernelOrder>,
}

impl KernelScheduler for IntraInOrder {
    fn splits(&self) -> bool {
        true
    }

    fn arrived(&mut self, kernel: &KernelFacts) {
        self.queue.insert(kernel.order(), 0);
        self.orders.insert(kernel.number, kernel.order());
    }

    fn ready(&mut self, kernel: u64, screens: u64) {
        let order = self.orders[&kernel];
        *self.queue.get_mut(&order).expect("a kernel that arrived") += screens;
    }

    fn next(&mut self, _worker: usize) -> Option<u64> {
        let order = self.running.or_else(|| self.queue.keys().next().copied())?;
        let ready = self.queue.get_mut(&order).expect("a kernel that arrived");
        *ready = ready.checked_sub(1)?;
        self.running = Some(order);
        Some(order.1)
    }

    fn ended(&mut self, kernel: u64) {
        let Some(order) = self.orders.remove(&kernel) else { return };
        self.queue.remove(&order);
        if self.running == Some(order) {
            self.running = None;
        }
    }
}
