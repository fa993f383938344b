"""Operands of programs in memory are borrowed, not copied; what programs give has the right shape, even empty."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import doors
import numpy as np
import pytest

import nandarray
from nandarray import Program, programs

COUNT = """
#include <nandarray.h>
ND_PROGRAM("name": "first", "kind": "block", "inputs": [{"name": "x", "dtype": "uint8", "record_bytes": 16}],
           "outputs": [{"name": "y", "dtype": "uint8"}])
int64_t nd_block(nd_args *args) {
    const uint8_t *x = ND_INPUT(args, 0, uint8_t);
    uint8_t *y = ND_OUTPUT(args, 0, uint8_t);
    size_t n = ND_INPUT_COUNT(args, 0, uint8_t) / 16;
    for (size_t i = 0; i < n; i++) y[i] = x[16 * i];
    ND_SET_USED(args, 0, n, uint8_t);
    return 0;
}
"""


@pytest.fixture(params=doors.COMPUTING)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[nandarray.Store]:
    with doors.computing(request, tmp_path / "data.nand") as opened:
        yield opened


@pytest.mark.parametrize("records", [0, 1, 3, 16])
def test_records_of_another_length_give_flat_outputs(store: nandarray.Store, records: int) -> None:
    x = np.arange(16 * records, dtype="uint8").reshape(records, 16)
    store["x"] = x
    given = store["x"].offload(Program.from_c(COUNT))
    assert given.shape == (records,)
    assert np.array_equal(given, x[:, 0])


def test_elements_give_the_arrays_shape_also_if_there_are_none(store: nandarray.Store) -> None:
    store["x"] = np.empty((0, 16))
    assert store["x"].map_blocks("sqrt").shape == (0, 16)


def test_operands_in_memory_are_not_copied(store: nandarray.Store) -> None:
    program = programs.get("filter", dtype="float64")
    x = np.ones(1 << 23).reshape(1 << 10, -1)  # 64 MiB
    store.create("kept", (8,), "float64")
    nandarray.offload(program, [x[:1]], {"low": 2.0, "high": 3.0}, out=store["kept"])  # compiles
    tracemalloc.start()
    try:
        run = nandarray.offload(program, [x], {"low": 2.0, "high": 3.0}, out=store["kept"])
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert run.account.traffic.from_host == x.nbytes
    if doors.is_file(store):  # a request of a drive is one message
        assert most < x.nbytes // 8


def test_an_operand_is_held_while_a_program_runs(store: nandarray.Store) -> None:
    program = programs.get("filter", dtype="float64")
    store.create("kept", (10,), "float64")
    x = np.ones(1 << 20)
    refused = []

    def progress(done: int, tasks: int, read: int) -> None:
        try:
            x.resize(1)
        except ValueError as error:
            refused.append(str(error))

    nandarray.offload(program, [x], {"low": 2.0, "high": 3.0}, out=store["kept"], form="interpreted", progress=progress)
    assert refused
    assert x.size == 1 << 20


def test_operands_that_are_not_contiguous_are_seen_in_order(store: nandarray.Store) -> None:
    program = programs.get("filter", dtype="float64")
    x = np.arange(24.0).reshape(4, 6)
    store.create("kept", (24,), "float64")
    for given in (x.T, x[::2, ::-1], x[:0], x[1, 2], np.asfortranarray(x)):
        bounds = {"low": -1.0, "high": 100.0}
        count = nandarray.offload(program, [given], bounds, out=store["kept"]).result
        assert np.array_equal(store["kept"][:count], np.ravel(given))
