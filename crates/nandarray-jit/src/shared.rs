//! The data that harts of one program share: host code, its entries, and observations of the program.
//!
//! One thread at a time translates. Other threads find the lock taken and continue to interpret, so no thread waits.
//! Code is kept until the last hart of the program is dropped; even code that was replaced by a recompilation stays,
//! since another hart may be executing it. The run whose core requests a translation pays for it. Nothing here executes
//! instructions.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use nandarray_hart::isa::{self, Format, Instruction};
use nandarray_hart::{Extensions, Hart, TranslatorPort, Xlen};
use parking_lot::{Mutex, RwLock};

use crate::code::HostCode;
use crate::context::{CodeEntry, ContextLayout, SLOTS};
use crate::emit::weight;
use crate::purse::{Costs, Purse};
use crate::region::{Region, RegionSource, translates};
use crate::sites::{MAIN, Sites};
use crate::{Settings, TranslationTrigger};

/// Number of memory regions that code must reach for the first time before it is recompiled to include them.
const NEW_REGIONS_MAX: u32 = 3;
/// Most recompilations of one region.
const RECOMPILED_MAX: u32 = 6;
/// Nanoseconds that it costs to leave code for one instruction that accesses an unexpected memory region.
const MISSED_NS: u64 = 400;
/// Fewest instructions that the run's [`Purse`] must afford before a larger region is cut down to what it affords.
const SHORT: u64 = 300;
/// Most attempts to make a region small enough for the purse.
const TRIES: u32 = 3;

/// Counts of the code that was translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Made {
    /// Number of regions that were translated; each recompilation counts again.
    pub(crate) regions: u64,
    /// Number of instructions in those regions.
    pub(crate) instructions: u64,
    /// Bytes of memory that host code occupies, in whole pages.
    pub(crate) code_bytes: u64,
}

/// The record of an address from which execution continued, and from which a region may be translated.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    visits: u32,
    /// Number of instructions that were interpreted in stretches that began at this address, or ended here at a sample.
    heat: u64,
    /// The value of `heat` that is needed before a translation of the region is considered again.
    pays_from: u64,
    code: Option<CodeEntry>,
    /// Number of instructions that must be left in the run's budget for this code to be entered.
    wants: u64,
    /// Nanoseconds that compiling the code took; while there is no code, those that the purse must contain before an
    /// attempt.
    cost_ns: u64,
    /// Number of instructions that accessed a memory region which the code did not expect.
    missed: u64,
    /// Number of memory regions that these instructions accessed for the first time.
    new_regions: u32,
    recompiled: u32,
    /// Whether earlier code at this address is to be replaced by a recompilation.
    again: bool,
    /// Whether nothing can be translated at this address.
    hopeless: bool,
}

/// The state of the code at an address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CodeState {
    /// The code, and the number of instructions that must be left in the run's limit to enter it; no code if nothing
    /// can be translated.
    Code(Option<CodeEntry>, u64),
    /// As `Code`, for a region translated by this call.
    Fresh(Option<CodeEntry>, u64),
    /// There is no code yet; the address was reached this number of times.
    Cold(u32),
    /// There is no code yet; the next instructions are to be executed one at a time and observed.
    Watch,
    /// There is no code yet; the interpreter continues.
    Wait,
    /// The state is unknown, since another hart holds the lock to translate.
    Busy,
}

/// The data that the lock protects.
#[derive(Default)]
struct TranslatorState {
    sites: Sites,
    known: HashMap<u64, Known>,
    code: HostCode,
    made: Made,
    /// Addresses of blocks that were executed one instruction at a time, to observe them before their translation.
    watched: HashSet<u64>,
    /// Addresses at which translated code can be entered.
    entries: Vec<u64>,
}

/// The data that harts of one program share, with the rules by which they translate.
pub(crate) struct SharedCode {
    pub(crate) settings: Settings,
    pub(crate) bits: u32,
    pub(crate) extensions: Extensions,
    /// The layout for which the code is compiled: that of the first hart.
    layout: OnceLock<ContextLayout>,
    /// First addresses of the memory regions beside the main one, by slot.
    bases: RwLock<Vec<u64>>,
    /// Number of recompilations so far.
    generation: AtomicU64,
    /// Number of addresses at which translated code can be entered.
    entries: AtomicUsize,
    inner: Mutex<TranslatorState>,
}

impl SharedCode {
    pub(crate) fn new(settings: Settings, bits: u32, extensions: Extensions) -> Self {
        assert!(bits == 32 || bits == 64, "registers of {bits} bits");
        Self {
            settings,
            bits,
            extensions,
            layout: OnceLock::new(),
            bases: RwLock::default(),
            generation: AtomicU64::new(0),
            entries: AtomicUsize::new(0),
            inner: Mutex::default(),
        }
    }

    /// Creates the purse of a new run, which the run's cores share.
    pub(crate) fn purse(&self) -> Arc<Purse> {
        let costs = match self.settings.when {
            TranslationTrigger::Pays(costs) => costs,
            // With this trigger, translating needs no payment.
            TranslationTrigger::Visited(_) => Costs::NONE,
        };
        Arc::new(Purse::open(&costs))
    }

    /// Calls `tell` with each address at which translated code can be entered, except the first `known` ones, and sets
    /// `known` to the number of all. Does nothing while another thread holds the lock.
    pub(crate) fn entries(&self, known: &mut usize, mut tell: impl FnMut(u64)) {
        if self.entries.load(Ordering::Relaxed) != *known {
            if let Some(inner) = self.inner.try_lock() {
                inner.entries[*known..].iter().for_each(|pc| tell(*pc));
                *known = inner.entries.len();
            }
        }
    }

    /// Whether the shared code was compiled for this layout. The first call fixes the layout, later calls compare.
    pub(crate) fn fits(&self, layout: &ContextLayout) -> bool {
        self.layout.get_or_init(|| layout.clone()) == layout
    }

    /// Returns the number of recompilations so far; code that was looked up before it last rose may be out of date.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    pub(crate) fn made(&self) -> Made {
        self.inner.lock().made
    }

    /// Returns the slot of the memory region that begins at `base`, assigning one if it is new; `None` if all slots are
    /// in use.
    pub(crate) fn slot(&self, base: u64) -> Option<u8> {
        let place = |bases: &[u64]| bases.iter().position(|b| *b == base).map(|slot| slot as u8);
        if let Some(slot) = place(&self.bases.read()) {
            return Some(slot);
        }
        let mut bases = self.bases.write();
        if let Some(slot) = place(&bases) {
            return Some(slot);
        }
        debug_assert!(bases.len() <= SLOTS, "{} memory regions", bases.len());
        if bases.len() == SLOTS {
            return None;
        }
        bases.push(base);
        Some(bases.len() as u8 - 1)
    }

    /// Finds the code at `pc`; translates it first, if the trigger says so and the run can pay.
    pub(crate) fn find<X: Xlen>(&self, port: &TranslatorPort<'_, '_, '_, X>, purse: &Purse, pc: u64) -> CodeState {
        let Some(mut inner) = self.inner.try_lock() else { return CodeState::Busy };
        let known = inner.known.entry(pc).or_default();
        if known.code.is_some() {
            return CodeState::Code(known.code, known.wants);
        }
        match self.settings.when {
            TranslationTrigger::Visited(_) if known.hopeless => return CodeState::Code(None, known.wants),
            TranslationTrigger::Visited(often) => {
                known.visits = known.visits.saturating_add(1);
                if known.visits <= often {
                    return CodeState::Cold(known.visits);
                }
                let region = self.region(&inner, port, pc, self.settings.region_instructions, &|_| true);
                self.make(&mut inner, pc, region, 0);
            }
            TranslationTrigger::Pays(costs) => {
                if known.hopeless || known.heat < known.pays_from.max(costs.warm) {
                    return CodeState::Wait;
                }
                let cost_ns = known.cost_ns;
                if !purse.has(cost_ns) {
                    return CodeState::Wait;
                }
                if !inner.watched.contains(&pc) {
                    return CodeState::Watch;
                }
                self.weigh(&mut inner, port, purse, pc, &costs);
            }
        }
        match inner.known.entry(pc).or_default() {
            Known { code: None, .. } if matches!(self.settings.when, TranslationTrigger::Pays(_)) => CodeState::Wait,
            known => CodeState::Fresh(known.code, known.wants),
        }
    }

    /// Translates the region at `pc` if the time that code would have saved so far pays for translating, and the purse
    /// affords it.
    fn weigh<X: Xlen>(
        &self,
        inner: &mut TranslatorState,
        port: &TranslatorPort<'_, '_, '_, X>,
        purse: &Purse,
        pc: u64,
        costs: &Costs,
    ) {
        let affordable = costs.affordable(purse.ns());
        let (known, watched) = (&inner.known, &inner.watched);
        // Blocks that have code are not included: every path enters that code instead.
        let wanted = |at| watched.contains(&at) && known.get(&at).is_none_or(|known| known.code.is_none());
        let (mut most, mut tries) = (self.settings.region_instructions as u64, 0);
        let (region, weight) = loop {
            let Some(region) = self.region(inner, port, pc, most as usize, &wanted) else {
                inner.known.entry(pc).or_default().hopeless = true;
                return;
            };
            let weight = region.nodes.iter().flat_map(|node| &node.ops).map(weight).sum::<u64>();
            if weight <= affordable || tries == TRIES {
                break (region, weight);
            }
            // Try a smaller region, if it is still worth translating.
            most = (region.ops as u64 * affordable / weight).max(1);
            tries += 1;
        };
        if weight > affordable || (tries > 0 && affordable < SHORT) {
            // The cut of the region depends on the purse: wait until it contains more, instead of trying at every
            // sample.
            let known = inner.known.entry(pc).or_default();
            known.cost_ns = costs.region(weight.max(SHORT));
            known.pays_from = known.heat.saturating_add((known.heat / 4).max(costs.warm));
            return;
        }
        let mut places: Vec<u64> = region.nodes.iter().map(|node| node.pc).collect();
        places.sort_unstable();
        places.dedup();
        let heats = places.iter().filter_map(|at| inner.known.get(at)).map(|known| known.heat);
        let heat = heats.fold(0, u64::saturating_add);
        let cost_ns = costs.region(weight);
        let pays_after = costs.pays_after(cost_ns);
        if heat < pays_after && !inner.known[&pc].again {
            // Each address is weighed again when it has gained its share of the missing heat.
            let missing = u128::from(pays_after - heat);
            for at in places {
                let Some(known) = inner.known.get_mut(&at) else { continue };
                let share = missing * u128::from(known.heat) / u128::from(heat.max(1));
                known.pays_from = known.heat.saturating_add((share as u64).max(costs.sample));
            }
            return;
        }
        // Cores of this run that do not share this code may have spent from the purse meanwhile.
        if !purse.take(cost_ns) {
            return;
        }
        self.make(inner, pc, Some(region), cost_ns);
        for at in places {
            if let Some(known) = inner.known.get_mut(&at) {
                (known.heat, known.pays_from) = (0, 0);
            }
        }
    }

    /// Builds the region at `pc`; `None` if nothing can be translated there, or the memory for code is used up.
    fn region<X: Xlen>(
        &self,
        inner: &TranslatorState,
        port: &TranslatorPort<'_, '_, '_, X>,
        pc: u64,
        ops_max: usize,
        wanted: &dyn Fn(u64) -> bool,
    ) -> Option<Region> {
        if inner.made.code_bytes >= self.settings.code_bytes {
            return None;
        }
        let fetch = |at| if at == Hart::<X>::RETURN { None } else { port.fetch(at) };
        let source = RegionSource {
            bits: self.bits,
            extensions: self.extensions,
            ops_max,
            fetch: &fetch,
            wanted,
            translates: &translates,
            targets: &inner.sites.targets,
        };
        source.region(pc)
    }

    /// Compiles a region that is entered at `pc`, and records its code, or that nothing can be translated there.
    fn make(&self, inner: &mut TranslatorState, pc: u64, region: Option<Region>, cost_ns: u64) {
        let Some(layout) = self.layout.get() else { return };
        let bases = self.bases.read().clone();
        let made = region.and_then(|region| {
            let (entry, bytes) = inner.code.make(&region, self.bits, layout, &inner.sites, &bases)?;
            Some((entry, bytes, region.ops as u64))
        });
        let known = inner.known.entry(pc).or_default();
        let Some((entry, bytes, ops)) = made else {
            known.hopeless = true;
            return;
        };
        debug_assert!(known.code.is_none() && !known.hopeless, "code at {pc:#x} is made once");
        (known.code, known.wants, known.cost_ns) = (Some(entry), ops.max(1), cost_ns);
        if !std::mem::take(&mut known.again) {
            inner.entries.push(pc);
            self.entries.store(inner.entries.len(), Ordering::Relaxed);
        }
        inner.made.regions += 1;
        inner.made.instructions += ops;
        inner.made.code_bytes += bytes;
    }

    /// Adds `heat` interpreted instructions to the count of address `pc`. They are lost while another thread holds the
    /// lock.
    pub(crate) fn heated(&self, pc: u64, heat: u64) {
        if let Some(mut inner) = self.inner.try_lock() {
            let known = inner.known.entry(pc).or_default();
            known.heat = known.heat.saturating_add(heat);
        }
    }

    /// Notes that the block at `pc` is about to be executed instruction by instruction, and charges the purse for that.
    pub(crate) fn watched(&self, costs: &Costs, purse: &Purse, pc: u64, instructions: u64) {
        if let Some(mut inner) = self.inner.try_lock() {
            inner.watched.insert(pc);
            purse.spend(costs.watched_ns * instructions);
        }
    }

    /// Notes which memory region the instruction `op` at `pc` is about to access. Returns whether this is its first
    /// access to that region.
    fn look<X: Xlen>(
        &self,
        inner: &mut TranslatorState,
        port: &TranslatorPort<'_, '_, '_, X>,
        pc: u64,
        op: &Instruction,
    ) -> bool {
        if !reaches(op) {
            return false;
        }
        let address = X::unsigned(X::word(port.hart().x(op.rs1 as usize).wrapping_add(op.imm as i64 as u64)));
        if self.layout.get().is_some_and(|layout| layout.main.contains(&address)) {
            return inner.sites.reached(pc, MAIN);
        }
        let span = port.spans().into_iter().find(|s| s.addresses.contains(&address));
        let slot = span.and_then(|s| self.slot(s.addresses.start));
        slot.is_some_and(|slot| inner.sites.reached(pc, slot))
    }

    /// Notes which memory region the instruction at the program counter is about to access. The note is lost while
    /// another thread holds the lock.
    pub(crate) fn seen<X: Xlen>(&self, port: &TranslatorPort<'_, '_, '_, X>, op: &Instruction) {
        if !reaches(op) {
            return;
        }
        if let Some(mut inner) = self.inner.try_lock() {
            self.look(&mut inner, port, port.hart().pc(), op);
        }
    }

    /// Notes that the indirect jump at `pc` went to `target`.
    pub(crate) fn jumped(&self, pc: u64, target: u64) {
        if let Some(mut inner) = self.inner.try_lock() {
            inner.sites.jumped(pc, target);
        }
    }

    /// Notes that code which was entered at `from` is about to access a memory region that it did not expect. After
    /// some new regions the code is dropped, to be recompiled.
    pub(crate) fn missed<X: Xlen>(&self, port: &TranslatorPort<'_, '_, '_, X>, purse: &Purse, from: u64) {
        let pc = port.hart().pc();
        let (Some(word), Some(mut inner)) = (port.fetch(pc), self.inner.try_lock()) else { return };
        let op = isa::decode(word, self.bits, self.extensions);
        let new = self.look(&mut inner, port, pc, &op);
        let room = inner.made.code_bytes < self.settings.code_bytes;
        let Some(known) = inner.known.get_mut(&from) else { return };
        known.missed += 1;
        known.new_regions += u32::from(new);
        let worth = match self.settings.when {
            TranslationTrigger::Visited(_) => new && known.new_regions >= NEW_REGIONS_MAX,
            // Recompile when leaving the code has cost half the time of recompiling it.
            TranslationTrigger::Pays(_) => {
                known.new_regions > 0 && 2 * known.missed * MISSED_NS >= known.cost_ns && purse.has(known.cost_ns)
            }
        };
        if room && worth && known.recompiled < RECOMPILED_MAX {
            (known.missed, known.new_regions, known.code) = (0, 0, None);
            (known.again, known.heat) = (true, u64::MAX);
            known.recompiled += 1;
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Whether an instruction accesses memory, so that translated code compares its address with the expected regions.
fn reaches(op: &Instruction) -> bool {
    matches!(op.row().format, Format::Load | Format::Store | Format::FloatLoad | Format::FloatStore)
}
