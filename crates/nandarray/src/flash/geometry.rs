//! The geometry of the flash: pages, lanes (channel x bank), erase blocks, segments.
//!
//! A *segment* is what SSDs call a superblock: one erase block of every lane, opened and reclaimed as one. Pages that
//! are neighbours across channels are adjacent on the medium, so that a building block that is spread over all channels
//! is one contiguous extent:
//!
//! ```text
//! segment  | page 0 | page 1 | ... | page n-1 |   and elsewhere   | segment header | OOB 0 | OOB 1 | ... | OOB n-1 |
//! page i   of a segment lies on channel i % channels, bank i / channels % banks, row i / (channels * banks)
//! ```
//!
//! The offsets of segments on the medium are in `layout.rs`. This file has no state and no timing, only arithmetic on a
//! geometry that [`Geometry::validate`] has checked once.

use super::Layout;
use crate::error::{Error, Result};

pub use crate::media::HEAD_BYTES;
/// Size of a superblock slot in bytes; slot 0 is at offset 0, slot 1 follows it.
pub const SUPERBLOCK_BYTES: u64 = 4_096;
/// Size of a segment's header in bytes; its out-of-band records follow.
pub const SEGMENT_HEADER_BYTES: u64 = 64;
/// Size of an out-of-band record in bytes.
pub const OOB_BYTES: u64 = 32;

/// Largest number of segments of a store. Bounds the memory of tables with an entry for each, and keeps addresses below
/// 2^63.
pub const SEGMENTS_MAX: u64 = 1 << 24;
/// A segment number that no medium has. A unit whose content was lost in a salvage is mapped to a page of it: reading
/// the unit is an error, and no page is ever written there.
pub const LOST_SEGMENT: Segment = SEGMENTS_MAX as Segment - 1;

/// Address of a physical page: segment x (pages per segment + 1) + number of the page in the segment. One number
/// between two segments names no page, so pages with consecutive numbers are always adjacent on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ppa(pub u64);

/// A run of consecutive access units on consecutive physical pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First access unit.
    pub unit: u32,
    /// Number of units, at least 1.
    pub count: u32,
    /// Page of the first unit; those of the other units follow it.
    pub ppa: Ppa,
}

impl Run {
    /// Returns the unit after the last one.
    pub fn end(&self) -> u32 {
        self.unit + self.count
    }

    /// Returns the page of a unit of this run.
    pub fn page_of(&self, unit: u32) -> Ppa {
        debug_assert!((self.unit..self.end()).contains(&unit));
        Ppa(self.ppa.0 + u64::from(unit - self.unit))
    }
}

/// A segment's number, from 0.
pub type Segment = u32;

/// A lane: one bank of one channel; pages in different lanes can be accessed in parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    /// Number of the channel, from 0.
    pub channel: u32,
    /// Number of the bank (a die on the channel), from 0.
    pub bank: u32,
}

/// Sizes of a store's pages, lanes and segments. These are a part of the store's format and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of a page in bytes, a power of two from 512 on. A page is the access unit: the unit of reading, verifying
    /// and appending.
    pub page_bytes: u32,
    /// Number of channels, which transfer pages in parallel.
    pub channels: u32,
    /// Number of banks on a channel.
    pub banks: u32,
    /// Number of pages of an erase block, which is one lane's part of a segment.
    pub pages_per_block: u32,
    /// Arrangement of segments on the medium.
    pub layout: Layout,
}

impl Geometry {
    /// Geometry of stores in files, chosen by `python -m bench geometry`; the measurement is in docs/benchmarks.md.
    ///
    /// 4 KiB pages are the smallest unit that a page cache reads, so that an element that is not in memory costs one
    /// small read. With 64 "channels" equation 1 of the NDS paper gives building blocks of 256 KiB, large enough for a
    /// disk and small enough for a core's cache.
    pub const FILE: Self =
        Self { page_bytes: 4_096, channels: 64, banks: 1, pages_per_block: 16, layout: Layout::NEWEST };

    /// A geometry that is small enough for tests to fill, reclaim and crash exhaustively.
    pub const TINY: Self = Self { page_bytes: 512, channels: 4, banks: 2, pages_per_block: 4, layout: Layout::NEWEST };

    /// Returns the geometry with this name: `file` or `tiny`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an unknown name.
    pub fn preset(name: &str) -> Result<Self> {
        match name {
            "file" => Ok(Self::FILE),
            "tiny" => Ok(Self::TINY),
            _ => Err(Error::invalid(format!("unknown geometry preset {name:?}; there are \"file\" and \"tiny\""))),
        }
    }

    /// Checks that all values are within the ranges that the file format can express.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the field, its value and its range.
    pub fn validate(&self) -> Result<()> {
        let range = |name: &str, value: u32, low: u32, high: u32| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(Error::invalid(format!("geometry: {name} is {value}, not within {low}..={high}")))
            }
        };
        range("page_bytes", self.page_bytes, 512, 1 << 20)?;
        range("channels", self.channels, 1, 4096)?;
        range("banks", self.banks, 1, 1024)?;
        range("pages_per_block", self.pages_per_block, 1, 1 << 16)?;
        if !self.page_bytes.is_power_of_two() {
            return Err(Error::invalid(format!("geometry: page_bytes is {}, not a power of two", self.page_bytes)));
        }
        let pages = u64::from(self.lanes()) * u64::from(self.pages_per_block);
        if !(4..=1 << 23).contains(&pages) {
            return Err(Error::invalid(format!("geometry: a segment has {pages} pages, not within 4..=8388608")));
        }
        let bytes = pages * u64::from(self.page_bytes);
        if !(4096..=1 << 38).contains(&bytes) {
            return Err(Error::invalid(format!("geometry: a segment has {bytes} bytes, not within 4 KiB..=256 GiB")));
        }
        Ok(())
    }

    /// Returns the number of lanes: channels x banks.
    pub fn lanes(&self) -> u32 {
        self.channels * self.banks
    }

    /// Returns the number of pages of a segment.
    pub fn pages_per_segment(&self) -> u32 {
        self.lanes() * self.pages_per_block
    }

    /// Returns the size of a segment's pages in bytes, without header and out-of-band records.
    pub fn segment_data_bytes(&self) -> u64 {
        u64::from(self.pages_per_segment()) * u64::from(self.page_bytes)
    }

    /// Returns the segment of a page.
    pub fn segment_of(&self, ppa: Ppa) -> Segment {
        u32::try_from(ppa.0 / self.ppa_stride()).expect("a ppa names a segment below 2^32")
    }

    /// Returns the number of a page within its segment.
    pub fn page_in_segment(&self, ppa: Ppa) -> u32 {
        (ppa.0 % self.ppa_stride()) as u32
    }

    /// Returns the address of the page with this number in this segment.
    pub fn ppa(&self, segment: Segment, page: u32) -> Ppa {
        debug_assert!(page < self.pages_per_segment());
        Ppa(u64::from(segment) * self.ppa_stride() + u64::from(page))
    }

    fn ppa_stride(&self) -> u64 {
        u64::from(self.pages_per_segment()) + 1
    }

    /// Whether all pages of a run exist and are in one segment, whose number is below `segments`.
    pub fn has_run(&self, run: Run, segments: u64) -> bool {
        run.ppa.0 / self.ppa_stride() < segments
            && self.page_in_segment(run.ppa) + run.count <= self.pages_per_segment()
    }

    /// Returns the lane of a page.
    pub fn lane_of(&self, ppa: Ppa) -> Lane {
        let page = self.page_in_segment(ppa);
        Lane { channel: page % self.channels, bank: page / self.channels % self.banks }
    }

    /// Returns the number of a lane: bank x channels + channel, so that lanes of adjacent channels have consecutive
    /// numbers.
    pub fn lane_index(&self, lane: Lane) -> usize {
        (lane.bank * self.channels + lane.channel) as usize
    }

    /// Returns the number, within a segment, of the page in this row of this lane.
    pub fn page_at(&self, lane: usize, row: u32) -> u32 {
        debug_assert!(row < self.pages_per_block && lane < self.lanes() as usize, "row {row} of lane {lane}");
        row * self.lanes() + lane as u32
    }

    /// Returns the size in bytes of the smallest building block that uses every channel: equation 1 of the NDS paper
    /// (section 4.1).
    pub fn building_block_min_bytes(&self) -> u64 {
        u64::from(self.channels) * u64::from(self.page_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_side_by_side_across_channels_are_side_by_side_on_the_medium() {
        let g = Geometry::TINY;
        for page in 0..g.pages_per_segment() - 1 {
            let (a, b) = (g.ppa(3, page), g.ppa(3, page + 1));
            assert_eq!(g.page_offset(b) - g.page_offset(a), u64::from(g.page_bytes));
            let (la, lb) = (g.lane_of(a), g.lane_of(b));
            assert_eq!((la.channel + 1) % g.channels, lb.channel);
            assert_eq!(g.page_at(g.lane_index(la), page / g.lanes()), page);
        }
    }

    #[test]
    fn bad_geometries_are_refused_with_the_number() {
        let e = Geometry { page_bytes: 3000, ..Geometry::TINY }.validate().unwrap_err();
        assert!(e.to_string().contains("3000"), "{e}");
        let e = Geometry { channels: 0, ..Geometry::TINY }.validate().unwrap_err();
        assert!(e.to_string().contains("channels is 0"), "{e}");
    }
}
