"""Sample data for the ready-made programs: about a mebibyte each, of the kind that they are made for, used as they are.

Sizes out follow from the data: what a filter keeps, how well a text compresses. So every assumption is here, one a
function, and :data:`ASSUMED` says in words what was assumed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nandarray import programs
from nandarray.errors import InvalidError
from nandarray.programs.advise.flows import Use
from nandarray.programs.library.twins.blocks import wal_record

__all__ = ["ASSUMED", "NoSampleError", "Sample", "has_sample", "sample", "use_of"]

BYTES = 1 << 20
_BLOCK = 4096
_Array = np.ndarray[Any, Any]
_Rng = np.random.Generator
#: Inputs, scalars by name, parameters of the program.
Sample = tuple[list[_Array], dict[str, Any], dict[str, Any]]

ASSUMED: Mapping[str, str] = {
    "filter": "a tenth of the elements are kept",
    "filter_index": "a tenth of the elements are kept",
    "filter_rows": "rows of 64 bytes, of which a tenth are kept",
    "merge": "two arrays of random integers, of half the bytes each",
    "search": "as many values as the array has elements, random integers",
    "lookup": "eight times as many values as the array in memory has elements",
    "join": "two arrays of random integers, a third of which have an equal one",
    "select": "two columns of 8 bytes of rows of 64",
    "parse": "lines of 12 fields like TPC-H's lineitem, of which five are wanted",
    "psf": "the same lines, three fields of the third of them that a date keeps",
    "rows": "a tenth of the elements are less than the scalar, and not missing; no other test is true",
    "rows_fold": "the same elements, five results",
    "lz4_decompress": "blocks of 64 KiB that are 2.9 times as large when decompressed",
    "wal_replay": "pages of 4 KiB, one record of 64 bytes for every second page",
    "bitpack": "elements of 32 bits that have 5",
    "bitunpack": "elements of 5 bits",
    "kmeans_assign": "points of 16 coordinates, 16 centroids",
    "bfs_scan": "an eighth of the vertices is on the frontier, a half is not reached",
    "pagerank_step": "16 edges a vertex, in the order of where they lead",
    "matvec": "rows of 256 columns",
    "conv2d": "images of 256 x 256 under a kernel of 3 x 3",
    "network": "28 x 28 images of one byte a pixel",
    "sha256": "blocks of 4 KiB",
    "deduplicate": "blocks of 4 KiB, of which every second one was there before",
}


def sample(name: str, seed: int = 1) -> Sample:
    """Make data for a ready-made program, the same for the same seed; without any, a NoSampleError is raised.

    These are inputs, scalars by name, and parameters to make the program with, ``dtype`` among them.
    """
    rng = np.random.default_rng(seed)
    made = _MAKERS.get(name)
    if made is not None:
        return made(rng)
    entry = programs.describe(name)
    if (missing := _missing(name)) is not None:
        raise NoSampleError(name, missing)
    if not entry.dtypes:
        return [_bytes(rng)], {}, {}
    count = sum(port in entry.summary.split() for port in ("a", "b")) if name in _PAIRS else 1
    inputs = [rng.uniform(0.5, 4.0, BYTES // 8).astype(entry.default) for _ in range(2 if name in _PAIRS else count)]
    return inputs, {"factor": 1.5} if name == "multi" else {}, {"dtype": entry.default}


class NoSampleError(InvalidError):
    """A ready-made program takes what general data do not have, and has no data of its own here."""

    def __init__(self, name: str, missing: str) -> None:
        super().__init__(f"{name} has no sample: it takes {missing}; _advise/samples.py makes samples")


def has_sample(name: str) -> bool:
    """Return whether there are data made for a program; others get general ones, on which it may fail."""
    return name in _MAKERS


def _missing(name: str) -> str | None:
    """Return the reason why general data do not fit a program; None if they do."""
    made = programs.get(name)
    given = {"factor"} if name == "multi" else set()
    scalars = [one["name"] for one in made.metadata["scalars"] if "default" not in one and one["name"] not in given]
    count = 2 if name in _PAIRS else 1
    if scalars:
        return f"the scalar {scalars[0]}"
    return None if len(made.inputs) == count else f"{len(made.inputs)} inputs"


_PAIRS = frozenset({"add", "sub", "mult", "scan", "div", "atan2", "pow"})


def _bytes(rng: _Rng, count: int = BYTES) -> _Array:
    return rng.integers(0, 256, count, np.uint8)


def _disks(rng: _Rng, count: int) -> Sample:
    return [_bytes(rng, BYTES // 4) for _ in range(count)], {}, {"disks": count}


def _filter(rng: _Rng) -> Sample:
    return [rng.random(BYTES // 8)], {"low": 0.0, "high": 0.1}, {"dtype": "float64"}


def _histogram(rng: _Rng) -> Sample:
    return [rng.random(BYTES // 8)], {"low": 0.0, "high": 1.0}, {"dtype": "float64"}


def _filter_rows(rng: _Rng) -> Sample:
    rows = rng.integers(0, 1000, (BYTES // 64, 8))
    return [rows.reshape(-1).view(np.uint8)], {"low": 0, "high": 99}, {"dtype": "int64", "row_bytes": 64}


def _ordered(rng: _Rng) -> Sample:
    return [np.sort(rng.integers(0, BYTES // 4, BYTES // 16)) for _ in range(2)], {}, {"dtype": "int64"}


def _lookup(rng: _Rng) -> Sample:
    x = rng.integers(0, BYTES, BYTES // 8)
    return [x, np.sort(x[::8])], {}, {"dtype": "int64"}


def _parse(rng: _Rng) -> Sample:
    fields = ("int", "skip", "skip", "skip", "decimal2", "decimal2", "decimal2", *["skip"] * 3, "date", "skip")
    lines = []
    for order in range(BYTES // 96):
        a, b, c = rng.integers(1, 200000, 3)
        day = f"{rng.integers(1992, 1999)}-{rng.integers(1, 13):02d}-{rng.integers(1, 29):02d}"
        lines.append(
            f"{order},{a},{b},1,{c % 50}.00,{a}.{b % 100:02d},0.0{c % 10},N,O,{day},{day},carefully final deposits"
        )
    text = "\n".join(lines).encode()
    return [np.frombuffer(text, np.uint8)], {}, {"fields": fields}


def _psf(rng: _Rng) -> Sample:
    (text,), _, _ = _parse(rng)
    fields = ("int32", "int32", "int32", "skip", "decimal32_2", "decimal32_2", *["skip"] * 4, "date", "skip")
    given = {"fields": fields, "columns": (0, 4, 5), "where": ("<", 10, 8766), "delimiter": ord(",")}
    return [np.append(text, np.uint8(ord("\n")))], {}, given


def _rows(rng: _Rng) -> Sample:
    count = BYTES // 16
    return [rng.integers(0, 1000, count, np.int32), rng.random(count) < 0.9, rng.random(count)], {"s0": 111}, {}


def _lz4(rng: _Rng) -> Sample:
    blocks, total = [], 0
    while total < BYTES:
        made, length = bytearray(), 0
        while length < (64 << 10) - 64:
            literals, match = 8, 24
            offset = int(rng.integers(1, length + literals + 1)) if length else 1
            made += (
                bytes([literals << 4 | 15]) + _bytes(rng, literals).tobytes() + struct.pack("<H", offset) + bytes([5])
            )
            length += literals + match
        made += bytes([8 << 4]) + _bytes(rng, 8).tobytes()
        blocks.append(struct.pack("<I", len(made)) + made)
        total += len(made)
    return [np.frombuffer(b"".join(blocks), np.uint8)], {}, {"expansion": 8}


def _wal(rng: _Rng) -> Sample:
    count = BYTES // 4096
    pages = _bytes(rng).reshape(count, 4096)
    pages[:, :8] = 0
    log = [wal_record(i + 1, 2 * i, int(rng.integers(8, 4000)), _bytes(rng, 64).tobytes()) for i in range(count // 2)]
    return [pages.reshape(-1), np.frombuffer(b"".join(log), np.uint8)], {}, {}


def _bitpack(rng: _Rng) -> Sample:
    return [rng.integers(0, 32, BYTES // 4).astype(np.uint32)], {}, {"dtype": "uint32", "width": 5}


def _bitunpack(rng: _Rng) -> Sample:
    return [_bytes(rng, BYTES // 20 * 20)], {}, {"dtype": "uint32", "width": 5}


def _kmeans(rng: _Rng) -> Sample:
    return [rng.normal(size=BYTES // 8), rng.normal(size=256)], {}, {"dtype": "float64", "dims": 16}


def _bfs(rng: _Rng) -> Sample:
    vertices = 1 << 14
    levels = rng.choice(np.array([0, 1, 2**32 - 1], np.uint32), vertices, p=[3 / 8, 1 / 8, 1 / 2])
    return [rng.integers(0, vertices, (BYTES // 8, 2)).astype(np.uint32), levels], {"level": 1}, {}


def _pagerank(rng: _Rng) -> Sample:
    edges = BYTES // 8
    to = np.repeat(np.arange(edges // 16, dtype=np.uint32), 16)
    pairs = np.stack([rng.integers(0, edges // 16, edges).astype(np.uint32), to], axis=1)
    return [pairs, rng.random(edges // 16)], {}, {}


def _matvec(rng: _Rng) -> Sample:
    return [rng.random(BYTES // 8), rng.random(256)], {}, {"dtype": "float64", "columns": 256}


def _conv2d(rng: _Rng) -> Sample:
    sizes = {"height": 256, "width": 256}
    return [rng.random(BYTES // 8), rng.random(9)], {}, {"dtype": "float64", **sizes}


def _network(rng: _Rng) -> Sample:
    weights = rng.integers(-128, 128, 10 * 32 + 32 * 13 * 13 * 10 + 10).astype(np.int32)
    return [_bytes(rng, 28 * 28 * 200), weights], {}, {"dtype": "uint8"}


def _raid6_rebuild(rng: _Rng) -> Sample:
    data = [_bytes(rng, BYTES // 4) for _ in range(4)]
    every = [*data, *programs.twin("raid6_encode", disks=4)(*data)]
    return [disk for number, disk in enumerate(every) if number not in (0, 1)], {"a": 0, "b": 1}, {"disks": 4}


def _cipher(rng: _Rng) -> Sample:
    low, high = programs.key_scalars(bytes(range(16)))
    return [_bytes(rng)], {"key_low": low, "key_high": high}, {}


def _ctr(rng: _Rng) -> Sample:
    inputs, scalars, parameters = _cipher(rng)
    return inputs, {**scalars, "start_low": 1, "start_high": 0}, parameters


def _deduplicate(rng: _Rng) -> Sample:
    blocks = _bytes(rng).reshape(-1, _BLOCK)
    blocks[1::2] = blocks[::2]
    return [blocks.reshape(-1)], {}, {}


def _all(inputs: Mapping[str, _Array], _outputs: Mapping[str, _Array]) -> list[_Array]:
    """Return the data that parities, digests and checksums are stored beside."""
    return list(inputs.values())


def _once(inputs: Mapping[str, _Array], outputs: Mapping[str, _Array]) -> list[_Array]:
    """Return the first of the blocks with each hash."""
    first = np.unique(outputs["hash"], return_index=True)[1]
    return [inputs["blocks"].reshape(-1, _BLOCK)[np.sort(first)]]


def _written(*stored: str, host: str = "data", kept: Any = None) -> Use:
    return Use(frozenset(host.split()), frozenset(stored), kept)


#: Uses of programs that do not only take arrays of a store and give to the host: inputs of the host, stored outputs,
#: data stored beside. Whole inputs that belong to a query (centroids, a vector, a kernel) are the host's.
_USES: Mapping[str, Use] = {
    "raid4_encode": _written("parity", host="d0 d1 d2 d3", kept=_all),
    "raid5_encode": _written("disk0", "disk1", "disk2", "disk3"),
    "raid6_encode": _written("p", "q", host="d0 d1 d2 d3", kept=_all),
    "aes128_encrypt": _written("result"),
    "aes128_ctr": _written("result"),
    "deduplicate": _written("hash", host="blocks", kept=_once),
    "replicate": _written("copy0", "copy1", "copy2"),
    "wal_replay": _written("result", host="log"),
    "bitpack": _written("packed", host="x"),
    "sha256": _written("digest", host="blocks", kept=_all),
    "crc32c": _written("crc", host="blocks", kept=_all),
    "kmeans_assign": Use(frozenset({"centroids"})),
    "matvec": Use(frozenset({"vector"})),
    "conv2d": Use(frozenset({"kernel"})),
}


def use_of(name: str) -> Use:
    """Return the use of a ready-made program: all inputs of most lie in the store, and outputs go to the host."""
    return _USES.get(name, Use())


_MAKERS: dict[str, Callable[[_Rng], Sample]] = {
    "deduplicate": _deduplicate,
    "filter": _filter,
    "filter_index": _filter,
    "filter_rows": _filter_rows,
    "merge": _ordered,
    "search": _ordered,
    "lookup": _lookup,
    "join": _ordered,
    "histogram": _histogram,
    "select": lambda rng: ([_bytes(rng)], {}, {"row_bytes": 64, "columns": ((0, 8), (40, 8))}),
    "parse": _parse,
    "stat": lambda rng: ([rng.integers(0, 1 << 20, BYTES // 4, np.int32)], {}, {}),
    "psf": _psf,
    "rows": _rows,
    "rows_fold": _rows,
    "raid4_encode": lambda rng: _disks(rng, 4),
    "raid4_rebuild": lambda rng: _disks(rng, 4),
    "raid5_rebuild": lambda rng: _disks(rng, 4),
    "raid6_encode": lambda rng: _disks(rng, 4),
    "raid6_rebuild": _raid6_rebuild,
    "raid5_encode": lambda rng: ([_bytes(rng, BYTES // 12288 * 12288)], {}, {}),
    "aes128_encrypt": _cipher,
    "aes128_decrypt": _cipher,
    "aes128_ctr": _ctr,
    "lz4_decompress": _lz4,
    "wal_replay": _wal,
    "bitpack": _bitpack,
    "bitunpack": _bitunpack,
    "kmeans_assign": _kmeans,
    "bfs_scan": _bfs,
    "pagerank_step": _pagerank,
    "matvec": _matvec,
    "conv2d": _conv2d,
    "network": _network,
}
