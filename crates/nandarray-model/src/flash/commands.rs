//! Commands of a die: its requests for the bus, the effect of a grant, the next step when its array has finished.
//!
//! Whether a read becomes a cache read is decided when the cells of the read before have been sensed: a read that
//! arrives later waits until that data has been transferred, as it would without a cache register. A page loaded by a
//! cache program stays in its register while the running program is suspended.

use super::backend::{Backend, FlashEvent};
use super::channel::Use;
use super::die::{Array, Paused, Wish};
use super::gather::CommandOps;
use super::operation::{OpEnded, OpKind, OpOutcome};
use super::policy::{CommandUnit, DiePolicy};
use super::slab::{ERASES, FRONT_READS, NONE, OpClass, PROGRAMS, READS};
use crate::spans::Track;
use nandarray_sim::Events;
use nandarray_sim::Ps;

impl<P: DiePolicy> Backend<P> {
    /// Returns the command for which die `d` requests the bus.
    pub(super) fn wish(&self, d: u32, now: Ps) -> Wish {
        let die = &self.dies[d as usize];
        match die.array {
            Array::Sensing | Array::Pausing => Wish::Nothing,
            Array::Idle if die.paused.is_some() => self.wish_while_paused(d, now),
            Array::Idle => match die.mask {
                0 => Wish::Nothing,
                mask if mask & !READS == 0 => Wish::Read,
                mask => self.pick(d, mask, now).map_or(Wish::Nothing, |(class, _)| wish_of(class)),
            },
            Array::Holding => {
                let can = self.times.t_cache_read_busy.is_some() && die.cache_left == 0 && die.group != NONE;
                if !can || die.mask & READS == 0 {
                    return Wish::Nothing;
                }
                let next = if die.paused.is_some() {
                    self.wish_while_paused(d, now)
                } else {
                    self.pick(d, die.mask, now).map_or(Wish::Nothing, |(class, _)| wish_of(class))
                };
                if next == Wish::Read { Wish::CacheRead } else { Wish::Nothing }
            }
            Array::Programming if die.mask & FRONT_READS != 0 => {
                self.wish_to_suspend(d, self.times.t_suspend_program, now)
            }
            Array::Erasing => self.wish_to_suspend(d, self.times.t_suspend_erase, now),
            Array::Programming => {
                if self.times.t_cache_program_busy.is_none() || die.loaded != NONE || die.mask & PROGRAMS == 0 {
                    return Wish::Nothing;
                }
                match self.pick(d, die.mask, now) {
                    Some((class, _)) if class.bit() & PROGRAMS != 0 => Wish::CacheProgram,
                    _ => Wish::Nothing,
                }
            }
        }
    }

    /// Returns the next command of a die with a suspended program or erase: a read, or the resumption once the
    /// suspended operation has waited too long.
    fn wish_while_paused(&self, d: u32, now: Ps) -> Wish {
        let die = &self.dies[d as usize];
        let paused = die.paused.expect("asked for");
        let Some((class, plane)) = self.pick(d, FRONT_READS, now) else {
            return Wish::Resume;
        };
        let read = &self.slab[self.queues[self.queue(d, plane, class as usize)].head];
        if self.key(d, read) <= self.key(d, &self.slab[paused.group]) { Wish::Read } else { Wish::Resume }
    }

    /// Returns the suspension of the running program or erase if a read waits and would start earlier by it; nothing if
    /// the running operation has itself waited too long, or was suspended too often.
    fn wish_to_suspend(&self, d: u32, t_suspend: Option<Ps>, now: Ps) -> Wish {
        let die = &self.dies[d as usize];
        let Some(t_suspend) = t_suspend else { return Wish::Nothing };
        let Some((class, plane)) = self.pick(d, FRONT_READS, now) else { return Wish::Nothing };
        let read = &self.slab[self.queues[self.queue(d, plane, class as usize)].head];
        let remaining = die.end.since(now.max(die.start));
        let worth = remaining > self.times.t_suspend_command + t_suspend;
        let due = self.key(d, &self.slab[die.group]) < self.key(d, read);
        if worth && !due && die.suspends < self.times.suspends_max { Wish::Suspend } else { Wish::Nothing }
    }

    /// Sends the next command of die `d`, which was granted the bus at `t`; returns whether data goes with the command.
    pub(super) fn command<E: Copy + From<FlashEvent>>(&mut self, d: u32, t: Ps, events: &mut Events<E>) -> bool {
        // The command is chosen again at the grant: a suspension, for example, may no longer be worth while.
        let wish = self.wish(d, t);
        match wish {
            Wish::Nothing => {}
            Wish::Read | Wish::CacheRead => self.read(d, wish == Wish::CacheRead, t, events),
            Wish::Program | Wish::CacheProgram => self.program(d, wish == Wish::CacheProgram, t, events),
            Wish::Erase => self.erase(d, t, events),
            Wish::Suspend => self.suspend(d, t, events),
            Wish::Resume => self.resume(d, t, events),
        }
        self.refresh(d, t, events);
        matches!(wish, Wish::Program | Wish::CacheProgram)
    }

    fn read<E: Copy + From<FlashEvent>>(&mut self, d: u32, cache: bool, t: Ps, events: &mut Events<E>) {
        let mask = if self.dies[d as usize].paused.is_some() { FRONT_READS } else { READS };
        let CommandOps { group, planes, .. } = self.gather(d, mask, t).expect("a read waits");
        let t_command = self.times.t_read_command + self.times.t_read_further_plane * u64::from(planes - 1);
        let start = self.take_bus(d, Use::Command, "read command", t, t_command, group);
        let mut t_sense = Ps::ZERO;
        let mut i = group;
        while i != NONE {
            let slot = &self.slab[i];
            self.dies[d as usize].undecoded.push(i);
            t_sense = t_sense.max(self.cells.t_sense(start, slot.place, slot.retries));
            i = slot.next;
        }
        let die = &mut self.dies[d as usize];
        assert_eq!(die.array, if cache { Array::Holding } else { Array::Idle }, "a read of die {d}");
        let mut end = start + t_sense + self.times.t_ready;
        if cache {
            assert!(die.cache_left == 0 && die.group != NONE, "the cache register of die {d} holds data");
            let ready = start + self.times.t_cache_read_busy.expect("a die that reads through its cache");
            end += ready - start;
            die.cache_group = die.group;
            die.cache_left = self.slab.length(die.group);
            self.counts.cache_reads += 1;
            events.push(ready, FlashEvent::CacheReady(d).into());
        }
        die.array = Array::Sensing;
        die.group = group;
        die.start = start;
        die.end = end;
        events.push(end, FlashEvent::ArrayDone(d).into());
    }

    fn program<E: Copy + From<FlashEvent>>(&mut self, d: u32, cache: bool, t: Ps, events: &mut Events<E>) {
        let CommandOps { group, planes, pages } = self.gather(d, PROGRAMS, t).expect("a program waits");
        let mut t_bus = self.times.t_program_command + self.times.t_program_further_plane * u64::from(planes - 1);
        let mut i = group;
        while i != NONE {
            let slot = &self.slab[i];
            let bus_bytes = self.times.bus_bytes(slot.bytes);
            self.counts.in_bus_bytes[slot.cause as usize] += bus_bytes;
            t_bus += self.times.transfer(bus_bytes);
            i = slot.next;
        }
        if self.times.word_line_pages > 1 {
            self.counts.word_lines += u64::from(pages > planes);
        }
        let end = self.take_bus(d, Use::DataIn, "data in", t, t_bus, group);
        if cache {
            self.counts.cache_programs += 1;
            let die = &mut self.dies[d as usize];
            assert!(die.array == Array::Programming && die.loaded == NONE, "die {d} has a page loaded");
            die.loaded = group;
            die.loaded_at = end;
        } else {
            self.start_program(d, group, end, events);
        }
    }

    /// Begins to program the cells at `start`.
    fn start_program<E: Copy + From<FlashEvent>>(&mut self, d: u32, group: u32, start: Ps, events: &mut Events<E>) {
        let mut t_program = Ps::ZERO;
        let mut i = group;
        while i != NONE {
            t_program = t_program.max(self.cells.t_program(start, self.slab[i].place));
            i = self.slab[i].next;
        }
        self.start_array(d, Array::Programming, group, start, t_program, events);
    }

    fn erase<E: Copy + From<FlashEvent>>(&mut self, d: u32, t: Ps, events: &mut Events<E>) {
        let CommandOps { group, planes, .. } = self.gather(d, ERASES, t).expect("an erase waits");
        let t_command = self.times.t_erase_command + self.times.t_erase_further_plane * u64::from(planes - 1);
        let start = self.take_bus(d, Use::Command, "erase command", t, t_command, group);
        let mut t_erase = Ps::ZERO;
        let mut i = group;
        while i != NONE {
            t_erase = t_erase.max(self.cells.t_erase(start, self.slab[i].place));
            i = self.slab[i].next;
        }
        self.start_array(d, Array::Erasing, group, start, t_erase, events);
    }

    fn start_array<E: Copy + From<FlashEvent>>(
        &mut self,
        d: u32,
        array: Array,
        group: u32,
        start: Ps,
        t: Ps,
        events: &mut Events<E>,
    ) {
        let die = &mut self.dies[d as usize];
        assert!(die.array == Array::Idle && group != NONE, "die {d} begins {array:?} while it is {:?}", die.array);
        die.array = array;
        die.group = group;
        die.suspends = 0;
        die.start = start;
        die.end = start + t + self.times.t_ready;
        events.push(die.end, FlashEvent::ArrayDone(d).into());
    }

    fn suspend<E: Copy + From<FlashEvent>>(&mut self, d: u32, t: Ps, events: &mut Events<E>) {
        let group = self.dies[d as usize].group;
        let told = self.take_bus(d, Use::Command, "suspend", t, self.times.t_suspend_command, group);
        let die = &mut self.dies[d as usize];
        assert!(matches!(die.array, Array::Programming | Array::Erasing) && die.paused.is_none(), "die {d}");
        let (op, t_suspend, what) = if die.array == Array::Programming {
            self.counts.program_suspends += 1;
            (OpKind::Program, self.times.t_suspend_program, "program")
        } else {
            self.counts.erase_suspends += 1;
            (OpKind::Erase, self.times.t_suspend_erase, "erase")
        };
        let start = die.start;
        die.book(told);
        die.paused = Some(Paused { op, group, remaining: die.end.since(told.max(start)) });
        die.group = NONE;
        die.suspends += 1;
        die.array = Array::Pausing;
        die.end = told + t_suspend.expect("a die that can be interrupted");
        events.push(die.end, FlashEvent::ArrayDone(d).into());
        self.span(Track::Die(d), what, start.min(told), told, group);
    }

    fn resume<E: Copy + From<FlashEvent>>(&mut self, d: u32, t: Ps, events: &mut Events<E>) {
        let paused = self.dies[d as usize].paused.take().expect("something was interrupted");
        let told = self.take_bus(d, Use::Command, "resume", t, self.times.t_suspend_command, paused.group);
        let die = &mut self.dies[d as usize];
        assert_eq!(die.array, Array::Idle, "die {d} resumes");
        die.array = if paused.op == OpKind::Program { Array::Programming } else { Array::Erasing };
        die.group = paused.group;
        die.start = told;
        die.end = told + self.times.t_resume + paused.remaining;
        events.push(die.end, FlashEvent::ArrayDone(d).into());
        self.counts.resumes += 1;
    }

    /// Occupies the bus of a die's channel for `t_bus` from `t` on; returns the end of that time.
    fn take_bus(&mut self, d: u32, what: Use, name: &'static str, t: Ps, t_bus: Ps, group: u32) -> Ps {
        let c = self.dies[d as usize].channel;
        let end = t + t_bus;
        self.channels[c as usize].occupy(what, t, end);
        self.span(Track::Channel(c), name, t, end, group);
        end
    }

    /// Ends the current work of a die's array and begins what follows.
    pub(super) fn array_done<E: Copy + From<FlashEvent>>(
        &mut self,
        d: u32,
        now: Ps,
        events: &mut Events<E>,
        ended: &mut Vec<OpEnded>,
    ) {
        let die = &mut self.dies[d as usize];
        let (array, group, start) = (die.array, die.group, die.start);
        assert!(start <= now, "die {d} ends {array:?} at {now}, before its start at {start}");
        die.book(now);
        match array {
            Array::Sensing => {
                die.array = Array::Holding;
                self.span(Track::Die(d), "sense", start, now, group);
                self.sensed(group, now);
                if self.policy.unit() == CommandUnit::Chip {
                    self.offer(d);
                }
            }
            Array::Programming => {
                die.array = Array::Idle;
                die.group = NONE;
                self.span(Track::Die(d), "program", start, now, group);
                self.worked(group, now, ended);
                self.start_loaded(d, now, events);
            }
            Array::Erasing => {
                die.array = Array::Idle;
                die.group = NONE;
                self.span(Track::Die(d), "erase", start, now, group);
                self.worked(group, now, ended);
            }
            Array::Pausing => {
                die.array = Array::Idle;
                let paused = die.paused.expect("something was interrupted").group;
                self.span(Track::Die(d), "suspend", start, now, paused);
            }
            Array::Idle | Array::Holding => unreachable!("an array that rests has no end"),
        }
        self.refresh(d, now, events);
    }

    /// Counts the sensed pages; at the first sensing of each, decides how many retries it needs.
    fn sensed(&mut self, group: u32, now: Ps) {
        self.counts.sense_commands[self.slab[group].cause as usize] += 1;
        let mut i = group;
        while i != NONE {
            let slot = &mut self.slab[i];
            if slot.retries == 0 {
                let verdict = self.cells.read(now, slot.place, slot.bytes);
                slot.retries_needed = verdict.retries;
                slot.lost = verdict.lost;
            }
            assert!(slot.retries <= slot.retries_needed, "{:?} was sensed too often", slot.place);
            let cause = slot.cause as usize;
            self.counts.senses[cause] += 1;
            self.counts.sensed_bus_bytes[cause] += self.times.bus_bytes(slot.bytes);
            i = slot.next;
        }
    }

    /// Ends the operations of a command that programmed pages or erased blocks.
    fn worked(&mut self, group: u32, now: Ps, ended: &mut Vec<OpEnded>) {
        let first = self.slab[group];
        assert_ne!(first.op, OpKind::Read);
        let commands = if first.op == OpKind::Program {
            &mut self.counts.program_commands
        } else {
            &mut self.counts.erase_commands
        };
        commands[first.cause as usize] += 1;
        let mut i = group;
        while i != NONE {
            let slot = self.slab[i];
            assert_eq!(slot.op, first.op, "operations of one command");
            let cause = slot.cause as usize;
            let good = if slot.op == OpKind::Program {
                self.counts.programs[cause] += 1;
                self.cells.programmed(now, slot.place)
            } else {
                self.counts.erases[cause] += 1;
                self.cells.erased(now, slot.place)
            };
            self.end(i, if good { OpOutcome::Done } else { OpOutcome::Failed }, ended);
            i = slot.next;
        }
    }

    /// Begins the cache program that was loaded during the last program, if there is one, once all its data has been
    /// received.
    fn start_loaded<E: Copy + From<FlashEvent>>(&mut self, d: u32, now: Ps, events: &mut Events<E>) {
        let die = &mut self.dies[d as usize];
        let group = std::mem::replace(&mut die.loaded, NONE);
        if group != NONE {
            let t_busy = self.times.t_cache_program_busy.expect("a die that programs through its cache");
            let start = now.max(die.loaded_at) + t_busy;
            self.start_program(d, group, start, events);
        }
    }

    /// Queues the data of the page register for its transfer over the bus.
    pub(super) fn offer(&mut self, d: u32) {
        let group = std::mem::replace(&mut self.dies[d as usize].group, NONE);
        assert!(self.dies[d as usize].left == 0, "the page register of die {d} is on its way");
        let pages = self.queue_for_bus(d, group, false);
        self.dies[d as usize].left = pages;
    }

    /// Queues the data of the cache register for its transfer over the bus.
    pub(super) fn cache_ready(&mut self, d: u32) {
        let group = std::mem::replace(&mut self.dies[d as usize].cache_group, NONE);
        let pages = self.queue_for_bus(d, group, true);
        assert_eq!(pages, self.dies[d as usize].cache_left, "pages in the cache register of die {d}");
    }

    fn queue_for_bus(&mut self, d: u32, group: u32, cached: bool) -> u32 {
        assert!(group != NONE, "die {d} has no data");
        let die = &self.dies[d as usize];
        let channel = &mut self.channels[die.channel as usize];
        let mut n = 0;
        let mut i = group;
        while i != NONE {
            let slot = &mut self.slab[i];
            debug_assert_eq!((slot.op, slot.place.die), (OpKind::Read, d));
            slot.cached = cached;
            let next = slot.next;
            let list = match slot.class {
                OpClass::ReadMap => 0,
                OpClass::ReadBack if !die.urgent => 2,
                _ => 1,
            };
            self.slab.push_back(&mut channel.out[list], i);
            n += 1;
            i = next;
        }
        n
    }

    /// Returns the scheduling key of a waiting operation (see `policy`).
    pub(super) fn key(&self, d: u32, slot: &super::slab::OpSlot) -> u64 {
        self.policy.key(&self.times, self.dies[d as usize].urgent, slot)
    }
}

fn wish_of(class: OpClass) -> Wish {
    match class {
        OpClass::ReadMap | OpClass::ReadHost | OpClass::ReadBack => Wish::Read,
        OpClass::ProgramFront | OpClass::ProgramBack => Wish::Program,
        OpClass::Erase => Wish::Erase,
    }
}
