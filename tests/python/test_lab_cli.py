"""``nandarray lab`` at a shell, and comparisons of runs."""

from __future__ import annotations

import json
import os
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pandas
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from nandarray import lab
from nandarray.cli import app
from nandarray.cli import lab as cli_lab
from nandarray.errors import InvalidError, NotFoundError
from nandarray.lab import packages, registry
from nandarray.lab._compare import keys_of

DEPTHS = ("lab", "run", "model.queue-depth", "--profile", "small")

CLAIMED = """
from nandarray import lab
def run(context):
    rows = [{"n": n, "y": n * context["k"]} for n in range(3)]
    answers = [lab.Answer("nds.fig10.hw_vs_sw", context["k"], note="made up")]
    return lab.Result({"t": rows}, answers, misfits=["Nothing was measured."], assumptions=["All of it."])
PARAMETERS = {"k": lab.Parameter(1.13, "a factor")}
EXPERIMENT = lab.Experiment("mine.claimed", "Claimed", "?", run, ["nds.fig10.hw_vs_sw"], PARAMETERS)
"""

SWEEP = 'device = "tiny"\naxes.workload.depth = [1, 4]\naxes.geometry.channels = [1, 999]\nworkload.requests = 50\n'


def call(*words: Any, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, (words, result.output, result.exception)
    assert "Traceback" not in result.output
    return result.stderr if code else result.stdout


def loads(*words: Any) -> Any:
    return json.loads(call(*words, "--json"), parse_constant=pytest.fail)


def test_list_gives_what_there_is() -> None:
    assert "model.channels" in call("lab", "list")
    found = {one["id"]: one for one in loads("lab", "list")}
    assert found["model.queue-depth"]["parameters"]["size"] == {
        "default": 4096,
        "small": None,
        "deep": None,
        "meaning": "bytes of a request",
    }
    assert "nothing was run in lab-runs" in call("lab", "list", "--ran")
    assert loads("lab", "list", "--ran") == []


def test_an_experiment_is_found_by_a_figure_of_its_paper() -> None:
    assert list(registry.select(["assasin.fig7.12"])) == ["assasin.engines"]
    for name in ("zou.fig7.12", "assasin.table7.4", "assasin.section7.3.5", "assasin.fig7.9"):
        assert list(registry.select([name]))[0].startswith("assasin.")
    assert registry.find("flashabacus.fig14b").id == "flashabacus.fig10"
    assert list(registry.select(["bam.*"])) == [name for name in lab.experiments() if name.startswith("bam.")]
    several = list(registry.select(["nds.fig10b"]))
    assert set(several) > {"nds.fig10", "nds.fig10.host-cache"}
    with pytest.raises(InvalidError, match=r"several experiments answer claims of nds.fig10b: name one of nds.fig10, "):
        registry.find("nds.fig10b")
    with pytest.raises(NotFoundError, match=r"no experiment 'assasin.fig7.112'; did you mean .*'assasin.fig7.12'"):
        registry.find("assasin.fig7.112")
    assert "fig7.12 fig7.13" in call("lab", "list")
    assert "fig7.16" in {one["id"]: one for one in loads("lab", "list")}["assasin.scaling"]["figures"]


def test_a_set_is_run_and_gets_one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    more = {**packages.sets(), "models": ("model.queue-depth", "model.chan*")}
    monkeypatch.setattr(packages, "sets", lambda: more)
    said = call("lab", "run", "models", "--profile", "small", "--quiet")
    page = Path("lab-runs") / "models.html"
    assert f"{page}: 2 runs" in said
    text = page.read_text(encoding="utf-8")
    assert "model.queue-depth" in text
    assert "model.channels" in text
    for name, patterns in packages.sets().items():
        assert list(registry.select([name])) == [
            one for pattern in patterns for one in lab.experiments() if fnmatch(one, pattern)
        ]


def test_a_profile_has_its_own_sizes() -> None:
    size = lab.Parameter(4, "bytes", small=1, deep=9)
    assert [size.value(profile) for profile in ("small", "full", "deep")] == [1, 4, 9]
    assert lab.Parameter(4, "bytes").value("deep") == 4
    with pytest.raises(InvalidError, match="'full', 'small' or 'deep'"):
        lab.run("model.channels", profile="huge")


def test_run_and_show() -> None:
    said = call(*DEPTHS, "--set", "depths=[1, 2]", "--set", "device=mqsim-ideal", "--seed", 2)
    (folder,) = Path("lab-runs").iterdir()
    assert f"{folder}: " in said
    run = lab.load(folder)
    assert (run.parameters["depths"], run.parameters["device"], run.seed) == ([1, 2], "mqsim-ideal", 2)
    assert run.data["command"] == (
        "nandarray lab run model.queue-depth --profile small --seed 2 --set device=mqsim-ideal --set 'depths=[1, 2]'"
    )
    shown = call("lab", "show", "model.queue-depth")
    for text in (run.id, run.data["question"], "requests on their way", "depths: 2 rows", "latency_p99_us"):
        assert text in shown
    assert loads("lab", "show", run.id)["answers"] == []
    table = call("lab", "show", str(folder), "--table", "depths")
    assert table.splitlines()[0].startswith("depth,bytes_per_s,iops")
    assert [row["depth"] for row in loads("lab", "show", run.id[:25], "--table", "depths")] == [1, 2]
    assert "the same bytes as before" in call(
        *DEPTHS, "--set", "depths=[1, 2]", "--set", "device=mqsim-ideal", "--seed", 2
    )
    assert run.id in call("lab", "list", "--ran")


def test_run_shows_answers_and_what_does_not_fit() -> None:
    Path("mine.py").write_text(CLAIMED)
    said = call("lab", "run", "mine.py")
    for text in ("nds.fig10.hw_vs_sw", "1.13", "yes", "does not fit: Nothing was measured."):
        assert text in said
    assert " no" in call("lab", "run", "mine.py", "--set", "k=2")
    (answer,) = loads("lab", "run", "mine.py")[0]["answers"]
    assert (answer["ratio"], answer["within"]) == (1.0, True)
    assert sorted(row["within"] for row in loads("lab", "list", "--ran")) == [0, 1]


def test_several_experiments_run_by_a_pattern() -> None:
    found = loads("lab", "run", "model.*", "--profile", "small", "--runs", "here", "--jobs", 1)
    assert [one["experiment"] for one in found] == ["model.beside", "model.channels", "model.queue-depth"]
    assert len(os.listdir("here")) == 3


def test_an_experiment_that_fails_stops_no_other() -> None:
    Path("wrong.py").write_text(CLAIMED.replace("rows = ", "rows = 1 / 0, ").replace("mine.claimed", "mine.wrong"))
    Path("mine.py").write_text(CLAIMED)
    said = call("lab", "run", "wrong.py", "mine.py", code=1)
    assert "wrong.py failed: ZeroDivisionError: division by zero" in said
    assert said.endswith("nandarray: error: 1 experiment failed: wrong.py\n")
    assert [run.experiment for run in lab.runs()] == ["mine.claimed"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "model.chanels"), "no experiment 'model.chanels'; did you mean 'model.channels' or "),
        (("run", "nothing.*"), "no experiment fits 'nothing.*'"),
        (("run", "model.channels", "--set", "chanels=1"), "no parameter 'chanels'; did you mean 'channels' or"),
        (("run", "model.channels", "--set", "channels=1"), "'channels' of model.channels must be a list"),
        (("run", "model.channels", "--profile", "tiny"), "a profile must be 'full', 'small' or 'deep', not 'tiny'"),
        (("run", "missing.py"), "missing.py: No such file or directory"),
        (("show", "nothing"), "no run 'nothing' in lab-runs, which has none"),
        (("show", "."), "is no run: it has no run.json"),
        (("sweep", "missing.toml"), "missing.toml: No such file or directory"),
        (("sweep", "bad.toml"), "bad.toml is no TOML"),
        (("sweep", "wrong.toml"), "wrong.toml: axes: nand.tread: no such key; did you mean 'nand.t_read'"),
        (("compare", "a", "b"), "no run 'a' in lab-runs"),
        (("report",), ""),
    ],
)
def test_what_is_wrong_is_named_in_one_line(words: tuple[str, ...], message: str) -> None:
    Path("bad.toml").write_text("= 3")
    Path("wrong.toml").write_text("axes.nand.tread = [1]\nworkload.requests = 1\n")
    said = call("lab", *words, code=1)
    assert said.startswith("nandarray: error: ")
    assert message in said
    assert said.count("\n") == 1


def test_a_wrong_command_line_is_code_2() -> None:
    Path("s.toml").write_text(SWEEP)
    assert "is not NAME=VALUE" in call("lab", "run", "model.channels", "--set", "x", code=2)
    assert "neither .csv nor" in call("lab", "sweep", "s.toml", "-o", "x.txt", code=2)


def test_sweep_shows_the_best_and_what_failed() -> None:
    Path("s.toml").write_text(SWEEP)
    result = CliRunner().invoke(app, ["lab", "sweep", "s.toml", "--jobs", "1", "-o", "points.csv"])
    assert (result.exit_code, result.stderr) == (1, "nandarray: error: 2 of 4 points failed\n")
    said = result.stdout
    assert "2 x DescriptionError: " in said
    assert "geometry.channels = 999 is out of range" in said
    assert "Pareto front (" in said
    assert ": 4 points in " in said
    assert list(pandas.read_csv("points.csv")["workload.depth"]) == [1, 4]
    for name in ("points.parquet", "points.json"):
        call("lab", "sweep", "s.toml", "--reuse", "-o", name, code=1)
    assert len(pandas.read_parquet("points.parquet")) == len(json.loads(Path("points.json").read_text())) == 2
    found = json.loads(CliRunner().invoke(app, ["lab", "sweep", "s.toml", "--reuse", "--json"]).stdout)
    assert (found["points"], found["failed"], len(found["rows"]), len(found["failures"])) == (4, 2, 2, 2)
    shown = call("lab", "show", "s@")
    assert "geometry.channels  1, 999" in shown
    assert "DescriptionError" in shown
    assert "4 points" in call("lab", "list", "--ran")
    assert loads("lab", "list", "--ran")[0]["failed"] == 2
    assert call("lab", "show", "s", "--table", "failures").count("\n") == 3


def test_what_goes_wrong_in_an_experiment_of_ones_own_names_its_line() -> None:
    wrong = (("context.nothing", "AttributeError"), ("int('x')", "ValueError"), ("open('none')", "FileNotFoundError"))
    for line, kind in wrong:
        Path("wrong.py").write_text(CLAIMED.replace("rows = ", f"{line}; rows = "))
        said = call("lab", "run", "wrong.py", code=1)
        assert said.startswith(f"nandarray: error: {kind}: ")
        assert "(wrong.py:4, in run; --debug shows all)" in said
        assert "report it" not in said


def test_a_sweep_in_which_everything_fails_is_an_error() -> None:
    Path("s.toml").write_text(SWEEP.replace("1, 999", "998, 999"))
    assert "error: all 4 points failed" in call("lab", "sweep", "s.toml", "--jobs", 1, code=1)


def test_a_run_is_found_by_the_beginning_of_its_name() -> None:
    first = lab.run("model.queue-depth", profile="small")
    second = lab.run("model.queue-depth", profile="small", seed=1)
    said = call("lab", "show", "model.queue", code=1)
    assert first.id in said
    assert second.id in said
    assert second.id in call("lab", "show", second.id)
    assert "did you mean" in call("lab", "show", "model.queue-dept@", code=1)
    context = typer.Context(typer.main.get_command(app))
    assert cli_lab.complete_run(context, "model.q") == sorted([first.id, second.id])
    assert cli_lab.complete_experiment("model.q") == ["model.queue-depth"]


def test_report_covers_what_is_there() -> None:
    pytest.importorskip("nandarray.lab.report")
    Path("s.toml").write_text(SWEEP)
    first, second = (lab.run("model.queue-depth", profile="small", seed=seed) for seed in (0, 1))
    call("lab", "sweep", "s.toml", "--jobs", 1, code=1)  # some points fail
    found = loads("lab", "report", "--compare", first.id, second.id)
    assert (len(found["runs"]), len(found["sweeps"]), found["page"]) == (2, 1, "report.html")
    page = Path("report.html").read_text()
    assert first.id in page
    assert "2 runs, 0 sweeps" in call("lab", "report", first.id, second.id, "-o", "two.html")


# --- comparisons ------------------------------------------------------------------------------------------------------


def test_two_runs_are_compared() -> None:
    first = lab.run("model.channels", profile="small")
    second = lab.run(
        "model.channels", profile="small", parameters={"channels": [2, 4, 8], "changes": {"link.rate": "PCIe 1 x1"}}
    )
    both = lab.compare(first, second.path)
    assert [row["name"] for row in both.parameters] == ["changes", "channels"]
    frame = both.table("channels")
    assert list(frame.columns[:2]) == ["channels", "pattern"]
    assert len(frame) == 8
    one = frame[(frame["channels"] == 4) & (frame["pattern"] == "large")].iloc[0]
    assert one["bytes_per_s ratio"] == one["bytes_per_s b"] / one["bytes_per_s a"] < 0.5
    alone = frame[frame["channels"] == 8]
    assert alone["bytes_per_s a"].isna().all()
    assert alone["bytes_per_s ratio"].isna().all()
    said = call("lab", "compare", first.id, second.id)
    for text in (f"a: {first.id}", "set differently: 2", "table channels, b / a: 8", "latency_p99_us"):
        assert text in said
    assert loads("lab", "compare", first.id, second.id) == json.loads(json.dumps(both.to_dict()))
    html = both._repr_html_()
    assert "set differently: 2" in html
    assert "2 settings differ" in repr(both)
    with pytest.raises(NotFoundError, match="no table 'channel' in common; did you mean 'channels'"):
        both.rows("channel")
    with pytest.raises(InvalidError, match="same pattern: name more"):
        both.rows("channels", on=["pattern"])
    with pytest.raises(InvalidError, match="no column 'patern'"):
        both.rows("channels", on=["patern"])


def test_answers_are_compared() -> None:
    Path("mine.py").write_text(CLAIMED)
    both = lab.compare(lab.run("mine.py"), lab.run("mine.py", parameters={"k": 2.26}))
    assert both.answers == [
        {
            "claim": "nds.fig10.hw_vs_sw",
            "paper": 1.13,
            "a": 1.13,
            "b": 2.26,
            "ratio": 2.0,
            "within_a": True,
            "within_b": False,
        }
    ]


def test_a_run_is_the_same_as_itself() -> None:
    run = lab.run("model.channels", profile="small")
    both = lab.compare(run, run)
    assert both.parameters == both.answers == []
    for row in both.rows("channels"):
        assert {value for key, value in row.items() if key.endswith(" ratio")} <= {1.0, None}


ROW = st.fixed_dictionaries(
    {"s": st.sampled_from("ab"), "i": st.integers(0, 3), "b": st.booleans(), "f": st.floats(0, 1)}
)


@given(st.lists(ROW, max_size=12), st.lists(ROW, max_size=12))
def test_keys_tell_rows_apart_where_anything_does(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    keys = keys_of(ours, theirs)
    assert "f" not in keys

    def apart(rows: list[dict[str, Any]], names: list[str]) -> bool:
        return len({tuple(row[name] for name in names) for row in rows}) == len(rows)

    if apart(ours, ["s", "i", "b"]) and apart(theirs, ["s", "i", "b"]):
        assert apart(ours, keys)
        assert apart(theirs, keys)
