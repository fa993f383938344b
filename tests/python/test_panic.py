"""A fault of the engine itself, as a user meets it: `except Exception` catches it, and the store ends cleanly.

The engine panics on purpose, in each kind of thread that a user can be in: the caller's, a thread of Python's beside
others, the pool of `read_async`, and under the modelled clock. Panics at every place of the engine are its own tests'
business (`crates/nandarray/tests/panics.rs`).
"""

from __future__ import annotations

import asyncio
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest

import nandarray
from nandarray.model import accelerator


def ends_cleanly(store: nandarray.Store) -> None:
    """Every later command says the same, closing says it once, and the object is closed then."""
    for command in (store.flush, lambda: store["x"], lambda: store.create("y", 3, "u1"), store.check):
        with pytest.raises(nandarray.InternalError, match="on purpose"):
            command()
    with pytest.raises(nandarray.InternalError, match="open it again"):
        store.close()
    assert store.closed
    store.close()


def test_a_panic_is_an_exception_and_what_was_flushed_is_there(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.nand"
    store = nandarray.open(path, mode="w")
    store["x"] = np.arange(10)
    store.flush()
    x = store["x"]
    with pytest.raises(Exception, match="on purpose") as caught:
        store._engine.panic_on_purpose()
    assert isinstance(caught.value, nandarray.InternalError)
    assert isinstance(caught.value, RuntimeError)
    with pytest.raises(nandarray.InternalError):
        x[3]
    ends_cleanly(store)
    with nandarray.open(path, mode="r+") as again:  # the lock is free
        assert (again["x"][:] == np.arange(10)).all()
        assert again.check()["ok"]


def test_other_threads_and_the_pool_end(tmp_path: pathlib.Path) -> None:
    store = nandarray.open(tmp_path / "a.nand", mode="w")
    store["x"] = np.zeros((300, 300))
    x = store["x"]
    seen: list[type[BaseException]] = []

    def work() -> None:
        try:
            for i in range(1_000_000):
                x[i % 300] = i
                x[:, i % 300]
        except BaseException as error:
            seen.append(type(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    with pytest.raises(nandarray.InternalError):
        store._engine.panic_on_purpose()
    for thread in threads:
        thread.join(timeout=600)
        assert not thread.is_alive()
    assert seen == [nandarray.InternalError] * 4
    with pytest.raises(nandarray.InternalError):
        asyncio.run(x.read_async())
    ends_cleanly(store)


def test_under_the_modelled_clock_nothing_hangs() -> None:
    script = (
        "import nandarray, numpy as np\n"
        "s = nandarray.open(device='tiny', mode='w')\n"
        "s['x'] = np.arange(100)\n"
        "for call in (s._engine.panic_on_purpose, s.flush, lambda: s['x'], s.report, s.clock.settle, s.close):\n"
        "    try:\n"
        "        call()\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__)\n"
        "print(s.closed)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True)
    lines = done.stdout.split()
    assert lines[:3] == ["InternalError"] * 3, done
    assert lines[-1] == "True", done
    assert done.stderr.count("panicked at") == 1, done.stderr


def test_workers_that_no_platform_has_are_an_error_before_a_scheduler_makes_room_for_them() -> None:
    kernel = accelerator.Phantom("k", 65_536, [accelerator.Block(2, 1e4, 4_096)])
    for scheduler in ("inter-static", "inter-dynamic", "intra-in-order", "intra-out-of-order"):
        for workers in (2**40, 2**63, 2**64 - 1):
            with pytest.raises(nandarray.InvalidError, match=f"workers is {workers}; at most"):
                accelerator.run([kernel], scheduler, {"workers": workers})
