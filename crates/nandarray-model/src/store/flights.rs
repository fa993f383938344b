//! Commands in flight under the modelled clock: decides which may begin and which wait.
//!
//! Commands are numbered in order of submission. One begins (its first half is executed) when its [`Order`] allows it,
//! checked in order of numbers whenever a command was submitted or has ended, so the same history of commands begins in
//! the same order everywhere. The machine decides when one ends. Nothing here blocks, and nothing here knows time.

use std::collections::{BTreeMap, BTreeSet};

use nandarray::Error;
use nandarray::probe::{FlightId, Halves, Moves, Order};

use nandarray_sim::Ps;

/// Maximum number of commands in flight: the length of NVMe's longest queue.
pub const IN_FLIGHT_MAX: usize = 1 << 16;

/// The halves of a command whose caller owns them and waits within one call.
pub(super) struct Borrowed(*mut dyn Halves);

// SAFETY: `Halves` are `Send`, and the thread that owns it waits in `Clock::run` until it is taken out of the table.
unsafe impl Send for Borrowed {}

/// The halves of a command in flight.
pub(super) enum FlightHalves {
    /// Halves owned by the caller.
    Borrowed(Borrowed),
    /// Halves owned by the clock until they are delivered.
    Owned(Box<dyn Halves>),
}

impl FlightHalves {
    /// Wraps halves that the caller owns, without their lifetime.
    ///
    /// # Safety
    /// The halves must stay where they are, and be left alone, until they were removed from the table.
    pub(super) unsafe fn borrowed(halves: &mut dyn Halves) -> Self {
        // SAFETY: only the lifetime changes, which the caller's promise bounds.
        let halves = unsafe { std::mem::transmute::<&mut dyn Halves, &'static mut dyn Halves>(halves) };
        Self::Borrowed(Borrowed(std::ptr::from_mut(halves)))
    }

    pub(super) fn halves(&mut self) -> &mut dyn Halves {
        match self {
            // SAFETY: the promise of `borrowed`; the table is used by one thread at a time.
            Self::Borrowed(Borrowed(halves)) => unsafe { &mut **halves },
            Self::Owned(halves) => &mut **halves,
        }
    }
}

impl TimedFlight {
    /// Returns the address of the command's halves, which is valid until the command is removed.
    pub(super) fn halves(&mut self) -> *mut (dyn Halves + 'static) {
        match &mut self.held {
            FlightHalves::Borrowed(Borrowed(halves)) => *halves,
            FlightHalves::Owned(halves) => std::ptr::from_mut(&mut **halves),
        }
    }
}

/// State of a command in flight, until it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The command was submitted. It has not requested its blocks, because an earlier command that changes names or
    /// shapes has not ended.
    Given,
    /// The command has requested its blocks, and waits for them or for earlier commands.
    Waiting,
    /// The first half of the command was executed.
    Begun,
}

/// A command in flight.
pub(super) struct TimedFlight {
    pub(super) held: FlightHalves,
    pub(super) order: Order,
    pub(super) admission: Admission,
    /// Whether the command writes elements.
    writes: bool,
    /// Time of the command's submission.
    pub(super) submitted: Ps,
}

/// All commands in flight.
#[derive(Default)]
pub(super) struct Flights {
    next: FlightId,
    table: BTreeMap<FlightId, TimedFlight>,
    /// Commands that have not begun.
    waiting: BTreeSet<FlightId>,
    /// The command that has begun and for whose end all later commands wait; `None` if there is none.
    alone: Option<FlightId>,
    /// The command that has begun with [`Order::Beside`], of which only one may run at a time; `None` if there is none.
    beside: Option<FlightId>,
}

impl std::fmt::Debug for Flights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flights").field("in_flight", &self.table.len()).field("waiting", &self.waiting.len()).finish()
    }
}

impl Flights {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn contains(&self, id: FlightId) -> bool {
        self.table.contains_key(&id)
    }

    /// Adds a command, which does not begin yet; returns its number.
    pub(super) fn submit(&mut self, mut held: FlightHalves, submitted: Ps) -> FlightId {
        self.next += 1;
        let (order, writes) = (held.halves().order(), held.halves().moves() == Moves::In);
        self.table.insert(self.next, TimedFlight { held, order, admission: Admission::Given, writes, submitted });
        assert!(self.waiting.insert(self.next), "command {} is submitted once", self.next);
        self.next
    }

    /// Removes a command; `None` if it is not in flight.
    pub(super) fn remove(&mut self, id: FlightId) -> Option<TimedFlight> {
        let gone = self.table.remove(&id)?;
        self.waiting.remove(&id);
        self.alone.take_if(|alone| *alone == id);
        self.beside.take_if(|beside| *beside == id);
        Some(gone)
    }

    /// Returns whether a command waits to begin.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the first command, in order of numbers, that may begin now, and marks it as begun; `None` if none may.
    pub(super) fn next_to_begin(&mut self) -> Option<FlightId> {
        let first = *self.table.first_key_value()?.0;
        let none_has_begun = self.waiting.len() == self.table.len();
        let mut is_held_back = self.alone.is_some();
        let mut found = None;
        for &id in &self.waiting {
            let flight = self.table.get_mut(&id).expect("a command that waits is in flight");
            if flight.admission == Admission::Given && !is_held_back {
                flight.held.halves().request();
                flight.admission = Admission::Waiting;
            }
            let order = flight.order;
            let may = match order {
                Order::Free => true,
                Order::Between => none_has_begun,
                Order::Blocks => !is_held_back && flight.held.halves().is_granted(),
                Order::Beside => {
                    let writes_before = || self.table.range(..id).any(|(_, earlier)| earlier.writes);
                    !is_held_back && self.beside.is_none() && !writes_before()
                }
                Order::Behind | Order::Alone => !is_held_back && id == first,
            };
            if may {
                self.table.get_mut(&id).expect("a command that waits is in flight").admission = Admission::Begun;
                found = Some((id, order));
                break;
            }
            is_held_back |= order == Order::Alone;
        }
        let (id, order) = found?;
        assert!(self.waiting.remove(&id), "command {id} begins once");
        if order == Order::Alone {
            assert_eq!(self.alone, None, "command {id} begins alone");
            self.alone = Some(id);
        }
        if order == Order::Beside {
            self.beside = Some(id);
        }
        Some(id)
    }

    pub(super) fn get(&mut self, id: FlightId) -> &mut TimedFlight {
        self.table.get_mut(&id).expect("a command in flight")
    }

    /// Returns the command to refuse when no command in flight can make progress and a caller waits for `id`: `id`
    /// itself if it waits for blocks, otherwise the first command that waits for blocks.
    pub(super) fn stuck_for(&mut self, id: FlightId) -> FlightId {
        let is_blocked = |flight: &mut TimedFlight| flight.order == Order::Blocks && !flight.held.halves().is_granted();
        if is_blocked(self.get(id)) {
            return id;
        }
        let waiting: Vec<FlightId> = self.waiting.iter().copied().collect();
        waiting.into_iter().find(|&other| is_blocked(self.get(other))).unwrap_or(id)
    }

    /// Returns the first command that has not begun; `None` if all have.
    pub(super) fn first_waiting(&self) -> Option<FlightId> {
        self.waiting.first().copied()
    }
}

/// Makes the error of a command that can never begin, because it waits for blocks that no command will release.
pub(super) fn stuck() -> Error {
    Error::Busy(
        "the command waits for blocks that no command in flight will release: a transaction holds them, and on a \
         modelled device nothing else can happen until it is applied or aborted"
            .to_owned(),
    )
}

/// Makes the error of a command beyond [`IN_FLIGHT_MAX`].
pub(super) fn too_many() -> Error {
    Error::Busy(format!("{IN_FLIGHT_MAX} commands are in flight, and no more may be; let some end first"))
}

#[cfg(test)]
mod tests;
