"""Memory of a read beside the buffer that it fills.

A process opens the store, makes and touches a buffer as large as the array and reads all of it in one call; another
process watches its memory the whole time. *Private* memory (anonymous) is what the read needs; *mapped* memory is the
page cache seen through a mapping, which the kernel takes back whenever it likes. The promise speaks of the first.
"""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from . import systems
from .data import ArraySpec, make_truth
from .patterns import Box
from .worker import SystemFailedError, Worker

_SHAPES = {"full": (16384, 16384), "quick": (8192, 8192), "tiny": (300, 260)}


@dataclass(frozen=True)
class Measured:
    """Peak growth of memory while one system read one array, in bytes."""

    system: str
    array: int
    private: int
    mapped: int
    seconds: float


def _status(pid: int) -> tuple[int, int]:
    """Return (anonymous, file-backed and shared) resident bytes of a process."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssFile", "RssShmem"):
            found[name] = int(value.split()[0]) * 1024
    return found["RssAnon"], found["RssFile"] + found["RssShmem"]


def _child(pipe: Connection, label: str, folder: Path, spec: ArraySpec) -> None:
    system = systems.make(label, folder, spec)
    system.open()
    out = np.ones(spec.shape, np.float32)
    small = Box((0,) * out.ndim, (1,) * out.ndim)
    system.read(small, np.empty(small.count, np.float32))  # imports and thread pools are not the read's
    pipe.send("ready")
    pipe.recv()
    begin = time.perf_counter()
    system.read(Box((0,) * out.ndim, spec.shape), out)
    pipe.send(time.perf_counter() - begin)
    pipe.recv()


def watch(child: Callable[..., None], *asked: object) -> tuple[Any, int, int]:
    """Run ``child(pipe, *asked)`` in a process and watch its memory.

    The child reports that it is ready, waits, works, sends its result, waits and ends. Returned are the result and the
    most bytes by which private and mapped memory grew while it worked.

    Raises
    ------
    SystemFailedError
        The process died.
    """
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=child, args=(theirs, *asked), daemon=True)
    process.start()
    theirs.close()
    try:
        pipe.recv()
        assert process.pid is not None
        before = _status(process.pid)
        private, mapped = before
        pipe.send("go")
        while not pipe.poll(0.002):
            now = _status(process.pid)
            private, mapped = max(private, now[0]), max(mapped, now[1])
        result = pipe.recv()
        pipe.send("end")
    except (EOFError, OSError, KeyError) as error:
        raise SystemFailedError("the process died while it was measured") from error
    finally:
        process.join(30)
    return result, private - before[0], mapped - before[1]


def _watch(label: str, folder: Path, spec: ArraySpec) -> Measured:
    seconds, private, mapped = watch(_child, label, folder, spec)
    return Measured(label, spec.nbytes, private, mapped, seconds)


def measure(folder: Path, labels: tuple[str, ...], size: str) -> list[Measured]:
    """Measure every system that can run; the data is removed behind each."""
    spec = ArraySpec(_SHAPES[size])
    truth = make_truth(spec, folder / "truth")
    found = []
    for label in labels:
        reason = systems.missing(label)
        if reason is not None or not systems.info(label).stores:
            if reason:
                print(f"skipping {label}: {reason}")
            continue
        place = folder / "memory" / label.replace("/", "-").replace(":", "-")
        writer = Worker(label, place, spec, truth)
        try:
            writer.ask("full_write")
            writer.ask("release")
            found.append(_watch(label, place, spec))
        except SystemFailedError as error:
            print(f"{label} failed: {error}")
        finally:
            writer.stop()
            shutil.rmtree(place, ignore_errors=True)
    truth.unlink(missing_ok=True)
    return found
