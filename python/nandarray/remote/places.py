"""Places of objects: from a URL, and what the caller gives to reach it, to the objects there and a key."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any, NamedTuple

from nandarray.errors import InvalidError
from nandarray.optional import require
from nandarray.remote.filesystems import Filesystems
from nandarray.remote.objects import Objects
from nandarray.remote.obstores import Obstores
from nandarray.urls import split_remote

__all__ = ["Place", "place_of"]

#: Limits of requests of stores that are made here: the caller's own have the caller's.
_RETRIES = {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}
_CLIENT = {"timeout": "60s", "connect_timeout": "10s", "allow_http": True}


class Place(NamedTuple):
    """An object, or the beginning of several: where the objects are, and the key."""

    objects: Objects
    key: str

    @property
    def url(self) -> str:
        """The URL, for messages."""
        return self.objects.url(self.key)


class Storage:
    """A caller's storage in a pickle: two are equal if their pickles are, as copies of one are."""

    def __init__(self, storage: Any) -> None:
        self.storage: Any = storage.storage if isinstance(storage, Storage) else storage

    def __reduce__(self) -> tuple[Any, ...]:
        return Storage, (self.storage,)

    def _pickled(self) -> bytes:
        return pickle.dumps(self.storage)

    def __eq__(self, other: object) -> bool:
        """Whether both reach the same place in the same way."""
        return isinstance(other, Storage) and self._pickled() == other._pickled()

    def __hash__(self) -> int:
        """Hash the kind alone."""
        return hash(type(self.storage))


def place_of(url: str, storage: Any = None) -> Place:
    """Return the place that a URL names.

    Parameters
    ----------
    url : str
        A URL (``s3://BUCKET/KEY``, ``gs://``, ``az://``, ``http://``, ``https://``); or, with ``storage``, a key or
        a path in it.
    storage : obstore.store.ObjectStore or fsspec.AbstractFileSystem, optional
        The store of objects, with its credentials. Without it obstore makes one, with what the environment says.

    Raises
    ------
    InvalidError
        The URL has no key, or ``storage`` is something else.
    ImportError
        obstore is not installed.
    """
    if isinstance(storage, Storage):
        storage = storage.storage
    parts = split_remote(url)
    root, key = parts if parts is not None else ("", url)
    if not key.strip("/"):
        raise InvalidError(f"{url!r} must name an object in a bucket or on a server")
    if storage is None:
        if parts is None:
            raise InvalidError(f"{url!r} must be a URL, or come with storage=")
        return Place(_made(root), key.strip("/"))
    if type(storage).__module__.startswith("obstore"):
        return Place(Obstores(storage, root or repr(storage)), key.strip("/"))
    if hasattr(storage, "cat_file") and hasattr(storage, "_strip_protocol"):
        folder, _, name = str(storage._strip_protocol(url)).rstrip("/").rpartition("/")
        return Place(Filesystems(storage, folder), name)
    kind = type(storage).__name__
    raise InvalidError(f"storage must be a store of obstore or a file system of fsspec, not {kind}")


def _made(root: str) -> Objects:
    """Return the objects of a bucket or a server by obstore, which reads the environment."""
    stores = require("obstore.store", "remote")
    try:
        return Obstores(stores.from_url(root, retry_config=_RETRIES, client_options=_CLIENT), root)
    except Exception as error:  # obstore has several, by the kind of the store
        raise InvalidError(f"{root}: {str(error).strip().splitlines()[0]}") from error
