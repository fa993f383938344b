"""Whether throughput depends on the size of an input, for the experiments of ASSASIN and CoDEN.

The dissertation's inputs have gigabytes, the other experiments' megabytes: small enough for minutes. Here the same
functions and kernels run over a quarter, a half, the whole and twice the bytes that those experiments take, and
throughput is set beside that of the largest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nandarray.lab.experiment import Context, Experiment, Figure, Parameter, Result
from nandarray_papers.experiments import assasin_engines, coden_kernels

__all__ = ["EXPERIMENT", "run_one"]

#: Bytes that the other experiments take.
_BYTES = {"Stat": 32 << 20, "RAID6": 32 << 20, "AES": 2 << 20, "6l": 4 << 20}
_KERNEL_BYTES = 1 << 20
#: Difference of throughput from that of the largest input that is named.
_SAME = 0.05


def run_one(kind: str, name: str, factor: float, given: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Measure a function, scan or kernel on inputs of ``factor`` times the bytes of the other experiments.

    ``kind`` is an engine of ASSASIN, or ``"C66x"``. ``given`` has ``scale``, ``folder`` and ``shrink``, a divisor of
    all sizes. Bytes and megabytes a second are returned.
    """
    if kind == "C66x":
        size = int(_KERNEL_BYTES * factor) // given["shrink"]
        one = coden_kernels.run_one(name, "float32", size, seed)
        return {"kind": kind, "what": name, "factor": factor, "bytes": size, "MBps": size / one["seconds"] / 1e6}
    size = int(_BYTES[name] * factor) // given["shrink"]
    sizes = {"bytes": size, "aes_bytes": size, "scan_bytes": size}
    one = assasin_engines.run_one(name, kind, "stated", {**sizes, **given}, seed)
    return {"kind": kind, "what": name, "factor": factor, "bytes": one["bytes"], "MBps": 1e3 * one["GBps"]}


def run(context: Context) -> Result:
    """Measure every function and kernel on every size."""
    given = {key: context[key] for key in ("scale", "folder", "shrink")}
    works = [(kind, name) for kind in ("Baseline", "Sb") for name in context["functions"]]
    works += [("C66x", name) for name in context["kernels"]]
    factors = sorted(context["factors"])
    cases = [(kind, name, factor, given, context.seed) for kind, name in works for factor in factors]
    rows = context.map(run_one, cases, "sizes")
    largest = {(one["kind"], one["what"]): one["MBps"] for one in rows if one["factor"] == factors[-1]}
    for one in rows:
        one["of_largest"] = one["MBps"] / largest[one["kind"], one["what"]]
        one["run"] = f"{one['what']} on {one['kind']}"
    return Result(
        tables={"sizes": rows},
        figures=[
            Figure(
                id="sizes",
                title="Throughput over that of the largest input",
                kind="line",
                table="sizes",
                x="factor",
                y="of_largest",
                series="run",
                x_log=True,
                x_label="bytes over those of the other experiments",
                y_label="of the throughput of the largest",
            )
        ],
        assumptions=["Inputs are those of assasin.engines and coden.kernels; the factor 1 is their size."],
        misfits=_misfits(rows),
    )


def _misfits(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"{one['run']}, {one['bytes'] >> 10} KiB: {one['of_largest']:.2f} of the throughput of the largest input."
        for one in rows
        if one["factor"] >= 1 and abs(one["of_largest"] - 1) > _SAME
    ]


EXPERIMENT = Experiment(
    id="assasin.sizes",
    title="ASSASIN and CoDEN: throughput over the size of an input",
    question="Is throughput on megabytes that on more of them?",
    run=run,
    parameters={
        "functions": Parameter(sorted(_BYTES), "functions and scans", small=["Stat"]),
        "kernels": Parameter(["add", "scan", "log", "atan2"], "kernels of CoDEN", small=["log"]),
        "factors": Parameter(
            [0.25, 0.5, 1.0, 2.0], "bytes over those of the other experiments", deep=[0.25, 0.5, 1, 2, 4]
        ),
        "shrink": Parameter(1, "divisor of all sizes", small=32),
        "scale": Parameter(0.1, "TPC-H's scale factor", small=0.01, deep=1.0),
        "folder": Parameter("", "folder of TPC-H's files; the cache's if empty"),
    },
    devices=("assasin-baseline", "assasin-sb"),
    minutes=0.5,
)
