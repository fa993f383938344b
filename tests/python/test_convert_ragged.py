"""Text, bytes and lists of variable length from HDF5, Zarr and NetCDF into ragged arrays, and back."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

import nandarray
from nandarray.errors import InvalidError, NandarrayError

pytestmark = [
    pytest.mark.filterwarnings("ignore:The data type .* does not have a Zarr V3 specification"),
    pytest.mark.filterwarnings("ignore:The codec .* is currently not part"),
]
RECORD = np.dtype([("a", "<i4"), ("b", "<f8")])


def objects(rows: list[Any]) -> Any:
    """Rows as an array of objects, whatever their lengths."""
    made = np.empty(len(rows), object)
    for number, row in enumerate(rows):
        made[number] = row
    return made


def plain(rows: Any) -> list[Any]:
    return [row.tolist() if isinstance(row, np.ndarray) else row for row in rows]


def model(seed: int) -> dict[str, list[Any]]:
    """Rows of each kind, none missing, of a seed."""
    random_ = random.Random(seed)
    count = random_.choice([0, 1, 50, 3000])
    lengths = [random_.choice([0, 1, 3, random_.randrange(50)]) for _ in range(count)]
    return {
        "text": ["".join(random_.choices("aé漢", k=n)) for n in lengths],
        "bytes": [random_.randbytes(n) for n in lengths],
        "lists": [np.array([random_.randrange(100) for _ in range(n)], ">i2") for n in lengths],
        "equal": [np.arange(3.0) + at for at in range(count)],
    }


@pytest.mark.parametrize("ending", ["h5", "zarr", "nc"])
@pytest.mark.parametrize("seed", range(4))
def test_rows_come_back_as_they_were(tmp_path: Path, store: nandarray.Store, ending: str, seed: int) -> None:
    rows = model(seed)
    dtypes: dict[str, Any] = {"text": str, "bytes": bytes, "lists": ">i2", "equal": "f8"}
    for name, given in rows.items():
        store.create_ragged(f"g/{name}", given, dtypes[name], attrs={"unit": "K"})
        store.create_ragged(f"missing/{name}", [*given, None], dtypes[name])
    store.create_ragged("g/nul", ["a\0", "\0"])
    more = ["nul", "points"]
    if ending != "nc":  # which has no records
        store.create_ragged("g/records", [np.zeros(2, RECORD), np.ones(1, RECORD)])
        more.append("records")
    store.create_ragged("g/points", [[[1, 2]], [[3, 4], [5, 6]]])
    told: list[tuple[str, int, int]] = []
    nandarray.export(store, tmp_path / f"a.{ending}", progress=lambda *given: told.append(given))
    names = nandarray.import_(tmp_path / f"a.{ending}", store, "back", progress=lambda *given: told.append(given))
    assert all(done <= total for _, done, total in told)
    for name, given in rows.items():
        back = store[f"back/g/{name}"]
        assert isinstance(back, nandarray.Ragged), name
        assert plain(back[:]) == plain(given), name
        assert plain(store[f"back/missing/{name}"][:]) == [*plain(given), None], name
        # Zarr 3 and NetCDF have no other byte order, and h5py does not read it in lists.
        assert back.values.dtype == store[f"g/{name}"].values.dtype.newbyteorder("=")
        assert back.attrs["unit"] == "K"
        assert back.append([None]) == len(given) + 1
    assert store["back/missing/text"].append(["x", None]) == len(rows["text"]) + 3
    assert store["back/missing/text"][-3:].tolist() == [None, "x", None]
    for name in more:
        assert plain(store[f"back/g/{name}"][:]) == plain(store[f"g/{name}"][:])
    assert "back/g/lists" in names or "back/g/lists/values" in names


def test_the_formats_own_types_are_used(tmp_path: Path, store: nandarray.Store) -> None:
    store["text"], store["bytes"] = objects(["é", ""]), objects([b"\0", b""])
    store["lists"] = objects([[1, 2], []])
    nandarray.export(store, tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["text"].asstr()[...].tolist() == ["é", ""]
        assert plain(file["bytes"][...]) == [[0], []]
        assert plain(file["lists"][...]) == [[1, 2], []]
    nandarray.export(store, tmp_path / "a.zarr")
    root: Any = zarr.open_group(tmp_path / "a.zarr", mode="r")
    assert root["text"][...].tolist() == ["é", ""]
    assert root["bytes"][...].tolist() == [b"\0", b""]
    assert root["lists/offsets"][...].tolist() == [0, 2, 2]
    assert root["lists"].attrs["_RAGGED"] == "list"
    nandarray.export(store["text"], tmp_path / "one.zarr")
    assert nandarray.import_(tmp_path / "one.zarr", store, "one") == ("one/offsets", "one/values")
    assert store["one"][:].tolist() == ["é", ""]
    with pytest.raises(InvalidError, match="npy holds one array"):
        nandarray.export(store["text"], tmp_path / "one.npy")


@pytest.mark.parametrize("compression", [None, "source", "zstd"])
def test_what_others_wrote_arrives(tmp_path: Path, store: nandarray.Store, compression: str | None) -> None:
    long, key = "a" * 20_000, bytes(range(32))
    lists = [np.arange(n % 7, dtype="<f4") for n in range(2500)]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("long", data=[long, "b"], dtype=h5py.string_dtype())
        file.create_dataset("latin", data=[b"a\0"[:1], b"b"], dtype=h5py.string_dtype("ascii"))
        made = file.create_dataset("lists", (9000,), h5py.vlen_dtype("<f4"), chunks=(100,), compression="gzip")
        made[3000:5500] = objects(lists)
        made.dims[0].label = "event"
        flat = file.create_dataset("records", (2,), h5py.vlen_dtype(RECORD))
        flat[1] = np.ones(3, RECORD)
        file.create_dataset("square", (2, 2), h5py.vlen_dtype("i4"))
        file.create_dataset("swapped", (2,), h5py.vlen_dtype(">i4"))
        file.create_dataset("nested", (2,), h5py.vlen_dtype(h5py.vlen_dtype("i4")))
        file.create_dataset("endless", (2**40,), h5py.vlen_dtype("i4"), chunks=(100,))
    with pytest.warns(UserWarning, match="left out") as told:
        nandarray.import_(
            tmp_path / "a.h5", store, "h", compression=compression, encryption_key=key, unsupported="skip"
        )
    said = "\n".join(str(one.message) for one in told)
    assert "square holds elements of variable length in 2 dimensions" in said
    assert "swapped holds lists of >i4" in said
    assert "nested holds variable-length elements" in said
    assert f"endless holds {2**40} rows of variable length, more than" in said
    group = store["h"]
    assert group.get("long", encryption_key=key)[:].tolist() == [long, "b"]
    assert group.open_array("latin", encryption_key=key)[:].tolist() == ["a", "b"]
    found = group.get("lists", encryption_key=key)
    assert plain(found[:]) == [*[[]] * 3000, *plain(lists), *[[]] * 3500]
    assert found.values.dtype == np.dtype("<f4")
    assert found.attrs["_ARRAY_DIMENSIONS"] == ["event"]
    assert plain(group.get("records", encryption_key=key)[:]) == [[], [(1, 1.0)] * 3]
    root: Any = zarr.create_group(tmp_path / "a.zarr")
    filled = root.create_array("filled", shape=(5,), chunks=(2,), dtype=str, fill_value="none\0")
    filled[2:4] = np.array(["x", "y"], object)
    root.create_array("bytes", shape=(2,), chunks=(1,), dtype="variable_length_bytes")[...] = objects([b"\xff", b""])
    nandarray.import_(tmp_path / "a.zarr", store, "z")
    assert store["z/filled"][:].tolist() == ["none\0", "none\0", "x", "y", "none\0"]
    assert store["z/bytes"][:].tolist() == [b"\xff", b""]


def test_a_source_that_lies_leaves_nothing(tmp_path: Path, store: nandarray.Store) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        bad = file.create_dataset("text", (3,), h5py.string_dtype())
        bad[:2] = ["fine", "also"]
        bad[2] = b"\xff\xfe"
        bad.attrs["_RAGGED"] = "text"
    with pytest.raises(NandarrayError):
        nandarray.import_(tmp_path / "a.h5", store)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["numbers"] = np.arange(3)
        file["numbers"].attrs["_RAGGED"] = "text"
        file["g/x"] = np.arange(3)
        file["g"].attrs["_RAGGED"] = "text"
    nandarray.import_(tmp_path / "b.h5", store, "b")
    assert store["b/numbers"][:].tolist() == [0, 1, 2]
    assert store["b/g/x"][:].tolist() == [0, 1, 2]
    with pytest.raises(NandarrayError, match="has no array 'offsets'"):
        store["b/g"]
    assert "text" not in store
