"""Stores and groups: where arrays are found by name.

A store is one file. Its arrays have names such as ``"run1/raw/image"``; what stands before a ``/`` is a group. A
:class:`Group` is a prefix and nothing else, so a group is there as long as an array is in it. A group that has
attributes, or that was created empty, is kept by a hidden array of no elements, ``<group>/.group``, whose attributes
are the group's; listings leave it out. A :class:`Store` is the group at the root, and the file.

Name rules: parts are separated by single ``/``; a trailing one is ignored, and a leading one starts at the root, as in
h5py. ``.``, ``..`` and ``.group`` are no parts of a name. A name is an array or a group, never both.

What is not here: moving data (:mod:`nandarray.array`), and other formats (``nandarray.import_`` and ``export``).
"""

from __future__ import annotations

import asyncio
import difflib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from nandarray import _buffers, _nandarray, dtypes, html
from nandarray._attrs import Attributes, to_json
from nandarray._grid import Grid, check_shape
from nandarray.array import Array
from nandarray.errors import ExistsError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from nandarray.clock import Clock
    from nandarray.device import Description
    from nandarray.nvme import Controller
    from nandarray.report import Report

__all__ = ["MARKER", "Group", "Store", "Tree", "make_marker", "open"]

Mode = Literal["r", "r+", "a", "w", "x"]
_T = TypeVar("_T")

#: The last part of the name of the hidden array that keeps a group.
MARKER = ".group"
_KEY_BYTES = 32
# Above this many names a spelling suggestion would cost more than the look-up.
_SUGGEST_MAX = 2000


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
) -> Store:
    """Open a store.

    Parameters
    ----------
    path : path_like
        The file. Without one, a store on a modelled device keeps its bytes in memory.
    mode : {"r", "r+", "a", "w", "x"}
        As in h5py: read (the default), read and write, read and write or create, truncate, create or fail.
    device : str, path_like or Description, optional
        A described device (:func:`nandarray.devices`, or a TOML file): every command is also timed and priced on it;
        see :attr:`Store.clock` and :meth:`Store.report`. Geometry, capacity and threads are the device's then.
    bytes_in : {"file", "memory", "nowhere"}, optional
        Where a modelled device keeps its bytes: in the file (if a path is given), in memory (else; zeroes take none),
        or nowhere: then reads give zeroes, and only the times are real.
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
        Where pages go: ``"nds"`` (the four rules of the NDS paper) or ``"log"``.
    gc_policy : str, optional
        Which block to reclaim: ``"greedy"``, ``"cost-benefit"``, ``"d-choices"`` or ``"round-robin"``.
    verify : {"once", "always", "never"}
        When to verify a page's checksum: at its first read (the default), at every read, or not at all.
    io : {"map", "read"}
        How to read the file.
    threads : int, optional
        Threads for one command; one for each core by default.
    write_buffer : int, optional
        Bytes of partly filled pages to gather in memory.
    seed : int
        Seed of policies that choose at random.
    salvage : bool
        Open a damaged store as far as it can be read, to repair it: records of a damaged journal are passed over, and
        what pages tell of them is applied.

    Returns
    -------
    Store
        The store, also a context manager.

    Raises
    ------
    NotFoundError, MediaError
        There is no such file, or it cannot be read.
    LockedError
        Another writer has it open.
    NotAStoreError, UnsupportedVersionError, CorruptError
        It is not a store, a newer one, or a damaged one.

    Examples
    --------
    >>> import nandarray
    >>> with nandarray.open("data.nand", mode="w") as store:
    ...     store["x"] = np.arange(3)
    >>> with nandarray.open("data.nand") as store:
    ...     store["x"][:]
    array([0, 1, 2])
    """
    if device is not None:
        of_device: dict[str, Any] = {"capacity": capacity, "preset": preset, "geometry": geometry, "threads": threads}
        if wrong := [key for key, value in of_device.items() if value is not None]:
            raise InvalidError(f"{' and '.join(wrong)} cannot be given with device: the device has its own")
        if salvage:
            raise InvalidError("salvage cannot be given with device: repair the file without one, then open it again")
        native = _modelled(
            path,
            mode,
            device,
            bytes_in,
            None if trace is None else _path(trace),
            placement=placement,
            gc_policy=gc_policy,
            verify=verify,
            write_buffer=write_buffer,
            seed=seed,
        )
        return Store(native, mode)
    if bytes_in not in (None, "file") or trace is not None:
        raise InvalidError(
            f"{'trace' if trace is not None else 'bytes_in'} is for a modelled device: give device=, too"
        )
    if path is None:
        raise InvalidError("a path is needed; only a store on a modelled device (device=) does without")
    name = _path(path)
    native = _nandarray.Store.open(
        name,
        mode,
        capacity=capacity,
        preset=preset,
        geometry=None if geometry is None else dict(geometry),
        placement=placement,
        gc_policy=gc_policy,
        verify=verify,
        io=io,
        threads=threads,
        write_buffer=write_buffer,
        seed=seed,
        salvage=salvage,
    )
    return Store(native, mode)


def _path(path: str | os.PathLike[str]) -> str:
    try:
        return os.fsdecode(path)
    except TypeError as error:
        raise InvalidError(f"path must be a path, not {type(path).__name__}") from error


def _modelled(
    path: str | os.PathLike[str] | None,
    mode: Mode,
    device: str | os.PathLike[str] | Description,
    bytes_in: str | None,
    trace: str | None,
    **options: Any,
) -> _nandarray.Store:
    from nandarray import device as devices

    where = bytes_in or ("memory" if path is None else "file")
    if where == "file" and path is None:
        raise InvalidError("bytes_in='file' needs a path")
    if where != "file" and path is not None:
        raise InvalidError(f"bytes_in={where!r} and a path: the bytes are either in a file or not")
    if where != "file" and mode == "r":
        raise InvalidError("a device without a file is new: there is nothing to read, use mode='w'")
    described = devices.load(Path(device) if isinstance(device, os.PathLike) else device)
    text, overrides = described.texts()
    name = f"<{described.name}>" if path is None else _path(path)
    mode = "a" if where != "file" else mode
    return _nandarray.Store.open_modelled(name, mode, text, overrides, bytes=where, trace=trace, **options)


class Group:
    """Arrays and groups by name, below one prefix. What ``store["group"]`` gives.

    A group is a mapping: ``group[name]`` opens an array or a group, assigning creates an array, ``del`` removes,
    iteration gives the names of what is directly inside.

    Parameters
    ----------
    store : Store
        The store.
    path : str
        The group's full name; empty at the root.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["run1/raw"] = np.zeros((2, 3), "u1")
    >>> store["run1"].attrs["by"] = "me"
    >>> list(store), list(store["run1"]), "run1/raw" in store
    (['run1'], ['raw'], True)
    >>> print(store.tree())
    /
    └── run1/
        └── raw  uint8 (2, 3)
    """

    def __init__(self, store: Store | None, path: str) -> None:
        self._root = store  # None in the store itself: a cycle would keep its file locked until the next collection
        self._path = path

    @property
    def store(self) -> Store:
        """The store."""
        assert self._root is not None
        return self._root

    @property
    def name(self) -> str:
        """The full name; ``"/"`` at the root."""
        return self._path or "/"

    @property
    def attrs(self) -> Attributes:
        """The attributes, a mutable mapping of JSON values that writes through."""
        return Attributes(self._load_attrs, self._save_attrs, self.store._lock)

    # --- Finding -----------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        return self._find(name, None)

    def get(self, name: str, default: Any = None, *, encryption_key: bytes | bytearray | None = None) -> Any:
        """Open an array or a group, or give a default where there is none.

        Parameters
        ----------
        name : str
            The name, relative to this group.
        default : object
            What to give if there is no such name.
        encryption_key : bytes, optional
            The key of an encrypted array.

        Returns
        -------
        Array, Group or object
            What has this name.
        """
        return self._find(name, encryption_key) if name in self else default

    def open_array(self, name: str, *, encryption_key: bytes | bytearray | None = None) -> Array:
        """Open an array.

        Parameters
        ----------
        name : str
            The name, relative to this group.
        encryption_key : bytes, optional
            The key of an encrypted array: 32 bytes.

        Returns
        -------
        Array
            The array.

        Raises
        ------
        NotFoundError
            There is no such name.
        ExistsError
            The name is a group.
        WrongKeyError
            The array is encrypted, with another key.
        """
        found = self._find(name, encryption_key)
        if not isinstance(found, Array):
            raise ExistsError(f"{found.name!r} is a group, not an array")
        return found

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        path = self._join(name)
        return path in self._native or self.store._is_group(path)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __bool__(self) -> bool:
        return True  # an empty group is still a group; len() counts

    def keys(self) -> list[str]:
        """Give the names of what is directly inside, sorted.

        Returns
        -------
        list of str
            Names of arrays and groups.
        """
        return sorted({name.partition("/")[0] for name in self._below()} - {MARKER})

    def values(self) -> Iterator[Any]:
        """Open everything that is directly inside.

        Yields
        ------
        Array or Group
            One after the other, in the order of their names.
        """
        return (self[name] for name in self.keys())

    def items(self) -> Iterator[tuple[str, Any]]:
        """Open everything that is directly inside.

        Yields
        ------
        tuple of str and Array or Group
            Name and array or group.
        """
        return ((name, self[name]) for name in self.keys())

    def array_names(self) -> list[str]:
        """Give the names of all arrays below this group, at any depth.

        Returns
        -------
        list of str
            Names relative to this group, sorted.
        """
        return [name for name in self._below() if name.rpartition("/")[2] != MARKER]

    def tree(self) -> Tree:
        """Give an overview to print.

        Returns
        -------
        Tree
            Groups and arrays with their dtypes and shapes, as text or HTML.
        """
        return Tree(self)

    # --- Creating and removing ---------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        shape: int | Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        *,
        data: ArrayLike | None = None,
        building_block: int | Sequence[int] | None = None,
        compression: str | None = None,
        encryption_key: bytes | bytearray | None = None,
        fill_value: Any = 0,
        attrs: Mapping[str, Any] | None = None,
    ) -> Array:
        """Create an array.

        Parameters
        ----------
        name : str
            The name, relative to this group; groups on the way need not exist.
        shape : int or sequence of int, optional
            Up to 32 lengths of up to 2**64; elements never written take no space. By default the shape of ``data``.
        dtype : dtype_like, optional
            Any fixed-size NumPy dtype. By default that of ``data``, else float64.
        data : array_like, optional
            Elements to write at once, which broadcast to ``shape``.
        building_block : int or sequence of int, optional
            Shape of the unit of storage; by default the engine derives it from the flash geometry.
        compression : str, optional
            ``"lz4"``, ``"zstd"`` or with a level ``"zstd:7"``; ``"+shuffle"`` or ``"+bitshuffle"`` may follow.
        encryption_key : bytes, optional
            32 bytes; the same key is needed to open the array.
        fill_value : scalar
            What elements read as that were never written. The integer 0 stands for zero bytes under every dtype: an
            empty string, 1970, False.
        attrs : mapping, optional
            First attributes.

        Returns
        -------
        Array
            The new array.

        Raises
        ------
        ExistsError
            The name is taken, or one of its groups is an array.
        InvalidError
            An argument has a wrong value.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> a = store.create("a", (2**40, 2**40), "f4", fill_value=np.nan)
        >>> a[2**39, :3]
        array([nan, nan, nan], dtype=float32)
        >>> store.create("b", data=[1, 2, 3]).shape
        (3,)
        """
        path = self._join(name)
        data, element, lengths = _settle(path, data, shape, dtype)
        with self.store._lock:
            self.store._check_free(path)
            space = self._native.create(
                path,
                lengths,
                element.itemsize,
                dtypes.encode(element),
                building_block=None if building_block is None else check_shape(building_block, what="building_block"),
                compression=compression,
                encryption_key=_check_key(encryption_key),
                fill=_fill_bytes(fill_value, element),
                attrs=to_json(attrs or {}),
            )
        array = Array(self.store, space)
        if data is not None:
            try:
                _write_all(array, data)
            except BaseException:
                self._native.delete(path)
                raise
        return array

    def __setitem__(self, name: str, data: ArrayLike) -> None:
        path = self._join(name)
        if path in self._native:
            raise ExistsError(f"array {path!r} exists; assign to store[{path!r}][...], or delete it first")
        self.create(name, data=data)

    def create_group(self, name: str, *, attrs: Mapping[str, Any] | None = None) -> Group:
        """Create a group, which stays even while it is empty.

        Parameters
        ----------
        name : str
            The name, relative to this group.
        attrs : mapping, optional
            First attributes.

        Returns
        -------
        Group
            The new group.
        """
        path = self._join(name)
        with self.store._lock:
            self.store._check_free(path)
            group = Group(self.store, path)
            group._save_attrs(to_json(attrs or {}))
        return group

    def require_group(self, name: str) -> Group:
        """Open a group, or create it.

        Parameters
        ----------
        name : str
            The name, relative to this group.

        Returns
        -------
        Group
            The group.
        """
        path = self._join(name)
        with self.store._lock:
            if path and not self.store._is_group(path):
                return self.create_group(name)
        return self.store if not path else Group(self.store, path)

    def __delitem__(self, name: str) -> None:
        path = self._join(name)
        if not path:
            raise InvalidError("the root group cannot be deleted")
        with self.store._lock:
            if path in self._native:
                self._native.delete(path)
                return
            inside = self._native.names(path + "/")
            if not inside:
                raise self._not_found(path)
            self._native.together(delete=inside)

    def rename(self, old: str, new: str) -> None:
        """Rename an array, or a group with all that is in it, by one command.

        Parameters
        ----------
        old : str
            The present name, relative to this group.
        new : str
            The new name, relative to this group.
        """
        source, target = self._join(old), self._join(new)
        with self.store._lock:
            inside = [source] if source in self._native else self._native.names(source + "/")
            if not inside or not source:
                raise self._not_found(source)
            if target == source:
                return
            if target.startswith(source + "/"):
                raise InvalidError(f"{source!r} cannot move into itself, to {target!r}")
            self.store._check_free(target)
            self._native.together(rename=[(one, target + one[len(source) :]) for one in inside])

    # --- For people --------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        if self.store.closed:
            return f"<nandarray.Group {self.name!r} (closed)>"
        return f"<nandarray.Group {self.name!r} in {self.store.path!r}, {len(self)} inside>"

    def _repr_html_(self) -> str:
        return repr(self) if self.store.closed else self.tree()._repr_html_()

    def _ipython_key_completions_(self) -> list[str]:
        return self.keys()

    # --- Towards the engine ------------------------------------------------------------------------------------------

    @property
    def _native(self) -> _nandarray.Store:
        return self.store._engine

    @property
    def _prefix(self) -> str:
        return self._path + "/" if self._path else ""

    def _below(self) -> list[str]:
        """Names of all arrays below, hidden ones too, relative to this group."""
        return [name[len(self._prefix) :] for name in self._native.names(self._prefix)]

    def _join(self, name: str) -> str:
        """Make a full name of one that is relative to this group, or refuse it."""
        if not isinstance(name, str):
            raise InvalidError(f"names are str, not {type(name).__name__}: {name!r}")
        relative = name.strip("/")
        if not relative:
            return "" if name.startswith("/") else self._path
        parts = relative.split("/")
        for part in parts:
            if part in ("", ".", "..", MARKER) or "\0" in part:
                raise InvalidError(f"{name!r} is not a name: {part!r} cannot be a part of one")
        # As in h5py, a leading "/" starts at the root.
        return relative if name.startswith("/") else self._prefix + relative

    def _find(self, name: str, encryption_key: bytes | bytearray | None) -> Array | Group:
        path = self._join(name)
        if not path:
            return self.store
        if path in self._native:
            return Array(self.store, self._native.open_space(path, encryption_key=_check_key(encryption_key)))
        if self.store._is_group(path):
            return Group(self.store, path)
        raise self._not_found(path)

    def _not_found(self, path: str) -> NotFoundError:
        message = f"no array or group named {path!r} in {self.store.path!r}"
        names = self._native.names()
        if len(names) <= _SUGGEST_MAX:
            near = difflib.get_close_matches(path, [n for n in names if not n.endswith(MARKER)], n=1)
            message += f"; did you mean {near[0]!r}?" if near else ""
        return NotFoundError(message)

    def _load_attrs(self) -> str:
        marker = self._prefix + MARKER
        return self._native.open_space(marker).attrs if marker in self._native else "{}"

    def _save_attrs(self, text: str) -> None:
        marker = self._prefix + MARKER
        if marker in self._native:
            self._native.open_space(marker).set_attrs(text)
        else:
            make_marker(self._native, marker, text)


class Store(Group):
    """One file of arrays: the root group, and what concerns the file. What :func:`nandarray.open` gives.

    A store may be used from many threads. :meth:`flush` and :meth:`close` make everything written so far durable; what
    was not flushed may be lost when the process is killed, but never half of a write.

    Parameters
    ----------
    engine : object
        The native store.
    mode : str
        The mode that it was opened with.
    """

    def __init__(self, engine: _nandarray.Store, mode: Mode) -> None:
        self._engine = engine
        self._mode = mode
        self._lock = threading.RLock()
        self._threads: ThreadPoolExecutor | None = None
        super().__init__(None, "")

    @property
    def store(self) -> Store:
        """The store itself."""
        return self

    @property
    def path(self) -> str:
        """The file."""
        return self._engine.path

    @property
    def mode(self) -> Mode:
        """The mode that the store was opened with."""
        return self._mode

    @property
    def read_only(self) -> bool:
        """Whether the store refuses to be changed."""
        return self._engine.read_only

    @property
    def closed(self) -> bool:
        """Whether the store is closed."""
        return self._engine.closed

    @property
    def clock(self) -> Clock:
        """The modelled clock of a store that was opened with ``device=``.

        Raises
        ------
        InvalidError
            The store has none: it runs under the wall clock.
        """
        from nandarray.clock import Clock

        engine = self._engine.clock
        if engine is None:
            raise InvalidError("the store has no modelled clock; open it with device=, for example 'samsung-970-pro'")
        return Clock(engine)

    def report(self) -> Report:
        """Tell what the commands since opening took on the modelled device.

        Returns
        -------
        nandarray.Report
            Time, throughput, latency percentiles, energy by part, write amplification, utilisation, wear.

        Raises
        ------
        InvalidError
            The store was opened without ``device=``.
        """
        return self.clock.report()

    def nvme(self) -> Controller:
        """Give an NVMe controller on this store: typed commands, namespaces, N-D commands.

        Returns
        -------
        nandarray.nvme.Controller
            A new controller, with no views open.
        """
        from nandarray.nvme import Controller

        return Controller(self)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Flush and release the file; asynchronous commands in flight finish first. Closing twice is fine."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=True)
        self._engine.close()

    def flush(self) -> None:
        """Make everything written so far durable."""
        self._engine.flush()

    def refresh(self) -> None:
        """See what the writer has committed since this read-only store was opened or refreshed."""
        self._engine.refresh()

    def stat(self) -> dict[str, Any]:
        """Tell where the space goes: by array, live and dead pages, write amplification, wear.

        Returns
        -------
        dict
            Counters of the store; ``write_amplification``, pages written for every page's worth given to write since
            the store was opened (``nan`` before the first write); and ``arrays``, the space of each array by name.
        """
        numbers: dict[str, Any] = dict(self._engine.stat())
        numbers["array_count"] = numbers.pop("arrays")
        written = numbers["bytes_written"]
        pages = numbers["pages_appended"] + numbers["pages_moved"]
        numbers["write_amplification"] = pages * numbers["page_bytes"] / written if written else float("nan")
        numbers["arrays"] = self._engine.stat_arrays()
        return numbers

    def check(self, *, repair: bool = False, accept_older: bool = False) -> dict[str, Any]:
        """Verify every checksum, index entry and reverse record.

        Parameters
        ----------
        repair : bool
            Repair what the records allow.
        accept_older : bool
            With ``repair``: where the newest content of an access unit is damaged and no copy of it is left, take the
            newest intact content before it, and say so in ``repaired``. Otherwise reading it stays an error.

        Returns
        -------
        dict
            ``ok``, the ``errors`` found, what was ``repaired``, and counts.
        """
        return self._engine.check(repair=repair, accept_older=accept_older)

    def compact(self) -> dict[str, Any]:
        """Reclaim every dead page and shorten the file.

        Returns
        -------
        dict
            What was won.
        """
        return self._engine.compact()

    def geometry(self) -> dict[str, Any]:
        """Tell the flash geometry that the store was made with.

        Returns
        -------
        dict
            Page size, channels, banks, pages of a block.
        """
        return self._engine.geometry()

    def __repr__(self) -> str:
        if self.closed:
            return f"<nandarray.Store {self.path!r} (closed)>"
        return f"<nandarray.Store {self.path!r} mode={self._mode!r}, {len(self)} inside>"

    def _is_group(self, path: str) -> bool:
        return not path or bool(self._engine.names(path + "/"))

    def _check_free(self, path: str) -> None:
        """Refuse a name that is taken, or that lies below an array."""
        if path in self._engine:
            raise ExistsError(f"an array named {path!r} exists in {self.path!r}")
        if self._is_group(path):
            raise ExistsError(f"a group named {path or '/'!r} exists in {self.path!r}")
        above = path.rpartition("/")[0]
        while above:
            if above in self._engine:
                raise ExistsError(f"{above!r} is an array, so {path!r} cannot lie in it")
            above = above.rpartition("/")[0]

    async def _in_thread(self, function: Callable[..., _T], *args: Any) -> _T:
        """Run a blocking command in a thread of this store's own pool."""
        with self._lock:
            if self._threads is None:
                count = min(64, 4 * (os.cpu_count() or 1) + 4)
                self._threads = ThreadPoolExecutor(count, thread_name_prefix="nandarray")
            pool = self._threads
        return await asyncio.get_running_loop().run_in_executor(pool, partial(function, *args))


class Tree:
    """An overview of a group: print it, or let a notebook show it.

    Parameters
    ----------
    group : Group
        The group.
    """

    def __init__(self, group: Group) -> None:
        self._group = group

    def __str__(self) -> str:
        lines = [self._group.name]
        _draw(html.nest(self._group), "", lines)
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html.tree_html(self._group)


def _draw(branch: Mapping[str, Any], indent: str, lines: list[str]) -> None:
    for i, (name, inside) in enumerate(branch.items()):
        last = i == len(branch) - 1
        label = f"{name}/" if isinstance(inside, dict) else f"{name}  {inside}"
        lines.append(indent + ("└── " if last else "├── ") + label)
        if isinstance(inside, dict):
            _draw(inside, indent + ("    " if last else "│   "), lines)


def make_marker(engine: _nandarray.Store, name: str, attrs: str) -> None:
    """Make the hidden array that keeps a group, under any name.

    Parameters
    ----------
    engine : object
        The native store.
    name : str
        The full name.
    attrs : str
        The group's attributes as JSON.
    """
    engine.create(name, (0,), 1, "|u1", building_block=(1,), attrs=attrs)


def _settle(
    name: str, data: Any, shape: int | Sequence[int] | None, dtype: DTypeLike | None
) -> tuple[Any, np.dtype[Any], tuple[int, ...]]:
    """Settle on data, dtype and shape of a new array, each of which may follow from the others."""
    element = None if dtype is None else dtypes.check(dtype)
    if data is not None and not isinstance(data, Grid):
        try:
            data = np.asarray(data) if element is None else _buffers.as_source(data, element.base)
        except (TypeError, ValueError) as error:
            raise InvalidError(f"array {name!r} cannot be made of {type(data).__name__}: {error}") from error
    if element is None:
        element = dtypes.check(None if data is None else data.dtype)
    if shape is None and data is None:
        raise InvalidError(f"array {name!r} needs a shape or data")
    lengths = data.shape if shape is None else check_shape(shape)
    if element.subdtype is not None:  # as NumPy does: the subarray's dimensions become the array's
        lengths = lengths if shape is None else (*lengths, *element.shape)
    return data, element.base, check_shape(lengths)


def _check_key(key: bytes | bytearray | None) -> bytes | None:
    if key is None:
        return None
    if not isinstance(key, (bytes, bytearray, memoryview)):
        raise InvalidError(f"encryption_key must be {_KEY_BYTES} bytes, not {type(key).__name__}")
    if len(bytes(key)) != _KEY_BYTES:
        raise InvalidError(f"encryption_key has {len(bytes(key))} bytes, it must have {_KEY_BYTES}")
    return bytes(key)


def _fill_bytes(value: Any, dtype: np.dtype[Any]) -> bytes | None:
    # The integer 0 is the default of every dtype; as a string it would be "0", as a structure it would not fit.
    if value is None or (isinstance(value, int) and value == 0):
        return None
    element = _buffers.as_source(value, dtype)
    if element.shape != ():
        raise InvalidError(f"fill_value has shape {element.shape}, it must be one element of {dtype}")
    return element.tobytes()


def _write_all(array: Array, data: Any) -> None:
    """Fill a new array; what is itself stored is copied in bounded memory."""
    if isinstance(data, Grid) and data.shape == array.shape and data.ndim and data.size:
        row = 0
        for band in data._bands():
            array[row : row + len(band)] = band
            row += len(band)
    else:
        array[...] = data
