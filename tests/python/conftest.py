"""Fixtures of all Python tests: a path for a store, an open store, and Hypothesis's settings.

Each test gets its own directory and runs in it, so a name such as ``"data.nand"`` never meets another test's.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import doors
import hypothesis
import pytest
import typer.testing

import nandarray

# The same examples on every run and every machine; "deep" looks for new ones.
hypothesis.settings.register_profile(
    "suite",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)
hypothesis.settings.register_profile(
    "deep", parent=hypothesis.settings.get_profile("suite"), derandomize=False, max_examples=1500
)
hypothesis.settings.load_profile(os.environ.get("NANDARRAY_HYPOTHESIS", "suite"))

# The tree of commands takes longer to build than many a command to run.
typer.testing._get_command = functools.cache(typer.testing._get_command)

# A server that does not end tells where it is (processes.py).
os.environ.setdefault("PYTHONFAULTHANDLER", "1")

# Compiled programs are kept from run to run, and apart from the user's.
os.environ.setdefault("NANDARRAY_CACHE", str(Path(__file__).resolve().parents[2] / "target" / "program-cache"))


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def recorder() -> None:
    """Skip tests that record accesses where there is no compiler for that; the reason names those looked for."""
    from nandarray_papers.bam import recording

    try:
        recording.compiler()
    except nandarray.NotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=doors.DOORS)
def scratch(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One store for all examples of a test, since Hypothesis runs many; behind each door."""
    with doors.opened(request.param, tmp_path_factory.mktemp("scratch") / "data.nand") as store:
        yield store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file name at which nothing is yet."""
    return tmp_path / "data.nand"


@pytest.fixture
def store(path: Path) -> Iterator[nandarray.Store]:
    """A new, writable store."""
    with nandarray.open(path, mode="w") as opened:
        yield opened


@pytest.fixture
def file(path: Path) -> Iterator[nandarray.Store]:
    """A new, writable store in a file, where tests have one of their own, behind each door, as ``store``."""
    with nandarray.open(path, mode="w") as opened:
        yield opened
