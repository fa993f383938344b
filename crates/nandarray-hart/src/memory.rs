//! What a program can reach: regions of memory at addresses, owned or lent for a call; everything else is a fault.
//!
//! A region is readable throughout, writable and executable in parts of it. A misaligned access is as good as any; one that
//! crosses the end of a region is a fault. `spans` is how a hart reaches all of it.

mod spans;

use std::fmt;
use std::ops::Range;

pub(crate) use spans::Spans;

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
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
