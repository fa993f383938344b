"""Outputs of runs behind doors: of any size, in pieces while the run goes on, and what a server that dies leaves.

The run's own waiting, its limits and its end are tested in Rust (``run_outputs.rs``).
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import doors
import numpy as np
import pytest

import nandarray
from nandarray import _nandarray, programs
from nandarray.errors import ClosedError
from nandarray.nvme import Completion
from nandarray.nvme.outputs import ArrivingOutputs

#: Bytes of the outputs that a reply alone may have.
REPLY = 64 << 20
RULES = """
[tenants.small]
hosts = ["nqn.2026-01.org.example:small"]
read = ["*"]
programs = true
memory_mib = 80

[tenants.beside]
hosts = ["nqn.2026-01.org.example:beside"]
read = ["*"]
programs = true
"""


def _seeded(size: int, seed: int = 5) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).random(size // 8)


@pytest.fixture(params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with doors.computing(request, tmp_path / "data.nand") as opened:
        yield opened


def test_outputs_of_any_size_come_back(store: Any) -> None:
    x = _seeded(REPLY + (9 << 20) + 8)
    store["x"] = x
    twice = programs.get("sqrt", dtype="float64")
    done = nandarray.offload(twice, [store["x"]])
    assert np.array_equal(done.result, np.sqrt(x))
    assert done.result.flags.writeable
    traffic = done.account.traffic
    assert traffic.to_host == x.nbytes
    if not doors.has_wire(store):
        assert traffic.sent is traffic.received is None
    else:
        assert x.nbytes < traffic.received < 1.01 * x.nbytes + 10_000
        assert 1000 < traffic.sent < 200_000
    # Several outputs, each with its own pieces and its own last bytes; one stays in the store.
    low = programs.get("filter", dtype="float64").on(store["x"], low=0.25, high=2.0)
    high = programs.get("filter", dtype="float64").on(store["x"], low=0.0, high=0.75)
    kept = store.create("kept", (x.size,), "float64")
    roots = twice.on(store["x"])
    steps = {"low": low, "root": roots, "sum": programs.get("sum", dtype="float64").on(roots), "high": high}
    many = nandarray.offload(steps, out={"high": kept}).outputs
    assert np.array_equal(many["low"], x[x >= 0.25])
    assert np.array_equal(many["root"], np.sqrt(x))
    assert np.isclose(many["sum"], np.sqrt(x).sum())
    assert np.array_equal(kept[: many["high"]], x[x <= 0.75])


def test_few_bytes_over_the_wire_for_a_small_output(store: Any) -> None:
    store["x"] = _seeded(8 << 20)
    if not doors.is_file(store):
        nandarray.offload(programs.get("sum", dtype="float64"), [store["x"]])  # connects
    traffic = nandarray.offload(programs.get("sum", dtype="float64"), [store["x"]]).account.traffic
    assert not doors.has_wire(store) or 8 <= traffic.received < 2000 < traffic.sent < 50_000


def test_a_host_that_does_not_take_outputs_keeps_nobody_waiting_and_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = _seeded(96 << 20)
    config = tmp_path / "rules.toml"
    config.write_text(RULES)
    begun, go_on = threading.Event(), threading.Event()

    def take(self: ArrivingOutputs, output: int, data: bytes) -> None:
        begun.set()
        go_on.wait(60)
        self._arrived.setdefault(output, bytearray()).extend(data)

    got: list[Any] = []
    root = programs.get("sqrt", dtype="float64")
    with (
        nandarray.open(tmp_path / "a.nand", "w") as store,
        nandarray.serve(store, config=config, insecure=True) as server,
        nandarray.nvme.connect(server.url, hostnqn="nqn.2026-01.org.example:small") as slow,
        nandarray.nvme.connect(server.url, hostnqn="nqn.2026-01.org.example:beside") as other,
    ):
        store["x"] = x
        monkeypatch.setattr(ArrivingOutputs, "take", take)
        thread = threading.Thread(target=lambda: got.append(slow["x"].offload(root)))
        thread.start()
        assert begun.wait(60)
        # Beside the run that waits: reads, and runs with small outputs, of the same host and of another one.
        for host in (slow, other):
            assert np.array_equal(host["x"][:100], x[:100])
            assert np.isclose(host["x"].offload(programs.get("sum", dtype="float64")), x.sum())
        used = {name: used for name, used, _ in server.status()["tenants"]}
        assert 8 << 20 < used["small"] <= 80 << 20
        go_on.set()
        thread.join(60)
        assert np.array_equal(got[0], np.sqrt(x))


def test_the_error_of_a_server_that_dies_says_which_bytes_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, path = _seeded(48 << 20), tmp_path / "a.nand"
    with nandarray.open(path, "w") as store:
        store["x"] = x
    command = [sys.executable, "-m", "nandarray", "serve", str(path), "--listen", "127.0.0.1:0"]
    arrived: list[bytes] = []
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            url = next(found.group() for line in server.stdout if (found := re.search(r"nvme\+tcp://\S+", line)))

            def take(self: ArrivingOutputs, output: int, data: bytes) -> None:
                arrived.append(data)
                self._arrived.setdefault(output, bytearray()).extend(data)
                if len(arrived) == 3:
                    server.kill()

            monkeypatch.setattr(ArrivingOutputs, "take", take)
            with nandarray.open(url, "r") as remote, pytest.raises(ClosedError, match="is lost") as error:
                remote["x"].offload(programs.get("sqrt", dtype="float64"))
        finally:
            server.kill()
    said = re.search(r"the first (\d+) bytes of output 0 had arrived, and are right", str(error.value))
    assert said is not None, str(error.value)
    right = b"".join(arrived)
    assert int(said.group(1)) == len(right) >= 6 << 20
    assert right == np.sqrt(x).tobytes()[: len(right)]


def test_fetching_of_no_run_gives_nothing(tmp_path: Path) -> None:
    with (
        nandarray.open(tmp_path / "a.nand", "w") as store,
        nandarray.serve(store) as server,
        nandarray.nvme.connect(server.url) as remote,
    ):
        host = remote._source.connection
        done = Completion.decode(host.call(_nandarray.nvme_output_entry(7), None, 4096)[0])
        assert (done.ok, done.dw0, done.dw1) == (True, 0, 0)
        assert "Data SGL Length Invalid" in str(Completion.decode(host.call(_nandarray.nvme_output_entry(7))[0]))
