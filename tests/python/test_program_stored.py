"""Programs over elements that lie in memory otherwise than they are computed with: short floats, big-endian numbers,
conversions before a program, dates with NaT.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import doors
import numpy as np
import pytest

import nandarray
from nandarray import CompileError, InvalidError, dtypes

numba = pytest.importorskip("numba")
ml_dtypes = pytest.importorskip("ml_dtypes")
bfloat16, float8_e4m3fn = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn

FORMS = ("interpreted", "native")
SHORT = [
    "float16", ">f2", "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn",
    "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
]  # fmt: skip
SWAPPED = [">i2", ">i4", ">i8", ">u2", ">u4", ">u8", ">f4", ">f8", ">c8", ">c16"]


def numbers(dtype: np.dtype[Any]) -> Any:
    """Float64 between, at and beyond the values of a short float, with ties, and NaN."""
    rng = np.random.default_rng(5)
    bits = np.arange(256, dtype="u1") if dtype.itemsize == 1 else rng.integers(0, 1 << 16, 300, "u2")
    ends = bits.view(dtype.newbyteorder("=")).astype("f8")
    ends = np.sort(ends[np.isfinite(ends)])
    between = np.concatenate([(ends[1:] + ends[:-1]) / 2, ends * (1 + 1e-12), ends * 1.001, ends * 2.0])
    return np.concatenate([ends, between, [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e-30]])


def same(found: Any, right: Any) -> None:
    """Compare short floats: their bits, or that both are NaN."""
    assert found.dtype == right.dtype
    wide, wanted = found.astype("f4"), right.astype("f4")
    np.testing.assert_array_equal(wide, wanted)
    zeros = wanted == 0
    np.testing.assert_array_equal(np.signbit(wide[zeros]), np.signbit(wanted[zeros]))


@pytest.mark.parametrize("name", SHORT)
def test_short_floats_are_read_and_rounded_as_numpy_does(store: Any, name: str) -> None:
    dtype = dtypes.check(name)
    bits = np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    x = (bits.byteswap() if not dtype.isnative else bits).view(dtype)
    wide = numbers(dtype)
    with np.errstate(all="ignore"):
        single = wide.astype("f4")
        rounded, once = single.astype(dtype), wide.astype(dtype)
    store["x"], store["single"], store["double"] = x, single, wide
    assert store["x"].dtype == dtype
    for form in FORMS:
        options: dict[str, Any] = {"form": form, "trusted": True}
        np.testing.assert_array_equal(store["x"].map_blocks(lambda v: v, **options), x.astype("f4"))
        same(store["single"].map_blocks(lambda v: v, dtype=dtype, **options), rounded)
        same(store["double"].map_blocks(lambda v: v, dtype=dtype, **options), once)
    kept = store["x"].filter(lambda v: v > 1)
    assert kept.tobytes() == x[x.astype("f4") > 1].tobytes()


def test_short_floats_in_every_form_of_program(store: Any) -> None:
    x = np.arange(24, dtype="f4").reshape(4, 6).astype(ml_dtypes.bfloat16)
    store["x"] = x

    def doubled(v: Any, out: Any) -> None:
        for i in range(v.shape[0]):
            for j in range(v.shape[1]):
                out[i, j] = v[i, j] * 2

    @nandarray.program
    def backwards(x: nandarray.Block[bfloat16], out: nandarray.Out[float8_e4m3fn]):
        for i, one in enumerate(x):
            out[len(x) - 1 - i] = one / 2

    @nandarray.program
    def tripled(x: nandarray.Stream[bfloat16], out: nandarray.OutStream[bfloat16]):
        for one in x:
            out.store(3 * one)

    found = store["x"].map_blocks(doubled, block=(3, 4))
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, x * 2)
    halves = (np.arange(24)[::-1] / 2).astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(store["x"].offload(backwards).reshape(-1), halves)
    np.testing.assert_array_equal(store["x"].offload(tripled).reshape(-1), (np.arange(24.0) * 3).astype(x.dtype))
    assert store["x"].reduce("sum") == 276
    assert store["x"].reduce("max") == 23
    assert store["x"].reduce("max").dtype == x.dtype
    np.testing.assert_array_equal(store["x"].reduce("min", axis=1), x.min(axis=1))
    np.testing.assert_array_equal(store["x"].reduce(lambda a, b: a + b, axis=0), x.astype("f4").sum(axis=0))
    out = store["x"].map_blocks(lambda v, by: v + by, by=0.5, dtype="bfloat16", out="out")
    assert out.dtype == x.dtype
    np.testing.assert_array_equal(out[:], (x.astype("f4") + 0.5).astype(x.dtype))
    with pytest.raises(InvalidError, match="bfloat16 is not computed with by programs in Python"):
        nandarray.program.reduce(inputs="bfloat16", state="bfloat16[2]")(
            type("C", (), {"step": lambda state, x: None, "merge": lambda state, other: None})
        )


@pytest.mark.parametrize("name", SWAPPED)
def test_big_endian_elements(store: Any, name: str) -> None:
    rng, dtype = np.random.default_rng(3), np.dtype(name)
    x = rng.integers(0, 200, (6, 8)).astype(dtype)
    store["x"] = x
    for form in FORMS:
        options: dict[str, Any] = {"form": form, "trusted": True}
        found = store["x"].map_blocks(lambda v: v + 1, **options)
        assert found.dtype.isnative
        np.testing.assert_array_equal(found, x + 1)
        swapped = store["x"].map_blocks(lambda v: v + 1, dtype=dtype, **options)
        assert swapped.tobytes() == (x + 1).astype(dtype).tobytes()
        np.testing.assert_array_equal(store["x"].reduce(lambda a, b: a + b, axis=1, **options), x.sum(axis=1))
    np.testing.assert_array_equal(store["x"].reduce("sum"), x.sum())
    if dtype.kind != "c":
        kept = store["x"].filter(lambda v: v > 50)
        assert kept.tobytes() == x[x > 50].tobytes()
        assert kept.dtype == dtype
        assert store["x"].reduce("max") == x.max()


def test_elements_are_converted_before_a_program(store: Any) -> None:
    x = np.array([[300, -1, 7], [2**40, 5, 9]])
    store["x"] = x
    store["r"] = np.array([(1, 2.5), (3, -4)], [("a", "i4"), ("b", "f8")])
    halves = store["x"].astype("f2")
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(store["x"].astype("u1").map_blocks(lambda v: v + 1), x.astype("u1") + 1)
        np.testing.assert_array_equal(halves.map_blocks(lambda v: v), x.astype("f2").astype("f4"))
    assert store["x"].astype("f8").reduce("mean", key=np.s_[:, 1:]) == x[:, 1:].mean()
    np.testing.assert_array_equal(store["x"].astype("?").reduce("sum", axis=0), [2, 2, 2])
    np.testing.assert_array_equal(store["x"].astype("f4").filter(lambda v: v < 8), [-1, 7, 5])
    made = store["x"].astype("c16").map_blocks(lambda v: v * 1j, out="made")
    np.testing.assert_array_equal(made[:], x * 1j)
    with pytest.raises(InvalidError, match="no program converts complex128 to float64"):
        made.astype("f8").map_blocks(lambda v: v)
    with pytest.raises(InvalidError, match="convert float64 in the function"):
        store["x"].astype("f8").map_blocks(lambda v, out: None, block=(1, 2))
    with pytest.raises(InvalidError, match="cannot go into a field or a conversion"):
        nandarray.offload(nandarray.programs.get("sum", dtype="int64"), [store["x"]], out=store["x"].astype("i8"))


@pytest.mark.parametrize("order", ["<", ">"])
def test_reductions_of_dates_and_durations_know_nat(store: Any, order: str) -> None:
    dates = np.array([["2020-01-01", "2024-06-01"], ["NaT", "1950-01-01"]], f"{order}M8[s]")
    spans = np.array([[5, 8, 3], [-2, 11, 0]], f"{order}m8[ms]")
    store["dates"], store["spans"] = dates, spans
    store["gap"] = np.where(spans == np.timedelta64(11, "ms"), np.timedelta64("NaT", "ms"), spans).astype(spans.dtype)
    for name in ("min", "max"):
        for array, model in ((store["dates"], dates), (store["spans"], spans), (store["gap"], store["gap"][:])):
            for key in (..., np.s_[:1], np.s_[:, 1:]):
                found, right = array.reduce(name, key=key), getattr(np, name)(model[key])
                assert found.dtype == right.dtype
                np.testing.assert_array_equal(found, right)
            np.testing.assert_array_equal(array.reduce(name, axis=0), getattr(np, name)(model, axis=0))
    for name in ("sum", "mean"):
        for array in (store["spans"], store["gap"]):
            np.testing.assert_array_equal(array.reduce(name), getattr(np, name)(array[:]))
            np.testing.assert_array_equal(array.reduce(name, axis=1), getattr(np, name)(array[:], axis=1))
    with pytest.raises(InvalidError, match=r"sum of .M8\[s\]|sum of datetime64"):
        store["dates"].reduce("sum")
    assert store["spans"].reduce("sum", key=np.s_[:0]) == np.timedelta64(0, "ms")


def test_what_has_no_numbers_is_refused(store: Any) -> None:
    store["x"] = np.ones(4, ml_dtypes.float8_e8m0fnu)
    store["r"] = np.zeros(4, [("a", ">i4"), ("h", "f2")])
    with pytest.raises(InvalidError, match="float8_e8m0fnu is not computed with"):
        store["x"].map_blocks(lambda v: v)
    with pytest.raises((InvalidError, CompileError)):
        store["r"].map_blocks(lambda v: v["a"])
    np.testing.assert_array_equal(store["r"]["a"].map_blocks(lambda v: v + 1), [1, 1, 1, 1])
    np.testing.assert_array_equal(store["r"]["h"].map_blocks(lambda v: v + 1), [1, 1, 1, 1])


@pytest.fixture(params=doors.COMPUTING)
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with doors.opened(request.param, tmp_path / "s.nand") as opened:
        yield opened


def test_each_door_takes_and_converts_such_elements(door: Any) -> None:
    x, dates = np.arange(40).reshape(5, 8), np.array(["2020-01-01", "NaT", "1999-01-01"], "M8[D]")
    for name, dtype in (("short", bfloat16), ("swapped", np.dtype(">i4"))):
        door.create(name, data=x.astype(dtype))
        assert door[name].dtype == dtype
        np.testing.assert_array_equal(door[name].map_blocks(lambda v: v + 1), x + 1)
        np.testing.assert_array_equal(door[name].astype("f8").reduce("mean"), x.mean())
        assert door[name].reduce("max") == 39
    door.create("dates", data=dates)
    assert np.isnat(door["dates"].reduce("max"))
    assert door["dates"].reduce("min", key=np.s_[::2]) == dates[2]
