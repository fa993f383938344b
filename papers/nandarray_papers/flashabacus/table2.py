"""Table 2 of the FlashAbacus paper, read from ``table2.toml``: each kernel's cells, and the mixes that it is in.

Nothing here is measured.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from nandarray.errors import InvalidError

__all__ = ["MIXES", "WORKLOADS", "Workload", "instances"]

#: Section 5.1: instances of each kernel of a mix, and of a kernel that runs alone.
MIX_INSTANCES, ALONE_INSTANCES = 4, 6


@dataclass(frozen=True)
class Workload:
    """A row of Table 2.

    ``kernel`` is its name in :data:`nandarray.programs.kernels.NAMES`, ``paper`` that in the paper. Of its
    ``microblocks``, the ``serial`` ones are without screens. ``input_MB`` are megabytes of an instance; ``load_store``
    is per cent of the instructions; ``bytes_per_ki`` are bytes of input for a thousand instructions. ``mixes`` has the
    numbers of those that it is in.
    """

    kernel: str
    paper: str
    microblocks: int
    serial: int
    input_MB: int  # noqa: N815 - the paper's unit
    load_store: float
    bytes_per_ki: float
    mixes: tuple[int, ...]


def _read() -> tuple[Workload, ...]:
    rows = tomllib.loads(Path(__file__).with_name("table2.toml").read_text())["workload"]
    return tuple(Workload(**{**row, "mixes": tuple(row["mixes"])}) for row in rows)


#: The rows, in the paper's order.
WORKLOADS = _read()

#: Name of a mix -> the kernels that it has, in the order of the table. MX5 has five in the text.
MIXES = {f"MX{mix}": tuple(one.kernel for one in WORKLOADS if mix in one.mixes) for mix in range(1, 15)}


def instances(workload: str) -> list[str]:
    """Return the kernels of a workload in the order of submission; an unknown one is an InvalidError.

    A mix has four instances of each of its kernels, in turn; a kernel has six instances.
    """
    if workload in MIXES:
        return [*MIXES[workload]] * MIX_INSTANCES
    if any(one.kernel == workload for one in WORKLOADS):
        return [workload] * ALONE_INSTANCES
    known = [*MIXES, *(one.kernel for one in WORKLOADS)]
    raise InvalidError(f"there is no workload {workload!r}; there is {', '.join(known)}")
