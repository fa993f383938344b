"""xarray reads stores (``engine="nandarray"``); :mod:`.write` is for the other direction.

A group of a store is a Dataset: its arrays are the variables, an array's ``_ARRAY_DIMENSIONS`` attribute names its
dimensions, the group's attributes are the Dataset's. Data is stored the way CF writes it (times as numbers with
``units``, packed values with ``scale_factor``), and xarray's own coders do both directions, so every ``decode_*``
option of ``open_dataset`` works. An array without dimension names gets ``<name>_dim_<n>``.

Reading is lazy. A dataset opened by path can be pickled and copied into other processes, which open the file again;
xarray's file manager keeps and closes the files. A store that the caller opened stays the caller's to close.

It does not write into variables that were opened lazily.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from nandarray.optional import needs

with needs("xarray", "xarray"):
    from xarray import Dataset, DataTree, Variable
    from xarray.backends import AbstractDataStore, BackendArray, BackendEntrypoint, CachingFileManager
    from xarray.backends.file_manager import FileManager
    from xarray.backends.store import StoreBackendEntrypoint
    from xarray.core import indexing

from nandarray.array.array import Array
from nandarray.array.attributes import DIMENSIONS
from nandarray.array.group import Group
from nandarray.array.lazy import Field
from nandarray.array.listing import groups_below, open_array, ragged_kind
from nandarray.array.opening import open as open_store
from nandarray.array.parts import Part
from nandarray.array.pickling import Opening, location, reopen_store, whereabouts
from nandarray.array.ragged import Ragged
from nandarray.array.store import Store
from nandarray.array.view import View
from nandarray.errors import InvalidError, NotFoundError
from nandarray.index.shapes import aligned_chunks
from nandarray.interop.convert.attributes import decode, dimension_names
from nandarray.interop.dask import CHUNK_BYTES
from nandarray.interop.xarray import naming

if TYPE_CHECKING:
    from xarray import DataArray


__all__ = ["NandarrayBackendEntrypoint", "to_xarray"]


class _OpenStore(FileManager["Store"]):
    """A store that the caller opened: never closed here, and opened again by path in another process."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def acquire(self, needs_lock: bool = True) -> Store:  # noqa: FBT001, FBT002 (xarray's signature)
        return self._store

    @contextlib.contextmanager
    def acquire_context(self, needs_lock: bool = True) -> Iterator[Store]:  # noqa: FBT001, FBT002 (xarray's signature)
        yield self._store

    def close(self, needs_lock: bool = True) -> None:  # noqa: FBT001, FBT002 (xarray's signature)
        """Leave it open."""

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._store.read_only:
            self._store.flush()  # another process sees what has been flushed
        if self._store._facts is not None or self._store._snapshot is not None:
            return _reopened, (whereabouts(self._store),)  # with the access, or the snapshot, that it was opened with
        return _manager, (location(self._store),)


def _reopened(opening: Opening) -> _OpenStore:
    return _OpenStore(reopen_store(opening))


def _manager(path: str) -> CachingFileManager[Any]:
    return CachingFileManager(open_store, path, mode="r", lock=False)


class _LazyArray(BackendArray):
    """One array as xarray's lazy indexing wants it: found by name on every read, so that it survives pickling."""

    def __init__(self, manager: Any, name: str, key: bytes | None, array: Array) -> None:
        self._manager, self._name, self._key = manager, name, key
        self.shape, self.dtype = array.shape, array.dtype

    def __reduce__(self) -> tuple[Any, ...]:
        array = self._array()
        if array.encrypted:
            raise TypeError(f"{array.name!r} is encrypted, and its key stays in this process: open the dataset there")
        return _open_lazy, (self._manager, self._name)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        support = indexing.IndexingSupport.VECTORIZED
        method = self._vectorized if isinstance(key, indexing.VectorizedIndexer) else self._outer
        return indexing.explicit_indexing_adapter(key, self.shape, support, method)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        return await self._manager.acquire()._in_thread(self.__getitem__, key)

    def _array(self) -> Array:
        return open_array(self._manager.acquire(), self._name, self._key)

    def _outer(self, key: tuple[Any, ...]) -> Any:
        return self._array().oindex[key]

    def _vectorized(self, key: tuple[Any, ...]) -> Any:
        return self._array().vindex[key]


def _open_lazy(manager: Any, name: str) -> _LazyArray:
    return _LazyArray(manager, name, None, open_array(manager.acquire(), name, None))


class _GroupStore(AbstractDataStore):
    """One group of a store, as xarray's coders read it."""

    __slots__ = ("_group", "_key", "_manager")

    def __init__(self, manager: Any, group: str, key: bytes | None) -> None:
        self._manager, self._group, self._key = manager, group.strip("/"), key
        store = manager.acquire()
        if self._group and self._group not in store:
            raise NotFoundError(f"{store.path} has no group {self._group!r}")
        if self._group in store._engine:
            raise InvalidError(f"{self._group!r} is an array, not a group")

    def get_child_store(self, group: str) -> _GroupStore:
        return _GroupStore(self._manager, f"{self._group}/{group}", self._key)

    @property
    def path(self) -> str:
        return str(self._manager.acquire().path)

    def get_variables(self) -> dict[str, Variable]:
        store = self._manager.acquire()
        prefix = f"{self._group}/" if self._group else ""
        found = {}
        for base in _at(store, self._group):
            if prefix + base in store._engine:
                found[base] = self._variable(prefix + base, base, open_array(store, prefix + base, self._key))
        return found

    def _variable(self, name: str, base: str, array: Array) -> Variable:
        stored = dict(array.attrs)
        dims = dimension_names(stored, array.ndim) or tuple(f"{base}_dim_{n}" for n in range(array.ndim))
        attrs = decode(stored, drop=(DIMENSIONS,))
        if isinstance(fill := attrs.get("_FillValue"), int | float) and array.dtype.kind in "iuf":
            attrs["_FillValue"] = array.dtype.type(fill)
        merged = aligned_chunks(array.shape, array.chunks, array.dtype.itemsize, limit=CHUNK_BYTES)
        encoding = {
            "preferred_chunks": dict(zip(dims, merged, strict=True)),
            "building_block": tuple(array.building_block),
            "compression": array.compression,
        }
        data = indexing.LazilyIndexedArray(_LazyArray(self._manager, name, self._key, array))
        return Variable(dims, data, attrs, encoding)

    def get_attrs(self) -> dict[str, Any]:
        return decode(dict(_at(self._manager.acquire(), self._group).attrs))

    def get_dimensions(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for variable in self.get_variables().values():
            sizes.update(zip(map(str, variable.dims), variable.shape, strict=True))
        return sizes

    def get_encoding(self) -> dict[str, Any]:
        return {"source": location(self._manager.acquire())}

    def close(self) -> None:
        self._manager.close()


class NandarrayBackendEntrypoint(BackendEntrypoint):
    """The engine ``"nandarray"`` of ``xarray.open_dataset``, ``open_groups`` and ``open_datatree``.

    Beyond xarray's own options it takes ``group`` (a path inside the store) and ``encryption_key`` (32 bytes).
    """

    # Said here too, as xarray only finds it out by itself for an engine that is given by name.
    open_dataset_parameters = (
        "filename_or_obj",
        "mask_and_scale",
        "decode_times",
        "concat_characters",
        "decode_coords",
        "drop_variables",
        "use_cftime",
        "decode_timedelta",
        "group",
        "encryption_key",
    )
    description = "Open nandarray stores (.nand) in Xarray"
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return whether this looks like a store: a path that ends in ``.nand``, or an open store."""
        if isinstance(filename_or_obj, str | os.PathLike):
            return os.path.splitext(os.fsdecode(filename_or_obj))[1] == ".nand"
        return isinstance(filename_or_obj, Store)

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        encryption_key: bytes | None = None,
    ) -> Dataset:
        """Open one group of a store as a lazy Dataset."""
        group_store = _GroupStore(_manager_of(filename_or_obj), group or "", encryption_key)
        options = {
            "mask_and_scale": mask_and_scale,
            "decode_times": decode_times,
            "concat_characters": concat_characters,
            "use_cftime": use_cftime,
            "decode_timedelta": decode_timedelta,
        }
        with naming.decoding(group_store.get_variables, f"{group_store.path}, group {group or '/'!r}", options):
            return StoreBackendEntrypoint().open_dataset(
                group_store, decode_coords=decode_coords, drop_variables=drop_variables, **options
            )

    def open_groups_as_dict(
        self, filename_or_obj: Any, *, group: str | None = None, **options: Any
    ) -> dict[str, Dataset]:
        """Open a group and all below it, by path."""
        manager = _manager_of(filename_or_obj)
        top = (group or "").strip("/")
        store = manager.acquire()
        found = {}
        for below in ["", *groups_below(_at(store, top))]:
            found[f"/{below}"] = self.open_dataset(filename_or_obj, group=f"{top}/{below}", **options)
        if isinstance(manager, CachingFileManager):
            manager.close()
        return found

    def open_datatree(self, filename_or_obj: Any, *, group: str | None = None, **options: Any) -> DataTree:
        """Open a group and all below it as a DataTree."""
        datasets = self.open_groups_as_dict(filename_or_obj, group=group, **options)
        tree = DataTree.from_dict(datasets)
        for path, dataset in datasets.items():
            tree[path].set_close(dataset._close)
        return tree


class _LazyPart(BackendArray):
    """A view or a field as xarray's lazy indexing wants it."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self.shape, self.dtype = part.shape, part.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        support = indexing.IndexingSupport.OUTER if self._part.inner else indexing.IndexingSupport.VECTORIZED
        method = self._part.points if isinstance(key, indexing.VectorizedIndexer) else self._part.outer
        return indexing.explicit_indexing_adapter(key, self.shape, support, method)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        return await self._part.store._in_thread(self.__getitem__, key)


class _PartStore(_GroupStore):
    """A view or a field as xarray's coders read it; a field with the rest of its group, for its coordinates."""

    __slots__ = ("_base", "_part")

    def __init__(self, part: Part) -> None:
        group, _, self._base = part.name.rpartition("/")
        super().__init__(_OpenStore(part.store), group, None)
        self._part = part

    def get_variables(self) -> dict[str, Variable]:
        part, base = self._part, self._base
        dims = dimension_names(part.attrs, part.ndim) or tuple(f"{base}_dim_{n}" for n in range(part.ndim))
        found: dict[str, Variable] = {}
        if isinstance(part.of, Field):
            found = super().get_variables()
            # The names of the array's own dimensions stay, whatever a field has behind them.
            dims = (*map(str, found[base].dims), *(f"{part.of.name}_dim_{n}" for n in range(len(part.inner))))
        attrs = decode(part.attrs, drop=(DIMENSIONS,))
        if isinstance(fill := attrs.get("_FillValue"), int | float) and part.dtype.kind in "iuf":
            attrs["_FillValue"] = part.dtype.type(fill)
        encoding = {"preferred_chunks": dict(zip(dims, part.merged(CHUNK_BYTES), strict=True))}
        data = indexing.LazilyIndexedArray(_LazyPart(part))
        return found | {base: Variable(dims, data, attrs, encoding)}


def to_xarray(source: Array | View | Field | Group | Store, **options: Any) -> Dataset | DataArray:
    """Return a lazy xarray view of something in an open store.

    Parameters
    ----------
    source : Array, View, Field, Group or Store
        A store or a group (gives a Dataset); an array or a field of its records (gives a DataArray with the coordinates
        of its group); or a view (gives a DataArray without).
    **options
        Passed on to ``xarray.open_dataset``: ``decode_times``, ``chunks``, ...

    Returns
    -------
    xarray.Dataset or xarray.DataArray
        Lazy; the store must stay open.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["a"] = np.arange(6).reshape(2, 3)
    >>> nandarray.to_xarray(store["a"]).dims
    ('a_dim_0', 'a_dim_1')
    """
    import xarray

    if isinstance(source, View | Field):
        part = Part(source)
        found = xarray.open_dataset(_PartStore(part), **options)[part.name.rpartition("/")[2]]
        return found.rename(source.name) if isinstance(source, Field) and isinstance(source.name, str) else found
    options = {"engine": "nandarray" if _registered() else NandarrayBackendEntrypoint, **options}
    if isinstance(source, Array):
        group, _, base = source.name.rpartition("/")
        return xarray.open_dataset(source.store, group=group, **options)[base]  # type: ignore[arg-type]
    if isinstance(source, Ragged):
        raise InvalidError(f"to_xarray takes no ragged array, {source.name!r}: xarray.DataArray(array[:]) has its rows")
    if not isinstance(source, Group):
        raise InvalidError(f"to_xarray must be given a store, a group or an array, not {type(source).__name__}")
    if isinstance(source, Store):
        return xarray.open_dataset(source, **options)  # type: ignore[arg-type]
    return xarray.open_dataset(source.store, group=source.name, **options)  # type: ignore[arg-type]


def _manager_of(filename_or_obj: Any) -> Any:
    if isinstance(filename_or_obj, Store):
        return _OpenStore(filename_or_obj)
    path = os.fspath(filename_or_obj)
    # xarray takes the URL of a drive for a path, and makes it absolute.
    url = re.search(r"(?:^|/)(nvme\+tcp):/+(.*)", path) if isinstance(path, str) else None
    if url:
        return _manager(f"{url[1]}://{url[2]}")
    return _manager(path if "://" in path else os.path.abspath(path))


def _registered() -> bool:
    from importlib.metadata import entry_points

    return bool(entry_points(group="xarray.backends", name="nandarray"))


def _at(store: Store, name: str) -> Any:
    if not name:
        return store
    path = name.strip("/")  # a ragged array is the group of its parts, which needs no key
    return Group(store, path) if ragged_kind(store, path) is not None else store[name]
