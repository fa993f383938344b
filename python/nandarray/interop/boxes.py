"""Boxes of arrays as samples for training: :class:`BoxDataset`, patches at regular or at random places.

It is a map-style dataset for PyTorch's ``DataLoader``, and makes batches by itself, read ahead by threads. Samples are
NumPy arrays; ``torch.from_dlpack`` and ``jax.dlpack.from_dlpack`` take them without a copy. All chance comes from the
seed, the epoch and the number of a sample: neither threads nor worker processes change what a batch has. Boxes of a
batch are read by few commands, each of several boxes, and memory of batches that are gone is used again. Not here: rows
(:mod:`nandarray.interop.rows`), and what a model does.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from nandarray.array.array import Array
from nandarray.array.base import Grid
from nandarray.array.ragged import Ragged
from nandarray.array.view import View
from nandarray.errors import BadIndexError, InvalidError

__all__ = ["BoxDataset"]

#: Places that are drawn together, and how many such draws are kept: shuffled numbers come from all of them.
_DRAWN, _DRAWS_KEPT = 4096, 64
#: Bytes of boxes of one command: enough that small boxes share its cost, few enough that threads share a batch's boxes.
_COMMAND_BYTES = 2 << 20
#: Bytes of a batch from which its memory is used again: below, it is no pages that the system has to clear.
_KEPT_BYTES_MIN = 1 << 20
#: Alignment of a batch's memory: a cache line, which JAX asks of memory that it shares.
_LINE = 64
#: Batches that each thread reads ahead.
_AHEAD = 2

_Batch = Any
_Places = np.ndarray[Any, np.dtype[Any]]  # integers of 64 bits


class BoxDataset:
    """Boxes of one or more arrays, at the same places of each.

    It can be pickled, for a loader's worker processes, if its arrays can: read-only ones are read
    there, others by this process.

    Parameters
    ----------
    *arrays : array
        Images, labels and so on: arrays, views, fields and concatenations of any store, near or far, or other objects
        with ``shape``, ``dtype`` and slices. Their first dimensions, as many as ``box`` has, must be equal.
    box : int or sequence of int
        Shape of a box along the first dimensions, at least 1 each; further dimensions are whole.
    count : int, optional
        Number of boxes at random places, with a new draw for each epoch. Without it the boxes are those of a grid.
    step : int or sequence of int, optional
        Distance between the boxes of the grid along each dimension; ``box`` by default. The last box of a dimension is
        moved so that it ends with the array: with steps of at most ``box`` every element is in a box.
    seed : int
        Seed of places and shuffles, from 0 to 2**63 - 1.
    transform : callable, optional
        Function of a sample that returns what takes its place.

    Raises
    ------
    InvalidError
        A box that does not fit the arrays, or arrays that do not fit each other; a seed, a count or a step that is out
        of range; both ``count`` and ``step``.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["volume"] = np.arange(64.0).reshape(8, 8)
    >>> patches = BoxDataset(store["volume"], box=(2, 4))
    >>> len(patches), patches.place(3)
    (8, (2, 4))
    >>> patches[3]
    array([[20., 21., 22., 23.],
           [28., 29., 30., 31.]])
    >>> crops = BoxDataset(store["volume"], box=(2, 4), count=100, seed=7)
    >>> [batch.shape for batch in crops.batches(48)]
    [(48, 2, 4), (48, 2, 4), (4, 2, 4)]
    """

    def __init__(
        self,
        *arrays: Any,
        box: int | Sequence[int],
        count: int | None = None,
        step: int | Sequence[int] | None = None,
        seed: int = 0,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        if not arrays:
            raise InvalidError("a dataset must have at least one array")
        for array in arrays:
            if isinstance(array, Ragged):
                raise InvalidError(
                    f"arrays must have elements in a grid, not rows of different lengths as the ragged array "
                    f"{array.name!r} has: RowDataset reads rows, and a box of elements is one of its .values"
                )
            if not hasattr(array, "shape"):
                raise InvalidError(f"arrays must be arrays of a store, or others with a shape, not {array!r:.60}")
        self._arrays, self._transform = arrays, transform
        self._box = _sizes(box, "box")
        dims = len(self._box)
        around = {tuple(array.shape[:dims]) for array in arrays}
        shape = around.pop()
        if around or len(shape) < dims:
            shapes = [tuple(array.shape) for array in arrays]
            raise InvalidError(f"arrays must have {dims} equal first dimensions, those of the box, not shapes {shapes}")
        if any(size > most for size, most in zip(self._box, shape, strict=True)):
            raise InvalidError(f"box is {self._box}: must fit in {shape}")
        self._most = tuple(most - size for size, most in zip(self._box, shape, strict=True))
        self._seed, self._epoch = _whole(seed, "seed", 0, (1 << 63) - 1), 0
        self._drawn: dict[tuple[int, int], _Places] = {}
        if count is not None:
            if step is not None:
                raise InvalidError("boxes must have either a count, at random places, or a step, on a grid")
            self._count, self._grid = _whole(count, "count", 0, (1 << 63) - 1), None
            return
        steps = self._box if step is None else _sizes(step, "step")
        if len(steps) != dims:
            raise InvalidError(f"step is {steps}: must have {dims} numbers, as box has")
        self._steps = steps
        self._grid = tuple(-(-most // one) + 1 for most, one in zip(self._most, steps, strict=True))
        self._count = math.prod(self._grid)

    @property
    def box(self) -> tuple[int, ...]:
        """Shape of a box along the first dimensions."""
        return self._box

    @property
    def epoch(self) -> int:
        """Number of the epoch, which random places and shuffles depend on; may be set."""
        return self._epoch

    @epoch.setter
    def epoch(self, number: int) -> None:
        self._epoch = _whole(number, "epoch", 0, (1 << 63) - 1)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        places = "at random" if self._grid is None else f"on a grid of {self._grid}"
        return f"<nandarray BoxDataset of {self._count} boxes {self._box} {places}>"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_drawn": {}}

    def place(self, number: int) -> tuple[int, ...]:
        """Return the coordinates of the first element of a box.

        Parameters
        ----------
        number : int
            Number of the box; negative ones count from the end.

        Returns
        -------
        tuple of int
            A coordinate for each dimension of the box.

        Raises
        ------
        BadIndexError
            There is no such box.
        InvalidError
            The number is no integer.
        """
        return tuple(self._places([number])[0].tolist())

    def _places(self, numbers: Sequence[int]) -> _Places:
        """Return the coordinates of boxes: an array of shape (boxes, dimensions of the box)."""
        found = np.array([self._index(number) for number in numbers], np.int64)
        if self._grid is None:
            return self._random_places(found)
        # Coordinates have 64 bits without a sign, and their products more: Python's integers carry them.
        at = zip(*(axis.tolist() for axis in np.unravel_index(found, self._grid)), strict=True)
        places = [[min(i * n, m) for i, n, m in zip(one, self._steps, self._most, strict=True)] for one in at]
        return np.array(places, np.uint64).reshape(len(found), len(self._box))

    def _index(self, number: int) -> int:
        try:
            index = operator.index(number)
        except TypeError as error:
            raise InvalidError(f"{number!r} must be the number of a box") from error
        if not -self._count <= index < self._count:
            raise BadIndexError(f"box {index} of a dataset of {self._count} boxes")
        return index % self._count

    def _random_places(self, found: _Places) -> _Places:
        draws, within = found // _DRAWN, found % _DRAWN
        places = np.empty((len(found), len(self._box)), np.uint64)
        for draw in np.unique(draws).tolist():
            of = draws == draw
            places[of] = self._draw(draw)[within[of]]
        return places

    def _draw(self, draw: int) -> _Places:
        key, drawn = (self._epoch, draw), self._drawn  # threads may replace it
        made = drawn.get(key)
        if made is None:
            chance = np.random.default_rng([self._seed, *key])
            most = np.array(self._most, np.uint64)
            made = chance.integers(0, most, (_DRAWN, len(most)), np.uint64, endpoint=True)
            self._drawn = {**({} if len(drawn) >= _DRAWS_KEPT else drawn), key: made}
        return made

    def __getitem__(self, number: int) -> Any:
        """Return a sample.

        Parameters
        ----------
        number : int
            Number of the box; negative ones count from the end.

        Returns
        -------
        array, or tuple of arrays
            The box of each array, or what ``transform`` makes of it.

        Raises
        ------
        BadIndexError
            There is no such box.
        InvalidError
            The number is no integer.
        """
        return self._sample(tuple(memory[0] for memory in self._read([number])))

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return samples; a ``DataLoader`` calls this for each of its batches."""
        memories = self._read(numbers)
        return [self._sample(tuple(memory[i] for memory in memories)) for i in range(len(numbers))]

    def _sample(self, parts: tuple[Any, ...]) -> Any:
        sample = parts if len(parts) > 1 else parts[0]
        return sample if self._transform is None else self._transform(sample)

    def _read(self, numbers: Sequence[int], memory: _Memory | None = None) -> list[np.ndarray[Any, Any]]:
        """Read boxes of all arrays: for each array one with the boxes along its first dimension."""
        places, found = self._places(numbers), []
        for array in self._arrays:
            shape = (len(places), *self._box, *array.shape[len(self._box) :])
            made = np.empty(shape, array.dtype) if memory is None else memory.array(shape, np.dtype(array.dtype))
            if isinstance(array, Array | View):
                _read_boxes(array, places, made)
            else:
                for part, place in enumerate(places.tolist()):
                    key = tuple(slice(at, at + size) for at, size in zip(place, self._box, strict=True))
                    if isinstance(array, Grid):
                        array._get(key, out=made[part, ...])
                    else:
                        made[part] = array[key]
            found.append(made)
        return found

    def batches(
        self,
        size: int,
        *,
        shuffle: bool = False,
        workers: int = 2,
        drop_last: bool = False,
        to: Callable[[Any], Any] | None = None,
    ) -> Iterator[_Batch]:
        """Return all boxes of this epoch in batches, which threads read ahead.

        At most ``2 * workers + 1`` batches are in memory at a time, and as many that are not used any more: their
        memory takes later batches once no array has it. For other places or another order the next time, set
        :attr:`epoch`.

        Parameters
        ----------
        size : int
            Number of boxes of a batch, at least 1.
        shuffle : bool
            Whether the order is random, by the seed and the epoch, instead of that of the numbers.
        workers : int
            Number of threads, at most 64; without any, a batch is read when it is taken.
        drop_last : bool
            Whether a last batch of fewer boxes is left out.
        to : callable, optional
            Function of each array of a batch that returns what takes its place: ``torch.from_dlpack``.

        Returns
        -------
        iterator
            For each batch an array of shape ``(size, *box, ...)``, or a tuple of one for each array of the dataset.
            With a ``transform``, a list of the values that it returned, one for each sample.

        Raises
        ------
        InvalidError
            A number that is out of range; ``to`` together with a ``transform``.
        """
        size, workers = _whole(size, "size", 1, 1 << 40), _whole(workers, "workers", 0, 64)
        if to is not None and self._transform is not None:
            raise InvalidError("to must not be given together with a transform, which returns anything")
        order = None
        if shuffle:
            order = np.random.default_rng([self._seed, self._epoch]).permutation(self._count)
        ends = self._count - self._count % size if drop_last else self._count
        parts = (range(first, min(first + size, ends)) for first in range(0, ends, size))
        numbers = (part if order is None else order[part.start : part.stop].tolist() for part in parts)

        memory = _Memory((2 * workers + 1) * len(self._arrays))

        def one(part: Sequence[int]) -> _Batch:
            if self._transform is not None:
                return self.__getitems__(part)
            found = tuple(made if to is None else to(made) for made in self._read(part, memory))
            return found if len(found) > 1 else found[0]

        return map(one, numbers) if workers == 0 else _ahead(one, numbers, workers)


def _read_boxes(array: Array | View, places: _Places, out: np.ndarray[Any, Any]) -> None:
    """Read boxes of the shape of ``out[0]``, some of them by one command."""
    if not out.size:
        return
    starts = np.zeros((len(places), array.ndim), np.uint64)
    starts[:, : places.shape[1]] = places
    commands, step = array._commands(), [1] * array.ndim
    many = max(1, _COMMAND_BYTES // out[0].nbytes)
    for low in range(0, len(out), many):
        commands.read_boxes(out[low : low + many], starts[low : low + many], step)


class _Memory:
    """Memory of batches: what no array has any more is used again.

    The system clears new pages, which is a seventh of the processor time of a warm read.
    """

    def __init__(self, most: int) -> None:
        self._free: deque[np.ndarray[Any, Any]] = deque(maxlen=most)

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Return an array without values; its memory comes back when the array and all that shares it are gone."""
        if dtype.hasobject:
            return np.empty(shape, dtype)
        size = math.prod(shape) * dtype.itemsize
        memory = None
        while size >= _KEPT_BYTES_MIN and self._free and memory is None:
            try:
                found = self._free.popleft()
            except IndexError:  # another thread took it
                break
            memory = found if found.nbytes >= size + _LINE else None
        if memory is None:
            memory = np.empty(size + _LINE, np.uint8)
        first = -memory.ctypes.data % _LINE
        part = memory[first : first + size]
        if size >= _KEPT_BYTES_MIN:
            part = np.asarray(_Lent(part, memory, self._free))
        return part.view(dtype).reshape(shape)


class _Lent:
    """The owner of a batch's memory, which NumPy, and what takes it by DLPack, hold as long as they use it."""

    def __init__(
        self, part: np.ndarray[Any, Any], memory: np.ndarray[Any, Any], free: deque[np.ndarray[Any, Any]]
    ) -> None:
        self.__array_interface__ = part.__array_interface__
        self._memory, self._free = memory, free

    def __del__(self) -> None:
        self._free.append(self._memory)


def _ahead(one: Callable[[Sequence[int]], _Batch], parts: Iterator[Sequence[int]], workers: int) -> Iterator[_Batch]:
    """Make batches in the order of their parts, some of them ahead in threads, which end with the iterator."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="nandarray-boxes")
    waiting: deque[Future[_Batch]] = deque()
    try:
        waiting.extend(pool.submit(one, part) for part in itertools.islice(parts, _AHEAD * workers))
        while waiting:
            found = waiting.popleft().result()
            waiting.extend(pool.submit(one, part) for part in itertools.islice(parts, 1))
            yield found
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _sizes(given: int | Sequence[int], what: str) -> tuple[int, ...]:
    """Return sizes, at least one of them, each at least 1."""
    try:
        numbers: Any = [given] if np.ndim(given) == 0 else given
        sizes = tuple(map(operator.index, numbers))
    except (TypeError, ValueError) as error:
        raise InvalidError(f"{what} is {given!r}: must be an integer, or some of them") from error
    if not sizes or min(sizes) < 1:
        raise InvalidError(f"{what} is {given!r}: must have numbers of at least 1")
    return sizes


def _whole(given: int, what: str, least: int, most: int) -> int:
    try:
        number = operator.index(given)
    except TypeError as error:
        raise InvalidError(f"{what} is {given!r}: must be an integer") from error
    if not least <= number <= most:
        raise InvalidError(f"{what} is {number}: must be from {least} to {most}")
    return number
