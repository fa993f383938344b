"""Opening: from the words of :func:`nandarray.open` to a store, on a file or on a modelled device.

The store's methods are in :mod:`nandarray.array.store`; the engine checks the options.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nandarray import _nandarray, holders
from nandarray.array.creation import check_word
from nandarray.array.names import UNFINISHED, is_unfinished
from nandarray.array.served import connect
from nandarray.array.store import Mode, Store
from nandarray.errors import (
    InvalidError,
    MediaError,
    NotAStoreError,
    StoreFullError,
    StoreMissingError,
    refuse_homeless,
)
from nandarray.index.shapes import check_number
from nandarray.urls import is_served, refuse_unknown, split_remote

if TYPE_CHECKING:
    from nandarray.device import Description

__all__ = ["open"]

#: The first bytes of each of the two superblocks, and their offsets.
_MAGIC = b"\x89NANDAR\n"
_SLOTS = (0, 4096)
#: Modes in which a file may be made.
_MAKES = ("a", "w", "x")
#: The file that a folder with a store of parts has.
_PARTS = "nandarray.json"


def open(
    path: str | os.PathLike[str] | None = None,
    mode: Mode = "r",
    *,
    device: str | os.PathLike[str] | Description | None = None,
    bytes_in: Literal["file", "memory", "nowhere"] | None = None,
    trace: str | os.PathLike[str] | None = None,
    capacity: int | None = None,
    preset: str | None = None,
    geometry: Mapping[str, int] | None = None,
    placement: str | None = None,
    gc_policy: str | None = None,
    verify: Literal["once", "always", "never"] = "once",
    io: Literal["map", "read"] = "map",
    threads: int | None = None,
    write_buffer: int | None = None,
    seed: int = 0,
    salvage: bool = False,
    overwrite: bool = False,
    storage: Any = None,
    cache: str | os.PathLike[str] | Literal[False] | None = None,
    cache_bytes: int | None = None,
) -> Store:
    """Open a store.

    Parameters
    ----------
    path : path_like
        The file; a drive, by its URL (``nvme+tcp://HOST:PORT/NQN`` or ``nvme+unix:///PATH``, see
        :func:`nandarray.serve`) or by the controller's device of this machine's kernel (``/dev/nvmeX``); or
        ``shm://NAME``, a store that ``nandarray serve STORE --shm NAME`` serves. A served store takes no option but
        ``mode``. A file of another format (HDF5, NetCDF, a Zarr folder or its ``.zip``) is read in place, with mode "r"
        and no other option. Or an object far away, by its URL (``s3://BUCKET/KEY``, ``gs://``, ``az://``,
        ``https://``): it is read only, and takes ``verify``, ``threads`` and the last three options; one of another
        format takes ``storage``; a store of parts in a bucket is written, too. Without a path, a store on a modelled
        device keeps its bytes in memory.
    mode : {"r", "r+", "a", "w", "x"}
        As in h5py: read (the default), read and write, read and write or create, truncate, create or fail.
    device : str, path_like or Description, optional
        A described device (:func:`nandarray.devices`, or a TOML file): every command is also timed and priced on it;
        see :attr:`Store.clock` and :meth:`Store.report`. Geometry, capacity and threads are the device's then.
    bytes_in : {"file", "memory", "nowhere"}, optional
        Place where a modelled device keeps its bytes: in the file (if a path is given), in memory (else; zeroes take
        none), or nowhere: then reads give zeroes, and only the times are real.
    trace : path_like, optional
        A file for a timeline of a modelled device (``.pftrace``), which Perfetto opens; complete when the store is
        closed.
    capacity : int, optional
        Bytes that a new store may take; without it, the file grows as it needs.
    preset : str, optional
        Flash geometry of a new store, by name.
    geometry : mapping, optional
        Parts of the geometry to set: ``page_bytes``, ``channels``, ``banks``, ``pages_per_block``.
    placement : str, optional
        Placement of pages: ``"nds"`` (the four rules of the NDS paper) or ``"log"``.
    gc_policy : str, optional
        Policy that chooses the block to reclaim: ``"greedy"``, ``"cost-benefit"``, ``"d-choices"``, ``"round-robin"``
        or ``"windowed-greedy"``.
    verify : {"once", "always", "never"}
        Times at which a page's checksum is verified: at its first read (the default), at every read, or not at all.
    io : {"map", "read"}
        Way of reading the file: by memory mapping, or by system calls.
    threads : int, optional
        Threads for one command, at most 1024; one for each core by default.
    write_buffer : int, optional
        Bytes of partly filled pages to gather in memory.
    seed : int
        Seed of policies that choose at random.
    salvage : bool
        Open a damaged store as far as it can be read, to repair it: records of a damaged journal are passed over, and
        what pages tell of them is applied.
    overwrite : bool
        Permission to replace a file that is not a store, with mode ``"w"``.
    storage : obstore.store.ObjectStore or fsspec.AbstractFileSystem, optional
        Access to the place of an object far away, with its credentials; the path may be the object's key in it then.
        Without it obstore reaches the URL, with the credentials of the environment.
    cache : path_like or False, optional
        Folder in which bytes from far away are kept, which no other user can change; by default
        ``$NANDARRAY_CACHE/far``, or ``nandarray/far`` in the user's cache folder. With False they are kept in memory.
    cache_bytes : int, optional
        Bytes that the folder holds at most; by default 20 GiB, or a tenth of its disk if that is less.

    Returns
    -------
    Store
        The store, also a context manager. Behind a door it is the same: arrays, views, groups, programs; what the door
        cannot do is a :class:`nandarray.DoorError`.

    Raises
    ------
    NotFoundError, MediaError
        There is no such file, or it cannot be read.
    DeniedError, ChangedError
        The credentials for an object far away are missing or wrong; the object was replaced while it was read.
    LockedError
        Another writer has it open: it names the line of this program, or the process.
    NotAStoreError, UnsupportedVersionError, CorruptError
        It is not a store, a newer one, or a damaged one. Mode ``"w"`` replaces a store, and no other file.

    Examples
    --------
    >>> import nandarray
    >>> with nandarray.open("data.nand", mode="w") as store:
    ...     store["x"] = np.arange(3)
    >>> with nandarray.open("data.nand") as store:
    ...     store["x"][:]
    array([0, 1, 2])
    """
    every: dict[str, Any] = dict(locals())
    if split_remote(path) is not None or any(value is not None for value in (storage, cache, cache_bytes)):
        return _far(**every)
    if is_served(path):
        return _served(path, mode, every)
    if path is not None and device is None and (kind := _foreign(path, mode)) is not None:
        return _in_place(kind, **every)
    if path is not None and device is None and (folder := _parted(path)) is not None:
        asked = (bytes_in, trace, capacity, preset, geometry, placement, gc_policy, write_buffer)
        if any(value is not None for value in asked) or (seed, salvage, overwrite) != (0, False, False):
            raise InvalidError(f"{folder} is a store of parts, which takes no option but mode, verify, io and threads")
        read = {"verify": verify, "io": io, "threads": _count("threads", threads)}
        return _parts(folder, mode, {key: value for key, value in read.items() if value is not None})
    for what, word in (("preset", preset), ("placement", placement), ("gc_policy", gc_policy)):
        check_word(what, word)
    if geometry is not None:
        geometry = {str(key): _count(str(key), value) or 0 for key, value in dict(geometry).items()}
    shape: dict[str, Any] = {"capacity": _count("capacity", capacity), "preset": preset, "geometry": geometry}
    shape["threads"] = _count("threads", threads)
    options: dict[str, Any] = {"verify": verify, "write_buffer": _count("write_buffer", write_buffer)}
    options["seed"] = _count("seed", seed) or 0
    policies: dict[str, Any] = {"placement": placement, "gc_policy": gc_policy}
    if mode == "w" and path is not None and not overwrite:
        _refuse_to_replace(_path(path))
    if device is not None:
        if wrong := [key for key, value in shape.items() if value is not None]:
            raise InvalidError(f"{' and '.join(wrong)} cannot be given with device: the device has its own")
        if salvage:
            raise InvalidError("salvage cannot be given with device: repair the file without one, then open it again")
        timeline = None if trace is None else _path(trace)
        return _modelled(path, mode, device, bytes_in, timeline, **policies, **options)
    if bytes_in not in (None, "file") or trace is not None:
        word = "bytes_in" if trace is None else "trace"
        raise InvalidError(f"{word} is for a modelled device: give device=, too")
    if path is None:
        raise InvalidError("a path is needed; only a store on a modelled device (device=) does without")
    return _in_file(_path(path), mode, shape, policies, {**options, "io": io, "salvage": salvage})


def _in_file(name: str, mode: Mode, shape: dict[str, Any], policies: dict[str, Any], options: dict[str, Any]) -> Store:
    """Return a store in a file of this machine."""
    if mode in _MAKES:
        refuse_homeless(Path(name))
    with holders.named(name):
        native = _nandarray.Store.open(name, mode, **shape, **policies, **options)
    if mode in ("r+", "a") and not options["salvage"]:
        _sweep(native)
    again = tuple((key, value) for key, value in (options | {"threads": shape["threads"]}).items() if value)
    store = Store(native, mode, (os.path.abspath(name), again))
    holders.opened(store)
    return store


def _parted(path: str | os.PathLike[str]) -> str | None:
    """Return the path of a folder with a store of parts in it; None for any other path."""
    name = _path(path)
    head = os.path.join(name, _PARTS)
    try:
        os.stat(head)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        if os.path.isdir(name):
            raise MediaError(error.errno, error.strerror, head) from error
        return None  # said by what opens a file
    return name


def _parts(folder: str, mode: Mode, options: dict[str, Any]) -> Store:
    """Return a store of parts."""
    from nandarray import parts

    return parts.open_folder(folder, mode, options)


def _foreign(path: str | os.PathLike[str], mode: Mode) -> str | None:
    """Return the format of a file of another one that is to be read or changed; None for any other path."""
    name = _path(path)
    if mode in ("w", "x") or not os.path.exists(name) or _is_store(name):
        return None
    if mode != "r" and os.path.isfile(name) and not os.path.getsize(name):
        return None  # an empty file becomes a store, whatever its ending
    from nandarray.interop.foreign import opening

    return opening.format_of(name)


def _in_place(kind: str, *, path: Any, mode: Mode, **others: Any) -> Store:
    """Return a file of another format as a store; ``others`` are options, none of which it takes."""
    from nandarray.interop.foreign import opening

    opening.refuse(_path(path), mode, _given(others))
    return opening.open_foreign(_path(path), kind)


def _is_store(name: str) -> bool:
    """Return whether a file begins as a store does, or cannot be read: opening it raises the error."""
    try:
        if os.path.isdir(name):
            return False
        if not os.path.isfile(name):
            return True
        with builtins.open(name, "rb") as file:
            head = file.read(_SLOTS[-1] + len(_MAGIC))
    except OSError:
        return True
    return any(head.startswith(_MAGIC, slot) for slot in _SLOTS)


def open_again(path: str, options: Mapping[str, Any]) -> Store:
    """Open an object far away as it was elsewhere, from what :attr:`Store._opening` has."""
    from nandarray.interop.foreign import opening
    from nandarray.remote import source

    given = dict(options)
    if (kind := opening.far_format(path)) is not None:
        return opening.open_far(path, kind, given["storage"], given["facts"])
    facts, where = given.pop("facts"), (given.pop("storage"), given.pop("cache"), given.pop("cache_bytes"))
    native, _ = source.open_place(source.place_of(path, where[0]), where[1:], facts=facts, **given)
    store = Store(native, "r", (path, tuple(options.items())))
    store._facts = facts
    return store


def _given(options: Mapping[str, Any]) -> list[str]:
    """Return the names of options that are not what they are by default."""
    return [name for name, value in options.items() if value not in (None, False, 0, "map", "once")]


def _far(
    *,
    path: str | os.PathLike[str] | None,
    mode: Mode,
    storage: Any,
    cache: Any,
    cache_bytes: Any,
    verify: Any,
    threads: Any,
    **local: Any,
) -> Store:
    """Return a store in an object far away; ``local`` are the options that it does not take."""
    from nandarray.interop.foreign import opening
    from nandarray.remote import source

    if path is None:
        raise InvalidError("storage must come with a path: the URL or the key of an object in it")
    if storage is None and split_remote(path) is None:
        raise InvalidError(f"cache and cache_bytes are for objects far away, and {path} is none")
    name = os.fspath(path)
    if (kind := opening.far_format(name)) is not None:
        others = {"cache": cache, "cache_bytes": cache_bytes, "verify": verify, "threads": threads}
        opening.refuse(name, mode, _given(local | others))
        return opening.open_far(name, kind, storage)
    place = source.place_of(name, storage)
    source.refuse("r", _given(local), place.url)
    options = {"verify": verify, "threads": _count("threads", threads)}
    where = (storage, cache, _count("cache_bytes", cache_bytes))
    if mode != "r":
        if (parted := _far_parts(name, mode, where, options)) is not None:
            return parted
        source.refuse(mode, [], place.url)
    try:
        native, facts = source.open_place(place, where[1:], **options)
    except StoreMissingError:
        if (parted := _far_parts(name, mode, where, options)) is None:
            raise
        return parted
    store = Store(native, mode, source.opening(name, facts, *where, **options))
    store._facts = facts
    return store


def _far_parts(name: str, mode: Mode, where: tuple[Any, Any, int | None], options: dict[str, Any]) -> Store | None:
    """Return a store of parts in a bucket; None where there is none."""
    from nandarray import parts

    given = {key: value for key, value in options.items() if value is not None}
    try:
        return parts.open_folder(name, mode, given, storage=where[0], kept=where[1:])
    except StoreMissingError:
        return None


def _served(url: str, mode: Mode, options: Mapping[str, Any]) -> Store:
    """Return a store that a server has."""
    if set(_given(options)) > {"path", "mode"}:
        raise InvalidError(f"{url} takes no option but mode: its server has opened the store")
    if mode not in ("r", "r+"):
        raise InvalidError(f"{url} is served and cannot be made: mode is 'r' or 'r+', not {mode!r}")
    return connect(url, mode=mode)


def _sweep(native: _nandarray.Store) -> None:
    """Remove the remains of killed imports: this process alone writes to the store now, and imports nothing yet."""
    with contextlib.suppress(StoreFullError):  # a store that is full can still be opened
        if left := [name for name in native.names(UNFINISHED) if is_unfinished(name)]:
            native.together(delete=left)


def _refuse_to_replace(name: str) -> None:
    """Refuse to truncate a file that is not a store."""
    try:
        if not os.path.isfile(name) or not os.path.getsize(name):
            return
    except OSError:
        return  # opening it raises the error
    if not _is_store(name):
        raise NotAStoreError(errno.EEXIST, "is not a nandarray store; overwrite=True replaces it", name)


def _count(what: str, value: Any) -> int | None:
    return None if value is None else check_number(what, value)


def _path(path: str | os.PathLike[str]) -> str:
    try:
        name = os.fsdecode(path)
    except TypeError as error:
        raise InvalidError(f"path must be a path, not {type(path).__name__}") from error
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidError(f"path {name!r} is not UTF-8") from None
    if "\0" in name:
        raise InvalidError(f"path {name!r} has a null character in it")
    refuse_unknown(name)
    return name


def _modelled(
    path: str | os.PathLike[str] | None,
    mode: Mode,
    device: str | os.PathLike[str] | Description,
    bytes_in: str | None,
    trace: str | None,
    **options: Any,
) -> Store:
    from nandarray import device as devices

    where = bytes_in or ("memory" if path is None else "file")
    if where == "file" and path is None:
        raise InvalidError("bytes_in='file' must have a path")
    if where != "file" and path is not None:
        raise InvalidError(f"bytes_in={where!r} and a path: the bytes are either in a file or not")
    if where != "file" and mode == "r":
        raise InvalidError("a device without a file is new: there is nothing to read, use mode='w'")
    described = devices.load(Path(device) if isinstance(device, os.PathLike) else device)
    text, overrides = described.texts()
    name = f"<{described.name}>" if path is None else _path(path)
    if trace is not None and os.path.exists(trace) and os.path.exists(name) and os.path.samefile(trace, name):
        raise InvalidError(f"{trace} is the store itself, so no timeline can take its place")
    how: Mode = "a" if where != "file" else mode
    if path is not None and how in _MAKES:
        refuse_homeless(Path(name))
    with holders.named(name):
        native = _nandarray.Store.open_modelled(name, how, text, overrides, bytes=where, trace=trace, **options)
    store = Store(native, mode)
    holders.opened(store)
    core = (described.resolved.get("compute") or {}).get("core")
    if core and core["input_source"] == "ping-pong":
        store._half_bytes = int(core["pingpong_bytes"]) // 2
    return store
