"""The modelled accelerator: costs scaled from reduced sizes, schedulers on phantoms, the experiment's small profile."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

import nandarray
from nandarray import _nandarray
from nandarray.array.session import register_scheduler
from nandarray.model import accelerator
from nandarray.model.accelerator import Block, Phantom
from nandarray.model.timeline import timeline_html, write_timeline
from nandarray.programs import kernels
from nandarray_papers.flashabacus import workloads


def with_caches(l1: int, l2: int) -> str:
    """The worker's description with caches of other sizes."""
    text = _nandarray.core_text("lwp")
    for level, size in (("l1d", l1), ("l2", l2)):
        begin = text.index("size_bytes = ", text.index(f"[{level}]"))
        end = text.index("\n", begin)
        text = f"{text[:begin]}size_bytes = {size}{text[end:]}"
    return text


@pytest.mark.parametrize(
    ("name", "sizes", "fulls"),
    [
        ("ATAX", (96, 192), (384, 544, 720)),
        ("MVT", (48, 96), (384, 544, 720)),
        ("2DCON", (96, 192), (384, 544, 720)),
        ("GEMM", (48, 96), (160, 192, 256)),
    ],
)
def test_a_scaled_cost_is_that_of_a_full_run(name, sizes, fulls):
    app = workloads.APPS[name]
    kernel = kernels.get(app.kernel)
    # Matrices are larger than the caches at each full size, and at each reduced one than the reduced caches.
    core = with_caches(4096, 16384)
    for size in fulls:
        made = accelerator.fitted(kernel, partial(workloads._sample, app), sizes, size, app.trips, core=core)
        measured = accelerator.costs(kernel, *workloads._sample(app, size), core=core)
        for block, (cycles, _, _) in zip(made.microblocks, measured, strict=True):
            assert block.cycles == pytest.approx(cycles, rel=0.05), (name, size)


def test_table_2_has_fourteen_kernels_and_mixes_of_six():
    assert len(workloads.APPS) == len(workloads.MIXES) == 14
    assert {name: len(apps) for name, apps in workloads.MIXES.items() if len(apps) != 6} == {"MX5": 5}
    assert workloads.MIXES["MX5"] == ("2DCON", "GESUM", "SYRK", "COVAR", "GEMM")
    # A megabyte is 2**20 bytes: GEMM's inputs are three matrices of 64 MiB each, exactly.
    assert workloads.APPS["GEMM"].side == 4096
    assert workloads.APPS["ATAX"].side == 12952


def test_schedulers_order_as_their_definitions_say():
    kernel = Phantom("k", 6 << 20, (Block(64, 6e7, 6 << 20), Block(1, 3e7, 0)))
    found = {
        system: accelerator.run([kernel] * 6, system)
        for system in ("simd", "inter-static", "inter-dynamic", "intra-in-order", "intra-out-of-order")
    }
    seconds = {system: one["seconds"] for system, one in found.items()}
    assert seconds["inter-dynamic"] < seconds["intra-out-of-order"] < seconds["intra-in-order"]
    assert seconds["intra-in-order"] < seconds["inter-static"]
    assert found["inter-dynamic"] == accelerator.run([kernel] * 6, "inter-dynamic")
    for one in found.values():
        assert one["bytes"] == 36 << 20
        assert len(one["kernels"]) == 6
        assert all(0 <= share <= 1 for share in one["occupancy"])
    with pytest.raises(nandarray.InvalidError, match="there is no scheduler"):
        accelerator.run([kernel], "none")
    with pytest.raises(nandarray.InvalidError, match="workers is 0"):
        accelerator.run([kernel], "inter-static", {"workers": 0})


@pytest.mark.parametrize("figure", ["fig3", "fig10", "fig12", "fig15", "fig16", "beyond"])
def test_experiments_run_small(figure):
    from nandarray.lab import experiments
    from nandarray.lab.experiment import Context

    experiment = experiments()[f"flashabacus.{figure}"]
    values = {name: one.value("small") for name, one in experiment.parameters.items()}
    result = experiment.run(Context(values, profile="small"))
    answers = {one.claim: one.measured for one in result.answers}
    assert set(answers) == set(experiment.claims)
    for drawn in result.figures:
        assert {drawn.x, drawn.y} <= set(result.tables[drawn.table][0])
    if figure == "fig10":
        assert len(result.tables["fig10"]) == 15
        assert answers["flashabacus.fig10.overall"] > 1
    if figure == "fig3":
        # Amdahl's law over one to eight cores.
        assert answers["flashabacus.fig3.serial30"] == pytest.approx(0.557, abs=0.002)
    if figure == "beyond":
        assert all(row["reruns"] > 0 and row["slower"] >= 1 for row in result.tables["failures"])
        fair = {row["scheduler"]: row["fairness"] for row in result.tables["tenants"]}
        assert fair["fair-share"] > 0.97 > fair["intra-in-order"]


def test_every_claim_of_the_paper_has_an_experiment():
    from nandarray.lab import experiments
    from nandarray.lab.claims import claims

    answered = {claim for one in experiments().values() for claim in one.claims}
    assert {one for one in claims() if one.startswith("flashabacus.")} <= answered


def test_a_session_on_the_accelerator_is_that_of_threads(tmp_path):
    rng = np.random.default_rng(18)
    A, x = rng.random((300, 200), "f4"), rng.random(200, "f4")
    atax = kernels.get("atax")
    reports = []
    for turn in range(2):
        with nandarray.open(tmp_path / f"s{turn}.nda", mode="w") as store:
            store["A"], store["y"] = A, np.zeros(200, "f4")
            with store.session("intra-out-of-order", accelerator={"workers": 4}) as session:
                assert session.workers == 4
                jobs = [session.submit(atax, inputs={"A": store["A"], "x": factor * x}) for factor in (1, 2, 3)]
                last = session.submit(atax, inputs={"A": store["A"], "x": x}, outputs={"y": store["y"]}, after=jobs)
                for factor, job in enumerate(jobs, 1):
                    np.testing.assert_allclose(job.result(), factor * (A.T @ (A @ x)), rtol=1e-3)
                assert not last.done()
            np.testing.assert_allclose(store["y"][:], A.T @ (A @ x), rtol=1e-3)
            reports.append(session.report())
    report = reports[0]
    assert report == reports[1]
    assert report["bytes"] == 4 * (A.nbytes + x.nbytes)
    assert report["bytes_out"] == 800
    assert all(one["compute"] > 0 and one["storage"] > 0 for one in report["kernels"])
    assert report["kernels"][3]["waiting"] > report["kernels"][0]["waiting"]
    assert 0 < report["seconds"] < report["flushed_seconds"]
    assert {span["microblock"] for span in report["spans"]} == {0, 1}
    count = write_timeline(report, tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert sum(one["ph"] == "X" for one in events) == count == len(report["spans"]) + 8 + 1
    assert timeline_html(report).count("<rect") == len(report["spans"])


def test_sessions_on_the_accelerator_say_what_is_wrong(tmp_path):
    atax = kernels.get("atax")
    with nandarray.open(tmp_path / "s.nda", mode="w") as store:
        with store.session() as session, pytest.raises(nandarray.InvalidError, match="on the wall clock"):
            session.report()
        with pytest.raises(nandarray.InvalidError, match="unknown field `worker`"):
            store.session(accelerator={"worker": 4})
        with pytest.raises(nandarray.InvalidError, match="dies is 0"):
            store.session(accelerator={"dies": 0})
        with store.session(accelerator=True) as session:
            lost = session.submit(atax, inputs={"A": np.ones((2, 2), "f4"), "x": np.ones(2, "f4")}, after=["never"])
            with pytest.raises(nandarray.InvalidError, match="waits for a name"):
                lost.result()
            with pytest.raises(TimeoutError):
                lost.result(timeout=0)
        with pytest.raises(nandarray.DependencyError):
            lost.result()


class LastFirst:
    """A scheduler that takes the newest kernel."""

    splits = True

    def __init__(self, workers):
        self.screens = {}

    def arrived(self, number, application, priority, deadline, work):
        self.screens[number] = 0

    def ready(self, kernel, screens):
        self.screens[kernel] += screens

    def next(self, worker):
        kernel = max((k for k, screens in self.screens.items() if screens), default=None)
        if kernel is not None:
            self.screens[kernel] -= 1
        return kernel

    def ended(self, kernel):
        del self.screens[kernel]

    def lost(self, worker):
        pass


def test_a_scheduler_of_python_serves_both_clocks(tmp_path):
    register_scheduler("last-first", LastFirst)
    kernel = Phantom("k", 6 << 20, (Block(6, 6e7, 6 << 20),))
    ends = [one["end"] for one in accelerator.run([kernel] * 4, "last-first")["kernels"]]
    assert ends[3] < ends[0]
    with pytest.raises(nandarray.InvalidError, match="there is a scheduler"):
        register_scheduler("last-first", LastFirst)
    A, x = np.ones((20, 30), "f4"), np.ones(30, "f4")
    with nandarray.open(tmp_path / "s.nda", mode="w") as store:
        for options in ({}, {"accelerator": True}):
            session = store.session("last-first", workers=2, **options)
            jobs = [session.submit(kernels.get("atax"), inputs={"A": A, "x": x}) for _ in range(5)]
            assert all(job.result()[0] == 600 for job in jobs)
            del session


class Raising(LastFirst):
    """A scheduler that fails when it is to choose."""

    def next(self, worker):
        raise ValueError("no choice")


def test_a_scheduler_that_raises_ends_the_session_and_its_kernels(tmp_path):
    register_scheduler("raising", Raising)
    inputs = {"A": np.ones((20, 30), "f4"), "x": np.ones(30, "f4")}
    with nandarray.open(tmp_path / "s.nda", mode="w") as store:
        session = store.session("raising", workers=2)
        job = session.submit(kernels.get("atax"), inputs=inputs)
        with pytest.raises(nandarray.errors.NandarrayError, match="scheduler failed"):
            job.result(timeout=60)
        with pytest.raises(nandarray.errors.NandarrayError, match="scheduler failed"):
            session.submit(kernels.get("atax"), inputs=inputs)
        session.close()
        store["x"] = np.arange(3)
        assert store["x"][2] == 2, "the store serves on"


def test_every_byte_of_a_phantom_is_moved():
    """Screens and windows share bytes evenly: a byte beyond two page groups is in a third one."""
    group = 65536

    def moved(bytes_in: int) -> float:
        kernel = Phantom("k", bytes_in, (Block(2, 1e6, bytes_in, 0),))
        report = accelerator.run([kernel], "intra-in-order", {"window_bytes": group, "group_bytes": group})
        return float(report["kernels"][0]["transfer"])

    assert moved(2 * group + 1) == pytest.approx(1.5 * moved(2 * group))


@pytest.mark.parametrize("scheduler", ["intra-in-order", "simd"])
@pytest.mark.parametrize("bytes_in", [2**63, 2**44 + 1])
def test_more_bytes_than_a_run_could_move_are_an_error(scheduler, bytes_in):
    with pytest.raises(nandarray.InvalidError, match=f"is {bytes_in}; it must be at most {2**44}"):
        accelerator.run([Phantom("k", 1, (Block(1, 1.0, bytes_in, 0),))], scheduler)
