//! A logical page's share of a conventional request, on its way from state to state.

use super::RequestStatus;
use crate::flash::PageAddress;
use crate::ftl::MapOp;

/// The state of a page of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageState {
    /// Waits for the translator, and the allocator for writes.
    Translating,
    /// Waits for pages of the map, where the map is cached.
    Mapping,
    /// Is read from flash for the host.
    Reading,
    /// Waits for room in the write cache, or, without early completion, until it is in flash.
    Caching,
    /// Waits for its old content, of which a part stays.
    Merging,
    /// Waits for a free page.
    Stalled,
    /// Waits for its program.
    Programming,
}

/// The requester of a page, notified when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageRequester {
    /// An io that the host waits for.
    Io(u32),
    /// The write cache, which writes it to flash.
    Cache,
}

/// A logical page's share of a request, or a page on its way from the cache to flash.
#[derive(Debug)]
pub(super) struct RequestPage {
    pub(super) of: PageRequester,
    pub(super) lpa: u64,
    /// First byte within the page.
    pub(super) from: u32,
    pub(super) bytes: u32,
    pub(super) ahead: u32,
    pub(super) write: bool,
    pub(super) whole: bool,
    pub(super) at: PageState,
    /// The outcome of its way from the cache.
    pub(super) status: RequestStatus,
    /// Flash operations in flight.
    pub(super) left: u32,
    /// Address from which it is read; for a partial write, the address of its old content.
    pub(super) place: Option<PageAddress>,
    /// Map operations that remain to be done first, in reverse order.
    pub(super) map_ops: Vec<MapOp>,
}

impl RequestPage {
    /// A page that is read, or is to be filled in as one that is written.
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
