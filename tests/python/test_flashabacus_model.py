"""FlashAbacus' counts, workloads, schedulers and phantoms beside exact polynomials, slow schedulers and sums."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nandarray.errors import InvalidError
from nandarray.model import accelerator
from nandarray.model.accelerator import Block, Phantom
from nandarray.model.timeline import timeline_events, timeline_html, write_timeline
from nandarray_papers.experiments import (
    flashabacus_beyond,
    flashabacus_fig3,
    flashabacus_fig10,
    flashabacus_fig12,
    flashabacus_fig15,
)  # fmt: skip
from nandarray_papers.flashabacus import counting, systems, table2, workloads
from nandarray_papers.flashabacus.counting import Growth, growth
from nandarray_papers.flashabacus.fair import FairShare, known

PLATFORM_WORKERS = 6
NAMES = ["simd", "inter-static", "inter-dynamic", "intra-in-order", "intra-out-of-order"]


# --- counts -----------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.fractions(-100, 100, max_denominator=9), min_size=1, max_size=5),
    st.lists(st.integers(-50, 50), min_size=5, max_size=6, unique=True),
)
def test_the_polynomial_through_points_is_the_one_that_they_are_of(coefficients: list[Fraction], xs: list[int]) -> None:
    ys = [sum(c * x**power for power, c in enumerate(coefficients)) for x in xs]
    found = counting._through(xs, ys)  # type: ignore[arg-type]
    assert list(found) == [*coefficients, *[Fraction(0)] * (len(xs) - len(coefficients))]


@given(st.lists(st.integers(0, 10**9), min_size=3, max_size=6))
def test_a_polynomial_meets_counts_that_follow_none(counts: list[int]) -> None:
    sizes = [16 * (n + 1) for n in range(len(counts))]
    one = Growth("atax", tuple(sizes), {"total": counting._through(sizes, counts)}, 0.0)
    assert [one.at(size) for size in sizes] == counts


def test_growth_divides_instructions_by_all_of_them() -> None:
    one = Growth("gemm", (16, 32, 48), {"total": (Fraction(0), Fraction(2)), "load_store": (Fraction(8),)}, 0.0)
    assert one.load_store(16) == 100 * 8 / 32
    assert one.bytes_per_ki(16) == 1000 * counting.input_bytes("gemm", 16) / 32
    for sizes in ([16, 32], [16, 32, 40], [32, 16, 48], [16, 16, 32], []):
        with pytest.raises(InvalidError, match="must be three at least, ascending multiples of 16"):
            growth("gemm", sizes)


def test_results_lie_one_behind_the_other_at_multiples_of_sixteen() -> None:
    rng = np.random.default_rng(1)
    shapes = {"y": ((3,), "<f4"), "t": ((2, 5), "<f8"), "z": ((7,), "u1")}
    arrays = {name: rng.integers(0, 99, shape).astype(kind) for name, (shape, kind) in shapes.items()}
    raw = b"".join(array.tobytes().ljust(-(-array.nbytes // 16) * 16, b"\xee") for array in arrays.values())
    outputs = [
        ({"name": name, "dtype": kind, "item_bytes": np.dtype(kind).itemsize}, shape)
        for name, (shape, kind) in shapes.items()
    ]
    given_ = type("S", (), {"results": {"y": 0, "z": 0}})
    found = counting._results(np.frombuffer(raw, np.uint8), outputs, given_)  # type: ignore[arg-type]
    assert set(found) == {"y", "z"}, "temporary sections are no results"
    for name, array in found.items():
        np.testing.assert_array_equal(array, arrays[name], strict=True)


# --- workloads --------------------------------------------------------------------------------------------------------


def test_mixes_are_the_marks_of_the_table() -> None:
    for mix, members in table2.MIXES.items():
        number = int(mix.removeprefix("MX"))
        assert members == tuple(one.kernel for one in table2.WORKLOADS if number in one.mixes)
        assert table2.instances(mix) == list(members) * 4
        assert workloads.MIXES[mix] == tuple(one.paper for one in table2.WORKLOADS if number in one.mixes)
    for one in table2.WORKLOADS:
        assert table2.instances(one.kernel) == [one.kernel] * 6
        assert workloads.APPS[one.paper].megabytes == one.input_MB
        trips = workloads.APPS[one.paper].trips(10)
        assert len(trips) == one.microblocks
    with pytest.raises(InvalidError, match="there is no workload 'MX15'; there is MX1, MX2, "):
        table2.instances("MX15")
    assert {*workloads.BALANCED, *workloads.UNBALANCED} == set(workloads.MIXES) - {"MX14"}


class Named:
    """Sizes whose kernels are names alone."""

    def phantom(self, name: str) -> Phantom:
        return Phantom(name, 1, ())


@pytest.mark.parametrize("mix", workloads.MIXES)
def test_instances_of_a_mix_come_in_turn_with_their_applications(mix: str) -> None:
    made = systems.submitted(mix, Named())  # type: ignore[arg-type]
    members = workloads.MIXES[mix]
    assert [one.name for one in made] == [*members] * 4
    assert [one.application for one in made] == [*range(len(members))] * 4
    alone = systems.submitted("ATAX", Named())  # type: ignore[arg-type]
    assert [(one.name, one.application) for one in alone] == [("ATAX", 0)] * 6


# --- ratios of systems ------------------------------------------------------------------------------------------------

RATE = st.floats(0.1, 10)


@given(st.dictionaries(st.sampled_from("abcd"), st.tuples(RATE, RATE), min_size=1))
def test_means_of_systems_are_means_of_ratios(rates: dict[str, tuple[float, float]]) -> None:
    rows = [
        {"workload": name, "system": system, "MBps": rate}
        for name, pair in rates.items()
        for system, rate in zip(("one", "other"), pair, strict=True)
    ]
    wanted = [one / other for one, other in rates.values()]
    assert systems.mean(rows, "MBps", "one", "other") == pytest.approx(sum(wanted) / len(wanted))
    some = sorted(rates)[:1]
    assert systems.mean(rows, "MBps", "one", "other", some) == pytest.approx(rates[some[0]][0] / rates[some[0]][1])
    for name, (one, other) in rates.items():
        assert systems.best(rows, name, "one") == (one >= other * (1 - 1e-9))
    assert flashabacus_fig10._over(rows, "MBps", "one", some) == rates[some[0]][0]
    assert flashabacus_fig10._some(["zzz", *some], rows) == some
    assert flashabacus_fig10._some(["zzz"], rows) == list(rates), "all that were run if none of them was"


def test_a_run_s_row_adds_up() -> None:
    found = accelerator.run(kernels_of([(2 << 20, 1 << 19, ((3, 3e6), (1, 1e6)))] * 3), "intra-out-of-order")
    one = systems.row("ATAX", "intra-out-of-order", found)
    assert one["MBps"] == pytest.approx(3 * (2 << 20) / found["seconds"] / 1e6)
    assert one["energy_J"] == pytest.approx(sum(found[f"energy_{p}"] for p in ("movement", "computation", "storage")))
    latencies = [kernel["latency"] for kernel in found["kernels"]]
    assert (one["latency_min_s"], one["latency_max_s"]) == (min(latencies), max(latencies))
    assert min(latencies) <= one["latency_mean_s"] <= max(latencies)
    assert [systems.row(name, "", found)["kind"] for name in ("MX3", "nn", "GEMM")] == [
        "heterogeneous", "application", "homogeneous",
    ]  # fmt: skip


@given(st.floats(0.01, 0.99), st.floats(1, 1e6))
def test_a_fit_is_where_an_increasing_function_has_its_value(wanted: float, scale: float) -> None:
    found = flashabacus_fig3._fit(lambda x: x / (x + scale), wanted, 1e9)
    assert found / (found + scale) == pytest.approx(wanted, abs=1e-9)
    assert flashabacus_fig3._fit(lambda _x: 2.0, wanted, 1e9) < 1e-6
    assert flashabacus_fig3._fit(lambda _x: 0.0, wanted, 1e3) == 1e3, "never: the highest"


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("cores", [1, 3, 8])
def test_serial_parts_follow_amdahls_law(share: float, cores: int) -> None:
    found = flashabacus_fig3._serial(share, cores)
    assert found["seconds"] == pytest.approx(share + (1 - share) / cores, rel=1e-3)
    assert found["utilisation"] == pytest.approx(1 / (cores * (share + (1 - share) / cores)), rel=1e-3)


@given(st.floats(0, 1), st.floats(0, 6), st.floats(0, 6))
def test_power_of_workers_is_that_of_the_busy_and_of_the_idle(idle: float, ours: float, theirs: float) -> None:
    for system in ("simd", "inter-static"):
        more, less = (flashabacus_fig15._power(system, idle, 50.0, n, 0.5) for n in (max(ours, theirs), 0.0))
        assert more - less == pytest.approx(0.8 * (1 - idle) * max(ours, theirs))
    if idle:
        wanted = (ours + idle * (6 - ours)) / (theirs + idle * (6 - theirs))
        assert flashabacus_fig15._ratio(idle, ours, theirs) == pytest.approx(wanted)


@given(st.lists(st.integers(-99, 99), min_size=1, max_size=40), st.floats(0, 1))
def test_a_quantile_is_one_of_the_values_with_its_share_below(values: list[int], share: float) -> None:
    found = flashabacus_beyond._quantile(values, share)
    assert found in values
    below = sum(value <= found for value in values)
    assert below >= min(len(values), share * len(values))
    assert sum(value < found for value in values) <= share * len(values)


# --- a scheduler of fair shares ---------------------------------------------------------------------------------------


class SlowFair:
    """The same choice from a list of all that happened."""

    def __init__(self) -> None:
        self.application: dict[int, int] = {}
        self.left: Counter[int] = Counter()
        self.served: dict[int, int] = {}

    def arrived(self, number: int, application: int) -> None:
        waiting = {self.application[kernel] for kernel in self.left if self.left[kernel] > 0}
        self.application[number] = application
        if application not in self.served:
            self.served[application] = min((self.served[one] for one in waiting), default=0)

    def next(self) -> int | None:
        ready = [kernel for kernel, screens in self.left.items() if screens > 0]
        if not ready:
            return None
        kernel = min(ready, key=lambda one: (self.served[self.application[one]], self.application[one], one))
        self.left[kernel] -= 1
        self.served[self.application[kernel]] += 1
        return kernel


@pytest.mark.parametrize("seed", range(20))
def test_fair_shares_are_those_of_a_list(seed: int) -> None:
    rng = random.Random(seed)
    fast, slow, alive = FairShare(6), SlowFair(), list[int]()
    chosen = []
    for number in range(150):
        what = rng.choice(["arrive", "ready", "ready", "next", "next", "next", "end"])
        if what == "arrive":
            application = rng.randrange(3)
            fast.arrived(number, application, 0, None, 0)
            slow.arrived(number, application)
            alive.append(number)
        elif what == "ready" and alive:
            kernel, screens = rng.choice(alive), rng.randint(1, 4)
            fast.ready(kernel, screens)
            slow.left[kernel] += screens
        elif what == "end" and alive and rng.random() < 0.5:
            kernel = alive.pop(rng.randrange(len(alive)))
            fast.ended(kernel)
            del slow.left[kernel]
        elif what == "next":
            chosen.append(slow.next())
            assert fast.next(0) == chosen[-1], (seed, number)
    assert len(set(chosen)) > 3, "several kernels were served"
    fast.lost(0)
    assert known() == known() == "fair-share"


# --- phantoms on the accelerator --------------------------------------------------------------------------------------

Spec = tuple[int, int, tuple[tuple[int, float], ...]]


def kernels_of(specs: Iterable[Spec]) -> list[Phantom]:
    """Phantoms of input and output bytes and of (screens, cycles)."""
    return [
        Phantom(f"k{n}", size, tuple(Block(screens, cycles, size) for screens, cycles in blocks), n % 3, bytes_out=out)
        for n, (size, out, blocks) in enumerate(specs)
    ]


BLOCKS = st.lists(st.tuples(st.integers(1, 9), st.floats(1e4, 1e7)), min_size=1, max_size=3).map(tuple)
SPECS = st.lists(
    st.tuples(st.integers(0, 4).map(lambda n: n << 20), st.integers(0, 2).map(lambda n: n << 20), BLOCKS),
    min_size=1, max_size=5,
)  # fmt: skip


def check_spans(found: dict[str, Any], kernels: list[Phantom]) -> None:
    """Screens do not overlap on a worker; microblocks follow each other; all cycles are computed once."""
    by_worker: dict[int, list[dict[str, Any]]] = {}
    for span in found["spans"]:
        assert 0 <= span["start"] < span["end"] <= found["seconds"] + 1e-12
        assert span["computed"] <= span["end"] - span["start"] + 1e-12
        by_worker.setdefault(span["worker"], []).append(span)
    for spans in by_worker.values():
        spans.sort(key=lambda one: one["start"])
        for one, following in zip(spans, spans[1:], strict=False):
            assert one["end"] <= following["start"] + 1e-12
    for number, kernel in enumerate(kernels):
        end = 0.0
        for block, described in enumerate(kernel.microblocks):
            mine = [one for one in found["spans"] if (one["kernel"], one["microblock"]) == (number, block)]
            assert 1 <= len(mine) <= described.screens
            assert sorted(one["screen"] for one in mine) == list(range(len(mine)))
            assert min(one["start"] for one in mine) >= end - 1e-12
            end = max(one["end"] for one in mine)
            assert sum(one["computed"] for one in mine) == pytest.approx(described.cycles / 1e9, rel=1e-6)


@settings(max_examples=25)
@given(SPECS, st.sampled_from(NAMES))
def test_phantoms_pass_once_and_in_order(specs: list[Spec], scheduler: str) -> None:
    kernels = kernels_of(specs)
    found = accelerator.run(kernels, scheduler)
    check_spans(found, kernels)
    assert found["bytes"] == sum(one.bytes for one in kernels)
    assert found["bytes_out"] == sum(one.bytes_out for one in kernels)
    assert [one["name"] for one in found["kernels"]] == [one.name for one in kernels]
    ends = [one["end"] for one in found["kernels"]]
    assert found["seconds"] == pytest.approx(max(ends))
    assert found["flushed_seconds"] >= found["seconds"] - 1e-12
    for kernel, described in zip(found["kernels"], kernels, strict=True):
        assert kernel["latency"] == pytest.approx(kernel["end"])
        assert kernel["compute"] == pytest.approx(sum(one.cycles for one in described.microblocks) / 1e9, rel=1e-6)
        assert 0 <= kernel["waiting"] <= kernel["latency"]
    busy = [0.0] * PLATFORM_WORKERS
    for span in found["spans"]:
        busy[span["worker"]] += span["computed"]
    assert found["utilisation"] == pytest.approx([one / found["seconds"] for one in busy], rel=1e-6)
    assert all(u <= o + 1e-9 for u, o in zip(found["utilisation"], found["occupancy"], strict=True))
    total = math.fsum(found["activity"]["compute"])
    assert total == pytest.approx(sum(busy), rel=1e-3, abs=2 * found["activity"]["slot_s"])


@pytest.mark.parametrize("scheduler", NAMES[1:])
def test_a_failed_core_costs_time_and_no_screen(scheduler: str) -> None:
    kernels = kernels_of([(4 << 20, 0, ((6, 6e7), (1, 1e7)))] * 4)
    sound = accelerator.run(kernels, scheduler)
    found = accelerator.run(kernels, scheduler, {"core_failures": [(0, 3_000_000)]})
    fine = [one for one in found["spans"] if one["fine"]]
    assert len(fine) == len(sound["spans"])
    assert found["seconds"] > sound["seconds"]
    assert found["reruns"] == len(found["spans"]) - len(fine)
    assert all(one["worker"] != 0 or one["start"] < 3e-3 for one in found["spans"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"bytes": -1}, "invalid value"), ({"name": 5}, "invalid type"), ({"arrives_ns": 1.5}, "invalid type"),
        ({"microblocks": ()}, 'kernel "k" has no microblock'), ({"deadline": -1}, "invalid value"),
        ({"microblocks": (Block(0, 1e6, 0),)}, 'kernel "k" has a microblock without a screen'),
        ({"microblocks": (Block(1, -1.0, 0),)}, 'cycles of kernel "k" must be from 0 to'),
        ({"microblocks": (Block(1, 1e300, 0),)}, 'cycles of kernel "k" must be from 0 to'),
        ({"microblocks": (Block(1, math.nan, 0),)}, "kernels: expected value"),
    ],
)  # fmt: skip
def test_a_phantom_that_cannot_be_is_refused(change: dict[str, Any], says: str) -> None:
    one = dataclasses.replace(Phantom("k", 1 << 20, (Block(6, 1e6, 0),)), **change)
    with pytest.raises(InvalidError, match=says):
        accelerator.run([one], "inter-dynamic")


@pytest.mark.parametrize("scheduler", NAMES)
def test_no_kernels_take_no_time(scheduler: str) -> None:
    found = accelerator.run([], scheduler)
    assert (found["seconds"], found["bytes"], found["kernels"], found["spans"]) == (0.0, 0, [], [])
    assert len(timeline_events(found)) == 2 + PLATFORM_WORKERS


# --- timelines --------------------------------------------------------------------------------------------------------


def test_a_timeline_has_each_screen_microblock_and_flush_once(tmp_path: Path) -> None:
    kernels = kernels_of([(2 << 20, 1 << 20, ((4, 4e6), (1, 1e6))), (1 << 20, 0, ((2, 2e6),))])
    kernels[0] = dataclasses.replace(kernels[0], name="<b>&\"'")
    found = accelerator.run(kernels, "intra-out-of-order")
    events = timeline_events(found)
    heads = [one for one in events if one["ph"] == "M"]
    slices = [one for one in events if one["ph"] == "X"]
    assert events == heads + slices
    assert len(heads) == 2 + PLATFORM_WORKERS + len(kernels)
    assert [one["ts"] for one in slices] == sorted(one["ts"] for one in slices)
    screens = [one for one in slices if one["pid"] == 1]
    assert sorted((one["tid"], round(one["ts"], 6), round(one["dur"], 6)) for one in screens) == sorted(
        (span["worker"], round(span["start"] * 1e6, 6), round((span["end"] - span["start"]) * 1e6, 6))
        for span in found["spans"]
    )
    blocks = [one for one in slices if one["pid"] == 2]
    assert Counter(one["name"] for one in blocks) == {"microblock 0": 2, "microblock 1": 1, "outputs to flash": 1}
    assert sum(one["args"].get("screens", 0) for one in blocks) == len(found["spans"])
    for one in blocks:
        if one["name"] != "outputs to flash":
            place = (one["tid"], int(one["name"].removeprefix("microblock ")))
            mine = [span for span in found["spans"] if (span["kernel"], span["microblock"]) == place]
            begin, end = min(span["start"] for span in mine), max(span["end"] for span in mine)
            assert (one["ts"], one["ts"] + one["dur"]) == pytest.approx((begin * 1e6, end * 1e6))
    assert write_timeline(found, tmp_path / "t.json") == len(slices)
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"] == events
    drawn = timeline_html(found, width=300)
    assert drawn.count("<rect ") == len(found["spans"])
    assert "<b>" not in drawn
    assert timeline_html(found, most=2).count("<rect ") == 2
    ends = [{"name": "k", "end": end, "flushed": flushed} for end, flushed in ((2.0, 3.0), (2.0, 1.0), (0.0, 1.0))]
    flushed = {"kernels": [*ends, {"name": "none"}], "utilisation": [], "spans": []}
    assert [one["tid"] for one in timeline_events(flushed) if one["ph"] == "X"] == [0], "behind its end alone"
    empty = {"seconds": 0.0, "spans": [], "kernels": [], "utilisation": []}
    assert "<rect" not in timeline_html(empty)
    assert len(timeline_events(empty)) == 2


def test_kernels_of_figure_12_are_in_the_order_of_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = kernels_of([(1 << 20, 0, ((6, 6e6),)), (2 << 20, 0, ((1, 9e6),)), (1 << 20, 0, ((3, 1e6),))])
    monkeypatch.setattr(flashabacus_fig12, "submitted", lambda *_: kernels)
    found = flashabacus_fig12.ends("ATAX", "intra-out-of-order", None)  # type: ignore[arg-type]
    assert [row["done"] for row in found["ends"]] == [1, 2, 3]
    times = [row["end_s"] for row in found["ends"]]
    assert times == sorted(times)
    assert all(row["start_s"] < row["end_s"] for row in found["screens"])
    monkeypatch.setattr(flashabacus_fig15, "submitted", lambda *_: kernels)
    for system in ("simd", "intra-out-of-order"):
        series = flashabacus_fig15.series("ATAX", system, None)  # type: ignore[arg-type]
        rows = series["rows"]
        width = rows[1]["time_s"] - rows[0]["time_s"]
        cores = math.fsum(row["computing"] * min(width, series["seconds"] - row["time_s"]) for row in rows)
        assert cores == pytest.approx(16e-3, rel=0.02), "all cycles, slot by slot"
        assert all(0 <= row["storage"] <= 1 and 0 <= row["computing"] <= 6 for row in rows)


# --- costs at full sizes ----------------------------------------------------------------------------------------------


@given(st.integers(4, 1 << 20), st.integers(1, 4096))
def test_a_reduced_size_is_the_full_one_over_the_nearest_power_of_two(size: int, wanted: int) -> None:
    reduced, factor = accelerator._reduced(size, wanted)
    assert factor & (factor - 1) == 0
    assert reduced == max(4, size // factor)
    apart = abs(math.log2(max(1.0, size / wanted)) - math.log2(factor))
    assert apart <= 0.5 + 1e-9


@pytest.mark.parametrize("factor", [1, 2, 16, 1 << 20])
def test_caches_are_divided_down_to_one_set(factor: int) -> None:
    from nandarray import _nandarray

    before = _nandarray.core_describe(_nandarray.core_text("lwp"), [])
    after = _nandarray.core_describe(accelerator._smaller_caches("lwp", factor), [])
    for level in ("l1d", "l2"):
        size, ways, line = before[level]
        assert after[level] == (max(ways * line, size // factor), ways, line)
