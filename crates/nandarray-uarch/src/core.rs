//! A timed core: a meter that counts the ticks that a described core takes for what a hart executes.
//!
//! Blocks are worked out once and from then on cost an addition ([`crate::issue`]); accesses go through the caches
//! ([`crate::hierarchy`]), and what they wait is added: a miss freezes the pipeline. Instructions in blocks that are
//! left early, or cut short by a limit, are timed one by one.
//!
//! Where memory is shared with others, an access that needs it pauses the hart: [`TimedCore::request`] has what it
//! needs, and [`TimedCore::grant`] says until when it waits. All other work of a core is private, so it may run ahead.

use std::ops::Range;

use nandarray_hart::isa::Instruction;
use nandarray_hart::{BasicBlock, DataAccess, Meter, MeterAnswer, StreamAccess};

use crate::account::{AddressTicks, InstructionTicks, SingleAccount, split};
use crate::describe::{CoreDescription, DescribeError};
use crate::feed::{CoreNeed, TaskFeed};
use crate::hierarchy::{CacheSide, Hierarchy, LineRequest};
use crate::issue::{AT_REST, BlockSummary, BlockTimer, Breakdown, TimedOp};
use crate::report::{CoreReport, Frozen};
use crate::unit::FunctionalUnit;

/// A block as it was decoded, with its summaries.
#[derive(Debug)]
struct TimedBlock {
    block: BasicBlock,
    ops: Vec<TimedOp>,
    /// Summaries by state, with the times that each was entered, and left by its taken branch.
    known: Vec<(BlockSummary, u64, u64)>,
    /// The summary used last.
    last: usize,
    /// First byte of its code, and the one behind the last.
    code: Range<u64>,
    /// Ticks for which each of its instructions froze the pipeline.
    frozen: Vec<u64>,
}

/// The block that was entered last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CurrentBlock {
    /// None yet, or one that is over.
    Nothing,
    /// A block with a number: its unit and summary.
    Numbered(u32, u32),
    /// Instructions timed one by one, with the ticks and the state of a taken branch.
    Single {
        /// State before them.
        before: u32,
        through: Breakdown,
        taken: Breakdown,
        /// State behind a taken branch.
        taken_state: u32,
    },
}

/// The meter of a described core.
#[derive(Debug)]
pub struct TimedCore {
    timing: BlockTimer,
    units: Vec<TimedBlock>,
    hierarchy: Hierarchy,
    scratchpad: Range<u64>,
    feed: TaskFeed,
    /// The need of a pause that has nothing to do with lines.
    paused_for: Option<CoreNeed>,
    now: u64,
    /// Time at which the current block began, without what froze the pipeline since.
    began: u64,
    state: u32,
    current: CurrentBlock,
    /// Ticks of instructions timed one by one, and of blocks that were dropped.
    settled: Breakdown,
    settled_units: [u64; FunctionalUnit::COUNT],
    singles: SingleAccount,
    /// Ticks from the beginning of instructions timed one by one to the issue of each.
    issued: Vec<u32>,
    /// Address of the instruction that was to be executed when the hart last left a block.
    left_at: u64,
    frozen: Frozen,
    /// Memory has answered: the access is executed when the hart repeats it.
    granted: bool,
    /// Time of the request that the core waits for.
    waits: Option<u64>,
    fetched: u64,
}

impl TimedCore {
    /// A core at time 0 with empty caches and memory of its own.
    pub fn new(description: &CoreDescription) -> Self {
        Self::with(description, false)
    }

    /// The same before memory that it shares: accesses that need it pause the hart.
    pub fn shared(description: &CoreDescription) -> Self {
        Self::with(description, true)
    }

    /// A core of a preset.
    ///
    /// # Errors
    /// [`DescribeError::Unknown`].
    pub fn preset(name: &str) -> Result<Self, DescribeError> {
        Ok(Self::new(&CoreDescription::preset(name)?))
    }

    fn with(description: &CoreDescription, shared: bool) -> Self {
        Self {
            timing: BlockTimer::new(description),
            units: Vec::new(),
            hierarchy: Hierarchy::new(description, shared),
            scratchpad: 0..0,
            feed: TaskFeed::default(),
            paused_for: None,
            now: 0,
            began: 0,
            state: AT_REST,
            current: CurrentBlock::Nothing,
            settled: Breakdown::default(),
            settled_units: [0; FunctionalUnit::COUNT],
            singles: SingleAccount::default(),
            issued: Vec::new(),
            left_at: 0,
            frozen: Frozen::default(),
            granted: false,
            waits: None,
            fetched: u64::MAX,
        }
    }

    /// Addresses that are the scratchpad's.
    pub fn set_scratchpad(&mut self, addresses: Range<u64>) {
        self.scratchpad = addresses;
    }

    /// The data of the task that comes next.
    pub fn set_feed(&mut self, feed: TaskFeed) {
        self.feed = feed;
    }

    /// The data of its task.
    pub fn feed_mut(&mut self) -> &mut TaskFeed {
        &mut self.feed
    }

    /// The reason for which the hart has paused, and the tick of it.
    pub fn need(&mut self) -> (u64, CoreNeed) {
        match self.paused_for.take() {
            Some(need) => (self.now, need),
            None => {
                let request = self.hierarchy.take_request();
                (request.at, CoreNeed::Lines(request))
            }
        }
    }

    /// A line that a prefetcher requested of shared memory arrives at this tick.
    pub fn prefetched(&mut self, line: u64, at: u64) {
        self.hierarchy.arrives(line, at);
    }

    /// The core's description.
    pub fn description(&self) -> &CoreDescription {
        self.timing.description()
    }

    /// Ticks so far.
    pub fn ticks(&self) -> u64 {
        self.now
    }

    /// The lines that the core waits for, or has given back, since this was asked last.
    pub fn request(&mut self) -> LineRequest {
        self.hierarchy.take_request()
    }

    /// Shared memory answers: the core goes on at this tick.
    ///
    /// # Panics
    /// If the core waits for nothing, or the tick is over.
    pub fn grant(&mut self, at: u64) {
        let since = self.waits.take().expect("a grant to a core that waits for nothing");
        let waited = at.checked_sub(since).unwrap_or_else(|| panic!("a grant at tick {at}, requested at {since}"));
        self.frozen.data.memory += waited;
        self.singles.freeze(self.left_at, waited);
        self.freeze(waited);
        self.granted = true;
    }

    /// The core waited for a stream until this tick.
    ///
    /// # Panics
    /// If the tick is over.
    pub fn wait_until(&mut self, at: u64) {
        assert!(at >= self.now, "a wait until tick {at}, which was before {}", self.now);
        self.frozen.stream_wait += at - self.now;
        self.singles.freeze(self.left_at, at - self.now);
        self.now = at;
    }

    /// The figures so far.
    pub fn report(&self) -> CoreReport {
        let (mut ticks, mut units) = (self.settled, self.settled_units);
        for unit in &self.units {
            settle(unit, &mut ticks, &mut units);
        }
        let d = self.description();
        CoreReport::new(d, self.now, ticks, self.frozen, units, self.hierarchy.counts(), self.hierarchy.memory_counts())
    }

    /// Executions and ticks by address; their sum is [`ticks`](Self::ticks).
    pub fn addresses(&self) -> AddressTicks {
        let mut all = self.singles.clone();
        self.units.iter().for_each(|unit| all.settle(&unit.addresses()));
        let all = all.all();
        debug_assert_eq!(all.values().map(|t| t.total()).sum::<u64>(), self.now, "every tick has an address");
        all
    }

    fn freeze(&mut self, ticks: u64) {
        self.now += ticks;
        self.began += ticks;
    }

    /// The pipeline is frozen by an instruction of the current block.
    #[inline]
    fn freeze_at(&mut self, index: u32, ticks: u64) {
        self.freeze(ticks);
        match self.current {
            CurrentBlock::Numbered(unit, _) => self.units[unit as usize].frozen[index as usize] += ticks,
            CurrentBlock::Single { .. } | CurrentBlock::Nothing => {
                let pc = self.singles.address(index as usize);
                self.singles.freeze(pc, ticks);
            }
        }
    }

    /// Fetches the lines of some code; ticks for which that froze the pipeline.
    fn fetch(&mut self, code: Range<u64>) -> u64 {
        let Some(line) = self.hierarchy.instruction_line_bytes() else { return 0 };
        let before = self.now;
        let mut at = code.start & !(line - 1);
        while at < code.end {
            // The line fetched last is the most recent one of its set: nothing changes.
            if at != self.fetched {
                let stored = self.feed.address(at);
                let stall = self.hierarchy.access(self.now, CacheSide::Instruction, at, stored, 1, false);
                self.fetched = at;
                self.frozen.fetch.add(stall);
                self.freeze(stall.total());
            }
            at += line;
        }
        self.now - before
    }

    fn summary(&mut self, unit: u32) -> usize {
        let (state, timed) = (self.state, &mut self.units[unit as usize]);
        if timed.known.get(timed.last).is_some_and(|(summary, ..)| summary.state == state) {
            return timed.last;
        }
        timed.last = match timed.known.iter().position(|(summary, ..)| summary.state == state) {
            Some(at) => at,
            None => {
                let summary = self.timing.summary(&timed.block, &timed.ops, state);
                timed.known.push((summary, 0, 0));
                timed.known.len() - 1
            }
        };
        timed.last
    }

    /// Times instructions one by one from the present state.
    fn step<'o>(&mut self, mut pc: u64, ops: impl Iterator<Item = &'o Instruction>) {
        let before = self.state;
        let mut board = self.timing.scoreboard(before);
        self.singles.begin();
        self.issued.clear();
        for instruction in ops {
            let op = TimedOp::from(instruction);
            let began = board.ticks().total();
            self.issued.push(board.issue(&op));
            self.settled_units[op.unit as usize] += 1;
            self.singles.note(pc, board.ticks().total() - began);
            pc = pc.wrapping_add(u64::from(instruction.len));
        }
        let (through, state) = (board.ticks(), board.state());
        board.take_branch();
        let (taken, taken_state) = (board.ticks(), board.state());
        self.state = self.timing.keep(state);
        let taken_state = self.timing.keep(taken_state);
        self.began = self.now;
        self.now += through.total();
        self.settled.add(&through, 1);
        self.current = CurrentBlock::Single { before, through, taken, taken_state };
    }

    /// Time at which instruction `index` of the current block is issued.
    fn issued_at(&self, index: u32) -> u64 {
        match self.current {
            CurrentBlock::Numbered(unit, summary) => {
                let (summary, ..) = &self.units[unit as usize].known[summary as usize];
                self.began + u64::from(summary.issue_at[index as usize])
            }
            CurrentBlock::Single { .. } => {
                self.issued.get(index as usize).map_or(self.now, |&at| self.began + u64::from(at))
            }
            CurrentBlock::Nothing => self.now,
        }
    }

    fn pc_of(&self, index: u32) -> u64 {
        match self.current {
            CurrentBlock::Numbered(unit, _) => {
                let timed = &self.units[unit as usize];
                // Blocks of four-byte instructions are the usual ones.
                if timed.code.end - timed.code.start == 4 * timed.ops.len() as u64 {
                    timed.code.start + 4 * u64::from(index)
                } else {
                    timed.block.address(index as usize)
                }
            }
            CurrentBlock::Single { .. } => self.singles.address(index as usize),
            CurrentBlock::Nothing => 0,
        }
    }
}

impl TimedBlock {
    /// Executions and ticks by address.
    fn addresses(&self) -> AddressTicks {
        let mut ticks = vec![0; self.ops.len()];
        let mut times = 0;
        for (summary, entered, taken) in &self.known {
            times += entered;
            for (exit, times) in [(&summary.through, entered - taken), (&summary.taken, *taken)] {
                for (op, each) in split(&summary.issue_at, exit).into_iter().enumerate() {
                    ticks[op] += each * times;
                }
            }
        }
        let entry = |op: usize| {
            let frozen = self.frozen[op];
            (self.block.address(op), InstructionTicks { times, pipeline: ticks[op], frozen })
        };
        (0..self.ops.len()).map(entry).filter(|(_, found)| found.times > 0 || found.total() > 0).collect()
    }
}

/// Adds the ticks and instructions of a block's entries.
fn settle(timed: &TimedBlock, ticks: &mut Breakdown, units: &mut [u64; FunctionalUnit::COUNT]) {
    for (summary, entered, taken) in &timed.known {
        ticks.add(&summary.through.ticks, entered - taken);
        ticks.add(&summary.taken.ticks, *taken);
        for op in &timed.ops {
            units[op.unit as usize] += entered;
        }
    }
}

impl Meter for TimedCore {
    const BLOCKS: bool = true;
    const BRANCHES: bool = true;
    const ACCESSES: bool = true;
    const STREAMS: bool = true;

    fn decoded(&mut self, unit: u32, block: &BasicBlock) {
        let ops = block.ops.iter().map(TimedOp::from).collect();
        let (code, frozen) = (block.pc..block.pc + block.bytes(), vec![0; block.ops.len()]);
        let timed = TimedBlock { block: block.clone(), ops, known: Vec::new(), last: 0, code, frozen };
        match self.units.get_mut(unit as usize) {
            Some(old) => {
                let old = std::mem::replace(old, timed);
                settle(&old, &mut self.settled, &mut self.settled_units);
                self.singles.settle(&old.addresses());
                if matches!(self.current, CurrentBlock::Numbered(number, _) if number == unit) {
                    self.current = CurrentBlock::Nothing;
                }
            }
            None => {
                assert_eq!(self.units.len(), unit as usize, "blocks are numbered one after the other");
                self.units.push(timed);
            }
        }
    }

    #[inline]
    fn enter(&mut self, unit: u32) {
        let code = &self.units[unit as usize].code;
        let (start, end) = (code.start, code.end);
        let fetched = self.fetch(start..end);
        self.units[unit as usize].frozen[0] += fetched;
        let at = self.summary(unit);
        let (summary, entered, _) = &mut self.units[unit as usize].known[at];
        *entered += 1;
        self.began = self.now;
        self.now += summary.through.ticks.total();
        self.state = summary.through.state;
        self.current = CurrentBlock::Numbered(unit, at as u32);
    }

    fn part(&mut self, block: &BasicBlock) {
        let fetched = self.fetch(block.pc..block.pc + block.bytes());
        self.singles.freeze(block.pc, fetched);
        self.step(block.pc, block.ops.iter());
    }

    fn left(&mut self, block: &BasicBlock, index: usize) {
        match self.current {
            CurrentBlock::Numbered(unit, at) => {
                let (summary, entered, _) = &mut self.units[unit as usize].known[at as usize];
                *entered -= 1;
                self.now -= summary.through.ticks.total();
                self.state = summary.state;
            }
            CurrentBlock::Single { before, through, .. } => {
                self.now -= through.total();
                self.settled.subtract(&through);
                for op in &block.ops {
                    self.settled_units[FunctionalUnit::of(op) as usize] -= 1;
                }
                self.state = before;
                self.singles.take_back();
            }
            CurrentBlock::Nothing => {}
        }
        self.left_at = block.address(index);
        self.step(block.pc, block.ops[..index].iter());
    }

    fn single(&mut self, pc: u64, op: &Instruction) {
        self.step(pc, std::iter::once(op));
    }

    #[inline]
    fn branch(&mut self, taken: bool) {
        if !taken {
            return;
        }
        match self.current {
            CurrentBlock::Numbered(unit, at) => {
                let (summary, _, left) = &mut self.units[unit as usize].known[at as usize];
                *left += 1;
                self.now = self.now - summary.through.ticks.total() + summary.taken.ticks.total();
                self.state = summary.taken.state;
            }
            CurrentBlock::Single { through, taken, taken_state, .. } => {
                self.now = self.now - through.total() + taken.total();
                self.settled.add(&taken, 1);
                self.settled.subtract(&through);
                self.singles.taken(taken.total() - through.total());
                self.state = taken_state;
            }
            CurrentBlock::Nothing => {}
        }
    }

    #[inline]
    fn access(&mut self, index: u32, kind: DataAccess, address: u64, bytes: u32) -> MeterAnswer {
        if self.granted {
            self.granted = false;
            return MeterAnswer::Proceed;
        }
        if let Some(need) = self.feed.access(address, u64::from(bytes)) {
            self.paused_for = Some(need);
            return MeterAnswer::Pause;
        }
        if self.scratchpad.contains(&address) {
            let ticks = u64::from(self.timing.description().t_scratchpad);
            self.frozen.scratchpad += ticks;
            self.freeze_at(index, ticks);
            return MeterAnswer::Proceed;
        }
        if !self.hierarchy.caches_data() {
            return MeterAnswer::Proceed;
        }
        let at = self.issued_at(index);
        let pc = self.pc_of(index);
        let write = kind != DataAccess::Load;
        let stored = self.feed.address(address);
        let stall = self.hierarchy.access(at, CacheSide::Data, pc, stored, u64::from(bytes), write);
        self.frozen.data.add(stall);
        if stall.total() > 0 {
            self.freeze_at(index, stall.total());
        }
        let since = at + stall.total();
        if self.hierarchy.pauses(since) {
            self.waits = Some(since);
            return MeterAnswer::Pause;
        }
        MeterAnswer::Proceed
    }

    #[inline]
    fn stream(&mut self, index: u32, kind: StreamAccess, stream: u8, position: u64, bytes: u64) -> MeterAnswer {
        let number = usize::from(stream);
        let need = match kind {
            StreamAccess::Load => self.feed.read(number, position, bytes, true),
            StreamAccess::LookIn | StreamAccess::Wait => self.feed.read(number, position, bytes, false),
            StreamAccess::Store => self.feed.store(number, position),
            StreamAccess::LookOut | StreamAccess::Register => None,
        };
        if need.is_some() {
            self.paused_for = need;
            return MeterAnswer::Pause;
        }
        if !matches!(kind, StreamAccess::Wait | StreamAccess::Register) {
            let ticks = u64::from(self.timing.description().t_stream);
            self.frozen.stream += ticks;
            self.freeze_at(index, ticks);
        }
        MeterAnswer::Proceed
    }
}
