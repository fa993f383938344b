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
    """Return the number (uint32) of each point's nearest centroid; points and centroids have ``dims`` coordinates.

    Of equal distances the first counts; NaN is never nearer; 0 if there is none.
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
    """Multiply each row of ``columns`` elements with a vector; column j goes to lane j mod 8.

    Products are of the matrix' dtype, int64 (wrapping) for integers. A vector of another length is an InvalidError.
    """
    if len(vector) != columns:
        raise InvalidError(f"the vector must have {columns} elements, as rows have, not {len(vector)}")
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
    """Slide a kernel over images of floats, or int32 (wrapping); "valid", not flipped.

    Images of ``height - kernel_height + 1`` x ``width - kernel_width + 1`` are returned, flat.
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

    Images have ``side`` x ``side`` pixels, int32 or uint8. The weights, int32, are kernels, their biases, the dense
    layer, its biases: ``c/network.c`` has the order. Features are shifted right by ``shift``. Values (int32, flat) and
    the number of each image's greatest one (uint32) are returned.
    """
    half = (side - 2) // 2
    features, reach = filters * half * half, 2 * half
    sizes = np.cumsum([9 * filters, filters, features * classes, classes])
    if len(weights) != sizes[-1]:
        raise InvalidError(f"there must be {sizes[-1]} weights, not {len(weights)}")
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
