"""Tables in a real local Spark: types, columns, partitions, versions; frames written whole or not at all.

Predicates and TPC-H in Spark are in ``test_engines_predicates.py`` and ``test_tpch_engines.py``.
"""

from __future__ import annotations

import datetime
import decimal
import os
import pickle
import random
import subprocess
import sys
import time
import types
import warnings
from pathlib import Path
from typing import Any

import pytest
import sparks

pa = pytest.importorskip("pyarrow")

import nandarray  # noqa: E402
from nandarray import parts  # noqa: E402
from nandarray.errors import InvalidError, NotFoundError, PartError  # noqa: E402
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


def left(path: Path) -> Any:
    """The remains of writers: files beside a store; in one of parts jobs, and parts that no version names."""
    if path.is_dir():
        with nandarray.open(path, "r+") as store:
            assert store.check()["ok"]
            return store.gc(older_than=0)["parts"] or list((path / "jobs").iterdir()) or beside(path)
    return beside(path)


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
    assert not left(path)


def test_a_frame_that_does_not_fit_changes_nothing(path: Path, spark: Any) -> None:
    from nandarray.interop.spark.options import Options
    from nandarray.interop.spark.source import writer_of

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
        writer_of(Options.of({"path": str(path), "table": "array"}), spark.range(3).schema, overwrite=True)
    assert stored(path).equals(rows(100))
    assert beside(path) == []


@BOTH
def test_a_task_that_fails_leaves_nothing(path: Path, spark: Any) -> None:
    wrong = spark.range(1000).selectExpr("id as k", "if(id = 999, raise_error('no more'), 'x') as name")
    for mode in ("append", "overwrite"):
        with pytest.raises(Exception, match="no more"):
            written(wrong.repartition(2), path, mode)
        assert stored(path).equals(rows(100))
    assert not left(path)


@BOTH
def test_a_task_that_is_killed_runs_again_and_counts_once(path: Path, spark: Any) -> None:
    def dying(batches: Any) -> Any:
        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().attemptNumber() == 0:
            os.kill(os.getpid(), 9)

    frame = spark.range(1000).selectExpr("id as k", "concat('x', id) as name").repartition(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PySpark's, about versions of pandas
        written(frame.mapInArrow(dying, frame.schema), path)
    assert sorted(stored(path)["k"].to_pylist()[100:]) == list(range(1000))
    assert not left(path)


# --- Writers without a session: what Spark calls in processes of their own ------------------------------------------


def sent(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))


def writer_for(path: Path, frame: Any, *, overwrite: bool = False, **options: str) -> Any:
    from nandarray.interop.spark.options import Options
    from nandarray.interop.spark.source import writer_of
    from nandarray.interop.spark.types import spark_schema

    told = Options.of({"path": str(path), "table": "t", **options})
    return sent(writer_of(told, spark_schema(frame.schema), overwrite=overwrite))


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run an attempt of a partition's task, and return its report."""
    from nandarray.interop.spark import writing_parts

    def run(writer: Any, partition: int, batches: Any) -> Any:
        class Context:
            partitionId = staticmethod(lambda: partition)

        monkeypatch.setattr(writing_parts, "TaskContext", types.SimpleNamespace(get=Context))
        return sent(sent(writer).write(iter(batches)))

    return run


def broken(frame: Any) -> Any:
    yield from frame.to_batches(max_chunksize=3)
    raise RuntimeError("no more")


@BOTH
def test_attempts_that_failed_or_were_one_too_many_do_not_count(path: Path, task: Any) -> None:
    frames = [rows(20, 1000 * number) for number in range(3)]
    writer = writer_for(path, frames[0])
    with pytest.raises(RuntimeError, match="no more"):
        task(writer, 1, broken(frames[1]))
    reports = [task(writer, number, frame.to_batches()) for number, frame in reversed(list(enumerate(frames)))][::-1]
    task(writer, 2, frames[2].to_batches())  # speculative: its report is not taken
    assert stored(path).equals(rows(100))
    with nandarray.open(path, "r+") as store:  # others go on meanwhile
        store["other"] = [1]
        tables.open_table(store, "t").append(rows(5, 100))
    writer.commit([*reports, None])
    assert stored(path).equals(pa.concat_tables([rows(100), rows(5, 100), *frames]))
    assert not left(path)


@pytest.mark.parametrize("path", ["parts"], indirect=True)
def test_a_task_killed_while_it_writes_leaves_an_open_part_for_the_end_of_the_job(
    path: Path, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nandarray.interop.spark import writing_parts

    monkeypatch.setattr(writing_parts, "_SHARD", 1 << 18)
    for ending in ("commit", "abort"):
        writer = writer_for(path, rows(1))
        child = os.fork()
        if not child:

            def batches() -> Any:
                yield from rows(60_000).to_batches(max_chunksize=5000)
                os.kill(os.getpid(), 9)

            writer.write(batches())
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == 9
        assert [one.suffix for one in (path / "parts").glob(f"{writer._fork.job}*")] == [".open"]
        report = task(writer, 0, rows(40_000, 100).to_batches(max_chunksize=5000))
        assert len(report.receipts) > 2
        late = writer._fork.writer()  # a worker that does not know of the end
        late.write(writer._array, slice(0, 4), [9, 9, 9, 9])
        if ending == "commit":
            writer.commit([report])
        else:
            writer.abort([None])
        with pytest.raises(PartError, match="its job was ended"):
            late.close()
        assert stored(path).equals(pa.concat_tables([rows(100), rows(40_000, 100)]))
        assert not left(path)
    with pytest.raises(NotFoundError, match="was committed, or given up"):
        task(writer, 0, rows(1).to_batches())
    writer.abort([])  # twice is fine


def test_frames_of_parts_are_those_of_a_model(task: Any, tmp_path: Path) -> None:
    kinds = {"k": pa.int64(), "few": pa.string(), "text": pa.string(), "some": pa.list_(pa.int32()), "p": pa.float64()}
    schema = pa.schema(list(kinds.items()))
    rng = random.Random(36)

    def made(count: int, few: str) -> Any:
        def one() -> Any:
            return {
                "k": rng.randrange(-(2**62), 2**62), "few": rng.choice([*few, None]),
                "text": rng.choice([None, "", "é" * rng.randrange(9), str(rng.random())]),
                "some": rng.choice([None, [], [rng.randrange(99) for _ in range(rng.randrange(5))]]),
                "p": rng.choice([None, rng.random(), float("inf")]),
            }  # fmt: skip

        return pa.Table.from_pylist([one() for _ in range(count)], schema=schema)

    folder, model = tmp_path / "m.nand", schema.empty_table()
    with parts.create(folder) as store:
        tables.create(store, "t", model, zone_rows=32)
    for turn in range(8):
        overwrite = turn == 4
        # Texts of few values that each partition has others of: codes of their own are settled in one dictionary.
        frames = [made(rng.choice([0, 1, 90]), chr(97 + turn) + chr(65 + number)) for number in range(rng.randrange(5))]
        writer = writer_for(folder, model, overwrite=overwrite)
        order = rng.sample(range(len(frames)), len(frames))
        reports = {number: task(writer, number * 7, frames[number].to_batches(max_chunksize=40)) for number in order}
        if turn % 3 == 2:
            writer.abort(list(reports.values()))
        else:
            writer.commit([reports[number] for number in range(len(frames))])
            model = pa.concat_tables([*([] if overwrite else [model]), *frames, schema.empty_table()])
        assert stored(folder).equals(model)
    assert not left(folder)


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
    from nandarray.interop.spark.source import writer_of
    from nandarray.interop.spark.writing_files import Staged

    names = [f"s[1].nand.spark-{'0' * 32}", "s[1].nand.spark-notes", f"s1.nand.spark-{'0' * 32}"]
    for name in names:
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (0, 0))
    writer = writer_of(
        Options.of({"path": f"{tmp_path}/s[1].nand", "table": "t"}), spark.range(1).schema, overwrite=False
    )
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(names[1:])
    with pytest.raises(InvalidError, match="staging must be a folder that driver and workers share: .* is not there"):
        writer.commit([Staged("elsewhere.arrows", 1)])
    with nandarray.open(tmp_path / "s[1].nand") as store:
        assert "t" not in store


def test_options_are_verified_before_anything_runs(path: Path) -> None:
    from nandarray.interop.spark.options import Options
    from nandarray.interop.spark.source import writer_of

    for options, told in (
        ({"columns": "k,k"}, "columns must be different names"),
        ({"partitions": "many"}, "partitions must be a number from 1 on"),
        ({"pushdown": "maybe"}, "pushdown must be one of auto, on, off"),
        ({"colums": "k"}, "options must be of path, table, columns, partitions, pushdown, staging, not colums"),
        ({"table": ""}, "the table must be given"),
        ({"path": ""}, "the path must be given"),
        ({"path": "hdfs://node/s.nand"}, "'hdfs://node/s.nand' is a URL of a kind that is not known"),
    ):
        with pytest.raises(InvalidError, match=told):
            Options.of({"path": "s.nand", "table": "t", **options})
    for name, columns, told in (("t", "k,nothing", "columns must be of k, name, not nothing"), ("u", "k", "named 'u'")):
        with pytest.raises(Exception, match=told):
            sparks.frame(path, name, columns=columns)
    with parts.create(path.with_name("p.nand")), pytest.raises(InvalidError, match="staging must be left out"):
        writer_for(path.with_name("p.nand"), rows(1), staging=str(path.parent))
    with pytest.raises(InvalidError, match="staging must be given"):
        writer_of(
            Options.of({"path": "shm://nothing", "table": "t"}), sparks.session().range(2).schema, overwrite=False
        )
