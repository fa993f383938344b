"""Hypothesis strategies for shapes, dtypes, data and index expressions, shared by the model tests.

Index expressions are drawn for a shape, so that most of them are valid; the tests compare errors with NumPy's too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

DTYPES: list[np.dtype[Any]] = [
    np.dtype(spec)
    for spec in (
        "?", "i1", "u1", "i2", ">i2", "u2", "i4", "u4", "i8", ">u8", "f2", "f4", ">f4", "f8", "c8", "c16", ">c16",
        "M8[s]", "M8[25us]", "m8[ns]", ">m8[D]", "S5", "U3", ">U3", "V3",
        [("x", "<i4"), ("y", ">f8")],
        [("p", [("a", "u1"), ("b", "M8[D]")]), ("q", "f4", (2, 3))],
    )
]  # fmt: skip

NUMBERS: list[np.dtype[Any]] = [dtype for dtype in DTYPES if dtype.kind in "iufc"]


def dtypes() -> st.SearchStrategy[np.dtype[Any]]:
    """Any storable dtype without padding, whose bytes NumPy leaves undefined when it copies."""
    return st.sampled_from(DTYPES)


def shapes(*, min_dims: int = 0, max_dims: int = 4, max_side: int = 9) -> st.SearchStrategy[tuple[int, ...]]:
    """Small shapes, now and then with an empty axis."""
    side = st.one_of(st.integers(1, max_side), st.integers(0, max_side))
    return st.lists(side, min_size=min_dims, max_size=max_dims).map(tuple)


def blocks(shape: tuple[int, ...], max_side: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of building blocks, few enough for blocks of any size (`SMALL_BLOCKS_MAX` of the library)."""
    least = max(1, -(-math.prod(shape) // (1 << 14))) if len(shape) == 1 else 1
    sides = st.tuples(*(st.integers(least, least + max_side - 1) for _ in shape))
    return sides.filter(lambda sides: math.prod(-(-n // side) for n, side in zip(shape, sides, strict=True)) <= 1 << 14)


def content(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> np.ndarray[Any, Any]:
    """Elements that differ from one another, of any dtype, without NaN."""
    rng = np.random.default_rng(seed)
    array = np.zeros(shape, dtype)
    if dtype.names:
        for name in dtype.names:
            field = array[name]
            field[...] = content(field.shape, field.dtype, seed)
    elif dtype.kind in "SUV":
        letters = rng.choice(list("abcdefgh"), (*shape, 2))
        text = np.array(["".join(pair) for pair in letters.reshape(-1, 2)], "U2").reshape(shape)
        array[...] = text if dtype.kind == "U" else text.astype("S2").astype(dtype)
    else:
        array[...] = rng.integers(0, 2 if dtype.kind == "b" else 100, shape).astype(dtype)
    return array


@st.composite
def slices(draw: st.DrawFn, length: int) -> slice:
    """A slice in and a little beyond an axis."""
    bound = st.one_of(st.none(), st.integers(-length - 2, length + 2))
    step = draw(st.sampled_from([None, 1, 2, 3, -1, -2, -5]))
    return slice(draw(bound), draw(bound), step)


@st.composite
def _advanced(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Integer arrays that broadcast together, integers, slices and at most one mask of one axis, mixed."""
    common = draw(hnp.array_shapes(min_dims=1, max_dims=2, max_side=3))
    parts: list[Any] = []
    for length in shape[: draw(st.integers(1, len(shape)))]:
        kind = draw(st.sampled_from(["array", "array", "slice", "int", "new"]))
        if kind == "array" and length:
            own = draw(st.sampled_from([common, common[-1:], (1,) * len(common)]))
            parts.append(draw(hnp.arrays(np.int64, own, elements=st.integers(-length, length - 1))))
        elif kind == "int" and length:
            parts.append(draw(st.integers(-length, length - 1)))
        else:
            if kind == "new":
                parts.append(None)
            parts.append(draw(slices(length)))
    if draw(st.booleans()):
        # Trailing parts may as well be given behind an ellipsis, as long as they fit from the end.
        consumed = sum(part is not None for part in parts)
        if consumed == len(shape):
            parts.insert(draw(st.integers(0, len(parts))), Ellipsis)
    return tuple(parts)


@st.composite
def _masks(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """A boolean mask over some leading or trailing axes."""
    dims = draw(st.integers(1, len(shape)))
    leading = draw(st.booleans())
    covered = shape[:dims] if leading else shape[len(shape) - dims :]
    mask = draw(hnp.arrays(np.bool_, covered))
    if not leading:
        return (..., mask)
    return (mask, *(draw(slices(length)) for length in shape[dims : draw(st.integers(dims, len(shape)))]))


@st.composite
def _orthogonal(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    lists = [draw(st.lists(st.integers(0, max(0, n - 1)), max_size=4 if n else 0)) for n in shape]
    return np.ix_(*(np.array(one, np.intp) for one in lists))


def keys(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    """Any index expression that NumPy takes for a shape."""
    basic = hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True)
    if not shape:
        return st.one_of(basic, st.sampled_from([True, False, (), ..., None]))
    stepped = st.tuples(*(slices(length) for length in shape))
    several = [basic, stepped, _advanced(shape), _masks(shape), _orthogonal(shape)]
    if math.prod(shape):
        several.append(hnp.integer_array_indices(shape, result_shape=hnp.array_shapes(max_dims=2, max_side=4)))
    return st.one_of(*several)


def outer_keys(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    """Lists, masks, slices and integers, one for each axis, to be taken orthogonally."""
    return st.tuples(*(_outer_part(length) for length in shape))


@st.composite
def _outer_part(draw: st.DrawFn, length: int) -> Any:
    kind = draw(st.sampled_from(["list", "mask", "slice", "int"]))
    if kind == "int" and length:
        return draw(st.integers(-length, length - 1))
    if kind == "mask":
        return draw(hnp.arrays(np.bool_, length))
    if kind == "list" and length:
        return draw(st.lists(st.integers(-length, length - 1), max_size=5))
    return draw(slices(length))


@st.composite
def view_shapes(draw: st.DrawFn, volume: int) -> tuple[int, ...]:
    """A random factorisation of a volume, in random order, with ones in between."""
    if volume == 0:
        return (*draw(shapes(max_dims=2)), 0)
    sides: list[int] = []
    rest = volume
    while rest > 1 and len(sides) < 5:
        divisors = [d for d in range(2, rest + 1) if rest % d == 0]
        sides.append(draw(st.sampled_from(divisors)))
        rest //= sides[-1]
    if rest > 1:
        sides.append(rest)
    sides += [1] * draw(st.integers(0, 1))
    return tuple(draw(st.permutations(sides)))
