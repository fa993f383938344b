//! Memory of NumPy's arrays, by the fields of the array object.

use numpy::npyffi::{self, PyArrayObject, npy_intp};
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;

use super::rules::place;

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

/// An array's byte strides.
pub(crate) fn strides_of(fields: &npyffi::PyArrayObject_fields) -> &[npy_intp] {
    if fields.nd == 0 {
        return &[];
    }
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(fields.strides, fields.nd as usize) }
}

/// The dtype of an array.
pub(crate) fn dtype_of<'py>(py: Python<'py>, fields: &npyffi::PyArrayObject_fields) -> Bound<'py, PyArrayDescr> {
    // SAFETY: an array's dtype is alive as long as it is.
    unsafe { Bound::from_borrowed_ptr(py, fields.descr.cast()).cast_into_unchecked() }
}

/// Number of elements.
pub(crate) fn len_of(fields: &npyffi::PyArrayObject_fields) -> usize {
    shape_of(fields).iter().map(|&n| n as usize).product()
}

/// Whether [`gather`] reads index arrays of this dtype: native integers of four or eight bytes.
pub(crate) fn is_readable(dtype: &Bound<'_, PyArrayDescr>) -> bool {
    dtype.byteorder() != b'>' && matches!((dtype.kind(), dtype.itemsize()), (b'i' | b'u', 4 | 8))
}

/// Places on an axis of this size that an index array names; the first index that lies outside, if one does. The array
/// is [readable](is_readable), and has one dimension or is contiguous.
pub(crate) fn gather(py: Python<'_>, indices: &npyffi::PyArrayObject_fields, size: u64) -> Result<Vec<u64>, i128> {
    let dtype = dtype_of(py, indices);
    // SAFETY: the kind and the size say what lies there; NumPy keeps every element of the shape readable.
    unsafe {
        match (dtype.kind(), dtype.itemsize()) {
            (b'i', 8) => gather_as::<i64>(indices, size, |i| i),
            (b'i', _) => gather_as::<i32>(indices, size, i64::from),
            (_, 8) => gather_as::<u64>(indices, size, |i| i64::try_from(i).unwrap_or(i64::MAX)),
            _ => gather_as::<u32>(indices, size, i64::from),
        }
    }
}

/// # Safety
/// The array must have elements of this type, and one dimension or no gaps.
unsafe fn gather_as<T: Copy + Into<i128>>(
    indices: &npyffi::PyArrayObject_fields,
    size: u64,
    number: impl Fn(T) -> i64,
) -> Result<Vec<u64>, i128> {
    let first = indices.data.cast::<u8>();
    let stride = if indices.nd == 1 { strides_of(indices)[0] } else { size_of::<T>() as isize };
    // SAFETY: the `i`-th element of the array, by the caller's promise.
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
    // Beyond machine integers, or to find which one it is.
    (0..len).map(|i| place(element(i).into(), size).ok_or_else(|| element(i).into())).collect()
}

/// The truth values of a mask: contiguous bytes.
pub(crate) fn truths(mask: &npyffi::PyArrayObject_fields) -> &[u8] {
    // SAFETY: masks are made contiguous when an expression is taken apart; a boolean takes one byte.
    unsafe { std::slice::from_raw_parts(mask.data.cast::<u8>(), len_of(mask)) }
}
