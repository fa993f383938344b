//! Accesses to memory, and their faults: types that memory, instructions and protection share.

use crate::trap::Cause;

/// The kind of an access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessKind {
    /// The bytes are read as data.
    Load,
    /// The bytes are written, or read and written.
    Store,
    /// The bytes are fetched as an instruction.
    Fetch,
}

/// The failure of an access that no memory region allows, or that page tables or physical memory protection forbid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// True if page tables forbid the access; false if no region contains it, or physical memory protection forbids it.
    pub(crate) page: bool,
    /// Address at which the access failed: its own, or the beginning of the next page if only its bytes there are
    /// inaccessible.
    pub(crate) address: u64,
}

impl Fault {
    pub(crate) fn at(address: u64) -> Self {
        Self { page: false, address }
    }

    /// Returns the trap that the fault causes for an access of this kind.
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
