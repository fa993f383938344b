"""The five systems of FlashAbacus' evaluation, on one workload: rows of a table, with the calibrated platform."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nandarray.lab.experiment import Context, Parameter
from nandarray.model import accelerator
from nandarray.model.accelerator import Phantom
from nandarray_papers.flashabacus.table2 import ALONE_INSTANCES, MIX_INSTANCES
from nandarray_papers.flashabacus.workloads import APPLICATIONS, MIXES, phantom

__all__ = ["CALIBRATED", "PARAMETERS", "SYSTEMS", "Sizes", "best", "calibrated", "mean", "row", "submitted", "workload"]

#: The conventional host, and the accelerator's four schedulers.
SYSTEMS = ("simd", "inter-static", "inter-dynamic", "intra-in-order", "intra-out-of-order")

#: Sentences for assumptions of experiments that use the calibrated platform.
CALIBRATED = (
    "Three numbers are fitted, each on one figure: the storage stack's cost a byte on 3(d), the host's power on 3(e), "
    "the idle share of a worker's power on 15(b); papers/nandarray_papers/flashabacus/calibrated.toml has them."
)


@cache
def calibrated() -> dict[str, float]:
    """Return the three fitted values of the platform, by name."""
    text = (Path(__file__).parent / "calibrated.toml").read_text()
    return {key: float(value) for key, value in tomllib.loads(text).items()}


@dataclass(frozen=True)
class Sizes:
    """The core, a preset, on which kernels are measured, and the sizes.

    ``square`` and ``cubic`` are reduced sides of kernels with quadratic, and with cubic trip counts; ``shrink`` divides
    full sides.
    """

    core: str
    square: tuple[int, int]
    cubic: tuple[int, int]
    shrink: int

    @classmethod
    def of(cls, context: Context) -> Sizes:
        """Return those of an experiment's :data:`PARAMETERS`."""
        square, cubic = context["square"], context["cubic"]
        return cls(context["core"], (square[0], square[1]), (cubic[0], cubic[1]), context["shrink"])

    def phantom(self, name: str) -> Phantom:
        """Return a kernel of Table 2, or an application, at the full size."""
        return phantom(name, self.core, self.square, self.cubic, self.shrink)


#: Parameters of experiments that have :class:`Sizes`.
PARAMETERS = {
    "core": Parameter("lwp", "preset of the timed core"),
    "square": Parameter([256, 384], "reduced sides of kernels with quadratic trip counts", small=[24, 48]),
    "cubic": Parameter([64, 128], "reduced sides of kernels with cubic trip counts", small=[12, 24]),
    "shrink": Parameter(1, "divides full sides", small=40),
}


def submitted(name: str, sizes: Sizes) -> list[Phantom]:
    """Return the kernels of a workload in the order of their submission.

    Six instances of a kernel of Table 2 or of an application of 5.6, four of each kernel of a mix.
    """
    made = {app: sizes.phantom(app) for app in MIXES.get(name, (name,))}
    if name in MIXES:
        # Instances of an application are on one worker under static scheduling: six applications, six workers.
        return [one.of(number) for _ in range(MIX_INSTANCES) for number, one in enumerate(made.values())]
    return [one.of(0) for one in made.values() for _ in range(ALONE_INSTANCES)]


def row(name: str, system: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's row of the table."""
    latencies = [kernel["latency"] for kernel in found["kernels"]]
    energy = [found[f"energy_{part}"] for part in ("movement", "computation", "storage")]
    kind = "heterogeneous" if name in MIXES else "application" if name in APPLICATIONS else "homogeneous"
    return {
        "workload": name,
        "kind": kind,
        "system": system,
        "MBps": found["bytes"] / found["seconds"] / 1e6,
        "seconds": found["seconds"],
        "flushed_seconds": found["flushed_seconds"],
        "latency_min_s": min(latencies),
        "latency_mean_s": sum(latencies) / len(latencies),
        "latency_max_s": max(latencies),
        "energy_movement_J": energy[0],
        "energy_computation_J": energy[1],
        "energy_storage_J": energy[2],
        "energy_J": sum(energy),
        "utilisation": sum(found["utilisation"]) / len(found["utilisation"]),
        "occupancy": sum(found["occupancy"]) / len(found["occupancy"]),
        "flashvisor": found["flashvisor"],
        "storengine": found["storengine"],
        "fairness": found["fairness"],
    }


def workload(name: str, sizes: Sizes) -> list[dict[str, Any]]:
    """Run a kernel of Table 2, an application of 5.6 or a mix on every system; a row for each."""
    kernels = submitted(name, sizes)
    return [row(name, system, accelerator.run(kernels, system, calibrated())) for system in SYSTEMS]


def mean(
    rows: Iterable[Mapping[str, Any]], column: str, one: str, other: str, names: Iterable[str] | None = None
) -> float:
    """Return the mean of a column's ratio of two systems, as the paper averages normalised bars."""
    by = {(found["workload"], found["system"]): found[column] for found in rows}
    wanted = list(names) if names is not None else list(dict.fromkeys(name for name, _ in by))
    return float(sum(by[name, one] / by[name, other] for name in wanted) / len(wanted))


def best(rows: Iterable[Mapping[str, Any]], name: str, system: str) -> bool:
    """Tell whether a system has the highest throughput of a workload."""
    rates = {found["system"]: found["MBps"] for found in rows if found["workload"] == name}
    return bool(rates[system] >= max(rates.values()) * (1 - 1e-9))
