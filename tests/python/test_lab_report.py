"""The report's page in parts: figures, devices, answers, comparisons, sweeps shaped; escaping.

test_lab_report_page.py tests the page in a browser, test_lab_charts.py the chart library.
"""

from __future__ import annotations

import csv
import dataclasses
import html.parser
import io
import itertools
import json
import math
import sys
from importlib import resources
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
import report_fixture as fixture
from hypothesis import given
from hypothesis import strategies as st

from nandarray import errors, lab
from nandarray.lab import report
from nandarray.lab.report import answers, compare, cores, devices, figures, page, source, sweeps, text
from nandarray.present.palette import PALETTES
from nandarray.units import format_number

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(values)
def test_json_in_a_script_element_is_the_same_and_cannot_end_it(value):
    written = text.script_json({"x": value, fixture.HOSTILE: fixture.HOSTILE})
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written) == {"x": value, fixture.HOSTILE: fixture.HOSTILE}


@given(st.lists(st.fixed_dictionaries({"a": st.text(), "b": st.floats(allow_nan=False), 'c"<,': st.integers()})))
def test_csv_links_hold_the_table_at_full_precision(rows):
    url = text.csv_url(rows)
    assert not set('"<>&\n\r#%') & set(url.replace("%", "")), url
    head, _, body = url.partition(",")
    assert head == "data:text/csv;charset=utf-8"
    found = list(csv.DictReader(io.StringIO(unquote(body), newline="")))
    assert found == [{"a": row["a"], "b": repr(row["b"]), 'c"<,': str(row['c"<,'])} for row in rows]


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "0"), (1234567, "1,234,567"), (0.5, "0.5"), (-0.00012346, "-0.0001235"), (99999.6, "100,000"),
     (1e-9, "1.000e-09"), (float("nan"), "-"), (float("-inf"), "-infinite")],
)  # fmt: skip
def test_numbers_have_four_digits(value, written):
    assert format_number(value) == written


def test_cells_of_any_json_value_are_texts():
    assert text.show({"a": [1, 2.5], "b": None}) == "a: 1, 2.5, b: "
    assert [text.show(x) for x in (True, False, None, "<b>")] == ["yes", "no", "", "<b>"]
    assert text.as_data([math.nan, math.inf, 1.23456789, {"x": (1, 2)}]) == [None, None, 1.23457, {"x": [1, 2]}]
    assert text.slug("NDS Fig. 9(a)", "", "rows") == "nds-fig-9-a-rows"
    assert text.slug("…") == "part"


def figure(**more):
    usual = {"id": "f", "title": "F", "kind": "line", "table": "t", "x": "x", "y": "y", "series": "", "value": ""}
    usual |= {"x_label": "", "y_label": "", "x_log": False, "y_log": False, "points": [], "caption": ""}
    return usual | more


def test_lines_are_sorted_and_points_that_cannot_be_shown_are_counted():
    rows = [{"x": 10, "y": 2.0}, {"x": 1, "y": 1.0}, {"x": 0, "y": 3.0}, {"x": 5, "y": None}, {"x": 6, "y": -1.0}]
    chart = figures.chart_of(figure(x_log=True, y_log=True), rows)
    assert chart["x"]["type"] == chart["y"]["type"] == "log"
    assert chart["series"][0]["data"] == [[1.0, 1.0], [5.0, None], [6.0, None], [10.0, 2.0]]
    assert chart["hidden"] == 2  # x = 0 and y = -1; what has no value hides nothing
    assert "lowest 1 at 1, highest 2 at 10" in chart["summary"]


def test_bars_have_categories_in_order_and_numbers_sorted():
    rows = [{"x": x, "y": 1.0, "s": s} for s in "ab" for x in ("TC", "BFS")]
    points = [{"series": "a", "x": "KNN", "y": 2.0, "where": "7", "bound": "at most"}]
    chart = figures.chart_of(figure(kind="bar", series="s", points=points), rows)
    assert chart["x"]["categories"] == ["TC", "BFS", "KNN"]
    assert chart["paper"] == [
        {"name": "a", "slot": 0, "data": [{"x": 2.0, "y": 2.0, "bound": "at most", "where": "7"}]}
    ]
    assert "1 points that the paper states" in chart["summary"]
    numbers = figures.chart_of(figure(kind="bar"), [{"x": x, "y": 1.0} for x in (32, 8, 1024)])
    assert numbers["x"]["categories"] == ["8", "32", "1,024"]


def test_the_paper_may_have_a_series_of_its_own_and_a_figure_without_series_has_one():
    point = {"series": "theirs", "x": 1, "y": 2.0, "where": "", "bound": ""}
    rows = [{"x": 1, "y": 1.0, "s": "ours"}]
    split = figures.chart_of(figure(series="s", points=[point]), rows)
    assert [one["name"] for one in split["series"]] == ["ours", "theirs"]
    alone = figures.chart_of(figure(y_label="GB/s", points=[point]), rows)
    assert [one["name"] for one in alone["series"]] == [one["name"] for one in alone["paper"]] == ["GB/s"]


def test_labels_are_words_with_units_and_numbers_say_of_what_they_are():
    rows = [{"time_s": 1.0, "mean_MBps": 2.0, "screen_us": size} for size in (20, 100)]
    chart = figures.chart_of(figure(x="time_s", y="mean_MBps", series="screen_us"), rows)
    assert (chart["x"]["label"], chart["y"]["label"]) == ("time (s)", "mean (MB/s)")
    assert [one["name"] for one in chart["series"]] == ["screen 20 us", "screen 100 us"]
    assert figures.chart_of(figure(x="a_b", y="GBps_a_core"), [])["y"]["label"] == "GB/s a core"
    stated = figure(series="serial", points=[{"series": "0.1", "x": 1.0, "y": 1.0, "where": "x"}])
    chart = figures.chart_of(stated, [{"x": 1.0, "y": 2.0, "serial": 0.1}])
    assert chart["series"][0]["name"] == chart["paper"][0]["name"] == "serial 0.1"


def test_bars_of_ratios_stand_on_one_and_series_without_a_point_are_left_out():
    rows = [{"x": "a", "y": 2.0}]
    ratio = figures.chart_of(figure(kind="bar", y_log=True, y_label="times the scalar form"), rows)
    assert ratio["y"] == {"label": "times the scalar form", "type": "log", "ratio": True}
    assert "ratio" not in figures.chart_of(figure(kind="bar", y_log=True, y_label="seconds"), rows)["y"]
    points = [{"x": 1.0, "y": None, "what": "cannot run"}, {"x": 1.0, "y": 1.0, "what": "front"}]
    chart = figures.chart_of(figure(kind="scatter", series="what"), points)
    assert [one["name"] for one in chart["series"]] == ["front"]


def test_heat_maps_have_a_cell_a_row():
    rows = [{"x": x, "y": y, "v": x * y} for x in (2, 1) for y in (10, 20)] + [{"x": 1, "y": 30, "v": None}]
    chart = figures.chart_of(figure(kind="heatmap", value="v"), rows)
    assert chart["x"]["categories"] == ["1", "2"]
    assert chart["y"]["categories"] == ["10", "20", "30"]
    assert sorted(chart["cells"]) == [[0, 0, 10], [0, 1, 20], [1, 0, 20], [1, 1, 40]]
    assert chart["hidden"] == 1
    assert "highest 40 at 2, 20" in chart["summary"]


def test_timelines_have_a_bar_a_row():
    rows = [
        {"x": 0.0, "y": "worker 1", "v": 2.0, "s": "a"},
        {"x": 2.0, "y": "worker 0", "v": 2.5, "s": "b"},
        {"x": 3.0, "y": "worker 0", "v": 1.0, "s": "b"},
    ]
    chart = figures.chart_of(figure(kind="timeline", value="v", series="s"), rows)
    assert chart["y"]["categories"] == ["worker 1", "worker 0"]
    assert [one["data"] for one in chart["series"]] == [[[0.0, 0.0, 2.0]], [[2.0, 1.0, 2.5]]]
    assert chart["hidden"] == 1, "a bar that ends before it begins"
    assert "2 bars of 2 series from 0 to 2.5" in chart["summary"]


def test_a_figure_of_an_empty_table_is_a_chart_of_nothing():
    for kind in ("line", "bar", "scatter", "heatmap", "timeline"):
        chart = figures.chart_of(figure(kind=kind, value="v"), [])
        assert chart["summary"].startswith(("Line", "Bar", "Scatter", "Heat", "Timeline"))
        text.script_json(chart)


def test_dies_are_a_heat_map_of_channels_and_ways():
    given = {"utilisation": {"channels": [0.5, 0.25], "dies": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}}
    chart = devices.dies_chart("d", given)
    assert chart["y"]["categories"] == ["bus", "die 0", "die 1", "die 2"]
    cells = {(x, y): share for x, y, share in chart["cells"]}
    assert cells[0, 0] == 0.5
    assert cells[1, 0] == 0.25
    assert [cells[0, y] for y in (1, 2, 3)] == [0.1, 0.2, 0.3]
    assert [cells[1, y] for y in (1, 2, 3)] == [0.4, 0.5, 0.6]
    assert devices.dies_rows(given)[1] == {"channel": 1, "bus": 0.25, "die 0": 0.4, "die 1": 0.5, "die 2": 0.6}


@pytest.mark.parametrize(("device", "share"), [("nds-prototype", 1.0), ("tiny", 0.7), ("samsung-970-pro", 0.7)])
def test_energy_flows_from_the_device_to_its_operations_and_nothing_is_lost(device, share):
    found = fixture.replayed(device, share)
    total = found["energy"]["device_j"]
    chart = devices.energy_chart("e", found)
    into, out = {}, {}
    for link in chart["links"]:
        out[link["source"]] = out.get(link["source"], 0) + link["value"]
        into[link["target"]] = into.get(link["target"], 0) + link["value"]
    assert out["device"] == pytest.approx(total)
    assert chart["total"] == pytest.approx(total)
    for name, value in out.items():
        assert name == "device" or into[name] == pytest.approx(value), name
    assert set(into) | {"device"} == set(chart["nodes"])
    rows = devices.energy_rows(found)
    assert sum(row["energy_j"] for row in rows if row["share"] is not None) == pytest.approx(total)
    assert sum(row["share"] or 0 for row in rows) == pytest.approx(1)


def test_latencies_have_a_curve_for_each_kind_of_request_with_percentiles_on_it():
    found = fixture.replayed("tiny", 0.7)
    chart = devices.cdf_chart("L", {"a": found, "b": fixture.replayed("tiny", 1.0)})
    assert [one["name"] for one in chart["series"]] == ["a, read", "a, write", "b"]
    for one in chart["series"]:
        shares = [share for _, share in one["data"]]
        assert shares == sorted(shares)
        assert [share for _, share in one["marks"]] == list(devices.PERCENTILES.values())
    rows = devices.percentile_rows({"a": found})
    assert [row["op"] for row in rows] == ["read", "write"]
    assert rows[0]["p99.9 us"] == found["read"]["latency"]["p99_9_us"]
    for one in chart["series"]:
        assert all(mark in one["data"] for mark in one["marks"])
        assert [point[1] for point in one["data"]] == sorted(point[1] for point in one["data"])
    many = devices.cdf_chart("L", {str(n): found for n in range(9)})
    assert sum(one["shown"] for one in many["series"]) < len(many["series"])


def test_reports_that_lack_fields_leave_out_what_would_show_them():
    assert devices.dies_chart("x", {}) is devices.busy_chart("x", {}) is devices.energy_chart("x", {}) is None
    assert devices.cdf_chart("x", {"x": {}}) is None
    assert devices.percentile_rows({"x": {}}) == []
    assert devices.totals_rows({"x": {}}) == [{"report": "x"}]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [fixture.make(folder), fixture.make(folder, scale=1.4, labels=2)]


def test_answers_are_counted_as_the_runs_judge_them(runs):
    found = answers.lines([source.read(run) for run in runs[:1]])
    status = {line.claim: line.status for line in found}
    assert status == {
        "nds.fig10.sw_speedup": "within", "nds.fig10.hw_speedup": "not", "nds.fig9a.row.sw_GBps": "calibrated",
        "nds.fig9c.submatrix.order": "holds", "zou.assasin.fig7_12.sb": "fails",
    }  # fmt: skip
    assert answers.counts(found) == {
        "answered": 5,
        "within": 2,
        "not": 2,
        "calibrated": 1,
        "input": 0,
        "unjudged": 0,
        "open": 0,
    }
    assert answers.unanswered([source.read(run) for run in runs]) == ["nds.fig9d.write.sw_loss"]
    low, high, at = next(line.strip for line in found if line.status == "not")
    assert 0 < at < low < 50 < high < 100


def test_calibrated_answers_that_do_not_fit_and_those_of_small_sizes_are_told_apart(runs):
    facts = [
        answer | more
        for answer, more in zip(
            runs[0].answers, [{"within": None}, {"calibrated": True}, {}, {"within": None}, {"calibrated": True}],
            strict=True,
        )
    ]  # fmt: skip
    read = source.read(runs[0])
    found = answers.lines([dataclasses.replace(read, facts={**read.facts, "answers": facts})])
    status = {line.claim: line.status for line in found}
    assert status == {
        "nds.fig10.sw_speedup": "unjudged", "nds.fig10.hw_speedup": "misfit", "nds.fig9a.row.sw_GBps": "calibrated",
        "nds.fig9c.submatrix.order": "unjudged", "zou.assasin.fig7_12.sb": "misfit",
    }  # fmt: skip
    assert answers.counts(found) == {
        "answered": 5,
        "within": 0,
        "not": 2,
        "calibrated": 1,
        "input": 0,
        "unjudged": 2,
        "open": 0,
    }


def test_two_runs_are_compared_by_what_they_have_in_common(runs):
    both = lab.compare(*runs)
    assert compare.parameter_rows(both) == [{"name": "scale", "a": 1.0, "b": 1.4, "meaning": "of all numbers, made up"}]
    ratios = dict(compare.answer_bars(both))
    assert ratios["nds.fig10.sw_speedup"] == pytest.approx(1.4)
    assert ratios["nds.fig9c.submatrix.order"] is None
    bars = compare.table_bars(both.rows("speed"))
    assert len(bars) == 40
    assert [ratio for _, ratio in bars] == pytest.approx([1.4] * 40, rel=1e-3)
    assert bars[0][0] == "BFS · row-store baseline · speedup"
    assert "512 · row-store baseline · seconds" in dict(compare.table_bars(both.rows("rows")))
    same = compare.device_rows(both)
    assert {row["report"] for row in same} == set(runs[1].reports)
    assert all(row["ratio"] == 1 for row in same)
    chart = compare.ratio_chart("R", bars)
    assert len(chart["series"][0]["data"]) == 40
    assert compare.ratio_chart("R", [("x", None), ("y", 0.0)]) is None
    many = compare.ratio_chart("R", [(str(n), 1.0 + n) for n in range(200)])
    assert min(many["series"][0]["data"]) > 100


def test_sweeps_give_columns_of_numbers_and_name_their_points():
    rows = [*fixture.sweep_rows(3), {"channels": 4, "t_read_us": None, "GBps": None, "p99_us": 1, "joules": 1.0}]
    sweep = report.SweepData("S", rows, {"GBps": "max", "joules": "min", "gone": "min"}, ["channels", "t_read_us"])
    chart = sweeps.pareto_chart(sweep)
    assert (chart["x"]["label"], chart["y"]["label"]) == ("GBps", "joules")
    assert chart["objectives"] == {"GBps": "max", "joules": "min"}
    assert chart["points"][0] == "channels = 1, t_read_us = 20"
    assert chart["columns"]["GBps"][-1] is None
    assert sweeps.pareto_chart(report.SweepData("S", [{"a": 1, "b": "x"}])) is None
    flat = report.SweepData(
        "S", [{"cost": 1, "x": n, "y": n} for n in range(3)], dict.fromkeys(["cost", "x", "y"], "min")
    )
    assert sweeps.pareto_chart(flat)["x"]["label"] == "x"  # the cost is the same everywhere


class Structure(html.parser.HTMLParser):
    """Elements, ids, and what is in which script."""

    VOID = frozenset(["meta", "link", "br", "wbr", "input", "img", "path", "rect"])

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.scripts, self.handlers = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag, (tag, self.open)

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data


def test_pages_are_well_formed_self_contained_and_the_same_each_time(runs, tmp_path):
    sweep = report.SweepData("S", fixture.sweep_rows(), {"GBps": "max", "p99_us": "min"})
    first = report.write(runs, tmp_path / "a.html", [sweep], (runs[0], runs[1].path)).read_bytes()
    assert first == report.write([run.path for run in runs], tmp_path / "b.html", [sweep], tuple(runs)).read_bytes()
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["a.html", "b.html"]
    found = Structure()
    found.feed(first.decode())
    assert not found.open
    assert len(found.ids) == len(set(found.ids))
    assert len(found.scripts) == 3
    assert found.handlers == []
    shown = first.decode().replace(page._library() or "", "").partition("Licences of the chart")[0]
    assert "http://" not in shown
    assert "https://" not in shown
    for of in ("Figures 9 and 10, scale 1.4", "nds.fig9d.write.sw_loss", "nandarray lab run", "BFS is 20 % slower"):
        assert of in shown


def test_a_hostile_run_stays_text(tmp_path):
    run = fixture.make(tmp_path, hostile=fixture.HOSTILE, labels=1)
    sweep = report.SweepData(
        fixture.HOSTILE, [{fixture.HOSTILE: 1, "b": 2}, {fixture.HOSTILE: fixture.HOSTILE, "b": 1}]
    )
    written = report.write([run], tmp_path / "page.html", [sweep], (run, run)).read_text()
    found = Structure()
    found.feed(written)
    assert len(found.scripts) == 3
    assert found.handlers == []
    assert "<script>window.hacked" not in written
    assert "<img" not in written
    charts = json.loads(found.scripts[1])["charts"]
    assert not report.has_charts() or charts["r0-fig9a"]["title"] == fixture.HOSTILE


def test_what_is_no_run_is_an_error(tmp_path):
    with pytest.raises(errors.NotFoundError, match="no run"):
        report.write([tmp_path / "nothing"], tmp_path / "page.html")
    with pytest.raises(errors.NotFoundError, match="no sweep"):
        report.write([], tmp_path / "page.html", [tmp_path])
    assert not (tmp_path / "page.html").exists()


def test_runs_of_one_title_are_told_apart(tmp_path):
    runs = [fixture.make(tmp_path, title="The same", scale=scale, labels=1) for scale in (1.0, 2.0)]
    written = report.write(runs, tmp_path / "page.html").read_text()
    for run in runs:
        assert f"<h2>The same ({run.id.partition('@')[2][:6]})</h2>" in written
    assert "<h1>The same</h1>" in report.write(runs[:1], tmp_path / "page.html").read_text()


def test_a_page_of_no_runs_is_a_page(tmp_path):
    assert "answer no claims" in report.write([], tmp_path / "page.html").read_text()


def test_without_jinja2_the_extra_is_named(runs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    page._environment.cache_clear()
    with pytest.raises(ImportError, match=r"\.\[lab\]"):
        report.write(runs, tmp_path / "page.html")


# Linear RGB as seen without a kind of cones, for severity 1 (Machado, Oliveira and Fernandes, 2009, table 1).
SIGHT = {
    "usual": np.eye(3),
    "protanope": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranope": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanope": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(colour):
    """Linear RGB of a colour as the web writes it (sRGB, IEC 61966-2-1)."""
    shares = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)


def lab_of(rgb):
    """CIE L*a*b* under D65, in which distances are about what the eye tells apart."""
    xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]] @ np.clip(rgb, 0, 1)
    x, y, z = np.cbrt(xyz / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_keep_apart_whoever_looks(theme):
    colours = PALETTES[theme]
    luminance = {
        name: linear(colours[name]) @ [0.2126, 0.7152, 0.0722] for name in colours if isinstance(colours[name], str)
    }

    def contrast(one, other):
        return (max(one, other) + 0.05) / (min(one, other) + 0.05)

    for colour in colours["series"]:
        assert contrast(linear(colour) @ [0.2126, 0.7152, 0.0722], luminance["page"]) >= 3
    for name in ("text", "muted", "accent", "good", "bad", "note"):
        assert contrast(luminance[name], luminance["page"]) >= 4.5, name
        assert contrast(luminance[name], luminance["panel"]) >= 4.5, name
    for who, cones in SIGHT.items():
        seen = [lab_of(np.array(cones) @ linear(colour)) for colour in colours["series"]]
        for n, m in itertools.combinations(range(len(seen)), 2):
            assert np.linalg.norm(seen[n] - seen[m]) > (25 if m < 4 else 12), (
                who,
                colours["series"][n],
                colours["series"][m],
            )


def test_scripts_and_templates_stay_small():
    here = Path(str(resources.files("nandarray.lab.report")))
    for file in [*here.glob("static/*"), *here.glob("templates/*"), *here.glob("*.py")]:
        assert len(file.read_text().splitlines()) < 500, file


def test_cycles_of_timed_cores_are_a_stack_that_adds_up():
    cores_of = {
        "core": "five-stage",
        "cpi": 2.0,
        "seconds_by_reason": [("issue", 3.0), ("memory", 1.0), ("branch", 0.0)],
    }
    reports = {"a": {"programs": {"timed_cores": cores_of}}, "none": {"programs": {}}, "b": {}}
    rows = cores.cpi_rows(reports)
    assert [(row["reason"], row["cycles an instruction"]) for row in rows] == [("issue", 1.5), ("memory", 0.5)]
    chart = cores.cpi_chart("t", reports)
    assert chart["stack"]
    assert chart["x"]["categories"] == ["a"]
    assert [one["data"] for one in chart["series"]] == [[[0, 1.5]], [[0, 0.5]]]
    assert chart["summary"] == "Stacked bars of cycles an instruction by reason: a 2."
    assert cores.cpi_chart("t", {"b": {}}) is None
    text.script_json(chart)
