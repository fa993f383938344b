//! Who may run where: for now the order between commands that write the same building blocks.
//!
//! A write locks the box of building blocks that it touches, so that two writes that share a block run one after the other
//! and all others side by side. Reads take no range: they see a space before or after a write is applied, never between.

use parking_lot::{Condvar, Mutex};

/// A box of building blocks: first and last coordinate (inclusive) a dimension. Empty means the whole space.
pub type BlockBox = Vec<(u64, u64)>;

/// The boxes of one space that are being written.
#[derive(Debug, Default)]
pub struct RangeLock {
    held: Mutex<Vec<(u64, BlockBox)>>,
    released: Condvar,
}

/// A box held until this is dropped.
#[derive(Debug)]
pub struct RangeGuard<'a> {
    lock: &'a RangeLock,
    ticket: u64,
}

fn meet(a: &BlockBox, b: &BlockBox) -> bool {
    a.iter().zip(b).all(|(x, y)| x.0 <= y.1 && y.0 <= x.1)
}

impl RangeLock {
    /// Waits until no other holder's box meets this one, and holds it.
    pub fn lock(&self, wanted: BlockBox) -> RangeGuard<'_> {
        let mut held = self.held.lock();
        while held.iter().any(|(_, b)| meet(b, &wanted)) {
            self.released.wait(&mut held);
        }
        let ticket = held.last().map_or(0, |(t, _)| t + 1);
        held.push((ticket, wanted));
        RangeGuard { lock: self, ticket }
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        self.lock.held.lock().retain(|(t, _)| *t != self.ticket);
        self.lock.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn boxes_that_meet_exclude_one_another() {
        assert!(meet(&vec![(0, 3), (2, 2)], &vec![(3, 5), (0, 9)]));
        assert!(!meet(&vec![(0, 3), (2, 2)], &vec![(3, 5), (3, 9)]));
        assert!(meet(&vec![], &vec![(1, 1)]), "an empty box is the whole space");
        let lock = RangeLock::default();
        let inside = AtomicU32::new(0);
        std::thread::scope(|s| {
            for i in 0..8u64 {
                let (lock, inside) = (&lock, &inside);
                s.spawn(move || {
                    for _ in 0..200 {
                        let guard = lock.lock(vec![(i % 2, 1)]);
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(guard);
                    }
                });
            }
        });
    }
}
