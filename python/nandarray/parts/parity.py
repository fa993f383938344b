"""Parity of files: what several files of different lengths give together, and one or two of them from the rest.

A file is taken as if zeros followed it up to the longest. One parity is RAID-4's exclusive or, two are RAID-6's P and
Q. They are computed by the library's programs (``raid4_encode``, ``raid6_encode`` and those that rebuild), which run
over bands of the files. Which files belong together is :mod:`nandarray.parts.protection`'s matter.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from nandarray import programs
from nandarray.programs import run

__all__ = ["DATA_MAX", "encode", "rebuild", "sha256_of"]

#: Most files that have parity together: as many as the programs take.
DATA_MAX = 8
_BAND_BYTES = 8 << 20


def sha256_of(path: str) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _band(files: Sequence[str | None], at: int, size: int) -> list[np.ndarray[Any, Any]]:
    """Return the bytes of files from a place on; zeros where there are none."""
    found = []
    for path in files:
        band = np.zeros(size, np.uint8)
        if path is not None:
            with open(path, "rb") as file:
                file.seek(at)
                data = np.frombuffer(file.read(size), np.uint8)
            band[: len(data)] = data
        found.append(band)
    return found


def _each(program: Any, files: Sequence[str | None], length: int, into: Sequence[str], **scalars: int) -> None:
    """Run a program over bands of files, and write its outputs to files, durably."""
    made = [open(path, "xb") for path in into]  # noqa: SIM115 (closed below, all of them)
    try:
        for at in range(0, length, _BAND_BYTES):
            size = -(-min(_BAND_BYTES, length - at) // 8) * 8
            outputs = run.offload(program, _band(files, at, size), scalars).outputs
            for file, output in zip(made, outputs.values(), strict=True):
                file.write(np.asarray(output))
        for file in made:
            file.flush()
            os.fsync(file.fileno())
    finally:
        for file in made:
            file.close()


def encode(files: Sequence[str | None], length: int, into: Sequence[str]) -> None:
    """Write the parity of files, one or two; ``length`` is that of the longest, None stands for an empty file."""
    name = "raid4_encode" if len(into) == 1 else "raid6_encode"
    _each(programs.get(name, disks=len(files)), files, length, into)


def rebuild(files: Sequence[str | None], lost: Sequence[int], data: int, length: int, into: Sequence[str]) -> None:
    """Write files that are lost.

    ``files`` are ``data`` of data, then the parities, with None for an empty file; ``lost`` are the places of those
    that are lost, at most as many as there are parities.
    """
    if len(files) == data + 1:
        left = [path for at, path in enumerate(files) if at not in lost]
        _each(programs.get("raid4_rebuild", disks=len(left)), left, length, into)
        return
    other = next(at for at in range(len(files)) if at not in lost)
    both = sorted(lost if len(lost) == 2 else [*lost, other])  # noqa: PLR2004
    left = [path for at, path in enumerate(files) if at not in both]
    extra = [f"{into[0]}.other"] if len(lost) == 1 else []
    wanted = dict(zip(sorted(lost), into, strict=True))
    ordered = [wanted[at] if at in wanted else extra[0] for at in both]
    try:
        _each(programs.get("raid6_rebuild", disks=data), left, length, ordered, a=both[0], b=both[1])
    finally:
        for path in extra:
            if os.path.exists(path):
                os.unlink(path)
