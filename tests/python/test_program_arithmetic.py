"""All dtypes, operators and functions of numbers beside NumPy's, in each form of execution.

A program has many expressions, each over all pairs of elements: the ends of the dtypes' ranges, zeros of both signs,
NaN, infinities, and others. What NumPy refuses, or answers by whether a number is Python's, is left out here, and is an
error of the compiler (``test_program_promotion.py``).
"""

from __future__ import annotations

import itertools
import math
import os
import random
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from test_program_forms_model import function

import nandarray
from nandarray import CompileError, InvalidError

numba = pytest.importorskip("numba")

DEEP = bool(os.environ.get("NANDARRAY_DEEP"))
SEED = int(os.environ.get("NANDARRAY_SEED", "0"))
FORMS = ("interpreted", "translated", "native")
#: Parameters of the expressions, by the names of the dtypes.
NAMES = {
    "t": "?", "b": "i1", "h": "i2", "i": "i4", "q": "i8", "B": "u1", "H": "u2", "I": "u4", "Q": "u8", "f": "f4",
    "d": "f8", "c": "c16",
}  # fmt: skip
BINARY = [
    "+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "<", "<=", ">", ">=", "==", "!=",
]  # fmt: skip
UNARY = ["-{}", "+{}", "~{}", "abs({})", "not {}"]
WRITTEN = ["0", "1", "-1", "3", "7", "100", "200", "40000", "2**40", "0.1", "-2.5", "True"]
COMPARED = ("<", "<=", ">", ">=", "==", "!=")
#: Results: whole, natural, real and complex numbers, and the kinds of dtypes that each is of.
COLUMNS = {"w": "int64", "n": "uint64", "r": "float64", "z": "complex128"}
COLUMN = {"i": "w", "u": "n", "b": "n", "f": "r", "c": "z"}
#: NumPy's functions of one number and of two.
ONE = [
    "sqrt", "cbrt", "square", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin",
    "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "degrees", "radians", "fabs",
    "absolute", "sign", "negative", "positive", "floor", "ceil", "trunc", "rint", "isnan", "isinf", "isfinite",
    "signbit", "conjugate", "invert", "logical_not",
]  # fmt: skip
TWO = [
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "power", "maximum", "minimum", "fmax",
    "fmin", "arctan2", "hypot", "copysign", "nextafter", "logaddexp", "bitwise_and", "bitwise_or", "bitwise_xor",
    "left_shift", "right_shift", "logical_and", "logical_or", "logical_xor", "less", "less_equal", "greater", "equal",
]  # fmt: skip
MATHS = {
    "sqrt": "sqrt", "exp": "exp", "log": "log", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "arcsin",
    "atan": "arctan", "sinh": "sinh", "tanh": "tanh", "asinh": "arcsinh", "fabs": "fabs", "isnan": "isnan",
    "isinf": "isinf", "isfinite": "isfinite", "degrees": "degrees", "log1p": "log1p", "expm1": "expm1",
}  # fmt: skip
#: Functions without roundings of their own.
EXACT = {
    "absolute", "sign", "negative", "positive", "floor", "ceil", "trunc", "rint", "isnan", "isinf", "isfinite",
    "signbit", "add", "subtract", "multiply", "divide", "floor_divide", "maximum", "minimum", "fmax", "fmin",
    "copysign", "sqrt", "square", "fabs", "spacing", "nextafter",
}  # fmt: skip


def elements(dtype: str, rng: np.random.Generator, count: int = 12) -> Any:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.arange(count) % 3 == 0
    if kind in "iu":
        limits = np.iinfo(dtype)
        ends = [0, 1, limits.max, limits.min, limits.max - 1, limits.min + 1, 2, 7]
        few = rng.integers(0, 100, 2, "i1").astype(dtype)
        return np.concatenate([np.array(ends, dtype), few, rng.integers(limits.min, limits.max, 2, dtype)])
    if kind == "c":
        return (rng.normal(0, 3, count) + 1j * rng.normal(0, 3, count)).astype(dtype)
    limits = np.finfo(dtype)
    ends = [0.0, -0.0, 1.0, -1.5, np.nan, np.inf, -np.inf, limits.max, limits.tiny, 0.1]
    return np.array([*ends, *rng.normal(0, 20, 2)], dtype)


def pairs(rng: np.random.Generator) -> dict[str, Any]:
    """Elements of each dtype, so that any two dtypes meet in all their pairs of elements, but those of three do not."""
    found = {}
    for at, (name, dtype) in enumerate(NAMES.items()):
        few = elements(dtype, rng)
        places = np.arange(144)
        # Columns of different dtypes step through their elements in different orders; each pair of orders meets often.
        found[name] = few[(places if at % 2 else places // 12 + at * places) % 12]
    return found


def expressions() -> Iterator[tuple[str, str, str]]:
    """All operators with all pairs of dtypes, and with numbers that are written."""
    for sign, left, right in itertools.product(BINARY, NAMES, NAMES):
        yield left, sign, right
    for sign, name, number in itertools.product(BINARY, NAMES, WRITTEN):
        yield name, sign, number
        yield number, sign, name


def answer(text: str, data: dict[str, Any]) -> Any:
    """What NumPy computes, or the class of its error."""
    given = {name: column.copy() for name, column in data.items()}
    known = {"np": np, "math": math, "min": np.minimum, "max": np.maximum}
    if text.startswith("not "):
        text = f"np.logical_not({text[4:]})"
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.asarray(eval(text, {**known, **given}))  # noqa: S307
        except (OverflowError, TypeError, ValueError, ZeroDivisionError) as error:
            return type(error)


def program(texts: dict[str, Any]) -> tuple[Any, Any]:
    """A program that evaluates all expressions for each record, and the dtype of its records."""
    record = np.dtype(list(NAMES.items()))
    body = [f"def p({', '.join((*NAMES, *COLUMNS))}):"]
    body += [f"    {COLUMN[want.dtype.kind]}[{at}] = {text}" for at, (text, want) in enumerate(texts.items())]
    each = function("\n".join(body) + "\n", "p", np=np, math=math)
    outs = ", ".join(f'{name}: nandarray.Out["{dtype}[{len(texts)}]"]' for name, dtype in COLUMNS.items())
    given = ", ".join([f"x[j].{name}" for name in NAMES] + [f"{name}[j]" for name in COLUMNS])
    rows = f"    for j in range(len(x)):\n        p({given})\n    return {', '.join(['len(x)'] * len(COLUMNS))}\n"
    over = function(f"def f(x: nandarray.Block[R], {outs}):\n{rows}", p=numba.njit(each), R=record)
    room = {name: {"per_record": np.dtype(dtype).itemsize * len(texts)} for name, dtype in COLUMNS.items()}
    return nandarray.program(over, trusted=True, bound=room), record


def compare(store: Any, texts: dict[str, Any], data: dict[str, Any], exact: Any) -> None:
    """Run all expressions in each form, and compare them with the answers: values, and signs of zeros."""
    made, record = program(texts)
    rows = np.zeros(len(data["t"]), record)
    for name in NAMES:
        rows[name] = data[name]
    store["rows"], wrong = rows, []
    for form in FORMS:
        outputs = nandarray.offload(made, [store["rows"]], form=form).outputs
        for at, (text, want) in enumerate(texts.items()):
            column = COLUMN[want.dtype.kind]
            found = outputs[column].reshape(len(rows), len(texts))[:, at]
            right = want.astype(COLUMNS[column])
            roughly = want.dtype.kind in "fc" and not exact(text)
            near = {"rtol": 32 * np.finfo(want.dtype).eps, "atol": 0} if roughly else {"rtol": 0, "atol": 0}
            with np.errstate(all="ignore"):
                good = np.isclose(found, right, equal_nan=True, **near) if want.dtype.kind in "fc" else found == right
            if want.dtype.kind == "f" and not roughly and not re.search("sign|max|min", text):
                good &= (right != 0) | (np.signbit(found) == np.signbit(right))
            if not good.all():
                row = np.flatnonzero(~good)[0]
                values = ", ".join(f"{name}={data[name][row]!r}" for name in NAMES if re.search(rf"\b{name}\b", text))
                wrong.append(f"{form}: {text} in {want.dtype} with {values} is {found[row]}, not {right[row]}")
    if wrong:
        pytest.fail(f"NANDARRAY_SEED={SEED}: " + "\n".join(wrong))


def test_operators_are_those_of_numpy(store: Any) -> None:
    rng = random.Random(SEED)
    data = pairs(np.random.default_rng(SEED))
    texts: dict[str, Any] = {}
    for left, sign, right in expressions():
        signed_and_not = "Q" in (left, right) and {left, right} & {*"bhiq"} and sign not in COMPARED
        finite = {left, right} <= {*"ctbhiB", "3", "-1"}  # of infinities complex numbers have no one answer
        complexes = "c" in (left, right) and (sign == "**" or not finite)
        shifts = sign in ("<<", ">>") and right in WRITTEN and right not in ("0", "1", "3", "True")
        if not (signed_and_not or complexes or shifts):
            texts[f"{left} {sign} {right}"] = None
    texts |= {form.format(name): None for form in UNARY for name in NAMES}
    for name, left, right in itertools.product(("min", "max"), "biqBd", ("i", "I", "7")):
        texts[f"{name}({left}, {right})"] = None
    for text in rng.sample(sorted(texts), len(texts) if DEEP else 320):
        texts[text] = answer(text, data)
    known = {text: want for text, want in texts.items() if isinstance(want, np.ndarray)}
    ordered = {text: want for text, want in known.items() if not ("c" in text.split() and re.search("[<>]", text))}
    listed = list(ordered.items())
    for at in range(0, len(listed), 400):
        compare(store, dict(listed[at : at + 400]), data, lambda text: "**" not in text and " c" not in f" {text}"
                and not re.search(r"\bc\b", text))  # fmt: skip


def answers_of(text: str, data: dict[str, Any]) -> Any:
    """What NumPy computes; where that is float16, what it is in float32."""
    found = answer(text, data)
    if isinstance(found, np.ndarray) and found.dtype == np.float16:
        small = {name: column.astype("f4") for name, column in data.items() if column.dtype.char in "?bB"}
        return answer(text, data | small)
    return found


def test_functions_are_those_of_numpy(store: Any) -> None:
    data = pairs(np.random.default_rng(SEED))
    for name in NAMES:  # beyond some thousands of turns, the reductions of sines differ by more than roundings
        if np.dtype(NAMES[name]).kind in "fc":
            large = np.abs(data[name]) > 1e4
            data[name][large & np.isfinite(data[name])] = 0.5
    texts: dict[str, Any] = {}
    for name in ONE:
        texts |= {f"np.{name}({x})": None for x in "tbHiQfd"}
    for name in TWO:
        texts |= {f"np.{name}({x}, {y})": None for x, y in ("tt", "bB", "bi", "if", "ff", "fd", "QQ", "IH")}
        texts |= {f"np.{name}({x}, {y})": None for x, y in (("b", "3"), ("f", "2.5"), ("3", "Q"), ("f", "True"))}
    rng = random.Random(SEED)
    for text in rng.sample(sorted(texts), len(texts) if DEEP else 250):
        texts[text] = answers_of(text, data)
    for name, same in MATHS.items():
        for x in rng.sample("bIQfd", 5 if DEEP else 2):
            wide = data[x] if data[x].dtype.kind == "f" else data[x].astype("f8")
            texts[f"math.{name}({x})"] = answer(f"np.{same}(x)", {"x": wide})
    known = {text: want for text, want in texts.items() if isinstance(want, np.ndarray)}
    listed = list(known.items())
    for at in range(0, len(listed), 400):
        compare(store, dict(listed[at : at + 400]), data, lambda text: text.partition("(")[0][3:] in EXACT)


def dtype_of(text: str) -> Any:
    """The dtype in which a function computes an expression."""
    from nandarray.programs.compile import riscv

    names = [name for name in NAMES if name in re.findall(r"\b\w+\b", text)]
    made = function(f"def p({', '.join(names)}):\n    return {text}\n", "p", np=np)
    kinds = [riscv.element_type(np.dtype(NAMES[name])) for name in names]
    return riscv.result_type(made, kinds, {"boundscheck": True})


def test_results_have_the_dtypes_of_numpy() -> None:
    data = pairs(np.random.default_rng(SEED))
    texts = [f"{x} {sign} {y}" for sign in BINARY for x in NAMES for y in (*NAMES, "3", "0.1", "True")]
    texts += [f"np.{name}({x}, {y})" for name in TWO for x in "tbHiQfd" for y in ("t", "h", "I", "f", "d", "3", "2.0")]
    texts += [f"np.{name}({x})" for name in ONE for x in NAMES]
    texts += [f"abs({x})" for x in NAMES]
    for text in random.Random(SEED).sample(texts, len(texts) if DEEP else 60):
        want = answer(text, data)
        try:
            found = dtype_of(text)
        except numba.core.errors.TypingError as error:
            left_out = re.search("no integer dtype in common|does not fit|complex128", str(error))
            if not isinstance(want, type) and not left_out:
                pytest.fail(f"NANDARRAY_SEED={SEED}: {text} has dtype {want.dtype}, and not {error}")
            continue
        if want is ValueError:
            continue  # a power that is negative for some elements
        if isinstance(want, type):
            assert re.search("<<|>>|shift|np", text), f"NANDARRAY_SEED={SEED}: {text} is a {want} and {found}"
        else:
            right = np.dtype("f4") if want.dtype == np.float16 else want.dtype
            assert found == right, f"NANDARRAY_SEED={SEED}: {text}"


@pytest.mark.parametrize(
    ("dtype", "made", "says"),
    [
        ("u8", lambda v: np.maximum(v, np.int8(1)), "np.maximum(uint64, int8): uint64 and signed integers have no"),
        ("u1", lambda v: np.minimum(v, 300), "np.minimum(uint8, 300): 300 does not fit uint8"),
        ("?", np.sign, "np.sign(bool): NumPy has no such function of these dtypes"),
        ("i4", lambda v: np.power(v, -1), "int32 ** -1: integers to negative integer powers are not allowed"),
    ],
)
def test_functions_that_numpy_refuses_are_errors_of_the_compiler(store: Any, dtype: str, made: Any, says: str) -> None:
    store["x"] = np.ones(3, dtype)
    with pytest.raises(CompileError, match=re.escape(says)):
        store["x"].map_blocks(made)


def test_a_universal_function_is_given_by_name(store: Any) -> None:
    x, y = np.array([-4, 9, 100], "i4"), np.array([2.5, -1, np.nan], "f4")
    store["x"], store["y"] = x, y
    with np.errstate(all="ignore"):
        for ufunc in (np.sqrt, np.negative, np.sign):
            found = store["x"].map_blocks(ufunc)
            np.testing.assert_array_equal(found, ufunc(x))
            assert found.dtype == ufunc(x).dtype
    np.testing.assert_array_equal(store["x"].map_blocks(np.maximum, store["y"]), np.maximum(x, y))
    np.testing.assert_array_equal(store["y"].filter(np.isfinite), [2.5, -1])
    assert store["x"].reduce(np.add) == 105
    assert np.isnan(store["y"].reduce(np.maximum))
    np.testing.assert_array_equal(store["x"].reduce(np.minimum, axis=0), -4)
    for refused in (np.modf, np.matmul, np.frompyfunc(lambda v: v, 1, 1)):
        with pytest.raises(InvalidError, match="no function of NumPy's of one or two numbers"):
            store["x"].map_blocks(refused)
