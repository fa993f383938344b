"""Views: sub-blocks of the same elements under any shape of equal volume."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nandarray
import strategies
from nandarray.array.view import translate


@given(data=st.data(), shape=strategies.shapes(min_dims=1), dtype=strategies.dtypes())
def test_sub_blocks_tile_the_view(
    scratch: nandarray.Store, data: st.DataObject, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> None:
    if "a" in scratch:
        del scratch["a"]
    model = strategies.content(shape, dtype, 1)
    block = tuple(data.draw(st.integers(1, 4)) for _ in shape) if data.draw(st.booleans()) else None
    array = scratch.create("a", data=model, building_block=block)
    seen = data.draw(strategies.view_shapes(model.size))
    view = array.view(seen)
    expected = model.reshape(seen)
    sub = tuple(data.draw(st.integers(1, n + 2)) for n in seen)
    coordinate = tuple(data.draw(st.integers(0, max(0, -(-n // s) - 1))) for n, s in zip(seen, sub, strict=True))
    box: Any = (*(slice(c * s, c * s + s) for c, s in zip(coordinate, sub, strict=True)), ...)
    got = view.read(coordinate, sub)
    assert got.shape == expected[box].shape
    assert got.tobytes() == expected[box].tobytes()

    values = strategies.content(got.shape, dtype, 2)
    view.write(coordinate, values, sub_shape=sub)
    expected = expected.copy()
    expected[box] = values
    assert array[...].tobytes() == expected.tobytes()


def test_coordinates_count_in_sub_blocks(store: nandarray.Store) -> None:
    store["a"] = np.arange(64).reshape(8, 8)
    view = store["a"].view((4, 16))
    assert np.array_equal(view.read((1, 3), (2, 4)), np.arange(64).reshape(4, 16)[2:4, 12:16])
    out = np.empty((2, 4), int)
    assert view.read((0, 0), (2, 4), out) is out
    assert np.array_equal(out, np.arange(64).reshape(4, 16)[:2, :4])


def test_the_last_sub_block_is_cut(store: nandarray.Store) -> None:
    store["a"] = np.arange(10)
    view = store["a"].view((2, 5))
    assert view.read((0, 1), (2, 3)).tolist() == [[3, 4], [8, 9]]
    with pytest.raises(nandarray.InvalidError, match=r"\(2, 3\).*\(2, 2\)"):
        view.write((0, 1), np.ones((2, 3), int))
    view.write((0, 1), [[-3, -4], [-8, -9]], sub_shape=(2, 3))
    assert store["a"][:].tolist() == [0, 1, 2, -3, -4, 5, 6, 7, -8, -9]


def test_one_length_may_be_left_open(store: nandarray.Store) -> None:
    a = store.create("a", (4, 6), "u1")
    assert a.view(-1).shape == (24,)
    assert a.view((2, -1, 3)).shape == (2, 4, 3)
    assert a.view((24, 1)).ndim == 2
    assert store.create("scalar", (), "u1").view((1, 1))[...].shape == (1, 1)
    assert a.view((4, 6)).array is a


def test_a_view_reads_and_writes_by_index(store: nandarray.Store) -> None:
    model = np.arange(24).reshape(2, 3, 4)
    store["a"] = model
    view = store["a"].view((6, 4))
    flat = model.reshape(6, 4).copy()
    assert np.array_equal(view[::-2, [3, 0]], flat[::-2, [3, 0]])
    assert np.array_equal(view.oindex[[1, 4], [0, 2]], flat[np.ix_([1, 4], [0, 2])])
    assert np.array_equal(np.asarray(view), flat)
    assert [row.tolist() for row in view] == flat.tolist()
    view[1] = 9
    flat[1] = 9
    assert np.array_equal(store["a"][:], flat.reshape(2, 3, 4))


def test_thirty_two_dimensions(store: nandarray.Store) -> None:
    store["a"] = np.arange(2**10)
    deep = store["a"].view((1,) * 11 + (2,) * 10 + (1,) * 11)
    assert deep.ndim == 32
    assert deep.read((0,) * 32, (1,) * 11 + (2,) * 10 + (1,) * 11).reshape(-1).tolist() == list(range(2**10))
    assert deep[(0,) * 11 + (1,) * 10 + (0,) * 11] == 2**10 - 1


def test_views_of_an_array_far_larger_than_the_disk(store: nandarray.Store) -> None:
    a = store.create("a", (2**40, 2**40), "u2")
    line = a.view((2**30, 2**50))
    line[2**29 + 5, -3:] = [1, 2, 3]
    row, column = divmod((2**29 + 6) * 2**50 - 3, 2**40)
    assert a[row, column : column + 3].tolist() == [1, 2, 3]
    assert line[[2**29 + 5, 0], [-2, -2]].tolist() == [2, 0]
    assert line.size == 2**80


def test_points_translate_beyond_64_bits() -> None:
    source, target = (2**64, 2**20), (2**30, 2**54)
    coords = np.array([[2**64 - 1, 2**20 - 1], [0, 5], [2**63, 1]], np.uint64)
    positions = [int(row) * 2**20 + int(column) for row, column in coords]
    got = [int(row) * 2**54 + int(column) for row, column in translate(coords, source, target)]
    assert got == positions
    assert math.prod(source) == math.prod(target)


def test_a_view_of_a_resized_array_is_refused(store: nandarray.Store) -> None:
    a = store.create("a", (4, 6), "u1")
    view = a.view((8, 3))
    a.resize((5, 6))
    with pytest.raises(nandarray.VolumeMismatchError, match=r"24 elements.*30"):
        view.read((0, 0), (1, 1))
    with pytest.raises(nandarray.VolumeMismatchError):
        view[0]
    a.resize((6, 4))
    assert view[0].shape == (3,)


def test_repr(store: nandarray.Store) -> None:
    assert repr(store.create("a", (2, 3), "u1").view(6)).startswith(
        "<nandarray.View shape=(6,) of <nandarray.Array 'a'"
    )
