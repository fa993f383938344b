"""The host as a target: the compiler of :mod:`.zig` makes a library that this process can open.

Nothing of the system is read here either, but for the processor's name: a library is made for the processor that it is
made on. Mathematics comes from the same sources as for RISC-V, so that results are equal to the bit; only memory
functions and ``longjmp`` are the process's own. There is Linux on x86-64 and on 64-bit ARM.

This module knows no programs.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nandarray.errors import CompileError
from nandarray.programs.compile import mathematics, zig
from nandarray.programs.compile.cache import digest

__all__ = ["Host", "link", "retarget", "target"]

#: Functions that a library may take from the process that opens it.
_PROCESS = {"memcpy", "memmove", "memset", "memcmp", "strlen", "_setjmp", "longjmp", "__tls_get_addr"}
_LAYOUTS = {
    "x86_64": "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128",
    "aarch64": "e-m:e-p270:32:32-p271:32:32-p272:64:64-i8:8:32-i16:16:32-i64:64-i128:128-n32:64-S128-Fn32",
}
_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class Host(zig.Target):
    """The processor of this machine, as a target of the compiler."""

    processor: str

    @property
    def triple(self) -> str:
        """Name of the machine in LLVM."""
        return f"{self.isa}-unknown-linux-musl"

    @property
    def layout(self) -> str:
        """Data layout of the machine in LLVM."""
        return _LAYOUTS[self.isa]

    @property
    def words(self) -> tuple[str, ...]:
        """Clang's options for this processor."""
        mine = "-mcpu=native" if self.isa == "aarch64" else "-march=native"
        return ("-target", self.triple, mine, "-fPIC", "-ftls-model=local-dynamic", "-DND_NATIVE=1")

    @property
    def machine(self) -> str:
        """The processor's name in musl."""
        return self.isa

    @property
    def general(self) -> tuple[str, ...]:
        """Zig's options beside the processor's name."""
        return ("-fPIC",)


@cache
def target() -> Host | None:
    """Return this machine as a target; None where libraries cannot be made for it."""
    machine = platform.machine().lower()
    machine = _NAMES.get(machine, machine)
    if sys.platform != "linux" or machine not in _LAYOUTS or sys.maxsize < 2**32:
        return None
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    wanted = ("model name", "flags", "features", "cpu implementer", "cpu part", "cpu variant")
    kinds = sorted({line for line in lines if line.lower().startswith(wanted)})
    return Host("host", 64, machine, "", "native", digest(kinds)[:16])


def link(objects: Sequence[Path], output: Path, host: Host) -> None:
    """Link objects to a library that exports the entry points of a program, and nothing else.

    A call of something that nothing defines is a CompileError.
    """
    script = output.with_suffix(".exports")
    script.write_text("{ global: nd_begin; nd_block; nd_stream; nd_merge; nd_end; nd_kernel_*; local: *; };\n")
    words: list[str | Path] = ["ld.lld", "-shared", "-Bsymbolic", "--gc-sections", "--color-diagnostics=never"]
    words += ["-z", "defs", "-z", "now", "-z", "noexecstack", "--warn-unresolved-symbols"]
    words += [f"--version-script={script}", "--undefined-version", "-o", output]
    status, said = zig.run([*words, *objects])
    known: list[Path] = []
    while more := mathematics.needed(zig.undefined(said) - _PROCESS, host, known):
        known += more
        status, said = zig.run([*words, *objects, *known])
    if zig.undefined(said) - _PROCESS:
        status, said = zig.run([*words, *objects, "--start-group", *zig.support(host), "--end-group"])
    missing = sorted(zig.undefined(said) - _PROCESS)
    if status != 0 or missing:
        raise CompileError(f"the program does not link for this machine: {', '.join(missing) or said}", output=said)


def retarget(text: str, host: Host) -> str:
    """Make a module of LLVM's intermediate representation, typed for RISC-V of 64 bits, one for the host.

    Both have the same data model, so that only the module's head changes; entry points of streams get the name that
    the host's stream functions call them by.
    """
    for what, value in (("triple", host.triple), ("datalayout", host.layout)):
        text = re.sub(f"^target {what} = .*$", f'target {what} = "{value}"', text, count=1, flags=re.MULTILINE)
    # Several threads run the library, each with a note and a scratchpad of its own.
    for name in ("nd_noted", "nd_scratchpad"):
        text = text.replace(f"@{name} = internal global", f"@{name} = internal thread_local global")
    return text.replace("@nd_stream(", "@nd_stream_body_(")
