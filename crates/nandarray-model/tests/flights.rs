//! Promise: many commands can be in flight on a modelled device. They see each other's effects in the order of their
//! submission, and take the time that this number in flight takes; equal histories give equal traces, and a power
//! failure loses nothing that a flush promised.

use std::sync::Arc;

use nandarray::nvme::{Blocks, Controller, DataBuffer, NewNamespace, Status};
use nandarray::probe::FlightId;
use nandarray::{
    BufferMut, Device, Error, Mode, NewSpace, Options, OwnedCommand, OwnedTarget, Result, Source, SpaceId, Target,
    command,
};
use nandarray_model::Ps;
use nandarray_model::describe::{self, Description};
use nandarray_model::store::{self, Backing, Clock, IN_FLIGHT_MAX, WriteLog};
use parking_lot::Mutex;

type Slot = Arc<Mutex<Option<Result<()>>>>;

struct Modelled {
    device: Arc<Device>,
    clock: Arc<Clock>,
    /// Numbers of commands in the order of their delivery.
    order: Arc<Mutex<Vec<u64>>>,
}

/// A command in flight, its result and its buffer.
struct Flown {
    id: Option<FlightId>,
    slot: Slot,
    buffer: Box<[u32]>,
}

impl Flown {
    fn is_done(&self) -> bool {
        self.slot.lock().is_some()
    }

    fn error(&self) -> Error {
        self.slot.lock().take().expect("delivered").unwrap_err()
    }
}

fn device(overrides: &[(&str, &str)]) -> Description {
    describe::preset_with("mqsim-ideal", overrides).unwrap()
}

fn boxed(start: &[u64], count: &[u64]) -> OwnedTarget {
    let mut strides = vec![4; count.len()];
    for i in (0..count.len() - 1).rev() {
        strides[i] = strides[i + 1] * count[i + 1] as isize;
    }
    OwnedTarget::Box { start: start.to_vec(), step: vec![1; start.len()], count: count.to_vec(), strides, view: None }
}

impl Modelled {
    fn open(description: &Description) -> Self {
        let options = Options::default();
        let (device, clock) = store::open(&Backing::Memory, Mode::Append, &options, description, None).unwrap();
        Self { device: Arc::new(device), clock, order: Arc::default() }
    }

    fn create(&self, name: &str, shape: &[u64], block: &[u64]) -> SpaceId {
        let new = NewSpace {
            name,
            shape,
            item_bytes: 4,
            dtype: "<u4",
            block: Some(block),
            compression: None,
            key: None,
            fill: None,
            attrs: "{}",
        };
        self.device.execute(command::Create(new)).unwrap().id
    }

    fn give(&self, number: u64, command: OwnedCommand, buffer: Box<[u32]>) -> Flown {
        let slot = Slot::default();
        let (to, order) = (slot.clone(), self.order.clone());
        let done = Box::new(move |result| {
            order.lock().push(number);
            *to.lock() = Some(result);
        });
        Flown { id: self.device.submit(command, done), slot, buffer }
    }

    fn read(&self, number: u64, space: SpaceId, start: &[u64], count: &[u64]) -> Flown {
        let mut buffer = vec![u32::MAX; count.iter().product::<u64>() as usize].into_boxed_slice();
        // SAFETY: the target reaches exactly the buffer's elements, and the buffer is kept with the flight.
        let out = unsafe { BufferMut::from_raw(buffer.as_mut_ptr().cast()) };
        self.give(number, OwnedCommand::Read { space, target: boxed(start, count), out }, buffer)
    }

    fn write(&self, number: u64, space: SpaceId, start: &[u64], count: &[u64], value: u32) -> Flown {
        let buffer = vec![value; count.iter().product::<u64>() as usize].into_boxed_slice();
        // SAFETY: as above.
        let source = unsafe { Source::from_raw(buffer.as_ptr().cast()) };
        self.give(number, OwnedCommand::Write { space, target: boxed(start, count), source }, buffer)
    }

    /// Lets modelled time pass until all commands in flight have ended.
    fn drain(&self) {
        while self.device.drive(None).unwrap() {}
    }

    fn delivered(&self) -> Vec<u64> {
        std::mem::take(&mut *self.order.lock())
    }
}

/// Creates a space of 1,024 rows, each one page.
fn rows(store: &Modelled) -> SpaceId {
    let a = store.create("a", &[1024, 2048], &[1, 2048]);
    let all = store.write(0, a, &[0, 0], &[1024, 2048], 7);
    store.drain();
    assert!(all.is_done());
    store.delivered();
    a
}

#[test]
fn a_read_sees_writes_before_it_and_none_behind_it() {
    let store = Modelled::open(&device(&[]));
    let a = rows(&store);
    let before = store.read(1, a, &[3, 0], &[1, 2048]);
    let write = store.write(2, a, &[3, 5], &[1, 100], 9);
    let behind = store.read(3, a, &[3, 0], &[1, 2048]);
    let apart = store.read(4, a, &[4, 0], &[1, 2048]);
    assert!(![&before, &write, &behind, &apart].iter().any(|f| f.is_done()), "no time has passed");
    assert!(before.buffer.iter().all(|&v| v == u32::MAX), "no byte has moved");
    store.drain();
    assert!(before.buffer.iter().all(|&v| v == 7));
    assert!(behind.buffer[5..105].iter().all(|&v| v == 9) && behind.buffer[105..].iter().all(|&v| v == 7));
    assert!(apart.buffer.iter().all(|&v| v == 7));
    let order = store.delivered();
    let at = |n| order.iter().position(|&o| o == n).unwrap();
    assert!(at(1) < at(2) && at(2) < at(3), "{order:?}");
    assert!(at(4) < at(2), "a command on other blocks does not wait: {order:?}");
    store.device.close().unwrap();
}

#[test]
fn flush_resize_and_delete_have_their_places_in_the_order() {
    let store = Modelled::open(&device(&[]));
    let a = rows(&store);
    let write = store.write(1, a, &[0, 0], &[1, 2048], 8);
    let flush = store.give(2, OwnedCommand::Flush, Box::default());
    let beside = store.read(3, a, &[9, 0], &[1, 2048]);
    let cut = store.give(4, OwnedCommand::Resize { space: a, shape: vec![512, 2048] }, Box::default());
    let outside = store.read(5, a, &[600, 0], &[1, 2048]);
    let inside = store.read(6, a, &[0, 0], &[1, 2048]);
    let delete = store.give(7, OwnedCommand::Delete { name: "a".to_owned() }, Box::default());
    let gone = store.read(8, a, &[0, 0], &[1, 2048]);
    store.drain();
    let order = store.delivered();
    let at = |n| order.iter().position(|&o| o == n).unwrap();
    assert!(at(1) < at(2), "a flush is behind the writes before it: {order:?}");
    assert!(at(3) < at(2), "and lets pass what comes after it: {order:?}");
    assert!((1..=3).all(|n| at(n) < at(4)) && at(4) < at(6) && at(6) < at(7) && at(7) < at(8), "{order:?}");
    assert!([&write, &flush, &beside, &cut, &inside, &delete].iter().all(|f| matches!(*f.slot.lock(), Some(Ok(_)))));
    assert!(matches!(outside.error(), Error::OutOfRange { size: 512, .. }));
    assert!(matches!(gone.error(), Error::Closed(_)));
    assert!(inside.buffer.iter().all(|&v| v == 8) && beside.buffer.iter().all(|&v| v == 7));
    store.device.close().unwrap();
}

/// Returns the modelled time of 512 page reads with `depth` in flight: as commands in flight, and as a batch.
fn times(depth: usize) -> (Ps, Ps) {
    let place = |i: u64| i * 37 % 1024;
    let store = Modelled::open(&device(&[]));
    let a = rows(&store);
    let began = store.clock.now();
    let mut waiting = std::collections::VecDeque::new();
    for i in 0..512 {
        waiting.push_back(store.read(i, a, &[place(i), 0], &[1, 2048]));
        if waiting.len() == depth {
            assert!(store.device.drive(None).unwrap());
            waiting.retain(|f| !f.is_done());
        }
    }
    store.drain();
    let flights = store.clock.now() - began;
    store.device.close().unwrap();

    let store = Modelled::open(&device(&[]));
    let a = rows(&store);
    let began = store.clock.now();
    store.clock.batch();
    for i in 0..512 {
        let one = store.read(i, a, &[place(i), 0], &[1, 2048]);
        assert!(one.is_done() && one.buffer[0] == 7, "in a batch values are there at once");
    }
    store.clock.end_batch(depth);
    (flights, store.clock.now() - began)
}

#[test]
fn so_many_in_flight_take_what_a_batch_takes() {
    for depth in [1, 32, 256] {
        let (flights, batch) = times(depth);
        let ratio = flights.us() / batch.us();
        assert!((ratio - 1.0).abs() < 0.01, "depth {depth}: {flights} in flight, {batch} in a batch");
    }
    // One in flight takes the time of one page (102.4 us). With many in flight the link is the bottleneck: 4 B/ns, and
    // 28 B for each 128 B.
    let one = times(1).0.us() / 512.0;
    assert!((one / 102.4 - 1.0).abs() < 0.01, "{one} us");
}

#[test]
fn one_history_gives_one_trace() {
    let run = |pauses: bool| {
        let store = Modelled::open(&device(&[]));
        let a = rows(&store);
        let mut chance = fastrand::Rng::with_seed(11);
        let mut flown = vec![];
        for i in 0..400 {
            if pauses && i % 50 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            let at = chance.u64(0..64);
            flown.push(match chance.u8(0..4) {
                0 => store.write(i, a, &[at, 0], &[3, 1000], i as u32),
                1 if i % 16 == 1 => store.give(i, OwnedCommand::Flush, Box::default()),
                _ => store.read(i, a, &[at, 100], &[2, 500]),
            });
            if chance.u8(0..3) == 0 {
                store.device.drive(None).unwrap();
            }
        }
        store.drain();
        assert!(flown.iter().all(|f| matches!(*f.slot.lock(), Some(Ok(_)))));
        store.device.close().unwrap();
        store.clock.settle();
        (store.clock.machine(|m| m.hash()), store.clock.now(), store.delivered())
    };
    assert_eq!(run(false), run(true));
}

/// Every read returns what it would if the commands were executed one by one, in order of submission; the seed is
/// printed on failure.
#[test]
fn commands_in_flight_give_what_one_after_the_other_gives() {
    for seed in 0..8 {
        let store = Modelled::open(&device(&[]));
        let mut chance = fastrand::Rng::with_seed(seed);
        let a = store.create("a", &[96, 96], &[16, 16]);
        let mut model = vec![0u32; 96 * 96];
        let mut expected = vec![];
        for i in 0..300u32 {
            let (y, x) = (chance.u64(0..90), chance.u64(0..90));
            let (h, w) = (chance.u64(1..=(96 - y).min(30)), chance.u64(1..=(96 - x).min(30)));
            let rows = (y..y + h).map(|r| (r * 96 + x) as usize..(r * 96 + x + w) as usize);
            if chance.bool() {
                expected.push((store.write(i.into(), a, &[y, x], &[h, w], i), None));
                rows.for_each(|row| model[row].fill(i));
            } else {
                let want: Vec<u32> = rows.flat_map(|row| model[row].to_vec()).collect();
                expected.push((store.read(i.into(), a, &[y, x], &[h, w]), Some(want)));
            }
            if chance.u8(0..4) == 0 {
                store.device.drive(None).unwrap();
            }
        }
        store.drain();
        for (i, (flown, want)) in expected.iter().enumerate() {
            assert!(matches!(*flown.slot.lock(), Some(Ok(_))), "seed {seed}, command {i}");
            assert!(want.as_ref().is_none_or(|want| **want == *flown.buffer), "seed {seed}, read {i}");
        }
        store.device.close().unwrap();
    }
}

#[test]
fn what_ends_may_give_more() {
    let store = Modelled::open(&device(&[]));
    let a = rows(&store);
    let store = Arc::new(store);
    let kept: Arc<Mutex<Vec<Flown>>> = Arc::default();
    // A chain of reads, each of which is submitted by the completion of the previous one.
    fn next(store: &Arc<Modelled>, kept: &Arc<Mutex<Vec<Flown>>>, a: SpaceId, left: u64) {
        if left == 0 {
            return;
        }
        let mut buffer = vec![0u32; 2048].into_boxed_slice();
        // SAFETY: the target reaches exactly the buffer's elements, and the buffer is kept.
        let out = unsafe { BufferMut::from_raw(buffer.as_mut_ptr().cast()) };
        let command = OwnedCommand::Read { space: a, target: boxed(&[left, 0], &[1, 2048]), out };
        kept.lock().push(Flown { id: None, slot: Slot::default(), buffer });
        let (own, all) = (store.clone(), kept.clone());
        store.device.submit(
            command,
            Box::new(move |done| {
                done.unwrap();
                next(&own, &all, a, left - 1);
            }),
        );
    }
    let began = store.clock.now();
    next(&store, &kept, a, 10);
    store.drain();
    let took = (store.clock.now() - began).us();
    assert_eq!(kept.lock().len(), 10);
    assert!(kept.lock().iter().all(|f| f.buffer.iter().all(|&v| v == 7)));
    assert!((took / 1024.0 - 1.0).abs() < 0.01, "ten reads of 102.4 us one behind the other took {took} us");
    store.device.close().unwrap();
}

#[test]
fn a_command_that_has_not_begun_can_be_cancelled() {
    let store = Modelled::open(&device(&[]));
    let a = rows(&store);
    let write = store.write(1, a, &[0, 0], &[1, 2048], 8);
    let waits = store.write(2, a, &[0, 0], &[1, 2048], 9);
    let behind = store.read(3, a, &[0, 0], &[1, 2048]);
    assert!(!store.device.cancel(write.id.unwrap()), "it has begun");
    assert!(store.device.cancel(waits.id.unwrap()));
    assert!(matches!(waits.error(), Error::Cancelled));
    assert!(!store.device.cancel(waits.id.unwrap()), "it is over");
    store.drain();
    assert!(behind.buffer.iter().all(|&v| v == 8), "its blocks were released, and it did nothing");
    store.device.close().unwrap();
}

#[test]
fn too_many_commands_are_refused_and_the_others_go_on() {
    let store = Modelled::open(&device(&[]));
    let a = store.create("a", &[2048], &[2048]);
    let flown: Vec<Flown> = (0..IN_FLIGHT_MAX as u64 + 1).map(|i| store.read(i, a, &[0], &[1])).collect();
    assert!(matches!(flown.last().unwrap().error(), Error::Busy(_)));
    store.drain();
    assert!(flown[..IN_FLIGHT_MAX].iter().all(|f| matches!(*f.slot.lock(), Some(Ok(_))) && f.buffer[0] == 0));
    store.device.close().unwrap();
}

#[test]
fn who_would_wait_for_ever_for_a_transaction_is_told_so() {
    let store = Modelled::open(&device(&[]));
    let a = rows(&store);
    let transaction = store.device.execute(command::Begin { spaces: &[(a, &[1024, 2048])] }).unwrap();
    let waits = store.read(1, a, &[0, 0], &[1, 2048]);
    let source = vec![3u32; 2048];
    let (start, count, strides) = ([0, 0], [1, 2048], [8192, 4]);
    let target = Target::Box { start: &start, step: &[1, 1], count: &count, strides: &strides, view: None };
    // SAFETY: the target reaches exactly the elements of `source`.
    let from = || unsafe { Source::from_raw(source.as_ptr().cast()) };
    let write = command::Write { space: a, target: target.clone(), source: from() };
    assert!(matches!(store.device.execute(write), Err(Error::Busy(_))));
    assert!(matches!(store.device.execute(command::Resize { space: a, shape: &[5, 5] }), Err(Error::Busy(_))));
    assert!(matches!(waits.error(), Error::Busy(_)), "the resize waited for it, and it for the transaction");
    let waits = store.read(2, a, &[0, 0], &[1, 2048]);
    assert!(!waits.is_done());
    store.device.execute(command::Flush).unwrap_or_else(|e| panic!("who holds the transaction goes on: {e}"));
    assert!(matches!(waits.error(), Error::Busy(_)));
    let waits = store.read(3, a, &[0, 0], &[1, 2048]);
    store.device.execute(command::StageWrite { transaction, space: a, target, source: from() }).unwrap();
    store.device.execute(command::Apply { transaction, changes: &[] }).unwrap();
    store.drain();
    assert!(waits.buffer.iter().all(|&v| v == 3));
    store.device.close().unwrap();
}

#[test]
fn closing_lets_commands_in_flight_end() {
    let store = Modelled::open(&device(&[]));
    let a = rows(&store);
    let flown: Vec<Flown> = (0..20).map(|i| store.write(i, a, &[i % 5, 0], &[1, 2048], i as u32)).collect();
    store.device.close().unwrap();
    assert!(flown.iter().all(|f| matches!(*f.slot.lock(), Some(Ok(_)))));
    let late = store.read(99, a, &[0, 0], &[1, 1]);
    assert!(matches!(late.error(), Error::Closed(_)));
}

#[test]
fn a_store_without_a_clock_executes_what_is_submitted() {
    let media = Arc::new(nandarray::SparseMedia::default());
    let device = Device::open(media, "memory", Mode::Append, &Options::default()).unwrap();
    let slot = Slot::default();
    let to = slot.clone();
    let id = Arc::new(device).submit(OwnedCommand::Flush, Box::new(move |done| *to.lock() = Some(done)));
    assert!(id.is_none() && matches!(*slot.lock(), Some(Ok(_))));
}

const SIDE: u64 = 48;

/// Runs writes of whole blocks and flushes, eight in flight; the power fails after `fail_after` events. Returns the
/// medium that survives, and for each block its values so far, with how many of them a flush had promised.
fn until_power_fails(seed: u64, fail_after: u64) -> (Option<nandarray::SparseMedia>, Vec<(Vec<u32>, usize)>, u64) {
    let small = [("geometry.blocks", "40"), ("ftl.over_provisioning", "40 %"), ("ftl.gc_urgent_blocks", "1")];
    let description = describe::preset_with("tiny", &small).unwrap();
    let writes = Arc::new(Mutex::new(WriteLog::default()));
    let options = Options { seed, ..Options::default() };
    let (device, clock) =
        store::open_logged(&Backing::Memory, Mode::Append, &options, &description, None, Some(writes.clone())).unwrap();
    let store = Modelled { device: Arc::new(device), clock, order: Arc::default() };
    let a = store.create("a", &[SIDE, SIDE], &[16, 16]);
    store.device.execute(command::Flush).unwrap();
    store.clock.machine(|m| m.fail_power_after(fail_after));
    let before = writes.lock().len();
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut blocks = vec![(vec![0u32], 0); 9];
    let mut flushes: Vec<(Flown, Vec<usize>)> = vec![];
    let mut flown = vec![];
    for round in 1..120u32 {
        if chance.u8(0..6) == 0 {
            let promised = blocks.iter().map(|(values, _)| values.len() - 1).collect();
            flushes.push((store.give(0, OwnedCommand::Flush, Box::default()), promised));
        } else {
            let block = chance.u64(0..9);
            let start = [block / 3 * 16, block % 3 * 16];
            flown.push(store.write(round.into(), a, &start, &[16, 16], round));
            blocks[block as usize].0.push(round);
        }
        while flown.iter().filter(|f| !f.is_done()).count() > 8 {
            store.device.drive(None).unwrap();
            if let Some(programmed) = store.clock.machine(|m| m.power_failed().cloned()) {
                let issued = writes.lock().len();
                let page = description.geometry.page_bytes as usize;
                let medium = writes.lock().survives(before, issued, &programmed.ended, page).unwrap();
                return (Some(medium), blocks, 0);
            }
            for (_, promised) in flushes.extract_if(.., |(flush, _)| flush.is_done()) {
                blocks.iter_mut().zip(promised).for_each(|(block, n)| block.1 = block.1.max(n));
            }
        }
    }
    let events = store.clock.machine(|m| m.events());
    store.drain();
    (None, blocks, events)
}

#[test]
fn power_lost_with_commands_in_flight_loses_nothing_flushed() {
    let (mut looked, mut promises) = (0, 0);
    for seed in 0..4 {
        let total = until_power_fails(seed, u64::MAX).2;
        assert!(total > 1_000, "{total} events");
        for fail_after in (1..total).step_by((total / 100).max(1) as usize) {
            let (Some(medium), blocks, _) = until_power_fails(seed, fail_after) else { continue };
            let at = format!("seed {seed}, power lost after {fail_after} events");
            let options = Options { seed, entropy: 1 + fail_after, ..Options::default() };
            let again = Device::open(Arc::new(medium), "what survives", Mode::ReadWrite, &options)
                .unwrap_or_else(|e| panic!("{at}: {e}"));
            let report = again.execute(command::Check { repair: false, accept_older: false }).unwrap();
            assert!(report.ok(), "{at}: {:?}", report.findings);
            let space = again.execute(command::Open { name: "a", key: None }).unwrap().id;
            for (block, (values, promised)) in blocks.iter().enumerate() {
                let mut found = vec![u32::MAX; 256];
                let start = [block as u64 / 3 * 16, block as u64 % 3 * 16];
                let target = boxed(&start, &[16, 16]);
                // SAFETY: the target reaches exactly the elements of `found`.
                let out = unsafe { BufferMut::from_raw(found.as_mut_ptr().cast()) };
                again.execute(command::Read { space, target: target.borrow(), out }).unwrap();
                let which = values.iter().position(|&v| v == found[0]);
                assert!(found.iter().all(|&v| v == found[0]), "{at}: block {block} is of two writes");
                assert!(
                    which.is_some_and(|i| i >= *promised),
                    "{at}: block {block} has {which:?}, promised {promised}"
                );
                promises += u32::from(*promised > 0);
            }
            again.close().unwrap();
            looked += 1;
        }
    }
    assert!(looked >= 100 && promises >= 100, "{looked} moments, {promises} promises");
}

#[test]
fn nvme_completions_come_later_and_in_any_order() {
    let store = Modelled::open(&device(&[]));
    let controller = Controller::new(&store.device);
    let new = NewNamespace { nsid: 1, nsze: 4096, lba_bytes: 4096, compression: None, key: None };
    controller.create_namespace(&new).unwrap();
    let done: Arc<Mutex<Vec<(u16, Status, Ps)>>> = Arc::default();
    let give = |cid: u16, command: nandarray::nvme::NvmeCommand, lent: DataBuffer<'_>| {
        let (done, clock) = (done.clone(), store.clock.clone());
        // SAFETY: the buffers below outlive the drain at the end.
        unsafe {
            controller.submit_later(&command.encode(cid), lent, move |entry| {
                done.lock().push((entry.cid.get(), entry.status(), clock.now()));
            });
        }
    };
    let data: Vec<Vec<u8>> = (0..64).map(|i| vec![i as u8 + 1; 8192]).collect();
    for (i, data) in data.iter().enumerate() {
        give(
            i as u16,
            nandarray::nvme::NvmeCommand::Write(Blocks::new(1, i as u64 * 40, 2)),
            DataBuffer::to_controller(data),
        );
    }
    let forced = vec![200u8; 4096];
    let fua = Blocks { fua: true, ..Blocks::new(1, 4000, 1) };
    give(100, nandarray::nvme::NvmeCommand::Write(fua), DataBuffer::to_controller(&forced));
    let mut back: Vec<Vec<u8>> = vec![vec![0; 8192]; 64];
    for (i, back) in back.iter_mut().enumerate() {
        give(
            200 + i as u16,
            nandarray::nvme::NvmeCommand::Read(Blocks::new(1, i as u64 * 40, 2)),
            DataBuffer::to_host(back),
        );
    }
    give(300, nandarray::nvme::NvmeCommand::Read(Blocks::new(1, 5000, 1)), DataBuffer::NONE);
    assert_eq!(
        std::mem::take(&mut *done.lock()).iter().map(|d| (d.0, d.1)).collect::<Vec<_>>(),
        [(300, Status::LBA_OUT_OF_RANGE)]
    );
    store.drain();
    let done = std::mem::take(&mut *done.lock());
    assert_eq!(done.len(), 64 + 1 + 64);
    assert!(done.iter().all(|d| d.1 == Status::SUCCESS), "{done:?}");
    assert!(done.is_sorted_by_key(|d| d.2), "they are delivered in the order of modelled time");
    assert!(!done.is_sorted_by_key(|d| d.0), "which is not that of their submission");
    let at = |cid: u16| done.iter().position(|d| d.0 == cid).unwrap();
    assert!((0..64).all(|i| at(i) < at(200 + i)), "a read is behind the write of its blocks");
    assert!((0..64).all(|i| at(i) < at(100)), "force unit access waits for all before it");
    assert_eq!(back, data);
    store.device.close().unwrap();
}

#[test]
fn many_in_flight_are_bound_by_the_busiest_resource() {
    let store = Modelled::open(&device(&[("link.rate", "1 GB/s")]));
    let a = rows(&store);
    let began = store.clock.now();
    let mut waiting = std::collections::VecDeque::new();
    for i in 0..8192 {
        waiting.push_back(store.read(i, a, &[i % 1024, 0], &[1, 2048]));
        if waiting.len() == 256 {
            assert!(store.device.drive(None).unwrap());
            waiting.retain(|f| !f.is_done());
        }
    }
    store.drain();
    let took = (store.clock.now() - began).us();
    // Bound by the link: a page's data with 28 B for each 128 B, and its completion.
    let want = 8192.0 * (8192.0 + 64.0 * 28.0 + 16.0 + 28.0) / 1_000.0;
    assert!((took / want - 1.0).abs() < 0.01, "{took} us, the link alone {want} us");
    store.device.close().unwrap();
}

#[test]
fn closing_tells_what_waits_for_a_transaction() {
    let store = Modelled::open(&device(&[]));
    let a = rows(&store);
    store.device.execute(command::Begin { spaces: &[(a, &[1024, 2048])] }).unwrap();
    let waits = store.read(1, a, &[0, 0], &[1, 2048]);
    store.device.close().unwrap();
    assert!(matches!(waits.error(), Error::Busy(_)));
}

#[test]
fn a_callback_may_let_time_pass_and_close_the_store() {
    let store = Modelled::open(&device(&[]));
    let a = rows(&store);
    let other = store.read(1, a, &[1, 0], &[1, 2048]);
    let mut buffer = vec![0u32; 2048].into_boxed_slice();
    // SAFETY: the target reaches exactly the buffer's elements, and the buffer is kept.
    let out = unsafe { BufferMut::from_raw(buffer.as_mut_ptr().cast()) };
    let (own, seen) = (store.device.clone(), Arc::new(Mutex::new(None)));
    let to = seen.clone();
    let done = Box::new(move |result: Result<()>| {
        result.unwrap();
        // The command is being delivered here, so it must not wait for itself.
        while own.drive(None).unwrap() {}
        *to.lock() = Some(own.close());
    });
    store.device.submit(OwnedCommand::Read { space: a, target: boxed(&[5, 0], &[1, 2048]), out }, done);
    store.drain();
    assert!(matches!(*seen.lock(), Some(Ok(()))));
    assert!(other.is_done() && store.device.closed() && buffer.iter().all(|&v| v == 7));
}

#[test]
fn a_callback_that_panics_keeps_nobody_waiting() {
    let store = Modelled::open(&device(&[]));
    let a = rows(&store);
    let bad = Box::new(|_: Result<()>| panic!("on purpose"));
    let id = store.device.submit(OwnedCommand::Flush, bad);
    assert!(id.is_some());
    assert!(matches!(store.device.drive(id), Err(Error::Internal(_))));
    assert!(!store.device.drive(id).unwrap_or(false), "it is not in flight any more");
    assert!(matches!(store.read(1, a, &[0, 0], &[1, 1]).error(), Error::Internal(_)));
}
