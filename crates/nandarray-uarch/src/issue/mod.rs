//! Static timing: the ticks of a block of instructions from a pipeline's state to its state behind the block.
//!
//! A state is what the pipeline still waits for at a block's first instruction: registers and units that are busy for
//! some more ticks, and slots used in the current cycle. States are interned, so that a block's summary from a state is
//! worked out once. A miss freezes the pipeline: time passes and the state stays, so sums over blocks are exact. The
//! blocking and the in-order core are `scoreboard`; the VLIW core, whose blocks are re-scheduled, is `vliw`.

mod scoreboard;
mod vliw;

use std::collections::HashMap;

use nandarray_hart::BasicBlock;
use nandarray_hart::isa::{Format, Instruction};

use crate::describe::{CoreDescription, Issue};
use crate::unit::{FunctionalUnit, Operands};
pub use scoreboard::Scoreboard;

/// An instruction as far as timing goes.
#[derive(Clone, Copy, Debug)]
pub struct TimedOp {
    /// The unit that executes it.
    pub unit: FunctionalUnit,
    /// Registers that it reads and writes.
    pub operands: Operands,
    /// Whether it is a conditional branch.
    pub conditional: bool,
    /// Base register and offset of a memory access, for a scheduler that moves instructions.
    pub address: Option<(u8, i32)>,
}

impl From<&Instruction> for TimedOp {
    fn from(op: &Instruction) -> Self {
        let unit = FunctionalUnit::of(op);
        Self {
            unit,
            operands: Operands::of(op),
            conditional: op.row().format == Format::Branch,
            address: matches!(unit, FunctionalUnit::Load | FunctionalUnit::Store).then_some((op.rs1, op.imm)),
        }
    }
}

/// Ticks of a block by reason; their sum is the block's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// Issue of instructions.
    pub issue: u64,
    /// Operands that were not there.
    pub hazard: u64,
    /// Units that were busy.
    pub structural: u64,
    /// Branches and jumps.
    pub branch: u64,
}

impl Breakdown {
    /// All ticks.
    pub fn total(&self) -> u64 {
        self.issue + self.hazard + self.structural + self.branch
    }

    /// Takes another breakdown back that was added before.
    ///
    /// # Panics
    /// If it was not.
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

/// One way out of a block: by its end, or by its taken branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockExit {
    /// Ticks by reason.
    pub ticks: Breakdown,
    /// Number of the state behind it.
    pub state: u32,
}

/// A block from one state.
#[derive(Clone, Debug)]
pub struct BlockSummary {
    /// Its number of the state before it.
    pub state: u32,
    /// The way out if a conditional branch at its end is not taken, or if there is none.
    pub through: BlockExit,
    /// The way out by a conditional branch that is taken.
    pub taken: BlockExit,
    /// Ticks from the block's beginning to the issue of each instruction.
    pub issue_at: Box<[u32]>,
}

/// A pipeline's state between two blocks, in ticks from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PipelineState {
    /// Registers that are not ready, by number.
    registers: Vec<(u8, u32)>,
    /// Units that take nothing yet.
    units: Vec<(u8, u32)>,
    /// Instructions issued in the current cycle.
    slots: u32,
    /// Whether the current cycle has issued a memory access.
    memory: bool,
}

/// The number of the state of a pipeline that waits for nothing.
pub const AT_REST: u32 = 0;

/// States and summaries of one core.
#[derive(Debug)]
pub struct BlockTimer {
    description: CoreDescription,
    states: Vec<PipelineState>,
    numbers: HashMap<PipelineState, u32>,
}

impl BlockTimer {
    /// No block known, one state.
    pub fn new(description: &CoreDescription) -> Self {
        let rest = PipelineState::default();
        Self { description: description.clone(), states: vec![rest.clone()], numbers: HashMap::from([(rest, AT_REST)]) }
    }

    /// The core's description.
    pub fn description(&self) -> &CoreDescription {
        &self.description
    }

    /// Number of states seen.
    pub fn states(&self) -> usize {
        self.states.len()
    }

    fn number(&mut self, state: PipelineState) -> u32 {
        if let Some(&number) = self.numbers.get(&state) {
            return number;
        }
        let number = u32::try_from(self.states.len()).expect("fewer states than numbers");
        self.states.push(state.clone());
        self.numbers.insert(state, number);
        number
    }

    /// The pipeline of a state.
    pub fn scoreboard(&self, state: u32) -> Scoreboard<'_> {
        Scoreboard::new(&self.description, &self.states[state as usize])
    }

    /// The number of a pipeline's state.
    pub fn keep(&mut self, state: PipelineState) -> u32 {
        self.number(state)
    }

    /// Works out a block from a state.
    pub fn summary(&mut self, block: &BasicBlock, ops: &[TimedOp], state: u32) -> BlockSummary {
        assert_eq!(block.ops.len(), ops.len(), "the block's own instructions");
        if self.description.issue == Issue::Vliw {
            return vliw::summary(self, block, ops, state);
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
