"""Fields of records as inputs of programs: a program of our own takes them out of the records, beside the data.

A field is no array of the store: its values lie apart, each in its record. So wherever a program gets one, a step
stands before it that reads the records and gives the field alone; both are stages of one run. The step is compiled for
the record's layout, and knows the shape that it gives. Functions over boxes get the records themselves instead, since
a box has to reach them as a whole (:func:`nandarray.programs.calls.boxwise.map_boxes`).
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np

from nandarray.programs.ports import Box, Boxed
from nandarray.programs.program import Program
from nandarray.programs.step import FieldStep

__all__ = ["field_step"]

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


def field_step(box: Box) -> FieldStep:
    """Make the step before a program that gets a field; its one output has the elements of the box in C order."""
    array, _, field = box.array._origin()
    assert field is not None, f"{box.array!r} is no field"
    step = FieldStep(_program(array.dtype, field), [Box(array, box.key)])
    step.shape = tuple(Boxed(box).shape)
    return step


@lru_cache(maxsize=64)
def _program(record: np.dtype[Any], names: tuple[str, ...]) -> Program:
    """Compile what takes fields out of records of a dtype."""
    fields: Any = record.fields or {}
    places = [(fields[name][1], fields[name][0].itemsize) for name in names]
    kinds = [fields[name][0] for name in names]
    base = kinds[0].base if len(names) == 1 else np.dtype(list(zip(names, kinds, strict=True)))
    said: Any = base.name if base.kind in "biufc" and base.isnative else base.str if base.names is None else base.descr
    copies, at = [], 0
    for offset, size in places:
        copies.append(f"        __builtin_memcpy(to + {at}, record + {offset}, {size});")
        at += size
    text = _SOURCE.replace("@ROW@", str(record.itemsize)).replace("@BYTES@", str(at))
    text = text.replace("@DTYPE@", json.dumps(said)).replace("@COPIES@", "\n".join(copies))
    return Program.from_c(text, trusted=True)
