"""Promise: an offload on a modelled device is timed as an offload.

Pages go from the flash to the device's cores, which wait for them and are woken by them; instructions take the cores'
cycles; only results cross the link, or go back into the flash. Results are those of the wall clock.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nandarray
import nandarray.programs
from nandarray.device import Description, load
from nandarray.errors import InvalidError, ProgramFailedError

PAGE = 8192
PAGES = 64


def one_die(**changes: str) -> Description:
    """A device with one die: its pages come one after the other, as a closed form can say when."""
    single = {f"geometry.{what}": 1 for what in ("channels", "ways", "dies", "planes")}
    return load("mqsim-ideal").with_(single | {"geometry.blocks": 256, "compute.cores": 1, **changes})


def summed(clock: str) -> tuple[float, nandarray.Report, nandarray.Report]:
    """Sum 64 pages as a stream on one core; modelled seconds, and the reports before and after."""
    with nandarray.open(device=one_die(**{"compute.clock": clock}), mode="w") as store:
        values = np.arange(PAGES * PAGE // 8)
        array = store.create("x", values.shape, values.dtype, building_block=(PAGE // 8,))
        array[...] = values
        store.flush()
        before, began = store.report(), store.clock.now
        run = nandarray.offload(nandarray.programs.get("sum", dtype="int64", kind="stream"), [array])
        assert run.outputs["result"] == values.sum()
        return store.clock.now - began, before, store.report()


# A page of a die (tests/closed_forms.rs): command, sensing, ready, asking, and 8 KiB over the bus.
# The program waits for less than a page of its stream at a time.
AT_ONCE = 1
PAGE_S = (0.290 + 75.020 + 0.030 + PAGE * 0.003) * 1e-6


@pytest.mark.parametrize("clock", ["10 GHz", "1 GHz", "100 MHz"])
def test_a_core_waits_for_each_page_of_its_stream(clock: str) -> None:
    took, _, after = summed(clock)
    programs = after["programs"]
    per_page = programs["work_s"] / PAGES
    assert per_page < PAGE_S, "the flash is what it waits for"
    # The last pages are worked on when all have come; the work on the others is done while the next ones come.
    assert took == pytest.approx(PAGES * PAGE_S + AT_ONCE * per_page, rel=0.01)
    assert programs["wait_s"] == pytest.approx(PAGES * PAGE_S - (PAGES - AT_ONCE) * per_page, rel=0.01)


@pytest.mark.parametrize("clock", ["20 MHz", "1 MHz"])
def test_a_slow_core_keeps_the_flash_waiting(clock: str) -> None:
    took, _, after = summed(clock)
    programs = after["programs"]
    assert programs["work_s"] / PAGES > PAGE_S
    assert took == pytest.approx(AT_ONCE * PAGE_S + programs["work_s"], rel=0.01)
    assert programs["work_s"] == pytest.approx(programs["instructions"] / {"20 MHz": 20e6, "1 MHz": 1e6}[clock])


def test_only_results_cross_the_link() -> None:
    _, before, after = summed("1 GHz")
    assert after["flash"]["senses"]["host"] - before["flash"]["senses"]["host"] == PAGES, "the pages of the input"
    assert after["flash"]["read_bytes"]["host"] - before["flash"]["read_bytes"]["host"] == PAGES * PAGE
    assert after["programs"]["stored_bytes"] == PAGES * PAGE
    assert after["programs"]["result_bytes"] == 8

    def link_bytes(direction: str) -> float:
        busy = [one["utilisation"][direction] * one["until_rest_s"] for one in (before, after)]
        return (busy[1] - busy[0]) * 4e9

    # mqsim-ideal's link: 4 B/ns, 28 B around each packet. Up go the result and two completions, down two entries.
    assert link_bytes("link_up") == pytest.approx((8 + 28) + 2 * (16 + 28), abs=0.01)
    assert link_bytes("link_down") == pytest.approx(2 * (64 + 28), abs=0.01)
    parts = after["energy"]
    assert parts["device_j"] == pytest.approx(
        sum(value for key, value in parts.items() if key.endswith("_j") and key not in ("device_j", "host_cores_j"))
    )


def test_outputs_go_into_the_flash_without_crossing_the_link() -> None:
    with nandarray.open(device="tiny", mode="w") as store:
        values = np.arange(40_000, dtype="f4")
        store["x"] = values
        store["y"] = np.zeros_like(values)
        store.flush()
        before = store.report()
        nandarray.offload(nandarray.programs.get("sqrt", dtype="float32"), [store["x"]], out=store["y"])
        after = store.report()
        assert after["programs"]["written_bytes"] == values.nbytes
        assert after["programs"]["result_bytes"] == 0
        pages = after["flash"]["programs"]["host"] - before["flash"]["programs"]["host"]
        assert pages == -(-values.nbytes // 4096)
        np.testing.assert_allclose(store["y"][...], np.sqrt(values), rtol=1e-6)


@pytest.mark.parametrize("name", ["sum", "minmax", "histogram"])
@pytest.mark.parametrize("kind", ["block", "stream"])
def test_results_are_those_of_the_wall_clock(name: str, kind: str, tmp_path: Path) -> None:
    values = (np.arange(123_457) * 7919 % 251).astype("i4")
    program = nandarray.programs.get(name, dtype="int32", kind=kind)
    got = []
    for where in ({"path": tmp_path / "a.nand"}, {"device": "tiny"}, {"device": one_die(**{"compute.clock": "1 MHz"})}):
        with nandarray.open(mode="w", **where) as store:
            store["x"] = values
            scalars = {"low": 0, "high": 251} if name == "histogram" else {}
            got.append(nandarray.offload(program, [store["x"]], scalars, task_bytes=50_000).outputs)
    for other in got[1:]:
        assert got[0].keys() == other.keys()
        for key, value in got[0].items():
            np.testing.assert_array_equal(value, other[key])


def test_bytes_of_the_caller_cross_the_link() -> None:
    with nandarray.open(device="tiny", mode="w") as store:
        store["x"] = np.arange(1000.0)
        add = nandarray.programs.get("add", dtype="float64")
        mine = np.arange(1000.0)[::-1].copy()
        run = nandarray.offload(add, [store["x"], mine])
        np.testing.assert_array_equal(next(iter(run.outputs.values())), np.full(1000, 999))
        programs = store.report()["programs"]
        assert programs["host_bytes"] == mine.nbytes
        assert programs["stored_bytes"] == mine.nbytes
        assert programs["result_bytes"] == mine.nbytes


def test_four_cores_are_nearly_four_times_as_fast_as_one() -> None:
    values = np.arange(1 << 18, dtype="f8")
    took = {}
    for cores in (1, 4):
        device = load("mqsim-ideal").with_({"compute.cores": cores, "compute.clock": "20 MHz"})
        with nandarray.open(device=device, mode="w") as store:
            array = store.create("x", values.shape, values.dtype, building_block=(1024,))
            array[...] = values
            store.flush()
            began = store.clock.now
            nandarray.offload(nandarray.programs.get("sum", dtype="float64"), [array], task_bytes=1 << 15)
            took[cores] = store.clock.now - began
    # Not quite four times: every task of a core waits for its first block.
    assert 3.8 < took[1] / took[4] <= 4


def test_a_program_that_fails_leaves_the_device_usable() -> None:
    with nandarray.open(device="tiny", mode="w") as store:
        store["x"] = np.arange(100_000)
        with pytest.raises(ProgramFailedError):
            nandarray.offload(nandarray.programs.get("sum", dtype="int64"), [store["x"]], instructions=10)
        run = nandarray.offload(nandarray.programs.get("sum", dtype="int64"), [store["x"]])
        assert run.outputs["result"] == np.arange(100_000).sum()
        assert store["x"].submit(7).result() == 7


def test_one_program_gives_one_trace() -> None:
    def run() -> tuple[str, float]:
        _, _, after = summed("1 GHz")
        return after["hash"], after["until_rest_s"]

    assert run() == run()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("assasin-baseline", "block"),
        ("assasin-prefetch", "block"),
        ("assasin-sp", "block"),
        ("assasin-sb", "stream"),
        ("assasin-sb-cache", "stream"),
    ],
)
def test_the_cores_of_assasin_run_programs_for_them(name: str, kind: str) -> None:
    values = (np.arange(100_000) * 7919 % 251).astype("i4")
    program = nandarray.programs.get("sum", dtype="int32", kind=kind)
    device = load(name).with_({"geometry.blocks": 24, "ftl.over_provisioning": "60 %", "compute.isa": "any"})
    with nandarray.open(device=device, mode="w") as store:
        store["x"] = values
        store.flush()
        run = nandarray.offload(program, [store["x"]], task_bytes=1 << 15)
        assert run.outputs["result"] == values.sum()
        programs = store.report()["programs"]
        cores = programs["timed_cores"]
        pages = -(-values.nbytes // 4096)
        assert cores["pages_past_dram"] == (0 if kind == "block" and name != "assasin-sp" else pages)
        seconds = dict(cores["seconds_by_reason"])
        waits = seconds.pop("stream_wait")
        assert programs["work_s"] == pytest.approx(sum(seconds.values()), rel=0.01)
        assert 0 < waits <= programs["wait_s"]
        assert bool(cores["caches"]) == (name != "assasin-sp" and name != "assasin-sb")
        assert {part["name"] for part in cores["components"]} > {"pipeline"}


def test_a_timeline_has_the_states_of_each_core(tmp_path: Path) -> None:
    trace = tmp_path / "cores.pftrace"
    values = np.arange(300_000, dtype="i4")
    changes = {"geometry.blocks": 24, "ftl.over_provisioning": "60 %", "compute.isa": "any"}
    with nandarray.open(device=load("assasin-sb").with_(changes), mode="w", trace=trace) as store:
        store["x"] = values
        store.flush()
        program = nandarray.programs.get("sum", dtype="int32", kind="stream")
        run = nandarray.offload(program, [store["x"]], task_bytes=1 << 13)
        assert run.outputs["result"] == values.astype("i8").sum()
    written = trace.read_bytes()
    # 147 tasks, 16 of them a run: each of the eight cores has one.
    for number in range(8):
        assert f"crossbar to core {number}".encode() in written
    assert b"compute cores" in written
    assert b"run" in written
    assert b"wait for input" in written


def test_a_core_refuses_what_it_cannot_run() -> None:
    program = nandarray.programs.get("sum", dtype="int32", kind="stream")
    for changes, says in (
        ({}, 'compute.isa = "own"'),
        (
            {"compute.isa": "any", "compute.core.streams": 0, "compute.core.input_source": "dram"},
            "compute.core.streams = 0",
        ),
        (
            {"compute.isa": "any", "compute.core.input_source": "ping-pong", "compute.core.pingpong_bytes": 131072},
            'compute.core.input_source = "ping-pong"',
        ),
    ):
        device = load("assasin-sb").with_({"geometry.blocks": 24, "ftl.over_provisioning": "60 %"} | changes)
        with nandarray.open(device=device, mode="w") as store:
            store["x"] = np.arange(1000, dtype="i4")
            with pytest.raises(ValueError, match=says):
                nandarray.offload(program, [store["x"]])


def beside(interval_s: float, reads: int = 200) -> tuple[float, list[float], nandarray.Report]:
    """Run a program while 4 KiB reads of another array arrive at a rate; its time, and the report."""
    device = load("mqsim-ideal").with_({"compute.cores": 4, "compute.clock": "1 GHz"})
    with nandarray.open(device=device, mode="w") as store:
        values = np.arange(1 << 20, dtype="f8")
        store["x"], store["y"] = values, values
        store.flush()
        futures = []
        for i in range(reads):
            with store.clock.later(i * interval_s):
                futures.append(store["y"].submit(slice(i * 5000, i * 5000 + 512)))
        began = store.clock.now
        run = nandarray.offload(nandarray.programs.get("sum"), [store["x"]])
        took = store.clock.now - began
        assert run.outputs["result"] == values.sum()
        firsts = [float(future.result()[0]) for future in futures]
        return took, firsts, store.report()


def test_reads_of_the_host_go_on_beside_a_program() -> None:
    alone, _, quiet = beside(0.0, reads=0)
    took, firsts, report = beside(5e-6)
    assert firsts == [i * 5000.0 for i in range(200)]
    assert "host_beside" not in quiet["programs"]
    host = report["programs"]["host_beside"]
    # Reads arrive in the first millisecond, and all ended while the program ran; both share channels and dies.
    assert took > 5e-3
    assert host["requests"] == 200
    assert alone < took < 2 * alone
    assert host["latency"]["p50_us"] < host["latency"]["p99_us"]
    assert "beside" in str(report)
    # The same history gives the same times.
    assert beside(5e-6)[0] == took


def test_a_busier_program_delays_reads_of_the_host() -> None:
    """Promise: reads beside a program take longer than the same reads alone."""
    _, _, report = beside(5e-6)
    device = load("mqsim-ideal").with_({"compute.cores": 4, "compute.clock": "1 GHz"})
    with nandarray.open(device=device, mode="w") as store:
        store["x"] = store["y"] = np.arange(1 << 20, dtype="f8")
        store.flush()
        before = store.report()["read"]["requests"]
        for i in range(200):
            with store.clock.later(i * 5e-6):
                future = store["y"].submit(slice(i * 5000, i * 5000 + 512))
        future.result()
        store.clock.settle()
        alone = store.report()["read"]
    assert alone["requests"] - before == 200
    assert report["programs"]["host_beside"]["latency"]["mean_us"] > alone["latency"]["mean_us"]


def test_programs_of_one_call_share_the_device() -> None:
    """Promise: two programs with one task each take two cores as long as the longer of them takes one."""
    device = load("mqsim-ideal").with_({"compute.cores": 2, "compute.clock": "20 MHz"})
    with nandarray.open(device=device, mode="w") as store:
        store["x"], store["y"] = np.arange(1 << 16, dtype="f8"), np.ones(1 << 15)
        store.flush()
        total = nandarray.programs.get("sum")
        steps = {"x": total.on(store["x"]), "y": total.on(store["y"])}
        sums = {"x": float(sum(range(1 << 16))), "y": float(1 << 15)}

        def took(**wanted: nandarray.Step) -> float:
            began = store.clock.now
            run = nandarray.offload(wanted, task_bytes=1 << 20)
            assert {name: float(run.outputs[name]) for name in wanted} == {name: sums[name] for name in wanted}
            return store.clock.now - began

        long, short = took(x=steps["x"]), took(y=steps["y"])
        assert long > 1.8 * short, "the cores are what takes time"
        assert took(**steps) == pytest.approx(long, rel=0.05)


def test_a_program_waits_for_earlier_writes() -> None:
    device = load("mqsim-ideal").with_({"compute.cores": 1, "compute.clock": "1 GHz"})
    with nandarray.open(device=device, mode="w") as store:
        store["x"] = np.arange(4096, dtype="f8")
        store["y"] = np.zeros(4096)
        read = store["y"].submit(slice(0, 512))
        with store.clock.later(1e-3):
            write = store["y"].submit_write(slice(0, 4096), np.ones(4096))
        with pytest.raises(nandarray.errors.NandarrayError, match="later"):
            store.clock.later(-1.0).__enter__()
        sums = nandarray.offload(nandarray.programs.get("sum"), [store["y"]])
        assert sums.outputs["result"] == 4096.0
        assert store.clock.now > 1e-3, "it begins when the earlier write has ended"
        assert read.result().sum() == 0.0
        write.result()
        assert store["y"][:].sum() == 4096.0


def test_pingpong_computes_while_it_fills() -> None:
    """Promise: where computing takes longer than filling, a run takes its work and the first fill, to 1 %."""
    slow = {"compute.cores": 1, "compute.isa": "any", "compute.clock": "250 MHz"}
    device = nandarray.devices()["assasin-sp"].with_(slow)
    program = nandarray.programs.get("sum", dtype="int32", kind="block")
    with nandarray.open(device=device, mode="w") as store:
        store["x"] = np.arange(1 << 20, dtype="i4")
        store.flush()
        store.clock.settle()
        before = store.clock.now
        nandarray.offload(program, [store["x"]], task_bytes=1 << 16)
        took = store.clock.now - before
        seconds = dict(store.report()["programs"]["timed_cores"]["seconds_by_reason"])
    work = sum(seconds.values()) - seconds["stream_wait"]
    # Sensing, and two pages of 4 KiB on each of eight channels of 1 GB/s.
    assert abs(took / (work + 30e-6 + 8e-6) - 1) < 0.01


@pytest.mark.parametrize(("device", "kind"), [("mqsim-ideal", "block"), ("assasin", "block"), ("assasin-sb", "stream")])
@pytest.mark.parametrize("written", [slice(0, 0), slice(0, 3000), slice(5000, 8192)])
def test_blocks_that_were_never_written_are_fill_values_to_programs(device: str, kind: str, written: slice) -> None:
    described = load(device)
    if device == "mqsim-ideal":
        described = described.with_({"compute.cores": 2, "compute.clock": "1 GHz"})
    with nandarray.open(device=described, mode="w") as store:
        array = store.create("x", (8192,), "u1", building_block=(1024,), fill_value=3)
        array[written] = 1
        store.flush()
        program = nandarray.programs.get("sum", dtype="uint8", kind=kind, target="rv32im")
        wanted = 8192 * 3 - 2 * (written.stop - written.start)
        assert nandarray.offload(program, [array], task_bytes=4096).result == wanted
        assert array[4000] == 3, "the device serves on"


def test_tasks_fit_the_halves_of_cores_if_nothing_is_said() -> None:
    device = load("assasin-sp").with_({"compute.isa": "any"})
    with nandarray.open(device=device, mode="w") as store:
        store["a"] = np.arange(100_000, dtype="float32")
        store["b"] = np.arange(100_000, dtype="float32")
        store.flush()
        added = nandarray.programs.get("add", dtype="float32")
        found = nandarray.offload(added, [store["a"], store["b"]])
        assert np.array_equal(found.outputs[added.outputs[0]["name"]], np.arange(100_000, dtype="float32") * 2)
        assert found.account.tasks >= 2 * 400_000 // (device.resolved["compute"]["core"]["pingpong_bytes"] // 2)
        with pytest.raises(InvalidError, match="give a smaller task_bytes"):
            nandarray.offload(added, [store["a"], store["b"]], task_bytes=1 << 20)
