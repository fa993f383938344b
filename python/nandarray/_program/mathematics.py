"""Functions of ``<math.h>`` for programs, one by one: only what a program calls is compiled, at first use, and kept.

The sources are those in the ``ziglang`` wheel: musl's in C, and what Zig has of a C library and of the compiler's own
arithmetic. All of them together take seconds to build (:func:`nandarray._program.zig.support`), a file of musl's some
hundredths, a part of Zig's about half a second. What is found here is what those libraries have, in their order; what
is not found is left to them.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from nandarray._program.cache import digest, folder, write_whole

if TYPE_CHECKING:
    from nandarray._program.zig import Target

__all__ = ["needed"]

# musl begins a definition at the left edge, and ends a declaration there with a semicolon.
_FUNCTION = re.compile(r"^(?!static|typedef|return)[a-z_][\w \t*]*?\b(\w+)\s*\([^;]*?\)\s*\{", re.MULTILINE)
_DATA = re.compile(r"^(?!static)\w[\w ]*?\b(\w+)(?:\[[^\]]*\])*\s*=\s*\{", re.MULTILINE)
_ALIAS = re.compile(r"^weak_alias\(\w+,\s*(\w+)\)|^int (\w+)\s*(?:=[^;]*)?;", re.MULTILINE)
_IMPORT = re.compile(r'_ = @import\("([^"]+)"\);')
_EXPORT = re.compile(r'\bsymbol\(&[^;]*?, "(\w+)"\);')


def needed(names: Iterable[str], target: Target, known: Sequence[Path] = ()) -> list[Path]:
    """Give objects that define some of these names, compiled now or before.

    Parameters
    ----------
    names : iterable of str
        What a program calls and does not define.
    known : sequence of pathlib.Path
        Objects that it has already.
    target : Target
        The processor.

    Returns
    -------
    list of pathlib.Path
        Empty if nothing of it is known here. The objects may in turn call what they do not define.
    """
    from nandarray._program import zig

    where = folder() / "support" / f"parts-{target.name}-{zig.support_key(target)}"
    musl, rest, found = _musl(target), [], {}
    for name in sorted(set(names)):
        if name in musl:
            found[where / f"{musl[name].stem}.o"] = musl[name]
        else:
            rest.append(name)
    missing = [(path, source) for path, source in found.items() if not path.exists()]
    if missing:
        _compile_c([source for _, source in missing], where, target)
    given = list(found)
    for root in ("c.zig", "compiler_rt.zig"):
        inside = {name: files for name in rest if (files := _holding(root, name))}
        if inside:
            given.append(_zig_part(root, inside, where, target))
            rest = [name for name in rest if name not in inside]
    return [path for path in given if path not in known]


@cache
def _musl(target: Target) -> dict[str, Path]:
    """Which file defines what."""
    from nandarray._program import zig

    found: dict[str, Path] = {}
    for path in zig.musl_sources(target):
        text = path.read_text()
        defined = _FUNCTION.findall(text) + _DATA.findall(text)
        defined += [one or other for one, other in _ALIAS.findall(text)]
        for one in defined:
            found.setdefault(one, path)
    return found


def _compile_c(sources: Sequence[Path], where: Path, target: Target) -> None:
    from nandarray._program import zig

    with tempfile.TemporaryDirectory(prefix="nandarray-") as made:
        zig.checked(zig.run([*zig.musl_words(target), "-c", *sources], cwd=Path(made)), "musl's mathematics")
        for source in sources:
            write_whole(where / f"{source.stem}.o", (Path(made) / f"{source.stem}.o").read_bytes())


@cache
def _holding(root: str, name: str) -> tuple[str, ...]:
    """Name the files of a library in Zig that export a name; the root itself among them."""
    from nandarray._program import zig

    base = zig.home() / "lib"
    if not (base / root).exists():
        return ()
    files = [root, *_IMPORT.findall(_text(base / root))]
    return tuple(file for file in files if f'"{name}"' in _text(base / file))


@cache
def _text(path: Path) -> str:
    return path.read_text()


def _zig_part(root: str, inside: dict[str, tuple[str, ...]], where: Path, target: Target) -> Path:
    """Compile a library in Zig, of which only the files are left that hold these names."""
    from nandarray._program import zig

    kept = {file for files in inside.values() for file in files}
    made = where / f"{root.removesuffix('.zig')}-{digest([*sorted(kept), *sorted(inside)])[:16]}.o"
    if made.exists():
        return made
    base = zig.home() / "lib"
    text = _IMPORT.sub(lambda found: found.group(0) if found.group(1) in kept else "{}", _text(base / root))
    text = _EXPORT.sub(lambda found: found.group(0) if found.group(1) in inside else "{}", text)
    with tempfile.TemporaryDirectory(prefix="nandarray-") as folder_name:
        scratch = Path(folder_name)
        (scratch / root).write_text(text)
        os.symlink(base / root.removesuffix(".zig"), scratch / root.removesuffix(".zig"))
        words = ["build-obj", scratch / root, *zig.zig_words(root, target), "--name", "part"]
        zig.checked(zig.run(words, cwd=scratch, scratch=scratch), f"a part of {root}")
        write_whole(made, (scratch / "part.o").read_bytes())
    return made
