//! Layout of the medium: the offsets of each segment's pages and records. The format version decides between two
//! layouts.
//!
//! ```text
//! interleaved  | head | pages 0 | records 0 | pages 1 | records 1 | ...             (versions 1 and 2)
//! grouped      | head, padding, records 0 ... G-1 | pages 0 | ... | pages G-1 |     (version 3)
//!                     | padding, records G ... 2G-1 | pages G | ... | pages 2G-1 | ...
//! ```
//!
//! "Records" are a segment's header and its out-of-band records, with the same content in both layouts. In the grouped
//! layout pages begin at a multiple of 2 MiB if the segment's size allows it, so that a page cache can hold and map
//! them as large pages (docs/design/008-aligned-data.md). Padding is never written, and takes no disk blocks.
//!
//! This file is arithmetic on a [`Geometry`] that was checked; `geometry.rs` defines the geometry.

use super::geometry::{HEAD_BYTES, OOB_BYTES, SEGMENT_HEADER_BYTES};
use super::{Geometry, Ppa, Segment};

/// Alignment of segments in the interleaved layout, in bytes.
const SEGMENT_ALIGN: u64 = 4_096;
/// Largest alignment of a segment's pages in the grouped layout, in bytes: a huge page. Smaller segments are aligned to
/// the largest power of two that divides their size.
const PAGES_ALIGN_MAX: u64 = 2 << 20;
/// Alignment of a segment's records in the grouped layout, in bytes, so that no sector has records of two segments.
const RECORDS_ALIGN: u64 = crate::media::SECTOR_BYTES as u64;

/// Arrangement of segments on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The records of each segment follow its pages: format versions 1 and 2.
    Interleaved,
    /// The records of a group of segments precede their pages, which are aligned: from format version 3 on.
    Grouped,
}

impl Layout {
    /// The layout of new stores.
    pub const NEWEST: Self = Self::Grouped;

    /// Returns the layout of a store with this format version.
    pub fn of_format(version: u32) -> Self {
        if version < 3 { Self::Interleaved } else { Self::Grouped }
    }

    /// Returns the newest format version with this layout, of a store without snapshots.
    pub fn newest_format(self) -> u32 {
        match self {
            Self::Interleaved => 2,
            Self::Grouped => 3,
        }
    }
}

/// The kind of content at an offset of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// Content of no segment: the file's head, or padding.
    None,
    /// Pages of a segment; the number is the byte's offset in these pages.
    Pages(Segment, u64),
    /// Header of a segment.
    Header(Segment),
    /// Out-of-band records of a segment; the number is the byte's offset in these records.
    Records(Segment, u64),
}

/// Sizes of the grouped layout, all computed from the geometry.
struct Groups {
    /// Number of segments of a group.
    segments: u64,
    /// Size of a segment's records in bytes, with padding.
    records: u64,
    /// Size of a segment's pages in bytes.
    pages: u64,
    /// Offset of the first group's pages in bytes.
    first: u64,
    /// Distance in bytes from the pages of a group to those of the next one.
    stride: u64,
}

impl Groups {
    fn of(geometry: &Geometry) -> Self {
        let (records, pages) = (geometry.records_bytes(), geometry.segment_data_bytes());
        let align = (1 << pages.trailing_zeros()).min(PAGES_ALIGN_MAX);
        let first = round_up(HEAD_BYTES + records, align);
        // Sizes of records are below 2^32, and a 32-bit division is faster.
        let segments = u64::from((first - HEAD_BYTES) as u32 / records as u32);
        let stride = round_up(segments * records, align) + segments * pages;
        Self { segments, records, pages, first, stride }
    }

    /// Returns the offset of the pages of a segment's group, and the number of the segment within the group.
    fn group(&self, segment: Segment) -> (u64, u64) {
        let per_group = self.segments as u32;
        (self.first + u64::from(segment / per_group) * self.stride, u64::from(segment % per_group))
    }

    fn pages_offset(&self, segment: Segment) -> u64 {
        let (start, i) = self.group(segment);
        start + i * self.pages
    }

    fn header_offset(&self, segment: Segment) -> u64 {
        let (start, i) = self.group(segment);
        start - (self.segments - i) * self.records
    }

    /// Returns the segment to which an offset belongs, and the offset within its pages (`Ok`) or within its records
    /// (`Err`); `None` for head and padding.
    fn at(&self, offset: u64) -> Option<(Segment, Result<u64, u64>)> {
        let (group, before) = match offset.checked_sub(self.first) {
            None => (0, self.first - offset),
            Some(behind) => {
                let (group, within) = (behind / self.stride, behind % self.stride);
                if within < self.segments * self.pages {
                    let segment = group * self.segments + within / self.pages;
                    return Some((u32::try_from(segment).ok()?, Ok(within % self.pages)));
                }
                (group + 1, self.stride - within)
            }
        };
        let within = (self.segments * self.records).checked_sub(before)?;
        let segment = group * self.segments + within / self.records;
        Some((u32::try_from(segment).ok()?, Err(within % self.records)))
    }
}

fn round_up(bytes: u64, power_of_two: u64) -> u64 {
    (bytes + power_of_two - 1) & !(power_of_two - 1)
}

impl Geometry {
    /// Returns the size of a segment in bytes: pages, header and records, with their padding but without that of a
    /// group of segments.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_data_bytes() + self.records_bytes()
    }

    /// Returns the size in bytes of a segment's header and out-of-band records, with padding.
    pub fn records_bytes(&self) -> u64 {
        let records = SEGMENT_HEADER_BYTES + u64::from(self.pages_per_segment()) * OOB_BYTES;
        match self.layout {
            Layout::Interleaved => {
                let pages = self.segment_data_bytes();
                round_up(pages + records, SEGMENT_ALIGN) - pages
            }
            Layout::Grouped => round_up(records, RECORDS_ALIGN),
        }
    }

    /// Returns the size in bytes of the smallest medium with this number of segments.
    pub fn medium_bytes(&self, segments: u64) -> u64 {
        match (self.layout, segments.checked_sub(1)) {
            (_, None) => HEAD_BYTES,
            (Layout::Interleaved, _) => HEAD_BYTES + segments * self.segment_bytes(),
            (Layout::Grouped, Some(last)) => self.pages_offset(last as Segment) + self.segment_data_bytes(),
        }
    }

    /// Returns the number of whole segments on a medium of this size.
    pub fn segments_within(&self, medium_bytes: u64) -> u64 {
        match self.layout {
            Layout::Interleaved => medium_bytes.saturating_sub(HEAD_BYTES) / self.segment_bytes(),
            Layout::Grouped => {
                let groups = Groups::of(self);
                let Some(behind) = medium_bytes.checked_sub(groups.first) else { return 0 };
                let whole = (behind % groups.stride / groups.pages).min(groups.segments);
                behind / groups.stride * groups.segments + whole
            }
        }
    }

    /// Returns the offset of a segment's pages on the medium, in bytes.
    pub fn pages_offset(&self, segment: Segment) -> u64 {
        match self.layout {
            Layout::Interleaved => HEAD_BYTES + u64::from(segment) * self.segment_bytes(),
            Layout::Grouped => Groups::of(self).pages_offset(segment),
        }
    }

    /// Returns the offset of a segment's header on the medium, in bytes.
    pub fn header_offset(&self, segment: Segment) -> u64 {
        match self.layout {
            Layout::Interleaved => self.pages_offset(segment) + self.segment_data_bytes(),
            Layout::Grouped => Groups::of(self).header_offset(segment),
        }
    }

    /// Returns the kind of content at an offset of the medium.
    pub fn area_at(&self, offset: u64) -> Area {
        if offset < HEAD_BYTES {
            return Area::None;
        }
        let found = match self.layout {
            Layout::Interleaved => {
                let (segment, at) =
                    ((offset - HEAD_BYTES) / self.segment_bytes(), (offset - HEAD_BYTES) % self.segment_bytes());
                let place = at.checked_sub(self.segment_data_bytes()).map_or(Ok(at), Err);
                u32::try_from(segment).ok().map(|segment| (segment, place))
            }
            Layout::Grouped => Groups::of(self).at(offset),
        };
        match found {
            None => Area::None,
            Some((segment, Ok(at))) => Area::Pages(segment, at),
            Some((segment, Err(at))) => match at.checked_sub(SEGMENT_HEADER_BYTES) {
                None => Area::Header(segment),
                Some(at) => Area::Records(segment, at),
            },
        }
    }

    /// Returns the segment to which an offset of the medium belongs; `None` for head and padding.
    pub fn segment_at(&self, offset: u64) -> Option<Segment> {
        match self.area_at(offset) {
            Area::None => None,
            Area::Pages(segment, _) | Area::Header(segment) | Area::Records(segment, _) => Some(segment),
        }
    }

    /// Returns the offset of a page on the medium, in bytes.
    pub fn page_offset(&self, ppa: Ppa) -> u64 {
        self.pages_offset(self.segment_of(ppa)) + u64::from(self.page_in_segment(ppa)) * u64::from(self.page_bytes)
    }

    /// Returns the offset of a page's out-of-band record on the medium, in bytes.
    pub fn oob_offset(&self, ppa: Ppa) -> u64 {
        self.header_offset(self.segment_of(ppa))
            + SEGMENT_HEADER_BYTES
            + u64::from(self.page_in_segment(ppa)) * OOB_BYTES
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn laid(layout: Layout, g: Geometry) -> Geometry {
        Geometry { layout, ..g }
    }

    fn geometries() -> impl Strategy<Value = Geometry> {
        let drawn = (0u32..6, 1u32..70, 1u32..5, 1u32..70).prop_filter_map(
            "a segment has 4 KiB",
            |(page, channels, banks, pages_per_block)| {
                let g = Geometry { page_bytes: 512 << page, channels, banks, pages_per_block, layout: Layout::Grouped };
                g.validate().is_ok().then_some(g)
            },
        );
        (any::<bool>(), prop_oneof![Just(Geometry::FILE), Just(Geometry::TINY), drawn])
            .prop_map(|(old, g)| if old { laid(Layout::Interleaved, g) } else { g })
    }

    /// Returns the byte ranges of the medium that a segment takes: its pages, and its header with the out-of-band
    /// records.
    fn areas(g: &Geometry, segment: Segment) -> [std::ops::Range<u64>; 2] {
        let (pages, header) = (g.pages_offset(segment), g.header_offset(segment));
        let records = SEGMENT_HEADER_BYTES + u64::from(g.pages_per_segment()) * OOB_BYTES;
        [pages..pages + g.segment_data_bytes(), header..header + records]
    }

    #[test]
    fn the_layout_of_versions_1_and_2_is_what_it_was() {
        let g = laid(Layout::Interleaved, Geometry::FILE);
        assert_eq!((g.segment_bytes(), g.pages_offset(3)), (4_231_168, 65_536 + 3 * 4_231_168));
        assert_eq!(g.header_offset(0), 65_536 + (4 << 20));
        let g = laid(Layout::Interleaved, Geometry::TINY);
        assert_eq!((g.segment_bytes(), g.medium_bytes(2)), (20_480, 65_536 + 2 * 20_480));
        assert_eq!([1, 2].map(Layout::of_format), [Layout::Interleaved; 2]);
        assert_eq!([3, 4].map(Layout::of_format), [Layout::Grouped; 2]);
    }

    #[test]
    fn the_file_preset_has_its_pages_at_multiples_of_a_huge_page() {
        let g = Geometry::FILE;
        assert_eq!((g.records_bytes(), g.pages_offset(0)), (33_280, 2 << 20));
        assert_eq!(g.header_offset(0), (2 << 20) - 61 * 33_280);
        assert_eq!(g.pages_offset(61), (2 << 20) + ((61 * 4) << 20) + (2 << 20), "61 segments a group");
        assert_eq!(g.medium_bytes(16), (2 + 64) << 20);
        assert!((0..1000).all(|s| g.pages_offset(s).is_multiple_of(2 << 20)));
    }

    proptest! {
        #[test]
        fn areas_do_not_overlap_and_are_found_again(g in geometries(), first in 0u32..1000) {
            let mut all: Vec<_> = (first..first + 20).flat_map(|s| areas(&g, s)).collect();
            let pairs = all.chunks_exact(2).map(|a| [a[0].clone(), a[1].clone()]);
            for (segment, [pages, records]) in (first..).zip(pairs) {
                let size = pages.end - pages.start;
                for at in [0, 1, size / 2, size - 1] {
                    prop_assert_eq!(g.area_at(pages.start + at), Area::Pages(segment, at));
                }
                prop_assert_eq!(g.area_at(records.start + 63), Area::Header(segment));
                prop_assert_eq!(g.area_at(records.start + 64), Area::Records(segment, 0));
                prop_assert_eq!(g.area_at(records.end - 1), Area::Records(segment, records.end - records.start - 65));
                prop_assert!(records.end - records.start <= g.records_bytes());
                let ppa = g.ppa(segment, g.pages_per_segment() - 1);
                prop_assert_eq!(g.page_offset(ppa) + u64::from(g.page_bytes), pages.end);
                prop_assert_eq!(g.oob_offset(ppa) + OOB_BYTES, records.end);
                if g.layout == Layout::Grouped {
                    let align = (size & size.wrapping_neg()).min(PAGES_ALIGN_MAX);
                    prop_assert_eq!((pages.start % align, records.start % RECORDS_ALIGN), (0, 0));
                }
            }
            all.sort_by_key(|r| r.start);
            prop_assert!(all.iter().all(|r| r.start >= HEAD_BYTES));
            prop_assert!(all.windows(2).all(|w| w[0].end <= w[1].start), "{:?}", all);
        }

        #[test]
        fn media_hold_the_segments_that_they_are_made_for(
            g in geometries(), segments in 0u64..1000, more in 0u64..1 << 24,
        ) {
            let bytes = g.medium_bytes(segments);
            prop_assert_eq!(g.segments_within(bytes), segments);
            prop_assert!(segments == 0 || g.segments_within(bytes - 1) == segments - 1);
            prop_assert!((0..segments).rev().take(100).flat_map(|s| areas(&g, s as Segment)).all(|r| r.end <= bytes));
            let larger = g.segments_within(bytes + more);
            prop_assert!(g.medium_bytes(larger) <= bytes + more && g.medium_bytes(larger + 1) > bytes + more);
            // No worse than interleaved but for the first group's padding, and for the others' where sizes do not fit.
            let old = laid(Layout::Interleaved, g).medium_bytes(segments);
            let groups = bytes / g.segment_data_bytes() + 1;
            prop_assert!(bytes <= old + PAGES_ALIGN_MAX.min(g.segment_data_bytes()) * groups.min(segments + 1));
        }

        #[test]
        fn every_place_belongs_to_at_most_one_segment(g in geometries(), offset in 0u64..1 << 40) {
            match g.area_at(offset) {
                Area::None => prop_assert!(g.segment_at(offset).is_none()),
                Area::Pages(s, at) => prop_assert_eq!(g.pages_offset(s) + at, offset),
                Area::Header(s) => prop_assert!((g.header_offset(s)..g.header_offset(s) + 64).contains(&offset)),
                Area::Records(s, at) => prop_assert_eq!(g.header_offset(s) + 64 + at, offset),
            }
        }
    }
}
