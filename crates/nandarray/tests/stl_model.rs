//! Promise: a read returns the elements that were written last, whatever the shape, selection, view, resize and coding.
//!
//! Random commands on random arrays against a model of plain vectors, on a medium that can only be read (memory) and on
//! one that shows its bytes in place (a mapped file), with one thread and with helpers; every read goes to a buffer
//! with odd strides, too, and nothing beside the wanted elements may be touched. Losses of power are the subject of
//! power_loss.rs.

mod common;

use std::sync::Arc;

use common::*;
use fastrand::Rng;
use nandarray::file_format::Layout;
use nandarray::{
    BufferMut, Device, FileAccess, FileMedia, Geometry, Media, MemoryMedia, Mode, Options, Source, command,
};
use proptest::prelude::*;

/// Creates a buffer with gaps and reversed dimensions; returns its bytes, the offset of element (0, 0, ...), and its
/// strides.
fn odd_buffer(rng: &mut Rng, count: &[u64], item: usize) -> (Vec<u8>, usize, Vec<isize>) {
    let mut order: Vec<usize> = (0..count.len()).collect();
    rng.shuffle(&mut order);
    let mut strides = vec![0isize; count.len()];
    let (mut stride, mut first) = (item + rng.usize(..3), 0);
    for axis in order {
        let n = count[axis].max(1) as usize;
        strides[axis] = stride as isize;
        if rng.bool() {
            first += (n - 1) * stride;
            strides[axis] = -(stride as isize);
        }
        stride = stride * n + rng.usize(..3);
    }
    (vec![0xa5; stride + item], first, strides)
}

fn offsets(count: &[u64], first: usize, strides: &[isize]) -> Vec<usize> {
    let mut out = vec![first as isize];
    for (&n, &s) in count.iter().zip(strides) {
        out = out.iter().flat_map(|&o| (0..n as isize).map(move |i| o + i * s)).collect();
    }
    out.iter().map(|&o| o as usize).collect()
}

fn compare_part(device: &Device, model: &Model, rng: &mut Rng) {
    let name = model.keys().nth(rng.usize(..model.len())).unwrap();
    let a = &model[name];
    if a.shape.contains(&0) {
        return; // empty, or the mark of a snapshot
    }
    let part = draw_part(rng, &a.shape, false);
    let expected = take(a, &part.elements(&a.shape));
    assert!(read(device, name, &part).unwrap() == expected, "{name:?} {:?} {part:?}", a.shape);
    let count = part.count(a.shape.len());
    let (mut buffer, first, strides) = odd_buffer(rng, &count, a.item);
    let space = open_space(device, name).unwrap().id;
    // SAFETY: the buffer was sized for these strides.
    let out = unsafe { BufferMut::from_raw(buffer.as_mut_ptr().add(first)) };
    part.target(a.shape.len(), &strides, |target| device.execute(command::Read { space, target, out })).unwrap();
    let mut untouched = vec![0xa5; buffer.len()];
    for (o, e) in offsets(&count, first, &strides).into_iter().zip(expected.chunks_exact(a.item)) {
        untouched[o..o + a.item].copy_from_slice(e);
    }
    assert!(buffer == untouched, "{name:?} {:?} {part:?} strides {strides:?}", a.shape);
}

/// Writes a random part of an array from a buffer with gaps and reversed dimensions, to the device and to the model.
fn write_oddly(device: &Device, model: &mut Model, rng: &mut Rng) {
    let live: Vec<&String> = model.keys().filter(|name| snapshots::parts(name).is_none()).collect();
    let name = live[rng.usize(..live.len())].clone();
    let a = model.get_mut(&name).unwrap();
    if a.shape.contains(&0) {
        return;
    }
    let part = draw_part(rng, &a.shape, true);
    let count = part.count(a.shape.len());
    let (mut buffer, first, strides) = odd_buffer(rng, &count, a.item);
    buffer.iter_mut().for_each(|b| *b = rng.u8(..));
    let bytes: Vec<u8> =
        offsets(&count, first, &strides).into_iter().flat_map(|o| buffer[o..o + a.item].to_vec()).collect();
    let space = open_space(device, &name).unwrap().id;
    // SAFETY: the buffer was sized for these strides.
    let source = unsafe { Source::from_raw(buffer.as_ptr().add(first)) };
    part.target(a.shape.len(), &strides, |target| device.execute(command::Write { space, target, source })).unwrap();
    put(a, &part.elements(&a.shape), &bytes);
}

fn geometry(rng: &mut Rng) -> Geometry {
    let geometry = [
        Geometry::TINY,
        Geometry { page_bytes: 512, channels: 1, banks: 1, pages_per_block: 8, layout: Layout::NEWEST },
        Geometry { page_bytes: 1024, channels: 3, banks: 2, pages_per_block: 5, layout: Layout::NEWEST },
        Geometry { page_bytes: 4096, channels: 8, banks: 1, pages_per_block: 4, layout: Layout::NEWEST },
    ][rng.usize(..4)];
    Geometry { layout: [Layout::Grouped, Layout::Interleaved][rng.usize(..2)], ..geometry }
}

fn run(numbers: &[u64], mut make: impl FnMut() -> Arc<dyn Media>, threads: usize, array_bytes: usize) {
    let rng = &mut Rng::with_seed(numbers.first().copied().unwrap_or(0));
    let geometry = geometry(rng);
    // Stores of earlier formats have no snapshots.
    let snapshots = geometry.layout == Layout::NEWEST;
    let taste = Taste { array_bytes, snapshots, ..Taste::SMALL };
    let write_buffer_bytes = [0, 3_000, 64 << 20][rng.usize(..3)];
    let options = |entropy| Options { threads: Some(threads), write_buffer_bytes, ..options(geometry, entropy) };
    let mut model = Model::new();
    let mut device = open(make(), Mode::Append, &options(0)).unwrap();
    let mut done: Vec<Op> = Vec::new();
    for (i, &number) in numbers.iter().enumerate() {
        let op = draw(number, &model, &taste);
        done.push(op.clone());
        let context = || format!("after {done:#?}");
        if let Op::Reopen = op {
            device.close().unwrap();
            drop(device);
            device = open(make(), Mode::ReadWrite, &options(i as u64 + 1)).unwrap();
        } else {
            op.run(&device).unwrap_or_else(|e| panic!("{e}; {}", context()));
            op.tell(&mut model);
        }
        let rng = &mut Rng::with_seed(number ^ 99);
        if !snapshots::split(&model).0.is_empty() {
            write_oddly(&device, &mut model, rng);
            compare_part(&device, &model, rng);
        }
        if i % 16 == 15 {
            assert_holds(&device, &model, &context);
        }
    }
    let context = || format!("after {done:#?}");
    assert_holds(&device, &model, &context);
    assert_sound(&device, &context);
    device.close().unwrap();
    drop(device);
    let again = open(make(), Mode::Read, &options(99)).unwrap();
    assert_holds(&again, &model, &context);
}

/// Returns a function that returns the same medium in memory each time, so that it outlives the devices opened on it.
fn shared_memory() -> impl FnMut() -> Arc<dyn Media> {
    let media: Arc<MemoryMedia> = Arc::default();
    move || media.clone()
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn memory_holds_what_was_written(numbers in prop::collection::vec(any::<u64>(), 1..50), threads in 1usize..3) {
        run(&numbers, shared_memory(), threads, 20_000);
    }

    #[test]
    fn a_mapped_file_holds_what_was_written(
        numbers in prop::collection::vec(any::<u64>(), 1..50),
        threads in 1usize..3,
        map: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.nand");
        run(&numbers, || Arc::new(FileMedia::open(&path, FileAccess::Create, map).unwrap()), threads, 20_000);
    }
}

proptest! {
    #![proptest_config(config(12))]

    /// Arrays are so large that helper threads take part in a command (several hundred KiB).
    #[test]
    fn helpers_do_the_same(numbers in prop::collection::vec(any::<u64>(), 1..20)) {
        run(&numbers, shared_memory(), 4, 3_000_000);
    }
}

#[test]
fn huge_and_sparse_spaces_cost_what_is_used() {
    let device = open(Arc::new(MemoryMedia::default()), Mode::Append, &options(Geometry::TINY, 1)).unwrap();
    let side = 1u64 << 62;
    let create = |name: &str, shape: Vec<u64>| Op::Create {
        name: name.to_owned(),
        shape,
        item: 3,
        block: None,
        compression: None,
        key: false,
        fill: 9,
    };
    create("huge", vec![side, side, u64::MAX]).run(&device).unwrap();
    let corners: Vec<Vec<u64>> =
        vec![vec![0, 0, 0], vec![side - 1, side - 2, u64::MAX - 1], vec![5, side - 1, 1 << 40]];
    for (i, at) in corners.iter().enumerate() {
        write(&device, "huge", &Part::boxed(at, &[1, 1, 1]), &[i as u8; 3]).unwrap();
    }
    create("deep", vec![3; 32]).run(&device).unwrap();
    write(&device, "deep", &Part::boxed(&[2; 32], &[1; 32]), &[7; 3]).unwrap();
    Op::Flush.run(&device).unwrap();
    Op::Compact.run(&device).unwrap();
    for (i, at) in corners.iter().enumerate() {
        assert_eq!(read(&device, "huge", &Part::boxed(at, &[1, 1, 1])).unwrap(), [i as u8; 3]);
    }
    assert_eq!(read(&device, "huge", &Part::boxed(&[9, 9, 9], &[1, 1, 2])).unwrap(), [9; 6]);
    assert_eq!(read(&device, "deep", &Part::boxed(&[2; 32], &[1; 32])).unwrap(), [7; 3]);
    assert_sound(&device, &String::new);
}
