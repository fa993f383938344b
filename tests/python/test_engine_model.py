"""The native module by itself against NumPy: commands of a space with buffers of any strides, and transactions.

The package above gives the native module only what it has checked; here it is called with everything that its stub
allows, and with some that it does not. Seeds are in the messages.
"""

from __future__ import annotations

import gc
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nandarray import _nandarray, errors
from nandarray._nandarray import Store, Transaction
from nandarray.errors import BadIndexError, ClosedError, InvalidError, VolumeMismatchError

_Array = np.ndarray[Any, Any]
CODECS = [None, None, "lz4+shuffle", "zstd:1"]


def opened(path: Path, mode: str = "w", **options: Any) -> Store:
    small = {"page_bytes": 512, "channels": 2, "banks": 1, "pages_per_block": 16} if mode == "w" else None
    return Store.open(str(path), mode, geometry=small, threads=2, **options)


def odd_buffer(rng: random.Random, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Array:
    """Memory for this shape whose axes lie in any order, run backwards, or have gaps; filled with a mark."""
    gaps = [rng.randint(1, 3) for _ in shape]
    order = rng.sample(range(len(shape)), len(shape))
    whole = np.full([shape[axis] * gaps[axis] for axis in order], 0x55, dtype)
    view = whole[tuple(slice(None, None, rng.choice([1, -1]) * gaps[axis]) for axis in order)]
    return view.transpose([order.index(axis) for axis in range(len(shape))])


class Play:
    """One space of a native store, and the NumPy array that it must equal."""

    def __init__(self, path: Path, seed: int) -> None:
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.store = opened(path, write_buffer=self.rng.choice([0, 2000, 1 << 20]))
        self.dtype = np.dtype(self.rng.choice(["u1", "<u2", "<i4", "<f8", "V3", "<c16"]))
        shape = tuple(self.rng.randint(1, 9) for _ in range(self.rng.randint(1, 4)))
        self.fill = self.values(())
        self.model = np.full(shape, self.fill, self.dtype)
        self.space = self.store.create(
            "a", shape, self.dtype.itemsize, "|V", compression=self.rng.choice(CODECS), fill=self.fill.tobytes(),
            building_block=[self.rng.randint(1, 5) for _ in shape] if self.rng.random() < 0.6 else None,
        )  # fmt: skip

    def values(self, shape: tuple[int, ...]) -> _Array:
        size = int(np.prod(shape, dtype=int)) * self.dtype.itemsize
        return self.numbers.integers(1, 250, size, "u1").view(self.dtype).reshape(shape)

    def seen(self) -> tuple[_Array, list[int] | None]:
        """The array, or now and then a view of it under another shape."""
        if self.rng.random() < 0.6 or not self.model.size:
            return self.model, None
        rest, sides = self.model.size, []
        while rest > 1:
            sides.append(self.rng.choice([n for n in range(2, rest + 1) if rest % n == 0]))
            rest //= sides[-1]
        shape = [*sides, 1] if not sides or self.rng.random() < 0.3 else sides
        return self.model.reshape(shape), shape

    def box(self, shape: tuple[int, ...]) -> tuple[list[int], list[int], tuple[slice, ...]]:
        start = [self.rng.randrange(n) if n else 0 for n in shape]
        step = [self.rng.randint(1, 3) for _ in shape]
        stop = [self.rng.randint(low, n) for low, n in zip(start, shape, strict=True)]
        return start, step, tuple(map(slice, start, stop, step))

    def read_or_write_box(self) -> None:
        seen, view = self.seen()
        start, step, key = self.box(seen.shape)
        if self.rng.random() < 0.5:
            out = odd_buffer(self.rng, seen[key].shape, self.dtype)
            self.space.read(out, start, step, view)
            assert out.tobytes() == seen[key].tobytes()
        else:
            source = odd_buffer(self.rng, seen[key].shape, self.dtype)
            if self.rng.random() < 0.3:
                source = np.broadcast_to(self.values(()), source.shape)
            else:
                source[...] = self.values(source.shape)
            self.space.write(source, start, step, view)
            seen[key] = source

    def read_or_write_boxes(self) -> None:
        seen, view = self.seen()
        if not seen.size:
            return
        start, step, key = self.box(seen.shape)
        pointed = [self.rng.random() < 0.5 for _ in seen.shape]
        count = [
            1 if point else len(range(*one.indices(n))) for point, one, n in zip(pointed, key, seen.shape, strict=True)
        ]
        starts = np.array(
            [[self.rng.randrange(n) if point else low for point, low, n in zip(pointed, start, seen.shape, strict=True)]
             for _ in range(self.rng.randint(0, 5))], "u8").reshape(-1, seen.ndim)  # fmt: skip
        boxes = [
            tuple(slice(int(s), int(s) + d * c, d) for s, d, c in zip(one, step, count, strict=True)) for one in starts
        ]
        buffer = odd_buffer(self.rng, (len(boxes), *count), self.dtype)
        if self.rng.random() < 0.5:
            self.space.read_boxes(buffer, starts, step, view)
            for got, one in zip(buffer, boxes, strict=True):
                assert got.tobytes() == seen[one].tobytes()
        else:
            buffer[...] = self.values(buffer.shape)
            self.space.write_boxes(buffer, starts, step, view)
            for got, one in zip(buffer, boxes, strict=True):
                seen[one] = got

    def read_or_write_outer(self) -> None:
        axes: list[Any] = []
        index = []
        for n in self.model.shape:
            if n and self.rng.random() < 0.5:
                chosen = np.array([self.rng.randrange(n) for _ in range(self.rng.randint(0, 4))], "u8")
                axes.append(chosen)
                index.append(chosen.astype(int))
            else:
                start, step, key = self.box((n,))
                axes.append((start[0], step[0], len(range(*key[0].indices(n)))))
                index.append(np.arange(n)[key[0]])
        key = np.ix_(*index)
        buffer = odd_buffer(self.rng, self.model[key].shape, self.dtype)
        if self.rng.random() < 0.5:
            self.space.read_outer(buffer, axes)
            assert buffer.tobytes() == self.model[key].tobytes()
        else:
            buffer[...] = self.values(buffer.shape)
            self.space.write_outer(buffer, axes)
            self.model[key] = buffer

    def read_or_write_points(self) -> None:
        if not self.model.size:
            return
        points = self.numbers.integers(0, self.model.shape, (self.rng.randint(0, 9), self.model.ndim)).astype("u8")
        key = tuple(points.T.astype(int))
        buffer = odd_buffer(self.rng, (len(points),), self.dtype)
        if self.rng.random() < 0.5:
            self.space.read_points(buffer, points)
            assert buffer.tobytes() == self.model[key].tobytes()
        else:
            buffer[...] = self.values(buffer.shape)
            self.space.write_points(buffer, points)
            for point, value in zip(points.tolist(), buffer, strict=True):
                self.model[tuple(point)] = value

    def reshape(self) -> None:
        axis, more = self.rng.randrange(self.model.ndim), self.rng.randint(0, 3)
        if self.rng.random() < 0.5:
            new = odd_buffer(self.rng, (*self.model.shape[:axis], more, *self.model.shape[axis + 1 :]), self.dtype)
            new[...] = self.values(new.shape)
            self.model = np.concatenate([self.model, new], axis)
            assert self.space.append(new, axis) == self.model.shape
        else:
            shape = tuple(self.rng.choice([n, self.rng.randint(0, 9)]) for n in self.model.shape)
            grown = np.full(shape, self.fill, self.dtype)
            both = tuple(slice(min(pair)) for pair in zip(shape, self.model.shape, strict=True))
            grown[both] = self.model[both]
            self.model = grown
            self.space.resize(shape)

    def clear(self) -> None:
        start, _, key = self.box(self.model.shape)
        key = tuple(slice(one.start, one.stop) for one in key)
        self.space.deallocate(start, list(self.model[key].shape))
        self.model[key] = self.fill

    def around(self) -> None:
        self.rng.choice(
            [self.store.flush, self.store.compact, lambda: self.store.check()["ok"] or pytest.fail("unsound")]
        )()

    def step(self) -> str:
        calls = [self.read_or_write_box, self.read_or_write_boxes, self.read_or_write_outer, self.read_or_write_points]
        call = self.rng.choice([*calls, *calls, self.reshape, self.clear, self.around])
        call()
        return call.__name__


@pytest.mark.parametrize("seed", range(24))
def test_commands_of_a_space_with_any_buffer_are_numpys(seed: int, tmp_path: Path) -> None:
    play, log = Play(tmp_path / "d.nand", seed), []
    for _ in range(60):
        try:
            log.append(play.step())
        except Exception as error:
            raise AssertionError(f"seed {seed}, after {log}") from error
        whole = np.empty(play.model.shape, play.dtype)
        play.space.read(whole, [0] * whole.ndim)
        assert whole.tobytes() == play.model.tobytes(), f"seed {seed}, after {log}"
        assert play.space.shape == play.model.shape
    assert play.store.check()["ok"]


class Ledger:
    """A store with several arrays, open transactions over some of them, and what each of both must hold."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.seed, self.rng = path, seed, random.Random(seed)
        self.store = opened(path)
        self.model: dict[str, _Array] = {}
        self.attrs: dict[str, str] = {}
        self.open: list[tuple[Transaction, dict[str, _Array]]] = []
        for name in "abcdef":
            shape = (self.rng.randint(0, 6), self.rng.randint(1, 40))
            self.store.create(name, shape, 4, "<i4", compression=self.rng.choice(CODECS), building_block=(2, 16))
            self.model[name], self.attrs[name] = np.zeros(shape, "i4"), "{}"

    def begin(self) -> None:
        held = {name for _, drafts in self.open for name in drafts}
        names = [name for name in self.model if name not in held and self.rng.random() < 0.5]
        drafts = {}
        for name in names:
            old = self.model[name]
            new = np.zeros((old.shape[0] + self.rng.randint(0, 4), old.shape[1] + self.rng.choice([0, 0, 5])), "i4")
            new[: old.shape[0], : old.shape[1]] = old
            drafts[name] = new
        spaces = [(self.store.open_space(name), new.shape) for name, new in drafts.items()]
        self.open.append((Transaction(self.store, spaces), drafts))

    def stage(self) -> None:
        """Write disjoint bands of all arrays of a transaction, from several threads."""
        transaction, drafts = self.rng.choice(self.open)
        work = []
        for name, new in drafts.items():
            cuts = sorted({0, new.shape[0], *(self.rng.randint(0, new.shape[0]) for _ in range(2))})
            for low, high in zip(cuts, cuts[1:], strict=False):
                left = self.rng.randrange(new.shape[1])
                values = np.full((high - low, new.shape[1] - left), self.rng.randint(0, 1 << 30), "i4")
                new[low:high, left:] = values
                work.append((self.store.open_space(name), values[:, ::-1], [low, left]))
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(transaction.write, *one) for one in work]:
                done.result()

    def end(self) -> None:
        transaction, drafts = self.open.pop(self.rng.randrange(len(self.open)))
        how = self.rng.randrange(4)
        if how == 0:
            transaction.abort()
            with pytest.raises(ClosedError, match="is over"):
                transaction.apply()
        elif how == 1:
            del transaction  # given up with its last reference
            gc.collect()
        else:
            names = sorted(drafts)
            gone = [names.pop()] if len(names) > 1 and self.rng.random() < 0.2 else []
            moved = [(names[0], f"{names[0]}+")] if names and self.rng.random() < 0.4 else []
            texts = [(moved[0][1] if moved else name, f'{{"n":{self.rng.randint(0, 9)}}}') for name in names[:1]]
            transaction.apply(delete=gone, rename=moved, attrs=texts)
            self.model.update(drafts)
            for name in gone:
                del self.model[name], self.attrs[name]
            for old, new in moved:
                self.model[new], self.attrs[new] = self.model.pop(old), self.attrs.pop(old)
            self.attrs.update(texts)

    def step(self) -> None:
        calls = [self.begin] if len(self.open) < 3 else []
        calls += [self.stage, self.stage, self.end] if self.open else []
        self.rng.choice([*calls, self.store.flush])()

    def compare(self, store: Store) -> None:
        assert store.names() == sorted(self.model)
        for name, wanted in self.model.items():
            space = store.open_space(name)
            found = np.full(space.shape, -1, "i4")
            space.read(found, [0, 0])
            np.testing.assert_array_equal(found, wanted, name)
            assert space.attrs == self.attrs[name]


@pytest.mark.parametrize("seed", range(8))
def test_transactions_are_seen_whole_or_not_at_all(seed: int, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "d.nand", seed)
    for step in range(50):
        try:
            ledger.step()
            ledger.compare(ledger.store)
        except Exception as error:
            raise AssertionError(f"seed {seed}, step {step}") from error
    ledger.store.flush()
    # A reader beside transactions that are open sees none of them; nor does who opens the closed store.
    ledger.compare(Store.open(str(ledger.path), "r"))
    still = ledger.open
    ledger.store.close()
    for transaction, _ in still:
        with pytest.raises(ClosedError):
            transaction.apply()
        transaction.abort()
    again = opened(ledger.path, "r+")
    ledger.compare(again)
    assert again.check()["ok"]


def test_a_transaction_takes_arrays_of_its_own_store_and_its_own_list(tmp_path: Path) -> None:
    one, two = opened(tmp_path / "1.nand"), opened(tmp_path / "2.nand")
    spaces = {store: store.create("a", (4, 5), 2, "<u2") for store in (one, two)}
    other = one.create("b", (4, 5), 2, "<u2")
    with pytest.raises(InvalidError, match="a transaction takes arrays of its own store"):
        Transaction(one, [(spaces[two], (4, 5))])
    begun = Transaction(one, [(spaces[one], (6, 5))])
    data = np.ones((4, 5), "u2")
    refused: list[tuple[Any, _Array, list[int], type[Exception], str]] = [
        (spaces[two], data, [0, 0], InvalidError, "a transaction takes arrays of its own store"),
        (other, data, [0, 0], InvalidError, r"space 2 is none of transaction 1"),
        (spaces[one], data, [3, 0], BadIndexError, "index 6 is out of bounds for axis 0 with size 6"),
        (spaces[one], data, [0], InvalidError, "has 1 dimensions; 2 are needed"),
        (spaces[one], data[0], [0, 0], InvalidError, "has 2 dimensions; 2 are needed"),
        (spaces[one], data.astype("u4"), [0, 0], InvalidError, "elements of 4 bytes; the array has 2"),
    ]
    for space, source, start, kind, said in refused:
        with pytest.raises(kind, match=said):
            begun.write(space, source, start)
    begun.write(spaces[one], data, [2, 0])
    begun.apply()
    found = np.empty((6, 5), "u2")
    spaces[one].read(found, [0, 0])
    assert found.tolist() == [[0] * 5] * 2 + [[1] * 5] * 4
    for call in (begun.apply, lambda: begun.write(spaces[one], data, [0, 0])):
        with pytest.raises(ClosedError, match="transaction 1 is over"):
            call()


def test_buffers_that_do_not_fit_a_space_are_refused_before_they_are_touched(tmp_path: Path) -> None:
    space = opened(tmp_path / "d.nand").create("a", (4, 6), 2, "<u2")
    frozen = np.zeros((4, 6), "u2")
    frozen.flags.writeable = False
    good = np.zeros((4, 6), "u2")
    starts = np.zeros((2, 2), "u8")
    rows: list[tuple[Any, type[Exception], str]] = [
        (lambda: space.read(frozen, [0, 0]), InvalidError, "the buffer is read-only"),
        (lambda: space.read(np.broadcast_to(good[:1], (4, 6)), [0, 0]), InvalidError, "the buffer is read-only"),
        (lambda: space.read(good.view("u1"), [0, 0]), InvalidError, "elements of 1 bytes; the array has 2"),
        (lambda: space.read(good[None], [0, 0]), InvalidError, "has 2 dimensions; 2 are needed"),
        (lambda: space.read(good, [1, 0]), BadIndexError, "index 4 is out of bounds for axis 0 with size 4"),
        (lambda: space.read(good, [0, 0], [1, 0]), InvalidError, "step 0 on axis 1"),
        (lambda: space.read(good, [0, 0], None, [4, 7]), VolumeMismatchError, r"a view of shape \(4, 7\)"),
        (lambda: space.read(good, [-1, 0]), OverflowError, "negative"),
        (lambda: space.read(good, [2**64, 0]), OverflowError, "too large|too big"),
        (lambda: space.read([[0] * 6] * 4, [0, 0]), TypeError, "list"),  # type: ignore[arg-type]
        (lambda: space.read_points(good[0], starts), InvalidError, r"2 points need a buffer of shape \(2,\), not"),
        (lambda: space.read_points(good[0, :2], starts.astype("i8")), TypeError, "coords"),
        (lambda: space.read_boxes(good, starts, [1, 1]), InvalidError, "2 boxes of 2 dimensions; the buffer has shape"),
        (lambda: space.write_boxes(np.ones((2, 1, 6), "u2"), starts, [1]), InvalidError, "no boxes of 2 dimensions"),
        (lambda: space.read_outer(good, [(0, 1, 4), (0, 1, 5)]), InvalidError, "the selection has shape"),
        (lambda: space.read_outer(good, [(0, 1, 4), (1, 1, 6)]), BadIndexError, "index 6 is out of bounds for axis 1"),
        (lambda: space.read_outer(good, [(0, 1, 4)]), InvalidError, "the selection has shape"),
        (lambda: space.append(np.ones((1, 5), "u2"), 0), InvalidError, r"shape \(1, 5\) cannot be appended to shape"),
        (lambda: space.append(np.ones((1, 6), "u2"), 2), InvalidError, "along axis 2"),
        (lambda: space.deallocate([0, 5], [1, 2]), BadIndexError, "index 6 is out of bounds for axis 1 with size 6"),
        (lambda: space.resize([4]), InvalidError, r"shape \(4,\) has 1 dimensions; the array has shape \(4, 6\)"),
        (lambda: space.resize([4, -1]), InvalidError, "-1"),
    ]  # fmt: skip
    for call, kind, said in rows:
        with pytest.raises(kind, match=said):
            call()
    assert not good.any()
    assert space.shape == (4, 6)
    assert space.stat()["blocks_allocated"] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"preset": "disc"}, "disc"),
        ({"geometry": {"planes": 3}}, 'geometry has no "planes"; it has page_bytes, channels, banks'),
        ({"geometry": {"page_bytes": 1000}}, "1000"),
        ({"geometry": {"channels": 0}}, "0"),
        ({"capacity": 1}, "a capacity of 1 bytes is too small"),
        ({"placement": "best"}, 'unknown placement policy "best"; there are "nds" and "log"'),
        ({"gc_policy": "best"}, 'unknown GC policy "best"'),
        ({"verify": "twice"}, 'unknown verify "twice"; there are "once", "always" and "never"'),
        ({"io": "mmap"}, 'unknown io "mmap"; there are "map" and "read"'),
        ({"threads": 0}, "threads is 0; at least 1 is needed"),
        ({"threads": 1025}, "threads must be from 1 to 1024, not 1025"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_options_that_no_store_has_are_refused_with_their_value(
    options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidError) as raised:
        Store.open(str(tmp_path / "d.nand"), "x", **options)
    assert said in str(raised.value)
    # Nor do they leave a file in the way of the next call.
    Store.open(str(tmp_path / "d.nand"), "x").close()


def test_every_kind_of_the_engine_is_an_exception_and_the_other_way_round() -> None:
    kinds = _nandarray.error_kinds()
    assert len(set(kinds)) == len(kinds)
    assert set(kinds) <= set(errors.BY_KIND)
    for kind in kinds:
        assert issubclass(errors.BY_KIND[kind], errors.NandarrayError), kind
