"""The native form of a program: its source compiled for this machine, opened as a library of this process.

Only of programs that are trusted: nothing keeps such a library from reading or writing whatever the process can, and
one that goes wrong ends the process. Entry points and argument block are those of ``docs/reference/program-abi.md``.

Libraries are kept in the cache of compiled programs, by source and processor; they are opened from memory, so that
nothing can change between the checksum and the use. Once open they stay. Compiling is the business of
:mod:`nandarray.programs.compile.host`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nandarray.errors import CompileError, InvalidError
from nandarray.programs import abi
from nandarray.programs.compile import host, scratch, zig
from nandarray.programs.compile.cache import Cache, digest

if TYPE_CHECKING:
    from nandarray.programs.forms import Form
    from nandarray.programs.program import Program

__all__ = ["FORMS", "Recipe", "choose"]

#: Ways to execute a program.
FORMS = ("interpreted", "translated", "native")

_OPENED: dict[tuple[bytes, Recipe | None], Entries] = {}
_LOCK = threading.Lock()
# Variables of the C library that no program uses.
_KNOWN_VARIABLES = {"signgam", "__signgam"}


@dataclass(frozen=True)
class Recipe:
    """The source and the options of Clang that a program in C was compiled from.

    ``path`` is its file, or what to call it if it is ``inline``, without a file.
    """

    text: str
    path: Path
    flags: tuple[str, ...]
    inline: bool


@dataclass(frozen=True)
class Entries:
    """Entry points in this process: the addresses of begin, task, merge, end; 0 is none."""

    addresses: tuple[int, int, int, int]
    library: ctypes.CDLL


def choose(program: Program, form: str | None, *, counted: bool = False) -> tuple[str, tuple[int, ...] | None]:
    """Choose the form in which a program is executed; None asks for the fastest that is possible here.

    If the form is native, it comes with the addresses of entry points. ``counted`` programs have limited instructions,
    which those of a library cannot be. A form that there is not, or that the program cannot be executed in, is an
    InvalidError; one that does not compile for this machine a CompileError.
    """
    if form is not None and form not in FORMS:
        raise InvalidError(f"form must be one of {', '.join(FORMS)}, not {form!r}")
    if form is None and program.trusted and not counted:
        with contextlib.suppress(InvalidError, CompileError, ImportError):
            return "native", entries(program).addresses
    if form != "native":
        return form or "translated", None
    if counted:
        raise InvalidError(
            "the instructions of a program in native form cannot be limited, nor counted for a modelled device"
        )
    return form, entries(program).addresses


def entries(program: Program) -> Entries:
    """Open the native form of a program; compile it before, if it was not.

    An InvalidError says that it is not trusted, was not compiled here, is for 32 bits, has variables that several cores
    would share, or has no native form for this machine; a CompileError, that it does not compile for it.
    """
    if not program.trusted:
        raise InvalidError(f"{program.name} is not trusted: its native form could do anything that this process can")
    machine = host.target()
    if machine is None:
        raise InvalidError("the native form of programs needs Linux on x86-64 or 64-bit ARM")
    if program.target != "rv64":
        raise InvalidError(f"{program.name} is made for {program.target}; a native form has 64 bits")
    recipe = program._recipe
    if recipe is None:
        raise InvalidError(f"{program.name} comes without the source that its native form is compiled from")
    # One ELF may come of two texts that differ where they are compiled for this machine.
    mark = (program.elf, recipe if isinstance(recipe, Recipe) else None)
    with _LOCK:
        if mark not in _OPENED:
            raw, shared = _from_c(recipe, machine) if isinstance(recipe, Recipe) else _from_python(recipe, machine)
            _OPENED[mark] = _open(program, raw, shared)
        return _OPENED[mark]


def _from_c(recipe: Recipe, machine: host.Host) -> tuple[bytes, list[str]]:
    """Return a library, and the names of variables that its cores would share."""
    where = "" if recipe.inline else recipe.path.resolve().parent
    ours = [file.read_bytes() for file in sorted(zig.INCLUDE.iterdir())]
    said = [zig.version(), abi.ABI, machine, *ours, zig.OPTIONS, recipe.text, recipe.path.name, where, *recipe.flags]
    key, cache = digest(["native c 2", *said]), Cache()
    found = cache.get(key)
    if found is not None:
        return found[0], found[1]["shared"]
    with scratch.folder() as place:
        file = place / recipe.path.name
        file.write_text(recipe.text)
        flags = [] if recipe.inline else [f"-iquote{recipe.path.resolve().parent}"]
        _, files = zig.compile_c(
            file,
            place / "program.o",
            machine,
            flags=[*flags, *recipe.flags],
            shown=(str(file), str(recipe.path)),
        )
        raw = _linked([place / "program.o"], machine, place)
        shared, ours_too = _variables(raw), (str(zig.INCLUDE), str(place))
        read = [name for name in files if not name.startswith(ours_too)]
        cache.put(key, raw, files=read, note={"shared": shared})
    return raw, shared


def _from_python(form: Form, machine: host.Host) -> tuple[bytes, list[str]]:
    from nandarray.programs.compile.functions import typed

    key, text = typed(form)
    key, cache = key and digest(["native python 2", machine, key]), Cache()
    found = cache.get(key) if key else None
    if found is not None:
        return found[0], found[1]["shared"]
    with scratch.folder() as place:
        (place / "program.ll").write_text(host.retarget(text(), machine))
        zig.compile_ir(place / "program.ll", place / "program.o", machine)
        raw = _linked([place / "program.o", zig.runtime(machine)], machine, place)
    shared = _variables(raw)
    if key:
        cache.put(key, raw, note={"shared": shared})
    return raw, shared


def _linked(objects: Sequence[Path], machine: host.Host, place: Path) -> bytes:
    made = place / "program.so"
    host.link(objects, made, machine)
    return made.read_bytes()


def _open(program: Program, raw: bytes, shared: Sequence[str]) -> Entries:
    if shared:
        raise InvalidError(
            f"{program.name} has variables ({', '.join(shared)}), which the cores of a native form would share; keep "
            "them in the state or in the scratchpad"
        )
    library = _dlopen(program.name, raw)
    metadata = program._metadata
    names = ["nd_begin", f"nd_{metadata['kind']}", "nd_merge", "nd_end"]
    defined = [name if name in metadata["entries"] else "" for name in names]
    found = [_address(library, name) if name else 0 for name in defined]
    if missing := [name for name, address in zip(defined, found, strict=True) if name and not address]:
        raise InvalidError(f"the native form of {program.name} has no {missing[0]}")
    begin, task, merge, end = found
    return Entries((begin, task, merge, end), library)


def _address(library: ctypes.CDLL, name: str) -> int:
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


def _dlopen(name: str, raw: bytes) -> ctypes.CDLL:
    """Open a library. Its descriptor stays open, too: the loader tells libraries apart by their names."""
    try:
        handle = os.memfd_create(f"nandarray-{name}"[:200])
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.write(raw)
        return ctypes.CDLL(f"/proc/self/fd/{handle}", mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise InvalidError(f"the native form of {name} cannot be opened: {error}") from None


def _variables(raw: bytes) -> list[str]:
    """Return the names of variables that all threads would share."""
    from io import BytesIO

    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    file = ELFFile(BytesIO(raw))
    shared = {
        index
        for index, section in enumerate(file.iter_sections())
        if section.name.startswith((".data", ".bss")) and not section.name.startswith(".data.rel.ro")
    }
    tables = [section for section in file.iter_sections() if isinstance(section, SymbolTableSection)]
    symbols = [one for table in tables for one in table.iter_symbols()]
    named = {one.name for one in symbols if one["st_info"]["type"] == "STT_OBJECT" and one["st_shndx"] in shared}
    return sorted(named - _KNOWN_VARIABLES)
