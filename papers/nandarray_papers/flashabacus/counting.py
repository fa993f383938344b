"""A kernel's instructions: counted by the interpreter at small sizes, and as a polynomial of the size for large ones.

The kernel's own text is compiled into a block program that calls each microblock once, as one screen with all of its
sections; :func:`nandarray.profile` counts. Instructions of the call itself are left out. For a loop nest the count is
exactly a polynomial of the size, at multiples of :data:`STEP`, where no unrolled loop has a rest: it is drawn through
small sizes and compared with one that was not among them. Counts are of scalar RV64 code, of no other machine's.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import nandarray
from nandarray.errors import InvalidError
from nandarray.programs import kernels
from nandarray.programs.kernels.samples import Sample, input_bytes, sample

__all__ = ["Count", "Growth", "count", "growth"]

#: Sizes that counts are polynomials at are multiples of this.
STEP = 16
#: Bytes for all outputs of a counted run.
_ROOM = 1 << 22
#: Functions of the caller, which are no part of the kernel.
_CALLER = ("nd_block",)


@dataclass(frozen=True)
class Count:
    """The instructions of one run of a kernel on a sample of a size.

    ``classes`` has them by class (integer, multiply, bits, load, store, branch, jump, float and so on), ``microblocks``
    by microblock; those of functions that microblocks call are under ``""``. ``results`` are by name.
    """

    kernel: str
    size: int
    classes: dict[str, int]
    microblocks: dict[str, int]
    input_bytes: int
    results: dict[str, np.ndarray]

    @property
    def total(self) -> int:
        """All instructions."""
        return sum(self.classes.values())

    @property
    def load_store(self) -> float:
        """Per cent of the instructions that load or store."""
        return 100 * (self.classes.get("load", 0) + self.classes.get("store", 0)) / self.total

    @property
    def bytes_per_ki(self) -> float:
        """Bytes of input for a thousand instructions."""
        return 1000 * self.input_bytes / self.total


@cache
def _program(name: str, *, optimised: bool) -> nandarray.Program:
    """Return the kernel as a block program: input 0 says the shapes, then come inputs and updated sections."""
    kernel = kernels.get(name, checked=False)
    table = kernel.table
    ins, outs = len(table["inputs"]), table["outputs"]
    given = [*table["inputs"], *(one for one in outs if one.get("update"))]
    ports = ", ".join(f'{{"name": "s{i}", "dtype": "uint8", "whole": true}}' for i in range(len(given)))
    scalars = ", ".join(f'{{"name": "{one["name"]}", "dtype": "{one["dtype"]}"}}' for one in table["scalars"])
    entries = ", ".join(f"nd_kernel_{one['entry']}" for one in table["microblocks"])
    updates = [
        ins + [o["name"] for o in outs if o.get("update")].index(one["name"]) if one.get("update") else -1
        for one in outs
    ]
    return nandarray.Program.from_c(
        f"""
#include <nandarray.h>
#pragma push_macro("ND_PROGRAM")
#undef ND_PROGRAM
#define ND_PROGRAM(...) _Static_assert(1, "the table of the kernel");
{kernel.source}
#pragma pop_macro("ND_PROGRAM")
ND_PROGRAM("name": "{name}", "kind": "block",
    "inputs": [{{"name": "shapes", "dtype": "int64"}}, {ports}], "scalars": [{scalars}],
    "outputs": [{{"name": "all", "dtype": "uint8", "bound": {{"fixed": {_ROOM}}}, "exact": false}}],
    "memory_bytes": {_ROOM * 2})
static _Alignas(16) uint8_t room[{_ROOM}];
static nd_args call;
static int64_t (*volatile entries[])(nd_args *) = {{ {entries} }};
static const int updates[] = {{ {", ".join(map(str, updates))} }};
/* A copy that no compiler makes a call of memcpy, which kernels might use, too. */
static inline void copy(uint8_t *to, const uint8_t *from, uint64_t bytes) {{
    for (uint64_t i = 0; i < bytes; i++) {{ to[i] = from[i]; __asm__ volatile("" ::: "memory"); }}
}}
int64_t nd_block(nd_args *args) {{
    const int64_t *shapes = (const int64_t *)(uintptr_t)args->inputs[0].address;
    uint64_t used = 0;
    call.abi = ND_ABI_VERSION;
    call.n_inputs = {ins};
    call.n_outputs = {len(outs)};
    call.n_scalars = {len(table["scalars"])};
    call.screens = 1;
    for (unsigned i = 0; i < {len(table["scalars"])}u; i++) call.scalars[i] = args->scalars[i];
    for (unsigned i = 0; i < {ins + len(outs)}; i++, shapes += 6) {{
        nd_buffer *one = i < {ins} ? &call.inputs[i] : &call.outputs[i - {ins}];
        one->bytes = (uint64_t)shapes[0];
        one->ndim = (uint64_t)shapes[1];
        for (unsigned axis = 0; axis < 4; axis++) one->shape[axis] = (uint64_t)shapes[2 + axis];
        if (i < {ins}) {{
            one->address = args->inputs[1 + i].address;
            continue;
        }}
        if (used + one->bytes > sizeof room) return -1;
        one->address = (uint64_t)(uintptr_t)(room + used);
        const int from = updates[i - {ins}];
        if (from >= 0) copy(room + used, (const uint8_t *)(uintptr_t)args->inputs[1 + from].address, one->bytes);
        used += (one->bytes + 15) & ~15ull;
    }}
    for (unsigned i = 0; i < sizeof entries / sizeof *entries; i++) {{
        const int64_t status = entries[i](&call);
        if (status < 0) return status;
    }}
    copy((uint8_t *)(uintptr_t)args->outputs[0].address, room, used);
    args->outputs[0].used = used;
    return 0;
}}
""",
        flags=() if optimised else ("-O0",),
        name=f"{name}.c",
    )


def count(name: str, size: int, seed: int = 0, *, optimised: bool = True) -> Count:
    """Count the instructions of one run of a kernel; the counts are the same on every machine.

    ``size`` is that of all sides of its sample's matrices. The compiler optimises (``-O3``), as it does for every
    kernel that runs, or not at all (``-O0``). An unknown kernel, and results of more than 4 MiB, are an InvalidError.
    """
    given, kernel = sample(name, size, seed, square=True), kernels.get(name, checked=False)
    outputs = kernel.table["outputs"]
    sections = [(one, given.shapes[one["name"]]) for one in kernel.sections]
    sizes = [int(np.prod(shape)) * one["item_bytes"] for one, shape in sections]
    if sum(sizes[-len(outputs) :]) + 16 * len(outputs) > _ROOM:
        raise InvalidError(f"{name} of size {size} has results and temporary sections of more than {_ROOM} bytes")
    shapes = [[n, len(s), *s, *[1] * (4 - len(s))] for n, (_, s) in zip(sizes, sections, strict=True)]
    raw = [array.reshape(-1).view(np.uint8) for array in given.inputs.values()]
    with tempfile.TemporaryDirectory() as folder, nandarray.open(Path(folder) / "count.nda", mode="w") as store:
        store["shapes"] = np.array(shapes, "int64").reshape(-1)
        for number, array in enumerate(raw):
            store[f"s{number}"] = array
        arrays = [store["shapes"], *(store[f"s{number}"] for number in range(len(raw)))]
        found = nandarray.profile(_program(name, optimised=optimised), arrays, given.scalars, threads=1)
    classes: Counter[str] = Counter()
    microblocks: Counter[str] = Counter()
    entries = {f"nd_kernel_{one['entry']}": one["entry"] for one in kernel.table["microblocks"]}
    for one in found.instructions:
        symbol = found.program.locate(one.address).symbol
        if symbol not in _CALLER:
            classes[one.kind] += one.times
            microblocks[entries.get(symbol or "", "")] += one.times
    results = _results(np.asarray(found.offloaded.outputs["all"]), sections[-len(outputs) :], given)
    return Count(name, size, dict(classes), dict(microblocks), given.input_bytes, results)


def _results(
    raw: np.ndarray, outputs: Sequence[tuple[dict[str, Any], tuple[int, ...]]], given: Sample
) -> dict[str, np.ndarray]:
    found, at = {}, 0
    for one, shape in outputs:
        size = int(np.prod(shape)) * one["item_bytes"]
        if one["name"] in given.results:
            found[one["name"]] = raw[at : at + size].view(one["dtype"]).reshape(shape)
        at += -(-size // 16) * 16
    return found


@dataclass(frozen=True)
class Growth:
    """Growth of a kernel's instructions with the size of its matrices.

    Of the sizes that were counted the last is only to check: ``error`` is the relative difference there.
    ``polynomials`` have coefficients from the constant one upwards: of all instructions under ``"total"``, of loads and
    stores under ``"load_store"``, of each microblock under its name.
    """

    kernel: str
    sizes: tuple[int, ...]
    polynomials: dict[str, tuple[Fraction, ...]]
    error: float

    def at(self, size: int, what: str = "total") -> int:
        """Return the instructions at a size, rounded to a whole number."""
        return round(sum((c * size**power for power, c in enumerate(self.polynomials[what])), Fraction(0)))

    def bytes_per_ki(self, size: int) -> float:
        """Return the bytes of input for a thousand instructions at a size."""
        return 1000 * input_bytes(self.kernel, size) / self.at(size)

    def load_store(self, size: int) -> float:
        """Return the per cent of instructions that load or store at a size."""
        return 100 * self.at(size, "load_store") / self.at(size)


def growth(name: str, sizes: Sequence[int] = (32, 48, 64, 80, 112), *, optimised: bool = True) -> Growth:
    """Draw polynomials through the counts of a kernel of Table 2; a count of others depends on more than a size.

    Sizes are at least three multiples of 16, ascending, or an InvalidError. Polynomials have the degree that all but
    the last allow, and their error is that at the last; ``optimised`` is as for :func:`count`.
    """
    if len(sizes) < 3 or any(size % STEP for size in sizes) or list(sizes) != sorted(set(sizes)):  # noqa: PLR2004
        raise InvalidError(f"sizes must be three at least, ascending multiples of {STEP}, not {list(sizes)}")
    counts = [count(name, size, optimised=optimised) for size in sizes]

    def numbers(one: Count) -> dict[str, int]:
        load_store = one.classes.get("load", 0) + one.classes.get("store", 0)
        return {"total": one.total, "load_store": load_store, **one.microblocks}

    rows = [numbers(one) for one in counts]
    names = list(rows[-1])
    found = {what: _through(sizes[:-1], [row.get(what, 0) for row in rows[:-1]]) for what in names}
    made = Growth(name, tuple(sizes), found, 0.0)
    error = abs(made.at(sizes[-1]) / counts[-1].total - 1)
    return Growth(name, tuple(sizes), found, error)


def _through(xs: Sequence[int], ys: Sequence[int]) -> tuple[Fraction, ...]:
    """Return the coefficients of the polynomial through points, exactly (Newton's form, multiplied out)."""
    table = [Fraction(y) for y in ys]
    for level in range(1, len(xs)):
        for i in range(len(xs) - 1, level - 1, -1):
            table[i] = (table[i] - table[i - 1]) / (xs[i] - xs[i - level])
    found = [Fraction(0)] * len(xs)
    for x, slope in zip(reversed(xs), reversed(table), strict=True):
        found = [slope - x * found[0]] + [found[k - 1] - x * found[k] for k in range(1, len(xs))]
    return tuple(found)
