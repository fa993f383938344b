"""VarVE: programs with every kind of stream and operation beside a slow model in Python, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import varve_model as model

import nandarray
from nandarray import Program

pytest.importorskip("ziglang")

HEAD = "#include <nandarray.h>\n#include <nandarray_varve.h>\n"
BYTES_IN = '"inputs": [{"name": "x", "dtype": "uint8"}]'


def program(body: str, out: str = "int64", more: str = "", target: str = "rv64gcv_zvl256b") -> Program:
    text = f"""
ND_PROGRAM("name": "k", "kind": "block", {BYTES_IN},
           "outputs": [{{"name": "y", "dtype": "{out}", "bound": {{"fixed": 131072}}}}],
           "scalars": [{{"name": "count", "dtype": "int64"}}, {{"name": "bits", "dtype": "int64"}}])
{more}
int64_t nd_block(nd_args *args) {{
    const uint8_t *x = ND_INPUT(args, 0, uint8_t);
    int64_t *y = ND_OUTPUT(args, 0, int64_t), count = nd_scalar_i64(args, 0), bits = nd_scalar_i64(args, 1);
    size_t used = 0;
    {body}
    ND_SET_USED(args, 0, used, int64_t);
    return 0;
}}
"""
    return Program.from_c(HEAD + text, target=target)


def run(  # noqa: PLR0917 - as a call of the program
    made: Program, data: bytes, folder: Path, count: int, bits: int = 0, form: str = "interpreted"
) -> list[int]:
    with nandarray.open(folder / "v.nand", "w") as store:
        array = store.create("x", data=np.frombuffer(data, np.uint8))
        return array.offload(made, count=count, bits=bits, form=form).tolist()


# All values of stream 0 by way of variable-width vectors, as 64-bit values.
COPY_FULL = """
    nd_fwstream(1, y, count, 64 | ND_SIGNED);
    for (int64_t left = count; left > 0;) {
        nd_vunpack(1, 0, 64);
        used += nd_vpack(1, 1);
        unsigned long n = nd_vrcnum();
        nd_crstream(0, n);
        left -= (int64_t)n;
    }
    nd_erstream(0);
    nd_ewstream(1);
"""
COPY_PUP = """
    nd_fwstream(1, y, count, 64 | ND_SIGNED);
    for (int64_t left = count; left > 0;) {
        size_t vl;
        __asm__ volatile("vsetvli %0, %1, e64, m2, ta, ma" : "=r"(vl) : "r"(left));
        nd_unpack(2, 0);
        used += nd_pack(2, 1);
        left -= (int64_t)vl;
    }
"""


@pytest.mark.parametrize("copy", [COPY_FULL, COPY_PUP])
@pytest.mark.parametrize("form", ["interpreted", "translated"])
def test_fixed_width_streams(copy: str, form: str, tmp_path: Path) -> None:
    made = program("nd_frstream(0, x, count, bits);" + copy)
    chance = np.random.default_rng(3)
    for bits in (1, 5, 8, 15, 33, 63):
        values = [int(v) for v in chance.integers(0, 1 << bits, 500)]
        assert run(made, model.pack(values, [bits] * 500), tmp_path, 500, bits, form) == values
    values = [int(v) for v in chance.integers(-16, 16, 300)]
    assert run(made, model.pack(values, [5] * 300), tmp_path, 300, 5 | 0x80, form) == values


@pytest.mark.parametrize("copy", [COPY_FULL, COPY_PUP])
def test_variable_width_streams(copy: str, tmp_path: Path) -> None:
    made = program("nd_vrstream(0, x + count, count, x);" + copy)
    chance = np.random.default_rng(4)
    widths = [int(w) for w in chance.integers(0, 40, 400)]
    values = [int(chance.integers(0, 1 << w)) for w in widths]
    data = bytes(widths) + model.pack(values, widths)
    assert run(made, data, tmp_path, 400) == values == model.unpack(data[400:], widths, signed=False)


def table(codes: dict[str, int]) -> bytes:
    entries = [
        value.to_bytes(8, "little", signed=True) + int(code, 2).to_bytes(4, "little") + len(code).to_bytes(4, "little")
        for code, value in codes.items()
    ]
    return len(entries).to_bytes(8, "little") + b"".join(entries)


CODES = {"0": 7, "10": -3, "110": 1000, "1110": 0, "1111": 5}


@pytest.mark.parametrize("copy", [COPY_FULL, COPY_PUP])
def test_huffman_streams(copy: str, tmp_path: Path) -> None:
    head = table(CODES)
    made = program(f"nd_hrstream(0, x + {len(head)}, count, x);" + copy)
    chance = np.random.default_rng(5)
    drawn = chance.choice(list(CODES), 300)
    digits = "".join(drawn)
    data = bytes(int(digits[at : at + 8][::-1], 2) for at in range(0, len(digits), 8))
    values = [CODES[code] for code in drawn]
    assert model.huffman_decode(data, CODES, 300) == values
    assert run(made, head + data, tmp_path, 300) == values


@pytest.mark.parametrize(("kind", "detail"), [("vw", "w"), ("hw", "x")])
def test_written_streams_can_be_read(kind: str, detail: str, tmp_path: Path) -> None:
    head = table(CODES)
    reads = {"vw": "nd_vrstream(2, d, count | (int64_t)1 << 63, w);", "hw": "nd_hrstream(2, d, count, x);"}[kind]
    body = f"""
    nd_frstream(0, x + {len(head)}, count, 16 | ND_SIGNED);
    nd_{kind}stream(1, d, {"count | (int64_t)1 << 63" if kind == "vw" else "count"}, {detail});
    for (int64_t left = count; left > 0;) {{
        nd_vunpack(3, 0, 64);
        nd_vpack(3, 1);
        unsigned long n = nd_vrcnum();
        nd_crstream(0, n);
        left -= (int64_t)n;
    }}
    nd_ewstream(1);
    {reads}
    """
    made = program(
        body + COPY_FULL.replace("vunpack(1, 0", "vunpack(1, 2").replace("stream(0", "stream(2"),
        more="static uint8_t d[8192], w[8192];",
    )
    values = [int(v) for v in np.random.default_rng(6).choice(list(CODES.values()), 500)]
    assert run(made, head + model.pack(values, [16] * 500), tmp_path, 500) == values


NAMES = list(model.OPERATIONS)
FORMS = ("vv", "vvm", "vi", "vim")
IMMEDIATES = (-16, -1, 0, 3, 15)


def strips() -> str:
    """C for strips of streams 0 and 1 (of 16 bits): how many, then the results or the mask.

    The low bits of ``bits`` say which operation: 20 times its number, then 5 times its form, then its immediate; those
    from bit 16 on are ``mb``. The mask of those with one is: below zero.
    """
    cases = [
        f"case {20 * op + 5 * form + at}: nd_varve_{name}({op}, {0 if NAMES[op].startswith('cmp') else 3}, 1, "
        f"{imm if 'i' in name else 2}); break;"
        for op in range(len(NAMES))
        for form, name in enumerate(FORMS)
        for at, imm in enumerate(IMMEDIATES)
    ]
    compares = [f"op == {op}" for op, name in enumerate(NAMES) if name.startswith("cmp")]
    return f"""
    int64_t which = bits & 0xffff, op = which / 20, mb = bits >> 16;
    nd_frstream(0, x, count, 16 | ND_SIGNED);
    nd_frstream(1, x + 2 * count, count, 16 | ND_SIGNED);
    for (int64_t left = count; left > 0;) {{
        nd_vunpack(1, 0, mb);
        nd_vunpack(2, 1, mb);
        if (which / 5 % 2) nd_varve_vi(ND_VARVE_CMPLT, 0, 1, 0);
        switch (which) {{ {" ".join(cases)} default: return 1; }}
        if ({" || ".join(compares)})
            __asm__ volatile("vsetvli zero, %1, e8, m1, ta, ma\\n vse8.v v0, (%0)"
                             : : "r"(y + used + 1), "r"(8) : "memory");
        unsigned long n = nd_vrcnum();
        y[used++] = (int64_t)n;
        if (n == 0) return 2;
        if ({" || ".join(compares)}) used++;
        else {{
            nd_fwstream(2, y + used, nd_vnum(3), 64 | ND_SIGNED);
            if (nd_vpack(3, 2) < n) return 3;
            used += n;
        }}
        nd_crstream(0, n);
        nd_crstream(1, n);
        left -= (int64_t)n;
    }}
    """


def signed(bits: Sequence[int]) -> int:
    """The number that a mask of 64 elements is in memory."""
    number = sum(bit << i for i, bit in enumerate(bits))
    return number - (1 << 64) if number >> 63 else number


def expected(name: str, form: str, data: tuple[list[int], list[int]], mb: int, vlen: int = 256) -> list[int]:
    """Return the words that the program of :func:`strips` writes."""
    a, b = data
    wanted: list[int] = []
    at = 0
    while at < len(a):
        unit = model.Unit(vlen, 8)
        one, two = unit.vunpack(a[at:]), unit.vunpack(b[at:])
        mask = unit.operate("cmplt", one, [0] * len(one)) if form.endswith("m") else None
        values = unit.operate(name, one, [b[at]] * len(one) if "i" in form else two, mb, mask)
        assert unit.num_e
        wanted += [unit.num_e, *([signed(values)] if name.startswith("cmp") else values[: unit.num_e])]
        at += unit.num_e
    return wanted


@pytest.fixture(scope="module")
def every_operation() -> Program:
    return program(strips())


@pytest.mark.parametrize("mb", [16, 64])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_operations_yield_what_the_datapath_takes(
    name: str, form: str, mb: int, every_operation: Program, tmp_path: Path
) -> None:
    """Each strip: two streams, one operation; strip sizes, values and masks are the model's."""
    chance = np.random.default_rng(7)
    draw = lambda: [int(v) for v in chance.integers(-(2**14), 2**14, 300) >> chance.integers(0, 14, 300)]  # noqa: E731
    for at, immediate in enumerate(IMMEDIATES if "i" in form else (0,)):
        a, b = draw(), draw()
        b = [immediate] * 300 if "i" in form else b
        data = model.pack(a, [16] * 300) + model.pack(b, [16] * 300)
        which = 20 * NAMES.index(name) + 5 * FORMS.index(form) + at
        found = run(every_operation, data, tmp_path, 300, which | mb << 16)
        assert found == expected(name, form, (a, b), mb), immediate


class Packed:
    """200 drawn values as an input of a kind: how a program describes it, and its bytes."""

    def __init__(self, chance: np.random.Generator, kind: str, number: int, at: int) -> None:
        """Draw them; the bytes begin at ``at`` of the program's input."""
        draw = chance.integers(-(2**14), 2**14, 200) >> chance.integers(0, 14, 200)
        self.values = [int(value) for value in draw]
        if kind == "fixed":
            self.data = model.pack(self.values, [16] * 200)
            self.c = f"nd_frstream({number}, x + {at}, count, 16 | ND_SIGNED);"
        elif kind == "variable":
            widths = [model.width(value) for value in self.values]
            self.data = bytes(widths) + model.pack(self.values, widths)
            self.c = f"nd_vrstream({number}, x + {at + 200}, count | (int64_t)1 << 63, x + {at});"
        else:
            drawn = [str(code) for code in chance.choice(list(CODES), 200)]
            digits = "".join(drawn)
            self.values = [CODES[code] for code in drawn]
            self.data = table(CODES) + bytes(int(digits[i : i + 8][::-1], 2) for i in range(0, len(digits), 8))
            self.c = f"nd_hrstream({number}, x + {at + len(table(CODES))}, count, x + {at});"


class Chain:
    """A random program of VarVE: operations on the vectors of two streams, each on results of earlier ones."""

    def __init__(self, seed: int) -> None:
        """Draw two inputs, 2 to 6 operations: name, form, destination, two sources, an immediate, a mask's source."""
        chance = np.random.default_rng(seed)
        kinds = [str(kind) for kind in chance.choice(["fixed", "variable", "huffman"], 2)]
        first = Packed(chance, kinds[0], 0, 0)
        self.inputs = first, Packed(chance, kinds[1], 1, len(first.data))
        self.mb = [int(bits) for bits in chance.choice([0, 16, 23, 64], 2)]
        arithmetic = [name for name in NAMES if not name.startswith("cmp")]
        self.steps = [
            (
                str(chance.choice(arithmetic)),
                str(chance.choice(FORMS)),
                destination,
                int(chance.integers(1, destination)),
                int(chance.integers(1, destination)),
                int(chance.choice(IMMEDIATES)),
                int(chance.integers(1, destination)),
            )
            for destination in range(3, int(chance.integers(5, 10)))
        ]
        self.last = self.steps[-1][2]

    @property
    def data(self) -> bytes:
        """The bytes of both inputs."""
        return self.inputs[0].data + self.inputs[1].data

    def c(self) -> str:
        """Return the body of the program: strips of both streams, the values of the last operation."""
        lines = []
        for name, form, to, one, two, immediate, masked in self.steps:
            if form.endswith("m"):
                lines.append(f"nd_varve_vi(ND_VARVE_CMPLT, 0, {masked}, 0);")
            lines.append(f"nd_varve_{form}({NAMES.index(name)}, {to}, {one}, {immediate if 'i' in form else two});")
        return f"""
    {self.inputs[0].c}
    {self.inputs[1].c}
    for (int64_t left = count; left > 0;) {{
        nd_vunpack(1, 0, {self.mb[0]});
        nd_vunpack(2, 1, {self.mb[1]});
        {" ".join(lines)}
        unsigned long n = nd_vrcnum();
        if (n == 0) return 2;
        y[used++] = (int64_t)n;
        nd_fwstream(2, y + used, nd_vnum({self.last}), 64 | ND_SIGNED);
        if (nd_vpack({self.last}, 2) < n) return 3;
        used += n;
        nd_crstream(0, n);
        nd_crstream(1, n);
        left -= (int64_t)n;
    }}
    """

    def expected(self) -> list[int]:
        """Return the words that the program writes, by the model."""
        a, b = (one.values for one in self.inputs)
        wanted: list[int] = []
        at = 0
        while at < len(a):
            unit = model.Unit(256, 8)
            registers = {1: unit.vunpack(a[at:]), 2: unit.vunpack(b[at:])}
            most = {register: bits or 64 for register, bits in zip((1, 2), self.mb, strict=True)}
            for name, form, to, one, two, immediate, masked in self.steps:
                zeros = [0] * len(registers[masked])
                mask = unit.operate("cmplt", registers[masked], zeros) if form.endswith("m") else None
                second = [immediate] * len(registers[one]) if "i" in form else registers[two]
                bits = most[one] if "i" in form else min(most[one], most[two])
                registers[to], most[to] = unit.operate(name, registers[one], second, bits, mask), bits
            assert unit.num_e
            wanted += [unit.num_e, *registers[self.last][: unit.num_e]]
            at += unit.num_e
        return wanted


@pytest.mark.parametrize("seed", range(400 if os.environ.get("NANDARRAY_DEEP") else 24))
def test_random_programs_agree_with_the_model(seed: int, tmp_path: Path) -> None:
    """Interpreter, translator and Python model of a random program, whose seed is in the test's name."""
    chain = Chain(seed)
    made, wanted = program(chain.c()), chain.expected()
    for form in ("interpreted", "translated"):
        assert run(made, chain.data, tmp_path, 200, form=form) == wanted, (form, chain.steps)


@pytest.mark.parametrize("form", ["interpreted", "translated"])
def test_operations_of_32_bits(form: str, tmp_path: Path) -> None:
    made = program(strips(), target="rv32gc_zve32f")
    chance = np.random.default_rng(9)
    a, b = ([int(v) for v in chance.integers(-(2**14), 2**14, 200) >> chance.integers(0, 14, 200)] for _ in "ab")
    data = model.pack(a, [16] * 200) + model.pack(b, [16] * 200)
    for op, name in enumerate(NAMES):
        for at, kind in enumerate(FORMS[:2]):
            found = run(made, data, tmp_path, 200, 20 * op + 5 * at | 64 << 16, form)
            assert found == expected(name, kind, (a, b), 64, vlen=128), (name, kind)


@pytest.mark.parametrize("target", ["rv64gcv_zvl256b", "rv64gcv_zvl1024b", "rv32gc_zve32f"])
def test_vectors_that_no_stream_gives(target: str, tmp_path: Path) -> None:
    """``index``, ``cpy``, ``dup`` and ``tvs``: each its elements, NumE, and how many it appended."""
    makes = [
        "nd_vindex(1, count, bits);",
        "nd_vcpy(1, bits);",
        "nd_vdup(1, -3);",
        '__asm__ volatile("vsetvli zero, %1, e16, m1, ta, ma\\n vle16.v v2, (%0)" : : "r"(x), "r"(5) : "memory");'
        "nd_vtvs(1, 2);",
    ]
    record = "y[used++] = nd_vnum(1); y[used++] = nd_vrcnum(); nd_fwstream(0, y + used, 256, 64 | ND_SIGNED);"
    made = program("".join(f"{make} {record} used += nd_vpack(1, 0);" for make in makes), target=target)
    fixed = [-30_000, 0, 7, -1, 32_767, 9, 9]
    vlen = {"rv64gcv_zvl256b": 256, "rv64gcv_zvl1024b": 1024, "rv32gc_zve32f": 128}[target]
    for first, step in ((0, 1), (-5, 3), (1000, -1000)):
        unit = model.Unit(vlen, 8)
        lists = [unit.repeat(first, step), unit.repeat(step, 0), unit.repeat(-3, 0), fixed[:5]]
        wanted = [number for one in lists for number in (len(one), len(one), *one)]
        assert run(made, np.array(fixed, "<i2").tobytes(), tmp_path, first, step) == wanted


def test_the_filter_of_figure_8_8(tmp_path: Path) -> None:
    """``SELECT custkey WHERE segment == 3``, with the mask pushed into the wide stream."""
    body = """
    nd_frstream(0, x, count, 8);
    nd_frstream(1, x + count, count, 32);
    nd_fwstream(2, y, count, 64);
    for (int64_t left = count; left > 0;) {
        nd_vunpack(1, 0, 64);
        nd_varve_vi(ND_VARVE_CMPEQ, 0, 1, 3);
        nd_vunpackm(2, 1, 64);
        unsigned long n = nd_vrcnum();
        nd_vcpy(3, n);
        nd_vindex(4, 0, 1);
        nd_varve_vvm(ND_VARVE_CMPLT, 0, 4, 3);
        nd_vrcnum();
        used += nd_vpackm(2, 2);
        nd_crstream(0, n);
        nd_crstream(1, n);
        left -= (int64_t)n;
    }
    """
    chance = np.random.default_rng(8)
    segment = chance.integers(0, 5, 2000).astype(np.uint8)
    key = chance.integers(0, 150_000, 2000).astype(np.uint32)
    found = run(program(body), segment.tobytes() + key.tobytes(), tmp_path, 2000)
    assert found == key[segment == 3].tolist()


REFUSED: Sequence[tuple[str, bytes, str]] = (
    ("nd_frstream(0, x, 4, 8); nd_crstream(0, 5);", b"abcd", "ends inside a value"),
    ("nd_frstream(0, x, 4, 65);", b"abcd", "too wide"),
    ("nd_frstream(0, x, 4, 8); nd_vunpack(1, 0, 3);", b"abcd", "too wide"),
    ("nd_vrstream(0, x, 1, x + 1);", b"a", ""),
    ("nd_vrstream(0, x, 2, x); nd_vunpack(1, 0, 64);", b"\x41\x41", "too wide"),
    ("nd_hrstream(0, x, 1, x);", table({"1": 1, "10": 2}), "no prefix code"),
    ("nd_vunpack(1, 9, 64);", b"a", "illegal instruction"),
    ("nd_frstream(0, x, 4, 8); nd_fwstream(1, y, 2, 8); nd_vunpack(1, 0, 64); nd_vpack(1, 1);", b"abcd", "no room"),
    ("nd_frstream(0, x, 4, 8); nd_fwstream(1, y, 4, 3); nd_vunpack(1, 0, 64); nd_vpack(1, 1);", b"abcd", "too wide"),
)


@pytest.mark.parametrize(("body", "data", "says"), REFUSED)
def test_what_is_refused(body: str, data: bytes, says: str, tmp_path: Path) -> None:
    made = program(body)
    if not says:
        assert run(made, data, tmp_path, 1) == []
        return
    with pytest.raises(nandarray.errors.ProgramFailedError, match=says) as error:
        run(made, data, tmp_path, 1)
    assert "nd_block" in str(error.value)


def test_a_core_without_varve_names_the_instruction(tmp_path: Path) -> None:
    made = program("nd_frstream(0, x, count, 16 | ND_SIGNED);\n" + COPY_FULL)
    with nandarray.open(tmp_path / "v.nand", "w") as store:
        array = store.create("x", data=np.zeros(64, np.uint8))
        assert made.time([array], {"count": 8, "bits": 0}, core="ex5-varve").instructions > 0
        with pytest.raises(
            nandarray.errors.ProgramFailedError, match=r"illegal instruction at pc 0x\w+ .* in nd_block"
        ):
            made.time([array], {"count": 8, "bits": 0}, core="ex5")
    device = nandarray.devices()["mqsim-ideal"].with_({"compute.core": "ex5", "compute.clock": "1 GHz"})
    with nandarray.open(device=device.with_({"compute.cores": 1}), mode="w") as store:
        array = store.create("x", data=np.zeros(64, np.uint8))
        with pytest.raises(
            nandarray.errors.ProgramFailedError, match=r"illegal instruction at pc 0x\w+ .* in nd_block"
        ):
            nandarray.offload(made, [array], {"count": 8, "bits": 0})
        assert array[3] == 0, "the device serves on"
