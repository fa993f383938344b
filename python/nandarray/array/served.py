"""Stores that another process or the kernel serves: from a URL to the door that connects to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nandarray.urls import shared_name

if TYPE_CHECKING:
    from nandarray.array.store import Mode, Store

__all__ = ["connect"]


def connect(url: str, *, mode: Mode, **options: Any) -> Store:
    """Connect to a store that is served; ``options`` are those of its door."""
    if (region := shared_name(url)) is not None:
        from nandarray import gpu

        return gpu.connect(region, mode=mode, **options)
    from nandarray import nvme

    return nvme.connect(url, mode=mode, **options)
