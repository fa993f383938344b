"""Figure 3 of FlashAbacus: serial parts, and where time and energy of the conventional system go.

3(b) and 3(c) vary the serial share of a kernel and the number of cores; nothing but Amdahl's law is in them. 3(d) and
3(e) run each kernel of Table 2 once behind the host, and calibrate two numbers of the platform.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nandarray.lab.experiment import Answer, Context, Experiment, Figure, PaperPoint, Parameter, Result
from nandarray.model import accelerator
from nandarray.model.accelerator import Block, Phantom
from nandarray_papers.flashabacus.systems import CALIBRATED, PARAMETERS, Sizes, calibrated
from nandarray_papers.flashabacus.workloads import APPS

__all__ = ["EXPERIMENT"]

_INTENSIVE = ("ATAX", "BICG", "MVT")
_COMPUTE = ("SYRK", "3MM")


def _serial(share: float, cores: int) -> dict[str, Any]:
    """Return throughput and utilisation of a kernel with a serial share."""
    cycles = 1e9
    blocks = tuple(
        one for one in (Block(cores, cycles * (1 - share), 0), Block(1, cycles * share, 0)) if one.cycles > 0
    )
    found = accelerator.run(
        [Phantom("serial", 1 << 20, blocks)], "simd", {"workers": cores, "host_stack_ns_per_kib": 0}
    )
    compute = sum(one["end"] - one["start"] for one in found["spans"] if one["worker"] == 0)
    used = sum(one["end"] - one["start"] for one in found["spans"]) / (compute * cores)
    return {"serial": share, "cores": cores, "seconds": compute, "utilisation": used}


def parts(name: str, sizes: Sizes) -> dict[str, Any]:
    """Return one kernel's bytes and seconds of computing behind the host."""
    one = sizes.phantom(name)
    found = accelerator.run([one], "simd", calibrated())
    return {
        "kernel": name,
        "MiB": one.bytes / 2**20,
        "seconds": found["seconds"],
        "ssd_s": found["host_ssd"],
        "stack_s": found["host_stack"],
        "pcie_s": found["host_pcie"],
        "compute_s": found["seconds"] - found["host_ssd"] - found["host_stack"] - found["host_pcie"],
        "movement_J": found["energy_movement"],
        "computation_J": found["energy_computation"],
        "storage_J": found["energy_storage"],
        "transfer_share": (found["host_ssd"] + found["host_stack"] + found["host_pcie"]) / found["seconds"],
        "energy_share": (found["energy_movement"] + found["energy_storage"])
        / (found["energy_movement"] + found["energy_storage"] + found["energy_computation"]),
    }


def _mean(rows: Sequence[Mapping[str, Any]], column: str, names: Sequence[str] = ()) -> float:
    wanted = [one[column] for one in rows if not names or one["kernel"] in names]
    return float(sum(wanted) / len(wanted)) if wanted else 0.0


def _fit(of: Any, wanted: float, high: float) -> float:
    """Return where an increasing function has a value."""
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if of(middle) < wanted else (low, middle)
    return high


def _fitted(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the storage stack's cost and the host's power with which 3(d) and 3(e) are the paper's."""
    now = calibrated()

    def transfer(cost: float) -> float:
        shares = []
        for one in rows:
            if one["kernel"] in _INTENSIVE:
                moved = one["ssd_s"] + one["pcie_s"] + one["stack_s"] * cost / now["host_stack_ns_per_kib"]
                shares.append(moved / (moved + one["compute_s"]))
        return float(sum(shares) / len(shares))

    stack = _fit(transfer, 0.77, 1e6)

    def energy(power: float) -> float:
        shares = []
        for one in rows:
            seconds = one["seconds"] + one["stack_s"] * (stack / now["host_stack_ns_per_kib"] - 1)
            idle = now["worker_idle_share"] * 0.8 * 6 + 0.7
            rest = one["movement_J"] - now["host_w"] * one["seconds"]
            moved = one["storage_J"] + rest * seconds / one["seconds"] + power * seconds
            computed = one["computation_J"] + idle * (seconds - one["seconds"])
            shares.append(moved / (moved + computed))
        return float(sum(shares) / len(shares))

    return {"host_stack_ns_per_kib": stack, "host_w": _fit(energy, 0.85, 1e4)}


def run(context: Context) -> Result:
    """Vary serial shares; take the conventional system's time and energy apart."""
    shares = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    serial = [_serial(share, cores) for cores in range(1, 9) for share in shares]
    ideal = {one["cores"]: one["seconds"] for one in serial if one["serial"] == 0}
    serial = [{**one, "throughput": ideal[one["cores"]] / one["seconds"]} for one in serial]
    sizes = Sizes.of(context)
    rows = context.map(parts, [(name, sizes) for name in context["kernels"]], "kernels")
    at = {(one["serial"], one["cores"]): one for one in serial}
    lost = sum(at[0.3, cores]["throughput"] for cores in range(1, 9)) / 8
    low = at[0.3, 8]["utilisation"] < 0.46 and at[0.1, 8]["utilisation"] <= 0.59  # noqa: PLR2004
    compute = [one["energy_share"] for one in rows if one["kernel"] in _COMPUTE]
    answers = [
        Answer(
            "flashabacus.fig3.serial30", lost, note="Amdahl's law: nothing is calibrated, and nothing else is shown"
        ),
        Answer("flashabacus.fig3c.utilisation", bool(low), note="eight cores"),
        Answer("flashabacus.fig3d.transfer_share", _mean(rows, "transfer_share", _INTENSIVE), calibrated=True),
        Answer("flashabacus.fig3e.stack_energy", _mean(rows, "energy_share"), calibrated=True),
        Answer(
            "flashabacus.fig3e.compute_kernels",
            bool(compute) and min(compute) > 0.77,  # noqa: PLR2004
            input=True,
            note="that host and memory take one power during the whole run was taken from these kernels",
        ),
        Answer("flashabacus.intro.transfer_time", _mean(rows, "transfer_share")),
        Answer("flashabacus.intro.transfer_energy", _mean(rows, "energy_share"), calibrated=True),
    ]
    fitted = [{"name": key, "fitted": value, "used": calibrated()[key]} for key, value in _fitted(rows).items()]
    return Result(
        tables={"serial": serial, "parts": rows, "calibration": fitted},
        answers=answers,
        figures=_FIGURES,
        assumptions=[
            CALIBRATED,
            "Transfers are SSD, storage stack with its copies, and PCIe; inputs and outputs, one kernel after another.",
            "Host and memory take one power during the whole run, as 3(e)'s computation-intensive kernels imply.",
        ],
        misfits=_misfits(rows),
    )


def _misfits(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    mean = _mean(rows, "transfer_share")
    longest = max(rows, key=lambda one: one["compute_s"])
    return [
        f"Transfers take {mean:.2f} of the time over all kernels (section 1 has 0.49): ours compute on scalar "
        f"RV64 code, {longest['kernel']} for {longest['compute_s']:.0f} s."
    ]


_FIGURES = [
    Figure("fig3b", "Figure 3(b): throughput", "line", "serial", "cores", "throughput", "serial", x_label="cores"),
    Figure(
        "fig3c",
        "Figure 3(c): utilisation",
        "line",
        "serial",
        "cores",
        "utilisation",
        "serial",
        x_label="cores",
        points=[PaperPoint("0.3", 8, 0.46, "3.1", "at most"), PaperPoint("0.1", 8, 0.59, "3.1", "at most")],
    ),
    Figure("fig3d", "Figure 3(d): share of time that transfers take", "bar", "parts", "kernel", "transfer_share"),
    Figure("fig3e", "Figure 3(e): share of energy of storage accesses", "bar", "parts", "kernel", "energy_share"),
]

EXPERIMENT = Experiment(
    id="flashabacus.fig3",
    title="FlashAbacus, Figure 3: serial parts, time and energy of the conventional system",
    question="Where do time and energy of an accelerator behind a host go?",
    run=run,
    claims=(
        "flashabacus.fig3.serial30",
        "flashabacus.fig3c.utilisation",
        "flashabacus.fig3d.transfer_share",
        "flashabacus.fig3e.stack_energy",
        "flashabacus.fig3e.compute_kernels",
        "flashabacus.intro.transfer_time",
        "flashabacus.intro.transfer_energy",
    ),
    parameters={
        "kernels": Parameter(list(APPS), "kernels of Table 2", small=["ATAX", "BICG", "MVT", "SYRK"]),
        **PARAMETERS,
    },
    minutes=1,
)
