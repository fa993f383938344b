"""The NDS paper's systems, modelled: the same bytes in every configuration, the same times wherever bytes are."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nandarray
from nandarray.device import keys as device_keys
from nandarray.lab.claims import claims
from nandarray.lab.experiment import Context, Experiment, Result
from nandarray.lab.judge import judge
from nandarray_papers.experiments import (
    nds_beyond,
    nds_fig2,
    nds_fig3,
    nds_fig9,
    nds_fig10,
    nds_fig10_hosts,
    nds_overhead,
    nds_variants,
)
from nandarray_papers.nds import calibration, systems
from nandarray_papers.nds.fetching import fetched, plans, ran, shapes, units
from nandarray_papers.nds.pipeline import pipelined
from nandarray_papers.nds.systems import Baseline, Nds, Oracle, nowhere, room
from nandarray_papers.workloads import TABLE_1

EXPERIMENTS: list[Experiment] = [
    *(m.EXPERIMENT for m in (nds_fig2, nds_fig3, nds_fig9, nds_fig10, nds_overhead, nds_variants)),
    *nds_beyond.EXPERIMENTS,
    *nds_fig10_hosts.EXPERIMENTS,
]


def small(experiment: Experiment, **parameters: Any) -> Result:
    """Run an experiment in its small profile, in this process."""
    resolved = {name: p.value("small") for name, p in experiment.parameters.items()} | parameters
    return experiment.run(Context(resolved, profile="small"))


# --- The model --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_device", [True, False])
def test_times_do_not_depend_on_where_bytes_are(*, in_device: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    device = calibration.device(changes={"controller.spaces_in_device": in_device})
    monkeypatch.setattr(systems, "REAL_ELEMENTS", 0)

    def as_one_row(shape: tuple[int, ...]) -> Any:
        return nowhere(shape, "f8")

    def history(bytes_in: Any, values: Any, out: Any) -> tuple[float, str]:
        with nandarray.open(device=device, mode="w", bytes_in=bytes_in, placement="nds") as store:
            a = store.create("a", (1024, 1024), "f8", building_block=(256, 256))
            a[:, :] = values((1024, 1024))
            for box in (np.s_[0:256, :], np.s_[:, 512:1024], np.s_[100:700, 300:900], np.s_[3:5, 0:512]):
                a.read(box, out=out(np.empty((1024, 1024))[box].shape))
            return store.clock.now, store.clock.report()["hash"]

    real = history("memory", lambda shape: np.random.default_rng(1).random(shape), np.empty)
    assert history("nowhere", as_one_row, lambda shape: room(shape, "f8")) == real


def test_a_row_of_memory_is_every_row() -> None:
    assert nowhere((4, 4), "f8").strides == (32, 8)
    some = nowhere((1 << 20, 1 << 20, 512), "f8")
    assert some.shape == (1 << 20, 1 << 20, 512)
    assert some.strides == (0, 0, 8)


def test_a_baseline_asks_for_its_runs() -> None:
    device = calibration.device()
    base = Baseline(device, (4096, 4096), 8)
    columns = base.read([(slice(0, 4096), slice(0, 512))])
    assert columns.report["read"]["requests"] == 4096
    assert columns.bytes == 4096 * 512 * 8
    rows = base.read([(slice(0, 512), slice(0, 4096))])
    assert rows.report["read"]["requests"] == 8  # 16 MiB in requests of 2
    turned = Baseline(device, (4096, 4096), 8, order="F").read([(slice(0, 4096), slice(0, 512))])
    assert turned.seconds == rows.seconds
    assert Oracle(device).read([rows.bytes]).seconds == pytest.approx(rows.seconds, rel=0.01)
    assert columns.GBps < 0.2 < 3 < rows.GBps


def test_boxes_are_checked() -> None:
    with pytest.raises(nandarray.InvalidError, match="start to stop"):
        nandarray.Boxes(shape=(4,), itemsize=8, boxes=[(slice(None),)]).settings()
    outside = nandarray.Boxes(shape=(512,), itemsize=8, boxes=[(slice(0, 513),)])
    with pytest.raises(nandarray.InvalidError, match="513"):
        nandarray.replay(outside, device="tiny")


# --- Fetching ---------------------------------------------------------------------------------------------------------


def test_plans_widen_inner_dimensions_only() -> None:
    box = (slice(0, 8), slice(8, 16), slice(4, 8))
    whole = slice(0, 16)
    assert plans(box, (16, 16, 16)) == [
        ("runs", box),
        ("whole of the last 1", (*box[:2], whole)),
        ("whole of the last 2", (box[0], whole, whole)),
    ]
    rows = (slice(0, 8), whole)
    assert plans(rows, (16, 16)) == [("runs", rows)]


def test_units_surround_a_box_by_whole_runs() -> None:
    assert units((slice(0, 8), slice(1024, 2048)), (8, 65536), 2048) == (slice(0, 8), slice(0, 2048))
    assert units((slice(0, 8), slice(0, 4096)), (8, 65536), 2048) == (slice(0, 8), slice(0, 4096))
    assert units((slice(0, 8), slice(60, 65)), (8, 100), 64) == (slice(0, 8), slice(0, 100))
    # Rows shorter than a unit are read with those around them.
    assert units((slice(0, 2), slice(5, 6), slice(0, 8)), (4, 64, 512), 2048) == (
        slice(0, 2),
        slice(4, 8),
        slice(0, 512),
    )
    assert units((slice(1, 2), slice(3, 4)), (8, 8), 1) == (slice(1, 2), slice(3, 4))


def test_a_host_cache_makes_narrow_columns_faster_and_leaves_wide_ones() -> None:
    def columns(width: int, unit_bytes: int) -> float:
        return nds_fig10_hosts.band(width, 8192, 128, 2, 0.0, unit_bytes, 0)[0]

    assert columns(512, 16 << 10) > 3 * columns(512, 0)
    assert columns(4096, 16 << 10) == columns(4096, 0)
    # A column of 8 KB of rows of 128 pages is on 2 channels x 2 ways, whatever is on its way.
    assert nds_fig10_hosts.band(1024, 65536, 64, 16, 0.0, 0, 0)[1] == 4


def test_other_hosts_change_what_they_say_and_nothing_else() -> None:
    names = ["KMeans", "GEMM"]
    present = small(nds_fig10.EXPERIMENT, workloads=names).tables["all"]
    cached, by_bytes, both = (small(one, workloads=names) for one in nds_fig10_hosts.EXPERIMENTS[:3])

    def seconds(rows: Any, system: str) -> list[float]:
        return [row["seconds"] for row in rows if row["system"] == system and row["rule"] == "sieving"]

    for system in ("software NDS", "hardware NDS", "oracle"):
        assert seconds(cached.tables["all"], system) == seconds(present, system)
    assert seconds(by_bytes.tables["all"], "hardware NDS") == seconds(present, "hardware NDS")
    assert seconds(cached.tables["all"], "baseline")[0] < seconds(present, "baseline")[0]
    # The cache's copies are by bytes, too, and never what a fetch waits for.
    assert seconds(both.tables["all"], "baseline") == pytest.approx(seconds(cached.tables["all"], "baseline"), rel=1e-3)
    fitted = {answer.claim: answer.calibrated for answer in cached.answers}
    assert fitted["nds.fig10.hw_speedup#KMeans_minutes-host-cache"]
    assert not fitted["nds.fig10.hw_speedup#host-cache"]


def test_every_shape_of_fetch_is_measured() -> None:
    for name, workload in TABLE_1.items():
        one = workload.at([n // 64 for n in workload.shape])
        kinds = shapes(one, 2)
        assert all(some for some in kinds.values()), name
        times = dict.fromkeys(kinds, 1.0)
        assert all((f.sub_shape, f.count(one.view)) in times for f in one.fetches()), name


@given(st.lists(st.tuples(*[st.floats(0, 10)] * 3), min_size=1, max_size=20), st.integers(1, 4))
def test_a_pipeline_takes_no_less_than_its_longest_stage(items: list[tuple[float, ...]], buffers: int) -> None:
    one = pipelined(items, buffers)
    busy = [sum(times[s] for times in items) for s in range(3)]
    assert one.busy == pytest.approx(busy)
    assert max(busy) - 1e-9 <= one.seconds <= sum(busy) + 1e-9
    assert one.idle == pytest.approx(one.seconds - busy[-1], abs=1e-6)
    assert pipelined(items, buffers + 1).seconds <= one.seconds + 1e-9


def test_a_pipeline_by_hand() -> None:
    # 3 + 1 + 1, each further item 3 later: the first stage is the longest.
    assert pipelined([(3.0, 1.0, 1.0)] * 4).seconds == 14.0
    # The last is: one item waits in the buffer, one in the first stage.
    slow = pipelined([(1.0, 3.0)] * 4)
    assert (slow.seconds, slow.idle) == (13.0, 1.0)


# --- The same bytes in every configuration, under both clocks ---------------------------------------------------------


@pytest.mark.parametrize("name", ["BFS", "GEMM", "Hotspot", "KMeans", "PageRank", "TTV"])
def test_workloads_compute_the_same_everywhere(name: str) -> None:
    paper = TABLE_1[name]
    side = 32 if len(paper.shape) == 3 else 256
    workload = paper.at([side] * len(paper.shape))
    arrays = [workload.make(i) for i in range(workload.operands)]
    rounds = 2
    expected = workload.reference(*arrays, rounds=rounds)
    device = calibration.device("nds-prototype")
    openings: dict[str, dict[str, Any]] = {
        "hardware NDS": {"device": device},
        "software NDS": {"device": device.with_({"controller.spaces_in_device": False})},
        "wall clock": {},
    }
    for system, opening in openings.items():
        where = opening or {"path": f"{name}.nand"}
        with nandarray.open(**where, mode="w") as store:
            stored = [store.create(f"a{i}", data=a, building_block=(16,) * a.ndim) for i, a in enumerate(arrays)]
            found = workload.run(lambda f, stored=stored: stored[f.operand][f.box(workload.view)], rounds)
            if opening:
                assert store.clock.now > 0, system
        workload.check(found, expected)


@pytest.mark.parametrize("variant", nds_variants.VARIANTS)
def test_variants_keep_their_bytes(variant: str) -> None:
    for system in ("software NDS", "hardware NDS"):
        assert all(row["equal"] for row in nds_variants.measure(variant, system, 512, 256, 3))


# --- Experiments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.id)
def test_small_profiles_run_and_repeat(experiment: Experiment) -> None:
    quick = {"workloads": ["BFS", "Hotspot", "TTV"]} if experiment.id == "nds.fig10" else {}
    result = small(experiment, **quick)
    assert all(result.tables.values())
    for figure in result.figures:
        columns = set(result.tables[figure.table][0])
        assert {figure.x, figure.y} | ({figure.series} - {""}) | ({figure.value} - {""}) <= columns, figure.id
    for answer in result.answers:
        assert judge(answer, experiment, claims())["measured"] == answer.measured
    if experiment.id in {"nds.fig9", "nds.overhead"}:
        assert small(experiment).tables == result.tables


def test_what_figure_9_calibrated_is_marked() -> None:
    answers = {a.claim: a for a in small(nds_fig9.EXPERIMENT).answers}
    marked = {claim for claim, a in answers.items() if a.calibrated}
    assert marked == {
        "nds.fig9a.row.hw_vs_baseline#baseline_GBps",
        "nds.fig9a.row.sw_GBps",
        "nds.fig9b.col.baseline_GBps_max",
        "nds.fig9d.write.sw_loss",
        "nds.fig9d.write.hw_loss",
    }
    assert answers["nds.fig9c.submatrix.order"].measured is True


def test_constants_have_sources_and_none_is_of_a_workload() -> None:
    for constant in calibration.CONSTANTS:
        assert "Figure 9" in constant.source or "NDS " in constant.source
        assert not {name.lower() for name in TABLE_1} & set(re.findall(r"\w+", constant.source.lower()))
    keys = {key.key for key in device_keys()}
    assert all(c.name in keys for c in calibration.CONSTANTS if "." in c.name)


def test_the_preset_holds_no_answer_of_section_7_3() -> None:
    device = nandarray.devices()["nds-prototype"]
    sources = {key: device.source(key) for key in device.values}
    assert device["compute.cores"] == "none"
    assert [key for key, source in sources.items() if "7.3" in source] == []
    assert "41 us" not in device.values.values()
    assert "17 us" not in device.values.values()


def test_hardware_nds_of_a_workload_is_faster_than_software() -> None:
    workload = nds_fig10.sized("Hotspot", 32)
    seconds = {
        system: ran(workload, fetched(workload, system, calibration.device())).seconds
        for system in ("baseline", "software NDS", "hardware NDS")
    }
    assert seconds["hardware NDS"] < seconds["software NDS"] < seconds["baseline"]


def test_nds_reads_what_was_filled() -> None:
    with Nds(calibration.device(), (1024, 1024), "f8", in_device=True, building_block=(256, 256)) as nds:
        box = (slice(300, 400), slice(0, 1024))
        nds.fill([box])
        moved = nds.read([box])
    assert moved.bytes == 100 * 1024 * 8
    # Pages of two rows of a block: 50 of each of 4 blocks.
    assert moved.report["flash"]["senses"]["host"] == 200
