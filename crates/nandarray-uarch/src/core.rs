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
use nandarray_hart::{BasicBlock, MeterAnswer, StreamAccess};

use crate::account::{AddressTicks, SingleAccount};
use crate::blocks::{BlockTable, NO_CODE_LINE, NO_ENTRY};
use crate::describe::{CoreDescription, Issue};
use crate::error::DescribeError;
use crate::feed::{CoreNeed, TaskFeed};
use crate::hierarchy::{CacheSide, Hierarchy, LineRequest};
use crate::issue::{AT_REST, BlockTimer, Breakdown, TimedOp};
use crate::latest::LatestLines;
use crate::report::{CoreReport, Frozen, HierarchyCounts};
use crate::unit::FunctionalUnit;

mod meter;
mod prefix;
mod vector;

use prefix::PrefixTable;
use vector::VectorMeter;

/// Value of [`TimedCore::current`] before any block was entered, in place of an entry's number.
const NOTHING: u32 = u32::MAX;
/// Value of [`TimedCore::current`] for instructions timed one by one, in place of an entry's number.
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
    prefixes: PrefixTable,
    hierarchy: Hierarchy,
    scratchpad: Range<u64>,
    feed: TaskFeed,
    /// Whether an access may have to do with more than the cache: the scratchpad, an input window whose bytes are still
    /// arriving, or a grant of shared memory.
    is_gated: bool,
    /// The reason for which the hart paused, if it is not a request for lines of memory.
    paused_for: Option<CoreNeed>,
    /// Whether there is a scratchpad, or a window whose bytes may still be arriving.
    has_gates: bool,
    /// Whether a hit in the data cache has only to be counted: nothing is gated, and nothing else observes it.
    is_plain: bool,
    /// As `is_plain`, but for windows, of whose bytes some may still be arriving.
    is_plain_behind_windows: bool,
    /// Whether a hit in the instruction cache has only to be counted.
    is_code_plain: bool,
    latest_data: LatestLines,
    latest_code: LatestLines,
    /// Whether the hart has to report accesses to memory; once true, it stays so.
    observes: bool,
    now: u64,
    /// Tick at which the instructions timed one by one began, moved forward by the ticks for which the pipeline was
    /// frozen since.
    began: u64,
    /// Number of the pipeline state after the instructions timed one by one.
    state: u32,
    /// Number of the current block's entry in the block table, or [`NOTHING`] or [`SINGLE`].
    current: u32,
    /// Whether the branch at the current block's end was taken.
    is_taken: bool,
    /// Number of the entry that was used after the current one the last time, or [`NO_ENTRY`].
    expected: u32,
    single: SingleBlock,
    /// Ticks of instructions timed one by one, and of blocks that were dropped.
    settled: Breakdown,
    settled_units: [u64; FunctionalUnit::COUNT],
    singles: SingleAccount,
    /// Ticks from the first of the instructions timed one by one to the issue of each of them.
    issued: Vec<u32>,
    /// Address of the instruction that was to be executed when the hart last left a block, and its index in the row of
    /// frozen ticks, or [`NOTHING`] if the instruction has none.
    left_at: (u64, u32),
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
        let hierarchy = Hierarchy::new(description, shared);
        let mut core = Self {
            timing: BlockTimer::new(description),
            blocks: BlockTable::default(),
            prefixes: PrefixTable::default(),
            scratchpad: 0..0,
            feed: TaskFeed::default(),
            is_gated: false,
            has_gates: false,
            is_plain: false,
            is_plain_behind_windows: false,
            is_code_plain: hierarchy.code_hits_are_free(),
            latest_data: hierarchy.latest(CacheSide::Data),
            latest_code: hierarchy.latest(CacheSide::Instruction),
            observes: false,
            paused_for: None,
            now: 0,
            began: 0,
            state: AT_REST,
            current: NOTHING,
            is_taken: false,
            expected: NO_ENTRY,
            single: SingleBlock::default(),
            settled: Breakdown::default(),
            settled_units: [0; FunctionalUnit::COUNT],
            singles: SingleAccount::default(),
            issued: Vec::new(),
            left_at: (0, NOTHING),
            frozen: Frozen::default(),
            granted: false,
            waits: None,
            fetched: NO_CODE_LINE,
            hierarchy,
            vector: VectorMeter::new(description),
        };
        core.gate();
        core
    }

    /// Sets the addresses of the scratchpad, whose accesses go through no cache.
    pub fn set_scratchpad(&mut self, addresses: Range<u64>) {
        self.scratchpad = addresses;
        self.has_gates = !self.scratchpad.is_empty() || self.feed.has_windows();
        self.gate();
    }

    /// Sets the inputs and outputs of the next task.
    pub fn set_feed(&mut self, feed: TaskFeed) {
        self.feed = feed;
        self.has_gates = !self.scratchpad.is_empty() || self.feed.has_windows();
        self.gate();
    }

    fn gate(&mut self) {
        debug_assert!(!(self.granted && self.waits.is_some()), "a core that was granted its lines waits for others");
        self.is_gated = self.granted || self.has_gates;
        let is_free = self.hierarchy.hits_are_free();
        self.is_plain = is_free && !self.is_gated;
        self.is_plain_behind_windows = is_free && !self.granted && self.scratchpad.is_empty();
        self.observes |= self.is_gated || self.hierarchy.caches_data();
    }

    /// Returns the number of the pipeline state after the current block.
    fn state(&self) -> u32 {
        self.blocks.state_behind(self.current, self.is_taken).unwrap_or(self.state)
    }

    /// Returns the inputs and outputs of the current task.
    pub fn feed_mut(&mut self) -> &mut TaskFeed {
        &mut self.feed
    }

    /// Returns why the hart paused, with the tick of the pause, and forgets it: call it once for each pause.
    pub fn need(&mut self) -> (u64, CoreNeed) {
        match self.paused_for.take() {
            Some(need) => (self.now, need),
            None => {
                let request = self.request();
                (request.at, CoreNeed::Lines(request))
            }
        }
    }

    /// Notes that a line which a prefetcher requested from shared memory arrives at tick `at`.
    pub fn prefetched(&mut self, line: u64, at: u64) {
        self.hierarchy.arrives(line, at);
    }

    /// Returns the core's description.
    pub fn description(&self) -> &CoreDescription {
        self.timing.description()
    }

    /// Returns the number of ticks so far.
    pub fn ticks(&self) -> u64 {
        self.now
    }

    /// Returns the lines that the core waits for or has written back since the last call, and clears this list.
    pub fn request(&mut self) -> LineRequest {
        let request = self.hierarchy.take_request();
        self.gate();
        request
    }

    /// Ends a wait for shared memory: the core goes on at tick `at`.
    ///
    /// # Panics
    /// If the core waits for nothing, or made its request after tick `at`.
    pub fn grant(&mut self, at: u64) {
        let since = self.waits.take().expect("a grant to a core that waits for nothing");
        let waited = at.checked_sub(since).unwrap_or_else(|| panic!("a grant at tick {at}, requested at {since}"));
        self.frozen.data.memory += waited;
        self.freeze_left(waited);
        self.freeze(waited);
        self.granted = true;
        self.gate();
    }

    /// Records that the core waited for a stream until tick `at`.
    ///
    /// # Panics
    /// If `at` is before the core's present tick.
    pub fn wait_until(&mut self, at: u64) {
        assert!(at >= self.now, "a wait until tick {at}, which was before {}", self.now);
        self.frozen.stream_wait += at - self.now;
        self.freeze_left(at - self.now);
        self.now = at;
    }

    /// Returns the core's figures so far.
    pub fn report(&self) -> CoreReport {
        let (mut ticks, mut units) = (self.settled, self.settled_units);
        self.blocks.settle(&mut ticks, &mut units);
        self.prefixes.settle(&mut ticks, &mut units);
        let d = self.description();
        let [mut l1i, mut l1d, l2] = self.hierarchy.counts();
        for (counts, latest) in [(&mut l1i, &self.latest_code), (&mut l1d, &self.latest_data)] {
            if let Some(counts) = counts {
                let (reads, writes) = latest.counts();
                (counts.reads, counts.writes) = (counts.reads + reads, counts.writes + writes);
            }
        }
        let counts = HierarchyCounts { caches: [l1i, l1d, l2], memory: self.hierarchy.memory_counts() };
        CoreReport::new(d, self.now, ticks, self.frozen, units, counts, self.vector.counts())
    }

    /// Returns executions and ticks by the address of the instruction; all ticks add up to [`ticks`](Self::ticks).
    pub fn addresses(&self) -> AddressTicks {
        let mut all = self.singles.clone();
        self.blocks.addresses().for_each(|block| all.settle(&block));
        self.prefixes.account(&mut all);
        let all = all.all();
        debug_assert_eq!(all.values().map(|t| t.total()).sum::<u64>(), self.now, "every tick has an address");
        all
    }

    /// Charges ticks of a wait to the instruction before which the hart left a block.
    fn freeze_left(&mut self, ticks: u64) {
        let (pc, op) = self.left_at;
        if !self.blocks.freeze(op, ticks) {
            self.singles.freeze(pc, ticks);
        }
    }

    fn freeze(&mut self, ticks: u64) {
        self.now += ticks;
        self.began += ticks;
    }

    /// Freezes the pipeline for some ticks, by an instruction of the current block.
    #[inline]
    fn freeze_at(&mut self, index: u32, ticks: u64) {
        self.freeze(ticks);
        let first_op = self.blocks.entry(self.current).map_or(NOTHING, |entry| entry.first_op);
        if !self.blocks.freeze(first_op.saturating_add(index), ticks) {
            let pc = self.singles.address(index as usize);
            self.singles.freeze(pc, ticks);
        }
    }

    /// Adds the ticks of a hit in the data cache by instruction `index` of the current block.
    #[inline]
    fn hit_ticks(&mut self, index: u32, ticks: u64) {
        debug_assert!(!self.granted, "a hit after a grant, which ends its access");
        self.frozen.data.l1 += ticks;
        self.freeze_at(index, ticks);
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
                at += line;
                continue;
            }
            self.latest_code.note(stored, 1, false);
            if self.hierarchy.code_hits(stored) {
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
        // From shared memory, a miss leaves a request that the next access to data has to make.
        self.gate();
        self.now - before
    }

    /// Times instructions one by one, beginning in the current pipeline state.
    fn step<'o>(&mut self, mut pc: u64, ops: impl Iterator<Item = &'o Instruction>) {
        let before = self.state();
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
        (self.current, self.is_taken, self.expected) = (SINGLE, false, NO_ENTRY);
        self.single = SingleBlock { before, through, taken, taken_state };
    }

    /// Times the instructions before instruction `index` of a block whose entry `number` was undone.
    fn left_at_instruction(&mut self, block: &BasicBlock, index: usize, number: u32) {
        self.is_taken = false;
        if index == 0 {
            // Nothing was executed: the hart enters the same block again, in the same state.
            self.prefixes.forget_last();
            self.expected = number;
        } else if self.timing.description().issue == Issue::Vliw {
            // A re-scheduled block has no order in which it could be left: its instructions are timed one by one.
            self.step(block.pc, block.ops[..index].iter());
        } else {
            let exit = self.prefixes.execute(block, (index, self.left_at.1), self.state, &mut self.timing);
            self.now += exit.ticks;
            (self.state, self.expected) = (exit.state, exit.expected);
        }
    }

    /// Returns the tick at which instruction `index` of the current block is issued.
    fn issued_at(&self, index: u32) -> u64 {
        let singly = || self.issued.get(index as usize).filter(|_| self.current == SINGLE).copied();
        let issued = self.blocks.issue_at(self.current, index).or_else(singly);
        // A block's ticks were added when it was entered, and no branch is taken yet.
        let began = self.blocks.entry(self.current).map_or(self.began, |entry| self.now - u64::from(entry.through));
        issued.map_or(self.now, |at| began + u64::from(at))
    }

    fn pc_of(&self, index: u32) -> u64 {
        match self.current {
            NOTHING => 0,
            SINGLE => self.singles.address(index as usize),
            number => {
                let first_op = self.blocks.entry(number).expect("the current entry").first_op;
                self.blocks.address(first_op + index).expect("an instruction of a block")
            }
        }
    }

    /// Returns whether an access to a stream pauses the hart, and notes why.
    #[inline(never)]
    fn stream_pauses(&mut self, kind: StreamAccess, number: usize, position: u64, bytes: u64) -> bool {
        let need = match kind {
            StreamAccess::Load => self.feed.read(number, position, bytes, true),
            StreamAccess::LookIn | StreamAccess::Wait => self.feed.read(number, position, bytes, false),
            StreamAccess::Store => self.feed.store(number, position),
            StreamAccess::LookOut | StreamAccess::Register => None,
        };
        let pauses = need.is_some();
        if pauses {
            self.paused_for = need;
        }
        pauses
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
        self.latest_data.note(address, u64::from(bytes), write);
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
