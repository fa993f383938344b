"""``nandarray advise``: whether programs should run beside the data, and why; the dissertation's Figure 6.1.

The work is done by :mod:`nandarray.programs.advise`; this file has options and tables.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from nandarray.cli.common import Json, KeyFile, console, facts_of, key_of, print_json
from nandarray.cli.program.run import Opened, complete_array_word, scalars_of
from nandarray.cli.program.source import complete_source, is_ready_made, make
from nandarray.errors import InvalidError
from nandarray.units import format_size

if TYPE_CHECKING:
    from nandarray.programs.advise import Advice

__all__ = ["advise_command"]

_PATHS = {
    "read": "read path",
    "write": "write path",
    "within": "within the store",
    "around": "from the host to the host",
}


def complete_device(incomplete: str) -> list[str]:
    """Complete the name of a described device."""
    from nandarray.device import devices

    return [name for name in devices() if name.startswith(incomplete)]


ProgramName = Annotated[
    str | None,
    typer.Argument(
        help="A ready-made program's name, a C file, a Python file (FILE.py:NAME), an ELF; all ready-made ones if "
        "left out.",
        metavar="[PROGRAM]",
        autocompletion=complete_source,
    ),
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="INPUT",
        help="An input, once for each of them: STORE:/NAME, a part of it or a view, as for program run; or a .npy "
        "file, which the host gives. Left out: a ready-made program's sample.",
        autocompletion=complete_array_word,
    ),
]
ToStore = Annotated[
    list[str] | None,
    typer.Option(
        "--to-store",
        metavar="OUTPUT",
        help="An output that goes to an array of the store instead of the host, or 'all'; may be repeated. "
        "Nothing is written.",
    ),
]
Scalars = Annotated[
    list[str] | None,
    typer.Option("--scalar", "-s", metavar="NAME=NUMBER", help="A number of the program; may be repeated."),
]
Direction = Annotated[
    str | None,
    typer.Option(
        metavar="read|write",
        help="State the path instead of measuring it.",
        autocompletion=lambda incomplete: [one for one in ("read", "write") if one.startswith(incomplete)],
    ),
]
DeviceName = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE",
        help="The device with the bandwidths: see nandarray device list.",
        autocompletion=complete_device,
    ),
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Time a program in C as a part of this process, without a sandbox.")
]
Simulate = Annotated[bool, typer.Option("--simulate", help="Run the sample on the modelled device, too.")]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="OUT", help="Write the figure, Figure 6.1, as a page."),
]


def advise_command(
    *,
    program: ProgramName = None,
    data: Data = None,
    to_store: ToStore = None,
    scalars: Scalars = None,
    direction: Direction = None,
    device: DeviceName = "assasin",
    simulate: Simulate = False,
    trust: Trust = False,
    html: Html = None,
    key_file: KeyFile = None,
    as_json: Json = False,
) -> None:
    """Say whether a program should run beside the data, and why.

    A ready-made one, on its sample: nandarray advise filter

    Your own, on your data: nandarray advise kernel.c --data data.nand:/x -s by=0.5
    """
    from nandarray.programs.advise import advise_all, figure

    without: dict[str, str] = {}
    options: dict[str, Any] = {"direction": direction, "device": device, "simulate": simulate}
    if html is not None and not html.absolute().parent.is_dir():
        raise InvalidError(f"{html}: there is no folder {html.parent}")
    if program is None:
        given = {"--data": data, "--scalar": scalars, "--to-store": to_store, "--direction": direction,
                 "--trust": trust}  # fmt: skip
        of_one = next((option for option, value in given.items() if value), None)
        if of_one:
            raise typer.BadParameter(f"{of_one} belongs to one program; name it")
        found, without = advise_all(**options)
    else:
        options["to_store"] = "all" in to_store or to_store if to_store else False
        found = [_advised(program, data, scalars, key_file, trust=trust, options=options)]
    if html is not None:
        figure.write(found, html)
    if as_json:
        rows = [one.as_dict() for one in found]
        every = {"advice": rows, "no_sample": without, "compared": figure.compare(found)}
        print_json(every if program is None else rows[0])
        return
    if program is not None:
        _one(found[0])
    else:
        _all(found, without)
        _compared(figure.compare(found))
    if html is not None:
        console(stderr=True).print(f"{html}: the figure")


def _advised(
    program: str,
    data: list[str] | None,
    scalars: list[str] | None,
    key_file: Path | None,
    *,
    trust: bool,
    options: dict[str, Any],
) -> Advice:
    """Measure one program, on its inputs or on its sample."""
    from nandarray.programs.advise import advise

    numbers = scalars_of(scalars or [])
    with ExitStack() as stack:
        opened = Opened(stack, key_of(key_file), set())
        inputs = None if data is None or data == ["sample"] else [opened.input(one) for one in data]
        made: Any = program
        if not is_ready_made(program):
            made, numbers = make(program, numbers, trust=trust)
        elif trust:
            raise InvalidError(f"{program} is ready-made, and trusted: --trust would do nothing")
        return advise(made, inputs, scalars=numbers, **options)


def _flows(advice: Advice) -> str:
    flows = advice.flows
    return (f"{format_size(flows.from_store)} from the store and {format_size(flows.from_host)} from the host, "
            f"{format_size(flows.to_store)} to the store and {format_size(flows.to_host)} to the host")  # fmt: skip


def _one(advice: Advice) -> None:
    out, of = console(), advice.bandwidths
    out.print(Text.assemble((f"{advice.name}: {advice.verdict}.", "bold"), f" {advice.why}"))
    change = f"{advice.size}: {advice.ratio:.4g} bytes out for a byte in"
    gain = "not timed: it is not trusted, or has no native form" if advice.gain is None else ""
    gain = gain or f"{advice.gain:.2f} times as fast with this machine's vector instructions"
    loops = advice.loops
    said = "" if loops is None else f"; Clang vectorises {loops.vectorised} of {loops.vectorised + loops.missed} loops"
    said += f", not {', '.join(loops.lines)}" if loops is not None and loops.lines else ""
    rows = [
        ("size", change),
        ("direction", f"{_PATHS[advice.direction]}{' (stated)' if advice.stated else ''}: {_flows(advice)}"),
        ("vectorises", f"{advice.vectorises}: {gain}{said}"),
    ]
    faster = f"{advice.speedup:.2f} times faster; {advice.seconds_host / advice.seconds_vector:.2f} with vector units"
    speeds = f"flash {of.flash_read / 1e9:.2f} GB/s, link {of.link / 1e9:.2f} GB/s"
    rows += [
        ("instructions", f"{advice.instructions_per_byte:.2f} a byte (RISC-V)"),
        ("link", f"{advice.link_host:,} bytes if the host computes, {advice.link_device:,} if the device does"),
        ("time", f"{faster}; bound by the {advice.bound}"),
        ("device", f"{of.device}: {speeds}, {of.cores} cores of {of.instructions / 1e9:g} GHz"),
    ]
    rows += _simulated(advice)
    rows += [("assumed", advice.assumed)] if advice.assumed else []
    rows += [("first candidate", "yes" if advice.candidate else "no")]
    out.print(facts_of(rows, style="bold"))


def _simulated(advice: Advice) -> list[tuple[str, str]]:
    run = advice.simulated
    if run is None:
        return []
    ratio = run.seconds / advice.seconds_device
    busy = ", ".join(f"{part} {share:.0%}" for part, share in run.busy.items())
    text = f"{run.seconds * 1e3:.3f} ms, {ratio:.2f} of the formula's; bound by {run.bound} (busy: {busy})"
    return [("simulated", text)]


def _all(found: list[Advice], without: dict[str, str]) -> None:
    table = Table("program", "out / in", "path", "vectorised", "gain", "link saved", "time", "bound", "verdict",
                  box=None, pad_edge=False)  # fmt: skip
    for one in found:
        gain = "" if one.gain is None else f"{one.gain:.2f}"
        name = Text(one.name, style="green" if one.candidate else "")
        table.add_row(name, f"{one.ratio:.4f}", one.direction, one.vectorises, gain, f"{one.link_saved:.1%}",
                      f"{one.speedup:.2f}", one.bound, one.verdict)  # fmt: skip
    for missing in without:
        table.add_row(missing, *[""] * 7, "no sample")
    console().print(table)


def _compared(rows: list[dict[str, Any]]) -> None:
    out = console()
    differ = [row for row in rows if not row["agrees"]]
    out.print(f"\n{len(rows) - len(differ)} of {len(rows)} agree with the dissertation in all three properties.")
    table = Table("differs", "function", "size", "path", "vectorised", "why", box=None, pad_edge=False)
    for row in differ:
        pairs = [(row[what], row[f"{what}_paper"]) for what in ("size", "direction", "vectorises")]
        cells = [ours if ours == theirs else f"{ours}, there {theirs}" for ours, theirs in pairs]
        table.add_row(row["program"], row["function"], *cells, row["because"])
    out.print(table)
