"""A table of delimited text in an array of bytes, scanned beside the data by the program ``psf``.

A table is an array of bytes with the attribute ``nandarray.table``: columns, delimiter, the longest line, and where the
text has them, quotes, spellings of missing values, and the first byte behind a head. A scan takes
columns and a test of rows to the data; what comes back is the wanted fields of the rows that pass, span by span, each a
batch of Arrow. A line that cannot be read ends a scan with a :class:`~nandarray.errors.MalformedLineError`.

A text is cut behind ends of lines. Where some of these are within quotes the attribute notes begins of lines, and
quotes are counted from the one before (``docs/design/015-quotes-in-tables-of-text.md``).

Behind a door (:mod:`nandarray.door`) the same programs run where the text is: no text comes here that is not asked
for, but lines that an error shows and spans that have bytes above 127. A door limits what a run does and gives back,
so that the text is cut into runs, and a run whose rows are too many for one into two.

Nothing here compiles, or knows how a program reads a line: that is :mod:`nandarray.programs.library`.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.array.array import Array
from nandarray.door import Source
from nandarray.errors import InvalidError, MalformedLineError, NotFoundError, ProgramFailedError
from nandarray.interop.tables.filters import of_arrow
from nandarray.interop.tables.lines import MARK, cuts_of, head_of, line_ends, unreadable
from nandarray.interop.tables.schema import Column, columns_of
from nandarray.interop.tables.table import Piece, Table, check_options, checked_columns, checked_pieces
from nandarray.interop.tables.where import Test, checked, decidable
from nandarray.programs import library
from nandarray.programs.ports import Box
from nandarray.programs.run import offload

if TYPE_CHECKING:
    from nandarray.array.group import Group
    from nandarray.array.store import Store
    from nandarray.programs.program import Program

__all__ = ["TextForm", "TextTable", "create", "open_table"]

ATTRIBUTE = "nandarray.table"
#: A line is no longer than a page, if the table says nothing else.
LINE_BYTES = 4096
#: Text of one batch.
BATCH_BYTES = 16 << 20
#: Text of one run behind a door, where the instructions of a run are limited.
RUN_BYTES = 64 << 20
_TOO_MUCH = re.compile(r"outputs in memory must have at most \d+ bytes")
_STATUS = re.compile(r"returned (-\d+)")
_WRONG = ("is malformed", "is too long", "is missing", "", "has a quote that is not closed")
_NO_END, _FAULTS = -2, -16
#: The number of a field in a status, at most: it stands for those behind it, too.
_LAST_FIELD = 63
_SHOWN = 60
#: The form of the attribute of tables that older releases cannot read.
VERSION = 2


@dataclass(frozen=True)
class TextForm:
    """The form of a text.

    Parameters
    ----------
    delimiter : str
        The character between fields.
    line_bytes : int
        Bytes of a line with its end, at most.
    quote : str, optional
        The character around quoted fields; None where there are none.
    null : tuple of str
        Spellings of a missing value, without quotes.
    """

    delimiter: str = "|"
    line_bytes: int = LINE_BYTES
    quote: str | None = None
    null: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what, one in (("delimiter", self.delimiter), ("quote", self.quote)):
            if one is None and what == "quote":
                continue
            if not isinstance(one, str) or len(one) != 1 or not one.isascii() or one == "\0":
                raise InvalidError(f"the {what} must be one ASCII character, not {one!r}")
            if one in "\r\n" or (what == "quote" and one == self.delimiter):
                raise InvalidError(f"the {what} must be no end of a line, and another than the delimiter, not {one!r}")
        whole = isinstance(self.line_bytes, int | np.integer) and not isinstance(self.line_bytes, bool)
        if not whole or self.line_bytes < 1:
            raise InvalidError(f"line_bytes must be a number of bytes from 1 on, not {self.line_bytes!r}")
        object.__setattr__(self, "line_bytes", int(self.line_bytes))
        null = (self.null,) if isinstance(self.null, str) else self.null
        if not isinstance(null, Sequence) or not all(isinstance(one, str) for one in null):
            raise InvalidError(f"null must be texts that a missing value is written as, not {null!r}")
        object.__setattr__(self, "null", tuple(null))


@dataclass(frozen=True)
class TextTable(Table):
    """A table of delimited text in a store.

    Parameters
    ----------
    text : Array
        The lines, an array of bytes.
    columns : tuple of Column
        Name and type of each field, in the order of a line.
    form : TextForm
        The form of the lines.
    begin : int
        The first byte behind a mark of UTF-8 and a head line.
    cuts : tuple of int, optional
        Begins of some lines, the first one's before all, of a text with ends of lines within quotes.
    """

    text: Array
    columns: tuple[Column, ...]
    form: TextForm
    begin: int = 0
    cuts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        names = [column.name for column in self._wanted]
        if not names or len(set(names)) < len(names):
            raise InvalidError(f"a table must have columns of different names, not {', '.join(names) or 'none'}")
        places = (self.begin,) if self.cuts is None else (self.begin, *self.cuts)
        if not all(isinstance(at, int) and not isinstance(at, bool) for at in places):
            raise InvalidError(f"places of a text must be whole numbers, not {places!r:.80}")
        if self.cuts is not None and (self.form.quote is None or self.cuts[:1] != (self.begin,)):
            raise InvalidError(f"cuts must be of a text with quotes, from byte {self.begin} on, not {self.cuts!r:.80}")
        if any(a >= b for a, b in zip(places[1:], places[2:], strict=False)) or not 0 <= max(places) <= self.text.size:
            raise InvalidError(f"places of a text must grow, up to its {self.text.size} bytes, not {places!r:.80}")

    @property
    def delimiter(self) -> str:
        """The character between fields."""
        return self.form.delimiter

    @property
    def line_bytes(self) -> int:
        """Bytes of a line with its end, at most."""
        return self.form.line_bytes

    @property
    def _wanted(self) -> list[Column]:
        return [column for column in self.columns if column.type != "skip"]

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
        return self._schema(self._numbers(None))

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
            Fields in the order of the line. A ``numpy.ma.MaskedArray`` if the table has values that may be missing.

        Raises
        ------
        MalformedLineError, NotFoundError, InvalidError
            As :meth:`scan` does.
        """
        numbers = self._numbers(columns)
        test = checked(where, self.columns)
        whole = [slice(self.begin, self.text.size)]
        spans = self._spans(RUN_BYTES) if self._is_behind_a_door and self.text.size > self.begin else whole
        runs = [rows for span in spans for _, rows in self._runs(numbers, test, span, options)]
        found = np.asarray(runs[0] if len(runs) == 1 else np.concatenate(runs))
        dtype = np.dtype([(self.columns[n].name, found.dtype[f"c{n}"]) for n in sorted(set(numbers))])
        if not self.form.null:
            return found.view(dtype)
        masked: np.ma.MaskedArray[Any, Any] = np.ma.zeros(found.shape, dtype)
        for number in set(numbers):
            name = self.columns[number].name
            masked[name] = np.ma.MaskedArray(found[f"c{number}"], ~_there(found, number))
        return masked

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
            It is no test, or there is no such option.
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

        check_options(options)
        numbers = self._numbers(columns)
        chosen = self._all if pieces is None else checked_pieces(pieces)
        test = checked(where, self.columns)
        schema = self._schema(numbers)

        def batch(span: slice, rows: Any) -> Any:
            try:
                arrays = [
                    self.columns[number].array(rows[f"c{number}"], _there(rows, number) if self.form.null else None)
                    for number in numbers
                ]
            except pa.ArrowInvalid:
                self._check_text(numbers, span)
                raise
            return pa.RecordBatch.from_arrays(arrays, schema=schema)

        def batches() -> Iterator[Any]:
            for piece in chosen:
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
        every = self._numbers(None)
        low, high = (b"a", b"b") if self.columns[every[-1]].field.startswith("bytes") else (0, 1)
        never = ("and", ("==", every[-1], low), ("==", every[-1], high))
        for span in self._spans(BATCH_BYTES):
            for _ in self._runs(every, never, span, {}):
                pass
            self._check_text(every, span)

    @property
    def _is_behind_a_door(self) -> bool:
        return isinstance(self.text.store._engine, Source)

    def _schema(self, numbers: Sequence[int]) -> Any:
        import pyarrow as pa

        wanted = [self.columns[number] for number in numbers]
        return pa.schema([pa.field(one.name, one.arrow, nullable=one.nullable) for one in wanted])

    def _numbers(self, columns: Sequence[str] | None) -> list[int]:
        known = {one.name: number for number, one in enumerate(self.columns) if one.type != "skip"}
        return [known[name] for name in checked_columns(columns, known)]

    def _program(self, numbers: Sequence[int], test: Any, **form: Any) -> Program:
        return library.get(
            "psf",
            fields=tuple(one.field for one in self.columns),
            columns=tuple(numbers),
            where=() if isinstance(test, bool) else test,
            delimiter=ord(self.form.delimiter),
            line_bytes=self.form.line_bytes,
            quote=ord(self.form.quote or "\0"),
            quoted_ends=int(self.cuts is not None),
            null=tuple(one.encode() for one in self.form.null),
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
            fields = [one.field for one in self.columns]
            return np.empty(0, library.tuple_dtype(fields, numbers, null=bool(self.form.null)))
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
        found = unreadable(self.text[span].tobytes(), self.form.delimiter, self.form.quote, self.columns, numbers)
        if found is not None:
            offset, number, wrong = found
            one = self.columns[number]
            raise self._malformed(span.start + offset, number, f"field {number}, {one.name} ({one.type}), {wrong}")

    def _fault(self, status: int, span: slice) -> MalformedLineError:
        """Say what a status of the program means."""
        if status == _NO_END:
            return self._malformed(self.text.size - 1, None, "the text is cut off: its last line has no end")
        code, bits = _FAULTS - status, 2 if self.form.quote is None else 3
        number, kind = code >> bits & 63, code & ((1 << bits) - 1)
        offset, wrong = span.start + (code >> (6 + bits)), _WRONG[kind] if kind < len(_WRONG) else ""
        if not wrong:
            return self._malformed(offset, None, f"the line is longer than {self.form.line_bytes} bytes")
        if number >= len(self.columns):
            where = f"field {number}{' or one behind it' if number == _LAST_FIELD else ''}"
            return self._malformed(offset, number, f"{where}, behind all columns, {wrong}")
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
        return [Piece(self.begin, self.text.size)]

    def pieces(self, where: Test | None = None, *, at_least: int = 1) -> list[Piece]:
        """Cut the text behind ends of lines; a test leaves every piece, since text has no index."""
        size = -(-(self.text.size - self.begin) // max(at_least, 1)) or 1
        return [Piece(span.start, span.stop) for span in self._spans(size)]

    def decided(self, expression: Any) -> tuple[Test | None, bool]:
        """Return the part of a filter of Arrow that is decided at the data, and whether that is all of it."""
        test, is_all = of_arrow(expression, self.schema)
        kept, whole = decidable(test, self.columns)
        return kept, is_all and whole

    def _spans(self, batch_bytes: int, piece: Piece | None = None) -> Iterator[slice]:
        """Cut the text, or a piece of it, behind ends of lines."""
        if batch_bytes < 1:
            raise InvalidError(f"batch_bytes must be at least 1, not {batch_bytes}")
        begin, size = (self.begin, self.text.size) if piece is None else (piece.begin, piece.end)
        while begin < size:
            end = size if begin + batch_bytes >= size else self._line_end(begin, begin + batch_bytes)
            yield slice(begin, end)
            begin = end

    def _line_end(self, begin: int, end: int) -> int:
        """Return the place behind the first end of a line from the byte before ``end`` on; ``begin`` begins a line.

        Of a text with ends of lines within quotes it may be a noted begin of a line near it.
        """
        size, longest = self.text.size, self.form.line_bytes
        if end >= size:
            return size
        within, quote = False, None
        if self.cuts is not None:
            noted = bisect_left(self.cuts, end)
            cut = self.cuts[noted] if noted < len(self.cuts) else size
            if cut - begin <= 2 * (end - begin):
                return cut
            known = max(begin, self.cuts[bisect_right(self.cuts, end - 1) - 1])
            within, quote = self._is_within(known, end - 1), self.form.quote
        window = np.asarray(self.text[end - 1 : end - 1 + longest])
        found = line_ends(window, quote, within=within)[0]
        if found.size:
            return end - 1 + int(found[0])
        if len(window) < longest or self.cuts is not None:
            return size  # the line is too long, or quotes before it do not pair: its scan tells
        before = self.text[max(begin, end - longest) : end].tobytes()
        at = end - len(before) + before.rfind(b"\n") + 1
        raise self._malformed(at, None, f"the line is longer than {longest} bytes")

    def _is_within(self, begin: int, end: int) -> bool:
        """Tell whether a place is within quotes, by the quotes from the begin of a line on."""
        spans = (slice(at, min(at + BATCH_BYTES, end)) for at in range(begin, end, BATCH_BYTES))
        return sum(int(self._counts(span)[ord(self.form.quote or "")]) for span in spans) % 2 == 1


def _there(rows: Any, number: int) -> Any:
    """Tell of which rows the value of a field is there."""
    return rows["valid"] >> number & 1 == 1


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
    header: bool = False,
    quote: str | None = None,
    null: str | Sequence[str] = (),
    line_bytes: int = LINE_BYTES,
    check: bool = True,
) -> TextTable:
    r"""Store delimited text as a table.

    Parameters
    ----------
    store : Store or Group
        Store or group that gets the table.
    name : str
        Name of the array.
    source : path or bytes
        The text: lines that end with a line feed, or with both ends of Windows. The last one does, too; with quotes it
        need not, and gets its end in the store. A mark of UTF-8 before it is passed over.
    schema : mapping
        Name and type of each field of a line: ``"int32"``, ``"int64"``, ``"date"``, ``"decimal(P,S)"``,
        ``"text(N)"``, or ``"skip"``. Fields behind the last one are passed over.
    delimiter : str
        The character between fields: any of ASCII but digits, ``-``, ``.`` and ends of lines.
    header : bool
        The first line names the fields: the table has those of the schema, in the line's order, and passes over others.
    quote : str, optional
        The character that fields may be put between, as RFC 4180 has it: ``'"'``. Delimiters and ends of lines within
        are characters, and two quotes are one. By default there are no quotes.
    null : str or sequence of str
        Spellings of a missing value, in any column, if without quotes: ``["", "NULL"]``. By default there are none.
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
        A line cannot be read, the text is cut off, or its head does not name the schema's columns. Nothing is stored.
    InvalidError
        An option has a wrong value.
    ExistsError
        The name is taken.

    Examples
    --------
    >>> import nandarray
    >>> from nandarray.interop import tables
    >>> store = nandarray.open("data.nand", mode="w")
    >>> text = b'id,note\r\n1,"a ""b"", c"\r\n2,\r\n'
    >>> schema = {"note": "text(16)", "id": "int32"}
    >>> table = tables.create(store, "t", text, schema, delimiter=",", header=True, quote='"', null="")
    >>> table.scan().read_all().to_pylist()
    [{'id': 1, 'note': 'a "b", c'}, {'id': 2, 'note': None}]
    """
    form = TextForm(delimiter, line_bytes, quote, null)  # type: ignore[arg-type]
    columns = columns_of(schema)
    if not isinstance(source, str | os.PathLike | bytes):
        raise InvalidError(
            f"source must be a path or bytes where schema names types of text, not {type(source).__name__}: rows of "
            "Arrow need a schema of Arrow, or none"
        )
    if isinstance(source, bytes):
        data, shown = np.frombuffer(source, np.uint8), name
    else:
        size = Path(source).stat().st_size
        data, shown = (np.memmap(source, np.uint8, "r") if size else np.empty(0, np.uint8)), os.fspath(source)
    if data.size and data[-1] != ord("\n") and quote is None:
        line = 1 + int(np.count_nonzero(data == ord("\n")))
        raise _error(shown, line, None, "the text is cut off: its last line has no end")
    begin = len(MARK) if data[: len(MARK)].tobytes() == MARK else 0
    if header:
        try:
            columns, begin = _headed(data, begin, form, columns)
        except InvalidError as error:
            raise _error(shown, 1, None, str(error)) from None
    columns = [Column(one.name, one.type, bool(form.null)) for one in columns]
    cuts, is_open = cuts_of(data, begin, quote) if quote is not None else (None, False)
    array = _stored(store, name, data)
    try:
        table = TextTable(array, tuple(columns), form, begin, cuts)
        table.program()  # what the program refuses, is refused now
        if check or is_open:
            table.check()
        table.text.attrs[ATTRIBUTE] = _described(table)
    except BaseException as error:
        del store[name]
        if isinstance(error, MalformedLineError):
            raise _error(shown, error.line, error.field, str(error).partition(": ")[2]) from None
        raise
    return table


def _headed(data: Any, begin: int, form: TextForm, schema: Sequence[Column]) -> tuple[list[Column], int]:
    """Read a head line; return the columns, and the first byte behind it."""
    window = data[begin : begin + form.line_bytes]
    ends = line_ends(window, form.quote)[0]
    if not ends.size and begin + len(window) < data.size:
        raise InvalidError(f"the head line must have at most {form.line_bytes} bytes")
    size = int(ends[0]) if ends.size else len(window)
    line = window[:size].tobytes().removesuffix(b"\n").removesuffix(b"\r")
    return head_of(line, form.delimiter, form.quote, schema), begin + size


def _stored(store: Group, name: str, data: Any) -> Array:
    """Store a text, with the end of its last line."""
    if not data.size or data[-1] == ord("\n"):
        return store.create(name, data=data)
    array = store.create(name, data.size + 1, np.uint8)
    try:
        array[:-1] = data
        array[-1] = ord("\n")
    except BaseException:
        del store[name]
        raise
    return array


def _described(table: TextTable) -> dict[str, Any]:
    """Return the attribute of a table: as it ever was, if older releases can read the text."""
    form = table.form
    fields = [[one.name, one.type] for one in table.columns]
    described: dict[str, Any] = {"delimiter": form.delimiter, "line_bytes": form.line_bytes}
    if form == TextForm(form.delimiter, form.line_bytes) and not table.begin and len(table._wanted) == len(fields):
        return {"columns": fields, **described}
    more = {"quote": form.quote, "null": list(form.null), "begin": table.begin}
    cuts = None if table.cuts is None else list(table.cuts)
    return {"version": VERSION, "fields": fields, **described, **more, "cuts": cuts}


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
    InvalidError
        The table is damaged, or of a later release.
    """
    text = store[name]
    described = text.attrs.get(ATTRIBUTE)
    if described is None or not isinstance(text, Array):
        raise NotFoundError(f"{name} is no table: it has no attribute {ATTRIBUTE!r}")
    try:
        version = described.get("version", 1)
        if version not in (1, VERSION):
            raise InvalidError(f"its version must be at most {VERSION}, not {version!r}: a later release made it")
        given = {key: described[key] for key in ("delimiter", "line_bytes")}
        if version == 1:
            return TextTable(text, tuple(Column(*one) for one in described["columns"]), TextForm(**given))
        form = TextForm(**given, quote=described["quote"], null=described["null"])
        columns = tuple(Column(one, kind, bool(form.null)) for one, kind in described["fields"])
        cuts = None if described["cuts"] is None else tuple(described["cuts"])
        return TextTable(text, columns, form, described["begin"], cuts)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidError(f"{name}: the attribute {ATTRIBUTE!r} describes no table: {error}") from None
