"""Linking: from objects to a program, with the parts of a C library's mathematics that it calls.

Only functions that a program calls and does not define are compiled (:mod:`.mathematics`); the whole support libraries
(:func:`.zig.support`) come last. Errors name the program's own calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from nandarray.errors import CompileError
from nandarray.programs.compile import mathematics, zig

__all__ = ["link"]

_WHERE = re.compile(r">>> referenced by (\S+?):(\d+)")


def link(objects: Sequence[Path], output: Path, target: zig.Target) -> None:
    """Link objects to a program; what they call and do not define comes from the support libraries.

    A call of something that nothing defines, and a second definition, are a CompileError.
    """
    script = zig.INCLUDE / "program.ld"
    words: list[str | Path] = ["ld.lld", "-T", script, "--gc-sections", "--color-diagnostics=never", "-e", "0x10000"]
    words += ["-z", "max-page-size=4096", "-m", f"elf{target.bits}lriscv", "--error-limit=0", "-o", output]
    status, said = zig.run([*words, *objects])
    called = said
    known: list[Path] = []
    while status != 0 and (more := mathematics.needed(zig.undefined(said), target, known)):
        known += more
        status, said = zig.run([*words, *objects, *known])
    if status != 0 and zig.UNDEFINED.search(said):
        try:
            libraries = zig.support(target)
        except OSError as error:
            says = f"{_link_summary(said)}; what else there is has no place to be built in: {error}"
            raise CompileError(says, diagnostics=_undefined(said), output=said) from error
        group: list[str | Path] = [*objects, *known, "--start-group", *libraries, "--end-group"]
        status, said = zig.run([*words, *objects, "--start-group", *libraries, "--end-group"])
        if status != 0 and zig.undefined(said):
            said = _of_program(called, said, lambda defined: zig.run([*words, *defined, *group]))
    if status != 0:
        raise CompileError(_link_summary(said), diagnostics=_undefined(said), output=said)


def _of_program(called: str, said: str, link_again: Callable[[list[str]], tuple[int, str]]) -> str:
    """Reduce what the linker said to what the program itself calls.

    A function of the support libraries may call one that is defined nowhere (``malloc`` calls ``mmap``); the error then
    names the former. To find it, the program is linked once for each name with all others defined. ``called`` is what
    the linker said without the libraries, ``said`` with them; ``link_again`` links with them and options of one's own.
    The result has errors of ``called``, as the linker writes them; it is ``said`` if none of them is to blame.
    """
    names, missing = zig.undefined(called), zig.undefined(said)
    blamed = names & missing
    if missing - names:
        for name in sorted(names - missing):
            defined = [f"--defsym={other}=0x10000" for other in sorted(names - {name})]
            if zig.undefined(link_again(defined)[1]):
                blamed.add(name)
    parts = [part for part in called.split("ld.lld: error: ")[1:] if zig.undefined(part) & blamed]
    return "".join(f"ld.lld: error: {part}" for part in parts) or said


def _link_summary(said: str) -> str:
    names = list(dict.fromkeys(zig.UNDEFINED.findall(said)))
    if not names:
        return zig.summary("the program does not link", said)
    where = {str(one["text"]).split()[0]: f" ({one['file']}:{one['line']})" for one in _undefined(said)}
    listed = ", ".join(name + where.get(name, "") for name in names)
    return f"the program calls what it does not define: {listed}; there is <math.h>, and no other C library"


def _undefined(said: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for part in said.split("ld.lld: error: ")[1:]:
        name, where = zig.UNDEFINED.search(part), _WHERE.search(part)
        if name and where:
            text = f"{name.group(1)} is called and nothing defines it"
            line = int(where.group(2))
            found.append({"file": where.group(1), "line": line, "column": 0, "severity": "error", "text": text})
    return found
