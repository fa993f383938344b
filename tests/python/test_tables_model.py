"""Text tables against Python, DuckDB and pyarrow: random schemas, rows, tests, spans and queries by a seed."""

from __future__ import annotations

import datetime
import io
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import doors
import duckdb
import pyarrow as pa
import pyarrow.csv
import pytest

from nandarray.errors import InvalidError, MalformedLineError, NandarrayError, NotFoundError
from nandarray.interop import tables
from nandarray.interop.tables import Column, Test, col

SEEDS = range(8)
Row = dict[str, Any]
Keep = Callable[[Row], bool]
EPOCH = datetime.date(1970, 1, 1)
#: Two bytes, three and four in UTF-8, and what other formats would quote.
LETTERS = "ab ,;\"'\\éß漢\U0001f600%_\t"


def schema(rng: random.Random) -> dict[str, str]:
    kinds = []
    for _ in range(rng.randint(1, 6)):
        precision = rng.randint(1, 18)
        kinds.append(
            rng.choice(
                [
                    "int32",
                    "int64",
                    "date",
                    f"decimal({precision},{rng.randrange(precision)})",
                    f"text({rng.randint(1, 20)})",
                ]
            )
        )
    return {f"c{n}": kind for n, kind in enumerate(kinds)}


def value(rng: random.Random, kind: str) -> Any:
    """A value of a type; its ends now and then."""
    if kind in ("int32", "int64"):
        most = 10 ** (9 if kind == "int32" else 18) - 1
        return rng.choice([rng.randint(-most, most), rng.randint(-5, 5), most, -most, 0])
    if kind == "date":
        return rng.choice([EPOCH + datetime.timedelta(rng.randint(-20000, 40000)), datetime.date(1, 1, 1), EPOCH])
    if kind.startswith("decimal"):
        precision, scale = map(int, kind[8:-1].split(","))
        most = 10**precision - 1
        return Decimal(rng.choice([rng.randint(-most, most), most, -most, 0, 1])).scaleb(-scale)
    text, room = "", int(kind[5:-1])
    for letter in rng.choices(LETTERS, k=rng.randint(0, room)):
        text += letter if len((text + letter).encode()) <= room else ""
    return text


def written(rows: list[Row], delimiter: str, rng: random.Random) -> bytes:
    """Rows as text; a delimiter behind the last field, or not, and either end of a line, as files have them."""
    more, end = rng.choice([("", "\n"), (delimiter, "\n"), (delimiter + "more" + delimiter, "\r\n")])
    return "".join(delimiter.join(as_text(one) for one in row.values()) + more + end for row in rows).encode()


def as_text(one: Any) -> str:
    return (
        format(one, "f")
        if isinstance(one, Decimal)
        else one.isoformat()
        if isinstance(one, datetime.date)
        else str(one)
    )


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}  # fmt: skip


def drawn(rng: random.Random, kinds: dict[str, str], depth: int = 0) -> tuple[Test, Keep]:
    """A test of rows and what it means."""
    if depth < 3 and rng.random() < 0.5:
        one, keep = drawn(rng, kinds, depth + 1)
        if rng.random() < 0.3:
            return ~one, lambda row: not keep(row)
        other, also = drawn(rng, kinds, depth + 1)
        if rng.random() < 0.5:
            return one & other, lambda row: keep(row) and also(row)
        return one | other, lambda row: keep(row) or also(row)
    name = rng.choice(list(kinds))
    kind = kinds[name]
    if kind.startswith("text"):
        part = value(rng, "text(3)")
        how = rng.choice(["==", "!=", "begins", "ends", "holds", "in"])
        if how == "in":
            some = [value(rng, "text(2)") for _ in range(rng.randint(0, 3))]
            return col(name).isin(some), lambda row: row[name] in some
        return {
            "==": (col(name) == part, lambda row: row[name] == part),
            "!=": (col(name) != part, lambda row: row[name] != part),
            "begins": (col(name).startswith(part), lambda row: row[name].startswith(part)),
            "ends": (col(name).endswith(part), lambda row: row[name].endswith(part)),
            "holds": (col(name).contains(part), lambda row: part in row[name]),
        }[how]
    bound = value(rng, kind)
    if kind != "date" and rng.random() < 0.3:  # beyond the type, and between two of its values
        bound = rng.choice([Decimal(bound) + Decimal("0.3"), 10**30, -(10**30), Decimal("1e-9"), 2.5])
    if rng.random() < 0.15:
        high = value(rng, kind)
        return col(name).between(bound, high), lambda row: bound <= row[name] <= high
    op = rng.choice(list(COMPARISONS))
    return Test((op, name, bound)), lambda row: COMPARISONS[op](row[name], bound)


@pytest.fixture(params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with doors.computing(request, tmp_path / "t.nand") as made:
        yield made


@pytest.mark.parametrize("seed", SEEDS)
def test_scans_keep_what_python_keeps(seed: int, store: Any) -> None:
    rng = random.Random(seed)
    kinds = schema(rng)
    rows = [{name: value(rng, kind) for name, kind in kinds.items()} for _ in range(rng.choice([0, 1, 7, 120]))]
    delimiter = rng.choice("|~\x01")
    text = written(rows, delimiter, rng)
    longest = max(map(len, text.splitlines(keepends=True)), default=1)
    table = tables.create(store, "t", text, kinds, delimiter=delimiter, line_bytes=longest + rng.choice([1, 50]))
    assert table.scan().read_all().to_pylist() == rows, seed
    for _ in range(3):
        test, keep = drawn(rng, kinds)
        columns = rng.sample(list(kinds), rng.randint(1, len(kinds)))
        span = rng.choice([1, longest, len(text) + 1, rng.randint(1, len(text) + 1)])
        found = table.scan(columns, test, batch_bytes=span).read_all()
        assert found.column_names == columns
        wanted = [{name: row[name] for name in columns} for row in rows if keep(row)]
        assert found.to_pylist() == wanted, (seed, test)
        counted = table.rows(columns[:1], test)
        assert len(counted) == len(wanted)


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_queries_of_duckdb_say_what_duckdb_says_of_its_own_table(seed: int, store: Any) -> None:
    rng = random.Random(seed)
    kinds = {"n": "int32", "big": "int64", "price": "decimal(9,2)", "day": "date", "name": "text(12)"}
    rows = [{name: value(rng, kind) for name, kind in kinds.items()} for _ in range(80)]
    ours = tables.create(store, "t", written(rows, "|", rng), kinds).dataset()
    theirs = pa.Table.from_pylist(
        rows, schema=pa.schema([(one, Column(one, kind).arrow) for one, kind in kinds.items()])
    )
    base = duckdb.connect()
    assert ours is not None
    assert theirs.num_rows == 80
    day = value(rng, "date")
    queries = [
        "select * from {} where n between -4 and 4 order by all",
        f"select name, count(*), sum(price) from {{}} where day >= date '{day.isoformat()}' group by name order by all",
        "select max(big), min(price), count(*) from {} where not (n > 0 or price < 0.5)",
        "select n from {} where name in ('a', 'b', '', 'é') or n is null order by all",
        "select day from {} where day is not null and name != 'a' and price in (0, 0.01) order by all",
        "select big from {} where n + 1 > 0 and name like 'a%' order by all",
        "select a.n from {0} a join {0} b on a.n = b.n where b.price >= 0 order by all",
    ]
    for query in queries:
        assert base.execute(query.format("ours")).fetchall() == base.execute(query.format("theirs")).fetchall(), query


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_pyarrow_reads_the_same_file(seed: int, store: Any) -> None:
    rng = random.Random(seed)
    kinds = {"n": "int32", "big": "int64", "day": "date", "name": "text(9)"}
    letters = "abc dé"
    rows = [
        {**{k: value(rng, kinds[k]) for k in ("n", "big", "day")}, "name": rng.choice(letters) * 3} for _ in range(60)
    ]
    text = written(rows, "|", random.Random(2)).replace(b"\r\n", b"\n")
    names = [*kinds, *("x" for _ in range(text.splitlines()[0].count(b"|") - 3))]
    read = pyarrow.csv.ReadOptions(column_names=[f"{n}{name}" for n, name in enumerate(names)])
    types = {f"{n}{name}": Column(name, kind).arrow for n, (name, kind) in enumerate(kinds.items())}
    found = pyarrow.csv.read_csv(
        io.BytesIO(text), read, pyarrow.csv.ParseOptions(delimiter="|", quote_char=False),
        pyarrow.csv.ConvertOptions(column_types=types, include_columns=list(types)),
    ).rename_columns(list(kinds))  # fmt: skip
    assert tables.create(store, "t", text, kinds).scan().read_all().to_pylist() == found.to_pylist()


@pytest.mark.parametrize("seed", SEEDS)
def test_spoilt_text_is_refused_by_its_line_or_read_as_python_reads_it(seed: int, store: Any) -> None:
    rng = random.Random(seed)
    kinds = {"n": "int32", "price": "decimal(6,2)", "day": "date", "name": "text(6)"}
    rows = [{name: value(rng, kind) for name, kind in kinds.items()} for _ in range(12)]
    good = written(rows, "|", random.Random(4)).replace(b"\r\n", b"\n")
    for number in range(12):
        text = bytearray(good)
        for _ in range(rng.randint(1, 2)):
            text[rng.randrange(len(text))] = rng.choice([*b"|0-9.\n x\0", 0xFF, 0xC3, rng.randrange(256)])
        if number % 4 == 3:
            text = text[: rng.randrange(len(text))]
        name = f"t{number}"
        try:
            table = tables.create(store, name, bytes(text), kinds)
        except MalformedLineError as error:
            line, said = error.line, str(error)
        else:
            line, said = None, ""
        if said:
            lines = bytes(text).split(b"\n")
            assert line is not None
            assert 1 <= line <= len(lines), seed
            assert name not in store
            shown = lines[line - 1].decode(errors="replace")
            assert "cut off" in said or repr(shown[:20])[1:-1][:15] in said or len(shown) > 60, (seed, said)
            continue
        found = table.scan().read_all().to_pylist()
        for each, row in zip(bytes(text).split(b"\n")[:-1], found, strict=True):
            fields = each.decode().removesuffix("\r").split("|")
            assert row == {
                "n": int(fields[0]), "price": Decimal(fields[1]), "day": datetime.date.fromisoformat(fields[2]),
                "name": fields[3],
            }, (seed, each)  # fmt: skip


def damaged_at_random(rng: random.Random, table: Any, wrong: list[Any], times: int) -> None:
    """Damage a table's description: what is left is a table, or refused by an error of ours."""
    described = dict(table.text.attrs["nandarray.table"])
    for _ in range(times):
        damaged: dict[str, Any] = dict(described)
        for key in rng.sample(list(damaged), rng.randint(1, 2)):
            if rng.random() < 0.2:
                del damaged[key]
            else:
                damaged[key] = rng.choice(wrong)
        table.text.attrs["nandarray.table"] = damaged
        try:
            tables.open_table(table.store, "t").scan().read_all()
        except NandarrayError:
            continue
        except Exception as error:
            raise AssertionError(f"{damaged}") from error


@pytest.mark.parametrize("seed", SEEDS)
def test_any_description_is_a_table_or_refused(seed: int, store: Any) -> None:
    rng = random.Random(seed)
    table = tables.create(store, "t", b"1|a\n", {"n": "int32", "name": "text(4)"})
    wrong = [
        None, 1, "x", [], {}, [[]], [["n", "int32"], 5], [["n"]], [["n", "text(0)"]], [[1, "int32"]], -1, 2**70, "||",
        "\n", "é", "", 0, True, 1.5, [["n", "int32"], ["n", "int32"]],
    ]  # fmt: skip
    damaged_at_random(rng, table, wrong, 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": ""}, "one ASCII character"), ({"delimiter": "é"}, "one ASCII character"),
        ({"delimiter": "||"}, "one ASCII character"), ({"delimiter": "\n"}, ""), ({"delimiter": "\r"}, ""),
        ({"delimiter": "5"}, ""), ({"delimiter": "-"}, ""), ({"delimiter": "."}, ""), ({"line_bytes": 0}, ""),
        ({"line_bytes": -1}, ""), ({"line_bytes": 2**40}, ""), ({"delimiter": None}, "one ASCII character"),
        ({"line_bytes": 2.5}, ""), ({"line_bytes": None}, ""),
    ],
)  # fmt: skip
def test_options_of_a_table_are_checked(options: dict[str, Any], message: str, store: Any) -> None:
    try:
        tables.create(store, "t", b"1|a\n", {"n": "int32", "name": "text(4)"}, **options)
    except NandarrayError as error:
        found = str(error)
    else:
        assert not message
        return
    assert message in found
    assert "t" not in store


def test_columns_and_tests_that_are_none(store: Any) -> None:
    table = tables.create(store, "t", b"1|a\n", {"n": "int32", "name": "text(4)"})
    for wrong in ([], ["x"], ["n", "x"], [""], [1]):
        with pytest.raises((NotFoundError, InvalidError)):
            table.scan(wrong)  # type: ignore[arg-type]
    nothing: Any = None
    for test in (col("x") > 1, col("n") > "a", col("n") == nothing, col("n") == [1], col("name") > 5, col("name") == 5):
        with pytest.raises((NotFoundError, InvalidError)):
            table.scan(["n"], test)
    for test in (True, "n > 1", lambda row: True, ("==", "n", 1)):
        with pytest.raises(TypeError, match="where is a test of rows"):
            table.scan(["n"], test)  # type: ignore[arg-type]
