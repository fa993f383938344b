//! The mapping of the store's pages to the described flash.
//!
//! A lane of the store (one bank of one channel) is a plane: bank = (way x dies + die) x planes + plane. Neighbouring
//! pages of a channel thus fill the planes of a die, as one multi-plane command needs them, before the next die.
//! Segment s consists of block s of every plane, and a page's row in its segment is its page number within that block.

use nandarray::file_format::{Layout, Ppa, Segment};
use nandarray::{Error, Geometry, Result};

use crate::describe::FlashGeometry;
use crate::flash::PageAddress;

/// The mapping of the store's pages to the described flash.
#[derive(Clone, Copy, Debug)]
pub struct StoreLayout {
    flash: FlashGeometry,
    store: Geometry,
}

impl StoreLayout {
    /// Makes the layout of a store that fills this flash.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a store cannot have that geometry (page bytes not a power of two, segments too large).
    pub fn new(flash: FlashGeometry) -> Result<Self> {
        let store = Geometry {
            page_bytes: flash.page_bytes,
            channels: flash.channels,
            banks: flash.ways * flash.dies * flash.planes,
            pages_per_block: flash.pages,
            layout: Layout::NEWEST,
        };
        store.validate().map_err(|e| Error::invalid(format!("no store fits on this device: {e}")))?;
        Ok(Self { flash, store })
    }

    /// Returns the store's geometry.
    pub fn store(&self) -> Geometry {
        self.store
    }

    /// Returns the bytes of a medium with one segment for every block of a plane.
    pub fn capacity_bytes(&self) -> u64 {
        self.store.medium_bytes(self.flash.blocks.into())
    }

    /// Returns the number of planes that a segment has a block on, which is all planes.
    pub fn planes(&self) -> u32 {
        self.store.lanes()
    }

    /// Returns the flash address of a page of the store.
    pub fn place(&self, ppa: Ppa) -> PageAddress {
        let (segment, page) = (self.store.segment_of(ppa), self.store.page_in_segment(ppa));
        self.on_lane(segment, page % self.store.lanes(), page / self.store.lanes())
    }

    /// Returns the flash address of the first page of a segment's block on plane number `lane`; successive numbers are
    /// on successive channels.
    pub fn block(&self, segment: Segment, lane: u32) -> PageAddress {
        self.on_lane(segment, lane, 0)
    }

    fn on_lane(&self, segment: Segment, lane: u32, row: u32) -> PageAddress {
        let (channel, bank) = (lane % self.store.channels, lane / self.store.channels);
        let (plane, die, way) = (
            bank % self.flash.planes,
            bank / self.flash.planes % self.flash.dies,
            bank / self.flash.planes / self.flash.dies,
        );
        assert!(segment < self.flash.blocks, "segment {segment} of a flash with {} blocks a plane", self.flash.blocks);
        PageAddress {
            die: self.flash.die_index(channel, way, die),
            block: segment,
            page: row as u16,
            plane: plane as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_page_has_a_place_of_its_own() {
        let flash = FlashGeometry {
            channels: 2,
            ways: 3,
            dies: 2,
            planes: 2,
            blocks: 3,
            pages: 5,
            page_bytes: 4096,
            spare_bytes: 0,
        };
        let layout = StoreLayout::new(flash).unwrap();
        let store = layout.store();
        let mut seen = BTreeSet::new();
        for segment in 0..3 {
            for page in 0..store.pages_per_segment() {
                let place = layout.place(store.ppa(segment, page));
                assert_eq!(flash.channel_of(place.die), page % 2, "neighbours lie across channels");
                assert_eq!(place.block, segment);
                assert!(seen.insert(place));
            }
        }
        assert_eq!(seen.len() as u64, flash.pages_total());
        let (a, b) = (layout.place(store.ppa(0, 0)), layout.place(store.ppa(0, 2)));
        assert_eq!((a.die, a.page, a.plane, b.die, b.page, b.plane), (0, 0, 0, 0, 0, 1), "then across planes");
        assert!(StoreLayout::new(FlashGeometry { page_bytes: 3000, ..flash }).is_err());
    }
}
