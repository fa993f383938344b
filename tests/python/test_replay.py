"""Replays at a prompt and at a shell: results, tables, errors, timelines that Perfetto reads."""

from __future__ import annotations

import gzip
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import nandarray
from nandarray import Replay, Synthetic, Trace, replay
from nandarray.cli import app
from nandarray.errors import DescriptionError, InvalidError

IDEAL = "mqsim-ideal"
MSR = "".join(
    f"{128166372003061629 + 1000 * n},usr,0,{'Read' if n % 3 else 'Write'},{n * 8192},4096,0\n" for n in range(300)
)


def call(*words: Any, code: int = 0) -> str:
    """Run one command; give its standard output, or its standard error where it is to fail."""
    result = CliRunner().invoke(app, ["replay", *(str(word) for word in words)])
    assert result.exit_code == code, (words, result.output, result.exception)
    assert "Traceback" not in result.output
    return result.stderr if code else result.stdout


# --- from Python ------------------------------------------------------------------------------------------------------


def test_a_lone_read_takes_what_mqsim_says() -> None:
    run = replay(Synthetic(requests=300, depth=1), device=IDEAL)
    latency = run["read"]["latency"]
    assert latency["p50_us"] == pytest.approx(88.9, rel=0.02)  # facts/ssd.md: MQSim's QD1 row, ideal configuration
    assert latency["min_us"] <= latency["p50_us"] <= latency["p99_99_us"] <= latency["max_us"]
    assert run["all"]["requests"] == 300
    assert run["all"]["failed"] == 0
    parts = [value for key, value in run["energy"].items() if key.endswith("_j")]
    assert 2 * run["energy"]["device_j"] + run["energy"]["host_cores_j"] == pytest.approx(sum(parts))


def test_one_seed_one_run() -> None:
    mixed = Synthetic(requests=3000, read_share=0.5, size={4096: 3, 16384: 1}, zipf=0.9)
    runs = [replay(mixed, device="tiny", precondition=1.0, seed=seed) for seed in (1, 1, 2)]
    assert runs[0].data == runs[1].data
    assert runs[0].hash != runs[2].hash
    assert runs[0]["management"]["write_amplification"] > 1


def test_one_run_in_every_process() -> None:
    words = [sys.executable, "-m", "nandarray", "replay", "--synthetic", "-d", "tiny", "--requests", "2000", "--json"]
    words += ["--read-share", "0.5", "--precondition", "steady"]
    reports = []
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed}
        reports.append(subprocess.run(words, capture_output=True, text=True, check=True, env=env).stdout)
    assert reports[0] == reports[1]
    assert json.loads(reports[0])["hash"] == json.loads(call(*words[4:]))["hash"]


def test_what_a_result_shows() -> None:
    run = replay(Synthetic(requests=2000, read_share=0.7), device="tiny")
    assert isinstance(run, Replay)
    assert repr(run).startswith("<nandarray.Replay on 'tiny': 2,000 requests in ")
    html = run._repr_html_()
    assert html.count("<table") == html.count("</table>") == 2
    assert "polyline" in html
    assert "write amplification" in html
    assert "energy:" in html
    assert "<script" not in html


def test_a_description_may_be_changed_first() -> None:
    slow = nandarray.devices()[IDEAL].with_({"nand.t_read": "300 us"})
    run = replay(Synthetic(requests=100, depth=1), device=slow)
    assert run["read"]["latency"]["p50_us"] == pytest.approx(88.9 + 225, rel=0.02)


def test_traces_of_each_format(tmp_path: Path) -> None:
    fio = tmp_path / "a.log"
    lines = ["0 f add", "1 f open", "5 f write 0 4096", "9 f read 0 4096", "10 f datasync 0 0", "20 f close"]
    fio.write_text("\n".join(["fio version 3 iolog", *lines]))
    assert {op: replay(fio, device="tiny")[op]["requests"] for op in ("read", "write", "flush")} == {
        "read": 1,
        "write": 1,
        "flush": 1,
    }
    blk = tmp_path / "b.txt"
    blk.write_text("  8,0    1  1  0.000101829  4162  Q   R 1000 + 16 [dd]\n  8,0 1 2 0.2 4162  C   R 1000 + 16 [0]\n")
    assert replay(str(blk), device="tiny")["read"]["bytes"] == 8192
    msr = tmp_path / "c.csv.gz"
    msr.write_bytes(gzip.compress(MSR.encode()))
    run = replay(msr, device=IDEAL)
    assert (run["read"]["requests"], run["write"]["requests"]) == (200, 100)
    assert run["elapsed_s"] == pytest.approx(299 * 1e-4, rel=0.05)
    fast = replay(Trace(msr, time_scale=0.1, requests=100), device=IDEAL)
    assert fast["all"]["requests"] == 100
    assert fast["elapsed_s"] == pytest.approx(99 * 1e-5, rel=0.9)
    closed = replay(Trace(msr, depth=4), device=IDEAL)
    assert closed["elapsed_s"] < run["elapsed_s"]


@pytest.mark.parametrize(
    ("workload", "options", "says"),
    [
        (Synthetic(), {}, "without an end"),
        (Synthetic(requests=1, read_share=2), {}, "shares of reads and trims must be from 0 to 1"),
        (Synthetic(requests=1, size=1000), {}, "a size must be a multiple of 512 B"),
        (Synthetic(requests=1, zipf=1, hot=(0.1, 0.9)), {}, "not both"),
        (Synthetic(requests=1, poisson=True), {}, "need a rate"),
        (Synthetic(requests=1, working_set=1 << 50), {}, "on a device of"),
        (Synthetic(requests=1), {"precondition": "used"}, "not 'used'"),
        (Synthetic(requests=1), {"precondition": 1e9}, "not 1000000000"),
        (Synthetic(requests=-1), {}, "-1"),
        (Synthetic(requests=1), {"seed": -1}, "seed must be a whole number from 0 to"),
        (Synthetic(requests=1), {"precondition": math.nan}, "precondition must be a finite number"),
        (Synthetic(requests=1, rate=math.nan), {}, "rate must be a finite number"),
        (Synthetic(requests=1, size=10**30), {}, "size must be a whole number"),
        (Synthetic(requests=1, seed=10**23), {}, "seed must be a whole number"),
        (Synthetic(requests=1, depth=-1), {}, "depth must be a whole number"),
    ],
)
def test_wrong_settings_are_named(workload: Synthetic, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidError) as caught:
        replay(workload, device="tiny", **options)
    assert says in str(caught.value)


def test_a_drive_of_full_size_in_its_steady_state() -> None:
    writes = Synthetic(requests=2000, read_share=0, depth=64)
    steady = replay(writes, device="samsung-970-pro", precondition="steady")
    assert steady["management"]["live_pages"] * 4096 == steady["management"]["capacity_bytes"]
    assert any("laid out as after long random overwrites" in note for note in steady["notes"])
    assert steady.hash == replay(writes, device="samsung-970-pro", precondition="steady").hash
    with pytest.raises(InvalidError, match=r"ftl\.map_cache.* a number of overwrites writes it instead"):
        replay(writes, device="mqsim-default", precondition="steady")
    found = json.loads(call("--synthetic", "-d", "tiny", "--requests", 100, "--precondition", "steady", "--json"))
    assert found["all"]["requests"] == 100


def test_what_is_not_there_or_malformed(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replay(tmp_path / "none.csv", device="tiny")
    with pytest.raises(DescriptionError):
        replay(Synthetic(requests=1), device="no-such-device")
    bad = tmp_path / "bad.csv"
    bad.write_text(MSR + "1,usr,0,Read,x,4096,0\n")
    with pytest.raises(InvalidError, match=r"line 301 of an MSR Cambridge CSV: expected an offset in bytes"):
        replay(bad, device="tiny")
    with pytest.raises(OSError, match="timeline"):
        replay(Synthetic(requests=1), device="tiny", timeline=tmp_path / "no" / "such.pftrace")


def test_progress_is_told_and_may_end_it() -> None:
    heard: list[tuple[str, float | None, int, int, float]] = []
    replay(Synthetic(requests=50_000), device="tiny", precondition=0.5, progress=lambda *told: heard.append(told))
    assert heard[0][:2] == ("preconditioning", 0.0)
    assert [told[2] for told in heard[1:]] == [16384, 32768, 49152]
    assert heard[-1][1] == pytest.approx(1.0, abs=0.05)

    class Enough(Exception):  # noqa: N818 (no error)
        pass

    def stop(*_told: object) -> None:
        raise Enough

    with pytest.raises(Enough):
        replay(Synthetic(requests=50_000), device="tiny", progress=stop)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    code = (
        # A job in the background of a shell ignores the signal, and so would its children.
        "import signal, nandarray\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "print('now', flush=True)\n"
        "nandarray.replay(nandarray.Synthetic(requests=10**10), device='tiny')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "now\n"
        time.sleep(0.5)
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=60)
    assert "KeyboardInterrupt" in said


# --- timelines --------------------------------------------------------------------------------------------------------


def test_perfetto_reads_the_timeline(tmp_path: Path) -> None:
    """With Perfetto's own messages: every track has its parents, every slice ends, on tracks that overlap nowhere."""
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    path = tmp_path / "run.pftrace"
    replay(Synthetic(requests=50, read_share=0.5, depth=8), device=IDEAL, timeline=path)
    trace = messages.Trace()
    trace.ParseFromString(path.read_bytes())
    tracks: dict[int, Any] = {}
    names: dict[int, str] = {}
    open_slices: dict[int, int] = {}
    slices: Counter[tuple[str, str]] = Counter()
    for packet in trace.packet:
        for interned in packet.interned_data.event_names:
            names[interned.iid] = interned.name
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("track_event"):
            event = packet.track_event
            if event.type == messages.TrackEvent.TYPE_SLICE_BEGIN:
                assert event.track_uuid not in open_slices
                open_slices[event.track_uuid] = packet.timestamp
                slices[tracks[event.track_uuid].name, names[event.name_iid]] += 1
            else:
                assert event.type == messages.TrackEvent.TYPE_SLICE_END
                assert packet.timestamp >= open_slices.pop(event.track_uuid)
    assert not open_slices
    roots = [track for track in tracks.values() if not track.parent_uuid]
    assert [root.process.process_name for root in roots] == [IDEAL]
    assert all(track.parent_uuid in tracks for track in tracks.values() if track.parent_uuid)
    groups = {track.name for track in tracks.values() if track.parent_uuid == roots[0].uuid}
    assert {"link", "channel 0"} <= groups
    senses = sum(n for (_, what), n in slices.items() if what == "sense")
    assert senses >= 1
    assert any(track.startswith("way ") for track, _ in slices)
    assert any(track == "to the host" for track, _ in slices)


def test_a_window_of_a_timeline(tmp_path: Path) -> None:
    whole, part, few = (tmp_path / name for name in ("whole", "part", "few"))
    reads = Synthetic(requests=200, depth=1)
    replay(reads, device=IDEAL, timeline=whole)
    replay(reads, device=IDEAL, timeline=part, timeline_window=(0.001, 0.002))
    run = replay(reads, device=IDEAL, timeline=few, timeline_spans=10)
    assert few.stat().st_size < part.stat().st_size < whole.stat().st_size / 5
    assert any("first 10 spans" in note for note in run["notes"])


# --- from the shell ---------------------------------------------------------------------------------------------------


def test_the_table() -> None:
    text = call("--synthetic", "--device", IDEAL, "--requests", 2000, "--read-share", 0.7, "--quiet")
    for word in ("read", "write", "p99.99 us", "channels busy", "energy by part", "write amplification"):
        assert word in text


def test_the_json_and_the_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(MSR)
    found = json.loads(call(trace, "-d", "tiny", "--json", "--trace", tmp_path / "t.pftrace"))
    assert found["schema"] == 1
    assert found["all"]["requests"] == 300
    assert (tmp_path / "t.pftrace").stat().st_size > 10_000


def test_options_of_made_up_workloads() -> None:
    words = ["--synthetic", "-d", IDEAL, "--json", "--set", "nand.t_read=30 us"]
    half = json.loads(call(*words, "--rate", "40MB/s", "--seconds", 0.05, "--poisson", "--hot", "0.2:0.8"))
    assert half["read"]["bytes_per_s"] == pytest.approx(40e6, rel=0.1)
    sizes = json.loads(call(*words, "--size", "4KiB:1", "--size", "16k:1", "--requests", 2000))
    assert sizes["read"]["bytes"] / sizes["read"]["requests"] == pytest.approx(10240, rel=0.05)
    large = json.loads(call(*words, "--sequential", "--size", "128KiB", "--requests", 500, "--precondition", 0.0001))
    assert large["read"]["bytes_per_s"] > 1e9


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "--device"),
        (["-d", "tiny"], 2, "give either a TRACE or --synthetic"),
        (["-d", "tiny", "x.csv", "--synthetic"], 2, "give either a TRACE or --synthetic"),
        (["-d", "tiny", "--synthetic", "--rate", "fast"], 2, "'fast' is not a rate"),
        (["-d", "tiny", "--synthetic", "--hot", "1"], 2, "SPACE:SHARE"),
        (["-d", "tiny", "--synthetic", "--precondition", "new"], 2, "'new' is not empty, full, steady"),
        (["-d", "tiny", "--synthetic", "--size", "4KiB:x"], 2, "is not SIZE"),
        (["-d", "tiny", "nowhere.csv"], 1, "nowhere.csv: No such file"),
        (["-d", "tinny", "--synthetic"], 1, "tiny"),
        (["-d", "tiny", "--synthetic", "--size", "1000"], 1, "a size must be a multiple of 512 B"),
        (["-d", "tiny", "--synthetic", "--rate", "nan"], 1, "rate must be a finite number"),
    ],
)
def test_wrong_words(words: list[str], code: int, says: str) -> None:
    said = call(*words, code=code)
    assert says in " ".join(said.replace("│", " ").split())


def test_it_ends_quietly_when_nobody_reads(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nandarray", "replay", "--synthetic", "-d", "tiny", "--requests", "100", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "80"})
    assert run.stderr == ""
    assert json.loads(run.stdout)["device"] == "tiny"
