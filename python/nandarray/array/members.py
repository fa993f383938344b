"""Finding arrays and groups by name: the part of groups that only reads.

:class:`Members` is a mapping of what lies below one prefix. Creating, renaming and removing belong to
:class:`~nandarray.array.group.Group`, which every group is; the rules of names to :mod:`nandarray.array.names`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Never, SupportsIndex, TypeVar, overload

import numpy as np

from nandarray.array.array import Array
from nandarray.array.attributes import Attributes
from nandarray.array.creation import check_key
from nandarray.array.listing import RAGGED, groups_below
from nandarray.array.names import MARKER, check_new, full_name, is_hidden, is_unfinished, make_marker
from nandarray.array.pickling import reduce_group
from nandarray.array.tree import Tree
from nandarray.errors import ExistsError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from nandarray.array.group import Group
    from nandarray.array.ragged import Ragged
    from nandarray.array.store import Store

__all__ = ["Index", "Members"]

_T = TypeVar("_T")
#: Index expressions of arrays that no name is.
Index = SupportsIndex | slice | EllipsisType | tuple[Any, ...] | np.ndarray[Any, Any] | list[int] | list[bool] | None

# Above this many names a spelling suggestion would cost more than the look-up.
_SUGGEST_MAX = 2000


class Members:
    """Arrays and groups by name, below one prefix. Base of ``Group``."""

    def __init__(self, store: Store | None, path: str) -> None:
        self._root = store  # None in the store itself: a cycle would keep its file locked until the next collection
        self._path = path

    def __copy__(self) -> Group:
        return self._group(self._path)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_group(self)

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

    # An index of another kind than a name belongs to an array; a group raises at it. With that a type checker accepts
    # ``store["a"][1:3]``, and knows what it gives; for it, a ragged array has ``open_ragged``.
    @overload
    def __getitem__(self, name: str) -> Array | Group: ...
    @overload
    def __getitem__(self, name: Index) -> Never: ...
    def __getitem__(self, name: Any) -> Any:
        return self._find(name, None)

    @overload
    def get(
        self, name: str, default: None = None, *, encryption_key: bytes | bytearray | None = None
    ) -> Array | Group | None: ...
    @overload
    def get(self, name: str, default: _T, *, encryption_key: bytes | bytearray | None = None) -> Array | Group | _T: ...
    def get(self, name: str, default: Any = None, *, encryption_key: bytes | bytearray | None = None) -> Any:
        """Open an array or a group, or give a default where there is none.

        Parameters
        ----------
        name : str
            The name, relative to this group.
        default : object
            Value to return if there is no such name.
        encryption_key : bytes, optional
            The key of an encrypted array.

        Returns
        -------
        Array, Group or object
            The array or group of this name, or the default.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(6).reshape(2, 3)
        >>> store.get("b") is None, store.get("a").shape
        (True, (2, 3))
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

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(6).reshape(2, 3)
        >>> store.open_array("a")[1]
        array([3, 4, 5])
        """
        found = self._find(name, encryption_key)
        if not isinstance(found, Array):
            kind = "a group" if isinstance(found, Members) else "a ragged array, which get() and [name] open"
            raise ExistsError(f"{found.name!r} is {kind}, not an array")
        return found

    def open_group(self, name: str) -> Group:
        """Open a group.

        Parameters
        ----------
        name : str
            The name, relative to this group.

        Returns
        -------
        Group
            The group.

        Raises
        ------
        NotFoundError
            There is no such name.
        ExistsError
            The name is an array.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["run1/raw"] = np.arange(3)
        >>> store.open_group("run1").keys()
        ['raw']
        """
        found = self._find(name, None)
        if not isinstance(found, Members):
            raise ExistsError(
                f"{found.name!r} is {'an array' if isinstance(found, Array) else 'a ragged array'}, not a group"
            )
        return found

    def open_ragged(self, name: str) -> Ragged:
        """Open a ragged array: rows of different lengths.

        Parameters
        ----------
        name : str
            The name, relative to this group.

        Returns
        -------
        Ragged
            The ragged array.

        Raises
        ------
        NotFoundError
            There is no such name.
        ExistsError
            The name is an array or a group.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> names = store.create_ragged("names", ["ada", None, "grace"])
        >>> store.open_ragged("names")[0]
        'ada'
        """
        from nandarray.array.ragged import Ragged

        found = self._find(name, None)
        if not isinstance(found, Ragged):
            raise ExistsError(f"{found.name!r} is {'a group' if isinstance(found, Members) else 'an array'}")
        return found

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        try:
            path = self._join(name)
        except InvalidError:  # what is no name names nothing
            return False
        return path in self.store._engine or self.store._is_group(path)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __bool__(self) -> bool:
        return True  # an empty group is still a group; len() counts

    def keys(self) -> list[str]:
        """Return the names of the direct members, sorted.

        Returns
        -------
        list of str
            Names of arrays and groups.
        """
        return sorted({name.partition("/")[0] for name in self._below()} - {MARKER})

    def values(self) -> Iterator[Array | Group]:
        """Open everything that is directly inside.

        Yields
        ------
        Array or Group
            One after the other, in the order of their names.
        """
        return (self[name] for name in self.keys())

    def items(self) -> Iterator[tuple[str, Array | Group]]:
        """Open everything that is directly inside.

        Yields
        ------
        tuple of str and Array or Group
            Name and array or group.
        """
        return ((name, self[name]) for name in self.keys())

    def array_names(self) -> list[str]:
        """Return the names of all arrays below this group, at any depth.

        Returns
        -------
        list of str
            Names relative to this group, sorted.
        """
        return [name for name in self._below() if name.rpartition("/")[2] != MARKER]

    def tree(self) -> Tree:
        """Return an overview to print.

        Returns
        -------
        Tree
            Groups and arrays with their dtypes and shapes, as text or HTML.
        """
        return Tree(self)

    def visit(self, function: Callable[[str], _T | None]) -> _T | None:
        """Call a function with the name of everything below this group, groups before what is in them, as h5py does.

        Parameters
        ----------
        function : callable
            Function of a name relative to this group. A value other than None ends the walk.

        Returns
        -------
        object or None
            The value that ended the walk, None if there was none.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["run1/raw"] = np.zeros(3)
        >>> store.visit(print)
        run1
        run1/raw
        """
        return self._walk(function, lambda name: function(name))

    def visititems(self, function: Callable[[str, Array | Group], _T | None]) -> _T | None:
        """Call a function with the name of everything below this group, and with the array or group.

        Parameters
        ----------
        function : callable
            Function of a name relative to this group, and the Array or Group. A value other than None ends the walk.

        Returns
        -------
        object or None
            The value that ended the walk, None if there was none.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["run1/raw"] = np.zeros(3)
        >>> store.visititems(lambda name, one: print(name, type(one).__name__))
        run1 Group
        run1/raw Array
        """
        return self._walk(function, lambda name: function(name, self[name]))

    def _walk(self, function: object, call: Callable[[str], _T | None]) -> _T | None:
        if not callable(function):
            raise InvalidError(f"a function of names must be given, not {type(function).__name__}")
        for name in sorted({*groups_below(self), *self.array_names()}, key=lambda name: name.split("/")):
            if (found := call(name)) is not None:
                return found
        return None

    # --- Towards the engine ------------------------------------------------------------------------------------------

    @property
    def _prefix(self) -> str:
        return self._path + "/" if self._path else ""

    def _below(self) -> list[str]:
        """Names of all arrays below, relative to this group, with those that keep groups."""
        names = self.store._engine.names(self._prefix)
        return [name[len(self._prefix) :] for name in names if not is_unfinished(name)]

    def _join(self, name: str) -> str:
        """Make a full name of one that is relative to this group, or refuse it."""
        return full_name(self.store._engine, self._path, name)

    def _join_new(self, name: str) -> str:
        """Make the full name of something new, or refuse it."""
        return check_new(self._join(name))

    def _group(self, path: str) -> Group:
        """Return the group of a full name; given by :class:`Group`, which has what changes it."""
        raise NotImplementedError

    def _find(self, name: str, encryption_key: bytes | bytearray | None) -> Array | Group | Ragged:
        path = self._join(name)
        if not path:
            return self.store
        if path in self.store._engine:
            return Array(self.store, self.store._engine.open_space(path, encryption_key=check_key(encryption_key)))
        if self.store._is_group(path):
            group = self._group(path)
            if RAGGED not in group._load_attrs():
                return group
            from nandarray.array.ragged_creation import found_ragged

            return found_ragged(group, check_key(encryption_key))
        raise self._not_found(path)

    def _not_found(self, path: str) -> NotFoundError:
        message = f"no array or group named {path!r} in {self.store.path!r}"
        names = self.store._engine.names()
        if len(names) <= _SUGGEST_MAX:
            near = difflib.get_close_matches(path, [n for n in names if not is_hidden(n)], n=1)
            message += f"; did you mean {near[0]!r}?" if near else ""
        return NotFoundError(message)

    def _load_attrs(self) -> str:
        marker = self._prefix + MARKER
        return self.store._engine.open_space(marker).attrs if marker in self.store._engine else "{}"

    def _save_attrs(self, text: str) -> None:
        marker = self._prefix + MARKER
        if marker in self.store._engine:
            self.store._engine.open_space(marker).set_attrs(text)
        else:
            # The group may have gone since this handle was made, and an array have taken its name.
            self.store._check_above(marker)
            make_marker(self.store._engine, marker, text)
