//! Runs of phantom kernels: instead of programs and data, the caller gives measured cycles and bytes of each
//! microblock.

use nandarray_runtime::schedule::{KernelFacts, KernelScheduler};
use nandarray_runtime::{BoardKernel, ScreenJob};
use nandarray_sim::Ps;
use serde::Deserialize;

use super::machine::{AcceleratorMachine, AcceleratorWork, KernelMoves, ScreenLoad, part};
use super::platform::AcceleratorPlatform;
use super::results::AcceleratorReport;

/// A microblock as a phantom call: costs instead of a program.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhantomBlock {
    /// Maximum number of screens; 1 for a serial microblock.
    pub screens: u64,
    /// Number of cycles that the whole microblock takes on one core.
    pub cycles: f64,
    /// Bytes that the whole microblock reads from flash.
    pub bytes_in: u64,
    /// Bytes that the whole microblock moves between the caches and DDR3L.
    #[serde(default)]
    pub bytes_dram: u64,
}

/// A kernel made of phantom calls.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhantomKernel {
    /// Name of the kernel.
    pub name: String,
    /// Number of the application to which the kernel belongs.
    pub application: u64,
    /// Kernels with a higher priority come first.
    #[serde(default)]
    pub priority: i64,
    /// Time by which the kernel should have ended, for schedulers that use deadlines, in a unit of the caller's; `None`
    /// if there is no deadline.
    #[serde(default)]
    pub deadline: Option<u64>,
    /// Expected amount of work, for schedulers that use it, in a unit of the caller's; 0 if unknown.
    #[serde(default)]
    pub work: u64,
    /// Time of the kernel's submission.
    #[serde(default)]
    pub arrives_ns: u64,
    /// Bytes of the kernel's inputs.
    pub bytes: u64,
    /// Bytes of the kernel's outputs.
    #[serde(default)]
    pub bytes_out: u64,
    /// The kernel's microblocks, in order.
    pub microblocks: Vec<PhantomBlock>,
}

/// Greatest number of bytes of a kernel's inputs, of its outputs, and of what a microblock reads: 16 TiB, whose page
/// groups a run can still handle one by one.
const BYTES_MAX: u64 = 1 << 44;
/// Latest arrival of a kernel, and longest time of a microblock on one core, in nanoseconds: a month.
const TIME_MAX_NS: f64 = 31.0 * 86_400.0 * 1e9;

impl PhantomKernel {
    /// Returns the reason why a platform cannot run the kernel; `None` if it can.
    pub(super) fn problem(&self, platform: &AcceleratorPlatform) -> Option<String> {
        let name = &self.name;
        if self.microblocks.is_empty() {
            return Some(format!("kernel {name:?} has no microblock"));
        }
        if self.arrives_ns as f64 > TIME_MAX_NS {
            return Some(format!("arrives_ns of kernel {name:?} is {}; at most {TIME_MAX_NS}", self.arrives_ns));
        }
        if self.microblocks.iter().any(|block| block.screens == 0) {
            return Some(format!("kernel {name:?} has a microblock without a screen"));
        }
        let read = self.microblocks.iter().map(|block| ("bytes_in", block.bytes_in));
        let sizes = [("bytes", self.bytes), ("bytes_out", self.bytes_out)].into_iter().chain(read);
        if let Some((key, bytes)) = sizes.into_iter().find(|(_, bytes)| *bytes > BYTES_MAX) {
            return Some(format!("{key} of kernel {name:?} is {bytes}; it must be at most {BYTES_MAX}"));
        }
        let most = (TIME_MAX_NS * 1e-9 * platform.dram_rate as f64) as u64;
        if let Some(bytes) = self.microblocks.iter().map(|block| block.bytes_dram).find(|bytes| *bytes > most) {
            return Some(format!("bytes_dram of kernel {name:?} is {bytes}; it must be at most {most}"));
        }
        let most = TIME_MAX_NS * 1e-9 * platform.core_hz as f64;
        let wrong = self.microblocks.iter().map(|block| block.cycles).find(|cycles| !(0.0..=most).contains(cycles));
        wrong.map(|cycles| format!("cycles of kernel {name:?} must be from 0 to {most}, not {cycles}"))
    }
}

/// The phantom kernels of a run, in the order of their submission.
struct PhantomWork<'a>(Vec<&'a PhantomKernel>);

impl AcceleratorWork for PhantomWork<'_> {
    fn map(&mut self, _kernel: u64) -> Result<KernelMoves, ()> {
        Ok(KernelMoves::default())
    }

    fn screen(&mut self, job: ScreenJob, _again: bool) -> Result<ScreenLoad, ()> {
        let block = &self.0[job.kernel as usize].microblocks[job.microblock];
        Ok(ScreenLoad {
            cycles: block.cycles / job.screens as f64,
            bytes_in: part(block.bytes_in, job.screen, job.screens),
            bytes_dram: part(block.bytes_dram, job.screen, job.screens),
        })
    }

    fn undo(&mut self, _job: ScreenJob) {}

    fn drain(&mut self, kernel: u64) -> Result<KernelMoves, ()> {
        Ok(KernelMoves { bytes_host: 0, bytes_out: self.0[kernel as usize].bytes_out })
    }
}

/// Runs phantom kernels under a scheduler. In the report they are numbered in the order of their submission.
///
/// # Errors
/// A message: the platform or the kernels are invalid.
pub fn run_accelerator(
    platform: &AcceleratorPlatform,
    scheduler: Box<dyn KernelScheduler>,
    kernels: &[PhantomKernel],
) -> Result<AcceleratorReport, String> {
    let mut machine = AcceleratorMachine::new(platform, scheduler, u64::MAX)?;
    if let Some(problem) = kernels.iter().find_map(|kernel| kernel.problem(platform)) {
        return Err(problem);
    }
    let mut work = PhantomWork(kernels.iter().collect());
    work.0.sort_by_key(|kernel| kernel.arrives_ns);
    for at in work.0.iter().map(|kernel| kernel.arrives_ns).filter(|at| *at > 0) {
        machine.arrive_at(Ps(at * 1_000));
    }
    let mut submitted = 0;
    loop {
        while submitted < work.0.len() && Ps(work.0[submitted].arrives_ns * 1_000) <= machine.now() {
            let kernel = work.0[submitted];
            let PhantomKernel { application, priority, deadline, work: amount, .. } = *kernel;
            let facts = KernelFacts { number: 0, application, priority, deadline, work: amount };
            let microblocks = kernel.microblocks.iter().map(|m| (1, m.screens)).collect();
            let made = BoardKernel { facts, microblocks, ..BoardKernel::default() };
            machine.submit(&kernel.name, kernel.bytes, made).map_err(|e| e.to_string())?;
            submitted += 1;
        }
        if submitted == work.0.len() && machine.kernels() == 0 {
            break;
        }
        if !machine.step(&mut work) {
            let left = machine.kernels();
            return Err(format!("{left} kernels are left, and nothing happens: flash is full, or no core is left"));
        }
        machine.take_ended();
    }
    machine.settle(&mut work)?;
    Ok(machine.report())
}

#[cfg(test)]
mod tests {
    use nandarray_runtime::schedule::{SCHEDULERS, by_name};

    use super::super::results::KernelTimes;
    use super::*;

    fn kernel(application: u64, blocks: &[(u64, f64, u64)]) -> PhantomKernel {
        let block = |(screens, cycles, bytes_in): &(u64, f64, u64)| PhantomBlock {
            screens: *screens,
            cycles: *cycles,
            bytes_in: *bytes_in,
            bytes_dram: 0,
        };
        let microblocks = blocks.iter().map(block).collect();
        PhantomKernel {
            name: "k".into(),
            application,
            priority: 0,
            deadline: None,
            work: 0,
            arrives_ns: 0,
            bytes: 1 << 20,
            bytes_out: 0,
            microblocks,
        }
    }

    fn on(platform: &AcceleratorPlatform, scheduler: &str, kernels: &[PhantomKernel]) -> AcceleratorReport {
        run_accelerator(platform, by_name(scheduler, platform.workers).unwrap(), kernels).unwrap()
    }

    fn run(scheduler: &str, kernels: &[PhantomKernel]) -> AcceleratorReport {
        on(&AcceleratorPlatform::default(), scheduler, kernels)
    }

    #[test]
    fn compute_bound_kernels_follow_closed_forms() {
        let serial = 6e8;
        let kernels: Vec<PhantomKernel> = (0..6).map(|_| kernel(0, &[(6, 6e8, 0), (1, serial, 0)])).collect();
        let near = |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 0.01, "{found} for {wanted}");
        // Expected times: one worker does everything; six workers run one kernel each; each kernel has all six workers
        // alone; as dense as the last serial part allows.
        near(run("inter-static", &kernels).seconds, 7.2);
        near(run("inter-dynamic", &kernels).seconds, 1.2);
        near(run("intra-in-order", &kernels).seconds, 6.0 * 0.7);
        let report = run("intra-out-of-order", &kernels);
        assert!((1.2..1.75).contains(&report.seconds), "{}", report.seconds);
        let total: f64 = report.kernels.iter().map(|k| k.compute).sum();
        near(total, 7.2);
        let busy: f64 = report.utilisation.iter().sum::<f64>() * report.seconds;
        near(busy, total);
    }

    #[test]
    fn bytes_come_at_the_rate_of_the_slowest_part() {
        let report = run("intra-out-of-order", &[kernel(0, &[(6, 6.0, 400 << 20)])]);
        let rate = (400u64 << 20) as f64 / report.seconds;
        assert!((1.8e9..=2.0e9).contains(&rate), "{rate} bytes a second behind a link of 2e9");
        assert!(report.kernels[0].storage > 5.0 * report.kernels[0].compute);
    }

    #[test]
    fn outputs_end_in_the_buffer_and_then_in_flash() {
        let platform = AcceleratorPlatform::default();
        let mut one = kernel(0, &[(6, 6.0, 0)]);
        one.bytes_out = 128 << 20;
        let report = run("intra-out-of-order", std::slice::from_ref(&one));
        // Eight rows of dies write 64 KiB each in 2.6 ms, 0.2 GB/s: writing ends long after the kernel.
        assert!(report.seconds < 0.01, "{}", report.seconds);
        let rate = one.bytes_out as f64 / (report.kernels[0].flushed - report.seconds);
        assert!((1.7e8..=2.1e8).contains(&rate), "{rate}");
        assert_eq!(report.storengine_work.written, 2048);
        assert!(report.storengine_work.journalled >= 8 && report.storengine > 0.0);
        // Outputs that do not fit the buffer wait for flash.
        one.bytes_out = 512 << 20;
        let report = on(&platform, "intra-out-of-order", &[one]);
        let waited = (256u64 << 20) as f64 / 2.016e8;
        assert!((report.seconds / waited - 1.0).abs() < 0.1, "{} for {waited}", report.seconds);
    }

    #[test]
    fn a_full_device_frees_blocks_behind_its_kernels() {
        let platform =
            AcceleratorPlatform { blocks: 64, filled_share: 0.8, reclaim_blocks: 8, ..AcceleratorPlatform::default() };
        let mut kernels = vec![kernel(0, &[(6, 6e6, 8 << 20)]); 12];
        kernels.iter_mut().for_each(|k| k.bytes_out = 64 << 20);
        let full = on(&platform, "intra-out-of-order", &kernels);
        let free = on(&AcceleratorPlatform { filled_share: 0.0, ..platform }, "intra-out-of-order", &kernels);
        assert!(full.storengine_work.erased > 0 && full.storengine_work.moved > 0, "{:?}", full.storengine_work);
        assert_eq!(free.storengine_work.erased, 0);
        assert!(full.storengine > free.storengine);
        assert!(full.seconds > free.seconds, "{} after {}", full.seconds, free.seconds);
        assert_eq!(full.storengine_work.written, 12 * 1024);
    }

    #[test]
    fn a_flash_that_is_full_is_an_error() {
        let platform = AcceleratorPlatform { blocks: 8, ..AcceleratorPlatform::default() };
        let mut one = kernel(0, &[(6, 6.0, 0)]);
        one.bytes_out = 1 << 30;
        let done = run_accelerator(&platform, by_name("inter-dynamic", 6).unwrap(), &[one]);
        assert!(done.unwrap_err().contains("flash is full"));
    }

    #[test]
    fn outputs_that_never_reach_flash_are_an_error_even_if_their_kernel_ended() {
        let platform = AcceleratorPlatform { blocks: 8, ..AcceleratorPlatform::default() };
        let mut one = kernel(0, &[(6, 6.0, 0)]);
        one.bytes_out = 200 << 20;
        let done = run_accelerator(&platform, by_name("inter-dynamic", 6).unwrap(), std::slice::from_ref(&one));
        assert!(done.unwrap_err().contains("flash is full"));
        one.bytes_out = 100 << 20;
        assert!(run_accelerator(&platform, by_name("inter-dynamic", 6).unwrap(), &[one]).is_ok());
    }

    #[test]
    fn joules_of_kernels_are_a_part_of_the_reports() {
        let kernels: Vec<PhantomKernel> = (0..6)
            .map(|n| PhantomKernel { bytes_out: 8 << 20, ..kernel(n, &[(6, 1e6, 20 << 20), (1, 1e6, 0)]) })
            .collect();
        let platform = AcceleratorPlatform::default();
        let hosted = super::super::host::run_host(&platform, &kernels).unwrap();
        for report in [run("intra-out-of-order", &kernels), hosted] {
            let sum = |joules: fn(&KernelTimes) -> f64| report.kernels.iter().map(joules).sum::<f64>();
            for (part, all) in [
                (sum(|k| k.energy_computation), report.energy_computation),
                (sum(|k| k.energy_storage), report.energy_storage),
                (sum(|k| k.energy_movement), report.energy_movement),
            ] {
                assert!(part <= all * (1.0 + 1e-9), "{part} of {all} joules");
            }
            assert!(sum(|k| k.energy_storage) > 0.0);
        }
    }

    #[test]
    fn a_block_of_one_group_is_refused() {
        let platform = AcceleratorPlatform { groups_per_block: 1, ..AcceleratorPlatform::default() };
        assert!(platform.problem().unwrap().contains("groups_per_block is 1"));
    }

    #[test]
    fn screens_of_a_core_or_die_that_fails_run_again() {
        let kernels: Vec<PhantomKernel> = (0..6).map(|n| kernel(n, &[(6, 6e8, 60 << 20), (1, 6e7, 0)])).collect();
        for scheduler in SCHEDULERS {
            let sound = run(scheduler, &kernels);
            for (core, die) in [(true, false), (false, true)] {
                let platform = AcceleratorPlatform {
                    core_failures: if core { vec![(2, 200_000_000)] } else { Vec::new() },
                    die_failures: if die { vec![(3, 5_000_000)] } else { Vec::new() },
                    ..AcceleratorPlatform::default()
                };
                let report = on(&platform, scheduler, &kernels);
                assert!(report.reruns > 0, "{scheduler}");
                // Repeated reads may overlap with other screens; a lost core always costs time.
                assert!(report.seconds >= sound.seconds && (die || report.seconds > sound.seconds), "{scheduler}");
                assert!(report.kernels.iter().all(|k| k.latency > 0.0), "{scheduler}");
                let done = report.spans.iter().filter(|s| s.fine).count();
                assert_eq!(done, sound.spans.len(), "{scheduler}: each screen is done once");
                assert!(!core || report.spans.iter().all(|s| s.worker != 2 || s.end <= 0.2001));
            }
        }
    }

    #[test]
    fn a_kernel_that_arrives_later_waits_from_then() {
        let mut kernels = vec![kernel(0, &[(6, 6e8, 0)]), kernel(1, &[(6, 6e6, 0)])];
        kernels[1].arrives_ns = 50_000_000;
        let report = run("intra-in-order", &kernels);
        assert!((report.kernels[1].end - 0.101).abs() < 0.001, "{:?}", report.kernels[1]);
        assert!((report.kernels[1].latency - 0.051).abs() < 0.001, "{:?}", report.kernels[1]);
    }

    #[test]
    fn a_run_is_the_same_each_time_and_energy_is_positive() {
        let kernels: Vec<PhantomKernel> =
            (0..24).map(|n| kernel(n % 6, &[(6, 1e7 * n as f64, n << 20), (1, 1e6, 0)])).collect();
        for scheduler in SCHEDULERS {
            let report = run(scheduler, &kernels);
            assert_eq!(report, run(scheduler, &kernels));
            assert!(report.energy_computation > 0.0 && report.energy_storage > 0.0);
            assert!(report.utilisation.iter().all(|u| (0.0..=1.0).contains(u)));
            assert_eq!(report.kernels.len(), 24);
            assert!(report.kernels.iter().all(|k| k.latency > 0.0));
        }
    }
}
