"""List the places of the engine that can panic, in code that outside input reaches.

Bad input is an error, a broken invariant a panic: each place below must be the second. The list is for a reader who
checks that, layer by layer::

    python tools/panics.py                    # how many of each kind a layer has
    python tools/panics.py nvme runtime       # every place of these layers
    python tools/panics.py --indexes model    # indexes and slices, too, as far as a line shows them

Tests (``tests/``, ``tests.rs``, ``*_tests.rs``, a module with ``#[cfg(test)]`` at the end of a file) and comments are
left out. ``tests/python/test_panic.py`` sends what outside input can reach through the doors.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: Layers that outside input reaches, each with its folders or files.
LAYERS = {
    "nvme": ("crates/nandarray-nvme/src", "crates/nandarray-nvme-spec/src", "crates/nandarray/src/nvme"),
    "queues": ("crates/nandarray-queues/src",),
    "python": ("crates/nandarray-python/src",),
    "model": (
        "crates/nandarray-describe/src",
        "crates/nandarray-model/src/describe",
        "crates/nandarray-model/src/workload",
        "crates/nandarray-model/src/store",
        "crates/nandarray-model/src/accelerator",
        "crates/nandarray-model/src/fetch",
        "crates/nandarray-model/src/replay.rs",
    ),
    "runtime": ("crates/nandarray-runtime/src",),
    "cores": ("crates/nandarray-cores/src", "crates/nandarray-uarch/src/describe.rs"),
    "hart": ("crates/nandarray-hart/src/program.rs", "crates/nandarray-hart/src/bare.rs"),
}

KINDS = {
    "expect": re.compile(r"\.expect(?:_err)?\("),
    "unwrap": re.compile(r"\.unwrap(?:_err)?\(\)"),
    "panic": re.compile(r"\bpanic!"),
    "unreachable": re.compile(r"\b(?:unreachable|todo|unimplemented)!"),
    "assert": re.compile(r"(?<!debug_)\bassert(?:_eq|_ne)?!"),
}
#: An index or slice whose operand is a name or a call, and is no attribute, type or macro.
INDEX = re.compile(r"[\w)\]]\[(?![\w ]*;)[^\]]*\w[^\]]*\]")
#: Tests within a file, its last part; `mod tests;` near the top names a file of their own.
_TESTS = re.compile(r"#\[cfg\(test\)\]\n(?:#\[.*\n)*mod \w+ \{")


@dataclass(frozen=True)
class Place:
    """A line that can panic."""

    file: Path
    line: int
    kind: str
    text: str


def sources(layer: str) -> Iterator[Path]:
    """Yield a layer's files without those of tests."""
    for part in LAYERS[layer]:
        path = ROOT / part
        for file in sorted(path.rglob("*.rs")) if path.is_dir() else [path] * path.exists():
            inside = file.relative_to(ROOT).parts
            if "tests" not in inside and not file.stem.endswith("tests") and file.stem != "fuzz":
                yield file


def places(file: Path, *, indexes: bool) -> Iterator[Place]:
    """Yield the lines of a file that can panic."""
    for number, line in enumerate(_TESTS.split(file.read_text(encoding="utf-8"))[0].splitlines(), 1):
        code = re.sub(r'"(?:[^"\\]|\\.)*"', '""', line).partition("//")[0]
        kinds = [kind for kind, pattern in KINDS.items() if pattern.search(code)]
        if indexes and not code.lstrip().startswith("#") and INDEX.search(code):
            kinds.append("index")
        for kind in kinds:
            yield Place(file.relative_to(ROOT), number, kind, line.strip())


def main() -> None:
    """Print the list, or its counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("layers", nargs="*", choices=[[], *LAYERS], metavar="LAYER", help=", ".join(LAYERS))
    parser.add_argument("--indexes", action="store_true", help="list indexes and slices, too")
    given = parser.parse_args()
    for layer in given.layers or LAYERS:
        found = [place for file in sources(layer) for place in places(file, indexes=given.indexes)]
        if given.layers:
            for one in found:
                print(f"{one.file}:{one.line}: {one.kind}: {one.text}")
        else:
            counts = Counter(one.kind for one in found)
            print(f"{layer:8}", ", ".join(f"{counts[kind]} {kind}" for kind in counts))


if __name__ == "__main__":
    main()
