//! Conventional flash management under the clock: a page map, reclaim, wear, bad blocks, a write cache.
//!
//! [`PageMapped`] is a pure state machine: it returns the flash operations of a request and their addresses; the caller
//! issues them when its clock allows and reports how they ended. It knows no time, owns no bytes, and draws chance from
//! its seed only.
//!
//! | file | one idea |
//! | --- | --- |
//! | `page_mapped` | the parts joined: read, write, trim |
//! | `reclaim` | jobs: move live pages, erase; failed programs and erases |
//! | `map`, `fill` | logical to physical, lazily; a sequentially full device by formula |
//! | `map_cache`, `lru` | a map that does not fit into DRAM |
//! | `blocks` | states of erase blocks, free blocks, open blocks, owners of pages |
//! | `divide` | division by constants of a geometry |
//! | `striping` | the plane that a page goes to |
//! | `victims`, `live_lists` | victims of reclaim, by the policies that the store has, too |
//! | `hot` | pages that are written often |
//! | `cache` | the write cache, a part of its own in front of the others |
//! | `precondition` | a used device without the modelled time that using it takes |
//! | `layout` | a used device without writing it: the state of the long run |
//! | `stationary`, `scatter` | the live pages of blocks in that state: their number, and by formula their addresses |
//! | `report`, `audit` | counts; a check of all state |
//!
//! It does not order operations. A page is mapped to its new address from the moment of `write`: if it is read before
//! its program has ended, the caller still has the data in the controller. Programs of a block have to be issued in the
//! order of their addresses. Operations on a block may be in flight when its erase is requested: reads that were issued
//! before it go first.

mod audit;
mod blocks;
pub mod cache;
mod divide;
mod fill;
mod hot;
mod layout;
mod live_lists;
mod lru;
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
pub use reclaim::{Move, Moved, ReclaimStep, Renewed};
pub use report::{FtlReport, Wear};

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
    /// Not at all.
    None,
    /// When the plane is idle, or beside other work.
    Background,
    /// Now: the next write to the plane may have to wait for it.
    Urgent,
}

/// A flash operation for the map, to be done, in order, before the request that it was returned with; of cause
/// `OpCause::Map`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapOp {
    /// Read a page of the map.
    Read(PageAddress),
    /// Program one.
    Program(PageAddress),
}

/// The new address of a written page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// To be programmed, whole.
    pub place: PageAddress,
    /// To be read first, because only a part of the page was written; `None` if nothing has to be.
    pub read_first: Option<PageAddress>,
    /// The plane of `place`, `die * planes + plane`.
    pub plane: u32,
    /// Whether that plane needs reclaim now.
    pub reclaim: Urgency,
}

/// A request that is refused. The state is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FtlError {
    /// There is no such page.
    #[error("logical page {lpa} of {capacity_pages}")]
    OutOfRange {
        /// The requested page.
        lpa: u64,
        /// Logical pages of the device.
        capacity_pages: u64,
    },
    /// The write has to wait until reclaim of a plane went on: call `step` on it, then try again.
    #[error("plane {plane} has no page to write to before it is reclaimed")]
    NotNow {
        /// The plane.
        plane: u32,
    },
    /// Too few good blocks are left for what is stored.
    #[error(
        "no space for page {lpa}: {live_pages} of {usable_pages} usable pages are live, {bad_blocks} blocks are bad"
    )]
    NoSpace {
        /// The page to be written.
        lpa: u64,
        /// Pages that are live, those of the map included.
        live_pages: u64,
        /// Pages that the good blocks can take beside what reclaim needs.
        usable_pages: u64,
        /// Blocks that are bad or about to be.
        bad_blocks: u64,
    },
}

/// Why a device cannot be laid out as after long use; it can be filled and overwritten instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayOutError {
    /// Pages of the map are written more often than others, in a way that is not worked out.
    #[error("the steady state of a device whose map is cached in part (ftl.map_cache) is not known in advance")]
    CachedMap,
    /// The share of live pages that a victim policy leads to is not worked out.
    #[error("the steady state of a device that reclaims by {name} (ftl.gc) is not known in advance")]
    Policy {
        /// The policy's name.
        name: &'static str,
    },
    /// Reclaim could not keep as many blocks free as the description says.
    #[error(
        "plane {plane} has {live} live pages for {closed} blocks of {pages} beside {free} free ones: too few dead \
         pages for reclaim to come to rest"
    )]
    NoSpare {
        /// The plane.
        plane: u32,
        /// Its live pages.
        live: u64,
        /// Blocks that are neither free nor open.
        closed: u32,
        /// Blocks that reclaim keeps free.
        free: u32,
        /// Pages of a block.
        pages: u32,
    },
    /// Pages of one plane lie in others.
    #[error("plane {plane} has {live} logical pages and, with its bad blocks, room for {room}")]
    BadBlocks {
        /// The plane.
        plane: u32,
        /// Logical pages that are its own.
        live: u64,
        /// Live pages that it may have.
        room: u64,
    },
}

/// Why a description's flash management cannot be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FtlSetupError {
    /// More pages than a map entry can name.
    #[error("{pages} flash pages; the page map takes at most {max}: use larger pages or fewer of them")]
    TooManyPages {
        /// Pages of the flash.
        pages: u64,
        /// Most.
        max: u64,
    },
    /// More pages a block than are counted.
    #[error("{pages} pages a block; at most {max}")]
    TooManyPagesABlock {
        /// Pages of a block.
        pages: u32,
        /// Most.
        max: u32,
    },
    /// A setting that is no share.
    #[error("{what} is {value}; it has to be at least 0 and less than 1")]
    NotAShare {
        /// The setting.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// Too few blocks to write and reclaim at all.
    #[error(
        "{good_blocks} good blocks in {planes} planes leave no page beside the {reserved} a plane that reclaim needs"
    )]
    TooFewBlocks {
        /// Good blocks of the device.
        good_blocks: u64,
        /// Planes.
        planes: u32,
        /// Blocks that each plane keeps back.
        reserved: u32,
    },
    /// A striping order that leaves levels out.
    #[error("the striping order names a level twice")]
    Striping,
    /// A policy that draws no block.
    #[error("d-choices of 0 blocks")]
    NoChoices,
    /// A map entry larger than a page, or of no size.
    #[error("a map entry of {entry_bytes} bytes with pages of {page_bytes}")]
    MapEntry {
        /// Its bytes.
        entry_bytes: u32,
        /// Bytes of a page.
        page_bytes: u32,
    },
}
