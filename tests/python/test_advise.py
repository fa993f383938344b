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
from nandarray.cli import app
from nandarray.programs.advise import advise_all, figure, paper, samples
from nandarray.programs.advise.flows import AROUND, READ, WITHIN, WRITE, Flows, path_of
from nandarray.programs.advise.vector import Loops, Times, loops
from nandarray.programs.library.registry import PROGRAMS

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
        flows = one.flows
        assert one.bytes_in == flows.from_store + flows.from_host
        assert (one.link_host, one.link_device) == (flows.from_store + flows.to_store, flows.from_host + flows.to_host)
        assert one.direction == (READ if flows.to_host >= flows.to_store else WRITE)
        assert one.seconds_host > 0 < one.seconds_device
        assert one.link_saved == pytest.approx(1 - one.link_device / one.link_host)
        assert one.vectorises in ("easily", "moderately", "hardly", "unknown")
        assert json.loads(json.dumps(one.as_dict()))["name"] == one.name
    assert set(samples.ASSUMED) <= set(programs.names())
    assert set(paper.FUNCTIONS) | set(paper.BECAUSE) | set(samples._USES) <= set(programs.names())
    assert set(paper.FUNCTIONS.values()) < set(paper.PAPER)


def test_a_program_without_a_sample_is_marked_and_the_others_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROGRAMS, "clip", programs.describe("filter"))  # it takes the scalars low and high
    monkeypatch.setattr(programs, "names", lambda: ["clip", "sum"])
    found, without = advise_all(times=False)
    assert [one.name for one in found] == ["sum"]
    assert "clip has no sample: it takes the scalar" in without["clip"]
    with pytest.raises(InvalidError, match="clip has no sample"):
        nandarray.advise("clip", times=False)
    done = CliRunner().invoke(app, ["advise"])
    rows = [row.rstrip() for row in done.output.splitlines()]
    assert done.exit_code == 0
    assert any(row.startswith("clip") and row.endswith("no sample") for row in rows)
    assert any(row.startswith("sum") for row in rows)
    with pytest.raises(InvalidError, match="nosuch"):
        advise_all(device="nosuch")


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
    assert found["wal_replay"].flows.from_store == found["wal_replay"].flows.to_store == 1 << 20
    # Hashes of all blocks, and of every second one its bytes.
    assert found["deduplicate"].flows == Flows(0, 1 << 20, (1 << 19) + 8 * (1 << 8), 0)
    assert found["filter"].ratio == pytest.approx(0.1, rel=0.05)
    assert found["bitunpack"].verdict == "keep on the host"
    assert found["network"].verdict == "needs faster cores"


def test_the_paths_size_and_direction_agree_with_the_dissertation(every: list[nandarray.Advice]) -> None:
    rows = figure.compare(every)
    assert len(rows) == len(paper.FUNCTIONS)
    differ = {
        row["program"] for row in rows if (row["size"], row["direction"]) != (row["size_paper"], row["direction_paper"])
    }
    assert differ == set()
    for row in rows:
        assert row["agrees"] == all(row[what] == row[f"{what}_paper"] for what in ("size", "direction", "vectorises"))


def test_bandwidths_decide() -> None:
    fast = nandarray.advise("parse", times=False, core_hz=1e12)
    slow = nandarray.advise("parse", times=False, core_hz=1e9)
    assert (fast.verdict, slow.verdict) == ("offload", "needs faster cores")
    assert slow.bound == "cores"
    assert slow.seconds_device == pytest.approx(slow.instructions_per_byte * slow.bytes_in / 8e9)
    assert nandarray.advise("parse", times=False).bandwidths == slow.bandwidths  # the described clock
    with pytest.raises(InvalidError, match="samsung-970-pro has no cores for programs: give"):
        nandarray.advise("parse", times=False, device="samsung-970-pro")
    of = nandarray.devices()["coden"].effective
    other = nandarray.advise("sum", times=False, device="coden")
    assert other.bandwidths.link == of["link_bytes_per_s"]
    assert (other.bandwidths.cores, other.verdict) == (7, "offload")
    slow_bus = nandarray.devices()["coden"].with_({"bus.rate": "40 MT/s x8"})
    other = nandarray.advise("sum", times=False, device=slow_bus)
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
    flows = nandarray.advise(made, store["x"], scalars={"by": 1}).flows
    assert flows == Flows(found.bytes_in, 0, 0, found.bytes_out)
    timed = nandarray.advise(Program.from_c(HALVES, trusted=True), store["x"], scalars={"by": 0.5})
    assert timed.gain is None or timed.gain > 0.2
    assert nandarray.advise("minmax", store["x"].view((3_000_000,)), times=False).bytes_out == 8

    @nandarray.program(inputs="float32")
    def wider(x):
        return np.float64(x)

    assert nandarray.advise(wider, np.ones(100, "f4"), times=False).size == "increases"
    with pytest.raises(InvalidError, match="has no sample data"):
        nandarray.advise(made)
    with pytest.raises(InvalidError, match="has no output 'z'; it has y"):
        nandarray.advise(made, store["x"], scalars={"by": 1}, to_store="z")
    with pytest.raises(InvalidError, match="direction says where all outputs go"):
        nandarray.advise(made, store["x"], scalars={"by": 1}, to_store=True, direction="read")
    with pytest.raises(InvalidError, match="direction must be read or write, not 'up'"):
        nandarray.advise("sum", direction="up")
    with pytest.raises(InvalidError, match="the sample is empty"):
        nandarray.advise("sum", np.zeros(0))


JOIN = """
#include <nandarray.h>
ND_PROGRAM("name": "join", "kind": "block",
           "inputs": [{"name": "x", "dtype": "float32"}, {"name": "table", "dtype": "float32", "whole": true}],
           "outputs": [{"name": "y", "dtype": "float32"}, {"name": "top", "dtype": "float32", "bound": {"fixed": 4}}])
int64_t nd_block(nd_args *args) {
    const float *x = ND_INPUT(args, 0, float), *table = ND_INPUT(args, 1, float);
    float *y = ND_OUTPUT(args, 0, float);
    size_t n = ND_INPUT_COUNT(args, 0, float);
    for (size_t i = 0; i < n; i++) y[i] = x[i] + table[0];
    *ND_OUTPUT(args, 1, float) = n ? x[0] : 0;
    ND_SET_USED(args, 0, n, float);
    ND_SET_USED(args, 1, 1, float);
    return 0;
}
"""


def test_the_path_is_counted_from_where_bytes_come_and_go(store: nandarray.Store) -> None:
    x, table = np.arange(100_000, dtype="f4"), np.ones(10, "f4")
    store["x"], store["table"] = x, table
    made = Program.from_c(JOIN)
    n, t = x.nbytes, table.nbytes

    def flows(*data: Any, **options: Any) -> tuple[str, Flows]:
        found = nandarray.advise(made, list(data), times=False, **options)
        assert found.direction == path_of(found.flows)
        assert found.stated == ("direction" in options)
        return found.direction, found.flows

    assert flows(store["x"], store["table"]) == (READ, Flows(n + t, 0, 0, n + 4))
    assert flows(store["x"], table) == (READ, Flows(n, t, 0, n + 4))
    # Nothing is of a store: it stands for what is.
    assert flows(x, table) == (READ, Flows(n + t, 0, 0, n + 4))
    assert flows(x, table, to_store=True) == (WRITE, Flows(0, n + t, n + 4, 0))
    assert flows(x, store["table"], to_store=["y"]) == (WRITE, Flows(t, n, n, 4))
    assert flows(store["x"], store["table"], to_store=["y", "top"]) == (WITHIN, Flows(n + t, 0, n + 4, 0))
    assert flows(x, table, to_store="top") == (AROUND, Flows(0, n + t, 4, n))
    # A stated direction replaces the one that follows from the places of the data.
    assert flows(x, table, direction="write") == (WRITE, Flows(0, n + t, n + 4, 0))
    assert flows(x, table, direction="read")[0] == READ
    inside = nandarray.advise(made, [store["x"], store["table"]], times=False, to_store=True)
    assert (inside.link_device, inside.link_saved, inside.size) == (0, 1.0, "keeps")
    # Parts and views.
    part = nandarray.Box(store["x"].view((1000, 100)), np.s_[5:105:2, 10:20])
    assert flows(part, table) == (READ, Flows(2000, t, 0, 2004))


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
    from nandarray.programs.advise import _vectorises

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
    shown = cli("crc32c", "--data", "sample", "--device", "flashabacus", "--html", str(page))
    assert shown.exit_code == 0, shown.output
    assert "crc32c: keep on the host" in shown.stdout
    assert "flashabacus" in page.read_text()
    assert cli(str(tmp_path / "halves.c")).exit_code != 0
    assert cli("sum", "--data", "nothing").exit_code != 0
    assert cli("nothing").exit_code != 0
    for words, code in [
        (("",), 1), (("summ",), 1),
        (("--data", f"{path}:/x"), 2), (("--trust",), 2), (("sum", "--data", f"{path}:/y"), 1),
        (("sum", "--data", f"{path}:/x", "--to-store", "y"), 1), (("sum", "--direction", "up"), 1),
        (("sum", "--trust"), 1), (("sum", "-s", "x"), 2), (("sum", "-s", "x=1"), 1), (("sum", "--device", "no"), 1),
        (("sum", "--html", "none/x.html"), 1), (("sum", "--direction", "read", "--to-store", "all"), 1),
    ]:  # fmt: skip
        failed = cli(*words)
        assert (failed.exit_code, "Traceback" in failed.output) == (code, False), (words, failed.output)
    np.save("x.npy", np.arange(16000, dtype="u1"))
    words = ["--data", "x.npy", "--to-store", "all", "-s", "key_low=1", "-s", "key_high=2"]
    written = json.loads(cli("aes128_decrypt", *words, "--json").stdout)
    assert (written["direction"], written["flows"]["from_host"]) == ("write", 16000)


@pytest.mark.parametrize("name", ["sum", "psf", "matvec", "filter"])
def test_a_sample_is_cut_into_tasks_that_fit_the_halves(name: str) -> None:
    for device in ("assasin-sp", "assasin-varve"):
        found = nandarray.advise(name, times=False, simulate=True, device=device)
        assert found.simulated is not None
        assert found.simulated.seconds > 0


def test_the_simulated_answer_stands_beside_the_formulas() -> None:
    found = nandarray.advise("sum", times=False, simulate=True)
    assert nandarray.advise("sum", times=False).simulated is None
    assert found.simulated is not None
    assert found.simulated.bound in ("flash", "cores", "link", "dram")
    # The formula has neither waits nor a beginning.
    assert found.simulated.seconds > 0.8 * found.seconds_device
    assert all(0 <= share <= 1.01 for share in found.simulated.busy.values())
    got = CliRunner().invoke(app, ["advise", "sum", "--simulate", "--device", "samsung-970-pro"])
    assert got.exit_code != 0, "a device without cores"
    with pytest.raises(InvalidError, match="windows, not streams"):
        nandarray.advise("sum", times=False, simulate=True, device="assasin-sb")
