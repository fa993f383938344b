"""Attributes: a mutable mapping of names to JSON values that writes through to the store.

The whole mapping is one JSON object, kept beside the array or the group. Every read parses it anew, so two handles on
one array, or a reader after ``refresh()``, see the same thing; every change is one command. NumPy scalars and arrays
become numbers and lists. A value that is read is a copy: changing a list inside it changes nothing until it is assigned
back. Values that are not JSON (bytes, complex numbers, dates) are refused. A value that is set has the type that JSON
gives it: what was remembered of the type of the one before (:mod:`.attribute_types`) goes with that one.

A change costs as much as all attributes together: thousands are set by one ``update``, not one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from nandarray.array.attribute_types import TYPES, check_types, known_types, merged
from nandarray.errors import CorruptError, InvalidError, NotFoundError

__all__ = ["DIMENSIONS", "Attributes", "from_json", "to_json"]

#: The attribute that holds an array's dimension names, as Zarr v2 and xarray call it.
DIMENSIONS = "_ARRAY_DIMENSIONS"


class Attributes(MutableMapping[str, Any]):
    """The attributes of one array or group, as ``array.attrs`` and ``group.attrs`` give them.

    ``load`` gives the JSON text, ``save`` takes it; ``lock`` is held while the mapping is read, changed and written
    back.

    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> a = store.create("a", (2, 2), "f4", attrs={"unit": "K"})
    >>> a.attrs["valid_range"] = np.array([0, 300])
    >>> dict(a.attrs)
    {'unit': 'K', 'valid_range': [0, 300]}
    """

    def __init__(self, load: Callable[[], str], save: Callable[[str], None], lock: AbstractContextManager[Any]) -> None:
        self._load = load
        self._save = save
        self._lock = lock

    def __getitem__(self, name: str) -> Any:
        values = self._read()
        _check_known(name, values)
        return values[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._read()

    def __setitem__(self, name: str, value: Any) -> None:
        self.update([(name, value)])

    def __delitem__(self, name: str) -> None:
        with self._lock:
            values = self._read()
            _check_known(name, values)
            del values[name]
            self._save(to_json(merged(values, {})))  # without its type

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(self._read())

    def update(self, *others: Any, **names: Any) -> None:
        """Change several attributes by one command, which costs no more than changing one of them.

        Parameters
        ----------
        *others : mapping or iterable of pairs
            New values.
        **names
            More new values.
        """
        try:
            given: dict[str, Any] = dict(*others, **names)
        except (TypeError, ValueError) as error:
            raise InvalidError(f"attributes must be updated by a mapping, or by pairs: {error}") from error
        with self._lock:
            self._save(to_json(merged(self._read(), given)))

    def popitem(self) -> tuple[str, Any]:
        """Remove an attribute and give it.

        Returns
        -------
        tuple of str and object
            Its name and value.

        Raises
        ------
        NotFoundError
            There are none.
        """
        for name in self:
            return name, self.pop(name)
        raise NotFoundError("there are no attributes")

    def clear(self) -> None:
        """Remove every attribute by one command."""
        with self._lock:
            self._save("{}")

    def _replace(self, given: Mapping[str, Any]) -> None:
        """Make these all attributes there are, with the types among them that are true, by one command."""
        kinds = known_types(given)
        found = {name: value for name, value in given.items() if name != TYPES}
        with self._lock:
            self._save(to_json({**found, TYPES: kinds} if kinds else found))

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("attributes write through to their store and cannot be pickled; pickle dict(attrs)")

    def _read(self) -> dict[str, Any]:
        return from_json(self._load())


def _check_known(name: object, values: Mapping[str, Any]) -> None:
    if not isinstance(name, str) or name not in values:
        raise NotFoundError(f"no attribute named {name!r}")


def from_json(text: str) -> dict[str, Any]:
    """Read attributes that :func:`to_json` wrote.

    Raises
    ------
    CorruptError
        The text is no JSON object.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"attributes that are not JSON: {error}") from None
    if not isinstance(values, dict):
        raise CorruptError(f"attributes must be a JSON object, not {type(values).__name__}")
    return values


def to_json(values: Mapping[str, Any]) -> str:
    """Write attributes as one JSON object."""
    if not isinstance(values, Mapping):
        raise InvalidError(f"attributes must be a mapping, not {type(values).__name__}")
    for name in values:
        if not isinstance(name, str):
            raise InvalidError(f"attribute names must be str, not {type(name).__name__}: {name!r}")
    check_types(values)
    try:
        # NaN and infinities stay, as Python writes them: missing-value attributes are often NaN.
        text = json.dumps(dict(values), default=_plain, separators=(",", ":"))
    except RecursionError:
        raise InvalidError("attributes are nested too deeply to be stored as JSON") from None
    except (TypeError, ValueError) as error:
        raise InvalidError(f"attributes are stored as JSON: {error}") from error
    _check_names(values)  # which the writer has found to be finite
    return text


def _check_names(values: Mapping[str, Any]) -> None:
    """Refuse names within values that JSON would turn into text: ``1`` and ``"1"`` would become one."""
    pending: list[Any] = [values]
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            for name in value:
                if not isinstance(name, str):
                    raise InvalidError(f"names within attributes must be str, not {type(name).__name__}: {name!r}")
            value = value.values()
        pending += [one for one in value if isinstance(one, (Mapping, list, tuple))]


def _plain(value: object) -> Any:
    if isinstance(value, (np.generic, np.ndarray)) and value.dtype.kind in "biufU" and value.dtype.char != "g":
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.dtype) and value.names is None and value.subdtype is None:
        return value.str
    raise TypeError(f"{type(value).__name__} is not JSON: {value!r}")
