"""Programs with vectors: C that the compiler vectorises, and intrinsics of ``riscv_vector.h``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nandarray
from nandarray import InvalidError, Program

pytest.importorskip("ziglang")

HEAD = "#include <nandarray.h>\n"
SCALE = (
    HEAD
    + """
ND_PROGRAM("name": "scale", "kind": "block", "inputs": [{"name": "x", "dtype": "float32"}],
           "outputs": [{"name": "y", "dtype": "float32"}], "scalars": [{"name": "factor", "dtype": "float32"}])
int64_t nd_block(nd_args *args) {
    const float *x = ND_INPUT(args, 0, float);
    float *restrict y = ND_OUTPUT(args, 0, float), factor = nd_scalar_f32(args, 0);
    size_t n = ND_INPUT_COUNT(args, 0, float);
    for (size_t i = 0; i < n; i++) y[i] = factor * x[i];
    ND_SET_USED(args, 0, n, float);
    return 0;
}
"""
)
FILTER = (
    HEAD
    + """
#include <riscv_vector.h>
ND_PROGRAM("name": "keep", "kind": "block", "inputs": [{"name": "x", "dtype": "int32"}],
           "outputs": [{"name": "y", "dtype": "int32"}], "scalars": [{"name": "low", "dtype": "int32"}])
int64_t nd_block(nd_args *args) {
    const int32_t *x = ND_INPUT(args, 0, int32_t);
    int32_t *y = ND_OUTPUT(args, 0, int32_t), low = (int32_t)nd_scalar_i64(args, 0);
    size_t n = ND_INPUT_COUNT(args, 0, int32_t), used = 0;
    for (size_t i = 0, vl; i < n; i += vl) {
        vl = __riscv_vsetvl_e32m4(n - i);
        vint32m4_t v = __riscv_vle32_v_i32m4(x + i, vl);
        vbool8_t m = __riscv_vmsge_vx_i32m4_b8(v, low, vl);
        v = __riscv_vcompress_vm_i32m4(v, m, vl);
        size_t kept = __riscv_vcpop_m_b8(m, vl);
        __riscv_vse32_v_i32m4(y + used, v, kept);
        used += kept;
    }
    ND_SET_USED(args, 0, used, int32_t);
    return 0;
}
"""
)
# Targets, and what their programs' architecture strings say.
TARGETS = {
    "rv64gcv": "_v1p0_",
    "rv64gcv_zvl256b": "_zvl256b1p0_",
    "rv64gcv_zvl512b": "_zvl512b1p0_",
    "rv64gcv_zvl1024b": "_zvl1024b1p0_",
    "rv32gc_zve32f": "_zve32f1p0_",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", ["interpreted", "translated"])
def test_what_the_compiler_vectorises_computes_what_numpy_computes(target: str, form: str, tmp_path: Path) -> None:
    program = Program.from_c(SCALE, target=target)
    assert TARGETS[target] in program.isa
    x = np.linspace(-3, 5, 10_007, dtype=np.float32)
    with nandarray.open(tmp_path / "v.nand", "w") as store:
        array = store.create("x", data=x)
        found = array.offload(program, factor=1.75, form=form)
    np.testing.assert_array_equal(found, x * np.float32(1.75))


@pytest.mark.parametrize("target", TARGETS)
def test_intrinsics(target: str, tmp_path: Path) -> None:
    program = Program.from_c(FILTER, target=target)
    x = np.random.default_rng(5).integers(-1000, 1000, 20_003).astype(np.int32)
    with nandarray.open(tmp_path / "v.nand", "w") as store:
        found = store.create("x", data=x).offload(program, low=100)
    np.testing.assert_array_equal(found, x[x >= 100])


def test_an_unknown_target_is_named() -> None:
    with pytest.raises(InvalidError, match="rv64gcw"):
        Program.from_c(SCALE, target="rv64gcw")
