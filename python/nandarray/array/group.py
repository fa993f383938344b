"""Groups: where arrays are found by name, and made.

The arrays of a store have names such as ``"run1/raw/image"``; what stands before a ``/`` is a group. A
:class:`Group` is a prefix and nothing else, so a group is there as long as an array is in it. A group that has
attributes, or that was created empty, is kept by a hidden array of no elements, ``<group>/.group``, whose attributes
are the group's; listings leave it out.

This module creates, renames and removes. Elsewhere: finding (:mod:`nandarray.array.members`), the rules of names
(:mod:`nandarray.array.names`), the file (:mod:`nandarray.array.store`, the group at the root), moving data
(:mod:`nandarray.array.array`), settling an array's options (:mod:`nandarray.array.creation`), groups that are one array
(:mod:`nandarray.array.ragged`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from nandarray import dtypes
from nandarray.array import masks
from nandarray.array.array import Array
from nandarray.array.attributes import to_json
from nandarray.array.creation import (
    OPTIONS,
    check_key,
    check_packable,
    check_word,
    fill_bytes,
    refuse_options,
    settle,
    write_all,
)
from nandarray.array.members import Index, Members
from nandarray.array.methods import missing
from nandarray.errors import ExistsError, InvalidError
from nandarray.index.shapes import check_shape

if TYPE_CHECKING:
    from nandarray.array.ragged import Ragged

__all__ = ["Group"]

#: Methods of groups in h5py and Zarr, and what there is here.
_CREATE = "it is called create here"
_ELSEWHERE = {
    "create_array": _CREATE, "create_dataset": _CREATE, "require_dataset": "it is called require_array here",
}  # fmt: skip
_OF_ARRAYS = "it is one of the arrays in a group, as in group['name']"


class Group(Members):
    """Arrays and groups by name, below one prefix. What ``store["group"]`` gives.

    A group is a mapping: ``group[name]`` opens an array or a group, assigning creates an array, ``del`` removes,
    iteration gives the names of what is directly inside.

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

    def _group(self, path: str) -> Group:
        return Group(self.store, path)

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
        **unknown: Never,
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
            Elements to write at once, which broadcast to ``shape``. If some are masked, the array ``name + ".mask"`` is
            made, too (:meth:`Array.masked`).
        building_block : int or sequence of int, optional
            Shape of the unit of storage; by default the engine derives it from the flash geometry.
        compression : str, optional
            ``"lz4"``, ``"zstd"`` or with a level ``"zstd:7"``; ``"+shuffle"`` or ``"+bitshuffle"`` may follow. For
            integers also ``"bitpack"`` and ``"varwidth"``.
        encryption_key : bytes, optional
            32 bytes; the same key is needed to open the array.
        fill_value : scalar
            Value of elements that were never written. The integer 0 stands for zero bytes under every dtype: an
            empty string, 1970, False. A value that the dtype does not hold is refused.
        attrs : mapping, optional
            First attributes.
        **unknown
            There are no other options; those of h5py and Zarr are answered with what they are called here.

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
        refuse_options(unknown)
        return self._create(
            self._join_new(name),
            shape,
            dtype,
            data=data,
            building_block=building_block,
            compression=compression,
            encryption_key=encryption_key,
            fill_value=fill_value,
            attrs=attrs,
        )

    def _create(
        self,
        path: str,
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
        """Create an array under a full name, which may be that of an import that is under way."""
        check_word("compression", compression)
        mask = masks.of_values(data)
        if mask is not None:
            attrs = {**({} if attrs is None else attrs), masks.MASK: masks.companion(path).rpartition("/")[2]}
        data, element, lengths = settle(path, data, shape, dtype)
        check_packable(compression, element)
        with self.store._lock:
            self.store._check_free(path)
            if mask is not None:
                self.store._check_free(masks.companion(path))
            space = self.store._engine.create(
                path,
                lengths,
                element.itemsize,
                dtypes.encode(element),
                building_block=None if building_block is None else check_shape(building_block, what="building_block"),
                compression=compression,
                encryption_key=check_key(encryption_key),
                fill=fill_bytes(fill_value, element),
                attrs=to_json({} if attrs is None else attrs),
            )
        array = Array(self.store, space)
        if data is not None:
            try:
                write_all(array, data)
                if mask is not None:
                    self._create(
                        masks.companion(path),
                        lengths,
                        bool,
                        data=mask,
                        building_block=building_block,
                        compression="bitpack",
                        encryption_key=encryption_key,
                    )
            except BaseException:
                self.store._engine.delete(path)
                raise
        return array

    @overload
    def __setitem__(self, name: str, data: ArrayLike) -> None: ...
    @overload
    def __setitem__(self, name: Index, data: ArrayLike) -> Never: ...
    def __setitem__(self, name: Any, data: ArrayLike) -> None:
        from nandarray.array.ragged import Ragged
        from nandarray.array.ragged_values import is_ragged

        path = self._join(name)
        if path in self.store._engine:
            raise ExistsError(f"array {path!r} exists; assign to store[{path!r}][...], or delete it first")
        if isinstance(data, Ragged) or is_ragged(data):
            self.create_ragged(name, data)
            return
        self.create(name, data=data)

    def create_ragged(
        self,
        name: str,
        data: Any = None,
        dtype: DTypeLike | None = None,
        *,
        compression: str | None = None,
        encryption_key: bytes | bytearray | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Ragged:
        """Create an array of rows of different lengths: text, bytes or lists, some of which may be missing.

        ``group[name] = data`` does so for Arrow's text, bytes and lists, NumPy's ``StringDType`` and objects.

        Parameters
        ----------
        name : str
            The name, relative to this group.
        data : sequence, numpy.ndarray, pyarrow.Array or Ragged, optional
            The first rows; None is a missing one. Anything with Arrow's PyCapsule interface is taken.
        dtype : dtype_like, optional
            ``str``, ``bytes``, or that of the lists' elements, with their own shape; by default that of the data.
        compression, encryption_key, attrs : optional
            As for :meth:`create`.

        Returns
        -------
        Ragged
            The array, which is there with all its rows, or not at all.

        Raises
        ------
        InvalidError
            The rows are of several kinds, or tell none; text that UTF-8 does not have.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store.create_ragged("hits", [[(1, 0.5)], None], dtype=[("id", "i4"), ("energy", "f8")])
        <nandarray.Ragged 'hits' list of [('id', '<i4'), ('energy', '<f8')] rows=2>
        >>> store["hits"][0]["energy"]
        array([0.5])
        """
        from nandarray.array.ragged_creation import create_ragged

        key = check_key(encryption_key)
        return create_ragged(self, name, data, dtype, compression=compression, encryption_key=key, attrs=attrs)

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

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store.create_group("run1", attrs={"by": "me"}).attrs["by"]
        'me'
        """
        path = self._join_new(name)
        with self.store._lock:
            self.store._check_free(path)
            group = Group(self.store, path)
            group._save_attrs(to_json({} if attrs is None else attrs))
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

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store.require_group("run1").name, store.require_group("run1").name
        ('run1', 'run1')
        """
        path = self._join(name)
        with self.store._lock:
            if path and not self.store._is_group(path):
                return self.create_group(name)
        return self.store if not path else Group(self.store, path)

    def require_array(
        self,
        name: str,
        shape: int | Sequence[int],
        dtype: DTypeLike,
        *,
        exact: bool = False,
        **create: Any,
    ) -> Array:
        """Open an array, or create it: h5py's ``require_dataset``.

        Parameters
        ----------
        name : str
            The name, relative to this group.
        shape : int or sequence of int
            The shape, which an array that is there must have.
        dtype : dtype_like
            The dtype; that of an array that is there must hold its values (:func:`numpy.can_cast`).
        exact : bool
            Whether an array that is there must have this very dtype.
        **create
            As for :meth:`create`, for an array that is not there. ``encryption_key`` opens one that is.

        Returns
        -------
        Array
            The array.

        Raises
        ------
        ExistsError
            There is a group of this name, or an array of another shape, or of a dtype that does not fit.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store.require_array("a", 3, "f8")[:] = 1
        >>> store.require_array("a", 3, "f4")[:]
        array([1., 1., 1.])
        """
        refuse_options(set(create) - set(OPTIONS))
        wanted, lengths = dtypes.check(dtype), check_shape(shape)
        with self.store._lock:
            if name not in self:
                return self.create(name, lengths, wanted, **create)
            array = self.open_array(name, encryption_key=create.get("encryption_key"))
        lengths = (*lengths, *wanted.shape)
        if array.shape != lengths:
            raise ExistsError(f"array {array.name!r} has shape {array.shape}, and not {lengths}")
        if array.dtype != wanted.base and (exact or not np.can_cast(wanted.base, array.dtype)):
            raise ExistsError(f"array {array.name!r} has dtype {array.dtype}, and not {wanted.base}")
        return array

    def copy(
        self,
        source: str | Array | Group | Ragged,
        dest: str | Group,
        name: str | None = None,
        *,
        encryption_key: bytes | bytearray | None = None,
    ) -> Array | Group | Ragged:
        """Copy an array, or a group with all that is in it, within the store or into another one.

        The copy keeps dtype, fill value, compression, encryption, building block and attributes. It takes little
        memory, and elements that were never written take no space in it. In a file it is there whole or not at all.

        Parameters
        ----------
        source : str, Array, Group or Ragged
            Array or group to copy; a name is relative to this group.
        dest : str or Group
            The new name, relative to this group; or a group, or a store, in which the copy is to lie.
        name : str, optional
            The name there; by default the last part of the source's. A whole store without a name becomes members of
            the group that it is copied into.
        encryption_key : bytes, optional
            The key of encrypted arrays, which are encrypted with it there, too.

        Returns
        -------
        Array, Group or Ragged
            The copy.

        Raises
        ------
        NotFoundError
            There is no such source.
        ExistsError
            The new name is taken.
        WrongKeyError
            An array is encrypted, with another key.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["run1/raw"] = np.arange(3)
        >>> other = nandarray.open("other.nand", mode="w")
        >>> store.copy("run1", other)
        <nandarray.Group 'run1' in 'other.nand', 1 inside>
        >>> store.copy("run1/raw", "kept")[:]
        array([0, 1, 2])
        """
        from nandarray.array.copying import copy

        return copy(self, source, dest, name, encryption_key)

    def move(self, source: str, dest: str) -> None:
        """Rename an array or a group: :meth:`rename`, by h5py's name.

        Parameters
        ----------
        source : str
            The present name, relative to this group.
        dest : str
            The new name, relative to this group.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(6).reshape(2, 3)
        >>> store.move("a", "run1/a")
        >>> store.array_names()
        ['run1/a']
        """
        self.rename(source, dest)

    def __delitem__(self, name: str) -> None:
        path = self._join(name)
        if not path:
            raise InvalidError("the root group cannot be deleted")
        with self.store._lock:
            if path in self.store._engine:
                mask = masks.own_mask(self.store, path)
                self.store._engine.together(delete=[path] if mask is None else [path, mask])
                return
            inside = self.store._engine.names(path + "/")
            if not inside:
                raise self._not_found(path)
            self.store._engine.together(delete=inside)

    def rename(self, old: str, new: str) -> None:
        """Rename an array, or a group with all that is in it, by one command.

        Parameters
        ----------
        old : str
            The present name, relative to this group.
        new : str
            The new name, relative to this group.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(6).reshape(2, 3)
        >>> store.rename("a", "b")
        >>> store.keys()
        ['b']
        """
        source, target = self._join(old), self._join_new(new)
        with self.store._lock:
            inside = [source] if source in self.store._engine else self.store._engine.names(source + "/")
            if not inside or not source:
                raise self._not_found(source)
            if target == source:
                return
            if target.startswith(source + "/"):
                raise InvalidError(f"{source!r} cannot move into itself, to {target!r}")
            self.store._check_free(target)
            rename, attrs = [(one, target + one[len(source) :]) for one in inside], []
            if inside == [source] and (mask := masks.own_mask(self.store, source)):
                self.store._check_free(masks.companion(target))
                rename.append((mask, masks.companion(target)))
                attrs.append((target, masks.attrs_under(self.store._engine.describe(source)["attrs"], target)))
            self.store._engine.together(rename=rename, attrs=attrs)

    # --- For people --------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        if self.store.closed:
            return f"<nandarray.Group {self.name!r} (closed)>"
        return f"<nandarray.Group {self.name!r} in {self.store.path!r}, {len(self)} inside>"

    def _repr_html_(self) -> str:
        return repr(self) if self.store.closed else self.tree()._repr_html_()

    if not TYPE_CHECKING:  # a type checker knows which attributes there are

        def __getattr__(self, name: str) -> Never:
            raise missing(self, name, _ELSEWHERE.get(name, _OF_ARRAYS if hasattr(np.ndarray, name) else None))

    def _ipython_key_completions_(self) -> list[str]:
        return self.keys()
