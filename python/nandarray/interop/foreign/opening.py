"""Opening a file of another format as a store: its format, what it holds, and where its chunks are.

The first bytes of a file say its format, or the files of a folder; its ending where several fit. An object that no
store can have is left out with a warning that names it, and looking it up raises the reason.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from nandarray import _nandarray
from nandarray.array.store import Store
from nandarray.errors import InvalidError
from nandarray.interop.convert.formats import BUDGET, FORMATS, is_zarr
from nandarray.interop.convert.limits import chunk_limit
from nandarray.interop.convert.members import Source as Contents
from nandarray.interop.convert.members import SourceOptions
from nandarray.interop.convert.sources import foreign_errors, open_source
from nandarray.interop.foreign.far import FarFile
from nandarray.interop.foreign.files import Archive, File, Folder, LocalFile
from nandarray.interop.foreign.hdf5_chunks import not_readable
from nandarray.interop.foreign.reach import far_format, opened_far, zarr_objects
from nandarray.interop.foreign.source import ForeignSource
from nandarray.remote.objects import Facts
from nandarray.remote.places import Storage
from nandarray.urls import split_remote

__all__ = ["far_format", "format_of", "open_far", "open_foreign", "refuse"]

_HDF5 = b"\x89HDF\r\n\x1a\n"
_ZIP = b"PK"
_CLASSIC = b"CDF"
#: Places at which an HDF5 file may begin: 0, 512, and twice that each time.
_PLACES = (0, 512, 1024, 2048, 4096, 8192)
#: Names that a warning lists, before it counts the rest.
_LISTED = 20


def format_of(path: str) -> str | None:
    """Return the format of a file or a folder that can be opened in place, by what is in it; None if it is none."""
    if os.path.isdir(path):
        return "zarr" if is_zarr(Path(path)) else None
    if not os.path.isfile(path):
        return None
    ending = Path(path).suffix.lower()
    try:
        with open(path, "rb") as file:
            head = file.read(_PLACES[-1] + len(_HDF5))
    except OSError:
        return None  # opening it raises the error
    if head.startswith(_CLASSIC) and head[3:4] in (b"\1", b"\2", b"\5"):
        return "netcdf"
    if any(head[at:].startswith(_HDF5) for at in _PLACES):
        return "netcdf" if ending in FORMATS["netcdf"] else "hdf5"
    if head.startswith(_ZIP) and ending != ".npz":
        return "zip"
    # One whose head is damaged: its reader says so.
    return next((kind for kind in ("hdf5", "netcdf") if ending in FORMATS[kind]), None)


def open_foreign(path: str, kind: str) -> Store:
    """Open a file of another format as a store that is read.

    Parameters
    ----------
    path : str
        The file or folder.
    kind : str
        The format, as :func:`format_of` gives it.

    Returns
    -------
    Store
        The store, with mode "r".

    Raises
    ------
    InvalidError
        The file is damaged, or reads other files.
    ImportError
        The package that reads the format is not installed; the message names it.
    """
    options = SourceOptions(limit=chunk_limit(BUDGET))
    with ExitStack() as stack:
        if kind == "zarr":
            return _opened(path, kind, None, replace(options, via=zarr_objects(Folder(path))), stack)
        file = LocalFile(path)
        stack.callback(file.close)
        if kind != "zip":
            return _opened(path, kind, file, options, stack)
        with foreign_errors(path):
            objects = Archive(file, path, options.limit)
        stack.callback(objects.close)
        return _opened(path, "zarr", None, replace(options, via=zarr_objects(objects)), stack)


def refuse(path: str, mode: str, given: Sequence[str]) -> None:
    """Refuse any mode but "r", and options of stores, of which ``given`` has the names.

    Raises
    ------
    InvalidError
        The mode is another, or an option was given.
    """
    if mode != "r":
        raise InvalidError(
            f"{path} is of another format, which is read in place: mode must be 'r', not {mode!r}; "
            "nandarray.import_ copies it into a store that is written"
        )
    if given:
        raise InvalidError(f"{path} is of another format, which takes no {' or '.join(given)}")


def open_far(url: str, kind: str, storage: Any = None, facts: Facts | None = None) -> Store:
    """Open a file of another format, or a Zarr group, that is far away.

    Parameters
    ----------
    url : str
        The URL; or a key, with ``storage``.
    kind : str
        The format, as :func:`far_format` gives it.
    storage : obstore.store.ObjectStore or fsspec.AbstractFileSystem, optional
        The store of objects, as :func:`nandarray.remote.places.place_of` takes it.
    facts : Facts, optional
        Facts of the object, which it must have still; by default those of now.

    Returns
    -------
    Store
        The store, with mode "r".

    Raises
    ------
    StoreMissingError
        There is no such object.
    DeniedError, MediaError, ChangedError
        As of every object far away.
    InvalidError
        The file is damaged, or reads other files.
    """
    options = SourceOptions(limit=chunk_limit(BUDGET))
    with ExitStack() as stack:
        via, file = opened_far(url, kind, options.limit, stack, storage=storage, facts=facts)
        options = replace(options, via=via)
        return _opened(url, "zarr" if kind == "zip" else kind, file, options, stack, storage=storage)


def _opened(
    path: str, kind: str, file: File | None, options: SourceOptions, stack: ExitStack, *, storage: Any = None
) -> Store:
    contents = stack.enter_context(open_source(path, kind, options))
    _refuse_filters(contents, options.limit)
    return _store(path, contents, file, stack, options.limit, storage=storage)


def _store(path: str, contents: Contents, file: File | None, stack: ExitStack, limit: int, *, storage: Any) -> Store:
    """Return the store of what was opened, which closes it."""
    named = Path(path.rstrip("/")).stem.removesuffix(".zarr")
    contents.members = [one if one.name else replace(one, name=named) for one in contents.members]
    contents.refused = [(name or named, why) for name, why in contents.refused]
    _refuse_names(contents)
    for what, found in (
        ("left out", [why for _, why in contents.refused]),
        ("attributes left out", contents.skipped_attrs),
    ):
        if found:
            more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
            warnings.warn(f"{what} of {path}: {'; '.join(found[:_LISTED])}{more}", UserWarning, stacklevel=5)
    source = ForeignSource(path, contents, file, stack.pop_all(), limit)
    far = storage is not None or split_remote(path) is not None
    source.waits = not far
    if not far:
        return Store(source, "r", (os.path.abspath(path), ()))  # type: ignore[arg-type]
    held = None if storage is None else Storage(storage)
    facts = file.facts if isinstance(file, FarFile) else None
    return Store(source, "r", (path, (("facts", facts), ("storage", held))))  # type: ignore[arg-type]


def _refuse_filters(contents: Contents, limit: int) -> None:
    """Leave arrays out whose filters are not here, or not bounded, and those whose chunks cannot be listed in time."""
    kept = []
    for member in contents.members:
        why = None if member.item is None else not_readable(member.item, limit)
        if why is None:
            kept.append(member)
        else:
            contents.refuse(member.name, why)
    contents.members = kept


def _refuse_names(contents: Contents) -> None:
    """Leave out what has a name that no array of a store can have."""
    kept = []
    for member in contents.members:
        try:
            _nandarray.check_name(member.name, chosen=True)
        except InvalidError as error:
            contents.refused.append((member.name, str(error)))
        else:
            kept.append(member)
    contents.members = kept
    for name in [*contents.groups]:
        try:
            if name:
                _nandarray.check_name(name, chosen=True)
        except InvalidError:
            del contents.groups[name]
