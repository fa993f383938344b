"""Kernels on a modelled accelerator: FlashAbacus' platform under its four schedulers, and a conventional host.

A kernel is a phantom: cycles and bytes of its microblocks. :func:`fitted` measures a real one on a timed core at two
reduced sizes and scales by trip counts; :func:`run` lets phantoms pass through workers, flash and links.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray import _nandarray
from nandarray.errors import InvalidError
from nandarray.programs.ports import bits

if TYPE_CHECKING:
    from nandarray.programs.kernel import Kernel

__all__ = ["Block", "Phantom", "costs", "fitted", "run"]


@dataclass(frozen=True)
class Block:
    """A microblock of a phantom.

    Attributes
    ----------
    screens : int
        The most screens; 1 is serial.
    cycles : float
        Cycles of the whole block on one core.
    bytes_in : int
        Bytes from flash.
    bytes_dram : int
        Bytes between caches and memory.
    """

    screens: int
    cycles: float
    bytes_in: int
    bytes_dram: int = 0


@dataclass(frozen=True)
class Phantom:
    """A kernel as phantom calls.

    Attributes
    ----------
    name : str
        Its name.
    bytes : int
        Bytes of its inputs.
    microblocks : tuple of Block
        Its microblocks.
    application : int
        The application that it belongs to.
    priority : int
        Kernels with a higher one come first.
    bytes_out : int
        Bytes of its outputs, which go to flash.
    arrives_ns : int
        The time at which it is submitted.
    deadline : int or None
        Deadline, for schedulers that use one.
    work : int
        The same: its expected work.
    """

    name: str
    bytes: int
    microblocks: tuple[Block, ...]
    application: int = 0
    priority: int = 0
    bytes_out: int = 0
    arrives_ns: int = 0
    deadline: int | None = None
    work: int = 0

    def of(self, application: int) -> Phantom:
        """Return the same kernel of another application."""
        return replace(self, application=application)


def run(kernels: Sequence[Phantom], scheduler: str, platform: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Run phantom kernels, each submitted when it arrives.

    Parameters
    ----------
    kernels : sequence of Phantom
        Kernels in the order of submission.
    scheduler : str
        A scheduler's name, or ``"simd"``: the conventional host, one kernel at a time on all workers.
    platform : mapping, optional
        Values in place of those of Table 1; rates are bytes a second, times end in ``_ns``, powers in ``_w``.

    Returns
    -------
    dict
        The `report <../reference/accelerator.html>`_: ``seconds`` until the last kernel ended and ``flushed_seconds``
        until its outputs were in flash, ``bytes``, ``bytes_out``, ``kernels`` (waiting, storage, compute, transfer,
        latency, energy), ``utilisation`` and ``occupancy`` of workers, ``energy_movement``, ``energy_computation``,
        ``energy_storage`` in joules, ``flashvisor`` and ``storengine`` (their cores' busy shares),
        ``storengine_work``, ``fairness``, ``spans``, ``activity``.

    Raises
    ------
    InvalidError
        There is no such scheduler, or a value cannot be.
    """
    said = [{**vars(one), "microblocks": [vars(block) for block in one.microblocks]} for one in kernels]
    text = _nandarray.accelerator_run(json.dumps(dict(platform or {})), scheduler, json.dumps(said))
    found: dict[str, Any] = json.loads(text)
    return found


def costs(
    kernel: Kernel, arrays: Mapping[str, Any], scalars: Mapping[str, float] | None = None, core: str = "lwp"
) -> list[tuple[float, int, int]]:
    """Run each microblock as one screen on a timed core.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    arrays : mapping
        Sample data of its inputs and updated sections.
    scalars : mapping, optional
        Numbers by name.
    core : str
        A preset of cores.

    Returns
    -------
    list of (float, int, int)
        Cycles, instructions and bytes of memory of each microblock.
    """
    numbers = [bits((scalars or {}).get(port["name"], 0), port) for port in kernel._table["scalars"]]
    found: list[tuple[float, int, int]] = kernel._native_kernel().cost(kernel._bytes_of(arrays), numbers, core)
    return found


def fitted(
    kernel: Kernel,
    sample: Callable[[int], tuple[Mapping[str, Any], Mapping[str, float]]],
    sizes: tuple[int, int],
    size: int,
    trips: Callable[[int], Sequence[float]],
    *,
    core: str = "lwp",
    read: Sequence[int] | None = None,
    caches: bool = True,
) -> Phantom:
    """Scale a kernel's cost from two reduced sizes to a full one.

    A size that is reduced alone is in another regime of the caches: a column that misses each time at full size stays
    in the first-level cache at the reduced one. So reduced sizes are the full one divided by powers of two, and run on
    a core whose data caches are divided by the same: a row or a column has the same share of a cache, and rows meet in
    the same sets.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    sample : callable
        Sample data and scalars for a size.
    sizes : (int, int)
        The reduced sizes; with ``caches``, the nearest that are the full one divided by a power of two.
    size : int
        The full one.
    trips : callable
        The trip count of each microblock's innermost loop for a size.
    core : str
        A preset of cores.
    read : sequence of int, optional
        Bytes from flash of each microblock at the full size; by default those of the inputs that it maps.
    caches : bool
        Whether caches are divided as the sizes are; not for kernels whose rows do not grow.

    Returns
    -------
    Phantom
        Cycles and memory's bytes a trip are those of the innermost loop and, once in a side's number of trips, of the
        loop around it; both follow from the measured points.

    Raises
    ------
    InvalidError
        The sizes have the same trip count.
    """
    cores = (core, core)
    if caches:
        (one, factor), (two, other) = (_reduced(size, wanted) for wanted in sizes)
        if one == two:
            two, other = max(1, size // (factor // 2 or 1)), max(1, factor // 2)
        sizes, cores = (one, two), (_smaller_caches(core, factor), _smaller_caches(core, other))
    small, large = (costs(kernel, *sample(one), core=text) for one, text in zip(sizes, cores, strict=True))
    counts = [trips(one) for one in (*sizes, size)]
    full = dict(
        zip((one["name"] for one in kernel.sections), kernel.shapes(_grown(kernel, sample, size, sizes)), strict=True)
    )
    nbytes = {one["name"]: int(np.prod(full[one["name"]])) * one["item_bytes"] for one in kernel.sections}
    sources = [one["name"] for one in kernel.sections if one in kernel._table["inputs"] or one.get("update")]
    blocks = []
    for number, table in enumerate(kernel._table["microblocks"]):
        a, b, wanted = (float(count[number]) for count in counts)
        if a == b:
            raise InvalidError(f"{kernel.name}: both sizes have {a:g} trips of microblock {number}")

        # Per trip: what the innermost loop costs, and what the loop around it does, once in n trips.
        def scaled(which: int, number: int = number, a: float = a, b: float = b, wanted: float = wanted) -> float:
            one, two = small[number][which] / a, large[number][which] / b
            around = (one - two) / (1 / sizes[0] - 1 / sizes[1])
            inner = one - around / sizes[0]
            return max(0.0, float(wanted * (inner + around / size)))

        used = sum(nbytes[name] for name in sources if name in table["reads"] or name in table["writes"])
        screens = 1 if table["screens"] == 1 else 1 << 20
        blocks.append(Block(screens, scaled(0), read[number] if read else used, int(scaled(2))))
    kept = [one["name"] for one in kernel._table["outputs"] if not one.get("temporary")]
    bytes_out = sum(nbytes[name] for name in kept)
    return Phantom(kernel.name, sum(nbytes[name] for name in sources), tuple(blocks), bytes_out=bytes_out)


def _reduced(size: int, wanted: int) -> tuple[int, int]:
    """Return the size divided by the power of two with which it comes nearest to a reduced one, and the power."""
    factor = 1 << max(0, round(math.log2(max(1.0, size / wanted))))
    return max(4, size // factor), factor


def _smaller_caches(core: str, factor: int) -> str:
    """Return a core's description with data caches divided by a power of two; a set is the least."""
    text = core if "\n" in core else _nandarray.core_text(core)
    described = _nandarray.core_describe(text, [])
    for level in ("l1d", "l2"):
        if (cache := described[level]) is not None:
            size, ways, line = cache
            smaller = max(ways * line, size // factor)
            head = f"[{level}]\nsize_bytes = "
            if f"{head}{size}\n" not in text:
                raise InvalidError(f"{core}: the description of {level} does not begin with size_bytes = {size}")
            text = text.replace(f"{head}{size}\n", f"{head}{smaller}\n")
    return text


def _grown(kernel: Kernel, sample: Any, size: int, sizes: tuple[int, int]) -> dict[str, tuple[int, ...]]:
    """Return shapes at the full size without making arrays: extents are linear in the size."""
    (one, _), (two, _) = sample(sizes[0]), sample(sizes[1])
    made = {}
    for name, array in one.items():
        pairs = zip(np.shape(array), np.shape(two[name]), strict=True)
        made[name] = tuple(a + (b - a) * (size - sizes[0]) // (sizes[1] - sizes[0]) for a, b in pairs)
    return made
