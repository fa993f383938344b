"""Replays beside plain sums: traces with any lines against a parser of a few lines, workloads, reports, tables."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nandarray
from nandarray import Boxes, Replay, Synthetic, Trace, replay
from nandarray.errors import InvalidError, NandarrayError
from nandarray.model import replay_html, replay_rows
from nandarray.model.report import Report
from nandarray.units import scaled

TINY = nandarray.devices()["tiny"]
CAPACITY = TINY.effective["user_bytes"]
SECTOR = 512
SEEDS = range(12)


# --- traces -----------------------------------------------------------------------------------------------------------


def msr(text: str) -> list[tuple[str, int, int]] | None:
    """Requests of CSV as its page says, or None if a line is none."""
    found = []
    for number, line in enumerate(text.splitlines()):
        fields = [one.strip() for one in line.split(",")]
        if not line.strip() or (number == 0 and fields[0].lower() == "timestamp"):
            continue
        if not 6 <= len(fields) <= 7 or not all(re.fullmatch(r"\d+", fields[n]) for n in (0, 2, 4, 5)):
            return None
        if len(fields) == 7 and not re.fullmatch(r"\d+", fields[6]):
            return None
        if fields[3].lower() not in ("read", "write") or int(fields[5]) == 0 or int(fields[2]) >= 2**32:
            return None
        found.append((fields[3].lower(), int(fields[4]), int(fields[5])))
    return found


def line_of(rng: random.Random, number: int) -> str:
    """A line that is mostly right."""
    time, offset, size = 128166372003061629 + 700 * number, rng.randrange(0, CAPACITY // 2), rng.randint(1, 20_000)
    op = rng.choice(["Read", "Write", "read", "WRITE"])
    good = f"{time},usr,{rng.randrange(3)},{op},{offset},{size}" + rng.choice(["", ",17", " "])
    if rng.random() < 0.94:
        return good
    return rng.choice([
        good.replace(op, "Trim"), good.rsplit(",", 3)[0], f"{good},1,2", good.replace("usr,", "usr,-"), "", "   ",
        f"{time},usr,0,Read,{offset},0", "x" + good, good.replace(",", ";"), f"{time},usr,0,Read,1.5,4096",
        f"{time},usr,{2**32},Read,0,4096", good.replace("128166372003", "-128166372003"),
    ])  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_trace_is_what_its_lines_say_or_an_error_that_names_one(seed: int, packed: bool, tmp_path: Path) -> None:
    rng = random.Random(seed)
    lines = [line_of(rng, n) for n in range(rng.randint(1, 12))]
    if rng.random() < 0.4:
        lines.insert(0, "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime")
    text = "\n".join(lines) + rng.choice(["", "\n", "\r\n"])
    path = tmp_path / "t.csv"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    wanted = msr(text)
    try:
        run = replay(Trace(path, format="msr"), device=TINY)
    except InvalidError as error:
        assert wanted is None or not wanted, (seed, text, error)  # noqa: PT017
        assert re.search(r"line \d+|no request", str(error)), (seed, error)  # noqa: PT017
        return
    assert wanted is not None, (seed, text)
    for op in ("read", "write"):
        mine = [(offset, size) for kind, offset, size in wanted if kind == op]
        assert run[op]["requests"] == len(mine), (seed, text)
        assert run[op]["bytes"] == sum(_sectors(*one) for one in mine), (seed, text)
    assert run["all"]["failed"] == 0


def _sectors(offset: int, size: int) -> int:
    return (-(-(offset + size) // SECTOR) - offset // SECTOR) * SECTOR


IOLOG = [
    "fio version 2 iolog", "/dev/a add", "/dev/a open", "/dev/a write 0 4096", "/dev/a read 8192 4096",
    "/dev/a wait 50 0", "/dev/b add", "/dev/b trim 4096 4096", "/dev/a sync", "/dev/a close",
]  # fmt: skip


def test_an_iolog_cut_behind_any_line_has_the_requests_before_it(tmp_path: Path) -> None:
    path = tmp_path / "t.log"
    for end in range(1, len(IOLOG) + 1):
        path.write_text("\n".join(IOLOG[:end]))
        words = [line.split()[1] for line in IOLOG[1:end]]
        try:
            run = replay(path, device=TINY)
        except InvalidError as error:
            assert not {"write", "read", "trim", "sync"} & set(words), (end, error)  # noqa: PT017
            continue
        for op, word in (("read", "read"), ("write", "write"), ("trim", "trim"), ("flush", "sync")):
            assert run[op]["requests"] == words.count(word), (end, op)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/dev/a read 0", "line 11"), ("/dev/a read x 4096", "line 11"), ("/dev/a read 0 0", "a length above 0"),
        ("/dev/a jump 0 4096", "an action: read, write, trim"), ("/dev/a", "line 11"), ("/dev/a wait x", "line 11"),
        ("/dev/a read 0 4096 1", "the end of the line"), ("/dev/a read 18446744073709551616 4096", "line 11"),
        ("/dev/a read -1 4096", "line 11"), ("/dev/a read 0 4096\x00", "line 11"),
    ],
)  # fmt: skip
def test_a_hostile_line_of_an_iolog_is_named(line: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "t.log"
    path.write_text("\n".join([*IOLOG, line, "/dev/a read 0 4096"]))
    with pytest.raises(InvalidError, match=re.escape(says)):
        replay(path, device=TINY)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x1f\x8b", ""), (b"\xff\xfe\x00", ""), (b"a,b\n", "line 1"), (b"x" * (1 << 20), ""),
        (gzip.compress(b"fio version 2 iolog\n/a add\n/a read 0 4096\n" * 50)[:40], ""),
        (b"fio version 9 iolog\n", "line 1"),
    ],
    ids=range(6),
)  # fmt: skip
def test_a_file_that_is_no_trace_is_an_error(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(content)
    with pytest.raises((NandarrayError, OSError)) as raised:
        replay(path, device=TINY)
    assert len(str(raised.value)) < 2000
    if says:
        assert re.search(says, str(raised.value))


@pytest.mark.parametrize("content", [b"", b"\n" * 100, gzip.compress(b""), b"fio version 3 iolog"], ids=range(4))
def test_a_trace_without_a_request_is_a_replay_of_nothing(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(content)
    run = replay(path, device=TINY)
    assert (run["all"]["requests"], run["elapsed_s"]) == (0, 0.0)


# --- workloads --------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    requests=st.integers(1, 60), share=st.floats(0, 1), trim=st.floats(0, 0.5), every=st.integers(0, 5),
    seed=st.integers(0, 2**64 - 1),
)  # fmt: skip
def test_a_made_up_workload_has_its_requests_and_flushes(
    requests: int, share: float, trim: float, every: int, seed: int
) -> None:
    sizes = {4096: 1.0, 12288: 2.0}
    said = Synthetic(
        requests=requests, read_share=min(share, 1 - trim), trim_share=trim, flush_every=every, size=sizes, seed=seed
    )
    run = replay(said, device=TINY, precondition="empty")
    ops = {op: run[op] for op in ("read", "write", "trim", "flush")}
    moved = [ops[op] for op in ("read", "write", "trim")]
    assert sum(op["requests"] for op in ops.values()) == run["all"]["requests"] == requests
    whole, rest = divmod(ops["write"]["requests"], every) if every else (0, 1)
    assert whole - ops["flush"]["requests"] in ([0] if rest else [0, 1]), "the last may come behind the end"
    for op in moved:
        assert 4096 * op["requests"] <= op["bytes"] <= 12288 * op["requests"]
        assert op["bytes"] % 4096 == 0
    check_report(run.data)
    assert replay(said, device=TINY, precondition="empty").hash == run.hash


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"requests": -1}, "requests must be a whole number from 0"),
        ({"requests": 1.5}, "requests must be a whole number"), ({"depth": 2**64}, "depth must be a whole number"),
        ({"size": 1000}, "multiple of 512"), ({"size": {}}, ""), ({"size": {4096: math.nan}}, "weight of size 4096"),
        ({"size": {4096: -1.0}}, ""), ({"size": {4096: 0.0}}, ""), ({"read_share": 1.5}, ""),
        ({"read_share": math.inf}, "read_share must be a finite number"), ({"zipf": math.nan}, "zipf must be a finite"),
        ({"zipf": 1.0, "hot": (0.1, 0.9)}, "a Zipf skew or hot places, not both"), ({"zipf": -1.0}, ""),
        ({"hot": (0.5, math.inf)}, "number 1 of hot must be"), ({"hot": (0.0, 0.5)}, ""), ({"hot": (1.5, 0.5)}, ""),
        ({"poisson": True}, "arrivals by chance need a rate"), ({"rate": 0.0}, ""), ({"rate": -5.0}, ""),
        ({"pattern": "spiral"}, "spiral"), ({"align": 100}, ""), ({"offset": 2**63}, ""), ({"working_set": 0}, ""),
        ({"streams": 0}, ""), ({"seconds": -1.0}, ""), ({"depth": 0}, "a queue depth must be"),
        ({"requests": None}, ""), ({"trim_share": 0.6, "read_share": 0.6}, ""), ({"depth": "1"}, "depth must be a"),
        ({"depth": True}, "depth must"), ({"seed": None}, "seed must be a whole"), ({"zipf": "a"}, "zipf must be a"),
        ({"hot": (0.1,)}, "hot must be two numbers"), ({"hot": "ab"}, "hot must be two numbers, not 'ab'"),
        ({"size": "4 KiB"}, "size must be bytes"), ({"size": {"4096": 1}}, "size must be "),
        ({"read_share": None}, "a finite number, not None"), ({"pattern": 5}, "pattern must be 'random' or 'seq"),
    ],
)  # fmt: skip
def test_a_workload_that_cannot_be_names_the_setting(change: dict[str, Any], says: str) -> None:
    said = dataclasses.replace(Synthetic(requests=5), **change)
    with pytest.raises(InvalidError) as raised:
        replay(said, device=TINY)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shape": ()}, "an array of"), ({"shape": (0, 4)}, "an array of 0 B"), ({"depth": 0}, "a queue depth must be"),
        ({"itemsize": 0}, "an array of 0 B"), ({"request_max": 100}, "a request's most bytes must be"),
        ({"offset": CAPACITY}, f"from byte {CAPACITY}"), ({"boxes": [(slice(0, 9), slice(0, 4))]}, "[9, 4] elements"),
        ({"boxes": [(slice(2, 2), slice(0, 4))]}, "[0, 4] elements"), ({"boxes": [(slice(0, 2),)]}, "[2] elements"),
        ({"boxes": [(slice(3, 2), slice(0, 4))]}, "start to stop"), ({"boxes": [(slice(0, 4, 2),)]}, "start to stop"),
    ],
)  # fmt: skip
def test_boxes_that_cannot_be_say_why(change: dict[str, Any], says: str) -> None:
    good = Boxes(shape=(8, 4), itemsize=512, boxes=[(slice(0, 8), slice(0, 4))])
    assert replay(good, device=TINY)["read"]["bytes"] == 8 * 4 * 512
    with pytest.raises(InvalidError, match=re.escape(says)):
        replay(dataclasses.replace(good, **change), device=TINY)


@pytest.mark.parametrize("state", [-1.0, math.nan, math.inf, "new", "FULL"])
def test_a_state_that_is_none_is_named(state: Any) -> None:
    with pytest.raises(InvalidError, match=re.escape(repr(state)) if isinstance(state, str) else "precondition|over"):
        replay(Synthetic(requests=1), device=TINY, precondition=state)
    with pytest.raises(InvalidError, match="seed must be .*, not -1"):
        replay(Synthetic(requests=1), device=TINY, seed=-1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"precondition": None}, "precondition must be"), ({"precondition": [1]}, "precondition must be"),
        ({"seed": "x"}, "seed must be a whole"), ({"timeline_window": (1,)}, "timeline_window must be two"),
        ({"timeline_window": ("a", 1)}, "number 0 of timeline_window must be"),
        ({"timeline_window": (0, math.nan)}, "number 1 of timeline_window must be"),
        ({"timeline_spans": -1}, "timeline_spans must be a whole number"),
    ],
)  # fmt: skip
def test_an_option_of_a_replay_that_cannot_be_is_named(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=re.escape(says)):
        replay(Synthetic(requests=1), device=TINY, timeline=tmp_path / "t", **options)
    assert not (tmp_path / "t").exists()


def test_numbers_of_numpy_and_whole_floats_are_numbers(tmp_path: Path) -> None:
    plain = Synthetic(requests=40, size={4096: 2.0, 8192: 1.0}, hot=(0.25, 0.5), rate=1e5, seed=3)
    numpys: dict[str, Any] = {
        "requests": np.int64(40), "size": {np.int32(4096): np.float32(2), 8192.0: 1}, "hot": [np.float64(0.25), 0.5],
        "rate": np.float32(1e5), "seed": np.uint64(3),
    }  # fmt: skip
    other = Synthetic(**numpys)
    assert other.settings() == plain.settings()
    assert replay(other, device=TINY, seed=np.int8(1), precondition=np.float16(0.5)).hash == (  # type: ignore[arg-type]
        replay(plain, device=TINY, precondition=0.5).hash
    )
    (tmp_path / "t.csv").write_text("1,a,0,Read,0,4096\n")
    assert Trace(tmp_path / "t.csv", depth=np.int64(2)).settings()["depth"] == 2  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match="format must be 'fio', 'blktrace' or 'msr'"):
        replay(Trace(tmp_path / "t.csv", format="xyz"), device=TINY)  # type: ignore[arg-type]


def test_no_boxes_are_a_replay_of_nothing() -> None:
    run = replay(Boxes(shape=(8,), itemsize=512, boxes=[]), device=TINY)
    assert (run["all"]["requests"], run["all"]["latency"], run["elapsed_s"]) == (0, None, 0.0)
    assert run["energy"]["device_j_per_byte"] is None
    assert "0 requests in 0 s, 0 IOPS" in repr(run)
    assert "<polyline" not in run._repr_html_()


# --- reports ----------------------------------------------------------------------------------------------------------

RUNS = [
    (Synthetic(requests=400, read_share=0.6, trim_share=0.1, flush_every=7, seed=3), "full"),
    (Synthetic(requests=50, depth=1), "empty"),
    (Synthetic(requests=300, read_share=0.0, size={4096: 1, 65536: 1}), 0.5),
    (Synthetic(seconds=0.002, rate=50_000, poisson=True), "steady"),
    (Boxes(shape=(64, 64), itemsize=512, boxes=[(slice(0, 64), slice(3, 9))], write=True), "empty"),
]


@pytest.fixture(scope="module", params=range(len(RUNS)))
def run(request: pytest.FixtureRequest) -> Replay:
    workload, state = RUNS[request.param]
    return replay(workload, device=TINY, precondition=state)


def check_report(data: dict[str, Any]) -> None:
    """All that one part of a report says of another."""
    ops = [data[op] for op in ("read", "write", "trim", "flush")]
    for key in ("requests", "failed"):
        assert data["all"][key] == sum(op[key] for op in ops)
    assert data["all"]["bytes"] == sum(op["bytes"] for op in ops)
    for op in (*ops, data["all"]):
        if data["elapsed_s"]:
            assert op["iops"] == pytest.approx(op["requests"] / data["elapsed_s"])
            assert op["bytes_per_s"] == pytest.approx(op["bytes"] / data["elapsed_s"])
        took = op["latency"]
        assert (took is None) == (op["requests"] == 0)
        if took is None:
            continue
        order = ["min", "p50", "p90", "p95", "p99", "p99_9", "p99_99"]
        values = [took[f"{name}_us"] for name in order]
        assert values == sorted(values)
        assert took["min_us"] * (1 - 1e-9) <= took["mean_us"] <= took["max_us"] * (1 + 1e-9)
        assert values[-1] <= took["max_us"] * 1.001
        shares = [share for _, share in took["distribution"]]
        assert shares == sorted(shares)
        assert shares[-1] == pytest.approx(1)
        assert [us for us, _ in took["distribution"]] == sorted(us for us, _ in took["distribution"])
    energy = {key: value for key, value in data["energy"].items() if key.endswith("_j")}
    parts = sum(value for key, value in energy.items() if key not in ("device_j", "host_cores_j"))
    assert parts == pytest.approx(energy["device_j"])
    if data["until_rest_s"]:
        assert data["energy"]["device_w"] == pytest.approx(energy["device_j"] / data["until_rest_s"])
    if data["all"]["bytes"]:
        wanted = energy["device_j"] / data["all"]["bytes"]
        assert data["energy"]["device_j_per_byte"] == pytest.approx(wanted)
    used = data["utilisation"]
    for shares in (*[used[key] for key in ("channels", "dies", "cores", "host_cores")], [used["dram"]]):
        assert all(-1e-9 <= share <= 1 + 1e-9 for share in shares)


def test_parts_of_a_report_agree(run: Replay) -> None:
    check_report(run.data)
    assert json.loads(json.dumps(run.data)) == run.data


def test_tables_have_the_figures_of_the_report(run: Replay) -> None:
    data = run.data
    rows = {row[0]: row for row in replay_rows.throughput_rows(data)}
    assert list(rows) == [op for op in replay_rows.OPERATIONS if data[op]["requests"]]
    for name, row in rows.items():
        of = data[name]
        assert row[1:3] == [f"{of['requests']:,}", f"{of['iops']:,.0f}"]
        assert row[3] == scaled(of["bytes_per_s"], "B/s")
        assert row[4:] == [f"{of['latency'][key]:,.1f}" for key in replay_rows.LATENCIES]
    energy = replay_rows.energy_rows(data)
    assert [share for _, _, share in energy] == sorted((share for _, _, share in energy), reverse=True)
    for _, joules, share in energy:
        assert joules == pytest.approx(share * data["energy"]["device_j"])
    left = 1 - sum(share for _, _, share in energy)
    assert -1e-9 <= left < 0.005 * len(data["energy"])
    facts = dict(replay_rows.facts(data))
    assert facts["channels busy"] == replay_rows.spread(data["utilisation"]["channels"])
    assert ("write amplification" in facts) == (data["management"]["write_amplification"] is not None)
    html = run._repr_html_()
    for name in rows:
        assert f">{name}<" in html
    assert html.count("<polyline") == len(rows)
    assert "<script" not in html
    for x, y in re.findall(r"([-\d.]+),([-\d.]+)", " ".join(re.findall(r'points="([^"]*)"', html))):
        assert 0 <= float(x) <= 450
        assert 0 <= float(y) <= 190


def test_every_part_of_the_energy_has_a_row(run: Replay) -> None:
    keys = [key for key in run["energy"] if key.endswith("_j") and key not in ("device_j", "host_cores_j")]
    made = {"energy": {**dict.fromkeys(keys, 1.0), "device_j": float(len(keys))}}
    rows = replay_rows.energy_rows(made)
    assert len({name for name, _, _ in rows}) == len(keys)
    assert {share for _, _, share in rows} == {1 / len(keys)}


@given(st.lists(st.floats(0, 1), max_size=5))
def test_a_spread_is_the_mean_with_its_ends(shares: list[float]) -> None:
    said = replay_rows.spread(shares)
    if not shares:
        assert said == "-"
        return
    numbers = [float(one) / 100 for one in re.findall(r"([\d.]+)%", said)]
    wanted = [np.mean(shares), min(shares), max(shares)][: 1 if len(shares) == 1 else 3]
    assert numbers == pytest.approx(wanted, abs=0.00051)


def test_a_curve_of_one_latency_is_drawn(run: Replay) -> None:
    one = {"latency": {"distribution": [[90.0, 1.0]]}}
    data = {**dict.fromkeys(replay_rows.OPERATIONS, {"latency": None}), "read": one}
    drawn = replay_html._curve(data)
    assert drawn.count("<polyline") == 1
    assert replay_html._curve(data | {"read": {"latency": {"distribution": [[0.0, 1.0]]}}}) == ""
    assert "nan" not in drawn


def test_a_report_of_a_store_is_a_mapping_of_dotted_keys() -> None:
    with nandarray.open(device=TINY, mode="w") as store:
        store["x"] = np.arange(4096, dtype="u4")
        _ = store["x"][:]
        report = store.report()
    check_report(report.data)
    for key, value in report.data.items():
        assert report[key] == value
        for inner in value if isinstance(value, dict) else ():
            assert report[f"{key}.{inner}"] == value[inner]
    assert list(report) == list(report.data)
    assert len(report) == len(report.data)
    for wrong in ("", ".", "read.", "read.latency.p50", "all.requests.x", "device.x", "energy..device_j"):
        with pytest.raises(KeyError) as raised:
            _ = report[wrong]
        assert repr(wrong) in str(raised.value)
    assert sum(report.energy_j.values()) == pytest.approx(report["energy.device_j"])
    assert "host_cores" not in report.energy_j
    again = Report(json.dumps(report.data | {"device": "<b>"}), "the table")
    assert str(again) == "the table"
    assert "<b>" not in again._repr_html_()
    assert "&lt;b&gt;" in again._repr_html_()
