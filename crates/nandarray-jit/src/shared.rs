//! The data that harts of one program share: host code, its entries, and observations of the program.
//!
//! One thread at a time translates. The others find the lock taken and interpret meanwhile, so no thread waits. Code is
//! kept until the last hart of the program is dropped; code that was recompiled stays where it is, since another hart
//! may be executing it. The run whose core requests a translation pays for it. Nothing here executes instructions.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use nandarray_hart::isa::{self, Format, Instruction};
use nandarray_hart::{Extensions, Hart, TranslatorPort, Xlen};
use parking_lot::{Mutex, RwLock};

use crate::code::HostCode;
use crate::context::{CodeEntry, ContextLayout, SLOTS};
use crate::emit::weight;
use crate::pace::{Costs, Purse};
use crate::region::{Region, RegionSource, translates};
use crate::sites::{MAIN, Sites};
use crate::{Settings, TranslationTrigger};

/// Regions that code reached for the first time, after which it is recompiled.
const NEW_REGIONS_MAX: u32 = 3;
/// The most recompilations of a region.
const RECOMPILED_MAX: u32 = 6;
/// Nanoseconds that it takes to leave code for one instruction that reaches an unexpected region of memory.
const MISSED_NS: u64 = 400;
/// Fewest instructions that the purse must afford before a region is cut down to what it affords.
const SHORT: u64 = 300;
/// Number of attempts to make a region smaller so that it is affordable.
const TRIES: u32 = 3;

/// Counts of translated code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Made {
    /// Regions that were translated, recompiled ones counted again.
    pub(crate) regions: u64,
    /// Instructions in them.
    pub(crate) instructions: u64,
    /// Bytes of memory that host code takes, in whole pages.
    pub(crate) code_bytes: u64,
}

/// The record of an address that execution went on at.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    visits: u32,
    /// Instructions that were interpreted from here on, or up to here.
    heat: u64,
    /// The heat from which on translating from here may pay.
    pays_from: u64,
    code: Option<CodeEntry>,
    /// Instructions that must be left for the code to do anything.
    wants: u64,
    /// Nanoseconds that compiling took, or that the purse must have before it is tried.
    cost_ns: u64,
    /// Instructions that reached a region of memory which the code did not expect.
    missed: u64,
    /// Regions of memory that they reached for the first time.
    new_regions: u32,
    recompiled: u32,
    /// Whether there was code, which is to be recompiled.
    again: bool,
    /// Whether nothing can be translated here.
    hopeless: bool,
}

/// The state of the code at an address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CodeState {
    /// Code, and the instructions that must be left for it to do anything; `None` if nothing can be translated there.
    Code(Option<CodeEntry>, u64),
    /// The same, translated just now.
    Fresh(Option<CodeEntry>, u64),
    /// No code yet; the number of times that it was reached.
    Cold(u32),
    /// No code yet, and the next instructions are to be watched.
    Watch,
    /// No code yet.
    Wait,
    /// Another hart is translating.
    Busy,
}

/// The data behind the lock.
#[derive(Default)]
struct TranslatorState {
    sites: Sites,
    known: HashMap<u64, Known>,
    code: HostCode,
    made: Made,
    /// Addresses of blocks whose executions were observed once before their translation.
    watched: HashSet<u64>,
    /// Addresses at which code is entered.
    entries: Vec<u64>,
}

/// The data that harts of one program share.
pub(crate) struct SharedCode {
    pub(crate) settings: Settings,
    pub(crate) bits: u32,
    pub(crate) extensions: Extensions,
    /// Layout that the code relies on: that of the first hart.
    layout: OnceLock<ContextLayout>,
    /// First addresses of the regions of memory beside the main one, by slot.
    bases: RwLock<Vec<u64>>,
    /// Number of recompilations.
    generation: AtomicU64,
    /// Number of addresses at which code is entered.
    entries: AtomicUsize,
    inner: Mutex<TranslatorState>,
}

impl SharedCode {
    pub(crate) fn new(settings: Settings, bits: u32, extensions: Extensions) -> Self {
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

    /// The purse of a run that begins: its cores share it.
    pub(crate) fn purse(&self) -> Arc<Purse> {
        let costs = match self.settings.when {
            TranslationTrigger::Pays(costs) => costs,
            // It pays for nothing then.
            TranslationTrigger::Visited(_) => Costs::NONE,
        };
        Arc::new(Purse::open(&costs))
    }

    /// Calls `tell` with the addresses at which code is entered, from number `known` on.
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

    /// Rises whenever code was recompiled.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    pub(crate) fn made(&self) -> Made {
        self.inner.lock().made
    }

    /// The slot of the region that begins at `base`; none if there are too many.
    pub(crate) fn slot(&self, base: u64) -> Option<u8> {
        let place = |bases: &[u64]| bases.iter().position(|b| *b == base).map(|slot| slot as u8);
        if let Some(slot) = place(&self.bases.read()) {
            return Some(slot);
        }
        let mut bases = self.bases.write();
        if let Some(slot) = place(&bases) {
            return Some(slot);
        }
        if bases.len() == SLOTS {
            return None;
        }
        bases.push(base);
        Some(bases.len() as u8 - 1)
    }

    /// The code at `pc`, translated now if it is time for that and the run can pay.
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

    /// Translates the region from `pc` if the time it would have saved so far pays for it, and the purse allows it.
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
        // Blocks that have code are entered there by every path.
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
            // A smaller region, if it is still worth translating.
            most = (region.ops as u64 * affordable / weight).max(1);
            tries += 1;
        };
        if weight > affordable || (tries > 0 && affordable < SHORT) {
            // The cut depends on the purse: it is tried again when that holds more, and not at every sample.
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
            // Each place is weighed again when it has its share of the missing heat.
            let missing = u128::from(pays_after - heat);
            for at in places {
                let Some(known) = inner.known.get_mut(&at) else { continue };
                let share = missing * u128::from(known.heat) / u128::from(heat.max(1));
                known.pays_from = known.heat.saturating_add((share as u64).max(costs.sample));
            }
            return;
        }
        // Cores of the run that share no code with this one may have spent from it meanwhile.
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

    /// The region from `pc` on; `None` if nothing can be translated there, or there is no room for more code.
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

    /// Make the code of a region that is entered at `pc`.
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
        (known.code, known.wants, known.cost_ns) = (Some(entry), ops.max(1), cost_ns);
        if !std::mem::take(&mut known.again) {
            inner.entries.push(pc);
            self.entries.store(inner.entries.len(), Ordering::Relaxed);
        }
        inner.made.regions += 1;
        inner.made.instructions += ops;
        inner.made.code_bytes += bytes;
    }

    /// Notes that `heat` instructions were interpreted near `pc`; dropped while another thread translates.
    pub(crate) fn heated(&self, pc: u64, heat: u64) {
        if let Some(mut inner) = self.inner.try_lock() {
            let known = inner.known.entry(pc).or_default();
            known.heat = known.heat.saturating_add(heat);
        }
    }

    /// Notes that the block at `pc` is about to be executed instruction by instruction.
    pub(crate) fn watched(&self, costs: &Costs, purse: &Purse, pc: u64, instructions: u64) {
        if let Some(mut inner) = self.inner.try_lock() {
            inner.watched.insert(pc);
            purse.spend(costs.watched_ns * instructions);
        }
    }

    /// Notes the region that the instruction `op` at `pc` is about to reach. Returns whether that is its first time.
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

    /// Notes the region that the instruction at the program counter is about to reach; dropped while another thread
    /// translates.
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

    /// Notes that code entered at `from` reached a region of memory that it did not expect. It is recompiled after some
    /// new regions.
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
            // As with the first translation: when leaving code has cost half the time of recompiling it.
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

/// Whether an instruction reaches memory that code has to compare with what it expects.
fn reaches(op: &Instruction) -> bool {
    matches!(op.row().format, Format::Load | Format::Store | Format::FloatLoad | Format::FloatStore)
}
