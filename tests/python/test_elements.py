"""Arrays of one shape as a table: elements that pass a test, behind each door, of each kind of array, and in SQL."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")

import doors  # noqa: E402

import nandarray  # noqa: E402
from nandarray.errors import InvalidError, NotFoundError  # noqa: E402
from nandarray.interop.tables import Test, col, element_table, elements  # noqa: E402

#: Six building blocks.
SHAPE = (70, 40, 140)
RNG = np.random.default_rng(5)
HEAT = RNG.normal(20, 10, SHAPE).astype("f4")
PRESSURE = RNG.integers(800, 1000, SHAPE).astype("i2")
TEST = (col("heat") > 30) & (col("pressure") < 900)
PASS = (HEAT > 30) & (PRESSURE < 900)


def same(found: Any, mask: np.ndarray[Any, Any], **arrays: np.ndarray[Any, Any]) -> None:
    """Elements where a mask is true, whatever their order: coordinates and values."""
    axes = [name for name in found.column_names if name not in arrays]
    found = found.sort_by([(name, "ascending") for name in axes])
    places = np.argwhere(mask)
    assert np.array_equal(np.stack([found[name].to_numpy() for name in axes], 1), places)
    for name, values in arrays.items():
        assert np.array_equal(found[name].to_numpy(), values[mask], equal_nan=values.dtype.kind == "f")


@pytest.mark.parametrize("door", doors.COMPUTING)
def test_elements_that_pass_behind_each_door(door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(element_table, "BOX_BYTES", 4096)
    with doors.opened(door, tmp_path / "a.nand") as store:
        for name, values in (("heat", HEAT), ("pressure", PRESSURE)):
            store.create(f"survey/{name}", data=values)
        table = elements(store, "survey/*")
        assert len(table._boxes) > 1
        same(table.scan(where=TEST).read_all(), PASS, heat=HEAT, pressure=PRESSURE)
        same(table.scan(["axis0", "axis1", "axis2", "heat"]).read_all(), np.ones(SHAPE, bool), heat=HEAT)
        rare = HEAT > 50
        same(table.scan(where=col("heat") > 50, form="interpreted").read_all(), rare, heat=HEAT, pressure=PRESSURE)
        assert table.count_rows(TEST) == np.count_nonzero(PASS)
        assert table.scan(["heat"], col("heat") > 1e9).read_all().num_rows == 0


def test_elements_of_each_kind_of_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(element_table, "BOX_BYTES", 4096)
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        records = np.zeros(SHAPE, [("heat", "<f4"), ("other", "i8")])
        records["heat"] = HEAT
        big = store.create("big", data=PRESSURE.astype(">i2"))
        flat, packed = store.create("flat", data=HEAT.reshape(-1)), store.create("packed", data=PRESSURE.astype("i4"))
        store["records"] = records
        parts = [store.create(f"part{n}", data=HEAT[25 * n : 25 * n + 25]) for n in range(3)]
        for heat in (flat.view(SHAPE), nandarray.concat(parts), store["records"]["heat"]):
            for pressure in (packed, big, packed.view(SHAPE)):
                table = elements({"heat": heat, "pressure": pressure})
                found = table.scan(where=TEST).read_all()
                same(found, PASS, heat=HEAT, pressure=PRESSURE)
                assert table.dataset().to_table(filter=pc.field("heat") > 40).num_rows == np.count_nonzero(HEAT > 40)
        store["alone"] = np.float64(3)
        assert elements({"x": store["alone"]}).scan(where=col("x") > 1).read_all().to_pylist() == [{"x": 3.0}]
        store["none"] = np.zeros((0, 4))
        assert elements({"x": store["none"]}).scan().read_all().num_rows == 0


def test_coordinates_are_columns_whose_boxes_are_excluded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(element_table, "BOX_BYTES", 4096)
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        heat = store.create("heat", data=HEAT)
        heat.attrs["_ARRAY_DIMENSIONS"] = ["time", "y", "x"]
        table = elements(store, "heat")
        assert table.schema.names == ["time", "y", "x", "heat"]
        test = (col("time") >= 64) & (col("x") < 60) & (col("heat") > col("y"))
        kept = sum(piece.end - piece.begin for piece in table.pieces(test))
        assert 0 < kept < len(table._boxes) / 2
        mask = np.arange(40)[:, None] < HEAT
        mask[:64], mask[:, :, 60:] = False, False
        same(table.scan(where=test).read_all(), mask, heat=HEAT)
        again = pickle.loads(pickle.dumps(table.dataset()))
        assert again.to_table(filter=pc.field("heat") > 45).num_rows == np.count_nonzero(HEAT > 45)
        pieces = table.pieces(at_least=4)
        assert len(pieces) >= 4
        parts = [table.scan(where=test, pieces=[one]).read_all() for one in pieces]
        assert pa.concat_tables(parts).equals(table.scan(where=test).read_all())
        assert max(batch.num_rows for batch in table.scan(batch_rows=100)) <= 100


@pytest.mark.parametrize(
    ("given", "where", "error", "words"),
    [
        ({}, None, InvalidError, "at least one array"),
        ({"a": "heat", "b": "other"}, None, InvalidError, r"one shape: a has \(70, 40, 140\), b has \(3,\)"),
        ({"a": "complex"}, None, InvalidError, "array a has elements of complex128"),
        ({"axis0": "heat"}, None, InvalidError, "different names"),
        ({1: "heat"}, None, InvalidError, "must be texts"),
        ("*/same", None, InvalidError, "g/same and h/same would both be same"),
        ("nothing/*", None, NotFoundError, r"no array is called nothing/\*"),
        ({"a": "heat"}, col("b") > 1, NotFoundError, "no column 'b'; there is axis0, axis1, axis2, a"),
        ({"a": "heat"}, col("a") > "x", InvalidError, "'x' is not that"),
    ],
)
def test_elements_refuse(given: Any, where: Test | None, error: Any, words: str, tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        store["heat"], store["other"], store["complex"] = HEAT, np.arange(3), np.zeros(SHAPE, complex)
        arrays = store if isinstance(given, str) else {name: store[one] for name, one in given.items()}
        store["g/same"], store["h/same"] = np.arange(3), np.arange(3)
        with pytest.raises(error, match=words):
            elements(arrays, given if isinstance(given, str) else None).scan(where=where)


def test_elements_refuse_what_is_none_of_a_store(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        store["x"] = np.arange(3)
        one, table = {"x": store["x"]}, elements(store, "x")
        refused = [
            (lambda: elements({"x": np.arange(3)}), "x must be an array of a store, not a ndarray"),
            (lambda: elements([store["x"]]), "not of a list"),
            (lambda: elements(one, "x"), "not of a dict with pattern 'x'"),
            (lambda: elements(store, 3), "pattern must be a text, not 3"),
            (lambda: elements(one, dimensions="ab"), "list of names, not 'ab'"),
            (lambda: elements(one, dimensions=[1]), "must be texts"),
            (lambda: table.scan("x"), "list of names, not 'x'"),
            (lambda: table.scan(batch_rows="1"), "number of rows from 1 on, not '1'"),
            (lambda: col(3), "text as its name, not 3"),
            (lambda: col("x") == ("col", "axis0"), r"not \('col', 'axis0'\)"),
            (lambda: (col("x") + 1).isin([(1, 2)]), r"not \(1, 2\)"),
            (lambda: col("x").isin(3), "list of values, not 3"),
            (lambda: col("x") + (1, 2), r"not \(1, 2\)"),
        ]
        for call, words in refused:
            with pytest.raises(InvalidError, match=words):
                call()


def test_masks_are_columns(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        store["deep/depth"] = np.ma.masked_less(np.array([3.0, -1.0, 4.0]), 0)
        found = elements(store, "deep/*").scan(["depth"], ~col("depth.mask")).read_all()
        assert found["depth"].to_pylist() == store["deep/depth"].masked().compressed().tolist()


def test_sql_sees_what_was_committed_and_keeps_few_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    from nandarray.interop import sql

    monkeypatch.setattr(sql, "OPENED_MAX", 2)
    opened: list[Any] = []
    monkeypatch.setattr(sql, "open_store", lambda *how: opened.append(nandarray.open(*how)) or opened[-1])
    paths = [str(tmp_path / f"{n}.nand") for n in range(4)]
    for path in paths:
        with nandarray.open(path, "w") as store:
            store["a"], store["b"] = np.arange(3), np.arange(3)
    con = duckdb.connect()

    def kept() -> list[str]:
        found = con.execute("select view_name from duckdb_views() where view_name like 'nandarray %' order by 1")
        return [name for (name,) in found.fetchall()]

    def total(path: str) -> int:
        return sql.execute(con, f"select sum(a) from nandarray_scan('{path}', 'a')").fetchone()[0]

    mine = nandarray.open(paths[3])
    sql.register(con, mine, "a")
    assert [total(path) for path in paths] == [3, 3, 3, 3]
    assert kept() == [f"nandarray {path} a" for path in paths[1:]]
    with nandarray.open(paths[2], "r+") as store:
        store["a"][0] = 10
    assert total(paths[2]) == 13
    opened.clear()
    one, other = (f"nandarray_scan('{paths[0]}', '{name}')" for name in "ab")
    assert sql.execute(con, f"select count(*) from {one} join {other} using (axis0)").fetchone() == (3,)
    assert len(opened) == 1
    with pytest.raises(NotFoundError):
        sql.execute(con, f"select * from nandarray_scan('{paths[1]}', 'none')")
    assert opened[-1].closed
    with pytest.raises(InvalidError, match="a store or a group must be registered, not 'x'"):
        sql.register(con, "x", "a")
    con.close()
    mine.close()


def test_sql_over_arrays_and_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    from nandarray.interop import sql, tables

    monkeypatch.chdir(tmp_path)
    with nandarray.open("sky.nand", "w") as store:
        store["survey/heat"], store["survey/pressure"] = HEAT, PRESSURE
        tables.create(store, "lines", b"1|a|\n2|b|\n", {"id": "int32", "name": "text(4)"})
    con = duckdb.connect()
    query = """select count(*), max(heat) from nandarray_scan('sky.nand', 'survey/*')
        where heat > $1 and pressure < 900 and axis0 < 30 and 'nandarray_scan(''no'', ''no'')' <> ''"""
    for _ in range(2):
        count, most = sql.execute(con, query, [30]).fetchone()
    assert (count, np.float32(most)) == (np.count_nonzero(PASS[:30]), HEAT[:30][PASS[:30]].max())
    assert sql.execute(con, "select name from NANDARRAY_SCAN('sky.nand', 'lines') where id = 2").fetchall() == [("b",)]
    with pytest.raises(InvalidError, match="a query must be a text, not 5"):
        sql.execute(con, 5)
    with pytest.raises(NotFoundError, match="no array or table is called no"):
        sql.execute(con, "select * from nandarray_scan('sky.nand', 'no')")
    con.close()
    con = duckdb.connect()
    with nandarray.open("sky.nand", "r+") as store:
        dataset = sql.register(con, store, "survey/*", path="sky")
        joined = con.execute(
            "select count(*) from nandarray_scan('sky', 'survey/*') a join nandarray_scan('sky', 'survey/*') b "
            "using (axis0, axis1, axis2) where a.heat > 40 and b.pressure < 810"
        ).fetchone()
        assert joined == (np.count_nonzero((HEAT > 40) & (PRESSURE < 810)),)
        assert all(whole for _, _, whole in dataset.pushed)
        assert {str(test) for _, test, _ in dataset.pushed if test is not None}
        con.close()
