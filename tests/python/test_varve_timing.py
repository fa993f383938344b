"""Vectors on timed cores: filters and kernels in four forms give NumPy's results, and their figures add up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import nandarray
from nandarray import Program, lab
from nandarray.cli import app
from nandarray_papers.experiments import varve_filters, varve_kernels
from nandarray_papers.varve import columns
from nandarray_papers.varve.filters import NUMBERS, Filter, RowTest, packed, packed_bits, signed_widths
from nandarray_papers.varve.kernels import STRIPS, raid5
from nandarray_papers.varve.measure import BESIDE, FORMS, compiled, isa, measure

pytest.importorskip("ziglang")

ROWS = 777
FILTERS = (
    Filter("wide", ("o_orderkey", "o_orderdate"), (RowTest("o_orderdate", "le", 9000),)),
    Filter("flags", ("l_returnflag", "l_tax"), (RowTest("l_returnflag", "eq", 82), RowTest("l_tax", "gt", 3))),
    Filter("none", ("c_custkey",), (RowTest("c_nationkey", "gt", 99), RowTest("c_custkey", "le", 5))),
)


@pytest.fixture(autouse=True)
def drawn_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns as wide as TPC-H's, without its generator."""
    tops = {"o_orderdate": 10_600, "o_orderkey": 6_000_000, "l_tax": 9, "c_nationkey": 25, "c_custkey": 150_000}

    def column(name: str, _scale: float) -> np.ndarray:
        chance = np.random.default_rng(len(name))
        if name == "l_returnflag":
            return chance.choice(np.frombuffer(b"ARN", np.uint8), ROWS)
        return chance.integers(0, tops[name], ROWS).astype(np.int32)

    for module in ("nandarray_papers.varve.filters.column", "nandarray_papers.varve.columns.column"):
        monkeypatch.setattr(module, column)
    assert columns.column is column


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("one", FILTERS, ids=lambda one: one.name)
def test_every_form_of_a_filter_keeps_the_same_rows(one: Filter, form: str) -> None:
    inputs, wanted = one.data(1.0, ROWS)
    found = measure(compiled(one.source(form, 1.0), form), inputs, wanted)
    assert (found.vector["operations"] > 0) == (form != "scalar")
    assert 0 <= found.datapath_efficiency <= 1
    assert (found.vector["packed_bits"] > 0) == (form in {"pup", "full"})
    assert sum(found.reasons.values()) == pytest.approx(found.cycles)


def test_packed_columns_are_read_as_they_are() -> None:
    one = FILTERS[0]
    inputs, wanted = one.data(1.0, ROWS)
    made = compiled(one.packed_source(1.0), "full")
    assert measure(made, [packed(inputs)], wanted).instructions > 0
    values = np.array([0, 1, -1, 127, -128, 1 << 40], np.int64)
    assert signed_widths(values).tolist() == [0, 2, 1, 8, 8, 42]
    assert packed_bits(np.array([5, 1, 3]), np.array([3, 2, 4])).tolist() == [0b01101101, 0]


@pytest.mark.parametrize("form", [*FORMS, "packed"])
def test_columns_of_64_bits_give_the_same_rows(form: str) -> None:
    one = replace(FILTERS[1], wide=NUMBERS)
    inputs, wanted = one.data(1.0, ROWS)
    assert [data.itemsize for data in inputs] == [1, 8]
    if form == "packed":
        found = measure(compiled(one.packed_source(1.0), "full"), [packed(inputs)], wanted)
    else:
        found = measure(compiled(one.source(form, 1.0), form), inputs, wanted)
    assert found.instructions > 0


def test_the_cut_of_the_mask_costs_instructions_and_keeps_rows_right() -> None:
    one = FILTERS[0]
    inputs, wanted = one.data(1.0, ROWS)
    cut = measure(compiled(one.source("full", 1.0), "full"), inputs, wanted)
    uncut = measure(compiled(replace(one, shortens=False).source("full", 1.0), "full"), inputs, None)
    assert 1.1 * uncut.instructions < cut.instructions
    # Where every kept column is tested, nothing is cut: both forms are alike but for the outputs' room.
    tested = Filter("tested", ("c_custkey",), (RowTest("c_custkey", "le", 5),))
    inputs, wanted = tested.data(1.0, ROWS)
    alike = [
        measure(compiled(replace(tested, shortens=cuts).source("full", 1.0), "full"), inputs, wanted).instructions
        for cuts in (True, False)
    ]
    assert abs(alike[1] - alike[0]) <= 1


def test_causes_are_ratios_of_runs_with_one_thing_changed() -> None:
    cycles = {"scalar": 40.0, "v": 14.0, "pup": 6.0, "full": 3.0}
    rows = [
        {
            "kernel": kernel,
            "change": change,
            "form": form,
            "cycles_a_value": at / (1 + (form == "full" and place)),
            "waits_share": 0.5,
        }
        for kernel in varve_kernels.KERNELS
        for place, change in enumerate(varve_kernels.CHANGES)
        for form, at in cycles.items()
    ]
    found = varve_kernels.causes_of(rows)
    assert [(one["kernel"], one["change"]) for one in found] == [
        (kernel, change) for kernel in varve_kernels.KERNELS for change in varve_kernels.CHANGES
    ]
    assert [one["full_over_pup"] for one in found] == [2.0, 4.0, 6.0, 8.0] * 3
    assert found[0]["full_over_scalar"] == pytest.approx(40 / 3)
    described = ("", (*FORMS,))
    runs = [
        {
            "change": change,
            "form": form,
            "filter": name,
            "instructions_a_row": {"scalar": 9.0, "v": 6.0, "pup": 3.0, "full": 2.0, "packed": 2.0}[form]
            * (1 + (change.startswith("numbers") and form == "v")),
            "cycles_a_row": cycles.get(form, 3.0),
            "bytes_a_row": 8.0 if form != "packed" else 4.0 + number,
            "padded_bits": 64,
            "packed_bits": 32.0,
        }
        for change, forms in (described, *((change, forms) for change, (*_, forms) in varve_filters.CHANGES.items()))
        for form in forms
        for number, name in enumerate(("a", "b"))
    ]
    causes = {one["change"]: one for one in varve_filters.causes_of(runs)}
    assert list(causes) == ["as described", *varve_filters.CHANGES]
    assert causes["as described"]["instructions_v_over_full"] == pytest.approx(3.0)
    assert causes["full as Figure 8.8 has it"]["full_over_v"] == pytest.approx(14 / 3)
    assert causes["numbers of 64 bits"]["instructions_v_over_full"] == pytest.approx(6.0)
    assert causes["as described"]["traffic_most"] is None
    cached = causes["DRAM behind caches"]
    assert (cached["traffic_least"], cached["traffic_most"], cached["inputs_most"]) == (1.6, 2.0, 2.0)


def test_data_beside_the_core_wait_for_no_cache() -> None:
    inputs, wanted = FILTERS[0].data(1.0, ROWS)
    for form in FORMS:
        found = measure(compiled(FILTERS[0].source(form, 1.0), form), inputs, wanted, BESIDE)
        assert all(found.reasons[name] == 0 for name in ("l2", "memory")), form
        assert found.reasons["l1"] < 0.05 * found.cycles
        behind = measure(compiled(FILTERS[0].source(form, 1.0), form), inputs, wanted)
        assert behind.reasons["memory"] > 0
        assert behind.instructions == found.instructions


def test_alignment_and_width_are_the_cores_and_results_are_not() -> None:
    strips = [np.random.default_rng(i).integers(1, 8, 2048).astype(np.int32) for i in range(STRIPS)]
    wanted, made = [np.bitwise_xor.reduce(strips)], compiled(raid5("full"), "full")
    cycles = {}
    for align in (1, 4, 32, 8):
        found = measure(made, strips, wanted, {"vector.align_bits": align})
        cycles[align] = found.cycles
        efficiency = found.datapath_efficiency
        assert efficiency <= {1: 1.0, 4: 1.0, 8: 0.5, 32: 0.125}[align]
    assert cycles[4] < cycles[8] < cycles[32]
    wide = measure(made, strips, wanted, {"isa": isa(512), "vector.datapath_bits": 512})
    half = measure(made, strips, wanted, {"isa": isa(512), "vector.datapath_bits": 256})
    assert 1.5 * wide.instructions < found.instructions
    assert half.reasons["vector"] > 0 == wide.reasons["vector"]


def test_cores_beside_modelled_flash_have_vectors() -> None:
    strips = [np.random.default_rng(i).integers(1, 8, 16_384).astype(np.int32) for i in range(STRIPS)]
    seconds = {}
    for form in ("v", "full"):
        device = nandarray.devices()["assasin-varve"].with_({"compute.core.vector.align_bits": 4})
        made = Program.from_c(raid5(form), target="rv64gcv")
        with nandarray.open(device=device, mode="w", seed=1) as store:
            arrays = [store.create(f"x{i}", data=data) for i, data in enumerate(strips)]
            store.flush()
            before = store.clock.now
            done = nandarray.offload(made, arrays, task_bytes=8 << 10)
            seconds[form] = store.clock.now - before
            assert np.array_equal(np.asarray(done.outputs["y"]), np.bitwise_xor.reduce(strips))
            timed = store.report()["programs"]["timed_cores"]
            assert timed["core"] == "zou-2023-varve"
            assert timed["area_mm2"] == pytest.approx(8 * (0.203 + 0.303))
    assert seconds["full"] <= seconds["v"]


def test_the_command_line_shows_the_share_of_bits_that_carry_values(tmp_path: Path) -> None:
    source = tmp_path / "raid5.c"
    source.write_text(raid5("full"))
    with nandarray.open(tmp_path / "d.nand", "w") as store:
        for i in range(STRIPS):
            store.create(f"x{i}", data=np.arange(1, 1025, dtype=np.int32) % 7)
    arrays = [f"{tmp_path / 'd.nand'}:/x{i}" for i in range(STRIPS)]
    made = Program.from_c(source.read_text(), target="rv64gcv")
    elf = tmp_path / "raid5.elf"
    elf.write_bytes(made.elf)
    done = CliRunner().invoke(app, ["program", "profile", str(elf), *arrays, "--core", "ex5-varve"])
    assert done.exit_code == 0, done.output
    assert "vector datapath: " in done.output
    assert "% of its bits carried values" in done.output


def test_a_value_too_far_ends_a_strip_and_not_the_program(tmp_path: Path) -> None:
    text = """
#include <nandarray.h>
#include <nandarray_varve.h>
ND_PROGRAM("name": "k", "kind": "block", "inputs": [{"name": "x", "dtype": "uint8"}],
           "outputs": [{"name": "y", "dtype": "int64", "bound": {"fixed": 4096}}])
int64_t nd_block(nd_args *args) {
    const uint8_t *x = ND_INPUT(args, 0, uint8_t);
    int64_t *y = ND_OUTPUT(args, 0, int64_t);
    nd_vrstream(0, x + 64, 33 | (int64_t)1 << 63, x);
    nd_vunpack(1, 0, 64);
    y[0] = nd_vrcnum();
    nd_crstream(0, y[0]);
    if (x[33]) nd_vunpack(1, 0, 64);
    ND_SET_USED(args, 0, 1, int64_t);
    return 0;
}
"""
    made = Program.from_c(text, target="rv64gcv_zvl256b")
    # 32 values of 8 bits fill a register; the width of the next one is none.
    for more, fails in ((0, False), (1, True)):
        data = np.frombuffer(bytes([8] * 32 + [200, more] + [0] * 30) + bytes([127] * 64), np.uint8)
        with nandarray.open(tmp_path / f"{more}.nand", "w") as store:
            array = store.create("x", data=data)
            if fails:
                with pytest.raises(nandarray.errors.ProgramFailedError, match="too wide"):
                    array.offload(made)
            else:
                assert array.offload(made).tolist() == [32]


def _table(codes: list[tuple[int, int, int]]) -> bytes:
    entries = b"".join(
        value.to_bytes(8, "little", signed=True) + code.to_bytes(4, "little") + length.to_bytes(4, "little")
        for value, code, length in codes
    )
    return len(codes).to_bytes(8, "little") + entries


def test_a_large_huffman_table_is_searched_by_length(tmp_path: Path) -> None:
    text = """
#include <nandarray.h>
#include <nandarray_varve.h>
ND_PROGRAM("name": "k", "kind": "block", "inputs": [{"name": "x", "dtype": "uint8"}],
           "outputs": [{"name": "y", "dtype": "int16", "bound": {"fixed": 65536}}],
           "scalars": [{"name": "at", "dtype": "int64"}, {"name": "count", "dtype": "int64"}])
int64_t nd_block(nd_args *args) {
    const uint8_t *x = ND_INPUT(args, 0, uint8_t);
    int16_t *y = ND_OUTPUT(args, 0, int16_t);
    int64_t n = nd_scalar_i64(args, 1), all = n;
    nd_hrstream(0, x + nd_scalar_i64(args, 0), n, x);
    nd_fwstream(1, y, n, 16 | ND_SIGNED);
    for (int64_t step; n > 0; n -= step) {
        nd_vunpack(1, 0, 16);
        (void)nd_vpack(1, 1);
        nd_crstream(0, step = (int64_t)nd_vrcnum());
    }
    ND_SET_USED(args, 0, all, int16_t);
    return 0;
}
"""
    made = Program.from_c(text, target="rv64gcv_zvl256b")
    chance = np.random.default_rng(12)
    # All codes of 12 bits but those that begin with 0, which is a code itself.
    codes = [(-1, 0, 1), *((i, i, 12) for i in range(2048, 4096))]
    drawn = [codes[i] for i in chance.integers(0, len(codes), 3000)]
    digits = "".join(f"{code:0{length}b}" for _, code, length in drawn)
    data = bytes(int(digits[at : at + 8][::-1], 2) for at in range(0, len(digits), 8))
    head = _table(codes)
    with nandarray.open(tmp_path / "h.nand", "w") as store:
        array = store.create("x", data=np.frombuffer(head + data + bytes(64), np.uint8))
        found = array.offload(made, at=len(head), count=len(drawn))
        assert found.tolist() == [value for value, _, _ in drawn]
        many = _table([(i, i, 13) for i in range(4097)])
        other = store.create("y", data=np.frombuffer(many + bytes(64), np.uint8))
        with pytest.raises(nandarray.errors.ProgramFailedError, match="no prefix code"):
            other.offload(made, at=len(many), count=1)


def test_the_kernels_of_figure_8_10_are_an_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def column(name: str, _scale: float) -> np.ndarray:
        chance = np.random.default_rng(1)
        drawn = {"p_brand": (25, np.uint8), "o_orderdate": (10_600, np.int32), "l_linenumber": (8, np.int32)}[name]
        return chance.integers(0, drawn[0], 4096).astype(drawn[1])

    monkeypatch.setattr("nandarray_papers.varve.kernels.column", column)
    done = lab.run("varve.kernels", profile="small", runs=tmp_path, jobs=1)
    orders = done.table("orders")
    assert all(orders[orders["order"].str.contains("full over")]["holds"])
