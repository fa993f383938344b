//! What harts that run one program share: host code, where it is entered, and what was seen of the program.
//!
//! One thread at a time translates. The others find the lock taken and interpret meanwhile, so nobody waits. Code is kept
//! until the last hart of the program is dropped; code that was made anew stays where it is, since another hart may be
//! executing it. It executes nothing.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use nandarray_hart::isa::{self, Format, Op};
use nandarray_hart::{Door, Extensions, Hart, Xlen};
use parking_lot::{Mutex, RwLock};

use crate::Settings;
use crate::code::Code;
use crate::context::{Entry, Layout, SLOTS};
use crate::region::{Source, translates};
use crate::sites::{MAIN, Sites};

/// News about memory after which code is made anew, and how often that is done.
const NEWS_MAX: u32 = 3;
const REMADE_MAX: u32 = 6;

/// What was translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Made {
    /// Regions that were translated, those made anew counted again.
    pub(crate) regions: u64,
    /// Instructions in them.
    pub(crate) instructions: u64,
    /// Bytes of host code.
    pub(crate) code_bytes: u64,
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

/// What there is at an address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// Code, and the instructions that must be left for it to do anything; none if nothing can be translated there.
    Code(Option<Entry>, u64),
    /// The same, translated just now.
    Fresh(Option<Entry>, u64),
    /// Nothing yet: it was reached so often.
    Cold(u32),
    /// Another hart is translating.
    Busy,
}

/// What is behind the lock.
#[derive(Default)]
struct Inner {
    sites: Sites,
    known: HashMap<u64, Known>,
    code: Code,
    made: Made,
}

/// What harts that run one program share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) bits: u32,
    pub(crate) extensions: Extensions,
    /// What the code relies on: that of the first hart.
    layout: OnceLock<Layout>,
    /// First addresses of the regions of memory beside the main one, by slot.
    bases: RwLock<Vec<u64>>,
    /// Counts what was made anew.
    generation: AtomicU64,
    inner: Mutex<Inner>,
}

impl Shared {
    pub(crate) fn new(settings: Settings, bits: u32, extensions: Extensions) -> Self {
        Self {
            settings,
            bits,
            extensions,
            layout: OnceLock::new(),
            bases: RwLock::default(),
            generation: AtomicU64::new(0),
            inner: Mutex::default(),
        }
    }

    /// Whether code is for this layout. The first one that asks decides.
    pub(crate) fn fits(&self, layout: &Layout) -> bool {
        self.layout.get_or_init(|| layout.clone()) == layout
    }

    /// Rises whenever code was made anew.
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

    /// What there is at `pc`, translated now if it was reached often enough.
    pub(crate) fn find<X: Xlen>(&self, door: &Door<'_, '_, '_, X>, pc: u64) -> Found {
        let Some(mut inner) = self.inner.try_lock() else { return Found::Busy };
        let known = inner.known.entry(pc).or_default();
        known.visits = known.visits.saturating_add(1);
        if known.code.is_some() || known.hopeless {
            return Found::Code(known.code, known.wants);
        }
        if known.visits <= self.settings.visits {
            return Found::Cold(known.visits);
        }
        self.translate(&mut inner, door, pc);
        let known = inner.known.entry(pc).or_default();
        Found::Fresh(known.code, known.wants)
    }

    fn translate<X: Xlen>(&self, inner: &mut Inner, door: &Door<'_, '_, '_, X>, pc: u64) {
        let fetch = |at| if at == Hart::<X>::RETURN { None } else { door.fetch(at) };
        let Some(layout) = self.layout.get() else { return };
        let room = inner.made.code_bytes < self.settings.code_bytes;
        let region = room.then(|| {
            let source = Source {
                bits: self.bits,
                extensions: self.extensions,
                ops_max: self.settings.region_instructions,
                fetch: &fetch,
                translates: &translates,
                targets: &inner.sites.targets,
            };
            source.region(pc)
        });
        let bases = self.bases.read().clone();
        let made = region.flatten().and_then(|region| {
            let (entry, bytes) = inner.code.make(&region, self.bits, layout, &inner.sites, &bases)?;
            Some((entry, bytes, region.ops as u64))
        });
        let known = inner.known.entry(pc).or_default();
        let Some((entry, bytes, ops)) = made else {
            known.hopeless = true;
            return;
        };
        (known.code, known.wants) = (Some(entry), ops.max(1));
        inner.made.regions += 1;
        inner.made.instructions += ops;
        inner.made.code_bytes += bytes;
    }

    /// Note which region the instruction `op` at `pc` is about to reach. Gives whether that is news.
    fn look<X: Xlen>(&self, inner: &mut Inner, door: &Door<'_, '_, '_, X>, pc: u64, op: &Op) -> bool {
        if !matches!(op.row().format, Format::Load | Format::Store | Format::FloatLoad | Format::FloatStore) {
            return false;
        }
        let address = X::unsigned(X::word(door.hart().x(op.rs1 as usize).wrapping_add(op.imm as i64 as u64)));
        if self.layout.get().is_some_and(|layout| layout.main.contains(&address)) {
            return inner.sites.reached(pc, MAIN);
        }
        let span = door.spans().into_iter().find(|s| s.addresses.contains(&address));
        let slot = span.and_then(|s| self.slot(s.addresses.start));
        slot.is_some_and(|slot| inner.sites.reached(pc, slot))
    }

    /// The instruction at the program counter is about to be interpreted: note what it reaches, if nobody translates.
    pub(crate) fn seen<X: Xlen>(&self, door: &Door<'_, '_, '_, X>, op: &Op) {
        if let Some(mut inner) = self.inner.try_lock() {
            self.look(&mut inner, door, door.hart().pc(), op);
        }
    }

    /// The indirect jump at `pc` went to `target`.
    pub(crate) fn jumped(&self, pc: u64, target: u64) {
        if let Some(mut inner) = self.inner.try_lock() {
            inner.sites.jumped(pc, target);
        }
    }

    /// Code that was entered at `from` met memory where it was not expected. After some such news it is to be made anew.
    pub(crate) fn missed<X: Xlen>(&self, door: &Door<'_, '_, '_, X>, from: u64) {
        let pc = door.hart().pc();
        let (Some(word), Some(mut inner)) = (door.fetch(pc), self.inner.try_lock()) else { return };
        let op = isa::decode(word, self.bits, self.extensions);
        if !self.look(&mut inner, door, pc, &op) {
            return;
        }
        let room = inner.made.code_bytes < self.settings.code_bytes;
        let Some(known) = inner.known.get_mut(&from) else { return };
        known.news += 1;
        if room && known.news >= NEWS_MAX && known.remade < REMADE_MAX {
            (known.news, known.code) = (0, None);
            known.remade += 1;
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
    }
}
