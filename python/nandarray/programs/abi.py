"""The binary interface between a program and what runs it: the memory map, and the metadata that a program carries.

``docs/reference/program-abi.md`` is the specification; a test compares its tables with the numbers here. Metadata is
JSON in the section ``.nandarray.program``; :func:`parse` has it checked by the engine, which fills in what was left
out, and checks here only what NumPy alone knows: dtypes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from nandarray import _nandarray, dtypes
from nandarray.errors import InvalidError, ProgramError

__all__ = ["ABI", "ENTRIES", "SECTION", "parse", "spelled"]

ABI = 1
SECTION = ".nandarray.program"
ENTRIES = ("nd_begin", "nd_block", "nd_stream", "nd_merge", "nd_end")

INPUTS_MAX = 8
OUTPUTS_MAX = 8
SCALARS_MAX = 16

IMAGE_ADDRESS = 0x0001_0000
ARGS_ADDRESS = 0x0800_0000
ARGS_BYTES = 4096
SCRATCHPAD_ADDRESS = 0x1000_0000
SCRATCHPAD_BYTES = 64 << 10
SCRATCHPAD_BYTES_MAX = 0x1000_0000
INPUT_ADDRESS = 0x2000_0000
OUTPUT_ADDRESS = 0x6000_0000
WINDOW_BYTES = 0x0400_0000
MEMORY_BYTES = 1 << 20
MEMORY_BYTES_MAX = ARGS_ADDRESS - IMAGE_ADDRESS
#: Size of a task that stands for all of the inputs.
ALL_BYTES = 2**64 - 1

_NUMBERS = "biuf"


def parse(text: bytes, *, entries: set[str]) -> dict[str, Any]:
    """Read a program's metadata, check it, and fill in what is left out.

    The text is JSON, as it stands in the section; bytes of zero behind it do not matter. ``entries`` are the entry
    points that the program defines. The result has every key of the specification, with its value or its default;
    ``entries`` and ``needs_end`` besides. A ProgramError says that it is no JSON, or says what the interface does not
    know.
    """
    text = text.rstrip(b"\0")
    try:
        said = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise ProgramError(f"the program's metadata is no JSON: {error}") from None
    if not isinstance(said, dict):
        raise ProgramError(f"the program's metadata is a {type(said).__name__}, not an object")
    ports = {key: _dtypes(said, key) for key in ("inputs", "outputs", "scalars")}
    filled = json.loads(_nandarray.program_metadata(json.dumps(said | ports).encode(), sorted(entries)))
    listed = {
        key: [{"dtype": port["dtype"]} | one for port, one in zip(said.get(key) or [], filled[key], strict=True)]
        for key in ("inputs", "outputs")
    }
    scalars = zip(said.get("scalars") or [], filled["scalars"], strict=True)
    return {
        **filled,
        **listed,
        "abi": ABI,
        "summary": said.get("summary") or "",
        "scalars": [_scalar(given, one, number) for number, (given, one) in enumerate(scalars)],
        "errors": dict(said.get("errors") or {}),
        "entries": [name for name in ENTRIES if name in entries],
        "needs_end": "nd_end" in entries,
    }


def spelled(dtype: object, where: str) -> Any:
    """Write a dtype of metadata as the engine reads it: as the text beside an array's elements, or its JSON."""
    try:
        text = dtypes.encode(record(dtype, where))
    except InvalidError as error:
        raise ProgramError(f"{where}: {error}") from None
    return json.loads(text) if text.startswith("{") else text


def _dtypes(said: dict[str, Any], key: str) -> Any:
    """Check the dtypes of inputs, outputs or scalars, and write them as the engine reads them."""
    listed = said.get(key, [])
    if not isinstance(listed, list):
        return listed
    filled = []
    for number, one in enumerate(listed):
        if isinstance(one, dict) and one.get("dtype") is not None:
            filled.append(one | {"dtype": spelled(one["dtype"], f"{key[:-1]} {number}")})
        else:
            filled.append(one)
    return filled


def _scalar(given: dict[str, Any], filled: dict[str, Any], number: int) -> dict[str, Any]:
    """Check the dtype of a scalar, and return it with its name and default."""
    where = f"scalar {number}"
    dtype = record(given["dtype"], where)
    if dtype.kind not in _NUMBERS or dtype.itemsize > 8:  # noqa: PLR2004
        raise ProgramError(f"{where}: a scalar is a number of at most 64 bits, not {dtype}")
    default = {"default": given["default"]} if given.get("default") is not None else {}
    return filled | {"dtype": given["dtype"]} | default


def record(dtype: object, where: str) -> np.dtype[Any]:
    """Make a dtype of a name that NumPy takes, or of a list of fields; elements have a size that is known and not 0.

    Any other is a ProgramError, which says what it was to be the dtype of.
    """
    try:
        if isinstance(dtype, list):
            dtype = [tuple(tuple(part) if isinstance(part, list) else part for part in field) for field in dtype]
        made: np.dtype[Any] = dtypes.known(dtype)
    except (TypeError, ValueError, SyntaxError) as error:  # a shape within a text is read as Python's
        raise ProgramError(f"{where}: {dtype!r} is not a dtype: {error}") from None
    if made.itemsize == 0 or made.hasobject:
        raise ProgramError(f"{where}: elements of dtype {made} have no fixed size")
    return made


def one_for_one(port: Mapping[str, Any]) -> bool:
    """Tell whether an output, filled in, has one record for each of the first input, always.

    A filter's has not: it has that many at most.
    """
    bound = {"per_record": port["record_bytes"], "per_input_byte": 0, "fixed": 0}
    return bool(port["phase"] == "task" and port["exact"] and port["bound"] == bound)
