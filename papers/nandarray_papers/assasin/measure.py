"""One run of a function on an engine of the modelled device: throughput, the cores' cycles by reason, DRAM traffic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nandarray
from nandarray.device import Description
from nandarray_papers.assasin.engines import TARGET, Engine
from nandarray_papers.assasin.work import Work

__all__ = ["ARRAY_GBPS", "measure", "row"]

#: Eight channels of 1 GB/s.
ARRAY_GBPS = 8.0


def measure(
    device: Description, work: Work, kind: str, *, seed: int, task_bytes: int | None = None, target: str = TARGET
) -> dict[str, Any]:
    """Run a function in a form on a modelled device with timed cores, whose data lie in flash.

    ``task_bytes`` of all inputs are a task's; the work's if left out. The result has ``seconds``, ``GBps`` (of input),
    ``instructions``, ``cycles``, ``dram_bytes``, ``cores_busy``, ``reasons`` (share of all core time by reason),
    ``flash_bytes`` (read from flash), ``channel_seconds`` (in which each channel was busy), ``channels_busy`` (share of
    the time that the bytes take on channels of :data:`ARRAY_GBPS` together), ``area_mm2`` and ``power_mW`` of the
    compute engines' parts, and the ``report``.
    """
    program = work.make(kind, target)
    with nandarray.open(device=device, mode="w", seed=seed) as store:
        for number, data in enumerate(work.inputs):
            store[f"input{number}"] = data
        store.flush()
        store.clock.settle()
        arrays = [store[f"input{number}"] for number in range(len(work.inputs))]
        before, first = store.clock.now, store.report().data
        done = nandarray.offload(
            program, arrays, work.scalars, task_bytes=(task_bytes or work.task_bytes) // len(arrays)
        )
        seconds = store.clock.now - before
        report = store.report()
    read = _read_bytes(report.data) - _read_bytes(first)
    busy = [after - was for after, was in zip(_channels(report.data), _channels(first), strict=True)]
    timed: Mapping[str, Any] = report["programs"]["timed_cores"]
    spent = dict(timed["seconds_by_reason"])
    total = sum(spent.values()) or 1.0
    return {
        "seconds": seconds,
        "GBps": work.bytes / seconds / 1e9,
        "instructions": done.account.instructions,
        "instructions_a_byte": done.account.instructions / work.bytes,
        "cycles": timed["cycles"],
        "dram_bytes": max(0, _dram_bytes(report.data) - work.bytes),
        "reasons": {reason: value / total for reason, value in spent.items()},
        "core_seconds": spent,
        "flash_bytes": read,
        "channel_seconds": busy,
        "area_mm2": timed["area_mm2"],
        "power_mW": _power(timed),
        "channels_busy": read / (ARRAY_GBPS * 1e9 * seconds),
        "report": report.data,
    }


def _read_bytes(report: Mapping[str, Any]) -> int:
    """Bytes read from flash since opening."""
    return int(sum(report["flash"]["read_bytes"].values()))


def _channels(report: Mapping[str, Any]) -> list[float]:
    """Seconds in which each channel was busy since opening."""
    return [float(share) * float(report["until_rest_s"]) for share in report["utilisation"]["channels"]]


def _power(timed: Mapping[str, Any]) -> float:
    """Power of all parts of the compute engines, in milliwatts."""
    return float(sum(1e3 * one["power_w"] for one in timed["components"]))


def _dram_bytes(report: Mapping[str, Any]) -> int:
    """Bytes through DRAM since opening; the data crossed it once when they were stored."""
    timed = report.get("programs", {}).get("timed_cores") or {}
    return int(timed.get("dram_bytes", 0))


def row(engine: Engine, work: Work, found: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return a result of :func:`measure` as a row of a table, with further columns."""
    reasons = found["reasons"]
    memory = sum(reasons.get(name, 0.0) for name in ("l1", "l2", "memory", "fetch", "fetch_memory"))
    return {
        "function": work.name,
        "engine": engine.name,
        "bytes": work.bytes,
        "GBps": found["GBps"],
        "instructions_a_byte": found["instructions_a_byte"],
        "dram_bytes_a_byte": found["dram_bytes"] / work.bytes,
        "issue_share": reasons.get("issue", 0.0),
        "memory_share": memory,
        "stream_share": reasons.get("stream", 0.0) + reasons.get("scratchpad", 0.0),
        "wait_share": reasons.get("stream_wait", 0.0),
        "channels_busy": found["channels_busy"],
        **more,
    }
