"""Sweeps: what files say, which points follow, kills and failures on the way, and the front of the best."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nandarray import device, lab
from nandarray.errors import InvalidError, NotFoundError
from nandarray.lab import write_sweep
from nandarray.lab.cost import WEIGHTS, cost, weights_of
from nandarray.lab.pareto import front
from nandarray.lab.quantities import parse, span
from nandarray.lab.sweep_spec import read_spec
from nandarray.units import parse_size

BASE: dict[str, Any] = {
    "name": "test",
    "device": "tiny",
    "axes": {"geometry": {"channels": [1, 2, 300]}, "workload.depth": [1, 16]},
    "workload": {"requests": 100, "size": "4 KiB"},
}

SEED = {"seed": [1]}
EXPERIMENT_OF: dict[str, Any] = {"workload": {"experiment": "model.queue-depth"}, "axes": SEED}


def files(folder: Path) -> dict[str, bytes]:
    found = {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}
    del found["environment.json"]
    return found


# --- quantities -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "values"),
    [
        ({"from": "20 us", "to": "80 us", "steps": 4}, ["20 us", "40 us", "60 us", "80 us"]),
        ({"from": "500 ns", "to": "2 us", "steps": 3, "scale": "log"}, ["500 ns", "1000 ns", "2000 ns"]),
        (
            {"from": "4 KiB", "to": "1 MiB", "steps": 5, "scale": "log"},
            ["4 KiB", "16 KiB", "64 KiB", "256 KiB", "1024 KiB"],
        ),
        ({"from": 1, "to": 64, "steps": 7, "scale": "log"}, [1, 2, 4, 8, 16, 32, 64]),
        ({"from": 1, "to": 4, "steps": 10}, [1, 2, 3, 4]),
        ({"from": 0.0, "to": 0.3, "step": 0.1}, [0.0, 0.1, 0.2, 0.3]),
        ({"from": 2, "to": 9, "step": 3}, [2, 5, 8]),
        ({"from": "7 %", "to": "28 %", "step": "7 %"}, ["7 %", "14 %", "21 %", "28 %"]),
        ({"from": "0 us", "to": "1 ms", "steps": 3}, ["0 us", "500 us", "1000 us"]),
        ({"from": 8, "to": 1, "steps": 4, "scale": "log"}, [8, 4, 2, 1]),
    ],
)
def test_a_range_gives_its_values(about: dict[str, Any], values: list[Any]) -> None:
    assert span(about, "x") == values


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"from": "20 us", "to": "80 KiB", "steps": 2}, "of different kinds"),
        ({"from": "20 us", "to": 80, "steps": 2}, "of different kinds"),
        ({"from": 1, "steps": 2}, "must have from and to"),
        ({"from": 1, "to": 2}, "must have either steps"),
        ({"from": 1, "to": 2, "steps": 2, "step": 1}, "must have either steps"),
        ({"from": 1, "to": 2, "steps": 1}, "from 2 to"),
        ({"from": 1, "to": 2, "steps": True}, "from 2 to"),
        ({"from": 0, "to": 2, "steps": 3, "scale": "log"}, "both ends above 0"),
        ({"from": 1, "to": 2, "steps": 3, "scale": "ln"}, "'linear' or 'log', not 'ln'"),
        ({"from": 2, "to": 1, "step": 1}, "do not lead from 2 to 1"),
        ({"from": 1, "to": 2, "step": 0}, "do not lead"),
        ({"from": 1, "to": 2, "step": "1 us"}, "step is of another kind"),
        ({"from": 1, "to": 2, "step": 1, "scale": "log"}, "must have steps, not a step"),
        ({"from": "slc", "to": "qlc", "steps": 2}, "a value must be a number, .* not 'slc'"),
        ({"from": 1, "to": 2, "count": 3}, "not 'count'"),
    ],
)
def test_a_wrong_range_is_an_error(about: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidError, match=f"x: .*{message}"):
        span(about, "x")


@pytest.mark.parametrize(
    ("text", "suffix", "scaled"),
    [
        ("20 us", "_us", 20.0),
        ("1.5ms", "_us", 1500.0),
        ("2 GB/s", "_bytes_per_s", 2e9),
        ("8 Gb/s", "_bytes_per_s", 1e9),
        ("4.1 uJ", "_uj", 4.1),
        ("60 pJ/B", "_pj_per_byte", 60.0),
        ("30 mW", "_mw", 30.0),
        (3, "", 3.0),
    ],
)
def test_quantities_are_read(text: object, suffix: str, scaled: float) -> None:
    found = parse(text)
    assert found is not None
    assert (found.suffix, found.scaled) == (suffix, pytest.approx(scaled))


@pytest.mark.parametrize("text", ["none", "PCIe 4 x4", "333 MT/s x8", "25 mA at 3.3 V", True, [1], "", ".", "us"])
def test_words_are_no_quantities(text: object) -> None:
    assert parse(text) is None


def test_sizes_are_whole_bytes() -> None:
    assert parse_size("1.5 KiB", "x") == 1536
    for wrong in ("1.5 B", "3 us", "x", None):
        with pytest.raises(InvalidError, match="a size must be like"):
            parse_size(wrong, "x")


# --- points -----------------------------------------------------------------------------------------------------------


def test_axes_are_multiplied_unless_they_go_together() -> None:
    axes = {"geometry.channels": [1, 2], "geometry.ways": [1, 2], "workload.depth": [1, 4, 9]}
    whole = read_spec(BASE | {"axes": axes})
    assert whole.count == len(whole.points()) == len(set(whole.points())) == 12
    assert whole.settings(whole.points()[1]) == {"geometry.channels": 1, "geometry.ways": 1, "workload.depth": 4}
    pairs = read_spec(BASE | {"axes": axes, "zip": [["geometry.channels", "geometry.ways"]]})
    assert [pairs.settings(point) for point in pairs.points()] == [
        {"geometry.channels": n, "geometry.ways": n, "workload.depth": depth} for n in (1, 2) for depth in (1, 4, 9)
    ]
    del axes["workload.depth"]
    assert read_spec(BASE | {"axes": axes, "zip": True}).points() == [(0, 0), (1, 1)]


def test_columns_have_units_where_values_do() -> None:
    axes = {
        "nand.t_read": ["20 us", "1 ms"],
        "bus.rate": ["333 MT/s x8", "1 GB/s"],
        "ftl.over_provisioning": ["7 %", 0.28],
        "nand.multi_plane": [True, False],
        "dram.size": ["1 MiB", "1 GB"],
        "nand.t_program": [["1 ms", "2 ms"], "3 ms"],
        "precondition": ["empty", "steady", 1],
    }
    found = {axis.column: axis.cells for axis in read_spec(BASE | {"axes": axes}).axes}
    assert found == {
        "nand.t_read_us": (20.0, 1000.0),
        "bus.rate": ("333 MT/s x8", "1 GB/s"),
        "ftl.over_provisioning": (0.07, 0.28),
        "nand.multi_plane": (True, False),
        "dram.size_bytes": (1 << 20, 10**9),
        "nand.t_program": ("1 ms, 2 ms", "3 ms"),
        "precondition": ("empty", "steady", "1"),
    }


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"axis": {}}, "'axis' is no part of a sweep; did you mean 'axes'"),
        ({"name": "a/b"}, "'a/b' is no name"),
        ({"device": "tinny"}, 'device: .*tinny.*"tiny"'),
        ({"device": 3}, "neither a preset nor a file"),
        ({"axes": {}}, "a sweep must have axes"),
        ({"axes": {"nand.tread": [1]}}, "nand.tread: no such key; did you mean 'nand.t_read'"),
        ({"axes": {"nand.t_read": "20 us"}}, "an axis must have a list of values, or a range, not '20 us'"),
        ({"axes": {"nand.t_read": []}}, "an axis must have a list"),
        ({"axes": {"nand.t_read": ["1 us", "1 us"]}}, "a value comes twice"),
        ({"axes": {"workload.dept": [1]}}, "no setting 'dept'; did you mean 'depth'"),
        ({"axes": {"parameters.x": [1]}}, "no such key"),
        ({"axes": {"workload.size": ["4 us"]}}, "a size must be like .*, not '4 us'"),
        ({"axes": {"precondition": ["old"]}}, "not 'old'"),
        ({"axes": {"seed": [-1]}}, "not -1"),
        ({"axes": {"device": [1]}}, "neither a preset nor a file"),
        ({"axes": {"device": ["tinny"]}}, "axes: device: .*tinny"),
        ({"set": {"nand.tread": 1}}, "set: 'nand.tread' is not a key"),
        ({"set": 3}, "set must be a table, not 3"),
        ({"workload": {"requests": 1, "dept": 2}}, "workload: no setting 'dept'"),
        ({"workload": {}}, "it needs an end: requests, bytes or seconds"),
        ({"workload": {"requests": 1, "size": "x"}}, "workload: size: a size must be like .*, not 'x'"),
        ({"zip": 3}, "zip must be true, or lists"),
        ({"zip": [["a"]]}, "zip: 'a' is no axis"),
        ({"zip": True}, "geometry.channels has 3, workload.depth has 2"),
        ({"zip": [["workload.depth"], ["workload.depth"]]}, "comes twice"),
        ({"pareto": {"cost": "low"}}, "cost must be 'max' or 'min', not 'low'"),
        ({"cost": {"dice": 1}}, "'dice' is no part; did you mean 'die'"),
        ({"cost": {"die": "1"}}, "the weight of die must be a number"),
        ({"measure": {"x": {"table": "t"}}}, "measure is for experiments"),
        ({"seed": 1.5}, "a seed must be a whole number"),
        ({"axes": {"workload.offset": {"from": 0, "to": 9999, "step": 1}, "seed": list(range(200))}}, "2,000,000"),
        (EXPERIMENT_OF | {"axes": {"workload.depth": [1]}}, "are called parameters.NAME"),
        (EXPERIMENT_OF | {"axes": {"parameters.dephts": [1]}}, "no parameter 'dephts'"),
        (EXPERIMENT_OF | {"measure": {"x": {"how": "mean"}}}, "measure: x must be a table"),
        (EXPERIMENT_OF | {"measure": {"x": {"table": "t", "how": "p50"}}}, "not 'p50'"),
        ({"workload": {"experiment": "model.channels", "size": 1}, "axes": SEED}, "'size' is for no experiment"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_sweep_is_named(said: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        read_spec(BASE | said)


def test_a_wrong_file_is_named() -> None:
    Path("bad.toml").write_text("axes = [")
    with pytest.raises(InvalidError, match=r"bad\.toml is no TOML: "):
        lab.sweep("bad.toml")
    Path("wrong.toml").write_text("axis = 3")
    with pytest.raises(InvalidError, match=r"wrong\.toml: 'axis' is no part"):
        lab.sweep("wrong.toml")
    with pytest.raises(FileNotFoundError):
        lab.sweep("missing.toml")
    with pytest.raises(FileNotFoundError, match=r"missing\.csv"):
        lab.sweep(BASE | {"workload": {"trace": "missing.csv"}, "axes": {"geometry.channels": [1]}})
    with pytest.raises(NotFoundError, match="no experiment 'model.queue'"):
        lab.sweep(BASE | {"workload": {"experiment": "model.queue"}})
    assert not Path("lab-runs").exists()


# --- running ----------------------------------------------------------------------------------------------------------


def test_a_sweep_measures_what_a_replay_does_and_keeps_failures_apart() -> None:
    import nandarray

    told: list[tuple[str, int, int]] = []
    done = lab.sweep(BASE, jobs=1, progress=lambda *now: told.append(now))
    assert told == [("test", n, 6) for n in range(7)]
    frame = done.table()
    assert frame["point"].tolist() == [0, 1, 2, 3]
    assert frame["geometry.channels"].tolist() == [1, 1, 2, 2]
    run = nandarray.replay(
        nandarray.Synthetic(requests=100, depth=16, seed=1), device=device.load("tiny").with_(geometry__channels=2)
    )
    assert frame["iops"][3] == run["all"]["iops"]
    assert frame["latency_p99_us"][3] == run["all"]["latency"]["p99_us"]
    assert frame["cost"][3] == cost(run.description)
    assert [failed["point"] for failed in done.failures] == [4, 5]
    assert all("geometry.channels = 300 is out of range" in failed["error"] for failed in done.failures)
    assert {failed["kind"] for failed in done.failures} == {"DescriptionError"}
    assert (len(done), done.data["failed"]) == (6, 2)
    assert repr(done).endswith("6 points over 3 geometry.channels x 2 workload.depth, 2 failed>")
    assert done.table("failures")["workload.depth"].tolist() == [1, 16]
    again = lab.load_sweep(done.path)
    assert again.data == done.data
    assert [one.id for one in lab.sweeps()] == [done.id]
    assert lab.runs() == []


def test_any_number_of_processes_and_the_file_give_the_same_bytes() -> None:
    alone = files(lab.sweep(BASE, jobs=1, runs="alone").path)
    assert files(lab.sweep(BASE, jobs=2, runs="two").path) == alone
    Path("test.toml").write_text(
        'device = "tiny"\n[axes]\n"geometry.channels" = [1, 2, 300]\nworkload.depth = [1, 16]\n'
        "[workload]\nrequests = 100\nsize = 4096\n"
    )
    done = lab.sweep("test.toml", jobs=1)
    assert files(done.path) == alone
    assert lab.sweep("test.toml", jobs=1).environment["before"] == []
    assert lab.sweep("test.toml", reuse=True).environment["before"] == []


def test_a_device_is_an_axis_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "mine"\nsummary = "x"\nbase = "tiny"\n')
    (tmp_path / "test.toml").write_text(
        'axes.device = ["tiny", "mine.toml", "mqsim-ideal"]\nset.nand.t_read = "30 us"\nworkload.requests = 50\n'
        'device = "mine.toml"\nprecondition = "empty"\n'
    )
    os.chdir("/")
    frame = lab.sweep(tmp_path / "test.toml", jobs=1, runs=tmp_path / "runs").table()
    assert frame["device"].tolist() == ["tiny", "mine.toml", "mqsim-ideal"]
    assert frame["iops"][0] == frame["iops"][1] != frame["iops"][2]


def test_a_trace_is_swept() -> None:
    with Path("trace.csv").open("w") as file:
        for n in range(100):
            file.write(f"{128166372003061629 + 500 * n},usr,0,Read,{n * 8192},4096,0\n")
    said = BASE | {"workload": {"trace": "trace.csv", "requests": 50}, "axes": {"workload.time_scale": [1.0, 0.5]}}
    first = lab.sweep(said, jobs=1)
    assert first.table()["elapsed_s"][0] > first.table()["elapsed_s"][1]
    Path("trace.csv").write_text(Path("trace.csv").read_text().replace("8192", "4096", 1) * 2)
    assert lab.sweep(said, jobs=1).id != first.id


def test_mixed_sizes_and_seeds_are_swept() -> None:
    workload = {"requests": 50, "size": {"4 KiB": 3, "16 KiB": 1}, "hot": [0.2, 0.8]}
    frame = lab.sweep(BASE | {"workload": workload, "axes": {"seed": [1, 2, 3]}}, jobs=1).table()
    assert frame["elapsed_s"].nunique() == 3


def test_an_experiment_is_swept_with_its_parameters_and_the_devices_keys() -> None:
    said = {
        "name": "experiment",
        "device": "tiny",
        "axes": {"parameters.size": [4096, 8192], "nand.t_read": ["20 us", "40 us"]},
        "workload": {"experiment": "model.queue-depth", "profile": "small", "parameters": {"depths": [4]}},
        "measure": {"peak": {"table": "depths", "column": "bytes_per_s", "how": "max"}},
        "pareto": {"peak": "max", "nand.t_read_us": "max"},
    }
    done = lab.sweep(said, jobs=1)
    frame = done.table()
    assert done.failures == []
    assert frame["peak"].tolist() == frame["bytes_per_s"].tolist()
    assert frame["peak"][0] > frame["peak"][1]
    assert len(frame["cost"].unique()) == 1
    named = lab.sweep(said | {"measure": {"peak": {"table": "depth"}}}, jobs=1)
    assert "no table 'depth'; did you mean 'depths'" in named.failures[0]["error"]
    assert named.table().empty
    assert "failed: 4" in named._repr_html_()


EXPERIMENT = """
import os, time
from nandarray import lab
def run(context):
    if context["n"] == 3:
        os._exit(9)
    if context["n"] == 5:
        raise ValueError("five\\nis too many")
    return lab.Result(tables={"t": [{"twice": 2 * context["n"]}]})
EXPERIMENT = lab.Experiment("dies", "", "", run, parameters={"n": lab.Parameter(0, "")})
"""


def test_a_point_that_ends_its_process_fails_alone() -> None:
    Path("dies.py").write_text(EXPERIMENT)
    said = {"name": "dies", "axes": {"parameters.n": list(range(8))}, "workload": {"experiment": "dies.py"}}
    done = lab.sweep(said, jobs=2)
    assert done.table()["twice"].tolist() == [0, 2, 4, 8, 12, 14]
    died, raised = done.failures
    assert (died["parameters.n"], died["kind"]) == (3, "BrokenProcessPool")
    assert (raised["parameters.n"], raised["kind"], raised["error"]) == (5, "ValueError", "five is too many")


def test_dask_runs_the_same_sweep() -> None:
    distributed = pytest.importorskip("distributed")
    alone = files(lab.sweep(BASE, jobs=1, runs="alone").path)
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,  # threads, but all of it goes over the network
            protocol="tcp://",
            host="127.0.0.1",
            dashboard_address=":0",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        found = files(lab.sweep(BASE, executor=client.get_executor(), runs="dask").path)
    assert found == alone


# --- kills ------------------------------------------------------------------------------------------------------------

SCRIPT = """
from nandarray import lab
if __name__ == "__main__":
    lab.sweep("slow.toml", jobs=2)
"""
SLOW = 'device = "tiny"\n[axes]\nworkload.depth = {from = 1, to = 400, step = 1}\n[workload]\nrequests = 2000\n'


def test_a_killed_sweep_goes_on_where_it_was() -> None:
    Path("slow.toml").write_text(SLOW)
    Path("script.py").write_text(SCRIPT)
    started = subprocess.Popen([sys.executable, "script.py"])
    journal: list[Path] = []
    deadline = time.monotonic() + 60
    while not journal or journal[0].read_bytes().count(b"\n") < 20:
        assert time.monotonic() < deadline
        assert started.poll() is None
        time.sleep(0.02)
        journal = list(Path("lab-runs").glob("*.part/journal.jsonl"))
    workers = [int(pid) for pid in Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()]
    started.send_signal(signal.SIGKILL)
    started.wait()
    with journal[0].open("ab") as file:
        file.write(b'{"point": 399, "seco')  # as a kill may leave it
    there = journal[0].read_bytes().count(b"\n")
    assert there < 400
    assert lab.sweeps() == []
    done = lab.sweep("slow.toml", jobs=1)
    assert done.environment["resumed"] == there
    assert len(done.table()) == 400
    assert os.listdir("lab-runs") == [done.id]
    assert files(done.path) == files(lab.sweep("slow.toml", jobs=2, runs="fresh").path)
    assert workers
    for pid in workers:  # they end with the process that they work for
        while Path(f"/proc/{pid}").exists() and "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
            assert time.monotonic() < deadline + 30
            time.sleep(0.05)


def test_a_journal_is_read_up_to_the_first_line_that_is_torn(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    good = b'{"point": 0, "measures": {}}\n{"point": 2, "kind": "E", "error": "x"}\n'
    for torn in (b"", b'{"point": 1', b'{"point": 1, "measures": {}}', b"\x00\x00\n", b"3\n", b'{"point": 9}\n'):
        file.write_bytes(good + torn)
        journal = write_sweep.Journal(file, 5)
        assert sorted(journal.done) == [0, 2]
        journal.append([{"point": 1, "seconds": 0.0, "measures": {"x": 0.1}}])
        journal.close()
        again = write_sweep.Journal(file, 5)
        again.close()
        assert sorted(again.done) == [0, 1, 2]


def test_a_sweep_starts_anew_if_told_to() -> None:
    spec = read_spec(BASE)
    done = lab.sweep(BASE, jobs=1)
    part = Path(f"{done.path}.part")
    part.mkdir()
    wrong = b'{"point": 0, "seconds": 0, "measures": {"bytes_per_s": 1.0}}\n'
    (part / "journal.jsonl").write_bytes(wrong)
    assert lab.sweep(BASE, jobs=1, resume=False).environment["before"] == []
    part.mkdir()
    (part / "journal.jsonl").write_bytes(wrong)
    assert lab.sweep(BASE, jobs=1).table()["bytes_per_s"][0] == 1.0
    assert spec.count == 6


# --- the front and the cost -------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(*[st.integers(0, 5) | st.none()] * 3), min_size=1, max_size=30),
    st.lists(st.sampled_from(["max", "min"]), min_size=3, max_size=3),
)
def test_a_point_is_on_the_front_if_none_beats_it(points: list[tuple[int | None, ...]], ways: list[str]) -> None:
    columns = {f"c{n}": [point[n] for point in points] for n in range(3)}
    found = front(columns, {f"c{n}": way for n, way in enumerate(ways)})

    def beats(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
        signed = [(a, b) if way == "max" else (-a, -b) for a, b, way in zip(one, other, ways, strict=True)]
        return all(a >= b for a, b in signed) and any(a > b for a, b in signed)

    whole = [point for point in points if None not in point]
    assert found == [None not in point and not any(beats(other, point) for other in whole) for point in points]


def test_a_front_needs_columns_and_ways() -> None:
    with pytest.raises(InvalidError, match="'x' is no column"):
        front({}, {"x": "max"})
    with pytest.raises(InvalidError, match="'max' or 'min'"):
        front({"x": [1]}, {"x": "best"})
    with pytest.raises(InvalidError, match="must have an objective"):
        front({"x": [1]}, {})


def test_a_sweeps_front_may_be_over_other_columns() -> None:
    done = lab.sweep(BASE, jobs=1)
    assert set(done.objectives) == {"bytes_per_s", "latency_p99_us", "j_per_byte", "cost"}
    best = done.pareto({"iops": "max"})
    assert best["iops"].tolist() == [done.table()["iops"].max()]
    assert set(done.pareto()["point"]) <= set(range(4))
    with pytest.raises(InvalidError, match="no column 'iop' in the sweep; did you mean 'iops'"):
        done.pareto({"iop": "max"})


def test_cost_is_the_stated_sum() -> None:
    tiny = device.load("tiny")
    facts, resolved = tiny.effective, tiny.resolved
    assert cost(tiny) == pytest.approx(
        facts["raw_bytes"] / 1e9 / 2
        + facts["dies"]
        + 2 * resolved["geometry"]["channels"]
        + 15 * resolved["dram"]["bytes"] / 2**30
        + 5 * (resolved["controller"]["cores"] + resolved["compute"]["cores"])
    )
    assasin = device.load("assasin").resolved
    alone = dict.fromkeys(WEIGHTS, 0.0) | {"core": 1.0}
    # One core for the firmware, eight for programs.
    assert cost(device.load("assasin"), alone) == assasin["controller"]["cores"] + assasin["compute"]["cores"] == 9
    only = dict.fromkeys(WEIGHTS, 0.0) | {"channel": 1.0}
    assert cost(tiny, only) == resolved["geometry"]["channels"]
    assert weights_of({"die": 3}) == WEIGHTS | {"die": 3.0}


# --- pandas, xarray, notebooks ----------------------------------------------------------------------------------------


def test_a_sweep_becomes_arrays_and_shows_itself() -> None:
    done = lab.sweep(BASE, jobs=1)
    found = done.to_xarray()
    assert dict(found.sizes) == {"geometry.channels": 2, "workload.depth": 2}
    assert np.isfinite(found["iops"]).all()
    html = done._repr_html_()
    for text in ("Pareto front over", "failed: 2", "geometry.channels", "out of range"):
        assert text in html
    assert "<script" not in html
