//! Profiles of programs: cores that count executions of instructions, and the sum of the counts of all cores.
//!
//! A [`Profiler`] makes cores like [`Core::interpreter`]; each adds its counts to the profiler when it is dropped.
//! Counts are by address; functions and source lines are not known here.

use std::sync::Arc;

use nandarray_hart::{Counter, Extensions, Hart, HartMode, Profile, Rv32, Rv64, Xlen};
use parking_lot::Mutex;

use crate::core::Core;
use crate::error::LoadError;
use crate::processor::{HartOwner, OwnedHart, Processor};
use crate::program::Program;

/// Makes cores that count the executions of each instruction, and sums the counts.
#[derive(Clone, Debug, Default)]
pub struct Profiler(Arc<Mutex<Profile>>);

impl Profiler {
    /// Creates a core whose interpreter counts the executions of each instruction.
    ///
    /// # Errors
    /// [`LoadError`]: the program cannot be loaded.
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

    /// Returns the sum of the counts of this profiler's cores, and resets the sum. A core adds its counts when it is
    /// dropped.
    pub fn take(&self) -> Profile {
        std::mem::take(&mut *self.0.lock())
    }
}

impl<X: Xlen> HartOwner<X, Counter> for Profiler {
    fn returned(&mut self, mut hart: Hart<X, Counter>) {
        self.0.lock().add(&hart.meter_mut().take());
    }
}
