//! The back end: accepts flash operations and reports when they end.
//!
//! The owner of the clock calls [`Backend::submit`], and [`Backend::handle`] for every event that the back end
//! scheduled. All operations submitted at one time are queued before any of them begins, so they may share a command.
//!
//! A read takes two events: cells sensed, data transferred. No event marks the end of a use of the bus while no die
//! waits for it, and the next use of the bus is decided together with a command; a die may therefore start up to a few
//! commands (290 ns each) before a more urgent one could have gone first.
//!
//! The caller must not read a page before its program has ended. The back end keeps the rest of the order that cells
//! need: programs of a block stay in order, and an erase waits for earlier operations on its block.

use super::account::{BusTime, DieTime, FlashAccount, FlashCounts, Imbalance};
use super::cells::{Cells, NandCells};
use super::channel::{Channel, Use};
use super::die::{Array, Die, Wish};
use super::operation::{FlashOp, OpEnded, OpKind, OpOutcome};
use super::policy::{CommandUnit, DiePolicy, Grant};
use super::slab::{CLASSES, NONE, OpClass, Slab, SlotList};
use super::times::Times;
use crate::describe::{Description, Energy, FlashGeometry, Scheduling};
use crate::spans::{DeviceSpan, DeviceSpanSink, Track};
use nandarray_sim::Events;
use nandarray_sim::Ps;

/// An event that the back end scheduled for itself. Channels and dies are given by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashEvent {
    /// The channel's bus is free and operations were submitted to its dies.
    Kick(u32),
    /// The channel's bus has become free.
    BusFree(u32),
    /// The die's array has finished its work; out of date if that work was suspended meanwhile.
    ArrayDone(u32),
    /// The die's cache register is filled.
    CacheReady(u32),
    /// The data of the read in this slot is decoded.
    Decoded(u32),
    /// The die has waited long enough for the rest of a word line.
    HoldOver(u32),
}

/// The flash of a modelled device. A policy schedules its dies and buses: the description's, or a test's own.
pub struct Backend<P: DiePolicy = Scheduling> {
    pub(super) geometry: FlashGeometry,
    pub(super) policy: P,
    pub(super) times: Times,
    pub(super) slab: Slab,
    /// Queues of waiting operations; [`Backend::queue`] gives the index.
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
    /// Makes the flash of a described device with all dies idle. `seed` decides what fails; busy times are reported to
    /// `spans`.
    ///
    /// # Panics
    /// If a channel has more than 128 dies, or the description has no times.
    pub fn new(description: &Description, seed: u64, spans: Option<Box<dyn DeviceSpanSink>>) -> Self {
        Self::with_cells(description, Box::new(NandCells::new(description, seed)), spans)
    }

    /// Makes the flash of a described device with other cells, such as faults ([`super::fault`]) around the described
    /// cells.
    ///
    /// # Panics
    /// As [`Backend::new`].
    pub fn with_cells(
        description: &Description,
        cells: Box<dyn Cells>,
        spans: Option<Box<dyn DeviceSpanSink>>,
    ) -> Self {
        Self::scheduled(description, description.controller.scheduling, cells, spans)
    }
}

impl<P: DiePolicy> Backend<P> {
    /// Makes the flash of a described device whose dies are scheduled by `policy`.
    ///
    /// # Panics
    /// As [`Backend::new`].
    pub(super) fn scheduled(
        description: &Description,
        policy: P,
        cells: Box<dyn Cells>,
        spans: Option<Box<dyn DeviceSpanSink>>,
    ) -> Self {
        let geometry = description.geometry;
        let dies_per_channel = geometry.ways * geometry.dies;
        assert!(dies_per_channel <= 128, "{dies_per_channel} dies on a channel, 128 are modelled");
        let dies = geometry.dies_total();
        Self {
            geometry,
            times: Times::new(description, policy.features()),
            policy,
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

    /// Accepts an operation; it ends in a later call of [`Backend::handle`], never in this one.
    ///
    /// # Panics
    /// If its address is not of this device, or it has more bytes than a page.
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

    /// Handles an event at its time `now`, and pushes to `ended` the operations that end by it.
    #[inline]
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
                // The event of an operation that was suspended meanwhile is out of date.
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

    /// Whether a die executes nothing and no operation waits for it.
    pub fn is_idle(&self, die: u32) -> bool {
        let die = &self.dies[die as usize];
        die.mask == 0 && die.rests()
    }

    /// Returns the number of operations that wait for a die, without those that it executes.
    pub fn queued(&self, die: u32) -> u32 {
        self.dies[die as usize].queued()
    }

    /// Returns the number of operations submitted and not ended.
    pub fn in_flight(&self) -> u64 {
        self.slab.in_flight()
    }

    /// Sets whether background operations of a die are scheduled like the host's, since reclaim there is urgent.
    pub fn set_urgent(&mut self, die: u32, urgent: bool) {
        self.dies[die as usize].urgent = urgent;
    }

    /// Whether a block is bad from the factory; the answer depends on the seed, not on the order of calls.
    pub fn is_factory_bad(&self, die: u32, plane: u32, block: u32) -> bool {
        self.cells.is_factory_bad(die, plane, block)
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> &FlashCounts {
        &self.counts
    }

    /// Returns the account up to `elapsed`, which must not be before the last event.
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

    /// Checks that the account up to `elapsed` is consistent ([`FlashAccount::check`]).
    pub fn check(&self, elapsed: Ps) -> Result<(), Imbalance> {
        self.account(elapsed).check()
    }

    /// Returns the numbers of all dies on the channel of die `d`.
    pub(super) fn dies_on_channel(&self, d: u32) -> std::ops::Range<u32> {
        let first = d / self.dies_per_channel * self.dies_per_channel;
        first..first + self.dies_per_channel
    }

    /// Returns the index in `queues` of the queue of a die, plane and class.
    pub(super) fn queue(&self, die: u32, plane: u32, class: usize) -> usize {
        (die as usize * self.geometry.planes as usize + plane as usize) * CLASSES + class
    }

    /// Returns the class in which an operation waits. All waiting programs of a block share one queue, whatever their
    /// causes, since pages of a block are programmed in order.
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

    /// Updates the command for which die `d` requests the bus; returns whether it requests the bus.
    #[inline]
    pub(super) fn refresh<E: Copy + From<FlashEvent>>(&mut self, d: u32, now: Ps, events: &mut Events<E>) -> bool {
        if self.policy.unit() == CommandUnit::Chip {
            return self.refresh_chip(d, now);
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

    /// Grants the bus of die `d`'s channel, if any die waits for it: now, or by an event at the time when the bus is
    /// free.
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

    /// Grants the free bus of channel `c` to one command after another, until a transfer of data occupies it or no die
    /// requests it.
    #[inline]
    fn grant<E: Copy + From<FlashEvent>>(&mut self, c: u32, now: Ps, events: &mut Events<E>) {
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
            let long = match self.policy.grant(&mut self.channels[c as usize]) {
                Grant::Nothing => break,
                Grant::Command(of) => {
                    let d = match self.policy.unit() {
                        CommandUnit::Chip => self.die_of_chip(c * self.geometry.ways + of, t),
                        CommandUnit::Die => c * self.dies_per_channel + of,
                    };
                    self.command(d, t, events)
                }
                Grant::DataOut(list) => {
                    self.data_out(c, list, t);
                    true
                }
            };
            t = t.max(self.channels[c as usize].free_at);
            if long || !self.policy.grants_ahead() {
                break;
            }
        }
        let channel = &mut self.channels[c as usize];
        if channel.free_at > now && (channel.leaving != NONE || channel.wanted()) {
            channel.pending = true;
            events.push(channel.free_at, FlashEvent::BusFree(c).into());
        }
    }

    /// Begins to transfer the oldest data of the list `out[list]` of channel `c`.
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

    /// Ends the transfer of a read's data, and begins its decoding.
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
            // Code words arrive evenly over the transfer; the decoder takes one at a time, in order.
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

    /// Handles a read whose data is decoded: ends it, or queues it for another sensing.
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
        let undecoded = &mut self.dies[d as usize].undecoded;
        let at = undecoded.iter().position(|&read| read == i).expect("data that was sensed");
        undecoded.swap_remove(at);
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

    /// Ends an operation: counts it, pushes its report to `ended`, and frees its slot.
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
