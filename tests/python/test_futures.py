"""Promise: what is submitted ends later, in modelled time or in a thread, and gives what calls give."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from pathlib import Path

import numpy as np
import pytest

import nandarray
from nandarray.errors import BusyError, CancelledError, InvalidError, ProgramFailedError


def modelled(rows: int = 1024) -> tuple[nandarray.Store, nandarray.Array, np.ndarray]:
    store = nandarray.open(device="mqsim-ideal", mode="w")
    values = np.arange(rows * 2048, dtype="u4").reshape(rows, 2048)
    array = store.create("a", values.shape, "u4", building_block=(1, 2048))
    array[...] = values
    return store, array, values


def places(n: int) -> list[int]:
    return [i * 37 % 1024 for i in range(n)]


@pytest.mark.parametrize("depth", [1, 32, 256])
def test_so_many_in_flight_take_what_a_batch_takes(depth: int) -> None:
    store, array, values = modelled()
    began = store.clock.now
    in_flight: deque[tuple[int, nandarray.Future]] = deque()
    for i in places(512):
        in_flight.append((i, array.submit(i)))
        if len(in_flight) == depth:
            next(nandarray.as_completed([future for _, future in in_flight]))
            for _ in range(len(in_flight)):
                place, future = in_flight.popleft()
                if future.done():
                    assert np.array_equal(future.result(), values[place])
                else:
                    in_flight.append((place, future))
    for place, future in in_flight:
        assert np.array_equal(future.result(), values[place])
    took = store.clock.now - began
    store.close()

    store, array, _ = modelled()
    began = store.clock.now
    with store.clock.batch(queue_depth=depth):
        for i in places(512):
            array[i]
    batch = store.clock.now - began
    store.close()
    assert took == pytest.approx(batch, rel=0.01)


def test_tasks_of_an_event_loop_are_in_flight_together() -> None:
    store, array, values = modelled()

    async def worker(mine: list[int]) -> int:
        return sum([int((await array.read_async(i))[0]) for i in mine])

    async def all_of_them(workers: int) -> int:
        parts = [places(256)[k::workers] for k in range(workers)]
        return sum(await asyncio.gather(*(worker(part) for part in parts)))

    took = {}
    for workers in (1, 16):
        began = store.clock.now
        assert asyncio.run(all_of_them(workers)) == int(values[places(256), 0].sum())
        took[workers] = store.clock.now - began
    assert took[1] == pytest.approx(256 * 102.4e-6, rel=0.01)
    assert took[16] < took[1] / 10
    store.close()


@pytest.mark.parametrize(
    "key", [3, (slice(2, 9), slice(None, None, -3)), (slice(None), [5, 1, 5]), ([1, 7], [2, 2]), (4, 5)]
)
@pytest.mark.parametrize("where", ["modelled", "file"])
def test_every_selection_can_be_submitted(key: object, where: str, tmp_path: Path) -> None:
    device = {"device": "mqsim-ideal"} if where == "modelled" else {}
    with nandarray.open(tmp_path / "a.nand", mode="w", **device) as store:
        values = np.arange(20 * 30).reshape(20, 30)
        store["a"] = values
        got = store["a"].submit(key).result()
        np.testing.assert_array_equal(got, values[key])
        assert np.isscalar(got) == np.isscalar(values[key])
        out = np.zeros_like(values[key])
        if out.ndim:
            assert store["a"].submit(key, out=out).result() is out
            np.testing.assert_array_equal(out, values[key])
        store["a"].submit_write(key, values[key] + 1000).result()
        values[key] += 1000
        np.testing.assert_array_equal(store["a"][...], values)
        sub = store["a"].view((600,)).submit((3,), (7,))
        np.testing.assert_array_equal(sub.result(), values.reshape(600)[21:28])
        assert store.submit_flush().result() is None


def test_submitted_commands_keep_the_order_that_matters() -> None:
    store, array, values = modelled(64)
    before = array.submit(5)
    write = array.submit_write(5, 9)
    behind = array.submit((5, slice(0, 3)))
    flush = store.submit_flush()
    assert not any(future.done() for future in (before, write, behind, flush))
    assert list(behind.result()) == [9, 9, 9]
    assert np.array_equal(before.result(), values[5])
    assert flush.result() is None
    assert write.exception() is None
    store.close()


def test_what_goes_wrong_is_raised_by_the_result() -> None:
    store, array, _ = modelled(64)
    first = array.submit_write(0, 1)
    second = array.submit_write(0, 2)
    third = array.submit(0)
    assert not first.cancel(), "it has begun"
    assert second.cancel()
    with pytest.raises(CancelledError):
        second.result()
    assert int(third.result()[0]) == 1
    with pytest.raises(IndexError):
        array.submit(64)
    late = array.submit(3)
    array.resize((2, 2048))
    assert late.done(), "a resize waits for the reads before it"
    assert late.exception() is None, "a resize waits for the reads before it"
    other, _, _ = modelled(8)
    with pytest.raises(InvalidError):
        list(nandarray.as_completed([array.submit(0), other["a"].submit(0)]))
    other.close()
    kept = array.submit(1)
    store.close()
    assert int(kept.result()[0]) == 2048, "closing lets commands in flight end"


def test_a_future_that_nobody_keeps_leaves_its_memory_alone() -> None:
    store, array, _ = modelled(64)
    for i in range(64):
        array.submit(i)
        array.submit_write(i, np.full(2048, i, "u4"))
    assert np.array_equal(array[..., 0], np.arange(64))
    del array
    store["a"].submit(3)
    del store


def test_too_many_are_refused() -> None:
    with nandarray.open(device="mqsim-ideal", mode="w") as store:
        store["x"] = np.zeros(4, "u1")
        array = store["x"]
        futures = [array.submit(0) for _ in range((1 << 16) + 1)]
        with pytest.raises(BusyError):
            futures[-1].result()
        assert int(futures[0].result()) == 0


def in_threads(*works) -> None:
    failed: list[BaseException] = []

    def run(work) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    assert not failed, failed


def test_no_future_is_lost_when_several_threads_let_time_pass() -> None:
    store, array, values = modelled(64)
    got: list[int] = []

    def all_of_them() -> None:
        for _ in range(20):
            futures = [array.submit(i) for i in range(20)]
            got.extend(int(future.result()[0]) for future in nandarray.as_completed(futures))

    in_threads(all_of_them, all_of_them, all_of_them)
    assert len(got) == 3 * 20 * 20
    assert sum(got) == 3 * 20 * int(values[:20, 0].sum())
    store.close()


def test_tasks_are_woken_beside_a_thread_that_lets_time_pass() -> None:
    store, array, values = modelled(64)
    stop = threading.Event()

    def beside() -> None:
        while not stop.is_set():
            array[3]

    async def total() -> int:
        async def one(k: int) -> int:
            return sum([int((await array.read_async(i))[0]) for i in range(k, 64, 8)])

        return sum(await asyncio.wait_for(asyncio.gather(*(one(k) for k in range(8))), 30))

    def tasks() -> None:
        try:
            for _ in range(5):
                assert asyncio.run(total()) == int(values[:, 0].sum())
        finally:
            stop.set()

    in_threads(beside, tasks)
    store.close()


def test_the_clock_can_be_asked_while_a_program_runs() -> None:
    with nandarray.open(device="tiny", mode="w") as store:
        store["x"] = np.arange(1000)
        forever = nandarray.Program.from_c(
            """
#include "nandarray.h"
ND_PROGRAM("name": "forever", "kind": "block", "inputs": [{"name": "x", "dtype": "int64"}], "outputs": [])
int64_t nd_block(nd_args *args) { for (volatile int64_t i = 1; i; ) {} return 0; }
"""
        )

        def runs() -> None:
            with pytest.raises(ProgramFailedError):
                nandarray.offload(forever, [store["x"]], seconds=1)

        in_threads(runs, lambda: store.clock.now, lambda: store.report(), lambda: store.clock.think(1e-6))


def test_who_holds_an_array_goes_on_beside_readers_that_wait_for_it() -> None:
    xarray = pytest.importorskip("xarray")
    with nandarray.open(device="mqsim-ideal", mode="w") as store:
        data = xarray.Dataset({"a": ("t", np.arange(100.0))})
        nandarray.from_xarray(data, store)
        waits = []

        dask = pytest.importorskip("dask.array")
        block = dask.from_array(np.arange(100.0), chunks=50).map_blocks(
            lambda values: (waits.append(store["a"].submit(3)), values + 1)[1], dtype="f8"
        )
        nandarray.from_xarray(xarray.Dataset({"a": ("t", block)}), store, region={"t": slice(0, 100)})
        assert store["a"][5] == 6.0
        # A read that would block the owner failed with an error; the others had their turn behind it.
        assert all(isinstance(one.exception(), BusyError | None) for one in waits)


def test_what_is_no_future_is_refused() -> None:
    store, array, _ = modelled(4)
    one = array.submit(1)
    for strange in ([1, 2], [one, None]):
        with pytest.raises(InvalidError, match="must be a future"):
            list(nandarray.as_completed(strange))
    assert list(nandarray.as_completed([one, one])) == [one]
    store.close()
