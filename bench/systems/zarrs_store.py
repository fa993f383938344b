"""Zarr 3 with the ``zarrs`` codec pipeline: the same store, encoded and decoded by a Rust library."""

# ruff: noqa: D102 - what the methods do is said once, in base.py
from __future__ import annotations

from . import zarr_store


class Adapter(zarr_store.Adapter):
    """As plain Zarr, another pipeline."""

    peer = "zarrs"
    package = "zarrs"
    pipeline = "zarrs.ZarrsCodecPipeline"
