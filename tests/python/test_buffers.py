"""``out=``: any memory that the processor can write, and nothing else."""

from __future__ import annotations

import array as python_array
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nandarray

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
