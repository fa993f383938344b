"""Formats of files beside stores, and the endings by which a name tells one. No file is opened here."""

from __future__ import annotations

from pathlib import Path

from nandarray.errors import InvalidError

__all__ = ["BUDGET", "FORMATS", "format_by_name", "is_zarr"]

#: Format -> the endings that mean it.
FORMATS: dict[str, tuple[str, ...]] = {
    "npy": (".npy",),
    "npz": (".npz",),
    "zarr": (".zarr",),
    "hdf5": (".h5", ".hdf5", ".hdf", ".he5"),
    "netcdf": (".nc", ".nc4", ".cdf", ".netcdf"),
    "raw": (".bin", ".raw", ".dat"),
}
#: Bytes of memory that a copy uses, if its caller says no other.
BUDGET = 256 << 20
_ZARR = ("zarr.json", ".zgroup", ".zarray")


def is_zarr(path: Path) -> bool:
    """Return whether a folder has an array or a group of Zarr."""
    return any((path / one).exists() for one in _ZARR)


def format_by_name(path: Path, told: str | None) -> str:
    """Return the format of a file that is to be read or made, as the caller says it or by its name.

    Raises
    ------
    InvalidError
        There is no such format, or the name tells none.
    """
    if told is not None:
        if told not in FORMATS:
            raise InvalidError(f"format must be one of {', '.join(FORMATS)}, not {told!r}")
        return told
    for kind, endings in FORMATS.items():
        if path.suffix.lower() in endings:
            return kind
    if is_zarr(path):
        return "zarr"
    known = ", ".join(FORMATS)
    raise InvalidError(f"cannot tell the format of {str(path)!r} by its name: give format= one of {known}")
