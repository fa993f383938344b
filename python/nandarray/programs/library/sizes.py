"""Definitions for the C preprocessor from the parameters of ready-made programs: record sizes, lists, port names.

Each function takes the dtype and checked parameters; what does not fit together is an
:class:`~nandarray.InvalidError`. It knows names of macros, not where files are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nandarray.errors import InvalidError

__all__ = ["COLUMNS_MAX", "Defines", "Values", "row_dtype"]

COLUMNS_MAX = 64

Values = Mapping[str, Any]
Defines = Callable[[np.dtype[Any] | None, Values], Mapping[str, Any]]


def _ports(prefix: str, count: int, size: int) -> str:
    return ", ".join(
        json.dumps({"name": f"{prefix}{number}", "dtype": "uint8", "record_bytes": size}) for number in range(count)
    )


def _size(dtype: np.dtype[Any] | None) -> int:
    assert dtype is not None
    return dtype.itemsize


def histogram(_dtype: np.dtype[Any] | None, values: Values) -> Mapping[str, Any]:
    bins = values["bins"]
    return {"BINS": bins, "STATE_BYTES": 8 * (bins + 1), "RESULT_BYTES": 8 * bins}


def filter_rows(dtype: np.dtype[Any] | None, values: Values) -> Mapping[str, Any]:
    row, offset = values["row_bytes"], values["offset"]
    if offset + _size(dtype) > row:
        raise InvalidError(
            f"filter_rows: an element of {_size(dtype)} bytes at {offset} must be within the row of {row} bytes"
        )
    return {"ROW_BYTES": row, "OFFSET": offset}


def select_(_dtype: np.dtype[Any] | None, values: Values) -> Mapping[str, Any]:
    row, columns = values["row_bytes"], [(int(offset), int(size)) for offset, size in values["columns"]]
    if not 1 <= len(columns) <= COLUMNS_MAX:
        raise InvalidError(f"select: columns must be from 1 to {COLUMNS_MAX}, not {len(columns)}")
    for offset, size in columns:
        if offset < 0 or size < 1 or offset + size > row:
            raise InvalidError(f"select: the column of {size} bytes at {offset} must be within the row of {row} bytes")
    unit = next(unit for unit in (8, 4, 2, 1) if all(number % unit == 0 for number in (row, *sum(columns, ()))))
    listed = ", ".join(f"{{{offset}, {size}}}" for offset, size in columns)
    total = sum(size for _, size in columns)
    return {"ROW_BYTES": row, "COLUMNS": listed, "RESULT_BYTES": total, "UNIT": unit}


_KINDS = {"skip": "SKIP", "int": "INT", "decimal": "DECIMAL", "date": "DATE", "float": "FLOAT", "bytes": "BYTES"}
_DECIMALS_MAX = 18


def _field(text: str) -> tuple[str, int]:
    kind = text.rstrip("0123456789")
    size = int(text[len(kind) :] or 0)
    if kind not in _KINDS or (kind not in ("decimal", "bytes")) == (text != kind):
        raise InvalidError(f"parse: {text!r} is no field; there is skip, int, date, float, decimal2, bytes16 and so on")
    if kind == "decimal" and size > _DECIMALS_MAX:
        raise InvalidError(f"parse: {text!r} must have at most {_DECIMALS_MAX} decimals")
    if kind == "bytes" and (size == 0 or size % 8 or size > 1 << 12):
        raise InvalidError(f"parse: the size of {text!r} must be a multiple of 8, from 8 to 4096")
    return kind, size


def row_dtype(fields: Sequence[str]) -> np.dtype[Any]:
    """Return the dtype of the rows that ``parse`` makes.

    Parameters
    ----------
    fields : sequence of str
        Kinds of a line's fields: ``"int"``, ``"decimal2"``, ``"date"``, ``"float"``, ``"bytes16"``, ``"skip"``.

    Returns
    -------
    numpy.dtype
        ``bad`` (uint64), then ``c`` and its number for each field that is not skipped.
    """
    listed: list[tuple[str, str]] = [("bad", "uint64")]
    for number, (kind, size) in enumerate(map(_field, fields)):
        if kind != "skip":
            listed.append((f"c{number}", {"float": "float64", "bytes": f"S{size}"}.get(kind, "int64")))
    return np.dtype(listed)


def parse_(_dtype: np.dtype[Any] | None, values: Values) -> Mapping[str, Any]:
    fields = [_field(one) for one in values["fields"]]
    if not 1 <= len(fields) <= COLUMNS_MAX:
        raise InvalidError(f"parse: fields must be from 1 to {COLUMNS_MAX}, not {len(fields)}")
    row = row_dtype(values["fields"])
    names = row.names or ()
    shown = [[name, row[name].str.lstrip("<|") if row[name].kind == "S" else row[name].name] for name in names]
    return {
        "FIELDS": ", ".join(f"{{{_KINDS[kind]}, {size}}}" for kind, size in fields),
        "ROW_BYTES": row.itemsize,
        "ROW_BYTES_A_BYTE": row.itemsize / 2,
        "ROW_DTYPE": json.dumps(shown),
    }


def disks(_dtype: np.dtype[Any] | None, values: Values) -> Mapping[str, Any]:
    return {"DISKS": values["disks"], "PORTS": _ports("d", values["disks"], 8)}


def xor(name: str) -> Defines:
    return lambda dtype, values: {**disks(dtype, values), "NAME": json.dumps(name)}


def raid5(_dtype: np.dtype[Any] | None, values: Values) -> Mapping[str, Any]:
    disks, chunk = values["disks"], values["chunk_bytes"]
    results = _ports("disk", disks, chunk)
    return {"DISKS": disks, "CHUNK_BYTES": chunk, "STRIPE_BYTES": (disks - 1) * chunk, "RESULTS": results}


def copies(_dtype: np.dtype[Any] | None, values: Values) -> Mapping[str, Any]:
    return {"COPIES": values["copies"], "RESULTS": _ports("copy", values["copies"], 8)}


def blocks(_dtype: np.dtype[Any] | None, values: Values) -> Mapping[str, Any]:
    return {"BLOCK_BYTES": values["block_bytes"]}


def width(dtype: np.dtype[Any] | None, values: Values, *, packs: bool) -> Mapping[str, Any]:
    width, wide = values["width"], _size(dtype)
    if width > 8 * wide:
        raise InvalidError(f"the width must be at most the elements' {8 * wide} bits, not {width}")
    sizes = (32 * wide, 4 * width) if packs else (4 * width, 32 * wide)
    return {"WIDTH": width, "IN_BYTES": sizes[0], "OUT_BYTES": sizes[1]}


def kmeans(dtype: np.dtype[Any] | None, values: Values) -> Mapping[str, Any]:
    return {"DIMS": values["dims"], "POINT_BYTES": values["dims"] * _size(dtype)}


def matvec(dtype: np.dtype[Any] | None, values: Values) -> Mapping[str, Any]:
    return {"COLUMNS": values["columns"], "ROW_BYTES": values["columns"] * _size(dtype)}


def conv2d(dtype: np.dtype[Any] | None, values: Values) -> Mapping[str, Any]:
    height, width, kh, kw = (values[name] for name in ("height", "width", "kernel_height", "kernel_width"))
    if kh > height or kw > width:
        raise InvalidError(f"conv2d: a kernel of {kh} x {kw} does not fit an image of {height} x {width}")
    image, result = height * width * _size(dtype), (height - kh + 1) * (width - kw + 1) * _size(dtype)
    if image > 1 << 26:
        raise InvalidError(f"conv2d: an image of {image} bytes does not fit a task (64 MiB)")
    sizes = {"IMAGE_BYTES": image, "KERNEL_BYTES": kh * kw * _size(dtype), "RESULT_BYTES": result}
    return {"HEIGHT": height, "WIDTH": width, "KERNEL_HEIGHT": kh, "KERNEL_WIDTH": kw, **sizes}


def network(dtype: np.dtype[Any] | None, values: Values) -> Mapping[str, Any]:
    side, filters, classes = values["side"], values["filters"], values["classes"]
    scratch = 4 * filters * ((side - 2) // 2) ** 2
    sizes = {"IMAGE_BYTES": side * side * _size(dtype), "VALUES_BYTES": 4 * classes, "SCRATCHPAD_BYTES": scratch}
    return {"SIDE": side, "FILTERS": filters, "CLASSES": classes, **sizes}
