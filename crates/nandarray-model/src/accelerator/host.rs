//! The conventional system: a host reads from an NVMe SSD, copies, writes to the accelerator's memory over PCIe, and
//! starts a data-parallel kernel on all workers; it waits for the end of each step.
//!
//! Kernels run one after the other. A microblock's parallel part is shared by all workers, its serial part runs on one.

use nandarray_sim::Ps;

use super::platform::AcceleratorPlatform;
use super::results::{AcceleratorReport, AcceleratorSums, KernelTimes, ScreenSpan};
use super::run::PhantomKernel;

/// Runs kernels one after the other, as a host does.
///
/// # Errors
/// Text: the platform cannot be.
pub fn run_host(platform: &AcceleratorPlatform, kernels: &[PhantomKernel]) -> Result<AcceleratorReport, String> {
    if let Some(problem) = platform.problem() {
        return Err(problem);
    }
    let p = platform;
    let n = p.workers;
    let mut sums = AcceleratorSums { computed: vec![Ps::ZERO; n], occupied: vec![Ps::ZERO; n], ..Default::default() };
    let mut report = AcceleratorReport { bytes: kernels.iter().map(|k| k.bytes).sum(), ..Default::default() };
    let mut now = Ps::ZERO;
    for (number, kernel) in kernels.iter().enumerate() {
        let began = now;
        // Inputs come once: what a later microblock reads again is in the accelerator's memory, or comes again in parts
        // that the text does not describe.
        let requests = kernel.bytes.div_ceil(p.request_bytes);
        let ssd = Ps::of_bytes(kernel.bytes, p.ssd_rate) + Ps(p.t_ssd_ns * 1_000 * requests);
        let stack = Ps((kernel.bytes as f64 / 1024.0 * p.host_stack_ns_per_kib * 1e3) as u64);
        let pcie = Ps::of_bytes(kernel.bytes, p.pcie_rate);
        now = now + ssd + stack + pcie;
        sums.ssd += ssd;
        sums.host += ssd + stack + pcie;
        let mut compute = Ps::ZERO;
        for (microblock, block) in kernel.microblocks.iter().enumerate() {
            let workers = block.screens.min(n as u64) as usize;
            let lasts = p.cycles(block.cycles / workers as f64);
            let lasts = lasts.max(Ps::of_bytes(block.bytes_dram, p.dram_rate));
            for worker in 0..workers {
                sums.computed[worker] += lasts;
                sums.occupied[worker] += lasts;
                let (start, end) = (now.seconds(), (now + lasts).seconds());
                let (kernel, screen) = (number as u64, worker as u64);
                report.spans.push(ScreenSpan { kernel, microblock, screen, worker, start, end });
            }
            compute += Ps(lasts.0 * workers as u64);
            now += lasts;
        }
        report.kernels.push(KernelTimes {
            name: kernel.name.clone(),
            waiting: began.seconds(),
            storage: (ssd + stack).seconds(),
            compute: compute.seconds(),
            transfer: pcie.seconds(),
            latency: now.seconds(),
        });
    }
    report.finish(p, now, &sums, true);
    Ok(report)
}
