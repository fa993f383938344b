"""The pages say what the tree has: paths that exist, crates as their manifests have them, figures of one table.

``test_docs.py`` runs the code of the pages and follows their links.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INTERNALS = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "internals").glob("*.md"))]
FOLDERS = ("crates", "python", "papers", "tests", "bench", "docs", "examples", "fuzz", "tools", ".ci")
MADE = ("target/", ".venv/", "proptest-regressions/")  # by builds and tests; a fresh clone has none of them

_CODE = re.compile(r"`([^`\n]+)`")
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_PATH = re.compile(r"[\w.{},-]*(?:/[\w.{},-]*)+|[\w-]+\.(?:rs|py|toml|c|h|md|sh|js|j2)")


@cache
def tree() -> frozenset[str]:
    """All ends of all paths below the folders, so that `media/file.rs` is found wherever it is."""
    found = set[str]()
    for folder in FOLDERS:
        for path in [ROOT / folder, *(ROOT / folder).rglob("*")]:
            if "target" in path.parts or "__pycache__" in path.parts:
                continue
            parts = path.relative_to(ROOT).parts
            found.update("/".join(parts[at:]) for at in range(len(parts)))
    return frozenset(found | {path.name for path in ROOT.iterdir()})


def paths(text: str) -> list[str]:
    """Return the paths in a page's code spans; braces mean several."""
    found = []
    for span in _CODE.findall(_FENCE.sub("", text)):
        if _PATH.fullmatch(span) and not span.startswith(("/", *MADE)) and not re.search(r"\bNAME\b", span):
            before, brace, rest = span.partition("{")
            inner, _, behind = rest.partition("}")
            found += [f"{before}{one.strip()}{behind}" for one in inner.split(",")] if brace else [span]
    return found


def exists(path: str) -> bool:
    """Whether the tree has the path; a crate may be named by its last word."""
    crate, _, rest = path.strip("/").partition("/")
    return path.strip("/") in tree() or f"nandarray-{crate}/src/{rest}" in tree()


@pytest.mark.parametrize("page", INTERNALS, ids=lambda page: page.name)
def test_paths_on_the_pages_for_developers_exist(page: Path) -> None:
    found = paths(page.read_text())
    assert [path for path in found if not exists(path)] == []
    assert found or page.name == "CONTRIBUTING.md"


def test_missing_paths_are_noticed() -> None:
    assert paths("`media/file.rs` and `a b/c`, `none.rs`, `ftl/{mod,none}.rs`\n```\n`x.rs`\n```") == [
        "media/file.rs", "none.rs", "ftl/mod.rs", "ftl/none.rs",
    ]  # fmt: skip
    assert exists("media/file.rs")
    assert exists("runtime/agenda.rs")
    assert not exists("none.rs")


def test_the_table_of_crates_is_that_of_the_manifests() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| `(nandarray[\w-]*)` \| ([^|]*) \|", text, re.MULTILINE)
    said = {crate: set(re.findall(r"`([^`]+)`", uses)) for crate, uses in rows}
    manifests = [tomllib.loads(path.read_text()) for path in (ROOT / "crates").glob("*/Cargo.toml")]
    names = {one["package"]["name"] for one in manifests}
    assert said == {one["package"]["name"]: names & set(one["dependencies"]) for one in manifests}
    picture = _FENCE.search(text)
    assert picture
    assert all(re.search(rf"\b{name} {{2}}", picture[0]) for name in names), "the picture shows every crate"


def walk(title: str) -> list[tuple[str, list[str]]]:
    """Return the rows of a walk through the source, each the path of a file and the names of functions."""
    text = (ROOT / "docs" / "internals" / "README.md").read_text()
    text = text[text.index(f"## {title}, function by function") :]
    text = text[: text.index("\n## ")]
    rows = re.findall(r"^\| `([^`|]*)` \| (`[^|]*) \|", text, re.MULTILINE)
    return [(name, [re.split(r"::|\.", one)[-1] for one in _CODE.findall(names)]) for name, names in rows]


def bodies(name: str, function: str) -> list[str]:
    """Return the text of each function of this name in a file of the repository, the binding or the store."""
    folders = [ROOT, ROOT / "crates" / "nandarray-python" / "src", ROOT / "crates" / "nandarray" / "src"]
    folders += [ROOT / "crates" / "nandarray-nvme" / "src", ROOT / "python" / "nandarray" / "lab"]
    text = next(path.read_text() for folder in folders if (path := folder / name).exists())
    # The source is formatted: a function ends at a brace, or before a line, that has the indent of its head.
    end = r"^\1\}" if name.endswith(".rs") else r"^\1[^\s)]|\Z"
    head = rf"^( *)[^/\n]*\b(?:fn|def) {function}\b"
    return [one[0] for one in re.finditer(rf"{head}.*?(?={end})", text, re.DOTALL | re.MULTILINE)]


@pytest.mark.parametrize(
    ("title", "least"),
    [
        ("One read", 16),
        ("One write", 16),
        ("One run of the lab", 16),
        ("One remote read, at the host", 7),
        ("One remote read, in the drive", 10),
    ],
)
def test_a_walk_names_functions_in_the_order_of_their_calls_and_returns_to_no_file(title: str, least: int) -> None:
    rows = walk(title)
    files = [name for name, _ in rows]
    assert len(rows) >= least
    assert len(set(files)) == len(files), "a file is entered once"
    callers = ""
    for name, functions in rows:
        for function in functions:
            found = bodies(name, function)
            assert found, f"{name} has no {function}"
            called = re.search(rf"\b{function}(?:::<\w+>)?\(", callers)
            assert called or not callers, f"{function} of {name} is called by none before it"
            callers += "".join(found)


def rows_of(page: str) -> dict[str, list[str]]:
    """Return the rows of a page's tables by their first cells; those of the benchmarks by array and pattern."""
    found = {}
    for line in (ROOT / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if len(cells) > 4:
            found[f"{cells[0]}: {cells[1]}"] = cells[2:]
            found[cells[0]] = cells[1:]
    return found


def test_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    measured = rows_of("docs/benchmarks.md")
    pattern = re.compile(r"[234]d[\w-]*: [^:]*")
    shown = {name: cells for name, cells in rows_of("README.md").items() if pattern.fullmatch(name)}
    assert len(shown) >= 10
    for name, cells in shown.items():
        assert cells == measured[name][: len(cells)], name
    head = measured["array"][1 : 1 + len(next(iter(shown.values())))]
    assert rows_of("README.md")[""] == head
    means = measured["all 79 reading rows (memmap: 45)"], measured["compressed alone (34 rows)"]
    for figure in (means[0][0], means[0][1], means[0][4], means[1][0], means[1][1]):
        assert figure in (ROOT / "README.md").read_text()


def test_the_readme_names_the_version_of_the_file_format() -> None:
    source = (ROOT / "crates" / "nandarray" / "src" / "ftl" / "superblock.rs").read_text()
    version = re.search(r"FORMAT_VERSION: u32 = (\d+);", source)
    assert version
    assert f"The file format is version {version[1]}" in (ROOT / "README.md").read_text()


def test_the_benchmarks_stay_a_table() -> None:
    assert len((ROOT / "docs" / "benchmarks.md").read_text().splitlines()) <= 250


def test_every_lab_note_is_in_their_index() -> None:
    folder = ROOT / "docs" / "lab-notes"
    index = (folder / "README.md").read_text()
    assert [name for name in sorted(path.name for path in folder.glob("[!R]*.md")) if f"({name})" not in index] == []
