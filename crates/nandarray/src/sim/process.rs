//! Detection of forked processes. A fork copies one thread and all memory, so locks that other threads held are never
//! released in the new process.
//!
//! While a thread is in a scope (executes a command of a store), it records the scope in a slot of its own, which costs
//! two plain stores for each command. A forked process has a copy of all slots; the slots of the other threads show the
//! scopes whose locks are held for ever. A handler (`pthread_atfork`) counts forks, so a process is known to be forked
//! if the counter has changed.
//!
//! This is the only file of the engine that depends on its surroundings; none of it affects the content of a store.

use std::cell::Cell;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};

/// Number of forks between the process that loaded the library and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Head of the list of all [`ThreadSlot`]s, newest first. Slots are reused and never freed.
static SLOTS: AtomicPtr<ThreadSlot> = AtomicPtr::new(ptr::null_mut());
/// Key of the next [`ProcessScope`] to be created.
static KEYS: AtomicUsize = AtomicUsize::new(SEVERAL + 1);

/// Value of [`ThreadSlot::inside`] for a thread that is in no [`ProcessScope`].
const NOTHING: usize = 0;
/// Value of [`ThreadSlot::inside`] for a thread that is in several scopes at once: it counts as being in every scope.
const SEVERAL: usize = 1;

/// A thread's record of the [`ProcessScope`] that it has entered, that of the store whose command it executes.
struct ThreadSlot {
    /// Key of the thread's [`ProcessScope`], [`NOTHING`] or [`SEVERAL`].
    inside: AtomicUsize,
    /// The value of [`FORKS`] in the process in which the slot's thread runs.
    forks: AtomicU32,
    /// Whether the slot belongs to a running thread.
    taken: AtomicBool,
    next: *const Self,
}

thread_local! {
    static MINE: Cell<Option<&'static ThreadSlot>> = const { Cell::new(None) };
    static LEAVER: Leaver = const { Leaver };
}

/// Releases a thread's slot for reuse when the thread ends.
struct Leaver;

impl Drop for Leaver {
    fn drop(&mut self) {
        if let Some(slot) = MINE.take() {
            slot.taken.store(false, Ordering::Release);
        }
    }
}

/// Iterates over all slots, in any order.
fn slots() -> impl Iterator<Item = &'static ThreadSlot> {
    let mut next: *const ThreadSlot = SLOTS.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: null, or a slot that was leaked and complete before it was put in the list.
        let slot = unsafe { next.as_ref() }?;
        next = slot.next;
        Some(slot)
    })
}

#[cold]
fn take_slot() -> &'static ThreadSlot {
    let forks = FORKS.load(Ordering::Relaxed);
    let free =
        |slot: &&ThreadSlot| slot.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let slot = slots().find(free).unwrap_or_else(|| {
        let new = Box::leak(Box::new(ThreadSlot {
            inside: AtomicUsize::new(NOTHING),
            forks: AtomicU32::new(forks),
            taken: AtomicBool::new(true),
            next: SLOTS.load(Ordering::Relaxed),
        }));
        loop {
            match SLOTS.compare_exchange(new.next.cast_mut(), new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return new,
                Err(other) => new.next = other,
            }
        }
    });
    slot.forks.store(forks, Ordering::Relaxed);
    MINE.set(Some(slot));
    // If the thread is ending already its slot is never released, which costs a few bytes.
    let _ = LEAVER.try_with(|_| ());
    slot
}

/// Handles a fork: counts it. Called in the new process by its only thread, a copy of the one that forked.
extern "C" fn forked() {
    let forks = FORKS.fetch_add(1, Ordering::Relaxed) + 1;
    if let Some(slot) = MINE.get() {
        slot.forks.store(forks, Ordering::Relaxed);
    }
}

/// The process in which something was created, identified by its number of forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home(u32);

impl Home {
    /// Returns the present process, and registers the handler on the first call.
    pub fn here() -> Self {
        static ASKED: Once = Once::new();
        // SAFETY: the handler uses atomics and a plain thread-local cell; it is part of this library, which stays
        // loaded. If there is no memory to register it, forks are not detected.
        ASKED.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(forked));
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether the present process is the one in which this value was created, not a fork of it.
    pub fn is_here(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

/// A scope that threads enter and leave: the execution of commands of one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessScope {
    key: usize,
    home: Home,
}

/// Guard of a thread that is in a [`ProcessScope`]; dropping it leaves the scope.
#[derive(Debug)]
pub(crate) struct Inside(usize);

impl ProcessScope {
    /// Creates the scope of a store that this process opens; no thread is in it yet.
    pub(crate) fn here() -> Self {
        Self { key: KEYS.fetch_add(1, Ordering::Relaxed), home: Home::here() }
    }

    /// Whether the present process is the one in which the scope was created.
    pub(crate) fn is_here(self) -> bool {
        self.home.is_here()
    }

    /// Enters the scope with the calling thread, until the guard is dropped.
    pub(crate) fn enter(self) -> Inside {
        let slot = MINE.get().unwrap_or_else(take_slot);
        let before = slot.inside.load(Ordering::Relaxed);
        let now = if before == NOTHING || before == self.key { self.key } else { SEVERAL };
        slot.inside.store(now, Ordering::Relaxed);
        // A fork that copies a lock as taken after this point also copies the slot with this value.
        fence(Ordering::Release);
        Inside(before)
    }

    /// Whether this process is a fork of the one that created the scope, and another thread was between
    /// [`Self::enter`] and the end of its guard at the fork: that thread does not exist here and never leaves.
    pub(crate) fn was_left_inside(self) -> bool {
        let forks = FORKS.load(Ordering::Relaxed);
        slots().any(|slot| {
            let inside = slot.inside.load(Ordering::Relaxed);
            slot.taken.load(Ordering::Relaxed)
                && slot.forks.load(Ordering::Relaxed) != forks
                && (inside == self.key || inside == SEVERAL)
        })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(slot) = MINE.get() {
            slot.inside.store(self.0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_home() {
        assert!(Home::here().is_here());
        assert!(!Home(u32::MAX).is_here());
        assert!(ProcessScope::here().is_here());
    }

    #[test]
    fn inside_of_one_of_several_and_of_nothing_again() {
        let (a, b) = (ProcessScope::here(), ProcessScope::here());
        let mine = || MINE.get().map(|slot| slot.inside.load(Ordering::Relaxed));
        let first = a.enter();
        let again = a.enter();
        assert_eq!(mine(), Some(a.key));
        let other = b.enter();
        assert_eq!(mine(), Some(SEVERAL));
        drop(other);
        drop(again);
        assert_eq!(mine(), Some(a.key));
        drop(first);
        assert_eq!(mine(), Some(NOTHING));
        assert!(!a.was_left_inside(), "all threads are here");
    }

    #[test]
    fn slots_are_used_again() {
        let a = ProcessScope::here();
        for _ in 0..500 {
            crate::sim::patience::joined(std::thread::spawn(move || drop(a.enter())));
        }
        assert!(slots().count() < 400, "other tests have threads, too");
    }

    #[test]
    fn a_forked_process_knows_who_was_left_inside() {
        let (a, b) = (ProcessScope::here(), ProcessScope::here());
        const LONG: std::time::Duration = std::time::Duration::from_secs(60);
        let (entered, wait) = std::sync::mpsc::channel();
        let (leave, stay) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let inside = a.enter();
            entered.send(()).unwrap();
            let _ = stay.recv_timeout(LONG);
            drop(inside);
        });
        wait.recv_timeout(LONG).unwrap();
        let mine = b.enter();
        // SAFETY: the child calls nothing that locks or allocates, and ends without running anything else of this
        // process.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let right = !a.is_here() && a.was_left_inside() && !b.was_left_inside();
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        drop(mine);
        let mut status = -1;
        // SAFETY: a child of ours, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(a.is_here() && !a.was_left_inside());
        drop(leave);
        crate::sim::patience::joined(thread);
    }
}
