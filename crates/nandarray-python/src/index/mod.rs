//! Index expressions: NumPy's rules, stated once for every door.
//!
//! Reads by one call (`get`), everything that Python moves itself (`nandarray.index.transfer`), boxes of programs and
//! boxes that are given back to the store get their selection here. An expression is taken apart first, which may run
//! Python code (`__index__`, NumPy's conversions); comparing the terms with a shape runs none, so that it can be done
//! under the engine's locks.
//!
//! | file | one idea |
//! | --- | --- |
//! | `terms` | Python objects between the brackets as terms |
//! | `rules` | terms and a shape as a selection, or what is wrong with them |
//! | `numpy` | memory of index arrays and masks |
//! | `selection` | the class that Python sees |

pub(crate) mod numpy;
pub(crate) mod rules;
pub(crate) mod selection;
pub(crate) mod terms;

use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::errors;

/// One entry for each dimension. Few are kept inline, since a selection is moved where one element is read.
pub(crate) type PerDimension<T> = SmallVec<[T; 4]>;

/// An index expression that is wrong.
pub(crate) enum BadIndex {
    OutOfBounds {
        index: i128,
        axis: usize,
        size: u64,
    },
    /// An integer that is longer than any axis: its digits.
    Endless(String),
    Ellipses,
    TooMany {
        dimensions: usize,
        taken: usize,
    },
    Mask {
        axis: usize,
        size: u64,
        len: u64,
    },
    /// Index arrays of these shapes cannot be broadcast together.
    Shapes(Vec<Vec<u64>>),
    /// An expression for `oindex` with an index array of other than one dimension.
    Outer,
    /// An object that is no index: the sentence says why.
    NoIndex(String),
    /// A slice whose step is zero.
    Step(String),
}

impl BadIndex {
    pub(crate) fn to_py(&self, py: Python<'_>) -> PyErr {
        let kind = if matches!(self, Self::Step(_)) { "invalid" } else { "out-of-range" };
        errors::of_kind(py, kind, &self.text())
    }

    fn text(&self) -> String {
        match self {
            Self::OutOfBounds { index, axis, size } => {
                format!("index {index} is out of bounds for axis {axis} with size {size}")
            }
            Self::Endless(digits) => format!("index {digits} is out of bounds for every axis"),
            Self::Ellipses => "an index can only have a single ellipsis ('...')".to_owned(),
            Self::TooMany { dimensions, taken } => {
                format!("too many indices for array: array is {dimensions}-dimensional, but {taken} were indexed")
            }
            Self::Mask { axis, size, len } => format!(
                "boolean index did not match indexed array along axis {axis}; size of axis is {size} but size of \
                 corresponding boolean axis is {len}"
            ),
            Self::Shapes(shapes) => {
                let shapes: Vec<_> = shapes.iter().map(|shape| tuple(shape)).collect();
                let shapes = shapes.join(" ");
                format!("shape mismatch: indexing arrays could not be broadcast together with shapes {shapes}")
            }
            Self::Outer => "oindex takes integers, slices and 1-D integer or boolean arrays".to_owned(),
            Self::NoIndex(text) | Self::Step(text) => text.clone(),
        }
    }
}

/// A shape as Python writes it.
fn tuple(shape: &[u64]) -> String {
    match shape {
        [one] => format!("({one},)"),
        _ => format!("({})", shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}
