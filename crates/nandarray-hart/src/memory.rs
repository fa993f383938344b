//! The memory of a program: regions at addresses, owned or lent for a call; an access to any other address is a fault.
//!
//! All of a region can be read, and parts of it can be written or executed. Misaligned accesses are allowed; an access
//! that crosses the end of a region is a fault. A hart accesses the regions by the tables in `spans`, which the memory
//! keeps until its regions change, so that resuming a run does not build them again.

mod spans;

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use spans::RegionTable;

/// The bytes of a memory region, by their ownership.
#[derive(Debug)]
enum RegionBytes<'m> {
    Owned(Vec<u8>),
    Counted(Arc<Vec<u8>>, Range<usize>),
    Shared(&'m [u8]),
    /// A slice that is borrowed exclusively. It is kept as a pointer, since a new reference to it would invalidate the
    /// pointers in `spans`.
    Exclusive(*mut u8, usize, PhantomData<&'m mut [u8]>),
}

impl RegionBytes<'_> {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Counted(bytes, range) => &bytes[range.clone()],
            Self::Shared(bytes) => bytes,
            // SAFETY: the slice is borrowed for as long as this value lives, and not written while `self` is borrowed.
            Self::Exclusive(pointer, length, _) => unsafe { std::slice::from_raw_parts(*pointer, *length) },
        }
    }

    /// Returns the bytes, for writing; `None` if they may only be read.
    fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Owned(bytes) => Some(bytes),
            // SAFETY: the slice is borrowed exclusively for as long as this value lives, and so is `self`.
            Self::Exclusive(pointer, length, _) => Some(unsafe { std::slice::from_raw_parts_mut(*pointer, *length) }),
            Self::Counted(..) | Self::Shared(_) => None,
        }
    }

    /// Returns a pointer to the first byte, the number of bytes, and whether they may be written.
    fn raw(&mut self) -> (*mut u8, usize, bool) {
        match self {
            Self::Owned(bytes) => (bytes.as_mut_ptr(), bytes.len(), true),
            Self::Exclusive(pointer, length, _) => (*pointer, *length, true),
            Self::Counted(..) | Self::Shared(_) => {
                let bytes = self.as_slice();
                (bytes.as_ptr().cast_mut(), bytes.len(), false)
            }
        }
    }
}

/// A range of addresses, with the bytes that it maps to.
#[derive(Debug)]
struct MemoryRegion<'m> {
    base: u64,
    bytes: RegionBytes<'m>,
    /// Addresses that may be written.
    writable: Range<u64>,
    /// Addresses that may be executed.
    executable: Range<u64>,
}

impl MemoryRegion<'_> {
    fn range(&self) -> Range<u64> {
        debug_assert!(
            self.base.checked_add(self.bytes.as_slice().len() as u64).is_some(),
            "a region over the last address"
        );
        self.base..self.base + self.bytes.as_slice().len() as u64
    }

    /// Whether all addresses lie in the region; not so for a range that ends before it begins.
    fn holds(&self, addresses: &Range<u64>) -> bool {
        let own = self.range();
        own.start <= addresses.start && addresses.start <= addresses.end && addresses.end <= own.end
    }
}

/// The reason why memory could not be laid out, or why an access by the caller (not by a program) failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryError {
    /// The region would overlap another region, or end beyond the last address.
    Overlap {
        /// First address of the region.
        base: u64,
        /// Size of the region in bytes.
        bytes: u64,
    },
    /// The memory would have more bytes than its limit allows.
    Limit {
        /// Bytes that were requested.
        bytes: u64,
        /// Most bytes that the memory may have.
        limit: u64,
    },
    /// No region contains these addresses, or they may not be written.
    Unmapped {
        /// First address of the range.
        address: u64,
        /// Number of bytes from this address on.
        bytes: u64,
    },
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { base, bytes } => write!(f, "no room for {bytes} bytes at address {base:#x}"),
            Self::Limit { bytes, limit } => write!(f, "{bytes} bytes of memory are requested, {limit} are allowed"),
            Self::Unmapped { address, bytes } => write!(f, "no memory of {bytes} bytes at address {address:#x}"),
        }
    }
}

impl std::error::Error for MemoryError {}

/// The memory of a program.
#[derive(Debug, Default)]
pub struct Memory<'m> {
    regions: Vec<MemoryRegion<'m>>,
    limit: Option<u64>,
    /// An address whose 8 bytes are checked after each store (`tohost`); `None` if there is none.
    watched: Option<u64>,
    /// The tables by which a hart accesses the regions; `None` if the regions have changed since they were built.
    spans: Option<Box<RegionTable>>,
}

// SAFETY: pointers are to bytes that the memory owns or borrows exclusively, which move together with it; pointers in
// `spans` to what was lent for a run are not used after that run.
unsafe impl Send for Memory<'_> {}
// SAFETY: through a shared reference, nothing is written and no pointer of `spans` is used.
unsafe impl Sync for Memory<'_> {}

impl<'m> Memory<'m> {
    /// Creates a memory without regions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a memory without regions that will never own more than `limit` bytes.
    pub fn with_limit(limit: u64) -> Self {
        Self { limit: Some(limit), ..Self::default() }
    }

    /// Returns the number of bytes in regions that the memory owns.
    pub fn owned_bytes(&self) -> u64 {
        let owned =
            |r: &MemoryRegion<'_>| if let RegionBytes::Owned(bytes) = &r.bytes { bytes.len() as u64 } else { 0 };
        self.regions.iter().map(owned).sum()
    }

    fn insert(
        &mut self,
        base: u64,
        bytes: RegionBytes<'m>,
        writable: Range<u64>,
        executable: Range<u64>,
    ) -> Result<(), MemoryError> {
        let len = bytes.as_slice().len() as u64;
        let error = MemoryError::Overlap { base, bytes: len };
        debug_assert!(writable.start <= writable.end && executable.start <= executable.end, "reversed ranges");
        let end = base.checked_add(len).ok_or(error.clone())?;
        if self.regions.iter().any(|r| r.range().start < end && base < r.range().end) {
            return Err(error);
        }
        self.regions.push(MemoryRegion { base, bytes, writable, executable });
        self.spans = None;
        Ok(())
    }

    /// Adds a region of zeros that may be read and written.
    ///
    /// # Errors
    /// [`MemoryError::Overlap`], [`MemoryError::Limit`].
    pub fn add(&mut self, base: u64, bytes: u64) -> Result<(), MemoryError> {
        let end = base.checked_add(bytes).ok_or(MemoryError::Overlap { base, bytes })?;
        self.add_program(base, bytes, base..end, 0..0)
    }

    /// Adds a region of zeros; the addresses in `writable` may be written, those in `executable` executed.
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
        self.insert(base, RegionBytes::Owned(zeros), writable, executable)
    }

    /// Adds a region of borrowed bytes that may only be read.
    ///
    /// # Errors
    /// [`MemoryError::Overlap`].
    pub fn lend(&mut self, base: u64, bytes: &'m [u8]) -> Result<(), MemoryError> {
        self.insert(base, RegionBytes::Shared(bytes), 0..0, 0..0)
    }

    /// Adds a region of borrowed bytes that may be read and written.
    ///
    /// # Errors
    /// [`MemoryError::Overlap`].
    pub fn lend_mut(&mut self, base: u64, bytes: &'m mut [u8]) -> Result<(), MemoryError> {
        let end = base.saturating_add(bytes.len() as u64);
        self.insert(base, RegionBytes::Exclusive(bytes.as_mut_ptr(), bytes.len(), PhantomData), base..end, 0..0)
    }

    /// Adds a region of owned bytes that may be read, and written if `writable`; [`Memory::take`] returns them.
    ///
    /// # Errors
    /// [`MemoryError::Overlap`]; the bytes are then dropped.
    pub fn put(&mut self, base: u64, bytes: Vec<u8>, writable: bool) -> Result<(), MemoryError> {
        let end = base.saturating_add(bytes.len() as u64);
        self.insert(base, RegionBytes::Owned(bytes), if writable { base..end } else { 0..0 }, 0..0)
    }

    /// Adds a region that holds a range of shared bytes, which may only be read; [`Memory::take`] removes it.
    ///
    /// # Errors
    /// [`MemoryError::Overlap`].
    ///
    /// # Panics
    /// If `range` is not within the bytes.
    pub fn share(&mut self, base: u64, bytes: Arc<Vec<u8>>, range: Range<usize>) -> Result<(), MemoryError> {
        assert!(range.start <= range.end && range.end <= bytes.len(), "{range:?} of {} bytes", bytes.len());
        self.insert(base, RegionBytes::Counted(bytes, range), 0..0, 0..0)
    }

    /// Removes the region that begins at `base`, if there is one; returns its bytes if the memory owned them, otherwise
    /// `None`.
    pub fn take(&mut self, base: u64) -> Option<Vec<u8>> {
        let at = self.regions.iter().position(|r| r.base == base)?;
        self.spans = None;
        match self.regions.remove(at).bytes {
            RegionBytes::Owned(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns a view of the memory for one call: regions that are added to it do not remain afterwards.
    pub fn for_call(&mut self) -> Memory<'_> {
        let regions = self.regions.iter_mut().map(|r| MemoryRegion {
            base: r.base,
            writable: r.writable.clone(),
            executable: r.executable.clone(),
            bytes: match &mut r.bytes {
                RegionBytes::Counted(bytes, range) => RegionBytes::Shared(&bytes[range.clone()]),
                RegionBytes::Shared(bytes) => RegionBytes::Shared(bytes),
                own => {
                    let (pointer, length, _) = own.raw();
                    RegionBytes::Exclusive(pointer, length, PhantomData)
                }
            },
        });
        Memory { regions: regions.collect(), limit: self.limit, watched: self.watched, spans: None }
    }

    /// Makes a hart stop with [`Stop::ToHost`](crate::Stop::ToHost) after a store to the 8 bytes at `address`.
    pub fn watch(&mut self, address: u64) {
        self.watched = Some(address);
        self.spans = None;
    }

    /// Returns the bytes at `addresses`, which must lie in one region.
    ///
    /// # Errors
    /// [`MemoryError::Unmapped`].
    pub fn get(&self, addresses: Range<u64>) -> Result<&[u8], MemoryError> {
        let bytes = addresses.end.saturating_sub(addresses.start);
        let error = MemoryError::Unmapped { address: addresses.start, bytes };
        let region = self.regions.iter().find(|r| r.holds(&addresses)).ok_or(error)?;
        let from = (addresses.start - region.base) as usize;
        Ok(&region.bytes.as_slice()[from..from + bytes as usize])
    }

    /// Returns the bytes at `addresses`, for the caller to change, even where the program itself may not write.
    ///
    /// # Errors
    /// [`MemoryError::Unmapped`], also for regions whose bytes are borrowed or shared for reading.
    pub fn get_mut(&mut self, addresses: Range<u64>) -> Result<&mut [u8], MemoryError> {
        let bytes = addresses.end.saturating_sub(addresses.start);
        let error = MemoryError::Unmapped { address: addresses.start, bytes };
        let region = self.regions.iter_mut().find(|r| r.holds(&addresses)).ok_or(error.clone())?;
        let from = (addresses.start - region.base) as usize;
        region.bytes.as_mut_slice().map(|all| &mut all[from..from + bytes as usize]).ok_or(error)
    }

    /// Returns the two or four bytes of the instruction at `address`; `None` if nothing may be executed there.
    pub fn fetch(&self, address: u64) -> Option<u32> {
        let region = self.regions.iter().find(|r| r.executable.contains(&address))?;
        let end = region.executable.end.min(region.range().end);
        let from = address.checked_sub(region.base)? as usize;
        let bytes = region.bytes.as_slice();
        let low = u16::from_le_bytes(bytes.get(from..from + 2)?.try_into().ok()?);
        let left = end - address;
        if left < 2 {
            return None;
        }
        if crate::isa::length(low) == 2 {
            return Some(u32::from(low));
        }
        if left < 4 {
            return None;
        }
        Some(u32::from_le_bytes(bytes.get(from..from + 4)?.try_into().ok()?))
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
