"""Parts of the lab against second versions of themselves: fronts, charts, comparisons, parameters, costs, pages."""

from __future__ import annotations

import csv
import io
import json
import math
import random
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nandarray import device, lab
from nandarray.errors import InvalidError, NandarrayError
from nandarray.lab import Experiment, Figure, PaperPoint, Parameter, Result, _files, parameters, report, sweep_spec
from nandarray.lab._compare import Comparison, keys_of
from nandarray.lab.cost import WEIGHTS, cost
from nandarray.lab.pareto import front
from nandarray.lab.report.figures import chart_of
from nandarray.lab.report.text import as_text, csv_url, script_json, show, slug
from nandarray.lab.sweep_spec import read_spec

Rows = list[dict[str, Any]]
SEEDS = range(6)
HOSTILE = [
    "</script><script>alert(1)</script>", "<!--", "]]>", "{{ 7*7 }}", "{% raw %}", "\u202eright to left", "a\x00b",
    "=cmd()",
    '" onmouseover="x', "\u2028\u2029", "\U0001f600", "\r\n", "a" * 3000, "", " ", "é̂̂̂",
    "javascript:alert(1)", "&lt;b&gt;",
]  # fmt: skip


# --- fronts -----------------------------------------------------------------------------------------------------------

NUMBERS = st.none() | st.sampled_from([0, 1, 2, 3, -1.5, 1e300, math.inf, math.nan])


@given(
    rows=st.lists(st.tuples(*(NUMBERS,) * 3), max_size=12),
    ways=st.lists(st.sampled_from(["max", "min"]), min_size=3, max_size=3),
)  # fmt: skip
def test_a_front_with_infinities_is_that_of_every_pair(rows: list[tuple[Any, ...]], ways: list[str]) -> None:
    def known(row: tuple[Any, ...]) -> bool:
        return all(value is not None and value == value for value in row)

    def beats(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
        losses = [(a, b) if way == "min" else (b, a) for a, b, way in zip(one, other, ways, strict=True)]
        return all(a <= b for a, b in losses) and any(a < b for a, b in losses)

    columns = {f"c{n}": [row[n] for row in rows] for n in range(3)}
    wanted = [known(row) and not any(known(other) and beats(other, row) for other in rows) for row in rows]
    assert front(columns, {f"c{n}": way for n, way in enumerate(ways)}) == wanted


# --- charts -----------------------------------------------------------------------------------------------------------

VALUES: list[Any] = [None, 0, 1, 2.5, -3, 1e-9, 1e12, math.nan, math.inf, True, "a", "b", "1", "", [1, 2], {"k": 1}]


def drawn_rows(rng: random.Random) -> Rows:
    kinds = {name: rng.choice([VALUES, [1, 2, 4, 8.5], ["x", "y", "<z>"], [None], [0, -1, 3]]) for name in "xysv"}
    return [{name: rng.choice(kind) for name, kind in kinds.items()} for _ in range(rng.randint(0, 12))]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("kind", ["line", "bar", "scatter", "heatmap", "timeline"])
def test_a_chart_of_any_rows_shows_or_counts_each_once(kind: Any, seed: int) -> None:
    rng = random.Random(f"{kind}{seed}")
    rows = drawn_rows(rng)
    points = [
        PaperPoint(rng.choice(["x", "other", ""]), rng.choice([1, "x", 3.5]), rng.choice([0.0, 2.0]), "7")
        for _ in range(rng.randint(0, 3))
    ]
    split = rng.choice(["", "s"])
    figure = Figure("f", "A <b>", kind, "t", "x", "y", split, "v", x_log=rng.random() < 0.5, y_log=rng.random() < 0.5,
                    points=points)  # fmt: skip
    chart = chart_of({**vars(figure), "points": [vars(point) for point in points]}, rows)
    text = script_json(chart)
    json.loads(text, parse_constant=pytest.fail)
    assert chart["summary"]
    assert 0 <= chart["hidden"] <= len(rows) + len(points)
    if kind == "heatmap":
        assert len(chart["cells"]) + chart["hidden"] == len(rows)
        for x, y, _ in chart["cells"]:
            assert 0 <= x < len(chart["x"]["categories"])
            assert 0 <= y < len(chart["y"]["categories"])
        return
    shown = [point for series in chart["series"] for point in series["data"]]
    if kind == "timeline":
        assert len(shown) + chart["hidden"] == len(rows)
        assert all(end >= begin for begin, _, end in shown)
        return
    stated = [point for series in chart["paper"] for point in series["data"]]
    assert len(stated) == len(points)
    for x, y in shown:
        assert x is not None
        assert math.isfinite(x)
        assert y is None or math.isfinite(y)
        assert chart["x"]["type"] != "log" or x > 0
        assert y is None or chart["y"]["type"] != "log" or y > 0
    slots = [series["slot"] for series in chart["series"]]
    assert slots == list(range(len(slots)))
    assert {series["slot"] for series in chart["paper"]} <= set(slots)


def test_lists_are_categories_by_what_they_look_like() -> None:
    rows: Rows = [{"x": [1, 2], "y": 1.0}, {"x": [1, 2], "y": 2.0}, {"x": {"a": [3]}, "y": 3.0}]
    chart = chart_of(vars(Figure("f", "F", "bar", "t", "x", "y")), rows)
    assert chart["x"]["categories"] == ["1, 2", "a: 3"]


# --- texts ------------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | st.text(max_size=5)
    | st.sampled_from(HOSTILE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(value=JSON)
def test_any_value_is_a_text_and_a_script_that_is_the_same(value: Any) -> None:
    assert isinstance(show(value), str)
    text = script_json(value)
    assert not set("<>&\u2028\u2029") & set(text)
    text.encode()
    found = json.loads(text)
    assert show(found) == show(json.loads(json.dumps(_files.plain(value)))) or isinstance(value, float | list | dict)


@given(rows=st.lists(st.fixed_dictionaries({"a": JSON, "b,\n": JSON}), min_size=1, max_size=4))
def test_a_link_holds_the_table(rows: Rows) -> None:
    head, _, body = csv_url(rows).partition(",")
    assert head == "data:text/csv;charset=utf-8"
    assert not set('<>"\n\r&') & set(body)
    text = as_text("".join(unquote(body)))
    found = list(csv.reader(io.StringIO(text, newline="")))
    assert sorted(found[0]) == ["a", "b,\n"]
    assert len(found) == len(rows) + 1


@given(parts=st.lists(st.text(max_size=6) | st.sampled_from(HOSTILE), max_size=3))
def test_a_slug_is_an_id(parts: list[str]) -> None:
    assert set(slug(*parts)) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert slug(*parts)


class Ids(HTMLParser):
    """The ids of a page's elements, what links lead to, and the names of its elements."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: set[str] = set()
        self.handlers: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.scripts += tag == "script"
        self.handlers += [name for name in named if name.startswith("on")]
        if named.get("id"):
            self.ids.append(str(named["id"]))
        if str(named.get("href", "")).startswith("#"):
            self.links.add(str(named["href"])[1:])


def named_run(runs: Path, seed: int) -> Any:
    """A run whose texts are hostile, and whose tables have names that look alike."""
    rng = random.Random(seed)
    words = [*HOSTILE, *("plain",) * 3]
    pick = lambda: rng.choice(words).replace("\x00", "")  # noqa: E731
    names = ["A", "a", "a.b", "a b", "a-b", "_"]
    tables = {name: [{"x": n, "y": n * 2.0, "s": pick()} for n in range(rng.randint(1, 4))] for name in names}
    kinds: list[Any] = ["line", "bar", "scatter", "heatmap", "timeline"]
    figures = [
        Figure(rng.choice(["f", "F", "f 1"]), pick(), kind, name, "x", "y", "s", "y", x_label=pick(), caption=pick())
        for name, kind in zip(names[:5], kinds, strict=True)
    ][:: rng.choice([1, 2])]
    made = Experiment(
        "hostile.run", pick(), pick(), lambda _context: Result(tables, (), figures, {}, [pick()], [pick()]),
        parameters={"p": Parameter(pick(), pick())},
    )  # fmt: skip
    return lab.run(made, profile="small", runs=runs, seed=seed)


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_a_page_of_hostile_names_has_its_own_elements_alone(seed: int, tmp_path: Path) -> None:
    runs = [named_run(tmp_path, seed), named_run(tmp_path, seed + 100)]
    page = report.write(runs, tmp_path / "page.html", compare=(runs[0], runs[1])).read_text(encoding="utf-8")
    found = Ids()
    found.feed(page)
    plain_page = Ids()
    plain_page.feed(report.write([], tmp_path / "none.html").read_text(encoding="utf-8"))
    assert found.scripts == plain_page.scripts
    assert not found.handlers
    assert found.links <= set(found.ids)
    assert len(found.ids) == len(set(found.ids)), sorted(one for one in found.ids if found.ids.count(one) > 1)
    for run in runs:
        fragment = Ids()
        fragment.feed(run._repr_html_())
        assert (fragment.scripts, fragment.handlers) == (0, [])


# --- comparisons ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_matched_by_what_tells_them_apart(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    names = rng.sample(["a", "b", "c", "d"], rng.randint(1, 4))
    sizes = sorted(rng.sample(range(9), rng.randint(1, 4)))

    def made(scale: float) -> tuple[Any, dict[tuple[str, int], float]]:
        kept = [(name, size) for name in names for size in sizes if rng.random() < 0.8]
        values = {place: rng.choice([0.0, scale, 3 * scale, -scale]) for place in kept}
        rows = [{"name": name, "size": size, "speed": values[name, size]} for name, size in rng.sample(kept, len(kept))]
        experiment = Experiment(
            "t.cmp", "T", "?", lambda _context: Result({"t": rows}), parameters={"s": Parameter(1.0, "s")}
        )
        return lab.run(experiment, parameters={"s": scale}, runs=tmp_path), values

    (one, first), (other, second) = made(2.0), made(5.0)
    both = Comparison(one, other)
    assert [row["name"] for row in both.parameters] == ["s"]
    if not first or not second:
        return
    found = both.rows("t", ["name", "size"])
    assert sorted((row["name"], row["size"]) for row in found) == sorted({*first, *second})
    for row in found:
        a, b = (values.get((row["name"], row["size"])) for values in (first, second))
        assert (row["speed a"], row["speed b"]) == (a, b)
        assert row["speed ratio"] == (b / a if a and b is not None else None)
    keys = keys_of(one.rows("t"), other.rows("t"))
    for rows in (one.rows("t"), other.rows("t")):
        assert len({tuple(row[key] for key in keys) for row in rows}) == len(rows)


# --- parameters and costs ---------------------------------------------------------------------------------------------

GIVEN: list[Any] = [
    None,
    True,
    0,
    1,
    -1,
    2.5,
    2.0,
    "x",
    "",
    [],
    [1],
    [1.5],
    ["a"],
    [True],
    {},
    {"a": 1},
    math.nan,
    math.inf,
    2**63,
    1e300,
]


@pytest.mark.parametrize(
    "default", [1, 0, -1, 1.5, "text", True, [1, 2], [1.5], ["a", "b"], {"a": 1}, None, []], ids=repr
)
def test_a_parameter_takes_its_own_kind(default: Any) -> None:
    experiment = Experiment("t", "T", "?", lambda _context: Result({}), parameters={"p": Parameter(default, "p")})
    for given_ in GIVEN:
        try:
            value = parameters.resolve(experiment, "full", {"p": given_})["p"]
        except InvalidError:
            continue
        _files.plain(value)
        if isinstance(default, bool):
            assert isinstance(value, bool)
        elif isinstance(default, int):
            assert type(value) is int
            assert 0 <= value < 2**63 or default < 0
        elif isinstance(default, float):
            assert isinstance(value, int | float)
            assert math.isfinite(value)
        elif isinstance(default, str | dict):
            assert isinstance(value, type(default))
        elif isinstance(default, list) and default:
            assert isinstance(value, list)
            assert value
            assert all(isinstance(one, str) == isinstance(default[0], str) for one in value)
    assert parameters.resolve(experiment, "full", {})["p"] == default


@pytest.mark.parametrize("name", ["tiny", "samsung-970-pro", "nds-prototype", "mqsim-ideal"])
@pytest.mark.parametrize("seed", SEEDS[:3])
def test_a_cost_is_linear_in_its_weights(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    described = device.load(name)
    parts = {part: cost(described, {one: float(one == part) for one in WEIGHTS}) for part in WEIGHTS}
    weights = {part: float(rng.integers(0, 9)) for part in WEIGHTS}
    assert cost(described, weights) == pytest.approx(sum(weights[part] * parts[part] for part in WEIGHTS))
    assert all(part >= 0 for part in parts.values())
    doubled = described.with_({"geometry.channels": 2 * described.resolved["geometry"]["channels"]})
    for part in ("flash", "die", "channel"):
        assert cost(doubled, {one: float(one == part) for one in WEIGHTS}) == pytest.approx(2 * parts[part])


@pytest.mark.parametrize("seed", range(30))
def test_any_sweep_is_read_or_refused_by_name(seed: int) -> None:
    rng = random.Random(seed)
    good: dict[str, Any] = {
        "name": "s", "device": "tiny", "axes": {"workload.depth": [1, 2]}, "workload": {"requests": 10},
    }  # fmt: skip
    wrong = [
        *GIVEN, [[]], [["workload.depth"]], {"from": 1, "to": 2, "steps": 2}, {"workload": {"depth": [1]}},
        ["E5", "e5"], ["1e400 B", "2 B"], ["20 µs", "30 µs"], {"seed": [1]}, {"device": ["tiny"]}, "\ud800", {"": [1]},
    ]  # fmt: skip
    for _ in range(15):
        said = good | {key: rng.choice(wrong) for key in rng.sample(sweep_spec._TOP, rng.randint(1, 2))}
        if rng.random() < 0.4:
            said["axes"] = {
                rng.choice(["nand.t_read", "geometry.channels", "x", "workload.size", "seed"]): rng.choice(wrong)
            }
        try:
            spec = read_spec(said)
        except (NandarrayError, FileNotFoundError):
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {said}") from error
        assert spec.count == len(spec.points())
        assert len({json.dumps(spec.cells(point), default=str) for point in spec.points()}) <= spec.count
