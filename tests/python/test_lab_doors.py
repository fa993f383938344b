"""``lab``, ``replay`` and sweeps at a shell with random words; parameters of experiments at their edges; own files."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nandarray import device, lab
from nandarray.cli import app
from nandarray.cli import lab as cli_lab
from nandarray.cli import replay as cli_replay
from nandarray.errors import InvalidError, NandarrayError
from nandarray.lab import parameters, registry, source

DEEP = bool(os.environ.get("NANDARRAY_DEEP"))
OWN = """
from nandarray import lab
def run(context):
    rows = [{"n": n, "y": n * context["k"]} for n in range(context["rows"])]
    return lab.Result({"t": rows}, [lab.Answer("nds.fig10.hw_vs_sw", context["k"])])
PARAMETERS = {"k": lab.Parameter(1.13, "a factor"), "rows": lab.Parameter(3, "rows"), "name": lab.Parameter("x", "n")}
EXPERIMENT = lab.Experiment("mine.own", "Mine", "?", run, ["nds.fig10.hw_vs_sw"], PARAMETERS)
"""
SWEEP = 'device = "tiny"\naxes.workload.depth = [1, 4]\nworkload.requests = 20\n'


def call(*words: Any) -> tuple[int, str, str]:
    """Run a command: an answer, one line, or the usage; never a traceback."""
    said = [str(word) for word in words]
    done = CliRunner().invoke(app, said)
    assert done.exception is None or isinstance(done.exception, SystemExit), (said, done.exception)
    assert done.exit_code in (0, 1, 2), (said, done.output)
    assert "Traceback" not in done.output, said
    assert "please report" not in done.output, (said, done.stderr)
    if done.exit_code == 1:
        assert done.stderr.splitlines()[-1].startswith("nandarray: error: "), (said, done.stderr)
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def _folder() -> None:
    Path("mine.py").write_text(OWN)
    Path("s.toml").write_text(SWEEP)
    Path("junk").write_bytes(b"\xff\xfejunk" * 99)
    Path("bad.py").write_text("def run(:")
    Path("dir").mkdir()
    Path("t.csv").write_text("128166372003061629,usr,0,Read,0,4096,0\n" * 5)


# --- random words -----------------------------------------------------------------------------------------------------

VALUES = [
    "1", "0", "-1", "nan", "1e400", "9" * 40, "x", "", "tiny", "mine.toml", "4KiB", "4KiB:2", "0.2:0.8", "1:2:3", "20k",
    "400MB/s", "/s", "k=2", "k=", "=2", "k=[", "rows=2", "rows=-1", "rows=1e99", "name=null", "nand.t_read=5 us",
    "geometry.channels=2", "nand.t_raed=1", "full", "small", "empty", "steady", "fio", "msr", "junk", "dir", "\udcff",
    "mine.py", "s.toml", "t.csv", "model.queue-depth", "*", "[", "out.csv", "out.html", "mine.own", "\u202e", "a\x00b",
]  # fmt: skip
OPTIONS: dict[tuple[str, ...], tuple[list[list[str]], list[str]]] = {
    ("lab", "run"): (
        [["mine.py"], ["mine.py:mine.own"], ["junk"], ["bad.py"], ["missing.py"], ["[a"], [""], ["mine.py", "mine.py"]],
        ["--profile", "--set", "--seed", "--runs", "--jobs", "--trace", "--reuse", "--quiet", "--json"],
    ),
    ("lab", "sweep"): (
        [["s.toml", "--jobs", "1"], ["s.toml", "--jobs", "1"], ["junk"], ["dir"], ["missing.toml"], [""]],
        ["--runs", "--fresh", "--reuse", "--output", "--quiet", "--json"],
    ),
    ("replay",): (
        [["--synthetic", "--requests", "20"], ["t.csv"], ["junk"], ["dir"], [], ["t.csv", "--synthetic"]],
        [
            "--set", "--precondition", "--depth", "--time-scale", "--format", "--issued", "--read-share",
            "--trim-share", "--flush-every", "--size", "--sequential", "--streams", "--zipf", "--hot", "--rate",
            "--poisson", "--working-set", "--seed", "--trace", "--trace-window", "--quiet", "--json",
        ],
    ),
}  # fmt: skip
FLAGS = {"--reuse", "--quiet", "--json", "--fresh", "--issued", "--sequential", "--poisson"}


def lines(rng: random.Random, command: tuple[str, ...]) -> Iterator[list[str]]:
    starts, options = OPTIONS[command]
    while True:
        words = [*command, *rng.choice(starts)]
        if command == ("replay",) and rng.random() < 0.9:
            words += ["--device", rng.choice(["tiny", "tiny", "tinny", "junk"])]
        for option in rng.sample(options, rng.choice([0, 1, 1, 2, 3])):
            words.append(option)
            if option not in FLAGS and not (command[0] == "lab" and option == "--trace"):
                words.append(rng.choice(VALUES))
        yield words


@pytest.mark.usefixtures("_folder")
@pytest.mark.parametrize("seed", range(20) if DEEP else range(2))
@pytest.mark.parametrize("command", OPTIONS, ids=" ".join)
def test_any_words_are_answered(command: tuple[str, ...], seed: int) -> None:
    rng = random.Random(f"{command}{seed}")
    codes = set()
    for words, _ in zip(lines(rng, command), range(18), strict=False):
        if {"--jobs", "--precondition"} & set(words) and {"9" * 40, "steady"} & set(words):
            continue  # that many processes, or overwrites
        code, out, _ = call(*words)
        codes.add(code)
        if code == 0 and "--json" in words:
            json.loads(out)
    assert 0 in codes, "some are right"
    assert codes - {0}, "and some are not"
    for run in (*lab.runs(), *lab.sweeps()):
        assert run.tables


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--size", "4KiB:x"], "'4KiB:x' is not SIZE or SIZE:WEIGHT"), (["--size", "4 parsecs"], "a size must be like"),
        (["--rate", "/s"], "a size must be like"), (["--rate", "20q"], "'20q' is not a rate"),
        (["--hot", "1:2:3"], "'1:2:3' is not SPACE:SHARE"), (["--trace-window", "x"], "is not FROM:UNTIL"),
        (["--precondition", "old"], "'old' is not empty, full, steady or a number of overwrites"),
        (["--set", "x"], "'x' is not KEY=VALUE"), (["--set", " =1"], "is not KEY=VALUE"),
        (["--working-set", "-1"], "a size must be like"),
    ],
)  # fmt: skip
def test_a_wrong_option_of_a_replay_is_named_with_its_word(words: list[str], says: str) -> None:
    code, _, said = call("replay", "--synthetic", "-d", "tiny", "--requests", "5", *words)
    assert code == 2
    assert says in " ".join(said.replace("│", " ").split())


@pytest.mark.parametrize(
    ("text", "sizes", "wanted"),
    [
        ("20k", 4096, 20_000.0), ("1.5M", 4096, 1.5e6), ("7", 4096, 7.0), (" 2g ", 4096, 2e9),
        ("400MB/s", 4096, 4e8 / 4096), ("1GiB/s", {4096: 1.0, 12288: 1.0}, (1 << 30) / 8192),
        ("4096/s", {4096: 3.0, 8192: 1.0}, 4096 / 5120),
    ],
)  # fmt: skip
def test_a_rate_in_bytes_is_over_the_mean_size(text: str, sizes: Any, wanted: float) -> None:
    assert cli_replay._rate(text, sizes) == wanted


def test_sizes_with_weights_are_a_table() -> None:
    assert cli_replay._sizes(["4KiB:3", "16k"]) == {4096: 3.0, 16384: 1.0}


@pytest.mark.parametrize(
    ("pairs", "wanted"),
    [
        (None, {}), (["a=1"], {"a": 1}), (["a=[1, 2]", "b=x y", "c=true"], {"a": [1, 2], "b": "x y", "c": True}),
        (["a=1", "a=2"], {"a": 2}), ([" a =x=y"], {"a": "x=y"}), (["a="], {"a": ""}), (['a="1"'], {"a": "1"}),
        (["a=null"], {"a": None}), (["a={\"b\": 1}"], {"a": {"b": 1}}),
    ],
)  # fmt: skip
def test_settings_are_json_or_text(pairs: list[str] | None, wanted: dict[str, Any]) -> None:
    assert cli_lab._settings(pairs) == wanted


# --- parameters at their edges ----------------------------------------------------------------------------------------

EDGES: list[tuple[str, dict[str, Any], str]] = [
    ("assasin.beyond", {"devices": ["nope"]}, "devices = ['nope']: KeyError: 'nope'"),
    ("assasin.sizes", {"functions": ["nope"]}, "functions = ['nope']: KeyError"),
    ("assasin.sizes", {"shrink": 0}, "shrink = 0: ZeroDivisionError: integer division or modulo by zero"),
    ("assasin.skew", {"bytes": 1}, "bytes = 1: ValueError: max()"),
    ("beyond.building-block", {"sides": {"x": 1}}, "sides = {'x': 1}: ValueError: invalid literal"),
    ("beyond.pcie5", {"size": 0}, "size = 0: ValueError: range() arg 3 must not be zero"),
    ("flashabacus.fig10", {"mixes": ["MX99"]}, "mixes = ['MX99']: KeyError: 'MX99'"),
    ("flashabacus.fig3", {"square": [48]}, "square = [48]: IndexError: list index out of range"),
    ("flashabacus.beyond", {"probes": 0}, "probes = 0: ZeroDivisionError"),
    ("model.queue-depth", {"requests": 0}, "requests = 0: TypeError: 'NoneType'"),
    ("nds.fig10", {"workloads": ["nope"], "divide": 32}, "workloads = ['nope'], divide = 32: KeyError: 'nope'"),
]


@pytest.mark.parametrize(("name", "given", "says"), EDGES, ids=[f"{name} {[*given]}" for name, given, _ in EDGES])
def test_a_parameter_that_an_experiment_cannot_compute_with_is_named(name: str, given: Any, says: str) -> None:
    with pytest.raises(InvalidError) as raised:
        lab.run(name, profile="small", parameters=given, jobs=1)
    assert str(raised.value).startswith(f"{name} cannot be run with {says}")
    assert not list(Path("lab-runs").iterdir())
    words = [f"--set={key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in given.items()]
    code, _, said = call("lab", "run", name, "--profile", "small", "--jobs", "1", "--quiet", *words)
    assert (code, said) == (1, f"nandarray: error: {raised.value}\n")


@pytest.mark.usefixtures("_folder")
def test_an_error_of_ones_own_experiment_stays_its_own() -> None:
    Path("mine.py").write_text(OWN.replace('context["k"]}', 'context["k"] / 0}'))
    with pytest.raises(ZeroDivisionError):
        lab.run("mine.py", parameters={"k": 2.0})
    code, _, said = call("lab", "run", "mine.py", "--set", "k=2")
    assert code == 1
    assert re.fullmatch(r"nandarray: error: ZeroDivisionError: .* \(mine\.py:4, in .*; --debug shows all\)\n", said)


# --- files of experiments ---------------------------------------------------------------------------------------------

HOSTILE = {
    "EXPERIMENT = 5": "defines no EXPERIMENT", "EXPERIMENTS = [5]": "5 is no Experiment",
    "raise SystemError('no')": "SystemError: no", "EXPERIMENT = (": "SyntaxError",
    "import gone_": "ModuleNotFoundError",
    OWN.replace("mine.own", "Mine Own"): "'Mine Own' is no id of an experiment",
    OWN.replace('"mine.own"', '""'): "'' is no id of an experiment", "EXPERIMENTS = []": "defines no EXPERIMENT",
    OWN.replace("PARAMETERS = {", "PARAMETERS = {\x00"): "SyntaxError|ValueError|null bytes",
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_file_that_holds_no_experiment_says_why(text: str) -> None:
    Path("x.py").write_text(text)
    with pytest.raises(InvalidError, match=rf"(?s)x\.py holds no experiment: .*({HOSTILE[text]})"):
        registry.find("x.py")
    code, _, said = call("lab", "run", "x.py")
    assert (code, said.count("\n")) == (1, 1)


@pytest.mark.usefixtures("_folder")
def test_a_file_is_loaded_once_until_it_changes() -> None:
    first = registry.load_file("mine.py")
    assert registry.load_file("mine.py") is first
    assert registry.file_of(first.__name__) == str(Path("mine.py").resolve())
    assert registry.file_of("nandarray_papers.experiments.nds_fig2") is None
    Path("mine.py").write_text(OWN + "\n# another\n")
    assert registry.load_file("mine.py") is not first
    Path("other").mkdir()
    Path("other/mine.py").write_text(OWN)
    assert registry.load_file("other/mine.py") is not first, "another file of the same text"
    hashes = {source.source_hash(registry.find(name)) for name in ("mine.py", "other/mine.py")}
    assert len(hashes) == 2
    assert set(lab.experiments(["mine.py"])) - set(lab.experiments()) == {"mine.own"}


def test_imports_are_followed_into_the_lab_alone(tmp_path: Path) -> None:
    found = source._imports(
        b"import nandarray.lab.claims, os\nfrom nandarray.lab import pareto as p\n"
        b"from . import x\nfrom .nandarray.lab.cost import y\n"
        b"def f():\n    from nandarray_papers.nds.pipeline import pipelined\n"
    )
    assert found == (
        "nandarray.lab.claims", "os", "nandarray.lab", "nandarray.lab.pareto", "nandarray_papers.nds.pipeline",
        "nandarray_papers.nds.pipeline.pipelined",
    )  # fmt: skip
    seen: dict[str, bytes] = {}
    file = tmp_path / "top.py"
    file.write_text("from nandarray_papers.nds import pipeline\nimport nandarray.store\n")
    source._follow("top", file, seen)
    assert set(seen) >= {"top", "nandarray_papers.nds.pipeline", "nandarray_papers.nds.systems"}
    assert all(name == "top" or name.startswith(("nandarray.lab.", "nandarray_papers.")) for name in seen)


def test_each_experiment_takes_its_own_values_in_each_profile() -> None:
    for name, experiment in lab.experiments().items():
        for profile in parameters.PROFILES:
            values = parameters.resolve(experiment, profile)
            assert parameters.resolve(experiment, profile, values) == values, name
            assert list(values) == list(experiment.parameters)
        for wrong in ("deviec", "", " ", "changes "):
            if wrong not in experiment.parameters:
                with pytest.raises(NandarrayError, match="has no parameter"):
                    parameters.resolve(experiment, "small", {wrong: 1})


def test_completion_never_complains(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli_lab.complete_experiment("nds.fig10") == [one for one in lab.experiments() if one.startswith("nds.fig10")]
    assert cli_lab.complete_experiment("zzz") == []
    assert set(cli_replay.complete_device("")) == set(device.names())
    monkeypatch.setenv("NANDARRAY_RUNS", "runs")
    folder = Path("runs") / "x@0"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{")
    context = type("C", (), {"params": {}})
    assert cli_lab.complete_run(context, "") == []  # type: ignore[arg-type]
