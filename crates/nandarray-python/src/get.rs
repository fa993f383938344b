//! Small reads by one call: the commonest index expressions, from what stood between the brackets to the elements.
//!
//! A read of one element takes half a microsecond in the engine, and several times that in Python's own lists and tuples. Read
//! here are integers and forward slices, and flat index arrays along every axis, of arrays of numbers and texts, into new memory
//! or into an array of the same dtype. Whatever else there is, and whatever is wrong, gives `None` and no error: `Array` then
//! goes the general way (`nandarray._grid`), which reads the expression, or says what is wrong with it. Both must agree; a test
//! asks both (`tests/python/test_get.py`).
//!
//! Nothing of Python is run while the engine's locks are held: an expression is taken apart first, and compared with the shape
//! afterwards. The GIL is released while the engine reads, however little: what was in memory before may have to be fetched.

use nandarray::device::{Command, Target};
use nandarray::stl::read::BufferMut;
use numpy::npyffi::{self, NPY_ARRAY_WRITEABLE, NpyTypes, PyArrayObject, get_type_object, npy_intp};
use numpy::{PY_ARRAY_API, PyArrayDescr, PyArrayDescrMethods};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::store::Space;

/// The most dimensions.
const DIMENSIONS: usize = 8;

/// The most bytes of a result: beyond, Python's share of the time is none.
const MOST_BYTES: u64 = 16 << 20;

/// The most points of one command.
const MOST_POINTS: usize = 1 << 12;

/// The most bytes of an element that becomes a scalar.
const SCALAR_BYTES: usize = 64;

/// One part of an index expression.
#[derive(Clone, Copy)]
enum Part {
    Integer(i64),
    /// Start, stop and step, not compared with a length yet.
    Slice(isize, isize, isize),
}

/// A selection by integers and forward slices, compared with a shape.
#[derive(Default)]
struct Selected {
    dimensions: usize,
    start: [u64; DIMENSIONS],
    step: [u64; DIMENSIONS],
    count: [u64; DIMENSIONS],
    /// The axis of each dimension of the result, and how many there are.
    axes: [usize; DIMENSIONS],
    stay: usize,
}

impl Selected {
    /// `None` for what is not within the shape, and for what selects nothing.
    fn new(parts: &[Part], shape: &[u64]) -> Option<Self> {
        if parts.len() > shape.len() || shape.is_empty() || shape.len() > DIMENSIONS {
            return None;
        }
        let mut s = Self { dimensions: shape.len(), ..Self::default() };
        for (axis, &size) in shape.iter().enumerate() {
            let size = i64::try_from(size).ok()?;
            let (start, step, count) = match parts.get(axis).copied().unwrap_or(Part::Slice(0, isize::MAX, 1)) {
                Part::Integer(at) => {
                    let at = if at < 0 { at + size } else { at };
                    (0..size).contains(&at).then_some((at, 1, 1))?
                }
                Part::Slice(mut start, mut stop, step) => {
                    if step < 1 {
                        return None;
                    }
                    // SAFETY: plain arithmetic on these numbers.
                    let count = unsafe { ffi::PySlice_AdjustIndices(size as isize, &mut start, &mut stop, step) };
                    s.axes[s.stay] = axis;
                    s.stay += 1;
                    // One element needs no step, which may lead out of the axis.
                    (start as i64, if count > 1 { step as i64 } else { 1 }, count as i64)
                }
            };
            if count == 0 {
                return None;
            }
            (s.start[axis], s.step[axis], s.count[axis]) = (start as u64, step as u64, count as u64);
        }
        Some(s)
    }

    fn is_scalar(&self, parts: &[Part]) -> bool {
        self.stay == 0 && parts.len() == self.dimensions
    }

    fn bytes(&self, item_bytes: u64) -> u64 {
        self.count[..self.dimensions].iter().fold(item_bytes, |n, c| n.saturating_mul(*c))
    }
}

/// Takes a part of an expression apart; `None` for anything but an integer or a slice of integers.
fn part(item: &Bound<'_, PyAny>) -> Option<Part> {
    let (py, object) = (item.py(), item.as_ptr());
    // SAFETY: the object is alive, and of the type that each function is called for; errors are cleared.
    unsafe {
        if ffi::PyLong_CheckExact(object) != 0 {
            return integer(object);
        }
        if ffi::PySlice_Check(object) != 0 {
            let (mut start, mut stop, mut step) = (0, 0, 0);
            if ffi::PySlice_Unpack(object, &mut start, &mut stop, &mut step) < 0 {
                ffi::PyErr_Clear();
                return None;
            }
            return Some(Part::Slice(start, stop, step));
        }
        if ffi::PyObject_TypeCheck(object, get_type_object(py, NpyTypes::PyIntegerArrType_Type)) != 0 {
            let Some(index) = Bound::from_owned_ptr_or_opt(py, ffi::PyNumber_Index(object)) else {
                ffi::PyErr_Clear();
                return None;
            };
            return integer(index.as_ptr());
        }
    }
    None
}

/// # Safety
/// The object must be a Python integer that is alive.
unsafe fn integer(object: *mut ffi::PyObject) -> Option<Part> {
    let mut beyond = 0;
    // SAFETY: the caller's promise.
    let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(object, &mut beyond) };
    (beyond == 0).then_some(Part::Integer(value))
}

/// The fields of an array, if this is one, and none of a subclass.
fn array<'a>(item: &'a Bound<'_, PyAny>) -> Option<&'a npyffi::PyArrayObject_fields> {
    // SAFETY: checked to be an array object, whose fields live as long as it does.
    unsafe {
        (npyffi::PyArray_CheckExact(item.py(), item.as_ptr()) != 0)
            .then(|| &(*item.as_ptr().cast::<PyArrayObject>()).fields)
    }
}

/// An array's shape.
fn shape_of(fields: &npyffi::PyArrayObject_fields) -> &[npy_intp] {
    if fields.nd == 0 {
        return &[];
    }
    // SAFETY: NumPy keeps `nd` numbers there.
    unsafe { std::slice::from_raw_parts(fields.dimensions, fields.nd as usize) }
}

fn strides_of(fields: &npyffi::PyArrayObject_fields) -> &[npy_intp] {
    if fields.nd == 0 {
        return &[];
    }
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(fields.strides, fields.nd as usize) }
}

/// Reads what `key` selects: into `out`, which is given back, or else into a new array or scalar. `None` if the expression, the
/// dtype or `out` is not of the plain kind, or anything is wrong with them.
#[pyfunction]
#[pyo3(signature = (space, key, dtype, out=None))]
pub(crate) fn get<'py>(
    space: &Bound<'py, Space>,
    key: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyArrayDescr>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (py, own) = (space.py(), space.get());
    if !matches!(dtype.kind(), b'b' | b'i' | b'u' | b'f' | b'c' | b'm' | b'M' | b'S' | b'U') {
        return Ok(None);
    }
    let request = Request { py, space: own, dtype, out };
    // SAFETY: the objects are alive; the tuple's items live as long as it does.
    unsafe {
        if ffi::PyTuple_CheckExact(key.as_ptr()) == 0 {
            return match part(key) {
                Some(one) => request.boxed(&[one]),
                None => Ok(None),
            };
        }
        let len = ffi::PyTuple_Size(key.as_ptr()) as usize;
        if len == 0 || len > DIMENSIONS {
            return Ok(None);
        }
        let item = |i: usize| Bound::from_borrowed_ptr(py, ffi::PyTuple_GetItem(key.as_ptr(), i as isize));
        if len > 1 && array(&item(0)).is_some() {
            return request.points(len, &item);
        }
        let mut parts = [Part::Integer(0); DIMENSIONS];
        for (i, place) in parts[..len].iter_mut().enumerate() {
            match part(&item(i)) {
                Some(part) => *place = part,
                None => return Ok(None),
            }
        }
        request.boxed(&parts[..len])
    }
}

struct Request<'a, 'py> {
    py: Python<'py>,
    space: &'a Space,
    dtype: &'a Bound<'py, PyArrayDescr>,
    out: Option<&'a Bound<'py, PyAny>>,
}

impl<'py> Request<'_, 'py> {
    fn boxed(&self, parts: &[Part]) -> PyResult<Option<Bound<'py, PyAny>>> {
        let item = self.dtype.itemsize();
        let selected = self.space.look(self.py, |space, record| {
            Selected::new(parts, record.shape()).filter(|_| space.shape.item_bytes == item)
        })?;
        let Some(s) = selected.filter(|s| s.bytes(item as u64) <= MOST_BYTES) else { return Ok(None) };
        let axes = &s.axes[..s.stay];
        let mut strides = [item as isize; DIMENSIONS];
        if self.out.is_none() && s.is_scalar(parts) {
            if item > SCALAR_BYTES {
                return Ok(None);
            }
            let mut element = Element([0; SCALAR_BYTES]);
            self.read(&s, &strides, element.0.as_mut_ptr())?;
            // SAFETY: the element has the dtype's bytes, and no type among those let through keeps a reference to them.
            return unsafe {
                let descr = self.dtype.as_dtype_ptr();
                let made =
                    PY_ARRAY_API.PyArray_Scalar(self.py, element.0.as_mut_ptr().cast(), descr, std::ptr::null_mut());
                Bound::from_owned_ptr_or_err(self.py, made).map(Some)
            };
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
        self.read(&s, &strides, fields.data.cast())?;
        Ok(Some(result.clone()))
    }

    /// The fields of the array given, if it may be read into: looked at only when the key was taken apart, which may run Python
    /// code that changes them.
    fn fields<'a>(&self, given: &'a Bound<'py, PyAny>) -> Option<&'a npyffi::PyArrayObject_fields> {
        array(given).filter(|f| f.descr == self.dtype.as_dtype_ptr() && f.flags & NPY_ARRAY_WRITEABLE != 0)
    }

    fn read(&self, s: &Selected, strides: &[isize; DIMENSIONS], first: *mut u8) -> PyResult<()> {
        let n = s.dimensions;
        let (start, step, count) = (&s.start[..n], &s.step[..n], &s.count[..n]);
        self.send(Target::Box { start, step, count, strides: &strides[..n], view: None }, first)
    }

    fn send(&self, target: Target<'_>, first: *mut u8) -> PyResult<()> {
        // SAFETY: the memory is an array's, which this call holds, or this call's own; the target's counts are its shape.
        let out = unsafe { BufferMut::from_raw(first) };
        self.space.send(self.py, Command::Read { space: self.space.number(), target, out }).map(drop)
    }

    /// An array that NumPy allocates.
    fn empty(&self, shape: &mut [npy_intp]) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the dtype's reference that the function takes is a new one; it makes the strides and takes the memory itself.
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

/// Puts indices of an axis of this size to every `n`-th coordinate; `false` if they are no native integers or lie outside.
fn gather(py: Python<'_>, indices: &npyffi::PyArrayObject_fields, size: u64, to: &mut [u64], n: usize) -> bool {
    let Ok(size) = i64::try_from(size) else { return false };
    // SAFETY: an array's dtype is alive as long as it is.
    let dtype = unsafe { Bound::from_borrowed_ptr(py, indices.descr.cast()).cast_into_unchecked::<PyArrayDescr>() };
    if dtype.byteorder() == b'>' {
        return false;
    }
    // SAFETY: the kind and the size say what lies there; NumPy keeps every element of the shape readable.
    unsafe {
        match (dtype.kind(), dtype.itemsize()) {
            (b'i', 8) => gather_as::<i64>(indices, size, to, n, |i| i),
            (b'i', 4) => gather_as::<i32>(indices, size, to, n, i64::from),
            (b'u', 8) => gather_as::<u64>(indices, size, to, n, |i| i64::try_from(i).unwrap_or(i64::MAX)),
            (b'u', 4) => gather_as::<u32>(indices, size, to, n, i64::from),
            _ => false,
        }
    }
}

/// # Safety
/// The array must have one dimension, and elements of this type.
unsafe fn gather_as<T: Copy>(
    indices: &npyffi::PyArrayObject_fields,
    size: i64,
    to: &mut [u64],
    n: usize,
    number: impl Fn(T) -> i64,
) -> bool {
    let (first, stride) = (indices.data.cast::<u8>(), strides_of(indices)[0]);
    let mut within = true;
    for (i, place) in to.iter_mut().step_by(n).enumerate().take(shape_of(indices)[0] as usize) {
        // SAFETY: the `i`-th element of the array, by the caller's promise.
        let index = number(unsafe { first.offset(i as isize * stride).cast::<T>().read_unaligned() });
        let at = if index < 0 { index + size } else { index };
        within &= (0..size).contains(&at);
        *place = at as u64;
    }
    within
}
