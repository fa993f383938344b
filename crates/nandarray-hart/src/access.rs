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

/// The failure of an access that no memory region allows, or that the memory's guard forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Whether page tables forbid the access; otherwise no region, or physical memory protection, allows it.
    pub(crate) page: bool,
    /// First inaccessible address; the access's own address if the access lies within one page.
    pub(crate) address: u64,
}

impl Fault {
    pub(crate) fn at(address: u64) -> Self {
        Self { page: false, address }
    }

    /// The trap that the fault causes for an access of this kind.
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
