"""Copying arrays between a store and other formats: .npy, .npz, Zarr, HDF5, NetCDF, raw binary.

:func:`import_` and :func:`export` are the two entrances. Each opens the foreign side (:mod:`.sources`, :mod:`.sinks`)
and moves one slab after another (:mod:`.slabs`): the memory in use is the budget, whatever the size of the arrays.
Attributes keep their types (:mod:`.attributes`); dimension names travel in the attribute ``_ARRAY_DIMENSIONS``.

Whole or absent: an import writes under a temporary name, and one command at the end gives all of it its own names; an
export writes beside its destination and moves. No listing shows the temporary arrays of a killed import; they are
removed when the store is next opened for writing. Behind a door arrays have their own names from the start: an import
that fails deletes them, one whose process is killed leaves them.

It does not convert values: dtypes, byte order and packed data stay as they are, except that variable-length text gets
a fixed width where one holds it (:mod:`.ragged` has other rows), and that a format without a dtype gets its usual
encoding of it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from nandarray.array.attribute_types import merged
from nandarray.array.attributes import to_json
from nandarray.array.group import Group
from nandarray.array.listing import groups_below, open_array
from nandarray.array.names import MARKER, make_marker
from nandarray.array.opening import open as open_store
from nandarray.array.parts import Part, stored
from nandarray.array.ragged import Ragged
from nandarray.array.unfinished import deleted_on_error, hidden
from nandarray.door import Source as Door
from nandarray.dtypes import has_ml
from nandarray.errors import ExistsError, InvalidError, StoreExistsError, refuse_special
from nandarray.index.shapes import Box, box_shape, boxes, check_shape, run_shape
from nandarray.interop.convert import ragged
from nandarray.interop.convert.formats import BUDGET, FORMATS, format_by_name
from nandarray.interop.convert.limits import chunk_limit
from nandarray.interop.convert.names import exported_names
from nandarray.interop.convert.placing import placed
from nandarray.interop.convert.sinks import Sink, Spec, open_sink
from nandarray.interop.convert.slabs import pump, slab_shape, stored_slabs
from nandarray.interop.convert.sources import Member, Source, SourceOptions, foreign_errors, open_source
from nandarray.interop.foreign.reach import reach
from nandarray.parts.store import PartedStore, PartsTransaction

if TYPE_CHECKING:
    from nandarray.array.array import Array
    from nandarray.array.lazy import Field
    from nandarray.array.store import Store
    from nandarray.array.view import View

__all__ = ["FORMATS", "Progress", "export", "import_"]

#: Called as ``progress(name, bytes_done, bytes_total)`` for the array being copied.
Progress = Callable[[str, int, int], None]

#: The compression of an import that keeps the source's.
SOURCE = "source"
#: Names that a warning lists, before it counts the rest.
_LISTED = 100


def import_(
    source: str | os.PathLike[str],
    store: Store | str | os.PathLike[str],
    name: str | None = None,
    *,
    format: str | None = None,  # noqa: A002
    member: str | None = None,
    building_block: Sequence[int] | None = None,
    compression: str | None = None,
    encryption_key: bytes | None = None,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    offset: int = 0,
    order: str = "C",
    unsupported: str = "raise",
    trusted: bool = False,
    budget: int = BUDGET,
    progress: Progress | None = None,
) -> tuple[str, ...]:
    """Copy an array, or a file of arrays, into a store.

    Either everything arrives or nothing does. In a drive, others see the arrays while they are written, and those of a
    killed process stay.

    Parameters
    ----------
    source : path_like or str
        A .npy, .npz, HDF5, NetCDF or raw binary file, a Zarr directory (format 2 or 3) or an archive of one (.zip); or
        the URL of an HDF5 or NetCDF file, of a Zarr group, or of its archive, as :func:`nandarray.open` takes it.
    store : Store or path_like
        A store open for writing, or a path (opened with mode "a").
    name : str, optional
        Name of the array, or of the group that many arrays go into. Left out: the file's name for a single array,
        the root for many.
    format : str, optional
        One of "npy", "npz", "zarr", "hdf5", "netcdf", "raw"; told by the source's name if left out.
    member : str, optional
        One array or group inside the source; everything if left out.
    building_block : sequence of int, optional
        As for ``store.create``; for arrays with as many dimensions.
    compression : str, optional
        As for ``store.create``, or "source": what the source is compressed with, by the nearest method that a store
        has (deflate is Zstandard of that level). Left out: none.
    encryption_key : bytes, optional
        As for ``store.create``.
    shape : sequence of int, optional
        Shape of raw binary; one dimension to the end of the file if left out.
    dtype : dtype_like, optional
        Dtype of raw binary.
    offset : int
        Bytes before raw binary begins.
    order : {"C", "F"}
        "C" or "F", of raw binary.
    unsupported : {"raise", "skip"}
        "raise" where an array cannot be stored, or "skip" it with a warning.
    trusted : bool
        Whether the source may read other files (external links, external data and virtual datasets of HDF5, symbolic
        links in a Zarr directory), and use codecs that run code or of which nothing bounds the memory.
    budget : int
        Bytes of memory to use, about. A chunk of the source has to fit; up to 64 MiB it always does.
    progress : callable, optional
        Called with the array's name, the bytes copied and the bytes in all.

    Returns
    -------
    tuple of str
        The names of the new arrays.

    Raises
    ------
    StoreMissingError
        There is no such source.
    DoorError
        The store is behind a door that creates no arrays.
    InvalidError
        The source is damaged, needs more memory than the budget, or reads other files and is not trusted.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> np.save("x.npy", np.arange(3))
    >>> nandarray.import_("x.npy", store)
    ('x',)
    """
    if unsupported not in {"raise", "skip"}:
        raise InvalidError(f"unsupported must be 'raise' or 'skip', not {unsupported!r}")
    path = Path(source)
    told = SourceOptions(
        member=member,
        shape=None if shape is None else check_shape(shape),
        dtype=dtype,
        offset=offset,
        order=order,
        trusted=trusted,
        limit=chunk_limit(budget),
    )
    create = {"compression": compression, "encryption_key": encryption_key}
    with ExitStack() as stack:
        reached = reach(os.fsdecode(source), format, told.limit, stack)
        if reached is None:
            opened = stack.enter_context(open_source(path, format_by_name(path, format), told))
        else:
            kind, via = reached
            opened = stack.enter_context(open_source(os.fsdecode(source), kind, replace(told, via=via)))
        _refuse(opened, unsupported)
        target = _open_target(store, stack)
        if isinstance(target, PartedStore) and not isinstance(target, PartsTransaction):
            target = stack.enter_context(target.transaction("import"))
        plan = _destinations(opened, target, name, path, member)
        job = _Import(target, create, building_block, budget, progress, path=path)
        return job.run(opened, plan, _group_prefix(opened, name))


def export(
    source: Array | View | Field | Group | Ragged | Store,
    destination: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002
    compression: str = "auto",
    order: str = "C",
    overwrite: bool = False,
    encryption_key: bytes | None = None,
    budget: int = BUDGET,
    progress: Progress | None = None,
) -> None:
    """Copy an array, or a group with all it holds, into another format.

    The destination appears when it is whole.

    Parameters
    ----------
    source : Array, View, Field, Group, Ragged or Store
        An array, a view of one, a field of its records, a group, or a store. A ragged array is exported as the group
        of its parts; within a group, in the format's own type of variable length where it has one.
    destination : path_like
        The new file, or directory for Zarr.
    format : str, optional
        One of "npy", "npz", "zarr", "hdf5", "netcdf", "raw"; told by the destination's name if left out. npy and raw
        hold one array, npz holds names and no attributes.
    compression : str
        "auto", "none", or a method of the format with an optional level: "gzip:4" or "lzf" (hdf5, netcdf), "zstd:3",
        "gzip" or "blosc" (zarr), "deflate" (npz). "auto" is Zarr's own default, and gzip for HDF5 and NetCDF where
        the array is compressed in the store.
    order : {"C", "F"}
        "C" or "F", of npy and raw.
    overwrite : bool
        Replace the destination if it exists.
    encryption_key : bytes, optional
        Key of a group's encrypted arrays.
    budget : int
        Bytes of memory to use, about.
    progress : callable, optional
        Called with the array's name, the bytes copied and the bytes in all.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["a"] = np.arange(6).reshape(2, 3)
    >>> nandarray.export(store, "out.zarr")
    """
    if isinstance(source, Ragged):
        source = Group(source.store, source.name)
    path = Path(destination)
    kind = format_by_name(path, format)
    refuse_special(path)
    if path.exists() and not overwrite:
        raise StoreExistsError(17, "exists already; overwrite=True replaces it", str(path))
    groups, arrays, alone = _gather(source, encryption_key)
    names = exported_names([name for name, _ in arrays], [name for name, _ in groups])
    with (
        placed(path, source.store if isinstance(source, Group) else stored(source, "export").store) as unfinished,
        open_sink(unfinished, kind, compression=compression, order=order, alone=alone) as sink,
    ):
        if sink.single and not alone:
            raise InvalidError(f"{kind} holds one array; export a group as npz, zarr, hdf5 or netcdf")
        found = ragged.ragged_below(source, encryption_key) if isinstance(source, Group) else {}
        rows = ragged.split(found, sink)
        for name, attrs in groups:
            if name not in rows:
                sink.group(names.get(name, name), attrs)
        for name, array in arrays:
            if name.rpartition("/")[0] not in rows:
                _export_array(names.get(name, name), array, sink, budget, progress)
        for name, one in rows.items():
            step = (lambda rows: None) if progress is None else _row_counter(name, len(one), progress)
            ragged.copy_out(names.get(name, name), one, sink, budget, step)


# --- import -----------------------------------------------------------------------------------------------------------


class _Import:
    """One import under way: where it writes, with which options, and how it is undone."""

    def __init__(
        self,
        store: Store,
        create: dict[str, Any],
        building_block: Sequence[int] | None,
        budget: int,
        progress: Progress | None,
        *,
        path: Path,
    ) -> None:
        self._store, self._create, self._block, self._path = store, create, building_block, path
        self._budget, self._progress = budget, progress

    def run(self, source: Source, plan: list[tuple[Member, str]], prefix: str) -> tuple[str, ...]:
        """Copy all, then put everything under its own name."""
        if isinstance(self._store._engine, Door):
            return self._run_named(source, plan, prefix)
        names = [name for _, name in plan]
        with hidden(self._store) as temporary:
            rename: list[tuple[str, str]] = []
            for number, (member, name) in enumerate(plan):
                made = f"{temporary}/{number}"
                rename += [(one, name + one[len(made) :]) for one in self._copy_any(member, made, name)]
            with self._store._lock:  # names that are free stay free until they are taken
                new, attrs = self._groups(source, names, prefix)
                for number, (marker, text) in enumerate(new):
                    make_marker(self._store._engine, f"{temporary}/group{number}", text)
                    rename.append((f"{temporary}/group{number}", marker))
                self._store.flush()
                self._store._engine.together(rename=rename, attrs=attrs)
            self._store.flush()
        return tuple(names)

    def _run_named(self, source: Source, plan: list[tuple[Member, str]], prefix: str) -> tuple[str, ...]:
        """Copy all under its own names, and delete them if there is an error: a door has no hidden names."""
        names = [name for _, name in plan]
        new, attrs = self._groups(source, names, prefix)
        with deleted_on_error(self._store) as made:
            for member, name in plan:
                self._copy_any(member, name, name, made)
            for marker, text in new:
                make_marker(self._store._engine, marker, text)
                made.append(marker)
            if attrs:
                self._store._engine.together(attrs=attrs)
            self._store.flush()
        return tuple(names)

    def _groups(
        self, source: Source, names: list[str], prefix: str
    ) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Return hidden arrays that keep new groups, and those of groups that change, each with its attributes."""
        _check_names(self._store, names, names)
        new: list[tuple[str, str]] = []
        attrs: list[tuple[str, str]] = []
        inside = {above for name in names for above in _above(name)}
        for given, values in source.groups.items():
            name = f"{prefix}{given}".strip("/")
            if name and name not in self._store:
                _check_names(self._store, [name], names)
            elif name in self._store._engine or name in names:
                raise ExistsError(f"{name!r} is an array in {self._store.path!r}, so it cannot be a group")
            group = Group(self._store, name)
            marker = group._prefix + MARKER
            text = to_json(merged(group.attrs, values))
            if marker in self._store._engine:
                if values:
                    attrs.append((marker, text))
            elif values or (name not in self._store and name not in inside):
                new.append((marker, text))
            inside.update(_above(marker))
        return new, attrs

    def _copy_any(self, member: Member, temporary: str, name: str, made: list[str] | None = None) -> list[str]:
        """Copy an array, or rows of different lengths; return the full names of the new arrays, noted in ``made``."""
        noted = [] if made is None else made
        if member.ragged is None:
            self._copy(member, temporary, name, noted)
            return [temporary]
        try:
            self._copy_rows(member, temporary, name)
        finally:
            parts = [] if self._store.closed else self._store._engine.names(f"{temporary}/")
            noted += parts
        return parts

    def _copy(self, member: Member, temporary: str, name: str, made: list[str]) -> None:
        options = {key: value for key, value in self._create.items() if value is not None}
        if options.get("compression") == SOURCE:
            options["compression"] = member.compression
        if member.fill is not None:
            options["fill_value"] = member.fill
        if self._block is not None and len(self._block) == len(member.shape):
            options["building_block"] = tuple(self._block)
        array = self._store._create(temporary, member.shape, member.dtype, attrs=dict(member.attrs), **options)
        made.append(temporary)

        def write(box: Box, data: np.ndarray[Any, Any]) -> None:
            array[(*box, ...)] = data

        with foreign_errors(self._path):
            plan = _import_plan(member, tuple(array.chunks), self._budget)
        pump(plan, member.read, write, done=_counter(name, array.nbytes, member.dtype.itemsize, self._progress))

    def _copy_rows(self, member: Member, temporary: str, name: str) -> None:
        how = dict(self._create)
        if how.get("compression") == SOURCE:
            how["compression"] = member.compression
        step = (lambda rows: None) if self._progress is None else _row_counter(name, member.shape[0], self._progress)
        with foreign_errors(self._path):
            ragged.copy_in(member, self._store, temporary, how, step)


def _import_plan(member: Member, block: tuple[int, ...], budget: int) -> Iterator[Box]:
    limit = max(1, budget // 2 // max(1, member.dtype.itemsize))  # two slabs at a time
    if member.stream:
        if member.order == "F":  # a stream of the transposed array
            turned = run_shape(member.shape[::-1], limit, block=block[::-1])
            return (box[::-1] for box in boxes(member.shape[::-1], turned))
        return boxes(member.shape, run_shape(member.shape, limit, block=block))
    options: dict[str, Any] = {"block": block, "chunks": member.chunks, "order": member.order}
    stored = member.stored()
    if stored is None:
        return boxes(member.shape, slab_shape(member.shape, limit, **options))
    # A list: every chunk is compared with the budget before one is read.
    return iter(list(stored_slabs(stored, member.shape, limit, grain=member.grain, **options)))


def _refuse(source: Source, unsupported: str) -> None:
    if source.refused and unsupported == "raise":
        raise InvalidError(
            "; ".join(why for _, why in source.refused) + " (unsupported='skip', --skip-unsupported, leaves these out)"
        )
    for _, why in source.refused:
        warnings.warn(f"left out: {why}", UserWarning, stacklevel=3)
    for what, found in (
        ("left out attributes that have no JSON form: ", source.skipped_attrs),
        ("not kept of the source: ", source.notes),
    ):
        if found:
            listed = ("; " if found is source.notes else ", ").join(found[:_LISTED])
            more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
            warnings.warn(f"{what}{listed}{more}", UserWarning, stacklevel=3)


def _open_target(store: Any, stack: ExitStack) -> Store:
    if not isinstance(store, str | os.PathLike):
        return store  # type: ignore[no-any-return]
    path = Path(store)
    if not path.exists():
        with suppress(StoreExistsError):  # another process was faster
            made = open_store(path, "x")
            # "Nothing arrives" includes the store that is made for it.
            stack.push(lambda kind, error, trace: path.unlink(missing_ok=True) if kind else None)
            return stack.enter_context(made)
    return stack.enter_context(open_store(path, "a"))


def _above(name: str) -> Iterator[str]:
    """Return the names of the groups that a name lies in."""
    while name := name.rpartition("/")[0]:
        yield name


def _check_names(store: Store, names: Sequence[str], arrays: Sequence[str]) -> None:
    """Refuse names that are taken, or that lie below an array, be it one of those to come."""
    coming = set(arrays)
    for name in names:
        store._check_free(name)
        for above in _above(name):
            if above in coming:
                raise ExistsError(f"{above!r} is an array, so {name!r} cannot lie in it")


def _group_prefix(source: Source, name: str | None) -> str:
    return f"{name.strip('/')}/" if name and name.strip("/") else ""


def _destinations(
    source: Source, store: Store, name: str | None, path: Path, member: str | None
) -> list[tuple[Member, str]]:
    """Choose the names of the source's arrays; a taken name is refused before anything is copied."""
    if not source.members and not source.groups:
        raise InvalidError(f"{path} holds no arrays")
    prefix = _group_prefix(source, name)
    plan = []
    for item in source.members:
        if item.name:
            plan.append((item, prefix + item.name))
        else:
            plan.append((item, prefix.strip("/") or (member or path.stem).strip("/").rpartition("/")[2]))
    for _, full in plan:
        store._join_new(full)  # a name that a store cannot have
    taken = [full for _, full in plan if full in store]
    if taken:
        raise ExistsError(f"{store.path} already has {', '.join(map(repr, taken))}")
    return plan


# --- export -----------------------------------------------------------------------------------------------------------


def _export_array(name: str, array: Array | Part, sink: Sink, budget: int, progress: Progress | None) -> None:
    if has_ml(array.dtype) and not sink.bare:
        raise InvalidError(
            f"only raw files hold {array.dtype}, the dtype of {name!r}; others hold the float32 that"
            " array.map_blocks(np.positive, out=...) makes of it"
        )
    spec = Spec(
        name=name,
        shape=tuple(array.shape),
        dtype=array.dtype,
        chunks=tuple(array.chunks),
        compressed=array.compression is not None,
        attrs=dict(array.attrs),
        fill=array.fill_value,
    )
    read = array.array if isinstance(array, Part) else array  # of a field, whole records are read
    limit = max(1, budget // 2 // max(1, read.dtype.itemsize))
    if sink.stream:
        slab = run_shape(spec.shape, limit, block=spec.chunks)
    else:
        slab = slab_shape(spec.shape, limit, block=spec.chunks, order=sink.order)
    write = sink.array(spec)
    pump(
        boxes(spec.shape, slab),
        lambda box: np.asarray(array[(*box, ...)]).reshape(box_shape(box)),
        write,
        done=_counter(name, array.nbytes, spec.dtype.itemsize, progress),
    )


# --- shared -----------------------------------------------------------------------------------------------------------


def _counter(name: str, total: int, itemsize: int, progress: Progress | None) -> Callable[[Box], None]:
    if progress is None:
        return lambda box: None
    copied = 0
    progress(name, 0, total)

    def done(box: Box) -> None:
        nonlocal copied
        copied += itemsize * int(np.prod(box_shape(box), dtype=object))
        progress(name, copied, total)

    return done


def _row_counter(name: str, count: int, progress: Progress) -> Callable[[int], None]:
    """Tell of rows, as the bytes of the numbers that say where they begin."""
    copied = 0
    progress(name, 0, count * 8)

    def done(rows: int) -> None:
        nonlocal copied
        copied += rows * 8
        progress(name, copied, count * 8)

    return done


def _gather(
    source: Array | View | Field | Group | Store, key: bytes | None
) -> tuple[list[tuple[str, dict[str, Any]]], Sequence[tuple[str, Array | Part]], bool]:
    """Return the groups with their attributes, the arrays, and whether it is one array alone."""
    if not isinstance(source, Group):
        one = stored(source, "export")
        return [], [(one.name.rpartition("/")[2], one)], True
    names = source.array_names()
    inside = sorted({*groups_below(source)}.difference(names))  # a host may have named an array within another
    groups = [("", dict(source.attrs)), *((name, dict(source[name].attrs)) for name in inside)]
    arrays = [(name, open_array(source.store, source._prefix + name, key)) for name in names]
    return groups, arrays, False
