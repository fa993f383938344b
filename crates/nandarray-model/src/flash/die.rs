//! A die: the state of its cell array, and the command it would send if it got the bus.

use super::operation::OpKind;
use super::slab::{CLASSES, NONE};
use nandarray_sim::Ps;

/// State of a die's cell array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Array {
    /// The array is idle; it may hold a suspended operation.
    Idle,
    /// A read's command is being or has been sent; the cells are sensed until `Die::end`.
    Sensing,
    /// Sensed data waits in the page register until all of it has been transferred.
    Holding,
    /// A program's data is being received or its cells are being programmed, until `Die::end`.
    Programming,
    /// A block is being erased until `Die::end`.
    Erasing,
    /// A program or an erase is being suspended until `Die::end`.
    Pausing,
}

/// Command for which a die requests the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// No request.
    Nothing,
    /// A read into the page register.
    Read,
    /// A read into the page register while the data sensed before moves to the cache register.
    CacheRead,
    /// A page's data and its program.
    Program,
    /// A page's data, sent while the die still programs another page.
    CacheProgram,
    /// An erase of a block.
    Erase,
    /// Suspension of the running program or erase, for a read.
    Suspend,
    /// Resumption of the suspended operation.
    Resume,
}

/// A suspended program or erase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paused {
    pub(super) op: OpKind,
    /// Slot of the first operation of the suspended command.
    pub(super) group: u32,
    /// Time that the operation still needs after its resumption.
    pub(super) remaining: Ps,
}

/// State of a die.
#[derive(Clone, Debug)]
pub(super) struct Die {
    pub(super) channel: u32,
    pub(super) chip: u32,
    pub(super) array: Array,
    pub(super) wish: Wish,
    /// Bit mask of the [`OpClass`](super::slab::OpClass)es of which an operation waits for the die.
    pub(super) mask: u8,
    /// Whether background operations are scheduled like the host's.
    pub(super) urgent: bool,
    /// Number of times that the current program or erase was suspended.
    pub(super) suspends: u32,
    /// Number of operations in the queues of all planes, by class.
    pub(super) count: [u32; CLASSES],
    /// Slot of the first operation of the array's command, or `NONE`; a read's until its data is queued for the bus.
    pub(super) group: u32,
    /// Number of pages in the page register whose data was queued for the bus and has not been transferred.
    pub(super) left: u32,
    /// Number of pages in the cache register whose data has not been transferred.
    pub(super) cache_left: u32,
    /// Slot of the first operation whose data is moving to the cache register and is not yet queued for the bus, or
    /// `NONE`.
    pub(super) cache_group: u32,
    /// Slots of the reads whose command was sent and whose data is not decoded yet: each may need another sensing.
    pub(super) undecoded: Vec<u32>,
    /// Slot of the first operation of a cache program that was sent while another program runs, or `NONE`.
    pub(super) loaded: u32,
    /// Time at which all data of `loaded` has been received.
    pub(super) loaded_at: Ps,
    pub(super) start: Ps,
    pub(super) end: Ps,
    /// Time of the latest scheduled event that ends the wait for the rest of a word line.
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
            undecoded: Vec::new(),
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

    /// Returns the number of operations that wait in the queues of all planes.
    pub(super) fn queued(&self) -> u32 {
        self.count.iter().sum()
    }

    /// Whether the die executes nothing and holds no sensed data, loaded page or suspended operation.
    pub(super) fn rests(&self) -> bool {
        self.array == Array::Idle && self.paused.is_none() && self.loaded == NONE && self.cache_left == 0
    }

    /// Returns the number of operations of these classes (a bit mask) that wait in the queues of all planes.
    pub(super) fn waiting_in(&self, classes: u8) -> u32 {
        (0..CLASSES).filter(|class| classes >> class & 1 != 0).map(|class| self.count[class]).sum()
    }

    /// Whether the die will soon use the bus for operations of kind `op`: it executes one, or is idle and one of
    /// `classes` (the bit mask of that kind's classes) waits.
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

    /// Adds the array's work up to `now` to its busy times, for an account. A suspension was booked when its command
    /// was granted, which may lie after `now`: that excess is subtracted.
    pub(super) fn book_until(&mut self, now: Ps) {
        let ahead = self.start.since(now);
        if let (Array::Pausing, Some(paused)) = (self.array, self.paused) {
            let busy = if paused.op == OpKind::Program { &mut self.busy_program } else { &mut self.busy_erase };
            *busy = *busy - ahead.min(*busy);
        }
        self.book(now);
    }

    /// Adds the time since `start` to the busy time of the array's current state, and sets `start` to `now`.
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
