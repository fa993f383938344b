"""``map_blocks(chunks=)``: functions whose results have another shape than their boxes, beside NumPy and Dask."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import doors
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import nandarray
from nandarray import InvalidError, ProgramFailedError
from nandarray.programs.calls.chunks import read_chunks


@pytest.fixture(scope="module", params=doors.COMPUTING)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with doors.computing(request, tmp_path_factory.mktemp("chunks") / "data.nand") as opened:
        yield opened


@pytest.fixture(params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with doors.computing(request, tmp_path / "data.nand") as opened:
        yield opened


def nearest(x, out):
    """Give each place of the result the element that is there in proportion, and the number of elements seen."""
    flat, to = x.reshape(x.size), out.reshape(out.size)
    for k in range(out.size):
        rest, at, stride = k, 0, 1
        for d in range(x.ndim - 1, -1, -1):
            at += (rest % out.shape[d]) * x.shape[d] // out.shape[d] * stride
            rest //= out.shape[d]
            stride *= x.shape[d]
        to[k] = flat[at] * 1000 + x.size


def cuts(length: int, size: int, first: int) -> list[slice]:
    edges = [0, *range(first, length, size), length]
    return [slice(low, high) for low, high in itertools.pairwise(edges) if low < high]


def modelled(data: Any, block: Any, chunk: Any, first: Any) -> Any:
    """What ``nearest`` makes of an array, block by block."""

    def along(axis: int, done: tuple[slice, ...]) -> Any:
        if axis == data.ndim:
            part = data[done]
            extents = [-(-n * made // size) for n, made, size in zip(part.shape, chunk, block, strict=True)]
            places = [np.arange(n) * m // n for n, m in zip(extents, part.shape, strict=True)]
            return part[np.ix_(*places)] * 1000 + part.size
        tiles = cuts(data.shape[axis], block[axis], first[axis])
        return np.concatenate([along(axis + 1, (*done, tile)) for tile in tiles], axis)

    return along(0, ())


@settings(max_examples=25)
@given(data=st.data())
def test_results_of_any_shape(shared: Any, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=4)))
    block = tuple(data.draw(st.integers(1, size + 3)) for size in shape)
    chunk = tuple(data.draw(st.sampled_from([1, size, 2 * size, -(-size // 2), size + 1])) for size in block)
    own = tuple(data.draw(st.integers(1, size)) for size in shape)
    array = np.random.default_rng(3).integers(0, 99, shape)
    for name in ("boxed", "into", "wide"):
        if name in shared:
            del shared[name]
    shared.create("boxed", shape, array.dtype, building_block=own, data=array)
    wanted = modelled(array, block, chunk, block)
    assert read_chunks(chunk, block).result(shape, block) == wanted.shape
    np.testing.assert_array_equal(shared["boxed"].map_blocks(nearest, block=block, chunks=chunk), wanted)
    shared.create("into", wanted.shape, array.dtype)
    assert shared["boxed"].map_blocks(nearest, block=block, chunks=chunk, out=shared["into"]) == wanted.size
    np.testing.assert_array_equal(shared["into"][...], wanted)
    wider = tuple(size + 2 for size in wanted.shape)
    shared.create("wide", wider, array.dtype)
    part = tuple(slice(1, size + 1) for size in wanted.shape)
    shared["boxed"].map_blocks(nearest, block=block, chunks=chunk, out=nandarray.Box(shared["wide"], part), threads=3)
    around = np.zeros(wider, array.dtype)
    around[part] = wanted
    np.testing.assert_array_equal(shared["wide"][...], around)


def mean2x3(x, out):
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = x[2 * i : 2 * i + 2, 3 * j : 3 * j + 3].sum() / 6


def every_other(x, out):
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = x[2 * i, j]


def greatest(x, out):
    for i in range(x.shape[0]):
        out[i, 0] = x[i].max()


def twice(x, out):
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = x[i // 2, j]


@pytest.mark.parametrize("form", ["interpreted", "translated", "native"])
def test_the_same_as_dask(store: Any, form: str) -> None:
    da = pytest.importorskip("dask.array")
    array = np.random.default_rng(4).random((24, 36))
    store.create("x", array.shape, array.dtype, building_block=(4, 6), data=array)
    lazy = da.from_array(array, chunks=(8, 12))
    cases: list[tuple[Any, Any, Any]] = [
        (mean2x3, (4, 4), da.coarsen(np.mean, lazy, {0: 2, 1: 3})),
        (every_other, {0: 4}, lazy.map_blocks(lambda x: x[::2], chunks=(4, 12))),
        (greatest, {-1: 1}, lazy.map_blocks(lambda x: x.max(1, keepdims=True), chunks=(8, 1))),
        (twice, [16, 12], lazy.map_blocks(lambda x: x.repeat(2, 0), chunks=(16, 12))),
    ]
    for function, chunks, wanted in cases:
        made = {"block": (8, 12), "chunks": chunks, "trusted": form == "native", "form": form}
        np.testing.assert_allclose(store["x"].map_blocks(function, **made), wanted.compute(), rtol=1e-15)
    again = store["x"].map_blocks(twice, chunks={0: 8}, out="again", dtype="float32")  # of building blocks
    np.testing.assert_array_equal(again[...], array.repeat(2, 0).astype("f4"))


def test_first_blocks_may_be_edges_and_inputs_several(store: Any) -> None:
    array = np.random.default_rng(5).integers(0, 99, (50, 37, 11))
    records = np.zeros(array.shape[:2], [("a", "u1"), ("v", "i8")])
    records["v"] = array[:, :, 3]
    store.create("x", array.shape, array.dtype, building_block=(16, 8, 4), data=array)
    store["records"] = records
    key = np.s_[5:45, 3:, 3]

    def both(x, y, v, out, by):
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] = x[2 * i, j] * by + y[2 * i, j] + v[2 * i, j] + x.shape[0]

    field = nandarray.Box(store["records"]["v"], np.s_[5:45, 3:])
    found = store["x"].map_blocks(both, array[key], field, key=key, chunks={0: 8}, by=2)
    pieces = [array[key][tile] for tile in cuts(40, 16, 11)]
    assert [len(one) for one in pieces] == [11, 16, 13]
    np.testing.assert_array_equal(found, np.concatenate([one[::2] * 4 + len(one) for one in pieces]))
    view = store["x"].view((50, 407))
    flat = array.reshape(50, 407)
    np.testing.assert_array_equal(view.map_blocks(every_other, block=(10, 100), chunks={0: 5}), flat[::2])
    for empty in (np.s_[:0, 3], np.s_[:, :0, 3]):
        shape = store["x"].map_blocks(every_other, key=empty, block=(7, 5), chunks=(1, 5)).shape
        assert shape == ((0, 11) if empty == np.s_[:0, 3] else (8, 0))


@pytest.mark.parametrize("boundary", ["reflect", "periodic", "nearest", "none", 7.0])
def test_results_of_boxes_with_their_neighbourhood_have_none(store: Any, boundary: Any) -> None:
    array = np.random.default_rng(6).random((21, 10))
    store["x"] = array

    def smaller(x, out, first: nandarray.First):
        before = min(first[0], 1) if boundary == "none" else 1
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                low, high = 2 * i + before - 1, 2 * i + before + 1
                out[i, j] = x[before + 2 * i, j]
                if low >= 0:
                    out[i, j] += x[low, j]
                if high < x.shape[0]:
                    out[i, j] += x[high, j]

    modes: dict[Any, dict[str, Any]] = {
        "reflect": {"mode": "symmetric"}, "periodic": {"mode": "wrap"}, "nearest": {"mode": "edge"}, "none": {},
        7.0: {"constant_values": 7.0},
    }  # fmt: skip
    padded = np.pad(array, ((1, 1), (0, 0)), **modes[boundary])
    wanted = (padded[1:-1] + padded[:-2] + padded[2:])[::2]
    for block in ((4, 3), (6, 10), (40, 40)):
        options: Any = {"depth": {0: 1}, "boundary": boundary, "block": block, "chunks": (block[0] // 2, block[1])}
        np.testing.assert_allclose(store["x"].map_blocks(smaller, **options), wanted, rtol=1e-14)


def test_what_is_no_chunk_is_refused(store: Any) -> None:
    store["x"] = np.ones((6, 8))
    store["y"] = np.ones((6, 8))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"chunks": (2, 0)}, "chunks must be integers, at least 1, not 0 along axis 1"),
        ({"chunks": (2, -1)}, "chunks must be integers, at least 1, not -1 along axis 1"),
        ({"chunks": (2.0, 2)}, "chunks must be integers, at least 1, not 2.0 along axis 0"),
        ({"chunks": (True, 2)}, "chunks must be integers, at least 1, not True along axis 0"),
        ({"chunks": ((2, 2), (4, 4))}, r"chunks must be integers, at least 1, not \(2, 2\) along axis 0"),
        ({"chunks": (2,)}, r"chunks must have 2 entries, as the block \(2, 4\), not \(2,\)"),
        (
            {"chunks": 2},
            r"chunks must be a shape of results, or a mapping by axis, not 2; the block is \(2, 4\)",
        ),
        ({"chunks": "2,"}, "chunks must be a shape of results, or a mapping by axis, not '2,'"),
        ({"chunks": {2: 1}}, r"chunks names axis 2 of the block \(2, 4\)"),
        ({"chunks": {1: 1, -1: 1}}, r"must name axes of the block \(2, 4\), each once"),
        ({"chunks": (1 << 12, 1 << 13)}, r"chunks of \(4096, 8192\) do not fit a task of 67108864 bytes"),
        ({"chunks": (1, 4), "block": False}, "chunks is for functions over boxes; block is False"),
        ({"chunks": (1, 4), "out": store["y"]}, r"out must have shape \(3, 8\), as the result, not \(6, 8\)"),
    ]
    for given_, says in cases:
        with pytest.raises(InvalidError, match=says):
            store["x"].map_blocks(every_other, **{"block": (2, 4)} | given_)
    with pytest.raises(InvalidError, match="block is for functions and programs over boxes; 'sqrt' has none"):
        store["x"].map_blocks("sqrt", chunks=(1, 1))
    with pytest.raises(InvalidError, match="chunks is for functions that are compiled now, and sqrt is a program"):
        store["x"].map_blocks(nandarray.programs.get("sqrt"), block=(2, 4), chunks=(1, 4))
    with pytest.raises(ProgramFailedError, match="index 4 is out of bounds for size 4"):
        store["x"].map_blocks(every_other, block=(4, 8), chunks=(3, 8), out="late")
    assert "late" not in store
    np.testing.assert_array_equal(store["y"][...], 1.0)
