"""Sources of a table's rows: tables, batches and streams of Arrow, and files, as one stream of batches.

A source is read as it is asked, so that memory stays bounded; :func:`slabs` brings its batches to sizes that arrays are
written in. A struct is a column for each of its fields, ``s.x``. An InvalidError names the source that something is
wrong with.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from nandarray.errors import InvalidError
from nandarray.inputs import open_input
from nandarray.interop.tables.columns.forms import is_bytes, is_list, is_text

__all__ = ["Source", "check_schema", "fitted", "flat", "slabs", "source_of"]

#: Rows of a batch, where a source says nothing.
_ROWS = 131_072
#: Bytes of rows that are put together before they are written.
SLAB_BYTES = 64 << 20
_FILES = ".parquet, .arrow, .feather, .csv"


class Source:
    """A stream of batches, its schema, and what it is called in errors."""

    def __init__(self, schema: Any, batches: Iterator[Any], shown: str) -> None:
        self.schema, self.shown = schema, shown
        self._batches = batches

    def as_schema(self, schema: Any) -> Source:
        """Return it with some of its columns, and their values cast, where none is lost."""

        def batches() -> Iterator[Any]:
            for batch in self:
                if missing := [name for name in schema.names if name not in batch.schema.names]:
                    raise InvalidError(f"{self.shown} has no column {missing[0]!r}")
                arrays = [_cast(batch.column(field.name), field, self.shown) for field in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

        return Source(schema, batches(), self.shown)

    def flat(self) -> Source:
        """Return it with a column for each field of its structs, missing where the struct is."""
        schema = flat(self.schema)
        if schema is self.schema:
            return self

        def batches() -> Iterator[Any]:
            for batch in self:
                arrays = [part for column in batch.columns for part in _parts(column)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

        return Source(schema, batches(), self.shown)

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._batches
        except pa.ArrowException as error:
            raise InvalidError(f"{self.shown} cannot be read: {error}") from None


def _cast(array: Any, field: Any, shown: str) -> Any:
    try:
        return array if array.type == field.type else array.cast(field.type)
    except pa.ArrowException as error:
        raise InvalidError(f"column {field.name!r} of {shown} has type {array.type}, and {error}") from None


def _is_struct(kind: Any) -> bool:
    """Return whether a type is a struct with fields."""
    return bool(pa.types.is_struct(kind) and kind.num_fields)


def flat(schema: Any) -> Any:
    """Return a schema with a field ``s.x`` for each field ``x`` of a struct ``s``, of one within another, too."""
    while any(_is_struct(field.type) for field in schema):
        fields = []
        for field in schema:
            inner = field.type if _is_struct(field.type) else ()
            fields += [
                one.with_name(f"{field.name}.{one.name}").with_nullable(field.nullable or one.nullable) for one in inner
            ] or [field]
        schema = pa.schema(fields, schema.metadata)
    return schema


def _parts(array: Any) -> Iterator[Any]:
    """Give the fields of a struct, or what is none."""
    if _is_struct(array.type):
        array.validate(full=True)
        for one in array.flatten():
            yield from _parts(one)
    else:
        yield array


def source_of(source: Any, schema: Any = None) -> Source:
    """Return a source as a stream of batches without structs.

    Raises
    ------
    InvalidError
        It is none, or its file cannot be read.
    OSError
        There is no such file.
    """
    if isinstance(source, str | os.PathLike):
        shown = os.fspath(source)
        try:
            return _of_file(Path(source), schema, str(shown)).flat()
        except pa.ArrowException as error:
            raise InvalidError(f"{shown} cannot be read: {error}") from None
    shown = f"the {type(source).__name__}"
    try:
        if isinstance(source, Mapping):
            source = pa.table(dict(source))
        if isinstance(source, pa.RecordBatch):
            return Source(source.schema, iter([source]), shown).flat()
        if isinstance(source, pa.Table):
            return Source(source.schema, iter(source.to_batches(max_chunksize=_ROWS)), shown).flat()
        if isinstance(source, pa.RecordBatchReader) or hasattr(source, "__arrow_c_stream__"):
            reader = source
            if not isinstance(source, pa.RecordBatchReader):
                reader = pa.RecordBatchReader.from_stream(source)
            return Source(reader.schema, iter(reader), shown).flat()
        if hasattr(source, "__arrow_c_array__"):
            batch = pa.record_batch(source)
            return Source(batch.schema, iter([batch]), shown).flat()
    except (pa.ArrowException, TypeError) as error:
        raise InvalidError(f"{shown} gives no rows of Arrow: {error}") from None
    raise InvalidError(
        f"rows must be a table, batch or stream of Arrow, what gives one (a data frame, a relation), or a path of "
        f"{_FILES}, not {type(source).__name__}"
    )


def _of_file(path: Path, schema: Any, shown: str) -> Source:
    with open_input(path):  # a pipe, a folder, or what is not there, is refused
        pass
    kind = path.suffix.lower()
    if kind == ".parquet":
        import pyarrow.parquet as pq

        file = pq.ParquetFile(path)
        return Source(file.schema_arrow, file.iter_batches(_ROWS), shown)
    if kind in (".arrow", ".feather", ".ipc"):
        mapped = pa.memory_map(str(path))
        try:
            opened = pa.ipc.open_file(mapped)
        except pa.ArrowInvalid:
            mapped.seek(0)
            stream = pa.ipc.open_stream(mapped)
            return Source(stream.schema, iter(stream), shown)
        return Source(opened.schema, (opened.get_batch(n) for n in range(opened.num_record_batches)), shown)
    if kind == ".csv":
        from pyarrow import csv

        types = None if schema is None else {field.name: field.type for field in schema}
        reader = csv.open_csv(path, convert_options=csv.ConvertOptions(column_types=types))
        return Source(reader.schema, iter(reader), shown)
    raise InvalidError(f"{shown}: a path must end in one of {_FILES}; delimited text needs a schema of its types")


# --- Batches that fit -------------------------------------------------------------------------------------------------


def check_schema(given: Any, schema: Any, shown: str) -> None:
    """Refuse rows of other columns, or of other types than their layout.

    Raises
    ------
    InvalidError
        They are; the column is named.
    """
    if given.names != schema.names:
        raise InvalidError(
            f"{shown} has the columns {', '.join(given.names) or 'none'}; they must be {', '.join(schema.names)}"
        )
    for one, field in zip(given, schema, strict=True):
        if not _alike(one.type, field.type):
            raise InvalidError(f"column {field.name!r} of {shown} has type {one.type}; it must be {field.type}")


def fitted(batch: Any, schema: Any, shown: str) -> Any:
    """Return a batch with the types of a table, after verifying all of it; codes are int32, whatever the table gives.

    Raises
    ------
    InvalidError
        Its columns have other names or types, a value is missing where none may be, or Arrow's arrays are none; the
        column is named.
    """
    check_schema(batch.schema, schema, shown)
    arrays = []
    for field, array in zip(schema, batch.columns, strict=True):
        try:
            array.validate(full=True)
            whole = _as(array, field.type)
        except pa.ArrowException as error:
            raise InvalidError(f"column {field.name!r} of {shown}: {error}") from None
        if whole.null_count and not field.nullable:
            raise InvalidError(
                f"column {field.name!r} of {shown} has {whole.null_count} missing values; it must have none: its field "
                "is not nullable"
            )
        arrays.append(whole)
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def _as(array: Any, kind: Any) -> Any:
    if pa.types.is_null(array.type):
        return pa.nulls(
            len(array), pa.dictionary(pa.int32(), kind.value_type) if pa.types.is_dictionary(kind) else kind
        )
    if isinstance(kind, pa.BaseExtensionType) and pa.types.is_dictionary(array.storage.type):
        return kind.wrap_array(_marked(array.storage))
    if not pa.types.is_dictionary(kind):
        return array if array.type == kind else array.cast(kind)
    given = _marked(array) if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    return pa.DictionaryArray.from_arrays(given.indices.cast(pa.int32()), given.dictionary.cast(kind.value_type))


def _marked(given: Any) -> Any:
    """Return codes whose missing values are those of the codes: Arrow counts none that are values of the dictionary."""
    if not given.dictionary.null_count:
        return given
    made = given.dictionary_decode().dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        made.indices.cast(given.type.index_type), made.dictionary, ordered=given.type.ordered
    )


def _alike(given: Any, wanted: Any) -> bool:
    """Return whether types have the same values, in another layout."""
    given, wanted = (kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (given, wanted))
    if pa.types.is_null(given) or given == wanted or any(test(given) and test(wanted) for test in (is_text, is_bytes)):
        return True
    return is_list(given) and is_list(wanted) and given.value_type == wanted.value_type


def slabs(batches: Iterator[Any], first: int, rows: int) -> Iterator[Any]:
    """Bring batches to such of ``rows`` rows, or of fewer with many bytes; the first ends at a multiple of that."""
    kept: list[Any] = []
    count = size = 0
    wanted = rows - first % rows
    for given in batches:
        batch = given
        while batch.num_rows:
            part = batch.slice(0, wanted - count)
            kept.append(part)
            count += part.num_rows
            size += part.nbytes
            batch = batch.slice(part.num_rows)
            if count == wanted or size >= SLAB_BYTES:
                yield _joined(kept)
                kept, wanted = [], rows if count == wanted else wanted - count
                count = size = 0
    if kept:
        yield _joined(kept)


def _joined(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    whole = pa.Table.from_batches(batches)
    arrays = [pa.concat_arrays(column.chunks) for column in whole.columns]  # which brings dictionaries together
    return pa.RecordBatch.from_arrays(arrays, names=whole.column_names)
