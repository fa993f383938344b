"""Tables in a real local Spark: types, columns, partitions, versions; frames written whole or not at all.

Predicates and TPC-H in Spark are in ``test_engines_predicates.py`` and ``test_tpch_engines.py``.
"""

from __future__ import annotations

import datetime
import decimal
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sparks

pa = pytest.importorskip("pyarrow")

import nandarray  # noqa: E402
from nandarray import parts  # noqa: E402
from nandarray.errors import InvalidError, NotFoundError  # noqa: E402
from nandarray.interop import tables  # noqa: E402


@pytest.fixture(autouse=True)
def spark() -> Any:
    return sparks.session()


def rows(count: int, first: int = 0) -> Any:
    return pa.table({"k": range(first, first + count), "name": [f"n{number % 7}" for number in range(count)]})


BOTH = pytest.mark.parametrize("path", ["file", "parts"], indirect=True)


@pytest.fixture
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store with the table ``t`` of a hundred rows; a file, or where a test says so one of parts, too."""
    place = tmp_path / "s.nand"
    with parts.create(place) if getattr(request, "param", "file") == "parts" else nandarray.open(place, "w") as store:
        tables.create(store, "t", rows(100), zone_rows=16)
    return place


def stored(path: Path, name: str = "t") -> Any:
    with nandarray.open(path) as store:
        return tables.open_table(store, name).scan().read_all()


def written(frame: Any, path: Path, mode: str = "append", name: str = "t", **options: str) -> None:
    writer = frame.write.format("nandarray").mode(mode).option("table", name)
    for key, value in options.items():
        writer = writer.option(key, value)
    writer.save(str(path))


def beside(path: Path) -> list[Path]:
    return [one for one in path.parent.iterdir() if one != path]


NOON = datetime.datetime(2020, 2, 29, 12, 0, 0, 1)
TYPES: dict[str, tuple[Any, Any]] = {
    "bool": (pa.bool_(), True),
    "u8": (pa.uint8(), 255),
    "u16": (pa.uint16(), 65535),
    "u32": (pa.uint32(), 2**32 - 1),
    "u64": (pa.uint64(), 2**64 - 1),
    "i8": (pa.int8(), -128),
    "i64": (pa.int64(), -(2**63)),
    "f16": (pa.float16(), 0.5),
    "f32": (pa.float32(), 0.25),
    "f64": (pa.float64(), float("inf")),
    "money": (pa.decimal128(12, 2), decimal.Decimal("-1.25")),
    "day": (pa.date32(), NOON.date()),
    "moment": (pa.timestamp("us"), NOON),
    "here": (pa.timestamp("ms", "Europe/Berlin"), NOON.replace(microsecond=0)),
    "text": (pa.large_string(), "été"),
    "few": (pa.dictionary(pa.int8(), pa.string()), "a"),
    "raw": (pa.binary(), b"\0\xff"),
    "list": (pa.list_(pa.int32()), [1, 2]),
}


def test_every_type_comes_with_its_values_and_goes_back(tmp_path: Path) -> None:
    source = pa.table({name: pa.array([value, None], kind) for name, (kind, value) in TYPES.items()})
    path = tmp_path / "s.nand"
    with nandarray.open(path, "w") as store:
        tables.create(store, "t", source)
    frame = sparks.frame(path)
    one, none = sorted(frame.collect(), key=lambda row: row.i8 is None)
    told = {name: getattr(one, name) for name in TYPES if name != "here"}
    wanted = {name: bytearray(v) if name == "raw" else v for name, (_, v) in TYPES.items() if name != "here"}
    wanted["u64"] = decimal.Decimal(2**64 - 1)
    assert told == wanted
    assert set(none) == {None}
    written(frame, path)
    assert stored(path).equals(pa.concat_tables([source, source]))


@BOTH
def test_columns_partitions_and_a_version(path: Path) -> None:
    frame = sparks.frame(path, columns="name", partitions="3")
    assert frame.columns == ["name"]
    assert frame.rdd.getNumPartitions() >= 3
    assert [row.name for row in frame.collect()] == rows(100)["name"].to_pylist()
    pruned = sparks.frame(path, pushdown="on", partitions="7").where("k < 16")
    assert pruned.rdd.getNumPartitions() < 7
    assert pruned.count() == 16
    with nandarray.open(path, "r+") as store:
        tables.open_table(store, "t").append(rows(5, 100))
    assert frame.count() == 100  # as it was planned
    assert sparks.frame(path).count() == 105


def test_a_frame_is_scanned_often_and_beside_itself(path: Path) -> None:
    frame = sparks.frame(path)
    assert frame.where("k < 5").count() == 5
    assert frame.count() == 100
    assert frame.where("k + 1 < 5").count() == 4
    assert frame.where("k < 9").join(frame.where("k > 5"), "k").count() == 3


@BOTH
def test_frames_are_appended_and_replace(path: Path, spark: Any) -> None:
    frame = spark.createDataFrame([(number, f"x{number}") for number in range(50)], "k long, name string")
    written(frame.repartition(3), path)
    found = stored(path)
    assert found.slice(0, 100).equals(rows(100))
    assert sorted(found["k"].to_pylist()[100:]) == list(range(50))
    written(frame.select("name", "k"), path)  # by name, whatever the order
    assert stored(path).num_rows == 200
    written(frame, path, "overwrite")
    assert sorted(stored(path)["name"].to_pylist()) == sorted(f"x{number}" for number in range(50))
    written(frame, path, "append", "new")
    assert stored(path, "new").schema.names == ["k", "name"]
    assert beside(path) == []


def test_a_frame_that_does_not_fit_changes_nothing(path: Path, spark: Any) -> None:
    from nandarray.interop.spark.options import Options
    from nandarray.interop.spark.writing import TableWriter

    with nandarray.open(path, "r+") as store:
        tables.create(store, "text", b"1|\n", {"id": "int32"})
        store["array"] = [1, 2]
    for frame, name, told in (
        (spark.range(3), "t", "must have the columns k, name, not id"),
        (spark.createDataFrame([("a", "b")], "k string, name string"), "t", "'k' must fit int64"),
        (spark.range(3), "text", "must be a table of columns"),
        (spark.range(3), "array", "must be a table, or a name that is free"),
    ):
        with pytest.raises(Exception, match=told):
            written(frame, path, name=name)
    with pytest.raises(NotFoundError, match="or a name that is free"):  # before any task runs
        TableWriter(Options.of({"path": str(path), "table": "array"}), spark.range(3).schema, overwrite=True)
    assert stored(path).equals(rows(100))
    assert beside(path) == []


@BOTH
def test_a_task_that_fails_leaves_nothing(path: Path, spark: Any) -> None:
    wrong = spark.range(1000).selectExpr("id as k", "if(id = 999, raise_error('no more'), 'x') as name")
    for mode in ("append", "overwrite"):
        with pytest.raises(Exception, match="no more"):
            written(wrong.repartition(2), path, mode)
        assert stored(path).equals(rows(100))
    assert beside(path) == []


KILLED = """
import sys, sparks
sparks.session()
sleep = "java_method('java.lang.Thread', 'sleep', 600000L)"
frame = sparks.session().range(4000).selectExpr("id as k", f"if(id = 3999, {sleep}, 'x') as name")
frame.coalesce(1).write.format("nandarray").mode("append").option("table", "t").save(sys.argv[1])
"""


def test_what_a_killed_driver_staged_is_removed_by_a_later_writer(path: Path, spark: Any) -> None:
    command = [sys.executable, "-c", KILLED, str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True) as driver:
        deadline = time.monotonic() + 120
        while not beside(path) and driver.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        os.killpg(driver.pid, 9)
    (staged,) = beside(path)
    assert stored(path).equals(rows(100))
    frame = spark.createDataFrame([(1, "a")], "k long, name string")
    written(frame, path)
    assert beside(path) == [staged]  # which may be under way
    old = time.time() - 2 * 24 * 3600
    for one in [*staged.iterdir(), staged]:
        os.utime(one, (old, old))
    written(frame, path)
    assert beside(path) == []
    assert stored(path).num_rows == 102


def test_old_staged_files_are_those_of_a_job_of_the_same_store(tmp_path: Path, spark: Any) -> None:
    from nandarray.interop.spark.options import Options
    from nandarray.interop.spark.writing import Staged, TableWriter

    names = [f"s[1].nand.spark-{'0' * 32}", "s[1].nand.spark-notes", f"s1.nand.spark-{'0' * 32}"]
    for name in names:
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (0, 0))
    writer = TableWriter(
        Options.of({"path": f"{tmp_path}/s[1].nand", "table": "t"}), spark.range(1).schema, overwrite=False
    )
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(names[1:])
    with pytest.raises(InvalidError, match="staging must be a folder that driver and workers share: .* is not there"):
        writer.commit([Staged("elsewhere.arrows", 1)])
    with nandarray.open(tmp_path / "s[1].nand") as store:
        assert "t" not in store


def test_options_are_verified_before_anything_runs(path: Path) -> None:
    from nandarray.interop.spark.options import Options
    from nandarray.interop.spark.writing import TableWriter

    for options, told in (
        ({"columns": "k,k"}, "columns must be different names"),
        ({"partitions": "many"}, "partitions must be a number from 1 on"),
        ({"pushdown": "maybe"}, "pushdown must be one of auto, on, off"),
        ({"colums": "k"}, "options must be of path, table, columns, partitions, pushdown, staging, not colums"),
        ({"table": ""}, "the table must be given"),
        ({"path": ""}, "the path must be given"),
    ):
        with pytest.raises(InvalidError, match=told):
            Options.of({"path": "s.nand", "table": "t", **options})
    for name, columns, told in (("t", "k,nothing", "columns must be of k, name, not nothing"), ("u", "k", "named 'u'")):
        with pytest.raises(Exception, match=told):
            sparks.frame(path, name, columns=columns)
    with pytest.raises(InvalidError, match="staging must be given"):
        TableWriter(
            Options.of({"path": "shm://nothing", "table": "t"}), sparks.session().range(2).schema, overwrite=False
        )
