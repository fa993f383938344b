"""Pieces of C that all forms of a kernel share: the program around a loop, streams of its inputs and outputs.

Vector code is inline assembly with fixed registers: what is compared is the instructions, not a compiler's choice.
Strips of V have one register (LMUL = 1), as SVE's have, and masks select as predicates do there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Port", "program", "streams"]

_V = ", ".join(f'"v{i}"' for i in range(32))


@dataclass(frozen=True)
class Port:
    """An input or output of a kernel; ``signed`` says whether its packed values are."""

    name: str
    dtype: str
    signed: bool = True

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return int(self.dtype.lstrip("uint"))

    @property
    def detail(self) -> str:
        """Width of an element, as the description of a stream has it."""
        return f"{self.bits}{' | ND_SIGNED' if self.dtype.startswith('int') and self.signed else ''}"


def program(
    name: str, inputs: Sequence[Port], outputs: Sequence[Port], body: str, *, varve: bool, room: int = 1
) -> str:
    """Return the text, C, of a program with windows.

    For each port a pointer ``NAME`` is declared, and ``used_NAME`` for outputs: elements that were written. The body
    has statements over ``n`` elements of each input. ``varve`` says whether it has VarVE instructions. Outputs have
    ``room`` times the room for the records.
    """
    ports = ", ".join(f'{{"name": "{one.name}", "dtype": "{one.dtype}"}}' for one in inputs)
    bound = '"bound": {{"per_record": {}, "fixed": 64}}'
    ends = ", ".join(
        f'{{"name": "{one.name}", "dtype": "{one.dtype}", {bound.format(room * max(4, one.bits // 8))}}}'
        for one in outputs
    )
    lines = [
        "#include <nandarray.h>",
        *(["#include <nandarray_varve.h>"] if varve else []),
        f'#define VECTORS "memory", "vl", "vtype", {_V}',
        f'ND_PROGRAM("name": "{name}", "kind": "block", "inputs": [{ports}], "outputs": [{ends}])',
        "int64_t nd_block(nd_args *args) {",
        *(f"    const {one.dtype}_t *{one.name} = ND_INPUT(args, {i}, {one.dtype}_t);" for i, one in enumerate(inputs)),
        *(
            f"    {one.dtype}_t *restrict {one.name} = ND_OUTPUT(args, {i}, {one.dtype}_t);"
            for i, one in enumerate(outputs)
        ),
        f"    size_t n = ND_INPUT_COUNT(args, 0, {inputs[0].dtype}_t);",
        *(f"    size_t used_{one.name} = 0;" for one in outputs),
        body,
        *(f"    ND_SET_USED(args, {i}, used_{one.name}, {one.dtype}_t);" for i, one in enumerate(outputs)),
        "    return 0;",
        "}",
    ]
    return "\n".join(lines) + "\n"


def streams(inputs: Sequence[Port], outputs: Sequence[Port], room: int = 1) -> str:
    """Return the description of a packed stream for each port: inputs from 0 on, outputs from 16 on, with room."""
    reads = [f"    nd_frstream({i}, {one.name}, n, {one.detail});" for i, one in enumerate(inputs)]
    return "\n".join(
        [
            *reads,
            *(f"    nd_fwstream({16 + i}, {one.name}, {room} * n, {one.detail});" for i, one in enumerate(outputs)),
        ]
    )
