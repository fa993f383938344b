//! Cores of kernels whose instructions a meter observes: checks of tables, costs of screens.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use nandarray_hart::{Extensions, Hart, HartMode, Limits, Memory, Meter, Rv64, Stop, Streams};

use crate::kernel::{KernelCore, KernelProgram, ScreenCall, ScreenError};
use crate::processor::Processor;

/// A core of 64 bits whose instructions a meter observes; the meter is reached between calls.
pub struct MeteredCore<M: Meter> {
    hart: Hart<Rv64, M>,
}

impl<M: Meter + 'static> MeteredCore<M> {
    /// A core with a meter.
    pub fn new(meter: M) -> Self {
        Self { hart: Hart::with_meter(HartMode::Program, Extensions::PROGRAM, meter) }
    }

    /// The meter.
    pub fn meter(&self) -> &M {
        self.hart.meter()
    }

    /// The meter, to be changed.
    pub fn meter_mut(&mut self) -> &mut M {
        self.hart.meter_mut()
    }

    /// Runs a screen, and returns the core.
    ///
    /// # Errors
    /// [`ScreenError`].
    pub fn run(
        self,
        kernel: &KernelProgram,
        call: ScreenCall<'_>,
        limit: Option<u64>,
    ) -> (Result<(), ScreenError>, Self) {
        let slot = Arc::new(Mutex::new(None));
        let processor = Box::new(Returning { hart: Some(self.hart), slot: slot.clone() });
        let (microblock, screen) = (kernel.table.microblocks[call.microblock].entry.clone(), call.screen);
        let done = match KernelCore::new(kernel, processor) {
            Ok(mut core) => core.run(kernel, call, limit, &AtomicBool::new(false)),
            Err(e) => Err(ScreenError::Memory { microblock, screen, what: e.to_string() }),
        };
        let hart = slot.lock().expect("no thread panics with it").take().expect("the processor was dropped");
        (done, Self { hart })
    }
}

impl<M: Meter> std::fmt::Debug for MeteredCore<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeteredCore").finish_non_exhaustive()
    }
}

/// A hart that goes back to its owner when it is dropped.
struct Returning<M: Meter> {
    hart: Option<Hart<Rv64, M>>,
    slot: Arc<Mutex<Option<Hart<Rv64, M>>>>,
}

impl<M: Meter> Returning<M> {
    fn hart(&self) -> &Hart<Rv64, M> {
        self.hart.as_ref().expect("it is there until it is dropped")
    }

    fn hart_mut(&mut self) -> &mut Hart<Rv64, M> {
        self.hart.as_mut().expect("it is there until it is dropped")
    }
}

impl<M: Meter> Drop for Returning<M> {
    fn drop(&mut self) {
        *self.slot.lock().expect("no thread panics with it") = self.hart.take();
    }
}

impl<M: Meter + 'static> Processor for Returning<M> {
    fn start(&mut self, entry: u64, stack: u64, argument: u64) {
        self.hart_mut().start(entry, stack, argument);
    }

    fn run(&mut self, memory: &mut Memory<'_>, streams: &mut Streams<'_>, limits: Limits<'_>) -> Stop {
        self.hart_mut().run(memory, streams, limits)
    }

    fn pc(&self) -> u64 {
        self.hart().pc()
    }

    fn result(&self) -> i64 {
        self.hart().result()
    }

    fn instructions(&self) -> u64 {
        self.hart().instructions()
    }
}
