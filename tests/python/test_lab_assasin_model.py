"""ASSASIN's and CoDEN's arithmetic: layouts, works, designs, queries and scaling, beside closed forms and loops."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nandarray
from nandarray_papers.assasin import engines, skew, work
from nandarray_papers.assasin.pipelines import PAGE_BYTES, coded, network
from nandarray_papers.assasin.work import Work, function, scan, scan_names, touch
from nandarray_papers.experiments import assasin_beyond, assasin_engines, assasin_filter, assasin_queries, coden_kernels
from nandarray_papers.tpch import host_spark, host_times
from nandarray_papers.tpch.queries import QUERIES
from nandarray_papers.tpch.scans import SCANS, filtered_tables
from nandarray_papers.tpch.schema import NARROW, OFFLOADED, TABLES

SKEWS = st.floats(0, 1) | st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
RATE = st.floats(0.01, 100)


# --- layouts ----------------------------------------------------------------------------------------------------------


@given(SKEWS)
def test_shares_sum_to_one_and_have_the_skew(asked: float) -> None:
    shares = skew.shares(asked)
    assert len(shares) == skew.CHANNELS
    assert math.fsum(shares) == pytest.approx(1)
    assert skew.skew_of(shares) == pytest.approx(asked, abs=1e-12)
    assert max(shares) == shares[0]
    assert len(set(shares[1:])) == 1
    assert skew.skew_of([7 * share for share in shares]) == pytest.approx(asked, abs=1e-12), "of amounts, too"


@given(SKEWS, st.integers(0, 300))
def test_a_layout_has_its_shares_at_every_place(asked: float, pages: int) -> None:
    found, shares, had = skew.pattern(pages, asked), skew.shares(asked), Counter[int]()
    assert len(found) == pages
    for page, channel in enumerate(found, 1):
        had[channel] += 1
        for number, share in enumerate(shares):
            assert abs(had[number] - share * page) < skew.CHANNELS
    if asked == 1:
        assert set(found) <= {0}
    if asked == 0:
        assert found == [page % skew.CHANNELS for page in range(pages)]


def text_work(lines: list[int]) -> Work:
    """A work over lines of some lengths."""
    text = b"".join(b"x" * length + b"\n" for length in lines)
    return Work("t", lambda *_: None, [np.frombuffer(text, np.uint8)], is_text=True)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), SKEWS)
def test_parts_of_a_text_are_whole_lines_in_order(lines: list[int], asked: float) -> None:
    one = text_work(lines)
    parts = skew._parts(one, asked)
    assert len(parts) == skew.CHANNELS
    assert b"".join(part[0].tobytes() for part in parts) == one.inputs[0].tobytes()
    assert all(part[0].size == 0 or part[0][-1] == ord("\n") for part in parts)
    ends = np.cumsum([part[0].size for part in parts])
    wanted = np.cumsum(skew.shares(asked)) * one.bytes
    assert (np.abs(ends - wanted) <= max(lines) + 2).all()


@given(st.integers(1, 4), st.integers(1, 90), st.sampled_from(["u1", "<i4", "<f8"]), SKEWS)
def test_parts_of_inputs_are_whole_tasks_of_each(inputs: int, tasks: int, dtype: str, asked: float) -> None:
    each = 4096 // np.dtype(dtype).itemsize
    data = [np.arange(tasks * each, dtype=dtype) + k for k in range(inputs)]
    one = Work("t", lambda *_: None, data, task_bytes=inputs * 4096)
    parts = skew._parts(one, asked)
    for number, whole in enumerate(data):
        np.testing.assert_array_equal(np.concatenate([part[number] for part in parts]), whole)
    sizes = [part[0].size for part in parts]
    assert all(size % each == 0 for size in sizes)
    assert all(len({piece.size for piece in part}) == 1 for part in parts)
    assert np.abs(np.cumsum(sizes) / each - np.cumsum(skew.shares(asked)) * tasks).max() <= 0.5 + 1e-6


def test_pages_are_written_on_their_channels() -> None:
    rng = np.random.default_rng(3)
    arrays = {
        name: (rng.integers(0, 256, pages * PAGE_BYTES - cut, np.uint8), skew.pattern(pages, asked))
        for name, pages, cut, asked in (("a", 20, 100, 0.5), ("b", 3, 0, 1.0), ("c", 9, 4000, 0.0))
    }
    device = engines.ENGINES["Sb"].description()
    with nandarray.open(device=device, mode="w", seed=0, placement="log") as store:
        skew._write(store, arrays)
        store.flush()
        store.clock.settle()
        for name, (data, _) in arrays.items():
            np.testing.assert_array_equal(store[name][:], data)
        before = skew._channels(store.report().data)
        store["b"][:]
        after = skew._channels(store.report().data)
    busy = [new - old for new, old in zip(after, before, strict=True)]
    assert busy[0] > 0
    assert max(busy[1:]) < busy[0] / 10, "all pages of b are on the first channel"


# --- engines and works ------------------------------------------------------------------------------------------------


def test_adjusted_engines_differ_from_the_stated_ones_in_two_values() -> None:
    for name in engines.ENGINES:
        stated, adjusted = (one.description().values for one in (engines.engine(name), engines.adjusted(name)))
        apart = {key for key in adjusted if stated.get(key) != adjusted[key]}
        assert apart == {"Sb": {"compute.clock"}, "Sp": {"compute.core.t_scratchpad"}}.get(name, set())
    described = engines.ENGINES["Sb"].description(compute__cores=3, nand__t_read="1 us")
    assert (described["compute.cores"], described["nand.t_read"]) == (3, "1 us")
    assert described["compute.read_ahead"] == engines.READ_AHEAD


@given(st.sampled_from(work.FUNCTIONS), st.integers(256, 5000), st.integers(0, 9))
def test_a_function_has_whole_words_of_the_same_bytes(name: str, size: int, seed: int) -> None:
    one = function(name, size, seed)
    unit = {"Stat": 4, "RAID4": 256, "RAID6": 256, "AES": 16}[name]
    assert one.bytes == size // unit * unit
    assert len(one.inputs) == (4 if name.startswith("RAID") else 1)
    assert len({part.nbytes for part in one.inputs}) == 1
    raw = np.concatenate([part.view(np.uint8) for part in one.inputs])
    np.testing.assert_array_equal(raw, touch(size, seed).inputs[0][: one.bytes])
    assert set(one.scalars) == ({"key_low", "key_high"} if name == "AES" else set())


@given(st.integers(1, 5), st.integers(0, 99))
def test_a_third_page_restores_either_of_two(pairs: int, seed: int) -> None:
    data = np.random.default_rng(seed).integers(0, 256, pairs * 2 * PAGE_BYTES, np.uint8)
    three = coded(data).reshape(pairs, 3, PAGE_BYTES)
    np.testing.assert_array_equal(three[:, :2].reshape(-1), data)
    for lost, kept in ((0, (1, 2)), (1, (0, 2)), (2, (0, 1))):
        np.testing.assert_array_equal(three[:, lost], three[:, kept[0]] ^ three[:, kept[1]])


def test_a_network_has_a_matrix_between_each_two_layers() -> None:
    layers = network(4, (5, 7, 2))
    assert [one.shape for one in layers] == [(7, 5), (2, 7)]
    assert all(one.dtype == np.int8 and np.abs(one).max() <= 16 for one in layers)
    assert all((a == b).all() for a, b in zip(layers, network(4, (5, 7, 2)), strict=True))


def test_a_scan_is_cut_behind_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    columns = NARROW["orders"]
    line = "|".join("1998-01-01" if kind == "date" else "7" for kind in columns.values()) + "|\n"
    file = tmp_path / "orders.tbl"
    file.write_text(line * 9)
    monkeypatch.setattr(work, "files", lambda *_: {"orders": file})
    for size in (len(line), len(line) + 1, 3 * len(line) - 1, 10**9):
        one = scan("3o", size, 0.01)
        assert one.bytes == min(9, size // len(line)) * len(line)
        assert one.is_text
    assert len(scan_names()) == len(set(scan_names())) == 25


def test_the_schema_of_narrow_tables_is_that_of_the_others_in_32_bits() -> None:
    assert NARROW.keys() == TABLES.keys()
    for table, wide in TABLES.items():
        assert list(wide) == list(NARROW[table])
        for name, kind in wide.items():
            narrow = NARROW[table][name]
            assert narrow == {"int64": "int32", "decimal(15,2)": "decimal(9,2)"}.get(kind, kind)
    for one in SCANS:
        assert set(one.columns) <= set(TABLES[one.table])
        (number,) = {int("".join(c for c in one.name if c.isdigit()))}
        assert one.table in QUERIES[number]
        assert one.name.rstrip("b")[-1] == one.table[0]


# --- designs ----------------------------------------------------------------------------------------------------------


def test_area_and_power_are_sums_over_parts() -> None:
    device = engines.ENGINES["Sb"].description(compute__vector_mm2=0.5, compute__vector_power="3 mW")
    compute = device.resolved["compute"]
    parts = dict(zip(assasin_beyond._PARTS, zip(compute["parts"]["area_mm2"], compute["parts"]["power_uw"],
                 strict=True), strict=True))  # fmt: skip
    cores = compute["cores"]
    area, power = assasin_beyond._cost(device)
    assert area == pytest.approx(sum(a * (1 if n == "crossbar" else cores) for n, (a, _) in parts.items()))
    assert power == pytest.approx(sum(p * (1 if n == "crossbar" else cores) for n, (_, p) in parts.items()) / 1e3)
    buffers = sum(a for n, (a, _) in parts.items() if n.endswith("_buffers"))
    more, hotter = assasin_beyond._cost(device, 3.0, 2.0)
    assert more - area == pytest.approx(2 * cores * buffers)
    assert hotter == pytest.approx(2 * (power + 2 * cores * sum(p for n, (_, p) in parts.items() if "_buf" in n) / 1e3))


def test_the_least_number_of_cores_saturates() -> None:
    def row(name: str, cores: int, rate: float, busy: float = 0.5, waits: float = 0.2) -> dict[str, Any]:
        return {"function": name, "variant": "v", "cores": cores, "GBps": rate, "channels_busy": busy,
                "wait_share": waits}  # fmt: skip

    rows = [row("a", 1, 1.0), row("a", 2, 1.9), row("a", 4, 2.0, 0.9), row("b", 1, 1.0), row("b", 8, 8.0, 0.79, 0.2)]
    rows += [row("c", 1, 5.0, 0.81), row("c", 2, 5.1), row("c", 4, 4.0)]
    found = {one["function"]: one for one in assasin_beyond._saturating(rows)}
    assert (found["a"]["cores"], found["a"]["is_saturated"], found["a"]["GBps"]) == (2, True, 2.0)
    assert (found["b"]["cores"], found["b"]["is_saturated"], found["b"]["bound"]) == (8, False, "cores")
    assert (found["c"]["cores"], found["c"]["is_saturated"], found["c"]["bound"]) == (1, True, "channels")


@given(st.lists(RATE, min_size=1, max_size=9))
def test_means_lie_between_the_ends(values: list[float]) -> None:
    geometric, arithmetic = assasin_engines.geomean(values), coden_kernels.mean(values)
    assert min(values) * (1 - 1e-9) <= geometric <= arithmetic * (1 + 1e-9) <= max(values) * (1 + 2e-9)
    assert geometric == pytest.approx(math.prod(values) ** (1 / len(values)), rel=1e-9)
    assert assasin_engines.geomean(1 / value for value in values) == pytest.approx(1 / geometric, rel=1e-9)
    assert coden_kernels.geomean(iter(values)) == geometric


@given(st.dictionaries(st.sampled_from("abcd"), st.tuples(RATE, RATE), min_size=1))
def test_speedups_are_over_the_stated_baseline_of_the_same_function(rates: dict[str, tuple[float, float]]) -> None:
    rows = [{"function": "a", "engine": "Baseline", "timing": "adjusted", "GBps": 99.0}]
    for name, (base, other) in rates.items():
        rows += [{"function": name, "engine": "Sb", "timing": timing, "GBps": other} for timing in ("stated", "adj")]
        rows += [{"function": name, "engine": "Baseline", "timing": "stated", "GBps": base}]
    if "a" not in rates:
        rows = rows[1:]
    for one in assasin_engines.speedups(rows):
        assert one["speedup"] == one["GBps"] / rates[one["function"]][0]


def test_traffic_names_the_function_of_which_most_is_left() -> None:
    rows = [
        {"function": name, "engine": engine, "timing": "stated", "dram_bytes_a_byte": value}
        for name, values in {"Stat": (2.0, 0.5), "AES": (1.0, 0.6), "6l": (4.0, 0.0)}.items()
        for engine, value in zip(("Baseline", "Sb"), values, strict=True)
    ]
    demand, saved = assasin_engines._traffic(rows)
    assert demand.measured == 2.0
    assert saved.measured is False
    assert "0.60, of AES" in saved.note


def test_cycles_without_memory_are_the_rest() -> None:
    reasons = {"issue": 0.5, "hazard": 0.25, **dict.fromkeys(assasin_filter._MEMORY, 0.25)}
    one = {"row_bytes": 16, "GBps": 0.5, "instructions_a_byte": 1.0, "reasons": reasons}
    found = assasin_filter._cause(one)
    assert found["perfect_ns_a_byte"] == pytest.approx(0.75)
    assert found["memory_ns_a_byte"] == pytest.approx(0.25 * len(assasin_filter._MEMORY))
    assert found["over_perfect_l1"] == pytest.approx(1 + len(assasin_filter._MEMORY) / 3)


# --- queries ----------------------------------------------------------------------------------------------------------

SIZES = dict(zip(TABLES, (7e8, 1.6e8, 2.4e7, 2.4e7, 1.2e8, 1.4e6, 2e3, 4e2), strict=True))


@functools.cache
def rates() -> dict[tuple[str, str], float]:
    """Made-up bytes a second of each scan on each engine."""
    rng = np.random.default_rng(5)
    return {(one.name, engine): float(rng.uniform(1e9, 8e9)) for one in SCANS for engine in engines.ENGINES}


HOSTS = pytest.mark.parametrize("own", host_times.hosts(), ids=lambda own: own.engine)


def case_of(own: host_times.Host) -> assasin_queries.Case:
    return assasin_queries.Case(own, rates(), SIZES, sorted(own.times))


@HOSTS
def test_stored_times_are_of_queries_with_a_filtered_scan(own: host_times.Host) -> None:
    times = own.times
    assert own.scale > 0
    for query, one in times.items():
        assert set(one.passes) <= set(filtered_tables(query)) & set(OFFLOADED)
        assert all(count >= 1 for count in one.passes.values())
        assert one.alone_s > 0 < one.after_s
    assert set(times) == {query for query in QUERIES if set(filtered_tables(query)) & set(OFFLOADED)}
    assert filtered_tables(19) == {"lineitem": "19l", "part": "19p"}
    assert filtered_tables(1) == {"lineitem": "1l"}, "query 1 is not query 10, 12 or 15"
    assert filtered_tables(13) == {}


@pytest.mark.parametrize("slower", [1.0, 3.0])
@HOSTS
@pytest.mark.parametrize("query", sorted(host_times.hosts()[0].times))
def test_a_query_takes_its_scans_its_tables_and_its_host_one_after_the_other(
    query: int, own: Any, slower: float
) -> None:
    case, own = case_of(own), own.times[query]
    rows = assasin_queries._latencies(query, case, slower)
    by = {(row["system"], row["part"]): row["ms"] / 1e3 for row in rows}
    assert len(by) == len(rows) == 3 * (1 + len(engines.ENGINES))
    link = assasin_queries._link_bytes_per_s()
    words = QUERIES[query].replace(",", " ").replace("(", " ").replace(")", " ").split()
    used = [table for table in TABLES if table in words]
    assert by["PureCPU", "device"] == 0
    assert by["PureCPU", "host"] == pytest.approx(slower * own.alone_s / 4)
    assert by["PureCPU", "link"] == pytest.approx(sum(SIZES[table] for table in used) / link)
    for engine in engines.ENGINES:
        scans = {table: filtered_tables(query)[table] for table in own.passes}
        device = sum(SIZES[table] * own.passes[table] / rates()[name, engine] for table, name in scans.items())
        assert by[engine, "device"] == pytest.approx(device)
        assert by[engine, "host"] == pytest.approx(slower * own.after_s / 4)
        assert by[engine, "link"] == pytest.approx(sum(SIZES[t] for t in used if t not in scans) / link)
    whole = assasin_queries._whole(rows)
    assert whole[query, "Sb"] == pytest.approx(1e3 * sum(by["Sb", part] for part in ("device", "link", "host")))


def test_the_host_that_a_gain_needs_is_found_by_halving() -> None:
    case = case_of(host_times.hosts()[0])
    for gain in (1.4, 1.9):
        slower = assasin_queries._slower_for(gain, case)
        below, at = (assasin_queries._cause(case, factor)["Baseline_over_host"] for factor in (slower * 0.999, slower))
        assert below < gain <= at
    speeds = assasin_queries._speeds(case)
    assert [one["system"] for one in speeds] == ["PureCPU, 4 cores", *engines.ENGINES]
    low, high = min(rates().values()), max(rates().values())
    assert all(low / 1e9 <= one["GBps"] <= high / 1e9 for one in speeds[1:])
    read = assasin_queries._reading(case)
    assert read["least"] <= read["Sb_over_Baseline"] <= read["most"]
    assert read["Baseline_over_host"] == assasin_queries._cause(case, 1.0)["Baseline_over_host"]


PLAN = """AdaptiveSparkPlan isFinalPlan=true
+- == Final Plan ==
   Filter
   :  +- Subquery subquery#1
   :     +- AdaptiveSparkPlan isFinalPlan=true
            +- == Final Plan ==
               FileScan csv [a#1] Location: InMemoryFileIndex(1 paths)[file:/tpch/part.tbl], PartitionFilters: [], \
PushedFilters: [IsNotNull(a), GreaterThan(a,0.00)], ReadSchema: struct<a:int>
            +- == Initial Plan ==
               FileScan csv [a#1] Location: InMemoryFileIndex(1 paths)[file:/tpch/part.tbl], PartitionFilters: [], \
PushedFilters: [], ReadSchema: struct<a:int>
   +- FileScan csv [a#2] Location: InMemoryFileIndex(1 paths)[file:/tpch/part.tbl], PartitionFilters: [], \
PushedFilters: [GreaterThan(a,0.00), IsNotNull(a)], ReadSchema: struct<a:int>
+- == Initial Plan ==
   FileScan csv [a#2] Location: InMemoryFileIndex(1 paths)[file:/tpch/part.tbl], PartitionFilters: [], \
PushedFilters: [], ReadSchema: struct<a:int>
"""


def test_scans_of_a_spark_host_are_those_of_the_plan_that_ran() -> None:
    class Answer:
        _jdf = property(lambda self: self)
        queryExecution = executedPlan = lambda self: self  # noqa: N815 (Spark's names)
        toString = lambda _: PLAN  # noqa: N815, E731

    assert host_spark._scans(Answer(), Path("/tpch/part.tbl")) == ["GreaterThan(a,0.00)"] * 2
    assert host_spark._scans(Answer(), Path("/tpch/orders.tbl")) == []
    before = host_spark.tree_cpu()
    while host_spark.tree_cpu() < before + 0.02:
        sum(range(10_000))


# --- scaling over cores -----------------------------------------------------------------------------------------------


@given(
    seconds=st.floats(1e-6, 1), dram=st.floats(0, 1e9), cores=st.integers(1, 8), times=st.floats(0.1, 100),
    fixed=st.floats(0, 1),
)  # fmt: skip
def test_a_request_on_cores_is_between_its_bounds(
    seconds: float, dram: float, cores: int, times: float, fixed: float
) -> None:
    one = {"seconds": seconds, "dram_bytes": dram, "input_bytes": 1 << 20}
    size = int(times * (1 << 20))
    scale, port = size / (1 << 20), dram * size / (1 << 20) / coden_kernels.DRAM_BYTES_PER_S
    found = coden_kernels.on_cores(one, cores, size, fixed)
    assert found >= (fixed + max(seconds * scale / cores, port)) * (1 - 1e-9)
    if cores == 1:
        assert found == pytest.approx(fixed + max(seconds * scale, port))
    if dram == 0:
        assert found == pytest.approx(fixed + seconds * scale / cores)
    # More cores never make a request longer than one core does.
    assert found <= coden_kernels.on_cores(one, 1, size, fixed) * (1 + 1e-9) or port > 0


def test_the_fixed_time_is_that_of_a_mean_gain() -> None:
    rows = [{"seconds": s, "dram_bytes": 1e4, "input_bytes": 1 << 20} for s in (1e-3, 2e-3, 5e-3)]
    fixed = coden_kernels.calibrated(rows, 7)
    small = coden_kernels.SMALL_BYTES

    def gain(time: float) -> float:
        return coden_kernels.mean(
            coden_kernels.on_cores(one, 1, small, time) / coden_kernels.on_cores(one, 7, small, time) for one in rows
        )

    assert gain(fixed) == pytest.approx(1.55, rel=1e-6)
    assert gain(fixed / 2) > 1.55 > gain(fixed * 2)


def test_a_summary_of_rates_names_the_best_of_all() -> None:
    rates_of = {name: float(n + 1) for n, name in enumerate(coden_kernels.KERNELS)}
    found = coden_kernels._summary(rates_of)
    assert (found["best"], found["best_MBps"]) == (coden_kernels.KERNELS[-1], 20.0)
    assert found["generic_MBps"] == 4.0
    assert found["advanced_MBps"] == 14.0
    assert found["generic_over_advanced"] == pytest.approx(4 / 14)
    assert found["best_over_mean"] == 5.0
    rows = [{"kernel": "add", "MBps": 300.0, "input_bytes": 10, "stream_bytes": 30}]
    assert coden_kernels._of_one_input(rows) == {"add": 100.0}


def test_works_of_a_kind_are_plain_data() -> None:
    one = function("Stat", 400, 1)
    assert dataclasses.replace(one, task_bytes=5).bytes == one.bytes
    assert (*coden_kernels.GENERIC, *coden_kernels.ADVANCED) == coden_kernels.KERNELS
    assert len(set(coden_kernels.KERNELS)) == 20
