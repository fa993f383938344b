//! What a program can reach: regions of memory at addresses, owned or lent for a call; everything else is a fault.
//!
//! A region is readable throughout, writable and executable in parts of it. While a hart runs it holds the regions as raw
//! spans ([`Spans`]): one compare finds an address in the region that is used most, another in the one used last; the rest
//! is looked up. A misaligned access is as good as any; one that crosses the end of a region is a fault.
//! Where a [`Guard`](crate::protect::Guard) is set, addresses are translated and protected (`guarded`).

mod guarded;

use std::fmt;
use std::ops::Range;

use crate::protect::{Fault, Guard};

/// The bytes of a region.
#[derive(Debug)]
enum Bytes<'m> {
    Owned(Vec<u8>),
    Shared(&'m [u8]),
    Exclusive(&'m mut [u8]),
}

impl Bytes<'_> {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Shared(bytes) => bytes,
            Self::Exclusive(bytes) => bytes,
        }
    }
}

/// A range of addresses with bytes behind it.
#[derive(Debug)]
struct Region<'m> {
    base: u64,
    bytes: Bytes<'m>,
    /// Addresses that may be written.
    writable: Range<u64>,
    /// Addresses that may be executed.
    executable: Range<u64>,
}

impl Region<'_> {
    fn range(&self) -> Range<u64> {
        self.base..self.base + self.bytes.as_slice().len() as u64
    }
}

/// Why memory could not be laid out as asked, or the caller's own access to it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryError {
    /// The region would overlap the one at `other`, or end beyond the last address.
    Overlap {
        /// First address of the region.
        base: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// More bytes than the limit allows.
    Limit {
        /// Bytes that were asked for.
        bytes: u64,
        /// The most that are allowed.
        limit: u64,
    },
    /// No region holds these addresses, or they may not be written.
    Unmapped {
        /// First address.
        address: u64,
        /// Bytes from there.
        bytes: u64,
    },
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { base, bytes } => write!(f, "no room for {bytes} bytes at address {base:#x}"),
            Self::Limit { bytes, limit } => write!(f, "{bytes} bytes of memory are asked for, {limit} are allowed"),
            Self::Unmapped { address, bytes } => write!(f, "no memory of {bytes} bytes at address {address:#x}"),
        }
    }
}

impl std::error::Error for MemoryError {}

/// The memory of a program.
#[derive(Debug, Default)]
pub struct Memory<'m> {
    regions: Vec<Region<'m>>,
    limit: Option<u64>,
    /// An address whose 8 bytes are looked at after each store: `tohost`.
    watched: Option<u64>,
}

impl<'m> Memory<'m> {
    /// No memory at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// No memory yet, and never more than `limit` bytes that it owns.
    pub fn with_limit(limit: u64) -> Self {
        Self { limit: Some(limit), ..Self::default() }
    }

    /// Bytes in regions that the memory owns.
    pub fn owned_bytes(&self) -> u64 {
        let owned = |r: &Region<'_>| if let Bytes::Owned(bytes) = &r.bytes { bytes.len() as u64 } else { 0 };
        self.regions.iter().map(owned).sum()
    }

    fn insert(
        &mut self,
        base: u64,
        bytes: Bytes<'m>,
        writable: Range<u64>,
        executable: Range<u64>,
    ) -> Result<(), MemoryError> {
        let len = bytes.as_slice().len() as u64;
        let error = MemoryError::Overlap { base, bytes: len };
        let end = base.checked_add(len).ok_or(error.clone())?;
        if self.regions.iter().any(|r| r.range().start < end && base < r.range().end) {
            return Err(error);
        }
        self.regions.push(Region { base, bytes, writable, executable });
        Ok(())
    }

    /// Add a region of zeros that may be read and written.
    ///
    /// # Errors
    /// [`MemoryError::Overlap`], [`MemoryError::Limit`].
    pub fn add(&mut self, base: u64, bytes: u64) -> Result<(), MemoryError> {
        let end = base.checked_add(bytes).ok_or(MemoryError::Overlap { base, bytes })?;
        self.add_program(base, bytes, base..end, 0..0)
    }

    /// Add a region of zeros of which the addresses in `writable` may be written and those in `executable` executed.
    ///
    /// # Errors
    /// [`MemoryError::Overlap`], [`MemoryError::Limit`].
    pub fn add_program(
        &mut self,
        base: u64,
        bytes: u64,
        writable: Range<u64>,
        executable: Range<u64>,
    ) -> Result<(), MemoryError> {
        let total = self.owned_bytes().saturating_add(bytes);
        if let Some(limit) = self.limit.filter(|limit| total > *limit) {
            return Err(MemoryError::Limit { bytes: total, limit });
        }
        let length = usize::try_from(bytes).map_err(|_| MemoryError::Limit { bytes, limit: usize::MAX as u64 })?;
        let mut zeros = Vec::new();
        zeros.try_reserve_exact(length).map_err(|_| MemoryError::Limit { bytes, limit: isize::MAX as u64 })?;
        zeros.resize(length, 0);
        self.insert(base, Bytes::Owned(zeros), writable, executable)
    }

    /// Lend bytes to be read.
    ///
    /// # Errors
    /// [`MemoryError::Overlap`].
    pub fn lend(&mut self, base: u64, bytes: &'m [u8]) -> Result<(), MemoryError> {
        self.insert(base, Bytes::Shared(bytes), 0..0, 0..0)
    }

    /// Lend bytes to be read and written.
    ///
    /// # Errors
    /// [`MemoryError::Overlap`].
    pub fn lend_mut(&mut self, base: u64, bytes: &'m mut [u8]) -> Result<(), MemoryError> {
        let end = base.saturating_add(bytes.len() as u64);
        self.insert(base, Bytes::Exclusive(bytes), base..end, 0..0)
    }

    /// The same memory for the length of a call, to which more can be lent that is gone afterwards.
    pub fn for_call(&mut self) -> Memory<'_> {
        let regions = self.regions.iter_mut().map(|r| Region {
            base: r.base,
            bytes: match &mut r.bytes {
                Bytes::Owned(bytes) => Bytes::Exclusive(bytes),
                Bytes::Shared(bytes) => Bytes::Shared(bytes),
                Bytes::Exclusive(bytes) => Bytes::Exclusive(bytes),
            },
            writable: r.writable.clone(),
            executable: r.executable.clone(),
        });
        Memory { regions: regions.collect(), limit: self.limit, watched: self.watched }
    }

    /// Stop a hart after a store to the 8 bytes at `address` with [`Stop::ToHost`](crate::Stop::ToHost).
    pub fn watch(&mut self, address: u64) {
        self.watched = Some(address);
    }

    /// The bytes of `addresses`, which one region must hold.
    ///
    /// # Errors
    /// [`MemoryError::Unmapped`].
    pub fn get(&self, addresses: Range<u64>) -> Result<&[u8], MemoryError> {
        let bytes = addresses.end.saturating_sub(addresses.start);
        let error = MemoryError::Unmapped { address: addresses.start, bytes };
        let holds = |r: &&Region<'_>| r.range().start <= addresses.start && addresses.end <= r.range().end;
        let region = self.regions.iter().find(holds).ok_or(error)?;
        let from = (addresses.start - region.base) as usize;
        Ok(&region.bytes.as_slice()[from..from + bytes as usize])
    }

    /// The same bytes, to be changed by the caller; parts that the program itself may not write are among them.
    ///
    /// # Errors
    /// [`MemoryError::Unmapped`], also for what is only lent for reading.
    pub fn get_mut(&mut self, addresses: Range<u64>) -> Result<&mut [u8], MemoryError> {
        let bytes = addresses.end.saturating_sub(addresses.start);
        let error = MemoryError::Unmapped { address: addresses.start, bytes };
        let holds = |r: &&mut Region<'_>| r.range().start <= addresses.start && addresses.end <= r.range().end;
        let region = self.regions.iter_mut().find(holds).ok_or(error.clone())?;
        let from = (addresses.start - region.base) as usize;
        match &mut region.bytes {
            Bytes::Owned(all) => Ok(&mut all[from..from + bytes as usize]),
            Bytes::Exclusive(all) => Ok(&mut all[from..from + bytes as usize]),
            Bytes::Shared(_) => Err(error),
        }
    }

    /// Two or four bytes of code at `address`: what the hart decodes. None where nothing may be executed.
    pub fn fetch(&self, address: u64) -> Option<u32> {
        let region = self.regions.iter().find(|r| r.executable.contains(&address))?;
        let end = region.executable.end.min(region.range().end);
        let from = address.checked_sub(region.base)? as usize;
        let bytes = region.bytes.as_slice();
        let low = u16::from_le_bytes(bytes.get(from..from + 2)?.try_into().ok()?);
        if address + 2 > end {
            return None;
        }
        if crate::isa::length(low) == 2 {
            return Some(u32::from(low));
        }
        if address + 4 > end {
            return None;
        }
        Some(u32::from_le_bytes(bytes.get(from..from + 4)?.try_into().ok()?))
    }

    pub(crate) fn spans(&mut self) -> Spans<'_> {
        let watched = self.watched;
        let all: Vec<Span> = self
            .regions
            .iter_mut()
            .map(|r| {
                let (pointer, len) = match &mut r.bytes {
                    Bytes::Owned(bytes) => (bytes.as_mut_ptr(), bytes.len()),
                    Bytes::Exclusive(bytes) => (bytes.as_mut_ptr(), bytes.len()),
                    // Never written through: a shared region's `writable` is empty.
                    Bytes::Shared(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
                };
                let shared = matches!(r.bytes, Bytes::Shared(_));
                let range = r.base..r.base + len as u64;
                let writable = if shared { 0..0 } else { intersect(&r.writable, &range) };
                Span { range, pointer, writable, executable: intersect(&r.executable, &(r.base..r.base + len as u64)) }
            })
            .collect();
        let mut spans = Spans {
            load: Fast::NONE,
            store: Fast::NONE,
            load_last: Fast::NONE,
            store_last: Fast::NONE,
            all,
            watched,
            code: 0..0,
            code_written: false,
            watch_hit: false,
            guard: None,
            borrowed: std::marker::PhantomData,
        };
        spans.choose();
        spans
    }
}

fn intersect(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    let (start, end) = (a.start.max(b.start), a.end.min(b.end));
    if start < end { start..end } else { 0..0 }
}

/// A region while a hart runs.
#[derive(Debug)]
struct Span {
    range: Range<u64>,
    pointer: *mut u8,
    writable: Range<u64>,
    executable: Range<u64>,
}

/// A range of addresses in which accesses of up to 8 bytes need one compare.
#[derive(Clone, Copy, Debug)]
struct Fast {
    base: u64,
    /// Offsets at which 8 bytes still fit: length less 7.
    reach: u64,
    pointer: *mut u8,
}

impl Fast {
    const NONE: Self = Self { base: 0, reach: 0, pointer: std::ptr::null_mut() };

    fn new(span: &Span, range: &Range<u64>) -> Self {
        if range.end - range.start < 8 {
            return Self::NONE;
        }
        let offset = (range.start - span.range.start) as usize;
        // SAFETY: `range` lies in the span, so the offset is within its bytes.
        let pointer = unsafe { span.pointer.add(offset) };
        Self { base: range.start, reach: range.end - range.start - 7, pointer }
    }

    #[inline(always)]
    fn at(&self, address: u64) -> Option<*mut u8> {
        let offset = address.wrapping_sub(self.base);
        // SAFETY: below `reach` there are at least 8 bytes of the span from the offset on.
        if offset < self.reach { Some(unsafe { self.pointer.add(offset as usize) }) } else { None }
    }
}

/// The regions of a [`Memory`] while a hart runs. It borrows them exclusively, and reaches them by pointers only.
#[derive(Debug)]
pub(crate) struct Spans<'m> {
    load: Fast,
    store: Fast,
    load_last: Fast,
    store_last: Fast,
    all: Vec<Span>,
    watched: Option<u64>,
    /// Addresses of which blocks were decoded.
    code: Range<u64>,
    /// A store went to decoded addresses.
    pub(crate) code_written: bool,
    /// A store went to the watched address.
    pub(crate) watch_hit: bool,
    /// What stands before memory, if anything does.
    pub(crate) guard: Option<Box<Guard>>,
    borrowed: std::marker::PhantomData<&'m mut [u8]>,
}

impl Spans<'_> {
    /// Take the program's own memory as the region that is used most.
    fn choose(&mut self) {
        let size = |range: &Range<u64>| range.end - range.start;
        self.load_last = Fast::NONE;
        self.store_last = Fast::NONE;
        if self.guard.is_some() {
            (self.load, self.store) = (Fast::NONE, Fast::NONE);
            return;
        }
        let main = self.all.iter().max_by_key(|s| (size(&s.executable) > 0, size(&s.range)));
        self.load = main.map_or(Fast::NONE, |s| Fast::new(s, &s.range));
        let written = self.all.iter().filter(|s| size(&s.writable) > 0);
        let main = written.max_by_key(|s| (size(&s.executable) > 0, size(&s.writable)));
        self.store = main.map_or(Fast::NONE, |s| Fast::new(s, &self.plain(&s.writable)));
    }

    /// The largest part of `range` that holds neither decoded code nor the watched address.
    fn plain(&self, range: &Range<u64>) -> Range<u64> {
        let mut parts = vec![range.clone()];
        let watched = self.watched.map_or(0..0, |at| at..at.saturating_add(8));
        for cut in [&self.code, &watched].into_iter().filter(|cut| cut.start < cut.end) {
            parts = parts
                .into_iter()
                .flat_map(|p| [p.start..p.end.min(cut.start.max(p.start)), p.start.max(cut.end.min(p.end))..p.end])
                .filter(|p| p.start < p.end)
                .collect();
        }
        parts.into_iter().max_by_key(|p| p.end - p.start).unwrap_or(0..0)
    }

    /// Take note that instructions at `addresses` were decoded, so that stores there are seen.
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

    /// Take note that nothing is decoded any more.
    pub(crate) fn forget_decoded(&mut self) {
        self.code = 0..0;
        self.choose();
    }

    /// The regions, for a translator.
    pub(crate) fn list(&self) -> impl Iterator<Item = (Range<u64>, Range<u64>, bool, *mut u8)> {
        let executable = |s: &Span| s.executable.start < s.executable.end;
        self.all.iter().map(move |s| (s.range.clone(), s.writable.clone(), executable(s), s.pointer))
    }

    /// Whether nothing can be both written and executed, and no address is watched.
    pub(crate) fn fixed(&self) -> bool {
        self.watched.is_none() && self.all.iter().all(|s| intersect(&s.writable, &s.executable).is_empty())
    }

    /// The 8 bytes at the watched address.
    pub(crate) fn watched_value(&mut self) -> u64 {
        self.watched.and_then(|at| self.load_plain::<8>(at).ok()).map_or(0, u64::from_le_bytes)
    }

    /// Addresses of which blocks were decoded.
    pub(crate) fn decoded_range(&self) -> Range<u64> {
        self.code.clone()
    }

    pub(crate) fn executable(&self, address: u64) -> Option<u32> {
        let span = self.all.iter().find(|s| s.executable.contains(&address))?;
        let left = span.executable.end - address;
        let mut bytes = [0; 4];
        let count = left.min(4) as usize;
        // SAFETY: `executable` lies in the span, and `count` bytes of it are left from `address` on.
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

    /// Read `N` bytes from the region that is used most.
    #[inline(always)]
    pub(crate) fn load_fast<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        const { assert!(N <= 8) };
        let from = self.load.at(address)?;
        // SAFETY: `at` leaves 8 bytes of a region that is borrowed exclusively; an array of bytes has no alignment.
        Some(unsafe { from.cast::<[u8; N]>().read() })
    }

    /// Write `N` bytes to the region that is used most.
    #[inline(always)]
    pub(crate) fn store_fast<const N: usize>(&mut self, address: u64, bytes: [u8; N]) -> bool {
        const { assert!(N <= 8) };
        let Some(to) = self.store.at(address) else { return false };
        // SAFETY: as for loads, and the fast range of stores lies in a writable one.
        unsafe { to.cast::<[u8; N]>().write(bytes) };
        true
    }

    /// Read `N` bytes from wherever they are.
    pub(crate) fn load<const N: usize>(&mut self, address: u64) -> Result<[u8; N], Fault> {
        if let Some(from) = self.load_last.at(address) {
            // SAFETY: as in `load_fast`.
            return Ok(unsafe { from.cast::<[u8; N]>().read() });
        }
        if self.guard.is_some() { self.load_guarded(address) } else { self.load_plain(address) }
    }

    /// Read `N` bytes at a physical address.
    fn load_plain<const N: usize>(&mut self, address: u64) -> Result<[u8; N], Fault> {
        let fault = Fault::at(address);
        let end = address.checked_add(N as u64).ok_or(fault)?;
        let span = self.all.iter().find(|s| s.range.start <= address && end <= s.range.end).ok_or(fault)?;
        if self.guard.is_none() {
            self.load_last = Fast::new(span, &span.range);
        }
        // SAFETY: the span holds all `N` bytes.
        Ok(unsafe { span.pointer.add((address - span.range.start) as usize).cast::<[u8; N]>().read() })
    }

    /// Write `N` bytes wherever they belong.
    pub(crate) fn store<const N: usize>(&mut self, address: u64, bytes: [u8; N]) -> Result<(), Fault> {
        if let Some(to) = self.store_last.at(address) {
            // SAFETY: as in `store_fast`.
            unsafe { to.cast::<[u8; N]>().write(bytes) };
            return Ok(());
        }
        if self.guard.is_some() {
            return self.store_guarded(address, bytes);
        }
        let fault = Fault::at(address);
        let end = address.checked_add(N as u64).ok_or(fault)?;
        let span = self.all.iter().find(|s| s.writable.start <= address && end <= s.writable.end).ok_or(fault)?;
        // SAFETY: `writable` lies in the span and holds all `N` bytes; a span that is shared has none.
        unsafe { span.pointer.add((address - span.range.start) as usize).cast::<[u8; N]>().write(bytes) };
        let fast = Fast::new(span, &self.plain(&span.writable));
        self.store_last = fast;
        self.stored(address, end);
        Ok(())
    }

    /// Take note of what a store went to.
    fn stored(&mut self, address: u64, end: u64) {
        if address < self.code.end && self.code.start < end {
            self.code_written = true;
        }
        if self.watched.is_some_and(|watched| address < watched.saturating_add(8) && watched < end) {
            self.watch_hit = true;
        }
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
