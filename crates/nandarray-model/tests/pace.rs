//! Promise: on a paced device a command's modelled latency begins when the command arrived, not when a thread began it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nandarray::{BufferMut, Mode, NewSpace, Options, Source, Target, command};
use nandarray_model::describe;
use nandarray_model::store::{self, Backing, WallTime};

/// A clock of its own: each look at it takes 20 us. Commands arrived `ago` before they begin.
#[derive(Debug)]
struct CountedTime {
    ns: Arc<AtomicU64>,
    ago: Duration,
}

impl WallTime for CountedTime {
    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.ns.fetch_add(20_000, Ordering::Relaxed))
    }

    fn arrived(&self) -> Duration {
        self.elapsed().saturating_sub(self.ago)
    }
}

/// Returns the time by which the completion of one read was behind.
fn behind_s(ago: Duration) -> f64 {
    let description = describe::preset_with("tiny", &[]).unwrap();
    let (device, clock) = store::open(&Backing::Memory, Mode::Append, &Options::default(), &description, None).unwrap();
    let new = NewSpace {
        name: "a",
        shape: &[1024],
        item_bytes: 4,
        dtype: "<u4",
        block: Some(&[1024]),
        compression: None,
        key: None,
        fill: None,
        attrs: "{}",
    };
    let space = device.execute(command::Create(new)).unwrap().id;
    let all = || Target::Box { start: &[0], step: &[1], count: &[1024], strides: &[4], view: None };
    let mut buffer = vec![7u32; 1024];
    // SAFETY: the target reaches exactly the elements of the buffer.
    let source = unsafe { Source::from_raw(buffer.as_ptr().cast()) };
    device.execute(command::Write { space, target: all(), source }).unwrap();
    device.execute(command::Flush).unwrap();
    let ns = Arc::new(AtomicU64::new(0));
    clock.pace(Box::new(CountedTime { ns: ns.clone(), ago })).unwrap();
    ns.store(1_000_000_000, Ordering::Relaxed);
    // SAFETY: as above.
    let out = unsafe { BufferMut::from_raw(buffer.as_mut_ptr().cast()) };
    device.execute(command::Read { space, target: all(), out }).unwrap();
    let report = clock.pace_report().unwrap();
    assert_eq!(report.completions, 1);
    report.behind_mean_s
}

#[test]
fn latency_begins_at_arrival() {
    let (now, earlier) = (behind_s(Duration::ZERO), behind_s(Duration::from_millis(500)));
    assert!(now < 0.01, "behind by {now} s");
    assert!((0.4..=0.51).contains(&earlier), "behind by {earlier} s of a read that arrived 0.5 s before");
}
