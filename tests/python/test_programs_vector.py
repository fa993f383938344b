"""Ready-made programs, and programs from Python, compiled for cores with vectors: the same results, fewer instructions.

``pytest tests/python/test_programs_vector.py -s -k fewer`` prints the figures of docs/model/vectors.md.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import program_cases as cases
import pytest

import nandarray
from nandarray import Program, programs

pytest.importorskip("ziglang")

TARGET = "rv64gcv"
TRANSCENDENTAL = {"atan", "atan2", "cos", "sin", "exp", "exp2", "exp10", "log", "log2", "log10", "pow", "rsqrt"}
VARIANTS = [
    (name, dtype, parameters)
    for name in programs.names()
    if name not in TRANSCENDENTAL
    for number, (dtype, parameters) in enumerate(cases.variants(name))
    if number == 0 or dtype in {"float32", "int32", "uint8", "int16"}
]
# Program: dtype, instructions of the scalar form over those of the form with vectors of 256 bits, at least; the least
# of cycles.
GAINS: dict[str, tuple[str | None, float, float]] = {
    "sum": ("int32", 2.0, 1.5),
    "minmax": ("int32", 4.0, 1.5),
    "variance": ("float32", 2.5, 1.5),
    "filter": ("int32", 12.0, 2.0),
    "filter_index": ("int32", 6.0, 2.0),
    "raid4_encode": (None, 4.0, 1.0),
    "raid6_encode": (None, 5.0, 1.8),
    "matvec": ("float32", 10.0, 1.4),
    "network": ("int32", 7.0, 2.5),
    "add": ("float32", 6.0, 3.0),
    "sqrt": ("float32", 5.0, 3.0),
}


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Compile everything at once; compilers are processes, so threads do."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: programs.get(one[0], dtype=one[1], target=TARGET, **one[2]), VARIANTS))


def named(program: Program, scalars: list[Any]) -> dict[str, Any]:
    """Scalars by their names; the last ones may be left out."""
    return dict(zip([one["name"] for one in program.metadata.get("scalars", [])], scalars, strict=False))


def largest(name: str, dtype: Any, parameters: dict[str, Any]) -> cases.Made:
    """The inputs with most bytes of some cases: beyond a strip of vectors, with a rest."""
    made = [cases.case(name, dtype, parameters, seed) for seed in range(12)]
    return max(made, key=lambda one: sum(data.nbytes for data in one[0]))


def same(found: Any, wanted: np.ndarray) -> bool:
    """Equal to the bit; of NaN, what it carries does not count."""
    mine = np.asarray(found)
    if mine.dtype != wanted.dtype or mine.shape != wanted.shape or mine.dtype.kind != "f":
        return mine.tobytes() == wanted.tobytes()
    numbers = ~np.isnan(mine)
    return bool((numbers == ~np.isnan(wanted)).all()) and mine[numbers].tobytes() == wanted[numbers].tobytes()


@pytest.mark.parametrize(("name", "dtype", "parameters"), VARIANTS, ids=partial(str))
def test_forms_with_vectors_equal_their_twins(
    name: str, dtype: Any, parameters: dict[str, Any], tmp_path: Path
) -> None:
    program = programs.get(name, dtype=dtype, target=TARGET, **parameters)
    assert "_v1p0_" in program.isa
    inputs, scalars = largest(name, dtype, parameters)
    wanted = programs.twin(name, dtype=dtype, **parameters)(*inputs, *scalars)
    with nandarray.open(tmp_path / "v.nand", "w") as store:
        arrays = [store.create(f"x{i}", data=data) for i, data in enumerate(inputs)]
        for form in ("interpreted", "translated"):
            run = nandarray.offload(program, arrays, scalars=named(program, scalars), form=form, threads=1)
            for port, right in zip(program.outputs, wanted, strict=True):
                assert same(run.outputs[port["name"]], right), (form, port["name"])


@pytest.mark.parametrize("target", ["rv64gcv_zvl512b", "rv32gc_zve32f"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "float32", "int64", "float64"])
@pytest.mark.parametrize("name", ["filter", "filter_index"])
def test_filters_with_registers_of_other_lengths(name: str, dtype: str, target: str, tmp_path: Path) -> None:
    """RV32's vectors have no elements of 64 bits: such filters are scalar there."""
    program = programs.get(name, dtype=dtype, target=target)
    inputs, scalars = largest(name, dtype, {})
    (wanted,) = programs.twin(name, dtype=dtype)(*inputs, *scalars)
    with nandarray.open(tmp_path / "v.nand", "w") as store:
        found = store.create("x", data=inputs[0]).offload(program, **named(program, scalars))
    assert same(found, wanted)


@pytest.mark.parametrize("name", GAINS)
def test_forms_with_vectors_take_fewer_instructions(name: str, tmp_path: Path) -> None:
    dtype, instructions, cycles = GAINS[name]
    inputs, scalars = largest(name, dtype, {})
    forms = {target: programs.get(name, dtype=dtype, target=target) for target in ("rv64", TARGET)}
    with nandarray.open(tmp_path / "v.nand", "w") as store:
        arrays = [store.create(f"x{i}", data=data) for i, data in enumerate(inputs)]
        found = {
            target: program.time(arrays, named(program, scalars), core="ex5-varve") for target, program in forms.items()
        }
    scalar, vectors = found["rv64"], found[TARGET]
    of = scalar.instructions / vectors.instructions, scalar.cycles / vectors.cycles
    print(f"\n{name} {dtype or ''}: instructions {of[0]:.1f}, cycles {of[1]:.1f}")
    assert of[0] >= instructions
    assert of[1] >= cycles


def of_elements(dtype: str) -> Program:
    """A program from a function of one element."""

    @nandarray.program(inputs=dtype)
    def scaled(x):  # noqa: ANN001, ANN202 - of the dtype above
        return x * 3 + 1

    return scaled


def of_blocks(dtype: str) -> Program:
    """A program from a function over blocks, whose indices are not checked."""

    def scaled(x, out):  # noqa: ANN001, ANN202 - below
        for i in range(x.size):
            out[i] = x[i] * 3 + 1

    scaled.__annotations__ = {"x": nandarray.Block[dtype], "out": nandarray.Out[dtype]}
    return nandarray.program(boundscheck=False)(scaled)


@pytest.mark.parametrize("dtype", ["float64", "int64"])
@pytest.mark.parametrize("make", [of_elements, of_blocks])
def test_programs_from_python_become_vector_instructions(make: Any, dtype: str, tmp_path: Path) -> None:
    program = make(dtype)
    vectors = program.compiled_for(TARGET)
    assert "_v1p0_" in vectors.isa
    assert "_v1p0_" not in program.isa
    data = np.random.default_rng(1).integers(-1000, 1000, 10_007).astype(dtype)
    with nandarray.open(tmp_path / "v.nand", "w") as store:
        array = store.create("x", data=data)
        for form in ("interpreted", "translated"):
            np.testing.assert_array_equal(array.offload(vectors, form=form), data * 3 + 1)
        scalar, wide = (one.time([array], core="ex5-varve") for one in (program, vectors))
    assert scalar.vector["operations"] == 0 < wide.vector["operations"]
    print(f"\n{dtype}: instructions {scalar.instructions / wide.instructions:.1f}")
    assert scalar.instructions > 2.5 * wide.instructions


def test_a_core_with_fewer_extensions_gets_the_program_compiled_anew(tmp_path: Path) -> None:
    """A program with vectors has a scalar form on a core without them."""
    program = programs.get("sum", dtype="int32", target=TARGET)
    data = np.arange(5000, dtype=np.int32)
    with nandarray.open(tmp_path / "v.nand", "w") as store:
        array = store.create("x", data=data)
        with_vectors = program.time([array], core="ex5-varve")
        without = program.time([array], core="ex5")
    assert with_vectors.vector["operations"] > 0 == without.vector["operations"]
    for timed in (with_vectors, without):
        assert timed.offloaded.outputs["result"] == data.sum()
