//! Accesses to memory, and their faults: the words that memory, instructions and protection share.

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
