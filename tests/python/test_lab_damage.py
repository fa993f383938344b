"""Folders of runs and sweeps that are damaged, or made to lead elsewhere: every reader says so and none goes astray."""

from __future__ import annotations

import copy
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from report_fixture import make
from typer.testing import CliRunner

import nandarray
from nandarray import lab
from nandarray.cli import app
from nandarray.errors import CorruptError, InvalidError, NandarrayError, UnsupportedVersionError
from nandarray.lab import _files, _heads, report
from nandarray.lab.write_sweep import Journal

SPEC: dict[str, Any] = {
    "name": "small",
    "device": "tiny",
    "axes": {"workload.depth": [1, 4], "geometry.channels": [1, 999]},
    "workload": {"requests": 40},
}
SEEDS = range(4)
HALF = "half \ud800 a character"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run and a sweep; tests take copies."""
    runs = tmp_path_factory.mktemp("whole")
    made = make(runs, labels=1)
    made.path.rename(runs / "run")
    lab.sweep(SPEC, jobs=1, runs=runs).path.rename(runs / "sweep")
    return runs


@pytest.fixture
def folders(whole: Path, tmp_path: Path) -> tuple[Path, Path]:
    for name in ("run", "sweep"):
        shutil.copytree(whole / name, tmp_path / name)
    return tmp_path / "run", tmp_path / "sweep"


def call(*words: Any) -> tuple[int, str]:
    """Run a command, which may fail, but in one line."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code in (0, 1), (words, result.output, result.exception)
    if result.exit_code:
        (line,) = result.stderr.splitlines()
        assert line.startswith("nandarray: error: ")
        assert "unexpected" not in line, line
    return result.exit_code, result.stderr


def readers(run: Path, sweep: Path) -> Iterator[Callable[[], Any]]:
    """All that reads a run's and a sweep's folder."""

    def of_run() -> None:
        found = lab.load(run)
        repr(found), found._repr_html_(), found.environment, found.devices, found.reports
        for name in found.tables:
            found.rows(name), found.table(name)
        lab.compare(found, found).to_dict()
        lab.compare(found, found)._repr_html_()

    def of_sweep() -> None:
        found = lab.load_sweep(sweep)
        repr(found), found._repr_html_(), found.rows(), found.failures, found.to_xarray()
        found.pareto(), found.pareto({"iops": "max"})

    yield of_run
    yield of_sweep
    yield lambda: report.write([run], run.parent / "page.html", [sweep], compare=(run, run))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in nested JSON values but the outermost."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*path, key)
            yield from places(inner, (*path, key))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def test_whole_folders_are_read(folders: tuple[Path, Path]) -> None:
    for reader in readers(*folders):
        reader()
    for words in (("show", folders[0]), ("show", folders[1]), ("compare", folders[0], folders[0])):
        assert call("lab", *words) == (0, "")


@pytest.mark.parametrize("which", ["run", "sweep"])
def test_a_key_that_is_gone_or_of_another_kind_is_named(which: str, folders: tuple[Path, Path]) -> None:
    folder = folders[which == "sweep"]
    head = json.loads((folder / f"{which}.json").read_text())
    form = _heads.RUN if which == "run" else _heads.SWEEP
    open_ = lab.load if which == "run" else lab.load_sweep
    for key in form:
        for damaged in ({k: v for k, v in head.items() if k != key}, {**head, key: None}, {**head, key: [{"x": 1}]}):
            (folder / f"{which}.json").write_text(json.dumps(damaged))
            with pytest.raises(CorruptError, match=rf"{which}\.json is damaged: .*{key}"):
                open_(folder)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_head_with_any_value_changed_is_read_or_refused(seed: int, folders: tuple[Path, Path]) -> None:
    rng = random.Random(seed)
    wrong = [None, True, -1, 2**70, 1e300, "", "x", HALF, "../../x", [], [None], {}, {"x": [1]}, [[1]], "<script>"]
    for folder, name in zip(folders, ("run.json", "sweep.json"), strict=True):
        head = json.loads((folder / name).read_text())
        for path in rng.sample(list(places(head)), 8):
            damaged = copy.deepcopy(head)
            inside = at(damaged, path[:-1])
            if rng.random() < 0.3:
                del inside[path[-1]]
            else:
                inside[path[-1]] = rng.choice(wrong)
            (folder / name).write_text(json.dumps(damaged))
            for reader in list(readers(*folders))[:: rng.choice([1, 2])]:
                try:
                    reader()
                except (NandarrayError, FileNotFoundError):
                    continue
                except Exception as error:
                    raise AssertionError(f"seed {seed}: {path} = {inside!r:.80}") from error
        (folder / name).write_text(json.dumps(head))


@pytest.mark.parametrize("seed", SEEDS)
def test_files_with_bytes_changed_are_read_or_refused(seed: int, folders: tuple[Path, Path]) -> None:
    rng = random.Random(seed)
    files = [file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file()]
    for file in rng.sample(files, 6):
        good = bytearray(file.read_bytes())
        spoilt = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
        file.write_bytes(spoilt[: rng.choice([len(spoilt), rng.randrange(len(spoilt))])])
        for reader in readers(*folders):
            try:
                reader()
            except (NandarrayError, FileNotFoundError):
                continue
            except Exception as error:
                raise AssertionError(f"seed {seed}: {file}: {file.read_bytes()[:200]!r}") from error
        file.write_bytes(good)


def test_commands_answer_damage_in_one_line(folders: tuple[Path, Path]) -> None:
    rng = random.Random(1)
    files = [file for folder in folders for file in sorted(folder.rglob("*.json"))]
    for file in [folders[0] / "run.json", folders[1] / "sweep.json", *rng.sample(files, 2)]:
        good = file.read_bytes()
        for damaged in (b"", b"[" * 20000, b"null", b"{}", good[: len(good) // 2], b"\xff\xfe", b'{"schema": true}'):
            file.write_bytes(damaged)
            run, sweep = folders
            commands = [
                ("show", run), ("show", sweep), ("compare", run, run), ("report", run, sweep), ("list", "--ran"),
                ("show", run, "--table", "rows"), ("show", sweep, "--json"), ("report", "--runs", run.parent),
            ]  # fmt: skip
            for words in rng.sample(commands, 2):
                call("lab", *words)
        file.write_bytes(good)


def test_names_lead_to_nowhere_outside_the_folder(folders: tuple[Path, Path], tmp_path: Path) -> None:
    run, _ = folders
    secret = tmp_path / "secret.json"
    secret.write_text('[{"secret": 1}]')
    head = json.loads((run / "run.json").read_text())
    outside = [
        {"tables": head["tables"] | {"../../secret": {"columns": ["secret"], "rows": 1}}},
        {"tables": head["tables"] | {str(secret.with_suffix("")): {"columns": ["secret"], "rows": 1}}},
        {"reports": ["../../secret"]},
        {"reports": ["a/../../../secret"]},
        {"devices": {"tiny": "../secret.json"}},
        {"devices": {"tiny": str(secret)}},
        {"devices": {"tiny": "devices/../../secret.json"}},
        {"devices": {"tiny": "devices/.."}},
        {"devices": ["tiny"]},
    ]
    for more in outside:
        (run / "run.json").write_text(json.dumps(head | more))
        with pytest.raises(CorruptError, match="is damaged"):
            lab.load(run)


def test_a_schema_is_a_number_from_1(folders: tuple[Path, Path]) -> None:
    run, _ = folders
    head = json.loads((run / "run.json").read_text())
    for schema in (True, 0, -1, "1", 1.0, None, [1]):
        (run / "run.json").write_text(json.dumps(head | {"schema": schema}))
        with pytest.raises(CorruptError, match="states no schema"):
            lab.load(run)
    (run / "run.json").write_text(json.dumps(head | {"schema": 2}))
    with pytest.raises(UnsupportedVersionError):
        lab.load(run)


def test_halves_of_characters_are_shown_and_not_written(folders: tuple[Path, Path], tmp_path: Path) -> None:
    run, sweep = folders
    head = json.loads((run / "run.json").read_text())
    head["title"] = head["question"] = head["misfits"][0] = HALF
    (run / "run.json").write_text(json.dumps(head))
    rows = json.loads((run / "tables" / "rows.json").read_text())
    (run / "tables" / "rows.json").write_text(json.dumps([row | {"system": HALF} for row in rows]))
    page = report.write([run], tmp_path / "page.html", [sweep]).read_text(encoding="utf-8")
    assert "half \ufffd a character" in page
    # In the charts' data, where JSON can say it.
    assert not report.has_charts() or r"half \ud800 a character" in page
    with pytest.raises(InvalidError, match="half a character"):
        _files.write_json(tmp_path / "x.json", {"a": [HALF]})
    with pytest.raises(InvalidError, match="half a character"):
        _files.digest(HALF)
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize(
    "value", [2**63, 2**70, -(2**70), "a\ud800", b"x", 1j, {1: 2}, object(), [2**70], {"a": 2**70}]
)
def test_a_value_that_no_table_holds_is_an_error(value: Any, tmp_path: Path) -> None:
    for rows in ([{"a": value}], [{"a": 1}, {"a": value}], [{"a": None}, {"a": value}]):
        try:
            _files.write_table(tmp_path, "t", rows)
        except InvalidError:
            continue
        assert json.loads((tmp_path / "t.json").read_text()) == [_files.plain(row) for row in rows]
    with pytest.raises(InvalidError, match="the name of a column must be a text"):
        _files.write_table(tmp_path, "t", [{1: 2}])  # type: ignore[dict-item]


def test_sets_have_an_order_whatever_is_in_them() -> None:
    assert _files.dumps({3, 1, 2}) == "[1,2,3]"
    assert _files.dumps({"b", 1, None, 2.5}) == _files.dumps({None, 2.5, 1, "b"})


# --- journals ---------------------------------------------------------------------------------------------------------

LINES = [
    '{"point": "x", "measures": {}}', '{"point": null, "measures": {}}', '{"point": 1.0, "measures": {}}',
    '{"point": true, "measures": {}}', '{"point": [1], "measures": {}}', '{"point": -1, "measures": {}}',
    '{"point": 1}', '{"point": 1, "measures": 5}', '{"point": 1, "error": "x"}', '{"point": 1, "kind": 1, "error": ""}',
    "[1]", "5", "null", '"point"', "", "[" * 5000, "\x00", '{"point": 4, "measures": {}}',
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_a_journal_that_is_no_result_counts_as_torn(line: str, tmp_path: Path) -> None:
    file = tmp_path / "journal"
    good = '{"point": 3, "measures": {"a": 1.0}}\n{"point": 0, "kind": "E", "error": "x"}\n'
    file.write_text(good + line + '\n{"point": 2, "measures": {}}\n')
    journal = Journal(file, 4)
    journal.close()
    assert sorted(journal.done) == [0, 3]
    assert file.read_text() == good


def test_a_sweep_goes_on_from_a_journal_cut_anywhere(tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    def stop(_what: str, done: int, of: int) -> None:
        if done == of:
            raise StoppedError

    first = lab.sweep(SPEC, jobs=1, runs=tmp_path / "whole")
    with pytest.raises(StoppedError):
        lab.sweep(SPEC, jobs=1, runs=tmp_path / "cut", progress=stop)
    (part,) = (tmp_path / "cut").iterdir()
    journal = (part / "journal.jsonl").read_bytes()
    assert journal.count(b"\n") == len(first) == 4
    ends = [found.end() for found in re.finditer(b"\n", journal)]
    rng = random.Random(5)
    for cut in sorted({0, *ends, ends[1] - 1, ends[1] + 1, *rng.sample(range(len(journal)), 3)}):
        shutil.rmtree(tmp_path / "cut")
        part.mkdir(parents=True)
        (part / "journal.jsonl").write_bytes(journal[:cut])
        again = lab.sweep(SPEC, jobs=1, runs=tmp_path / "cut")
        assert again.environment["resumed"] == sum(end <= cut for end in ends), cut
        for file in ("sweep.json", "tables/points.json", "tables/points.parquet", "tables/failures.json"):
            assert (again.path / file).read_bytes() == (first.path / file).read_bytes(), (cut, file)


def test_the_front_over_words_is_refused(folders: tuple[Path, Path]) -> None:
    rows = json.loads((folders[1] / "tables" / "points.json").read_text())
    assert len(rows) == 2
    found = lab.load_sweep(folders[1])
    for name in ("point", "iops"):
        assert len(found.pareto({name: "min"})) == 1
    with pytest.raises(InvalidError, match="'max' or 'min'"):
        found.pareto({"iops": "least"})
    with pytest.raises(InvalidError, match="a front must have an objective"):
        found.pareto({})
    words = lab.sweep(SPEC | {"axes": {"device": ["tiny", "mqsim-ideal"]}, "name": "words"}, jobs=1)
    with pytest.raises(InvalidError, match="'device' is no column of numbers"):
        words.pareto({"device": "max"})
    assert nandarray.__version__ == words.version
