"""Array requests of hosts that lie: each is answered with a kind of error, changes nothing, and the drive serves on."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray import NandarrayError, _nandarray
from nandarray.array.attributes import from_json
from nandarray.array.listing import facts
from nandarray.errors import BY_KIND
from nandarray.nvme import Completion

GRID = np.arange(48, dtype="<i4").reshape(6, 8)


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nandarray.nvme.RemoteStore]:
    path = tmp_path_factory.mktemp("requests") / "a.nand"
    with nandarray.open(path, "w") as store, nandarray.serve(store) as server:
        store["grid"], store["g/one"] = GRID, np.array(7, "<u2")
        with nandarray.nvme.connect(server.url) as remote:
            yield remote


def asked(drive: nandarray.nvme.RemoteStore, text: Any, data: bytes = b"", *, changes: bool = True) -> Any:
    programs = isinstance(text, dict) and text.get("do") == "offload"
    return drive._source.request(text, [data], changes=changes, programs=programs)


def number(drive: nandarray.nvme.RemoteStore) -> int:
    return int(drive._source.describe("grid")["array"])


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"do": "nothing"}, "a request that a drive does not know"),
    ({"do": "describe"}, "must have a name or a number"),
    ({"do": "describe", "name": "grid", "array": 0}, "must have a name or a number"),
    ({"do": "describe", "name": "grid", "more": 1}, "a request that a drive does not know"),
    ({"do": "resize", "array": 2**32, "shape": []}, "a request that a drive does not know"),
    ({"do": "read", "array": -1, "elements": {"points": [0, 0]}, "view": None}, "a request that a drive does not know"),
    ({"do": "read", "elements": {"points": [0, 2**63]}, "view": None}, "bytes at 0 of 8 bytes of data"),
    ({"do": "read", "elements": {"points": [2**63, 2**63]}, "view": None}, "of 8 bytes of data"),
    ({"do": "read", "elements": {"points": [0, 7]}, "view": None}, "each must have 8"),
    ({"do": "read", "elements": {"points": [0, 8]}, "view": None}, "1 coordinates of points of 2 dimensions"),
    ({"do": "read", "elements": {"points": [0, 0]}, "view": [48]}, "not of a view"),
    ({"do": "read", "elements": {"outer": [[0, 0, 2], [0, 1, 2]]}, "view": None}, "step 0"),
    ({"do": "read", "elements": {"outer": [[0, 1, 2**63], [0, 1, 2**63]]}, "view": None}, "at most"),
    ({"do": "read", "elements": {"outer": [[0, 1, 2]]}, "view": None}, "dimensions"),
    ({"do": "read", "elements": {"box": {"start": [0], "step": [1], "count": [2]}}, "view": None}, "dimensions"),
    ({"do": "read", "elements": {"box": {"start": [0, 0], "step": [1, 0], "count": [2, 2]}}, "view": None},
     "no step 0"),
    ({"do": "read", "elements": {"box": {"start": [5, 0], "step": [1, 1], "count": [2, 2]}}, "view": None}, "bounds"),
    ({"do": "read", "elements": {"box": {"start": [2**64 - 1, 0], "step": [2**64 - 1, 1], "count": [2, 2]}},
      "view": None}, "bounds"),
    ({"do": "read", "elements": {"box": {"start": [0], "step": [1], "count": [2]}}, "view": [47]}, "47"),
    ({"do": "read", "elements": {"boxes": {"starts": [0, 8], "step": [1, 1], "count": [1, 1]}}, "view": None},
     "1 coordinates of boxes of 2 dimensions"),
    ({"do": "write", "elements": {"outer": [[0, 1, 1], [0, 1, 1]]}, "view": None, "values": [0, 3]},
     "values of 3 bytes"),
    ({"do": "append", "axis": 5, "count": [1, 8], "values": [0, 0]}, "values of 0 bytes"),
    ({"do": "create", "name": "a/../b", "shape": [2], "itemsize": 4, "dtype": "<i4", "building_block": None,
      "compression": None, "key": None, "fill": None, "attrs": [0, 2]}, "cannot be a part"),
    ({"do": "create", "name": "x/.group", "shape": [2], "itemsize": 4, "dtype": "<i4", "building_block": None,
      "compression": None, "key": None, "fill": None, "attrs": [0, 2]}, "cannot be a part"),
    ({"do": "create", "name": "new", "shape": [2], "itemsize": 4, "dtype": "<i4", "building_block": None,
      "compression": None, "key": None, "fill": None, "attrs": [0, 1]}, "must be a JSON object"),
    ({"do": "change", "delete": [], "rename": [["grid", "g/.group"]], "attrs": []}, "cannot be a part"),
    ({"do": "change", "delete": [], "rename": [], "attrs": [["grid", [3, 1]]]}, "attributes"),
    ({"do": "offload", "programs": [], "stages": [], "hold_bytes": 0}, "an execution without a program"),
    ({"do": "offload", "programs": [{"elf": [0, 8], "metadata": None}], "stages": [], "hold_bytes": 0}, "ELF"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_a_wrong_request_is_an_error_of_its_kind(
    drive: nandarray.nvme.RemoteStore, text: dict[str, Any], says: str
) -> None:
    if text["do"] in ("read", "write", "append") and "array" not in text:
        text = {**text, "array": number(drive)}
    with pytest.raises(NandarrayError) as caught:
        asked(drive, text, b"{}\0\xff\0\0\0\0")
    assert says in str(caught.value)
    assert BY_KIND[type(caught.value).kind] is type(caught.value)
    np.testing.assert_array_equal(drive["grid"][...], GRID)


@pytest.mark.parametrize(
    "dtype", ["|O", "O", "i4,O", "T", '{"fields": [["a", "|O", 0]], "itemsize": 8}', "<U0", "zz", "[" * 5000]
)
def test_bytes_of_a_host_never_become_objects(drive: nandarray.nvme.RemoteStore, dtype: str) -> None:
    text = {"do": "create", "name": "objects", "shape": [4], "itemsize": 8, "dtype": dtype, "building_block": None}
    asked(drive, {**text, "compression": None, "key": None, "fill": [0, 8], "attrs": [8, 2]}, b"AAAAAAAA{}")
    try:
        for call in (lambda: nandarray.dtypes.decode(dtype), lambda: drive["objects"]):
            with pytest.raises(NandarrayError):
                call()
    finally:
        asked(drive, {"do": "change", "delete": ["objects"], "rename": [], "attrs": []})


def test_a_request_that_changes_says_so(drive: nandarray.nvme.RemoteStore) -> None:
    change = {"do": "change", "delete": ["grid"], "rename": [], "attrs": []}
    with pytest.raises(nandarray.ReadOnlyError):
        asked(drive, change, changes=False)
    np.testing.assert_array_equal(drive["grid"][...], GRID)


@pytest.mark.parametrize("seed", range(4))
def test_messages_with_any_bytes_end_in_an_answer(drive: nandarray.nvme.RemoteStore, seed: int) -> None:
    rng = random.Random(seed)
    source, read = drive._source, {"do": "read", "array": number(drive), "view": None}
    said = json.dumps({**read, "elements": {"outer": [[0, 1, 6], {"list": [0, 16]}]}}).encode()
    whole = len(said).to_bytes(8, "little") + said + bytes(16)
    for _ in range(150):
        message = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            message[rng.randrange(len(message))] = rng.randrange(256)
        sent = bytes(message[: rng.randrange(len(message) + 1)] if rng.random() < 0.3 else message)
        size, offset = (len(sent), 0) if rng.random() < 0.8 else (rng.randrange(2**32), rng.randrange(2**32))
        entry = _nandarray.nvme_request_entry(rng.randrange(3), size, offset, rng.random() < 0.5, rng.random() < 0.5)
        done = Completion.decode(source.connection.call(entry, sent or b"\0", 0)[0])
        if done.ok and done.dw1:
            reply = source.connection.call(_nandarray.nvme_reply_entry(done.dw0, 0), None, done.dw1)[1]
            told = json.loads(reply[8 : 8 + int.from_bytes(reply[:4], "little")])
            assert told == {} or told["error"]["kind"] in BY_KIND, f"seed {seed}: {sent!r}"
    np.testing.assert_array_equal(drive["grid"][...], GRID)


def test_parts_come_in_order_and_replies_are_fetched_once(drive: nandarray.nvme.RemoteStore) -> None:
    source = drive._source

    def send(tag: int, size: int, offset: int, part: bytes) -> Completion:
        entry = _nandarray.nvme_request_entry(tag, size, offset, changes=False, programs=False)
        return Completion.decode(source.connection.call(entry, part, 0)[0])

    said = b'{"do": "names", "prefix": "g"}'
    whole = len(said).to_bytes(8, "little") + said
    assert not send(9, len(whole), 4, whole[4:]).ok, "its beginning is missing"
    assert send(9, len(whole), 0, whole[:10]).ok
    assert not send(9, len(whole), 20, whole[20:]).ok, "a part is missing"
    assert not send(9, len(whole) + 1, 10, whole[10:]).ok, "another size"
    assert not send(8, 2**32 - 1, 0, whole).ok, "larger than a request may be"
    done = send(9, len(whole), 10, whole[10:])
    assert done.ok
    assert done.dw1
    fetch = _nandarray.nvme_reply_entry(done.dw0, 0)
    assert b'"g/one"' in source.connection.call(fetch, None, done.dw1)[1]
    assert not Completion.decode(source.connection.call(fetch, None, done.dw1)[0]).ok, "a reply ends with its last byte"
    # Replies that no host fetches have a limit.
    ended = [send(1, len(whole), 0, whole) for _ in range(300)]
    assert not ended[-1].ok
    assert "Resources" in ended[-1].name
    for one in ended:
        if one.ok:
            source.connection.call(_nandarray.nvme_reply_entry(one.dw0, 0), None, one.dw1)
    assert drive.array_names() == ["g/one", "grid"]


def test_a_drive_for_reading_or_without_programs_refuses(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store:
        store["grid"] = GRID
        with nandarray.serve(store, read_only=True) as server, nandarray.nvme.connect(server.url) as remote:
            assert remote["grid"].reduce("sum") == GRID.sum()
            for change in (
                lambda: remote["grid"].attrs.update(a=1),
                lambda: remote.create("new", 3),
                lambda: remote["grid"].map_blocks(lambda x: x + 1, out=remote["grid"]),
                lambda: remote["grid"].write(([1, 2], [3, 4]), 5),
            ):
                with pytest.raises(nandarray.ReadOnlyError):
                    change()
        with (
            nandarray.serve(store, programs=False) as server,
            nandarray.nvme.connect(server.url) as remote,
            pytest.raises(nandarray.InvalidError, match="this drive runs no programs"),
        ):
            remote["grid"].reduce("sum")
        np.testing.assert_array_equal(store["grid"][...], GRID)


def test_a_request_that_runs_programs_says_so(drive: nandarray.nvme.RemoteStore) -> None:
    text = {"do": "offload", "programs": [], "stages": [], "hold_bytes": 0}
    with pytest.raises(nandarray.InvalidError, match="runs programs must say so"):
        drive._source.request(text, changes=False)


def test_a_text_has_a_limit_and_so_has_a_request(drive: nandarray.nvme.RemoteStore) -> None:
    with pytest.raises(nandarray.InvalidError, match="a text of .* at most 4194304"):
        asked(drive, {"do": "names", "prefix": "x" * (4 << 20)})
    with pytest.raises(nandarray.InvalidError, match="set-attrs: a request must have at most 83886080 bytes"):
        drive["grid"].attrs.update(long="x" * (80 << 20))
    # Attributes are data, not text.
    drive["grid"].attrs.update(long="x" * (5 << 20))
    assert len(drive["grid"].attrs["long"]) == 5 << 20
    drive["grid"].attrs.clear()


def test_a_host_that_fetches_no_replies_is_refused_before_anything_is_done(store: nandarray.Store) -> None:
    with nandarray.serve(store) as server, nandarray.nvme.connect(server.url) as remote:
        source, array = remote._source, number(remote)
        for n in range(300):
            said = json.dumps({"do": "set-attrs", "array": array, "attrs": [0, 9]}).encode()
            message = len(said).to_bytes(8, "little") + said + f'{{"n":{n:3}}}'.encode()
            entry = _nandarray.nvme_request_entry(n, len(message), 0, changes=True, programs=False)
            done = Completion.decode(source.connection.call(entry, message, 0)[0])
            if not done.ok:
                break
        assert "Insufficient Resources" in str(done)
        assert json.loads(store._engine.open_space("grid").attrs)["n"] == n - 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[nandarray.Store]:
    with nandarray.open(tmp_path / "own.nand", "w") as made:
        made["grid"] = GRID
        yield made


SPINS = """
#include <nandarray.h>
ND_PROGRAM("name": "spins", "kind": "block", "inputs": [{"name": "x", "dtype": "int32"}],
           "outputs": [{"name": "y", "dtype": "int64"}])
int64_t nd_block(nd_args *args) {
    for (int64_t i = 0; i < 1LL << 32; i++) __asm__ volatile ("");
    return 1;
}
"""


HOST = """
import sys, threading
import nandarray

def run():
    program = nandarray.Program.from_elf(sys.argv[2])
    nandarray.open(sys.argv[1], "r+")["grid"].offload(program, task_bytes=4)

threads = [threading.Thread(target=run) for _ in range(5)]
for thread in threads:
    thread.start()
print("begun", flush=True)
"""


def test_programs_end_with_their_host_and_hold_up_nobody_else(store: nandarray.Store, tmp_path: Path) -> None:
    """Each run has 48 tasks of some 13 billion instructions: without an end of theirs this test takes an hour."""
    total = nandarray.programs.get("sum", dtype="int64")
    (tmp_path / "spins.elf").write_bytes(nandarray.Program.from_c(SPINS).elf)
    store["few"] = np.arange(8)
    with nandarray.serve(store) as server, nandarray.nvme.connect(server.url) as other:
        # More runs than there are workers.
        host = subprocess.Popen(
            [sys.executable, "-c", HOST, server.url, str(tmp_path / "spins.elf")], stdout=subprocess.PIPE
        )
        assert host.stdout
        host.stdout.readline()
        until = time.monotonic() + 60
        while server.status()["connections"] < 12:
            assert time.monotonic() < until
            time.sleep(0.01)
        time.sleep(0.5)
        assert host.poll() is None
        # Elements by steps, and names, are requests, too.
        np.testing.assert_array_equal(other["grid"][::2, ::3], GRID[::2, ::3])
        assert sorted(other.array_names()) == ["few", "grid"]
        host.kill()
        host.communicate()
        assert int(other["few"].offload(total)) == 28
    # A server that is stopped ends programs of hosts that are still there.
    ended: list[Exception] = []
    server = nandarray.serve(store)
    spins = nandarray.Program.from_elf(tmp_path / "spins.elf")

    def run() -> None:
        try:
            nandarray.nvme.connect(server.url)["grid"].offload(spins, task_bytes=4)
        except NandarrayError as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until = time.monotonic() + 60
    while server.status()["connections"] < 2:
        assert time.monotonic() < until
        time.sleep(0.01)
    time.sleep(0.5)
    assert not ended
    server.stop()
    thread.join(60)
    assert isinstance(ended[0], nandarray.ClosedError)


def test_a_host_gives_the_key_of_an_array_itself(store: nandarray.Store) -> None:
    key = b"k" * 32
    secret = store.create("secret", (4, 4), "i4", encryption_key=key)
    secret[...] = 7
    with nandarray.serve(store) as server, nandarray.nvme.connect(server.url) as one:
        opened = one.open_array("secret", encryption_key=key)
        assert (opened[...] == 7).all()
        assert (opened[::2, ::2] == 7).all()
        opened.attrs["unit"] = "K"
        array = int(one._source.describe("secret")["array"])
        total = nandarray.programs.get("sum", dtype="int32")
        assert int(opened.offload(total)) == 112
        with nandarray.nvme.connect(server.url) as two:
            box = {"start": [0, 0], "step": [1, 1], "count": [4, 4]}
            place = {**box, "array": array, "view": None, "tiles": None}
            stage = {"program": 0, "form": "translated", "inputs": [{"box": place}], "scalars": [], "task_bytes": 64}
            run = {"programs": [{"elf": [0, len(total.elf)], "metadata": None}], "hold_bytes": 0}
            for text in (
                {"do": "read", "array": array, "elements": {"box": box}, "view": None},
                {"do": "write", "array": array, "elements": {"box": box}, "view": None, "values": [0, 64]},
                {"do": "append", "array": array, "axis": 0, "count": [4, 4], "values": [0, 64]},
                {"do": "set-attrs", "array": array, "attrs": [0, 64]},
                {"do": "resize", "array": array, "shape": [1, 1]},
                {"do": "deallocate", "array": array, "start": [0, 0], "count": [4, 4]},
                {"do": "change", "delete": [], "rename": [["secret", "mine"]], "attrs": [["mine", [0, 64]]]},
                {"do": "offload", **run, "stages": [{**stage, "outputs": ["collect"], "instructions": None}]},
                {"do": "unlock", "array": array, "key": [0, 32]},
            ):
                with pytest.raises(nandarray.WrongKeyError):
                    asked(two, text, total.elf + bytes(64))
            with pytest.raises(nandarray.WrongKeyError):
                two._source.open_space("secret").dsid(None)
        assert (opened[...] == 7).all()
        assert opened.attrs == {"unit": "K"}


def test_writes_of_many_rows_are_cut(store: nandarray.Store) -> None:
    rows = _nandarray.NVME_WRITE_ROWS_MAX
    flat = store.create("flat", (3 * rows,), "u1")
    want = np.zeros(3 * rows, "u1")
    with nandarray.serve(store) as server, nandarray.nvme.connect(server.url) as remote:
        far = remote["flat"]
        far.view((3, rows))[:, ::1] = 5
        want[:] = 5
        far.view((rows, 3))[:, 1] = 6
        want.reshape(rows, 3)[:, 1] = 6
        far.view((3 * rows // 2, 2))[:, 0] = 7
        want.reshape(-1, 2)[:, 0] = 7
        np.testing.assert_array_equal(flat[...], want)
        elements = {"box": {"start": [0, 0], "step": [1, 2], "count": [3, rows // 2]}}
        text = {"do": "write", "array": int(remote._source.describe("flat")["array"]), "elements": elements}
        with pytest.raises(nandarray.InvalidError, match=f"at most {rows}"):
            asked(remote, {**text, "view": [3, rows], "values": [0, 3 * rows // 2]}, bytes(3 * rows // 2))


def test_a_row_over_64_mib_is_appended(store: nandarray.Store) -> None:
    store.create("wide", (1, (65 << 20) // 8), "i8")
    with nandarray.serve(store) as server, nandarray.nvme.connect(server.url) as remote:
        remote["wide"].append(np.full((2, (65 << 20) // 8), 3))
        assert remote["wide"].shape == store["wide"].shape == (3, (65 << 20) // 8)
    assert (store["wide"][1:, ::1000] == 3).all()
    assert (store["wide"][0, ::1000] == 0).all()


def test_a_store_is_listed_whatever_a_host_has_put_there(store: nandarray.Store) -> None:
    with nandarray.serve(store) as server, nandarray.nvme.connect(server.url) as remote:
        text = {"do": "create", "name": "odd", "shape": [4], "itemsize": 8, "dtype": "zz", "building_block": None}
        asked(remote, {**text, "compression": None, "key": None, "fill": None, "attrs": [0, 3]}, b"{z}")
        for one in (store, remote):
            assert "'zz', which is no dtype" in str(one.tree())
            with pytest.raises(nandarray.CorruptError):
                one["odd"]
        with pytest.raises(nandarray.CorruptError, match="attributes that are not JSON"):
            from_json(store._engine.open_space("odd").attrs)
        assert [facts(store, name)["attrs"] for name in ("grid", "odd")] == [{}, "{z}"]
