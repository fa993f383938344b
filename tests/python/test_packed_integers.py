"""Arrays of packed integers read as they were written, whole and in parts, and are refused where they do not fit."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nandarray
from nandarray.errors import InvalidError

PACKED = ["bitpack", "varwidth"]


@given(
    dtype=st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", "M8[D]", "?"]),
    compression=st.sampled_from(PACKED),
    bits=st.integers(0, 64),
    seed=st.integers(0, 2**32 - 1),
)
def test_integers_come_back(dtype: str, compression: str, bits: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    shape, block = tuple(random.integers(1, 90, 2)), tuple(int(n) for n in random.integers(1, 50, 2))
    words = random.integers(0, 2**64 - 1, shape, dtype="u8", endpoint=True)
    words &= np.uint64(2**bits - 1)
    values = words % 2 == 0 if dtype == "?" else (words - np.uint64(2**bits // 3)).astype("i8").astype(dtype)
    with tempfile.TemporaryDirectory() as folder, nandarray.open(Path(folder) / "a.nand", "w", preset="tiny") as store:
        array = store.create("a", data=values, building_block=block, compression=compression)
        store.flush()
        i, j = int(random.integers(shape[0])), int(random.integers(shape[1]))
        assert array.compression == compression
        assert np.array_equal(array[...], values)
        assert np.array_equal(array[i:, : j + 1], values[i:, : j + 1])
        assert array[i, j] == values[i, j]
        array[i, j:] = values[0, 0]
        values[i, j:] = values[0, 0]
        assert np.array_equal(array[:, ::3], values[:, ::3])


@pytest.mark.parametrize("compression", PACKED)
def test_a_store_is_opened_again(compression: str, tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(-4, 5, (500, 700), dtype="i8")
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        array = store.create("a", data=abs(values), compression=compression, encryption_key=bytes(32))
        assert array.stat()["bytes_stored"] < (0.08 if compression == "bitpack" else 0.2) * values.nbytes
    with nandarray.open(tmp_path / "a.nand") as store:
        assert np.array_equal(store.open_array("a", encryption_key=bytes(32))[...], abs(values))


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "U3", [("a", "i4"), ("b", "i4")], "V4"])
def test_other_elements_are_refused(dtype: object, path: Path) -> None:
    with nandarray.open(path, "w") as store:
        with pytest.raises(InvalidError, match=re.escape("compression 'bitpack' packs integers, and ")):
            store.create("a", (3, 4), dtype, compression="bitpack")
        assert list(store) == []


def test_filters_and_levels_are_refused(path: Path) -> None:
    with nandarray.open(path, "w") as store:
        for text in ["bitpack+shuffle", "varwidth:3", "bitpack:"]:
            with pytest.raises(InvalidError, match=re.escape(text)):
                store.create("a", (3, 4), "i4", compression=text)
