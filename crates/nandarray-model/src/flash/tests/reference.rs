//! Compares the back end with a naive scheduler: lists that are searched from the beginning for every decision, one
//! plane a command, without cache operations, suspension and word lines. Every operation must end at the same
//! picosecond under each policy.
//!
//! Times are odd numbers of picoseconds, so that no two events of a channel coincide by accident.

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;

use super::{Rig, at, device};
use crate::describe::{Description, Scheduling};
use crate::flash::fault::BitErrors;
use crate::flash::reliability::rber;
use crate::flash::{FlashOp, NandCells, OpCause, OpKind, OpOutcome, PageAddress, Verdict};
use nandarray_sim::Ps;

/// Block whose pages need two retries.
const WORN: PageAddress = PageAddress { die: 0, block: 1, page: 0, plane: 0 };
const WORN_RETRIES: u16 = 2;

/// Number of transfers in a row that may pass over waiting data, as `policy::normal` documents it.
const PASSES: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    Rests,
    Senses(usize),
    Holds,
    Works(usize),
}

#[derive(Clone, Debug)]
struct NaiveDie {
    /// Operations that wait, in the order in which their queues hold them, each with its class.
    waiting: Vec<(usize, u8)>,
    doing: Doing,
}

#[derive(Clone, Debug, Default)]
struct NaiveBus {
    free_at: u64,
    wakes: bool,
    leaving: Option<usize>,
    out: [VecDeque<usize>; 3],
    turn: u32,
    program_turn: u32,
    programs_passed: u32,
    back_passed: u32,
}

#[derive(Clone, Copy, Debug)]
enum NaiveEvent {
    BusFree(usize),
    CellsDone(usize),
}

struct Naive<'a> {
    d: &'a Description,
    asked: &'a [(u64, FlashOp)],
    dies: Vec<NaiveDie>,
    buses: Vec<NaiveBus>,
    events: BTreeMap<(u64, u64), NaiveEvent>,
    pushed: u64,
    retries: Vec<u16>,
    ends: Vec<u64>,
}

impl<'a> Naive<'a> {
    fn new(d: &'a Description, asked: &'a [(u64, FlashOp)]) -> Self {
        let die = NaiveDie { waiting: Vec::new(), doing: Doing::Rests };
        Self {
            d,
            asked,
            dies: vec![die; d.geometry.dies_total() as usize],
            buses: vec![NaiveBus::default(); d.geometry.channels as usize],
            events: BTreeMap::new(),
            pushed: 0,
            retries: vec![0; asked.len()],
            ends: vec![u64::MAX; asked.len()],
        }
    }

    fn push(&mut self, at: u64, event: NaiveEvent) {
        self.pushed += 1;
        self.events.insert((at, self.pushed), event);
    }

    fn channel(&self, die: usize) -> usize {
        die / (self.d.geometry.ways * self.d.geometry.dies) as usize
    }

    /// Returns 0 to 5: the map's reads, the host's, the background's; the host's programs, the background's; erases.
    fn class(&self, n: usize) -> u8 {
        let op = &self.asked[n].1;
        match (op.op, op.cause) {
            (OpKind::Read, OpCause::Map) => 0,
            (OpKind::Read, OpCause::Host) => 1,
            (OpKind::Read, _) => 2,
            (OpKind::Erase, _) => 5,
            (OpKind::Program, cause) => {
                let own = if cause == OpCause::Host { 3 } else { 4 };
                // Programs of a block wait in one queue, whatever their causes.
                let same = |&&(other, class): &&(usize, u8)| {
                    let place = self.asked[other].1.place;
                    class == 7 - own && (place.plane, place.block) == (op.place.plane, op.place.block)
                };
                if self.dies[op.place.die as usize].waiting.iter().any(|one| same(&one)) { 7 - own } else { own }
            }
        }
    }

    fn key(&self, n: usize, class: u8) -> u64 {
        let longest = self.d.nand.t_program.iter().max().unwrap().0;
        let patience = [0, 0, 8, 8, 16, 8].map(|n| n * longest);
        match self.d.controller.scheduling {
            Scheduling::Fifo => n as u64,
            Scheduling::MqsimCompat => [0_u64, 1, 3, 2, 4, 5][usize::from(class)] << 56 | n as u64,
            Scheduling::Normal => {
                let erases = if class == 5 { 8 * self.d.nand.t_erase.0 } else { 0 };
                self.asked[n].0 + patience[usize::from(class)] + erases
            }
        }
    }

    /// Returns the index in `waiting` of the operation that a die begins next.
    fn next_of(&self, die: usize) -> Option<usize> {
        let waiting = &self.dies[die].waiting;
        let is_first = |i: usize| {
            let (n, class) = waiting[i];
            let plane = self.asked[n].1.place.plane;
            !waiting[..i].iter().any(|&(m, c)| c == class && self.asked[m].1.place.plane == plane)
        };
        let may_begin = |i: usize| {
            let (n, class) = waiting[i];
            let place = self.asked[n].1.place;
            let before = |&(m, c): &(usize, u8)| {
                let other = self.asked[m].1.place;
                c != 5 && m < n && (other.plane, other.block) == (place.plane, place.block)
            };
            class != 5 || !waiting.iter().any(before)
        };
        let key = |&i: &usize| (self.key(waiting[i].0, waiting[i].1), waiting[i].0);
        (0..waiting.len()).filter(|&i| is_first(i) && may_begin(i)).min_by_key(key)
    }

    /// Returns the kind of the command for which a die wants the bus.
    fn wants(&self, die: usize) -> Option<OpKind> {
        let next = (self.dies[die].doing == Doing::Rests).then(|| self.next_of(die))??;
        Some(self.asked[self.dies[die].waiting[next].0].1.op)
    }

    fn dies_of(&self, channel: usize) -> std::ops::Range<usize> {
        let n = (self.d.geometry.ways * self.d.geometry.dies) as usize;
        channel * n..(channel + 1) * n
    }

    fn wanted(&self, channel: usize) -> bool {
        let data = self.buses[channel].out.iter().any(|list| !list.is_empty());
        data || match self.d.controller.scheduling {
            Scheduling::MqsimCompat => (0..self.d.geometry.ways).any(|chip| self.chip_ready(channel, chip)),
            _ => self.dies_of(channel).any(|die| self.wants(die).is_some()),
        }
    }

    fn dies_of_chip(&self, channel: usize, chip: u32) -> std::ops::Range<usize> {
        let first = self.dies_of(channel).start + (chip * self.d.geometry.dies) as usize;
        first..first + self.d.geometry.dies as usize
    }

    fn chip_ready(&self, channel: usize, chip: u32) -> bool {
        let dies = &self.dies[self.dies_of_chip(channel, chip)];
        dies.iter().all(|die| die.doing == Doing::Rests) && dies.iter().any(|die| !die.waiting.is_empty())
    }

    /// Returns the first of `n` numbers from `turn` on, and then from 0 on, for which `ready` holds.
    fn in_turn(n: u32, turn: u32, ready: impl Fn(u32) -> bool) -> Option<u32> {
        (turn..n).chain(0..turn.min(n)).find(|&i| ready(i))
    }

    fn transfer(&self, n: usize) -> u64 {
        Ps::of_bytes(self.asked[n].1.bytes.into(), self.d.bus.bytes_per_s).0
    }

    fn kind(page: u16) -> usize {
        usize::from(page % 2)
    }

    /// Sends the next command of a die at time `t`; returns the end of its use of the bus.
    fn command(&mut self, die: usize, t: u64) -> u64 {
        let next = self.next_of(die).expect("an operation that may begin");
        let (n, _) = self.dies[die].waiting.remove(next);
        let (nand, bus, place) = (&self.d.nand, &self.d.bus, self.asked[n].1.place);
        let (sent, lasts, doing) = match self.asked[n].1.op {
            OpKind::Read => {
                let again = if self.retries[n] > 0 { self.d.reliability.t_read_retry.0 } else { 0 };
                (t + bus.t_read_command.0, nand.t_read[Self::kind(place.page)].0 + again, Doing::Senses(n))
            }
            OpKind::Program => {
                let lasts = nand.t_program[Self::kind(place.page)].0;
                (t + bus.t_program_command.0 + self.transfer(n), lasts, Doing::Works(n))
            }
            OpKind::Erase => (t + bus.t_erase_command.0, nand.t_erase.0, Doing::Works(n)),
        };
        self.dies[die].doing = doing;
        self.push(sent + lasts + nand.t_ready.0, NaiveEvent::CellsDone(die));
        sent
    }

    fn data_out(&mut self, channel: usize, list: usize, t: u64) {
        let n = self.buses[channel].out[list].pop_front().expect("data waits");
        self.buses[channel].leaving = Some(n);
        self.buses[channel].free_at = t + self.d.bus.t_data_out_command.0 + self.transfer(n);
    }

    /// Grants the bus as MQSim does: data first, then one command of the next chip in turn.
    fn grant_of_mqsim(&mut self, channel: usize, now: u64) {
        if let Some(list) = (0..3).find(|&list| !self.buses[channel].out[list].is_empty()) {
            return self.data_out(channel, list, now);
        }
        let ways = self.d.geometry.ways;
        let turn = self.buses[channel].turn;
        if let Some(chip) = Self::in_turn(ways, turn, |chip| self.chip_ready(channel, chip)) {
            self.buses[channel].turn = (chip + 1) % ways;
            let key = |&die: &usize| {
                self.next_of(die).map_or(u64::MAX, |i| {
                    let (n, class) = self.dies[die].waiting[i];
                    self.key(n, class)
                })
            };
            let die = self.dies_of_chip(channel, chip).min_by_key(key).expect("a chip has dies");
            self.buses[channel].free_at = self.command(die, now);
        }
    }

    /// Grants the bus to every command without data, then to one transfer.
    fn grant_by_patience(&mut self, channel: usize, now: u64) {
        let first = self.dies_of(channel).start;
        let n = self.dies_of(channel).len() as u32;
        let mut t = now;
        loop {
            let wants = |naive: &Self, die: u32| naive.wants(first + die as usize);
            let short = |die: u32| matches!(wants(self, die), Some(OpKind::Read | OpKind::Erase));
            if let Some(die) = Self::in_turn(n, self.buses[channel].turn.min(n), short) {
                t = self.command(first + die as usize, t);
                self.buses[channel].turn = die + 1;
                self.buses[channel].free_at = t;
                continue;
            }
            let bus = &self.buses[channel];
            let program = Self::in_turn(n, bus.program_turn.min(n), |die| wants(self, die) == Some(OpKind::Program));
            let front = (0..2).find(|&list| !bus.out[list].is_empty());
            let data_waits = front.is_some() || !bus.out[2].is_empty();
            match program {
                Some(die) if bus.programs_passed >= PASSES || !data_waits => {
                    let sent = self.command(first + die as usize, t);
                    let bus = &mut self.buses[channel];
                    (bus.program_turn, bus.programs_passed, bus.free_at) = (die + 1, 0, sent);
                    return;
                }
                program => self.buses[channel].programs_passed += u32::from(program.is_some()),
            }
            if !data_waits {
                return;
            }
            let bus = &mut self.buses[channel];
            let list = match front {
                Some(front) if bus.out[2].is_empty() => front,
                Some(front) if bus.back_passed < PASSES => {
                    bus.back_passed += 1;
                    front
                }
                _ => {
                    bus.back_passed = 0;
                    2
                }
            };
            return self.data_out(channel, list, t);
        }
    }

    fn grant(&mut self, channel: usize, now: u64) {
        if self.buses[channel].wakes || !self.wanted(channel) {
            return;
        }
        if self.buses[channel].free_at <= now {
            match self.d.controller.scheduling {
                Scheduling::MqsimCompat => self.grant_of_mqsim(channel, now),
                _ => self.grant_by_patience(channel, now),
            }
        }
        let free_at = self.buses[channel].free_at;
        if free_at > now && (self.buses[channel].leaving.is_some() || self.wanted(channel)) {
            self.buses[channel].wakes = true;
            self.push(free_at, NaiveEvent::BusFree(channel));
        }
    }

    fn handle(&mut self, now: u64, event: NaiveEvent) {
        match event {
            NaiveEvent::BusFree(channel) => {
                self.buses[channel].wakes = false;
                if let Some(n) = self.buses[channel].leaving.take() {
                    let place = self.asked[n].1.place;
                    let die = place.die as usize;
                    self.dies[die].doing = Doing::Rests;
                    let worn = (place.die, place.plane, place.block) == (WORN.die, WORN.plane, WORN.block);
                    if worn && self.retries[n] < WORN_RETRIES {
                        self.retries[n] += 1;
                        let class = self.class(n);
                        self.dies[die].waiting.insert(0, (n, class));
                    } else {
                        self.ends[n] = now;
                    }
                }
                self.grant(channel, now);
            }
            NaiveEvent::CellsDone(die) => {
                let channel = self.channel(die);
                match self.dies[die].doing {
                    Doing::Senses(n) => {
                        self.dies[die].doing = Doing::Holds;
                        let list = usize::from(self.class(n));
                        self.buses[channel].out[list].push_back(n);
                    }
                    Doing::Works(n) => {
                        self.dies[die].doing = Doing::Rests;
                        self.ends[n] = now;
                    }
                    doing => panic!("die {die} has finished and {doing:?}"),
                }
                self.grant(channel, now);
            }
        }
    }

    fn handle_until(&mut self, at: u64) {
        while let Some(first) = self.events.first_entry().filter(|first| first.key().0 < at) {
            let ((now, _), event) = first.remove_entry();
            self.handle(now, event);
        }
    }

    fn run(mut self) -> Vec<u64> {
        let mut n = 0;
        while n < self.asked.len() {
            let now = self.asked[n].0;
            self.handle_until(now);
            // All operations of one moment are there before any of them begins.
            while n < self.asked.len() && self.asked[n].0 == now {
                let class = self.class(n);
                self.dies[self.asked[n].1.place.die as usize].waiting.push((n, class));
                n += 1;
            }
            (0..self.buses.len()).for_each(|channel| self.grant(channel, now));
        }
        self.handle_until(u64::MAX);
        self.ends
    }
}

/// Draws a device; a `crowded` one has a single channel with many dies, for which transfers queue up.
fn drawn_device(chance: &mut Rng, crowded: bool) -> Description {
    let text = |n: u32| n.to_string();
    let channels = text(if crowded { 1 } else { chance.u32(1..3) });
    let ways = text(if crowded { chance.u32(6..10) } else { chance.u32(1..4) });
    let (dies, planes) = (text(chance.u32(1..3)), text(chance.u32(1..3)));
    let scheduling = ["normal", "normal", "fifo", "mqsim-compat"][chance.usize(0..4)];
    let fast = chance.bool();
    let mut d = device(&[
        ("controller.scheduling", scheduling),
        ("geometry.channels", &channels),
        ("geometry.ways", &ways),
        ("geometry.dies", &dies),
        ("geometry.planes", &planes),
        ("nand.multi_plane", "false"),
        ("nand.t_suspend_program", "none"),
        ("nand.t_suspend_erase", "none"),
        ("reliability.t_read_retry", "13.7 us"),
    ]);
    d.bus.t_read_command = Ps(290_003);
    d.bus.t_program_command = Ps(361_007);
    d.bus.t_erase_command = Ps(220_013);
    d.bus.t_data_out_command = Ps(30_011);
    d.bus.bytes_per_s = 333_333_331;
    d.nand.t_read = if fast { vec![Ps(9_000_037), Ps(21_000_101)] } else { vec![Ps(50_000_021), Ps(75_000_043)] };
    d.nand.t_program = if fast { vec![Ps(61_000_147), Ps(90_000_049)] } else { vec![Ps(400_000_009), Ps(750_000_007)] };
    d.nand.t_erase = Ps(if fast { 310_000_019 } else { 3_800_000_021 });
    d.nand.t_ready = Ps(20_023);
    d
}

fn drawn_operations(d: &Description, chance: &mut Rng, crowded: bool) -> Vec<(u64, FlashOp)> {
    let g = d.geometry;
    let mut pages: BTreeMap<PageAddress, u16> = BTreeMap::new();
    let mut now = 0;
    let count = if crowded { 400 } else { chance.usize(1..140) };
    (0..count)
        .map(|n| {
            now += match chance.u32(0..8) {
                _ if crowded => chance.u64(0..2) * chance.u64(0..9_000_000),
                0..4 => 0,
                4..7 => chance.u64(1..40_000_000),
                _ => chance.u64(1..2_000_000_000),
            };
            let block = at(chance.u32(0..g.dies_total()), chance.u32(0..g.planes) as u16, chance.u32(0..3), 0);
            let cause = if chance.bool() { OpCause::Host } else { OpCause::ALL[chance.usize(1..4)] };
            let (op, place, bytes) = match chance.u32(0..20) {
                0..11 => (OpKind::Read, PageAddress { page: chance.u16(0..40), ..block }, chance.u32(1..17) * 512),
                11..18 => {
                    // Blocks that are only programmed: a caller does not read a page before its program has ended.
                    let block = PageAddress { block: block.block + 3, ..block };
                    let next = pages.entry(block).or_insert(0);
                    *next += 1;
                    (OpKind::Program, PageAddress { page: *next - 1, ..block }, 8_192)
                }
                _ => (OpKind::Erase, PageAddress { block: block.block + 2, ..block }, 0),
            };
            (now, FlashOp { op, cause, place, bytes, token: n as u64 })
        })
        .collect()
}

fn run_backend(d: &Description, asked: &[(u64, FlashOp)]) -> Vec<u64> {
    let verdict = Verdict { retries: WORN_RETRIES, lost: false };
    let mut rig = Rig::with_cells(d, Box::new(BitErrors::new(NandCells::new(d, 1), WORN, verdict)));
    let mut ends = vec![u64::MAX; asked.len()];
    let mut ended = Vec::new();
    for &(at, operation) in asked {
        while rig.events.next_at().is_some_and(|t| t.0 < at) {
            let (now, event) = rig.events.pop().unwrap();
            rig.flash.handle(now, event, &mut rig.events, &mut ended);
            ended.drain(..).for_each(|e| ends[e.token as usize] = now.0);
        }
        rig.flash.submit(Ps(at), operation, &mut rig.events);
    }
    while let Some((now, event)) = rig.events.pop() {
        rig.flash.handle(now, event, &mut rig.events, &mut ended);
        for e in ended.drain(..) {
            assert_eq!(e.outcome, OpOutcome::Done);
            ends[e.token as usize] = now.0;
        }
    }
    rig.flash.check(rig.events.now()).unwrap_or_else(|e| panic!("{e}"));
    ends
}

#[test]
fn every_operation_ends_when_a_naive_scheduler_says() {
    for seed in 0..400 {
        let mut chance = Rng::with_seed(seed);
        let crowded = seed % 8 == 7;
        let d = drawn_device(&mut chance, crowded);
        assert_eq!(rber(&d.reliability, 0.0, 0.0), 0.0, "only the worn block needs retries");
        let asked = drawn_operations(&d, &mut chance, crowded);
        let (got, want) = (run_backend(&d, &asked), Naive::new(&d, &asked).run());
        if let Some(n) = (0..asked.len()).find(|&n| got[n] != want[n]) {
            let (at, operation) = asked[n];
            panic!(
                "seed {seed}, {:?}, operation {n} of {}, submitted at {at} ps, ends at {} ps and not {}: \
                 {operation:?}",
                d.controller.scheduling,
                asked.len(),
                got[n],
                want[n]
            );
        }
    }
}
