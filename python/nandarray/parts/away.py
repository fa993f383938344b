"""Runs of programs beside a store of parts at the workers of a client: work is sent to the data, states come back.

A unit of work (:mod:`nandarray.parts.dividing`) goes to the worker that has its parts in a folder of its own; else to
any that sees the store's folder. If that worker is gone, or has not all of them, another reads them through the
store's folder (``"moved"``). There a worker makes a copy of what the unit reads beside an engine of its own, as this
process does for a run without a client. This process puts outputs together in the order of tasks, merges the states
of runs of tasks in that order, and calls the program's end. So the result is that of an array in one file, to the bit.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from nandarray import _nandarray
from nandarray.errors import CancelledError, CorruptError, InvalidError, PartError, ProgramFailedError
from nandarray.parts.arrivals import arrive
from nandarray.parts.blobs.base import Blobs
from nandarray.parts.chaining import chained
from nandarray.parts.crew import FOLDERS, Crew, Held, crew_of, held_here, part_file
from nandarray.parts.dividing import Unit, box_of, divided
from nandarray.parts.history import History
from nandarray.parts.leaves import Row
from nandarray.parts.manifest import Entry, Manifest
from nandarray.parts.near import Taken, kept_scratch
from nandarray.parts.pieces import element_boxes, pieces
from nandarray.parts.source import PartsSource
from nandarray.parts.writer import OpenParts, Sealed, facts_of

__all__ = ["run_away"]

_POLL_S = 0.2
#: Workers that may be lost under one unit.
_TRIES = 5


@dataclass(frozen=True)
class _Array:
    """An array in a request that is sent."""

    id: str


@dataclass(frozen=True)
class _Work:
    """A unit as it is sent: all that a worker needs, but the parts."""

    files: Blobs
    version: int
    arrays: Mapping[str, Entry]
    rows: Mapping[str, Mapping[int, Row]]
    asked: Any
    programs: Mapping[int, tuple[bytes, bytes]]
    boxes: Mapping[str, Sequence[Taken]] | None


class _HeldParts(OpenParts):
    """Sealed parts that are looked for in folders of this process first."""

    def engine(self, row: Row) -> _nandarray.Store:
        for folder in FOLDERS:
            file = part_file(folder, row.part)
            with contextlib.suppress(OSError):
                if facts_of(file) == Sealed(row.bytes, row.head):
                    return _nandarray.Store.open(file, "r", **self._options)
        return super().engine(row)


def _work_here(sent: bytes) -> dict[str, Any]:
    """Do a unit in this process; what the engine tells comes back, with the bytes that were read of parts."""
    work: _Work = pickle.loads(sent)  # noqa: S301 (from the process that has sent this function)
    base = Manifest(work.version, 0, "", "", arrays=dict(work.arrays))
    source = PartsSource(History(work.files), base, read_only=True, options={}, pinned=True)
    source.draft.rows = {identity: dict(rows) for identity, rows in work.rows.items()}
    source.parts = _HeldParts(source.files, {})
    try:
        with kept_scratch() as source.scratch:
            return _execute(work, source)
    finally:
        source.close()


def _execute(work: _Work, source: PartsSource) -> dict[str, Any]:
    """Copy what a unit reads to the engine of a source, and run its programs there."""
    by_id = {entry.id: source.open_space(name) for name, entry in work.arrays.items()}
    asked = _with_spaces(work.asked, lambda found: by_id[found.id])
    scratch, engine = source.scratch, source.scratch.engine
    numbers = {number: engine.load_program(*program) for number, program in work.programs.items()}
    try:
        stages = [replace(stage, program=numbers[stage.program]) for stage in asked.stages]
        threads = asked.threads or (1 if work.boxes is not None else os.cpu_count() or 1)
        asked = replace(asked, stages=stages, threads=threads)
        told = scratch.execute_unit(asked, _nandarray.Watch(), work.boxes)
    finally:
        for number in numbers.values():
            engine.unload_program(number)
    return told | {"read": scratch.copied_bytes}


def _arrived(space: Any) -> Any:
    arrive(space, writes=False)
    return space


def _with_spaces(asked: Any, change: Any) -> Any:
    """Return a request with each array of its inputs put through a function."""

    def one(given: Any) -> Any:
        taken = box_of(given)
        if taken is None:
            return given
        box = (change(taken[0][0]), *taken[0][1:])
        return box if taken[1] is None else (box, taken[1])

    return replace(
        asked, stages=[replace(stage, inputs=[one(given) for given in stage.inputs]) for stage in asked.stages]
    )


@dataclass
class _Place:
    """The worker of a unit."""

    worker: str | None
    where: str
    sent: int = 0
    tries: int = 0
    lost: set[str] = field(default_factory=set)


def run_away(
    source: PartsSource,
    asked: Any,
    watch: _nandarray.Watch,
    client: Any,
    programs: Mapping[int, tuple[bytes, bytes]],
) -> dict[str, Any]:
    """Run programs at the workers of a client; tell what the engine tells of a run, and where the work was done.

    Raises
    ------
    PartError
        A part is at no worker, and none that is left sees the store's folder.
    ProgramFailedError
        As for a run here: of several tasks that fail, that of the first.
    """
    source._check_open()
    if source.fork_job is not None:
        source.refuse("client= within a worker: its part is sealed when its transaction says so")
    every = [given for stage in asked.stages for given in (*stage.inputs, *stage.outputs)]
    for box in filter(None, map(box_of, every)):
        if getattr(box[0][0], "scratch", None) is not source.scratch:
            raise InvalidError("an array of another store; a program runs beside the arrays of one")
    crew = crew_of(client)
    if any(isinstance(one, tuple) for stage in asked.stages for one in stage.outputs):
        source.check_writable()
    ended = source.ending.setdefault(id(watch), threading.Event())
    try:
        _with_spaces(asked, _arrived)
        size = crew.size()
        with source.alone():  # what other threads write from here on is in a part that no worker can read
            source.seal_own()
            units = divided(asked, source.scratch, programs, size)
            run = _Run(source, crew, asked, programs, units)
        try:
            told = run.done(ended)
        except BaseException:
            crew.cancel(run.flying)
            raise
        return _joined(source, asked, units, told, run)
    finally:
        del source.ending[id(watch)]


class _Run:
    """Units on their way."""

    def __init__(
        self,
        source: PartsSource,
        crew: Crew,
        asked: Any,
        programs: Mapping[int, tuple[bytes, bytes]],
        units: Sequence[Unit],
    ) -> None:
        self._source, self._crew, self._units, self._programs = source, crew, units, programs
        wanted = [
            replace(stage, outputs=[isinstance(one, tuple) or one for one in stage.outputs]) for stage in asked.stages
        ]
        self._asked = _with_spaces(replace(asked, stages=wanted), lambda space: _Array(space.id))
        self._rows = [self._rows_of(unit) for unit in units]
        self._parts = [{row.part for of in rows.values() for row in of.values()} for rows in self._rows]
        self._arrays = [
            {space.name: replace(space.entry, leaves=()) for space in unit.spaces.values()} for unit in units
        ]
        self._path, self._version = source.path, source.draft.base.version
        self._held: dict[str | None, Held] = {}
        self._load: dict[str | None, int] = defaultdict(int)
        self.flying: dict[Any, int] = {}
        self.places = [_Place(None, "") for _ in units]
        self.results: dict[int, tuple[str, dict[str, Any]]] = {}

    def _rows_of(self, unit: Unit) -> dict[str, dict[int, Row]]:
        """Return the rows of the shards that a unit reads."""
        found: dict[str, dict[int, Row]] = {}
        for identity, space in unit.spaces.items():
            entry = space.entry
            whole: list[Taken] = [([0] * len(entry.shape), None, entry.shape)]
            for start, step, count in whole if unit.boxes is None else unit.boxes.get(identity, ()):
                if 0 in count:
                    continue
                axes = list(zip(start, step or [1] * len(start), count, strict=True))
                for piece in pieces(axes, entry.shard):
                    number = entry.number(piece.place)
                    row = self._source.draft.row(entry, number, self._source.history.load)
                    if row is not None:
                        found.setdefault(identity, {})[number] = row
        return found

    # --- Where -------------------------------------------------------------------------------------------------------

    def _choose(self, at: int) -> None:
        """Choose the worker of a unit."""
        place, rows = self.places[at], self._rows[at]
        weights: dict[str, int] = defaultdict(int)
        for of in rows.values():
            for row in of.values():
                weights[row.part] += 1
        left = {name: held for name, held in self._held.items() if name not in place.lost}
        share = {name: sum(weights[part] for part in held.parts & weights.keys()) for name, held in left.items()}
        every = sum(weights.values())
        near = [name for name in left if every and share[name] == every]
        seeing = [name for name in left if left[name].sees_store]
        if near:
            place.worker, place.where = min(near, key=lambda name: self._load[name]), "near"
        elif seeing or not every:
            able = seeing or list(left)
            most = max((share[name] for name in able), default=0)
            best = [name for name in able if share[name] == most]
            chosen = min(best, key=lambda name: self._load[name], default=None)
            anywhere = not most and not place.lost and len(able) == len(left)
            place.worker = None if anywhere else chosen
            place.where = "moved" if place.lost or most else "shared"
        else:
            raise self._nowhere(at, left)
        self._load[place.worker] += self._units[at].count

    def _nowhere(self, at: int, left: Mapping[str | None, Held]) -> PartError:
        """Return the error that says which part of a unit is at no worker."""
        names = self._source.draft.names()
        for identity, of in self._rows[at].items():
            for row in of.values():
                if any(row.part in held.parts for held in left.values()) and len(left) > 1:
                    continue
                shards = sorted(number for number, one in of.items() if one.part == row.part)
                gone = f"; lost: {', '.join(sorted(self.places[at].lost))}" if self.places[at].lost else ""
                told = ", ".join(str(name) for name in left) or "none"
                return PartError(
                    f"part {row.part} with shards {shards} of array {names.get(identity, identity)!r} must be at a "
                    f"worker, or {self._path} must be seen by one; there is {told}{gone}"
                )
        return PartError(f"parts of one unit of work are at several workers, none of which sees {self._path}")

    def _submit(self, at: int) -> None:
        unit, place = self._units[at], self.places[at]
        self._choose(at)
        asked = replace(self._asked, share=unit.tasks)
        rows, arrays = self._rows[at], self._arrays[at]
        work = _Work(self._source.files, self._version, arrays, rows, asked, self._programs, unit.boxes)
        sent = pickle.dumps(work, protocol=5)
        place.sent += len(sent)
        self.flying[self._crew.submit(place.worker, _work_here, sent)] = at

    # --- Waiting -----------------------------------------------------------------------------------------------------

    def done(self, ended: threading.Event) -> list[dict[str, Any]]:
        """Do all units, and return the engine's account of each."""
        identity = self._source.history.identity()
        self._held = self._crew.ask(held_here, self._source.files, identity, set().union(*self._parts))
        errors: dict[int, BaseException] = {}
        for at in range(len(self._units)):
            self._submit(at)
        while self.flying:
            if ended.is_set():
                raise CancelledError("the run was cancelled")
            for future in self._crew.wait(self.flying, _POLL_S):
                at = self.flying.pop(future)
                try:
                    self.results[at] = future.result()
                except Exception as error:
                    if not self._again(at, error):
                        errors[at] = error
            self._replace_lost()
            if errors and all(at > min(errors) for at in self.flying.values()):
                raise errors[min(errors)]
        return [self.results[at][1] for at in range(len(self._units))]

    def _again(self, at: int, error: BaseException) -> bool:
        """Run a unit elsewhere if its worker is gone, or its copy of a part is damaged; return whether it is."""
        place = self.places[at]
        if place.worker is None or isinstance(error, ProgramFailedError) or place.tries == _TRIES:
            return False
        if place.worker not in self._crew.workers():
            self._move(at)
            return True
        if not isinstance(error, CorruptError) or not self._held[place.worker].parts & self._parts[at]:
            return False
        try:
            self._move(at)
        except PartError:  # what is damaged is said rather
            return False
        return True

    def _replace_lost(self) -> None:
        """Give units to others whose workers are gone."""
        there: set[str] | None = None
        for future, at in list(self.flying.items()):
            worker = self.places[at].worker
            if worker is None:
                continue
            there = self._crew.workers() if there is None else there
            if worker not in there:
                self._crew.cancel([future])
                del self.flying[future]
                self._move(at)

    def _move(self, at: int) -> None:
        place = self.places[at]
        if place.worker is not None:
            place.lost.add(place.worker)
        there = self._crew.workers()
        place.lost |= {name for name in self._held if name is not None and name not in there}
        place.tries += 1
        self._submit(at)


# --- Results ----------------------------------------------------------------------------------------------------------


def _joined(
    source: PartsSource, asked: Any, units: Sequence[Unit], told: Sequence[dict[str, Any]], run: _Run
) -> dict[str, Any]:
    """Put the results of units together, end the program, and write what goes into arrays."""
    given = chained(source.scratch, asked, units, told)
    stages = given["stages"]
    given_back = [
        (stage["outputs"], at, target)
        for stage, request in zip(stages, asked.stages, strict=True)
        for at, target in enumerate(request.outputs)
        if isinstance(target, tuple)
    ]
    for outputs, at, target in given_back:  # all, before the first is written
        _check_fits(target, outputs[at])
    for outputs, at, target in given_back:
        outputs[at] = _put(target, outputs[at])
    received = [sum(_bytes_of(stage) for stage in one["stages"]) for one in told]
    workers: dict[tuple[str, str], dict[str, Any]] = {}
    for at, one in enumerate(told):
        place, name = run.places[at], run.results[at][0]
        account = workers.setdefault(
            (name, place.where), {"worker": name, "where": place.where, "tasks": 0, "read": 0, "sent": 0, "received": 0}
        )
        account["tasks"] += one["tasks"]
        account["read"] += one["read"]
        account["sent"] += place.sent
        account["received"] += received[at]
    wire = sum(one["sent"] for one in workers.values()), sum(received)
    return given | {"wire": wire, "workers": [workers[key] for key in sorted(workers)]}


def _bytes_of(stage: Mapping[str, Any]) -> int:
    outputs = sum(one.nbytes for one in stage["outputs"] if isinstance(one, np.ndarray))
    return outputs + len(stage["state"]) + sum(len(one) for one in stage["states"])


def _check_fits(target: tuple[Any, ...], data: Any) -> None:
    """Refuse an output that is no whole elements, or more than its box has."""
    space, _, _, count, _ = target[0] if isinstance(target[0], tuple) else target
    if data.nbytes > prod(count) * space.itemsize or data.nbytes % space.itemsize:
        raise InvalidError(
            f"an output of {data.nbytes} bytes must be whole elements of {space.itemsize} bytes, at most {prod(count)}"
        )


def _put(target: tuple[Any, ...], data: Any) -> int:
    """Write an output to the first elements of its box; return how many these are."""
    (space, start, _, count, view), tiles = target if isinstance(target[0], tuple) else (target, None)
    item = np.dtype(f"V{space.itemsize}")
    elements = data.view(item)
    if not space.shape:
        space.write(elements.reshape(()), [])
        return len(elements)
    done = 0
    for low, high in element_boxes(count, tiles, len(elements)):
        shape = [b - a for a, b in zip(low, high, strict=True)]
        own = elements[done : done + prod(shape)].reshape(shape)
        space.write(own, [a + b for a, b in zip(start, low, strict=True)], None, view)
        done += prod(shape)
    return done
