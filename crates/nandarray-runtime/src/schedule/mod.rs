//! Schedulers of kernels: the choice of the kernel whose next screen a free worker runs.
//!
//! A [`KernelScheduler`] learns of kernels and of their ready screens, and answers one question: which kernel does a
//! worker run next? It knows no clock and no bytes, so the same file serves host threads and cores of a modelled
//! machine. A step takes O(log kernels). Each scheduler is a file; [`register`] adds one from outside of this crate.
//! The board keeps microblocks and dependencies: a screen that is ready may run at once.

mod inter_dynamic;
mod inter_static;
mod intra_in_order;
mod intra_out_of_order;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

pub use inter_dynamic::InterDynamic;
pub use inter_static::InterStatic;
pub use intra_in_order::IntraInOrder;
pub use intra_out_of_order::IntraOutOfOrder;
use parking_lot::RwLock;

/// The properties of a kernel by which it is scheduled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// The kernel's number, in the order of submission.
    pub number: u64,
    /// Number of the application that the kernel belongs to.
    pub application: u64,
    /// The kernel's priority: kernels with a higher one come first.
    pub priority: i64,
    /// The time by which the kernel should be done, in a unit of the caller's; `None` is no deadline.
    pub deadline: Option<u64>,
    /// The expected work of the kernel, in a unit of the caller's; 0 if unknown.
    pub work: u64,
}

/// The key of a kernel in the order of priority and submission: kernels with smaller keys come first.
pub type KernelOrder = (Reverse<i64>, u64);

impl KernelFacts {
    /// Returns the kernel's key in the order of priority and submission.
    pub fn order(&self) -> KernelOrder {
        (Reverse(self.priority), self.number)
    }
}

/// A scheduler of kernels: chooses the kernel whose next screen a free worker runs.
///
/// For each kernel, methods are called in this order: `arrived` once; then `ready` for each microblock, and `next` as
/// often as the microblock has screens; `ended` once, at any time after `arrived`: a kernel that fails may still have
/// ready screens.
pub trait KernelScheduler: Debug + Send {
    /// Whether microblocks are divided into one screen per worker, as far as they can be; otherwise each has as few
    /// screens as possible.
    fn splits(&self) -> bool;
    /// Notes that a kernel may run: the kernels that it depends on are done, its ranges are locked, its sections are
    /// mapped.
    fn arrived(&mut self, kernel: &KernelFacts);
    /// Notes that `screens` more screens of a kernel are ready to run.
    fn ready(&mut self, kernel: u64, screens: u64);
    /// Returns the kernel whose next ready screen `worker` runs now; `None` if the worker has to wait. Called only
    /// while there are kernels.
    fn next(&mut self, worker: usize) -> Option<u64>;
    /// Notes that a kernel is done, failed or was cancelled.
    fn ended(&mut self, kernel: u64);
    /// Notes that a worker has failed and will not call `next` again. Screens that it was running are announced again
    /// by `ready`.
    fn lost(&mut self, _worker: usize) {}
}

/// A function that makes a scheduler for a number of workers, or returns the reason for which it cannot.
pub type SchedulerMaker = Arc<dyn Fn(usize) -> Result<Box<dyn KernelScheduler>, String> + Send + Sync>;

/// Schedulers that [`register`] added, by name.
static REGISTERED: RwLock<BTreeMap<String, SchedulerMaker>> = RwLock::new(BTreeMap::new());

/// Registers a scheduler under a name, for sessions and for the modelled accelerator.
///
/// # Errors
/// A message: a scheduler with this name exists, or the name is empty.
pub fn register(name: &str, maker: SchedulerMaker) -> Result<(), String> {
    if name.is_empty() {
        return Err("a scheduler needs a name".to_owned());
    }
    let mut registered = REGISTERED.write();
    if SCHEDULERS.contains(&name) || registered.contains_key(name) {
        return Err(format!("there is a scheduler {name:?}"));
    }
    registered.insert(name.to_owned(), maker);
    Ok(())
}

/// Returns the names of all schedulers: those of this crate, then those that were registered.
pub fn names() -> Vec<String> {
    SCHEDULERS.iter().map(|name| (*name).to_owned()).chain(REGISTERED.read().keys().cloned()).collect()
}

/// Names of this crate's schedulers, without those that [`register`] added.
pub const SCHEDULERS: [&str; 4] = ["inter-static", "inter-dynamic", "intra-in-order", "intra-out-of-order"];

/// Makes the scheduler with a name for this number of workers.
///
/// # Errors
/// A message: no scheduler has the name, or the scheduler could not be made.
pub fn by_name(name: &str, workers: usize) -> Result<Box<dyn KernelScheduler>, String> {
    Ok(match name {
        "inter-static" => Box::new(InterStatic::new(workers)),
        "inter-dynamic" => Box::new(InterDynamic::new(workers)),
        "intra-in-order" => Box::new(IntraInOrder::default()),
        "intra-out-of-order" => Box::new(IntraOutOfOrder::default()),
        other => {
            // The table is not locked while the scheduler is made: the maker may wait for a lock of its own.
            let maker = REGISTERED.read().get(other).cloned();
            let Some(maker) = maker else {
                return Err(format!("there is no scheduler {other:?}; there are {}", names().join(", ")));
            };
            maker(workers).map_err(|reason| format!("the scheduler {other:?} could not be made: {reason}"))?
        }
    })
}
