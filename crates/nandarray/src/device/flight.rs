//! Commands in flight: a command in two halves, between which a clock may let time pass.
//!
//! ```text
//! submitted -> blocks requested -> granted -> first half (plan) -> time passes -> second half (complete) -> delivered
//! ```
//!
//! | command | first half | second half |
//! | --- | --- | --- |
//! | read | finds the pages that hold its elements (walk, locate) and says so to the medium | moves the bytes |
//! | all others | everything: pages are appended, indexes and names changed | nothing but giving the result |
//!
//! A command that changes something is whole and visible after its first half; that it is not told so before its second
//! is what its caller sees. No command in flight sees it early: those that touch the same blocks wait for their tickets
//! ([`crate::sched`]), and those that depend on more wait for whole commands ([`Order`]). A read holds its blocks from
//! half to half: what reclaim moves meanwhile is located anew, and nobody can have written it.
//!
//! Without a clock there is no time in between, and [`Device::execute`] takes the short way of each command.

use std::sync::Arc;

use super::io::blocks_of;
use super::{Command, Device, Reply, Target};
use crate::error::{Error, Result};
use crate::sched::{BlockBox, RangeTicket, Share};
use crate::sim::{FlightId, Halves, Moves, Order, Probe};
use crate::stl::plan::Axis;
use crate::stl::read::BufferMut;
use crate::stl::space::{Space, SpaceId};
use crate::stl::write::Source;

/// A [`Target`] that owns its coordinates.
#[derive(Clone, Debug)]
pub enum OwnedTarget {
    /// As [`Target::Box`].
    Box {
        /// First coordinate.
        start: Vec<u64>,
        /// Distances, at least 1.
        step: Vec<u64>,
        /// Elements.
        count: Vec<u64>,
        /// Byte strides in the buffer.
        strides: Vec<isize>,
        /// Shape of the view; `None` is the space itself.
        view: Option<Vec<u64>>,
    },
    /// As [`Target::Outer`].
    Outer {
        /// One a dimension.
        axes: Vec<Axis>,
        /// Byte strides in the buffer.
        strides: Vec<isize>,
    },
    /// As [`Target::Boxes`].
    Boxes {
        /// First coordinates, one box after the other.
        starts: Vec<u64>,
        /// Distances, at least 1.
        step: Vec<u64>,
        /// Elements of a box.
        count: Vec<u64>,
        /// Byte strides in the buffer, within a box.
        strides: Vec<isize>,
        /// Bytes between boxes in the buffer.
        stride: isize,
        /// Shape of the view; `None` is the space itself.
        view: Option<Vec<u64>>,
    },
    /// As [`Target::Points`].
    Points {
        /// Coordinates, one point after the other.
        coordinates: Vec<u64>,
        /// Bytes between elements in the buffer.
        stride: isize,
    },
}

impl OwnedTarget {
    /// A copy of a target.
    pub fn of(target: &Target<'_>) -> Self {
        match *target {
            Target::Box { start, step, count, strides, view } => Self::Box {
                start: start.to_vec(),
                step: step.to_vec(),
                count: count.to_vec(),
                strides: strides.to_vec(),
                view: view.map(<[u64]>::to_vec),
            },
            Target::Outer { ref axes, strides } => Self::Outer { axes: axes.clone(), strides: strides.to_vec() },
            Target::Boxes { starts, step, count, strides, stride, view } => Self::Boxes {
                starts: starts.to_vec(),
                step: step.to_vec(),
                count: count.to_vec(),
                strides: strides.to_vec(),
                stride,
                view: view.map(<[u64]>::to_vec),
            },
            Target::Points { coordinates, stride } => Self::Points { coordinates: coordinates.to_vec(), stride },
        }
    }

    /// The target that it owns.
    pub fn borrow(&self) -> Target<'_> {
        match self {
            Self::Box { start, step, count, strides, view } => {
                Target::Box { start, step, count, strides, view: view.as_deref() }
            }
            Self::Outer { axes, strides } => Target::Outer { axes: axes.clone(), strides },
            Self::Boxes { starts, step, count, strides, stride, view } => {
                Target::Boxes { starts, step, count, strides, stride: *stride, view: view.as_deref() }
            }
            Self::Points { coordinates, stride } => Target::Points { coordinates, stride: *stride },
        }
    }
}

/// A command that can be in flight after the call that submitted it has returned. Buffers must stay until it is
/// delivered.
#[derive(Clone, Debug)]
pub enum OwnedCommand {
    /// As [`Command::Read`].
    Read {
        /// The space.
        space: SpaceId,
        /// Which elements.
        target: OwnedTarget,
        /// Where to.
        out: BufferMut,
    },
    /// As [`Command::Write`].
    Write {
        /// The space.
        space: SpaceId,
        /// Which elements.
        target: OwnedTarget,
        /// Where from.
        source: Source,
    },
    /// As [`Command::Append`].
    Append {
        /// The space.
        space: SpaceId,
        /// The dimension.
        axis: usize,
        /// Elements of the new part.
        count: Vec<u64>,
        /// Byte strides in the buffer.
        strides: Vec<isize>,
        /// Where from.
        source: Source,
    },
    /// As [`Command::Resize`].
    Resize {
        /// The space.
        space: SpaceId,
        /// Its new shape.
        shape: Vec<u64>,
    },
    /// As [`Command::Deallocate`].
    Deallocate {
        /// The space.
        space: SpaceId,
        /// First coordinate.
        start: Vec<u64>,
        /// Elements.
        count: Vec<u64>,
    },
    /// As [`Command::Delete`].
    Delete {
        /// Its name.
        name: String,
    },
    /// As [`Command::Flush`].
    Flush,
}

impl OwnedCommand {
    /// A copy of a command; `None` for those that cannot be in flight after the call that gave them.
    pub fn of(command: &Command<'_>) -> Option<Self> {
        Some(match *command {
            Command::Read { space, ref target, out } => Self::Read { space, target: OwnedTarget::of(target), out },
            Command::Write { space, ref target, source } => {
                Self::Write { space, target: OwnedTarget::of(target), source }
            }
            Command::Append { space, axis, count, strides, source } => {
                Self::Append { space, axis, count: count.to_vec(), strides: strides.to_vec(), source }
            }
            Command::Resize { space, shape } => Self::Resize { space, shape: shape.to_vec() },
            Command::Deallocate { space, start, count } => {
                Self::Deallocate { space, start: start.to_vec(), count: count.to_vec() }
            }
            Command::Delete { name } => Self::Delete { name: name.to_owned() },
            Command::Flush => Self::Flush,
            _ => return None,
        })
    }

    /// The command that it owns.
    pub fn borrow(&self) -> Command<'_> {
        match self {
            Self::Read { space, target, out } => Command::Read { space: *space, target: target.borrow(), out: *out },
            Self::Write { space, target, source } => {
                Command::Write { space: *space, target: target.borrow(), source: *source }
            }
            Self::Append { space, axis, count, strides, source } => {
                Command::Append { space: *space, axis: *axis, count, strides, source: *source }
            }
            Self::Resize { space, shape } => Command::Resize { space: *space, shape },
            Self::Deallocate { space, start, count } => Command::Deallocate { space: *space, start, count },
            Self::Delete { name } => Command::Delete { name },
            Self::Flush => Command::Flush,
        }
    }
}

/// Takes the result of a command that was submitted.
pub type Done = Box<dyn FnOnce(Result<Reply>) + Send>;

/// Before which commands a command may begin.
pub(super) fn order_of(command: &Command<'_>) -> Order {
    match command {
        Command::Read { .. } | Command::Write { .. } => Order::Blocks,
        Command::Open { .. } | Command::Stat | Command::StatSpace { .. } | Command::List { .. } => Order::Free,
        Command::Stage { .. } | Command::Apply { .. } | Command::Abort { .. } => Order::Between,
        Command::Flush => Order::Behind,
        Command::Create(_)
        | Command::Delete { .. }
        | Command::Rename { .. }
        | Command::Together { .. }
        | Command::Append { .. }
        | Command::Begin { .. }
        | Command::Resize { .. }
        | Command::SetAttrs { .. }
        | Command::Deallocate { .. }
        | Command::Check { .. }
        | Command::Compact => Order::Alone,
    }
}

/// What a command moves.
fn moves_of(command: &Command<'_>) -> Moves {
    match command {
        Command::Read { .. } => Moves::Out,
        Command::Write { .. } | Command::Append { .. } | Command::Stage { .. } => Moves::In,
        _ => Moves::Nothing,
    }
}

/// Where a command of a flight stands.
#[derive(Debug)]
enum FlightState<'c> {
    /// It has not begun; its blocks may be requested.
    Waiting(Command<'c>),
    /// A read whose pages are known; its bytes are to be moved.
    Located(SpaceId, Target<'c>, BufferMut),
    /// Its result is known.
    Over(Result<Reply>),
    /// Its result was taken.
    Taken,
}

/// A command between its halves. It borrows what it was given.
pub(super) struct Flight<'c> {
    device: &'c Device,
    order: Order,
    state: FlightState<'c>,
    ticket: Option<RangeTicket>,
}

impl<'c> Flight<'c> {
    pub(super) fn new(device: &'c Device, command: Command<'c>) -> Self {
        Self { device, order: order_of(&command), state: FlightState::Waiting(command), ticket: None }
    }

    /// The result, once it is known.
    pub(super) fn result(&mut self) -> Result<Reply> {
        match std::mem::replace(&mut self.state, FlightState::Taken) {
            FlightState::Over(result) => result,
            other => panic!("the result of a command in flight is asked for: {other:?}"),
        }
    }

    fn over(&mut self, result: Result<Reply>) {
        self.state = FlightState::Over(result);
        self.ticket = None;
    }
}

impl Halves for Flight<'_> {
    fn order(&self) -> Order {
        self.order
    }

    fn request(&mut self) {
        let FlightState::Waiting(command) = &self.state else { return };
        match self.device.guarded(|| self.device.request(command)) {
            Ok(ticket) => self.ticket = ticket,
            Err(e) => self.over(Err(e)),
        }
    }

    fn is_granted(&self) -> bool {
        self.ticket.as_ref().is_none_or(RangeTicket::is_granted)
    }

    fn plan(&mut self) -> Option<Moves> {
        let command = match std::mem::replace(&mut self.state, FlightState::Taken) {
            FlightState::Waiting(command) => command,
            // It could not even request its blocks.
            other => {
                self.state = other;
                return Some(Moves::Nothing);
            }
        };
        let moves = moves_of(&command);
        let device = self.device;
        let held = self.ticket.is_some();
        match command {
            Command::Read { space, target, out } => match device.in_half(|| device.locate(space, &target)) {
                Ok(()) => self.state = FlightState::Located(space, target, out),
                Err(e) => self.over(Err(e)),
            },
            Command::Write { space, target, source } if held => {
                let done = device.in_half(|| device.write_held(space, &target, source));
                self.state = FlightState::Over(done.map(|()| Reply::Done));
            }
            command => self.state = FlightState::Over(device.in_half(|| command.run(device))),
        }
        (!matches!(self.state, FlightState::Over(Err(Error::Internal(_))))).then_some(moves)
    }

    fn complete(&mut self) {
        if let FlightState::Located(..) = self.state {
            let FlightState::Located(space, target, out) = std::mem::replace(&mut self.state, FlightState::Taken)
            else {
                unreachable!("just seen")
            };
            let device = self.device;
            let done = device.in_half(|| device.read_located(space, target, out));
            self.state = FlightState::Over(done.map(|()| Reply::Done));
        }
        self.ticket = None;
    }

    fn refuse(&mut self, why: Error) {
        self.over(Err(why));
    }

    fn deliver(self: Box<Self>) {}
}

/// A command in flight that owns what it needs, and the device; it is delivered to a callback.
struct Submitted {
    /// Borrows the fields below, which lie on the heap and are dropped after it.
    flight: Option<Flight<'static>>,
    done: Option<Done>,
    _command: Arc<OwnedCommand>,
    _device: Arc<Device>,
}

impl Submitted {
    fn new(device: Arc<Device>, command: OwnedCommand, done: Done) -> Self {
        let command = Arc::new(command);
        // SAFETY: both lie on the heap, behind counted references that this struct keeps until the flight is dropped
        // (`Drop` below takes it first), and neither is changed meanwhile.
        let (held, of): (&'static OwnedCommand, &'static Device) =
            unsafe { (&*std::ptr::from_ref(&*command), &*std::ptr::from_ref(&*device)) };
        let flight = Some(Flight::new(of, held.borrow()));
        Self { flight, done: Some(done), _command: command, _device: device }
    }

    fn flight(&mut self) -> &mut Flight<'static> {
        self.flight.as_mut().expect("a flight lasts until it is delivered")
    }
}

impl Halves for Submitted {
    fn order(&self) -> Order {
        self.flight.as_ref().expect("a flight lasts until it is delivered").order
    }

    fn request(&mut self) {
        self.flight().request();
    }

    fn is_granted(&self) -> bool {
        self.flight.as_ref().expect("a flight lasts until it is delivered").is_granted()
    }

    fn plan(&mut self) -> Option<Moves> {
        self.flight().plan()
    }

    fn complete(&mut self) {
        self.flight().complete();
    }

    fn refuse(&mut self, why: Error) {
        self.flight().refuse(why);
    }

    fn deliver(mut self: Box<Self>) {
        let result = self.flight().result();
        self.flight = None;
        let done = self.done.take().expect("a command is delivered once");
        done(result);
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        self.flight = None;
        // The caller must not wait for ever: a clock that a panic stopped drops the commands in flight.
        if let Some(done) = self.done.take() {
            done(Err(Error::Closed("the store was closed while the command was in flight".to_owned())));
        }
    }
}

/// Something that is done as one command, both halves of it at once: closing, say.
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
        self.result = Some(Err(why));
    }

    fn deliver(self: Box<Self>) {}
}

impl Device {
    /// Gives a command whose result comes later, to `done`: from this call on, in any call that lets time pass, in any
    /// thread. Without a modelled clock the command is executed in this call. `None` if it was delivered already.
    ///
    /// The order of commands in flight is [`Order`]'s: a read waits for earlier writes of its blocks, a write for
    /// earlier reads and writes; a flush for all earlier commands; a command that changes shapes or names waits for all
    /// earlier ones, and all later ones for it.
    ///
    /// # Errors
    /// To `done`: those of the command; [`Error::Busy`] if too many commands are in flight; [`Error::Cancelled`];
    /// [`Error::Closed`] if the clock stops before its end.
    pub fn submit(self: &Arc<Self>, command: OwnedCommand, done: Done) -> Option<FlightId> {
        let checked = self.enter().and_then(|inside| {
            drop(inside);
            if self.read_only && command.borrow().writes() { Err(Error::ReadOnly) } else { Ok(()) }
        });
        if let Err(e) = checked {
            done(Err(e));
            return None;
        }
        match self.ftl.probe() {
            Some(probe) => {
                let submitted = Box::new(Submitted::new(self.clone(), command, done));
                // If the clock panics, what it was given is dropped, which tells the caller.
                self.guarded(|| Ok(probe.submit(submitted))).unwrap_or(None)
            }
            None => {
                done(self.execute(command.borrow()));
                None
            }
        }
    }

    /// Lets modelled time pass until a command that was submitted is delivered, or, for none, the next one. Gives
    /// whether there was one to wait for.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub fn drive(&self, flight: Option<FlightId>) -> Result<bool> {
        if !self.is_here() {
            return Ok(false);
        }
        self.guarded(|| Ok(self.ftl.probe().is_some_and(|probe| probe.drive(flight))))
    }

    /// Cancels a command in flight that has not begun. Gives whether it was: one that has begun comes to its end.
    pub fn cancel(&self, flight: FlightId) -> bool {
        self.is_here() && self.ftl.probe().is_some_and(|probe| probe.cancel(flight))
    }

    /// Whether this is the process that opened the store: one forked from it has its memory, and none of its threads.
    pub fn is_here(&self) -> bool {
        self.place.is_here()
    }

    /// Whether the store has a modelled clock, so that time passes between the halves of a command.
    pub(crate) fn has_clock(&self) -> bool {
        self.ftl.probe().is_some_and(Probe::has_clock)
    }

    /// Runs some work as one command, of this order among those in flight.
    pub(crate) fn as_command<T: Send>(
        &self,
        order: Order,
        moves: Moves,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let Some(probe) = self.ftl.probe() else { return self.guarded(work) };
        let mut whole = Whole { order, moves, work: Some(|| self.guarded(work)), result: None };
        self.guarded(|| {
            probe.run(&mut whole);
            Ok(())
        })?;
        whole.result.expect("a command that was run has a result")
    }

    /// Runs both halves of a command with whoever looks on.
    pub(super) fn execute_watched(&self, command: Command<'_>) -> Result<Reply> {
        let probe = self.ftl.probe().expect("somebody looks on");
        let mut flight = Flight::new(self, command);
        self.guarded(|| {
            probe.run(&mut flight);
            Ok(())
        })?;
        flight.result()
    }

    /// A half of a command in flight: the store may have been closed, or have panicked, since it was given.
    fn in_half<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _inside = self.enter()?;
        self.guarded(work)
    }

    /// Requests the blocks of a read or a write; none for other commands, and for those that touch no block.
    fn request(&self, command: &Command<'_>) -> Result<Option<RangeTicket>> {
        let (space, target, share) = match command {
            Command::Read { space, target, .. } => (*space, target, Share::Shared),
            Command::Write { space, target, .. } => (*space, target, Share::Exclusive),
            _ => return Ok(None),
        };
        let space = self.space(space)?;
        let shape = space.read()?.record.shape.clone();
        let blocks = blocks_of(&space, &shape, target)?;
        Ok(blocks.map(|blocks| space.ranges.request(blocks, share)))
    }

    /// Holds blocks of a space for a command that runs as a whole. Under a clock nobody may be waited for here, since
    /// only this thread lets time pass: all that can hold them is a transaction.
    pub(super) fn hold(&self, space: &Space, blocks: BlockBox) -> Result<RangeTicket> {
        let ticket = space.ranges.request(blocks, Share::Exclusive);
        if self.has_clock() {
            if !ticket.is_granted() {
                return Err(Error::Busy(format!(
                    "array {:?} is held by a transaction, and on a modelled device no command can wait for it",
                    space.peek().record.name
                )));
            }
        } else if !ticket.wait() {
            return Err(Error::Closed("the store was closed while the command waited for a transaction".to_owned()));
        }
        Ok(ticket)
    }
}
