"""Sources that the formats' own packages write, in any layout that they have, against what those packages read.

Arrays are written in parts only, with fill values of every kind, chunks that divide nothing, filters, both orders and
both formats of Zarr, shards and scale offsets; what is imported must be what the package reads, byte for byte, and what
is exported again must be that, too. The budget is so small that every array is copied in many slabs.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from numcodecs import LZ4, Blosc, Delta, Shuffle, Zlib, Zstd

import nandarray
import strategies
from nandarray import InvalidError

_Array = np.ndarray[Any, Any]

#: Fill values that formats, NumPy or JSON treat in ways of their own.
FILLS: dict[str, list[Any]] = {
    "f2": [np.nan, 6e-8],
    "f4": [0, np.nan, -0.0, np.inf, 1.1, 1e-40],
    "f8": [-np.inf, 5e-324, 0.1],
    ">f4": [np.nan, 3.5],
    "i1": [-128, 127],
    ">i2": [-300],
    "i8": [-(2**63)],
    "u8": [2**64 - 1, 2**63],
    "?": [True],
    "c8": [1 - 2j, complex(np.nan, -0.0)],
    "c16": [complex(0, np.inf)],
    "S3": [b"ab", b"\xff\0a"],
    "U3": ["né", "a\0b"],
    "M8[s]": ["NaT", "2001-01-01"],
    "m8[ns]": ["NaT", -5],
    "V3": [np.void(b"abc")],
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of dtypes that Zarr's format 3 has not settled
        yield


def same(found: Any, wanted: Any) -> bool:
    """Equal bytes in native order."""
    found, wanted = (np.asarray(one) for one in (found, wanted))
    native = wanted.dtype.newbyteorder("=")
    return found.shape == wanted.shape and found.astype(native).tobytes() == wanted.astype(native).tobytes()


@pytest.mark.parametrize("ending", ["zarr", "h5", "nc", "npz"])
@pytest.mark.parametrize("dtype", FILLS)
def test_elements_that_were_never_written_come_back_as_their_fill_value(dtype: str, ending: str) -> None:
    if ending == "nc" and dtype in ("f2", "c8", "c16", "V3"):
        with nandarray.open("a.nand", "w") as store:
            store.create("g/a", 3, dtype)
            with pytest.raises(InvalidError, match="NetCDF cannot hold 'g/a'"):
                nandarray.export(store, "x.nc")
        return
    wanted = {}
    with nandarray.open("a.nand", "w") as store:
        for n, fill in enumerate(FILLS[dtype]):
            array = store.create(f"g/a{n}", (7, 9), dtype, fill_value=fill, building_block=(2, 4))
            array[2:4, 4:6] = strategies.content((2, 2), np.dtype(dtype), 1)
            wanted[f"g/a{n}"] = array[...]
        if ending == "nc" and dtype == "U3":
            with pytest.raises(InvalidError, match="NetCDF cannot hold the text in 'g/a1': .*NULL"):
                nandarray.export(store, "x.nc")
            assert not Path("x.nc").exists()
            del store["g/a1"], wanted["g/a1"]
        nandarray.export(store, f"x.{ending}")
    with nandarray.open("b.nand", "w") as back:
        nandarray.import_(f"x.{ending}", back)
        assert back.array_names() == sorted(wanted)
        for name, data in wanted.items():
            found = back[name][...]
            if ending == "nc" and dtype[0] in "mM":  # CF's numbers with units
                found = found.astype(data.dtype)
            elif ending == "nc" and dtype[0] == "S":  # CF's letters along one more axis
                found = np.ascontiguousarray(found).view(dtype)[..., 0]
            assert same(found, data), (dtype, name, ending)


@pytest.mark.parametrize("ending", ["h5", "nc"])
def test_text_that_a_format_cannot_hold_is_refused_by_the_arrays_name(store: nandarray.Store, ending: str) -> None:
    store["fine"] = np.array(["a", "\U0010ffff"])
    store["g/odd"] = np.array([["p", "\ud800x"]])
    with pytest.raises(InvalidError, match=r"cannot hold the text in 'g/odd': 'utf-8' codec can't encode .*ud800"):
        nandarray.export(store, f"x.{ending}")
    assert not Path(f"x.{ending}").exists()
    del store["g/odd"]
    nandarray.export(store, f"x.{ending}")


class Source:
    """Random arrays of one seed, as a package writes them into a file of its own."""

    def __init__(self, seed: int) -> None:
        self.rng, self.seed = random.Random(seed), seed

    def shape(self) -> tuple[int, ...]:
        return tuple(self.rng.randint(1, 12) for _ in range(self.rng.randint(1, 3)))

    def chunks(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.rng.randint(1, n) for n in shape)

    def boxes(self, shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
        """Boxes to write; what is in none of them keeps the fill value."""
        for _ in range(self.rng.randint(0, 3)):
            low = [self.rng.randrange(n) for n in shape]
            yield tuple(slice(a, self.rng.randint(a + 1, n)) for a, n in zip(low, shape, strict=True))

    def fill(self, path: str, dtype: np.dtype[Any], array: Any, shape: tuple[int, ...]) -> None:
        for n, box in enumerate(self.boxes(shape)):
            extent = tuple(one.stop - one.start for one in box)
            array[box] = strategies.content(extent, dtype, self.seed + n)
        array.attrs["of"] = path

    def zarr_2(self, group: Any, name: str) -> None:
        dtype = np.dtype(self.rng.choice(["i1", ">i4", "u8", "f4", ">f8", "c8", "?", "S3", "U2", "M8[s]"]))
        shape, fill = self.shape(), self.rng.choice([0, None, 1, 1])
        filters = [Delta(dtype.str)] if dtype.kind in "iu" and self.rng.random() < 0.3 else None
        compressor = self.rng.choice([None, Zlib(1), Zstd(3), LZ4(), Blosc("lz4", 3, Blosc.BITSHUFFLE), Blosc("zstd")])
        if self.rng.random() < 0.2:
            filters = [*(filters or []), Shuffle(dtype.itemsize)]
        array = group.create_array(
            name, shape=shape, dtype=dtype, chunks=self.chunks(shape), compressors=compressor, filters=filters,
            fill_value=None if fill is None else np.array(fill).astype(dtype)[()], order=self.rng.choice("CF"),
            chunk_key_encoding={"name": "v2", "separator": self.rng.choice("./")},
        )  # fmt: skip
        self.fill(name, dtype, array, shape)

    def zarr_3(self, group: Any, name: str) -> None:
        dtype = np.dtype(self.rng.choice(["i1", ">i4", "u8", "f4", "f8", "c16", "?", "S3", "U2", "M8[s]"]))
        shape = self.shape()
        chunks = self.chunks(shape)
        shards = tuple(c * self.rng.randint(1, 3) for c in chunks) if self.rng.random() < 0.4 else None
        codec = self.rng.choice([None, "auto", zarr.codecs.GzipCodec(level=1), zarr.codecs.BloscCodec(cname="lz4")])
        array = group.create_array(
            name, shape=shape, dtype=dtype, chunks=chunks, shards=shards, compressors=codec,
            fill_value=np.array(self.rng.choice([0, 1])).astype(dtype)[()],
        )  # fmt: skip
        self.fill(name, dtype, array, shape)

    def hdf5(self, group: Any, name: str) -> None:
        dtype = np.dtype(self.rng.choice(["i1", ">i4", "u8", "f2", "f4", ">f8", "c8", "?", "S3"]))
        shape, options = self.shape(), {}
        if self.rng.random() < 0.7:
            options = {
                "chunks": self.chunks(shape),
                "compression": self.rng.choice([None, "gzip", "lzf"]),
                "shuffle": self.rng.random() < 0.4,
                "fletcher32": self.rng.random() < 0.3 and dtype.kind in "iuf",
                "maxshape": self.rng.choice([None, (None,) * len(shape)]),
            }
            if dtype.kind in "iu" and self.rng.random() < 0.2:
                options |= {"scaleoffset": 0, "fletcher32": False}
        fill = np.array(self.rng.choice([0, 1])).astype(dtype)[()]
        array = group.create_dataset(name, shape, dtype, fillvalue=fill, **options)
        self.fill(name, dtype, array, shape)

    def write(self, kind: str) -> str:
        names = [f"{'g/' * self.rng.randint(0, 2)}a{n}" for n in range(4)]
        if kind == "h5":
            with h5py.File("x.h5", "w", libver=self.rng.choice(["earliest", "latest"])) as file:
                for name in names:
                    self.hdf5(file, name)
            return "x.h5"
        path = f"x{kind}.zarr"
        group = zarr.open_group(path, mode="w", zarr_format=2 if kind == "2" else 3)
        for name in names:
            (self.zarr_2 if kind == "2" else self.zarr_3)(group, name)
        return path


def members(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The arrays of a group of Zarr or HDF5, with their names."""
    for name in sorted(group.keys()):
        item = group[name]
        if hasattr(item, "shape"):
            yield prefix + name, item
        else:
            yield from members(item, f"{prefix}{name}/")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["2", "3", "h5"])
def test_what_other_packages_write_is_imported_as_they_read_it(kind: str, seed: int, store: nandarray.Store) -> None:
    path = Source(seed).write(kind)
    reader: Any = h5py.File(path) if kind == "h5" else zarr.open_group(path, mode="r")
    wanted = {name: np.asarray(item[...]) for name, item in members(reader)}
    nandarray.import_(path, store, budget=random.Random(seed).choice([64, 300, 1 << 20]))
    assert store.array_names() == sorted(wanted), f"{kind}, seed {seed}"
    for name, data in wanted.items():
        assert same(store[name][...], data), f"{kind}, seed {seed}: {name} {data.dtype}"
        assert store[name].attrs["of"] == name
    if kind == "h5":
        reader.close()
    # And once more around, into the other format.
    other = "y.zarr" if kind == "h5" else "y.h5"
    nandarray.export(store, other, budget=500)
    with nandarray.open("back.nand", "w") as back:
        nandarray.import_(other, back, budget=200)
        for name, data in wanted.items():
            got = back[name][...]
            got = got.astype(data.dtype) if data.dtype.kind in "US" else got
            assert same(got, data), f"{kind}, seed {seed}: {name}"
    assert store.check()["ok"]
