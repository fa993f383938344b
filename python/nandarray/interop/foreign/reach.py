"""Ways to sources that are no plain files or folders: archives, and objects far away.

Views (:mod:`.opening`) and imports (:mod:`nandarray.interop.convert.copying`) reach such sources here, so an import
is a copy of what a view shows.
"""

from __future__ import annotations

import zipfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nandarray.errors import InvalidError
from nandarray.interop.convert.formats import FORMATS
from nandarray.interop.convert.sources import foreign_errors
from nandarray.interop.foreign.far import FarFile, FarObjects, RangeFile
from nandarray.interop.foreign.files import Archive, LocalFile, Objects
from nandarray.remote.objects import Facts
from nandarray.remote.places import place_of
from nandarray.urls import split_remote

__all__ = ["far_format", "opened_far", "reach", "zarr_objects"]

#: The format of an archive of a Zarr group.
ZIP = "zip"


def far_format(url: str) -> str | None:
    """Return the format of an object far away, or of objects, by the ending of its URL; None where it tells none."""
    name = url.partition("?")[0].rstrip("/").lower()
    if name.endswith(".zip"):
        return ZIP if name.endswith(".zarr.zip") else None
    return next((kind for kind in ("zarr", "hdf5", "netcdf") if name.endswith(FORMATS[kind])), None)


def zarr_objects(objects: Objects) -> Any:
    """Return objects as a store of Zarr's."""
    from nandarray.interop.foreign.zarr_objects import ZarrObjects

    return ZarrObjects(objects)


def opened_far(
    url: str, kind: str, limit: int, stack: ExitStack, *, storage: Any = None, facts: Facts | None = None
) -> tuple[Any, FarFile | None]:
    """Return what a source far away is read through, and the file if it is one; ``stack`` lets go of it.

    Raises
    ------
    StoreMissingError
        There is no such object.
    DeniedError, MediaError
        It cannot be had.
    """
    place = place_of(url.rstrip("/"), storage)
    if kind == "zarr":
        return zarr_objects(FarObjects(place.objects, place.key)), None
    file = FarFile(place.objects, place.key, facts)
    seeks = stack.enter_context(RangeFile(file))
    if kind != ZIP:
        return seeks, file
    with foreign_errors(url):
        archive = Archive(file, seeks, limit)
    stack.callback(archive.close)
    return zarr_objects(archive), None


def reach(source: str, told: str | None, limit: int, stack: ExitStack) -> tuple[str, Any] | None:
    """Return the format of a source and what it is read through; None for a plain file or folder.

    Raises
    ------
    InvalidError
        The source is far away, and its format cannot be read there.
    """
    if split_remote(source) is not None:
        kind = told if told in ("zarr", "hdf5", "netcdf") else far_format(source) if told is None else None
        if kind is None:
            raise InvalidError(
                f"{source!r} must end as HDF5, NetCDF or Zarr (.zarr, .zarr.zip) do, or come with format= one of "
                f"zarr, hdf5, netcdf; {'no ending tells it' if told is None else told} is read of local files alone"
            )
        return ("zarr" if kind == ZIP else kind), opened_far(source, kind, limit, stack)[0]
    path = Path(source)
    if told not in (None, "zarr") or path.suffix.lower() != ".zip" or not path.is_file():
        return None
    with foreign_errors(path):
        if not zipfile.is_zipfile(path):
            raise InvalidError(f"{path} is not a .zip file, or is damaged")
        archive = Archive(LocalFile(source), source, limit)
    stack.callback(archive.close)
    return "zarr", zarr_objects(archive)
