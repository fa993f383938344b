"""A careful user's program: ``mypy --strict`` accepts it without a cast, and none of our names gives it ``Any``.

Dtypes alone are known at run time only, as those of ``numpy.load``. test_types.py runs it and has it checked.
"""

from __future__ import annotations

import sys
from typing import assert_type

import numpy as np

import nandarray
from nandarray import Array, Block, Group, Out, programs
from nandarray.index.buffers import Elements


@nandarray.program
def doubled(x: Block[np.float64], out: Out[np.float64]) -> None:
    """Fill a block with twice the input's."""
    for i in range(len(x)):
        out[i] = 2 * x[i]


@nandarray.program(inputs="float64")
def halved(x: float) -> float:
    """Halve one element."""
    return x / 2


@nandarray.program.filter(inputs="float64")
def large(x: float) -> bool:
    """Tell whether an element is kept."""
    return x > 10


def main(path: str) -> None:
    """Write a store, and read it in every way that a program reads one."""
    with nandarray.open(path, "w") as store:
        assert_type(store, nandarray.Store)
        store["run/a"] = np.arange(12.0).reshape(3, 4)
        assert_type(store.create("table", 3, [("x", "i4"), ("y", "f8")]), Array)
        read(store)
        compute(store.open_array("run/a"))


def read(store: nandarray.Store) -> None:
    """Find, and index."""
    # A name may be an array or a group; indexed, it is an array, and the getters know which it is.
    assert_type(store["run/a"], Array | Group)
    assert_type(store["run/a"][1:, 2], Elements)
    store["run/a"][0, :2] = 7
    array = store.open_array("run/a")
    group = store.open_group("run")
    assert_type(array, Array)
    assert_type(group, Group)
    for name, one in group.items():
        if isinstance(one, Array):
            print(name, one.shape, one.dtype)
    assert_type(group.get("b"), Array | Group | None)
    assert_type(array[0], Elements)
    assert_type(array[array[...] > 3], Elements)
    assert_type(array.oindex[[0, 2], [1]], Elements)
    assert_type(array.vindex[[0, 2], [1, 1]], Elements)
    assert_type(array.read(), Elements)
    memory = np.empty((3, 4))
    assert_type(array.read(out=memory), np.ndarray[tuple[int, int], np.dtype[np.float64]])
    assert_type(array.view((2, 6))[0], Elements)
    assert_type(array.view(12).read((1,), (4,)), Elements)
    assert_type(array.astype("f4")[0], Elements)
    assert_type(array.view(-1).astype("f4")[0], Elements)
    assert_type(store.open_array("table")["x"][:2], Elements)
    assert_type(nandarray.concat([array, array])[4], Elements)
    assert_type(array.fill_value, np.generic)
    assert_type(list(array), list[Elements])
    assert_type(np.asarray(array), Elements)
    mean: float = float(array[0].mean())
    print(array.shape, mean, float(array[1, 1]), len(array), np.mean(array, axis=0).shape)


def compute(array: Array) -> None:
    """Compute beside the data."""
    assert_type(array.reduce("sum"), Elements)
    assert_type(array.reduce("max", axis=0), Elements)
    assert_type(array.mean(axis=0, keepdims=True), Elements)
    assert_type(array.view(-1).argmax(), Elements)
    assert_type(array.reduce("minmax"), Elements | dict[str, Elements])
    assert_type(array.map_blocks("sqrt"), Elements)
    assert_type(array.map_blocks(halved, out="halves"), Array)
    assert_type(array.filter(large), Elements)
    assert_type(array.select(0, 2), Elements)
    found = array.offload(doubled)
    assert isinstance(found, np.ndarray)
    done = nandarray.offload(programs.get("sum", dtype="float64"), [array])
    assert_type(done.outputs, dict[str, Elements])
    assert_type(done.account.bytes_in, int)
    # Decorated, a function keeps its type.
    assert_type(halved(3.0), float)
    assert_type(large(3.0), bool)
    print(float(found.sum()), float(array.reduce("sum")), halved(3.0))


if __name__ == "__main__":
    main(sys.argv[1])
