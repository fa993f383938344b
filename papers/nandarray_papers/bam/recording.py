"""Recordings: the recorder (``native/record.cpp``) is compiled once a machine and source, and called.

The recorder runs the header for kernels itself. Not here: passing a recording through a platform
(:mod:`nandarray.model.fetch`).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np

from nandarray.errors import InvalidError, NotFoundError
from nandarray.gpu import include
from nandarray.model.fetch import Accesses

__all__ = ["bulk", "compiler", "record"]

_NATIVE = Path(__file__).parent / "native"
#: Longjmp between fibres is what glibc's checks take for an error.
_FLAGS = ("-std=c++17", "-O2", "-w", "-U_FORTIFY_SOURCE", "-fno-sanitize=undefined")


def compiler() -> list[str]:
    """Return the command of a C++ compiler: ``$CXX``, one of the system, or Zig's; a NotFoundError without any."""
    for name in (os.environ.get("CXX", ""), "g++", "clang++", "c++"):
        if name and (found := shutil.which(name)):
            return [found]
    if util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "c++"]
    raise NotFoundError("no C++ compiler: install g++ or clang++, or `pip install ziglang`")


def _recorder() -> Path:
    """Compile the recorder, unless the same sources were compiled before."""
    sources = sorted([*_NATIVE.iterdir(), *(include() / "nandarray").iterdir()])
    command = [*compiler(), *_FLAGS, f"-I{include()}", f"-I{_NATIVE}", str(_NATIVE / "record.cpp")]
    digest = hashlib.sha256(repr(command).encode() + b"".join(path.read_bytes() for path in sources)).hexdigest()
    program = Path(tempfile.gettempdir()) / f"nandarray-record-{os.getuid()}-{digest[:16]}"
    if not program.exists():
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "record"
            done = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True, check=False)
            if done.returncode:
                raise InvalidError(f"the recorder does not compile: {done.stderr[:2000]}")
            # Another process may do the same: the last one to move wins, with the same program.
            part = program.with_suffix(f".{os.getpid()}")
            shutil.copy2(made, part)
            part.replace(program)
    return program


def record(what: str, how: str, *words: int | np.ndarray[Any, Any], warps: int = 64, lines: int = 1024) -> Accesses:
    """Record a kernel's accesses, the same for the same arguments; the head of ``record.cpp`` says what kernels do.

    ``how`` is its variant, ``words`` are its other arguments, of which an array is passed as a file. There are
    ``warps`` of 32 lanes that run in turn, and a cache of ``lines``.
    """
    program = _recorder()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        said = []
        for number, word in enumerate(words):
            if isinstance(word, np.ndarray):
                word.tofile(Path(folder) / f"input{number}")
            said.append(str(Path(folder) / f"input{number}") if isinstance(word, np.ndarray) else str(word))
        command = [str(program), what, how, str(warps), str(lines), str(out), *said]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InvalidError(f"the recording of {what} ended with {done.returncode}: {done.stderr[:1000]}")
        rows = np.fromfile(f"{out}.rows", np.uint32).reshape(-1, 6)
        addresses = np.fromfile(f"{out}.addresses", np.uint64)
        sizes = np.fromfile(f"{out}.bytes", np.uint32)
    return Accesses(rows, addresses, sizes, json.loads(done.stdout))


def bulk(requests: int, size: int, *, write: bool = False) -> Accesses:
    """Return requests of one size one after the other, as fio makes them: a task each, without a cache."""
    number = np.arange(requests, dtype=np.uint32)
    zero = np.zeros_like(number)
    kind = np.full_like(number, 2 if write else 0)
    rows = np.stack([zero, number, zero, kind, number, zero], axis=1)
    sizes = np.full(requests, size, np.uint32)
    return Accesses(rows, number.astype(np.uint64) * np.uint64(size), sizes, {"elements": requests})
