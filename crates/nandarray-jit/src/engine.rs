//! The engine: runs a hart by translated code where it exists, and by the interpreter elsewhere.
//!
//! A program is interpreted, and its program counter sampled, until translating a region pays (`purse`). Before a
//! region is translated, some instructions from its entry on are executed one at a time, to observe which blocks
//! follow, which memory regions are accessed and where indirect jumps go. The entries of translated code are marked, so
//! that the interpreter stops before them. Code that accesses memory regions that were not expected is recompiled a few
//! times. All harts of a program share its code (`shared`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nandarray_hart::isa::Format;
use nandarray_hart::{BasicBlock, Hart, Limits, Memory, OPS_MAX, Stop, Streams, TranslatorPort, Xlen};

use crate::TranslationTrigger;
use crate::context::{CodeEntry, CodeExit, Context, ContextLayout, RegionSlot, Ring, STREAMS};
use crate::purse::Purse;
use crate::shared::{CodeState, SharedCode};

/// Number of instructions between two checks of the stop flag.
const SLICE: u64 = if cfg!(debug_assertions) { 1 << 13 } else { 1 << 20 };
/// Number of entries of the quick table, which is searched first for the code at a program counter.
const QUICK: usize = 1 << 10;
/// Number of instructions that are interpreted while another hart translates, before the next attempt to take the lock.
const MEANWHILE: u64 = 1 << 12;
/// Number of instructions that could be interpreted in the time that entering and leaving translated code takes.
const ENTERING: u64 = 100;

/// Counts of one engine's work, and of the translated code that it shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Number of regions that were translated for the program; each recompilation counts again.
    pub regions: u64,
    /// Number of instructions in those regions.
    pub instructions: u64,
    /// Bytes of memory that host code occupies, in whole pages.
    pub code_bytes: u64,
    /// Number of times that this engine entered translated code.
    pub entered: u64,
    /// Number of times that translated code left the next instructions to the interpreter.
    pub handed_over: u64,
    /// Number of instructions that were interpreted, including those that translated code left to the interpreter.
    pub interpreted: u64,
}

/// An entry of the table that finds the code of a program counter quickly.
#[derive(Clone, Copy)]
struct Quick {
    pc: u64,
    code: Option<CodeEntry>,
    wants: u64,
}

const NOWHERE: Quick = Quick { pc: u64::MAX, code: None, wants: 0 };

/// The engine of one hart: it chooses between translated code and the interpreter.
pub(crate) struct Engine {
    shared: Arc<SharedCode>,
    /// The budget from which translating is paid; all cores of a run share one.
    purse: Arc<Purse>,
    context: Box<Context>,
    quick: Vec<Quick>,
    /// Generation of the shared code when the quick table was last cleared.
    generation: u64,
    statistics: Statistics,
    /// Number of code entries that are marked in the hart, so that its interpreter stops before them.
    marked: usize,
    /// Instructions already credited to the purse: (interpreted, executed by translated code).
    counted: (u64, u64),
    /// Whether the run has streams; if so, the context holds their positions.
    streams: bool,
}

impl Engine {
    pub(crate) fn new(shared: Arc<SharedCode>, purse: Arc<Purse>) -> Self {
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

    /// Returns the counts of the engine's work, and of the code that it shares with other harts.
    pub(crate) fn statistics(&self) -> Statistics {
        let made = self.shared.made();
        Statistics {
            regions: made.regions,
            instructions: made.instructions,
            code_bytes: made.code_bytes,
            ..self.statistics
        }
    }

    /// Drops all translated code, and shares none from now on. The run and its purse stay.
    pub(crate) fn forget(&mut self) {
        let SharedCode { settings, bits, extensions, .. } = *self.shared;
        self.quick.fill(NOWHERE);
        (self.generation, self.marked) = (0, 0);
        self.shared = Arc::new(SharedCode::new(settings, bits, extensions));
    }

    /// Executes instructions until a limit, the stop flag or the program itself stops them.
    pub(crate) fn run<X: Xlen>(
        &mut self,
        hart: &mut Hart<X>,
        memory: &mut Memory<'_>,
        streams: &mut Streams<'_>,
        limits: Limits<'_>,
    ) -> Stop {
        let mut port = hart.open(memory, streams);
        let translate = port.fixed() && self.adopt(&mut port);
        let mut left = limits.instructions.unwrap_or(u64::MAX);
        loop {
            if limits.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Stop::Interrupted;
            }
            if left == 0 {
                return port.hart().out_of_instructions();
            }
            let before = port.hart().instructions();
            // Code is compiled for the rounding mode "to nearest" only.
            let stop = if translate && port.hart().fcsr() >> 5 == 0 {
                self.load_streams(&mut port);
                let stop = self.slice(&mut port, left);
                self.store_streams(&mut port);
                stop
            } else {
                let stop = port.interpret(left);
                self.statistics.interpreted += port.hart().instructions() - before;
                stop
            };
            left -= port.hart().instructions() - before;
            if let Some(stop) = stop {
                return stop;
            }
        }
    }

    /// Copies the addresses of this run's memory to the context, and drops code that was compiled for another layout.
    /// Returns false if there is no memory region at all.
    fn adopt<X: Xlen>(&mut self, port: &mut TranslatorPort<'_, '_, '_, X>) -> bool {
        let spans = port.spans();
        let size = |range: &std::ops::Range<u64>| range.end - range.start;
        let Some(main) = spans.iter().max_by_key(|s| (s.executable, size(&s.addresses))) else { return false };
        let written = &main.writable;
        assert!(
            written.is_empty() || main.addresses.start <= written.start && written.end <= main.addresses.end,
            "{written:x?} of {:x?}",
            main.addresses
        );
        let registers = port.registers();
        let from = |pointer: *mut u8| (pointer as i64).wrapping_sub(registers.x as i64) as i32;
        let layout = ContextLayout {
            main: main.addresses.clone(),
            writable: main.writable.clone(),
            f: from(registers.f.cast()),
            fflags: from(registers.fflags),
        };
        if !self.shared.fits(&layout) {
            port.unmark();
            self.forget();
            let fits = self.shared.fits(&layout);
            assert!(fits, "the first layout fits");
        }
        let biased = |s: &nandarray_hart::MappedRegion| (s.pointer as u64).wrapping_sub(s.addresses.start);
        self.context.main = biased(main);
        (self.context.slots, self.context.inputs, self.context.outputs) = Default::default();
        for span in spans.iter().filter(|s| s.addresses != main.addresses) {
            let Some(slot) = self.shared.slot(span.addresses.start) else { continue };
            let room = |length: u64| std::array::from_fn(|log| length.saturating_sub((1 << log) - 1));
            let end = if X::BITS == 32 { 1 << 32 } else { u64::MAX };
            let size = |range: &std::ops::Range<u64>| range.end.min(end).saturating_sub(range.start);
            let written = if span.writable.start == span.addresses.start { size(&span.writable) } else { 0 };
            self.context.slots[slot as usize] =
                RegionSlot { biased: biased(span), load: room(size(&span.addresses)), store: room(written) };
        }
        true
    }

    /// Copies pointers to the contiguous parts of the streams' rings to the context, for translated code to use.
    fn load_streams<X: Xlen>(&mut self, port: &mut TranslatorPort<'_, '_, '_, X>) {
        let streams = port.streams();
        assert!(streams.inputs.len() <= STREAMS && streams.outputs.len() <= STREAMS, "more streams than numbers");
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

    /// Advances the streams' heads by the bytes that translated code has read and written.
    fn store_streams<X: Xlen>(&mut self, port: &mut TranslatorPort<'_, '_, '_, X>) {
        let streams = port.streams();
        for (ring, input) in self.context.inputs.iter_mut().zip(&mut streams.inputs) {
            debug_assert!(ring.from <= ring.at && ring.at <= ring.end, "code read beyond its input: {ring:x?}");
            input.taken(ring.at - ring.from);
            ring.from = ring.at;
        }
        for (ring, output) in self.context.outputs.iter_mut().zip(&mut streams.outputs) {
            debug_assert!(ring.from <= ring.at && ring.at <= ring.end, "code wrote beyond its output: {ring:x?}");
            output.put(ring.at - ring.from);
            ring.from = ring.at;
        }
    }

    /// Calls `what`, which interprets instructions; the streams' positions are stored before the call, and loaded again
    /// after it.
    fn interpret<X: Xlen>(
        &mut self,
        port: &mut TranslatorPort<'_, '_, '_, X>,
        what: impl FnOnce(&mut TranslatorPort<'_, '_, '_, X>) -> Option<Stop>,
    ) -> Option<Stop> {
        if self.streams {
            self.store_streams(port);
        }
        let before = port.hart().instructions();
        let stop = what(port);
        self.statistics.interpreted += port.hart().instructions() - before;
        if self.streams {
            self.load_streams(port);
        }
        stop
    }

    /// Executes at most `left` instructions, and no more than one slice; returns why the hart stopped, or `None` at the
    /// slice's end.
    fn slice<X: Xlen>(&mut self, port: &mut TranslatorPort<'_, '_, '_, X>, left: u64) -> Option<Stop> {
        let begin = port.hart().instructions();
        let most = left.min(SLICE);
        let generation = self.shared.generation();
        if generation != self.generation {
            self.generation = generation;
            self.quick.fill(NOWHERE);
        }
        let mut pc = port.hart().pc();
        loop {
            let budget = most.saturating_sub(port.hart().instructions() - begin);
            if budget == 0 {
                return None;
            }
            let quick = self.quick[(pc >> 1) as usize % QUICK];
            let found = if quick.pc == pc { CodeState::Code(quick.code, quick.wants) } else { self.find(port, pc) };
            let stop = match found {
                // Translating took a while, so the stop flag is checked first.
                CodeState::Fresh(..) => return None,
                CodeState::Code(Some(code), wants) if wants <= budget => {
                    let (from, why) = self.execute(port, code, pc, budget);
                    match why {
                        CodeExit::Jump | CodeExit::Slice => None,
                        // The slice ends if no instructions are left for the interpreter.
                        _ if port.hart().instructions() - begin >= most => return None,
                        why => {
                            self.statistics.handed_over += 1;
                            let left = most - (port.hart().instructions() - begin);
                            let most = if why == CodeExit::Together { left.min(OPS_MAX as u64) } else { 1 };
                            let shared = (why != CodeExit::Handover).then(|| (self.shared.clone(), self.purse.clone()));
                            let shared = shared.as_ref().map(|(shared, purse)| (&**shared, &**purse));
                            self.interpret(port, |port| follow(shared, port, from, most))
                        }
                    }
                }
                // The remaining instructions do not suffice for the code: interpret them if the limit is near, else
                // begin a new slice.
                CodeState::Code(Some(_), _) if left > most => return None,
                CodeState::Code(Some(_), _) => self.interpret(port, |port| port.interpret(budget)),
                CodeState::Code(None, _) => self.interpret(port, |port| port.step()),
                CodeState::Busy => self.interpret(port, |port| port.interpret(budget.min(MEANWHILE))),
                CodeState::Wait if budget < OPS_MAX as u64 && left > most => return None,
                CodeState::Wait => self.stretch(port, pc, budget),
                CodeState::Watch => {
                    let (shared, purse) = (self.shared.clone(), self.purse.clone());
                    self.interpret(port, |port| watch(&shared, &purse, port, budget))
                }
                CodeState::Cold(visits) => {
                    let shared = self.shared.clone();
                    self.interpret(port, |port| visit(&shared, port, visits, budget))
                }
            };
            if stop.is_some() || port.hart().fcsr() >> 5 != 0 {
                return stop;
            }
            pc = port.hart().pc();
        }
    }

    /// Runs translated code, and all code that follows it. Returns the address at which the last code was entered, and
    /// why that code returned.
    fn execute<X: Xlen>(
        &mut self,
        port: &mut TranslatorPort<'_, '_, '_, X>,
        mut code: CodeEntry,
        mut pc: u64,
        budget: u64,
    ) -> (u64, CodeExit) {
        let registers = port.registers();
        self.context.left = budget as i64;
        let why = loop {
            self.statistics.entered += 1;
            // SAFETY: the code was compiled for this layout of registers and memory, and for contexts of this type; the
            // port borrows all memory that the context points to, and nothing else accesses it meanwhile.
            let why = CodeExit::from_number(unsafe { code(&raw mut *self.context, registers.x) });
            if why != CodeExit::Jump {
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
        let left = self.context.left;
        debug_assert!((0..=budget as i64).contains(&left), "{left} instructions are left of {budget}");
        port.retire(budget - self.context.left as u64);
        port.set_pc(self.context.pc);
        (pc, why)
    }

    /// Interprets from `pc` on, until translated code or the next sample of the program counter is reached.
    fn stretch<X: Xlen>(&mut self, port: &mut TranslatorPort<'_, '_, '_, X>, pc: u64, budget: u64) -> Option<Stop> {
        let TranslationTrigger::Pays(costs) = self.shared.settings.when else {
            unreachable!("only what is to pay waits")
        };
        self.shared.clone().entries(&mut self.marked, |entry| port.mark(entry));
        let (before, most) = (port.hart().instructions(), budget.min(costs.sample));
        let stop = self.interpret(port, |port| {
            loop {
                let ran = port.hart().instructions() - before;
                let left = most.saturating_sub(ran);
                // Samples are taken between blocks: a part of a block is executed only if the limit requires it.
                if left == 0 || (ran > 0 && left < OPS_MAX as u64) {
                    return None;
                }
                let stop = port.interpret(left);
                if stop.is_some() || port.is_marked() || port.hart().fcsr() >> 5 != 0 {
                    return stop;
                }
            }
        });
        let ran = port.hart().instructions() - before;
        // If the stretch ended at translated code or stopped, its instructions are attributed to the address where it
        // began.
        let ended = stop.is_some() || port.is_marked();
        let (at, heat) = if ended { (pc, ran + ENTERING) } else { (port.hart().pc(), ran) };
        let interpreted = self.statistics.interpreted;
        let translated = port.hart().instructions() - interpreted.min(port.hart().instructions());
        let fresh = (interpreted - self.counted.0, translated.saturating_sub(self.counted.1));
        self.purse.earn(&costs, fresh.0, fresh.1);
        self.counted = (interpreted, translated);
        self.shared.heated(at, heat);
        stop
    }

    /// Finds the code at `pc`, and stores it in the quick table if it will not change soon.
    fn find<X: Xlen>(&mut self, port: &TranslatorPort<'_, '_, '_, X>, pc: u64) -> CodeState {
        let found = self.shared.find(port, &self.purse, pc);
        if let CodeState::Code(code, wants) | CodeState::Fresh(code, wants) = found {
            self.quick[(pc >> 1) as usize % QUICK] = Quick { pc, code, wants };
        }
        found
    }
}

/// Interprets at most `most` instructions, up to a jump. With `shared`, it also notes their accesses to memory regions
/// that the code entered at `from` did not expect.
fn follow<X: Xlen>(
    shared: Option<(&SharedCode, &Purse)>,
    port: &mut TranslatorPort<'_, '_, '_, X>,
    from: u64,
    most: u64,
) -> Option<Stop> {
    for _ in 0..most {
        if let Some((shared, purse)) = shared {
            shared.missed(port, purse, from);
        }
        let pc = port.hart().pc();
        if let Some(stop) = port.step() {
            return Some(stop);
        }
        if !matches!(port.hart().pc().wrapping_sub(pc), 2 | 4) {
            break;
        }
    }
    None
}

/// Interprets some instructions one at a time, until translated code is reached, and notes the memory regions that they
/// access and the targets of their indirect jumps.
fn watch<X: Xlen>(
    shared: &SharedCode,
    purse: &Purse,
    port: &mut TranslatorPort<'_, '_, '_, X>,
    budget: u64,
) -> Option<Stop> {
    let TranslationTrigger::Pays(costs) = shared.settings.when else {
        unreachable!("only what is to pay is watched so")
    };
    let before = port.hart().instructions();
    loop {
        let ran = port.hart().instructions() - before;
        debug_assert!(ran <= budget, "{ran} instructions of {budget}");
        let left = budget - ran;
        if left == 0 || ran >= costs.watched {
            return None;
        }
        let pc = port.hart().pc();
        let block = BasicBlock::decode(pc, shared.bits, shared.extensions, OPS_MAX, |at| port.fetch(at));
        let Some(block) = block else { return port.block(left) };
        shared.watched(&costs, purse, pc, block.ops.len() as u64);
        let stop = steps(shared, port, &block, left);
        if stop.is_some() || port.is_marked() || port.hart().fcsr() >> 5 != 0 {
            return stop;
        }
    }
}

/// Interprets at most `most` instructions of a block one at a time, and notes the memory regions that they access and
/// the targets of indirect jumps.
fn steps<X: Xlen>(
    shared: &SharedCode,
    port: &mut TranslatorPort<'_, '_, '_, X>,
    block: &BasicBlock,
    most: u64,
) -> Option<Stop> {
    debug_assert_eq!(port.hart().pc(), block.pc, "the block at the program counter");
    for op in block.ops.iter().take(most as usize) {
        let at = port.hart().pc();
        shared.seen(port, op);
        if let Some(stop) = port.step() {
            return Some(stop);
        }
        if op.row().format == Format::JumpRegister {
            shared.jumped(at, port.hart().pc());
        }
    }
    None
}

/// Interprets the block at the program counter, which was reached `visits` times and is not translated yet; at some
/// visits its memory regions and jump targets are noted.
fn visit<X: Xlen>(
    shared: &SharedCode,
    port: &mut TranslatorPort<'_, '_, '_, X>,
    visits: u32,
    budget: u64,
) -> Option<Stop> {
    let TranslationTrigger::Visited(often) = shared.settings.when else {
        unreachable!("what is to pay is not counted")
    };
    if visits != often / 2 && visits != often {
        return port.block(budget);
    }
    let pc = port.hart().pc();
    let Some(block) = BasicBlock::decode(pc, shared.bits, shared.extensions, OPS_MAX, |at| port.fetch(at)) else {
        return port.block(budget);
    };
    steps(shared, port, &block, budget)
}
