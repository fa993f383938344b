"""Replays: a workload on a described device, under the modelled clock.

The workload is a trace file, a :class:`Synthetic` one, or :class:`Boxes` of an array that lies row by row; the result
is a :class:`Replay`, which shows itself in a terminal and in a notebook. The native module does all of the work; this
file names the settings and reads the report, whose keys are described in
``docs/reference/replay-report.md``.

No store takes part: only times and energies are modelled, no byte is kept.
"""

from __future__ import annotations

import json
import math
import numbers
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nandarray import _nandarray
from nandarray.device import Description, load
from nandarray.errors import InvalidError
from nandarray.inputs import open_input

__all__ = ["Boxes", "Replay", "Synthetic", "Trace", "replay"]

Progress = Callable[[str, float | None, int, int, float], object]


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """A synthetic workload; the defaults are 4 KiB random reads of the whole device, 32 at a time.

    Parameters
    ----------
    requests : int, optional
        Number of requests after which the run ends; ``requests``, ``bytes`` or ``seconds`` is needed.
    bytes : int, optional
        Bytes requested after which the run ends.
    seconds : float, optional
        Modelled seconds after which the run ends.
    read_share : float
        Share of requests that read; the others write, unless they trim.
    trim_share : float
        Share of requests that trim.
    flush_every : int
        Number of writes between flushes; 0 is never.
    size : int or mapping
        Bytes of a request, a multiple of 512; or sizes, each with its share of the requests.
    pattern : {"random", "sequential"}
        Places of requests: anywhere, or each stream through its part of the working set, round and round.
    zipf : float, optional
        Zipf skew of places: that of rank r is requested in proportion to 1 / r**zipf.
    hot : (float, float), optional
        Share of the space, and the share of the requests that goes there.
    depth : int
        Number of requests in flight at all times, unless there is a rate.
    rate : float, optional
        Arrivals a second, whatever the device is doing.
    poisson : bool
        Arrivals at random times at the rate, instead of evenly.
    align : int, optional
        Bytes of which offsets are multiples; the request's own size if left out.
    offset : int
        Byte at which the working set begins.
    working_set : int, optional
        Bytes of the working set; to the end of the device if left out.
    streams : int
        Number of streams: sequential walks, each with a queue pair, to which random requests are dealt.
    seed : int
        Seed of the workload's random generator.

    Examples
    --------
    >>> import nandarray
    >>> mixed = nandarray.Synthetic(requests=1000, read_share=0.7, size={4096: 3, 16384: 1}, zipf=0.99)
    >>> mixed.settings()["sizes"]
    [{'bytes': 4096, 'weight': 3.0}, {'bytes': 16384, 'weight': 1.0}]
    """

    requests: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    read_share: float = 1.0
    trim_share: float = 0.0
    flush_every: int = 0
    size: int | Mapping[int, float] = 4096
    pattern: Literal["random", "sequential"] = "random"
    zipf: float | None = None
    hot: tuple[float, float] | None = None
    depth: int = 32
    rate: float | None = None
    poisson: bool = False
    align: int | None = None
    offset: int = 0
    working_set: int | None = None
    streams: int = 1
    seed: int = 1

    def settings(self) -> dict[str, Any]:
        """Return the workload as the native module reads it.

        Returns
        -------
        dict
            Plain numbers and texts.
        """
        sizes = self.size if isinstance(self.size, Mapping) else {self.size: 1.0} if _is_number(self.size) else None
        if sizes is None:
            raise InvalidError(f"size must be bytes, or how often each of several sizes comes, not {self.size!r}")
        if self.pattern not in ("random", "sequential"):
            raise InvalidError(f"pattern must be 'random' or 'sequential', not {self.pattern!r}")
        return {
            "read_share": _number("read_share", self.read_share),
            "trim_share": _number("trim_share", self.trim_share),
            "flush_every": _whole("flush_every", self.flush_every),
            "sizes": [
                {"bytes": _whole("size", size), "weight": _number(f"weight of size {size}", weight)}
                for size, weight in sizes.items()
            ],
            "pattern": self.pattern,
            "skew": self._skew(),
            "arrival": self._arrival(),
            "align_bytes": _maybe(_whole, "align", self.align),
            "offset_bytes": _whole("offset", self.offset),
            "working_set_bytes": _maybe(_whole, "working_set", self.working_set),
            "streams": _whole("streams", self.streams),
            "requests": _maybe(_whole, "requests", self.requests),
            "bytes": _maybe(_whole, "bytes", self.bytes),
            "seconds": _maybe(_number, "seconds", self.seconds),
            "seed": _whole("seed", self.seed),
        }

    def _skew(self) -> dict[str, Any]:
        if self.zipf is not None and self.hot is not None:
            raise InvalidError("a workload must have a Zipf skew or hot places, not both")
        if self.zipf is not None:
            return {"kind": "zipf", "theta": _number("zipf", self.zipf)}
        if self.hot is None:
            return {"kind": "uniform"}
        space, requests = _pair("hot", self.hot)
        return {"kind": "hot-cold", "space": space, "requests": requests}

    def _arrival(self) -> dict[str, Any]:
        if self.rate is not None:
            return {"kind": "poisson" if self.poisson else "constant", "per_s": _number("rate", self.rate)}
        if self.poisson:
            raise InvalidError("arrivals by chance need a rate")
        return {"kind": "closed", "depth": _whole("depth", self.depth)}


@dataclass(frozen=True)
class Trace:
    """A trace file, gzipped or not, and how it is replayed. It is read as it is replayed, so it may be any size.

    Parameters
    ----------
    path : str or path
        An fio iolog (version 2 or 3), blkparse text, or CSV as of the MSR Cambridge traces.
    format : {"fio", "blktrace", "msr"}, optional
        Format of the trace; recognised by its first line if left out.
    time_scale : float
        Factor for the recorded times: 0.5 is twice as fast.
    depth : int, optional
        Number of requests in flight at all times, whatever times were recorded.
    requests : int, optional
        Most requests to replay.
    issued : bool
        Choice of a blktrace's requests: those as the driver got them (D), merged, instead of as they were submitted
        (Q).

    Examples
    --------
    >>> import nandarray
    >>> with open("trace.csv", "w") as file:
    ...     print("128166372003061629,hm,0,Read,0,4096,100", file=file)
    >>> run = nandarray.replay(nandarray.Trace("trace.csv", format="msr"), device="mqsim-ideal")
    >>> run["flash"]["senses"]["host"]
    1
    """

    path: str | os.PathLike[str]
    format: Literal["fio", "blktrace", "msr"] | None = None
    time_scale: float = 1.0
    depth: int | None = None
    requests: int | None = None
    issued: bool = False

    def settings(self) -> dict[str, Any]:
        """Return the trace as the native module reads it.

        Returns
        -------
        dict
            Plain numbers and texts.
        """
        if self.format not in (None, "fio", "blktrace", "msr"):
            raise InvalidError(f"format must be 'fio', 'blktrace' or 'msr', not {self.format!r}")
        return {
            "format": self.format,
            "time_scale": _number("time_scale", self.time_scale),
            "depth": _maybe(_whole, "depth", self.depth),
            "requests": _maybe(_whole, "requests", self.requests),
            "blktrace_event": "issued" if self.issued else "queued",
        }


@dataclass(frozen=True, kw_only=True)
class Boxes:
    """Boxes of an array that lies row by row on a conventional device: what a program without spaces has to ask for.

    A box is as many requests as it has contiguous runs, or more where a run is longer than ``request_max``. Boxes
    follow one another without a pause. For an array stored column by column, turn shape and boxes around.

    Parameters
    ----------
    shape : sequence of int
        Elements along each dimension, the last of which lies together.
    itemsize : int
        Bytes of an element.
    boxes : sequence of sequence of slice
        Boxes to read or write: a slice with start and stop for each dimension.
    write : bool
        Whether they are written instead of read.
    depth : int
        Requests on their way at all times, from one queue pair.
    request_max : int
        The most bytes of a request, a multiple of 512.
    offset : int
        Byte of the device at which the array begins.

    Examples
    --------
    >>> import nandarray
    >>> columns = nandarray.Boxes(shape=(4096, 4096), itemsize=8, boxes=[(slice(0, 4096), slice(0, 512))], depth=2)
    >>> run = nandarray.replay(columns, device="mqsim-ideal")
    >>> run["read"]["requests"], run["read"]["bytes"]
    (4096, 16777216)
    """

    shape: Sequence[int]
    itemsize: int
    boxes: Sequence[Sequence[slice]]
    write: bool = False
    depth: int = 32
    request_max: int = 1 << 20
    offset: int = 0

    def settings(self) -> dict[str, Any]:
        """Return the workload as the native module reads it.

        Returns
        -------
        dict
            Plain numbers.
        """
        parts = []
        for box in self.boxes:
            if any(s.start is None or s.stop is None or s.step not in {None, 1} or s.stop < s.start for s in box):
                raise InvalidError(f"a box must be a slice from start to stop for each dimension, not {tuple(box)}")
            parts.append({"start": [int(s.start) for s in box], "count": [int(s.stop - s.start) for s in box]})
        return {
            "write": bool(self.write),
            "shape": [int(n) for n in self.shape],
            "item_bytes": int(self.itemsize),
            "offset_bytes": int(self.offset),
            "boxes": parts,
            "request_bytes_max": int(self.request_max),
            "depth": int(self.depth),
        }


class Replay:
    """The result of a replay.

    Attributes
    ----------
    data : dict
        All of it; the keys are described in ``docs/reference/replay-report.md``.
    description : Description
        The device.

    Examples
    --------
    >>> import nandarray
    >>> run = nandarray.replay(nandarray.Synthetic(requests=500, depth=1), device="mqsim-ideal")
    >>> run["read"]["requests"], round(run["read"]["latency"]["p50_us"])
    (500, 89)
    """

    def __init__(self, data: dict[str, Any], description: Description) -> None:
        self.data = data
        self.description = description

    def __getitem__(self, key: str) -> Any:
        """Return a part of the report."""
        return self.data[key]

    @property
    def hash(self) -> str:
        """Hash of everything that happened: two runs with equal hashes did the same at the same times."""
        return str(self.data["hash"])

    def __repr__(self) -> str:
        done = self.data["all"]
        return (
            f"<nandarray.Replay on {self.data['device']!r}: {done['requests']:,} requests in "
            f"{self.data['elapsed_s']:.4g} s, {done['iops']:,.0f} IOPS, {done['bytes_per_s'] / 1e6:,.1f} MB/s>"
        )

    def _repr_html_(self) -> str:
        from nandarray.model.replay_html import replay_html

        return replay_html(self)


def _is_number(value: Any) -> bool:
    """Tell whether a value is a number of Python or of NumPy; a truth value is none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _whole(name: str, value: Any) -> int:
    """Return a whole number of at most 64 bits; refuse anything else by its name."""
    if not _is_number(value) or not 0 <= value < 2**64 or value != int(value):
        raise InvalidError(f"{name} must be a whole number from 0 to {2**64 - 1:,}, not {_shown(value)}")
    return int(value)


def _number(name: str, value: Any) -> float:
    """Return a finite number; refuse anything else by its name."""
    if not _is_number(value) or not math.isfinite(value):
        raise InvalidError(f"{name} must be a finite number, not {_shown(value)}")
    return float(value)


def _pair(name: str, value: Any) -> tuple[float, float]:
    """Return two finite numbers."""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:  # noqa: PLR2004
        raise InvalidError(f"{name} must be two numbers, not {value!r}")
    return _number(f"number 0 of {name}", value[0]), _number(f"number 1 of {name}", value[1])


def _maybe(check: Callable[[str, Any], Any], name: str, value: Any) -> Any:
    """Check a value unless it is left out."""
    return None if value is None else check(name, value)


def _shown(value: Any) -> str:
    return str(value) if _is_number(value) else repr(value)


def _workload(workload: str | os.PathLike[str] | Trace | Synthetic | Boxes) -> dict[str, Any]:
    if isinstance(workload, Synthetic):
        return {"synthetic": workload.settings()}
    if isinstance(workload, Boxes):
        return {"boxes": workload.settings()}
    trace = workload if isinstance(workload, Trace) else Trace(workload)
    path = Path(trace.path)
    with open_input(path):  # what cannot be opened is an error that names the file
        return {"trace": {"path": str(path), "settings": trace.settings()}}


def _precondition(state: str | float) -> dict[str, Any]:
    if isinstance(state, str) and state in {"empty", "full"}:
        return {"kind": state}
    if state == "steady":
        return {"kind": "laid-out"}
    if isinstance(state, str):
        raise InvalidError(
            f"a device must be 'empty', 'full', 'steady' or overwritten a number of times before, not {state!r}"
        )
    return {"kind": "steady", "overwrites": _number("precondition", state)}


def _window(window: Any) -> tuple[float, float | None]:
    """Return the ends of a timeline's window; None is its own end, of which there is none."""
    if isinstance(window, str) or not isinstance(window, Sequence) or len(window) != 2:  # noqa: PLR2004
        raise InvalidError(f"timeline_window must be two numbers, not {window!r}")
    begin, end = (_maybe(_number, f"number {n} of timeline_window", one) for n, one in enumerate(window))
    return begin or 0.0, end


def replay(
    workload: str | os.PathLike[str] | Trace | Synthetic | Boxes,
    *,
    device: str | Path | Description,
    precondition: str | float = "full",
    seed: int = 1,
    timeline: str | os.PathLike[str] | None = None,
    timeline_spans: int = 10_000_000,
    timeline_window: Sequence[float] | None = None,
    progress: Progress | None = None,
) -> Replay:
    """Replay a workload on a described device, under the modelled clock.

    Parameters
    ----------
    workload : str, path, Trace, Synthetic or Boxes
        A trace file, what to make up, or boxes of an array.
    device : str, path or Description
        The name of a preset, a description's file, or a description.
    precondition : {"empty", "full", "steady"} or float
        The device before the first request: as it leaves the factory, filled once in order, laid out as long random
        overwrites leave it, or filled and then overwritten at random by a multiple of its capacity. Takes no modelled
        time; "steady" takes little wall-clock time, too.
    seed : int
        Seed of the device's random generators. The same seed, description and workload give the same report.
    timeline : str or path, optional
        Write what was busy when to this file, which https://ui.perfetto.dev opens.
    timeline_spans : int
        Most spans to record, about 50 bytes each.
    timeline_window : (float, float), optional
        Only what is busy between these modelled seconds.
    progress : callable, optional
        Called now and then with the phase ("preconditioning" or "replaying"), the share of it that is done (None if
        unknown), requests and bytes that have ended, and modelled seconds.

    Returns
    -------
    Replay
        The report.

    Raises
    ------
    InvalidError
        If a setting is out of range, or a line of the trace malformed; the message names the line.
    DescriptionError
        If the device is not described.
    OSError
        If the trace cannot be read, or the timeline not be written.

    Examples
    --------
    >>> import nandarray
    >>> reads = nandarray.Synthetic(requests=2000, depth=16)
    >>> run = nandarray.replay(reads, device="mqsim-ideal")
    >>> run["all"]["failed"], run["flash"]["senses"]["host"]
    (0, 2000)
    """
    settings: dict[str, Any] = {
        "workload": _workload(workload),
        "precondition": _precondition(precondition),
        "seed": _whole("seed", seed),
    }
    if timeline is not None:
        begin, end = (0.0, None) if timeline_window is None else _window(timeline_window)
        settings["timeline"] = {
            "path": os.fspath(timeline),
            "spans_max": _whole("timeline_spans", timeline_spans),
            "from_s": begin,
            "until_s": end,
        }
    description = load(device)
    report = _nandarray.replay(description.to_toml(), json.dumps(settings), progress)
    return Replay(json.loads(report), description)
