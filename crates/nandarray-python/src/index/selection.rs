//! A selection as Python sees it: `nandarray.index.transfer` reads it to move elements that native commands do not
//! move.

use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::PerDimension;
use super::rules::{Combination, ResultDim, Selected};
use super::terms::{Term, terms};
use crate::errors;
use crate::handle::sizes;

/// The elements that an index expression selects from an array of a certain shape.
#[pyclass(module = "nandarray._nandarray", name = "Selection", frozen)]
pub(crate) struct PySelection {
    selected: Selected,
    mask: Option<Py<PyAny>>,
}

/// Parses the name of a rule by which index arrays combine.
pub(crate) fn combination(py: Python<'_>, mode: &str) -> PyResult<Combination> {
    match mode {
        "numpy" => Ok(Combination::NumPy),
        "outer" => Ok(Combination::Outer),
        "pointwise" => Ok(Combination::Pointwise),
        _ => Err(errors::of_kind(py, "invalid", &format!("there is no way {mode:?} to combine index arrays"))),
    }
}

/// Computes the selection of an index expression in an array of this shape. Without `outer`, index arrays always become
/// points.
#[pyfunction]
#[pyo3(signature = (key, shape, mode="numpy", *, outer=true))]
pub(crate) fn select(
    key: &Bound<'_, PyAny>,
    shape: &Bound<'_, PyTuple>,
    mode: &str,
    outer: bool,
) -> PyResult<PySelection> {
    let py = key.py();
    let terms = terms(key)?;
    let shape: Vec<_> = shape.iter().collect();
    let selected = Selected::of(py, &terms, &sizes(py, &shape)?, combination(py, mode)?, outer);
    let selected = selected.map_err(|wrong| wrong.to_py(py))?;
    let mask = selected.mask.and_then(|number| match &terms[number] {
        Term::Mask(mask) => Some(mask.clone().unbind()),
        _ => None,
    });
    Ok(PySelection { selected, mask })
}

#[pymethods]
impl PySelection {
    /// Shape of the result.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.selected.shape)
    }

    /// Whether NumPy would return a scalar rather than an array without dimensions.
    #[getter]
    fn scalar(&self) -> bool {
        self.selected.scalar
    }

    /// Whether the selection has only runs, and no index arrays.
    #[getter]
    fn is_box(&self) -> bool {
        self.selected.points.is_none() && self.selected.lists.is_empty()
    }

    /// First coordinate along each axis.
    #[getter]
    fn start<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.selected.start)
    }

    /// Distance between coordinates along each axis.
    #[getter]
    fn step<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.selected.step)
    }

    /// Number of coordinates along each axis.
    #[getter]
    fn lengths<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.selected.count)
    }

    /// For each dimension of `counts`, whether the result has it in reverse order; empty if none is reversed.
    #[getter]
    fn reverse<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let s = &self.selected;
        let mut reverse: PerDimension<bool> = PerDimension::new();
        if s.backwards.contains(&true) {
            match &s.points {
                None => reverse.extend_from_slice(&s.backwards),
                Some(_) => {
                    reverse.push(false);
                    reverse.extend(s.runs().map(|axis| s.backwards[axis]));
                }
            }
        }
        PyTuple::new(py, &reverse)
    }

    /// The axis of each dimension of the result, in order; `None` for a dimension that belongs to no axis.
    #[getter]
    fn kept<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let axis = |origin: &ResultDim| match origin {
            ResultDim::Axis(axis) => Some(*axis),
            ResultDim::Points | ResultDim::New => None,
        };
        PyTuple::new(py, self.selected.origins.iter().map(axis).collect::<Vec<_>>())
    }

    /// For each axis its run (start, step, count) or its array of indices; `None` for an axis whose indices are in the
    /// mask.
    #[getter]
    fn axes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let s = &self.selected;
        let mut axes: Vec<Bound<'py, PyAny>> = Vec::with_capacity(s.start.len());
        for axis in 0..s.start.len() {
            let list = s.lists.iter().find(|list| list.axis == Some(axis));
            axes.push(match list {
                None => (s.start[axis], s.step[axis], s.count[axis]).into_pyobject(py)?.into_any(),
                Some(_) if s.mask.is_some() => py.None().into_bound(py),
                Some(list) => {
                    let flat = PyArray1::from_slice(py, &list.coordinates);
                    if s.points.is_some() {
                        let shape: Vec<usize> = list.shape.iter().map(|&n| n as usize).collect();
                        flat.reshape(shape)?.into_any()
                    } else {
                        flat.into_any()
                    }
                }
            });
        }
        PyTuple::new(py, axes)
    }

    /// The shape to which index arrays are broadcast; `None` if the selection has no points.
    #[getter]
    fn points<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.selected.points.as_ref().map(|points| PyTuple::new(py, points)).transpose()
    }

    /// The boolean array that stands for all index arrays; `None` if none does.
    #[getter]
    fn mask(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.mask.as_ref().map(|mask| mask.clone_ref(py))
    }

    /// The shape in which native commands see the elements: the number of points first, if there are any, then one
    /// length for each axis (with points: only for each axis that has a run).
    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let s = &self.selected;
        match &s.points {
            None => PyTuple::new(py, &s.count),
            Some(points) => {
                let mut counts: PerDimension<u64> = PerDimension::new();
                counts.push(points.iter().product());
                counts.extend(s.runs().map(|axis| s.count[axis]));
                PyTuple::new(py, &counts)
            }
        }
    }

    /// Returns the order in which native commands move the result's dimensions: the result, transposed to this order,
    /// can be reshaped to `counts`.
    #[getter]
    fn permutation<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let rank = |dim: &usize| match self.selected.origins[*dim] {
            ResultDim::New => 0,
            ResultDim::Points => 1,
            ResultDim::Axis(axis) => 2 + axis,
        };
        let mut order: Vec<usize> = (0..self.selected.origins.len()).collect();
        order.sort_by_key(rank);
        PyTuple::new(py, order)
    }
}

impl Selected {
    /// The axes that have a run rather than a list.
    pub(crate) fn runs(&self) -> impl Iterator<Item = usize> {
        (0..self.start.len()).filter(|axis| !self.lists.iter().any(|list| list.axis == Some(*axis)))
    }
}
