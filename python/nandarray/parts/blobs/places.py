"""The keeper of a store's objects for the path or the URL that a caller names: a folder, or a place in a bucket."""

from __future__ import annotations

import os
from typing import Any

from nandarray.parts.blobs.base import Blobs
from nandarray.parts.blobs.files import Files
from nandarray.parts.blobs.objects import KeptBytes, ObjectBlobs
from nandarray.remote.objects import Objects
from nandarray.remote.places import Storage, place_of
from nandarray.urls import refuse_unknown, split_remote

__all__ = ["blobs_of", "opening_of"]


def blobs_of(path: str | os.PathLike[str], storage: Any = None, kept: KeptBytes = (None, None)) -> Blobs:
    """Return what keeps the objects of a store of parts.

    Parameters
    ----------
    path : path_like
        A folder; a URL of a place in a bucket; or, with ``storage``, a key in it.
    storage : obstore.store.ObjectStore or fsspec.AbstractFileSystem, optional
        The store of objects, or :class:`~nandarray.remote.objects.Objects`.
    kept : tuple
        Folder and bound of the cache of parts that are read.
    """
    name = os.fsdecode(path)
    if isinstance(storage, Objects):
        return ObjectBlobs(storage, name.strip("/"), kept)
    if storage is None and split_remote(name) is None:
        refuse_unknown(name)
        return Files(os.path.abspath(name))
    return ObjectBlobs(*place_of(name, storage), kept)


def opening_of(storage: Any, kept: KeptBytes) -> tuple[tuple[str, Any], ...]:
    """Return the options of :func:`nandarray.open` that reach a bucket again, for a pickle."""
    folder, bound = kept
    held = None if storage is None else Storage(storage)
    return ("storage", held), ("cache", os.path.abspath(folder) if folder else folder), ("cache_bytes", bound)
