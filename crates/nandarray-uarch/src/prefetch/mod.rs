//! Prefetchers: after each access, they suggest lines that are worth fetching before they are requested.
//!
//! Each prefetcher is one file and implements [`CachePrefetcher`]. It sees the accesses of its cache and suggests
//! addresses, and the caches check whether they hold these lines already. No prefetcher knows the time.

mod dcpt;
mod next_line;
mod stride;
#[cfg(test)]
mod traces;

pub use dcpt::Dcpt;
pub use next_line::NextLine;
pub use stride::Stride;

use crate::describe::PrefetchKind;

/// Maximum number of addresses that one access may suggest.
pub const SUGGESTIONS_MAX: usize = 16;

/// Addresses that a prefetcher suggests after one access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suggestions {
    addresses: [u64; SUGGESTIONS_MAX],
    count: usize,
}

impl Suggestions {
    /// Adds an address; does nothing beyond [`SUGGESTIONS_MAX`] addresses.
    pub fn push(&mut self, address: u64) {
        if self.count < SUGGESTIONS_MAX {
            self.addresses[self.count] = address;
            self.count += 1;
        }
    }

    /// Returns the addresses, in the order in which they were suggested.
    pub fn as_slice(&self) -> &[u64] {
        &self.addresses[..self.count]
    }
}

/// A prefetcher of one cache.
pub trait CachePrefetcher: std::fmt::Debug + Send {
    /// Handles an access by the instruction at `pc`, which `missed` if the cache did not hold the line; adds addresses
    /// to fetch to `suggestions`.
    fn access(&mut self, pc: u64, address: u64, missed: bool, suggestions: &mut Suggestions);
}

/// Makes a prefetcher of a kind, for lines of `line_bytes` bytes; `None` for [`PrefetchKind::None`].
pub fn prefetcher(kind: PrefetchKind, line_bytes: u64) -> Option<Box<dyn CachePrefetcher>> {
    match kind {
        PrefetchKind::None => None,
        PrefetchKind::NextLine => Some(Box::new(NextLine::new(line_bytes))),
        PrefetchKind::Stride => Some(Box::new(Stride::new(line_bytes))),
        PrefetchKind::Dcpt => Some(Box::new(Dcpt::new(line_bytes))),
    }
}
