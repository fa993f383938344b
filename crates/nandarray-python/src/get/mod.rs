//! Small reads in one call: from the objects between the brackets to the elements.
//!
//! A read of one element takes half a microsecond in the engine, and several times that if Python handles the selection
//! in lists and tuples of its own. Therefore boxes, outer selections and points of arrays of numbers and texts, and
//! sub-blocks of views, are read here into new memory or into an array of the same dtype ([`result`]). Meaning and
//! errors of an index expression are those of `index`. For anything else (another dtype, a large result, a mask, index
//! arrays of a view, other memory, an array of a door) these functions return `None`, and the general code in Python
//! (`Grid`) reads it. A test compares both ways (`tests/python/test_get.py`).
//!
//! No Python code runs while the engine's locks are held: an expression is parsed first, and compared with the shape
//! afterwards. The GIL is released during every read, however small: pages that were resident before may have to be
//! fetched.

mod result;

use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::index::PerDimension;
use crate::index::rules::Selected;
use crate::index::selection::combination;
use crate::index::terms::{Term, small_integers, terms};
use crate::space::PySpace;

/// Most indices in one index array.
const INDICES_MAX: usize = 1 << 18;

/// Reads the selection `key` of a space, or of its view with the shape `view`, into `out`, which is returned, or else
/// into a new array or scalar. Returns `None`, and reads nothing, if the general code in Python must do it.
#[pyfunction]
#[pyo3(signature = (space, key, dtype, out=None, view=None, mode="numpy"))]
pub(crate) fn get<'py>(
    space: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyArrayDescr>,
    out: Option<&Bound<'py, PyAny>>,
    view: Option<&Bound<'py, PyTuple>>,
    mode: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = space.py();
    let Ok(space) = space.cast_exact::<PySpace>() else { return Ok(None) };
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
    let of = |shape: &_| Selected::of(py, &terms, shape, combination, true).map(Some).map_err(|wrong| wrong.to_py(py));
    request.space.with_shape(py, request.view, dtype.itemsize(), of)?.map_or(Ok(None), |found| request.result(found))
}

/// Reads one sub-block: the space, seen with the shape `view`, is cut into sub-blocks of `sub_shape`, and `coordinate`
/// is the place of one in their grid. Result and `None` as for [`get`].
#[pyfunction]
#[pyo3(signature = (space, view, coordinate, sub_shape, dtype, out=None))]
pub(crate) fn get_sub_block<'py>(
    space: &Bound<'py, PyAny>,
    view: &Bound<'py, PyTuple>,
    coordinate: &Bound<'py, PyAny>,
    sub_shape: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyArrayDescr>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Ok(space) = space.cast_exact::<PySpace>() else { return Ok(None) };
    let mut of = PerDimension::new();
    let Some(request) = ElementRead::new(space, dtype, out, Some(view), &mut of) else { return Ok(None) };
    let (Some(at), Some(shape)) = (small_integers(coordinate), small_integers(sub_shape)) else {
        return Ok(None);
    };
    let of = |view: &_| Ok(Selected::sub_block(&at, &shape, view));
    let found = request.space.with_shape(request.py, request.view, dtype.itemsize(), of)?;
    found.map_or(Ok(None), |found| request.result(found))
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
}
