//! What the engine must not take from the machine behind our backs: chance and counting; and how a modelled clock looks on.
//!
//! Everything random in the engine comes from one [`Chance`] seeded at the door, so that one seed gives one trace.
//! [`Counters`] count what the engine did; nothing decides by them.
//! A [`Probe`] is told what a medium cannot see of a command: it times and prices the work, and changes nothing.
//! Usable by every layer, uses none.

pub mod panics;
pub mod process;

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

/// For whom the engine works at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// For the command that was given.
    #[default]
    Command,
    /// For reclaim: moving live pages out of a segment.
    Reclaim,
}

/// What a command moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// Elements out of the store.
    Out,
    /// Elements into it.
    In,
    /// None.
    Nothing,
}

/// Looks on, on the thread that works: with one thread ([`crate::device::Options::threads`]) in an order that depends on
/// nothing but the commands. What is read, programmed and erased it sees as the medium itself.
pub trait Probe: Send + Sync + std::fmt::Debug {
    /// A command begins. Whoever looks on may make the caller wait until another command has ended.
    fn begin(&self) {}

    /// The command that began is over, whether or not it succeeded.
    fn end(&self, _moved: Moves) {}

    /// The command that began panicked. Called instead of [`Self::end`] while the stack unwinds, so it must not panic itself.
    fn abandoned(&self) {}

    /// One building block's share of a command was translated, and `bytes` of it moved between block and buffer in `runs`
    /// contiguous pieces. What the medium was asked for since the last call belongs to it.
    fn moved(&self, runs: u64, bytes: u64);

    /// A command ran this many programs. Their reads and writes are reported as those of any command; their computation is not.
    fn executed(&self, _programs: u64) {}

    /// A segment holds nothing that anybody needs: its erase blocks may be erased before it is opened again.
    fn freed(&self, segment: u32);

    /// What follows is done for this purpose; returns what it was done for before.
    fn purpose(&self, purpose: Purpose) -> Purpose;
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
    /// Reclaims behind a command that failed: tried again after the next one.
    reclaims_failed,
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
