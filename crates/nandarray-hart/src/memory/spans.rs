//! The regions of a memory while a hart runs, as raw pointers.
//!
//! One comparison finds an address in the main region, the one that is used most. A table by the address's upper bits
//! and another comparison find it in a region used recently; all other addresses are looked up. With a [`Guard`],
//! addresses are translated and checked as well (`guarded`). A memory keeps this table as long as its regions do not
//! change; bytes are accessed through pointers while the memory is borrowed exclusively.

#[cfg(feature = "bare")]
mod guarded;
#[cfg(not(feature = "bare"))]
#[path = "spans/unguarded.rs"]
mod guarded;

use std::ops::Range;

use self::guarded::Guard;
use super::{Memory, MemoryRegion};
use crate::access::Fault;

impl Memory<'_> {
    /// Returns the tables by which a hart accesses the regions; they are built again only if the regions have changed.
    pub(crate) fn spans(&mut self) -> &mut RegionTable {
        let (regions, watched) = (&mut self.regions, self.watched);
        self.spans.get_or_insert_with(|| {
            let span = |r: &mut MemoryRegion<'_>| {
                let (pointer, len, written) = r.bytes.raw();
                let range = r.base..r.base + len as u64;
                let writable = if written { intersect(&r.writable, &range) } else { 0..0 };
                let executable = intersect(&r.executable, &range);
                RegionSpan { range, pointer, writable, executable }
            };
            let mut spans = Box::new(RegionTable {
                load: FastRange::NONE,
                store: FastRange::NONE,
                load_near: [FastRange::NONE; PARTS],
                store_near: [FastRange::NONE; PARTS],
                all: regions.iter_mut().map(span).collect(),
                watched,
                code: 0..0,
                code_written: false,
                watch_hit: false,
                guard: None,
                beside: [std::ptr::null_mut(); 2],
            });
            spans.choose();
            spans
        })
    }
}

fn intersect(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    let (start, end) = (a.start.max(b.start), a.end.min(b.end));
    if start < end { start..end } else { 0..0 }
}

/// A memory region as a hart accesses it during a run.
#[derive(Debug)]
struct RegionSpan {
    range: Range<u64>,
    pointer: *mut u8,
    writable: Range<u64>,
    executable: Range<u64>,
}

/// Number of parts into which [`RegionTable`] divides the address space; windows of a program are 64 MiB apart.
const PARTS: usize = 64;

/// Returns the number of the part that an address belongs to.
#[inline(always)]
fn part(address: u64) -> usize {
    (address >> 26) as usize % PARTS
}

/// A range of addresses that needs one comparison to check an access of up to 8 bytes.
#[derive(Clone, Copy, Debug)]
struct FastRange {
    base: u64,
    /// Number of offsets at which 8 bytes still fit: the length less 7.
    reach: u64,
    pointer: *mut u8,
}

impl FastRange {
    const NONE: Self = Self { base: 0, reach: 0, pointer: std::ptr::null_mut() };

    fn new(span: &RegionSpan, range: &Range<u64>) -> Self {
        if range.end - range.start < 8 {
            return Self::NONE;
        }
        debug_assert!(
            span.range.start <= range.start && range.end <= span.range.end,
            "{range:x?} of {:x?}",
            span.range
        );
        let offset = (range.start - span.range.start) as usize;
        // SAFETY: `range` lies in the region, so the offset is within its bytes.
        let pointer = unsafe { span.pointer.add(offset) };
        Self { base: range.start, reach: range.end - range.start - 7, pointer }
    }

    /// Returns a pointer to `bytes` bytes at an address; `None` if not all of them lie in the range.
    fn run(&self, address: u64, bytes: usize) -> Option<*mut u8> {
        let offset = address.wrapping_sub(self.base);
        // SAFETY: the offset is within the range.
        (offset < self.reach && bytes as u64 <= self.reach + 7 - offset)
            .then(|| unsafe { self.pointer.add(offset as usize) })
    }

    #[inline(always)]
    fn at(&self, address: u64) -> Option<*mut u8> {
        let offset = address.wrapping_sub(self.base);
        // SAFETY: below `reach`, at least 8 bytes of the region follow the offset.
        if offset < self.reach { Some(unsafe { self.pointer.add(offset as usize) }) } else { None }
    }
}

/// The regions of a [`Memory`] as pointers; usable while the memory is borrowed exclusively.
#[derive(Debug)]
pub(crate) struct RegionTable {
    load: FastRange,
    store: FastRange,
    /// For each part of the address space, the region or page of the last load there; before any, a region that begins
    /// in the part.
    load_near: [FastRange; PARTS],
    /// For each part of the address space, the region or page of the last store there; before any, a region that begins
    /// in the part.
    store_near: [FastRange; PARTS],
    all: Vec<RegionSpan>,
    watched: Option<u64>,
    /// Addresses from which blocks were decoded.
    code: Range<u64>,
    /// Whether a store has changed decoded addresses.
    pub(crate) code_written: bool,
    /// Whether a store has changed the watched address.
    pub(crate) watch_hit: bool,
    /// Page tables and memory protection; `None` if neither restricts any access.
    pub(crate) guard: Option<Box<Guard>>,
    /// Pointers to the streams and the meter of a run, so that one pointer to this table gives access to all:
    /// [`Env::open`](crate::exec::Env) stores them here, and knows their types.
    pub(crate) beside: [*mut (); 2],
}

impl RegionTable {
    /// Begins a run, without a guard, of a hart that has decoded the instructions at the addresses `code`.
    pub(crate) fn begin(&mut self, code: &Range<u64>) {
        (self.code_written, self.watch_hit) = (false, false);
        let guarded = self.guard.take().is_some();
        if guarded || self.code != *code {
            let cuts = |range: &Range<u64>| self.all.iter().any(|s| !intersect(&s.writable, range).is_empty());
            let differs = cuts(&self.code) || cuts(code);
            self.code = code.clone();
            if guarded || differs {
                self.choose();
            }
        }
    }

    /// Selects the main region, which is the program's own memory, and enters the other regions in the table of parts.
    fn choose(&mut self) {
        (self.load_near, self.store_near) = ([FastRange::NONE; PARTS], [FastRange::NONE; PARTS]);
        if self.guard.is_some() {
            (self.load, self.store) = (FastRange::NONE, FastRange::NONE);
            return;
        }
        for index in 0..self.all.len() {
            self.found(self.all[index].range.start, index);
        }
        let size = |range: &Range<u64>| range.end - range.start;
        let main = self.all.iter().max_by_key(|s| (size(&s.executable) > 0, size(&s.range)));
        self.load = main.map_or(FastRange::NONE, |s| FastRange::new(s, &s.range));
        let written = self.all.iter().filter(|s| size(&s.writable) > 0);
        let main = written.max_by_key(|s| (size(&s.executable) > 0, size(&s.writable)));
        self.store = main.map_or(FastRange::NONE, |s| FastRange::new(s, &self.plain(&s.writable)));
    }

    /// Records which region an address was found in, for later accesses to its part of the address space.
    fn found(&mut self, address: u64, index: usize) {
        let span = &self.all[index];
        debug_assert!(span.range.start <= address && address <= span.range.end, "{address:#x} in {:x?}", span.range);
        debug_assert!(self.guard.is_none(), "a whole region as a fast range under a guard");
        self.load_near[part(address)] = FastRange::new(span, &span.range);
        self.store_near[part(address)] = FastRange::new(span, &self.plain(&span.writable));
    }

    /// Returns the largest part of `range` that contains neither decoded code nor the watched address.
    fn plain(&self, range: &Range<u64>) -> Range<u64> {
        let watched = self.watched.map_or(0..0, |at| at..at.saturating_add(8));
        if intersect(range, &self.code).is_empty() && intersect(range, &watched).is_empty() {
            return range.clone();
        }
        let mut parts = vec![range.clone()];
        for cut in [&self.code, &watched].into_iter().filter(|cut| cut.start < cut.end) {
            parts = parts
                .into_iter()
                .flat_map(|p| [p.start..p.end.min(cut.start.max(p.start)), p.start.max(cut.end.min(p.end))..p.end])
                .filter(|p| p.start < p.end)
                .collect();
        }
        parts.into_iter().max_by_key(|p| p.end - p.start).unwrap_or(0..0)
    }

    /// Records that instructions at `addresses` were decoded, so that stores to them are noticed.
    pub(crate) fn decoded(&mut self, addresses: Range<u64>) {
        let known = self.code.start <= addresses.start && addresses.end <= self.code.end;
        if known || addresses.start >= addresses.end {
            return;
        }
        self.code = if self.code.start < self.code.end {
            self.code.start.min(addresses.start)..self.code.end.max(addresses.end)
        } else {
            addresses
        };
        if self.all.iter().any(|s| !intersect(&s.writable, &self.code).is_empty()) {
            self.choose();
        }
    }

    /// Records that no instructions are decoded any more.
    pub(crate) fn forget_decoded(&mut self) {
        self.code = 0..0;
        self.choose();
    }

    /// Returns the regions as (addresses, writable addresses, whether any may be executed, pointer), for a translator.
    pub(crate) fn list(&self) -> impl Iterator<Item = (Range<u64>, Range<u64>, bool, *mut u8)> {
        let executable = |s: &RegionSpan| s.executable.start < s.executable.end;
        self.all.iter().map(move |s| (s.range.clone(), s.writable.clone(), executable(s), s.pointer))
    }

    /// Whether no memory is both writable and executable, and no address is watched.
    pub(crate) fn fixed(&self) -> bool {
        self.watched.is_none() && self.all.iter().all(|s| intersect(&s.writable, &s.executable).is_empty())
    }

    /// Returns the value of the 8 bytes at the watched address; 0 if none is watched.
    pub(crate) fn watched_value(&mut self) -> u64 {
        self.watched.and_then(|at| self.load_plain::<8>(at).ok()).map_or(0, u64::from_le_bytes)
    }

    /// Returns the addresses from which blocks were decoded.
    pub(crate) fn decoded_range(&self) -> Range<u64> {
        self.code.clone()
    }

    pub(crate) fn executable(&self, address: u64) -> Option<u32> {
        let span = self.all.iter().find(|s| s.executable.contains(&address))?;
        debug_assert!(span.range.start <= span.executable.start && span.executable.end <= span.range.end);
        let left = span.executable.end - address;
        let mut bytes = [0; 4];
        let count = left.min(4) as usize;
        // SAFETY: `executable` lies in the region, and at least `count` bytes of it follow `address`.
        unsafe {
            let from = span.pointer.add((address - span.range.start) as usize);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), count);
        }
        let word = u32::from_le_bytes(bytes);
        match (crate::isa::length(word as u16), count) {
            (2, 2..) => Some(word & 0xffff),
            (4, 4) => Some(word),
            _ => None,
        }
    }

    /// Reads `N` bytes from the main region; `None` if they do not lie in it.
    #[inline(always)]
    pub(crate) fn load_fast<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        const { assert!(N <= 8) };
        let from = self.load.at(address)?;
        // SAFETY: `at` leaves 8 bytes of a region that is borrowed exclusively; an array of bytes needs no alignment.
        Some(unsafe { from.cast::<[u8; N]>().read() })
    }

    /// Writes `N` bytes to the main region; returns false if they do not lie in its fast range.
    #[inline(always)]
    pub(crate) fn store_fast<const N: usize>(&mut self, address: u64, bytes: [u8; N]) -> bool {
        const { assert!(N <= 8) };
        let Some(to) = self.store.at(address) else { return false };
        // SAFETY: as for loads, and the fast range of stores lies in a writable range.
        unsafe { to.cast::<[u8; N]>().write(bytes) };
        true
    }

    /// Reads `N` bytes from the region last used in this part of the address space; `None` if they do not lie in it.
    #[inline(always)]
    pub(crate) fn load_near<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        const { assert!(N <= 8) };
        let from = self.load_near[part(address)].at(address)?;
        // SAFETY: as in `load_fast`.
        Some(unsafe { from.cast::<[u8; N]>().read() })
    }

    /// Writes `N` bytes to the region last used in this part of the address space; returns false if they do not lie in
    /// it.
    #[inline(always)]
    pub(crate) fn store_near<const N: usize>(&mut self, address: u64, bytes: [u8; N]) -> bool {
        const { assert!(N <= 8) };
        let Some(to) = self.store_near[part(address)].at(address) else { return false };
        // SAFETY: as in `store_fast`.
        unsafe { to.cast::<[u8; N]>().write(bytes) };
        true
    }

    /// Reads bytes that all lie in the main region or in the one last used near the address; returns false if they do
    /// not.
    pub(crate) fn load_bytes(&self, address: u64, into: &mut [u8]) -> bool {
        let held = [&self.load, &self.load_near[part(address)]];
        let Some(from) = held.iter().find_map(|range| range.run(address, into.len())) else { return false };
        // SAFETY: `run` leaves enough bytes of a region that is borrowed exclusively, and `into` does not overlap them.
        unsafe { copy_bytes(from, into.as_mut_ptr(), into.len()) };
        true
    }

    /// Writes bytes that all lie in the main region or in the one last used near the address; returns false if they do
    /// not.
    pub(crate) fn store_bytes(&mut self, address: u64, bytes: &[u8]) -> bool {
        let held = [&self.store, &self.store_near[part(address)]];
        let Some(to) = held.iter().find_map(|range| range.run(address, bytes.len())) else { return false };
        // SAFETY: as in `load_bytes`, and these ranges lie in writable ones.
        unsafe { copy_bytes(bytes.as_ptr(), to, bytes.len()) };
        true
    }

    /// Reads `N` bytes at any address, translated and checked if there is a guard.
    pub(crate) fn load<const N: usize>(&mut self, address: u64) -> Result<[u8; N], Fault> {
        match self.load_near(address) {
            Some(bytes) => Ok(bytes),
            None if self.guard.is_some() => self.load_guarded(address),
            None => self.load_plain(address),
        }
    }

    /// Reads `N` bytes at a physical address.
    fn load_plain<const N: usize>(&mut self, address: u64) -> Result<[u8; N], Fault> {
        let fault = Fault::at(address);
        let end = address.checked_add(N as u64).ok_or(fault)?;
        let holds = |s: &RegionSpan| s.range.start <= address && end <= s.range.end;
        let index = self.all.iter().position(holds).ok_or(fault)?;
        if self.guard.is_none() {
            self.found(address, index);
        }
        let span = &self.all[index];
        // SAFETY: the region contains all `N` bytes.
        Ok(unsafe { span.pointer.add((address - span.range.start) as usize).cast::<[u8; N]>().read() })
    }

    /// Writes `N` bytes at any address, translated and checked if there is a guard.
    pub(crate) fn store<const N: usize>(&mut self, address: u64, bytes: [u8; N]) -> Result<(), Fault> {
        if self.store_near(address, bytes) {
            return Ok(());
        }
        if self.guard.is_some() {
            return self.store_guarded(address, bytes);
        }
        let fault = Fault::at(address);
        let end = address.checked_add(N as u64).ok_or(fault)?;
        let holds = |s: &RegionSpan| s.writable.start <= address && end <= s.writable.end;
        let index = self.all.iter().position(holds).ok_or(fault)?;
        self.found(address, index);
        let span = &self.all[index];
        debug_assert!(span.range.start <= address && end <= span.range.end, "{address:#x} in {:x?}", span.range);
        // SAFETY: `writable` lies in the region and contains all `N` bytes; it is empty for a region that is shared.
        unsafe { span.pointer.add((address - span.range.start) as usize).cast::<[u8; N]>().write(bytes) };
        self.stored(address, end);
        Ok(())
    }

    /// Notes whether a store from `address` to `end` changed decoded instructions, or the watched address.
    fn stored(&mut self, address: u64, end: u64) {
        debug_assert!(address <= end, "{address:#x}..{end:#x}");
        if address < self.code.end && self.code.start < end {
            self.code_written = true;
        }
        if self.watched.is_some_and(|watched| address < watched.saturating_add(8) && watched < end) {
            self.watch_hit = true;
        }
    }
}

/// Copies bytes; those of a vector register of 128 or 256 bits without a call of a function.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
unsafe fn copy_bytes(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: the caller's promise; the constants are `count`.
    unsafe {
        match count {
            16 => std::ptr::copy_nonoverlapping(from, to, 16),
            32 => std::ptr::copy_nonoverlapping(from, to, 32),
            _ => std::ptr::copy_nonoverlapping(from, to, count),
        }
    }
}
