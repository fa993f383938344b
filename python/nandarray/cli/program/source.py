"""SOURCE of the command line: a C file, a Python file with programs, an ELF, or the name of a ready-made program.

Here a SOURCE becomes a :class:`nandarray.Program`, and shells get its completions. Inputs and outputs are in
:mod:`nandarray.cli.program.run`.
"""

from __future__ import annotations

import difflib
import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nandarray.cli.common import fail
from nandarray.errors import CompileError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from nandarray import Program

__all__ = [
    "complete_core",
    "complete_form",
    "complete_source",
    "complete_target",
    "is_ready_made",
    "load",
    "make",
    "step_name",
]

_ENDINGS = (".c", ".py", ".elf")


def complete_source(incomplete: str) -> list[str]:
    """Complete the name of a ready-made program, or of a file that may have one."""
    from nandarray import programs

    before, slash, begin = incomplete.rpartition("/")
    folder = Path(before + slash) if before + slash else Path()
    try:
        there = sorted(folder.iterdir()) if folder.is_dir() else []
    except OSError:
        there = []  # a completion never complains
    files = [f"{before}{slash}{one.name}{'/' if one.is_dir() else ''}" for one in there
             if one.name.startswith(begin) and (one.is_dir() or one.suffix in _ENDINGS)
             and (begin or not one.name.startswith("."))]  # fmt: skip
    return [name for name in programs.names() if name.startswith(incomplete)] + files


def complete_form(incomplete: str) -> list[str]:
    """Complete a form of execution."""
    return [form for form in ("interpreted", "translated", "native") if form.startswith(incomplete)]


def complete_target(incomplete: str) -> list[str]:
    """Complete a processor."""
    return [target for target in ("rv64", "rv32", "rv32im", "rv32imf", "rv64imafdc") if target.startswith(incomplete)]


def complete_core(incomplete: str) -> list[str]:
    """Complete the name of a described core."""
    from nandarray import _nandarray

    return [name for name in _nandarray.core_names() if name.startswith(incomplete)]


def is_ready_made(source: str) -> bool:
    """Return whether this names a ready-made program; a file of that name comes first."""
    from nandarray import programs

    return source in programs.names() and not Path(source).exists()


def step_name(source: str) -> str:
    """Name a program that has no name yet after its function or its file."""
    path, _, name = source.partition(".py:")
    return name or Path(path).stem


def load(source: str, *, target: str = "rv64", flags: Sequence[str] | None = None, trusted: bool = False) -> Program:
    """Get a compiled program from a C file, a Python file (behind it ``:NAME`` of a program in it) or an ELF.

    The options are of C alone: processor, further options of Clang, whether it may be executed as a part of this
    process. An InvalidError says that the Python file has no such program, or several and none was named, or that an
    option is of C.
    """
    from nandarray import Program

    path, _, name = source.partition(".py:")
    if not source.endswith(".c"):
        given = {"--flag": bool(flags), "--target": target != "rv64", "--trust": trusted}
        unused = ", ".join(option for option, is_given in given.items() if is_given)
        if unused:
            raise InvalidError(f"{source} is no C file: {unused} would do nothing")
    if name or source.endswith(".py"):
        return _of_python(Path(path + ".py" if name else source), name)
    if source.endswith(".c"):
        return Program.from_c(Path(source), target=target, flags=flags or (), trusted=trusted)
    return Program.from_elf(Path(source))


def _of_python(path: Path, name: str) -> Program:
    from nandarray import Program

    with open(path):
        pass  # that there is none is said with its name
    try:
        ran = runpy.run_path(str(path))
    except (Exception, SystemExit) as error:
        if isinstance(error, InvalidError | CompileError):
            raise
        raise InvalidError(f"{path} cannot be run for its programs: {type(error).__name__}: {error}") from error
    found = {key: one for key, one in ran.items() if isinstance(one, Program)}
    if not found:
        raise InvalidError(f"{path} has no program: a function under @nandarray.program")
    if name and name not in found:
        raise InvalidError(f"{path} has no program {name!r}; it has {', '.join(sorted(found))}")
    if not name and len(found) > 1:
        listed = ", ".join(sorted(found))
        raise InvalidError(f"{path} has several programs ({listed}): name one, like {path}:{min(found)}")
    return found[name or next(iter(found))]


def make(
    source: str,
    numbers: Mapping[str, Any],
    *,
    dtype: Any = None,
    first: Any = None,
    stream: bool = False,
    target: str = "rv64",
    flags: Sequence[str] | None = None,
    trust: bool = False,
) -> tuple[Program, dict[str, Any]]:
    """Get a program that is to be run, and its scalars: ``numbers`` without the sizes of a ready-made program.

    ``dtype`` and ``stream`` (the form with stream instructions) are of a ready-made program, made for the dtype
    ``first`` of its first input if none is given; the other options are as for :func:`load`. A NotFoundError says that
    there is neither a file nor a ready-made program of this name, an InvalidError that it cannot be made so.
    """
    from nandarray import programs

    if is_ready_made(source):
        if flags:
            raise InvalidError(f"{source} is ready-made: --flag would do nothing")
        entry = programs.describe(source)
        sizes = {key: numbers[key] for key in entry.parameters if key in numbers}
        wanted = dtype if dtype is not None or not entry.dtypes else first
        kind = "stream" if stream else "block"
        made = programs.get(source, dtype=wanted, kind=kind, target=target, **sizes)
        return made, {key: value for key, value in numbers.items() if key not in sizes}
    if not Path(source.partition(".py:")[0]).exists() and not source.endswith(_ENDINGS) and ".py:" not in source:
        near = difflib.get_close_matches(source, programs.names(), n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; `nandarray program list` shows those"
        raise NotFoundError(f"no file {source!r}, and no ready-made program of this name{hint}")
    if dtype is not None or stream:
        option = "--dtype" if dtype is not None else "--stream"
        raise InvalidError(f"{source} is not ready-made: {option} would do nothing")
    try:
        made = load(source, target=target, flags=flags, trusted=trust)
        _ = made.elf
    except CompileError as error:
        fail(str(error))  # a compiler's message keeps its line breaks
        raise
    return made, dict(numbers)
