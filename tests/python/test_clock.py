"""The modelled clock as a user meets it: the same bytes, modelled times, reports, timelines, bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nandarray
import nandarray.programs
from nandarray.device import Description, devices, load
from nandarray.errors import InvalidError


@pytest.fixture
def store():
    with nandarray.open(device="mqsim-ideal", mode="w") as store:
        yield store


@pytest.mark.parametrize("name", list(devices()))
def test_every_preset_takes_a_store(name: str) -> None:
    data = np.arange(300 * 500, dtype="f4").reshape(300, 500)
    with nandarray.open(device=name, mode="w") as store:
        store["x"] = data
        store.flush()
        np.testing.assert_array_equal(store["x"][:], data)
        np.testing.assert_array_equal(store["x"][::7, 3], data[::7, 3])
        report = store.report()
    assert report["read.requests"] == 2
    assert report["write.bytes"] == data.nbytes
    assert sum(report.energy_j.values()) == pytest.approx(report["energy.device_j"])
    assert 0 < report["utilisation.dies"][0] <= 1


def test_everything_of_a_store_works_unchanged(store: nandarray.Store) -> None:
    data = np.random.default_rng(1).random((64, 64))
    array = store.create("g/a", (64, 64), "f8", compression="zstd+shuffle", attrs={"unit": "m"})
    array[:] = data
    array.resize((80, 64))
    array[64:] = 1.0
    np.testing.assert_array_equal(array[:64], data)
    np.testing.assert_array_equal(array.view((80 * 64,)).read((64,), (64,)), np.ones(64))
    assert array.attrs["unit"] == "m"
    assert store.check()["ok"]
    del store["g/a"]
    assert list(store) == []


def test_one_history_gives_one_report() -> None:
    def run() -> dict[str, object]:
        with nandarray.open(device="tiny", mode="w", seed=3) as store:
            array = store.create("a", (256, 256), "u2")
            rng = np.random.default_rng(0)
            for _ in range(20):
                y, x = rng.integers(0, 200, 2)
                array[y : y + 50, x : x + 50] = rng.integers(0, 100, (50, 50))
            store.flush()
            return store.report().data

    assert run() == run()


def test_a_page_takes_what_the_closed_form_says(store: nandarray.Store) -> None:
    store["page"] = np.arange(2048, dtype="u4")
    before = store.clock.now
    _ = store["page"][:]
    assert (store.clock.now - before) * 1e6 == pytest.approx(102.4, rel=0.01)


def test_a_batch_overlaps(store: nandarray.Store) -> None:
    array = store.create("a", (256, 2048), "u4", building_block=(1, 2048))
    array[:] = np.arange(256 * 2048).reshape(256, 2048)
    took = []
    for depth in (1, 32):
        before = store.clock.now
        with store.clock.batch(queue_depth=depth) as done:
            for i in range(0, 256, 4):
                assert array[i, 7] == i * 2048 + 7
        assert [d.kind for d in done] == ["read"] * 64
        assert all(d.took_s > 0 and not d.failed for d in done)
        took.append(store.clock.now - before)
    assert took[1] * 4 < took[0]


def test_thinking_lets_time_pass(store: nandarray.Store) -> None:
    before = store.clock.now
    store.clock.think(0.25)
    assert store.clock.now - before == pytest.approx(0.25)
    with pytest.raises(nandarray.InvalidError, match="-1"):
        store.clock.think(-1)


def test_a_file_is_a_store_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "a.nand"
    data = np.arange(10_000)
    with nandarray.open(path, "w", device="tiny") as store:
        store["a"] = data
    with nandarray.open(path) as store:  # under the wall clock
        np.testing.assert_array_equal(store["a"][:], data)
    with nandarray.open(path, "r+", device="tiny") as store:
        np.testing.assert_array_equal(store["a"][:], data)
        assert store.clock.mount_time > 0
    with pytest.raises(nandarray.InvalidError, match="must be made for its device"):
        nandarray.open(path, "r+", device="mqsim-ideal")


def test_nowhere_keeps_times_only() -> None:
    def run(where: str) -> tuple[float, np.ndarray]:
        with nandarray.open(device="mqsim-ideal", mode="w", bytes_in=where) as store:  # type: ignore[arg-type]
            store["a"] = np.full(1 << 20, 7, "u1")
            store.flush()
            return store["a"][:], store.clock.now

    (real, t_real), (nothing, t_nothing) = run("memory"), run("nowhere")
    assert t_real == t_nothing
    assert real.min() == 7
    assert nothing.max() == 0


def test_several_devices_in_one_process() -> None:
    with nandarray.open(device="tiny", mode="w") as slow, nandarray.open(device="samsung-z-nand", mode="w") as fast:
        for store in (slow, fast):
            store["a"] = np.arange(100_000)
            _ = store["a"][:]
        assert fast.report()["read.latency.mean_us"] < slow.report()["read.latency.mean_us"]


def test_a_timeline_is_written(tmp_path: Path) -> None:
    trace = tmp_path / "out.pftrace"
    with nandarray.open(device="tiny", mode="w", trace=trace) as store:
        store["a"] = np.arange(1000)
    assert trace.stat().st_size > 1000


def test_a_changed_description() -> None:
    slow = load("mqsim-ideal").with_({"nand.t_read": "300 us"})
    assert isinstance(slow, Description)
    with nandarray.open(device=slow, mode="w") as store:
        store["a"] = np.arange(2048, dtype="u4")
        _ = store["a"][:]
        assert store.report()["read.latency.min_us"] == pytest.approx(327.4, rel=0.01)


def test_reports_are_shown() -> None:
    with nandarray.open(device="tiny", mode="w") as store:
        store["a"] = np.arange(100)
        report = store.report()
        assert "write" in str(report)
        assert "tiny" in repr(report)
        assert report._repr_html_().count("<table>") == 3
        assert "Clock" in repr(store.clock)
    with pytest.raises(KeyError, match="nothing"):
        report["read.nothing"]


def test_programs_take_the_time_of_the_devices_cores() -> None:
    with nandarray.open(device="tiny", mode="w") as store:
        store["a"] = np.arange(100_000)
        store.flush()
        before = store.report()
        assert not any("program" in note for note in before["notes"])
        run = nandarray.offload(nandarray.programs.get("sum", dtype="int64"), [store["a"]])
        report = store.report()
    assert int(run.outputs["result"]) == 4999950000
    assert run.account.form in ("interpreted", "translated")
    (note,) = run.account.notes
    assert "one cycle" in note
    (told,) = (one for one in report["notes"] if "program" in one)
    assert told.startswith("1 program ran on the device's cores")
    assert told in str(report)
    programs = report["programs"]
    assert programs[run.account.form] == 1
    assert programs["interpreted"] + programs["translated"] == 1
    assert f"1 {run.account.form}" in told
    assert programs["instructions"] == run.account.instructions > 100_000 / 8
    assert programs["stored_bytes"] == 800_000
    assert programs["result_bytes"] == 8
    assert programs["work_s"] == pytest.approx(run.account.instructions * 1e-9)
    assert report["energy"]["device_j"] > before["energy"]["device_j"]


def test_programs_need_cores_that_are_described() -> None:
    with nandarray.open(device="mqsim-ideal", mode="w") as store:
        store["a"] = np.arange(10)
        with pytest.raises(InvalidError, match="compute.cores"):
            nandarray.offload(nandarray.programs.get("sum", dtype="int64"), [store["a"]])


def test_native_form_is_for_the_wall_clock() -> None:
    with nandarray.open(device="tiny", mode="w") as store:
        store["a"] = np.arange(10)
        with pytest.raises(InvalidError, match="native"):
            nandarray.offload(nandarray.programs.get("sum", dtype="int64"), [store["a"]], form="native")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "no-such-device", "mode": "w"}, "no preset of that name"),
        ({"device": "tiny"}, "mode='w'"),
        ({"mode": "w"}, "path is needed"),
        ({"path": "a.nand", "device": "tiny", "bytes_in": "memory", "mode": "w"}, "either in a file or not"),
        ({"device": "tiny", "bytes_in": "file", "mode": "w"}, "must have a path"),
        ({"device": "tiny", "bytes_in": "heaven", "mode": "w"}, "heaven"),
        ({"path": "a.nand", "mode": "w", "trace": "t.pftrace"}, "modelled device"),
        ({"device": "tiny", "mode": "w", "threads": 2, "capacity": 5}, "capacity and threads"),
        ({"device": "tiny", "mode": "w", "trace": "/no/such/folder/t.pftrace"}, "timeline"),
    ],
)
def test_bad_input(arguments: dict[str, object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(nandarray.NandarrayError, match=message):
        nandarray.open(**arguments)  # type: ignore[arg-type]


def test_a_wall_clock_store_says_that_it_has_no_other(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as store, pytest.raises(nandarray.InvalidError, match="device="):
        store.report()


def test_a_full_device_says_so_and_loses_nothing() -> None:
    small = load("tiny").with_({"geometry.blocks": 24, "ftl.over_provisioning": "40 %", "ftl.gc_urgent_blocks": 1})
    with nandarray.open(device=small, mode="w") as store:
        store["a"] = np.arange(1000)
        huge = store.create("b", (1 << 30,), "u1")
        with pytest.raises(nandarray.StoreFullError):
            huge[:] = np.ones(1 << 30, "u1")
        np.testing.assert_array_equal(store["a"][:], np.arange(1000))
