//! Prefetchers: the lines that an access makes worth fetching before they are requested.
//!
//! One file each behind [`CachePrefetcher`]; a prefetcher sees the accesses of its cache and gives addresses, and the
//! caches decide whether these lines are there already. None knows the time.

mod dcpt;
mod next_line;
mod stride;

pub use dcpt::Dcpt;
pub use next_line::NextLine;
pub use stride::Stride;

use crate::describe::PrefetchKind;

/// The most addresses that one access may suggest.
pub const SUGGESTIONS_MAX: usize = 16;

/// Addresses to be fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suggestions {
    addresses: [u64; SUGGESTIONS_MAX],
    count: usize,
}

impl Suggestions {
    /// Adds an address; beyond [`SUGGESTIONS_MAX`] it is left out.
    pub fn push(&mut self, address: u64) {
        if self.count < SUGGESTIONS_MAX {
            self.addresses[self.count] = address;
            self.count += 1;
        }
    }

    /// The addresses, in the order in which they were suggested.
    pub fn as_slice(&self) -> &[u64] {
        &self.addresses[..self.count]
    }
}

/// A prefetcher beside a cache.
pub trait CachePrefetcher: std::fmt::Debug + Send {
    /// An access by the instruction at `pc`; `missed` if its line was not there.
    fn access(&mut self, pc: u64, address: u64, missed: bool, suggestions: &mut Suggestions);
}

/// A prefetcher of a kind, for lines of `line_bytes` bytes.
pub fn prefetcher(kind: PrefetchKind, line_bytes: u64) -> Option<Box<dyn CachePrefetcher>> {
    match kind {
        PrefetchKind::None => None,
        PrefetchKind::NextLine => Some(Box::new(NextLine::new(line_bytes))),
        PrefetchKind::Stride => Some(Box::new(Stride::new(line_bytes))),
        PrefetchKind::Dcpt => Some(Box::new(Dcpt::new(line_bytes))),
    }
}
