"""Tables of columns under bad input, damage and crashes: clear errors; appends and deletions whole or not at all."""

from __future__ import annotations

import itertools
import random
import threading
from pathlib import Path
from typing import Any

import doors
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from column_rows import TYPES, rows, same
from processes import killed

import nandarray
from nandarray import parts
from nandarray.errors import BadIndexError, BusyError, CorruptError, ExistsError, InvalidError, NotFoundError
from nandarray.interop import tables
from nandarray.interop.tables import ColumnTable, Piece, col
from nandarray.interop.tables.columns import write


@pytest.fixture(params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with doors.opened(request.param, tmp_path / "t.nand") as made:
        yield made


def _broken(table: Any, error: Any) -> Any:
    def batches() -> Any:
        yield from table.to_batches(max_chunksize=1)
        raise error

    return pa.RecordBatchReader.from_batches(table.schema, batches())


def _not_utf8(values: list[bytes]) -> Any:
    made = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), made.buffers())


def test_what_cannot_be_created_leaves_nothing(store: Any, tmp_path: Path) -> None:
    good = pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", None]})
    tables.create(store, "t", good)
    names = sorted(store)
    (tmp_path / "bad.csv").write_text("id,name\n1,a\n2,b,c\n")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    (tmp_path / "a.txt").write_text("1")
    structs = pa.table({"id": [1], "s": [[{"x": 1}]]})
    for source, match in [
        (structs, "column 's' must be of numbers, .* not of list<.*struct"),
        (pa.table({"u": pa.array([[[1]]], pa.list_(pa.list_(pa.int8())))}), "column 'u' must be"),
        (pa.table({"u": pa.array([["a"]], pa.list_(pa.string()))}), "column 'u' must be"),
        (pa.table({"u": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8()))}), "column 'u' must be"),
        (pa.table({"u": pa.array([None], pa.null())}), "column 'u' must be"),
        (pa.table({"u": pa.array([[1, None]], pa.list_(pa.int8()))}), "column 'u' has 1 elements within lists"),
        (pa.table({"u": pa.array([[1, None]], pa.list_(pa.int8(), 2))}), "column 'u' has elements within lists"),
        (pa.table({"u": _not_utf8([b"a", b"\xff"])}), "column 'u' of the Table: .*UTF8"),
        (pa.table([pa.array([1]), pa.array([2])], names=["x", "x"]), "'x' is there twice"),
        (pa.table({}), "at least one column"),
        (tmp_path / "bad.csv", "bad.csv cannot be read: .*Expected 2 columns, got 3"),
        (tmp_path / "bad.parquet", "bad.parquet cannot be read"),
        (tmp_path / "a.txt", "must end in one of"),
        (3, "rows must be a table, batch or stream of Arrow"),
    ]:
        with pytest.raises(InvalidError, match=match):
            tables.create(store, "new", source)
    with pytest.raises(FileNotFoundError):
        tables.create(store, "new", tmp_path / "none.parquet")
    with pytest.raises(ExistsError):
        tables.create(store, "t", good)
    for options, match in [
        ({"zone_rows": 0}, "zone_rows must be"), ({"compression": {"none": "zstd"}}, "compression is given for column"),
        ({"compression": "gzip"}, "unknown compression"), ({"schema": 5}, "schema must be a schema"),
    ]:  # fmt: skip
        with pytest.raises(InvalidError, match=match):
            tables.create(store, "new", good, **options)
    with pytest.raises(NotFoundError, match="no column 'none'"):
        tables.create(store, "new", good, columns=["none"])
    assert sorted(store) == names


def test_what_cannot_be_appended_or_read_changes_nothing(store: Any) -> None:
    good = pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", None]})
    table = tables.create(store, "t", good, zone_rows=1)
    appended: list[tuple[Any, Any, str]] = [
        (pa.table({"id": [1]}), InvalidError, "they must be id, name"),
        (good.set_column(0, "id", pa.array([1, 2])), InvalidError, "column 'id' .* has type int64; it must be int32"),
        (good.set_column(1, "name", _not_utf8([b"\xff", b""])), InvalidError, "column 'name' of the Table: .*UTF8"),
        (_broken(good, pa.ArrowInvalid("torn")), InvalidError, "cannot be read: torn"),
        (_broken(good, OSError("gone")), OSError, "gone"),
        (_broken(good, KeyboardInterrupt("now")), KeyboardInterrupt, "now"),
    ]
    for source, error, match in appended:
        with pytest.raises(error, match=match):
            table.append(source)
        same(table.scan().read_all(), good)
        assert table.append(good.slice(0, 0)) == 2
    assert table.append(good) == 4
    assert table.append({"id": [None], "name": [None]}) == 5  # of no type, which fits all
    assert table.delete(col("id").is_null()) == 1
    same(table.scan().read_all(), pa.concat_tables([good, good]))
    for rows_, error in [([4], BadIndexError), ([-1], BadIndexError), ([0.5], BadIndexError), ([[0]], BadIndexError)]:
        with pytest.raises(error):
            table.take(rows_)
    for call in (
        lambda: table.scan(["none"]), lambda: table.scan(where=col("none") > 1), lambda: table.delete(col("none") > 1),
        lambda: table.zones("none"), lambda: table.aggregate({"n": "count"}, ["none"]),
    ):  # fmt: skip
        with pytest.raises(NotFoundError, match="no column 'none'; there is id, name"):
            call()


def test_names_and_pieces_that_are_no_list_of_such_are_refused(file: nandarray.Store) -> None:
    rows_of = tables.create(file, "t", {"id": [1, 2]})
    text = tables.create(file, "text", b"1|\n2|\n", {"id": "int32"})
    file.create("x", data=np.arange(3))
    elements = tables.elements(file, "x")
    for names in ("id", 5):
        calls: list[Any] = [rows_of.scan, text.scan, text.rows, elements.scan, lambda given: rows_of.take([0], given)]
        for call in (*calls, lambda given: tables.create(file, "new", rows_of, columns=given)):
            with pytest.raises(InvalidError, match="columns must be a list of names"):
                call(names)
        for scanned in (rows_of.dataset(), next(rows_of.dataset().get_fragments())):
            with pytest.raises(InvalidError, match="columns must be a list of names"):
                scanned.scanner(columns=names)
    with pytest.raises(InvalidError, match="a filter must be an expression of Arrow, not of type str"):
        list(rows_of.dataset().get_fragments(filter="id > 1"))
    with pytest.raises(InvalidError, match="names of aggregates must be str, not int: 1"):
        rows_of.aggregate({1: "count"})
    with pytest.raises(BadIndexError, match=f"row {2**64 - 1} is out of bounds for 2 rows"):
        rows_of.take(np.array([2**64 - 1], np.uint64))
    for by in (None, "id", 5):
        with pytest.raises(InvalidError, match="by must be a list of names"):
            rows_of.aggregate({"n": "count"}, by=by)
    for pieces in ([(0, 1)], Piece, 5, [Piece(0.5, 1)]):  # type: ignore[arg-type]
        for one in (rows_of, text, elements):
            with pytest.raises(InvalidError, match="pieces must be a list of those that pieces"):
                one.scan(pieces=pieces)
        with pytest.raises(InvalidError, match="pieces must be a list"):
            rows_of.aggregate({"n": ("sum", "id")}, pieces=pieces)
    for call in (
        rows_of.scan,
        text.scan,
        elements.scan,
        lambda **options: rows_of.aggregate({"n": "count"}, **options),
    ):
        for name in ("foo", "out", "batch_row"):  # which need not run anything
            with pytest.raises(TypeError, match=f"options must be of form, .*, not '{name}'"):
                call(**{name: 1})


def test_values_that_a_column_cannot_take_are_refused(store: Any) -> None:
    good = pa.table({"id": pa.array([1, 2], pa.int32())})
    required = pa.schema([pa.field("id", pa.int32(), nullable=False)])
    strict = tables.create(store, "strict", good, required)
    with pytest.raises(InvalidError, match="has 1 missing values; it must have none"):
        strict.append({"id": pa.array([None], pa.int32())})
    few = tables.create(store, "few", {"c": pa.array(["a"]).cast(pa.dictionary(pa.int8(), pa.string()))})
    with pytest.raises(InvalidError, match="column 'c' has 201 different values; dictionary.* must have 128 at most"):
        few.append({"c": pa.array([str(at) for at in range(200)]).dictionary_encode()})


def test_arrays_that_are_no_table_are_named(file: nandarray.Store) -> None:
    table = tables.create(file, "t", {"id": [1, 2, 3], "c": ["a", "a", "a"]}, zone_rows=2)
    file.create_group("g")
    for name in ("g", "t/id"):
        with pytest.raises(NotFoundError, match="is no table"):
            tables.open_table(file, name)
    told = dict(file["t"].attrs["_TABLE"])
    for wrong in (1, {"version": 1}, {**told, "columns": []}, {**told, "schema": "AA=="}, {**told, "zone_rows": 0}):
        file["t"].attrs["_TABLE"] = wrong
        with pytest.raises(CorruptError, match="describes no table"):
            tables.open_table(file, "t")
    file["t"].attrs["_TABLE"] = {**told, "version": 2}
    with pytest.raises(nandarray.UnsupportedVersionError, match="has version 2"):
        tables.open_table(file, "t")
    file["t"].attrs["_TABLE"] = told
    dates = {"d": pa.array([[1]] * 40, pa.list_(pa.date32())), "k": pa.array(range(40)).dictionary_encode()}
    model = pa.table({"x": pa.array([1] * 40, pa.int64()), "v": [None] * 20 + [1] * 20, **dates})
    other = tables.create(file, "u", model)
    other.delete(col("x") == 2)
    other.delete(col("v") == 1)
    for name, what in [
        ("x", "i4"),
        ("v.valid", "u1"),
        ("d/values", "u1"),
        ("k", "i8"),
        ("k.dictionary", "i4"),
        ("deleted", "u1"),
    ]:
        kept = file[f"u/{name}"][:]
        del file[f"u/{name}"]
        file.create(f"u/{name}", data=kept.astype(what))
        with pytest.raises(CorruptError, match=f"'u/{name}' must have rows of"):
            other.scan().read_all()
        del file[f"u/{name}"]
        file.create(f"u/{name}", data=kept)
    for name in ("x", "x.zones", "d/offsets", "k", "k.dictionary", "ends"):
        file.rename(f"u/{name}", f"kept/{name}")
        calls = [lambda: other.scan().read_all(), lambda: other.append(model), other.statistics]
        unread = {"x.zones": 0, "k.dictionary": 2, "d/offsets": 2}.get(name)  # the call that does not read it
        for number, call in enumerate(calls):
            if number != unread:
                with pytest.raises(CorruptError, match=r"has no array 'offsets'|must have an array 'u/"):
                    call()
        file.rename(f"kept/{name}", f"u/{name}")
    assert other.scan().read_all().num_rows == 20
    for code in (-1, 40):
        file["u/k"][3] = code
        for read in (other.take, lambda _: other.scan(["k"]).read_all()):
            with pytest.raises(CorruptError, match="codes of 'u/k' must be of its 40 values"):
                read([3])
    file["u/ends"][-1] = -1
    for change in (other.scan, lambda: other.append(model)):
        with pytest.raises(CorruptError, match="must have a number of rows, not -1"):
            change()
    file["u/ends"][-1] = 1 << 60
    with pytest.raises(CorruptError, match="its table has 1152921504606846976"):
        other.num_rows  # noqa: B018
    file["t/id"].resize((2,))
    with pytest.raises(CorruptError, match="'t/id' has 2 rows, its table has 3"):
        table.scan()
    file["t/id.zones"].resize((1,))
    with pytest.raises(CorruptError, match="at least 2 elements"):
        table.zones("id")


# --- Crashes ----------------------------------------------------------------------------------------------------------


def _stopped(monkeypatch: Any, at: int) -> None:
    """Let the command of that number, of all that change arrays, stop with an error before it changes anything."""
    count = itertools.count()

    def stopping(real: Any) -> Any:
        def call(*given: Any, **options: Any) -> Any:
            if next(count) >= at:
                raise MemoryError("stopped")
            return real(*given, **options)

        return call

    for kind, name in [
        (nandarray.Array, "append"), (nandarray.Array, "resize"), (nandarray.Array, "__setitem__"),
        (nandarray.Group, "_create"),
    ]:  # fmt: skip
        monkeypatch.setattr(kind, name, stopping(getattr(kind, name)))


def test_an_append_or_a_deletion_that_stops_anywhere_changes_nothing(file: nandarray.Store, monkeypatch: Any) -> None:
    random_ = random.Random(10)
    names = ["int8", "few", "text", "codes", "list", "pair"]
    model = pa.table({"id": range(20), **rows(random_, 20, names).to_pydict()})
    model = model.cast(pa.schema([pa.field("id", pa.int64()), *(pa.field(name, TYPES[name][0]) for name in names)]))
    table = tables.create(file, "t", model, zone_rows=8)
    steps = 0
    for what in ("append", "delete", "append"):
        for at in range(1000):
            more = rows(random_, 10, names).add_column(0, "id", pa.array(range(len(model), len(model) + 10)))
            with monkeypatch.context() as patch:
                _stopped(patch, at)
                try:
                    done = table.append(more) if what == "append" else table.delete(col("id").isin([3, 17]))
                except MemoryError:
                    done = None
            if done is not None:
                break
            steps += 1
            same(table.scan().read_all(), model)
            zones = table.zones("id").to_pylist()
            for zone in zones:
                ids = [one for one in model["id"].to_pylist() if zone["begin"] <= one < zone["begin"] + 8]
                assert zone["low"] <= min(ids) <= max(ids) <= zone["high"]
        model = pa.concat_tables([model, more]) if what == "append" else model.filter(~pc.field("id").isin([3, 17]))
        same(table.scan().read_all(), model)
    assert steps > 30
    assert file.check()["ok"]


def test_a_change_behind_one_that_has_stopped_ends_with_an_error(file: nandarray.Store, monkeypatch: Any) -> None:
    table = tables.create(file, "t", pa.table({"id": [1, 2]}))
    begun, goes_on = threading.Event(), threading.Event()

    def stopped() -> Any:
        begun.set()
        assert goes_on.wait(60)
        yield from pa.table({"id": [3]}).to_batches()

    slow = threading.Thread(target=table.append, args=(pa.RecordBatchReader.from_batches(table.schema, stopped()),))
    slow.start()
    try:
        assert begun.wait(60)
        monkeypatch.setattr(write, "_PATIENCE_S", 0.05)
        for change in (lambda: table.append({"id": [4]}), lambda: table.delete(col("id") == 1)):
            with pytest.raises(BusyError, match="'t' must have one append or deletion at a time.* within 0.05 s"):
                change()
        assert table.scan().read_all()["id"].to_pylist() == [1, 2]
    finally:
        goes_on.set()
        slow.join(60)
    assert not slow.is_alive()
    assert table.delete(col("id") == 1) == 1
    assert table.scan().read_all()["id"].to_pylist() == [2, 3]


def test_a_missing_row_is_found_whatever_a_stopped_append_left_in_its_zone(
    file: nandarray.Store, monkeypatch: Any
) -> None:
    table = tables.create(file, "t", {"x": pa.array([None], pa.int64())})
    append = nandarray.Array.append

    def stopped(array: Any, *rows: Any) -> Any:
        if array.name.endswith("ends"):
            raise MemoryError
        return append(array, *rows)

    monkeypatch.setattr(nandarray.Array, "append", stopped)
    with pytest.raises(MemoryError):
        table.append({"x": [5]})
    assert (table.count_rows(col("x").is_null()), table.count_rows(col("x") == 5)) == (1, 0)


WRITER = """
import sys
import nandarray, pyarrow as pa
from nandarray.interop import tables
from nandarray.interop.tables import col

def rows(step):
    ids = [step] * 50
    text = [None if at == step % 50 else f"{step} " * (step % 40) for at in range(50)]
    return pa.table({"id": ids, "text": text, "code": pa.array([f"v{step}"] * 50).dictionary_encode()})

store = nandarray.open(sys.argv[1], mode="a")
table = tables.open_table(store, "t") if "t" in store else tables.create(store, "t", rows(0), zone_rows=64)
step = table.scan(["id"]).read_all()["id"].to_pylist()[-1] + 1
print(step, flush=True)
while True:
    table.append(rows(step))
    if step % 3 == 0:
        table.delete(col("id") == step - 1)
    step += 1
    if step % 4 == 0:
        store.flush()
        print(step, flush=True)
"""


def test_a_killed_writer_leaves_whole_appends_and_deletions(tmp_path: Path) -> None:
    path = tmp_path / "k.nand"
    for seed in range(3):
        told = killed(WRITER, path, seed, 0.3)[1:]
        with nandarray.open(path) as store:
            assert store.check()["ok"]
            if "t" not in store:
                assert not told, seed
                continue
            table = tables.open_table(store, "t")
            assert isinstance(table, ColumnTable)
            found = table.scan().read_all().to_pylist()
            steps = [row["id"] for row in found]
            last = steps[-1]
            assert last + 1 >= max(told, default=0), f"seed {seed}: what was flushed is lost"
            there = [step for step in range(last + 1) if step % 3 != 2]
            there += [] if last in there else [last]
            if last % 3 == 0 and last - 1 in steps:  # the deletion did not come
                there = sorted({*there, last - 1})
            assert steps == [step for step in there for _ in range(50)], f"seed {seed}: an append or a deletion is torn"
            for at, row in enumerate(found):
                step = row["id"]
                assert row["code"] == f"v{step}"
                assert row["text"] == (None if at % 50 == step % 50 else f"{step} " * (step % 40))
            zones = table.zones("id").to_pylist()
            assert all(zone["low"] <= zone["begin"] // 50 and zone["high"] >= zone["begin"] // 50 for zone in zones)


def test_a_transaction_has_an_append_or_not(tmp_path: Path) -> None:
    model = pa.table({"id": [1, 2, 3], "name": ["a", None, "c"]})
    with parts.create(tmp_path / "p.nand") as store:
        with store.transaction() as tx:
            tables.create(tx, "t", model)
        table = tables.open_table(store, "t")
        assert isinstance(table, ColumnTable)
        tx = store.transaction()
        inside = tables.open_table(tx, "t")
        assert isinstance(inside, ColumnTable)
        assert (inside.append(model), inside.delete(col("id") == 1)) == (6, 2)
        tx.abort()
        same(table.scan().read_all(), model)
        with store.transaction() as tx:
            inside = tables.open_table(tx, "t")
            assert isinstance(inside, ColumnTable)
            inside.append(model)
            inside.delete(col("id") == 1)
        assert table.scan().read_all()["id"].to_pylist() == [2, 3, 2, 3]
        assert store.at(version=store.version - 1)["t/ends"][-1] == 3
        one, other = store.transaction(), store.transaction()
        for tx in (one, other):
            inside = tables.open_table(tx, "t")
            assert isinstance(inside, ColumnTable)
            inside.append(model)
        one.commit()
        with pytest.raises(nandarray.ConflictError):
            other.commit()
        store.refresh()
        assert pa.table(tables.open_table(store, "t"))["id"].to_pylist() == [2, 3, 2, 3, 1, 2, 3]
