"""Annotations of a Python function's arguments: ``Block``, ``Whole``, ``Out``, ``Scalar``, ``Stream``, ``OutStream``.

Each has a dtype behind it; ``First`` and ``Length``, which say where a piece lies, have none.
A dtype is anything NumPy takes, and the short form ``"float64[3]"``: each record is an array of three. At run time
``Block["float32"]`` is a :class:`Spec`; to a type checker ``Block[np.float32]`` is an array of that type. Nothing here
needs a compiler.
"""

from __future__ import annotations

import builtins
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from nandarray.dtypes import computed, is_ml, is_short, known
from nandarray.errors import InvalidError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Block",
    "First",
    "Length",
    "Out",
    "OutStream",
    "Scalar",
    "Spec",
    "Stream",
    "Whole",
    "parse_dtype",
    "places",
    "specs",
]

_Item = TypeVar("_Item", bound=np.generic)
_WITH_SHAPE = re.compile(r"^\s*(.+?)\s*\[\s*([\d\s,]+)\]\s*$")


@dataclass(frozen=True)
class Spec:
    """The role and the dtype of one argument of a function."""

    role: str  # "block", "whole", "out", "scalar", "stream", "out-stream", "first", "total"
    dtype: np.dtype[Any]


def parse_dtype(what: Any, *, stored: bool = False) -> np.dtype[Any]:
    """Make a dtype, little-endian and of a fixed size, of what a user writes.

    This is anything that :class:`numpy.dtype` takes, ``"float64[3]"``, or a dictionary of field names and dtypes. With
    ``stored`` it is that of elements in an array, which may be big-endian or floats of fewer than 32 bits, too.

    >>> from nandarray.programs.annotations import parse_dtype
    >>> parse_dtype("float64[3]").shape
    (3,)
    >>> parse_dtype({"n": "int64", "sum": "float64"}).itemsize
    16
    """
    try:
        made: np.dtype[Any] = _parse(what)
    except ImportError:
        raise
    except (TypeError, ValueError, SyntaxError) as error:  # a shape within the text is read as Python's
        raise InvalidError(f"{what!r} is not a dtype: {error}") from None
    if stored and made.base.names is None and made.base.kind in "biufcmMV":
        number = computed(made.base)
        if number != made.base and (number.kind != "V" or is_short(made.base)):
            return made
    if made.itemsize == 0 or made.hasobject:
        raise InvalidError(f"elements of dtype {made} have no fixed size")
    if made != made.newbyteorder("<"):
        raise InvalidError(f"{made} is big-endian; processors beside the data are little-endian")
    short = _short_within(made)
    if short is not None:
        within = "" if made == short else f" (in {made})"
        raise InvalidError(
            f"{short} is not computed with by programs in Python{within}: use float32; inputs and outputs may have it"
        )
    return made


def _short_within(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the dtype of elements, or of a field of them, that Numba has no arithmetic for; None if there is none."""
    if is_short(dtype.base) or is_ml(dtype.base):
        return dtype.base
    fields: Mapping[str, Any] = dtype.fields or {}
    return next((found for part in fields.values() if (found := _short_within(part[0].base)) is not None), None)


def _parse(what: Any) -> Any:
    if isinstance(what, typing.ForwardRef):
        what = what.__forward_arg__
    if isinstance(what, dict):
        # Aligned as C would, so that a program in C reads the same.
        return np.dtype([(name, _parse(field)) for name, field in what.items()], align=True)
    found = _WITH_SHAPE.match(what) if isinstance(what, str) else None
    if found:
        shape = tuple(int(part) for part in found.group(2).split(",") if part.strip())
        return np.dtype((known(found.group(1)), shape))
    return known(what)


class _Role:
    """``Block`` and its like: subscripted with a dtype they are a :class:`Spec`."""

    def __init__(self, role: str) -> None:
        self.role = role

    def __getitem__(self, dtype: Any) -> Spec:
        made = parse_dtype(dtype, stored=True)
        return Spec(self.role, computed(made) if self.role == "scalar" else made)

    def __repr__(self) -> str:
        return f"<annotation {self.role}>"


if TYPE_CHECKING:
    Block = NDArray[_Item]
    Whole = NDArray[_Item]
    First = int
    Length = int
    Out = NDArray[_Item]
    Scalar = typing.Annotated[_Item, "scalar"]

    class Stream(typing.Generic[_Item]):
        """The operations of an input stream."""

        def __iter__(self) -> Any: ...
        def load(self) -> Any:
            """Consume the next element."""

        def at_end(self) -> bool:
            """Return whether no element is left."""

    class OutStream(typing.Generic[_Item]):
        """The operations of an output stream."""

        def store(self, value: Any) -> None:
            """Produce an element."""
else:
    #: An input array, for reading: one dimension of records, all of them; where a caller asks for tasks by
    #: ``task_bytes=``, those of one task, which begin at ``First`` of ``Length``.
    Block = _Role("block")
    #: An input array that the function needs all of: a caller's size of a task is refused. Behind a ``Block``, every
    #: task gets all of it.
    Whole = _Role("whole")
    #: The number of a block's first record in the input; of a box, a tuple of its first coordinates.
    First = Spec("first", np.dtype(np.int64))
    #: The number of records of the input (-1 if another program gives it); of a box, the shape of what it lies in.
    Length = Spec("total", np.dtype(np.int64))
    #: Room for the records of an output.
    Out = _Role("out")
    #: One number, given when the program runs.
    Scalar = _Role("scalar")
    #: An input as a stream, all of it; where a caller asks for tasks by ``task_bytes=``, that of one task:
    #: ``for value in stream``, ``stream.load()``, ``stream.at_end()``.
    Stream = _Role("stream")
    #: An output as a stream: ``stream.store(value)``.
    OutStream = _Role("out-stream")


def _evaluated(function: Callable[..., Any]) -> dict[str, Any]:
    """Read annotations that may be text; then ``Block[float32]`` is as good as ``Block["float32"]``.

    Formatters take the quotes away, since for them what stands there is a type, not text.
    """
    said = inspect.get_annotations(function)
    if not any(isinstance(one, str) for one in said.values()):
        return said
    closed = inspect.getclosurevars(function).nonlocals
    names = {**{name: kind for name, kind in np.sctypeDict.items() if isinstance(name, str)}, **vars(builtins)}
    names |= {**getattr(function, "__globals__", {}), **closed}

    def read(one: Any) -> Any:
        return eval(one, names) if isinstance(one, str) else one  # noqa: S307

    # Twice: what stands in quotes is text of a text where the file has its annotations as text.
    return {name: read(read(one)) for name, one in said.items()}


def specs(function: Callable[..., Any]) -> dict[str, Spec]:
    """Read the annotations of a plain function: parameters in order, with what they are.

    A parameter without an annotation, or with one that is not known here, is an InvalidError.
    """
    where = f"{function.__qualname__}()"
    try:
        said = _evaluated(function)
    except (NameError, SyntaxError, TypeError, AttributeError) as error:
        raise InvalidError(f"{where}: its annotations cannot be read: {error}") from error
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InvalidError(f"{where}: {parameter} is not possible; parameters are plain")
        spec = said.get(name)
        if not isinstance(spec, Spec):
            shown = "no annotation" if spec is None else f"the annotation {spec!r}"
            raise InvalidError(
                f"{where}: parameter {name!r} has {shown}; write {name}: nandarray.Block['float32'] for a block of an "
                "input, Whole[...] for one that is never cut, Out[...] for room in an output, Scalar[...] for a "
                "number, First and Length for where the block lies, Stream[...] and OutStream[...]"
            )
        found[name] = spec
    return found


def places(function: Callable[..., Any]) -> dict[str, str]:
    """Return the parameters of a function over boxes that say where a box lies, with their roles."""
    try:
        said = _evaluated(function)
    except (NameError, SyntaxError, TypeError, AttributeError):
        return {}  # what else annotations say is the author's own
    return {name: one.role for name, one in said.items() if isinstance(one, Spec) and one.role in {"first", "total"}}
