"""Grouping by keys: ``array.group_by(keys).reduce("sum", "mean")``, by ``c/groups.c`` beside the data.

A pass makes one entry for each key whose hash lies in a range, in a table of bounded size; the program gives up the
upper part of a range whose keys do not fit, and says how far it came. So passes go on until all hashes are covered, and
each key's values are added in one pass, in the data's order: neither the cut of the data nor the table's size is to be
seen in the results. Ranges of one pass are programs of one run, on a core each. Here keys and values become inputs, and
entries NumPy's columns in the order of their keys; only entries come here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from nandarray.dtypes import computed, is_short
from nandarray.errors import InvalidError, NotFoundError
from nandarray.programs import ports, run
from nandarray.programs.calls.folds import c_type
from nandarray.programs.calls.moments import checked_ddof
from nandarray.programs.calls.times import integers
from nandarray.programs.forms import COMPILED
from nandarray.programs.operand import Converted
from nandarray.programs.program import Program

__all__ = ["BUDGET", "GroupBy", "group_by"]

BUDGET = 256 << 20
_HASHES = 1 << 64
_PARTS = 4  # each reads all of the data
_FEW_RECORDS = 1 << 16  # that one core has done before a second one has begun
_LEAST_ENTRIES = 16
_SIZES = (1 << 12, 1 << 15, 1 << 18, 1 << 21)  # of tables that need not be larger: each is a program
_TASK_BYTES, _VALUES_BYTES, _KEY_BYTES = 1 << 20, 16 << 20, 4096
_ENTRIES_BYTES = 60 << 20  # of an output, at most; a door gives as many for all outputs together
_OPTIONS = ("form", "threads", "task_bytes", "instructions", "seconds", "progress")
_Array = np.ndarray[Any, Any]

#: Members of an entry's cell that a statistic is made of, and the kinds of values that have it.
_STATISTICS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "size": ((), "biufcmM"),
    "count": (("count",), "biufcmM"),
    "sum": (("sum",), "biufcm"),
    "prod": (("prod",), "biufc"),
    "mean": (("count", "sum"), "biufcm"),
    "var": (("count", "origin", "mean", "squares"), "biuf"),
    "std": (("count", "origin", "mean", "squares"), "biuf"),
    "min": (("min",), "biufcmM"),
    "max": (("max",), "biufcmM"),
    "first": (("first",), "biufcmM"),
    "last": (("last",), "biufcmM"),
    "any": (("any",), "biufc"),
    "all": (("all",), "biufc"),
}
#: Members in their order in a cell.
_MEMBERS = ("count", "sum", "prod", "origin", "mean", "squares", "min", "max", "first", "last", "any", "all")


def group_by(keys: Any, values: Any = None, *, dropna: bool = True, budget: int = BUDGET) -> GroupBy:
    """Group values by keys, of arrays in a store or in memory; nothing is computed yet.

    Parameters
    ----------
    keys : Array, View, Field, nandarray.Box or array_like
        A key for each value: integers, truth values, floats of 16 to 64 bits, dates, durations, text or bytes of a
        fixed length, or records of such (without floats and padding), of at most 4096 bytes.
    values : Array, View, Field, nandarray.Box or array_like, optional
        Numbers, dates or durations; the keys themselves if left out. The shape begins with that of ``keys``; dimensions
        behind stay in the results.
    dropna : bool
        Whether records whose key is NaN or NaT are left out. If not, all of these are one group, the last one.
    budget : int
        Bytes of memory that tables of groups may have, beside the results. Data with more groups than have room is read
        several times.

    Returns
    -------
    GroupBy
        The groups: :meth:`GroupBy.reduce` gives their statistics.

    Raises
    ------
    InvalidError
        Keys of this dtype cannot be compared, or shapes do not fit each other.

    Examples
    --------
    >>> import nandarray
    >>> found = nandarray.group_by(["b", "a", "b"], [1, 2, 3]).reduce("sum", "size")
    >>> found["keys"].tolist(), found["sum"].tolist(), found["size"].tolist()
    (['a', 'b'], [2, 4], [1, 2])
    """
    if not isinstance(dropna, bool | np.bool):
        raise InvalidError(f"dropna must be True or False, not {dropna!r}")
    ports.at_least_one(budget=budget)
    return GroupBy(_keys(keys), _values(keys if values is None else values), dropna=bool(dropna), budget=int(budget))


@dataclass(frozen=True)
class _Given:
    """An input of the program: its dtype and shape, and the dtype of its elements as the program gets them."""

    source: Any
    dtype: np.dtype[Any]
    taken: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def store(self) -> Any:
        """The store that has it; None of what lies in memory."""
        if not ports.is_stored(self.source):
            return None
        return ports.Boxed(self.source).array.store


class GroupBy:
    """Values in groups of equal keys, made by :meth:`Array.group_by` and :func:`nandarray.group_by`.

    Arrays are read by each call of :meth:`reduce`.

    Examples
    --------
    >>> import nandarray
    >>> nandarray.group_by(np.array([2, 1, 2]), np.array([1.0, 5.0, 3.0])).reduce("sum")
    {'keys': array([1, 2]), 'sum': array([5., 4.])}
    """

    def __init__(self, keys: _Given, values: _Given, *, dropna: bool, budget: int) -> None:
        if values.shape[: len(keys.shape)] != keys.shape:
            says = f"keys have the shape {keys.shape} and values {values.shape}, which must begin with that of the keys"
            if len(keys.shape) > 1 and keys.shape[1:] == values.shape[: len(keys.shape) - 1]:
                says += f"; {keys.shape[0]} keys for each value must be the fields of records"
            raise InvalidError(says)
        self._keys, self._values, self._dropna, self._budget = keys, values, dropna, budget

    def __repr__(self) -> str:
        values, keys = self._values, self._keys
        return f"<nandarray.GroupBy of {values.shape} {values.dtype} by {keys.shape} {keys.dtype}>"

    if not TYPE_CHECKING:  # a type checker knows which attributes there are

        def __getattr__(self, name: str) -> Never:
            """Say what takes the place of an attribute that there is not."""
            hint = f': it is reduce("{name}")' if name in _STATISTICS else ""
            hint = ': it is reduce("sum", "mean", ...)' if name in ("agg", "aggregate", "apply") else hint
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def reduce(self, *what: str, ddof: float = 0, skipna: bool = False, **options: Any) -> dict[str, _Array]:
        """Give statistics of each group.

        Parameters
        ----------
        *what : str
            ``"size"``, the number of records; ``"count"``, of values that are not NaN or NaT; ``"sum"``, ``"prod"``,
            ``"mean"``, ``"min"``, ``"max"``, ``"var"``, ``"std"``, ``"any"``, ``"all"`` as NumPy has them; ``"first"``
            and ``"last"`` in the data's order.
        ddof : float
            ``"var"`` and ``"std"`` divide by the number of values less this; where nothing is left they are NaN.
        skipna : bool
            Whether values that are NaN or NaT are left out; if not, they make the statistic NaN or NaT.
        **options
            ``form``, ``threads``, ``task_bytes``, ``instructions``, ``seconds``, ``progress`` as for
            :meth:`Array.offload`; results do not depend on them.

        Returns
        -------
        dict of numpy.ndarray
            ``"keys"``, sorted, and each statistic by its name, of shape (groups, ...) with the dimensions that values
            have beyond their keys, which ``"size"`` has not. Sums of integers have 64 bits and wrap as NumPy's do;
            those of floats are float64, added one after the other in the data's order.

        Raises
        ------
        InvalidError
            The values have no such statistic, or the budget has no room for a few groups.
        NotFoundError
            There is no such statistic.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["day"], store["value"] = np.array([3, 1, 3, 1]), np.array([1.0, 2.0, 4.0, 8.0])
        >>> store["value"].group_by(store["day"]).reduce("mean", "max")
        {'keys': array([1, 3]), 'mean': array([5. , 2.5]), 'max': array([8., 4.])}
        """
        _refuse(what, self._values.dtype, ddof, skipna, options)
        members = {one for name in what for one in _STATISTICS[name][0]}
        layout = _layout(self._keys, self._values, members, sized="size" in what)
        how: dict[str, Any] = {"left_out": (self._dropna, bool(skipna)), "budget": self._budget, "options": options}
        entries = [*_Passes(self._keys, self._values, layout, **how)]
        kind = self._keys.taken
        keys = np.concatenate([one["key"] for one in entries]).view(kind).reshape(-1)
        order = _order(keys)
        found = {"keys": _own(keys[order], self._keys.dtype)}
        left = self._values.shape[len(self._keys.shape) :]

        def column(member: str) -> _Array:
            joined = np.concatenate([one[member] if member == "size" else one["cells"][member] for one in entries])
            taken = joined[order]
            return taken if member == "size" else taken.reshape(-1, *left)

        for name in what:
            found[name] = _finished(name, column, self._values, ddof)
        return found


# --- keys and values --------------------------------------------------------------------------------------------------


def _keys(given: Any) -> _Given:
    """Return keys as an input, whose elements are equal if their bytes are, but for floats and NaT."""
    if isinstance(given, str | bytes):
        raise InvalidError(f"keys must be an array, as store[{given!r}] is one, not the name {given!r}")
    shape, dtype = _shaped(given)
    if dtype.names is not None and ports.is_derived(given):
        dtype = _packed(dtype)
    fits = dtype.kind in "biumMSUV" or is_short(dtype) or (dtype.kind == "f" and dtype.itemsize in (2, 4, 8))
    if not fits or not _is_plain(dtype):
        raise InvalidError(
            f"keys of {dtype}: they must be integers, truth values, floats, dates, durations, text or bytes of a fixed "
            "length, or records of these without floats and padding"
        )
    if not 1 <= dtype.itemsize <= _KEY_BYTES:
        raise InvalidError(f"keys of {dtype} must have from 1 to {_KEY_BYTES} bytes, not {dtype.itemsize}")
    if dtype.kind in "fmM" or is_short(dtype):
        return _converted(given, dtype, shape)
    if ports.is_stored(given):
        return _Given(given, dtype, dtype, shape)
    return _Given(ports.in_memory(given), dtype, dtype, shape)


def _values(given: Any) -> _Given:
    shape, dtype = _shaped(given)
    if dtype.kind in "biufcmM" and dtype.itemsize <= (16 if dtype.kind == "c" else 8) or is_short(dtype):
        return _converted(given, dtype, shape)
    return _Given(given, dtype, dtype, shape)  # of which there is the size alone


def _shaped(given: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    box: Any = ports.Boxed(given) if ports.is_stored(given) else ports.in_memory(given)
    return tuple(box.shape), box.dtype


def _packed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a record's dtype as a step gives some of its fields: one behind the other."""
    fields: Any = dtype.fields
    return np.dtype([(name, fields[name][0]) for name in dtype.names or ()])


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Return whether elements of a key are equal if all of their bytes are, and only then."""
    if dtype.names is None:
        return True
    fields: Any = dtype.fields
    kinds = [fields[name][0].base for name in dtype.names]
    alike = all(one.kind in "biumMSU" or (one.kind == "V" and not is_short(one) and _is_plain(one)) for one in kinds)
    return alike and sum(fields[name][0].itemsize for name in dtype.names) == dtype.itemsize


def _converted(given: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> _Given:
    """Return numbers as the dtype that programs compute with."""
    kind = computed(dtype)
    if not ports.is_stored(given):
        return _Given(ports.in_memory(given).astype(kind, copy=False), dtype, kind, shape)
    if kind == dtype:
        return _Given(given, dtype, kind, shape)
    box = given if isinstance(given, ports.Box) else ports.Box(given)
    if dtype.kind in "mM":
        number = np.dtype("<i8")
        return _Given(ports.Box(Converted(integers(box.array), number), box.key), dtype, kind, shape)
    return _Given(ports.Box(Converted(box.array, kind), box.key), dtype, kind, shape)


def _own(found: _Array, dtype: np.dtype[Any]) -> _Array:
    """Return elements in the dtype of an array, in this machine's byte order."""
    return found.astype(dtype.newbyteorder("="), copy=False)


def _order(keys: _Array) -> _Array:
    """Return the places of keys in their order; records by their fields, the first one first."""
    names = keys.dtype.names
    if names is None or any(keys.dtype[name].subdtype or keys.dtype[name].names for name in names):
        return np.argsort(keys, kind="stable")
    return np.lexsort([keys[name] for name in reversed(names)])


# --- statistics -------------------------------------------------------------------------------------------------------


def _refuse(what: Sequence[str], dtype: np.dtype[Any], ddof: Any, skipna: Any, options: Mapping[str, Any]) -> None:
    for name in what:
        if not isinstance(name, str) or name not in _STATISTICS:
            raise NotFoundError(f"there is no statistic {name!r} of groups; there is {', '.join(_STATISTICS)}")
        kind = "f" if is_short(dtype) else dtype.kind
        if kind not in _STATISTICS[name][1] and name != "size":
            there = ", ".join(one for one, (_, kinds) in _STATISTICS.items() if kind in kinds or one == "size")
            raise InvalidError(f"{name} of {dtype}: the statistic must be one of {there}")
    if not what or len(set(what)) < len(what):
        raise InvalidError(f"statistics must be one name or several different ones, not {what!r}")
    checked_ddof(ddof)
    if not isinstance(skipna, bool | np.bool):
        raise InvalidError(f"skipna must be True or False, not {skipna!r}")
    if unknown := [one for one in options if one not in _OPTIONS]:
        raise InvalidError(f"groups have no option {min(unknown)!r}; there is ddof, skipna, {', '.join(_OPTIONS)}")


def _finished(name: str, column: Callable[[str], _Array], values: _Given, ddof: float) -> _Array:
    """Make a statistic of the members of the entries' cells."""
    kind = values.taken.kind
    with np.errstate(all="ignore"):
        if name in ("size", "count"):
            return column(name).astype("i8")
        if name in ("any", "all"):
            return column(name).astype("?")
        if name in ("sum", "prod"):
            return _total(column(name), values)
        if name == "mean":
            total, count = _total(column("sum"), values), column("count")
            return np.asarray(total / count.astype("i8" if kind == "m" else "f8"))
        if name in ("var", "std"):
            left = column("count") - float(ddof)
            made = np.where(left > 0, column("squares") / left, np.nan)
            return np.asarray(np.sqrt(made) if name == "std" else made)
    return _own(column(name), values.dtype)


def _total(found: _Array, values: _Given) -> _Array:
    """Return sums as NumPy has them: signed for signed integers and truth values."""
    if values.taken.kind == "m":
        return found.view(values.dtype.newbyteorder("="))
    return found.view("i8") if values.taken.kind in "bi" else found


def _member(name: str, taken: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of a member of a cell."""
    if name in ("sum", "prod"):
        return np.dtype({"f": "f8", "c": "c16"}.get(taken.kind, "u8"))
    if name in ("any", "all"):
        return np.dtype("u1")
    wide = {"count": "u8", "origin": "f8", "mean": "f8", "squares": "f8"}
    return np.dtype(wide[name]) if name in wide else taken


@dataclass(frozen=True)
class _Layout:
    """The layout of an entry, and the macros of the program that it follows from."""

    entry: np.dtype[Any]
    defines: tuple[tuple[str, Any], ...]
    value_bytes: int


def _layout(keys: _Given, values: _Given, members: set[str], *, sized: bool) -> _Layout:
    size, item = keys.taken.itemsize, values.taken.itemsize
    inner = math.prod(values.shape[len(keys.shape) :]) if members else 0
    if members and not 0 < inner * item <= _VALUES_BYTES:
        raise InvalidError(f"the values of one key must have from 1 to {_VALUES_BYTES} bytes, not {inner * item}")
    number = f"u{size}" if size in (1, 2, 4, 8) else f"V{size}"
    cell = np.dtype([(one, _member(one, values.taken)) for one in _MEMBERS if one in members], align=True)
    fields: list[Any] = [("cells", cell, (inner,))] * bool(members)
    fields += [("size", "u8")] * sized
    entry = np.dtype([*fields, ("key", number)], align=True)
    names = {"count", "sum", "prod", "min", "max", "first", "last", "any", "all"}
    has = {f"HAS_{one.upper()}": int(one in members) for one in sorted(names)}
    kind = {"f": "f", "m": "M", "M": "M"}.get(keys.taken.kind, "b")
    defines = {
        "T": c_type(values.taken) if members else "uint8_t",
        "KIND_OF_T": f"'{values.taken.kind}'" if members else "'u'",
        "KEY_BYTES": size,
        "KEY_KIND": f"'{kind}'",
        "INNER": inner,
        "RECORD_BYTES": inner * item,
        "ENTRY_BYTES": entry.itemsize,
        "HAS_VAR": int("squares" in members),
        "HAS_SIZE": int(sized),
        **has,
    }
    return _Layout(entry, tuple(defines.items()), inner * item)


# --- passes -----------------------------------------------------------------------------------------------------------


class _Passes:
    """Passes over keys and values until the entries of all keys are here, each in one piece."""

    def __init__(
        self,
        keys: _Given,
        values: _Given,
        layout: _Layout,
        *,
        left_out: tuple[bool, bool],
        budget: int,
        options: Mapping[str, Any],
    ) -> None:
        given = [keys, values] if layout.value_bytes else [keys]
        self._inputs, self._layout, self._records = [one.source for one in given], layout, math.prod(keys.shape)
        stores = [one.store for one in given]
        self._door = any(store is not None and run.is_remote(store) for store in stores)
        sent = self._door and any(store is None for store in stores)  # once for each part
        threads = options.get("threads") or os.cpu_count() or 1
        self._parts = 1 if sent or self._records <= _FEW_RECORDS else min(threads, _PARTS)
        self._entries = self._room(budget)
        self._program = _program(layout, self._entries, left_out)
        fit = _TASK_BYTES // keys.taken.itemsize, _VALUES_BYTES // max(1, layout.value_bytes)
        most = keys.taken.itemsize * max(1, min(fit))
        kept = {name: value for name, value in options.items() if name not in COMPILED}
        self._options = {"task_bytes": most, **{name: one for name, one in kept.items() if one is not None}}

    def _room(self, budget: int) -> int:
        """Return how many entries a table has; tables and outputs have half of the budget, results the rest."""
        size = self._layout.entry.itemsize
        most = budget // 2 // self._parts // (2 * size + 8)
        most = min(most, _ENTRIES_BYTES // size // (self._parts if self._door else 1))
        if most < _LEAST_ENTRIES:
            least = 2 * self._parts * (2 * size + 8) * _LEAST_ENTRIES
            raise InvalidError(f"budget must be at least {least} bytes for groups of {size} bytes, not {budget}")
        return next((one for one in _SIZES if self._records <= one < most), most)

    def __iter__(self) -> Iterator[_Array]:
        if not self._records:
            yield np.zeros(0, self._layout.entry)
            return
        ranges = [*_split(0, _HASHES - 1, self._parts)]
        while ranges:
            now, ranges = ranges[: self._parts], ranges[self._parts :]
            for (low, high), entries, last in self._pass(now):
                yield entries
                if last < high:  # as many hashes again as had room this time, with some to spare
                    pieces = math.ceil((high - last) / ((last + 1 - low) * 0.9 * self._entries / max(1, len(entries))))
                    ranges += _split(last + 1, high, max(1, min(pieces, high - last)))

    def _pass(self, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], _Array, int]]:
        """Run the program for some ranges of hashes at once; give entries and the last hash that they are of."""
        wanted: dict[str, Any] = {}
        for number, (low, high) in enumerate(ranges):
            step = self._program.on(*self._inputs, low=low, last=high)
            wanted |= {f"entries{number}": step["entries"], f"done{number}": step["done"]}
        outputs = run.offload(wanted, **self._options).outputs
        for number, one in enumerate(ranges):
            raw = outputs.pop(f"entries{number}").reshape(-1)
            yield one, raw.view(self._layout.entry).copy(), int(np.ravel(outputs.pop(f"done{number}"))[0])


def _split(low: int, high: int, pieces: int) -> Iterator[tuple[int, int]]:
    """Cut a range of hashes, with both ends, into pieces of the same width."""
    edges = [low + (high - low + 1) * number // pieces for number in range(pieces + 1)]
    yield from ((first, end - 1) for first, end in zip(edges, edges[1:], strict=False))


@lru_cache(maxsize=64)
def _program(layout: _Layout, entries: int, left_out: tuple[bool, bool]) -> Program:
    size = layout.entry.itemsize
    defines = {
        **dict(layout.defines),
        "DROPNA": int(left_out[0]),
        "SKIPNA": int(left_out[1]),
        "ENTRIES": entries,
        "SLOTS": 2 * entries,
        "ENTRIES_BYTES": entries * size,
        "SCRATCHPAD_BYTES": -(-entries * size // 16) * 16 + 8 * entries,
    }
    flags = [f"-D{name}={value}" for name, value in defines.items()]
    return Program.from_c(Path(__file__).parent / "c" / "groups.c", flags=flags, trusted=True)
