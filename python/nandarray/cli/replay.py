"""``nandarray replay``: a trace or a made-up workload on a described device, under the modelled clock.

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
from rich.table import Table

from nandarray import device
from nandarray.cli.common import Json, console, parse_size, print_json
from nandarray.cli.device import Settings, complete_device, parse_settings
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


def replay_command(
    *,
    trace_file: Annotated[
        Path | None,
        typer.Argument(
            help="An fio iolog, blkparse text or MSR Cambridge CSV, gzipped or not.",
            metavar="[TRACE]",
            show_default=False,
        ),
    ] = None,
    device_name: Annotated[
        str,
        typer.Option(
            "--device", "-d", metavar="NAME", help="A preset, or a TOML file.", autocompletion=complete_device
        ),
    ],
    settings: Settings = None,
    synthetic: Annotated[
        bool, typer.Option("--synthetic", help="Make requests up instead of reading a trace.")
    ] = False,
    precondition: Annotated[
        str,
        typer.Option(metavar="STATE", help="The device before: empty, full, steady, or overwritten so many times."),
    ] = "full",
    requests: Annotated[int | None, typer.Option(min=1, help="At most so many requests.", show_default=False)] = None,
    depth: Annotated[
        int | None, typer.Option(min=1, help="So many on their way at all times (made up: 32).", show_default=False)
    ] = None,
    time_scale: Annotated[float, typer.Option(help="Of a trace: recorded times times this.")] = 1.0,
    format: Annotated[  # noqa: A002
        str | None, typer.Option(help="Of a trace: fio, blktrace or msr; told by its first line if left out.")
    ] = None,
    issued: Annotated[
        bool, typer.Option("--issued", help="Of a blktrace: requests as the driver got them, merged.")
    ] = False,
    read_share: Annotated[float, typer.Option(min=0, max=1, help="Made up: share of requests that read.")] = 1.0,
    trim_share: Annotated[float, typer.Option(min=0, max=1, help="Made up: share of requests that trim.")] = 0.0,
    flush_every: Annotated[int, typer.Option(min=0, help="Made up: a flush after so many writes.")] = 0,
    size: Annotated[
        list[str] | None,
        typer.Option(metavar="SIZE[:WEIGHT]", help="Made up: size of requests; may be repeated.", show_default="4KiB"),
    ] = None,
    sequential: Annotated[bool, typer.Option("--sequential", help="Made up: one after the other.")] = False,
    streams: Annotated[int, typer.Option(min=1, help="Made up: streams, each with a queue pair.")] = 1,
    zipf: Annotated[float | None, typer.Option(help="Made up: Zipf skew, like 0.99.", show_default=False)] = None,
    hot: Annotated[
        str | None,
        typer.Option(
            metavar="SPACE:SHARE", help="Made up: 0.2:0.8 sends 80 % to 20 % of the space.", show_default=False
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Made up: arrivals a second, like 20k or 400MB/s.", show_default=False),
    ] = None,
    poisson: Annotated[bool, typer.Option("--poisson", help="Made up: arrivals by chance, at that rate.")] = False,
    working_set: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Made up: bytes in use; the device's if left out.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Made up: ends after so much modelled time.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all chance, in workload and device.")] = 1,
    timeline: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Write a timeline for ui.perfetto.dev.", show_default=False),
    ] = None,
    trace_window: Annotated[
        str | None,
        typer.Option(metavar="FROM:UNTIL", help="Only these modelled seconds of it.", show_default=False),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
    as_json: Json = False,
) -> None:
    """Replay a trace, or requests made up, on a described device: how long it takes, and what energy."""
    if (trace_file is None) != synthetic:
        raise typer.BadParameter("give either a TRACE or --synthetic")
    workload: Trace | Synthetic
    if trace_file is not None:
        if format not in {None, "fio", "blktrace", "msr"}:
            raise typer.BadParameter(f"{format!r} is not fio, blktrace or msr")
        known: Any = format
        workload = Trace(trace_file, format=known, time_scale=time_scale, depth=depth, requests=requests, issued=issued)
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
    described = device.load(device_name).with_(parse_settings(settings))
    with _progress(quiet=quiet or as_json) as show:
        done = replay(
            workload,
            device=described,
            precondition=_state(precondition),
            seed=seed,
            timeline=timeline,
            timeline_window=_pair(trace_window, "FROM:UNTIL, like 0:0.001"),
            progress=show,
        )
    if as_json:
        print_json(done.data)
    else:
        _show(done)


@contextmanager
def _progress(*, quiet: bool) -> Generator[Callable[[str, float | None, int, int, float], None] | None]:
    """Show a bar on standard error, only where somebody looks."""
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
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("requests", "IOPS", "throughput", *(f"{heading} us" for heading in LATENCIES.values())):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in throughput_rows(data):
        table.add_row(*row)
    out.print(table)
    out.print()
    rest = Table(box=None, pad_edge=False, show_header=False)
    rest.add_column(no_wrap=True)
    rest.add_column(overflow="fold")
    rest.add_row("modelled time", scaled(data["elapsed_s"], "s"))
    for what, much in facts(data):
        rest.add_row(what, much)
    parts = [f"{name} {share:.0%}" for name, _, share in energy_rows(data)]
    rest.add_row("energy by part", ", ".join(parts) or "none")
    for what, here, there, apart in promise_rows(data):
        rest.add_row(f"{what}, data sheet", f"{there} (here {here}, {apart})")
    for note in data["notes"]:
        rest.add_row("note", escape(note))
    out.print(rest)
