"""The systems under test by label, ``peer/configuration``; each peer's library is imported only when it is used."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path

from bench.data import ArraySpec

from .base import System
from .nandarray_store import is_config

__all__ = ["DEFAULT", "LABELS", "QUICK", "SystemInfo", "info", "is_label", "make", "missing"]

#: Label -> module of the adapter; the order is the order of the columns.
_MODULES: dict[str, str] = {
    "nandarray/default": "nandarray_store",
    "memcpy/threads": "memcpy",
    "lines/row-major": "lines",
    "ref/256": "ref",
    "memmap/row-major": "row_major",
    "tensorstore/256": "tensorstore_zarr",
    "tensorstore/1024": "tensorstore_zarr",
    "tensorstore/4096:256": "tensorstore_zarr",
    "tensorstore/n5-256": "tensorstore_zarr",
    "zarr/256": "zarr_store",
    "zarr/1024": "zarr_store",
    "zarrs/256": "zarrs_store",
    "zarrs/1024": "zarrs_store",
    "h5py/256-cache": "hdf5",
    "h5py/1024-nocache": "hdf5",
    "blosc2/256": "blosc2_store",
    "blosc2/256-mmap": "blosc2_store",
    "blosc2/1024": "blosc2_store",
    "blosc2/1024-mmap": "blosc2_store",
    "tiledb/256": "tiledb_store",
    "tiledb/1024": "tiledb_store",
    "icechunk/256": "icechunk_store",
    "icechunk/1024": "icechunk_store",
}

LABELS: tuple[str, ...] = tuple(_MODULES)

#: Configurations that a run leaves out without ``--systems all``: another one of the same peer beats them in nearly
#: every pattern.
_SECOND = {
    "tensorstore/n5-256",
    "zarr/1024",
    "blosc2/256",
    "blosc2/256-mmap",
    "tiledb/1024",
    "icechunk/1024",
}
DEFAULT: tuple[str, ...] = tuple(label for label in LABELS if label not in _SECOND)
#: The quick run: one configuration a peer, the one that serves it best over all patterns.
QUICK: tuple[str, ...] = (
    "nandarray/default",
    "memcpy/threads",
    "lines/row-major",
    "ref/256",
    "memmap/row-major",
    "tensorstore/256",
    "zarrs/256",
    "h5py/256-cache",
    "blosc2/1024",
    "tiledb/256",
    "icechunk/256",
)


@dataclass(frozen=True)
class SystemInfo:
    """Facts of a system that need no import of its library."""

    label: str
    peer: str
    chunked: bool
    survives_kill: bool
    stores: bool
    least_bytes: int
    compressions: tuple[str | None, ...]
    package: str


def is_label(name: str) -> bool:
    """Whether there is such a system: one of :data:`LABELS`, or nandarray in a configuration that is not listed."""
    peer, _, config = name.partition("/")
    return name in _MODULES or (peer == "nandarray" and is_config(config))


def _adapter(label: str) -> type[System]:
    name = "nandarray_store" if label.startswith("nandarray/") else _MODULES[label]
    module = importlib.import_module(f"{__name__}.{name}")
    adapter: type[System] = module.Adapter
    return adapter


def info(label: str) -> SystemInfo:
    """Describe a system; works whether or not its library is installed."""
    cls = _adapter(label)
    return SystemInfo(
        label, cls.peer, cls.chunked, cls.survives_kill, cls.stores, cls.least_bytes, cls.compressions, cls.package
    )


def missing(label: str) -> str | None:
    """Return why a system cannot run here, or None when it can."""
    package = _adapter(label).package
    try:
        importlib.import_module(package)
    except ImportError as error:
        return f"{package} cannot be imported: {error}"
    return None


def make(label: str, folder: Path, spec: ArraySpec) -> System:
    """Make the adapter of a label over an array in a folder."""
    return _adapter(label)(folder, spec, label.split("/", 1)[1])
