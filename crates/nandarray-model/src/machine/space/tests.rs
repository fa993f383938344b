//! Random commands of a store on small devices: each is completed once, after the commands that it must follow, and the
//! flash does what the traces list, no more and no less.

use std::collections::BTreeMap;

use nandarray_sim::Ps;

use crate::describe::{self, Description};
use crate::flash::{OpCause, OpKind};
use crate::flash_trace::{BlockOps, ExtentOp, FlashTrace, StoreLayout};
use crate::machine::{Machine, Notification, PlatformPart, SpaceJobDone, SpaceJobId, SpaceJobKind};

/// The segments of a store: pages are programmed one after the other, and full segments may be freed.
struct Segments {
    layout: StoreLayout,
    open: u32,
    next: u32,
    full: Vec<u32>,
    free: Vec<u32>,
}

impl Segments {
    fn new(layout: StoreLayout, blocks: u32) -> Self {
        Self { layout, open: 0, next: 0, full: Vec::new(), free: (1..blocks).rev().collect() }
    }

    fn op(&self, op: OpKind, cause: OpCause, (segment, page): (u32, u32), pages: u32, last_bytes: u32) -> ExtentOp {
        ExtentOp { op, cause, first: self.layout.store().ppa(segment, page), pages, last_bytes }
    }

    /// Returns a program of up to `pages` pages behind those that were programmed before.
    fn program(&mut self, cause: OpCause, pages: u32) -> ExtentOp {
        let per = self.layout.store().pages_per_segment();
        if self.next == per {
            self.full.push(self.open);
            (self.open, self.next) = (self.free.pop().expect("segments are freed in time"), 0);
        }
        let pages = pages.min(per - self.next);
        let page_bytes = self.layout.store().page_bytes;
        let op = self.op(OpKind::Program, cause, (self.open, self.next), pages, page_bytes);
        self.next += pages;
        op
    }

    /// Returns a read of some pages of a segment that holds data.
    fn read(&self, cause: OpCause, chance: &mut fastrand::Rng) -> ExtentOp {
        let per = self.layout.store().pages_per_segment();
        let (segment, end) = match chance.choice(&self.full) {
            Some(&segment) if chance.bool() || self.next == 0 => (segment, per),
            _ => (self.open, self.next.max(1)),
        };
        let first = chance.u32(0..end);
        let pages = chance.u32(1..5).min(end - first);
        self.op(OpKind::Read, cause, (segment, first), pages, chance.u32(1..=self.layout.store().page_bytes))
    }
}

/// Operations that traces list: pages read, pages programmed, blocks erased.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Listed {
    reads: u64,
    programs: u64,
    erases: u64,
}

/// Makes the trace of a random command.
fn trace(kind: SpaceJobKind, segments: &mut Segments, chance: &mut fastrand::Rng) -> FlashTrace {
    let mut trace = FlashTrace::default();
    let (write, blocks) = (kind == SpaceJobKind::Write, if kind == SpaceJobKind::Other { 0 } else { chance.u32(1..5) });
    for _ in 0..blocks {
        for _ in 0..chance.u32(0..3) {
            trace.ops.push(segments.read(OpCause::Host, chance));
        }
        if write && chance.u8(0..8) > 0 {
            trace.ops.push(segments.program(OpCause::Host, 1 + chance.u32(0..6)));
        }
        trace.blocks.push(BlockOps { ops_end: trace.ops.len(), runs: chance.u64(0..9), bytes: chance.u64(0..40_000) });
    }
    if write && segments.free.len() < 8 {
        // Reclaim moves a few pages, and frees the oldest segment.
        let victim = segments.full.remove(0);
        for _ in 0..chance.u32(1..4) {
            let pages = chance.u32(1..4);
            trace.ops.push(segments.op(OpKind::Read, OpCause::Gc, (victim, chance.u32(0..100)), pages, 4096));
            trace.ops.push(segments.program(OpCause::Gc, pages));
        }
        trace.freed.push((trace.ops.len(), victim));
        segments.free.insert(0, victim);
    }
    if kind == SpaceJobKind::Other {
        for _ in 0..chance.u32(0..3) {
            trace.ops.push(segments.program(OpCause::Host, 1 + chance.u32(0..3)));
        }
        if chance.bool() {
            trace.ops.push(segments.op(OpKind::Read, OpCause::Map, (segments.open, 0), 1, 4096));
        }
        trace.ops.push(segments.program(OpCause::Map, 1 + chance.u32(0..2)));
        trace.barriers = 1;
    }
    trace
}

fn count(trace: &FlashTrace, planes: u32, listed: &mut Listed) {
    let pages = |op| trace.ops.iter().filter(|one| one.op == op).map(|one| u64::from(one.pages)).sum::<u64>();
    listed.reads += pages(OpKind::Read);
    listed.programs += pages(OpKind::Program);
    listed.erases += trace.freed.len() as u64 * u64::from(planes);
}

/// Makes a description of random settings that change the way of a command.
fn device(chance: &mut fastrand::Rng) -> Description {
    let of = |words: &[&'static str], chance: &mut fastrand::Rng| *chance.choice(words).unwrap();
    let settings = [
        ("controller.spaces_in_device", of(&["true", "false"], chance)),
        ("ftl.early_completion", of(&["true", "false"], chance)),
        ("ftl.write_cache", of(&["none", "64 KiB", "4 MiB"], chance)),
        ("controller.t_translate_block", of(&["0 ns", "1 us", "1 ms"], chance)),
        ("controller.t_allocate", of(&["0 ns", "200 ns", "300 us"], chance)),
        ("controller.t_assemble", of(&["0 ns", "10 us"], chance)),
        ("controller.t_command", of(&["0 ns", "1 us"], chance)),
        ("controller.t_complete", of(&["0 ns", "500 ns"], chance)),
        ("controller.command_slots", of(&["1", "2", "256", "4096"], chance)),
        ("controller.coordinates_size", of(&["0 B", "256 B"], chance)),
        ("host.composes", of(&["block", "command"], chance)),
        ("host.t_interrupt", of(&["none", "2 us"], chance)),
        ("host.queue_entries", of(&["2", "64"], chance)),
        ("dram.rate", of(&["ideal", "4 GB/s"], chance)),
        ("geometry.blocks", "24"),
    ];
    let settings: Vec<_> =
        settings.into_iter().filter(|(key, value)| !(*key == "ftl.early_completion" && *value == "true")).collect();
    let mut d = describe::preset_with("tiny", &settings).unwrap_or_else(|e| panic!("{e}"));
    d.ftl.early_completion = d.ftl.write_cache_bytes > 0 && chance.bool();
    // With little room in DRAM, a command's blocks go one after the other.
    d.dram.bytes = if chance.bool() { 64 << 10 } else { 16 << 20 };
    d
}

/// A run of random commands: kinds, completions by command, the hash of the events.
struct Run {
    given: Vec<(SpaceJobId, SpaceJobKind, Ps, u64)>,
    done: BTreeMap<SpaceJobId, SpaceJobDone>,
    hash: u64,
}

fn run(seed: u64) -> Run {
    let mut chance = fastrand::Rng::with_seed(seed);
    let d = device(&mut chance);
    let layout = StoreLayout::new(d.geometry).unwrap();
    let mut machine = Machine::new(&d, seed, None);
    machine.add([PlatformPart::Spaces(layout)]).unwrap();
    let mut segments = Segments::new(layout, d.geometry.blocks);
    let (mut given, mut done, mut listed) = (Vec::new(), BTreeMap::new(), Listed::default());
    let keep = |done: &mut BTreeMap<_, _>, one: SpaceJobDone| {
        assert!(done.insert(one.id, one).is_none(), "seed {seed}: {one:?} is completed twice");
    };
    for _ in 0..120 {
        let kind =
            [SpaceJobKind::Read, SpaceJobKind::Write, SpaceJobKind::Write, SpaceJobKind::Other][chance.usize(0..4)];
        let trace = trace(kind, &mut segments, &mut chance);
        count(&trace, layout.planes(), &mut listed);
        let bytes = trace.blocks.iter().map(|block| block.bytes).sum();
        // Barriers follow each other in the order of their times, as the clock submits them.
        let later = if kind == SpaceJobKind::Other { 0 } else { chance.u64(0..3) * chance.u64(0..400) };
        let at = machine.now() + Ps::from_us(later);
        let id = machine.submit_job(at, kind, chance.u32(..), trace);
        given.push((id, kind, at, bytes));
        match chance.u8(0..6) {
            0 => keep(&mut done, machine.run_job(id)),
            1 => std::iter::from_fn(|| machine.next_job_until(at)).for_each(|one| keep(&mut done, one)),
            2 => machine.next_job().into_iter().for_each(|one| keep(&mut done, one)),
            _ => {}
        }
    }
    std::iter::from_fn(|| machine.next_job()).for_each(|one| keep(&mut done, one));
    machine.settle();
    let counts = machine.flash().counts;
    let found = Listed {
        reads: counts.senses.iter().sum(),
        programs: counts.programs.iter().sum(),
        erases: counts.erases.iter().sum(),
    };
    assert_eq!(found, listed, "seed {seed}: what the flash did, and what traces list");
    Run { given, done, hash: machine.hash() }
}

#[test]
fn every_command_is_completed_once_and_the_flash_does_what_traces_list() {
    for seed in 0..150 {
        let Run { given, done, hash } = run(seed);
        assert_eq!(done.len(), given.len(), "seed {seed}");
        for (id, kind, at, bytes) in &given {
            let one = &done[id];
            assert_eq!((one.kind, one.submitted, one.bytes, one.failed), (*kind, *at, *bytes, false), "seed {seed}");
            assert!(one.done >= *at, "seed {seed}: {one:?}");
        }
        if seed % 10 == 0 {
            assert_eq!(run(seed).hash, hash, "seed {seed}: the same run again");
        }
    }
}

/// A barrier is over when all programs before it are: flushes end in order, and never before older writes whose pages
/// are in no write cache.
#[test]
fn flushes_end_in_order() {
    for seed in 200..260 {
        let Run { given, done, .. } = run(seed);
        let flushes: Vec<Ps> =
            given.iter().filter(|(_, kind, ..)| *kind == SpaceJobKind::Other).map(|(id, ..)| done[id].done).collect();
        assert!(flushes.len() > 5, "seed {seed}");
        // Completions of different queues may cross on the host's side; the order is that of the device.
        let late = Ps::from_us(60);
        assert!(flushes.windows(2).all(|two| two[1] + late >= two[0]), "seed {seed}: {flushes:?}");
    }
}

/// The device's only slot is given to the younger of two flushes, whose log waits for the older one's: it lets that in.
#[test]
fn a_flush_that_waits_for_an_older_one_holds_no_slot() {
    let d = describe::preset_with("tiny", &[("controller.command_slots", "1")]).unwrap();
    let layout = StoreLayout::new(d.geometry).unwrap();
    let mut machine = Machine::new(&d, 1, None);
    machine.add([PlatformPart::Spaces(layout)]).unwrap();
    let mut segments = Segments::new(layout, d.geometry.blocks);
    let read = FlashTrace {
        ops: vec![segments.op(OpKind::Read, OpCause::Host, (0, 0), 1, 4_096)],
        blocks: vec![BlockOps { ops_end: 1, runs: 1, bytes: 4_096 }],
        ..FlashTrace::default()
    };
    let mut flush =
        || FlashTrace { ops: vec![segments.program(OpCause::Map, 1)], barriers: 1, ..FlashTrace::default() };
    // The read holds the slot while both flushes arrive; then the queue behind its own is served.
    machine.submit_job(Ps::ZERO, SpaceJobKind::Read, 0, read);
    let older = machine.submit_job(Ps::ZERO, SpaceJobKind::Other, 0, flush());
    let younger = machine.submit_job(Ps::ZERO, SpaceJobKind::Other, 1, flush());
    let done: Vec<SpaceJobDone> = std::iter::from_fn(|| machine.next_job()).collect();
    let end = |id| done.iter().find(|one| one.id == id).unwrap().done;
    assert!(done.len() == 3 && end(older) < end(younger), "{done:?}");
    machine.settle();
}

/// A write whose extents lie in the write cache is over long before a slow translator has looked up their pages.
#[test]
fn a_slow_translator_may_outlast_the_command() {
    for t_translate in ["10 us", "1 ms"] {
        let d = describe::preset_with(
            "tiny",
            &[
                ("controller.spaces_in_device", "false"),
                ("ftl.write_cache", "4 MiB"),
                ("ftl.early_completion", "true"),
                ("controller.t_translate_block", t_translate),
            ],
        )
        .unwrap();
        let layout = StoreLayout::new(d.geometry).unwrap();
        let mut machine = Machine::new(&d, 1, None);
        machine.add([PlatformPart::Spaces(layout)]).unwrap();
        let mut segments = Segments::new(layout, d.geometry.blocks);
        for n in 0..6 {
            let ops = vec![segments.program(OpCause::Host, 4)];
            let blocks = vec![BlockOps { ops_end: 1, runs: 1, bytes: 16_384 }];
            let trace = FlashTrace { ops, blocks, ..FlashTrace::default() };
            let at = machine.now();
            let id = machine.submit_job(at, SpaceJobKind::Write, n, trace);
            let done = machine.run_job(id);
            assert!(done.done - at < Ps::from_us(60), "write {n}: {}", done.done - at);
        }
        machine.settle();
        assert_eq!(machine.flash().counts.programs.iter().sum::<u64>(), 24);
    }
}

/// Jobs of pages that need credits, from the flash, from DRAM and from the crossbar: as many pages arrive as were
/// credited, each once, and a job ends with its last page or, if it is given up, with the last page that was credited.
#[test]
fn pages_arrive_for_their_credits_and_no_others() {
    for seed in 0..120 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let d = describe::preset_with("tiny", &[("compute.crossbar_rate", "2 GB/s")]).unwrap();
        let cores = d.compute.as_ref().unwrap().cores;
        let layout = StoreLayout::new(d.geometry).unwrap();
        let mut machine = Machine::new(&d, seed, None);
        machine.add([PlatformPart::Spaces(layout), PlatformPart::Cores]).unwrap();
        let mut segments = Segments::new(layout, d.geometry.blocks);
        segments.next = 200;
        // For each job: its pages, those credited, those that arrived, whether it was given up or has ended.
        let mut jobs: BTreeMap<SpaceJobId, (u64, u64, Vec<bool>, bool, bool)> = BTreeMap::new();
        for step in 0..300 {
            let context = format!("seed {seed}, step {step}");
            if jobs.len() < 12 && chance.u8(0..4) == 0 {
                let (pages, core) = (chance.u64(1..20), chance.u32(0..cores));
                let kind = [SpaceJobKind::Stream { core }, SpaceJobKind::Feed { core }, SpaceJobKind::Pass { core }];
                let kind = kind[chance.usize(0..3)];
                let mut trace = FlashTrace::default();
                for _ in 0..pages {
                    if matches!(kind, SpaceJobKind::Stream { .. }) {
                        let page = (0, chance.u32(0..200));
                        trace.ops.push(segments.op(OpKind::Read, OpCause::Host, page, 1, 4096));
                    }
                    trace.blocks.push(BlockOps { ops_end: trace.ops.len(), runs: 0, bytes: 4096 });
                }
                let id = machine.submit_job(machine.now(), kind, 0, trace);
                jobs.insert(id, (pages, 0, vec![false; pages as usize], false, false));
            }
            // A job whose pages all have credits may have ended.
            let waits = |job: &(u64, u64, Vec<bool>, bool, bool)| !job.3 && job.1 < job.0;
            let open: Vec<SpaceJobId> = jobs.iter().filter(|(_, job)| waits(job)).map(|(id, _)| *id).collect();
            if let Some(&id) = chance.choice(&open) {
                let job = jobs.get_mut(&id).unwrap();
                if chance.u8(0..12) == 0 {
                    machine.give_up(id);
                    job.3 = true;
                } else {
                    let more = chance.u64(0..4);
                    let at = machine.now() + Ps::from_us(chance.u64(0..2) * chance.u64(0..40));
                    machine.credit(at, id, more);
                    job.1 += more;
                }
            }
            for _ in 0..chance.u32(0..4) {
                match machine.next_notification_until(machine.now() + Ps::from_us(30)) {
                    Some(Notification::Arrived(id, page)) => {
                        let (pages, credited, there, _, ended) = jobs.get_mut(&id).unwrap();
                        assert!(!*ended && !std::mem::replace(&mut there[page], true), "{context}: page {page}");
                        let arrived = there.iter().filter(|&&there| there).count() as u64;
                        assert!(arrived <= (*credited).min(*pages), "{context}: {arrived} of {credited} credits");
                    }
                    Some(Notification::Done(done)) => {
                        let (_, _, there, given_up, ended) = jobs.get_mut(&done.id).unwrap();
                        assert!(!std::mem::replace(ended, true), "{context}: {done:?}");
                        assert!(*given_up || there.iter().all(|&there| there), "{context}: {done:?} of {there:?}");
                    }
                    Some(Notification::CoreFree(core)) => panic!("{context}: core {core} did not work"),
                    None => break,
                }
            }
        }
        jobs.iter().filter(|(_, job)| !job.3 && !job.4).for_each(|(id, _)| machine.give_up(*id));
        while machine.next_notification().is_some() {}
        machine.settle();
    }
}
