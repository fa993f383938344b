"""Random inputs for each ready-made program, so that tests of other ways to run programs can use them, too.

:func:`variants` lists what a program is tested for; :func:`case` makes inputs and scalars for one of those from a seed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from nandarray import programs
from nandarray.programs.library.twins.blocks import wal_record

Array = np.ndarray[Any, Any]
Generator = np.random.Generator
Made = tuple[list[Array], list[Any]]

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, 1e-310, -5e-324, 1e300, -1e300, np.inf, -np.inf, np.nan]
PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "histogram": [{}, {"bins": 1}, {"bins": 4095}],
    "filter_rows": [{}, {"row_bytes": 24, "offset": 8}, {"row_bytes": 13, "offset": 3}],
    "select": [
        {},
        {"row_bytes": 64, "columns": ((8, 16), (0, 8), (8, 8))},
        {"row_bytes": 20, "columns": ((4, 4), (16, 4), (8, 8))},
        {"row_bytes": 11, "columns": ((10, 1), (3, 5))},
        {"row_bytes": 6, "columns": ((2, 4),)},
    ],
    "psf": [
        {},
        {"listing": 1},
        {"quote": 34, "null": (b"", b"NA", b"-7")},
        {
            "fields": ("int32", "decimal2", "date", "bytes12", "skip", "decimal32_1", "bytes4"),
            "columns": (5, 1, 3),
            "where": (
                "and",
                ("or", (">=", 2, 0), ("<", 1, -500)),
                ("not", ("begins", 3, b"a")),
                ("or", ("holds", 3, b"bc"), ("in", 6, (b"", b"b", b"ab")), ("!=", 0, 7)),
            ),
        },
        {"fields": ("bytes8", "int"), "columns": (0,), "where": ("or", ("ends", 0, b"c"), ("==", 0, b"ba"))},
        {
            "fields": ("bytes8", "int", "skip", "date", "decimal2"),
            "columns": (4, 0, 3),
            "delimiter": ord(","),
            "quote": ord("'"),
            "quoted_ends": 1,
            "line_bytes": 400,
            "null": (b"",),
            "where": (
                "not",
                ("and", (">", 1, 0), ("or", ("holds", 0, b"a"), ("<", 4, 0)), ("valid", 3), ("given", 1, ("valid", 0))),
            ),
        },
        {"fields": ("skip",) * 33 + ("int32", "bytes4"), "columns": (33, 34), "quote": 34, "null": (b"NULL",)},
    ],
    "rows": [
        {},
        {
            "inputs": ("int64", "uint64", "int8", "float32", "float16", "uint8", "uint8", "int64"),
            "scalars": ("float32", "int64"),
            "where": (
                "or",
                ("and", ("<", ("input", 0), ("input", 1)), ("not", (">=", ("input", 3), ("scalar", 0)))),
                (">", ("*", ("input", 0), ("-", ("const", 1), ("input", 1))), ("const", 2**100)),
                ("and", ("<", ("float", ("input", 2)), ("/", ("input", 4), ("const", 3.0)))),
                ("listed", ("input", 2), 6),
                ("and", ("within", ("input", 5), ((3, 9), (200, 200))), ("among", ("input", 0), 7)),
                ("==", ("negative", ("input", 2)), ("scalar", 1)),
            ),
        },
        {
            "inputs": ("V16", "int64", "V16"),
            "scalars": (),
            "where": (
                "or",
                (">=", ("input", 0), ("const", 2**90)),
                ("<", ("+", ("input", 0, -(10**30), 10**30), ("input", 1)), ("const", -(2**64))),
                ("==", ("input", 2), ("input", 0)),
            ),
        },
        {"inputs": ("uint16",), "scalars": (), "where": ("true",)},
        {"inputs": ("int64",), "scalars": (), "where": ("==", ("input", 0), ("const", -(2**63)))},
    ],
    "rows_fold": [
        {},
        {
            "inputs": ("int64", "uint64", "float32", "bool"),
            "scalars": (),
            "where": ("not", ("==", ("input", 0), ("const", 0))),
            "folds": (
                ("sum", ("flag", 3), ("-", ("input", 0), ("input", 1))),
                ("min", ("true",), ("*", ("input", 0), ("input", 1))),
                ("max", ("flag", 3), ("input", 1)),
                ("min", ("true",), ("input", 2)),
                ("max", ("not", ("flag", 3)), ("/", ("input", 2), ("input", 0))),
                ("sum", ("flag", 3), ("*", ("input", 2), ("const", 0.1))),
            ),
        },
    ],
    "parse": [{}, {"fields": ("date",)}, {"fields": ("bytes16", "int", "decimal0", "decimal18", "skip", "float")}],
    "raid4_encode": [{"disks": 2}, {}, {"disks": 8}],
    "raid4_rebuild": [{}],
    "raid5_encode": [{"chunk_bytes": 64}, {"disks": 3, "chunk_bytes": 8}, {"disks": 8, "chunk_bytes": 16}],
    "raid5_rebuild": [{"disks": 3}],
    "raid6_encode": [{"disks": 2}, {}, {"disks": 8}],
    "raid6_rebuild": [{"disks": 2}, {}, {"disks": 7}],
    "deduplicate": [{}, {"block_bytes": 8}, {"block_bytes": 24}, {"block_bytes": 104}],
    "sha256": [{"block_bytes": 512}, *({"block_bytes": size} for size in (8, 48, 56, 64, 120))],
    "crc32c": [{}, {"block_bytes": 8}],
    "replicate": [{}, {"copies": 1}, {"copies": 8}],
    "wal_replay": [{"page_bytes": 64}, {"page_bytes": 512}],
    "bitpack": [{"width": width} for width in (1, 5, 8, 15, 16, 31, 32)],
    "bitunpack": [{"width": width} for width in (1, 5, 8, 15, 16, 31, 32)],
    "kmeans_assign": [{}, {"dims": 1}, {"dims": 11}],
    "matvec": [{}, {"columns": 1}, {"columns": 13}],
    "conv2d": [
        {"height": 12, "width": 9},
        {"height": 5, "width": 7, "kernel_height": 1, "kernel_width": 4},
        {"height": 6, "width": 6, "kernel_height": 6, "kernel_width": 6},
    ],
    "network": [{}, {"side": 9, "filters": 3, "classes": 2}],
}
CODEN = programs.names()[programs.names().index("add") :]


def variants(name: str) -> list[tuple[Any, dict[str, Any]]]:
    """Dtypes and parameters that a program is tested for."""
    made = programs.describe(name)
    found = []
    for number, parameters in enumerate(PARAMETERS.get(name, [{}])):
        for dtype in made.dtypes or [None]:
            if number and dtype not in (None, made.default):
                continue
            if "width" in parameters and name.startswith("bit") and parameters["width"] > 8 * np.dtype(dtype).itemsize:
                continue
            found.append((dtype, parameters))
    if name.startswith("bit"):
        found += [("uint8", {"width": 3}), ("uint16", {"width": 11})]
    return found


def few(name: str) -> list[tuple[Any, dict[str, Any]]]:
    """The first of these, for tests over all forms: of ``psf`` the form without an end, and that with quotes, too."""
    return variants(name)[: 3 if name == "psf" else 2]


def size(rng: Generator) -> int:
    """Draw a number of records: often few, sometimes beyond a chunk."""
    return int(rng.choice([0, 1, 2, 7, 8, 9, 31, 100, rng.integers(4000, 4200), rng.integers(8000, 9000)]))


def numbers(rng: Generator, count: int, dtype: Any) -> Array:
    """Elements of all magnitudes; floats with some that are special, in some arrays."""
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        raw = rng.integers(0, 1 << 64, count, np.uint64, endpoint=False)
        return (raw >> rng.integers(0, 64, dtype=np.uint64)).astype(kind)
    with np.errstate(over="ignore", under="ignore"):
        made = (rng.normal(size=count) * 10.0 ** rng.integers(-12, 12)).astype(kind)
        if rng.random() < 0.3:
            made = (made * 10.0 ** rng.integers(-280, 280, count)).astype(kind)
        if rng.random() < 0.4 and count:
            places = rng.integers(0, count, rng.integers(1, 4))
            made[places] = np.array(rng.choice(SPECIAL, len(places))).astype(kind)
    return made


def raw_bytes(rng: Generator, count: int) -> Array:
    """Bytes without a pattern, or all alike."""
    made = rng.integers(0, 256, count, np.uint8)
    return np.full(count, made[0] if count else 0, np.uint8) if rng.random() < 0.1 else made


def _limits(rng: Generator, dtype: Any) -> list[Any]:
    first, second = numbers(rng, 2, dtype)
    return [min(first, second), max(first, second)] if rng.random() < 0.9 else [first, second]


def _filter(rng: Generator, dtype: Any, _values: dict[str, Any]) -> Made:
    x = numbers(rng, size(rng), dtype)
    if len(x) and rng.random() < 0.7:
        ends = np.sort(rng.choice(x, 2))
        return [x], [ends[0], ends[1]]
    return [x], _limits(rng, dtype)


def _filter_rows(rng: Generator, dtype: Any, values: dict[str, Any]) -> Made:
    row, offset = values["row_bytes"], values["offset"]
    rows = raw_bytes(rng, size(rng) // 8 * row).reshape(-1, row)
    element = numbers(rng, len(rows), dtype)
    rows[:, offset : offset + element.itemsize] = element.view(np.uint8).reshape(len(rows), element.itemsize)
    return [rows.reshape(-1)], _limits(rng, dtype)


def _ordered(rng: Generator, dtype: Any) -> list[Array]:
    """Two sorted arrays of different lengths, with elements in common, often many equal ones."""
    pool = numbers(rng, int(rng.choice([3, 50, 5000])), dtype)
    return [np.sort(rng.choice(pool, size(rng) // int(rng.choice([1, 1, 9])))) for _ in range(2)]


def _search(rng: Generator, dtype: Any, _values: dict[str, Any]) -> Made:
    return _ordered(rng, dtype), [bool(rng.integers(0, 2))]


def _lookup(rng: Generator, dtype: Any, _values: dict[str, Any]) -> Made:
    ordered, values = _ordered(rng, dtype)
    return [rng.permutation(values), ordered], [bool(rng.integers(0, 2))]


def _text(rng: Generator, kind: str) -> bytes:
    """A field, well formed or nearly so."""
    name, digits = kind.rstrip("0123456789"), int(kind.lstrip("abcdefghijklmnopqrstuvwxyz") or 0)
    whole = str(int(rng.integers(-(2**63), 2**63 - 1, dtype=np.int64)) >> int(rng.integers(0, 63)))
    made = whole
    if name == "decimal" and rng.random() < 0.8:
        made = f"{int(whole) >> 40}.{rng.integers(0, 10**6):06d}"[: rng.integers(1, 24)]
    if name == "date":
        made = f"{rng.integers(0, 9999):04d}-{rng.integers(0, 14):02d}-{rng.integers(0, 33):02d}"
    if name == "float":
        made = f"{int(whole) >> 30}.{rng.integers(0, 10**4)}" + (
            f"e{rng.integers(-30, 30)}" if rng.random() < 0.5 else ""
        )
    if name == "bytes":
        made = "".join(map(chr, rng.integers(97, 123, rng.integers(0, digits + 3))))
    if rng.random() < 0.12:
        place = int(rng.integers(0, len(made) + 1))
        made = made[:place] + str(rng.choice(["", "x", "+", "-", ".", "9" * 20, "\r", " ", "e", "\xe9"])) + made[place:]
    return made.encode("latin-1")


def _parse(rng: Generator, _dtype: Any, values: dict[str, Any]) -> Made:
    delimiter = int(rng.choice([ord(","), ord("|"), ord("\t")]))
    lines = []
    for _ in range(int(rng.integers(0, 60))):
        parts = [_text(rng, kind) for kind in values["fields"]]
        parts = parts[: rng.integers(0, len(parts) + 1)] if rng.random() < 0.1 else parts
        parts += [b"more"] * int(rng.random() < 0.1) + [b""] * int(rng.random() < 0.3)
        lines.append(bytes([delimiter]).join(parts) + (b"\r\n" if rng.random() < 0.2 else b"\n"))
    text = b"".join(lines)
    return [np.frombuffer(text[: -1 if rng.random() < 0.3 else None], np.uint8)], [delimiter]


def _psf(rng: Generator, _dtype: Any, values: dict[str, Any]) -> Made:
    """Well-formed lines; what happens to others is in ``test_tables.py``."""
    delimiter, quote = chr(values["delimiter"]), chr(values["quote"])
    letters = list("abc" + (delimiter + quote if values["quote"] else "") + ("\n\r" if values["quoted_ends"] else ""))
    null = [one.decode() for one in values["null"]]
    lines = []
    for _ in range(int(rng.integers(0, 60))):
        parts = []
        for kind in values["fields"]:
            number = str(int(rng.integers(-(10**6), 10**6)))
            if kind.startswith("decimal"):
                number = f"{number}.{rng.integers(0, 10)}" if rng.random() < 0.7 else number
            if kind == "date":
                number = f"{rng.integers(1, 9999):04d}-{rng.integers(1, 13):02d}-{rng.integers(1, 29):02d}"
            if kind.startswith("bytes"):
                number = "".join(rng.choice(letters, rng.integers(0, int(kind[5:]) + 1)))
            if null and rng.random() < 0.3:
                number = str(rng.choice(null))
            elif values["quote"] and (set(number) - set("abc-.0123456789") or rng.random() < 0.3):
                number = quote + number.replace(quote, quote * 2) + quote
            parts.append(number)
        parts += ["more"] * int(rng.random() < 0.1) + [""] * int(rng.random() < 0.5)
        lines.append(delimiter.join(parts) + ("\r\n" if rng.random() < 0.2 else "\n"))
    return [np.frombuffer("".join(lines).encode(), np.uint8)], []


def _rows(rng: Generator, _dtype: Any, values: dict[str, Any]) -> Made:
    """Arrays of one length; the tables of the second variant are its last two inputs, sorted values among them."""
    count = size(rng)

    def one(dtype: str) -> Array:
        if dtype == "V16":
            halves = rng.integers(0, 2**64, count, np.uint64), rng.choice([-(2**30), -1, 0, 2**26, 2**30], count)
            return np.stack([halves[0].view(np.int64), halves[1]], axis=1).reshape(-1).view("V16")
        return rng.random(count) < 0.5 if dtype == "bool" else numbers(rng, count, dtype)

    made = [one(dtype) for dtype in values["inputs"]]
    if len(made) > 4:
        made[6:] = [rng.integers(0, 2, 100, np.uint8), np.sort(rng.choice(made[0], min(count, 50)))]
    return made, [numbers(rng, 1, dtype)[0] for dtype in values["scalars"]]


def _disks(rng: Generator, count: int) -> list[Array]:
    words = size(rng)
    return [raw_bytes(rng, 8 * words) for _ in range(count)]


def _raid6_rebuild(rng: Generator, _dtype: Any, values: dict[str, Any]) -> Made:
    data = _disks(rng, values["disks"])
    every = [*data, *programs.twin("raid6_encode", disks=len(data))(*data)]
    a, b = sorted(rng.choice(len(every), 2, replace=False).tolist())
    return [disk for number, disk in enumerate(every) if number not in (a, b)], [a, b]


def _cipher(rng: Generator, scalars: int) -> Made:
    start = [2**64 - 1, 2**64 - 1] if rng.random() < 0.3 else []
    words = rng.integers(0, 1 << 64, scalars, np.uint64, endpoint=False).tolist()
    return [raw_bytes(rng, 16 * (size(rng) // 16))], [*words[: scalars - len(start)], *start][:scalars]


def _lz4(rng: Generator, _dtype: Any, _values: dict[str, Any]) -> Made:
    """Blocks made of random sequences, so that everything that the format allows comes up."""
    blocks = []
    for _ in range(int(rng.integers(0, 6))):
        made, length = bytearray(), 0
        for _ in range(int(rng.integers(0, 12))):
            literals = int(rng.choice([0, 1, 5, 14, 15, 16, 269, 270, 300]))
            literals += length + literals == 0
            match = int(rng.choice([4, 5, 18, 19, 20, 273, 274, 529]))
            length += literals
            made += _lz4_sequence(rng, literals, match, int(rng.integers(1, min(length, 65535) + 1)))
            length += match
        made += _lz4_sequence(rng, int(rng.choice([5, 12, 15, 400])), 0, 0)
        raw = rng.random() < 0.2
        blocks.append(struct.pack("<I", len(made) | (raw << 31)) + made)
    return [np.frombuffer(b"".join(blocks), np.uint8)], []


def _lz4_sequence(rng: Generator, literals: int, match: int, offset: int) -> bytes:
    def more(length: int) -> bytes:
        return b"" if length < 15 else b"\xff" * ((length - 15) // 255) + bytes([(length - 15) % 255])

    token = min(literals, 15) << 4 | (min(match - 4, 15) if match else 0)
    tail = struct.pack("<H", offset) + more(match - 4) if match else b""
    return bytes([token]) + more(literals) + rng.integers(0, 256, literals, np.uint8).tobytes() + tail


def _wal(rng: Generator, _dtype: Any, values: dict[str, Any]) -> Made:
    page, count = values["page_bytes"], int(rng.integers(0, 20))
    pages = raw_bytes(rng, count * page).reshape(count, page)
    pages[:, :8] = rng.integers(0, 20, (count, 1)).astype("<u8").view(np.uint8)
    log, number = [], 0
    for _ in range(int(rng.integers(0, 30))):
        number += int(rng.integers(1, 4))
        offset = int(rng.integers(8, page))
        data = raw_bytes(rng, int(rng.integers(0, page - offset + 1))).tobytes()
        log.append(wal_record(number, int(rng.integers(0, count + 2)), offset, data))
    raw = bytearray(b"".join(log))
    if raw and rng.random() < 0.3:
        raw[int(rng.integers(0, len(raw)))] ^= 1 << int(rng.integers(0, 8))
        # A flipped bit in a sound record is always found: its CRC does not fit any more.
    if rng.random() < 0.3:
        raw = raw[: int(rng.integers(0, len(raw) + 1))]
    return [pages.reshape(-1), np.frombuffer(bytes(raw), np.uint8)], []


def _graph(rng: Generator) -> tuple[int, Array]:
    vertices = int(rng.integers(1, 200))
    edges = rng.integers(0, vertices, (size(rng), 2)).astype(np.uint32)
    return vertices, edges[np.argsort(edges[:, 1], kind="stable")] if rng.random() < 0.7 else edges


def _bfs(rng: Generator, _dtype: Any, _values: dict[str, Any]) -> Made:
    vertices, edges = _graph(rng)
    return [edges, rng.choice(np.array([0, 1, 2, 2**32 - 1], np.uint32), vertices)], [int(rng.integers(0, 3))]


def _pagerank(rng: Generator, _dtype: Any, _values: dict[str, Any]) -> Made:
    vertices, edges = _graph(rng)
    return [edges, rng.random(vertices)], []


def _conv2d(rng: Generator, dtype: Any, values: dict[str, Any]) -> Made:
    images = numbers(rng, int(rng.integers(0, 6)) * values["height"] * values["width"], dtype)
    return [images, numbers(rng, values["kernel_height"] * values["kernel_width"], dtype)], []


def _network(rng: Generator, dtype: Any, values: dict[str, Any]) -> Made:
    side, filters, classes = values["side"], values["filters"], values["classes"]
    count = 10 * filters + filters * ((side - 2) // 2) ** 2 * classes + classes
    high = 256 if dtype == "uint8" or rng.random() < 0.5 else 1 << 31
    images = rng.integers(0, high, int(rng.integers(0, 4)) * side * side).astype(dtype)
    weights = rng.integers(-128, 128, count) if rng.random() < 0.5 else rng.integers(-(1 << 31), 1 << 31, count)
    return [images, weights.astype(np.int32)], [int(rng.integers(0, 32))]


def _elementwise(rng: Generator, name: str, dtype: Any) -> Made:
    count = size(rng)
    inputs = [numbers(rng, count, dtype) for _ in programs.get(name, dtype=dtype).inputs]
    if name == "scan" and count:
        inputs[1] = np.where(rng.random(count) < 0.5, inputs[0], inputs[1])
    return inputs, [numbers(rng, 1, dtype)[0]] if name == "multi" else []


def _plain(rng: Generator, dtype: Any, _values: dict[str, Any]) -> Made:
    return [numbers(rng, size(rng), dtype)], []


def _blocks(rng: Generator, _dtype: Any, values: dict[str, Any]) -> Made:
    return [raw_bytes(rng, int(rng.integers(0, 12)) * values["block_bytes"])], []


MAKERS: dict[str, Callable[[Generator, Any, dict[str, Any]], Made]] = {
    "stat": lambda rng, _d, _v: ([raw_bytes(rng, 4 * size(rng)).view(np.int32)], []),
    "variance": lambda rng, dtype, _v: ([numbers(rng, size(rng), dtype)], [int(rng.integers(0, 3))]),
    "histogram": lambda rng, dtype, _v: (
        [numbers(rng, size(rng), dtype)],
        sorted([float(rng.normal() * 100), float(rng.normal() * 1e6)]),
    ),
    "filter": _filter,
    "filter_index": _filter,
    "filter_rows": _filter_rows,
    "merge": lambda rng, dtype, _v: (_ordered(rng, dtype), []),
    "join": lambda rng, dtype, _v: (_ordered(rng, dtype), []),
    "search": _search,
    "lookup": _lookup,
    "select": lambda rng, _d, values: ([raw_bytes(rng, size(rng) // 8 * values["row_bytes"])], []),
    "parse": _parse,
    "psf": _psf,
    "rows": _rows,
    "rows_fold": _rows,
    "raid5_encode": lambda rng, _d, values: (
        [raw_bytes(rng, int(rng.integers(0, 20)) * (values["disks"] - 1) * values["chunk_bytes"])],
        [],
    ),
    "raid6_rebuild": _raid6_rebuild,
    "aes128_encrypt": lambda rng, _d, _v: _cipher(rng, 2),
    "aes128_decrypt": lambda rng, _d, _v: _cipher(rng, 2),
    "aes128_ctr": lambda rng, _d, _v: _cipher(rng, 4),
    "lz4_decompress": _lz4,
    "replicate": lambda rng, _d, _v: (_disks(rng, 1), []),
    "wal_replay": _wal,
    "bitunpack": lambda rng, dtype, values: (
        [raw_bytes(rng, int(rng.integers(0, 40)) * 4 * values["width"] + int(rng.integers(0, 4 * values["width"])))],
        [int(rng.integers(0, 2000))] if rng.random() < 0.5 else [],
    ),
    "kmeans_assign": lambda rng, dtype, values: (
        [
            numbers(rng, size(rng) // 8 * values["dims"], dtype),
            numbers(rng, int(rng.integers(0, 9)) * values["dims"], dtype),
        ],
        [],
    ),
    "bfs_scan": _bfs,
    "pagerank_step": _pagerank,
    "matvec": lambda rng, dtype, values: (
        [numbers(rng, size(rng) // 16 * values["columns"], dtype), numbers(rng, values["columns"], dtype)],
        [],
    ),
    "conv2d": _conv2d,
    "network": _network,
}


def case(name: str, dtype: Any, parameters: dict[str, Any], seed: int) -> Made:
    """Inputs and scalars for a program, from a seed."""
    rng = np.random.default_rng(seed)
    made = programs.describe(name)
    values = {key: one.default for key, one in made.parameters.items()} | parameters
    if name in CODEN:
        return _elementwise(rng, name, dtype)
    if name in ("raid4_encode", "raid4_rebuild", "raid5_rebuild", "raid6_encode"):
        return _disks(rng, values["disks"]), []
    if name in ("deduplicate", "sha256", "crc32c"):
        return _blocks(rng, dtype, values)
    return MAKERS.get(name, _plain)(rng, dtype, values)


def cuts(name: str, parameters: dict[str, Any], inputs: list[Array], seed: int) -> list[int]:
    """Records where tasks begin, but for 0; where the first input's records have no common size, the ends of some."""
    rng = np.random.default_rng(seed + 1)
    raw = np.ascontiguousarray(inputs[0]).reshape(-1).view(np.uint8)
    if name == "psf" and parameters.get("quoted_ends"):
        return [int(rng.integers(1, 2000))]  # bytes that a task sees
    if name in ("parse", "psf"):
        ends = (np.flatnonzero(raw == ord("\n")) + 1).tolist()
    elif name == "lz4_decompress":
        ends, at = [], 0
        while at < len(raw):
            at += 4 + (int(raw[at : at + 4].view("<u4")[0]) & 0x7FFFFFFF)
            ends.append(at)
    else:
        made = programs.describe(name)
        program = programs.get(name, dtype=made.default or None, **parameters)
        width = inputs[0].itemsize if made.dtypes else 1
        port = program.inputs[0]
        record = port["record_bytes"] // (np.dtype(made.default).itemsize if made.dtypes and width > 1 else 1) * width
        ends = list(range(1, max(len(raw) // max(record, 1), 1)))
    count = min(len(ends), int(rng.integers(0, 4)))
    return sorted(int(end) for end in rng.choice(ends, count, replace=False)) if count else []
