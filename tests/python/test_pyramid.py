"""Pyramids of images: every element of every level against a plain loop, and metadata as OME-NGFF 0.5 has them."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray.errors import ExistsError, InvalidError
from nandarray.interop import pyramid
from nandarray.interop.pyramid import write_pyramid


def coarser(image: np.ndarray[Any, Any], spatial: tuple[int, ...], method: str) -> np.ndarray[Any, Any]:
    """One element after the other."""
    steps = [2 if axis in spatial else 1 for axis in range(image.ndim)]
    shape = [-(-n // step) for n, step in zip(image.shape, steps, strict=True)]
    found = np.zeros(shape, image.dtype)
    for at in itertools.product(*map(range, shape)):
        part = image[tuple(slice(i * step, i * step + step) for i, step in zip(at, steps, strict=True))]
        if method != "mean":
            found[at] = part.ravel()[0]
        elif image.dtype.kind in "biu":
            found[at] = round(Fraction(sum(map(int, part.ravel())), part.size))
        else:
            found[at] = part.astype("f8").mean()
    return found


@pytest.mark.parametrize("method", ["mean", "nearest"])
@pytest.mark.parametrize(
    ("axes", "image"),
    [
        ("yx", np.random.default_rng(3).integers(0, 1000, (37, 50)).astype("u2")),
        ("czyx", np.random.default_rng(3).random((2, 7, 12, 9), "f4")),
        ("zyx", np.random.default_rng(3).integers(2**64 - 9, 2**64, (5, 4, 3), "u8", endpoint=False)),
        ("yx", np.random.default_rng(3).integers(-(2**63), 2**63, (5, 7), "i8", endpoint=False)),
        ("tyx", np.random.default_rng(3).integers(-1000, 1000, (3, 1, 20))),
    ],
)
def test_levels_equal_a_loop_whatever_the_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, axes: str, image: Any, method: Any
) -> None:
    monkeypatch.setattr(pyramid, "_PIECE_BYTES", 4096)
    spatial = tuple(i for i, one in enumerate(axes) if one not in "tc")
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        levels = write_pyramid(store.create_group("i"), image, axes, levels=4, method=method)
        expected = image
        for level in levels:
            np.testing.assert_allclose(level[...], expected, rtol=1e-6)
            assert level.dtype == image.dtype
            expected = coarser(level[...], spatial, method)
        again = write_pyramid(store.create_group("again"), levels[0], axes, method=method)
        np.testing.assert_array_equal(again[0][...], image)


def test_the_description_is_that_of_ome_ngff(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        image = np.zeros((2, 600, 300), "u1")
        levels = write_pyramid(
            store.create_group("brain"),
            image,
            "cyx",
            scale=(1, 0.5, 0.25),
            units=(None, "micrometer", "micrometer"),
            name="b",
        )
        assert [level.shape for level in levels] == [(2, 600, 300), (2, 300, 150), (2, 150, 75)]
        ome = store["brain"].attrs["ome"]
        assert ome["version"] == "0.5"
        (one,) = ome["multiscales"]
        assert one["axes"] == [
            {"name": "c", "type": "channel"},
            {"name": "y", "type": "space", "unit": "micrometer"},
            {"name": "x", "type": "space", "unit": "micrometer"},
        ]
        assert one["datasets"][2]["coordinateTransformations"] == [
            {"type": "scale", "scale": [1, 2, 1]},
            {"type": "translation", "translation": [0, 0.75, 0.375]},
        ]
        nandarray.export(store["brain"], tmp_path / "brain.zarr")
        root = zarr.open_group(tmp_path / "brain.zarr", mode="r")
        assert root.attrs["ome"] == ome
        assert root["1"].metadata.dimension_names == ("c", "y", "x")
        with pytest.raises(InvalidError, match="ome"):
            write_pyramid(store["brain"], image, "cyx")


def test_bad_input_leaves_nothing(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        image = np.zeros((4, 6), "u1")
        for given in (
            {"axes": "y"},
            {"axes": "yy"},
            {"axes": "cx"},
            {"axes": "yx", "scale": (1, 0)},
            {"axes": "yx", "levels": 0},
            {"axes": "yx", "levels": 2.5},
            {"axes": "yx", "method": "max"},
            {"axes": "yx", "units": ("micrometer",)},
        ):
            with pytest.raises(InvalidError):
                write_pyramid(store, image, **given)
        with pytest.raises(InvalidError):
            write_pyramid(store, image.astype("c8"), "yx")
        assert list(store) == []
        store["1"] = 3
        with pytest.raises(ExistsError):
            write_pyramid(store, image, "yx", levels=2)
        assert list(store) == ["1"]
