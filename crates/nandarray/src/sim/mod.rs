//! Random numbers and counters, and the interface to a modelled clock.
//!
//! All random numbers of the engine come from one [`Chance`], whose seed the caller chooses, so that one seed gives one
//! trace. [`Counters`] count the engine's work; no decision depends on them. A [`Probe`] is notified of facts about a
//! command that a medium cannot see; it computes times and costs, and changes nothing. A [`Conductor`] is a probe with
//! a clock: it calls a command's two halves ([`Halves`]) and lets time pass in between. Every layer may use this
//! module; of the engine it uses only the errors.

pub mod panics;
pub(crate) mod patience;
pub(crate) mod process;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The engine's only source of random numbers.
#[derive(Debug)]
pub struct Chance(fastrand::Rng);

impl Chance {
    /// Creates a source that draws the same numbers for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Draws a number from `0..n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.u64(0..n)
    }

    /// Draws sixteen random bytes.
    pub fn bytes16(&mut self) -> [u8; 16] {
        self.0.u128(..).to_le_bytes()
    }
}

/// The purpose of the engine's present work, which a [`Probe`] may account separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// The work of a command itself.
    #[default]
    Command,
    /// Reclaim: moving live pages out of a segment.
    Reclaim,
}

/// The direction in which a command moves elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// From the store to a buffer.
    Out,
    /// From a buffer to the store.
    In,
    /// The command moves no elements.
    Nothing,
}

/// Order of a command among those in flight under a clock: the earlier commands that must end before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The command begins at once: it reads only statistics and names.
    Free,
    /// The command begins when its range lock is granted (`crate::sched`): a read or write.
    Blocks,
    /// The command begins when every earlier command has ended, but later ones do not wait for it: a flush.
    Behind,
    /// The command begins when every command that has begun has ended: a step of a transaction, which holds its blocks
    /// already.
    Between,
    /// The command begins when every earlier command that writes or is [`Order::Alone`] has ended, and when no other
    /// command of this order is in flight: a compound command that only reads. It requests no range lock, and later
    /// reads and writes do not wait for it.
    Beside,
    /// The command begins when every earlier command has ended, and later ones wait for it: a command that changes
    /// names or shapes.
    Alone,
}

/// A command in two halves, which a [`Conductor`] calls: [`Self::plan`], then time passes, then [`Self::complete`]. If
/// a half fails the error is the command's result; the conductor does not see it.
pub trait Halves: Send {
    /// Returns the order of the command among those in flight.
    fn order(&self) -> Order;

    /// Returns the direction in which the command moves elements.
    fn moves(&self) -> Moves;

    /// Requests the range lock of the command's blocks. Called at most once, only for [`Order::Blocks`], and after the
    /// requests of all earlier commands.
    fn request(&mut self);

    /// Whether the requested blocks are locked for this command. Never blocks.
    fn is_granted(&self) -> bool;

    /// Runs the first half: decides what the flash has to do, and does all work that takes no modelled time. Returns
    /// the direction in which the command moves elements; `None` if it panicked, and then the conductor must ignore
    /// what it reported.
    fn plan(&mut self) -> Option<Moves>;

    /// Runs the second half: moves the caller's bytes, releases the blocks, and stores the result.
    fn complete(&mut self);

    /// Ends a command that has not begun, with `why` as its result.
    fn refuse(&mut self, why: crate::error::Error);

    /// Delivers the result to the submitter. Called after [`Self::complete`] or [`Self::refuse`], without any lock of
    /// the clock, so that the submitter may submit further commands.
    fn deliver(self: Box<Self>);
}

/// Number of a command in flight under a clock.
pub type FlightId = u64;

/// An observer of commands, called on the thread that executes them. With one thread
/// ([`crate::device::Options::threads`]) the order of calls depends on the commands only. Reads, programs and erases of
/// pages are observed through the medium, which the observer wraps.
pub trait Probe: Send + Sync + std::fmt::Debug {
    /// Returns the same probe as a conductor, if it is one: then it decides when commands run. Otherwise the engine
    /// runs a command's second half right after the first.
    fn conductor(&self) -> Option<&dyn Conductor> {
        None
    }

    /// Notifies the probe that one building block's part of a command was moved: `bytes` bytes between block and
    /// buffer, in `runs` contiguous pieces. The medium's operations since the last call belong to this part.
    fn moved(&self, runs: u64, bytes: u64);

    /// Notifies the probe of the number of programs that a command runs, interpreted and translated; programs that are
    /// called as functions of this process are not included.
    fn executed(&self, _interpreted: u64, _translated: u64) {}

    /// Notifies the probe that a segment has no live pages, so that its erase blocks may be erased before it is opened
    /// again.
    fn freed(&self, segment: u32);

    /// Sets the purpose of the work from now on; returns the purpose before.
    fn purpose(&self, purpose: Purpose) -> Purpose;
}

/// A probe with a clock, which decides when the halves of commands run. No command may block its thread to wait for
/// others, because only that thread lets time pass.
pub trait Conductor: Probe {
    /// Runs both halves of a command, and returns after the second.
    fn run(&self, command: &mut dyn Halves);

    /// Accepts a command that may be in flight together with others. It is delivered after its second half, in this
    /// call or in a later one of [`Self::drive`] or [`Self::run`]. Returns its number, or `None` if it was delivered in
    /// this call.
    fn submit(&self, command: Box<dyn Halves>) -> Option<FlightId>;

    /// Lets time pass until this command is delivered, or, for `None`, until the next one is. Returns whether there was
    /// a command to wait for.
    fn drive(&self, flight: Option<FlightId>) -> bool;

    /// Ends a command that has not begun by [`crate::error::Error::Cancelled`]; returns whether it was cancelled.
    fn cancel(&self, flight: FlightId) -> bool;
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of the engine's work since it was opened. The values are consistent with each other only while no
        /// command runs.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: AtomicU64),* }

        impl Counters {
            /// Returns all counters with their names.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Relaxed))),*]
            }
        }
    };
}

counters! {
    /// Number of read commands.
    reads,
    /// Number of write commands.
    writes,
    /// Number of bytes that reads copied to buffers.
    bytes_read,
    /// Number of bytes that writes copied from buffers.
    bytes_written,
    /// Number of pages appended, for commands and for reclaim.
    pages_appended,
    /// Number of pages moved by reclaim and defragmentation.
    pages_moved,
    /// Number of pages whose checksum was computed on reading.
    pages_verified,
    /// Number of bytes of journal records written.
    journal_bytes,
    /// Number of bytes of checkpoints written.
    checkpoint_bytes,
    /// Number of barriers: requests to the medium to make everything durable.
    syncs,
    /// Number of segments that became free.
    segments_reclaimed,
    /// Number of times that the reclaim after a command failed; it is tried again after the next command.
    reclaims_failed,
}

/// Adds `by` to a counter.
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
