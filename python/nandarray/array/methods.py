"""Methods that NumPy's arrays have: reductions beside the data, ``astype``, and the way out where there is none.

:class:`Methods` is a base of arrays, views, fields and conversions. Its reductions are thin: each is ``reduce`` by its
name (:mod:`nandarray.array.compute`), and the result has NumPy's dtype. NumPy's own functions, like ``np.sum(a)``, read
the elements as before. :class:`Hints` has the errors that name what takes the place of a method that there is not.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Never, Protocol

import numpy as np
from numpy.typing import DTypeLike

from nandarray import dtypes
from nandarray.array.compute import Compute
from nandarray.errors import InvalidError
from nandarray.index.buffers import Elements

if TYPE_CHECKING:
    from nandarray.array.lazy import AsType

__all__ = ["Hints", "Methods", "missing"]

_BY_NAME = ("median", "quantile", "percentile", "top", "histogram", "count")
_READ = "elements are read first, as in a[...].{}"
_VIEW = "a view has another shape: a.view((2, 3)), or a.view(-1) for one dimension"
_HINTS = {
    **{name: f'it is a.reduce("{name}", ...)' for name in _BY_NAME},
    "reshape": _VIEW, "ravel": _VIEW, "flatten": _VIEW, "groupby": "it is called group_by here",
    "map_overlap": "it is map_blocks(function, depth=...)", "apply": "it is map_blocks(function)",
    "compute": "elements are read by an index: a[...]", "values": "elements are read by an index: a[...]",
}  # fmt: skip
#: Arguments of NumPy's reductions beside axis and keepdims.
_NUMPY = frozenset({"correction", "ddof", "dtype", "initial", "mean", "out", "where"})


class _Reduction(Protocol):
    """A reduction as it is called."""

    def __call__(
        self, axis: int | Sequence[int] | None = None, *, keepdims: bool = False, **numpy: Any
    ) -> Elements: ...


_DOC = """{summary}: ``reduce("{name}")``, with NumPy's dtype.

Parameters
----------
axis : int or sequence of int, optional
    The axis to fold, or several; all if left out.
keepdims : bool
    Whether axes that are folded stay in the result, with one place each.
**numpy
    {others}Others of NumPy's, like ``dtype`` and ``out``: with these the elements are read, and NumPy computes.

Returns
-------
scalar or numpy.ndarray
    The value, or one for each place that is left.

Raises
------
InvalidError
    There is no such reduction of these elements, or no element.

Examples
--------
>>> import nandarray
>>> store = nandarray.open("data.nand", mode="w")
>>> store["a"] = np.arange(6.0).reshape(2, 3)
>>> store["a"].{name}(axis=0)
{example}
"""


def _reduction(name: str, summary: str, example: str, own: Sequence[str] = ()) -> Any:
    """Make the method of a reduction; ``own`` are arguments of NumPy's that ``reduce`` takes, too."""

    def method(
        self: Compute, axis: int | Sequence[int] | None = None, *, keepdims: bool = False, **numpy: Any
    ) -> Elements:
        if unknown := sorted(set(numpy) - _NUMPY):
            raise InvalidError(f"{name} takes no {unknown[0]!r}; there is axis, keepdims, {', '.join(sorted(_NUMPY))}")
        if not set(numpy) <= set(own):
            # Also for NumPy's own functions, which always give out=: they read, and their result is NumPy's to the bit.
            read: Elements = getattr(np.asarray(self), name)(axis=axis, keepdims=keepdims, **numpy)
            return read
        found: Any = self.reduce(name, axis, keepdims=keepdims, **numpy)
        with np.errstate(over="ignore", invalid="ignore"):
            made: Elements = np.asarray(found).astype(_result(self.dtype.base, name), copy=False)[()]
        return made

    method.__name__, method.__qualname__ = name, f"Methods.{name}"
    others = f"``{own[0]}`` is NumPy's. " if own else ""
    method.__doc__ = inspect.cleandoc(_DOC).format(summary=summary, name=name, example=example, others=others)
    return method


@functools.cache
def _result(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    """Return the dtype that NumPy gives a reduction of elements of a dtype."""
    found: np.dtype[Any] = np.asarray(getattr(np.ones(1, dtype), name)()).dtype
    return found


def missing(one: object, name: str, hint: str | None) -> AttributeError:
    """Make the error of an attribute that there is not; a hint names what takes its place."""
    says = f"{type(one).__name__!r} object has no attribute {name!r}{f': {hint}' if hint else ''}"
    return AttributeError(says, name=name, obj=one)


class Hints:
    """Errors that name what takes the place of NumPy's, pandas' and Dask's methods."""

    if not TYPE_CHECKING:  # a type checker knows which attributes there are

        def __getattr__(self, name: str) -> Never:
            """Say what takes the place of an attribute that there is not."""
            hint = _HINTS.get(name) if isinstance(self, Compute) else None
            raise missing(self, name, hint or (_READ.format(name) if hasattr(np.ndarray, name) else None))


class Methods(Hints, Compute):
    """Computing beside the data by NumPy's methods, and reading under another dtype."""

    sum: _Reduction = _reduction("sum", "Add up elements beside the data", "array([3., 5., 7.])")
    prod: _Reduction = _reduction("prod", "Multiply elements beside the data", "array([ 0.,  4., 10.])")
    mean: _Reduction = _reduction("mean", "Compute means beside the data", "array([1.5, 2.5, 3.5])")
    min: _Reduction = _reduction("min", "Find the least elements beside the data", "array([0., 1., 2.])")
    max: _Reduction = _reduction("max", "Find the greatest elements beside the data", "array([3., 4., 5.])")
    any: _Reduction = _reduction(
        "any", "Tell beside the data whether any element is not zero", "array([ True,  True,  True])"
    )
    all: _Reduction = _reduction(
        "all", "Tell beside the data whether no element is zero", "array([False,  True,  True])"
    )
    var: _Reduction = _reduction("var", "Compute variances beside the data", "array([2.25, 2.25, 2.25])", ["ddof"])
    std: _Reduction = _reduction(
        "std", "Compute standard deviations beside the data", "array([1.5, 1.5, 1.5])", ["ddof"]
    )
    argmin: _Reduction = _reduction("argmin", "Find the places of the least elements", "array([0, 0, 0])")
    argmax: _Reduction = _reduction("argmax", "Find the places of the greatest elements", "array([1, 1, 1])")

    def astype(self, dtype: DTypeLike) -> AsType:
        """Convert to another dtype on reading, and before a program.

        Parameters
        ----------
        dtype : dtype_like
            Dtype of what indexing the result gives.

        Returns
        -------
        AsType
            A handle that reads and converts what is indexed; ``map_blocks``, ``reduce`` and the like convert beside
            the data.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(4, dtype="u1")
        >>> store["a"].astype("f4")[1:3]
        array([1., 2.], dtype=float32)
        >>> float(store["a"].astype("f4").reduce("sum"))
        6.0
        >>> store["a"].view((2, 2)).astype("f4").astype("i8")[1]
        array([2, 3])
        """
        from nandarray.array.lazy import AsType

        of: Any = self
        return AsType(of, dtypes.parse(dtype))
