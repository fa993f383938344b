"""Warps that fetch for themselves from several modelled devices over one link, and a CPU that submits for them.

A recording of accesses (``nandarray_papers.bam`` makes them with the header for kernels) passes through described
devices, their links, one shared link, queue pairs and slices that execute atomics.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nandarray import _nandarray
from nandarray.device import Description

__all__ = ["Accesses", "fetches"]


@dataclass(frozen=True)
class Accesses:
    """A recording.

    Attributes
    ----------
    rows : numpy.ndarray
        [accesses, 6] uint32, sorted: phase, task, group, kind (0 touch, 1 write behind, 2 write), fetch, atomics.
    addresses : numpy.ndarray
        [fetches] uint64: first byte of each.
    bytes : numpy.ndarray
        [fetches] uint32: size of each.
    counts : mapping
        Counts of the recorded kernel: phases, elements, touches, atomics, reads, writes, checksum.
    """

    rows: np.ndarray[Any, np.dtype[np.uint32]]
    addresses: np.ndarray[Any, np.dtype[np.uint64]]
    bytes: np.ndarray[Any, np.dtype[np.uint32]]
    counts: Mapping[str, int]


def fetches(
    devices: Sequence[Description], platform: Mapping[str, Any], accesses: Accesses, seed: int = 0
) -> dict[str, Any]:
    """Let a recording pass through a platform.

    Parameters
    ----------
    devices : sequence of Description
        The drives; addresses are striped over them.
    platform : mapping
        Every value of the platform: ``bam/platform.toml`` of nandarray-papers has names, units and sources.
    accesses : Accesses
        The recording.
    seed : int
        Seed of the devices' random generators.

    Returns
    -------
    dict
        The report: seconds, requests and bytes each way, atomics, shares of time in which parts were busy.

    Raises
    ------
    InvalidError
        A platform, a device or a recording that cannot be.
    """
    texts = [device.to_toml() for device in devices]
    rows = np.ascontiguousarray(accesses.rows, np.uint32).reshape(-1)
    addresses = np.ascontiguousarray(accesses.addresses, np.uint64)
    sizes = np.ascontiguousarray(accesses.bytes, np.uint32)
    report = _nandarray.fetch_run(texts, json.dumps(dict(platform)), rows, addresses, sizes, seed)
    return dict(json.loads(report))
