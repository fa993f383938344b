"""Programs of Figures 7.8 and 7.9, and their mappings to cores: a code and a cipher, and a network of layers.

The write path codes pages by Hamming(3,2), which adds to every two pages a third, their exclusive or, and encrypts all
three. The network has layers of 8-bit weights, each in a program of its own with the weights of that layer alone.
Mappings say which cores run what; nothing here measures.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import nandarray
from nandarray import Step, programs
from nandarray_papers.assasin.engines import TARGET

__all__ = [
    "LAYERS",
    "PAGE_BYTES",
    "Mapping",
    "coded",
    "fused",
    "hamming",
    "inference",
    "layer",
    "network",
    "write_path",
]

PAGE_BYTES = 4096
#: Elements of the network's inputs, and of the outputs of each layer: weights of 48, 36 and 3 KiB.
LAYERS = (256, 192, 192, 16)
_KEY = {"key_low": 0x0706050403020100, "key_high": 0x0F0E0D0C0B0A0908}

_HAMMING = """
#include <nandarray.h>
ND_PROGRAM("name": "hamming32", "kind": "stream", "scratchpad_bytes": 4096,
           "inputs": [{"name": "data", "dtype": "uint8", "record_bytes": 8192}],
           "outputs": [{"name": "coded", "dtype": "uint8", "record_bytes": 12288, "bound": {"per_record": 12288}}])
#define WORDS 1024
int64_t nd_stream(nd_args *args) {
    uint32_t *code = ND_SCRATCHPAD(args, uint32_t);
    while (!nd_at_end(0)) {
        _Pragma("clang loop unroll_count(16)") for (int i = 0; i < WORDS; i++) {
            uint32_t word = nd_load_u32(0);
            code[i] = word;
            nd_store_u32(0, word);
        }
        _Pragma("clang loop unroll_count(16)") for (int i = 0; i < WORDS; i++) {
            uint32_t word = nd_load_u32(0);
            code[i] ^= word;
            nd_store_u32(0, word);
        }
        _Pragma("clang loop unroll_count(16)") for (int i = 0; i < WORDS; i++) nd_store_u32(0, code[i]);
    }
    return 0;
}
"""

_LAYER = """
#include <nandarray.h>
ND_PROGRAM("name": "NAME", "kind": "stream", "scratchpad_bytes": SCRATCH,
           "inputs": [{"name": "x", "dtype": "int8", "record_bytes": IN}],
           "outputs": [{"name": "y", "dtype": "int8", "record_bytes": OUT, "bound": {"per_record": OUT}}])
WEIGHTS
static inline void layer(const int8_t *w, const int8_t *x, int8_t *y, int in, int out) {
    for (int o = 0; o < out; o++, w += in) {
        int32_t sum = 0;
        _Pragma("clang loop unroll_count(16)") for (int i = 0; i < in; i++) sum += w[i] * x[i];
        sum >>= 7;
        y[o] = (int8_t)(sum < 0 ? 0 : sum > 127 ? 127 : sum);
    }
}
int64_t nd_stream(nd_args *args) {
    (void)args;
    int8_t LOCALS;
    while (!nd_at_end(0)) {
        for (int i = 0; i < IN; i++) v0[i] = nd_load_i8(0);
        CALLS
        for (int i = 0; i < OUT; i++) nd_store_i8(0, LAST[i]);
    }
    return 0;
}
"""


@dataclass(frozen=True)
class Mapping:
    """A mapping of steps to cores: for each step its cores; none if every core runs every step."""

    name: str
    cores: tuple[tuple[int, ...], ...] = ()

    def used(self, step: Step, place: int) -> Step:
        """Return a step on the cores that the mapping gives it."""
        return step.using(cores=self.cores[place]) if self.cores else step


@cache
def hamming(target: str = TARGET) -> nandarray.Program:
    """Return the program of Hamming(3,2): 8 KiB in, 12 KiB out."""
    return nandarray.Program.from_c(_HAMMING, target=target)


def coded(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return what :func:`hamming` gives of whole pairs of pages."""
    pairs = data.reshape(-1, 2, PAGE_BYTES)
    return np.concatenate([pairs, pairs[:, :1] ^ pairs[:, 1:]], axis=1).reshape(-1)


def write_path(source: Any, mapping: Mapping, task_bytes: int, target: str = TARGET) -> Step:
    """Return the last step of Figure 7.8: a source coded, then encrypted, by a mapping of two steps.

    The source has whole pairs of pages, of a store or of the host. The output of a task of ``task_bytes`` fits in a
    core's output buffers.
    """
    code = mapping.used(hamming(target).on(source).using(task_bytes=task_bytes), 0)
    cipher = programs.get("aes128_encrypt", kind="stream", target=target)
    return mapping.used(cipher.on(code, **_KEY).using(task_bytes=task_bytes * 3 // 2), 1)


def network(seed: int, layers: Sequence[int] = LAYERS) -> list[np.ndarray[Any, Any]]:
    """Return weights of each layer, as (outputs, inputs) of int8."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-16, 17, (out, into), np.int8) for into, out in zip(layers, layers[1:], strict=False)]


def layer(weights: np.ndarray[Any, Any], number: int = 0, target: str = TARGET) -> nandarray.Program:
    """Return a program of one layer, whose weights are part of it: they lie in its core's scratchpad."""
    return fused([weights], number, target)


def fused(layers: Sequence[np.ndarray[Any, Any]], number: int = 0, target: str = TARGET) -> nandarray.Program:
    """Return one program of several layers; it asks for a scratchpad of all of their weights."""
    sizes = [layers[0].shape[1], *(one.shape[0] for one in layers)]
    weights = [
        f"static const int8_t w{n}[] = {{{','.join(map(str, one.reshape(-1)))}}};" for n, one in enumerate(layers)
    ]
    calls = [f"layer(w{n}, v{n}, v{n + 1}, {one.shape[1]}, {one.shape[0]});" for n, one in enumerate(layers)]
    values = {
        "NAME": f"layer{number}" if len(layers) == 1 else "network",
        "SCRATCH": str(-(-(sum(one.size for one in layers) + sum(sizes)) // 64) * 64),
        "WEIGHTS": "\n".join(weights),
        "LOCALS": ", ".join(f"v{n}[{size}]" for n, size in enumerate(sizes)),
        "CALLS": " ".join(calls),
        "LAST": f"v{len(layers)}",
        "OUT": str(sizes[-1]),
        "IN": str(sizes[0]),
    }
    text = re.sub("|".join(rf"\b{name}\b" for name in values), lambda found: values[found[0]], _LAYER)
    return nandarray.Program.from_c(text, target=target)


def inference(
    source: Any, layers: Sequence[np.ndarray[Any, Any]], mapping: Mapping, records: int, target: str = TARGET
) -> Step:
    """Return the last step of Figure 7.9: a program for each layer, each of which reads the one before.

    The source has records of the first layer's inputs, int8, a number of ``records`` for a task; the layers are
    weights, as of :func:`network`. The mapping has as many steps.
    """
    last: Any = source
    for place, weights in enumerate(layers):
        step = layer(weights, place, target).on(last).using(task_bytes=records * weights.shape[1])
        last = mapping.used(step, place)
    assert isinstance(last, Step), "a network has a layer"
    return last
