//! Recorded accesses of real programs, on which prefetchers are compared with second implementations (tests only).

use nandarray_hart::isa::Instruction;
use nandarray_hart::{
    BasicBlock, DataAccess, ElfProgram, Extensions, Hart, HartMode, Limits, Meter, MeterAnswer, Rv64, Stop, Streams,
};

/// Number of accesses that a trace has at most.
const ACCESSES_MAX: usize = 20_000;

/// The address of each instruction that accessed memory, and the address that it accessed, in order.
#[derive(Debug, Default)]
struct AccessTrace {
    pc: u64,
    all: Vec<(u64, u64)>,
}

impl Meter for AccessTrace {
    const BLOCKS: bool = true;
    const ACCESSES: bool = true;

    fn part(&mut self, block: &BasicBlock) {
        self.pc = block.pc;
    }
    fn single(&mut self, pc: u64, op: &Instruction) {
        panic!("{op:?} at {pc:#x} is no instruction of a block");
    }
    fn access(&mut self, _index: u32, _kind: DataAccess, address: u64, _bytes: u32) -> MeterAnswer {
        self.all.push((self.pc, address));
        MeterAnswer::Proceed
    }
}

/// Records the accesses of four of the programs whose cache counts are compared with Spike's: a walk with a stride,
/// random reads and writes, a product of matrices, and a list in random order.
pub(super) fn recorded() -> impl Iterator<Item = Vec<(u64, u64)>> {
    ["01", "02", "03", "06"].into_iter().map(|name| {
        let path = format!("{}/tests/spike/built/{name}.elf", env!("CARGO_MANIFEST_DIR"));
        let program = ElfProgram::from_elf(&std::fs::read(path).unwrap(), Extensions::PROGRAM).unwrap();
        let spin = program.symbol("spin").expect("the endless loop at its end");
        let mut loaded = program.load(4096, None).unwrap();
        let mut hart = Hart::<Rv64, _>::with_meter(HartMode::Program, Extensions::PROGRAM, AccessTrace::default());
        hart.call(program.entry, loaded.stack, &[]);
        while hart.pc() != spin && hart.meter().all.len() < ACCESSES_MAX {
            let limits = Limits { instructions: Some(1), stop: None };
            assert_eq!(hart.run(&mut loaded.memory, &mut Streams::none(), limits), Stop::InstructionLimit);
        }
        assert!(hart.meter().all.len() > 1_000, "program {name}");
        std::mem::take(&mut hart.meter_mut().all)
    })
}
