"""One local Spark for the tests that need it: two threads in this process's machine, with the data source of tables.

A task that fails is run once more.
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
import warnings
from typing import Any

import pytest

MISSING = "Spark is not here, which needs PySpark 4.1 and Java 17: make test-engines"


@functools.cache
def _session() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        from nandarray.interop import spark

        options = {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
        builder = SparkSession.builder.master("local[2, 2]").appName("nandarray")
        for key, value in options.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        spark.register(session)
        return session


def session() -> Any:
    """The session, one for the process; a test without Spark is skipped."""
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        pytest.skip(MISSING)
    return _session()


def frame(path: Any, name: str = "t", **options: str) -> Any:
    """A frame of a table."""
    reader = session().read.format("nandarray").option("table", name)
    for key, value in options.items():
        reader = reader.option(key, value)
    return reader.load(str(path))
