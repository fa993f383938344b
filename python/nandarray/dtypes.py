"""NumPy dtypes as short texts, and back.

The engine stores opaque elements of a fixed size; what they mean is a text beside them, which this module writes and
reads. A plain dtype is its NumPy array-protocol string (``"<f4"``, ``"<M8[ns]"``, ``"|S5"``). A structured dtype is a
JSON object with the offset of every field, so that padding and overlapping fields survive::

    {"fields": [["x", "<f4", 0], ["v", {"base": "<f8", "shape": [3]}, 8]], "itemsize": 32}

Byte order is part of the text: a big-endian array stays big-endian on every machine. The short floats of ``ml_dtypes``
are their names (``"bfloat16"``), since NumPy's string has only their size; the package is imported where one is met.

Dtypes without a fixed meaning outside this process are refused with a reason: Python objects, variable-length strings,
other dtypes that another package registered, and ``longdouble``, whose layout depends on the machine.
"""

from __future__ import annotations

import json
from decimal import Decimal
from numbers import Number
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike

from nandarray.errors import CorruptError, InvalidError
from nandarray.optional import require

__all__ = [
    "check",
    "check_held",
    "computed",
    "decode",
    "encode",
    "has_ml",
    "is_ml",
    "is_short",
    "known",
    "not_held",
    "parse",
    "shown",
]

# Kinds whose array-protocol string says everything. "V" is here for plain void; structured void goes by its fields.
_PLAIN_KINDS = "biufcmMSUV"
_ITEM_BYTES_MAX = 1 << 16  # the engine's
_NUMPY_REGISTERED = 2  # np.dtype.isbuiltin of a dtype that a third party registered
_SCALES = "float8_e8m0fnu"  # powers of two alone
#: Names of the floats of ml_dtypes that can be stored.
_OF_ML = (
    "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", _SCALES,
)  # fmt: skip


def check(dtype: DTypeLike | None) -> np.dtype[Any]:
    """Make a dtype, without metadata, of anything that NumPy takes (None is float64), or say why it cannot be stored.

    >>> from nandarray import dtypes
    >>> dtypes.check("float32")
    dtype('float32')
    >>> dtypes.check(object)
    Traceback (most recent call last):
      ...
    nandarray.errors.InvalidError: dtype object holds Python objects; only fixed-size dtypes can be stored, or rows ...
    """
    parsed = parse(dtype)
    if parsed.base.itemsize > _ITEM_BYTES_MAX:  # before anything of that size is made
        raise InvalidError(f"elements must have from 1 to {_ITEM_BYTES_MAX} bytes, not {parsed.base.itemsize}")
    return decode(encode(parsed))


def parse(dtype: DTypeLike | None) -> np.dtype[Any]:
    """Make a dtype of anything that NumPy takes, storable or not; an InvalidError says that it takes this not."""
    try:
        return known(dtype)
    except ImportError:
        raise
    except Exception as error:  # NumPy has many kinds: also SyntaxError, RecursionError
        raise InvalidError(f"{dtype!r} is not a dtype: {error}") from error


def is_ml(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is one of the floats of ``ml_dtypes`` that can be stored, in the machine's byte order."""
    registered = dtype.isbuiltin == _NUMPY_REGISTERED and dtype.type.__module__.partition(".")[0] == "ml_dtypes"
    return registered and dtype.name in _OF_ML and dtype == np.dtype(dtype.type)


def has_ml(dtype: np.dtype[Any]) -> bool:
    """Return whether elements, or a field of them, are floats of ``ml_dtypes``, which files of other formats lack."""
    return is_ml(dtype.base) or any(has_ml(dtype.base[name]) for name in dtype.base.names or ())


def is_short(dtype: np.dtype[Any]) -> bool:
    """Return whether elements are floats of fewer than 32 bits, which programs compute with as float32.

    >>> import numpy as np
    >>> from nandarray import dtypes
    >>> dtypes.is_short(np.dtype("float16")), dtypes.is_short(np.dtype("float32"))
    (True, False)
    """
    return (dtype.kind == "f" and dtype.char == "e") or (is_ml(dtype) and dtype.name != _SCALES)


def computed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that programs compute with: little-endian, and float32 for floats of fewer than 32 bits."""
    return np.dtype("f4") if is_short(dtype) else dtype.newbyteorder("<")


def known(given: Any) -> np.dtype[Any]:
    """Make a dtype as NumPy does, also of the name of a float of ml_dtypes; NumPy's own errors say what is none."""
    of_ml = isinstance(given, str) and given in _OF_ML
    made: np.dtype[Any] = np.dtype(getattr(require("ml_dtypes", "ml"), given) if of_ml else given)
    return made


def encode(dtype: np.dtype[Any]) -> str:
    """Write a dtype as text: the array-protocol string of a plain dtype, JSON of any other.

    Structured dtypes may nest and hold subarrays.

    >>> import numpy as np
    >>> from nandarray import dtypes
    >>> dtypes.encode(np.dtype(">i2"))
    '>i2'
    >>> dtypes.encode(np.dtype([("x", "<f4"), ("n", "u1")]))
    '{"fields":[["x","<f4",0],["n","|u1",4]],"itemsize":5}'
    """
    form = _to_form(dtype)
    return form if isinstance(form, str) else json.dumps(form, separators=(",", ":"))


def decode(text: str) -> np.dtype[Any]:
    """Read the text that :func:`encode` wrote; refuse one that it would not write, as of Python objects.

    >>> from nandarray import dtypes
    >>> dtypes.decode("<M8[ns]")
    dtype('<M8[ns]')
    """
    try:
        made = _from_form(json.loads(text) if text.startswith("{") else text)
        # Bytes of a store must never become addresses of objects.
        _to_form(made)
        return made
    # NumPy reads a part of the text as Python.
    except (TypeError, ValueError, LookupError, AttributeError, SyntaxError, RecursionError) as error:
        raise CorruptError(f"{text!r} does not describe a dtype: {error}") from error


def shown(text: str) -> str:
    """Return the name of a dtype for a list of arrays, which shows the others if one has a text that is no dtype.

    >>> from nandarray import dtypes
    >>> dtypes.shown("<f4"), dtypes.shown("zz")
    ('float32', "'zz', which is no dtype")
    """
    try:
        return str(decode(text))
    except ImportError:
        return text
    except CorruptError:
        return f"{text!r}, which is no dtype"


def check_held(what: str, value: Any, element: np.ndarray[Any, Any]) -> None:
    """Refuse a value of which a cast to ``element``, an array of no dimensions, has left something out.

    NumPy's casts wrap, truncate and cut without a word. A float that is rounded to one of less precision is held.

    >>> import numpy as np
    >>> from nandarray import dtypes
    >>> dtypes.check_held("fill_value", np.int64(300), np.array(44, "i1"))
    Traceback (most recent call last):
      ...
    nandarray.errors.InvalidError: fill_value np.int64(300) is not held by int8, whose values are -128 to 127
    """
    dtype = element.dtype
    if dtype.names is not None:
        parts: Any = value if isinstance(value, tuple | np.void) else ()
        if len(parts) == len(dtype.names):
            for name, one in zip(dtype.names, parts, strict=True):
                if element[name].shape == ():
                    check_held(f"{what} of field {name!r}", one, np.asarray(element[name]))
        return
    given = np.asarray(value)
    if given.dtype.kind not in "biufcSUMm" or given.shape != ():
        given = np.asarray(value, dtype=object)
    if given.shape != ():
        return  # it is no one value: NumPy complains itself
    number = value if isinstance(value, str | bytes) else given.item()
    if given.dtype.kind in "USO" and dtype.kind not in "US":
        if dtype.kind in "fc" and isinstance(number, str | bytes):
            number = complex(number if isinstance(number, str) else number.decode())
        elif not isinstance(number, Number):
            return  # text that NumPy has read as an integer or a date, or another object: it complains itself
    if not _is_held(number, given, element):
        raise not_held(what, value, dtype)


def not_held(what: str, value: Any, dtype: np.dtype[Any]) -> InvalidError:
    """Return the error for a value that a dtype does not hold, with the values that it does."""
    return InvalidError(f"{what} {value!r} is not held by {dtype}{_range_of(dtype)}")


def _is_held(number: Any, given: np.ndarray[Any, Any], element: np.ndarray[Any, Any]) -> bool:
    kind = "f" if is_ml(element.dtype) else element.dtype.kind
    if kind in "US":
        return len(number if isinstance(number, str | bytes) else str(number)) == len(element.item())
    if kind in "mM":
        if given.dtype.kind != kind:
            return True  # a number of the dtype's own units
        return bool(np.isnat(given)) or bool(element.astype(given.dtype) == given)
    if given.dtype.kind in "mM":
        return False
    found = element.item()
    if kind in "fc":
        if isinstance(number, complex) and kind == "f" and number.imag:
            return False
        return bool(np.isfinite(found)) or not _is_finite(number)
    return bool(number == found)  # integers and booleans


def _is_finite(number: Any) -> bool:
    if isinstance(number, float | complex | np.generic):
        return bool(np.isfinite(number))
    return number.is_finite() if isinstance(number, Decimal) else True  # integers and fractions of any size


def _range_of(dtype: np.dtype[Any]) -> str:
    if dtype.kind in "iu":
        return f", whose values are {np.iinfo(dtype).min} to {np.iinfo(dtype).max}"
    if dtype.kind == "b":
        return ", whose values are 0 and 1"
    if is_ml(dtype):
        limits = require("ml_dtypes", "ml").finfo(dtype)
        return f", whose values are {float(limits.min):g} to {float(limits.max):g}"
    if dtype.kind in "fc":
        most = np.finfo(dtype).max
        return f", whose values are {-most:g} to {most:g}" + (" and their like of i" if dtype.kind == "c" else "")
    if dtype.kind in "US":
        return f", whose values have at most {dtype.itemsize // np.dtype(f'{dtype.kind}1').itemsize} characters"
    return ""


def _to_form(dtype: np.dtype[Any]) -> str | dict[str, Any]:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": _to_form(base), "shape": list(shape)}
    if is_ml(dtype):
        return dtype.name
    _refuse_unstorable(dtype)
    if dtype.fields is None or dtype.names is None:
        return dtype.str
    form: dict[str, Any] = {"fields": [], "itemsize": dtype.itemsize}
    for name in dtype.names:
        field_dtype, offset, *title = dtype.fields[name]
        if title and not isinstance(title[0], str):
            raise InvalidError(f"field {name!r} has the title {title[0]!r}; only str titles can be stored")
        form["fields"].append([name, _to_form(field_dtype), offset, *title])
    if dtype.isalignedstruct:
        form["aligned"] = True
    return form


def _refuse_unstorable(dtype: np.dtype[Any]) -> None:
    if dtype.kind == "T":
        raise InvalidError(
            f"dtype {dtype} has no fixed size; store a fixed-size string such as 'U20' or 'S20', or rows of"
            " any length by create_ragged"
        )
    if dtype.hasobject:
        raise InvalidError(
            f"dtype {dtype} holds Python objects; only fixed-size dtypes can be stored, or rows of any length by"
            " create_ragged"
        )
    if dtype.char in "gG":
        other = "float64" if dtype.char == "g" else "complex128"
        raise InvalidError(f"the layout of dtype {dtype} depends on the machine; store {other} instead")
    if dtype.isbuiltin == _NUMPY_REGISTERED or dtype.kind not in _PLAIN_KINDS:
        raise InvalidError(
            f"dtype {dtype} is not one of NumPy's own; store its bits, for example .view('u{dtype.itemsize}')"
        )
    if dtype.itemsize == 0:
        raise InvalidError(f"dtype {dtype!r} has itemsize 0; give the number of bytes or characters, as in 'S5'")


def _from_form(form: str | dict[str, Any]) -> np.dtype[Any]:
    if isinstance(form, str):
        return known(form)
    if "base" in form:
        return np.dtype((_from_form(form["base"]), tuple(form["shape"])))
    fields = form["fields"]
    spec: dict[str, Any] = {
        "names": [field[0] for field in fields],
        "formats": [_from_form(field[1]) for field in fields],
        "offsets": [field[2] for field in fields],
        "itemsize": form["itemsize"],
    }
    if any(len(field) > 3 for field in fields):
        spec["titles"] = [field[3] if len(field) > 3 else None for field in fields]
    dtype: np.dtype[Any] = np.dtype(cast(Any, spec), align=form.get("aligned", False))
    return dtype
