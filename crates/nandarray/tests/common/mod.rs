//! Shared by the tests of the engine: a model of a store in plain vectors, commands that act on both, and a generator
//! of commands.
//!
//! A [`Model`] is the expected content of a store: arrays as bytes in row-major order. An [`Op`] is one command,
//! applied to a device by [`Op::run`] and to a model by [`Op::tell`]; [`draw`] makes one that fits a model from a
//! single number, so that a list of numbers is a workload, and a shorter list a smaller one. [`read_all`] reads a
//! device's content into a model.
//!
//! This file does not decide which states are right after which fault; each test does.

#![allow(dead_code, reason = "every test file takes what it needs of this one")]

pub(crate) mod disk;
pub(crate) mod snapshots;

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use nandarray::{
    Axis, BufferMut, Change, CheckReport, Device, Error, Geometry, Media, Mode, NewSpace, Options, Result, Source,
    Target, command,
};

/// The key of every encrypted array in the tests.
pub(crate) const KEY: [u8; 32] = *b"the key of all encrypted arrays.";

/// The expected state of one array; `data` has its bytes in row-major order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    pub(crate) shape: Vec<u64>,
    pub(crate) item: usize,
    pub(crate) fill: Vec<u8>,
    pub(crate) attrs: String,
    pub(crate) data: Vec<u8>,
}

/// The expected content of a store: arrays by name.
pub(crate) type Model = BTreeMap<String, Array>;

/// A selection of elements, in the order in which they lie in the buffer.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Box {
        start: Vec<u64>,
        step: Vec<u64>,
        count: Vec<u64>,
        view: Option<Vec<u64>>,
    },
    Outer(Vec<Axis>),
    Points(Vec<u64>),
    /// Several boxes of one size, each given by its first coordinate.
    Boxes {
        starts: Vec<Vec<u64>>,
        step: Vec<u64>,
        count: Vec<u64>,
        view: Option<Vec<u64>>,
    },
}

/// One of several changes of names and attributes that a batch makes together.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Delete(String),
    Rename(String, String),
    Attrs(String, String),
}

impl Step {
    pub(crate) fn change(&self) -> Change<'_> {
        match self {
            Self::Delete(name) => Change::Delete { name },
            Self::Rename(from, to) => Change::Rename { from, to },
            Self::Attrs(name, attrs) => Change::SetAttrs { name, attrs },
        }
    }
}

/// A command of the tests, which can be applied to a device and to a model.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create {
        name: String,
        shape: Vec<u64>,
        item: usize,
        block: Option<Vec<u64>>,
        compression: Option<&'static str>,
        key: bool,
        fill: u8,
    },
    Write {
        name: String,
        part: Part,
        salt: u64,
    },
    Clear {
        name: String,
        start: Vec<u64>,
        count: Vec<u64>,
    },
    Resize {
        name: String,
        shape: Vec<u64>,
    },
    /// Grows an array by `more` along one axis; `salt` determines the new elements.
    Append {
        name: String,
        axis: usize,
        more: u64,
        salt: u64,
    },
    Batch(Vec<Step>),
    Delete {
        name: String,
    },
    Rename {
        from: String,
        to: String,
    },
    Attrs {
        name: String,
        attrs: String,
    },
    Flush,
    Compact,
    Reopen,
    /// Takes a snapshot; in a model its arrays have names of their own (`snapshots`).
    Snapshot(String),
    DeleteSnapshot(String),
}

pub(crate) fn volume(shape: &[u64]) -> usize {
    shape.iter().product::<u64>() as usize
}

/// Returns the byte strides of a row-major buffer of this shape.
pub(crate) fn strides(count: &[u64], item: usize) -> Vec<isize> {
    let mut out = vec![0; count.len()];
    let mut stride = item as isize;
    for (s, &n) in out.iter_mut().zip(count).rev() {
        *s = stride;
        stride *= n.max(1) as isize;
    }
    out
}

fn product(lists: &[Vec<u64>], shape: &[u64]) -> Vec<usize> {
    let mut out = vec![0usize];
    for (list, &size) in lists.iter().zip(shape) {
        out = out.iter().flat_map(|&o| list.iter().map(move |&i| o * size as usize + i as usize)).collect();
    }
    out
}

impl Part {
    /// Returns the part that is the whole of an array.
    pub(crate) fn all(shape: &[u64]) -> Self {
        Self::Box { start: vec![0; shape.len()], step: vec![1; shape.len()], count: shape.to_vec(), view: None }
    }

    pub(crate) fn boxed(start: &[u64], count: &[u64]) -> Self {
        Self::Box { start: start.to_vec(), step: vec![1; start.len()], count: count.to_vec(), view: None }
    }

    /// Returns the number of elements along each dimension of the buffer.
    pub(crate) fn count(&self, dimensions: usize) -> Vec<u64> {
        match self {
            Self::Box { count, .. } => count.clone(),
            Self::Outer(axes) => axes.iter().map(Axis::count).collect(),
            Self::Points(p) => vec![(p.len() / dimensions.max(1)) as u64],
            Self::Boxes { starts, count, .. } => [&[starts.len() as u64], &count[..]].concat(),
        }
    }

    /// Returns the row-major index in the array of each selected element, in the order of the buffer.
    pub(crate) fn elements(&self, shape: &[u64]) -> Vec<usize> {
        match self {
            Self::Box { start, step, count, view } => {
                let list = |i: usize| (0..count[i]).map(|k| start[i] + k * step[i]).collect();
                let lists: Vec<Vec<u64>> = (0..count.len()).map(list).collect();
                product(&lists, view.as_deref().unwrap_or(shape))
            }
            Self::Outer(axes) => {
                let list = |a: &Axis| match a {
                    Axis::Range { start, step, count } => (0..*count).map(|k| start + k * step).collect(),
                    Axis::List(list) => list.clone(),
                };
                product(&axes.iter().map(list).collect::<Vec<_>>(), shape)
            }
            Self::Boxes { starts, step, count, view } => {
                let one = |start: &Vec<u64>| {
                    let (start, step, count, view) = (start.clone(), step.clone(), count.clone(), view.clone());
                    Self::Box { start, step, count, view }.elements(shape)
                };
                starts.iter().flat_map(one).collect()
            }
            Self::Points(points) => {
                let one = |p: &[u64]| p.iter().zip(shape).fold(0, |o, (&i, &n)| o * n as usize + i as usize);
                points.chunks_exact(shape.len()).map(one).collect()
            }
        }
    }

    /// Calls `run` with the part as the target of an engine command.
    pub(crate) fn target<T>(&self, dimensions: usize, strides: &[isize], run: impl FnOnce(Target<'_>) -> T) -> T {
        match self {
            Self::Box { start, step, count, view } => {
                run(Target::Box { start, step, count, strides, view: view.as_deref() })
            }
            Self::Outer(axes) => run(Target::Outer { axes, strides }),
            Self::Boxes { starts, step, count, view } => {
                let starts = &starts.concat();
                let (stride, strides) = (strides[0], &strides[1..]);
                run(Target::Boxes { starts, step, count, strides, stride, view: view.as_deref() })
            }
            Self::Points(p) => {
                assert!(dimensions > 0, "a scalar has no points");
                run(Target::Points { coordinates: p, stride: strides[0] })
            }
        }
    }
}

/// Returns the bytes that a write with this salt writes: the fill value for salt 0, compressible bytes if the salt
/// modulo 4 is 1, otherwise noise.
pub(crate) fn content(salt: u64, elements: usize, fill: &[u8]) -> Vec<u8> {
    let bytes = elements * fill.len();
    match salt {
        0 => fill.iter().copied().cycle().take(bytes).collect(),
        s if s % 4 == 1 => (0..bytes).map(|i| (i / 64) as u8 ^ s as u8 | 1).collect(),
        s => {
            let mut rng = Rng::with_seed(s);
            (0..bytes).map(|_| rng.u8(1..)).collect()
        }
    }
}

/// Reads a part of an array into a row-major buffer.
pub(crate) fn read(device: &Device, name: &str, part: &Part) -> Result<Vec<u8>> {
    let space = open_space(device, name)?;
    let (shape, item) = {
        let inner = space.peek();
        (inner.record.shape().to_vec(), inner.record.item_bytes as usize)
    };
    let count = part.count(shape.len());
    let mut out = vec![0xa5u8; volume(&count) * item];
    // SAFETY: the buffer has room for every element at row-major strides.
    let buffer = unsafe { BufferMut::from_raw(out.as_mut_ptr()) };
    part.target(shape.len(), &strides(&count, item), |target| {
        device.execute(command::Read { space: space.id, target, out: buffer })
    })?;
    Ok(out)
}

/// Writes a row-major buffer to a part of an array.
pub(crate) fn write(device: &Device, name: &str, part: &Part, bytes: &[u8]) -> Result<()> {
    let space = open_space(device, name)?;
    let (dimensions, item) = {
        let inner = space.peek();
        (inner.record.shape().len(), inner.record.item_bytes as usize)
    };
    let count = part.count(dimensions);
    assert_eq!(bytes.len(), volume(&count) * item);
    // SAFETY: the buffer holds every element at row-major strides.
    let source = unsafe { Source::from_raw(bytes.as_ptr()) };
    part.target(dimensions, &strides(&count, item), |target| {
        device.execute(command::Write { space: space.id, target, source })
    })?;
    Ok(())
}

/// Grows an array along an axis by the elements in a buffer; returns the new shape.
pub(crate) fn append(
    device: &Device,
    name: &str,
    axis: usize,
    count: &[u64],
    strides: &[isize],
    bytes: &[u8],
) -> Result<Vec<u64>> {
    let space = open_space(device, name)?.id;
    // SAFETY: the buffer holds every element at these strides.
    let source = unsafe { Source::from_raw(bytes.as_ptr()) };
    device.execute(command::Append { space, axis, count, strides, source })
}

/// Opens an array, with [`KEY`] if it is encrypted.
pub(crate) fn open_space(device: &Device, name: &str) -> Result<Arc<nandarray::Space>> {
    if let Some((snapshot, name)) = snapshots::parts(name) {
        let key = device.describe_at(snapshot, name)?.encrypted().then_some(&KEY[..]);
        return device.execute(command::OpenAt { snapshot, name, key });
    }
    let key = device.describe(name)?.encrypted().then_some(&KEY[..]);
    device.execute(command::Open { name, key })
}

pub(crate) fn names(device: &Device) -> Vec<String> {
    device.execute(command::List { prefix: "" }).expect("a store lists its names")
}

pub(crate) fn number(device: &Device, name: &str) -> u64 {
    let numbers = device.execute(command::Stat).expect("a store has numbers");
    numbers.iter().find(|n| n.0 == name).expect("a known number").1
}

/// Reads a whole array with its metadata.
pub(crate) fn read_array(device: &Device, name: &str) -> Result<Array> {
    let record = open_space(device, name)?.peek().record.clone();
    let shape = record.shape().to_vec();
    let data = read(device, name, &Part::all(&shape))?;
    Ok(Array { shape, item: record.item_bytes as usize, fill: record.fill, attrs: record.attrs, data })
}

/// Reads all arrays of a store, and those of its snapshots.
pub(crate) fn read_all(device: &Device) -> Result<Model> {
    let live = names(device).into_iter().map(|name| Ok((name.clone(), read_array(device, &name)?)));
    live.chain(snapshots::read_all(device)?.into_iter().map(Ok)).collect()
}

pub(crate) fn check(device: &Device, repair: bool) -> Result<CheckReport> {
    // Encrypted arrays are decoded only when they are open.
    for name in names(device).into_iter().chain(snapshots::names(device)) {
        let _ = open_space(device, &name);
    }
    device.execute(command::Check { repair, accept_older: false })
}

/// Panics if a check of the store finds a fault.
pub(crate) fn assert_sound(device: &Device, context: &dyn Fn() -> String) {
    let report = check(device, false).unwrap_or_else(|e| panic!("check failed: {e}; {}", context()));
    assert!(report.findings.is_empty(), "check found {:?}; {}", report.findings, context());
}

/// Panics unless the store's content is that of the model; the message describes the first difference only.
pub(crate) fn assert_holds(device: &Device, model: &Model, context: &dyn Fn() -> String) {
    let found = read_all(device).unwrap_or_else(|e| panic!("reading failed: {e}; {}", context()));
    if let Some(what) = difference(&found, model) {
        panic!("{what}; {}", context());
    }
}

/// Describes the first difference between two stores; `None` if they are equal.
pub(crate) fn difference(found: &Model, expected: &Model) -> Option<String> {
    let names = |m: &Model| m.keys().cloned().collect::<Vec<_>>();
    if names(found) != names(expected) {
        return Some(format!("arrays {:?} instead of {:?}", names(found), names(expected)));
    }
    found.iter().find_map(|(name, a)| {
        let b = &expected[name];
        if (&a.shape, a.item, &a.fill, &a.attrs) != (&b.shape, b.item, &b.fill, &b.attrs) {
            return Some(format!("array {name:?} is {:?} {:?}, not {:?} {:?}", a.shape, a.attrs, b.shape, b.attrs));
        }
        let wrong: Vec<usize> = (0..a.data.len()).filter(|&i| a.data[i] != b.data[i]).collect();
        let first = *wrong.first()?;
        let element = first / a.item;
        Some(format!(
            "array {name:?} of shape {:?} differs in {} of {} bytes, first in element {element} ({:?} instead of {:?})",
            a.shape,
            wrong.len(),
            a.data.len(),
            &a.data[element * a.item..][..a.item],
            &b.data[element * b.item..][..b.item],
        ))
    })
}

impl Op {
    /// Creates an array of bytes with every option left out.
    pub(crate) fn bytes(name: impl Into<String>, shape: &[u64]) -> Self {
        let (name, shape) = (name.into(), shape.to_vec());
        Self::Create { name, shape, item: 1, block: None, compression: None, key: false, fill: 0 }
    }

    /// Applies the command to a device. The caller must handle [`Op::Reopen`].
    pub(crate) fn run(&self, device: &Device) -> Result<()> {
        match self {
            Self::Create { name, shape, item, block, compression, key, fill } => {
                let fill = vec![*fill; *item];
                device.execute(command::Create(NewSpace {
                    name,
                    shape,
                    item_bytes: *item as u32,
                    dtype: "|V",
                    block: block.as_deref(),
                    compression: *compression,
                    key: key.then_some(&KEY[..]),
                    fill: Some(&fill),
                    attrs: "{}",
                }))?;
            }
            Self::Write { name, part, salt } => {
                let record = device.describe(name)?.peek().record.clone();
                let n = volume(&part.count(record.shape().len()));
                write(device, name, part, &content(*salt, n, &record.fill))?;
            }
            Self::Clear { name, start, count } => {
                let space = open_space(device, name)?.id;
                device.execute(command::Deallocate { space, start, count })?;
            }
            Self::Resize { name, shape } => {
                let space = open_space(device, name)?.id;
                device.execute(command::Resize { space, shape })?;
            }
            Self::Append { name, axis, more, salt } => {
                let space = open_space(device, name)?;
                let (mut count, item, fill) = {
                    let record = &space.peek().record;
                    (record.shape().to_vec(), record.item_bytes as usize, record.fill.clone())
                };
                count[*axis] = *more;
                let bytes = content(*salt, volume(&count), &fill);
                append(device, name, *axis, &count, &strides(&count, item), &bytes)?;
            }
            Self::Batch(steps) => {
                let changes: Vec<Change<'_>> = steps.iter().map(Step::change).collect();
                device.execute(command::Batch { changes: &changes })?;
            }
            Self::Delete { name } => device.execute(command::Delete { name })?,
            Self::Rename { from, to } => device.execute(command::Rename { from, to })?,
            Self::Attrs { name, attrs } => {
                let space = open_space(device, name)?.id;
                device.execute(command::SetAttrs { space, attrs })?;
            }
            Self::Flush => device.execute(command::Flush)?,
            Self::Compact => drop(device.execute(command::Compact)?),
            Self::Reopen => unreachable!("the caller opens stores"),
            Self::Snapshot(name) => device.execute(command::TakeSnapshot { name, time: 1 })?,
            Self::DeleteSnapshot(name) => device.execute(command::DeleteSnapshot { name })?,
        }
        Ok(())
    }

    /// Applies the command to a model.
    pub(crate) fn tell(&self, model: &mut Model) {
        match self {
            Self::Create { name, shape, item, fill, .. } => {
                let fill = vec![*fill; *item];
                let data = content(0, volume(shape), &fill);
                let array = Array { shape: shape.clone(), item: *item, fill, attrs: "{}".to_owned(), data };
                assert!(model.insert(name.clone(), array).is_none());
            }
            Self::Write { name, part, salt } => {
                let a = model.get_mut(name).expect("the array is there");
                let elements = part.elements(&a.shape);
                let bytes = content(*salt, elements.len(), &a.fill);
                put(a, &elements, &bytes);
            }
            Self::Clear { name, start, count } => {
                let a = model.get_mut(name).expect("the array is there");
                let elements = Part::boxed(start, count).elements(&a.shape);
                let bytes = content(0, elements.len(), &a.fill);
                put(a, &elements, &bytes);
            }
            Self::Resize { name, shape } => {
                let a = model.get_mut(name).expect("the array is there");
                let mut new = content(0, volume(shape), &a.fill);
                let kept: Vec<u64> = a.shape.iter().zip(shape).map(|(x, y)| *x.min(y)).collect();
                let part = Part::all(&kept);
                for (from, to) in part.elements(&a.shape).into_iter().zip(part.elements(shape)) {
                    new[to * a.item..][..a.item].copy_from_slice(&a.data[from * a.item..][..a.item]);
                }
                (a.shape, a.data) = (shape.clone(), new);
            }
            Self::Append { name, axis, more, salt } => {
                let shape = model[name].shape.clone();
                let (mut start, mut count, mut grown) = (vec![0; shape.len()], shape.clone(), shape);
                (start[*axis], count[*axis]) = (grown[*axis], *more);
                grown[*axis] += more;
                Self::Resize { name: name.clone(), shape: grown }.tell(model);
                Self::Write { name: name.clone(), part: Part::boxed(&start, &count), salt: *salt }.tell(model);
            }
            Self::Batch(steps) => {
                for step in steps {
                    match step.clone() {
                        Step::Delete(name) => Self::Delete { name },
                        Step::Rename(from, to) => Self::Rename { from, to },
                        Step::Attrs(name, attrs) => Self::Attrs { name, attrs },
                    }
                    .tell(model);
                }
            }
            Self::Delete { name } => drop(model.remove(name).expect("the array is there")),
            Self::Rename { from, to } => {
                let a = model.remove(from).expect("the array is there");
                assert!(model.insert(to.clone(), a).is_none());
            }
            Self::Attrs { name, attrs } => {
                attrs.clone_into(&mut model.get_mut(name).expect("the array is there").attrs)
            }
            Self::Flush | Self::Compact | Self::Reopen => {}
            Self::Snapshot(name) => snapshots::take(name, model),
            Self::DeleteSnapshot(name) => snapshots::delete(name, model),
        }
    }

    /// Whether everything written before this command is durable when it has returned.
    pub(crate) fn flushes(&self) -> bool {
        matches!(self, Self::Flush | Self::Compact | Self::Reopen)
    }
}

/// Stores elements of a buffer in an array, at these indices.
pub(crate) fn put(a: &mut Array, elements: &[usize], bytes: &[u8]) {
    for (&e, b) in elements.iter().zip(bytes.chunks_exact(a.item)) {
        a.data[e * a.item..][..a.item].copy_from_slice(b);
    }
}

/// Returns the elements of an array at these indices, as bytes in this order.
pub(crate) fn take(a: &Array, elements: &[usize]) -> Vec<u8> {
    elements.iter().flat_map(|&e| &a.data[e * a.item..][..a.item]).copied().collect()
}

/// Limits on the arrays and commands that [`draw`] may draw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taste {
    /// Largest size of an array, in bytes.
    pub(crate) array_bytes: usize,
    /// Largest number of arrays at a time.
    pub(crate) arrays: usize,
    /// Whether arrays may be compressed or encrypted.
    pub(crate) coded: bool,
    /// Whether [`Op::Reopen`] may be drawn.
    pub(crate) reopen: bool,
    /// Whether snapshots may be taken and deleted.
    pub(crate) snapshots: bool,
}

impl Taste {
    pub(crate) const SMALL: Self = Self { array_bytes: 12_000, arrays: 4, coded: true, reopen: true, snapshots: false };

    pub(crate) const SNAPSHOTS: Self = Self { snapshots: true, ..Self::SMALL };
}

fn range(rng: &mut Rng, size: u64, steps: bool) -> (u64, u64, u64) {
    match rng.u8(..4) {
        0 => (0, 1, size),
        1 => {
            let start = rng.u64(..size);
            (start, 1, rng.u64(1..=size - start))
        }
        2 if steps => {
            let (start, step) = (rng.u64(..size), rng.u64(1..6));
            let most = (size - start - 1) / step + 1;
            (start, step, rng.u64(1..=most))
        }
        _ => (rng.u64(..size), 1, 1),
    }
}

/// Draws the shape of a view with the same number of elements: prime factors of the shape, joined and split at random.
pub(crate) fn draw_view(rng: &mut Rng, shape: &[u64]) -> Vec<u64> {
    let mut primes = Vec::new();
    for &side in shape {
        let (mut rest, mut p) = (side, 2);
        while rest > 1 {
            while rest % p == 0 {
                primes.push(p);
                rest /= p;
            }
            p += 1;
        }
    }
    if rng.bool() {
        rng.shuffle(&mut primes);
    }
    let mut view: Vec<u64> = vec![1];
    for p in primes {
        if rng.u8(..3) == 0 && view.len() < 5 { view.push(p) } else { *view.last_mut().expect("never empty") *= p }
    }
    view
}

/// Draws a part of an array of this shape, all sides of which are at least 1; `write` is whether the part will be
/// written.
pub(crate) fn draw_part(rng: &mut Rng, shape: &[u64], write: bool) -> Part {
    let boxed = |rng: &mut Rng, within: &[u64], view: Option<Vec<u64>>| {
        let r: Vec<_> = within.iter().map(|&n| range(rng, n, true)).collect();
        Part::Box {
            start: r.iter().map(|x| x.0).collect(),
            step: r.iter().map(|x| x.1).collect(),
            count: r.iter().map(|x| x.2).collect(),
            view,
        }
    };
    match rng.u8(..9) {
        0 => {
            let view = draw_view(rng, shape);
            boxed(rng, &view.clone(), Some(view))
        }
        8 if !shape.is_empty() => {
            let view = (rng.u8(..3) == 0).then(|| draw_view(rng, shape));
            let within = view.as_deref().unwrap_or(shape);
            let points: Vec<bool> = within.iter().map(|_| rng.bool()).collect();
            let ranges: Vec<_> = within.iter().map(|&n| range(rng, n, true)).collect();
            let one = |rng: &mut Rng| {
                let at = |i: usize, rng: &mut Rng| if points[i] { rng.u64(..within[i]) } else { ranges[i].0 };
                (0..within.len()).map(|i| at(i, rng)).collect()
            };
            let starts: Vec<Vec<u64>> = (0..rng.usize(1..9)).map(|_| one(rng)).collect();
            let step = ranges.iter().map(|r| r.1).collect();
            let count = (0..within.len()).map(|i| if points[i] { 1 } else { ranges[i].2 }).collect();
            Part::Boxes { starts, step, count, view }
        }
        1 if !shape.is_empty() => {
            let axis = |&n: &u64| {
                if rng.bool() {
                    let (start, step, count) = range(rng, n, true);
                    Axis::Range { start, step, count }
                } else {
                    let mut list: Vec<u64> = (0..rng.u64(1..=n.min(9))).map(|_| rng.u64(..n)).collect();
                    if write && rng.bool() {
                        list.sort_unstable();
                        list.dedup();
                    }
                    Axis::List(list)
                }
            };
            Part::Outer(shape.iter().map(axis).collect())
        }
        2 if !shape.is_empty() => {
            let points = rng.usize(1..12);
            Part::Points((0..points).flat_map(|_| shape.iter().map(|&n| rng.u64(..n)).collect::<Vec<_>>()).collect())
        }
        3 => Part::all(shape),
        _ => boxed(rng, shape, None),
    }
}

fn draw_shape(rng: &mut Rng, dimensions: usize, elements: u64) -> Vec<u64> {
    let mut left = elements.max(1);
    let mut shape: Vec<u64> = (0..dimensions)
        .map(|i| {
            let most = (left as f64).powf(1.0 / (dimensions - i) as f64).ceil() as u64 * 2;
            let n = rng.u64(1..=most.min(left));
            left /= n;
            n
        })
        .collect();
    rng.shuffle(&mut shape);
    shape
}

/// Draws the creation of an array with one of the names `fresh`, which are unused.
fn draw_create(rng: &mut Rng, fresh: &[String], taste: &Taste) -> Op {
    let item = [1, 2, 3, 4, 5, 7, 8, 12, 16, 17][rng.usize(..10)];
    let dimensions = rng.usize(0..4);
    let elements = rng.usize(1..=taste.array_bytes / item) as u64;
    let shape = draw_shape(rng, dimensions, elements);
    let coded = taste.coded && rng.u8(..3) == 0;
    let compression = coded.then(|| ["lz4", "zstd:1", "lz4+shuffle", "zstd:3+bitshuffle"][rng.usize(..4)]);
    Op::Create {
        name: fresh[rng.usize(..fresh.len())].clone(),
        block: (rng.u8(..3) == 0).then(|| shape.iter().map(|&n| rng.u64(1..=n.min(40))).collect()),
        shape,
        item,
        compression,
        key: taste.coded && rng.u8(..6) == 0,
        fill: if rng.u8(..4) == 0 { 0x5a } else { 0 },
    }
}

/// Draws changes of the arrays `left`, which may be renamed to the names `free`.
fn draw_batch(rng: &mut Rng, mut left: Vec<String>, mut free: Vec<String>) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..rng.u8(1..5) {
        let i = rng.usize(..left.len());
        match rng.u8(..4) {
            0 if left.len() > 1 => {
                steps.push(Step::Delete(left[i].clone()));
                free.push(left.swap_remove(i));
            }
            1..=2 if !free.is_empty() => {
                let to = free.swap_remove(rng.usize(..free.len()));
                steps.push(Step::Rename(left[i].clone(), to.clone()));
                free.push(std::mem::replace(&mut left[i], to));
            }
            _ => steps.push(Step::Attrs(left[i].clone(), format!("{{\"m\":{}}}", rng.u8(..)))),
        }
    }
    steps
}

/// Draws a command that fits the model; the same number gives the same command.
pub(crate) fn draw(number: u64, model: &Model, taste: &Taste) -> Op {
    let rng = &mut Rng::with_seed(number);
    let (model, kept) = snapshots::split(model);
    let name_of = |i: usize| format!("group/a{i}");
    let fresh: Vec<String> = (0..taste.arrays).map(name_of).filter(|n| !model.contains_key(n)).collect();
    let some = |rng: &mut Rng| model.keys().nth(rng.usize(..model.len())).expect("within").clone();
    let kind = rng.u8(..32);
    if model.is_empty() || (!fresh.is_empty() && kind < 3) {
        return draw_create(rng, &fresh, taste);
    }
    let name = some(rng);
    let shape = model[&name].shape.clone();
    let empty = shape.contains(&0);
    match kind {
        3 if model.len() > 1 => Op::Delete { name },
        4 if !fresh.is_empty() => Op::Rename { from: name, to: fresh[rng.usize(..fresh.len())].clone() },
        5 => Op::Attrs { name, attrs: format!("{{\"n\":{}}}", rng.u8(..)) },
        6..=8 => Op::Flush,
        9 => Op::Compact,
        10 if taste.reopen => Op::Reopen,
        11..=13 if !shape.is_empty() => {
            let most = taste.array_bytes / model[&name].item;
            let mut to: Vec<u64> = shape.iter().map(|&n| if rng.bool() { n } else { rng.u64(0..=n * 2 + 2) }).collect();
            while volume(&to) > most {
                let widest = (0..to.len()).max_by_key(|&i| to[i]).expect("it has dimensions");
                to[widest] /= 2;
            }
            Op::Resize { name, shape: to }
        }
        15..=17 if !shape.is_empty() => {
            let axis = rng.usize(..shape.len());
            let rest: u64 = (0..shape.len()).filter(|&i| i != axis).map(|i| shape[i].max(1)).product();
            let most = (taste.array_bytes / model[&name].item) as u64 / rest;
            let more = rng.u64(0..=most.saturating_sub(shape[axis]).min(shape[axis] + 20));
            Op::Append { name, axis, more, salt: rng.u64(..) }
        }
        18 => Op::Batch(draw_batch(rng, model.keys().cloned().collect(), fresh)),
        14 if !shape.is_empty() && !empty => {
            let r: Vec<_> = shape.iter().map(|&n| range(rng, n, false)).collect();
            Op::Clear { name, start: r.iter().map(|x| x.0).collect(), count: r.iter().map(|x| x.2).collect() }
        }
        19..=21 if taste.snapshots => snapshots::draw(rng, &kept),
        _ if empty => Op::Flush,
        _ => Op::Write {
            name,
            part: draw_part(rng, &shape, true),
            salt: if rng.u8(..12) == 0 { 0 } else { rng.u64(1..) },
        },
    }
}

/// Returns options for small stores that give the same trace on every run.
pub(crate) fn options(geometry: Geometry, entropy: u64) -> Options {
    Options { geometry, threads: Some(1), entropy, ..Options::default() }
}

pub(crate) fn open(media: Arc<dyn Media>, mode: Mode, options: &Options) -> Result<Device> {
    Device::open(media, "the test's store", mode, options)
}

/// Whether an error means that the store is full.
pub(crate) fn is_full(error: &Error) -> bool {
    matches!(error, Error::Full { .. })
}

/// Returns the number of rounds of a test: `deep` with the environment variable `NANDARRAY_DEEP`, otherwise `usual`.
pub(crate) fn rounds(usual: u64, deep: u64) -> u64 {
    if std::env::var_os("NANDARRAY_DEEP").is_some() { deep } else { usual }
}

/// Returns the configuration of property tests that use the same examples on every run, or, with `NANDARRAY_DEEP`, more
/// and random ones.
pub(crate) fn config(cases: u32) -> proptest::test_runner::Config {
    use proptest::test_runner::{Config, RngSeed};
    let deep = std::env::var_os("NANDARRAY_DEEP").is_some();
    let rng_seed = if deep { RngSeed::Random } else { RngSeed::Fixed(20) };
    Config { cases: if deep { 30 * cases } else { cases }, rng_seed, failure_persistence: None, ..Config::default() }
}

/// Runs `f` in a thread and returns its result; panics if that takes longer than `seconds`.
pub(crate) fn within<T: Send + 'static>(seconds: u64, what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let got = f();
        let _ = done.send(());
        got
    });
    match wait.recv_timeout(std::time::Duration::from_secs(seconds)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{what}: not done after {seconds} s"),
        _ => match thread.join() {
            Ok(got) => got,
            Err(panic) => std::panic::resume_unwind(panic),
        },
    }
}
