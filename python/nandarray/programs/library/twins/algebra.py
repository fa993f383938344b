"""Twins of ``kmeans_assign``, ``matvec``, ``conv2d`` and ``network``, added up in the programs' order."""

from __future__ import annotations

from typing import Any

import numpy as np

from nandarray.errors import InvalidError

__all__ = ["conv2d", "kmeans_assign", "matvec", "network"]

Array = np.ndarray[Any, Any]
LANES = 8


@np.errstate(all="ignore")
def kmeans_assign(points: Array, centroids: Array, *, dims: int = 2) -> tuple[Array]:
    """Return the number of each point's nearest centroid.

    Parameters
    ----------
    points, centroids : numpy.ndarray
        ``dims`` coordinates each.
    dims : int
        Coordinates.

    Returns
    -------
    tuple of one numpy.ndarray, uint32
        Of equal distances the first; NaN is never nearer; 0 if there is none.
    """
    wide, centres = (array.reshape(-1, dims).astype(np.float64) for array in (points, centroids))
    nearest, label = np.full(len(wide), np.inf), np.zeros(len(wide), np.uint32)
    for number, centre in enumerate(centres):
        distance = np.zeros(len(wide))
        for axis in range(dims):
            off = wide[:, axis] - centre[axis]
            distance = distance + off * off
        nearer = distance < nearest
        nearest[nearer], label[nearer] = distance[nearer], number
    return (label,)


@np.errstate(all="ignore")
def matvec(matrix: Array, vector: Array, *, columns: int = 64) -> tuple[Array]:
    """Multiply each row with a vector; column j goes to lane j mod 8.

    Parameters
    ----------
    matrix : numpy.ndarray
        Rows of ``columns``.
    vector : numpy.ndarray
        ``columns`` elements.
    columns : int
        How many.

    Returns
    -------
    tuple of one numpy.ndarray
        A product a row: of the matrix' dtype, int64 (wrapping) for integers.

    Raises
    ------
    InvalidError
        The vector has another length.
    """
    if len(vector) != columns:
        raise InvalidError(f"the vector has {len(vector)} elements, rows have {columns}")
    kind = matrix.dtype if matrix.dtype.kind == "f" else np.dtype(np.int64)
    rows, wide = matrix.reshape(-1, columns).astype(kind), vector.astype(kind)
    lane = np.zeros((LANES, len(rows)), kind)
    for column in range(columns):
        lane[column % LANES] += rows[:, column] * wide[column]
    return (((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7])),)


@np.errstate(all="ignore")
def conv2d(
    images: Array, kernel: Array, *, height: int = 64, width: int = 64, kernel_height: int = 3, kernel_width: int = 3
) -> tuple[Array]:
    """Slide a kernel over images; "valid", not flipped.

    Parameters
    ----------
    images, kernel : numpy.ndarray
        Floats, or int32 (wrapping).
    height, width, kernel_height, kernel_width : int
        Their shapes.

    Returns
    -------
    tuple of one numpy.ndarray
        Images of ``height - kernel_height + 1`` x ``width - kernel_width + 1``, flat.
    """
    stack, weights = images.reshape(-1, height, width), kernel.reshape(kernel_height, kernel_width)
    rows, columns = height - kernel_height + 1, width - kernel_width + 1
    total = np.zeros((len(stack), rows, columns), images.dtype)
    for i in range(kernel_height):
        for j in range(kernel_width):
            total = total + stack[:, i : i + rows, j : j + columns] * weights[i, j]
    return (total.reshape(-1),)


@np.errstate(all="ignore")
def network(
    images: Array, weights: Array, shift: int = 8, *, side: int = 28, filters: int = 32, classes: int = 10
) -> tuple[Array, Array]:
    """Convolve with 3 x 3, cut at zero, take the maximum of 2 x 2, shift, multiply with a dense layer; all in int32.

    Parameters
    ----------
    images : numpy.ndarray, int32 or uint8
        Of ``side`` x ``side`` pixels.
    weights : numpy.ndarray, int32
        Kernels, their biases, the dense layer, its biases: ``c/network.c`` has the order.
    shift : int
        By how much features are shifted right.
    side, filters, classes : int
        The shape.

    Returns
    -------
    tuple of two numpy.ndarray
        Values (int32, flat), and the number of each image's greatest one (uint32).
    """
    half = (side - 2) // 2
    features, reach = filters * half * half, 2 * half
    sizes = np.cumsum([9 * filters, filters, features * classes, classes])
    if len(weights) != sizes[-1]:
        raise InvalidError(f"there are {len(weights)} weights; the network has {sizes[-1]}")
    kernels, bias, dense, dense_bias = np.split(weights, sizes[:-1])
    stack = images.reshape(-1, side, side).astype(np.int32)
    total = np.zeros((len(stack), filters, reach, reach), np.int32)
    for number in range(9):
        i, j = divmod(number, 3)
        pixel = stack[:, None, i : i + reach, j : j + reach]
        total += pixel * kernels.reshape(filters, 9)[None, :, number, None, None]
    total += bias[None, :, None, None]
    pooled = total.reshape(len(stack), filters, half, 2, half, 2).max(axis=(3, 5))
    made = np.maximum(pooled, 0) >> shift
    values = made.reshape(-1, features) @ dense.reshape(features, classes) + dense_bias
    return values.reshape(-1), values.argmax(axis=1).astype(np.uint32)
