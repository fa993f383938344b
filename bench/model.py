"""The model beside what we did not write, and what simulating costs: ``python -m bench model``.

The measuring is done by a Rust program (``crates/nandarray-model/benches/model``), which is built and run here; it
tells every table as one line of JSON. Its times are CPU time of its own process.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

SECTIONS = ("rows", "configurations", "sheets", "speed", "steady")
_ROOT = Path(__file__).resolve().parents[1]
_CARGO = ("cargo", "bench", "--quiet", "--locked", "--package", "nandarray-model", "--bench", "model", "--")


@dataclass(frozen=True)
class Table:
    """One table of one section."""

    section: str
    title: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str]

    def text(self) -> str:
        """Return it in columns."""
        widths = [max(len(row[i]) for row in [self.header, *self.rows]) for i in range(len(self.header))]
        lines = [self.title]
        for row in [self.header, *self.rows]:
            lines.append("  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def markdown(self) -> str:
        """Return it as Markdown."""
        rows = [self.header, ["---"] * len(self.header), *self.rows]
        table = ["| " + " | ".join(cell or " " for cell in row) + " |" for row in rows]
        return "\n".join([f"### {self.title}", "", *table, "", *self.notes])


def tables(text: str) -> list[Table]:
    """Return the tables that the program printed."""
    return [Table(**json.loads(line)) for line in text.splitlines() if line.startswith("{")]


def measure(sections: list[str], *, short: bool, only: str = "") -> list[Table]:
    """Build the program and run it; it says on standard error how far it is."""
    arguments = ["--json", *(["--short"] if short else []), *(["--only", only] if only else []), *sections]
    done = subprocess.run([*_CARGO, *arguments], cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.returncode)
    return tables(done.stdout)
