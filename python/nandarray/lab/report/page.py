"""The page: sections from runs, sweeps and a comparison; one HTML file from templates, style, scripts and charts.

Templates escape every text. The page's content security policy allows the two scripts that stand in it, by their
hashes, and nothing else: no request, no other script, whatever texts the runs bring.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from typing import TYPE_CHECKING, Any

from nandarray.lab import Comparison
from nandarray.lab.report import answers, compare, cores, devices
from nandarray.lab.report.figures import chart_of
from nandarray.lab.report.source import Source
from nandarray.lab.report.sweeps import SweepData, pareto_chart
from nandarray.lab.report.text import as_text, columns_of, csv_url, script_json, show, slug
from nandarray.optional import needs
from nandarray.present.palette import PALETTES
from nandarray.units import format_number as number
from nandarray.units import is_number

if TYPE_CHECKING:
    import jinja2

__all__ = ["NO_CHARTS", "has_charts", "render"]

#: Printed, and on the page, where the library is missing.
NO_CHARTS = (
    "This report has tables and no charts: the chart library is not installed. "
    "Wheels include it; in a clone of the repository, `make charts` builds it."
)

_ROWS_SHOWN = 300  # a table of more is cut on the page; its CSV is whole
_HERE = "nandarray.lab.report"
_SCRIPTS = ("charts.js", "page.js")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A table as the page shows it."""

    id: str
    columns: Sequence[str]
    rows: Sequence[Row]
    csv: str = ""
    sortable: bool = False

    @property
    def shown(self) -> Sequence[Row]:
        """The rows on the page."""
        return self.rows[:_ROWS_SHOWN]

    @property
    def narrow(self) -> bool:
        """Whether it is long and of few columns: then paper has room for several of these beside each other."""
        return len(self.columns) <= 5 and len(self.shown) > 20

    def numeric(self, column: str) -> bool:
        """Whether a column is of numbers, and so is aligned to the right."""
        values = [row.get(column) for row in self.rows if row.get(column) is not None]
        return bool(values) and all(map(is_number, values))


@dataclass(frozen=True)
class Plot:
    """A chart with what stands around it."""

    id: str
    chart: Mapping[str, Any]
    caption: str = ""
    table: Table | None = None
    paper: Sequence[Row] = ()

    @property
    def height(self) -> int:
        """Height of the chart, in CSS pixels."""
        categories = len(self.chart.get("y", {}).get("categories", ()))
        by_kind = {"bars": 22 * categories + 70, "heatmap": 22 * categories + 130, "timeline": 20 * categories + 110}
        if self.chart.get("flip"):
            return 18 * categories + 110
        return max(160, min(900, by_kind.get(self.chart["kind"], 380)))


@dataclass
class Page:
    """Contents of the templates; charts, by the ids of their elements, go into the page as data."""

    runs: Sequence[Source]
    charts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    tables: set[str] = field(default_factory=set)

    @cached_property
    def names(self) -> list[str]:
        """Name of each run: its title, and a part of its hash where another one has the same."""
        titles = [source.title for source in self.runs]
        return [
            title if titles.count(title) == 1 else f"{title} ({source.key.rpartition('@')[2][:6]})"
            for title, source in zip(titles, self.runs, strict=True)
        ]

    def table(self, name: str, rows: Sequence[Row], *, sortable: bool = False) -> Table:
        """Make a table with a link to its CSV, under a name that no other table of the page has."""
        while name in self.tables:
            name += "-more"
        self.tables.add(name)
        return Table(name, columns_of(rows), rows, csv_url(rows), sortable)

    def plot(
        self, name: str, chart: Mapping[str, Any] | None, rows: Sequence[Row] = (), paper: Sequence[Row] = (), **of: Any
    ) -> Plot | None:
        """Make a plot with its data; None where there is no chart."""
        if chart is None:
            return None
        while name in self.charts:
            name += "-more"
        chart = {"paper": [], "hidden": 0, **chart}
        self.charts[name] = chart
        return Plot(name, chart, table=self.table(name, rows) if rows else None, paper=paper, **of)

    def run(self, n: int) -> dict[str, Any]:
        """Give what the section of a run shows."""
        source = self.runs[n]
        facts = source.facts
        plots = []
        for figure in facts.get("figures", ()):
            rows = source.tables.get(figure["table"], ())
            chart = chart_of(figure, rows)
            made = self.plot(f"r{n}-{slug(figure['id'])}", chart, rows, figure.get("points") or (),
                             caption=figure.get("caption") or "")  # fmt: skip
            plots.append(made)
        drawn = {figure["table"] for figure in facts.get("figures", ())}
        rest = [(name, rows) for name, rows in source.tables.items() if name not in drawn]
        meanings = facts.get("meanings", {})
        return {
            "id": f"r{n}",
            "name": self.names[n],
            "source": source,
            "plots": plots,
            "tables": [(name, self.table(f"r{n}-{slug(name)}", rows)) for name, rows in rest],
            "parameters": [
                {"parameter": name, "value": value, "meaning": meanings.get(name, "")}
                for name, value in facts.get("parameters", {}).items()
            ],
            "devices": self.devices(n, source) if source.reports else None,
        }

    def devices(self, n: int, source: Source) -> dict[str, Any]:
        """Give what the modelled devices of a run show."""
        percentiles = devices.percentile_rows(source.reports)
        cdf = devices.cdf_chart(f"Latency, {source.title}", source.reports)
        stack = cores.cpi_chart(f"Cycles an instruction by reason, {source.title}", source.reports)
        return {
            "totals": self.table(f"r{n}-totals", devices.totals_rows(source.reports), sortable=True),
            "percentiles": self.table(f"r{n}-percentiles", percentiles, sortable=True) if percentiles else None,
            "cdf": self.plot(f"r{n}-cdf", cdf),
            "cpi": self.plot(f"r{n}-cpi", stack, cores.cpi_rows(source.reports)),
            "each": [self.device(f"r{n}-{slug(label)}", label, of) for label, of in source.reports.items()],
        }

    def device(self, name: str, label: str, report: Row) -> dict[str, Any]:
        """Give what one report shows."""
        dies, busy = devices.dies_chart(label, report), devices.busy_chart(label, report)
        busy_rows = []
        if busy:
            bars = zip(busy["y"]["categories"], busy["series"][0]["data"], strict=True)
            busy_rows = [{"part": part, "busy": share} for part, share in bars]
        energy = devices.energy_chart(label, report)
        plots = [
            self.plot(f"{name}-dies", dies, devices.dies_rows(report)),
            self.plot(f"{name}-busy", busy, busy_rows),
            self.plot(f"{name}-energy", energy, devices.energy_rows(report) if energy else ()),
        ]
        return {
            "id": name,
            "label": label,
            "device": report.get("device"),
            "plots": [plot for plot in plots if plot],
            "notes": report.get("notes") or (),
            "promises": report.get("promises") or (),
        }

    def comparison(self, both: Comparison) -> dict[str, Any]:
        """Give what the section of two runs shows."""
        of_devices = compare.device_rows(both)
        parts = [
            ("Answers", both.answers, compare.answer_bars(both)),
            ("Devices", of_devices, compare.device_bars(of_devices)),
        ]
        for name in both.tables:
            rows = both.rows(name)
            parts.append((f"Table {name}", rows, compare.table_bars(rows)))
        shown = []
        for name, rows, bars in parts:
            chart = compare.ratio_chart(f"{name}: second run / first run", bars)
            if rows:
                plot = self.plot(f"cmp-chart-{slug(name)}", chart)
                shown.append((name, self.table(f"cmp-{slug(name)}", rows), plot))
        return {"a": both.a, "b": both.b, "parameters": compare.parameter_rows(both), "parts": shown}

    def sweep(self, n: int, sweep: SweepData) -> dict[str, Any]:
        """Give what the section of a sweep shows."""
        return {
            "id": f"s{n}",
            "sweep": sweep,
            "plot": self.plot(f"s{n}-pareto", pareto_chart(sweep)),
            "table": self.table(f"s{n}-points", sweep.rows, sortable=True),
            "failures": self.table(f"s{n}-failures", sweep.failures) if sweep.failures else None,
        }


def render(
    runs: Sequence[Source],
    sweeps: Sequence[SweepData] = (),
    both: Comparison | None = None,
    version: str = "",
) -> str:
    """Make the page, HTML: runs, sweeps below them, two runs compared; ``version`` is the package's."""
    page = Page(runs)
    found = answers.lines(runs)
    library = _library()
    context: dict[str, Any] = {
        "version": version,
        "drawn": library is not None,
        "no_charts": NO_CHARTS,
        "newest": max((_date(run) for run in runs), default=""),
        "date": _date,
        "answers": found,
        "counts": answers.counts(found),
        "unanswered": answers.unanswered(runs),
        "status": answers.STATUS,
        "runs": [page.run(n) for n in range(len(runs))],
        "comparison": page.comparison(both) if both else None,
        "sweeps": [page.sweep(n, sweep) for n, sweep in enumerate(sweeps)],
        "palettes": PALETTES,
        "style": _text("static", "page.css"),
        "early": _text("static", "early.js"),
        "script": (library or "") + "\n".join(_text("static", name) for name in _SCRIPTS),
        "licences": "" if library is None else _text("charts", "LICENSES.txt"),
    }
    context["policy"] = _policy(context["early"], context["script"])
    context["data"] = script_json({"palettes": PALETTES, "charts": {} if library is None else page.charts})
    return as_text(_environment().get_template("page.html.j2").render(context))


def _date(run: Source) -> str:
    """Time of the run, to the minute."""
    return str(run.environment.get("date", ""))[:16].replace("T", " ")


def _policy(*scripts: str) -> str:
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


@cache
def _text(*path: str) -> str:
    return resources.files(_HERE).joinpath(*path).read_text(encoding="utf-8")


def has_charts() -> bool:
    """Return whether the chart library is installed, so that a page has charts."""
    return _library() is not None


def _library() -> str | None:
    """Return the chart library, or None; its text contains no end of a script element, which a test holds."""
    try:
        return _text("charts", "echarts.min.js")
    except FileNotFoundError:
        return None


@cache
def _environment() -> jinja2.Environment:
    with needs("jinja2", "lab"):
        import jinja2
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"show": show, "number": number}
    return environment
