"""Which arrays a run looks at: five sections of about 1 GiB, smaller ones for the quick run, tiny ones for the tests."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .data import ArraySpec
from .patterns import COMPRESSED, PATTERNS, Pattern


@dataclass(frozen=True)
class Section:
    """One array and the patterns that are walked over it."""

    name: str
    title: str
    spec: ArraySpec
    patterns: tuple[Pattern, ...]


_SHAPES: dict[str, dict[int, tuple[int, ...]]] = {
    "full": {2: (16384, 16384), 3: (640, 640, 640), 4: (128, 128, 128, 128)},
    "quick": {2: (8192, 8192), 3: (320, 320, 320), 4: (80, 80, 80, 80)},
    "tiny": {2: (300, 260), 3: (40, 36, 44), 4: (12, 14, 10, 16)},
}


def sections(size: str) -> list[Section]:
    """Return the sections of a run of this size: ``full``, ``quick`` or ``tiny``."""
    shapes = _SHAPES[size]
    found = []
    for ndim, shape in shapes.items():
        spec = ArraySpec(shape)
        title = f"{' x '.join(map(str, shape))} float32, uncompressed, {spec.nbytes / 2**30:.2f} GiB"
        found.append(Section(f"{ndim}d", title, spec, PATTERNS[ndim]))
    for codec in ("lz4", "zstd"):
        shape = shapes[2] if size != "full" else (16384, 8192)
        spec = replace(ArraySpec(shape), data="smooth", compression=codec)
        title = f"{' x '.join(map(str, shape))} float32, {codec} with byte shuffle, {spec.nbytes / 2**30:.2f} GiB"
        found.append(Section(f"2d-{codec}", title, spec, COMPRESSED))
    return found
