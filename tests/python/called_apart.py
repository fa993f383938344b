"""Every public method of a subject, called with good and odd arguments, in a process that may die of it.

    python called_apart.py SUBJECT FOLDER [SKIPPED...]

prints a line of JSON before each method and after it: what each call gave. Methods are those that ``dir`` finds on the
subject's class, so those that another library's next version adds are called, too.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import os
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import nandarray

#: Arguments of methods that do something, by the name of a parameter.
GOOD: dict[str, Any] = {
    "name": "new", "old": "x", "new": "moved", "shape": (2, 3), "dtype": "f4", "selection": np.s_[0], "key": 0,
    "values": 1, "data": [[1, 2, 3]], "coordinate": (0, 0), "sub_shape": (1, 1), "indices": [0], "index": 0,
    "axis": 0, "program": "sum", "function": "sum", "value": 1, "attrs": {"a": 1}, "default": None, "start": (0, 0),
    "count": (1, 1), "entry": bytes(64), "out": None, "columns": ["id"], "num_rows": 2, "low": 0, "high": 1,
}  # fmt: skip
#: Methods of Python's own protocols which classes of ours have.
PROTOCOLS = (
    "__getitem__", "__setitem__", "__delitem__", "__contains__", "__iter__", "__len__", "__repr__", "__bool__",
    "__array__", "__getitems__", "__enter__", "__copy__", "__eq__", "__ne__", "__int__", "__float__", "__index__",
)  # fmt: skip


def odd() -> list[Any]:
    """Arguments that are wrong almost anywhere."""
    return [
        None, -1, 99, 2**70, 1.5, float("nan"), "x", "", "\ud800", b"\xff", [], [[1], [2, 3]], [99], {"a": object()},
        object(), (1,) * 40, np.zeros((5, 5), bool), np.array(["NaT"], "M8[s]"), slice("a", 2**70), lambda: None,
    ]  # fmt: skip


def calls(method: Any, default: list[Any]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Give arguments: good ones, and each of them in turn replaced by odd ones; of a method that tells none, any."""
    try:
        parameters = list(inspect.signature(method).parameters.values())
    except (TypeError, ValueError):
        yield from (((), {}), *(((one,), {}) for one in default), *(((one, one), {}) for one in default))
        return
    needed = [one for one in parameters if one.default is one.empty and one.kind <= one.POSITIONAL_OR_KEYWORD]
    good = [GOOD.get(one.name) for one in needed]
    yield tuple(good), {}
    for at, one in itertools.product(range(len(needed)), default):
        yield (*good[:at], one, *good[at + 1 :]), {}
    for parameter in parameters:
        if parameter.default is not parameter.empty:
            yield from ((tuple(good), {parameter.name: one}) for one in default)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            yield from (((*good, one), {}) for one in default)
        elif parameter.kind is parameter.VAR_KEYWORD:
            yield tuple(good), {"nonsense": 1}


def finished(result: Any) -> Any:
    """Wait for what a call gave, and read a little of what it would give."""
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    if isinstance(result, nandarray.Future):
        result = result.result()
    if hasattr(result, "__next__"):
        result = list(itertools.islice(result, 3))
    repr(result)
    return result


def told(error: BaseException) -> dict[str, Any]:
    trace, deep = error.__traceback__, 0
    while trace is not None:
        deep, trace = deep + 1, trace.tb_next
    kinds = [kind.__name__ for kind in type(error).__mro__]
    # Of two frames: the call did not reach a line of the method.
    return {"kinds": kinds, "text": str(error)[:200], "bound": deep <= 2}


def run(make: Callable[[Path], Any], folder: Path, skipped: list[str]) -> None:
    every = sorted(name for name in dir(type(make(folder))) if not name.startswith("_") or name in PROTOCOLS)
    for name in every:
        if name in skipped:
            continue
        print(json.dumps({"begins": name}), flush=True)
        subject, found = make(folder), []
        for arguments, options in one_by_one(subject, name):
            try:
                result = attribute(subject, name, arguments, options)
            except Exception as error:
                shown = repr((arguments, options))[:120]
                found.append({"called": shown.encode(errors="replace").decode(), **told(error)})
            else:
                del result
        print(json.dumps({"ended": name, "errors": found}), flush=True)


def one_by_one(subject: Any, name: str) -> Iterator[Any]:
    raw = inspect.getattr_static(type(subject), name, None)
    if isinstance(raw, property) or not callable(getattr(type(subject), name, None)):
        return iter([((), None)])
    return calls(getattr(subject, name), odd())


def attribute(subject: Any, name: str, arguments: Any, options: Any) -> Any:
    found = getattr(subject, name)
    return finished(found if options is None else found(*arguments, **options))


# --- subjects ---------------------------------------------------------------------------------------------------------

_open: list[Any] = []
_number = itertools.count()


def filled(folder: Path, mode: str = "w") -> Any:
    path = folder / f"{next(_number)}.nand"
    store = nandarray.open(path, "w")
    store["x"] = np.arange(6, dtype="i4").reshape(2, 3)
    store["g/t"] = np.array(["2001-01-01", "NaT"], "M8[s]")
    store["s"] = np.array([b"ab", b""], "S5")
    store["r"] = np.zeros(3, [("a", "i4"), ("b", "f8")])
    if mode != "w":
        store.close()
        store = nandarray.open(path, mode)
    _open.append(store)
    if len(_open) > 2:
        gone = _open.pop(0)
        gone.close()
        os.remove(gone.path)
    return store


def future(folder: Path) -> Any:
    return filled(folder)["x"].submit()


def table(folder: Path) -> Any:
    from nandarray.interop import tables

    text = b"1|1.50|2000-01-01|red|\n2|-3.00|1999-12-31||\n"
    return tables.create(
        filled(folder), "table", text, {"id": "int32", "price": "decimal(9,2)", "day": "date", "name": "text(8)"}
    )


def fragment(folder: Path) -> Any:
    return next(iter(table(folder).dataset().get_fragments()))


def reader(folder: Path) -> Any:
    from nandarray.interop.dask import _Reader

    return _Reader(filled(folder)["x"])


def entrypoint(folder: Path) -> Any:
    from nandarray.interop.xarray.backend import NandarrayBackendEntrypoint

    return NandarrayBackendEntrypoint()


def lazy(folder: Path) -> Any:
    from nandarray.interop.xarray import backend

    store = filled(folder)
    return backend._LazyArray(backend._OpenStore(store), "x", None, store["x"])


def lazy_part(folder: Path) -> Any:
    from nandarray.array.parts import Part
    from nandarray.interop.xarray import backend

    return backend._LazyPart(Part(filled(folder)["x"].view((3, 2))))


def group_store(folder: Path) -> Any:
    from nandarray.interop.xarray import backend

    return backend._GroupStore(backend._OpenStore(filled(folder)), "g", None)


def part_store(folder: Path) -> Any:
    from nandarray.array.parts import Part
    from nandarray.interop.xarray import backend

    return backend._PartStore(Part(filled(folder)["r"]["a"]))


def manager(folder: Path) -> Any:
    from nandarray.interop.xarray import backend

    return backend._OpenStore(filled(folder))


def zarr_store(folder: Path) -> Any:
    from nandarray.interop.zarr_store import ZarrStore

    return ZarrStore(filled(folder))


def in_place(folder: Path) -> Any:
    import h5py

    path = folder / f"{len([*folder.iterdir()])}.h5"  # the one before may be open still
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(6.0).reshape(2, 3), chunks=(1, 3), compression="gzip")
    return nandarray.open(path)


def zarr_objects(folder: Path) -> Any:
    import zarr

    from nandarray.interop.foreign.files import Folder
    from nandarray.interop.foreign.zarr_objects import ZarrObjects

    zarr.open_group(folder / "a.zarr", mode="w").create_array("x", shape=(4,), dtype="i4")[...] = 1
    return ZarrObjects(Folder(str(folder / "a.zarr")))


def range_file(folder: Path) -> Any:
    from obstore.store import MemoryStore

    from nandarray.interop.foreign.far import FarFile, RangeFile
    from nandarray.remote.places import place_of

    store = MemoryStore()
    store.put("a", bytes(range(100)))
    place = place_of("a", store)
    return RangeFile(FarFile(place.objects, place.key))


def spark(folder: Path, **options: str) -> Any:
    from nandarray.interop.spark import NandarrayDataSource

    store = table(folder).store
    store.close()
    return NandarrayDataSource({"path": store.path, "table": "table", **options})


def spark_writer(folder: Path) -> Any:
    source = spark(folder)
    return source.writer(source.schema(), True)


def spark_writer_of_parts(folder: Path) -> Any:
    from nandarray import parts
    from nandarray.interop.spark import NandarrayDataSource

    path = folder / f"parts{next(_number)}.nand"
    parts.create(path).close()
    source = NandarrayDataSource({"path": str(path), "table": "table"})
    made = spark(folder)
    return source.writer(made.schema(), True)


def rows(folder: Path) -> Any:
    from nandarray.interop.rows import RowDataset

    store = filled(folder)
    return RowDataset(store["x"], store["s"])


def modelled(folder: Path) -> Any:
    store = nandarray.open(device="mqsim-ideal", mode="w")
    store["x"] = np.arange(6, dtype="i4").reshape(2, 3)
    _open.append(store)
    return store


def remote(folder: Path) -> Any:
    store = filled(folder)
    server = nandarray.serve(store)
    _kept.append(server)
    return nandarray.open(server.url, "r+")


def shared(folder: Path) -> Any:
    from nandarray.gpu import server

    region = str(folder / f"region{next(_number)}")
    _kept.append(server.serve(filled(folder), region, queues=2, depth=4, data_bytes=65536, writable=True))
    return nandarray.open(f"shm://{region}", "r+")


#: Servers, which end when they are let go of.
_kept: deque[Any] = deque(maxlen=2)

SUBJECTS: dict[str, Callable[[Path], Any]] = {
    "Store": filled,
    "Group": lambda folder: filled(folder)["g"],
    "Array": lambda folder: filled(folder)["x"],
    "Ragged": lambda folder: filled(folder).create_ragged("names", ["a", None]),
    "Array of records": lambda folder: filled(folder)["r"],
    "View": lambda folder: filled(folder)["x"].view((3, 2)),
    "Field": lambda folder: filled(folder)["r"]["a"],
    "AsType": lambda folder: filled(folder)["x"].astype("f4"),
    "Indexer": lambda folder: filled(folder)["x"].oindex,
    "Attributes": lambda folder: filled(folder)["x"].attrs,
    "Future": future,
    # Stand-ins for classes of other libraries.
    "TableDataset": lambda folder: table(folder).dataset(),
    "TableFragment": fragment,
    "Scanner": lambda folder: table(folder).dataset().scanner(),
    "Dask's reader": reader,
    "NandarrayBackendEntrypoint": entrypoint,
    "xarray's array": lazy,
    "xarray's array of a view": lazy_part,
    "xarray's store": group_store,
    "xarray's store of a field": part_store,
    "xarray's file": manager,
    "RowDataset": rows,
    "Zarr's store": zarr_store,
    "Zarr's store of a file in place": zarr_objects,
    "File object of ranges": range_file,
    "Dask's plugin": lambda folder: nandarray.parts.NodePlugin([folder]),
    "Spark's source": spark,
    "Spark's reader": lambda folder: (made := spark(folder)).reader(made.schema()),
    "Spark's reader with filters": lambda folder: (made := spark(folder, pushdown="on")).reader(made.schema()),
    "Spark's writer": spark_writer,
    "Spark's writer in a store of parts": spark_writer_of_parts,
    "Report": lambda folder: modelled(folder).report(),
    # Other stores, and what runs beside one.
    "Submitted": lambda folder: modelled(folder)["x"].submit(),
    "Controller": lambda folder: filled(folder).nvme(),
    "Session": lambda folder: filled(folder).session(),
    "RemoteStore": remote,
    "Store in place": in_place,
    "Array in place": lambda folder: in_place(folder)["x"],
    "Array of a drive": lambda folder: remote(folder)["x"],
    "Store in shared memory": shared,
    "Array in shared memory": lambda folder: shared(folder)["x"],
}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run(SUBJECTS[sys.argv[1]], Path(sys.argv[2]), sys.argv[3:])
