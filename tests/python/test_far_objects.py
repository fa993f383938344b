"""Objects far away: ranges merged and fetched side by side, replaced objects noticed, errors with object and range."""

from __future__ import annotations

import os
import pickle
import random
import signal
import threading
import time
from pathlib import Path

import pytest
from far_servers import FAULTS, RangeServer, hasty, s3
from hypothesis import given
from hypothesis import strategies as st

from nandarray import ChangedError, DeniedError, InvalidError, MediaError
from nandarray.remote import objects as far
from nandarray.remote.places import place_of

pytest.importorskip("obstore")
fsspec = pytest.importorskip("fsspec")


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 60)), max_size=12),
    st.integers(0, 40),
    st.integers(1, 50),
)
def test_pieces_cover_the_ranges_and_little_else(spans: list[tuple[int, int]], gap: int, piece: int) -> None:
    ranges = [(start, start + count) for start, count in spans]
    pieces = far.merged(ranges, gap, piece)
    wanted = {byte for start, end in ranges for byte in range(start, end)}
    got = [byte for start, end in pieces for byte in range(start, end)]
    assert got == sorted(set(got))
    assert wanted <= set(got)
    assert all(0 < end - start <= piece for start, end in pieces)
    extra = sorted(set(got) - wanted)
    runs = [byte for byte in extra if byte - 1 not in extra]
    assert all(any(byte + gap + 1 > later for later in wanted if later > byte) for byte in runs)


def _places(folder: Path, server: RangeServer) -> list[object]:
    from obstore.store import LocalStore

    return [
        place_of(f"{server.url}/object"),
        place_of("object", LocalStore(str(folder))),
        place_of(f"{folder}/object", fsspec.filesystem("file")),
    ]


def test_ranges_of_an_object(tmp_path: Path) -> None:
    data = os.urandom(5_000_000)
    (tmp_path / "object").write_bytes(data)
    chance = random.Random(3)
    with RangeServer(tmp_path) as server:
        for place in _places(tmp_path, server):
            objects, key = pickle.loads(pickle.dumps(place))
            facts = objects.facts(key)
            assert facts.bytes == len(data)
            assert facts.etag
            spans = [sorted(chance.sample(range(len(data)), 2)) for _ in range(20)]
            ranges = [(start, end) for start, end in spans]
            assert [bytes(one) for one in objects.read(key, ranges, facts)] == [data[a:b] for a, b in ranges]
            assert bytes(objects.get(key)[0]) == data
            with pytest.raises(InvalidError, match="object has 5000000 bytes, .* at most 100"):
                objects.get(key, 100)
            with pytest.raises(FileNotFoundError):
                objects.facts("none")
            with pytest.raises(FileNotFoundError):
                objects.get("none")


def test_an_object_that_is_replaced_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "object"
    with RangeServer(tmp_path) as server:
        path.write_bytes(bytes(100_000))
        for place in _places(tmp_path, server):
            facts = place.objects.facts(place.key)
            for change in (b"1" * 100_000, b"2" * 200_000, None):
                path.unlink()
                if change is not None:
                    path.write_bytes(change)
                    os.utime(path, (1, len(change) + change[0]))
                with pytest.raises(ChangedError, match="object"):
                    place.objects.read(place.key, [(10, 20), (30, 40)], facts)
            path.write_bytes(bytes(100_000))


def test_an_interrupt_ends_the_wait_for_any_request(tmp_path: Path) -> None:
    (tmp_path / "object").write_bytes(bytes(5_000_000))
    with RangeServer(tmp_path) as server:
        objects, key = place_of(f"{server.url}/object")
        facts = objects.facts(key)
        server.latency_s = 3.0
        for request in (
            lambda: objects.facts(key),
            lambda: objects.head(key, 100),
            lambda: objects.get(key),
            lambda: objects.read(key, [(0, 10)], facts),
            lambda: objects.read(key, [(0, 10), (3_000_000, 3_000_010)], facts),
        ):
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            begin = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                request()
            assert time.monotonic() - begin < 2


def test_a_request_that_took_long_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "object").write_bytes(bytes(100))
    monkeypatch.setattr("nandarray.remote.objects._TRIES_S", 0.2)
    with RangeServer(tmp_path, fault=lambda number, _: "500" if number else None) as server:
        objects, key = place_of("object", hasty(server.url))
        facts = objects.facts(key)
        server.latency_s = 0.3
        with pytest.raises(MediaError, match="object: bytes 0 to 10"):
            objects.read(key, [(0, 10)], facts)
        assert len(server.requests) == 2


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_tried_again_and_told_with_object_and_range(tmp_path: Path, fault: str) -> None:
    data = os.urandom(3_000_000)
    (tmp_path / "object").write_bytes(data)
    ranges = [(at, at + 1000) for at in range(0, len(data) - 1000, 100_000)]
    once = {1}
    with RangeServer(tmp_path, fault=lambda number, _: fault if number in once else None) as server:
        objects, key = place_of(f"{server.url}/object")
        facts = objects.facts(key)
        if fault == "etag":
            with pytest.raises(ChangedError, match="object"):
                objects.read(key, ranges, facts)
        else:
            assert [bytes(one) for one in objects.read(key, ranges, facts)] == [data[a:b] for a, b in ranges]
    with RangeServer(tmp_path, fault=lambda number, _: fault if number else None) as server:
        objects, key = place_of("object", hasty(server.url))
        facts = objects.facts(key)
        with pytest.raises((ChangedError, MediaError), match="object: (bytes 0 to|the object was replaced)"):
            objects.read(key, ranges, facts)


def test_objects_of_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("moto")
    with s3() as store:
        objects, key = place_of("s3://bucket/deep/key", store)
        assert objects.put_if_absent(key, b"first")
        assert not objects.put_if_absent(key, b"second")
        (tmp_path / "file").write_bytes(bytes(30_000_000))
        objects.put_file("deep/file", str(tmp_path / "file"))
        found = objects.listing("deep")
        assert [(name, facts.bytes) for name, facts in found] == [("deep/file", 30_000_000), ("deep/key", 5)]
        facts = objects.facts(key)
        assert bytes(objects.read(key, [(1, 3)], facts)[0]) == b"ir"
        objects.delete(key)
        objects.delete(key)
        with pytest.raises(ChangedError):
            objects.read(key, [(1, 3)], facts)
        assert objects.listing("deep/key") == [] == objects.listing("none")
        gone, key = place_of("s3://nowhere/key", type(store)("nowhere", **_options(store)))
        with pytest.raises(MediaError, match="no such bucket"):
            gone.get(key)


def _options(store: object) -> dict[str, object]:
    config = dict(store.config)  # type: ignore[attr-defined]
    config.pop("bucket", None)
    return {"config": config, "client_options": {"allow_http": True}}


def test_a_refusal_says_where_credentials_come_from(tmp_path: Path) -> None:
    (tmp_path / "object").write_bytes(b"x")

    class Refusing(RangeServer):
        def answer(self, to, *, body):  # type: ignore[no-untyped-def]
            self._refuse(to, 403, "object")

    with Refusing(tmp_path) as server:
        objects, key = place_of(f"{server.url}/object")
        with pytest.raises(DeniedError, match="AWS_ACCESS_KEY_ID"):
            objects.facts(key)


def test_places_that_are_none() -> None:
    for url in ("s3://bucket", "s3://bucket/", "http://host"):
        with pytest.raises(InvalidError, match="must name an object"):
            place_of(url)
    with pytest.raises(InvalidError, match="must be a URL"):
        place_of("some/path")
    with pytest.raises(InvalidError, match="storage must be"):
        place_of("s3://bucket/key", storage=3)
