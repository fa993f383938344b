"""NumPy's universal functions as functions over elements: ``array.map_blocks(np.sqrt)``.

Operators of Python are written as such; the other functions are called by their names, as a user's function would.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from nandarray.errors import InvalidError

__all__ = ["plain"]

_WRITTEN = {
    "add": "x + y", "subtract": "x - y", "multiply": "x * y", "divide": "x / y", "floor_divide": "x // y",
    "remainder": "x % y", "power": "x ** y", "negative": "-x", "positive": "+x", "absolute": "abs(x)",
    "bitwise_and": "x & y", "bitwise_or": "x | y", "bitwise_xor": "x ^ y", "invert": "~x", "left_shift": "x << y",
    "right_shift": "x >> y", "less": "x < y", "less_equal": "x <= y", "greater": "x > y", "greater_equal": "x >= y",
    "equal": "x == y", "not_equal": "x != y",
}  # fmt: skip


def plain(what: Any) -> Any:
    """Return a universal function of one or two numbers as a function in Python, anything else as it is."""
    return _made(what) if isinstance(what, np.ufunc) else what


@lru_cache(maxsize=256)
def _made(what: np.ufunc) -> Callable[..., Any]:
    name = what.__name__
    several = what.nin > 2 or what.nout != 1 or what.signature is not None  # noqa: PLR2004
    if several or getattr(np, name, None) is not what:
        raise InvalidError(f"{what!r} is no function of NumPy's of one or two numbers that gives one")
    given = "x, y"[: 3 * what.nin - 2]
    text = f"def {name}({given}):\n    return {_WRITTEN.get(name, f'np.{name}({given})')}\n"
    names: dict[str, Any] = {"np": np}
    exec(compile(text, f"<nandarray numpy.{name}>", "exec"), names)  # noqa: S102
    made: Callable[..., Any] = names[name]
    return made
