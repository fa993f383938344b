//! Programs beside the data at the host's speed: RISC-V translated to host code by Cranelift.
//!
//! [`Translated`] is a hart that does exactly what [`nandarray_hart::Hart`] does, to the bit: registers, flags, memory,
//! streams, counts of instructions, traps and limits. It interprets rare instructions, and translates those that are
//! executed so often that translating pays. Every access to memory is compared with the regions of memory, so a program
//! reaches nothing else; every loop checks the instructions that are left, so it can be stopped.
//!
//! Some instructions are always interpreted, one at a time: atomic operations, control and status registers but for
//! the streams' heads and ends, `readistream`, `peekistream` and `readostream`, system instructions; all instructions
//! while the rounding mode is not to nearest, in memory that can be both written and executed, and in privileged mode.

mod code;
mod context;
mod emit;
mod engine;
mod pace;
mod processor;
mod region;
mod registers;
mod shared;
mod sites;

use std::sync::Arc;

use nandarray_hart::{Extensions, Hart, HartMode, Limits, Memory, Stop, Streams, Xlen};

pub use engine::Statistics;
pub use pace::Costs;
pub use processor::{TranslatedRun, Translations};

/// The rule by which a region is chosen for translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TranslationTrigger {
    /// When it pays, estimated by these costs.
    Pays(Costs),
    /// When a block was interpreted this number of times, whatever it costs.
    Visited(u32),
}

/// Settings of the translator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The rule by which a region is chosen for translation.
    pub when: TranslationTrigger,
    /// The most instructions of a region.
    pub region_instructions: usize,
    /// Bytes of memory for host code, in whole pages, after which no further region is translated.
    pub code_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { when: TranslationTrigger::Pays(Costs::default()), region_instructions: 1500, code_bytes: 16 << 20 }
    }
}

/// A hart for programs, of width `X`, whose instructions are translated.
pub struct Translated<X: Xlen> {
    hart: Hart<X>,
    engine: engine::Engine,
}

impl<X: Xlen> Translated<X> {
    /// A hart whose registers are zero.
    pub fn new(extensions: Extensions) -> Self {
        Self::with_settings(extensions, Settings::default())
    }

    /// The same, with settings of one's own.
    pub fn with_settings(extensions: Extensions, settings: Settings) -> Self {
        let shared = Arc::new(shared::SharedCode::new(settings, X::BITS, extensions));
        let purse = shared.purse();
        Self::sharing(shared, purse)
    }

    fn sharing(shared: Arc<shared::SharedCode>, purse: Arc<pace::Purse>) -> Self {
        assert_eq!(shared.bits, X::BITS, "harts of one width share code");
        Self { hart: Hart::new(HartMode::Program, shared.extensions), engine: engine::Engine::new(shared, purse) }
    }

    /// The hart, to look at.
    pub fn hart(&self) -> &Hart<X> {
        &self.hart
    }

    /// The hart, to set registers and to set up calls.
    pub fn hart_mut(&mut self) -> &mut Hart<X> {
        &mut self.hart
    }

    /// Execute until something stops it: as [`Hart::run`] does.
    pub fn run(&mut self, memory: &mut Memory<'_>, streams: &mut Streams<'_>, limits: Limits<'_>) -> Stop {
        self.engine.run(&mut self.hart, memory, streams, limits)
    }

    /// Drops decoded blocks and translated code, and shares no code any more: the caller changed code in memory, or
    /// lends another program's.
    pub fn forget(&mut self) {
        self.hart.forget_blocks();
        self.engine.forget();
    }

    /// Counts of the translator's work so far.
    pub fn statistics(&self) -> Statistics {
        self.engine.statistics()
    }
}
