"""Plans of commands: cut into tickets, and a ticket into numbered batches, whose borders do not depend on the cut.

:class:`TablePlan` scans a table, a batch a piece; :class:`BoxPlan` reads a box of an array, some rows of the first axis
a batch; :class:`ProgramPlan` runs a ready-made program over a box. All have the same three: a schema, ``tickets`` and
``batches``. Nothing here knows clients or tenants.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from nandarray.array.array import Array
from nandarray.array.arrow import arrow_array, arrow_type
from nandarray.errors import InvalidError, NotFoundError
from nandarray.flight.tensors import COLUMN, batch_of, row_type
from nandarray.flight.tickets import Command, Program, Ticket, tree_of
from nandarray.interop.tables import ColumnTable, Piece, Table, TextTable
from nandarray.interop.tables.substrait import functions_of, of_substrait
from nandarray.interop.tables.where import Test
from nandarray.parts.store import PartedStore
from nandarray.programs import abi, library
from nandarray.programs.ports import Box
from nandarray.programs.run import TASK_BYTES, offload

__all__ = ["Batch", "BoxPlan", "Plan", "ProgramPlan", "TablePlan", "plan_of"]

#: Bytes of a batch, about, in the store.
BATCH_BYTES = 4 << 20
#: Batches of an endpoint, at most, where no part ends before.
ENDPOINT_BATCHES = 16
#: Endpoints of an array in one file, at most: one that is mostly empty may have any length.
_ENDPOINTS_MAX = 4096
#: Rows of a batch of a program's output.
_OUTPUT_ROWS = 65_536
#: Bytes that a value of no fixed width has at least, about.
_VARIABLE_BYTES = 32
#: Bytes of a column from which on they say how long its values are: fewer are blocks that are not full.
_MEASURED_BYTES = 1 << 20
#: Pieces of a table, at most.
_PIECES_MAX = 1 << 16
#: Functions of Substrait and Arrow that Arrow computes here: their values are no longer than what they are given.
_FUNCTIONS = frozenset(
    (  # noqa: SIM905
        "and and_kleene and_not and_not_kleene or or_kleene not invert xor equal not_equal lt less lte less_equal gt "
        "greater gte greater_equal is_null is_valid is_not_null is_nan is_finite is_inf is_infinite coalesce "
        "min_element_wise max_element_wise add add_checked subtract subtract_checked multiply multiply_checked divide "
        "divide_checked modulo modulo_checked remainder remainder_checked negate negate_checked abs abs_checked sign "
        "power power_checked sqrt sqrt_checked exp expm1 ln ln_checked log10 log10_checked log2 log2_checked log1p "
        "log1p_checked logb logb_checked sin cos tan asin acos atan atan2 round ceil floor trunc bit_wise_and "
        "bit_wise_or bit_wise_xor bit_wise_not bitwise_and bitwise_or bitwise_xor bitwise_not starts_with ends_with "
        "contains char_length octet_length utf8_length binary_length list_value_length extract year quarter month day "
        "hour minute second day_of_year iso_year iso_week"
    ).split()
)
#: Bytes of an expression for each value that it makes of a row, at least.
_NODE_BYTES = 8
_FIELD = re.compile(r"FieldPath\((\d+)\)")
_PLAIN = re.compile(r"[A-Za-z_]\w*")
#: Options of offload: how long it may take, and its watch.
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Batch:
    """A batch to be made: its number, bytes of memory that it needs, about, where it is, and the work."""

    number: int
    size: int
    where: dict[str, Any]
    work: Callable[[Options], Any]


class Plan(ABC):
    """The plan of a command over one version of a store."""

    command: Command
    #: The Arrow schema of all batches.
    schema: Any

    @property
    def digest(self) -> str:
        """A short text that differs where names and types do; an array that grows keeps it."""
        return hashlib.sha256(self.schema.remove_metadata().serialize().to_pybytes()).hexdigest()[:16]

    @abstractmethod
    def tickets(self, at: int | None) -> list[Ticket]:
        """Cut it into endpoints, in order."""

    @abstractmethod
    def batches(self, ticket: Ticket) -> Iterator[Batch]:
        """Cut an endpoint into batches, from that which the ticket says on."""

    @property
    def held(self) -> int:
        """Bytes of memory that it holds from batch to batch."""
        return 0

    def check(self, ticket: Ticket) -> None:
        """Refuse a ticket of another schema.

        Raises
        ------
        InvalidError
            It is.
        """
        if ticket.schema != self.digest:
            raise InvalidError(
                f"a ticket must have the schema of {self.command.name!r}, {self.digest}, and has {ticket.schema}: what "
                "it was made for is another one now; ask get_flight_info again"
            )


def plan_of(command: Command, opened: Any) -> Plan:
    """Return the plan of a command over its table or array.

    Raises
    ------
    NotFoundError, InvalidError
        It has no such column, box, program or output.
    """
    if command.kind == "table":
        return TablePlan(command, opened)
    return BoxPlan(command, opened) if command.program is None else ProgramPlan(command, command.program, opened)


class TablePlan(Plan):
    """A scan of a table: columns, a filter, pieces."""

    def __init__(self, command: Command, table: Table) -> None:
        self.command, self._table = command, table
        every = list(table.schema.names)
        self._columns = every if command.columns is None else list(command.columns)
        for name in self._columns:
            if name not in every:
                raise NotFoundError(f"there is no column {name!r}; there is {', '.join(every)}")
        self._test: Test | None = None
        self._rest: Any = None
        self._read = self._columns
        if isinstance(command.filter, bytes):
            self._read_substrait(command.filter)
        elif command.filter is not None:
            self._test = Test(tree_of(command.filter))
        whole = table.scan(self._columns, self._test, pieces=[]).schema
        self.schema = whole.with_metadata({b"nandarray.table": command.name.encode()})

    def _read_substrait(self, text: bytes) -> None:
        """Take the part of an expression that the data decides as the test, and leave all of it to Arrow else."""
        expression, names = _expression(text)
        every = list(self._table.schema.names)
        if unknown := [name for name in names if name not in every]:
            raise NotFoundError(f"the filter's column {unknown[0]!r} is none of the table; there is {', '.join(every)}")
        if isinstance(self._table, TextTable):
            self._test, whole = self._decided(expression, names)
        else:
            self._test, whole = of_substrait(text, self._table.schema)
        if whole:
            return
        if unknown := sorted(functions_of(text) - _FUNCTIONS):
            raise InvalidError(
                f"a filter must not have the function {unknown[0]!r:.60}, whose values may be of any length; there is "
                f"{', '.join(sorted(_FUNCTIONS))}"
            )
        self._rest, self._names = expression, names
        self._read = list(dict.fromkeys([*self._columns, *names]))

    def _decided(self, expression: Any, names: list[str]) -> tuple[Test | None, bool]:
        """Return the part of an expression that a table of text decides, and whether that is all of it."""
        said = str(expression)
        used = {names[int(number)] for number in _FIELD.findall(said) if int(number) < len(names)}
        # The words of a text are no fields, and a name that is no word may be read as something else.
        if not any("FieldPath" in quoted for quoted in re.findall(r'"[^"]*"', said)) and all(
            map(_PLAIN.fullmatch, used)
        ):
            return self._table.decided(_FIELD.sub(lambda found: names[int(found[1])], said))
        return None, False

    def tickets(self, at: int | None) -> list[Ticket]:
        """Cut it into endpoints, in order: pieces of one part, or 16."""
        pieces = self._pieces()
        made = [
            Ticket(self.command, self.digest, at, tuple((one.begin, one.end) for one in some))
            for some in _grouped(pieces, self._rows_of_part())
        ]
        return made or [Ticket(self.command, self.digest, at)]

    def _pieces(self) -> list[Piece]:
        whole = self._table.pieces()
        units = whole[-1].end if whole else 0
        count = min(-(-units * self._unit_bytes // BATCH_BYTES), _PIECES_MAX)
        found = self._table.pieces(self._test, at_least=max(count, 1))
        if isinstance(self._table, TextTable):
            return found  # pieces of lines
        most = max(1, BATCH_BYTES // self._unit_bytes)
        return [Piece(begin, min(begin + most, one.end)) for one in found for begin in range(one.begin, one.end, most)]

    @cached_property
    def _unit_bytes(self) -> int:
        """Bytes of a row in memory, about; of text, of a byte."""
        if isinstance(self._table, TextTable):
            return 1
        widths = dict(zip(self._table.schema.names, map(_width, self._table.schema.types), strict=True))
        if None in widths.values() and isinstance(self._table, ColumnTable):
            whole = self._table.pieces()
            rows = whole[-1].end if whole else 1
            for told in self._table.statistics().select(["column", "bytes"]).to_pylist():
                if widths[told["column"]] is None and (told["bytes"] or 0) > _MEASURED_BYTES:
                    widths[told["column"]] = max(_VARIABLE_BYTES, 2 * told["bytes"] // max(rows, 1))  # compressed
        return max(1, sum(width or _VARIABLE_BYTES for width in widths.values()))

    def _rows_of_part(self) -> int | None:
        store = self._table.store
        if isinstance(store, PartedStore) and isinstance(self._table, TextTable):
            return store.shards_of(self._table.name)[0]
        return None

    def batches(self, ticket: Ticket) -> Iterator[Batch]:
        """Cut an endpoint into batches: one a piece, maybe without rows."""
        for number, (begin, end) in enumerate(ticket.pieces):
            if number >= ticket.from_batch:
                piece = Piece(begin, end)
                yield Batch(number, 2 * (end - begin) * self._unit_bytes, {}, partial(self._scan, piece))

    def count(self, work: Callable[[int, Callable[[Options], Any]], int]) -> int:
        """Count the rows that pass, a piece a time; ``work`` does a piece of work that needs some bytes."""
        count = 0
        for piece in self._pieces():
            if self._rest is None:
                count += work(BATCH_BYTES, partial(self._counted, piece))
            else:
                count += work(2 * BATCH_BYTES, partial(self._count_scanned, piece))
        return count

    def _counted(self, piece: Piece, options: Options) -> int:
        if not isinstance(self._table, TextTable):
            return self._table.count_rows(self._test, pieces=[piece])
        found = self._table.scan(self._columns[:1], self._test, pieces=[piece], **options)
        return sum(batch.num_rows for batch in found)

    def _count_scanned(self, piece: Piece, options: Options) -> int:
        return int(self._scan(piece, options).num_rows)

    def _scan(self, piece: Piece, options: Options) -> Any:
        found = self._table.scan(self._read, self._test, pieces=[piece], **options).read_all()
        if self._rest is not None:
            numbered = found.select(self._names).append_column("", pa.array(np.arange(len(found))))
            # A row may need a value as long as the expression, or a copy of itself for each part of that.
            of_row = max(len(self.command.filter or b""), 1) // _NODE_BYTES * (found.nbytes // max(len(found), 1) + 1)
            step = max(BATCH_BYTES // max(of_row, 1), 1)
            some = (numbered.slice(at, step).filter(self._rest) for at in range(0, len(found), step))
            passed = [one.column(len(self._names)) for one in some]
            found = found.take(pa.chunked_array([part for one in passed for part in one.chunks], pa.int64()))
        found = found.select(self._columns).replace_schema_metadata(self.schema.metadata).combine_chunks()
        for batch in found.to_batches():
            return batch
        return pa.RecordBatch.from_arrays([pa.array([], one) for one in self.schema.types], schema=self.schema)


def _expression(text: bytes) -> tuple[Any, list[str]]:
    """Return the one expression of a message of Substrait, and the columns that it numbers."""
    from pyarrow import substrait

    try:
        found = substrait.deserialize_expressions(pa.py_buffer(text))
    except (pa.ArrowException, pa.lib.ArrowKeyError) as error:
        raise InvalidError(
            f"the filter must be an extended expression of Substrait that Arrow reads: {error}"
        ) from None
    if len(found.expressions) != 1:
        raise InvalidError(f"the filter must be one expression of Substrait, not {len(found.expressions)}")
    return next(iter(found.expressions.values())), list(found.schema.names)


def _width(kind: Any) -> int | None:
    """Return the bytes of a value; None of one of no fixed width."""
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return None


def _grouped(pieces: Sequence[Piece], part: int | None) -> list[list[Piece]]:
    """Return pieces that begin in one part, of ``part`` units, together; at most 16 where there are no parts."""
    if part is None:
        return [list(pieces[at : at + ENDPOINT_BATCHES]) for at in range(0, len(pieces), ENDPOINT_BATCHES)]
    return [list(some) for _, some in groupby(pieces, key=lambda piece: piece.begin // part)]


class BoxPlan(Plan):
    """A box of an array: rows of its first axis."""

    def __init__(self, command: Command, array: Array) -> None:
        self.command, self._array = command, array
        self.box = _checked_box(command.box, array)
        self._inner = [end - begin for begin, end in self.box[1:]]
        self._row_bytes = max(prod(self._inner) * array.dtype.itemsize, 1)
        field = pa.field(COLUMN, row_type(self._inner, array.dtype))
        about = {"name": command.name, "shape": array.shape, "dtype": array.dtype.str, "box": self.box}
        if array.dtype.names is not None:
            about["dtype"] = array.dtype.descr
        # Of all endpoints alike: the first axis is each batch's own.
        about["box"] = [None, *about["box"][1:]] if self.box else []
        self.schema = pa.schema([field], metadata={b"nandarray.array": json.dumps(about).encode()})

    @property
    def rows(self) -> int:
        """Rows of a batch: whole building blocks, where they are no more than a batch should have."""
        most = max(1, BATCH_BYTES // self._row_bytes)
        block = self._array.building_block[0] if self.box else 1
        return most - most % block if most > block else most

    def tickets(self, at: int | None) -> list[Ticket]:
        """Cut it into endpoints, in order: those of one shard's rows, or of 16 batches."""
        rows = self.rows
        begin, end = self.box[0] if self.box else (0, 1)
        step = max(ENDPOINT_BATCHES, -(-(end - begin) // (rows * _ENDPOINTS_MAX))) * rows
        store = self._array.store
        is_parted = isinstance(store, PartedStore) and bool(self.box)
        if isinstance(store, PartedStore) and self.box:
            step = store.shards_of(self._array.name)[0]
        cuts = [begin, *range(begin - begin % step + step if is_parted else begin + step, end, step), end]
        made = []
        for low, high in zip(cuts, cuts[1:], strict=False):
            own = ((low, high), *self.box[1:]) if self.box else ()
            made.append(Ticket(replace(self.command, box=own), self.digest, at, rows=rows))
        return made

    def batches(self, ticket: Ticket) -> Iterator[Batch]:
        """Cut an endpoint into batches of some rows each."""
        rows = ticket.rows or self.rows
        begin, end = self.box[0] if self.box else (0, 1)
        # A slice leaves the batches before out at once: a ticket may have 2^63 as from_batch.
        for number, low in enumerate(range(begin, end, rows)[ticket.from_batch :], ticket.from_batch):
            high = min(low + rows, end)
            own = [[low, high], *map(list, self.box[1:])] if self.box else []
            size = 2 * (high - low) * self._row_bytes
            yield Batch(number, size, {"box": own}, partial(self._read, low, high))

    def _read(self, low: int, high: int, _: Options) -> Any:
        key = (slice(low, high), *(slice(*one) for one in self.box[1:])) if self.box else ()
        values = np.asarray(self._array[key])
        return batch_of(values if self.box else values.reshape(1), self._array.dtype, self.schema)


def _checked_box(box: Sequence[tuple[int, int]] | None, array: Array) -> tuple[tuple[int, int], ...]:
    if box is None:
        return tuple((0, length) for length in array.shape)
    if len(box) != array.ndim:
        raise InvalidError(f"a box of {array.name!r} must have {array.ndim} pairs, one an axis, not {len(box)}")
    for axis, ((begin, end), length) in enumerate(zip(box, array.shape, strict=True)):
        if end > length:
            raise InvalidError(f"a box must lie in {array.name!r}: axis {axis} has {length} elements, not {end}")
        if not begin <= end:
            raise InvalidError(f"a box must begin before it ends, not {begin} and {end}")
    return tuple(box)


class ProgramPlan(Plan):
    """A ready-made program over a box of an array: one output, as rows."""

    def __init__(self, command: Command, program: Program, array: Array) -> None:
        self.command, self._asked, self._array = command, program, array
        self._box = _checked_box(command.box, array)
        has_dtypes = bool(library.describe(program.name).dtypes)
        unknown = {"name", "dtype", "kind", "target"} & set(program.parameters)
        if unknown:
            raise InvalidError(
                f"{program.name}: {min(unknown)!r} must not be among the parameters: they shape a program"
            )
        self._program = library.get(program.name, dtype=array.dtype if has_dtypes else None, **program.parameters)
        scalars = [str(one["name"]) for one in self._program.scalars]
        for name in program.scalars:
            if name not in scalars:
                raise InvalidError(f"{program.name} has no scalar {name!r}; it has {', '.join(scalars) or 'none'}")
        ports = {str(one["name"]): one for one in self._program.outputs}
        names = list(ports)
        self._output = program.output or (names[0] if len(names) == 1 else "")
        if self._output not in ports:
            raise NotFoundError(f"output must be one of {', '.join(names)}, not {program.output!r}")
        self._dtype = abi.record(ports[self._output]["dtype"], self._output)
        about = {"name": command.name, "program": program.name, "box": self._box}
        self._found: list[np.ndarray[Any, Any]] = []
        field = pa.field(self._output, arrow_type(pa, self._dtype))
        self.schema = pa.schema([field], metadata={b"nandarray.program": json.dumps(about).encode()})

    @property
    def held(self) -> int:
        """Bytes of the output, from the run on."""
        return sum(one.nbytes for one in self._found)

    def tickets(self, at: int | None) -> list[Ticket]:
        """Give the one endpoint: a program is run as a whole."""
        return [Ticket(self.command, self.digest, at, rows=_OUTPUT_ROWS)]

    def batches(self, ticket: Ticket) -> Iterator[Batch]:
        """Run the program with the first batch that is requested, and cut its output."""
        rows = ticket.rows or _OUTPUT_ROWS
        found = self._found

        def run(options: Options) -> Any:
            box = Box(self._array, tuple(slice(*one) for one in self._box))
            done = offload(self._program, [box], dict(self._asked.scalars), **options)
            found.append(np.atleast_1d(np.asarray(done.outputs[self._output])).reshape(-1))
            return cut(ticket.from_batch, options)

        def cut(number: int, _: Options) -> Any:
            some = found[0][number * rows : (number + 1) * rows]
            return pa.RecordBatch.from_arrays([arrow_array(pa, some, self._dtype)], schema=self.schema)

        number = ticket.from_batch
        yield Batch(number, self._bound(), {}, run)
        while (number + 1) * rows < len(found[0]):
            number += 1
            yield Batch(number, 2 * rows * self._dtype.itemsize, {}, partial(cut, number))

    def _bound(self) -> int:
        """Bytes of all outputs, at most, by what the program says of them."""
        data = prod(end - begin for begin, end in self._box) * self._array.dtype.itemsize
        records, tasks = data // int(self._program.inputs[0]["record_bytes"]), data // TASK_BYTES + 1
        total = 0.0
        for one in self._program.outputs:
            bound, is_end = one["bound"], one["phase"] == "end"
            each = 0 if is_end else data * bound["per_input_byte"] + records * bound["per_record"]
            total += each + bound["fixed"] * (1 if is_end else tasks)
        return int(total)
