"""ARCHITECTURE's table of changes is complete: a change of a row's kind touches the files that the row names.

Two kinds of changes stand for a row. ``SIBLINGS`` has a thing that is there already, by the words that name it in the
source: another one of its kind would be named in the same files, so the row has to name them all. ``COMMITS`` has
changes that were made, by the subjects of their commits. Tests, documents, benchmarks and bindings' stubs are left out:
every change has those; so are the papers, which use such things, for rows that name none of their files. That the named
paths exist is held by ``test_pages.py``.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCTION = re.compile(r"(?:crates/[\w-]+/src|python|papers)/(?!.*tests?(?:/|\.rs))(?!.*\.pyi$)")
PRODUCT = re.compile(rf"(?!papers/){PRODUCTION.pattern}")
#: Folders of earlier commits, and what they are called today.
MOVED = (
    (
        r"python/nandarray/lab/(experiments|assasin|bam|flashabacus|nds|tpch|varve|workloads)/",
        r"papers/nandarray_papers/\1/",
    ),
)

#: Beginning of a row -> words of one thing of the row's kind, which another one has, too.
SIBLINGS = {
    "another compressor": r"Algorithm::(?:Lz4|Zstd)",
    "another dtype": r"biufcmMSUV|b'b' \| b'i' \| b'u'",
    "another kind of trace": r'TraceFormat::|"blkparse"|"msr"',
    "another option of replays": r"poisson",
    "another described device": r"optane-like",
    "another victim policy": r"[Ww]indowed",
    "another ready-made kernel": r"gesummv",
    "another VarVE operation": r"vpack",
    "another kind of chart": r'"scatter"',
    "another number of a sweep": r"dies_busy",
}

#: (beginning of a row, subject of a commit)
COMMITS = (
    ("another experiment", "Figure 7.18: data that lie unevenly on the channels"),
    ("another figure of FlashAbacus", "Why in-order scheduling loses less than in the paper, by kernel"),
    ("another form of programs", "Programs: the text of a loop names its function"),
    ("another ready-made program", "Stat: the sum of a 32-bit column in 32 bits"),
    ("another file format", "Exports: files of the HDF5 library share their methods of compression and their writer"),
    ("another file format", "Imports: a source adds its arrays by one method"),
    ("writing xarray", "Times in units finer than their dtype are stored and not lost"),
    ("another statement in loop nests", "Loop nests beside Python's own run of them"),
    ("another order of tasks", "Programs of one call share the executor evenly"),
    ("another part in front", "The shared link is booked in order of time"),
    ("another kind of chart", "Heat maps name all their columns"),
    ("another described device", "Take the cycles of commands into assasin's 1 GB/s a channel"),
    (
        "the cost of a program's task",
        "A program that looks beyond its stream buffer is named with its place",
    ),
)


def rows() -> dict[str, str]:
    """Return the cells of the table, the place by the change."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text[text.index("## Where a change belongs") : text.index("## Invariants")]
    return dict(re.findall(r"^\| ([^|]+) \| (.+) \|$", table, re.MULTILINE)[2:])


ROWS = rows()


def row(begin: str) -> str:
    """Return the place of the only row that begins so, with those of guides that it links to."""
    [place] = [place for change, place in ROWS.items() if change.startswith(begin)]
    guides = re.findall(r"\]\((docs/[\w/.-]+\.md)\)", place)
    return place + "".join((ROOT / guide).read_text() for guide in guides)


def names(place: str, file: str) -> bool:
    """Tell whether a place names a file: by the end of its path, by a folder, or by its name beside another one."""
    tokens = [token.strip("/") for token in re.findall(r"`([\w./*-]+)`", place)]
    path = PurePosixPath(file)
    for token in tokens:
        if "/" in token or (ROOT / token).exists() or "." not in token:
            if f"/{file}".endswith(f"/{token}") or f"/{token}/" in f"/{file}":
                return True
        elif path.name == token and any(
            f"/{path.parent}/".endswith(f"/{PurePosixPath(other).parent}/") or f"/{other}/" in f"/{file}"
            for other in tokens
            if "/" in other
        ):
            return True
    return False


def unnamed(begin: str, files: set[str]) -> list[str]:
    place = row(begin)
    counted = {
        file for file in files if PRODUCTION.match(file) and ("papers/" in place or not file.startswith("papers/"))
    }
    return sorted(file for file in counted if not names(place, file))


@pytest.mark.parametrize("begin", SIBLINGS)
def test_a_row_names_the_files_that_a_sibling_is_named_in(begin: str) -> None:
    word = re.compile(SIBLINGS[begin])
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("git lists no files here: this folder is no clone of the repository")
    files = {name for name in listed.stdout.splitlines() if PRODUCTION.match(name) and (ROOT / name).exists()}
    found = {name for name in files if word.search((ROOT / name).read_text(errors="replace"))}
    assert found, f"nothing is called {SIBLINGS[begin]}"
    assert unnamed(begin, found) == [], f"the row {begin!r} of ARCHITECTURE.md names none of these"


@pytest.mark.parametrize(("begin", "subject"), COMMITS)
def test_a_row_names_the_files_of_a_change_that_was_made(begin: str, subject: str) -> None:
    command = ["git", "log", "-1", "--fixed-strings", f"--grep={subject}", "--name-only", "--format="]
    changed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    files = set(changed.stdout.split())
    if not files:
        pytest.skip(f"the history here is without the commit {subject!r}")
    for before, now in MOVED:
        files = {re.sub(before, now, file) for file in files}
    assert unnamed(begin, files) == [], f"the row {begin!r} of ARCHITECTURE.md names none of these"
