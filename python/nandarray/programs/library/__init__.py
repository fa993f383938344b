"""Ready-made programs: from their names to programs, and to what they do in NumPy.

    >>> from nandarray import programs
    >>> programs.get("sum", dtype="float32")
    <nandarray.Program 'sum' block rv64: x float32 -> result float64>

Each is a file of C in ``c/``, compiled at first use and kept (:meth:`nandarray.Program.from_c`), and a function in
``twins/`` that computes the same. ``docs/reference/programs.md`` defines all of them.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nandarray.errors import InvalidError, NotFoundError
from nandarray.programs.library.psf import tuple_dtype
from nandarray.programs.library.registry import PROGRAMS, ReadyMade
from nandarray.programs.library.sizes import row_dtype
from nandarray.programs.program import Program

__all__ = ["ReadyMade", "describe", "get", "key_scalars", "names", "row_dtype", "tuple_dtype", "twin"]

_SOURCES = Path(__file__).parent / "c"


def names() -> list[str]:
    """Return the names of all ready-made programs.

    Returns
    -------
    list of str
        Names in the order of the documentation.
    """
    return list(PROGRAMS)


def describe(name: str) -> ReadyMade:
    """Describe a program: dtypes, kinds, parameters with their ranges.

    Parameters
    ----------
    name : str
        One of :func:`names`.

    Returns
    -------
    ReadyMade
        Its entry in the table.

    Raises
    ------
    NotFoundError
        There is no such program.
    """
    found = PROGRAMS.get(name)
    if found is None:
        near = difflib.get_close_matches(str(name), PROGRAMS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; there is {', '.join(PROGRAMS)}"
        raise NotFoundError(f"there is no program {name!r}{hint}")
    return found


def get(name: str, *, dtype: Any = None, kind: str = "block", target: str = "rv64", **parameters: Any) -> Program:
    """Make a program, or take it from the cache.

    Parameters
    ----------
    name : str
        One of :func:`names`.
    dtype : dtype, optional
        Dtype of the elements; the program's default if left out.
    kind : {"block", "stream"}
        The form: whole blocks in memory, or elements by stream instructions.
    target : str
        The processor, as for :meth:`nandarray.Program.from_c`: ``"rv64gcv"`` for a core with vectors.
    **parameters
        Sizes that shape its records, like ``row_bytes=32``: see :func:`describe`.

    Returns
    -------
    nandarray.Program
        The program; its ``metadata`` says what it takes and gives.

    Raises
    ------
    NotFoundError
        There is no such program.
    InvalidError
        It is not made for this dtype, of this kind, or with such a parameter.
    """
    made = describe(name)
    chosen, values = _chosen(name, made, dtype, parameters)
    if kind not in made.kinds:
        raise InvalidError(f"{name}: kind must be {' or '.join(made.kinds)}, not {kind!r}")
    defines = {"STREAM": int(kind == "stream"), **made.defines(chosen, values)}
    if chosen is not None:
        defines["DTYPE"] = chosen.name
    words = (f"-D{key}={value}" for key, value in sorted(defines.items()))
    return _compiled(made.source, target, (*made.flags, *words))


def twin(name: str, *, dtype: Any = None, **parameters: Any) -> Callable[..., tuple[np.ndarray[Any, Any], ...]]:
    """Return the function that does in NumPy what a program does.

    Parameters
    ----------
    name : str
        One of :func:`names`.
    dtype : dtype, optional
        Dtype of the elements, as for :func:`get`.
    **parameters
        As for :func:`get`.

    Returns
    -------
    function
        Takes inputs and scalars as the program does, gives a tuple of arrays.

    Raises
    ------
    NotFoundError, InvalidError
        As :func:`get` does.
    """
    made = describe(name)
    chosen, values = _chosen(name, made, dtype, parameters)
    made.defines(chosen, values)
    module = importlib.import_module(f"nandarray.programs.library.twins.{made.family}")
    function = getattr(module, made.twin or name)
    known = {**values, "dtype": chosen}
    wanted = (one.name for one in inspect.signature(function).parameters.values() if one.kind is one.KEYWORD_ONLY)
    return functools.partial(function, **{key: known[key] for key in wanted if key in known})


def key_scalars(raw: bytes) -> tuple[int, int]:
    """Return the scalars for a key, or a counter's start value, of 16 bytes.

    Parameters
    ----------
    raw : bytes
        The 16 bytes.

    Returns
    -------
    (int, int)
        The lower and the upper 64 bits, little-endian.

    Raises
    ------
    InvalidError
        There are not 16 of them.
    """
    if len(raw) != 16:  # noqa: PLR2004
        raise InvalidError(f"a key or a start value must have 16 bytes, not {len(raw)}")
    return int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")


@functools.lru_cache(maxsize=512)
def _compiled(source: str, target: str, flags: tuple[str, ...]) -> Program:
    return Program.from_c(_SOURCES / source, target=target, flags=flags, trusted=True)


def _chosen(
    name: str, made: ReadyMade, dtype: Any, parameters: dict[str, Any]
) -> tuple[np.dtype[Any] | None, dict[str, Any]]:
    unknown = sorted(set(parameters) - set(made.parameters))
    if unknown:
        listed = ", ".join(made.parameters) or "none"
        raise InvalidError(f"{name}: {unknown[0]!r} is not a parameter; there is {listed}")
    given = {key: one.default for key, one in made.parameters.items()} | parameters
    values = {key: made.parameters[key].check(name, key, value) for key, value in given.items()}
    if not made.dtypes:
        if dtype is not None:
            raise InvalidError(f"{name} works on bytes and must be made without a dtype")
        return None, values
    try:
        chosen = np.dtype(made.default if dtype is None else dtype)
    except TypeError:
        raise InvalidError(f"{name}: {dtype!r} is no dtype; there is {', '.join(made.dtypes)}") from None
    if chosen.name not in made.dtypes or not chosen.isnative:
        raise InvalidError(f"{name}: dtype must be one of {', '.join(made.dtypes)}, not {chosen}")
    return chosen, values
