"""No result depends on where inputs are cut into tasks, but for programs that say so by name.

Every ready-made program, and the functions of the guides, with tasks of 1, 2 and 7 records, of one page, and with one
task: equal results. Programs whose description says ``by_task`` are another class: sums of floats are rounded at other
places, and PageRank's step gives the sum of a vertex in parts where a task ends between its edges.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import program_cases as cases
import pytest
import test_docs as docs
from test_programs import same

import nandarray
from nandarray import programs
from nandarray.programs import run

ALL = 1 << 26
PAGE = 4096
SEEDS = (1, 2, 3)
#: Numbers of records from which a task is not tried, since it costs a call.
MOST_TASKS = 2000


def sizes(record: int, records: int) -> list[int]:
    """Bytes of tasks to try."""
    few = [n * record for n in (1, 2, 7) if records <= n * MOST_TASKS]
    return [*few, max(PAGE, record)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with nandarray.open(tmp_path_factory.mktemp("cut") / "data.nand", mode="w") as opened:
        yield opened


@pytest.mark.parametrize("name", programs.names())
def test_no_ready_made_program_depends_on_the_cut(store: Any, name: str) -> None:
    entry = programs.describe(name)
    for kind in entry.kinds:
        for dtype, parameters in cases.few(name):
            program = programs.get(name, kind=kind, dtype=dtype, **parameters)
            for seed in SEEDS:
                inputs, scalars = cases.case(name, dtype, parameters, seed)
                what = f"{name} {kind} {dtype} {parameters} seed {seed}"
                _equal(store, program, (inputs, scalars), what, by_task=entry.by_task)


def _equal(store: Any, program: Any, case: tuple[list[Any], list[Any]], what: str, *, by_task: bool) -> None:
    inputs, scalars = case
    if "x" in store:
        del store["x"]
    store["x"] = inputs[0]
    named = {port["name"]: value for port, value in zip(program.scalars, scalars, strict=False)}
    given: list[Any] = [store["x"], *inputs[1:]]
    record = program.inputs[0]["record_bytes"]
    found = {
        size: nandarray.offload(program, given, named, threads=2, task_bytes=size).outputs
        for size in [ALL, *sizes(record, inputs[0].nbytes // record)]
    }
    for size, outputs in found.items():
        for port in program.outputs:
            mine, whole = (np.asarray(one[port["name"]]).reshape(-1) for one in (outputs, found[ALL]))
            if by_task and whole.dtype.kind not in "iu":
                near(mine, whole, what)
                continue
            assert same(mine, whole), f"{what}, tasks of {size} bytes, {port['name']}: {mine[:8]} {whole[:8]}"


def near(mine: Any, whole: Any, what: str) -> None:
    """Compare what a cut may move: the rounding of sums, and parts of them."""
    if "vertex" in (whole.dtype.names or ()):
        mine, whole = folded(mine), folded(whole)
    elif whole.dtype.names:
        for name in whole.dtype.names:
            if whole.dtype[name].kind in "iu":
                np.testing.assert_array_equal(mine[name], whole[name], err_msg=what)
            else:
                near(mine[name], whole[name], what)
        return
    assert mine.shape == whole.shape, what
    finite = np.isfinite(whole)
    scale = np.abs(whole[finite]).max(initial=0.0)
    if scale < 1e150:  # noqa: PLR2004 (sums of larger numbers may cancel, or overflow within a part)
        np.testing.assert_allclose(mine[finite], whole[finite], rtol=1e-6, atol=1e-12 * scale, err_msg=what)


def folded(parts: Any) -> Any:
    """The sums of a vertex's parts."""
    sums = np.zeros(int(parts["vertex"].max(initial=0)) + 1)
    np.add.at(sums, parts["vertex"], parts["sum"])
    return sums


PAGES = ("programs.md", "offload.md", "pipelines.md")
#: Lines that tell how many tasks there were, not what came out.
TOLD = {"1000000 8000000 8", "louder 8 8000000 8000000", "high 8 8000000 4004000", "total 4 4004000 8"}


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("size", [8, 16, 56, PAGE, ALL])
def test_examples_of_the_guides_do_not_depend_on_the_cut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, page: str, size: int
) -> None:
    """Each block that offloads prints the same with tasks of other sizes, where the page asks for none by name."""
    pytest.importorskip("numba")
    path = docs.ROOT / "docs" / "guides" / page
    names: dict[str, Any] = {"__name__": "__main__"}
    plenty = size < PAGE
    real, at_least = run._bounded_bytes, 8000 if plenty else 1

    def bounded(metadata: Any) -> int:
        # Small tasks of large arrays would take minutes: there a size that no page has, and that divides no array.
        record = int(metadata["inputs"][0]["record_bytes"])
        return max(record, min(real(metadata), max(size, at_least + size) // record * record))

    monkeypatch.setattr(run, "_bounded_bytes", bounded)
    monkeypatch.chdir(tmp_path)
    for block in docs.blocks(path):
        if block.language != "python" or block.missing or "device" in block.code or "modelled" in block.code:
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * block.line + block.code, str(path), "exec"), names)  # noqa: S102
        if block.printed is not None and not any(line in TOLD for line in block.printed.splitlines()):
            docs.same(block.printed, out.getvalue(), block.line)
