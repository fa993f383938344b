"""``nandarray program``: compile programs that run beside the data, look into them, run them, count their instructions.

The work is done by :class:`nandarray.Program`; this file has options and tables, :mod:`nandarray.cli_program_run` and
:mod:`nandarray.cli_program_profile` what ``run`` and ``profile`` do. A source is a C file, a Python file with programs
(``file.py:name`` where there are several), an ELF, or, to be run, the name of a ready-made program.
"""

from __future__ import annotations

import difflib
import runpy
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from nandarray import cli_program_profile, cli_program_run
from nandarray.cli_common import Json, KeyFile, console, fail, human, key_of, parse_size, print_json
from nandarray.errors import CompileError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from nandarray import Program

__all__ = ["app", "load"]

app = typer.Typer(help="Compile programs that run beside the data, look into them, run them.", no_args_is_help=True)

Source = Annotated[
    str,
    typer.Argument(help="A C file, a Python file (FILE.py:NAME), or an ELF.", metavar="SOURCE", show_default=False),
]
Target = Annotated[str, typer.Option(metavar="rv64|rv32", help="Of C: the processor.")]
Flags = Annotated[
    list[str] | None,
    typer.Option("--flag", metavar="FLAG", help="Of C: an option of Clang; may be repeated.", show_default=False),
]


def load(source: str, *, target: str = "rv64", flags: list[str] | None = None, trusted: bool = False) -> Program:
    """Get a program from a C file, a Python file or an ELF.

    Parameters
    ----------
    source : str
        A path; behind that of a Python file ``:name`` of a program in it.
    target : {"rv64", "rv32"}
        Of a C file: the processor.
    flags : list of str, optional
        Of a C file: further options of Clang.
    trusted : bool
        Of a C file: it may be executed as a part of this process.

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
        return Program.from_c(Path(source), target=target, flags=flags or (), trusted=trusted)
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
        table.add_row(what, much)
    out.print(table)
    if symbols:
        listing = Table("address", "bytes", "kind", "name", box=None, pad_edge=False)
        for one in made.symbols:
            listing.add_row(f"{one.address:#x}", str(one.size), one.kind, one.name)
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


RunSource = Annotated[
    str | None,
    typer.Argument(
        help="A C file, a Python file (FILE.py:NAME), an ELF, or the name of a ready-made program.",
        metavar="[SOURCE]",
        autocompletion=cli_program_run.complete_source,
        show_default=False,
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Argument(
        help="Its inputs: STORE:/NAME, 'STORE:/NAME[SLICE]' or a .npy file.", metavar="[INPUT]...", show_default=False
    ),
]
Scalars = Annotated[
    list[str] | None,
    typer.Option(
        "--scalar",
        "-s",
        metavar="NAME=NUMBER",
        help="A number of the program, or a size of a ready-made one; may be repeated.",
        show_default=False,
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Cores; all of the machine if left out.", show_default=False)]
Most = Annotated[
    int | None,
    typer.Option("--max-instructions", min=1, metavar="N", help="End it after so many a task.", show_default=False),
]
Dtype = Annotated[
    str | None,
    typer.Option(help="Of a ready-made program; that of its first input if left out.", show_default=False),
]
Stream = Annotated[bool, typer.Option("--stream", help="Of a ready-made program: the form with stream instructions.")]


@app.command()
def run(
    *,
    source: RunSource = None,
    inputs: Inputs = None,
    scalar: Scalars = None,
    out: Annotated[
        list[str] | None,
        typer.Option(
            "--out",
            "-o",
            metavar="[OUTPUT=]WHERE",
            help="Where an output goes, instead of being printed: STORE:/NAME, a part of one, or a .npy file.",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            metavar="interpreted|translated|native",
            help="How it is executed; the fastest if left out.",
            show_default=False,
        ),
    ] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Of C: it may be executed as a part of this process.")] = False,
    threads: Threads = None,
    task_bytes: Annotated[str, typer.Option(metavar="SIZE", help="Bytes of the first input for a task.")] = "1MiB",
    max_instructions: Most = None,
    dtype: Dtype = None,
    stream: Stream = False,
    target: Target = "rv64",
    flags: Flags = None,
    bare: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Run a bare-metal test instead: an ELF file.", show_default=False),
    ] = None,
    signature: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of a test: where its signature goes.", show_default=False)
    ] = None,
    signature_granularity: Annotated[int, typer.Option(metavar="4|8", help="Bytes of a line of it.")] = 4,
    isa: Annotated[
        str | None,
        typer.Option(
            metavar="ISA", help="Of a test: what the hart has, like rv64imac; all if left out.", show_default=False
        ),
    ] = None,
    key_file: KeyFile = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no account.")] = False,
    as_json: Json = False,
) -> None:
    """Run a program beside arrays, or a bare-metal test.

    With --bare, the exit status is the test's: 0 if it passed, the number of the test that failed, 255 if it did not
    come to its end.
    """
    if bare is not None:
        if source is not None:
            raise typer.BadParameter("--bare takes the place of a program and its inputs")
        cli_program_run.run_bare(
            bare,
            signature=signature,
            isa=isa,
            instructions=max_instructions,
            granularity=signature_granularity,
            as_json=as_json,
        )
        return
    if signature is not None or isa is not None:
        raise typer.BadParameter("--signature and --isa go with --bare")
    if source is None or not inputs:
        raise typer.BadParameter("a program and its inputs are needed, like: sum data.nand:/name")
    with ExitStack() as stack:
        opened = cli_program_run.Opened(stack, key_of(key_file), cli_program_run.out_stores(out or []))
        given = [opened.input(text) for text in inputs]
        made, scalars = _to_run(source, given, scalar, dtype, stream=stream, target=target, flags=flags, trusted=trust)
        options = {
            "form": form,
            "threads": threads,
            "task_bytes": parse_size(task_bytes),
            "instructions": max_instructions,
        }
        cli_program_run.run_over(
            made,
            given,
            scalars,
            cli_program_run.out_names(made, out or []),
            opened,
            options=options,
            quiet=quiet,
            as_json=as_json,
        )


@app.command()
def profile(
    *,
    source: RunSource = None,
    inputs: Inputs = None,
    scalar: Scalars = None,
    sample: Annotated[
        int, typer.Option(min=1, metavar="RECORDS", help="Without inputs: how many records to make up.")
    ] = 65536,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="Rows of a table.")] = 12,
    threads: Threads = None,
    max_instructions: Most = None,
    dtype: Dtype = None,
    stream: Stream = False,
    target: Target = "rv64",
    flags: Flags = None,
    key_file: KeyFile = None,
    as_json: Json = False,
) -> None:
    """Say where a program's instructions go: by function, source line, class and block."""
    import nandarray

    if source is None:
        raise typer.BadParameter("a program is needed, like: sum data.nand:/name")
    with ExitStack() as stack:
        opened = cli_program_run.Opened(stack, key_of(key_file), set())
        given = [opened.input(text) for text in inputs or []]
        made, scalars = _to_run(source, given, scalar, dtype, stream=stream, target=target, flags=flags, trusted=False)
        if not given:
            given = stack.enter_context(cli_program_profile.sampled(made, sample))
        found = nandarray.profile(made, given, scalars, instructions=max_instructions, threads=threads)
    cli_program_profile.show_profile(found, top=top, as_json=as_json)


def _to_run(
    source: str,
    inputs: list[Any],
    pairs: list[str] | None,
    dtype: str | None,
    *,
    stream: bool,
    target: str,
    flags: list[str] | None,
    trusted: bool,
) -> tuple[Program, dict[str, Any]]:
    """Get a program that is to be run, and its scalars; sizes of a ready-made one are not among them."""
    from nandarray import programs

    numbers = cli_program_run.scalars_of(pairs or [])
    if source in programs.names() and not Path(source).exists():
        sizes = {key: numbers.pop(key) for key in programs.describe(source).parameters if key in numbers}
        first = cli_program_run.dtype_of(inputs[0]) if inputs else None
        kind = "stream" if stream else "block"
        return cli_program_run.ready_made(source, dtype or first, sizes, target=target, kind=kind), numbers
    if (
        not Path(source.partition(".py:")[0]).exists()
        and not source.endswith((".c", ".py", ".elf"))
        and ".py:" not in source
    ):
        near = difflib.get_close_matches(source, programs.names(), n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; `nandarray.programs.names()` lists those"
        raise NotFoundError(f"no file {source!r}, and no ready-made program of this name{hint}")
    try:
        made = load(source, target=target, flags=flags, trusted=trusted)
        _ = made.elf
    except CompileError as error:
        fail(str(error))
        raise
    return made, numbers


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
