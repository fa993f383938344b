"""Profiles: a program's instructions, counted by the interpreter, by function, source line, class and block.

:func:`profile` runs a program beside the data as :func:`nandarray.offload` does, on harts that count instructions. The
counts are the same on every machine and for any number of cores; they say nothing of time. Printing is left to
``nandarray program profile``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nandarray import _nandarray
from nandarray.programs.run import Offloaded, Progress, offload

if TYPE_CHECKING:
    from nandarray.programs.program import Program

__all__ = ["BlockCount", "FunctionCount", "Instruction", "LineCount", "Profile", "profile", "source_lines"]


@dataclass(frozen=True)
class Instruction:
    """An instruction that was executed.

    Attributes
    ----------
    address : int
        Its address.
    text : str
        Text of the disassembler.
    kind : str
        Its class: integer, multiply, bits, load, store, atomic, branch, jump, float, stream or system.
    times : int
        Number of executions.
    """

    address: int
    text: str
    kind: str
    times: int


@dataclass(frozen=True)
class FunctionCount:
    """Instructions that were executed in a function; what it inlined counts as its own."""

    name: str
    instructions: int


@dataclass(frozen=True)
class LineCount:
    """Instructions that were executed for a line of source; ``text`` is the line, if the source is known."""

    file: str
    line: int
    instructions: int
    text: str | None = None


@dataclass(frozen=True)
class BlockCount:
    """A block: instructions that are executed one after the other, up to one that may go elsewhere."""

    address: int
    function: str
    length: int
    times: int

    @property
    def instructions(self) -> int:
        """Instructions executed in it, had it never been left early."""
        return self.length * self.times


@dataclass(frozen=True)
class Profile:
    """The counts of a run.

    Attributes
    ----------
    instructions : tuple of Instruction
        Instructions by address; only those that were executed.
    blocks : tuple of BlockCount
        Blocks by instructions executed in them, most first.
    offloaded : Offloaded
        Result of the program, and the account.
    """

    program: Program = field(repr=False)
    instructions: tuple[Instruction, ...] = field(repr=False)
    blocks: tuple[BlockCount, ...] = field(repr=False)
    offloaded: Offloaded = field(repr=False)
    total: int

    @property
    def functions(self) -> tuple[FunctionCount, ...]:
        """Functions by instructions executed in them, most first."""
        counts: Counter[str] = Counter()
        for one in self.instructions:
            counts[self.program.locate(one.address).symbol or "?"] += one.times
        return tuple(FunctionCount(name, times) for name, times in _ordered(counts))

    @property
    def lines(self) -> tuple[LineCount, ...]:
        """Lines of source by instructions executed for them, most first; empty if the program has no notes of lines."""
        counts: Counter[tuple[str, int]] = Counter()
        for one in self.instructions:
            at = self.program.locate(one.address)
            if at.file is not None and at.line:
                counts[at.file, at.line] += one.times
        texts = source_lines(self.program)
        found = []
        for (file, line), times in _ordered(counts):
            text = texts.get(file, [])
            found.append(LineCount(file, line, times, text[line - 1] if line <= len(text) else None))
        return tuple(found)

    @property
    def classes(self) -> dict[str, int]:
        """Instructions by class, most first."""
        counts: Counter[str] = Counter()
        for one in self.instructions:
            counts[one.kind] += one.times
        return dict(_ordered(counts))


def source_lines(program: Program) -> dict[str, list[str]]:
    """Return the lines of a program's own source by the name of its file; empty if it was not compiled from C here."""
    source = program.source
    if source is None or program.function is not None:
        return {}
    # The file is that which the entry points are in.
    own = {program.locate(one.address).file for one in program.symbols if one.name.startswith("nd_")}
    return {file: source.splitlines() for file in own if file is not None}


def _ordered(counts: Counter[Any]) -> list[tuple[Any, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def profile(
    program: Program,
    inputs: Sequence[Any],
    scalars: Mapping[str, Any] | None = None,
    *,
    instructions: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Run a program beside arrays of a store, and count its instructions.

    Parameters
    ----------
    program : Program
        The program; it is interpreted.
    inputs : sequence
        As for :func:`nandarray.offload`.
    scalars : mapping, optional
        Numbers by name.
    instructions : int, optional
        The most of them in one call of the program.
    threads : int, optional
        Cores; all of the machine if left out. The counts do not depend on it.
    progress : callable, optional
        As for :func:`nandarray.offload`.

    Returns
    -------
    Profile
        Instructions by address, and what follows from that.

    Raises
    ------
    InvalidError, ProgramError, ProgramFailedError
        As :func:`nandarray.offload` does.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["a"] = np.arange(6).reshape(2, 3)
    >>> from nandarray import programs
    >>> found = nandarray.profile(programs.get("sum", dtype="int64"), [store["a"]])
    >>> found.total > 0
    True
    """
    watch = _nandarray.Watch(profile=True)
    done = offload(
        program,
        inputs,
        scalars,
        form="interpreted",
        threads=threads,
        instructions=instructions,
        progress=progress,
        _watch=watch,
        _learns="profile of programs",
    )
    counted, entered = watch.profile()
    found = tuple(Instruction(address, text, kind, times) for address, kind, text, times in counted)
    blocks = [BlockCount(at, program.locate(at).symbol or "?", length, times) for at, length, times in entered]
    blocks.sort(key=lambda one: (-one.instructions, one.address))
    return Profile(program, found, tuple(blocks), done, sum(one.times for one in found))
