"""The README and every page under docs/ run as they stand.

A page's blocks run in order of appearance, in one empty folder and one Python namespace of their own:

* a ``python`` block runs; a ``text`` block right behind it, with nothing but blank lines between, is what it prints;
* a ``console`` block runs every line that begins with ``$``, through the shell; the lines behind it, if there are any,
  are what it writes to standard output.

Output that is given has to match: ``...`` stands for anything, and runs of white space are all alike. Other blocks
(``sh``, ``rust``, ``text`` elsewhere) are for reading. A block that imports a package which is not installed is skipped
by name; the others of its page run. Links between files are followed, too.

Every block is a test. One that is run alone first runs those before it on its page.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import os
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKED = [*PAGES, *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_IMPORT = re.compile(r"^\s*(?:import|from)\s+(\w+)", re.MULTILINE)


@dataclass
class Block:
    """A block of code on a page."""

    language: str
    code: str
    line: int
    printed: str | None = None

    @property
    def missing(self) -> str | None:
        """The first package it imports that is not installed."""
        if self.language != "python":
            return None
        return next((name for name in _IMPORT.findall(self.code) if importlib.util.find_spec(name) is None), None)


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that run."""
    text, found, behind = page.read_text(), list[Block](), -1
    for fence in _FENCE.finditer(text):
        language, code = fence.groups()
        if language == "text" and found and behind >= 0 and not text[behind : fence.start()].strip():
            found[-1].printed = code
        if language in ("python", "console"):
            found.append(Block(language, code, text[: fence.start()].count("\n") + 1))
        behind = fence.end() if language == "python" else -1
    return found


@dataclass
class Run:
    """A page being run: how far it has come, and its folder and namespace."""

    page: Path
    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    done: int = 0
    broken: str = ""

    def until(self, number: int) -> None:
        """Run what has not run yet, up to this block."""
        if self.broken:
            pytest.skip(f"{self.broken} before it failed")
        all_blocks = blocks(self.page)
        while self.done <= number:
            block = all_blocks[self.done]
            self.done += 1
            if block.missing:
                continue
            try:
                self.step(block)
            except BaseException:
                self.broken = f"the block at line {block.line}"
                raise

    def step(self, block: Block) -> None:
        """Run one block in the page's folder."""
        with contextlib.chdir(self.folder):
            if block.language == "console":
                self.console(block)
            else:
                self.python(block)

    def python(self, block: Block) -> None:
        """Run a block of Python; tracebacks name the line of the page."""
        code = compile("\n" * block.line + block.code, str(self.page), "exec")
        out = io.StringIO()
        with contextlib.redirect_stdout(out), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other packages' deprecations are theirs
            exec(code, self.names)  # noqa: S102
        if block.printed is not None:
            same(block.printed, out.getvalue(), block.line)

    def console(self, block: Block) -> None:
        """Run the commands of a block; each has to succeed."""
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "100",
            "NO_COLOR": "1",
        }
        for command, expected in commands(block.code):
            ran = subprocess.run(
                ["bash", "-c", command], capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL
            )
            assert ran.returncode == 0, f"line {block.line}: {command}\n{ran.stdout}{ran.stderr}"
            if expected:
                same(expected, ran.stdout, block.line)


def commands(code: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output given for it."""
    parts = re.split(r"^\$ ", code, flags=re.MULTILINE)
    assert not parts[0].strip(), f"a console block begins with a command, not with {parts[0]!r}"
    return [(part.partition("\n")[0], part.partition("\n")[2].strip("\n")) for part in parts[1:]]


def same(expected: str, got: str, line: int) -> None:
    """Compare printed text with what the page says."""
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    good = doctest.OutputChecker().check_output(expected.rstrip() + "\n", got.rstrip() + "\n", options)
    assert good, f"the block at line {line} prints\n{got}\nwhere the page says\n{expected}"


_RUNS: dict[Path, Run] = {}


def _cases() -> list[Any]:
    return [
        pytest.param(page, number, id=f"{page.relative_to(ROOT)}:{block.line}")
        for page in PAGES
        for number, block in enumerate(blocks(page))
    ]


@pytest.mark.parametrize(("page", "number"), _cases())
def test_a_page_does_what_it_says(page: Path, number: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    block = blocks(page)[number]
    if block.missing:
        pytest.skip(f"{block.missing} is not installed")
    if page not in _RUNS:
        _RUNS[page] = Run(page, tmp_path_factory.mktemp(page.stem))
    _RUNS[page].until(number)


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(_FENCE.sub("", page.read_text())):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{target} is not there"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{target}: there is no such heading"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_blocks_are_found_with_their_output() -> None:
    page = Path("page.md")
    page.write_text(
        "# A\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n```text\nfree\n```\n```console\n$ a\nb\n$ c\n```\n"
    )
    first, second = blocks(page)
    assert (first.language, first.printed, first.line) == ("python", "1\n", 3)
    assert commands(second.code) == [("a", "b"), ("c", "")]


def test_wrong_output_is_noticed() -> None:
    page = Path("page.md")
    page.write_text("```python\nprint('one', 2)\n```\n```text\n... 2\n```\n```console\n$ echo hello\nhullo\n```\n")
    run = Run(page.resolve(), Path.cwd())
    run.until(0)
    with pytest.raises(AssertionError, match="hullo"):
        run.until(1)


_EXCERPT = re.compile(r"^`([\w/-]+\.rs)`[^\n]*\n+|^```rust\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_excerpts_of_the_guide_to_policies_are_in_the_files_that_it_names() -> None:
    page = (ROOT / "docs" / "guides" / "add-a-policy.md").read_text()
    file, compared = "", 0
    for found in _EXCERPT.finditer(page):
        if found[1]:
            file = (ROOT / "crates" / found[1]).read_text()
            continue
        assert found[2] in file, f"the file does not have\n{found[2]}"
        compared += 1
    assert compared >= 8
