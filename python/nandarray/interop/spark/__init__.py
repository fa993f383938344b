"""Tables for Spark: a data source that reads them beside the data, and writes Spark's frames to them.

    from nandarray.interop import spark

    spark.register(session)
    frame = session.read.format("nandarray").option("table", "sales").load("/data/shop.nand")

``source`` has what Spark calls first, ``options`` what users may say, ``types`` the types of both sides, ``filters``
Spark's filters as Arrow's, ``reading`` and ``writing`` the two ways, the latter by parts (``writing_parts``) or by
files (``writing_files``). It needs PySpark 4.1 or newer, and this package in the Python of Spark's workers.
"""

from nandarray.interop.spark.source import NandarrayDataSource, register

__all__ = ["NandarrayDataSource", "register"]
