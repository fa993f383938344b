"""``nandarray program run``: programs over arrays of stores, and bare-metal tests.

An input is ``STORE:/NAME[SLICE]`` or a ``.npy`` file. What the program gives is printed, or goes into arrays of a store
or into ``.npy`` files; progress and the account of the run are on standard error. Running is the work of
:func:`nandarray.offload`; ``profile`` is in :mod:`nandarray.cli_program_profile`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from nandarray._slices import parse_slices
from nandarray.cli_common import console, count, find_array, human, jsonable_array, open_store, print_json
from nandarray.errors import InvalidError

if TYPE_CHECKING:
    from nandarray import Program
    from nandarray._program.run import Account

__all__ = ["Opened", "complete_source", "ready_made", "run_bare", "run_over", "scalars_of"]

_SAMPLE_SEED = 1
_TEXT = re.compile(r"(?P<store>.+):(?P<name>[^:\[\]]+)(?P<key>\[.*\])?\Z", re.DOTALL)


def complete_source(incomplete: str) -> list[str]:
    """Complete the name of a ready-made program."""
    from nandarray import programs

    return [name for name in programs.names() if name.startswith(incomplete)]


# --- what the words of the command line mean --------------------------------------------------------------------------


@dataclass(frozen=True)
class Operand:
    """``STORE:/NAME[SLICE]``, taken apart."""

    store: Path
    name: str
    key: tuple[Any, ...]


def operand(text: str) -> Operand:
    """Take ``STORE:/NAME[SLICE]`` apart.

    Parameters
    ----------
    text : str
        A word of the command line.

    Returns
    -------
    Operand
        Its store, the name in it, the index expression.

    Raises
    ------
    typer.BadParameter
        It is none.
    """
    # A slice has colons of its own.
    found = _TEXT.match(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no array: write it like data.nand:/name or 'data.nand:/name[0:10, ::2]'")
    try:
        key = parse_slices((found["key"] or "[]")[1:-1])
    except InvalidError as error:
        raise typer.BadParameter(str(error)) from error
    return Operand(Path(found["store"]), found["name"].strip("/"), key)


def scalars_of(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``NAME=VALUE``: numbers as JSON or Python write them, hexadecimal ones too.

    Parameters
    ----------
    pairs : sequence of str
        Words of the command line.

    Returns
    -------
    dict
        Numbers by name.

    Raises
    ------
    typer.BadParameter
        One is none of this kind.
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
        self._key = key
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
        """Give an input: part of an array of a store, or what a ``.npy`` file holds."""
        from nandarray import Box

        if text.endswith(".npy") and not _TEXT.match(text):
            return np.load(text, allow_pickle=False)
        asked = operand(text)
        array = find_array(self.store(asked.store), asked.name, key=self._key)
        return Box(array, asked.key if asked.key else ...)


def dtype_of(given: Any) -> np.dtype[Any]:
    """Give the dtype of an input."""
    from nandarray import Box

    return np.dtype(given.array.dtype if isinstance(given, Box) else given.dtype)


def ready_made(name: str, dtype: Any, parameters: Mapping[str, Any], *, target: str, kind: str) -> Program:
    """Make a ready-made program for the dtype of its input, if it is made for that.

    Parameters
    ----------
    name : str
        One of ``nandarray.programs.names()``.
    dtype : dtype or None
        Of its first input.
    parameters : mapping
        Sizes that shape its records.
    target, kind : str
        As for ``nandarray.programs.get``.

    Returns
    -------
    Program
        Compiled.
    """
    from nandarray import programs

    wanted = dtype if programs.describe(name).dtypes else None
    return programs.get(name, dtype=wanted, kind=kind, target=target, **parameters)


def numpy_dtype(described: Any) -> Any:
    """Give the dtype of a port's elements."""
    from nandarray._program import abi

    made = abi.record(described, "an input")
    return made.base if made.subdtype else made


# --- running ----------------------------------------------------------------------------------------------------------


@contextmanager
def _shown(*, quiet: bool) -> Generator[Callable[[int, int, int], None] | None]:
    """Show how far a run is, on standard error and only where somebody looks."""
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
    program: Program,
    inputs: Sequence[Any],
    scalars: Mapping[str, Any],
    outs: Mapping[str, str],
    opened: Opened,
    *,
    options: Mapping[str, Any],
    quiet: bool,
    as_json: bool,
) -> None:
    """Run a program, and put what it gives where it is wanted.

    Parameters
    ----------
    program, inputs, scalars
        As for :func:`nandarray.offload`.
    outs : mapping of str
        Where outputs go, by name: ``STORE:/NAME[SLICE]`` or a ``.npy`` file; the others are printed.
    opened : Opened
        Stores.
    options : mapping
        Further arguments of :func:`nandarray.offload`.
    quiet, as_json : bool
        No progress and no account; all of it as JSON.
    """
    import nandarray

    targets: dict[str, Any] = {}
    later: dict[str, str] = {}
    made: list[Operand] = []
    try:
        for name, text in outs.items():
            asked = None if text.endswith(".npy") else operand(text)
            new = asked is not None and asked.name not in opened.store(asked.store)
            target = None if asked is None else _target(program, name, asked, inputs, opened)
            if target is None:
                later[name] = text
                continue
            targets[name] = target
            if new and asked is not None:
                made.append(asked)
        with _shown(quiet=quiet or as_json) as report:
            done = nandarray.offload(program, inputs, scalars, out=targets or None, progress=report, **options)
    except BaseException:
        for one in made:  # what was made for the outputs goes with them
            del opened.store(one.store)[one.name]
        raise
    written = {name: {"elements": done.outputs[name], "to": outs[name]} for name in targets}
    for name, text in later.items():
        value = np.asarray(done.outputs[name])
        if text.endswith(".npy"):
            np.save(text, value)
        else:
            asked = operand(text)
            opened.store(asked.store)[asked.name] = value
        written[name] = {"elements": value.size, "to": text}
    rest = {name: value for name, value in done.outputs.items() if name not in written}
    if as_json:
        values = {name: jsonable_array(np.asarray(value)) for name, value in rest.items()}
        print_json({"program": program.name, "outputs": values, "written": written, "account": asdict(done.account)})
        return
    for name, value in rest.items():
        print(f"{name}: {_printed(value)}" if len(done.outputs) > 1 else _printed(value))
    if not quiet:
        for name, what in written.items():
            print(f"{name}: {count(int(what['elements']), 'element')} to {what['to']}", file=sys.stderr)
        print(_account(done.account), file=sys.stderr)


def _target(program: Program, name: str, asked: Operand, inputs: Sequence[Any], opened: Opened) -> Any:
    """Give the box that an output goes into; None if the array has to be made of what comes out."""
    from nandarray import Box

    store = opened.store(asked.store)
    if asked.name in store:
        return Box(find_array(store, asked.name), asked.key if asked.key else ...)
    if asked.key:
        raise InvalidError(
            f"{asked.name} in {asked.store} does not exist; only an array that does can be written in part"
        )
    from nandarray._program import abi

    port = next((one for one in program.outputs if one["name"] == name), None)
    first = inputs[0]
    whole = isinstance(first, Box) and first.key is ...
    if port is None or not abi.one_for_one(port) or not whole:
        return None
    dtype = np.dtype(numpy_dtype(port["dtype"]))
    taken = np.dtype(numpy_dtype(program.inputs[0]["dtype"]))
    plain = port["record_bytes"] == dtype.itemsize and program.inputs[0]["record_bytes"] == taken.itemsize
    # As many elements as the input has: the array is made first, and filled piece by piece.
    return store.create(asked.name, first.array.shape, dtype) if plain and taken == first.array.dtype else None


def _printed(value: Any) -> str:
    array = np.asarray(value)
    return str(array[()]) if array.ndim == 0 else np.array2string(array, separator=", ", max_line_width=console().width)


def _account(account: Account) -> str:
    rate = account.bytes_in / account.seconds / 1e9 if account.seconds else 0.0
    executed = f", {account.instructions:,} instructions" if account.instructions else ""
    return (
        f"{account.form}, {count(account.tasks, 'task')}, read {human(account.bytes_in)}, "
        f"gave {human(account.bytes_out)}{executed}, {account.seconds:.3g} s ({rate:.2f} GB/s)"
    )


# --- bare-metal tests -------------------------------------------------------------------------------------------------


def run_bare(
    path: Path, *, signature: Path | None, isa: str | None, instructions: int | None, granularity: int, as_json: bool
) -> None:
    """Run a bare-metal test; leave with its exit status.

    Parameters
    ----------
    path : Path
        The ELF file.
    signature : Path, optional
        Where its signature goes.
    isa : str, optional
        What the hart has.
    instructions : int, optional
        The most of them.
    granularity : {4, 8}
        Bytes of a line of the signature.
    as_json : bool
        Say what it came to as JSON.
    """
    from nandarray import _nandarray
    from nandarray._program.run import watched

    elf, watch = path.read_bytes(), _nandarray.Watch()
    given = watched(
        lambda: _nandarray.program_run_bare(elf, watch, isa=isa, granularity=granularity, instructions=instructions),
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
            print(f"nandarray: error: {path}: test {given['test']} failed, at {where}, {executed}", file=sys.stderr)
        elif given["status"] != "passed":
            print(f"nandarray: error: {path}: {given['stop']}, at {where}, {executed}", file=sys.stderr)
        elif not output:
            print(f"{path}: passed, {executed}")
    if given["exit_status"]:
        raise typer.Exit(given["exit_status"])


def _line(elf: bytes, pc: int) -> str:
    """Give the line of the source, if the file has notes of lines; a bare-metal test need not be a program."""
    from nandarray._program.elf import lines_of

    found = lines_of(elf, pc)
    return "" if found is None else f" ({found[0]}:{found[1]})"


def out_names(program: Program, words: Sequence[str]) -> dict[str, str]:
    """Read ``[OUTPUT=]WHERE``: the only output needs no name."""
    known = [str(one["name"]) for one in program.outputs]
    found: dict[str, str] = {}
    for word in words:
        name, equals, where = word.partition("=")
        if not equals:
            if len(known) != 1:
                listed = json.dumps(known)
                raise typer.BadParameter(
                    f"{word!r}: say which output, like {known[0] if known else 'y'}={word}: {listed}"
                )
            name, where = known[0], word
        if name not in known:
            raise typer.BadParameter(f"the program has no output {name!r}; it has {', '.join(known) or 'none'}")
        found[name] = where
    return found


def out_stores(words: Sequence[str]) -> set[Path]:
    """Give the stores that ``[OUTPUT=]WHERE`` would write to."""
    wheres = [word.partition("=")[2] or word for word in words]
    return {operand(where).store for where in wheres if not where.endswith(".npy")}
