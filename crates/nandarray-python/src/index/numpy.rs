//! Direct access to the memory of NumPy arrays through the fields of the array object.

use numpy::npyffi::{self, PyArrayObject, npy_intp};
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;

use super::rules::place;

/// Returns the fields of the array object if `item` is a NumPy array and of no subclass, otherwise `None`.
pub(crate) fn array<'a>(item: &'a Bound<'_, PyAny>) -> Option<&'a npyffi::PyArrayObject_fields> {
    // SAFETY: checked to be an array object, whose fields live as long as it does.
    unsafe {
        (npyffi::PyArray_CheckExact(item.py(), item.as_ptr()) != 0)
            .then(|| &(*item.as_ptr().cast::<PyArrayObject>()).fields)
    }
}

/// Returns an array's shape.
pub(crate) fn shape_of(fields: &npyffi::PyArrayObject_fields) -> &[npy_intp] {
    if fields.nd == 0 {
        return &[];
    }
    // SAFETY: NumPy keeps `nd` numbers at this address.
    unsafe { std::slice::from_raw_parts(fields.dimensions, fields.nd as usize) }
}

/// Returns an array's strides in bytes.
pub(crate) fn strides_of(fields: &npyffi::PyArrayObject_fields) -> &[npy_intp] {
    if fields.nd == 0 {
        return &[];
    }
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(fields.strides, fields.nd as usize) }
}

/// Returns the dtype of an array.
pub(crate) fn dtype_of<'py>(py: Python<'py>, fields: &npyffi::PyArrayObject_fields) -> Bound<'py, PyArrayDescr> {
    // SAFETY: the array keeps its dtype alive.
    unsafe { Bound::from_borrowed_ptr(py, fields.descr.cast()).cast_into_unchecked() }
}

/// Returns the number of elements of an array.
pub(crate) fn len_of(fields: &npyffi::PyArrayObject_fields) -> usize {
    shape_of(fields).iter().map(|&n| n as usize).product()
}

/// Whether [`gather`] reads index arrays of this dtype: native integers of four or eight bytes.
pub(crate) fn is_readable(dtype: &Bound<'_, PyArrayDescr>) -> bool {
    dtype.byteorder() != b'>' && matches!((dtype.kind(), dtype.itemsize()), (b'i' | b'u', 4 | 8))
}

/// Converts an index array to coordinates on an axis of `size` elements; negative indices count from the end. The error
/// is the first index that lies outside of the axis. The array must be [readable](is_readable), and have one dimension
/// or be contiguous.
pub(crate) fn gather(py: Python<'_>, indices: &npyffi::PyArrayObject_fields, size: u64) -> Result<Vec<u64>, i128> {
    let dtype = dtype_of(py, indices);
    // SAFETY: the element type follows from kind and size; NumPy keeps every element of the shape readable.
    unsafe {
        match (dtype.kind(), dtype.itemsize()) {
            (b'i', 8) => gather_as::<i64>(indices, size, |i| i),
            (b'i', _) => gather_as::<i32>(indices, size, i64::from),
            (_, 8) => gather_as::<u64>(indices, size, |i| i64::try_from(i).unwrap_or(i64::MAX)),
            _ => gather_as::<u32>(indices, size, i64::from),
        }
    }
}

/// Converts as [`gather`], with elements of type `T`.
///
/// # Safety
/// The array's elements must have type `T`, and it must have one dimension or be contiguous.
unsafe fn gather_as<T: Copy + Into<i128>>(
    indices: &npyffi::PyArrayObject_fields,
    size: u64,
    number: impl Fn(T) -> i64,
) -> Result<Vec<u64>, i128> {
    let first = indices.data.cast::<u8>();
    let stride = if indices.nd == 1 { strides_of(indices)[0] } else { size_of::<T>() as isize };
    // SAFETY: this is the `i`-th element of the array, as the caller promises.
    let element = |i: usize| unsafe { first.offset(i as isize * stride).cast::<T>().read_unaligned() };
    let len = len_of(indices);
    if let Ok(limit) = i64::try_from(size) {
        let mut beyond = false;
        let at = |i: usize| {
            let index = number(element(i));
            let at = if index < 0 { index + limit } else { index };
            beyond |= !(0..limit).contains(&at);
            at as u64
        };
        let places: Vec<u64> = (0..len).map(at).collect();
        if !beyond {
            return Ok(places);
        }
    }
    // The size is beyond machine integers, or an index is outside of the axis and has to be found.
    (0..len).map(|i| place(element(i).into(), size).ok_or_else(|| element(i).into())).collect()
}

/// Returns the elements of a boolean mask: one byte each, contiguous.
pub(crate) fn truths(mask: &npyffi::PyArrayObject_fields) -> &[u8] {
    // SAFETY: masks are made contiguous when an expression is parsed; a boolean takes one byte.
    unsafe { std::slice::from_raw_parts(mask.data.cast::<u8>(), len_of(mask)) }
}
