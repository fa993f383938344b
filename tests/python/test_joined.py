"""Arrays that are read as one: every index expression is that of NumPy's concatenate and stack, over any doors."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import doors
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nandarray
import strategies
from nandarray.errors import BadIndexError, InvalidError

_NdArray = np.ndarray[Any, Any]


def same(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


def make(store: Any, name: str, model: _NdArray, how: str) -> None:
    """Store a model, of which :func:`seen` then gives the part."""
    if name in store:
        del store[name]
    if how == "field":
        records = np.zeros(model.shape, [("before", "i2"), ("it", model.dtype)])
        records["it"] = model
        model = records
    shape = {"view": (model.size,), "field": model.shape, "converted": model.shape, "array": model.shape}[how]
    dtype = np.dtype("f8") if how == "converted" else model.dtype
    block = tuple(max(1, n // 2) for n in shape) if how == "array" else None
    store.create(name, shape, dtype, building_block=block)
    if model.size:
        doors.file_of(store)[name][...] = model.reshape(shape)


def seen(store: Any, name: str, model: _NdArray, how: str) -> Any:
    """A part as it is, seen under another shape, as a field of records, or converted."""
    array = store[name]
    if how == "view":
        return array.view(model.shape)
    if how == "field":
        return array["it"]
    return array.astype(model.dtype) if how == "converted" else array


#: Dtypes that have a common one.
FAMILIES = [["i2", ">i4", "u1"], ["f4", "i4", "?"], ["c8", "f8"], ["S3", "S7"], ["U2", "U5", "i4"], ["M8[s]", "M8[D]"],
            [[("x", "i4"), ("y", ">f8")]]]  # fmt: skip


@st.composite
def joins(draw: st.DrawFn) -> tuple[list[_NdArray], list[str], int, bool]:
    """Models of the parts, how each is stored, the axis, and whether they are stacked."""
    stacked = draw(st.booleans())
    shape = list(draw(strategies.shapes(min_dims=0 if stacked else 1, max_dims=3, max_side=5)))
    axis = draw(st.integers(0, len(shape) if stacked else len(shape) - 1))
    family = draw(st.sampled_from(FAMILIES))
    models, hows = [], []
    for number in range(draw(st.integers(1, 4))):
        dtype = np.dtype(draw(st.sampled_from(family)))
        if not stacked:
            shape[axis] = draw(st.integers(0, 4))
        models.append(strategies.content(tuple(shape), dtype, number))
        hows.append(draw(st.sampled_from(["array", "view", "field", *(["converted"] if dtype.kind in "if" else [])])))
    return models, hows, axis, stacked


def joined_of(store: Any, case: Any) -> tuple[Any, _NdArray]:
    models, hows, axis, stacked = case
    parts = {f"p{i}": one for i, one in enumerate(zip(models, hows, strict=True))}
    model = np.stack(models, axis) if stacked else np.concatenate(models, axis)
    for name, one in {**parts, "all": (model, "array")}.items():
        make(store, name, *one)  # first: a region of shared memory is served anew for each
    join = nandarray.stack if stacked else nandarray.concat
    return join([seen(store, name, *one) for name, one in parts.items()], axis), model


@settings(max_examples=40)
@given(case=joins(), data=st.data())
def test_every_index_expression_is_numpys(scratch: nandarray.Store, case: Any, data: st.DataObject) -> None:
    joined, model = joined_of(scratch, case)
    key = data.draw(strategies.keys(model.shape))
    same(joined[key], model[key])
    out = np.empty_like(model[key])
    if out.shape:
        assert joined.read(key, out=out) is out
        same(out, np.asarray(model[key]))
    same(np.array(list(joined), model.dtype).reshape(model.shape), model)
    whole = scratch["all"]
    outer = data.draw(strategies.outer_keys(model.shape))
    same(joined.oindex[outer], whole.oindex[outer])
    points = tuple(np.array([0, n - 1, n // 2]) if n else np.zeros(0, int) for n in model.shape)
    if 0 not in model.shape:
        some = tuple(part if data.draw(st.booleans()) else slice(None, None, -1) for part in points)
        if any(isinstance(one, np.ndarray) for one in some):
            same(joined.vindex[some], whole.vindex[some])


def test_dtypes_promote_as_numpys_do(store: nandarray.Store) -> None:
    models = [np.zeros(2, dtype) for dtype in strategies.DTYPES]
    parts = [store.create(f"d{i}", data=model) for i, model in enumerate(models)]
    for i, one in enumerate(models):
        for j, other in enumerate(models[: i + 1]):
            try:
                expected = np.concatenate([one, other])
            except TypeError:
                with pytest.raises(InvalidError, match="concat of dtypes"):
                    nandarray.concat([parts[i], parts[j]])
            else:
                same(nandarray.concat([parts[i], parts[j]])[:], expected)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(doors.opened(door, tmp_path / door)) for door in doors.DOORS]


def test_parts_lie_behind_any_doors(three: Any) -> None:
    model = np.random.default_rng(5).integers(0, 99, (len(three), 30, 20))
    parts = []
    for store, one in zip(three, model, strict=True):
        array = store.create("x", one.shape, one.dtype)
        array[...] = one
        parts.append(array)
    stacked = nandarray.stack(parts)
    wide = nandarray.concat([*parts, parts[0]], axis=1)
    flat = np.concatenate([*model, model[0]], axis=1)
    keys: list[Any] = [
        np.s_[:],
        np.s_[2:9, ::-3],
        np.s_[[7, 1, 7]],
        np.s_[..., [3, 0]],
        np.s_[5],
        np.s_[:, None, 4:40:7],
    ]
    for key in keys:
        same(wide[key], flat[key])
    for key in [
        np.s_[:],
        np.s_[::-1, 3, ::4],
        np.s_[[3, 0, 3], 2],
        np.s_[[1, 2], [3, 4], [5, 6]],
        model > 50,
        np.s_[1, 2, 3],
    ]:
        same(stacked[key], model[key])
    same(nandarray.concat([stacked, stacked], axis=2)[1:3, :, ::7], np.concatenate([model, model], axis=2)[1:3, :, ::7])


def test_dask_and_pickles(tmp_path: Path) -> None:
    da = pytest.importorskip("dask.array")
    model = np.arange(60.0).reshape(6, 10)
    with nandarray.open(tmp_path / "s.nand", "w") as store:
        store["a"], store["b"] = model, model.astype("i4")
        store["r"] = np.array([(1, 2.5), (3, 4.5)], [("x", "i4"), ("y", "f8")])
    with nandarray.open(tmp_path / "s.nand") as store:
        parts = [store["a"], store["b"].astype("f4"), store["b"].view((6, 10))]
        expected = [model, model.astype("f4"), model.astype("i4")]
        for joined, whole in [
            (nandarray.concat(parts, axis=1), np.concatenate(expected, 1)),
            (nandarray.stack(parts, axis=1), np.stack(expected, 1)),
            (nandarray.concat([nandarray.concat(parts[:2]), parts[2]]), np.concatenate(expected)),
            (nandarray.concat([store["r"], store["r"]]), np.concatenate([store["r"][:]] * 2)),
        ]:
            lazy = nandarray.to_dask(joined)
            assert isinstance(lazy, da.Array)
            assert lazy.dtype == whole.dtype
            same(lazy.compute(scheduler="threads"), whole)
            assert nandarray.to_dask(joined).name == lazy.name, "a name is of what is read"
            assert nandarray.to_dask(joined, chunks=2).chunks[0][0] == 2
            same(pickle.loads(pickle.dumps(joined))[...], whole)
        records = nandarray.concat([store["r"], store["r"]])
        same(records["y"][1:3], np.array([4.5, 2.5]))
        assert repr(records).startswith("<nandarray.Joined: concatenation of 2 along axis 0, shape=(4,)")
        assert "concatenation of 2" in records._repr_html_()


def test_what_cannot_be_joined(store: nandarray.Store) -> None:
    a, b = store.create("a", (2, 3)), store.create("b", (2, 4))
    scalar = store.create("s", (), "f8")
    for call, error, words in [
        (lambda: nandarray.concat([]), InvalidError, "concat must be given at least one array"),
        (lambda: nandarray.concat(a), InvalidError, "must be given several arrays, in a list, not one Array"),
        (lambda: nandarray.concat([a, np.zeros((2, 3))]), InvalidError, "not ndarray"),
        (lambda: nandarray.concat([a, b]), InvalidError, r"array 1 of shape \(2, 4\) does not follow one of \(2, 3\)"),
        (lambda: nandarray.concat([a, b], axis=2), BadIndexError, "axis 2 is out of bounds"),
        (lambda: nandarray.concat([a, b], axis=None), InvalidError, "an axis must be an integer, not None"),
        (lambda: nandarray.concat([scalar]), InvalidError, "without dimensions cannot be concatenated"),
        (lambda: nandarray.stack([a, b]), InvalidError, r"array 1 has shape \(2, 4\), not \(2, 3\)"),
        (lambda: nandarray.stack([a], axis=-4), BadIndexError, "axis -4"),
    ]:  # fmt: skip
        with pytest.raises(error, match=words):
            call()  # type: ignore[no-untyped-call]
    joined = nandarray.concat([a, b], axis=-1)
    assert (joined.shape, joined.axis) == ((2, 7), 1)
    assert joined.parts == (a, b)
    for key in [np.s_[0], np.s_[...], np.s_[[1]]]:
        with pytest.raises(InvalidError, match="joined arrays are read-only"):
            joined[key] = 1
    with pytest.raises(InvalidError, match="read-only"):
        joined.oindex[[0], [1]] = 1
    with pytest.raises(BadIndexError, match="out of bounds"):
        joined[[0, 2]]
    with pytest.raises(BadIndexError, match="out of bounds"):
        joined[[0, 1], [0, 7]]
    with pytest.raises(InvalidError, match="store the joined ones as one"):
        joined._origin()
    a.append(np.ones((1, 3)))
    with pytest.raises(InvalidError, match=r"had shape \(2, 3\) and has \(3, 3\) now: join them again"):
        joined[0]


def test_parts_without_end(store: nandarray.Store) -> None:
    """Lengths beyond what memory holds: only what is indexed is read."""
    parts = []
    for number, name in enumerate("xyz"):
        parts.append(store.create(name, (2**62, 2**40), "u1", fill_value=number))
    joined = nandarray.concat(parts)
    assert joined.shape == (3 * 2**62, 2**40)
    assert joined[2**62 - 1 : 2**62 + 1, -1].tolist() == [0, 1]
    assert joined[:: 2**62, 7].tolist() == [0, 1, 2]
    assert joined[[-1, 0, 2**63 - 1], 5].tolist() == [2, 0, 1]
    with pytest.raises(InvalidError, match=r"2\*\*64"):
        nandarray.concat([joined, joined])


def test_joined_arrays_are_stored_in_little_memory(store: nandarray.Store) -> None:
    a, b = store.create("a", data=np.arange(60).reshape(4, 15)), store.create("b", data=np.ones((4, 5), "f4"))
    model = np.concatenate([a[:], b[:]], axis=1)
    same(store.create("c", data=nandarray.concat([a, b], axis=1), building_block=(3, 64))[:], model)
    same(store.create("d", (2, 4, 20), "i2", data=nandarray.concat([a, b], axis=1))[1], model.astype("i2"))
