"""BaM's graphs, recordings and tables beside slow algorithms on plain lists, and platforms beside their file."""

from __future__ import annotations

import itertools
import math
import tomllib
from collections import Counter, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nandarray import device
from nandarray.errors import DescriptionError, InvalidError, NotFoundError
from nandarray.model.fetch import Accesses, fetches
from nandarray_papers import bam
from nandarray_papers.bam import inputs, recording
from nandarray_papers.experiments import bam_analytics, bam_graph, bam_scaling

MAKERS = {"rmat": bam.rmat, "uniform": bam.uniform}


def neighbours(words: np.ndarray) -> list[list[int]]:
    """A graph's words as lists."""
    vertices = int(words[0])
    first, rest = words[2 : vertices + 3].astype(int), words[vertices + 3 :].astype(int)
    return [rest[a:b].tolist() for a, b in itertools.pairwise(first)]


# --- inputs -----------------------------------------------------------------------------------------------------------


@given(st.sampled_from(list(MAKERS)), st.integers(0, 6), st.integers(0, 5), st.integers(0, 99))
def test_a_graph_is_rows_of_neighbours_both_ways(kind: str, scale: int, degree: int, seed: int) -> None:
    words = MAKERS[kind](scale, degree, seed)
    lists = neighbours(words)
    assert words.dtype == np.uint64
    assert len(lists) == int(words[0]) == 1 << scale
    assert sum(map(len, lists)) == int(words[1]) == 2 * (degree << scale)
    assert len(words) == 2 + (1 << scale) + 1 + int(words[1])
    edges = Counter((v, u) for v, row in enumerate(lists) for u in row)
    assert edges == Counter((u, v) for v, u in edges.elements()), "each edge leads both ways as often"
    assert all(row == sorted(row) for row in lists)
    assert (words == MAKERS[kind](scale, degree, seed)).all()


def test_few_vertices_of_a_kronecker_graph_have_most_edges() -> None:
    shares = {}
    for kind, make in MAKERS.items():
        degrees = sorted(map(len, neighbours(make(10, 16, 4))), reverse=True)
        shares[kind] = sum(degrees[: len(degrees) // 10]) / sum(degrees)
    assert shares["uniform"] < 0.2 < 0.4 < shares["rmat"]


@given(st.integers(0, 400), st.integers(0, 99))
def test_rides_have_six_columns_within_their_prices(rows: int, seed: int) -> None:
    table = inputs.taxi(rows, seed)
    assert table.shape == (6, rows)
    assert table.dtype == np.float64
    assert (table >= 0).all()
    assert (table[1:] <= np.array([[40.0], [5.0], [2.5], [12.0], [4.0]])).all()
    assert (table == inputs.taxi(rows, seed)).all()


@given(st.integers(0, 300), st.integers(1, 1 << 20), st.booleans())
def test_bulk_requests_lie_one_behind_the_other(requests: int, size: int, write: bool) -> None:
    made = bam.bulk(requests, size, write=write)
    assert made.rows.tolist() == [[0, n, 0, 2 if write else 0, n, 0] for n in range(requests)]
    assert made.addresses.tolist() == [n * size for n in range(requests)]
    assert made.bytes.tolist() == [size] * requests
    assert made.counts == {"elements": requests}


@given(st.integers(1, 200_000), st.integers(1, 6))
def test_tiles_load_two_vectors_and_write_the_third_two_phases_later(elements: int, tiles: int) -> None:
    made = bam_analytics.tiles_of(elements, tiles)
    chunk = bam_analytics._CHUNK
    chunks = math.ceil(math.ceil(elements * 8 / chunk) / tiles)
    loads, writes = (made.rows[made.rows[:, 3] == kind] for kind in (0, 2))
    assert len(loads) == 2 * len(writes) == 2 * tiles * chunks
    assert made.addresses.tolist() == sorted(set(made.addresses.tolist()), key=made.addresses.tolist().index)
    assert set(made.bytes.tolist()) <= {chunk}
    for kind, rows, delay in ((0, loads, 0), (2, writes, 2)):
        places = [int(made.addresses[row[4]]) // chunk for row in rows]
        for row, place in zip(rows, places, strict=True):
            vector, tile = divmod(place // chunks, tiles)
            assert (vector == 2) == (kind == 2)
            assert int(row[0]) == tile + delay
    keys = [tuple(row[:2]) for row in made.rows.tolist()]
    assert keys == sorted(set(keys)), "a task each, in the order of phases"


# --- recordings -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("recorder")
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("seed", range(2))
def test_a_search_reads_the_rows_of_each_level_once(kind: str, seed: int) -> None:
    words = MAKERS[kind](6, 3, seed)
    lists = neighbours(words)
    level = {0: 0}
    waiting = deque([0])
    while waiting:
        v = waiting.popleft()
        for u in lists[v]:
            if u not in level:
                level[u] = level[v] + 1
                waiting.append(u)
    read = sum(len(lists[v]) for v in level)
    for step in ("none", "naive", "optimised"):
        counts = bam.record("bfs", step, words, lines=512, warps=4).counts
        assert counts["elements"] == read, (kind, seed, step)
        assert counts["phases"] in (max(level.values()), max(level.values()) + 1)


@pytest.mark.usefixtures("recorder")
@pytest.mark.parametrize(("what", "how"), [("cc", "optimised"), ("random", "read"), ("random", "write")])
def test_accesses_of_a_recording_name_fetches_that_are_there(what: str, how: str) -> None:
    words: list[Any] = [bam.uniform(6, 4, 1)] if what == "cc" else [500, 3]
    made = bam.record(what, how, *words, warps=4, lines=512 if what == "cc" else 0)
    assert made.rows.dtype == made.bytes.dtype == np.uint32
    assert made.addresses.dtype == np.uint64
    assert len(made.addresses) == len(made.bytes)
    kinds = set(made.rows[:, 3].tolist())
    assert kinds <= {0, 1, 2}
    assert made.rows[:, 4].max() < len(made.addresses)
    reads = {int(row[4]) for row in made.rows if row[3] == 0}
    assert len(reads) == made.counts["reads"]
    if what == "random":
        assert kinds == {0 if how == "read" else 2}
        assert set(made.bytes.tolist()) == {512}
    assert made.rows[:, 5].sum() == made.counts["atomics"] or what == "random"


@pytest.mark.usefixtures("recorder")
def test_a_recorder_that_does_not_compile_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(recording, "_FLAGS", (*recording._FLAGS, "-DND_BROKEN", "--no-such-flag-of-a-compiler"))
    monkeypatch.setattr(recording.tempfile, "gettempdir", lambda: str(tmp_path))
    with pytest.raises(InvalidError, match="the recorder does not compile: "):
        bam.record("random", "read", 1, 1)
    assert not list(tmp_path.glob("nandarray-record-*"))


def test_a_machine_without_a_compiler_is_told_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording.shutil, "which", lambda _name: None)
    monkeypatch.setattr(recording.util, "find_spec", lambda _name: None)
    with pytest.raises(NotFoundError, match=r"install g\+\+ or clang\+\+, or `pip install ziglang`"):
        recording.compiler()
    monkeypatch.setenv("CXX", "mine++")
    monkeypatch.setattr(recording.shutil, "which", lambda name: f"/bin/{name}" if name == "mine++" else None)
    assert recording.compiler() == ["/bin/mine++"]


# --- platforms --------------------------------------------------------------------------------------------------------


def test_a_path_has_the_gpus_values_and_its_own_over_them() -> None:
    said = tomllib.loads((Path(bam.__file__).parent / "platform.toml").read_text())
    for path in ("gpu", "gds", "cpu"):
        found = bam.platform(path)
        assert set(found) == set(said["gpu"])
        for name, value in found.items():
            assert value == said[path].get(name, said["gpu"][name])["value"], (path, name)
            assert set(said[path].get(name, said["gpu"][name])) == {"value", "source"}
        assert bam.platform(path, queue_depth=3) == found | {"queue_depth": 3}
        unproven = [name for name in found if said[path].get(name, said["gpu"][name])["source"].split(":")[0]
                    in ("assumed", "calibrated", "input")]  # fmt: skip
        assert [one.partition(" = ")[0] for one in bam.assumptions(path)] == unproven
    with pytest.raises(NotFoundError, match="no path 'tpu'; there are gpu, gds, cpu"):
        bam.platform("tpu")


@pytest.mark.parametrize("name", ["optane-p5800x", *device.names()])
def test_a_drive_is_a_small_part_of_any_preset_and_costs_its_host_no_time(name: str) -> None:
    one = bam.drive(name)
    assert {str(one[key]) for key in ("host.t_submit", "host.t_complete")} <= {"0 s", "0 us", "0 ns"}
    assert one["host.queues"] >= 64
    assert bam.drive(name, link__rate="PCIe 3 x1")["link.rate"] == "PCIe 3 x1"
    if name in device.names():
        assert (one["geometry.blocks"], one["geometry.pages"]) in ((32, 64), (64, 48))
        assert one.effective["user_bytes"] <= device.load(name).effective["user_bytes"] * 4
        assert one["nand.t_read"] == device.load(name)["nand.t_read"]
    with pytest.raises(DescriptionError, match=r"geometry\.channels = 0 is out of range"):
        bam.drive(name, geometry__channels=0)


@given(
    st.lists(st.tuples(st.integers(0, 15), st.sampled_from([512, 4096])), min_size=1, max_size=20), st.integers(1, 3)
)
def test_every_request_goes_to_the_drive_of_its_stripe(asked: list[tuple[int, int]], drives: int) -> None:
    number = np.arange(len(asked), dtype=np.uint32)
    zero = np.zeros_like(number)
    rows = np.stack([zero, number, zero, zero, number, zero], axis=1)
    addresses = np.array([place * 4096 for place, _ in asked], np.uint64)
    sizes = np.array([size for _, size in asked], np.uint32)
    platform = bam.platform(stripe_bytes=4096)
    found = fetches([bam.drive("tiny")] * drives, platform, Accesses(rows, addresses, sizes, {}))
    wanted = Counter(place % drives for place, _ in asked)
    assert found["by_device"] == [wanted[n] for n in range(drives)]
    assert (found["reads"], found["bytes_read"]) == (len(asked), int(sizes.sum()))
    assert found["seconds"] > 0


# --- ratios of runs ---------------------------------------------------------------------------------------------------


def row(kind: str, algorithm: str, scale: int, step: str, drives: int, **more: Any) -> dict[str, Any]:
    edges = 1 << scale
    return {
        "graph": kind, "algorithm": algorithm, "scale": scale, "step": step, "drives": drives, "elements": edges,
        "edge_bytes": 8 * edges, "seconds": 3.0 * edges + 7, "target_seconds": 1.5 * edges + 1, **more,
    }  # fmt: skip


def test_seconds_of_large_graphs_are_a_slope_times_their_edges() -> None:
    rows = [
        row(kind, algorithm, scale, "optimised", drives)
        for kind in MAKERS for algorithm in ("bfs", "cc") for scale in (4, 6) for drives in (1, 4)
    ]  # fmt: skip
    table = bam_graph._five(rows, [4, 6], [1, 4])
    assert len(table) == len(bam_graph.FIVE) * 2 * 2
    for one in table:
        edges = bam_graph.FIVE[one["graph"]][0] * 1e9
        assert one["passes"] == 1
        assert one["seconds"] == pytest.approx(3.0 * edges)
        assert one["target_seconds"] == pytest.approx(1.5 * edges)
    assert bam_graph._five([one for one in rows if one["graph"] == "rmat"], [4, 6], [1])[-1]["graph"] == "uk-2007-05"
    twice = [one | {"elements": 2 * one["elements"]} for one in rows]
    assert {one["passes"] for one in bam_graph._five(twice, [4, 6], [1, 4])} == {2}


def test_means_over_graphs_are_of_ratios() -> None:
    rows = [row("rmat", "bfs", 4, "none", 1, seconds=8.0), row("rmat", "bfs", 4, "naive", 1, seconds=2.0)]
    rows += [row("uniform", "bfs", 4, "none", 1, seconds=3.0), row("uniform", "bfs", 4, "naive", 1, seconds=1.5)]
    assert bam_graph._mean(rows, "bfs", {"step": "none"}, {"step": "naive"}, "seconds") == 3.0
    assert bam_graph._of(rows, graph="rmat", step="none") == rows[:1]


def test_scaling_is_linear_as_long_as_the_link_is_not_full() -> None:
    rows = [
        {"direction": "read", "drives": n, "GBps": rate, "link_busy": busy}
        for n, rate, busy in ((1, 4.0, 0.1), (2, 7.6, 0.3), (4, 14.0, 0.89), (8, 16.0, 0.99))
    ]
    rows.append({"direction": "write", "drives": 1, "GBps": 1.0, "link_busy": 0.0})
    assert bam_scaling._linear(rows, "read") == pytest.approx(14 / 4 / 4)
    assert bam_scaling._linear(rows, "write") == 1.0
