"""``nandarray program run``: programs over arrays of stores, and bare-metal tests.

An input is ``STORE:/NAME@SHAPE[SLICE]``, shape and slice as needed, or a ``.npy`` file. Outputs are printed, or go into
arrays of a store or into ``.npy`` files; progress and the account are on standard error. :func:`nandarray.offload` runs
programs; ``profile`` is in :mod:`nandarray.cli.program.profile`, pipelines in :mod:`nandarray.cli.program.pipeline`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from nandarray.cli.common import (
    console,
    find_array,
    jsonable_array,
    open_store,
    parse_shape,
    print_json,
    refuse_existing,
    say,
    table_of,
)
from nandarray.cli.program.timing import of_run, summary
from nandarray.errors import InvalidError, NandarrayError, ProgramFailedError
from nandarray.index.text import parse_slices
from nandarray.inputs import read_input
from nandarray.units import count, format_size

if TYPE_CHECKING:
    from nandarray.programs.run import Account, Offloaded
    from nandarray.programs.step import Output, Step
    from nandarray.programs.timing import CoreChoice

__all__ = ["Opened", "complete_array_word", "operand", "out_names", "out_stores", "run_bare", "run_over", "scalars_of"]

_TEXT = re.compile(r"(?P<store>.+):(?P<name>[^:\[\]]+)(?P<key>\[.*\])?\Z", re.DOTALL)
_VIEW = re.compile(r"(?P<name>.+)@(?P<shape>[0-9][0-9_]*(?:[x,][0-9][0-9_]*)*)\Z")


# --- what the words of the command line mean --------------------------------------------------------------------------


@dataclass(frozen=True)
class Operand:
    """``STORE:/NAME@SHAPE[SLICE]``, taken apart."""

    store: Path
    name: str
    view: tuple[int, ...] | None
    key: tuple[Any, ...]
    #: The name with what was read as a shape: an array may be called so.
    full: str = ""

    def literal(self, store: Any) -> Operand:
        """Return the array of this very name, if there is one."""
        return replace(self, name=self.full, view=None) if self.view is not None and self.full in store else self

    def of(self, array: Any) -> Any:
        """Return the selected part."""
        from nandarray import Box

        whole = array if self.view is None else array.view(self.view)
        return Box(whole, self.key if self.key else ...)


def operand(text: str) -> Operand:
    """Take ``STORE:/NAME@SHAPE[SLICE]`` apart into store, name, shape of the view and index expression.

    Any other word is a typer.BadParameter.
    """
    if text.count("[") != text.count("]"):
        raise typer.BadParameter(f"{text!r}: brackets do not match; a part is written 'data.nand:/name[0:10, ::2]'")
    # A slice has colons of its own.
    found = _TEXT.match(text)
    if found is None:
        raise typer.BadParameter(
            f"{text!r} is no array: write it like data.nand:/name, 'data.nand:/name[0:10, ::2]', data.nand:/name@20x50"
        )
    try:
        key = parse_slices((found["key"] or "[]")[1:-1])
    except InvalidError as error:
        raise typer.BadParameter(str(error)) from error
    name, shape = found["name"].strip("/"), None
    seen = _VIEW.match(name)
    if seen is not None:
        name, shape = seen["name"], parse_shape(seen["shape"])
    return Operand(Path(found["store"]), name, shape, key, found["name"].strip("/"))


def scalars_of(pairs: Sequence[str]) -> dict[str, Any]:
    """Read words ``NAME=VALUE``: numbers as JSON or Python write them, hexadecimal ones too.

    Any other word is a typer.BadParameter.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        try:
            if not equals:
                raise ValueError
            found[name.strip()] = _number(text.strip())
        except ValueError:
            raise typer.BadParameter(f"{pair!r} is no NAME=NUMBER") from None
    return found


def _number(text: str) -> int | float | bool:
    if text in {"true", "false"}:
        return text == "true"
    try:
        return int(text, 0)
    except ValueError:
        return float(text)


class Opened:
    """Arrays of stores that the command line names; each store is opened once."""

    def __init__(self, stack: ExitStack, key: bytes | None, writable: set[Path]) -> None:
        self._stack = stack
        self.key = key
        self._writable = {path.resolve() for path in writable}
        self._stores: dict[Path, Any] = {}

    def store(self, path: Path) -> Any:
        """Open a store, or give it back."""
        where = path.resolve()
        if where not in self._stores:
            mode = "r+" if where in self._writable else "r"
            self._stores[where] = self._stack.enter_context(open_store(path, mode))
        return self._stores[where]

    def input(self, text: str) -> Any:
        """Return an input: part of an array of a store, or what a ``.npy`` file holds."""
        if text.endswith(".npy") and not _TEXT.match(text):
            return _loaded(text)
        asked = operand(text)
        store = self.store(asked.store)
        asked = asked.literal(store)
        return asked.of(find_array(store, asked.name, key=self.key))


def _loaded(path: str) -> Any:
    """Return the array of a ``.npy`` file."""
    try:
        # Opened here, since NumPy leaves files open that are no archives although they begin as one.
        with open(path, "rb") as file:
            found = np.load(file, allow_pickle=False)
    except (EOFError, ValueError, SyntaxError, BadZipFile) as error:
        raise InvalidError(f"{path} is no .npy file: {error}") from error
    if not isinstance(found, np.ndarray):
        raise InvalidError(f"{path} is an archive of several arrays, not a .npy file")
    return found


def numpy_dtype(described: Any) -> Any:
    """Return the dtype of a port's elements."""
    from nandarray.programs import abi

    made = abi.record(described, "an input")
    return made.base if made.subdtype else made


def complete_array_word(incomplete: str) -> list[str]:
    """Complete ``STORE:/NAME``, or the name of a store or a ``.npy`` file."""
    import nandarray

    store, colon, name = incomplete.partition(":")
    try:
        if colon:
            with nandarray.open(store, "r") as opened:
                return [f"{store}:/{one}" for one in opened.array_names() if one.startswith(name.lstrip("/"))]
        before, slash, begin = incomplete.rpartition("/")
        there = sorted(Path(before + slash or ".").iterdir())
    except (NandarrayError, OSError):
        return []  # a completion never complains
    seen = [one for one in there if one.name.startswith(begin) and (begin or not one.name.startswith("."))]
    ending = {".nand": ":/", ".npy": ""}
    return [f"{before}{slash}{one.name}{'/' if one.is_dir() else ending[one.suffix]}"
            for one in seen if one.is_dir() or one.suffix in ending]  # fmt: skip


# --- running ----------------------------------------------------------------------------------------------------------


@contextmanager
def _shown(*, quiet: bool) -> Generator[Callable[[int, int, int], None] | None]:
    """Show the progress of a run on standard error if that is a terminal."""
    out = console(stderr=True)
    if quiet or not out.is_terminal:
        yield None
        return
    columns = (
        TextColumn("running"),
        BarColumn(),
        TextColumn("{task.fields[tasks]}"),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out) as bars:
        bar = bars.add_task("", total=None, tasks="")

        def report(done: int, tasks: int, bytes_in: int) -> None:
            # The bar is of bytes; how many there will be follows from the tasks.
            total = bytes_in * tasks // done if done else None
            bars.update(bar, completed=bytes_in, total=total, tasks=f"{done}/{tasks} tasks")

        yield report


def run_over(
    wanted: Step | Mapping[str, Output],
    outs: Mapping[str, str],
    opened: Opened,
    *,
    names: Mapping[str, Step],
    options: Mapping[str, Any],
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    core: CoreChoice | None = None,
    timeline: Path | None = None,
) -> None:
    """Run a program or several, and put the outputs where they are wanted.

    ``wanted`` and ``options`` are as for :func:`nandarray.offload`. ``outs`` has the places of outputs by name,
    ``STORE:/NAME[SLICE]`` or a ``.npy`` file, which is replaced with ``overwrite`` only; the other outputs are printed.
    ``names`` has all steps by name. ``quiet`` leaves out progress and account. With ``core``, one program is timed on a
    described core, whose timeline goes to the file ``timeline``.
    """
    import nandarray
    from nandarray.programs.step import Step, in_order

    outputs = {one.name: one for one in wanted} if isinstance(wanted, Step) else dict(wanted)
    ordered = in_order([wanted] if isinstance(wanted, Step) else [one.step for one in outputs.values()])
    called = [next(name for name, step in names.items() if step is one) for one in ordered]
    targets: dict[str, Any] = {}
    later: dict[str, str] = {}
    made: list[Operand] = []
    try:
        for name, text in outs.items():
            asked = None if text.endswith(".npy") else operand(text)
            asked = asked and asked.literal(opened.store(asked.store))
            if asked is None and not Path(text).parent.is_dir():
                raise InvalidError(f"{text}: there is no folder {Path(text).parent}")
            if asked is None:
                refuse_existing(Path(text), overwrite=overwrite)
            new = asked is not None and asked.name not in opened.store(asked.store)
            target = None if asked is None else _target(outputs[name], asked, opened, _home(ordered))
            if target is None:
                later[name] = text
                continue
            targets[name] = target
            if new and asked is not None:
                made.append(asked)
        watch = None if core is None else core.watch()
        with _shown(quiet=quiet or as_json) as report:
            done = nandarray.offload(wanted, out=targets or None, progress=report, _watch=watch, **options)
    except BaseException as error:
        for one in made:  # what was made for the outputs goes with them
            del opened.store(one.store)[one.name]
        if isinstance(error, ProgramFailedError) and error.stage is not None and len(called) > 1:
            raise ProgramFailedError(f"step {called[error.stage]}: {error}") from error
        raise
    written = {name: {"elements": done.outputs[name], "to": outs[name]} for name in targets}
    written |= _written(done, later, opened)
    rest = {name: value for name, value in done.outputs.items() if name not in written}
    timed = of_run(core, ordered[0].program, watch, done)
    if timed is not None and timeline is not None:
        timed.write_timeline(timeline)
    if as_json:
        values = {name: jsonable_array(np.asarray(value)) for name, value in rest.items()}
        account = asdict(done.account)
        account["steps"] = [{"step": name, **part} for name, part in zip(called, account["steps"], strict=True)]
        timing = {} if timed is None else {"timing": timed.to_dict()}
        whole = {"program": " | ".join(called), "outputs": values, "written": written, "account": account}
        print_json(whole | timing)
        return
    for name, value in rest.items():
        say(f"{name}: {_printed(value)}" if len(done.outputs) > 1 else _printed(value))
    if not quiet:
        for name, what in written.items():
            say(f"{name}: {count(int(what['elements']), 'element')} to {what['to']}", file=sys.stderr)
        if len(called) > 1:
            _steps(called, done.account)
        say("\n".join([_account(done.account), *([] if timed is None else [summary(timed)])]), file=sys.stderr)


def _written(done: Offloaded, later: Mapping[str, str], opened: Opened) -> dict[str, dict[str, Any]]:
    """Write outputs to new arrays and files once they are known."""
    written: dict[str, dict[str, Any]] = {}
    for name, text in later.items():
        value = np.asarray(done.outputs[name])
        if text.endswith(".npy"):
            np.save(text, value)
        else:
            asked = operand(text)
            opened.store(asked.store)[asked.name] = value
        written[name] = {"elements": value.size, "to": text}
    return written


def _home(steps: Sequence[Step]) -> Any:
    """Return the store that the inputs are in; None if none is of a store."""
    from nandarray.programs import ports

    stored = (given for step in steps for given in step.inputs if ports.is_stored(given))
    return next((ports.Boxed(given).array.store for given in stored), None)


def _target(output: Output, asked: Operand, opened: Opened, home: Any) -> Any:
    """Return the box that an output goes into; None if an array has to be created from the output."""
    store = opened.store(asked.store)
    if asked.name in store:
        if home is not None and store is not home:
            raise InvalidError(
                f"{asked.name} in {asked.store} exists; of another store than the inputs' only a new array can be made"
            )
        return asked.of(find_array(store, asked.name, key=opened.key))
    if asked.key or asked.view:
        raise InvalidError(
            f"{asked.name} in {asked.store} does not exist; only an array that does can be written in part"
        )
    from nandarray.programs.run import shape_of

    shape = shape_of(output)
    if not shape or (home is not None and store is not home):
        return None
    # The output has the input's number of elements: the array is created first and filled task by task.
    return store.create(asked.name, shape, np.dtype(numpy_dtype(output.port["dtype"])))


def _steps(names: Sequence[str], account: Account) -> None:
    numbers, rows = ("tasks", "bytes in", "bytes out", "instructions"), []
    for name, one in zip(names, account.steps, strict=True):
        executed = f"{one.instructions:,}" if one.instructions else ""
        moved = format_size(one.bytes_in), format_size(one.bytes_out)
        rows.append((name, one.form, f"{one.tasks:,}", *moved, executed))
    console(stderr=True).print(table_of(("step", "form", *numbers), rows, right=numbers))


def _printed(value: Any) -> str:
    array = np.asarray(value)
    return str(array[()]) if array.ndim == 0 else np.array2string(array, separator=", ", max_line_width=console().width)


def _account(account: Account) -> str:
    rate = account.bytes_in / account.seconds / 1e9 if account.seconds else 0.0
    executed = f", {account.instructions:,} instructions" if account.instructions else ""
    told = (
        f"{account.form}, {count(account.tasks, 'task')}, read {format_size(account.bytes_in)}, "
        f"gave {format_size(account.bytes_out)}{executed}, {account.seconds:.3g} s ({rate:.2f} GB/s)"
    )
    return "\n".join([told, *account.notes])


# --- bare-metal tests -------------------------------------------------------------------------------------------------


def run_bare(
    path: Path,
    *,
    signature: Path | None,
    isa: str | None,
    vlen: int | None = None,
    instructions: int | None,
    granularity: int,
    as_json: bool,
) -> None:
    """Run a bare-metal test, an ELF file; leave with its exit status.

    Its signature goes to the file ``signature``, in lines of ``granularity`` bytes, 4 or 8. The hart has ``isa`` and
    vector registers of ``vlen`` bits, and executes ``instructions`` at most.
    """
    from nandarray import _nandarray
    from nandarray.programs.run import watched

    elf, watch = read_input(path), _nandarray.Watch()
    given = watched(
        lambda: _nandarray.program_run_bare(
            elf, watch, isa=isa, vlen=vlen, granularity=granularity, instructions=instructions
        ),
        watch,
        None,
    )
    output = given.pop("output")
    text = given.pop("signature")
    if signature is not None:
        if text is None:
            raise InvalidError(f"{path} has no signature: the symbols begin_signature and end_signature mark one")
        signature.write_text(text)
    where = f"pc {given['pc']:#x}" + (f" in {given['symbol']}" if given["symbol"] else "") + _line(elf, given["pc"])
    executed = count(given["instructions"], "instruction")
    if as_json:
        print_json({**given, "output": output.decode("utf-8", "replace"), "line": _line(elf, given["pc"]).strip(" ()")})
    else:
        sys.stdout.write(output.decode("utf-8", "replace"))
        sys.stdout.flush()
        if given["status"] == "failed":
            say(f"nandarray: error: {path}: test {given['test']} failed, at {where}, {executed}", file=sys.stderr)
        elif given["status"] != "passed":
            say(f"nandarray: error: {path}: {given['stop']}, at {where}, {executed}", file=sys.stderr)
        elif not output:
            say(f"{path}: passed, {executed}")
    if given["exit_status"]:
        raise typer.Exit(given["exit_status"])


def _line(elf: bytes, pc: int) -> str:
    """Return the line of the source, if the file has notes of lines and what reads them is installed."""
    from nandarray.programs.elf import lines_of

    try:
        found = lines_of(elf, pc)  # a bare-metal test need not be a program
    except ImportError:
        return ""
    return "" if found is None else f" ({found[0]}:{found[1]})"


def out_names(known: Sequence[str], words: Sequence[str], what: str = "the program") -> dict[str, str]:
    """Read words ``[OUTPUT=]WHERE`` for the ``known`` outputs of ``what``: the only output needs no name.

    An output that is not there, two that go to one place, and one that goes to two are a typer.BadParameter.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, where = word.partition("=")
        if not equals:
            if len(known) != 1:
                listed = ", ".join(known) or "none"
                example = f", like {known[0]}={word}" if known else ""
                raise typer.BadParameter(f"{word!r}: say which output{example}; {what} has {listed}")
            name, where = known[0], word
        if name not in known:
            raise typer.BadParameter(f"{what} has no output {name!r}; it has {', '.join(known) or 'none'}")
        if name in found:
            raise typer.BadParameter(f"output {name} must go to one place, not to {found[name]} and to {where}")
        if where in found.values():
            raise typer.BadParameter(f"{where} would be written by several outputs")
        found[name] = where
    return found


def out_stores(words: Sequence[str]) -> set[Path]:
    """Return the stores that ``[OUTPUT=]WHERE`` would write to."""
    wheres = [word.partition("=")[2] or word for word in words]
    return {operand(where).store for where in wheres if not where.endswith(".npy")}
