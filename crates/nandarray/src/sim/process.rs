//! Which process this is, and who was where when it was forked: threads, and the locks that they hold, stay behind.
//!
//! Every thread notes which thing it is inside of (a store's command), in a slot of its own that costs two plain stores
//! a command. A process that is forked has a copy of the slots: those of the threads that are not here tell whose locks
//! nobody will release. The system tells of a fork (`pthread_atfork`), so asking whether there was one is a look at a
//! counter.
//!
//! The only look at the surroundings in the engine, and one that decides no content: who works, not what comes out.

use std::cell::Cell;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};

/// Forks between the process that loaded this and the one that is here.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// All slots, newest first. They are reused and never freed.
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
/// The next thing's key.
static KEYS: AtomicUsize = AtomicUsize::new(SEVERAL + 1);

/// Inside of nothing.
const NOTHING: usize = 0;
/// Inside of different things at once: of any, for who asks.
const SEVERAL: usize = 1;

/// Where a thread is.
struct Slot {
    /// What it is inside of.
    inside: AtomicUsize,
    /// The process that the thread is in, by its forks.
    forks: AtomicU32,
    /// Whether a thread has it.
    taken: AtomicBool,
    next: *const Self,
}

thread_local! {
    static MINE: Cell<Option<&'static Slot>> = const { Cell::new(None) };
    static LEAVER: Leaver = const { Leaver };
}

/// Gives a thread's slot back when it ends.
struct Leaver;

impl Drop for Leaver {
    fn drop(&mut self) {
        if let Some(slot) = MINE.take() {
            slot.taken.store(false, Ordering::Release);
        }
    }
}

/// The slots, in any order.
fn slots() -> impl Iterator<Item = &'static Slot> {
    let mut next: *const Slot = SLOTS.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: null, or a slot that was leaked whole before it was put in the list.
        let slot = unsafe { next.as_ref() }?;
        next = slot.next;
        Some(slot)
    })
}

#[cold]
fn take_slot() -> &'static Slot {
    let forks = FORKS.load(Ordering::Relaxed);
    let free = |slot: &&Slot| slot.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let slot = slots().find(free).unwrap_or_else(|| {
        let new = Box::leak(Box::new(Slot {
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

/// In a forked process, by the thread that forked, which is here: the others are not.
extern "C" fn forked() {
    let forks = FORKS.fetch_add(1, Ordering::Relaxed) + 1;
    if let Some(slot) = MINE.get() {
        slot.forks.store(forks, Ordering::Relaxed);
    }
}

/// The process that something was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home(u32);

impl Home {
    /// This process.
    pub fn here() -> Self {
        static ASKED: Once = Once::new();
        // SAFETY: the handler touches atomics and a plain thread-local cell; it is part of this library, which stays
        // loaded. If there is no memory for it, forks go unnoticed.
        ASKED.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(forked));
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is still that process, and not one forked from it.
    pub fn is_here(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

/// Something that threads are inside of at times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    key: usize,
    home: Home,
}

/// A thread's being inside of a place, until this is dropped.
#[derive(Debug)]
pub struct Inside(usize);

impl Place {
    /// A place in this process, which nobody is inside of.
    pub fn here() -> Self {
        Self { key: KEYS.fetch_add(1, Ordering::Relaxed), home: Home::here() }
    }

    /// Whether this is the process that it was made in.
    pub fn is_here(self) -> bool {
        self.home.is_here()
    }

    /// The calling thread is inside.
    pub fn enter(self) -> Inside {
        let slot = MINE.get().unwrap_or_else(take_slot);
        let before = slot.inside.load(Ordering::Relaxed);
        let now = if before == NOTHING || before == self.key { self.key } else { SEVERAL };
        slot.inside.store(now, Ordering::Relaxed);
        // Whoever sees a lock taken that is taken behind this sees the slot, too.
        fence(Ordering::Release);
        Inside(before)
    }

    /// In a process forked from the one that it was made in: whether another thread was inside then.
    pub fn was_left_inside(self) -> bool {
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
        assert!(Place::here().is_here());
    }

    #[test]
    fn inside_of_one_of_several_and_of_nothing_again() {
        let (a, b) = (Place::here(), Place::here());
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
        let a = Place::here();
        for _ in 0..500 {
            std::thread::spawn(move || drop(a.enter())).join().unwrap();
        }
        assert!(slots().count() < 400, "other tests have threads, too");
    }

    #[test]
    fn a_forked_process_knows_who_was_left_inside() {
        let (a, b) = (Place::here(), Place::here());
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
