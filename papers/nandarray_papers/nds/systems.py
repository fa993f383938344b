"""The configurations of the NDS paper, each as something that reads and writes sub-blocks of one array under the clock.

* :class:`Baseline`: a conventional SSD with the array row by row (or column by column): a request a contiguous run.
* :class:`Oracle`: the same SSD with every sub-block stored in one piece: the layout that one workload would want.
* :class:`Nds`: a space of building blocks; translated and assembled by the host (software) or in the device (hardware).

Only times come out. The commands are real ones of the engine, with real placement, index and translation, but the bytes
are nowhere: sources and destinations of large sub-blocks are one row of memory, seen as often as the sub-block has
rows. That the same commands give the right bytes is what ``tests/python/test_lab_nds.py`` checks at small size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

import nandarray
from nandarray.device import Description
from nandarray_papers.nds.calibration import PREFERRED, Settings

__all__ = ["Baseline", "Box", "Moved", "Nds", "Oracle", "nowhere"]

Box = Sequence[slice]

#: Most elements of an array that has real bytes.
REAL_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class Moved:
    """The time and the bytes of some commands.

    ``bytes`` is of the elements asked for, ``seconds`` are modelled, from the first command to the last answer;
    ``report`` is of the device and its host (``docs/reference/replay-report.md``).
    """

    bytes: int
    seconds: float
    report: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def GBps(self) -> float:  # noqa: N802 - the unit
        """10^9 bytes a second."""
        return self.bytes / self.seconds / 1e9


def nowhere(shape: Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:
    """Return an array of ones that takes the memory of its last dimension if it is large: all rows are one.

    Its rows are never contiguous, so that a sub-block of one building block's width has a run for each of them; small
    arrays are real. It is a source of writes: reads need memory of their own, :func:`room`.
    """
    if math.prod(shape) <= REAL_ELEMENTS:
        return np.ones(tuple(shape), dtype)
    row = np.ones(shape[-1], dtype)
    return as_strided(row, tuple(shape), (0,) * (len(shape) - 1) + (row.itemsize,))


def room(shape: Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:
    """Return memory to read into, whose rows are as far from contiguous as those of :func:`nowhere`."""
    if math.prod(shape) <= REAL_ELEMENTS:
        return np.empty(tuple(shape), dtype)
    return np.empty((*shape[:-1], shape[-1] + 1), dtype)[..., :-1]


def volume(boxes: Iterable[Box]) -> int:
    """Count the elements of boxes."""
    return sum(math.prod(s.stop - s.start for s in box) for box in boxes)


class Baseline:
    """A conventional SSD with an array that lies row by row (order "C"), or column by column ("F")."""

    def __init__(
        self,
        device: Description,
        shape: Sequence[int],
        itemsize: int,
        *,
        order: str = "C",
        settings: Settings = PREFERRED,
        seed: int = 0,
    ) -> None:
        self.device = device
        self.shape = tuple(shape)
        self.itemsize = itemsize
        self.turned = order == "F"
        self.settings = settings
        self.seed = seed

    def _move(self, boxes: Sequence[Box], settings: Settings, *, write: bool) -> Moved:
        turn = slice(None, None, -1) if self.turned else slice(None)
        asked = nandarray.Boxes(
            shape=self.shape[turn],
            itemsize=self.itemsize,
            boxes=[tuple(box)[turn] for box in boxes],
            write=write,
            depth=settings.depth,
            request_max=settings.request_bytes,
        )
        run = nandarray.replay(asked, device=self.device, precondition="empty" if write else "full", seed=self.seed + 1)
        return Moved(volume(boxes) * self.itemsize, run["elapsed_s"], run.data)

    def read(self, boxes: Sequence[Box], depth: int | None = None) -> Moved:
        """Read sub-blocks, one after the other, each straight to where its rows belong.

        ``depth``, the requests on their way, is the settings' if left out. The result has the bytes
        and seconds of all sub-blocks together.
        """
        s = self.settings
        return self._move(boxes, s if depth is None else replace(s, depth=depth), write=False)

    def write(self, boxes: Sequence[Box]) -> Moved:
        """Write sub-blocks, each request waited for until it is programmed; all are counted together."""
        return self._move(boxes, replace(self.settings, depth=1), write=True)


class Oracle:
    """The baseline's SSD with each sub-block stored contiguously, in the order in which they are read."""

    def __init__(self, device: Description, settings: Settings = PREFERRED, seed: int = 0) -> None:
        self.device = device
        self.settings = settings
        self.seed = seed

    def read(self, sizes: Sequence[int], depth: int | None = None) -> Moved:
        """Read sub-blocks of given sizes in bytes, counted together; ``depth`` as for :meth:`Baseline.read`."""
        ends = np.cumsum([0, *sizes]).tolist()
        boxes = [(slice(a, b),) for a, b in zip(ends, ends[1:], strict=False)]
        return Baseline(self.device, (ends[-1],), 1, settings=self.settings, seed=self.seed).read(boxes, depth)


class Nds:
    """A space of building blocks on a described device.

    Hardware NDS, or, not ``in_device``, software NDS. The building block is by equations 1 to 4 if left out.
    """

    def __init__(
        self,
        device: Description,
        shape: Sequence[int],
        dtype: Any,
        *,
        in_device: bool,
        building_block: Sequence[int] | None = None,
        seed: int = 0,
    ) -> None:
        described = device.with_({"controller.spaces_in_device": in_device})
        self._store = nandarray.open(device=described, mode="w", bytes_in="nowhere", placement="nds", seed=seed)
        self._array = self._store.create("space", tuple(shape), dtype, building_block=building_block)
        self._written: set[tuple[tuple[int, int], ...]] = set()
        self.building_block: tuple[int, ...] = self._array.building_block
        self.shape = tuple(shape)

    def __enter__(self) -> Nds:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store."""
        self._store.close()

    def _took(self, boxes: Sequence[Box], began: float) -> Moved:
        clock = self._store.clock
        report = clock.report().data
        return Moved(volume(boxes) * self._array.dtype.itemsize, clock.now - began, report)

    def _now(self) -> float:
        return self._store.clock.now

    def fill(self, boxes: Sequence[Box]) -> None:
        """Write the building blocks that boxes touch, each once, and let the device come to rest."""
        for box in boxes:
            sides = zip(box, self.building_block, self.shape, strict=True)
            around = tuple((s.start // b * b, min(-(-s.stop // b) * b, n)) for s, b, n in sides)
            if around not in self._written:
                self._written.add(around)
                self._put(tuple(slice(*side) for side in around))
        self._store.clock.settle()

    def _put(self, box: Box) -> None:
        self._array[tuple(box)] = nowhere([s.stop - s.start for s in box], self._array.dtype)

    def read(self, boxes: Sequence[Box]) -> Moved:
        """Read sub-blocks that were written before, a command each, one after the other; all are counted together."""
        began = self._now()
        into = None
        for box in boxes:
            shape = tuple(s.stop - s.start for s in box)
            if into is None or into.shape != shape:
                into = room(shape, self._array.dtype)
            self._array.read(tuple(box), out=into)
        return self._took(boxes, began)

    def write(self, boxes: Sequence[Box]) -> Moved:
        """Write sub-blocks, a command each, each waited for until it is programmed; all are counted together."""
        began = self._now()
        for box in boxes:
            self._put(box)
        return self._took(boxes, began)
