//! Budgets of memory for what hosts can make grow: requests and replies, data of commands, outputs, loaded programs.
//! And of the disk, for outputs that wait there for the end of their run.
//!
//! Bytes are reserved before they are used, by a [`ReservedMemory`] that gives them back when it is dropped. A tenant's
//! budget is a part of the node's, whose limit holds for all tenants together. A part may have no more than the whole
//! has left (dynamic thresholds, A. Choudhury and E. Hahne, IEEE/ACM Transactions on Networking 6, 1998), and always
//! has [`ASSURED_BYTES`]: however much the others take, a newcomer can speak. Not here: the engine's own caches.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use nandarray::Error;
use nandarray_nvme_spec::Status;
use nandarray_runtime::{CollectBudget, TransferError};
use parking_lot::Mutex;

use crate::run_outputs::{OutputPiece, RunOutputs};

/// Bytes that a part of a budget always has, also if the others have taken the whole: 64 MiB for 256 hosts.
const ASSURED_BYTES: u64 = 256 << 10;

/// A budget of memory, or of the disk.
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
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Result<ReservedMemory, Status> {
        self.take(bytes)?;
        Ok(ReservedMemory { budget: self.clone(), bytes })
    }

    fn take(&self, bytes: u64) -> Result<(), Status> {
        let limit = self.limit();
        let more = |used: u64| used.checked_add(bytes).filter(|&all| all <= limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| Status::RESOURCES)?;
        let Some(whole) = &self.whole else { return Ok(()) };
        if self.used() <= ASSURED_BYTES {
            whole.add(bytes);
            return Ok(());
        }
        let fits = self.used() <= whole.limit().saturating_sub(whole.used());
        if let Err(status) = if fits { whole.take(bytes) } else { Err(Status::RESOURCES) } {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(status);
        }
        Ok(())
    }

    /// Reserves bytes that are there already, also beyond the limits.
    fn add(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.add(bytes);
        }
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
pub(crate) struct ReservedMemory {
    budget: Arc<Budget>,
    bytes: u64,
}

impl ReservedMemory {
    /// Reserves `bytes` more bytes.
    ///
    /// # Errors
    /// Out of resources, as [`Budget::reserve`].
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), Status> {
        self.budget.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Takes the bytes of another one of the same budget, too.
    pub(crate) fn join(&mut self, mut other: Self) {
        assert!(Arc::ptr_eq(&self.budget, &other.budget), "memory of two budgets");
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Returns `bytes` of them as reserved memory of their own.
    pub(crate) fn split(&mut self, bytes: u64) -> Self {
        assert!(bytes <= self.bytes, "{bytes} of {} bytes", self.bytes);
        self.bytes -= bytes;
        Self { budget: self.budget.clone(), bytes }
    }

    /// Has `bytes` reserved, which are there: gives back what is more, and takes what is less, also beyond the limits.
    pub(crate) fn set(&mut self, bytes: u64) {
        if bytes > self.bytes {
            self.budget.add(bytes - self.bytes);
        } else {
            self.budget.give(self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

/// The memory of the outputs of a run, which grows with them.
#[derive(Debug)]
pub(crate) struct OutputMemory {
    held: Mutex<HeldOutputs>,
    /// Bytes of the disk on which outputs wait.
    spooled: Mutex<ReservedMemory>,
    /// Takes the outputs while the run goes on, if the host fetches them.
    fetched: OnceLock<Arc<RunOutputs>>,
}

#[derive(Debug)]
struct HeldOutputs {
    memory: ReservedMemory,
    /// For each output its bytes so far, and its room; none if the outputs have no rooms of their own.
    rooms: Vec<(u64, u64)>,
    /// Bytes and room of the output that was the first to have too many.
    exceeded: Option<(u64, u64)>,
}

impl OutputMemory {
    pub(crate) fn new(budget: &Arc<Budget>, spool: &Arc<Budget>) -> Self {
        let none = |budget: &Arc<Budget>| ReservedMemory { budget: budget.clone(), bytes: 0 };
        let held = HeldOutputs { memory: none(budget), rooms: Vec::new(), exceeded: None };
        Self { held: Mutex::new(held), spooled: Mutex::new(none(spool)), fetched: OnceLock::new() }
    }

    /// Hands the outputs over while the run goes on.
    pub(crate) fn hand_to(&self, run: Arc<RunOutputs>) {
        assert!(self.fetched.set(run).is_ok(), "a run has one reader");
    }

    /// Returns what the host has not fetched of the outputs of a run that has ended; `None` if it fetches none.
    pub(crate) fn unfetched(&self) -> Option<Vec<OutputPiece>> {
        self.fetched.get().map(|run| run.end(None))
    }

    /// Gives each output the room in bytes that its host has for it.
    pub(crate) fn limit_to(&self, rooms: impl Iterator<Item = u64>) {
        self.held.lock().rooms = rooms.map(|room| (0, room)).collect();
    }

    /// Returns the bytes and the room of the output that ended the run, if one had too many.
    pub(crate) fn exceeded(&self) -> Option<(u64, u64)> {
        self.held.lock().exceeded
    }
}

impl CollectBudget for OutputMemory {
    fn take(&self, output: usize, bytes: u64) -> bool {
        let mut held = self.held.lock();
        let HeldOutputs { memory, rooms, exceeded } = &mut *held;
        if let Some((used, room)) = rooms.get_mut(output) {
            *used = used.saturating_add(bytes);
            if *used > *room {
                exceeded.get_or_insert((*used, *room));
                return false;
            }
        }
        memory.grow(bytes).is_ok()
    }

    fn reserve(&self, bytes: u64) -> bool {
        self.held.lock().memory.grow(bytes).is_ok()
    }

    fn keep(&self, bytes: u64) -> Result<(), TransferError> {
        let mut spooled = self.spooled.lock();
        if spooled.grow(bytes).is_ok() {
            return Ok(());
        }
        let (all, most) = (spooled.bytes + bytes, spooled.budget.limit());
        let text =
            format!("the disk has no room for {all} bytes of outputs that wait for the end of their run: those of");
        Err(Error::Busy(format!(
            "{text} a tenant must have at most {most} bytes together, and no more than others leave"
        ))
        .into())
    }

    fn hand_over(&self, output: usize, bytes: &[u8], stop: &AtomicBool) -> Result<bool, TransferError> {
        let Some(run) = self.fetched.get() else { return Ok(false) };
        run.hand_over(output, bytes, stop).map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_some_take_others_find_something() {
        let node = Budget::new(1 << 30, None);
        let mut held = Vec::new();
        for taker in 0..100 {
            let part = Budget::new(1 << 29, Some(node.clone()));
            let mut all = part.reserve(0).unwrap();
            while all.grow(1 << 16).is_ok() {}
            assert!(all.bytes >= ASSURED_BYTES, "taker {taker} had {} bytes", all.bytes);
            held.push(all);
        }
        let late = Budget::new(1 << 29, Some(node.clone()));
        assert!(late.reserve(1 << 16).is_ok());
        assert!(node.used() < (1 << 30) + 101 * ASSURED_BYTES);
    }

    #[test]
    fn parts_and_the_whole_have_limits_and_get_everything_back() {
        let mib = |n: u64| n << 20;
        let node = Budget::new(mib(100), None);
        let [one, other] = [80, 80].map(|limit| Budget::new(mib(limit), Some(node.clone())));
        let used = || [&one, &other, &node].map(|budget| budget.used() >> 20);
        let mut held = one.reserve(mib(50)).unwrap();
        assert_eq!(one.reserve(mib(31)).err(), Some(Status::RESOURCES), "beyond the part");
        assert_eq!(other.reserve(mib(51)).err(), Some(Status::RESOURCES), "beyond the whole");
        assert_eq!(used(), [50, 0, 50], "a refusal leaves nothing");
        held.set(mib(20));
        let all = other.reserve(mib(40)).unwrap();
        held.grow(mib(10)).unwrap();
        assert_eq!(held.grow(mib(60)), Err(Status::RESOURCES), "beyond what is left");
        assert_eq!(used(), [30, 40, 70]);
        held.set(mib(120));
        assert_eq!(used(), [120, 40, 160], "memory that is there is counted");
        one.set_limit(mib(10));
        assert_eq!(one.reserve(u64::MAX).err(), Some(Status::RESOURCES));
        drop((held, all));
        assert_eq!(used(), [0; 3]);
    }

    #[test]
    fn an_output_ends_a_run_at_the_first_byte_beyond_its_room() {
        let budget = Budget::new(1 << 30, None);
        let outputs = OutputMemory::new(&budget, &Budget::new(1 << 20, None));
        assert!(outputs.keep(1 << 20).is_ok());
        let refused = outputs.keep(1).unwrap_err().to_string();
        assert!(refused.contains("1048577 bytes") && refused.contains("at most 1048576 bytes"), "{refused}");
        outputs.limit_to([10, 100].into_iter());
        assert!(outputs.take(1, 90) && outputs.take(0, 10) && outputs.exceeded().is_none());
        assert!(!outputs.take(0, 1) && !outputs.take(1, 11));
        assert_eq!(outputs.exceeded(), Some((11, 10)), "the first one");
        assert_eq!(budget.used(), 100);
        drop(outputs);
        assert_eq!(budget.used(), 0);
    }
}
