//! The Python objects between the brackets, parsed to terms: what they are, not yet what they mean for a shape.

use numpy::PyArrayDescrMethods;
use numpy::npyffi::{self, NpyTypes, get_type_object};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyList, PyString, PyTuple};
use pyo3::{ffi, intern};
use smallvec::SmallVec;

use super::numpy::{array, dtype_of, is_readable, len_of, shape_of};
use super::{BadIndex, PerDimension};

/// Bounds of slices are limited to this absolute value, which lies beyond every axis.
const BEYOND: i128 = 1 << 70;

/// One part of an index expression.
pub(crate) enum Term<'py> {
    Integer(i128),
    Slice {
        start: Option<i128>,
        stop: Option<i128>,
        step: i128,
    },
    /// All axes that no other term uses, selected whole.
    Ellipsis,
    NewAxis,
    /// Indices of an axis as Python's integers, with the shape of the nested list that they come from.
    List(PerDimension<u64>, Vec<i128>),
    /// Indices of an axis as an array that `numpy::gather` reads.
    Array(Bound<'py, PyAny>),
    /// Truth values over as many axes as the array has dimensions: a contiguous boolean array.
    Mask(Bound<'py, PyAny>),
}

/// The terms of an index expression, in order.
pub(crate) type Terms<'py> = SmallVec<[Term<'py>; 4]>;

impl Term<'_> {
    /// Returns the number of the array's axes that the term uses.
    pub(crate) fn axes(&self) -> usize {
        match self {
            Self::Ellipsis | Self::NewAxis => 0,
            Self::Integer(_) | Self::Slice { .. } | Self::List(..) | Self::Array(_) => 1,
            Self::Mask(mask) => array(mask).map_or(0, |fields| fields.nd as usize),
        }
    }

    /// Returns the number of indices or truth values that the term lists; 0 for any other term.
    pub(crate) fn listed(&self) -> usize {
        match self {
            Self::List(_, values) => values.len(),
            Self::Array(found) | Self::Mask(found) => array(found).map_or(0, len_of),
            _ => 0,
        }
    }

    /// Whether the term selects by an array of indices or of truth values.
    pub(crate) fn is_array(&self) -> bool {
        matches!(self, Self::List(..) | Self::Array(_) | Self::Mask(_))
    }
}

/// Parses an index expression.
pub(crate) fn terms<'py>(key: &Bound<'py, PyAny>) -> PyResult<Terms<'py>> {
    match key.cast::<PyTuple>() {
        Ok(key) => key.iter_borrowed().map(|item| term(&item)).collect(),
        Err(_) => Ok(SmallVec::from_iter([term(key)?])),
    }
}

/// Parses one part of an index expression; the usual types are recognised without calling Python code.
fn term<'py>(item: &Bound<'py, PyAny>) -> PyResult<Term<'py>> {
    let (py, object) = (item.py(), item.as_ptr());
    // SAFETY: the object is alive, and of the type that each function is called for.
    unsafe {
        if ffi::PyLong_CheckExact(object) != 0 {
            return integer(item).map(Term::Integer);
        }
        if ffi::PySlice_Check(object) != 0 {
            return slice(item);
        }
        if ffi::PyObject_TypeCheck(object, get_type_object(py, NpyTypes::PyIntegerArrType_Type)) != 0 {
            return integer(&Bound::from_owned_ptr_or_err(py, ffi::PyNumber_Index(object))?).map(Term::Integer);
        }
        if object == ffi::Py_Ellipsis() {
            return Ok(Term::Ellipsis);
        }
        if object == ffi::Py_None() {
            return Ok(Term::NewAxis);
        }
    }
    if let Some(fields) = array(item).filter(|fields| fields.nd == 1) {
        if is_readable(&dtype_of(py, fields)) {
            return Ok(Term::Array(item.clone()));
        }
    }
    match item.cast_exact::<PyList>().ok().and_then(integers_alone) {
        Some(values) => Ok(Term::List(SmallVec::from_slice(&[values.len() as u64]), values)),
        None => unusual(item),
    }
}

/// Returns the items of a list that holds only Python's own integers, each of at most 64 bits; otherwise, or if the
/// list is empty, `None`.
fn integers_alone(list: &Bound<'_, PyList>) -> Option<Vec<i128>> {
    let one = |item: Bound<'_, PyAny>| {
        let mut overflow = 0;
        // SAFETY: the object is alive, and the function is only called for an integer.
        unsafe {
            if ffi::PyLong_CheckExact(item.as_ptr()) == 0 {
                return None;
            }
            let value = ffi::PyLong_AsLongLongAndOverflow(item.as_ptr(), &mut overflow);
            (overflow == 0).then_some(i128::from(value))
        }
    };
    if list.is_empty() { None } else { list.iter().map(one).collect() }
}

/// Parses a part of an index expression that is of no usual type.
fn unusual<'py>(item: &Bound<'py, PyAny>) -> PyResult<Term<'py>> {
    let py = item.py();
    // SAFETY: the type object is NumPy's own, and alive.
    let truth = unsafe { ffi::PyObject_TypeCheck(item.as_ptr(), get_type_object(py, NpyTypes::PyBoolArrType_Type)) };
    if truth != 0 || item.is_instance_of::<PyBool>() {
        return Ok(Term::Mask(as_array(item, None)?));
    }
    let is_sequence = item.is_instance_of::<PyList>() || item.is_instance_of::<PyTuple>();
    if !is_sequence && !is_ndarray(item) {
        // SAFETY: the object is alive.
        match unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyNumber_Index(item.as_ptr())) } {
            Ok(index) => return integer(&index).map(Term::Integer),
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {}
            Err(error) => return Err(error),
        }
    }
    let is_text = item.is_instance_of::<PyString>() || item.is_instance_of::<PyBytes>();
    if is_text || !(item.hasattr(intern!(py, "__len__"))? || item.hasattr(intern!(py, "__array__"))?) {
        let text = format!(
            "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are \
             valid indices, not {}",
            item.repr()?
        );
        return Err(BadIndex::NoIndex(text).to_py(py));
    }
    of_array(item).map_err(|error| {
        if !error.is_instance_of::<PyTypeError>(py) && !error.is_instance_of::<PyValueError>(py) {
            return error;
        }
        let name = item.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
        BadIndex::NoIndex(format!("{name} cannot be used as an index: {}", error.value(py))).to_py(py)
    })?
}

/// Converts an object to an array and then to a term. The outer error is NumPy's, the inner one is ours.
fn of_array<'py>(item: &Bound<'py, PyAny>) -> PyResult<PyResult<Term<'py>>> {
    let py = item.py();
    let made = as_array(item, None)?;
    let fields = array(&made).expect("NumPy gives an array");
    let dtype = dtype_of(py, fields);
    let shape = shape_of(fields).iter().map(|&n| n as u64).collect();
    let term = match dtype.kind() {
        // An empty list has no element type of its own.
        _ if !is_ndarray(item) && len_of(fields) == 0 => Some(Term::List(shape, vec![])),
        b'b' => Some(Term::Mask(made.clone())),
        b'i' | b'u' if fields.nd == 0 => match made.call_method0(intern!(py, "__index__")) {
            Ok(index) => return Ok(integer(&index).map(Term::Integer)),
            Err(error) => return Ok(Err(error)),
        },
        b'i' | b'u' if is_readable(&dtype) => Some(Term::Array(made.clone())),
        kind @ (b'i' | b'u') => {
            let wide = if kind == b'u' && dtype.itemsize() == 8 { "u8" } else { "i8" };
            Some(Term::Array(made.call_method1(intern!(py, "astype"), (wide,))?))
        }
        b'O' => exact_integers(&made)?.map(|values| Term::List(shape, values)),
        // NumPy has no type for integers on both sides of 2**63, so it made floats of them.
        b'f' if !is_ndarray(item) => {
            let exact = as_array(item, Some("O"))?;
            exact_integers(&exact)?.map(|values| Term::List(shape, values))
        }
        _ => None,
    };
    Ok(match term {
        Some(Term::List(shape, values)) if shape.is_empty() && values.len() == 1 => Ok(Term::Integer(values[0])),
        Some(term) => Ok(term),
        None => {
            let text = format!("arrays used as indices must be of integer or boolean type, not {dtype}");
            Err(BadIndex::NoIndex(text).to_py(py))
        }
    })
}

/// Returns the elements of an array of objects, if all are Python's integers; otherwise `None`.
fn exact_integers(objects: &Bound<'_, PyAny>) -> PyResult<Option<Vec<i128>>> {
    let flat = objects.call_method0(intern!(objects.py(), "ravel"))?.call_method0(intern!(objects.py(), "tolist"))?;
    let flat = flat.cast_into::<PyList>().map_err(PyErr::from)?;
    // SAFETY: the objects are alive.
    if !flat.iter().all(|one| unsafe { ffi::PyLong_Check(one.as_ptr()) } != 0) {
        return Ok(None);
    }
    flat.iter().map(|one| integer(&one)).collect::<PyResult<_>>().map(Some)
}

/// Converts an object to a contiguous array that is of no subclass.
fn as_array<'py>(item: &Bound<'py, PyAny>, dtype: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
    static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let asarray = ASARRAY.import(item.py(), "numpy", "asarray")?;
    asarray.call1((item, dtype, "C"))
}

fn is_ndarray(item: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the object is alive.
    unsafe { npyffi::PyArray_Check(item.py(), item.as_ptr()) != 0 }
}

/// Converts a Python integer; fails if it has more than 128 bits.
fn integer(item: &Bound<'_, PyAny>) -> PyResult<i128> {
    let mut overflow = 0;
    // SAFETY: the object is an integer that is alive.
    let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(item.as_ptr(), &mut overflow) };
    if overflow == 0 {
        return Ok(value.into());
    }
    item.extract().or_else(|_| Err(BadIndex::Endless(item.str()?.to_string()).to_py(item.py())))
}

/// Parses a slice, with bounds that may be longer than machine integers.
fn slice<'py>(item: &Bound<'py, PyAny>) -> PyResult<Term<'py>> {
    let py = item.py();
    let (mut start, mut stop, mut step) = (0, 0, 0);
    // SAFETY: the object is a slice that is alive.
    if unsafe { ffi::PySlice_Unpack(item.as_ptr(), &mut start, &mut stop, &mut step) } < 0 {
        let error = PyErr::fetch(py);
        let text = error.value(py).to_string();
        return Err(match () {
            () if error.is_instance_of::<PyTypeError>(py) => BadIndex::NoIndex(text).to_py(py),
            () if error.is_instance_of::<PyValueError>(py) => BadIndex::Step(text).to_py(py),
            () => error,
        });
    }
    // Python limits bounds to machine integers, and uses the largest or the smallest of them for omitted bounds.
    let exact = |cut: isize, name: &Bound<'py, PyString>| {
        if cut.unsigned_abs() < isize::MAX as usize {
            return Ok(Some(cut as i128));
        }
        let bound = item.getattr(name)?;
        if bound.is_none() {
            return Ok(None);
        }
        // SAFETY: the object is alive.
        let index = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyNumber_Index(bound.as_ptr()))? };
        let beyond = if cut > 0 { BEYOND } else { -BEYOND };
        Ok::<_, PyErr>(Some(index.extract().unwrap_or(beyond).clamp(-BEYOND, BEYOND)))
    };
    // For an omitted start and a positive step Python's value is 0, at which a whole slice begins.
    let start = exact(start, intern!(py, "start"))?;
    let stop = exact(stop, intern!(py, "stop"))?;
    let step = exact(step, intern!(py, "step"))?.unwrap_or(1);
    Ok(Term::Slice { start, stop, step })
}

/// Returns the items of a tuple or list if all are integers, of Python or NumPy, that fit in 64 bits; otherwise `None`.
pub(crate) fn small_integers(sequence: &Bound<'_, PyAny>) -> Option<SmallVec<[i64; 8]>> {
    let (py, object) = (sequence.py(), sequence.as_ptr());
    let mut found = SmallVec::new();
    // SAFETY: the type is checked before each call, and the length before each item, since an item may run code;
    // borrowed items are held while they are in use.
    unsafe {
        let tuple = ffi::PyTuple_CheckExact(object) != 0;
        if !tuple && ffi::PyList_CheckExact(object) == 0 {
            return None;
        }
        let len = || if tuple { ffi::PyTuple_Size(object) } else { ffi::PyList_Size(object) };
        let mut at = 0;
        while at < len() {
            let item = if tuple { ffi::PyTuple_GetItem(object, at) } else { ffi::PyList_GetItem(object, at) };
            found.push(small_integer(&Bound::from_borrowed_ptr(py, item))?);
            at += 1;
        }
    }
    Some(found)
}

/// Returns the value of an integer, of Python or NumPy, that fits in 64 bits; otherwise `None`.
fn small_integer(item: &Bound<'_, PyAny>) -> Option<i64> {
    let (py, mut overflow) = (item.py(), 0);
    // SAFETY: the objects are alive, and of the type that each function expects; an error is cleared.
    let value = unsafe {
        if ffi::PyLong_CheckExact(item.as_ptr()) != 0 {
            ffi::PyLong_AsLongLongAndOverflow(item.as_ptr(), &mut overflow)
        } else if ffi::PyObject_TypeCheck(item.as_ptr(), get_type_object(py, NpyTypes::PyIntegerArrType_Type)) != 0 {
            let Some(index) = Bound::from_owned_ptr_or_opt(py, ffi::PyNumber_Index(item.as_ptr())) else {
                ffi::PyErr_Clear();
                return None;
            };
            ffi::PyLong_AsLongLongAndOverflow(index.as_ptr(), &mut overflow)
        } else {
            return None;
        }
    };
    (overflow == 0).then_some(value)
}
