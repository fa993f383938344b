"""The format of stores of parts stays: a store that an early program wrote is read by a small reader, and by this one.

``golden_parts_v1.zip`` was written by ``python tests/python/test_parts_format.py``. It is never written anew: a format
that changes gets a number, and a file beside it. The reader follows docs/reference/parts.md and shares no code with the
package; elements are read by the second reader of files (second_reader.py).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from second_reader import Image

import nandarray
from nandarray import parts

GOLDEN = Path(__file__).with_name("golden_parts_v1.zip")
#: Arrays that the second reader of files does not read: one is compressed, one has records.
OURS = ("packed", "rec")
RECORD = np.dtype([("id", "<u2"), ("v", "<f4")])


def changes(store: Any) -> None:
    """Make the history of the golden store: eight versions, of which the first and the third have expired."""
    plane = store.create("plane", (20, 30), "<i4", shards=(8, 16), building_block=(4, 8), fill_value=-1)
    plane[:9, 5:20] = np.arange(135).reshape(9, 15)
    plane.attrs["unit"] = "Jy"
    store["g/line"] = np.arange(7, dtype="<f8")
    store["g"].attrs["title"] = "a group"
    store["gone"] = [1]
    store.flush()
    store.tag("first")
    store["gone"][0] = 2
    store.flush()
    with store.transaction("grown along both axes") as tx:
        tx["plane"].resize((26, 35))
        tx["plane"][25, 30:] = 7
    store.tag("grown")
    with store.transaction("by a worker") as tx, tx.fork().writer() as writer:
        tx.merge([writer.write("plane", np.s_[2:4, 0:6], [[9], [8]])])
        writer.close()
    store.rename("g/line", "g/wire")
    del store["gone"]
    store.flush()
    store["rec"] = np.array([(1, 0.5), (2, -2)], RECORD)
    store["one"] = np.array(5, "<i8")
    store.create("packed", (40,), "<i4", compression="lz4", building_block=40)[:] = np.arange(40)
    store["plane"].resize((18, 35))
    store.flush()
    store["plane"][8:16, 0:16] = -1
    store.flush()
    store.expire_versions(keep=5, older_than=0)
    store.gc(older_than=0)


def expected() -> dict[int, dict[str, np.ndarray[Any, Any]]]:
    """The arrays at each version, by hand."""
    plane = np.full((20, 30), -1, "<i4")
    plane[:9, 5:20] = np.arange(135).reshape(9, 15)
    line, gone = np.arange(7, dtype="<f8"), np.array([1])
    found: dict[int, dict[str, Any]] = {2: {"plane": plane, "g/line": line, "gone": gone}}
    grown = np.full((26, 35), -1, "<i4")
    grown[:20, :30], grown[25, 30:] = plane, 7
    found[4] = {"plane": grown, "g/line": line, "gone": gone + 1}
    worked = grown.copy()
    worked[2:4, :6] = [[9], [8]]
    found[5] = {**found[4], "plane": worked}
    found[6] = {"plane": worked, "g/wire": line}
    rest = {"g/wire": line, "rec": np.array([(1, 0.5), (2, -2)], RECORD), "one": np.array(5, "<i8")}
    found[7] = {"plane": worked[:18], **rest, "packed": np.arange(40, dtype="<i4")}
    last = worked[:18].copy()
    last[8:16, :16] = -1
    found[8] = {**found[7], "plane": last}
    return found


class Reader:
    """A reader of stores of parts by the page about the format; of arrays that are not compressed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        said = json.loads((root / "nandarray.json").read_text())
        assert (said["format"], said["version"], len(said["uuid"])) == ("parts", 1, 32)
        self.versions = {}
        for path in (root / "manifests").iterdir():
            manifest = json.loads(path.read_text())
            assert path.name == f"{2**64 - 1 - manifest['version']:020d}.json"
            checksum = manifest.pop("checksum")
            text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
            assert hashlib.sha256(text.encode()).hexdigest() == checksum
            assert manifest["format"] == 1
            self.versions[manifest["version"]] = manifest
        self.tags = {one.stem: json.loads(one.read_text())["version"] for one in (root / "tags").iterdir()}

    def rows(self, array: dict[str, Any]) -> Any:
        """The shards that were written, each with its array in a part, and the part's file."""
        ends = [*(first for first, _, _ in array["leaves"][1:]), 2**63]
        for (first, count, sha), end in zip(array["leaves"], ends, strict=True):
            path = self.root / "leaves" / f"{sha}.npy"
            assert hashlib.sha256(path.read_bytes()).hexdigest() == sha
            table = np.load(path)
            assert table.dtype.names == ("shard", "array", "part", "bytes", "head")
            assert (len(table), table["shard"][0]) == (count, first)
            assert (table["shard"] < end).all()
            for row in table:
                part = self.root / "parts" / f"{row['part'].tobytes().hex()}.nand"
                with part.open("rb") as file:
                    head = hashlib.sha256(file.read(8192)).digest()[:8]
                assert (row["bytes"], row["head"]) == (part.stat().st_size, int.from_bytes(head, "little"))
                yield int(row["shard"]), f"s/{row['array']}", part

    def array(self, version: int, name: str) -> np.ndarray[Any, Any]:
        """The elements, as bytes of the array's element."""
        told = self.versions[version]["arrays"][name]
        item = np.dtype(f"V{told['itemsize']}")
        made = np.empty(told["shape"], item)
        made[...] = np.void(bytes.fromhex(told["fill"]))
        grid = [-(-length // step) for length, step in zip(told["shape"], told["shard"], strict=True)]
        places = list(itertools.product(*map(range, grid)))
        for shard, inside, part in self.rows(told):
            elements = Image(part).array(inside)
            elements = elements if told["shape"] else elements.reshape(())
            low = [at * step for at, step in zip(places[shard], told["shard"], strict=True)]
            box = tuple(slice(a, a + n) for a, n in zip(low, elements.shape, strict=True))
            assert made[box].shape == elements.shape
            made[box] = np.ascontiguousarray(elements).view(item).reshape(elements.shape)
        return made


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    with zipfile.ZipFile(GOLDEN) as packed:
        for one in packed.infolist():
            path = tmp_path / one.filename
            if one.is_dir():
                path.mkdir()
                continue
            with path.open("wb") as file:  # parts are sparse
                data = packed.read(one)
                for low in range(0, len(data), 1 << 16):
                    if (block := data[low : low + (1 << 16)]).strip(b"\0"):
                        file.seek(low)
                        file.write(block)
                file.truncate(len(data))
    return tmp_path / "golden.nand"


def test_the_golden_store_reads_as_the_page_says(golden: Path) -> None:
    reader = Reader(golden)
    assert reader.tags == {"first": 2, "grown": 4}
    assert sorted(reader.versions) == sorted(expected())
    commits = {number: one["commit"] for number, one in reader.versions.items()}
    for number, arrays in expected().items():
        one = reader.versions[number]
        assert one["parent"] == number - 1
        assert one["ancestors"][0] == one["parent_commit"]
        for back, commit in enumerate(one["ancestors"]):
            assert commits.get(number - 1 - back, commit) == commit
        assert sorted(name for name in one["arrays"] if "." not in name) == sorted(arrays)
        for name, elements in arrays.items():
            if name not in OURS:
                assert reader.array(number, name).tobytes() == elements.tobytes(), f"version {number}, {name}"
    last = reader.versions[8]["arrays"]
    assert json.loads(last["plane"]["attrs"]) == {"unit": "Jy"}
    assert (last["plane"]["dtype"], last["plane"]["fill"], last["packed"]["compression"][:3]) == (
        "<i4",
        "ff" * 4,
        "lz4",
    )


def test_this_program_reads_and_continues_the_golden_store(golden: Path) -> None:
    with nandarray.open(golden, "r+") as store:
        assert store.check()["ok"]
        assert store.tags() == {"first": 2, "grown": 4}
        assert [one["version"] for one in store.versions()] == sorted(expected())
        for number, arrays in expected().items():
            with store.at(version=number) as old:
                assert sorted(old.array_names()) == sorted(arrays)
                for name, elements in arrays.items():
                    assert old[name].dtype == elements.dtype
                    np.testing.assert_array_equal(old[name][...], elements, f"version {number}, {name}")
        assert (store["g"].attrs["title"], store["plane"].attrs["unit"]) == ("a group", "Jy")
        store["plane"][0, 0] = 3
        store.flush()
        assert (store.version, store["plane"][0, 0], store.check()["ok"]) == (9, 3, True)
    assert Reader(golden).array(9, "plane")[0, 0].tobytes() == b"\3\0\0\0"


def test_a_new_store_reads_as_the_page_says(tmp_path: Path) -> None:
    with parts.create(tmp_path / "new.nand") as store:
        changes(store)
    reader = Reader(tmp_path / "new.nand")
    for number, arrays in expected().items():
        for name, elements in arrays.items():
            if name not in OURS:
                assert reader.array(number, name).tobytes() == elements.tobytes(), f"version {number}, {name}"


if __name__ == "__main__":
    import tempfile

    with (
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(GOLDEN, "x", zipfile.ZIP_DEFLATED, compresslevel=9) as out,
    ):
        with parts.create(Path(folder) / "golden.nand") as made:
            changes(made)
        for path in sorted(Path(folder).rglob("*")):
            out.write(path, path.relative_to(folder))
