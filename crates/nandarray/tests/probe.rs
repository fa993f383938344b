//! Promise: a probe learns of every building block that a command moves, and of the purpose for which pages move.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nandarray::probe::{Probe, Purpose};
use nandarray::{BufferMut, Device, Geometry, Mode, NewSpace, Options, Source, SparseMedia, Target, command};

#[derive(Debug, Default)]
struct Seen {
    calls: AtomicU64,
    runs: AtomicU64,
    bytes: AtomicU64,
    reclaims: AtomicU64,
    freed: AtomicU64,
}

impl Probe for Seen {
    fn moved(&self, runs: u64, bytes: u64) {
        self.calls.fetch_add(1, Relaxed);
        self.runs.fetch_add(runs, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn freed(&self, _segment: u32) {
        self.freed.fetch_add(1, Relaxed);
    }

    fn purpose(&self, purpose: Purpose) -> Purpose {
        self.reclaims.fetch_add(u64::from(purpose == Purpose::Reclaim), Relaxed);
        Purpose::Command
    }
}

#[test]
fn blocks_runs_and_bytes_are_told() {
    let seen = Arc::new(Seen::default());
    let options = Options {
        geometry: Geometry::TINY,
        capacity_bytes: Some(512 << 10),
        threads: Some(1),
        probe: Some(seen.clone()),
        ..Options::default()
    };
    let store = Device::open(Arc::new(SparseMedia::default()), "memory", Mode::Append, &options).unwrap();
    let new = NewSpace {
        name: "a",
        shape: &[64, 64],
        item_bytes: 4,
        dtype: "<u4",
        block: Some(&[32, 16]),
        compression: None,
        key: None,
        fill: None,
        attrs: "{}",
    };
    let space = store.execute(command::Create(new)).unwrap().id;
    let mut all = vec![7u32; 64 * 64];
    let told = || (seen.calls.swap(0, Relaxed), seen.runs.swap(0, Relaxed), seen.bytes.swap(0, Relaxed));

    let whole = Target::Box { start: &[0, 0], step: &[1, 1], count: &[64, 64], strides: &[256, 4], view: None };
    // SAFETY: the target reaches 64 x 64 elements of 4 bytes from the buffer's start.
    let source = unsafe { Source::from_raw(all.as_ptr().cast()) };
    store.execute(command::Write { space, target: whole.clone(), source }).unwrap();
    // Eight blocks of 32 rows of 16 elements.
    assert_eq!(told(), (8, 8 * 32, 64 * 64 * 4));

    let row = Target::Box { start: &[3, 0], step: &[1, 1], count: &[1, 64], strides: &[256, 4], view: None };
    // SAFETY: as above.
    let out = unsafe { BufferMut::from_raw(all.as_mut_ptr().cast()) };
    store.execute(command::Read { space, target: row, out }).unwrap();
    assert_eq!(told(), (4, 4, 64 * 4));

    assert_eq!(seen.reclaims.load(Relaxed), 0);
    // Every other block column anew, until segments are half dead and room is short.
    let half = Target::Box { start: &[0, 0], step: &[1, 1], count: &[64, 16], strides: &[256, 4], view: None };
    for round in 0..200 {
        all.fill(round);
        // SAFETY: as above.
        let source = unsafe { Source::from_raw(all.as_ptr().cast()) };
        store.execute(command::Write { space, target: half.clone(), source }).unwrap();
    }
    store.execute(command::Compact).unwrap();
    assert!(seen.reclaims.load(Relaxed) > 0);
    assert!(seen.freed.load(Relaxed) > 0);
    store.close().unwrap();
}
