"""Ready-made kernels: PolyBench in single precision (:mod:`.polybench`), graphs and text (:mod:`.applications`).

Each is a loop nest with microblocks; :func:`get` finds one by its name, :data:`TWINS` has the same in NumPy.

    >>> from nandarray.programs import kernels
    >>> kernels.get("atax")
    <nandarray.Kernel 'atax': A, x -> y, 2 microblocks>
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from nandarray.errors import InvalidError
from nandarray.programs.kernel import kernel

__all__ = ["NAMES", "get", "twin"]

_POLYBENCH = (
    "atax", "bicg", "conv2d", "mvt", "adi", "fdtd", "gesummv", "syrk", "mm3", "covar", "gemm", "mm2", "syr2k", "corr",
)  # fmt: skip
_APPLICATIONS = ("nn", "bfs", "nw", "path", "wc")
#: The names of all kernels, in the order of FlashAbacus' Table 2; then its graph and text applications.
NAMES = (*_POLYBENCH, *_APPLICATIONS)


def _module(name: str) -> Any:
    if name not in NAMES:
        raise InvalidError(f"there is no kernel {name!r}; there is {', '.join(NAMES)}")
    return importlib.import_module(f"{__name__}.{'polybench' if name in _POLYBENCH else 'applications'}")


def get(name: str, *, checked: bool = True) -> Any:
    """Return a ready-made kernel.

    Parameters
    ----------
    name : str
        One of :data:`NAMES`.
    checked : bool
        Whether indices that it takes from data are compared with extents: see :func:`nandarray.kernel`.

    Returns
    -------
    Kernel
        Compiled, or from the cache.
    """
    function = getattr(_module(name), name)
    if (name, checked) not in _MADE:
        _MADE[name, checked] = kernel(function, checked=checked)
    return _MADE[name, checked]


def twin(name: str) -> Callable[..., Any]:
    """Return the same kernel in NumPy: a function of its inputs by name, and of its scalars."""
    found: Callable[..., Any] = _module(name).TWINS[name]
    return found


_MADE: dict[tuple[str, bool], Any] = {}
