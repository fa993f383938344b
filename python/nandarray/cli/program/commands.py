"""``nandarray program``: compile programs that run beside the data, look into them, run them, count their instructions.

The work is done by :class:`nandarray.Program`; this file has options and tables, :mod:`nandarray.cli.program.run` and
:mod:`nandarray.cli.program.profile` what ``run`` and ``profile`` do, :mod:`nandarray.cli.program.pipeline` several
programs at once, :mod:`nandarray.cli.program.source` what a source is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nandarray.cli.common import (
    Json,
    KeyFile,
    console,
    facts_of,
    key_of,
    parse_size,
    print_json,
    say,
    table_of,
    with_options,
)
from nandarray.cli.program import profile as cli_program_profile
from nandarray.cli.program import run as cli_program_run
from nandarray.cli.program import source as cli_program_source
from nandarray.cli.program import timing as cli_program_timing
from nandarray.cli.program.pipeline import StepSpec, chain, read_spec, steps_of
from nandarray.cli.program.source import complete_core, complete_form, complete_source, complete_target, step_name
from nandarray.errors import InvalidError
from nandarray.units import format_size

if TYPE_CHECKING:
    from nandarray import Program
    from nandarray.programs.step import Output, Step
    from nandarray.programs.timing import CoreChoice

__all__ = ["app"]

_SAMPLE_RECORDS = 65536

app = typer.Typer(help="Compile, inspect and run programs beside the data.", no_args_is_help=True)

Source = Annotated[
    str,
    typer.Argument(
        help="A C file, a Python file (FILE.py:NAME), an ELF, or the name of a ready-made program.",
        metavar="SOURCE",
        autocompletion=complete_source,
    ),
]
Target = Annotated[
    str,
    typer.Option(
        metavar="rv64|rv32|ISA",
        help="Processor that C is compiled for; ISA is a smaller instruction set, like rv32im.",
        autocompletion=complete_target,
    ),
]
CoreName = Annotated[
    str | None,
    typer.Option(
        "--core",
        metavar="NAME|FILE.toml",
        help="Time it on a described core; `nandarray program cores` lists them.",
        autocompletion=complete_core,
    ),
]
CoreSets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Another value of the core's, like l1d.size=16KiB; may be repeated.",
    ),
]  # fmt: skip
CoreTimeline = Annotated[
    Path | None,
    typer.Option(
        "--timeline",
        metavar="OUT.json",
        help="Write a timeline of the core's calls for Perfetto.",
    ),
]
Flags = Annotated[
    list[str] | None,
    typer.Option("--flag", metavar="FLAG", help="Option of Clang, for C; may be repeated."),
]
Dtype = Annotated[
    str | None,
    typer.Option(help="Dtype of a ready-made program; that of its first input if left out."),
]
Stream = Annotated[bool, typer.Option("--stream", help="Take a ready-made program's form with stream instructions.")]
Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--scalar", "-s", metavar="NAME=NUMBER", help="Size that a ready-made program takes; may be repeated.",
    ),
]  # fmt: skip


#: Options of all commands that take a program, for the way in which it is made.
_making = with_options(
    {"target": Target, "flags": Flags, "dtype": Dtype, "stream": Stream}, target="rv64", stream=False
)


def _loaded(source: str, sizes: list[str] | None, making: Mapping[str, Any]) -> Program:
    """Return a program to inspect; only the numbers that shape it are taken."""
    numbers = cli_program_run.scalars_of(sizes or [])
    made, left = cli_program_source.make(source, numbers, **making)
    if left:
        raise InvalidError(f"{source} has no size {next(iter(left))!r}; scalars are given when it is run")
    return made


@app.command("list")
def list_command(*, as_json: Json = False) -> None:
    """List the ready-made programs: what they do, what they are made for, their sizes."""
    from nandarray import programs

    found = {name: programs.describe(name) for name in programs.names()}
    if as_json:
        print_json([{"name": name, "summary": one.summary, "dtypes": one.dtypes, "kinds": one.kinds,
                     "sizes": {key: size.default for key, size in one.parameters.items()}}
                    for name, one in found.items()])  # fmt: skip
        return
    rows = []
    for name, one in found.items():
        dtypes = ", ".join(one.dtypes[:2]) + (", ..." if len(one.dtypes) > 2 else "") or "bytes"
        rows.append((name, one.summary, dtypes, ", ".join(one.parameters)))
    console().print(table_of(("program", "what it does", "dtypes", "sizes"), rows))


@app.command("cores")
def cores_command(*, as_json: Json = False) -> None:
    """List the described cores that programs can be timed on."""
    cli_program_timing.list_cores(as_json=as_json)


@app.command()
@_making
def build(
    *,
    source: Source,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="ELF",
            help="The file to write; beside the source if left out.",
        ),
    ] = None,
    scalar: Sizes = None,
    as_json: Json = False,
    **making: Any,
) -> None:
    """Compile a program to an ELF."""
    made = _loaded(source, scalar, making)
    if made.warnings:
        console(stderr=True).print(made.warnings.rstrip())
    base = Path(source.partition(".py:")[0])
    where = output or base.with_name(f"{made.name if '.py:' in source else base.stem}.elf")
    made.save(where)
    if as_json:
        print_json({"elf": str(where), "sha256": made.hash, **made.metadata})
    else:
        console().print(f"{where}: {made!r}, {format_size(len(made.elf))}")


@app.command()
@_making
def info(
    *,
    source: Source,
    symbols: Annotated[bool, typer.Option("--symbols", help="List functions and objects, too.")] = False,
    scalar: Sizes = None,
    as_json: Json = False,
    **making: Any,
) -> None:
    """Describe a program: inputs, outputs, numbers, and its ELF."""
    made = _loaded(source, scalar, making)
    if as_json:
        listed = [vars(one) for one in made.symbols] if symbols else None
        extra: dict[str, Any] = {} if listed is None else {"symbols": listed}
        facts = {"target": made.target, "isa": made.isa, "bytes": len(made.elf), "sha256": made.hash}
        print_json({**made.metadata, **facts, **extra})
        return
    out = console()
    out.print(facts_of(_rows(made), style="bold"))
    if symbols:
        rows = [(f"{one.address:#x}", str(one.size), one.kind, one.name) for one in made.symbols]
        out.print()
        out.print(table_of(("address", "bytes", "kind", "name"), rows))


@app.command()
@_making
def disasm(
    *,
    source: Source,
    scalar: Sizes = None,
    as_json: Json = False,
    **making: Any,
) -> None:
    """Print a program's instructions, as the hart decodes them."""
    from nandarray import _nandarray

    lines = _nandarray.program_disassemble(_loaded(source, scalar, making).elf)
    if as_json:
        print_json([{"address": at, "bits": bits, "text": text} for at, bits, text in lines])
        return
    for at, bits, text in lines:
        say(f"\n{at:x} <{text}>:" if bits is None else f"{at:8x}:  {bits:>8}  {text}")


RunSource = Annotated[
    str | None,
    typer.Argument(
        help="A C file, a Python file (FILE.py:NAME), an ELF, or the name of a ready-made program.",
        metavar="[SOURCE]",
        autocompletion=complete_source,
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Argument(
        help="Its inputs: STORE:/NAME, a part of it ('STORE:/NAME[SLICE]'), under another shape (STORE:/NAME@20x50), "
        "or a .npy file. Of a pipeline's file: NAME=WHERE.",
        metavar="[INPUT]...",
        autocompletion=cli_program_run.complete_array_word,
    ),
]
Scalars = Annotated[
    list[str] | None,
    typer.Option(
        "--scalar",
        "-s",
        metavar="[STEP.]NAME=NUMBER",
        help="A number of the program, or a size of a ready-made one; may be repeated. Of a pipeline: of that step.",
    ),
]
Pipeline = Annotated[
    Path | None,
    typer.Option(
        "--pipeline", "-p", metavar="FILE", help="Several programs that feed each other: a TOML or JSON file.",
    ),
]  # fmt: skip
Then = Annotated[
    list[str] | None,
    typer.Option(
        "--then",
        metavar="SOURCE",
        help="Another program, which takes the output of the one before; may be repeated.",
        autocompletion=complete_source,
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Cores; all of the machine if left out.")]
Most = Annotated[
    int | None,
    typer.Option(
        "--max-instructions",
        min=1,
        metavar="N",
        help="Most instructions of a task; more are an error.",
    ),
]


Out = Annotated[
    list[str] | None,
    typer.Option(
        "--out",
        "-o",
        metavar="[OUTPUT=]WHERE",
        help="Destination of an output that is not to be printed: STORE:/NAME, a part of one, or a .npy file.",
    ),
]
Form = Annotated[
    str | None,
    typer.Option(
        metavar="FORM",
        help="Way of execution: interpreted, translated or native; the fastest if left out.",
        autocompletion=complete_form,
    ),
]
Trust = Annotated[bool, typer.Option("--trust", help="Let a program in C be executed as a part of this process.")]
TaskBytes = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Bytes of the first input for a task; the program's own size if left out."),
]
HoldBytes = Annotated[str, typer.Option(metavar="SIZE", help="Most bytes held between the programs of a pipeline.")]
Bare = Annotated[Path, typer.Argument(metavar="FILE", help="ELF file of the test.", show_default=False)]
Signature = Annotated[Path | None, typer.Option(metavar="FILE", help="File for the signature of the test.")]
Granularity = Annotated[int, typer.Option(metavar="4|8", help="Bytes in a line of the signature.")]
Isa = Annotated[str | None, typer.Option(metavar="ISA", help="Extensions of the hart, like rv64imac; all if left out.")]
Vlen = Annotated[
    int | None,
    typer.Option(metavar="BITS", help="Bits of a vector register, a power of two from 32 to 1024."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace .npy files of --out.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no account.")]


@app.command("test-bare")
def bare_test(
    *,
    elf: Bare,
    signature: Signature = None,
    signature_granularity: Granularity = 4,
    isa: Isa = None,
    vlen: Vlen = None,
    max_instructions: Most = None,
    as_json: Json = False,
) -> None:
    """Run a test for bare machines.

    The exit status is the test's: 0 if it passed, the number of the test that failed, 255 if it did not come to its
    end.
    """
    cli_program_run.run_bare(
        elf,
        signature=signature,
        isa=isa,
        vlen=vlen,
        instructions=max_instructions,
        granularity=signature_granularity,
        as_json=as_json,
    )


@app.command()
@_making
def run(
    *,
    source: RunSource = None,
    inputs: Inputs = None,
    scalar: Scalars = None,
    out: Out = None,
    overwrite: Overwrite = False,
    pipeline: Pipeline = None,
    then: Then = None,
    form: Form = None,
    trust: Trust = False,
    threads: Threads = None,
    task_bytes: TaskBytes = None,
    hold_bytes: HoldBytes = "1GiB",
    max_instructions: Most = None,
    core: CoreName = None,
    sets: CoreSets = None,
    timeline: CoreTimeline = None,
    key_file: KeyFile = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **making: Any,
) -> None:
    """Run a program beside arrays, or several that feed each other.

    One program: nandarray program run sum data.nand:/x

    A chain: nandarray program run filter data.nand:/x -s low=0 -s high=1 --then mean

    A tree: nandarray program run --pipeline late.toml log=data.nand:/log

    On a described core: nandarray program run sum data.nand:/x --core five-stage --set l1d.size=16KiB
    """
    given = _Given(source, inputs, scalar, pipeline, then, **making)
    chosen = cli_program_timing.chosen(core, sets, timeline)
    options = cli_program_timing.on_one_core(chosen, single=given.single, form=form, threads=threads)
    options |= {"task_bytes": task_bytes and parse_size(task_bytes), "hold_bytes": parse_size(hold_bytes)}
    with ExitStack() as stack:
        opened = cli_program_run.Opened(stack, key_of(key_file), given.stores(out or []))
        names, wanted = given.steps(opened, trust=trust, core=chosen)
        what: Any = next(iter(names.values())) if given.single else wanted
        known = [one.name for one in what] if given.single else list(wanted)
        cli_program_run.run_over(
            what,
            given.outs(known, out or []),
            opened,
            names=names,
            options=options | {"instructions": max_instructions},
            overwrite=overwrite,
            quiet=quiet,
            as_json=as_json,
            core=chosen,
            timeline=timeline,
        )


@app.command()
@_making
def profile(
    *,
    source: RunSource = None,
    inputs: Inputs = None,
    scalar: Scalars = None,
    sample: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="RECORDS",
            help="Number of records to generate where no input is given; 65536 if left out.",
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="Rows of a table.")] = 12,
    threads: Threads = None,
    max_instructions: Most = None,
    core: CoreName = None,
    sets: CoreSets = None,
    key_file: KeyFile = None,
    as_json: Json = False,
    **making: Any,
) -> None:
    """Count a program's instructions by function, source line, class and block; with --core, its cycles."""
    import nandarray

    if source is None:
        raise typer.BadParameter("a program is needed, like: sum data.nand:/name")
    if inputs and sample is not None:
        raise typer.BadParameter("--sample makes inputs up; it does not go with inputs")
    chosen = cli_program_timing.chosen(core, sets)
    with ExitStack() as stack:
        opened = cli_program_run.Opened(stack, key_of(key_file), set())
        given = [opened.input(text) for text in inputs or []]
        first = _dtype_of(given[0]) if given else None
        numbers = cli_program_run.scalars_of(scalar or [])
        made, scalars = cli_program_source.make(source, numbers, first=first, **making)
        if not given:
            given = stack.enter_context(cli_program_profile.sampled(made, sample or _SAMPLE_RECORDS))
        if chosen is not None:
            from nandarray.programs.timing import timed

            cycles = timed(made, given, scalars, core=chosen, instructions=max_instructions)
            cli_program_timing.show_timed(cycles, top=top, as_json=as_json)
            return
        found = nandarray.profile(made, given, scalars, instructions=max_instructions, threads=threads)
    cli_program_profile.show_profile(found, top=top, as_json=as_json)


def _dtype_of(given: Any) -> Any:
    """Return the dtype of an input."""
    from nandarray.programs import ports

    return ports.dtype_of(given)


class _Given:
    """The work of ``run``: steps, the outputs that are wanted, and the files that they go to."""

    def __init__(
        self,
        source: str | None,
        inputs: list[str] | None,
        scalar: list[str] | None,
        pipeline: Path | None,
        then: list[str] | None,
        **of_one: Any,
    ) -> None:
        words = [*([source] if source else []), *(inputs or [])]
        if pipeline is not None and then:
            raise typer.BadParameter("--pipeline and --then exclude each other: put all programs into the file")
        if pipeline is None and len(words) < 2:
            raise typer.BadParameter("a program and its inputs are needed, like: sum data.nand:/name")
        said = {**of_one, "target": of_one["target"] != "rv64"}
        unused = [f"--{name.removesuffix('s')}" for name, value in said.items() if value]
        if unused and (pipeline is not None or then):
            raise typer.BadParameter(f"{unused[0]} is of one program; a pipeline's file has a key for it in each step")
        numbers = cli_program_run.scalars_of(scalar or [])
        if pipeline is not None:
            self.spec = read_spec(pipeline).given(words)
        else:
            self.spec = chain([words[0], *(then or [])], words[1:], step_name)
            first = next(iter(self.spec.steps))  # a number without a step is the first program's
            numbers = {key if "." in key else f"{first}.{key}": value for key, value in numbers.items()}
        self.spec = self.spec.numbered(numbers)
        self.single = pipeline is None and not then
        self._of_one = of_one

    def outs(self, known: Sequence[str], words: Sequence[str]) -> dict[str, str]:
        """Return the destinations of outputs: the file's, or those of the command line."""
        found = cli_program_run.out_names(known, words, "the program" if self.single else "the pipeline")
        return {**self.spec.targets, **found}

    def stores(self, words: Sequence[str]) -> set[Path]:
        """Return the stores that may be written."""
        return cli_program_run.out_stores([*words, *(f"={where}" for where in self.spec.targets.values())])

    def steps(self, opened: cli_program_run.Opened, **common: Any) -> tuple[dict[str, Step], dict[str, Output]]:
        """Compile programs and open arrays."""
        core: CoreChoice | None = common.pop("core", None)

        def make(one: StepSpec, first: Any) -> tuple[Program, dict[str, Any]]:
            options = {**self._of_one, **common, **one.options}
            if not self.single and not one.program.endswith(".c"):
                options["trust"] = bool(one.options.get("trust"))  # what is said of all is of C files
            made, scalars = cli_program_source.make(one.program, one.scalars, first=_dtype_of(first), **options)
            return made if core is None else core.fitted(made), scalars

        return steps_of(self.spec, opened.input, make)


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
        ("state", format_size(facts["state_bytes"])),
        ("memory", f"{format_size(facts['memory_bytes'])}, scratchpad {format_size(facts['scratchpad_bytes'])}"),
        ("entry points", ", ".join(facts["entries"])),
        ("ELF", f"{format_size(len(made.elf))}, SHA-256 {made.hash}"),
    ]
    return rows
