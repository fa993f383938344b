"""The modelled accelerator: costs scaled from reduced sizes, schedulers on phantoms, the experiment's small profile."""

from __future__ import annotations

import pytest

import nandarray
from nandarray.lab.flashabacus import workloads
from nandarray.model import accelerator
from nandarray.model.accelerator import Block, Phantom
from nandarray.programs import kernels


def test_a_scaled_cost_is_that_of_a_full_run():
    for name, sizes, size in (("ATAX", (160, 224), 720), ("2DCON", (160, 224), 720), ("GEMM", (24, 32), 72)):
        app = workloads.APPS[name]
        kernel = kernels.get(app.kernel)
        made = accelerator.fitted(kernel, lambda n, app=app: workloads._sample(app, n), sizes, size, app.trips)
        measured = accelerator.costs(kernel, *workloads._sample(app, size))
        for block, (cycles, _, _) in zip(made.microblocks, measured, strict=True):
            # Ten times the fitted sizes. MVT reads columns: its misses between two sizes of caches are not linear.
            assert block.cycles == pytest.approx(cycles, rel=0.05), name


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


def test_the_experiment_runs_small(tmp_path):
    from nandarray.lab.experiment import Context
    from nandarray.lab.experiments.flashabacus_fig10 import EXPERIMENT

    values = {name: one.value("small") for name, one in EXPERIMENT.parameters.items()}
    result = EXPERIMENT.run(Context(values, profile="small"))
    assert len(result.tables["fig10"]) == 15
    answers = {one.claim: one.measured for one in result.answers}
    assert set(answers) == set(EXPERIMENT.claims)
    assert answers["flashabacus.fig10.overall"] > 1
