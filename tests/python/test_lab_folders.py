"""Folders of runs whose making ends at any step, by a kill or a full disk; and a damaged folder among whole ones."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from folder_steps import everything, failing_at, pictures
from typer.testing import CliRunner

from nandarray import device, lab
from nandarray.cli import app
from nandarray.errors import CorruptError, NandarrayError, NotFoundError
from nandarray.lab import write_run, write_sweep
from nandarray.lab.read_run import find_run
from nandarray.lab.report import source

ROWS = [{"x": n, "name": "ab"[n % 2], "much": n / 3} for n in range(5)]
SWEEP: dict[str, Any] = {
    "name": "small", "device": "tiny", "axes": {"workload.depth": [1, 4], "geometry.channels": [1, 999]},
    "workload": {"requests": 30},
}  # fmt: skip


def measured(context: lab.Context) -> lab.Result:
    return lab.Result(
        tables={"rows": ROWS, "none": []},
        answers=[lab.Answer("nds.fig9d.write.sw_loss", context["much"])],
        reports={"one": {"device": "tiny", "elapsed_s": 1.5}},
    )


EXPERIMENT = lab.Experiment(
    "t.folders", "T", "?", measured, ["nds.fig9d.write.sw_loss"],
    {"much": lab.Parameter(0.7, "a share"), "device": lab.Parameter("tiny", "which")},
)  # fmt: skip


@pytest.fixture(autouse=True)
def _no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs do not ask for commit and packages, which takes longer than they do."""
    for module in (write_run, write_sweep):
        monkeypatch.setattr(module, "environment", lambda seconds: {"date": "2026-01-01T00:00", "seconds": seconds})


def make(runs: Path) -> lab.Run:
    return lab.run(EXPERIMENT, runs=runs)


def make_sweep(runs: Path) -> lab.Sweep:
    return lab.sweep(SWEEP, jobs=1, runs=runs)


MAKERS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], list[Any]]]] = {
    "run": (make, lab.runs),
    "sweep": (make_sweep, lab.sweeps),
}


def is_whole(one: Any, wanted: dict[str, bytes]) -> None:
    assert everything(one.path) == wanted
    for name in one.tables:
        assert len(one.rows(name)) == len(one.table(name))
    assert one.environment["seconds"] >= 0


# --- kills and full disks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [False, True], ids=["new", "in place of one"])
@pytest.mark.parametrize("kind", MAKERS)
def test_a_kill_at_any_step_leaves_a_whole_folder_or_none(kind: str, before: bool, tmp_path: Path) -> None:
    make_one, listed = MAKERS[kind]
    runs = tmp_path / "runs"
    wanted = everything(make_one(tmp_path / "other").path)
    if before:
        make_one(runs)
    with pictures(runs, tmp_path) as taken:
        done = make_one(runs)
    is_whole(done, wanted)
    assert len(taken) >= 9
    gone = 0
    for picture in taken:
        there = listed(picture)
        gone += before and not there
        for one in there:
            is_whole(one, wanted)
        assert lab.damaged(picture) == {}
    assert gone <= 1, "between two names only"
    for picture in taken[:: max(1, len(taken) // 4)] + taken[-2:]:
        again = make_one(picture)
        is_whole(again, wanted)
        assert os.listdir(picture) == [again.id], "remains are removed"


def steps_of(make_one: Callable[[Path], Any], runs: Path, wanted: dict[str, bytes], before: bool) -> Iterator[str]:
    """Fail each step of making in turn, and look at what is left; gives the steps."""
    number = 0
    while True:
        shutil.rmtree(runs, ignore_errors=True)
        old = make_one(runs).path if before else None
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "the disk")
        # Remains are removed without a look at errors: such a step may fail unseen.
        with failing_at(runs, number, full) as seen, suppress(OSError):
            make_one(runs)
        if len(seen) <= number:
            return
        yield seen[number]
        number += 1
        left = [name for name in os.listdir(runs) if not name.endswith(".part")]
        if old is not None:
            assert left == [old.name], f"step {number}: {seen}: the earlier run is gone"
        for name in left:
            assert everything(runs / name) == wanted, (number, seen)
        if number % 4 == 0:
            is_whole(make_one(runs), wanted)
            assert len(os.listdir(runs)) == 1, (number, seen)


@pytest.mark.parametrize("before", [False, True], ids=["new", "in place of one"])
@pytest.mark.parametrize("kind", MAKERS)
def test_a_disk_that_is_full_at_any_step_costs_no_earlier_run(kind: str, before: bool, tmp_path: Path) -> None:
    make_one, _ = MAKERS[kind]
    wanted = everything(make_one(tmp_path / "other").path)
    steps = list(steps_of(make_one, tmp_path / "runs", wanted, before))
    assert any(step.startswith("os.rename") for step in steps)
    assert any(step.startswith("open") for step in steps)


def test_a_failed_rename_puts_the_earlier_run_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make(tmp_path)
    rename = Path.rename

    def refused(self: Path, target: Path) -> Path:
        if self.name == f"{first.id}.part":
            raise OSError(errno.EIO, "no", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(OSError, match="no"):
        make(tmp_path)
    assert os.listdir(tmp_path) == [first.id]
    assert lab.load(first.path).data == first.data


@pytest.mark.parametrize("lines", [0, 1, 2, 3])
def test_a_sweep_measures_again_only_what_the_journal_lacks(lines: int, tmp_path: Path) -> None:
    pictured = tmp_path / "pictures"
    with pictures(tmp_path / "runs", pictured) as taken:
        done = make_sweep(tmp_path / "runs")
    (journal,) = next(found for picture in taken if len(found := list(picture.glob("*.part/journal.jsonl"))) == 1)
    part = tmp_path / "again" / f"{done.id}.part"
    part.mkdir(parents=True)
    whole = max((one.read_bytes() for picture in taken for one in picture.glob("*.part/journal.jsonl")), key=len)
    kept = b"".join(whole.splitlines(keepends=True)[:lines])
    (part / journal.name).write_bytes(kept + b'{"point": 3, "meas')
    (part / "tables").mkdir()
    (part / "tables" / "points.json").write_text("rubbish of a kill while tables were written")
    told: list[int] = []
    again = lab.sweep(SWEEP, jobs=1, runs=tmp_path / "again", progress=lambda _what, had, _of: told.append(had))
    assert told == list(range(lines, 5))
    assert again.environment["resumed"] == lines
    assert everything(again.path) == everything(done.path)


# --- one damaged folder among whole ones ------------------------------------------------------------------------------

DAMAGE: dict[str, tuple[str, str]] = {
    "cut": ('{"schema": 1, "exper', "is damaged: "),
    "empty": ("", "is damaged: "),
    "a list": ("[]", "states no schema"),
    "newer": ('{"schema": 99}', "has schema 99"),
    "bare": ('{"schema": 1}', "it has no "),
    "deep": ("[" * 30_000, "is damaged: "),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs and a sweep; tests take copies."""
    runs = tmp_path_factory.mktemp("whole") / "lab-runs"
    for seed in (1, 2):
        lab.run(EXPERIMENT, runs=runs, seed=seed)
    make_sweep(runs)
    return runs


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "lab-runs"))


def command(*words: Any) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["lab", *map(str, words)])
    assert "Traceback" not in done.output
    assert "please report" not in done.output, (words, done.stderr)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("kind", MAKERS)
def test_a_damaged_folder_hides_no_other(kind: str, how: str, folder: Path) -> None:
    text, says = DAMAGE[how]
    good = {name: [one.id for one in listed(folder)] for name, (_, listed) in MAKERS.items()}
    bad = folder / f"{kind}.bad@0"
    bad.mkdir()
    (bad / f"{kind}.json").write_text(text)
    assert {name: [one.id for one in listed(folder)] for name, (_, listed) in MAKERS.items()} == good
    (why,) = lab.damaged(folder).values()
    assert says in why
    assert "\n" not in why
    code, shown, told = command("list", "--ran", "--runs", folder)
    assert code == 0
    for name in (*good["run"], *good["sweep"]):
        assert name in shown
    assert bad.name not in shown
    assert told.startswith(f"not usable: {bad.name}: ")
    assert told.count("\n") == 1
    code, shown, told = command("list", "--ran", "--runs", folder, "--json")
    assert [one["id"] for one in json.loads(shown)] == [*good["run"], *good["sweep"]]
    assert bad.name in told
    code, _, told = command("report", "--runs", folder, "-o", folder / "page.html")
    assert (code, bad.name in told) == (0, True)
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert all(name in page for name in good["run"])
    code, _, told = command("show", bad.name, "--runs", folder)
    assert (code, told.count("\n")) == (1, 1), "what is asked for by name is an error"


ENVIRONMENTS = {
    "gone": None, "{}": "it has no date", '{"date": 5, "seconds": 1}': "date is of another kind",
    '{"date": "x"}': "it has no seconds", '{"date": "x", "seconds": "1"}': "seconds is of another kind",
    "[]": "it is no mapping", '{"date"': "is damaged",
}  # fmt: skip


@pytest.mark.parametrize("text", ENVIRONMENTS)
def test_a_damaged_environment_costs_the_date_alone(text: str, folder: Path) -> None:
    for one in (*lab.runs(folder), *lab.sweeps(folder)):
        file = one.path / "environment.json"
        file.unlink()
        if text != "gone":
            file.write_text(text)
        again = type(one)(one.path)
        with pytest.raises(FileNotFoundError if text == "gone" else CorruptError, match=ENVIRONMENTS[text]):
            _ = again.environment
        if isinstance(again, lab.Run) and text != "gone":
            assert source.read(again).environment == {}
    code, shown, told = command("list", "--ran", "--runs", folder)
    assert (code, told) == (0, "")
    assert shown.count(" - ") >= 3
    for words in (("run", "model.queue-depth"), ("show", lab.runs(folder)[0].id), ("show", "small")):
        command(*words, "--runs", folder, *(["--profile", "small"] if words[0] == "run" else []))


def test_folders_that_may_not_be_read_hide_no_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = lab.runs(folder)
    read_text = Path.read_text

    def refused(self: Path, *args: Any, **named: Any) -> str:
        if self == first.path / "run.json":
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return read_text(self, *args, **named)

    monkeypatch.setattr(Path, "read_text", refused)
    assert [run.id for run in lab.runs(folder)] == [second.id]
    assert "Permission denied" in lab.damaged(folder)[first.id]


def test_a_run_that_is_removed_while_runs_are_listed_is_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = lab.runs(folder)
    is_file = Path.is_file

    def removing(self: Path) -> bool:
        found = is_file(self)
        if self == first.path / "run.json" and found:
            self.unlink()
        return found

    monkeypatch.setattr(Path, "is_file", removing)
    assert [run.id for run in lab.runs(folder)] == [second.id]
    assert lab.damaged(folder) == {}


def test_other_things_in_the_folder_of_runs_are_passed_over(folder: Path) -> None:
    ids = [run.id for run in lab.runs(folder)]
    (folder / "notes.txt").write_text("mine")
    (folder / "empty@1").mkdir()
    (folder / "t.folders@2.part").mkdir()
    (folder / "t.folders@2.part" / "run.json").write_text("{")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "gone").symlink_to(folder / "nowhere")
    (folder / "dir@3" / "run.json").mkdir(parents=True)
    assert [run.id for run in lab.runs(folder)] == ids
    assert lab.damaged(folder) == {}
    (folder / "linked@4").symlink_to(folder / ids[0])
    assert [run.id for run in lab.runs(folder)] == ["linked@4", *ids]
    assert lab.runs(folder / "notes.txt") == lab.sweeps(folder / "notes.txt") == []


# --- names ------------------------------------------------------------------------------------------------------------

FOLDERS = ["nds.fig9@aa1", "nds.fig9@aa2", "nds.fig10@b", "nds.fig1@c", "x@d", "x@d.part", "plain"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("nds.fig9@aa1", "nds.fig9@aa1"), ("nds.fig1", "nds.fig1@c"), ("nds.fig10", "nds.fig10@b"), ("x", "x@d"),
        ("plain", "plain"), ("pl", "plain"), ("nds.fig9@aa2", "nds.fig9@aa2"), ("nds.fig10@", "nds.fig10@b"),
        ("nds.fig9", "'nds.fig9' is ambiguous: nds.fig9@aa1, nds.fig9@aa2"),
        ("nds.fig9@a", "'nds.fig9@a' is ambiguous: nds.fig9@aa1, nds.fig9@aa2"),
        ("nds", "is ambiguous: nds.fig10@b, nds.fig1@c, nds.fig9@aa1, nds.fig9@aa2"),
        ("", "no run '' in"), ("fig9", "no run 'fig9' in"), ("x@d.part", "no run 'x@d.part' in"),
        ("nds.fig9@aa3", "did you mean 'nds.fig9@aa"),
    ],
)  # fmt: skip
def test_a_run_is_found_by_the_beginning_of_its_name(asked: str, found: str, tmp_path: Path) -> None:
    for name in FOLDERS:
        (tmp_path / "runs" / name).mkdir(parents=True)
    if " " in found:
        with pytest.raises(NotFoundError) as raised:
            find_run(asked, tmp_path / "runs")
        assert found in str(raised.value)
    else:
        assert find_run(asked, tmp_path / "runs") == tmp_path / "runs" / found


def test_a_device_of_a_run_is_the_one_that_it_ran_on(tmp_path: Path) -> None:
    done = make(tmp_path)
    assert done.devices == {"tiny": device.load("tiny")}
    (done.path / "devices" / "tiny.toml").write_text("geometry = 1")
    with pytest.raises(NandarrayError, match="geometry"):
        _ = lab.load(done.path).devices
    (done.path / "devices" / "tiny.toml").unlink()
    with pytest.raises(FileNotFoundError, match=r"tiny\.toml"):
        _ = lab.load(done.path).devices
    read = source.read(done)
    assert read.tables["rows"] == ROWS
    assert read.key == done.id
