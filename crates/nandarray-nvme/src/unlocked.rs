//! The encrypted arrays whose keys one host has given.
//!
//! The store unlocks an array for its whole process; each host has to give the key itself. Block namespaces of
//! encrypted arrays are no part of this: their key is given once for all hosts.

use std::collections::BTreeSet;

use nandarray::{Error, Result, Space, SpaceId};
use parking_lot::Mutex;

/// The encrypted arrays whose keys one host has given.
#[derive(Debug, Default)]
pub(crate) struct UnlockedArrays {
    given: Mutex<BTreeSet<SpaceId>>,
}

impl UnlockedArrays {
    /// Notes that the host has given the key of an array.
    pub(crate) fn add(&self, array: SpaceId) {
        self.given.lock().insert(array);
    }

    /// Checks that the host may use the elements and attributes of an array.
    pub(crate) fn check(&self, space: &Space) -> Result<()> {
        if !space.encrypted() || self.given.lock().contains(&space.id) {
            return Ok(());
        }
        Err(Error::WrongKey {
            name: space.peek().record.name.clone(),
            what: "no key was given by this host".to_owned(),
        })
    }

    /// Forgets all of them.
    pub(crate) fn clear(&self) {
        self.given.lock().clear();
    }
}
