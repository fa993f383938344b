//! The translator as a processor of cores: all processors of a program share its translated code.

use std::sync::Arc;

use nandarray_cores::Processor;
use nandarray_hart::{Extensions, Limits, Memory, Rv32, Rv64, Stop, Streams, Xlen};

use crate::purse::Purse;
use crate::shared::SharedCode;
use crate::{Settings, Translated};

/// The translated code of one program, shared by all cores that run it, in any thread. Keep it as long as the program
/// is loaded.
#[derive(Clone)]
pub struct Translations(Arc<SharedCode>);

impl Translations {
    /// Creates a cache without code for a program of harts with 32 or 64 bits, with default settings.
    pub fn new(bits: u32) -> Self {
        Self::with_settings(bits, Settings::default())
    }

    /// As [`Self::new`], with the given settings.
    pub fn with_settings(bits: u32, settings: Settings) -> Self {
        Self::with_extensions(bits, Extensions::PROGRAM, settings)
    }

    /// As [`Self::with_settings`], for harts with `extensions`, which must include all that the program uses.
    pub fn with_extensions(bits: u32, extensions: Extensions, settings: Settings) -> Self {
        Self(Arc::new(SharedCode::new(settings, bits, extensions)))
    }

    /// Begins a run of the program, with its own budget for translating.
    pub fn run(&self) -> TranslatedRun {
        TranslatedRun { shared: self.0.clone(), purse: self.0.purse() }
    }

    /// Returns the bytes of memory that host code occupies so far, in whole pages.
    pub fn code_bytes(&self) -> u64 {
        self.0.made().code_bytes
    }
}

impl std::fmt::Debug for Translations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Translations").field("bits", &self.0.bits).finish_non_exhaustive()
    }
}

/// A run of one program: it creates processors that share one budget for translating.
pub struct TranslatedRun {
    shared: Arc<SharedCode>,
    purse: Arc<Purse>,
}

impl TranslatedRun {
    /// Creates the processor of one core of this run. It must execute this program only, whose code it shares.
    pub fn processor(&self) -> Box<dyn Processor> {
        let (shared, purse) = (self.shared.clone(), self.purse.clone());
        match shared.bits {
            32 => Box::new(Translated::<Rv32>::sharing(shared, purse)),
            _ => Box::new(Translated::<Rv64>::sharing(shared, purse)),
        }
    }
}

impl std::fmt::Debug for TranslatedRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("bits", &self.shared.bits).field("purse", &self.purse).finish_non_exhaustive()
    }
}

impl<X: Xlen> Processor for Translated<X> {
    fn start(&mut self, entry: u64, stack: u64, argument: u64) {
        self.hart_mut().start(entry, stack, argument);
    }

    fn run(&mut self, memory: &mut Memory<'_>, streams: &mut Streams<'_>, limits: Limits<'_>) -> Stop {
        Translated::run(self, memory, streams, limits)
    }

    fn pc(&self) -> u64 {
        self.hart().pc()
    }

    fn link(&self) -> Option<u64> {
        self.hart().link()
    }

    fn result(&self) -> i64 {
        self.hart().result()
    }

    fn instructions(&self) -> u64 {
        self.hart().instructions()
    }
}
