"""Fields of records, and converted elements, as inputs of programs: programs of our own make them, beside the data.

A field is no array of the store: its values lie apart, each in its record. So wherever a program gets one, a step
stands before it that reads the records and gives the field alone; both are stages of one run. The step is compiled for
the record's layout, and knows the shape that it gives. Functions over boxes get the records themselves instead, since
a box has to reach them as a whole (:func:`nandarray.programs.calls.boxwise.map_boxes`).

Elements under another dtype (``array.astype(...)``) come out of such a step, too: a function in Python whose result has
that dtype.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np

from nandarray.dtypes import encode, is_short
from nandarray.errors import InvalidError
from nandarray.programs.forms import map_form
from nandarray.programs.ports import Box, Boxed
from nandarray.programs.program import Program, PythonProgram
from nandarray.programs.step import FieldStep

__all__ = ["derived_step"]

_SOURCE = """
#include <nandarray.h>

ND_PROGRAM("name": "field", "kind": "block",
           "summary": "a field of records",
           "inputs": [{"name": "records", "dtype": "uint8", "record_bytes": @ROW@}],
           "outputs": [{"name": "field", "dtype": @DTYPE@, "record_bytes": @BYTES@}])

int64_t nd_block(nd_args *args) {
    const unsigned char *restrict record = ND_INPUT(args, 0, unsigned char);
    unsigned char *restrict to = ND_OUTPUT(args, 0, unsigned char);
    size_t n = args->inputs[0].bytes / @ROW@;
    if (args->inputs[0].bytes % @ROW@ || args->outputs[0].bytes < n * @BYTES@) return -1;
    for (size_t i = 0; i < n; i++, record += @ROW@, to += @BYTES@) {
@COPIES@
    }
    args->outputs[0].used = n * @BYTES@;
    return 0;
}
"""


def derived_step(box: Box) -> FieldStep:
    """Make the step before a program that gets a field, or converted elements.

    Its one output has the elements of the box in C order.
    """
    array, _, field, of, within = box.array._origin()
    if of is not None:
        made = _conversion(of.dtype.base, box.array.dtype.base, bits=getattr(box.array, "bits", False))
        step = FieldStep(made, [Box(of, box.key)])
    else:
        assert field is not None, f"{box.array!r} is an array's own elements"
        step = FieldStep(_program(_flat(array.dtype, within), field), [Box(array, box.key)])
    step.shape = tuple(Boxed(box).shape)
    return step


def _flat(record: np.dtype[Any], within: tuple[str, ...]) -> np.dtype[Any]:
    """Return a dtype with the fields of a record within a record, at their places, and of the outer one's size."""
    found, at = record, 0
    for one in within:
        fields: Any = found.fields
        found, offset = fields[one][:2]
        at += offset
        if found.shape:
            raise InvalidError(f"a program gets no fields of several records, {found.shape} of them in {one!r}")
    if not within:
        return record
    inner: Any = found.fields
    names = list(inner)
    formats, offsets = [inner[one][0] for one in names], [at + inner[one][1] for one in names]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": record.itemsize})


@lru_cache(maxsize=64)
def _conversion(given: np.dtype[Any], dtype: np.dtype[Any], *, bits: bool) -> Program:
    """Compile the conversion of elements; with ``bits`` it only names their bytes anew."""
    if bits:
        return _program(np.dtype([("value", dtype)]), ("value",))
    numbers = "biuf" if dtype.kind != "c" else "biufc"
    swapped = dtype.kind in "mM" and given.newbyteorder("<") == dtype.newbyteorder("<")  # dates, in another order
    if not swapped and not all(
        one.kind in kinds or is_short(one) for one, kinds in ((given, numbers), (dtype, "biufc"))
    ):
        raise InvalidError(f"no program converts {given} to {dtype}: convert numbers, or in the function itself")
    return PythonProgram(map_form("map", _as_it_is, [given], dtype, None, name="astype", trusted=True))


def _as_it_is(value: Any) -> Any:
    return value


@lru_cache(maxsize=64)
def _program(record: np.dtype[Any], names: tuple[str, ...]) -> Program:
    """Compile what takes fields out of records of a dtype."""
    fields: Any = record.fields or {}
    places = [(fields[name][1], fields[name][0].itemsize) for name in names]
    kinds = [fields[name][0] for name in names]
    base = kinds[0].base if len(names) == 1 else np.dtype(list(zip(names, kinds, strict=True)))
    said: Any = encode(base) if base.names is None else base.descr
    copies, at = [], 0
    for offset, size in places:
        copies.append(f"        __builtin_memcpy(to + {at}, record + {offset}, {size});")
        at += size
    text = _SOURCE.replace("@ROW@", str(record.itemsize)).replace("@BYTES@", str(at))
    text = text.replace("@DTYPE@", json.dumps(said)).replace("@COPIES@", "\n".join(copies))
    return Program.from_c(text, trusted=True)
