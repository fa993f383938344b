//! Waits of a thread for other commands, as the thread wants them: others get its place, or a reason ends them.
//!
//! A thread that executes commands of several callers sets an observer ([`observed`]): before the thread waits, others
//! may get its place, and it takes one again afterwards. A caller that may lose interest sets a reason to stop
//! ([`stopped_by`]). Both hold for the calling thread, for the length of a call. Not here: what is waited for.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// Observer of the waits of a thread.
pub trait WaitObserver {
    /// Called before the thread waits.
    ///
    /// # Errors
    /// The thread must not wait; the text says why.
    fn begin(&self) -> Result<(), String>;

    /// Called after a wait that [`Self::begin`] has let begin; `granted` is whether the command goes on. The call may
    /// wait itself.
    fn end(&self, granted: bool);
}

/// Whether the caller of a command has lost interest in it.
pub type IsStopped = dyn Fn() -> bool;

#[derive(Clone, Default)]
struct OwnWaits {
    observer: Option<Rc<dyn WaitObserver>>,
    is_stopped: Option<Rc<IsStopped>>,
}

thread_local! {
    static OWN: RefCell<OwnWaits> = const { RefCell::new(OwnWaits { observer: None, is_stopped: None }) };
}

/// Sets what the thread does about its waits until this is dropped, also by a panic.
struct Restored(OwnWaits);

impl Drop for Restored {
    fn drop(&mut self) {
        OWN.set(std::mem::take(&mut self.0));
    }
}

fn changed<T>(change: impl FnOnce(&mut OwnWaits), work: impl FnOnce() -> T) -> T {
    let before = OWN.with_borrow(Clone::clone);
    let _restored = Restored(before);
    OWN.with_borrow_mut(change);
    work()
}

/// Executes `work`, in which the waits of this thread for other commands have this observer.
pub fn observed<T>(observer: Rc<dyn WaitObserver>, work: impl FnOnce() -> T) -> T {
    changed(|own| own.observer = Some(observer), work)
}

/// Executes `work`, in which a wait of this thread for another command ends soon after `is_stopped` is true: the
/// command that waits fails with [`crate::Error::Cancelled`].
pub fn stopped_by<T>(is_stopped: Rc<IsStopped>, work: impl FnOnce() -> T) -> T {
    changed(|own| own.is_stopped = Some(is_stopped), work)
}

/// Waits by `wait`, as for another command; the thread keeps its place if it must not wait without.
pub fn aside<T>(wait: impl FnOnce() -> T) -> T {
    let begun = ThreadWait::begin();
    let done = wait();
    if let Ok(mut begun) = begun {
        begun.grant();
    }
    done
}

/// A wait of this thread, until it has ended.
pub(super) struct ThreadWait {
    own: OwnWaits,
    granted: bool,
}

impl fmt::Debug for ThreadWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadWait").field("granted", &self.granted).finish_non_exhaustive()
    }
}

impl ThreadWait {
    /// Begins a wait.
    ///
    /// # Errors
    /// The thread must not wait; the text says why.
    pub(super) fn begin() -> Result<Self, String> {
        let own = OWN.with_borrow(Clone::clone);
        own.observer.as_ref().map_or(Ok(()), |observer| observer.begin())?;
        Ok(Self { own, granted: false })
    }

    /// Whether the wait has to look now and then for a reason to stop.
    pub(super) fn may_stop(&self) -> bool {
        self.own.is_stopped.is_some()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.own.is_stopped.as_ref().is_some_and(|is_stopped| is_stopped())
    }

    /// Notes that what was waited for is there.
    pub(super) fn grant(&mut self) {
        self.granted = true;
    }
}

impl Drop for ThreadWait {
    fn drop(&mut self) {
        if let Some(observer) = &self.own.observer {
            observer.end(self.granted);
        }
    }
}
