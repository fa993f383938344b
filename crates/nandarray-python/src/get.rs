//! Small reads in one call: from the objects between the brackets to the elements.
//!
//! A read of one element takes half a microsecond in the engine, and several times that if Python handles the selection
//! in lists and tuples of its own. Therefore boxes, outer selections and points of arrays of numbers and texts, and
//! sub-blocks of views, are read here into new memory or into an array of the same dtype. Meaning and errors of an
//! index expression are those of `index`. For anything else (another dtype, a large result, a mask, index arrays of a
//! view, other memory) these functions return `None`, and the general code in Python (`Grid`) reads it. A test compares
//! both ways (`tests/python/test_get.py`).
//!
//! No Python code runs while the engine's locks are held: an expression is parsed first, and compared with the shape
//! afterwards. The GIL is released during every read, however small: pages that were resident before may have to be
//! fetched.

use nandarray::{Axis, BufferMut, Target, command};
use numpy::npyffi::{self, NPY_ARRAY_WRITEABLE, NpyTypes, get_type_object, npy_intp};
use numpy::{PY_ARRAY_API, PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use smallvec::smallvec;

use crate::index::PerDimension;
use crate::index::numpy::{array, shape_of, strides_of};
use crate::index::rules::{ResultDim, Selected, place};
use crate::index::selection::combination;
use crate::index::terms::{Term, small_integers, terms};
use crate::space::PySpace;

/// Largest result in bytes; for larger ones the overhead of Python is negligible, and they are left to it.
const RESULT_BYTES_MAX: u64 = 16 << 20;

/// Most indices in one index array.
const INDICES_MAX: usize = 1 << 18;

/// Most elements of an outer selection that is read as single points.
const FEW_POINTS: u64 = 1 << 12;

/// Most bytes of an element that is returned as a scalar.
const SCALAR_BYTES: usize = 64;

/// Reads the selection `key` of a space, or of its view with the shape `view`, into `out`, which is returned, or else
/// into a new array or scalar. Returns `None`, and reads nothing, if the general code in Python must do it.
#[pyfunction]
#[pyo3(signature = (space, key, dtype, out=None, view=None, mode="numpy"))]
pub(crate) fn get<'py>(
    space: &Bound<'py, PySpace>,
    key: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyArrayDescr>,
    out: Option<&Bound<'py, PyAny>>,
    view: Option<&Bound<'py, PyTuple>>,
    mode: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = space.py();
    let mut shape = PerDimension::new();
    let Some(request) = ElementRead::new(space, dtype, out, view, &mut shape) else { return Ok(None) };
    let combination = combination(py, mode)?;
    if out.is_none() {
        if let Some(at) = key.cast_exact::<PyTuple>().ok().and_then(|key| small_integers(key)) {
            if let Some(got) = request.element(&at)? {
                return Ok(Some(got));
            }
        }
    }
    let terms = terms(key)?;
    let left = |term: &Term<'_>| term.listed() > INDICES_MAX || term.is_array() && view.is_some();
    if terms.iter().any(left) {
        return Ok(None);
    }
    request.found(|shape| Selected::of(py, &terms, shape, combination, true).map(Some).map_err(|wrong| wrong.to_py(py)))
}

/// Reads one sub-block: the space, seen with the shape `view`, is cut into sub-blocks of `sub_shape`, and `coordinate`
/// is the place of one in their grid. Result and `None` as for [`get`].
#[pyfunction]
#[pyo3(signature = (space, view, coordinate, sub_shape, dtype, out=None))]
pub(crate) fn get_sub_block<'py>(
    space: &Bound<'py, PySpace>,
    view: &Bound<'py, PyTuple>,
    coordinate: &Bound<'py, PyAny>,
    sub_shape: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyArrayDescr>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let mut of = PerDimension::new();
    let Some(request) = ElementRead::new(space, dtype, out, Some(view), &mut of) else { return Ok(None) };
    let (Some(at), Some(shape)) = (small_integers(coordinate), small_integers(sub_shape)) else {
        return Ok(None);
    };
    request.found(|view| Ok(Selected::sub_block(&at, &shape, view)))
}

/// One read: a space, optionally as a view of another shape, and the memory of the result.
struct ElementRead<'a, 'py> {
    py: Python<'py>,
    space: &'a PySpace,
    dtype: &'a Bound<'py, PyArrayDescr>,
    out: Option<&'a Bound<'py, PyAny>>,
    view: Option<&'a [u64]>,
}

impl<'a, 'py> ElementRead<'a, 'py> {
    /// Returns `None` if elements of this dtype are not plain bytes to Python, or if `view` is not a tuple of sizes.
    fn new(
        space: &'a Bound<'py, PySpace>,
        dtype: &'a Bound<'py, PyArrayDescr>,
        out: Option<&'a Bound<'py, PyAny>>,
        view: Option<&Bound<'py, PyTuple>>,
        shape: &'a mut PerDimension<u64>,
    ) -> Option<Self> {
        if !matches!(dtype.kind(), b'b' | b'i' | b'u' | b'f' | b'c' | b'm' | b'M' | b'S' | b'U') {
            return None;
        }
        if let Some(view) = view {
            for size in small_integers(view)? {
                shape.push(u64::try_from(size).ok()?);
            }
        }
        let view = view.map(|_| &shape[..]);
        Some(Self { py: space.py(), space: space.get(), dtype, out, view })
    }

    /// Returns the shape to read: that of the view, or `of`, the space's own; `None` if the view has another number of
    /// elements than the space.
    fn shape<'s>(&self, of: &'s [u64]) -> Option<&'s [u64]>
    where
        'a: 's,
    {
        match self.view {
            Some(view) => (volume(view)? == volume(of)?).then_some(view),
            None => Some(of),
        }
    }

    /// Reads one element at a coordinate of one integer for every axis, without building a [`Selected`], which takes a
    /// tenth of the time. Returns `None` if the integers are too few or too many, or there is no such element.
    fn element(&self, at: &[i64]) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (n, item) = (at.len(), self.dtype.itemsize());
        let mut start: PerDimension<u64> = smallvec![0; n];
        let found = self.space.look(self.py, |space, record| {
            let shape = self.shape(record.shape())?;
            if shape.len() != n || n == 0 || space.shape.item_bytes != item || item > SCALAR_BYTES {
                return None;
            }
            for ((to, &at), &size) in start.iter_mut().zip(at).zip(shape) {
                *to = place(at.into(), size)?;
            }
            Some(())
        })?;
        if found.is_none() {
            return Ok(None);
        }
        let mut element = ElementBytes([0; SCALAR_BYTES]);
        let (ones, strides): (PerDimension<u64>, PerDimension<isize>) = (smallvec![1; n], smallvec![1; n]);
        let (step, count, strides) = (&ones[..], &ones[..], &strides[..]);
        self.send(Target::Box { start: &start, step, count, strides, view: self.view }, element.0.as_mut_ptr())?;
        self.scalar(element).map(Some)
    }

    /// Builds a NumPy scalar from the bytes of an element.
    fn scalar(&self, mut element: ElementBytes) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the element has the dtype's bytes, and no type among those let through keeps a reference to them.
        unsafe {
            let (descr, bytes) = (self.dtype.as_dtype_ptr(), element.0.as_mut_ptr().cast());
            let made = PY_ARRAY_API.PyArray_Scalar(self.py, bytes, descr, std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(self.py, made)
        }
    }

    /// Reads the selection that `find` computes from the shape; `None` if the general code in Python must do it.
    fn found(&self, find: impl FnOnce(&[u64]) -> PyResult<Option<Selected>>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let item = self.dtype.itemsize();
        let found = self.space.look(self.py, |space, record| {
            let fits = |shape: &&[u64]| !shape.is_empty() && space.shape.item_bytes == item;
            self.shape(record.shape()).filter(fits).map_or(Ok(None), find)
        })?;
        let Some(s) = found? else { return Ok(None) };
        let bytes = s.shape.iter().fold(item as u64, |n, &len| n.saturating_mul(len));
        if bytes == 0 || bytes > RESULT_BYTES_MAX || s.mask.is_some() {
            return Ok(None);
        }
        if self.out.is_none() && s.scalar {
            if item > SCALAR_BYTES {
                return Ok(None);
            }
            let mut element = ElementBytes([0; SCALAR_BYTES]);
            self.read(s, &[], element.0.as_mut_ptr())?;
            return self.scalar(element).map(Some);
        }
        let made;
        let (result, fields) = match self.out {
            Some(given) => {
                let Some(fields) = self.fields(given) else { return Ok(None) };
                if !shape_of(fields).iter().map(|&len| len as u64).eq(s.shape.iter().copied()) {
                    return Ok(None);
                }
                (given, fields)
            }
            None => {
                made = self.empty(&s.shape)?;
                (&made, array(&made).expect("NumPy gives an array"))
            }
        };
        Ok(self.read(s, strides_of(fields), fields.data.cast())?.then(|| result.clone()))
    }

    /// Returns the fields of the caller's array; `None` if it has another dtype or cannot be written to. Call this
    /// after the key was parsed: parsing may run Python code that changes the array.
    fn fields<'f>(&self, given: &'f Bound<'py, PyAny>) -> Option<&'f npyffi::PyArrayObject_fields> {
        array(given).filter(|f| f.descr == self.dtype.as_dtype_ptr() && f.flags & NPY_ARRAY_WRITEABLE != 0)
    }

    /// Reads a selection into a result with these strides, in bytes; returns false if no single command can read it.
    fn read(&self, s: Selected, result_strides: &[isize], first: *mut u8) -> PyResult<bool> {
        if s.points.is_some() {
            return self.read_points(&s, result_strides, first);
        }
        let n = s.start.len();
        let mut strides: PerDimension<isize> = smallvec![self.dtype.itemsize() as isize; n];
        let mut placed = 0u64;
        for (origin, &stride) in s.origins.iter().zip(result_strides) {
            if let ResultDim::Axis(axis) = *origin {
                if placed & 1 << axis != 0 {
                    return Ok(false); // one list spans several dimensions of the result
                }
                placed |= 1 << axis;
                strides[axis] = stride;
            }
        }
        let mut offset = 0;
        for axis in (0..n).filter(|&axis| s.backwards[axis]) {
            offset += (s.count[axis] as isize - 1) * strides[axis];
            strides[axis] = -strides[axis];
        }
        let first = first.wrapping_offset(offset);
        if s.lists.is_empty() {
            let (start, step, count) = (&s.start[..], &s.step[..], &s.count[..]);
            self.send(Target::Box { start, step, count, strides: &strides, view: self.view }, first)?;
            return Ok(true);
        }
        let item = self.dtype.itemsize() as isize;
        if let Some(coordinates) = as_points(&s, &strides, item) {
            self.send(Target::Points { coordinates: &coordinates, stride: item }, first)?;
            return Ok(true);
        }
        let range = |i: usize| Axis::Range { start: s.start[i], step: s.step[i], count: s.count[i] };
        let mut axes: Vec<Axis> = (0..n).map(range).collect();
        for list in s.lists {
            axes[list.axis.expect("each has an axis")] = Axis::List(list.coordinates);
        }
        self.send(Target::Outer { axes: &axes, strides: &strides }, first)?;
        Ok(true)
    }

    /// Reads points of flat index arrays of one length, combined with integers; returns false for any other points.
    fn read_points(&self, s: &Selected, result_strides: &[isize], first: *mut u8) -> PyResult<bool> {
        let (&[points], &[stride]) = (s.points.as_deref().unwrap_or_default(), result_strides) else {
            return Ok(false);
        };
        let n = s.start.len();
        let is_flat = s.lists.iter().all(|list| list.coordinates.len() as u64 == points);
        if !is_flat || s.runs().any(|axis| s.count[axis] != 1) {
            return Ok(false);
        }
        let mut coordinates = vec![0; points as usize * n];
        for axis in s.runs() {
            coordinates.iter_mut().skip(axis).step_by(n).for_each(|to| *to = s.start[axis]);
        }
        for list in &s.lists {
            let axis = list.axis.expect("each has an axis");
            coordinates.iter_mut().skip(axis).step_by(n).zip(&list.coordinates).for_each(|(to, &at)| *to = at);
        }
        self.send(Target::Points { coordinates: &coordinates, stride }, first)?;
        Ok(true)
    }

    fn send(&self, target: Target<'_>, first: *mut u8) -> PyResult<()> {
        // SAFETY: the memory is an array's, which this call holds, or this call's own; the target's counts are its
        // shape.
        let out = unsafe { BufferMut::from_raw(first) };
        self.space.send(self.py, command::Read { space: self.space.number(), target, out })
    }

    /// Allocates a NumPy array of this shape and of the dtype that is read, with undefined contents.
    fn empty(&self, shape: &[u64]) -> PyResult<Bound<'py, PyAny>> {
        let mut shape: PerDimension<npy_intp> = shape.iter().map(|&len| len as npy_intp).collect();
        // SAFETY: the function consumes the reference to the dtype, which is a new one; NumPy computes the strides and
        // allocates the memory.
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
}

/// Memory of one element, with the largest alignment of any number.
#[repr(align(16))]
struct ElementBytes([u8; SCALAR_BYTES]);

/// Returns the coordinates of all elements of an outer selection if it is better read as points: if the elements are
/// few, no two successive ones are neighbours in the array, and the buffer is contiguous. Reading lists then takes one
/// step for each element, which costs more than a read of points. Otherwise `None`.
fn as_points(s: &Selected, strides: &[isize], item_bytes: isize) -> Option<Vec<u64>> {
    let n = s.start.len();
    let points: u64 = s.count.iter().product();
    if points > FEW_POINTS || s.count[n - 1] > 1 && !s.lists.iter().any(|list| list.axis == Some(n - 1)) {
        return None;
    }
    let mut together = item_bytes;
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
        let list = s.lists.iter().find(|list| list.axis == Some(axis));
        for (point, to) in coordinates.iter_mut().skip(axis).step_by(n).enumerate() {
            let i = point as u64 / inner % s.count[axis];
            *to = list.map_or(s.start[axis] + i * s.step[axis], |list| list.coordinates[i as usize]);
        }
    }
    Some(coordinates)
}

/// Returns the number of elements of a shape; `None` if it exceeds 64 bits.
fn volume(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1u64, |n, &size| n.checked_mul(size))
}
