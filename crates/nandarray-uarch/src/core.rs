//! A timed core: a meter that counts the ticks that a described core would take for the instructions that a hart
//! executes.
//!
//! The timing of a block is computed once and costs an addition from then on ([`crate::issue`]). Accesses go through
//! the caches ([`crate::hierarchy`]), whose stalls are added: a miss freezes the pipeline. Instructions in blocks that
//! the hart leaves early, or that a limit cuts short, are timed one by one.
//!
//! A core that shares memory with others pauses the hart at an access that needs the memory: [`TimedCore::request`]
//! returns the lines that it needs, and [`TimedCore::grant`] sets the tick at which the core goes on. Everything else
//! that a core does is private, so a core may run ahead of the others in modelled time.

use std::ops::Range;

use nandarray_hart::isa::Instruction;
use nandarray_hart::{BasicBlock, DataAccess, Meter, MeterAnswer, StreamAccess, VectorWork};

use crate::account::{AddressTicks, SingleAccount};
use crate::blocks::{BlockTable, SEVERAL_LINES};
use crate::describe::{CoreDescription, DescribeError};
use crate::feed::{CoreNeed, TaskFeed};
use crate::hierarchy::{CacheSide, Hierarchy, LineRequest};
use crate::issue::{AT_REST, BlockTimer, Breakdown, TimedOp};
use crate::report::{CoreReport, Frozen};
use crate::unit::FunctionalUnit;

mod vector;

use vector::VectorMeter;

/// Value of `current` before any block was entered, in place of an entry's number.
const NOTHING: u32 = u32::MAX;
/// Value of `current` for instructions timed one by one, in place of an entry's number.
const SINGLE: u32 = u32::MAX - 1;

/// The timing of instructions timed one by one, with and without a taken branch at their end.
#[derive(Clone, Copy, Debug, Default)]
struct SingleBlock {
    /// Number of the pipeline state before the instructions.
    before: u32,
    through: Breakdown,
    taken: Breakdown,
    /// Number of the pipeline state after a taken branch.
    taken_state: u32,
}

/// The meter of a described core: counts its ticks while a hart executes.
#[derive(Debug)]
pub struct TimedCore {
    timing: BlockTimer,
    blocks: BlockTable,
    hierarchy: Hierarchy,
    scratchpad: Range<u64>,
    feed: TaskFeed,
    /// Whether an access may have to do with more than the cache: the scratchpad, an input window whose bytes are still
    /// arriving, or a grant of shared memory.
    is_gated: bool,
    /// The reason for which the hart paused, if it is not a request for lines of memory.
    paused_for: Option<CoreNeed>,
    now: u64,
    /// Tick at which the current block began, moved forward by the ticks for which the pipeline was frozen since.
    began: u64,
    state: u32,
    /// Number of the entry of the current block, or [`NOTHING`] or [`SINGLE`].
    current: u32,
    /// Index of the current block's first instruction in the row of frozen ticks ([`BlockTable`]), or [`NOTHING`].
    first_op: u32,
    single: SingleBlock,
    /// Ticks of instructions timed one by one, and of blocks that were dropped.
    settled: Breakdown,
    settled_units: [u64; FunctionalUnit::COUNT],
    singles: SingleAccount,
    /// Ticks from the first of the instructions timed one by one to the issue of each of them.
    issued: Vec<u32>,
    /// Address of the instruction that was to be executed when the hart last left a block.
    left_at: u64,
    frozen: Frozen,
    /// Whether shared memory has answered: the hart repeats the access, which then proceeds.
    granted: bool,
    /// Tick at which the core requested the lines that it waits for; `None` if it does not wait.
    waits: Option<u64>,
    fetched: u64,
    vector: VectorMeter,
}

impl TimedCore {
    /// Creates a core at tick 0 with empty caches and memory of its own.
    pub fn new(description: &CoreDescription) -> Self {
        Self::with(description, false)
    }

    /// Creates a core at tick 0 with empty caches whose memory is shared: accesses that need the memory pause the hart.
    pub fn shared(description: &CoreDescription) -> Self {
        Self::with(description, true)
    }

    /// Creates a core from a preset description; [`PRESETS`](crate::PRESETS) lists them.
    ///
    /// # Errors
    /// [`DescribeError::Unknown`]: no preset has this name.
    pub fn preset(name: &str) -> Result<Self, DescribeError> {
        Ok(Self::new(&CoreDescription::preset(name)?))
    }

    fn with(description: &CoreDescription, shared: bool) -> Self {
        Self {
            timing: BlockTimer::new(description),
            blocks: BlockTable::default(),
            hierarchy: Hierarchy::new(description, shared),
            scratchpad: 0..0,
            feed: TaskFeed::default(),
            is_gated: false,
            paused_for: None,
            now: 0,
            began: 0,
            state: AT_REST,
            current: NOTHING,
            first_op: NOTHING,
            single: SingleBlock::default(),
            settled: Breakdown::default(),
            settled_units: [0; FunctionalUnit::COUNT],
            singles: SingleAccount::default(),
            issued: Vec::new(),
            left_at: 0,
            frozen: Frozen::default(),
            granted: false,
            waits: None,
            fetched: u64::MAX,
            vector: VectorMeter::new(description),
        }
    }

    /// Sets the addresses of the scratchpad, whose accesses go through no cache.
    pub fn set_scratchpad(&mut self, addresses: Range<u64>) {
        self.scratchpad = addresses;
        self.gate();
    }

    /// Sets the inputs and outputs of the next task.
    pub fn set_feed(&mut self, feed: TaskFeed) {
        self.feed = feed;
        self.gate();
    }

    fn gate(&mut self) {
        self.is_gated = self.granted || !self.scratchpad.is_empty() || self.feed.has_windows();
    }

    /// The inputs and outputs of the current task.
    pub fn feed_mut(&mut self) -> &mut TaskFeed {
        &mut self.feed
    }

    /// Returns why the hart paused, with the tick of the pause, and forgets it: call it once for each pause.
    pub fn need(&mut self) -> (u64, CoreNeed) {
        match self.paused_for.take() {
            Some(need) => (self.now, need),
            None => {
                let request = self.hierarchy.take_request();
                (request.at, CoreNeed::Lines(request))
            }
        }
    }

    /// Notes that a line which a prefetcher requested from shared memory arrives at tick `at`.
    pub fn prefetched(&mut self, line: u64, at: u64) {
        self.hierarchy.arrives(line, at);
    }

    /// The core's description.
    pub fn description(&self) -> &CoreDescription {
        self.timing.description()
    }

    /// Number of ticks so far.
    pub fn ticks(&self) -> u64 {
        self.now
    }

    /// Returns the lines that the core waits for or has written back since the last call, and clears this list.
    pub fn request(&mut self) -> LineRequest {
        self.hierarchy.take_request()
    }

    /// Ends a wait for shared memory: the core goes on at tick `at`.
    ///
    /// # Panics
    /// If the core waits for nothing, or made its request after tick `at`.
    pub fn grant(&mut self, at: u64) {
        let since = self.waits.take().expect("a grant to a core that waits for nothing");
        let waited = at.checked_sub(since).unwrap_or_else(|| panic!("a grant at tick {at}, requested at {since}"));
        self.frozen.data.memory += waited;
        self.singles.freeze(self.left_at, waited);
        self.freeze(waited);
        (self.granted, self.is_gated) = (true, true);
    }

    /// Records that the core waited for a stream until tick `at`.
    ///
    /// # Panics
    /// If `at` is before the core's present tick.
    pub fn wait_until(&mut self, at: u64) {
        assert!(at >= self.now, "a wait until tick {at}, which was before {}", self.now);
        self.frozen.stream_wait += at - self.now;
        self.singles.freeze(self.left_at, at - self.now);
        self.now = at;
    }

    /// Returns the core's figures so far.
    pub fn report(&self) -> CoreReport {
        let (mut ticks, mut units) = (self.settled, self.settled_units);
        self.blocks.settle(&mut ticks, &mut units);
        let d = self.description();
        let counts = (self.hierarchy.counts(), self.hierarchy.memory_counts(), self.vector.counts());
        CoreReport::new(d, self.now, ticks, self.frozen, units, counts)
    }

    /// Returns executions and ticks by the address of the instruction; all ticks add up to [`ticks`](Self::ticks).
    pub fn addresses(&self) -> AddressTicks {
        let mut all = self.singles.clone();
        self.blocks.addresses().for_each(|block| all.settle(&block));
        let all = all.all();
        debug_assert_eq!(all.values().map(|t| t.total()).sum::<u64>(), self.now, "every tick has an address");
        all
    }

    fn freeze(&mut self, ticks: u64) {
        self.now += ticks;
        self.began += ticks;
    }

    /// Freezes the pipeline for some ticks, by an instruction of the current block.
    #[inline]
    fn freeze_at(&mut self, index: u32, ticks: u64) {
        self.freeze(ticks);
        if !self.blocks.freeze(self.first_op.saturating_add(index), ticks) {
            let pc = self.singles.address(index as usize);
            self.singles.freeze(pc, ticks);
        }
    }

    /// Fetches the cache lines of some code; returns the ticks for which this froze the pipeline.
    fn fetch(&mut self, code: Range<u64>) -> u64 {
        let Some(line) = self.hierarchy.instruction_line_bytes() else { return 0 };
        let before = self.now;
        let mut at = code.start & !(line - 1);
        while at < code.end {
            // The line fetched last is the most recent one of its set: another access to it changes nothing.
            let stored = self.feed.address(at);
            if at == self.fetched {
            } else if self.hierarchy.code_hits(stored) {
                let ticks = self.hierarchy.t_code_hit();
                self.fetched = at;
                self.frozen.fetch.l1 += ticks;
                self.freeze(ticks);
            } else {
                let stall = self.hierarchy.access(self.now, CacheSide::Instruction, at, stored, 1, false);
                self.fetched = at;
                self.frozen.fetch.add(stall);
                self.freeze(stall.total());
            }
            at += line;
        }
        self.now - before
    }

    /// Times instructions one by one, beginning in the current pipeline state.
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
        (self.current, self.first_op) = (SINGLE, NOTHING);
        self.single = SingleBlock { before, through, taken, taken_state };
    }

    /// Returns the tick at which instruction `index` of the current block is issued.
    fn issued_at(&self, index: u32) -> u64 {
        let singly = || self.issued.get(index as usize).filter(|_| self.current == SINGLE).copied();
        let issued = self.blocks.issue_at(self.current, index).or_else(singly);
        issued.map_or(self.now, |at| self.began + u64::from(at))
    }

    fn pc_of(&self, index: u32) -> u64 {
        match self.current {
            NOTHING => 0,
            SINGLE => self.singles.address(index as usize),
            _ => self.blocks.address(self.first_op + index).expect("an instruction of a block"),
        }
    }

    /// Handles an access to a scratchpad or to a window whose bytes are still arriving, or one repeated after a grant.
    /// Returns `None` if the access is none of these and goes on to the cache.
    fn gated(&mut self, index: u32, address: u64, bytes: u32) -> Option<MeterAnswer> {
        if self.granted {
            self.granted = false;
            self.gate();
            return Some(MeterAnswer::Proceed);
        }
        if let Some(need) = self.feed.access(address, u64::from(bytes)) {
            self.paused_for = Some(need);
            return Some(MeterAnswer::Pause);
        }
        if self.scratchpad.contains(&address) {
            let ticks = u64::from(self.timing.description().t_scratchpad);
            self.frozen.scratchpad += ticks;
            self.freeze_at(index, ticks);
            return Some(MeterAnswer::Proceed);
        }
        None
    }

    /// Performs a data access that is not a plain hit: adds the stall, and pauses the hart if shared memory has to
    /// answer.
    fn looked_up(&mut self, index: u32, write: bool, address: u64, bytes: u32) -> MeterAnswer {
        let at = self.issued_at(index);
        let pc = if self.hierarchy.notes_addresses() { self.pc_of(index) } else { 0 };
        let stall = self.hierarchy.access(at, CacheSide::Data, pc, address, u64::from(bytes), write);
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
}

impl Meter for TimedCore {
    const BLOCKS: bool = true;
    const BRANCHES: bool = true;
    const ACCESSES: bool = true;
    const STREAMS: bool = true;
    const VECTORS: bool = true;

    fn decoded(&mut self, unit: u32, block: &BasicBlock) {
        if unit == 0 && self.blocks.len() > 0 {
            // The hart dropped all blocks, and numbers new ones from 0: keep the figures of the old ones.
            let old = std::mem::take(&mut self.blocks);
            old.settle(&mut self.settled, &mut self.settled_units);
            old.addresses().for_each(|block| self.singles.settle(&block));
            (self.current, self.first_op) = (NOTHING, NOTHING);
        }
        let (first, last) = (block.pc, block.pc + block.bytes() - 1);
        let line = match self.hierarchy.instruction_line_bytes() {
            // Equal to the initial value of the line fetched last, so that nothing is ever fetched.
            None => u64::MAX,
            Some(line) if first / line == last / line => first / line * line,
            Some(_) => SEVERAL_LINES,
        };
        self.blocks.add(unit, block, line);
    }

    #[inline]
    fn enter(&mut self, unit: u32) {
        if self.blocks.line(unit) != self.fetched {
            let fetched = self.fetch(self.blocks.code(unit));
            if fetched > 0 {
                self.blocks.freeze_first(unit, fetched);
            }
        }
        let number = self.blocks.enter(unit, self.state, &mut self.timing);
        let entry = self.blocks.entry(number).expect("an entry by its number");
        self.began = self.now;
        self.now += entry.through;
        self.state = entry.through_state;
        self.first_op = entry.first_op;
        self.current = number;
    }

    fn part(&mut self, block: &BasicBlock) {
        let fetched = self.fetch(block.pc..block.pc + block.bytes());
        self.singles.freeze(block.pc, fetched);
        self.step(block.pc, block.ops.iter());
    }

    fn left(&mut self, block: &BasicBlock, index: usize) {
        match self.current {
            NOTHING => {}
            SINGLE => {
                let SingleBlock { before, through, .. } = self.single;
                self.now -= through.total();
                self.settled.subtract(&through);
                for op in &block.ops {
                    self.settled_units[FunctionalUnit::of(op) as usize] -= 1;
                }
                self.state = before;
                self.singles.take_back();
            }
            number => {
                self.now -= self.blocks.entry(number).expect("the current entry").through;
                self.state = self.blocks.leave(number);
            }
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
        if let Some(entry) = self.blocks.take(self.current) {
            self.now = self.now.wrapping_add(entry.more);
            self.state = entry.taken_state;
        } else if self.current == SINGLE {
            let SingleBlock { through, taken, taken_state, .. } = self.single;
            self.now = self.now - through.total() + taken.total();
            self.settled.add(&taken, 1);
            self.settled.subtract(&through);
            self.singles.taken(taken.total() - through.total());
            self.state = taken_state;
        }
    }

    #[inline]
    fn access(&mut self, index: u32, kind: DataAccess, address: u64, bytes: u32) -> MeterAnswer {
        if self.is_gated {
            if let Some(answer) = self.gated(index, address, bytes) {
                return answer;
            }
        }
        if !self.hierarchy.caches_data() {
            return MeterAnswer::Proceed;
        }
        let (stored, write) = (self.feed.address(address), kind != DataAccess::Load);
        if !self.hierarchy.data_hits(stored, u64::from(bytes), write) {
            return self.looked_up(index, write, stored, bytes);
        }
        let ticks = self.hierarchy.t_data_hit();
        if ticks > 0 {
            self.frozen.data.l1 += ticks;
            self.freeze_at(index, ticks);
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

    fn vector(&mut self, index: u32, work: &VectorWork) -> MeterAnswer {
        self.vector_work(index, work)
    }
}
