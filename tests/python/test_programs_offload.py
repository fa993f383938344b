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
from nandarray import InvalidError, NandarrayError, programs

FORMS = ("interpreted", "translated", "native")
CHUNKED = ("sum", "mean", "variance")
VARIANTS = [
    (name, kind, *variant)
    for name in programs.names()  # the others' twins are not exact: their forms agree all the same
    for kind in programs.describe(name).kinds
    for variant in cases.few(name)
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


@pytest.fixture(scope="module")
def remote(store: Any) -> Any:
    with nandarray.serve(store) as server, nandarray.open(server.url) as opened:
        yield opened


def test_every_program_can_be_loaded_over_the_network(remote: Any) -> None:
    """The ELF says all of what a program takes: a drive knows no more."""
    loaded = 0
    for name in programs.names():
        for kind in programs.describe(name).kinds:
            remote.load(programs.get(name, kind=kind).elf).unload()
            loaded += 1
    assert loaded > 50


def test_the_reason_of_a_refused_load_is_told(remote: Any) -> None:
    elf = programs.get("sum").elf
    assert elf.count(b'"dtype": "float64"')
    strange = elf.replace(b'"dtype": "float64"', b'"dtype": "floaty4"')
    with pytest.raises(NandarrayError, match='Invalid Program Data.*dtype must be the name of a type.*not "floaty4"'):
        remote.load(strange)


def test_a_drive_gives_a_program_only_what_it_declares(store: Any, remote: Any) -> None:
    """Types of stored arrays, whole elements of raw bytes, all scalars; the drive checks, for each host."""
    if "f4" not in store:
        store["f4"], store["f8"] = np.ones(64, "f4"), np.arange(64.0)
        store["rows"] = np.zeros(8, [("a", "f8"), ("b", "u4")])
    total = remote.load(programs.get("sum", dtype="float64").elf, index=1)
    assert total.execute(remote["f8"]) == [np.array(np.arange(64.0).sum()).tobytes()]
    assert total.execute(remote["f8"].view((8, 8)), room=8) == total.execute(np.arange(64.0).tobytes(), room=8)
    for given_, says in (
        (remote["f4"], "input x takes float64; the array has float32"),
        (remote["rows"], r"input x takes float64; the array has \{a: float64 at 0, b: uint32 at 8\}"),
        (bytes(12), "input x of 12 bytes is not whole elements of 8"),
    ):
        with pytest.raises(NandarrayError, match=says):
            total.execute(given_)
    kept = remote.load(programs.get("filter", dtype="float64").elf, index=2)
    with pytest.raises(NandarrayError, match="scalar .* is missing, and has no default"):
        kept.execute(remote["f8"])
    with pytest.raises(NandarrayError, match="3 scalars for a program that takes 2"):
        kept.execute(remote["f8"], scalars=[1, 2, 3])
    bits = [int(one) for one in np.array([10.0, 20.0]).view("u8")]
    found = np.frombuffer(kept.execute(remote["f8"], scalars=bits)[0], "f8")
    assert found.tolist() == [float(one) for one in range(64) if 10 <= one <= 20]
    for program in (total, kept):
        program.unload()
    # Locally the same rules hold behind those of the calls in Python.
    with pytest.raises(InvalidError, match="takes float64|has dtype float32"):
        nandarray.offload(programs.get("sum", dtype="float64"), [store["f4"]])
