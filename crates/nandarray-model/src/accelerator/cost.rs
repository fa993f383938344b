//! The cost of a screen, measured on a timed core. A phantom call of a larger screen is scaled from these counts.

use std::sync::atomic::AtomicBool;

use nandarray_cores::check::whole_call;
use nandarray_cores::kernel::{KernelCore, KernelProgram};
use nandarray_cores::kernel_metered::metered;
use nandarray_uarch::{CoreDescription, TimedCore};
use serde::Serialize;

/// Cost of a screen that ran on a timed core.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScreenCost {
    /// Number of cycles.
    pub cycles: f64,
    /// Number of executed instructions.
    pub instructions: u64,
    /// Bytes that moved between the last cache and memory: misses times the line size.
    pub bytes_dram: u64,
}

/// Runs `work` on a timed core that has loaded the kernel and whose caches are empty; returns its result and its cost.
///
/// # Errors
/// A message: the kernel cannot be loaded.
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

/// Returns the core description: `core` is the name of a preset, or the TOML text of a description.
///
/// # Errors
/// A message: there is no such preset, or the text does not describe a core.
pub fn described_core(core: &str) -> Result<CoreDescription, String> {
    let described = if core.contains('\n') { CoreDescription::parse(core) } else { CoreDescription::preset(core) };
    described.map_err(|e| e.to_string())
}

/// Runs a whole microblock as one screen and returns its cost; the kernel changes `sections`. `core` is as in
/// [`described_core`].
///
/// # Errors
/// A message: there is no such core, or the screen failed.
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
