//! The conventional system: a host reads from an NVMe SSD, copies, writes to the accelerator's memory over PCIe, and
//! starts a data-parallel kernel on all workers; it waits for the end of each step, and outputs go the same way back.
//!
//! Kernels run one after the other. A microblock's parallel part is shared by all workers, its serial part runs on one.

use nandarray_sim::Ps;

use super::platform::AcceleratorPlatform;
use super::results::{AcceleratorReport, AcceleratorSums, ActivityKind, KernelTimes, ScreenSpan};
use super::run::PhantomKernel;

/// Returns the times for moving bytes between the host's SSD, whose rate is `rate`, and the accelerator: in the SSD, in
/// the host's storage stack, and on PCIe.
fn way(p: &AcceleratorPlatform, bytes: u64, rate: u64) -> (Ps, Ps, Ps) {
    let requests = bytes.div_ceil(p.request_bytes);
    let ssd = Ps::of_bytes(bytes, rate) + Ps(p.t_ssd_ns * 1_000 * requests);
    let stack = Ps((bytes as f64 / 1024.0 * p.host_stack_ns_per_kib * 1e3) as u64);
    (ssd, stack, Ps::of_bytes(bytes, p.pcie_rate))
}

/// Runs kernels one after the other, in the order of their submission times, as a host does.
///
/// # Errors
/// A message: the platform or a kernel is invalid.
pub fn run_host(platform: &AcceleratorPlatform, kernels: &[PhantomKernel]) -> Result<AcceleratorReport, String> {
    if let Some(problem) = platform.problem() {
        return Err(problem);
    }
    if let Some(problem) = kernels.iter().find_map(|kernel| kernel.problem(platform)) {
        return Err(problem);
    }
    let p = platform;
    let n = p.workers;
    let mut sums = AcceleratorSums::new(n);
    let mut report = AcceleratorReport { bytes: kernels.iter().map(|k| k.bytes).sum(), ..Default::default() };
    let mut now = Ps::ZERO;
    let mut order: Vec<&PhantomKernel> = kernels.iter().collect();
    order.sort_by_key(|kernel| kernel.arrives_ns);
    for (number, kernel) in order.into_iter().enumerate() {
        let arrived = Ps(kernel.arrives_ns * 1_000);
        now = now.max(arrived);
        let began = now;
        // Inputs are read once: a later microblock that reads them again finds them in the accelerator's memory;
        // FlashAbacus' paper describes no second transfer.
        let (ssd_in, stack_in, pcie_in) = way(p, kernel.bytes, p.ssd_rate);
        now = now + ssd_in + stack_in + pcie_in;
        report.activity.add(ActivityKind::Host, began, now);
        report.activity.add(ActivityKind::Storage, began, began + ssd_in);
        let mut compute = Ps::ZERO;
        for (microblock, block) in kernel.microblocks.iter().enumerate() {
            let workers = block.screens.min(n as u64) as usize;
            let lasts = p.cycles(block.cycles / workers as f64);
            let lasts = lasts.max(Ps::of_bytes(block.bytes_dram, p.dram_rate));
            for worker in 0..workers {
                sums.computed[worker] += lasts;
                sums.occupied[worker] += lasts;
                let (start, end, computed) = (now.seconds(), (now + lasts).seconds(), lasts.seconds());
                let (kernel, screen, fine) = (number as u64, worker as u64, true);
                report.spans.push(ScreenSpan { kernel, microblock, screen, worker, start, end, computed, fine });
                report.activity.add(ActivityKind::Compute, now, now + lasts);
            }
            compute += Ps(lasts.0 * workers as u64);
            now += lasts;
        }
        let (ssd_out, stack_out, pcie_out) = way(p, kernel.bytes_out, p.ssd_write_rate);
        report.activity.add(ActivityKind::Host, now, now + ssd_out + stack_out + pcie_out);
        now = now + ssd_out + stack_out + pcie_out;
        report.bytes_out += kernel.bytes_out;
        let (ssd, stack, pcie) = (ssd_in + ssd_out, stack_in + stack_out, pcie_in + pcie_out);
        sums.ssd += ssd;
        sums.host += ssd + stack + pcie;
        sums.pcie += pcie;
        report.host_ssd += ssd.seconds();
        report.host_stack += stack.seconds();
        report.host_pcie += pcie.seconds();
        report.kernels.push(KernelTimes {
            name: kernel.name.clone(),
            application: kernel.application,
            waiting: (began - arrived).seconds(),
            storage: (ssd + stack).seconds(),
            compute: compute.seconds(),
            transfer: pcie.seconds(),
            ssd: ssd.seconds(),
            pcie: pcie.seconds(),
            latency: (now - arrived).seconds(),
            end: now.seconds(),
            ..KernelTimes::default()
        });
    }
    report.finish(p, now, &sums, true);
    Ok(report)
}
