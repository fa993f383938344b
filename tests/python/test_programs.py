"""Ready-made programs compute what their NumPy twins do, however their inputs are cut and spread over workers."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import program_cases as cases
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from program_runner import ProgramStatus, execute

from nandarray import CompileError, InvalidError, NotFoundError, Program, programs

Array = np.ndarray[Any, Any]
TRANSCENDENTAL = ("atan", "atan2", "cos", "sin", "exp", "exp2", "exp10", "log", "log2", "log10", "pow", "rsqrt")
EXACT = [name for name in programs.names() if name not in TRANSCENDENTAL]
VARIANTS = [(name, dtype, parameters) for name in EXACT for dtype, parameters in cases.variants(name)]
SEEDS = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Compile everything at once; compilers are processes, so threads do."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: programs.get(one[0], dtype=one[1], **one[2]), VARIANTS))


def same(found: Array, wanted: Array) -> bool:
    """Equal to the bit; of NaN, what it carries does not count."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return found.dtype.itemsize == 1 and found.tobytes() == wanted.tobytes()
    if found.dtype.kind != "f":
        return found.tobytes() == wanted.tobytes()
    number = ~np.isnan(found)
    return bool((number == ~np.isnan(wanted)).all() and found[number].tobytes() == wanted[number].tobytes())


def label(value: Any) -> str | None:
    return "-".join(f"{key}={one}" for key, one in value.items()).replace(" ", "") if isinstance(value, dict) else None


@pytest.mark.parametrize(("name", "dtype", "parameters"), VARIANTS, ids=label)
@settings(max_examples=5)
@given(seed=SEEDS, workers=st.integers(1, 3))
def test_equals_its_twin(name: str, dtype: Any, parameters: dict[str, Any], seed: int, workers: int) -> None:
    inputs, scalars = cases.case(name, dtype, parameters, seed)
    cuts = cases.cuts(name, parameters, inputs, seed)
    note(f"{name} {dtype} {parameters}: {[one.shape for one in inputs]}, scalars {scalars}, cuts {cuts}")
    starts = {"starts": [0, *cuts]} if programs.describe(name).by_task else {}
    wanted = programs.twin(name, dtype=dtype, **parameters)(*inputs, *scalars, **starts)
    program = programs.get(name, dtype=dtype, **parameters)
    found = execute(program, inputs, scalars=scalars, cuts=cuts, workers=workers)
    for port, mine, twins in zip(program.outputs, found, wanted, strict=True):
        assert same(mine, twins), (port["name"], mine[:8], twins[:8], len(mine), len(twins))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(seed=SEEDS)
@settings(max_examples=8)
def test_a_sum_does_not_depend_on_cuts_between_chunks(dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = cases.numbers(rng, 4096 * int(rng.integers(2, 5)) + int(rng.integers(0, 4096)), dtype)
    for name in ("sum", "mean", "variance"):
        program = programs.get(name, dtype=dtype)
        (whole,) = execute(program, [x])
        (parts,) = execute(program, [x], cuts=[4096, 8192], workers=2)
        assert same(whole, parts), (name, whole, parts)


def test_the_sum_of_chunks_is_exact() -> None:
    """1e308 three times and back again: no order of float64 additions gives the small rest."""
    x = np.zeros(5 * 4096)
    x[::4096] = [1e308, 1e-300, 1e308, -1e308, -1e308]
    assert execute(programs.get("sum"), [x])[0][0] == 1e-300
    assert programs.twin("sum")(x)[0][0] == 1e-300


def test_variance_has_no_cancellation() -> None:
    x = 1e9 + np.arange(20000) % 2
    assert execute(programs.get("variance"), [x])[0][0] == 0.25
    np.testing.assert_allclose(execute(programs.get("variance"), [x], scalars=[1])[0][0], np.var(x, ddof=1), rtol=1e-15)


@given(seed=SEEDS)
@settings(max_examples=20)
def test_twins_of_statistics_are_near_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=int(rng.integers(1, 9000))) * 10.0 ** rng.integers(-9, 9) + rng.integers(-9, 9)
    np.testing.assert_allclose(programs.twin("sum")(x)[0][0], np.sum(x), rtol=1e-12, atol=1e-12 * np.abs(x).sum())
    np.testing.assert_allclose(programs.twin("mean")(x)[0][0], np.mean(x), rtol=1e-12, atol=1e-12 * np.abs(x).max())
    np.testing.assert_allclose(programs.twin("variance")(x)[0][0], np.var(x.astype(np.longdouble)), rtol=1e-12)
    whole = np.round(x) % 64
    assert (programs.twin("histogram", bins=64)(whole, 0, 64)[0] == np.histogram(whole, 64, (0, 64))[0]).all()


@pytest.mark.parametrize(
    ("low", "high"),
    [(1.0, 1.0), (2.0, 1.0), (np.nan, 1.0), (0.0, np.inf), (-np.inf, 0.0), (-1.7e308, 1.7e308), (0.0, 5e-324)],
)
def test_a_histogram_without_extent_is_refused_by_both(low: float, high: float) -> None:
    x = np.arange(9.0)
    with pytest.raises(ValueError, match=re.escape(f"low is {low} and high is {high}")):
        programs.twin("histogram")(x, low, high)
    with pytest.raises(ProgramStatus, match="returned -1"):
        execute(programs.get("histogram"), [x], scalars=[low, high])


# --- elementary functions ---------------------------------------------------------------------------------------------

# Units in the last place, as docs/reference/programs.md has them.
ULPS = {
    "float32": dict.fromkeys(TRANSCENDENTAL, 0.501),
    "float64": {
        **dict.fromkeys(("sin", "cos"), 0.6),
        **dict.fromkeys(("exp", "exp2", "exp10", "pow"), 0.53),
        **dict.fromkeys(("log", "log2", "log10", "atan", "atan2", "rsqrt"), 0.51),
    },
}


def arguments(name: str, dtype: str, rng: np.random.Generator) -> list[Array]:
    """Arguments of the range where the function is no infinity and no zero, and of all magnitudes."""
    count = 20000
    wide = np.finfo(dtype).maxexp - 1
    small = rng.uniform(-8, 8, count)
    every = np.ldexp(rng.uniform(0.5, 1, count), rng.integers(-wide, wide, count))
    if name in ("exp", "exp2", "exp10"):
        most = wide / {"exp": np.log2(np.e), "exp2": 1, "exp10": np.log2(10)}[name]
        made = [np.where(rng.random(count) < 0.5, rng.uniform(-most, most, count), small)]
    elif name in ("log", "log2", "log10", "rsqrt"):
        made = [np.where(rng.random(count) < 0.5, every, np.abs(1 + small / 64))]
    elif name == "pow":
        base = np.where(rng.random(count) < 0.5, every, np.abs(1 + small / 64))
        made = [base, rng.uniform(-1, 1, count) * (wide - 2) / np.maximum(np.abs(np.log2(base)), 1e-9)]
    elif name == "atan2":
        made = [every * rng.choice([-1, 1], count), every[::-1] * rng.choice([-1, 1], count)]
        near = rng.random(count) < 0.5
        made[1] = np.where(near, made[0] / 8 * small, made[1])
    else:
        made = [np.where(rng.random(count) < 0.5, small, every * rng.choice([-1, 1], count))]
    with np.errstate(over="ignore", under="ignore"):
        return [one.astype(dtype) for one in made]


def ulps(found: Array, wanted: Array) -> Array:
    """Errors in units of the last place of the right result, which is a long double."""
    kind = np.finfo(found.dtype)
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(np.abs(wanted))
        unit = np.ldexp(np.longdouble(1), np.maximum(exponent - 1, kind.minexp) - kind.nmant)
        right = np.abs(found.astype(np.longdouble) - wanted) / unit
    beyond = np.isinf(found) & (np.abs(wanted) >= kind.max)
    return np.where(beyond | (np.isnan(found) & np.isnan(wanted)), 0, right)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", TRANSCENDENTAL)
def test_errors_of_elementary_functions_are_bounded(name: str, dtype: str) -> None:
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("long double is no longer than float64 here")
    inputs = arguments(name, dtype, np.random.default_rng(11))
    wide = [one.astype(np.longdouble) for one in inputs]
    (found,) = execute(programs.get(name, dtype=dtype), inputs)
    wanted = reference(name)(*wide)
    errors = ulps(found, wanted)
    worst = int(np.nanargmax(errors))
    assert not np.isnan(errors).any()
    assert errors[worst] <= ULPS[dtype][name], (float(errors[worst]), [one[worst] for one in inputs], found[worst])


def reference(name: str) -> Any:
    """The function on long doubles."""
    if name == "exp10":
        return lambda a: np.power(np.longdouble(10), a)
    if name == "rsqrt":
        return lambda a: 1 / np.sqrt(a)
    return {"atan": np.arctan, "atan2": np.arctan2, "pow": np.power}.get(name) or getattr(np, name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", TRANSCENDENTAL)
def test_special_values_of_elementary_functions(name: str, dtype: str) -> None:
    """Zeros, infinities, NaN, what lies outside the domain: as C's Annex F and NumPy have it."""
    with np.errstate(over="ignore", under="ignore"):
        values = np.array([*cases.SPECIAL, -2.0, -3.0, 0.25], np.float64).astype(dtype)
    program = programs.get(name, dtype=dtype)
    inputs = [values] if len(program.inputs) == 1 else [one.ravel() for one in np.meshgrid(values, values)]
    (found,) = execute(program, inputs)
    (wanted,) = programs.twin(name, dtype=dtype)(*inputs)
    exact = np.isnan(wanted) | np.isinf(wanted) | (wanted == 0)
    assert same(found[exact], wanted[exact])
    np.testing.assert_allclose(found[~exact], wanted[~exact], rtol=4 * np.finfo(dtype).eps)


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_program_compiles_without_a_warning_in_every_kind() -> None:
    with ThreadPoolExecutor(4) as pool:
        jobs = [(name, kind) for name in programs.names() for kind in programs.describe(name).kinds]
        for (name, kind), program in zip(
            jobs, pool.map(lambda job: programs.get(job[0], kind=job[1]), jobs), strict=True
        ):
            assert program.warnings == "", (name, kind)
            assert (program.name, program.kind) == (name, kind)


@pytest.mark.parametrize("name", ["sum", "variance", "filter", "parse", "raid6_encode", "aes128_ctr", "bitpack", "pow"])
def test_a_core_of_32_bits_computes_the_same(name: str) -> None:
    made = programs.describe(name)
    program = programs.get(name, target="rv32")
    for seed in range(4):
        inputs, scalars = cases.case(name, made.default or None, {}, seed)
        mine, theirs = (execute(one, inputs, scalars=scalars) for one in (program, programs.get(name)))
        assert all(same(left, right) for left, right in zip(mine, theirs, strict=True))


def test_text_of_c_may_have_any_name() -> None:
    text = """
#include <nandarray.h>
ND_PROGRAM("name": "none", "kind": "block", "inputs": [{"name": "x", "dtype": "int32"}], "outputs": [])
int64_t nd_block(nd_args *args) { (void)args; return WHAT; }
"""
    for name in ("atax", "atax.c", "v1.2", "other/atax", "a b"):
        assert Program.from_c(text, flags=["-DWHAT=0"], name=name).name == "none"
    with pytest.raises(CompileError, match=r"^atax\.c does not compile:\natax\.c:4:\d+: .*WHAT"):
        Program.from_c(text, name="atax")


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(NotFoundError, match="'summ'"):
        programs.get("summ")
    for name, arguments, says in [
        ("sum", {"dtype": "complex64"}, "complex64"),
        ("sum", {"dtype": ">f8"}, ">f8"),
        ("sum", {"bins": 3}, "'bins' is not a parameter"),
        ("replicate", {"dtype": "u1"}, "bytes"),
        ("deduplicate", {"kind": "stream"}, "kind must be block, not 'stream'"),
        ("histogram", {"bins": 0}, "bins must be from 1 to .*, not 0"),
        ("histogram", {"bins": 2.5}, "integer"),
        ("deduplicate", {"block_bytes": 12}, "multiple of 8"),
        ("bitpack", {"dtype": "uint8", "width": 9}, "at most the elements. 8 bits, not 9"),
        ("select", {"row_bytes": 8, "columns": ((4, 8),)}, "must be within the row"),
        ("select", {"columns": ()}, "columns must be from 1 to .*, not 0"),
        ("filter_rows", {"row_bytes": 8, "offset": 4}, "must be within the row"),
        ("parse", {"fields": ("text",)}, "'text' is no field"),
        ("parse", {"fields": ("bytes5",)}, "multiple of 8"),
        ("conv2d", {"height": 2, "width": 2}, "does not fit"),
    ]:
        with pytest.raises(InvalidError, match=says):
            programs.get(name, **arguments)
