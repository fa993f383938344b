//! Cores of kernels whose instructions a meter observes: checks of tables, costs of screens.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use nandarray_hart::{Extensions, Hart, HartMode, Meter, Rv64};

use crate::kernel::{KernelCore, KernelProgram, ScreenCall, ScreenError};
use crate::processor::{HartOwner, OwnedHart};

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
        let processor = Box::new(OwnedHart::new(self.hart, HartSlot(slot.clone())));
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

/// The place to which a screen's hart goes back.
struct HartSlot<M: Meter>(Arc<Mutex<Option<Hart<Rv64, M>>>>);

impl<M: Meter> HartOwner<Rv64, M> for HartSlot<M> {
    fn returned(&mut self, hart: Hart<Rv64, M>) {
        *self.0.lock().expect("no thread panics with it") = Some(hart);
    }
}
