"""The functions of Figure 7.12 and the scans of Figure 7.13: programs with their inputs, by name.

Stat, RAID4, RAID6 and AES run over random bytes of any size; scans over the first bytes of TPC-H's tables, cut behind a
line. RAID has four data disks, which the dissertation does not state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import nandarray
from nandarray import programs
from nandarray.interop.tables import Column, lowered
from nandarray_papers.tpch.data import files
from nandarray_papers.tpch.scans import SCANS, Scan
from nandarray_papers.tpch.schema import NARROW

__all__ = ["FUNCTIONS", "Work", "function", "scan", "scan_names", "touch"]

FUNCTIONS = ("Stat", "RAID4", "RAID6", "AES")
_DISKS = 4
_MakeProgram = Callable[[str, str], Any]


@dataclass(frozen=True)
class Work:
    """A program with its inputs.

    ``make`` takes the form (block or stream) and the target, and gives the program. ``task_bytes`` are those of all
    inputs that a task has: a half of a ping-pong scratchpad, whole pages of each input.
    """

    name: str
    make: _MakeProgram
    inputs: Sequence[np.ndarray[Any, Any]]
    scalars: Mapping[str, Any] = field(default_factory=dict)
    task_bytes: int = 64 << 10
    is_text: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of all inputs."""
        return sum(one.nbytes for one in self.inputs)


def _named(name: str, **parameters: Any) -> _MakeProgram:
    return lambda kind, target: programs.get(name, kind=kind, target=target, **parameters)


def function(name: str, size: int, seed: int) -> Work:
    """Return one of :data:`FUNCTIONS`, of Figure 7.12, with inputs of ``size`` bytes in all."""
    data = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    disks = np.split(data[: size // (64 * _DISKS) * (64 * _DISKS)], _DISKS)
    return {
        "Stat": lambda: Work(name, _named("stat"), [data[: size // 4 * 4].view(np.int32)]),
        "RAID4": lambda: Work(name, _named("raid4_encode", disks=_DISKS), disks),
        "RAID6": lambda: Work(name, _named("raid6_encode", disks=_DISKS), disks),
        "AES": lambda: Work(
            name,
            _named("aes128_encrypt"),
            [data[: size // 16 * 16]],
            dict(zip(_KEY, (seed + 1, seed + 2), strict=True)),
        ),
    }[name]()


_KEY = ("key_low", "key_high")


def touch(size: int, seed: int) -> Work:
    """Return the dummy workload of section 7.3.4: each byte of input is loaded, at one byte a cycle."""
    data = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    return Work("scan", lambda _kind, target: _touch(target), [data])


_TOUCH = """
#include <nandarray.h>
ND_PROGRAM("name": "touch", "kind": "stream", "inputs": [{"name": "x", "dtype": "uint8"}], "outputs": [])
int64_t nd_stream(nd_args *args) {
    (void)args;
    while (!nd_at_end(0))
        _Pragma("clang loop unroll_count(256)") for (size_t n = nd_wait(0, 4096); n; n--) (void)nd_load_u8(0);
    return 0;
}
"""


@cache
def _touch(target: str) -> Any:
    return nandarray.Program.from_c(_TOUCH, target=target)


def scan_names() -> list[str]:
    """Return the names of the scans, the second of two equal ones left out."""
    return [one.name for one in SCANS if not one.name.endswith("b")]


def scan(name: str, size: int, scale: float, folder: str | None = None, *, listing: bool = False) -> Work:
    """Return one of :func:`scan_names`, of Figure 7.13, with at most ``size`` bytes of its table's text.

    ``scale`` is TPC-H's scale factor, ``folder`` that of the files; with ``listing`` the stream form is that of Listing
    7.1.
    """
    one: Scan = next(one for one in SCANS if one.name == name)
    path = files(scale, None if folder is None else Path(folder), [one.table])[one.table]
    with path.open("rb") as file:
        text = np.frombuffer(file.read(size), np.uint8)
    text = text[: int(np.flatnonzero(text == ord("\n"))[-1]) + 1]
    columns = [Column(*pair) for pair in NARROW[one.table].items()]
    numbers = [at for at, column in enumerate(columns) if column.name in one.columns]
    parameters = {
        "fields": tuple(column.field for column in columns),
        "columns": tuple(numbers),
        "where": lowered(one.where.tree, columns),
    }
    return Work(
        name,
        lambda kind, target: programs.get(
            "psf", kind=kind, target=target, listing=int(listing and kind == "stream"), **parameters
        ),
        [text],
        # A line may make a task longer.
        task_bytes=60 << 10,
        is_text=True,
    )
