"""Puts of clients: rows behind a table, or a box of an array; whole or not at all.

Everything that a client sends is in memory, reserved of its tenant's budget, before the store gets it: by one command
where the store is one file, by one transaction where it has parts. A client that ends before has changed nothing.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from nandarray.array.store import Store
from nandarray.errors import InvalidError
from nandarray.flight.calls import Call
from nandarray.flight.catalog import Catalog
from nandarray.flight.plans import BoxPlan
from nandarray.flight.tensors import elements_of
from nandarray.flight.tickets import Command
from nandarray.interop import tables
from nandarray.parts.store import PartedStore

__all__ = ["put"]

#: Bytes of memory of a column of a batch beside its values, about.
_COLUMN_BYTES = 1024


def put(call: Call, catalog: Catalog, command: Command, reader: Any, writer: Any) -> None:
    """Take what a client sends, and store it.

    Raises
    ------
    InvalidError
        Its schema is another one, rows are too few or too many, or the command has what only a reader says.
    NotFoundError, ProtectedError
        There is no such table or array that the tenant may write.
    BusyError
        The tenant has too little memory left.
    """
    if command.columns is not None or command.filter is not None or command.program is not None:
        raise InvalidError("a command that puts must have a name, and for an array perhaps a box, and nothing else")
    store = catalog.store
    opened = catalog.open(store, call.guest, command.kind, command.name, write=True)
    if command.kind == "table":
        if not hasattr(opened, "append"):
            raise InvalidError(f"table {command.name!r} is of text, which is made once: a table of columns takes rows")
        _check_schema(opened.schema, reader.schema)
        rows = _received(call, reader, None)
        size = _held(rows.nbytes, len(rows.to_batches()), rows.num_columns)
        done = call.work(size, lambda _: _within(store, call, lambda own: _append(own, command.name, rows)))
    else:
        plan = BoxPlan(command, opened)
        _check_schema(plan.schema, reader.schema)
        count = plan.box[0][1] - plan.box[0][0] if plan.box else 1
        rows = _received(call, reader, count)
        inner = [end - begin for begin, end in plan.box[1:]]
        column = rows.column(0)
        values = elements_of(column.combine_chunks(), inner, opened.dtype)
        key = tuple(slice(*one) for one in plan.box)
        size = _held(rows.nbytes, column.num_chunks, 1)
        done = call.work(size, lambda _: _within(store, call, lambda own: _write(own, command.name, key, values)))
    writer.write(json.dumps({"rows": len(rows)} | ({} if done is None else {"version": done})).encode())


def _check_schema(wanted: Any, given: Any) -> None:
    """Refuse a schema with other names, types or order; metadata and nullability are not compared."""
    told = [[(one.name, one.type) for one in schema] for schema in (wanted, given)]
    if told[0] != told[1]:
        shown = [", ".join(f"{name}: {kind}" for name, kind in fields) for fields in told]
        raise InvalidError(f"what is put must have the schema ({shown[0]}), not ({shown[1]})")


def _received(call: Call, reader: Any, most: int | None) -> Any:
    """Return all that the client sends: exactly ``most`` rows, if there is such a number."""
    batches: list[Any] = []
    rows = 0
    while True:
        call.waits()
        try:
            batch = reader.read_chunk().data
        except StopIteration:
            break
        finally:
            call.goes_on()
        if batch is None or not batch.num_rows:  # any number of these needs no memory
            continue
        rows += batch.num_rows
        call.received += batch.nbytes
        if most is not None and rows > most:
            raise InvalidError(f"a box of {most} rows must get as many, and got {rows} or more")
        batches.append(batch)
        call.reserve(_held(call.received, len(batches), batch.num_columns))
        call.keep_pace(batch.nbytes)
    if most is not None and rows < most:
        raise InvalidError(f"a box of {most} rows must get as many, and got {rows}")
    return pa.Table.from_batches(batches, schema=reader.schema)


def _held(size: int, batches: int, columns: int) -> int:
    """Return the bytes of memory of batches whose values have ``size`` bytes, with a copy of those, about."""
    return 2 * size + batches * (1 + columns) * _COLUMN_BYTES


def _within(store: Store, call: Call, change: Any) -> int | None:
    """Change a store by one command, or, where it has parts, by one transaction; return the version that it made."""
    if not isinstance(store, PartedStore):
        change(store)
        store.flush()
        return None
    with store.transaction(f"flight: {call.guest.host}") as transaction:
        change(transaction)
    return int(transaction.version)


def _write(store: Store, name: str, key: Any, values: np.ndarray[Any, Any]) -> None:
    array = store.open_array(name)
    if key:
        array[key] = values
    else:
        array[()] = values.reshape(())


def _append(store: Store, name: str, rows: Any) -> None:
    table: Any = tables.open_table(store, name)
    table.append(rows)
