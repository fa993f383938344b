//! What any bytes may do to the hart: functions for fuzzing, and for tests with seeded inputs.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test and fuzz target is a crate of its own, and takes what it needs"
)]

use nandarray_hart::{
    Extensions, Hart, Input, Limits, Memory, Mode, Output, Program, Room, Rv32, Rv64, Stop, Streams, Xlen, bare, isa,
};

const CODE: u64 = 0x1000;
const END: u64 = 0x3000;
/// Instructions that are executed of an input.
const LIMIT: u64 = 2000;

/// Any bits as instructions: they decode, are written down, and encode to what they were.
pub fn decoder(data: &[u8]) {
    for word in data.windows(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())) {
        for bits in [32, 64] {
            let op = isa::decode(word, bits, Extensions::ALL);
            assert!(!isa::disassemble(&op).is_empty());
            let long = isa::Op { len: 4, ..op };
            if op.code != isa::Code::Illegal {
                assert_eq!(isa::decode32(isa::encode(&long), bits, Extensions::ALL), Some(long));
            }
        }
    }
}

fn execute_as<X: Xlen>(data: &[u8], mode: Mode) {
    let mut memory = Memory::new();
    let code = &data[..data.len().min((END - CODE) as usize)];
    memory.add_program(CODE, END - CODE, CODE..END, CODE..END).unwrap();
    memory.get_mut(CODE..CODE + code.len() as u64).unwrap().copy_from_slice(code);
    let mut ring = [0; 16];
    let mut streams = Streams::none();
    streams.inputs.push(Input::whole(data));
    streams.outputs.push(Output::new(&mut ring, Room::Width));
    let mut hart = Hart::<X>::new(mode, Extensions::ALL);
    hart.call(CODE, END, &[CODE, CODE + 64, CODE + 512, 3, 5]);
    hart.run(&mut memory, &mut streams, Limits { instructions: Some(LIMIT), stop: None });
    assert!(hart.instructions() <= LIMIT);
}

/// Any bytes as code, in memory that it may also write.
pub fn execute(data: &[u8]) {
    for mode in [Mode::Program, Mode::Bare] {
        execute_as::<Rv32>(data, mode);
        execute_as::<Rv64>(data, mode);
    }
}

/// What is left of a run: the stop, registers, flags, counters, memory.
type Rest = (Stop, Vec<u64>, u8, u64, u64, Vec<u8>, Vec<u8>);

fn run_in_parts<X: Xlen>(data: &[u8], arguments: &[u16], part: u64, counted: bool) -> Rest {
    let code = &data[..data.len().min(1024)];
    let mut window: Vec<u8> = (0..=255).cycle().take(600).collect();
    let mut memory = Memory::new();
    memory.add_program(CODE, END - CODE, CODE + 1024..END, CODE..CODE + 1024).unwrap();
    memory.get_mut(CODE..CODE + code.len() as u64).unwrap().copy_from_slice(code);
    memory.lend_mut(END + 0x1000, &mut window).unwrap();
    let mut hart = Hart::<X>::new(Mode::Program, Extensions::PROGRAM);
    hart.call(CODE, END, &[]);
    if counted {
        hart.count_instructions();
    }
    // Registers point into the program's memory, into the window, and to their edges.
    for (i, value) in (5..32).zip(arguments.iter().cycle()) {
        let base = if i % 2 == 0 { CODE + 1024 } else { END + 0x1000 };
        hart.set_x(i, base + u64::from(*value) % 620);
    }
    let mut left = LIMIT;
    let stop = loop {
        let limits = Limits { instructions: Some(part.min(left)), stop: None };
        let before = hart.instructions();
        let stop = hart.run(&mut memory, &mut Streams::none(), limits);
        left -= hart.instructions() - before;
        if stop != Stop::InstructionLimit || left == 0 {
            break stop;
        }
    };
    let registers = (0..32).map(|i| hart.x(i)).chain((0..32).map(|i| hart.f(i))).collect();
    let own = memory.get(CODE..END).unwrap().to_vec();
    let (fcsr, pc, instructions) = (hart.fcsr(), hart.pc(), hart.instructions());
    let profile = hart.take_profile();
    assert_eq!(profile.total(), if counted { instructions } else { 0 });
    assert!(profile.instructions().all(|(_, _, times)| times <= instructions));
    drop(memory);
    (stop, registers, fcsr, pc, instructions, own, window)
}

/// Any bytes as code: executed in one go, and in parts, counted and not, it comes to the same.
pub fn stepwise(data: &[u8], arguments: &[u16]) {
    let whole = run_in_parts::<Rv64>(data, arguments, LIMIT, false);
    assert_eq!(whole, run_in_parts::<Rv64>(data, arguments, LIMIT, true));
    assert_eq!(whole, run_in_parts::<Rv64>(data, arguments, 1, false));
    assert_eq!(whole, run_in_parts::<Rv64>(data, arguments, 3, true));
    let narrow = run_in_parts::<Rv32>(data, arguments, LIMIT, false);
    assert_eq!(narrow, run_in_parts::<Rv32>(data, arguments, 1, true));
}

/// Any bytes as an ELF file: refused, or loaded and executed.
pub fn elf(data: &[u8]) {
    if let Ok(program) = Program::from_elf(data, Extensions::PROGRAM) {
        let _ = program.load(1 << 16, Some(1 << 24));
        let (at, end) = (program.entry, program.entry.wrapping_add(1));
        let _ = (program.symbol_at(at), program.symbol_at(end));
        let _ = program.load_within(0x1_0000..0x11_0000);
        let span = program.segments.iter().map(|s| s.address + s.length).max().unwrap() - program.segments[0].address;
        if span < 1 << 22 {
            let limits = Limits { instructions: Some(LIMIT), stop: None };
            let _ = bare::run(data, bare::BareOptions { limits, ..Default::default() });
        }
    }
}
