//! Promise: a call that is interrupted and resumed has the same results as one that runs at once, however its input
//! arrives: bytes, errors, states, counts of instructions; interpreted, with a meter that pauses it, and translated.

#[path = "../../nandarray-cores/tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nandarray_cores::{Advance, BorrowedTask, Bounds, Call, Core, Inflow, OwnedTask, Program, RunError, TaskPlace};
use nandarray_hart::{DataAccess, Extensions, Hart, HartMode, Meter, MeterAnswer, Rv64, StreamAccess};
use nandarray_jit::{Settings, TranslationTrigger, Translations};
use proptest::prelude::*;

/// Instructions that copy words to the first output, and their running sum to the second.
const COPY: &[&str] =
    &["streamload.wu t0, 0", "add t1, t1, t0", "streamstore.w t0, 0", "streamstore.d t1, 1", "jal zero, . - 16"];

/// Instructions that copy bytes and add them up in the state, until the end register says that the input has ended;
/// then add the input's length.
const COUNT: &[&str] = &[
    "ld t2, 48(a0)",
    "ld t3, 0(t2)",
    "csrrs t0, iend0, zero",
    "bne t0, zero, . + 20",
    "streamload.bu t1, 0",
    "add t3, t3, t1",
    "streamstore.b t1, 0",
    "jal zero, . - 20",
    "csrrs t4, itail0, zero",
    "add t3, t3, t4",
    "sd t3, 0(t2)",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];

/// Instructions that wait for chunks of at most 100 bytes, write their lengths to the second output, and copy each byte
/// to the first output, followed by the byte two positions after the head if the chunk contains it.
const CHUNKS: &[&str] = &[
    "addi t0, zero, 100",
    "addi t6, zero, 2",
    "streamwait t1, 0, t0",
    "beq t1, zero, . + 48",
    "streamstore.b t1, 1",
    "addi t2, zero, 3",
    "streamload.bu t3, 0",
    "addi t1, t1, -1",
    "streamstore.b t3, 0",
    "blt t1, t2, . + 16",
    "peekistream.bu t4, 0, t6",
    "streamstore.b t4, 0",
    "bne t1, zero, . - 24",
    "bne t1, zero, . - 28",
    "jal zero, . - 48",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];

/// Instructions that read from two inputs in turn, and read back bytes that they have written.
const TURNS: &[&str] = &[
    "addi t2, zero, 3",
    "streamload.bu t0, 0",
    "streamload.h t1, 1",
    "streamstore.b t0, 0",
    "streamstore.h t1, 0",
    "readostream.bu t3, 0, t2",
    "streamstore.b t3, 1",
    "jal zero, . - 24",
];

/// Instructions that read two bytes before the input's end, then eight bytes at the head after each byte that is taken,
/// at last beyond the end.
const PEEKS: &[&str] = &[
    "addi t0, zero, 6",
    "readistream.h t1, 0, t0",
    "streamstore.h t1, 0",
    "peekistream.d t1, 0, zero",
    "streamstore.d t1, 0",
    "streamload.bu zero, 0",
    "jal zero, . - 12",
];

/// Instructions that read one byte, then loop for ever.
const SPINS: &[&str] = &["streamload.bu t0, 0", "jal zero, . + 0"];

const METADATA: &str = r#"{"abi": 1, "name": "s", "kind": "stream", "state_bytes": 8,
    "inputs": [{"name": "x", "dtype": "uint8"}, {"name": "y", "dtype": "uint8"}],
    "outputs": [{"name": "a", "dtype": "uint8", "bound": {"per_input_byte": 2.0, "fixed": 8}},
                {"name": "b", "dtype": "uint8", "bound": {"per_input_byte": 2.0}}]}"#;

/// A program on windows instead of streams: writes the running sums of an input's bytes to the first output.
const BLOCK: &[&str] = &[
    "ld t0, 88(a0)",
    "ld t1, 96(a0)",
    "ld t2, 600(a0)",
    "add t1, t1, t0",
    "addi t3, zero, 0",
    "addi t4, zero, 7",
    "bgeu t0, t1, . + 28",
    "lbu t5, 0(t0)",
    "add t3, t3, t5",
    "sb t3, 0(t2)",
    "addi t0, t0, 1",
    "addi t2, t2, 1",
    "jal zero, . - 24",
    "ld t1, 96(a0)",
    "sd t1, 616(a0)",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];

fn program(lines: &[&str], block: bool) -> Program {
    let metadata = if block { METADATA.replace("\"stream\"", "\"block\"") } else { METADATA.to_owned() };
    let name = if block { "nd_block" } else { "nd_stream" };
    Program::from_elf(&common::elf(&[(name, lines)], Some(&metadata)), None).unwrap()
}

/// A random number generator with a seed.
#[derive(Debug)]
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A meter that pauses the hart before one in four accesses.
#[derive(Debug)]
struct Pauses(Chance);

impl Pauses {
    fn go(&mut self) -> MeterAnswer {
        if self.0.below(4) == 0 { MeterAnswer::Pause } else { MeterAnswer::Proceed }
    }
}

impl Meter for Pauses {
    const ACCESSES: bool = true;
    const STREAMS: bool = true;

    fn access(&mut self, _index: u32, _kind: DataAccess, _address: u64, _bytes: u32) -> MeterAnswer {
        self.go()
    }

    fn stream(&mut self, _index: u32, _kind: StreamAccess, _stream: u8, _position: u64, _bytes: u64) -> MeterAnswer {
        self.go()
    }
}

#[derive(Clone, Copy, Debug)]
enum Executor {
    Interpreter,
    Pausing(u64),
    Translator,
}

impl Executor {
    fn core<'p>(self, program: &'p Program) -> Core<'p> {
        match self {
            Self::Interpreter => Core::interpreter(program).unwrap(),
            Self::Pausing(seed) => {
                let meter = Pauses(Chance(seed));
                let hart = Hart::<Rv64, _>::with_meter(HartMode::Program, Extensions::PROGRAM, meter);
                Core::new(program, Box::new(hart)).unwrap()
            }
            Self::Translator => {
                let settings = Settings { when: TranslationTrigger::Visited(1), ..Settings::default() };
                Core::new(program, Translations::with_settings(64, settings).run().processor()).unwrap()
            }
        }
    }
}

/// The visible results of a call.
#[derive(Debug, PartialEq)]
struct Seen {
    outputs: Result<Vec<Vec<u8>>, String>,
    state: Vec<u8>,
    instructions: u64,
}

static NEVER: AtomicBool = AtomicBool::new(false);

/// Runs a call in one go.
fn whole(program: &Program, executor: Executor, inputs: [&[u8]; 2], limit: Option<u64>) -> Seen {
    let mut core = executor.core(program);
    let task = BorrowedTask {
        number: 3,
        first_record: 0,
        records: inputs[0].len() as u64,
        place: &TaskPlace::default(),
        inputs: &inputs,
    };
    let mut outputs = vec![Vec::new(); 2];
    let stop = &NEVER;
    let used = core.task(&[], task, &mut outputs, Bounds { instructions: limit, stop });
    let outputs = used
        .map_err(|e| e.to_string())
        .map(|used| outputs.iter().zip(used).map(|(output, used)| output[..used as usize].to_vec()).collect());
    Seen { outputs, state: core.state().unwrap(), instructions: core.instructions() }
}

/// The way in which a call is divided into parts.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Maximum number of bytes of input that arrive at a time.
    at_once: u64,
    /// Maximum number of instructions of one run; `None` for no limit.
    budget: Option<u64>,
    /// Whether inputs are ring buffers; otherwise they are windows on all bytes that have arrived.
    rings: bool,
    /// Size of each output's ring buffer in bytes; `None` to hold all output.
    buffer_bytes: Option<usize>,
}

/// Runs a call in parts: input arrives, and output is drained, in random amounts.
fn parts(
    program: &Program,
    executor: Executor,
    inputs: [&[u8]; 2],
    limit: Option<u64>,
    way: Way,
    chance: &mut Chance,
) -> Seen {
    let stop = &NEVER;
    let inflow = |bytes: &[u8]| {
        let end = Some(bytes.len() as u64);
        if way.rings { Inflow::ring(Inflow::RING_BYTES_MIN + 13, end) } else { Inflow::window(end) }
    };
    let job = OwnedTask {
        number: 3,
        first_record: 0,
        records: None,
        place: TaskPlace::default(),
        inputs: inputs.iter().map(|bytes| inflow(bytes)).collect(),
        buffer_bytes: way.buffer_bytes,
    };
    let mut call = Call::task(executor.core(program), &[], job, limit).unwrap();
    let mut out = vec![Vec::new(); 2];
    let mut drain = |call: &mut Call<'_>, output: usize, most: u64| {
        let waiting = call.waiting(output).concat();
        let count = (waiting.len() as u64).min(most) as usize;
        out[output].extend_from_slice(&waiting[..count]);
        call.drained(output, count as u64);
    };
    let done = loop {
        let budget = way.budget.map(|most| 1 + chance.below(most));
        let mut more = |call: &mut Call<'_>, input: usize| {
            let arrived = call.input(input).arrived() as usize;
            let count = (1 + chance.below(way.at_once) as usize).min(inputs[input].len() - arrived);
            call.input_mut(input).push(&inputs[input][arrived..arrived + count])
        };
        match call.run(budget, stop) {
            Advance::WaitInput { input } => assert!(more(&mut call, input) > 0, "it waits for what will never come"),
            Advance::WaitOutput { output } => drain(&mut call, output, 1 + chance.below(100)),
            // Input may arrive, and output be drained, at any time.
            Advance::OutOfBudget | Advance::Paused => {
                more(&mut call, 0);
                if way.buffer_bytes.is_some() {
                    drain(&mut call, chance.below(2) as usize, chance.below(50));
                }
            }
            Advance::Done(done) => break done,
        }
    };
    assert!(call.is_over());
    let instructions = call.instructions();
    if done.is_ok() {
        (0..2).for_each(|output| drain(&mut call, output, u64::MAX));
    }
    let (mut core, kept) = call.finish();
    if way.buffer_bytes.is_none() && done.is_ok() {
        assert_eq!(kept, out);
    }
    let outputs = done.map_err(|e| e.to_string()).map(|used| {
        assert_eq!(used, out.iter().map(|o| o.len() as u64).collect::<Vec<_>>());
        out
    });
    Seen { outputs, state: core.state().unwrap(), instructions }
}

const PROGRAMS: &[(&str, &[&str])] = &[
    ("copy", COPY),
    ("count", COUNT),
    ("chunks", CHUNKS),
    ("turns", TURNS),
    ("peeks", PEEKS),
    ("spins", SPINS),
    ("block", BLOCK),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_call_in_parts_comes_to_what_it_comes_to_at_once(seed: u64, lengths in [0u64..300, 0u64..300]) {
        let mut chance = Chance(seed);
        let inputs = lengths.map(|n| (0..n).map(|_| chance.below(256) as u8).collect::<Vec<u8>>());
        let inputs = [&inputs[0][..], &inputs[1][..]];
        for (name, lines) in PROGRAMS {
            let program = program(lines, *name == "block");
            // Programs that need more instructions than this never end.
            let limit = Some(if chance.below(4) == 0 { chance.below(400) } else { 20_000 });
            let at_once = whole(&program, Executor::Interpreter, inputs, limit);
            prop_assert_eq!(&whole(&program, Executor::Translator, inputs, limit), &at_once, "{}", name);
            for executor in [Executor::Interpreter, Executor::Pausing(seed), Executor::Translator] {
                let way = Way {
                    at_once: [1, 1, 7, 400][chance.below(4) as usize],
                    budget: [None, Some(3), Some(200)][chance.below(3) as usize],
                    rings: *name != "block" && chance.below(2) == 0,
                    buffer_bytes: [None, Some(1 << 16)][chance.below(2) as usize],
                };
                let seen = parts(&program, executor, inputs, limit, way, &mut chance);
                prop_assert_eq!(&seen, &at_once, "{} {:?} {:?}", name, executor, way);
            }
        }
    }
}

#[test]
fn what_is_longer_than_its_rings_goes_through_them() {
    let bytes: Vec<u8> = (0..400_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
    let mut chance = Chance(1);
    for lines in [COPY, CHUNKS] {
        let program = program(lines, false);
        let at_once = whole(&program, Executor::Interpreter, [&bytes, &[]], None);
        assert!(at_once.outputs.is_ok());
        for executor in [Executor::Interpreter, Executor::Translator] {
            let way = Way { at_once: 9_000, budget: Some(20_000), rings: true, buffer_bytes: Some((1 << 16) + 24) };
            assert!(parts(&program, executor, [&bytes, &[]], None, way, &mut chance) == at_once, "{executor:?}");
        }
    }
}

#[test]
fn the_end_of_a_stream_may_be_unknown_to_the_last() {
    let program = program(COUNT, false);
    let job = || OwnedTask {
        number: 0,
        first_record: 0,
        records: None,
        place: TaskPlace::default(),
        inputs: vec![Inflow::ring(Inflow::RING_BYTES_MIN, None), Inflow::whole(Vec::new())],
        buffer_bytes: Some(1 << 16),
    };
    let stop = &NEVER;
    for executor in [Executor::Interpreter, Executor::Translator] {
        let mut call = Call::task(executor.core(&program), &[], job(), None).unwrap();
        for byte in [3, 4] {
            assert!(matches!(call.run(None, stop), Advance::WaitInput { input: 0 }));
            assert_eq!(call.input_mut(0).push(&[byte]), 1);
        }
        assert!(matches!(call.run(None, stop), Advance::WaitInput { input: 0 }));
        let error = call.starved(0);
        assert!(matches!(error, RunError::Starved { task: 0, input: 0, .. }));
        assert_eq!(
            error.to_string(),
            "task 0: waits for bytes of input 0 that never come, at pc 0x10008 in nd_stream+0x8"
        );
        call.input_mut(0).close();
        assert!(matches!(call.run(None, stop), Advance::Done(Ok(used)) if used == [2, 0]));
        assert_eq!(call.waiting(0).concat(), [3, 4]);
        assert_eq!(call.finish().0.state().unwrap(), (3 + 4 + 2u64).to_le_bytes());
    }
    // An unbounded output is not held in memory as a whole.
    let open = OwnedTask { buffer_bytes: None, ..job() };
    let error = Call::task(Core::interpreter(&program).unwrap(), &[], open, None).unwrap_err();
    assert!(error.to_string().contains("drained"), "{error}");
}

#[test]
fn a_call_can_be_cancelled_and_its_core_used_again() {
    let (spins, block) = (program(SPINS, false), program(BLOCK, true));
    let job = |bytes: Vec<u8>| OwnedTask {
        number: 1,
        first_record: 0,
        records: None,
        place: TaskPlace::default(),
        inputs: vec![Inflow::shared(Arc::new(bytes), 1..3), Inflow::window(Some(0))],
        buffer_bytes: None,
    };
    let mut call = Call::task(Core::interpreter(&spins).unwrap(), &[], job(vec![1, 2, 3]), None).unwrap();
    let stop = AtomicBool::new(false);
    assert!(matches!(call.run(Some(1000), &stop), Advance::OutOfBudget));
    assert_eq!(call.instructions(), 1000);
    let stop = AtomicBool::new(true);
    assert!(matches!(call.run(None, &stop), Advance::Done(Err(RunError::Cancelled(Some((1, _)))))));
    // Windows belong to the core only during a call, even if that is abandoned.
    let stop = AtomicBool::new(false);
    let mut core = Core::interpreter(&block).unwrap();
    for most in [4, 1000] {
        let mut call = Call::task(core, &[], job(vec![5, 6, 7]), None).unwrap();
        let advance = call.run(Some(most), &stop);
        assert_eq!(matches!(advance, Advance::Done(Ok(used)) if used == [2, 0]), most == 1000);
        let (again, outputs) = call.finish();
        if most == 1000 {
            assert_eq!(outputs[0], [6, 13]);
        }
        core = again;
    }
}
