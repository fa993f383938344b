//! Small reads by one call: the commonest index expressions, from what stood between the brackets to the elements.
//!
//! A read of one element takes half a microsecond in the engine, and several times that in Python's own lists and
//! tuples. Read here are integers and slices, lists of integers along an axis, flat index arrays along every axis, and
//! sub-blocks of views, of arrays of numbers and texts, into new memory or into an array of the same dtype. Whatever
//! else there is, and whatever is wrong, gives `None` and no error: `Array` and `View` then go the general way
//! (`nandarray.array.base`), which reads the expression, or says what is wrong with it. Both must agree; a test asks both
//! (`tests/python/test_get.py`).
//!
//! Nothing of Python is run while the engine's locks are held: an expression is taken apart first (`expression`), and
//! compared with the shape afterwards. The GIL is released while the engine reads, however little: what was in memory
//! before may have to be fetched.

use nandarray::device::{Command, Target};
use nandarray::stl::plan::Axis;
use nandarray::stl::read::BufferMut;
use numpy::npyffi::{self, NPY_ARRAY_WRITEABLE, NpyTypes, get_type_object, npy_intp};
use numpy::{PY_ARRAY_API, PyArrayDescr, PyArrayDescrMethods};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::expression::{DIMENSIONS, Lists, Part, Selected, array, gather, integers, part, shape_of, strides_of};
use crate::store::Space;

/// The most bytes of a result: beyond, Python's share of the time is none.
const MOST_BYTES: u64 = 16 << 20;

/// The most points of one command.
const MOST_POINTS: usize = 1 << 12;

/// The most bytes of an element that becomes a scalar.
const SCALAR_BYTES: usize = 64;

/// Reads what `key` selects, of the space or of the view of it with this shape: into `out`, which is given back, or
/// else into a new array or scalar. `None` if the expression, the dtype or `out` is not of the plain kind, or anything
/// is wrong with them.
#[pyfunction]
#[pyo3(signature = (space, key, dtype, out=None, view=None, outer=false))]
pub(crate) fn get<'py>(
    space: &Bound<'py, Space>,
    key: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyArrayDescr>,
    out: Option<&Bound<'py, PyAny>>,
    view: Option<&Bound<'py, PyTuple>>,
    outer: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = space.py();
    let mut shape = [0; DIMENSIONS];
    let Some(request) = Request::new(space, dtype, out, view, &mut shape) else { return Ok(None) };
    let lists = if outer { Lists::Outer } else { Lists::NumPy };
    // SAFETY: the objects are alive; the tuple's items live as long as it does.
    unsafe {
        if ffi::PyTuple_CheckExact(key.as_ptr()) == 0 {
            return match part(key) {
                Some(one) => request.selected(&[one], lists),
                None => Ok(None),
            };
        }
        let len = ffi::PyTuple_Size(key.as_ptr()) as usize;
        if len == 0 || len > DIMENSIONS {
            return Ok(None);
        }
        let mut at = [0; DIMENSIONS];
        if let Some(at) = if request.out.is_none() { integers(key, &mut at) } else { None } {
            if let Some(got) = request.element(at)? {
                return Ok(Some(got));
            }
        }
        let item = |i: usize| Bound::from_borrowed_ptr(py, ffi::PyTuple_GetItem(key.as_ptr(), i as isize));
        if len > 1 && !outer && (0..len).all(|i| array(&item(i)).is_some()) {
            return request.points(len, &item);
        }
        let mut parts = [const { Part::Integer(0) }; DIMENSIONS];
        for (i, place) in parts[..len].iter_mut().enumerate() {
            match part(&item(i)) {
                Some(part) => *place = part,
                None => return Ok(None),
            }
        }
        request.selected(&parts[..len], lists)
    }
}

/// Reads sub-block number `coordinate` of those of `sub_shape` that the view of this shape is cut into; else as
/// [`get`].
#[pyfunction]
#[pyo3(signature = (space, view, coordinate, sub_shape, dtype, out=None))]
pub(crate) fn get_sub_block<'py>(
    space: &Bound<'py, Space>,
    view: &Bound<'py, PyTuple>,
    coordinate: &Bound<'py, PyAny>,
    sub_shape: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyArrayDescr>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let [mut shape, mut at] = [[0; DIMENSIONS]; 2];
    let mut of = [0; DIMENSIONS];
    let Some(request) = Request::new(space, dtype, out, Some(view), &mut of) else { return Ok(None) };
    let (Some(at), Some(shape)) = (integers(coordinate, &mut at), integers(sub_shape, &mut shape)) else {
        return Ok(None);
    };
    request.found(&mut Selected::default(), |view, s| s.select_sub_block(at, shape, view))
}

struct Request<'a, 'py> {
    py: Python<'py>,
    space: &'a Space,
    dtype: &'a Bound<'py, PyArrayDescr>,
    out: Option<&'a Bound<'py, PyAny>>,
    /// The shape of the view that is read.
    view: Option<&'a [u64]>,
}

impl<'a, 'py> Request<'a, 'py> {
    fn new(
        space: &'a Bound<'py, Space>,
        dtype: &'a Bound<'py, PyArrayDescr>,
        out: Option<&'a Bound<'py, PyAny>>,
        view: Option<&Bound<'py, PyTuple>>,
        shape: &'a mut [u64; DIMENSIONS],
    ) -> Option<Self> {
        if !matches!(dtype.kind(), b'b' | b'i' | b'u' | b'f' | b'c' | b'm' | b'M' | b'S' | b'U') {
            return None;
        }
        let view = match view {
            None => None,
            Some(view) => {
                let mut sizes = [0; DIMENSIONS];
                let sizes = integers(view.as_any(), &mut sizes)?;
                for (to, &size) in shape.iter_mut().zip(sizes) {
                    *to = u64::try_from(size).ok()?;
                }
                Some(&shape[..sizes.len()])
            }
        };
        Some(Self { py: space.py(), space: space.get(), dtype, out, view })
    }

    fn selected(&self, parts: &[Part<'_>], lists: Lists) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.found(&mut Selected::default(), |shape, s| s.select(self.py, parts, shape, lists))
    }

    /// The shape that is read, of a space that has this one.
    fn shape<'s>(&self, of: &'s [u64]) -> Option<&'s [u64]>
    where
        'a: 's,
    {
        match self.view {
            Some(view) => (volume(view)? == volume(of)?).then_some(view),
            None => Some(of),
        }
    }

    /// Reads the element at integers, one for every axis: without a [`Selected`], which takes a tenth of the time to
    /// fill.
    fn element(&self, at: &[i64]) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (n, item) = (at.len(), self.dtype.itemsize());
        let mut start = [0; DIMENSIONS];
        let found = self.space.look(self.py, |space, record| {
            let shape = self.shape(record.shape())?;
            if shape.len() != n || n == 0 || space.shape.item_bytes != item || item > SCALAR_BYTES {
                return None;
            }
            for ((to, &at), &size) in start.iter_mut().zip(at).zip(shape) {
                let size = i64::try_from(size).ok()?;
                let at = if at < 0 { at + size } else { at };
                *to = (0..size).contains(&at).then_some(at as u64)?;
            }
            Some(())
        })?;
        if found.is_none() {
            return Ok(None);
        }
        let mut element = Element([0; SCALAR_BYTES]);
        let (start, ones) = (&start[..n], &[1; DIMENSIONS][..n]);
        let strides = &[1; DIMENSIONS][..n];
        self.send(Target::Box { start, step: ones, count: ones, strides, view: self.view }, element.0.as_mut_ptr())?;
        self.scalar(element).map(Some)
    }

    /// A NumPy scalar.
    fn scalar(&self, mut element: Element) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the element has the dtype's bytes, and no type among those let through keeps a reference to them.
        unsafe {
            let (descr, bytes) = (self.dtype.as_dtype_ptr(), element.0.as_mut_ptr().cast());
            let made = PY_ARRAY_API.PyArray_Scalar(self.py, bytes, descr, std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(self.py, made)
        }
    }

    /// Reads what `find` finds in the shape.
    fn found(
        &self,
        s: &mut Selected,
        find: impl FnOnce(&[u64], &mut Selected) -> Option<()>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let item = self.dtype.itemsize();
        let found = self.space.look(self.py, |space, record| {
            let shape = self.shape(record.shape())?;
            find(shape, s).filter(|()| space.shape.item_bytes == item)
        })?;
        if found.is_none() || s.bytes(item as u64) > MOST_BYTES || (self.view.is_some() && !s.lists.is_empty()) {
            return Ok(None);
        }
        let axes = &s.axes[..s.stay];
        let mut strides = [item as isize; DIMENSIONS];
        if self.out.is_none() && s.scalar {
            if item > SCALAR_BYTES {
                return Ok(None);
            }
            let mut element = Element([0; SCALAR_BYTES]);
            self.read(s, strides, element.0.as_mut_ptr())?;
            return self.scalar(element).map(Some);
        }
        let made;
        let (result, fields) = match self.out {
            Some(given) => {
                let fits = |(&len, &axis): (&npy_intp, &usize)| len as u64 == s.count[axis];
                let Some(fields) = self.fields(given) else { return Ok(None) };
                if fields.nd as usize != s.stay || !shape_of(fields).iter().zip(axes).all(fits) {
                    return Ok(None);
                }
                (given, fields)
            }
            None => {
                let mut shape = [0; DIMENSIONS];
                axes.iter().zip(&mut shape).for_each(|(&axis, len)| *len = s.count[axis] as npy_intp);
                made = self.empty(&mut shape[..s.stay])?;
                (&made, array(&made).expect("NumPy gives an array"))
            }
        };
        axes.iter().zip(strides_of(fields)).for_each(|(&axis, &stride)| strides[axis] = stride);
        self.read(s, strides, fields.data.cast())?;
        Ok(Some(result.clone()))
    }

    /// The fields of the array given, if it may be read into: looked at only when the key was taken apart, which may
    /// run Python code that changes them.
    fn fields<'f>(&self, given: &'f Bound<'py, PyAny>) -> Option<&'f npyffi::PyArrayObject_fields> {
        array(given).filter(|f| f.descr == self.dtype.as_dtype_ptr() && f.flags & NPY_ARRAY_WRITEABLE != 0)
    }

    /// Reads a selection whose elements lie at these strides from `first` on: in its order, or backwards.
    fn read(&self, s: &mut Selected, mut strides: [isize; DIMENSIONS], first: *mut u8) -> PyResult<()> {
        let n = s.dimensions;
        let mut offset = 0;
        for axis in (0..n).filter(|&axis| s.backwards[axis]) {
            offset += (s.count[axis] as isize - 1) * strides[axis];
            strides[axis] = -strides[axis];
        }
        let (first, strides) = (first.wrapping_offset(offset), &strides[..n]);
        let lists = std::mem::take(&mut s.lists);
        let (start, step, count) = (&s.start[..n], &s.step[..n], &s.count[..n]);
        if lists.is_empty() {
            return self.send(Target::Box { start, step, count, strides, view: self.view }, first);
        }
        if let Some(coordinates) = as_points(s, &lists, strides, self.dtype.itemsize()) {
            return self
                .send(Target::Points { coordinates: &coordinates, stride: self.dtype.itemsize() as isize }, first);
        }
        let range = |i: usize| Axis::Range { start: start[i], step: step[i], count: count[i] };
        let mut axes: Vec<Axis> = (0..n).map(range).collect();
        lists.into_iter().for_each(|(axis, list)| axes[axis] = Axis::List(list));
        self.send(Target::Outer { axes, strides }, first)
    }

    fn send(&self, target: Target<'_>, first: *mut u8) -> PyResult<()> {
        // SAFETY: the memory is an array's, which this call holds, or this call's own; the target's counts are its
        // shape.
        let out = unsafe { BufferMut::from_raw(first) };
        self.space.send(self.py, Command::Read { space: self.space.number(), target, out }).map(drop)
    }

    /// An array that NumPy allocates.
    fn empty(&self, shape: &mut [npy_intp]) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the dtype's reference that the function takes is a new one; it makes the strides and takes the memory
        // itself.
        unsafe {
            let made = PY_ARRAY_API.PyArray_NewFromDescr(
                self.py,
                get_type_object(self.py, NpyTypes::PyArray_Type),
                self.dtype.clone().into_dtype_ptr(),
                shape.len() as i32,
                shape.as_mut_ptr(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                0,
                std::ptr::null_mut(),
            );
            Bound::from_owned_ptr_or_err(self.py, made)
        }
    }

    /// Single elements: an index array along every one of `n` axes.
    fn points(&self, n: usize, item: &dyn Fn(usize) -> Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let first = item(0);
        if self.view.is_some() {
            return Ok(None);
        }
        let Some(points) = array(&first).filter(|a| a.nd == 1).map(|a| shape_of(a)[0] as usize) else {
            return Ok(None);
        };
        if points == 0 || points > MOST_POINTS {
            return Ok(None);
        }
        let item_bytes = self.dtype.itemsize();
        let shape = self.space.look(self.py, |space, record| {
            let mut shape = [0; DIMENSIONS];
            let fits = record.shape().len() == n && space.shape.item_bytes == item_bytes;
            fits.then(|| {
                shape[..n].copy_from_slice(record.shape());
                shape
            })
        })?;
        let Some(shape) = shape else { return Ok(None) };
        let mut coordinates = vec![0; points * n];
        for axis in 0..n {
            let indices = item(axis);
            let found = array(&indices).filter(|a| a.nd == 1 && shape_of(a)[0] as usize == points);
            let Some(indices) = found else { return Ok(None) };
            if !gather(self.py, indices, shape[axis], &mut coordinates[axis..], n) {
                return Ok(None);
            }
        }
        let made;
        let (result, fields) = match self.out {
            Some(given) => {
                let Some(fields) = self.fields(given) else { return Ok(None) };
                if fields.nd != 1 || shape_of(fields)[0] as usize != points {
                    return Ok(None);
                }
                (given, fields)
            }
            None => {
                made = self.empty(&mut [points as npy_intp])?;
                (&made, array(&made).expect("NumPy gives an array"))
            }
        };
        self.send(Target::Points { coordinates: &coordinates, stride: strides_of(fields)[0] }, fields.data.cast())?;
        Ok(Some(result.clone()))
    }
}

/// Memory of one element, as aligned as any number.
#[repr(align(16))]
struct Element([u8; SCALAR_BYTES]);

/// The coordinates of all elements, if they are few, none lies beside the next in the array, and all do in the buffer:
/// lists that are one task for each element cost more than points do.
fn as_points(s: &Selected, lists: &[(usize, Vec<u64>)], strides: &[isize], item_bytes: usize) -> Option<Vec<u64>> {
    let n = s.dimensions;
    let points = s.bytes(1);
    if points > MOST_POINTS as u64 || s.count[n - 1] > 1 && !lists.iter().any(|(axis, _)| *axis == n - 1) {
        return None;
    }
    let mut together = item_bytes as isize;
    for axis in (0..n).rev().filter(|&axis| s.count[axis] > 1) {
        if strides[axis] != together {
            return None;
        }
        together *= s.count[axis] as isize;
    }
    let mut coordinates = vec![0; points as usize * n];
    let mut inner = points;
    for axis in 0..n {
        inner /= s.count[axis];
        let list = lists.iter().find(|(of, _)| *of == axis).map(|(_, list)| list);
        for (point, to) in coordinates.iter_mut().skip(axis).step_by(n).enumerate() {
            let i = point as u64 / inner % s.count[axis];
            *to = list.map_or(s.start[axis] + i * s.step[axis], |list| list[i as usize]);
        }
    }
    Some(coordinates)
}

/// Elements of a shape, if they can be counted.
fn volume(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1u64, |n, &size| n.checked_mul(size))
}
