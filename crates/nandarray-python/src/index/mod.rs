//! Index expressions: NumPy's rules, stated once for all callers.
//!
//! Reads in one call (`get`), transfers that Python does itself (`nandarray.index.transfer`), boxes of programs, and
//! boxes that programs return to the store compute their selection here. An expression is parsed first, which may run
//! Python code (`__index__`, NumPy's conversions). Comparing the terms with a shape runs none, so it can be done while
//! the engine's locks are held.
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

/// One entry for each dimension. Up to four are stored inline, since even a read of one element moves a selection.
pub(crate) type PerDimension<T> = SmallVec<[T; 4]>;

/// The reason why an index expression is rejected.
pub(crate) enum BadIndex {
    OutOfBounds {
        index: i128,
        axis: usize,
        size: u64,
    },
    /// An integer too large for any axis, in decimal digits.
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
    /// An expression for `oindex` with an index array that does not have exactly one dimension.
    Outer,
    /// An object that cannot be an index; the text explains why.
    NoIndex(String),
    /// A slice whose step is zero; the text is Python's.
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

/// Formats a shape as Python writes a tuple.
fn tuple(shape: &[u64]) -> String {
    match shape {
        [one] => format!("({one},)"),
        _ => format!("({})", shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}
