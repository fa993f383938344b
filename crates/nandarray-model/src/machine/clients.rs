//! The clients of a machine: parts that use the fabric, each with its own events, flash operations and commands.
//!
//! A client is one file (or folder) with a type that implements [`Client`], and one line in the list below, which
//! generates its variants of events, of waiters for flash operations and of requesters of commands. A platform is a
//! list of such parts ([`super::PlatformPart`]). Clients do not call each other: a client that needs another one
//! returns to the machine, or schedules an event.

use std::fmt::Debug;

use super::block::BlockClient;
use super::cores::CoreClient;
use super::fabric::ClientContext;
use super::space::SpaceClient;
use crate::flash::{OpKind, OpOutcome};
use nandarray_sim::Ps;

/// A small enum whose variants carry at most one number, so that it fits into the token of a flash operation.
pub(crate) trait Packed: Copy + Debug {
    /// Returns the variant's kind, below 16, and its number.
    fn pack(self) -> (u8, u32);
    /// Returns the value with this kind and number.
    fn unpack(kind: u8, number: u32) -> Self;
}

/// A flash operation that has ended: its kind, bytes and outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationEnded {
    pub(super) op: OpKind,
    pub(super) bytes: u32,
    pub(super) outcome: OpOutcome,
}

/// A part of a machine, which is lent the fabric and the link while it handles an event.
pub(crate) trait Client {
    /// The client's events.
    type Event: Copy + Debug;
    /// The part of the client that waits for a flash operation.
    type Waiter: Packed;
    /// The part of the client that requested a command on the link.
    type Requester: Copy + Debug;

    /// Handles an event of this client.
    fn handle(&mut self, ctx: &mut ClientContext<'_>, now: Ps, event: Self::Event);

    /// Handles the end of a flash operation that this client issued.
    fn operation_ended(&mut self, ctx: &mut ClientContext<'_>, now: Ps, waiter: Self::Waiter, ended: OperationEnded);

    /// Continues work that waits for idle dies; called once at each event, after the flash operations that ended at it
    /// were handled.
    fn flash_moved(&mut self, _ctx: &mut ClientContext<'_>, _now: Ps) {}

    /// Handles a command of this client that the device has decoded; `io` is the command's number.
    fn decoded(&mut self, ctx: &mut ClientContext<'_>, now: Ps, io: u32, requester: Self::Requester);

    /// Handles a command of this client whose completion the host has reaped.
    fn reaped(&mut self, ctx: &mut ClientContext<'_>, now: Ps, requester: Self::Requester);

    /// Whether no work of this client is in flight in the device, so that the device may rest.
    fn is_still(&self) -> bool;

    /// Checks that nothing was left in flight.
    ///
    /// # Panics
    /// If something was left: the model is wrong.
    fn check_at_rest(&self);

    /// Returns the event's number for the hash of the run: a kind that is unique in the machine, and the number that
    /// the event carries.
    fn code(event: Self::Event) -> (u64, u32);
}

macro_rules! clients {
    ($($(#[$doc:meta])* $field:ident: $client:ident = $index:literal),+ $(,)?) => {
        /// The clients of a machine, each at most once.
        #[derive(Default)]
        pub(crate) struct Clients {
            $($(#[$doc])* pub(super) $field: Option<Box<$client>>,)+
        }

        /// An event of a client.
        #[derive(Clone, Copy, Debug)]
        #[allow(clippy::enum_variant_names, reason = "variants are named as the clients' types")]
        pub(crate) enum ClientEvent {
            $($client(<$client as Client>::Event),)+
        }

        /// The waiter for a flash operation: a client, and the part of it that waits.
        #[derive(Clone, Copy, Debug)]
        #[allow(dead_code, reason = "not every client issues operations")]
        #[allow(clippy::enum_variant_names, reason = "variants are named as the clients' types")]
        pub(crate) enum Waiter {
            $($client(<$client as Client>::Waiter),)+
        }

        /// The requester of a command on the link: a client, and the part of it that requested the command.
        #[derive(Clone, Copy, Debug)]
        #[allow(dead_code, reason = "not every client requests commands")]
        #[allow(clippy::enum_variant_names, reason = "variants are named as the clients' types")]
        pub(crate) enum Requester {
            $($client(<$client as Client>::Requester),)+
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

        impl Waiter {
            /// Returns the token of a flash operation that moves `bytes` bytes for this waiter.
            pub(super) fn token(self, bytes: u32) -> u64 {
                debug_assert!(bytes < 1 << 24);
                let (client, (kind, number)) = match self { $(Self::$client(waiter) => ($index, waiter.pack()),)+ };
                client << 60 | u64::from(kind) << 56 | u64::from(bytes) << 32 | u64::from(number)
            }
        }

        impl Clients {
            pub(super) fn handle(&mut self, ctx: &mut ClientContext<'_>, now: Ps, event: ClientEvent) {
                match event {
                    $(ClientEvent::$client(event) => present(&mut self.$field).handle(ctx, now, event),)+
                }
            }

            pub(super) fn operation_ended(
                &mut self,
                ctx: &mut ClientContext<'_>,
                now: Ps,
                token: u64,
                op: OpKind,
                outcome: OpOutcome,
            ) {
                let (kind, number) = ((token >> 56) as u8 & 0xf, token as u32);
                let ended = OperationEnded { op, bytes: (token >> 32) as u32 & 0xff_ffff, outcome };
                match token >> 60 {
                    $($index => {
                        let waiter = <$client as Client>::Waiter::unpack(kind, number);
                        present(&mut self.$field).operation_ended(ctx, now, waiter, ended);
                    })+
                    other => panic!("a token of client {other}"),
                }
            }

            pub(super) fn flash_moved(&mut self, ctx: &mut ClientContext<'_>, now: Ps) {
                $(if let Some(client) = &mut self.$field {
                    client.flash_moved(ctx, now);
                })+
            }

            pub(super) fn decoded(&mut self, ctx: &mut ClientContext<'_>, now: Ps, io: u32, requester: Requester) {
                match requester {
                    $(Requester::$client(requester) => present(&mut self.$field).decoded(ctx, now, io, requester),)+
                }
            }

            pub(super) fn reaped(&mut self, ctx: &mut ClientContext<'_>, now: Ps, requester: Requester) {
                match requester {
                    $(Requester::$client(requester) => present(&mut self.$field).reaped(ctx, now, requester),)+
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
    block: BlockClient = 0,
    /// Commands of the array store.
    spaces: SpaceClient = 1,
    /// Cores that run programs.
    cores: CoreClient = 2,
}

fn present<C>(client: &mut Option<Box<C>>) -> &mut C {
    client.as_mut().expect("the client of an event is on the machine")
}
