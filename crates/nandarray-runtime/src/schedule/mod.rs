//! Schedulers of kernels: the choice of the kernel whose next screen a free worker runs.
//!
//! A [`KernelScheduler`] learns of kernels and of their ready screens, and answers one question. It knows no clock and
//! no bytes, so the same file serves threads of this machine and cores of a modelled one. A step takes O(log kernels).
//! Each scheduler is a file; [`register`] adds one from outside of this crate. Microblocks and dependencies are kept by
//! the caller: a screen that is ready may run at once.

mod inter_dynamic;
mod inter_static;
mod intra_in_order;
mod intra_out_of_order;

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
    /// Its number: the order of submission.
    pub number: u64,
    /// The application that it belongs to.
    pub application: u64,
    /// Kernels with a higher priority come first.
    pub priority: i64,
    /// The time by which it should be done, in units of the caller's; none is no deadline.
    pub deadline: Option<u64>,
    /// Its expected work, in units of the caller's; 0 if unknown.
    pub work: u64,
}

/// The place of a kernel in the order of priority and submission.
pub type KernelOrder = (Reverse<i64>, u64);

impl KernelFacts {
    /// Its place in the order of priority and submission.
    pub fn order(&self) -> KernelOrder {
        (Reverse(self.priority), self.number)
    }
}

/// Chooses the kernel whose next screen a free worker runs.
///
/// Calls come in this order for each kernel: `arrived` once; then `ready` for each microblock, and `next` as often as
/// it has screens; `ended` once, at any time after `arrived`: a kernel that fails may still have ready screens.
pub trait KernelScheduler: Debug + Send {
    /// Whether a microblock is divided into screens; otherwise it is one.
    fn splits(&self) -> bool;
    /// A kernel may run: those it depends on are done, and its ranges are held.
    fn arrived(&mut self, kernel: &KernelFacts);
    /// `screens` more screens of a kernel may run.
    fn ready(&mut self, kernel: u64, screens: u64);
    /// The kernel whose next screen `worker` runs now; it must have a ready one.
    fn next(&mut self, worker: usize) -> Option<u64>;
    /// A kernel is done, failed or cancelled.
    fn ended(&mut self, kernel: u64);
    /// A worker has failed, and asks no more. Its screens come again by `ready`.
    fn lost(&mut self, _worker: usize) {}
}

/// Makes a scheduler for a number of workers.
pub type SchedulerMaker = Arc<dyn Fn(usize) -> Box<dyn KernelScheduler> + Send + Sync>;

/// Schedulers from outside, by name.
static REGISTERED: RwLock<BTreeMap<String, SchedulerMaker>> = RwLock::new(BTreeMap::new());

/// Makes a scheduler known by a name, to sessions and to the modelled accelerator.
///
/// # Errors
/// Text: the name is taken.
pub fn register(name: &str, maker: SchedulerMaker) -> Result<(), String> {
    let mut registered = REGISTERED.write();
    if SCHEDULERS.contains(&name) || registered.contains_key(name) {
        return Err(format!("there is a scheduler {name:?}"));
    }
    registered.insert(name.to_owned(), maker);
    Ok(())
}

/// The names of all schedulers: those of this crate, then those that were registered.
pub fn names() -> Vec<String> {
    SCHEDULERS.iter().map(|name| (*name).to_owned()).chain(REGISTERED.read().keys().cloned()).collect()
}

/// The names of this crate's schedulers.
pub const SCHEDULERS: [&str; 4] = ["inter-static", "inter-dynamic", "intra-in-order", "intra-out-of-order"];

/// A scheduler by its name, for this number of workers.
pub fn by_name(name: &str, workers: usize) -> Option<Box<dyn KernelScheduler>> {
    Some(match name {
        "inter-static" => Box::new(InterStatic::new(workers)),
        "inter-dynamic" => Box::new(InterDynamic::new(workers)),
        "intra-in-order" => Box::new(IntraInOrder::default()),
        "intra-out-of-order" => Box::new(IntraOutOfOrder::default()),
        other => return REGISTERED.read().get(other).map(|maker| maker(workers)),
    })
}
