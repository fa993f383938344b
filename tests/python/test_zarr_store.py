"""A store through Zarr's own reader and writer, against NumPy and against the store's own view of the same elements."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray.errors import InvalidError

zarr = pytest.importorskip("zarr", reason="zarr is not installed")
store_module = pytest.importorskip("nandarray.interop.zarr_store", reason="zarr 3 is needed")
ZarrStore = store_module.ZarrStore

DTYPES = ("bool", "i1", "<u8", ">i4", "f2", "<f8", "c16", "S5", "<U3", "M8[ms]", "m8[s]")
CODECS: dict[str, dict[str, Any]] = {
    "plain": {"compressors": None},
    "default": {},
    "sharded": {"shards": (14, 10)},
    "blosc": {"compressors": zarr.codecs.BloscCodec(cname="lz4")},
}


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    return rng.integers(0, 100, shape).astype("M8[ms]" if dtype.kind == "M" else "i8").astype(dtype)


@pytest.mark.filterwarnings("ignore:The data type")  # Zarr's own, of types without a specification
@pytest.mark.parametrize("codec", CODECS)
def test_what_zarr_writes_zarr_and_the_store_read(tmp_path: Path, codec: str) -> None:
    rng = np.random.default_rng(11)
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        root = zarr.open_group(ZarrStore(store))
        for number, name in enumerate(DTYPES):
            dtype = np.dtype(name)
            shape = (int(rng.integers(15, 40)), int(rng.integers(11, 30)))
            array = root.create_array(
                f"g{number % 3}/a{number}", shape=shape, dtype=dtype, chunks=(7, 5), **CODECS[codec]
            )
            truth = np.full(shape, array.fill_value, dtype)  # NaT for times
            for _ in range(6):
                low = [int(rng.integers(0, n)) for n in shape]
                key = tuple(slice(at, int(rng.integers(at + 1, n + 1))) for at, n in zip(low, shape, strict=True))
                part = random(rng, truth[key].shape, dtype)
                truth[key] = part
                array[key] = part
            own = store[f"g{number % 3}/a{number}"]
            again = zarr.open_group(ZarrStore(store), mode="r")[f"g{number % 3}/a{number}"]
            for found in (own[...], array[...], again[...], again[3:9, ::2].repeat(1)):
                expected = truth if found.shape == truth.shape else truth[3:9, ::2].repeat(1)
                np.testing.assert_array_equal(found, expected)
            assert again.dtype.newbyteorder("=") == array.dtype.newbyteorder("=")  # Zarr keeps the kind alone
            assert again.chunks == array.chunks == (7, 5)
            assert again.metadata.codecs == array.metadata.codecs


def test_what_the_store_has_zarr_reads_and_changes(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        x = np.arange(601 * 503, dtype="<f4").reshape(601, 503)
        store.create("g/x", data=x, attrs={"unit": "K", "_ARRAY_DIMENSIONS": ["y", "x"]}, building_block=(100, 64))
        store["zero"] = np.float64(4.5)
        store["empty"] = np.zeros((0, 3))
        store["g"].attrs["by"] = "me"
        root = zarr.open_group(ZarrStore(store))
        array = root["g/x"]
        assert root["g"].attrs.asdict() == {"by": "me"}
        assert array.attrs.asdict() == {"unit": "K"}
        assert array.metadata.dimension_names == ("y", "x")
        assert array.chunks == (100, 64)
        np.testing.assert_array_equal(array[...], x)
        assert root["zero"][...] == 4.5
        assert root["empty"][...].shape == (0, 3)
        array[99:305, 60:70] = -1
        x[99:305, 60:70] = -1
        array.attrs["unit"] = "C"
        array.resize((650, 200))
        grown = np.zeros((650, 200), "f4")
        grown[:601] = x[:, :200]
        np.testing.assert_array_equal(store["g/x"][...], grown)
        assert store["g/x"].attrs == {"unit": "C", "_ARRAY_DIMENSIONS": ["y", "x"]}
        store["g/x"].append(np.ones((3, 200), "f4"))
        assert zarr.open_group(ZarrStore(store))["g/x"].shape == (653, 200)
        assert {name for name, _ in root.members(max_depth=None)} == {"empty", "g", "g/x", "zero"}
        assert zarr.open_array(ZarrStore(store["g"]), path="x", mode="r")[0, 1] == 1
        del root["g"]
        assert set(store) == {"empty", "zero"}


def test_an_array_is_replaced_and_a_store_cleared(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        root = zarr.open_group(ZarrStore(store))
        root.create_array("a", shape=(4, 4), dtype="i4", chunks=(2, 2), fill_value=7)
        assert (store["a"][...] == 7).all()
        again = root.create_array("a", shape=(6,), dtype="f8", chunks=(3,), overwrite=True)
        again[:] = 2
        assert store["a"][...].tolist() == [2.0] * 6
        zarr.open_group(ZarrStore(store), mode="w", attributes={"k": [1, None]})
        assert list(store) == []
        assert dict(store.attrs) == {"k": [1, None]}


def test_keys_are_those_that_list(tmp_path: Path) -> None:
    async def every(found: Any) -> list[str]:
        return [one async for one in found]

    with nandarray.open(tmp_path / "a.nand", "w") as store:
        store.create("c/c/x", (5, 3), "i4", building_block=(2, 2))
        store["s"] = np.int32(3)
        under = ZarrStore(store)
        run = zarr.core.sync.sync
        keys = set(run(every(under.list())))
        chunks = {f"c/c/x/c/{i}/{j}" for i, j in itertools.product(range(3), range(2))}
        assert keys == {"zarr.json", "c/zarr.json", "c/c/zarr.json", "c/c/x/zarr.json", "s/zarr.json", "s/c"} | chunks
        for key in keys:
            assert run(under.exists(key))
            assert run(under.get(key)) is not None
        for key in (
            "c/c/x/c/3/0",
            "c/c/x/c/0",
            "c/c/x/c/0/-1",
            "c/c/x/c/00/0",
            "nothing/zarr.json",
            "s/c/0",
            ".zarray",
            "",
        ):
            assert not run(under.exists(key))
            assert run(under.get(key)) is None
        for path in ("", "c", "c/c", "c/c/x", "c/c/x/c", "c/c/x/c/1", "nothing"):
            inside = {
                k.removeprefix(f"{path}/" if path else "").partition("/")[0]
                for k in keys
                if k.startswith(f"{path}/" if path else "")
            }
            assert set(run(every(under.list_dir(path)))) == inside
            assert set(run(every(under.list_prefix(path)))) == {key for key in keys if key.startswith(path)}
        run(under.delete("c/c/x/c/0/0"))
        run(under.delete("nothing"))


def test_over_a_drive_and_read_only(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        store["x"] = np.arange(5000).reshape(50, 100)
        with nandarray.serve(store) as server, nandarray.open(server.url, "r+") as remote:
            root = zarr.open_group(ZarrStore(remote))
            np.testing.assert_array_equal(root["x"][3:40:3, ::7], store["x"][3:40:3, ::7])
            made = root.create_array("y", shape=(20,), dtype="i4", chunks=(8,))
            made[5:] = np.arange(15)
            assert store["y"][:].tolist() == [0] * 5 + list(range(15))
        kept = zarr.open_group(ZarrStore(store, read_only=True), mode="r")
        with pytest.raises(ValueError, match="read-only"):
            kept["x"][0] = 1
    with nandarray.open(tmp_path / "a.nand") as store:
        assert ZarrStore(store).read_only
        assert ZarrStore(store) == ZarrStore(store)


def test_xarray_reads_and_writes_it(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    data = xarray.Dataset(
        {"t": (("time", "x"), np.arange(12.0).reshape(4, 3), {"units": "K"})},
        coords={"time": np.arange("2020-01-01", "2020-01-05", dtype="M8[D]").astype("M8[ns]"), "x": [1, 2, 4]},
        attrs={"title": "a test"},
    )
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        data.to_zarr(ZarrStore(store), zarr_format=3, consolidated=False)
        xarray.testing.assert_identical(xarray.open_zarr(ZarrStore(store), consolidated=False).load(), data)
        assert store["t"][2, 1] == 7
        data.isel(time=slice(0, 2)).to_zarr(ZarrStore(store), append_dim="time", consolidated=False)
        assert store["t"].shape == (6, 3)


def test_what_a_store_cannot_keep(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        root = zarr.open_group(ZarrStore(store))
        with pytest.raises(InvalidError, match="variable length"):
            root.create_array("text", shape=(3,), dtype=str)
        with pytest.raises(InvalidError, match="chunk_key_encoding"):
            root.create_array("a", shape=(3,), dtype="i4", chunk_key_encoding={"name": "v2", "separator": "."})
        with pytest.raises(InvalidError, match="zarr_format|must be"):
            zarr.create_array(ZarrStore(store), name="old", shape=(3,), dtype="i4", zarr_format=2)
        with pytest.raises(InvalidError, match="root"):
            zarr.create_array(ZarrStore(store), shape=(3,), dtype="i4")
        assert list(store) == []
        store["record"] = np.zeros(3, "i4,f8")
        store["point"] = np.zeros(3)
        assert zarr.open_group(ZarrStore(store))["point"].shape == (3,)


@pytest.mark.parametrize(
    "text", [b"", b"[1]", b"{", b'{"zarr_format": 3, "node_type": "array"}', b'{"zarr_format": 3}']
)
def test_metadata_that_is_none(tmp_path: Path, text: bytes) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        value = zarr.core.buffer.cpu.Buffer.from_bytes(text)
        with pytest.raises(InvalidError):
            zarr.core.sync.sync(ZarrStore(store).set("a/zarr.json", value))
        assert list(store) == []
