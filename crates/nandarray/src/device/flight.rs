//! Commands in flight: each command is split in two halves, between which a modelled clock may let time pass.
//!
//! ```text
//! submitted -> blocks requested -> granted -> first half (plan) -> time passes -> second half (complete) -> delivered
//! ```
//!
//! | command | first half | second half |
//! | --- | --- | --- |
//! | read | finds the pages that hold its elements (walk, locate) and reports them to the medium | moves the bytes |
//! | all others | everything: pages are appended, indexes and names changed | only delivers the result |
//!
//! A change is complete and visible after the first half; its caller is notified after the second. No other command in
//! flight sees the change early: commands that touch the same blocks wait for their tickets ([`crate::sched`]), and
//! commands with wider dependencies wait for whole commands ([`Order`]). A read keeps its blocks locked from half to
//! half, so no command can write them; pages that reclaim moves in between are located again.
//!
//! Without a clock no time passes in between, and [`Device::execute`] runs each command whole.

use std::borrow::Borrow;
use std::sync::Arc;

use super::Device;
use super::execute::{Command, Execute};
use super::owned::OwnedCommand;
use crate::error::{Error, Result};
use crate::sched::{BlockBox, RangeTicket, Share, TicketEnd};
use crate::sim::{Conductor, FlightId, Halves, Moves, Order, Probe};
use crate::stl::space::Space;

/// Callback that receives the result of a submitted command.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// State of a command in flight, with its result once there is one.
#[derive(Debug)]
enum FlightState<R> {
    /// The command has not begun; its blocks may have been requested.
    Waiting,
    /// The first half is done, and the second half is to move bytes.
    Begun,
    /// The result is known and has not been taken.
    Over(Result<R>),
    /// The result was taken: nothing of the command is left to do.
    Taken,
}

/// A command and its state between its halves, on a device that it borrows or owns.
struct Flight<D, C: Execute> {
    device: D,
    command: C,
    state: FlightState<C::Reply>,
    ticket: Option<RangeTicket>,
}

impl<D: Borrow<Device>, C: Execute> Flight<D, C> {
    fn new(device: D, command: C) -> Self {
        Self { device, command, state: FlightState::Waiting, ticket: None }
    }

    /// Takes the result. Panics if it is not known yet or was taken before.
    fn result(&mut self) -> Result<C::Reply> {
        match std::mem::replace(&mut self.state, FlightState::Taken) {
            FlightState::Over(result) => result,
            _ => panic!("the result of a command in flight is taken once, after its second half"),
        }
    }

    fn over(&mut self, result: Result<C::Reply>) {
        assert!(!matches!(self.state, FlightState::Taken), "a command in flight has one result");
        self.state = FlightState::Over(result);
        self.ticket = None;
    }
}

impl<D: Borrow<Device> + Send, C: Execute> Halves for Flight<D, C> {
    fn order(&self) -> Order {
        self.command.order()
    }

    fn moves(&self) -> Moves {
        self.command.moves()
    }

    fn request(&mut self) {
        assert!(self.ticket.is_none(), "blocks are requested once");
        if !matches!(self.state, FlightState::Waiting) {
            return;
        }
        let device = self.device.borrow();
        match device.guarded(|| self.command.request(device)) {
            Ok(ticket) => self.ticket = ticket,
            Err(e) => self.over(Err(e)),
        }
    }

    fn is_granted(&self) -> bool {
        self.ticket.as_ref().is_none_or(RangeTicket::is_granted)
    }

    fn plan(&mut self) -> Option<Moves> {
        if !matches!(self.state, FlightState::Waiting) {
            // The request of its blocks has already failed.
            return Some(Moves::Nothing);
        }
        let device = self.device.borrow();
        let granted = self.ticket.is_some();
        match device.in_half(|| self.command.first_half(device, granted)) {
            Ok(Some(reply)) => self.state = FlightState::Over(Ok(reply)),
            Ok(None) => self.state = FlightState::Begun,
            Err(e) => self.state = FlightState::Over(Err(e)),
        }
        let panicked = matches!(self.state, FlightState::Over(Err(Error::Internal(_))));
        (!panicked).then(|| self.command.moves())
    }

    fn complete(&mut self) {
        assert!(!matches!(self.state, FlightState::Waiting), "the second half of a command follows the first");
        if let FlightState::Begun = self.state {
            let device = self.device.borrow();
            self.state = FlightState::Over(device.in_half(|| self.command.second_half(device)));
        }
        self.ticket = None;
    }

    fn refuse(&mut self, why: Error) {
        assert!(!matches!(self.state, FlightState::Begun), "a command that has begun completes");
        self.over(Err(why));
    }

    fn deliver(self: Box<Self>) {}
}

/// A command in flight that owns its arguments and a reference to the device; its result goes to a callback.
struct Submitted {
    flight: Flight<Arc<Device>, OwnedCommand>,
    done: Option<Done>,
}

impl Halves for Submitted {
    fn order(&self) -> Order {
        self.flight.order()
    }

    fn moves(&self) -> Moves {
        self.flight.moves()
    }

    fn request(&mut self) {
        self.flight.request();
    }

    fn is_granted(&self) -> bool {
        self.flight.is_granted()
    }

    fn plan(&mut self) -> Option<Moves> {
        self.flight.plan()
    }

    fn complete(&mut self) {
        self.flight.complete();
    }

    fn refuse(&mut self, why: Error) {
        self.flight.refuse(why);
    }

    fn deliver(mut self: Box<Self>) {
        let result = self.flight.result();
        // The blocks are released before the callback, which may submit further commands.
        self.flight.ticket = None;
        let done = self.done.take().expect("a command is delivered once");
        done(result);
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        self.flight.ticket = None;
        // The caller must not wait for ever: a clock that stopped by a panic drops the commands in flight.
        if let Some(done) = self.done.take() {
            done(Err(Error::Closed("the store was closed while the command was in flight".to_owned())));
        }
    }
}

/// A closure that runs as one command, all of it in the first half; used for closing the store, for example.
struct Whole<F, T> {
    order: Order,
    moves: Moves,
    work: Option<F>,
    result: Option<Result<T>>,
}

impl<F: FnOnce() -> Result<T> + Send, T: Send> Halves for Whole<F, T> {
    fn order(&self) -> Order {
        self.order
    }

    fn moves(&self) -> Moves {
        self.moves
    }

    fn request(&mut self) {}

    fn is_granted(&self) -> bool {
        true
    }

    fn plan(&mut self) -> Option<Moves> {
        let work = self.work.take().expect("a command is planned once");
        let done = work();
        let counts = !matches!(done, Err(Error::Internal(_)));
        self.result = Some(done);
        counts.then_some(self.moves)
    }

    fn complete(&mut self) {}

    fn refuse(&mut self, why: Error) {
        assert!(self.work.is_some(), "a command that was planned is not refused");
        self.result = Some(Err(why));
    }

    fn deliver(self: Box<Self>) {}
}

impl Device {
    /// Submits a command and passes its result to `done`, during this call or in any later call that lets time pass, on
    /// any thread. Without a modelled clock the command is executed in this call. Returns the number of the command in
    /// flight, `None` if the result was delivered already.
    ///
    /// Commands in flight are ordered by [`Order`]: a read waits for earlier writes of its blocks, a write for earlier
    /// reads and writes of them, a flush for all earlier commands. A command that changes shapes or names waits for all
    /// earlier commands, and all later ones wait for it.
    ///
    /// `done` may submit further commands. It must not wait: neither for a command, since it may be called while a
    /// program lets time pass, nor for a thread that uses this device.
    ///
    /// # Errors
    /// Passed to `done`: the errors of the command; [`Error::Busy`] if too many commands are in flight;
    /// [`Error::Cancelled`]; [`Error::Closed`] if the clock stops before the command ends.
    pub fn submit(self: &Arc<Self>, command: OwnedCommand, done: Done) -> Option<FlightId> {
        let checked = self.enter().and_then(|inside| {
            drop(inside);
            if self.read_only && command.writes() { Err(Error::ReadOnly) } else { Ok(()) }
        });
        if let Err(e) = checked {
            done(Err(e));
            return None;
        }
        match self.conductor() {
            Some(conductor) => {
                let submitted = Box::new(Submitted { flight: Flight::new(self.clone(), command), done: Some(done) });
                // If the conductor panics, it drops the command, which then delivers an error.
                self.guarded(|| Ok(conductor.submit(submitted))).unwrap_or(None)
            }
            None => {
                done(self.execute(command));
                None
            }
        }
    }

    /// Lets modelled time pass until this submitted command is delivered, or, for `None`, until the next one is.
    /// Returns whether there was a command to wait for.
    ///
    /// # Errors
    /// [`Error::Internal`] if the engine panicked.
    pub fn drive(&self, flight: Option<FlightId>) -> Result<bool> {
        if !self.is_here() {
            return Ok(false);
        }
        self.guarded(|| Ok(self.conductor().is_some_and(|conductor| conductor.drive(flight))))
    }

    /// Cancels a command in flight that has not begun; returns whether it was cancelled. A command that has begun
    /// completes.
    pub fn cancel(&self, flight: FlightId) -> bool {
        self.is_here() && self.conductor().is_some_and(|conductor| conductor.cancel(flight))
    }

    /// Whether this is the process that opened the store, and not one forked from it, which lacks the store's threads.
    pub fn is_here(&self) -> bool {
        self.scope.is_here()
    }

    /// Whether the store has a modelled clock, so that time passes between the halves of a command.
    pub(crate) fn has_clock(&self) -> bool {
        self.conductor().is_some()
    }

    /// Returns the clock that decides when commands run; `None` if they run at once.
    pub(super) fn conductor(&self) -> Option<&dyn Conductor> {
        self.ftl.probe().and_then(Probe::conductor)
    }

    /// Runs both halves of a command: when the conductor says so, or else at once.
    fn run_halves(&self, command: &mut dyn Halves) -> Result<()> {
        self.guarded(|| {
            match self.conductor() {
                Some(conductor) => conductor.run(command),
                None => {
                    command.plan();
                    command.complete();
                }
            }
            Ok(())
        })
    }

    /// Runs `work` as one command with this order among commands in flight, and moving elements in this direction.
    pub(crate) fn as_command<T: Send>(
        &self,
        order: Order,
        moves: Moves,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        if self.ftl.probe().is_none() {
            return self.guarded(work);
        }
        let mut whole = Whole { order, moves, work: Some(|| self.guarded(work)), result: None };
        self.run_halves(&mut whole)?;
        whole.result.expect("a command that was run has a result")
    }

    /// Runs both halves of a command of a store with a probe, and returns its result.
    pub(super) fn execute_watched<C: Command>(&self, command: C) -> Result<C::Reply> {
        let mut flight = Flight::new(self, command);
        self.run_halves(&mut flight)?;
        flight.result()
    }

    /// Runs one half of a command in flight; fails if the store was closed, or panicked, since the command was
    /// submitted.
    fn in_half<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _inside = self.enter()?;
        self.guarded(work)
    }

    /// Locks blocks of a space for a command that runs as a whole. Without a clock it waits for the lock. Under a clock
    /// it fails with [`Error::Busy`] instead: the only other holder can be a transaction, and only this thread lets
    /// time pass.
    pub(super) fn hold(&self, space: &Space, blocks: BlockBox) -> Result<RangeTicket> {
        self.granted(space, space.ranges.request(blocks, Share::Exclusive), None)
    }

    /// Waits for the runs of programs that write to a space, and keeps others from beginning, as [`Self::hold`] does.
    /// The caller must hold no blocks of any space yet, and take the runs of several spaces in the order of numbers.
    pub(super) fn hold_runs(&self, space: &Space) -> Result<RangeTicket> {
        self.granted(space, space.runs.request(vec![], Share::Exclusive), None)
    }

    /// Waits for the runs of programs that a growth of a space would disturb, and keeps such from beginning: those that
    /// write to the space by a view, which every element of the space is in. As [`Self::hold_runs`] otherwise.
    pub(super) fn hold_growth(&self, space: &Space) -> Result<RangeTicket> {
        self.granted(space, space.growth.request(vec![], Share::Shared), None)
    }

    /// Waits until a ticket is granted, as [`Self::hold`] does, or `is_stopped` is true, or the thread has a reason of
    /// its own to stop (`sched::waits`).
    pub(super) fn granted(
        &self,
        space: &Space,
        ticket: RangeTicket,
        is_stopped: Option<&dyn Fn() -> bool>,
    ) -> Result<RangeTicket> {
        if self.has_clock() && !ticket.is_granted() {
            return Err(Error::Busy(format!(
                "array {:?} is held by a transaction, and on a modelled device no command can wait for it",
                space.peek().record.name
            )));
        }
        match ticket.wait_unless(is_stopped) {
            TicketEnd::Granted => Ok(ticket),
            TicketEnd::Closed => {
                Err(Error::Closed("the store was closed while the command waited for another one".to_owned()))
            }
            TicketEnd::Stopped => Err(Error::Cancelled),
            TicketEnd::Refused(why) => {
                let name = &space.peek().record.name;
                Err(Error::Busy(format!("array {name:?} is used by another command that must end first, and {why}")))
            }
        }
    }
}
