"""Time of a small program from a new process to its first result: nothing cached, then cached.

Each time is of a process of its own, which opens a store, writes 1000 elements, decorates a function, or has text in C
compiled, and offloads it.
Cold is with an empty cache of programs; Python's own files are compiled (``.pyc``) and the system's caches are warm, as
after any earlier run. Numba beside it compiles the same function for the host, cold and from its own cache.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

_HEAD = """
import time
started = time.perf_counter()
import math
import numpy as np
"""
_OURS = """
import nandarray
imported = time.perf_counter()
store = nandarray.open("data.nand", mode="w")
store["x"] = np.arange(1000.0)
@nandarray.program(inputs="float64")
def function(x):
    return {body}
asked = time.perf_counter()
found = store["x"].offload(function)
"""
_OURS_C = """
import nandarray
imported = time.perf_counter()
store = nandarray.open("data.nand", mode="w")
store["x"] = np.arange(1000.0)
def function(x):
    return {body}
asked = time.perf_counter()
program = nandarray.Program.from_c('''
#include <math.h>
#include <nandarray.h>
ND_PROGRAM("name": "function", "kind": "block", "inputs": [{{"name": "x", "dtype": "float64"}}],
           "outputs": [{{"name": "y", "dtype": "float64"}}])
int64_t nd_block(nd_args *args) {{
    const double *from = ND_INPUT(args, 0, double);
    double *to = ND_OUTPUT(args, 0, double);
    size_t n = ND_INPUT_COUNT(args, 0, double);
    for (size_t i = 0; i < n; i++) {{
        double x = from[i];
        to[i] = {c};
    }}
    ND_SET_USED(args, 0, n, double);
    return 0;
}}
''')
found = store["x"].offload(program)
"""
_NUMBA = """
import numba
imported = time.perf_counter()
x = np.arange(1000.0)
def function(x):
    return {body}
asked = time.perf_counter()
found = numba.vectorize(["float64(float64)"], cache=True)(function)(x)
"""
_TAIL = """
done = time.perf_counter()
assert abs(float(found[3]) - function(3.0)) < 1e-12
print(imported - started, done - imported, done - asked)
"""
BODIES = {"arithmetic": "2 * x + 1", "<math.h>": "math.log10(x + 1) + math.exp(-x)"}
SYSTEMS = {"nandarray": _OURS, "nandarray, from C": _OURS_C, "Numba, for the host": _NUMBA}


def text(what: str, function: str) -> str:
    """Return the program of a row: a system's, with a function of :data:`BODIES`."""
    body = BODIES[function]
    return _HEAD + SYSTEMS[what].format(body=body, c=body.replace("math.", "")) + _TAIL


@dataclass(frozen=True)
class Row:
    """Medians of some processes, in seconds."""

    what: str
    function: str
    state: str
    import_s: float
    result_s: float
    offload_s: float
    process_s: float


def measure(rounds: int) -> list[Row]:
    """Measure all of it.

    Parameters
    ----------
    rounds : int
        Processes for each row.

    Returns
    -------
    list of Row
        For each system and function a row cold and one cached.
    """
    rows = []
    with TemporaryDirectory(prefix="nandarray-bench-") as compiled:
        for what in SYSTEMS:
            for name in BODIES:
                cold, cached = [], []
                for number in range(rounds + 1):
                    with TemporaryDirectory(prefix="nandarray-bench-") as folder:
                        (Path(folder) / "program.py").write_text(text(what, name))
                        first, again = (_once(Path(folder), compiled) for _ in range(2))
                    if number:  # the first one warms the system's caches
                        cold.append(first)
                        cached.append(again)
                for state, times in (("cold", cold), ("cached", cached)):
                    rows.append(
                        Row(what, name, state, *(statistics.median(column) for column in zip(*times, strict=True)))
                    )
    return rows


def _once(folder: Path, compiled: str) -> tuple[float, ...]:
    import time

    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"NANDARRAY_CACHE": str(folder / "cache"), "PYTHONPYCACHEPREFIX": compiled}
    begin = time.perf_counter()
    words = [sys.executable, "program.py"]
    ran = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    took = time.perf_counter() - begin
    imported, result, offload = map(float, ran.stdout.split())
    return imported, result, offload, took
