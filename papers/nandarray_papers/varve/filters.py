"""The filters of Figure 8.12: rows of TPC-H that pass a conjunction of comparisons, in four forms from one description.

A filter has tests of columns, in the order in which they are evaluated, and the columns that are kept. They are those
scans of :data:`nandarray_papers.tpch.scans.SCANS` whose columns all have fixed widths, with strings of a dictionary as
in the dissertation's Figure 8.8. All four forms read the columns padded and write the kept ones padded: decimals to 64
bits, other numbers to 32, strings to 8, as the author's public workloads have them (github.com/zinechant/simdstor,
``tpch/python3/schema.py``), where vectors of the conventional form have elements as wide as the widest column.

==========  ==========================================================================================================
form        a strip
==========  ==========================================================================================================
``scalar``  a row: all tests, kept columns stored if it passes
``v``       one register of the widest column's elements: load, compare under the mask so far, compress, store, advance
``pup``     the same, with ``unpack`` for a load and its pointer, ``packm`` for compress, store and its pointer
``full``    as many values as fit: the first tested column, then the others masked by those that passed (8.2.5)
==========  ==========================================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nandarray_papers.tpch.schema import TABLES
from nandarray_papers.varve.columns import code_of, column, days
from nandarray_papers.varve.sources import Port, program, streams

__all__ = ["DECIMALS", "FILTERS", "NUMBERS", "Filter", "RowTest", "packed", "packed_bits", "signed_widths"]

_LINE = 64
_IMMEDIATES = range(-16, 16)
#: Factor on the room for the outputs of a filter that keeps wrong rows (``shortens``).
_ROOM = 16
#: Columns of money and quantities, which have 64 bits, and all columns of numbers.
DECIMALS = frozenset(name for kinds in TABLES.values() for name, kind in kinds.items() if kind.startswith("decimal"))
NUMBERS = frozenset(name for kinds in TABLES.values() for name, kind in kinds.items() if not kind.startswith("text"))


@dataclass(frozen=True)
class RowTest:
    """A comparison (``"le"``, ``"gt"`` or ``"eq"``) of a column with a number, or with a text of its dictionary."""

    column: str
    how: str
    value: int | str

    def number(self, scale: float) -> int:
        """The number compared with."""
        return code_of(self.column, self.value, scale) if isinstance(self.value, str) else self.value


def _dates(name: str, first: str, end: str) -> tuple[RowTest, RowTest]:
    return RowTest(name, "gt", days(first) - 1), RowTest(name, "le", days(end) - 1)


@dataclass(frozen=True)
class Filter:
    """A filter, called by its query and the first letter of its table.

    A row has to pass all ``tests``. Columns of ``wide`` are padded to 64 bits; V then has elements of 64 bits, as the
    widest column has. ``shortens`` says whether ``full`` cuts its mask where a kept column ends the strip early. Figure
    8.8 does not: where several columns end at different values it keeps wrong rows, and its outputs have more room
    here.
    """

    name: str
    keep: tuple[str, ...]
    tests: tuple[RowTest, ...]
    wide: frozenset[str] = DECIMALS
    shortens: bool = True

    def values(self, name: str, scale: float) -> np.ndarray[Any, Any]:
        """Return a column as it is padded here."""
        found = column(name, scale)
        return found.astype(np.int64) if name in self.wide else found

    def columns(self) -> list[str]:
        """The columns, those tested first."""
        return list(dict.fromkeys([*(one.column for one in self.tests), *self.keep]))

    def data(self, scale: float, rows: int) -> tuple[list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]:
        """Return the first rows of the columns, and of the kept ones what passes."""
        inputs = {name: self.values(name, scale)[:rows] for name in self.columns()}
        passes = np.ones(len(next(iter(inputs.values()))), bool)
        for one in self.tests:
            values, number = inputs[one.column].astype(np.int64), one.number(scale)
            passes &= {"le": values <= number, "gt": values > number, "eq": values == number}[one.how]
        return list(inputs.values()), [inputs[name][passes] for name in self.keep]

    def source(self, form: str, scale: float) -> str:
        """Return the program, in C, of one of :data:`nandarray_papers.varve.measure.FORMS`.

        Numbers of dictionary entries depend on the scale factor.
        """
        kinds = {name: str(self.values(name, scale).dtype) for name in self.columns()}
        inputs = [Port(name, kind) for name, kind in kinds.items()]
        outputs = [Port(f"out_{name}", kinds[name]) for name in self.keep]
        body = {"scalar": self._scalar, "v": self._v, "pup": self._pup, "full": self._full}[form](scale, inputs)
        room = 1 if self.shortens else _ROOM
        if form in {"pup", "full"}:
            body = streams(inputs, outputs, room) + "\n" + body
        return program(f"filter_{self.name}_{form}", inputs, outputs, body, varve=form in {"pup", "full"}, room=room)

    def packed_source(self, scale: float) -> str:
        """Return the full form over VarWidth streams: one input, made by :func:`packed`."""
        kinds = {name: str(self.values(name, scale).dtype) for name in self.columns()}
        inputs = [Port(name, kind) for name, kind in kinds.items()]
        outputs = [Port(f"out_{name}", kinds[name]) for name in self.keep]
        reads = [
            f"    nd_vrstream({i}, blob + at[{1 + 2 * i}], n | (uint64_t)1 << 63, blob + at[{2 + 2 * i}]);"
            for i in range(len(inputs))
        ]
        body = "\n".join(
            ["    const uint64_t *at = (const uint64_t *)blob;", "    n = at[0];", *reads, streams([], outputs)]
        )
        body += "\n" + self._full(scale, inputs)
        return program(f"filter_{self.name}_packed", [Port("blob", "uint8")], outputs, body, varve=True)

    def _used(self, amount: str) -> str:
        return " ".join(f"used_out_{name} {amount};" for name in self.keep)

    def _scalar(self, scale: float, _inputs: list[Port]) -> str:
        sign = {"le": "<=", "gt": ">", "eq": "=="}
        tests = " & ".join(f"({one.column}[i] {sign[one.how]} {one.number(scale)})" for one in self.tests)
        stores = " ".join(f"out_{name}[used] = {name}[i];" for name in self.keep)
        return (
            "    size_t used = 0;\n"
            f"    for (size_t i = 0; i < n; i++) {{ if ({tests}) {{ {stores} used++; }} }}\n    {self._used('= used')}"
        )

    def _compares(self, scale: float, registers: dict[str, int], sizes: dict[str, int] | None) -> list[str]:
        """Comparisons of V, each under the mask of those before; ``sizes`` has the bits of columns of other types."""
        wide = max(sizes.values()) if sizes is not None else 0
        lines, bits = [], wide
        for i, one in enumerate(self.tests):
            if sizes is not None and sizes[one.column] != bits:
                bits = sizes[one.column]
                lines.append(_vtype(bits, wide))
            mask = "" if i == 0 else ", v0.t"
            name = {"le": "vmsle", "gt": "vmsgt", "eq": "vmseq"}[one.how]
            code = f"{name}.vx v0, v{registers[one.column]}, %0{mask}"
            lines.append(f'__asm__ volatile("{code}" : : "r"({one.number(scale)}) : VECTORS);')
        if bits != wide:
            lines.append(_vtype(wide, wide))
        return lines

    def _v(self, scale: float, inputs: list[Port]) -> str:
        registers = {one.name: 2 + i for i, one in enumerate(inputs)}
        sizes = {one.name: one.bits for one in inputs}
        wide = max(sizes.values())
        groups = {bits: [name for name in sizes if sizes[name] == bits] for bits in (64, 32, 8)}
        load = '__asm__ volatile("vle{0}.v v{1}, (%0)" : : "r"({2}) : VECTORS);'
        lines = [f'__asm__ volatile("vsetvli %0, %1, {_kind(wide, wide)}, ta, mu" : "=r"(vl) : "r"(n) : VECTORS);']
        lines += [load.format(bits, registers[name], name) for bits, names in groups.items() for name in names]
        lines += self._compares(scale, registers, sizes)
        lines.append('__asm__ volatile("vcpop.m %0, v0" : "=r"(d) : : VECTORS);')
        # Narrower columns lie in parts of a register, as many elements as of the widest.
        kept = {bits: [name for name in names if name in self.keep] for bits, names in groups.items()}
        kept = {bits: names for bits, names in kept.items() if names}
        for at, (bits, names) in enumerate(kept.items()):
            if at:
                kind = _kind(wide, wide)
                lines.append(f'__asm__ volatile("vsetvli zero, %0, {kind}, ta, mu" : : "r"(vl) : VECTORS);')
            lines += [_vtype(bits, wide)] if bits != wide else []
            for i, name in enumerate(names):
                code = f"vcompress.vm v{16 + i}, v{registers[name]}, v0"
                lines.append(f'__asm__ volatile("{code}" : : : VECTORS);')
            lines.append(f'__asm__ volatile("vsetvli zero, %0, {_kind(bits, wide)}, ta, mu" : : "r"(d) : VECTORS);')
            for i, name in enumerate(names):
                lines.append(f'__asm__ volatile("vse{bits}.v v{16 + i}, (%0)" : : "r"(out_{name}) : VECTORS);')
        lines.append(" ".join(f"{name} += vl;" for name in sizes))
        lines.append(" ".join(f"out_{name} += d;" for name in self.keep))
        inside = "\n        ".join(lines)
        return (
            "    size_t used = 0, vl, d;\n    for (; n > 0; n -= vl) {\n        "
            f"{inside}\n        used += d;\n    }}\n    {self._used('= used')}"
        )

    def _pup(self, scale: float, inputs: list[Port]) -> str:
        registers = {one.name: 2 + i for i, one in enumerate(inputs)}
        wide = max(one.bits for one in inputs)
        lines = [f'__asm__ volatile("vsetvli %0, %1, e{wide}, m1, ta, mu" : "=r"(vl) : "r"(n) : VECTORS);']
        lines += [f"nd_unpack({registers[one.name]}, {i});" for i, one in enumerate(inputs)]
        lines += self._compares(scale, registers, None)
        packs = [f"nd_packm({registers[name]}, {16 + i})" for i, name in enumerate(self.keep)]
        lines += [f"used += {packs[0]};", *(f"(void){one};" for one in packs[1:])]
        inside = "\n        ".join(lines)
        return (
            f"    size_t used = 0, vl;\n    for (; n > 0; n -= vl) {{\n        {inside}\n    }}\n    "
            f"{self._used('= used')}"
        )

    def _full(self, scale: float, inputs: list[Port]) -> str:
        registers = {one.name: 2 + i for i, one in enumerate(inputs)}
        number = {one.name: i for i, one in enumerate(inputs)}
        before, lines, read = [], [], set[str]()
        for i, one in enumerate(self.tests):
            value, name, at = one.number(scale), one.column, registers[one.column]
            masked = "m" if i else ""
            if name not in read:
                lines.append(f"nd_vunpack{masked}({at}, {number[name]}, 64);")
                read.add(name)
            if one.how != "gt" and value in _IMMEDIATES:
                how = "CMPEQ" if one.how == "eq" else "CMPLE"
                lines.append(f"nd_varve_vi{masked}(ND_VARVE_{how}, 0, {at}, {value});")
                continue
            before.append(f"nd_vcpy({24 + i}, {value});")
            how, left, right = {
                "le": ("CMPLE", at, 24 + i),
                "eq": ("CMPEQ", at, 24 + i),
                "gt": ("CMPLT", 24 + i, at),
            }[one.how]
            lines.append(f"nd_varve_vv{masked}(ND_VARVE_{how}, 0, {left}, {right});")
        rest = [name for name in registers if name not in read]
        if rest:
            # Kept columns that hold fewer values than were tested shorten the strip, and the mask with it.
            lines += ["size_t tested = nd_vrcnum();"] if self.shortens else []
            lines += [f"nd_vunpackm({registers[name]}, {number[name]}, 64);" for name in rest]
            cut = ["size_t held = nd_vrcnum(), step = held < tested ? held : tested;", _SHORTEN]
            lines += cut if self.shortens else []
        packs = [f"nd_vpackm({registers[name]}, {16 + i})" for i, name in enumerate(self.keep)]
        lines += [f"used += {packs[0]};", *(f"(void){one};" for one in packs[1:])]
        lines += [] if rest and self.shortens else ["size_t step = nd_vrcnum();"]
        lines += [f"nd_crstream({i}, step);" for i in range(len(inputs))]
        inside = "\n        ".join(lines)
        return (
            f"    size_t used = 0;\n    {' '.join(before)}\n    (void)nd_vrcnum();\n    while (n > 0) {{\n        "
            f"{inside}\n        n -= step;\n    }}\n    {self._used('= used')}"
        )


def packed(columns: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Return columns of equal length as VarWidth streams in one array of bytes.

    It has the number of rows, the places of each column's bits and of its widths (8 bytes each), and these: values in
    two's complement with a byte for the width of each, every part at a multiple of 64 bytes.
    """
    parts: list[np.ndarray[Any, Any]] = []
    for values in columns:
        widths = signed_widths(values)
        parts += [packed_bits(values, widths), widths.astype(np.uint8)]
    places, at = [], _LINE * (1 + 8 * (1 + len(parts)) // _LINE)
    for part in parts:
        places.append(at)
        at += (len(part) + _LINE - 1) // _LINE * _LINE
    blob = np.zeros(at, np.uint8)
    blob[: 8 * (1 + len(parts))] = np.array([len(columns[0]), *places], "<u8").view(np.uint8)
    for place, part in zip(places, parts, strict=True):
        blob[place : place + len(part)] = part
    return blob


def signed_widths(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the bits of values in two's complement; 0 for zero."""
    wide = values.astype(np.int64)
    magnitude = np.where(wide < 0, ~wide, wide)
    lengths = np.zeros(len(wide), np.int64)
    for bit in range(63):
        lengths[magnitude >> bit > 0] = bit + 1
    return np.where(wide == 0, 0, lengths + 1)


def packed_bits(values: np.ndarray[Any, Any], widths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return values of these widths one after the other, the lowest bit of each first."""
    place = np.arange(int(widths.max(initial=1)))
    bits = (values.astype(np.int64)[:, None] >> place[None, :]) & 1
    return np.packbits(bits[place[None, :] < widths[:, None]].astype(np.uint8), bitorder="little")


def _kind(bits: int, wide: int) -> str:
    """Elements of some bits, as many as fit of the widest."""
    return f"e{bits}, m1" if bits == wide else f"e{bits}, mf{wide // bits}"


def _vtype(bits: int, wide: int) -> str:
    """Change the type to elements of these bits; as many of them."""
    return f'__asm__ volatile("vsetvli zero, zero, {_kind(bits, wide)}, ta, mu" : : : VECTORS);'


#: Cut the mask to the elements of the strip.
_SHORTEN = (
    'if (held < tested) __asm__ volatile("vsetvli t0, zero, e8, m2, ta, mu\\n '
    'vid.v v28\\n vmsltu.vx v0, v28, %0, v0.t" : : "r"(held) : "t0", VECTORS);'
)

_REVENUE = ("l_extendedprice", "l_discount")
FILTERS = (
    Filter(
        "1l",
        ("l_quantity", *_REVENUE, "l_tax", "l_returnflag", "l_linestatus", "l_shipdate"),
        (RowTest("l_shipdate", "le", days("1998-09-02")),),
    ),
    Filter("3c", ("c_custkey",), (RowTest("c_mktsegment", "eq", "BUILDING"),)),
    Filter(
        "3o",
        ("o_orderkey", "o_custkey", "o_orderdate", "o_shippriority"),
        (RowTest("o_orderdate", "le", days("1995-03-14")),),
    ),
    Filter("3l", ("l_orderkey", *_REVENUE), (RowTest("l_shipdate", "gt", days("1995-03-15")),)),
    Filter("5o", ("o_orderkey", "o_custkey"), _dates("o_orderdate", "1994-01-01", "1995-01-01")),
    Filter(
        "6l",
        _REVENUE,
        (
            *_dates("l_shipdate", "1994-01-01", "1995-01-01"),
            RowTest("l_discount", "gt", 4),
            RowTest("l_discount", "le", 7),
            RowTest("l_quantity", "le", 2399),
        ),
    ),
    Filter(
        "7l", ("l_orderkey", "l_suppkey", *_REVENUE, "l_shipdate"), _dates("l_shipdate", "1995-01-01", "1997-01-01")
    ),
    Filter("8o", ("o_orderkey", "o_custkey", "o_orderdate"), _dates("o_orderdate", "1995-01-01", "1997-01-01")),
    Filter("10o", ("o_orderkey", "o_custkey", "o_orderdate"), _dates("o_orderdate", "1993-10-01", "1994-01-01")),
    Filter("10l", ("l_orderkey", *_REVENUE), (RowTest("l_returnflag", "eq", ord("R")),)),
    Filter("14l", ("l_partkey", *_REVENUE), _dates("l_shipdate", "1995-09-01", "1995-10-01")),
    Filter("15l", ("l_suppkey", *_REVENUE), _dates("l_shipdate", "1996-01-01", "1996-04-01")),
    Filter("20l", ("l_partkey", "l_suppkey", "l_quantity"), _dates("l_shipdate", "1994-01-01", "1995-01-01")),
    Filter("21o", ("o_orderkey",), (RowTest("o_orderstatus", "eq", ord("F")),)),
)
