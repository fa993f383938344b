"""Rows as samples: numbers, batches, pickles, and PyTorch's own loader where it is installed."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import nandarray
from nandarray.errors import InvalidError
from nandarray.interop.rows import RowDataset


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with nandarray.open(tmp_path / "a.nand", mode="w") as store:
        store["x"] = np.arange(600, dtype="<f4").reshape(100, 6)
        store["y"] = np.arange(100) % 7
        store["scalar"] = np.float64(1)
    return tmp_path / "a.nand"


def test_samples_and_batches(path: Path) -> None:
    with nandarray.open(path) as store:
        x, y = store["x"][...], store["y"][...]
        both, one = RowDataset(store["x"], store["y"]), RowDataset(store["x"], transform=lambda rows: rows * 2)
        assert len(both) == len(one) == 100
        for index in (0, 99, -1, np.int64(5)):
            features, label = both[index]
            np.testing.assert_array_equal(features, x[index])
            assert label == y[index]
            np.testing.assert_array_equal(one[index], 2 * x[index])
        numbers = np.random.default_rng(3).integers(-100, 100, 33)
        features, labels = both[numbers]
        np.testing.assert_array_equal(features, x[numbers])
        np.testing.assert_array_equal(labels, y[numbers])
        samples = both.__getitems__(numbers.tolist())
        assert len(samples) == 33
        np.testing.assert_array_equal(np.stack([sample[0] for sample in samples]), x[numbers])
        for wrong in (100, -101, [3, 100]):
            with pytest.raises(IndexError):
                both[wrong]
        # A view, too.
        view = RowDataset(store["x"].view((200, 3)))
        np.testing.assert_array_equal(view[[199, 0]], x.reshape(200, 3)[[199, 0]])


def test_a_pickled_dataset_reads_the_same(path: Path) -> None:
    with nandarray.open(path) as store:
        dataset = RowDataset(store["x"], store["y"])
        again = pickle.loads(pickle.dumps(dataset))
        np.testing.assert_array_equal(again[[5, 1]][0], dataset[[5, 1]][0])


def test_gathered_rows_go_through_dlpack_without_a_copy(path: Path) -> None:
    with nandarray.open(path) as store:
        rows = store["x"].gather([3, 1])
        other = np.from_dlpack(rows)
        assert np.shares_memory(rows, other)
        np.testing.assert_array_equal(other, np.arange(600).reshape(100, 6)[[3, 1]])


def test_arrays_that_do_not_fit(path: Path) -> None:
    with nandarray.open(path) as store:
        for arrays in ((), (store["scalar"],), (store["x"], store["y"][:50])):
            with pytest.raises(InvalidError):
                RowDataset(*arrays)


def test_the_loader_of_torch(path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
    data = torch.utils.data
    with nandarray.open(path) as store:
        dataset = RowDataset(store["x"], store["y"])
        x = torch.arange(600, dtype=torch.float32).reshape(100, 6)
        found = torch.cat([features for features, _ in data.DataLoader(dataset, batch_size=32)])
        assert torch.equal(found, x)
        batches = data.BatchSampler(data.RandomSampler(dataset), 32, drop_last=False)
        rows = torch.cat([features for features, _ in data.DataLoader(dataset, sampler=batches, batch_size=None)])
        assert torch.equal(rows[rows[:, 0].argsort()], x)
        for workers in (2,):
            loader = data.DataLoader(dataset, batch_size=25, num_workers=workers, multiprocessing_context="spawn")
            assert torch.equal(torch.cat([features for features, _ in loader]), x)
