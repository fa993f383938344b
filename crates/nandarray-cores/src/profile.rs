//! Profiles of programs: cores that count their instructions, and the sum of their counts.
//!
//! A [`Profiler`] makes cores like [`Core::interpreter`], which add their counts to it when they are dropped. The
//! functions and lines behind an address are not known here.

use std::sync::Arc;

use nandarray_hart::{Counter, Extensions, Hart, HartMode, Profile, Rv32, Rv64, Xlen};
use parking_lot::Mutex;

use crate::core::Core;
use crate::error::LoadError;
use crate::processor::{HartOwner, OwnedHart, Processor};
use crate::program::Program;

/// Makes cores that count the executions of each instruction.
#[derive(Clone, Debug, Default)]
pub struct Profiler(Arc<Mutex<Profile>>);

impl Profiler {
    /// A core with an interpreter that counts.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn core<'p>(&self, program: &'p Program) -> Result<Core<'p>, LoadError> {
        let processor: Box<dyn Processor> = match program.bits() {
            32 => Box::new(self.counting::<Rv32>(program.extensions())),
            _ => Box::new(self.counting::<Rv64>(program.extensions())),
        };
        Core::new(program, processor)
    }

    fn counting<X: Xlen>(&self, extensions: Extensions) -> OwnedHart<X, Counter, Self> {
        OwnedHart::new(Hart::with_meter(HartMode::Program, extensions, Counter::default()), self.clone())
    }

    /// Takes the counts of all of its cores that were dropped since the last call.
    pub fn take(&self) -> Profile {
        std::mem::take(&mut *self.0.lock())
    }
}

impl<X: Xlen> HartOwner<X, Counter> for Profiler {
    fn returned(&mut self, mut hart: Hart<X, Counter>) {
        self.0.lock().add(&hart.meter_mut().take());
    }
}
