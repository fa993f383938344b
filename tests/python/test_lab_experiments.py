"""Every experiment that comes along: its small profile runs, twice the same, and its claims are known."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from nandarray import lab
from nandarray.lab import registry
from nandarray.lab.claims import base_of

EXPERIMENTS = lab.experiments()
DEEP = bool(os.environ.get("NANDARRAY_DEEP"))


def test_all_modules_are_experiments() -> None:
    assert lab.experiments()
    assert registry.broken() == {}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_says_what_it_is(name: str) -> None:
    experiment = EXPERIMENTS[name]
    assert experiment.question.endswith("?")
    assert experiment.title
    assert set(experiment.claims) <= set(lab.claims())
    assert {base_of(claim) for claim in experiment.expected} <= set(experiment.claims)
    assert all(low <= high for low, high in experiment.expected.values())
    assert all(parameter.meaning for parameter in experiment.parameters.values())


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_small_profile_runs_twice_the_same(name: str) -> None:
    began = time.monotonic()
    first = lab.run(name, profile="small", jobs=1)
    assert first.tables
    # The second run of a long one is for the deep tests.
    again = lab.run(name, profile="small", jobs=1) if DEEP or time.monotonic() - began < 2 else first
    if again is not first and again.data["deterministic"]:
        assert again.environment["before"] == []
    assert again.data["unanswered"] == []
    assert Path(again.path).is_dir()


def test_every_claim_of_assasin_and_coden_has_an_experiment() -> None:
    answered = {claim for experiment in EXPERIMENTS.values() for claim in experiment.claims}
    chapters = ("zou.offload.", "zou.assasin.", "coden.")
    assert sorted(claim for claim in lab.claims() if claim.startswith(chapters) and claim not in answered) == []
