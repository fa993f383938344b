"""Fetches of the NDS experiments beside naive references: addresses one by one, a pipeline event by event."""

from __future__ import annotations

import itertools
import math
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nandarray
from nandarray_papers.experiments import beyond_building_block, nds_fig2, nds_fig9, nds_fig10
from nandarray_papers.experiments.beyond_wall import ratios
from nandarray_papers.nds import calibration
from nandarray_papers.nds.fetching import _runs, copy_seconds, plans, shapes, units
from nandarray_papers.nds.pipeline import Ran, pipelined
from nandarray_papers.nds.systems import Baseline, Moved, Oracle, volume
from nandarray_papers.workloads import RTX_2080, TABLE_1, Cost, Dataset, Fetch
from nandarray_papers.workloads._stencil import Sweep
from nandarray_papers.workloads.wall import PLACES, _pieces

Box = tuple[slice, ...]


@st.composite
def boxes(draw: st.DrawFn, side: int = 9, dims: int = 3) -> tuple[tuple[int, ...], Box]:
    """A shape, and a box in it with an element at least."""
    shape = draw(st.lists(st.integers(1, side), min_size=1, max_size=dims).map(tuple))
    box = []
    for n in shape:
        start = draw(st.integers(0, n - 1))
        box.append(slice(start, draw(st.integers(start + 1, n))))
    return shape, tuple(box)


def places(shape: tuple[int, ...], box: Box) -> list[int]:
    """Numbers of a box's elements in a row-major array, in order."""
    return np.arange(math.prod(shape)).reshape(shape)[box].reshape(-1).tolist()


def runs_of(numbers: list[int]) -> list[tuple[int, int]]:
    """Contiguous runs of sorted numbers: first, and one behind the last."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return runs


# --- plans ------------------------------------------------------------------------------------------------------------


@given(boxes())
def test_runs_are_counted_as_elements_lie(drawn: tuple[tuple[int, ...], Box]) -> None:
    shape, box = drawn
    merged = runs_of(places(shape, box))
    # A program asks for rows, even where two of a whole array's parts happen to touch.
    assert _runs(box, shape) >= len(merged)
    if any(s.stop - s.start < n for s, n in zip(box[1:], shape[1:], strict=True)):
        inner = max(i for i, (s, n) in enumerate(zip(box, shape, strict=True)) if s.stop - s.start < n)
        assert _runs(box, shape) == math.prod(s.stop - s.start for s in box[:inner])
    else:
        assert _runs(box, shape) == 1 == len(merged)


@given(boxes())
def test_a_plan_holds_the_box_and_the_next_one_is_wider(drawn: tuple[tuple[int, ...], Box]) -> None:
    shape, box = drawn
    found = plans(box, shape)
    assert found[0] == ("runs", box)
    held = [set(places(shape, wide)) for _, wide in found]
    for one, other in itertools.pairwise(held):
        assert one < other
    runs = [_runs(wide, shape) for _, wide in found]
    assert runs == sorted(runs, reverse=True)
    assert runs[-1] == 1
    # The widest is from the first row of the box to its last, whole.
    rows = math.prod(shape[1:])
    assert held[-1] == set(range(box[0].start * rows, box[0].stop * rows))


@given(boxes(), st.integers(1, 40))
def test_units_are_the_least_box_whose_runs_are_whole_units(drawn: tuple[tuple[int, ...], Box], unit: int) -> None:
    shape, box = drawn
    wide = units(box, shape, unit)
    assert set(places(shape, box)) <= set(places(shape, wide))
    for s, n in zip(wide, shape, strict=True):
        assert 0 <= s.start < s.stop <= n
    assert units(wide, shape, unit) == wide
    if shape[-1] % unit == 0:
        wanted = slice(box[-1].start // unit * unit, -(-box[-1].stop // unit) * unit)
        assert wide == (*box[:-1], wanted)
    elif unit % math.prod(shape[1:]) == 0:
        assert [(s.start, s.stop) for s in wide[1:]] == [(0, n) for n in shape[1:]]
    # A run has a unit at least, unless the array ends there.
    inner = max((i for i, (s, n) in enumerate(zip(wide, shape, strict=True)) if s != slice(0, n)), default=0)
    run = math.prod(s.stop - s.start for s in wide[inner:])
    assert run >= unit or wide[inner].stop == shape[inner]
    if unit == 1:
        assert wide == box


@given(boxes(side=6, dims=3), st.sampled_from([512, 1024, 1536]), st.sampled_from([64, 256, 512]), st.booleans())
@settings(max_examples=25)
def test_a_baseline_requests_what_a_loop_over_runs_does(
    drawn: tuple[tuple[int, ...], Box], most: int, item: int, write: bool
) -> None:
    shape, box = drawn
    requests = []
    for first, last in runs_of(places(shape, box)):
        # Runs that touch are one here only where inner dimensions are whole.
        requests.append((first * item // 512 * 512, -(-last * item // 512) * 512))
    if _runs(box, shape) != len(requests):
        return
    pieces = [min(most, end - at) for begin, end in requests for at in range(begin, end, most)]
    asked = nandarray.Boxes(shape=shape, itemsize=item, boxes=[box, box], write=write, depth=3, request_max=most)
    run = nandarray.replay(asked, device="tiny", precondition="empty" if write else "full")
    op = run["write" if write else "read"]
    assert (op["requests"], op["bytes"]) == (2 * len(pieces), 2 * sum(pieces))
    assert run["all"]["requests"] == op["requests"]


def test_turning_shape_and_boxes_is_the_other_order() -> None:
    device = calibration.device()
    box = (slice(3, 40), slice(8, 200))
    turned = Baseline(device, (64, 256), 8, order="F").read([box])
    straight = Baseline(device, (256, 64), 8).read([box[::-1]])
    assert turned.report["hash"] == straight.report["hash"]
    assert turned.bytes == volume([box]) * 8 == 37 * 192 * 8
    assert turned.GBps == turned.bytes / turned.seconds / 1e9


def test_an_oracle_reads_pieces_one_behind_the_other() -> None:
    device = calibration.device()
    sizes = [4096, 512, 2 << 20, 100]
    moved = Oracle(device).read(sizes)
    ends = np.cumsum(sizes)
    begins = ends - sizes
    sectors = sum(-(-int(end) // 512) - int(begin) // 512 for begin, end in zip(begins, ends, strict=True))
    assert moved.bytes == sum(sizes)
    assert moved.report["read"]["bytes"] == 512 * sectors
    assert Moved(10**9, 0.5).GBps == 2.0


@pytest.mark.parametrize("name", TABLE_1)
def test_each_shape_of_fetch_has_its_first_fetches(name: str) -> None:
    paper = TABLE_1[name]
    one = paper.at([max(1, n // 97) for n in paper.shape])
    fetches = list(one.fetches())
    for samples in (1, 3):
        found = shapes(one, samples)
        assert set(found) == {(fetch.sub_shape, fetch.count(one.view)) for fetch in fetches}
        for kind, some in found.items():
            own = [fetch for fetch in fetches if (fetch.sub_shape, fetch.count(one.view)) == kind]
            first = list(dict.fromkeys(fetch.coordinate for fetch in own if fetch.operand == 0))
            coordinates = [fetch.coordinate for fetch in some]
            assert coordinates == (first[:samples] if first else [own[0].coordinate])


@given(st.integers(0, 10**6), st.integers(0, 10**12))
def test_a_copy_costs_its_runs_and_its_bytes(runs: int, nbytes: int) -> None:
    device = calibration.device(changes={"host.t_copy_run": "100 ns", "host.copy_rate": "5 GB/s"})
    assert copy_seconds(device, runs, nbytes) == pytest.approx(runs * 100e-9 + nbytes / 5e9, rel=1e-12)


# --- pipelines --------------------------------------------------------------------------------------------------------


def simulated(items: list[tuple[int, ...]], buffers: int) -> Ran:
    """The same pipeline in ticks: each stage works, waits for room behind it, or waits for an item."""
    stages = len(items[0])
    rooms: list[deque[int]] = [deque() for _ in range(stages)]
    rooms[0].extend(range(len(items)))
    working: list[tuple[int, int] | None] = [None] * stages
    done, time, idle_from, idle = 0, 0, 0, 0
    while done < len(items):
        moved = True
        while moved:  # at one time, from the last stage to the first, until nothing moves
            moved = False
            for s in reversed(range(stages)):
                job = working[s]
                if job is not None and job[1] <= time and (s == stages - 1 or len(rooms[s + 1]) < buffers):
                    working[s], moved = None, True
                    if s == stages - 1:
                        done, idle_from = done + 1, time
                    else:
                        rooms[s + 1].append(job[0])
                if working[s] is None and rooms[s]:
                    item = rooms[s].popleft()
                    working[s], moved = (item, time + items[item][s]), True
                    idle += time - idle_from if s == stages - 1 else 0
        time += 1
    return Ran(float(idle_from), tuple(float(sum(item[s] for item in items)) for s in range(stages)), float(idle))


@given(
    st.integers(1, 4).flatmap(lambda n: st.lists(st.tuples(*[st.integers(0, 6)] * n), min_size=1, max_size=12)),
    st.integers(1, 4),
)
def test_a_pipeline_takes_the_time_of_a_simulation_by_ticks(items: list[tuple[int, ...]], buffers: int) -> None:
    assert pipelined(items, buffers) == simulated(items, buffers)


def test_a_multiplication_in_memory_is_bound_by_its_longest_stage() -> None:
    device = calibration.device()
    for new in (1, 2):
        row = nds_fig2.in_memory(device, 4096, 512, new)
        steps, nbytes = 8**3, 512 * 512 * 4
        stages = [row["form_ms"], row["copy_ms"], row["kernel_ms"]]
        assert row["form_ms"] == pytest.approx(1e3 * new * copy_seconds(device, 512, nbytes))
        assert row["row_store_s"] == pytest.approx(((steps - 1) * max(stages) + sum(stages)) / 1e3)
        assert row["sub_block_s"] == pytest.approx(((steps - 1) * max(stages[1:]) + sum(stages[1:])) / 1e3)
        assert row["ratio"] == row["row_store_s"] / row["sub_block_s"] >= 1


@given(
    st.tuples(st.floats(0, 1e15), *[st.floats(0, 1e12)] * 3),
    st.integers(0, 5),
    st.sampled_from(["fp16_tensor", "fp32", "fp64", "int32"]),
)
def test_a_roofline_is_the_higher_of_two_bounds(amounts: tuple[float, ...], launches: int, precision: Any) -> None:
    flops, moved, up, down = amounts
    one = Cost(flops, moved, precision, up, down, launches)
    alone = Cost(flops, 0, precision, up, launches=0), Cost(0, moved, precision, down, launches=0)
    bounds = [RTX_2080.kernel_ns(part) for part in alone]
    assert abs(RTX_2080.kernel_ns(one) - max(bounds) - 5000 * launches) <= 1
    assert abs(RTX_2080.copy_ns(one) - max(RTX_2080.copy_ns(part) for part in alone)) <= 1


# --- boxes of experiments ---------------------------------------------------------------------------------------------


@given(st.sampled_from(["rows", "columns", "square"]), st.integers(1, 9), st.integers(1, 6), st.integers(1, 40))
def test_accesses_of_figure_9_tile_the_matrix(access: str, times: int, size: int, count: int) -> None:
    n = times * size
    every = nds_fig9.boxes_of(access, n, size, n * n)
    seen = np.zeros((n, n), int)
    for box in every:
        seen[box] += 1
    assert (seen == 1).all()
    assert nds_fig9.boxes_of(access, n, size, count) == every[:count]
    sides = {"rows": (size, n), "columns": (n, size), "square": (size, size)}[access]
    assert {tuple(s.stop - s.start for s in box) for box in every} == {sides}


@given(
    page=st.sampled_from([512, 4096, 16384]), channels=st.sampled_from([1, 4, 7, 32]), banks=st.integers(1, 16),
    item=st.sampled_from([1, 2, 4, 8]), ndim=st.integers(1, 5),
)  # fmt: skip
def test_equations_give_the_least_power_of_two_that_fills_the_banks(
    page: int, channels: int, banks: int, item: int, ndim: int
) -> None:
    shape = beyond_building_block.by_equations({"page_bytes": page, "channels": channels, "banks": banks}, ndim, item)
    cut = min(ndim, 3)
    assert shape[: ndim - cut] == (1,) * (ndim - cut)
    (side,) = set(shape[ndim - cut :])
    assert side & (side - 1) == 0
    least = page * channels * (banks if cut == 3 else 1) / item
    assert side**cut >= least * (1 - 1e-9)
    assert side == 1 or (side / 2) ** cut < least


@given(st.integers(1, 3), st.integers(1, 64), st.integers(1, 256), st.integers(1, 32), st.integers(1, 8))
def test_shapes_tried_are_all_powers_of_two_within_bounds(
    ndim: int, smallest: int, largest: int, longest: int, spread: int
) -> None:
    found = list(beyond_building_block.shapes(ndim, smallest, largest, longest, spread))
    powers = [1 << k for k in range(9) if 1 << k <= longest]
    wanted = [
        shape
        for shape in itertools.product(powers, repeat=ndim)
        if smallest <= math.prod(shape) <= largest and max(shape) / min(shape) <= spread
    ]
    assert found == wanted


def test_shapes_are_ranked_by_the_geometric_mean() -> None:
    rates = {"4x4": (1.0, 4.0), "2x8": (3.0, 3.0), "8x2": (0.5, 8.0), "16x1": (1.0, 1.0)}
    rows = [
        {"dimensions": 2, "block": block, "block_bytes": 128, "GBps": rate}
        for at in (0, 1)
        for block, rate in ((block, pair[at]) for block, pair in rates.items())
    ]
    scored = beyond_building_block._score(rows, {"4x4": "engine", "16x1": "equations"})
    assert [row["block"] for row in scored] == ["2x8", "4x4", "8x2", "16x1"]
    assert [row["rank"] for row in scored] == [1, 2, 3, 4]
    assert [row["of_best"] for row in scored] == pytest.approx([1, 2 / 3, 2 / 3, 1 / 3])
    assert [row["worst_GBps"] for row in scored] == [3.0, 1.0, 0.5, 1.0]
    assert [row["chosen_by"] for row in scored] == ["trial", "engine", "trial", "equations"]


@given(st.lists(st.tuples(*[st.floats(0.01, 100)] * 4), min_size=1, max_size=6))
def test_ratios_of_places_end_with_their_geometric_mean(times: list[tuple[float, ...]]) -> None:
    rows = []
    for n, (ours, theirs, cold, colder) in enumerate(times):
        rows.append({"workload": f"w{n}", "place": "nandarray", "warm_s": ours, "cold_s": cold})
        rows.append({"workload": f"w{n}", "place": "memmap", "warm_s": theirs, "cold_s": colder})
    rows.append({"workload": "alone", "place": "zarr", "warm_s": 1.0, "cold_s": 1.0})
    found = ratios(rows)
    assert {row["peer"] for row in found} == {"memmap"}
    for row, (ours, theirs, cold, colder) in zip(found, times, strict=False):
        assert (row["warm"], row["cold"]) == (theirs / ours, colder / cold)
    last = found[-1]
    assert last["workload"] == "geometric mean"
    assert last["warm"] == pytest.approx(math.prod(b / a for a, b, _, _ in times) ** (1 / len(times)))


def test_figure_10_compares_each_workload_with_its_own_baseline() -> None:
    systems = ("baseline", "oracle", "software NDS", "hardware NDS")
    seconds = {"A": (8.0, 1.0, 4.0, 2.0), "B": (9.0, 3.0, 9.0, 3.0), "C": (1.0, 1.0, 2.0, 1.0)}
    by = {}
    for name, times in seconds.items():
        for system, time in zip(systems, times, strict=True):
            by[name, system, "sieving"] = Ran(time, (time, 0.0, 0.0, time / 2), time / 2)
        by[name, "baseline", "runs"] = Ran(times[0] * 2, (0.0,) * 4, 0.0)
    rows = list(nds_fig10._rows(by, list(seconds), "sieving"))
    assert [row["speedup"] for row in rows if row["system"] == "hardware NDS"] == [4.0, 3.0, 1.0]
    assert [row["idle_removed"] for row in rows if row["system"] == "software NDS"] == [0.5, 0.0, -1.0]
    mean = nds_fig10._mean(rows, "sieving", "hardware NDS")
    assert mean["arithmetic_mean"] == pytest.approx(8 / 3)
    assert mean["geometric_mean"] == pytest.approx(12 ** (1 / 3))
    assert (mean["median"], mean["idle_removed"]) == (3.0, pytest.approx((0.75 + 2 / 3) / 3))
    over = list(nds_fig10._rows(by, list(seconds), "runs"))
    assert [row["speedup"] for row in over if row["system"] == "oracle"] == [16.0, 6.0, 2.0]
    assert {row["idle_removed"] for row in over} == {0.0}, "a baseline that never waited has nothing to remove"


# --- places and stencils ----------------------------------------------------------------------------------------------


@st.composite
def fetches(draw: st.DrawFn) -> tuple[tuple[int, ...], Fetch]:
    """A shape of two or three dimensions, and a fetch of it."""
    shape = draw(st.lists(st.integers(1, 12), min_size=2, max_size=3).map(tuple))
    sub = tuple(draw(st.integers(1, n)) for n in shape)
    return shape, Fetch(tuple(draw(st.integers(0, (n - 1) // s)) for n, s in zip(shape, sub, strict=True)), sub)


@given(fetches(), st.sampled_from(["<f8", "<i4", "u1"]))
def test_pieces_of_a_fetch_are_its_bytes_in_order(drawn: tuple[tuple[int, ...], Fetch], dtype: str) -> None:
    shape, fetch = drawn
    starts, length = _pieces(fetch, Dataset("x", shape, dtype))
    item = np.dtype(dtype).itemsize
    found = [at // item for start in starts for at in range(start, start + length, item)]
    assert found == places(shape, fetch.box(shape))
    assert all(start % item == 0 for start in starts)
    assert len(starts) == _runs(fetch.box(shape), shape), "as few pieces as there are runs"
    assert math.prod(fetch.count(shape)) == len(found)


def test_a_file_that_is_too_short_says_where_it_ends(tmp_path: Path) -> None:
    place = PLACES["pread"](tmp_path, Dataset("x", (8, 8)))
    place.write(np.ones((4, 8)))
    place.open()
    with pytest.raises(EOFError, match=r"data\.raw ends at byte 256"):
        place.read(Fetch((0, 0), (8, 8)), np.zeros((8, 8)))
    place.close()


@given(
    shape=st.tuples(st.integers(1, 24), st.integers(1, 24)), block=st.tuples(st.integers(1, 24), st.integers(1, 24)),
    margin=st.integers(1, 4), operands=st.integers(1, 2), seed=st.integers(0, 99),
)  # fmt: skip
def test_a_stencil_over_blocks_is_that_of_the_whole(
    shape: tuple[int, int], block: tuple[int, int], margin: int, operands: int, seed: int
) -> None:
    data = list(np.random.default_rng(seed).integers(0, 9, (operands, *shape)).astype(float))

    def kernel(arrays: Any) -> np.ndarray:
        """Sums over a square window of the first operand, less the others, with zeros beyond the edges."""
        padded = np.pad(arrays[0], margin)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (2 * margin + 1,) * 2)
        return windows.sum(axis=(2, 3)) - sum(arrays[1:])

    sweep = Sweep(shape, block, margin, operands=operands, kernel=kernel)
    for y, x in itertools.product(range(0, shape[0], block[0]), range(0, shape[1], block[1])):
        box = (slice(y, min(y + block[0], shape[0])), slice(x, min(x + block[1], shape[1])))
        sweep.add(box, [one[box] for one in data])
    np.testing.assert_array_equal(sweep.result(), kernel(data))
