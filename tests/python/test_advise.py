"""Advice on offloading: what is measured is what a run gives, what follows is arithmetic, the figure shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

import nandarray
from nandarray import InvalidError, Program, programs
from nandarray._advise import figure, paper, samples
from nandarray._advise.vector import Loops, Times, loops
from nandarray.cli import app

HALVES = """
#include <nandarray.h>
ND_PROGRAM("name": "halves", "kind": "block", "inputs": [{"name": "x", "dtype": "float32"}],
           "outputs": [{"name": "y", "dtype": "float32"}], "scalars": [{"name": "by", "dtype": "float32"}])
int64_t nd_block(nd_args *args) {
    const float *x = ND_INPUT(args, 0, float);
    float *y = ND_OUTPUT(args, 0, float), by = nd_scalar_f32(args, 0);
    size_t n = ND_INPUT_COUNT(args, 0, float) / 2;
    for (size_t i = 0; i < n; i++) y[i] = (x[2 * i] + x[2 * i + 1]) * by;
    ND_SET_USED(args, 0, n, float);
    return 0;
}
"""


@pytest.fixture(scope="module")
def every() -> list[nandarray.Advice]:
    # Untimed: these tests are about what does not change from machine to machine.
    return [nandarray.advise(name, times=False) for name in programs.names()]


def test_every_ready_made_program_has_a_sample_and_advice(every: list[nandarray.Advice]) -> None:
    assert [one.name for one in every] == programs.names()
    for one in every:
        assert one.bytes_in > 300_000, one.name
        assert one.direction == paper.direction_of(one.name)
        assert one.seconds_host > 0 < one.seconds_device
        assert one.link_saved == pytest.approx(1 - one.link_device / one.link_host)
        assert one.vectorises in ("easily", "moderately", "hardly", "unknown")
        assert json.loads(json.dumps(one.as_dict()))["name"] == one.name
    assert set(samples.ASSUMED) <= set(programs.names())
    assert set(paper.FUNCTIONS) | set(paper.BECAUSE) | paper.KEPT <= set(programs.names())
    assert set(paper.FUNCTIONS.values()) < set(paper.PAPER)


def test_sizes_are_those_of_the_programs(every: list[nandarray.Advice]) -> None:
    found = {one.name: one for one in every}
    assert found["sum"].bytes_out == 8
    assert found["replicate"].ratio == 3
    assert found["raid5_encode"].ratio == pytest.approx(4 / 3)
    assert found["raid6_encode"].ratio == 1.5  # data and two parities
    assert found["raid6_encode"].link_saved == pytest.approx(1 / 3)
    assert found["bitpack"].ratio == pytest.approx(5 / 32)
    assert found["aes128_encrypt"].size == "keeps"
    assert found["lz4_decompress"].size == "increases"
    assert found["wal_replay"].size == "increases"  # the log is small, pages are in the device
    assert found["filter"].ratio == pytest.approx(0.1, rel=0.05)
    assert found["bitunpack"].verdict == "keep on the host"
    assert found["network"].verdict == "needs faster cores"


def test_the_paths_size_and_direction_agree_with_the_dissertation(every: list[nandarray.Advice]) -> None:
    rows = figure.compare(every)
    assert len(rows) == len(paper.FUNCTIONS)
    differ = {
        row["program"] for row in rows if (row["size"], row["direction"]) != (row["size_paper"], row["direction_paper"])
    }
    assert differ == {"deduplicate"}  # it gives hashes; what they save is the data's business
    for row in rows:
        assert row["agrees"] == all(row[what] == row[f"{what}_paper"] for what in ("size", "direction", "vectorises"))


def test_bandwidths_decide() -> None:
    fast = nandarray.advise("parse", times=False, core_hz=1e12)
    slow = nandarray.advise("parse", times=False, core_hz=1e9)
    assert (fast.verdict, slow.verdict) == ("offload", "needs faster cores")
    assert slow.bound == "cores"
    assert slow.seconds_device == pytest.approx(slow.instructions_per_byte * slow.bytes_in / 8e9)
    of = nandarray.devices()["coden"].effective
    other = nandarray.advise("sum", times=False, device="coden")
    assert other.bandwidths.link == of["link_bytes_per_s"]
    assert other.bound == "flash"  # slower than its link: traffic is saved, time is not
    assert other.verdict == "offload for traffic"
    writing = nandarray.advise("replicate", times=False, direction="read")
    assert writing.link_saved == pytest.approx(-2)
    assert writing.verdict == "keep on the host"


def test_ones_own_programs_and_data(store: nandarray.Store) -> None:
    store["x"] = np.arange(3_000_000, dtype="f4").reshape(3000, 1000)
    made = Program.from_c(HALVES)
    found = nandarray.advise(made, store["x"], scalars={"by": 0.5})
    assert (found.ratio, found.size, found.direction, found.candidate) == (0.5, "reduces", "read", True)
    assert found.gain is None  # not trusted, so not executed here
    assert found.bytes_in <= 4 << 20
    assert found.loops is None or found.loops.vectorised == 1
    timed = nandarray.advise(Program.from_c(HALVES, trusted=True), store["x"], scalars={"by": 0.5})
    assert timed.gain is None or timed.gain > 0.2
    assert nandarray.advise("minmax", store["x"].view((3_000_000,)), times=False).bytes_out == 8

    @nandarray.program(inputs="float32")
    def wider(x):
        return x * 2.0

    assert nandarray.advise(wider, np.ones(100, "f4"), times=False).size == "increases"
    with pytest.raises(InvalidError, match="has no sample data"):
        nandarray.advise(made)
    with pytest.raises(InvalidError, match="direction is 'up'"):
        nandarray.advise("sum", direction="up")
    with pytest.raises(InvalidError, match="the sample is empty"):
        nandarray.advise("sum", np.zeros(0))


@pytest.mark.parametrize(
    ("gain", "done", "missed", "says"),
    [
        (2, 0, 3, "easily"),
        (1, 2, 0, "easily"),
        (1.2, 0, 1, "moderately"),
        (1, 1, 5, "moderately"),
        (0.4, 1, 5, "hardly"),
        (1, 0, 2, "hardly"),
    ],
)
def test_how_well_it_vectorises(gain: float, done: int, missed: int, says: str) -> None:
    from nandarray._advise import _vectorises

    assert _vectorises(Times(1.0, gain), Loops(done, missed, ())) == says
    assert _vectorises(None, None) == "unknown"


def test_loops_are_told_with_their_lines() -> None:
    found = loops(programs.get("crc32c"))
    if found is None:
        pytest.skip("no native form on this machine")
    assert found.missed > 0
    assert any(line.startswith(("crc32c.h:", "crc32c.c:")) for line in found.lines)
    assert loops(Program.from_elf(programs.get("sum").elf)) is None


def test_the_figure_has_every_program_in_its_cell(every: list[nandarray.Advice], tmp_path: Path) -> None:
    root = ElementTree.fromstring(figure.figure_svg(every))
    space = "{http://www.w3.org/2000/svg}"
    named = {group.find(f"{space}text").text: group for group in root.iter(f"{space}g")}  # type: ignore[union-attr]
    assert set(named) == set(programs.names())
    cells = [
        tuple(float(one.get(key)) for key in ("x", "y", "width", "height"))  # type: ignore[arg-type]
        for one in root.iter(f"{space}rect")
        if one.get("class") == "cell"
    ]
    assert len(cells) == 6
    for one in every:
        text = named[one.name].find(f"{space}text")
        assert text is not None
        x, y = float(text.get("x", 0)), float(text.get("y", 0))
        left, top, wide, tall = cells[
            3 * (one.direction == "write") + ("reduces", "keeps", "increases").index(one.size)
        ]
        assert left < x < left + wide, one.name
        assert top < y < top + tall, one.name
        candidate = named[one.name].find(f"{space}rect")
        assert (candidate is not None) == one.candidate
    page = figure.write(every, tmp_path / "figure.html").read_text()
    assert "Beside the dissertation" in page
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")


def cli(*words: str) -> Any:
    return CliRunner().invoke(app, ["advise", *words])


def test_the_command(store: nandarray.Store, path: Path, tmp_path: Path) -> None:
    store["x"] = np.arange(100_000, dtype="f4")
    store.close()
    (tmp_path / "halves.c").write_text(HALVES)
    words = ["--data", f"{path}:/x", "--scalar", "by=0.5", "--direction", "read"]
    found = json.loads(cli(str(tmp_path / "halves.c"), *words, "--json").stdout)
    assert (found["name"], found["ratio"], found["gain"]) == ("halves", 0.5, None)
    trusted = cli(str(tmp_path / "halves.c"), *words, "--trust")
    assert "halves: offload" in trusted.stdout
    assert trusted.exit_code == 0
    page = tmp_path / "one.html"
    shown = cli("crc32c", "--data", "sample", "--device", "samsung-970-pro", "--html", str(page))
    assert shown.exit_code == 0, shown.output
    assert "crc32c: keep on the host" in shown.stdout
    assert "samsung-970-pro" in page.read_text()
    assert cli(str(tmp_path / "halves.c")).exit_code != 0
    assert cli("sum", "--data", "nothing").exit_code != 0
    assert cli("nothing").exit_code != 0
