"""Reading of a program's ELF: segments, symbols, sections, lines, metadata; and whether it can run here at all.

Reading is done by ``pyelftools``. The checks are those that need no processor: the file's kind, its place in memory,
the extensions it names. Nothing here changes an ELF.
"""

from __future__ import annotations

import io
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from nandarray.errors import ProgramError
from nandarray.optional import needs
from nandarray.programs import abi

__all__ = ["Image", "Location", "Section", "Symbol", "defined_functions", "lines_of", "read"]

# Extensions of the processors that run programs, and the parts that compilers spell out of them.
_NAMES = "i m a f d c b zicsr zicntr zifencei zmmul zaamo zalrsc zca zcd zcf zba zbb zbs"
_VECTORS = "v zve32x zve32f zve64x zve64f zve64d zvl32b zvl64b zvl128b zvl256b zvl512b zvl1024b"
EXTENSIONS = frozenset(f"{_NAMES} {_VECTORS}".split(" "))

_RISCV = 243
_EXEC = 2
_T = TypeVar("_T")


@dataclass(frozen=True)
class Symbol:
    """A function or an object of a program."""

    name: str
    address: int
    size: int
    kind: str


@dataclass(frozen=True)
class Section:
    """A section of a program's file."""

    name: str
    address: int
    size: int


@dataclass(frozen=True)
class Location:
    """The place of an address in a program: a symbol and the distance to it, and the source line if it is known."""

    address: int
    symbol: str | None
    offset: int
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        where = f"{self.address:#x}" if self.symbol is None else f"{self.address:#x} ({self.symbol}+{self.offset:#x})"
        return where if self.file is None else f"{where} {self.file}:{self.line}"


@dataclass(frozen=True)
class Image:
    """Contents of an ELF file, as :func:`read` returns them."""

    bits: int
    isa: str
    entry: int
    symbols: tuple[Symbol, ...]
    sections: tuple[Section, ...]
    segments: tuple[tuple[int, int, int, str], ...]  # address, bytes in memory, bytes in the file, access
    metadata: bytes
    file: bytes

    @cached_property
    def lines(self) -> tuple[tuple[int, str, int], ...]:
        """First address, file, line; sorted; file "" where none is known. Empty if what tells lines is damaged."""
        try:
            return _taken(self.file, _lines)
        except ProgramError:
            return ()

    @property
    def essentials(self) -> dict[str, Any]:
        """The parts that a program needs, as JSON: metadata, entry points, the end of the last segment."""
        defined = {one.name for one in self.symbols} & set(abi.ENTRIES)
        end = max(address + size for address, size, _, _ in self.segments)
        text = self.metadata.decode("utf-8", "surrogateescape")
        return {"metadata": text, "entries": sorted(defined), "end": end}

    def locate(self, address: int) -> Location:
        """Return the symbol and the line of an address, of code or of an object, as far as they are known."""
        named = [one for one in self.symbols if one.kind in {"function", "object"}]
        inside = [one for one in named if one.address <= address < one.address + max(one.size, 1)]
        symbol = inside[0] if inside else None
        at = bisect_right(self.lines, (address, "\U0010ffff", 0)) - 1
        file, line = self.lines[at][1:] if at >= 0 else ("", 0)
        known = bool(file) and symbol is not None
        offset = 0 if symbol is None else address - symbol.address
        name = None if symbol is None else symbol.name
        return Location(address, name, offset, file if known else None, line if known else None)


def read(elf: bytes) -> Image:
    """Take an ELF apart, and refuse what is no program.

    A ProgramError says that it is no ELF, is damaged, is for another processor, is not linked, or lies where programs
    may not.
    """
    if elf[:4] != b"\x7fELF":
        raise ProgramError(f"not an ELF file: it begins with {elf[:4]!r}")
    return _taken(elf, lambda file: _read(file, elf))


def _taken(elf: bytes, part: Callable[[Any], _T]) -> _T:
    """Take a part of an ELF file; a file that is damaged is a ProgramError."""
    with needs("pyelftools", "programs"):
        from elftools.elf.elffile import ELFFile
    try:
        return part(ELFFile(io.BytesIO(elf)))
    except ProgramError:
        raise
    except Exception as error:  # pyelftools leaves it to Python to notice much of what is wrong
        raise ProgramError(f"the ELF file is damaged: {error or type(error).__name__}") from error


def defined_functions(elf: bytes) -> list[str]:
    """Name the functions that an object file, not linked yet, defines for others."""
    from elftools.elf.elffile import ELFFile

    table: Any = ELFFile(io.BytesIO(elf)).get_section_by_name(".symtab")
    return [
        one.name
        for one in (table.iter_symbols() if table is not None else ())
        if one["st_info"]["type"] == "STT_FUNC" and one["st_info"]["bind"] == "STB_GLOBAL"
    ]


def lines_of(elf: bytes, address: int) -> tuple[str, int] | None:
    """Return the file and line of a program counter in any ELF file, which need not be a program.

    It is None if the file has no notes of that, or damaged ones.
    """
    try:
        lines = _taken(elf, _lines)
    except ProgramError:
        return None
    at = bisect_right(lines, (address, "\U0010ffff", 0)) - 1
    return lines[at][1:] if at >= 0 and lines[at][1] else None


def fits(end: int, metadata: Mapping[str, Any]) -> None:
    """Refuse a program that ends beyond its memory by a ProgramError."""
    room = abi.IMAGE_ADDRESS + metadata["memory_bytes"]
    if end > room:
        needs = end - abi.IMAGE_ADDRESS
        raise ProgramError(f"the program takes {needs} bytes, and its memory_bytes is {metadata['memory_bytes']}")


def _read(file: Any, elf: bytes) -> Image:
    machine = file.header["e_machine"]
    if machine not in ("EM_RISCV", _RISCV):
        raise ProgramError(f"the ELF file is for {machine}, not for RISC-V")
    if not file.little_endian:
        raise ProgramError("the ELF file is big-endian; programs are little-endian")
    if file.header["e_type"] not in ("ET_EXEC", _EXEC):
        raise ProgramError(f"the ELF file is {file.header['e_type']}; a program is linked to fixed places (ET_EXEC)")
    segments = tuple(_segments(file, len(elf)))
    isa = _isa(file)
    _check_isa(isa)
    metadata = file.get_section_by_name(abi.SECTION)
    return Image(
        bits=file.elfclass,
        isa=isa,
        entry=file.header["e_entry"],
        symbols=tuple(_symbols(file)),
        sections=tuple(Section(one.name, one["sh_addr"], one["sh_size"]) for one in file.iter_sections() if one.name),
        segments=segments,
        metadata=b"" if metadata is None else metadata.data(),
        file=elf,
    )


def _segments(file: Any, length: int) -> list[tuple[int, int, int, str]]:
    found = []
    for segment in file.iter_segments():
        if segment["p_type"] != "PT_LOAD" or segment["p_memsz"] == 0:
            continue
        address, size, in_file = segment["p_vaddr"], segment["p_memsz"], segment["p_filesz"]
        if in_file > size or segment["p_offset"] + in_file > length:
            raise ProgramError(f"the ELF file is damaged: the segment at {address:#x} reaches beyond the file's end")
        if address < abi.IMAGE_ADDRESS or address + size > abi.ARGS_ADDRESS:
            raise ProgramError(
                f"the segment at {address:#x} of {size} bytes lies outside program memory, "
                f"{abi.IMAGE_ADDRESS:#x} to {abi.ARGS_ADDRESS:#x}"
            )
        access = "".join(letter if segment["p_flags"] & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))
        found.append((address, size, in_file, access))
    if not found:
        raise ProgramError("the ELF file has no segment to load")
    if all(access == "---" for *_, access in found):
        raise ProgramError("no segment may be read, written or executed")
    return found


def _symbols(file: Any) -> list[Symbol]:
    table = file.get_section_by_name(".symtab")
    if table is None:
        return []
    kinds = {"STT_FUNC": "function", "STT_OBJECT": "object", "STT_NOTYPE": "label"}
    found = []
    for one in table.iter_symbols():
        kind = kinds.get(one["st_info"]["type"])
        if kind is None or not one.name or one.name.startswith(("$", ".L")) or one["st_value"] < abi.IMAGE_ADDRESS:
            continue
        found.append(Symbol(one.name, one["st_value"], one["st_size"], kind))
    return sorted(found, key=lambda one: (one.address, one.name))


def _isa(file: Any) -> str:
    """Return the architecture that the compiler noted; without a note, what the header's flags tell."""
    noted = file.get_section_by_name(".riscv.attributes")
    if noted is not None:
        for part in noted.iter_subsections():
            for sub in part.iter_subsubsections():
                for attribute in sub.iter_attributes():
                    if attribute.tag == "TAG_ARCH":
                        return str(attribute.value)
    flags = file.header["e_flags"]
    letters = "ima" + {0: "", 2: "f", 4: "fd", 6: "fdq"}[flags & 6] + ("c" if flags & 1 else "")
    return f"rv{file.elfclass}{letters}"


def _check_isa(isa: str) -> None:
    base = re.match(r"rv(32|64)([a-z])", isa)
    if base is None:
        raise ProgramError(f"the ELF file names the architecture {isa!r}, which is none of RISC-V")
    missing = []
    for part in isa[4:].split("_"):
        name = re.sub(r"\d+p\d+$", "", part)
        many = [name] if name.startswith(("z", "s", "x")) or len(name) == 1 else list(re.sub(r"\d+p\d+", "", part))
        missing += [one for one in many if one and one not in EXTENSIONS]
    if missing:
        raise ProgramError(f"the program needs {', '.join(missing)}, which no core here has ({isa})")


def _lines(file: Any) -> tuple[tuple[int, str, int], ...]:
    if not file.has_dwarf_info():
        return ()
    dwarf = file.get_dwarf_info()
    found: dict[int, tuple[str, int]] = {}  # of several lines at one address the last counts
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        if program is None:
            continue
        names = program["file_entry"]
        first = 0 if program["version"] >= 5 else 1  # noqa: PLR2004
        for entry in program.get_entries():
            state = entry.state
            if state is None or state.address < abi.IMAGE_ADDRESS:
                continue
            if state.end_sequence:
                found.setdefault(state.address, ("", 0))  # where another function begins, that counts
            else:
                found[state.address] = (names[state.file - first].name.decode("utf-8", "replace"), state.line)
    return tuple((address, *found[address]) for address in sorted(found))
