"""``nandarray program``: compile programs that run beside the data, and look into them.

The work is done by :class:`nandarray.Program`; this file has options and tables. A source is a C file, a Python file
with programs in it (``file.py:name`` where there are several), or an ELF.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from nandarray.cli_common import Json, console, fail, human, print_json
from nandarray.errors import CompileError, InvalidError

if TYPE_CHECKING:
    from nandarray import Program

__all__ = ["app", "load"]

app = typer.Typer(help="Compile programs that run beside the data, and look into them.", no_args_is_help=True)

Source = Annotated[
    str,
    typer.Argument(help="A C file, a Python file (FILE.py:NAME), or an ELF.", metavar="SOURCE", show_default=False),
]
Target = Annotated[str, typer.Option(metavar="rv64|rv32", help="Of C: the processor.")]
Flags = Annotated[
    list[str] | None,
    typer.Option("--flag", metavar="FLAG", help="Of C: an option of Clang; may be repeated.", show_default=False),
]


def load(source: str, *, target: str = "rv64", flags: list[str] | None = None) -> Program:
    """Get a program from a C file, a Python file or an ELF.

    Parameters
    ----------
    source : str
        A path; behind that of a Python file ``:name`` of a program in it.
    target : {"rv64", "rv32"}
        Of a C file: the processor.
    flags : list of str, optional
        Of a C file: further options of Clang.

    Returns
    -------
    Program
        Compiled.

    Raises
    ------
    InvalidError
        The Python file has no such program, or several and none was named.
    """
    from nandarray import Program

    path, _, name = source.partition(".py:")
    if name or source.endswith(".py"):
        return _of_python(Path(path + ".py" if name else source), name)
    if source.endswith(".c"):
        return Program.from_c(Path(source), target=target, flags=flags or ())
    return Program.from_elf(Path(source))


def _of_python(path: Path, name: str) -> Program:
    from nandarray import Program

    with open(path):
        pass  # that there is none is said with its name
    found = {key: one for key, one in runpy.run_path(str(path)).items() if isinstance(one, Program)}
    if not found:
        raise InvalidError(f"{path} has no program: a function under @nandarray.program")
    if name and name not in found:
        raise InvalidError(f"{path} has no program {name!r}; it has {', '.join(sorted(found))}")
    if not name and len(found) > 1:
        listed = ", ".join(sorted(found))
        raise InvalidError(f"{path} has several programs ({listed}): name one, like {path}:{min(found)}")
    return found[name or next(iter(found))]


def _loaded(source: str, target: str, flags: list[str] | None) -> Program:
    """Get a program; what a compiler has to say keeps its lines."""
    try:
        made = load(source, target=target, flags=flags)
        _ = made.elf
    except CompileError as error:
        fail(str(error))
        raise
    return made


@app.command()
def build(
    *,
    source: Source,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="ELF", help="Where to; beside the source if left out.", show_default=False
        ),
    ] = None,
    target: Target = "rv64",
    flags: Flags = None,
    as_json: Json = False,
) -> None:
    """Compile a program to an ELF."""
    made = _loaded(source, target, flags)
    if made.warnings:
        console(stderr=True).print(made.warnings.rstrip())
    base = Path(source.partition(".py:")[0])
    where = output or base.with_name(f"{made.name if '.py:' in source else base.stem}.elf")
    made.save(where)
    if as_json:
        print_json({"elf": str(where), "sha256": made.hash, **made.metadata})
    else:
        console().print(f"{where}: {made!r}, {human(len(made.elf))}")


@app.command()
def info(
    *,
    source: Source,
    symbols: Annotated[bool, typer.Option("--symbols", help="List functions and objects, too.")] = False,
    target: Target = "rv64",
    flags: Flags = None,
    as_json: Json = False,
) -> None:
    """Say what a program takes and gives, and what is in its ELF."""
    made = _loaded(source, target, flags)
    if as_json:
        listed = [vars(one) for one in made.symbols] if symbols else None
        extra: dict[str, Any] = {} if listed is None else {"symbols": listed}
        facts = {"target": made.target, "isa": made.isa, "bytes": len(made.elf), "sha256": made.hash}
        print_json({**made.metadata, **facts, **extra})
        return
    out = console()
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for what, much in _rows(made):
        table.add_row(what, escape(much))
    out.print(table)
    if symbols:
        listing = Table("address", "bytes", "kind", "name", box=None, pad_edge=False)
        for one in made.symbols:
            listing.add_row(f"{one.address:#x}", str(one.size), one.kind, escape(one.name))
        out.print()
        out.print(listing)


@app.command()
def disasm(*, source: Source, target: Target = "rv64", flags: Flags = None, as_json: Json = False) -> None:
    """Print a program's instructions, as the hart decodes them."""
    from nandarray import _nandarray

    lines = _nandarray.program_disassemble(_loaded(source, target, flags).elf)
    if as_json:
        print_json([{"address": at, "bits": bits, "text": text} for at, bits, text in lines])
        return
    for at, bits, text in lines:
        print(f"\n{at:x} <{text}>:" if bits is None else f"{at:8x}:  {bits:>8}  {text}")


def _rows(made: Program) -> list[tuple[str, str]]:
    facts = made.metadata
    rows = [("name", made.name + (f": {facts['summary']}" if facts["summary"] else ""))]
    rows += [("kind", made.kind), ("target", f"{made.target}, {made.isa}")]
    rows += [("input", f"{one['name']} {one['dtype']}, {one['record_bytes']} bytes a record") for one in made.inputs]
    for one in made.outputs:
        bound = " + ".join(f"{size} {key}" for key, size in one["bound"].items() if size) or "none"
        rows.append(("output", f"{one['name']} {one['dtype']}, written at {one['phase']}, room in bytes: {bound}"))
    rows += [("scalar", f"{one['name']} {one['dtype']}") for one in made.scalars]
    rows += [("error", f"{status}: {says}") for status, says in facts["errors"].items()]
    rows += [
        ("state", human(facts["state_bytes"])),
        ("memory", f"{human(facts['memory_bytes'])}, scratchpad {human(facts['scratchpad_bytes'])}"),
        ("entry points", ", ".join(facts["entries"])),
        ("ELF", f"{human(len(made.elf))}, SHA-256 {made.hash}"),
    ]
    return rows
