"""Accelerators and other processes fetch for themselves: queue pairs in shared memory.

:func:`connect` is what ``nandarray.open("shm://NAME")`` calls. The C++ and CUDA client is a header; :func:`include`
says where it lies.
"""

from __future__ import annotations

from nandarray.gpu.client import SharedArray, SharedStore, connect
from nandarray.gpu.gather import gather
from nandarray.gpu.headers import include
from nandarray.gpu.server import serve

__all__ = ["SharedArray", "SharedStore", "connect", "gather", "include", "serve"]
