"""Programs that do what they may not: a typed error with program counter, function and line; all else untouched."""

from __future__ import annotations

import math
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray import Program, ProgramError, ProgramFailedError, programs
from nandarray.programs.compile import functions

HEAD = "#include <nandarray.h>\n"
PORTS = """ND_PROGRAM("name": "wrong", "kind": "block", "inputs": [{"name": "x", "dtype": "int64"}],
           "outputs": [{"name": "y", "dtype": "int64"}]%s)
"""
GOOD = (
    HEAD
    + PORTS % ""
    + """int64_t nd_block(nd_args *args) {
    size_t n = ND_INPUT_COUNT(args, 0, int64_t);
    for (size_t i = 0; i < n; i++) ND_OUTPUT(args, 0, int64_t)[i] = -ND_INPUT(args, 0, int64_t)[i];
    ND_SET_USED(args, 0, n, int64_t);
    return 0;
}
"""
)
DATA = np.arange(50_000)


def block(body: str, more: str = "", before: str = "") -> Program:
    """A program with this body, a line of its own each."""
    return Program.from_c(f"{HEAD}{PORTS % more}{before}\nint64_t nd_block(nd_args *args) {{\n{body}\nreturn 0;\n}}\n")


def line_of(program: Program, text: str) -> int:
    assert program.source is not None
    return next(n for n, line in enumerate(program.source.splitlines(), 1) if text in line)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """A store; whatever happens to a program, it and other programs are as they were."""
    with nandarray.open(tmp_path / "data.nand", mode="w") as opened:
        opened["x"] = DATA
        opened["y"] = np.zeros_like(DATA)
        opened.flush()
        other = opened._engine.load_program(Program.from_c(GOOD).elf, None)
        yield opened
        opened._engine.unload_program(other)
        np.testing.assert_array_equal(opened["x"].offload(Program.from_c(GOOD), threads=2), -DATA)
        assert not opened["y"][...].any()
        assert opened.check()["ok"]


def fails(store: Any, program: Program, says: str, **options: Any) -> ProgramFailedError:
    """Run it over the store's array into another one: it fails, and says so."""
    with pytest.raises(ProgramFailedError, match=says) as caught:
        store["x"].offload(program, out=store["y"], form="interpreted", **options)
    assert caught.value.task is not None
    return caught.value


def at_line(error: ProgramFailedError, program: Program, text: str, function: str = "nd_block") -> None:
    """The error names the line that has this text."""
    assert error.pc is not None
    assert (error.location.symbol, error.location.line) == (function, line_of(program, text))
    assert f"({error.location.file}:{error.location.line})" in str(error)
    assert re.search(rf"pc {error.pc:#x}", str(error))


def test_a_loop_without_end(store: Any) -> None:
    program = block('for (;;)\n__asm__ volatile ("nop");')
    error = fails(store, program, r"more than 100000 instructions, at pc .* in nd_block\+", instructions=100_000)
    at_line(error, program, "nop")


def test_a_jump_to_where_there_is_no_code(store: Any) -> None:
    program = block("args->outputs[0].used = 0;\n((void (*volatile)(void))0x40)();\nargs->outputs[0].used = 0;")
    error = fails(store, program, r"fetch access fault at pc 0x40 .*, called at pc 0x\w+ in nd_block\+")
    assert (error.pc, program.locate(error.caller or 0).symbol) == (0x40, "nd_block")
    assert error.location.line == line_of(program, "0x40")
    # Data is no code, and the upper end of the addresses no way back.
    where = block("static int64_t code[4];\nvolatile int64_t *p = code; *p = 0x8067;\n((void (*)(void))p)();")
    fails(store, where, "fetch access fault at pc ")


def test_addresses_that_are_not_the_programs(store: Any) -> None:
    for text, says in [
        ("return *(volatile int64_t *)0x42;", r"load access fault at pc .* \(value 0x42\) in nd_block"),
        ("*(volatile int64_t *)ND_INPUT(args, 0, int64_t) = 1;", "store access fault"),
        ("*(volatile int32_t *)nd_block = 1;", "store access fault"),
        ("return ((volatile int64_t *)ND_INPUT(args, 0, int64_t))[ND_INPUT_COUNT(args, 0, int64_t)];", "load access"),
        ("((volatile int64_t *)ND_OUTPUT(args, 0, int64_t))[args->outputs[0].bytes / 8] = 1;", "store access fault"),
        ('__asm__ volatile (".word 0xffffffff");', "illegal instruction .*value 0xffffffff"),
        ('__asm__ volatile ("csrr t0, mstatus");', "illegal instruction"),
        ('__asm__ volatile ("ecall");', "environment call"),
        ('__asm__ volatile ("ebreak");', "breakpoint"),
    ]:
        program = block(text)
        at_line(fails(store, program, says), program, text)


def test_a_function_that_is_called_is_named(store: Any) -> None:
    helper = "__attribute__((noinline)) static int64_t deeper(int64_t at) {\nreturn *(volatile int64_t *)at;\n}"
    program = block("return deeper(args->task + 0x42);", before=helper)
    at_line(fails(store, program, "load access fault"), program, "volatile int64_t *)at", "deeper")


def test_recursion_without_end(store: Any) -> None:
    helper = "__attribute__((noinline)) static int64_t down(volatile int64_t *p) {\n"
    helper += "volatile int64_t a[64]; a[0] = *p; return down(a) + a[0];\n}"
    program = block("volatile int64_t z = 1;\nreturn down(&z);", before=helper)
    error = fails(store, program, "(store|load) access fault")
    assert error.location.symbol == "down"


def test_a_stream_that_ends_within_an_element(store: Any) -> None:
    text = HEAD + (PORTS % "").replace('"block"', '"stream"').replace('"x", "dtype": "int64"', '"x", "dtype": "uint8"')
    text += "int64_t nd_stream(nd_args *args) {\nfor (;;)\nnd_store_i64(0, nd_load_i64(0));\n}\n"
    program = Program.from_c(text)
    store["bytes"] = np.arange(83, dtype="u1")
    with pytest.raises(
        ProgramFailedError, match="input stream 0 ended with 3 bytes left, .*at pc .* in nd_stream"
    ) as e:
        store["bytes"].offload(program, form="interpreted")
    at_line(e.value, program, "nd_store_i64", "nd_stream")
    # One that ends behind one ends the task: that is how streams end.
    assert len(store["bytes"].offload(program, key=np.s_[:80], form="interpreted")) == 10


def test_a_stream_that_gets_more_than_its_bound(store: Any) -> None:
    text = HEAD + (PORTS % "").replace('"block"', '"stream"')
    text += "int64_t nd_stream(nd_args *args) {\nfor (;;)\nnd_store_i64(0, 1);\n}\n"
    program = Program.from_c(text)
    error = fails(store, program, "output stream 0 is full: its bound leaves room for 400000 bytes, at pc .* nd_stream")
    at_line(error, program, "nd_store_i64", "nd_stream")


@pytest.mark.parametrize("target", ["rv64", "rv32"])
def test_division_by_zero_has_a_result(store: Any, target: str) -> None:
    body = """long a = 7, b = args->task, q, r, least = LONG_MIN, over;
    unsigned long u;
    __asm__ volatile ("div %0, %1, %2" : "=r"(q) : "r"(a), "r"(b));
    __asm__ volatile ("rem %0, %1, %2" : "=r"(r) : "r"(a), "r"(b));
    __asm__ volatile ("divu %0, %1, %2" : "=r"(u) : "r"(a), "r"(b));
    __asm__ volatile ("div %0, %1, %2" : "=r"(over) : "r"(least), "r"(-1L));
    int64_t *y = ND_OUTPUT(args, 0, int64_t);
    y[0] = q; y[1] = r; y[2] = u == ULONG_MAX; y[3] = over == least;
    ND_SET_USED(args, 0, 4, int64_t);"""
    text = f"#include <limits.h>\n{HEAD}{PORTS % ''}int64_t nd_block(nd_args *args) {{\n{body}\nreturn 0;\n}}\n"
    found = store["x"].offload(Program.from_c(text, target=target), key=np.s_[:10], form="interpreted")
    # Quotient all ones, remainder the dividend; no trap (RISC-V, chapter "M").
    assert found.tolist() == [-1, 7, 1, 1]


def test_files_that_are_no_programs(store: Any, tmp_path: Path) -> None:
    good = Program.from_c(GOOD).elf
    x86 = bytearray(good)
    x86[18:20] = struct.pack("<H", 62)
    shared = bytearray(good)
    shared[16:18] = struct.pack("<H", 3)
    big = bytearray(good)
    big[5] = 2
    for raw, says in [
        (b"", "not an ELF file"),
        (b"#!/bin/sh\n", "not an ELF file"),
        (bytes(x86), "EM_X86_64|machine 62"),
        (bytes(shared), "ET_DYN|not a static"),
        (bytes(big), "damaged|big-endian|ELF"),
        (good[:200], "damaged|ELF"),
        (good[:-100], "damaged|metadata|section|ELF"),
    ]:
        with pytest.raises(ProgramError, match=says):
            Program.from_elf(raw)
        with pytest.raises(ProgramError):
            store._engine.load_program(raw, None)


def test_extensions_that_no_core_has(store: Any) -> None:
    with pytest.raises(ProgramError, match=r"needs zbc"):
        block("", before='__asm__(".attribute arch, \\"rv64i2p1_m2p0_zbc1p0\\"");')
    raw = bytearray(Program.from_c(GOOD).elf)
    at = raw.index(b"rv64i2p1_m2p0")
    raw[at + 9 : at + 10] = b"q"
    with pytest.raises(ProgramError, match="extension q, which the hart lacks"):
        store._engine.load_program(bytes(raw), None)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (', "scratchpad_bytes": 1099511627776', "scratchpad"),
        (', "state_bytes": 268435456', "scratchpad|state"),
        (', "memory_bytes": 1099511627776', "memory"),
        (', "memory_bytes": 2', "memory"),
    ],
)
def test_more_memory_than_there_is(store: Any, more: str, says: str) -> None:
    with pytest.raises(ProgramError, match=says):
        block("", more=more)
    ports = '"inputs": [{"dtype": "int64"}], "outputs": [{"dtype": "int64"}]'
    text = f'{{"abi": 1, "kind": "block", {ports}{more}}}'
    good = Program.from_c(GOOD).elf
    with pytest.raises(ProgramError, match=says):
        store._engine.load_program(good, text.encode())


def test_results_that_do_not_count(store: Any) -> None:
    for text, says in [
        ("return -7;", "nd_block returned -7"),
        ("args->outputs[0].used = args->outputs[0].bytes + 8;", "its bound leaves room for"),
        ("args->outputs[0].used = 3;", "not whole elements of 8"),
    ]:
        assert fails(store, block(text), says).pc is None
    # Only a task in the middle fails: nothing of those before it is written.
    late = block(
        "ND_SET_USED(args, 0, 1, int64_t);\n*ND_OUTPUT(args, 0, int64_t) = 1;\nif (args->task == 3) return -1;"
    )
    with pytest.raises(ProgramFailedError, match="task 3: the program's nd_block returned -1") as caught:
        nandarray.offload(late, [store["x"]], out=store["y"], form="interpreted", threads=2, task_bytes=80_000)
    assert caught.value.task == 3


def test_a_failure_in_one_of_several_programs(store: Any) -> None:
    text = "return *(volatile int64_t *)0x42;"
    wrong = block(text)
    first = nandarray.Step(Program.from_c(GOOD), [store["x"]])
    with pytest.raises(ProgramFailedError, match="load access fault") as caught:
        nandarray.offload(nandarray.Step(wrong, [first]), out=store["y"], form="interpreted")
    assert caught.value.location.line == line_of(wrong, text)


# --- functions in Python ----------------------------------------------------------------------------------------------

LIST = [1, 2]


def no_such_function(x):
    return math.nosuch(x)


def dictionary(x):
    return {1: x}[2]


def computed_text(x):
    if x > 5:
        raise ValueError(x)
    return x


def recursion(x):
    return 1.0 if x <= 0 else recursion(x - 1)


def mutable_global(x):
    LIST.append(3)
    return x


def no_name(x):
    return x + nosuchname  # noqa: F821


def bits_of_a_float(x):
    return x & 3


def allocation(x):
    return np.zeros(1 << 40)[0] + x


def nothing(x):
    x + 1  # noqa: B018


def text(x):
    return "a"


@pytest.mark.parametrize(
    ("function", "line", "says"),
    [
        (no_such_function, 1, "module 'math' has no attribute 'nosuch'"),
        (dictionary, 1, "dictionaries raise others|DictType"),
        (computed_text, 2, "an exception's arguments have to be constants"),
        (recursion, 1, "'recursion'"),
        (mutable_global, 1, "'LIST' in globals"),
        (no_name, 1, "name 'nosuchname' is not defined"),
        (bits_of_a_float, 1, "and_"),
        (allocation, 1, "the shape of np.zeros must be integers from 0 to"),
        (nothing, 0, "returns nothing"),
        (text, 0, "unicode_type cannot be represented"),
    ],
)
def test_a_function_that_does_not_compile_names_its_line_and_the_reason(
    function: Any, line: int, says: str, store: Any
) -> None:
    store["floats"] = np.arange(10.0)
    program = nandarray.program(function, inputs="float64", trusted=True)
    said = set()
    for form in ("interpreted", "translated", "native"):
        with pytest.raises(nandarray.NandarrayError) as caught:
            store["floats"].offload(program, form=form)
        said.add(str(caught.value))
    first = function.__code__.co_firstlineno
    (only,) = said
    assert re.search(says, only)
    assert only.startswith(tuple(f"test_program_bad_input.py:{first + more}: " for more in {0, line})), only


def test_an_exception_is_told_with_its_line_in_all_forms(store: Any) -> None:
    def small(x):
        if x < 0:
            raise AssertionError("negative")
        if x > 5:
            raise ValueError("too large")
        return x

    store["floats"] = np.arange(10.0)
    store["negative"] = -np.arange(10.0)
    program = nandarray.program(small, inputs="float64", trusted=True)
    line = small.__code__.co_firstlineno
    for name, says in (
        ("floats", f"ValueError: too large .*:{line + 4}"),
        ("negative", f"AssertionError: negative .*:{line + 2}"),
    ):
        said = set()
        for form in ("interpreted", "translated", "native"):
            with pytest.raises(ProgramFailedError, match=says) as caught:
                store[name].offload(program, form=form)
            assert (caught.value.task, caught.value.stage) == (0, 0)
            said.add(str(caught.value))
        assert len(said) == 1


def test_a_closures_and_a_globals_value_is_that_of_when_it_was_compiled(store: Any) -> None:
    def adding(number: float) -> Any:
        return nandarray.program(lambda x: x + number, inputs="float64")

    store["floats"] = np.arange(10.0)
    for number in (1.0, 2.0, 1.0):
        np.testing.assert_array_equal(store["floats"].offload(adding(number)), np.arange(10.0) + number)


PACKING = ("bitpack", "bitunpack")  # whose last record may be shorter
RECORDS = [name for name in programs.names() if programs.describe(name).family not in ("statistics", "elementwise")]


@pytest.mark.parametrize("form", ["interpreted", "native"])
@pytest.mark.parametrize("name", RECORDS)
def test_a_piece_of_a_record_is_an_error(store: Any, name: str, form: str) -> None:
    """Nothing is left out silently: of what is encrypted, replicated or summed no byte may be missing."""
    for kind in programs.describe(name).kinds:
        program = programs.get(name, kind=kind)
        dtypes = [
            np.dtype([tuple(one) for one in p["dtype"]] if isinstance(p["dtype"], list) else p["dtype"])
            for p in program.inputs
        ]
        pairs = list(zip(program.inputs, dtypes, strict=True))
        if pairs[0][0]["record_bytes"] == dtypes[0].itemsize or name in PACKING:
            continue
        given = [np.zeros(0 if p["whole"] else 2 * p["record_bytes"] // kind.itemsize + 1, kind) for p, kind in pairs]
        if "piece" in store:
            del store["piece"]
        store["piece"] = given[0]
        scalars = {one["name"]: at for at, one in enumerate(program.scalars)}
        with pytest.raises(ProgramFailedError, match=r"returned -2|ended with"):
            nandarray.offload(program, [store["piece"], *given[1:]], scalars, form=form)


def test_what_numba_says_of_sets_is_no_reason_for_operands_that_are_none() -> None:
    said = """No implementation of function Function(<built-in function and_>) found for signature:

 >>> and_(float64, int64)

Overload in function '_ol_set_operator': File: numba/cpython/setobj.py: Line 1508.
  Rejected as the implementation raised a specific error:
    TypingError: All arguments must be Sets, got (float64, int64)
"""
    assert "and_(float64, int64)" in functions._reason(said)
    assert functions._reason(said.replace("All arguments must be Sets", "too many")).startswith("too many")
