"""Writing Spark's frames to a table of a store of parts: each task writes its rows to a part of its own.

Spark makes, runs and commits a writer in processes of their own, so the transaction is handed over
(:mod:`nandarray.parts.handing`): the first one makes a byte array in it, of which each partition has a range, and the
fork comes to tasks and driver within the writer. A task writes a stream of Arrow to its partition's range, shard by
shard, and reports the receipts. Of attempts that failed, or were one too many, no receipts come to the driver.

``commit`` merges the receipts, and adds the rows of the ranges to the table in a transaction of its own upon the newest
version, so that what others have committed meanwhile stays; the byte array is in no version. ``abort`` gives all up:
the parts of tasks are deleted. Of a driver that was killed the store's ``gc`` deletes them.

Rows are written twice, since a table's arrays have shards of a fixed number of elements, which rows of tasks do not
fill: docs/design/019-frames-of-spark.md has the reasons.
"""

from __future__ import annotations

import contextlib
import io
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from nandarray.array.opening import open as open_store
from nandarray.errors import InvalidError, NandarrayError
from nandarray.interop.spark.options import Options
from nandarray.interop.spark.writing import TableWriter, write_stream
from nandarray.parts.handing import give_up, hand_over, resume

if TYPE_CHECKING:
    from nandarray.array.array import Array
    from nandarray.parts.forks import ForkWriter, Receipt

__all__ = ["PartsWriter", "Received"]

#: Bytes of a shard, which a task writes at once.
_SHARD = 16 << 20
#: Bytes that a partition may have, and number of partitions.
_RANGE, _PARTITIONS = 1 << 40, 1 << 20


@dataclass
class Received(WriterCommitMessage):  # type: ignore[misc]
    """The report of a task: the range of its partition, and the receipts of its part.

    Parameters
    ----------
    partition : int
        Number of the partition.
    bytes : int
        Length of its rows as a stream.
    rows : int
        Number of its rows.
    receipts : list of Receipt
        Receipts, which have all of these bytes.
    """

    partition: int
    bytes: int
    rows: int
    receipts: list[Receipt]


class PartsWriter(TableWriter):
    """A writer whose tasks write to parts; parameters are those of :class:`TableWriter`."""

    def __init__(self, options: Options, schema: Any, *, overwrite: bool) -> None:
        if options.staging is not None:
            raise InvalidError(f"staging must be left out: {options.path} is a store of parts, to which tasks write")
        super().__init__(options, schema, overwrite=overwrite)
        self._array = f"_spark-{uuid.uuid4().hex}"
        with self._opened() as store, store.transaction() as changed:
            changed.create(self._array, _RANGE * _PARTITIONS, "u1", shards=_SHARD)
            self._fork = hand_over(changed)

    def _opened(self) -> Any:
        return open_store(self._options.path, "r+")

    def write(self, iterator: Iterator[Any]) -> Received:
        """Write the rows of a partition to a part; called where a task runs."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        if partition >= _PARTITIONS:
            raise InvalidError(f"a frame must have {_PARTITIONS:,} partitions at most, not number {partition:,}")
        with self._fork.writer() as writer:
            sink = _Sink(writer, self._array, partition * _RANGE)
            rows = write_stream(pa.PythonFile(sink, "w"), self._schema, iterator)
            sink.finish()
        return Received(partition, sink.count, rows, sink.receipts)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Add the rows of all partitions as one version; called by the driver when every task has ended."""
        received = [one for one in messages if isinstance(one, Received)]
        with self._opened() as store:
            job = resume(store, self._fork)
            try:
                job.merge(receipt for one in received for receipt in one.receipts)
                job.collect()
                array = job.open_array(self._array)
                ranges = (_Range(array, one.partition * _RANGE, one.bytes) for one in received)
                with store.transaction(f"Spark: {self._options.table}") as changed:
                    self._add(changed, (pa.PythonFile(io.BufferedReader(one, _SHARD), "r") for one in ranges))
            finally:
                with contextlib.suppress(NandarrayError, OSError):  # rows are there, or not; gc deletes what is left
                    job.abort()
                    give_up(store, self._fork)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the parts of all tasks; called by the driver if a task or the commit has failed."""
        with self._opened() as store:
            give_up(store, self._fork)


class _Sink(io.RawIOBase):
    """A file that is written to an array's shards, from an element on; each of them is whole but the last."""

    def __init__(self, writer: ForkWriter, array: str, begin: int) -> None:
        super().__init__()
        self._writer, self._array, self._begin = writer, array, begin
        self._kept = bytearray()
        self.count, self.receipts = 0, list[Any]()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        given = memoryview(data).cast("B")
        for at in range(0, len(given), _SHARD):  # no more in memory than a shard and a piece
            self._kept += given[at : at + _SHARD]
            while len(self._kept) >= _SHARD:
                self._put(_SHARD)
        return len(given)

    def finish(self) -> None:
        """Write what is left."""
        if self._kept:
            self._put(len(self._kept))

    def _put(self, length: int) -> None:
        if self.count + length > _RANGE:
            raise InvalidError(f"a partition must have {_RANGE:,} bytes at most: give the frame more of them")
        first = self._begin + self.count
        data = np.frombuffer(bytes(self._kept[:length]), np.uint8)
        self.receipts.append(self._writer.write(self._array, slice(first, first + length), data))
        del self._kept[:length]
        self.count += length


class _Range(io.RawIOBase):
    """Elements of a byte array as a file that is read."""

    def __init__(self, array: Array, begin: int, length: int) -> None:
        super().__init__()
        self._array, self._at, self._end = array, begin, begin + length

    def readable(self) -> bool:
        return True

    def readinto(self, memory: Any) -> int:
        into = np.frombuffer(memory, np.uint8)
        count = min(len(into), self._end - self._at)
        if count:
            self._array.read(slice(self._at, self._at + count), out=into[:count])
            self._at += count
        return count
