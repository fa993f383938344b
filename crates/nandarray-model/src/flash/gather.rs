//! Selection of the operations of one command: the operation whose turn it is, with those that may join it on other
//! planes and in its word line.

use super::backend::{Backend, FlashEvent};
use super::die::Die;
use super::operation::OpKind;
use super::policy::{DiePolicy, Joining};
use super::slab::{CLASSES, ERASES, NONE, OpClass, OpSlot, PROGRAMS, READS, SlotList};
use nandarray_sim::Events;
use nandarray_sim::Ps;

/// Depth (in word lines, with one-shot programming) to which a plane's queue is searched for an operation that may
/// join a command. It lets a stream that fell out of step by a page or two catch up, and bounds the cost of searching
/// long queues.
const JOIN_DEPTH: u32 = 4;
/// Depth to which a queue is searched for the pages of a word line: enough for two streams of four pages each, twice
/// over.
const WORD_LINE_DEPTH: u32 = 16;

/// The operations of one command.
pub(super) struct CommandOps {
    /// Slot of the first operation; the others follow by `OpSlot::next`.
    pub(super) group: u32,
    /// Number of planes that take part.
    pub(super) planes: u32,
    /// Number of pages (or blocks).
    pub(super) pages: u32,
}

impl<P: DiePolicy> Backend<P> {
    /// Returns the class and plane whose first operation has the lowest key, among the classes of the bit mask `mask`;
    /// `None` if no operation of them can begin.
    pub(super) fn pick(&self, d: u32, mask: u8, now: Ps) -> Option<(OpClass, u32)> {
        let mut waiting = mask & self.dies[d as usize].mask;
        let mut best = None;
        let mut best_key = (u64::MAX, u64::MAX);
        while waiting != 0 {
            let class = OpClass::ALL[waiting.trailing_zeros() as usize];
            waiting &= waiting - 1;
            for plane in 0..self.geometry.planes {
                let head = self.queues[self.queue(d, plane, class as usize)].head;
                if head == NONE {
                    continue;
                }
                let slot = &self.slab[head];
                let key = (self.key(d, slot), slot.seq);
                if key < best_key && self.eligible(d, plane, head, now) {
                    best_key = key;
                    best = Some((class, plane));
                }
            }
        }
        best
    }

    /// Removes the operations of the next command, of the classes in `mask`, from the queues of die `d`; `None` if no
    /// operation of them can begin.
    pub(super) fn gather(&mut self, d: u32, mask: u8, now: Ps) -> Option<CommandOps> {
        let (class, plane) = self.pick(d, mask, now)?;
        let head = self.queues[self.queue(d, plane, class as usize)].head;
        let first = self.slab[head];
        let mut group = SlotList::EMPTY;
        let mut pages = self.take(&mut group, d, plane, class, NONE, head);
        let mut planes = 1;
        if self.times.multi_plane && self.geometry.planes > 1 {
            let mask = mask & mask_of(first.op);
            if self.policy.joining() == Joining::Next {
                let mut used = 1u64 << plane;
                while let Some((class, plane)) = self.pick(d, u8::MAX, now) {
                    let head = self.queues[self.queue(d, plane, class as usize)].head;
                    let joins = class.bit() & mask != 0
                        && used >> plane & 1 == 0
                        && self.joins(first.op, first.place.page, head);
                    if !joins {
                        break;
                    }
                    used |= 1 << plane;
                    pages += self.take(&mut group, d, plane, class, NONE, head);
                    planes += 1;
                }
            } else if self.dies[d as usize].waiting_in(mask) > 0 {
                let most = self.planes_that_gain(d, &first);
                for other in (0..self.geometry.planes).filter(|&p| p != plane) {
                    if planes >= most {
                        break;
                    }
                    if let Some((class, before, i)) = self.partner(d, other, mask, first.op, first.place.page, now) {
                        pages += self.take(&mut group, d, other, class, before, i);
                        planes += 1;
                    }
                }
            }
        }
        assert!(planes <= self.geometry.planes && pages >= planes, "{pages} pages on {planes} planes");
        self.counts.multi_plane += u64::from(planes > 1);
        Some(CommandOps { group: group.head, planes, pages })
    }

    /// Returns the number of planes in a command of die `d` that gives the most throughput, given the busy dies of its
    /// channel.
    ///
    /// A plane that joins a command saves the die a separate sensing or programming, but costs bus time where its
    /// command cycles take longer than those of a separate command. Where the channel's dies would keep the bus busy
    /// with single-plane commands, joining gains nothing. Only dies with at least two rounds of work for all their
    /// planes count towards this: in a burst that ends soon, finishing the first operations early matters more.
    fn planes_that_gain(&self, d: u32, first: &OpSlot) -> u32 {
        let planes = self.geometry.planes;
        if self.policy.joining() != Joining::Near || !self.times.joining_costs(first.op) {
            return planes;
        }
        let classes = mask_of(first.op);
        let word_line = if first.op == OpKind::Program { u32::from(self.times.word_line_pages) } else { 1 };
        let is_deep = |die: &Die| die.waiting_in(classes) + 1 >= 2 * planes * word_line;
        if !is_deep(&self.dies[d as usize]) {
            return planes;
        }
        let on_channel = self.dies_on_channel(d);
        let at_work = |other: &u32| {
            let die = &self.dies[*other as usize];
            *other != d && is_deep(die) && die.uses_bus_for(first.op, classes)
        };
        let dies = 1 + on_channel.filter(at_work).count() as u64;
        self.times.best_planes(first.op, self.times.bus_bytes(first.bytes), planes, dies)
    }

    /// Returns the class, the preceding slot in the queue (`NONE` if there is none) and the slot of an operation on
    /// `plane` that may join a command; `None` if no operation may.
    fn partner(&self, d: u32, plane: u32, mask: u8, op: OpKind, page: u16, now: Ps) -> Option<(OpClass, u32, u32)> {
        let mut waiting = mask & self.dies[d as usize].mask;
        let depth = match self.policy.joining() {
            Joining::SamePage => u32::MAX,
            Joining::Near | Joining::Next => JOIN_DEPTH * u32::from(self.times.word_line_pages),
        };
        while waiting != 0 {
            let class = OpClass::ALL[waiting.trailing_zeros() as usize];
            waiting &= waiting - 1;
            let mut before = NONE;
            let mut i = self.queues[self.queue(d, plane, class as usize)].head;
            let mut looked = 0;
            while i != NONE && looked < depth {
                let joins = self.joins(op, page, i) && self.eligible(d, plane, i, now);
                if joins && (op != OpKind::Program || self.is_first_of_block(d, plane, class, i)) {
                    return Some((class, before, i));
                }
                before = i;
                i = self.slab[i].next;
                looked += 1;
            }
        }
        None
    }

    /// Whether no operation on the same block precedes slot `i` in its queue: pages of a block are programmed in
    /// order.
    fn is_first_of_block(&self, d: u32, plane: u32, class: OpClass, i: u32) -> bool {
        let block = self.slab[i].place.block;
        let mut j = self.queues[self.queue(d, plane, class as usize)].head;
        while j != i && self.slab[j].place.block != block {
            j = self.slab[j].next;
        }
        j == i
    }

    /// Whether the operation in slot `i` may share a multi-plane command with an operation on page `page` of another
    /// plane.
    fn joins(&self, op: OpKind, page: u16, i: u32) -> bool {
        let any_page = op == OpKind::Read && self.times.independent_planes;
        self.slab[i].place.page == page || (any_page && self.policy.joining() != Joining::SamePage)
    }

    /// Whether an operation may begin: a program if its word line is complete or has waited long enough, an erase if
    /// no earlier operation on its block waits and no earlier read of it may still need another sensing, a read
    /// always.
    fn eligible(&self, d: u32, plane: u32, i: u32, now: Ps) -> bool {
        let slot = &self.slab[i];
        match slot.op {
            OpKind::Read => true,
            OpKind::Program => {
                self.times.word_line_pages == 1
                    || slot.submitted + self.times.t_hold <= now
                    || (self.word_line(d, plane, slot.class, i) == self.word_line_missing(slot.place.page)
                        && !self.others_gather(d, plane, i))
            }
            OpKind::Erase => {
                let earlier = |class: usize| {
                    let mut j = self.queues[self.queue(d, plane, class)].head;
                    while j != NONE {
                        let other = &self.slab[j];
                        if other.seq < slot.seq && other.place.block == slot.place.block {
                            return true;
                        }
                        j = other.next;
                    }
                    false
                };
                let may_retry = |&read: &u32| {
                    let other = &self.slab[read];
                    let place = other.place;
                    other.seq < slot.seq && (place.plane, place.block) == (slot.place.plane, slot.place.block)
                };
                !(0..CLASSES - 1).any(earlier) && !self.dies[d as usize].undecoded.iter().any(may_retry)
            }
        }
    }

    /// Whether another plane that would join the command still waits for pages of the same word line. Pages are
    /// written across all planes in turn, so a plane's word line is complete a moment before the next plane's.
    fn others_gather(&self, d: u32, plane: u32, i: u32) -> bool {
        let slot = &self.slab[i];
        let word_line = slot.place.page / self.times.word_line_pages;
        let mut others = (0..self.geometry.planes).filter(|&p| p != plane && self.times.multi_plane);
        others.any(|p| {
            let mut j = self.queues[self.queue(d, p, slot.class as usize)].head;
            let mut looked = 0;
            while j != NONE && looked < WORD_LINE_DEPTH {
                let page = self.slab[j].place.page;
                if page / self.times.word_line_pages == word_line {
                    return self.word_line(d, p, slot.class, j) < self.word_line_missing(page);
                }
                j = self.slab[j].next;
                looked += 1;
            }
            false
        })
    }

    /// Returns the number of pages from `page` to the end of its word line, `page` included.
    fn word_line_missing(&self, page: u16) -> u32 {
        let pages = self.times.word_line_pages;
        let end = (page / pages * pages + pages).min(self.geometry.pages as u16);
        u32::from(end - page)
    }

    /// Returns the number of pages in the queue of slot `i`, from that slot on, that belong to its word line.
    fn word_line(&self, d: u32, plane: u32, class: OpClass, i: u32) -> u32 {
        debug_assert_eq!(self.slab[i].class, class, "a queue holds one class, of {d}.{plane}");
        let first = self.slab[i].place;
        let mut found = 0;
        let mut j = i;
        let mut looked = 0;
        while j != NONE && looked < WORD_LINE_DEPTH {
            found += u32::from(self.same_word_line(first, j));
            j = self.slab[j].next;
            looked += 1;
        }
        found
    }

    fn same_word_line(&self, first: super::operation::PageAddress, j: u32) -> bool {
        let pages = self.times.word_line_pages;
        let place = self.slab[j].place;
        place.block == first.block && place.page / pages == first.page / pages
    }

    /// Moves slot `i`, and the rest of its word line, from its queue to the end of `group`; returns the number of
    /// pages.
    fn take(&mut self, group: &mut SlotList, d: u32, plane: u32, class: OpClass, before: u32, i: u32) -> u32 {
        let queue = self.queue(d, plane, class as usize);
        let first = self.slab[i];
        let mut pages = 0;
        let (mut before, mut j, mut looked) = (before, i, 0);
        let depth = if first.op == OpKind::Program && self.times.word_line_pages > 1 { WORD_LINE_DEPTH } else { 1 };
        while j != NONE && looked < depth {
            let next = self.slab[j].next;
            if j == i || self.same_word_line(first.place, j) {
                self.slab.remove(&mut self.queues[queue], before, j);
                self.slab.push_back(group, j);
                self.dies[d as usize].went(class as usize);
                pages += 1;
            } else {
                before = j;
            }
            j = next;
            looked += 1;
        }
        pages
    }

    /// Schedules an event for the time at which the first incomplete word line of die `d` will have waited long
    /// enough.
    pub(super) fn hold<E: Copy + From<FlashEvent>>(&mut self, d: u32, now: Ps, events: &mut Events<E>) {
        let mut until = Ps::MAX;
        for class in [OpClass::ProgramFront, OpClass::ProgramBack] {
            for plane in 0..self.geometry.planes {
                let head = self.queues[self.queue(d, plane, class as usize)].head;
                if head != NONE {
                    until = until.min(self.slab[head].submitted + self.times.t_hold);
                }
            }
        }
        let die = &mut self.dies[d as usize];
        if until > now && until != Ps::MAX && die.hold_until != until {
            die.hold_until = until;
            events.push(until, FlashEvent::HoldOver(d).into());
        }
    }

    /// Updates whether die `d`'s chip, as the unit that executes commands, can be given one, and returns it.
    pub(super) fn refresh_chip(&mut self, d: u32, now: Ps) -> bool {
        let per_chip = self.geometry.dies;
        let die = &self.dies[d as usize];
        let mut dies = die.chip * per_chip..(die.chip + 1) * per_chip;
        let rests = dies.clone().all(|d| self.dies[d as usize].rests());
        let ready = rests && dies.any(|d| self.may_begin(d, now));
        let (channel, bit) = (die.channel as usize, 1u128 << (die.chip % self.geometry.ways));
        let channel = &mut self.channels[channel];
        channel.short = if ready { channel.short | bit } else { channel.short & !bit };
        ready
    }

    /// Whether an operation that waits for die `d` of a chip at rest may begin: reads and programs do.
    fn may_begin(&self, d: u32, now: Ps) -> bool {
        let mask = self.dies[d as usize].mask;
        mask & !ERASES != 0 || (mask != 0 && self.pick(d, mask, now).is_some())
    }

    /// Returns the die of a chip, where an operation may begin, whose first operation has the lowest key.
    pub(super) fn die_of_chip(&self, chip: u32, now: Ps) -> u32 {
        let dies = chip * self.geometry.dies..(chip + 1) * self.geometry.dies;
        let key = |&d: &u32| {
            self.pick(d, u8::MAX, now).map_or(u64::MAX, |(class, plane)| {
                self.key(d, &self.slab[self.queues[self.queue(d, plane, class as usize)].head])
            })
        };
        let die = dies.min_by_key(key).expect("a chip has a die");
        assert!(self.may_begin(die, now), "no operation of chip {chip} may begin");
        die
    }
}

fn mask_of(op: OpKind) -> u8 {
    match op {
        OpKind::Read => READS,
        OpKind::Program => PROGRAMS,
        OpKind::Erase => ERASES,
    }
}
