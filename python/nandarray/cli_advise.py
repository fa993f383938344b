"""``nandarray advise``: whether programs should run beside the data, and why; the dissertation's Figure 6.1.

The work is done by :mod:`nandarray._advise`; this file has options and tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from nandarray.cli_common import Json, console, print_json
from nandarray.errors import InvalidError

if TYPE_CHECKING:
    from nandarray import Program
    from nandarray._advise import Advice

__all__ = ["advise_command"]

_CODE = (".c", ".py", ".elf")


def advise_command(
    *,
    program: Annotated[
        str,
        typer.Argument(
            help="A ready-made program's name, a C file, a Python file (FILE.py:NAME), an ELF; all ready-made ones if "
            "left out.",
            metavar="PROGRAM",
            show_default=False,
        ),
    ] = "",
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data", metavar="STORE:/ARRAY|sample", help="An input; once for each of them.", show_default=False
        ),
    ] = None,
    scalars: Annotated[
        list[str] | None,
        typer.Option("--scalar", metavar="NAME=NUMBER", help="A number of the program.", show_default=False),
    ] = None,
    direction: Annotated[
        str | None,
        typer.Option(
            metavar="read|write", help="On which path it is; what is known of it, or read.", show_default=False
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Whose bandwidths count: nandarray device list.")
    ] = "assasin",
    trust: Annotated[
        bool, typer.Option("--trust", help="Time the program as a part of this process, without a sandbox.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="OUT", help="Write Figure 6.1 as a page.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Say whether a program should run beside the data, and why."""
    from nandarray._advise import advise, figure
    from nandarray.programs import names

    options = {"direction": direction, "device": device}
    if not program:
        if data or scalars:
            raise InvalidError("--data and --scalar belong to one program; name it")
        found = [advise(name, **options) for name in names()]  # type: ignore[arg-type]
    else:
        known = not (program.endswith(_CODE) or ".py:" in program or Path(program).exists())
        made = program if known else _loaded(program, trust=trust)
        given = None if not data or data == ["sample"] else [_input(one) for one in data]
        found = [advise(made, given, scalars=_numbers(scalars), **options)]  # type: ignore[arg-type]
    if html is not None:
        figure.write(found, html)
    if as_json:
        rows = [one.as_dict() for one in found]
        print_json({"advice": rows, "compared": figure.compare(found)} if not program else rows[0])
        return
    if program:
        _one(found[0])
    else:
        _all(found)
        _compared(figure.compare(found))
    if html is not None:
        console(stderr=True).print(f"{html}: the figure")


def _loaded(source: str, *, trust: bool) -> Program:
    from nandarray import cli_program_source

    return cli_program_source.load(source, trusted=trust)


def _input(text: str) -> Any:
    """Read the first rows of an array of a store."""
    import nandarray
    from nandarray._advise import _part

    store, colon, name = text.partition(":/")
    if not colon or not name:
        raise InvalidError(f"--data is {text!r}; it is written STORE:/ARRAY, like data.nand:/x")
    with nandarray.open(store, mode="r") as opened:
        return _part(opened[name])


def _numbers(given: list[str] | None) -> dict[str, float | int]:
    found: dict[str, float | int] = {}
    for one in given or ():
        name, equals, value = one.partition("=")
        try:
            found[name] = int(value) if value.lstrip("+-").isdigit() else float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise InvalidError(f"--scalar is {one!r}; it is written NAME=NUMBER")
    return found


def _one(advice: Advice) -> None:
    out, of = console(), advice.bandwidths
    out.print(Text.assemble((f"{advice.name}: {advice.verdict}.", "bold"), f" {advice.why}"))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    change = f"{advice.size}: {advice.ratio:.4g} bytes out a byte in ({advice.bytes_in:,} in, {advice.bytes_out:,} out)"
    gain = "not timed: it is not trusted, or has no native form" if advice.gain is None else ""
    gain = gain or f"{advice.gain:.2f} times as fast with this machine's vector instructions"
    loops = advice.loops
    said = "" if loops is None else f"; Clang vectorises {loops.vectorised} of {loops.vectorised + loops.missed} loops"
    said += f", not {', '.join(loops.lines)}" if loops is not None and loops.lines else ""
    rows = [
        ("size", change),
        ("direction", f"{advice.direction} path"),
        ("vectorises", f"{advice.vectorises}: {gain}{said}"),
    ]
    sooner = f"{advice.speedup:.2f} times as soon; {advice.seconds_host / advice.seconds_vector:.2f} with vector units"
    speeds = f"flash {of.flash_read / 1e9:.2f} GB/s, link {of.link / 1e9:.2f} GB/s"
    rows += [
        ("instructions", f"{advice.instructions_per_byte:.2f} a byte (RISC-V)"),
        ("link", f"{advice.link_host:,} bytes if the host computes, {advice.link_device:,} if the device does"),
        ("time", f"{sooner}; bound by the {advice.bound}"),
        ("device", f"{of.device}: {speeds}, {of.cores} cores of {of.instructions / 1e9:g} GHz"),
    ]
    rows += [("assumed", advice.assumed)] if advice.assumed else []
    rows += [("first candidate", "yes" if advice.candidate else "no")]
    for what, text in rows:
        table.add_row(what, text)
    out.print(table)


def _all(found: list[Advice]) -> None:
    table = Table("program", "out / in", "path", "vectorised", "gain", "link saved", "time", "bound", "verdict",
                  box=None, pad_edge=False)  # fmt: skip
    for one in found:
        gain = "" if one.gain is None else f"{one.gain:.2f}"
        name = Text(one.name, style="green" if one.candidate else "")
        table.add_row(name, f"{one.ratio:.4f}", one.direction, one.vectorises, gain, f"{one.link_saved:.1%}",
                      f"{one.speedup:.2f}", one.bound, one.verdict)  # fmt: skip
    console().print(table)


def _compared(rows: list[dict[str, Any]]) -> None:
    out = console()
    differ = [row for row in rows if not row["agrees"]]
    out.print(f"\n{len(rows) - len(differ)} of {len(rows)} agree with the dissertation in all three properties.")
    table = Table("differs", "function", "size", "vectorised", "why", box=None, pad_edge=False)
    for row in differ:
        pairs = [(row[what], row[f"{what}_paper"]) for what in ("size", "vectorises")]
        cells = [ours if ours == theirs else f"{ours}, there {theirs}" for ours, theirs in pairs]
        table.add_row(row["program"], row["function"], *cells, row["because"])
    out.print(table)
