//! Conventional flash management on the modelled clock: a page map, reclaim, wear levelling, bad blocks, a write
//! cache.
//!
//! [`PageMapped`] is a pure state machine: it returns the flash operations of a request and their addresses; the
//! caller issues these when its clock allows, and reports how they ended. The state machine knows no time, holds no
//! data, and draws random numbers from its seed only.
//!
//! | file | one idea |
//! | --- | --- |
//! | `page_mapped` | the parts joined: read, write, trim |
//! | `reclaim` | jobs: move live pages, erase; failed programs and erases |
//! | `map`, `fill` | logical to physical, lazily; a sequentially full device by formula |
//! | `map_cache` | a map that does not fit into DRAM |
//! | `blocks` | states of erase blocks, free blocks, open blocks, owners of pages |
//! | `striping` | the plane that a page goes to |
//! | `victims`, `live_lists` | victims of reclaim, by the same policies as the store's |
//! | `hot` | pages that are written often |
//! | `cache` | the write cache, a separate part in front of the page map |
//! | `precondition` | a used device without the modelled time that using it takes |
//! | `layout` | a used device without writing it: the state of the long run |
//! | `stationary`, `scatter` | the live pages of blocks in that state: their number, and by formula their addresses |
//! | `report`, `audit` | counts; a check of all state |
//!
//! This module does not order operations. A page is mapped to its new address from the moment of `write`: if it is
//! read before its program has ended, the caller takes the data from the controller's memory. Programs of a block must
//! be issued in the order of their addresses. Operations on a block may be in flight when its erase is requested;
//! reads issued before the erase go first.

mod audit;
mod blocks;
pub mod cache;
mod fill;
mod hot;
mod layout;
mod live_lists;
mod map;
mod map_cache;
mod page_mapped;
mod precondition;
mod reclaim;
mod report;
mod scatter;
mod stationary;
mod striping;
#[cfg(test)]
mod tests;
mod victims;

pub use page_mapped::PageMapped;
pub use reclaim::{Move, Moved, ReclaimStep};
pub use report::FtlReport;

use crate::flash::PageAddress;

/// Owner of a physical page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A logical page.
    Page(u64),
    /// A page of the map, by its number.
    Map(u32),
}

/// Urgency of reclaim in a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// No reclaim is needed.
    None,
    /// Reclaim may run when the plane is idle, or beside other work.
    Background,
    /// Reclaim must run now: the next write to the plane may have to wait for it.
    Urgent,
}

/// A flash operation on the map, with the cause `OpCause::Map`. Operations returned with a request must be executed in
/// order, before the request itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapOp {
    /// Read a page of the map.
    Read(PageAddress),
    /// Program a page of the map.
    Program(PageAddress),
}

/// The new address of a written page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Address to which the whole page must be programmed.
    pub place: PageAddress,
    /// Address of the old content, to be read first because only a part of the page is written; `None` if nothing must
    /// be read.
    pub read_first: Option<PageAddress>,
    /// Plane of `place`, numbered `die * planes + plane`.
    pub plane: u32,
    /// Urgency of reclaim in the page's new plane after this write.
    pub reclaim: Urgency,
}

/// Reason why a request was refused. A refused request changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FtlError {
    /// The device has no such logical page.
    #[error("logical page {lpa} of {capacity_pages}")]
    OutOfRange {
        /// The requested page.
        lpa: u64,
        /// Number of logical pages of the device.
        capacity_pages: u64,
    },
    /// No free page before reclaim of a plane has made progress: call `step` for it, then retry the write.
    #[error("plane {plane} has no page to write to before it is reclaimed")]
    NotNow {
        /// Number of the plane.
        plane: u32,
    },
    /// Too few good blocks are left for the pages that are stored.
    #[error(
        "no space for page {lpa}: {live_pages} of {usable_pages} usable pages are live, {bad_blocks} blocks are bad"
    )]
    NoSpace {
        /// The page to be written.
        lpa: u64,
        /// Number of live pages, those of the map included.
        live_pages: u64,
        /// Live pages that the good blocks can hold in addition to the space that reclaim needs.
        usable_pages: u64,
        /// Number of blocks that are bad, or will be once they are emptied.
        bad_blocks: u64,
    },
}

/// Reason why the state of a device after long use cannot be computed; such a device can be filled and overwritten
/// instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayOutError {
    /// The map is cached in part: its pages are written more often than others, in a way that is not modelled.
    #[error("the steady state of a device whose map is cached in part (ftl.map_cache) is not known in advance")]
    CachedMap,
    /// The distribution of live pages that this victim policy leads to is not modelled.
    #[error("the steady state of a device that reclaims by {name} (ftl.gc) is not known in advance")]
    Policy {
        /// The policy's name.
        name: &'static str,
    },
    /// Reclaim could not keep as many blocks free as the description requires.
    #[error(
        "plane {plane} has {live} live pages for {closed} blocks of {pages} beside {free} free ones: too few dead \
         pages for reclaim to come to rest"
    )]
    NoSpare {
        /// Number of the plane.
        plane: u32,
        /// Number of live pages of the plane.
        live: u64,
        /// Number of blocks of the plane that are neither free nor open.
        closed: u32,
        /// Number of blocks that reclaim keeps free in the plane.
        free: u32,
        /// Number of pages of a block.
        pages: u32,
    },
    /// A plane with bad blocks cannot hold all its logical pages, so that some would lie in other planes.
    #[error("plane {plane} has {live} logical pages and, with its bad blocks, room for {room}")]
    BadBlocks {
        /// Number of the plane.
        plane: u32,
        /// Number of logical pages that striping assigns to the plane.
        live: u64,
        /// Number of live pages that the plane may hold.
        room: u64,
    },
}

/// Reason why a description's flash management cannot be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FtlSetupError {
    /// The flash has more pages than a map entry can address.
    #[error("{pages} flash pages; the page map takes at most {max}: use larger pages or fewer of them")]
    TooManyPages {
        /// Number of pages of the flash.
        pages: u64,
        /// Maximum number of pages.
        max: u64,
    },
    /// A block has more pages than the per-block counters can hold.
    #[error("{pages} pages a block; at most {max}")]
    TooManyPagesABlock {
        /// Number of pages of a block.
        pages: u32,
        /// Maximum number of pages of a block.
        max: u32,
    },
    /// A setting that must be a fraction is outside 0 to 1.
    #[error("{what} must be at least 0 and less than 1, not {value}")]
    NotAShare {
        /// Name of the setting.
        what: &'static str,
        /// Value of the setting.
        value: f64,
    },
    /// Too few good blocks to write and reclaim at all.
    #[error(
        "{good_blocks} good blocks in {planes} planes leave no page beside the {reserved} a plane that reclaim needs"
    )]
    TooFewBlocks {
        /// Number of good blocks of the device.
        good_blocks: u64,
        /// Number of planes.
        planes: u32,
        /// Number of blocks that each plane keeps for reclaim.
        reserved: u32,
    },
    /// The striping order does not name every level exactly once.
    #[error("the striping order names a level twice")]
    Striping,
    /// The policy draws from 0 blocks.
    #[error("d-choices of 0 blocks")]
    NoChoices,
    /// A map entry is empty or larger than a page.
    #[error("a map entry of {entry_bytes} bytes with pages of {page_bytes}")]
    MapEntry {
        /// Bytes of a map entry.
        entry_bytes: u32,
        /// Bytes of a page.
        page_bytes: u32,
    },
}
