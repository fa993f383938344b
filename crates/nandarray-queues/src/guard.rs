//! Guard of a mapping: another process that truncates the mapped file ends the service, and not this process.
//!
//! An access behind the end of a mapped file (or to a page for which there is no memory) is a bus error, by which the
//! kernel ends a process. Sealed memory could not be truncated, but has no path by which programs in any language open
//! it. Therefore the signal is handled: private pages of zeroes take the place of the whole mapping, which is marked as
//! lost, and the access goes on. A server's region may have any content at any time, so zeroes do it no harm; a wait
//! for the region looks at the mark. A bus error anywhere else is passed on to what handled it before.
//!
//! Mappings are in a list whose entries are never freed, since a signal may arrive at any time; they are used again.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// A place in the list of mappings.
#[derive(Debug, Default)]
struct MappingEntry {
    taken: AtomicBool,
    /// Address of the mapping, and its size in bytes: 0 while there is none.
    first: AtomicUsize,
    bytes: AtomicUsize,
    lost: AtomicBool,
    next: AtomicPtr<MappingEntry>,
}

static ENTRIES: AtomicPtr<MappingEntry> = AtomicPtr::new(std::ptr::null_mut());
/// The handling of bus errors before the first mapping.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping that is watched until this value is dropped.
#[derive(Debug)]
pub(crate) struct GuardedMapping {
    entry: &'static MappingEntry,
}

impl GuardedMapping {
    /// Watches a mapping.
    ///
    /// # Safety
    /// The mapping is one of its own, readable and writable, lives longer than the guard, and may get any content at
    /// any time.
    pub(crate) unsafe fn new(first: *mut u8, bytes: usize) -> Self {
        handle_bus_errors();
        let free = |entry: &&MappingEntry| {
            entry.taken.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        let entry = entries().find(free).unwrap_or_else(add_entry);
        entry.lost.store(false, Ordering::SeqCst);
        entry.first.store(first as usize, Ordering::SeqCst);
        entry.bytes.store(bytes, Ordering::SeqCst);
        Self { entry }
    }

    /// Whether the mapping has lost its file.
    pub(crate) fn lost(&self) -> bool {
        self.entry.lost.load(Ordering::Acquire)
    }
}

impl Drop for GuardedMapping {
    fn drop(&mut self) {
        self.entry.bytes.store(0, Ordering::SeqCst);
        self.entry.taken.store(false, Ordering::SeqCst);
    }
}

/// Returns the places of the list, the newest first.
fn entries() -> impl Iterator<Item = &'static MappingEntry> {
    // SAFETY: a place is never freed.
    let of = |at: &AtomicPtr<MappingEntry>| unsafe { at.load(Ordering::Acquire).as_ref() };
    std::iter::successors(of(&ENTRIES), move |entry: &&'static MappingEntry| of(&entry.next))
}

/// Adds a place, taken, to the list.
fn add_entry() -> &'static MappingEntry {
    let entry: &'static MappingEntry =
        Box::leak(Box::new(MappingEntry { taken: AtomicBool::new(true), ..MappingEntry::default() }));
    let new = std::ptr::from_ref(entry).cast_mut();
    let linked = ENTRIES.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |head| {
        entry.next.store(head, Ordering::SeqCst);
        Some(new)
    });
    linked.expect("the update is always made");
    entry
}

/// Installs the handler, once in a process.
fn handle_bus_errors() {
    BEFORE.get_or_init(|| {
        // SAFETY: zeroed, it is an action with the default handling and no flags; the pointers are of live values.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before);
            before
        }
    });
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // SAFETY: as above; the handler has the type that the flag says.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            let done = libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
            assert_eq!(done, 0, "SIGBUS can be handled");
        }
    });
}

/// Whether a signal is of an access that failed, and not sent by a process (`kill`): then it has an address.
fn is_of_access(info: *mut libc::siginfo_t) -> bool {
    // SAFETY: the kernel passes a valid description.
    unsafe { (*info).si_code > 0 }
}

/// Handles a bus error; it calls nothing that takes a lock or allocates.
extern "C" fn on_bus_error(number: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid description.
    let address = unsafe { (*info).si_addr() } as usize;
    let hit = |entry: &'static MappingEntry| {
        // A size that has changed meanwhile is of another mapping than the address is.
        let before = entry.bytes.load(Ordering::SeqCst);
        let first = entry.first.load(Ordering::SeqCst);
        let bytes = entry.bytes.load(Ordering::SeqCst);
        (before == bytes && address.wrapping_sub(first) < bytes).then_some((entry, first, bytes))
    };
    if let Some((entry, first, bytes)) = entries().filter(|_| is_of_access(info)).find_map(hit) {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // Marked first: a reader of the new pages' zeroes can know.
        entry.lost.store(true, Ordering::SeqCst);
        // SAFETY: the range is the mapping's, whose owner has promised that it may get any content.
        let got = unsafe { libc::mmap(first as *mut libc::c_void, bytes, access, flags, -1, 0) };
        if got != libc::MAP_FAILED {
            return;
        }
    }
    pass_on(number, info, context);
}

/// Does what would have been done without this file.
fn pass_on(number: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.get().expect("the handler was installed after it was set");
    match before.sa_sigaction {
        // The kernel ignores only what a process sends.
        libc::SIG_IGN if !is_of_access(info) => {}
        // Back to the default: the access is repeated, and ends the process as it would have; a signal that has no
        // access is sent again, and arrives when this handler returns.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: as in `handle_bus_errors`.
            unsafe {
                let default: libc::sigaction = std::mem::zeroed();
                libc::sigaction(number, &raw const default, std::ptr::null_mut());
                if !is_of_access(info) {
                    libc::raise(number);
                }
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: a handler with this flag has this type.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(number, info, context);
        }
        handler => {
            // SAFETY: a handler without that flag has this type.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(number);
        }
    }
}
