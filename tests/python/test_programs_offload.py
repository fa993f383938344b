"""Ready-made programs beside the data: in each form they give what their NumPy twins do, blocks and streams alike."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import program_cases as cases
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from test_programs import EXACT, label, same

import nandarray
from nandarray import programs

FORMS = ("interpreted", "translated", "native")
CHUNKED = ("sum", "mean", "variance")
VARIANTS = [
    (name, kind, *variant)
    for name in programs.names()  # the others' twins are not exact: their forms agree all the same
    for kind in programs.describe(name).kinds
    for variant in cases.variants(name)[:2]
]


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: programs.get(one[0], kind=one[1], dtype=one[2], **one[3]), VARIANTS))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with nandarray.open(tmp_path_factory.mktemp("programs") / "data.nand", mode="w") as opened:
        yield opened


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: "-".join(label(part) or str(part) for part in one))
@settings(max_examples=3)
@given(
    seed=st.integers(0, 2**32 - 1),
    records=st.sampled_from([1, 2, 7, 512, 10**6]),
    threads=st.integers(1, 3),
)
def test_beside_the_data(store: Any, variant: tuple[Any, ...], seed: int, records: int, threads: int) -> None:
    name, kind, dtype, parameters = variant
    inputs, scalars = cases.case(name, dtype, parameters, seed)
    program = programs.get(name, kind=kind, dtype=dtype, **parameters)
    first = inputs[0]
    record = program.inputs[0]["record_bytes"]
    if first.nbytes // record > 500:  # noqa: PLR2004 (a task costs a call)
        records = max(records, 300)
    if name in CHUNKED:
        records = 4096  # where the order of additions is cut
    note(f"{name} {kind} {dtype} {parameters}: {[one.shape for one in inputs]}, scalars {scalars}, {records} a task")
    starts = {"starts": [*range(0, max(first.nbytes // record, 1), records)]} if programs.describe(name).by_task else {}
    wanted = programs.twin(name, dtype=dtype, **parameters)(*inputs, *scalars, **starts)
    if "x" in store:
        del store["x"]
    store["x"] = first
    named = {port["name"]: value for port, value in zip(program.scalars, scalars, strict=False)}
    given: list[Any] = [store["x"], *inputs[1:]]
    found = {
        form: nandarray.offload(program, given, named, threads=threads, task_bytes=records * record, form=form)
        for form in FORMS
    }
    assert [one.account.form for one in found.values()] == list(FORMS)
    assert found["interpreted"].account.instructions == found["translated"].account.instructions
    for port, twins in zip(program.outputs, wanted, strict=True):
        mine = {form: np.asarray(one.outputs[port["name"]]).reshape(-1) for form, one in found.items()}
        for form, one in mine.items():
            assert name not in EXACT or same(one, twins), (form, port["name"], one[:8], twins[:8], len(one), len(twins))
            assert same(one, mine["interpreted"]), (form, port["name"])


def test_the_store_is_where_they_say(store: Any) -> None:
    assert Path(store.path).is_file()
