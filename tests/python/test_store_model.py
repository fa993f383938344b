"""A store with groups, keys and codecs against a dictionary: random calls by a seed, and other readers at the end.

The stateful test draws index expressions; here are the parts around them: groups and their attributes, encrypted and
packed arrays, fields, futures, gathers, appends of several axes, copies by export and import, and reductions beside the
data.
"""

from __future__ import annotations

import json
import random
import string
from pathlib import Path
from typing import Any

import dask.array as da
import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

import nandarray
from nandarray.errors import WrongKeyError
from nandarray.interop.xarray.backend import to_xarray

KEY = bytes(range(32))
CODECS = [None, "lz4", "zstd", "zstd:9+shuffle", "lz4+bitshuffle", "bitpack", "varwidth"]
INTEGERS = ["u1", "i2", "u4", "i8", ">i4"]
PLAIN = [*INTEGERS[:4], "f8"]
OTHERS = ["f4", "f8", ">f8", "?", "c8", "S4", "U3", "M8[s]"]
SEEDS = range(6)

Arrays = dict[str, np.ndarray[Any, Any]]


def filled(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    numbers = rng.integers(0, 90, shape)
    if dtype.kind in "SU":
        return np.array(numbers, "U").astype(dtype)
    return numbers.astype("M8[s]").astype(dtype) if dtype.kind == "M" else numbers.astype(dtype)


class Play:
    """A store, what it has to hold, and the calls that change both."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.seed = path, seed
        self.rng, self.np = random.Random(seed), np.random.default_rng(seed)
        self.store = nandarray.open(path, "w")
        self.arrays: Arrays = {}
        self.attrs: dict[str, dict[str, Any]] = {"": {}}
        self.secret: set[str] = set()
        self.log: list[str] = []

    def array(self, name: str) -> Any:
        group, _, base = name.rpartition("/")
        where = self.store[group] if group and self.rng.random() < 0.5 else self.store
        own = base if where is not self.store else name
        return where.open_array(own, encryption_key=KEY if name in self.secret else None)

    def some(self) -> str:
        return self.rng.choice(sorted(self.arrays))

    def create(self) -> None:
        name = "/".join(self.rng.choices("abc", k=self.rng.randint(1, 3))) + self.rng.choice("xyz")
        shape = tuple(self.rng.randint(0, 9) for _ in range(self.rng.randint(0, 3)))
        codec = self.rng.choice(CODECS)
        packed = codec in ("bitpack", "varwidth")
        dtype = np.dtype(self.rng.choice(INTEGERS[:3] if packed else INTEGERS + OTHERS))
        data = filled(self.np, shape, dtype)
        options: dict[str, Any] = {"compression": codec}
        if self.rng.random() < 0.5:
            options["building_block"] = tuple(self.rng.randint(1, 6) for _ in shape)
        if self.rng.random() < 0.3:
            options["encryption_key"] = KEY
        attrs = {"made": self.seed} if self.rng.random() < 0.5 else {}
        taken = self.clashes(name)
        try:
            self.store.create(name, data=data, attrs=attrs, **options)
        except nandarray.ExistsError:
            assert taken, name
            return
        assert not taken, name
        self.arrays[name], self.attrs[name] = data, attrs
        if "encryption_key" in options:
            self.secret.add(name)
        parts = name.split("/")
        for n in range(1, len(parts)):
            self.attrs.setdefault("/".join(parts[:n]), {})

    def clashes(self, name: str) -> bool:
        parts = name.split("/")
        groups = {"/".join(parts[:n]) for n in range(1, len(parts))}
        return name in self.attrs or not groups.isdisjoint(self.arrays)

    def write(self) -> None:
        name = self.some()
        data = self.arrays[name]
        key = tuple(slice(*sorted((self.rng.randint(0, n), self.rng.randint(0, n)))) for n in data.shape)
        values = filled(self.np, data[key].shape, data.dtype)
        data[key] = values
        how = self.rng.randrange(3)
        if how == 0:
            self.array(name)[key] = values
        elif how == 1:
            self.array(name).write(key, values)
        else:
            self.array(name).submit_write(key, values).result()

    def read(self) -> None:
        name = self.some()
        data, array = self.arrays[name], self.array(name)
        how = self.rng.randrange(4)
        if how == 0:
            found = array.submit().result()
        elif how == 1:
            found = array.read(out=np.empty(data.shape, data.dtype))
        elif how == 2 and data.ndim and data.shape[0]:
            rows = self.np.integers(0, data.shape[0], 5)
            assert array.gather(rows).tobytes() == data[rows].tobytes()
            return
        else:
            found = np.asarray(array)
        assert found.tobytes() == data.tobytes()

    def append(self) -> None:
        name = self.some()
        data = self.arrays[name]
        if data.ndim:
            axis = self.rng.randrange(data.ndim)
            more = filled(self.np, (*data.shape[:axis], self.rng.randint(0, 4), *data.shape[axis + 1 :]), data.dtype)
            self.arrays[name] = np.concatenate([data, more], axis).astype(data.dtype)
            assert self.array(name).append(more, axis) == self.arrays[name].shape

    def remember(self) -> None:
        name = self.rng.choice(sorted(self.attrs))
        owner = self.store if not name else self.array(name) if name in self.arrays else self.store[name]
        mine = self.attrs[name]
        key, value = self.rng.choice("pqr"), self.rng.choice([1, 2.5, "é", None, [1, "x"], {"a": {"b": [True]}}])
        how = self.rng.randrange(3)
        if how == 0 and key in mine:
            del owner.attrs[key], mine[key]
        elif how == 1:
            owner.attrs.update({key: value, "s": self.seed})
            mine.update({key: value, "s": self.seed})
        else:
            owner.attrs[key] = mine[key] = value
        assert dict(owner.attrs) == mine

    def delete(self) -> None:
        name = self.rng.choice(sorted(name for name in self.attrs if name))
        del self.store[name]
        for every in [self.arrays, self.attrs]:
            for gone in [one for one in every if one == name or one.startswith(name + "/")]:
                del every[gone]
        self.secret &= set(self.arrays)
        self.keep_groups()

    def rename(self) -> None:
        old = self.rng.choice(sorted(name for name in self.attrs if name))
        new = "".join(self.rng.choices(string.ascii_uppercase, k=4))
        self.store.rename(old, new)
        for every in [self.arrays, self.attrs]:
            for name in [one for one in every if one == old or one.startswith(old + "/")]:
                every[new + name.removeprefix(old)] = every.pop(name)
        self.secret = {new + one.removeprefix(old) if (one + "/").startswith(old + "/") else one for one in self.secret}
        self.keep_groups()

    def keep_groups(self) -> None:
        """Groups that exist only by what is in them go with it."""
        for name in [one for one in self.attrs if one and one not in self.arrays]:
            if name not in self.store:
                assert not any(one.startswith(name + "/") for one in self.arrays)
                del self.attrs[name]

    def reopen(self) -> None:
        self.rng.choice([self.store.flush, self.store.compact, lambda: None])()
        self.store.close()
        self.store = nandarray.open(self.path, "r+")

    def step(self) -> None:
        calls = [self.create, self.create, self.write, self.read, self.append, self.remember, self.reopen]
        calls += [self.delete, self.rename] if len(self.arrays) > 4 else []
        call = self.rng.choice(calls if self.arrays else [self.create])
        self.log.append(call.__name__)
        call()

    def compare(self, store: Any) -> None:
        assert sorted(store.array_names()) == sorted(self.arrays)
        for name, data in self.arrays.items():
            array = store.open_array(name, encryption_key=KEY if name in self.secret else None)
            assert (array.shape, array.dtype) == (data.shape, data.dtype), name
            assert array[...].tobytes() == data.tobytes(), name
            assert dict(array.attrs) == self.attrs[name], name
            assert array.encrypted == (name in self.secret)
        for name, mine in self.attrs.items():
            if name not in self.arrays:
                assert dict((store[name] if name else store).attrs) == mine, name


@pytest.mark.parametrize("seed", SEEDS)
def test_any_calls_leave_what_a_dictionary_would_hold(seed: int, tmp_path: Path) -> None:
    play = Play(tmp_path / "d.nand", seed)
    try:
        for _ in range(70):
            play.step()
    except Exception as error:
        raise AssertionError(f"seed {seed}, after {play.log}") from error
    play.compare(play.store)
    assert play.store.check()["ok"]
    play.store.close()
    with nandarray.open(play.path) as store:
        play.compare(store)
        for name in play.secret:
            with pytest.raises(WrongKeyError):
                store[name][...]


def public(seed: int) -> tuple[Arrays, dict[str, dict[str, Any]]]:
    """Arrays that every other format holds, too, in groups, with attributes."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    arrays = {
        f"{'g/' * rng.randint(0, 2)}v{n}": filled(
            numbers, tuple(rng.randint(1, 7) for _ in range(rng.randint(1, 3))), np.dtype(rng.choice(PLAIN))
        )
        for n in range(5)
    }  # fmt: skip
    return arrays, {name: {"unit": "K", "n": rng.randint(0, 9), "x": rng.random()} for name in arrays}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ending", ["zarr", "h5", "nc", "npz"])
def test_other_packages_read_what_is_exported_and_it_comes_back(seed: int, ending: str, tmp_path: Path) -> None:
    arrays, attrs = public(seed)
    rng = random.Random(seed)
    with nandarray.open("d.nand", "w") as store:
        for name, data in arrays.items():
            codec = rng.choice([None, "lz4", "zstd+shuffle"])
            block = tuple(rng.randint(1, 4) for _ in data.shape)
            store.create(name, data=data, compression=codec, attrs=attrs[name], building_block=block)
        nandarray.export(store, f"x.{ending}", compression=rng.choice(["auto", "none"]))
    if ending == "zarr":
        other: Any = zarr.open_group("x.zarr", mode="r")
    else:
        other = np.load("x.npz") if ending == "npz" else h5py.File(f"x.{ending}")
    with other if ending != "zarr" else nandarray.open("d.nand"):
        for name, data in arrays.items():
            np.testing.assert_array_equal(other[name][...], data)
            if ending in ("zarr", "h5"):
                assert {key: other[name].attrs[key] for key in attrs[name]} == attrs[name]
    with nandarray.open("back.nand", "w") as back:
        nandarray.import_(f"x.{ending}", back)
        assert sorted(back.array_names()) == sorted(arrays)
        for name, data in arrays.items():
            assert back[name].dtype == data.dtype.newbyteorder("=") or back[name].dtype == data.dtype
            np.testing.assert_array_equal(back[name][...], data)
            if ending != "npz":
                kept = {key: back[name].attrs[key] for key in attrs[name]}
                assert json.loads(json.dumps(kept)) == attrs[name]


@pytest.mark.parametrize("seed", SEEDS)
def test_dask_xarray_and_reductions_say_what_numpy_says(seed: int, store: nandarray.Store) -> None:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    shape = tuple(rng.randint(1, 12) for _ in range(rng.randint(1, 3)))
    data = numbers.integers(-50, 50, shape).astype(rng.choice(["i4", "i8", "f8"]))
    block = tuple(rng.randint(1, 5) for _ in shape)
    dims = [f"d{axis}" for axis in range(len(shape))]
    options = {"building_block": block, "compression": rng.choice(CODECS[:5])}
    store.create("a", data=data, attrs={"_ARRAY_DIMENSIONS": dims}, **options)
    array = store["a"]
    axis = rng.randrange(data.ndim)
    lazy = da.from_array(array, chunks=tuple(rng.randint(1, 6) for _ in shape))
    np.testing.assert_array_equal((lazy * 2 - lazy.min()).compute(scheduler="sync"), data * 2 - data.min())
    np.testing.assert_allclose(lazy.sum(axis).compute(scheduler="sync"), data.sum(axis))
    named = to_xarray(array)
    assert named.dims == tuple(dims)
    xr.testing.assert_equal(named.max(dims[axis]).load(), xr.DataArray(data, dims=dims).max(dims[axis]))
    for name in ("sum", "min", "max"):
        np.testing.assert_allclose(array.reduce(name), getattr(np, name)(data))
        np.testing.assert_allclose(array.reduce(name, axis=axis), getattr(np, name)(data, axis=axis))
    np.testing.assert_allclose(array.reduce("mean"), data.mean())
    low = rng.randint(-50, 0)
    flat = data.reshape(-1)
    np.testing.assert_array_equal(array.filter(low=low, high=25), flat[(flat >= low) & (flat <= 25)])
