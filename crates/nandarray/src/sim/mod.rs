//! Chance and counters, which the engine must not take from its surroundings, and the interface to a modelled clock.
//!
//! Everything random in the engine comes from one [`Chance`] seeded at the door, so that one seed gives one trace.
//! [`Counters`] count the engine's work; nothing decides by them. A [`Probe`] receives the facts of a command that a
//! medium cannot see: it times and prices the work, and changes nothing. One with a clock calls a command's two halves
//! ([`Halves`]) and lets time pass in between. Usable by every layer; of the engine it knows errors only.

pub mod panics;
pub(crate) mod process;

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

/// Purpose of the engine's work at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// The command itself.
    #[default]
    Command,
    /// Reclaim: moving live pages out of a segment.
    Reclaim,
}

/// The direction in which a command moves elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// Elements out of the store.
    Out,
    /// Elements into it.
    In,
    /// None.
    Nothing,
}

/// Order of a command among those in flight under a clock: the commands that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It begins at once: it looks at numbers and names only.
    Free,
    /// It begins when its blocks are granted ([`crate::sched`]): reads and writes.
    Blocks,
    /// It begins when every earlier command has ended: a flush. Later commands do not wait for it.
    Behind,
    /// It begins when every command that has begun has ended: steps of a transaction, which holds its blocks already.
    Between,
    /// It begins when every earlier command that writes or is [`Order::Alone`] has ended, and when no other of this
    /// order is in flight: a compound command that only reads. Its reads wait for no blocks, and later reads and writes do not wait for it.
    Beside,
    /// It begins when every earlier command has ended, and later ones wait until it has: whatever changes names or
    /// shapes.
    Alone,
}

/// A command in two halves, as a [`Probe`] with a clock calls them: [`Self::plan`], then time passes, then
/// [`Self::complete`]. An error in a half is the command's result; the probe does not see it.
pub trait Halves: Send {
    /// Its order among commands in flight.
    fn order(&self) -> Order;

    /// The direction in which it moves elements.
    fn moves(&self) -> Moves;

    /// Requests its blocks, if its order is [`Order::Blocks`]. Called once, behind all earlier commands' requests.
    fn request(&mut self);

    /// Whether the blocks that it requested are granted. Never blocks.
    fn is_granted(&self) -> bool;

    /// The first half: decides what the flash has to do, and does all of the command that needs no time. Returns the
    /// direction in which the command moves elements; `None` if it panicked: nothing that it reported counts then.
    fn plan(&mut self) -> Option<Moves>;

    /// The second half: the caller's bytes are moved, blocks are released, and the result is there.
    fn complete(&mut self);

    /// The command ends without having begun: `why` is its result.
    fn refuse(&mut self, why: crate::error::Error);

    /// Delivers the result to the submitter. Called after one of the two above, holding no lock of the clock, so it
    /// may submit further commands.
    fn deliver(self: Box<Self>);
}

/// Number of a command that was submitted to a clock.
pub type FlightId = u64;

/// An observer of commands, called on the thread that works: with one thread ([`crate::device::Options::threads`]) in
/// an order that depends on nothing but the commands. Reads, programs and erases reach it through the medium, which it
/// wraps. A probe with a clock also decides when a command's halves happen.
pub trait Probe: Send + Sync + std::fmt::Debug {
    /// Runs both halves of a command, and returns when the second is over. Without a clock one follows the other at
    /// once.
    fn run(&self, command: &mut dyn Halves) {
        command.plan();
        command.complete();
    }

    /// Takes a command, to be run while others are in flight; it is delivered when its second half is over, during this
    /// call or a later one of [`Self::drive`] or [`Self::run`]. Without a clock it is run at once.
    fn submit(&self, mut command: Box<dyn Halves>) -> Option<FlightId> {
        self.run(&mut *command);
        command.deliver();
        None
    }

    /// Lets time pass until this command is delivered, or, for `None`, the next one. Returns whether there was one to
    /// wait for.
    fn drive(&self, _flight: Option<FlightId>) -> bool {
        false
    }

    /// Refuses a command that has not begun, by [`crate::error::Error::Cancelled`]. Returns whether it did.
    fn cancel(&self, _flight: FlightId) -> bool {
        false
    }

    /// Whether commands that wait for others must not block the thread, because only that thread lets time pass.
    fn has_clock(&self) -> bool {
        false
    }

    /// One building block's share of a command was translated, and `bytes` of it moved between block and buffer in
    /// `runs` contiguous pieces. The medium's operations since the last call belong to it.
    fn moved(&self, runs: u64, bytes: u64);

    /// Number of programs that a command runs, interpreted and translated; programs that are called as functions of
    /// this process are not among them.
    fn executed(&self, _interpreted: u64, _translated: u64) {}

    /// A segment holds no live page: its erase blocks may be erased before it is opened again.
    fn freed(&self, segment: u32);

    /// Sets the purpose of the work from now on; returns the purpose before.
    fn purpose(&self, purpose: Purpose) -> Purpose;
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of the engine's work since it was opened. Their values belong together only while no command runs.
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
    /// Barriers: requests to the medium to make everything durable.
    syncs,
    /// Segments reclaimed.
    segments_reclaimed,
    /// Reclaims behind a command that failed: tried again after the next one.
    reclaims_failed,
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
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
