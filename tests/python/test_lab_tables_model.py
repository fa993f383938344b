"""Tables of runs through JSON, Parquet and arrays; comparisons, answers and charts of devices beside plain loops."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nandarray import device, lab
from nandarray.errors import CorruptError, InvalidError
from nandarray.lab import Experiment, Parameter, Result, _files
from nandarray.lab._compare import Comparison, keys_of
from nandarray.lab._heads import damage
from nandarray.lab._html import answer_cells, answers_html, mark
from nandarray.lab._inputs import Inputs, inputs_of
from nandarray.lab.report import answers, compare, cores, devices, sweeps
from nandarray.lab.report.page import Page, Table
from nandarray.lab.report.source import Source
from nandarray.units import format_number

Rows = list[dict[str, Any]]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
FLOATS = st.floats(-1e12, 1e12) | st.sampled_from([0.0, -0.0, 1e-300, 0.1, math.nan, math.inf, -math.inf])
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def finite(value: Any) -> Any:
    """The value that JSON has: no float that is none."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    return [finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def shuffled(value: Any) -> Any:
    """The same with keys in another order, tuples for lists and NumPy's numbers for Python's."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return tuple(map(shuffled, value))
    if isinstance(value, float):
        return np.float64(value)
    return np.int64(value) if isinstance(value, int) and not isinstance(value, bool) else value


# --- files ------------------------------------------------------------------------------------------------------------


@given(PLAIN)
def test_equal_values_are_equal_bytes(value: Any) -> None:
    text = _files.dumps(value)
    assert json.loads(text, parse_constant=pytest.fail) == finite(value) == _files.plain(value)
    assert _files.dumps(shuffled(value)) == text
    assert _files.digest(shuffled(value)) == _files.digest(value)
    assert _files.dumps(json.loads(text)) == text
    assert len(_files.digest(value)) == 12


@given(PLAIN, PLAIN)
def test_other_values_are_other_bytes(one: Any, other: Any) -> None:
    same = json.dumps(finite(one), sort_keys=True) == json.dumps(finite(other), sort_keys=True)
    assert (_files.dumps(one) == _files.dumps(other)) == same


KINDS = {
    "whole": st.integers(-(2**63), 2**63 - 1), "real": FLOATS, "text": TEXT, "truth": st.booleans(),
    "list": st.lists(st.integers(0, 9), max_size=3),
}  # fmt: skip


@settings(max_examples=40)
@given(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=4), st.data())
def test_a_table_is_the_same_from_both_of_its_files(kinds: list[str], data: st.DataObject) -> None:
    cell = [KINDS[kind] | st.none() for kind in kinds]
    drawn = data.draw(st.lists(st.tuples(*cell), max_size=6))
    names = [f"{kind}{n}" for n, kind in enumerate(kinds)]
    rows = [dict(zip(names, values, strict=True)) for values in drawn]
    about = _files.write_table(Path(), "t", rows)
    assert about == {"columns": names if rows else [], "rows": len(rows)}
    assert _files.read_json(Path("t.json")) == [finite(row) for row in rows]
    assert Path("t.json").read_text(encoding="utf-8").count("\n") == (len(rows) + 2 if rows else 1)
    frame = _files.read_parquet(Path("t.parquet"))
    assert len(frame) == len(rows)
    for name in names if rows else ():
        for found, wanted in zip(frame[name], (row[name] for row in rows), strict=True):
            if isinstance(wanted, list):
                assert list(found) == wanted
            elif wanted is None or wanted != wanted:
                assert found is None or found != found
            elif isinstance(wanted, int) and any(row[name] is None for row in rows):
                assert float(found) == float(wanted), "pandas has no whole numbers beside nothing"
            else:
                assert found == wanted


def test_a_parquet_file_cut_anywhere_is_damaged(tmp_path: Path) -> None:
    _files.write_table(tmp_path, "t", [{"a": n, "b": str(n) * 9} for n in range(50)])
    file = tmp_path / "t.parquet"
    whole = file.read_bytes()
    for end in (*range(0, len(whole), max(1, len(whole) // 25)), len(whole) - 1):
        file.write_bytes(whole[:end])
        with pytest.raises(CorruptError, match=r"t\.parquet is damaged: "):
            _files.read_parquet(file)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        _files.read_parquet(file)


@given(st.dictionaries(st.sampled_from("abc"), st.integers() | st.text(max_size=2) | st.none()))
def test_a_form_finds_what_is_gone_or_of_another_kind(head: dict[str, Any]) -> None:
    wrong = damage(head, {"a": int, "?b": (str, type(None)), "c": (int, type(None))})
    bad = [key for key in "ac" if key not in head]
    bad += [key for key, kinds in (("a", int), ("b", (str, type(None))), ("c", (int, type(None)))) if key in head
            and not isinstance(head[key], kinds)]  # fmt: skip
    assert (wrong is None) == (not bad)
    assert wrong is None or any(key in wrong for key in bad)


# --- inputs -----------------------------------------------------------------------------------------------------------


def test_devices_are_found_at_any_depth_and_keep_names_of_their_own(tmp_path: Path) -> None:
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.toml").write_text(device.load("tiny").with_(name=folder).to_toml())
    (tmp_path / "broken.toml").write_text("[")
    texts = [str(tmp_path / folder / "x.toml") for folder in "abc"]
    parameters = {
        "device": texts[0], "changes": {"nand.t_read": "9 us"}, "deep": [{"k": [texts[1], {"z": texts[2]}]}, "tiny"],
        "file": str(tmp_path / "broken.toml"), "words": "no file", texts[0] + "key": 1, "nul": "a\x00b", "n": 3,
    }  # fmt: skip
    experiment = Experiment("t", "T", "?", lambda _context: Result({}), devices=("mqsim-ideal",))
    found = inputs_of(experiment, parameters)
    assert list(found.devices) == [*texts, "tiny", "mqsim-ideal"]
    assert list(found.files) == [parameters["file"]]
    names = found.names()
    assert list(names.values()) == ["x.toml", "x-2.toml", "x-3.toml", "tiny.toml", "mqsim-ideal.toml"]
    written = found.write(tmp_path)
    for text, place in written.items():
        again = device.load(tmp_path / place)
        changes = parameters["changes"] if text == texts[0] else {}
        assert again == device.load(text).with_(changes)
    assert Inputs().write(tmp_path) == {}
    assert Inputs({"/": "", ".toml": "", "..": ""}).names() == {"/": "device.toml", ".toml": "device-2.toml",
                                                                "..": "...toml"}  # fmt: skip


# --- arrays and comparisons -------------------------------------------------------------------------------------------


def run_of(tmp_path: Path, rows: Rows, scale: float) -> lab.Run:
    made = Experiment("t.table", "T", "?", lambda _context: Result({"t": rows}), parameters={"s": Parameter(1.0, "s")})
    return lab.run(made, parameters={"s": scale}, runs=tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_a_table_as_arrays_has_each_row_at_its_place(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    places = [(a, b) for a in range(3) for b in "xyz" if rng.random() < 0.7] or [(0, "x")]
    values = {place: float(rng.integers(0, 9)) for place in places}
    rows = [{"a": a, "b": b, "v": values[a, b], "w": -values[a, b]} for a, b in values]
    found = run_of(tmp_path, [rows[n] for n in rng.permutation(len(rows))], seed).to_xarray("t", ["a", "b"])
    for a, b in itertools.product(found["a"].values.tolist(), found["b"].values.tolist()):
        value = float(found["v"].sel(a=a, b=b))
        assert value == values[a, b] if (a, b) in values else math.isnan(value), (seed, a, b)
    assert found.sizes["a"] == len({a for a, _ in values})


@given(
    st.lists(st.fixed_dictionaries({"k": st.sampled_from("ab"), "n": st.integers(0, 2), "v": st.floats(-4, 4)}),
             max_size=6, unique_by=lambda row: (row["k"], row["n"])),
    st.lists(st.fixed_dictionaries({"k": st.sampled_from("ab"), "n": st.integers(0, 2), "v": st.floats(-4, 4)}),
             max_size=6, unique_by=lambda row: (row["k"], row["n"])),
)  # fmt: skip
def test_bars_of_a_comparison_are_ratios_of_matched_rows(ours: Rows, theirs: Rows) -> None:
    keys = keys_of(ours, theirs)
    for rows in (ours, theirs):
        assert len({tuple(row[key] for key in keys) for row in rows}) == len(rows) or not keys
    first, second = ({(row["k"], row["n"]): row["v"] for row in rows} for rows in (ours, theirs))
    rows = [
        {"k": k, "n": n, "v a": first.get((k, n)), "v b": second.get((k, n)),
         "v ratio": second[k, n] / first[k, n] if first.get((k, n)) and (k, n) in second else None}
        for k, n in dict.fromkeys([*first, *second])
    ]  # fmt: skip
    bars = compare.table_bars(rows)
    assert bars == [(f"{row['k']} · {row['n']} · v", row["v ratio"]) for row in rows]
    chart = compare.ratio_chart("R", bars)
    known = [ratio for _, ratio in bars if ratio is not None and 0 < ratio < math.inf]
    assert (chart is None) == (not known)
    if chart is not None:
        assert chart["series"][0]["data"] == known
        assert f"from {format_number(min(known))} " in chart["summary"]
        assert f"to {format_number(max(known))} " in chart["summary"]


def test_many_ratios_are_the_sixty_that_differ_most() -> None:
    bars = [(str(n), 2.0 ** ((n % 101) - 50)) for n in range(101)] + [("zero", 0.0), ("none", None)]
    chart = compare.ratio_chart("R", bars)
    assert chart is not None
    shown = chart["series"][0]["data"]
    assert len(shown) == 60
    left = {ratio for _, ratio in bars if ratio} - set(shown)
    assert min(abs(math.log(ratio)) for ratio in shown) >= max(abs(math.log(ratio)) for ratio in left)


def test_runs_of_other_experiments_have_what_they_share(tmp_path: Path) -> None:
    rows = [{"name": "a", "v": 1.0, "own": 3}, {"name": "b", "v": 2.0, "own": 4}]
    one = run_of(tmp_path, rows, 1.0)
    other = run_of(tmp_path, [{"name": "b", "v": 6.0}, {"name": "c", "v": 5.0}], 2.0)
    both = Comparison(one, other)
    found = {row["name"]: row for row in both.rows("t")}
    assert {name: row["v ratio"] for name, row in found.items()} == {"a": None, "b": 3.0, "c": None}
    assert "own a" not in found["a"]
    with pytest.raises(InvalidError, match="no column 'own' in both runs"):
        both.rows("t", ["own"])
    assert both.to_dict()["tables"]["t"] == both.rows("t")
    assert both.table("t")["name"].tolist() == list(found)


# --- answers ----------------------------------------------------------------------------------------------------------

LIMITS = st.none() | st.floats(0.1, 4)
ANSWER = st.fixed_dictionaries(
    {
        "measured": st.booleans() | st.floats(0.1, 9), "paper": st.none() | st.floats(0.1, 9),
        "ratio": st.none() | st.floats(0.05, 20), "low": LIMITS, "high": LIMITS, "within": st.none() | st.booleans(),
        "calibrated": st.booleans(), "input": st.booleans(), "bound": st.sampled_from(["", "at least", "at most"]),
        "range": st.none() | st.lists(st.floats(1, 9), min_size=2, max_size=2), "what": st.sampled_from(["w", "<b>"]),
    }
)  # fmt: skip


@given(st.lists(ANSWER, max_size=8))
def test_each_answer_has_one_status_and_one_line(drawn: list[dict[str, Any]]) -> None:
    facts = [{"claim": f"c{n}#p", "kind": "shape" if one["measured"] is True else "ratio", **one}
             for n, one in enumerate(drawn)]  # fmt: skip
    found = answers.lines([Source("r@0", {"answers": facts})])
    assert [line.claim for line in found] == sorted(one["claim"] for one in facts)
    assert sum(
        answers.counts(found)[key] for key in ("within", "not", "calibrated", "input", "unjudged", "open")
    ) == len(facts)
    by = {line.claim: line for line in found}
    for one in facts:
        line = by[one["claim"]]
        truth = isinstance(one["measured"], bool)
        if one["input"]:
            assert line.status == "input"
        elif one["within"] is None:
            assert line.status in ("unjudged", "open")
        elif one["calibrated"]:
            assert line.status == ("calibrated" if one["within"] else "misfit")
        else:
            judged = one["measured"] if truth else one["within"]
            assert line.status in (("holds", "within") if judged else ("fails", "not"))
        assert (line.strip is None) == (None in (one["ratio"], one["low"], one["high"]))
        for spot, value in zip(line.strip or (), (one["low"], one["high"], one["ratio"]), strict=False):
            wanted = 100 * math.log(min(max(value, 0.5), 2) / 0.5) / math.log(4)
            assert spot == pytest.approx(wanted, abs=0.051)
        if one["ratio"] is not None and one["low"] is not None and one["high"] is None:
            assert line.expected == f"at least {format_number(one['low'])}"
        if one["range"]:
            assert line.paper.count(" to ") == 1 or (truth and one["paper"] is None)
        cells = answer_cells(one)
        assert len(cells) == 5
        assert (cells[-1] == "an input") == one["input"]
    shown = answers_html(facts)
    assert "<b>" not in shown
    assert shown.count("<tr>") == len(facts) + 1
    assert mark(good=None) == "not judged: small profile"


# --- devices ----------------------------------------------------------------------------------------------------------

SHARES = st.lists(st.floats(0, 1), max_size=5)


@given(
    st.dictionaries(st.sampled_from(["sense_j", "program_j", "erase_j", "bus_j", "link_j", "cores_j", "odd_j"]),
                    st.floats(0, 5)),
    st.dictionaries(st.sampled_from(["host", "gc", "map", "wear", "other"]), st.integers(0, 9)), st.floats(0, 3),
)  # fmt: skip
def test_energy_flows_without_loss(parts: dict[str, float], causes: dict[str, int], host: float) -> None:
    total = sum(parts.values())
    report = {
        "energy": {**parts, "device_j": total, "host_cores_j": host, "device_w": 3.0},
        "flash": {"senses": causes},
    }
    rows = devices.energy_rows(report)
    assert sum(row["energy_j"] for row in rows if row["share"] is not None) == pytest.approx(total)
    assert (rows and rows[-1]["operation"] == "host cores") or host == 0
    chart = devices.energy_chart("e", report)
    if total == 0:
        assert chart is None or not chart["links"]
        return
    assert chart is not None
    out: dict[str, float] = {}
    into: dict[str, float] = {}
    for link in chart["links"]:
        assert link["value"] >= 0
        out[link["source"]] = out.get(link["source"], 0.0) + link["value"]
        into[link["target"]] = into.get(link["target"], 0.0) + link["value"]
    assert out["device"] == pytest.approx(total)
    assert all(out[name] == pytest.approx(into[name]) for name in out if name != "device")
    assert ("sensing for reclaim" in into) == (parts.get("sense_j", 0) > 0 and causes.get("gc", 0) > 0)


@given(SHARES, SHARES, SHARES)
def test_busy_shares_are_shown_each_once(channels: list[float], dies: list[float], cores_busy: list[float]) -> None:
    report = {"utilisation": {"channels": channels, "dies": dies, "cores": cores_busy, "link_up": 0.5, "dram": 0.25}}
    chart = devices.dies_chart("d", report)
    rows = devices.dies_rows(report)
    assert len(rows) == len(channels)
    if channels:
        assert chart is not None
        ways = len(dies) // len(channels)
        cells = {(x, y): share for x, y, share in chart["cells"]}
        for n, row in enumerate(rows):
            assert row["bus"] == cells[n, 0] == channels[n]
            assert [row[f"die {way}"] for way in range(ways)] == [cells[n, 1 + way] for way in range(ways)]
    busy = devices.busy_chart("b", report)
    assert busy is not None
    shown = dict(zip(busy["y"]["categories"], busy["series"][0]["data"], strict=True))
    assert shown == {"link, to host": 0.5, "DRAM": 0.25, **{f"core {n}": one for n, one in enumerate(cores_busy)}}
    (totals,) = devices.totals_rows({"r": report})
    if channels:
        assert totals["channels busy %"] == pytest.approx(100 * sum(channels) / len(channels))
    assert totals["link, to host busy %"] == 50


@given(st.dictionaries(st.sampled_from(["issue", "hazard", "memory", "odd"]), st.floats(0, 9)), st.floats(0, 9))
def test_cycles_an_instruction_add_up(seconds: dict[str, float], cpi: float) -> None:
    report = {"programs": {"timed_cores": {"core": "c", "cpi": cpi, "seconds_by_reason": list(seconds.items())}}}
    rows = cores.cpi_rows({"r": report})
    if not cpi or not sum(seconds.values()):
        assert rows == []
        return
    assert sum(row["cycles an instruction"] for row in rows) == pytest.approx(cpi)
    chart = cores.cpi_chart("t", {"r": report, "none": {}})
    assert chart is not None
    assert sum(one["data"][0][1] for one in chart["series"]) == pytest.approx(cpi)


@given(st.lists(st.fixed_dictionaries({"a": st.integers(0, 3), "b": st.floats(0, 1) | st.none(), "c": st.just("x")}),
                max_size=6))  # fmt: skip
def test_a_sweep_is_drawn_over_its_columns_of_numbers(rows: Rows) -> None:
    chart = sweeps.pareto_chart(sweeps.SweepData("S", rows, {"b": "min", "c": "max"}))
    numbers = [name for name in ("a", "b") if any(row[name] is not None for row in rows)]
    assert (chart is None) == (len(numbers) < 2)
    if chart is not None:
        assert set(chart["columns"]) == {"a", "b"}
        assert chart["objectives"] == {"b": "min"}
        assert chart["points"] == [f"a = {row['a']}" for row in rows]


def test_tables_of_a_page_have_names_of_their_own_and_are_cut_alone_on_the_page() -> None:
    page = Page([])
    rows = [{"n": n, "much": None if n else 0.5, "text": "x"} for n in range(400)]
    made = [page.table("t", rows) for _ in range(3)]
    assert [one.id for one in made] == ["t", "t-more", "t-more-more"]
    assert (len(made[0].shown), made[0].csv.count("%0D%0A")) == (300, 401)
    assert [made[0].numeric(name) for name in ("n", "much", "text", "gone")] == [True, True, False, False]
    assert made[0].narrow
    assert not Table("w", [str(n) for n in range(6)], rows).narrow
    assert page.plot("p", None) is None
    plots = [page.plot("p", {"kind": "bars", "y": {"categories": ["x"] * n}}) for n in (0, 5, 90)]
    assert [one.height for one in plots if one] == [160, 180, 900]
    assert list(page.charts) == ["p", "p-more", "p-more-more"]
