//! NumPy's rules: the terms of an index expression, compared with a shape, give a selection or the reason why they are
//! wrong.
//!
//! A selection has for each axis of the array a run of coordinates (start, step, count) or a list of them, and for each
//! dimension of the result its origin. It is one of three kinds, cheapest first: a box (only runs), an outer selection
//! (runs, and lists that share no dimension of the result: one list, `numpy.ix_`, `oindex`), or points (lists that are
//! broadcast together, and for each point a box of the runs). Sizes and coordinates have 64 bits; Python's integers are
//! compared with them in 128 bits.
//!
//! No Python code runs here. `get` and `nandarray.index.transfer` move the elements.

use pyo3::prelude::*;
use smallvec::smallvec;

use super::numpy::{array, gather, shape_of, truths};
use super::terms::Term;
use super::{BadIndex, PerDimension};

/// The rule by which the index arrays of an expression combine.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Combination {
    /// NumPy's rules: index arrays are broadcast together.
    NumPy,
    /// Every index array selects along its own axis: `oindex`.
    Outer,
    /// All index arrays are broadcast together, and their dimensions come first in the result: `vindex`.
    Pointwise,
}

/// Origin of one dimension of a selection's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultDim {
    /// The axis from which this dimension selects; an index list of several dimensions makes several of one axis.
    Axis(usize),
    /// The points of broadcast index arrays, or some of the points' dimensions.
    Points,
    /// No axis: a new dimension with one element.
    New,
}

/// Coordinates that one index array selects along one axis.
pub(crate) struct IndexList {
    /// The axis of the coordinates; `None` for a boolean without dimensions, which uses no axis.
    pub(crate) axis: Option<usize>,
    /// The index array's shape.
    pub(crate) shape: PerDimension<u64>,
    /// The coordinates in C order; empty while the mask that they come from has not been expanded.
    pub(crate) coordinates: Vec<u64>,
    /// For a list that comes from a mask of two or more dimensions, the number of the mask's term, and the dimension of
    /// the mask for which the list stands; otherwise `None`.
    mask: Option<(usize, usize)>,
}

/// A selection: the elements that an index expression names.
#[derive(Default)]
pub(crate) struct Selected {
    /// Shape of the result.
    pub(crate) shape: PerDimension<u64>,
    /// Origin of each dimension of the result.
    pub(crate) origins: PerDimension<ResultDim>,
    /// First coordinate of each axis's run; 0 for an axis with a list.
    pub(crate) start: PerDimension<u64>,
    /// Distance between coordinates of each axis's run; 1 for a run of one.
    pub(crate) step: PerDimension<u64>,
    /// Number of elements along each axis.
    pub(crate) count: PerDimension<u64>,
    /// Whether the result has the elements of each axis's run in reverse order.
    pub(crate) backwards: PerDimension<bool>,
    /// Lists of coordinates, one for each axis that an index array selects from, in the order of the expression.
    pub(crate) lists: Vec<IndexList>,
    /// The shape to which index arrays are broadcast, for a selection of points; otherwise `None`.
    pub(crate) points: Option<PerDimension<u64>>,
    /// The number of the term with the mask, if one mask is kept in place of all index arrays, since these would be
    /// larger; otherwise `None`.
    pub(crate) mask: Option<usize>,
    /// Whether the result is a single element rather than an array.
    pub(crate) scalar: bool,
}

/// A term of an index expression after it was compared with its axis: the part that it has in the shape of the result.
#[derive(Clone, Copy)]
enum ComparedTerm {
    Run(usize),
    Integer,
    List(usize),
    New,
    /// An ellipsis: it uses no axis itself, but it separates index arrays, which moves their dimensions to the front.
    Gap,
}

/// Returns the coordinate that an index, negative ones counted from the end, stands for on an axis of `size` elements;
/// `None` if it lies outside.
pub(crate) fn place(index: i128, size: u64) -> Option<u64> {
    let size = i128::from(size);
    let at = if index < 0 { index + size } else { index };
    (0..size).contains(&at).then_some(at as u64)
}

/// Converts a slice of an axis to first (lowest) coordinate, step and count, and whether it runs backwards.
fn run(start: Option<i128>, stop: Option<i128>, step: i128, size: u64) -> (u64, u64, u64, bool) {
    let size = i128::from(size);
    let (low, high) = if step > 0 { (0, size) } else { (-1, size - 1) };
    let bound = |at: i128| (if at < 0 { at + size } else { at }).clamp(low, high);
    let (begin, end) = if step > 0 { (low, high) } else { (high, low) };
    let (first, last) = (start.map_or(begin, bound), stop.map_or(end, bound));
    let (reach, distance) = if step > 0 { (last - first, step) } else { (first - last, -step) };
    let count = if distance == 1 { reach.max(0) } else { (reach + distance - 1).max(0) / distance };
    match count {
        0 => (0, 1, 0, false),
        // A single element needs no step, and the step may be longer than the axis.
        1 => (first as u64, 1, 1, false),
        _ if step > 0 => (first as u64, step as u64, count as u64, false),
        _ => ((first - distance * (count - 1)) as u64, distance as u64, count as u64, true),
    }
}

/// Returns the shape of an index list of one dimension.
fn flat(coordinates: &[u64]) -> PerDimension<u64> {
    smallvec![coordinates.len() as u64]
}

impl Selected {
    /// Computes the selection that the terms of an expression make in an array of this shape. If `outer` is false, an
    /// outer selection becomes points, for callers that cannot read one.
    pub(crate) fn of(
        py: Python<'_>,
        terms: &[Term<'_>],
        shape: &[u64],
        combination: Combination,
        outer: bool,
    ) -> Result<Self, BadIndex> {
        let ellipses = terms.iter().filter(|term| matches!(term, Term::Ellipsis)).count();
        if ellipses > 1 {
            return Err(BadIndex::Ellipses);
        }
        let taken = terms.iter().map(Term::axes).sum();
        if taken > shape.len() {
            return Err(BadIndex::TooMany { dimensions: shape.len(), taken });
        }
        let mut s = Self::default();
        let mut slots = PerDimension::new();
        for (number, term) in terms.iter().enumerate() {
            s.compare(py, number, term, shape, shape.len() - taken, &mut slots)?;
        }
        for axis in s.start.len()..shape.len() {
            s.whole(shape[axis], &mut slots);
        }
        s.scalar = ellipses == 0 && slots.iter().all(|slot| matches!(slot, ComparedTerm::Integer));
        if !s.lists.is_empty() {
            s.combine(terms, &slots, combination, outer)?;
            return Ok(s);
        }
        for slot in slots {
            match slot {
                ComparedTerm::Run(axis) => s.dimension(s.count[axis], ResultDim::Axis(axis)),
                ComparedTerm::New => s.dimension(1, ResultDim::New),
                _ => {}
            }
        }
        Ok(s)
    }

    /// Selects one sub-block: an array of this shape is cut into pieces of `sub_shape`, and `coordinate` is the piece's
    /// place in their grid. Returns `None` if the numbers do not fit the shape.
    pub(crate) fn sub_block(coordinate: &[i64], sub_shape: &[i64], shape: &[u64]) -> Option<Self> {
        if [coordinate.len(), sub_shape.len()] != [shape.len(); 2] {
            return None;
        }
        let mut s = Self::default();
        for (axis, &size) in shape.iter().enumerate() {
            let (at, extent) = (u64::try_from(coordinate[axis]).ok()?, u64::try_from(sub_shape[axis]).ok()?);
            let start = at.checked_mul(extent)?;
            let count = size.checked_sub(start)?.min(extent);
            s.axis(start, 1, count, false);
            s.dimension(count, ResultDim::Axis(axis));
        }
        Some(s)
    }

    /// Compares one term with the next axes of the shape, and adds the runs or lists that it selects from them.
    fn compare(
        &mut self,
        py: Python<'_>,
        number: usize,
        term: &Term<'_>,
        shape: &[u64],
        rest: usize,
        slots: &mut PerDimension<ComparedTerm>,
    ) -> Result<(), BadIndex> {
        let axis = self.start.len();
        match term {
            Term::NewAxis => slots.push(ComparedTerm::New),
            Term::Ellipsis => {
                slots.push(ComparedTerm::Gap);
                shape[axis..axis + rest].iter().for_each(|&size| self.whole(size, slots));
            }
            Term::Integer(index) => {
                let out = BadIndex::OutOfBounds { index: *index, axis, size: shape[axis] };
                let at = place(*index, shape[axis]).ok_or(out)?;
                self.axis(at, 1, 1, false);
                slots.push(ComparedTerm::Integer);
            }
            &Term::Slice { start, stop, step } => {
                let (start, step, count, backwards) = run(start, stop, step, shape[axis]);
                self.axis(start, step, count, backwards);
                slots.push(ComparedTerm::Run(axis));
            }
            Term::List(written, indices) => {
                let size = shape[axis];
                let out = |&index| place(index, size).ok_or(BadIndex::OutOfBounds { index, axis, size });
                let coordinates = indices.iter().map(out).collect::<Result<_, _>>()?;
                self.list(written.clone(), coordinates, slots);
            }
            Term::Array(indices) => {
                let size = shape[axis];
                let fields = array(indices).expect("an array, as its term says");
                let out = |index| BadIndex::OutOfBounds { index, axis, size };
                let coordinates = gather(py, fields, size).map_err(out)?;
                self.list(shape_of(fields).iter().map(|&n| n as u64).collect(), coordinates, slots);
            }
            Term::Mask(mask) => self.masked(number, mask, shape, slots)?,
        }
        Ok(())
    }

    /// Adds the axes that a mask of truth values selects from.
    fn masked(
        &mut self,
        number: usize,
        mask: &Bound<'_, PyAny>,
        shape: &[u64],
        slots: &mut PerDimension<ComparedTerm>,
    ) -> Result<(), BadIndex> {
        let fields = array(mask).expect("an array, as its term says");
        let (axis, truths) = (self.start.len(), truths(fields));
        for (i, (&len, &size)) in shape_of(fields).iter().zip(&shape[axis..]).enumerate() {
            if len as u64 != size {
                return Err(BadIndex::Mask { axis: axis + i, size, len: len as u64 });
            }
        }
        match fields.nd as usize {
            0 => {
                let coordinates = vec![0; usize::from(truths[0] != 0)];
                slots.push(ComparedTerm::List(self.lists.len()));
                self.lists.push(IndexList { axis: None, shape: flat(&coordinates), coordinates, mask: None });
            }
            1 => {
                let found: Vec<u64> = (0..).zip(truths).filter(|(_, truth)| **truth != 0).map(|(at, _)| at).collect();
                self.list(flat(&found), found, slots);
            }
            // The index arrays of a mask are far larger than the mask, so they are only computed if they are needed.
            dimensions => {
                let count = truths.iter().filter(|truth| **truth != 0).count() as u64;
                for dimension in 0..dimensions {
                    self.list(smallvec![count], vec![], slots);
                    let list = self.lists.last_mut().expect("just added");
                    list.mask = Some((number, dimension));
                }
            }
        }
        Ok(())
    }

    fn axis(&mut self, start: u64, step: u64, count: u64, backwards: bool) {
        self.start.push(start);
        self.step.push(step);
        self.count.push(count);
        self.backwards.push(backwards);
    }

    fn whole(&mut self, size: u64, slots: &mut PerDimension<ComparedTerm>) {
        slots.push(ComparedTerm::Run(self.start.len()));
        self.axis(0, 1, size, false);
    }

    fn list(&mut self, shape: PerDimension<u64>, coordinates: Vec<u64>, slots: &mut PerDimension<ComparedTerm>) {
        slots.push(ComparedTerm::List(self.lists.len()));
        let axis = Some(self.start.len());
        self.axis(0, 1, shape.iter().product(), false);
        self.lists.push(IndexList { axis, shape, coordinates, mask: None });
    }

    fn dimension(&mut self, len: u64, origin: ResultDim) {
        self.shape.push(len);
        self.origins.push(origin);
    }

    /// Assigns index arrays their dimensions in the result; beside index arrays, an integer counts as one, too.
    fn combine(
        &mut self,
        terms: &[Term<'_>],
        slots: &[ComparedTerm],
        combination: Combination,
        outer: bool,
    ) -> Result<(), BadIndex> {
        let each = combination == Combination::Outer;
        if each && self.lists.iter().any(|l| l.axis.is_none() || l.mask.is_some() || l.shape.len() != 1) {
            return Err(BadIndex::Outer);
        }
        // The dimensions of the broadcast shape, and for each list those in which its own length is not 1.
        let points = if each { self.lists.iter().map(|l| l.shape[0]).collect() } else { self.broadcast()? };
        let spans: Vec<PerDimension<usize>> = (0..self.lists.len())
            .map(|number| {
                let list = &self.lists[number].shape;
                let from = if each { number } else { points.len() - list.len() };
                (from..).zip(list).filter(|(_, len)| **len != 1).map(|(dim, _)| dim).collect()
            })
            .collect();
        let point_dims = self.shape_with(slots, &points, combination);
        let in_place = self.lists.iter().zip(&spans).filter(|(list, _)| list.axis.is_some());
        let spanned: usize = in_place.clone().map(|(_, span)| span.len()).sum();
        let mut own: PerDimension<usize> = in_place.flat_map(|(_, span)| span.iter().copied()).collect();
        own.sort_unstable();
        own.dedup();
        let mask = self.lists.iter().find_map(|list| list.mask);
        let selects = self.lists.iter().any(|list| list.axis.is_some());
        if !selects || (outer && own.len() == spanned && mask.is_none()) {
            for (list, span) in self.lists.iter().zip(&spans) {
                let Some(axis) = list.axis else { continue };
                span.iter().for_each(|&dim| self.origins[point_dims[dim]] = ResultDim::Axis(axis));
            }
            // A dimension that no list spans has one element, or the selection is empty.
            let unspanned = |origin: &&mut ResultDim| **origin == ResultDim::Points;
            self.origins.iter_mut().filter(unspanned).for_each(|origin| *origin = ResultDim::New);
            self.lists.retain(|list| list.axis.is_some());
            return Ok(());
        }
        match mask.map(|(number, _)| (number, terms[number].axes())) {
            Some((number, axes)) if axes == self.lists.len() => self.mask = Some(number),
            _ => self.unmask(terms),
        }
        if each {
            // Every list is stretched over the dimensions of the other lists.
            for (number, list) in self.lists.iter_mut().enumerate() {
                let len = list.shape[0];
                list.shape = (0..points.len()).map(|dim| if dim == number { len } else { 1 }).collect();
            }
        }
        self.lists.retain(|list| list.axis.is_some());
        self.points = Some(points);
        Ok(())
    }

    /// Builds the shape of the result; returns the place in it of each dimension of the points.
    fn shape_with(&mut self, slots: &[ComparedTerm], points: &[u64], combination: Combination) -> PerDimension<usize> {
        let is_index = |slot: &ComparedTerm| matches!(slot, ComparedTerm::List(_) | ComparedTerm::Integer);
        let first = slots.iter().position(is_index).expect("there is an index array");
        let last = slots.iter().rposition(is_index).expect("there is an index array");
        let together = combination == Combination::NumPy && slots[first..=last].iter().all(is_index);
        let position = if together { first } else { 0 };
        let mut places = PerDimension::new();
        for (i, slot) in slots.iter().enumerate() {
            if i == position && combination != Combination::Outer {
                for &len in points {
                    places.push(self.shape.len());
                    self.dimension(len, ResultDim::Points);
                }
            }
            match *slot {
                ComparedTerm::Run(axis) => self.dimension(self.count[axis], ResultDim::Axis(axis)),
                ComparedTerm::New => self.dimension(1, ResultDim::New),
                ComparedTerm::List(number) if combination == Combination::Outer => {
                    places.push(self.shape.len());
                    self.dimension(points[number], ResultDim::Points);
                }
                ComparedTerm::List(_) | ComparedTerm::Integer | ComparedTerm::Gap => {}
            }
        }
        places
    }

    /// Computes the shape to which all index arrays are broadcast; fails if their shapes do not fit together.
    fn broadcast(&self) -> Result<PerDimension<u64>, BadIndex> {
        let dimensions = self.lists.iter().map(|list| list.shape.len()).max().unwrap_or(0);
        let mut points: PerDimension<u64> = smallvec![1; dimensions];
        for list in &self.lists {
            let from = dimensions - list.shape.len();
            for (to, &len) in points[from..].iter_mut().zip(&list.shape) {
                if *to != len && *to != 1 && len != 1 {
                    return Err(BadIndex::Shapes(self.lists.iter().map(|list| list.shape.to_vec()).collect()));
                }
                if *to == 1 {
                    *to = len;
                }
            }
        }
        Ok(points)
    }

    /// Expands masks to index arrays, which are then broadcast with the other index arrays.
    fn unmask(&mut self, terms: &[Term<'_>]) {
        for list in &mut self.lists {
            let Some((number, dimension)) = list.mask.take() else { continue };
            let Term::Mask(mask) = &terms[number] else { unreachable!("term {number} is a mask") };
            let fields = array(mask).expect("an array, as its term says");
            let shape = shape_of(fields);
            let inner: u64 = shape[dimension + 1..].iter().map(|&n| n as u64).product();
            let len = shape[dimension] as u64;
            let found = (0u64..).zip(truths(fields)).filter(|(_, truth)| **truth != 0);
            list.coordinates = found.map(|(at, _)| at / inner % len).collect();
        }
    }
}
