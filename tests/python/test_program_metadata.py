"""Descriptions that programs and kernels have of themselves, and numbers that they are given: any value in any place.

Metadata of hostile files is refused with a :class:`~nandarray.ProgramError`, or is what it says; numbers become bits as
``struct`` packs them, or are refused.
"""

from __future__ import annotations
import __future__

import copy
import json
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import nandarray
from nandarray import InvalidError, ProgramError, _nandarray
from nandarray.programs import abi, kernels, ports
from nandarray.programs import kernel as kernel_module
from nandarray.programs.annotations import parse_dtype, specs

GOOD: dict[str, Any] = {
    "abi": 1,
    "name": "p",
    "summary": "s",
    "kind": "block",
    "inputs": [
        {"name": "x", "dtype": "float32", "record_bytes": 8},
        {"name": "t", "dtype": [["a", "u1"], ["b", "<f4", [2]]], "whole": True},
    ],
    "outputs": [
        {"name": "y", "dtype": "int64", "bound": {"per_record": 8, "fixed": 16, "per_input_byte": 1}, "phase": "task"}
    ],
    "scalars": [{"name": "k", "dtype": "int32", "default": 3}],
    "errors": {"-3": "bad"},
    "state_bytes": 16,
    "memory_bytes": 1 << 20,
}
JUNK: list[Any] = [
    None, True, 0, -1, 1.5, 2**31, 2**63, 2**64, "", "x", "float32", "(2,f4", "f4,,", "O", "V0", "\x00", "é" * 300,
    [], {}, [1], [[]], [[1, 2]], {"a": 1}, [None], [["a", "f4", -1]], ["a"], {"names": ["a"], "formats": ["f4"]},
]  # fmt: skip


def paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield before
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from paths(one, (*before, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The same with another value at a place, or without the place if it is `...`."""
    if not path:
        return new
    made = copy.deepcopy(value)
    place = made
    for key in path[:-1]:
        place = place[key]
    if new is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = new
    return made


def spoilt(good: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Metadata with a place removed, replaced, or one more beside it."""
    for path in paths(good):
        for new in [*JUNK, *([...] if path else [])]:
            yield f"{path} becomes {new!r}", json.dumps(changed(good, path, new)).encode()
        if path and isinstance(path[-1], str):
            yield f"one more beside {path}", json.dumps(changed(good, (*path[:-1], "more"), 1)).encode()


def sound(found: dict[str, Any]) -> None:
    """Check the promises of metadata that was taken."""
    for port in (*found["inputs"], *found["outputs"]):
        size = 1 if port["dtype"] is None else abi.record(port["dtype"], port["name"]).itemsize
        assert port["record_bytes"] >= 1
        assert port["record_bytes"] % size == 0
    for port in found["scalars"]:
        ports.bits(1, port)
    assert 0 <= found["state_bytes"] <= abi.SCRATCHPAD_BYTES_MAX
    assert found["memory_bytes"] <= abi.MEMORY_BYTES_MAX
    assert all(isinstance(one, str) for one in (found["name"], found["summary"], *found["errors"].values()))


def test_metadata_with_any_value_in_any_place_is_refused_or_sound() -> None:
    taken = 0
    for what, text in spoilt(GOOD):
        try:
            found = abi.parse(text, entries={"nd_block", "nd_merge"})
        except ProgramError:
            continue
        taken += 1
        try:
            sound(found)
        except Exception as error:
            raise AssertionError(f"{what}: {found}") from error
    assert taken > 30  # such as another name


def test_tables_with_any_value_in_any_place_are_refused_or_taken_by_the_engine() -> None:
    made = kernels.get("fdtd")
    table = made.table
    for one in (*table["inputs"], *table["outputs"]):
        del one["item_bytes"]

    def parse(text: bytes) -> dict[str, Any]:
        found = kernel_module._parsed(text)
        _nandarray.Kernel(made._elf, json.dumps(found).encode())
        return found

    assert parse(json.dumps(table).encode())["name"] == "fdtd"
    for what, text in spoilt(table):
        try:
            found = parse(text)
        except ProgramError:
            continue
        for one in (*found["inputs"], *found["outputs"]):
            assert one["item_bytes"] == np.dtype(one["dtype"]).itemsize > 0, what
            assert one["shape"], what


TABLES = [
    (b"", "has no section"),
    (b"[" * 100_000, "the kernel's description table is no JSON"),
    (b"\xff", "the kernel's description table is no JSON"),
    (b"[]", "the table must be an object"),
    (b'{"kind": "block"}', "the kind must be 'kernel', not 'block'"),
    (b'{"kind": "kernel", "inputs": null}', "inputs must be a list"),
    (b'{"kind": "kernel", "inputs": [{"name": "x", "shape": ["n"]}]}', "section x has no dtype"),
    (
        b'{"kind": "kernel", "inputs": [{"name": "x", "dtype": "f4", "shape": []}]}',
        "section x: shape must be a list of names and numbers, not []",
    ),
    (b'{"kind": "kernel", "microblocks": []}', "a kernel has one microblock at least"),
    (b'{"kind": "kernel", "microblocks": [{"first": 1}]}', "a microblock: 'first' is not known"),
    (b'{"kind": "kernel", "more": 1}', "the table: 'more' is not known"),
]


@pytest.mark.parametrize(("text", "says"), TABLES, ids=range(len(TABLES)))
def test_a_table_that_is_none_is_refused_in_a_line(text: bytes, says: str) -> None:
    with pytest.raises(ProgramError) as caught:
        kernel_module._parsed(text)
    assert says in str(caught.value)


def test_a_name_that_two_sections_have_is_refused() -> None:
    section = {"name": "x", "dtype": "f4", "shape": ["n"]}
    table = {"kind": "kernel", "inputs": [section], "outputs": [section], "microblocks": [{}]}
    with pytest.raises(ProgramError, match="'x' names two sections"):
        kernel_module._parsed(json.dumps(table).encode())


PARSED = [
    (b"[" * 100_000, "the program's metadata is no JSON"),
    (b'{"inputs": [{"dtype": [5]}]}', "input 0: [5] is not a dtype"),
    (b'{"inputs": [{"dtype": "(2,f4"}]}', "input 0: '(2,f4' is not a dtype"),
    (b'{"outputs": [{}, {"dtype": "O"}]}', "output 1: elements of dtype object have no fixed size"),
    (
        b'{"abi": 1, "kind": "block", "inputs": [{"dtype": "f4", "record_bytes": 6}]}',
        "a record of 6 bytes does not hold whole elements of 4",
    ),
]


@pytest.mark.parametrize(("text", "says"), PARSED, ids=range(len(PARSED)))
def test_metadata_that_is_none_is_refused_in_a_line(text: bytes, says: str) -> None:
    with pytest.raises(ProgramError) as caught:
        abi.parse(text, entries={"nd_block"})
    assert says in str(caught.value)


@given(st.text(alphabet="fiub8421[](), <>=VOSUc:;'\"{}", max_size=9))
@example("(2,f4")
@example("f4,(")
@example("float64[")
@example("[2]f4")
def test_any_text_is_a_dtype_of_programs_or_refused(text: str) -> None:
    for read in (parse_dtype, lambda one: abi.record(one, "input x")):
        try:
            found = read(text)
        except (InvalidError, ProgramError) as error:
            says = str(error)
        else:
            says = "float16 dtype" if found.itemsize > 0 and not found.hasobject else ""
        assert repr(text) in says or "dtype" in says or "float16" in says or "big-endian" in says, text


def test_short_forms_of_dtypes_are_numpys() -> None:
    for short, wanted in {
        "float64[3]": ("f8", (3,)),
        " int32 [2, 3] ": ("i4", (2, 3)),
        "u1[4,]": ("u1", (4,)),
        "f4": "f4",
    }.items():
        assert parse_dtype(short) == np.dtype(wanted)  # type: ignore[arg-type]
    made = parse_dtype({"n": "int8", "sum": "float64[2]", "in": {"a": "u1", "b": "u4"}})
    assert [made.fields[name][1] for name in made.names] == [0, 8, 24]  # type: ignore[index, union-attr]
    assert made.itemsize == 32
    for wrong, says in [("f4[0]", "no fixed size"), (">f4", "big-endian"), ("f2", "float16 is not computed with"),
                        ({"a": "f2"}, "float16 is not computed with by programs in Python (in "),
                        ("f4[99999999999]", "is not a dtype"), ({}, "no fixed size"), ("nothing", "is not a dtype"),
                        ([("a", ">i4")], "big-endian"), ("O", "no fixed size")]:  # fmt: skip
        with pytest.raises(InvalidError) as caught:
            parse_dtype(wrong)
        assert says in str(caught.value)


# --- numbers ----------------------------------------------------------------------------------------------------------

LETTERS = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q"}
FLOATS = {"f4": "f", "f8": "d"}


def test_exact_numbers_are_scalars_of_floats_alone() -> None:
    port = {"name": "s", "dtype": "<f8"}
    for value in (Fraction(5, 4), Decimal("1.25")):
        assert ports.bits(value, port) == struct.unpack("<q", struct.pack("<d", 1.25))[0]
        with pytest.raises(InvalidError, match="scalar s must be one"):
            ports.bits(value, {"name": "s", "dtype": "<i8"})


def wanted_bits(value: Any, dtype: str) -> int | None:
    """The bits of a number, by struct; None where it is refused."""
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, complex | str | bytes) or number is None:
        return None
    if dtype == "?":
        return None if isinstance(number, float) else int(bool(number))
    if dtype in LETTERS:
        if isinstance(number, float):
            return None
        try:
            raw = struct.pack("<" + LETTERS[dtype], int(number))
        except struct.error:
            return None
        return int.from_bytes(raw, "little", signed=dtype[0] == "i") & 2**64 - 1
    try:
        exact = float(number)
    except OverflowError:
        return None
    with np.errstate(over="ignore"):
        return int.from_bytes(np.array(exact).astype(dtype).tobytes(), "little")


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**bits + more for bits in (7, 8, 15, 16, 31, 32, 63, 64) for more in (-1, 0, 1)]),
    st.sampled_from([-(2**bits) + more for bits in (7, 15, 31, 63) for more in (-1, 0, 1)]),
    st.floats(allow_nan=False),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1).map(np.int64),
    st.integers(0, 2**64 - 1).map(np.uint64),
    st.integers(-128, 127).map(np.int8),
    st.floats(width=32, allow_nan=False).map(np.float32),
    st.complex_numbers(allow_nan=False).map(np.complex128),
    st.sampled_from(["5", b"5", None, 1j, np.True_, 10**400, "", np.str_("7"), np.datetime64(5, "s")]),
)


@given(NUMBERS, st.sampled_from(["?", *LETTERS, *FLOATS]))
@example(np.int64(300), "u1")
@example(np.int64(-1), "u4")
@example(np.uint64(2**63), "i8")
@example(np.complex128(1 + 2j), "f8")
@example(1e300, "f4")
def test_a_number_becomes_the_bits_that_struct_packs_or_is_refused(value: Any, dtype: str) -> None:
    wanted = None if isinstance(value, np.datetime64) else wanted_bits(value, dtype)
    port = {"name": "k", "dtype": dtype}
    if wanted is None:
        with pytest.raises(InvalidError, match="scalar k (is|must be) "):
            ports.bits(value, port)
    else:
        assert ports.bits(value, port) == wanted


@pytest.mark.parametrize("value", [[1], np.ones(2), (), np.ones((1, 1)), {"a": 1}, {1}, object(), [[1], [2, 3]]])
def test_what_is_no_single_number_is_refused(value: Any) -> None:
    with pytest.raises(InvalidError, match="scalar k (is|must be) "):
        ports.bits(value, {"name": "k", "dtype": "f8"})


def test_numbers_are_matched_with_ports_by_name() -> None:
    metadata = {"scalars": [{"name": "a", "dtype": "i4", "default": -2}, {"name": "b", "dtype": "f4"}]}
    assert ports.scalar_bits({"b": 0.5}, metadata) == [2**64 - 2, 0x3F000000]
    assert ports.scalar_bits({"b": 0, "a": 7}, metadata) == [7, 0]
    for given_, says in [({}, "scalar b is missing, and has no default"), ({"c": 1, "b": 1}, "no scalar 'c'; it has a"),
                         ({"b": "x"}, "scalar b must be one real number, not 'x'")]:  # fmt: skip
        with pytest.raises(InvalidError) as caught:
            ports.scalar_bits(given_, metadata)
        assert says in str(caught.value)


@given(
    st.one_of(st.integers(-3, 3), st.sampled_from([None, True, 1.0, "1", 2**63, 2**63 - 1, np.int64(4), np.uint8(0)]))
)
def test_settings_of_a_run_are_positive_integers(value: Any) -> None:
    good = value is None or (type(value) is not bool and isinstance(value, int | np.integer) and 0 < value < 2**63)
    if good:
        ports.at_least_one(threads=value)
    else:
        with pytest.raises(InvalidError, match="threads must be a number, at least 1"):
            ports.at_least_one(threads=value)


# --- annotations ------------------------------------------------------------------------------------------------------


AS_TEXT = __future__.annotations.compiler_flag


def annotated(text: str, flags: int = 0) -> Callable[..., Any]:
    names: dict[str, Any] = {"nandarray": nandarray, "np": np}
    code = f"from nandarray import Block, Out, Scalar, Stream, OutStream\ndef f({text}):\n    pass\n"
    exec(compile(code, "<annotated>", "exec", flags=flags, dont_inherit=True), names)
    found: Callable[..., Any] = names["f"]
    return found


ANNOTATIONS = [
    ("x", "parameter 'x' has no annotation; write x: nandarray.Block['float32']"),
    ("x: int", "parameter 'x' has the annotation <class 'int'>"),
    ("x: 'Block[nothing_there]'", "its annotations cannot be read: name 'nothing_there'"),
    ("x: 'Block['", "its annotations cannot be read"),
    ("x: 'np.missing'", "its annotations cannot be read"),
    ("*x: 'Block[float32]'", "*x: 'Block[float32]' is not possible; parameters are plain"),
    ("x: 'Block[float32]', *, y: 'Scalar[int8]'", "y: 'Scalar[int8]' is not possible"),
    ("**x: 'Block[float32]'", "is not possible"),
]


@pytest.mark.parametrize(("text", "says"), ANNOTATIONS)
def test_annotations_that_are_none_name_their_parameter(text: str, says: str) -> None:
    with pytest.raises(InvalidError) as caught:
        specs(annotated(text))
    assert says in str(caught.value)
    assert str(caught.value).startswith("f(): ")


def test_annotations_are_read_as_text_and_as_values() -> None:
    one = specs(annotated("x: Block['float32[2]'], y: 'Out[int64]', k: Scalar[np.int8]"))
    other = specs(annotated("x: 'Block[\"float32[2]\"]', y: Out['int64'], k: 'Scalar[np.int8]'"))
    assert one == other
    # Where annotations are text, what is quoted is a text within one.
    assert specs(annotated("x: Block['float32[2]'], y: 'Out[int64]', k: Scalar[np.int8]", flags=AS_TEXT)) == one
    assert [(name, spec.role, spec.dtype) for name, spec in one.items()] == [
        ("x", "block", np.dtype("(2,)f4")),
        ("y", "out", np.dtype("i8")),
        ("k", "scalar", np.dtype("i1")),
    ]
    assert [spec.role for spec in specs(annotated("x: Stream['u1'], y: OutStream['u1']")).values()] == [
        "stream",
        "out-stream",
    ]
