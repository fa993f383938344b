//! The memory of a read in one call, a scalar or an array, and the command that reads a selection into it.

use nandarray::{Axis, BufferMut, Target, command};
use numpy::npyffi::{self, NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_WRITEABLE, NpyTypes, get_type_object, npy_intp};
use numpy::{PY_ARRAY_API, PyArrayDescrMethods};
use pyo3::prelude::*;
use smallvec::smallvec;

use super::ElementRead;
use crate::index::PerDimension;
use crate::index::numpy::{array, shape_of, strides_of};
use crate::index::rules::{ResultDim, Selected, place};

/// Largest result in bytes; for larger ones the overhead of Python is negligible, and they are left to it.
const RESULT_BYTES_MAX: u64 = 16 << 20;

/// Most elements of an outer selection that is read as single points.
const FEW_POINTS: u64 = 1 << 12;

/// Most bytes of an element that is returned as a scalar.
const SCALAR_BYTES: usize = 64;

impl<'py> ElementRead<'_, 'py> {
    /// Reads one element at a coordinate of one integer for every axis, without building a [`Selected`], which takes a
    /// tenth of the time. Returns `None` if the integers are too few or too many, or there is no such element.
    pub(super) fn element(&self, at: &[i64]) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (n, item) = (at.len(), self.dtype.itemsize());
        let mut start: PerDimension<u64> = smallvec![0; n];
        let mut place_in = |shape: &[u64]| {
            if shape.len() != n || item > SCALAR_BYTES {
                return None;
            }
            for ((to, &at), &size) in start.iter_mut().zip(at).zip(shape) {
                *to = place(at.into(), size)?;
            }
            Some(())
        };
        let found = self.space.with_shape(self.py, self.view, item, |shape| Ok(place_in(shape)))?;
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

    /// Reads a selection of this request; `None` if the general code in Python must do it.
    pub(super) fn result(&self, s: Selected) -> PyResult<Option<Bound<'py, PyAny>>> {
        let item = self.dtype.itemsize();
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

    /// Returns the fields of the caller's array; `None` if it has another dtype, cannot be written to, or has elements
    /// that may share memory. Call this after the key was parsed: parsing may run Python code that changes the array.
    fn fields<'f>(&self, given: &'f Bound<'py, PyAny>) -> Option<&'f npyffi::PyArrayObject_fields> {
        array(given).filter(|f| {
            f.descr == self.dtype.as_dtype_ptr()
                && f.flags & NPY_ARRAY_WRITEABLE != 0
                && (f.flags & NPY_ARRAY_C_CONTIGUOUS != 0 || self.is_apart(f))
        })
    }

    /// Whether no two elements of an array share memory: along each dimension, a step is at least as long as all that
    /// lies within it. `refuse_shared` in `nandarray.index.buffers` says the same, with the error.
    fn is_apart(&self, fields: &npyffi::PyArrayObject_fields) -> bool {
        let mut runs: PerDimension<(u64, u64)> = shape_of(fields)
            .iter()
            .zip(strides_of(fields))
            .filter(|(len, _)| **len > 1)
            .map(|(&len, step)| (step.unsigned_abs() as u64, len as u64))
            .collect();
        runs.sort_unstable();
        let mut within = self.dtype.itemsize() as u64;
        runs.iter().all(|&(step, len)| {
            let apart = step >= within;
            within = within.saturating_add(step.saturating_mul(len - 1));
            apart
        })
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
