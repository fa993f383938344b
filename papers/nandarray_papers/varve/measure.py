"""One run of a generated program on the core of the dissertation's section 8.3.1, and what it has to give.

A run's outputs are compared with NumPy's, so that no figure is of a program that computes something else.
Inputs of up to 1 MiB each are one task. :data:`BESIDE` is the place of the data in the dissertation author's public
workloads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import nandarray
from nandarray import Program
from nandarray.errors import NandarrayError

__all__ = ["BESIDE", "CORE", "FORMS", "TARGETS", "compiled", "isa", "measure"]

#: Scalar code, V, VarVE-pup, VarVE-full.
FORMS = ("scalar", "v", "pup", "full")
#: gem5's ex5_LITTLE with a vector unit of 256 bits.
CORE = "ex5-varve"
#: Changes of the core: all data in a memory that answers as fast as a hit of the first-level cache. The author's public
#: workloads (github.com/zinechant/simdstor, ``include/salloc.hh``) keep inputs, outputs and what lies between in a
#: stream buffer of one cycle that passes the caches by, 64 bytes a cycle, without prefetchers (``gem5.sh``).
BESIDE: Mapping[str, Any] = {
    "l1d": "none",
    "l2": "none",
    "prefetch_l2": "none",
    "scratchpad": "256MiB",
    "vector.memory_bits": 512,
}
#: Instruction set by form: the three vector forms alone have vectors.
TARGETS = {"scalar": "rv64", "v": "rv64gcv", "pup": "rv64gcv", "full": "rv64gcv"}

Arrays = Sequence[np.ndarray[Any, Any]]


def isa(register_bits: int) -> str:
    """Return the architecture of a core with vector registers of that length, and VarVE."""
    return f"rv64gcv_zba_zbb_zbs_zvl{register_bits}b_xvarve"


def compiled(text: str, form: str) -> Program:
    """Compile a program's text for its form."""
    return Program.from_c(text, target=TARGETS[form])


def measure(
    program: Program, inputs: Arrays, wanted: Arrays | None, changes: Mapping[str, Any] | None = None, core: str = CORE
) -> Any:
    """Run a program on a described core, with changes of its description, and compare its outputs, if some are wanted.

    Another output is a NandarrayError; the figures, a ``nandarray.programs.timing.Timed``, are returned.
    """
    with (
        TemporaryDirectory(prefix="nandarray-varve-") as folder,
        nandarray.open(Path(folder) / "columns.nand", "w") as store,
    ):
        arrays = [store.create(f"c{i}", data=data) for i, data in enumerate(inputs)]
        found = program.time(arrays, core=core, changes=changes)
        outputs = found.offloaded.outputs.values()
        for i, (one, right) in enumerate(zip(outputs, wanted, strict=True) if wanted is not None else ()):
            if not np.array_equal(np.asarray(one).reshape(-1), np.asarray(right).reshape(-1)):
                raise NandarrayError(f"output {i} of {program.name} is not what NumPy gives")
    return found
