//! The event loop of the accelerator: workers take screens from a board and go through their windows.
//!
//! A screen requests its first windows, computes on one while later ones come, and ends when its last window is done.
//! A window's way: a message to Flashvisor, range lock and translation of its page groups on Flashvisor's core, dies,
//! channels, the backbone's link, DDR3L. Outputs stay in DDR3L, which the paper says buffers the majority of writes;
//! their way to flash, behind a kernel's end, is not modelled.

use nandarray_runtime::schedule::{KernelFacts, SCHEDULERS, by_name};
use nandarray_runtime::{BoardKernel, BoardWork, ScreenJob, SessionBoard};
use nandarray_sim::{Events, Ps};
use serde::Deserialize;

use super::platform::AcceleratorPlatform;
use super::results::{AcceleratorReport, AcceleratorSums, KernelTimes, ScreenSpan};

/// A microblock as a phantom call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhantomBlock {
    /// The most screens; 1 is a serial microblock.
    pub screens: u64,
    /// Cycles of all of it on one core.
    pub cycles: f64,
    /// Bytes that it reads from flash.
    pub bytes_in: u64,
    /// Bytes between the caches and DDR3L.
    #[serde(default)]
    pub bytes_dram: u64,
}

/// A kernel as phantom calls.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhantomKernel {
    /// Its name.
    pub name: String,
    /// The application that it belongs to.
    pub application: u64,
    /// Kernels with a higher priority come first.
    #[serde(default)]
    pub priority: i64,
    /// Bytes of its inputs.
    pub bytes: u64,
    /// Its microblocks.
    pub microblocks: Vec<PhantomBlock>,
}

/// A screen that a worker is at.
#[derive(Clone, Copy, Debug)]
struct WorkingScreen {
    job: ScreenJob,
    began: Ps,
    /// Windows: all, requested, computed.
    windows: (u64, u64, u64),
    /// Times at which requested windows that were not computed are there; at most two are needed.
    arrives: [Ps; 8],
    compute: Ps,
    bytes: u64,
    dram: u64,
}

#[derive(Clone, Copy, Debug)]
enum AcceleratorEvent {
    /// A worker is free, or its window is computed.
    Worker(usize),
}

/// Resources that one operation occupies at a time, with the time at which each is free.
#[derive(Debug)]
struct Backbone {
    flashvisor: Ps,
    dies: Vec<Ps>,
    channels: Ps,
    link: Ps,
    dram: Ps,
    next_die: usize,
}

struct AcceleratorRun<'a> {
    platform: &'a AcceleratorPlatform,
    kernels: &'a [PhantomKernel],
    board: SessionBoard,
    events: Events<AcceleratorEvent>,
    at: Vec<Option<WorkingScreen>>,
    idle: Vec<bool>,
    backbone: Backbone,
    sums: AcceleratorSums,
    report: AcceleratorReport,
    begun: Vec<bool>,
}

/// Runs kernels that are all submitted at time 0 under a scheduler.
///
/// # Errors
/// Text: there is no such scheduler, or platform or kernels cannot be.
pub fn run_accelerator(
    platform: &AcceleratorPlatform,
    scheduler: &str,
    kernels: &[PhantomKernel],
) -> Result<AcceleratorReport, String> {
    if let Some(problem) = platform.problem() {
        return Err(problem);
    }
    let n = platform.workers;
    let policy = by_name(scheduler, n).ok_or_else(|| {
        let all = SCHEDULERS.join(", ");
        format!("there is no scheduler {scheduler:?}; there are {all}, and simd")
    })?;
    let mut board = SessionBoard::new(policy, n, u64::MAX);
    for kernel in kernels {
        let facts =
            KernelFacts { application: kernel.application, priority: kernel.priority, ..KernelFacts::default() };
        let microblocks = kernel.microblocks.iter().map(|m| (1, m.screens)).collect();
        let kernel = BoardKernel { facts, microblocks, ..BoardKernel::default() };
        board.submit(kernel).map_err(|e| e.to_string())?;
    }
    let dies = vec![Ps::ZERO; platform.dies as usize];
    let (flashvisor, channels, link, dram) = (Ps::ZERO, Ps::ZERO, Ps::ZERO, Ps::ZERO);
    let times = |k: &PhantomKernel| KernelTimes { name: k.name.clone(), ..KernelTimes::default() };
    let mut run = AcceleratorRun {
        platform,
        kernels,
        board,
        events: Events::default(),
        at: vec![None; n],
        idle: vec![true; n],
        backbone: Backbone { flashvisor, dies, channels, link, dram, next_die: 0 },
        sums: AcceleratorSums { computed: vec![Ps::ZERO; n], occupied: vec![Ps::ZERO; n], ..Default::default() },
        report: AcceleratorReport {
            bytes: kernels.iter().map(|k| k.bytes).sum(),
            kernels: kernels.iter().map(times).collect(),
            ..AcceleratorReport::default()
        },
        begun: vec![false; kernels.len()],
    };
    run.wake(Ps::ZERO);
    let mut end = Ps::ZERO;
    while let Some((now, AcceleratorEvent::Worker(worker))) = run.events.pop() {
        end = now;
        run.step(worker, now);
    }
    assert!(run.board.is_empty(), "{} kernels are left, and nothing happens", run.board.len());
    let AcceleratorRun { mut report, sums, .. } = run;
    report.finish(platform, end, &sums, false);
    Ok(report)
}

impl AcceleratorRun<'_> {
    /// Hands work to idle workers.
    fn wake(&mut self, now: Ps) {
        for worker in 0..self.at.len() {
            while self.idle[worker] {
                match self.board.take(worker) {
                    // Mapping is a message a window, drains are behind: neither occupies a worker.
                    Some(BoardWork::Map(kernel)) => self.board.mapped(kernel, true),
                    Some(BoardWork::Drain(kernel)) => {
                        self.board.drained(kernel, true);
                        self.report.kernels[kernel as usize].latency = now.seconds();
                    }
                    Some(BoardWork::Screen(job)) => self.begin(worker, job, now),
                    None => break,
                }
            }
        }
        self.board.take_ended();
    }

    fn begin(&mut self, worker: usize, job: ScreenJob, now: Ps) {
        let p = self.platform;
        let block = &self.kernels[job.kernel as usize].microblocks[job.microblock];
        // Flashvisor decides, and tells the worker.
        let from = self.backbone.flashvisor.max(now);
        let decided = from + Ps(p.t_schedule_ns * 1_000);
        self.sums.flashvisor += decided - from;
        self.backbone.flashvisor = decided;
        let start = decided + Ps(p.t_message_ns * 1_000);
        let bytes = block.bytes_in / job.screens;
        let count = bytes.div_ceil(p.window_bytes).max(1);
        let compute = p.cycles(block.cycles / job.screens as f64 / count as f64);
        let kernel = job.kernel as usize;
        if !self.begun[kernel] {
            self.begun[kernel] = true;
            self.report.kernels[kernel].waiting = start.seconds();
        }
        self.idle[worker] = false;
        self.at[worker] = Some(WorkingScreen {
            job,
            began: now,
            windows: (count, 0, 0),
            arrives: [Ps::ZERO; 8],
            compute,
            bytes,
            dram: block.bytes_dram / job.screens / count,
        });
        self.events.push(start, AcceleratorEvent::Worker(worker));
    }

    /// A worker has begun a screen, or has computed a window.
    fn step(&mut self, worker: usize, now: Ps) {
        let mut screen = self.at[worker].expect("a worker with a screen");
        let (all, requested, computed) = &mut screen.windows;
        let ahead = self.platform.ahead.clamp(1, 7);
        if *computed == *all {
            return self.end(worker, screen, now);
        }
        let per = screen.bytes / *all;
        let kernel = screen.job.kernel as usize;
        while *requested < *all && *requested <= *computed + ahead {
            let (there, moved) = self.backbone.window(self.platform, now, per, &mut self.sums);
            self.report.kernels[kernel].transfer += moved.seconds();
            screen.arrives[(*requested % 8) as usize] = there;
            *requested += 1;
        }
        let there = screen.arrives[(*computed % 8) as usize].max(now);
        self.report.kernels[kernel].storage += (there - now).seconds();
        let mut done = there + screen.compute;
        if screen.dram > 0 {
            done = done.max(self.backbone.memory(self.platform, there, screen.dram));
        }
        self.report.kernels[kernel].compute += (done - there).seconds();
        self.sums.computed[worker] += done - there;
        *computed += 1;
        self.at[worker] = Some(screen);
        self.events.push(done, AcceleratorEvent::Worker(worker));
    }

    fn end(&mut self, worker: usize, screen: WorkingScreen, now: Ps) {
        let ScreenJob { kernel, microblock, screen: number, .. } = screen.job;
        let (start, end) = (screen.began.seconds(), now.seconds());
        self.report.spans.push(ScreenSpan { kernel, microblock, screen: number, worker, start, end });
        self.sums.occupied[worker] += now - screen.began;
        self.at[worker] = None;
        self.idle[worker] = true;
        self.board.screened(screen.job, true);
        self.wake(now);
    }
}

impl Backbone {
    /// Requests a window; returns when it is in DDR3L, and its time on the backbone's link.
    fn window(&mut self, p: &AcceleratorPlatform, now: Ps, bytes: u64, sums: &mut AcceleratorSums) -> (Ps, Ps) {
        if bytes == 0 {
            return (now, Ps::ZERO);
        }
        let groups = bytes.div_ceil(p.group_bytes);
        let asked = (now + Ps(p.t_message_ns * 1_000)).max(self.flashvisor);
        self.flashvisor = asked + Ps(p.t_translate_ns * 1_000 * groups);
        sums.flashvisor += self.flashvisor - asked;
        let channel = Ps::of_bytes(p.group_bytes / p.channels, p.channel_rate);
        let link = Ps::of_bytes(p.group_bytes, p.backbone_rate);
        let mut there = now;
        for group in 0..groups {
            let translated = asked + Ps(p.t_translate_ns * 1_000 * (group + 1));
            let die = &mut self.dies[self.next_die];
            let read = translated.max(*die) + Ps(p.t_read_ns * 1_000);
            let moved = read.max(self.channels) + channel;
            (*die, self.channels) = (moved, moved);
            self.next_die = (self.next_die + 1) % self.dies.len();
            self.link = moved.max(self.link) + link;
            there = self.memory(p, self.link, p.group_bytes);
        }
        let busy = Ps(link.0 * groups);
        sums.backbone += busy;
        (there, busy)
    }

    /// Occupies DDR3L; returns the end.
    fn memory(&mut self, p: &AcceleratorPlatform, now: Ps, bytes: u64) -> Ps {
        let lasts = Ps::of_bytes(bytes, p.dram_rate);
        // Bursts of others come between: a transfer waits only while the sum of all is behind.
        self.dram = self.dram.max(Ps(now.0.saturating_sub(lasts.0))) + lasts;
        self.dram.max(now + lasts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(application: u64, blocks: &[(u64, f64, u64)]) -> PhantomKernel {
        let block = |(screens, cycles, bytes_in): &(u64, f64, u64)| PhantomBlock {
            screens: *screens,
            cycles: *cycles,
            bytes_in: *bytes_in,
            bytes_dram: 0,
        };
        let microblocks = blocks.iter().map(block).collect();
        PhantomKernel { name: "k".into(), application, priority: 0, bytes: 1 << 20, microblocks }
    }

    fn run(scheduler: &str, kernels: &[PhantomKernel]) -> AcceleratorReport {
        run_accelerator(&AcceleratorPlatform::default(), scheduler, kernels).unwrap()
    }

    #[test]
    fn compute_bound_kernels_follow_closed_forms() {
        let serial = 6e8;
        let kernels: Vec<PhantomKernel> = (0..6).map(|_| kernel(0, &[(6, 6e8, 0), (1, serial, 0)])).collect();
        let near = |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 0.01, "{found} for {wanted}");
        // One worker does all; six workers do one each; each kernel alone on six; as full as the last serial part lets.
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
