//! The timed core as a meter: its answers when its hart reports a block, a branch, an access or a stream.
//!
//! The quick answers are inlined into the hart's functions: they only count. Everything else that a report causes is
//! in the core itself.

use nandarray_hart::isa::Instruction;
use nandarray_hart::{BasicBlock, DataAccess, Meter, MeterAnswer, StreamAccess, VectorWork};

use super::{NOTHING, SINGLE, SingleBlock, TimedCore};
use crate::blocks::{NO_CODE_LINE, NO_ENTRY, SEVERAL_LINES};
use crate::unit::FunctionalUnit;

impl Meter for TimedCore {
    const BLOCKS: bool = true;
    const BRANCHES: bool = true;
    const ACCESSES: bool = true;
    const STREAMS: bool = true;
    const VECTORS: bool = true;

    fn decoded(&mut self, unit: u32, block: &BasicBlock) {
        if unit == 0 && self.blocks.len() > 0 {
            // The hart dropped all blocks, and numbers new ones from 0: keep the figures of the old ones.
            self.state = self.state();
            let old = std::mem::take(&mut self.blocks);
            old.settle(&mut self.settled, &mut self.settled_units);
            old.addresses().for_each(|block| self.singles.settle(&block));
            let left = std::mem::take(&mut self.prefixes);
            left.settle(&mut self.settled, &mut self.settled_units);
            left.account(&mut self.singles);
            self.left_at.1 = NOTHING;
            (self.current, self.expected) = (NOTHING, NO_ENTRY);
        }
        let (first, last) = (block.pc, block.pc + block.bytes() - 1);
        let lines = match self.hierarchy.instruction_line_bytes() {
            // Equal to the initial value of the line fetched last, so that nothing is ever fetched.
            None => [NO_CODE_LINE; 2],
            Some(line) if last / line - first / line <= 1 => [first / line * line, last / line * line],
            Some(_) => [SEVERAL_LINES; 2],
        };
        self.blocks.add(unit, block, lines);
    }

    fn observes_accesses(&self) -> bool {
        self.observes
    }

    #[inline(always)]
    fn quick_enter(&mut self, unit: u32) -> bool {
        let Some(entry) = self.blocks.entry_mut(self.expected) else { return false };
        if entry.unit != unit {
            return false;
        }
        if entry.lines != [self.fetched; 2] {
            let [first, last] = entry.lines.map(|line| self.feed.address(line));
            let from_last = entry.lines[0] == self.fetched;
            if !self.is_code_plain || !self.latest_code.knows(last) {
                return false;
            }
            if !from_last && !self.latest_code.hits(first, false) {
                return false;
            }
            if first != last {
                self.latest_code.hits(last, false);
            }
            self.fetched = entry.lines[1];
        }
        entry.entered += 1;
        self.now += u64::from(entry.through);
        (self.current, self.is_taken, self.expected) = (self.expected, false, entry.followed[0]);
        true
    }

    fn enter(&mut self, unit: u32) {
        if self.blocks.lines(unit) != [self.fetched; 2] {
            let fetched = self.fetch(self.blocks.code(unit));
            if fetched > 0 {
                self.blocks.freeze_first(unit, fetched);
            }
        }
        let state = self.state();
        let number = self.blocks.enter(unit, state, &mut self.timing);
        match self.current {
            NOTHING => self.prefixes.follow(number),
            before => self.blocks.follow(before, self.is_taken, number),
        }
        let entry = self.blocks.entry(number).expect("an entry by its number");
        self.now += u64::from(entry.through);
        (self.current, self.is_taken, self.expected) = (number, false, entry.followed[0]);
    }

    fn part(&mut self, block: &BasicBlock) {
        let fetched = self.fetch(block.pc..block.pc + block.bytes());
        self.singles.freeze(block.pc, fetched);
        self.step(block.pc, block.ops.iter());
    }

    fn left(&mut self, block: &BasicBlock, index: usize) {
        self.left_at = (block.address(index), NOTHING);
        let current = std::mem::replace(&mut self.current, NOTHING);
        match current {
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
                let entry = self.blocks.entry(number).expect("the current entry");
                self.left_at.1 = entry.first_op + index as u32;
                self.now -= u64::from(entry.through);
                self.state = self.blocks.leave(number);
                return self.left_at_instruction(block, index, number);
            }
        }
        self.step(block.pc, block.ops[..index].iter());
    }

    fn single(&mut self, pc: u64, op: &Instruction) {
        self.step(pc, std::iter::once(op));
    }

    #[inline(always)]
    fn quick_branch(&mut self, taken: bool) -> bool {
        if !taken {
            return true;
        }
        let Some(entry) = self.blocks.entry_mut(self.current) else { return false };
        entry.taken += 1;
        self.now = self.now.wrapping_add_signed(i64::from(entry.more));
        (self.is_taken, self.expected) = (true, entry.followed[1]);
        true
    }

    fn branch(&mut self, taken: bool) {
        if self.quick_branch(taken) || self.current != SINGLE {
            return;
        }
        let SingleBlock { through, taken, taken_state, .. } = self.single;
        self.now = self.now - through.total() + taken.total();
        self.settled.add(&taken, 1);
        self.settled.subtract(&through);
        self.singles.taken(taken.total() - through.total());
        self.state = taken_state;
    }

    #[inline(always)]
    fn quick_access(&mut self, _index: u32, kind: DataAccess, address: u64, bytes: u32) -> bool {
        // An aligned access leaves no line.
        (self.is_plain || self.is_plain_behind_windows && self.feed.has_arrived(address, u64::from(bytes)))
            && address & (u64::from(bytes) - 1) == 0
            && self.latest_data.hits(self.feed.address(address), kind != DataAccess::Load)
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
        self.latest_data.note(stored, u64::from(bytes), write);
        let ticks = self.hierarchy.t_data_hit();
        if ticks > 0 {
            self.hit_ticks(index, ticks);
        }
        MeterAnswer::Proceed
    }

    #[inline]
    fn stream(&mut self, index: u32, kind: StreamAccess, stream: u8, position: u64, bytes: u64) -> MeterAnswer {
        let number = usize::from(stream);
        let goes_on = kind == StreamAccess::Load && self.feed.reads_on(number, position, bytes);
        if !goes_on && self.stream_pauses(kind, number, position, bytes) {
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
