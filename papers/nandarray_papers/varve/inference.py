"""Inference of the network of Table 8.2 in four forms: lanes are outputs, filters in the convolution, then classes.

Weights so lie in lanes as Table 8.2 has them, which is what 8.3.4 says of zero weights. All forms have one order: for
each pooled place its 4 x 4 pixels, then strips of filters; a strip multiplies and adds nine taps at the four places of
the pool. The dense layer goes over inputs four at a time, with a sum for each, for a strip of classes. All data are
padded to 32 bits. Vector forms multiply and add in two instructions, since Table 8.1 has no multiply-add;
``"v-fused"`` is V with one. ``"full-masked"`` leaves zero weights out of products by a mask. Instructions are in
one order in all vector forms: products of a tap before the sums of the tap before.
"""

from __future__ import annotations

from collections.abc import Sequence

from nandarray_papers.varve.network import CLASSES, FEATURES, FILTERS, SIDE

__all__ = ["source"]

_TAPS = 9
_PLACES = 4
_WIDE = 4
# Registers of vector forms: weights, sums, products of even and odd taps, pixels (full).
_WEIGHTS, _SUMS, _PRODUCTS, _PIXELS = (1, 2), 4, (8, 12), 16
_SIGNED = "32 | ND_SIGNED"

_HEAD = """#include <nandarray.h>
{include}
#define VECTORS "memory", "vl", "vtype", {registers}
ND_PROGRAM("name": "network_{name}", "kind": "block",
           "inputs": [{{"name": "images", "dtype": "int32", "record_bytes": {image}}},
                      {{"name": "weights", "dtype": "int32", "whole": true}}],
           "outputs": [{{"name": "values", "dtype": "int32", "record_bytes": {values}}}],
           "scratchpad_bytes": {scratch})
typedef struct {{
    int32_t kernels[{taps}][{filters}], bias[{filters}], dense[{features}][{classes}], dense_bias[{classes}];
}} weights_t;
static void features(const int32_t *restrict image, const weights_t *restrict w, int32_t *restrict to) {{
{convolution}
}}
static void classify(const int32_t *restrict from, const weights_t *restrict w, int32_t *restrict to) {{
{dense}
}}
int64_t nd_block(nd_args *args) {{
    const int32_t *images = ND_INPUT(args, 0, int32_t);
    const weights_t *w = ND_INPUT(args, 1, weights_t);
    int32_t *values = ND_OUTPUT(args, 0, int32_t), *scratch = ND_SCRATCHPAD(args, int32_t);
    size_t n = args->inputs[0].bytes / {image};
    for (size_t i = 0; i < n; i++) {{
        features(images + i * {pixels}, w, scratch);
        classify(scratch, w, values + i * {classes});
    }}
    args->outputs[0].used = n * {values};
    return 0;
}}
"""


def source(form: str, shift: int) -> str:
    """Return the C source of a network's inference in one form; features lose ``shift`` bits, 0 to 15.

    The form is one of :data:`nandarray_papers.varve.measure.FORMS`, ``"v-fused"`` or ``"full-masked"``.
    """
    varve = form in {"pup", "full", "full-masked"}
    convolution, dense = {
        "scalar": (_scalar_convolution, _scalar_dense),
        "v": (_fixed_convolution, _fixed_dense),
        "v-fused": (_fixed_convolution, _fixed_dense),
        "pup": (_fixed_convolution, _fixed_dense),
        "full": (_full_convolution, _full_dense),
        "full-masked": (_full_convolution, _full_dense),
    }[form]
    return _HEAD.format(
        include="#include <nandarray_varve.h>" if varve else "",
        registers=", ".join(f'"v{i}"' for i in range(32)),
        name=form.replace("-", "_"),
        image=4 * SIDE * SIDE,
        pixels=SIDE * SIDE,
        values=4 * CLASSES,
        scratch=4 * FEATURES,
        taps=_TAPS,
        filters=FILTERS,
        features=FEATURES,
        classes=CLASSES,
        convolution=convolution(form, shift),
        dense=dense(form),
    )


def _pixel(tap: int, place: int) -> int:
    """The number of a pixel in the 4 x 4 of a pooled place."""
    return (tap // 3 + place // 2) * _WIDE + tap % 3 + place % 2


def _places(inside: Sequence[str], before: Sequence[str] = ()) -> str:
    """A loop over pooled places, with their pixels in ``x0`` to ``x15``."""
    pixels = ", ".join(f"x{i} = corner[{i // _WIDE * SIDE + i % _WIDE}]" for i in range(_WIDE * _WIDE))
    return "\n    ".join(
        [
            *(f"    {line}" if i == 0 else line for i, line in enumerate(before)),
            f"    for (size_t place = 0; place < {FEATURES // FILTERS}; place++) {{",
            f"const int32_t *corner = image + place / {(SIDE - 2) // 2} * {2 * SIDE} + place % {(SIDE - 2) // 2} * 2;",
            f"const int32_t {pixels};",
            *inside,
            "}",
        ]
    )


def _taps(load: Sequence[str], product: str, add: str, fused: str = "") -> list[str]:
    """Nine taps at four places; ``product`` has register, weights and pixel, ``add`` two registers."""
    lines: list[str] = []
    for tap in range(_TAPS):
        weights = _WEIGHTS[tap % 2]
        lines.append(load[tap].format(weights))
        for place in range(_PLACES):
            to = _SUMS + place if tap == 0 else _PRODUCTS[tap % 2] + place
            if fused and tap:
                lines.append(fused.format(_SUMS + place, weights, _pixel(tap, place)))
            else:
                lines.append(product.format(to, weights, _pixel(tap, place)))
        if tap > 1 and not fused:
            lines += [add.format(_SUMS + place, _PRODUCTS[(tap - 1) % 2] + place) for place in range(_PLACES)]
    if not fused:
        lines += [add.format(_SUMS + place, _PRODUCTS[(_TAPS - 1) % 2] + place) for place in range(_PLACES)]
    return lines


def _scalar_convolution(_form: str, shift: int) -> str:
    sums = [
        " + ".join(f"x{_pixel(tap, place)} * w->kernels[{tap}][f]" for tap in range(_TAPS)) for place in range(_PLACES)
    ]
    return _places(
        [
            f"for (size_t f = 0; f < {FILTERS}; f++) {{",
            *(f"    const int32_t s{place} = {text};" for place, text in enumerate(sums)),
            "    const int32_t a = s0 > s1 ? s0 : s1, b = s2 > s3 ? s2 : s3, most = (a > b ? a : b) + w->bias[f];",
            f"    *to++ = (most > 0 ? most : 0) >> {shift};",
            "}",
        ]
    )


def _scalar_dense(_form: str) -> str:
    sums = " ".join(f"s{c} += a * row[{c}];" for c in range(CLASSES))
    return "\n    ".join(
        [
            "    const int32_t *row = &w->dense[0][0];",
            f"int32_t {', '.join(f's{c} = w->dense_bias[{c}]' for c in range(CLASSES))};",
            f"for (size_t i = 0; i < {FEATURES}; i++, row += {CLASSES}) {{ const int32_t a = from[i]; {sums} }}",
            " ".join(f"to[{c}] = s{c};" for c in range(CLASSES)),
        ]
    )


def _asm(code: str, operand: str = "") -> str:
    return f'__asm__ volatile("{code}" : : {operand} : VECTORS);'


def _set_length(count: str) -> str:
    return f'__asm__ volatile("vsetvli %0, %1, e32, m1, ta, mu" : "=r"(vl) : "r"({count}) : VECTORS);'


_VMUL = '__asm__ volatile("vmul.vx v{0}, v{1}, %0" : : "r"(x{2}) : VECTORS);'
_VADD = '__asm__ volatile("vadd.vv v{0}, v{0}, v{1}" : : : VECTORS);'
_VMACC = '__asm__ volatile("vmacc.vx v{0}, %0, v{1}" : : "r"(x{2}) : VECTORS);'


def _fixed_convolution(form: str, shift: int) -> str:
    pup = form == "pup"
    streams = [f"nd_frstream({tap}, w->kernels[{tap}], {FILTERS}, {_SIGNED});" for tap in range(_TAPS)]
    streams.append(f"nd_frstream({_TAPS}, w->bias, {FILTERS}, {_SIGNED});")
    load = [
        f"nd_unpack({{0}}, {tap});" if pup else _asm("vle32.v v{0}, (%0)", f'"r"(w->kernels[{tap}] + f)')
        for tap in range(_TAPS)
    ]
    bias = f"nd_unpack(1, {_TAPS});" if pup else _asm("vle32.v v1, (%0)", '"r"(w->bias + f)')
    store = ["(void)nd_pack(4, 16);"] if pup else [_asm("vse32.v v4, (%0)", '"r"(to)'), "to += vl;"]
    strip = [
        _set_length(f"{FILTERS} - f"),
        *_taps(load, _VMUL, _VADD, _VMACC if form == "v-fused" else ""),
        bias,
        _asm("vmax.vv v4, v4, v5"),
        _asm("vmax.vv v6, v6, v7"),
        _asm("vmax.vv v4, v4, v6"),
        _asm("vadd.vv v4, v4, v1"),
        _asm("vmax.vx v4, v4, zero"),
        _asm(f"vsra.vi v4, v4, {shift}"),
        *store,
    ]
    loop = [f"for (size_t f = 0, vl; f < {FILTERS}; f += vl) {{", *(f"    {line}" for line in strip), "}"]
    return _places([*(streams if pup else []), *loop], [f"nd_fwstream(16, to, {FEATURES}, {_SIGNED});"] if pup else [])


def _fixed_dense(form: str) -> str:
    pup, fused = form == "pup", form == "v-fused"
    lines = [
        f"    for (size_t c = 0, vl; c < {CLASSES}; c += vl) {{",
        "    " + _set_length(f"{CLASSES} - c"),
        "    const int32_t *row = &w->dense[0][c];",
        f"    nd_frstream(0, row, {FEATURES * CLASSES}, {_SIGNED});" if pup else "",
        f"    const size_t skip = {CLASSES} - vl;" if pup else "",
        "    " + _asm("vle32.v v4, (%0)", '"r"(w->dense_bias + c)'),
        *("    " + _asm(f"vmv.v.i v{_SUMS + k}, 0") for k in range(1, _PLACES)),
        f"    for (size_t i = 0; i < {FEATURES}; i += 4) {{",
        "        const int32_t x0 = from[i], x1 = from[i + 1], x2 = from[i + 2], x3 = from[i + 3];",
    ]
    for k in range(_PLACES):
        load = (
            f"nd_unpack({_PIXELS + k}, 0); nd_crstream(0, skip);"
            if pup
            else _asm(f"vle32.v v{_PIXELS + k}, (%0)", f'"r"(row + {k * CLASSES})')
        )
        lines.append("        " + load)
    if fused:
        lines += ["        " + _VMACC.format(_SUMS + k, _PIXELS + k, k) for k in range(_PLACES)]
    else:
        lines += ["        " + _VMUL.format(_PRODUCTS[0] + k, _PIXELS + k, k) for k in range(_PLACES)]
        lines += ["        " + _VADD.format(_SUMS + k, _PRODUCTS[0] + k) for k in range(_PLACES)]
    lines += [
        "" if pup else f"        row += {4 * CLASSES};",
        "    }",
        *("    " + _VADD.format(a, b) for a, b in ((4, 5), (6, 7), (4, 6))),
        "    " + _asm("vse32.v v4, (%0)", '"r"(to + c)'),
        "}",
    ]
    return "\n    ".join(line for line in lines if line)


_ADD = "nd_varve_vv(ND_VARVE_ADD, {0}, {0}, {1});"


def _full_product(form: str) -> tuple[str, str]:
    """The mask of a register of weights, or nothing, and the product."""
    if form == "full":
        return "", "nd_varve_vv(ND_VARVE_MUL, {0}, {1}, 16 + {2});"
    return " nd_varve_vi(ND_VARVE_CMPNE, 0, {0}, 0);", "nd_varve_vvm(ND_VARVE_MUL, {0}, {1}, 16 + {2});"


def _full_convolution(form: str, shift: int) -> str:
    mask, product = _full_product(form)
    streams = [f"nd_frstream({tap}, w->kernels[{tap}], {FILTERS}, {_SIGNED});" for tap in range(_TAPS)]
    streams.append(f"nd_frstream({_TAPS}, w->bias, {FILTERS}, {_SIGNED});")
    pixels = [f"nd_vcpy({_PIXELS + i}, x{i});" for i in range(_WIDE * _WIDE)]
    strip = [
        *_taps([f"nd_vunpack({{0}}, {tap}, 32);{mask}" for tap in range(_TAPS)], product, _ADD),
        f"nd_vunpack(1, {_TAPS}, 32);",
        *(f"nd_varve_vv(ND_VARVE_MAX, {a}, {a}, {b});" for a, b in ((4, 5), (6, 7), (4, 6))),
        _ADD.format(4, 1),
        "nd_varve_vi(ND_VARVE_MAX, 4, 4, 0);",
        f"nd_varve_vi(ND_VARVE_ASR, 4, 4, {shift});",
        "(void)nd_vpack(4, 16);",
        "const size_t step = nd_vrcnum();",
        *(f"nd_crstream({i}, step);" for i in range(_TAPS + 1)),
        "f += step;",
    ]
    loop = [f"for (size_t f = 0; f < {FILTERS};) {{", *(f"    {line}" for line in strip), "}"]
    opened = [f"nd_fwstream(16, to, {FEATURES}, {_SIGNED});", "(void)nd_vrcnum();"]
    return _places([*streams, *pixels, *loop], opened)


def _full_dense(form: str) -> str:
    mask, product = _full_product(form)
    lines = [
        f"    nd_fwstream(17, to, {CLASSES}, {_SIGNED});",
        f"for (size_t c = 0; c < {CLASSES};) {{",
        "    (void)nd_vrcnum();",
        f"    nd_frstream(0, &w->dense[0][c], {FEATURES * CLASSES}, {_SIGNED});",
        f"    nd_frstream(1, w->dense_bias + c, {CLASSES} - c, {_SIGNED});",
        "    nd_vunpack(4, 1, 32);",
        *(f"    nd_vdup({_SUMS + k}, 0);" for k in range(1, _PLACES)),
        f"    for (size_t i = 0; i < {FEATURES}; i += 4) {{",
        "        const int32_t x0 = from[i], x1 = from[i + 1], x2 = from[i + 2], x3 = from[i + 3];",
        *(f"        nd_vcpy({_PIXELS + k}, x{k});" for k in range(_PLACES)),
    ]
    for k in range(_PLACES):
        lines.append(f"        nd_vunpack({_PIXELS + 4 + k}, 0, 32); nd_crstream(0, {CLASSES});")
    lines += [
        "       " + mask.format(_PIXELS + 4 + k) + " " + product.format(_PRODUCTS[0] + k, _PIXELS + 4 + k, k)
        for k in range(_PLACES)
    ]
    lines += ["        " + _ADD.format(_SUMS + k, _PRODUCTS[0] + k) for k in range(_PLACES)]
    lines += [
        "    }",
        *("    " + _ADD.format(a, b) for a, b in ((4, 5), (6, 7), (4, 6))),
        "    (void)nd_vpack(4, 17);",
        "    c += nd_vrcnum();",
        "}",
    ]
    return "\n    ".join(lines)
