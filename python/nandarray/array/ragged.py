"""Ragged arrays: rows of different lengths, which are text, bytes or lists, some of them missing.

A ragged array is a group of arrays, as Arrow lays them out: ``offsets`` (where each row begins, and where the last one
ends), ``values`` (all elements one behind the other) and, once a row was missing, ``valid`` (whether each row is
there). The group's attribute ``_RAGGED`` says ``"text"``, ``"bytes"`` or ``"list"``. So it is copied, renamed and
deleted as a group is, behind every door, and its arrays can be read, or computed on, as any others.

The last command of an append adds to ``offsets``; what ``values`` and ``valid`` have beyond it is of no row, and the
next append writes over it. Commands are lost from the end alone, so rows of a call are there, all of them, or none are.
Rows that are there stay as they are. One process appends at a time, in any of its threads.

Elsewhere: creating one (:mod:`nandarray.array.ragged_creation`), rows in memory
(:mod:`nandarray.array.ragged_values`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Never, cast

import numpy as np
from numpy.typing import DTypeLike

from nandarray.array.array import Array
from nandarray.array.attributes import Attributes
from nandarray.array.group import Group
from nandarray.array.listing import RAGGED, open_array, ragged_facts
from nandarray.array.methods import missing
from nandarray.array.pickling import reduce_ragged
from nandarray.array.ragged_values import KINDS, RaggedKind, Rows, compacted, rows_of, to_arrow, to_numpy
from nandarray.door import Source
from nandarray.errors import BadIndexError, ClosedError, CorruptError, InvalidError
from nandarray.index import buffers
from nandarray.index.compare import Uncompared
from nandarray.optional import require
from nandarray.present.html import table
from nandarray.units import format_size

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["Ragged"]

_NdArray = np.ndarray[Any, Any]

#: Bytes of elements that iteration, streams and copies have in memory at once, and rows whose offsets they have.
_BATCH_BYTES = 16 << 20
_BATCH_ROWS = 1 << 16
#: Bytes between two chosen rows that are read with them; of a file, and behind a door, where they are sent.
_GAP_BYTES, _GAP_BYTES_SENT = 16 << 10, 512
#: Bytes up to which runs of about one length are read by one command; of a file, and behind a door, where a command
#: takes longer than a copy. All of up to the least are of one length.
_ALIKE_MOST, _ALIKE_MOST_SENT, _ALIKE_LEAST = 1 << 12, 1 << 16, 32
#: Rows between the first and the last chosen one, for each that is chosen, whose offsets are read with theirs.
_NEAR = 8


class Ragged(Uncompared):
    """An array of rows of different lengths. What ``store.create_ragged`` and ``store[name]`` give.

    An integer gives a row: str, bytes or a NumPy array, None where it is missing. A slice, a list of integers or a mask
    gives a NumPy array: of text, ``StringDType``; of bytes and lists, objects. Rows are appended; those that are there
    do not change.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> names = store.create_ragged("names", ["Ada", None, "Grace"])
    >>> names.append(["Barbara"])
    4
    >>> names[0], names[1], len(names)
    ('Ada', None, 4)
    >>> names[[3, 2]].tolist()
    ['Barbara', 'Grace']
    >>> tracks = store.create_ragged("tracks", [[1.5, 2.0], [], [3.5]])
    >>> tracks[0], tracks.values[:]
    (array([1.5, 2. ]), array([1.5, 2. , 3.5]))
    """

    def __init__(self, store: Store, path: str, kind: str, key: bytes | None = None) -> None:
        if kind not in KINDS:
            raise CorruptError(f"attribute {RAGGED!r} of {path!r} must be one of {', '.join(KINDS)}, not {kind!r}")
        self._store, self._path, self._key = store, path, key
        self._kind: RaggedKind = kind
        self._offsets, self._values = self._part("offsets"), self._part("values")
        self._valid: Array | None = None
        self._looked = -1
        self._check_parts()

    if not TYPE_CHECKING:  # a type checker knows which attributes there are

        def __getattr__(self, name: str) -> Never:
            """Say what takes the place of an attribute that there is not."""
            hint = (
                f"of all elements it is ragged.values.{name}(...), of one row ragged[0]" if hasattr(Array, name) else ""
            )
            raise missing(self, name, hint)

    def _part(self, base: str) -> Array:
        if f"{self._path}/{base}" not in self._store._engine:
            raise CorruptError(f"ragged array {self._path!r} has no array {base!r}")
        return open_array(self._store, f"{self._path}/{base}", self._key)

    def _check_parts(self) -> None:
        # NetCDF has no booleans: they are small integers there.
        wanted: list[tuple[Array | None, tuple[str, ...]]] = [(self._offsets, ("<i8",)), (self.valid, ("?", "i1"))]
        for part, kinds in [*wanted, (self._values, ("u1",))]:
            if part is None or (part is self._values and self._kind == "list" and part.ndim):
                continue
            if part.ndim != 1 or part.dtype not in map(np.dtype, kinds):
                raise CorruptError(
                    f"{part.name!r} must have one dimension of {np.dtype(kinds[0])}, not {part.shape} of {part.dtype}"
                )

    def __copy__(self) -> Ragged:
        return Ragged(self._store, self._path, self._kind, self._key)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_ragged(self)

    # --- Facts --------------------------------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The store that holds it."""
        return self._store

    @property
    def name(self) -> str:
        """The full name, with ``/`` between groups."""
        return self._path

    @property
    def kind(self) -> RaggedKind:
        """Kind of the rows: ``"text"``, ``"bytes"`` or ``"list"``."""
        return self._kind

    @property
    def offsets(self) -> Array:
        """The array of int64 that says where rows begin, one more than there are rows."""
        return self._offsets

    @property
    def values(self) -> Array:
        """The array of all elements, one row behind the other; of text and bytes, their bytes."""
        return self._values

    @property
    def valid(self) -> Array | None:
        """The array of booleans that says which rows are there; None if no row was ever missing."""
        length = self._offsets.shape[0]
        if self._valid is None and self._looked != length:  # it is made before rows are added, and then only
            self._valid = self._part("valid") if f"{self._path}/valid" in self._store._engine else None
            self._looked = length
        return self._valid

    @property
    def parts(self) -> Group:
        """The group of its arrays."""
        return Group(self._store, self._path)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of what slices give: ``StringDType`` for text, else objects."""
        if self._kind != "text":
            return np.dtype(object)
        string = np.dtypes.StringDType
        return cast("np.dtype[Any]", string() if self.valid is None else string(na_object=None))

    @property
    def shape(self) -> tuple[int]:
        """The number of rows, as a shape."""
        return (len(self),)

    @property
    def ndim(self) -> int:
        """Number of dimensions: 1."""
        return 1

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self)

    @property
    def nbytes(self) -> int:
        """Bytes of offsets, elements and truth values."""
        return sum(part.nbytes for part in (self._offsets, self._values, self.valid) if part is not None)

    @property
    def encrypted(self) -> bool:
        """Whether its arrays are encrypted."""
        return self._values.encrypted

    @property
    def attrs(self) -> Attributes:
        """The attributes, a mutable mapping of JSON values that writes through; ``_RAGGED`` is one."""
        return self.parts.attrs

    def __len__(self) -> int:
        count = self._offsets.shape[0] - 1
        if count < 0:
            raise CorruptError(f"{self._offsets.name!r} must have at least one number")
        return count

    # --- Reading ------------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        row, rows = self._chosen(key)
        found = to_numpy(rows, self._kind, self.dtype, self._path)
        return found[0] if row else found

    def read(self, selection: Any = ...) -> Any:
        """Read rows: ``a[selection]`` as a method.

        Parameters
        ----------
        selection : int, slice, sequence of int or mask
            The rows. Everything by default.

        Returns
        -------
        str, bytes, numpy.ndarray or None
            One row for an integer, else an array of rows.

        Raises
        ------
        BadIndexError
            There is no such row.
        CorruptError
            Offsets decrease, or text is not UTF-8.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store.create_ragged("names", ["ada", None, "grace"]).read([2, 0])
        array(['grace', 'ada'], dtype=StringDType(na_object=None))
        """
        return self[selection]

    def to_arrow(self, selection: Any = ...) -> Any:
        """Read rows as an Arrow array, with offsets of 64 bits.

        Parameters
        ----------
        selection : slice, sequence of int or mask
            The rows. Everything by default.

        Returns
        -------
        pyarrow.Array
            A ``large_string``, ``large_binary`` or ``large_list``.

        Raises
        ------
        BadIndexError
            There is no such row, or a single one is requested.
        CorruptError
            Offsets decrease, or text is not UTF-8.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store.create_ragged("names", ["Ada", None]).to_arrow().to_pylist()
        ['Ada', None]
        """
        row, rows = self._chosen(selection)
        if row:
            raise BadIndexError(f"an Arrow array has rows, not the one that {selection!r} is: array[{selection!r}]")
        return to_arrow(rows, self._kind, self._path)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Read everything, and share it as one Arrow array: ``pyarrow.array(array)``."""
        found: tuple[object, object] = self.to_arrow().__arrow_c_array__(requested_schema)
        return found

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Share all rows as one Arrow array in chunks of bounded size: ``pyarrow.chunked_array(array)``."""
        pa = require("pyarrow", "lab")
        chunks = [to_arrow(rows, self._kind, self._path) for rows in self._batches()]
        whole = pa.chunked_array(chunks or [to_arrow(self._rows(0, 0), self._kind, self._path)])
        return whole.__arrow_c_stream__(requested_schema)

    def __array__(self, dtype: DTypeLike | None = None, *, copy: bool | None = None) -> _NdArray:
        """Read everything into memory, converted to ``dtype``; the data must be read, so ``copy=False`` is refused."""
        if copy is False:
            raise InvalidError("a stored array cannot become a NumPy array without a copy")
        found: _NdArray = buffers.converted(self[...], dtype)
        return found

    def __iter__(self) -> Iterator[Any]:
        for rows in self._batches():
            yield from to_numpy(rows, self._kind, self.dtype, self._path)

    def _chosen(self, key: Any) -> tuple[bool, Rows]:
        """Read the rows of an index, and say whether it is of one row."""
        count = len(self)
        if isinstance(key, tuple):
            if len(key) != 1:
                raise BadIndexError(f"{len(key)} indices for an array of 1 dimension")
            key = key[0]
        if key is Ellipsis:
            return False, self._rows(0, count)
        if isinstance(key, slice):
            try:
                low, high, step = key.indices(count)
            except TypeError as error:
                raise BadIndexError(f"{key} is no slice of rows: {error}") from None
            except ValueError as error:
                raise InvalidError(str(error)) from None
            if step == 1:
                return False, self._rows(low, max(low, high))
            return False, self._gathered(np.arange(low, high, step))
        if not isinstance(key, bool | np.bool_):
            with suppress(TypeError):
                row = _row(operator.index(key), count)
                return True, self._rows(row, row + 1)
        return False, self._gathered(_numbers(key, count))

    def _rows(self, low: int, high: int) -> Rows:
        """Read rows that follow each other."""
        places = self._places(low, high + 1)
        valid = self.valid
        return Rows(
            places - places[0],
            self._values[int(places[0]) : int(places[-1])],
            None if valid is None else self._truth(valid, slice(low, high), high),
        )

    def _places(self, low: int, high: int) -> _NdArray:
        """Read offsets, and verify them."""
        places = np.asarray(self._offsets[low:high])
        self._check_places(places[:-1], places[1:], low)
        return places

    def _check_places(self, starts: _NdArray, ends: _NdArray, first: int | _NdArray) -> None:
        there = self._values.shape[0]
        wrong = np.flatnonzero((starts < 0) | (ends < starts) | (ends > there))
        if wrong.size:
            at = int(wrong[0])
            row = int(first[at]) if isinstance(first, np.ndarray) else first + at
            raise CorruptError(
                f"row {row} of {self._path!r} lies from {int(starts[at])} to {int(ends[at])}: offsets must not"
                f" decrease, and values has {there}"
            )

    def _truth(self, valid: Array, key: Any, needed: int) -> _NdArray:
        if valid.shape[0] < needed:
            raise CorruptError(f"{valid.name!r} has {valid.shape[0]} elements, it must have {needed}, one for each row")
        return np.asarray(valid[key], bool)

    def _gathered(self, numbers: _NdArray) -> Rows:
        """Read rows by their numbers; those that lie close together by one command."""
        if not numbers.size:
            return self._rows(0, 0)
        low, high = int(numbers.min()), int(numbers.max())
        if high - low < _NEAR * len(numbers):
            places = np.asarray(self._offsets[low : high + 2])
            starts, ends = places[numbers - low], places[numbers - low + 1]
        else:
            starts, ends = np.asarray(self._offsets[np.concatenate([numbers, numbers + 1])]).reshape(2, -1)
        self._check_places(starts, ends, numbers)
        order = np.argsort(starts, kind="stable")
        item = max(1, self._values.nbytes // max(1, self._values.shape[0]))
        gap = (_GAP_BYTES_SENT if self._is_sent else _GAP_BYTES) // item
        reach = np.maximum.accumulate(ends[order])
        first = np.flatnonzero(np.concatenate([[True], starts[order][1:] - reach[:-1] > gap]))
        begins, finish = starts[order][first], np.maximum.reduceat(ends[order], first)
        base = np.concatenate([[0], np.cumsum(finish - begins)[:-1]]) - begins
        shift = np.empty(len(numbers), np.int64)
        shift[order] = np.repeat(base, np.diff(np.append(first, len(numbers))))
        valid = self.valid
        return Rows(
            *compacted(self._runs(begins, finish - begins), starts + shift, ends + shift),
            None if valid is None else self._truth(valid, numbers, high + 1),
        )

    @property
    def _is_sent(self) -> bool:
        """Whether elements are sent through a door."""
        return isinstance(self._store._engine, Source)

    def _runs(self, begins: _NdArray, lengths: _NdArray) -> _NdArray:
        """Read runs of elements, one behind the other: of short ones those of about one length by one command."""
        values = self._values
        inner = values.shape[1:]
        found = np.empty((int(lengths.sum()), *inner), values.dtype)
        ends = np.cumsum(lengths).tolist()
        froms = [0, *ends]
        item = values.dtype.itemsize * math.prod(inner)
        short = (lengths > 0) & (lengths * item <= (_ALIKE_MOST_SENT if self._is_sent else _ALIKE_MOST))
        # Powers of two, so that not more than twice the bytes of the runs are read.
        sizes = np.where(short, np.maximum(np.ceil(np.log2(np.maximum(lengths, 1))), math.log2(_ALIKE_LEAST)), 0)
        for size in np.unique(sizes[short]):
            chosen = np.flatnonzero(short & (sizes == size))
            longest = int(lengths[chosen].max())
            boxes = np.empty((len(chosen), longest, *inner), values.dtype)
            starts = np.zeros((len(chosen), values.ndim), np.uint64)
            # A box has its length, also where the array ends before.
            starts[:, 0] = firsts = np.minimum(begins[chosen], values.shape[0] - longest)
            values._commands().read_boxes(boxes, starts, [1] * values.ndim)
            for box, at, skip in zip(boxes, chosen.tolist(), (begins[chosen] - firsts).tolist(), strict=True):
                found[froms[at] : ends[at]] = box[skip : skip + ends[at] - froms[at]]
        for at in np.flatnonzero(~short & (lengths > 0)).tolist():
            begin = int(begins[at])
            found[froms[at] : ends[at]] = values[begin : begin + ends[at] - froms[at]]
        return found

    def _batches(self) -> Iterator[Rows]:
        """Read all rows, some at a time: as many as have few bytes, and at least one."""
        low, count = 0, len(self)
        most = _BATCH_BYTES // max(1, self._values.nbytes // max(1, self._values.shape[0]))
        while low < count:
            places = self._places(low, min(count, low + _BATCH_ROWS) + 1)
            many = int(np.searchsorted(places, places[0] + most, "right")) - 1
            high = low + min(max(1, many), len(places) - 1)
            yield self._rows(low, high)
            low = high

    # --- Writing ------------------------------------------------------------------------------------------------------

    def append(self, data: Any) -> int:
        """Add rows at the end: all of them are there, or none, whatever happens.

        Parameters
        ----------
        data : sequence, numpy.ndarray, pyarrow.Array or Ragged
            Rows of the array's kind; None is a missing one. Anything with Arrow's PyCapsule interface is taken.

        Returns
        -------
        int
            The new number of rows.

        Raises
        ------
        InvalidError
            A row is of another kind, or text that UTF-8 does not have.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store.create_ragged("names", ["ada"]).append([None, "grace"])
        3
        """
        with self._store._lock:
            for part in (self._offsets, self._values, self._valid):
                if part is not None:  # behind a door this learns its shape anew: another handle may have appended
                    part._space.attrs  # noqa: B018
            count = len(self)
            end = int(self._offsets[count])
            kind, item = self._kind_and_item()
            self._cut(self._values, end)
            places, missing = [], []
            for rows in _given(data, kind, item):
                if rows.number:
                    places.append(rows.offsets[1:] + end)
                    missing.append(np.zeros(rows.number, bool) if rows.valid is None else ~rows.valid)
                if len(rows.values):
                    self._values.append(rows.values)
                    end += len(rows.values)
            if places:
                self._mark(np.concatenate(missing), count)
                if self._values.shape[0] != end:
                    raise InvalidError(
                        f"{self._values.name!r} has {self._values.shape[0]} elements, and {end} were appended: another"
                        " process appends to it, and one must at a time"
                    )
                self._offsets.append(np.concatenate(places))
            return len(self)

    def _kind_and_item(self) -> tuple[RaggedKind, np.dtype[Any]]:
        """Return the kind, and the dtype of an element with its own dimensions."""
        return self._kind, np.dtype((self._values.dtype, self._values.shape[1:]))

    def _cut(self, part: Array, length: int) -> None:
        """Take away what an append that did not come to its end has left."""
        if part.shape[0] < length:
            raise CorruptError(f"{part.name!r} has {part.shape[0]} elements, it must have at least {length}")
        if part.shape[0] > length:
            part.resize((length, *part.shape[1:]))

    def _mark(self, missing: _NdArray, count: int) -> None:
        """Say which rows are missing that are about to be appended to ``count``."""
        valid = self.valid
        if valid is None:
            if not missing.any():
                return
            valid = self._valid = self._store._create(
                f"{self._path}/valid",
                (count,),
                bool,
                fill_value=True,
                compression="bitpack",
                encryption_key=self._key if self.encrypted else None,
            )
        self._cut(valid, count)
        if missing.any():
            valid.append(~missing)
        else:
            valid.resize((count + len(missing),))  # which read as the fill value, True

    # --- For people ---------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        try:
            return f"<nandarray.Ragged {self._path!r} {self._shown()} rows={len(self)}>"
        except ClosedError:
            return "<nandarray.Ragged (closed)>"

    def _shown(self) -> str:
        return str(ragged_facts(self._store, self._path, self._kind)["dtype"])

    def _repr_html_(self) -> str:
        try:
            told = ragged_facts(self._store, self._path, self._kind)
        except ClosedError:
            return "<em>closed array</em>"
        facts = [("name", self._path), ("rows", f"{len(self):,}"), ("what", str(told["dtype"]))]
        facts += [
            ("elements", f"{self._values.shape[0]:,}"),
            ("missing rows", "no" if self.valid is None else "possible"),
        ]
        facts += [("size", format_size(told["bytes"]))]
        facts += [("compression", told["compression"])] if told["compression"] else []
        return table([*facts, ("encrypted", "yes")] if self.encrypted else facts)


def _given(data: Any, kind: RaggedKind, item: np.dtype[Any]) -> Iterator[Rows]:
    if not isinstance(data, Ragged):
        yield from rows_of(data, kind, item)
        return
    if data.kind != kind:
        raise InvalidError(f"rows of {data.kind}, of {data.name!r}, cannot be appended to rows of {kind}")
    for rows in data._batches():
        yield rows._replace(values=buffers.as_source(rows.values, item.base))


def _row(row: int, count: int) -> int:
    if not -count <= row < count:
        raise BadIndexError(f"index {row} is out of bounds for axis 0 with {count} elements")
    return row % count


def _numbers(key: Any, count: int) -> _NdArray:
    """Return the rows of a list of integers, or of a mask, from the first row."""
    try:
        given = np.asarray(key)
    except (TypeError, ValueError) as error:
        raise BadIndexError(f"{type(key).__name__} is no index of rows: {error}") from None
    if given.dtype == np.bool_ and given.ndim == 1:
        if len(given) != count:
            raise BadIndexError(f"a mask of {len(given)} elements must have one for each of {count} rows")
        return np.flatnonzero(given)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise BadIndexError(
            f"an index of rows must be an integer, a slice, a list of integers or a mask, not {key!r:.60}"
        )
    wrong = given[(given >= count) | (given < -count)] if given.size else given
    if wrong.size:
        raise BadIndexError(f"index {wrong[0]} is out of bounds for axis 0 with {count} elements")
    return given.astype(np.int64) % max(1, count)
