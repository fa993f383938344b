"""The data source ``nandarray``, which Spark calls first: the schema of a table, its reader and its writer."""

from __future__ import annotations

from typing import Any

from nandarray.errors import NotFoundError
from nandarray.interop.spark.options import Options
from nandarray.optional import needs

with needs("pyspark", "spark"):
    from pyspark.sql.datasource import DataSource

from nandarray.interop.spark.reading import TableReader, reader_of
from nandarray.interop.spark.types import spark_schema
from nandarray.interop.spark.writing import TableWriter
from nandarray.interop.spark.writing_files import FileWriter
from nandarray.interop.spark.writing_parts import PartsWriter
from nandarray.parts.blobs.files import Files
from nandarray.parts.history import is_parted
from nandarray.urls import is_url, split_remote

__all__ = ["NandarrayDataSource", "register", "writer_of"]


def writer_of(options: Options, schema: Any, *, overwrite: bool) -> TableWriter:
    """Return what writes a frame to a table, by the store that it is in."""
    has_parts = split_remote(options.path) is not None or not is_url(options.path) and is_parted(Files(options.path))
    return (PartsWriter if has_parts else FileWriter)(options, schema, overwrite=overwrite)


class NandarrayDataSource(DataSource):  # type: ignore[misc]
    """Tables of stores as a data source of Spark, ``format("nandarray")``; :mod:`options` lists its options.

    Filters go to the data if ``spark.sql.python.filterPushdown.enabled`` is set, as :func:`register` does.

    Examples
    --------
    ::

        from nandarray.interop.spark import NandarrayDataSource

        session.dataSource.register(NandarrayDataSource)
        read = session.read.format("nandarray").option("table", "sales")
        read.option("columns", "region,price").load("/data/shop.nand").where("price > 10").show()
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "nandarray"

    def schema(self) -> Any:
        """Return the columns to read, as Spark has them."""
        options = Options.of(self.options)
        with options.opened() as (table, _):
            names = table.schema.names if options.columns is None else options.columns
            if unknown := [name for name in names if name not in table.schema.names]:
                told = f"columns must be of {', '.join(table.schema.names)}, not {', '.join(unknown)}"
                raise NotFoundError(f"{told}: table {table.name!r}")
            return spark_schema([table.schema.field(name) for name in names])

    def reader(self, schema: Any) -> TableReader:
        """Return what reads the table."""
        return reader_of(Options.of(self.options), schema)

    def writer(self, schema: Any, overwrite: bool) -> TableWriter:  # noqa: FBT001 (Spark's)
        """Return what writes a frame to the table."""
        return writer_of(Options.of(self.options), schema, overwrite=overwrite)


def register(session: Any) -> None:
    """Make ``format("nandarray")`` known to a session of Spark, and let filters go to it.

    Parameters
    ----------
    session : pyspark.sql.SparkSession
        The session.

    Examples
    --------
    ::

        from nandarray.interop import spark

        spark.register(session)
    """
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    session.dataSource.register(NandarrayDataSource)
