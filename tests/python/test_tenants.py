"""A served store that several tenants share: what each sees, may change, runs and takes, and changes of the rules."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import nandarray
from nandarray import _nandarray
from nandarray.errors import (
    BusyError,
    ClosedError,
    InvalidError,
    NandarrayError,
    NotFoundError,
    ProtectedError,
    ReadOnlyError,
)
from nandarray.nvme import RemoteProgram, connect, new_secret

SALES, LAB, DESK = (f"nqn.2026-01.org.example:{name}" for name in ("sales", "lab", "desk"))
RULES = f"""
[node]
memory_mib = 512

[tenants.sales]
hosts = ["{SALES}", "{DESK}"]
read = ["shared/*", "ns/1"]
write = ["sales/*"]
programs = true

[tenants.lab]
hosts = ["{LAB}"]
read = ["shared/*"]
write = ["lab*", "ns/2"]
"""


@pytest.fixture
def store(tmp_path):
    with nandarray.open(tmp_path / "s.nand", "w") as store:
        for name in ("shared/a", "sales/b", "lab/c", "secret"):
            store[name] = np.arange(1000, dtype="<i4")
        host = store.nvme()
        assert host.create_namespace(1, 64, 512).ok
        assert host.create_namespace(2, 64, 512).ok
        yield store


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "node.toml"
    path.write_text(RULES)
    return path


@contextlib.contextmanager
def served(store, config, **options):
    with nandarray.serve(store, config=config, insecure=True, **options) as server:
        yield server, lambda host: connect(server.url, hostnqn=host)


def test_each_tenant_sees_its_arrays_and_changes_those_that_it_may(store, config):
    with served(store, config) as (_, host), host(SALES) as sales, host(LAB) as lab:
        assert sorted(sales) == ["ns", "sales", "shared"]
        assert sorted(lab) == ["lab", "ns", "shared"]
        assert list(sales["ns"]) == ["1"]
        assert list(lab["ns"]) == ["2"]
        assert (sales["shared/a"][:] == np.arange(1000)).all()
        for name in ("secret", "lab/c"):
            assert name not in sales
            with pytest.raises(NotFoundError):
                sales[name]
        sales["sales/b"][3] = -1
        assert sales["sales/b"].reduce("sum") == np.arange(1000).sum() - 4
        for refused in (
            lambda: sales["shared/a"].__setitem__(0, 1),
            lambda: sales["shared/a"].resize((5,)),
            lambda: sales["shared/a"].attrs.__setitem__("x", 1),
            lambda: sales.__delitem__("shared/a"),
            lambda: sales["shared"].rename("a", "b"),
            lambda: sales["sales/b"].map_blocks(lambda x: x + 1, out=sales["shared/a"]),
        ):
            with pytest.raises(ReadOnlyError):
                refused()
        for refused in (lambda: sales.create("lab/d", shape=(3,), dtype="u1"), lambda: lab.create("x", (3,), "u1")):
            with pytest.raises(ProtectedError, match="this host may not write"):
                refused()
        made = lab.create("lab/d", shape=(3,), dtype="u1")
        made[:] = 7
        with pytest.raises(InvalidError, match="runs no programs"):
            lab["shared/a"].reduce("sum")
        with pytest.raises(NandarrayError):
            lab.load(b"")
    assert (store["shared/a"][:] == np.arange(1000)).all()
    assert store["lab/d"][:].tolist() == [7] * 3


def test_an_open_array_is_not_another_door_to_what_a_tenant_may_not_use(store, config):
    """Numbers of arrays and commands of views are refused as names are."""
    from nandarray.nvme.commands import NdWrite, OpenSpace

    with served(store, config) as (_, host), host(SALES) as sales:
        source = sales._engine
        known = source.describe("shared/a")["array"]
        seen = []
        for number in range(known + 12):
            try:
                seen.append(source.request({"do": "describe", "array": number}, changes=False, room=64)[0]["name"])
            except (ClosedError, NotFoundError):
                continue
        assert sorted(seen) == ["ns/1", "sales/b", "shared/a"]
        for number in range(known + 12):
            opened = source.submit(OpenSpace(space=number))
            if not opened.ok:
                continue
            written = source.submit(NdWrite(opened.dw0, (0,), (1,)), np.zeros(1, "<i4"))
            assert not written.ok or number == source.describe("sales/b")["array"]


def test_programs_and_memory_belong_to_a_tenant(store, config):
    from nandarray import programs

    elf = programs.get("sum", dtype="int32").elf
    with served(store, config) as (_, host), host(SALES) as sales, host(DESK) as desk:
        total = sales.load(elf, index=3).execute(sales["shared/a"])[0]
        assert np.frombuffer(total, "<i8") == np.arange(1000).sum()
        again = RemoteProgram(desk, 3).execute(desk["sales/b"])[0]
        assert again == total, "hosts of a tenant share its programs"
    with nandarray.serve(store) as server, connect(server.url, hostnqn=SALES) as one:
        one.load(elf, index=3)
        with connect(server.url, hostnqn=LAB) as other:
            with pytest.raises(NandarrayError):
                RemoteProgram(other, 3).execute(other["secret"])
            other.load(elf, index=3)


def test_a_tenant_that_takes_its_memory_leaves_that_of_others(store, tmp_path):
    config = tmp_path / "small.toml"
    config.write_text(RULES.replace("programs = true", "programs = true\nmemory_mib = 80"))
    with served(store, config) as (server, host), host(SALES) as sales, host(LAB) as lab:
        source = sales._engine
        entry = _nandarray.nvme_request_entry(77, (80 << 20) - 1024, 0, True, False)
        source.done(entry, bytes(4096))  # the rest never comes
        used = {name: (used, limit) for name, used, limit in server.status()["tenants"]}
        assert used["sales"] == ((80 << 20) - 1024, 80 << 20)
        with pytest.raises(BusyError, match="Resources"):
            sales["shared/a"][::2]
        assert lab["shared/a"][::2].sum() == np.arange(0, 1000, 2).sum()
        sales.close()
        until = time.monotonic() + 5
        while server.status()["memory_bytes"] and time.monotonic() < until:
            time.sleep(0.01)
        assert server.status()["memory_bytes"] == 0


def test_a_run_ends_at_its_tenants_limits(store, config):
    def forever(x):
        while x >= 0:
            x = x + 1 if x < 1 << 30 else 0
        return x

    text = config.read_text()
    config.write_text(text.replace("programs = true", "programs = true\nseconds = 1"))
    with served(store, config) as (_, host), host(SALES) as sales:
        begun = time.monotonic()
        with pytest.raises(NandarrayError):
            sales["shared/a"].map_blocks(forever)
        assert time.monotonic() - begun < 20
        assert sales["shared/a"].reduce("sum") == np.arange(1000).sum()


def test_a_tenant_has_no_more_commands_a_second_than_it_may(store, config):
    config.write_text(config.read_text().replace("programs = true", "programs = true\niops = 200"))
    with served(store, config) as (_, host), host(SALES) as sales, host(LAB) as lab:
        took = []
        for one in (sales, lab):
            array = one["shared/a"]
            begun = time.monotonic()
            for _ in range(100):
                array[5]
            took.append(time.monotonic() - begun)
        assert took[0] > 0.4, took


def test_rules_change_under_hosts_that_are_connected(store, config):
    with served(store, config) as (server, host), host(SALES) as sales, host(LAB) as lab:
        assert server.reload(config=config) == []
        text = config.read_text()
        config.write_text(text.replace('read = ["shared/*", "ns/1"]', 'read = ["secret"]'))
        assert server.reload(config=config) == []
        assert "secret" in sales
        assert "shared/a" not in sales
        config.write_text(text + "seconds = 0\n")
        with pytest.raises(InvalidError, match=r"line 15: tenants.lab.seconds = 0 is out of range; 1 to 86400 s"):
            server.reload(config=config)
        assert "secret" in sales, "the rules before stay"
        config.write_text(text[: text.index("[tenants.lab]")])
        assert server.reload(config=config) == [LAB]
        with pytest.raises(NandarrayError):
            lab["shared/a"][0]
        with pytest.raises(InvalidError):
            host(LAB)
        assert sales["shared/a"][1] == 1


def test_tenants_need_secrets_and_what_is_wrong_is_said(store, config, tmp_path):
    with pytest.raises(InvalidError, match=f"{LAB}, a host of a tenant in .*node.toml, has no secret"):
        nandarray.serve(store, config=config)
    secrets = {host: new_secret() for host in (SALES, LAB, DESK)}
    with nandarray.serve(store, config=config, secrets=secrets) as server:
        with connect(server.url, hostnqn=LAB, secret=secrets[LAB]) as lab:
            assert "lab/c" in lab
            other = {**secrets, LAB: new_secret()}
            assert server.reload(config=config, secrets=other) == [LAB]
        with pytest.raises(InvalidError):
            connect(server.url, hostnqn=LAB, secret=secrets[LAB])
        connect(server.url, hostnqn=LAB, secret=other[LAB]).close()
        with pytest.raises(InvalidError, match="must keep its secrets"):
            server.reload()
    with pytest.raises(InvalidError, match="is a host of no tenant"):
        nandarray.serve(store, config=config, insecure=True, hosts=["nqn.other"])
    for text, said in (
        ("[tenants.a]\nhosts = ['nqn.a']\nraed = []\n", "line 3: unknown field `raed`, expected one of `hosts`"),
        ("[tenants.a]\nhosts = 'nqn.a'\n", "line 2: invalid type"),
        ("[tenants.a]\nhosts = ['a']\n", "must be an NQN, which begins with 'nqn.', not 'a'"),
        ("", "tenants = 0 tables"),
        ("\udcff", "rules of tenants in TOML"),
    ):
        bad = tmp_path / "bad.toml"
        bad.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(InvalidError, match=said):
            nandarray.serve(store, config=bad, insecure=True)


def test_a_run_of_one_host_never_keeps_those_of_others_waiting(store):
    def forever(x):
        while x >= 0:
            x = x + 1 if x < 1 << 30 else 0
        return x

    with nandarray.serve(store) as server, contextlib.ExitStack() as stack:
        attackers = [stack.enter_context(connect(server.url, hostnqn=f"nqn.a{n}")) for n in range(3)]
        for attacker in attackers:
            for _ in range(2):
                one = connect(server.url, hostnqn=f"nqn.a{attackers.index(attacker)}")
                stack.callback(one.close)

                def run(one=one):
                    with contextlib.suppress(NandarrayError):
                        one["shared/a"].map_blocks(forever)

                threading.Thread(target=run, daemon=True).start()
        time.sleep(0.5)
        with connect(server.url, hostnqn="nqn.good") as good:
            begun = time.monotonic()
            assert good["shared/a"].reduce("sum") == np.arange(1000).sum()
            took = time.monotonic() - begun
        assert took < 20, took
        begun = time.monotonic()
        server.stop()
        assert time.monotonic() - begun < 10


def forever(x):
    while x >= 0:
        x = x + 1 if x < 1 << 30 else 0
    return x


def within(seconds, is_so):
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_commands_that_wait_for_a_run_hold_no_worker_of_others(store, tmp_path):
    """Deletions wait for the run that writes an array, as many as there are workers; others' commands go on."""
    config = tmp_path / "locks.toml"
    config.write_text(RULES.replace('write = ["sales/*"]', 'write = ["sales/*", "mine"]'))
    store["mine"] = np.arange(4096, dtype="<i8")
    with (
        served(store, config) as (server, host),
        host(SALES) as sales,
        host(LAB) as lab,
        contextlib.ExitStack() as stack,
    ):
        threads = []
        others = [stack.enter_context(host(SALES)) for _ in range(5)]

        def run(work):
            with contextlib.suppress(NandarrayError):
                work()

        works = [lambda: sales["mine"].map_blocks(forever, out=sales["mine"], seconds=6)]
        works += [lambda one=one: one.__delitem__("mine") for one in others]
        for work in works:
            threads.append(threading.Thread(target=run, args=(work,)))
            threads[-1].start()
            within(10, lambda: server.status()["running"])  # it holds its outputs soon after
            time.sleep(0.3)
        within(5, lambda: server.status()["workers"]["commands"]["blocked"] == 5)
        begun = time.monotonic()
        assert lab["shared/a"][::2].sum() == np.arange(0, 1000, 2).sum()
        assert time.monotonic() - begun < 2
        for thread in threads:
            thread.join()


def test_memory_of_hosts_that_have_gone_comes_back(store):
    with nandarray.serve(store) as server:
        for number in range(10):
            with connect(server.url, hostnqn=f"nqn.gone{number}") as gone:
                load = _nandarray.nvme_load_entry(1, 16 << 20, number + 1, 4096, 0)
                gone._engine.done(load, bytes(4096), admin=True)
        assert server.status()["memory_bytes"] >= 100 << 20
        until = time.monotonic() + 8
        while server.status()["memory_bytes"] and time.monotonic() < until:
            time.sleep(0.1)
        assert server.status()["memory_bytes"] == 0


def test_hosts_that_may_only_read_have_no_reservations(store, config):
    with served(store, config) as (_, host), host(SALES) as sales:
        # Reservation Register of namespace 1, with key 77.
        entry = bytes([0x0D, 0, 0, 0, 1]).ljust(64, b"\0")
        raw, _ = sales._engine.connection.call(entry, bytes(8) + (77).to_bytes(8, "little"), 0)
        assert int.from_bytes(raw[14:16], "little") >> 1 & 0x7FF == 0x020  # namespace is write protected


def test_sighup_reads_rules_and_secrets_anew(tmp_path, config):
    path, secrets = tmp_path / "d.nand", tmp_path / "secrets"
    with nandarray.open(path, "w") as store:
        store["shared/a"] = np.arange(10)
    texts = {host: new_secret() for host in (SALES, LAB, DESK)}
    secrets.touch(0o600)
    secrets.write_text("".join(f"{host} {text}\n" for host, text in texts.items()))
    command = [sys.executable, "-m", "nandarray", "serve", str(path), "--listen", "127.0.0.1:0"]
    command += ["--secret-file", str(secrets), "--config", str(config), "--log-level", "info"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            lines = iter(server.stdout.readline, "")

            def logged(kind):
                return next(line for line in iter(server.stderr.readline, "") if kind in line)

            url = next(line for line in lines if line.startswith("url")).split()[1]
            with connect(url, hostnqn=LAB, secret=texts[LAB]) as lab:
                assert lab["shared/a"][3] == 3
                config.write_text("nonsense")
                os.kill(server.pid, signal.SIGHUP)
                assert "line 1" in logged("reload_failed")
                assert lab["shared/a"][3] == 3
                config.write_text(RULES.replace(f'"{LAB}"', '"nqn.new"'))
                secrets.write_text(secrets.read_text() + f"nqn.new {new_secret()}\n")
                os.kill(server.pid, signal.SIGHUP)
                assert f"{LAB} is a host of no tenant" in logged("reload_failed")
                secrets.write_text(
                    "".join(f"{host} {texts.get(host) or new_secret()}\n" for host in (SALES, DESK, "nqn.new"))
                )
                os.kill(server.pid, signal.SIGHUP)
                assert "connections that have ended: 1" in logged("reload ")
                with pytest.raises(NandarrayError):
                    lab["shared/a"][3]
        finally:
            server.terminate()
            assert server.wait(10) == 0


def test_the_reference_has_every_key():
    page = (Path(__file__).parents[2] / "docs/reference/tenants.md").read_text()
    for keys in _nandarray.nvme_rules_keys():
        for name, range_, meaning in keys:
            assert f"| `{name}` | {range_ or '-'} | {meaning} |" in page, name
