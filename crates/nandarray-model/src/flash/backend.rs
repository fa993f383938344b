//! The back end: takes operations, reports when they end.
//!
//! The owner of the clock calls [`Backend::submit`] and, for every event that the back end pushed, [`Backend::handle`].
//! Operations submitted at one moment are all seen before any of them is begun, so they may join one command.
//!
//! A read takes two events: cells sensed, data gone. The bus needs no event of its own while no die waits for it; and
//! the next use of the bus is decided together with a command, so a die may start up to a few commands (290 ns each)
//! earlier than it could have been overtaken.
//!
//! The caller does not read a page before its program has ended. The back end keeps the rest of the order that cells
//! need: programs of a block stay in their order, an erase waits for earlier operations on its block.

use super::account::{BusTime, DieTime, FlashAccount, FlashCounts, Imbalance};
use super::cells::{Cells, NandCells};
use super::channel::{Channel, Use};
use super::die::{Array, Die, Wish};
use super::operation::{FlashOp, OpEnded, OpKind, OpOutcome};
use super::policy::{self, Grant};
use super::slab::{CLASSES, NONE, OpClass, Slab, SlotList};
use super::times::Times;
use crate::describe::{Description, Energy, FlashGeometry, Scheduling};
use crate::spans::{DeviceSpan, DeviceSpanSink, Track};
use nandarray_sim::Events;
use nandarray_sim::Ps;

/// An event of the back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashEvent {
    /// Operations were submitted to a channel whose bus is free.
    Kick(u32),
    /// A channel's bus is free.
    BusFree(u32),
    /// A die's array has done what it did (or would have, had it not been interrupted).
    ArrayDone(u32),
    /// A die's cache register is filled.
    CacheReady(u32),
    /// A read, by its slot, is decoded.
    Decoded(u32),
    /// A die has waited long enough for the rest of a word line.
    HoldOver(u32),
}

/// The flash of a device under the clock.
pub struct Backend {
    pub(super) geometry: FlashGeometry,
    pub(super) scheduling: Scheduling,
    pub(super) times: Times,
    pub(super) slab: Slab,
    /// Queues by die, plane, class.
    pub(super) queues: Vec<SlotList>,
    pub(super) dies: Vec<Die>,
    pub(super) channels: Vec<Channel>,
    pub(super) cells: Box<dyn Cells>,
    pub(super) counts: FlashCounts,
    dies_per_channel: u32,
    t_ecc_decode: Ps,
    energy: Energy,
    seq: u64,
    spans: Option<Box<dyn DeviceSpanSink>>,
}

impl Backend {
    /// The flash of a described device, all dies resting. `seed` decides what fails.
    ///
    /// # Panics
    /// If a channel has more than 128 dies, or the description has no times.
    pub fn new(description: &Description, seed: u64, spans: Option<Box<dyn DeviceSpanSink>>) -> Self {
        Self::with_cells(description, Box::new(NandCells::new(description, seed)), spans)
    }

    /// The same over other cells: faults ([`super::fault`]) around those of the description.
    ///
    /// # Panics
    /// As [`Backend::new`].
    pub fn with_cells(
        description: &Description,
        cells: Box<dyn Cells>,
        spans: Option<Box<dyn DeviceSpanSink>>,
    ) -> Self {
        let geometry = description.geometry;
        let dies_per_channel = geometry.ways * geometry.dies;
        assert!(dies_per_channel <= 128, "{dies_per_channel} dies on a channel, 128 are modelled");
        let dies = geometry.dies_total();
        Self {
            geometry,
            scheduling: description.controller.scheduling,
            times: Times::new(description),
            slab: Slab::default(),
            queues: vec![SlotList::EMPTY; geometry.planes_total() as usize * CLASSES],
            dies: (0..dies).map(|d| Die::new(geometry.channel_of(d), geometry.chip_of(d))).collect(),
            channels: vec![Channel::new(); geometry.channels as usize],
            cells,
            counts: FlashCounts::default(),
            dies_per_channel,
            t_ecc_decode: description.reliability.t_ecc_decode,
            energy: description.energy,
            seq: 0,
            spans,
        }
    }

    /// Takes an operation; it ends in some later [`Backend::handle`], never in this call.
    ///
    /// # Panics
    /// If its place is not one of the device.
    pub fn submit<E: Copy + From<FlashEvent>>(&mut self, now: Ps, operation: FlashOp, events: &mut Events<E>) {
        let place = operation.place;
        let g = &self.geometry;
        assert!(
            (place.die as usize) < self.dies.len()
                && u32::from(place.plane) < g.planes
                && place.block < g.blocks
                && u32::from(place.page) < g.pages
                && operation.bytes <= g.page_bytes,
            "no such page, or more bytes than one has: {operation:?}"
        );
        self.counts.took();
        let class = self.class_of(&operation);
        let i = self.slab.take(&operation, class, self.seq, now);
        self.seq += 1;
        let queue = self.queue(place.die, u32::from(place.plane), class as usize);
        self.slab.push_back(&mut self.queues[queue], i);
        let die = &mut self.dies[place.die as usize];
        die.came(class as usize);
        let channel = die.channel;
        if self.refresh(place.die, now, events) {
            let channel_state = &mut self.channels[channel as usize];
            if channel_state.pending || channel_state.kicked {
                return;
            }
            if channel_state.free_at > now {
                channel_state.pending = true;
                events.push(channel_state.free_at, FlashEvent::BusFree(channel).into());
            } else {
                channel_state.kicked = true;
                events.push(now, FlashEvent::Kick(channel).into());
            }
        }
    }

    /// Goes on after an event; pushes to `ended` what has ended now.
    pub fn handle<E: Copy + From<FlashEvent>>(
        &mut self,
        now: Ps,
        event: FlashEvent,
        events: &mut Events<E>,
        ended: &mut Vec<OpEnded>,
    ) {
        match event {
            FlashEvent::BusFree(c) => {
                let channel = &mut self.channels[c as usize];
                assert!(channel.pending && channel.free_at <= now, "bus {c} is taken until {}", channel.free_at);
                channel.pending = false;
                let leaving = std::mem::replace(&mut channel.leaving, NONE);
                if leaving != NONE {
                    self.data_gone(leaving, now, events, ended);
                }
                self.grant(c, now, events);
            }
            FlashEvent::ArrayDone(d) => {
                // An operation that was interrupted leaves its event behind.
                let die = &self.dies[d as usize];
                if die.end != now || matches!(die.array, Array::Idle | Array::Holding) {
                    return;
                }
                self.array_done(d, now, events, ended);
                self.poke(d, now, events);
            }
            FlashEvent::Kick(c) => {
                let kicked = std::mem::replace(&mut self.channels[c as usize].kicked, false);
                assert!(kicked, "bus {c} was not kicked");
                self.grant(c, now, events);
            }
            FlashEvent::CacheReady(d) => {
                self.cache_ready(d);
                self.poke(d, now, events);
            }
            FlashEvent::Decoded(i) => {
                let d = self.slab[i].place.die;
                self.decoded(i, now, events, ended);
                self.poke(d, now, events);
            }
            FlashEvent::HoldOver(d) => {
                self.refresh(d, now, events);
                self.poke(d, now, events);
            }
        }
    }

    /// Whether a die rests and nothing waits for it.
    pub fn is_idle(&self, die: u32) -> bool {
        let die = &self.dies[die as usize];
        die.mask == 0 && die.rests()
    }

    /// Number of operations that wait for a die, without those that it executes.
    pub fn queued(&self, die: u32) -> u32 {
        self.dies[die as usize].queued()
    }

    /// Operations taken and not ended.
    pub fn in_flight(&self) -> u64 {
        self.slab.in_flight()
    }

    /// Whether background work of a die counts as the host's: reclaim there has become urgent.
    pub fn set_urgent(&mut self, die: u32, urgent: bool) {
        self.dies[die as usize].urgent = urgent;
    }

    /// Whether a block was bad when made; the same for the same seed, in any order of calls.
    pub fn is_factory_bad(&self, die: u32, plane: u32, block: u32) -> bool {
        self.cells.is_factory_bad(die, plane, block)
    }

    /// The counts so far.
    pub fn counts(&self) -> &FlashCounts {
        &self.counts
    }

    /// The account at a moment, which is not before the last event.
    pub fn account(&self, elapsed: Ps) -> FlashAccount {
        let channels = self.channels.iter().map(|c| {
            let [command, data_in, data_out] = c.busy_until(elapsed);
            BusTime { command, data_in, data_out }
        });
        let dies: Vec<DieTime> = self
            .dies
            .iter()
            .map(|die| {
                let mut die = die.clone();
                die.book_until(elapsed);
                DieTime {
                    sense: die.busy_sense,
                    program: die.busy_program,
                    erase: die.busy_erase,
                    suspend: die.busy_pause,
                }
            })
            .collect();
        let idle = dies.iter().map(|t| elapsed.since(t.total())).sum();
        FlashAccount {
            elapsed,
            counts: self.counts,
            in_flight: self.in_flight(),
            channels: channels.collect(),
            energy: self.counts.energy(&self.energy, idle),
            dies,
        }
    }

    /// That everything adds up ([`FlashAccount::check`]).
    pub fn check(&self, elapsed: Ps) -> Result<(), Imbalance> {
        self.account(elapsed).check()
    }

    /// The dies of a die's channel.
    pub(super) fn dies_on_channel(&self, d: u32) -> std::ops::Range<u32> {
        let first = d / self.dies_per_channel * self.dies_per_channel;
        first..first + self.dies_per_channel
    }

    /// The queue of a die's plane and class.
    pub(super) fn queue(&self, die: u32, plane: u32, class: usize) -> usize {
        (die as usize * self.geometry.planes as usize + plane as usize) * CLASSES + class
    }

    /// The class that an operation waits in. Programs of one block stay in one queue, whatever their causes: pages of a
    /// block are programmed in order.
    fn class_of(&self, operation: &FlashOp) -> OpClass {
        let class = OpClass::of(operation.op, operation.cause);
        let other = match class {
            OpClass::ProgramFront => OpClass::ProgramBack,
            OpClass::ProgramBack => OpClass::ProgramFront,
            _ => return class,
        };
        let place = operation.place;
        let mut i = self.queues[self.queue(place.die, u32::from(place.plane), other as usize)].head;
        while i != NONE {
            if self.slab[i].place.block == place.block {
                return other;
            }
            i = self.slab[i].next;
        }
        class
    }

    /// Sees anew what a die wants of the bus; whether it wants anything.
    pub(super) fn refresh<E: Copy + From<FlashEvent>>(&mut self, d: u32, now: Ps, events: &mut Events<E>) -> bool {
        if self.scheduling == Scheduling::MqsimCompat {
            return self.refresh_chip(d);
        }
        let die = &self.dies[d as usize];
        if die.array == Array::Sensing && die.wish == Wish::Nothing {
            return false;
        }
        let wish = self.wish(d, now);
        let die = &mut self.dies[d as usize];
        let channel = &mut self.channels[die.channel as usize];
        let bit = 1u128 << (d % self.dies_per_channel);
        if wish != die.wish {
            die.wish = wish;
            channel.short &= !bit;
            channel.long &= !bit;
            match wish {
                Wish::Nothing => {}
                Wish::Program | Wish::CacheProgram => channel.long |= bit,
                _ => channel.short |= bit,
            }
        }
        if wish != Wish::Nothing {
            return true;
        }
        if die.array == Array::Holding && die.cache_left == 0 && die.left == 0 && die.group != NONE {
            self.offer(d);
            return true;
        }
        if self.times.word_line_pages > 1 && die.array == Array::Idle && die.mask & super::slab::PROGRAMS != 0 {
            self.hold(d, now, events);
        }
        false
    }

    /// A die may want the bus: it is granted now, or when it is free.
    fn poke<E: Copy + From<FlashEvent>>(&mut self, d: u32, now: Ps, events: &mut Events<E>) {
        let c = self.dies[d as usize].channel;
        let channel = &mut self.channels[c as usize];
        if channel.pending || !channel.wanted() {
            return;
        }
        if channel.free_at > now {
            channel.pending = true;
            events.push(channel.free_at, FlashEvent::BusFree(c).into());
        } else {
            self.grant(c, now, events);
        }
    }

    /// Grants the bus, if it is free, until data takes it or no die wants it.
    fn grant<E: Copy + From<FlashEvent>>(&mut self, c: u32, now: Ps, events: &mut Events<E>) {
        let compat = self.scheduling == Scheduling::MqsimCompat;
        let channel = &mut self.channels[c as usize];
        if channel.pending {
            return;
        }
        if channel.free_at > now {
            if channel.wanted() {
                channel.pending = true;
                events.push(channel.free_at, FlashEvent::BusFree(c).into());
            }
            return;
        }
        let mut t = now;
        loop {
            let channel = &mut self.channels[c as usize];
            let grant = if compat {
                policy::mqsim_compat::grant(channel, self.geometry.ways)
            } else {
                policy::normal::grant(channel)
            };
            let long = match grant {
                Grant::Nothing => break,
                Grant::Command(of) => {
                    let d = if compat {
                        self.die_of_chip(c * self.geometry.ways + of, t)
                    } else {
                        c * self.dies_per_channel + of
                    };
                    self.command(d, t, events)
                }
                Grant::DataOut(list) => {
                    self.data_out(c, list, t);
                    true
                }
            };
            t = t.max(self.channels[c as usize].free_at);
            if long || compat {
                break;
            }
        }
        let channel = &mut self.channels[c as usize];
        if channel.free_at > now && (channel.leaving != NONE || channel.wanted()) {
            channel.pending = true;
            events.push(channel.free_at, FlashEvent::BusFree(c).into());
        }
    }

    /// Puts the data that waits first on the bus.
    fn data_out(&mut self, c: u32, list: usize, start: Ps) {
        let channel = &mut self.channels[c as usize];
        let i = self.slab.pop_front(&mut channel.out[list]).expect("data waits");
        let slot = &self.slab[i];
        assert!(slot.op == OpKind::Read && channel.leaving == NONE, "bus {c} has two transfers");
        let t = self.times.transfer(self.times.bus_bytes(slot.bytes));
        let end = start + self.times.t_data_out_command + t;
        let channel = &mut self.channels[c as usize];
        channel.occupy(Use::DataOut, start, end);
        channel.leaving = i;
        self.span(Track::Channel(c), "data out", start, end, i);
    }

    /// A read's data has left.
    fn data_gone<E: Copy + From<FlashEvent>>(
        &mut self,
        i: u32,
        now: Ps,
        events: &mut Events<E>,
        ended: &mut Vec<OpEnded>,
    ) {
        let slot = self.slab[i];
        let d = slot.place.die;
        let cause = slot.cause as usize;
        let bus_bytes = self.times.bus_bytes(slot.bytes);
        self.counts.out_bus_bytes[cause] += bus_bytes;
        let die = &mut self.dies[d as usize];
        if slot.cached {
            assert!(die.cache_left > 0, "more data left die {d} than its cache register held");
            die.cache_left -= 1;
        } else {
            assert!(die.left > 0, "more data left die {d} than its page register held");
            die.left -= 1;
            if die.left == 0 {
                assert_eq!(die.array, Array::Holding, "die {d}");
                die.array = Array::Idle;
                die.group = NONE;
            }
        }
        let codewords = u64::from(self.cells.codewords(slot.bytes));
        self.counts.codewords[cause] += codewords;
        if codewords > 0 && self.t_ecc_decode > Ps::ZERO {
            // Code words come in evenly over the transfer; the decoder takes one at a time, in order.
            let t_transfer = self.times.transfer(bus_bytes);
            let first = now - t_transfer + Ps(t_transfer.0 / codewords);
            let channel = &mut self.channels[self.dies[d as usize].channel as usize];
            let done = (now + self.t_ecc_decode).max(first.max(channel.decoder_free) + self.t_ecc_decode * codewords);
            channel.decoder_free = done;
            events.push(done, FlashEvent::Decoded(i).into());
            self.refresh(d, now, events);
        } else {
            self.decoded(i, now, events, ended);
        }
    }

    /// A read's data is decoded: it has ended, or it is sensed again.
    fn decoded<E: Copy + From<FlashEvent>>(
        &mut self,
        i: u32,
        now: Ps,
        events: &mut Events<E>,
        ended: &mut Vec<OpEnded>,
    ) {
        let slot = &mut self.slab[i];
        let d = slot.place.die;
        assert_eq!(slot.op, OpKind::Read, "data of {:?}", slot.place);
        if slot.retries < slot.retries_needed {
            slot.retries += 1;
            slot.cached = false;
            let (plane, class) = (u32::from(slot.place.plane), slot.class as usize);
            self.counts.retries += 1;
            let queue = self.queue(d, plane, class);
            self.slab.push_front(&mut self.queues[queue], i);
            self.dies[d as usize].came(class);
        } else {
            let outcome = if slot.lost { OpOutcome::Uncorrectable } else { OpOutcome::Done };
            self.end(i, outcome, ended);
        }
        self.refresh(d, now, events);
    }

    /// An operation has ended.
    pub(super) fn end(&mut self, i: u32, outcome: OpOutcome, ended: &mut Vec<OpEnded>) {
        let slot = &self.slab[i];
        let operation =
            FlashOp { op: slot.op, cause: slot.cause, place: slot.place, bytes: slot.bytes, token: slot.token };
        self.counts.ended(&operation, outcome);
        let FlashOp { op, place, token, .. } = operation;
        ended.push(OpEnded { token, op, place, outcome });
        self.slab.give_back(i);
    }

    /// Reports to the trace, if there is one, that a track was busy for an operation.
    pub(super) fn span(&mut self, track: Track, what: &'static str, start: Ps, end: Ps, i: u32) {
        if let Some(spans) = &mut self.spans {
            let slot = &self.slab[i];
            let detail = match slot.op {
                OpKind::Erase => u64::from(slot.place.block),
                OpKind::Read | OpKind::Program => {
                    u64::from(slot.place.block) * u64::from(self.geometry.pages) + u64::from(slot.place.page)
                }
            };
            spans.span(DeviceSpan { track, start, end, what, cause: slot.cause, detail });
        }
    }
}
