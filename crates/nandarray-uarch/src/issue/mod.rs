//! Static timing: the ticks that a block of instructions takes from a given pipeline state, and the state after the
//! block.
//!
//! A pipeline state is all that the instructions of the next block may have to wait for: registers and units that are
//! busy for some more ticks, and slots used in the current cycle. States are numbered, so that a block's summary from a
//! state is computed once. A cache miss freezes the pipeline: time passes and the state stays, so sums over blocks are
//! exact. `scoreboard` has the blocking and the in-order core; `vliw` has the VLIW core, whose blocks are re-scheduled.

mod scoreboard;
mod vliw;

use std::collections::HashMap;

use nandarray_hart::BasicBlock;
use nandarray_hart::isa::{Code, Format, Instruction};

use crate::describe::{CoreDescription, Issue};
use crate::unit::{FunctionalUnit, Operands};
pub use scoreboard::Scoreboard;

/// An instruction with the properties that its timing depends on.
#[derive(Clone, Copy, Debug)]
pub struct TimedOp {
    /// The unit that executes the instruction.
    pub unit: FunctionalUnit,
    /// Registers that the instruction reads and writes.
    pub operands: Operands,
    /// Whether the instruction is a conditional branch.
    pub conditional: bool,
    /// Base register and offset of a memory access, by which a VLIW schedule decides whether two accesses may overlap;
    /// `None` for other instructions.
    pub address: Option<(u8, i32)>,
    /// Whether the instruction has single precision, so that a VLIW core with pairs executes two of its kind at a time.
    pub single: bool,
    /// Register that only the addition of a fused operation reads; `None` for other instructions.
    pub addend: Option<u8>,
}

impl From<&Instruction> for TimedOp {
    fn from(op: &Instruction) -> Self {
        use FunctionalUnit as Unit;
        let unit = FunctionalUnit::of(op);
        let addend = (op.row().format == Format::FloatFused && ![op.rs1, op.rs2].contains(&op.rs3)).then_some(op.rs3);
        Self {
            unit,
            single: match unit {
                Unit::FloatAdd | Unit::FloatMultiply | Unit::FloatFused => true,
                Unit::Load | Unit::Store => matches!(op.code, Code::Flw | Code::Fsw),
                Unit::Convert => matches!(op.code, Code::FcvtWS | Code::FcvtWuS | Code::FcvtSW | Code::FcvtSWu),
                _ => false,
            },
            addend: addend.map(|register| register + 32),
            operands: Operands::of(op),
            conditional: op.row().format == Format::Branch,
            address: matches!(unit, FunctionalUnit::Load | FunctionalUnit::Store).then_some((op.rs1, op.imm)),
        }
    }
}

/// Ticks of a block by reason; their sum is the block's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// Ticks in which instructions were issued.
    pub issue: u64,
    /// Ticks of waiting for operands that were not ready.
    pub hazard: u64,
    /// Ticks of waiting for units that were busy.
    pub structural: u64,
    /// Ticks that branches and jumps cost.
    pub branch: u64,
}

impl Breakdown {
    /// Returns the sum of all ticks.
    pub fn total(&self) -> u64 {
        self.issue + self.hazard + self.structural + self.branch
    }

    /// Subtracts another breakdown, which was added before.
    ///
    /// # Panics
    /// If the other breakdown has more ticks of a kind than this one.
    pub fn subtract(&mut self, other: &Self) {
        let less = |from: u64, what: u64| from.checked_sub(what).expect("only what was added is taken back");
        self.issue = less(self.issue, other.issue);
        self.hazard = less(self.hazard, other.hazard);
        self.structural = less(self.structural, other.structural);
        self.branch = less(self.branch, other.branch);
    }

    /// Adds another breakdown a number of times.
    pub fn add(&mut self, other: &Self, times: u64) {
        self.issue += other.issue * times;
        self.hazard += other.hazard * times;
        self.structural += other.structural * times;
        self.branch += other.branch * times;
    }
}

/// The result of leaving a block in one way: at its end, or by its taken branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockExit {
    /// Ticks of the block, by reason.
    pub ticks: Breakdown,
    /// Number of the pipeline state after the block.
    pub state: u32,
}

/// The timing of a block from one pipeline state.
#[derive(Clone, Debug)]
pub struct BlockSummary {
    /// Number of the pipeline state before the block.
    pub state: u32,
    /// The exit if the block does not end with a taken conditional branch.
    pub through: BlockExit,
    /// The exit if the conditional branch at the block's end is taken.
    pub taken: BlockExit,
    /// Ticks from the block's beginning to the issue of each instruction.
    pub issue_at: Box<[u32]>,
}

/// A pipeline's state between two blocks. Times are in ticks from the block boundary on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PipelineState {
    /// Registers that are not ready yet: number, and ticks until ready.
    registers: Vec<(u8, u32)>,
    /// Units that accept no instruction yet: number, and ticks until they do.
    units: Vec<(u8, u32)>,
    /// Number of instructions issued in the current cycle.
    slots: u32,
    /// Whether the current cycle has issued a memory access.
    memory: bool,
    /// Whether the current cycle has issued an operation of the vector datapath.
    vector: bool,
    /// The software-pipelined loop of several blocks that the core is in.
    iteration: Option<PipelinedIteration>,
}

/// The rest of an iteration of a software-pipelined loop, behind one of the loop's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PipelinedIteration {
    /// Address of the next block.
    pc: u64,
    ticks: u64,
    ops: u64,
}

/// A loop of several blocks that follow one another: only the last one branches, to the first one.
#[derive(Clone, Debug)]
pub struct StraightLoop {
    /// Address of the first block.
    pub pc: u64,
    /// Instructions of all blocks.
    pub ops: Vec<TimedOp>,
}

/// Number of the pipeline state in which no register and no unit is busy.
pub const AT_REST: u32 = 0;

/// The pipeline states of one core, by number, and the means to compute summaries of blocks.
#[derive(Debug)]
pub struct BlockTimer {
    description: CoreDescription,
    states: Vec<PipelineState>,
    numbers: HashMap<PipelineState, u32>,
}

impl BlockTimer {
    /// Creates a timer that has seen only the state [`AT_REST`].
    pub fn new(description: &CoreDescription) -> Self {
        let rest = PipelineState::default();
        Self { description: description.clone(), states: vec![rest.clone()], numbers: HashMap::from([(rest, AT_REST)]) }
    }

    /// Returns the core's description.
    pub fn description(&self) -> &CoreDescription {
        &self.description
    }

    /// Returns the number of different pipeline states seen so far.
    pub fn states(&self) -> usize {
        self.states.len()
    }

    fn number(&mut self, state: PipelineState) -> u32 {
        if let Some(&number) = self.numbers.get(&state) {
            return number;
        }
        let number = u32::try_from(self.states.len()).expect("fewer states than numbers");
        debug_assert_eq!(self.states.len(), self.numbers.len(), "each state has one number");
        self.states.push(state.clone());
        self.numbers.insert(state, number);
        number
    }

    /// Returns a scoreboard whose pipeline is in this state.
    pub fn scoreboard(&self, state: u32) -> Scoreboard<'_> {
        debug_assert!((state as usize) < self.states.len(), "state {state} of {}", self.states.len());
        Scoreboard::new(&self.description, &self.states[state as usize])
    }

    /// Returns the number of a pipeline state; a new state gets the next number.
    pub fn keep(&mut self, state: PipelineState) -> u32 {
        self.number(state)
    }

    /// Computes the timing of a block from a pipeline state. `ends` is the loop of several blocks that the block ends.
    pub fn summary(
        &mut self,
        block: &BasicBlock,
        ops: &[TimedOp],
        state: u32,
        ends: Option<&StraightLoop>,
    ) -> BlockSummary {
        assert_eq!(block.ops.len(), ops.len(), "the block's own instructions");
        if self.description.issue == Issue::Vliw {
            return vliw::summary(self, block, ops, state, ends);
        }
        let mut board = self.scoreboard(state);
        let issue_at = ops.iter().map(|op| board.issue(op)).collect();
        let through = (board.ticks(), board.state());
        board.take_branch();
        let taken = (board.ticks(), board.state());
        let mut exit = |(ticks, state)| BlockExit { ticks, state: self.number(state) };
        BlockSummary { state, through: exit(through), taken: exit(taken), issue_at }
    }
}
