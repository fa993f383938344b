// The page's behaviour: charts when they come into view, series on and off, tables that sort and filter, theme, print.
//
// Every control is a button, a link, a select or an input of the page; nothing is made here but the charts' drawings.

const Report = (() => {
  "use strict";
  const { palettes, charts } = JSON.parse(document.getElementById("data").textContent);
  const states = {};
  const drawn = new Map(); // element -> ECharts instance
  const said = document.getElementById("said");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  let printing = false;

  function stored(key, value) {
    try {
      if (value === undefined) return localStorage.getItem(`nandarray-${key}`);
      if (value) localStorage.setItem(`nandarray-${key}`, value);
      else localStorage.removeItem(`nandarray-${key}`);
    } catch {
      // A page of a file may have no storage; then a choice lasts as long as the page.
    }
    return null;
  }

  // Charts ------------------------------------------------------------------------------------------------------------

  const root = document.documentElement;
  const patterns = document.getElementById("patterns");
  const theme = () => {
    const name = root.dataset.theme || (dark.matches ? "dark" : "light");
    return palettes[printing ? "light" : name];
  };

  function stateOf(id) {
    const hidden = (charts[id].series || []).filter((one) => one.shown === false).map((one) => one.name);
    return (states[id] ??= { off: new Set(hidden), paper: true, tail: false });
  }

  function draw(element) {
    const id = element.dataset.chart;
    let chart = drawn.get(element);
    if (!element.clientWidth) return; // in closed details: drawn when they open
    if (!chart) {
      chart = echarts.init(element, null, { renderer: "svg" });
      drawn.set(element, chart);
      chart.setOption(optionOf(id, element), true);
      element.dataset.drawn = Math.round(performance.now());
      return;
    }
    chart.resize();
    chart.setOption(optionOf(id, element), true);
  }

  function optionOf(id, element) {
    const pattern = printing || patterns.getAttribute("aria-pressed") === "true";
    return Charts.option(charts[id], stateOf(id), theme(), pattern, element.clientWidth);
  }

  const redraw = () => [...drawn.keys()].forEach(draw);
  const chartOf = (id) => document.querySelector(`.chart[data-chart="${CSS.escape(id)}"]`);
  const change = (id, what) => {
    what(stateOf(id));
    if (drawn.has(chartOf(id))) draw(chartOf(id));
  };

  const seen = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
      if (!drawn.has(entry.target)) draw(entry.target);
      if (drawn.has(entry.target)) seen.unobserve(entry.target);
    }),
    { rootMargin: "300px" },
  );
  const sized = new ResizeObserver((entries) => {
    for (const { target } of entries) if (drawn.has(target) && target.clientWidth && !printing) draw(target);
  });

  // Arrow keys go from point to point, so that a tooltip needs no mouse.
  function step(element, by) {
    const chart = drawn.get(element);
    if (!chart) return;
    const shown = chart.getOption().legend?.[0]?.selected ?? {};
    const points = chart.getOption().series.flatMap((one, seriesIndex) =>
      one.data && shown[one.name] !== false ? one.data.map((_, dataIndex) => ({ seriesIndex, dataIndex })) : []);
    if (!points.length) return;
    const at = ((Number(element.dataset.at ?? -1) + by) % points.length + points.length) % points.length;
    element.dataset.at = at;
    chart.dispatchAction({ type: "showTip", ...points[at] });
    said.textContent = element.querySelector(".tip")?.textContent ?? "";
  }

  function onKey(event) {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (by) {
      event.preventDefault();
      step(event.currentTarget, by);
    } else if (event.key === "Escape") {
      drawn.get(event.currentTarget)?.dispatchAction({ type: "hideTip" });
    }
  }

  // Controls of charts ------------------------------------------------------------------------------------------------

  const pressed = (button, on = button.getAttribute("aria-pressed") !== "true") => {
    button.setAttribute("aria-pressed", on);
    return on;
  };

  function onSeries({ currentTarget: button }) {
    const on = pressed(button);
    const { chart, name, paper } = button.dataset;
    change(chart, (state) => {
      if (paper) state.paper = on;
      else state.off[on ? "delete" : "add"](name);
    });
  }

  function onAll({ currentTarget: button }) {
    const on = Boolean(button.dataset.all);
    const buttons = all(".series[data-name]", button.parentElement);
    change(button.dataset.chart, (state) => {
      for (const one of buttons) {
        pressed(one, on);
        state.off[on ? "delete" : "add"](one.dataset.name);
      }
    });
  }

  all("button.series").forEach((button) => button.addEventListener("click", onSeries));
  all("button.all").forEach((button) => button.addEventListener("click", onAll));
  all("button.tail").forEach((button) => button.addEventListener("click", () => {
    const on = pressed(button);
    change(button.dataset.chart, (state) => { state.tail = on; });
  }));
  all("select[data-axis]").forEach((select) => select.addEventListener("change", () => {
    change(select.dataset.chart, (state) => { state[select.dataset.axis] = select.value; });
  }));
  all("input[data-log]").forEach((box) => box.addEventListener("change", () => {
    change(box.dataset.chart, (state) => { state[`${box.dataset.log}Log`] = box.checked; });
  }));

  // Tables ------------------------------------------------------------------------------------------------------------

  function sort(button) {
    const head = button.closest("th");
    const body = button.closest("table").tBodies[0];
    const up = head.getAttribute("aria-sort") !== "ascending";
    const column = Number(button.dataset.column);
    const keyed = [...body.rows].map((row) => {
      const cell = row.cells[column];
      return { row, number: cell.dataset.v === undefined ? null : Number(cell.dataset.v), text: cell.textContent.trim() };
    });
    keyed.sort((a, b) => {
      if ((a.number === null) !== (b.number === null)) return a.number === null ? 1 : -1; // what has no value is last
      const order = a.number === null ? a.text.localeCompare(b.text, "en", { numeric: true }) : a.number - b.number;
      return up ? order : -order;
    });
    body.append(...keyed.map((one) => one.row));
    all("th[aria-sort]", head.parentElement).forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
  }

  const filter = document.getElementById("filter");
  const kinds = all("button.status");
  function onFilter() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const off = new Set(kinds.filter((one) => one.getAttribute("aria-pressed") !== "true").map((one) => one.dataset.status));
    const rows = [...document.getElementById("answers").tBodies[0].rows];
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = off.has(row.dataset.status) || !words.every((word) => text.includes(word));
    }
    document.getElementById("filtered").value = `${rows.filter((row) => !row.hidden).length} of ${rows.length} lines`;
  }

  all("button.sort").forEach((button) => button.addEventListener("click", () => sort(button)));
  kinds.forEach((button) => button.addEventListener("click", () => { pressed(button); onFilter(); }));
  filter?.addEventListener("input", onFilter);

  // Theme, patterns, details ------------------------------------------------------------------------------------------

  const themeButton = document.getElementById("theme");
  const THEMES = ["", "light", "dark"];
  function showTheme() {
    const name = root.dataset.theme || "";
    themeButton.textContent = `Theme: ${name || "as the system"}`;
    redraw();
  }
  themeButton.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme || "") + 1) % THEMES.length];
    if (next) root.dataset.theme = next;
    else delete root.dataset.theme;
    stored("theme", next);
    showTheme();
  });
  dark.addEventListener("change", showTheme);
  pressed(patterns, stored("patterns") === "on");
  patterns.addEventListener("click", () => {
    stored("patterns", pressed(patterns) ? "on" : "");
    redraw();
  });
  const open = document.getElementById("open");
  open.addEventListener("click", () => {
    const on = pressed(open);
    open.textContent = on ? "Close all data" : "Open all data";
    all("details:not(.keep)").forEach((one) => { one.open = on; });
  });

  // A link to something inside closed details opens them.
  function reveal() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  }
  addEventListener("hashchange", reveal);

  // Print: everything open, everything drawn, light, as wide as the paper ---------------------------------------------

  const PAPER_WIDTH = 690; // CSS pixels between the margins of A4
  let closed = [];
  function beforePrint() {
    if (printing) return;
    printing = true;
    closed = all("details:not([open]):not(.keep)");
    closed.forEach((one) => { one.open = true; });
    all(".chart").forEach((element) => {
      element.style.width = `${PAPER_WIDTH}px`;
      draw(element);
    });
  }
  function afterPrint() {
    if (!printing) return;
    printing = false;
    closed.forEach((one) => { one.open = false; });
    all(".chart").forEach((element) => { element.style.width = ""; });
    redraw();
  }
  addEventListener("beforeprint", beforePrint);
  addEventListener("afterprint", afterPrint);
  matchMedia("print").addEventListener("change", (event) => (event.matches ? beforePrint() : afterPrint()));

  // Start -------------------------------------------------------------------------------------------------------------

  all(".chart").forEach((element) => {
    element.addEventListener("keydown", onKey);
    seen.observe(element);
    sized.observe(element);
  });
  const links = new Map(all("nav a").map((link) => [link.hash.slice(1), link]));
  const spy = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      links.forEach((link) => link.removeAttribute("aria-current"));
      links.get(target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-10% 0px -80% 0px" });
  links.forEach((_, id) => { const target = document.getElementById(id); if (target) spy.observe(target); });
  showTheme();
  reveal();

  return { charts, drawn, draw, states };
})();
