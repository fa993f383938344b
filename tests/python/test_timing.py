"""Programs timed on described cores: figures that add up, closed forms, refusals, the command line."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import nandarray
from nandarray import programs
from nandarray.cli import app
from nandarray.errors import InvalidError, NotFoundError, ProgramError, ProgramFailedError
from nandarray.programs.compile import zig
from nandarray.programs.timing import choose_core, core_names, timed

LINE = 64
N = 40_000


@pytest.fixture
def x() -> Any:
    with nandarray.open("data.nand", "w") as store:
        store["x"] = np.arange(N, dtype="int32")
        yield store["x"]


def run(*words: Any) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["program", *map(str, words)])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("core", ["zou-2023", "five-stage-prefetch", "zou-2023-sp", "c66x", "ex5", "ibex"])
def test_every_cycle_has_a_reason_and_a_place(x: Any, core: str) -> None:
    found = programs.get("sum", dtype="int32").time([x], core=core)
    assert found.offloaded.result == N * (N - 1) // 2
    assert sum(found.reasons.values()) == pytest.approx(found.cycles)
    assert sum(one.cycles for one in found.functions) == pytest.approx(found.cycles)
    assert sum(one.instructions for one in found.functions) == found.instructions == sum(found.units.values())
    assert found.seconds == pytest.approx(found.cycles / found.clock_hz)
    assert found.cpi == pytest.approx(sum(found.cpi_stack.values()))
    line = found.lines[0]
    assert "total +=" in (line.text or "")
    assert line.cycles > 0.9 * found.cycles


def test_a_scan_misses_each_line_once_and_waits_for_it(x: Any) -> None:
    found = programs.get("sum", dtype="int32").time([x], core="five-stage")
    lines = N * 4 // LINE
    assert lines <= found.caches["l1d"].read_misses <= lines + 8
    assert found.caches["l1d"].hits == found.caches["l1d"].accesses - found.caches["l1d"].misses
    # The description's memory: 60 cycles from a miss to its line; behind the second level of 10.
    assert found.reasons["memory"] == pytest.approx(60 * lines, rel=0.01)
    assert found.reasons["l2"] == pytest.approx(10 * lines, rel=0.01)
    assert found.memory["lines_read"] == found.caches["l2"].read_misses + found.caches["l2"].write_misses
    faster = programs.get("sum", dtype="int32").time([x], core="five-stage", changes={"memory.t_access": 30})
    assert found.cycles - faster.cycles == pytest.approx(30 * lines, rel=0.01)


def test_windows_of_tasks_are_other_data() -> None:
    data = np.arange(3 << 18, dtype="int32")  # three tasks of a mebibyte
    with nandarray.open("tasks.nand", "w") as store:
        store["x"] = data
        big = {"l1d.size": "4MiB", "l2": "none"}  # all windows would fit
        found = programs.get("sum", dtype="int32").time([store["x"]], core="five-stage", changes=big)
    assert found.offloaded.account.tasks == 3
    assert found.caches["l1d"].read_misses >= data.nbytes // LINE
    again = found.offloaded.result
    assert again == data.sum()


def test_streams_and_prefetchers_take_less_than_misses(x: Any) -> None:
    block, stream = (programs.get("sum", dtype="int32", kind=kind) for kind in ("block", "stream"))
    took = {name: block.time([x], core=name).seconds for name in ("zou-2023", "zou-2023-prefetch", "zou-2023-sp")}
    took["zou-2023-stream"] = stream.time([x], core="zou-2023-stream").seconds
    beside = max(took["zou-2023-stream"], took["zou-2023-sp"])
    assert beside < took["zou-2023-prefetch"] < took["zou-2023"]


def test_energy_is_the_power_of_named_parts_times_the_time(x: Any) -> None:
    found = programs.get("sum", dtype="int32").time([x], core="zou-2023")
    assert found.energy_j == pytest.approx(found.seconds * (0.241 + 0.379 + 1.136) * 1e-3)
    assert found.area_mm2 == pytest.approx(0.039 + 0.044375 + 0.282)
    assert set(found.parts) == {"core", "l1d", "l2"}


def test_a_program_is_compiled_for_the_core_or_refused(x: Any) -> None:
    ready = programs.get("sum", dtype="int32")
    assert ready.time([x], core="zou-2023").program.isa.startswith("rv32i2p1_m2p0")
    elf = nandarray.Program.from_elf(ready.elf)
    with pytest.raises(ProgramError, match="is of 64 bits; the core zou-2023 has isa = rv32im"):
        elf.time([x], core="zou-2023")
    with pytest.raises(ProgramError, match="extensions Zba, Zbb, Zbs; the core lwp has isa = rv64gc"):
        elf.time([x], core="lwp")
    stream = programs.get("sum", dtype="int32", kind="stream")
    with pytest.raises(ProgramError, match="1 streams on one side; the core five-stage has streams = 0"):
        stream.time([x], core="five-stage")
    with pytest.raises(ProgramError, match="65536 bytes of scratchpad; the core zou-2023-sp has scratchpad_bytes = 8"):
        ready.time([x], core="zou-2023-sp", changes={"scratchpad": "8KiB"})


def test_python_runs_on_cores_of_64_bits(x: Any) -> None:
    @nandarray.program(inputs="int32")
    def double(x):  # type: ignore[no-untyped-def]
        return 2 * x

    found = double.time([x], core="five-stage", changes={"isa": "rv64im"})
    assert np.array_equal(found.offloaded.result, 2 * x[:])
    assert "_c2" not in found.program.isa
    with pytest.raises(InvalidError, match="compiled for 64 bits"):
        double.time([x], core="five-stage")


def test_the_floats_of_a_core_without_them_are_software(x: Any) -> None:
    with nandarray.open("f.nand", "w") as store:
        store["f"] = np.linspace(0, 1, 2000, dtype="float32")
        soft = programs.get("sum", dtype="float32").time([store["f"]], core="five-stage")
        hard = programs.get("sum", dtype="float32").time([store["f"]], core="five-stage", changes={"isa": "rv32imfd"})
    assert soft.offloaded.result == hard.offloaded.result
    assert soft.instructions > 5 * hard.instructions


def test_bad_descriptions_name_key_value_and_range(x: Any, tmp_path: Path) -> None:
    ready = programs.get("sum", dtype="int32")
    with pytest.raises(NotFoundError, match="there is no core 'z80'; there is zou-2023, .*ibex"):
        ready.time([x], core="z80")
    for change, said in {
        ("l1d.size", "24KiB"): r"l1d.size_bytes = 24576: the number of sets has to be a power of two",
        ("l1d.ways", "3"): r"a multiple of ways times line_bytes",
        ("l1d.colour", "red"): r"unknown field `colour`.*with l1d.colour=red",
        ("streams", "9"): r"streams = 9: programs have at most 8",
        ("width", "wide"): r"width=wide",
        ("isa", "rv32q"): r"isa = ",
    }.items():
        with pytest.raises(InvalidError, match=said):
            ready.time([x], core="five-stage", changes=dict([change]))
    with pytest.raises(NotFoundError, match="there is no file"):
        choose_core(tmp_path / "none.toml")
    own = tmp_path / "own.toml"
    own.write_text("name='own'\nsource='me'\ntick_ps=2000\nisa='rv32im'\nissue='blocking'\n[latency]\nmultiply=3\n")
    found = ready.time([x], core=own)
    assert (found.core, found.clock_hz, found.caches, found.parts) == ("own", 5e8, {}, {})
    assert found.energy_j == 0


def test_a_program_that_fails_fails_with_its_place(x: Any) -> None:
    with pytest.raises(ProgramFailedError, match=r"more than 100 instructions.*sum\.c"):
        programs.get("sum", dtype="int32").time([x], core="zou-2023", instructions=100)
    # The engine serves on.
    assert programs.get("sum", dtype="int32").time([x], core="zou-2023").offloaded.result == N * (N - 1) // 2


def test_figures_are_plain_data_and_html(x: Any) -> None:
    found = programs.get("sum", dtype="int32").time([x], core="zou-2023")
    plain = json.loads(found.to_json())
    assert plain["cycles"] == found.cycles
    assert plain["caches"]["l1d"]["misses"] == found.caches["l1d"].misses
    html = found._repr_html_()
    assert "zou-2023" in html
    assert "memory, for data" in html
    again = programs.get("sum", dtype="int32").time([x], core="zou-2023")
    assert again.to_dict() == found.to_dict()


def test_calls_add_up_and_make_a_timeline(x: Any, tmp_path: Path) -> None:
    found = timed(programs.get("sum", dtype="int32"), [x], core="five-stage", task_bytes=16 << 10)
    tasks = -(-4 * N // (16 << 10))
    assert len(found.calls) >= tasks
    assert sum(one.cycles for one in found.calls) == pytest.approx(found.cycles)
    for before, one in pairwise(found.calls):
        assert one.begin == pytest.approx(before.begin + before.cycles)
        assert sum(one.reasons.values()) == pytest.approx(one.cycles)
    for name, cycles in found.reasons.items():
        assert sum(one.reasons.get(name, 0) for one in found.calls) == pytest.approx(cycles)
    found.write_timeline(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    for row in (1, 2):
        spans = [one for one in events if one["ph"] == "X" and one["tid"] == row]
        assert sum(one["dur"] for one in spans) == pytest.approx(1e6 * found.seconds)
        assert all(later["ts"] >= one["ts"] + one["dur"] - 1e-6 for one, later in pairwise(spans))
    # Tasks miss their own lines: all take the same memory time.
    memory = sorted(one.reasons.get("memory", 0) for one in found.calls)[-tasks + 1 :]
    assert memory[0] == pytest.approx(memory[-1], rel=0.05)


def test_the_command_line_writes_a_timeline(x: Any, tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    status, _, _ = run("run", "sum", "data.nand:/x", "--core", "five-stage", "--quiet", "--timeline", out)
    assert status == 0
    assert json.loads(out.read_text())["traceEvents"]
    for words in (["--timeline", out], ["--core", "five-stage", "--timeline", tmp_path / "none" / "t.json"]):
        status, _, error = run("run", "sum", "data.nand:/x", "--quiet", *words)
        assert status != 0
        assert "goes with --core" in error or "no folder" in error


def test_targets_fit_cores() -> None:
    for name in core_names():
        facts = choose_core(name).facts
        assert zig.fits(zig.target_for(facts["isa"]).isa, facts["isa"]), name
    assert zig.target_for("rv32im").name == "rv32im"
    assert zig.target_for("rv64gc").name == "rv64imafdc"
    assert not zig.fits("rv64imac_zba", "rv64gc")


def test_the_command_line_times_and_profiles(x: Any) -> None:
    x.store.close()
    code, out, said = run("run", "sum", "data.nand:/x", "--core", "zou-2023", "--set", "l1d.size=16KiB")
    assert (code, out) == (0, f"{N * (N - 1) // 2}\n")
    assert "zou-2023 (rv32im, 1 GHz)" in said
    assert "l1d: " in said
    code, out, _ = run("run", "sum", "data.nand:/x", "--core", "zou-2023", "--json")
    timing = json.loads(out)["timing"]
    assert timing["cycles"] == pytest.approx(sum(timing["cycles_by_reason"].values()))
    code, out, _ = run("profile", "sum", "--core", "five-stage", "--sample", 5000, "--dtype", "int32")
    assert code == 0
    assert "nd_block" in out
    assert "total +=" in out
    code, out, _ = run("profile", "sum", "--core", "five-stage", "--sample", 5000, "--dtype", "int32", "--json")
    assert json.loads(out)["functions"][0]["name"] == "nd_block"
    code, out, _ = run("cores")
    assert code == 0
    assert all(name in out for name in core_names())
    for words, wrong in (
        (("run", "sum", "data.nand:/x", "--core", "nope"), "there is no core 'nope'"),
        (("run", "sum", "data.nand:/x", "--set", "width=2"), "--set goes with --core"),
        (("run", "sum", "data.nand:/x", "--core", "ex5", "--set", "width"), "is not KEY=VALUE"),
        (("run", "sum", "data.nand:/x", "--core", "ex5", "--form", "native"), "--core times one program"),
    ):
        code, _, said = run(*words)
        assert code != 0
        assert wrong in " ".join(said.replace("│", " ").split()), said


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["log", "sin", "atan2", "pow"])
def test_forms_of_signal_processors_are_software_pipelined(name: str, dtype: str) -> None:
    count = 4096
    with nandarray.open("floats.nand", "w") as store:
        for port in "ab":
            store[port] = (0.5 + np.random.default_rng(1).random(count)).astype(dtype)
        inputs = [store[port] for port in ("ab" if name in ("atan2", "pow") else "a")]
        one = programs.get(name, dtype=dtype, dsp=1).time(inputs, core="c66x")
        changes = {"vliw.simd_pairs": "true"}
        two = programs.get(name, dtype=dtype, dsp=2).time(inputs, core="c66x", changes=changes)
    # A loop of one branch an element, or two elements: nothing in it jumps.
    assert count <= one.units["branch"] < count + 64
    assert count / 2 <= two.units["branch"] < count / 2 + 64
    assert one.units["jump"] + two.units["jump"] < 64

    def own(found: Any) -> float:
        """Cycles an element that are not the caches'."""
        return sum(found.reasons[reason] for reason in ("issue", "hazard")) / count

    # Some more than a slot of the eight each; one element's chain of operations alone takes 50 cycles and more.
    slots = one.instructions / count / 8
    assert slots < own(one) < 2.5 * slots + 1
    assert own(two) < own(one) if dtype == "float32" else own(two) < own(one) + 1
    np.testing.assert_array_equal(one.offloaded.result, two.offloaded.result)


def test_values_of_the_wrong_kind_are_named() -> None:
    for key, value, allowed in [
        ("l1d.size", -1, "it is a whole number from 0 to"),
        ("l1d", 5, "it is a table"),
        ("memory.t_access", "nan", "it is a whole number from 0 to 4,294,967,295"),
    ]:
        with pytest.raises(InvalidError, match=f"^{key}={value}: .*{allowed}"):
            choose_core("five-stage", {"l1d.ways": 2, key: value})
