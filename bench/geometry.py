"""The sweep that chooses the geometry of the file preset: access unit against building block, over the 2-D patterns.

A small access unit makes a cold element cheap and a checksum fine-grained, a large one makes records and planning few;
a small building block makes thin slices cheap, a large one makes bands and the disk happy. Every combination is a
system of its own in one run (``nandarray/4096:262144``), so ratios are to the preset in force. The best mean decides,
and the worst row against the preset is printed beside it, since a preset should be bad at nothing.
"""

from __future__ import annotations

from .data import ArraySpec
from .judge import OURS, Table
from .patterns import PATTERNS
from .runner import Results
from .sections import Section

PAGES = (4096, 8192, 16384, 65536)
BLOCKS = (65536, 262144, 1048576, 4194304)
_SHAPES = {"full": (16384, 8192), "quick": (8192, 8192), "tiny": (300, 260)}


def labels(pages: tuple[int, ...] = PAGES, blocks: tuple[int, ...] = BLOCKS) -> tuple[str, ...]:
    """Return the systems of the sweep, the preset in force first."""
    return (OURS, *(f"nandarray/{page}:{block}" for page in pages for block in blocks if page <= block))


def section(size: str) -> Section:
    """Return the one array of the sweep."""
    spec = ArraySpec(_SHAPES[size])
    title = f"geometry sweep, {' x '.join(map(str, spec.shape))} float32; columns: access unit : building block"
    return Section("2d", title, spec, PATTERNS[2])


def ranking(results: Results) -> list[tuple[str, float, float, str]]:
    """Return (system, geometric mean of the times, worst time, its row), all relative to the preset; best first."""
    table = Table(results)
    rows = table.reads() + table.writes()
    ranks = []
    for label in table.systems():
        mean = table.mean(rows, label)
        ratios = [(r, row) for row in rows if (r := table.ratio(row, label)) is not None]
        if mean is not None and ratios:
            worst, row = max(ratios)
            ranks.append((label, mean, worst, " ".join(row[1:])))
    return sorted(ranks, key=lambda rank: rank[1])
