"""Functions of ``<math.h>`` for programs, one by one: only what a program calls is compiled, at first use, and kept.

The sources are those in the ``ziglang`` wheel: musl's in C, and what Zig has of a C library and of the compiler's own
arithmetic. All of them together take seconds to build (:func:`.zig.support`), a file of musl some hundredths, a part of
Zig's library some tenths: Zig would parse all of its standard library at its start, and sees only the parts that
mathematics uses. Definitions are found in the order in which those libraries are linked; functions that are not found
here are left to the libraries.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from nandarray.programs.compile import scratch, zig
from nandarray.programs.compile.cache import digest, folder, keep, kept
from nandarray.programs.compile.zig import Target

__all__ = ["needed"]

# musl begins a definition at the left edge, and ends a declaration there with a semicolon.
_FUNCTION = re.compile(r"^(?!static|typedef|return)[a-z_][\w \t*]*?\b(\w+)\s*\([^;]*?\)\s*\{", re.MULTILINE)
_DATA = re.compile(r"^(?!static)\w[\w ]*?\b(\w+)(?:\[[^\]]*\])*\s*=\s*\{", re.MULTILINE)
_ALIAS = re.compile(r"^weak_alias\(\w+,\s*(\w+)\)|^int (\w+)\s*(?:=[^;]*)?;", re.MULTILINE)
_IMPORT = re.compile(r'_ = @import\("([^"]+)"\);')
_EXPORT = re.compile(r'\bsymbol\(&[^;]*?, "(\w+)"\);')
_STANDARD = re.compile(r'@import\("(\w+)\.zig"\)(?:\.\w+)?')
#: Files of Zig's standard library that are used. Of `zig`, the compiler's own parts, only what it knows of targets.
_USED = frozenset({"math", "mem", "meta", "start", "debug", "lang", "builtin", "Target", "SemanticVersion"})
_TARGET = 'struct { pub const target = @import("zig/target.zig"); }'


def needed(names: Iterable[str], target: Target, known: Sequence[Path] = ()) -> list[Path]:
    """Return objects that define some of these names, which a program calls and does not define.

    They are compiled now or before, none if nothing of it is known here; those of ``known`` it has already. They may in
    turn call what they do not define.
    """
    where = folder() / "support" / f"kept-{target.name}-{zig.support_key(target)}"
    musl, rest, found = _musl(target), [], {}
    for name in sorted(set(names)):
        if name in musl:
            found[where / f"{musl[name].stem}.o"] = musl[name]
        else:
            rest.append(name)
    there = {path: kept(path) for path in found}
    missing = [path for path, place in there.items() if place is None]
    if missing:
        there |= zip(missing, _compile_c([found[path] for path in missing], where, target), strict=True)
    given, parts = [place for place in there.values() if place is not None], []
    for root in ("c.zig", "compiler_rt.zig"):
        inside = {name: files for name in rest if (files := _holding(root, name))}
        if inside:
            parts.append((root, inside))
            rest = [name for name in rest if name not in inside]
    if len(parts) > 1:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(len(parts)) as pool:
            given += [job.result() for job in [pool.submit(_zig_part, *part, where, target) for part in parts]]
    else:
        given += [_zig_part(*part, where, target) for part in parts]
    return [path for path in given if path not in known]


@cache
def _musl(target: Target) -> dict[str, Path]:
    """Return the files of musl by the functions that they define."""
    found: dict[str, Path] = {}
    for path in zig.musl_sources(target):
        text = path.read_text()
        defined = _FUNCTION.findall(text) + _DATA.findall(text)
        defined += [one or other for one, other in _ALIAS.findall(text)]
        for one in defined:
            found.setdefault(one, path)
    return found


def _compile_c(sources: Sequence[Path], where: Path, target: Target) -> list[Path]:
    with scratch.folder() as made:
        zig.checked(zig.run([*zig.musl_words(target), "-c", *sources], cwd=made), "musl's mathematics")
        return [keep(where / f"{one.stem}.o", (made / f"{one.stem}.o").read_bytes()) for one in sources]


@cache
def _holding(root: str, name: str) -> tuple[str, ...]:
    """Name the files of a library in Zig that export a name; the root itself among them."""
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
    files = {file for files in inside.values() for file in files}
    made = where / f"{root.removesuffix('.zig')}-{digest([*sorted(files), *sorted(inside)])[:16]}.o"
    if (found := kept(made)) is not None:
        return found
    with scratch.folder() as place:
        _lay_out(root, files, set(inside), place)
        words = ["build-obj", place / root, *zig.zig_words(root, target), "--name", "part"]
        status, _ = zig.run([*words, "--zig-lib-dir", _standard(place)], cwd=place, scratch=place)
        if status != 0:  # another version of Zig may use more
            zig.checked(zig.run(words, cwd=place, scratch=place), f"a part of {root}")
        return keep(made, (place / "part.o").read_bytes())


def _lay_out(root: str, files: set[str], names: set[str], place: Path) -> None:
    """Write a library in Zig to a folder, with the files that are kept and the exports of these names only."""
    base, inside = zig.home() / "lib", root.removesuffix(".zig")
    (place / inside).mkdir()
    for file in os.listdir(base / inside):
        if f"{inside}/{file}" not in files:
            os.symlink(base / inside / file, place / inside / file)
    for file in files | {root}:
        text = _text(base / file)
        if file == root:
            text = _IMPORT.sub(lambda found: found.group(0) if found.group(1) in files else "{}", text)
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_text(_EXPORT.sub(lambda f: f.group(0) if f.group(1) in names else "{}", text))


def _standard(place: Path) -> Path:
    """Make a folder with Zig's standard library, of which names that mathematics does not use are empty."""
    base, made = zig.home() / "lib" / "std", place / "lib" / "std"
    made.mkdir(parents=True)
    for file in os.listdir(base):
        if file != "std.zig":
            os.symlink(base / file, made / file)

    def shown(found: re.Match[str]) -> str:
        if found.group(1) == "zig":
            return _TARGET
        return found.group(0) if found.group(1) in _USED else "struct {}"

    (made / "std.zig").write_text(_STANDARD.sub(shown, _text(base / "std.zig")))
    return place / "lib"
