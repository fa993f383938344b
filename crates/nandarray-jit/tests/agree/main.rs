//! Promise: translator and interpreter have the same results, to the bit, for every program.
//!
//! So has a hart whose meter counts, and one whose meter pauses it. Registers, flags, memory, streams, count of
//! instructions, program counter and the reason for stopping are compared after random programs, at random limits, and
//! when the runs are continued. A failure prints its seed; `PROPTEST_CASES=n` in the environment runs more cases.

mod generate;
mod limits;
mod vectors;

use generate::{BASE, Chance, InstructionMix, WINDOW, float, integer, ordinary, program};
use nandarray_hart::{
    Counter, DataAccess, Extensions, Hart, HartMode, InputStream, Limits, Memory, Meter, MeterAnswer, OutputStream,
    Room, Rv32, Rv64, Stop, StreamAccess, Streams, Unmetered, VectorWork, Xlen, isa,
};
use nandarray_jit::{Costs, Settings, Translated, TranslationTrigger};
use proptest::prelude::*;

const CODE: u64 = 0x1_0000;
const DATA: u64 = 0x1_1000;
const END: u64 = 0x1_2000;
const WINDOW_AT: u64 = 0x2000_0000;
const WINDOW_BYTES: usize = 512;

/// One of the compared implementations: a hart with or without a meter, or the translator.
trait Runner<X: Xlen> {
    type Meter: Meter;
    fn hart(&mut self) -> &mut Hart<X, Self::Meter>;
    fn go(&mut self, memory: &mut Memory<'_>, streams: &mut Streams<'_>, limits: Limits<'_>) -> Stop;
}

impl<X: Xlen, M: Meter> Runner<X> for Hart<X, M> {
    type Meter = M;

    fn hart(&mut self) -> &mut Hart<X, M> {
        self
    }

    fn go(&mut self, memory: &mut Memory<'_>, streams: &mut Streams<'_>, mut limits: Limits<'_>) -> Stop {
        loop {
            let before = self.instructions();
            let stop = self.run(memory, streams, limits);
            if stop != Stop::Paused {
                return stop;
            }
            limits.instructions = limits.instructions.map(|left| left - (self.instructions() - before));
        }
    }
}

/// A meter that pauses the hart before one in three accesses.
#[derive(Debug)]
struct Pauses(Chance);

impl Pauses {
    fn go(&mut self) -> MeterAnswer {
        if self.0.below(3) == 0 { MeterAnswer::Pause } else { MeterAnswer::Proceed }
    }
}

impl Meter for Pauses {
    const BLOCKS: bool = true;
    const BRANCHES: bool = true;
    const ACCESSES: bool = true;
    const STREAMS: bool = true;
    const VECTORS: bool = true;

    fn access(&mut self, _index: u32, _kind: DataAccess, _address: u64, _bytes: u32) -> MeterAnswer {
        self.go()
    }

    fn stream(&mut self, _index: u32, _kind: StreamAccess, _stream: u8, _position: u64, _bytes: u64) -> MeterAnswer {
        self.go()
    }

    fn vector(&mut self, _index: u32, _work: &VectorWork) -> MeterAnswer {
        self.go()
    }
}

impl<X: Xlen> Runner<X> for Translated<X> {
    type Meter = Unmetered;

    fn hart(&mut self) -> &mut Hart<X> {
        self.hart_mut()
    }

    fn go(&mut self, memory: &mut Memory<'_>, streams: &mut Streams<'_>, limits: Limits<'_>) -> Stop {
        self.run(memory, streams, limits)
    }
}

/// The visible state of a hart between two runs.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    stop: Stop,
    pc: u64,
    instructions: u64,
    x: Vec<u64>,
    f: Vec<u64>,
    fcsr: u8,
    heads: Vec<u64>,
    /// The vector registers, where there are some.
    v: Vec<u8>,
}

impl Seen {
    fn of<X: Xlen, M: Meter>(hart: &Hart<X, M>, stop: Stop, heads: Vec<u64>) -> Self {
        Self {
            stop,
            pc: hart.pc(),
            instructions: hart.instructions(),
            x: (0..32).map(|r| hart.x(r)).collect(),
            f: (0..32).map(|r| hart.f(r)).collect(),
            fcsr: hart.fcsr(),
            heads,
            v: (0..32).flat_map(|r| hart.v(r)).copied().collect(),
        }
    }
}

/// The initial state of a program.
#[derive(Clone)]
struct Start {
    words: Vec<u32>,
    x: Vec<u64>,
    f: Vec<u64>,
    fcsr: u8,
    data: Vec<u8>,
    window: Vec<u8>,
    input: Vec<u8>,
    /// Limits of consecutive runs in instructions; 0 is no limit.
    limits: Vec<u64>,
    ring: usize,
    /// The most bytes that the output may have.
    most: u64,
}

fn start(chance: &mut Chance, bits: u32, kind: InstructionMix) -> Start {
    let words = program(chance, bits, kind);
    let limits = (0..3).map(|_| if chance.below(3) == 0 { 0 } else { 1 + chance.below(700) as u64 }).collect();
    let tame = kind == InstructionMix::Ordinary;
    let number = |chance: &mut Chance| if tame { ordinary(chance) } else { float(chance) };
    let bytes = |chance: &mut Chance, count: usize| -> Vec<u8> {
        let word = |chance: &mut Chance| if tame { ordinary(chance) } else { chance.bits() };
        (0..count / 8).flat_map(|_| word(chance).to_le_bytes()).collect()
    };
    Start {
        words,
        x: (0..32).map(|_| integer(chance)).collect(),
        f: (0..32).map(|_| number(chance)).collect(),
        fcsr: chance.bits() as u8 & chance.bits() as u8 & 31,
        data: bytes(chance, 0x1000),
        window: bytes(chance, WINDOW_BYTES),
        input: (0..64 + chance.below(512)).map(|_| chance.bits() as u8).collect(),
        limits,
        ring: if chance.below(2) == 0 { 64 } else { 24 + chance.below(80) },
        most: if chance.below(2) == 0 { u64::MAX } else { 100 + chance.below(400) as u64 },
    }
}

/// Runs a program in parts; returns the visible state after each run, and the memory at the end.
fn play<X: Xlen>(start: &Start, runner: &mut impl Runner<X>) -> (Vec<Seen>, Vec<u8>) {
    let mut own = Memory::new();
    own.add_program(CODE, END - CODE, DATA..END, CODE..DATA).unwrap();
    for (i, word) in start.words.iter().enumerate() {
        let at = CODE + 4 * i as u64;
        own.get_mut(at..at + 4).unwrap().copy_from_slice(&word.to_le_bytes());
    }
    own.get_mut(DATA..END).unwrap().copy_from_slice(&start.data);
    let (mut window, mut ring) = (start.window.clone(), vec![0; start.ring]);
    let hart = runner.hart();
    hart.call(CODE, END, &[]);
    (3..32).for_each(|r| hart.set_x(r, start.x[r]));
    (0..32).for_each(|r| hart.set_f(r, start.f[r]));
    hart.set_fcsr(start.fcsr);
    hart.set_x(BASE as usize, DATA + 0x800);
    hart.set_x(WINDOW as usize, WINDOW_AT + 256);
    let (mut head, mut written, mut drained, mut arrived) = (0, 0, 0, 64.min(start.input.len() as u64));
    let mut seen = Vec::new();
    let mut total = 0;
    let mut run = 0;
    while run < 200 {
        let mut memory = own.for_call();
        memory.lend_mut(WINDOW_AT, &mut window).unwrap();
        let mut streams = Streams::none();
        // The first input has the bytes that have arrived so far, the second is a whole array.
        let end = Some(start.input.len() as u64).filter(|end| arrived == *end);
        streams.inputs.push(InputStream::window(&start.input[..arrived as usize], head).ending(end));
        streams.inputs.push(InputStream::whole(&start.input));
        let room = if run % 2 == 0 { Room::Eight } else { Room::Width };
        streams.outputs.push(OutputStream::resume(&mut ring, written, drained, room).limited(start.most));
        let limit = start.limits[run % start.limits.len()];
        // Programs that do not end are stopped.
        let limit = if limit == 0 { 20_000 } else { limit };
        let stop = runner.go(&mut memory, &mut streams, Limits { instructions: Some(limit), stop: None });
        let heads = streams
            .inputs
            .iter()
            .map(InputStream::head)
            .chain(streams.outputs.iter().map(OutputStream::head))
            .collect();
        head = streams.inputs[0].head();
        written = streams.outputs[0].head();
        let hart = runner.hart();
        let state = Seen::of(hart, stop, heads);
        total += state.instructions;
        seen.push(state);
        run += 1;
        match stop {
            Stop::InstructionLimit if total < 200_000 => {}
            Stop::WaitInput { .. } => arrived = (arrived + 40).min(start.input.len() as u64),
            Stop::WaitOutput { .. } => drained = written - (written - drained) / 3,
            // Continue after the instruction that trapped.
            Stop::Trap(trap) if run < 20 => hart.set_pc(trap.pc + 4),
            Stop::EnvironmentCall if run < 20 => {}
            _ => break,
        }
    }
    let mut left = own.get(CODE..END).unwrap().to_vec();
    left.extend_from_slice(&window);
    left.extend_from_slice(&ring);
    (seen, left)
}

/// Formats the differences of two states, and the program.
fn differences(a: &Seen, b: &Seen, start: &Start) -> String {
    let end = |s: &Seen| format!("{:?} pc {:#x} {} fcsr {:#x} {:?}", s.stop, s.pc, s.instructions, s.fcsr, s.heads);
    let mut lines = vec![end(a), end(b)];
    if a.v != b.v {
        lines.push("vector registers differ".to_owned());
    }
    for (name, a, b) in [("x", &a.x, &b.x), ("f", &a.f, &b.f)] {
        let different = (0..32).filter(|r| a[*r] != b[*r]);
        lines.extend(different.map(|r| format!("{name}{r}: {:#x} {:#x}", a[r], b[r])));
    }
    for (i, word) in start.words.iter().enumerate() {
        let op = isa::decode(*word, 64, Extensions::PROGRAM_VECTOR);
        lines.push(format!("{:#x}: {}", CODE + 4 * i as u64, isa::disassemble(&op)));
    }
    lines.join("\n")
}

fn agree<X: Xlen>(seed: u64, kind: InstructionMix) {
    let chance = &mut Chance(seed);
    let mut start = start(chance, X::BITS, kind);
    let settings = Settings {
        when: [
            TranslationTrigger::Visited(0),
            TranslationTrigger::Visited(chance.below(4) as u32),
            TranslationTrigger::Pays(Costs::NONE),
        ][chance.below(3)],
        region_instructions: [12, 60, 1500][chance.below(3)],
        code_bytes: [4096, 1 << 20][chance.below(2)],
    };
    let mut executed = 0;
    let extensions = kind.extensions();
    let mut interpreter = Hart::<X>::new(HartMode::Program, extensions);
    let mut translated = Translated::<X>::with_settings(extensions, settings);
    let mut counting = Hart::<X, _>::with_meter(HartMode::Program, extensions, Counter::default());
    let mut pausing = Hart::<X, _>::with_meter(HartMode::Program, extensions, Pauses(Chance(seed)));
    // In the second round, translated code exists from the beginning.
    for round in 0..2 {
        let (ours, our_memory) = play(&start, &mut translated);
        let (theirs, their_memory) = play(&start, &mut interpreter);
        assert!(
            play(&start, &mut counting) == (theirs.clone(), their_memory.clone()),
            "seed {seed} {kind:?}: counting"
        );
        assert!(play(&start, &mut pausing) == (theirs.clone(), their_memory.clone()), "seed {seed} {kind:?}: pausing");
        assert_eq!(counting.meter_mut().take().total() + executed, counting.instructions(), "seed {seed} {kind:?}");
        executed = counting.instructions();
        for (run, (a, b)) in ours.iter().zip(&theirs).enumerate() {
            assert!(
                a == b,
                "seed {seed} {kind:?} {settings:?} round {round} run {run}:\n{}",
                differences(a, b, &start)
            );
        }
        assert_eq!(ours.len(), theirs.len(), "seed {seed} {kind:?}");
        assert!(our_memory == their_memory, "seed {seed} {kind:?} round {round}: memory differs");
        // The second round begins with other values.
        start.x.rotate_left(3);
        start.f.rotate_left(5);
    }
    let sure = settings.when == TranslationTrigger::Visited(0);
    assert!(translated.statistics().regions > 0 || !sure, "seed {seed}: nothing was translated");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn integer_programs_agree(seed: u64) {
        agree::<Rv64>(seed, InstructionMix::Integer);
        agree::<Rv32>(seed, InstructionMix::Integer);
    }

    #[test]
    fn float_programs_agree(seed: u64) {
        agree::<Rv64>(seed, InstructionMix::Float);
        agree::<Rv32>(seed, InstructionMix::Float);
    }

    #[test]
    fn ordinary_numbers_agree(seed: u64) {
        agree::<Rv64>(seed, InstructionMix::Ordinary);
        agree::<Rv32>(seed, InstructionMix::Ordinary);
    }

    #[test]
    fn stream_programs_agree(seed: u64) {
        agree::<Rv64>(seed, InstructionMix::Stream);
        agree::<Rv32>(seed, InstructionMix::Stream);
    }

    #[test]
    fn vector_programs_agree(seed: u64) {
        agree::<Rv64>(seed, InstructionMix::Vector);
        agree::<Rv32>(seed, InstructionMix::Vector);
    }

    #[test]
    fn any_programs_agree(seed: u64) {
        agree::<Rv64>(seed, InstructionMix::Any);
        agree::<Rv32>(seed, InstructionMix::Any);
    }
}
