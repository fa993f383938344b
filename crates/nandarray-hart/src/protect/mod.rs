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

use crate::access::AccessKind;

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
