"""Programs beside a store of parts: the boxes that they take are gathered in a file of this process, where they run.

The file lies in the temporary folder and has no name. An array appears in it in full shape, of which only the boxes of
a run have elements; of boxes that are written, the elements that programs gave are put back when the run has ended. It
also judges what a new array is given, since its engine is that of the parts.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from nandarray import _nandarray
from nandarray.errors import InvalidError
from nandarray.parts.pieces import element_boxes

__all__ = ["ScratchEngine", "Taken", "kept_scratch", "move"]

#: A box by start, step and count.
Taken = tuple[Sequence[int], Sequence[int] | None, Sequence[int]]
Fetch = Callable[[Any, _nandarray.Space, Taken, Any], None]

#: Bytes that are moved at once.
_BAND_BYTES = 32 << 20
#: Bytes of copies beyond which an engine is not kept for the next unit of work; and how many a process keeps.
_KEPT_BYTES, _KEPT_ENGINES = 256 << 20, os.cpu_count() or 1


class ScratchEngine:
    """An engine for programs, and for what new arrays are given."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: _nandarray.Store | None = None
        self._count = 0
        #: Bytes that were copied to it for the unit of work that uses it.
        self.copied_bytes = 0

    @property
    def engine(self) -> _nandarray.Store:
        """The engine; made when it is first needed."""
        with self._lock:
            if self._made is None:
                with tempfile.TemporaryDirectory(prefix="nandarray-parts-", ignore_cleanup_errors=True) as folder:
                    self._made = _nandarray.Store.open(str(Path(folder) / "none.nand"), "w")
            return self._made

    def _name(self) -> str:
        with self._lock:
            self._count += 1
            return f"b/{self._count}"

    def judged(self, name: str, *given: Any, **options: Any) -> dict[str, Any]:
        """Return the description of an array, or raise what is wrong with it."""
        _nandarray.check_name(name, chosen=False)
        made = self._name()
        self.engine.create(made, *given, **options)
        try:
            return self.engine.describe(made)
        finally:
            self.engine.delete(made)

    def execute(self, asked: Any, watch: _nandarray.Watch) -> dict[str, Any]:
        """Run programs on boxes of arrays of parts."""
        with self.placed(asked, _fetch) as (there, back):
            told = self.engine.execute(there, watch)
            for space, made, box, view, tiles, (stage, output) in back:
                for own in _first(box, tiles, told["stages"][stage]["outputs"][output]):
                    move(made, space, own, view)
        return told

    def execute_unit(
        self, asked: Any, watch: _nandarray.Watch, boxes: Mapping[str, Sequence[Taken]] | None
    ) -> dict[str, Any]:
        """Run programs on copies of the boxes that they read, by the arrays' ids; of all that they take if None."""
        done: set[str] = set()

        def fetch(space: Any, made: _nandarray.Space, box: Taken, _: Any) -> None:
            wanted = [box] if boxes is None else [] if space.id in done else boxes[space.id]
            done.add(space.id)
            for one in wanted:
                move(space, made, one)
                self.copied_bytes += prod(one[2]) * space.itemsize

        with self.placed(asked, fetch) as (there, _):
            told: dict[str, Any] = self.engine.execute(there, watch)
        return told

    @contextmanager
    def placed(self, asked: Any, fetch: Fetch) -> Iterator[tuple[Any, list[tuple[Any, ...]]]]:
        """Give a request whose arrays are copies in the engine, and the boxes that are to be put back.

        ``fetch`` fills a copy, which has the array's shape: it is called with the array, the copy, the box that a
        program takes as start, step and count, and the shape of the view that the box is of.
        """
        copies: dict[str, _nandarray.Space] = {}
        names: list[str] = []
        back: list[tuple[Any, ...]] = []

        def copied(space: Any) -> _nandarray.Space:
            if getattr(space, "known", None) is None or getattr(space, "scratch", None) is not self:
                raise InvalidError("an array of another store; a program runs beside the arrays of one")
            if space.id not in copies:
                told, name = space.known(), self._name()
                # Tasks are cut along compressed blocks, and some programs take packed ones.
                options = {key: told[key] for key in space.copied_with}
                made = self.engine.create(name, told["shape"], told["itemsize"], told["dtype"], **options)
                names.append(name)
                copies[space.id] = made
            return copies[space.id]

        def boxed(box: tuple[Any, ...], tiles: Any, place: tuple[int, int] | None) -> tuple[Any, ...]:
            space, start, step, count, view = box
            made = copied(space)
            box_of = (start, step, count) if space.shape else ([], None, ())  # programs give a scalar an axis
            if place is None and (view is not None or tiles is not None):
                fetch(space, made, ([0] * len(space.shape), None, space.shape), None)
            elif place is None:
                fetch(space, made, box_of, None)
            elif space.shape:
                back.append((space, made, box_of, view, tiles, place))
            else:
                back.append((space, made, box_of, None, None, place))
            return made, start, step, count, view

        def one(given: Any, place: tuple[int, int] | None = None) -> Any:
            if not isinstance(given, tuple) or (len(given) == 2 and not isinstance(given[0], tuple)):
                return given
            if isinstance(given[0], tuple):
                return boxed(given[0], given[1], place), given[1]
            return boxed(given, None, place)

        try:
            stages = [
                replace(
                    stage,
                    inputs=[one(given) for given in stage.inputs],
                    outputs=[one(given, (number, at)) for at, given in enumerate(stage.outputs)],
                )
                for number, stage in enumerate(asked.stages)
            ]
            yield replace(asked, stages=stages), back
        finally:
            copies.clear()
            self.engine.together(delete=names)


#: Engines of this process that no unit of work uses now.
_kept: list[ScratchEngine] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_kept.clear)


@contextmanager
def kept_scratch() -> Iterator[ScratchEngine]:
    """Give an engine that nothing else uses; it is kept for the next unit of work, since a new file takes as long."""
    try:
        scratch = _kept.pop()
    except IndexError:
        scratch = ScratchEngine()
    try:
        yield scratch
    except BaseException:
        scratch.engine.close()
        raise
    if scratch.copied_bytes <= _KEPT_BYTES and len(_kept) < _KEPT_ENGINES:
        scratch.copied_bytes = 0
        _kept.append(scratch)
    else:
        scratch.engine.close()


def _fetch(space: Any, made: _nandarray.Space, box: Taken, view: Any) -> None:
    move(space, made, box, view)


def _first(box: Taken, tiles: Any, elements: int) -> Iterator[Taken]:
    """Yield the boxes that the first elements of a box have, all of it where it has no more."""
    start, _, count = box
    if elements == prod(count):
        yield box
        return
    for low, high in element_boxes(count, tiles, elements):
        yield [a + b for a, b in zip(start, low, strict=True)], None, [b - a for a, b in zip(low, high, strict=True)]


def move(source: Any, target: Any, box: Taken, view: Any = None) -> None:
    """Copy a box, given by start, step and count, some rows at a time."""
    start, step, count = box
    if 0 in count:
        return
    item = np.dtype(f"V{source.itemsize}")
    row_bytes = max(1, int(np.prod(count[1:], dtype=object)) * item.itemsize)
    rows = max(1, _BAND_BYTES // row_bytes)
    steps = list(step or [1] * len(count))
    for low in range(0, count[0] if count else 1, rows):
        shape = (min(rows, count[0] - low), *count[1:]) if count else ()
        at = [start[0] + low * steps[0], *start[1:]] if count else []
        band = np.empty(shape, item)
        source.read(band, at, steps, view)
        target.write(band, at, steps, view)
