"""Runs of experiments: what the folder has, that the same run gives the same bytes, and what goes wrong."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from nandarray import lab
from nandarray.device import load
from nandarray.errors import CorruptError, InvalidError, LockedError, NotFoundError, UnsupportedVersionError
from nandarray.lab import _files, packages, parameters, registry, source
from nandarray.lab._html import answer_cells
from nandarray.lab.claims import claims
from nandarray.lab.judge import judge
from nandarray.lab.prepare import prepare

CLAIM = "nds.fig9d.write.sw_loss"
SHAPE = "nds.fig9c.submatrix.order"
ROWS = [{"x": n, "name": "ab"[n % 2], "much": n / 3, "list": [n, 2.5]} for n in range(4)]


def small(context: lab.Context) -> lab.Result:
    """An experiment that measures nothing."""
    return lab.Result(
        tables={"rows": ROWS, "none": []},
        answers=[lab.Answer(CLAIM, context["measured"]), lab.Answer(f"{SHAPE}#first", measured=True, note="why")],
        figures=[lab.Figure("f", "A figure", "line", "rows", "x", "much", series="name")],
        reports={"one": {"device": "none", "elapsed_s": 1.5}},
        assumptions=["Nothing."],
    )


SMALL = lab.Experiment(
    id="test.small",
    title="Small",
    question="Does it run?",
    run=small,
    claims=[CLAIM, SHAPE, "nds.fig10.hw_vs_sw"],
    parameters={"measured": lab.Parameter(0.7, "a share", small=0.6), "words": lab.Parameter("a b", "text")},
    expected={CLAIM: (0.8, 1.2)},
)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def replaced(**fields: object) -> lab.Experiment:
    return dataclasses.replace(SMALL, **fields)


def gives(**fields: object) -> lab.Experiment:
    made = dataclasses.replace(small({"measured": 0.7}), **fields)  # type: ignore[arg-type]
    return replaced(run=lambda _context: made)


# --- what a run has ---------------------------------------------------------------------------------------------------


def test_a_run_is_read_as_it_was_written() -> None:
    done = lab.run(SMALL, seed=3)
    again = lab.load(done.path)
    assert [done.path.name] == os.listdir("lab-runs")
    assert done.id.startswith("test.small@")
    assert again.data == done.data
    assert again.parameters == {"measured": 0.7, "words": "a b"}
    assert (again.seed, again.profile, again.experiment, again.title) == (3, "full", "test.small", "Small")
    assert again.rows("rows") == ROWS
    frame = again.table("rows")
    assert list(frame.columns) == ["x", "name", "much", "list"] == again.tables["rows"]
    assert frame["x"].dtype == np.int64
    assert frame["much"].tolist() == [row["much"] for row in ROWS]
    assert again.table("none").empty
    assert again.reports["one"]["elapsed_s"] == 1.5
    assert again.figures[0]["series"] == "name"
    assert again.data["unanswered"] == ["nds.fig10.hw_vs_sw"]
    assert again.data["command"] == "nandarray lab run test.small --seed 3"
    assert again.timeline is None
    assert [run.id for run in lab.runs()] == [done.id]
    assert again.environment["packages"]["numpy"] == np.__version__


def test_answers_are_judged_by_the_range_that_is_expected() -> None:
    good, shape = lab.run(SMALL).answers
    assert (good["paper"], good["ratio"], good["within"], good["low"], good["high"]) == (0.7, 1.0, True, 0.8, 1.2)
    assert (shape["kind"], shape["within"], shape["ratio"], shape["note"]) == ("shape", True, None, "why")
    bad = lab.run(SMALL, parameters={"measured": 0.55}).answers[0]
    assert not bad["within"]
    assert bad["ratio"] == pytest.approx(0.55 / 0.7)


def test_an_input_is_printed_and_not_judged() -> None:
    found = judge(lab.Answer("zou.assasin.fig7_20.clock", 0.89, input=True), SMALL, lab.claims())
    assert (found["within"], found["input"], answer_cells(found)[-1]) == (None, True, "an input")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('kind = "ratio"', "either a value or a range"),
        ('kind = "ratio"\nvalue = 1\nrange = [1, 2]', "either a value or a range"),
        ('kind = "ratio"\nrange = [2, 1]', "must be two positive ends in order"),
        ('kind = "ratio"\nvalue = 1\nbound = "above"', "bound must be .*, not 'above'"),
        ('kind = "ratio"\nrange = [1, 2]\nbound = "at most"', "a bound must have a value"),
        ('kind = "rate"\nvalue = 1', "kind must be .*, not 'rate'"),
    ],
)
def test_a_claim_that_cannot_be_judged_is_refused(tmp_path: Path, row: str, said: str) -> None:
    (tmp_path / "claims.toml").write_text(f'[[claim]]\nid = "x"\nwhere = ""\nwhat = ""\n{row}\n')
    with pytest.raises(InvalidError, match=said):
        claims(tmp_path)


def test_small_sizes_are_not_judged_against_claims_of_full_ones() -> None:
    good, shape = lab.run(SMALL, profile="small").answers
    assert (good["within"], good["ratio"], shape["within"]) == (None, pytest.approx(0.6 / 0.7), None)
    assert "within" not in repr(lab.run(SMALL, profile="small"))
    # The small profile with the full one's sizes is as good as that.
    assert lab.run(SMALL, profile="small", parameters={"measured": 0.7}).answers[0]["within"]
    assert answer_cells(good)[-1] == "not judged: small profile"
    assert answer_cells(good | {"within": False, "calibrated": True})[-1] == "no, though calibrated"


@pytest.mark.parametrize(
    ("answer", "ratio", "within", "kind"),
    [
        (lab.Answer(f"{CLAIM}#bfs", 1.9, paper=2.0), 0.95, True, "ratio"),
        (lab.Answer(CLAIM, math.nan), None, False, "ratio"),
        (lab.Answer(CLAIM, math.inf), None, False, "ratio"),
        (lab.Answer(CLAIM, measured=False), None, False, "shape"),
        (lab.Answer(f"{SHAPE}#much", np.float64(3.0), paper=3), 1.0, True, "ratio"),
        (lab.Answer("nds.fig9a.row.sw_GBps", 3.0), 3.0 / 3.8, False, "abs"),
        (lab.Answer(CLAIM, 0.1, paper=0.0), None, False, "ratio"),
        # Gains of ratios near 1, results about 1, ranges and bounds.
        (lab.Answer("nds.fig10.hw_vs_sw#gain", 1.06, paper=1.1), 1.06 / 1.1, True, "ratio"),
        (lab.Answer("nds.fig10.hw_vs_sw#gain", 1.04, paper=1.1), 1.04 / 1.1, False, "ratio"),
        (lab.Answer("nds.fig10.hw_vs_sw#loss", 0.84, paper=0.9), 0.84 / 0.9, False, "ratio"),
        (lab.Answer("nds.fig10.hw_vs_sw#loss", 0.86, paper=0.9), 0.86 / 0.9, True, "ratio"),
        (lab.Answer("nds.fig10.hw_vs_sw#one", 1.06, paper=1.0), 1.06, False, "ratio"),
        (lab.Answer("nds.fig10.hw_vs_sw#one", 1.04, paper=1.0), 1.04, True, "ratio"),
        (lab.Answer("zou.assasin.fig7_13.psf_sb", 1.6), 1.0, True, "ratio"),
        (lab.Answer("zou.assasin.fig7_13.psf_sb", 1.31), 1.31 / 1.5, True, "ratio"),
        (lab.Answer("zou.assasin.fig7_13.psf_sb", 2.08), 2.08 / 1.8, False, "ratio"),
        (lab.Answer("zou.assasin.fig7_13.psf_sb#part", 3.0, paper=(3.0, 8.0)), 1.0, True, "ratio"),
        (lab.Answer("zou.assasin.fig7_15.scaling", 0.99), 0.99 / 0.98, True, "ratio"),
        (lab.Answer("zou.assasin.fig7_15.scaling", 0.97), 0.97 / 0.98, False, "ratio"),
    ],
)
def test_every_kind_of_answer_is_judged(answer: lab.Answer, ratio: float | None, within: bool, kind: str) -> None:
    found = judge(answer, SMALL, lab.claims())
    assert (found["within"], found["kind"]) == (within, kind)
    assert found["ratio"] == (ratio if ratio is None else pytest.approx(ratio))


def test_the_same_run_gives_the_same_bytes_but_for_the_environment() -> None:
    first = lab.run("model.channels", profile="small")
    bytes_before = everything(first.path)
    assert first.environment["before"] is None
    second = lab.run("model.channels", profile="small")
    assert second.path == first.path
    assert second.environment["before"] == []
    bytes_after = everything(second.path)
    assert bytes_before.pop("environment.json") != bytes_after.pop("environment.json")
    assert bytes_before == bytes_after
    assert {"run.json", "tables/channels.json", "tables/channels.parquet"} < set(bytes_after)


def test_two_processes_give_the_same_bytes() -> None:
    code = "from nandarray import lab; print(lab.run('model.queue-depth', profile='small', runs='{}').path)"
    found = []
    for folder, hash_seed in (("one", "1"), ("two", "2")):
        command = [sys.executable, "-c", code.format(folder)]
        ran = subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONHASHSEED": hash_seed}
        )
        found.append(everything(Path(ran.stdout.strip())))
        del found[-1]["environment.json"]
    assert found[0] == found[1]


def test_processes_of_its_own_change_nothing() -> None:
    alone = everything(lab.run("model.queue-depth", profile="small", runs="alone").path)
    two = everything(lab.run("model.queue-depth", profile="small", runs="two", jobs=2).path)
    for found in (alone, two):
        del found["environment.json"]
    assert alone == two


def test_another_parameter_profile_or_seed_is_another_run() -> None:
    ids = {
        lab.run(SMALL, profile=profile, seed=seed, parameters=parameters).id
        for profile in ("full", "small")
        for seed in (0, 1)
        for parameters in ({}, {"words": "c"})
    }
    assert len(ids) == 8


def test_reuse_takes_what_is_there() -> None:
    first = lab.run(SMALL)
    assert lab.run(SMALL, reuse=True).environment == first.environment
    assert lab.run(SMALL).environment["before"] == []


def test_a_run_that_gives_other_bytes_than_before_says_which() -> None:
    first = lab.run(SMALL)
    (first.path / "tables" / "rows.json").write_text("other")
    (first.path / "tables" / "more.json").write_text("more")
    assert lab.run(SMALL).environment["before"] == ["tables/more.json", "tables/rows.json"]


def test_a_timeline_is_kept_where_the_experiment_writes_one() -> None:
    def traced(context: lab.Context) -> lab.Result:
        assert context.timeline is not None
        context.timeline.write_bytes(b"spans")
        return lab.Result(tables={})

    done = lab.run(replaced(run=traced), trace=True)
    assert done.timeline is not None
    assert done.timeline.read_bytes() == b"spans"
    assert done.data["command"].endswith(" --trace")


def test_the_queue_depth_has_a_timeline_the_same_each_time() -> None:
    first = lab.run("model.queue-depth", profile="small", trace=True)
    assert first.timeline is not None
    assert first.timeline.stat().st_size > 1000
    assert lab.run("model.queue-depth", profile="small", trace=True).environment["before"] == []


def described(file: str, t_read: str) -> None:
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(load("tiny").with_({"nand.t_read": t_read}).to_toml())


def test_an_edited_description_is_another_run_even_with_reuse() -> None:
    of_file = {"parameters": {"device": "mine.toml"}, "profile": "small", "reuse": True}
    described("mine.toml", "40 us")
    slow = lab.run("model.queue-depth", **of_file)
    described("mine.toml", "90 us")
    slower = lab.run("model.queue-depth", **of_file)
    assert slower.path != slow.path
    assert slower.rows("depths")[0]["latency_mean_us"] > slow.rows("depths")[0]["latency_mean_us"] + 40
    for run, t_read in ((slow, "40 us"), (slower, "90 us")):  # both are there, and say what their device was
        assert lab.load(run.path).devices["mine.toml"]["nand.t_read"] == t_read
        assert run.data["devices"] == {"mine.toml": "devices/mine.toml"}
    assert lab.compare(slow, slower).parameters == [{"name": "mine.toml: nand.t_read", "a": "40 us", "b": "90 us"}]
    described("mine.toml", "40 us")
    assert lab.run("model.queue-depth", **of_file).environment == slow.environment  # of the first run: it was reused


def test_two_files_of_one_name_are_two_devices() -> None:
    described("a/mine.toml", "40 us")
    described("b/mine.toml", "90 us")
    drives = lab.Parameter(["a/mine.toml", {"of": "b/mine.toml"}], "files")
    both = replaced(parameters={**SMALL.parameters, "drives": drives})
    run = lab.run(both)
    assert {text: one["nand.t_read"] for text, one in run.devices.items()} == {
        "a/mine.toml": "40 us",
        "b/mine.toml": "90 us",
    }
    assert sorted(os.listdir(run.path / "devices")) == ["mine-2.toml", "mine.toml"]


def test_the_changes_of_a_device_are_in_its_description() -> None:
    changed = {"changes": {"nand.t_read": "10 us"}}
    run = lab.run("model.queue-depth", profile="small", parameters=changed)
    assert run.devices["tiny"]["nand.t_read"] == "10 us"


def test_other_files_that_parameters_name_count_with_their_bytes() -> None:
    Path("words.txt").write_text("one")
    first = lab.run(SMALL, parameters={"words": "words.txt"})
    Path("words.txt").write_text("two")
    assert lab.run(SMALL, parameters={"words": "words.txt"}, reuse=True).path != first.path
    assert set(first.data["files"]) == {"words.txt"}


def test_presets_that_no_parameter_names_are_kept_with_the_run() -> None:
    assert list(lab.run(replaced(devices=("tiny",))).devices) == ["tiny"]


def test_a_device_that_changes_during_its_run_leaves_no_run() -> None:
    described("mine.toml", "40 us")

    def edits(context: lab.Context) -> lab.Result:
        described("mine.toml", "90 us")
        return small(context)

    with pytest.raises(InvalidError, match="changed while it ran"):
        lab.run(replaced(run=edits), parameters={"words": "mine.toml"})
    assert os.listdir("lab-runs") == []


def test_a_timeline_stays_when_the_same_is_run_without_one() -> None:
    traced = lab.run("model.queue-depth", profile="small", trace=True)
    before = traced.timeline.read_bytes()
    again = lab.run("model.queue-depth", profile="small")
    assert again.path == traced.path
    assert again.timeline.read_bytes() == before


def test_what_a_killed_run_left_is_removed() -> None:
    final = Path("lab-runs") / prepare(SMALL).id
    left = Path(f"{final}.part")
    left.mkdir(parents=True)
    (left / "rubbish").write_text("")
    assert lab.runs() == []
    with pytest.raises(NotFoundError, match="broken off"):
        lab.load(left)
    assert sorted(os.listdir(lab.run(SMALL).path)) == ["environment.json", "reports", "run.json", "tables"]
    assert len(os.listdir("lab-runs")) == 1


def test_an_experiment_that_raises_leaves_nothing() -> None:
    def wrong(_context: lab.Context) -> lab.Result:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        lab.run(replaced(run=wrong))
    assert os.listdir("lab-runs") == []


def test_a_run_is_made_by_one_process_at_a_time() -> None:
    def twice(_context: lab.Context) -> lab.Result:
        lab.run(experiment)
        raise AssertionError

    experiment = replaced(run=twice)
    with pytest.raises(LockedError, match=rf"by process {os.getpid()} \("):
        lab.run(experiment)


def test_a_claim_that_nobody_made_is_an_error() -> None:
    with pytest.raises(InvalidError, match="'nds.fig9d.write', but no claims.toml defines that claim; did you mean"):
        judge(lab.Answer("nds.fig9d.write", 1.0), SMALL, lab.claims())
    with pytest.raises(InvalidError, match="no claims.toml defines"):
        lab.run(replaced(claims=["mine"], run=lambda _: lab.Result({}, [lab.Answer("mine", 1.0)])))


def test_the_folder_of_runs_is_given_or_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NANDARRAY_RUNS", "elsewhere")
    assert lab.run(SMALL).path.parent == Path("elsewhere")
    assert lab.run(SMALL, runs="here").path.parent == Path("here")
    assert len(lab.runs()) == len(lab.runs("here")) == 1
    assert lab.runs("nowhere") == []


# --- pandas, xarray, notebooks ----------------------------------------------------------------------------------------


def test_a_table_becomes_arrays() -> None:
    done = lab.run("model.channels", profile="small")
    found = done.to_xarray("channels", ["channels", "pattern"])
    assert dict(found.sizes) == {"channels": 3, "pattern": 2}
    assert float(found["speedup"].sel(channels=1, pattern="small")) == 1.0
    assert found.attrs["run"] == done.id
    with pytest.raises(InvalidError, match="same pattern: name more"):
        done.to_xarray("channels", ["pattern"])
    with pytest.raises(InvalidError, match="no column 'channel'; did you mean 'channels'"):
        done.to_xarray("channels", ["channel"])


def test_a_run_shows_itself() -> None:
    done = lab.run(gives(misfits=["It is <small>."]))
    html = done._repr_html_()
    assert "not within" not in html
    for text in ("test.small@", "nds.fig9d.write.sw_loss", "within", "&lt;small&gt;", "table rows: 4 rows"):
        assert text in html
    assert "script" not in html
    assert "2 of 2 answers within" in repr(done)


def test_importing_the_lab_imports_no_big_package() -> None:
    code = "import sys, nandarray.lab, nandarray.cli; print([m for m in ('pandas','pyarrow','scipy','jinja2','xarray',"
    code += "'numba','nandarray.lab') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['nandarray.lab']"


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tables": {"rows": [{"a": 1}, {"b": 1}]}}, "row 1 differs from the first in a, b"),
        ({"tables": {"rows": [{"a": 1}, {"a": "x"}]}}, "column 'a' mixes kinds"),
        ({"tables": {"a/b": []}}, "table 'a/b' cannot be a file's name"),
        ({"reports": {"../x": {}}}, "report '../x' cannot be a file's name"),
        ({"tables": {"other": ROWS}}, "shows the table 'rows', which is not there"),
        ({"figures": [lab.Figure("f", "F", "line", "rows", "x", "y")]}, "shows the column 'y' of 'rows'"),
        ({"answers": [lab.Answer("nds.fig9d.write.hw_loss", 1.0)]}, "not among its claims; did you mean 'nds.fig9d"),
        ({"answers": [lab.Answer(SHAPE, 1.0)]}, "it holds or not"),
        ({"reports": {"x": {"y": object()}}}, "cannot be written as JSON"),
    ],
)
def test_a_result_that_cannot_be_written_is_an_error(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        lab.run(gives(**fields))
    assert os.listdir("lab-runs") == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mesured": 1}, "test.small has no parameter 'mesured'; did you mean 'measured'"),
        ({"zzz": 1}, "no parameter 'zzz'; there are measured, words"),
        ({"measured": "much"}, "'measured' of test.small must be a number, like 0.7, not 'much'"),
        ({"measured": True}, "must be a number"),
        ({"measured": None}, "must be a number, like 0.7, not None"),
        ({"measured": float("nan")}, "'measured' of test.small must be a number from 0 to .*, not nan"),
        ({"measured": -1}, "must be a number from 0 to .*, not -1"),
        ({"measured": 1e99}, r"must be a number from 0 to .*, not 1e\+99"),
        ({"words": 3}, "must be a text"),
    ],
)
def test_a_wrong_parameter_is_named_with_the_right_ones(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        lab.run(SMALL, parameters=given)
    assert not Path("lab-runs").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": None}, "'size' of model.queue-depth must be a number, like 4096, not None"),
        ({"size": float("nan")}, "'size' of model.queue-depth must be a whole number from 0 to .*, not nan"),
        ({"size": -1}, "'size' of model.queue-depth must be a whole number from 0 to .*, not -1"),
        ({"size": 1e99}, r"must be a whole number from 0 to 9,223,372,036,854,775,807, not 1e\+99"),
        ({"size": 4096.5}, "must be a whole number from 0 to .*, not 4096.5"),
        ({"depths": []}, r"'depths' of model.queue-depth must be a list with at least one element, like .*, not \[\]"),
        (
            {"depths": ["a"]},
            "each element of parameter 'depths' of model.queue-depth must be a number, like 1, not 'a'",
        ),
        ({"depths": [1, -1]}, "each element of parameter 'depths' of .* must be a whole number from 0 to .*, not -1"),
        ({"read_share": float("inf")}, "'read_share' of model.queue-depth must be a number from 0 to .*, not inf"),
    ],
)
def test_a_parameter_out_of_range_is_named(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        lab.run("model.queue-depth", profile="small", parameters=given)
    assert not Path("lab-runs").exists()


def test_numbers_of_parameters() -> None:
    one = registry.find("model.queue-depth")
    assert parameters.resolve(one, "small", {"size": 8192.0, "depths": [2.0]}) | {"changes": 0} == {
        "device": "tiny", "changes": 0, "depths": [2], "requests": 1000, "size": 8192, "read_share": 1.0,
    }  # fmt: skip
    beside = registry.find("model.beside")
    assert parameters.resolve(beside, "small", {"rates": [0.5]})["rates"] == [0.5]
    empty = lab.Experiment("test.empty", "E", "?", run=small, parameters={"kernels": lab.Parameter([], "all if empty")})
    assert parameters.resolve(empty, "full", {"kernels": []})["kernels"] == []
    for seed in (-1, 10**23):
        with pytest.raises(InvalidError, match=f"seed must be a whole number from 0 to .*, not {seed}"):
            lab.run(SMALL, seed=seed)


def test_unknown_experiments_profiles_and_tables_are_named() -> None:
    with pytest.raises(NotFoundError, match=r"no experiment 'model.channel'; did you mean 'model.channels'"):
        lab.run("model.channel")
    with pytest.raises(InvalidError, match="'full', 'small' or 'deep', not 'tiny'"):
        lab.run(SMALL, profile="tiny")
    with pytest.raises(NotFoundError, match="no table 'row'; did you mean 'rows'"):
        lab.run(SMALL).table("row")


def test_a_folder_that_is_no_run_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no such folder"):
        lab.load("nowhere")
    with pytest.raises(NotFoundError, match=r"it has no run\.json"):
        lab.load(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(CorruptError, match="damaged"):
        lab.load(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(CorruptError, match="states no schema"):
        lab.load(tmp_path)
    (tmp_path / "run.json").write_text('{"schema": 99}')
    with pytest.raises(UnsupportedVersionError, match="schema 99; this version knows those up to 1"):
        lab.load(tmp_path)


def test_a_damaged_table_is_an_error() -> None:
    done = lab.run(SMALL)
    (done.path / "tables" / "rows.parquet").write_bytes(b"PAR1")
    with pytest.raises(CorruptError, match=r"rows\.parquet is damaged"):
        done.table("rows")
    (done.path / "tables" / "rows.parquet").unlink()
    with pytest.raises(FileNotFoundError):
        done.table("rows")


# --- experiments of one's own -----------------------------------------------------------------------------------------

FILE = """
from nandarray import lab
def double(x): return {"x": x, "y": 2 * x}
def run(context):
    rows = context.map(double, [(n,) for n in range(context["n"])])
    return lab.Result(tables={"t": rows}, answers=[lab.Answer("mine.double", rows[-1]["y"] / rows[-1]["x"])])
PARAMETERS = {"n": lab.Parameter(4, "")}
EXPERIMENT = lab.Experiment("mine.own", "Mine", "?", run, claims=["mine.double"], parameters=PARAMETERS)
"""


def test_an_experiment_in_a_file_with_claims_of_its_own() -> None:
    Path("mine.py").write_text(FILE)
    Path("claims.toml").write_text('[[claim]]\nid = "mine.double"\nwhere = ""\nwhat = "two"\nkind = "abs"\nvalue = 2\n')
    alone = lab.run("mine.py", jobs=1)
    assert alone.answers[0]["ratio"] == 1.0
    assert alone.data["command"] == "nandarray lab run mine.py"
    assert lab.run("mine.py", jobs=2).environment["before"] == []
    assert "mine.own" in lab.experiments(["mine.py"])
    Path("mine.py").write_text(FILE.replace("2 * x", "x + x"))
    assert lab.run("mine.py").id != alone.id


def test_files_without_an_experiment_say_so() -> None:
    Path("none.py").write_text("x = 1")
    with pytest.raises(InvalidError, match=r"none\.py holds no experiment: .*defines no EXPERIMENT"):
        lab.run("none.py")
    Path("bad.py").write_text("import nothing_like_it")
    with pytest.raises(InvalidError, match="ModuleNotFoundError"):
        lab.run("bad.py")
    with pytest.raises(FileNotFoundError):
        lab.run("missing.py")
    Path("two.py").write_text(
        FILE + "import dataclasses\nEXPERIMENTS = [EXPERIMENT, dataclasses.replace(EXPERIMENT, id='b')]\n"
    )
    with pytest.raises(InvalidError, match=r"several experiments: write two.py:ID with one of mine.own, b"):
        lab.run("two.py")
    assert registry.find("two.py:b").id == "b"


def test_experiments_are_listed_without_a_compiler() -> None:
    """A plain installation has no ziglang: experiments ask for it when they run, not when they are listed."""
    code = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "ziglang" else found(name, *more)
from nandarray.lab import registry
assert "flashabacus.fig10" in registry.experiments()
assert not registry.broken(), registry.broken()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def without_papers() -> list[metadata.EntryPoint]:
    """Entry points of a lab alone."""
    return [point for point in packages._points() if not point.module.startswith("nandarray_papers")]


def test_a_lab_without_the_papers_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    points = without_papers()
    monkeypatch.setattr(packages, "_points", lambda: points)
    monkeypatch.setattr(packages, "claim_files", list)
    for what in ("nds.fig9", "assasin-coden", "assasin.*"):
        with pytest.raises(NotFoundError, match="experiments of papers are not installed: pip install ./papers in a"):
            registry.select([what])
    with pytest.raises(NotFoundError, match="no experiment 'nds.fig9'.*; the experiments of papers are not"):
        lab.run("nds.fig9", profile="small")
    assert list(lab.experiments()) == ["model.channels", "model.queue-depth"]
    assert packages.sets() == {}
    assert lab.run("model.queue-depth", profile="small", parameters={"device": "tiny"}).answers == []


def test_a_broken_module_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [metadata.EntryPoint("other", "other", packages.ENTRY_POINTS), *without_papers()]
    monkeypatch.setattr(packages, "_points", lambda: points)
    monkeypatch.syspath_prepend(os.getcwd())
    Path("other").mkdir()
    Path("other/breaks.py").write_text("1 / 0")
    assert list(lab.experiments()) == ["model.channels", "model.queue-depth"]
    assert list(registry.broken()) == ["other.breaks"]
    with pytest.raises(NotFoundError, match="could not be loaded"):
        registry.find("anything")


def test_a_module_of_the_lab_that_changes_changes_the_hash() -> None:
    seen: dict[str, bytes] = {}
    file = sys.modules["nandarray.lab.bundled.channels"].__file__
    assert file is not None
    source._follow("top", Path(file), seen)
    assert set(seen) == {"top", "nandarray.lab.experiment"}


def test_json_is_the_same_whatever_the_order() -> None:
    one = {"b": np.float32(0.5), "a": (np.int64(1), math.nan, {2, 1}), "c": np.arange(2)}
    assert _files.dumps(one) == '{"a":[1,null,[1,2]],"b":0.5,"c":[0,1]}' == _files.dumps(dict(reversed(one.items())))
    assert json.loads(_files.dumps([{"a": 1}], lines=True)) == [{"a": 1}]
    assert _files.digest(one) == _files.digest(dict(reversed(one.items())))


# --- scripts ----------------------------------------------------------------------------------------------------------

SCRIPT = """
from pathlib import Path
with open("started", "a") as file:
    file.write("x")
from nandarray import lab
{call}
print("done")
"""
SPEC = {"name": "s", "device": "tiny", "axes": {"workload.depth": [1, 2, 4]}, "workload": {"requests": 50}}
SWEEP = f"lab.sweep({SPEC})"
RUN = """lab.run("model.channels", parameters={"device": "tiny", "channels": [1, 2]}, jobs=2)"""


def python(*words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    given = [sys.executable, *words]
    return subprocess.run(given, input=text, capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.parametrize("call", [SWEEP, RUN])
def test_a_script_without_a_guard_gets_one_error(call: str) -> None:
    Path("script.py").write_text(SCRIPT.format(call=call))
    done = python("script.py")
    assert done.returncode == 1
    assert 'belongs under if __name__ == "__main__":' in done.stderr.splitlines()[-1]
    assert done.stderr.count("Traceback") == 1
    assert Path("started").read_text() == "xx"  # the script, and the one process that tried
    assert "done" not in done.stdout


def test_a_script_from_standard_input_gets_one_error() -> None:
    done = python("-", text=SCRIPT.format(call=SWEEP))
    assert done.returncode == 1
    assert "cannot import a script from <stdin>" in done.stderr.splitlines()[-1]
    assert Path("started").read_text() == "x"


def test_a_script_with_a_guard_has_processes() -> None:
    Path("script.py").write_text(SCRIPT.format(call=f"if __name__ == '__main__':\n    {SWEEP[:-1]}, jobs=2)"))
    done = python("script.py")
    assert (done.returncode, done.stderr) == (0, "")
