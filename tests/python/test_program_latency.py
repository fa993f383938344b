"""Costs of a program before it runs: nothing is imported, read or compiled that it does not need."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import nandarray
from nandarray import Program
from nandarray.programs import program
from nandarray.programs.compile import cache, host, mathematics, zig

# Functions of one argument that are musl's, that are in Zig's C library, and that are in the compiler's.
FUNCTIONS = "erf lgamma tgamma expm1 j0 sinh asinh acosh atanh acos asin atan cosh cbrt tanh log1p exp log log2 log10"
FUNCTIONS += " sin cos tan exp2 floor ceil round trunc erff lgammaf expm1f expf logf sinf cosf tanf acosf cbrtf"


def calling(names: list[str], target: str) -> Program:
    """A program that gives what each of these functions gives of each element."""
    calls = " ".join(f"*y++ = {name}(x[i]);" for name in names)
    return Program.from_c(
        f"""
#include <math.h>
#include <nandarray.h>
ND_PROGRAM("name": "calls", "kind": "block", "inputs": [{{"name": "x", "dtype": "float64"}}],
           "outputs": [{{"name": "y", "dtype": "float64", "bound": {{"per_record": {8 * len(names) + 8}}}}}])
int64_t nd_block(nd_args *args) {{
    const double *x = ND_INPUT(args, 0, double);
    double *y = ND_OUTPUT(args, 0, double);
    size_t n = ND_INPUT_COUNT(args, 0, double);
    for (size_t i = 0; i < n; i++) {{ {calls} *y++ = pow(x[i], 0.7); }}
    ND_SET_USED(args, 0, n * {len(names) + 1}, double);
    return 0;
}}
""",
        target=target,
    )


@pytest.mark.parametrize("target", ["rv64", "rv32"])
def test_functions_alone_are_those_of_the_whole_libraries(
    store: nandarray.Store, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(7)
    store["x"] = np.concatenate([rng.normal(size=300) * 10.0 ** rng.integers(-3, 3, 300), rng.random(100), [0.0, -0.0]])
    names = FUNCTIONS.split()
    alone = calling(names, target)
    monkeypatch.setattr(program, "Cache", lambda: cache.Cache(tmp_path))
    monkeypatch.setattr(mathematics, "needed", lambda *_: [])
    whole = calling(names, target)
    mine, theirs = (store["x"].offload(one).reshape(-1, len(names) + 1) for one in (alone, whole))
    for column, name in enumerate([*names, "pow"]):
        assert mine[:, column].tobytes() == theirs[:, column].tobytes(), name
    one = calling(["log10"], target)
    assert store["x"].offload(one).reshape(-1, 2)[:, 0].tobytes() == theirs[:, names.index("log10")].tobytes()


def test_every_function_of_musl_is_found_where_it_is_defined() -> None:
    from elftools.elf.elffile import ELFFile

    target = zig.TARGETS["rv64"]
    found = mathematics._musl(target)
    with tempfile.TemporaryDirectory() as made:
        sources = sorted(set(found.values()))
        zig.checked(zig.run([*zig.musl_words(target), "-c", *sources], cwd=Path(made)), "musl")
        for source in sources:
            with open(Path(made) / f"{source.stem}.o", "rb") as file:
                symbols = list(ELFFile(file).get_section_by_name(".symtab").iter_symbols())
            defined = {
                one.name for one in symbols if one["st_info"]["bind"] != "STB_LOCAL" and one["st_shndx"] != "SHN_UNDEF"
            }
            defined -= {"__pio2_hi", "__pio2_lo"}  # of long double, which is not supported
            assert {name for name, path in found.items() if path == source} == defined, source.name


def test_what_is_not_there_is_said_with_its_line() -> None:
    with pytest.raises(nandarray.CompileError, match="printf"):
        calling(["printf"], "rv64")


CACHED = """
import sys
import numpy as np, nandarray
store = nandarray.open("data.nand", mode="w")
store["x"] = np.arange(10.0)
@nandarray.program(inputs="float64")
def twice(x):
    return 2 * x + 1
assert store["x"].offload(twice)[3] == 7
NAMES = ("numba", "llvmlite", "elftools", "scipy.linalg", "asyncio", "importlib.metadata", "subprocess")
print(*[name for name in NAMES if name in sys.modules])
"""


def test_a_cached_program_imports_no_compiler(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(CACHED)
    said = []
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
        )
        said.append(ran.stdout.split())
    assert said[1] == []


READY_MADE = """
import sys
import numpy as np, nandarray
from nandarray import programs
store = nandarray.open("data.nand", mode="w")
store["x"] = np.arange(10.0)
assert nandarray.offload(programs.get("sum"), [store["x"]], form="native").result == 45
print(*[name for name in ("numba", "llvmlite", "elftools", "subprocess") if name in sys.modules])
"""


@pytest.mark.skipif(host.target() is None, reason="there are no native forms on this machine")
def test_a_cached_library_is_opened_without_reading_its_elf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program.py").write_text(READY_MADE)
    monkeypatch.setenv("NANDARRAY_CACHE", str(tmp_path / "cache"))
    said = []
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
        )
        said.append(ran.stdout.split())
    assert "elftools" in said[0]
    assert said[1] == []


def test_compiling_imports_no_scipy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program.py").write_text(CACHED)
    monkeypatch.setenv("NANDARRAY_CACHE", str(tmp_path / "cache"))
    ran = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    assert "numba" in ran.stdout
    assert "scipy.linalg" not in ran.stdout


def test_numba_still_finds_linear_algebra(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    code = """
import nandarray, numba, numpy as np
nandarray.Program.from_python
@nandarray.program(inputs="float64", scalars={"by": "float64"})
def twice(x, by):
    return by * x - 0.125
twice.elf
@numba.njit
def dot(a, b):
    return np.dot(a, b) + np.linalg.norm(a)
print(dot(np.ones(3), np.ones(3)))
"""
    (tmp_path / "program.py").write_text(code)
    ran = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=240
    )
    assert float(ran.stdout) == pytest.approx(3 + 3**0.5)
