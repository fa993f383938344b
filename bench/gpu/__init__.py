"""Queues, cache and ``array<T>`` on a card of NVIDIA: ``python -m bench gpu``.

One command checks and measures all, within ten minutes. A card is found by its driver, the kernels of ``kernels.cu``
are compiled for its architecture, and a process of its own (``__main__.py``) goes through the steps, so that a kernel
that hangs costs the rows behind it and nothing else. Without a card every row says why it was not measured.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import checks, constants, loads
from .card import Card, NoCardError

__all__ = ["HEADER", "STEPS", "Row", "failed", "measure", "title"]

HEADER = ("part", "what", "result", "beside")
STEPS = (*checks.STEPS, *constants.STEPS, *loads.STEPS)
_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
#: Seconds of a run, with its compilation: less than ten minutes.
_LIMIT_S = 540.0
_FAILED = "FAILED"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    part: str
    what: str
    result: str = ""
    beside: str = "-"

    def text(self) -> list[str]:
        """Return its cells."""
        return [self.part, self.what, self.result.replace("|", "/"), self.beside.replace("|", "/")]


def _unmeasured(why: str) -> list[Row]:
    return [Row(step.part, what, f"not measured here ({why})") for step in STEPS for what in step.rows]


def failed(rows: list[Row]) -> bool:
    """Whether a check, or a step that should have given figures, failed."""
    return any(row.result.startswith(_FAILED) for row in rows)


class _NoKernelsError(Exception):
    """The kernels cannot be compiled here; the text says why."""


def _tool() -> Any:
    """Return the module of ``tools/cuda.py``, which finds or fetches a compiler."""
    spec = importlib.util.spec_from_file_location("cuda_tool", _ROOT / "tools" / "cuda.py")
    assert spec
    assert spec.loader
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def _compile(architecture: str, folder: Path) -> Path:
    """Compile the kernels for one architecture: a driver older than the compiler takes no PTX of it."""
    tool = _tool()
    home = tool.installed() or tool.toolkit(_ROOT / ".venv" / "cuda")
    if home is None:
        raise _NoKernelsError("no nvcc, and its wheels cannot be fetched")
    cubin = folder / "kernels.cubin"
    done = subprocess.run(
        tool.nvcc(home, architecture, _HERE / "kernels.cu", cubin), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise _NoKernelsError(f"nvcc for {architecture}: {done.stderr.strip().splitlines()[-1]}")
    return cubin


def title(card: Card | None) -> str:
    """Say on what a run was made."""
    return "No GPU." if card is None else f"{card.name}, {card.architecture}, driver for CUDA {card.driver}."


def measure(
    folder: Path, *, short: bool, driver: str = "libcuda.so.1", cubin: Path | None = None, limit_s: float = _LIMIT_S,
    say: Say = lambda text: None,
) -> tuple[str, list[Row]]:  # fmt: skip
    """Check and measure all that there is a card for.

    Parameters
    ----------
    folder : path
        Where stores are made.
    short : bool
        Small sizes.
    driver : str
        Library of the driver.
    cubin : path, optional
        Kernels that were compiled before.
    limit_s : float
        Seconds until rows are given up.
    say : callable
        Hears of the progress.

    Returns
    -------
    str
        On what the run was made.
    list of Row
        Every row of the table.
    """
    began = time.monotonic()
    try:
        card = Card(driver)
    except NoCardError as error:
        return title(None), _unmeasured(str(error))
    if shutil.which("g++") is None:
        return title(card), _unmeasured("no g++")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix="gpu-") as made:
        try:
            kernels = cubin or _compile(card.architecture, Path(made))
        except _NoKernelsError as error:
            return title(card), _unmeasured(str(error))
        command = [
            sys.executable,
            "-m",
            "bench.gpu",
            made,
            str(kernels.resolve()),
            driver,
            *(["--short"] if short else []),
        ]
        return title(card), _collect(command, began + limit_s, say)


def _collect(command: list[str], until: float, say: Say) -> list[Row]:
    """Run the steps in a process of their own, and take each row as it comes."""
    rows: list[Row] = []
    why = "the process of the steps ended"
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=_ROOT, start_new_session=True)
    try:
        for line in _lines(process, until):
            found = json.loads(line)
            if "lost" in found:
                why = found["lost"]
                continue
            rows.append(Row(**found))
            say("  ".join(rows[-1].text()))
    except TimeoutError:
        why = "its time was over"
    finally:
        # With the servers that it started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        assert process.stdout
        process.stdout.close()
        process.wait()
    return [*rows, *_unmeasured(why)[len(rows) :]]


def _lines(process: subprocess.Popen[bytes], until: float) -> Iterator[bytes]:
    """Give the lines of a process; TimeoutError when its time is over."""
    assert process.stdout
    descriptor, rest = process.stdout.fileno(), b""
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise TimeoutError
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            process.wait()
            return
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole


def outcome(step_rows: list[Row], results: list[tuple[str, str]]) -> list[Row]:
    """Put a step's results into its rows."""
    return [
        replace(row, result=result, beside=beside) for row, (result, beside) in zip(step_rows, results, strict=True)
    ]


def broken(step_rows: list[Row], why: str) -> list[Row]:
    """Say in a step's rows why it has no results."""
    return [replace(row, result=f"{_FAILED} ({why})") for row in step_rows]


def missing(step_rows: list[Row], why: str) -> list[Row]:
    """Say in a step's rows what is not here."""
    return [replace(row, result=f"not measured here ({why})") for row in step_rows]
