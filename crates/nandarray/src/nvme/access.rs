//! The arrays that a controller's host may use, as those who serve the store decide.
//!
//! A controller asks by the name of an array, which namespaces have, too, for every command. Not here: who the host is,
//! and the rules.

use std::fmt::Debug;

use nandarray_nvme_spec::Status;

/// Decides which arrays a host may use, by their names in the store.
pub trait ArrayAccess: Debug + Send + Sync {
    /// Whether the host may know that there is an array, and read it.
    fn reads(&self, name: &str) -> bool;

    /// Whether the host may make an array of this name, change it and delete it; only of names that it reads.
    fn writes(&self, name: &str) -> bool;
}

/// The access of a host that may use all arrays.
#[derive(Clone, Copy, Debug)]
pub struct AllArrays;

impl ArrayAccess for AllArrays {
    fn reads(&self, _: &str) -> bool {
        true
    }

    fn writes(&self, _: &str) -> bool {
        true
    }
}

/// Refuses a change of an array that the host may only read.
///
/// # Errors
/// Namespace is write protected.
pub(super) fn check_writes(access: &dyn ArrayAccess, name: &str) -> Result<(), Status> {
    if access.writes(name) { Ok(()) } else { Err(Status::WRITE_PROTECTED) }
}
