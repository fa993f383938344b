"""Programs on arrays in memory, without a store: the same results, shapes, errors and accounts."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray import InvalidError, programs


@nandarray.program(inputs="float64", scalars={"by": "float64"})
def scaled(x, by):
    return x * by


@nandarray.program.filter(inputs="float64")
def positive(x):
    return x > 0


@pytest.mark.parametrize("form", [None, "interpreted"])
def test_as_beside_a_store(path: Path, form: str | None) -> None:
    data = np.random.default_rng(3).normal(size=(500, 400))
    total = programs.get("sum", dtype="float64")
    with nandarray.open(path, "w") as store:
        store["x"] = data
        for program, scalars in ((scaled, {"by": 2.0}), (positive, {}), (total, {})):
            found = nandarray.offload(program, [data], scalars, form=form)
            beside = nandarray.offload(program, [store["x"]], scalars, form=form)
            # Tasks are cut at other places, which moves the rounding of a sum.
            np.testing.assert_allclose(found.result, beside.result, rtol=0 if program is not total else 1e-12)
            assert np.shape(found.result) == np.shape(beside.result)
            assert found.account.form == beside.account.form
            assert (found.account.traffic.from_host, found.account.traffic.from_store) == (data.nbytes, 0)


def test_pipelines_and_lists() -> None:
    steps = {"kept": positive.on(scaled.on(np.array([-1.0, 2, 3]), by=-2.0)), "sum": programs.get("sum").on([1.0, 2.0])}
    run = nandarray.offload(steps)
    assert (run.outputs["kept"].tolist(), run.outputs["sum"]) == ([2.0], 3.0)
    assert scaled.on(np.ones((2, 3))[:, ::2], by=3.0).run().tolist() == [[3, 3], [3, 3]]
    assert scaled.on(np.zeros((0, 3)), by=3.0).run().shape == (0, 3)
    assert scaled.on(np.float64(2), by=3.0).run().shape == ()


def test_errors_are_those_of_a_store() -> None:
    with pytest.raises(InvalidError, match="input x has dtype int64; the program takes float64"):
        nandarray.offload(scaled, [np.arange(3)], {"by": 1.0})
    with pytest.raises(nandarray.ProgramFailedError, match="instructions"):
        nandarray.offload(scaled, [np.ones(1000)], {"by": 1.0}, instructions=10)
    with pytest.raises(InvalidError, match="out takes arrays of the store"):
        nandarray.offload(scaled, [np.ones(3)], {"by": 1.0}, out=np.ones(3))


def test_in_many_threads_and_in_a_forked_process() -> None:
    data, found = np.arange(1000.0), list[Any]()
    work = [threading.Thread(target=lambda: found.append(nandarray.offload(scaled, [data], {"by": 2.0}).result.sum()))
            for _ in range(4)]  # fmt: skip
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert found == [999000.0] * 4
    child = os.fork()
    if child == 0:  # the child has no engine of its own yet, and its parent's is not for it
        code = 1
        try:
            code = int(nandarray.offload(scaled, [data], {"by": 2.0}).result.sum() != found[0])
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
