//! Page tables and physical memory protection, which apply to accesses in the privileged modes.
//!
//! A [`Guard`] holds the rules for loads, stores and fetches that follow from the hart's registers at one moment. The
//! hart makes it whenever these change, and memory applies it to every access that is not already known to be allowed.
//! If nothing is translated and everything is allowed there is none, and no access costs more. `pmp` holds the
//! protection's registers and its rules, `pages` walks the tables. Nothing here knows how registers are numbered or
//! where bytes lie.

mod pages;
mod pmp;

pub(crate) use pages::{PageTableFormat, PageTables, PageTranslation, WalkFailure};
pub(crate) use pmp::{ENTRIES, Pmp};

use crate::trap::Cause;

/// The kind of an access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessKind {
    /// It is read as data.
    Load,
    /// It is written, or read and written.
    Store,
    /// It is executed.
    Fetch,
}

/// An access that no region allows, or no guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Page tables forbid it.
    pub(crate) page: bool,
    /// First inaccessible address; the access's own address if the access lies within one page.
    pub(crate) address: u64,
}

impl Fault {
    pub(crate) fn at(address: u64) -> Self {
        Self { page: false, address }
    }

    /// The trap that it is.
    pub(crate) fn cause(self, access: AccessKind) -> Cause {
        match (access, self.page) {
            (AccessKind::Load, false) => Cause::LoadAccess,
            (AccessKind::Store, false) => Cause::StoreAccess,
            (AccessKind::Fetch, false) => Cause::FetchAccess,
            (AccessKind::Load, true) => Cause::LoadPage,
            (AccessKind::Store, true) => Cause::StorePage,
            (AccessKind::Fetch, true) => Cause::FetchPage,
        }
    }
}

/// The mode in which memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    /// Machine mode, which only locked protection binds.
    pub(crate) machine: bool,
    /// The page tables that translate its addresses, if any do.
    pub(crate) pages: Option<PageTranslation>,
}

/// The rules for accesses to memory at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    pub(crate) pmp: Pmp,
    pub(crate) data: Who,
    pub(crate) fetch: Who,
    /// The bits of an address.
    pub(crate) addresses: u64,
}

impl Guard {
    /// The mode in which an access is made.
    pub(crate) fn who(&self, access: AccessKind) -> Who {
        if access == AccessKind::Fetch { self.fetch } else { self.data }
    }

    /// Whether decoded instructions are still what would be fetched, once this takes the place of `before`.
    pub(crate) fn fetches_as(&self, before: &Self) -> bool {
        self.fetch == before.fetch && self.pmp == before.pmp
    }
}
