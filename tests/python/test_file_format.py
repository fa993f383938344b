"""The page about the file format is right: a reader made from it alone reads what the engine wrote."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from second_reader import Image, crc32c

import nandarray


def test_crc_is_that_of_the_standard() -> None:
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, appendix B.4


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_store_reads_as_the_page_says(path: Path, *, checkpoint: bool) -> None:
    random = np.random.default_rng(3)
    expected = {}
    with nandarray.open(path, "w", preset="tiny") as store:
        for name, shape, dtype in [
            ("line", (5000,), "<i4"),
            ("run/plane", (70, 90), "<f8"),
            ("cube", (9, 17, 30), "u1"),
        ]:
            values = random.integers(0, 200, shape).astype(dtype)
            store.create(name, data=values)
            expected[name] = values
        sparse = store.create("sparse", (300, 4, 300), "<i2", fill_value=7)
        expected["sparse"] = np.full(sparse.shape, 7, "<i2")
        for _ in range(40):
            corner = [int(random.integers(0, n)) for n in sparse.shape]
            box = tuple(slice(c, c + int(random.integers(1, 60))) for c in corner)
            sparse[box] = expected["sparse"][box] = random.integers(0, 100)
            if random.random() < 0.3:
                store.flush()
        store["cube"].resize((11, 17, 20))
        expected["cube"] = np.concatenate([expected["cube"][:, :, :20], np.zeros((2, 17, 20), "u1")])
        store["line"].attrs["units"] = "m"
        store.rename("line", "renamed")
        expected["renamed"] = expected.pop("line")
        store.create("gone", data=np.ones(10))
        del store["gone"]
        if checkpoint:
            store.compact()
            store["renamed"][17] = expected["renamed"][17] = -5
    image = Image(path)
    assert sorted(space.name for space in image.spaces.values()) == sorted(expected)
    for name, values in expected.items():
        assert np.array_equal(image.array(name), values), name
    line = next(space for space in image.spaces.values() if space.name == "renamed")
    assert json.loads(line.attrs) == {"units": "m"}


@pytest.mark.parametrize("checkpoint", [False, True])
def test_snapshots_read_as_the_page_says(path: Path, *, checkpoint: bool) -> None:
    """Pages that are shared, moved, and had by snapshots alone; `compact` moves pages, and leaves an empty journal."""
    values = np.arange(9000, dtype="<i4")
    with nandarray.open(path, "w", preset="tiny", capacity=350 << 10) as store:
        store.create("line", data=values)
        store.create("other", data=np.ones((40, 50)))
        store.snapshot("one")
        store["line"][2000:4000] = -1
        store.snapshot("two")
        del store["other"]
        if checkpoint:
            store.compact()
        before = store.stat()["pages_moved"]
        random = np.random.default_rng(1)
        for turn in range(600):  # until reclaim moves pages
            start = random.integers(0, 8800)
            store["line"][start : start + 150] = turn
            if turn % 3 == 0:
                store.flush()
        assert store.stat()["pages_moved"] > before
        store.snapshot("three")
        store.delete_snapshot("three")
        last = store["line"][:]
    image = Image(path)
    assert image.superblock["version"] == 4
    assert list(image.snapshots) == ["one", "two"]
    now = np.where((np.arange(9000) >= 2000) & (np.arange(9000) < 4000), -1, values)
    assert np.array_equal(image.array("line", "two"), now)
    assert np.array_equal(image.array("line", "one"), values)
    assert np.array_equal(image.array("other", "one"), np.ones((40, 50)))
    assert np.array_equal(image.array("line"), last)
    assert [space.name for space in image.spaces.values()] == ["line"]


def test_the_file_preset_has_the_sizes_that_the_page_gives(path: Path) -> None:
    with nandarray.open(path, "w") as store:
        store["a"] = np.arange(100)
    image = Image(path)
    assert (image.pages, image.segment_bytes) == (1024, 4_227_584)
    assert image._segment(61) == ((2 + 244 + 2) << 20, (248 << 20) - 61 * 33_280)
    assert np.array_equal(image.array("a"), np.arange(100))


@pytest.mark.parametrize("compression", ["bitpack", "varwidth"])
def test_packed_integers_read_as_the_page_says(path: Path, compression: str) -> None:
    random = np.random.default_rng(4)
    expected = {
        "days": random.integers(8036, 10441, (60, 70), dtype="<i4"),
        "signed": random.integers(-5, 6, 5000, dtype="<i2"),
        "skewed": (1 << random.integers(0, 63, 900, dtype="<u8")) - 1,
        "noise": random.integers(0, 256, 9000, dtype="u1"),
    }
    with nandarray.open(path, "w", preset="tiny") as store:
        for name, values in expected.items():
            store.create(name, data=values, compression=compression)
    image = Image(path)
    for name, values in expected.items():
        assert np.array_equal(image.array(name), values), name
