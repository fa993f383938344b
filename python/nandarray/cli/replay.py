"""``nandarray replay``: a trace or a synthetic workload on a described device, under the modelled clock.

The work is done by :func:`nandarray.replay`; this file has options, a progress bar and tables.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from nandarray import device
from nandarray.cli.common import Json, console, facts_of, parse_pairs, parse_size, print_json, table_of
from nandarray.cli.device import Settings, complete_device
from nandarray.model.replay import Replay, Synthetic, Trace, replay
from nandarray.model.replay_rows import LATENCIES, energy_rows, facts, promise_rows, throughput_rows
from nandarray.units import scaled

__all__ = ["replay_command"]

_THOUSANDS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


def _sizes(texts: list[str] | None) -> int | dict[int, float]:
    """Read sizes: "4KiB", or several like "4KiB:3" with how often each comes."""
    found: dict[int, float] = {}
    for text in texts or ["4KiB"]:
        size, _, weight = text.partition(":")
        try:
            found[parse_size(size)] = float(weight or 1)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not SIZE or SIZE:WEIGHT") from None
    return found


def _rate(text: str | None, sizes: int | dict[int, float]) -> float | None:
    """Read requests a second ("20k") or bytes a second ("400MB/s"), the latter at the sizes' average."""
    if text is None:
        return None
    number, slash, _ = text.strip().partition("/")
    if slash:
        weights = sizes if isinstance(sizes, dict) else {sizes: 1.0}
        mean = sum(size * weight for size, weight in weights.items()) / sum(weights.values())
        return parse_size(number) / mean
    digits = number.rstrip("kKmMgG")
    try:
        return float(digits) * _THOUSANDS[number[len(digits) :].lower()]
    except (ValueError, KeyError):
        raise typer.BadParameter(f"{text!r} is not a rate: write it like 20k or 400MB/s") from None


def _pair(text: str | None, what: str) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        first, second = (float(part) for part in text.split(":"))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not {what}") from None
    return first, second


def _state(text: str) -> str | float:
    if text in {"empty", "full", "steady"}:
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not empty, full, steady or a number of overwrites") from None


TraceFile = Annotated[
    Path | None,
    typer.Argument(help="An fio iolog, blkparse text or MSR Cambridge CSV, gzipped or not.", metavar="[TRACE]"),
]
DeviceName = Annotated[
    str,
    typer.Option("--device", "-d", metavar="NAME", help="A preset, or a TOML file.", autocompletion=complete_device),
]
IsSynthetic = Annotated[bool, typer.Option("--synthetic", help="Generate requests instead of reading a trace.")]
Precondition = Annotated[
    str,
    typer.Option(
        metavar="STATE",
        help="The device before the run: empty, full, steady, or the number of times it was overwritten at random.",
    ),
]
Requests = Annotated[int | None, typer.Option(min=1, help="Most requests to replay.")]
Depth = Annotated[int | None, typer.Option(min=1, help="Requests in flight at all times (synthetic: 32).")]
TimeScale = Annotated[float, typer.Option(help="Factor for the recorded times of a trace.")]
Format = Annotated[
    str | None,
    typer.Option(help="Format of the trace: fio, blktrace or msr; recognised by its first line if left out."),
]
Issued = Annotated[bool, typer.Option("--issued", help="Take a blktrace's requests as the driver got them, merged.")]
ReadShare = Annotated[float, typer.Option(min=0, max=1, help="Share of requests that read (synthetic).")]
TrimShare = Annotated[float, typer.Option(min=0, max=1, help="Share of requests that trim (synthetic).")]
FlushEvery = Annotated[int, typer.Option(min=0, help="Writes between flushes, 0 for none (synthetic).")]
Size = Annotated[
    list[str] | None,
    typer.Option(metavar="SIZE[:WEIGHT]", help="Size of requests (synthetic); may be repeated.", show_default="4KiB"),
]
Sequential = Annotated[bool, typer.Option("--sequential", help="Request places in order, not at random (synthetic).")]
Streams = Annotated[int, typer.Option(min=1, help="Number of streams, each with a queue pair (synthetic).")]
Zipf = Annotated[float | None, typer.Option(help="Zipf skew of the places, like 0.99 (synthetic).")]
Hot = Annotated[
    str | None,
    typer.Option(
        metavar="SPACE:SHARE",
        help="Hot part of the space: 0.2:0.8 sends 80 % of the requests to 20 % of it (synthetic).",
    ),
]
Rate = Annotated[
    str | None,
    typer.Option(metavar="RATE", help="Arrivals a second, like 20k or 400MB/s (synthetic)."),
]
Poisson = Annotated[bool, typer.Option("--poisson", help="Let requests arrive at random at that rate (synthetic).")]
WorkingSet = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Bytes in use, the whole device if left out (synthetic).")
]
Seconds = Annotated[float | None, typer.Option(help="Modelled seconds after which the run ends (synthetic).")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of random choices, in workload and device.")]
Timeline = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Write a timeline for ui.perfetto.dev."),
]
TraceWindow = Annotated[
    str | None,
    typer.Option(metavar="FROM:UNTIL", help="Only these modelled seconds of the timeline."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]


def replay_command(
    *,
    trace_file: TraceFile = None,
    device_name: DeviceName,
    settings: Settings = None,
    synthetic: IsSynthetic = False,
    precondition: Precondition = "full",
    requests: Requests = None,
    depth: Depth = None,
    time_scale: TimeScale = 1.0,
    format: Format = None,  # noqa: A002
    issued: Issued = False,
    read_share: ReadShare = 1.0,
    trim_share: TrimShare = 0.0,
    flush_every: FlushEvery = 0,
    size: Size = None,
    sequential: Sequential = False,
    streams: Streams = 1,
    zipf: Zipf = None,
    hot: Hot = None,
    rate: Rate = None,
    poisson: Poisson = False,
    working_set: WorkingSet = None,
    seconds: Seconds = None,
    seed: Seed = 1,
    timeline: Timeline = None,
    trace_window: TraceWindow = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Replay a trace, or synthetic requests, on a described device: time, throughput, latency and energy."""
    if (trace_file is None) != synthetic:
        raise typer.BadParameter("give either a TRACE or --synthetic")
    workload: Trace | Synthetic
    if trace_file is not None:
        workload = Trace(
            trace_file, format=_format(format), time_scale=time_scale, depth=depth, requests=requests, issued=issued
        )
    else:
        sizes = _sizes(size)
        workload = Synthetic(
            requests=requests if requests is not None or seconds is not None else 100_000,
            seconds=seconds,
            read_share=read_share,
            trim_share=trim_share,
            flush_every=flush_every,
            size=sizes,
            pattern="sequential" if sequential else "random",
            zipf=zipf,
            hot=_pair(hot, "SPACE:SHARE, like 0.2:0.8"),
            depth=32 if depth is None else depth,
            rate=_rate(rate, sizes),
            poisson=poisson,
            working_set=None if working_set is None else parse_size(working_set),
            streams=streams,
            seed=seed,
        )
    _run(
        workload,
        device.load(device_name).with_(parse_pairs(settings, "KEY=VALUE")),
        quiet=quiet,
        as_json=as_json,
        precondition=_state(precondition),
        seed=seed,
        timeline=timeline,
        timeline_window=_pair(trace_window, "FROM:UNTIL, like 0:0.001"),
    )


def _format(name: str | None) -> Any:
    if name not in {None, "fio", "blktrace", "msr"}:
        raise typer.BadParameter(f"{name!r} is not fio, blktrace or msr")
    return name


def _run(
    workload: Trace | Synthetic, described: device.Description, *, quiet: bool, as_json: bool, **options: Any
) -> None:
    with _progress(quiet=quiet or as_json) as show:
        done = replay(workload, device=described, progress=show, **options)
    if as_json:
        print_json(done.data)
    else:
        _show(done)


@contextmanager
def _progress(*, quiet: bool) -> Generator[Callable[[str, float | None, int, int, float], None] | None]:
    """Show a bar on standard error if that is a terminal."""
    out = console(stderr=True)
    if quiet or not out.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[done]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def show(phase: str, share: float | None, requests: int, moved: int, seconds: float) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=None if share is None else 1.0, done="")
            done = f"{requests:,} requests, {scaled(moved, 'B')}, {seconds:.4g} s" if requests else ""
            bars.update(tasks[phase], completed=share or 0.0, done=done)

        yield show


def _show(done: Replay) -> None:
    out, data = console(), done.data
    out.print(f"{done.description.name}: {escape(done.description.summary)}\n", soft_wrap=True)
    headings = ("requests", "IOPS", "throughput", *(f"{heading} us" for heading in LATENCIES.values()))
    out.print(table_of(("", *headings), throughput_rows(data), right=headings, whole=[""]))
    out.print()
    parts = [f"{name} {share:.0%}" for name, _, share in energy_rows(data)]
    rows = [("modelled time", scaled(data["elapsed_s"], "s")), *facts(data)]
    rows.append(("energy by part", ", ".join(parts) or "none"))
    rows += [
        (f"{what}, data sheet", f"{there} (here {here}, {apart})") for what, here, there, apart in promise_rows(data)
    ]
    rows += [("note", escape(note)) for note in data["notes"]]
    out.print(facts_of(rows))
