"""The loops that NumPy has no expression for, compiled by Numba. Blocks are C-contiguous, [rows, columns].

Operations of one NumPy or BLAS call are not here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["UNREACHED", "count_links", "expand", "heat", "pull", "relax"]

Array = np.ndarray[Any, Any]

#: Distance of a vertex that no path leads to.
UNREACHED = np.iinfo(np.int64).max


@njit(nogil=True)
def expand(rows: Array, first: int, frontier: Array, level: Array, depth: int) -> bool:
    """Set the level of the frontier's neighbours (in rows ``first``...) that have none; return whether any was set."""
    found = False
    for i in range(rows.shape[0]):
        if frontier[first + i]:
            for j in range(rows.shape[1]):
                if rows[i, j] != 0 and level[j] < 0:
                    level[j] = depth
                    found = True
    return found


@njit(nogil=True)
def relax(columns: Array, first: int, distance: Array, out: Array) -> bool:
    """Relax every edge into the vertices of columns ``first``...; tell if a distance fell."""
    fell = False
    for i in range(columns.shape[0]):
        base = distance[i]
        if base == UNREACHED:
            continue
        for j in range(columns.shape[1]):
            weight = columns[i, j]
            if weight != 0 and base + weight < out[first + j]:
                out[first + j] = base + weight
                fell = True
    return fell


@njit(nogil=True)
def count_links(rows: Array, first: int, out: Array) -> None:
    """Count the links out of the vertices of rows ``first``..., but for those to themselves."""
    for i in range(rows.shape[0]):
        count = 0
        for j in range(rows.shape[1]):
            if rows[i, j] != 0 and j != first + i:
                count += 1
        out[first + i] = count


@njit(nogil=True)
def pull(columns: Array, first: int, share: Array, out: Array) -> None:
    """Sum the shares of those who link to the vertices of columns ``first``..., but for themselves."""
    for j in range(columns.shape[1]):
        out[first + j] = 0.0
    for i in range(columns.shape[0]):
        for j in range(columns.shape[1]):
            if columns[i, j] != 0 and i != first + j:
                out[first + j] += share[i]


@njit(nogil=True)
def heat(temperature: Array, power: Array, coefficients: tuple[float, float, float, float]) -> Array:
    """Advance temperatures by one time step; at the edges, a neighbour outside has the cell's own temperature."""
    per_xy, per_z, step, ambient = coefficients
    rows, columns = temperature.shape
    out = np.empty_like(temperature)
    for i in range(rows):
        up, down = max(i - 1, 0), min(i + 1, rows - 1)
        for j in range(columns):
            left, right = max(j - 1, 0), min(j + 1, columns - 1)
            here = temperature[i, j]
            flow = (
                power[i, j]
                + (temperature[down, j] + temperature[up, j] - 2.0 * here) * per_xy
                + (temperature[i, right] + temperature[i, left] - 2.0 * here) * per_xy
                + (ambient - here) * per_z
            )
            out[i, j] = here + step * flow
    return out
