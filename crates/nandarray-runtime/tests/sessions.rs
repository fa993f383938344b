//! Promise: whatever the scheduler and the order in which work comes back, a board keeps dependencies and range locks,
//! loses no kernel, forgets every kernel that ended, and leaves no worker idle while a screen is ready.

#[path = "../../nandarray-cores/tests/common/mod.rs"]
mod common;
#[path = "sessions/crew.rs"]
mod crew;

use std::collections::{BTreeMap, BTreeSet};

use nandarray::{Share, SharedRange};
use nandarray_runtime::schedule::{KernelFacts, KernelScheduler, SCHEDULERS, by_name};
use nandarray_runtime::{BoardError, BoardKernel, BoardWork, KernelEnd, KernelState, SessionBoard};

const WORKERS: usize = 4;

/// A random number generator (SplitMix64).
struct Draws(u64);

fn below(draws: &mut Draws, n: u64) -> u64 {
    draws.0 = draws.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = draws.0;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % n
}

fn range(space: u64, share: Share) -> SharedRange {
    SharedRange { space, first: 0, last: 9, share }
}

/// Makes a random kernel that depends on some earlier kernels which have not failed.
fn random_kernel(rng: &mut Draws, submitted: u64, ends: &BTreeMap<u64, KernelEnd>) -> BoardKernel {
    let before = (0..below(rng, 3)).filter(|_| submitted > 0).map(|_| below(rng, submitted)).collect::<Vec<u64>>();
    let failed = |k: &u64| ends.get(k).is_some_and(|end| *end != KernelEnd::Done);
    let after = before.into_iter().filter(|k| !failed(k)).collect();
    let share = if below(rng, 2) == 0 { Share::Shared } else { Share::Exclusive };
    let ranges = vec![range(below(rng, 3), share)];
    let microblocks = (0..=below(rng, 3)).map(|_| (1, 1 + below(rng, 6))).collect();
    let (application, priority) = (below(rng, 5), below(rng, 2) as i64);
    let facts = KernelFacts { application, priority, ..KernelFacts::default() };
    BoardKernel { after, facts, microblocks, ranges, bytes: below(rng, 30), ..BoardKernel::default() }
}

/// Runs random kernels with random ends; returns the kernels that are done, in the order of their ends.
fn random_run(scheduler: &str, seed: u8, kernels: u64, fails: bool) -> Vec<u64> {
    let mut rng = Draws(u64::from(seed));
    let mut board = SessionBoard::new(by_name(scheduler, WORKERS).unwrap(), WORKERS, 50);
    let (mut after, mut touched) = (BTreeMap::new(), BTreeMap::new());
    let mut busy: Vec<Option<BoardWork>> = vec![None; WORKERS];
    let (mut ends, mut submitted) = (BTreeMap::new(), 0);
    let (mut open, mut order) = (BTreeSet::new(), Vec::new());
    while submitted < kernels || !board.is_empty() {
        if submitted < kernels && below(&mut rng, 3) == 0 {
            let kernel = random_kernel(&mut rng, submitted, &ends);
            let (on, range) = (kernel.after.clone(), kernel.ranges[0]);
            assert_eq!(board.submit(kernel), Ok(submitted));
            after.insert(submitted, on);
            touched.insert(submitted, (range.space, range.share));
            submitted += 1;
        }
        let worker = below(&mut rng, WORKERS as u64) as usize;
        match busy[worker].take() {
            None => busy[worker] = board.take(worker),
            Some(work) => {
                let fine = !fails || below(&mut rng, 12) > 0;
                match work {
                    BoardWork::Map(kernel) => {
                        for k in &after[&kernel] {
                            assert_eq!(
                                ends.get(k),
                                Some(&KernelEnd::Done),
                                "{scheduler}, seed {seed}: {kernel} after {k}"
                            );
                        }
                        if fine {
                            let (space, share) = touched[&kernel];
                            let meets = |k: &u64| {
                                touched[k].0 == space && (share == Share::Exclusive || touched[k].1 == Share::Exclusive)
                            };
                            assert!(!open.iter().any(meets), "{scheduler}, seed {seed}: {kernel} beside {open:?}");
                            open.insert(kernel);
                        }
                        board.mapped(kernel, fine);
                    }
                    BoardWork::Screen(job) => board.screened(job, fine),
                    BoardWork::Drain(kernel) => board.drained(kernel, fine),
                }
            }
        }
        if scheduler == "intra-out-of-order" && busy.iter().any(Option::is_none) && below(&mut rng, 4) == 0 {
            let idle = busy.iter().position(Option::is_none).unwrap();
            busy[idle] = board.take(idle);
        }
        if fails && submitted > 0 && below(&mut rng, 20) == 0 {
            board.cancel(below(&mut rng, submitted));
        }
        for (kernel, end) in board.take_ended() {
            open.remove(&kernel);
            order.push(kernel);
            assert_eq!(ends.insert(kernel, end), None, "a kernel ends once");
        }
    }
    assert_eq!(ends.len() as u64, kernels);
    assert_eq!(board.used_bytes(), 0, "memory is free again");
    if !fails {
        assert!(ends.values().all(|end| *end == KernelEnd::Done));
    }
    order
}

#[test]
fn random_graphs_under_every_scheduler() {
    for scheduler in SCHEDULERS {
        for seed in 0..20 {
            random_run(scheduler, seed, 60, false);
            random_run(scheduler, seed, 60, true);
        }
    }
}

#[test]
fn no_worker_idles_while_a_screen_is_ready_out_of_order() {
    let mut board = SessionBoard::new(by_name("intra-out-of-order", WORKERS).unwrap(), WORKERS, u64::MAX);
    let mut rng = Draws(3);
    for _ in 0..30 {
        let microblocks = (0..=below(&mut rng, 3)).map(|_| (1, 1 + below(&mut rng, 6))).collect();
        board.submit(BoardKernel { microblocks, ..BoardKernel::default() }).unwrap();
    }
    let mut out: Vec<BoardWork> = Vec::new();
    // Open microblock of each running kernel, and its number of screens that were not handed out.
    let mut running: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
    while !board.is_empty() {
        while out.len() < WORKERS {
            let Some(work) = board.take(out.len()) else { break };
            if let BoardWork::Screen(job) = work {
                running.insert(job.kernel, (job.microblock, job.screens - job.screen - 1));
            }
            out.push(work);
        }
        if out.len() < WORKERS {
            let ready: u64 = running.values().map(|(_, left)| left).sum();
            assert_eq!(ready, 0, "{} workers have work, and {ready} screens are ready", out.len());
        }
        match out.swap_remove(below(&mut rng, out.len() as u64) as usize) {
            BoardWork::Map(kernel) => board.mapped(kernel, true),
            BoardWork::Screen(job) => board.screened(job, true),
            BoardWork::Drain(kernel) => board.drained(kernel, true),
        }
    }
}

#[test]
fn inter_kernel_schedulers_keep_a_kernel_on_one_worker() {
    for (scheduler, application) in [("inter-static", Some(2)), ("inter-dynamic", None)] {
        let mut board = SessionBoard::new(by_name(scheduler, WORKERS).unwrap(), WORKERS, u64::MAX);
        for _ in 0..8 {
            let facts = KernelFacts { application: application.unwrap_or(u64::MAX), ..KernelFacts::default() };
            let microblocks = vec![(1, 9), (1, 1), (1, 9)];
            board.submit(BoardKernel { facts, microblocks, ..BoardKernel::default() }).unwrap();
        }
        let mut homes: BTreeMap<u64, usize> = BTreeMap::new();
        let mut worker = 0;
        while !board.is_empty() {
            worker = (worker + 1) % WORKERS;
            match board.take(worker) {
                Some(BoardWork::Map(kernel)) => board.mapped(kernel, true),
                Some(BoardWork::Drain(kernel)) => board.drained(kernel, true),
                Some(BoardWork::Screen(job)) => {
                    assert_eq!(job.screens, 1, "{scheduler} does not split");
                    assert_eq!(*homes.entry(job.kernel).or_insert(worker), worker, "{scheduler}");
                    board.screened(job, true);
                }
                None => {}
            }
        }
        let used: BTreeSet<usize> = homes.values().copied().collect();
        assert_eq!(used.len(), if application.is_some() { 1 } else { WORKERS }, "{scheduler}: {homes:?}");
    }
}

#[test]
fn memory_bounds_the_kernels_that_are_mapped() {
    let mut board = SessionBoard::new(by_name("intra-out-of-order", 1).unwrap(), 1, 100);
    let kernel = |bytes| BoardKernel { bytes, microblocks: vec![(1, 1)], ..BoardKernel::default() };
    assert!(matches!(board.submit(kernel(101)), Err(BoardError::Memory { needed: 101, bound: 100, .. })));
    board.submit(kernel(60)).unwrap();
    board.submit(kernel(60)).unwrap();
    assert_eq!(board.take(0), Some(BoardWork::Map(0)));
    assert_eq!(board.take(0), None, "the second waits for memory");
    board.mapped(0, false);
    assert_eq!(board.take_ended(), [(0, KernelEnd::Failed)]);
    assert_eq!(board.take(0), Some(BoardWork::Map(1)));
    assert_eq!(board.state(1), Some(KernelState::Mapping));
}

#[test]
fn a_kernel_behind_one_that_has_failed_fails() {
    let mut board = SessionBoard::new(by_name("intra-in-order", 1).unwrap(), 1, 100);
    let kernel = |after| BoardKernel { after, microblocks: vec![(1, 1)], ..BoardKernel::default() };
    assert_eq!(board.submit(kernel(vec![])), Ok(0));
    assert_eq!(board.take(0), Some(BoardWork::Map(0)));
    board.mapped(0, false);
    assert_eq!(board.take_ended(), [(0, KernelEnd::Failed)]);
    assert_eq!(board.submit(kernel(vec![0])), Ok(1));
    assert_eq!(board.submit(kernel(vec![1])), Ok(2));
    let behind = [(1, KernelEnd::Dependency(Some(0))), (2, KernelEnd::Dependency(Some(1)))];
    assert_eq!(board.take_ended(), behind);
    assert!(board.is_empty());
}

#[test]
fn a_name_that_never_comes_fails_its_kernels_at_the_end() {
    let mut board = SessionBoard::new(by_name("intra-in-order", 1).unwrap(), 1, 100);
    let names = |name: &str, after: &str| BoardKernel {
        name: name.into(),
        after_names: vec![after.into()],
        microblocks: vec![(1, 1)],
        ..BoardKernel::default()
    };
    board.submit(names("a", "never")).unwrap();
    board.submit(names("b", "a")).unwrap();
    let circle = ["never", "b", "a", "never"].map(str::to_owned).to_vec();
    assert_eq!(board.submit(names("never", "b")), Err(BoardError::Circle { names: circle }));
    assert!(matches!(board.submit(names("a", "x")), Err(BoardError::Name(name)) if name == "a"));
    board.close();
    assert!(board.is_empty());
    assert_eq!(board.take_ended(), [(0, KernelEnd::Dependency(None)), (1, KernelEnd::Dependency(Some(0)))]);
}

/// A scheduler that fails when it is asked.
#[derive(Debug)]
struct Failing;

impl KernelScheduler for Failing {
    fn splits(&self) -> bool {
        false
    }
    fn arrived(&mut self, _kernel: &KernelFacts) {}
    fn ready(&mut self, _kernel: u64, _screens: u64) {}
    fn next(&mut self, worker: usize) -> Option<u64> {
        panic!("worker {worker} asks")
    }
    fn ended(&mut self, _kernel: u64) {}
}

#[test]
fn a_board_without_kernels_asks_no_scheduler() {
    let mut board = SessionBoard::new(Box::new(Failing), 1, 100);
    assert_eq!(board.take(0), None);
    let kernel = BoardKernel { microblocks: vec![(1, 1)], ..BoardKernel::default() };
    let number = board.submit(kernel).unwrap();
    assert_eq!(board.take(0), Some(BoardWork::Map(number)));
    let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| board.take(0)));
    assert!(asked.is_err(), "with a kernel it is asked");
}
