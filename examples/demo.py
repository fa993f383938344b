"""The demo: real brain scans and one large generated array, stored once, read every way, checked byte for byte.

It stores

* the MNI152 brain template (3-D, shipped by the ``nilearn`` package), a functional scan (4-D, shipped by ``nibabel``),
and * a generated 3-D array, 2 GiB at full size,

each once in nandarray, once in Zarr 3 and once in a row-major file, and reads each along every axis, as sub-blocks and
under another dimensionality. Every pattern covers the whole array, so that every byte of it comes out of every system,
and all of it is compared with NumPy; only the reading is timed. The three systems take turns at every single read, with
their files in the page cache except where a row says cold.

    python examples/demo.py                 # 2 GiB, about three minutes
    python examples/demo.py --size 64MiB    # a quick look

Expected values are made by NumPy from the scan or from the generator's formula, never from a file that a system under
test wrote, and box by box, so that memory stays bounded. The demo is not the benchmark: it has two other systems in one
configuration each; ``python -m bench run`` has them all in their best ones.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nibabel
import nilearn.datasets
import numpy as np
import zarr
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from zarr.core.buffer import cpu

import nandarray

Array = NDArray[Any]

#: Thickness of a slab of a large array: Zarr's chunk edge, so that Zarr reads nothing twice.
_SLAB = 64


@dataclass(frozen=True)
class Tile:
    """One sub-block of a partition: the shape of the parts, and which of them, counted in parts."""

    part: tuple[int, ...]
    coordinate: tuple[int, ...]
    shape: tuple[int, ...]  # of the whole

    @property
    def box(self) -> tuple[slice, ...]:
        """The elements it covers; the last part along an axis may be smaller."""
        places = zip(self.part, self.coordinate, self.shape, strict=True)
        return tuple(slice(p * c, min(p * (c + 1), n)) for p, c, n in places)

    @property
    def counts(self) -> tuple[int, ...]:
        """Its own shape."""
        return tuple(s.stop - s.start for s in self.box)


def partition(shape: tuple[int, ...], part: tuple[int, ...]) -> list[Tile]:
    """Cut a whole into equal parts; together they cover every element once."""
    grid = (range(-(-n // p)) for n, p in zip(shape, part, strict=True))
    return [Tile(part, coordinate, shape) for coordinate in itertools.product(*grid)]


# The data ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """An array to store, and NumPy's word on what any box of it holds."""

    name: str
    title: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    #: ``expected(shape, box)``: a box of the array under this shape (its own, or the view's).
    expected: Callable[[tuple[int, ...], tuple[slice, ...]], Array]
    #: Another dimensionality: which neighbouring axes become one. ((0, 1), (2,)) makes a volume a long image.
    merge: tuple[tuple[int, ...], ...]
    slab: int
    block: tuple[int, ...]
    view_block: tuple[int, ...]

    @property
    def view(self) -> tuple[int, ...]:
        """The other shape, of equal volume."""
        return tuple(math.prod(self.shape[axis] for axis in group) for group in self.merge)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return math.prod(self.shape) * self.dtype.itemsize


def _stored(path: Path) -> Array:
    """Return a scan's numbers as the file stores them, unscaled, in C order."""
    image: Any = nibabel.load(path)
    return np.ascontiguousarray(image.dataobj.get_unscaled())


def scans() -> list[Data]:
    """Return the scans that the installed packages ship."""
    brain = _stored(
        Path(nilearn.datasets.__file__).parent / "data" / "mni_icbm152_t1_tal_nlin_sym_09a_converted.nii.gz"
    )
    scan = _stored(Path(nibabel.__file__).parent / "tests" / "data" / "example4d.nii.gz")
    return [
        Data(
            "brain",
            "MNI152 brain template, 3-D",
            brain.shape,
            brain.dtype,
            lambda shape, box: brain.reshape(shape)[box],
            merge=((0, 1), (2,)),
            slab=1,
            block=(64, 64, 64),
            view_block=(4096, 63),
        ),
        Data(
            "scan",
            "functional scan, 4-D",
            scan.shape,
            scan.dtype,
            lambda shape, box: scan.reshape(shape)[box],
            merge=((0, 1, 2), (3,)),
            slab=1,
            block=(32, 32, 12, 2),
            view_block=(16384, 1),
        ),
    ]


def generated(size: int) -> Data:
    """Describe the generated array: at least ``size`` bytes of float32, each a hash of its place, so made anywhere."""
    # Near a cube; the sides are no powers of two and no multiples of a chunk.
    side = max(20, round((size / 4) ** (1 / 3) / 4) * 4)
    shape = (math.ceil(size / 4 / side / side), side, side)

    def expected(under: tuple[int, ...], box: tuple[slice, ...]) -> Array:
        place = np.zeros((1,) * len(under), np.uint32)
        for axis, cut in enumerate(box):
            along = np.arange(cut.start, cut.stop, dtype=np.uint32) * np.uint32(math.prod(under[axis + 1 :]))
            place = place + along.reshape([-1 if i == axis else 1 for i in range(len(under))])
        # In place, since the boxes are large: two rounds of multiply and shift, 24 bits of it exact as float32.
        place *= np.uint32(2654435761)
        place ^= place >> np.uint32(15)
        place *= np.uint32(2246822519)
        place >>= np.uint32(8)
        return place.astype(np.float32)

    edge = min(256, side // 2 + 3)
    return Data(
        "generated",
        "generated, incompressible, 3-D",
        shape,
        np.dtype(np.float32),
        expected,
        merge=((0, 1), (2,)),
        slab=min(_SLAB, side // 4),
        block=(edge, edge, edge),
        view_block=(side * 24, side // 3 + 1),
    )


# The systems ---------------------------------------------------------------------------------------------------------


class System(ABC):
    """One way to store an array."""

    name: str

    def __init__(self, folder: Path, data: Data) -> None:
        self.path = folder / f"{data.name}-{type(self).__name__.lower()}"
        self.data = data
        self._create()

    @abstractmethod
    def _create(self) -> None:
        """Make the array, empty."""

    @abstractmethod
    def write(self, box: tuple[slice, ...], values: Array) -> None:
        """Write a box."""

    @abstractmethod
    def read(self, tile: Tile, out: Array) -> None:
        """Read a sub-block of the array into a buffer."""

    @abstractmethod
    def read_view(self, tile: Tile, out: Array) -> None:
        """Read a sub-block of the array under its other dimensionality into a buffer."""

    @abstractmethod
    def reopen(self) -> None:
        """Let go of every mapping and cache, then open for reading; what was written is safe by then."""

    def files(self) -> list[Path]:
        """Return the files that it keeps the array in."""
        return [self.path] if self.path.is_file() else [p for p in self.path.rglob("*") if p.is_file()]


class Nandarray(System):
    """nandarray with nothing set."""

    name = "nandarray"

    def _create(self) -> None:
        self._store = nandarray.open(self.path, "w")
        self._array = self._store.create(self.data.name, self.data.shape, self.data.dtype)

    def write(self, box: tuple[slice, ...], values: Array) -> None:
        """Assign."""
        self._array[box] = values

    def read(self, tile: Tile, out: Array) -> None:
        """Read by one command."""
        self._array.read(tile.box, out=out)

    def read_view(self, tile: Tile, out: Array) -> None:
        """Read by one command: coordinate and sub-dimensionality, as in the NDS paper."""
        self._view.read(tile.coordinate, tile.part, out=out)

    def reopen(self) -> None:
        """Close, which flushes, and open."""
        self._store.close()
        self._store = nandarray.open(self.path, "r")
        self._array = self._store[self.data.name]
        self._view = self._array.view(self.data.view)


class Zarr(System):
    """Zarr 3 without compression, in chunks of 64 along each axis.

    It has no views: what lies in a block of another dimensionality is read as the smallest box of the array around it
    and cut with NumPy, which is what its user would write.
    """

    name = "Zarr 3"

    def _create(self) -> None:
        chunks = tuple(min(64, n) for n in self.data.shape)
        where = zarr.storage.LocalStore(self.path)
        shape, dtype = self.data.shape, self.data.dtype
        self._array: Any = zarr.create_array(where, shape=shape, dtype=dtype, chunks=chunks, compressors=None)

    def write(self, box: tuple[slice, ...], values: Array) -> None:
        """Assign."""
        self._array[box] = values

    def read(self, tile: Tile, out: Array) -> None:
        """Read straight into the buffer, through the door that Zarr has for it."""
        self._array.get_basic_selection(tile.box, out=cpu.NDBuffer.from_numpy_array(out))

    def read_view(self, tile: Tile, out: Array) -> None:
        """Read the box around, reshape, cut."""
        around, cuts = [], []
        for group, cut in zip(self.data.merge, tile.box, strict=True):
            inner = math.prod(self.data.shape[axis] for axis in group[1:])
            low, high = cut.start // inner, -(-cut.stop // inner)
            around += [slice(low, high), *(slice(None) for _ in group[1:])]
            cuts.append(slice(cut.start - low * inner, cut.stop - low * inner))
        found = np.asarray(self._array[tuple(around)])
        lengths = [math.prod(found.shape[axis] for axis in group) for group in self.data.merge]
        np.copyto(out, found.reshape(lengths)[tuple(cuts)])

    def reopen(self) -> None:
        """Open the group again; it keeps nothing open."""
        self._array = zarr.open_array(zarr.storage.LocalStore(self.path, read_only=True), mode="r")


class RowMajor(System):
    """NumPy's memmap of a raw file; its views are free, since the file is what NumPy would hold in memory."""

    name = "row-major file"

    def _create(self) -> None:
        self._map = np.memmap(self.path, self.data.dtype, "w+", shape=self.data.shape)

    def write(self, box: tuple[slice, ...], values: Array) -> None:
        """Assign."""
        self._map[box] = values

    def read(self, tile: Tile, out: Array) -> None:
        """Copy out of the mapping."""
        np.copyto(out, self._map[tile.box])

    def read_view(self, tile: Tile, out: Array) -> None:
        """Copy out of the reshaped mapping."""
        np.copyto(out, self._map.reshape(self.data.view)[tile.box])

    def reopen(self) -> None:
        """Write back, unmap, map."""
        self._map.flush()
        del self._map
        self._map = np.memmap(self.path, self.data.dtype, "r", shape=self.data.shape)


SYSTEMS: tuple[type[System], ...] = (Nandarray, Zarr, RowMajor)


# The run -------------------------------------------------------------------------------------------------------------


@dataclass
class Line:
    """One row of the table: seconds by system, and how the comparison went."""

    data: Data
    pattern: str
    reads: int
    nbytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def ratio(self, name: str) -> float:
        """Give how many times as long as nandarray a system took."""
        return self.seconds[name] / self.seconds["nandarray"]


def _slabs(data: Data, axis: int) -> list[Tile]:
    return partition(data.shape, tuple(data.slab if i == axis else n for i, n in enumerate(data.shape)))


def write(data: Data, systems: Sequence[System]) -> Line:
    """Store the array once in every system, slab by slab, until it is safe."""
    thick = max(1, min(data.shape[0], _SLAB))
    tiles = partition(data.shape, (thick, *data.shape[1:]))
    line = Line(data, "write, slab by slab", len(tiles), data.nbytes, dict.fromkeys((s.name for s in systems), 0.0))
    for tile in tiles:
        values = np.ascontiguousarray(data.expected(data.shape, tile.box))
        for system in systems:
            begin = time.perf_counter()
            system.write(tile.box, values)
            line.seconds[system.name] += time.perf_counter() - begin
    for system in systems:
        begin = time.perf_counter()
        system.reopen()
        for file in system.files():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        line.seconds[system.name] += time.perf_counter() - begin
    return line


def read(data: Data, systems: Sequence[System], pattern: str, tiles: list[Tile], step: Callable[[], None]) -> Line:
    """Read a partition through every system, taking turns, and compare every byte."""
    line = Line(data, pattern, len(tiles), seconds=dict.fromkeys((s.name for s in systems), 0.0))
    under_view = tiles[0].shape != data.shape
    buffers: dict[tuple[int, ...], Array] = {}
    for turn, tile in enumerate(tiles):
        wanted = data.expected(tile.shape, tile.box)
        if tile.counts not in buffers:
            buffers[tile.counts] = np.ones(tile.counts, data.dtype)
        out = buffers[tile.counts]
        line.nbytes += out.nbytes
        for place in range(len(systems)):
            system = systems[(turn + place) % len(systems)]
            out.fill(77)
            begin = time.perf_counter()
            (system.read_view if under_view else system.read)(tile, out)
            line.seconds[system.name] += time.perf_counter() - begin
            if not np.array_equal(out, wanted):
                line.wrong.append(f"{system.name} {tile.box}")
        step()
    return line


def _make_cold(systems: Sequence[System]) -> None:
    for system in systems:
        system.reopen()  # nothing read yet through the new mapping, so its pages can go
        for file in system.files():
            fd = os.open(file, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def show_one(data: Data, folder: Path, say: Callable[[str, int], Callable[[], None]]) -> list[Line]:
    """Store and read one array every way."""
    systems = [make(folder, data) for make in SYSTEMS]
    say(f"{data.name}: write", 1)
    lines = [write(data, systems)]
    last = len(data.shape) - 1
    thing = "planes" if data.slab == 1 else f"slabs of {data.slab}"
    patterns = [("first reading, checksums verified", _slabs(data, 0))]
    patterns += [(f"{thing} across axis {axis}", _slabs(data, axis)) for axis in range(last + 1)]
    patterns.append((f"sub-blocks {' x '.join(map(str, data.block))}", partition(data.shape, data.block)))
    view = " x ".join(map(str, data.view))
    patterns.append((f"view {view}, sub-blocks", partition(data.view, data.view_block)))
    for pattern, tiles in patterns:
        step = say(f"{data.name}: {pattern}", len(tiles))
        lines.append(read(data, systems, pattern, tiles, step))
    if data.slab > 1:
        for axis in (0, last):
            _make_cold(systems)
            one = _slabs(data, axis)[1:2]
            step = say(f"{data.name}: cold", 1)
            lines.append(read(data, systems, f"cold: one slab across axis {axis}", one, step))
    return lines


def report(lines: list[Line], console: Console) -> None:
    """Print the table and what it says, losses in red."""
    names = [system.name for system in SYSTEMS]
    table = Table(title="GB/s, and the time as a multiple of nandarray's (below 1, in red: faster than nandarray)")
    table.add_column("array")
    table.add_column("pattern")
    table.add_column("reads", justify="right")
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("every byte equal to NumPy")
    previous = None
    for line in lines:
        if previous is not None and line.data is not previous:
            table.add_section()
        title = f"{line.data.title}\n" if line.data is not previous else ""
        shape = (
            f"[dim]{' x '.join(map(str, line.data.shape))} {line.data.dtype}[/]" if line.data is not previous else ""
        )
        cells = []
        for name in names:
            rate = f"{line.nbytes / line.seconds[name] / 1e9:.2f}"
            ratio = line.ratio(name)
            colour = "red" if ratio < 1 else "green"
            cells.append(f"[bold]{rate}[/]" if name == "nandarray" else f"{rate} [{colour}]({ratio:.2f} x)[/]")
        verdict = "[red]WRONG[/]" if line.wrong else "[green]yes[/]"
        if line.pattern.startswith("write"):
            verdict = "[dim]see below[/]"
        table.add_row(title + shape, line.pattern, str(line.reads), *cells, verdict)
        previous = line.data
    console.print(table)
    _sum_up([line for line in lines if not line.pattern.startswith("write")], names[1:], console)


def _sum_up(lines: list[Line], others: list[str], console: Console) -> None:
    for name in others:
        ratios = [line.ratio(name) for line in lines]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        wins = sum(ratio >= 1 for ratio in ratios)
        console.print(
            f"Reading, against {name}: nandarray is faster in {wins} of {len(ratios)} rows, "
            f"{mean:.2f} times as fast in the geometric mean (from {min(ratios):.2f} to {max(ratios):.1f})."
        )
    compared = sum(line.nbytes for line in lines)
    wrong = [text for line in lines for text in line.wrong]
    console.print(f"Compared with NumPy: {compared / 2**30:.1f} GiB from each of {len(others) + 1} systems.")
    for text in wrong[:10]:
        console.print(f"[red]differs: {text}[/]")


def parse_size(text: str) -> int:
    """Turn ``2GiB``, ``64MiB`` or a number of bytes into bytes."""
    units = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
    low = text.lower()
    for unit, factor in units.items():
        if low.endswith(unit):
            return int(float(low.removesuffix(unit)) * factor)
    return int(text)


def main(argv: list[str] | None = None) -> int:
    """Run the demo; the exit status is 1 if a single byte differed."""
    parser = argparse.ArgumentParser(
        description="nandarray on real scans and one large array, beside two other systems"
    )
    parser.add_argument("--size", type=parse_size, default=2 << 30, help="bytes of the generated array, e.g. 64MiB")
    parser.add_argument("--folder", type=Path, default=Path("demo-data"), help="where the data goes")
    parser.add_argument("--keep", action="store_true", help="leave the data there")
    arguments = parser.parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    shutil.rmtree(arguments.folder, ignore_errors=True)
    arguments.folder.mkdir(parents=True)
    lines: list[Line] = []
    begin = time.perf_counter()
    try:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("")

            def say(what: str, steps: int) -> Callable[[], None]:
                progress.reset(task, description=what, total=steps)
                return lambda: progress.advance(task)

            for data in [*scans(), generated(arguments.size)]:
                lines += show_one(data, arguments.folder, say)
        report(lines, console)
    finally:
        if not arguments.keep:
            shutil.rmtree(arguments.folder, ignore_errors=True)
    kept = f"kept in {arguments.folder}" if arguments.keep else "removed"
    console.print(f"{time.perf_counter() - begin:.0f} s; the data is {kept}.")
    return 1 if any(line.wrong for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
