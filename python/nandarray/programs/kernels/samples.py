"""Data for the ready-made kernels: inputs of any size from a seed, and the size whose inputs have a number of bytes.

Every extent that a kernel names is the size, or the size and a little more where rectangles are requested; the few
extents of another kind are constants here. Values keep results within the range of single precision: away from zero,
and diagonally dominant where a kernel divides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.programs import kernels

__all__ = ["Sample", "extents", "input_bytes", "sample", "size_of"]

#: Kernel -> extents that do not grow with the size.
_FIXED = {
    "fdtd": {"t": 4},
    "nn": {"k": 3},
    "nw": {"m": 24, "q": 17},
    "path": {"rows": 12, "columns": 31},
    "wc": {"width": 64},
}
#: Edges of a vertex.
_DEGREE = 3


@dataclass(frozen=True)
class Sample:
    """Data for one run of a kernel.

    ``inputs`` are the arrays that it reads, and those that it updates, by name; ``shapes`` are of all sections, those
    of its results among them; ``results`` are names of the sections that are results.
    """

    inputs: dict[str, np.ndarray[Any, Any]]
    scalars: dict[str, int]
    shapes: dict[str, tuple[int, ...]]
    results: tuple[str, ...]

    @property
    def input_bytes(self) -> int:
        """Bytes of its inputs."""
        return sum(array.nbytes for array in self.inputs.values())


def extents(name: str, size: int, *, square: bool = True) -> dict[str, int]:
    """Return the extents that a kernel names, for a size of 4 at least.

    The size is of the side of a matrix; of applications, the number of points, vertices, sequences, grids or lines. If
    not ``square``, each side is 2 larger than the one named before it. A smaller size and an unknown kernel are an
    InvalidError.
    """
    if size < 4:  # noqa: PLR2004
        raise InvalidError(f"the size of a sample must be at least 4, not {size}")
    found: dict[str, int] = {}
    for section in kernels.get(name).sections:
        for extent in section["shape"]:
            if isinstance(extent, str) and extent not in found:
                found[extent] = _FIXED.get(name, {}).get(extent, size if square else size + 2 * len(found))
    return found | ({"v": size, "v1": size + 1, "e": _DEGREE * size} if name == "bfs" else {})


def _shapes(name: str, size: int, *, square: bool) -> dict[str, tuple[int, ...]]:
    known = extents(name, size, square=square)
    return {
        one["name"]: tuple(known[e] if isinstance(e, str) else e for e in one["shape"])
        for one in kernels.get(name).sections
    }


def input_bytes(name: str, size: int) -> int:
    """Return the bytes of a kernel's inputs of a size: of what it reads, and of what it updates."""
    shapes, kernel = _shapes(name, size, square=True), kernels.get(name)
    return sum(math.prod(shapes[one["name"]]) * one["item_bytes"] for one in _given(kernel))


def size_of(name: str, wanted: int) -> int:
    """Return the size whose inputs come nearest to a number of bytes."""
    low, high = 4, 8
    while input_bytes(name, high) < wanted:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if input_bytes(name, middle) < wanted else (low, middle)
    return min((low, high), key=lambda size: abs(input_bytes(name, size) - wanted))


def sample(name: str, size: int, seed: int = 0, *, square: bool = False) -> Sample:
    """Make data for a kernel.

    Parameters
    ----------
    name : str
        Name of a kernel.
    size : int
        As for :func:`extents`.
    seed : int
        Seed of the random generator.
    square : bool
        Whether all sides are the size.

    Returns
    -------
    Sample
        The same for the same arguments.

    Raises
    ------
    InvalidError
        There is no such kernel, or the size is below 4.
    """
    kernel, shapes, rng = kernels.get(name), _shapes(name, size, square=square), np.random.default_rng([seed, size])
    if name in _APPLICATIONS:
        inputs = _APPLICATIONS[name](shapes, rng)
    else:
        inputs = {one["name"]: rng.uniform(0.5, 1.5, shapes[one["name"]]).astype("f4") for one in _given(kernel)}
    if name == "adi":
        inputs["A"] *= np.float32(0.1)
    table = kernel.table
    results = tuple(one["name"] for one in table["outputs"] if not one.get("temporary"))
    scalars = {one["name"]: _FIXED["fdtd"]["t"] - 2 for one in table["scalars"]}
    return Sample(inputs, scalars, shapes, results)


def _given(kernel: Any) -> list[dict[str, Any]]:
    """Return the sections that are filled before a kernel runs: those that it reads, and those that it updates."""
    table = kernel.table
    return [*table["inputs"], *(one for one in table["outputs"] if one.get("update"))]


Shapes = dict[str, tuple[int, ...]]
Arrays = dict[str, np.ndarray[Any, Any]]


def _nn(shapes: Shapes, rng: np.random.Generator) -> Arrays:
    return {name: rng.uniform(0.5, 1.5, shapes[name]).astype("f4") for name in ("points", "query")}


def _bfs(shapes: Shapes, rng: np.random.Generator) -> Arrays:
    # Vertex u leads to 2u + 1 and 2u + 2, so that all are reached from 0, and to any one; then all change names.
    vertices = shapes["level"][0]
    u = np.arange(vertices)
    ends = np.stack([(2 * u + 1) % vertices, (2 * u + 2) % vertices, rng.integers(0, vertices, vertices)], 1)
    names = rng.permutation(vertices)
    edges = np.empty_like(ends)
    edges[names] = names[ends]
    first = _DEGREE * np.arange(vertices + 1)
    return {"first": first.astype("i4"), "edges": edges.reshape(-1).astype("i4"), "start": names[:1].astype("i4")}


def _nw(shapes: Shapes, rng: np.random.Generator) -> Arrays:
    letters = np.frombuffer(b"ACGT", "u1")
    return {name: rng.choice(letters, shapes[name]) for name in ("sequences", "query")}


def _path(shapes: Shapes, rng: np.random.Generator) -> Arrays:
    return {"grids": rng.integers(0, 9, shapes["grids"]).astype("i4")}


def _wc(shapes: Shapes, rng: np.random.Generator) -> Arrays:
    return {"text": rng.choice(np.frombuffer(b"abcde  \n\t", "u1"), shapes["text"])}


_APPLICATIONS: dict[str, Callable[[Shapes, np.random.Generator], Arrays]] = {
    "nn": _nn,
    "bfs": _bfs,
    "nw": _nw,
    "path": _path,
    "wc": _wc,
}
