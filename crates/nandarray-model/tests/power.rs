//! Promise: a modelled device that loses power at any event recovers as the store does: every command is whole or
//! absent, in order, and nothing is lost that a flush has reported as durable.

use std::sync::Arc;

use nandarray::{BufferMut, Device, Mode, NewSpace, Options, Source, SpaceId, Target, command};
use nandarray_model::describe::{self, Description};
use nandarray_model::store::{self, Backing, WriteLog};
use parking_lot::Mutex;

const SIDE: u64 = 48;

fn device(early: &str) -> Description {
    let small = [
        ("geometry.blocks", "40"),
        ("ftl.over_provisioning", "40 %"),
        ("ftl.gc_urgent_blocks", "1"),
        ("ftl.early_completion", early),
        ("ftl.write_cache", "1 MiB"),
    ];
    describe::preset_with("tiny", &small).unwrap()
}

fn all(strides: &[isize; 2]) -> Target<'_> {
    Target::Box { start: &[0, 0], step: &[1, 1], count: &[SIDE, SIDE], strides, view: None }
}

fn contents(store: &Device, space: SpaceId) -> Vec<u32> {
    let mut to = vec![0u32; (SIDE * SIDE) as usize];
    // SAFETY: the target reaches exactly the elements of `to`.
    let out = unsafe { BufferMut::from_raw(to.as_mut_ptr().cast()) };
    store.execute(command::Read { space, target: all(&[SIDE as isize * 4, 4]), out }).unwrap();
    to
}

/// Results of a run: the array's content after each command that changes it, the index of the last flushed one, the
/// medium that survives the power failure, the number of events.
struct Run {
    states: Vec<Vec<u32>>,
    flushed: usize,
    survives: Option<nandarray::SparseMedia>,
    events: u64,
}

/// Runs the workload; the power fails after `fail_after` events.
fn run(description: &Description, seed: u64, fail_after: u64) -> Run {
    let writes = Arc::new(Mutex::new(WriteLog::default()));
    let options = Options { seed, ..Options::default() };
    let (store, clock) =
        store::open_logged(&Backing::Memory, Mode::Append, &options, description, None, Some(writes.clone())).unwrap();
    let new = NewSpace {
        name: "a",
        shape: &[SIDE, SIDE],
        item_bytes: 4,
        dtype: "<u4",
        block: Some(&[16, 16]),
        compression: None,
        key: None,
        fill: None,
        attrs: "{}",
    };
    let space = store.execute(command::Create(new)).unwrap().id;
    store.execute(command::Flush).unwrap();
    clock.machine(|m| m.fail_power_after(fail_after));
    // Programs that were logged before this moment have ended.
    let before = writes.lock().len();
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut now = vec![0u32; (SIDE * SIDE) as usize];
    let mut run = Run { states: vec![now.clone()], flushed: 0, survives: None, events: 0 };
    for round in 1..40u32 {
        if chance.u8(0..5) == 0 {
            store.execute(command::Flush).unwrap();
            let seen = clock.machine(|m| m.power_failed().is_none());
            if seen {
                run.flushed = run.states.len() - 1;
            }
        } else {
            let (y, x) = (chance.u64(0..40), chance.u64(0..40));
            let (h, w) = (chance.u64(1..=SIDE - y), chance.u64(1..=SIDE - x));
            let from = vec![round; (h * w) as usize];
            let (start, count, strides) = ([y, x], [h, w], [w as isize * 4, 4]);
            let target = Target::Box { start: &start, step: &[1, 1], count: &count, strides: &strides, view: None };
            // SAFETY: the target reaches exactly the elements of `from`.
            let source = unsafe { Source::from_raw(from.as_ptr().cast()) };
            store.execute(command::Write { space, target, source }).unwrap();
            for i in y..y + h {
                now[(i * SIDE + x) as usize..(i * SIDE + x + w) as usize].fill(round);
            }
            run.states.push(now.clone());
        }
        if run.survives.is_none() {
            // The command during which the power failed had already issued all its writes.
            let programmed = clock.machine(|m| m.power_failed().cloned());
            if let Some(programmed) = programmed {
                let issued = writes.lock().len();
                let page = description.geometry.page_bytes as usize;
                let medium = writes.lock().survives(before, issued, &programmed.ended, page).unwrap();
                run.survives = Some(medium);
                return run;
            }
        }
    }
    run.events = clock.machine(|m| m.events());
    run
}

#[test]
fn power_lost_at_any_event_leaves_a_prefix() {
    for early in ["false", "true"] {
        let d = device(early);
        let (mut looked, mut between) = (0, 0);
        for seed in 0..3 {
            let total = run(&d, seed, u64::MAX).events;
            assert!(total > 1_000, "{total} events");
            let step = (total / 120).max(1);
            for fail_after in (1..total).step_by(step as usize) {
                let lost = run(&d, seed, fail_after);
                let Some(medium) = lost.survives else { continue };
                let options = Options { seed, entropy: 1 + fail_after, ..Options::default() };
                let at = format!("seed {seed}, early completion {early}, power lost after {fail_after} events");
                let again = Device::open(Arc::new(medium), "what survives", Mode::ReadWrite, &options)
                    .unwrap_or_else(|e| panic!("{at}: {e}"));
                let report = again.execute(command::Check { repair: false, accept_older: false }).unwrap();
                assert!(report.ok(), "{at}: {:?}", report.findings);
                let space = again.execute(command::Open { name: "a", key: None }).unwrap().id;
                let found = contents(&again, space);
                let flushed = lost.flushed;
                let which = lost.states.iter().rposition(|s| *s == found);
                assert!(which.is_some_and(|i| i >= flushed), "{at}: state {which:?}, flushed was {flushed}");
                again.close().unwrap();
                looked += 1;
                between += u32::from(which < Some(lost.states.len() - 1));
            }
        }
        // Some of the tried moments lost data; otherwise nothing was tested.
        assert!(looked >= 100 && between >= 10, "{looked} moments, something lost at {between}");
    }
}
