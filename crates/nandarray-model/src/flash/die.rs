//! A die: the state of its array, and the command that it would send if it got the bus.

use super::operation::OpKind;
use super::slab::{CLASSES, NONE};
use nandarray_sim::Ps;

/// A die's array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Array {
    /// Rests; may hold a suspended operation.
    Idle,
    /// A read's command has been (or is being) sent, cells are sensed until `end`.
    Sensing,
    /// Sensed data waits in the page register until all of it has left.
    Holding,
    /// Cells are programmed (or the data for it comes in) until `end`.
    Programming,
    /// A block is erased until `end`.
    Erasing,
    /// A program or an erase is being interrupted until `end`.
    Pausing,
}

/// A command for which a die requests the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Nothing.
    Nothing,
    /// A read.
    Read,
    /// A read while the sensed data moves to the cache register.
    CacheRead,
    /// A page and its program.
    Program,
    /// A page while the die programs another.
    CacheProgram,
    /// An erase.
    Erase,
    /// Suspension of the running program or erase, for a read.
    Suspend,
    /// Resumption of the suspended operation.
    Resume,
}

/// A program or erase that was interrupted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paused {
    pub(super) op: OpKind,
    /// Its operations.
    pub(super) group: u32,
    /// Remaining time.
    pub(super) remaining: Ps,
}

/// A die.
#[derive(Clone, Debug)]
pub(super) struct Die {
    pub(super) channel: u32,
    pub(super) chip: u32,
    pub(super) array: Array,
    pub(super) wish: Wish,
    /// Classes that wait.
    pub(super) mask: u8,
    /// Whether background work counts as the host's.
    pub(super) urgent: bool,
    /// Number of times that the current operation was suspended.
    pub(super) suspends: u32,
    /// Operations in a plane's queue, by class.
    pub(super) count: [u32; CLASSES],
    /// The operations of the array's command.
    pub(super) group: u32,
    /// Of what the page register holds, pages that have not left.
    pub(super) left: u32,
    /// The same of the cache register.
    pub(super) cache_left: u32,
    /// The operations whose data is in the cache register and has not been offered to the bus: on the way there.
    pub(super) cache_group: u32,
    /// The operations of a program that was loaded while another one runs.
    pub(super) loaded: u32,
    /// When its data is all there.
    pub(super) loaded_at: Ps,
    pub(super) start: Ps,
    pub(super) end: Ps,
    /// End of the wait for the rest of a word line, while an event for it is in the queue.
    pub(super) hold_until: Ps,
    pub(super) paused: Option<Paused>,
    pub(super) busy_sense: Ps,
    pub(super) busy_program: Ps,
    pub(super) busy_erase: Ps,
    pub(super) busy_pause: Ps,
}

impl Die {
    pub(super) fn new(channel: u32, chip: u32) -> Self {
        Self {
            channel,
            chip,
            array: Array::Idle,
            wish: Wish::Nothing,
            mask: 0,
            urgent: false,
            suspends: 0,
            count: [0; CLASSES],
            group: NONE,
            left: 0,
            cache_left: 0,
            cache_group: NONE,
            loaded: NONE,
            loaded_at: Ps::ZERO,
            start: Ps::ZERO,
            end: Ps::ZERO,
            hold_until: Ps::ZERO,
            paused: None,
            busy_sense: Ps::ZERO,
            busy_program: Ps::ZERO,
            busy_erase: Ps::ZERO,
            busy_pause: Ps::ZERO,
        }
    }

    /// Operations that wait in the queues of its planes.
    pub(super) fn queued(&self) -> u32 {
        self.count.iter().sum()
    }

    /// Whether nothing is done, held, loaded or interrupted.
    pub(super) fn rests(&self) -> bool {
        self.array == Array::Idle && self.paused.is_none() && self.loaded == NONE && self.cache_left == 0
    }

    /// Operations of these classes that wait in the queues of its planes.
    pub(super) fn waiting_in(&self, classes: u8) -> u32 {
        (0..CLASSES).filter(|class| classes >> class & 1 != 0).map(|class| self.count[class]).sum()
    }

    /// Whether it is at work, or can be at once, on operations of a kind, whose classes are given: whether it will soon
    /// take its share of the bus for them.
    pub(super) fn uses_bus_for(&self, op: OpKind, classes: u8) -> bool {
        match (op, self.array) {
            (_, Array::Idle) => self.paused.is_none() && self.mask & classes != 0,
            (OpKind::Read, Array::Sensing | Array::Holding) | (OpKind::Program, Array::Programming) => true,
            _ => false,
        }
    }

    pub(super) fn came(&mut self, class: usize) {
        debug_assert_eq!(self.mask >> class & 1 != 0, self.count[class] > 0, "class {class}");
        self.count[class] += 1;
        self.mask |= 1 << class;
    }

    pub(super) fn went(&mut self, class: usize) {
        assert!(self.count[class] > 0, "no operation of class {class} waits");
        self.count[class] -= 1;
        if self.count[class] == 0 {
            self.mask &= !(1 << class);
        }
    }

    /// Books busy time up to a moment, for an account. A suspension is booked when its command is, which may be ahead.
    pub(super) fn book_until(&mut self, now: Ps) {
        let ahead = self.start.since(now);
        if let (Array::Pausing, Some(paused)) = (self.array, self.paused) {
            let busy = if paused.op == OpKind::Program { &mut self.busy_program } else { &mut self.busy_erase };
            *busy = *busy - ahead.min(*busy);
        }
        self.book(now);
    }

    /// Books what the array has done since `start`, and makes `now` the start of what is next.
    pub(super) fn book(&mut self, now: Ps) {
        let spent = now.since(self.start);
        match self.array {
            Array::Sensing => self.busy_sense += spent,
            Array::Programming => self.busy_program += spent,
            Array::Erasing => self.busy_erase += spent,
            Array::Pausing => self.busy_pause += spent,
            Array::Idle | Array::Holding => {}
        }
        self.start = now;
    }
}
