//! Promise: with Spike's replacement policy, the caches count the same accesses and misses as Spike's cache simulator.
//!
//! `spike/record.py` compiles twelve programs and records Spike's counts for each program in five cache geometries, one
//! of them fully associative. Here the same programs run on the hart, and each instruction fetch and each data access
//! goes through a hierarchy, in the order of the instructions. Spike's boot code, five instructions in one line, comes
//! first.

mod common;

use nandarray_hart::isa::Instruction;
use nandarray_hart::{
    BasicBlock, DataAccess, ElfProgram, Extensions, Hart, HartMode, Limits, Meter, MeterAnswer, Rv64, Stop, Streams,
};
use nandarray_uarch::{CacheDescription, CacheSide, CoreDescription, Hierarchy, Replacement, TimedCore};

/// Addresses of the instructions of Spike's boot code; the fourth one loads the program's address.
const BOOT: [u64; 5] = [0x1000, 0x1004, 0x1008, 0x100c, 0x1010];
const BOOT_LOADS: (u64, u32) = (0x1018, 8);

/// An instruction fetch, or a data access.
#[derive(Clone, Copy, Debug)]
struct Reference {
    side: CacheSide,
    address: u64,
    bytes: u32,
    write: bool,
}

/// All fetches and accesses of a program, in order, if it is executed one instruction at a time.
#[derive(Debug, Default)]
struct References(Vec<Reference>);

impl References {
    /// Returns the fetches and accesses of Spike's boot code.
    fn boot() -> Self {
        let mut all = Self::default();
        BOOT.into_iter().for_each(|pc| all.fetch(pc));
        let (address, bytes) = BOOT_LOADS;
        all.0.insert(4, Reference { side: CacheSide::Data, address, bytes, write: false });
        all
    }

    fn fetch(&mut self, address: u64) {
        self.0.push(Reference { side: CacheSide::Instruction, address, bytes: 1, write: false });
    }
}

impl Meter for References {
    const BLOCKS: bool = true;
    const ACCESSES: bool = true;

    fn enter(&mut self, _unit: u32) {
        panic!("one instruction a run is never a block with a number");
    }
    fn part(&mut self, block: &BasicBlock) {
        self.fetch(block.pc);
    }
    fn single(&mut self, pc: u64, op: &Instruction) {
        panic!("{op:?} at {pc:#x} is no instruction of a block");
    }
    fn access(&mut self, _index: u32, kind: DataAccess, address: u64, bytes: u32) -> MeterAnswer {
        self.0.push(Reference { side: CacheSide::Data, address, bytes, write: kind == DataAccess::Store });
        MeterAnswer::Proceed
    }
}

/// Runs a program up to its endless loop, at most `chunk` instructions at a time.
fn run<M: Meter>(elf: &[u8], meter: M, chunk: u64) -> Hart<Rv64, M> {
    let program = ElfProgram::from_elf(elf, Extensions::PROGRAM).expect("a bare program");
    let spin = program.symbol("spin").expect("the endless loop at its end");
    let mut loaded = program.load(4096, None).expect("memory");
    let mut hart = Hart::<Rv64, M>::with_meter(HartMode::Program, Extensions::PROGRAM, meter);
    hart.call(program.entry, loaded.stack, &[]);
    while hart.pc() != spin {
        let limits = Limits { instructions: Some(chunk), stop: None };
        let stop = hart.run(&mut loaded.memory, &mut Streams::none(), limits);
        assert_eq!(stop, Stop::InstructionLimit, "at {:#x}", hart.pc());
    }
    hart
}

/// Parses a cache geometry as Spike writes it: sets, ways and bytes of a line, separated by colons.
fn cache(text: &str) -> CacheDescription {
    let numbers: Vec<u32> = text.split(':').map(|number| number.parse().expect("a number")).collect();
    let [sets, ways, line_bytes] = numbers[..] else { panic!("{text}: sets, ways, bytes of a line") };
    let size_bytes = u64::from(sets) * u64::from(ways) * u64::from(line_bytes);
    CacheDescription { size_bytes, ways, line_bytes, t_hit: 0, replacement: Replacement::Lfsr }
}

fn core(ic: &str, dc: &str, l2: &str) -> CoreDescription {
    let mut d = common::bare("zou-2023");
    (d.l1i, d.l1d, d.l2) = (Some(cache(ic)), Some(cache(dc)), Some(cache(l2)));
    d
}

#[test]
fn hits_misses_and_write_backs_are_those_of_spike() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/spike");
    let recorded = std::fs::read_to_string(format!("{folder}/counts.txt")).expect("recorded counts");
    let (mut known, mut rows): (Option<(String, References)>, u32) = (None, 0);
    for line in recorded.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let [program, ic, dc, l2] = words[..4] else { panic!("{line}") };
        let counts: Vec<u64> = words[4..].iter().map(|word| word.parse().expect("a count")).collect();
        let path = format!("{folder}/built/{program}.elf");
        if known.as_ref().is_none_or(|(name, _)| name != program) {
            let elf = std::fs::read(&path).expect("a program of the folder");
            let mut ran = run(&elf, References::boot(), 1);
            // Spike stays in the endless loop until its host notices the end.
            let spin = ran.pc();
            ran.meter_mut().fetch(spin);
            known = Some((program.to_owned(), std::mem::take(ran.meter_mut())));
        }
        let (_, references) = known.as_ref().expect("the program has run");
        let mut caches = Hierarchy::new(&core(ic, dc, l2), false);
        for r in &references.0 {
            caches.access(0, r.side, r.address, r.address, u64::from(r.bytes), r.write);
        }
        let [i, d, l2_counts] = caches.counts().map(|counts| counts.expect("three caches"));
        let mut found = Vec::new();
        for c in [d, l2_counts] {
            found.extend([c.reads, c.writes, c.read_misses, c.write_misses, c.write_backs]);
        }
        found.push(i.read_misses);
        assert_eq!(found, counts, "{line}");
        rows += 1;
    }
    assert_eq!(rows, 60);
}

/// Compares with a timed core, which executes whole blocks: its data cache sees the same accesses in the same order.
#[test]
fn the_data_cache_of_a_timed_core_counts_the_same() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/spike");
    for program in 0..12 {
        let elf = std::fs::read(format!("{folder}/built/{program:02}.elf")).expect("a program of the folder");
        let mut ran = run(&elf, References::default(), 1);
        let references = std::mem::take(ran.meter_mut());
        let d = core("64:1:32", "16:2:32", "64:4:64");
        let mut caches = Hierarchy::new(&d, false);
        for r in references.0.iter().filter(|r| r.side == CacheSide::Data) {
            caches.access(0, r.side, r.address, r.address, u64::from(r.bytes), r.write);
        }
        // Chunks of seven instructions: they end within blocks, and at last in the endless loop of one instruction.
        let timed = run(&elf, TimedCore::new(&d), 7);
        assert_eq!(timed.meter().report().caches[1], caches.counts()[1], "program {program}");
    }
}
