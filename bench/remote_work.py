"""One work of one system on a store behind HTTP, in a process of its own: what :mod:`bench.remote` starts.

Its argument is a JSON object: the work, the system, the address, folders and sizes; its answer a line
``figures: {...}``. It imports nothing of the product but in the product's own works: peers run in another interpreter.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["BLOCK", "NAME", "elements", "made"]

#: Side of a building block and of a chunk, in elements of four bytes: 256 KiB.
BLOCK = 256
NAME = "grid"
_Figures = dict[str, Any]


def _peer(name: str) -> Any:
    """Import a module of which this package knows no types."""
    return importlib.import_module(name)


def elements(side: int) -> Any:
    """Return the array that is read."""
    return np.random.default_rng(7).random((side, side), dtype=np.float32)


def _bands(asked: _Figures, axis: int) -> list[tuple[slice, slice]]:
    """Return bands of two blocks, in an order that is not theirs."""
    starts = np.arange(0, asked["side"], 2 * BLOCK)
    np.random.default_rng(asked["round"]).shuffle(starts)
    bands = [slice(int(start), int(start) + 2 * BLOCK) for start in starts[: asked["bands"]]]
    return [(band, slice(None)) if axis == 0 else (slice(None), band) for band in bands]


def made(folder: Path, system: str, side: int) -> None:
    """Make what a system reads."""
    data = elements(side)
    if system == "nandarray":
        import nandarray

        with nandarray.open(folder / "a.nand", "w") as store:
            store.create(NAME, data=data, building_block=(BLOCK, BLOCK))
    elif system == "bare":
        tiles = data.reshape(side // BLOCK, BLOCK, side // BLOCK, BLOCK).swapaxes(1, 2)
        (folder / "tiles").write_bytes(np.ascontiguousarray(tiles).tobytes())
    elif system == "zarr":
        array = _peer("zarr").create_array(
            str(folder / "a.zarr"), shape=data.shape, chunks=(BLOCK, BLOCK), dtype="f4", compressors=None
        )
        array[:] = data
    else:
        icechunk = _peer("icechunk")
        repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder / "a.ice")))
        session = repository.writable_session("main")
        array = _peer("zarr").create_array(
            session.store, name=NAME, shape=data.shape, chunks=(BLOCK, BLOCK), dtype="f4", compressors=None
        )
        array[:] = data
        session.commit("made")


def _store(url: str) -> Any:
    return _peer("obstore.store").HTTPStore(url, client_options={"allow_http": True})


def _opened(asked: _Figures) -> Callable[[Any], Any]:
    """Open what a system reads, and return how a selection of it is read."""
    system, url = asked["system"], asked["url"]
    if system == "nandarray":
        import nandarray

        store = nandarray.open(f"{url}/a.nand", cache=asked["cache"])
        array: Any = store[NAME]
    elif system == "zarr":
        zarr = _peer("zarr")
        array = zarr.open_array(zarr.storage.ObjectStore(_store(f"{url}/a.zarr"), read_only=True), mode="r")
    elif system == "icechunk":
        icechunk = _peer("icechunk")
        repository = icechunk.Repository.open(icechunk.http_storage(f"{url}/a.ice"))
        array = _peer("zarr").open_array(repository.readonly_session("main").store, path=NAME, mode="r")
    else:
        store = _store(url)
        return lambda selection: _bare(store, selection, asked["side"])
    return lambda selection: array[selection]


def _bare(store: Any, selection: Any, side: int) -> list[Any]:
    """Read the tiles in which a selection lies, by one call."""
    count, size = side // BLOCK, BLOCK * BLOCK * 4
    spans = []
    for part in selection:
        whole = slice(0, side) if part == slice(None) else part
        low, high = (whole.start, whole.stop) if isinstance(whole, slice) else (whole, whole + 1)
        spans.append(range(low // BLOCK, -(-high // BLOCK)))
    starts = [(row * count + column) * size for row in spans[0] for column in spans[1]]
    found = _peer("obstore").get_ranges(store, "tiles", starts=starts, ends=[start + size for start in starts])
    return [memoryview(one) for one in found]


#: Modules of each system, which are imported before anything is timed.
_MODULES = {
    "nandarray": ("nandarray", "obstore.store", "nandarray.remote.source"),
    "zarr": ("zarr", "obstore.store"),
    "icechunk": ("zarr", "icechunk"),
    "bare": ("obstore.store",),
}


def _open(asked: _Figures) -> _Figures:
    begin = time.perf_counter()
    _opened(asked)
    return {"seconds": time.perf_counter() - begin}


def _element(asked: _Figures) -> _Figures:
    read = _opened(asked)
    place = np.random.default_rng(asked["round"]).integers(0, asked["side"], 2)
    begin = time.perf_counter()
    read((int(place[0]), int(place[1])))
    return {"seconds": time.perf_counter() - begin}


def _read_bands(asked: _Figures, axis: int) -> _Figures:
    read, bands = _opened(asked), _bands(asked, axis)
    begin = time.perf_counter()
    for band in bands:
        read(band)
    return {"seconds": time.perf_counter() - begin, "bytes": len(bands) * 2 * BLOCK * asked["side"] * 4}


def _again(asked: _Figures) -> _Figures:
    """Read what is here already, beside the same from a local store."""
    import nandarray

    far, bands = _opened(asked), _bands(asked, 0)
    near = nandarray.open(Path(asked["folder"]) / "a.nand")[NAME]
    times: dict[str, list[float]] = {"far": [], "near": []}
    for turn in range(6):
        for name, read in (("far", far), ("near", near.__getitem__)):
            begin = time.perf_counter()
            for band in bands:
                read(band)
            if turn:
                times[name].append(time.perf_counter() - begin)
    size = len(bands) * 2 * BLOCK * asked["side"] * 4
    return {"seconds": min(times["far"]), "near": min(times["near"]), "bytes": size}


_WORKS: dict[str, Callable[[_Figures], _Figures]] = {
    "open": _open,
    "element": _element,
    "rows": lambda asked: _read_bands(asked, 0),
    "columns": lambda asked: _read_bands(asked, 1),
    "again": _again,
}


def main(text: str) -> None:
    """Do the work."""
    asked = json.loads(text)
    try:
        if asked["work"] == "make":
            made(Path(asked["folder"]), asked["system"], asked["side"])
            figures: _Figures = {}
        else:
            for name in _MODULES[asked["system"]]:
                _peer(name)
            figures = _WORKS[asked["work"]](asked)
    except ModuleNotFoundError as error:
        figures = {"missing": str(error)}
    print("figures: " + json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1])
