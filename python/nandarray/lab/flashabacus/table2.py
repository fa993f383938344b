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

    Attributes
    ----------
    kernel : str
        Its name in :data:`nandarray.programs.kernels.NAMES`.
    paper : str
        Its name in the paper.
    microblocks, serial : int
        Microblocks, and those of them without screens.
    input_MB : int
        Megabytes of the inputs of an instance.
    load_store : float
        Per cent of the instructions that load or store.
    bytes_per_ki : float
        Bytes of input for a thousand instructions.
    mixes : tuple of int
        Numbers of the mixes that it is in.
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
    """Return the kernels of a workload in the order of submission.

    Parameters
    ----------
    workload : str
        A mix, which has four instances of each of its kernels, in turn; or a kernel, which has six instances.

    Returns
    -------
    list of str
        A kernel's name for each instance.

    Raises
    ------
    InvalidError
        There is no such workload.
    """
    if workload in MIXES:
        return [*MIXES[workload]] * MIX_INSTANCES
    if any(one.kernel == workload for one in WORKLOADS):
        return [workload] * ALONE_INSTANCES
    known = [*MIXES, *(one.kernel for one in WORKLOADS)]
    raise InvalidError(f"there is no workload {workload!r}; there is {', '.join(known)}")
