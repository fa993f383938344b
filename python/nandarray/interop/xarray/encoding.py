"""Meaning of ``encoding=`` of :func:`nandarray.from_xarray`; values in the encoding that a store already has.

:func:`split` sorts a variable's wishes into those that xarray's coders obey (``dtype``, ``scale_factor``, ``units``,
...) and those that ``store.create`` obeys. Names that other backends have for the latter are translated (``chunks``,
``zlib``, ``compressor``, ...); what nothing obeys is refused, never passed over.

:func:`encode_as_stored` encodes variables for arrays that are there: with their encoding, exactly, or not at all.
NumPy's casts wrap, truncate and round without a word; here a value that the stored type cannot hold is an error with
its variable.

It writes nothing, and knows nothing of groups.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from xarray import Variable, conventions
from xarray.coding.common import lazy_elemwise_func
from xarray.coding.times import decode_cf_datetime

from nandarray import dtypes
from nandarray.array.attributes import DIMENSIONS
from nandarray.errors import InvalidError
from nandarray.interop.convert.attributes import decode

__all__ = ["check_values", "encode_as_stored", "fixed_size", "same_value", "split"]

#: Keys of ``encoding=`` that xarray's coders read.
_CODING = (
    "dtype",
    "_FillValue",
    "missing_value",
    "scale_factor",
    "add_offset",
    "units",
    "calendar",
    "_Unsigned",
    "coordinates",
    "grid_mapping",
)
#: Keys of ``encoding=`` that ``store.create`` takes under the same names.
_CREATE = ("building_block", "compression", "encryption_key", "fill_value")
#: Keys of ``encoding=`` that are translated for ``store.create``.
_TRANSLATED = (
    "chunks",
    "chunksizes",
    "zlib",
    "complevel",
    "shuffle",
    "fletcher32",
    "contiguous",
    "compressor",
    "compressors",
    "filters",
)
#: Attributes that say how values are packed.
_PACKING = ("scale_factor", "add_offset", "_FillValue", "missing_value")


# --- Wishes -----------------------------------------------------------------------------------------------------------


def split(name: str, wishes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sort the encoding of a variable into what xarray's coders obey and what ``store.create`` obeys."""
    if unknown := [key for key in wishes if key not in (*_CODING, *_CREATE, *_TRANSLATED)]:
        known = ", ".join((*_CODING, *_CREATE, *_TRANSLATED))
        raise InvalidError(f"encoding of {name!r} has {', '.join(map(repr, unknown))}; what is obeyed is {known}")
    coding = {key: value for key, value in wishes.items() if key in _CODING}
    create = {key: value for key, value in wishes.items() if key in _CREATE}
    blocks = {key: wishes[key] for key in ("building_block", "chunks", "chunksizes") if wishes.get(key) is not None}
    shapes = {tuple(np.atleast_1d(block).tolist()) for block in blocks.values()}
    if len(shapes) > 1:
        said = " and ".join(f"{key}={block!r}" for key, block in blocks.items())
        raise InvalidError(f"encoding of {name!r} asks for different blocks: {said}")
    if shapes:
        create["building_block"] = shapes.pop()
    if wishes.get("contiguous"):
        raise InvalidError(f"encoding of {name!r}: contiguous=True; arrays are stored in building blocks")
    if _listed(wishes.get("filters")):
        raise InvalidError(f"encoding of {name!r}: filters are not applied; say compression='zstd+shuffle' or the like")
    asked = {
        "compression": wishes.get("compression"),
        "zlib": _of_netcdf(name, wishes),
        "compressor": _of_zarr(name, wishes.get("compressor")),
        "compressors": _of_zarr(name, wishes.get("compressors")),
    }
    asked = {key: value for key, value in asked.items() if value is not None}
    if len(set(asked.values())) > 1:
        said = " and ".join(f"{key} ({value})" for key, value in asked.items())
        raise InvalidError(f"encoding of {name!r} asks for different compression: {said}")
    if asked:
        create["compression"] = next(iter(asked.values()))
    elif any(key in wishes and wishes[key] in (None, False, ()) for key in ("zlib", "compressor", "compressors")):
        create["compression"] = None
    return coding, create


def _listed(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)


def _of_netcdf(name: str, wishes: Mapping[str, Any]) -> str | None:
    """Translate NetCDF's deflate to zstd: lossless, with levels, too. There, shuffling is on unless switched off."""
    if not wishes.get("zlib"):
        if wishes.get("shuffle") or (wishes.get("complevel") and "zlib" not in wishes):
            raise InvalidError(f"encoding of {name!r} has shuffle or complevel, and nothing that compresses: zlib=True")
        return None
    level = wishes.get("complevel", 4)
    if level == 0:
        return None
    return f"zstd:{int(level)}" + ("+shuffle" if wishes.get("shuffle", True) else "")


def _of_zarr(name: str, asked: Any) -> str | None:
    """Return a Zarr compressor (of numcodecs, or a codec of format 3) as the same method here."""
    codecs = _listed(asked)
    if not codecs:
        return None
    if isinstance(asked, str):
        return asked
    if len(codecs) > 1:
        raise InvalidError(f"encoding of {name!r}: {len(codecs)} compressors one after the other are not possible")
    (codec,) = codecs
    settings = _settings(codec)
    kind = str(settings.get("id") or settings.get("name") or type(codec).__name__).lower()
    kind = kind.rpartition(".")[2]
    inner = settings.get("configuration")
    if isinstance(inner, Mapping):
        settings = dict(inner)
    level = settings.get("level", settings.get("clevel"))
    if kind == "zstd":
        return "zstd" if not level else f"zstd:{level}"  # 0 is zstd's own default
    if kind == "lz4":
        return "lz4"
    if kind == "blosc" and settings.get("cname") in ("lz4", "zstd"):
        method = "lz4" if settings["cname"] == "lz4" else f"zstd:{level}" if level else "zstd"
        shuffle = settings.get("shuffle", 0)
        shuffle = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}.get(str(shuffle), shuffle)
        return method + {1: "+shuffle", -1: "+shuffle", 2: "+bitshuffle"}.get(shuffle, "")
    raise InvalidError(
        f"encoding of {name!r}: compressor {codec!r} has no like here; there are lz4, zstd, and Blosc with one of them"
    )


def _settings(codec: Any) -> dict[str, Any]:
    for method in ("get_config", "to_dict"):
        if hasattr(codec, method):
            return dict(getattr(codec, method)())
    return dict(codec) if isinstance(codec, Mapping) else {}


# --- Values -----------------------------------------------------------------------------------------------------------


def fixed_size(variable: Variable, name: str) -> Variable:
    """Give text of variable length a fixed width; refuse other objects.

    Text that is missing is stored as the ``_FillValue`` that the variable has, and reads as missing.
    """
    if variable.dtype.kind not in "OT":
        return variable
    values = np.array(variable.values, dtype=object)
    fill = variable.encoding.get("_FillValue", variable.attrs.get("_FillValue"))
    if isinstance(fill, str):
        values[pd.isna(values)] = fill
    for item in values.ravel():
        if not isinstance(item, str):
            kinds = ", ".join(sorted({type(item).__name__ for item in values.ravel()}))
            raise InvalidError(
                f"variable {name!r} holds Python objects ({kinds}); only fixed-size dtypes can be stored"
            )
        if item.endswith("\0"):
            raise InvalidError(
                f"variable {name!r} has the text {item!r}, which ends with NUL: text of a fixed width does not keep it"
            )
    return Variable(variable.dims, values.astype(np.str_), variable.attrs, variable.encoding)


def check_values(variable: Variable, name: str, *, exact: bool = False) -> Variable:
    """Have values refused, when they are computed, that the dtype of the variable's encoding cannot hold.

    With ``exact``, fractions are refused even where nothing is scaled: what is there is integers. The variable is
    returned, or one that looks at its values as they pass.
    """
    if variable.dtype.kind in "mM":
        return _as_fine_as_units(variable, name)
    encoding = variable.encoding
    wanted = encoding.get("dtype")
    _check_fill(name, encoding, variable.dtype if wanted is None or wanted is str else np.dtype(wanted))
    return _packed(_checked_range(variable, name, exact=exact), name)


def _checked_range(variable: Variable, name: str, *, exact: bool) -> Variable:
    encoding, wanted = variable.encoding, variable.encoding.get("dtype")
    if wanted is None or wanted is str or variable.dtype.kind not in "iuf" or "_Unsigned" in encoding:
        return variable
    target = np.dtype(wanted)
    if target.kind not in "iuf" or target == variable.dtype:
        return variable
    scale, offset = (
        float(np.asarray(encoding.get(key, of)).item()) for key, of in (("scale_factor", 1), ("add_offset", 0))
    )
    scaled = "scale_factor" in encoding or "add_offset" in encoding
    if np.can_cast(variable.dtype, target, "safe") and not scaled:
        return variable
    missing = encoding.get("_FillValue") is not None or encoding.get("missing_value") is not None
    check = partial(
        _within, name=name, target=target, scale=scale, offset=offset, missing=missing, exact=exact and not scaled
    )
    if isinstance(variable._data, np.ndarray):
        check(variable._data)
        return variable
    data = lazy_elemwise_func(variable._data, check, variable.dtype)
    return Variable(variable.dims, data, variable.attrs, encoding, fastpath=True)


def _packed(variable: Variable, name: str) -> Variable:
    """Pack values by ``scale_factor`` and ``add_offset`` in the precision of a double.

    xarray packs in the data's precision or another, by what else the encoding says. Here an append, whose encoding is
    read from the store, has to give what a first write gives, to the bit.
    """
    encoding = dict(variable.encoding)
    how = {key: encoding.pop(key) for key in ("scale_factor", "add_offset") if encoding.get(key) is not None}
    if not how or variable.dtype.kind not in "iuf":
        return variable
    if encoding.get("dtype") is None:  # as xarray chooses it
        nothing = Variable(("none",), np.empty(0, variable.dtype), {}, dict(variable.encoding))
        encoding["dtype"] = conventions.encode_cf_variable(nothing, name=name).dtype
    scale, offset = (float(np.asarray(how.get(key, of)).item()) for key, of in (("scale_factor", 1), ("add_offset", 0)))

    def pack(values: Any) -> Any:
        return (np.asarray(values, np.float64) - offset) / scale

    data = variable._data
    data = pack(data) if isinstance(data, np.ndarray) else lazy_elemwise_func(data, pack, np.dtype(np.float64))
    return Variable(variable.dims, data, {**how, **variable.attrs}, encoding, fastpath=True)


def _check_fill(name: str, encoding: Mapping[str, Any], target: np.dtype[Any]) -> None:
    """Refuse a value for missing elements that the stored dtype cannot hold."""
    if target.kind not in "iufc" or "_Unsigned" in encoding:
        return
    for key in ("_FillValue", "missing_value"):
        if encoding.get(key) is None:
            continue
        for value in np.atleast_1d(np.asarray(encoding[key])):
            with np.errstate(all="ignore"):
                element = value.astype(target, casting="unsafe") if value.dtype.kind in "biufc" else None
            if element is not None:
                dtypes.check_held(f"variable {name!r}: {key}", value, np.asarray(element))


def _as_fine_as_units(variable: Variable, name: str) -> Variable:
    """Give times and durations the resolution of their units; xarray makes those NaT whose units are finer."""
    word = str(variable.encoding.get("units", "")).partition(" ")[0].lower().removesuffix("s")
    target = {"millisecond": "ms", "microsecond": "us", "nanosecond": "ns"}.get(word)
    own = np.datetime_data(variable.dtype)[0]
    order = ("s", "ms", "us", "ns")
    if target is None or own not in order or order.index(own) >= order.index(target):
        return variable
    times = _converted(variable, name, np.dtype(f"{variable.dtype.kind}8[{target}]"))
    return Variable(variable.dims, times, variable.attrs, variable.encoding, fastpath=True)


def _within(
    values: Any, *, name: str, target: np.dtype[Any], scale: float, offset: float, missing: bool, exact: bool
) -> Any:
    found = np.asarray(values)
    finite = np.isfinite(found) if found.dtype.kind == "f" else np.ones(found.shape, bool)
    if target.kind == "f":
        low, high = -float(np.finfo(target).max), float(np.finfo(target).max)
    else:
        bounds = np.iinfo(target)
        low, high = float(bounds.min) - 0.5, float(bounds.max) + 0.5
        none = np.isnan(found) if found.dtype.kind == "f" else ~finite
        if none.any() and not missing:
            raise InvalidError(f"variable {name!r} has NaN, its stored dtype {target} none, and it has no _FillValue")
        if (~finite & ~none).any():
            raise InvalidError(f"variable {name!r} has an infinite value, which its stored dtype {target} cannot hold")
        if exact and found.dtype.kind == "f" and (broken := found[finite & (found != np.round(found))]).size:
            raise InvalidError(f"variable {name!r}, stored as {target}, must have whole values, not {broken.flat[0]}")
    packed = found[finite]
    if packed.size:
        ends: list[float]
        if packed.dtype.kind in "iu" and scale == 1 and offset == 0:
            ends = [int(packed.min()), int(packed.max())]  # float64 would round what is near 2**63
            if target.kind in "iu":
                low, high = int(np.iinfo(target).min), int(np.iinfo(target).max)
        else:
            ends = sorted((float(end) - offset) / scale for end in (packed.min(), packed.max()))
        if ends[0] < low or ends[1] > high:
            raise InvalidError(
                f"variable {name!r} has values from {packed.min()} to {packed.max()}, which its stored dtype {target}"
                f" (scale_factor {scale:g}, add_offset {offset:g}) cannot hold"
            )
    return values


def encode_as_stored(variables: Mapping[str, Variable], stored: Mapping[str, Variable]) -> dict[str, Variable]:
    """Encode variables as the arrays of the same names are encoded, or refuse them.

    ``stored`` has of each its dimensions, dtype, and attributes as they are. The encoded variables have the stored
    dtypes; those of Dask arrays are still lazy.
    """
    raw = {name: any(key in variable.attrs for key in _PACKING) for name, variable in variables.items()}
    decoded, _, _ = conventions.decode_cf_variables(
        {name: stored[name] for name in variables},
        {},
        concat_characters=False,
        mask_and_scale={name: not raw[name] for name in variables},
        decode_times={name: _is_time(variable) for name, variable in variables.items()},
        decode_timedelta={name: variable.dtype.kind == "m" for name, variable in variables.items()},
    )
    ready: dict[Hashable, Variable] = {}
    done: dict[str, Variable] = {}
    for name, variable in variables.items():
        _check_kind(name, variable, decoded[name])
        _check_units(name, variable, stored[name], raw=raw[name])
        if stored[name].dtype.kind in "mM":  # as it is, not in CF's way
            done[name] = _exact_times(name, variable, stored[name].dtype)
            continue
        encoding = {key: value for key, value in decoded[name].encoding.items() if key in _CODING}
        encoding.pop("coordinates", None)
        encoding.pop("grid_mapping", None)
        attrs = {key: value for key, value in variable.attrs.items() if key not in encoding}
        if not encoding.get("dtype"):
            encoding["dtype"] = stored[name].dtype
        coded = Variable(variable.dims, variable._data, attrs, encoding, fastpath=True)
        sized = coded if _is_time(coded) else fixed_size(coded, name)
        ready[name] = check_values(sized, name, exact=True)
        if variable.dtype.kind in "OTUS":
            ready[name].encoding.pop("dtype", None)
    with warnings.catch_warnings():  # that other units would be taken: those are refused below
        warnings.filterwarnings("ignore", "Times can't be serialized|Timedeltas can't be serialized")
        encoded, _ = conventions.cf_encoder(ready, {})
    done |= {str(name): _as_stored(str(name), one, stored[str(name)]) for name, one in encoded.items()}
    return {name: done[name] for name in variables}


def _is_time(variable: Variable) -> bool:
    if variable.dtype.kind == "O":
        from xarray.core.common import contains_cftime_datetimes

        return bool(contains_cftime_datetimes(variable))
    return bool(variable.dtype.kind == "M")


def _check_kind(name: str, variable: Variable, decoded: Variable) -> None:
    """Refuse, say, numbers where times are."""
    kinds = {"i": "number", "u": "number", "f": "number", "c": "complex", "b": "bool", "M": "time", "m": "timedelta"}
    kinds |= {"U": "text", "T": "text", "S": "bytes", "V": "structure"}

    def kind(one: Variable) -> str:
        if one.dtype.kind == "O":
            return "time" if _is_time(one) else "text"
        return kinds[one.dtype.kind]

    if kind(variable) != kind(decoded):
        raise InvalidError(
            f"variable {name!r} is of dtype {variable.dtype} ({kind(variable)}), and {decoded.dtype} ({kind(decoded)})"
            " in the store"
        )


def _exact_times(name: str, variable: Variable, target: np.dtype[Any]) -> Variable:
    return Variable(variable.dims, _converted(variable, name, target), variable.attrs)


def _converted(variable: Variable, name: str, target: np.dtype[Any]) -> Any:
    """Return the data of times in another resolution, lazily where it is lazy."""
    convert = partial(_same_times, name=name, target=target)
    data = variable._data
    return convert(data) if isinstance(data, np.ndarray) else lazy_elemwise_func(data, convert, target)


def _same_times(values: Any, *, name: str, target: np.dtype[Any]) -> Any:
    given = np.asarray(values)
    found = given.astype(target)
    if ((found.astype(given.dtype) != given) & ~np.isnat(given)).any():
        raise InvalidError(f"variable {name!r} is stored as {target}, which cannot say these times exactly")
    return found


def _check_units(name: str, variable: Variable, stored: Variable, *, raw: bool) -> None:
    """Refuse values that say of themselves that they mean something else."""
    times = "since" in str(stored.attrs.get("units")) or str(stored.attrs.get("dtype")).startswith("timedelta64")
    if times and variable.dtype.kind in "iuf" and "units" not in variable.attrs:
        raise InvalidError(
            f"variable {name!r} has numbers without units, and times in the store, as {stored.attrs.get('units')!r}"
        )
    for key in ("units", "calendar", *(_PACKING if raw else ())):
        if key not in variable.attrs or (key not in stored.attrs and key in ("units", "calendar")):
            continue
        given, there = variable.attrs[key], stored.attrs.get(key)
        if not same_value(given, there):
            raise InvalidError(f"variable {name!r} has the attribute {key}={given!r}, and {there!r} in the store")


def same_value(one: Any, other: Any) -> bool:
    """Whether two attributes say the same; NaN is as good as NaN."""
    if isinstance(one, str) or isinstance(other, str) or one is None or other is None:
        return bool(np.all(one == other)) if type(one) is type(other) else False
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape:
        return False
    same = one == other
    if one.dtype.kind == "f" and other.dtype.kind == "f":
        same = same | (np.isnan(one) & np.isnan(other))
    return bool(np.all(same))


def _as_stored(name: str, encoded: Variable, stored: Variable) -> Variable:
    """Cast an encoded variable to the stored dtype, if that changes no value."""
    attrs = decode(dict(stored.attrs), drop=(DIMENSIONS,))
    units, calendar = (encoded.attrs.get(key) for key in ("units", "calendar"))
    if units != attrs.get("units") and units is not None and "units" in attrs and "since" in str(units):
        two = np.array([0, 1])
        ours = decode_cf_datetime(two, units, calendar or "standard")
        if not np.array_equal(ours, decode_cf_datetime(two, attrs["units"], attrs.get("calendar") or "standard")):
            raise InvalidError(
                f"variable {name!r} is stored as {stored.dtype} {attrs['units']!r}, which cannot say these times"
                f" exactly: they would need {units!r}"
            )
    elif units is not None and "units" in attrs and units != attrs["units"]:
        raise InvalidError(
            f"variable {name!r} is stored as {stored.dtype} in {attrs['units']!r}, and would need {units!r}"
        )
    if encoded.dtype == stored.dtype:
        return encoded
    if encoded.dtype.kind == stored.dtype.kind and stored.dtype.kind in "US":
        if encoded.dtype.itemsize <= stored.dtype.itemsize:
            return encoded.astype(stored.dtype)
        width = int(np.char.str_len(np.asarray(encoded.values)).max(initial=0))
        room = stored.dtype.itemsize // np.dtype(f"{stored.dtype.kind}1").itemsize
        if width > room:
            raise InvalidError(
                f"variable {name!r} has text of {width} characters, and is stored with {room} ({stored.dtype})"
            )
        return encoded.astype(stored.dtype)
    if not np.can_cast(encoded.dtype, stored.dtype, "safe"):
        raise InvalidError(
            f"variable {name!r} is of dtype {encoded.dtype} when encoded, and {stored.dtype} in the store"
        )
    return encoded.astype(stored.dtype)
