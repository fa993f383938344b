//! The engine: runs a hart by translated code if there is some, and by the interpreter if there is none yet.
//!
//! Programs are interpreted, and their program counters sampled, until translating a region pays (`pace`). Before that,
//! some instructions from there on are executed one at a time, to see which blocks follow, which memory is reached and
//! where indirect jumps go. Blocks that have code are marked, so that the interpreter ends before them. Code that meets
//! memory where it was not expected is recompiled a few times. All harts of a program share its code (`shared`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nandarray_hart::isa::Format;
use nandarray_hart::{Block, Door, Hart, Limits, Memory, OPS_MAX, Stop, Streams, Xlen};

use crate::When;
use crate::context::{Context, Entry, Layout, Left, Ring, Slot};
use crate::pace::Purse;
use crate::shared::{Found, Shared};

/// Instructions between two looks at the stop flag.
const SLICE: u64 = if cfg!(debug_assertions) { 1 << 13 } else { 1 << 20 };
/// Entries of the table that finds code quickly.
const QUICK: usize = 1 << 10;
/// Instructions that are interpreted while another hart translates, before the next attempt to take the lock.
const MEANWHILE: u64 = 1 << 12;
/// Instructions that might be interpreted in the time that entering and leaving code takes.
const ENTERING: u64 = 100;

/// Counts of an engine's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Regions that were translated for the program, recompiled ones counted again.
    pub regions: u64,
    /// Instructions in them.
    pub instructions: u64,
    /// Bytes of memory that host code takes, in whole pages.
    pub code_bytes: u64,
    /// Times that this engine entered translated code.
    pub entered: u64,
    /// Instructions that translated code left to the interpreter.
    pub handed_over: u64,
    /// Instructions that were interpreted, those included.
    pub interpreted: u64,
}

/// An entry of the quick table.
#[derive(Clone, Copy)]
struct Quick {
    pc: u64,
    code: Option<Entry>,
    wants: u64,
}

const NOWHERE: Quick = Quick { pc: u64::MAX, code: None, wants: 0 };

/// The engine of one hart.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    /// The purse that pays for translating: the run's, shared by its cores.
    purse: Arc<Purse>,
    context: Box<Context>,
    quick: Vec<Quick>,
    /// Generation of the code in the quick table.
    generation: u64,
    statistics: Statistics,
    /// Entries of code that are marked in the hart.
    marked: usize,
    /// Instructions that were counted for the purse: interpreted, and executed by code.
    counted: (u64, u64),
    /// Whether the context holds the positions of streams.
    streams: bool,
}

impl Engine {
    pub(crate) fn new(shared: Arc<Shared>, purse: Arc<Purse>) -> Self {
        Self {
            shared,
            purse,
            context: Box::new(Context::new()),
            quick: vec![NOWHERE; QUICK],
            generation: 0,
            statistics: Statistics::default(),
            marked: 0,
            counted: (0, 0),
            streams: false,
        }
    }

    /// Counts of its work, and of the code that it shares with other harts.
    pub(crate) fn statistics(&self) -> Statistics {
        let made = self.shared.made();
        Statistics {
            regions: made.regions,
            instructions: made.instructions,
            code_bytes: made.code_bytes,
            ..self.statistics
        }
    }

    /// Drops all code, and shares none any more. The run and its purse stay.
    pub(crate) fn forget(&mut self) {
        let Shared { settings, bits, extensions, .. } = *self.shared;
        self.quick.fill(NOWHERE);
        (self.generation, self.marked) = (0, 0);
        self.shared = Arc::new(Shared::new(settings, bits, extensions));
    }

    /// Execute until something stops it.
    pub(crate) fn run<X: Xlen>(
        &mut self,
        hart: &mut Hart<X>,
        memory: &mut Memory<'_>,
        streams: &mut Streams<'_>,
        limits: Limits<'_>,
    ) -> Stop {
        let mut door = hart.open(memory, streams);
        let translate = door.fixed() && self.adopt(&mut door);
        let mut left = limits.instructions.unwrap_or(u64::MAX);
        loop {
            if limits.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Stop::Interrupted;
            }
            if left == 0 {
                return door.hart().out_of_instructions();
            }
            let before = door.hart().instructions();
            // Code is made for rounding to nearest.
            let stop = if translate && door.hart().fcsr() >> 5 == 0 {
                self.load_streams(&mut door);
                let stop = self.slice(&mut door, left);
                self.store_streams(&mut door);
                stop
            } else {
                let stop = door.interpret(left);
                self.statistics.interpreted += door.hart().instructions() - before;
                stop
            };
            left -= door.hart().instructions() - before;
            if let Some(stop) = stop {
                return stop;
            }
        }
    }

    /// Notes the addresses of memory in this run. False if there is none that a program could be in.
    fn adopt<X: Xlen>(&mut self, door: &mut Door<'_, '_, '_, X>) -> bool {
        let spans = door.spans();
        let size = |range: &std::ops::Range<u64>| range.end - range.start;
        let Some(main) = spans.iter().max_by_key(|s| (s.executable, size(&s.addresses))) else { return false };
        let registers = door.registers();
        let from = |pointer: *mut u8| (pointer as i64).wrapping_sub(registers.x as i64) as i32;
        let layout = Layout {
            main: main.addresses.clone(),
            writable: main.writable.clone(),
            f: from(registers.f.cast()),
            fflags: from(registers.fflags),
        };
        if !self.shared.fits(&layout) {
            door.unmark();
            self.forget();
            let fits = self.shared.fits(&layout);
            assert!(fits, "the first layout fits");
        }
        let biased = |s: &nandarray_hart::Span| (s.pointer as u64).wrapping_sub(s.addresses.start);
        self.context.main = biased(main);
        (self.context.slots, self.context.inputs, self.context.outputs) = Default::default();
        for span in spans.iter().filter(|s| s.addresses != main.addresses) {
            let Some(slot) = self.shared.slot(span.addresses.start) else { continue };
            let room = |length: u64| std::array::from_fn(|log| length.saturating_sub((1 << log) - 1));
            let end = if X::BITS == 32 { 1 << 32 } else { u64::MAX };
            let size = |range: &std::ops::Range<u64>| range.end.min(end).saturating_sub(range.start);
            let written = if span.writable.start == span.addresses.start { size(&span.writable) } else { 0 };
            self.context.slots[slot as usize] =
                Slot { biased: biased(span), load: room(size(&span.addresses)), store: room(written) };
        }
        true
    }

    /// Puts the contiguous parts of the streams' rings into the context, for code to reach.
    fn load_streams<X: Xlen>(&mut self, door: &mut Door<'_, '_, '_, X>) {
        let streams = door.streams();
        self.streams = !streams.inputs.is_empty() || !streams.outputs.is_empty();
        for (ring, input) in self.context.inputs.iter_mut().zip(&streams.inputs) {
            let (at, length) = (input.together().as_ptr() as u64, input.together().len() as u64);
            let head = input.head().wrapping_sub(at);
            *ring = Ring { at, end: at + length, head, ahead: input.ahead(), from: at };
        }
        for (ring, output) in self.context.outputs.iter_mut().zip(&mut streams.outputs) {
            let head = output.head();
            let room = output.room_together();
            let (at, length) = (room.as_mut_ptr() as u64, room.len() as u64);
            *ring = Ring { at, end: at + length, head: head.wrapping_sub(at), ahead: 0, from: at };
        }
    }

    /// Moves the streams' heads by the bytes that code read and wrote.
    fn store_streams<X: Xlen>(&mut self, door: &mut Door<'_, '_, '_, X>) {
        let streams = door.streams();
        for (ring, input) in self.context.inputs.iter_mut().zip(&mut streams.inputs) {
            input.taken(ring.at - ring.from);
            ring.from = ring.at;
        }
        for (ring, output) in self.context.outputs.iter_mut().zip(&mut streams.outputs) {
            output.put(ring.at - ring.from);
            ring.from = ring.at;
        }
    }

    /// Calls the interpreter, with the streams' positions brought up to date before and after.
    fn interpret<X: Xlen>(
        &mut self,
        door: &mut Door<'_, '_, '_, X>,
        what: impl FnOnce(&mut Door<'_, '_, '_, X>) -> Option<Stop>,
    ) -> Option<Stop> {
        if self.streams {
            self.store_streams(door);
        }
        let before = door.hart().instructions();
        let stop = what(door);
        self.statistics.interpreted += door.hart().instructions() - before;
        if self.streams {
            self.load_streams(door);
        }
        stop
    }

    /// Execute a slice of at most `left` instructions.
    fn slice<X: Xlen>(&mut self, door: &mut Door<'_, '_, '_, X>, left: u64) -> Option<Stop> {
        let begin = door.hart().instructions();
        let most = left.min(SLICE);
        let generation = self.shared.generation();
        if generation != self.generation {
            self.generation = generation;
            self.quick.fill(NOWHERE);
        }
        let mut pc = door.hart().pc();
        loop {
            let budget = most.saturating_sub(door.hart().instructions() - begin);
            if budget == 0 {
                return None;
            }
            let quick = self.quick[(pc >> 1) as usize % QUICK];
            let found = if quick.pc == pc { Found::Code(quick.code, quick.wants) } else { self.find(door, pc) };
            let stop = match found {
                // Translating took a while: look at the stop flag.
                Found::Fresh(..) => return None,
                Found::Code(Some(code), wants) if wants <= budget => {
                    let (from, why) = self.execute(door, code, pc, budget);
                    match why {
                        Left::Jump | Left::Slice => None,
                        // The slice ends if no budget is left for the interpreter.
                        _ if door.hart().instructions() - begin >= most => return None,
                        why => {
                            self.statistics.handed_over += 1;
                            let left = most - (door.hart().instructions() - begin);
                            let most = if why == Left::Together { left.min(OPS_MAX as u64) } else { 1 };
                            let shared = (why != Left::Handover).then(|| (self.shared.clone(), self.purse.clone()));
                            let shared = shared.as_ref().map(|(shared, purse)| (&**shared, &**purse));
                            self.interpret(door, |door| follow(shared, door, from, most))
                        }
                    }
                }
                // Too few are left for code: interpret them if that is all there is, otherwise begin a new slice.
                Found::Code(Some(_), _) if left > most => return None,
                Found::Code(Some(_), _) => self.interpret(door, |door| door.interpret(budget)),
                Found::Code(None, _) => self.interpret(door, |door| door.step()),
                Found::Busy => self.interpret(door, |door| door.interpret(budget.min(MEANWHILE))),
                Found::Wait if budget < OPS_MAX as u64 && left > most => return None,
                Found::Wait => self.stretch(door, pc, budget),
                Found::Watch => {
                    let (shared, purse) = (self.shared.clone(), self.purse.clone());
                    self.interpret(door, |door| watch(&shared, &purse, door, budget))
                }
                Found::Cold(visits) => {
                    let shared = self.shared.clone();
                    self.interpret(door, |door| visit(&shared, door, visits, budget))
                }
            };
            if stop.is_some() || door.hart().fcsr() >> 5 != 0 {
                return stop;
            }
            pc = door.hart().pc();
        }
    }

    /// Runs code, and the code that follows it. Returns the address at which the last was entered, and why it returned.
    fn execute<X: Xlen>(
        &mut self,
        door: &mut Door<'_, '_, '_, X>,
        mut code: Entry,
        mut pc: u64,
        budget: u64,
    ) -> (u64, Left) {
        let registers = door.registers();
        self.context.left = budget as i64;
        let why = loop {
            self.statistics.entered += 1;
            // SAFETY: the code was made for this layout of registers and memory, and for contexts such as this one;
            // what the context points to is borrowed by the door, and nothing else reaches it meanwhile.
            let why = Left::from_number(unsafe { code(&raw mut *self.context, registers.x) });
            if why != Left::Jump {
                break why;
            }
            let next = self.quick[(self.context.pc >> 1) as usize % QUICK];
            match next.code {
                Some(entry) if next.pc == self.context.pc && next.wants as i64 <= self.context.left => {
                    (code, pc) = (entry, next.pc);
                }
                _ => break why,
            }
        };
        door.retire(budget - self.context.left as u64);
        door.set_pc(self.context.pc);
        (pc, why)
    }

    /// Interprets from `pc` on, to translated code or to the next sample.
    fn stretch<X: Xlen>(&mut self, door: &mut Door<'_, '_, '_, X>, pc: u64, budget: u64) -> Option<Stop> {
        let When::Pays(costs) = self.shared.settings.when else { unreachable!("only what is to pay waits") };
        self.shared.clone().entries(&mut self.marked, |entry| door.mark(entry));
        let (before, most) = (door.hart().instructions(), budget.min(costs.sample));
        let stop = self.interpret(door, |door| {
            loop {
                let ran = door.hart().instructions() - before;
                let left = most.saturating_sub(ran);
                // Samples are taken between blocks: a part of one is executed only if the limit requires it.
                if left == 0 || (ran > 0 && left < OPS_MAX as u64) {
                    return None;
                }
                let stop = door.interpret(left);
                if stop.is_some() || door.is_marked() || door.hart().fcsr() >> 5 != 0 {
                    return stop;
                }
            }
        });
        let ran = door.hart().instructions() - before;
        // If it came to code, or to an end, the cost is that of the instructions before.
        let ended = stop.is_some() || door.is_marked();
        let (at, heat) = if ended { (pc, ran + ENTERING) } else { (door.hart().pc(), ran) };
        let interpreted = self.statistics.interpreted;
        let translated = door.hart().instructions() - interpreted.min(door.hart().instructions());
        let fresh = (interpreted - self.counted.0, translated.saturating_sub(self.counted.1));
        self.purse.earn(&costs, fresh.0, fresh.1);
        self.counted = (interpreted, translated);
        self.shared.heated(at, heat);
        stop
    }

    /// Finds the code at `pc`; kept in the quick table if it will not change soon.
    fn find<X: Xlen>(&mut self, door: &Door<'_, '_, '_, X>, pc: u64) -> Found {
        let found = self.shared.find(door, &self.purse, pc);
        if let Found::Code(code, wants) | Found::Fresh(code, wants) = found {
            self.quick[(pc >> 1) as usize % QUICK] = Quick { pc, code, wants };
        }
        found
    }
}

/// Interpret at most `most` instructions, up to a jump. If there is `shared`, some of them may reach memory where code
/// that was entered at `from` did not expect them to.
fn follow<X: Xlen>(
    shared: Option<(&Shared, &Purse)>,
    door: &mut Door<'_, '_, '_, X>,
    from: u64,
    most: u64,
) -> Option<Stop> {
    for _ in 0..most {
        if let Some((shared, purse)) = shared {
            shared.missed(door, purse, from);
        }
        let pc = door.hart().pc();
        if let Some(stop) = door.step() {
            return Some(stop);
        }
        if !matches!(door.hart().pc().wrapping_sub(pc), 2 | 4) {
            break;
        }
    }
    None
}

/// Interprets some instructions one at a time, up to translated code, and notes the regions and targets they reach.
fn watch<X: Xlen>(shared: &Shared, purse: &Purse, door: &mut Door<'_, '_, '_, X>, budget: u64) -> Option<Stop> {
    let When::Pays(costs) = shared.settings.when else { unreachable!("only what is to pay is watched so") };
    let before = door.hart().instructions();
    loop {
        let ran = door.hart().instructions() - before;
        let left = budget - ran;
        if left == 0 || ran >= costs.watched {
            return None;
        }
        let pc = door.hart().pc();
        let block = Block::decode(pc, shared.bits, shared.extensions, OPS_MAX, |at| door.fetch(at));
        let Some(block) = block else { return door.block(left) };
        shared.watched(&costs, purse, pc, block.ops.len() as u64);
        let stop = steps(shared, door, &block, left);
        if stop.is_some() || door.is_marked() || door.hart().fcsr() >> 5 != 0 {
            return stop;
        }
    }
}

/// Interprets at most `most` instructions of a block one at a time, and notes the regions and targets they reach.
fn steps<X: Xlen>(shared: &Shared, door: &mut Door<'_, '_, '_, X>, block: &Block, most: u64) -> Option<Stop> {
    for op in block.ops.iter().take(most as usize) {
        let at = door.hart().pc();
        shared.seen(door, op);
        if let Some(stop) = door.step() {
            return Some(stop);
        }
        if op.row().format == Format::JumpRegister {
            shared.jumped(at, door.hart().pc());
        }
    }
    None
}

/// Interprets the block at the program counter, which was reached `visits` times and is not translated yet.
fn visit<X: Xlen>(shared: &Shared, door: &mut Door<'_, '_, '_, X>, visits: u32, budget: u64) -> Option<Stop> {
    let When::Visited(often) = shared.settings.when else { unreachable!("what is to pay is not counted") };
    if visits != often / 2 && visits != often {
        return door.block(budget);
    }
    let pc = door.hart().pc();
    let Some(block) = Block::decode(pc, shared.bits, shared.extensions, OPS_MAX, |at| door.fetch(at)) else {
        return door.block(budget);
    };
    steps(shared, door, &block, budget)
}
