"""Errors, sizes, keys, names and output of the command line: the parts that all commands share.

An error a user can do something about is one line on standard error and exit code 1; a wrong command line, one that no
store and no file could make right, is exit code 2. Only ``--debug`` shows a traceback. :class:`OneLineErrors` holds to
that for every command, so commands just raise. Standard output carries the answer and nothing else.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import errno
import inspect
import json
import math
import os
import re
import sys
import sysconfig
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import numpy as np
import typer
import typer.core
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

import nandarray
from nandarray import interrupts, units
from nandarray.array.listing import open_array
from nandarray.errors import InvalidError, NandarrayError, NotFoundError, StoreExistsError, refuse_special
from nandarray.inputs import read_input
from nandarray.present.plain import plain
from nandarray.urls import split_remote

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = [
    "Json",
    "KeyFile",
    "OneLineErrors",
    "AnyStore",
    "DeviceName",
    "FileWatch",
    "StorePath",
    "Tell",
    "bars",
    "complete_array",
    "complete_name",
    "console",
    "documented",
    "facts_of",
    "find_array",
    "json_or_text",
    "key_of",
    "open_store",
    "parse_pairs",
    "parse_shape",
    "parse_size",
    "print_json",
    "refuse_existing",
    "say",
    "table_of",
    "with_options",
]

#: Called with a name, how much of it is done, and of how much.
Tell = Callable[[str, int, int], None]

KEY_VARIABLE = "NANDARRAY_KEY"
_KEY_BYTES = 32
_WIDE = 160
#: An option as Python has it, with or without a value, and no folder of a path; and one that a message has twice then.
_KEYWORD = re.compile(r"(?<![\w.'\"/-])([a-z_]+)=(?![\w.-]*/)(True\b|False\b|'[^']*'|\d+\b)?")
_TWICE = re.compile(r"(--[\w-]+), \1(?![\w-])")
#: The class of errors of a wrong command line: click's, or that of typer's own copy of click.
_UsageError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")
_LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib")


class OneLineErrors(typer.core.TyperGroup):
    """A command group whose failures are one line."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; turn what it raises into a line and exit code 1."""
        try:
            with interrupts.AsException():
                return super().invoke(ctx)
        except _UsageError as error:
            error.message = plain(error.message)  # read when it is printed
            raise
        except KeyboardInterrupt:
            say(interrupts.LINE, end="", file=sys.stderr)
            raise typer.Exit(interrupts.EXIT_CODE) from None
        except (NandarrayError, OSError, ImportError, MemoryError, OverflowError, ValueError) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # `nandarray read ... | head`: not an error
            if ctx.params.get("debug"):
                raise
            where = None if isinstance(error, NandarrayError) else _of_user(error)
            said = _spelled(_one_line(error), ctx)
            fail(f"{type(error).__name__}: {said}{where}" if where else said)
        except Exception as error:
            if isinstance(error, typer.Exit | typer.Abort) or hasattr(error, "exit_code") or ctx.params.get("debug"):
                raise
            if where := _of_user(error):
                fail(f"{type(error).__name__}: {_one_line(error)}{where}")
            fail(f"unexpected {type(error).__name__}: {_one_line(error)} (--debug shows where; please report it)")


def _spelled(text: str, ctx: Any) -> str:
    """Write options that a message names as Python has them, ``format=``, as this command line has them."""
    options = _options_of(ctx.command.commands.get(ctx.invoked_subcommand))

    def option(found: re.Match[str]) -> str:
        name, value = found[1], found[2] or ""
        if name not in options or value == "False":
            return found[0]
        return options[name] + ("" if value in ("", "True") else f" {value}")

    spelled = _KEYWORD.sub(option, text)
    return _TWICE.sub(r"\1", spelled)


def _options_of(command: Any) -> dict[str, str]:
    """Return the options of a command, and of those below it, by the names that they have in Python."""
    found: dict[str, str] = {}
    for below in getattr(command, "commands", {}).values():
        found |= _options_of(below)
    for one in getattr(command, "params", ()):
        longest = max(one.opts, key=len, default="")
        if longest.startswith("--"):
            found[one.name] = longest
    return found


def _of_user(error: BaseException) -> str | None:
    """Say where in the user's own code something was raised, or called what raised it; None if it is in none."""
    ours = [os.path.dirname(os.path.abspath(nandarray.__file__)), *(sysconfig.get_path(name) for name in _LIBRARIES)]
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        if os.path.isfile(name) and not any(os.path.realpath(name).startswith(os.path.realpath(top)) for top in ours):
            found = f" ({os.path.relpath(name)}:{line}, in {frame.f_code.co_name}; --debug shows all)"
    return found


def fail(message: str) -> None:
    """Print an error line and exit with code 1."""
    say(f"nandarray: error: {message}", file=sys.stderr)
    raise typer.Exit(1)


def _one_line(error: BaseException) -> str:
    said = str(error)
    if isinstance(error, OSError) and error.strerror:
        said = str(error.strerror) if error.filename is None else f"{error.filename}: {error.strerror}"
    return " ".join(said.split()) or type(error).__name__


# --- arguments that many commands take --------------------------------------------------------------------------------


def complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of an array or a group inside the store that the line names."""
    return [name for name in _names_for_completion(ctx, groups=True) if name.startswith(incomplete)]


def complete_array(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of an array inside the store that the line names."""
    return [name for name in _names_for_completion(ctx, groups=False) if name.startswith(incomplete)]


def _names_for_completion(ctx: typer.Context, *, groups: bool) -> list[str]:
    try:
        with nandarray.open(str(ctx.params["store"]), "r") as store:
            names = store.array_names()
    except (NandarrayError, OSError, KeyError):
        return []  # a completion never complains
    parents = {str(parent) for name in names for parent in Path(name).parents if str(parent) != "."}
    return sorted([*names, *parents]) if groups else names


DeviceName = Annotated[
    str | None, typer.Option("--device", metavar="NAME", help="A described device, which the store is made for.")
]
StorePath = Annotated[Path, typer.Argument(help="The store: a file.", metavar="STORE")]
#: The argument of commands that only read.
AnyStore = Annotated[str, typer.Argument(help="The store: a file, or the URL of an object far away.", metavar="STORE")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        help=f"File with the encryption key: 32 bytes, or hex or base64 of them. Else ${KEY_VARIABLE} is used.",
        exists=True,
        dir_okay=False,
    ),
]


def parse_shape(text: str) -> tuple[int, ...]:
    """Read "100,200" or "100x200"; "()" is the shape of a single value."""
    if text.strip() in {"()", ""}:
        return ()
    try:
        parts = text.strip("() ").lower().replace("x", ",").removesuffix(",").split(",")
        return tuple(int(part.replace("_", "")) for part in parts)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a shape: write it like 100,200 or 100x200") from None


def parse_size(text: str) -> int:
    """Read the value of an option as bytes: "256MiB", "1.5G" or "4096"."""
    try:
        return units.parse_size(text)
    except InvalidError as error:
        raise typer.BadParameter(str(error)) from None


def parse_pairs(words: Iterable[str] | None, form: str) -> dict[str, str]:
    """Read words like ``NAME=VALUE``; any other is a typer.BadParameter that says so in this form."""
    found: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{word!r} is not {form}")
        found[name.strip()] = value
    return found


def documented(kind: type) -> dict[str, str]:
    """Return the texts of a class' parameters, from its docstring in numpydoc's form; empty ones without docstrings."""
    entries = re.findall(r"^(\w+) : [^\n]*\n((?:    [^\n]*\n?)+)", inspect.getdoc(kind) or "", re.MULTILINE)
    return defaultdict(str, {name: " ".join(text.split()) for name, text in entries})


def with_options(options: Mapping[str, Any], **defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options, types by name, in place of its ``**`` parameter; those without default are None."""

    def dressed(command: Callable[..., None]) -> Callable[..., None]:
        given = inspect.signature(command, eval_str=True)
        own = [one for one in given.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=kind)
            for name, kind in options.items()
        ]
        command.__signature__ = given.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        command.__annotations__ |= options
        return command

    return dressed


def json_or_text(text: str) -> Any:
    """Return the value of a text that is JSON, or the text."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text


def key_of(key_file: Path | None) -> bytes | None:
    """Return the encryption key from the file or the environment; None where neither says one.

    Never from the command line: other users of the machine can read that.
    """
    if key_file is not None:
        raw = read_input(key_file)
        return raw if len(raw) == _KEY_BYTES else _key_from_text(raw.decode("ascii", "replace"), str(key_file))
    text = os.environ.get(KEY_VARIABLE)
    return None if not text else _key_from_text(text, f"${KEY_VARIABLE}")


def _key_from_text(text: str, where: str) -> bytes:
    text = "".join(text.split())
    for decoder in (bytes.fromhex, lambda t: base64.b64decode(t, validate=True), base64.urlsafe_b64decode):
        try:
            key = decoder(text)
        except (ValueError, binascii.Error):
            continue
        if len(key) == _KEY_BYTES:
            return key
    raise typer.BadParameter(f"{where} holds no key: 32 bytes are wanted, as 64 hex digits or 44 characters of base64")


# --- stores and names -------------------------------------------------------------------------------------------------


def open_store(store: Path | str, mode: str = "r", *, device: str | None = None) -> Any:
    """Open a store that exists (modes "r", "r+") or may be made (mode "a"), perhaps on a described device."""
    if split_remote(store) is not None:
        return nandarray.open(store, mode, device=device)  # type: ignore[arg-type]
    path = Path(store)
    if mode != "a" and not path.exists():
        raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
    if path.is_dir() and not (path / "nandarray.json").is_file():
        raise IsADirectoryError(errno.EISDIR, "is a directory, not a store", str(path))
    return nandarray.open(str(path), mode, device=device)  # type: ignore[arg-type]


class FileWatch:
    """Tells once that the file of a store that is being served has lost its name."""

    def __init__(self, store: Store) -> None:
        self._store, self._told = store, False

    def look(self) -> None:
        """Look at the file, and warn once."""
        state = None if self._told else self._store._file_state()
        if state is None or state["at_path"]:
            return
        self._told = True
        kept = "under another name" if state["names"] else "nowhere: it is gone when the server ends"
        what = f"{self._store.path} is no longer the file that is served; what clients write is {kept}"
        warnings.warn(what, UserWarning, stacklevel=2)


def find_array(store: Any, name: str, *, key: bytes | None = None) -> Any:
    """Get an array; a wrong name is answered with the nearest right ones."""
    name = name.strip("/")
    missing(store, name)
    return open_array(store, name, key)


def missing(store: Any, name: str) -> None:
    """Raise with a suggestion if nothing is called ``name``."""
    if name in store:
        return
    names = store.array_names()
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or [n for n in names if n.endswith(f"/{name}")][:3]
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    if not near and names:
        hint = f"; it has {', '.join(map(repr, names[:5]))}{', ...' if len(names) > 5 else ''}"
    where = f" in {store.path}{hint}" if names else f": {store.path} is empty"
    raise NotFoundError(f"no array {name!r}{where}")


# --- output -----------------------------------------------------------------------------------------------------------


def say(text: object = "", *, file: TextIO | None = None, end: str = "\n", flush: bool = False) -> None:
    """Print as :func:`print` does; what a terminal would obey in the text is escaped, but for ends of lines."""
    print(plain(str(text), lines=True), file=file, end=end, flush=flush)


class _PlainConsole(Console):
    """A console that escapes what a terminal would obey in a text; its own styles and controls stay."""

    def render_str(self, text: str, **how: Any) -> Text:
        """Make a text of a string, before its width is measured."""
        return super().render_str(plain(text, lines=True), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render anything, texts that were made elsewhere as well."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain(segment.text, lines=True))


def console(*, stderr: bool = False) -> Console:
    """Return a console for the present standard output; a wide one for pipes, so that they get whole lines."""
    stream = sys.stderr if stderr else sys.stdout
    wide = None if stream.isatty() else _WIDE
    return _PlainConsole(file=stream, width=wide, highlight=False, emoji=False, markup=False)


@contextmanager
def bars(*columns: ProgressColumn, quiet: bool, verb: str = "", transient: bool = False) -> Generator[Tell | None]:
    """Show a bar for each name on standard error, where that is a terminal; give None where it is not."""
    out = console(stderr=True)
    if quiet or not out.is_terminal:
        yield None
        return
    named = TextColumn("{task.description}", markup=False), BarColumn()
    with Progress(*named, *columns, console=out, transient=transient) as shown:
        tasks: dict[str, Any] = {}

        def tell(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = shown.add_task(plain(f"{verb} {name}".strip()), total=total)
            shown.update(tasks[name], completed=done, total=total)

        yield tell


def table_of(
    headings: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Iterable[str] = (), whole: Iterable[str] = ()
) -> Table:
    """Return rows as a table without lines: columns to the right, and whole ones, stay on one line, others fold."""
    table = Table(box=None, pad_edge=False)
    numbers, names = set(right), set(whole)
    for heading in headings:
        if heading in numbers:
            table.add_column(heading, justify="right", no_wrap=True)
        else:
            table.add_column(heading, overflow="fold", no_wrap=heading in names)
    for row in rows:
        table.add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def facts_of(rows: Iterable[Sequence[str]], *, style: str = "") -> Table:
    """Return names, in a style, and what there is to say of each as a table without headings."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style=style, no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def print_json(value: Any) -> None:
    """Print one JSON document."""
    say(json.dumps(strict(value), indent=2, default=_jsonable))


def _jsonable(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return jsonable_array(np.asarray(value))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Iterable):
        return list(value)
    return str(value)


def jsonable_array(array: np.ndarray[Any, Any]) -> Any:
    """Return an array as nested lists of JSON values; "NaN", "Infinity" and "-Infinity" are words."""
    if array.dtype.names is not None:
        if array.ndim == 0:
            return {name: jsonable_array(array[name]) for name in array.dtype.names}
        return [jsonable_array(item) for item in array]
    if array.dtype.kind == "M":
        return np.datetime_as_string(array).tolist()
    if array.dtype.kind == "m":
        return array.astype(np.int64).tolist()
    if array.dtype.kind == "c":
        return jsonable_array(np.stack([array.real, array.imag], axis=-1))
    if array.dtype.kind == "S":
        return np.char.decode(array, "latin-1").tolist()
    if array.dtype.kind == "V":
        return [jsonable_array(item) for item in array] if array.ndim else bytes(array.tobytes()).hex()
    listed = array.tolist()
    return strict(listed) if array.dtype.kind == "f" and not np.isfinite(array).all() else listed


def strict(value: Any) -> Any:
    """Replace the floats that JSON does not have, in nested lists and dictionaries."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return value


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Refuse a device, pipe or socket always, and an existing file without ``--overwrite`` (StoreExistsError)."""
    refuse_special(path)
    if path.exists() and not overwrite:
        raise StoreExistsError(errno.EEXIST, "exists already; --overwrite replaces it", str(path))
