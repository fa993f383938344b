"""Programs in C: what they compile to computes what NumPy computes, and wrong ones are refused with a reason."""

from __future__ import annotations

import contextlib
import pickle
import re
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import program_qemu
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nandarray
from nandarray import CompileError, InvalidError, Program, ProgramError
from nandarray.programs import abi
from nandarray.programs.compile import zig
from nandarray.programs.compile.cache import Cache

HEAD = "#include <nandarray.h>\n"
SCALE = (
    HEAD
    + """
ND_PROGRAM("name": "scale", "kind": "block", "inputs": [{"name": "x", "dtype": "float32"}],
           "outputs": [{"name": "y", "dtype": "float32"}], "scalars": [{"name": "factor", "dtype": "float32"}])
int64_t nd_block(nd_args *args) {
    const float *x = ND_INPUT(args, 0, float);
    float *y = ND_OUTPUT(args, 0, float), factor = nd_scalar_f32(args, 0);
    size_t n = ND_INPUT_COUNT(args, 0, float);
    for (size_t i = 0; i < n; i++) y[i] = factor * x[i];
    ND_SET_USED(args, 0, n, float);
    return 0;
}
"""
)
MOMENTS = (
    HEAD
    + """
ND_PROGRAM("name": "moments", "kind": "block", "inputs": [{"name": "x", "dtype": "int32"}], "state_bytes": 24,
           "outputs": [{"name": "r", "dtype": "int64", "phase": "end", "bound": {"fixed": 24}}])
struct state { int64_t n, sum, max; };
_Static_assert(sizeof(struct state) == 24, "as the metadata says");
int64_t nd_begin(nd_args *args) { ND_STATE(args, struct state)->max = INT64_MIN; return 0; }
int64_t nd_block(nd_args *args) {
    struct state *s = ND_STATE(args, struct state);
    const int32_t *x = ND_INPUT(args, 0, int32_t);
    for (size_t i = 0; i < ND_INPUT_COUNT(args, 0, int32_t); i++) {
        s->n++, s->sum += x[i];
        if (x[i] > s->max) s->max = x[i];
    }
    return 0;
}
int64_t nd_merge(nd_args *args) {
    struct state *s = ND_STATE(args, struct state);
    const struct state *o = ND_OTHER_STATE(args, struct state);
    s->n += o->n, s->sum += o->sum, s->max = o->max > s->max ? o->max : s->max;
    return 0;
}
int64_t nd_end(nd_args *args) {
    *ND_OUTPUT(args, 0, struct state) = *ND_STATE(args, struct state);
    ND_SET_USED(args, 0, 1, struct state);
    return 0;
}
"""
)
STREAM = (
    HEAD
    + """
ND_PROGRAM("kind": "stream", "inputs": [{"dtype": "uint8"}], "outputs": [{"dtype": "uint8"}])
int64_t nd_stream(nd_args *args) { (void)args; for (;;) nd_store_u8(2, nd_load_u8(5)); }
"""
)


def program(body: str, metadata: str = '"kind": "block", "inputs": [{"dtype": "uint8"}]') -> str:
    return f"{HEAD}ND_PROGRAM({metadata})\nint64_t nd_block(nd_args *args) {{ (void)args; {body} }}\n"


@pytest.mark.parametrize("target", ["rv64", "rv32"])
def test_a_block_program_computes_what_numpy_computes(target: str) -> None:
    made = Program.from_c(SCALE, target=target)
    x = np.random.default_rng(1).normal(size=10_001).astype("f4")
    for tasks in (1, 7):
        (y,) = program_qemu.run(made, x, scalars=[1.7], tasks=tasks)
        np.testing.assert_array_equal(y, x * np.float32(1.7))
    assert made.target == target
    assert made.isa.startswith(f"{target}i")


@pytest.mark.parametrize("target", ["rv64", "rv32"])
def test_states_are_begun_merged_and_written_at_the_end(target: str) -> None:
    made = Program.from_c(MOMENTS, target=target)
    x = np.random.default_rng(2).integers(-(2**31), 2**31, 5000, dtype="i4")
    for workers in (1, 3):
        (r,) = program_qemu.run(made, x, tasks=6, workers=workers)
        np.testing.assert_array_equal(r, [len(x), x.sum(dtype="i8"), x.max()])
    assert made.metadata["entries"] == ["nd_begin", "nd_block", "nd_merge", "nd_end"]


_MATH = """
#include <nandarray.h>
#include <math.h>
ND_PROGRAM("kind": "block", "inputs": [{"name": "x", "dtype": "float64"}], "outputs": [{"name": "y", "dtype": "float64",
           "bound": {"per_record": 160}}])
int64_t nd_block(nd_args *args) {
    const double *x = ND_INPUT(args, 0, double);
    double *y = ND_OUTPUT(args, 0, double);
    size_t n = ND_INPUT_COUNT(args, 0, double);
    for (size_t i = 0; i < n; i++, y += 20) {
        double v = x[i];
        double all[20] = {sin(v), cos(v), tan(v), asin(v), acos(v), atan(v), sinh(v), cosh(v), tanh(v), exp(v),
                          exp2(v), log(v), log2(v), log10(v), log1p(v), cbrt(v), pow(v, 2.5), hypot(v, 2), fmod(7, v),
                          atan2(v, 3)};
        for (int k = 0; k < 20; k++) y[k] = all[k];
    }
    ND_SET_USED(args, 0, 20 * n, double);
    return 0;
}
"""


@pytest.mark.parametrize("target", ["rv64", "rv32"])
def test_mathematics_is_there_and_right_to_the_last_places(target: str) -> None:
    x = np.random.default_rng(3).uniform(0.01, 0.99, 200)
    (y,) = program_qemu.run(Program.from_c(_MATH, target=target), x)
    names = "sin cos tan arcsin arccos arctan sinh cosh tanh exp exp2 log log2 log10 log1p cbrt".split()  # noqa: SIM905
    want = [getattr(np, name)(x) for name in names] + [x**2.5, np.hypot(x, 2), np.fmod(7, x), np.arctan2(x, 3)]
    np.testing.assert_array_max_ulp(y.reshape(-1, 20), np.stack(want, axis=-1), maxulp=4)


_MEMORY = (
    HEAD
    + """
#include <string.h>
ND_PROGRAM("kind": "block", "inputs": [{"dtype": "uint8"}], "outputs": [{"dtype": "uint8"}], "scratchpad_bytes": 4096,
           "scalars": [{"name": "from", "dtype": "uint32"}, {"name": "to", "dtype": "uint32"},
                       {"name": "n", "dtype": "uint32"}, {"name": "what", "dtype": "int8"}])
int64_t nd_block(nd_args *args) {
    size_t size = args->inputs[0].bytes, from = args->scalars[0], to = args->scalars[1], n = args->scalars[2];
    unsigned char *y = ND_OUTPUT(args, 0, unsigned char);
    memcpy(y, ND_INPUT(args, 0, char), size);
    switch (nd_scalar_i64(args, 3)) {
    case -1: memmove(y + to, y + from, n); break;
    case 0: memset(y + to, (int)from, n); break;
    default: y[0] = (unsigned char)(memcmp(y + to, y + from, n) > 0);
    }
    ND_SET_USED(args, 0, size, char);
    return 0;
}
"""
)


@settings(max_examples=12)
@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100), st.sampled_from([-1, 0, 1]))
def test_memory_functions_at_every_alignment_and_overlap(begin: int, to: int, n: int, what: int) -> None:
    x = np.random.default_rng(4).integers(0, 256, 200, dtype="u1")
    (y,) = program_qemu.run(Program.from_c(_MEMORY), x, scalars=[begin, to, n, what])
    want = x.copy()
    if what == -1:
        want[to : to + n] = x[begin : begin + n]
    elif what == 0:
        want[to : to + n] = begin
    else:
        want[0] = x[to : to + n].tobytes() > x[begin : begin + n].tobytes()
    np.testing.assert_array_equal(y, want)


def test_stream_instructions_are_encoded_as_the_interface_says() -> None:
    lines = {
        "nd_load_u8(5)": (0x0B, 4, 5),
        "nd_load_i8(0)": (0x0B, 0, 0),
        "nd_load_i16(7)": (0x0B, 1, 7),
        "nd_load_u32(1)": (0x0B, 6, 1),
        "nd_load_i64(2)": (0x0B, 3, 2),
        "nd_load_f64(3)": (0x0B, 3, 3),
        "nd_store_u8(4, 9)": (0x2B, 0, 4),
        "nd_store_f32(6, 1.0f)": (0x2B, 2, 6),
        "nd_store_i64(1, -1)": (0x2B, 3, 1),
        "nd_read_input_u16(3, 8)": (0x5B, 5, 3),
        "nd_read_output_u8(2, 1)": (0x7B, 4, 2),
        "nd_peek_u32(5, -4)": (0x5B, 2, 5),
        "nd_wait(6, 100)": (0x5B, 7, 6),
    }
    calls = "".join(f"(void){call};" for call in lines)
    made = Program.from_c(
        f'{HEAD}ND_PROGRAM("kind": "stream", "inputs": [{{"dtype": "uint8"}}])\n'
        f"int64_t nd_stream(nd_args *args) {{ (void)args; {calls} return (int64_t)(nd_at_end(3) + nd_input_head(1)); }}"
    )
    words = _instructions(made, "nd_stream")
    custom = [word for word in words if word & 0x7F in (0x0B, 0x2B, 0x5B, 0x7B)]
    assert [(word & 0x7F, word >> 12 & 7, word >> 15 & 31) for word in custom] == list(lines.values())
    assert [word >> 25 for word in custom if word & 0x7F == 0x5B] == [0, 1, 0]
    for word in custom:
        if word & 0x7F == 0x0B:
            assert word >> 20 == 0
        if word & 0x7F == 0x2B:
            assert word >> 25 == 0
            assert word >> 7 & 31 == 0
    csrs = [word >> 20 for word in words if word & 0x7F == 0x73]
    assert csrs == [0x883, 0x801]


def _instructions(made: Program, name: str) -> list[int]:
    """The words of a function; compressed instructions are left out."""
    symbol = next(one for one in made.symbols if one.name == name)
    text = next(one for one in made.sections if one.name == ".text")
    from elftools.elf.elffile import ELFFile

    with open("x.elf", "w+b") as file:
        file.write(made.elf)
        file.flush()
        data = ELFFile(file).get_section_by_name(".text").data()
    code, at, found = data[symbol.address - text.address :][: symbol.size], 0, []
    while at < len(code):
        if code[at] & 3 == 3:
            found.append(struct.unpack_from("<I", code, at)[0])
            at += 4
        else:
            at += 2
    return found


def test_a_stream_program_is_one() -> None:
    for target in ("rv64", "rv32"):
        made = Program.from_c(STREAM, target=target)
        assert (made.kind, made.metadata["entries"]) == ("stream", ["nd_stream"])
        assert made.inputs[0]["name"] == "input0"


def test_wide_elements_of_streams_on_rv32_are_two_halves() -> None:
    made = Program.from_c(
        HEAD
        + """ND_PROGRAM("kind": "stream", "inputs": [{"dtype": "float64"}])
        int64_t nd_stream(nd_args *args) { (void)args; nd_store_f64(1, nd_load_f64(2)); return 0; }""",
        target="rv32",
    )
    custom = [word & 0xFF07F for word in _instructions(made, "nd_stream") if word & 0x7F in (0x0B, 0x2B)]
    assert custom == [0x1200B, 0x1200B, 0x0A02B, 0x0A02B]


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_an_error_in_c_names_file_and_line() -> None:
    Path("kernel.c").write_text(program("int a = ;\nreturn nothing;"))
    with pytest.raises(CompileError, match=r"kernel\.c:3:\d+: error: expected expression") as caught:
        Program.from_c("kernel.c")
    first = caught.value.diagnostics[0]
    assert (first["file"], first["line"], first["severity"]) == ("kernel.c", 3, "error")
    with pytest.raises(CompileError, match=r"mine\.c:3:"):
        Program.from_c(Path("kernel.c").read_text(), name="mine.c")


def test_calling_what_is_not_there_names_it() -> None:
    with pytest.raises(CompileError, match=r"does not define: printf \(program\.c:4\)"):
        Program.from_c("#include <stdio.h>\n" + program('return printf("%d", 1);'))


def test_the_wrong_signature_is_an_error_of_the_compiler() -> None:
    with pytest.raises(CompileError, match="conflicting types"):
        Program.from_c(HEAD + 'ND_PROGRAM("kind": "block")\nint nd_block(int x) { return x; }')


def test_warnings_are_kept() -> None:
    for _ in range(2):
        assert "unused variable" in Program.from_c(program("int unused; return 0;")).warnings


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ('"kind": "block"', "at least one input"),
        ('"kind": "blocks", "inputs": [{"dtype": "u1"}]', "kind must be one of block, stream, not 'blocks'"),
        ('"kind": "stream", "inputs": [{"dtype": "u1"}]', "does not define nd_stream"),
        ('"kind": "block", "inputs": [{"dtype": "float33"}]', "'float33' is not a dtype"),
        ('"kind": "block", "inputs": [{"dtype": "O"}]', "no fixed size"),
        ('"kind": "block", "inputs": [{"dtype": "f4", "record_bytes": 6}]', "whole elements"),
        ('"kind": "block", "inputs": [{"dtype": "f4"}], "output": []', "'output' is not known"),
        ('"kind": "block", "inputs": [{"name": "x"}]', "must be written"),
        ('"kind": "block", "inputs": {}', "must be a list"),
        (
            '"kind": "block", "inputs": [{"dtype": "f4"}], "outputs": [{"dtype": "f4", "bound": {"per_record": -1}}]',
            "-1",
        ),
        ('"kind": "block", "inputs": [{"dtype": "f4"}], "outputs": [{"dtype": "f4", "phase": "end"}]', "nd_end"),
        ('"kind": "block", "inputs": [{"dtype": "f4"}], "scalars": [{"dtype": "c16"}]', "64 bits"),
        ('"kind": "block", "inputs": [{"name": "x", "dtype": "f4"}], "outputs": [{"name": "x", "dtype": "f4"}]', "two"),
        ('"kind": "block", "inputs": [{"dtype": "f4"}], "state_bytes": true', "number of bytes"),
        ('"kind": "block", "inputs": [{"dtype": "f4"}], "memory_bytes": 1', "memory_bytes is 1"),
        ('"kind": "block", "inputs": [' + ", ".join(['{"dtype": "f4"}'] * 9) + "]", "at most 8"),
        ('"kind": "block" "inputs": 1', "no JSON"),
        ('"kind": "block", "inputs": [{"dtype": "f4", "whole": true}]', "false for input 0"),
        ('"kind": "block", "inputs": [{"dtype": "u1", "records": "words"}]', "'words'"),
        ('"kind": "block", "inputs": [{"dtype": "f4", "records": "lines"}]', "of bytes"),
    ],
)
def test_wrong_metadata_is_refused(metadata: str, says: str) -> None:
    with pytest.raises(ProgramError, match=re.escape(says)):
        Program.from_c(program("return 0;", metadata))


def test_metadata_is_given_with_its_defaults() -> None:
    made = Program.from_c(SCALE)
    assert made.metadata == {
        "abi": 1,
        "name": "scale",
        "summary": "",
        "kind": "block",
        "tasks": "any",
        "inputs": [
            {
                "name": "x",
                "dtype": "float32",
                "record_bytes": 4,
                "whole": False,
                "records": "fixed",
                "packed": None,
                "ahead": 0,
            }
        ],
        "outputs": [
            {
                "name": "y",
                "dtype": "float32",
                "record_bytes": 4,
                "phase": "task",
                "exact": True,
                "bound": {"per_record": 4, "per_input_byte": 0, "fixed": 0},
            }
        ],
        "scalars": [{"name": "factor", "dtype": "float32"}],
        "state_bytes": 0,
        "scratchpad_bytes": 0,
        "memory_bytes": 1 << 20,
        "errors": {},
        "entries": ["nd_block"],
        "needs_end": False,
    }


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda raw: b"", "not an ELF"),
        (lambda raw: b"#!/bin/sh\n", "not an ELF"),
        (lambda raw: raw[:18] + b"\x3e\x00" + raw[20:], "not for RISC-V"),
        (lambda raw: raw[:16] + b"\x03\x00" + raw[18:], "ET_DYN"),
        (lambda raw: raw[:5] + b"\x02" + raw[6:], "ELF"),
        (lambda raw: raw[:100], "damaged"),
        (lambda raw: raw.replace(b".nandarray.program", b".nandarray.progran"), "no section"),
        (lambda raw: raw.replace(b'"abi": 1', b'"abi": 2'), "version 2"),
        (lambda raw: raw.replace(b"_zba1p0", b"_zbz1p0"), "needs zbz"),
    ],
)
def test_what_is_no_program_is_refused(spoil: object, says: str) -> None:
    raw = Program.from_c(SCALE).elf
    with pytest.raises(ProgramError, match=says):
        Program.from_elf(spoil(raw))  # type: ignore[operator]


def test_segments_without_rights_are_told_as_such() -> None:
    raw = bytearray(Program.from_c(SCALE).elf)
    first, size, count = struct.unpack_from("<Q14xHH", raw, 32)
    for at in range(first, first + count * size, size):
        struct.pack_into("<I", raw, at + 4, 0)
    with pytest.raises(ProgramError, match="^no segment may be read, written or executed$"):
        Program.from_elf(bytes(raw))


def test_errors_name_what_the_program_calls() -> None:
    body = """
        int64_t nd_block(nd_args *args) {
            char *p = malloc(nd_scalar_i64(args, 0));
            ND_OUTPUT(args, 0, int64_t)[0] = (int64_t)p;
            return mine(p);
        }
    """
    text = (
        HEAD
        + """
        ND_PROGRAM("name": "heap", "kind": "block", "inputs": [{"name": "x", "dtype": "int64"}],
                   "outputs": [{"name": "y", "dtype": "int64"}], "scalars": [{"name": "n", "dtype": "int64"}])
        void *malloc(size_t size); int64_t mine(char *);
    """
    )
    with pytest.raises(CompileError) as failed:
        Program.from_c(text + body)
    first = str(failed.value).splitlines()[0]
    assert first.startswith("the program calls what it does not define: ")
    assert "malloc (program.c:" in first
    assert "mine (program.c:" in first
    assert "mmap" not in str(failed.value)
    assert {one["text"].split()[0] for one in failed.value.diagnostics} == {"malloc", "mine"}
    with pytest.raises(CompileError, match=r"define: malloc \(program.c:\d+\); there is <math.h>"):
        Program.from_c(text + body.replace("mine(p)", "0"))


@settings(max_examples=150)
@given(st.data())
def test_no_bytes_make_it_raise_anything_else(data: st.DataObject) -> None:
    raw = bytearray(Program.from_c(SCALE).elf)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(raw), data.draw(st.integers(0, len(raw)))]))
    with contextlib.suppress(ProgramError):
        Program.from_elf(bytes(raw[:cut]))


def test_an_extension_that_no_core_has_is_refused() -> None:
    with pytest.raises(ProgramError, match="needs zbc, "):
        Program.from_c(SCALE, flags=["-march=rv64gc_zbc"])
    with pytest.raises(InvalidError, match="rv128"):
        Program.from_c(SCALE, target="rv128")


# --- what a program is ------------------------------------------------------------------------------------------------


def test_a_program_is_a_value() -> None:
    made = Program.from_c(SCALE)
    again = pickle.loads(pickle.dumps(made))
    assert again == made
    assert hash(again) == hash(made)
    assert again.source == SCALE
    assert len({made, again, Program.from_c(MOMENTS)}) == 2
    with pytest.raises(AttributeError, match="does not change"):
        made.name = "other"  # type: ignore[misc]
    made.metadata["inputs"].clear()
    made.inputs[0]["dtype"] = "int8"  # type: ignore[index]
    assert made.inputs[0]["dtype"] == "float32"
    with pytest.raises(TypeError, match=r"Program\.from_c"):
        Program()


def test_a_program_is_saved_and_read_again() -> None:
    made = Program.from_c(SCALE)
    made.save("scale.elf")
    assert Program.from_elf("scale.elf") == made == Program.from_elf(made.elf)
    assert len(made.hash) == 64
    assert "scale" in repr(made)
    assert "<table>" in made._repr_html_()


def test_an_address_leads_to_symbol_and_line() -> None:
    made = Program.from_c(SCALE, name="scale.c")
    block = next(one for one in made.symbols if one.name == "nd_block")
    where = made.locate(block.address)
    assert (where.symbol, where.offset, where.file) == ("nd_block", 0, "scale.c")
    assert where.line is not None
    assert "int64_t nd_block" in "".join(SCALE.splitlines()[: where.line])
    assert made.locate(0x4000_0000).symbol is None
    assert "nd_block+0x0" in str(where)


def test_the_same_source_gives_the_same_bytes_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Program.from_c(SCALE)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "program.c").write_text(SCALE)
        monkeypatch.setenv("NANDARRAY_CACHE", str(tmp_path / f"cache-{folder}"))
        assert Program.from_c(tmp_path / folder / "program.c").elf == made.elf


# --- the cache --------------------------------------------------------------------------------------------------------


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NANDARRAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "programs"


def _count_compiles(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    calls: list[Path] = []
    real = zig.compile_c
    monkeypatch.setattr(zig, "compile_c", lambda source, *a, **k: calls.append(source) or real(source, *a, **k))
    return calls


def test_a_second_time_nothing_is_compiled(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _count_compiles(monkeypatch)
    first = Program.from_c(SCALE)
    assert Program.from_c(SCALE) == first
    assert len(calls) == 1
    Program.from_c(SCALE, flags=["-DX"])
    Program.from_c(SCALE, target="rv32")
    Program.from_c(SCALE + " ")
    assert len(calls) == 4


def test_a_changed_include_is_noticed(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _count_compiles(monkeypatch)
    Path("value.h").write_text("#define VALUE 1\n")
    Path("k.c").write_text('#include "value.h"\n' + program("return VALUE;"))
    first = Program.from_c("k.c")
    assert Program.from_c("k.c") == first
    Path("value.h").write_text("#define VALUE 2\n")
    assert Program.from_c("k.c") != first
    assert len(calls) == 2


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\n\xff", None])
def test_a_damaged_entry_is_built_anew(own_cache: Path, damage: bytes | None) -> None:
    first = Program.from_c(SCALE)
    (entry,) = own_cache.iterdir()
    raw = entry.read_bytes()
    entry.write_bytes(raw[:-10] + b"0123456789" if damage is None else damage)
    assert Program.from_c(SCALE) == first
    assert entry.read_bytes() == raw


def test_many_writers_and_readers_at_once(own_cache: Path) -> None:
    made: list[Program] = []
    threads = [threading.Thread(target=lambda: made.append(Program.from_c(SCALE))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert len(set(made)) == 1
    assert len(list(own_cache.iterdir())) == 1


def test_where_nothing_can_be_kept_programs_compile_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").write_text("")
    monkeypatch.setenv("NANDARRAY_CACHE", str(Path("file").absolute()))
    assert Program.from_c(SCALE) == Program.from_c(SCALE)


def test_old_entries_go(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nandarray.programs.compile.cache._ENTRIES_MAX", 8)
    cache = Cache()
    for number in range(20):
        cache.put(f"{number:064}", b"x", note={})
    assert 6 <= len(list(own_cache.iterdir())) <= 8
    assert cache.get(f"{19:064}") == (b"x", {})


def test_importing_nandarray_imports_no_compiler() -> None:
    code = (
        "import sys, nandarray; "
        "print([m for m in ('numba', 'llvmlite', 'ziglang', 'elftools', 'cloudpickle') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


# --- the specification ------------------------------------------------------------------------------------------------


def test_the_page_says_what_the_code_does() -> None:
    page = (Path(nandarray.__file__).parents[2] / "docs" / "reference" / "program-abi.md").read_text()
    plain = page.replace("_", "")
    for address in (abi.IMAGE_ADDRESS, abi.ARGS_ADDRESS, abi.SCRATCHPAD_ADDRESS, abi.INPUT_ADDRESS, abi.OUTPUT_ADDRESS):
        digits = f"{address:x}" if address == abi.IMAGE_ADDRESS else f"{address:08x}"
        assert f"`0x{digits}" in plain
    assert f"{abi.WINDOW_BYTES:08x}" in plain
    for size in (f"{abi.MEMORY_BYTES}", f"{abi.MEMORY_BYTES_MAX:,}", f"{abi.SCRATCHPAD_BYTES}"):
        assert size in page
    for name in abi.ENTRIES:
        assert f"`{name}`" in page


def test_the_header_has_the_offsets_of_the_page() -> None:
    page = (Path(nandarray.__file__).parents[2] / "docs" / "reference" / "program-abi.md").read_text()
    block = page.split("## The argument block")[1].split("An input or output:")
    rows = [re.findall(r"^\| (\d+) \| `(\w+)", part, re.MULTILINE) for part in block]
    checks = [f'_Static_assert(offsetof(nd_args, {name}) == {at}, "");' for at, name in rows[0]]
    checks += [f'_Static_assert(offsetof(nd_buffer, {name}) == {at}, "");' for at, name in rows[1] if name != "abi"]
    assert len(checks) == 20 + 5
    for target in ("rv64", "rv32"):
        Program.from_c(program("return 0;") + "\n".join(checks), target=target)


def test_a_misspelt_entry_point_is_named() -> None:
    source = """#include <nandarray.h>
ND_PROGRAM("name": "m", "kind": "block", "inputs": [{"name": "x", "dtype": "uint8"}], "outputs": [])
void helper(void) {}
int64_t nd_blk(nd_args *args) { return 0; }
"""
    with pytest.raises(nandarray.ProgramError, match=r"defines no nd_block and no nd_stream; it defines nd_blk$"):
        nandarray.Program.from_c(source)


def test_bytes_of_a_stream_are_not_masked_again(tmp_path: Path) -> None:
    source = """
        #include <nandarray.h>
        ND_PROGRAM("name": "skip", "kind": "stream", "inputs": [{"name": "x", "dtype": "uint8"}], "outputs": [])
        int64_t nd_stream(nd_args *args) {
            (void)args;
            while (nd_load_u8(0) != '\\n') continue;
            return 0;
        }
    """
    with nandarray.open(tmp_path / "a.nand", mode="w") as store:
        store["x"] = np.full(4096, 7, np.uint8)
        done = nandarray.offload(Program.from_c(source, target="rv32im"), [store["x"]])
    # A load and a branch, and what begins and ends a task.
    assert done.account.instructions < 2.1 * 4096
