//! One modelled platform: a fabric of shared resources, the commands on its link, and clients that use both, on one
//! event loop.
//!
//! ```text
//! Machine      pops an event, folds it into the run's hash, hands it to the part that it belongs to
//!   clients    conventional requests (`block`), commands of the store (`space`), cores: `clients` lists them
//!     host_io  one command on the link: submitted, fetched, decoded, answered
//!       fabric flash, DRAM, link, firmware stages, host cores, the event queue
//! ```
//!
//! Calls only go down. A part returns what has happened, and the machine notifies the client that waits for it. A
//! platform is a list of parts ([`PlatformPart`]); its device, link and host are those of a description. **A new
//! client** is a file with its type and its `clients::Client`, a line in `clients`, and a variant of
//! [`PlatformPart`].
//!
//! # Commands in flight
//!
//! A command of the store can be submitted at any present or future time, whatever else is in flight;
//! [`Machine::submit_job`] returns its [`SpaceJobId`]. Modelled time passes only while a caller waits for something:
//!
//! | wait for | call |
//! | --- | --- |
//! | one command | [`Machine::run_job`] |
//! | the next completion | [`Machine::next_job`] |
//! | the next completion, up to a time | [`Machine::next_job_until`] |
//! | the next event of commands or cores | [`Machine::next_notification`] |
//! | everything, background work included | [`Machine::settle`] |
//!
//! Each completion is returned once. Completions are returned in order of time and, at one time, of their events;
//! those that were not requested are kept. A caller that keeps N commands in flight submits the next one at the time
//! of the completion that made room. A command that must not begin before another is done is submitted after the
//! other's completion: the machine knows no dependencies.
//!
//! # Determinism
//!
//! Events at one time are handled in the order in which they were scheduled: a part that waits is woken in the order
//! (time, order of request). The same description, seed and requests give the same hash, on every machine and beside
//! any number of threads.

mod account;
mod block;
mod clients;
mod cores;
mod drive;
mod fabric;
mod front;
mod host_io;
mod power;
mod sleep;
mod space;
mod stages;
#[cfg(test)]
mod tests;

use crate::describe::Description;
use crate::flash::{Cells, NandCells, OpEnded, OpKind};
use crate::flash_trace::StoreLayout;
use crate::ftl::FtlSetupError;
use crate::spans::DeviceSpanSink;
use nandarray_sim::Ps;

pub use account::Totals;
pub use block::{RequestEnded, RequestStatus};
pub use drive::DriveProgress;
pub use front::Notification;
pub use power::Programmed;
pub use space::{SpaceJobDone, SpaceJobId, SpaceJobKind};
pub use stages::FirmwareStage;

use clients::Clients;
use fabric::{ClientContext, Event, Fabric};
use host_io::{HostIo, IoDone};
use power::Power;

/// A part of a platform, in addition to the device, link and host of a description.
#[derive(Clone, Copy, Debug)]
pub enum PlatformPart {
    /// Page-mapped flash management for conventional requests, with an empty map.
    Blocks {
        /// Seed of its random choices.
        seed: u64,
    },
    /// Commands of an array store with this layout.
    Spaces(StoreLayout),
    /// The description's cores that run programs; nothing if it has none.
    Cores,
}

/// A platform on the modelled clock.
pub struct Machine {
    fabric: Fabric,
    io: HostIo,
    clients: Clients,
    ended: Vec<OpEnded>,
    power: Option<Power>,
    seed: u64,
    hash: u64,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.description().name;
        f.debug_struct("Machine").field("name", name).field("now", &self.now()).finish_non_exhaustive()
    }
}

/// Lends the machine's fabric and link to one of its clients.
macro_rules! ctx {
    ($machine:ident) => {
        &mut ClientContext { fabric: &mut $machine.fabric, io: &mut $machine.io }
    };
}

impl Machine {
    /// Makes an idle device at time 0, without clients. Busy times are reported to `spans`.
    pub fn new(description: &Description, seed: u64, spans: Option<Box<dyn DeviceSpanSink>>) -> Self {
        Self::with_cells(description, seed, spans, Box::new(NandCells::new(description, seed)))
    }

    /// Makes an idle device as [`Self::new`] does, with other cells, such as faults around the described ones
    /// ([`crate::flash::fault`]).
    pub fn with_cells(
        d: &Description,
        seed: u64,
        spans: Option<Box<dyn DeviceSpanSink>>,
        cells: Box<dyn Cells>,
    ) -> Self {
        Self {
            fabric: Fabric::new(d, spans, cells),
            io: HostIo::new(d),
            clients: Clients::default(),
            ended: Vec::new(),
            power: None,
            seed,
            hash: 0x6e61_6e64_6172_7261,
        }
    }

    /// Adds parts to the platform; each must be added before the first request to it.
    ///
    /// # Errors
    /// If the description leaves no flash to manage for [`PlatformPart::Blocks`].
    pub fn add(&mut self, parts: impl IntoIterator<Item = PlatformPart>) -> Result<(), FtlSetupError> {
        for part in parts {
            match part {
                PlatformPart::Blocks { seed } => {
                    self.clients.block = Some(Box::new(block::BlockClient::new(&self.fabric, seed)?))
                }
                PlatformPart::Spaces(layout) => self.clients.spaces = Some(Box::new(space::SpaceClient::new(layout))),
                PlatformPart::Cores => {
                    let compute = self.fabric.description.compute.as_ref();
                    self.clients.cores = compute.map(|compute| Box::new(cores::CoreClient::new(compute)));
                }
            }
        }
        Ok(())
    }

    /// Handles the next event; returns `false` if none is pending.
    pub(crate) fn step(&mut self) -> bool {
        let Some((now, event)) = self.fabric.events.pop() else { return false };
        if let Some(power) = &mut self.power {
            power.tick(now);
        }
        self.hash =
            (self.hash ^ now.0 ^ event.code().rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        match event {
            Event::Fabric(event) => {
                let mut ended = std::mem::take(&mut self.ended);
                self.fabric.handle(now, event, &mut ended);
                for one in ended.drain(..) {
                    self.operation_ended(now, one);
                }
                self.ended = ended;
                self.clients.flash_moved(ctx!(self), now);
            }
            Event::Io(event) => match self.io.handle(&mut self.fabric, now, event) {
                Some(IoDone::Decoded(io, requester)) => self.clients.decoded(ctx!(self), now, io, requester),
                Some(IoDone::Reaped(requester)) => self.clients.reaped(ctx!(self), now, requester),
                None => {}
            },
            Event::Client(event) => self.clients.handle(ctx!(self), now, event),
            Event::Alarm => {}
        }
        if self.io.may_rest(now) && self.fabric.is_still() && self.clients.is_still() {
            self.io.rest(now);
        }
        true
    }

    fn operation_ended(&mut self, now: Ps, ended: OpEnded) {
        if let (Some(power), OpKind::Program) = (&mut self.power, ended.op) {
            power.programmed(ended.place);
        }
        self.fabric.count(ended.outcome);
        self.clients.operation_ended(ctx!(self), now, ended.token, ended.op, ended.outcome);
    }
}
