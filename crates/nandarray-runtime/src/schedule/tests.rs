//! The schedulers beside a list of kernels that is searched from its beginning, and the table of their names.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use super::*;

const WORKERS: usize = 4;

/// A kernel of the list: its facts, its ready screens, and the worker that has taken it.
#[derive(Clone, Debug)]
struct Listed {
    facts: KernelFacts,
    ready: u64,
    owner: Option<usize>,
}

/// Kernels that have not ended, by number; the kernel that runs in order; the workers that failed.
#[derive(Debug, Default)]
struct List {
    kernels: BTreeMap<u64, Listed>,
    running: Option<u64>,
    lost: BTreeSet<usize>,
}

impl List {
    /// Returns the number of the first kernel, in the order of priority and submission, of those that fit.
    fn first(&self, fits: impl Fn(&Listed) -> bool) -> Option<u64> {
        let all = self.kernels.values().filter(|kernel| fits(kernel));
        let first =
            all.min_by(|a, b| b.facts.priority.cmp(&a.facts.priority).then(a.facts.number.cmp(&b.facts.number)));
        first.map(|kernel| kernel.facts.number)
    }

    /// Returns the worker of an application: the first that works, from its own on.
    fn home(&self, application: u64) -> Option<usize> {
        let own = (application % WORKERS as u64) as usize;
        (0..WORKERS).map(|next| (own + next) % WORKERS).find(|worker| !self.lost.contains(worker))
    }

    fn next(&mut self, scheduler: &str, worker: usize) -> Option<u64> {
        let chosen = match scheduler {
            "intra-out-of-order" => self.first(|kernel| kernel.ready > 0)?,
            "intra-in-order" => match self.running.filter(|number| self.kernels.contains_key(number)) {
                Some(number) => number,
                None => self.first(|_| true)?,
            },
            "inter-static" => self.first(|kernel| self.home(kernel.facts.application) == Some(worker))?,
            _ => match self.first(|kernel| kernel.owner == Some(worker)) {
                Some(own) => own,
                None => self.first(|kernel| kernel.owner.is_none())?,
            },
        };
        let kernel = self.kernels.get_mut(&chosen).unwrap();
        if scheduler == "inter-dynamic" {
            kernel.owner = Some(worker);
        }
        kernel.ready = kernel.ready.checked_sub(1)?;
        self.running = Some(chosen);
        Some(chosen)
    }
}

fn step(name: &str, scheduler: &mut dyn KernelScheduler, list: &mut List, rng: &mut Rng, number: u64, context: &str) {
    let known: Vec<u64> = list.kernels.keys().copied().collect();
    let any = (!known.is_empty()).then(|| known[rng.usize(..known.len())]);
    match (rng.u8(..12), any) {
        (0 | 1, _) | (_, None) => {
            let (application, priority) = (rng.u64(..9), rng.i64(-1..=1));
            let facts = KernelFacts { number, application, priority, ..KernelFacts::default() };
            scheduler.arrived(&facts);
            list.kernels.insert(number, Listed { facts, ready: 0, owner: None });
        }
        (2 | 3, Some(kernel)) => {
            let screens = rng.u64(..5);
            scheduler.ready(kernel, screens);
            list.kernels.get_mut(&kernel).unwrap().ready += screens;
        }
        (4, Some(kernel)) => {
            scheduler.ended(kernel);
            // A second notice of the same end changes nothing.
            scheduler.ended(kernel);
            list.kernels.remove(&kernel);
        }
        (5, _) if rng.u8(..10) == 0 && list.lost.len() + 1 < WORKERS => {
            let worker = rng.usize(..WORKERS);
            if list.lost.insert(worker) {
                scheduler.lost(worker);
                list.kernels.values_mut().filter(|kernel| kernel.owner == Some(worker)).for_each(|k| k.owner = None);
            }
        }
        _ => {
            let worker = rng.usize(..WORKERS);
            if !list.lost.contains(&worker) {
                assert_eq!(scheduler.next(worker), list.next(name, worker), "worker {worker}, {context}: {list:?}");
            }
        }
    }
}

#[test]
fn each_scheduler_chooses_as_a_search_of_all_kernels_does() {
    for name in SCHEDULERS {
        for seed in 0..60 {
            let (mut rng, mut list) = (Rng::with_seed(seed), List::default());
            let mut scheduler = by_name(name, WORKERS).unwrap();
            for number in 0..400 {
                let context = format!("{name}, seed {seed}, step {number}");
                step(name, &mut *scheduler, &mut list, &mut rng, number, &context);
            }
        }
    }
}

#[test]
fn a_name_stands_for_one_scheduler() {
    let maker: SchedulerMaker = Arc::new(|workers| match workers {
        0..=8 => Ok(Box::new(IntraInOrder::default())),
        _ => Err(format!("not for {workers} workers")),
    });
    assert_eq!(register("", maker.clone()).unwrap_err(), "a scheduler needs a name");
    assert_eq!(register("inter-static", maker.clone()).unwrap_err(), "there is a scheduler \"inter-static\"");
    assert_eq!(register("of a test", maker.clone()), Ok(()));
    assert_eq!(register("of a test", maker).unwrap_err(), "there is a scheduler \"of a test\"");
    assert!(names().starts_with(&SCHEDULERS.map(str::to_owned)) && names().contains(&"of a test".to_owned()));
    assert!(by_name("of a test", 8).is_ok_and(|made| made.splits()));
    let says = "the scheduler \"of a test\" could not be made: not for 9 workers";
    assert_eq!(by_name("of a test", 9).unwrap_err(), says);
    let unknown = by_name("none", 1).unwrap_err();
    assert!(
        unknown.starts_with("there is no scheduler \"none\"; there are inter-static, inter-dynamic, "),
        "{unknown}"
    );
}
