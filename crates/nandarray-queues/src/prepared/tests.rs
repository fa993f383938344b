//! Runs of elements as boxes, beside the coordinates of their elements one by one.

use super::*;

fn of(shape: &[u64], item: u64) -> RunShape {
    let mut elements = vec![1; shape.len()];
    for i in (0..shape.len().saturating_sub(1)).rev() {
        elements[i] = elements[i + 1] * shape[i + 1];
    }
    let strides = elements.iter().map(|n| (n * item) as isize).collect();
    RunShape { step: vec![1; shape.len()], shape: shape.to_vec(), elements, strides }
}

/// Returns the coordinates of an element, by dividing from the last dimension on.
fn coordinates(shape: &[u64], mut element: u64) -> Vec<u64> {
    let mut found = vec![0; shape.len()];
    for (place, size) in found.iter_mut().zip(shape).rev() {
        (*place, element) = (element % size, element / size);
    }
    found
}

/// Whether consecutive elements are all elements of the box around them; the box's sizes.
fn around(shape: &[u64], first: u64, elements: u64) -> Option<Vec<u64>> {
    let all: Vec<Vec<u64>> = (first..first + elements).map(|element| coordinates(shape, element)).collect();
    let side = |axis: usize| {
        let along = || all.iter().map(|at| at[axis]);
        along().max().unwrap() - along().min().unwrap() + 1
    };
    let sides: Vec<u64> = (0..shape.len()).map(side).collect();
    (sides.iter().product::<u64>() == elements).then_some(sides)
}

#[test]
fn a_run_is_a_box_of_the_array_exactly_where_its_elements_are_one() {
    let shapes: [&[u64]; 11] = [
        &[12],
        &[3, 4],
        &[4, 6],
        &[2, 3, 4],
        &[1, 6],
        &[6, 1],
        &[2, 1, 6],
        &[1, 1, 1],
        &[2, 2, 2, 2],
        &[5, 7],
        &[3, 2, 1, 4],
    ];
    for shape in shapes {
        let (runs, all) = (of(shape, 4), shape.iter().product::<u64>());
        for elements in 1..=all {
            let whole = |first: &u64| first + elements <= all;
            match runs.boxed(elements) {
                Some((count, unit)) => {
                    for first in (0..all).step_by(unit as usize).filter(whole) {
                        let found = around(shape, first, elements);
                        assert_eq!(found.as_deref(), Some(&count[..]), "{elements} from {first} of {shape:?}");
                        let mut start = Vec::new();
                        runs.add_start(first, &mut start);
                        assert_eq!(start, coordinates(shape, first), "element {first} of {shape:?}");
                    }
                }
                None if all.is_multiple_of(elements) => {
                    let mut places = (0..all).step_by(elements as usize).filter(whole);
                    let is_none = places.any(|first| around(shape, first, elements).is_none());
                    assert!(is_none, "{elements} elements of {shape:?} are boxes wherever they begin");
                }
                None => {}
            }
        }
    }
}
