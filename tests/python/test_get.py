"""Reading by one native call gives what the general way gives: values, types, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import nandarray
import strategies
from nandarray import _nandarray


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One store for all examples of a test, since Hypothesis runs many."""
    with nandarray.open(tmp_path_factory.mktemp("get") / "data.nand", mode="w") as store:
        yield store


@contextmanager
def general_way() -> Iterator[None]:
    with (
        mock.patch("nandarray.array.array.get", return_value=None),
        mock.patch("nandarray.array.view.get", return_value=None),
        mock.patch("nandarray.array.view.get_sub_block", return_value=None),
    ):
        yield


def outcome(read: Callable[[], Any]) -> tuple[Any, ...]:
    """Return the observable outcome of a read: its value with type, dtype, shape and memory, or its error."""
    try:
        got = read()
    except Exception as error:
        return type(error), str(error)
    flags = got.flags if isinstance(got, np.ndarray) else None
    return (
        type(got),
        got.dtype,
        got.shape,
        got.tobytes(),
        flags and (flags.writeable, flags.c_contiguous, flags.aligned),
    )


def both(read: Callable[[], Any]) -> None:
    short = outcome(read)
    with general_way():
        assert outcome(read) == short


def parts(length: int) -> st.SearchStrategy[Any]:
    """One part of an expression: right ones, and all that is just beside them."""
    inside = st.integers(-length - 2, length + 1)
    integer = st.one_of(inside, inside.map(np.int64), inside.map(np.int8), inside.map(lambda i: np.uint64(abs(i))))
    odd = st.sampled_from(
        [
            None,
            ...,
            True,
            False,
            np.True_,
            np.bool_(False),
            2**63,
            -(2**70),
            1.0,
            np.float32(1),
            "x",
            b"x",
            [0],
            [],
            (0,),
        ]
        + [
            np.timedelta64(1, "s"),
            np.array(1),
            np.array([0, -1]),
            slice(None, None, 0),
            slice(1.5, None),
            slice(2**80, None, -1),
        ]
        + [slice(np.int64(1), np.uint8(3)), slice(None, 2**90, 2**70), slice(None, True), np.ma.masked, object()]
    )
    return st.one_of(integer, integer, strategies.slices(length), strategies.slices(length), odd)


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    if draw(st.integers(0, 3)) == 0:
        return draw(strategies.keys(shape))
    key = tuple(draw(parts(length)) for length in shape[: draw(st.integers(0, len(shape)))])
    key += tuple(draw(parts(1)) for _ in range(draw(st.sampled_from([0, 0, 0, 0, 1]))))
    return key[0] if len(key) == 1 and draw(st.booleans()) else key


@st.composite
def index_arrays(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Index arrays along every axis, some of other types, lengths, dimensions or strides, some of it outside."""
    points = draw(st.integers(0, 5))
    few = []
    for size in shape:
        numbers = draw(st.lists(st.integers(-size, max(size - 1, 0)), min_size=points, max_size=points))
        kind = draw(st.sampled_from(["i8", "i8", "i8", "i4", "i2", "u8", "u4", "u1", ">i8", "f8", "?", "O", "m8[s]"]))
        array = np.array(numbers, "i8").astype(kind)
        odd = draw(st.integers(0, 9))
        if odd == 0:
            array = np.repeat(array, 3)[::-3]
        elif odd == 1:
            array = array[:-1]
        elif odd == 2:
            array = array[np.newaxis]
        elif odd == 3 and points:
            array = array + array.dtype.type(1)
        elif odd == 4:
            array = array.tolist()
        elif odd == 5:
            array = np.ma.array(array)
        few.append(array)
    return tuple(few)


@st.composite
def lists(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """A list or array of indices along an axis, or several, among integers and slices."""
    key: list[Any] = []
    for length in shape:
        few = st.lists(st.integers(-length - 1, length), max_size=4)
        kind = draw(st.sampled_from(["list", "array", "slice", "slice", "integer", "odd"]))
        if kind == "list":
            key.append(draw(few))
        elif kind == "array":
            key.append(np.array(draw(few), "i8").astype(draw(st.sampled_from(["i8", "i4", "?", "u8", ">i8"]))))
        elif kind == "slice":
            key.append(draw(strategies.slices(length)))
        elif kind == "integer":
            key.append(draw(st.integers(-length - 1, length)))
        else:
            key.append(draw(st.sampled_from([..., [True], [0, True], [0.0], [[0]], [np.int8(0)], [2**70], None, (0,)])))
    key = key[: draw(st.integers(0, len(key)))]
    return key[0] if len(key) == 1 and draw(st.booleans()) else tuple(key)


@given(data=st.data(), shape=strategies.shapes(max_dims=5), dtype=strategies.dtypes(), seed=st.integers(0, 99))
def test_any_index_reads_as_by_the_general_way(
    scratch: nandarray.Store, data: st.DataObject, shape: Any, dtype: Any, seed: int
) -> None:
    if "a" in scratch:
        del scratch["a"]
    block = data.draw(strategies.blocks(shape, 4))
    array = scratch.create("a", data=strategies.content(shape, dtype, seed), building_block=block)
    if data.draw(st.booleans()):
        scratch.flush()
    for _ in range(12):
        key = data.draw(st.one_of(keys(shape), index_arrays(shape), lists(shape)))
        both(lambda key=key: array[key])  # type: ignore[misc]
        both(lambda key=key: array.read(key))  # type: ignore[misc]
        both(lambda key=key: array.oindex[key])  # type: ignore[misc]
        if array.size and shape:
            both(lambda key=key: array.view(array.shape)[key])  # type: ignore[misc]


@given(
    data=st.data(),
    shape=strategies.shapes(max_dims=4),
    cut=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    seed=st.integers(0, 99),
)
def test_any_view_reads_as_by_the_general_way(
    scratch: nandarray.Store, data: st.DataObject, shape: Any, cut: list[int], seed: int
) -> None:
    if "v" in scratch:
        del scratch["v"]
    # Views that share factors with the array, and some that do not.
    other = (*shape, *cut)
    volume = int(np.prod(other, dtype=object))
    own = (*cut[::-1], *shape) if data.draw(st.booleans()) else (volume,)
    block = data.draw(strategies.blocks(own, 5))
    array = scratch.create("v", data=strategies.content(own, np.dtype("i4"), seed), building_block=block)
    if data.draw(st.booleans()):
        scratch.flush()
    view = array.view(other)
    model = array[...].reshape(other)
    for _ in range(8):
        key = data.draw(keys(other))
        both(lambda key=key: view[key])  # type: ignore[misc]
        sub_shape = tuple(data.draw(st.integers(0, length + 1)) for length in other)
        coordinate = [data.draw(st.integers(-1, 3)) for _ in other]
        if data.draw(st.integers(0, 5)) == 0:
            coordinate.append(0)
        both(lambda at=coordinate, cut=sub_shape: view.read(at, cut))  # type: ignore[misc]
        start = [at * extent for at, extent in zip(coordinate, sub_shape, strict=False)]
        expected = model[tuple(slice(at, at + n) for at, n in zip(start, sub_shape, strict=False))]
        if expected.size and min(coordinate) >= 0 and len(coordinate) == len(other):
            out = np.zeros(expected.shape, "i4")[tuple(slice(None, None, -1) for _ in other)]
            assert view.read(tuple(np.int64(at) for at in coordinate), sub_shape, out=out) is out
            np.testing.assert_array_equal(out, expected)
    if array.size:
        array.resize((array.shape[0] + 1, *array.shape[1:]))
        with pytest.raises(nandarray.VolumeMismatchError):
            view[tuple(0 for _ in other)]


def outs(shape: tuple[int, ...], dtype: np.dtype[Any]) -> dict[str, Callable[[], Any]]:
    """Buffers that fit, by what is odd about them, and some that do not."""
    doubled = tuple(2 * length for length in shape)

    def frozen() -> Any:
        buffer = np.zeros(shape, dtype)
        buffer.flags.writeable = False
        return buffer

    return {
        "plain": lambda: np.zeros(shape, dtype),
        "apart": lambda: np.zeros(doubled, dtype)[tuple(slice(None, None, 2) for _ in shape)],
        "backwards": lambda: np.zeros(shape, dtype)[tuple(slice(None, None, -1) for _ in shape)],
        "columns": lambda: np.zeros(shape, dtype, order="F"),
        "equal dtype": lambda: np.zeros(shape, np.dtype(dtype.descr if dtype.names else dtype.str)),
        "swapped": lambda: np.zeros(shape, dtype.newbyteorder()),
        "unaligned": lambda: np.zeros(shape, np.dtype([("gap", "u1"), ("is", dtype)]))["is"],
        "subclass": lambda: (
            np.zeros(shape, dtype).view(np.recarray if dtype.names else np.matrix)
            if len(shape) == 2
            else np.ma.zeros(shape, dtype)
        ),
        "other dtype": lambda: np.zeros(shape, "f4" if dtype != "f4" else "i4"),
        "other shape": lambda: np.zeros((*shape, 1), dtype),
        "longer": lambda: np.zeros(tuple(length + 1 for length in shape), dtype),
        "read-only": frozen,
        "bytes": lambda: bytearray(int(np.prod(shape)) * dtype.itemsize),
        "wrong": lambda: "text",
    }


@given(data=st.data(), shape=strategies.shapes(max_dims=3), dtype=strategies.dtypes(), seed=st.integers(0, 99))
def test_any_buffer_is_filled_as_by_the_general_way(
    scratch: nandarray.Store, data: st.DataObject, shape: Any, dtype: Any, seed: int
) -> None:
    if "b" in scratch:
        del scratch["b"]
    model = strategies.content(shape, dtype, seed)
    array = scratch.create("b", data=model, building_block=tuple(3 for _ in shape))
    for _ in range(8):
        key = data.draw(st.one_of(strategies.keys(shape), index_arrays(shape)))
        try:
            selected = np.asarray(model[key]).shape
        except Exception:
            selected = shape
        make = data.draw(st.sampled_from(sorted(outs(selected, dtype).items())))[1]

        def filled(key: Any = key, make: Callable[[], Any] = make) -> Any:
            out = make()
            assert array.read(key, out=out) is out
            return np.asarray(out)

        both(filled)


@pytest.mark.parametrize("key", [(3, 4), (slice(1, 3), 2), slice(None), (np.array([1, 2]), np.array([0, 1]))])
def test_closed_deleted_resized(path: Path, key: Any) -> None:
    store = nandarray.open(path, mode="w")
    array = store.create("a", data=np.arange(30.0).reshape(5, 6))
    deleted = store.create("b", data=np.arange(30.0).reshape(5, 6))
    both(lambda: array[key])
    for shape in [(2, 6), (9, 9), (0, 6), (5, 6)]:
        array.resize(shape)
        both(lambda: array[key])
        both(lambda: array.read(key, out=np.zeros((2,))))
    del store["b"]
    both(lambda: deleted[key])
    store.close()
    both(lambda: array[key])
    both(lambda: array.read(key, out=np.zeros((2,))))


def test_an_index_that_runs_code(store: nandarray.Store) -> None:
    array = store.create("a", data=np.arange(12))

    class Cuts:
        def __index__(self) -> int:
            array.resize((4,))
            return 8

    np.testing.assert_array_equal(array[2 : Cuts()], [2, 3])  # type: ignore[misc]
    array.resize((12,))
    with pytest.raises(nandarray.BadIndexError, match="out of bounds for axis 0 with size 4"):
        array[Cuts()]


@given(index=st.integers(-(2**64) - 2, 2**64 + 2), step=st.integers(1, 2**65))
@example(index=2**63 - 1, step=2**63 - 1)
@example(index=-(2**63), step=1)
def test_sizes_beyond_machine_integers(scratch: nandarray.Store, index: int, step: int) -> None:
    for size in (2**63 - 1, 2**63, 2**64 - 1):
        name = str(size)
        array = scratch[name] if name in scratch else scratch.create(name, (size, 2), "u1", building_block=(64, 2))
        both(lambda array=array: array[index])  # type: ignore[misc]
        both(lambda array=array: array[index, 1])  # type: ignore[misc]
        both(lambda array=array: array[index : index + 3])  # type: ignore[misc]
        if step > 2**58:
            both(lambda array=array: array[::step])  # type: ignore[misc]
        few = np.array([index % 2**63, 0], "u8")
        both(lambda array=array, few=few: array[few, np.array([0, 1])])  # type: ignore[misc]


def test_the_short_way_is_taken(store: nandarray.Store) -> None:
    array = store.create("a", data=np.arange(30, dtype="f4").reshape(5, 6))
    rows, columns = np.array([0, -1]), np.array([5, 0], "i4")
    model = np.arange(30, dtype="f4").reshape(5, 6)
    boxes = [(1, 2), (-1, np.int32(2)), 3, (slice(1, 3), slice(0, 6, 2)), slice(None, None, -1)]
    boxes += [..., (..., 1), (0, ..., 1)]
    some = [[0], (0, [0, -1]), ([3, 1], slice(5, 0, -2)), rows, (slice(2), columns)]
    for key in [*boxes, *some, (rows, columns)]:
        got = _nandarray.get(array._space, key, array.dtype)
        np.testing.assert_array_equal(got, model[key])
    for key in boxes:
        got = _nandarray.get(array._space, key, array.dtype, None, (6, 5))
        np.testing.assert_array_equal(got, model.reshape(6, 5)[key])
    got = _nandarray.get(array._space, ([3, 1], columns), array.dtype, mode="outer")
    np.testing.assert_array_equal(got, model[np.ix_([3, 1], columns)])
    got = _nandarray.get_sub_block(array._space, (3, 10), (1, 1), [2, 4], array.dtype)
    np.testing.assert_array_equal(got, model.reshape(3, 10)[2:, 4:8])
    for key in [None, (1, None), (..., None, 2)]:
        np.testing.assert_array_equal(_nandarray.get(array._space, key, array.dtype), model[key])
    wrong = [[], slice(3, 1), model > 3, (0, False)]
    for key in wrong:
        assert _nandarray.get(array._space, key, array.dtype) is None
    for key in [(0, [6]), ([0], [9]), (0, slice(3), 0), 7, (0, 0, 0), "x", (..., ...)]:
        with pytest.raises(nandarray.BadIndexError):
            _nandarray.get(array._space, key, array.dtype)
    for key in [*some, (rows, columns)]:
        assert _nandarray.get(array._space, key, array.dtype, None, (6, 5)) is None
    for shape in [(6, 6), (5,), (), (2**40, 2**40)]:
        assert _nandarray.get(array._space, 0, array.dtype, None, shape) is None
    outside = [((2, 0), (3, 10)), ((-1, 0), (1, 1)), ((2**62, 0), (4, 1))]
    for at, cut in [*outside, ((0, 0), (0, 1)), ((0,), (1,)), (0, (1, 1))]:
        assert _nandarray.get_sub_block(array._space, (3, 10), at, cut, array.dtype) is None
    out = np.zeros((2, 6), "f4")
    assert _nandarray.get(array._space, slice(2), array.dtype, out) is out
    assert _nandarray.get(array._space, slice(3), array.dtype, out) is None
    structured = store.create("s", data=np.zeros(3, [("x", "i4")]))
    assert _nandarray.get(structured._space, 0, structured.dtype) is None


@pytest.mark.parametrize("change", ["dtype", "writeable"])
def test_a_buffer_that_an_index_changes(scratch: nandarray.Store, change: str) -> None:
    """Code that an index runs may change the buffer: it is checked after the index."""
    array = scratch.create(f"changed {change}", (64,), "S32")
    array[...] = b"x" * 32
    out = np.zeros(2, array.dtype)  # seen as bytes it has as many as the array has items

    class Index:
        def __index__(self) -> int:
            if change == "dtype":
                out.dtype = np.dtype("u1")  # type: ignore[misc]
            else:
                out.flags.writeable = False
            return 2 if change == "writeable" else 64

    with pytest.raises((nandarray.NandarrayError, ValueError, TypeError)):
        array.read(slice(0, Index()), out=out)
    assert not out.tobytes().strip(b"\0"), "nothing was written"
