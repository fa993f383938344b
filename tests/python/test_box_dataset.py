"""Boxes as samples: places, epochs, batches of threads, pickles, doors, and PyTorch's own loader where it is there."""

from __future__ import annotations

import importlib
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray.errors import ClosedError, InvalidError
from nandarray.interop.boxes import BoxDataset


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with nandarray.open(tmp_path / "a.nand", mode="w") as store:
        store["image"] = np.arange(23 * 17 * 9 * 2, dtype="<f4").reshape(23, 17, 9, 2)
        store["label"] = (np.arange(23 * 17 * 9) % 5).astype("u1").reshape(23, 17, 9)
    return tmp_path / "a.nand"


def slices(dataset: BoxDataset, number: int) -> tuple[slice, ...]:
    return tuple(slice(at, at + n) for at, n in zip(dataset.place(number), dataset.box, strict=True))


def test_boxes_of_a_grid_hold_every_element_and_equal_slices(path: Path) -> None:
    with nandarray.open(path) as store:
        image, label = store["image"][...], store["label"][...]
        for step in (None, (5, 8, 4), 4):
            step3 = (4,) * 3 if step == 4 else step
            dataset = BoxDataset(store["image"], store["label"], box=(8, 8, 4), step=step3)
            seen = np.zeros(label.shape, bool)
            for number in range(len(dataset)):
                key = slices(dataset, number)
                seen[key] = True
                images, labels = dataset[number]
                np.testing.assert_array_equal(images, image[key])
                np.testing.assert_array_equal(labels, label[key])
            assert seen.all()
            np.testing.assert_array_equal(dataset[-1][1], labels)


def test_boxes_reach_the_end_of_the_longest_array(path: Path) -> None:
    with nandarray.open(path, "r+") as store:
        long = store.create("long", (2**64 - 1,), "u1", fill_value=7)
        dataset = BoxDataset(long, box=8, step=1 << 62)
        assert [dataset.place(i)[0] for i in range(len(dataset))] == [0, 1 << 62, 2 << 62, 3 << 62, 2**64 - 9]
        np.testing.assert_array_equal(dataset[-1], [7] * 8)
        crops = BoxDataset(long, box=8, count=100, seed=1)
        assert max(crops.place(i)[0] for i in range(100)) > 1 << 63
        np.testing.assert_array_equal(next(crops.batches(50)), np.full((50, 8), 7))


def test_random_boxes_are_the_seeds_alone_and_reach_every_place(path: Path) -> None:
    with nandarray.open(path) as store:
        make = lambda seed: BoxDataset(store["label"], box=(20, 15, 8), count=10_000, seed=seed)  # noqa: E731
        one, same, other = make(3), make(3), make(4)
        places = [one.place(i) for i in range(10_000)]
        assert places == [same.place(i) for i in reversed(range(10_000))][::-1]
        assert places != [other.place(i) for i in range(10_000)]
        counts = np.zeros((4, 3, 2), int)
        np.add.at(counts, tuple(np.array(places).T), 1)
        assert counts.min() > 300, "24 places, each of about 417 draws"
        one.epoch = 1
        assert places != [one.place(i) for i in range(10_000)]
        one.epoch = 0
        assert places == [one.place(i) for i in range(10_000)]


@pytest.mark.parametrize("workers", [0, 1, 5])
def test_batches_are_the_same_whatever_the_threads(path: Path, workers: int) -> None:
    with nandarray.open(path) as store:
        dataset = BoxDataset(store["image"], store["label"], box=(5, 5, 5), count=103, seed=1)
        label = store["label"][...]
        plain = list(dataset.batches(10, workers=workers))
        assert [len(labels) for _, labels in plain] == [10] * 10 + [3]
        for number in range(103):
            np.testing.assert_array_equal(plain[number // 10][1][number % 10], label[slices(dataset, number)])
        dataset.epoch = 2
        mixed = [labels.sum() for _, labels in dataset.batches(1, shuffle=True, workers=workers)]
        again = [labels.sum() for _, labels in dataset.batches(1, shuffle=True, workers=0)]
        assert mixed == again
        assert sorted(mixed) == sorted(labels.sum() for _, labels in dataset.batches(1))
        assert len(list(dataset.batches(10, drop_last=True))) == 10
        sums = BoxDataset(store["label"], box=(5, 5, 5), transform=lambda part: int(part.sum()))
        assert [one for batch in sums.batches(4, workers=workers) for one in batch] == [
            int(label[slices(sums, i)].sum()) for i in range(len(sums))
        ]
        shared = [
            np.shares_memory(a, b)
            for batch in dataset.batches(50, to=lambda x: (x, np.from_dlpack(x)))
            for a, b in batch
        ]
        assert all(shared)


def test_threads_end_with_their_iterator_and_an_error_comes_at_its_place(path: Path) -> None:
    def readers() -> int:
        return sum(thread.name.startswith("nandarray-boxes") for thread in threading.enumerate())

    with nandarray.open(path) as store:
        dataset = BoxDataset(store["label"], box=4, count=1000)
        batches = dataset.batches(2, workers=3)
        next(batches)
        assert readers() > 0
        batches.close()  # type: ignore[attr-defined]
        assert readers() == 0
        batches = dataset.batches(2)
        next(batches)
    with pytest.raises(ClosedError):
        list(batches)
    assert readers() == 0


def test_views_fields_drives_and_pickles(path: Path) -> None:
    with nandarray.open(path, "r+") as store:
        store["record"] = np.array([(i, i / 2) for i in range(60)], "i4,f8").reshape(6, 10)
        view = BoxDataset(store["label"].view((23, 153)), box=(3, 50))
        np.testing.assert_array_equal(view[7], store["label"][...].reshape(23, 153)[slices(view, 7)])
        field = BoxDataset(store["record"]["f1"], box=(2, 3))
        np.testing.assert_array_equal(field[4], store["record"][...]["f1"][slices(field, 4)])
        plain = BoxDataset(np.arange(12).reshape(3, 4), box=2)
        np.testing.assert_array_equal(plain[1], [[4, 5, 6, 7], [8, 9, 10, 11]])
        with nandarray.serve(store) as server, nandarray.open(server.url) as remote:
            near, far = (BoxDataset(s["image"], box=(7, 7, 7), count=40, seed=9) for s in (store, remote))
            for one, other in zip(near.batches(8), far.batches(8, workers=4), strict=True):
                np.testing.assert_array_equal(one, other)
    with nandarray.open(path) as store:
        dataset = BoxDataset(store["image"], store["label"], box=(7, 7, 7), count=40, seed=9)
        again = pickle.loads(pickle.dumps(dataset))
        np.testing.assert_array_equal(again[11][0], dataset[11][0])


def test_ragged_arrays_have_no_boxes(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "rows.nand", "w") as store:
        rows = store.create_ragged("rows", ["a"])
        with pytest.raises(InvalidError, match="not rows of different lengths as the ragged array 'rows' has"):
            BoxDataset(rows, box=1)


def test_bad_input(path: Path) -> None:
    with nandarray.open(path) as store:
        image, label = store["image"], store["label"]
        for arrays, given in (
            ((), {"box": 2}),
            ((image,), {"box": (2, 2, 2, 2, 2)}),
            ((image,), {"box": (24, 2)}),
            ((image, label[:5]), {"box": 2}),
            ((image,), {"box": 0}),
            ((image,), {"box": ()}),
            ((image,), {"box": "ab"}),
            ((image,), {"box": 2.5}),
            ((image,), {"box": 2, "count": -1}),
            ((image,), {"box": 2, "count": 5, "step": 2}),
            ((image,), {"box": (2, 2), "step": 2}),
            ((image,), {"box": 2, "seed": -1}),
        ):
            with pytest.raises(InvalidError):
                BoxDataset(*arrays, **given)
        with pytest.raises(InvalidError, match="must be arrays of a store, or others with a shape, not 'label'"):
            BoxDataset("label", box=4)
        dataset = BoxDataset(label, box=4, count=5)
        for wrong in (5, -6):
            with pytest.raises(IndexError):
                dataset[wrong]
        with pytest.raises(InvalidError):
            dataset["a"]  # type: ignore[index]
        for size, workers in ((0, 1), (1, -1), (1, 65)):
            with pytest.raises(InvalidError):
                dataset.batches(size, workers=workers)
        assert list(BoxDataset(label, box=4, count=0).batches(3)) == []


def test_batches_of_small_and_of_large_boxes_whatever_lies_behind_them(path: Path) -> None:
    """One command has several boxes up to a limit; all of it, and shuffles over many draws, against NumPy's slices."""
    chance = np.random.default_rng(5)
    with nandarray.open(path, "r+") as store:
        store["flag"] = chance.random((40, 50)) < 0.5
        store["wide"] = chance.integers(0, 1 << 40, (30, 40, 700, 5))  # a box of 8 x 8 has 1.8 MB
        store["when"] = chance.integers(0, 99, (40, 30, 2)).astype("M8[D]")
        store["empty"] = np.zeros((9, 9, 0))
        for name, box, size in (("flag", (3, 4), 500), ("wide", (8, 8), 6), ("when", 7, 300), ("empty", 3, 4)):
            whole = store[name][...]
            dataset = BoxDataset(store[name], box=box, count=9000 if name == "flag" else 17, seed=8)
            order = np.random.default_rng([8, 0]).permutation(len(dataset))
            for number, batch in enumerate(dataset.batches(size, shuffle=True, workers=number_of(size))):
                part = order[number * size : (number + 1) * size]
                np.testing.assert_array_equal(batch, np.stack([whole[slices(dataset, i)] for i in part]))
                assert batch.dtype == whole.dtype
                assert batch.flags.c_contiguous
                assert batch.flags.writeable


def number_of(size: int) -> int:
    return size % 5


def test_memory_of_batches_is_used_again_only_when_no_array_has_it(path: Path) -> None:
    with nandarray.open(path, "r+") as store:
        store["large"] = np.arange(100 * 64 * 64, dtype="i8").reshape(100, 64, 64)
        dataset = BoxDataset(store["large"], box=(1, 64, 64))
        places = set()
        for number, batch in enumerate(dataset.batches(50)):
            assert batch.ctypes.data % 64 == 0
            places.add(batch.ctypes.data)
            np.testing.assert_array_equal(batch[:, 0, 0, 0], np.arange(50) * 4096 + number * 50 * 4096)
        # Parts of batches live on: each has its own values at the end.
        kept = [batch[3, 0, 1] if i % 2 else memoryview(batch) for i, batch in enumerate(dataset.batches(5))]
        for number, part in enumerate(kept):
            first = number * 5 * 4096
            expected = first + 3 * 4096 + 64 if number % 2 else first
            assert np.asarray(part).flat[0] == expected
        used = {batch.ctypes.data for _ in range(5) for batch in dataset.batches(50, workers=0)}
        assert len(used) < 10
        memory = BoxDataset(store["large"], box=(1, 64, 64)).batches(50, workers=1)
        batch = next(memory)
        memory.close()  # type: ignore[attr-defined]
        del memory
        np.testing.assert_array_equal(batch, store["large"][:50][:, None])


@pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:This process .* is multi-threaded")
def test_the_loader_of_torch(path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
    with nandarray.open(path) as store:
        dataset = BoxDataset(store["image"], store["label"], box=(5, 5, 5), count=33)
        expected = [torch.from_numpy(dataset[i][0]) for i in range(33)]
        for workers, start in ((0, None), (2, "fork"), (4, "fork"), (2, "spawn")):
            given = {"num_workers": workers, "multiprocessing_context": start}
            images = [image for image, _ in torch.utils.data.DataLoader(dataset, batch_size=8, **given)]
            assert [len(image) for image in images] == [8, 8, 8, 8, 1]
            assert torch.equal(torch.cat(images), torch.stack(expected)), (workers, start)
        loader = torch.utils.data.DataLoader(dataset, batch_size=8, num_workers=2, shuffle=True)
        assert sum(len(labels) for _, labels in loader) == 33
        for batch, _ in dataset.batches(8, to=torch.from_dlpack):
            assert batch.dtype == torch.float32
    with nandarray.open(path, "r+") as store:
        dataset = BoxDataset(store["image"], box=(5, 5, 5), count=33)
        loader = torch.utils.data.DataLoader(dataset, batch_size=8, num_workers=2, multiprocessing_context="fork")
        with pytest.raises(ClosedError, match="open it here, for reading"):
            list(loader)


def test_tensors_of_torch_and_arrays_of_jax_share_the_memory_of_a_batch(path: Path) -> None:
    makers = {}
    for name, module in (("torch", "torch"), ("jax", "jax.dlpack")):
        try:
            makers[name] = importlib.import_module(module).from_dlpack
        except ImportError:
            continue
    if not makers:
        pytest.skip("neither PyTorch (make torch) nor JAX is installed")
    with nandarray.open(path, "r+") as store:
        store["large"] = np.arange(60 * 64 * 64, dtype="f4").reshape(60, 64, 64)
        for maker in makers.values():
            dataset, seen = BoxDataset(store["large"], box=(1, 64, 64)), []

            def shared(memory: np.ndarray, maker: Any = maker, seen: list[Any] = seen) -> Any:
                made = maker(memory)
                seen.append(np.shares_memory(np.from_dlpack(made), memory))
                return made

            kept = list(dataset.batches(20, to=shared))
            assert seen == [True] * 3
            for number, batch in enumerate(kept):
                np.testing.assert_array_equal(np.asarray(batch)[:, 0], store["large"][number * 20 : number * 20 + 20])
