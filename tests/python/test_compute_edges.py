"""Folds, columns and initial values where there is little or nothing: empty axes, truth values, single numbers.

NumPy is the model; where NumPy loses bits without a word, as by an initial value of another kind, there is an error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nandarray
from nandarray import InvalidError, NandarrayError
from nandarray.programs import ports
from nandarray.programs.calls import boxwise

EMPTY = [(0,), (0, 3), (3, 0), (2, 0, 4), (0, 0)]


@pytest.mark.parametrize("shape", EMPTY)
@pytest.mark.parametrize("dtype", ["i2", "u4", "f4", "f8", "c16"])
def test_nothing_is_folded_into_what_numpy_has_of_nothing(store: nandarray.Store, shape: Any, dtype: str) -> None:
    data = np.zeros(shape, dtype)
    store["x"] = data
    axes: list[Any] = [*range(len(shape)), *itertools.combinations(range(len(shape)), 2), (-1,)]
    for axis in axes:
        found = store["x"].reduce("sum", axis=axis)
        wide = {"i": "i8", "u": "u8", "f": "f8", "c": "c16"}[data.dtype.kind]
        np.testing.assert_array_equal(found, data.sum(axis), err_msg=f"axis {axis}")
        assert found.dtype == np.dtype(wide)
        mean = store["x"].reduce("mean", axis=axis)
        assert mean.shape == data.sum(axis).shape
        assert np.isnan(mean).all()
        for name in ("min", "max"):
            wanted = data.sum(axis)
            if wanted.size:  # NumPy refuses those without a result, too, if the axis is empty
                with pytest.raises(InvalidError, match="there is no element along ax"):
                    store["x"].reduce(name, axis=axis)
            else:
                assert store["x"].reduce(name, axis=axis).shape == wanted.shape
    whole = store["x"].reduce("mean", axis=0, dtype="i8")
    assert np.isnan(whole).all()
    assert whole.dtype == np.dtype("f8")


def test_truth_values_are_folded_as_numpys(store: nandarray.Store) -> None:
    data = np.random.default_rng(4).random((5, 4)) < 0.5
    data[2], data[:, 1] = True, False
    store["x"] = data
    for axis, names in ((0, ("min", "sum")), (1, ("max",))):
        for name in names:
            found = store["x"].reduce(name, axis=axis)
            wanted = getattr(np, name)(data, axis=axis)
            np.testing.assert_array_equal(found, wanted, err_msg=f"{name} along {axis}")
            assert found.dtype == wanted.dtype, name
    for name in ("min", "sum"):
        assert store["x"].reduce(name) == getattr(np, name)(data)


INITIAL: list[tuple[str, str, Any, str | None]] = [
    ("u1", "sum", 5, None),
    ("u1", "sum", 5.0, None),
    ("u1", "min", 3, None),
    ("f8", "sum", 0.5, None),
    ("f4", "max", 1e9, None),
    ("u1", "sum", 0.5, "initial is 0.5, and the result is uint64"),
    ("u1", "min", 300, "initial is 300: "),
    ("u1", "min", -1, "initial is -1: "),
    ("i4", "sum", "3", "initial must be one number"),
    ("i4", "sum", "x", "initial is 'x': "),
    ("i4", "sum", [1, 2], "initial must be one number"),
    ("i4", "sum", np.inf, "initial is inf: "),
    ("i4", "mean", 1, "mean has no initial value"),
    ("f8", "std", 1, "std has no initial value"),
]


@pytest.mark.parametrize(("dtype", "name", "initial", "says"), INITIAL)
def test_an_initial_value_counts_whole_or_is_refused(
    store: nandarray.Store, dtype: str, name: str, initial: Any, says: str | None
) -> None:
    data = np.arange(4, 9).astype(dtype)
    store["x"] = data
    if says is None:
        assert store["x"].reduce(name, initial=initial) == getattr(np, name)(data, initial=initial)
    else:
        with pytest.raises(InvalidError) as caught:
            store["x"].reduce(name, initial=initial)
        assert says in str(caught.value)


# --- columns ----------------------------------------------------------------------------------------------------------

ROW = np.dtype([("a", "<i4"), ("b", "S3"), ("c", "<f8", (2,)), ("d", "u1")])


@pytest.mark.parametrize(("rows", "names"), [(0, "a"), (7, "dcba"), (1, "cb"), (90, "bd")])
def test_fields_are_taken_in_any_order(store: nandarray.Store, rows: int, names: str) -> None:
    data = np.frombuffer(np.random.default_rng(rows).bytes(rows * ROW.itemsize), ROW)
    store["x"] = data
    found = store["x"].select(*names)
    assert found.dtype == np.dtype([(name, ROW[name]) for name in names])
    for name in names:
        assert found[name].tobytes() == data[name].tobytes()
    found[...] = np.zeros((), found.dtype)  # it is the caller's own


@pytest.mark.parametrize("columns", [(4, 0, -1, 4), (-5,), (3, 3, 2, 1, 0, -2)])
@pytest.mark.parametrize("shape", [(5,), (0, 5), (3, 5), (2, 3, 5)])
def test_numbers_of_columns_are_taken_in_any_order(store: nandarray.Store, shape: Any, columns: Any) -> None:
    array = np.arange(int(np.prod(shape)), dtype="<u2").reshape(shape)
    store["x"] = array
    found = store["x"].select(*columns)
    np.testing.assert_array_equal(found, array[..., list(columns)])
    assert found.flags.writeable


def test_columns_that_are_none_are_refused(store: nandarray.Store) -> None:
    store["rows"], store["grid"], store["one"] = np.zeros(3, ROW), np.zeros((2, 3)), np.array(1.0)
    cases: list[tuple[str, tuple[Any, ...], str]] = [
        ("rows", (), "no column is named"),
        ("rows", ("a", "e"), "there is no field 'e'; there is a, b, c, d"),
        ("rows", ("a", "b", "a"), "field 'a' is named twice"),
        ("rows", (0,), "there is no field 0"),
        ("grid", ("a",), "columns must be fields of structured elements, or numbers along the last"),
        ("grid", (True,), "columns must be fields of structured elements, or numbers"),
        ("grid", (1.0,), "columns must be fields of structured elements, or numbers"),
        ("grid", (0, 3), "column 3 is out of bounds for 3 columns"),
        ("grid", (-4,), "column -4 is out of bounds for 3 columns"),
        ("one", (0,), "columns must be fields of structured elements, or numbers"),
    ]
    for name, columns, says in cases:
        with pytest.raises(InvalidError) as caught:
            store[name].select(*columns)
        assert says in str(caught.value)


# --- tiles ------------------------------------------------------------------------------------------------------------


@given(st.data())
def test_tiles_cover_a_box_once_and_end_where_blocks_do(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)))
    sizes = tuple(data.draw(st.integers(1, 11)) for _ in shape)
    first = tuple(data.draw(st.integers(1, size)) for size in sizes)
    covered = np.zeros(shape, int)
    tiles = list(boxwise._cut(shape, sizes, first))
    for tile in tiles:
        assert covered[tile].size > 0
        covered[tile] += 1
        for part, begin, size, length in zip(tile, first, sizes, shape, strict=True):
            assert part.start == 0 or (part.start - begin) % size == 0
            assert part.stop == length or (part.stop - begin) % size == 0
    assert (covered == 1).all()
    assert tiles == sorted(tiles, key=lambda tile: [part.start for part in tile])


@given(st.data())
def test_a_part_of_a_box_is_the_same_part_of_the_array(store: nandarray.Store, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=3)))
    if "x" in store:
        del store["x"]
    array = np.arange(int(np.prod(shape))).reshape(shape)
    store["x"] = array
    key: list[Any] = []
    for size in shape:
        start = data.draw(st.integers(0, size - 1))
        stop = data.draw(st.integers(start + 1, size))
        key.append(data.draw(st.sampled_from([start, slice(start, stop, data.draw(st.integers(1, 3))), slice(None)])))
    box = ports.Boxed(ports.Box(store["x"], tuple(key)))
    whole = array[tuple(key)]
    assert tuple(box.shape) == whole.shape
    places = []
    for size in whole.shape[: data.draw(st.integers(0, whole.ndim))]:
        at = data.draw(st.integers(0, size - 1))
        places.append(data.draw(st.sampled_from([at, slice(at, size), slice(None)])))
    np.testing.assert_array_equal(array[box.part(places)], whole[tuple(places)], err_msg=f"{key} {places}")


def test_inputs_that_do_not_fit_a_program_are_named(store: nandarray.Store) -> None:
    store["x"], store["y"] = np.zeros((4, 3)), np.zeros((2, 3))
    x = store["x"]
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: x.map_blocks("exp", block=True), "block is for functions and programs over boxes; 'exp' has none"),
        (lambda: x.map_blocks("exp", dtype="f4"), "dtype is for functions that are compiled now"),
        (lambda: x.map_blocks(lambda a, b: a, store["y"]), "inputs have the shapes (4, 3) and (2, 3)"),
        (lambda: x.map_blocks(lambda a, k: a, k="text"), "k must be one number, or an option, not 'text'"),
        (lambda: x.map_blocks(lambda a, k: a, k=[1, 2]), "k must be one number, or an option, not [1, 2]"),
        (
            lambda: x.map_blocks(lambda a, b: None, block=(2,)),
            "block must have 2 lengths from 1 on, as the box (4, 3), not (2,)",
        ),
        (
            lambda: x.map_blocks(lambda a, b: None, block=(0, 1)),
            "block must have 2 lengths from 1 on, as the box (4, 3), not (0, 1)",
        ),
        (lambda: x.map_blocks(lambda a, b: None, block=(9000, 9000)), "does not fit a task of 67108864 bytes"),
        (
            lambda: x.map_blocks(lambda a, b: None, block=(2, 2), out=store["y"]),
            "out must have shape (4, 3), as the box, not (2, 3)",
        ),
        (lambda: x.view(12).map_blocks(lambda a, b: None, block=True), "a view has no building block"),
        (lambda: x.reduce("middle"), "there is no reduction 'middle'; there is "),
        (lambda: x.reduce("middle", axis=0), "there is no reduction 'middle' along an axis; there is sum, mean"),
        (lambda: x.reduce("sum", axis=0, initial=1), "along an axis there are names and functions of two values"),
        (lambda: x.reduce("sum", axis=(0, 0)), "axes (0, 0) name one axis twice"),
        (lambda: x.reduce("sum", axis=True), "an axis must be an integer, not True"),
        (lambda: x.filter("nope"), "there is no program 'nope'"),
    ]
    for call, says in calls:
        with pytest.raises(NandarrayError) as caught:
            call()
        assert says in str(caught.value), says
    assert list(store) == ["x", "y"]


def test_a_box_that_has_no_tiles_gives_nothing(store: nandarray.Store) -> None:
    store["x"] = np.zeros((0, 4))

    def fill(a: Any, b: Any) -> None:
        b[0, 0] = 1

    assert store["x"].map_blocks(fill, block=(2, 2)).shape == (0, 4)
    assert store["x"].map_blocks(lambda a: a + 1).shape == (0, 4)
    assert store["x"].filter(lambda a: a > 0).shape == (0,)
