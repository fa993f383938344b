"""Array requests of hosts that lie: each is answered with a kind of error, changes nothing, and the drive serves on."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray import NandarrayError, _nandarray
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
    return drive._source.request(text, [data], changes=changes)


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
      "compression": None, "key": None, "fill": None, "attrs": "{}"}, "cannot be a part"),
    ({"do": "create", "name": "x/.group", "shape": [2], "itemsize": 4, "dtype": "<i4", "building_block": None,
      "compression": None, "key": None, "fill": None, "attrs": "{}"}, "cannot be a part"),
    ({"do": "change", "delete": [], "rename": [["grid", "g/.group"]], "attrs": []}, "cannot be a part"),
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
        asked(drive, text, bytes(8))
    assert says in str(caught.value)
    assert BY_KIND[type(caught.value).kind] is type(caught.value)
    np.testing.assert_array_equal(drive["grid"][...], GRID)


@pytest.mark.parametrize(
    "dtype", ["|O", "O", "i4,O", "T", '{"fields": [["a", "|O", 0]], "itemsize": 8}', "<U0", "zz", "[" * 5000]
)
def test_bytes_of_a_host_never_become_objects(drive: nandarray.nvme.RemoteStore, dtype: str) -> None:
    text = {"do": "create", "name": "objects", "shape": [4], "itemsize": 8, "dtype": dtype, "building_block": None}
    asked(drive, {**text, "compression": None, "key": None, "fill": [0, 8], "attrs": "{}"}, b"AAAAAAAA")
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
        entry = _nandarray.nvme_request_entry(rng.randrange(3), size, offset, rng.random() < 0.5)
        done = Completion.decode(source.connection.call(entry, sent or b"\0", 0)[0])
        if done.ok and done.dw1:
            reply = source.connection.call(_nandarray.nvme_reply_entry(done.dw0, 0), None, done.dw1)[1]
            told = json.loads(reply[8 : 8 + int.from_bytes(reply[:4], "little")])
            assert told == {} or told["error"]["kind"] in BY_KIND, f"seed {seed}: {sent!r}"
    np.testing.assert_array_equal(drive["grid"][...], GRID)


def test_parts_come_in_order_and_replies_are_fetched_once(drive: nandarray.nvme.RemoteStore) -> None:
    source = drive._source

    def send(tag: int, size: int, offset: int, part: bytes) -> Completion:
        entry = _nandarray.nvme_request_entry(tag, size, offset, changes=False)
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
