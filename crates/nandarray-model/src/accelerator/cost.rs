//! The cost of a screen: it runs on a timed core, whose counts are what a phantom call of a larger one is scaled from.

use std::sync::atomic::AtomicBool;

use nandarray_cores::check::whole_call;
use nandarray_cores::kernel::{KernelCore, KernelProgram};
use nandarray_cores::kernel_metered::metered;
use nandarray_uarch::{CoreDescription, TimedCore};
use serde::Serialize;

/// Counts of a screen on a timed core.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScreenCost {
    /// Cycles.
    pub cycles: f64,
    /// Instructions.
    pub instructions: u64,
    /// Bytes between the last cache and memory.
    pub bytes_dram: u64,
}

/// Does work on a core of a kernel with empty caches; gives its result and its cost.
///
/// # Errors
/// Text: the kernel cannot be loaded.
pub fn timed_work<R>(
    kernel: &KernelProgram,
    description: &CoreDescription,
    work: impl FnOnce(&mut KernelCore) -> R,
) -> Result<(R, ScreenCost), String> {
    let line = description.l2.as_ref().or(description.l1d.as_ref()).map_or(0, |c| u64::from(c.line_bytes));
    let (done, core) = metered(kernel, TimedCore::new(description), work).map_err(|e| e.to_string())?;
    let report = core.report();
    let misses = report.caches[2].or(report.caches[1]).map_or(0, |counts| counts.misses());
    let (cycles, instructions) = (report.cycles(), report.instructions());
    Ok((done, ScreenCost { cycles, instructions, bytes_dram: misses * line }))
}

/// The core of a preset's name, or of a description's text.
///
/// # Errors
/// Text: there is none, or the text does not describe one.
pub fn described_core(core: &str) -> Result<CoreDescription, String> {
    let described = if core.contains('\n') { CoreDescription::parse(core) } else { CoreDescription::preset(core) };
    described.map_err(|e| e.to_string())
}

/// Runs all of a microblock as one screen on a core, named or described; sections change as the kernel changes them.
///
/// # Errors
/// Text: there is no such core, or the screen failed.
pub fn screen_cost(
    kernel: &KernelProgram,
    sections: &mut [(Vec<u64>, Vec<u8>)],
    scalars: &[u64],
    microblock: usize,
    core: &str,
) -> Result<ScreenCost, String> {
    let description = described_core(core)?;
    let call = whole_call(kernel, sections, scalars, (microblock, 0, 1));
    let run = |core: &mut KernelCore| core.run(kernel, call, None, &AtomicBool::new(false));
    let (done, cost) = timed_work(kernel, &description, run)?;
    done.map_err(|e| e.to_string())?;
    Ok(cost)
}
