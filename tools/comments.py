"""List the doc comments of the Rust crates as a reader of the generated pages meets them, or draw a sample by a seed.

Each entry shows the file and line, the first paragraphs of the file's head (its generated page begins with them), the
item that encloses the declaration (a method's `impl`, a field's `struct`), the comment, and the declaration; never a
body. A reader who has not seen the code judges a sample: is each comment clear at first reading?
docs/lab-notes/comments.md has the verdicts so far.

    python tools/comments.py --count 30 --seed 101      # a sample
    python tools/comments.py --folder crates/nandarray-hart     # every comment of a folder
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Lines that open an item or a variant whose name a reader of one of its members knows.
ENCLOSING = re.compile(r"^\s*((pub(\([^)]*\))? )?(unsafe )?(impl|struct|enum|trait|union)\b.*|[A-Z]\w*) \{\s*$")
#: Lines of a declaration that is spread over several, at most.
DECLARATION_LINES = 6


@dataclass(frozen=True)
class Comment:
    """A doc comment with its place and what it stands on."""

    file: str
    #: Number of its first line, from 1.
    line: int
    #: The file's head comment, up to its first list, table or example.
    head: str
    #: First lines of the items around it, the outermost first.
    enclosing: tuple[str, ...]
    text: str
    declaration: str

    def markdown(self) -> str:
        """Return the entry as it is shown to a reader."""
        around = "".join(f"in `{item}`\n\n" for item in self.enclosing)
        code = "\n".join(f"    {line}" for line in self.declaration.splitlines())
        return f"`{self.file}:{self.line}`\n\n> {self.head}\n\n{around}{self.text}\n\n{code}\n"


def indent(line: str) -> int:
    """Return the number of spaces before a line's first character."""
    return len(line) - len(line.lstrip())


def enclosing(lines: list[str], at: int) -> tuple[str, ...]:
    """Return the first lines of the items around a line, which rustfmt tells apart by their indentation."""
    found: list[str] = []
    width = indent(lines[at])
    for line in reversed(lines[:at]):
        if line.strip() and indent(line) < width:
            width = indent(line)
            if ENCLOSING.match(line):
                found.append(line.strip().removesuffix("{").rstrip())
    return tuple(reversed(found))


def head(lines: list[str]) -> str:
    """Return a file's head comment as one text, up to its first list, table or example."""
    taken: list[str] = []
    for line in lines:
        if not line.startswith("//!") or line.startswith(("//! |", "//! -", "//! ```", "//! #")):
            break
        taken.append(line.removeprefix("//!").strip())
    return " ".join(filter(None, taken))


def past_attributes(lines: list[str], at: int) -> int:
    """Return the number of the first line from `at` on that belongs to no attribute; attributes may be spread."""
    while at < len(lines) and lines[at].lstrip().startswith("#["):
        open_brackets = 0
        while at < len(lines):
            open_brackets += lines[at].count("[") - lines[at].count("]")
            at += 1
            if open_brackets <= 0:
                break
    return at


def declaration(lines: list[str], at: int) -> str:
    """Return the declaration at a line or after its attributes; of one that is spread, the first lines."""
    at = past_attributes(lines, at)
    if at >= len(lines):
        return ""
    spread = lines[at].rstrip().endswith(("(", "<"))
    taken = lines[at : at + (DECLARATION_LINES if spread else 1)]
    return "\n".join(line.strip() for line in taken)


def comments(file: str) -> list[Comment]:
    """Return the doc comments of a file."""
    lines = (ROOT / file).read_text().split("\n")
    found = []
    at = 0
    while at < len(lines):
        if not lines[at].lstrip().startswith("///"):
            at += 1
            continue
        end = at
        while end < len(lines) and lines[end].lstrip().startswith("///"):
            end += 1
        text = "\n".join(line.strip() for line in lines[at:end])
        found.append(Comment(file, at + 1, head(lines), enclosing(lines, at), text, declaration(lines, end)))
        at = end
    return found


def main() -> None:
    """Print the comments of a folder, or a sample of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="crates", help="folder whose Rust files are read; all crates by default")
    parser.add_argument("--count", type=int, help="comments to draw; all by default")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    arguments = parser.parse_args()
    command = ["git", "ls-files", f"{arguments.folder}/*.rs"]
    files = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    found = [comment for file in sorted(files) for comment in comments(file)]
    if arguments.count is not None:
        found = random.Random(arguments.seed).sample(found, min(arguments.count, len(found)))
    for number, comment in enumerate(found, 1):
        print(f"## {number}. {comment.markdown()}")


if __name__ == "__main__":
    main()
