//! Promise: a store under the modelled clock returns the same bytes as any other store, and takes the times of the
//! closed forms.

use std::ops::Deref;
use std::sync::Arc;

use nandarray::{BufferMut, Device, Mode, NewSpace, Options, Source, SpaceId, Target, command};
use nandarray_model::Ps;
use nandarray_model::describe::{self, Description};
use nandarray_model::store::{self, Backing, Clock};

fn device(overrides: &[(&str, &str)]) -> Description {
    describe::preset_with("mqsim-ideal", overrides).unwrap()
}

/// A store and its clock.
struct Modelled {
    device: Device,
    clock: Arc<Clock>,
}

impl Deref for Modelled {
    type Target = Device;
    fn deref(&self) -> &Device {
        &self.device
    }
}

impl Modelled {
    fn now(&self) -> Ps {
        self.clock.now()
    }
}

fn open(description: &Description, bytes: &Backing) -> Modelled {
    let (device, clock) = store::open(bytes, Mode::Append, &Options::default(), description, None).unwrap();
    Modelled { device, clock }
}

fn create(store: &Modelled, name: &str, shape: &[u64], block: &[u64]) -> SpaceId {
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
    store.execute(command::Create(new)).unwrap().id
}

fn strides(count: &[u64]) -> Vec<isize> {
    let mut strides = vec![4; count.len()];
    for i in (0..count.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1] * count[i + 1] as isize;
    }
    strides
}

fn write(store: &Modelled, space: SpaceId, start: &[u64], count: &[u64], from: &[u32]) {
    try_write(store, space, start, count, from).unwrap();
}

fn try_write(store: &Modelled, space: SpaceId, start: &[u64], count: &[u64], from: &[u32]) -> nandarray::Result<()> {
    assert_eq!(count.iter().product::<u64>(), from.len() as u64);
    let step = vec![1; start.len()];
    let strides = strides(count);
    let target = Target::Box { start, step: &step, count, strides: &strides, view: None };
    // SAFETY: the target reaches exactly the elements of `from`.
    let source = unsafe { Source::from_raw(from.as_ptr().cast()) };
    store.execute(command::Write { space, target, source })
}

fn read(store: &Modelled, space: SpaceId, start: &[u64], count: &[u64]) -> Vec<u32> {
    let mut to = vec![0u32; count.iter().product::<u64>() as usize];
    let step = vec![1; start.len()];
    let strides = strides(count);
    let target = Target::Box { start, step: &step, count, strides: &strides, view: None };
    // SAFETY: the target reaches exactly the elements of `to`.
    let out = unsafe { BufferMut::from_raw(to.as_mut_ptr().cast()) };
    store.execute(command::Read { space, target, out }).unwrap();
    to
}

#[test]
fn bytes_are_real_and_time_passes() {
    for in_device in ["true", "false"] {
        let d = device(&[("controller.spaces_in_device", in_device)]);
        let store = open(&d, &Backing::Memory);
        let a = create(&store, "a", &[512, 512], &[128, 128]);
        let all: Vec<u32> = (0..512 * 512).collect();
        let before = store.now();
        write(&store, a, &[0, 0], &[512, 512], &all);
        let wrote = store.now() - before;
        store.execute(command::Flush).unwrap();
        let before = store.now();
        assert_eq!(read(&store, a, &[0, 0], &[512, 512]), all);
        let read_all = store.now() - before;
        let column = read(&store, a, &[0, 7], &[512, 1]);
        assert!(column.iter().enumerate().all(|(i, &v)| v == i as u32 * 512 + 7));
        // 1 MiB is 128 pages of 8 KiB: one on each plane of the device, programmed and read in parallel.
        assert!(wrote > Ps::from_us(750) && wrote < Ps::from_ms(6), "{wrote}");
        assert!(read_all > Ps::from_us(250) && read_all < Ps::from_us(900), "{read_all}");
        store.close().unwrap();
    }
}

#[test]
fn one_page_takes_what_its_phases_take() {
    let d = device(&[]);
    let store = open(&d, &Backing::Memory);
    let a = create(&store, "a", &[2048], &[2048]);
    let values: Vec<u32> = (0..2048).collect();
    write(&store, a, &[0], &[2048], &values);
    let before = store.now();
    assert_eq!(read(&store, a, &[0], &[2048]), values);
    let took = (store.now() - before).us();
    // Sum of t_R, ready time, command, transfer and PCIe.
    assert!((took / 102.4 - 1.0).abs() < 0.01, "{took} us");
}

#[test]
fn one_history_gives_one_trace() {
    let run = || {
        let d = device(&[
            ("geometry.blocks", "32"),
            ("geometry.pages", "16"),
            ("ftl.over_provisioning", "40 %"),
            ("ftl.gc_urgent_blocks", "1"),
        ]);
        let store = open(&d, &Backing::Memory);
        let a = create(&store, "a", &[1024, 1024], &[64, 64]);
        let mut chance = fastrand::Rng::with_seed(5);
        for round in 0..300 {
            let at = [chance.u64(0..900), chance.u64(0..900)];
            let some: Vec<u32> = (0..100 * 100).map(|i| i + round).collect();
            write(&store, a, &at, &[100, 100], &some);
            assert_eq!(read(&store, a, &at, &[100, 100]), some);
        }
        store.execute(command::Flush).unwrap();
        store.close().unwrap();
        store.clock.settle();
        (store.clock.machine(|m| m.hash()), store.now())
    };
    assert_eq!(run(), run());
}

#[test]
fn a_batch_overlaps() {
    let time = |depth: usize| {
        let store = open(&device(&[]), &Backing::Memory);
        let a = create(&store, "a", &[4096, 2048], &[1, 2048]);
        let all: Vec<u32> = (0..4096 * 2048).collect();
        write(&store, a, &[0, 0], &[4096, 2048], &all);
        let before = store.now();
        store.clock.batch();
        for i in 0..256 {
            assert_eq!(read(&store, a, &[i * 13, 0], &[1, 2048])[5], (i as u32 * 13) * 2048 + 5);
        }
        assert_eq!(store.clock.end_batch(depth).len(), 256);
        (store.now() - before).us()
    };
    let (one, many) = (time(1), time(32));
    assert!(many * 8.0 < one, "{one} us one after the other, {many} us side by side");
}

#[test]
fn a_file_is_a_store_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.nand");
    let d = device(&[
        ("geometry.blocks", "32"),
        ("geometry.pages", "16"),
        ("ftl.over_provisioning", "40 %"),
        ("ftl.gc_urgent_blocks", "1"),
    ]);
    let values: Vec<u32> = (0..5000).collect();
    {
        let store = open(&d, &Backing::File(path.clone()));
        let a = create(&store, "a", &[5000], &[1024]);
        write(&store, a, &[0], &[5000], &values);
        store.close().unwrap();
    }
    let plain = nandarray::Device::open_file(&path, Mode::Read, &Options::default()).unwrap();
    assert_eq!(plain.geometry().channels, 8);
    drop(plain);
    let store = open(&d, &Backing::File(path.clone()));
    let a = store.execute(command::Open { name: "a", key: None }).unwrap().id;
    assert_eq!(read(&store, a, &[0], &[5000]), values);
    assert!(store.clock.mount_time() > Ps::from_us(75), "opening read the checkpoint: {}", store.clock.mount_time());
    drop(store);
    let other = device(&[
        ("geometry.blocks", "32"),
        ("geometry.pages", "32"),
        ("ftl.over_provisioning", "40 %"),
        ("ftl.gc_urgent_blocks", "1"),
    ]);
    let wrong = store::open(&Backing::File(path), Mode::Append, &Options::default(), &other, None).unwrap_err();
    assert!(wrong.to_string().contains("must be made for its device"), "{wrong}");
}

#[test]
fn a_device_without_bytes_keeps_times() {
    let time = |bytes| {
        let store = open(&device(&[]), &bytes);
        let a = create(&store, "a", &[1 << 20], &[1 << 16]);
        write(&store, a, &[0], &[1 << 20], &vec![3; 1 << 20]);
        store.execute(command::Flush).unwrap();
        read(&store, a, &[0], &[1 << 20]);
        let now = store.now();
        store.close().unwrap();
        (now, store.clock.machine(|m| m.hash()))
    };
    assert_eq!(time(Backing::Memory), time(Backing::Nowhere));
}

#[test]
fn coordinates_are_fetched_from_host_memory() {
    // On the link of mqsim-ideal (PCIe 3 x4), a packet without payload goes up, then 4 KiB come down (closed form of
    // link.rs: 1,248 ns).
    let time = |size| {
        let store = open(&device(&[("controller.coordinates_size", size)]), &Backing::Memory);
        let a = create(&store, "a", &[2048], &[2048]);
        write(&store, a, &[0], &[2048], &vec![7; 2048]);
        let before = store.now();
        assert_eq!(read(&store, a, &[0], &[2048]), vec![7; 2048]);
        store.now() - before
    };
    let (without, with) = (time("0 B"), time("4 KiB"));
    assert_eq!(with - without, Ps::from_ns(1_248 + 7), "an empty packet of 28 B takes 7 ns");
}

#[test]
fn software_may_compose_a_command_before_it_writes_it() {
    let run = |composes| {
        let d = device(&[
            ("controller.spaces_in_device", "false"),
            ("host.composes", composes),
            ("host.t_copy_run", "100 us"),
        ]);
        let store = open(&d, &Backing::Memory);
        let a = create(&store, "a", &[4, 2048], &[1, 2048]);
        let all: Vec<u32> = (0..4 * 2048).collect();
        let before = store.now();
        write(&store, a, &[0, 0], &[4, 2048], &all);
        let took = store.now() - before;
        assert_eq!(read(&store, a, &[0, 0], &[4, 2048]), all);
        store.close().unwrap();
        took
    };
    // Copying takes 100 us for each of the four blocks. The last block is programmed 400 us after the command began in
    // either case; blocks that need not wait cross link and buses before.
    let (block, command) = (run("block"), run("command"));
    assert!(command > block && command - block < Ps::from_us(400), "{block} {command}");
}

/// An extent is complete for the host once it lies in the write cache: its command may end before its pages are
/// programmed.
#[test]
fn an_extent_in_the_write_cache_may_outlive_its_command() {
    let d = device(&[
        ("controller.spaces_in_device", "false"),
        ("ftl.write_cache", "128 KiB"),
        ("ftl.early_completion", "true"),
    ]);
    let store = open(&d, &Backing::Memory);
    let a = create(&store, "a", &[16, 2048], &[1, 2048]);
    let all: Vec<u32> = (0..16 * 2048).collect();
    for row in 0..16 {
        write(&store, a, &[row, 0], &[1, 2048], &all[row as usize * 2048..][..2048]);
    }
    store.execute(command::Flush).unwrap();
    assert_eq!(read(&store, a, &[0, 0], &[16, 2048]), all);
    store.close().unwrap();
}

#[test]
fn channel_handlers_share_the_channels() {
    let time = |handlers| {
        let d = device(&[
            ("controller.cores", "8"),
            ("controller.stage_cores", r#"["none", "none", "none", "none", 4]"#),
            ("controller.t_channel", "100 us"),
            ("controller.channel_handlers", handlers),
        ]);
        let store = open(&d, &Backing::Memory);
        // One page on each of 8 channels.
        let a = create(&store, "a", &[8 * 2048], &[8 * 2048]);
        write(&store, a, &[0], &[8 * 2048], &vec![7; 8 * 2048]);
        let before = store.now();
        read(&store, a, &[0], &[8 * 2048]);
        (store.now() - before).us()
    };
    let (one, four) = (time("1"), time("4"));
    assert!((one - four - 600.0).abs() < 30.0, "8 turns of 100 us on one core, 2 on four: {one} us, {four} us");
}

/// On a small device, arrays are created, overwritten and deleted until it is sometimes full: segments are freed,
/// filled and freed again before their modelled erases have ended.
#[test]
fn a_nearly_full_device_erases_a_segment_again_behind_its_last_erase() {
    let description = describe::preset_with("tiny", &[]).unwrap();
    let mut full = 0;
    for seed in 0..12 {
        let store = open(&description, &Backing::Memory);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut arrays: Vec<(String, SpaceId, u64, u32)> = Vec::new();
        for step in 0..300u32 {
            let make = rng.u8(..10) < 7 || arrays.is_empty();
            let some = if arrays.is_empty() { 0 } else { rng.usize(..arrays.len()) };
            if make {
                let name = format!("a{step}");
                let elements = [5_000, 25_000, 75_000][rng.usize(..3)];
                let new = NewSpace {
                    name: &name,
                    shape: &[elements],
                    item_bytes: 4,
                    dtype: "<u4",
                    block: None,
                    compression: None,
                    key: None,
                    fill: None,
                    attrs: "{}",
                };
                match store.execute(command::Create(new)) {
                    Ok(reply) => arrays.push((name, reply.id, elements, 0)),
                    Err(e) => {
                        assert!(matches!(e, nandarray::Error::Full { .. }), "seed {seed}, step {step}: {e}");
                        full += 1;
                        continue;
                    }
                }
            } else if rng.bool() {
                let (name, ..) = arrays.swap_remove(some);
                store
                    .execute(command::Delete { name: &name })
                    .unwrap_or_else(|e| panic!("seed {seed}, step {step}: {e}"));
                continue;
            }
            let at = if make { arrays.len() - 1 } else { some };
            let (_, space, elements, holds) = &mut arrays[at];
            match try_write(&store, *space, &[0], &[*elements], &vec![step + 1; *elements as usize]) {
                Ok(()) => *holds = step + 1,
                Err(e) => {
                    assert!(matches!(e, nandarray::Error::Full { .. }), "seed {seed}, step {step}: {e}");
                    full += 1;
                }
            }
        }
        for (name, space, elements, holds) in arrays {
            let found = read(&store, space, &[0], &[elements]);
            assert!(found.iter().all(|&v| v == holds), "seed {seed}: {name}");
        }
        store.clock.settle();
        store.close().unwrap();
    }
    assert!(full > 0, "no device was ever full");
}

/// An array in the reference: its shape, its elements, its fill value, and its numbers in both stores.
#[derive(Clone, Debug)]
struct Listed {
    name: String,
    shape: Vec<u64>,
    elements: Vec<u32>,
    fill: u32,
    ids: [SpaceId; 2],
}

/// A strided box: first coordinate, distance and number of elements along each dimension.
type Strided = Vec<(u64, u64, u64)>;

impl Listed {
    /// Returns the places of a box's elements among all elements, in the order of the box.
    fn places(&self, part: &Strided) -> Vec<usize> {
        part.iter().zip(&self.shape).fold(vec![0], |places, (&(start, step, count), &extent)| {
            let along = |place: usize| (0..count).map(move |i| place * extent as usize + (start + i * step) as usize);
            places.into_iter().flat_map(along).collect()
        })
    }

    fn resized(&self, shape: &[u64]) -> Vec<u32> {
        let all: Strided = shape.iter().map(|&extent| (0, 1, extent)).collect();
        let bigger = Self { shape: shape.to_vec(), ..self.clone() };
        let kept: Strided = shape.iter().zip(&self.shape).map(|(&new, &old)| (0, 1, new.min(old))).collect();
        let mut elements = vec![self.fill; bigger.places(&all).len()];
        for (to, from) in bigger.places(&kept).into_iter().zip(self.places(&kept)) {
            elements[to] = self.elements[from];
        }
        elements
    }

    fn random_box(&self, chance: &mut fastrand::Rng) -> Strided {
        let along = |&extent: &u64| {
            let (start, step) = (chance.u64(0..extent), chance.u64(1..4));
            (start, step, chance.u64(1..=(extent - start).div_ceil(step)))
        };
        self.shape.iter().map(along).collect()
    }
}

/// Moves a box's elements between a buffer and a space; the error is the store's.
fn moved(store: &Device, space: SpaceId, part: &Strided, write: bool, data: &mut [u32]) -> Result<(), String> {
    let of = |field: fn(&(u64, u64, u64)) -> u64| part.iter().map(field).collect::<Vec<u64>>();
    let (start, step, count) = (of(|one| one.0), of(|one| one.1), of(|one| one.2));
    let strides = strides(&count);
    let target = Target::Box { start: &start, step: &step, count: &count, strides: &strides, view: None };
    let done = if write {
        // SAFETY: the target reaches exactly the elements of `data`.
        let source = unsafe { Source::from_raw(data.as_ptr().cast()) };
        store.execute(command::Write { space, target, source }).map(drop)
    } else {
        // SAFETY: the target reaches exactly the elements of `data`.
        let out = unsafe { BufferMut::from_raw(data.as_mut_ptr().cast()) };
        store.execute(command::Read { space, target, out }).map(drop)
    };
    done.map_err(|error| error.to_string())
}

/// Executes a command on both stores, whose replies or errors must be the same.
fn both<T: PartialEq + std::fmt::Debug>(
    stores: [&Device; 2],
    context: &str,
    of: impl Fn(usize, &Device) -> nandarray::Result<T>,
) -> Result<T, String> {
    let [plain, modelled] = [0, 1].map(|n| of(n, stores[n]).map_err(|error| error.to_string()));
    assert_eq!(plain, modelled, "{context}: without a clock, and with one");
    plain
}

fn make(stores: [&Device; 2], number: u64, chance: &mut fastrand::Rng) -> Listed {
    let shape: Vec<u64> = (0..chance.usize(1..4)).map(|_| chance.u64(1..30)).collect();
    let block: Vec<u64> = shape.iter().map(|&extent| chance.u64(1..=extent.next_power_of_two())).collect();
    let (name, fill) = (format!("a{number}"), chance.u32(0..3));
    let bytes = fill.to_le_bytes();
    let block = chance.bool().then_some(&block[..]);
    let ids = stores.map(|store| {
        let new = NewSpace {
            name: &name,
            shape: &shape,
            item_bytes: 4,
            dtype: "<u4",
            block,
            compression: [None, Some("zstd:1")][usize::from(number.is_multiple_of(3))],
            key: None,
            fill: (fill > 0).then_some(&bytes[..]),
            attrs: "{}",
        };
        store.execute(command::Create(new)).unwrap_or_else(|e| panic!("{name} of {shape:?}, {block:?}: {e}")).id
    });
    let volume = shape.iter().product::<u64>() as usize;
    Listed { name, shape, elements: vec![fill; volume], fill, ids }
}

/// Changes an array in both stores and in the reference.
fn change(stores: [&Device; 2], one: &mut Listed, context: &str, chance: &mut fastrand::Rng) {
    let mut part = one.random_box(chance);
    let ids = one.ids;
    match chance.u8(0..10) {
        0..5 => {
            let places = one.places(&part);
            let mut data: Vec<u32> = places.iter().map(|_| chance.u32(..)).collect();
            places.iter().zip(&data).for_each(|(&place, &value)| one.elements[place] = value);
            stores.into_iter().zip(ids).for_each(|(s, id)| moved(s, id, &part, true, &mut data).unwrap());
        }
        5 => {
            part.iter_mut().for_each(|along| (along.1, along.2) = (1, along.2));
            let (start, count): (Vec<u64>, Vec<u64>) = part.iter().map(|along| (along.0, along.2)).unzip();
            one.places(&part).into_iter().for_each(|place| one.elements[place] = one.fill);
            both(stores, context, |n, s| {
                s.execute(command::Deallocate { space: ids[n], start: &start, count: &count }).map(drop)
            })
            .unwrap();
        }
        6 => {
            let shape: Vec<u64> = one.shape.iter().map(|_| chance.u64(1..34)).collect();
            both(stores, context, |n, s| s.execute(command::Resize { space: ids[n], shape: &shape }).map(drop))
                .unwrap();
            (one.elements, one.shape) = (one.resized(&shape), shape);
        }
        7 => {
            let name = format!("{}x", one.name);
            both(stores, context, |_, s| s.execute(command::Rename { from: &one.name, to: &name }).map(drop)).unwrap();
            one.name = name;
        }
        8 => {
            // A box beyond the array is refused in the same words, and changes nothing.
            part[0] = (one.shape[0], 1, 1);
            let mut data = vec![7; one.places(&part).len()];
            let [a, b] = [0, 1].map(|n| moved(stores[n], ids[n], &part, true, &mut data).unwrap_err());
            assert_eq!(a, b, "{context}");
        }
        _ => {
            both(stores, context, |_, s| s.execute(command::Flush).map(drop)).unwrap();
        }
    }
}

/// Random commands on a store under the modelled clock, on a store without one, and on plain lists of elements: all
/// three hold the same, time never runs back, and it passes for what reaches the flash.
#[test]
fn a_modelled_store_holds_what_a_plain_one_and_a_list_hold() {
    for seed in 0..30 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let more = [
            ("controller.spaces_in_device", ["true", "false"][chance.usize(0..2)]),
            ("geometry.blocks", "64"),
            ("ftl.write_cache", ["none", "1 MiB"][chance.usize(0..2)]),
        ];
        let modelled = open(&describe::preset_with("tiny", &more).unwrap(), &Backing::Memory);
        let options = Options { threads: Some(1), ..Options::default() };
        let media = Arc::new(nandarray::MemoryMedia::with_bytes(vec![]));
        let plain = Device::open(media, "plain", Mode::Append, &options).unwrap();
        let stores = [&plain, &modelled.device];
        let (mut all, mut number, mut before): (Vec<Listed>, u64, Ps) = (Vec::new(), 0, modelled.now());
        for step in 0..150 {
            let context = format!("seed {seed}, step {step}");
            match chance.u8(0..12) {
                0 if all.len() < 6 => {
                    number += 1;
                    all.push(make(stores, number, &mut chance));
                }
                1 if !all.is_empty() => {
                    let gone = all.swap_remove(chance.usize(0..all.len()));
                    both(stores, &context, |_, s| s.execute(command::Delete { name: &gone.name }).map(drop)).unwrap();
                    both(stores, &context, |_, s| s.execute(command::Open { name: &gone.name, key: None }).map(drop))
                        .unwrap_err();
                }
                2..8 if !all.is_empty() => {
                    let at = chance.usize(0..all.len());
                    change(stores, &mut all[at], &context, &mut chance);
                }
                _ if !all.is_empty() => {
                    let one = &all[chance.usize(0..all.len())];
                    let part = one.random_box(&mut chance);
                    let wanted: Vec<u32> = one.places(&part).into_iter().map(|place| one.elements[place]).collect();
                    for (store, id) in stores.into_iter().zip(one.ids) {
                        let mut found = vec![!0; wanted.len()];
                        moved(store, id, &part, false, &mut found).unwrap();
                        assert_eq!(found, wanted, "{context}: {part:?} of {:?}", one.shape);
                    }
                }
                _ => {}
            }
            assert!(modelled.now() >= before, "{context}: {} after {before}", modelled.now());
            before = modelled.now();
        }
        modelled.clock.settle();
        assert!(modelled.clock.machine(|m| m.flash().counts.submitted) > 0, "seed {seed}");
        plain.close().unwrap();
        modelled.close().unwrap();
    }
}
