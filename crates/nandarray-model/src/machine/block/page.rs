//! The part of a conventional request that falls into one logical page, with its state.

use super::RequestStatus;
use crate::flash::PageAddress;
use crate::ftl::MapOp;

/// State of a page of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageState {
    /// The page waits for the translator and, if it is written, for the allocator.
    Translating,
    /// The page waits for pages of the map to be read, if the map is cached.
    Mapping,
    /// The page waits for the flash to read it for the host.
    Reading,
    /// The page waits for room in the write cache or, without early completion, for its program.
    Caching,
    /// The page waits for its old content to be read, since the write replaces only a part of it.
    Merging,
    /// The page waits for a free flash page.
    Stalled,
    /// The page waits for its program to end.
    Programming,
}

/// The requester of a page, which is notified when the page is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageRequester {
    /// A command on the link.
    Io(u32),
    /// The write cache, which writes the page to flash.
    Cache,
}

/// The part of a request that falls into one logical page, or a page that is being written from the cache to flash.
#[derive(Debug)]
pub(super) struct RequestPage {
    pub(super) of: PageRequester,
    pub(super) lpa: u64,
    /// Offset of the first byte within the page.
    pub(super) from: u32,
    pub(super) bytes: u32,
    pub(super) ahead: u32,
    pub(super) write: bool,
    pub(super) whole: bool,
    pub(super) at: PageState,
    /// Outcome for a page that is written from the cache.
    pub(super) status: RequestStatus,
    /// Number of flash operations in flight.
    pub(super) left: u32,
    /// Flash address of the page to read; for a partial write, of its old content. `None` if there is none.
    pub(super) place: Option<PageAddress>,
    /// Operations on the map that must end first, in reverse order.
    pub(super) map_ops: Vec<MapOp>,
}

impl RequestPage {
    /// Makes a page to read; the caller changes the fields that differ for a write.
    pub(super) fn new(of: PageRequester, lpa: u64, from: u32, bytes: u32) -> Self {
        Self {
            of,
            lpa,
            from,
            bytes,
            ahead: 0,
            write: false,
            whole: false,
            at: PageState::Translating,
            status: RequestStatus::Success,
            left: 0,
            place: None,
            map_ops: Vec::new(),
        }
    }
}
