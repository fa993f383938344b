"""Tests of rows as programs: random ones beside Arrow's filter and beside Python, in all forms, behind each door.

A column's arrays are made as a table of columns has them; tests are made from seeds, which a failure prints.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")

import doors  # noqa: E402

import nandarray  # noqa: E402
from nandarray.errors import InvalidError, NotFoundError  # noqa: E402
from nandarray.interop.tables import Test, col  # noqa: E402
from nandarray.interop.tables.choosing import Chooser, Operand  # noqa: E402
from nandarray.interop.tables.expressions import expression_of  # noqa: E402
from nandarray.interop.tables.filters import of_arrow  # noqa: E402
from nandarray.interop.tables.substrait import of_substrait  # noqa: E402
from nandarray.interop.tables.zones import Zones, excluded  # noqa: E402

ROWS = 3000
MIDNIGHT = datetime.datetime(1970, 1, 1)
COMPARED = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
WORDS = ["", "a", "ab", "abc", "b", "ba", "Zürich", "日本", "z"]
#: Columns of the table: name, type, and one value by chance.
COLUMNS: dict[str, tuple[Any, Any]] = {
    "i8": (pa.int8(), lambda r: r.randint(-128, 127)),
    "u16": (pa.uint16(), lambda r: r.choice([0, 3, 65535, r.randrange(1 << 16)])),
    "i32": (pa.int32(), lambda r: r.choice([r.randint(-5, 5), r.randint(-(2**31), 2**31 - 1)])),
    "i64": (pa.int64(), lambda r: r.choice([r.randint(-5, 5), -(2**63), 2**63 - 1, r.randint(-(2**63), 2**63 - 1)])),
    "u64": (pa.uint64(), lambda r: r.choice([r.randint(0, 5), 2**64 - 1, 2**63, r.randrange(2**64)])),
    "f16": (pa.float16(), lambda r: float(np.float16(r.choice([0.0, -0.0, 1.5, float("nan"), r.gauss(0, 3)])))),
    "f32": (pa.float32(), lambda r: r.choice([0.0, -0.0, 1.5, float("nan"), float("inf"), r.gauss(0, 3)])),
    "f64": (pa.float64(), lambda r: r.choice([0.0, 0.1, 1.5, float("nan"), -float("inf"), r.gauss(0, 3)])),
    "flag": (pa.bool_(), lambda r: r.random() < 0.5),
    "price": (pa.decimal128(15, 2), lambda r: Decimal(r.choice([150, r.randint(-(10**14), 10**14)])).scaleb(-2)),
    "rate": (pa.decimal128(4, 3), lambda r: Decimal(r.randint(-9999, 9999)).scaleb(-3)),
    "wide": (
        pa.decimal128(30, 4),
        lambda r: Decimal(f"{r.choice([0, 2 * 10**29, -(2**64), r.randint(-(10**29), 10**29)]) + r.randint(0, 2)}e-4"),
    ),
    "day": (pa.date32(), lambda r: datetime.date(1970, 1, 1) + datetime.timedelta(r.randint(-3, 3))),
    "ms": (pa.date64(), lambda r: datetime.date(1970, 1, 1) + datetime.timedelta(r.randint(-3, 3))),
    "at_s": (pa.timestamp("s"), lambda r: MIDNIGHT + datetime.timedelta(0, r.choice([0, r.randint(-200000, 200000)]))),
    "at_us": (pa.timestamp("us"), lambda r: MIDNIGHT + datetime.timedelta(r.randint(-2, 2), 0, r.randint(-1, 1))),
    "zoned": (
        pa.timestamp("ms", "Europe/Berlin"),
        lambda r: (MIDNIGHT + datetime.timedelta(hours=r.randint(-3, 3))).replace(tzinfo=datetime.UTC),
    ),
    "clock": (pa.time32("s"), lambda r: datetime.time(r.randint(0, 2), 0, r.randint(0, 1))),
    "span": (pa.duration("ms"), lambda r: datetime.timedelta(seconds=r.randint(-2, 2))),
    "name": (pa.dictionary(pa.int16(), pa.string()), lambda r: r.choice(WORDS)),
    "code": (pa.string(), lambda r: r.choice(WORDS)),
    "plain": (pa.string(), lambda r: r.choice(WORDS)),
}  # fmt: skip
#: Columns whose types Substrait does not have.
UNSPOKEN = ("u16", "u64", "f16", "span", "name", "ms")
NUMBERS = ("i8", "u16", "i32", "i64", "u64", "price", "rate", "wide")
FLOATS = ("f16", "f32", "f64")
TIMES = ("day", "ms", "at_s", "at_us")
TEXTS = ("name", "code", "plain")


def table_of(seed: int, rows: int = ROWS) -> Any:
    """A table with every column, a tenth of the values missing but in two of them."""
    random = Random(seed)
    columns = {}
    for name, (kind, one) in COLUMNS.items():
        values = [None if name not in ("i32", "code") and random.random() < 0.1 else one(random) for _ in range(rows)]
        if kind == pa.float16():  # which old versions of pyarrow take of NumPy alone
            values = [None if value is None else np.float16(value) for value in values]
        made = pa.array(values, kind.value_type if pa.types.is_dictionary(kind) else kind)
        columns[name] = made.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else made
    return pa.table(columns)


def stored(store: Any, table: Any) -> dict[str, Operand]:
    """The columns in arrays: whole numbers, codes, booleans of missing values."""
    found = {}
    for name in table.column_names:
        column, kind = table[name].combine_chunks(), table.schema.field(name).type
        valid, dictionary = column.is_valid().to_numpy(zero_copy_only=False), None
        if pa.types.is_string(kind) and name != "plain":
            column = column.dictionary_encode()
        if pa.types.is_dictionary(column.type):
            dictionary, column = column.dictionary, column.indices
        values = None
        if pa.types.is_decimal(kind):
            step, dtype = (1, "V16") if kind.precision > 18 else (2, "<i8")
            values = np.frombuffer(column.buffers()[1], dtype)[: step * len(column) : step].copy()
            values[~valid] = np.zeros(1, dtype)
        elif pa.types.is_boolean(kind):
            values = column.fill_null(False).to_numpy(zero_copy_only=False)
        elif not pa.types.is_string(kind) or dictionary is not None:
            dtype = f"{'f' if pa.types.is_floating(kind) else 'u' if pa.types.is_unsigned_integer(kind) else 'i'}"
            values = np.frombuffer(column.buffers()[1], f"<{dtype}{column.type.bit_width // 8}")[: len(column)].copy()
        made = None if values is None else store.create(f"t/{name}", data=values)
        mask = None if valid.all() else store.create(f"t/{name}.valid", data=valid)
        found[name] = Operand(name, kind, made, mask, dictionary)
    return found


# --- tests by chance, and what they are in Python ---------------------------------------------------------------------


def number(random: Random, depth: int = 2) -> Any:
    """A value computed of numbers."""
    if depth == 0 or random.random() < 0.4:
        return col(random.choice((*NUMBERS, *FLOATS)))
    one, op = number(random, depth - 1), random.choice("+-*/n")
    if op == "n":
        return -one
    other = random.choice([number(random, depth - 1), random.randint(-3, 3), Decimal("0.25"), 1.5])
    return {"+": one + other, "-": other - one, "*": one * other, "/": one / other}[op]


def constant(name: str, random: Random) -> Any:
    value = COLUMNS[name][1](random)
    if name in NUMBERS and random.random() < 0.4:
        return random.choice([float(value), value + Decimal("0.5"), 2**70, -(2**70), float("inf"), float("nan")])
    if name in FLOATS and random.random() < 0.3:
        return random.choice([0.1, 1, 1e300])
    return value.isoformat() if name == "day" and random.random() < 0.5 else value


def chance(random: Random, depth: int = 3) -> Test:
    """A test by chance."""
    if depth and random.random() < 0.55:
        op = random.choice(["&", "|", "~"])
        one = chance(random, depth - 1)
        return ~one if op == "~" else one & chance(random, depth - 1) if op == "&" else one | chance(random, depth - 1)
    op, name = random.choice(list(COMPARED)), random.choice(list(COLUMNS))
    what = random.random()
    if what < 0.1:
        return random.choice([col(name).is_null(), col(name).is_valid()])
    if what < 0.2:
        return ~~col("flag")
    if what < 0.35:
        values = [COLUMNS[name][1](random) for _ in range(random.choice([0, 1, 3, 30]))]
        return col(name).isin(value for value in values if value == value)
    if what < 0.5:
        return COMPARED[op](number(random), random.choice([number(random), random.randint(-5, 5), 1.5, Decimal("2.5")]))
    if what < 0.6:
        pair = random.choice([NUMBERS, FLOATS, TIMES, ("i32", "f64")])
        return COMPARED[op](col(random.choice(pair)), col(random.choice(pair)))
    if name in TEXTS and what < 0.85:
        text = random.choice(WORDS)
        return random.choice([col(name).startswith(text), col(name).endswith(text), col(name).contains(text)])
    if name == "flag":
        return COMPARED[random.choice(["==", "!="])](col(name), random.random() < 0.5)
    return COMPARED[op](col(name), constant(name, random))


def computed(tree: Any, row: dict[str, Any]) -> Any:
    """A value of a row in Python; None if it is missing."""
    op, *rest = ("col", tree) if isinstance(tree, str) else tree
    if op == "col":
        value = row[rest[0]]
        return Fraction(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else value
    if op == "value":
        return Fraction(rest[0]) if isinstance(rest[0], int | Decimal) else rest[0]
    parts = [computed(part, row) for part in rest]
    if None in parts:
        return None
    if op == "/" or any(isinstance(part, float) for part in parts):
        parts = [np.float64(float(part)) for part in parts]
    with np.errstate(all="ignore"):
        if op == "negative":
            return -parts[0]
        made = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[op](*parts)
    return float(made) if isinstance(made, np.floating) else made


def comparable(one: Any, other: Any, kind: Any) -> tuple[Any, Any]:
    """Two values as Python compares them exactly."""
    if isinstance(other, str) and isinstance(one, datetime.date):
        other = datetime.date.fromisoformat(other)
    if isinstance(one, datetime.datetime) != isinstance(other, datetime.datetime) and isinstance(one, datetime.date):
        one, other = (
            x if isinstance(x, datetime.datetime) else datetime.datetime(x.year, x.month, x.day) for x in (one, other)
        )
    if isinstance(one, str) and isinstance(other, str):
        return one.encode(), other.encode()
    return one, other


def decided(tree: Any, row: dict[str, Any]) -> bool | None:
    """A test of a row in Python, with SQL's logic."""
    op, *rest = tree
    if op in ("and", "or"):
        parts = [decided(part, row) for part in rest]
        if (op == "or") in parts:
            return op == "or"
        return None if None in parts else op == "and"
    if op == "not":
        inner = decided(rest[0], row)
        return None if inner is None else not inner
    if op in ("null", "valid"):
        return (row[rest[0]] is None) == (op == "null")
    one = computed(rest[0], row)
    if one is None:
        return None
    if op == "is":
        return bool(one)
    if op == "in":
        return any(decided(("==", rest[0], value), row) for value in rest[1])
    if op in ("begins", "ends", "holds"):
        return bool({"begins": one.startswith, "ends": one.endswith, "holds": one.__contains__}[op](rest[1]))
    other = computed(rest[1], row) if isinstance(rest[1], tuple) else rest[1]
    if other is None:
        return None
    if isinstance(one, float) or isinstance(other, float) and isinstance(rest[1], tuple):
        one, other = float(one), float(other)
    one, other = comparable(one, other, None)
    if isinstance(other, float) and other == other and abs(other) != float("inf") and isinstance(one, Fraction):
        other = (
            Fraction(repr(other))
            if isinstance(rest[0], str) and rest[0] in ("price", "rate", "wide")
            else Fraction(other)
        )
    return bool(COMPARED[op](one, other))


# --- the tests --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, dict[str, Operand], list[dict[str, Any]]]]:
    table = table_of(1)
    with nandarray.open(tmp_path_factory.mktemp("choosing") / "t.nand", "w") as store:
        rows = [
            {name: float(x) if isinstance(x, np.floating) else x for name, x in row.items()}
            for row in table.to_pylist()
        ]
        yield table, stored(store, table), rows


def chosen(test: Test, operands: dict[str, Operand], table: Any, **options: Any) -> list[int]:
    """Rows by the program, and by Arrow what is left."""
    chooser = Chooser(test, operands)
    rows = chooser.rows(0, table.num_rows, **options)
    assert rows.dtype == np.int64
    if chooser.left is None:
        return rows.tolist()
    numbered = table.append_column("number of the row", pa.array(np.arange(table.num_rows)))
    return numbered.take(rows).filter(expression_of(chooser.left, table.schema))["number of the row"].to_pylist()


@pytest.mark.parametrize("seed", range(24))
def test_equals_arrow_and_python(seed: int, made: Any) -> None:
    table, operands, rows = made
    test = chance(Random(seed))
    print("seed", seed, test)
    numbered = table.append_column("number of the row", pa.array(np.arange(table.num_rows)))
    wanted = numbered.filter(expression_of(test, table.schema))["number of the row"].to_pylist()
    found = chosen(test, operands, table, form="translated" if seed % 2 else None)
    assert found == wanted
    sample = Random(seed).sample(range(len(rows)), 300)
    assert {n for n in sample if decided(test.tree, rows[n])} == set(sample) & set(wanted)


def arrow(random: Random, depth: int = 3) -> Any:
    """An expression of Arrow by chance."""
    if depth and random.random() < 0.5:
        op = random.choice(["&", "|", "~"])
        one = arrow(random, depth - 1)
        return ~one if op == "~" else one & arrow(random, depth - 1) if op == "&" else one | arrow(random, depth - 1)
    names = [name for name in COLUMNS if name not in ("f16", "wide", "ms")]
    name = random.choice(names)
    field, what = pc.field(name), random.random()
    if what < 0.1:
        return random.choice([field.is_null(), field.is_valid(), pc.field("f64").is_nan(), pc.field("flag")])
    if what < 0.25 and name not in FLOATS:
        kind = pa.int64() if name in ("i8", "i32") else table_of(1, 5).schema.field(name).type
        if name in ("i8", "i32"):
            values = [random.choice([None, 0, 1, -(2**40)]) for _ in range(3)]
        else:
            values = [COLUMNS[name][1](random) for _ in range(random.choice([1, 20]))]
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return pc.is_in(field, pa.array(values, kind), skip_nulls=random.random() < 0.5)
    if what < 0.4 and name in ("code", "plain"):
        text = random.choice(WORDS)
        function = random.choice([pc.starts_with, pc.ends_with, pc.match_substring])
        return function(field, text, ignore_case=random.random() < 0.2)
    compare = COMPARED[random.choice(list(COMPARED))]
    if what < 0.5:
        # Of the product's scale: old versions of Arrow compare decimals of two scales as whole numbers.
        one, other = pc.field("price") * (pc.scalar(Decimal("1")) - pc.field("rate")), Decimal("2.50000")
        floats = pc.add(pc.field("f64"), pc.multiply(pc.field("f64"), 2.5))
        ints = pc.field("i32").cast(pa.int64()) + pc.field("i8")
        return compare(*random.choice([(one, other), (floats, 1.5), (ints, 3), (pc.field("i8"), pc.field("i32"))]))
    if what < 0.6:
        test = compare(field, arrow_constant(name, random)) if name != "flag" else field
        return pc.if_else(field.is_valid(), test, pa.scalar(None, pa.bool_()))
    if name == "flag":
        return field == (random.random() < 0.5)
    return compare(field, arrow_constant(name, random))


def arrow_constant(name: str, random: Random) -> Any:
    value, kind = COLUMNS[name][1](random), COLUMNS[name][0]
    if name == "day" and random.random() < 0.5:
        return datetime.datetime(1970, 1, 1, random.choice([0, 5]))
    return pa.scalar(value, kind.value_type if pa.types.is_dictionary(kind) else kind)


@pytest.mark.parametrize("seed", range(24))
def test_filters_of_arrow_are_decided_as_arrow_does(seed: int, made: Any) -> None:
    table, operands, _ = made
    expression = arrow(Random(seed))
    test, whole = of_arrow(expression, table.schema)
    print("seed", seed, expression, test, whole)
    numbered = table.append_column("number of the row", pa.array(np.arange(table.num_rows)))
    wanted = numbered.filter(expression)["number of the row"].to_pylist()
    found = chosen(test, operands, table) if test is not None else list(range(table.num_rows))
    if not whole:
        found = numbered.take(np.array(found, np.int64)).filter(expression)["number of the row"].to_pylist()
    assert found == wanted


@pytest.mark.parametrize("seed", range(12))
def test_substrait_says_the_same_as_arrow(seed: int, made: Any) -> None:
    """Of expressions that Arrow writes as Substrait; a set with NULL has none there, one is NULL of a missing value."""
    table, operands, _ = made
    schema = pa.schema([field for field in table.schema if field.name not in UNSPOKEN])
    random = Random(seed)
    for _ in range(3):
        expression = arrow(random, 2)
        if "is_in" in str(expression) and "invert" in str(expression):
            continue
        try:
            message = bytes(expression.to_substrait(schema))
        except pa.ArrowException:
            continue
        print("seed", seed, expression)
        test, whole = of_substrait(message, schema)
        other, same = of_arrow(expression, schema)
        if test is not None and other is not None and whole and same:
            assert chosen(test, operands, table) == chosen(other, operands, table)
        for at in range(0, len(message), 7):
            of_substrait(message[:at], schema)  # cut off: nothing is raised
            changed = bytearray(message)
            changed[at] = random.randrange(256)
            of_substrait(bytes(changed), schema)


def test_decimals_of_38_digits_are_compared_exactly() -> None:
    values = [Decimal(f"{10**35 + n}e-2") for n in range(3)]
    table = pa.table({"x": pa.array(values, pa.decimal128(38, 2))})
    for test, kept in ((col("x") == values[1], values[1:2]), (col("x") > values[1], values[2:])):
        assert table.filter(expression_of(test, table.schema))["x"].to_pylist() == kept


def test_what_is_no_filter_of_arrow_or_substrait_is_left(made: Any) -> None:
    schema = made[0].schema.remove(made[0].schema.get_field_index("f16"))
    assert of_arrow(pc.field("f64") < Decimal("1.5"), schema) == (None, False)
    names = [name for name in schema.names if name not in UNSPOKEN]
    spoken = pa.schema([schema.field(name) for name in names])
    message = bytes((pc.field("i32") + 7 > 3).to_substrait(spoken))
    assert of_substrait(message, spoken)[1]
    assert of_substrait(message.replace(b"add", b"not"), spoken) == (None, False)


def test_literals_of_substrait_have_units_of_their_own(made: Any) -> None:
    schema = pa.schema([("at_s", pa.timestamp("s")), ("day", pa.date32()), ("price", pa.decimal128(15, 2))])
    for expression, test in [
        (pc.field("at_s") > MIDNIGHT + datetime.timedelta(seconds=5), col("at_s") > "1970-01-01T00:00:05"),
        (pc.field("day") <= datetime.date(1970, 1, 3), col("day") <= "1970-01-03"),
        (pc.field("price") == Decimal("1.50"), col("price") == 1.5),
    ]:
        if "at_s" in str(expression):
            expression = pc.field("at_s") > pa.scalar(5, pa.timestamp("s"))  # noqa: PLW2901
        found, whole = of_substrait(bytes(expression.to_substrait(schema)), schema)
        assert whole
        assert found is not None
        assert expression_of(found, schema).equals(expression_of(test, schema))
        assert chosen(found, made[1], made[0]) == chosen(test, made[1], made[0])


@pytest.mark.parametrize("door", doors.COMPUTING)
@pytest.mark.parametrize("seed", [3, 7])
def test_is_decided_behind_each_door(door: str, seed: int, tmp_path: Path) -> None:
    table = table_of(seed, 500)
    test = ((col("i32") < 3) & (col("name") >= "ab") | (col("price") * (1 - col("rate")) > 5)) & ~col("f64").is_null()
    numbered = table.append_column("number of the row", pa.array(np.arange(table.num_rows)))
    wanted = numbered.filter(expression_of(test, table.schema))["number of the row"].to_pylist()
    with doors.opened(door, tmp_path / "t.nand") as store:
        operands = stored(store, table)
        chooser = Chooser(test, operands)
        assert chooser.left is None
        assert chooser.rows(0, 500).tolist() == wanted
        assert chooser.rows(100, 300, task_bytes=64).tolist() == [n for n in wanted if 100 <= n < 300]
        many = chosen(col("u16").isin(range(0, 65536, 3)) & (col("i32") > 0), operands, table)
        thirds = [row["u16"] is not None and row["u16"] % 3 == 0 and row["i32"] > 0 for row in table.to_pylist()]
        assert many == np.flatnonzero(thirds).tolist()
        count, most = chooser.fold([("count",), ("max", "i32")], 0, 500) or []
        assert (count, most) == (len(wanted), pc.max(table["i32"].take(wanted)))
        assert chosen(col("code").isin(WORDS[::2]) & col("plain").startswith("a"), operands, table) == [
            n
            for n, row in enumerate(table.to_pylist())
            if row["code"] in WORDS[::2] and (row["plain"] or "")[:1] == "a"
        ]


def test_is_decided_in_each_form_and_on_a_modelled_device(made: Any) -> None:
    table, operands, _ = made
    test = (col("i8") > 100) | (col("i64") * col("i32") > 2**80) | col("u64").isin(range(20))
    chooser = Chooser(test, operands)
    assert chooser.left is None
    wanted = chosen(test, operands, table)
    for form in ("interpreted", "translated", "native"):
        assert chooser.rows(0, ROWS, form=form).tolist() == wanted
    halves = (col("f16") < 0.5) & (col("f64") / (col("f32") - 1) > 0.1)
    assert Chooser(halves, operands).rows(0, ROWS, form="interpreted").tolist() == chosen(halves, operands, table)
    device = nandarray.devices()["mqsim-ideal"].with_({"compute.cores": 2, "compute.clock": "1 GHz"})
    with nandarray.open(device=device, mode="w") as modelled:
        assert Chooser(test, stored(modelled, table)).rows(0, ROWS).tolist() == wanted


def test_another_constant_needs_no_other_program(made: Any) -> None:
    _, operands, _ = made
    programs = {Chooser((col("i32") < n) & (col("f32") > n / 4), operands).program for n in range(5)}
    assert len(programs) == 1


def test_what_one_program_cannot_decide_is_left(made: Any) -> None:
    table, operands, _ = made
    many = col("i32") >= -(2**31)
    for name in ("i8", "u16", "i64", "u64", "price"):
        many = many & (col(name) > 1)
    chooser = Chooser(many, operands)
    assert chooser.program is not None
    assert len(chooser.program.inputs) <= 8
    assert chooser.left is not None
    numbered = table.append_column("number of the row", pa.array(np.arange(table.num_rows)))
    assert (
        chosen(many, operands, table)
        == numbered.filter(expression_of(many, table.schema))["number of the row"].to_pylist()
    )
    lots = col("wide").isin(range(20))
    assert Chooser(col("wide") > 1, operands).left is None
    for test in (
        col("plain") == "a",
        lots,
        col("wide") * col("wide") > 1,
        col("name") == col("code"),
        col("price") / col("f64") > 1,
    ):
        chooser = Chooser(test, operands)
        assert not chooser.decides
        assert chooser.left is not None
        assert chooser.rows(5, 9).tolist() == [5, 6, 7, 8]
    assert Chooser(None, operands).rows(0, 3).tolist() == [0, 1, 2]
    assert Chooser(col("i32") > 2**40, operands).rows(0, 3).tolist() == []


@pytest.mark.parametrize(
    ("test", "error", "words"),
    [
        (col("nothing") > 1, NotFoundError, "no column 'nothing'"),
        (col("i32") > "a", InvalidError, "column i32 must be compared with a number; 'a' is not that"),
        (col("day") == datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC), InvalidError, "column day must be"),
        (col("zoned") == MIDNIGHT, InvalidError, "a time with a zone"),
        (col("i32") == None, InvalidError, "missing ones are found by is_null"),  # noqa: E711
        (col("name") + 1 > 2, InvalidError, "computed of numbers, not of text"),
        (col("name") > col("i32"), InvalidError, "text and number are not compared"),
        (~col("i32"), InvalidError, "must be a column of booleans"),
        (col("i32").startswith("a"), InvalidError, "must be those of text"),
        (col("flag") > True, InvalidError, "by == or !="),
    ],
)
def test_refuses(test: Test, error: Any, words: str, made: Any) -> None:
    with pytest.raises(error, match=words):
        Chooser(test, made[1])


def zones_of(table: Any, rows: int) -> dict[str, Zones]:
    """Zones of some rows each; texts are cut to one character, the greater ones rounded up."""
    found = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        parts = [column[at : at + rows] for at in range(0, len(column), rows)]
        ends = []
        for part in parts:
            values = [one.as_py() for one in part if one.is_valid and one.as_py() == one.as_py()]
            ends.append((min(values), max(values)) if values else (None, None))
        low, high, kind = [one for one, _ in ends], [one for _, one in ends], column.type
        if name in TEXTS:
            kind = pa.binary()
            low = [None if one is None else one.encode()[:1] for one in low]
            high = [None if one is None else one.encode()[:1] + b"\xff" for one in high]
        nulls = np.array([part.null_count for part in parts])
        found[name] = Zones(pa.array(low, kind), pa.array(high, kind), nulls, np.array([len(part) for part in parts]))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_an_excluded_zone_has_no_row_that_passes(seed: int) -> None:
    table = table_of(seed, 120).sort_by("i8")
    test = chance(Random(seed))
    print("seed", seed, test)
    gone = excluded(test, zones_of(table, 4))
    numbered = table.append_column("number of the row", pa.array(np.arange(table.num_rows)))
    passing = numbered.filter(expression_of(test, table.schema))["number of the row"].to_numpy()
    assert not gone[passing // 4].any()


def test_zones_of_a_sorted_column_are_excluded() -> None:
    days = pa.array(np.arange(100, dtype=np.int32)).cast(pa.date32())
    table = pa.table({"day": days, "name": [f"{n:02d}" for n in range(100)], "n": [None] * 50 + list(range(50))})
    zones = zones_of(table, 10)
    for test, kept in [
        (col("day") < "1970-01-15", [0, 1]),
        ((col("day") > "1970-01-15") & (col("day") <= datetime.datetime(1970, 1, 22, 5)), [1, 2]),
        (col("day").isin(["1970-01-01", "1970-03-02"]), [0, 6]),
        (~(col("day") < "1970-04-01"), [9]),
        (col("name") == "42", [4]),
        (col("name").startswith("42"), [4]),
        (col("n") < 15, [5, 6]),
        (col("n").isin([*map(str, range(-80, 11))]), [5, 6]),  # of which "9" is the greatest text
        (col("n").isin([float("nan"), *range(-80, 11)]), [5, 6]),
        (col("n").is_null(), [0, 1, 2, 3, 4]),
        (col("n").is_valid() & ~col("n").isin([3]), [5, 6, 7, 8, 9]),
    ]:
        found = excluded(test, {**zones, "name": zones["name"]})
        assert np.flatnonzero(~found).tolist() == kept, test


def test_folds_are_those_of_arrow(made: Any) -> None:
    table, operands, rows = made
    test = (col("i8") > -100) & ~col("name").isin(["z"])
    net = col("price") * (1 - col("rate"))
    asked = [
        ("count",),
        ("count", "i64"),
        ("sum", "i64"),
        ("sum", net),
        ("min", "price"),
        ("max", net),
    ]
    assert Chooser(test, operands).fold(asked, 0, ROWS) is None  # ten arrays
    found = Chooser(col("i8") > -100, operands).fold([*asked[:3], ("min", "i64"), ("max", "i8")], 0, ROWS)
    whole = table.filter(pc.field("i8") > -100)
    integers = [one for one in whole["i64"].to_pylist() if one is not None]
    assert found is not None
    assert found[:3] == [whole.num_rows, len(integers), sum(integers)]
    assert [one.as_py() for one in found[3:]] == [min(integers), pc.max(whole["i8"]).as_py()]
    passing = [row for row in rows if row["flag"]]
    there = [one for one in (computed(net.tree, row) for row in passing) if one is not None]
    prices = [row["price"] for row in passing if row["price"] is not None]
    for options in ({"form": "interpreted"}, {"task_bytes": 4096, "threads": 2}, {}):
        found = Chooser(~~col("flag"), operands).fold([*asked[3:], ("count", net)], 0, ROWS, **options)
        assert found is not None
        assert (found[0], found[1].as_py(), found[2], found[3]) == (sum(there), min(prices), max(there), len(there))
    assert Chooser(None, operands).fold([("count",)], 3, 9) == [6]
    assert Chooser(col("i32") > 2**40, operands).fold([("count",), ("sum", "i32")], 0, ROWS) == [0, None]
    assert Chooser(col("plain") == "a", operands).fold([("count",)], 0, ROWS) is None
    with pytest.raises(InvalidError, match="cannot be summed"):
        Chooser(None, operands).fold([("sum", "day")], 0, ROWS)


@pytest.mark.parametrize("name", ["f16", "f32", "f64"])
def test_folds_of_floats(name: str, made: Any) -> None:
    table, operands, _ = made
    chooser = Chooser((col(name) > -1e6) & (col(name) < 1e6), operands)
    found = chooser.fold([("sum", name), ("min", name), ("max", name), ("sum", col(name) * 2)], 0, ROWS)
    kept = [one for one in table[name].cast(pa.float64()).to_pylist() if one is not None and abs(one) < 1e6]
    assert found is not None
    assert found[0] == pytest.approx(float(sum(map(Fraction, kept))), rel=1e-13)
    assert [one.as_py() for one in found[1:3]] == [min(kept), max(kept)]
    assert found[3] == 2 * found[0]
    every = Chooser(None, operands).fold([("min", name), ("max", name)], 0, ROWS)
    ends = pc.min_max(table[name].cast(pa.float64()))
    assert every is not None
    assert [one.as_py() for one in every] == [ends["min"].as_py(), ends["max"].as_py()]
