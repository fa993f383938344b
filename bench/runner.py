"""Walks sections, patterns, states and rounds, and asks every system in turn inside a round.

The result is a flat list of :class:`Cell`, one a (section, pattern, state, system), with a time for every round;
medians, ratios and promises are derived from it later, so that a saved run can be judged again. A system that fails
leaves a line in ``failures`` and takes no further part in the section.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import machine, systems
from .data import make_truth
from .patterns import Box, Pattern
from .sections import Section
from .worker import SystemFailedError, Worker

#: The beginning of lines that name patterns left out by a run with limited time.
_LEFT = "not measured:"


@dataclass
class Cell:
    """The figure of one system for one pattern in one state; times are seconds an operation, one a round."""

    section: str
    pattern: str
    state: str
    system: str
    op_bytes: int
    ops: int = 0
    seconds: list[float] = field(default_factory=list)
    durable: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median seconds an operation; for a write until everything is on the disk."""
        return statistics.median(self.durable or self.seconds)

    @property
    def gbps(self) -> float:
        """Gigabytes (1e9) a second at the median."""
        return self.op_bytes / self.median / 1e9


@dataclass
class Settings:
    """The settings of a run: rounds, times, places."""

    folder: Path
    size: str = "full"
    rounds: int = 3
    write_rounds: int = 2
    budget: float = 0.2  # seconds of a warm round
    cold_budget: float = 0.4
    cold_rounds: int = 2
    states: tuple[str, ...] = ("warm", "fresh", "cold")
    cold: str = "auto"
    only: tuple[str, ...] = ()
    systems: tuple[str, ...] = systems.DEFAULT
    sections: tuple[str, ...] = ()
    minutes: float | None = None  # after which no further pattern begins
    patience: float = 900  # seconds that a system may take for one request


@dataclass
class Results:
    """Everything a run found out."""

    cells: list[Cell] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the run as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Results:
        """Rebuild a run from :meth:`as_json`."""
        return cls(**{**data, "cells": [Cell(**cell) for cell in data["cells"]]})

    def add(self, other: Results) -> None:
        """Take over what another run found out: rounds of the same cell are more rounds of it."""
        mine = {(c.section, c.pattern, c.state, c.system): c for c in self.cells}
        for cell in other.cells:
            same = mine.get((cell.section, cell.pattern, cell.state, cell.system))
            if same is None:
                self.cells.append(cell)
            else:
                same.seconds += cell.seconds
                same.durable += cell.durable
        self.failures += other.failures
        self.skipped += [line for line in other.skipped if line not in self.skipped]
        for section, facts in other.facts.items():
            self.facts.setdefault(section, {}).update(facts)
        self.titles.update(other.titles)
        self.machine["versions"] = {**self.machine.get("versions", {}), **other.machine.get("versions", {})}


class Runner:
    """One run over some sections with some systems."""

    def __init__(
        self,
        settings: Settings,
        say: Callable[[str], None] = print,
        keep: Callable[[Results], None] = lambda results: None,
        before: Results | None = None,
    ) -> None:
        self.settings = settings
        self.say = say
        self.keep = keep  # called after every pattern, so that a run that is interrupted leaves what it has
        self.results = before or Results()
        # Rows that a stopped run has already; it saved only whole rows.
        self._done = {(c.section, c.pattern, c.state) for c in self.results.cells}
        self.results.skipped = [line for line in self.results.skipped if not line.startswith(_LEFT)]
        self._begin = time.monotonic()
        self.cold = machine.cold_method(settings.cold)
        self._workers: dict[str, Worker] = {}
        self._cells: dict[tuple[str, str, str, str], Cell] = {}

    def run(self, sections: list[Section]) -> Results:
        """Run the sections one after the other; the data of one is gone before the next is made."""
        usable = self._usable()
        self.results.settings = {**asdict(self.settings), "folder": "", "cold_method": self.cold}
        self.results.machine = machine.describe(self.settings.folder)
        packages = ["numpy", "nandarray", *(systems.info(label).package.split(".")[0] for label in usable)]
        self.results.machine["versions"] = machine.versions(packages)
        for section in sections:
            if self.settings.sections and section.name not in self.settings.sections:
                continue
            labels = [label for label in usable if section.spec.compression in systems.info(label).compressions]
            patterns = [p for p in section.patterns if self._wanted(p)]
            left = [p for p in patterns if any((section.name, p.name, s) not in self._done for s in self._states(p))]
            if left and labels and self._in_time(section):
                self._section(section, labels, left)
        return self.results

    def _wanted(self, pattern: Pattern) -> bool:
        only = self.settings.only
        return not only or any(word in pattern.name for word in only)

    def _in_time(self, section: Section) -> bool:
        """Whether there is time left; if not, that is noted once a section."""
        minutes = self.settings.minutes
        if minutes is None or time.monotonic() - self._begin < 60 * minutes:
            return True
        line = f"{_LEFT} what is left of section {section.name}; {minutes:g} minutes were over"
        if line not in self.results.skipped:
            self.results.skipped.append(line)
        return False

    def _to_do(self, section: Section, pattern: Pattern, state: str) -> bool:
        row = (section.name, pattern.name, state)
        return row not in self._done and self._in_time(section)

    def _states(self, pattern: Pattern) -> list[str]:
        """Return the states in which a pattern runs; writing has one, whatever the settings are."""
        return [s for s in pattern.states if pattern.kind != "read" or s in self.settings.states]

    def _usable(self) -> list[str]:
        usable = []
        for label in self.settings.systems:
            reason = systems.missing(label)
            if reason is None:
                usable.append(label)
            else:
                self.results.skipped.append(f"{label}: {reason}")
                self.say(f"skipping {label}: {reason}")
        return usable

    def _section(self, section: Section, labels: list[str], patterns: list[Pattern]) -> None:
        settings, spec = self.settings, section.spec
        self.say(f"section {section.name}: {section.title}")
        self.results.titles[section.name] = section.title
        need = spec.nbytes * (len(labels) + 1)
        if 0 < machine.memory_available() < need:
            self.say(
                f"  note: {len(labels)} stores take {need / 2**30:.1f} GiB, more than the memory that is free: "
                "the page cache cannot hold them all, and warm figures of large patterns may be cold ones"
            )
        truth = make_truth(spec, settings.folder / "truth")
        try:
            for label in labels:
                folder = settings.folder / section.name / label.replace("/", "-").replace(":", "-")
                self._workers[label] = Worker(label, folder, spec, truth)
            self._patterns(section, patterns)
        finally:
            for worker in self._workers.values():
                worker.stop()
            self._workers.clear()
            shutil.rmtree(settings.folder / section.name, ignore_errors=True)
            truth.unlink(missing_ok=True)

    def _patterns(self, section: Section, patterns: list[Pattern]) -> None:
        by_kind = {kind: [p for p in patterns if p.kind == kind] for kind in ("write-all", "read", "write")}
        self._full_writes(section, by_kind["write-all"])
        if by_kind["read"] and "warm" in self.settings.states:
            for label in self._turn(0):
                self._ask(section, label, "warm_up")
        for state in self.settings.states:
            for pattern in by_kind["read"]:
                if state in pattern.states and self._to_do(section, pattern, state):
                    self.say(f"  {pattern.title}, {state}")
                    (self._warm if state == "warm" else self._first_look)(section, pattern, state)
                    self.keep(self.results)
        for pattern in by_kind["write"]:
            if not self._to_do(section, pattern, "warm"):
                continue
            self.say(f"  {pattern.title}")
            for turn in range(self.settings.rounds):
                for label in self._turn(turn, storing=True):
                    self._record(
                        section, pattern, "warm", label, self._ask(section, label, "overwrite", pattern.name, turn)
                    )
            self.keep(self.results)

    def _full_writes(self, section: Section, patterns: list[Pattern]) -> None:
        # The stores have to be written in any case; they are timed more often only when the pattern is selected.
        self.say("  full write")
        for turn in range(self.settings.write_rounds if patterns else 1):
            for label in self._turn(turn):
                answer = self._ask(section, label, "full_write")
                if answer is None or not systems.info(label).stores:
                    continue
                self.results.facts.setdefault(section.name, {})[label] = answer["facts"]
                for pattern in patterns:
                    self._record(section, pattern, "warm", label, answer)

    def _warm(self, section: Section, pattern: Pattern, state: str) -> None:
        takes: dict[str, int] = {}
        points = not isinstance(pattern.ops(section.spec.shape)[0], Box)
        op_bytes = pattern.ops(section.spec.shape)[0].elements * 4
        for label in self._turn(0, storing=points):
            if op_bytes < systems.info(label).least_bytes:
                continue
            done = self._ask(section, label, "calibrate", pattern.name, self.settings.budget)
            if done is not None:
                takes[label] = done
        for turn in range(self.settings.rounds):
            for label in self._turn(turn):
                if label in takes:
                    answer = self._ask(section, label, "warm", pattern.name, takes[label])
                    self._record(section, pattern, state, label, answer)

    def _first_look(self, section: Section, pattern: Pattern, state: str) -> None:
        how = (self.settings.cold_budget, state, self.cold)
        for turn in range(self.settings.cold_rounds):
            for label in self._turn(turn, storing=True):
                answer = self._ask(section, label, "first_look", pattern.name, *how)
                self._record(section, pattern, state, label, answer)

    def _turn(self, turn: int, *, storing: bool = False) -> list[str]:
        """Return the systems still in the race, starting with another one every round; or those alone that store."""
        labels = [label for label in self._workers if systems.info(label).stores or not storing]
        shift = turn % max(1, len(labels))
        return labels[shift:] + labels[:shift]

    def _ask(self, section: Section, label: str, method: str, *arguments: Any) -> Any:
        worker = self._workers.get(label)
        if worker is None:
            return None
        try:
            return worker.ask(method, *arguments, patience=self.settings.patience)
        except SystemFailedError as error:
            what = f"{label} in section {section.name}, {' '.join(map(str, (method, *arguments[:1])))}: {error}"
            self.results.failures.append(what)
            self.say(f"  FAILED: {what}")
            self._workers.pop(label).stop()
            return None

    def _record(
        self, section: Section, pattern: Pattern, state: str, label: str, answer: dict[str, Any] | None
    ) -> None:
        if answer is None:
            return
        key = (section.name, pattern.name, state, label)
        if key not in self._cells:
            op_bytes = pattern.ops(section.spec.shape)[0].elements * 4
            self._cells[key] = Cell(*key, op_bytes)
            self.results.cells.append(self._cells[key])
        cell = self._cells[key]
        cell.ops = answer["ops"]
        cell.seconds.append(answer["seconds"])
        if "durable" in answer:
            cell.durable.append(answer["durable"])
