"""Numba's functions of arrays, imported without SciPy."""

from __future__ import annotations

import importlib.util
import sys

__all__ = ["import_arrays"]


def import_arrays() -> None:
    """Import Numba's functions of arrays without all of SciPy, which they import to see whether it is there.

    It is half of what compiling a small program takes. Found is found: it is imported where Numba calls it.
    """
    if "numba.np.arraymath" in sys.modules or importlib.util.find_spec("scipy") is None:
        return
    from numba.np import linalg

    real = getattr(linalg, "ensure_blas", None)
    if real is None:
        return
    linalg.ensure_blas = lambda: None
    try:
        from numba.np import arraymath

        arraymath.ensure_blas = real  # type: ignore[attr-defined]
    finally:
        linalg.ensure_blas = real
