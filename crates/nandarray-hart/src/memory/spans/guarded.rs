//! Accesses to memory under page tables and protection: every access is translated and checked before it is made.
//!
//! The page that was used last in each part of the address space is kept as a fast range, for loads and for stores, as
//! whole regions are without a guard, provided that all of the page is accessible and in one region. An access that
//! crosses a page boundary is made only if both parts are allowed.

use super::{FastRange, RegionTable, part};
use crate::access::{AccessKind, Fault};
pub(crate) use crate::protect::Guard;
use crate::protect::{PageTables, WalkFailure};

const PAGE: u64 = 1 << 12;

/// Physical address and number of an access's bytes in its first page, and in the next page.
type AccessParts = [(u64, usize); 2];

impl RegionTable {
    /// Sets the guard that all further accesses are checked by; `None` for no guard.
    pub(crate) fn set_guard(&mut self, guard: Option<Guard>) {
        self.guard = guard.map(Box::new);
        self.choose();
    }

    /// Whether `guard`, which must have no page tables, allows everything that the regions allow.
    pub(crate) fn open_to(&self, guard: &Guard) -> bool {
        self.all.iter().all(|s| {
            let allows = |access| {
                guard.pmp.allows(s.range.start, s.range.end - s.range.start, access, guard.who(access).machine)
            };
            s.range.is_empty() || [AccessKind::Load, AccessKind::Store, AccessKind::Fetch].into_iter().all(allows)
        })
    }

    /// Drops the translations of pages that are kept as fast ranges.
    pub(crate) fn forget_pages(&mut self) {
        self.choose();
    }

    /// Returns a pointer to the byte at the physical `address`; `None` unless one region has `bytes` bytes from this
    /// address on that may be accessed in this way.
    fn place(&self, address: u64, bytes: u64, access: AccessKind) -> Option<*mut u8> {
        debug_assert!(bytes <= PAGE, "{bytes} bytes are more than a page");
        let end = address.checked_add(bytes)?;
        let span = self.all.iter().find(|s| {
            let range = match access {
                AccessKind::Load => &s.range,
                AccessKind::Store => &s.writable,
                AccessKind::Fetch => &s.executable,
            };
            range.start <= address && end <= range.end
        })?;
        // SAFETY: the ranges of a region lie in its bytes.
        Some(unsafe { span.pointer.add((address - span.range.start) as usize) })
    }

    /// Translates `address` to a physical address, and checks that `bytes` bytes there, all in one page, may be
    /// accessed in this way.
    fn physical(&mut self, address: u64, bytes: u64, access: AccessKind) -> Result<u64, Fault> {
        debug_assert!(address % PAGE + bytes <= PAGE, "{bytes} bytes at {address:#x} are in two pages");
        let Some(guard) = self.guard.take() else { return Ok(address) };
        let who = guard.who(access);
        let physical = match who.pages {
            Some(pages) => {
                let translated = pages.translate(address, access, &mut InMemory { spans: self, guard: &guard });
                translated.map_err(|failure| Fault { page: failure == WalkFailure::Page, address })
            }
            None => Ok(address),
        };
        let allowed = |at: &u64| guard.pmp.allows(*at, bytes, access, who.machine);
        let physical = physical.and_then(|at| Some(at).filter(allowed).ok_or(Fault::at(address)));
        self.guard = Some(guard);
        physical
    }

    /// Translates and checks an access, and splits it at a page boundary.
    fn parts(&mut self, address: u64, bytes: usize, access: AccessKind) -> Result<AccessParts, Fault> {
        let left = (PAGE - address % PAGE).min(bytes as u64);
        let first = self.physical(address, left, access)?;
        self.place(first, left, access).ok_or(Fault::at(address))?;
        let mut parts = [(first, left as usize), (0, bytes - left as usize)];
        debug_assert!(parts[1].1 as u64 <= PAGE, "{bytes} bytes at {address:#x} are in three pages");
        if parts[1].1 > 0 {
            let next = address.wrapping_add(left) & self.guard.as_ref().map_or(u64::MAX, |guard| guard.addresses);
            parts[1].0 = self.physical(next, parts[1].1 as u64, access)?;
            self.place(parts[1].0, parts[1].1 as u64, access).ok_or(Fault::at(next))?;
        }
        Ok(parts)
    }

    /// Returns the page around `address` as a range that needs one comparison to check; an empty range unless all of
    /// the page may be accessed in this way.
    fn page(&mut self, address: u64, physical: u64, access: AccessKind) -> FastRange {
        let Some(guard) = &self.guard else { return FastRange::NONE };
        let (base, at) = (address & !(PAGE - 1), physical & !(PAGE - 1));
        let meets = |from: u64, to: u64| from < at + PAGE && at < to;
        let special = access == AccessKind::Store
            && (meets(self.code.start, self.code.end) || self.watched.is_some_and(|w| meets(w, w.saturating_add(8))));
        let allowed = guard.pmp.allows(at, PAGE, access, guard.who(access).machine);
        match self.place(at, PAGE, access) {
            Some(pointer) if allowed && !special => FastRange { base, reach: PAGE - 7, pointer },
            _ => FastRange::NONE,
        }
    }

    #[cold]
    pub(super) fn load_guarded<const N: usize>(&mut self, address: u64) -> Result<[u8; N], Fault> {
        let parts = self.parts(address, N, AccessKind::Load)?;
        self.load_near[part(address)] = self.page(address, parts[0].0, AccessKind::Load);
        let mut bytes = [0; N];
        let mut from = 0;
        for (at, length) in parts {
            // `parts` checked both parts; one without bytes has no address.
            if let Some(pointer) = self.place(at, length as u64, AccessKind::Load).filter(|_| length > 0) {
                // SAFETY: `place` found `length` bytes, and the parts have `N` bytes together.
                unsafe { std::ptr::copy_nonoverlapping(pointer, bytes[from..].as_mut_ptr(), length) };
            }
            from += length;
        }
        Ok(bytes)
    }

    #[cold]
    pub(super) fn store_guarded<const N: usize>(&mut self, address: u64, bytes: [u8; N]) -> Result<(), Fault> {
        let parts = self.parts(address, N, AccessKind::Store)?;
        let mut from = 0;
        for (at, length) in parts {
            if let Some(pointer) = self.place(at, length as u64, AccessKind::Store).filter(|_| length > 0) {
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping(bytes[from..].as_ptr(), pointer, length) };
                self.stored(at, at + length as u64);
            }
            from += length;
        }
        self.store_near[part(address)] = self.page(address, parts[0].0, AccessKind::Store);
        Ok(())
    }

    /// Checks that `bytes` bytes at `address` may be stored to. Without a guard this always succeeds: the store itself
    /// then fails if no writable region contains the bytes.
    pub(crate) fn may_store(&mut self, address: u64, bytes: usize) -> Result<(), Fault> {
        if self.guard.is_none() { Ok(()) } else { self.parts(address, bytes, AccessKind::Store).map(|_| ()) }
    }

    /// Returns the two or four bytes of the instruction at `address`.
    pub(crate) fn fetch(&mut self, address: u64) -> Result<u32, Fault> {
        if self.guard.is_none() {
            return self.executable(address).ok_or(Fault::at(address));
        }
        let low = self.fetch_half(address)?;
        if crate::isa::length(low) == 2 {
            return Ok(u32::from(low));
        }
        let next = address.wrapping_add(2) & self.guard.as_ref().map_or(u64::MAX, |guard| guard.addresses);
        Ok(u32::from(low) | u32::from(self.fetch_half(next)?) << 16)
    }

    fn fetch_half(&mut self, address: u64) -> Result<u16, Fault> {
        let physical = self.physical(address, 2, AccessKind::Fetch)?;
        let pointer = self.place(physical, 2, AccessKind::Fetch).ok_or(Fault::at(address))?;
        // SAFETY: `place` found two bytes; an array of bytes needs no alignment.
        Ok(u16::from_le_bytes(unsafe { pointer.cast::<[u8; 2]>().read() }))
    }

    /// Returns the address before which all instructions of a block at `pc` but the first must end: the end of the
    /// page, if there is a guard.
    pub(crate) fn block_end(&self, pc: u64) -> u64 {
        if self.guard.is_none() { u64::MAX } else { (pc | (PAGE - 1)).saturating_add(1) }
    }

    /// Records that a block of `bytes` bytes at `pc` was decoded, so that stores to it are noticed.
    pub(crate) fn note_decoded(&mut self, pc: u64, bytes: u64) {
        if self.guard.is_none() {
            return self.decoded(pc..pc.saturating_add(bytes));
        }
        let left = (PAGE - pc % PAGE).min(bytes);
        for (from, length) in [(pc, left), (pc.wrapping_add(left), bytes - left)] {
            if let (Ok(at), true) = (self.physical(from, 2.min(length), AccessKind::Fetch), length > 0) {
                self.decoded(at..at + length);
            }
        }
    }
}

/// Access to the page tables in memory, with the rights of supervisor mode.
struct InMemory<'s, 'g> {
    spans: &'s mut RegionTable,
    guard: &'g Guard,
}

impl InMemory<'_, '_> {
    fn place(&self, address: u64, bytes: u64, access: AccessKind) -> Option<*mut u8> {
        let allowed = self.guard.pmp.allows(address, bytes, access, false);
        self.spans.place(address, bytes, access).filter(|_| allowed)
    }
}

impl PageTables for InMemory<'_, '_> {
    fn entry(&mut self, address: u64, bytes: u64) -> Option<u64> {
        debug_assert!(bytes == 4 || bytes == 8, "an entry of {bytes} bytes");
        let from = self.place(address, bytes, AccessKind::Load)?;
        let mut all = [0; 8];
        // SAFETY: `place` found `bytes` bytes, 4 or 8.
        unsafe { std::ptr::copy_nonoverlapping(from, all.as_mut_ptr(), bytes as usize) };
        Some(u64::from_le_bytes(all))
    }

    fn set_entry(&mut self, address: u64, bytes: u64, value: u64) -> Option<()> {
        debug_assert!(bytes == 4 || bytes == 8, "an entry of {bytes} bytes");
        let to = self.place(address, bytes, AccessKind::Store)?;
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), to, bytes as usize) };
        self.spans.stored(address, address + bytes);
        Some(())
    }
}
