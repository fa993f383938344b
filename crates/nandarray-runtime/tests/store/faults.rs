//! Runs whose medium fails at any write, whose disk is full at any size, whose input is damaged, and that are cancelled
//! at any step: their outputs are whole or absent, and the store goes on.

use nandarray::FaultMedia;

use super::support::Stopping;
use super::*;

fn is_old(values: &[u64]) -> bool {
    values.iter().all(|value| *value == 1)
}

/// Opens what is left on a medium; returns the content of the space that the run writes to.
fn after(bytes: Vec<u8>) -> Vec<u64> {
    let media = Arc::new(MemoryMedia::with_bytes(bytes));
    let device = Device::open(media, "memory", Mode::ReadWrite, &options(None)).unwrap();
    let to = device.describe("to").unwrap().id;
    content(&device, to)
}

#[test]
fn a_run_that_is_cut_off_at_any_write_is_whole_or_absent() {
    let (mut seen_old, mut seen_new) = (0, 0);
    for number in 0.. {
        let at = if number < 12 { number + 1 } else { 12 + 9 * (number - 11) };
        let media = Arc::new(FaultMedia::default());
        let store = Store { at_end: number % 2 == 1, ..Store::on(media.clone(), Some(0)) };
        store.runtime.device().execute(command::Flush).unwrap();
        media.crash_at_write(at);
        let done = store.copy(&Threads(1), u64::MAX);
        let flushed = store.runtime.device().execute(command::Flush);
        let (is_over, succeeded) = (!media.crashed(), done.is_ok() && flushed.is_ok());
        assert!(succeeded || !is_over, "write {at}: {:?}, {flushed:?}", done.err());
        for seed in 0..3 {
            let found = after(media.after_crash(seed));
            let whole = found == store.values;
            assert!(whole || is_old(&found), "write {at}, seed {seed}: a part of the output");
            assert!(whole || !succeeded, "write {at}, seed {seed}: the output is lost");
            (seen_old, seen_new) = (seen_old + u32::from(!whole), seen_new + u32::from(whole));
        }
        if is_over {
            break;
        }
    }
    assert!(seen_old > 20 && seen_new >= 3, "{seen_old} crashes before the end, {seen_new} behind it");
}

#[test]
fn a_full_disk_fails_the_run_and_leaves_room_for_others() {
    let media = Arc::new(FaultMedia::default());
    let store = Store::on(media.clone(), Some(0));
    store.runtime.device().execute(command::Flush).unwrap();
    let bytes = media.after_kill().len() as u64;
    let mut failures = 0;
    for more in (0..).step_by(4096) {
        media.limit(Some(bytes + more));
        let done = store.copy(&Threads(2), u64::MAX);
        media.limit(None);
        match done {
            Ok(_) => break,
            Err(Error::Engine(error)) => assert_eq!(error.kind(), "full", "{more} bytes more: {error}"),
            Err(other) => panic!("{more} bytes more: {other}"),
        }
        failures += 1;
        assert!(is_old(&content(store.runtime.device(), store.to)), "{more} bytes more");
        store.is_sound();
    }
    assert!(failures > 0, "a run writes more than nothing");
    assert_eq!(content(store.runtime.device(), store.to), store.values);
    store.is_sound();
}

#[test]
fn a_damaged_input_is_named_and_changes_no_output() {
    let media = Arc::new(MemoryMedia::with_bytes(vec![]));
    let store = Store::on(media.clone(), None);
    store.runtime.device().close().unwrap();
    let right = media.to_bytes();
    for element in [1, 2, 777, ITEMS as usize - 1] {
        let mut bytes = right.clone();
        // Two successive values stand in no other place.
        let wanted: Vec<u8> = store.values[element - 1..=element].iter().flat_map(|v| v.to_le_bytes()).collect();
        let at = bytes.windows(16).position(|w| *w == wanted).expect("the element's page");
        bytes[at + 14] ^= 0x20;
        let device = Device::open(Arc::new(MemoryMedia::with_bytes(bytes)), "memory", Mode::ReadWrite, &options(None));
        let runtime = Runtime::new(Arc::new(device.unwrap()));
        let damaged = Store { runtime, from: store.from, to: store.to, values: store.values.clone(), at_end: false };
        for threads in [1, 3] {
            let error = damaged.copy(&Threads(threads), u64::MAX).unwrap_err();
            assert!(matches!(&error, Error::Engine(own) if own.kind() == "checksum"), "element {element}: {error}");
            assert!(is_old(&content(damaged.runtime.device(), damaged.to)), "element {element}");
        }
    }
}

#[test]
fn a_run_that_is_cancelled_at_any_step_writes_nothing() {
    let store = Store::new();
    let device = store.runtime.device();
    let progress = Progress::default();
    let counting = Stopping::new(None, &progress);
    store.copy_seen(&counting, u64::MAX, &progress).unwrap();
    let steps = counting.steps.into_inner();
    assert_eq!(content(device, store.to), store.values);
    assert!(steps > 200, "{steps} steps");
    let old = vec![1; ITEMS as usize];
    let mut cancelled = 0;
    for after in (0..steps + 5).filter(|step| step.is_multiple_of(13) || step + 10 > steps) {
        fill(device, store.to, &old);
        let progress = Progress::default();
        let done = store.copy_seen(&Stopping::new(Some(after), &progress), u64::MAX, &progress);
        match done {
            Ok(_) => assert_eq!(content(device, store.to), store.values, "step {after} of {steps}"),
            Err(Error::Execution(failed)) => {
                assert!(matches!(failed.error, RunError::Cancelled(_)), "step {after} of {steps}: {failed}");
                assert!(is_old(&content(device, store.to)), "step {after} of {steps}");
                cancelled += 1;
            }
            Err(other) => panic!("step {after} of {steps}: {other}"),
        }
    }
    assert!(cancelled > 15, "{cancelled} runs were cancelled");
    store.is_sound();
}
