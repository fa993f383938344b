"""The plan for writing a dataset into a group of a store: new arrays, growing ones, and the place of each variable.

Existing arrays keep their encoding, dimensions and labels. A variable that does not fit, or would leave two arrays of a
group with different lengths of one dimension, is refused here, before anything is written, by the names of variable
and dimension. Nothing here changes the store; :mod:`.write` carries out the plan.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from xarray import Dataset, Variable, conventions

from nandarray.array.attributes import from_json
from nandarray.array.listing import open_array
from nandarray.array.names import MARKER, UNFINISHED
from nandarray.errors import ExistsError, InvalidError
from nandarray.index.shapes import Box, boxes
from nandarray.interop.convert.attributes import dimension_names
from nandarray.interop.convert.slabs import slab_shape
from nandarray.interop.xarray import naming
from nandarray.interop.xarray.backend import _GroupStore, _OpenStore
from nandarray.interop.xarray.encoding import check_values, encode_as_stored, fixed_size, split

if TYPE_CHECKING:
    from nandarray.array.array import Array
    from nandarray.array.store import Store

__all__ = ["SLAB_BYTES", "How", "New", "Plan", "There"]

#: A slab of a variable that is not a Dask array, when it is written or compared.
SLAB_BYTES = 128 << 20


@dataclass(frozen=True)
class How:
    """The way of writing to existing arrays: mode, dimension to append along, region."""

    mode: str
    append_dim: str | None
    region: dict[str, Any] | Literal["auto"] | None
    strict: bool  # variables that cannot be appended must be what is there
    encoding: Mapping[str, Mapping[str, Any]]  # by variable
    create: Mapping[str, Any]  # for every new variable

    @classmethod
    def of(
        cls,
        mode: str | None,
        append_dim: str | None,
        region: Any,
        *,
        encoding: Mapping[str, Mapping[str, Any]],
        create: Mapping[str, Any],
    ) -> How:
        """Check the arguments and settle their defaults."""
        if region is not None and region != "auto" and not isinstance(region, Mapping):
            raise InvalidError(f"region must be a mapping from dimensions to slices, or 'auto', not {region!r}")
        known = ("w", "w-", "x", "a", "a-", "r+")
        if mode is not None and mode not in known:
            raise InvalidError(f"mode must be one of {', '.join(known)}, not {mode!r}")
        settled = mode or ("a" if append_dim is not None else "r+" if region is not None else "w-")
        if append_dim is not None and settled not in ("a", "a-"):
            raise InvalidError(f"append_dim={append_dim!r} must have mode 'a' or 'a-', not {settled!r}")
        if region is not None and settled not in ("a", "a-", "r+"):
            raise InvalidError(f"region must have mode 'r+', 'a' or 'a-', not {settled!r}")
        if isinstance(region, Mapping) and append_dim in region:
            raise InvalidError(f"{append_dim!r} is in both append_dim and region")
        where = dict(region) if isinstance(region, Mapping) else region
        return cls("w-" if settled == "x" else settled, append_dim, where, mode is None, encoding, create)


@dataclass
class New:
    """An array to be made."""

    name: str
    variable: Variable
    options: dict[str, Any]


@dataclass
class There:
    """An array that is there, and what goes where in it."""

    array: Array
    variable: Variable
    start: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass
class Plan:
    """The changes that one dataset makes to one group."""

    new: list[New] = field(default_factory=list)
    there: list[There] = field(default_factory=list)
    attrs: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # by group

    def add(self, dataset: Dataset, store: Store, group: str, how: How) -> None:
        """Plan one more dataset into its group."""
        _plan_dataset(self, dataset, store, group, how)


class _Stored:
    """The arrays of a group: dimensions and shapes, and on demand the variables."""

    def __init__(self, store: Store, group: str, key: bytes | None) -> None:
        self._store, self._prefix, self._key = store, f"{group}/" if group else "", key
        self._reader: _GroupStore | None = None
        self._group = group
        self.sizes: dict[str, dict[str, int]] = {}
        names = store._engine.names(self._prefix)
        for base in (name[len(self._prefix) :] for name in names):
            if "/" in base or base == MARKER or base.startswith(UNFINISHED):
                continue
            told = store._engine.describe(self._prefix + base)
            shape = tuple(told["shape"])
            dims = dimension_names(from_json(told["attrs"]), len(shape))
            dims = dims or tuple(f"{base}_dim_{n}" for n in range(len(shape)))
            self.sizes[base] = dict(zip(dims, shape, strict=True))

    def array(self, base: str) -> Array:
        return open_array(self._store, self._prefix + base, self._key)

    def variable(self, base: str) -> Variable:
        if self._reader is None:
            self._reader = _GroupStore(_OpenStore(self._store), self._group, self._key)
        return self._reader._variable(self._prefix + base, base, self.array(base))


def _plan_dataset(plan: Plan, dataset: Dataset, store: Store, group: str, how: How) -> None:
    encoding = how.encoding
    if unknown := set(encoding) - set(dataset.variables):
        raise InvalidError(f"encoding names {sorted(unknown)}, which are no variables of the dataset")
    if group in store._engine:
        raise ExistsError(f"{group!r} is an array in {store.path!r}, so it cannot be a group")
    _, common = split("every variable", how.create)
    prefix = f"{group}/" if group else ""
    key = common.get("encryption_key")
    stored = _Stored(store, group, key)
    sizes = {} if how.mode == "w" else stored.sizes
    there = [str(name) for name in dataset.variables if str(name) in sizes]
    if there and how.mode == "w-":
        raise ExistsError(f"{store.path} already has {', '.join(repr(prefix + name) for name in there)}")
    missing = [str(name) for name in dataset.variables if str(name) not in sizes]
    if missing and how.mode == "r+":
        raise InvalidError(
            f"{store.path} has no {', '.join(repr(prefix + name) for name in missing)}; mode 'r+' makes no variables"
        )
    if encoded := [name for name in there if encoding.get(name)]:
        raise InvalidError(
            f"{', '.join(map(repr, encoded))} is in the store, and keeps its encoding; leave it out of encoding"
        )
    if how.append_dim is not None:
        _check_append(dataset, sizes, there, how.append_dim)
    region, labelled = _region(dataset, stored, how)
    if labelled:
        dataset = dataset.drop_vars(labelled)
        there = [name for name in there if name not in labelled]
    _plan_there(plan, dataset, stored, there, how=how, region=region)
    fresh = [name for name in missing if name not in labelled]
    attrs = _plan_new(plan, dataset, prefix, fresh, encoding=encoding, common=common)
    _check_sizes(dataset, sizes, there, how.append_dim)
    if how.mode != "r+":
        plan.attrs.append((group, naming.attributes(f"group {group or '/'!r}", attrs)))


def _check_append(dataset: Dataset, sizes: dict[str, dict[str, int]], there: list[str], dim: str) -> None:
    if dim not in dataset.dims:
        raise InvalidError(
            f"append_dim={dim!r} is no dimension of the dataset, which has {', '.join(map(repr, dataset.dims))}"
        )
    if there and not any(dim in sizes[name] for name in there):
        raise InvalidError(f"append_dim={dim!r} is no dimension of {', '.join(map(repr, there))} in the store")


def _region(dataset: Dataset, stored: _Stored, how: How) -> tuple[dict[str, slice], list[str]]:
    """Settle where to write, and which coordinates only say where, once they are found to be the store's."""
    if how.region is None:
        return {}, []
    asked: dict[str, Any] = dict.fromkeys(map(str, dataset.dims), "auto") if how.region == "auto" else dict(how.region)
    asked.pop(how.append_dim or "", None)
    region: dict[str, slice] = {}
    for dim, where in asked.items():
        if dim not in dataset.dims:
            raise InvalidError(
                f"region names {dim!r}, which is no dimension of the dataset: {', '.join(map(repr, dataset.dims))}"
            )
        region[dim] = _labels(dataset, stored, dim) if where == "auto" else _slice(dataset, stored, dim, where)
    labelled = [str(name) for name in dataset.indexes if str(name) != how.append_dim]
    for name in labelled:
        if name in stored.sizes and how.region != "auto" and asked.get(name) != "auto":
            _check_labels(dataset, stored, name, region)
    apart = [
        str(name) for name, one in dataset.variables.items() if name not in labelled and not set(region) & set(one.dims)
    ]
    if how.append_dim is not None:
        apart = [name for name in apart if how.append_dim not in dataset.variables[name].dims]
    if region and apart:
        raise InvalidError(
            f"{', '.join(map(repr, apart))} has none of the region's dimensions {', '.join(map(repr, region))};"
            f" drop it first: dataset.drop_vars({apart!r})"
        )
    return region, labelled


def _slice(dataset: Dataset, stored: _Stored, dim: str, where: Any) -> slice:
    if not isinstance(where, slice):
        raise InvalidError(f"region of dimension {dim!r} must be a slice or 'auto', not {where!r}")
    if where.step not in (None, 1):
        raise InvalidError(f"region of dimension {dim!r} has step {where.step}; it must be 1")
    begin, end = (_integer(one, dim) for one in (where.start, where.stop))
    lengths = {sizes[dim] for sizes in stored.sizes.values() if dim in sizes}
    if not lengths:
        raise InvalidError(f"region names the dimension {dim!r}, which no array in the store has")
    length = min(lengths)
    start, stop = (
        default if at is None else at + length if at < 0 else at for at, default in ((begin, 0), (end, length))
    )
    if not 0 <= start <= stop <= length:
        raise InvalidError(f"region {start}:{stop} of dimension {dim!r} lies outside of the store's {length} elements")
    if stop - start != dataset.sizes[dim]:
        raise InvalidError(
            f"region {start}:{stop} of dimension {dim!r} has {stop - start} elements, the dataset {dataset.sizes[dim]}"
        )
    return slice(start, stop)


def _integer(value: Any, dim: str) -> int | None:
    try:
        return None if value is None else operator.index(value)
    except TypeError:
        raise InvalidError(f"region of dimension {dim!r} must be a slice of integers, not of {value!r}") from None


def _labels(dataset: Dataset, stored: _Stored, dim: str) -> slice:
    """Find the labels of the dataset in the store."""
    if dim not in dataset.variables or dim not in stored.sizes:
        return _slice(dataset, stored, dim, slice(0, dataset.sizes[dim]))
    ours = dataset.variables[dim]
    theirs = conventions.decode_cf_variable(dim, stored.variable(dim).load(), decode_timedelta=ours.dtype.kind == "m")
    try:
        found = pd.Index(theirs.values).get_indexer(pd.Index(ours.values))
    except pd.errors.InvalidIndexError as error:
        raise InvalidError(
            f"dimension {dim!r} has labels more than once in the store: give its region as a slice"
        ) from error
    if (found < 0).any():
        raise InvalidError(f"dimension {dim!r}: the store has no label {ours.values[found < 0][0]}")
    if (np.diff(found) != 1).any():
        raise InvalidError(f"dimension {dim!r}: the labels of the dataset do not follow one another in the store")
    return slice(int(found[0]), int(found[-1]) + 1) if len(found) else slice(0, 0)


def _check_labels(dataset: Dataset, stored: _Stored, name: str, region: dict[str, slice]) -> None:
    """Refuse a coordinate that is another one where it is to be written."""
    variable = dataset.variables[name]
    there = stored.variable(name)
    if variable.dims != there.dims:
        raise InvalidError(f"variable {name!r} has dimensions {variable.dims}, and {there.dims} in the store")
    coded = encode_as_stored({name: variable.to_base_variable()}, {name: there})[name]
    box = tuple(region.get(str(dim), slice(0, size)) for dim, size in variable.sizes.items())
    if coded.shape != tuple(part.stop - part.start for part in box) or not same(coded, stored.array(name), box):
        dims = ", ".join(
            f"{dim}={region[str(dim)].start}:{region[str(dim)].stop}" for dim in variable.dims if dim in region
        )
        raise InvalidError(
            f"coordinate {name!r} of the dataset is not what the store has {f'at {dims}' if dims else 'there'}; to"
            f" write all the same, drop it first: dataset.drop_vars({name!r})"
        )


def _plan_there(
    plan: Plan, dataset: Dataset, stored: _Stored, there: list[str], *, how: How, region: dict[str, slice]
) -> None:
    ours: dict[str, Variable] = {}
    for name in there:
        variable = dataset.variables[name].to_base_variable()
        sizes = stored.sizes[name]
        if variable.dims != tuple(sizes):
            if set(variable.dims) != set(sizes):
                raise InvalidError(f"variable {name!r} has dimensions {variable.dims}, and {tuple(sizes)} in the store")
            variable = variable.transpose(*sizes)
        for dim, size in variable.sizes.items():
            room = region[str(dim)].stop - region[str(dim)].start if dim in region else sizes[str(dim)]
            if dim != how.append_dim and size != room:
                raise InvalidError(
                    f"variable {name!r} has {size} elements along dimension {dim!r}, and {room} in the store"
                )
        if how.append_dim is None or how.append_dim in sizes or how.mode != "a-":
            ours[name] = variable
    coded = encode_as_stored(ours, {name: stored.variable(name) for name in ours})
    for name, variable in coded.items():
        array, sizes = stored.array(name), stored.sizes[name]
        if how.append_dim is not None and how.append_dim not in sizes and how.strict:
            if not same(variable, array, tuple(slice(0, n) for n in sizes.values())):
                raise InvalidError(
                    f"variable {name!r} has no dimension {how.append_dim!r} and is not what the store has; mode='a'"
                    " writes over it, mode='a-' leaves it as it is"
                )
            continue
        start = tuple(
            n if dim == how.append_dim else region[dim].start if dim in region else 0 for dim, n in sizes.items()
        )
        after = tuple(n + variable.sizes[dim] if dim == how.append_dim else n for dim, n in sizes.items())
        plan.there.append(There(array, variable, start, tuple(sizes.values()), after))


def same(variable: Variable, array: Array, box: Box) -> bool:
    """Whether encoded values are those that are stored in a box."""
    limit = SLAB_BYTES // 2 // max(1, variable.dtype.itemsize)
    for part in boxes(variable.shape, slab_shape(variable.shape, limit, block=array.chunks)):
        theirs = tuple(slice(at.start + of.start, at.stop + of.start) for at, of in zip(part, box, strict=True))
        one, other = variable[(*part, ...)].values, np.asarray(array[(*theirs, ...)])
        if not np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"):
            return False
    return True


def _plan_new(
    plan: Plan,
    dataset: Dataset,
    prefix: str,
    names: list[str],
    *,
    encoding: Mapping[str, Mapping[str, Any]],
    common: dict[str, Any],
) -> dict[str, Any]:
    """Encode new variables; gives the attributes of the group."""
    dataset = dataset.copy()
    options: dict[str, dict[str, Any]] = {}
    for name in names:
        wishes = encoding.get(name, {})
        coding, own = split(name, wishes)
        block = own.get("building_block")
        if block is not None and len(block) != dataset[name].ndim:
            raise InvalidError(
                f"encoding of {name!r} must have blocks of {dataset[name].ndim} dimensions, not of shape {tuple(block)}"
            )
        options[name] = {**common, **own}
        dataset[name].encoding = {**dataset[name].encoding, **coding}
    with naming.encoding(dataset.variables, f"group {prefix.strip('/') or '/'!r}"):
        variables, attrs = conventions.encode_dataset_coordinates(dataset)
        coded, attrs = conventions.cf_encoder(
            {name: check_values(variables[name], str(name)) for name in variables if name in options}, attrs
        )
    for name, variable in coded.items():
        plan.new.append(New(prefix + str(name), fixed_size(variable, prefix + str(name)), options[str(name)]))
    return dict(attrs)


def _check_sizes(dataset: Dataset, sizes: dict[str, dict[str, int]], there: list[str], append_dim: str | None) -> None:
    """Refuse what would leave two arrays of the group with different lengths of one dimension."""
    after: dict[str, dict[str, int]] = {}
    for name, variable in dataset.variables.items():
        own = {str(dim): size for dim, size in variable.sizes.items()}
        if str(name) in there:
            own = {dim: n + own[dim] if dim == append_dim else n for dim, n in sizes[str(name)].items()}
        after[str(name)] = own
    known: dict[str, tuple[str, int]] = {}
    for name, own in after.items():
        for dim, size in own.items():
            known.setdefault(dim, (name, size))
    for name, own in {**sizes, **after}.items():
        for dim, size in own.items():
            if dim in known and known[dim][1] != size:
                raise InvalidError(
                    f"dimension {dim!r} would have {known[dim][1]} elements in variable {known[dim][0]!r}, and {size}"
                    f" in {name!r}"
                )
