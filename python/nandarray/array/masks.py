"""Masked arrays: an array of elements and an array of its mask, which an attribute of the former names.

The attribute ``_MASK`` has the mask's name relative to the array's group. ``store["x"] = masked`` makes ``x`` and
``x.mask``, of booleans, True where an element is masked; what lies under the mask is kept, too. Reading an array gives
its elements; :meth:`Array.masked` gives both. An array without ``_MASK`` is masked where it equals its attribute
``_FillValue`` or ``missing_value``, as xarray has it.

An ordinary assignment changes elements and no mask; of a masked array it is refused, since the mask would be lost.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.array.attributes import from_json, to_json
from nandarray.errors import CorruptError, InvalidError, NotFoundError
from nandarray.index import buffers

if TYPE_CHECKING:
    from nandarray.array.array import Array
    from nandarray.array.store import Store

__all__ = ["MASK", "attrs_under", "companion", "mask_of", "of_values", "own_mask", "read_masked", "write_masked"]

#: The attribute that names the array of the mask.
MASK = "_MASK"
#: Attributes whose value stands for a missing element.
_FILLS = ("_FillValue", "missing_value")


def of_values(values: Any) -> np.ndarray[Any, Any] | None:
    """Return the mask of values; None if no element is masked. Fields that are masked one by one are refused."""
    if not buffers.any_masked(values):
        return None
    mask = np.ma.getmaskarray(values)
    if mask.dtype.names:
        raise InvalidError("the fields of records are masked one by one, and a mask has one value for each element")
    return mask


def companion(name: str) -> str:
    """Return the name of the mask of a new array."""
    return f"{name}.mask"


def own_mask(store: Store, path: str) -> str | None:
    """Return the full name of the mask that was made with an array, and goes where it goes; None if it has none."""
    with suppress(CorruptError):  # attributes that cannot be read name nothing
        named = from_json(store._engine.describe(path)["attrs"]).get(MASK)
        if named == companion(path).rpartition("/")[2] and companion(path) in store._engine:
            return companion(path)
    return None


def attrs_under(attrs: str, path: str) -> str:
    """Return the attributes, as JSON, of an array whose mask is made with it, for another full name."""
    return to_json({**from_json(attrs), MASK: companion(path).rpartition("/")[2]})


def mask_of(array: Array) -> Array | None:
    """Return the array of an array's mask; None if the attribute names none.

    Raises
    ------
    NotFoundError
        There is no such array.
    InvalidError
        It is no mask of this array: it has another shape, or no truth values.
    """
    name = array.attrs.get(MASK)
    if name is None:
        return None
    if not isinstance(name, str):
        raise CorruptError(f"attribute {MASK!r} of {array.name!r} must be a name, not {name!r}")
    group = array.name.rpartition("/")[0]
    path = f"/{group}/{name}" if group and not name.startswith("/") else f"/{name.lstrip('/')}"
    try:
        mask = array.store.open_array(path)
    except NotFoundError as error:
        raise NotFoundError(f"the mask of {array.name!r}: {error}") from None
    if mask.shape != array.shape or mask.dtype != np.bool_:
        raise InvalidError(
            f"the mask of {array.name!r}, {mask.name!r}, must have shape {array.shape} and bool, not {mask.shape} and"
            f" {mask.dtype}: resize it, too"
        )
    return mask


def read_masked(array: Array, selection: Any) -> Any:
    """Read elements with their mask: :meth:`Array.masked`."""
    mask = mask_of(array)
    found = array.read(selection)
    values = np.asarray(found)
    hidden: Any = np.ma.nomask
    if mask is not None:
        hidden = np.asarray(mask.read(selection))
    else:
        for name in _FILLS:
            if (fill := array.attrs.get(name)) is not None:
                hidden = np.ma.mask_or(
                    hidden, _equal(values, fill, f"attribute {name!r} of {array.name!r}"), shrink=False
                )
    whole: Any = np.ma.MaskedArray(values, mask=hidden)
    return whole if isinstance(found, np.ndarray) else whole[()]


def _equal(values: np.ndarray[Any, Any], fill: Any, what: str) -> np.ndarray[Any, Any]:
    """Return where elements are a fill value; NaN is NaN here."""
    if np.ndim(fill):
        raise InvalidError(f"{what} is {fill!r}: must be one value")
    if values.dtype.kind in "biu" and isinstance(fill, float | np.floating) and not fill.is_integer():
        return np.zeros(values.shape, bool)
    try:
        value = buffers.as_source(fill, values.dtype)
    except InvalidError as error:
        raise InvalidError(f"{what}: {error}") from None
    equal = values == value
    if values.dtype.kind in "fcMm":
        equal |= np.isnan(values) & np.isnan(value)
    return np.asarray(equal)


def write_masked(array: Array, selection: Any, values: Any) -> None:
    """Write elements with their mask: :meth:`Array.write_masked`."""
    mask = mask_of(array)
    hidden = of_values(values)
    if mask is None:
        raise InvalidError(
            f"array {array.name!r} has no mask: attribute {MASK!r} names none; store[name] = masked_array makes both"
        )
    if own_mask(array.store, array.name.strip("/")) is None:
        raise InvalidError(
            f"array {array.name!r} has the mask of another array, {mask.name!r}: attribute {MASK!r} must name "
            f"{companion(array.name)!r}"
        )
    if values is np.ma.masked:  # it has no element to write: those that are there are hidden, as in NumPy
        mask.write(selection, np.True_)
        return
    with array.store._lock:
        array.write(selection, np.ma.getdata(values))
        mask.write(selection, False if hidden is None else hidden)
