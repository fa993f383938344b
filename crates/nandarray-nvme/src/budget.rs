//! Budgets of memory for what hosts can make grow: requests and replies, data of commands, outputs, loaded programs.
//!
//! Bytes are reserved before they are used, by a [`Reservation`] that gives them back when it is dropped. A tenant's
//! budget is a part of the node's, whose limit holds for all tenants together. Not here: the engine's own caches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nandarray_nvme_spec::Status;

/// A budget of memory.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: AtomicU64,
    used: AtomicU64,
    /// The budget that this one is a part of.
    whole: Option<Arc<Budget>>,
}

impl Budget {
    /// Makes a budget of `limit` bytes, a part of `whole` if there is one.
    pub(crate) fn new(limit: u64, whole: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { limit: AtomicU64::new(limit), used: AtomicU64::new(0), whole })
    }

    /// Gives the budget another limit; what is reserved beyond it stays.
    pub(crate) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Returns the limit in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Returns the bytes that are reserved.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Reserves bytes.
    ///
    /// # Errors
    /// Out of resources: the budget, or that which it is a part of, has fewer bytes left.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Reservation, Status> {
        self.take(bytes)?;
        Ok(Reservation { budget: self.clone(), bytes })
    }

    fn take(&self, bytes: u64) -> Result<(), Status> {
        let limit = self.limit();
        let more = |used: u64| used.checked_add(bytes).filter(|&all| all <= limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| Status::RESOURCES)?;
        if let Some(Err(status)) = self.whole.as_ref().map(|whole| whole.take(bytes)) {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(status);
        }
        Ok(())
    }

    fn give(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} bytes given back to a budget of which {before} are reserved");
        if let Some(whole) = &self.whole {
            whole.give(bytes);
        }
    }
}

/// Bytes of a budget that are reserved, until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Reservation {
    /// Gives back what is more than `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let rest = self.bytes.saturating_sub(bytes);
        self.bytes -= rest;
        self.budget.give(rest);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_the_whole_have_limits_and_get_everything_back() {
        let node = Budget::new(100, None);
        let [one, other] = [80, 80].map(|limit| Budget::new(limit, Some(node.clone())));
        let mut held = one.reserve(70).unwrap();
        assert_eq!(one.reserve(11).err(), Some(Status::RESOURCES), "beyond the part");
        assert_eq!(other.reserve(31).err(), Some(Status::RESOURCES), "beyond the whole");
        assert_eq!((one.used(), other.used(), node.used()), (70, 0, 70), "a refusal leaves nothing");
        held.shrink_to(20);
        held.shrink_to(50);
        let all = other.reserve(80).unwrap();
        assert_eq!((one.used(), node.used()), (20, 100));
        one.set_limit(10);
        assert_eq!(one.reserve(u64::MAX).err(), Some(Status::RESOURCES));
        drop((held, all));
        assert_eq!([&one, &other, &node].map(|budget| budget.used()), [0; 3]);
    }
}
