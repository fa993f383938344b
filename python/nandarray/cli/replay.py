"""``nandarray replay``: a trace or a synthetic workload on a described device, under the modelled clock.

The work is done by :func:`nandarray.replay`; this file has options, a progress bar and tables.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from nandarray import device
from nandarray.cli.common import (
    Json,
    console,
    documented,
    facts_of,
    parse_pairs,
    parse_size,
    print_json,
    table_of,
    with_options,
)
from nandarray.cli.device import Settings, complete_device
from nandarray.model.replay import Replay, Synthetic, Trace, replay
from nandarray.model.replay_rows import LATENCIES, energy_rows, facts, promise_rows, throughput_rows
from nandarray.units import scaled

__all__ = ["replay_command"]

_THOUSANDS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


def _sizes(texts: list[str]) -> int | dict[int, float]:
    """Read sizes: "4KiB", or several like "4KiB:3" with how often each comes."""
    found: dict[int, float] = {}
    for text in texts:
        size, _, weight = text.partition(":")
        try:
            found[parse_size(size)] = float(weight or 1)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not SIZE or SIZE:WEIGHT") from None
    return found


def _rate(text: str, sizes: int | Mapping[int, float]) -> float:
    """Read requests a second ("20k") or bytes a second ("400MB/s"), the latter at the sizes' average."""
    number, slash, _ = text.strip().partition("/")
    if slash:
        weights = sizes if isinstance(sizes, Mapping) else {sizes: 1.0}
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


class _Form(NamedTuple):
    """Form of the option of a field that is no number or flag of the same name."""

    kind: Any
    read: Callable[[Any], Any]
    metavar: str | None = None
    name: str | None = None


_FORMS = {
    "size": _Form(list[str], _sizes, "SIZE[:WEIGHT]"),
    "hot": _Form(str, partial(_pair, what="SPACE:SHARE, like 0.2:0.8"), "SPACE:SHARE"),
    "rate": _Form(str, str, "RATE"),
    "pattern": _Form(bool, lambda _: "sequential", name="--sequential"),
    **dict.fromkeys(("bytes", "align", "offset", "working_set"), _Form(str, parse_size, "SIZE")),
}
#: Number of requests of a synthetic workload of which nothing says where it ends.
_REQUESTS = 100_000


def _options(*workloads: type[Trace | Synthetic]) -> dict[str, Any]:
    """Return the types of options that set the fields of workloads; None, not given, is for a field's default."""
    found = {}
    for workload in workloads:
        texts, hints = documented(workload), get_type_hints(workload)
        for field in fields(workload):
            if field.name in {"path", "seed"} or field.name in found:  # these two have a parameter of their own
                continue
            hint = hints[field.name]
            plain = next((one for one in get_args(hint) if one is not type(None)), hint)
            form = _FORMS.get(field.name) or _Form(plain, lambda value: value)
            name = form.name or f"--{field.name.replace('_', '-')}"
            shown = str(field.default) if form.kind in {int, float} and field.default else False
            option = typer.Option(name, help=texts[field.name], metavar=form.metavar, show_default=shown)
            found[field.name] = Annotated[form.kind | None, option]
    return found


@with_options(_options(Trace, Synthetic))
def replay_command(
    *,
    trace_file: TraceFile = None,
    device_name: DeviceName,
    settings: Settings = None,
    synthetic: IsSynthetic = False,
    precondition: Precondition = "full",
    seed: Seed = 1,
    timeline: Timeline = None,
    trace_window: TraceWindow = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Replay a trace, or synthetic requests, on a described device: time, throughput, latency and energy."""
    if (trace_file is None) != synthetic:
        raise typer.BadParameter("give either a TRACE or --synthetic")
    given = {name: value for name, value in given.items() if value is not None}
    known = {field.name for field in fields(Synthetic if synthetic else Trace)}
    for name in (one for one in given if one not in known):
        option = (_FORMS[name].name if name in _FORMS else None) or f"--{name.replace('_', '-')}"
        raise typer.BadParameter(f"{option} is an option of {'traces' if synthetic else '--synthetic'}")
    given = {name: _FORMS[name].read(value) if name in _FORMS else value for name, value in given.items()}
    workload: Trace | Synthetic
    if trace_file is not None:
        workload = Trace(trace_file, **given)
    else:
        if not given.keys() & {"requests", "bytes", "seconds"}:
            given["requests"] = _REQUESTS
        if "rate" in given:
            given["rate"] = _rate(given["rate"], given.get("size", Synthetic.size))
        workload = Synthetic(seed=seed, **given)
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
