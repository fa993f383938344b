//! The cost of a screen: it runs on a timed core, whose counts are what a phantom call of a larger one is scaled from.

use nandarray_cores::check::whole_call;
use nandarray_cores::kernel::KernelProgram;
use nandarray_cores::kernel_metered::MeteredCore;
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

/// Runs all of a microblock as one screen on a core of a preset; sections are changed as the kernel changes them.
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
    let description = CoreDescription::preset(core).map_err(|e| e.to_string())?;
    let line = description.l2.as_ref().or(description.l1d.as_ref()).map_or(0, |c| u64::from(c.line_bytes));
    let metered = MeteredCore::new(TimedCore::new(&description));
    let call = whole_call(kernel, sections, scalars, (microblock, 0, 1));
    let (done, metered) = metered.run(kernel, call, None);
    done.map_err(|e| e.to_string())?;
    let report = metered.meter().report();
    let misses = report.caches[2].or(report.caches[1]).map_or(0, |counts| counts.misses());
    let (cycles, instructions) = (report.cycles(), report.instructions());
    Ok(ScreenCost { cycles, instructions, bytes_dram: misses * line })
}
