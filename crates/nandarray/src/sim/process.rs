//! Forked processes: a fork copies one thread and all memory, so locks that other threads held are never released in
//! it.
//!
//! Every thread records the scope that it is inside of (a store's command) in a slot of its own, which costs two plain
//! stores a command. A forked process has a copy of the slots: those of threads that stayed behind name the scopes
//! whose locks are held for good. A handler (`pthread_atfork`) counts forks, so the test for one is a look at a
//! counter.
//!
//! The only file of the engine that looks at its surroundings; nothing that it finds decides what a store contains.

use std::cell::Cell;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};

/// Forks between the process that loaded this and the one that is here.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// All slots, newest first. They are reused and never freed.
static SLOTS: AtomicPtr<ThreadSlot> = AtomicPtr::new(ptr::null_mut());
/// The next scope's key.
static KEYS: AtomicUsize = AtomicUsize::new(SEVERAL + 1);

/// Key of no scope: the thread is in none.
const NOTHING: usize = 0;
/// Key of a thread that is inside of several scopes at once: it counts as inside of each.
const SEVERAL: usize = 1;

/// The scope that a thread is inside of.
struct ThreadSlot {
    /// Key of the scope.
    inside: AtomicUsize,
    /// The thread's process, by its number of forks.
    forks: AtomicU32,
    /// Whether the slot belongs to a thread that runs.
    taken: AtomicBool,
    next: *const Self,
}

thread_local! {
    static MINE: Cell<Option<&'static ThreadSlot>> = const { Cell::new(None) };
    static LEAVER: Leaver = const { Leaver };
}

/// Returns a thread's slot when the thread ends.
struct Leaver;

impl Drop for Leaver {
    fn drop(&mut self) {
        if let Some(slot) = MINE.take() {
            slot.taken.store(false, Ordering::Release);
        }
    }
}

/// The slots, in any order.
fn slots() -> impl Iterator<Item = &'static ThreadSlot> {
    let mut next: *const ThreadSlot = SLOTS.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: null, or a slot that was leaked whole before it was put in the list.
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
    // A thread that is ending already keeps its slot: a few bytes.
    let _ = LEAVER.try_with(|_| ());
    slot
}

/// Called in a forked process by the thread that forked, the only one that the process has.
extern "C" fn forked() {
    let forks = FORKS.fetch_add(1, Ordering::Relaxed) + 1;
    if let Some(slot) = MINE.get() {
        slot.forks.store(forks, Ordering::Relaxed);
    }
}

/// The process that something was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home(u32);

impl Home {
    /// This process.
    pub(crate) fn here() -> Self {
        static ASKED: Once = Once::new();
        // SAFETY: the handler touches atomics and a plain thread-local cell; it is part of this library, which stays
        // loaded. If there is no memory for it, forks go unnoticed.
        ASKED.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(forked));
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is still that process, and not one forked from it.
    pub(crate) fn is_here(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

/// A scope that threads enter and leave: the commands of one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessScope {
    key: usize,
    home: Home,
}

/// Presence of a thread in a scope, until this is dropped.
#[derive(Debug)]
pub(crate) struct Inside(usize);

impl ProcessScope {
    /// A new scope of this process, without threads in it.
    pub(crate) fn here() -> Self {
        Self { key: KEYS.fetch_add(1, Ordering::Relaxed), home: Home::here() }
    }

    /// Whether this is the process that it was made in.
    pub(crate) fn is_here(self) -> bool {
        self.home.is_here()
    }

    /// Enters the scope with the calling thread.
    pub(crate) fn enter(self) -> Inside {
        let slot = MINE.get().unwrap_or_else(take_slot);
        let before = slot.inside.load(Ordering::Relaxed);
        let now = if before == NOTHING || before == self.key { self.key } else { SEVERAL };
        slot.inside.store(now, Ordering::Relaxed);
        // A lock that is taken after this is seen as taken only together with the slot.
        fence(Ordering::Release);
        Inside(before)
    }

    /// Whether a thread was inside when this process was forked from the one that made the scope.
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
            std::thread::spawn(move || drop(a.enter())).join().unwrap();
        }
        assert!(slots().count() < 400, "other tests have threads, too");
    }

    #[test]
    fn a_forked_process_knows_who_was_left_inside() {
        let (a, b) = (ProcessScope::here(), ProcessScope::here());
        let (entered, wait) = std::sync::mpsc::channel();
        let (leave, stay) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let inside = a.enter();
            entered.send(()).unwrap();
            let _ = stay.recv();
            drop(inside);
        });
        wait.recv().unwrap();
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
        thread.join().unwrap();
    }
}
