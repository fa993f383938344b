"""The analytical model of VarVE agrees with counting, and the carries of Table 8.4 with sums of integers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from nandarray.errors import InvalidError
from nandarray_papers.experiments.varve_model import line_numbers, raid5, widths_of
from nandarray_papers.varve import Operation, elements_per_cycle, speedup
from nandarray_papers.varve.carry import BYTES_MOST, add, byte_ids, carry_in
from nandarray_papers.varve.model import operation_bits


@pytest.mark.parametrize("align", [1, 2, 8])
@pytest.mark.parametrize("operation", list(Operation))
def test_the_convolution_is_what_drawing_elements_gives(align: int, operation: Operation) -> None:
    left, right = {1: 0.2, 3: 0.5, 7: 0.3}, {0: 0.1, 2: 0.6, 12: 0.3}
    bits = operation_bits(left, right, operation, align)
    assert sum(bits.values()) == pytest.approx(1)
    random = np.random.default_rng(5)
    drawn = random.choice(list(bits), p=list(bits.values()), size=(20_000, 300))
    counted = (np.cumsum(drawn, axis=1) <= 256).sum(axis=1).mean()
    assert elements_per_cycle(bits) == pytest.approx(counted, rel=0.01)


def test_one_width_fills_the_datapath() -> None:
    for width in (1, 3, 8, 100, 256):
        assert elements_per_cycle({width: 1.0}) == pytest.approx(256 // width)
    assert elements_per_cycle({0: 1.0}, most=77) == 77
    assert speedup({8: 1.0}, 32) == pytest.approx(4)


def test_line_numbers_are_those_of_tpc_h() -> None:
    assert widths_of(line_numbers()) == pytest.approx({1: 7 / 28, 2: 11 / 28, 3: 10 / 28})
    assert raid5(8, 2, 256)["over_fixed"] == pytest.approx(4)
    rows = [raid5(align, 2, 256)["over_fixed"] for align in (8, 4, 2, 1)]
    assert rows == sorted(rows)


def test_widths_that_cannot_be_are_refused() -> None:
    good = {1: 1.0}
    for left, align in (({1: 0.5}, 8), ({-1: 1.0}, 8), (good, 0)):
        with pytest.raises(InvalidError):
            operation_bits(left, good, Operation.ADD, align)
    with pytest.raises(InvalidError, match="300 bits, the datapath has 256"):
        elements_per_cycle({300: 1.0})


def test_every_carry_is_that_of_a_ripple() -> None:
    """All states of the seven adders below: a carry is killed, propagated or generated."""
    for number in range(BYTES_MOST):
        for states in itertools.product("kpg", repeat=number):
            carry = False
            for state in states:  # from the lowest adder up
                carry = state == "g" or (state == "p" and carry)
            nearest = states[::-1]
            assert carry_in(number, [s == "g" for s in nearest], [s == "p" for s in nearest]) == carry
    assert byte_ids([2, 1, 3]) == [0, 1, 0, 0, 1, 2]


def test_sums_of_all_partitions_of_eight_bytes() -> None:
    """All ways to cut a word of eight bytes into elements, with operands that carry over many bytes."""
    operands = [bytes(8), b"\xff" * 8, b"\x01" + bytes(7), bytes(range(251, 255)) * 2, b"\x80\x7f" * 4, b"\xff\x00" * 4]
    for cuts in range(2**7):
        ends = [at + 1 for at in range(7) if cuts >> at & 1] + [8]
        sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        for left, right in itertools.product(operands, repeat=2):
            out, at = b"", 0
            for size in sizes:
                a, b = (int.from_bytes(one[at : at + size], "little") for one in (left, right))
                out += ((a + b) % 256**size).to_bytes(size, "little")
                at += size
            assert add(left, right, sizes) == out
    with pytest.raises(InvalidError, match="an element must have from 1 to 8 bytes, not 9"):
        add(bytes(9), bytes(9), [9])
