//! The shape of the flash: pages, lanes (channel x bank), blocks, segments.
//!
//! A *segment* is a superblock: one erase block from every lane, erased and reclaimed as one. Physical pages that sit
//! side by side across channels sit side by side on the medium, so that a building block that spreads over all channels
//! is one contiguous extent:
//!
//! ```text
//! segment  | page 0 | page 1 | ... | page n-1 |   and elsewhere   | segment header | OOB 0 | OOB 1 | ... | OOB n-1 |
//! page i   of a segment lies on channel i % channels, bank i / channels % banks, row i / (channels * banks)
//! ```
//!
//! The offsets of segments on the medium are in `layout.rs`. This file knows no states and no timing: it is arithmetic,
//! checked once in [`Geometry::validate`].

use super::Layout;
use crate::error::{Error, Result};

pub use crate::media::HEAD_BYTES;
/// Bytes of one superblock slot; slot A at offset 0, slot B behind it.
pub const SUPERBLOCK_BYTES: u64 = 4_096;
/// Bytes of a segment's header, in front of its out-of-band records.
pub const SEGMENT_HEADER_BYTES: u64 = 64;
/// Bytes of one out-of-band record.
pub const OOB_BYTES: u64 = 32;

/// No store has more segments: tables have an entry for each, and with these numbers no address needs more than 63
/// bits.
pub const SEGMENTS_MAX: u64 = 1 << 24;
/// No medium has this segment. A unit whose content was lost in a salvage is mapped to its pages: reading it is an
/// error, and no page is ever written there.
pub const LOST_SEGMENT: Segment = SEGMENTS_MAX as Segment - 1;

/// The address of a physical page: segment x (pages per segment + 1) + page within the segment. The number between two
/// segments names no page, so that pages with neighbouring numbers are always neighbours on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ppa(pub u64);

/// A run of access units on physical pages side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First access unit.
    pub unit: u32,
    /// Number of units, at least 1.
    pub count: u32,
    /// The page of the first unit; the others follow.
    pub ppa: Ppa,
}

impl Run {
    /// The unit behind the last one.
    pub fn end(&self) -> u32 {
        self.unit + self.count
    }

    /// The page of a unit of this run.
    pub fn page_of(&self, unit: u32) -> Ppa {
        debug_assert!((self.unit..self.end()).contains(&unit));
        Ppa(self.ppa.0 + u64::from(unit - self.unit))
    }
}

/// A segment's number, from 0.
pub type Segment = u32;

/// A lane: one bank of one channel; the unit of parallelism within the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    /// Channel, from 0.
    pub channel: u32,
    /// Bank (die behind that channel), from 0.
    pub bank: u32,
}

/// The shape of a store's flash. Fixes the format: a store is read with the geometry that it was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a page, which is the access unit: what is read, checked and appended as one. A power of two from 512.
    pub page_bytes: u32,
    /// Channels: how many pages are moved in parallel.
    pub channels: u32,
    /// Banks behind a channel.
    pub banks: u32,
    /// Pages of an erase block (one lane's share of a segment).
    pub pages_per_block: u32,
    /// Layout of segments on the medium.
    pub layout: Layout,
}

impl Geometry {
    /// The preset of the file backend, chosen by `python -m bench geometry`; the measurement is in docs/benchmarks.md.
    ///
    /// 4 KiB pages: what a page cache reads at the least, so that a cold element costs one small read. 64 "channels":
    /// equation 1 then gives building blocks of 256 KiB, large enough for a disk and small enough for a core's cache.
    pub const FILE: Self =
        Self { page_bytes: 4_096, channels: 64, banks: 1, pages_per_block: 16, layout: Layout::NEWEST };

    /// A geometry small enough for tests to fill, collect and crash exhaustively.
    pub const TINY: Self = Self { page_bytes: 512, channels: 4, banks: 2, pages_per_block: 4, layout: Layout::NEWEST };

    /// Looks a named preset up: `file`, `tiny`.
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

    /// Checks the ranges that the formats below can address.
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

    /// Lanes: channels x banks.
    pub fn lanes(&self) -> u32 {
        self.channels * self.banks
    }

    /// Pages of a segment.
    pub fn pages_per_segment(&self) -> u32 {
        self.lanes() * self.pages_per_block
    }

    /// Bytes of a segment's pages, without its out-of-band area.
    pub fn segment_data_bytes(&self) -> u64 {
        u64::from(self.pages_per_segment()) * u64::from(self.page_bytes)
    }

    /// The segment that a page lies in.
    pub fn segment_of(&self, ppa: Ppa) -> Segment {
        u32::try_from(ppa.0 / self.ppa_stride()).expect("a ppa names a segment below 2^32")
    }

    /// The page's number within its segment.
    pub fn page_in_segment(&self, ppa: Ppa) -> u32 {
        (ppa.0 % self.ppa_stride()) as u32
    }

    /// The page with this number in this segment.
    pub fn ppa(&self, segment: Segment, page: u32) -> Ppa {
        debug_assert!(page < self.pages_per_segment());
        Ppa(u64::from(segment) * self.ppa_stride() + u64::from(page))
    }

    fn ppa_stride(&self) -> u64 {
        u64::from(self.pages_per_segment()) + 1
    }

    /// Whether all pages of a run are pages, of one segment among the first `segments`.
    pub fn has_run(&self, run: Run, segments: u64) -> bool {
        run.ppa.0 / self.ppa_stride() < segments
            && self.page_in_segment(run.ppa) + run.count <= self.pages_per_segment()
    }

    /// The lane that a page lies on.
    pub fn lane_of(&self, ppa: Ppa) -> Lane {
        let page = self.page_in_segment(ppa);
        Lane { channel: page % self.channels, bank: page / self.channels % self.banks }
    }

    /// The lane's number: bank-major, so that lanes side by side across channels have numbers side by side.
    pub fn lane_index(&self, lane: Lane) -> usize {
        (lane.bank * self.channels + lane.channel) as usize
    }

    /// The page of a segment in this row of this lane.
    pub fn page_at(&self, lane: usize, row: u32) -> u32 {
        debug_assert!(row < self.pages_per_block && lane < self.lanes() as usize, "row {row} of lane {lane}");
        row * self.lanes() + lane as u32
    }

    /// Equation 1 of the NDS paper (section 4.1): the smallest building block that uses every channel, in bytes.
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
