"""The file-system kernels of Figure 8.10: bit packing of two columns, and the parity of RAID5, in four forms.

Bit packing reads values of 8 or 32 bits and writes them with 5 or 15. RAID5 reads three strips of one column, as the
author's public workloads do (github.com/zinechant/simdstor, ``raid5``; the dissertation does not state it), and writes
their exclusive or. All inputs are padded, as there. V has no store of single bits, so its bit packing is the scalar
form.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nandarray_papers.varve.columns import column
from nandarray_papers.varve.filters import packed_bits
from nandarray_papers.varve.sources import Port, program, streams

__all__ = ["STRIPS", "bitpack", "bitpack_data", "raid5", "raid5_data"]

#: Data strips of a parity strip.
STRIPS = 3

_Data = tuple[list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]


def bitpack_data(name: str, bits: int, scale: float, rows: int) -> _Data:
    """Return a column, and what it has to be packed into."""
    values = column(name, scale)[:rows]
    return [values], [packed_bits(values, np.full(len(values), bits))]


def bitpack(name: str, bits: int, form: str, scale: float) -> str:
    """Return the program, in C and in one of the four forms, that packs a column's values to some bits."""
    reads = Port("x", str(column(name, scale).dtype))
    writes = Port("y", "uint8")
    element = f"e{reads.bits}, m1" if form == "pup" else ""
    scalar = f"""
    uint64_t held = 0;
    unsigned filled = 0;
    for (size_t i = 0; i < n; i++) {{
        held |= (uint64_t)x[i] << filled;
        filled += {bits};
        while (filled >= 8) {{ y[used_y++] = (uint8_t)held; held >>= 8; filled -= 8; }}
    }}
    if (filled) y[used_y++] = (uint8_t)held;"""
    opened = f"    nd_frstream(0, x, n, {reads.detail});\n    nd_fwstream(16, y, n, {bits});\n"
    ended = "    used_y = (nd_ewstream(16) + 7) / 8;"
    loops = {
        "pup": f"""    for (size_t vl; n > 0; n -= vl) {{
        __asm__ volatile("vsetvli %0, %1, {element}, ta, mu" : "=r"(vl) : "r"(n) : VECTORS);
        nd_unpack(2, 0);
        (void)nd_pack(2, 16);
    }}
""",
        "full": """    (void)nd_vrcnum();
    while (n > 0) {
        nd_vunpack(2, 0, 64);
        (void)nd_vpack(2, 16);
        size_t step = nd_vrcnum();
        nd_crstream(0, step);
        n -= step;
    }
""",
    }
    body = opened + loops[form] + ended if form in loops else scalar
    return program(f"bitpack_{name}_{form}", [reads], [writes], body, varve=form in loops)


def raid5_data(scale: float, rows: int) -> _Data:
    """Return the strips of `l_linenumber`, and their parity."""
    strips = list(column("l_linenumber", scale)[: rows // STRIPS * STRIPS].reshape(STRIPS, -1))
    return strips, [np.bitwise_xor.reduce(strips)]


def raid5(form: str) -> str:
    """Return the program that computes the parity of the strips."""
    reads, writes = [Port(f"x{i}", "int32") for i in range(STRIPS)], [Port("y", "int32")]
    numbers = range(1, STRIPS)
    if form == "scalar":
        sums = " ^ ".join(f"x{i}[i]" for i in range(STRIPS))
        body = f"    for (size_t i = 0; i < n; i++) y[i] = {sums};\n    used_y = n;"
        return program("raid5_scalar", reads, writes, body, varve=False)
    start = '__asm__ volatile("vsetvli %0, %1, e32, m1, ta, mu" : "=r"(vl) : "r"(n) : VECTORS);'
    code = {
        "v": [
            start,
            *(f'__asm__ volatile("vle32.v v{2 + i}, (%0)" : : "r"(x{i}) : VECTORS);' for i in range(STRIPS)),
            *(f'__asm__ volatile("vxor.vv v2, v2, v{2 + i}" : : : VECTORS);' for i in numbers),
            '__asm__ volatile("vse32.v v2, (%0)" : : "r"(y) : VECTORS);',
            *(f"x{i} += vl;" for i in range(STRIPS)),
            "y += vl;",
        ],
        "pup": [
            start,
            *(f"nd_unpack({2 + i}, {i});" for i in range(STRIPS)),
            *(f'__asm__ volatile("vxor.vv v2, v2, v{2 + i}" : : : VECTORS);' for i in numbers),
            "(void)nd_pack(2, 16);",
        ],
        "full": [
            *(f"nd_vunpack({2 + i}, {i}, 64);" for i in range(STRIPS)),
            *(f"nd_varve_vv(ND_VARVE_EOR, 2, 2, {2 + i});" for i in numbers),
            "size_t vl = nd_vrcnum();",
            "(void)nd_vpack(2, 16);",
            *(f"nd_crstream({i}, vl);" for i in range(STRIPS)),
        ],
    }[form]
    inside = "\n        ".join(code)
    declared = "    size_t all = n;\n" + ("    (void)nd_vrcnum();\n" if form == "full" else "    size_t vl;\n")
    opened = streams(reads, writes) + "\n" if form != "v" else ""
    body = f"{declared}{opened}    for (; n > 0; n -= vl) {{\n        {inside}\n    }}\n    used_y = all;"
    if form == "full":
        inner = inside.replace("size_t vl = ", "vl = ")
        body = f"{declared}{opened}    size_t vl;\n    for (; n > 0; n -= vl) {{\n        {inner}\n    }}\n"
        body += "    used_y = all;"
    return program(f"raid5_{form}", reads, writes, body, varve=form != "v")
