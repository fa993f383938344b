//! Boxes of arrays, of views, with steps and in tiles, read by a program that copies and written in the same variety:
//! beside index arithmetic, element by element.

use fastrand::Rng;
use nandarray_runtime::Tiles;

use super::*;

/// A box with what it lies in: the shape that it counts in, its place, and the tiles in whose order it is passed on.
#[derive(Clone, Debug)]
struct Region {
    within: Vec<u64>,
    is_view: bool,
    start: Vec<u64>,
    step: Vec<u64>,
    count: Vec<u64>,
    tiles: Option<(Vec<u64>, Vec<u64>)>,
}

fn volume(shape: &[u64]) -> u64 {
    shape.iter().product()
}

/// Returns all combinations of one number of each list, the last list's fastest.
fn product(lists: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let longer = |found: Vec<Vec<u64>>, list: &Vec<u64>| {
        found.iter().flat_map(|at| list.iter().map(move |n| [at.as_slice(), &[*n]].concat())).collect()
    };
    lists.iter().fold(vec![vec![]], longer)
}

impl Region {
    /// Returns the coordinates within the box of every tile's elements; without tiles the box is one.
    fn order(&self) -> Vec<Vec<Vec<u64>>> {
        let Some((first, size)) = &self.tiles else {
            return vec![product(&self.count.iter().map(|n| (0..*n).collect()).collect::<Vec<_>>())];
        };
        let spans = |axis: usize| {
            let mut spans: Vec<Vec<u64>> = Vec::new();
            let (mut low, mut high) = (0, first[axis]);
            while low < self.count[axis] {
                spans.push((low..high.min(self.count[axis])).collect());
                (low, high) = (high, high + size[axis]);
            }
            spans
        };
        let axes: Vec<Vec<Vec<u64>>> = (0..self.count.len()).map(spans).collect();
        let numbers: Vec<Vec<u64>> = axes.iter().map(|spans| (0..spans.len() as u64).collect()).collect();
        let tile = |at: &Vec<u64>| {
            let own: Vec<Vec<u64>> = at.iter().zip(&axes).map(|(n, spans)| spans[*n as usize].clone()).collect();
            product(&own)
        };
        product(&numbers).iter().map(tile).collect()
    }

    /// Returns the place in the array of the element at these coordinates of the box.
    fn place(&self, at: &[u64]) -> usize {
        let along = |axis: usize| self.start[axis] + self.step[axis] * at[axis];
        (0..at.len()).fold(0, |all, axis| all * self.within[axis] + along(axis)) as usize
    }

    fn view(&self) -> Option<&[u64]> {
        self.is_view.then_some(&self.within[..])
    }
}

/// Draws another shape of the same volume.
fn factored(rng: &mut Rng, mut left: u64) -> Vec<u64> {
    let mut shape = Vec::new();
    for _ in 0..rng.usize(0..3) {
        let divisors: Vec<u64> = (1..=left).filter(|n| left.is_multiple_of(*n)).collect();
        let factor = divisors[rng.usize(..divisors.len())];
        shape.push(factor);
        left /= factor;
    }
    shape.push(left);
    rng.shuffle(&mut shape);
    shape
}

fn tiles(rng: &mut Rng, count: &[u64]) -> Option<(Vec<u64>, Vec<u64>)> {
    let size: Vec<u64> = count.iter().map(|n| rng.u64(1..=n + 2)).collect();
    let first = size.iter().map(|n| rng.u64(1..=*n)).collect();
    rng.bool().then_some((first, size))
}

/// Draws a box of an array of some shape; returns the shape and the box.
fn source(rng: &mut Rng) -> (Vec<u64>, Region) {
    let shape: Vec<u64> = (0..rng.usize(1..5)).map(|_| rng.u64(1..8)).collect();
    let is_view = rng.bool();
    let within = if is_view { factored(rng, volume(&shape)) } else { shape.clone() };
    let (mut start, mut step, mut count) = (vec![], vec![], vec![]);
    for size in &within {
        let each = rng.u64(1..4);
        let most = size.div_ceil(each);
        let number = if rng.u8(..30) == 0 { 0 } else { rng.u64(1..=most) };
        let reach = each * number.saturating_sub(1);
        start.push(rng.u64(..size - reach));
        step.push(each);
        count.push(number);
    }
    let tiles = tiles(rng, &count);
    (shape, Region { within, is_view, start, step, count, tiles })
}

/// Draws a box with room for `elements` elements; returns the shape of its array and the box.
fn destination(rng: &mut Rng, elements: u64) -> (Vec<u64>, Region) {
    let count = if elements == 0 { vec![2, 0] } else { factored(rng, elements) };
    let start: Vec<u64> = count.iter().map(|_| rng.u64(..4)).collect();
    let within: Vec<u64> = count.iter().zip(&start).map(|(n, at)| at + n + rng.u64(..3) + u64::from(*n == 0)).collect();
    let is_view = rng.u8(..3) == 0;
    let shape = if is_view { factored(rng, volume(&within)) } else { within.clone() };
    let (step, tiles) = (vec![1; count.len()], tiles(rng, &count));
    (shape, Region { within, is_view, start, step, count, tiles })
}

fn create(device: &Device, rng: &mut Rng, name: &str, shape: &[u64]) -> (SpaceId, Vec<u64>) {
    let block: Vec<u64> = shape.iter().map(|n| rng.u64(1..=*n)).collect();
    let compression = [None, None, Some("lz4")][rng.usize(..3)];
    let (item_bytes, dtype) = (8, "<i8");
    let block = rng.bool().then_some(&block[..]);
    let new = NewSpace { name, shape, item_bytes, dtype, block, compression, key: None, fill: None, attrs: "{}" };
    let space = device.execute(command::Create(new)).unwrap().id;
    let values: Vec<u64> = (0..volume(shape)).map(|_| rng.u64(..)).collect();
    transfer(device, space, shape, &mut values.clone(), true);
    (space, values)
}

/// Writes all elements of a space, or reads them.
fn transfer(device: &Device, space: SpaceId, shape: &[u64], values: &mut [u64], writes: bool) {
    let (start, step) = (vec![0; shape.len()], vec![1; shape.len()]);
    let strides: Vec<isize> = (0..shape.len()).map(|d| 8 * volume(&shape[d + 1..]) as isize).collect();
    let target = Target::Box { start: &start, step: &step, count: shape, strides: &strides, view: None };
    let memory: *mut u8 = values.as_mut_ptr().cast();
    if writes {
        // SAFETY: the buffer has the elements of the space.
        device.execute(command::Write { space, target, source: unsafe { Source::from_raw(memory) } }).unwrap();
    } else {
        // SAFETY: as above.
        device.execute(command::Read { space, target, out: unsafe { BufferMut::from_raw(memory) } }).unwrap();
    }
}

/// Folds the hashes of runs of 16 tasks each, as the program by hand does.
fn hash(tasks: &[Vec<u64>]) -> u64 {
    let hash = |items: &[u64]| items.iter().fold(0u64, |h, x| h.wrapping_mul(31).wrapping_add(*x));
    let mut runs = tasks.chunks(16).map(|run| hash(&run.concat()));
    let first = runs.next().unwrap_or(0);
    runs.fold(first, |all, one| all.wrapping_mul(31).wrapping_add(one))
}

fn go(seed: u64, runtime: &Runtime, rng: &mut Rng) {
    let device = runtime.device();
    let ((from_shape, from), names) = (source(rng), [format!("from {seed}"), format!("to {seed}")]);
    let (to_shape, to) = destination(rng, volume(&from.count));
    let (input, values) = create(device, rng, &names[0], &from_shape);
    let (output, mut expected) = create(device, rng, &names[1], &to_shape);
    let axes: Vec<usize> = (0..from.count.len()).collect();
    let cut = |of: &Region| of.tiles.clone();
    let (from_tiles, to_tiles) = (cut(&from), cut(&to));
    let from_tiles = from_tiles.as_ref().map(|(first, size)| Tiles { first, size, extent_axes: &axes, halo: None });
    let to_tiles = to_tiles.as_ref().map(|(first, size)| Tiles { first, size, extent_axes: &[], halo: None });
    let inputs = [Input::Box {
        space: input,
        start: &from.start,
        step: &from.step,
        count: &from.count,
        view: from.view(),
        tiles: from_tiles,
    }];
    let place = Output::Box { space: output, start: &to.start, count: &to.count, view: to.view(), tiles: to_tiles };
    let outputs = [Some(place), Some(Output::Collect)];
    let program = runtime.load(&common::by_hand(), None).unwrap();
    let task_bytes = [1, 8, 24, 100, 1 << 20][rng.usize(..5)];
    let (form, scalars) = (Form::Interpreted, &[u64::MAX; 3][..]);
    let (inputs, outputs, instructions) = (&inputs[..], &outputs[..], None);
    let stages = [StageRequest { program, form, inputs, scalars, outputs, task_bytes, instructions, cores: &[] }];
    let (executor, progress) = (Threads(rng.usize(1..5)), Progress::default());
    let execution = Execution {
        stages: &stages,
        executor: &executor,
        hold_bytes: HOLD_BYTES,
        collect_bytes: u64::MAX,
        locks_at_end: false,
        progress: &progress,
    };
    let context = format!("seed {seed}: {from:?} of {from_shape:?} to {to:?} of {to_shape:?}, tasks of {task_bytes}");
    let done = runtime.execute(&execution).unwrap_or_else(|error| panic!("{error}, {context}"));
    runtime.unload(program).unwrap();

    let tasks: Vec<Vec<u64>> =
        from.order().iter().map(|tile| tile.iter().map(|at| values[from.place(at)]).collect()).collect();
    let tasks: Vec<Vec<u64>> = tasks.into_iter().filter(|tile| !tile.is_empty()).collect();
    for (at, value) in to.order().concat().iter().zip(tasks.concat()) {
        expected[to.place(at)] = value;
    }
    let mut found = vec![0; expected.len()];
    transfer(device, output, &to_shape, &mut found, false);
    let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!(differs, None, "the first element that differs, {context}");
    let elements = volume(&from.count);
    assert_eq!(done.stages[0].outputs[0], Some(OutputValue::Elements(elements)), "{context}");
    assert_eq!((done.account.bytes_in, done.account.bytes_out), (8 * elements, 8 * elements + 8), "{context}");
    if from.tiles.is_some() {
        // Each tile is a task.
        assert_eq!(done.account.tasks, tasks.len() as u64, "{context}");
        assert_eq!(done.stages[0].state, hash(&tasks).to_le_bytes(), "{context}");
    }
}

#[test]
fn boxes_of_any_kind_are_copied_as_index_arithmetic_says() {
    let store = Store::new();
    for seed in 0..250 {
        go(seed, &store.runtime, &mut Rng::with_seed(seed));
    }
    store.is_sound();
}
