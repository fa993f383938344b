"""The benchmark is held to two things: every system reads right data, and the verdicts follow from the figures.

Speed itself is not tested here: a figure from a test machine says nothing. Tested are: that each adapter stores and
returns the truth for every pattern, that a run from end to end gives a figure for every cell, and that promises come
out kept, missed or unmeasured on fixed numbers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import __main__ as cli
from bench import (
    coremark,
    cores,
    first_result,
    geometry,
    groups,
    memory,
    micro,
    model,
    offload,
    offload_door,
    offload_pairs,
    opening,
    parts,
    programs,
    report,
    systems,
    tables,
)
from bench.data import ArraySpec, make_truth, map_truth
from bench.judge import OURS, Table, best_configurations, judge
from bench.patterns import BY_NAME, COMPRESSED, PATTERNS, Box, Points
from bench.runner import Cell, Results, Runner, Settings
from bench.sections import sections
from bench.worker import Bench, WrongDataError

# icechunk's and zarr's own deprecations are theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

_SHAPES = [(300, 260), (40, 70, 45), (20, 17, 12, 18)]
_STORES = [label for label in systems.LABELS if systems.info(label).stores]
_LIGHT = ("nandarray/default", "memcpy/threads", "lines/row-major", "ref/256", "memmap/row-major", "h5py/256-cache")


def _usable(label: str) -> None:
    reason = systems.missing(label)
    if reason is not None:
        pytest.skip(reason)


# Data and patterns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", _SHAPES)
def test_every_pattern_stays_inside_and_repeats_itself(shape: tuple[int, ...]) -> None:
    for pattern in PATTERNS[len(shape)]:
        ops, again = pattern.ops(shape), pattern.ops(shape)
        assert ops
        assert len({op.elements for op in ops}) == 1, "the operations of a pattern are equal in size"
        for op, same in zip(ops, again, strict=True):
            if isinstance(op, Box):
                assert op == same
                assert all(s >= 0 and c >= 1 and s + c <= n for s, c, n in zip(op.start, op.count, shape, strict=True))
            else:
                assert isinstance(same, Points)
                assert np.array_equal(op.coords, same.coords)
                assert (op.coords >= 0).all()
                assert (op.coords < np.array(shape)).all()


def test_patterns_of_the_full_size_are_those_of_the_promises() -> None:
    ops = {pattern.name: pattern.ops((16384, 16384))[0] for pattern in PATTERNS[2]}
    counts = {name: op.count for name, op in ops.items() if isinstance(op, Box)}
    assert counts["row-bands"] == (512, 16384)
    assert counts["column-bands"] == (16384, 512)
    assert counts["blocks-aligned"] == counts["blocks-unaligned"] == (2048, 2048)
    assert counts["overwrite"] == (1000, 1000)
    assert any(s % 256 for s in ops["blocks-unaligned"].start)  # type: ignore[union-attr]


def test_the_truth_is_deterministic_and_smooth_data_compresses(tmp_path: Path) -> None:
    import zlib

    shrinks = {}
    for data in ("noise", "smooth"):
        spec = ArraySpec((500, 300), data)
        one = make_truth(spec, tmp_path / "one").read_bytes()
        assert one == make_truth(spec, tmp_path / "two").read_bytes()
        assert len(one) == spec.nbytes
        shuffled = np.frombuffer(one, np.uint8).reshape(-1, 4).T.tobytes()
        shrinks[data] = len(zlib.compress(shuffled)) / len(one)
    assert shrinks["noise"] > 0.75  # 24 random bits of 32
    assert shrinks["smooth"] < 0.5


# Systems -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("label", _STORES)
def test_a_system_reads_what_was_written(label: str, compression: str | None, tmp_path: Path) -> None:
    _usable(label)
    if compression not in systems.info(label).compressions:
        pytest.skip("does not compress")
    for shape in _SHAPES if compression is None else _SHAPES[:1]:
        spec = ArraySpec(shape, "noise" if compression is None else "smooth", compression)
        truth = make_truth(spec, tmp_path / "truth")
        bench = Bench(label, tmp_path / str(len(shape)), spec, truth)
        assert bench.full_write()["durable"] > 0
        for pattern in PATTERNS[len(shape)]:
            if pattern.kind == "read":
                bench._check(pattern)
        if len(shape) == 2:
            bench.overwrite("overwrite", 0)  # reads back what it wrote, or raises
        bench.close()


def test_wrong_data_is_noticed(tmp_path: Path) -> None:
    spec = ArraySpec((300, 260))
    truth = make_truth(spec, tmp_path / "truth")
    bench = Bench("memmap/row-major", tmp_path / "store", spec, truth)
    bench.full_write()
    bench.system.close()
    with bench.system.path.open("r+b") as file:
        file.write(b"\x01\x02\x03\x04")
    bench.system.open()
    with pytest.raises(WrongDataError, match="row-bands"):
        bench.calibrate("row-bands", 0.001)


def test_the_reference_agrees_with_numpy_on_every_small_box(tmp_path: Path) -> None:
    spec = ArraySpec((9, 600))
    truth = map_truth(spec, make_truth(spec, tmp_path / "truth"))
    ref = systems.make("ref/256", tmp_path / "ref", spec)
    ref.wipe()
    ref.create()
    ref.write_all(truth)
    rng = np.random.default_rng(3)
    for _ in range(300):
        start = (int(rng.integers(9)), int(rng.integers(600)))
        count = (int(rng.integers(1, 10 - start[0])), int(rng.integers(1, 601 - start[1])))
        out = np.empty(count, np.float32)
        ref.read(Box(start, count), out)
        assert np.array_equal(out, truth[Box(start, count).slices])
    ref.close()


def test_the_lines_of_a_box_are_those_of_a_row_major_file(tmp_path: Path) -> None:
    spec = ArraySpec((6, 5, 48))
    lines = systems.make("lines/row-major", tmp_path / "lines", spec)
    lines.truth = np.arange(6 * 5 * 48, dtype=np.float32).reshape(6, 5, 48)
    lines.open()
    for start, count in (
        ((0, 0, 0), (6, 5, 48)),
        ((2, 1, 15), (3, 4, 2)),
        ((1, 0, 20), (1, 5, 1)),
        ((5, 4, 47), (1, 1, 1)),
    ):
        box = Box(start, count)
        touched = np.unique(lines.truth[box.slices].astype(int) // 16)
        lines.read(box, np.empty(count, np.float32))
        assert sorted(lines._touched.astype(int) // 16) == touched.tolist()
    lines.close()


# A whole run ---------------------------------------------------------------------------------------------------------


def test_a_run_has_a_figure_for_every_cell(tmp_path: Path) -> None:
    labels = tuple(label for label in _LIGHT if systems.missing(label) is None)
    settings = Settings(tmp_path, "tiny", rounds=2, budget=0.002, cold_budget=0.002, cold="fadvise", systems=labels)
    settings.cold_rounds = settings.write_rounds = 1
    settings.states = (*settings.states, "part")
    results = Runner(settings, lambda _: None).run(sections("tiny"))
    assert results.failures == []
    cells = {(c.section, c.pattern, c.state, c.system): c for c in results.cells}
    for section in sections("tiny"):
        for pattern in section.patterns:
            for label in labels:
                if section.spec.compression in systems.info(label).compressions and systems.info(label).stores:
                    for state in pattern.states:
                        cell = cells[section.name, pattern.name, state, label]
                        assert cell.median > 0
                        assert cell.gbps > 0
    assert not any(p.is_file() for p in tmp_path.rglob("*")), "the run leaves no data behind"

    report.save_json(results, tmp_path / "run.json")
    again = report.load_json(tmp_path / "run.json")
    assert again.cells == results.cells
    assert "row bands 512 x N, cold" in report.markdown(again, "python -m bench run")

    again.add(report.load_json(tmp_path / "run.json"))
    assert len(again.cells) == len(results.cells), "the same cells again are more rounds of them"
    assert all(len(two.seconds) == 2 * len(one.seconds) for one, two in zip(results.cells, again.cells, strict=True))


def test_a_system_that_fails_leaves_a_line_and_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICECHUNK_LOG", "error")
    settings = Settings(tmp_path, "tiny", rounds=1, budget=0.001, systems=("memmap/row-major", "ref/256"))
    settings.only = ("rows",)
    settings.cold, settings.sections, settings.cold_rounds = "nonsense", ("2d",), 1
    runner = Runner(settings, lambda _: None)
    asked = runner._ask

    def broken(section: object, label: str, method: str, *arguments: object) -> object:
        if label == "ref/256" and method == "calibrate":
            arguments = ("no-such-pattern", *arguments[1:])
        return asked(section, label, method, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "_ask", broken)
    results = runner.run(sections("tiny"))
    assert len(results.failures) == 1
    assert "ref/256" in results.failures[0]
    assert {cell.system for cell in results.cells} == {"memmap/row-major"}


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    labels = ("memmap/row-major", "memcpy/threads")
    settings = Settings(tmp_path, "tiny", rounds=1, budget=0.001, cold_budget=0.001, cold="fadvise", systems=labels)
    settings.only, settings.sections, settings.cold_rounds = ("rows", "overwrite"), ("2d",), 1
    whole = {(c.pattern, c.state) for c in Runner(settings, lambda _: None).run(sections("tiny")).cells}

    settings.minutes = 0
    nothing = Runner(settings, lambda _: None).run(sections("tiny"))
    assert nothing.cells == []
    assert nothing.skipped == ["not measured: what is left of section 2d; 0 minutes were over"]

    settings.minutes = None
    saved: list[Path] = []

    def stop(results: Results) -> None:
        saved.append(tmp_path / "run.json")
        report.save_json(results, saved[-1])
        if len(saved) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Runner(settings, lambda _: None, stop).run(sections("tiny"))
    before = report.load_json(saved[-1])
    before.skipped = nothing.skipped
    had = {(c.pattern, c.state): list(c.seconds) for c in before.cells if c.system == labels[0]}
    assert 0 < len(had) < len(whole)
    said: list[str] = []
    results = Runner(settings, said.append, before=before).run(sections("tiny"))
    found = {(c.pattern, c.state): c.seconds for c in results.cells if c.system == labels[0]}
    assert set(found) == whole
    assert results.skipped == []
    assert all(found[row] == seconds for row, seconds in had.items()), "what was there is not measured again"
    done = len(said)
    Runner(settings, said.append, before=results).run(sections("tiny"))
    assert len(said) == done, "there is nothing left to do"


def test_a_system_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(tmp_path, "tiny", rounds=1, budget=5.0, systems=("memmap/row-major",), patience=1.0)
    settings.only, settings.sections = ("rows",), ("2d",)
    results = Runner(settings, lambda _: None).run(sections("tiny"))
    assert any("no answer within 1 s" in line for line in results.failures)
    assert not any(p.is_file() for p in tmp_path.rglob("*"))


def test_a_missing_peer_is_skipped_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = systems.missing
    monkeypatch.setattr(systems, "missing", lambda label: "no such module" if "tiledb" in label else real(label))
    said: list[str] = []
    settings = Settings(tmp_path, "tiny", systems=("tiledb/256",))
    results = Runner(settings, said.append).run(sections("tiny"))
    assert results.skipped == ["tiledb/256: no such module"]
    assert any("skipping tiledb/256" in line for line in said)


# Verdicts ------------------------------------------------------------------------------------------------------------


def _results(figures: dict[tuple[str, str, str], dict[str, float]]) -> Results:
    cells = []
    shapes: dict[str, tuple[int, ...]] = {"2d": (16384, 16384), "3d": (640,) * 3, "4d": (128,) * 4}
    for (section, pattern, state), seconds in figures.items():
        shape = shapes[section[:2]]
        op_bytes = BY_NAME[pattern].ops(shape)[0].elements * 4
        cells += [Cell(section, pattern, state, name, op_bytes, 1, [s, s, s * 9]) for name, s in seconds.items()]
    return Results(cells=cells)


def _verdicts(figures: dict[tuple[str, str, str], dict[str, float]]) -> dict[str, bool | None]:
    kept = {verdict.name: verdict.kept for verdict in judge(_results(figures))}
    short = {"geometric": "mean", "below 0.9": "floor", "copy": "copy", "column": "columns", "writing": "write"}
    return {short[key]: value for name, value in kept.items() for key in short if key in name}


def test_promises_kept() -> None:
    peers = {"tensorstore/256": 4.0, "tensorstore/1024": 0.95, "h5py/256-cache": 9.0, "memcpy/threads": 0.8}
    assert _verdicts(
        {
            ("2d", "row-bands", "warm"): {OURS: 1.0, **peers},
            ("2d", "column-bands", "warm"): {OURS: 1.2, **peers, "tensorstore/1024": 40.0},
            ("2d", "overwrite", "warm"): {OURS: 1.0, "tiledb/256": 1.3, "zarr/256": 0.1},
        }
    ) == {"mean": True, "floor": True, "copy": False, "columns": True, "write": True}


def test_compressed_rows_are_judged_by_all_that_are_fast_there() -> None:
    labels = {"tensorstore": "tensorstore/256", "blosc2": "blosc2/1024-mmap", "mapless": "blosc2/1024"}
    labels["zarrs"] = "zarrs/256"

    def verdicts(**seconds: float) -> dict[str, Any]:
        figures = {OURS: 1.0, **{labels[key]: value for key, value in seconds.items()}}
        rows = {("2d-lz4", "row-bands", "warm"): figures, ("2d-lz4", "full-write", "warm"): figures}
        return {v.name.split(":")[0]: v for v in judge(_results(rows))}

    alone = verdicts(tensorstore=4.0, mapless=5.0)
    assert alone["reading, compressed"].kept is None, "TensorStore alone does not say it"
    assert "without blosc2 (mmap), zarrs" in alone["reading, compressed"].measured
    assert alone["writing, compressed"].kept is None
    all_three = verdicts(tensorstore=4.0, blosc2=3.5, zarrs=0.8)
    assert all_three["reading, compressed"].kept is False
    assert all_three["reading, compressed"].measured.startswith("0.80 (zarrs/256), 3.50 (blosc2/1024-mmap)")
    assert all_three["writing, compressed"].losses == ("2d-lz4 full-write warm: 0.80 of zarrs/256",)
    assert verdicts(tensorstore=4.0, blosc2=3.5, zarrs=3.1)["reading, compressed"].kept is True
    results = _results({("2d-lz4", "row-bands", "warm"): {OURS: 1.0, "tensorstore/256": 2.0, "zarrs/256": 0.5}})
    results.titles["2d-lz4"] = "waves"
    assert "| < 0.50 zarrs/256 |" in report.markdown(results, "command")


def test_promises_missed() -> None:
    assert _verdicts(
        {
            ("2d", "row-bands", "warm"): {OURS: 1.0, "tensorstore/256": 2.0, "memcpy/threads": 0.69},
            ("2d", "column-bands", "warm"): {OURS: 1.3, "tensorstore/256": 1.0},
            ("2d", "full-write", "warm"): {OURS: 1.0, "icechunk/256": 1.1},
        }
    ) == {"mean": False, "floor": False, "copy": False, "columns": False, "write": False}


def test_what_wants_little_of_each_line_is_judged_by_the_lines_too() -> None:
    figures = {OURS: 1.0, "memcpy/threads": 0.1, "lines/row-major": 0.9}
    kept = {v.name.split(":")[0]: v for v in judge(_results({("4d", "volumes-3", "warm"): figures}))}
    assert kept["reading warm, half of each cache line or less"].kept is True
    assert kept["reading warm, uncompressed, blocks of 4 MiB and more"].kept is False
    kept = {v.name.split(":")[0]: v for v in judge(_results({("3d", "cubes", "warm"): figures}))}
    assert "reading warm, half of each cache line or less" not in kept
    assert kept["reading warm, uncompressed, blocks of 4 MiB and more"].kept is False


def test_promises_without_figures_are_not_kept() -> None:
    assert set(_verdicts({("2d", "rows", "warm"): {OURS: 1.0}}).values()) == {None}


def test_yardsticks_are_no_peers_and_each_peer_has_its_best_configuration() -> None:
    table = Table(
        _results(
            {
                ("2d", "rows", "warm"): {OURS: 1.0, "ref/256": 0.1, "zarrs/256": 8.0, "zarrs/1024": 2.0},
                ("2d", "columns", "warm"): {OURS: 1.0, "ref/256": 0.1, "zarrs/256": 2.0, "zarrs/1024": 32.0},
            }
        )
    )
    best = best_configurations(table, table.reads())
    assert {peer: (label, round(mean, 9)) for peer, (label, mean) in best.items()} == {"zarrs": ("zarrs/256", 4.0)}


def test_a_loss_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    results = _results({("2d", "row-bands", "cold"): {OURS: 1.0, "tensorstore/256": 0.5}})
    results.titles = {"2d": "an array"}
    report.print_text(results, 160)
    shown = capsys.readouterr().out
    assert "MISSED" in shown
    assert "2d row-bands cold: 0.50 of tensorstore/256" in shown
    assert "< 0.50" in shown


# The other measurements ----------------------------------------------------------------------------------------------


def test_geometry_ranks_against_the_preset() -> None:
    results = _results({("2d", "rows", "warm"): {OURS: 2.0, "nandarray/4096:65536": 1.0, "nandarray/8192:65536": 8.0}})
    ranks = geometry.ranking(results)
    assert [(label, round(mean, 3)) for label, mean, *_ in ranks] == [
        ("nandarray/4096:65536", 0.5),
        (OURS, 1.0),
        ("nandarray/8192:65536", 4.0),
    ]
    assert geometry.labels()[0] == OURS
    assert systems.info("nandarray/4096:65536").peer == "nandarray"


def test_a_building_block_is_a_configuration(tmp_path: Path) -> None:
    label = "nandarray/1x8x8x8"
    assert systems.is_label(label)
    assert not any(map(systems.is_label, ("nandarray/0x8", "nandarray/", "h5py/1x8", "1x8")))
    spec = ArraySpec((4, 9, 9, 9))
    system = systems.make(label, tmp_path, spec)
    system.create()
    assert system.facts() == {"building block": [1, 8, 8, 8]}
    system.close()


def test_memory_beside_the_buffer_is_counted(tmp_path: Path) -> None:
    found = memory.measure(tmp_path, ("memmap/row-major",), "tiny")
    assert [one.system for one in found] == ["memmap/row-major"]
    assert found[0].private < 64 << 20
    assert found[0].seconds > 0


def test_opening_many_arrays(tmp_path: Path) -> None:
    found = opening.measure(tmp_path, 1500, 300)
    by_system = {(one.system, one.what) for one in found}
    assert ("h5py", "1,500 arrays") in by_system
    assert ("zarr", "1,500 arrays") in by_system
    if systems.missing(OURS) is None:
        assert ("nandarray", "300 building blocks of 512 B") in by_system
    assert all(one.seconds > 0 for one in found)
    assert not (tmp_path / "opening").exists()


def test_boxes_beside_their_peers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--side", "40", "--box", "8", "--count", "30", "--rounds", "1", "--folder", str(tmp_path)]
    assert cli.main(["boxes", *given, "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    names = {(name, "noise") for name in ("nandarray", "nandarray, blocks 4", "memmap", "reads")}
    names |= {("nandarray", "waves"), ("nandarray, blocks 4", "waves")}
    assert {(one["system"], one["data"], one["state"]) for one in found} >= {
        (*name, state) for name in names for state in ("cold", "warm")
    }
    assert all(one["bytes_s"] > 0 and one["cpu_s_gb"] >= 0 and one["disk"] >= 0 for one in found)
    for one in found:
        assert (one["ratio"] is None) == one["system"].startswith("nandarray")
        assert bool(one["verdict"]) <= one["system"].startswith(("zarr", "reads"))
    assert "nandarray is, times" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["nandarray", "nandarray, from C"])
def test_the_first_result_is_timed(tmp_path: Path, what: str) -> None:
    (tmp_path / "program.py").write_text(first_result.text(what, "arithmetic"))
    imported, result, offload, process = first_result._once(tmp_path, str(tmp_path / "compiled"))
    assert 0 < offload < result < process
    assert imported < process


@pytest.mark.skipif(sys.platform != "linux", reason="it asks Linux for pages")
def test_small_measurements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "micro.md"
    cli.main(["micro", "--size", "tiny", "--rounds", "1", "--folder", str(tmp_path), "--markdown", str(table)])
    shown = capsys.readouterr().out
    rows = [line.split("|")[1:-1] for line in table.read_text().splitlines()[4:]]
    assert {row[0].strip() for row in rows} == set(micro.SECTIONS)
    assert "2d: row bands 512 x N" in shown
    assert "16 x 16 by two lists" in shown
    assert all(float(row[2].split()[0]) > 0 for row in rows)
    assert not (tmp_path / "micro").exists()


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "--size", "tiny", "--only", "rows", "--sections", "2d", "--systems", "memmap", "ref"]
    arguments += ["--rounds", "1", "--budget", "0.001", "--cold", "fadvise", "--folder", str(tmp_path / "data")]
    arguments += ["--json", str(tmp_path / "a.json"), "--markdown", str(tmp_path / "a.md")]
    assert cli.main(arguments) == 0
    assert json.loads((tmp_path / "a.json").read_text())["cells"]
    assert "single rows, warm" in (tmp_path / "a.md").read_text()
    assert "single rows" in capsys.readouterr().out
    assert cli.main(["report", str(tmp_path / "a.json"), str(tmp_path / "a.json")]) == 0
    assert cli.main([*arguments, "--resume", "--minutes", "5"]) == 0
    with pytest.raises(SystemExit, match="holds a run with rounds 1; this one has 2"):
        cli.main([*arguments, "--resume", "--rounds", "2"])
    with pytest.raises(SystemExit, match="unknown system nosuch"):
        cli.main(["run", "--systems", "nosuch"])


def test_compressed_sections_walk_known_patterns() -> None:
    assert all(pattern.name in BY_NAME for pattern in COMPRESSED)


# The model's benchmark -----------------------------------------------------------------------------------------------


def test_tables_of_the_model_are_read_and_drawn() -> None:
    one = {"section": "rows", "title": "A title", "header": ["what", "n"], "rows": [["a", "1,000"]], "notes": ["why"]}
    (table,) = model.tables("progress\n" + json.dumps(one) + "\n")
    assert table.text() == "A title\n  what  n\n  a     1,000\n  why"
    assert table.markdown().splitlines() == [
        "### A title",
        "",
        "| what | n |",
        "| --- | --- |",
        "| a | 1,000 |",
        "",
        "why",
    ]


# Programs ------------------------------------------------------------------------------------------------------------


def test_a_peer_that_is_faster_is_a_promise_missed() -> None:
    times = {"nandarray, native": 2.0, "nandarray, translated": 6.5, "NumPy": 1.9, "Numba": 2.1}
    rows = [offload.Row("sum", name, [seconds]) for name, seconds in times.items()]
    verdicts = {row.system: row.verdict.partition(":")[0] for row in offload.judged(rows, 10**9)}
    assert verdicts == {"nandarray, native": "", "nandarray, translated": "MISSED", "NumPy": "MISSED", "Numba": "kept"}


def test_short_programs_are_held_to_interpreting_them(tmp_path: Path) -> None:
    row = programs.Row("mix", 1000, [0.1], [[0.125], [0.131], [0.01]])
    assert row.verdict == "MISSED: 2nd above 0.130 s"
    row.translated[1] = [0.12]
    assert row.verdict == "kept"
    rows = programs.measure(tmp_path / "data", rounds=1, scale=0.001, say=lambda _: None)
    assert [one.name for one in rows] == [job.name for job in programs.JOBS]
    assert all(one.instructions > 1000 and len(one.interpreted) == 1 for one in rows)
    header, lines = programs.table(rows)
    assert all(len(line) == len(header) for line in lines)
    assert list((tmp_path / "data").iterdir()) == []


def test_timed_cores_are_measured_and_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise coremark.NoCoreMarkError("no network in tests")

    monkeypatch.setattr(coremark, "fetch", nowhere)
    row = cores.Row("five-stage", 500, 1_000_000, 1.5, [0.001, 0.01, 0.002])
    assert (row.mips, row.verdict) == (500, "kept")
    row.seconds.append(0.01)
    assert row.verdict == "MISSED: 500"
    rows = cores.measure(tmp_path / "data", rounds=1, scale=0.001, say=lambda _: None)
    assert [one.name for one in rows] == [name for name, *_ in (*cores.ROWS, *cores.DEVICES)]
    assert all(one.instructions > 1000 for one in rows)
    assert {one.work for one in rows} == {"mix", "sum"}
    header, lines = cores.table(rows)
    assert all(len(line) == len(header) for line in lines)


def test_a_merge_and_a_stencil_beside_dask_from_end_to_end(tmp_path: Path) -> None:
    pytest.importorskip("dask")
    pytest.importorskip("numba")
    arguments = ["offload", "--dask", "--bytes", str(1 << 20), "--rounds", "1", "--folder", str(tmp_path / "data")]
    assert cli.main([*arguments, "--json", str(tmp_path / "a.json")]) == 0
    rows = json.loads((tmp_path / "a.json").read_text())
    wanted = [(operation, system) for operation in offload_pairs.OPERATIONS for system in offload_pairs.SYSTEMS]
    assert [(row["operation"], row["system"]) for row in rows] == wanted
    assert all(
        row["ratio"] > 0 and (row["verdict"] in {"held", "MISSED"}) == (row["system"] == "nandarray") for row in rows
    )


def test_programs_beside_their_peers_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if "native" not in offload.forms():
        pytest.skip("there are no native forms on this machine")
    arguments = ["offload", "--bytes", str(1 << 20), "--rounds", "2", "--forms", "native"]
    arguments += ["--folder", str(tmp_path / "data"), "--json", str(tmp_path / "a.json")]
    assert cli.main(arguments) == 0
    rows = json.loads((tmp_path / "a.json").read_text())
    assert {row["dtype"] for row in rows} == {"float64", "float32"}
    systems = {one: [row["system"] for row in rows if row["operation"] == one] for one in offload.OPERATIONS}
    for operation, names in systems.items():
        assert names[0] == "nandarray, native"
        assert (offload.APART in names) == (operation == "filter-sum")
        assert "NumPy" in names
    assert all(len(row["seconds"]) == 2 and min(row["seconds"]) > 0 and row["rate"] > 0 for row in rows)
    ours = [row for row in rows if row["system"] == "nandarray, native"]
    assert all(row["private"] is not None and row["ratio"] == 1 for row in ours)
    assert "filter-sum" in capsys.readouterr().out
    assert not (tmp_path / "data" / "offload").exists()


def test_groups_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["offload", "--groups", "--bytes", str(1 << 20), "--keys", "1000"]
    arguments += ["--folder", str(tmp_path / "data"), "--json", str(tmp_path / "a.json")]
    assert cli.main(arguments) == 0
    rows = json.loads((tmp_path / "a.json").read_text())
    ours = {row["operation"]: row for row in rows if row["system"] == "nandarray"}
    assert list(ours) == list(groups.OPERATIONS)
    assert all(row["seconds"] > 0 and row["resident"] > row["private"] for row in ours.values())
    assert all(row["verdict"] == "kept" for row in ours.values())
    assert "peak RSS" in capsys.readouterr().out
    assert not (tmp_path / "data" / "groups").exists()


def test_a_wrong_result_is_not_timed() -> None:
    for operation, wrong in (("sum", 3.1), ("filter-sum", 3.1), ("minmax", (1, 3)), ("filter", np.arange(3))):
        with pytest.raises(SystemExit, match=f"NumPy|{operation}"):
            offload._check(operation, wrong, 3.0 if "sum" in operation else (1, 2), "somebody")


def test_programs_at_a_node_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["offload", "--door", "nvme", "--bytes", str(1 << 20), "--rounds", "2"]
    arguments += ["--folder", str(tmp_path / "data"), "--json", str(tmp_path / "a.json")]
    assert cli.main(arguments) == 0
    rows = json.loads((tmp_path / "a.json").read_text())
    ours = [offload_door.LOCAL, offload_door.FORM, offload_door.NODE, offload_door.READ]
    for operation in offload_door.OPERATIONS:
        found = {row["system"]: row for row in rows if row["operation"] == operation}
        assert list(found)[:4] == ours
        assert all(len(row["seconds"]) == len(row["cpu"]) == 2 and row["ratio"] > 0 for row in found.values())
        assert 0 < found[offload_door.NODE]["received"] < 20_000
    assert "filter" in capsys.readouterr().out
    assert not (tmp_path / "data" / "offload-door").exists()


def test_a_node_is_held_to_its_bars() -> None:
    def verdict(seconds: float, cpu: float) -> str:
        rows = [
            offload_door.DoorRow("sum", offload_door.LOCAL, [1.0], [2.0]),
            offload_door.DoorRow("sum", offload_door.NODE, [seconds], [cpu]),
        ]
        return offload_door.judged(rows)[1].verdict

    assert verdict(1.25, 0.01) == "kept"
    assert verdict(1.35, 0.01).startswith("MISSED: more than 1.3 times")
    assert verdict(1.25, 0.05) == "MISSED: 0.050 s of processor time"


def test_stores_of_parts_are_measured_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["parts", "--only", "commits", "open", "--writers", "2", "--commits", "2", "--shards", "5000"]
    arguments += ["--rounds", "1", "--folder", str(tmp_path / "data"), "--json", str(tmp_path / "a.json")]
    assert cli.main([*arguments, "--peers", sys.executable]) == 0
    rows = {(row["work"], row["system"]): row for row in json.loads((tmp_path / "a.json").read_text())}
    commits, opened = rows["commits", parts.OURS], rows["open", parts.OURS]
    assert commits["facts"][0].items() >= {"asked": 4, "good": 4, "there": 4, "history": 4}.items()
    assert commits["verdict"].startswith("kept: all there")
    assert 0 < commits["facts"][0]["metadata"] < 1 << 16
    assert opened["facts"][0]["files"] == 3
    assert opened["verdict"] == "kept: 3 files; kept: 100 MB"
    assert rows["open", parts.ZARR]["ratio"] > 0
    assert "4 of 4 reported ones there" in capsys.readouterr().out
    assert not (tmp_path / "data" / "parts").exists()
    with pytest.raises(SystemExit, match="unknown work bites; known: commits, bytes"):
        cli.main(["parts", "--only", "bites"])


def test_tables_are_measured_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NANDARRAY_CACHE", str(tmp_path))
    arguments = ["tables", "--scale", "0.001", "--bytes", "1048576", "--rounds", "1", "--engines", "DuckDB"]
    arguments += ["--folder", str(tmp_path / "data"), "--json", str(tmp_path / "a.json"), "--peers", sys.executable]
    assert cli.main([*arguments, "--only", "sorted", "take", "scan", "size"]) == 0
    rows = {(row["work"], row["system"]): row for row in json.loads((tmp_path / "a.json").read_text())}
    assert rows["size", tables.OURS]["bytes"] > 1000
    found = rows["sorted in DuckDB", tables.OURS]
    assert found["answer"] == rows["sorted in DuckDB", tables.PARQUET]["answer"]
    assert "of Parquet's CPU" in found["verdict"]
    assert not [row for row in rows.values() if "FAILED" in row["verdict"] or "WRONG" in row["verdict"]]
    assert {"take", "scan"} <= {work for work, system in rows if system == tables.OURS}
    assert "sorted in DuckDB" in capsys.readouterr().out
    assert not (tmp_path / "data" / "tables").exists()
    with pytest.raises(SystemExit, match="unknown engine Duck; known: DuckDB"):
        cli.main(["tables", "--engines", "Duck"])


def test_tables_are_held_to_their_goals() -> None:
    def verdict(work: str, ours: float, **peers: float) -> str:
        names = {"parquet": tables.PARQUET, "lance": tables.LANCE, "vortex": tables.VORTEX, "copy": tables.COPY}
        rows = [tables.TablesRow(work, tables.OURS, [ours], [ours], int(ours))]
        rows += [tables.TablesRow(work, names[name], [one], [one], int(one)) for name, one in peers.items()]
        return tables.judged(rows)[0].verdict.partition(":")[0]

    assert verdict("q1 in DuckDB", 1.4, parquet=1.0) == "kept"
    assert verdict("q6 in DataFusion", 1.1, parquet=1.0) == "MISSED"
    assert verdict("q6 in Spark", 1.4, parquet=1.0) == "kept"
    assert verdict("sorted in DuckDB", 0.31, parquet=1.0) == "MISSED"
    assert verdict("take", 0.5, lance=1.0, vortex=2.0, parquet=0.1) == "kept"
    assert verdict("scan", 1.0, copy=0.7) == "MISSED"
    assert verdict("size", 12, parquet=10) == "kept"
    rows = [tables.TablesRow("q1 in DuckDB", name, [1.0], [1.0], answer=name) for name in ("nandarray", "Parquet")]
    assert tables.judged(rows)[0].verdict.startswith("WRONG: another answer than Parquet")
    one = "[('A', Decimal('37734107.00'), 25.522005853257337, 1478493)]"
    assert tables._same(one, one.replace("57337", "57341"))
    assert not tables._same(one, one.replace("1478493", "1478494"))
    assert not tables._same(one, one.replace("]", ", ('B', 0, 1.0, 1)]"))
    heads, lines = tables.table([*rows, tables.TablesRow("take", tables.LANCE, verdict="FAILED: x")])
    assert all(len(line) == len(heads) for line in lines)


def test_stores_of_parts_are_held_to_their_goals() -> None:
    def verdict(ours: parts.PartsRow, *others: parts.PartsRow) -> list[str]:
        return [part.partition(":")[0] for part in parts.judged([ours, *others])[0].verdict.split("; ")]

    def row(work: str, system: str, seconds: float, cpu: float = 1.0, **facts: float) -> parts.PartsRow:
        return parts.PartsRow(work, system, [seconds], [cpu], [dict(facts)])

    lost = row("commits", parts.OURS, 1.0, asked=8, there=7, history=8, good=8, tries=3, metadata=400, least=100)
    assert verdict(lost) == ["MISSED"] * 3
    peers = [row("bytes", parts.FILE, 0.95), row("bytes", parts.ICECHUNK, 1.4)]
    assert verdict(row("bytes", parts.OURS, 1.0), *peers) == ["kept", "MISSED"]
    assert [peer.ratio for peer in peers] == [0.95, 1.4]
    assert verdict(row("touch", parts.OURS, 1.0, commit=0.051)) == ["MISSED"]
    assert verdict(row("near: mean", parts.OURS, 1.0, 1.2), row("near: mean", parts.HERE, 1.0, 1.0)) == ["MISSED"]
    heads, lines = parts.table([lost, *parts.judged([parts.PartsRow("open", parts.ZARR, verdict="FAILED: x"), *peers])])
    assert all(len(line) == len(heads) for line in lines)
    assert "7 of 8 reported ones there, 8 versions, 3 tries" in lines[0][5]
