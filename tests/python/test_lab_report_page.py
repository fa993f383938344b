"""The report's page in a browser: charts, tooltips, keyboard, dark mode, print, and that it loads nothing.

Debian's ``chromium`` is driven by Playwright's package. Without either, these tests are skipped and say so
(``tools/system-packages.sh chromium``).
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
import report_fixture as fixture

from nandarray.lab import report
from nandarray.present.palette import PALETTES

if not report.has_charts():
    pytest.skip("the chart library is not built: make charts", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
DRAW_ALL = """() => {
  document.querySelectorAll("details:not(.keep)").forEach((one) => { one.open = true; });
  document.querySelectorAll(".chart").forEach((one) => Report.draw(one));
}"""
ORANGE, PINK = PALETTES["light"]["series"][1], PALETTES["light"]["series"][3]
FOCUSABLE = "a[href], button, input, select, summary, [tabindex='0']"

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed: tools/system-packages.sh chromium (Debian, as root)"
)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        # A launch without a profile of its own gets a fresh one, which goes with it.
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same runs on a page with everything, on a small one, and with hostile names."""
    folder = tmp_path_factory.mktemp("report")
    a, b = fixture.make(folder), fixture.make(folder, scale=1.4, labels=2)
    sweep = report.SweepData("A sweep", fixture.sweep_rows(), {"GBps": "max", "p99_us": "min", "joules": "min"})
    hostile = fixture.make(folder, name="hostile", hostile=fixture.HOSTILE, labels=1)
    bad = report.SweepData(fixture.HOSTILE, [{"a": n, "b": -n, "c": fixture.HOSTILE} for n in range(3)])
    return {
        "all": report.write([a, b], folder / "all.html", [sweep], (a, b)),
        "one": report.write([b], folder / "one.html", [sweep]),
        "hostile": report.write([hostile], folder / "hostile.html", [bad], (hostile, hostile)),
    }


@pytest.fixture
def visit(browser):
    """Open pages; at the end, none may have asked for anything or complained."""
    complaints, contexts = [], []

    def route(found):
        if not found.request.url.startswith("file:"):
            complaints.append(f"asked for {found.request.url}")
            return found.abort()
        return found.continue_()

    def go(file: Path, at: str = "", **options):
        context = browser.new_context(
            **{"viewport": {"width": 1300, "height": 900}, "accept_downloads": True} | options
        )
        contexts.append(context)
        context.route("**/*", route)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{file.as_uri()}{at}")
        return page

    yield go
    for context in contexts:
        context.close()
    assert complaints == []


def test_a_phone_scrolls_tables_and_not_the_page(visit, files):
    page = visit(files["all"], viewport={"width": 390, "height": 844})
    page.evaluate(DRAW_ALL)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    claims = page.locator("#answers")
    assert claims.evaluate("(it) => it.scrollWidth > it.parentElement.clientWidth")
    assert page.locator("header.bar").evaluate("(it) => it.getBoundingClientRect().height") <= 60


@pytest.mark.parametrize("width", [390, 1300])
def test_labels_of_energy_lie_beside_each_other(visit, files, width):
    page = visit(files["one"], viewport={"width": width, "height": 844})
    page.evaluate(DRAW_ALL)
    boxes = page.evaluate(
        """() => {
          const of = [...document.querySelectorAll(".chart")]
            .map((one) => echarts.getInstanceByDom(one)).find((one) => one?.getOption().series[0]?.type === "sankey");
          return of.getZr().storage.getDisplayList().filter((one) => one.type === "tspan" && one.style.text)
            .map((one) => {
              const box = one.getBoundingRect().clone();
              box.applyTransform(one.transform ?? [1, 0, 0, 1, 0, 0]);
              return [one.style.text, box.x, box.y, box.x + box.width, box.y + box.height, of.getWidth()]; });
        }"""
    )
    assert len(boxes) >= 3
    for n, (text, left, top, right, bottom, wide) in enumerate(boxes):
        assert left >= 0, text
        assert right <= wide + 1, text
        for other, left2, top2, right2, bottom2, _ in boxes[n + 1 :]:
            apart = right <= left2 or right2 <= left or bottom <= top2 + 2 or bottom2 <= top + 2
            assert apart, f"{text!r} lies on {other!r}"


def test_heads_of_a_sweeps_points_can_be_read(visit, tmp_path):
    rows = [
        {"geometry.channels": n, "nand.t_read_us": 20.5 + n, "workload.depth": 1 << n, "latency_mean_us": 90.25 * n}
        for n in range(1, 6)
    ]
    sweep = report.SweepData("Points", rows, {"latency_mean_us": "min"})
    page = visit(report.write([fixture.make(tmp_path)], tmp_path / "points.html", [sweep]))
    page.evaluate(DRAW_ALL)
    heads = page.evaluate(
        """() => [...document.querySelectorAll("table.sortable:not(#answers) th")]
          .filter((one) => one.textContent.includes("geometry.channels") || one.textContent.includes("t_read"))
          .map((one) => [one.scrollWidth, one.clientWidth])"""
    )
    assert heads
    assert all(needs <= has for needs, has in heads), heads


def test_bars_of_logarithmic_axes_stand_on_the_axis_and_ratios_on_one(visit, files):
    page = visit(files["one"])
    grounds = page.evaluate(
        """() => [false, true].map((ratio) => {
          const x = { label: "x", type: "category", categories: ["a", "b"] };
          const y = { label: "seconds", type: "log", ...(ratio ? { ratio } : {}) };
          const series = [{ name: "s", slot: 8, data: [[0, 0.03], [1, 4]] }];
          const spec = { kind: "bar", title: "t", summary: "", x, y, series, paper: [] };
          const ink = Object.fromEntries(["text", "muted", "line", "page", "panel"].map((name) => [name, "#000000"]));
          const theme = { ...ink, series: Array(8).fill("#123456"), scale: [] };
          const made = Charts.option(spec, { off: new Set(), paper: true }, theme, false, 800);
          return [made.yAxis.startValue, made.yAxis.min, made.series[0].itemStyle.borderWidth];
        })"""
    )
    assert grounds[0] == [0.02, 0.02, 1.5]
    assert grounds[1][0] == 1
    assert grounds[1][1] < 0.03


def until(holds, seconds: float = 60) -> None:
    """Wait for something; the page's policy forbids the waiting that Playwright would do in it."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def hover(page, chart: str, series: int, point: int) -> str:
    """Point at a datum with the mouse; the tooltip's text."""
    page.locator(f".chart[data-chart='{chart}']").evaluate(
        "(it) => it.scrollIntoView({ block: 'center', behavior: 'instant' })"
    )
    page.wait_for_selector(f".chart[data-chart='{chart}'][data-drawn]")
    at = page.evaluate(
        """([id, series, point]) => {
          const element = document.querySelector(`.chart[data-chart="${id}"]`);
          const chart = echarts.getInstanceByDom(element), box = element.getBoundingClientRect();
          const one = chart.getOption().series[series].data[point];
          const [x, y] = chart.convertToPixel({ seriesIndex: series }, one.value ?? one);
          return [box.x + x, box.y + y + 2];
        }""",
        [chart, series, point],
    )
    page.mouse.move(at[0] - 3, at[1])
    page.mouse.move(*at)
    tip = page.locator(f".chart[data-chart='{chart}'] .tip")
    tip.wait_for()
    return tip.inner_text()


def test_every_chart_renders(visit, files):
    page = visit(files["all"])
    page.evaluate(DRAW_ALL)
    found = page.evaluate(
        """() => [...document.querySelectorAll(".chart")].map((element) => {
          const option = echarts.getInstanceByDom(element).getOption(), svg = element.querySelector("svg");
          return {
            id: element.dataset.chart, kind: Report.charts[element.dataset.chart].kind, label: element.ariaLabel,
            role: element.getAttribute("role"), data: option.series.map((one) => one.data.length),
            marks: svg.querySelectorAll("path").length, bad: /NaN|undefined/.test(svg.outerHTML),
            animation: option.animation, wide: svg.getBoundingClientRect().width,
          };
        })"""
    )
    kinds = {chart["kind"] for chart in found}
    assert kinds == {"line", "bar", "scatter", "heatmap", "timeline", "bars", "sankey", "cdf", "pareto"}
    assert len(found) == page.evaluate("Object.keys(Report.charts).length")
    for chart in found:
        assert chart["role"] == "img", chart
        assert len(chart["label"]) > 30, chart
        assert all(chart["data"]), chart
        assert chart["marks"] >= sum(chart["data"]) / 2 if chart["kind"] == "bar" else chart["marks"] > 2, chart
        assert not chart["bad"], chart
        assert chart["animation"] is False
        assert chart["wide"] > 500


def test_charts_wait_until_they_are_seen(visit, files):
    page = visit(files["all"])
    assert page.locator(".chart[data-drawn]").count() < page.locator(".chart").count() / 2
    page.evaluate("document.getElementById('r1-fig10').scrollIntoView()")
    page.wait_for_selector(".chart[data-chart='r1-fig10'][data-drawn]")


def test_hovering_tells_values_and_what_the_paper_states(visit, files):
    page = visit(files["all"])
    assert "row-store baseline" in hover(page, "r0-fig9a", 0, 1)
    assert "at most 0.6, 7.1, Fig 9(b)" in hover(page, "r0-fig9a", 5, 0)
    bars = hover(page, "r0-fig10", 3, 9)
    assert "TC" in bars
    assert "5.73, 7.2, Fig 10(a)" in bars
    assert "energy" not in hover(page, "r0-scatter", 1, 3)
    assert "tile width 64, tile height 256" in hover(page, "r0-heat", 0, 6)
    assert "%" in hover(page, "r0-nds-prototype-0-dies", 0, 40)
    assert "percentile" in hover(page, "r0-cdf", 1, 2)
    assert "channels = " in hover(page, "s0-pareto", 1, 0)


def selected(page, chart):
    element = page.locator(f".chart[data-chart='{chart}']")
    return element.evaluate("(it) => echarts.getInstanceByDom(it).getOption().legend[0].selected")


def strokes(page, chart, colour):
    return page.locator(f".chart[data-chart='{chart}'] path[stroke='{colour}']").count()


def test_series_are_toggled_by_mouse_and_by_keyboard(visit, files):
    page = visit(files["one"], "#r0-fig9a", color_scheme="light")
    page.wait_for_selector(".chart[data-chart='r0-fig9a'][data-drawn]")
    button = page.locator("#r0-fig9a button.series", has_text="column-store")
    before = strokes(page, "r0-fig9a", ORANGE)
    assert before >= 1
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert selected(page, "r0-fig9a")["column-store"] is False
    assert selected(page, "r0-fig9a")["column-store (paper)"] is False
    assert strokes(page, "r0-fig9a", ORANGE) == 0
    button.focus()
    page.keyboard.press("Space")
    assert strokes(page, "r0-fig9a", ORANGE) == before
    page.locator("#r0-fig9a button.paper").click()
    assert {name: on for name, on in selected(page, "r0-fig9a").items() if not on} == {
        "software NDS (paper)": False, "column-store (paper)": False, "hardware NDS (paper)": False,
    }  # fmt: skip


def test_marks_of_the_paper_stay_over_their_bars_when_others_are_hidden(visit, files):
    page = visit(files["one"], "#r0-fig10", color_scheme="light")
    page.wait_for_selector(".chart[data-chart='r0-fig10'][data-drawn]")
    apart = """() => {
      const svg = document.querySelector(".chart[data-chart='r0-fig10'] svg"), box = (e) => e.getBoundingClientRect();
      const middle = (e) => box(e).x + box(e).width / 2;
      const bars = [...svg.querySelectorAll("path[fill='PINK']")].filter((e) => box(e).height > 20);
      const marks = [...svg.querySelectorAll("path[stroke-width='1.8']")].map(middle);
      return Math.abs(Math.max(...bars.map(middle)) - Math.max(...marks));
    }"""
    apart = apart.replace("PINK", PINK)
    assert page.evaluate(apart) < 2
    for name in ("row-store baseline", "column-store"):
        page.locator("#r0-fig10 button.series", has_text=name).click()
    assert page.evaluate(apart) < 2


def test_the_keyboard_reaches_every_control_and_shows_where_it_is(visit, files):
    page = visit(files["one"])
    wanted = page.evaluate(
        f"""() => [...document.querySelectorAll("{FOCUSABLE}")].filter((e) => e.checkVisibility())
          .map((e, n) => (e.dataset.n = n))"""
    )
    reached, bare = set(), []
    for _ in range(len(wanted) + 5):
        page.keyboard.press("Tab")
        n, ring = page.evaluate(
            "[document.activeElement.dataset.n, getComputedStyle(document.activeElement).outlineStyle]"
        )
        if n is not None:
            reached.add(int(n))
            if ring == "none":
                bare.append(n)
    assert reached == set(wanted)
    assert bare == []
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select")]
          .filter((e) => !(e.textContent.trim() || e.labels?.length)).length"""
    )
    assert nameless == 0


def test_the_first_tab_skips_to_the_content(visit, files):
    page = visit(files["one"])
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_arrow_keys_go_from_point_to_point(visit, files):
    page = visit(files["one"], "#r0-fig10")
    page.wait_for_selector(".chart[data-chart='r0-fig10'][data-drawn]")
    page.focus(".chart[data-chart='r0-fig10']")
    heard = []
    for _ in range(2):
        page.keyboard.press("ArrowRight")
        heard.append(page.text_content("#said"))
    assert "BFS" in heard[0]
    assert "SSSP" in heard[1]
    page.keyboard.press("ArrowLeft")
    assert "BFS" in page.text_content("#said")


def ink(page, chart="r0-fig9a"):
    """The page's colour, and the colour of a chart's text."""
    text = f".chart[data-chart='{chart}'] text"
    return page.evaluate("getComputedStyle(document.body).backgroundColor"), page.get_attribute(text, "fill")


def test_light_and_dark_follow_the_system_and_the_button_which_is_remembered(visit, files):
    page = visit(files["one"], "#r0-fig9a", color_scheme="dark")
    page.wait_for_selector(".chart[data-chart='r0-fig9a'] text")
    dark = ink(page)
    page.emulate_media(color_scheme="light")
    until(lambda: ink(page)[1] != dark[1])  # the charts are drawn again in a later frame
    light = ink(page)
    assert dark[0] == "rgb(21, 24, 28)"
    assert light[0] == "rgb(255, 255, 255)"
    page.click("#theme")
    page.click("#theme")
    until(lambda: ink(page) == dark)
    page.reload()
    page.wait_for_selector(".chart[data-chart='r0-fig9a'] text")
    until(lambda: ink(page) == dark)
    page.click("#theme")
    until(lambda: ink(page) == light)
    assert page.inner_text("#theme") == "Theme: as the system"


def test_print_has_every_chart_and_every_table_in_light(visit, files):
    page = visit(files["all"], color_scheme="dark")
    total = page.locator(".chart").count()
    page.emulate_media(media="print", color_scheme="dark")
    until(lambda: page.locator(".chart[data-drawn]").count() == total)
    assert page.locator("details:not([open]):not(.keep)").count() == 0
    until(lambda: ink(page) == ("rgb(255, 255, 255)", "#1b1f24"))
    assert not page.locator("nav").is_visible()
    overflowing = page.evaluate(
        "[...document.querySelectorAll('.chart svg')].filter((e) => e.getBoundingClientRect().width > 700).length"
    )
    assert overflowing == 0
    page.emulate_media(media="screen", color_scheme="dark")
    until(lambda: page.locator("details:not([open])").count() > 10)
    until(lambda: ink(page)[0] == "rgb(21, 24, 28)")


def test_printing_from_the_browser_gives_pages(visit, files):
    page = visit(files["one"])
    printed = page.pdf(prefer_css_page_size=True)
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") > 5


def test_claims_are_filtered_and_sorted(visit, files):
    page = visit(files["all"], "#claims")
    rows = page.locator("#answers tbody tr:visible")
    assert rows.count() == 10
    page.fill("#filter", "fig10 HARDWARE")
    assert rows.count() == 2
    page.fill("#filter", "")
    page.click("button.status.not")
    page.click("button.status.fails")
    assert rows.count() == 6
    assert page.locator("#filtered").inner_text() == "6 of 10 lines"
    page.click("button.status.not")
    ratio = page.locator("#answers th", has_text="ratio")
    for order, way in (("ascending", 1), ("descending", -1)):
        ratio.locator("button").press("Enter")
        assert ratio.get_attribute("aria-sort") == order
        texts = page.locator("#answers tbody tr:visible td:nth-child(5)").all_inner_texts()
        found = [float(text) for text in texts if text.strip()]
        assert found == sorted(found, reverse=way < 0)
        assert all(not text.strip() for text in texts[len(found) :])


def test_a_sweep_shows_the_front_of_the_axes_that_are_chosen(visit, files):
    page = visit(files["one"], "#s0")
    page.wait_for_selector(".chart[data-chart='s0-pareto'][data-drawn]")
    option = "echarts.getInstanceByDom(document.querySelector(\".chart[data-chart='s0-pareto']\")).getOption()"
    rows = fixture.sweep_rows()
    for x, y in (("GBps", "p99_us"), ("joules", "GBps"), ("joules", "p99_us")):
        page.locator("select[data-axis=x]").select_option(x)
        page.locator("select[data-axis=y]").select_option(y)
        points = page.evaluate(f"{option}.series[1].data.map((one) => one.value)")
        assert sorted({tuple(point) for point in points}) == front(rows, x, y)
    page.locator("select[data-axis=y]").select_option("channels")
    assert page.evaluate(f"{option}.series[1].data.length") == 0
    page.locator("input[data-log=y]").check()
    assert page.evaluate(f"{option}.yAxis[0].type") == "log"


def front(rows, x, y):
    """By the definition: no point is at least as good in both and better in one."""
    best = {"GBps": -1, "p99_us": 1, "joules": 1}
    points = {(row[x], row[y]) for row in rows}

    def beats(a, b):
        losses = [(best[name] * p, best[name] * q) for name, p, q in zip((x, y), a, b, strict=True)]
        return all(p <= q for p, q in losses) and any(p < q for p, q in losses)

    return sorted((p, q) for p, q in points if not any(beats(other, (p, q)) for other in points))


def test_the_tail_stretches(visit, files):
    page = visit(files["one"], "#r0-cdf")
    page.wait_for_selector(".chart[data-chart='r0-cdf'][data-drawn]")
    page.click("#r0-cdf button.tail")
    texts = page.locator(".chart[data-chart='r0-cdf'] text").all_text_contents()
    assert {"90 %", "99 %", "99.9 %", "99.99 %"} <= set(texts)


def test_tables_download_as_csv_without_a_request(visit, files):
    page = visit(files["one"], "#r0-fig9a")
    page.locator("#r0-fig9a details summary").click()
    with page.expect_download() as started:
        page.locator("#r0-fig9a a[download]").click()
    assert started.value.suggested_filename == "r0-fig9a.csv"
    lines = Path(started.value.path()).read_text().splitlines()
    assert lines[0] == "system,rows,GBps,seconds"
    assert len(lines) == 17


def test_hostile_names_do_not_run(visit, files):
    page = visit(files["hostile"])
    page.evaluate(DRAW_ALL)
    assert fixture.HOSTILE in hover(page, "r0-fig9a", 3, 1)
    assert fixture.HOSTILE.split("\n")[0] in hover(page, "s0-pareto", 0, 1)
    page.locator(".chart[data-chart='r0-fig9a']").press("ArrowRight")
    assert page.evaluate("window.hacked") is None
    assert page.locator("script").count() == 3
    assert page.locator("img").count() == 0
    assert page.locator("h2", has_text="window.hacked").count() >= 2


def test_a_script_that_got_in_would_be_refused(browser, files, tmp_path):
    page = browser.new_page()
    injected = tmp_path / "injected.html"
    injected.write_text(files["one"].read_text().replace("<main", "<script>window.hacked = 1</script><main", 1))
    page.goto(injected.as_uri())
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("typeof Report") == "object"
    page.close()


def test_without_scripts_the_tables_are_there(visit, files):
    page = visit(files["one"], java_script_enabled=False)
    assert page.locator("noscript").count() == 1
    assert page.locator("#answers tbody tr").count() == 5
    assert page.locator("#r0-fig9a table tbody tr").count() == 16 + 3


def test_a_page_of_all_experiments_opens_soon(visit, tmp_path, capsys):
    """25 figures and 40 reports: how long it takes is printed, not judged."""
    runs = [fixture.make(tmp_path, name=f"run{n}", labels=8, more=1) for n in range(5)]
    sweep = report.SweepData("A sweep", fixture.sweep_rows(1000), {"GBps": "max", "p99_us": "min", "joules": "min"})
    start = time.perf_counter()
    file = report.write(runs, tmp_path / "page.html", [sweep], (runs[0], runs[1]))
    written = time.perf_counter() - start
    page = visit(file, "#r0-fig9a")
    page.wait_for_selector(".chart[data-drawn]")
    first = page.evaluate("Math.min(...[...document.querySelectorAll('[data-drawn]')].map((e) => +e.dataset.drawn))")
    counts = page.evaluate("[Object.keys(Report.charts).length, document.querySelectorAll('details.device').length]")
    assert counts[1] == 40
    with capsys.disabled():
        print(
            f"\n  report of {counts[0]} charts, {file.stat().st_size / 1e6:.1f} MB: written in {written:.2f} s, "
            f"first chart {first} ms after opening"
        )
