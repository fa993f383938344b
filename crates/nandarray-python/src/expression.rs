//! Index expressions of the plain kind: taken apart, and compared with a shape.
//!
//! Integers, slices, an ellipsis, and flat lists or arrays of integers; anything else, and anything wrong, is `None`,
//! for Python to read or to refuse. Taking an expression apart may run Python code (`__index__`), comparing it does
//! not.

use numpy::npyffi::{self, NpyTypes, PyArrayObject, get_type_object, npy_intp};
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::ffi;
use pyo3::prelude::*;

/// The most dimensions.
pub(crate) const DIMENSIONS: usize = 8;

/// The most indices of a list.
const MOST_INDICES: usize = 1 << 12;

/// One part of an index expression.
pub(crate) enum Part<'py> {
    Integer(i64),
    /// Start, stop and step, not compared with a length yet.
    Slice(isize, isize, isize),
    /// As many whole axes as are missing.
    Ellipsis,
    List(Vec<i64>),
    /// Of whatever type and shape.
    Array(Bound<'py, PyAny>),
}

/// How lists of indices combine with what else there is.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Lists {
    /// As NumPy has it: one list, all that has an index beside it, so that its dimension stays where it is.
    NumPy,
    /// Each along its own axis.
    Outer,
}

/// A selection compared with a shape.
#[derive(Default)]
pub(crate) struct Selected {
    pub(crate) dimensions: usize,
    pub(crate) start: [u64; DIMENSIONS],
    pub(crate) step: [u64; DIMENSIONS],
    pub(crate) count: [u64; DIMENSIONS],
    /// Whether the elements come backwards.
    pub(crate) backwards: [bool; DIMENSIONS],
    /// The axis of each dimension of the result, and how many there are.
    pub(crate) axes: [usize; DIMENSIONS],
    pub(crate) stay: usize,
    /// Lists of indices, and their axes.
    pub(crate) lists: Vec<(usize, Vec<u64>)>,
    /// Whether it is one element by integers alone.
    pub(crate) scalar: bool,
}

impl Selected {
    /// Is made what the parts select of this shape. `None` for what is not within it, and for what selects nothing. (An
    /// argument, since moving so many numbers is felt where one element is read.)
    pub(crate) fn select(&mut self, py: Python<'_>, parts: &[Part<'_>], shape: &[u64], lists: Lists) -> Option<()> {
        let ellipsis = parts.iter().position(|part| matches!(part, Part::Ellipsis));
        let given = parts.len() - usize::from(ellipsis.is_some());
        if given > shape.len() || shape.is_empty() || shape.len() > DIMENSIONS {
            return None;
        }
        let s = self;
        s.dimensions = shape.len();
        // Where the parts behind the ellipsis, or the missing ones, begin.
        let (front, whole) = (ellipsis.unwrap_or(given), shape.len() - given);
        for (axis, &size) in shape.iter().enumerate() {
            let size = i64::try_from(size).ok()?;
            let part = if axis < front {
                &parts[axis]
            } else if axis < front + whole {
                &Part::Slice(0, isize::MAX, 1)
            } else {
                &parts[axis + 1 - whole]
            };
            let (start, step, count) = match part {
                Part::Integer(at) => {
                    let at = if *at < 0 { at + size } else { *at };
                    (0..size).contains(&at).then_some((at, 1, 1))?
                }
                &Part::Slice(mut start, mut stop, step) => {
                    // SAFETY: plain arithmetic on these numbers; the step is not 0, and no less than -isize::MAX.
                    let count = unsafe { ffi::PySlice_AdjustIndices(size as isize, &mut start, &mut stop, step) };
                    s.stays(axis);
                    s.backwards[axis] = step < 0 && count > 1;
                    if s.backwards[axis] {
                        start += (count - 1) * step;
                    }
                    // One element needs no step, which may lead out of the axis.
                    (start as i64, if count > 1 { step.abs() as i64 } else { 1 }, count as i64)
                }
                Part::List(list) => {
                    let at = |&i: &i64| if i < 0 { i + size } else { i };
                    if !list.iter().all(|i| (0..size).contains(&at(i))) {
                        return None;
                    }
                    s.listed(axis, list.iter().map(|i| at(i) as u64).collect())
                }
                Part::Array(indices) => {
                    let fields = array(indices).filter(|a| a.nd == 1)?;
                    let mut list = vec![0; shape_of(fields)[0] as usize];
                    if list.len() > MOST_INDICES || !gather(py, fields, size as u64, &mut list, 1) {
                        return None;
                    }
                    s.listed(axis, list)
                }
                // A second one.
                Part::Ellipsis => return None,
            };
            if count == 0 {
                return None;
            }
            (s.start[axis], s.step[axis], s.count[axis]) = (start as u64, step as u64, count as u64);
        }
        s.scalar = s.stay == 0 && parts.len() == s.dimensions && ellipsis.is_none();
        let fits = match (s.lists.len(), lists) {
            (0, _) => true,
            (1, Lists::NumPy) => ellipsis.is_none() && indices_are_neighbours(parts),
            (_, Lists::NumPy) => false,
            (_, Lists::Outer) => ellipsis.is_none(),
        };
        fits.then_some(())
    }

    /// Is made sub-block number `coordinate` of a shape that is cut into pieces of `sub_shape`.
    pub(crate) fn select_sub_block(&mut self, coordinate: &[i64], sub_shape: &[i64], shape: &[u64]) -> Option<()> {
        if [coordinate.len(), sub_shape.len()] != [shape.len(); 2] || shape.is_empty() || shape.len() > DIMENSIONS {
            return None;
        }
        let s = self;
        s.dimensions = shape.len();
        for (axis, &size) in shape.iter().enumerate() {
            let (at, extent) = (u64::try_from(coordinate[axis]).ok()?, u64::try_from(sub_shape[axis]).ok()?);
            let start = at.checked_mul(extent)?;
            let count = size.checked_sub(start)?.min(extent);
            if count == 0 {
                return None;
            }
            (s.start[axis], s.step[axis], s.count[axis]) = (start, 1, count);
            s.stays(axis);
        }
        Some(())
    }

    fn stays(&mut self, axis: usize) {
        self.axes[self.stay] = axis;
        self.stay += 1;
    }

    fn listed(&mut self, axis: usize, list: Vec<u64>) -> (i64, i64, i64) {
        let count = list.len() as i64;
        self.stays(axis);
        self.lists.push((axis, list));
        (0, 1, count)
    }

    pub(crate) fn bytes(&self, item_bytes: u64) -> u64 {
        self.count[..self.dimensions].iter().fold(item_bytes, |n, c| n.saturating_mul(*c))
    }
}

/// Whether no slice stands between integers and lists.
fn indices_are_neighbours(parts: &[Part<'_>]) -> bool {
    let is_slice = |part: &Part<'_>| matches!(part, Part::Slice(..));
    let first = parts.iter().position(|part| !is_slice(part)).unwrap_or(0);
    let last = parts.iter().rposition(|part| !is_slice(part)).unwrap_or(0);
    !parts[first..=last].iter().any(is_slice)
}

/// Takes a part of an expression apart.
pub(crate) fn part<'py>(item: &Bound<'py, PyAny>) -> Option<Part<'py>> {
    let (py, object) = (item.py(), item.as_ptr());
    // SAFETY: the object is alive, and of the type that each function is called for; errors are cleared.
    unsafe {
        if ffi::PyLong_CheckExact(object) != 0 {
            return integer(object).map(Part::Integer);
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
            return index(item).map(Part::Integer);
        }
        if object == ffi::Py_Ellipsis() {
            return Some(Part::Ellipsis);
        }
        if ffi::PyList_CheckExact(object) != 0 {
            let len = ffi::PyList_Size(object);
            if len == 0 || len as usize > MOST_INDICES {
                return None;
            }
            let exact = |at| {
                let one = ffi::PyList_GetItem(object, at);
                if ffi::PyLong_CheckExact(one) == 0 { None } else { integer(one) }
            };
            return (0..len).map(exact).collect::<Option<_>>().map(Part::List);
        }
    }
    array(item).map(|_| Part::Array(item.clone()))
}

/// The integers of a tuple or list of at most as many as there can be dimensions.
pub(crate) fn integers<'a>(sequence: &Bound<'_, PyAny>, to: &'a mut [i64; DIMENSIONS]) -> Option<&'a [i64]> {
    let (py, object) = (sequence.py(), sequence.as_ptr());
    // SAFETY: the type is looked at before each call, and the length before each item, since an item may run code;
    // borrowed items are taken hold of while they are used.
    unsafe {
        let tuple = ffi::PyTuple_CheckExact(object) != 0;
        if !tuple && ffi::PyList_CheckExact(object) == 0 {
            return None;
        }
        let len = || if tuple { ffi::PyTuple_Size(object) } else { ffi::PyList_Size(object) };
        let n = len();
        if n as usize > DIMENSIONS {
            return None;
        }
        for at in 0..n {
            if !tuple && at >= len() {
                return None;
            }
            let item = if tuple { ffi::PyTuple_GetItem(object, at) } else { ffi::PyList_GetItem(object, at) };
            to[at as usize] = index(&Bound::from_borrowed_ptr(py, item))?;
        }
        Some(&to[..n as usize])
    }
}

/// An integer of Python's or of NumPy's.
fn index(item: &Bound<'_, PyAny>) -> Option<i64> {
    let (py, object) = (item.py(), item.as_ptr());
    // SAFETY: the object is alive; an error is cleared.
    unsafe {
        if ffi::PyLong_CheckExact(object) != 0 {
            return integer(object);
        }
        if ffi::PyObject_TypeCheck(object, get_type_object(py, NpyTypes::PyIntegerArrType_Type)) == 0 {
            return None;
        }
        let Some(index) = Bound::from_owned_ptr_or_opt(py, ffi::PyNumber_Index(object)) else {
            ffi::PyErr_Clear();
            return None;
        };
        integer(index.as_ptr())
    }
}

/// # Safety
/// The object must be a Python integer that is alive.
unsafe fn integer(object: *mut ffi::PyObject) -> Option<i64> {
    let mut beyond = 0;
    // SAFETY: the caller's promise.
    let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(object, &mut beyond) };
    (beyond == 0).then_some(value)
}

/// The fields of an array, if this is one, and none of a subclass.
pub(crate) fn array<'a>(item: &'a Bound<'_, PyAny>) -> Option<&'a npyffi::PyArrayObject_fields> {
    // SAFETY: checked to be an array object, whose fields live as long as it does.
    unsafe {
        (npyffi::PyArray_CheckExact(item.py(), item.as_ptr()) != 0)
            .then(|| &(*item.as_ptr().cast::<PyArrayObject>()).fields)
    }
}

/// An array's shape.
pub(crate) fn shape_of(fields: &npyffi::PyArrayObject_fields) -> &[npy_intp] {
    if fields.nd == 0 {
        return &[];
    }
    // SAFETY: NumPy keeps `nd` numbers there.
    unsafe { std::slice::from_raw_parts(fields.dimensions, fields.nd as usize) }
}

pub(crate) fn strides_of(fields: &npyffi::PyArrayObject_fields) -> &[npy_intp] {
    if fields.nd == 0 {
        return &[];
    }
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(fields.strides, fields.nd as usize) }
}

/// Puts indices of an axis of this size to every `n`-th coordinate; `false` if they are no native integers or lie
/// outside.
pub(crate) fn gather(
    py: Python<'_>,
    indices: &npyffi::PyArrayObject_fields,
    size: u64,
    to: &mut [u64],
    n: usize,
) -> bool {
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
