"""Many writers with MPI: rank 0 begins and commits a transaction, all ranks write to parts of their own.

Run it as ``mpiexec -n 4 python examples/many_mpi.py STORE``, with the store on a file system that all ranks share.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from nandarray import parts

ROWS, STEP = 256, 32


def work(fork: parts.Fork, rank: int, ranks: int) -> list[parts.Receipt]:
    """Write every box whose turn it is, by one writer."""
    with fork.writer() as writer:
        return [
            writer.write("cube", np.s_[row : row + STEP], np.full((STEP, 512), rank, "f4"))
            for row in range(rank * STEP, ROWS, ranks * STEP)
        ]


def main(path: Path) -> None:
    """Make an array with all ranks, as one version."""
    comm = MPI.COMM_WORLD
    store = tx = fork = None
    if comm.rank == 0:
        store = parts.create(path)
        store.create("cube", (ROWS, 512), "f4", shards=(STEP, 512), building_block=(STEP, 512))
        tx = store.transaction("by MPI")
        fork = tx.fork()
    receipts = comm.gather(work(comm.bcast(fork), comm.rank, comm.size))
    if store is not None and tx is not None:
        tx.merge(one for some in receipts for one in some)
        tx.commit()
        tx.close()
        print(comm.size, "ranks, version", store.version, "first column", sorted(set(store["cube"][:, 0].tolist())))
        store.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
