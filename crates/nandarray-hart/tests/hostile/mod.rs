//! Hostile bytes as programs of the hart: functions for fuzzing, and for tests with seeded inputs.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test and fuzz target is a crate of its own, and takes what it needs"
)]

use nandarray_hart::{
    BasicBlock, Class, Counter, DataAccess, ElfProgram, Extensions, Hart, HartMode, InputStream, Limits, Memory, Meter,
    MeterAnswer, OutputStream, Room, Rv32, Rv64, Stop, StreamAccess, Streams, Unmetered, VectorWork, Xlen, isa,
    isa::Instruction,
};

const CODE: u64 = 0x1000;
const END: u64 = 0x3000;
/// Most instructions that are executed for one input.
const LIMIT: u64 = 2000;

/// Decodes any bits as instructions, and checks that they can be disassembled, and that encoding and decoding again
/// restores them.
pub fn decoder(data: &[u8]) {
    for word in data.windows(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())) {
        for bits in [32, 64] {
            let op = isa::decode(word, bits, Extensions::ALL);
            assert!(!isa::disassemble(&op).is_empty());
            let long = isa::Instruction { len: 4, ..op };
            if op.code != isa::Code::Illegal {
                assert_eq!(isa::decode32(isa::encode(&long), bits, Extensions::ALL), Some(long));
            }
        }
    }
}

fn execute_as<X: Xlen>(data: &[u8], mode: HartMode) {
    let mut memory = Memory::new();
    let code = &data[..data.len().min((END - CODE) as usize)];
    memory.add_program(CODE, END - CODE, CODE..END, CODE..END).unwrap();
    memory.get_mut(CODE..CODE + code.len() as u64).unwrap().copy_from_slice(code);
    let mut ring = [0; 16];
    let mut streams = Streams::none();
    streams.inputs.push(InputStream::whole(data));
    streams.outputs.push(OutputStream::new(&mut ring, Room::Width));
    let mut hart = Hart::<X>::new(mode, Extensions::ALL);
    hart.call(CODE, END, &[CODE, CODE + 64, CODE + 512, 3, 5]);
    hart.run(&mut memory, &mut streams, Limits { instructions: Some(LIMIT), stop: None });
    assert!(hart.instructions() <= LIMIT);
}

/// Executes any bytes as code, in memory that the code itself may write.
pub fn execute(data: &[u8]) {
    let modes = [
        HartMode::Program,
        #[cfg(feature = "bare")]
        HartMode::Bare,
    ];
    for mode in modes {
        execute_as::<Rv32>(data, mode);
        execute_as::<Rv64>(data, mode);
    }
}

/// The state after a run: the reason for stopping, registers, flags, program counter, number of instructions, memory,
/// window; the vector registers follow the memory.
type Rest = (Stop, Vec<u64>, u8, u64, u64, Vec<u8>, Vec<u8>);

fn run_in_parts<X: Xlen, M: Meter>(data: &[u8], arguments: &[u16], part: u64, meter: M) -> (Rest, M) {
    let code = &data[..data.len().min(1024)];
    let mut window: Vec<u8> = (0..=255).cycle().take(600).collect();
    let mut memory = Memory::new();
    memory.add_program(CODE, END - CODE, CODE + 1024..END, CODE..CODE + 1024).unwrap();
    memory.get_mut(CODE..CODE + code.len() as u64).unwrap().copy_from_slice(code);
    memory.lend_mut(END + 0x1000, &mut window).unwrap();
    let mut hart = Hart::<X, M>::with_meter(HartMode::Program, Extensions::ALL, meter);
    hart.call(CODE, END, &[]);
    // Registers point into the program's memory, into the window, and near their ends.
    for (i, value) in (5..32).zip(arguments.iter().cycle()) {
        let base = if i % 2 == 0 { CODE + 1024 } else { END + 0x1000 };
        hart.set_x(i, base + u64::from(*value) % 620);
    }
    let (mut ring, mut head, mut written) = ([0; 64], 0, 0);
    let mut left = LIMIT;
    let stop = loop {
        let limits = Limits { instructions: Some(part.min(left)), stop: None };
        let before = hart.instructions();
        let mut streams = Streams::none();
        streams.inputs.push(InputStream::resume(data, head, data.len() as u64, true));
        streams.outputs.push(OutputStream::resume(&mut ring, written, written, Room::Width));
        let stop = hart.run(&mut memory, &mut streams, limits);
        (head, written) = (streams.inputs[0].head(), streams.outputs[0].head());
        left -= hart.instructions() - before;
        if !matches!(stop, Stop::InstructionLimit | Stop::Paused) || left == 0 && stop != Stop::Paused {
            break stop;
        }
    };
    let registers = (0..32).map(|i| hart.x(i)).chain((0..32).map(|i| hart.f(i))).collect();
    let mut own = memory.get(CODE..END).unwrap().to_vec();
    own.extend((0..32).flat_map(|i| hart.v(i)));
    let (fcsr, pc, instructions) = (hart.fcsr(), hart.pc(), hart.instructions());
    drop(memory);
    ((stop, registers, fcsr, pc, instructions, own, window), hart.into_meter())
}

/// A meter that counts the events that it observes, and pauses the hart before accesses chosen at random from a seed.
#[derive(Debug)]
struct Fickle {
    seed: u64,
    /// The meter pauses the hart before one in this number of accesses; never if it is 0.
    pauses: u64,
    blocks: Vec<BasicBlock>,
    /// The block that was entered last.
    last: Option<BasicBlock>,
    branched: Option<bool>,
    executed: u64,
    accesses: u64,
}

impl Fickle {
    fn new(seed: u64, pauses: u64) -> Self {
        Self { seed, pauses, blocks: Vec::new(), last: None, branched: None, executed: 0, accesses: 0 }
    }

    fn begin(&mut self, block: BasicBlock) {
        // The block begins at the target of the branch that was reported before it.
        if let (Some(taken), Some(last)) = (self.branched.take(), &self.last) {
            let to = if taken { last.taken(64) } else { Some(last.next(64)) };
            assert!(to == Some(block.pc) || last.taken(32) == Some(block.pc) || last.next(32) == block.pc);
        }
        self.executed += block.ops.len() as u64;
        self.last = Some(block);
    }

    fn asked(&mut self, index: u32, wanted: &[Class]) -> MeterAnswer {
        let op = self.last.as_ref().unwrap().ops[index as usize];
        assert!(wanted.contains(&op.class()), "{} is none of {wanted:?}", op.row().name);
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if self.pauses > 0 && (self.seed >> 33).is_multiple_of(self.pauses) {
            return MeterAnswer::Pause;
        }
        self.accesses += 1;
        MeterAnswer::Proceed
    }
}

impl Meter for Fickle {
    const BLOCKS: bool = true;
    const BRANCHES: bool = true;
    const ACCESSES: bool = true;
    const STREAMS: bool = true;
    const VECTORS: bool = true;

    fn decoded(&mut self, unit: u32, block: &BasicBlock) {
        self.blocks.truncate(unit as usize);
        self.blocks.push(block.clone());
    }

    fn enter(&mut self, unit: u32) {
        self.begin(self.blocks[unit as usize].clone());
    }

    fn part(&mut self, block: &BasicBlock) {
        self.begin(block.clone());
    }

    fn left(&mut self, block: &BasicBlock, index: usize) {
        assert_eq!(block.pc, self.last.as_ref().unwrap().pc);
        self.executed -= (block.ops.len() - index) as u64;
    }

    fn single(&mut self, _pc: u64, _op: &Instruction) {
        self.executed += 1;
    }

    fn branch(&mut self, taken: bool) {
        self.branched = Some(taken);
    }

    fn access(&mut self, index: u32, kind: DataAccess, _address: u64, bytes: u32) -> MeterAnswer {
        assert!(matches!(bytes, 1 | 2 | 4 | 8));
        self.asked(
            index,
            match kind {
                DataAccess::Load => &[Class::Load, Class::Atomic],
                DataAccess::Store => &[Class::Store],
                DataAccess::Atomic => &[Class::Atomic],
            },
        )
    }

    fn stream(&mut self, index: u32, _kind: StreamAccess, _stream: u8, _position: u64, _bytes: u64) -> MeterAnswer {
        self.asked(index, &[Class::Stream])
    }

    fn vector(&mut self, index: u32, work: &VectorWork) -> MeterAnswer {
        assert!(work.elements <= 8 * 4096, "elements: {}", work.elements);
        self.asked(index, &[Class::Vector])
    }
}

/// Runs the code with a meter that counts, with one that observes everything, and with one that pauses now and then;
/// checks that their results agree, and returns them.
fn metered<X: Xlen>(data: &[u8], arguments: &[u16], part: u64) -> Rest {
    let (rest, mut counter) = run_in_parts::<X, _>(data, arguments, part, Counter::default());
    let profile = counter.take();
    assert_eq!(profile.total(), rest.4);
    assert!(profile.instructions().all(|(_, _, times)| times <= rest.4));
    let (looked, all) = run_in_parts::<X, _>(data, arguments, part, Fickle::new(1, 0));
    let (again, some) = run_in_parts::<X, _>(data, arguments, part, Fickle::new(u64::from(arguments[0]), 3));
    assert_eq!((&looked, &again), (&rest, &rest));
    assert_eq!((all.executed, some.executed), (rest.4, rest.4));
    assert_eq!(all.accesses, some.accesses);
    rest
}

/// Executes any bytes as code in one go and in parts, with meters and without, and checks that all results are the
/// same.
pub fn stepwise(data: &[u8], arguments: &[u16]) {
    let whole = run_in_parts::<Rv64, _>(data, arguments, LIMIT, Unmetered).0;
    assert_eq!(whole, metered::<Rv64>(data, arguments, LIMIT));
    assert_eq!(whole, run_in_parts::<Rv64, _>(data, arguments, 1, Unmetered).0);
    assert_eq!(whole, metered::<Rv64>(data, arguments, 3));
    let narrow = run_in_parts::<Rv32, _>(data, arguments, LIMIT, Unmetered).0;
    assert_eq!(narrow, metered::<Rv32>(data, arguments, 1));
}

/// Parses any bytes as an ELF file, which is rejected, or loaded and executed.
pub fn elf(data: &[u8]) {
    if let Ok(program) = ElfProgram::from_elf(data, Extensions::PROGRAM) {
        let _ = program.load(1 << 16, Some(1 << 24));
        let (at, end) = (program.entry, program.entry.wrapping_add(1));
        let _ = (program.symbol_at(at), program.symbol_at(end));
        #[cfg(feature = "bare")]
        let span = program.segments.iter().map(|s| s.address + s.length).max().unwrap() - program.segments[0].address;
        #[cfg(feature = "bare")]
        if span < 1 << 22 {
            let limits = Limits { instructions: Some(LIMIT), stop: None };
            let options = nandarray_hart::bare::BareOptions { limits, ..Default::default() };
            let _ = nandarray_hart::bare::run(data, options);
        }
    }
}
