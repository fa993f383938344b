//! Slab of operations in flight: reusable slots, linked into queues by their numbers.
//!
//! A slot is in at most one queue at a time (of a die's plane, of a command, or of a channel's read data), so one link
//! per slot is enough. Nothing is allocated once the slab has grown to the largest number of operations in flight.

use super::operation::{FlashOp, OpCause, OpKind, PageAddress};
use nandarray_sim::Ps;

/// The number that stands for no slot.
pub(super) const NONE: u32 = u32::MAX;
/// Value of `OpSlot::next` in a free slot.
const FREE: u32 = NONE - 1;

/// Class of a waiting operation, by which scheduling policies choose. The classes are in the order that
/// `policy::normal` prefers at equal age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum OpClass {
    /// A read of the map, which a host's command waits for.
    ReadMap = 0,
    /// A host's read.
    ReadHost = 1,
    /// A read of reclaim or wear levelling.
    ReadBack = 2,
    /// A host's program.
    ProgramFront = 3,
    /// A program of the map, reclaim or wear levelling.
    ProgramBack = 4,
    /// An erase.
    Erase = 5,
}

/// Number of classes.
pub(super) const CLASSES: usize = 6;
/// Bit mask of the classes of reads that a host's command waits for.
pub(super) const FRONT_READS: u8 = 0b00_0011;
/// Bit mask of the classes of reads.
pub(super) const READS: u8 = 0b00_0111;
/// Bit mask of the classes of programs.
pub(super) const PROGRAMS: u8 = 0b01_1000;
/// Bit mask of the class of erases.
pub(super) const ERASES: u8 = 0b10_0000;

impl OpClass {
    /// All classes, in the order of their numbers.
    pub(super) const ALL: [Self; CLASSES] =
        [Self::ReadMap, Self::ReadHost, Self::ReadBack, Self::ProgramFront, Self::ProgramBack, Self::Erase];

    /// Returns the class of an operation by its kind and cause.
    pub(super) fn of(op: OpKind, cause: OpCause) -> Self {
        match (op, cause) {
            (OpKind::Read, OpCause::Map) => Self::ReadMap,
            (OpKind::Read, OpCause::Host) => Self::ReadHost,
            (OpKind::Read, OpCause::Gc | OpCause::Wear) => Self::ReadBack,
            (OpKind::Program, OpCause::Host) => Self::ProgramFront,
            (OpKind::Program, _) => Self::ProgramBack,
            (OpKind::Erase, _) => Self::Erase,
        }
    }

    /// Returns the class's bit in a bit mask of classes.
    pub(super) fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// An operation in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpSlot {
    pub(super) token: u64,
    /// Number of the operation in order of submission.
    pub(super) seq: u64,
    pub(super) submitted: Ps,
    pub(super) place: PageAddress,
    pub(super) bytes: u32,
    /// Number of the next slot in the same queue, or `NONE`.
    pub(super) next: u32,
    pub(super) op: OpKind,
    pub(super) cause: OpCause,
    pub(super) class: OpClass,
    /// Number of sensings that have failed so far.
    pub(super) retries: u16,
    /// Number of sensings that will fail before the page can be corrected, or is given up as lost.
    pub(super) retries_needed: u16,
    /// Whether the page cannot be corrected even after all retries.
    pub(super) lost: bool,
    /// Whether the read's data is in the cache register, which leaves the die's array free.
    pub(super) cached: bool,
}

/// A first-in, first-out queue of slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotList {
    pub(super) head: u32,
    tail: u32,
}

impl SlotList {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE };

    pub(super) fn is_empty(self) -> bool {
        self.head == NONE
    }
}

/// All slots, used and free.
#[derive(Debug, Default)]
pub(super) struct Slab {
    slots: Vec<OpSlot>,
    free: Vec<u32>,
}

impl Slab {
    pub(super) fn take(&mut self, operation: &FlashOp, class: OpClass, seq: u64, now: Ps) -> u32 {
        let slot = OpSlot {
            token: operation.token,
            seq,
            submitted: now,
            place: operation.place,
            bytes: operation.bytes,
            next: NONE,
            op: operation.op,
            cause: operation.cause,
            class,
            retries: 0,
            retries_needed: 0,
            lost: false,
            cached: false,
        };
        if let Some(i) = self.free.pop() {
            let before = std::mem::replace(&mut self.slots[i as usize], slot);
            assert!(before.next == FREE, "slot {i} is in use");
            i
        } else {
            let i = u32::try_from(self.slots.len()).expect("fewer than 2^32 operations in flight");
            assert!(i < FREE, "{i} operations in flight");
            self.slots.push(slot);
            i
        }
    }

    pub(super) fn give_back(&mut self, i: u32) {
        let before = std::mem::replace(&mut self[i].next, FREE);
        assert!(before != FREE, "slot {i} is given back twice");
        self.free.push(i);
    }

    pub(super) fn in_flight(&self) -> u64 {
        (self.slots.len() - self.free.len()) as u64
    }

    /// Returns the number of slots from slot `i` to the end of its queue, both included.
    pub(super) fn length(&self, mut i: u32) -> u32 {
        let mut n = 0;
        while i != NONE {
            n += 1;
            i = self[i].next;
        }
        n
    }

    pub(super) fn push_back(&mut self, list: &mut SlotList, i: u32) {
        debug_assert!(self[i].next != FREE && list.tail != i, "slot {i} is free, or last already");
        self[i].next = NONE;
        if list.tail == NONE {
            list.head = i;
        } else {
            self[list.tail].next = i;
        }
        list.tail = i;
    }

    pub(super) fn push_front(&mut self, list: &mut SlotList, i: u32) {
        debug_assert!(self[i].next != FREE && list.head != i, "slot {i} is free, or first already");
        self[i].next = list.head;
        if list.head == NONE {
            list.tail = i;
        }
        list.head = i;
    }

    pub(super) fn pop_front(&mut self, list: &mut SlotList) -> Option<u32> {
        let i = list.head;
        if i == NONE {
            return None;
        }
        list.head = self[i].next;
        if list.head == NONE {
            list.tail = NONE;
        }
        Some(i)
    }

    /// Removes slot `i` from a queue; `before` is the slot before it, or `NONE` if `i` is the first.
    pub(super) fn remove(&mut self, list: &mut SlotList, before: u32, i: u32) {
        if before == NONE {
            let first = self.pop_front(list);
            debug_assert_eq!(first, Some(i));
            return;
        }
        debug_assert_eq!(self[before].next, i);
        let next = self[i].next;
        self[before].next = next;
        if next == NONE {
            list.tail = before;
        }
    }
}

impl std::ops::Index<u32> for Slab {
    type Output = OpSlot;
    fn index(&self, i: u32) -> &OpSlot {
        &self.slots[i as usize]
    }
}

impl std::ops::IndexMut<u32> for Slab {
    fn index_mut(&mut self, i: u32) -> &mut OpSlot {
        &mut self.slots[i as usize]
    }
}
