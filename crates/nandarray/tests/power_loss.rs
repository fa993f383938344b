//! Promise: the power may fail, or the process be killed, at any moment. The store opens again and holds what it held
//! after one of the commands since the last flush, each command whole or absent, in order.
//!
//! A workload runs on [`FaultMedia`], whose head describes the fault model, until the n-th write of the medium fails,
//! for every n (short workloads) or a seeded sample of them (long ones). The bytes that survive are opened, checked,
//! compared with the states that the model went through, written to, and opened once more. The power also fails while
//! the store recovers. A killed process ([`FaultMedia::after_kill`]) loses less: everything up to the last command that
//! left nothing in the write buffer survives.
//!
//! Not here: damage that no loss of power makes (damage.rs), and real processes and disks (tests/python/test_kill.py).

mod common;

use std::sync::Arc;

use common::disk::Disk;
use common::*;
use fastrand::Rng;
use nandarray::file_format::Layout;
use nandarray::policy::GcPolicy;
use nandarray::{Device, Error, FaultMedia, Finding, Geometry, Media, Mode, Options, Result, command};

/// A list of commands, and the properties of the store on which they run.
#[derive(Clone, Debug)]
struct Workload {
    geometry: Geometry,
    capacity_segments: Option<u32>,
    placement: &'static str,
    victim: &'static str,
    write_buffer_bytes: usize,
    steps: Steps,
}

#[derive(Clone, Debug)]
enum Steps {
    Given(Vec<Op>),
    Drawn(Vec<u64>, Taste),
}

impl Workload {
    fn tiny(steps: Steps) -> Self {
        let geometry = Geometry::TINY;
        Self {
            geometry,
            capacity_segments: None,
            placement: "nds",
            victim: "greedy",
            write_buffer_bytes: 64 << 20,
            steps,
        }
    }

    fn options(&self, entropy: u64) -> Options {
        Options {
            capacity_bytes: self.capacity_segments.map(|n| self.geometry.medium_bytes(n.into())),
            placement: Some(self.placement.to_owned()),
            victim: Some(self.victim.to_owned()),
            write_buffer_bytes: self.write_buffer_bytes,
            ..options(self.geometry, entropy)
        }
    }

    fn len(&self) -> usize {
        match &self.steps {
            Steps::Given(ops) => ops.len(),
            Steps::Drawn(numbers, _) => numbers.len(),
        }
    }

    fn step(&self, i: usize, model: &Model) -> Op {
        match &self.steps {
            Steps::Given(ops) => ops[i].clone(),
            Steps::Drawn(numbers, taste) => draw(numbers[i], model, taste),
        }
    }
}

/// Record of a run: the states between commands, and the oldest state to which a crash may lead.
#[derive(Debug, Default)]
struct Trace {
    made: bool,
    ops: Vec<Op>,
    /// States of the model after no command, after one command, and so on; the last may be of a command that did not
    /// return.
    states: Vec<Model>,
    /// Index of the oldest state that a loss of power may leave.
    flushed: usize,
    /// Index of the oldest state that a kill may leave.
    committed: usize,
}

/// Runs the workload until it is done or the power fails. All random choices are the same on every run.
fn run(workload: &Workload, media: &Arc<FaultMedia>) -> Trace {
    let mut trace = Trace { states: vec![Model::new()], ..Trace::default() };
    let failed = |e: Error, trace: &Trace| assert!(media.crashed(), "{e}; after {:#?} of {workload:?}", trace.ops);
    let reopen = |mode, entropy| open(media.clone(), mode, &workload.options(entropy));
    let mut device = match reopen(Mode::Append, 0) {
        Ok(device) => device,
        Err(e) => {
            failed(e, &trace);
            return trace;
        }
    };
    trace.made = true;
    for i in 0..workload.len() {
        let mut model = trace.states.last().expect("never empty").clone();
        let op = workload.step(i, &model);
        trace.ops.push(op.clone());
        op.tell(&mut model);
        let done = match op {
            Op::Reopen => device.close().and_then(|()| {
                drop(std::mem::replace(&mut device, reopen(Mode::ReadWrite, i as u64 + 1)?));
                Ok(())
            }),
            _ => op.run(&device),
        };
        match done {
            // Done in memory; what is left to do on the medium is left to commands that will not come.
            Ok(()) if media.crashed() => {
                trace.states.push(model);
                return trace;
            }
            Ok(()) => trace.states.push(model),
            Err(e) if is_full(&e) && !media.crashed() => {
                // It changed nothing, which the final comparison finds out; its flush, if it was one, promised nothing.
                trace.states.push(trace.states[trace.states.len() - 1].clone());
                continue;
            }
            Err(e) => {
                failed(e, &trace);
                trace.states.push(model);
                return trace;
            }
        }
        if op.flushes() {
            trace.flushed = trace.states.len() - 1;
        }
        if device.buffered_bytes() == 0 {
            trace.committed = trace.states.len() - 1;
        }
    }
    trace
}

/// Opens the bytes that survived a crash, panics unless the store is in a state from `floor` on, and continues to use
/// it; then does the same with another loss of power during recovery.
fn judge(workload: &Workload, trace: &Trace, bytes: Vec<u8>, floor: usize, salt: u64, context: &dyn Fn() -> String) {
    let media = Arc::new(FaultMedia::with_bytes(bytes.clone()));
    let device = match open(media.clone(), Mode::ReadWrite, &workload.options(1000 + salt)) {
        Ok(device) => device,
        Err(Error::NotAStore { .. } | Error::Corrupt(_)) if !trace.made => return,
        Err(e) => panic!("the store does not open: {e}; {}", context()),
    };
    let state = assert_is_one_of(&device, &trace.states, floor, context);
    assert_sound(&device, context);
    let recovery_writes = media.writes();
    go_on(workload, device, &media, &trace.states[state], salt, context);
    // The power fails again while the store recovers.
    let mut rng = Rng::with_seed(salt);
    if recovery_writes > 0 {
        let n = rng.u64(1..=recovery_writes);
        let context = || format!("then the power failed at write {n} of the recovery; {}", context());
        let media = Arc::new(FaultMedia::with_bytes(bytes));
        media.crash_at_write(n);
        let _ = open(media.clone(), Mode::ReadWrite, &workload.options(1000 + salt));
        assert!(media.crashed());
        let again = Arc::new(FaultMedia::with_bytes(media.after_crash(salt)));
        let device = open(again.clone(), Mode::ReadWrite, &workload.options(2000 + salt))
            .unwrap_or_else(|e| panic!("the store does not open: {e}; {}", context()));
        let state = assert_is_one_of(&device, &trace.states, floor, &context);
        assert_sound(&device, &context);
        go_on(workload, device, &again, &trace.states[state], salt, &context);
    }
}

fn assert_is_one_of(device: &Device, states: &[Model], floor: usize, context: &dyn Fn() -> String) -> usize {
    let found = read_all(device).unwrap_or_else(|e| panic!("reading failed: {e}; {}", context()));
    let state = (floor..states.len()).rev().find(|&i| states[i] == found);
    state.unwrap_or_else(|| {
        if let Some(older) = states.iter().position(|s| *s == found) {
            panic!("the store is in state {older}, before state {floor} of the last flush; {}", context());
        }
        let all: Vec<_> = (floor..states.len()).map(|i| (i, difference(&found, &states[i]))).collect();
        panic!("the store is in none of the states since the last flush: {all:#?}; {}", context())
    })
}

/// Runs a few commands on a recovered store, closes and opens it again; panics unless its content is right.
fn go_on(
    workload: &Workload,
    device: Device,
    media: &Arc<FaultMedia>,
    state: &Model,
    salt: u64,
    context: &dyn Fn() -> String,
) {
    let mut model = state.clone();
    let mut rng = Rng::with_seed(salt);
    let mut done = Vec::new();
    for _ in 0..3 {
        let op = draw(rng.u64(..), &model, &Taste { reopen: false, ..taste(workload.geometry) });
        let result = op.run(&device);
        match &result {
            Ok(()) => op.tell(&mut model),
            Err(e) => assert!(is_full(e), "{op:?}: {e}; {}", context()),
        }
        done.push((op, result));
    }
    let context = || format!("going on with {done:?}; {}", context());
    match device.close() {
        Ok(()) => {}
        Err(e) if is_full(&e) => return,
        Err(e) => panic!("closing failed: {e}; {}", context()),
    }
    drop(device);
    let device = open(media.clone(), Mode::Read, &workload.options(3000 + salt))
        .unwrap_or_else(|e| panic!("the store does not open again: {e}; {}", context()));
    assert_holds(&device, &model, &context);
    assert_sound(&device, &context);
}

/// Runs the workload with a crash at write number `n`, and judges the results; returns `false` if the workload has
/// fewer writes.
fn crash_at(workload: &Workload, n: u64, seeds: std::ops::Range<u64>) -> bool {
    let media = Arc::new(FaultMedia::default());
    media.crash_at_write(n);
    let trace = run(workload, &media);
    if !media.crashed() {
        return false;
    }
    for seed in seeds {
        let context = || {
            format!(
                "power failed at write {n}, seed {seed}, floor {}, in {:#?} of {workload:?}",
                trace.flushed, trace.ops
            )
        };
        judge(workload, &trace, media.after_crash(seed), trace.flushed, seed ^ n << 8, &context);
    }
    let context = || format!("killed at write {n}, floor {}, in {:#?} of {workload:?}", trace.committed, trace.ops);
    let floor = trace.committed.max(trace.flushed);
    judge(workload, &trace, media.after_kill(), floor, n, &context);
    true
}

/// Runs the workload with a crash at each of its writes in turn.
fn crash_everywhere(workload: &Workload, seeds: u64) {
    let mut n = 1;
    while crash_at(workload, n, n * seeds..(n + 1) * seeds) {
        n += 1;
    }
    assert!(n > 30, "the workload writes");
}

fn array(name: &str, shape: &[u64], item: usize) -> Op {
    let (block, compression, key, fill) = (None, None, false, 0);
    Op::Create { name: name.to_owned(), shape: shape.to_vec(), item, block, compression, key, fill }
}

fn put_box(name: &str, start: &[u64], count: &[u64], salt: u64) -> Op {
    Op::Write { name: name.to_owned(), part: Part::boxed(start, count), salt }
}

/// Returns a short workload that has commands of every kind.
fn everything() -> Vec<Op> {
    let view = Part::Box { start: vec![3, 1], step: vec![2, 1], count: vec![9, 30], view: Some(vec![25, 64]) };
    let coded = |name: &str, compression, key| match array(name, &[40, 33], 2) {
        Op::Create { name, shape, item, block, fill, .. } => {
            Op::Create { name, shape, item, block, fill, compression, key }
        }
        _ => unreachable!("an array is made"),
    };
    vec![
        array("a", &[40, 40], 4),
        put_box("a", &[0, 0], &[40, 40], 10),
        Op::Flush,
        put_box("a", &[3, 5], &[20, 30], 11),
        put_box("a", &[7, 7], &[1, 1], 12),
        Op::Write { name: "a".to_owned(), part: view, salt: 13 },
        coded("c", Some("lz4"), false),
        put_box("c", &[0, 0], &[40, 33], 17),
        Op::Flush,
        put_box("c", &[1, 1], &[3, 3], 18),
        coded("e", Some("zstd:1+shuffle"), true),
        put_box("e", &[2, 2], &[30, 30], 21),
        Op::Resize { name: "a".to_owned(), shape: vec![33, 50] },
        put_box("a", &[30, 30], &[3, 20], 22),
        Op::Attrs { name: "a".to_owned(), attrs: "{\"x\":1}".to_owned() },
        Op::Reopen,
        put_box("a", &[0, 0], &[33, 50], 23),
        Op::Rename { from: "c".to_owned(), to: "d".to_owned() },
        Op::Clear { name: "a".to_owned(), start: vec![0, 0], count: vec![20, 50] },
        Op::Delete { name: "e".to_owned() },
        Op::Flush,
        put_box("d", &[5, 5], &[10, 10], 26),
        Op::Compact,
        Op::Resize { name: "d".to_owned(), shape: vec![10, 10] },
        array("e", &[], 17),
        put_box("e", &[], &[], 27),
        Op::Reopen,
        put_box("a", &[25, 0], &[5, 50], 30),
        // Appends into blocks that are partly there, large and small ones, that grow or are coded.
        Op::Append { name: "a".to_owned(), axis: 0, more: 3, salt: 31 },
        coded("f", Some("lz4"), true),
        Op::Append { name: "f".to_owned(), axis: 1, more: 30, salt: 33 },
        Op::Append { name: "f".to_owned(), axis: 0, more: 1, salt: 34 },
        Op::Flush,
        Op::Append { name: "a".to_owned(), axis: 1, more: 40, salt: 35 },
        Op::Append { name: "d".to_owned(), axis: 0, more: 17, salt: 37 },
        Op::Batch(vec![
            Step::Rename("f".to_owned(), "moved/f".to_owned()),
            Step::Rename("a".to_owned(), "moved/a".to_owned()),
            Step::Attrs("moved/a".to_owned(), "{\"y\":2}".to_owned()),
            Step::Delete("d".to_owned()),
        ]),
        Op::Append { name: "moved/a".to_owned(), axis: 0, more: 2, salt: 39 },
        // Snapshots that share pages with each other and with arrays that change, move and go.
        Op::Snapshot("one".to_owned()),
        put_box("moved/a", &[3, 3], &[20, 30], 42),
        Op::Snapshot("two".to_owned()),
        Op::Delete { name: "moved/f".to_owned() },
        Op::Compact,
        put_box("moved/a", &[10, 0], &[9, 50], 43),
        Op::Reopen,
        Op::DeleteSnapshot("one".to_owned()),
        Op::Clear { name: "moved/a".to_owned(), start: vec![0, 0], count: vec![20, 50] },
        Op::DeleteSnapshot("two".to_owned()),
        Op::Flush,
    ]
}

#[test]
fn one_of_everything_survives_a_crash_at_every_write() {
    crash_everywhere(&Workload::tiny(Steps::Given(everything())), rounds(2, 40));
}

#[test]
fn a_full_and_collected_store_survives_a_crash_at_every_write() {
    // Three arrays over a capacity that hardly holds them: nearly every write makes room first.
    let mut ops = vec![array("a", &[4096], 1), array("b", &[70, 60], 1)];
    for i in 0..24 {
        ops.push(put_box("a", &[i % 3 * 1000], &[1500], 10 + i));
        ops.push(put_box("b", &[i, 0], &[30, 60], 40 + i));
        if i % 5 == 4 {
            ops.push(Op::Flush);
        }
    }
    let workload = Workload { capacity_segments: Some(16), placement: "log", ..Workload::tiny(Steps::Given(ops)) };
    crash_everywhere(&workload, rounds(1, 20));
}

/// A disk of limited size whose power can fail. After a crash a discarded range is either all zeroes or unchanged.
#[derive(Debug, Default)]
struct TightMedia {
    room: Disk,
    power: FaultMedia,
}

impl Media for TightMedia {
    fn len(&self) -> u64 {
        self.power.len()
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.power.set_len(bytes)?;
        self.room.set_len(bytes)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.power.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.room.write_at(offset, bytes)?;
        self.power.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        self.power.sync()
    }

    fn slice(&self, _offset: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn discard(&self, offset: u64, len: u64) {
        self.room.discard(offset, len);
        let end = (offset + len).min(self.power.len());
        let _ = self.power.write_at(offset, &vec![0; (end - offset) as usize]);
    }

    fn allocate(&self, offset: u64, len: u64) -> bool {
        self.room.allocate(offset, len)
    }
}

/// Fills a disk, deletes an array, then writes and compacts; the power fails at write number `n` after the deletion.
/// Returns `false` if there are fewer writes.
fn crash_on_a_full_disk(n: u64, seeds: u64) -> bool {
    const BYTES: u64 = 4 * (16 << 10);
    let media = Arc::new(TightMedia::default());
    let options = options(Geometry::TINY, 3);
    let device = open(media.clone(), Mode::Append, &options).unwrap();
    let mut states = vec![Model::new()];
    let mut now = Model::new();
    let mut step = |op: Op, states: &mut Vec<Model>| {
        op.tell(&mut now);
        states.push(now.clone());
        op.run(&device)
    };
    for name in ["a", "b", "c"] {
        step(array(name, &[BYTES], 1), &mut states).unwrap();
    }
    // Both arrays are written alternately, so that each segment is half dead when `b` is deleted.
    for at in (0..BYTES).step_by(1024) {
        for name in ["a", "b"] {
            step(put_box(name, &[at], &[1024], at), &mut states).unwrap();
        }
    }
    device.execute(command::Flush).unwrap();
    media.room.limit(Some(media.room.used()));
    let refused = Op::Write { name: "c".to_owned(), part: Part::all(&[BYTES]), salt: 1 }.run(&device);
    assert!(is_full(&refused.unwrap_err()));
    step(Op::Delete { name: "b".to_owned() }, &mut states).unwrap();
    device.execute(command::Flush).unwrap();
    let mut floor = states.len() - 1;
    media.power.crash_at_write(n);
    let mut rest = || -> Result<()> {
        step(put_box("c", &[0], &[BYTES / 2], 2), &mut states)?;
        device.execute(command::Flush)?;
        floor = states.len() - 1;
        step(put_box("a", &[1024], &[BYTES / 4], 3), &mut states)?;
        device.execute(command::Compact)?;
        device.execute(command::Flush)?;
        floor = states.len() - 1;
        Ok(())
    };
    let done = rest();
    assert!(done.is_ok() || media.power.crashed(), "{done:?}; write {n}");
    for seed in n * seeds..(n + 1) * seeds {
        let context = || format!("power lost at write {n} on a full disk, seed {seed}");
        let bytes = media.power.after_crash(seed);
        let survivor = Arc::new(FaultMedia::with_bytes(bytes));
        let device = open(survivor, Mode::ReadWrite, &options).unwrap_or_else(|e| panic!("{e}; {}", context()));
        assert_is_one_of(&device, &states, floor, &context);
        assert_sound(&device, &context);
    }
    media.power.crashed()
}

#[test]
fn a_full_disk_whose_dead_pages_give_room_survives_a_crash_at_every_write() {
    let writes = (1..).take_while(|&n| crash_on_a_full_disk(n, rounds(1, 8))).count();
    assert!(writes > 50, "{writes}");
}

#[test]
fn slabs_and_bringing_them_together_survive_a_crash_at_every_write() {
    let mut ops = vec![array("a", &[12, 30, 24], 4), array("b", &[12, 24], 4)];
    for i in 0..6 {
        ops.push(put_box("a", &[0, 5 * i, 0], &[12, 5, 24], 10 + i));
        ops.push(put_box("b", &[2 * i, 0], &[2, 24], 20 + i));
        if i % 2 == 1 {
            ops.push(Op::Flush);
        }
    }
    ops.extend([Op::Compact, put_box("a", &[3, 0, 3], &[5, 30, 7], 30), Op::Flush, Op::Compact]);
    crash_everywhere(&Workload::tiny(Steps::Given(ops)), rounds(1, 20));
}

fn drawn(seed: u64) -> Workload {
    let mut rng = Rng::with_seed(seed);
    let geometry = [
        Geometry::TINY,
        Geometry { page_bytes: 512, channels: 2, banks: 1, pages_per_block: 8, layout: Layout::NEWEST },
        Geometry { page_bytes: 1024, channels: 3, banks: 2, pages_per_block: 3, layout: Layout::NEWEST },
        Geometry { page_bytes: 512, channels: 8, banks: 1, pages_per_block: 1, layout: Layout::NEWEST },
    ][rng.usize(..4)];
    let geometry = Geometry { layout: [Layout::Grouped, Layout::Interleaved][rng.usize(..2)], ..geometry };
    let numbers = (0..rng.usize(5..60)).map(|_| rng.u64(..)).collect();
    let array_bytes = rng.usize(100..9_000);
    let segments = 6 + (4 * array_bytes as u64 * 3).div_ceil(geometry.segment_data_bytes()) as u32 + rng.u32(10..24);
    Workload {
        geometry,
        capacity_segments: rng.bool().then_some(segments),
        placement: ["nds", "log"][rng.usize(..2)],
        victim: GcPolicy::NAMES[rng.usize(..GcPolicy::NAMES.len())],
        write_buffer_bytes: [0, 2000, 64 << 20][rng.usize(..3)],
        steps: Steps::Drawn(numbers, Taste { array_bytes, ..taste(geometry) }),
    }
}

/// Stores of earlier formats have no snapshots.
fn taste(geometry: Geometry) -> Taste {
    if geometry.layout == Layout::NEWEST { Taste::SNAPSHOTS } else { Taste::SMALL }
}

/// Runs the workload without a fault, to show that the workload itself is right; returns the number of its writes.
fn run_whole(workload: &Workload) -> Result<u64> {
    let media = Arc::new(FaultMedia::default());
    let trace = run(workload, &media);
    let context = || format!("without any fault, {:#?} of {workload:?}", trace.ops);
    judge(workload, &trace, media.after_kill(), trace.committed.max(trace.flushed), 1, &context);
    Ok(media.writes())
}

#[test]
fn random_workloads_survive_crashes_anywhere() {
    for seed in 0..rounds(60, 5000) {
        let seed = seed + rounds(0, 1_000_000);
        let workload = drawn(seed);
        eprintln!("workload {seed}");
        let writes = run_whole(&workload).unwrap();
        let mut rng = Rng::with_seed(seed);
        for _ in 0..rounds(6, 30) {
            let n = rng.u64(1..=writes);
            let power = rng.u64(..1 << 40);
            crash_at(&workload, n, power..power + 2);
        }
    }
}

/// Opens a store again and again and crashes before it is closed: changes that one opening dropped must not come back
/// in a later one.
#[test]
fn many_lives_end_in_crashes() {
    for seed in 0..rounds(40, 3000) {
        eprintln!("store {seed}");
        let mut rng = Rng::with_seed(seed);
        let workload = Workload { capacity_segments: rng.bool().then_some(40), ..Workload::tiny(Steps::Given(vec![])) };
        let mut bytes = Vec::new();
        let mut model = Model::new();
        let mut story = Vec::new();
        for life in 0..rng.u64(2..7) {
            let media = Arc::new(FaultMedia::with_bytes(bytes));
            let mut states = vec![model.clone()];
            let (mut flushed, mut made) = (0, life > 0);
            // Often so early that little but the first pages and records of this life is written.
            media.crash_at_write(if rng.bool() { rng.u64(1..12) } else { rng.u64(1..200) });
            let mut live = |story: &mut Vec<Op>| -> Result<()> {
                let device = open(media.clone(), Mode::Append, &workload.options(seed ^ life << 32))?;
                made = true;
                loop {
                    let mut next = states[states.len() - 1].clone();
                    let op = draw(rng.u64(..), &next, &Taste { reopen: false, array_bytes: 3000, ..Taste::SNAPSHOTS });
                    op.tell(&mut next);
                    story.push(op.clone());
                    match op.run(&device) {
                        Ok(()) => states.push(next),
                        Err(e) if is_full(&e) && !media.crashed() => continue,
                        Err(e) => {
                            states.push(next);
                            return Err(e);
                        }
                    }
                    if op.flushes() {
                        flushed = states.len() - 1;
                    }
                }
            };
            let e = live(&mut story).unwrap_err();
            assert!(media.crashed(), "{e}; {story:#?}");
            let power = rng.u64(..);
            bytes = media.after_crash(power);
            let context = || format!("store {seed}, life {life}, power {power}: {story:#?}");
            let read = open(Arc::new(FaultMedia::with_bytes(bytes.clone())), Mode::Read, &workload.options(0));
            let device = match read {
                Ok(device) => device,
                Err(Error::NotAStore { .. } | Error::Corrupt(_)) if !made => break,
                Err(e) => panic!("the store does not open: {e}; {}", context()),
            };
            model = states.swap_remove(assert_is_one_of(&device, &states, flushed, &context));
            // A torn superblock stays until the next write; nothing else may be wrong.
            let findings = check(&device, false).unwrap().findings;
            let torn = |f: &Finding| f.array.is_none() && f.message.contains("superblock");
            assert!(findings.iter().all(torn), "{findings:?}; {}", context());
            if rng.u8(..3) == 0 {
                // Between two crashes a proper close.
                let media = Arc::new(FaultMedia::with_bytes(bytes));
                let device = open(media.clone(), Mode::ReadWrite, &workload.options(seed ^ life)).unwrap();
                assert_holds(&device, &model, &context);
                device.close().unwrap();
                bytes = media.after_kill();
            }
        }
    }
}

#[test]
fn reading_writes_nothing() {
    let media = Arc::new(FaultMedia::default());
    let workload = Workload::tiny(Steps::Given(everything()));
    let trace = run(&workload, &media);
    let bytes = media.after_kill();
    let media = Arc::new(FaultMedia::with_bytes(bytes.clone()));
    let device = open(media.clone(), Mode::Read, &workload.options(7)).unwrap();
    assert_is_one_of(&device, &trace.states, trace.committed, &String::new);
    assert_sound(&device, &String::new);
    device.close().unwrap();
    assert!(media.writes() == 0 && media.after_kill() == bytes && !media.is_empty());
}
