//! Page tables and physical memory protection, which restrict accesses in the privileged modes.
//!
//! A [`Guard`] holds the rules for loads, stores and fetches that follow from the hart's registers at one moment. The
//! hart builds it again whenever these change, and memory applies it to every access that is not already known to be
//! allowed. If nothing is translated and everything is allowed, there is no guard, and accesses cost nothing more.
//! `pmp` holds the protection's registers and rules, `pages` walks the page tables. Nothing here depends on the numbers
//! of registers or on the place of bytes.

mod pages;
mod pmp;

pub(crate) use pages::{PageTableFormat, PageTables, PageTranslation, WalkFailure};
pub(crate) use pmp::{ENTRIES, Pmp};

use crate::access::AccessKind;

/// The rights with which an access to memory is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    /// Whether the access is made in machine mode, which only locked entries of physical memory protection restrict.
    pub(crate) machine: bool,
    /// The page tables that translate the address; `None` if it is a physical address.
    pub(crate) pages: Option<PageTranslation>,
}

/// The rules for memory accesses at one moment, as the hart's registers define them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    pub(crate) pmp: Pmp,
    pub(crate) data: Who,
    pub(crate) fetch: Who,
    /// Mask of the bits that an address has.
    pub(crate) addresses: u64,
}

impl Guard {
    /// Returns the rights with which an access of this kind is made.
    pub(crate) fn who(&self, access: AccessKind) -> Who {
        if access == AccessKind::Fetch { self.fetch } else { self.data }
    }

    /// Whether the same instructions would be fetched under this guard as under `before`.
    pub(crate) fn fetches_as(&self, before: &Self) -> bool {
        self.fetch == before.fetch && self.pmp == before.pmp
    }
}
