"""The arrays of a run: six sections of about 1 GiB, smaller for the quick run, tiny for the tests.

The quick run leaves out the 4-D, the Zstandard and the slab-written sections, to be a matter of minutes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .data import ArraySpec
from .patterns import COMPRESSED, PATTERNS, Pattern

#: Planes a command of the section whose array is written in slabs: no divisor of a building block's side.
_SLAB = 5


@dataclass(frozen=True)
class Section:
    """One array and the patterns that are walked over it."""

    name: str
    title: str
    spec: ArraySpec
    patterns: tuple[Pattern, ...]


_SHAPES: dict[str, dict[int, tuple[int, ...]]] = {
    "full": {2: (16384, 16384), 3: (640, 640, 640), 4: (128, 128, 128, 128)},
    "quick": {2: (6144, 6144), 3: (288, 288, 288), 4: (64, 80, 64, 80)},
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
        if ndim == 3:
            spec, title = replace(spec, slab=_SLAB), f"{title}, written in slabs of {_SLAB} across axis 0"
            found.append(Section("3d+slabs", title, spec, PATTERNS[3]))
    if size == "quick":
        found = [section for section in found if section.name not in ("4d", "3d+slabs")]
    for codec in ("lz4",) if size == "quick" else ("lz4", "zstd"):
        shape = shapes[2] if size != "full" else (16384, 8192)
        spec = replace(ArraySpec(shape), data="smooth", compression=codec)
        title = f"{' x '.join(map(str, shape))} float32, {codec} with byte shuffle, {spec.nbytes / 2**30:.2f} GiB"
        found.append(Section(f"2d-{codec}", title, spec, COMPRESSED))
    return found
