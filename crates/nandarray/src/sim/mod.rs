//! What the engine must not take from the machine behind our backs: chance and counting (and, later, the clock).
//!
//! Everything random in the engine comes from one [`Chance`] seeded at the door, so that one seed gives one trace.
//! [`Counters`] count what the engine did; nothing decides by them. Usable by every layer, uses none.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The engine's only source of chance.
#[derive(Debug)]
pub struct Chance(fastrand::Rng);

impl Chance {
    /// A source that gives the same draws for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A draw from `0..n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.u64(0..n)
    }

    /// Sixteen random bytes.
    pub fn bytes16(&mut self) -> [u8; 16] {
        self.0.u128(..).to_le_bytes()
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What the engine has done since it was opened. Reading them gives numbers that belong together only when it rests.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: AtomicU64),* }

        impl Counters {
            /// Every counter by name.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Relaxed))),*]
            }
        }
    };
}

counters! {
    /// Read commands.
    reads,
    /// Write commands.
    writes,
    /// Bytes handed to readers.
    bytes_read,
    /// Bytes taken from writers.
    bytes_written,
    /// Pages appended for users.
    pages_appended,
    /// Pages moved by reclaim.
    pages_moved,
    /// Pages whose checksum was computed on reading.
    pages_verified,
    /// Bytes of journal records.
    journal_bytes,
    /// Bytes of checkpoints.
    checkpoint_bytes,
    /// Barriers: times that the medium was asked to make everything durable.
    syncs,
    /// Segments reclaimed.
    segments_reclaimed,
}

/// Adds to a counter.
pub fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_one_sequence() {
        let draws = |seed| {
            let mut c = Chance::seeded(seed);
            (0..8).map(|_| c.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
    }
}
