//! The space translator: turns a box of a view into selections of the space (NDS paper, section 4.3, equation 5).
//!
//! A view has the same elements in the same (row-major) order as its space, under another shape of equal volume. Both
//! shapes are refined to common factors, from the fastest-varying dimension on: the smaller of both remaining sizes
//! becomes a factor if it divides the larger one. Every dimension of space and view is then a product of neighbouring
//! factors. A box of the view becomes a few boxes of the factors (a range over several factors is cut into head, middle
//! and tail), and each of these becomes a few [`Selection`]s of the space: in each dimension of the space one factor
//! becomes the axis, whose step is the product of the faster factors, and the other factors are iterated over.
//!
//! Shapes without common factors, such as (6, 4) viewed as (8, 3), take the flat path: every row of the view's box is a
//! range of the flattened space, cut into head, middle and tail along the space's own dimensions.
//!
//! No elements are accessed here. Offsets of the flat path have 128 bits; the other path never computes the volume.

use super::plan::{Axis, Selection, StridedBox};
use crate::error::{Error, Result};

/// A range of values of one [`Factor`]: `start + step * i` for `i < count`, with `stride` bytes between them in the
/// buffer.
#[derive(Clone, Copy, Debug)]
struct FactorRange {
    start: u64,
    step: u64,
    count: u64,
    stride: isize,
}

/// A box over the common factors of space and view: a range for each [`Factor`], and the byte offset of the box's first
/// element in the buffer.
type FactorBox = (Vec<FactorRange>, isize);

/// Calls `each` with selections of the space that together are the view's box; stops at the first error. `wanted` is
/// the box in coordinates of the view.
///
/// # Errors
/// [`Error::VolumeMismatch`] if the shapes have different volumes, [`Error::OutOfRange`], or the error of `each`.
pub fn translate(
    space: &[u64],
    view: &[u64],
    wanted: &StridedBox<'_>,
    each: &mut dyn FnMut(Selection) -> Result<()>,
) -> Result<()> {
    assert_eq!(wanted.start.len(), view.len());
    let whole: Vec<Axis> = (0..view.len())
        .map(|i| Axis::Range { start: wanted.start[i], step: wanted.step[i], count: wanted.count[i] })
        .collect();
    let as_selection = Selection { axes: whole, strides: wanted.strides.to_vec(), offset: 0 };
    as_selection.check(view)?;
    if space == view {
        return each(as_selection);
    }
    let mismatch = || Error::VolumeMismatch { space: space.to_vec(), view: view.to_vec() };
    match refine(space, view) {
        Refined::Common(factors) => {
            if wanted.count.contains(&0) {
                return Ok(());
            }
            refined_boxes(&factors, space.len(), wanted, each)
        }
        Refined::Empty => Ok(()),
        Refined::Differ => Err(mismatch()),
        Refined::None => {
            let volume = |s: &[u64]| s.iter().try_fold(1u128, |v, &d| v.checked_mul(u128::from(d)));
            match (volume(space), volume(view)) {
                (Some(a), Some(b)) if a == b => flat_boxes(space, view, wanted, each),
                (Some(_), Some(_)) => Err(mismatch()),
                _ => Err(Error::invalid(
                    "a view that shares no factors with an array of more than 2^128 elements is not supported",
                )),
            }
        }
    }
}

/// Checks that a view has as many elements as its space, as `translate` requires.
///
/// # Errors
/// [`Error::VolumeMismatch`] if it has not.
pub fn check_view(space: &[u64], view: &[u64]) -> Result<()> {
    if view.is_empty() {
        return if space.iter().all(|&d| d == 1) {
            Ok(())
        } else {
            Err(Error::VolumeMismatch { space: space.to_vec(), view: vec![] })
        };
    }
    let zero = vec![0; view.len()];
    let one = vec![1; view.len()];
    let strides = vec![0; view.len()];
    translate(space, view, &StridedBox { start: &zero, step: &one, count: &zero, strides: &strides }, &mut |_| Ok(()))?;
    // Equal shapes and empty selections have passed; what is left to compare is the volume.
    match refine(space, view) {
        Refined::Differ => Err(Error::VolumeMismatch { space: space.to_vec(), view: view.to_vec() }),
        _ => Ok(()),
    }
}

/// A common factor of a dimension of the space and a dimension of the view: its size, and the numbers of both
/// dimensions.
#[derive(Clone, Copy, Debug)]
struct Factor {
    size: u64,
    space: usize,
    view: usize,
}

enum Refined {
    /// Common factors, slowest-varying first; dimensions of size 1 have none.
    Common(Vec<Factor>),
    /// Both shapes have no elements.
    Empty,
    /// The shapes have different volumes.
    Differ,
    /// There are no common factors; the volumes may or may not be equal.
    None,
}

fn refine(space: &[u64], view: &[u64]) -> Refined {
    match (space.contains(&0), view.contains(&0)) {
        (true, true) => return Refined::Empty,
        (true, false) | (false, true) => return Refined::Differ,
        (false, false) => {}
    }
    let mut factors = Vec::new();
    let mut sides = [space, view].map(|s| s.iter().copied().enumerate().rev().filter(|&(_, d)| d > 1));
    let (mut s, mut v) = (sides[0].next(), sides[1].next());
    loop {
        match (s, v) {
            (None, None) => break,
            (Some((i, a)), Some((j, b))) => {
                let size = a.min(b);
                if a.max(b) % size != 0 {
                    return Refined::None;
                }
                factors.push(Factor { size, space: i, view: j });
                s = if a == size { sides[0].next() } else { Some((i, a / size)) };
                v = if b == size { sides[1].next() } else { Some((j, b / size)) };
            }
            _ => return Refined::Differ,
        }
    }
    factors.reverse();
    Refined::Common(factors)
}

/// Cuts the range `start..start + count` of a mixed-radix number, whose digits have these `sizes` (slowest first), into
/// boxes of its digits: the part before the first whole cycle of the inner digits, the whole cycles, and the rest.
/// `stride` is the number of bytes in the buffer between successive values of the range.
fn cut(sizes: &[u64], start: u128, count: u128, stride: isize, offset: isize, out: &mut Vec<FactorBox>) {
    if count == 0 {
        return;
    }
    let Some((&outer, inner)) = sizes.split_first() else {
        debug_assert!(start == 0 && count == 1);
        out.push((Vec::new(), offset));
        return;
    };
    let turn: u128 = inner.iter().map(|&s| u128::from(s)).product();
    let (first, in_first) = (start / turn, start % turn);
    let (last, in_last) = ((start + count) / turn, (start + count) % turn);
    let span = |value: u128, n: u128| FactorRange {
        start: value as u64,
        step: 1,
        count: n as u64,
        stride: if n > 1 { stride.wrapping_mul(turn as isize) } else { 0 },
    };
    debug_assert!(first < u128::from(outer));
    let mut with = |lead: FactorRange, start: u128, count: u128, offset: isize| {
        let mut parts = Vec::new();
        cut(inner, start, count, stride, offset, &mut parts);
        for (mut spans, at) in parts {
            spans.insert(0, lead);
            out.push((spans, at));
        }
    };
    if first == last {
        return with(span(first, 1), in_first, count, offset);
    }
    let mut next = first;
    let mut done = 0;
    if in_first > 0 {
        done = turn - in_first;
        with(span(first, 1), in_first, done, offset);
        next += 1;
    }
    if next < last {
        with(span(next, last - next), 0, turn, offset + stride.wrapping_mul(done as isize));
        done += (last - next) * turn;
    }
    if in_last > 0 {
        with(span(last, 1), 0, in_last, offset + stride.wrapping_mul(done as isize));
    }
}

fn refined_boxes(
    factors: &[Factor],
    dimensions: usize,
    wanted: &StridedBox<'_>,
    each: &mut dyn FnMut(Selection) -> Result<()>,
) -> Result<()> {
    // For each dimension of the view the boxes over its own factors; dimensions of size 1 have no factors.
    let mut per_view: Vec<Vec<FactorBox>> = Vec::new();
    for dim in 0..wanted.start.len() {
        let sizes: Vec<u64> = factors.iter().filter(|f| f.view == dim).map(|f| f.size).collect();
        let (start, step, count) = (wanted.start[dim], wanted.step[dim], wanted.count[dim]);
        let stride = wanted.strides[dim];
        let mut pieces = Vec::new();
        if sizes.is_empty() {
            continue;
        } else if sizes.len() == 1 {
            pieces.push((vec![FactorRange { start, step, count, stride }], 0));
        } else if step == 1 {
            cut(&sizes, start.into(), count.into(), stride, 0, &mut pieces);
        } else {
            for i in 0..count {
                cut(
                    &sizes,
                    u128::from(start) + u128::from(i) * u128::from(step),
                    1,
                    0,
                    i as isize * stride,
                    &mut pieces,
                );
            }
        }
        per_view.push(pieces);
    }
    // Every combination of one box for each dimension: ranges for all factors, slowest first.
    let mut choice = vec![0; per_view.len()];
    let mut spans = Vec::with_capacity(factors.len());
    loop {
        spans.clear();
        let mut offset = 0;
        for (pieces, &c) in per_view.iter().zip(&choice) {
            spans.extend_from_slice(&pieces[c].0);
            offset += pieces[c].1;
        }
        space_boxes(factors, &spans, dimensions, offset, each)?;
        let Some(i) = (0..choice.len()).rev().find(|&i| choice[i] + 1 < per_view[i].len()) else { return Ok(()) };
        choice[i] += 1;
        choice[i + 1..].fill(0);
    }
}

/// Turns a box, given as ranges over all common factors, into selections of the space.
fn space_boxes(
    factors: &[Factor],
    spans: &[FactorRange],
    dimensions: usize,
    offset: isize,
    each: &mut dyn FnMut(Selection) -> Result<()>,
) -> Result<()> {
    assert_eq!(factors.len(), spans.len());
    let mut axes = vec![Axis::Range { start: 0, step: 1, count: 1 }; dimensions];
    let mut strides = vec![0isize; dimensions];
    // Factors that are iterated over: (dimension, number of elements of the dimension between values, range).
    let mut walked: Vec<(usize, u64, FactorRange)> = Vec::new();
    for dim in 0..dimensions {
        let own: Vec<usize> = (0..factors.len()).filter(|&i| factors[i].space == dim).collect();
        if own.is_empty() {
            continue;
        }
        let mut parts = joined(&own.iter().map(|&i| (factors[i].size, spans[i])).collect::<Vec<_>>());
        let (unit, span) = parts.swap_remove(axis_of(&parts, dim + 1 == dimensions));
        axes[dim] = Axis::Range { start: span.start * unit, step: span.step * unit, count: span.count };
        strides[dim] = span.stride;
        walked.extend(parts.into_iter().map(|(unit, span)| (dim, unit, span)));
    }
    let mut at = vec![0u64; walked.len()];
    loop {
        let (mut axes, mut here) = (axes.clone(), offset);
        for ((dim, unit, span), &i) in walked.iter().zip(&at) {
            let Axis::Range { start, .. } = &mut axes[*dim] else { unreachable!("only ranges are made here") };
            *start += (span.start + i * span.step) * unit;
            here += i as isize * span.stride;
        }
        each(Selection { axes, strides: strides.clone(), offset: here })?;
        let Some(i) = (0..at.len()).rev().find(|&i| at[i] + 1 < walked[i].2.count) else { return Ok(()) };
        at[i] += 1;
        at[i + 1..].fill(0);
    }
}

/// Chooses the part of a dimension that becomes the axis of a selection, among the parts (fastest first) that
/// [`joined`] returns, and returns its number. It is the part with the most values, so that there are few selections;
/// among equal ones the fastest, so that each selection lies in few blocks. Along the last dimension the fastest part
/// may be contiguous; it is chosen before a larger one unless that costs too many selections, where a selection counts
/// as 16 elements without neighbours.
fn axis_of(parts: &[(u64, FactorRange)], last: bool) -> usize {
    let count = |i: usize| parts[i].1.count;
    let widest = (0..parts.len()).rev().max_by_key(|&i| count(i)).expect("a dimension has a part");
    let (wide, run) = (count(widest), count(0));
    let is_run = last && parts[0].0 == 1 && parts[0].1.step == 1;
    if is_run && (wide - run).saturating_mul(16) <= wide.saturating_mul(run) { 0 } else { widest }
}

/// Joins neighbouring factors of one dimension (slowest first) if their ranges continue each other both in the space
/// and in the buffer. Returns for each part the distance of its successive values along the dimension, in elements, and
/// its range.
fn joined(own: &[(u64, FactorRange)]) -> Vec<(u64, FactorRange)> {
    let mut parts: Vec<(u64, u64, FactorRange)> = Vec::new(); // (elements between values, size, range), fastest first
    let mut unit = 1;
    for &(size, span) in own.iter().rev() {
        let joins = parts.last().is_some_and(|&(_, inner_size, inner)| {
            let full = inner.start == 0 && inner.step == 1 && inner.count == inner_size;
            full && span.step == 1 && (span.count == 1 || span.stride == inner.stride.wrapping_mul(inner_size as isize))
        });
        if joins {
            let last = parts.last_mut().expect("there is one to join");
            let inner_size = last.1;
            last.1 *= size;
            last.2.start = span.start * inner_size;
            last.2.count = span.count * inner_size;
        } else {
            parts.push((unit, size, span));
        }
        unit *= size;
    }
    parts.into_iter().map(|(unit, _, span)| (unit, span)).collect()
}

fn flat_boxes(
    space: &[u64],
    view: &[u64],
    wanted: &StridedBox<'_>,
    each: &mut dyn FnMut(Selection) -> Result<()>,
) -> Result<()> {
    if wanted.count.contains(&0) {
        return Ok(());
    }
    let last = view.len() - 1;
    let mut weights = vec![1u128; view.len()];
    for i in (0..last).rev() {
        weights[i] = weights[i + 1] * u128::from(view[i + 1]);
    }
    let row_count = if wanted.step[last] == 1 { 1 } else { wanted.count[last] };
    let row_len = if wanted.step[last] == 1 { wanted.count[last] } else { 1 };
    let mut at = vec![0u64; view.len()];
    let mut pieces = Vec::new();
    loop {
        let mut flat = 0u128;
        let mut offset = 0isize;
        for i in 0..view.len() {
            flat += (u128::from(wanted.start[i]) + u128::from(at[i]) * u128::from(wanted.step[i])) * weights[i];
            offset += at[i] as isize * wanted.strides[i];
        }
        pieces.clear();
        cut(space, flat, row_len.into(), wanted.strides[last], offset, &mut pieces);
        for (spans, here) in &pieces {
            let axes = spans.iter().map(|s| Axis::Range { start: s.start, step: 1, count: s.count }).collect();
            let strides = spans.iter().map(|s| s.stride).collect();
            each(Selection { axes, strides, offset: *here })?;
        }
        let limit = |i: usize| if i == last { row_count } else { wanted.count[i] };
        let Some(i) = (0..at.len()).rev().find(|&i| at[i] + 1 < limit(i)) else { return Ok(()) };
        at[i] += 1;
        at[i + 1..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Translates a box of a view; returns all its elements as (flat index in the space, buffer offset), sorted, and
    /// the number of selections.
    fn run(space: &[u64], view: &[u64], start: &[u64], step: &[u64], count: &[u64]) -> (Vec<(u128, isize)>, usize) {
        let mut strides = vec![0isize; view.len()];
        let mut stride = 1;
        for i in (0..view.len()).rev() {
            strides[i] = stride;
            stride *= count[i] as isize;
        }
        let mut got = Vec::new();
        let mut boxes = 0;
        translate(space, view, &StridedBox { start, step, count, strides: &strides }, &mut |s| {
            s.check(space)?;
            boxes += 1;
            let mut at = vec![(0u128, s.offset)];
            for (i, axis) in s.axes.iter().enumerate() {
                let Axis::Range { start, step, count } = axis else { unreachable!() };
                at = at
                    .iter()
                    .flat_map(|&(f, o)| {
                        (0..*count)
                            .map(|k| {
                                (f * u128::from(space[i]) + u128::from(start + k * step), o + k as isize * s.strides[i])
                            })
                            .collect::<Vec<_>>()
                    })
                    .collect();
            }
            got.extend(at);
            Ok(())
        })
        .unwrap();
        got.sort_unstable();
        (got, boxes)
    }

    fn expected(view: &[u64], start: &[u64], step: &[u64], count: &[u64]) -> Vec<(u128, isize)> {
        let mut at = vec![(0u128, 0isize)];
        for i in 0..view.len() {
            at = at
                .iter()
                .flat_map(|&(f, o)| {
                    (0..count[i])
                        .map(|k| {
                            (
                                f * u128::from(view[i]) + u128::from(start[i] + k * step[i]),
                                o * count[i] as isize + k as isize,
                            )
                        })
                        .collect::<Vec<_>>()
                })
                .collect();
        }
        at.sort_unstable();
        at
    }

    #[test]
    fn the_papers_figure_5_takes_few_boxes() {
        // A producer's 8192 x 8192 x 4 space seen as 16384 x 16384: one quarter of it.
        let (space, view) = ([32, 32, 4], [64, 64]);
        let (got, boxes) = run(&space, &view, &[32, 0], &[1, 1], &[32, 32]);
        assert_eq!(got, expected(&view, &[32, 0], &[1, 1], &[32, 32]));
        assert!(boxes <= 2, "{boxes}");
    }

    #[test]
    fn volumes_are_compared_even_where_they_overflow() {
        let huge = vec![1u64 << 40; 32];
        let mut other = huge.clone();
        other[31] *= 2;
        assert!(matches!(check_view(&huge, &other), Err(Error::VolumeMismatch { .. })));
        other[0] /= 2;
        check_view(&huge, &other).unwrap();
        assert!(check_view(&[0, 3], &[5, 0]).is_ok());
        assert!(check_view(&[0, 3], &[1]).is_err());
        assert!(check_view(&[6, 4], &[8, 3]).is_ok());
        assert!(check_view(&[6, 4], &[5, 5]).is_err());
    }

    #[test]
    fn single_values_have_no_stride_because_it_could_overflow() {
        // 7 values from 5 on of digits of 3 x 4 x 2: the end of a cycle of 4 x 2, a cycle's first half.
        let mut boxes = Vec::new();
        cut(&[3, 4, 2], 5, 7, 10, 0, &mut boxes);
        let plain = |b: &FactorBox| (b.0.iter().map(|s| (s.start, s.count, s.stride)).collect::<Vec<_>>(), b.1);
        let found: Vec<_> = boxes.iter().map(plain).collect();
        let expected = [
            (vec![(0, 1, 0), (2, 1, 0), (1, 1, 0)], 0),
            (vec![(0, 1, 0), (3, 1, 0), (0, 2, 10)], 10),
            (vec![(1, 1, 0), (0, 2, 20), (0, 2, 10)], 30),
        ];
        assert_eq!(found, expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn any_view_of_equal_volume_gives_the_same_elements(
            factors in prop::collection::vec(1u64..5, 1..6),
            cut_space in any::<u8>(), cut_view in any::<u8>(), swap in any::<bool>(), seed in any::<u64>(),
        ) {
            let group = |factors: &[u64], bits: u8| {
                let mut dims = vec![factors[0]];
                for (i, f) in factors.iter().enumerate().skip(1) {
                    if bits >> (i - 1) & 1 == 1 { dims.push(*f) } else { *dims.last_mut().unwrap() *= f }
                }
                dims
            };
            let space = group(&factors, cut_space);
            let mut shuffled = factors.clone();
            if swap { shuffled.reverse(); } // often without a common refinement
            let view = group(&shuffled, cut_view);
            let mut chance = crate::sim::Chance::seeded(seed);
            let (mut start, mut step, mut count) = (vec![], vec![], vec![]);
            for &d in &view {
                let s = chance.below(d);
                let t = 1 + chance.below(3);
                start.push(s);
                step.push(t);
                count.push(1 + chance.below((d - s).div_ceil(t)));
            }
            prop_assert_eq!(run(&space, &view, &start, &step, &count).0, expected(&view, &start, &step, &count));
        }
    }
}
