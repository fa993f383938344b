"""Count the lines of the source: production and tests, by crate and part, today or at a revision; and its assertions.

A line counts whether it is code, comment or blank; with `--code` only lines of code count, without comments and
docstrings. Production is Rust below `crates/*/src` without `#[cfg(test)]` items and files of tests, and Python below
`python/`. Experiments of papers, below `papers/`, are counted apart. Tests are those items and files, `crates/*/tests`,
Python below `tests/`, and fuzz targets. Benchmarks, examples, tools and documents are neither.

    python tools/lines.py                      # totals of the working tree
    python tools/lines.py --rev ac8b564        # totals of a revision
    python tools/lines.py --parts              # production lines of each part
    python tools/lines.py --since ac8b564      # of two trees: files that both have, perhaps by another name, and others
    python tools/lines.py --code               # the same of any of these in lines of code
    python tools/lines.py --asserts            # assertions a function, by part
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: Folders of which production is.
_KEPT = ("crates", "python", "papers")
_CHECK = re.compile(r"\b(?:debug_)?assert(?:_eq|_ne)?!")
_FUNCTION = re.compile(r"^\s*(?:pub(?:\([a-z :]+\))? )?(?:const |async |unsafe |extern \"C\" )*fn \w")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


@functools.cache
def _modules_of_tests(rev: str | None) -> frozenset[str]:
    """Return the files, without suffix, that a `mod` item under `#[cfg(test)]` declares."""
    found = set()
    for path, lines in sources(rev):
        folder = re.sub(r"(/mod|/lib|)\.rs$", "", path)
        declared = re.findall(r"^ *#\[cfg\(test\)\]\n *(?:pub(?:\(\w+\))? )?mod (\w+);", "\n".join(lines), re.MULTILINE)
        found.update(f"{folder}/{name}" for name in declared)
    return frozenset(found)


def sources(rev: str | None) -> Iterator[tuple[str, list[str]]]:
    """Yield path and lines of every Rust and Python file that git tracks, in the working tree or at a revision."""
    listed = _git("ls-tree", "-r", "--name-only", rev) if rev else _git("ls-files")
    for path in listed.splitlines():
        if not path.endswith((".rs", ".py", ".pyi")) or not path.startswith(
            ("crates/", "python/", "papers/", "tests/", "fuzz/")
        ):
            continue
        if rev:
            yield path, _git("show", f"{rev}:{path}").splitlines()
        elif (ROOT / path).exists():
            yield path, (ROOT / path).read_text().splitlines()


def code(path: str, lines: list[str]) -> list[str]:
    """Return the lines of code of a file: neither blank, nor comments, nor docstrings of Python."""
    mark = "#" if path.endswith((".py", ".pyi")) else "//"
    prose: set[int] = set()
    if mark == "#":
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False):
                prose.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    numbered = enumerate(lines, 1)
    return [line for at, line in numbered if at not in prose and line.strip() and not line.lstrip().startswith(mark)]


def split(path: str, lines: list[str], rev: str | None = None, *, only_code: bool = False) -> tuple[list[str], int]:
    """Return the production lines of a file of a revision, and the number of its test lines."""
    if only_code:
        lines = code(path, lines)
    if path.startswith(("python/", "papers/")):
        return lines, 0
    # A file beside the crates, which older revisions have, is of tests.
    if path.startswith(("tests/", "fuzz/")) or path.count("/") == 1:
        return [], len(lines)
    _, _, kind, *rest = path.split("/")
    if kind == "tests":
        return [], len(lines)
    if kind != "src":
        return [], 0
    if re.search(r"(^|/|_)tests?(/|\.rs$)", "/".join(rest)) or re.sub(r"(/mod|)\.rs$", "", path) in _modules_of_tests(
        rev
    ):
        return [], len(lines)
    kept: list[str] = []
    at = 0
    while at < len(lines):
        if lines[at].strip() != "#[cfg(test)]":
            kept.append(lines[at])
            at += 1
            continue
        at = _end_of_item(lines, at)
    return kept, len(lines) - len(kept)


def _end_of_item(lines: list[str], at: int) -> int:
    """Return the line behind the item whose first attribute is at this line; the source is formatted."""
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    while lines[at].strip().startswith("#["):
        at += 1
    while not lines[at].endswith(";") and lines[at] != f"{indent}}}" and not lines[at].endswith(("}", "},")):
        at += 1
        if lines[at - 1].endswith("{"):
            while lines[at] != f"{indent}}}":
                at += 1
    return at + 1


def part(path: str) -> str:
    """Return the part that a file belongs to: its crate and folder or file, or its folder of the Python package."""
    words = path.split("/")
    if words[0] == "crates":
        below = words[3] if len(words) > 3 else ""
        return f"{words[1]}/{below.removesuffix('.rs')}"
    return "/".join(words[:3]).removesuffix(".py")


def totals(rev: str | None, *, only_code: bool) -> tuple[Counter[str], dict[str, int]]:
    """Return line counts by kind, and the production lines of each file."""
    found: Counter[str] = Counter()
    files: dict[str, int] = {}
    for path, lines in sources(rev):
        kept, test = split(path, lines, rev, only_code=only_code)
        language = "Rust" if path.endswith(".rs") else "Python"
        found["papers" if path.startswith("papers/") else f"production, {language}"] += len(kept)
        found[f"tests, {language}"] += test
        if kept:
            files[path] = len(kept)
    found["production"] = found["production, Rust"] + found["production, Python"]
    found["tests"] = found["tests, Rust"] + found["tests, Python"]
    return found, files


def asserts(rev: str | None) -> list[tuple[str, int, int]]:
    """Return functions and assertions of the production code, for each part of the Rust crates."""
    functions: Counter[str] = Counter()
    checks: Counter[str] = Counter()
    for path, lines in sources(rev):
        if not path.endswith(".rs"):
            continue
        kept, _ = split(path, lines, rev, only_code=True)
        functions[part(path)] += sum(bool(_FUNCTION.match(line)) for line in kept)
        checks[part(path)] += sum(len(_CHECK.findall(line)) for line in kept)
    return [(name, functions[name], checks[name]) for name in sorted(functions) if functions[name]]


def since(old: str, own: list[str], *, only_code: bool) -> list[tuple[str, list[int]]]:
    """Return for each part the lines at the older revision, today's, and today's in files of three kinds.

    The kinds are files that the older revision has, perhaps by another name (git finds it at 40 % likeness), files that
    commits of the ranges ``own`` added, and all others.
    """
    before, now = totals(old, only_code=only_code)[1], totals(None, only_code=only_code)[1]
    renamed = _git("diff", "-M40%", "--name-status", "--diff-filter=R", old, "--", *_KEPT)
    kept = {line.split("\t")[2] for line in renamed.splitlines()} | set(before)
    added: set[str] = set()
    for commits in own:
        made = _git("log", "-M40%", "--name-only", "--diff-filter=A", "--format=", commits, "--", *_KEPT)
        added.update(made.splitlines())
    rows: dict[str, list[int]] = {}
    for path, lines in before.items():
        rows.setdefault(_room(path), [0] * 5)[0] += lines
    for path, lines in now.items():
        row = rows.setdefault(_room(path), [0] * 5)
        row[1] += lines
        row[2 if path in kept else 3 if path in added else 4] += lines
    return [*sorted(rows.items()), ("all", [sum(column) for column in zip(*rows.values(), strict=True)])]


def _room(path: str) -> str:
    """Return the crate of a file, one of three parts of the Python package, or the papers."""
    if path.startswith("crates/"):
        return path.split("/")[1]
    if path.startswith("papers/"):
        return "papers"
    if "/lab/" in path:
        return "python, lab"
    return "python, programs" if "program" in path or "_advise" in path else "python, rest"


def main() -> None:
    """Print the requested tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rev", help="a revision instead of the working tree")
    parser.add_argument("--parts", action="store_true", help="production lines of each part")
    parser.add_argument("--since", metavar="REV", help="compare the working tree with this older revision, by crate")
    parser.add_argument(
        "--own",
        metavar="RANGE",
        action="append",
        default=[],
        help="with --since: commits whose new files are counted apart",
    )
    parser.add_argument("--code", action="store_true", help="count lines of code only")
    parser.add_argument("--asserts", action="store_true", help="assertions a function, of each part of the Rust crates")
    options = parser.parse_args()
    if options.asserts:
        for name, functions, checks in asserts(options.rev):
            print(f"{name:40} {functions:6} functions {checks:6} assertions {checks / functions:6.2f}")
        return
    found, files = totals(options.rev, only_code=options.code)
    for kind, lines in sorted(found.items()):
        print(f"{kind:20} {lines:8,}")
    print(f"tests a line of production {found['tests'] / found['production']:.2f}")
    if options.parts:
        now: Counter[str] = Counter()
        for path, lines in files.items():
            now[part(path)] += lines
        for name in sorted(now):
            print(f"{name:44} {now[name]:8,}")
    if options.since:
        print(f"{'':20} {'before':>8} {'now':>8} {'kept':>8} {'own':>8} {'others':>8}")
        for name, row in since(options.since, options.own, only_code=options.code):
            print(f"{name:20} " + " ".join(f"{lines:8,}" for lines in row))


if __name__ == "__main__":
    main()
