//! The layout of the region, byte for byte: a page for the header, the table of namespaces, the queue pairs, the data,
//! the catalog.
//!
//! `python/nandarray/gpu/include/nandarray/layout.hpp` defines the same layout for C++; `docs/reference/queues.md`
//! describes it.

use std::mem::offset_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::QueueError;

/// Magic number at the beginning of the header: "NDAQUEUE" in memory order.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"NDAQUEUE");
pub(crate) const VERSION: u32 = 2;
/// Size of a logical block, in bytes.
pub(crate) const LBA_BYTES: u64 = 512;
/// Size of a page of the region, in bytes: each part begins at a page.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// Largest size of the catalog, in bytes.
const CATALOG_BYTES_MAX: u64 = 1 << 30;
/// Longest name of an array that can be served, in bytes.
pub const NAMESPACE_NAME_BYTES_MAX: usize = 295;
/// Offset of the byte of the file that a running server locks.
pub(crate) const SERVER_BYTE: i64 = 1 << 60;
/// Offset of the byte of the file that the client of queue pair 0 locks; the client of pair `q` locks the `q`-th byte
/// after it.
pub(crate) const CLAIM_BYTE: i64 = SERVER_BYTE + 1;

/// The header at the region's beginning, which does not change while the server runs.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct RegionHeader {
    pub(crate) magic: u64,
    pub(crate) version: u32,
    pub(crate) header_bytes: u32,
    pub(crate) region_bytes: u64,
    pub(crate) queues: u32,
    pub(crate) depth: u32,
    pub(crate) namespaces: u32,
    pub(crate) namespace_bytes: u32,
    pub(crate) namespaces_offset: u64,
    pub(crate) queues_offset: u64,
    pub(crate) queue_stride: u64,
    pub(crate) data_offset: u64,
    pub(crate) data_stride: u64,
    pub(crate) threads: u32,
    pub(crate) reserved: u32,
    /// Place of the catalog: text that describes the arrays, for clients that want more than the table has.
    pub(crate) catalog_offset: u64,
    pub(crate) catalog_bytes: u64,
}

/// Offset in the region of the abort word, which is 0 while the server serves.
pub(crate) const ABORT_OFFSET: u64 = 128;
/// Offset in the region of the word that a server thread counts up when it finds no work, before it sleeps.
pub(crate) const HEARTBEAT_OFFSET: u64 = 192;

/// An entry of the table of namespaces: an array, served as its bytes in C order.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct NamespaceEntry {
    pub(crate) nsid: u32,
    pub(crate) item_bytes: u32,
    pub(crate) bytes: u64,
    pub(crate) ndim: u32,
    pub(crate) writable: u32,
    pub(crate) shape: [u64; 16],
    pub(crate) dtype: [u8; 64],
    pub(crate) name: [u8; NAMESPACE_NAME_BYTES_MAX + 1],
}

/// Offset in a queue pair of the tail of its submission ring, which the client writes. This word and the five that
/// follow have a cache line each and precede the rings.
pub(crate) const SQ_TAIL: u64 = 0;
/// Offset in a queue pair of the head of its completion ring, which the client writes.
pub(crate) const CQ_HEAD: u64 = 64;
/// Offset in a queue pair of the word that is 1 while the pair's server thread sleeps; only the word in the thread's
/// first pair is used.
pub(crate) const ASLEEP: u64 = 128;
/// Offset in a queue pair of the client's claim: odd while a client uses the pair.
pub(crate) const CLAIM: u64 = 192;
/// Offset in a queue pair of the claim that the server serves.
pub(crate) const READY: u64 = 256;
/// Offset in a queue pair of the status with which the server ended the pair; 0 if it did not.
pub(crate) const ENDED: u64 = 320;
/// Size of the part of a queue pair before its rings, in bytes.
pub(crate) const QUEUE_HEADER_BYTES: u64 = 512;

/// Returns the phase tag of completion number `count` since the claim in a ring of `depth` entries, a power of two: 1
/// in the first lap.
pub(crate) fn phase(count: u32, depth: u32) -> u64 {
    debug_assert!(depth.is_power_of_two(), "a depth of {depth}");
    u64::from(!(count >> depth.trailing_zeros()) & 1)
}

const _: () = assert!(size_of::<NamespaceEntry>() == 512 && offset_of!(NamespaceEntry, name) == 216);
const _: () = assert!(offset_of!(RegionHeader, data_stride) == 72 && offset_of!(RegionHeader, threads) == 80);
const _: () = assert!(offset_of!(RegionHeader, catalog_offset) == 88 && size_of::<RegionHeader>() <= 128);

/// The sizes of a region, which its server chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionGeometry {
    /// Number of queue pairs, from 1 to 4096.
    pub queues: u32,
    /// Number of entries of a ring: a power of two from 2 to 32768.
    pub depth: u32,
    /// Size of the data area of each queue pair, in bytes: whole pages.
    pub data_bytes: u64,
    /// Number of threads of the server, at most one for each queue pair.
    pub threads: u32,
}

impl RegionGeometry {
    /// Computes the layout of a region with this number of namespaces, and a catalog of this size in bytes.
    ///
    /// # Errors
    /// [`QueueError::Invalid`]: a size is out of its range.
    pub(crate) fn header(&self, namespaces: u32, catalog_bytes: u64) -> Result<RegionHeader, QueueError> {
        let invalid = |what: String| Err(QueueError::Invalid(what));
        if !(1..=4096).contains(&self.queues) {
            return invalid(format!("queue pairs must be from 1 to 4096, not {}", self.queues));
        }
        if !self.depth.is_power_of_two() || !(2..=32768).contains(&self.depth) {
            return invalid(format!("a depth must be a power of two from 2 to 32768, not {}", self.depth));
        }
        if self.data_bytes == 0 || !self.data_bytes.is_multiple_of(PAGE_BYTES) || self.data_bytes > 1 << 40 {
            return invalid(format!("a queue pair's data must be whole pages of 4096 bytes, not {}", self.data_bytes));
        }
        if self.threads == 0 || self.threads > self.queues {
            return invalid(format!("{} threads for {} queue pairs", self.threads, self.queues));
        }
        let (queues, depth) = (u64::from(self.queues), u64::from(self.depth));
        let namespaces_offset = PAGE_BYTES;
        let table = u64::from(namespaces) * size_of::<NamespaceEntry>() as u64;
        let queues_offset = (namespaces_offset + table).next_multiple_of(PAGE_BYTES);
        let queue_stride = (QUEUE_HEADER_BYTES + 80 * depth).next_multiple_of(PAGE_BYTES);
        let data_offset = queues_offset + queues * queue_stride;
        let catalog_offset = data_offset + queues * self.data_bytes;
        if catalog_bytes > CATALOG_BYTES_MAX {
            return invalid(format!("a catalog must have at most {CATALOG_BYTES_MAX} bytes, not {catalog_bytes}"));
        }
        Ok(RegionHeader {
            magic: MAGIC,
            version: VERSION,
            header_bytes: PAGE_BYTES as u32,
            region_bytes: catalog_offset + catalog_bytes.next_multiple_of(PAGE_BYTES),
            queues: self.queues,
            depth: self.depth,
            namespaces,
            namespace_bytes: size_of::<NamespaceEntry>() as u32,
            namespaces_offset,
            queues_offset,
            queue_stride,
            data_offset,
            data_stride: self.data_bytes,
            threads: self.threads,
            reserved: 0,
            catalog_offset,
            catalog_bytes,
        })
    }
}

impl RegionHeader {
    /// Returns whether this header, which another process wrote, is valid for this version and its parts lie within
    /// `bytes` bytes.
    pub(crate) fn holds(&self, bytes: u64) -> bool {
        let geometry = RegionGeometry {
            queues: self.queues,
            depth: self.depth,
            data_bytes: self.data_stride,
            threads: self.threads,
        };
        // Only this function's layout is ever written: any other header is not that of a region.
        let expected = geometry.header(self.namespaces, self.catalog_bytes);
        expected.is_ok_and(|e| e.as_bytes() == self.as_bytes()) && self.region_bytes <= bytes
    }

    /// Returns the offset of a queue pair in the region.
    pub(crate) fn queue(&self, queue: u32) -> u64 {
        assert!(queue < self.queues, "queue {queue} of {}", self.queues);
        self.queues_offset + u64::from(queue) * self.queue_stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_holds_itself_and_no_other() {
        let header = RegionGeometry { queues: 3, depth: 8, data_bytes: 8192, threads: 2 }.header(5, 100).unwrap();
        assert!(header.holds(header.region_bytes) && !header.holds(header.region_bytes - 1));
        for at in 0..size_of::<RegionHeader>() {
            let mut bytes: [u8; size_of::<RegionHeader>()] = header.as_bytes().try_into().unwrap();
            if at == offset_of!(RegionHeader, catalog_bytes) {
                continue; // a catalog of another size within the same page
            }
            bytes[at] ^= 0x5a;
            assert!(!RegionHeader::read_from_bytes(&bytes).unwrap().holds(header.region_bytes), "byte {at}");
        }
    }
}
