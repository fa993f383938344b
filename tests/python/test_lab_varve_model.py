"""VarVE's analytical model, packed columns, the network and the generated kernels beside slow and exact references."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nandarray.errors import InvalidError
from nandarray_papers.experiments import varve_filters, varve_kernels
from nandarray_papers.experiments.varve_model import raid5, widths_of
from nandarray_papers.experiments.varve_network import _widths
from nandarray_papers.varve import Operation, elements_per_cycle, speedup
from nandarray_papers.varve import filters as filters_module
from nandarray_papers.varve import network as network_module
from nandarray_papers.varve.carry import add, byte_ids, carry_in
from nandarray_papers.varve.filters import FILTERS, Filter, RowTest, packed, packed_bits, signed_widths
from nandarray_papers.varve.measure import isa
from nandarray_papers.varve.model import operation_bits
from nandarray_papers.varve.network import CLASSES, FEATURES, SIDE, Digits, Quantised
from nandarray_papers.varve.network import FILTERS as KERNELS
from nandarray_papers.varve.sources import Port, program, streams

INT64 = st.integers(-(2**63), 2**63 - 1)
EDGES = st.sampled_from([0, 1, -1, 2, -2, 127, -128, 128, 255, -129, 2**31 - 1, -(2**31), 2**62, -(2**62), 2**63 - 1])


@st.composite
def chances(draw: st.DrawFn, most: int = 12) -> dict[int, Fraction]:
    """Probabilities of widths, which sum to one exactly."""
    widths = draw(st.lists(st.integers(0, most), min_size=1, max_size=3, unique=True))
    shares = draw(st.lists(st.integers(1, 5), min_size=len(widths), max_size=len(widths)))
    return {width: Fraction(share, sum(shares)) for width, share in zip(widths, shares, strict=True)}


# --- the analytical model ---------------------------------------------------------------------------------------------


def expected_elements(bits: dict[int, Fraction], datapath: int) -> Fraction:
    """Mean number of elements that fit, by every sequence of draws in turn."""

    def more(left: int) -> Fraction:
        return sum((p * (1 + more(left - width)) for width, p in bits.items() if width <= left), Fraction(0))

    return more(datapath)


@given(bits=chances(), datapath=st.integers(12, 20))
def test_elements_of_a_cycle_are_the_mean_over_every_sequence(bits: dict[int, Fraction], datapath: int) -> None:
    wide = {max(3, width): Fraction(0) for width in bits}
    for width, p in bits.items():
        wide[max(3, width)] += p
    found = elements_per_cycle({width: float(p) for width, p in wide.items()}, datapath)
    assert found == pytest.approx(float(expected_elements(wide, datapath)), rel=1e-12)
    assert speedup({width: float(p) for width, p in wide.items()}, 4, datapath) == found / (datapath // 4)


@given(left=chances(), right=chances(), align=st.integers(1, 9), operation=st.sampled_from(list(Operation)))
def test_bits_of_an_operation_are_those_of_every_pair(
    left: dict[int, Fraction], right: dict[int, Fraction], align: int, operation: Operation
) -> None:
    wanted: dict[int, Fraction] = {}
    for (i, p), (j, q) in itertools.product(left.items(), right.items()):
        plain = {"add": max(i, j) + 1, "multiply": i + j, "logical": max(i, j)}[operation.value]
        at = math.ceil(Fraction(plain, align)) * align
        wanted[at] = wanted.get(at, Fraction(0)) + p * q
    floats = [{width: float(p) for width, p in one.items()} for one in (left, right)]
    found = operation_bits(*floats, operation, align)
    assert found == pytest.approx({width: float(p) for width, p in wanted.items()})


@given(st.integers(-300, 300), st.integers(-300, 300))
def test_widths_of_operations_hold_every_result(a: int, b: int) -> None:
    i, j = (int(signed_widths(np.array([one]))[0]) for one in (a, b))
    for operation, result in ((Operation.ADD, a + b), (Operation.MULTIPLY, a * b), (Operation.LOGICAL, a ^ b)):
        assert signed_widths(np.array([result]))[0] <= operation.bits(i, j), operation


def test_shares_that_are_no_probabilities_name_the_operand() -> None:
    good = {1: 1.0}
    for bad in ({1: 0.5, 2: 0.4}, {1: 1.0, 2: 1e-6}, {2: -0.5, 3: 1.5}, {-1: 1.0}, {}):
        with pytest.raises(InvalidError, match="left operand"):
            operation_bits(bad, good, Operation.ADD, 1)
        with pytest.raises(InvalidError, match="right operand"):
            operation_bits(good, bad, Operation.ADD, 1)
    assert elements_per_cycle({8: 1.0, 999: 0.0}) == 32, "a width that never comes is no width"
    with pytest.raises(InvalidError, match="a ByteID must be from 0 to 7, not 8"):
        carry_in(8, [True] * 8, [True] * 8)
    with pytest.raises(InvalidError, match="elements of 3 bytes, vectors of 3 and 2"):
        add(b"abc", b"ab", [1, 2])
    with pytest.raises(InvalidError, match="an element must have from 1 to 8 bytes, not 0"):
        byte_ids([1, 0])


@given(st.lists(st.integers(1, 8), min_size=1, max_size=6), st.integers(0, 2**32))
def test_sums_of_elements_stay_within_them(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = (rng.choice([0, 1, 127, 128, 255], sum(sizes)).astype(np.uint8).tobytes() for _ in range(2))
    out = add(left, right, sizes)
    at = 0
    for size in sizes:
        a, b, c = (int.from_bytes(one[at : at + size], "little") for one in (left, right, out))
        assert c == (a + b) % 256**size, (seed, size)
        at += size


@pytest.mark.parametrize("strips", [2, 3, 4])
@pytest.mark.parametrize("align", [1, 4, 8])
def test_parity_has_the_widths_of_every_combination_of_strips(strips: int, align: int) -> None:
    values = {k: Fraction(8 - k, 28) for k in range(1, 8)}
    cycles = Fraction(0)
    for done in range(1, strips):
        bits: dict[int, Fraction] = {}
        for drawn in itertools.product(values, repeat=done + 1):
            parity = 0
            for one in drawn[:-1]:
                parity ^= one
            width = -(-max(parity.bit_length(), drawn[-1].bit_length()) // align) * align
            bits[width] = bits.get(width, Fraction(0)) + math.prod(values[one] for one in drawn)
        cycles += 1 / Fraction(elements_per_cycle({width: float(p) for width, p in bits.items()}, 64))
    row = raid5(align, strips, 64)
    assert row["elements_per_cycle"] == pytest.approx(float((strips - 1) / cycles))
    assert row["over_fixed"] == row["elements_per_cycle"] / 2
    assert widths_of({0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25}) == {0: 0.25, 1: 0.25, 2: 0.5}


# --- packed columns ---------------------------------------------------------------------------------------------------


def bits_of(value: int, width: int) -> str:
    """Two's complement, the lowest bit first."""
    return "".join(str(value >> at & 1) for at in range(width))


@given(st.lists(INT64 | EDGES, max_size=20))
def test_widths_are_the_least_that_hold_values_in_twos_complement(values: list[int]) -> None:
    found = signed_widths(np.array(values, np.int64)).tolist()
    for value, width in zip(values, found, strict=True):
        assert width == (0 if value == 0 else (value if value >= 0 else ~value).bit_length() + 1)
        if value:
            assert -(2 ** (width - 1)) <= value < 2 ** (width - 1)


@given(st.lists(st.tuples(INT64 | EDGES, st.integers(0, 64)), max_size=20))
def test_bits_are_packed_one_after_the_other(drawn: list[tuple[int, int]]) -> None:
    values = np.array([value for value, _ in drawn], np.int64)
    widths = np.array([width for _, width in drawn], np.int64)
    text = "".join(bits_of(value, width) for value, width in drawn)
    text += "0" * (-len(text) % 8)
    wanted = [int(text[at : at + 8][::-1], 2) for at in range(0, len(text), 8)]
    assert packed_bits(values, widths).tolist() == wanted


@given(st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=3, max_size=3), min_size=1, max_size=5))
def test_packed_columns_are_read_again_from_their_places(columns: list[list[int]]) -> None:
    blob = packed([np.array(one, np.int32) for one in columns])
    head = blob[: 8 * (1 + 2 * len(columns))].view("<u8").tolist()
    assert head[0] == 3
    places = head[1:]
    assert all(place % 64 == 0 for place in places)
    assert places == sorted(places)
    assert places[0] >= 8 * len(head)
    for column, at, widths_at in zip(columns, places[::2], places[1::2], strict=True):
        widths = blob[widths_at : widths_at + 3].tolist()
        bits = np.unpackbits(blob[at:widths_at], bitorder="little")
        found, begin = [], 0
        for width in widths:
            drawn = bits[begin : begin + width].tolist()
            value = sum(bit << n for n, bit in enumerate(drawn))
            found.append(value - (1 << width) if width and drawn[-1] else value)
            begin += width
        assert found == column


# --- filters ----------------------------------------------------------------------------------------------------------

COLUMNS = {
    "l_quantity": np.array([100, 2400, 2399, 5000, 0, 2400] * 5, np.int32),
    "l_discount": np.array([4, 5, 7, 8, 6] * 6, np.int32),
    "l_shipdate": np.arange(30, dtype=np.int32),
    "l_returnflag": np.frombuffer(b"RANRAN" * 5, np.uint8),
}


@pytest.fixture
def _columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters_module, "column", lambda name, _scale: COLUMNS[name])


@pytest.mark.usefixtures("_columns")
@pytest.mark.parametrize("rows", [0, 1, 7, 30])
def test_a_filter_keeps_the_rows_that_pass_every_test(rows: int) -> None:
    rng = np.random.default_rng(rows)
    compare = {"le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "eq": lambda a, b: a == b}
    for turn in range(12):
        names = list(rng.permutation(list(COLUMNS)))
        tests = tuple(
            RowTest(name, str(rng.choice(["le", "gt", "eq"])), int(rng.choice(COLUMNS[name])))
            for name in rng.choice(names, rng.integers(1, 4))
        )
        one = Filter("t", tuple(names[: rng.integers(1, 4)]), tests)
        inputs, kept = one.data(0.01, rows)
        assert [len(column) for column in inputs] == [rows] * len(one.columns())
        assert one.columns()[0] == tests[0].column
        wanted = [n for n in range(rows) if all(compare[t.how](int(COLUMNS[t.column][n]), t.value) for t in tests)]
        for name, column in zip(one.keep, kept, strict=True):
            assert column.tolist() == COLUMNS[name][wanted].tolist(), (rows, turn, tests)
            assert column.dtype == (np.int64 if name in one.wide else COLUMNS[name].dtype)


@pytest.mark.usefixtures("_columns")
@pytest.mark.parametrize("form", ["scalar", "v", "pup", "full"])
def test_a_program_of_a_filter_names_its_columns_and_outputs_once(form: str) -> None:
    one = Filter("t", ("l_discount", "l_shipdate"), (RowTest("l_quantity", "le", 2399), RowTest("l_discount", "gt", 4)))
    text = one.source(form, 0.01)
    for name in one.columns():
        assert text.count(f"*{name} = ND_INPUT(") == 1
    for number, name in enumerate(one.keep):
        assert text.count(f"ND_SET_USED(args, {number}, used_out_{name}, ") == 1
        assert f'"name": "out_{name}"' in text
    assert ("nandarray_varve.h" in text) == (form in ("pup", "full"))
    assert "2399" in text
    assert text.count("{") == text.count("}")
    wide = Filter("t", one.keep, one.tests, shortens=False)
    assert ("held" in text) == (form == "full")
    assert "held" not in wide.source(form, 0.01)


def test_filters_are_called_after_their_query_and_test_before_they_keep() -> None:
    assert len({one.name for one in FILTERS}) == len(FILTERS) == 14
    for one in FILTERS:
        assert one.columns()[: len({t.column for t in one.tests})] == list(dict.fromkeys(t.column for t in one.tests))
        assert len({name.partition("_")[0] for name in one.columns()}) == 1, "a filter is of one table"
    with pytest.raises(ValueError, match="is not in list"):
        RowTest("c_mktsegment", "eq", "NOWHERE").number(0.01)


def test_ports_say_width_and_sign() -> None:
    assert [Port("x", kind).detail for kind in ("int32", "uint8", "int64", "uint16")] == [
        "32 | ND_SIGNED", "8", "64 | ND_SIGNED", "16",
    ]  # fmt: skip
    assert Port("x", "int8", signed=False).detail == "8"
    text = streams([Port("a", "int32"), Port("b", "uint8")], [Port("c", "int64")], room=16).splitlines()
    assert [line.split("(")[1].split(",")[0] for line in text] == ["0", "1", "16"]
    assert "16 * n" in text[2]
    made = program("p", [Port("a", "int32")], [Port("c", "int64"), Port("d", "uint8")], "BODY;", varve=False, room=3)
    assert '"per_record": 24' in made
    assert '"per_record": 12' in made
    assert isa(512) == "rv64gcv_zba_zbb_zbs_zvl512b_xvarve"


# --- ratios of runs ---------------------------------------------------------------------------------------------------


def test_causes_of_filters_take_unchanged_runs_where_a_change_says_nothing() -> None:
    def row(change: str, form: str, name: str, cycles: float) -> dict[str, Any]:
        return {
            "change": change, "form": form, "filter": name, "cycles_a_row": cycles, "instructions_a_row": cycles * 2,
            "bytes_a_row": cycles, "padded_bits": 64, "packed_bits": 16,
        }  # fmt: skip

    base = {"scalar": 8.0, "v": 4.0, "pup": 2.0, "full": 1.0}
    rows = [row("", form, name, c * k) for name, k in (("1l", 1.0), ("6l", 2.0)) for form, c in base.items()]
    rows += [row(varve_filters._FIGURE_8_8, "full", name, 0.5) for name in ("1l", "6l")]
    cached = "DRAM behind caches"
    rows += [row(cached, form, name, 2 * c) for name in ("1l", "6l") for form, c in [*base.items(), ("packed", 0.5)]]
    by = {one["change"]: one for one in varve_filters.causes_of(rows)}
    assert list(by) == ["as described", *varve_filters.CHANGES]
    plain = by["as described"]
    assert (plain["full_over_scalar"], plain["full_over_v"], plain["pup_over_v"]) == pytest.approx((8, 4, 2))
    assert plain["traffic_most"] is plain["inputs_least"] is None
    # Only full was run again: the others are as described.
    assert by[varve_filters._FIGURE_8_8]["full_over_v"] == pytest.approx(math.sqrt(4 / 0.5 * 8 / 0.5))
    assert by[varve_filters._FIGURE_8_8]["pup_over_v"] == pytest.approx(2)
    assert (by[cached]["traffic_least"], by[cached]["traffic_most"], by[cached]["inputs_most"]) == (2, 2, 4)
    for cause in by.values():
        said = varve_filters._said(cause)
        assert said.endswith(".")
        assert ("traffic" in said) == (cause["traffic_most"] is not None)


def test_causes_of_kernels_are_ratios_within_a_change() -> None:
    cycles = {"scalar": 12.0, "v": 6.0, "pup": 3.0, "full": 1.5}
    rows = [
        {"kernel": kernel, "change": change, "form": form, "cycles_a_value": k * c, "waits_share": 0.25 if c < 2 else 0}
        for kernel, k in (("a", 1.0), ("b", 3.0))
        for change in ("x", "y")
        for form, c in cycles.items()
    ]
    found = varve_kernels.causes_of(rows)
    assert [(one["kernel"], one["change"]) for one in found] == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]
    for one in found:
        assert (one["v_over_scalar"], one["full_over_scalar"], one["full_over_pup"], one["full_waits_share"]) == (
            2, 8, 2, 0.25,
        )  # fmt: skip


# --- the network ------------------------------------------------------------------------------------------------------


def drawn(seed: int, shift: int) -> Quantised:
    """A network of drawn weights."""
    rng = np.random.default_rng(seed)
    sizes = ((9, KERNELS), (KERNELS,), (FEATURES, CLASSES), (CLASSES,))
    kernels, bias, dense, dense_bias = (rng.integers(-9, 10, size).astype(np.int32) for size in sizes)
    return Quantised(kernels, bias * 100, shift, dense, dense_bias)


@pytest.mark.parametrize(("seed", "shift"), [(0, 0), (1, 3), (2, 15)])
def test_features_are_those_of_loops_over_pixels(seed: int, shift: int) -> None:
    network = drawn(seed, shift)
    image = np.random.default_rng(seed + 9).integers(0, 256, (SIDE, SIDE)).astype(np.int32)
    found = network.features(image[None]).reshape(13, 13, KERNELS)
    for y, x, f in itertools.product((0, 5, 12), (0, 7, 12), range(0, KERNELS, 5)):
        sums = []
        for dy, dx in itertools.product(range(2), repeat=2):
            taps = itertools.product(range(3), repeat=2)
            pixels = [int(image[2 * y + dy + i, 2 * x + dx + j]) for i, j in taps]
            sums.append(sum(pixel * int(network.kernels[tap, f]) for tap, pixel in enumerate(pixels)))
        wanted = max(max(sums) + int(network.bias[f]), 0) >> shift
        assert found[y, x, f] == wanted, (seed, y, x, f)
    values = network.values(image[None])[0]
    flat = found.reshape(-1)
    for c in range(CLASSES):
        assert values[c] == sum(int(a) * int(w) for a, w in zip(flat, network.dense[:, c], strict=True)) + int(
            network.dense_bias[c]
        )
    words = network.words()
    assert words.dtype == np.int32
    assert words.size == 9 * KERNELS + KERNELS + FEATURES * CLASSES + CLASSES
    assert words[9 * KERNELS] == network.bias[0]
    labels = np.array([int(np.argmax(values)), 11])
    assert network.accuracy(Digits(np.stack([image, image]), labels)) == 0.5


@given(st.integers(1, 12), st.integers(1, 30))
def test_widening_keeps_levels_and_ends(size: int, to: int) -> None:
    weights = network_module._widen(size, to)
    assert weights.shape == (to, size)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert (weights >= 0).all()
    assert (np.count_nonzero(weights, axis=1) <= 2).all()
    ramp = weights @ np.arange(size)
    assert (np.diff(ramp) >= 0).all()
    if to >= size:
        assert (ramp[0], ramp[-1]) == (0, size - 1)


@given(st.lists(st.integers(-128, 127), min_size=1, max_size=30), st.integers(1, 8))
def test_shares_of_widths_keep_the_highest_bits(values: list[int], bits: int) -> None:
    found = _widths(np.array(values), bits)
    kept = signed_widths(np.array([value >> 8 - bits for value in values]))
    assert found == {int(width): kept.tolist().count(width) / len(kept) for width in set(kept.tolist())}
    assert max(found) <= bits
