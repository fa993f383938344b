"""Dask arrays of stores against NumPy: any array, view or field, any chunks, any expression, and the way back.

An expression is a random chain of Dask's own operations, done to the NumPy array beside; schedulers are synchronous and
threaded. Written arrays come from chunks of any lengths, some of them empty.
"""

from __future__ import annotations

import random
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import nandarray
import strategies
from nandarray import InvalidError
from nandarray.interop.dask import from_dask, to_dask

_Array = np.ndarray[Any, Any]


class Draw:
    """Random arrays, chunks and expressions of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng, self.seed = random.Random(seed), seed

    def shape(self, most: int = 9) -> tuple[int, ...]:
        return tuple(
            self.rng.choice([self.rng.randint(1, most), self.rng.randint(0, most)])
            for _ in range(self.rng.randint(0, 3))
        )

    def chunks(self, shape: tuple[int, ...], *, empty: bool = False) -> tuple[tuple[int, ...], ...]:
        """Lengths of chunks that add up to each dimension; some may be empty, which few of Dask's operations take."""
        every = []
        for length in shape:
            cuts = sorted(self.rng.randint(0, length) for _ in range(self.rng.randint(0, 3)))
            lengths = [b - a for a, b in zip([0, *cuts], [*cuts, length], strict=True)]
            every.append(tuple(lengths if empty else [one for one in lengths if one] or [0]))
        return tuple(every)

    def source(self, store: Any) -> tuple[Any, _Array]:
        """An array, a view of one, or a field, with what it must read as."""
        shape = self.shape()
        kind = self.rng.choice(["array", "array", "view", "field", "inner"])
        dtype = np.dtype(self.rng.choice(["i4", ">i2", "f8", "c8", "?", "M8[s]"]))
        if kind in ("field", "inner"):
            dtype = np.dtype([("a", "u1"), ("x", "i4", (2, 3) if kind == "inner" else ())])
        data = strategies.content(shape, dtype, self.seed)
        block = tuple(self.rng.randint(1, 4) for _ in shape) if self.rng.random() < 0.7 else None
        array = store.create("a", data=data, building_block=block, compression=self.rng.choice([None, "lz4"]))
        if kind in ("field", "inner"):
            return array["x"], data["x"]
        if kind == "view" and data.size:
            sides = [n for n in (2, 3, 5, 7) if data.size % n == 0]
            one = self.rng.choice(sides) if sides else 1
            shape = self.rng.choice([(data.size,), (one, data.size // one), (data.size // one, 1, one)])
            return array.view(shape), data.reshape(shape)
        return array, data

    def step(self, lazy: Any, wanted: _Array) -> tuple[Any, _Array]:
        """One operation more, on both."""
        axis = self.rng.randrange(wanted.ndim) if wanted.ndim else None
        choice = self.rng.choice(
            ["slice", "reverse", "take", "mask", "transpose", "concatenate", "stack", "rechunk", "where"]
        )
        if axis is None:
            return lazy[None], wanted[None]
        length = wanted.shape[axis]
        before = (slice(None),) * axis
        if choice == "slice":
            low, high = sorted(self.rng.randint(0, length) for _ in range(2))
            key = (*before, slice(low, high, self.rng.choice([1, 2, 3])))
            return lazy[key], wanted[key]
        if choice == "reverse":
            key = (*before, slice(None, None, -self.rng.choice([1, 2])))
            return lazy[key], wanted[key]
        if choice == "take" and length:
            rows = [self.rng.randrange(-length, length) for _ in range(self.rng.randint(1, 4))]
            return lazy[(*before, rows)], wanted[(*before, rows)]
        if choice == "mask":
            mask = np.array([self.rng.random() < 0.5 for _ in range(length)], bool)
            return lazy[(*before, mask)], wanted[(*before, mask)]
        if choice == "transpose":
            return lazy.T, wanted.T
        if choice == "concatenate":
            return da.concatenate([lazy, lazy], axis), np.concatenate([wanted, wanted], axis)
        if choice == "rechunk":
            return lazy.rechunk(self.chunks(wanted.shape)), wanted
        if choice == "where" and wanted.dtype.kind in "if":
            return da.where(lazy > lazy.dtype.type(5), lazy, lazy.dtype.type(0)), np.where(
                wanted > 5, wanted, wanted.dtype.type(0)
            )
        return da.stack([lazy, lazy], axis), np.stack([wanted, wanted], axis)


@pytest.mark.parametrize("seed", range(36))
def test_any_expression_of_a_stored_array_is_numpys(seed: int, store: nandarray.Store) -> None:
    draw = Draw(seed)
    array, wanted = draw.source(store)
    chunks = draw.rng.choice([None, draw.chunks(wanted.shape), "auto", -1])
    lazy = to_dask(array, chunks=chunks, inline_array=draw.rng.random() < 0.5)
    assert (lazy.shape, lazy.dtype) == (wanted.shape, wanted.dtype), f"seed {seed}"
    done = []
    for _ in range(draw.rng.randint(0, 4)):
        lazy, wanted = draw.step(lazy, wanted)
        done.append((lazy.shape, lazy.chunks))
    with dask.config.set(scheduler=draw.rng.choice(["sync", "threads"])):
        found = np.asarray(lazy.compute())
    assert (found.shape, found.dtype.newbyteorder("=")) == (wanted.shape, wanted.dtype.newbyteorder("=")), (seed, done)
    assert found.astype(wanted.dtype).tobytes() == wanted.tobytes(), f"seed {seed}: {done}"


@pytest.mark.parametrize("seed", range(24))
def test_what_is_computed_is_stored_whatever_its_chunks(seed: int, store: nandarray.Store) -> None:
    draw = Draw(seed + 500)
    shape = draw.shape(12)
    data = strategies.content(shape, np.dtype(draw.rng.choice(["i4", ">f8", "?", "S5", "m8[ns]"])), seed)
    source = da.from_array(data, chunks=draw.chunks(shape, empty=True))
    options: dict[str, Any] = {}
    if draw.rng.random() < 0.7:
        options["building_block"] = tuple(draw.rng.randint(1, 5) for _ in shape)
    with dask.config.set(scheduler=draw.rng.choice(["sync", "threads"])):
        if draw.rng.random() < 0.3:
            pending = from_dask(source, store, "g/a", compute=False, rechunk=draw.rng.random() < 0.5, **options)
            assert not store["g/a"][...].any() or data.dtype.kind == "S", f"seed {seed}: nothing is written yet"
            pending.compute()
        else:
            made = from_dask(source, store, "g/a", rechunk=draw.rng.random() < 0.5, attrs={"n": seed}, **options)
            assert made.attrs["n"] == seed
    assert store["g/a"][...].tobytes() == data.tobytes(), f"seed {seed}: {source.chunks}"
    assert (store["g/a"].shape, store["g/a"].dtype) == (data.shape, data.dtype)


def test_an_expression_of_an_array_goes_back_into_its_own_store(store: nandarray.Store) -> None:
    data = np.arange(60 * 70, dtype="f4").reshape(60, 70)
    store.create("a", data=data, building_block=(7, 16))
    lazy = to_dask(store["a"], chunks=(11, 13))
    from_dask((lazy - lazy.mean(axis=0)).astype("f8"), store, "b", building_block=(9, 9))
    np.testing.assert_allclose(store["b"][...], data - data.mean(axis=0), atol=1e-3)
    with pytest.raises(nandarray.ExistsError, match="'b'"):
        from_dask(lazy, store, "b")
    with pytest.raises(InvalidError, match="not ndarray"):
        from_dask(data, store, "c")
    with pytest.raises(InvalidError, match=r"unknown size: call compute_chunk_sizes\(\)"):
        from_dask(lazy[lazy[:, 0] > 9], store, "c")
    with pytest.raises(ZeroDivisionError):
        from_dask(lazy.map_blocks(lambda one: one // (1 // 0), dtype="f4"), store, "c")
    assert store.array_names() == ["a", "b"]
