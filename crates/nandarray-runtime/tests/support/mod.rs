//! Executors, sources and sinks that tests share.
#![allow(dead_code, unreachable_pub, reason = "each test is a crate of its own, and takes what it needs")]

use std::sync::atomic::{AtomicI64, Ordering};

use nandarray_cores::RunError;
use nandarray_runtime::{Agenda, Executor, InputSource, Job, JobStep, Next, OutputSink, Progress, TransferError};

/// A random number generator with a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

/// An executor with one thread and many jobs in flight: the job that does its next step is drawn at random, and a job
/// that is done goes back to the agenda after a random delay.
#[derive(Debug)]
pub struct Scrambled {
    pub seed: u64,
    /// Limit of the jobs in flight.
    pub jobs: usize,
}

impl Executor for Scrambled {
    fn workers(&self) -> usize {
        self.jobs
    }

    fn run(&self, agenda: &mut Agenda<'_, '_>, sink: &mut dyn OutputSink) {
        let mut chance = Chance(self.seed);
        let mut under_way: Vec<(Job<'_, '_>, usize)> = Vec::new();
        loop {
            if under_way.is_empty() || (under_way.len() < self.jobs && chance.below(2) == 0) {
                match agenda.pick() {
                    Next::Job(job) => under_way.push((job, chance.below(6))),
                    Next::Over if under_way.is_empty() => return,
                    Next::Wait | Next::Over => assert!(!under_way.is_empty(), "there is something to wait for"),
                }
            }
            let at = chance.below(under_way.len());
            let (job, delay) = &mut under_way[at];
            let done = match job.step() {
                JobStep::Fetch => job.fetch().map(drop),
                JobStep::Call => job.call(),
                JobStep::Deliver => job.deliver(sink).map(drop),
                JobStep::Done if *delay > 0 => {
                    *delay -= 1;
                    Ok(())
                }
                JobStep::Done => {
                    agenda.done(under_way.swap_remove(at).0);
                    Ok(())
                }
            };
            if let Err(error) = done {
                agenda.fail(under_way.swap_remove(at).0, error);
            }
        }
    }
}

/// An executor that does `after` jobs on the caller's thread, and panics in the first step of the next one.
#[derive(Debug)]
pub struct Dying {
    pub after: usize,
}

impl Executor for Dying {
    fn workers(&self) -> usize {
        1
    }

    fn run(&self, agenda: &mut Agenda<'_, '_>, sink: &mut dyn OutputSink) {
        let mut jobs = 0;
        while let Next::Job(mut job) = agenda.pick() {
            assert!(jobs < self.after, "dying on purpose");
            jobs += 1;
            let mut steps = || -> Result<(), RunError> {
                loop {
                    match job.step() {
                        JobStep::Fetch => drop(job.fetch()?),
                        JobStep::Call => job.call()?,
                        JobStep::Deliver => drop(job.deliver(sink)?),
                        JobStep::Done => return Ok(()),
                    }
                }
            };
            match steps() {
                Ok(()) => agenda.done(job),
                Err(error) => agenda.fail(job, error),
            }
        }
    }
}

/// An executor that has `jobs` jobs in flight wherever it can, and ends the oldest first. It notes the stages of the
/// jobs in flight after each pick.
#[derive(Debug)]
pub struct Noting {
    pub jobs: usize,
    pub in_flight: std::sync::Mutex<Vec<Vec<usize>>>,
}

impl Executor for Noting {
    fn workers(&self) -> usize {
        self.jobs
    }

    fn run(&self, agenda: &mut Agenda<'_, '_>, sink: &mut dyn OutputSink) {
        let mut under_way: std::collections::VecDeque<Job<'_, '_>> = std::collections::VecDeque::new();
        loop {
            while under_way.len() < self.jobs {
                let Next::Job(job) = agenda.pick() else { break };
                under_way.push_back(job);
                self.in_flight.lock().unwrap().push(under_way.iter().map(Job::stage).collect());
            }
            let Some(mut job) = under_way.pop_front() else { return };
            loop {
                match job.step() {
                    JobStep::Fetch => drop(job.fetch().unwrap()),
                    JobStep::Call => job.call().unwrap(),
                    JobStep::Deliver => drop(job.deliver(sink).unwrap()),
                    JobStep::Done => break,
                }
            }
            agenda.done(job);
        }
    }
}

/// An executor with one thread that does `after` steps, then says that the run is to stop, and goes on as long as there
/// are jobs. Between steps it looks at the progress, which only grows.
#[derive(Debug)]
pub struct Stopping<'a> {
    /// Number of steps after which the run is to stop; `None` for never.
    pub after: Option<usize>,
    pub progress: &'a Progress,
    /// Number of steps that were done.
    pub steps: std::sync::atomic::AtomicUsize,
}

/// Numbers of a run's progress: bytes read, and tasks done and known, of all stages and of each.
type Seen = (u64, Vec<(u64, u64)>);

impl<'a> Stopping<'a> {
    pub fn new(after: Option<usize>, progress: &'a Progress) -> Self {
        Self { after, progress, steps: std::sync::atomic::AtomicUsize::new(0) }
    }

    fn look(&self, before: &mut Seen) {
        let of = |number: &std::sync::atomic::AtomicU64| number.load(Ordering::Relaxed);
        let Progress { tasks, done, bytes_in, .. } = self.progress;
        let mut stages = vec![(of(done), of(tasks))];
        stages.extend(self.progress.stages());
        assert!(stages.iter().all(|(done, known)| done <= known), "{stages:?}");
        let sums = stages[1..].iter().fold((0, 0), |sums, one| (sums.0 + one.0, sums.1 + one.1));
        assert_eq!(stages[0], sums, "the sums of {stages:?}");
        let grows = before.1.iter().zip(&stages).all(|(a, b)| a.0 <= b.0 && a.1 <= b.1);
        assert!(grows && before.0 <= of(bytes_in), "{before:?}, then {stages:?}");
        *before = (of(bytes_in), stages);
    }
}

impl Executor for Stopping<'_> {
    fn workers(&self) -> usize {
        3
    }

    fn run(&self, agenda: &mut Agenda<'_, '_>, sink: &mut dyn OutputSink) {
        let mut seen = Seen::default();
        while let Next::Job(mut job) = agenda.pick() {
            let done = loop {
                if Some(self.steps.fetch_add(1, Ordering::Relaxed)) == self.after {
                    job.stop().store(true, Ordering::Relaxed);
                }
                let done = match job.step() {
                    JobStep::Fetch => job.fetch().map(drop),
                    JobStep::Call => job.call(),
                    JobStep::Deliver => job.deliver(sink).map(drop),
                    JobStep::Done => break Ok(()),
                };
                self.look(&mut seen);
                if done.is_err() {
                    break done;
                }
            };
            match done {
                Ok(()) => agenda.done(job),
                Err(error) => agenda.fail(job, error),
            }
            self.look(&mut seen);
        }
    }
}

/// A source of items of eight bytes each.
#[derive(Debug)]
pub struct Items {
    pub bytes: Vec<u8>,
    /// Number of reads that succeed before a read panics.
    pub panics_in: AtomicI64,
}

impl Items {
    pub fn new(items: &[u64]) -> Self {
        Self { bytes: bytes(items), panics_in: AtomicI64::new(i64::MAX) }
    }
}

pub fn bytes(items: &[u64]) -> Vec<u8> {
    items.iter().flat_map(|item| item.to_le_bytes()).collect()
}

impl InputSource for Items {
    fn bytes(&self, _input: usize) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, _input: usize, offset: u64, into: &mut [u8]) -> Result<(), TransferError> {
        assert!(self.panics_in.fetch_sub(1, Ordering::Relaxed) > 0, "dying on purpose");
        into.copy_from_slice(&self.bytes[offset as usize..][..into.len()]);
        Ok(())
    }
}

/// A sink that collects the bytes of each output.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    pub outputs: Vec<Vec<u8>>,
    /// Number of the output that panics when it gets bytes; `None` if none does.
    pub panics_at: Option<usize>,
}

impl OutputSink for Gathered {
    fn take(&mut self, output: usize, _task: u64, bytes: Vec<u8>) -> Result<(), TransferError> {
        assert!(self.panics_at != Some(output), "dying on purpose");
        if self.outputs.len() <= output {
            self.outputs.resize(output + 1, Vec::new());
        }
        self.outputs[output].extend(bytes);
        Ok(())
    }
}
