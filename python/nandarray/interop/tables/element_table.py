"""Arrays of one shape as a table: a row an element, its coordinates and its value in each array as columns.

``elements`` makes one of arrays, views, fields or joined arrays of any stores. Tests of rows are decided beside the
data as those of tables of columns are, box by box of whole building blocks, so that memory is that of a box. A box
that a test of coordinates excludes is not read; values are read one by one where few elements pass, else by the box.
Rows come box after box, within a box in C order: coordinates say which element each is.

Nothing is stored, and nothing is missing but NaT, which Arrow has as a missing value.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nandarray.array.array import Array
from nandarray.array.attributes import DIMENSIONS
from nandarray.array.group import Group
from nandarray.array.joined import Joined
from nandarray.errors import InvalidError, NotFoundError
from nandarray.index.shapes import aligned_chunks, box_shape, boxes, run_shape
from nandarray.interop.tables.choosing import Chooser, Operand
from nandarray.interop.tables.columns.select import checked_rows
from nandarray.interop.tables.expressions import expression_of
from nandarray.interop.tables.filters import of_arrow
from nandarray.interop.tables.table import Piece, Table, check_options, checked_columns, checked_pieces
from nandarray.interop.tables.where import Test, as_test
from nandarray.interop.tables.zones import Zones, excluded
from nandarray.programs.operand import Operand as BaseOperand

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["ElementTable", "elements"]

#: Bytes of a box of the widest array, about.
BOX_BYTES = 8 << 20
BATCH_ROWS = 131_072
#: Values are read by the box where at least one element in this number passes.
_SPARSE = 16


@dataclass(frozen=True)
class ElementTable(Table):
    """Arrays of one shape as a table; made by :func:`elements`.

    Parameters
    ----------
    arrays : mapping of str to array
        The columns of values, by name.
    dimensions : tuple of str
        The names of the columns of coordinates.
    """

    arrays: Mapping[str, Any]
    dimensions: tuple[str, ...]

    @cached_property
    def _types(self) -> dict[str, Any]:
        return {name: _type_of(name, np.dtype(one.dtype)) for name, one in self.arrays.items()}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each array."""
        return tuple(self._first.shape)

    @property
    def _first(self) -> Any:
        return next(iter(self.arrays.values()))

    @property
    def store(self) -> Store:
        """The store of the first array that is in one; joined arrays are in many."""
        for one in self.arrays.values():
            if not isinstance(one, Joined):
                return one.store  # type: ignore[no-any-return]
        raise InvalidError("arrays that are joined are in no one store")

    @property
    def place(self) -> str:
        """The names, for messages."""
        return f"elements of {self.name}"

    @property
    def name(self) -> str:
        """The names of the columns of values."""
        return ", ".join(self.arrays)

    @cached_property
    def schema(self) -> Any:
        """The Arrow schema: coordinates as int64, then values."""
        axes = [pa.field(name, pa.int64(), nullable=False) for name in self.dimensions]
        return pa.schema([*axes, *(pa.field(name, kind) for name, kind in self._types.items())])

    @cached_property
    def _boxes(self) -> list[tuple[slice, ...]]:
        size = max(np.dtype(one.dtype).itemsize for one in self.arrays.values())
        block = getattr(self._first, "building_block", None)
        if block is None or len(block) != len(self.shape):
            chunk = run_shape(self.shape, BOX_BYTES // size)
        else:
            chunk = aligned_chunks(self.shape, block, size, limit=BOX_BYTES)
        return list(boxes(self.shape, chunk))

    def pieces(self, where: Test | None = None, *, at_least: int = 1) -> list[Piece]:
        """Give runs of boxes, without those that a test of the coordinates excludes."""
        kept = np.flatnonzero(~self._excluded(where))
        if not kept.size:
            return []
        runs = np.split(kept, np.flatnonzero(np.diff(kept) != 1) + 1)
        most = max(1, kept.size // max(1, at_least))
        cut = [run[at : at + most] for run in runs for at in range(0, run.size, most)]
        return [Piece(int(run[0]), int(run[-1]) + 1) for run in cut]

    def _excluded(self, where: Test | None) -> np.ndarray[Any, np.dtype[np.bool_]]:
        count = len(self._boxes)
        if where is None or not self.dimensions or not count:
            return np.zeros(count, bool)
        zeros, rows = np.zeros(count, np.int64), np.full(count, 1)
        zones = {}
        for axis, name in enumerate(self.dimensions):
            low = pa.array([box[axis].start for box in self._boxes], pa.int64())
            high = pa.array([box[axis].stop - 1 for box in self._boxes], pa.int64())
            zones[name] = Zones(low, high, zeros, rows)
        return excluded(as_test(where), zones)

    def decided(self, expression: Any) -> tuple[Test | None, bool]:
        """Return the part of a filter of Arrow that is a test, and whether that is all of it."""
        return of_arrow(expression, self.schema)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Test | None = None,
        *,
        pieces: Sequence[Piece] | None = None,
        batch_rows: int = BATCH_ROWS,
        **options: Any,
    ) -> Any:
        """Give the elements that pass a test.

        Parameters
        ----------
        columns : sequence of str, optional
            Names of dimensions and arrays to give; all if left out.
        where : Test, optional
            The test; every element if left out.
        pieces : sequence of Piece, optional
            Pieces to scan, of those that :meth:`pieces` gave.
        batch_rows : int
            Rows of a batch, at most.
        **options
            Options of :func:`nandarray.offload`, of each run.

        Returns
        -------
        pyarrow.RecordBatchReader
            Coordinates and values; it reads as it is asked, a box at a time.

        Raises
        ------
        NotFoundError
            There is no such column.
        InvalidError
            A value of the test is none of its column's kind.
        TypeError
            It is no test, or there is no such option.
        """
        wanted, rows = checked_columns(columns, self.schema.names), checked_rows("batch_rows", batch_rows)
        check_options(options)
        test = None if where is None else as_test(where)
        chooser = Chooser(test, self._operands)
        schema = pa.schema([self.schema.field(name) for name in wanted])
        chosen = self.pieces(test) if pieces is None else checked_pieces(pieces)

        def batches() -> Iterator[Any]:
            for piece in chosen:
                for box in self._boxes[piece.begin : piece.end]:
                    for batch in self._found(box, wanted, chooser, options).cast(schema).to_batches(rows):
                        if batch.num_rows:
                            yield batch

        return pa.RecordBatchReader.from_batches(schema, batches())

    @cached_property
    def _operands(self) -> dict[str, Operand]:
        made = {name: Operand(name, pa.int64(), None) for name in self.dimensions}
        for name, array in self.arrays.items():
            # A program does not know that NaT is a missing value.
            values = array if np.dtype(array.dtype).kind in "biuf" else None
            made[name] = Operand(name, self._types[name], values)
        return made

    def _found(self, box: tuple[slice, ...], wanted: list[str], chooser: Chooser, options: Mapping[str, Any]) -> Any:
        """Give the elements of a box that pass, as a table."""
        numbers = chooser.numbers(box, **options)
        names = list(wanted)
        if chooser.left is not None:
            names = list(self.schema.names)  # those that Arrow needs among them
        table = self._table(box, numbers, names)
        if chooser.left is not None:
            table = table.filter(expression_of(chooser.left, table.schema))
        return table.select(wanted)

    def _table(self, box: tuple[slice, ...], numbers: np.ndarray[Any, Any], names: list[str]) -> Any:
        shape = box_shape(box)
        is_dense = numbers.size * _SPARSE >= math.prod(shape)
        within = np.unravel_index(numbers, shape) if shape else ()
        places = [place + one.start for place, one in zip(within, box, strict=True)]
        columns = []
        for name in names:
            if name in self.dimensions:
                columns.append(pa.array(places[self.dimensions.index(name)], pa.int64()))
                continue
            grid = self.arrays[name]
            if not numbers.size:
                values = np.empty(0, np.dtype(grid.dtype))
            elif is_dense or not shape or not hasattr(grid, "vindex"):
                values = np.asarray(grid[box]).reshape(-1)[numbers]
            else:
                values = np.asarray(grid.vindex[tuple(places)])
            plain = values.astype(values.dtype.newbyteorder("="), copy=False)
            columns.append(pa.array(plain, self._types[name]))
        return pa.table(columns, pa.schema([self.schema.field(name) for name in names]))


def elements(
    arrays: Group | Mapping[str, Any], pattern: str | None = None, *, dimensions: Sequence[str] | None = None
) -> ElementTable:
    """Return arrays of one shape as a table whose rows are their elements.

    Parameters
    ----------
    arrays : Store, Group or mapping of str to array
        Arrays, views, fields or joined arrays by the names of columns; or a store or group that has them.
    pattern : str, optional
        Names of arrays of a store or group, with ``*`` and ``?``; columns have the last part of a name.
    dimensions : sequence of str, optional
        Names of the columns of coordinates; those of the first array that has names of dimensions if left out, else
        ``axis0``, ``axis1`` and so on.

    Returns
    -------
    ElementTable
        A table as others are: ``scan``, ``count_rows``, ``pieces``, ``dataset``.

    Raises
    ------
    NotFoundError
        No array has such a name.
    InvalidError
        Arrays have different shapes, a dtype that Arrow does not have, or are in no store; or a column would have
        another's name.

    Examples
    --------
    >>> import nandarray, numpy as np
    >>> from nandarray.interop import tables
    >>> from nandarray.interop.tables import col
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["heat"] = np.array([[20.0, 31.0], [35.0, 12.0]])
    >>> store["pressure"] = np.array([[1000, 950], [890, 880]])
    >>> sky = tables.elements(store, "*")
    >>> sky.scan(where=(col("heat") > 30) & (col("pressure") < 900)).read_all().to_pylist()
    [{'axis0': 1, 'axis1': 0, 'heat': 35.0, 'pressure': 890}]
    """
    found = _chosen(arrays, pattern)
    if not found:
        raise InvalidError("a table of elements must have at least one array")
    first, shape = next((name, tuple(one.shape)) for name, one in found.items())
    for name, one in found.items():
        if tuple(one.shape) != shape:
            raise InvalidError(f"arrays must have one shape: {first} has {shape}, {name} has {tuple(one.shape)}")
        _type_of(name, np.dtype(one.dtype))
    if isinstance(dimensions, str) or not isinstance(dimensions, Iterable | None):
        raise InvalidError(f"dimensions must be a list of names, not {dimensions!r}")
    named = tuple(dimensions) if dimensions is not None else _dimensions(found, len(shape))
    if len(named) != len(shape):
        raise InvalidError(f"dimensions must be {len(shape)} names, not {len(named)}")
    columns = [*named, *found]
    if any(not isinstance(name, str) for name in columns):
        raise InvalidError(f"names of columns must be texts, not {columns!r}")
    if len(set(columns)) < len(columns):
        raise InvalidError(
            f"columns must have different names, not {', '.join(columns)}: name the dimensions otherwise"
        )
    return ElementTable(found, named)


def _chosen(arrays: Group | Mapping[str, Any], pattern: str | None) -> dict[str, Any]:
    if not isinstance(arrays, Group):
        if not isinstance(arrays, Mapping) or pattern is not None:
            raise InvalidError(
                f"elements must be of a store or group with a pattern, or of a mapping of names to arrays without one,"
                f" not of a {type(arrays).__name__} with pattern {pattern!r}"
            )
        for name, one in arrays.items():
            if not isinstance(one, BaseOperand | Joined):
                raise InvalidError(f"{name} must be an array of a store, not a {type(one).__name__}")
        return dict(arrays)
    if not isinstance(pattern, str | None):
        raise InvalidError(f"a pattern must be a text, not {pattern!r}")
    return _named(arrays, "*" if pattern is None else pattern)


def _named(group: Group, wanted: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in sorted(group.array_names()):
        if fnmatch.fnmatchcase(name, wanted) and name.count("/") == wanted.count("/"):
            column = name.rpartition("/")[2]
            if column in found:
                raise InvalidError(
                    f"columns must have different names: {found[column].name} and {name} would both be {column}; give "
                    "a mapping of names to arrays"
                )
            found[column] = group.open_array(name)
    if not found:
        raise NotFoundError(f"no array is called {wanted}")
    return found


def _type_of(name: str, dtype: np.dtype[Any]) -> Any:
    try:
        if dtype.kind in "biufMmSU":
            return pa.array(np.empty(0, dtype.newbyteorder("="))).type
    except (pa.ArrowException, TypeError, ValueError):
        pass
    raise InvalidError(f"array {name} has elements of {dtype}, which are no values of a column")


def _dimensions(arrays: Mapping[str, Any], count: int) -> tuple[str, ...]:
    for one in arrays.values():
        names = one.attrs.get(DIMENSIONS) if isinstance(one, Array) else None
        if isinstance(names, list | tuple) and len(names) == count and all(isinstance(n, str) and n for n in names):
            return tuple(names)
    return tuple(f"axis{axis}" for axis in range(count))
