"""The binary interface between a program and what runs it: the memory map, and the metadata that a program carries.

``docs/reference/program-abi.md`` is the specification; a test compares its tables with the numbers here. Metadata is
JSON in the section ``.nandarray.program``; :func:`parse` checks it and fills in what was left out, so that whatever
runs programs reads one form only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from nandarray.errors import ProgramError

__all__ = ["ABI", "ENTRIES", "SECTION", "parse"]

ABI = 1
SECTION = ".nandarray.program"
ENTRIES = ("nd_begin", "nd_block", "nd_stream", "nd_merge", "nd_end")
KINDS = ("block", "stream")
PHASES = ("task", "end")
RECORDS = ("fixed", "lines", "prefixed")
PACKED = ("bitpack", "varwidth")

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

_NUMBERS = "biuf"
_KEYS = {"abi", "name", "kind", "summary", "inputs", "outputs", "scalars", "state_bytes", "scratchpad_bytes"}
_KEYS |= {"memory_bytes", "errors"}
_PORT = {"name", "dtype", "record_bytes"}
_BOUND = ("per_record", "per_input_byte", "fixed")


def parse(text: bytes, *, entries: set[str]) -> dict[str, Any]:
    """Read a program's metadata, check it, and fill in what is left out.

    Parameters
    ----------
    text : bytes
        JSON, as it stands in the section; bytes of zero behind it do not matter.
    entries : set of str
        The entry points that the program defines.

    Returns
    -------
    dict
        Every key of the specification, with its value or its default; ``entries`` and ``needs_end`` besides.

    Raises
    ------
    ProgramError
        It is no JSON, or says what the interface does not know.
    """
    try:
        said = json.loads(text.rstrip(b"\0").decode())
    except ValueError as error:
        raise ProgramError(f"the program's metadata is no JSON: {error}") from None
    if not isinstance(said, dict):
        raise ProgramError(f"the program's metadata is a {type(said).__name__}, not an object")
    if said.get("abi") != ABI:
        raise ProgramError(
            f"the program is made for version {said.get('abi')!r} of the interface; this is version {ABI}"
        )
    _known(said, _KEYS, "the metadata")
    kind = said.get("kind")
    if kind not in KINDS:
        raise ProgramError(f"the program's kind is {kind!r}; there is {' and '.join(KINDS)}")
    if f"nd_{kind}" not in entries:
        raise ProgramError(
            f"a {kind} program defines nd_{kind}; this one defines {', '.join(sorted(entries)) or 'none'}"
        )
    inputs = [_input(one, number, kind) for number, one in enumerate(_listed(said, "inputs", INPUTS_MAX))]
    if not inputs:
        raise ProgramError("the program has no inputs; it needs one at least")
    listed = _listed(said, "outputs", OUTPUTS_MAX)
    outputs = [_output(one, number, inputs[0]) for number, one in enumerate(listed)]
    scalars = [_scalar(one, number) for number, one in enumerate(_listed(said, "scalars", SCALARS_MAX))]
    _distinct([*inputs, *outputs, *scalars])
    if any(output["phase"] == "end" for output in outputs) and "nd_end" not in entries:
        raise ProgramError("an output is written in phase 'end', and the program does not define nd_end")
    state = _size(said, "state_bytes", 0, SCRATCHPAD_BYTES_MAX)
    if state == 0 and "nd_merge" in entries:
        raise ProgramError("the program defines nd_merge, and its state has 0 bytes")
    scratchpad = _size(said, "scratchpad_bytes", 0, SCRATCHPAD_BYTES_MAX)
    wanted = scratchpad + 2 * (-(-state // 16) * 16)  # a merge has two states
    if wanted > SCRATCHPAD_BYTES_MAX:
        raise ProgramError(f"a scratchpad of {wanted} bytes, with two states; at most {SCRATCHPAD_BYTES_MAX}")
    return {
        "abi": ABI,
        "name": _text(said, "name", "program"),
        "summary": _text(said, "summary", ""),
        "kind": kind,
        "inputs": inputs,
        "outputs": outputs,
        "scalars": scalars,
        "state_bytes": state,
        "scratchpad_bytes": scratchpad,
        "memory_bytes": _size(said, "memory_bytes", MEMORY_BYTES, MEMORY_BYTES_MAX),
        "errors": _errors(said),
        "entries": [name for name in ENTRIES if name in entries],
        "needs_end": "nd_end" in entries,
    }


def record(dtype: object, where: str) -> np.dtype[Any]:
    """Make a dtype of a name; the size of an element must be known and not 0.

    Parameters
    ----------
    dtype : object
        Text that :class:`numpy.dtype` takes, or a list of fields.
    where : str
        What it is the dtype of, for the error.

    Returns
    -------
    numpy.dtype
        The same.

    Raises
    ------
    ProgramError
        There is no such dtype, or it is of no use.
    """
    if isinstance(dtype, list):
        dtype = [tuple(tuple(part) if isinstance(part, list) else part for part in field) for field in dtype]
    try:
        made: np.dtype[Any] = np.dtype(dtype)  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:
        raise ProgramError(f"{where}: {dtype!r} is not a dtype: {error}") from None
    if made.itemsize == 0 or made.hasobject:
        raise ProgramError(f"{where}: elements of dtype {made} have no fixed size")
    return made


def _port(one: Any, what: str, number: int) -> dict[str, Any]:
    where = f"{what} {number}"
    if not isinstance(one, dict) or "dtype" not in one:
        raise ProgramError(f"{where} is {one!r}; it is written {{'name': ..., 'dtype': ...}}")
    _known(one, _PORT | ({"bound", "phase", "exact"} if what == "output" else {"whole", "records", "packed"}), where)
    dtype = record(one["dtype"], where)
    size = _size(one, "record_bytes", dtype.itemsize, WINDOW_BYTES)
    if size == 0 or size % dtype.itemsize:
        raise ProgramError(f"{where}: a record of {size} bytes does not hold whole elements of {dtype.itemsize} bytes")
    return {"name": _text(one, "name", where.replace(" ", "")), "dtype": one["dtype"], "record_bytes": size}


def _input(one: Any, number: int, kind: str) -> dict[str, Any]:
    port = _port(one, "input", number)
    where = f"input {number}"
    whole, records = one.get("whole", False), one.get("records", "fixed")
    if not isinstance(whole, bool) or (whole and number == 0):
        raise ProgramError(f"{where}: whole is {whole!r}; it is true or false, false for input 0")
    if records not in RECORDS:
        raise ProgramError(f"{where}: records is {records!r}; there is {', '.join(RECORDS)}")
    if records != "fixed" and (whole or number > 0 or port["record_bytes"] != 1):
        raise ProgramError(f"{where}: records of kind {records!r} are input 0's, of bytes")
    packed = one.get("packed")
    if packed is not None:
        dtype = record(one["dtype"], where)
        if packed not in PACKED:
            raise ProgramError(f"{where}: packed is {packed!r}; there is {' and '.join(PACKED)}")
        if dtype.kind not in "iu" or port["record_bytes"] != dtype.itemsize or whole or records != "fixed":
            raise ProgramError(f"{where}: packed inputs are integers, and neither whole nor of larger records")
        if kind != "block":
            raise ProgramError(f"{where}: packed inputs are those of block programs; this one's kind is {kind!r}")
    return port | {"whole": whole, "records": records, "packed": packed}


def one_for_one(port: Mapping[str, Any]) -> bool:
    """Tell whether an output has one record for each of the first input, always.

    Parameters
    ----------
    port : mapping
        An output, filled in.

    Returns
    -------
    bool
        A filter's is not: it has that many at most.
    """
    bound = {"per_record": port["record_bytes"], "per_input_byte": 0, "fixed": 0}
    return bool(port["phase"] == "task" and port["exact"] and port["bound"] == bound)


def _output(one: Any, number: int, first: dict[str, Any]) -> dict[str, Any]:
    port = _port(one, "output", number)
    where = f"output {number}"
    phase = one.get("phase", "task")
    if phase not in PHASES:
        raise ProgramError(f"{where}: phase is {phase!r}; there is {' and '.join(PHASES)}")
    default = {"per_record": port["record_bytes"]} if phase == "task" else {"fixed": port["record_bytes"]}
    bound = one.get("bound", default)
    if not isinstance(bound, dict):
        raise ProgramError(f"{where}: bound is {bound!r}; it is an object with {', '.join(_BOUND)}")
    _known(bound, set(_BOUND), f"{where}, bound")
    for key, value in bound.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not (whole or (key == "per_input_byte" and isinstance(value, float) and np.isfinite(value))) or value < 0:
            raise ProgramError(f"{where}: bound {key} is {value!r}; it is a number of bytes")
    if phase == "end" and (bound.get("per_record") or bound.get("per_input_byte")):
        raise ProgramError(f"{where} is written in phase 'end', so only a fixed bound makes sense")
    exact = one.get("exact", True)
    if not isinstance(exact, bool):
        raise ProgramError(f"{where}: exact is {exact!r}; it is true or false")
    return port | {
        "phase": phase,
        "exact": exact,
        "bound": {key: bound.get(key, 0) for key in ("per_record", "per_input_byte", "fixed")},
    }


def _scalar(one: Any, number: int) -> dict[str, Any]:
    where = f"scalar {number}"
    if not isinstance(one, dict) or "dtype" not in one:
        raise ProgramError(f"{where} is {one!r}; it is written {{'name': ..., 'dtype': ...}}")
    _known(one, {"name", "dtype", "default"}, where)
    dtype = record(one["dtype"], where)
    if dtype.kind not in _NUMBERS or dtype.itemsize > 8:  # noqa: PLR2004
        raise ProgramError(f"{where}: a scalar is a number of at most 64 bits, not {dtype}")
    made = {"name": _text(one, "name", where.replace(" ", "")), "dtype": one["dtype"]}
    if "default" in one:
        if isinstance(one["default"], str | list | dict) or one["default"] is None:
            raise ProgramError(f"{where}: default is {one['default']!r}; it is a number")
        made["default"] = one["default"]
    return made


def _known(said: dict[str, Any], keys: set[str], where: str) -> None:
    unknown = sorted(set(said) - keys)
    if unknown:
        raise ProgramError(f"{where}: {unknown[0]!r} is not known; there is {', '.join(sorted(keys))}")


def _listed(said: dict[str, Any], key: str, most: int) -> list[Any]:
    found = said.get(key, [])
    if not isinstance(found, list):
        raise ProgramError(f"{key} is {found!r}; it is a list")
    if len(found) > most:
        raise ProgramError(f"the program has {len(found)} {key}; at most {most} fit")
    return found


def _text(said: dict[str, Any], key: str, default: str) -> str:
    found = said.get(key, default)
    if not isinstance(found, str):
        raise ProgramError(f"{key} is {found!r}; it is text")
    return found


def _errors(said: dict[str, Any]) -> dict[str, str]:
    found = said.get("errors", {})
    good = isinstance(found, dict) and all(isinstance(says, str) for says in found.values())
    if not good or not all(re.fullmatch(r"-[1-9]\d*", status) for status in found):
        raise ProgramError(f"errors is {found!r}; it is an object of negative statuses, each with a text")
    return dict(found)


def _size(said: dict[str, Any], key: str, default: int, most: int) -> int:
    found = said.get(key, default)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= most:
        raise ProgramError(f"{key} is {found!r}; it is a number of bytes, at most {most}")
    return found


def _distinct(ports: list[dict[str, Any]]) -> None:
    names = [port["name"] for port in ports]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ProgramError(f"{twice[0]!r} names two of the program's inputs, outputs and scalars")
