"""The table of ready-made programs: for each its C file, and what it can be made for.

A program is made for a dtype, a kind, and *parameters*: sizes that shape its records, so that they are constants to the
compiler. Values that change from run to run are scalars instead, and not in this table. Nothing is compiled here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.programs.library import sizes as sizes
from nandarray.programs.library.psf import psf_
from nandarray.programs.library.rows import folds_, rows_

__all__ = ["PROGRAMS", "Parameter", "ReadyMade"]

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
NUMBERS = (*FLOATS, *INTEGERS)
BOTH = ("block", "stream")
BLOCK = ("block",)
ASSASIN = "Zou, ASSASIN"
VARVE = "Zou, VarVE"
NDS = "NDS"
CODEN = "CoDEN"


@dataclass(frozen=True)
class Parameter:
    """A size that a program is compiled for: an integer from ``least`` to ``most``, a multiple of ``step``."""

    default: Any
    least: int = 1
    most: int = 1 << 16
    step: int = 1
    what: str = ""

    def check(self, program: str, name: str, value: Any) -> Any:
        """Return the value as an int; lists and text are checked where they are used."""
        if not isinstance(self.default, int):
            return value
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise InvalidError(f"{program}: {name} must be an integer, not {value!r}")
        if not self.least <= value <= self.most or value % self.step:
            multiple = f" and a multiple of {self.step}" if self.step > 1 else ""
            raise InvalidError(f"{program}: {name} must be from {self.least} to {self.most}{multiple}, not {value}")
        return int(value)


@dataclass(frozen=True)
class ReadyMade:
    """A program that can be made."""

    source: str
    summary: str
    dtypes: tuple[str, ...] = ()
    default: str = ""
    kinds: tuple[str, ...] = BLOCK
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    defines: sizes.Defines = lambda _dtype, _values: {}
    family: str = ""
    twin: str = ""  # the function that does it in NumPy; that of the program's name if empty
    by_task: bool = False
    paper: str = ""
    flags: tuple[str, ...] = ()


_DISKS = {"disks": Parameter(4, 2, 8, what="inputs")}
_DATA = {"disks": Parameter(4, 2, 8, what="data disks")}
_BLOCK_BYTES = {"block_bytes": Parameter(4096, 8, 1 << 20, 8, "bytes of a block")}
_ROW = {"row_bytes": Parameter(64, 1, 1 << 14, what="bytes of a row")}
_UNSIGNED = ("uint8", "uint16", "uint32")
_WIDTH = {"width": Parameter(5, 1, 32, what="bits of an element")}
# Where Clang's vectors cost more than they gain in the native form (RISC-V has none here): words that have to
# leave a vector again for each step, and loops whose body is a whole record.
_WORDS_ALONE = ("-fno-slp-vectorize",)
_RECORDS_ALONE = ("-fno-vectorize",)
_TESTED = {
    "inputs": Parameter(("int32", "bool", "float64"), what="dtypes of the arrays"),
    "scalars": Parameter(("int32",), what="dtypes of the scalars"),
    "where": Parameter(
        (
            "or",
            ("and", ("flag", 1), ("<", ("input", 0), ("scalar", 0))),
            (">", ("*", ("input", 2), ("const", 0.5)), ("const", 1.0)),
        ),
        what="the test, a tree of tuples",
    ),
}
_ALL_FIELDS = ("int", "skip", "decimal2", "date", "float", "bytes8")


def _statistic(source: str, summary: str, **more: Any) -> ReadyMade:
    return ReadyMade(source, summary, NUMBERS, "float64", BOTH, family="statistics", paper=ASSASIN, **more)


def _aes(mode: int, summary: str) -> ReadyMade:
    defines = {"MODE": mode}
    return ReadyMade(
        "aes128.c",
        summary,
        kinds=BOTH,
        defines=lambda _d, _v: defines,
        family="ciphers",
        paper=ASSASIN,
        flags=_WORDS_ALONE,
    )


def _op(name: str, summary: str, *, inputs: int = 1) -> ReadyMade:
    return ReadyMade(
        "elementwise.c",
        summary,
        FLOATS,
        "float64",
        parameters={"dsp": Parameter(0, 0, 2, what="1: as libraries of signal processors have it; 2: in pairs, too")},
        defines=lambda _d, values: {"OP": name, "ARITY": inputs, "DSP_FORM": values["dsp"]},
        family="elementwise",
        paper=CODEN,
    )


def _ordered(source: str, summary: str, **more: Any) -> ReadyMade:
    return ReadyMade(source, summary, NUMBERS, "float64", family="ordered", **more)


PROGRAMS: dict[str, ReadyMade] = {
    "sum": _statistic("sum.c", "the sum of all elements", twin="sum_", by_task=True),
    "mean": _statistic("sum.c", "the mean of all elements", defines=lambda _d, _v: {"MEAN": 1}, by_task=True),
    "stat": ReadyMade(
        "stat.c",
        "the sum of 32-bit integers in 32 bits",
        kinds=BOTH,
        family="statistics",
        paper=ASSASIN,
    ),
    "minmax": _statistic("minmax.c", "the least and the greatest element"),
    "variance": _statistic("variance.c", "the variance of all elements", by_task=True),
    "histogram": _statistic(
        "histogram.c",
        "how many elements are in each of equal bins",
        parameters={"bins": Parameter(256, 1, 4095, what="bins")},
        defines=sizes.histogram,
    ),
    "filter": ReadyMade(
        "filter.c",
        "the elements from low to high",
        NUMBERS,
        "float64",
        BOTH,
        family="rows",
        twin="filter_",
        paper=ASSASIN,
    ),
    "filter_index": ReadyMade(
        "filter.c",
        "the numbers of the elements from low to high",
        NUMBERS,
        "float64",
        BOTH,
        defines=lambda _d, _v: {"WANT": 1},
        family="rows",
        paper=ASSASIN,
    ),
    "filter_rows": ReadyMade(
        "filter_rows.c",
        "the rows with an element from low to high",
        NUMBERS,
        "int64",
        BOTH,
        {**_ROW, "offset": Parameter(0, 0, 1 << 14, what="where the element is in the row")},
        sizes.filter_rows,
        family="rows",
        paper=ASSASIN,
    ),
    "merge": _ordered("merge.c", "two sorted arrays as one"),
    "search": _ordered("search.c", "places of sorted values in a sorted array"),
    "lookup": _ordered("search.c", "places of values in a sorted array", defines=lambda _d, _v: {"WHOLE": 1}),
    "join": _ordered("join.c", "equal elements of two sorted arrays"),
    "select": ReadyMade(
        "select.c",
        "some columns of each row",
        kinds=BOTH,
        parameters={**_ROW, "columns": Parameter(((0, 8),), what="(offset, bytes) of each column")},
        defines=sizes.select_,
        family="rows",
        paper=ASSASIN,
    ),
    "parse": ReadyMade(
        "parse.c",
        "lines of delimited text as binary rows",
        kinds=BOTH,
        parameters={"fields": Parameter(_ALL_FIELDS, what="kinds of the fields")},
        defines=sizes.parse_,
        family="text",
        paper=ASSASIN,
    ),
    "psf": ReadyMade(
        "psf.c",
        "parse, select, filter: wanted fields of the lines that pass a test",
        kinds=BOTH,
        parameters={
            "fields": Parameter(("int", "skip", "decimal32_2", "date", "bytes8"), what="kinds of the fields"),
            "columns": Parameter((0, 2, 4), what="numbers of the fields to keep"),
            "where": Parameter((), what="the test, a tree of tuples"),
            "delimiter": Parameter(ord("|"), 1, 127, what="the byte between fields"),
            "line_bytes": Parameter(4096, 1, 1 << 20, what="bytes of a line, at most"),
            "listing": Parameter(0, 0, 1, what="1: a stream program that never asks for its end"),
            "quote": Parameter(0, 0, 127, what="the byte around quoted fields; 0: there are none"),
            "quoted_ends": Parameter(0, 0, 1, what="1: ends of lines may be quoted"),
            "null": Parameter((), what="what missing values are written as"),
        },
        defines=psf_,
        family="text",
        paper=ASSASIN,
    ),
    "rows": ReadyMade(
        "rows.c",
        "the numbers of the elements that pass a test of up to eight arrays",
        parameters=_TESTED,
        defines=rows_,
        family="rows",
    ),
    "rows_fold": ReadyMade(
        "rows_fold.c",
        "counts, sums, least and greatest values of the elements that pass a test",
        parameters={
            **_TESTED,
            "folds": Parameter(
                (
                    ("count", ("true",)),
                    ("sum", ("flag", 1), ("input", 0)),
                    ("sum", ("true",), ("input", 2)),
                    ("max", ("flag", 1), ("input", 0)),
                    ("min", ("true",), ("input", 2)),
                ),
                what="what is computed, tuples",
            ),
        },
        defines=folds_,
        family="rows",
        by_task=True,
    ),
    "raid4_encode": ReadyMade(
        "xor.c",
        "the parity of data disks",
        (),
        "",
        BOTH,
        _DATA,
        sizes.xor("raid4_encode"),
        "coding",
        "xor",
        paper=ASSASIN,
    ),
    "raid4_rebuild": ReadyMade(
        "xor.c",
        "a lost disk from those left",
        (),
        "",
        BOTH,
        _DISKS,
        sizes.xor("raid4_rebuild"),
        "coding",
        "xor",
        paper=ASSASIN,
    ),
    "raid5_encode": ReadyMade(
        "raid5.c",
        "data on disks with a rotating parity",
        parameters={
            "disks": Parameter(4, 3, 8, what="disks, parity included"),
            "chunk_bytes": Parameter(4096, 8, 1 << 20, 8, "bytes of a chunk"),
        },
        defines=sizes.raid5,
        family="coding",
        twin="raid5",
        paper=VARVE,
    ),
    "raid5_rebuild": ReadyMade(
        "xor.c",
        "a lost disk from those left",
        (),
        "",
        BOTH,
        _DISKS,
        sizes.xor("raid5_rebuild"),
        "coding",
        "xor",
        paper=VARVE,
    ),
    "raid6_encode": ReadyMade(
        "raid6.c",
        "the parities P and Q of data disks",
        (),
        "",
        BOTH,
        _DATA,
        sizes.disks,
        "coding",
        "raid6",
        paper=ASSASIN,
    ),
    "raid6_rebuild": ReadyMade(
        "raid6_rebuild.c",
        "two lost disks from those left",
        parameters=_DATA,
        defines=sizes.disks,
        family="coding",
        paper=ASSASIN,
    ),
    "aes128_encrypt": _aes(0, "AES-128 of each block of 16 bytes"),
    "aes128_decrypt": _aes(1, "its inverse"),
    "aes128_ctr": _aes(2, "AES-128 in counter mode; encrypts and decrypts"),
    "lz4_decompress": ReadyMade(
        "lz4.c",
        "blocks of LZ4, decompressed",
        parameters={"expansion": Parameter(255, 1, 255, what="bytes out for a byte in, at most")},
        defines=lambda _d, values: {"EXPANSION": values["expansion"]},
        family="blocks",
        paper=ASSASIN,
    ),
    "deduplicate": ReadyMade(
        "deduplicate.c",
        "a hash (XXH64) of each block",
        parameters=_BLOCK_BYTES,
        defines=sizes.blocks,
        family="blocks",
        paper=ASSASIN,
    ),
    "sha256": ReadyMade(
        "sha256.c",
        "SHA-256 of each block",
        parameters=_BLOCK_BYTES,
        defines=sizes.blocks,
        family="blocks",
        paper=ASSASIN,
        flags=_WORDS_ALONE,
    ),
    "crc32c": ReadyMade(
        "crc32c.c",
        "CRC-32C of each block",
        parameters=_BLOCK_BYTES,
        defines=sizes.blocks,
        family="blocks",
    ),
    "replicate": ReadyMade(
        "replicate.c",
        "copies of the data",
        kinds=BOTH,
        parameters={"copies": Parameter(3, 1, 8, what="how many")},
        defines=sizes.copies,
        family="coding",
        paper=ASSASIN,
    ),
    "wal_replay": ReadyMade(
        "wal_replay.c",
        "pages brought up to date from a write-ahead log",
        parameters={"page_bytes": Parameter(4096, 16, 1 << 20, 8, "bytes of a page")},
        defines=lambda _d, values: {"PAGE_BYTES": values["page_bytes"]},
        family="blocks",
        paper=ASSASIN,
    ),
    "bitpack": ReadyMade(
        "bitpack.c",
        "the lowest bits of each element, packed",
        _UNSIGNED,
        "uint32",
        BOTH,
        _WIDTH,
        lambda dtype, values: sizes.width(dtype, values, packs=True),
        "packing",
        paper=VARVE,
        flags=_RECORDS_ALONE,
    ),
    "bitunpack": ReadyMade(
        "bitunpack.c",
        "elements from packed bits",
        _UNSIGNED,
        "uint32",
        BOTH,
        _WIDTH,
        lambda dtype, values: sizes.width(dtype, values, packs=False),
        "packing",
        paper=VARVE,
        flags=_RECORDS_ALONE,
    ),
    "kmeans_assign": ReadyMade(
        "kmeans.c",
        "the nearest centroid of each point",
        FLOATS,
        "float64",
        parameters={"dims": Parameter(2, 1, 1 << 12, what="coordinates of a point")},
        defines=sizes.kmeans,
        family="algebra",
        paper=NDS,
    ),
    "bfs_scan": ReadyMade("bfs.c", "a level of a breadth-first search", family="graph", paper=NDS),
    "pagerank_step": ReadyMade("pagerank.c", "what edges bring to vertices", family="graph", by_task=True, paper=NDS),
    "matvec": ReadyMade(
        "matvec.c",
        "a matrix times a vector",
        (*FLOATS, "int32", "int64"),
        "float64",
        parameters={"columns": Parameter(64, 1, 1 << 20, what="of the matrix")},
        defines=sizes.matvec,
        family="algebra",
        paper="FlashAbacus",
    ),
    "conv2d": ReadyMade(
        "conv2d.c",
        "images under a kernel",
        (*FLOATS, "int32"),
        "float64",
        parameters={
            "height": Parameter(64, 1, 1 << 14, what="of an image"),
            "width": Parameter(64, 1, 1 << 14, what="of an image"),
            "kernel_height": Parameter(3, 1, 64, what="of the kernel"),
            "kernel_width": Parameter(3, 1, 64, what="of the kernel"),
        },
        defines=sizes.conv2d,
        family="algebra",
        paper="FlashAbacus",
    ),
    "network": ReadyMade(
        "network.c",
        "inference of a small convolutional network",
        ("int32", "uint8"),
        "int32",
        parameters={
            "side": Parameter(28, 4, 256, what="of an image"),
            "filters": Parameter(32, 1, 256, what="of the convolution"),
            "classes": Parameter(10, 1, 256, what="of the result"),
        },
        defines=sizes.network,
        family="algebra",
        paper=VARVE,
    ),
    "add": _op("add", "a + b", inputs=2),
    "sub": _op("sub", "a - b", inputs=2),
    "mult": _op("mult", "a * b", inputs=2),
    "multi": _op("multi", "a * factor, a scalar"),
    "scan": _op("scan", "a == b, 0 or 1", inputs=2),
    "div": _op("div", "a / b", inputs=2),
    "recip": _op("recip", "1 / a"),
    "atan2": _op("atan2", "the angle of (b, a)", inputs=2),
    "atan": _op("atan", "arc tangent"),
    "cos": _op("cos", "cosine"),
    "exp10": _op("exp10", "10 to the power of a"),
    "exp2": _op("exp2", "2 to the power of a"),
    "exp": _op("exp", "e to the power of a"),
    "log10": _op("log10", "logarithm of base 10"),
    "log2": _op("log2", "logarithm of base 2"),
    "log": _op("log", "natural logarithm"),
    "pow": _op("pow", "a to the power of b", inputs=2),
    "rsqrt": _op("rsqrt", "1 / square root of a"),
    "sin": _op("sin", "sine"),
    "sqrt": _op("sqrt", "square root"),
}
