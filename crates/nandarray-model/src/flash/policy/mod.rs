//! Scheduling policies of dies: one small file a policy, which implements [`DiePolicy`]. A policy says which waiting
//! operation of a die goes first, what may share its command, and who gets a channel's bus next; the back end asks it
//! and knows none by name.
//!
//! A policy keeps nothing between two questions: what it counts is in the [`Channel`]. The words by which descriptions
//! name policies are those of [`Scheduling`], which stands for the policy of its name.

mod fifo;
mod mqsim_compat;
mod normal;

use super::channel::Channel;
use super::slab::OpSlot;
use super::times::Times;
use crate::describe::Scheduling;

/// The next use of a channel's bus, as a policy's `grant` chose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grant {
    /// The bus stays free: no die waits for it.
    Nothing,
    /// A command of this die (or chip: [`DiePolicy::unit`]) of the channel.
    Command(u32),
    /// The transfer of the oldest waiting read data in the list `Channel::out` of this index.
    DataOut(usize),
}

/// Part of a channel that executes one command at a time, and requests the bus for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandUnit {
    /// A die. It sends a command while data of the one before leaves, if its cache register can hold that data.
    Die,
    /// A chip, however many dies it has: it rests until all data of its command has left.
    Chip,
}

/// Waiting operations that share a multi-plane command with the one whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joining {
    /// Operations whose turn would be next anyway, until one of them cannot join.
    Next,
    /// Operations near the front of their queues, on as many planes as give the channel the most throughput.
    Near,
    /// Operations on the same page number of every plane, at any depth of their queues.
    SamePage,
}

/// Features of dies that a policy uses where the described dies have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Features {
    /// A program or erase is suspended for a read.
    pub(super) suspension: bool,
    /// Cache registers let a die sense or receive the next page while data of the one before is moving.
    pub(super) cache: bool,
    /// An incomplete word line waits a while for its missing pages.
    pub(super) word_lines: bool,
}

impl Features {
    pub(super) const ALL: Self = Self { suspension: true, cache: true, word_lines: true };
    pub(super) const NONE: Self = Self { suspension: false, cache: false, word_lines: false };
}

/// A scheduling policy of dies and of the buses between them and the controller.
#[allow(private_interfaces, reason = "policies are of this module; `Backend` is generic over them")]
pub trait DiePolicy {
    /// Returns the scheduling key of a waiting operation: the operation of a die with the lowest key goes first; among
    /// equal keys, the one that arrived first. `urgent` says that reclaim at the die cannot wait.
    fn key(&self, times: &Times, urgent: bool, slot: &OpSlot) -> u64;

    /// Chooses the next use of a channel's free bus, and counts in `channel` what it passed over.
    fn grant(&self, channel: &mut Channel) -> Grant;

    /// Whether the bus is granted again together with a command that takes it, instead of when it is free; that saves
    /// an event.
    #[inline]
    fn grants_ahead(&self) -> bool {
        true
    }

    /// Returns the part that executes one command at a time.
    #[inline]
    fn unit(&self) -> CommandUnit {
        CommandUnit::Die
    }

    /// Returns which operations join a multi-plane command.
    #[inline]
    fn joining(&self) -> Joining {
        Joining::Near
    }

    /// Returns the features of dies that the policy uses.
    #[inline]
    fn features(&self) -> Features {
        Features::ALL
    }
}

/// Lists the policies: the variant of [`Scheduling`] that names each, and the type that is it.
macro_rules! policies {
    ($($named:ident => $policy:path,)*) => {
        #[allow(private_interfaces, reason = "as the trait")]
        impl DiePolicy for Scheduling {
            #[inline]
            fn key(&self, times: &Times, urgent: bool, slot: &OpSlot) -> u64 {
                match self { $(Self::$named => $policy.key(times, urgent, slot),)* }
            }
            #[inline]
            fn grant(&self, channel: &mut Channel) -> Grant {
                match self { $(Self::$named => $policy.grant(channel),)* }
            }
            #[inline]
            fn grants_ahead(&self) -> bool {
                match self { $(Self::$named => $policy.grants_ahead(),)* }
            }
            #[inline]
            fn unit(&self) -> CommandUnit {
                match self { $(Self::$named => $policy.unit(),)* }
            }
            #[inline]
            fn joining(&self) -> Joining {
                match self { $(Self::$named => $policy.joining(),)* }
            }
            #[inline]
            fn features(&self) -> Features {
                match self { $(Self::$named => $policy.features(),)* }
            }
        }

        /// All policies, for tests that hold each of them to the same.
        #[cfg(test)]
        pub(super) const ALL: &[Scheduling] = &[$(Scheduling::$named),*];
    };
}

policies! {
    Normal => normal::Normal,
    Fifo => fifo::Fifo,
    MqsimCompat => mqsim_compat::MqsimCompat,
}
