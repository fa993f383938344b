"""Datasets against xarray's own Zarr backend: the same dataset, the same encodings, the same dataset read back.

Both backends use xarray's coders, so that what Zarr gives is what the coders mean; ours has besides to plan, place and
read. Where xarray's coders raise, so do we, or say it better; where only we raise, the message names the variable.
"""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr

import nandarray
from nandarray import InvalidError

_TIMES = ["days since 1970-01-01", "seconds since 2000-01-01", "milliseconds since 1999-12-31 12:00"]
_WORDS = np.array(["a", "bcd", "", "é"])


class Draw:
    """Random datasets and encodings of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.sizes = {dim: self.rng.randint(0 if self.rng.random() < 0.1 else 1, 5) for dim in "xyz"}

    def maybe(self, chance: float, **wishes: list[Any]) -> dict[str, Any]:
        return {key: self.rng.choice(some) for key, some in wishes.items() if self.rng.random() < chance}

    def values(self, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        kind = self.rng.choice(["f4", "f8", "i1", ">u2", "i8", "?", "U", "S", "M", "m", "c8", "O"])
        numbers = self.numbers.integers(-40, 40, shape)
        if kind in ("U", "O", "S"):
            words = np.asarray(self.numbers.choice(_WORDS, shape))
            return np.char.encode(words, "utf-8") if kind == "S" else words.astype(object if kind == "O" else "U")
        if kind == "M":
            days = np.datetime64("2000-01-01", "s") + numbers * np.timedelta64(self.rng.choice([3600, 86400]), "s")
            values = days.astype("M8[ns]")  # of coarser ones xarray's own encoding is wrong, as tested below
        elif kind == "m":
            values = numbers.astype(self.rng.choice(["m8[s]", "m8[ns]"]))
        elif kind in ("f4", "f8"):
            values = numbers.astype(kind) / self.rng.choice([1, 2, 10])
        else:
            return np.asarray(numbers % 2 == 0) if kind == "?" else np.asarray(abs(numbers)).astype(kind)
        values = np.asarray(values)
        if values.size and self.rng.random() < 0.4:
            values.flat[self.rng.randrange(values.size)] = "NaT" if kind in "Mm" else np.nan
        return values

    def encoding(self, kind: str) -> dict[str, Any]:
        if kind == "f":
            wishes = self.maybe(0.5, dtype=["i2", "u1", ">i4", "f4", "f8"], scale_factor=[0.5, 2.0, 0.1])
            return wishes | self.maybe(0.4, add_offset=[0.0, -3.5, 100.0], _FillValue=[-1, 99, 0, None, np.nan])
        if kind in "iu":
            return self.maybe(0.3, dtype=["i2", "u1", "i8", "f4"], _FillValue=[99, 3, None])
        if kind == "M":
            return self.maybe(0.5, units=_TIMES, dtype=["i8", "f8"], calendar=["proleptic_gregorian", "standard"])
        return self.maybe(0.6, units=["days", "seconds", "milliseconds"]) if kind == "m" else {}

    def dataset(self) -> tuple[xr.Dataset, dict[str, Any]]:
        variables, encodings = {}, {}
        for n in range(self.rng.randint(1, 4)):
            dims = self.rng.sample("xyz", self.rng.randint(0, 3))
            values = self.values(tuple(self.sizes[dim] for dim in dims))
            attrs = {"units": "K", "range": [0, 1]} if values.dtype.kind in "iu" and self.rng.random() < 0.3 else {}
            variables[f"v{n}"] = (dims, values, attrs)
            if wishes := self.encoding(values.dtype.kind):
                encodings[f"v{n}"] = wishes
        coordinates = {"x": ("x", np.arange(self.sizes["x"]) * 2.0)} if self.rng.random() < 0.5 else {}
        return xr.Dataset(variables, coords=coordinates, attrs={"title": "é", "n": 1}), encodings


def ours(dataset: xr.Dataset, encodings: dict[str, Any], chunks: Any) -> xr.Dataset:
    with nandarray.open("o.nand", "w") as store:
        nandarray.from_xarray(dataset, store, encoding=encodings)
        assert store.check()["ok"]
    with xr.open_dataset("o.nand", engine="nandarray", chunks=chunks) as read:
        return read.load()


def theirs(dataset: xr.Dataset, encodings: dict[str, Any], chunks: Any) -> xr.Dataset:
    shutil.rmtree("o.zarr", ignore_errors=True)
    dataset.to_zarr("o.zarr", encoding=encodings, consolidated=False)
    with xr.open_dataset("o.zarr", engine="zarr", consolidated=False, chunks=chunks) as read:
        return read.load()


@pytest.mark.parametrize("seed", range(36))
def test_a_dataset_reads_as_xarrays_own_backend_reads_it(seed: int) -> None:
    draw = Draw(seed)
    dataset, encodings = draw.dataset()
    lazy = draw.rng.random() < 0.3
    given = dataset.chunk(2) if lazy else dataset
    found: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of formats that Zarr has not settled, and of NaN that becomes integers
        for write in (ours, theirs):
            try:
                found.append(write(given, encodings, {} if draw.rng.random() < 0.3 else None))
            except (ValueError, TypeError, OverflowError, nandarray.NandarrayError) as error:
                found.append(error)
    mine, their = found
    context = f"seed {seed}: {encodings}"
    if isinstance(mine, Exception):
        # The coders' own errors are passed on; our own say which variable it is.
        told = isinstance(mine, InvalidError) and "variable 'v" in str(mine)
        assert told or type(mine) is type(their), context
        assert nandarray.open("o.nand").array_names() == [], context
    elif not isinstance(their, Exception):
        xr.testing.assert_identical(mine.drop_attrs(), their.drop_attrs())
        for name in dataset.variables:
            assert mine[name].dtype == their[name].dtype or mine[name].dtype.kind == "U", (context, name)
            assert {**dataset[name].attrs}.items() <= {**mine[name].attrs}.items(), (context, name)


@pytest.mark.parametrize(
    ("own", "units"),
    [
        ("s", "milliseconds"),
        ("s", "nanoseconds"),
        ("ms", "milliseconds"),
        ("ms", "microseconds"),
        ("us", "nanoseconds"),
    ],
)
def test_durations_in_units_finer_than_their_dtype_are_kept(own: str, units: str) -> None:
    spans = np.array([5, "NaT", 86_400, -7], f"m8[{own}]")
    dataset = xr.Dataset({"d": ("x", spans), "n": ("x", np.arange(4))})
    first = {"d": {"units": units, "dtype": "i8"}}
    nandarray.from_xarray(dataset.isel(x=slice(0, 3)), "o.nand", encoding=first)
    nandarray.from_xarray(dataset.isel(x=slice(3, 4)), "o.nand", append_dim="x")
    with xr.open_dataset("o.nand", engine="nandarray", decode_timedelta=True) as read:
        np.testing.assert_array_equal(read["d"].values.astype(spans.dtype), spans)


_FINE = ["milliseconds since 2000-01-01", "microseconds since 1970-01-01 12:00", "nanoseconds since 2000-01-01"]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("units", _FINE)
@pytest.mark.parametrize("own", ["s", "ms", "us", "ns"])
def test_times_in_units_finer_than_their_dtype_are_kept(own: str, units: str, *, lazy: bool) -> None:
    """xarray 2026.9 makes such times NaT without a word, and its Zarr backend stores that."""
    times = np.array(["1999-11-24", "NaT", "2000-01-05T06:07:08", "2000-02-29"], f"M8[{own}]")
    dataset = xr.Dataset({"t": ("x", times), "n": ("x", np.arange(4))})
    given = dataset.chunk(2) if lazy else dataset
    nandarray.from_xarray(given.isel(x=slice(0, 3)), "o.nand", encoding={"t": {"units": units, "dtype": "i8"}})
    nandarray.from_xarray(given.isel(x=slice(3, 4)), "o.nand", append_dim="x")
    with xr.open_dataset("o.nand", engine="nandarray") as read:
        assert read["t"].encoding["units"].startswith(units.partition(" ")[0])
        np.testing.assert_array_equal(read["t"].values.astype(times.dtype), times)
    if own != "s" or not units.startswith("nano"):
        return
    far = xr.Dataset({"t": ("x", np.array(["3000-01-01"], "M8[s]")), "n": ("x", [9])})
    with pytest.raises(InvalidError, match=r"variable 't' is stored as datetime64\[ns\], which cannot say these times"):
        nandarray.from_xarray(far, "o.nand", append_dim="x")
    with nandarray.open("o.nand") as store:
        assert len(store["t"]) == len(times)


def _refusal(call: Callable[[], Any]) -> str:
    """The text with which the call was refused; empty if it was done."""
    try:
        call()
    except InvalidError as error:
        return str(error)
    return ""


def append_in_parts(seed: int) -> bool:
    """Write any cuts along a dimension one after the other; return whether all of them fitted the first one."""
    draw = Draw(seed)
    draw.sizes = {"x": draw.rng.randint(3, 9), "y": 3, "z": 2}
    dataset, encodings = draw.dataset()
    dataset["along"] = ("x", np.arange(draw.sizes["x"]))
    dataset = dataset.drop_vars([name for name in dataset.data_vars if "x" not in dataset[name].dims])
    encodings = {name: wish for name, wish in encodings.items() if name in dataset and "dtype" not in wish}
    cuts = sorted({0, draw.sizes["x"], *(draw.rng.randint(1, draw.sizes["x"]) for _ in range(2))})
    parts = [dataset.isel(x=slice(low, high)) for low, high in zip(cuts, cuts[1:], strict=False)]
    store = f"{seed}.nand"
    nandarray.from_xarray(parts[0], store, encoding=encodings)
    for n, part in enumerate(parts[1:], 1):
        given = part.chunk(2) if draw.rng.random() < 0.5 else part
        refused = _refusal(lambda: nandarray.from_xarray(given, store, append_dim="x"))  # noqa: B023
        with nandarray.open(store) as there:
            assert len(there["along"]) == cuts[n if refused else n + 1], f"seed {seed}: {refused}"
        if refused:
            # Text that is longer than before, or values that the first part's encoding does not have.
            assert "variable 'v" in refused, f"seed {seed}: {refused}"
            return False
    # The coders round, for example nanoseconds in days: what is written at once is read in nearly the same way.
    with xr.open_dataset(store, engine="nandarray") as read:
        xr.testing.assert_allclose(read.load(), ours(dataset, encodings, None))
    return True


def test_parts_that_are_appended_are_the_whole_or_refused_as_a_whole() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = [append_in_parts(seed) for seed in range(1012, 1030)]
    assert 4 < sum(fitted) < len(fitted), f"{sum(fitted)} of {len(fitted)} were appended"  # noqa: PLR2004
