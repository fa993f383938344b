"""``out=``: any memory that the processor can write, and nothing else."""

from __future__ import annotations

import array as python_array
import asyncio
import mmap
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nandarray
from nandarray.index import buffers

MODEL = np.arange(12, dtype="<f4").reshape(3, 4)


@pytest.fixture
def a(store: nandarray.Store) -> nandarray.Array:
    return store.create("a", data=MODEL)


class Exporter:
    """Memory of another library, known only through NumPy's array interface."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.memory = np.zeros(shape, "<f4")
        self.__array_interface__ = self.memory.__array_interface__


class DLPackOnly:
    """Memory of another library, known only through DLPack, on a device of our choice."""

    def __init__(self, shape: tuple[int, ...], device: tuple[int, int] = (1, 0)) -> None:
        self.memory = np.zeros(shape, "<f4")
        self.device = device

    def __dlpack__(self, **options: Any) -> Any:
        return self.memory.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def test_numpy_of_any_strides(a: nandarray.Array) -> None:
    wide = np.zeros((3, 8), "<f4")
    assert a.read(out=wide[:, ::-2]).base is wide
    assert np.array_equal(wide[:, ::-2], MODEL)
    assert not wide[:, ::2].any()
    turned = np.zeros((4, 3), "<f4")
    a.read(out=turned.T)
    assert np.array_equal(turned, MODEL.T)


def test_torch(a: nandarray.Array) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(3, 4)
    assert a.read(out=tensor) is tensor
    assert np.array_equal(tensor.numpy(), MODEL)
    column = torch.zeros(4, 3).T
    a.view((3, 4)).read((0, 0), (3, 4), column)
    assert np.array_equal(column.numpy(), MODEL)
    with pytest.raises(nandarray.InvalidError, match="float64"):
        a.read(out=torch.zeros(3, 4, dtype=torch.float64))
    with pytest.raises(nandarray.InvalidError):
        a.read(out=torch.zeros(3, 4, dtype=torch.bfloat16))
    with pytest.raises(nandarray.InvalidError):
        a.read(out=torch.zeros(3, 4, requires_grad=True))
    assert np.array_equal(torch.from_dlpack(a).numpy(), MODEL)


def test_plain_bytes(a: nandarray.Array) -> None:
    for out in (bytearray(48), memoryview(bytearray(48)), mmap.mmap(-1, 48), np.zeros(48, "u1").data):
        assert a.read(out=out) is out
        assert bytes(memoryview(out)) == MODEL.tobytes()
    with pytest.raises(nandarray.InvalidError, match=r"47 bytes.*48"):
        a.read(out=bytearray(47))


def test_typed_buffers(a: nandarray.Array) -> None:
    row = python_array.array("f", [0] * 4)
    a.read(1, out=row)
    assert row.tolist() == MODEL[1].tolist()
    shaped = memoryview(bytearray(48)).cast("f", (3, 4))
    a.read(out=shaped)
    assert np.array_equal(np.asarray(shaped), MODEL)
    with pytest.raises(nandarray.InvalidError, match="float64"):
        a.read(1, out=python_array.array("d", [0] * 4))


def test_array_interface_and_dlpack(a: nandarray.Array) -> None:
    for exporter in (Exporter((3, 4)), DLPackOnly((3, 4))):
        a.read(out=exporter)
        assert np.array_equal(exporter.memory, MODEL)


def test_a_single_element_into_a_0d_array(a: nandarray.Array) -> None:
    out = np.zeros((), "<f4")
    assert a.read((1, 2), out=out) is out
    assert out == 6


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros((3, 4), "<f8"), "float64.*float32"),
        (np.zeros((3, 4), ">f4"), ">f4"),
        (np.zeros((4, 3), "<f4"), r"\(4, 3\).*\(3, 4\)"),
        (np.zeros(12, "<f4"), r"\(12,\).*\(3, 4\)"),
        (np.broadcast_to(np.zeros(4, "<f4"), (3, 4)), "read-only"),
        (MODEL.tobytes(), "read-only"),
        ([0.0] * 12, "list"),
        (None.__class__, "type"),
        (DLPackOnly((3, 4), device=(2, 0)), r"\(2, 0\)"),
    ],
)
def test_what_does_not_fit_is_refused(a: nandarray.Array, out: Any, message: str) -> None:
    reads: list[Callable[[], Any]] = [lambda: a.read(out=out), lambda: a.view((3, 4)).read((0, 0), (3, 4), out)]
    for read in reads:
        with pytest.raises(nandarray.InvalidError, match=message):
            read()


class Flagged(DLPackOnly):
    """A tensor of torch's whose memory has the negative, or the conjugate, of its elements: DLPack does not say so."""

    def __init__(self, flag: str) -> None:
        super().__init__((3, 4))
        setattr(self, flag, lambda: True)


STRIDED = np.lib.stride_tricks.as_strided


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (STRIDED(np.zeros(4, "<f4"), (3, 4), (0, 4)), r"share memory: strides \(0, 4\)"),
        (STRIDED(np.zeros(1, "<f4"), (3, 4), (0, 0)), "share memory"),
        (STRIDED(np.zeros(8, "<f4"), (3, 4), (8, 4)), "share memory"),
        (STRIDED(np.zeros(64, "u1").view("<f4"), (3, 4), (16, 2)), "share memory"),
        (Flagged("is_neg"), "negative bit.*resolve_neg"),
        (Flagged("is_conj"), "conjugate bit.*resolve_conj"),
    ],
)
def test_memory_whose_elements_are_not_its_own_is_refused(a: nandarray.Array, out: Any, message: str) -> None:
    view = a.view((3, 4))
    rows = np.arange(3)
    reads: list[Callable[[], Any]] = [
        lambda: a.read(out=out),
        lambda: view.read((0, 0), (3, 4), out),
        lambda: a.submit(out=out).result(),
        lambda: view.submit((0, 0), (3, 4), out).result(),
        lambda: a.gather(rows, out=out),
        lambda: asyncio.run(a.read_async(out=out)),
    ]
    for read in reads:
        with pytest.raises(nandarray.InvalidError, match=message):
            read()


@given(st.data())
def test_memory_that_numpy_makes_by_slices_and_turns_is_taken(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    memory = np.zeros(shape, data.draw(st.sampled_from(["u1", "<f4", "V3"])))
    steps = [data.draw(st.sampled_from([-2, -1, 1, 2])) for _ in shape]
    seen = memory[tuple(slice(None, None, step) for step in steps)].transpose(
        data.draw(st.permutations(range(len(shape))))
    )
    buffers.refuse_shared(seen.shape, seen.strides, seen.itemsize)
    row = data.draw(st.integers(0, len(shape) - 1))
    repeated = np.broadcast_to(np.expand_dims(seen, row), (*seen.shape[:row], 2, *seen.shape[row:]))
    with pytest.raises(nandarray.InvalidError, match="share memory"):
        buffers.refuse_shared(repeated.shape, repeated.strides, repeated.itemsize)


def test_dlpack_without_a_copy_is_refused(a: nandarray.Array) -> None:
    for grid in (a, a.view((4, 3))):
        with pytest.raises(BufferError, match="without a copy"):
            grid.__dlpack__(copy=False)
        assert np.from_dlpack(grid, copy=True).size == MODEL.size


def test_masked_elements_are_refused(store: nandarray.Store, a: nandarray.Array) -> None:
    masked = np.ma.masked_array([1, 2, 3, 4], [0, 1, 0, 0], dtype="<f4")
    records = store.create("records", (4,), [("x", "<f4")])
    writes: list[Callable[[], Any]] = [
        lambda: a.__setitem__(0, masked),
        lambda: a.__setitem__((0, 0), np.ma.masked),
        lambda: a.append(masked[None]),
        lambda: a.submit_write(0, masked).result(),
        lambda: a.view((3, 4)).write((0, 0), masked[None]),
        lambda: records["x"].__setitem__(..., masked),
    ]
    for write in writes:
        with pytest.raises(nandarray.InvalidError, match="masked elements"):
            write()
    assert np.array_equal(a[:], MODEL)
    a[0] = np.ma.masked_array([5, 6, 7, 8], False)
    assert a[0].tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("value", "dtype", "holds"),
    [
        (300, "i1", "-128 to 127"), (np.int64(300), "i1", "-128 to 127"), (1.5, "i4", ""),
        (np.float64("nan"), "i2", ""),
        (-1, "u2", "0 to 65535"), (np.uint64(2**64 - 1), "i8", ""), (1e300, "f4", "3.40282e"), (1 + 2j, "f4", ""),
        (np.complex64(1j), "f4", ""), (2, "?", "0 and 1"), ("abc", "U2", "at most 2 characters"), (b"abc", "S2", ""),
        ("a\0", "U3", ""), (np.datetime64("2000-01-01T00:01"), "M8[D]", ""),
        (np.array((1, 300), "i4,i4")[()], "i4,i1", "f1"), (10**40, "f4", "3.40282e"), (-(10**40), "c8", "3.40282e"),
        (Fraction(10**40), "f4", ""), (Decimal("1e400"), "f8", ""), (Decimal("1.5"), "i4", ""),
        (Fraction(1, 2), "u1", ""), (Decimal(2), "?", ""), ("1e300", "f4", ""), (b"1e300", "f4", ""),
        ((1, 10**40), "i4,f4", "f1"),
    ],
)  # fmt: skip
def test_a_fill_value_that_the_dtype_does_not_hold_is_refused(
    store: nandarray.Store, value: Any, dtype: str, holds: str
) -> None:
    with pytest.raises(
        nandarray.InvalidError,
        match=f"fill_value.*{holds}" if holds == "f1" else f"fill_value.*is not held by.*{holds}",
    ):
        store.create("f", (2,), dtype, fill_value=value)
    assert "f" not in store


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (0.1, "f4"), (np.inf, "f2"), (np.int64(-128), "i1"), (3.0, "u1"), ("7", "i2"), (True, "?"), ("ab", "U2"),
        (b"a", "S2"),
        ("2000-01-01", "M8[D]"), (np.datetime64("NaT"), "M8[s]"), (-1, "m8[s]"), (1j, "c8"), ((1, 2), "i4,i1"),
        (10**30, "f4"), (Decimal("0.1"), "f4"), (Decimal("Infinity"), "f4"), (Decimal(3), "i4"), (Fraction(6, 2), "u1"),
        ("nan", "f4"), ("-inf", "f2"), ("1+2j", "c8"),
    ],
)  # fmt: skip
def test_a_fill_value_that_the_dtype_holds_is_taken(store: nandarray.Store, value: Any, dtype: str) -> None:
    found = store.create("f", (1,), dtype, fill_value=value)[0]
    wanted = np.array(value, dtype) if isinstance(value, tuple) else np.asarray(value).astype(dtype)
    assert repr(found) == repr(wanted[()])
