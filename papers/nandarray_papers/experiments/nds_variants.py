"""Sections 5.3.3 and 5.3.4 of the NDS paper: encryption and compression, a building block at a time.

The paper argues that both work with NDS as long as they work on building blocks, and measures neither. Here real bytes
are written to and read from spaces with each, under the clock: what comes back is compared, and rows, columns and
squares are timed. The device encrypts and compresses at line rate: engines of their own, which take no time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import nandarray
from nandarray.lab.experiment import Context, Experiment, Figure, Parameter, Result
from nandarray_papers.experiments.nds_fig9 import boxes_of
from nandarray_papers.nds import calibration

__all__ = ["EXPERIMENT", "VARIANTS", "field", "measure"]

#: Name -> compression, encrypted.
VARIANTS: dict[str, tuple[str | None, bool]] = {
    "plain": (None, False),
    "AES-256": (None, True),
    "LZ4": ("lz4+shuffle", False),
    "Zstandard": ("zstd+shuffle", False),
    "Zstandard, AES-256": ("zstd+shuffle", True),
}


def field(n: int, seed: int) -> np.ndarray[Any, Any]:
    """Make a smooth field of n x n doubles, waves by a seed, with a few significant digits, as measured data have."""
    a, b, c = np.random.default_rng(seed).random(3) * 20
    x = np.linspace(0, 1, n)
    waves: np.ndarray[Any, Any] = np.round(
        np.sin(a * x)[:, None] * np.cos(b * x)[None, :] + np.sin(c * (x[:, None] + x[None, :])), 3
    )
    return waves


def measure(variant: str, system: str, n: int, size: int, seed: int) -> list[dict[str, Any]]:
    """Write and read a field of side ``n`` in one of ``VARIANTS``; a row for each access.

    ``system``, ``"software NDS"`` or ``"hardware NDS"``, says who translates; ``size`` is rows, columns, or the side of
    what is read.
    """
    compression, encrypted = VARIANTS[variant]
    device = calibration.device(changes={"controller.spaces_in_device": system == "hardware NDS"})
    data, rows = field(n, seed), []
    with nandarray.open(device=device, mode="w", bytes_in="memory", placement="nds", seed=seed) as store:
        clock = store.clock
        key = bytes(range(32)) if encrypted else None
        array = store.create(
            "field",
            (n, n),
            "f8",
            building_block=calibration.BUILDING_BLOCK,
            compression=compression,
            encryption_key=key,
        )
        began = clock.now
        array[...] = data
        wrote = clock.now - began
        clock.settle()
        stored = array.stat()["bytes_stored"]
        row = {"variant": variant, "system": system, "stored_share": stored / data.nbytes}
        rows.append({**row, "access": "write", "GBps": data.nbytes / wrote / 1e9, "equal": True})
        for access in ("rows", "columns", "square"):
            boxes = boxes_of(access, n, size, 2)
            began, equal, nbytes = clock.now, True, 0
            for box in boxes:
                got = array[tuple(box)]
                equal &= bool(np.array_equal(got, data[tuple(box)]))
                nbytes += got.nbytes
            rows.append({**row, "access": access, "GBps": nbytes / (clock.now - began) / 1e9, "equal": equal})
    return rows


def run(context: Context) -> Result:
    """Measure every variant in both systems."""
    cases = [
        (variant, system, context["n"], context["size"], context.seed)
        for variant in VARIANTS
        for system in ("software NDS", "hardware NDS")
    ]
    rows = [row for some in context.map(measure, cases, "variants") for row in some]
    plain = {(row["system"], row["access"]): row["GBps"] for row in rows if row["variant"] == "plain"}
    for row in rows:
        row["over_plain"] = row["GBps"] / plain[row["system"], row["access"]]
    wrong = [f"{row['variant']}, {row['system']}, {row['access']}" for row in rows if not row["equal"]]
    return Result(
        tables={"variants": rows, "hardware": [row for row in rows if row["system"] == "hardware NDS"]},
        figures=[
            Figure(
                id="variants",
                title="Hardware NDS with encryption and compression: bandwidth over that without",
                kind="bar",
                table="hardware",
                x="access",
                y="over_plain",
                series="variant",
                y_label="times",
                caption="Compressed blocks have fewer pages to read and to program; the link carries plain elements.",
            )
        ],
        assumptions=[
            *calibration.ASSUMPTIONS,
            "Encryption and compression run at line rate in the device; on the host they cost nothing here either, "
            "which a real processor would not manage.",
            "The engine reads the pages of an encrypted or compressed block one by one, which software NDS pays for: a "
            "command each.",
            "The engine encrypts building blocks in frames of 32 KiB (AES-256-GCM-SIV), not in sections of 256 bits.",
        ],
        misfits=[f"bytes differ: {one}" for one in wrong],
    )


EXPERIMENT = Experiment(
    id="nds.variants",
    title="NDS, sections 5.3.3 and 5.3.4: encryption and compression",
    question="Do spaces of building blocks keep their bandwidth when blocks are encrypted or compressed?",
    run=run,
    parameters={
        "n": Parameter(4096, "side of the field of doubles", small=1024),
        "size": Parameter(512, "rows, columns, or side of what is read", small=256),
    },
    devices=("nds-prototype",),
    minutes=0.3,
)
