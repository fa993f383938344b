//! Promise: in every interleaving of owners that request ranges, wait until the ranges are granted and release them,
//! overlapping ranges are never held together unless both are read, overlapping requests are granted in the order of
//! their arrival, and every owner ends.
//!
//! All interleavings of the lock's operations are run, as a model checker does; operations are atomic, since a mutex is
//! around the table wherever threads share it.

use nandarray::{RangeTable, Share, SharedRange};

/// The ranges of each of three owners, as (space, first element, last element, whether the owner writes).
const CASES: [&[&[(u64, u64, u64, bool)]]; 5] = [
    // Readers and a writer of one range.
    &[&[(0, 0, 9, false)], &[(0, 5, 9, true)], &[(0, 0, 5, false)]],
    // Three writers: the range of the second overlaps those of the other two.
    &[&[(0, 0, 5, true)], &[(0, 5, 10, true)], &[(0, 10, 15, true)]],
    // Owners that request ranges of two spaces, in opposite orders: they do not deadlock.
    &[&[(0, 0, 9, true), (1, 0, 9, true)], &[(1, 0, 9, true), (0, 0, 9, true)], &[(0, 3, 4, false), (1, 3, 4, false)]],
    // One owner reads and writes the same range.
    &[&[(0, 0, 9, false), (0, 4, 6, true)], &[(0, 6, 7, false)], &[(0, 0, 3, true)]],
    // No ranges overlap.
    &[&[(0, 0, 1, true)], &[(0, 2, 3, true)], &[(1, 0, 1, true)]],
];

/// The next operation of an owner: request its ranges, wait until they are granted, release them, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerStep {
    Request,
    Wait(u64),
    Release(u64),
    Done,
}

fn ranges(case: &[&[(u64, u64, u64, bool)]], owner: usize) -> Vec<SharedRange> {
    let range = |&(space, first, last, writes): &(u64, u64, u64, bool)| {
        let share = if writes { Share::Exclusive } else { Share::Shared };
        SharedRange { space, first, last, share }
    };
    case[owner].iter().map(range).collect()
}

fn meet(one: &[SharedRange], other: &[SharedRange]) -> bool {
    let meets = |a: &SharedRange, b: &SharedRange| {
        let reads = a.share == Share::Shared && b.share == Share::Shared;
        a.space == b.space && a.first <= b.last && b.first <= a.last && !reads
    };
    one.iter().any(|a| other.iter().any(|b| meets(a, b)))
}

/// Runs the operations of owners in the order of `schedule`, and checks the order of grants; returns the next operation
/// of each owner.
fn replay(case: &[&[(u64, u64, u64, bool)]], schedule: &[usize]) -> Vec<OwnerStep> {
    let mut table = RangeTable::default();
    let mut steps = vec![OwnerStep::Request; case.len()];
    let mut arrived: Vec<usize> = Vec::new();
    for &owner in schedule {
        steps[owner] = match steps[owner] {
            OwnerStep::Request => {
                arrived.push(owner);
                OwnerStep::Wait(table.request(owner as u64, &ranges(case, owner)).expect("an owner requests once"))
            }
            OwnerStep::Wait(number) => {
                for before in arrived.iter().take_while(|o| **o != owner) {
                    let clash = meet(&ranges(case, *before), &ranges(case, owner));
                    let over = steps[*before] == OwnerStep::Done;
                    assert!(over || !clash, "{owner} is granted before {before}: {schedule:?}");
                }
                OwnerStep::Release(number)
            }
            OwnerStep::Release(number) => {
                table.release(number);
                OwnerStep::Done
            }
            OwnerStep::Done => unreachable!("an owner that is done has no step"),
        };
    }
    // Mark waits for ranges that are not granted: their owners cannot take a step.
    for step in &mut steps {
        if let OwnerStep::Wait(number) = *step {
            if !table.is_granted(number) {
                *step = OwnerStep::Wait(u64::MAX);
            }
        }
    }
    if steps.iter().all(|step| *step == OwnerStep::Done) {
        assert!(table.is_empty(), "{schedule:?}");
    }
    steps
}

fn explore(case: &[&[(u64, u64, u64, bool)]], schedule: &mut Vec<usize>, ends: &mut u64) {
    let steps = replay(case, schedule);
    let ready: Vec<usize> = (0..steps.len())
        .filter(|owner| !matches!(steps[*owner], OwnerStep::Done | OwnerStep::Wait(u64::MAX)))
        .collect();
    if ready.is_empty() {
        assert!(steps.iter().all(|step| *step == OwnerStep::Done), "owners wait for ever: {schedule:?} {steps:?}");
        *ends += 1;
        return;
    }
    for owner in ready {
        schedule.push(owner);
        explore(case, schedule, ends);
        schedule.pop();
    }
}

#[test]
fn every_interleaving_keeps_the_rules() {
    for case in CASES {
        let mut ends = 0;
        explore(case, &mut Vec::new(), &mut ends);
        assert!(ends >= 6, "{ends} interleavings of {case:?}");
    }
}
