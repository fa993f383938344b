//! Promise: a small read returns the same bytes as a large one, whichever path it takes; and if all its pages are in
//! place it takes the short path.
//!
//! On a mapped file, which alone shows pages in place, with shapes that end within blocks, elements that straddle
//! pages, blocks that were never written and units in the write buffer. Random commands are in stl_model.rs, damage in
//! damage.rs.

mod common;

use std::sync::Arc;

use common::*;
use fastrand::Rng;
use nandarray::{BufferMut, Device, FileAccess, FileMedia, Geometry, Mode, Options, Target, command};
use proptest::prelude::*;

/// Draws boxes of one size, which lie anywhere and may overlap, of the array or of its elements in a row.
fn draw_boxes(rng: &mut Rng, shape: &[u64]) -> Part {
    let view = rng.bool().then(|| vec![shape.iter().product()]);
    let within = view.as_deref().unwrap_or(shape);
    let count: Vec<u64> = within.iter().map(|&n| rng.u64(1..=n.min(40))).collect();
    let start = |rng: &mut Rng| within.iter().zip(&count).map(|(n, c)| rng.u64(..=n - c)).collect();
    let starts = (0..rng.usize(1..20)).map(|_| start(rng)).collect();
    Part::Boxes { starts, step: vec![1; within.len()], count: count.clone(), view }
}

/// Draws a small part of an array: a box, sometimes of a view, several boxes, or a few points; coordinates at the edges
/// of the array are frequent.
fn draw(rng: &mut Rng, shape: &[u64]) -> Part {
    if rng.bool() {
        let part = draw_part(rng, shape, false);
        if matches!(&part, Part::Box { count, .. } if !count.is_empty() && !count.contains(&0)) {
            return part;
        }
    }
    if rng.u8(..4) == 0 {
        return draw_boxes(rng, shape);
    }
    if rng.bool() {
        let points = rng.usize(1..40);
        return Part::Points(
            (0..points).flat_map(|_| shape.iter().map(|&n| rng.u64(..n)).collect::<Vec<_>>()).collect(),
        );
    }
    let start: Vec<u64> = shape.iter().map(|&n| if rng.bool() { rng.u64(..n) } else { 0 }).collect();
    let most = |i: usize| shape[i] - start[i];
    let count: Vec<u64> = (0..shape.len()).map(|i| if rng.bool() { rng.u64(1..=most(i)) } else { most(i) }).collect();
    Part::boxed(&start, &count)
}

fn open_file(path: &std::path::Path, mode: Mode) -> Device {
    let access = if mode == Mode::Read { FileAccess::Read } else { FileAccess::Create };
    let media = Arc::new(FileMedia::open(path, access, true).unwrap());
    open(media, mode, &Options { threads: Some(2), ..options(Geometry::FILE, 5) }).unwrap()
}

/// Reads a part into a buffer with gaps between its elements, backwards in memory if `backwards`; panics if a gap is
/// written.
fn read_apart(device: &Device, model: &Model, name: &str, part: &Part, backwards: bool) {
    let a = &model[name];
    let expected = take(a, &part.elements(&a.shape));
    let count = part.count(a.shape.len());
    let mut strides: Vec<isize> = strides(&count, a.item).iter().map(|s| 2 * s).collect();
    let (mut buffer, mut first) = (vec![0xa5; 2 * expected.len() + a.item], 0);
    if backwards {
        first = count.iter().zip(&strides).map(|(&n, &s)| (n as usize - 1) * s as usize).sum();
        strides.iter_mut().for_each(|s| *s = -*s);
    }
    let space = open_space(device, name).unwrap().id;
    // SAFETY: the buffer was sized for these strides.
    let out = unsafe { BufferMut::from_raw(buffer.as_mut_ptr().add(first)) };
    part.target(a.shape.len(), &strides, |target| device.execute(command::Read { space, target, out })).unwrap();
    let mut untouched = vec![0xa5; buffer.len()];
    for (i, element) in expected.chunks_exact(a.item).enumerate() {
        let at = if backwards { first - 2 * i * a.item } else { 2 * i * a.item };
        untouched[at..at + a.item].copy_from_slice(element);
    }
    assert!(buffer == untouched, "{name:?} {:?} {part:?} backwards {backwards}", a.shape);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn small_reads_equal_large_ones(
        axes in prop::collection::vec((1u64..60, 1u64..24), 1..5),
        item in prop::sample::select(vec![1usize, 2, 3, 4, 8, 12, 16, 24]),
        holes in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut rng = Rng::with_seed(seed);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let shape: Vec<u64> = axes.iter().map(|a| if axes.len() > 2 { a.0 % 20 + 1 } else { a.0 }).collect();
        let block: Vec<u64> = axes.iter().map(|a| a.1).collect();
        let name = "a".to_owned();
        let mut model = Model::new();
        let part = if holes { draw_part(&mut rng, &shape, true) } else { Part::all(&shape) };
        let device = open_file(&path, Mode::Append);
        for op in [
            Op::Create {
                name: name.clone(),
                shape: shape.clone(),
                item,
                block: Some(block),
                compression: None,
                key: false,
                fill: 7,
            },
            Op::Write { name: name.clone(), part, salt: 2 },
        ] {
            op.run(&device).unwrap();
            op.tell(&mut model);
        }
        let compare = |device: &Device, rng: &mut Rng| {
            for _ in 0..60 {
                let part = draw(rng, &shape);
                let expected = take(&model[&name], &part.elements(&shape));
                assert!(read(device, &name, &part).unwrap() == expected, "{shape:?} {part:?}");
                read_apart(device, &model, &name, &part, rng.bool());
            }
        };
        // Read from the write buffer, from pages, and after opening again, before and after all pages were verified.
        compare(&device, &mut rng);
        device.execute(command::Flush).unwrap();
        compare(&device, &mut rng);
        drop(device);
        let device = open_file(&path, Mode::Read);
        compare(&device, &mut rng);
        read(&device, &name, &Part::all(&shape)).unwrap();
        compare(&device, &mut rng);
    }
}

#[test]
fn one_box_with_the_coordinates_of_two_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let device = open_file(&dir.path().join("store"), Mode::Append);
    let (shape, name) = (vec![30, 50], "a".to_owned());
    let new = Op::Create {
        name: name.clone(),
        shape: shape.clone(),
        item: 4,
        block: None,
        compression: None,
        key: false,
        fill: 0,
    };
    for op in [new, Op::Write { name: name.clone(), part: Part::all(&shape), salt: 2 }, Op::Flush] {
        op.run(&device).unwrap();
    }
    read(&device, &name, &Part::all(&shape)).unwrap();
    let (space, mut buffer, start) = (open_space(&device, &name).unwrap().id, [0u8; 16], [7, 0, 8, 0]);
    let target = Target::Box { start: &start, step: &[1, 1], count: &[1, 4], strides: &[16, 4], view: None };
    // SAFETY: the buffer has room for four elements.
    let out = unsafe { BufferMut::from_raw(buffer.as_mut_ptr()) };
    let refused = device.execute(command::Read { space, target, out });
    assert!(matches!(refused, Err(nandarray::Error::Invalid(_))) && buffer == [0; 16], "{refused:?}");
}

#[test]
fn what_lies_in_place_takes_the_short_way() {
    let dir = tempfile::tempdir().unwrap();
    let device = open_file(&dir.path().join("store"), Mode::Append);
    let (shape, name) = (vec![300, 500], "a".to_owned());
    let mut model = Model::new();
    for op in [
        Op::Create {
            name: name.clone(),
            shape: shape.clone(),
            item: 4,
            block: Some(vec![64, 64]),
            compression: None,
            key: false,
            fill: 0,
        },
        Op::Write { name: name.clone(), part: Part::all(&shape), salt: 2 },
        Op::Flush,
    ] {
        op.run(&device).unwrap();
        op.tell(&mut model);
    }
    let space = open_space(&device, &name).unwrap();
    let short = |part: &Part| {
        space.access.residency.probed(true);
        let before = space.access.residency.left();
        assert!(read(&device, &name, part).unwrap() == take(&model[&name], &part.elements(&shape)));
        // The general way looks, and more is trusted then.
        space.access.residency.left() + 1 == before
    };
    let row = Part::boxed(&[7, 0], &[1, 500]);
    assert!(!short(&row), "its pages were not verified yet");
    read(&device, &name, &Part::all(&shape)).unwrap();
    assert!(short(&row));
    assert!(short(&Part::boxed(&[60, 60], &[100, 100])));
    assert!(short(&Part::Points(vec![0, 0, 299, 499, 150, 3, 0, 0])));
    assert!(!short(&Part::all(&shape)), "it is not small");
    let boxes = |view: Option<Vec<u64>>, starts: &[Vec<u64>], count: Vec<u64>| Part::Boxes {
        starts: starts.to_vec(),
        step: vec![1; count.len()],
        count,
        view,
    };
    assert!(short(&boxes(None, &[vec![7, 0], vec![299, 10], vec![7, 3]], vec![1, 490])));
    assert!(short(&boxes(Some(vec![150_000]), &[vec![990], vec![0], vec![149_800]], vec![200])));
    let with_steps = |view: Option<&[u64]>| {
        let view = view.map(<[u64]>::to_vec);
        Part::Box { start: vec![0, 0], step: vec![7, 3], count: vec![3, 100], view }
    };
    assert!(short(&with_steps(None)));
    assert!(short(&with_steps(Some(&[500, 300]))), "rows that share no factor");
    assert!(short(&Part::Box {
        start: vec![9, 3, 40],
        step: vec![1; 3],
        count: vec![2, 4, 50],
        view: Some(vec![30, 10, 500])
    }));
    let write = Op::Write { name: name.clone(), part: Part::boxed(&[7, 80], &[1, 3]), salt: 6 };
    write.run(&device).unwrap();
    let mut after = model.clone();
    write.tell(&mut after);
    assert!(read(&device, &name, &row).unwrap() == take(&after[&name], &row.elements(&shape)), "what gathers is seen");
    device.execute(command::Resize { space: space.id, shape: &[5, 500] }).unwrap();
    let gone = read(&device, &name, &row);
    assert!(matches!(gone, Err(nandarray::Error::OutOfRange { axis: 0, index: 7, size: 5 })), "{gone:?}");
    let gone = read(&device, &name, &Part::Points(vec![4, 499, 5, 0]));
    assert!(matches!(gone, Err(nandarray::Error::OutOfRange { axis: 0, index: 5, size: 5 })), "{gone:?}");
}
