"""The gain of a program from vector instructions: compiled for this machine with and without them, and timed.

Clang compiles the program's source twice, as its native form and with loop and superword vectorisation off (vectors
that are written out with it, and memory functions that go word by word). Both run on one thread, over the same data in
memory, each several times by turns; the least time of each counts. Besides, Clang tells which loops it made into vector
loops.

Only of programs that are trusted, as every native form; of others there are the remarks alone. What Clang does not
vectorise by itself is not proven to be hard: tables, ciphers and automata have vector forms that people wrote by hand.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.programs.compile import host, zig
from nandarray.programs.compile.cache import Cache, digest
from nandarray.programs.compile.functions import typed
from nandarray.programs.compile.native import Recipe, _dlopen

if TYPE_CHECKING:
    from nandarray.programs.program import Program

__all__ = ["Loops", "Times", "loops", "times"]

_WITHOUT = ("-fno-vectorize", "-fno-slp-vectorize", "-fno-builtin", "-DND_NO_VECTORS")
_REMARKS = ("-Rpass=loop-vectorize", "-Rpass-missed=loop-vectorize")
_ROUNDS, _ROUND_S = 5, 0.02
_Array = np.ndarray[Any, Any]

# The memory functions, which the process has with vectors, without.
_MEMORY = """
#include <stddef.h>
typedef unsigned long word __attribute__((may_alias, aligned(1)));
__attribute__((visibility("hidden"))) void *memcpy(void *to, const void *from, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) *(word *)((char *)to + i) = *(const word *)((const char *)from + i);
    for (; i < n; i++) ((char *)to)[i] = ((const char *)from)[i];
    return to;
}
__attribute__((visibility("hidden"))) void *memmove(void *to, const void *from, size_t n) {
    if ((char *)to <= (const char *)from || (char *)to >= (const char *)from + n) return memcpy(to, from, n);
    while (n--) ((char *)to)[n] = ((const char *)from)[n];
    return to;
}
__attribute__((visibility("hidden"))) void *memset(void *to, int byte, size_t n) {
    for (size_t i = 0; i < n; i++) ((char *)to)[i] = (char)byte;
    return to;
}
"""


@dataclass(frozen=True)
class Loops:
    """The numbers of loops that Clang makes vector code of on this machine and of innermost ones that it does not.

    ``lines`` says where the first of them are.
    """

    vectorised: int
    missed: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Times:
    """Seconds of one pass over the data on one thread of this machine."""

    vector_s: float
    scalar_s: float

    @property
    def gain(self) -> float:
        """The time without vector instructions divided by that with them."""
        return self.scalar_s / self.vector_s


def loops(program: Program) -> Loops | None:
    """Ask Clang which loops it vectorises; None without a known source, or without a native form on this machine."""
    machine = host.target()
    if machine is None or program._recipe is None:
        return None
    with _scratch() as folder:
        said = _compile(program, folder, machine, flags=_REMARKS)[1]
    found: list[str] = []
    missed: list[str] = []
    for line in said.splitlines():
        if "remark:" not in line:
            continue
        where = re.sub(r"^.*?([^/:]+:\d+):\d+: remark:.*$", r"\1", line)
        if "loop-vectorize" in line:  # straight pieces are many, and small
            (missed if "not vectorized" in line else found).append(where)
    named = [one for one in dict.fromkeys(missed) if "remark" not in one and "unknown" not in one]
    return Loops(len(found), len(missed), tuple(named[:8]))


def times(program: Program, inputs: Sequence[_Array], scalars: Sequence[int]) -> Times | None:
    """Time a trusted program of kind ``"block"`` with and without vector instructions; None without a native form.

    The inputs are whole, one task, the scalars bit patterns. An InvalidError says that the program returns an error for
    them.
    """
    machine = host.target()
    if machine is None or program._recipe is None or not program.trusted or program.kind != "block":
        return None
    calls = [_Call(program, _library(program, machine, vectors=on), inputs, scalars) for on in (True, False)]
    least = [float("inf")] * 2
    for _ in range(_ROUNDS):
        for number, call in enumerate(calls):
            least[number] = min(least[number], call.seconds())
    return Times(*least)


# --- compiling --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _scratch() -> Any:
    folder = Path(tempfile.mkdtemp(prefix="nandarray-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _compile(program: Program, folder: Path, machine: host.Host, *, flags: Sequence[str]) -> tuple[Path, str]:
    recipe, made = program._recipe, folder / "program.o"
    if isinstance(recipe, Recipe):
        file = folder / recipe.path.name
        file.write_text(recipe.text)
        near = [] if recipe.inline else [f"-iquote{recipe.path.resolve().parent}"]
        said, _ = zig.compile_c(file, made, machine, flags=[*near, *recipe.flags, *flags])
        return made, said
    assert recipe is not None
    (folder / "program.ll").write_text(host.retarget(typed(recipe)[1](), machine))
    return made, zig.compile_ir(folder / "program.ll", made, machine, flags=flags)


def _library(program: Program, machine: host.Host, *, vectors: bool) -> ctypes.CDLL:
    flags = () if vectors else _WITHOUT
    cache, key = Cache(), digest(["advise", zig.version(), zig.OPTIONS, machine, program.hash, _MEMORY, *flags])
    found = cache.get(key)
    if found is not None:
        return _dlopen(program.name, found[0])
    with _scratch() as folder:
        objects = [_compile(program, folder, machine, flags=flags)[0]]
        if not isinstance(program._recipe, Recipe):
            objects.append(zig.runtime(machine))
        if not vectors:
            (folder / "memory.c").write_text(_MEMORY)
            zig.compile_c(folder / "memory.c", folder / "memory.o", machine, flags=[*flags, "-w"])
            objects.append(folder / "memory.o")
        host.link(objects, folder / "program.so", machine)
        raw = (folder / "program.so").read_bytes()
    cache.put(key, raw)
    return _dlopen(program.name, raw)


# --- calling ----------------------------------------------------------------------------------------------------------


class _Call:
    """One task of a program in native form, ready to be called again and again."""

    def __init__(
        self, program: Program, library: ctypes.CDLL, inputs: Sequence[_Array], scalars: Sequence[int]
    ) -> None:
        facts = program.metadata
        self.name, self.facts, self.library = program.name, facts, library
        self.inputs = [np.ascontiguousarray(one).reshape(-1).view(np.uint8) for one in inputs]
        self.state = np.zeros(facts["state_bytes"] + 64, np.uint8)
        self.scratchpad = np.zeros(facts["scratchpad_bytes"] + 64, np.uint8)
        ports = zip(facts["inputs"], self.inputs, strict=True)
        cut = [(port, one) for port, one in ports if not port.get("whole")]
        records = -(-cut[0][1].nbytes // cut[0][0]["record_bytes"]) if cut else 0
        taken = sum(one.nbytes for _, one in cut)
        self.outputs = [np.zeros(_room(port, records, taken), np.uint8) for port in facts["outputs"]]
        self.block = np.zeros(512, np.uint64)
        head = [1, len(inputs), len(self.outputs), len(scalars), 0, 0, self.state.ctypes.data, facts["state_bytes"]]
        head += [0, self.scratchpad.ctypes.data, facts["scratchpad_bytes"]]
        self.block[: len(head)] = head
        for first, every in ((11, zip(facts["inputs"], self.inputs, strict=True)),
                             (75, zip(facts["outputs"], self.outputs, strict=True))):  # fmt: skip
            for number, (port, memory) in enumerate(every):
                at = first + 8 * number
                shape = [-(-memory.nbytes // max(port["record_bytes"], 1)), 1, 1, 1]
                address = memory.ctypes.data if memory.nbytes else 0
                self.block[at : at + 8] = [address, memory.nbytes, 0, 1, *shape]
        self.block[139 : 139 + len(scalars)] = np.array(list(scalars), np.uint64)
        self.passes = 1

    def _call(self, entry: str) -> None:
        if entry not in self.facts["entries"]:
            return
        function = getattr(self.library, entry)
        function.restype, function.argtypes = ctypes.c_int64, [ctypes.c_void_p]
        status = function(self.block.ctypes.data)
        if status < 0:
            raise InvalidError(f"{self.name}: {entry} returned {status} for the sample")

    def seconds(self) -> float:
        """Time a pass over the data, the mean of enough of them for the clock."""
        while True:
            self.state[:] = 0
            self._call("nd_begin")
            begin = time.thread_time_ns()
            for _ in range(self.passes):
                self._call("nd_block")
            took = (time.thread_time_ns() - begin) * 1e-9
            if took >= _ROUND_S or self.passes >= 1 << 16:
                return took / self.passes
            self.passes = max(2 * self.passes, int(self.passes * _ROUND_S / max(took, 1e-7)) + 1)


def _room(port: Mapping[str, Any], records: int, taken: int) -> int:
    bound = port["bound"]
    if port["phase"] == "end":
        return 0
    return int(bound["per_record"] * records + np.ceil(bound["per_input_byte"] * taken) + bound["fixed"])
