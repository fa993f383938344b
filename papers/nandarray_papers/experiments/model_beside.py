"""Latency of the host's reads while a program runs on the device, over the rate at which they arrive.

The host reads 4 KiB at random places of one array, at a steady rate, while the device's cores scan another. Each rate
is run twice, with the program and without it, on the same places: the difference is what the program costs the host,
and the program's throughput beside that without reads is what the host costs the program. It answers no paper's claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import nandarray
import nandarray.programs
from nandarray.device import Description, load
from nandarray.lab.experiment import Context, Experiment, Figure, Parameter, Result
from nandarray_papers.assasin.engines import TARGET

__all__ = ["EXPERIMENT", "Case", "measure"]

READ_BYTES = 4096
_TABLE_BYTES = 16 << 20


def _arrivals(store: nandarray.Store, rate: float, seconds: float, seed: int) -> list[nandarray.Future]:
    """Submit reads of 4 KiB at a steady rate for a time from now."""
    table = store.open_array("table")
    places = np.random.default_rng(seed).integers(table.shape[0] // READ_BYTES, size=int(rate * seconds))
    futures = []
    for number, place in enumerate(places.tolist()):
        with store.clock.later(number / rate):
            futures.append(table.submit(slice(place * READ_BYTES, (place + 1) * READ_BYTES)))
    return futures


def _filled(device: Description, bytes_scanned: int, seed: int) -> nandarray.Store:
    store = nandarray.open(device=device, mode="w", seed=seed)
    chance = np.random.default_rng(seed)
    store["scanned"] = chance.integers(0, 256, bytes_scanned, dtype="u1").view("u4")
    store["table"] = chance.integers(0, 256, _TABLE_BYTES, dtype="u1")
    store.flush()
    store.clock.settle()
    return store


@dataclass(frozen=True)
class Case:
    """One run on a device with cores.

    ``program`` is the name of a ready-made one over unsigned numbers of 4 bytes, which scans ``bytes_scanned``; empty
    for reads alone. For some ``seconds``, reads arrive at a rate a second; 0 for none.
    """

    device: Description
    program: str
    bytes_scanned: int
    rate: float = 0.0
    seconds: float = 0.0


def measure(case: Case, seed: int) -> dict[str, Any]:
    """Read at a rate, beside a program or alone.

    The result has ``seconds`` of the program, and ``reads``, ``p50_us``, ``p99_us``, ``mean_us`` of those that ended
    while it ran; without a program of all of them.
    """
    with _filled(case.device, case.bytes_scanned, seed) as store:
        futures = _arrivals(store, case.rate, case.seconds, seed) if case.rate else []
        began = store.clock.now
        if case.program:
            cores = case.device.resolved["compute"]
            # A device without cores refuses the program itself.
            streams = cores is None or (cores["core"] or {}).get("input_source") == "stream"
            kind = "stream" if streams else "block"
            made = nandarray.programs.get(case.program, dtype="uint32", kind=kind, target=TARGET)
            nandarray.offload(made, [store["scanned"]])
        took = store.clock.now - began
        for future in futures:
            future.result()
        report: Mapping[str, Any] = store.report().data
    host = report["programs"].get("host_beside") if case.program else report["read"]
    latency = (host or {}).get("latency") or {}
    return {
        "seconds": took,
        "reads": (host or {}).get("requests", 0),
        **{key: latency.get(key) for key in ("mean_us", "p50_us", "p99_us")},
    }


def run(context: Context) -> Result:
    """Measure every rate on every device."""
    size, program = context["bytes_scanned"], context["program"]
    devices = {name: load(name) for name in context["devices"]}
    first = [(Case(device, program, size), context.seed) for device in devices.values()]
    alone = dict(zip(devices, context.map(measure, first, "programs alone"), strict=True))
    cases, names = [], []
    for name, device in devices.items():
        for rate in context["rates"]:
            for which in ("", program):
                case = Case(device, which, size, float(rate), alone[name]["seconds"])
                cases.append((case, context.seed))
                names.append((name, rate, bool(which)))
    rows = []
    for (name, rate, runs_program), found in zip(names, context.map(measure, cases, "rates"), strict=True):
        one = {key: value for key, value in found.items() if key != "seconds"}
        slowed = found["seconds"] / alone[name]["seconds"] if runs_program else None
        program_gbps = size / found["seconds"] / 1e9 if runs_program else None
        what = f"{name}, {'beside the program' if runs_program else 'alone'}"
        rows.append({"case": what, "reads_per_s": rate, **one, "program_GBps": program_gbps, "program_takes": slowed})
    return Result(
        tables={"rates": rows},
        figures=[
            Figure(
                id="p99",
                title="99th percentile of 4 KiB reads over their rate",
                kind="line",
                table="rates",
                x="reads_per_s",
                y="p99_us",
                series="case",
                x_label="reads a second",
                y_label="99th percentile, us",
                x_log=True,
                y_log=True,
            )
        ],
        assumptions=["Reads arrive at equal intervals, for the time that the program takes without them."],
    )


EXPERIMENT = Experiment(
    id="model.beside",
    title="Reads of the host beside a program",
    question="How long do the host's reads take while the device's cores scan, and how much slower is the scan?",
    run=run,
    parameters={
        "devices": Parameter(["assasin-sb", "assasin-baseline"], "presets with cores"),
        "program": Parameter("sum", "ready-made program"),
        "rates": Parameter([1_000, 10_000, 50_000, 100_000, 200_000], "reads a second", small=[20_000], fractions=True),
        "bytes_scanned": Parameter(32 << 20, "bytes of the program's input", small=1 << 20),
    },
    devices=("assasin-sb", "assasin-baseline"),
    minutes=2.0,
)
