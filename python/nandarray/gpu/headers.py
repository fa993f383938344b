"""The folder of the header of the C++ and CUDA client."""

from __future__ import annotations

from pathlib import Path

__all__ = ["include"]


def include() -> Path:
    """Return the folder for a compiler's ``-I``; sources say ``#include <nandarray/nandarray.hpp>``.

    Returns
    -------
    pathlib.Path
        A folder of the installed package.
    """
    return Path(__file__).parent / "include"
