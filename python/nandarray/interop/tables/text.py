"""A table of delimited text in an array of bytes, scanned beside the data by the program ``psf``.

A table is an array of bytes with the attribute ``nandarray.table``: columns, delimiter, the longest line. A scan takes
columns and a test of rows to the data; what comes back is the wanted fields of the rows that pass, span by span, each a
batch of Arrow. A line that cannot be read ends a scan with a :class:`~nandarray.errors.MalformedLineError`.

Behind a door (:mod:`nandarray.door`) the same programs run where the text is: no text comes here that is not asked
for, but lines that an error shows and spans that have bytes above 127. A door limits what a run does and gives back,
so that the text is cut into runs, and a run whose rows are too many for one into two.

Nothing here compiles, or knows how a program reads a line: that is :mod:`nandarray.programs.library`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.array.array import Array
from nandarray.door import Source
from nandarray.errors import InvalidError, MalformedLineError, NotFoundError, ProgramFailedError
from nandarray.interop.tables.schema import Column, columns_of, unreadable
from nandarray.interop.tables.table import Piece, Table
from nandarray.interop.tables.where import Test, checked, of_arrow
from nandarray.programs import library
from nandarray.programs.ports import Box
from nandarray.programs.run import offload

if TYPE_CHECKING:
    from nandarray.array.group import Group
    from nandarray.array.store import Store
    from nandarray.programs.program import Program

__all__ = ["TextTable", "create", "open_table"]

ATTRIBUTE = "nandarray.table"
#: A line is no longer than a page, if the table says nothing else.
LINE_BYTES = 4096
#: Text of one batch.
BATCH_BYTES = 16 << 20
#: Text of one run behind a door, where the instructions of a run are limited.
RUN_BYTES = 64 << 20
_TOO_MUCH = re.compile(r"outputs in memory must have at most \d+ bytes")
_STATUS = re.compile(r"returned (-\d+)")
_WRONG = ("is malformed", "is too long", "is missing", "")
_NO_END, _FAULTS = -2, -16
_SHOWN = 60


def _checked(columns: Sequence[Column], delimiter: Any, line_bytes: Any) -> int:
    """Check what describes a table; return the bytes of a line as Python's integer."""
    names = [column.name for column in columns]
    if not names or len(set(names)) < len(names):
        raise InvalidError(f"a table has columns of different names, not {', '.join(names) or 'none'}")
    if not isinstance(delimiter, str) or len(delimiter) != 1 or not delimiter.isascii():
        raise InvalidError(f"the delimiter is one ASCII character, not {delimiter!r}")
    whole = isinstance(line_bytes, int | np.integer) and not isinstance(line_bytes, bool)
    if not whole or line_bytes < 1:
        raise InvalidError(f"line_bytes must be a number of bytes from 1 on, not {line_bytes!r}")
    return int(line_bytes)


@dataclass(frozen=True)
class TextTable(Table):
    """A table of delimited text in a store.

    Parameters
    ----------
    text : Array
        The lines, an array of bytes.
    columns : tuple of Column
        Name and type of each field, in the order of a line.
    delimiter : str
        The character between fields.
    line_bytes : int
        Bytes of a line with its end, at most.
    """

    text: Array
    columns: tuple[Column, ...]
    delimiter: str
    line_bytes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "line_bytes", _checked(self.columns, self.delimiter, self.line_bytes))

    @property
    def store(self) -> Store:
        """The store that has it."""
        return self.text.store

    @property
    def name(self) -> str:
        """The full name of the array of its text."""
        return self.text.name

    @property
    def schema(self) -> Any:
        """The Arrow schema of all columns."""
        return self._schema(range(len(self.columns)))

    def program(
        self,
        columns: Sequence[str] | None = None,
        where: Test | None = None,
        *,
        kind: str = "block",
        listing: bool = False,
        target: str = "rv64",
    ) -> Program:
        """Return the program of a scan.

        Parameters
        ----------
        columns : sequence of str, optional
            Names of the columns to keep; every column if left out.
        where : Test, optional
            The test of the rows to keep; every row if left out.
        kind : {"block", "stream"}
            The program's form.
        listing : bool
            Form of a stream program that never asks for the stream's end, as the ASSASIN dissertation's Listing 7.1.
        target : str
            The processor.

        Returns
        -------
        Program
            Takes the text, gives rows.

        Raises
        ------
        NotFoundError
            There is no such column.
        InvalidError
            The test does not fit its columns, or has too many comparisons.
        TypeError
            It is no test.
        """
        test = checked(where, self.columns)
        return self._program(self._numbers(columns), test, kind=kind, listing=int(listing), target=target)

    def rows(
        self, columns: Sequence[str] | None = None, where: Test | None = None, **options: Any
    ) -> np.ndarray[Any, Any]:
        """Scan the table into one structured array: decimals are scaled integers, dates days since 1970-01-01.

        Parameters
        ----------
        columns, where
            As for :meth:`scan`.
        **options
            Options of :func:`nandarray.offload`; of each run, where a door needs several.

        Returns
        -------
        numpy.ndarray
            Fields in the order of the line.

        Raises
        ------
        MalformedLineError, NotFoundError, InvalidError
            As :meth:`scan` does.
        """
        numbers = self._numbers(columns)
        test = checked(where, self.columns)
        whole = [slice(0, self.text.size)]
        spans = self._spans(RUN_BYTES) if self._is_behind_a_door and self.text.size else whole
        runs = [rows for span in spans for _, rows in self._runs(numbers, test, span, options)]
        found = np.asarray(runs[0] if len(runs) == 1 else np.concatenate(runs))
        return found.view(np.dtype([(self.columns[n].name, found.dtype[f"c{n}"]) for n in sorted(set(numbers))]))

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Test | None = None,
        *,
        pieces: Sequence[Piece] | None = None,
        batch_bytes: int = BATCH_BYTES,
        **options: Any,
    ) -> Any:
        """Scan the table beside the data.

        Parameters
        ----------
        columns : sequence of str, optional
            Names of the columns to give, in this order; every column if left out.
        where : Test, optional
            The test of the rows to give; every row if left out.
        pieces : sequence of Piece, optional
            Pieces to scan, of those that :meth:`pieces` gave; the whole table if left out.
        batch_bytes : int
            Text of one batch, about.
        **options
            Options of :func:`nandarray.offload`.

        Returns
        -------
        pyarrow.RecordBatchReader
            A batch for each span of lines, in the order of the lines. It reads as it is asked.

        Raises
        ------
        NotFoundError
            There is no such column.
        InvalidError
            The test does not fit its columns, or has too many comparisons.
        TypeError
            It is no test.
        MalformedLineError
            While it is read: a line cannot be read.

        Examples
        --------
        >>> import nandarray
        >>> from nandarray.interop import tables
        >>> text = "".join(f"{number}|{name}|{chr(10)}" for number, name in [(1, "red"), (2, "green")]).encode()
        >>> store = nandarray.open("data.nand", mode="w")
        >>> table = tables.create(store, "t", text, {"id": "int32", "colour": "text(8)"})
        >>> table.scan(["colour"], tables.col("id") > 1).read_all().to_pylist()
        [{'colour': 'green'}]
        """
        import pyarrow as pa

        numbers = self._numbers(columns)
        test = checked(where, self.columns)
        schema = self._schema(numbers)

        def batch(span: slice, rows: Any) -> Any:
            try:
                arrays = [self.columns[number].array(rows[f"c{number}"]) for number in numbers]
            except pa.ArrowInvalid:
                self._check_text(numbers, span)
                raise
            return pa.RecordBatch.from_arrays(arrays, schema=schema)

        def batches() -> Iterator[Any]:
            for piece in self._all if pieces is None else pieces:
                for span in self._spans(batch_bytes, piece):
                    for run in self._runs(numbers, test, span, options):
                        yield batch(*run)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def check(self) -> None:
        """Read every field of every line.

        Raises
        ------
        MalformedLineError
            A line cannot be read.
        """
        last = len(self.columns) - 1
        low, high = (b"a", b"b") if self.columns[last].field.startswith("bytes") else (0, 1)
        never = ("and", ("==", last, low), ("==", last, high))
        for span in self._spans(BATCH_BYTES):
            for _ in self._runs(range(len(self.columns)), never, span, {}):
                pass
            self._check_text(range(len(self.columns)), span)

    @property
    def _is_behind_a_door(self) -> bool:
        return isinstance(self.text.store._engine, Source)

    def _schema(self, numbers: Sequence[int]) -> Any:
        import pyarrow as pa

        return pa.schema([pa.field(self.columns[n].name, self.columns[n].arrow, nullable=False) for n in numbers])

    def _numbers(self, columns: Sequence[str] | None) -> list[int]:
        if columns is None:
            return list(range(len(self.columns)))
        known = {one.name: number for number, one in enumerate(self.columns)}
        for name in columns:
            if name not in known:
                raise NotFoundError(f"there is no column {name!r}; there is {', '.join(known)}")
        if not columns:
            raise InvalidError("a scan must have at least one column")
        return [known[name] for name in columns]

    def _program(self, numbers: Sequence[int], test: Any, **form: Any) -> Program:
        return library.get(
            "psf",
            fields=tuple(one.field for one in self.columns),
            columns=tuple(numbers),
            where=() if isinstance(test, bool) else test,
            delimiter=ord(self.delimiter),
            line_bytes=self.line_bytes,
            **form,
        )

    def _runs(
        self, numbers: Sequence[int], test: Any, span: slice, options: Mapping[str, Any]
    ) -> Iterator[tuple[slice, Any]]:
        """Scan a span by one run, or, where a door does not give as many rows back, by runs of its halves."""
        try:
            rows = self._rows(numbers, test, span, options)
        except InvalidError as error:
            middle = self._line_end(span.start, (span.start + span.stop) // 2)
            if not _TOO_MUCH.search(str(error)) or middle >= span.stop:
                raise
        else:
            yield span, rows
            return
        yield from self._runs(numbers, test, slice(span.start, middle), options)
        yield from self._runs(numbers, test, slice(middle, span.stop), options)

    def _rows(self, numbers: Sequence[int], test: Any, span: slice, options: Mapping[str, Any]) -> Any:
        if test is False or span.start == span.stop:
            return np.empty(0, library.tuple_dtype([one.field for one in self.columns], numbers))
        try:
            found: Any = offload(self._program(numbers, test), [Box(self.text, span)], **options).result
            return found.reshape(-1)
        except ProgramFailedError as error:
            found = _STATUS.search(str(error))
            status = int(found[1]) if found else 0
            if status != _NO_END and status > _FAULTS:
                raise
            raise self._fault(status, span) from None

    def _check_text(self, numbers: Sequence[int], span: slice) -> None:
        """Refuse characters that are no text, which the program takes as they are."""
        if self._is_behind_a_door:
            counts = self._counts(span)
            if not counts[0] and not counts[128:].any():  # noqa: PLR2004 (ASCII: nothing of it has to come here)
                return
        found = unreadable(self.text[span].tobytes(), self.delimiter, self.columns, numbers)
        if found is not None:
            offset, number, wrong = found
            one = self.columns[number]
            raise self._malformed(span.start + offset, number, f"field {number}, {one.name} ({one.type}), {wrong}")

    def _fault(self, status: int, span: slice) -> MalformedLineError:
        """Say what a status of the program means."""
        if status == _NO_END:
            return self._malformed(self.text.size - 1, None, "the text is cut off: its last line has no end")
        code = _FAULTS - status
        offset, number, wrong = span.start + (code >> 8), code >> 2 & 63, _WRONG[code & 3]
        if not wrong:
            return self._malformed(offset, None, f"the line is longer than {self.line_bytes} bytes")
        one = self.columns[number]
        return self._malformed(offset, number, f"field {number}, {one.name} ({one.type}), {wrong}")

    def _malformed(self, offset: int, field: int | None, what: str) -> MalformedLineError:
        line = 1 + sum(
            int(self._counts(slice(at, min(at + BATCH_BYTES, offset)))[ord("\n")])
            for at in range(0, offset, BATCH_BYTES)
        )
        shown = self.text[offset : offset + _SHOWN].tobytes().partition(b"\n")[0].decode(errors="replace")
        return _error(self.text.name, line, field, f"{what}: {shown!r}")

    def _counts(self, span: slice) -> np.ndarray[Any, Any]:
        """Count the bytes of a span by their 256 values; behind a door where they are."""
        if not self._is_behind_a_door:
            return np.bincount(self.text[span], minlength=256)
        program = library.get("histogram", dtype=np.dtype("uint8"), bins=256)
        return np.asarray(offload(program, [Box(self.text, span)], {"low": 0, "high": 256}).result)

    @property
    def _all(self) -> list[Piece]:
        return [Piece(0, self.text.size)]

    def pieces(self, where: Test | None = None, *, at_least: int = 1) -> list[Piece]:
        """Cut the text behind ends of lines; a test leaves every piece, since text has no index."""
        size = -(-self.text.size // max(at_least, 1)) or 1
        return [Piece(span.start, span.stop) for span in self._spans(size)]

    def decided(self, expression: Any) -> tuple[Test | None, bool]:
        """Return the part of a filter of Arrow that is decided at the data, and whether that is all of it."""
        return of_arrow(str(expression), self.columns)

    def _spans(self, batch_bytes: int, piece: Piece | None = None) -> Iterator[slice]:
        """Cut the text, or a piece of it, behind ends of lines."""
        if batch_bytes < 1:
            raise InvalidError(f"batch_bytes must be at least 1, not {batch_bytes}")
        begin, size = (0, self.text.size) if piece is None else (piece.begin, piece.end)
        while begin < size:
            end = size if begin + batch_bytes >= size else self._line_end(begin, begin + batch_bytes)
            yield slice(begin, end)
            begin = end

    def _line_end(self, begin: int, end: int) -> int:
        """Return the place behind the first end of a line from the byte before ``end`` on; ``begin`` begins a line."""
        size = self.text.size
        if end >= size:
            return size
        window = self.text[end - 1 : end - 1 + self.line_bytes].tobytes()
        found = window.find(b"\n")
        if found < 0 and len(window) == self.line_bytes:
            before = self.text[max(begin, end - self.line_bytes) : end].tobytes()
            at = end - len(before) + before.rfind(b"\n") + 1
            raise self._malformed(at, None, f"the line is longer than {self.line_bytes} bytes")
        return end + found if found >= 0 else size


def _error(name: str, line: int, field: int | None, what: str) -> MalformedLineError:
    error = MalformedLineError(f"{name}, line {line:,}: {what}")
    error.array, error.line, error.field = name, line, field
    return error


def create(
    store: Group,
    name: str,
    source: str | os.PathLike[str] | bytes,
    schema: Mapping[str, str],
    *,
    delimiter: str = "|",
    line_bytes: int = LINE_BYTES,
    check: bool = True,
) -> TextTable:
    """Store delimited text as a table.

    Parameters
    ----------
    store : Store or Group
        Store or group that gets the table.
    name : str
        Name of the array.
    source : path or bytes
        The text: lines that end with a line feed, the last one, too, or with both ends of Windows; no quotes, no head.
    schema : mapping
        Name and type of each field of a line: ``"int32"``, ``"int64"``, ``"date"``, ``"decimal(P,S)"``,
        ``"text(N)"``. Fields behind the last one are passed over.
    delimiter : str
        The character between fields.
    line_bytes : int
        Bytes of a line with its end, at most.
    check : bool
        Read every field of every line first; if left out, a malformed line is found by the scan that needs it, but NUL
        bytes behind a text, which look like its end in a row, are not.

    Returns
    -------
    TextTable
        The table; :func:`open_table` gives it again.

    Raises
    ------
    MalformedLineError
        A line cannot be read, or the text is cut off. Nothing is stored.
    """
    columns = tuple(columns_of(schema))
    line_bytes = _checked(columns, delimiter, line_bytes)
    if isinstance(source, bytes):
        data, shown = np.frombuffer(source, np.uint8), name
    else:
        size = Path(source).stat().st_size
        data, shown = (np.memmap(source, np.uint8, "r") if size else np.empty(0, np.uint8)), os.fspath(source)
    if data.size and data[-1] != ord("\n"):
        line = 1 + int(np.count_nonzero(data == ord("\n")))
        raise _error(shown, line, None, "the text is cut off: its last line has no end")
    store[name] = data
    try:
        table = TextTable(store.open_array(name), columns, delimiter, line_bytes)
        table.program()  # what the program refuses, is refused now
        if check:
            table.check()
    except BaseException as error:
        del store[name]
        if isinstance(error, MalformedLineError):
            raise _error(shown, error.line, error.field, str(error).partition(": ")[2]) from None
        raise
    described = {"columns": [[one.name, one.type] for one in columns], "delimiter": delimiter}
    table.text.attrs[ATTRIBUTE] = {**described, "line_bytes": line_bytes}
    return table


def open_table(store: Group, name: str) -> TextTable:
    """Return a table of a store.

    Parameters
    ----------
    store : Store or Group
        Store or group that has the table.
    name : str
        Name of the array.

    Returns
    -------
    TextTable
        The table.

    Raises
    ------
    NotFoundError
        There is no such array, or it is no table.
    """
    text = store[name]
    described = text.attrs.get(ATTRIBUTE)
    if described is None or not isinstance(text, Array):
        raise NotFoundError(f"{name} is no table: it has no attribute {ATTRIBUTE!r}")
    try:
        columns = tuple(Column(*one) for one in described["columns"])
        return TextTable(text, columns, described["delimiter"], described["line_bytes"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidError(f"{name}: the attribute {ATTRIBUTE!r} describes no table: {error}") from None
