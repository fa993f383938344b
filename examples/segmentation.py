"""Segmentation of a volume: random patches of a scan and its labels train a small model, which then labels all of it.

The scan is made up: bright balls in noise. The model is logistic regression on means around a voxel, in NumPy;
with PyTorch, ``batches(8, to=torch.from_dlpack)`` makes tensors. Run ``python examples/segmentation.py [store]``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import nandarray
from nandarray.interop.boxes import BoxDataset


def features(patches: np.ndarray) -> np.ndarray:
    """Return for each voxel its value, the means around it at two scales, and 1."""
    found = [patches.astype("f4") / 100 - 1]
    for reach in (1, 2):
        found.append(found[0])
        for axis in (1, 2, 3):
            found[-1] = sum(np.roll(found[-1], by, axis) for by in range(-reach, reach + 1)) / (2 * reach + 1)
    return np.stack([*found, np.ones_like(found[0])], axis=-1)


def main(path: Path) -> None:
    """Store a scan with labels, train on patches of it, write the model's labels, compare."""
    chance = np.random.default_rng(0)
    label, at = np.zeros((96, 96, 96), "u1"), np.indices((96, 96, 96))
    for *place, radius in chance.integers([0, 0, 0, 6], [96, 96, 96, 16], (40, 4)):
        label |= sum((a - p) ** 2 for a, p in zip(at, place, strict=True)) < radius**2
    with nandarray.open(path, "w") as store:
        # Building blocks of half a patch's side: a patch at a random place reads little beside it.
        scan = chance.normal(100 + 60 * label, 60)
        store.create("scan", data=scan.astype("i2"), building_block=(16, 16, 16))
        store.create("label", data=label, building_block=(16, 16, 16))
        patches, weights = BoxDataset(store["scan"], store["label"], box=(32, 32, 32), count=64, seed=1), np.zeros(4)
        for epoch in range(4):
            patches.epoch = epoch  # other places, the same each time that this runs
            for scans, labels in patches.batches(8):
                inputs = features(scans)
                error = 1 / (1 + np.exp(-inputs @ weights)) - labels
                weights -= 6 * np.tensordot(error, inputs, 4) / error.size
            print(f"epoch {epoch}: mean error {np.abs(error).mean():.3f}")
        found = store.create("found", label.shape, "u1", building_block=(16, 16, 16))
        grid = BoxDataset(store["scan"], box=(32, 32, 32))  # without a count: all of the scan, box by box
        for number, part in enumerate(grid.batches(1)):
            z, y, x = grid.place(number)
            found[z : z + 32, y : y + 32, x : x + 32] = (features(part) @ weights)[0] > 0
        right = found[...] == label
        print(f"right: {right.mean():.2f} of all voxels, {right[label > 0].mean():.2f} of those in balls")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "data.nand")
