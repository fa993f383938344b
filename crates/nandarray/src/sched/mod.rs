//! Who may run where: for now the order between commands that write the same building blocks.
//!
//! A write locks the box of building blocks that it touches, so that two writes that share a block run one after the other
//! and all others side by side. Reads take no range: they see a space before or after a write is applied, never between.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// A box of building blocks: first and last coordinate (inclusive) a dimension. Empty means the whole space.
pub type BlockBox = Vec<(u64, u64)>;

/// The boxes of one space that are being written.
#[derive(Debug, Default)]
pub struct RangeLock(Arc<Held>);

#[derive(Debug, Default)]
struct Held {
    boxes: Mutex<Vec<(u64, BlockBox)>>,
    released: Condvar,
}

/// A box held until this is dropped. It borrows nothing, since a transaction keeps it from one command to the next.
#[derive(Debug)]
pub struct RangeGuard {
    held: Arc<Held>,
    ticket: u64,
}

fn meet(a: &BlockBox, b: &BlockBox) -> bool {
    a.iter().zip(b).all(|(x, y)| x.0 <= y.1 && y.0 <= x.1)
}

impl RangeLock {
    /// Waits until no other holder's box meets this one, and holds it.
    pub fn lock(&self, wanted: BlockBox) -> RangeGuard {
        let mut boxes = self.0.boxes.lock();
        while boxes.iter().any(|(_, b)| meet(b, &wanted)) {
            self.0.released.wait(&mut boxes);
        }
        let ticket = boxes.last().map_or(0, |(t, _)| t + 1);
        boxes.push((ticket, wanted));
        RangeGuard { held: self.0.clone(), ticket }
    }
}

impl Drop for RangeGuard {
    fn drop(&mut self) {
        self.held.boxes.lock().retain(|(t, _)| *t != self.ticket);
        self.held.released.notify_all();
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
