"""Files of other formats in place against h5py, Zarr and NumPy: dtypes, chunks, codecs, shards, index expressions."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nandarray
from strategies import content, dtypes, keys, outer_keys, shapes, view_shapes

h5py = pytest.importorskip("h5py")
hdf5plugin = pytest.importorskip("hdf5plugin")
zarr = pytest.importorskip("zarr")
#: Filters of HDF5: those that numcodecs has, in the orders that occur, and those that the HDF5 library decodes.
FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "gzip": {"compression": "gzip"},
    "shuffled": {"compression": "gzip", "compression_opts": 9, "shuffle": True},
    "checked": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "checked alone": {"fletcher32": True},
    "zstd": dict(hdf5plugin.Zstd(clevel=3)),
    "blosc": dict(hdf5plugin.Blosc(cname="lz4", clevel=5, shuffle=1)),
    "blosc zstd": {**hdf5plugin.Blosc(cname="zstd", shuffle=2), "fletcher32": True},
    "lzf": {"compression": "lzf", "shuffle": True},
    "lz4": dict(hdf5plugin.LZ4()),
    "bitshuffle": dict(hdf5plugin.Bitshuffle()),
}
_numbers = itertools.count()


@contextmanager
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="foreign"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def check(data: Any, array: np.ndarray[Any, Any], stored: Any) -> None:
    """Compare reads of all kinds with those of NumPy."""
    assert (stored.shape, stored.dtype) == (array.shape, array.dtype)
    for _ in range(3):
        key = data.draw(keys(array.shape))
        try:
            wanted = array[key]
        except IndexError:
            with pytest.raises(IndexError):
                stored[key]
            continue
        found = stored[key]
        np.testing.assert_array_equal(found, wanted, strict=True)
    outer = data.draw(outer_keys(array.shape))
    try:
        wanted = np.asarray(nandarray_outer(array, outer))
    except IndexError:
        return
    np.testing.assert_array_equal(stored.oindex[outer], wanted)
    if array.size and array.ndim:
        shape = data.draw(view_shapes(array.size))
        np.testing.assert_array_equal(stored.view(shape)[...], array.reshape(shape))
    out = np.empty(array.shape, array.dtype)[..., ::-1] if array.ndim else np.empty((), array.dtype)
    np.testing.assert_array_equal(stored.read(out=out), array)


def nandarray_outer(array: np.ndarray[Any, Any], key: Any) -> Any:
    """Index as ``oindex`` does, by one that is in memory."""
    store = _memory()
    name = f"x{next(_numbers)}"
    store[name] = array
    return store[name].oindex[key]


_made: list[Any] = []


def _memory() -> Any:
    if not _made:
        path = Path(tempfile.mkdtemp(prefix="foreign"))
        _made.append(nandarray.open(path / "one.nand", "w"))
        shutil.rmtree(path)
    return _made[0]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_an_hdf5_file_reads_as_numpy(data: Any) -> None:
    dtype = data.draw(dtypes())
    if dtype.kind in "MmU" or (dtype.names and "M8" in str(dtype)):
        dtype = np.dtype("f4")  # HDF5 has no such
    array = content(data.draw(shapes(max_dims=3)), dtype, data.draw(st.integers(0, 9)))
    how: dict[str, Any] = {}
    if array.ndim and data.draw(st.booleans()):
        filters = FILTERS[data.draw(st.sampled_from(sorted(FILTERS)))]
        chunks = tuple(data.draw(st.integers(1, max(1, n))) for n in array.shape)
        how = {**filters, "chunks": chunks, "maxshape": (None,) * array.ndim}
    how_to_write = {
        "libver": data.draw(st.sampled_from(["earliest", "latest"])),
        "userblock_size": data.draw(st.sampled_from([0, 512])),
    }
    with folder() as path:
        with h5py.File(path / "a.h5", "w", **how_to_write) as file:
            made = file.create_dataset("g/a", shape=array.shape, dtype=dtype, **how)
            if data.draw(st.booleans()) and array.size:
                made[...] = array
            elif array.ndim:  # some chunks are not there
                made[:1] = array[:1]
            made.attrs["unit"] = "K"
            array = made[...] if made.shape else np.asarray(made[()], dtype)
        with nandarray.open(path / "a.h5") as store:
            assert store.array_names() == ["g/a"]
            assert dict(store["g/a"].attrs)["unit"] == "K"
            check(data, array, store["g/a"])


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_zarr_group_reads_as_numpy(data: Any) -> None:
    format = data.draw(st.sampled_from([2, 3]))
    dtype = data.draw(dtypes())
    if dtype.kind == "V" or (format == 3 and dtype.byteorder == ">"):
        dtype = np.dtype("i2")
    array = content(data.draw(shapes(max_dims=3, min_dims=1)), dtype, data.draw(st.integers(0, 9)))
    chunks = tuple(data.draw(st.integers(1, max(1, n))) for n in array.shape)
    how: dict[str, Any] = {"chunks": chunks}
    if format == 3 and data.draw(st.booleans()):
        how["shards"] = tuple(n * data.draw(st.integers(1, 3)) for n in chunks)
    codecs: dict[int, list[Any]] = {
        2: [None, "auto"],
        3: [None, "auto", zarr.codecs.GzipCodec(), zarr.codecs.BloscCodec(), [zarr.codecs.Crc32cCodec()]],
    }
    how["compressors"] = data.draw(st.sampled_from(codecs[format]))
    with folder() as path, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Zarr's, of dtypes that its specification lacks
        root = zarr.open_group(path / "c.zarr", mode="w", zarr_format=format)
        made = root.create_array("g/a", shape=array.shape, dtype=dtype, **how)
        if data.draw(st.booleans()):
            made[...] = array
        else:  # some chunks are not there: they are of the fill value
            made[:1] = array[:1]
            array[1:] = made.fill_value
        place = path / "c.zarr"
        if data.draw(st.booleans()):
            place = Path(shutil.make_archive(str(path / "c.zarr"), "zip", path / "c.zarr"))
        with nandarray.open(place) as store:
            check(data, array, store["g/a"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Files that are intact, by their names."""
    path = tmp_path_factory.mktemp("whole")
    array = np.arange(600, dtype="i4").reshape(20, 30)
    with h5py.File(path / "a.h5", "w") as file:
        file["plain"] = array
        file.create_dataset("g/packed", data=array, chunks=(7, 13), **FILTERS["checked"])
        file.create_dataset("g/lzf", data=array, chunks=(7, 13), **FILTERS["lzf"])
        file["text"] = np.array(["a", "bcd"], h5py.string_dtype())
    root = zarr.open_group(path / "c.zarr", mode="w")
    root.create_array("x", shape=array.shape, chunks=(7, 13), dtype="i4")[...] = array
    shards: dict[str, Any] = {"chunks": (5, 10), "shards": (10, 30), "compressors": zarr.codecs.GzipCodec()}
    root.create_array("y", shape=array.shape, dtype="i4", **shards)[...] = array
    archive = Path(shutil.make_archive(str(path / "c.zarr"), "zip", path / "c.zarr"))
    return {one.name: one.read_bytes() for one in (path / "a.h5", archive)}


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_damage_is_an_error_of_this_package(whole: dict[str, bytes], data: Any) -> None:
    name = data.draw(st.sampled_from(sorted(whole)))
    damaged = bytearray(whole[name])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with folder() as path, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is left out
        (path / name).write_bytes(damaged)
        try:
            with nandarray.open(path / name) as store:
                for one in store.array_names():
                    found = store[f"/{one}"]
                    if isinstance(found, nandarray.Array) and found.size < 1 << 16:
                        found[...]
        except nandarray.NandarrayError:
            pass
