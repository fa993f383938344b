"""Time to open a large store: one of 100,000 arrays, one of ten million building blocks.

The stores are made by one process and opened by another, which counts seconds and peak resident memory from just before
the open (libraries imported) until an array in the middle was looked up and an element of it read: an open that put all
its work off would be caught. h5py and Zarr stand beside it for the arrays. Zarr's 100,000 arrays are made by copying
the metadata of one, since only opening is measured.

Ten million blocks of the default 256 KiB would be 2.6 TB; blocks of one access unit of 512 bytes have the same index.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

_PAGE = 512
_SLAB = 1 << 17  # blocks written at a time: 64 MiB


@dataclass(frozen=True)
class Opened:
    """The costs of one opening; ``names`` is the further time until every name was listed."""

    system: str
    what: str
    open_seconds: float
    read_seconds: float
    names_seconds: float
    peak_bytes: int
    file_bytes: int
    make_seconds: float

    @property
    def seconds(self) -> float:
        """Open and read one element."""
        return self.open_seconds + self.read_seconds


def _name(i: int) -> str:
    return f"group{i // 1000:03d}/array{i:06d}"


def _make_nandarray(path: Path, arrays: int) -> None:
    import nandarray

    with nandarray.open(str(path), "w") as store:
        for i in range(arrays):
            array = store.create(_name(i), (16,), "float32")
            if i % 1000 == 0:
                array[...] = np.arange(16, dtype=np.float32)


def _open_nandarray(path: Path, name: str) -> tuple[Any, Callable[[], int]]:
    import nandarray

    store = nandarray.open(str(path), "r")
    return (lambda: store[name][:1]), (lambda: len(store.array_names()))


def _make_blocks(path: Path, blocks: int) -> None:
    import nandarray

    geometry = {"page_bytes": _PAGE, "channels": 64, "banks": 1, "pages_per_block": 128}
    items = _PAGE // 4
    with nandarray.open(str(path), "w", geometry=geometry) as store:
        array = store.create("a", (blocks * items,), "float32", building_block=(items,))
        slab = np.random.default_rng(5).random(min(_SLAB, blocks) * items, dtype=np.float32)
        for first in range(0, blocks * items, slab.size):
            part = slab[: min(slab.size, blocks * items - first)]
            array[first : first + part.size] = part


def _make_h5py(path: Path, arrays: int) -> None:
    import h5py

    with h5py.File(path, "w", libver="latest") as file:
        for i in range(arrays):
            file.create_dataset(_name(i), (16,), "float32")


def _open_h5py(path: Path, name: str) -> tuple[Any, Callable[[], int]]:
    import h5py

    file: Any = h5py.File(path, "r")
    return (lambda: file[name][:1]), (lambda: sum(len(group) for group in file.values()))


def _make_zarr(path: Path, arrays: int) -> None:
    import zarr

    root = zarr.open_group(str(path), mode="w")
    root.create_array(_name(0), shape=(16,), dtype="float32", chunks=(16,))
    group = (path / _name(0)).parent / "zarr.json"
    metadata = (path / _name(0) / "zarr.json").read_bytes()
    for i in range(1, arrays):
        folder = path / _name(i)
        folder.mkdir(parents=True)
        (folder / "zarr.json").write_bytes(metadata)
        if i % 1000 == 0:
            (folder.parent / "zarr.json").write_bytes(group.read_bytes())


def _open_zarr(path: Path, name: str) -> tuple[Any, Callable[[], int]]:
    import zarr

    root: Any = zarr.open_group(str(path), mode="r")
    return (lambda: root[name][:1]), (lambda: sum(len(list(group.array_keys())) for _, group in root.groups()))


#: System -> (package, make, open).
_ARRAYS: dict[str, tuple[str, Callable[[Path, int], None], Callable[[Path, str], Any]]] = {
    "nandarray": ("nandarray._nandarray", _make_nandarray, _open_nandarray),
    "h5py": ("h5py", _make_h5py, _open_h5py),
    "zarr": ("zarr", _make_zarr, _open_zarr),
}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _open_child(pipe: Connection, package: str, opener: Callable[[Path, str], Any], path: Path, name: str) -> None:
    __import__(package)
    if package.startswith("nandarray"):
        __import__("nandarray")
    before, start = _peak(), time.perf_counter()
    read, names = opener(path, name)
    opened = time.perf_counter()
    read()
    done = time.perf_counter()
    peak = _peak() - before
    names()
    pipe.send((opened - start, done - opened, time.perf_counter() - done, peak))


def _make_child(maker: Callable[[Path, int], None], path: Path, count: int) -> None:
    maker(path, count)


def _bytes(path: Path) -> int:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(p.stat().st_blocks * 512 for p in files)


def _measure(
    system: str, what: str, path: Path, making: tuple[Callable[[Path, int], None], int], opening: tuple[str, Any, str]
) -> Opened | None:
    context = multiprocessing.get_context("spawn")
    begin = time.perf_counter()
    maker = context.Process(target=_make_child, args=(making[0], path, making[1]))
    maker.start()
    maker.join()
    made = time.perf_counter() - begin
    if maker.exitcode != 0:
        print(f"{system}: making {what} failed with exit code {maker.exitcode}")
        return None
    pipe, theirs = context.Pipe()
    package, opener, name = opening
    child = context.Process(target=_open_child, args=(theirs, package, opener, path, name), daemon=True)
    child.start()
    theirs.close()
    try:
        opened, read, names, peak = pipe.recv()
    except EOFError:
        print(f"{system}: opening {what} failed")
        return None
    finally:
        child.join(30)
    return Opened(system, what, opened, read, names, peak, _bytes(path), made)


def measure(folder: Path, arrays: int, blocks: int, wanted: tuple[str, ...] | None = None) -> list[Opened]:
    """Make, open and remove every store; ``wanted`` names the systems."""
    found = []
    folder = folder / "opening"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        for system, (package, make, opener) in _ARRAYS.items():
            if wanted is not None and system not in wanted:
                continue
            try:
                __import__(package)
            except ImportError as error:
                print(f"skipping {system}: {error}")
                continue
            path = folder / f"{system}-arrays"
            found.append(
                _measure(system, f"{arrays:,} arrays", path, (make, arrays), (package, opener, _name(arrays // 2)))
            )
            shutil.rmtree(path, ignore_errors=True)
            if system == "nandarray" and blocks:
                path.unlink(missing_ok=True)
                path = folder / "nandarray-blocks"
                what = f"{blocks:,} building blocks of {_PAGE} B"
                found.append(_measure(system, what, path, (_make_blocks, blocks), (package, opener, "a")))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [one for one in found if one is not None]


def as_json(found: list[Opened]) -> str:
    """Return the figures as JSON."""
    return json.dumps([vars(one) | {"seconds": one.seconds} for one in found], indent=1)
