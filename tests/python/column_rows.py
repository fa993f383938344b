"""Random rows of every type that a column of a table may have, and their comparison with those that came back."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

DAY = datetime.date(2000, 1, 1)
WORDS = ["", "a", "é\0", "漢🙂", "same", "same again" * 9]


def _days(random_: random.Random) -> datetime.date:
    return DAY + datetime.timedelta(days=random_.randrange(-9999, 9999))


#: A type, and a value of it.
TYPES: dict[str, tuple[Any, Any]] = {
    "bool": (pa.bool_(), lambda r: r.random() < 0.5),
    "int8": (pa.int8(), lambda r: r.randrange(-128, 128)),
    "uint64": (pa.uint64(), lambda r: r.choice([0, r.randrange(1 << 64)])),
    "int64": (pa.int64(), lambda r: r.choice([-(1 << 63), r.randrange(100)])),
    "float16": (pa.float16(), lambda r: np.float16(r.random())),
    "float32": (pa.float32(), lambda r: r.choice([0.5, float("inf"), r.randrange(99) / 4])),
    "float64": (pa.float64(), lambda r: r.choice([0.1, -0.0, float("-inf"), r.random()])),
    "decimal32": (pa.decimal32(9, 2), lambda r: Decimal(r.randrange(-(10**9) + 1, 10**9)).scaleb(-2)),
    "decimal64": (pa.decimal64(18, 3), lambda r: Decimal(r.randrange(-(10**18) + 1, 10**18)).scaleb(-3)),
    "decimal9": (pa.decimal128(9, 2), lambda r: Decimal(r.randrange(-(10**9) + 1, 10**9)).scaleb(-2)),
    "decimal30": (pa.decimal128(30, 4), lambda r: Decimal(r.randrange(-(10**30) + 1, 10**30)).scaleb(-4)),
    "decimal60": (pa.decimal256(60, 0), lambda r: Decimal(r.randrange(-(10**60) + 1, 10**60))),
    "date32": (pa.date32(), _days),
    "date64": (pa.date64(), _days),
    "time32": (pa.time32("s"), lambda r: datetime.time(r.randrange(24), r.randrange(60))),
    "time64": (pa.time64("ns"), lambda r: datetime.time(r.randrange(24), r.randrange(60), 1, 5)),
    "timestamp": (pa.timestamp("us"), lambda r: datetime.datetime(2000, 1, 1, 12, 0, r.randrange(60), 7)),
    "zoned": (pa.timestamp("ms", "Europe/Berlin"), lambda r: r.randrange(1 << 40)),
    "duration": (pa.duration("ns"), lambda r: r.randrange(1 << 40)),
    "fixed": (pa.binary(3), lambda r: r.randbytes(3)),
    "text": (pa.string(), lambda r: r.choice(WORDS) + str(r.randrange(999))),
    "few": (pa.large_string(), lambda r: r.choice(WORDS)),
    "bytes": (pa.binary(), lambda r: r.randbytes(r.randrange(5))),
    "codes": (pa.dictionary(pa.int8(), pa.string()), lambda r: r.choice(WORDS)),
    "ordered": (pa.dictionary(pa.uint16(), pa.int64(), ordered=True), lambda r: r.randrange(9)),
    "list": (pa.list_(pa.int32()), lambda r: [r.randrange(9) for _ in range(r.randrange(4))]),
    "dates": (pa.large_list(pa.date32()), lambda r: [_days(r) for _ in range(r.randrange(4))]),
    "pair": (pa.list_(pa.float32(), 2), lambda r: [r.randrange(9) / 2, 0.5]),
    "a/b..": (pa.int16(), lambda r: r.randrange(9)),
    "ends": (pa.uint8(), lambda r: r.randrange(9)),
}


def rows(random_: random.Random, count: int, names: list[str]) -> Any:
    missing = random_.choice([0, 0.2])
    columns = {}
    for name in names:
        kind, make = TYPES[name]
        values = [None if random_.random() < missing else make(random_) for _ in range(count)]
        columns[name] = pa.array(values, pa.string() if name == "codes" else kind).cast(kind)
    return pa.table(columns)


def same(found: Any, wanted: Any) -> None:
    assert found.schema.equals(wanted.schema), found.schema
    assert found.num_rows == wanted.num_rows
    for name in wanted.column_names:
        assert found[name].to_pylist() == wanted[name].to_pylist(), name
