"""Figure 7.14 of the ASSASIN dissertation: whole queries, their filtered scans in the device and the rest on a host.

As in the dissertation, the latency of a query is that of the device's scans and of the host's work, one after the
other. The device's part is modelled (the scans of Figure 7.13). The host's part was measured: CPU time of the same
queries over text, and over offloaded scans (:mod:`nandarray_papers.tpch.host`), divided by the four cores of section
7.3.1. The dissertation's host is Spark: its times are judged where they were measured, and those of other engines are
readings in table ``hosts``. Only queries with a filtered scan can gain, and only they are shown. Figures with a host of
other speed are in table ``causes``: its CPU times are multiplied, and nothing else changes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nandarray.device import load
from nandarray.lab.experiment import Answer, Context, Experiment, Figure, Parameter, Result
from nandarray_papers.assasin.engines import ASSUMPTIONS, ENGINES
from nandarray_papers.experiments.assasin_engines import geomean
from nandarray_papers.experiments.assasin_engines import run_one as run_scan
from nandarray_papers.tpch.data import files
from nandarray_papers.tpch.host_times import Host, hosts
from nandarray_papers.tpch.queries import QUERIES
from nandarray_papers.tpch.scans import filtered_tables
from nandarray_papers.tpch.schema import TABLES

__all__ = ["EXPERIMENT"]

#: Section 7.3.1: a host of four cores, behind PCIe 4 x4.
CORES = 4
HOST = "PureCPU"


@cache
def _link_bytes_per_s() -> float:
    """Payload that the link of the devices carries."""
    link = load("assasin").resolved["link"]
    payload = float(link["packet_payload_bytes"])
    return float(link["bytes_per_s"]) * payload / (payload + float(link["packet_overhead_bytes"]))


#: Factors on the time of the host's work.
SLOWER = (1.0, 2.0, 4.0, 8.0)


_Rates = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Case:
    """The terms of latencies: a host's times, bytes a second of scans by system, and sizes of tables' text.

    ``sizes`` are of the scale factor of the host's times.
    """

    host: Host
    rates: _Rates
    sizes: Mapping[str, int]
    queries: Sequence[int]

    @property
    def whole(self) -> dict[tuple[int, str], float]:
        """Milliseconds of each query on each system."""
        return _whole([row for query in self.queries for row in _latencies(query, self)])


def _latencies(query: int, case: Case, slower: float = 1.0) -> list[dict[str, Any]]:
    """Return a query's latency on each system, by part; the time of the host's work is multiplied."""
    rates, sizes = case.rates, case.sizes
    host, offloaded = case.host.times[query], filtered_tables(query)
    used = [name for name in TABLES if re.search(rf"\b{name}\b", QUERIES[query])]
    rest = [name for name in used if name not in host.passes]
    link = _link_bytes_per_s()
    rows = []
    for system in (HOST, *ENGINES):
        if system == HOST:
            device, cpu, tables = 0.0, host.alone_s, used
        else:
            device = sum(count * sizes[name] / rates[offloaded[name], system] for name, count in host.passes.items())
            cpu, tables = host.after_s, rest
        parts = {"device": device, "link": sum(sizes[name] for name in tables) / link, "host": slower * cpu / CORES}
        rows += [{"query": query, "system": system, "part": part, "ms": 1e3 * value} for part, value in parts.items()]
    return rows


def run(context: Context) -> Result:
    """Measure the scans on every engine, and stack them with the host's times."""
    known = hosts()
    queries = [query for query in context["queries"] if all(query in one.times for one in known)]
    names = sorted({filtered_tables(q)[table] for one in known for q in queries for table in one.times[q].passes})
    folder = context["folder"] or None
    given = {"scan_bytes": context["bytes"], "scale": context["scale"], "folder": folder}
    cases = [(name, engine, "stated", given, context.seed) for name in names for engine in ENGINES]
    found = context.map(run_scan, cases, "scans on engines")
    rates = {(one["function"], one["engine"]): one["GBps"] * 1e9 for one in found}
    paths = files(context["scale"], None if folder is None else Path(folder))
    readings = [
        _case(one, rates, queries, {k: path.stat().st_size / context["scale"] for k, path in paths.items()})
        for one in known
    ]
    case = readings[0]
    parts = [row for query in queries for row in _latencies(query, case)]
    whole = case.whole
    causes = [_cause(case, slower) for slower in SLOWER]
    causes.append(_cause(case, _slower_for(1.9, case)))
    speeds = _speeds(case)
    gains = {query: whole[query, "Baseline"] / whole[query, "Sb"] for query in queries}
    return Result(
        tables={
            "parts": parts,
            "latency": [
                {"query": query, "system": system, "ms": ms, "speedup": whole[query, "Baseline"] / ms}
                for (query, system), ms in whole.items()
            ],
            "means": [
                {
                    "system": system,
                    "speedup": geomean(whole[query, "Baseline"] / whole[query, system] for query in queries),
                }
                for system in (HOST, *ENGINES)
            ],
            "hosts": [_reading(one) for one in readings],
            "causes": causes,
            "speeds": speeds,
        },
        answers=_answers(case, gains),
        figures=[
            Figure(
                id="fig7_14",
                title="Figure 7.14: latency of queries",
                kind="bar",
                table="latency",
                x="query",
                y="ms",
                series="system",
                y_label="ms",
                caption="Scans in the device and work of the host, one after the other.",
            )
        ],
        misfits=_misfits(gains, parts, causes, speeds),
        assumptions=[
            *ASSUMPTIONS,
            f"The host's part is CPU time of {case.host.versions} on one thread at scale factor {case.host.scale:g}, "
            f"over {CORES} cores, measured once (tpch/host.toml); the dissertation has SparkSQL at 10, of no version.",
            f"{len(queries)} queries with a filtered scan of an offloaded table are shown; a table without one is read "
            "as text by the host in every system.",
        ],
    )


def _case(host: Host, rates: _Rates, queries: Sequence[int], bytes_of_1: Mapping[str, float]) -> Case:
    """Return the case of a host, with tables of its own scale factor."""
    return Case(host, rates, {name: int(size * host.scale) for name, size in bytes_of_1.items()}, queries)


def _reading(case: Case) -> dict[str, Any]:
    """Return the figures with the times of one host."""
    whole, one = case.whole, _cause(case, 1.0)
    gains = [whole[query, "Baseline"] / whole[query, "Sb"] for query in case.queries]
    return {
        "host": case.host.versions,
        "scale": case.host.scale,
        "Baseline_over_host": one["Baseline_over_host"],
        "Sb_over_Baseline": one["Sb_over_Baseline"],
        "least": min(gains),
        "most": max(gains),
        "host_GBps": _speeds(case)[0]["GBps"],
    }


def _whole(parts: Sequence[Mapping[str, Any]]) -> dict[tuple[int, str], float]:
    """Return milliseconds of each query on each system."""
    found: dict[tuple[int, str], float] = {}
    for one in parts:
        key = one["query"], one["system"]
        found[key] = found.get(key, 0.0) + one["ms"]
    return found


def _cause(case: Case, slower: float) -> dict[str, Any]:
    """Return the figures with the time of the host's work multiplied."""
    queries = case.queries
    whole = _whole([row for query in queries for row in _latencies(query, case, slower)])
    return {
        "host_slower": slower,
        "Baseline_over_host": geomean(whole[query, HOST] / whole[query, "Baseline"] for query in queries),
        "Sb_over_Baseline": geomean(whole[query, "Baseline"] / whole[query, "Sb"] for query in queries),
    }


def _slower_for(gain: float, case: Case) -> float:
    """Return how many times as long the host's work has to take for Baseline to gain so much over it."""
    low, high = 0.1, 100.0
    for _ in range(40):
        middle = math.sqrt(low * high)
        is_enough = _cause(case, middle)["Baseline_over_host"] >= gain
        low, high = (low, middle) if is_enough else (middle, high)
    return high


def _speeds(case: Case) -> list[dict[str, Any]]:
    """Return text a second that the filtered scans pass on each system: on the host, by the time that they spare."""
    queries, times = case.queries, case.host.times
    text = {query: sum(count * case.sizes[name] for name, count in times[query].passes.items()) for query in queries}
    spared = {query: times[query].alone_s - times[query].after_s for query in queries}
    found = [{"system": f"{HOST}, {CORES} cores", "GBps": CORES * sum(text.values()) / sum(spared.values()) / 1e9}]
    for system in ENGINES:
        seconds = sum(
            one["ms"] / 1e3
            for query in queries
            for one in _latencies(query, case)
            if (one["system"], one["part"]) == (system, "device")
        )
        found.append({"system": system, "GBps": sum(text.values()) / seconds / 1e9})
    return found


def _answers(case: Case, gains: Mapping[int, float]) -> list[Answer]:
    note = f"the host's part is that of {case.host.versions}"
    return [
        Answer("zou.assasin.fig7_14.e2e", geomean(gains.values()), note=note),
        Answer("zou.assasin.fig7_14.e2e_range#least", min(gains.values()), note=note),
        Answer("zou.assasin.fig7_14.e2e_range#most", max(gains.values()), note=note),
        Answer("zou.assasin.fig7_14.offload", _cause(case, 1.0)["Baseline_over_host"], note=note),
    ]


def _misfits(
    gains: Mapping[int, float],
    parts: Sequence[Mapping[str, Any]],
    causes: Sequence[Mapping[str, Any]],
    speeds: Sequence[Mapping[str, Any]],
) -> list[str]:
    mean = geomean(gains.values())
    device = [sum(one["ms"] for one in parts if one["system"] == "Baseline" and one["part"] == part) for part in _PARTS]
    shares = ", ".join(f"{part} {100 * ms / sum(device):.0f} %" for part, ms in zip(_PARTS, device, strict=True))
    speed = {one["system"]: one["GBps"] for one in speeds}
    wanted = causes[-1]
    return [
        f"Sb over Baseline is {mean:.2f}; of Baseline's time in all queries together: {shares}.",
        f"The host's {CORES} cores scan {next(iter(speed.values())):.2f} GB/s of text, and Baseline's eight "
        f"{speed['Baseline']:.2f}. With a host that takes {wanted['host_slower']:.1f} times as long, Baseline gains "
        f"{wanted['Baseline_over_host']:.2f} over it, and Sb {wanted['Sb_over_Baseline']:.2f} over Baseline.",
    ]


_PARTS = ("device", "link", "host")

EXPERIMENT = Experiment(
    id="assasin.queries",
    title="ASSASIN, Figure 7.14: latency of TPC-H's queries with scans in the device",
    question="How much faster does a whole query run whose scans the device does?",
    run=run,
    claims=("zou.assasin.fig7_14.e2e", "zou.assasin.fig7_14.e2e_range", "zou.assasin.fig7_14.offload"),
    parameters={
        "queries": Parameter(sorted(QUERIES), "queries", small=[6, 14]),
        "bytes": Parameter(2 << 20, "bytes of a table's text that a scan is measured on, at most", small=1 << 18),
        "scale": Parameter(0.1, "TPC-H's scale factor of the scans", small=0.01, deep=1.0),
        "folder": Parameter("", "folder of TPC-H's files; the cache's if empty"),
    },
    devices=("assasin-baseline", "assasin-prefetch", "assasin-sp", "assasin-sb", "assasin-sb-cache"),
    minutes=1.0,
)
