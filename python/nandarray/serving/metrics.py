"""All metrics of a server: names, types, labels, help and where each comes from, in one table.

:data:`METRICS` is read by :func:`exposition`, which writes Prometheus' text form, and by the page
docs/reference/metrics.md, which :func:`page_table` writes (``python -m nandarray.serving.metrics`` prints it). An
observation is a plain dictionary: the status of a server (:meth:`nandarray.nvme.Server.status`), with what
:func:`observe` adds to it. Counting itself is the engine's (``crates/nandarray-nvme/src/metrics.rs``).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nandarray import _nandarray
from nandarray.present.plain import plain

__all__ = ["METRICS", "Metric", "exposition", "observe", "page_table"]

#: State of a server, by the keys of its status and those of :func:`observe`.
Observation = Mapping[str, Any]
#: Values of labels in the order of their names, and the number; a histogram's number is its three parts.
Sample = tuple[tuple[str, ...], Any]
#: A histogram: bounds in nanoseconds, commands by bucket (one more than bounds), sum of durations in nanoseconds.
Histogram = tuple[Sequence[int], Sequence[int], int]

#: Most characters of a label's value: names come from hosts.
_LABEL_MAX = 256
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Metric:
    """One metric: its name without the prefix, its type, its labels, what it counts, and its samples."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Callable[[Observation], Iterable[Sample]]
    labels: tuple[str, ...] = ()
    prefix: str = "nandarray_"

    @property
    def full_name(self) -> str:
        """The name in the text form."""
        return self.prefix + self.name


def _one(*keys: str) -> Callable[[Observation], list[Sample]]:
    """Return the number under some keys, one within the other; nothing where it is not."""

    def found(seen: Observation) -> list[Sample]:
        value: Any = seen
        for key in keys:
            if not isinstance(value, Mapping) or key not in value:
                return []
            value = value[key]
        return [((), value)]

    return found


def _by(key: str, inner: str | None = None) -> Callable[[Observation], list[Sample]]:
    """Return a number for each name of a dictionary, or the one that a dictionary of each has."""

    def found(seen: Observation) -> list[Sample]:
        named = seen.get(key, {})
        return [((name,), value if inner is None else value[inner]) for name, value in named.items()]

    return found


def _operations(column: int) -> Callable[[Observation], list[Sample]]:
    """Return a column of the counts of commands by tenant and kind."""
    return lambda seen: [(tuple(row[:2]), row[column]) for row in seen.get("operations", ())]


def _durations(seen: Observation) -> list[Sample]:
    bounds = seen.get("bounds_ns", ())
    return [
        ((tenant, kind), (bounds, buckets, total)) for tenant, kind, *_, total, buckets in seen.get("operations", ())
    ]


def _runs(key: str) -> Callable[[Observation], list[Sample]]:
    """Return a number of each running program."""
    return lambda seen: [((str(run["id"]), run["host"], run["programs"]), run[key]) for run in seen.get("running", ())]


_KINDS = ("tenant", "kind")
_RUN = ("run", "host", "programs")

METRICS: tuple[Metric, ...] = (
    Metric(
        "build_info",
        "gauge",
        "Version of nandarray, and the form of the server: tcp, shm or flight; always 1.",
        lambda seen: [((seen["version"], seen["transport"]), 1)],
        ("version", "transport"),
    ),
    Metric("server_start_time_seconds", "gauge", "Start of the server, in seconds since 1970.", _one("started")),
    Metric(
        "operation_duration_seconds",
        "histogram",
        "Time from the arrival of a command with its data to its completion in the server, by tenant and kind; the "
        "sending is not in it.",
        _durations,
        _KINDS,
    ),
    Metric("operations_failed_total", "counter", "Commands that ended with an error.", _operations(2), _KINDS),
    Metric("received_bytes_total", "counter", "Data of commands from hosts.", _operations(3), _KINDS),
    Metric("sent_bytes_total", "counter", "Room for data to hosts, if they succeeded.", _operations(4), _KINDS),
    Metric(
        "failures_total",
        "counter",
        "Commands that ended with an error, by the name of the NVMe status, or of that of gRPC; a full store is "
        "Capacity Exceeded.",
        _by("failures"),
        ("status",),
    ),
    Metric("commands_in_flight", "gauge", "Commands accepted and not completed.", _by("in_flight"), ("tenant",)),
    Metric(
        "workers_waiting_commands",
        "gauge",
        "Commands that wait for a worker: of long commands, or of programs.",
        _by("workers", "waiting"),
        ("workers",),
    ),
    Metric(
        "workers_blocked_commands",
        "gauge",
        "Commands that wait for another command to end, and have no worker meanwhile.",
        _by("workers", "blocked"),
        ("workers",),
    ),
    Metric("workers_busy", "gauge", "Workers that execute a command.", _by("workers", "busy"), ("workers",)),
    Metric("workers", "gauge", "Workers.", _by("workers", "workers"), ("workers",)),
    Metric("memory_bytes", "gauge", "Memory that hosts have made grow.", _one("memory_bytes")),
    Metric("memory_limit_bytes", "gauge", "Memory that hosts may make grow.", _one("memory_limit_bytes")),
    Metric(
        "tenant_memory_bytes",
        "gauge",
        "Memory that the hosts of a tenant have made grow.",
        lambda seen: [((name,), used) for name, used, _ in seen.get("tenants", ())],
        ("tenant",),
    ),
    Metric("connections", "gauge", "Open connections.", _one("connections")),
    Metric(
        "half_open_connections",
        "gauge",
        "Connections that are not yet a queue of a host that has proved its identity, where it has to.",
        _one("half_open"),
    ),
    Metric("hosts", "gauge", "Associations with hosts.", lambda seen: _counted(seen, "associations")),
    Metric(
        "refused_logins_total", "counter", "Logins of unknown hosts, or with wrong secrets.", _one("refused_logins")
    ),
    Metric(
        "unfinished_logins_total",
        "counter",
        "Connections that ended before their host had proved its identity.",
        _one("unfinished_logins"),
    ),
    Metric("running_programs", "gauge", "Runs of programs now.", lambda seen: _counted(seen, "running")),
    Metric("run_seconds", "gauge", "Time since a run that is running now began.", _runs("seconds"), _RUN),
    Metric("run_cpu_seconds", "gauge", "Processor time of its threads.", _runs("cpu_seconds"), _RUN),
    Metric("run_memory_bytes", "gauge", "Memory that its cores have for their programs.", _runs("memory_bytes"), _RUN),
    Metric("run_instructions", "gauge", "Instructions of its tasks that are done.", _runs("instructions"), _RUN),
    Metric("run_tasks_done", "gauge", "Its tasks that are done.", _runs("tasks_done"), _RUN),
    Metric(
        "paced_completions_total",
        "counter",
        "Completions of a drive that keeps pace with its model (--pace).",
        _one("pace", "completions"),
    ),
    Metric(
        "paced_late_completions_total",
        "counter",
        "Those that left late, by more than a tenth of their modelled latency.",
        _one("pace", "late"),
    ),
    Metric("paced_delay_max_seconds", "gauge", "The longest delay of one.", _one("pace", "behind_max_seconds")),
    Metric("shm_commands_total", "counter", "Commands of clients in shared memory (--shm).", _one("commands")),
    Metric("shm_clients", "gauge", "Queue pairs that a client has now (--shm).", _one("served")),
    Metric("shm_clients_dead_total", "counter", "Clients that ended without releasing theirs (--shm).", _one("dead")),
    Metric("store_file_bytes", "gauge", "Size of the store's file.", _one("store", "file_bytes")),
    Metric(
        "store_capacity_bytes",
        "gauge",
        "Size that the store's file may have; 0 is no limit but the disk's.",
        _one("store", "capacity_bytes"),
    ),
    Metric("store_live_bytes", "gauge", "Bytes in pages that are in use.", _one("store", "bytes_live")),
    Metric("store_garbage_pages", "gauge", "Pages that wait for reclaim.", _one("store", "pages_garbage")),
    Metric("store_segments_free", "gauge", "Segments that can be written.", _one("store", "segments_free")),
    Metric("store_segments_bad", "gauge", "Segments out of use.", _one("store", "segments_bad")),
    Metric("store_syncs_total", "counter", "Barriers to the medium since opening.", _one("store", "syncs")),
    Metric("store_pages_moved_total", "counter", "Pages that reclaim has moved.", _one("store", "pages_moved")),
    Metric("store_reclaims_failed_total", "counter", "Reclaims that failed.", _one("store", "reclaims_failed")),
    Metric("cpu_seconds_total", "counter", "Processor time of the process.", _one("process", "cpu"), prefix="process_"),
    Metric(
        "resident_memory_bytes",
        "gauge",
        "Memory of the process.",
        _one("process", "resident"),
        prefix="process_",
    ),
    Metric("open_fds", "gauge", "Open descriptors of the process.", _one("process", "descriptors"), prefix="process_"),
)


def _counted(seen: Observation, key: str) -> list[Sample]:
    return [((), len(seen[key]))] if key in seen else []


def observe(status: Mapping[str, Any], *, started: float, transport: str, **more: Any) -> dict[str, Any]:
    """Return what all metrics are read from: a server's status, and what is known of this process."""
    return {
        **status,
        "version": _nandarray.__version__,
        "transport": transport,
        "started": started,
        "process": _process(),
        **more,
    }


def _process() -> dict[str, float]:
    """Return the processor time, the memory and the descriptors of this process, as far as the system tells."""
    found: dict[str, float] = {"cpu": time.process_time()}
    try:
        found["resident"] = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
        found["descriptors"] = len(os.listdir("/proc/self/fd"))
    except (OSError, ValueError, IndexError):
        pass
    return found


def _label(value: str) -> str:
    """Return a label's value as the text form has it, without characters that a terminal would obey."""
    text = plain(value[:_LABEL_MAX])
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _line(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    inner = ",".join(f'{key}="{_label(given)}"' for key, given in labels)
    return f"{name}{{{inner}}} {value}" if inner else f"{name} {value}"


def _seconds(nanoseconds: int) -> str:
    """Return nanoseconds as seconds, exact."""
    text = f"{nanoseconds // 10**9}.{nanoseconds % 10**9:09d}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def _lines_of(metric: Metric, given: tuple[str, ...], value: Any) -> Iterable[str]:
    """Return the lines of one sample."""
    labels = list(zip(metric.labels, given, strict=True))
    name = metric.full_name
    if metric.type != "histogram":
        yield _line(name, labels, value)
        return
    bounds, buckets, total = value
    seen = 0
    for bound, count in zip([*map(_seconds, bounds), "+Inf"], buckets, strict=True):
        seen += count
        yield _line(f"{name}_bucket", [*labels, ("le", bound)], seen)
    yield _line(f"{name}_sum", labels, float(_seconds(total)))
    yield _line(f"{name}_count", labels, seen)


def exposition(seen: Observation) -> str:
    """Return Prometheus' text form, version 0.0.4, of all metrics that have samples.

    >>> from nandarray.serving.metrics import exposition
    >>> print(exposition({"version": "1", "transport": "tcp", "connections": 2}).splitlines()[-1])
    nandarray_connections 2
    """
    lines: list[str] = []
    for metric in METRICS:
        samples = list(metric.samples(seen))
        if samples:
            lines += [f"# HELP {metric.full_name} {metric.help}", f"# TYPE {metric.full_name} {metric.type}"]
            lines += [line for given, value in samples for line in _lines_of(metric, given, value)]
    return "\n".join(lines) + "\n"


def page_table() -> str:
    """Return the table of all metrics, as docs/reference/metrics.md has it."""
    rows = [
        f"| `{metric.full_name}` | {metric.type} | {', '.join(f'`{one}`' for one in metric.labels) or '-'} | "
        f"{re.sub(r'[|]', '/', metric.help)} |"
        for metric in METRICS
    ]
    return "\n".join(["| metric | type | labels | meaning |", "| --- | --- | --- | --- |", *rows]) + "\n"


if __name__ == "__main__":
    print(page_table(), end="")
