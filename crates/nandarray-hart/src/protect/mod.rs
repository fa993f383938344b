//! What stands between an address and memory in the privileged modes: page tables and physical memory protection.
//!
//! A [`Guard`] is what the hart's registers say about that at one moment: who loads and stores, who fetches. It is made
//! by the hart whenever they change, and asked by memory for every access that is not already known to be allowed.
//! Where nothing is translated and everything is allowed there is none, and no access costs more. `pmp` holds the
//! protection's registers and its rules, `pages` walks the tables. Nothing here knows how registers are numbered or
//! where bytes lie.

mod pages;
mod pmp;

pub(crate) use pages::{Failure, Pages, Table, Tables};
pub(crate) use pmp::{ENTRIES, Pmp};

use crate::trap::Cause;

/// What is done to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
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
    /// The first address that cannot be reached so; in an access within a page, the access's.
    pub(crate) address: u64,
}

impl Fault {
    pub(crate) fn at(address: u64) -> Self {
        Self { page: false, address }
    }

    /// The trap that it is.
    pub(crate) fn cause(self, access: Access) -> Cause {
        match (access, self.page) {
            (Access::Load, false) => Cause::LoadAccess,
            (Access::Store, false) => Cause::StoreAccess,
            (Access::Fetch, false) => Cause::FetchAccess,
            (Access::Load, true) => Cause::LoadPage,
            (Access::Store, true) => Cause::StorePage,
            (Access::Fetch, true) => Cause::FetchPage,
        }
    }
}

/// In whose name memory is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    /// Machine mode, which only locked protection binds.
    pub(crate) machine: bool,
    /// How its addresses are translated, if they are.
    pub(crate) pages: Option<Pages>,
}

/// How memory is reached now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    pub(crate) pmp: Pmp,
    pub(crate) data: Who,
    pub(crate) fetch: Who,
    /// The bits of an address.
    pub(crate) addresses: u64,
}

impl Guard {
    /// Who makes an access.
    pub(crate) fn who(&self, access: Access) -> Who {
        if access == Access::Fetch { self.fetch } else { self.data }
    }

    /// Whether decoded instructions are still what would be fetched, once this takes the place of `before`.
    pub(crate) fn fetches_as(&self, before: &Self) -> bool {
        self.fetch == before.fetch && self.pmp == before.pmp
    }
}
