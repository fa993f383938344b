//! The clients of a machine: parts that do something with the fabric, each with events, waiting operations and commands
//! of its own.
//!
//! A client is one file (or folder) with a type that implements [`Client`], and one line in the list below, from which
//! its variants of events, of tokens of flash operations and of commands' owners follow. A platform is a list of such
//! parts ([`super::Part`]). Clients do not call each other: one that needs something of another leaves it to the
//! machine, or pushes an event.

use std::fmt::Debug;

use super::block::Block;
use super::cores::Cores;
use super::fabric::Lent;
use super::space::Spaces;
use crate::flash::{OpKind, OpOutcome};
use nandarray_sim::Ps;

/// A number of a kind, packed where a type would not fit: in the token of a flash operation.
pub(crate) trait Packed: Copy + Debug {
    /// Kind, below 16, and number.
    fn pack(self) -> (u8, u32);
    /// The same unpacked.
    fn unpack(kind: u8, number: u32) -> Self;
}

/// A flash operation that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationEnded {
    pub(super) op: OpKind,
    pub(super) bytes: u32,
    pub(super) outcome: OpOutcome,
}

/// A part of a machine that is told of its events and works with what is lent to it.
pub(crate) trait Client {
    /// Its events.
    type Event: Copy + Debug;
    /// The part of it that waits for a flash operation.
    type Waiting: Packed;
    /// The part of it that asked for a command on the link.
    type Asker: Copy + Debug;

    /// An event of its own.
    fn happened(&mut self, lent: &mut Lent<'_>, now: Ps, event: Self::Event);

    /// A flash operation that it issued has ended.
    fn operation_ended(&mut self, lent: &mut Lent<'_>, now: Ps, waiting: Self::Waiting, ended: OperationEnded);

    /// All that has ended in the flash at this event was told.
    fn flash_moved(&mut self, _lent: &mut Lent<'_>, _now: Ps) {}

    /// A command of its own was decoded by the device.
    fn decoded(&mut self, lent: &mut Lent<'_>, now: Ps, io: u32, asker: Self::Asker);

    /// The host has the answer to a command of its own.
    fn answered(&mut self, lent: &mut Lent<'_>, now: Ps, asker: Self::Asker);

    /// Whether the device has nothing to do for it.
    fn is_still(&self) -> bool;

    /// That nothing was left on its way.
    ///
    /// # Panics
    /// If something was: the model is wrong.
    fn check_at_rest(&self);

    /// A number of the event for the hash of the run: a kind of its own in all the machine, and whom it is for.
    fn code(event: Self::Event) -> (u64, u32);
}

macro_rules! clients {
    ($($(#[$doc:meta])* $field:ident: $client:ident = $index:literal),+ $(,)?) => {
        /// The clients that a machine has.
        #[derive(Default)]
        pub(crate) struct Clients {
            $($(#[$doc])* pub(super) $field: Option<Box<$client>>,)+
        }

        /// An event of one client.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum ClientEvent {
            $($client(<$client as Client>::Event),)+
        }

        /// For whom a flash operation is.
        #[derive(Clone, Copy, Debug)]
        #[allow(dead_code, reason = "not every client issues operations")]
        pub(crate) enum Waiting {
            $($client(<$client as Client>::Waiting),)+
        }

        /// The asker of a command on the link.
        #[derive(Clone, Copy, Debug)]
        #[allow(dead_code, reason = "not every client asks for commands")]
        pub(crate) enum Asker {
            $($client(<$client as Client>::Asker),)+
        }

        $(impl From<<$client as Client>::Event> for ClientEvent {
            fn from(event: <$client as Client>::Event) -> Self {
                Self::$client(event)
            }
        })+

        impl ClientEvent {
            pub(super) fn code(self) -> (u64, u32) {
                match self { $(Self::$client(event) => $client::code(event),)+ }
            }
        }

        impl Waiting {
            /// As the token of an operation that moves so many bytes.
            pub(super) fn token(self, bytes: u32) -> u64 {
                debug_assert!(bytes < 1 << 24);
                let (client, (kind, number)) = match self { $(Self::$client(waiting) => ($index, waiting.pack()),)+ };
                client << 60 | u64::from(kind) << 56 | u64::from(bytes) << 32 | u64::from(number)
            }
        }

        impl Clients {
            pub(super) fn happened(&mut self, lent: &mut Lent<'_>, now: Ps, event: ClientEvent) {
                match event {
                    $(ClientEvent::$client(event) => here(&mut self.$field).happened(lent, now, event),)+
                }
            }

            pub(super) fn operation_ended(&mut self, lent: &mut Lent<'_>, now: Ps, token: u64, op: OpKind, outcome: OpOutcome) {
                let (kind, number) = ((token >> 56) as u8 & 0xf, token as u32);
                let ended = OperationEnded { op, bytes: (token >> 32) as u32 & 0xff_ffff, outcome };
                match token >> 60 {
                    $($index => {
                        let waiting = <$client as Client>::Waiting::unpack(kind, number);
                        here(&mut self.$field).operation_ended(lent, now, waiting, ended);
                    })+
                    other => panic!("a token of client {other}"),
                }
            }

            pub(super) fn flash_moved(&mut self, lent: &mut Lent<'_>, now: Ps) {
                $(if let Some(client) = &mut self.$field {
                    client.flash_moved(lent, now);
                })+
            }

            pub(super) fn decoded(&mut self, lent: &mut Lent<'_>, now: Ps, io: u32, asker: Asker) {
                match asker {
                    $(Asker::$client(asker) => here(&mut self.$field).decoded(lent, now, io, asker),)+
                }
            }

            pub(super) fn answered(&mut self, lent: &mut Lent<'_>, now: Ps, asker: Asker) {
                match asker {
                    $(Asker::$client(asker) => here(&mut self.$field).answered(lent, now, asker),)+
                }
            }

            pub(super) fn is_still(&self) -> bool {
                true $(&& self.$field.as_ref().is_none_or(|client| client.is_still()))+
            }

            pub(super) fn check_at_rest(&self) {
                $(if let Some(client) = &self.$field {
                    client.check_at_rest();
                })+
            }
        }
    };
}

clients! {
    /// Conventional requests through page-mapped flash management.
    block: Block = 0,
    /// Commands of the array store.
    spaces: Spaces = 1,
    /// Cores that run programs.
    cores: Cores = 2,
}

fn here<C>(client: &mut Option<Box<C>>) -> &mut C {
    client.as_mut().expect("a client that something is told to is on the machine")
}
