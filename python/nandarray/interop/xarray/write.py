"""xarray objects into a store: new ones, along a dimension of those that are there, or into a region of them.

One call of :func:`from_xarray` is one change, whole or absent, however many variables it has and whatever becomes of
the process. A call has three steps. It *plans*: what is new, what grows, where everything goes; dimensions, labels
and encodings that do not fit are refused here. It *writes*: new arrays under a hidden name, elements of existing
arrays into a transaction of the engine, which no reader sees. It *applies*: one command makes shapes, elements and
names visible. Behind a door there are no transactions and no hidden names: new arrays alone are written, under their
own names, and deleted if there is an error. Dask arrays are written chunk by chunk, from as many threads as the
scheduler has, wherever chunks and building blocks end: the engine composes a block of whatever parts it gets.

:mod:`.encoding` encodes values; :mod:`.backend` reads.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from xarray import DataArray, Dataset, DataTree, Variable

from nandarray import dtypes
from nandarray._nandarray import Transaction
from nandarray.array.array import Array
from nandarray.array.attribute_types import merged
from nandarray.array.attributes import DIMENSIONS, to_json
from nandarray.array.creation import check_key, fill_bytes
from nandarray.array.fork import StoreLock
from nandarray.array.names import MARKER, is_unfinished, make_marker
from nandarray.array.opening import open as open_store
from nandarray.array.pickling import has_versions
from nandarray.array.unfinished import active_lock, deleted_on_error, hidden
from nandarray.door import Source
from nandarray.errors import ExistsError, InvalidError, NotFoundError, StoreExistsError
from nandarray.index import buffers
from nandarray.index.shapes import Box, boxes, check_shape
from nandarray.interop.convert.slabs import pump, slab_shape
from nandarray.interop.dask import store_all
from nandarray.interop.xarray import naming
from nandarray.interop.xarray.backend import _at
from nandarray.interop.xarray.plan import SLAB_BYTES, How, New, Plan, There
from nandarray.parts.staging import Staging
from nandarray.parts.store import PartedStore, PartsTransaction

if TYPE_CHECKING:
    from nandarray.array.store import Store

__all__ = ["from_xarray"]

Mode = Literal["w", "w-", "x", "a", "a-", "r+"]

#: Locked from reading shapes until a transaction holds the arrays: two appends must not plan the same place.
_planning: WeakKeyDictionary[Any, StoreLock] = WeakKeyDictionary()


def from_xarray(
    dataset: Dataset | DataArray | DataTree,
    store: Store | str | os.PathLike[str],
    *,
    group: str | None = None,
    mode: Mode | None = None,
    append_dim: str | None = None,
    region: Mapping[str, slice | Literal["auto"]] | Literal["auto"] | None = None,
    encoding: Mapping[str, Mapping[str, Any]] | None = None,
    **create: Any,
) -> None:
    """Write a Dataset, DataArray or DataTree into a store: all of it or, if anything fails, nothing.

    ``xarray.open_dataset(path, engine="nandarray", group=group)`` gives it back with its dimension names, coordinates
    and attributes. Variables that are Dask arrays are written chunk by chunk. Everything appears by one command, and is
    durable when this returns; a process that is killed leaves the store as it was. In a drive, new variables alone can
    be written; others see them while they are written, and those of a killed process stay.

    Parameters
    ----------
    dataset : xarray.Dataset, xarray.DataArray or xarray.DataTree
        The dataset to write. A DataArray is written as a Dataset of one variable.
    store : Store or path_like
        A store open for writing, or a path, which is created unless the mode is "r+".
    group : str, optional
        The group to write into; the root if left out.
    mode : {"w-", "x", "w", "a", "a-", "r+"}, optional
        As ``Dataset.to_zarr`` has them. "w-" or "x" creates, and refuses names that are taken; "w" replaces the group
        with everything in it; "a" writes over variables that are there, in their shape, and creates the others; "a-"
        appends and leaves alone what has no ``append_dim``; "r+" changes values and nothing else. The default is "w-",
        with ``region`` "r+", and with ``append_dim`` "a", but that variables without that dimension are not written:
        they must be what the store has.
    append_dim : str, optional
        The dimension along which the variables that have it are appended to those in the store. Variables of the store
        that have it, too, must be among them.
    region : mapping or "auto", optional
        Slices to write along some dimensions, or "auto": where the store has the labels of the dataset.
        Coordinates that index a dimension are compared with the store and not written.
    encoding : mapping, optional
        Per new variable, xarray's encoding (``dtype``, ``scale_factor``, ``units``, ...) and ``store.create`` options
        (``building_block`` or ``chunks``, ``compression`` or ``zlib`` or ``compressor``, ...). Existing arrays keep
        their encoding, and values are encoded by it.
    **create
        The same ``store.create`` options for every new variable.

    Raises
    ------
    DoorError
        The store is behind a door, and arrays that are there would change: that needs the file.
    ExistsError
        A name is taken.
    InvalidError
        Dimensions, labels, encodings or values do not fit, or ``encoding`` says what is not obeyed.

    Examples
    --------
    >>> import nandarray, xarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> nandarray.from_xarray(xarray.Dataset({"t": ("x", [1.5, 2.5])}), store)
    >>> store["t"][:]
    array([1.5, 2.5])
    """
    how = How.of(mode, append_dim, region, encoding=encoding or {}, create=create)
    with ExitStack() as stack:
        target = _open(store, how, stack)
        if isinstance(target, PartedStore) and not isinstance(target, PartsTransaction):
            target = stack.enter_context(target.transaction("from_xarray"))
        top = target._join_new("" if group is None else group)
        if isinstance(dataset, DataTree):
            if append_dim is not None or region is not None:
                raise InvalidError("append_dim and region are for a dataset; write the tree's datasets one by one")
            parts = [(f"{top}{node.path}".strip("/"), node.to_dataset(inherit=False)) for node in dataset.subtree]
        elif isinstance(dataset, Dataset):
            parts = [(top, dataset)]
        elif not isinstance(dataset, DataArray):
            what = type(dataset).__name__
            raise InvalidError(f"from_xarray must be given a Dataset, DataArray or DataTree of xarray, not a {what}")
        else:
            parts = [(top, dataset.to_dataset(name=dataset.name or "data"))]
        for where, part in parts:
            target._join_new(where)
            for name in part.variables:
                full = f"{where}/{name}" if where else str(name)
                if not isinstance(name, str) or target._join_new(full) != full:
                    raise InvalidError(f"{name!r} cannot be the name of a variable")
        _write(parts, target, top, how)


def _open(store: Any, how: How, stack: ExitStack) -> Store:
    """Open a path; a file that is made here goes with a failure."""
    if not isinstance(store, str | os.PathLike):
        return store  # type: ignore[no-any-return]
    path = os.fspath(store)
    if how.mode != "r+" and not os.path.exists(path):
        with contextlib.suppress(StoreExistsError):  # another process was faster
            made = open_store(path, "x")
            stack.push(lambda kind, error, trace: os.unlink(path) if kind else None)
            return stack.enter_context(made)
    return stack.enter_context(open_store(path, "r+"))


# --- Writing ----------------------------------------------------------------------------------------------------------


def _write(parts: list[tuple[str, Dataset]], store: Store, top: str, how: How) -> None:
    """Plan, write and apply.

    Nothing here takes the store's lock once arrays are held: an ``append`` in another thread has that lock while it
    waits for them. That names are still free is for the engine to say.
    """
    if isinstance(store._engine, Source) and not has_versions(store):
        _write_named(parts, store, store._engine, top, how)
        return
    transaction = None
    with hidden(store) as temporary:
        try:
            plan, transaction = _planned(parts, store, how)
            made = {one.name: f"{temporary}/{number}" for number, one in enumerate(plan.new)}
            _write_new(plan.new, store, made, [])
            _write_there(plan.there, transaction)
            store.flush()
            gone = _replaced(store, top) if how.mode == "w" else []
            rename = [(made[one.name], one.name) for one in plan.new]
            for _, name in rename:
                _check_free(store, name, gone)
            new, attrs = _groups(plan.attrs, store, gone)
            for number, (marker, text) in enumerate(new):
                make_marker(store._engine, f"{temporary}/group{number}", text)
                rename.append((f"{temporary}/group{number}", marker))
            transaction.apply(delete=gone, rename=rename, attrs=attrs)
            store.flush()
        except BaseException:
            if transaction is not None:
                transaction.abort()
            raise


def _write_named(parts: list[tuple[str, Dataset]], store: Store, door: Source, top: str, how: How) -> None:
    """Write new arrays behind a door, under their own names."""
    plan = Plan()
    for where, part in parts:
        plan.add(part, store, where, how)
    if plan.there or (how.mode == "w" and _replaced(store, top)):
        door.refuse("command that changes several arrays as one: a dataset that is there needs the file")
    names = {one.name: one.name for one in plan.new}
    for name in names:
        _check_free(store, name, [])
    new, attrs = _groups(plan.attrs, store, [])
    with deleted_on_error(store) as made:
        _write_new(plan.new, store, names, made)
        for marker, text in new:
            make_marker(store._engine, marker, text)
            made.append(marker)
        if attrs:
            store._engine.together(attrs=attrs)
        store.flush()


def _planned(parts: list[tuple[str, Dataset]], store: Store, how: How) -> tuple[Plan, Transaction | Staging]:
    """Plan, and hold the arrays that are there as they were when it was planned."""
    with active_lock:
        turn = _planning.setdefault(store, StoreLock())
    with turn:
        while True:
            before = _shapes(store, parts)
            held = None
            try:
                plan = Plan()
                for where, part in parts:
                    plan.add(part, store, where, how)
                held = _held(store, [(one.array._space, one.after) for one in plan.there])
                if all(one.array.shape == one.before for one in plan.there):
                    return plan, held
                held.abort()  # the plan is stale: another append came first
            except BaseException as error:
                if held is not None:
                    held.abort()
                # Planning anew is for what another thread changed meanwhile, not for an interrupt.
                if not isinstance(error, Exception) or _shapes(store, parts) == before:
                    raise


def _held(store: Store, spaces: list[tuple[Any, Any]]) -> Transaction | Staging:
    """Hold arrays, with the shapes that they will have."""
    engine: Any = store._engine
    staged: Staging | Transaction = engine.stage(spaces) if has_versions(store) else Transaction(engine, spaces)
    return staged


def _shapes(store: Store, parts: list[tuple[str, Dataset]]) -> dict[str, Any]:
    """Return the shapes of existing arrays of the datasets."""
    engine, shapes = store._engine, {}
    for group, part in parts:
        for base in part.variables:
            name = f"{group}/{base}" if group else str(base)
            if name in engine:
                with contextlib.suppress(NotFoundError):  # deleted meanwhile
                    shapes[name] = engine.describe(name)["shape"]
    return shapes


def _write_new(new: list[New], store: Store, names: Mapping[str, str], made: list[str]) -> None:
    """Write new arrays, each under the name that ``names`` gives for its own; what is there is noted in ``made``."""
    lazy: list[tuple[Any, Any, tuple[int, ...]]] = []
    for one in new:
        options = dict(one.options)
        block = options.get("building_block")
        if block is not None and np.size(block) != one.variable.ndim:
            del options["building_block"]  # meant for the arrays of the dataset that have as many dimensions
        attrs = naming.attributes(f"variable {one.name!r}", {**one.variable.attrs, DIMENSIONS: list(one.variable.dims)})
        array = _create(store, names[one.name], one.variable, attrs, options)
        made.append(names[one.name])
        if one.variable.chunks is not None:
            lazy.append((one.variable.data, array, (0,) * array.ndim))
        else:
            _write_slabs(one.variable, array, array.chunks)
    store_all(lazy)


def _create(store: Store, name: str, variable: Variable, attrs: dict[str, Any], options: dict[str, Any]) -> Array:
    """Create an array as ``store.create`` does, under a hidden name that no user takes."""
    element = dtypes.check(variable.dtype)
    block = options.get("building_block")
    space = store._engine.create(
        name,
        check_shape(variable.shape),
        element.itemsize,
        dtypes.encode(element),
        building_block=None if block is None else check_shape(block, what="building_block"),
        compression=options.get("compression"),
        encryption_key=check_key(options.get("encryption_key")),
        fill=fill_bytes(options.get("fill_value", 0), element),
        attrs=to_json(attrs),
    )
    return Array(store, space)


def _write_there(there: list[There], transaction: Transaction | Staging) -> None:
    lazy: list[tuple[Any, Any, tuple[int, ...]]] = []
    if isinstance(transaction, Staging):
        transaction.begin()
    for one in there:
        target = _Staged(transaction, one)
        if one.variable.chunks is not None:
            # Workers write to the array itself: all of the store's transaction is seen as one.
            lazy.append((one.variable.data, one.array if has_versions(one.array.store) else target, one.start))
        else:
            _write_slabs(one.variable, target, target.chunks)
    store_all(lazy)


def _write_slabs(variable: Variable, target: Any, block: Sequence[int]) -> None:
    if isinstance(variable._data, np.ndarray):
        target[(...,)] = variable.values
        return
    # Lazy: from another file, perhaps larger than memory.
    limit = SLAB_BYTES // 2 // max(1, variable.dtype.itemsize)
    plan: Iterator[Box] = boxes(variable.shape, slab_shape(variable.shape, limit, block=block))

    def write(box: Box, data: Any) -> None:
        target[(*box, ...)] = data

    pump(plan, lambda box: variable[(*box, ...)].values, write, done=lambda box: None)


class _Staged:
    """A part of an array, as something to assign boxes to: they go into the transaction."""

    def __init__(self, transaction: Transaction | Staging, one: There) -> None:
        self._transaction, self._one = transaction, one
        self.shape, self.dtype, self.ndim = one.variable.shape, one.array.dtype, one.variable.ndim
        self.chunks = one.array.chunks
        self._token = uuid.uuid4().hex

    def __dask_tokenize__(self) -> str:
        return self._token

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a store that is being written stays in its process")

    def __setitem__(self, key: Any, values: Any) -> None:
        one = self._one
        begins = [part.start or 0 for part in key if isinstance(part, slice)] or [0] * self.ndim
        buffers.refuse_mask(values)
        data = np.ascontiguousarray(values, one.array.dtype).reshape(
            np.shape(values)
        )  # which had made one dimension of none
        if data.size:
            start = [offset + begin for offset, begin in zip(one.start, begins, strict=True)]
            self._transaction.write(one.array._space, data, start)


def _replaced(store: Store, top: str) -> list[str]:
    names = store._engine.names(f"{top}/" if top else "")
    return [name for name in names if not is_unfinished(name)]


def _check_free(store: Store, name: str, gone: Sequence[str]) -> None:
    """Refuse a name that is taken or that lies below an array, but for what goes at the same time."""
    engine, free = store._engine, set(gone)
    if name in engine and name not in free:
        raise ExistsError(f"an array named {name!r} exists in {store.path!r}")
    if set(engine.names(name + "/")) - free:
        raise ExistsError(f"a group named {name!r} exists in {store.path!r}")
    above = name
    while above := above.rpartition("/")[0]:
        if above in engine and above not in free:
            raise ExistsError(f"{above!r} is an array, so {name!r} cannot lie in it")


def _groups(
    wanted: list[tuple[str, dict[str, Any]]], store: Store, gone: Sequence[str]
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return hidden arrays that keep new groups, and those of groups that change, each with its attributes."""
    new: list[tuple[str, str]] = []
    changed: list[tuple[str, str]] = []
    for group, values in wanted:
        marker = f"{group}/{MARKER}" if group else MARKER
        if group:
            _check_free(store, marker, [*gone, marker])
            if group in store._engine and group not in gone:
                raise ExistsError(f"{group!r} is an array in {store.path!r}, so it cannot be a group")
        if marker in store._engine and marker not in gone:
            before = dict(_at(store, group).attrs)
            coordinates = [*str(before.get("coordinates", "")).split(), *str(values.get("coordinates", "")).split()]
            both = merged(before, values)
            if coordinates:
                both["coordinates"] = " ".join(dict.fromkeys(coordinates))
            if both != before:
                changed.append((marker, to_json(both)))
        elif group or values:
            new.append((marker, to_json(values)))
    return new, changed
