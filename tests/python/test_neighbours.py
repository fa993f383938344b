"""Hosts that share a node: what a run of one leaves to the others while it computes, or waits for its host."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import doors
import numpy as np
import pytest

import nandarray
from nandarray import programs
from nandarray.errors import BusyError, CancelledError, InvalidError, NandarrayError
from nandarray.nvme import connect, new_secret
from nandarray.nvme.outputs import ArrivingOutputs


@pytest.fixture(params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with doors.computing(request, tmp_path / "data.nand") as opened:
        yield opened


def _forever(x):  # type: ignore[no-untyped-def]
    while x >= 0:
        x = x + 1 if x < 1 << 30 else 0
    return x


def _slowly(x):  # type: ignore[no-untyped-def]
    n, k = x, 0
    while k < 20_000:
        n = n * 3 + 1 if n < 1 << 40 else n - (1 << 40)
        k = k + 1
    return x + 1 if n >= 0 else 0


def _in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    ended: list[Any] = []

    def run() -> None:
        try:
            ended.append(work())
        except NandarrayError as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, ended


def _until(is_so: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def _timed(work: Callable[[], Any]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def test_a_neighbour_reads_and_writes_what_the_run_of_a_host_that_does_not_read_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(3).random(12 << 20)
    begun, go_on = threading.Event(), threading.Event()

    def take(self: ArrivingOutputs, output: int, data: bytes) -> None:
        begun.set()
        go_on.wait(60)
        self._arrived.setdefault(output, bytearray()).extend(data)

    monkeypatch.setattr(ArrivingOutputs, "take", take)
    root = programs.get("sqrt", dtype="float64")
    with (
        nandarray.open(tmp_path / "a.nand", "w") as store,
        nandarray.serve(store) as server,
        connect(server.url, hostnqn="nqn.slow") as slow,
        connect(server.url, hostnqn="nqn.beside") as other,
    ):
        store["x"] = x
        store["g/kept"] = np.zeros(x.size + 1)
        steps = {"streamed": root.on(slow["x"]), "kept": root.on(slow["x"])}
        thread, ended = _in_thread(
            lambda: nandarray.offload(steps, out={"kept": nandarray.Box(slow["g/kept"], np.s_[1:])})
        )
        assert begun.wait(60), ended
        time.sleep(0.5)  # the run has filled what is kept for the host, and waits
        for name in ("x", "g/kept"):
            for place in (0, x.size - 1):
                assert _timed(lambda at=(name, place): other[at[0]].__setitem__(at[1], 9.0)) < 1
                assert other[name][place] == 9
        deletes, deleted = _in_thread(lambda: other.__delitem__("g"))
        time.sleep(0.3)
        assert not deleted
        go_on.set()
        thread.join(60)
        deletes.join(60)
        assert not isinstance(ended[0], Exception), ended
        assert deleted == [None]
        assert "g" not in store


def test_outputs_replace_what_was_written_meanwhile_and_leave_the_rest(store: Any) -> None:
    """An output of a part of an array, of which others write elements in and beside it while the run computes."""
    store["x"] = np.arange(1000, dtype="<i8")
    store["y"] = np.full(5000, -1, dtype="<i8")
    thread, ended = _in_thread(
        lambda: store["x"].map_blocks(_slowly, out=nandarray.Box(store["y"], np.s_[1001:2001]), task_bytes=80)
    )
    until = time.monotonic() + 60
    wrote = 0
    while thread.is_alive() and time.monotonic() < until:
        store["y"][0], store["y"][2001], store["y"][1500] = wrote, wrote, wrote
        wrote += 1
    thread.join()
    assert not isinstance(ended[0], Exception), ended
    y = store["y"][:]
    assert y[1500] in (500, wrote - 1)
    assert np.array_equal(np.delete(y[1001:2001], 499), np.delete(np.arange(1, 1001), 499))
    assert (y[0], y[2001]) == ((wrote - 1,) * 2 if wrote else (-1, -1))
    assert (np.delete(y, [0, 2001, *range(1001, 2001)]) == -1).all()


def test_writes_go_on_beside_an_endless_run_that_would_write_the_same(tmp_path: Path) -> None:
    with (
        nandarray.open(tmp_path / "a.nand", "w") as store,
        nandarray.serve(store) as server,
        connect(server.url, hostnqn="nqn.endless") as endless,
        connect(server.url, hostnqn="nqn.beside") as other,
    ):
        store["x"] = np.arange(1000, dtype="<i8")
        thread, ended = _in_thread(lambda: endless["x"].map_blocks(_forever, out=endless["x"], seconds=3))
        while not server.status()["running"]:
            time.sleep(0.01)
        for number in range(20):
            assert _timed(lambda at=number: other["x"].__setitem__(slice(at, at + 2), -1)) < 1
        thread.join(60)
        assert isinstance(ended[0], NandarrayError)
        assert np.array_equal(store["x"][:], np.r_[[-1] * 21, 21:1000])


def test_commands_that_wait_for_a_run_leave_their_places_to_others(tmp_path: Path) -> None:
    """Twenty names at one address make what an endless run writes smaller, and delete it; others there go on."""
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(nandarray.open(tmp_path / "a.nand", "w"))
        server = stack.enter_context(nandarray.serve(store))
        store["x"], store["small"] = np.arange(1000, dtype="<i8"), np.arange(8)
        hosts = [stack.enter_context(connect(server.url, hostnqn=f"nqn.{number}")) for number in range(22)]
        endless, other, *waiting = hosts
        run, ended = _in_thread(lambda: endless["x"].map_blocks(_forever, out=endless["x"]))
        _until(lambda: ended or server.status()["running"])
        threads = [_in_thread(partial(host["x"].resize, (number,))) for number, host in enumerate(waiting[:10])]
        threads += [_in_thread(partial(host.__delitem__, "x")) for host in waiting[10:]]
        _until(lambda: server.status()["workers"]["commands"]["blocked"] == 20)
        # A growth is no change of what the run writes.
        assert _timed(lambda: other["x"].resize((1200,))) < 10
        for _ in range(5):
            assert _timed(lambda: other["small"].reduce("sum")) < 10
        assert not [ended for _, ended in threads if ended]
        # A host that goes takes its waiting command with it.
        text = f"from nandarray.nvme import connect; connect({server.url!r}, hostnqn='nqn.gone')['x'].resize((5,))"
        with subprocess.Popen([sys.executable, "-c", text]) as gone:
            _until(lambda: server.status()["workers"]["commands"]["blocked"] == 21)
            gone.kill()
        _until(lambda: server.status()["workers"]["commands"]["blocked"] == 20)
        [found] = server.status()["running"]
        server.kill(found["id"])
        for thread, _ in (*threads, (run, ended)):
            thread.join(60)
            assert not thread.is_alive()
        assert isinstance(ended[0], CancelledError)
        assert sum(told == [None] for _, told in threads[10:]) == 1
        assert list(store) == ["small"]


def test_outputs_of_an_encrypted_array_wait_like_others_and_no_longer_than_there_is_room(tmp_path: Path) -> None:
    config = tmp_path / "rules.toml"
    rules = "hosts = ['nqn.{0}']\nread = ['*']\nwrite = ['*']\nprograms = true\n"
    config.write_text("[tenants.a]\n" + rules.format("a") + "[tenants.small]\nspool_mib = 0\n" + rules.format("small"))
    key = bytes(range(32))
    with (
        nandarray.open(tmp_path / "a.nand", "w") as store,
        nandarray.serve(store, config=config, insecure=True) as server,
        connect(server.url, hostnqn="nqn.a") as remote,
        connect(server.url, hostnqn="nqn.small") as small,
    ):
        x = np.random.default_rng(2).random(1 << 19)
        x[1000:300_000] = 0
        store["x"], store["n"] = x, np.arange(1000, dtype="<i8")
        own = store.create("w", (1000,), "<i8", encryption_key=key)
        roots = store.create("y", x.shape, "float64", encryption_key=key)
        store["z"] = np.zeros(x.shape)
        y, w = (remote.open_array(name, encryption_key=key) for name in "yw")
        root = programs.get("sqrt", dtype="float64")
        thread, ended = _in_thread(lambda: remote["n"].map_blocks(_forever, out=w))
        _until(lambda: ended or server.status()["running"])
        assert _timed(lambda: own.__setitem__(5, 7)) < 10
        assert own[5] == 7
        server.kill(server.status()["running"][0]["id"])
        thread.join(60)
        assert isinstance(ended[0], CancelledError)
        nandarray.offload({"y": root.on(remote["x"])}, out={"y": y})
        assert np.array_equal(roots[:], np.sqrt(x))
        with pytest.raises(BusyError, match="at most 0 bytes together"):
            nandarray.offload({"z": root.on(small["x"])}, out={"z": small["z"]})
        assert not store["z"][:].any()


def test_a_group_that_a_run_writes_is_deleted_after_it(store: Any) -> None:
    store["x"] = np.arange(64, dtype="<i8")
    for name in ("g/a", "g/deep/b"):
        store[name] = np.zeros(64, dtype="<i8")
    thread, ended = _in_thread(lambda: store["x"].map_blocks(_slowly, out=store["g/deep/b"], form="interpreted"))
    time.sleep(0.3)
    del store["g"]
    thread.join()
    assert not isinstance(ended[0], Exception), ended
    assert "g" not in store


def test_the_node_chooses_a_form_and_the_account_tells_it(store: Any) -> None:
    store["x"] = np.arange(1000.0)
    total = programs.get("sum", dtype="float64")
    found = {form: nandarray.offload(total, [store["x"]], form=form) for form in (None, "interpreted", "translated")}
    assert {float(one.result) for one in found.values()} == {499500.0}
    told = {form: one.account.form for form, one in found.items()}
    assert told == {
        None: "native" if doors.is_file(store) and total.trusted else "translated",
        "interpreted": "interpreted",
        "translated": "translated",
    }


def test_a_token_makes_any_host_of_a_beginning_its_tenants_and_no_other(tmp_path: Path) -> None:
    begins, admin = "nqn.2026-01.org.example:lab-", "nqn.2026-01.org.example:lab-admin"
    config = tmp_path / "rules.toml"
    config.write_text(f"""
[tenants.lab]
hosts = ["{begins}*"]
read = ["shared"]

[tenants.admin]
hosts = ["{admin}"]
read = ["*"]
write = ["*"]
""")
    token, own = new_secret(), new_secret()
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        store["shared"], store["other"] = np.arange(4), np.arange(5)
        with nandarray.serve(store, config=config, secrets={f"{begins}*": token, admin: own}) as server:
            for name in ("7", "guest"):
                with connect(server.url, hostnqn=begins + name, secret=token) as lab:
                    assert list(lab) == ["shared"]
            with connect(server.url, hostnqn=admin, secret=own) as every:
                assert sorted(every) == ["other", "shared"]
            for host, secret in ((admin, token), (f"{begins}7", own), ("nqn.2026-01.org.example:desk", token)):
                with pytest.raises(NandarrayError):
                    connect(server.url, hostnqn=host, secret=secret)
        # Without rules all hosts of a token are one tenant.
        with nandarray.serve(store, secrets={f"{begins}*": token}) as server:
            hosts = [connect(server.url, hostnqn=f"{begins}{n}", secret=token) for n in range(3)]
            assert [name for name, _, _ in server.status()["tenants"]] == [f"{begins}*"]
            for host in hosts:
                host.close()
        for wrong in ("nqn.*", "nqn.a*b"):
            config.write_text(f"[tenants.lab]\nhosts = ['{wrong}']\n")
            with pytest.raises(InvalidError, match=r"a name, or the beginning of some with \* behind it, is needed"):
                nandarray.serve(store, config=config, insecure=True)


def test_places_of_tiles_are_a_part_of_the_tenants_memory(tmp_path: Path) -> None:
    config = tmp_path / "rules.toml"
    config.write_text("[tenants.a]\nhosts = ['nqn.a']\nread = ['*']\nwrite = ['*']\nprograms = true\nmemory_mib = 64\n")
    with (
        nandarray.open(tmp_path / "a.nand", "w") as store,
        nandarray.serve(store, config=config, insecure=True) as server,
        connect(server.url, hostnqn="nqn.a") as remote,
    ):
        x = store.create("x", (2_200_000,), "int8")
        store["out"] = np.zeros(16, "int8")

        def same(box, out):  # type: ignore[no-untyped-def]
            for i in range(box.shape[0]):
                out[i] = box[i]

        assert not x[:16].any()
        with pytest.raises(BusyError, match="of the places of 2200000 tiles"):
            remote["x"].map_blocks(same, block=(1,), depth=1)
        assert server.status()["memory_bytes"] < 1 << 20
