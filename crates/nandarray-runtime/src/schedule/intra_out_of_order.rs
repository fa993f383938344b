//! Out-of-order intra-kernel scheduling: a free worker takes any ready screen, of the oldest kernel that has one
//! (FlashAbacus 4.2). No worker idles while a screen is ready.

use std::collections::BTreeMap;

use super::{KernelFacts, KernelOrder, KernelScheduler};

/// The scheduler: a worker runs the first ready screen of all kernels, in the order of priority and submission.
#[derive(Debug, Default)]
pub struct IntraOutOfOrder {
    /// Kernels that have ready screens, with the number of these screens.
    ready: BTreeMap<KernelOrder, u64>,
    orders: BTreeMap<u64, KernelOrder>,
}

impl KernelScheduler for IntraOutOfOrder {
    fn splits(&self) -> bool {
        true
    }

    fn arrived(&mut self, kernel: &KernelFacts) {
        self.orders.insert(kernel.number, kernel.order());
    }

    fn ready(&mut self, kernel: u64, screens: u64) {
        if screens > 0 {
            *self.ready.entry(self.orders[&kernel]).or_default() += screens;
        }
    }

    fn next(&mut self, _worker: usize) -> Option<u64> {
        let mut first = self.ready.first_entry()?;
        let kernel = first.key().1;
        *first.get_mut() -= 1;
        if *first.get() == 0 {
            first.remove();
        }
        Some(kernel)
    }

    fn ended(&mut self, kernel: u64) {
        if let Some(order) = self.orders.remove(&kernel) {
            self.ready.remove(&order);
        }
    }
}
