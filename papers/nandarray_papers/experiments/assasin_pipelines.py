"""Section 7.2.5 of the ASSASIN dissertation: programs connected stream to stream, a stage on cores of its own.

Figure 7.8 (pages of the host or of the flash coded by Hamming(3,2) and encrypted, one core feeding the others) and
Figure 7.9 (a layer of a network per core) are run in three mappings: programs one after the other through the flash,
each core with every program in turn through DRAM, and connected, which passes DRAM by. The dissertation states no
number; results are compared byte by byte. The network's weights do not fit in one scratchpad: on one core for all
layers (``Sb$``) the cache gets them from DRAM.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

import nandarray
from nandarray import Step
from nandarray.device import Description
from nandarray.lab.experiment import Context, Experiment, Figure, Parameter, Result
from nandarray_papers.assasin.engines import ASSUMPTIONS, ENGINES, TARGET
from nandarray_papers.assasin.pipelines import LAYERS, Mapping, fused, inference, network, write_path

__all__ = ["EXPERIMENT", "run_one"]

#: One page in eight is the code's work: one core codes for up to seven that encrypt.
WRITE_MAPPINGS = {
    "in turn": Mapping("in turn"),
    "1 feeds 2": Mapping("1 feeds 2", ((0,), (1, 2))),
    "1 feeds 7": Mapping("1 feeds 7", ((0,), tuple(range(1, 8)))),
}
#: Layers of 48, 36 and 3 KiB of weights: cores in proportion to their work.
LAYER_MAPPINGS = {
    "in turn": Mapping("in turn"),
    "a layer per core": Mapping("a layer per core", ((0,), (1,), (2,))),
    "4, 3, 1 cores": Mapping("4, 3, 1 cores", ((0, 1, 2, 3), (4, 5, 6), (7,))),
}
TASK_BYTES = 16 << 10
_RECORDS = 16
_IN_FLASH = ("flash", "Sb")


def _cores(mapping: str) -> int:
    return 3 if mapping in ("1 feeds 2", "a layer per core") else 8


def run_one(pipeline: str, mapping: str, where: tuple[str, str], size: int, seed: int) -> dict[str, Any]:
    """Run a pipeline in one mapping: a row, and the sum of the output's bytes for comparison.

    The pipeline is Figure 7.8's ``"write path"`` or 7.9's ``"network"``, with ``size`` bytes of input. The mapping is
    one of the mappings, or ``"one after the other"``; ``"one program"`` of the network. ``where`` has ``"flash"`` or
    ``"host"`` for the inputs (outputs go into the flash), and an engine of Table 7.3.
    """
    source, engine = where
    device = ENGINES[engine].description(compute__cores=_cores(mapping))
    if mapping == "one program":
        # No scratchpad holds all weights: the cache gets them.
        device = device.with_({"compute.core.scratchpad_bytes": 0})
    rng = np.random.default_rng(seed)
    coded = pipeline == "write path"
    if coded:
        data, out = rng.integers(0, 256, size, np.uint8), (size * 3 // 2, "u1")
    else:
        data, out = rng.integers(-128, 128, size, np.int8), (size // LAYERS[0] * LAYERS[-1], "i1")
    steps = _steps(pipeline, mapping, seed)
    found = _timed(device, data, out, steps, host=source == "host", apart=mapping == "one after the other")
    return {"pipeline": pipeline, "mapping": mapping, "source": source, "engine": engine, "bytes": size, **found}


def _steps(pipeline: str, mapping: str, seed: int) -> Any:
    """Return a function that makes the last step of a source."""
    if pipeline == "write path":
        chosen = WRITE_MAPPINGS.get(mapping, Mapping(mapping))
        return lambda source: write_path(source, chosen, TASK_BYTES, TARGET)
    layers = network(seed)
    if mapping == "one program":
        whole = fused(layers)
        return lambda source: whole.on(source).using(task_bytes=_RECORDS * LAYERS[0])
    chosen = LAYER_MAPPINGS.get(mapping, Mapping(mapping))
    return lambda source: inference(source, layers, chosen, _RECORDS)


def _timed(
    device: Description, data: np.ndarray[Any, Any], out: tuple[int, str], make: Any, *, host: bool, apart: bool
) -> dict[str, Any]:
    with nandarray.open(device=device, mode="w", seed=1) as store:
        store["input"] = data
        target = store.create("output", (out[0],), out[1])
        store.flush()
        store.clock.settle()
        before, first = store.clock.now, store.report().data
        step = make(data if host else store["input"])
        if apart:
            _one_after_the_other(store, step, target)
        else:
            nandarray.offload(step, out=target)
        seconds = store.clock.now - before
        cores = store.report()["programs"]["timed_cores"]
        dram = cores["dram_bytes"] - (first.get("programs", {}).get("timed_cores") or {}).get("dram_bytes", 0)
        spent = dict(cores["seconds_by_reason"])
        count = device.resolved["compute"]["cores"]
        result = np.asarray(target[...])
    return {
        "cores": count,
        "GBps": data.nbytes / seconds / 1e9,
        "MBps_a_core": data.nbytes / seconds / 1e6 / count,
        "dram_bytes_a_byte": dram / data.nbytes,
        "pages_between_cores": cores["pages_between_cores"],
        "cores_busy": 1 - spent.get("stream_wait", 0.0) / (sum(spent.values()) or 1.0),
        "output": zlib.crc32(result.tobytes()),
    }


def _one_after_the_other(store: nandarray.Store, last: Step, target: Any) -> None:
    """Run each step of a chain by itself; what it gives is stored, and read by the next."""
    chain: list[Step] = [last]
    while not hasattr(chain[0].inputs[0], "dtype") or hasattr(chain[0].inputs[0], "step"):
        chain.insert(0, chain[0].inputs[0].step)
    source = chain[0].inputs[0]
    for number, step in enumerate(chain):
        port = step.program.outputs[0]
        size = source.size // step.program.inputs[0]["record_bytes"] * port["record_bytes"]
        is_last = number == len(chain) - 1
        to = target if is_last else store.create(f"between{number}", (size,), port["dtype"])
        scalars = dict(zip((one["name"] for one in step.program.scalars), step._scalars, strict=True))
        task_bytes = step.settings["task_bytes"]
        nandarray.offload(step.program, [source], scalars, out=to, task_bytes=task_bytes)
        source = to


def run(context: Context) -> Result:
    """Run both pipelines in all mappings."""
    size, records, seed = context["bytes"], context["records"], context.seed
    cases: list[tuple[Any, ...]] = [
        ("write path", mapping, (source, "Sb"), size, seed)
        for source in ("flash", "host")
        for mapping in ("one after the other", *WRITE_MAPPINGS)
    ]
    network_bytes = records * LAYERS[0]
    cases += [
        ("network", mapping, _IN_FLASH, network_bytes, seed) for mapping in ("one after the other", *LAYER_MAPPINGS)
    ]
    cases.append(("network", "one program", ("flash", "Sb$"), network_bytes, seed))
    rows = context.map(run_one, cases, "pipelines in mappings")
    given = {(one["pipeline"], one["output"]) for one in rows}
    if len(given) != len({one["pipeline"] for one in rows}):
        raise AssertionError(f"outputs of a pipeline differ between mappings: {sorted(given)}")
    rows = [{**{key: value for key, value in one.items() if key != "output"}, "what": _label(one)} for one in rows]
    # The best that one core can do by itself: both programs in turn; of the network, whose weights do not fit, one
    # program behind a cache.
    alone = {"write path": "in turn", "network": "one program"}
    single = {
        (one["pipeline"], one["source"]): one["MBps_a_core"] for one in rows if one["mapping"] == alone[one["pipeline"]]
    }
    rows = [{**one, "over_one_core": one["MBps_a_core"] / single[one["pipeline"], one["source"]]} for one in rows]
    return Result(
        tables={"pipelines": rows},
        figures=[
            Figure(
                id="per_core",
                title="Throughput a core of pipelines, by mapping",
                kind="bar",
                table="pipelines",
                x="mapping",
                y="MBps_a_core",
                series="what",
                y_label="MB/s of input a core",
            ),
            Figure(
                id="dram",
                title="Bytes through DRAM for each byte of input",
                kind="bar",
                table="pipelines",
                x="mapping",
                y="dram_bytes_a_byte",
                series="what",
                y_log=True,
                y_label="bytes of DRAM",
            ),
        ],
        assumptions=[
            *ASSUMPTIONS,
            "Cores of a connected stage hold what they gave in their output buffers (S x P pages) until a reader takes "
            "it; tasks are 16 KiB, or 16 records.",
            "Weights are part of a layer's program and lie in the scratchpad; loading a program takes no time. So a "
            "network in turn exchanges weights for nothing: one program behind a cache is what one core can do.",
        ],
        misfits=[],
    )


def _label(one: dict[str, Any]) -> str:
    return f"{one['pipeline']} from {one['source']}"


EXPERIMENT = Experiment(
    id="assasin.pipelines",
    title="ASSASIN, Figures 7.8 and 7.9: programs connected stream to stream",
    question="What does it gain to pass pages from core to core instead of through DRAM?",
    run=run,
    claims=(),
    parameters={
        "bytes": Parameter(1 << 20, "bytes that are coded and encrypted", small=1 << 17, deep=8 << 20),
        "records": Parameter(512, "records of the network", small=64, deep=4096),
    },
    devices=("assasin-sb", "assasin-sb-cache"),
    minutes=1.0,
)
