"""The analytical model of VarVE-full (Zou, section 8.3.7): how many elements fit a datapath, from widths of values.

An operation on two values takes as many bits of the datapath as Table 8.3 says, rounded up to the alignment. Elements
are taken one after the other while their bits fit; so the number of elements of a cycle is at least ``n`` if the bits
of ``n`` operations fit, whose distribution is a convolution. It is computed exactly, without sampling.

Not modelled: loads, stores, strip mining, latencies. Elements are independent of each other.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import numpy as np

from nandarray.errors import InvalidError

__all__ = ["Operation", "elements_per_cycle", "operation_bits", "speedup"]

#: Probabilities of widths in bits.
Widths = Mapping[int, float]

_SUM_SLACK = 1e-9
#: Mass of a distribution below which further elements change no digit.
_NEGLIGIBLE = 1e-15


class Operation(enum.Enum):
    """An operation, by the width that Table 8.3 gives its result."""

    ADD = "add"
    """Addition and subtraction: one bit more than the wider value."""
    MULTIPLY = "multiply"
    """Multiplication: the sum of the widths."""
    LOGICAL = "logical"
    """Logical operations and comparisons: the wider value."""

    def bits(self, left: int, right: int) -> int:
        """Return the width of an operation on values of these widths, before alignment."""
        match self:
            case Operation.ADD:
                return max(left, right) + 1
            case Operation.MULTIPLY:
                return left + right
            case Operation.LOGICAL:
                return max(left, right)


def operation_bits(left: Widths, right: Widths, operation: Operation, align_bits: int) -> dict[int, float]:
    """Return the probabilities of the datapath bits that one operation takes.

    ``left`` and ``right`` are probabilities of the operands' widths in bits, which sum to 1. ``align_bits`` is the
    granularity of the alignment, w in the paper: 8 in its hardware, 1 at the finest. A negative width, other sums and
    an alignment that is not positive are an InvalidError.
    """
    if align_bits < 1:
        raise InvalidError(f"an alignment must be at least 1 bit, not {align_bits} bits")
    for name, widths in (("left", left), ("right", right)):
        if any(width < 0 for width in widths) or any(p < 0 for p in widths.values()):
            raise InvalidError(f"{name} operand: widths and probabilities are not negative: {dict(widths)}")
        if abs(sum(widths.values()) - 1) > _SUM_SLACK:
            raise InvalidError(f"{name} operand: probabilities sum to {sum(widths.values())}, not to 1")
    found: dict[int, float] = {}
    for i, p in left.items():
        for j, q in right.items():
            bits = -(-operation.bits(i, j) // align_bits) * align_bits
            found[bits] = found.get(bits, 0.0) + p * q
    return found


def elements_per_cycle(bits: Widths, datapath_bits: int = 256, most: int = 4096) -> float:
    """Return the mean number of elements of a cycle, from the probabilities of :func:`operation_bits`.

    Elements that take no bits are bounded by ``most``. An operation that can be wider than the datapath is an
    InvalidError.
    """
    widest = max(width for width, p in bits.items() if p > 0)
    if widest > datapath_bits:
        raise InvalidError(f"an operation takes {widest} bits, the datapath has {datapath_bits}")
    # Probability of each number of bits taken so far, over all cases that still fit.
    taken = np.zeros(datapath_bits + 1)
    taken[0] = 1.0
    mean = 0.0
    for _ in range(most):
        following = np.zeros_like(taken)
        for width, p in bits.items():
            following[width:] += p * taken[: datapath_bits + 1 - width]
        taken = following
        fits = float(taken.sum())
        mean += fits
        if fits < _NEGLIGIBLE:
            break
    return mean


def speedup(bits: Widths, fixed_bits: int, datapath_bits: int = 256) -> float:
    """Return elements a cycle over those of vectors whose elements all have a fixed width: 8, 16, 32 or 64 bits.

    The probabilities are of :func:`operation_bits`; both datapaths have the same width.
    """
    return elements_per_cycle(bits, datapath_bits) / (datapath_bits // fixed_bits)
