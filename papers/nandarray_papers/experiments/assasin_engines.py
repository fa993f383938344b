"""Figures 7.12, 7.13, 7.20, 7.21 and Table 7.4 of the ASSASIN dissertation: functions and scans on five engines.

Stat, RAID4, RAID6 and AES run over random bytes, the 26 filtered scans of TPC-H over its text (the second of two equal
ones once), each on Baseline, Prefetch, Sp, Sb and Sb$ of Table 7.3 with eight cores. Section 7.3.6's two adjustments of
timing are inputs; throughput after them is measured again. Two changes tell what binds the functions, one at a time:
DRAM of ten times the rate for Baseline, and flash out of the way for Sp and Sb (table ``causes``). Areas and powers are
those of the devices' parts, which are inputs; that they add up to the totals of Table 7.4 is what is compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nandarray.lab.experiment import Answer, Context, Experiment, Figure, Parameter, Result
from nandarray_papers.assasin.engines import ASSUMPTIONS, ENGINES, adjusted
from nandarray_papers.assasin.measure import measure, row
from nandarray_papers.assasin.work import FUNCTIONS, function, scan, scan_names

__all__ = ["EXPERIMENT", "run_one"]

#: Functions of which the text gives speed-ups; AES has no number.
STATED = ("Stat", "RAID4", "RAID6")
#: Compute cores of every engine.
CORES = 8
#: Changes of a device that take a bound away: DRAM ten times as fast; channels eight times, with reads of 1 us.
_FAST_DRAM = {"dram__rate": "80 GB/s"}
_FAST_FLASH = {"bus__rate": "8 GB/s", "nand__t_read": "1 us"}
#: Milliwatts and square millimetres of the eight engines with their memories, by engine.
_Costs = Mapping[str, tuple[float, float]]


def run_one(name: str, what: str, timing: str, given: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Run one function or scan on the engine ``what``; return a row, and the report of the device.

    The timing is ``"stated"``, Table 7.3's, or ``"adjusted"``, as section 7.3.6 has it. ``given`` has ``bytes``,
    ``aes_bytes``, ``scan_bytes``, ``scale``, ``folder``, and ``changes`` of the description, if any.
    """
    one = adjusted(what) if timing == "adjusted" else ENGINES[what]
    if name in FUNCTIONS:
        work = function(name, given["aes_bytes"] if name == "AES" else given["bytes"], seed)
    else:
        work = scan(name, given["scan_bytes"], given["scale"], given["folder"] or None)
    found = measure(one.description(**given.get("changes", {})), work, one.kind, seed=seed)
    cost = {"power_mW": found["power_mW"], "area_mm2": found["area_mm2"]}
    return {**row(one, work, found, timing=timing, **cost), "report": found["report"]}


def geomean(values: Iterable[float]) -> float:
    """Return the geometric mean."""
    listed = list(values)
    return math.exp(sum(map(math.log, listed)) / len(listed))


def speedups(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return throughput of each row over Baseline's of the same function, which nothing adjusts."""
    base = {one["function"]: one["GBps"] for one in rows if one["engine"] == "Baseline" and one["timing"] == "stated"}
    return [{**one, "speedup": one["GBps"] / base[one["function"]]} for one in rows]


def run(context: Context) -> Result:
    """Measure every function and scan on every engine."""
    names = [*FUNCTIONS, *context["scans"]]
    given = {key: context[key] for key in ("bytes", "aes_bytes", "scan_bytes", "scale", "folder")}
    cases = [(name, engine, "stated", given, context.seed) for name in names for engine in ENGINES]
    cases += [(name, engine, "adjusted", given, context.seed) for name in names for engine in ("Sp", "Sb")]
    measured = context.map(run_one, cases, "functions and scans on engines")
    changed = [
        (name, engine, timing, {**given, "changes": _FAST_DRAM if engine == "Baseline" else _FAST_FLASH}, context.seed)
        for name in STATED
        for engine, timing in _CHANGED
    ]
    faster = context.map(run_one, changed, "functions without a bound")
    reports = {
        f"{one['engine'].replace('$', '-cache')}-{one['function']}": one["report"] for one in measured if _shown(one)
    }
    rows = speedups([{key: value for key, value in one.items() if key != "report"} for one in measured])
    for one in rows:
        one["what"] = one["engine"] if one["timing"] == "stated" else f"{one['engine']}, adjusted"
    by = {(one["function"], one["engine"], one["timing"]): one["speedup"] for one in rows}
    means = [_means(by, context["scans"], timing) for timing in ("stated", "adjusted")]
    cost = {one["engine"]: (one["power_mW"], one["area_mm2"]) for one in rows if one["timing"] == "stated"}
    efficiency = _efficiency(means[1], cost)
    return Result(
        tables={
            "throughput": rows,
            "means": [one for some in means for one in some],
            "efficiency": efficiency,
            "causes": (causes := _causes(rows, faster)),
        },
        answers=[
            *_functions(by),
            *_scans(by, context["scans"]),
            *_adjusted(by, means),
            *_costs(efficiency, cost),
            *_traffic(rows),
            *_printed(measured),
        ],
        figures=_figures(),
        reports=reports,
        assumptions=ASSUMPTIONS,
        misfits=_misfits(rows, causes),
    )


def _shown(one: Mapping[str, Any]) -> bool:
    return one["function"] in ("Stat", "6l") and one["timing"] == "stated"


_By = Mapping[tuple[str, str, str], float]


def _means(by: _By, scans: Sequence[str], timing: str) -> list[dict[str, Any]]:
    found = []
    for engine in ENGINES:
        if timing == "adjusted" and engine not in ("Sp", "Sb"):
            continue
        for group, members in (("functions", STATED), ("TPC-H", scans)):
            mean = geomean(by[name, engine, timing] for name in members)
            what = group if timing == "stated" else f"{group}, adjusted"
            found.append({"group": group, "engine": engine, "timing": timing, "what": what, "speedup": mean})
    return found


def _functions(by: _By) -> list[Answer]:
    found = []
    for name in STATED:
        found += [
            Answer(f"zou.assasin.fig7_12.bypass#{name}-Sp", by[name, "Sp", "stated"]),
            Answer(f"zou.assasin.fig7_12.bypass#{name}-Sb", by[name, "Sb", "stated"], paper=(1.4, 2.1)),
            Answer(f"zou.assasin.fig7_12.sb_over_sp#{name}", by[name, "Sb", "stated"] / by[name, "Sp", "stated"]),
            Answer(f"zou.assasin.fig7_12.sb_cache#{name}", by[name, "Sb$", "stated"] / by[name, "Sb", "stated"]),
        ]
    gains = [by[name, "Sb", "stated"] for name in FUNCTIONS]
    ratio = geomean(by[name, "Sb", "stated"] / by[name, "Sp", "stated"] for name in STATED)
    little = all(by[name, "Prefetch", "stated"] < by[name, "Sp", "stated"] for name in ("Stat", "RAID4"))
    return [
        *found,
        Answer("zou.assasin.fig7_12.sb", all(1.4 / 1.15 <= by[name, "Sb", "stated"] <= 2.1 * 1.15 for name in STATED)),
        Answer("zou.assasin.fig7_12.sb_over_sp", ratio, note="geometric mean of the three"),
        Answer("zou.assasin.fig7_12.intensity", gains == sorted(gains, reverse=True)),
        Answer("zou.assasin.fig7_12.prefetch", little, note="judged as: less than the ping-pong scratchpad gains"),
    ]


def _scans(by: _By, scans: Sequence[str]) -> list[Answer]:
    def mean(engine: str) -> float:
        return geomean(by[name, engine, "stated"] for name in scans)

    each = [by[name, "Sb", "stated"] for name in scans]
    return [
        Answer("zou.assasin.fig7_13.psf_prefetch", mean("Prefetch")),
        Answer("zou.assasin.fig7_13.psf_sp", mean("Sp")),
        Answer("zou.assasin.fig7_13.psf_sb", mean("Sb")),
        Answer("zou.assasin.fig7_13.sb_over_sp", mean("Sb") / mean("Sp")),
        Answer("zou.assasin.fig7_13.sb_range#least", min(each)),
        Answer("zou.assasin.fig7_13.sb_range#most", max(each)),
    ]


def _adjusted(by: _By, means: Sequence[Sequence[Mapping[str, Any]]]) -> list[Answer]:
    found = [Answer("zou.assasin.fig7_20.clock", 0.89, input=True, note="a parameter of the adjusted engines")]
    tpch = {one["engine"]: one["speedup"] for one in means[1] if one["group"] == "TPC-H"}
    values = {engine: [*(by[name, engine, "adjusted"] for name in STATED), tpch[engine]] for engine in ("Sp", "Sb")}
    for engine, ends in (("Sb", (1.5, 2.4)), ("Sp", (1.1, 1.4))):
        found += [
            Answer(f"zou.assasin.fig7_20.adjusted#{engine}-{name}", value, paper=ends)
            for name, value in zip((*STATED, "TPC-H"), values[engine], strict=True)
        ]
    over = geomean(sb / sp for sb, sp in zip(values["Sb"], values["Sp"], strict=True))
    every = geomean([*(by[name, "Sb", "adjusted"] for name in STATED), tpch["Sb"]])
    return [
        *found,
        Answer("zou.assasin.fig7_20.sb_over_sp", over, note="geometric mean of Stat, RAID4, RAID6 and TPC-H"),
        Answer("zou.assasin.geomean", every, note="of Stat, RAID4, RAID6 and TPC-H after adjustment"),
    ]


def _efficiency(means: Sequence[Mapping[str, Any]], cost: _Costs) -> list[dict[str, Any]]:
    """Speed-up per watt and per area, as section 7.3.7 has them: of all that was evaluated."""
    sb = geomean(one["speedup"] for one in means if one["engine"] == "Sb")
    (power, area), (base_power, base_area) = cost["Sb"], cost["Baseline"]
    return [
        {
            "speedup": sb,
            "power_efficiency": sb * base_power / power,
            "area_efficiency": sb * base_area / area,
            "power_mW": power,
            "area_mm2": area,
        }
    ]


def _costs(efficiency: Sequence[Mapping[str, Any]], cost: _Costs) -> list[Answer]:
    one = efficiency[0]
    stated = {
        "baseline_mW": cost["Baseline"][0],
        "baseline_mm2": cost["Baseline"][1],
        "assasin_mW": cost["Sb"][0],
        "assasin_mm2": cost["Sb"][1],
    }
    return [
        Answer("zou.assasin.fig7_21.power", one["power_efficiency"], note="measured speed-up, powers of the parts"),
        Answer("zou.assasin.fig7_21.area", one["area_efficiency"], note="measured speed-up, areas of the parts"),
        *(
            Answer(f"zou.assasin.table7_4.{name}", value, input=True, note="sum of the parts, which are inputs")
            for name, value in stated.items()
        ),
    ]


def _traffic(rows: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """Bytes through DRAM for a byte of input: on Baseline, and on Sb beside it."""
    moved = {(one["function"], one["engine"]): one["dram_bytes_a_byte"] for one in rows if one["timing"] == "stated"}
    names = sorted({one["function"] for one in rows})
    left = {name: moved[name, "Sb"] / moved[name, "Baseline"] for name in names}
    most = max(left, key=lambda name: left[name])
    return [
        Answer("zou.assasin.dram_demand", moved["Stat", "Baseline"], note="bytes a byte of Stat's input, on Baseline"),
        Answer(
            "zou.assasin.dram_saved",
            left[most] <= 1 / 2,
            note=f"the most that Sb leaves of Baseline's traffic is {left[most]:.2f}, of {most}",
        ),
    ]


#: Numbers of the text about UDP, which has another instruction set and no public simulator.
_UDP = {"fig7_13.psf_udp": 1.3, "table7_4.udp_mW": 14.333, "table7_4.udp_mm2": 1.444, "fig7_21.udp": True}


def _printed(measured: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """Inputs: parts and times that descriptions have from the text; the text's numbers about UDP."""
    report = next(one["report"] for one in measured if one["engine"] == "Sb" and one["timing"] == "stated")
    timed = report["programs"]["timed_cores"]
    area = {part["name"]: part["area_mm2"] for part in timed["components"]}
    crossbar = area["crossbar"] / (area["pipeline"] / CORES)
    return [
        Answer("zou.assasin.table7_4.crossbar", crossbar, input=True, note="areas of parts, which are inputs"),
        Answer(
            "zou.assasin.fig7_19.sb_ns", 0.5, input=True, note="a stream's access beyond a cycle, of zou-2023-stream"
        ),
        Answer("zou.assasin.fig7_19.sp_cycles", 2, input=True, note="a parameter of the adjusted Sp"),
        *(
            Answer(f"zou.assasin.{name}", value, input=True, note="of the text; UDP is not simulated")
            for name, value in _UDP.items()
        ),
    ]


def _figures() -> list[Figure]:
    return [
        Figure(
            id="fig7_12",
            title="Figures 7.12 and 7.13: throughput of functions and scans",
            kind="bar",
            table="throughput",
            x="function",
            y="GBps",
            series="what",
            y_label="GB/s of input, eight cores",
        ),
        Figure(
            id="fig7_20",
            title="Figures 7.12, 7.13 and 7.20: speed-up over Baseline",
            kind="bar",
            table="means",
            x="engine",
            y="speedup",
            series="what",
            y_label="over Baseline, geometric mean",
        ),
    ]


_CHANGED = (("Baseline", "stated"), *((engine, timing) for engine in ("Sp", "Sb") for timing in ("stated", "adjusted")))


def _causes(rows: Sequence[Mapping[str, Any]], faster: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return speed-ups over Baseline: as described, Baseline with fast DRAM, the others with fast flash, and both."""
    as_described, without = (
        {(one["function"], one["engine"], one["timing"]): one["GBps"] for one in some} for some in (rows, faster)
    )
    found = []
    for change, base, others in (
        ("as described", as_described, as_described),
        ("Baseline's DRAM of 80 GB/s", without, as_described),
        ("Sp, Sb with flash out of the way", as_described, without),
        ("both", without, without),
    ):
        some: list[dict[str, Any]] = []
        for name in STATED:
            by = {pair: others[name, *pair] / base[name, "Baseline", "stated"] for pair in _CHANGED[1:]}
            some.append({"change": change, "function": name, **_columns(by)})
        means = {key: geomean(one[key] for one in some) for key in some[0] if key not in ("change", "function")}
        found += [*some, {"change": change, "function": "geometric mean", **means}]
    return found


def _columns(by: Mapping[tuple[str, str], float]) -> dict[str, float]:
    return {
        "Sp": by["Sp", "stated"],
        "Sb": by["Sb", "stated"],
        "Sb_over_Sp": by["Sb", "stated"] / by["Sp", "stated"],
        "Sp_adjusted": by["Sp", "adjusted"],
        "Sb_adjusted": by["Sb", "adjusted"],
        "Sb_over_Sp_adjusted": by["Sb", "adjusted"] / by["Sp", "adjusted"],
    }


def _misfits(rows: Sequence[Mapping[str, Any]], causes: Sequence[Mapping[str, Any]]) -> list[str]:
    said = []
    by = {(one["change"], one["function"]): one for one in causes}
    for one in rows:
        if (
            one["engine"] == "Sb"
            and one["timing"] == "stated"
            and one["function"] in STATED
            and not 1.4 / 1.15 <= one["speedup"] <= 2.1 * 1.15
        ):
            alone = by["Baseline's DRAM of 80 GB/s", one["function"]]
            said.append(
                f"{one['function']} on Sb is {one['speedup']:.2f} times as fast as Baseline, whose eight cores share "
                f"DRAM of 8 GB/s. Where Baseline's DRAM has ten times the rate, it is {alone['Sb']:.2f} times as fast "
                f"(Sp {alone['Sp']:.2f}). The dissertation simulated one core and its DRAM alone."
            )
    was, free = (by[change, "geometric mean"] for change in ("as described", "Sp, Sb with flash out of the way"))
    return [
        *said,
        f"Flash hides what Sb gains on Sp: it is {was['Sb_over_Sp']:.2f} as described and {free['Sb_over_Sp']:.2f} "
        f"with flash out of the way, after adjustment {was['Sb_over_Sp_adjusted']:.2f} and "
        f"{free['Sb_over_Sp_adjusted']:.2f} (geometric means of {', '.join(STATED)}).",
    ]


EXPERIMENT = Experiment(
    id="assasin.engines",
    title="ASSASIN, Figures 7.12, 7.13, 7.20, 7.21: functions and scans on five compute engines",
    question="How much faster do functions and TPC-H's scans run where cores read streams instead of DRAM?",
    run=run,
    claims=(
        "zou.assasin.fig7_12.sb",
        "zou.assasin.fig7_12.bypass",
        "zou.assasin.fig7_12.sb_over_sp",
        "zou.assasin.fig7_12.sb_cache",
        "zou.assasin.fig7_12.prefetch",
        "zou.assasin.fig7_12.intensity",
        "zou.assasin.fig7_13.psf_prefetch",
        "zou.assasin.fig7_13.psf_sp",
        "zou.assasin.fig7_13.psf_sb",
        "zou.assasin.fig7_13.sb_over_sp",
        "zou.assasin.fig7_13.sb_range",
        "zou.assasin.fig7_20.adjusted",
        "zou.assasin.fig7_20.clock",
        "zou.assasin.fig7_20.sb_over_sp",
        "zou.assasin.fig7_21.power",
        "zou.assasin.fig7_21.area",
        "zou.assasin.geomean",
        "zou.assasin.table7_4.baseline_mW",
        "zou.assasin.table7_4.baseline_mm2",
        "zou.assasin.table7_4.assasin_mW",
        "zou.assasin.table7_4.assasin_mm2",
        "zou.assasin.table7_4.crossbar",
        "zou.assasin.fig7_19.sb_ns",
        "zou.assasin.fig7_19.sp_cycles",
        "zou.assasin.dram_demand",
        "zou.assasin.dram_saved",
        *(f"zou.assasin.{name}" for name in _UDP),
    ),
    parameters={
        "bytes": Parameter(32 << 20, "bytes of Stat's and RAID's inputs: whole rounds of 8 x 16 tasks", small=1 << 20),
        "aes_bytes": Parameter(2 << 20, "bytes of AES's input", small=1 << 17),
        "scan_bytes": Parameter(4 << 20, "bytes of a table's text, at most", small=1 << 18, deep=16 << 20),
        "scale": Parameter(0.1, "TPC-H's scale factor", small=0.01, deep=1.0),
        "scans": Parameter(scan_names(), "scans", small=["6l", "3c"]),
        "folder": Parameter("", "folder of TPC-H's files; the cache's if empty"),
    },
    devices=("assasin-baseline", "assasin-prefetch", "assasin-sp", "assasin-sb", "assasin-sb-cache"),
    minutes=4.0,
)
