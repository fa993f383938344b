//! Promise: a board ends every kernel in the way that its history says, hands out each screen once, and never hands out
//! work that a dependency, a lock, or the bound on memory forbids; steps that make no sense panic.
//!
//! A reference, written from the documentation of the board alone, keeps the history of each kernel: what was handed
//! out, what came back and how. It knows neither the board's queues nor its schedulers, and judges each step after the
//! board took it. Seeds are printed with each failure.

use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use nandarray::{Share, SharedRange};
use nandarray_runtime::schedule::{KernelFacts, SCHEDULERS, by_name};
use nandarray_runtime::{BoardError, BoardKernel, BoardWork, KernelEnd, KernelState, ScreenJob, SessionBoard};

const WORKERS: usize = 3;
const MEMORY: u64 = 40;
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// The history of a kernel so far.
#[derive(Debug, Default)]
struct History {
    kernel: BoardKernel,
    mapped: Option<bool>,
    mapping: bool,
    /// Screens of each microblock that are with a worker, and those that ended well.
    out: BTreeMap<usize, BTreeSet<u64>>,
    ran: BTreeMap<usize, BTreeSet<u64>>,
    /// Number of screens that each microblock was divided into, as the first job of it said.
    screens: BTreeMap<usize, u64>,
    failed: bool,
    draining: bool,
    drained: Option<bool>,
    cancelled: bool,
    end: Option<KernelEnd>,
}

impl History {
    /// Whether the kernel's sections are, or are being, read: its memory is in use.
    fn is_resident(&self) -> bool {
        self.end.is_none() && (self.mapping || self.mapped.is_some())
    }

    fn is_whole(&self, microblock: usize) -> bool {
        self.screens.get(&microblock).is_some_and(|n| self.ran[&microblock].len() as u64 == *n)
    }

    fn conflicts(&self, other: &Self) -> bool {
        self.kernel.ranges.iter().any(|a| {
            other.kernel.ranges.iter().any(|b| {
                let reads = a.share == Share::Shared && b.share == Share::Shared;
                a.space == b.space && a.first <= b.last && b.first <= a.last && !reads
            })
        })
    }
}

/// The reference: every kernel's history, by number.
#[derive(Debug, Default)]
struct Reference {
    all: Vec<History>,
}

impl Reference {
    /// Returns the numbers of the kernels that a kernel depends on, of those that were submitted.
    fn before(&self, kernel: &BoardKernel) -> BTreeSet<u64> {
        let named = |name: &String| self.all.iter().position(|h| h.kernel.name == *name).map(|n| n as u64);
        kernel
            .after
            .iter()
            .copied()
            .filter(|k| *k < self.all.len() as u64)
            .chain(kernel.after_names.iter().filter_map(named))
            .collect()
    }

    /// Whether the new kernel would wait for itself through kernels that have not ended: names are edges too.
    fn closes_a_circle(&self, new: &BoardKernel) -> bool {
        if new.name.is_empty() {
            return false;
        }
        if new.after_names.contains(&new.name) {
            return true;
        }
        let live = |k: &u64| self.all[*k as usize].end.is_none();
        let mut left: Vec<u64> = self.before(new).into_iter().filter(live).collect();
        let mut seen = BTreeSet::new();
        while let Some(at) = left.pop() {
            let kernel = &self.all[at as usize].kernel;
            if kernel.after_names.contains(&new.name) {
                return true;
            }
            if seen.insert(at) {
                left.extend(self.before(kernel).into_iter().filter(live));
            }
        }
        false
    }

    fn check_work(&mut self, work: BoardWork, splits: bool) {
        match work {
            BoardWork::Map(number) => {
                let own = &self.all[number as usize];
                assert!(!own.mapping && own.mapped.is_none() && own.end.is_none() && !own.cancelled);
                for before in self.before(&own.kernel) {
                    let end = self.all[before as usize].end;
                    assert_eq!(end, Some(KernelEnd::Done), "kernel {number} is mapped before kernel {before} is done");
                }
                for (other, history) in self.all.iter().enumerate() {
                    let beside = other as u64 != number && history.is_resident() && own.conflicts(history);
                    assert!(!beside, "kernel {number} is mapped beside kernel {other}, whose ranges it needs");
                }
                let used: u64 = self.all.iter().filter(|h| h.is_resident()).map(|h| h.kernel.bytes).sum();
                assert!(used + own.kernel.bytes <= MEMORY, "{used} bytes are used, {} more", own.kernel.bytes);
                self.all[number as usize].mapping = true;
            }
            BoardWork::Screen(job) => self.check_screen(job, splits),
            BoardWork::Drain(number) => {
                let own = &mut self.all[number as usize];
                let last = own.kernel.microblocks.len() - 1;
                assert!((0..=last).all(|m| own.is_whole(m)), "kernel {number} drains before its screens ended");
                assert!(!own.draining && !own.failed && !own.cancelled);
                own.draining = true;
            }
        }
    }

    fn check_screen(&mut self, job: ScreenJob, splits: bool) {
        let own = &mut self.all[job.kernel as usize];
        assert!(own.mapped == Some(true) && !own.failed && !own.cancelled && own.end.is_none(), "{job:?} of {own:?}");
        let (least, most) = own.kernel.microblocks[job.microblock];
        let divided = if splits { (WORKERS as u64).clamp(least, most) } else { least };
        assert_eq!(job.screens, divided, "{job:?}");
        assert!(job.screen < job.screens, "{job:?}");
        if job.microblock > 0 {
            assert!(own.is_whole(job.microblock - 1), "{job:?} before the microblock before it ended");
        }
        own.screens.insert(job.microblock, job.screens);
        let ran = own.ran.entry(job.microblock).or_default();
        assert!(!ran.contains(&job.screen), "{job:?} ran already");
        assert!(own.out.entry(job.microblock).or_default().insert(job.screen), "{job:?} is with a worker already");
    }

    /// Checks the end of a kernel against its history and those of the kernels that it depended on.
    fn check_end(&mut self, number: u64, end: KernelEnd, closed: bool) {
        let own = &self.all[number as usize];
        assert_eq!(own.end, None, "kernel {number} ended twice");
        assert!(own.out.values().all(BTreeSet::is_empty), "kernel {number} ended while screens of it run");
        match end {
            KernelEnd::Done => assert!(own.drained == Some(true) && !own.failed && !own.cancelled),
            KernelEnd::Failed => {
                assert!(own.failed || own.mapped == Some(false) || own.drained == Some(false), "{number}: {own:?}");
            }
            KernelEnd::Cancelled => assert!(own.cancelled, "kernel {number} was not cancelled"),
            KernelEnd::Dependency(Some(before)) => {
                assert!(self.before(&own.kernel).contains(&before), "{number} does not depend on {before}");
                let lost = self.all[before as usize].end;
                assert!(lost.is_some_and(|end| end != KernelEnd::Done), "{number} failed by {before}: {lost:?}");
            }
            KernelEnd::Dependency(None) => {
                let missing = |name: &String| !self.all.iter().any(|h| h.kernel.name == *name);
                let lost = |name: &String| {
                    let named = self.all.iter().find(|h| h.kernel.name == *name);
                    named.is_some_and(|h| h.end.is_some_and(|end| end != KernelEnd::Done))
                };
                let names = &own.kernel.after_names;
                assert!(names.iter().any(|n| lost(n) || (closed && missing(n))), "{number}: {names:?}");
            }
        }
        if !matches!(end, KernelEnd::Cancelled | KernelEnd::Dependency(_)) {
            assert!(!own.cancelled, "kernel {number} was cancelled and ended as {end:?}");
        }
        self.all[number as usize].end = Some(end);
    }
}

fn random_kernel(chance: &mut Rng, model: &Reference) -> BoardKernel {
    let submitted = model.all.len() as u64;
    let after = (0..chance.u64(..3)).filter(|_| submitted > 0).map(|_| chance.u64(..submitted + 1)).collect();
    let after_names = (0..chance.u64(..2)).map(|_| NAMES[chance.u64(..6) as usize].to_owned()).collect();
    let mut free = NAMES.iter().filter(|n| !model.all.iter().any(|h| h.kernel.name == **n));
    let name =
        if chance.u64(..3) == 0 { free.next_back().map_or(String::new(), |n| (*n).to_owned()) } else { String::new() };
    let range = |chance: &mut Rng| {
        let first = chance.u64(..12);
        let share = if chance.u64(..2) == 0 { Share::Exclusive } else { Share::Shared };
        SharedRange { space: chance.u64(..2), first, last: first + chance.u64(..4), share }
    };
    let ranges = (0..chance.u64(..3)).map(|_| range(chance)).collect();
    let microblock = |chance: &mut Rng| {
        let least = 1 + chance.u64(..3);
        (least, least + chance.u64(..4))
    };
    let microblocks = (0..=chance.u64(..2)).map(|_| microblock(chance)).collect();
    let (application, priority) = (chance.u64(..3), chance.u64(..3) as i64 - 1);
    let application = if chance.u64(..4) == 0 { u64::MAX } else { application };
    let facts = KernelFacts { application, priority, work: chance.u64(..9), ..KernelFacts::default() };
    BoardKernel { name, facts, after, after_names, microblocks, ranges, bytes: chance.u64(..MEMORY / 2) }
}

/// A board beside its reference, and the work that each worker has.
struct Beside {
    board: SessionBoard,
    model: Reference,
    busy: Vec<Option<BoardWork>>,
    /// Workers whose core has failed: they take no more work.
    gone: BTreeSet<usize>,
    splits: bool,
    closed: bool,
}

impl Beside {
    fn new(scheduler: &str) -> Self {
        let made = by_name(scheduler, WORKERS).unwrap();
        let splits = made.splits();
        let board = SessionBoard::new(made, WORKERS, MEMORY);
        let (model, gone) = (Reference::default(), BTreeSet::new());
        Self { board, model, busy: vec![None; WORKERS], gone, splits, closed: false }
    }

    fn submit(&mut self, kernel: BoardKernel) {
        let circle = self.model.closes_a_circle(&kernel);
        match self.board.submit(kernel.clone()) {
            Ok(number) => {
                assert!(kernel.after.iter().all(|before| *before < number), "{number} after a later one: {kernel:?}");
                assert!(!circle, "a circle was not noticed: {kernel:?}");
                assert_eq!(number, self.model.all.len() as u64);
                self.model.all.push(History { kernel, ..History::default() });
            }
            Err(BoardError::Circle { names }) => {
                assert!(circle, "{names:?} is no circle: {kernel:?}");
                assert_eq!(names.first(), names.last());
            }
            Err(BoardError::Number(later)) => {
                assert!(later >= self.model.all.len() as u64 && kernel.after.contains(&later), "{later}: {kernel:?}");
            }
            Err(other) => panic!("{other}: {kernel:?}"),
        }
    }

    /// Lets a worker take work, if it has none; returns whether there was any.
    fn take(&mut self, worker: usize) -> bool {
        if self.busy[worker].is_some() || self.gone.contains(&worker) {
            return false;
        }
        self.busy[worker] = self.board.take(worker);
        if let Some(work) = self.busy[worker] {
            self.model.check_work(work, self.splits);
        }
        self.busy[worker].is_some()
    }

    /// Ends the work of a worker; `fine` is whether it succeeded.
    fn end(&mut self, worker: usize, fine: bool) {
        let Some(work) = self.busy[worker].take() else { return };
        match work {
            BoardWork::Map(kernel) => {
                let own = &mut self.model.all[kernel as usize];
                (own.mapping, own.mapped) = (false, Some(fine));
                self.board.mapped(kernel, fine);
            }
            BoardWork::Screen(job) => {
                let own = &mut self.model.all[job.kernel as usize];
                own.out.get_mut(&job.microblock).unwrap().remove(&job.screen);
                own.ran.get_mut(&job.microblock).unwrap().insert(job.screen);
                own.failed |= !fine;
                self.board.screened(job, fine);
            }
            BoardWork::Drain(kernel) => {
                self.model.all[kernel as usize].drained = Some(fine);
                self.board.drained(kernel, fine);
            }
        }
    }

    /// Lets the core of a worker fail: the screen that it runs comes back, and the worker takes no more.
    fn lose(&mut self, worker: usize) {
        if self.gone.len() + 1 == WORKERS || self.gone.contains(&worker) {
            return;
        }
        match self.busy[worker] {
            Some(BoardWork::Screen(job)) => {
                self.model.all[job.kernel as usize].out.get_mut(&job.microblock).unwrap().remove(&job.screen);
                self.busy[worker] = None;
                // Either order is allowed: the scheduler learns of the worker before or after its screen.
                if job.screen % 2 == 0 {
                    self.board.lost(worker);
                    self.board.again(job);
                } else {
                    self.board.again(job);
                    self.board.lost(worker);
                }
            }
            Some(_) => return,
            None => self.board.lost(worker),
        }
        self.gone.insert(worker);
    }

    fn cancel(&mut self, kernel: u64) {
        let state = self.board.state(kernel);
        let was = self.model.all[kernel as usize].cancelled;
        let cancelled = self.board.cancel(kernel);
        match state {
            None | Some(KernelState::Draining) => assert!(!cancelled, "kernel {kernel} in state {state:?}"),
            Some(KernelState::Stopping) => assert_eq!(cancelled, was),
            Some(_) => assert!(cancelled, "kernel {kernel} in state {state:?}"),
        }
        self.model.all[kernel as usize].cancelled |= cancelled;
    }

    fn settle(&mut self) {
        let ended = self.board.take_ended();
        // A kernel and those that fail with it end together, causes first.
        for (kernel, end) in ended {
            self.model.check_end(kernel, end, self.closed);
        }
        let live: Vec<u64> =
            (0..self.model.all.len() as u64).filter(|k| self.model.all[*k as usize].end.is_none()).collect();
        assert_eq!(self.board.len(), live.len());
        let used: u64 = self.model.all.iter().filter(|h| h.is_resident()).map(|h| h.kernel.bytes).sum();
        assert_eq!(self.board.used_bytes(), used, "bytes of mapped kernels");
        for kernel in live {
            let state = self.board.state(kernel).expect("a kernel that has not ended");
            let own = &self.model.all[kernel as usize];
            match state {
                KernelState::Submitted | KernelState::Blocked | KernelState::Admitted => {
                    assert!(!own.is_resident(), "kernel {kernel} in state {state:?} has memory");
                }
                KernelState::Mapping => assert!(own.mapping),
                KernelState::Running { microblock } => {
                    assert!(own.mapped == Some(true) && !own.is_whole(microblock), "{state:?} of {own:?}");
                }
                KernelState::Draining => assert_eq!(own.drained, None),
                KernelState::Stopping => {
                    let with_worker = own.mapping || own.out.values().any(|m| !m.is_empty());
                    assert!(with_worker, "kernel {kernel} stops, but nobody works for it: {own:?}");
                }
            }
        }
    }

    /// Runs everything to its end without further failures: nothing may be left waiting.
    fn finish(&mut self, seed: u64) {
        self.board.close();
        self.closed = true;
        self.settle();
        while !self.board.is_empty() {
            let mut moved = false;
            for worker in 0..WORKERS {
                moved |= self.take(worker);
            }
            for worker in 0..WORKERS {
                moved |= self.busy[worker].is_some();
                self.end(worker, true);
                self.settle();
            }
            assert!(moved, "seed {seed}: kernels wait for ever: {:?}", self.board);
        }
        assert_eq!(self.board.used_bytes(), 0);
        assert!(self.model.all.iter().all(|h| h.end.is_some()));
    }
}

/// One run of random steps; `harm` are one in how many steps a failure, a cancellation and the loss of a core.
fn run(scheduler: &str, seed: u64, steps: u64, harm: u64) {
    let mut chance = Rng::with_seed(seed);
    let mut beside = Beside::new(scheduler);
    for _ in 0..steps {
        let worker = chance.u64(..WORKERS as u64) as usize;
        match chance.u64(..8) {
            0 | 1 => {
                let kernel = random_kernel(&mut chance, &beside.model);
                beside.submit(kernel);
            }
            2..=4 => {
                beside.take(worker);
            }
            5 | 6 => beside.end(worker, chance.u64(..harm) != 0),
            _ if chance.u64(..harm) == 0 && !beside.model.all.is_empty() => {
                beside.cancel(chance.u64(..beside.model.all.len() as u64));
            }
            _ if chance.u64(..2 * harm) == 0 => beside.lose(worker),
            _ => {}
        }
        beside.settle();
    }
    beside.finish(seed);
}

#[test]
fn every_history_is_allowed_and_every_kernel_ends() {
    for scheduler in SCHEDULERS {
        for seed in 0..60 {
            eprintln!("{scheduler}, seed {seed}");
            run(scheduler, seed, 250, if seed % 2 == 0 { 10 } else { 1_000_000 });
        }
    }
}

fn kernel(microblocks: &[(u64, u64)]) -> BoardKernel {
    BoardKernel { microblocks: microblocks.to_vec(), ..BoardKernel::default() }
}

fn board(workers: usize, memory: u64) -> SessionBoard {
    SessionBoard::new(by_name("intra-out-of-order", workers).unwrap(), workers, memory)
}

#[test]
fn refused_kernels_leave_nothing_behind() {
    let mut board = board(2, 10);
    let named = |name: &str, after: &[&str]| BoardKernel {
        name: name.to_owned(),
        after_names: after.iter().map(|n| (*n).to_owned()).collect(),
        bytes: 10,
        ..kernel(&[(1, 1)])
    };
    assert_eq!(board.submit(named("a", &["b"])), Ok(0));
    let circle = Err(BoardError::Circle { names: vec!["b".to_owned(), "a".to_owned(), "b".to_owned()] });
    assert_eq!(board.submit(named("b", &["a"])), circle);
    let own = Err(BoardError::Circle { names: vec!["c".to_owned(), "c".to_owned()] });
    assert_eq!(board.submit(named("c", &["c"])), own);
    assert_eq!(board.submit(named("a", &[])), Err(BoardError::Name("a".to_owned())));
    let large = BoardKernel { bytes: 11, ..named("d", &[]) };
    assert!(matches!(board.submit(large), Err(BoardError::Memory { needed: 11, bound: 10, .. })));
    for microblocks in [&[][..], &[(0, 3)], &[(1, 1), (3, 2)]] {
        let empty = BoardKernel { name: "e".to_owned(), ..kernel(microblocks) };
        assert_eq!(board.submit(empty), Err(BoardError::Empty("e".to_owned())));
    }
    // Names of refused kernels are free, and the first kernel still waits for its own.
    assert_eq!(board.state(0), Some(KernelState::Submitted));
    assert_eq!(board.submit(named("b", &[])), Ok(1));
    assert_eq!((board.take(0), board.take(1)), (Some(BoardWork::Map(1)), None));
}

#[test]
fn bytes_of_memory_are_added_without_overflow() {
    let mut board = board(2, u64::MAX);
    let large = BoardKernel { bytes: u64::MAX - 1, ..kernel(&[(1, 1)]) };
    for number in 0..2 {
        assert_eq!(board.submit(large.clone()), Ok(number));
    }
    assert_eq!(board.take(0), Some(BoardWork::Map(0)));
    // Both together need more than there can be.
    assert_eq!(board.take(1), None);
    board.mapped(0, false);
    assert_eq!(board.take(1), Some(BoardWork::Map(1)));
}

/// Runs a step on a board of one running kernel, of which one screen is out; the step must panic.
fn refuses(what: &str, step: impl FnOnce(&mut SessionBoard, ScreenJob)) {
    let mut board = board(1, 100);
    board.submit(kernel(&[(2, 2), (1, 1)])).unwrap();
    board.submit(kernel(&[(1, 1)])).unwrap();
    assert_eq!(board.take(0), Some(BoardWork::Map(0)));
    board.mapped(0, true);
    assert_eq!(board.take(0), Some(BoardWork::Map(1)));
    let Some(BoardWork::Screen(job)) = board.take(0) else { panic!("a screen of kernel 0 is ready") };
    assert_eq!((job.kernel, job.microblock), (0, 0));
    let refused = catch_unwind(AssertUnwindSafe(|| step(&mut board, job)));
    assert!(refused.is_err(), "{what} was taken");
}

#[test]
fn steps_that_do_not_follow_from_the_state_panic() {
    refuses("the mapping of a kernel that runs", |board, _| board.mapped(0, true));
    refuses("a failed mapping of a kernel that runs", |board, _| board.mapped(0, false));
    refuses("a mapping of no kernel", |board, _| board.mapped(7, true));
    refuses("the draining of a kernel that runs", |board, _| board.drained(0, true));
    refuses("the draining of a kernel that is mapped", |board, _| board.drained(1, true));
    refuses("a screen of a kernel that is mapped", |board, job| board.screened(ScreenJob { kernel: 1, ..job }, true));
    refuses("a screen of a later microblock", |board, job| board.screened(ScreenJob { microblock: 1, ..job }, true));
    refuses("a screen that comes back twice", |board, job| {
        board.screened(job, true);
        board.screened(job, true);
    });
    refuses("a screen that was never handed out", |board, job| board.screened(ScreenJob { screen: 1, ..job }, true));
    refuses("a screen again that came back", |board, job| {
        board.screened(job, true);
        board.again(job);
    });
    refuses("a draining that nobody was given", |board, job| {
        board.screened(job, true);
        for _ in 0..2 {
            let Some(BoardWork::Screen(next)) = board.take(0) else { panic!("screens are ready") };
            board.screened(next, true);
        }
        assert_eq!(board.state(0), Some(KernelState::Draining));
        board.drained(0, true);
    });
}
