//! Promise: a server posts one completion for each entry, in order, with the entry's identifier, the right status and
//! the phase of its lap; it moves the bytes that the entries say, and no other byte of the region changes.
//!
//! The client here is a file: entries and doorbells are written to the region by their offsets in the reference, at the
//! steps that a seed draws, and the whole region is compared with a model of it. Hostile entries are among them. Not
//! here: threads, sleep and clients of the library (`served.rs`).

#[path = "rings/controller.rs"]
mod controller;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use nandarray::{Device, Mode, NewSpace, Options, Source, Target, command};
use nandarray_queues::{QueueClient, QueueServer, RegionGeometry, ServeOptions, region_path};

const FIRST_NSID: u32 = 0x8000_0000;
const DEPTH: u32 = 8;
const DATA_BYTES: u64 = 32 << 10;
const QUEUES: u32 = 3;
const BROKEN: u32 = 0x7c4;

/// Statuses by their numbers in the NVMe base specification, with the bit that forbids to repeat a command.
const SUCCESS: u16 = 0;
const INVALID_OPCODE: u16 = 0x4001;
const INVALID_FIELD: u16 = 0x4002;
const INVALID_NAMESPACE: u16 = 0x400b;
const WRITE_PROTECTED: u16 = 0x4020;
const LBA_OUT_OF_RANGE: u16 = 0x4080;

/// The served arrays, in the order of their names: shape and element size.
const ARRAYS: [(&str, &[u64], u32); 5] = [
    ("cube", &[6, 8, 64], 8),
    ("line", &[5000], 8),
    ("odd", &[333], 12),
    ("rows", &[40, 256], 4),
    ("wide", &[11], 1024),
];

/// The parts of the region, from its header.
struct Wire {
    file: File,
    queues: u64,
    stride: u64,
    data: u64,
    bytes: u64,
}

impl Wire {
    fn new(name: &str) -> Self {
        let file = File::options().read(true).write(true).open(region_path(name)).unwrap();
        let long = |at: u64| {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, at).unwrap();
            u64::from_le_bytes(word)
        };
        let (queues, stride, data, bytes) = (long(48), long(56), long(64), long(16));
        Self { file, queues, stride, data, bytes }
    }

    fn word(&self, at: u64) -> u32 {
        let mut word = [0; 4];
        self.file.read_exact_at(&mut word, at).unwrap();
        u32::from_le_bytes(word)
    }

    fn set(&self, at: u64, word: u32) {
        self.file.write_all_at(&word.to_le_bytes(), at).unwrap();
    }

    fn queue(&self, queue: u32) -> u64 {
        self.queues + u64::from(queue) * self.stride
    }

    fn all(&self) -> Vec<u8> {
        let mut all = vec![0; self.bytes as usize];
        self.file.read_exact_at(&mut all, 0).unwrap();
        all
    }
}

/// A command as a client means it.
#[derive(Clone, Copy, Debug)]
struct Meant {
    opcode: u8,
    flags: u8,
    cid: u16,
    nsid: u32,
    data: u64,
    slba: u64,
    nlb: u64,
    fua: bool,
}

impl Meant {
    fn entry(&self) -> [u8; 64] {
        let mut entry = [0; 64];
        (entry[0], entry[1]) = (self.opcode, self.flags);
        entry[2..4].copy_from_slice(&self.cid.to_le_bytes());
        entry[4..8].copy_from_slice(&self.nsid.to_le_bytes());
        entry[24..32].copy_from_slice(&self.data.to_le_bytes());
        entry[40..48].copy_from_slice(&self.slba.to_le_bytes());
        let cdw12 = (self.nlb as u32 - 1) | u32::from(self.fua) << 30;
        entry[48..52].copy_from_slice(&cdw12.to_le_bytes());
        entry
    }
}

/// The model: the arrays' bytes, the region's bytes from the data areas on, and the counts of each pair.
struct Model {
    arrays: Vec<Vec<u8>>,
    data: Vec<u8>,
    data_at: u64,
    writable: bool,
}

impl Model {
    /// Returns the faults of a command, of which one is its status; none if it succeeds.
    fn faults(&self, meant: &Meant) -> Vec<u16> {
        let mut faults = Vec::new();
        if meant.flags != 0 {
            faults.push(INVALID_FIELD);
        }
        if meant.opcode == 0 {
            return faults;
        }
        let Some(array) = meant.nsid.checked_sub(FIRST_NSID).and_then(|i| self.arrays.get(i as usize)) else {
            faults.push(INVALID_NAMESPACE);
            return faults;
        };
        if meant.opcode > 2 {
            faults.push(INVALID_OPCODE);
            return faults;
        }
        let (end, bytes) = (self.data_at + self.data.len() as u64, meant.nlb * 512);
        if meant.data < self.data_at || meant.data.checked_add(bytes).is_none_or(|e| e > end) {
            faults.push(INVALID_FIELD);
        }
        if meant.slba.checked_add(meant.nlb).is_none_or(|e| e > (array.len() as u64).div_ceil(512)) {
            faults.push(LBA_OUT_OF_RANGE);
        }
        let item = ARRAYS[(meant.nsid - FIRST_NSID) as usize].2;
        let whole = 512 % item == 0 || item.is_multiple_of(512);
        // Blocks that cut elements cannot be written: neither is a part of an element of more than a block.
        let cuts = u128::from(meant.slba) * 512 % u128::from(item) != 0 || bytes % u64::from(item) != 0;
        if meant.opcode == 1 && !(self.writable && whole) {
            faults.push(WRITE_PROTECTED);
        } else if meant.opcode == 1 && item > 512 && cuts {
            faults.push(INVALID_FIELD);
        }
        faults
    }

    /// Executes a command that has no fault.
    fn execute(&mut self, meant: &Meant) {
        if meant.opcode == 0 {
            return;
        }
        let array = &mut self.arrays[(meant.nsid - FIRST_NSID) as usize];
        let (from, bytes) = ((meant.slba * 512) as usize, (meant.nlb * 512) as usize);
        let at = (meant.data - self.data_at) as usize;
        let there = bytes.min(array.len() - from);
        if meant.opcode == 1 {
            array[from..from + there].copy_from_slice(&self.data[at..at + there]);
        } else {
            self.data[at..at + there].copy_from_slice(&array[from..from + there]);
            self.data[at + there..at + bytes].fill(0);
        }
    }
}

/// One queue pair as its client counts it.
#[derive(Debug, Default)]
struct Pair {
    claim: u32,
    submitted: u32,
    consumed: u32,
    waiting: Vec<Meant>,
}

fn store(dir: &tempfile::TempDir) -> (Arc<Device>, Vec<Vec<u8>>) {
    let device = Device::open_file(&dir.path().join("a.nand"), Mode::Append, &Options::default()).unwrap();
    let mut chance = fastrand::Rng::with_seed(1);
    let fill = |(name, shape, item): (&str, &[u64], u32)| {
        let dtype = format!("|V{item}");
        let new = NewSpace {
            name,
            shape,
            item_bytes: item,
            dtype: &dtype,
            block: None,
            compression: None,
            key: None,
            fill: None,
            attrs: "{}",
        };
        let space = device.execute(command::Create(new)).unwrap().id;
        let mut bytes = vec![0; (shape.iter().product::<u64>() * u64::from(item)) as usize];
        chance.fill(&mut bytes);
        let (start, step) = (vec![0; shape.len()], vec![1; shape.len()]);
        let strides: Vec<isize> =
            (0..shape.len()).map(|d| (shape[d + 1..].iter().product::<u64>() * u64::from(item)) as isize).collect();
        let target = Target::Box { start: &start, step: &step, count: shape, strides: &strides, view: None };
        // SAFETY: `bytes` are those of the whole array.
        let source = unsafe { Source::from_raw(bytes.as_ptr()) };
        device.execute(command::Write { space, target, source }).unwrap();
        bytes
    };
    let arrays = ARRAYS.into_iter().map(fill).collect();
    (Arc::new(device), arrays)
}

fn options(writable: bool) -> ServeOptions {
    let geometry = RegionGeometry { queues: QUEUES, depth: DEPTH, data_bytes: DATA_BYTES, threads: 1 };
    ServeOptions { geometry, writable, group: None, catalog: Vec::new() }
}

fn draw(chance: &mut fastrand::Rng, wire: &Wire, queue: u32) -> Meant {
    let array = chance.usize(..ARRAYS.len());
    let (_, shape, item) = ARRAYS[array];
    let blocks = (shape.iter().product::<u64>() * u64::from(item)).div_ceil(512);
    let nlb = if chance.bool() { 1 } else { 1 + chance.u64(..blocks.min(16)) };
    let slba = chance.u64(..=blocks - nlb.min(blocks));
    let own = wire.data + u64::from(queue) * DATA_BYTES;
    // Successive places are likely, since the server executes such reads together.
    let data = own + 512 * chance.u64(..=(DATA_BYTES / 512 - nlb));
    let opcode = [2, 2, 2, 1, 0][chance.usize(..5)];
    let cid = chance.u16(..);
    let nsid = FIRST_NSID + array as u32;
    let mut meant = Meant { opcode, flags: 0, cid, nsid, data, slba, nlb, fua: opcode == 1 && chance.u8(..8) == 0 };
    match chance.u8(..24) {
        0 => meant.opcode = chance.u8(3..),
        1 => meant.flags = chance.u8(1..),
        2 => meant.nsid = FIRST_NSID + chance.u32(5..1 << 31),
        3 => meant.slba = [blocks, blocks + 1, u64::MAX, u64::MAX / 512, 1 << 55][chance.usize(..5)],
        4 => meant.nlb = 1 + chance.u64(..0x1_0000),
        5 => {
            meant.data = [0, wire.data - 1, wire.data - 512, wire.bytes, wire.bytes - 511, u64::MAX][chance.usize(..6)]
        }
        6 => meant.data = own + chance.u64(..DATA_BYTES - 512 * 16),
        _ => {}
    }
    if meant.opcode > 2 {
        meant.nlb = meant.nlb.min(16);
    }
    meant
}

/// Puts a run of reads into a pair whose places follow one another, as a gather does.
fn draw_run(chance: &mut fastrand::Rng, wire: &Wire, queue: u32, count: u32) -> Vec<Meant> {
    let array = chance.usize(..ARRAYS.len());
    let (_, shape, item) = ARRAYS[array];
    let blocks = shape.iter().product::<u64>() * u64::from(item) / 512;
    let nlb = [1, 2, 4][chance.usize(..3)].min(blocks);
    let apart = 512 * nlb + [0, 0, 512][chance.usize(..3)];
    let read = |i: u32| Meant {
        opcode: 2,
        flags: 0,
        cid: i as u16,
        nsid: FIRST_NSID + array as u32,
        data: wire.data + u64::from(queue) * DATA_BYTES + u64::from(i) * apart,
        slba: chance.u64(..=(blocks - nlb) / nlb) * nlb,
        nlb,
        fua: false,
    };
    (0..count).map(read).collect()
}

/// Reads the completions of a pair, and executes their commands in the model, in order.
fn consume(wire: &Wire, model: &mut Model, queue: u32, pair: &mut Pair, context: &str) {
    let at = wire.queue(queue);
    for (i, meant) in std::mem::take(&mut pair.waiting).into_iter().enumerate() {
        let count = pair.consumed;
        let slot = at + 512 + 64 * u64::from(DEPTH) + 16 * u64::from(count % DEPTH);
        let mut words = [0; 16];
        wire.file.read_exact_at(&mut words, slot).unwrap();
        let half = u64::from_le_bytes(words[8..].try_into().unwrap());
        let context = format!("{context}, queue {queue}, completion {i}: {meant:?}");
        assert_eq!(half >> 48 & 1, u64::from((count / DEPTH).is_multiple_of(2)), "phase, {context}");
        assert_eq!((half >> 32) as u16, meant.cid, "identifier, {context}");
        assert_eq!((half >> 16) as u16, queue as u16, "queue, {context}");
        assert_eq!(words[..8], [0; 8], "result, {context}");
        let (status, faults) = ((half >> 49) as u16, model.faults(&meant));
        if faults.is_empty() {
            assert_eq!(status, SUCCESS, "{context}");
            model.execute(&meant);
        } else {
            assert!(faults.contains(&status), "status {status:#x} instead of {faults:x?}, {context}");
        }
        pair.consumed = pair.consumed.wrapping_add(1);
    }
    wire.set(at + 64, pair.consumed);
}

fn submit(wire: &Wire, queue: u32, pair: &mut Pair, all: Vec<Meant>) {
    let at = wire.queue(queue);
    for meant in all {
        let slot = at + 512 + 64 * u64::from(pair.submitted % DEPTH);
        wire.file.write_all_at(&meant.entry(), slot).unwrap();
        pair.submitted = pair.submitted.wrapping_add(1);
        pair.waiting.push(meant);
    }
    wire.set(at, pair.submitted);
}

fn claim(wire: &Wire, queue: u32, pair: &mut Pair, claim: u32) {
    let at = wire.queue(queue);
    *pair = Pair { claim, ..Pair::default() };
    wire.set(at, 0);
    wire.set(at + 64, 0);
    wire.set(at + 192, claim);
}

fn run(seed: u64, writable: bool) {
    let dir = tempfile::tempdir().unwrap();
    let (device, arrays) = store(&dir);
    let name = dir.path().join("region").display().to_string();
    let mut server = QueueServer::stepped(&device, &name, options(writable)).unwrap();
    let wire = Wire::new(&name);
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut data = vec![0; (u64::from(QUEUES) * DATA_BYTES) as usize];
    chance.fill(&mut data);
    wire.file.write_all_at(&data, wire.data).unwrap();
    let mut model = Model { arrays, data, data_at: wire.data, writable };
    let mut pairs: Vec<Pair> = (0..QUEUES).map(|_| Pair::default()).collect();
    (0..QUEUES).for_each(|q| claim(&wire, q, &mut pairs[q as usize], 1));
    assert_eq!(server.step(), 0);
    for step in 0..120 {
        let context = format!("seed {seed}, step {step}");
        let mut expected = 0;
        for queue in 0..QUEUES {
            let count = chance.u32(..=DEPTH);
            let pair = &mut pairs[queue as usize];
            let all: Vec<Meant> = if chance.bool() {
                (0..count).map(|_| draw(&mut chance, &wire, queue)).collect()
            } else {
                draw_run(&mut chance, &wire, queue, count)
            };
            submit(&wire, queue, pair, all);
            expected += u64::from(count);
        }
        assert_eq!(server.step(), expected, "{context}");
        assert_eq!(server.step(), 0, "{context}");
        // The server serves the pairs in order.
        for queue in 0..QUEUES {
            consume(&wire, &mut model, queue, &mut pairs[queue as usize], &context);
            assert_eq!(wire.word(wire.queue(queue) + 320), 0, "no pair ends, {context}");
        }
        let all = wire.all();
        let differs = all[wire.data as usize..].iter().zip(&model.data).position(|(a, b)| a != b);
        assert_eq!(differs, None, "the first byte of the data areas that differs, {context}");
        if chance.u8(..20) == 0 {
            // Another client claims the pair: its counts begin again, in the first lap.
            let queue = chance.u32(..QUEUES);
            let next = pairs[queue as usize].claim + 2;
            claim(&wire, queue, &mut pairs[queue as usize], next);
            assert_eq!(server.step(), 0);
            assert_eq!(wire.word(wire.queue(queue) + 256), next, "the claim is confirmed, {context}");
        }
    }
}

#[test]
fn every_entry_is_completed_once_as_the_model_says() {
    for seed in 0..8 {
        eprintln!("seed {seed}");
        run(seed, seed % 4 != 3);
    }
}

/// A submission ring that was read whole, while completions wait to be consumed: the server waits for room.
#[test]
fn a_full_completion_ring_holds_the_server_up_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (device, arrays) = store(&dir);
    let name = dir.path().join("region").display().to_string();
    let mut server = QueueServer::stepped(&device, &name, options(true)).unwrap();
    let wire = Wire::new(&name);
    let data = vec![0; (u64::from(QUEUES) * DATA_BYTES) as usize];
    let mut model = Model { arrays, data, data_at: wire.data, writable: true };
    let (mut pair, mut chance) = (Pair::default(), fastrand::Rng::with_seed(2));
    claim(&wire, 0, &mut pair, 1);
    server.step();
    for lap in 0..3 {
        let first = draw_run(&mut chance, &wire, 0, DEPTH);
        submit(&wire, 0, &mut pair, first);
        assert_eq!(server.step(), u64::from(DEPTH), "lap {lap}");
        let mut held = Pair { submitted: pair.submitted, ..Pair::default() };
        let second = draw_run(&mut chance, &wire, 0, 5);
        submit(&wire, 0, &mut held, second);
        assert_eq!(server.step(), 0, "no completion has room, lap {lap}");
        consume(&wire, &mut model, 0, &mut pair, "first");
        (pair.submitted, pair.waiting) = (held.submitted, held.waiting);
        assert_eq!(server.step(), 5, "lap {lap}");
        consume(&wire, &mut model, 0, &mut pair, "second");
    }
    assert_eq!(wire.all()[wire.data as usize..], model.data);
}

/// Doorbells that no client that counts could ring end the pair, and only it, until it is claimed again.
#[test]
fn impossible_doorbells_end_their_pair_until_the_next_claim() {
    let dir = tempfile::tempdir().unwrap();
    let (device, _) = store(&dir);
    let name = dir.path().join("region").display().to_string();
    let mut server = QueueServer::stepped(&device, &name, options(true)).unwrap();
    let wire = Wire::new(&name);
    let mut chance = fastrand::Rng::with_seed(3);
    let mut pair = Pair::default();
    for (round, (tail, head)) in
        [(DEPTH + 1, 0), (u32::MAX, 0), (1 << 31, 0), (0, 1), (0, u32::MAX - DEPTH), (3, 1 << 31)]
            .into_iter()
            .enumerate()
    {
        claim(&wire, 1, &mut pair, 2 * round as u32 + 1);
        server.step();
        let run = draw_run(&mut chance, &wire, 1, 2);
        submit(&wire, 1, &mut pair, run);
        wire.set(wire.queue(1), tail);
        wire.set(wire.queue(1) + 64, head);
        assert_eq!(server.step(), 0, "tail {tail}, head {head}");
        assert_eq!(wire.word(wire.queue(1) + 320), BROKEN, "tail {tail}, head {head}");
        // Good doorbells afterwards do not help.
        wire.set(wire.queue(1), 2);
        wire.set(wire.queue(1) + 64, 0);
        assert_eq!(server.step(), 0);
        let other = QueueClient::open_with(&name, Duration::from_secs(5), || {
            server.step();
        });
        other.unwrap();
    }
    // An even claim ends service: nothing is executed, and no status is set.
    claim(&wire, 1, &mut pair, 100);
    let run = draw_run(&mut chance, &wire, 1, 2);
    submit(&wire, 1, &mut pair, run);
    assert_eq!((server.step(), wire.word(wire.queue(1) + 320)), (0, 0));
}

/// Sizes of a region that its server refuses, and the text says why.
#[test]
fn regions_of_impossible_sizes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (device, _) = store(&dir);
    let name = dir.path().join("region").display().to_string();
    let fine = options(true).geometry;
    for (geometry, text) in [
        (RegionGeometry { queues: 0, ..fine }, "from 1 to 4096, not 0"),
        (RegionGeometry { queues: 4097, ..fine }, "from 1 to 4096, not 4097"),
        (RegionGeometry { depth: 1, ..fine }, "from 2 to 32768, not 1"),
        (RegionGeometry { depth: 6, ..fine }, "from 2 to 32768, not 6"),
        (RegionGeometry { depth: 65536, ..fine }, "from 2 to 32768, not 65536"),
        (RegionGeometry { data_bytes: 0, ..fine }, "whole pages of 4096 bytes, not 0"),
        (RegionGeometry { data_bytes: 4095, ..fine }, "whole pages of 4096 bytes, not 4095"),
        (RegionGeometry { data_bytes: u64::MAX - 4095, ..fine }, "not 18446744073709547520"),
        (RegionGeometry { threads: 0, ..fine }, "0 threads"),
        (RegionGeometry { threads: 4, ..fine }, "4 threads for 3"),
    ] {
        let refused = QueueServer::stepped(
            &device,
            &name,
            ServeOptions { geometry, writable: true, group: None, catalog: Vec::new() },
        );
        let error = refused.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains(text), "{error:?} does not say {text:?}");
        assert!(!region_path(&name).exists(), "a refused region left its file");
    }
}
