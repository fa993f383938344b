"""Timing: what a program takes on a described core, by reason, cache, function and source line.

:meth:`nandarray.Program.time` and :meth:`Timed` are public; :func:`timed` is behind them. A program is run beside the
data as :func:`nandarray.offload` does, on one core of a description (``docs/reference/core-descriptions.md``) that
executes all tasks one after the other, with memory of its own. Its outputs are the same on every core. Waits for flash
are not part of it: these are a modelled device's.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nandarray import _nandarray
from nandarray.errors import InvalidError, NotFoundError
from nandarray.inputs import read_text
from nandarray.present.html import Markup, table
from nandarray.programs.compile import zig
from nandarray.programs.profile import source_lines
from nandarray.programs.run import Offloaded, Progress, offload

if TYPE_CHECKING:
    from nandarray.programs.program import Program

__all__ = ["CacheCounts", "Call", "CoreChoice", "Place", "Timed", "choose_core", "core_names", "timed"]

#: Reasons in the order of a stack of cycles, with a sentence each.
REASONS = {
    "issue": "instructions issued",
    "hazard": "operands that were not there yet",
    "structural": "units that were busy",
    "branch": "branches and jumps",
    "fetch": "instruction cache and second level, for code",
    "fetch_memory": "memory, for code",
    "l1": "data cache",
    "l2": "second level, for data",
    "memory": "memory, for data",
    "scratchpad": "scratchpad",
    "stream": "stream instructions",
    "stream_wait": "waits for streams",
    "vector": "further cycles of vector instructions",
    "unpack": "waits for packed values",
}


#: The parser's word for a value of another kind than its key takes.
_WRONG_KIND = re.compile(r"invalid (?:type|value): .*, expected (u8|u16|u32|u64|struct CacheDescription)\b")
_KINDS = {f"u{bits}": f"a whole number from 0 to {2**bits - 1:,}" for bits in (8, 16, 32)} | {
    "u64": f"a whole number from 0 to {2**63 - 1:,}; a size may end with KiB or MiB",
    "struct CacheDescription": "a table: give its keys, such as size_bytes and ways, one by one",
}


@dataclass(frozen=True)
class CoreChoice:
    """A described core: a description in TOML, and the values that replace some of its own.

    Attributes
    ----------
    text : str
        The description.
    changes : tuple of (str, str)
        Keys and values.
    facts : mapping
        ``name``, ``source``, ``isa``, ``clock_hz``, caches and parts, after the changes.
    """

    text: str = field(repr=False)
    changes: tuple[tuple[str, str], ...]
    facts: Mapping[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        """The core's name."""
        return str(self.facts["name"])

    def watch(self) -> _nandarray.Watch:
        """Return a watch whose run is on this core."""
        return _nandarray.Watch(core=(self.text, list(self.changes)))

    def fitted(self, program: Program) -> Program:
        """Return a program compiled for the core's instruction set, from its source if it is not yet.

        Without a source it is returned as it is; a core that lacks what it needs refuses it. One from Python is an
        InvalidError on a core that has not 64 bits.
        """
        isa = str(self.facts["isa"])
        return program if zig.fits(program.isa, isa) else program.compiled_for(zig.target_for(isa).name)


def core_names() -> list[str]:
    """Return the names of the cores that come with the product."""
    return _nandarray.core_names()


def choose_core(core: str | os.PathLike[str], changes: Mapping[str, Any] | None = None) -> CoreChoice:
    """Find a core by its name, or read a description.

    Parameters
    ----------
    core : str or path
        A name of :func:`core_names`, or the path of a TOML file.
    changes : mapping, optional
        Values that replace some of the description's, by key: ``{"l1d.size": "16KiB"}``.

    Returns
    -------
    CoreChoice
        The core, checked.

    Raises
    ------
    NotFoundError
        There is no such core, or no such file; the message lists the names.
    InvalidError
        A value is out of its range: the key, the value and the range.
    """
    path = Path(core)
    if isinstance(core, str) and core in core_names():
        text = _nandarray.core_text(core)
    elif path.suffix == ".toml":
        try:
            text = read_text(path, "a description in TOML")
        except FileNotFoundError:
            raise NotFoundError(f"there is no file {core}") from None
    else:
        raise NotFoundError(
            f"there is no core {str(core)!r}; there is {', '.join(core_names())}, or a description in a .toml file"
        )
    given = tuple((str(key), str(value)) for key, value in (changes or {}).items())
    return CoreChoice(text, given, _described(text, given))


def _described(text: str, changes: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the facts of a core; a value of the wrong kind is named with its key and with what is allowed."""
    try:
        return _nandarray.core_describe(text, list(changes))
    except InvalidError as error:
        wrong = _WRONG_KIND.match(str(error))
        allowed = _KINDS.get(wrong[1]) if wrong else None
        if allowed is None:
            raise
        said = [f"{key}={value}" for key, value in changes if _is_wrong(text, key, value)]
        at = said[0] if said else "the description"
        raise InvalidError(f"{at}: {'it is ' if said else 'a value is '}{allowed}") from None


def _is_wrong(text: str, key: str, value: str) -> bool:
    try:
        _nandarray.core_describe(text, [(key, value)])
    except InvalidError as error:
        return _WRONG_KIND.match(str(error)) is not None
    return False


@dataclass(frozen=True)
class CacheCounts:
    """Accesses and misses of a cache.

    Attributes
    ----------
    reads, read_misses, writes, write_misses : int
        Accesses of lines.
    write_backs : int
        Dirty lines that left.
    prefetches : int
        Lines that a prefetcher brought.
    """

    reads: int
    read_misses: int
    writes: int
    write_misses: int
    write_backs: int
    prefetches: int

    @property
    def accesses(self) -> int:
        """Reads and writes."""
        return self.reads + self.writes

    @property
    def misses(self) -> int:
        """Reads and writes that missed."""
        return self.read_misses + self.write_misses

    @property
    def hits(self) -> int:
        """Reads and writes that hit."""
        return self.accesses - self.misses


@dataclass(frozen=True)
class Place:
    """A function, or a line of source, and what it took.

    Attributes
    ----------
    name : str
        The function's name, or ``FILE:LINE``.
    instructions : int
        Executed.
    cycles : float
        All cycles.
    stalls : float
        Cycles for which caches, memory, scratchpad and streams froze the pipeline.
    text : str or None
        The line, if the source is known.
    """

    name: str
    instructions: int
    cycles: float
    stalls: float
    text: str | None = None

    @property
    def cpi(self) -> float:
        """Cycles an instruction."""
        return self.cycles / self.instructions if self.instructions else 0.0


@dataclass(frozen=True)
class Call:
    """A call of an entry point: a task, or the beginning, the folding or the end of a program's state.

    Attributes
    ----------
    begin : float
        Cycles of the core before it.
    cycles : float
        Its own.
    reasons : dict of float
        The same by reason, those that are not 0.
    """

    begin: float
    cycles: float
    reasons: dict[str, float]


@dataclass(frozen=True)
class Timed:
    """The figures of a program on a described core.

    Attributes
    ----------
    core : str
        The core's name.
    isa : str
        Its instruction set.
    clock_hz : float
        Its clock.
    cycles : float
        Clock cycles; a core may count parts of one.
    seconds : float
        The modelled time of it.
    instructions : int
        Executed.
    reasons : dict of float
        Cycles by reason; their sum is ``cycles``.
    units : dict of int
        Instructions by functional unit.
    caches : dict of CacheCounts
        ``l1i``, ``l1d``, ``l2``, those that the core has.
    memory : dict of int
        Lines read, written and prefetched.
    vector : dict of int
        Counts of the vector datapath: operations, elements, the bits that it had in its cycles (``offered_bits``),
        those that elements occupied and those that their values needed; and bits of packed streams.
    parts : dict of (float, float)
        Area in square millimetres and energy in joules of each part.
    functions, lines : tuple of Place
        Functions and lines by cycles, most first.
    calls : tuple of Call
        Calls in the order of time; beyond 4096 the last one is all that follow.
    program : Program
        The program as it was run: compiled for the core.
    offloaded : Offloaded
        The program's outputs, and the account of the run on this machine.
    """

    core: str
    isa: str
    clock_hz: float
    cycles: float
    seconds: float
    instructions: int
    reasons: dict[str, float]
    units: dict[str, int]
    caches: dict[str, CacheCounts]
    memory: dict[str, int]
    vector: dict[str, int]
    parts: dict[str, tuple[float, float]]
    functions: tuple[Place, ...] = field(repr=False)
    lines: tuple[Place, ...] = field(repr=False)
    calls: tuple[Call, ...] = field(repr=False)
    program: Program = field(repr=False)
    offloaded: Offloaded = field(repr=False)

    @property
    def cpi(self) -> float:
        """Cycles an instruction."""
        return self.cycles / self.instructions if self.instructions else 0.0

    @property
    def cpi_stack(self) -> dict[str, float]:
        """Cycles an instruction by reason, without those that cost nothing."""
        return {name: cycles / max(1, self.instructions) for name, cycles in self.reasons.items() if cycles}

    @property
    def datapath_efficiency(self) -> float:
        """Share of the vector datapath's bits that carried values; 0 if no vector instruction used it."""
        offered = self.vector["offered_bits"]
        return self.vector["value_bits"] / offered if offered else 0.0

    @property
    def energy_j(self) -> float:
        """Energy of all parts, in joules; 0 if the description has none."""
        return sum(energy for _, energy in self.parts.values())

    @property
    def area_mm2(self) -> float:
        """Area of all parts, in square millimetres; 0 if the description has none."""
        return sum(area for area, _ in self.parts.values())

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain data, without the outputs."""
        return {
            "program": self.program.name,
            "compiled_for": self.program.isa,
            "core": self.core,
            "isa": self.isa,
            "clock_hz": self.clock_hz,
            "cycles": self.cycles,
            "seconds": self.seconds,
            "instructions": self.instructions,
            "cpi": self.cpi,
            "cpi_stack": self.cpi_stack,
            "cycles_by_reason": self.reasons,
            "instructions_by_unit": self.units,
            "caches": {
                name: asdict(one) | {"hits": one.hits, "misses": one.misses} for name, one in self.caches.items()
            },
            "memory": self.memory,
            "vector": self.vector,
            "datapath_efficiency": self.datapath_efficiency,
            "energy_j": self.energy_j,
            "area_mm2": self.area_mm2,
            "parts": {name: {"area_mm2": area, "energy_j": energy} for name, (area, energy) in self.parts.items()},
            "functions": [asdict(one) for one in self.functions],
            "lines": [asdict(one) for one in self.lines],
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def write_timeline(self, path: str | os.PathLike[str]) -> None:
        """Write a timeline that Perfetto (ui.perfetto.dev) and Chrome's tracing page open.

        Each call is a span, with its cycles by reason; below it a second row divides its time by these reasons, as
        shares: the core waits for them by turns.

        Parameters
        ----------
        path : str or path
            A JSON file, which is replaced.
        """
        us = 1e6 / self.clock_hz
        events: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": f"{self.program.name} on {self.core}"}},
            {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "calls"}},
            {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "reasons, as shares of each call"}},
        ]
        for number, call in enumerate(self.calls):
            span = {"ph": "X", "pid": 1, "ts": call.begin * us, "dur": call.cycles * us}
            events.append({**span, "tid": 1, "name": f"call {number}", "args": call.reasons})
            at = call.begin
            for name, cycles in call.reasons.items():
                share = {"ph": "X", "pid": 1, "tid": 2, "ts": at * us, "dur": cycles * us}
                events.append({**share, "name": name, "args": {"cycles": cycles, "is": REASONS[name]}})
                at += cycles
        Path(path).write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}), encoding="utf-8")

    def _repr_html_(self) -> str:
        facts = [
            ("core", f"{self.core}, {self.isa}, {self.clock_hz / 1e9:g} GHz"),
            ("time", f"{self.seconds:.4g} s, {self.cycles:,.0f} cycles"),
            ("instructions", f"{self.instructions:,}, {self.cpi:.3f} cycles each"),
        ]
        if self.vector["operations"]:
            facts.append(("datapath", f"{self.datapath_efficiency:.1%} of its bits carried values"))
        if self.parts:
            facts.append(("energy, area", f"{self.energy_j:.3g} J, {self.area_mm2:.3g} mm²"))
        stack = [
            (REASONS[name], f"{cpi:.3f}", _bar(cpi / self.cpi if self.cpi else 0.0))
            for name, cpi in self.cpi_stack.items()
        ]
        caches = [(name, f"{one.accesses:,}", f"{one.hits:,}", f"{one.misses:,}") for name, one in self.caches.items()]
        functions = [
            (one.name, f"{one.cycles:,.0f}", f"{one.instructions:,}", f"{one.cpi:.2f}") for one in self.functions[:10]
        ]
        shown = [f"<strong>{self.program.name}</strong>", table(facts)]
        shown.append(table(stack, ("cycles an instruction", "", "")))
        if caches:
            shown.append(table(caches, ("cache", "accesses", "hits", "misses"), numbers=True))
        shown.append(table(functions, ("function", "cycles", "instructions", "CPI"), numbers=True))
        return f"<div>{''.join(shown)}</div>"


def _bar(share: float) -> Markup:
    return Markup(
        f'<svg width="160" height="10"><rect width="{160 * share:.0f}" height="10" fill="#4477aa"></rect></svg>'
    )


def timed(
    program: Program,
    inputs: Sequence[Any],
    scalars: Mapping[str, Any] | None = None,
    *,
    core: str | os.PathLike[str] | CoreChoice,
    changes: Mapping[str, Any] | None = None,
    instructions: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Timed:
    """Run a program beside arrays of a store on a described core; :meth:`nandarray.Program.time` says how.

    Parameters
    ----------
    program, inputs, scalars, core, changes, instructions, progress
        As for :meth:`nandarray.Program.time`.
    **options
        Further arguments of :func:`nandarray.offload`.

    Returns
    -------
    Timed
        Cycles, hits and misses, energy.

    Raises
    ------
    InvalidError, NotFoundError, ProgramError, ProgramFailedError
        As :meth:`nandarray.Program.time` does.
    """
    chosen = core if isinstance(core, CoreChoice) else choose_core(core, changes)
    fitted = chosen.fitted(program)
    watch = chosen.watch()
    done = offload(
        fitted,
        inputs,
        scalars,
        form="interpreted",
        threads=1,
        instructions=instructions,
        progress=progress,
        _watch=watch,
        _learns="timing of programs",
        **options,
    )
    return figures(chosen, fitted, watch, done)


def figures(core: CoreChoice, program: Program, watch: _nandarray.Watch, done: Offloaded) -> Timed:
    """Read what the watch of a core has of a run that is over."""
    found = watch.timing()
    reports = found["reports"]
    if not reports:
        raise InvalidError("no instruction was executed: there is nothing to time")
    each = reports[0]["ticks_a_cycle"]
    caches: dict[str, CacheCounts] = {}
    for name in reports[0]["caches"]:
        several = [one["caches"][name] for one in reports]
        caches[name] = CacheCounts(**{key: sum(one[key] for one in several) for key in several[0]})
    parts = {name: (area, 0.0) for name, area, _ in reports[0]["parts"]}
    for one in reports:
        for name, _, energy in one["parts"]:
            parts[name] = (parts[name][0], parts[name][1] + energy)
    ticks = sum(one["ticks"] for one in reports)
    functions, lines = _places(program, found["addresses"], each)
    return Timed(
        core=core.name,
        isa=str(core.facts["isa"]),
        clock_hz=float(core.facts["clock_hz"]),
        cycles=ticks / each,
        seconds=ticks * reports[0]["tick_ps"] * 1e-12,
        instructions=sum(one["instructions"] for one in reports),
        reasons={name: total / each for name, total in _sum(reports, "reasons").items()},
        units=_sum(reports, "units"),
        caches=caches,
        memory=_sum(reports, "memory"),
        vector=_sum(reports, "vector"),
        parts=parts,
        functions=functions,
        lines=lines,
        calls=_calls(found["calls"], each),
        program=program,
        offloaded=done,
    )


def _sum(reports: Sequence[Mapping[str, Any]], key: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in reports:
        for name, value in one[key].items():
            found[name] = found.get(name, 0) + value
    return found


def _calls(cores: Sequence[Sequence[Sequence[tuple[str, int]]]], each: int) -> tuple[Call, ...]:
    """Return the calls of all cores, one core after the other, from ticks by reason at their beginnings."""
    found = []
    before = 0.0
    for marks in cores:
        for begin, end in pairwise(marks):
            spent = {name: (total - was) / each for (name, total), (_, was) in zip(end, begin, strict=True)}
            at = sum(total for _, total in begin) / each
            found.append(
                Call(before + at, sum(spent.values()), {name: cycles for name, cycles in spent.items() if cycles})
            )
        before += sum(total for _, total in marks[-1]) / each
    return tuple(found)


def _places(
    program: Program, addresses: Sequence[tuple[int, int, int, int]], each: int
) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """Add addresses up by function and by line."""
    functions: dict[str, list[int]] = {}
    lines: dict[tuple[str, int], list[int]] = {}
    for address, *amounts in addresses:
        at = program.locate(address)
        rows = [functions.setdefault(at.symbol or "?", [0, 0, 0])]
        if at.file is not None and at.line:
            rows.append(lines.setdefault((at.file, at.line), [0, 0, 0]))
        for row in rows:
            for index, amount in enumerate(amounts):
                row[index] += amount
    texts = source_lines(program)

    def place(name: str, row: list[int], text: str | None = None) -> Place:
        times, pipeline, frozen = row
        return Place(name, times, (pipeline + frozen) / each, frozen / each, text)

    by_function = [place(name, row) for name, row in functions.items()]
    by_line = []
    for (file, line), row in lines.items():
        known = texts.get(file, [])
        by_line.append(place(f"{file}:{line}", row, known[line - 1] if line <= len(known) else None))
    ordered = [sorted(found, key=lambda one: (-one.cycles, one.name)) for found in (by_function, by_line)]
    return tuple(ordered[0]), tuple(ordered[1])
