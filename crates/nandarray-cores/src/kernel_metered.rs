//! Cores whose meter observes a kernel's instructions, for checks of description tables and costs of screens.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use nandarray_hart::{Extensions, Hart, HartMode, Meter, Rv32, Rv64, Xlen};

use crate::error::LoadError;
use crate::kernel::{KernelCore, KernelProgram, ScreenCall, ScreenError};
use crate::processor::{HartOwner, OwnedHart};

/// Creates a core of the kernel with this meter, calls `work` on the core, and returns its result and the meter.
///
/// # Errors
/// [`LoadError`]: the kernel cannot be loaded.
pub fn metered<M: Meter + 'static, R>(
    kernel: &KernelProgram,
    meter: M,
    work: impl FnOnce(&mut KernelCore) -> R,
) -> Result<(R, M), LoadError> {
    match kernel.bits() {
        32 => on_hart::<Rv32, M, R>(kernel, meter, work),
        _ => on_hart::<Rv64, M, R>(kernel, meter, work),
    }
}

/// Runs one screen on a core with this meter, for at most `limit` instructions; returns the meter.
///
/// # Errors
/// [`ScreenError`]: the screen failed.
pub fn metered_screen<M: Meter + 'static>(
    kernel: &KernelProgram,
    meter: M,
    call: ScreenCall<'_>,
    limit: Option<u64>,
) -> Result<M, ScreenError> {
    let (microblock, screen) = (kernel.table.microblocks[call.microblock].entry.clone(), call.screen);
    let done = metered(kernel, meter, |core| core.run(kernel, call, limit, &AtomicBool::new(false)));
    let (done, meter) = done.map_err(|e| ScreenError::Memory { microblock, screen, what: e.to_string() })?;
    done.map(|()| meter)
}

fn on_hart<X: Xlen, M: Meter + 'static, R>(
    kernel: &KernelProgram,
    meter: M,
    work: impl FnOnce(&mut KernelCore) -> R,
) -> Result<(R, M), LoadError> {
    let slot = Arc::new(Mutex::new(None));
    let hart = Hart::<X, M>::with_meter(HartMode::Program, Extensions::PROGRAM, meter);
    let processor = Box::new(OwnedHart::new(hart, MeterSlot(slot.clone())));
    let mut core = KernelCore::new(kernel, processor)?;
    let done = work(&mut core);
    drop(core);
    let meter = slot.lock().expect("no thread panics with it").take().expect("the processor was dropped");
    Ok((done, meter))
}

/// The slot into which a hart's meter is put when its core is dropped.
struct MeterSlot<M: Meter>(Arc<Mutex<Option<M>>>);

impl<X: Xlen, M: Meter> HartOwner<X, M> for MeterSlot<M> {
    fn returned(&mut self, hart: Hart<X, M>) {
        *self.0.lock().expect("no thread panics with it") = Some(hart.into_meter());
    }
}
