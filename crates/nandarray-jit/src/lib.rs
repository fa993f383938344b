//! Programs beside the data at the host's speed: RISC-V translated to host code by Cranelift.
//!
//! [`Translated`] is a hart whose results equal those of [`nandarray_hart::Hart`] to the bit: registers, flags, memory,
//! streams, counts of instructions, traps and limits. It translates instructions that are executed so often that
//! translating pays, and interprets the others. Every access to memory is checked against the program's memory regions,
//! so a program reaches nothing else; every loop checks how many instructions may still be executed, so it can be
//! stopped.
//!
//! Some instructions are always interpreted, one at a time: atomic operations, `readistream`, `peekistream`,
//! `readostream`, system instructions, and accesses to control and status registers, except reads of a stream's head
//! and of whether an input has ended. All instructions are interpreted while the rounding mode is not "to nearest", in
//! memory that can be both written and executed, and in privileged mode.

mod code;
mod context;
mod emit;
mod engine;
mod processor;
mod purse;
mod region;
mod registers;
mod shared;
mod sites;

use std::sync::Arc;

use nandarray_hart::{Extensions, Hart, HartMode, Limits, Memory, Stop, Streams, Xlen};

pub use code::has_translator;
pub use engine::Statistics;
pub use processor::{TranslatedRun, Translations};
pub use purse::Costs;

/// The rule by which a region is chosen for translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TranslationTrigger {
    /// A region is translated as soon as the time that its code would save is estimated, from these costs, to exceed
    /// the time of translating it.
    Pays(Costs),
    /// A region is translated once its first block was interpreted this number of times, whatever translating costs.
    Visited(u32),
}

/// Settings of the translator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The rule by which a region is chosen for translation.
    pub when: TranslationTrigger,
    /// The most instructions of one translated region.
    pub region_instructions: usize,
    /// Bytes of memory for host code, in whole pages; once they are used, no further region is translated.
    pub code_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { when: TranslationTrigger::Pays(Costs::default()), region_instructions: 1500, code_bytes: 16 << 20 }
    }
}

/// A hart for programs, of register width `X`, whose frequent instructions are translated to host code.
pub struct Translated<X: Xlen> {
    hart: Hart<X>,
    engine: engine::Engine,
}

impl<X: Xlen> Translated<X> {
    /// Creates a hart with all registers zero and default settings.
    pub fn new(extensions: Extensions) -> Self {
        Self::with_settings(extensions, Settings::default())
    }

    /// Creates a hart with all registers zero and the given settings.
    pub fn with_settings(extensions: Extensions, settings: Settings) -> Self {
        let shared = Arc::new(shared::SharedCode::new(settings, X::BITS, extensions));
        let purse = shared.purse();
        Self::sharing(shared, purse)
    }

    fn sharing(shared: Arc<shared::SharedCode>, purse: Arc<purse::Purse>) -> Self {
        assert_eq!(shared.bits, X::BITS, "harts of one width share code");
        Self { hart: Hart::new(HartMode::Program, shared.extensions), engine: engine::Engine::new(shared, purse) }
    }

    /// Returns the hart, for reading its registers.
    pub fn hart(&self) -> &Hart<X> {
        &self.hart
    }

    /// Returns the hart, for setting registers and preparing calls.
    pub fn hart_mut(&mut self) -> &mut Hart<X> {
        &mut self.hart
    }

    /// Executes instructions until something stops the hart, as [`Hart::run`] does.
    pub fn run(&mut self, memory: &mut Memory<'_>, streams: &mut Streams<'_>, limits: Limits<'_>) -> Stop {
        self.engine.run(&mut self.hart, memory, streams, limits)
    }

    /// Drops decoded blocks and translated code, and stops sharing code with other harts. Call it after changing code
    /// in memory, or before running another program.
    pub fn forget(&mut self) {
        self.hart.forget_blocks();
        self.engine.forget();
    }

    /// Returns the counts of the translator's work so far.
    pub fn statistics(&self) -> Statistics {
        self.engine.statistics()
    }
}
