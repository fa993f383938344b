"""Every index expression gives and sets exactly what NumPy gives and sets."""

from __future__ import annotations

import contextlib
from typing import Any

import doors
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nandarray
import strategies
from nandarray import parts
from nandarray._nandarray import select


def stored(scratch: nandarray.Store, model: np.ndarray[Any, Any], block: Any = None) -> nandarray.Array:
    if "a" in scratch:
        del scratch["a"]
    return scratch.create("a", data=model, building_block=block)


def same(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


@st.composite
def cases(draw: st.DrawFn, dtypes: Any = None) -> tuple[np.ndarray[Any, Any], Any]:
    shape = draw(strategies.shapes())
    dtype = draw(strategies.dtypes() if dtypes is None else dtypes)
    return strategies.content(shape, dtype, draw(st.integers(0, 99))), draw(strategies.keys(shape))


@st.composite
def blocks(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if draw(st.booleans()):
        return None
    return tuple(draw(st.integers(1, 4)) for _ in shape)


@given(case=cases(), data=st.data())
def test_reading_is_as_in_numpy(scratch: nandarray.Store, case: Any, data: st.DataObject) -> None:
    model, key = case
    array = stored(scratch, model, data.draw(blocks(model.shape)))
    same(array[key], model[key])


@given(data=st.data(), shape=strategies.shapes(min_dims=1, max_dims=4))
def test_flat_index_arrays_along_every_axis(scratch: nandarray.Store, data: st.DataObject, shape: Any) -> None:
    model = np.arange(np.prod(shape)).reshape(shape)
    array = stored(scratch, model, data.draw(blocks(shape)))
    # A flat index array along every axis, some of them negative or outside.
    points = data.draw(st.integers(0, 6))
    few = [st.lists(st.integers(-size - 1, size), min_size=points, max_size=points) for size in shape]
    kinds = st.sampled_from([np.int8, np.int32, np.int64])
    key = tuple(np.array(data.draw(numbers), data.draw(kinds)) for numbers in few)
    try:
        expected = model[key]
    except IndexError:
        with pytest.raises(nandarray.BadIndexError, match="out of bounds"):
            array[key]
        with pytest.raises(nandarray.BadIndexError, match="out of bounds"):
            array.read(key, out=np.zeros(points, model.dtype))
    else:
        same(array[key], expected)
        same(array.vindex[key], expected)
        # Every second element of a buffer, from the end.
        out = np.zeros(2 * points, model.dtype)[::-2]
        assert array.read(key, out=out) is out
        same(out, expected)


@given(case=cases(), data=st.data(), seed=st.integers(0, 99))
def test_writing_is_as_in_numpy(scratch: nandarray.Store, case: Any, data: st.DataObject, seed: int) -> None:
    model, key = case
    array = stored(scratch, model, data.draw(blocks(model.shape)))
    values = strategies.content(model[key].shape, model.dtype, seed)
    model[key] = values
    array[key] = values
    same(array[...], model)


@given(case=cases(st.sampled_from(strategies.NUMBERS)), value=st.sampled_from([0, 1, 7]))
def test_a_scalar_fills_a_selection(scratch: nandarray.Store, case: Any, value: int) -> None:
    model, key = case
    array = stored(scratch, model)
    model[key] = value
    array[key] = value
    same(array[...], model)


@given(data=st.data(), shape=strategies.shapes(min_dims=1))
def test_outer_indexing_is_ix(scratch: nandarray.Store, data: st.DataObject, shape: tuple[int, ...]) -> None:
    model = np.arange(np.prod(shape)).reshape(shape)
    array = stored(scratch, model)
    key = data.draw(strategies.outer_keys(shape))
    # NumPy's own way to index orthogonally: one axis after the other, from the last, so that integers drop late.
    expected = model
    for axis in reversed(range(len(shape))):
        expected = expected[(slice(None),) * axis + (key[axis],)]
    same(array.oindex[key], expected)
    same(array.view(shape).oindex[key], expected)
    if all(
        len(set(np.arange(n)[part].tolist())) == len(np.arange(n)[part].tolist())
        for part, n in zip(key, shape, strict=True)
        if not isinstance(part, int)
    ):
        array.oindex[key] = -expected
        positions = expected.reshape(-1)
        model.reshape(-1)[positions] = -positions
        same(array[...], model)


@given(data=st.data(), shape=strategies.shapes(min_dims=1))
def test_pointwise_indexing_puts_points_first(
    scratch: nandarray.Store, data: st.DataObject, shape: tuple[int, ...]
) -> None:
    if 0 in shape:
        shape = tuple(max(1, n) for n in shape)
    model = np.arange(np.prod(shape)).reshape(shape)
    array = stored(scratch, model)
    points = data.draw(st.integers(0, 4))
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    key: list[Any] = [slice(None, None, data.draw(st.sampled_from([1, 2, -1]))) for _ in shape]
    for axis in axes:
        key[axis] = np.array(
            data.draw(st.lists(st.integers(0, shape[axis] - 1), min_size=points, max_size=points)), int
        )
    expected = (
        np.array(
            [model[tuple(part[i] if isinstance(part, np.ndarray) else part for part in key)] for i in range(points)]
        )
        if points
        else np.moveaxis(model[tuple(key)], 0, 0)
    )
    got = array.vindex[tuple(key)]
    assert got.shape[0] == points
    if points:
        assert np.array_equal(got, expected)


@given(case=cases(), layout=st.sampled_from(["c", "fortran", "stepped", "reversed"]))
def test_reading_into_any_strides(scratch: nandarray.Store, case: Any, layout: str) -> None:
    model, key = case
    array = stored(scratch, model)
    expected = np.asarray(model[key], model.dtype)
    buffer = strategies.content(tuple(2 * n for n in expected.shape), model.dtype, 3)
    untouched = buffer.copy()
    if layout == "fortran":
        out = np.empty(expected.shape, model.dtype, order="F")
    else:
        out = buffer[
            tuple(slice(0, n if layout == "c" else 2 * n, 2 if layout == "stepped" else 1) for n in expected.shape)
            + (...,)
        ]
    if layout == "reversed":
        out = buffer[tuple(slice(None, n - 1 if n else None, -1) for n in expected.shape) + (...,)]
    assert array.read(key, out=out) is out
    assert out.tobytes() == expected.tobytes()
    beside = np.ones(buffer.shape, bool)
    if layout == "c":
        beside[tuple(slice(0, n) for n in expected.shape)] = False
    elif layout == "stepped":
        beside[tuple(slice(0, None, 2) for n in expected.shape)] = False
    elif layout == "reversed":
        beside[tuple(slice(n, None) for n in expected.shape)] = False
    assert buffer[beside].tobytes() == untouched[beside].tobytes()


@given(case=cases())
def test_views_index_as_reshaped_arrays_do(scratch: nandarray.Store, case: Any) -> None:
    model, key = case
    array = stored(scratch, model.reshape(-1))
    view = array.view(model.shape)
    same(view[key], model[key])
    values = strategies.content(model[key].shape, model.dtype, 5)
    model[key] = values
    view[key] = values
    same(array[...], model.reshape(-1))


@given(shape=strategies.shapes(min_dims=1), data=st.data())
def test_the_same_expressions_are_refused(
    scratch: nandarray.Store, shape: tuple[int, ...], data: st.DataObject
) -> None:
    model = np.zeros(shape, "u1")
    array = stored(scratch, model)
    wild = st.one_of(
        st.integers(-12, 12),
        st.lists(st.integers(-12, 12), max_size=3),
        st.sampled_from(
            [
                slice(None),
                ...,
                None,
                [None, 1],
                np.zeros(3, bool),
                np.ones((2, 2), bool),
                "x",
                1.5,
                [0.5],
                True,
            ]
        ),
    )
    key = tuple(data.draw(st.lists(wild, max_size=5)))
    try:
        expected = model[key]
    except IndexError:
        with pytest.raises(nandarray.BadIndexError):
            array[key]
    else:
        if expected.size:
            same(array[key], expected)
        else:
            # NumPy lets an index outside pass when nothing is selected; here it may be refused.
            with contextlib.suppress(nandarray.BadIndexError):
                same(array[key], expected)


def test_batches_of_points_join_seamlessly(scratch: nandarray.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nandarray.index.transfer.BATCH_POINTS", 7)
    model = np.arange(6 * 5 * 4).reshape(6, 5, 4)
    array = stored(scratch, model)
    mask = model % 3 == 0
    rows, columns = np.arange(24) % 6, np.arange(24) % 5
    for key in (mask, mask[:, :, 0], (rows, columns), (rows, slice(None), columns % 4), (..., columns, rows % 4)):
        same(array[key], model[key])
        values = np.arange(model[key].size).reshape(model[key].shape) - 500
        model[key] = values
        array[key] = values
        same(array[...], model)


def test_a_pointwise_write_is_one_command(scratch: nandarray.Store) -> None:
    if isinstance(scratch, doors.Shelf):
        pytest.skip("shared memory has a command for each run of elements")
    if isinstance(scratch, parts.PartedStore):
        pytest.skip("a store of parts has a command for each shard")
    rng = np.random.default_rng(5)
    model = rng.integers(0, 99, (300, 40, 60))
    array = stored(scratch, model, (32, 16, 16))
    many, rows, columns = 300_000, rng.integers(0, 300, 20_000), rng.integers(0, 40, 20_000)
    key: Any
    for key in (
        tuple(rng.integers(0, side, many) for side in model.shape),  # many of them twice
        rng.random(model.shape) < 0.6,
        rng.random(model.shape[:2]) < 0.5,
        (rows, columns),  # boxes of 60
        (rows[:900], slice(None, None, -3), columns[:900]),
        (rows[:50], columns[:50], slice(5, 50)),
        ([[3], [3]], slice(None), [[1, 5]]),
    ):
        values = rng.integers(100, 10**6, model[key].shape)
        before = doors.file_of(scratch).stat()["writes"]
        model[key] = values
        array[key] = values
        assert doors.file_of(scratch).stat()["writes"] == before + 1
        same(array[...], model)
    view = array.view((600, 1200))
    flat = model.reshape(600, 1200)
    for key in (
        (rng.integers(0, 600, 700), slice(7, 900, 2)),
        (rng.integers(0, 600, many), rng.integers(0, 1200, many)),
    ):
        flat[key] = -flat[key]
        before = doors.file_of(scratch).stat()["writes"]
        view[key] = flat[key]
        assert doors.file_of(scratch).stat()["writes"] == before + 1
        same(array[...], model)


def test_large_boxes_behind_points(scratch: nandarray.Store) -> None:
    model = np.arange(4 * 5 * 400).reshape(4, 5, 400)
    array = stored(scratch, model)
    key: Any
    for key in (([0, 3, 3], [1, 1, 4]), ([[0, 1]], [[2], [3]], slice(None, None, -1)), (0, slice(None, 4), [5, 6])):
        same(array[key], model[key])
        values = -model[key]
        model[key] = values
        array[key] = values
        same(array[...], model)


def test_of_repeated_indices_the_last_one_wins(scratch: nandarray.Store) -> None:
    array = stored(scratch, np.zeros(5, int))
    array[[1, 1, 3, 1]] = [1, 2, 3, 4]
    assert array[:].tolist() == [0, 4, 0, 3, 0]
    square = stored(scratch, np.zeros((3, 3), int))
    square[[1, 1], [2, 2]] = [5, 6]
    assert square[1, 2] == 6


def test_one_command_for_box_and_outer() -> None:
    for key in (np.s_[1:3, ::-1], np.s_[..., 0], np.s_[None, 2]):
        assert select(key, (4, 5)).is_box
    outer: list[Any] = [[0, 2], np.s_[:, [1, 0, 1]], np.ix_([0, 1], [2, 3]), np.s_[np.array([[0], [1]]), [1, 2]]]
    for key in outer:
        selection = select(key, (4, 5))
        assert selection.points is None
        assert not selection.is_box


def test_axes_beyond_machine_integers() -> None:
    shape = (2**64 - 1, 2**63 + 1)
    selection = select(np.s_[-1, 2**63 :], shape)
    assert selection.axes == ((2**64 - 2, 1, 1), (2**63, 1, 1))
    assert select(np.s_[::-3], shape).shape == ((2**64 + 1) // 3, 2**63 + 1)
    assert select(np.s_[-(2**63) - 5 : -3 : 2**63], shape).start == (2**63 - 6, 0)
    (indices, _) = select(np.s_[[-1, 5]], shape).axes
    assert indices.tolist() == [2**64 - 2, 5]
    (indices, _) = select(np.s_[np.array([2**64 - 2], np.uint64)], shape).axes
    assert indices.tolist() == [2**64 - 2]
    (indices, _) = select(np.s_[[-1, 2**63]], shape).axes
    assert indices.tolist() == [2**64 - 2, 2**63]
    for index in (2**64 - 1, -(2**64), 2**200, [2**64 - 1], np.array([2**64 - 1], np.uint64)):
        with pytest.raises(nandarray.BadIndexError, match="is out of bounds for"):
            select(index, shape)


def test_the_parts_of_a_selection() -> None:
    """The fields of a selection that transfers read, for one of each kind."""
    box = select(np.s_[1, ::-2, None], (4, 5, 6))
    assert (box.start, box.step, box.lengths) == ((1, 0, 0), (1, 2, 1), (1, 3, 6))
    assert (box.shape, box.kept, box.reverse) == ((3, 1, 6), (1, None, 2), (False, True, False))
    assert (box.points, box.mask, box.scalar) == (None, None, False)
    assert select((1, 2, 3), (4, 5, 6)).scalar
    outer = select(np.s_[1:, [3, 1]], (4, 5, 6))
    assert (outer.shape, outer.kept, outer.counts) == ((3, 2, 6), (0, 1, 2), (3, 2, 6))
    assert outer.axes[1].tolist() == [3, 1]
    points = select(np.s_[[0, 1], ::-1, [2, 3]], (4, 5, 6))
    assert (points.shape, points.points, points.counts, points.reverse) == ((2, 5), (2,), (2, 5), (False, True))
    assert points.permutation == (0, 1)
    mask = np.ones((4, 5), bool)
    masked = select(mask, (4, 5, 6))
    assert (masked.shape, masked.axes, masked.mask is not None) == ((20, 6), (None, None, (0, 1, 6)), True)
    walking = select((mask[:, 0], mask[0, :4], 0), (4, 4, 6))
    assert (walking.shape, walking.mask) == ((4,), None)
