//! The engine: runs a hart by translated code where there is some, and by the interpreter where there is none yet.
//!
//! Blocks are interpreted until one was reached often enough; then a region is translated from there. A few of those visits
//! go instruction by instruction, to see which memory is reached and where indirect jumps go. Code that meets memory where
//! it was not expected is made anew a few times. The engine knows programs, not what they are for.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use nandarray_hart::isa::{self, Format, Op};
use nandarray_hart::{Block, Door, Extensions, Hart, Limits, Memory, OPS_MAX, Stop, Streams, Xlen};

use crate::Settings;
use crate::code::Code;
use crate::context::{Context, Entry, Layout, Left, Ring, STREAMS, Slot};
use crate::region::{Source, translates};
use crate::sites::{MAIN, Sites};

/// Instructions between two looks at the stop flag.
const SLICE: u64 = if cfg!(debug_assertions) { 1 << 13 } else { 1 << 20 };
/// Entries of the table that finds code quickly.
const QUICK: usize = 1 << 10;
/// Regions that are kept at most; then all are dropped.
const REGIONS_MAX: usize = 1 << 13;
/// News about memory after which code is made anew, and how often that is done.
const NEWS_MAX: u32 = 3;
const REMADE_MAX: u32 = 6;

/// What the engine did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Regions that were translated, those made anew counted again.
    pub regions: u64,
    /// Instructions in them.
    pub instructions: u64,
    /// Bytes of host code.
    pub code_bytes: u64,
    /// Time that translating took.
    pub translation_ns: u64,
    /// Times that translated code was entered by the engine.
    pub entered: u64,
    /// Instructions that translated code left to the interpreter.
    pub handed_over: u64,
    /// Instructions that were interpreted, those included.
    pub interpreted: u64,
}

/// What is known of an address that execution went on at.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    visits: u32,
    code: Option<Entry>,
    /// Instructions that must be left for the code to do anything.
    wants: u64,
    news: u32,
    remade: u32,
    /// Nothing can be translated here.
    hopeless: bool,
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
    settings: Settings,
    bits: u32,
    extensions: Extensions,
    context: Box<Context>,
    layout: Layout,
    sites: Sites,
    known: HashMap<u64, Known>,
    quick: Vec<Quick>,
    code: Code,
    pub(crate) statistics: Statistics,
    /// There are streams whose positions the context holds.
    streams: bool,
}

impl Engine {
    pub(crate) fn new(settings: Settings, bits: u32, extensions: Extensions) -> Self {
        Self {
            settings,
            bits,
            extensions,
            context: Box::new(Context::new()),
            layout: Layout::default(),
            sites: Sites::default(),
            known: HashMap::new(),
            quick: vec![NOWHERE; QUICK],
            code: Code::new(),
            statistics: Statistics::default(),
            streams: false,
        }
    }

    /// Drop all code and all that was seen.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
        self.quick.fill(NOWHERE);
        self.sites = Sites::default();
        self.code.forget();
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
        let translate = door.fixed() && self.code.works() && self.adopt(&mut door);
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

    /// Take note of where memory is in this run. False if there is none that a program could be in.
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
        if layout != self.layout {
            self.forget();
            self.layout = layout;
        }
        let biased = |s: &nandarray_hart::Span| (s.pointer as u64).wrapping_sub(s.addresses.start);
        self.context.main = biased(main);
        self.context.slots = [Slot::default(); crate::context::SLOTS];
        for span in spans.iter().filter(|s| s.addresses != main.addresses) {
            let Some(slot) = self.sites.slot(span.addresses.start) else { continue };
            let room = |length: u64| std::array::from_fn(|log| length.saturating_sub((1 << log) - 1));
            let written = if span.writable.start == span.addresses.start { size(&span.writable) } else { 0 };
            self.context.slots[slot as usize] =
                Slot { biased: biased(span), load: room(size(&span.addresses)), store: room(written) };
        }
        true
    }

    /// Let code reach what lies together in the streams' rings.
    fn load_streams<X: Xlen>(&mut self, door: &mut Door<'_, '_, '_, X>) {
        let streams = door.streams();
        self.streams = !streams.inputs.is_empty() || !streams.outputs.is_empty();
        self.context.inputs = [Ring::default(); STREAMS];
        self.context.outputs = [Ring::default(); STREAMS];
        for (ring, input) in self.context.inputs.iter_mut().zip(&streams.inputs) {
            let (at, length) = (input.together().as_ptr() as u64, input.together().len() as u64);
            let head = input.head().wrapping_sub(at);
            *ring = Ring { at, end: at + length, head, tail: input.tail(), from: at };
        }
        for (ring, output) in self.context.outputs.iter_mut().zip(&mut streams.outputs) {
            let (head, tail) = (output.head(), output.tail());
            let room = output.room_together();
            let (at, length) = (room.as_mut_ptr() as u64, room.len() as u64);
            *ring = Ring { at, end: at + length, head: head.wrapping_sub(at), tail, from: at };
        }
    }

    /// Tell the streams what code took and put.
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

    /// Have the interpreter do something.
    fn interpret<X: Xlen>(
        &mut self,
        door: &mut Door<'_, '_, '_, X>,
        what: impl FnOnce(&mut Self, &mut Door<'_, '_, '_, X>) -> Option<Stop>,
    ) -> Option<Stop> {
        if self.streams {
            self.store_streams(door);
        }
        let before = door.hart().instructions();
        let stop = what(self, door);
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
        let mut pc = door.hart().pc();
        loop {
            let budget = most.saturating_sub(door.hart().instructions() - begin);
            if budget == 0 {
                return None;
            }
            let quick = self.quick[(pc >> 1) as usize % QUICK];
            let found = if quick.pc == pc { Some(quick) } else { self.find(door, pc) };
            let stop = match found {
                Some(Quick { code: Some(code), wants, .. }) if wants <= budget => {
                    let (from, why) = self.execute(door, code, pc, budget);
                    match why {
                        Left::Jump => None,
                        Left::Slice => None,
                        Left::Handover | Left::Memory => {
                            // What was left is of the budget only if there is something left of it.
                            if door.hart().instructions() - begin >= most {
                                return None;
                            }
                            self.statistics.handed_over += 1;
                            if why == Left::Memory {
                                self.missed(door, from);
                            }
                            self.interpret(door, |_, door| door.step())
                        }
                    }
                }
                // Too few are left for code: interpret them if that is all there is, otherwise begin a new slice.
                Some(Quick { code: Some(_), .. }) if left > most => return None,
                Some(Quick { code: Some(_), .. }) => self.interpret(door, |_, door| door.interpret(budget)),
                Some(_) => self.interpret(door, |_, door| door.step()),
                None => self.interpret(door, |e, door| e.visit(door, budget)),
            };
            if stop.is_some() || door.hart().fcsr() >> 5 != 0 {
                return stop;
            }
            pc = door.hart().pc();
        }
    }

    /// Run code, and what code follows it. Gives where the last was entered, and why it came back.
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
            // SAFETY: the code was made for this layout of registers and memory, and for contexts such as this one; what
            // the context points to is borrowed by the door, and nothing else reaches it meanwhile.
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

    /// What there is at `pc`: code, or nothing that can be translated, or none yet.
    fn find<X: Xlen>(&mut self, door: &Door<'_, '_, '_, X>, pc: u64) -> Option<Quick> {
        let known = self.known.entry(pc).or_default();
        known.visits += 1;
        if known.code.is_none() && !known.hopeless {
            if known.visits <= self.settings.visits {
                return None;
            }
            self.translate(door, pc);
        }
        let known = self.known.get(&pc)?;
        let quick = Quick { pc, code: known.code, wants: known.wants };
        self.quick[(pc >> 1) as usize % QUICK] = quick;
        Some(quick)
    }

    fn translate<X: Xlen>(&mut self, door: &Door<'_, '_, '_, X>, pc: u64) {
        let start = Instant::now();
        if self.code.regions() >= REGIONS_MAX {
            self.forget();
        }
        let fetch = |at| if at == Hart::<X>::RETURN { None } else { door.fetch(at) };
        let source = Source {
            bits: self.bits,
            extensions: self.extensions,
            ops_max: self.settings.region_instructions,
            fetch: &fetch,
            translates: &translates,
            targets: &self.sites.targets,
        };
        let region = source.region(pc);
        let known = self.known.entry(pc).or_default();
        let made = region.and_then(|region| {
            let (entry, bytes) = self.code.make(&region, self.bits, &self.layout, &self.sites)?;
            Some((entry, bytes, region.ops as u64))
        });
        match made {
            Some((entry, bytes, ops)) => {
                (known.code, known.wants) = (Some(entry), ops.max(1));
                self.statistics.regions += 1;
                self.statistics.instructions += ops;
                self.statistics.code_bytes += bytes;
            }
            None => known.hopeless = true,
        }
        self.statistics.translation_ns += start.elapsed().as_nanos() as u64;
    }

    /// Interpret the block at the program counter, which is not translated yet.
    fn visit<X: Xlen>(&mut self, door: &mut Door<'_, '_, '_, X>, budget: u64) -> Option<Stop> {
        let pc = door.hart().pc();
        let visits = self.known.get(&pc).map_or(0, |k| k.visits);
        if visits != self.settings.visits / 2 && visits != self.settings.visits {
            return door.block(budget);
        }
        let Some(block) = Block::decode(pc, self.bits, self.extensions, OPS_MAX, |at| door.fetch(at)) else {
            return door.block(budget);
        };
        for op in block.ops.iter().take(budget as usize) {
            let at = door.hart().pc();
            self.look(door, at, op);
            if let Some(stop) = door.step() {
                return Some(stop);
            }
            if op.row().format == Format::JumpRegister {
                self.sites.jumped(at, door.hart().pc());
            }
        }
        None
    }

    /// Note which region the instruction at `pc` is about to reach. Gives whether that is news.
    fn look<X: Xlen>(&mut self, door: &Door<'_, '_, '_, X>, pc: u64, op: &Op) -> bool {
        if !matches!(op.row().format, Format::Load | Format::Store | Format::FloatLoad | Format::FloatStore) {
            return false;
        }
        let address = X::unsigned(X::word(door.hart().x(op.rs1 as usize).wrapping_add(op.imm as i64 as u64)));
        if self.layout.main.contains(&address) {
            return self.sites.reached(pc, MAIN);
        }
        let span = door.spans().into_iter().find(|s| s.addresses.contains(&address));
        let slot = span.and_then(|s| self.sites.slot(s.addresses.start));
        slot.is_some_and(|slot| self.sites.reached(pc, slot))
    }

    /// Code that was entered at `from` met memory where it was not expected.
    fn missed<X: Xlen>(&mut self, door: &Door<'_, '_, '_, X>, from: u64) {
        let pc = door.hart().pc();
        let Some(word) = door.fetch(pc) else { return };
        let op = isa::decode(word, self.bits, self.extensions);
        if !self.look(door, pc, &op) {
            return;
        }
        if let Some(known) = self.known.get_mut(&from) {
            known.news += 1;
            if known.news >= NEWS_MAX && known.remade < REMADE_MAX {
                (known.news, known.code) = (0, None);
                known.remade += 1;
                self.quick.fill(NOWHERE);
            }
        }
    }
}
