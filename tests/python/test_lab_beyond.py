"""The experiments beyond the paper: workloads on this machine's disk, and building blocks found by trying.

Only that they measure the right thing is tested: bytes, equality, arithmetic. No test looks at a time.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, note, settings

import nandarray
from nandarray import lab
from nandarray.errors import InvalidError
from nandarray_papers.experiments import assasin_beyond
from nandarray_papers.experiments.beyond_building_block import by_equations, shapes
from nandarray_papers.experiments.beyond_wall import ratios
from nandarray_papers.workloads import TABLE_1, Dataset, Fetch, Mismatch
from nandarray_papers.workloads.wall import PLACES, MemoryMap, make_cold


@pytest.mark.parametrize("kind", list(PLACES))
@settings(max_examples=12)
@given(data=st.data())
def test_places_give_the_fetch(kind: str, data: st.DataObject, tmp_path: Path) -> None:
    shape = data.draw(st.one_of(*[st.tuples(*[st.integers(1, 20)] * ndim) for ndim in (2, 3)]))
    sub = data.draw(st.tuples(*[st.integers(1, n) for n in shape]))
    fetch = Fetch(data.draw(st.tuples(*[st.integers(0, (n - 1) // s) for n, s in zip(shape, sub, strict=True)])), sub)
    note(f"{shape} {fetch}")
    array = np.random.default_rng(0).random(shape)
    place = PLACES[kind](tmp_path, Dataset("x", shape))
    shutil.rmtree(place.path, ignore_errors=True)
    place.write(array)
    place.open()
    out = np.zeros(fetch.count(shape))
    place.read(fetch, out)
    place.close()
    place.close()
    np.testing.assert_array_equal(out, array[fetch.box(shape)])


def test_large_fetches_are_read_by_threads(tmp_path: Path) -> None:
    array = np.random.default_rng(0).random((1000, 700))
    PLACES["pread"](tmp_path, Dataset("x", array.shape)).write(array)
    place = PLACES["pread"](tmp_path, Dataset("x", array.shape))
    place.open()
    for fetch in (Fetch((1, 0), (400, 700)), Fetch((0, 1), (1000, 300)), Fetch((0, 0), (999, 699))):
        out = np.zeros(fetch.count(array.shape))
        assert out.nbytes > 1 << 20
        place.read(fetch, out)
        np.testing.assert_array_equal(out, array[fetch.box(array.shape)])
    place.close()


def test_cold_files_are_whole(tmp_path: Path) -> None:
    array = np.random.default_rng(0).random((50, 50))
    place = MemoryMap(tmp_path, Dataset("x", array.shape))
    place.write(array)
    make_cold(place.path)
    make_cold(tmp_path)
    np.testing.assert_array_equal(np.fromfile(place.path).reshape(50, 50), array)


def test_workloads_on_this_machine(tmp_path: Path) -> None:
    names = ["BFS", "GEMM", "TTV"]
    parameters = {"workloads": names, "side": 48, "cube": 16, "folder": str(tmp_path / "data")}
    done = lab.run("beyond.wall", profile="small", runs=tmp_path / "runs", parameters=parameters)
    rows = done.table("fetches")
    assert len(rows) == len(names) * len(PLACES)
    assert rows["results_equal"].all()
    assert set(rows.groupby("workload")["bytes"].nunique()) == {1}
    assert rows["kernel_s"].min() > 0
    table = done.table("ratios")
    assert list(table["workload"].unique()) == [*names, "geometric mean"]
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*.whole")}
    assert len(written) == 12  # three kinds of files of four operands
    lab.run("beyond.wall", profile="small", runs=tmp_path / "again", parameters={**parameters, "workloads": ["TTV"]})
    assert written == {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*.whole")}, "found again"


def test_a_place_with_wrong_bytes_is_found(tmp_path: Path) -> None:
    from nandarray_papers.experiments.beyond_wall import measure

    workload = TABLE_1["TTV"].at((16, 16, 16))
    measure(workload, ["nandarray", "memmap"], tmp_path)
    raw = next(tmp_path.rglob("data.raw"))
    data = np.fromfile(raw)
    data[100] += 1
    data.tofile(raw)
    with pytest.raises(Mismatch, match="from memmap: TTV y: off by"):
        measure(workload, ["nandarray", "memmap"], tmp_path)


def test_ratios_by_hand() -> None:
    rows = [
        {"workload": "A", "place": "nandarray", "warm_s": 1.0, "cold_s": 2.0},
        {"workload": "A", "place": "zarr", "warm_s": 4.0, "cold_s": 2.0},
        {"workload": "B", "place": "nandarray", "warm_s": 1.0, "cold_s": 1.0},
        {"workload": "B", "place": "zarr", "warm_s": 1.0, "cold_s": 4.0},
    ]
    assert [(r["workload"], r["warm"], r["cold"]) for r in ratios(rows)] == [
        ("A", 4.0, 1.0),
        ("B", 1.0, 4.0),
        ("geometric mean", pytest.approx(2.0), pytest.approx(2.0)),
    ]
    assert ratios(rows[1:2]) == [], "without the store there is nothing to divide by"


def test_equations_of_the_paper() -> None:
    """Section 4.1: 8 channels of 4 KB pages and 4-byte elements give 64 KB, 128 elements along each dimension."""
    assert by_equations({"page_bytes": 4096, "channels": 8, "banks": 8}, 2, 4) == (128, 128)
    prototype = {"page_bytes": 4096, "channels": 32, "banks": 8}
    assert by_equations(prototype, 1, 8) == (16384,)
    assert by_equations(prototype, 2, 8) == (128, 128)
    assert by_equations(prototype, 3, 8) == (64, 64, 64)
    assert by_equations(prototype, 4, 8) == (1, 64, 64, 64)


def test_shapes_are_within_bounds() -> None:
    found = list(shapes(3, 64, 4096, 32, 4))
    assert len(set(found)) == len(found) > 10
    assert all(64 <= math.prod(s) <= 4096 and max(s) <= 32 and max(s) <= 4 * min(s) for s in found)


def test_building_blocks_found_by_trying(tmp_path: Path) -> None:
    done = lab.run("beyond.building-block", profile="small", runs=tmp_path)
    blocks, fetches = done.table("blocks"), done.table("fetches")
    assert set(blocks["dimensions"]) == {2, 3}
    for _, mine in blocks.groupby("dimensions"):
        assert mine["of_best"].max() == 1.0
        assert {"equations", "engine"} <= {word for by in mine["chosen_by"] for word in by.split(" and ")}
    assert (fetches["flash_bytes_a_byte"] > 0).any()
    whole = fetches[fetches["fetch"] == "sub-block of 64"]
    assert (whole["GBps"] > 0).all()


def test_a_design_whose_buffers_are_too_small_is_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(device: nandarray.device.Description, *_: object, **__: object) -> dict[str, float]:
        if device.resolved["compute"]["read_ahead"] < 4:
            raise InvalidError("its stream buffer holds 2 pages")
        return {"GBps": 2.0}

    monkeypatch.setattr(assasin_beyond, "measure", measure)
    monkeypatch.setattr(assasin_beyond, "_work", lambda *_: None)
    small, large = (assasin_beyond.run_design((2, pages, 4, 1.0), 0.1, 0) for pages in (1, 2))
    assert small["GBps"] is None
    assert small["scan_GBps"] is None
    assert small["reason"] == "its stream buffer holds 2 pages"
    assert (large["GBps"], large["reason"]) == (pytest.approx(2.0), "")
    assert small["area_mm2"] < large["area_mm2"]
