//! NumPy arrays as addresses and strides.
//!
//! Only the array object's own fields are read, so that dtypes which the buffer protocol refuses (datetime64,
//! structured) work as well. Item size, writability and the number of dimensions are checked here; the engine checks
//! the rest.

use nandarray::{Axis, Error, Result};
use numpy::{PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;

/// Address, shape and strides of a NumPy array that a caller lends to one command.
pub(crate) struct BorrowedArray {
    /// Address of element (0, 0, ...).
    pub(crate) first: *mut u8,
    /// Elements along each dimension.
    pub(crate) shape: Vec<u64>,
    /// Distance in bytes between neighbouring elements along each dimension.
    pub(crate) strides: Vec<isize>,
}

// SAFETY: the address is only used while the Python caller holds the array, by one command.
unsafe impl Send for BorrowedArray {}
// SAFETY: as above.
unsafe impl Sync for BorrowedArray {}

/// Reads address, shape and strides of an array. Fails if its elements are not `item_bytes` long, or if it will be
/// written to (`write`) and is read-only.
pub(crate) fn lend(array: &Bound<'_, PyUntypedArray>, item_bytes: usize, write: bool) -> Result<BorrowedArray> {
    let found = array.dtype().itemsize();
    if found != item_bytes {
        return Err(Error::Invalid(format!("the buffer has elements of {found} bytes; the array has {item_bytes}")));
    }
    // SAFETY: the pointer is that of a live array object; its fields are plain data.
    let (first, flags) = unsafe {
        let object = array.as_array_ptr();
        ((*object).fields.data.cast::<u8>(), (*object).fields.flags)
    };
    if write && flags & numpy::npyffi::NPY_ARRAY_WRITEABLE == 0 {
        return Err(Error::Invalid("the buffer is read-only".to_owned()));
    }
    Ok(BorrowedArray {
        first,
        shape: array.shape().iter().map(|&n| n as u64).collect(),
        strides: array.strides().to_vec(),
    })
}

/// Converts one axis of an outer selection from Python: a tuple (start, step, count) or a list of coordinates.
pub(crate) fn axis(item: &Bound<'_, PyAny>) -> PyResult<Axis> {
    if let Ok(list) = item.cast::<PyArray1<u64>>() {
        return Ok(Axis::List(list.to_vec()?));
    }
    let (start, step, count) = item.extract()?;
    Ok(Axis::Range { start, step, count })
}
