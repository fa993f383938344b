//! `[geometry]`: the shape of the flash.

use nandarray_describe::ValueKind::{Count, Size};
use nandarray_describe::{Checks, declare, show_size};

use super::super::Description;
use super::KIB;

declare! {
    /// Shape of the flash. `ways` are chips (packages) on a channel; all ways of a channel share its bus.
    #[derive(Copy, Eq)]
    pub struct FlashGeometry in "geometry", from "convention", {
        "channels": Count(1, 256), "channels" => channels: u32;
        "ways": Count(1, 64), "chips (packages) behind a channel" => ways: u32;
        "dies": Count(1, 64), "dies of a chip" => dies: u32;
        "planes": Count(1, 16), "planes of a die" => planes: u32;
        "blocks": Count(4, 1 << 20), "erase blocks of a plane" => blocks: u32;
        "pages": Count(1, 65_535), "pages of an erase block", bound "page numbers have 16 bits" => pages: u32;
        "page_size": Size(512, 256 * KIB), "bytes of a page, without what is spare" => page_bytes: u32;
        "spare_size": Size(0, 64 * KIB), "spare bytes of a page, for parity and its owner", default "0 B"
            => spare_bytes: u32;
    }
}

impl FlashGeometry {
    /// Returns the number of dies of the device: channels x ways x dies.
    pub fn dies_total(&self) -> u32 {
        self.channels * self.ways * self.dies
    }
    /// Returns the number of planes of the device.
    pub fn planes_total(&self) -> u32 {
        self.dies_total() * self.planes
    }
    /// Returns the number of pages of the device.
    pub fn pages_total(&self) -> u64 {
        u64::from(self.planes_total()) * u64::from(self.blocks) * u64::from(self.pages)
    }
    /// Returns the bytes of all pages, over-provisioning included.
    pub fn bytes(&self) -> u64 {
        self.pages_total() * u64::from(self.page_bytes)
    }
    /// Returns a die's number within the device: channel-major, then way, then die.
    pub fn die_index(&self, channel: u32, way: u32, die: u32) -> u32 {
        debug_assert!(channel < self.channels && way < self.ways && die < self.dies);
        (channel * self.ways + way) * self.dies + die
    }
    /// Returns the channel of a die, which is numbered through the device.
    pub fn channel_of(&self, die: u32) -> u32 {
        die / (self.ways * self.dies)
    }
    /// Returns the chip of a die, both numbered through the device.
    pub fn chip_of(&self, die: u32) -> u32 {
        die / self.dies
    }
}

/// Maximum number of bytes of a device, so that sums of such sizes stay far below 64 bits.
const BYTES_MAX: u64 = 1 << 56;
/// Maximum number of pages: flash management numbers them in 32 bits and reserves a few numbers.
const PAGES_MAX: u64 = (1 << 32) - 3;
/// Maximum number of dies: each has its own queues.
const DIES_MAX: u64 = 1 << 16;
/// Maximum number of dies on a channel: the back end has one bit for each of them in a mask of 128 bits.
const DIES_ON_CHANNEL_MAX: u32 = 128;

/// Checks the rules between keys of the section.
pub(in super::super) fn check(d: &Description, checks: &mut Checks<'_>) {
    let g = &d.geometry;
    let dies = u64::from(g.channels) * u64::from(g.ways) * u64::from(g.dies);
    let product = || format!("makes {} channels x {} ways x {} dies = {dies} dies", g.channels, g.ways, g.dies);
    checks.hold(dies <= DIES_MAX, "geometry.dies", product, || format!("allowed are {DIES_MAX} dies in all"));
    let on_channel = g.ways * g.dies;
    checks.hold(
        on_channel <= DIES_ON_CHANNEL_MAX,
        "geometry.dies",
        || format!("makes {} ways x {} dies = {on_channel} dies on a channel", g.ways, g.dies),
        || format!("allowed are {DIES_ON_CHANNEL_MAX} dies on a channel"),
    );
    let pages = u128::from(dies) * u128::from(g.planes) * u128::from(g.blocks) * u128::from(g.pages);
    let bytes = pages * u128::from(g.page_bytes);
    checks.hold(
        pages <= u128::from(PAGES_MAX),
        "geometry.pages",
        || format!("makes {pages} pages in all"),
        || format!("allowed are {PAGES_MAX}"),
    );
    checks.hold(
        bytes <= u128::from(BYTES_MAX),
        "geometry.page_size",
        || format!("makes {bytes} bytes in all"),
        || format!("allowed are {}", show_size(BYTES_MAX)),
    );
    checks.hold(
        g.page_bytes.is_multiple_of(512),
        "geometry.page_size",
        || "is no multiple of 512 B".to_owned(),
        || "a sector has 512 B".to_owned(),
    );
    checks.hold(
        g.spare_bytes <= g.page_bytes,
        "geometry.spare_size",
        || format!("is more than the page of {} itself", show_size(g.page_bytes.into())),
        || "allowed is at most the page".to_owned(),
    );
}
