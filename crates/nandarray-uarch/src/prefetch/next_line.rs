//! Next-line prefetcher: fetches the next line at each miss.

use super::{CachePrefetcher, Suggestions};

/// Prefetcher that suggests the line after one that missed.
#[derive(Clone, Debug)]
pub struct NextLine {
    line_bytes: u64,
}

impl NextLine {
    /// Makes a prefetcher for lines of `line_bytes` bytes.
    pub fn new(line_bytes: u64) -> Self {
        Self { line_bytes }
    }
}

impl CachePrefetcher for NextLine {
    fn access(&mut self, _pc: u64, address: u64, missed: bool, suggestions: &mut Suggestions) {
        if missed {
            suggestions.push((address & !(self.line_bytes - 1)).wrapping_add(self.line_bytes));
        }
    }
}
