// What ECharts is told for each kind of chart. Data and decisions come from Python; here are marks, axes and tooltips.
//
// A chart's state is what the reader chose: series that are off, the paper's points, a stretched tail, a sweep's axes.
// Tooltips are elements with text, never markup, since names come from runs.

const Charts = (() => {
  "use strict";
  const PAPER = " (paper)";
  const PATHS = {
    plus: "path://M4,0h4v4h4v4h-4v4h-4v-4h-4v-4h4Z",
    down: "path://M0,0L12,0L6,10Z",
    bar: "path://M0,0h14v7h-14Z",
    // The bound's own line, and an arrow away from it. The whole height is used, so that offsets can be told.
    atMost: "path://M0,0h12v2h-5v8h3l-4,6l-4,-6h3v-8h-5Z",
    atLeast: "path://M0,16h12v-2h-5v-8h3l-4,-6l-4,6h3v8h-5Z",
  };
  const SYMBOLS = ["rect", "circle", "triangle", PATHS.down, PATHS.plus, PATHS.bar];
  const DASHES = ["solid", "dashed", "dotted", [8, 3, 2, 3]];
  const SLOTS = 8;
  /** Of a name below an axis: labels of ticks are between. */
  const NAME_GAP = 26;

  /** A number to four digits, as Python's `number` writes it. */
  function number(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "no value";
    const size = Math.abs(value);
    if (value !== 0 && (size < 1e-4 || size >= 1e15)) return value.toExponential(3);
    if (size >= 1000) return Math.round(value).toLocaleString("en-US");
    return String(Number(value.toPrecision(4)));
  }

  /** An axis label: short, with a prefix for large numbers. */
  function tick(value) {
    const size = Math.abs(value);
    if (size >= 1e12 || (size > 0 && size < 1e-4)) return value.toExponential(0).replace("+", "");
    for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]])
      if (size >= unit) return Number((value / (unit === 1e4 ? 1e3 : unit)).toPrecision(3)) + letter;
    return String(Number(value.toPrecision(4)));
  }

  /** About how many pixels the longest of some names takes. */
  const widest = (names) => Math.max(0, ...names.map((name) => String(name).length)) * 7;
  const percent = (share) => `${Number((share * 100).toPrecision(4))} %`;
  const times = (log2) => `${Number((2 ** log2).toPrecision(3))}×`;
  /** A share as a number of nines: 0.9 is 1, 0.99 is 2. */
  const nines = (share) => Math.min(6, -Math.log10(Math.max(1e-6, 1 - share)));

  function colourOf(theme, slot) {
    return theme.series[slot % SLOTS];
  }

  /** Of bars: colours come again, then as frames. */
  const barStyle = (colour, slot) => (slot < SLOTS ? { color: colour } : { color: `${colour}59`, borderColor: colour, borderWidth: 1.5 });

  // Tooltips ----------------------------------------------------------------------------------------------------------

  function line(colour, name, value) {
    const row = document.createElement("div");
    if (colour) {
      const mark = document.createElement("span");
      mark.textContent = "■";
      mark.style.color = colour;
      row.append(mark);
    }
    for (const text of [name, value]) {
      const span = document.createElement("span");
      span.textContent = text;
      row.append(span);
    }
    return row;
  }

  function tip(title, rows) {
    const box = document.createElement("div");
    box.className = "tip";
    if (title) box.append(Object.assign(document.createElement("b"), { textContent: title }));
    box.append(...rows);
    return box;
  }

  /** The value of a point as text; what the paper says of it stands before and behind. */
  function said(spec, data, value) {
    const shown = { share: percent, percent, ratio: times }[spec.y.type] || number;
    const stated = data && data.paper;
    if (!stated) return shown(data && data.raw !== undefined ? data.raw : value);
    return `${stated.bound ? stated.bound + " " : ""}${number(value)}${stated.where ? `, ${stated.where}` : ""}`;
  }

  function pointTip(spec, params) {
    const all = Array.isArray(params) ? params : [params];
    if (!all.length) return "";
    const at = all[0].value[0];
    const where = spec.x.type === "category" ? spec.x.categories[at] : number(at);
    const rows = all
      .filter((one) => one.value[1] !== null && one.value[1] !== undefined)
      .map((one) => line(one.data.colour || one.color, one.seriesName, said(spec, one.data, one.value[1])));
    return tip(`${spec.x.label}: ${where}`, rows);
  }

  // Axes --------------------------------------------------------------------------------------------------------------

  function axis(of, theme, more = {}) {
    const category = of.type === "category";
    const labels = { value: tick, log: tick, percent, ratio: times };
    return {
      type: category ? "category" : of.type === "log" ? "log" : "value",
      data: category ? of.categories : undefined,
      name: of.label,
      nameLocation: "middle",
      nameGap: 10,
      nameTextStyle: { color: theme.text },
      nameMoveOverlap: true,
      axisLine: { show: true, lineStyle: { color: theme.muted } },
      axisTick: { show: !category, lineStyle: { color: theme.muted } },
      splitLine: { show: !category, lineStyle: { color: theme.line } },
      axisLabel: { color: theme.muted, hideOverlap: true, formatter: labels[of.type] },
      ...more,
    };
  }

  /** Round numbers between two: decades, or 1, 2, 5, or some between them, or steps that are even on a linear scale. */
  function decimalTicks(from, to) {
    for (const parts of [[1], [1, 2, 5], [1, 1.5, 2, 3, 5, 7]]) {
      const ticks = [];
      for (let power = Math.floor(Math.log10(from)); power <= Math.log10(to); power += 1)
        for (const part of parts) ticks.push(Number(`${part}e${power}`));
      const inside = ticks.filter((value) => value >= from && value <= to);
      if (inside.length >= 4) return inside;
    }
    const rough = (to - from) / 6;
    const step = [1, 2, 5, 10].map((part) => part * 10 ** Math.floor(Math.log10(rough))).find((one) => one >= 0.75 * rough);
    return Array.from({ length: 8 }, (_, n) => Number((step * (Math.ceil(from / step) + n)).toPrecision(6)));
  }

  /** Where bars of a logarithmic axis stand: on 1 where they are ratios, else on a round number below the least. */
  function ground(of, values) {
    const usable = values.filter((value) => value > 0);
    if (of.type !== "log" || !usable.length) return undefined;
    if (of.ratio) return 1;
    const low = Math.min(...usable) / 1.2;
    const power = Math.floor(Math.log10(low));
    return [5, 2, 1].map((part) => Number(`${part}e${power}`)).find((value) => value <= low);
  }

  /** A logarithmic axis that ends near its values, with ticks that people know: powers of two, or 1, 2, 5. */
  function logAxis(of, theme, values, more = {}) {
    const usable = values.filter((value) => value > 0);
    if (of.type !== "log" || !usable.length) return axis(of, theme, more);
    const [low, high] = [Math.min(...usable), Math.max(...usable)];
    const two = usable.every((value) => Number.isInteger(Math.log2(value))) && high / low < 1e6;
    const room = two || high / low > 1 ? Math.max(1.12, (high / low) ** 0.04) : 2;
    const [from, to] = [low / room, high * room];
    const ticks = [];
    if (two) {
      const step = Math.ceil(Math.log2(high / low) / 12) || 1;
      for (let power = Math.log2(low); power <= Math.log2(high); power += step) ticks.push(2 ** power);
    } else {
      ticks.push(...decimalTicks(from, to));
    }
    const inside = ticks.filter((value) => value >= from && value <= to);
    const made = axis(of, theme, { min: from, max: to, ...more });
    Object.assign(made.axisTick, { customValues: inside });
    Object.assign(made.axisLabel, { customValues: inside, formatter: two ? (value) => Math.round(value).toLocaleString("en-US") : tick });
    if (two && low < 1) made.axisLabel.formatter = tick;
    return made;
  }

  function base(spec, theme, patterns) {
    return {
      animation: false,
      aria: { enabled: true, label: { enabled: true, description: spec.summary }, decal: { show: patterns && ["bar", "bars"].includes(spec.kind) } },
      backgroundColor: "transparent",
      textStyle: { fontFamily: "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif", fontSize: 12, color: theme.text },
      color: theme.series,
      grid: { left: 12, right: 24, top: 16, bottom: 12 },
      tooltip: {
        confine: true,
        transitionDuration: 0,
        backgroundColor: theme.panel,
        borderColor: theme.line,
        textStyle: { color: theme.text, fontSize: 13 },
        extraCssText: "box-shadow: 0 2px 10px rgb(0 0 0 / .25)",
        // No styles of ECharts' own inside: the page's class does it.
        axisPointer: { type: "line", animation: false, lineStyle: { color: theme.muted, type: "dashed" } },
      },
    };
  }

  // Lines, bars, scatters, with what the paper states beside them -----------------------------------------------------

  function paperItem(point, colour, theme) {
    const bound = { "at most": PATHS.atMost, "at least": PATHS.atLeast }[point.bound];
    return {
      value: [point.x, point.y],
      paper: point,
      colour,
      symbol: bound || (point.bound === "about" ? "circle" : "diamond"),
      symbolSize: bound ? [12, 16] : 13,
      // The line across an arrow is the bound itself.
      symbolOffset: point.bound === "at most" ? [0, "50%"] : point.bound === "at least" ? [0, "-50%"] : [0, 0],
      itemStyle: { color: theme.page, borderColor: colour, borderWidth: 2, opacity: 1 },
    };
  }

  const DIAMOND = "M0-7L7 0L0 7L-7 0Z";
  const ARROW = { about: "M0-6A6 6 0 1 1 0 6A6 6 0 1 1 0-6Z", "at most": "M-6 0H6M0 0V13M-4 9L0 14L4 9", "at least": "M-6 0H6M0 0V-13M-4-9L0-14L4-9" };

  /** A mark over its own bar of a group: where that is depends on which bars are shown. */
  function paperOverBars(one, spec, theme, shownBars) {
    const colour = colourOf(theme, one.slot);
    return {
      type: "custom",
      data: one.data.map((point) => ({ value: [point.x, point.y], paper: point, colour })),
      encode: { x: 0, y: 1 },
      renderItem(params, api) {
        const point = one.data[params.dataIndex];
        if (point.x === null || point.y === null) return null;
        const at = api.coord([point.x, point.y]);
        const place = shownBars.indexOf(one.name);
        const middle = place < 0 || spec.stack ? 0 : ((place + 0.5) / shownBars.length - 0.5) * 0.76 * api.size([1, 0])[0];
        const arrow = ARROW[point.bound];
        return {
          type: "path",
          x: at[0] + middle,
          y: at[1],
          shape: { pathData: arrow || DIAMOND },
          style: { fill: point.bound.startsWith("at ") ? "none" : theme.page, stroke: theme.text, lineWidth: 1.8 },
        };
      },
    };
  }

  function xy(spec, state, theme, patterns, width) {
    const bars = spec.kind === "bar";
    const shown = spec.series.filter((one) => !state.off.has(one.name));
    const option = base(spec, theme, patterns);
    const many = spec.x.type === "category" ? spec.x.categories.length : 0;
    const room = many ? Math.max(30, (width - 90) / Math.max(1, many) - 6) : 0;
    option.legend = { show: false, data: [], selected: {} };
    const along = (n) => [...spec.series.flatMap((one) => one.data.map((point) => point[n])),
      ...spec.paper.flatMap((one) => one.data.map((point) => (n ? point.y : point.x)))];
    // Names that would hide one another, or be broken within a word, lean.
    const names = spec.x.categories || [];
    const broken = room < 44 ? widest(names) > room : 1.07 * widest(names.flatMap((name) => String(name).split(" "))) > room;
    const leans = bars && many && many <= 40 && broken;
    option.xAxis = logAxis(spec.x, theme, along(0), leans
      ? { axisLabel: { color: theme.muted, interval: 0, rotate: 45, hideOverlap: false, width: 170, overflow: "truncate" }, nameGap: 44 }
      : many && many <= 24 && room >= 44
      ? { axisLabel: { color: theme.muted, interval: 0, width: room, overflow: "break", lineHeight: 14 } } : { scale: true, nameGap: NAME_GAP });
    const floor = bars ? ground(spec.y, along(1)) : undefined;
    option.yAxis = floor
      ? logAxis(spec.y, theme, [...along(1), floor], { startValue: floor, ...(spec.y.ratio ? {} : { min: floor }) })
      : logAxis(spec.y, theme, along(1), { scale: spec.kind === "scatter" });
    option.tooltip.trigger = spec.kind === "scatter" ? "item" : "axis";
    option.tooltip.formatter = (params) => pointTip(spec, params);
    if (bars) option.tooltip.axisPointer = { type: "shadow", animation: false };
    if (many > 40) {
      option.dataZoom = [{ type: "slider", bottom: 8, height: 18, brushSelect: false }];
      option.grid.bottom = 48;
    }
    option.series = spec.series.map((one) => {
      const colour = colourOf(theme, one.slot);
      // A frame of no height would be a line.
      const data = one.data.map((value) => ({ value, colour, ...(bars && !value[1] ? { itemStyle: { borderWidth: 0 } } : {}) }));
      if (bars) return { type: "bar", name: one.name, data, itemStyle: barStyle(colour, one.slot), barGap: "4%", barCategoryGap: "24%", ...(spec.stack ? { stack: "all", barMaxWidth: 72 } : {}) };
      const symbol = SYMBOLS[one.slot % SYMBOLS.length];
      const marks = { symbol, symbolSize: 8, itemStyle: { color: colour, opacity: 1 } };
      if (spec.kind === "scatter") return { type: "scatter", name: one.name, data, ...marks };
      const dash = DASHES[Math.floor(one.slot / SLOTS) % DASHES.length];
      return { type: "line", name: one.name, data, ...marks, showSymbol: data.length <= 60, lineStyle: { color: colour, width: 2, type: dash } };
    });
    for (const one of spec.paper) {
      const colour = colourOf(theme, one.slot);
      const made = bars
        ? paperOverBars(one, spec, theme, shown.map((of) => of.name))
        : { type: "scatter", data: one.data.map((point) => paperItem(point, colour, theme)) };
      option.series.push({ ...made, name: one.name + PAPER, z: 5 });
    }
    for (const one of option.series) option.legend.data.push(one.name);
    for (const one of spec.series) option.legend.selected[one.name] = !state.off.has(one.name);
    for (const one of spec.paper) option.legend.selected[one.name + PAPER] = state.paper && !state.off.has(one.name);
    return option;
  }

  // Bars that lie: shares and ratios ----------------------------------------------------------------------------------

  function lying(spec, state, theme, patterns, width) {
    const option = base(spec, theme, patterns);
    const ratio = spec.x.type === "ratio";
    option.tooltip.trigger = "item";
    option.tooltip.formatter = (one) => tip(one.name, [line(one.color, one.seriesName, ratio ? times(one.value) : percent(one.value))]);
    const ends = spec.series[0].data.map((value) => Math.abs(Math.log2(value)));
    const end = Math.max(1, Math.ceil(Math.max(...ends)));
    option.xAxis = axis(spec.x, theme, ratio ? { min: -end, max: end, minInterval: 1 } : { min: 0, max: spec.series[0].data.some((v) => v > 0.5) ? 1 : null });
    option.yAxis = axis(spec.y, theme, { inverse: true, axisTick: { show: false }, axisLabel: { color: theme.text, width: Math.min(340, width / 3), overflow: "truncate" } });
    option.series = spec.series.map((one) => ({
      type: "bar",
      name: one.name,
      barMaxWidth: 16,
      data: one.data.map((value) => ({
        value: ratio ? Math.log2(value) : value,
        label: { position: ratio && value < 1 ? "left" : "right" },
        itemStyle: { color: colourOf(theme, ratio && value < 1 ? 1 : 0) },
      })),
      label: { show: true, color: theme.muted, formatter: (at) => (ratio ? times(at.value) : percent(at.value)) },
    }));
    option.grid.right = 56;
    return option;
  }

  // Heat maps ---------------------------------------------------------------------------------------------------------

  function heat(spec, state, theme, patterns, width) {
    const option = base(spec, theme, patterns);
    const show = spec.percent ? percent : number;
    const values = spec.cells.map((cell) => cell[2]);
    const low = spec.percent ? 0 : Math.min(...values);
    const high = Math.max(...values);
    const lightIsHigh = theme.scale[0] < theme.scale.at(-1);
    const darkCell = (value) => ((value - low) / (high - low || 1) < 0.55) === lightIsHigh;
    option.xAxis = axis(spec.x, theme, { splitArea: { show: false }, nameGap: NAME_GAP });
    const names = spec.x.categories || [];
    // Left to itself it would leave names out well before they meet.
    if (widest(names) < (width - 120) / names.length) option.xAxis.axisLabel.interval = 0;
    option.yAxis = axis(spec.y, theme, { inverse: Boolean(spec.flip) });
    option.grid.top = 44;
    option.tooltip.trigger = "item";
    option.tooltip.formatter = (one) => tip(
      `${spec.x.label} ${spec.x.categories[one.value[0]]}, ${spec.y.label} ${spec.y.categories[one.value[1]]}`,
      [line(one.color, spec.value, show(one.value[2]))],
    );
    option.visualMap = {
      min: low, max: high > low ? high : low + 1e-9, calculable: false, orient: "horizontal", right: 20, top: 0,
      itemWidth: 12, itemHeight: 160, inRange: { color: theme.scale }, text: [show(high), show(low)],
      textStyle: { color: theme.muted }, formatter: show,
    };
    option.series = [{
      type: "heatmap",
      name: spec.value,
      data: spec.cells.map((value) => ({ value, label: { color: darkCell(value[2]) ? "#fff" : "#000" } })),
      itemStyle: { borderColor: theme.page, borderWidth: spec.cells.length > 4000 ? 0 : 1 },
      label: { show: spec.cells.length <= 120 && !spec.flip, formatter: (one) => show(one.value[2]), fontSize: 11 },
    }];
    return option;
  }

  // Timelines: bars on lanes -------------------------------------------------------------------------------------------

  function timeline(spec, state, theme, patterns) {
    const option = base(spec, theme, patterns);
    option.legend = { show: false, data: spec.series.map((one) => one.name), selected: {} };
    for (const one of spec.series) option.legend.selected[one.name] = !state.off.has(one.name);
    option.xAxis = axis(spec.x, theme, { scale: true, nameGap: NAME_GAP });
    option.yAxis = axis(spec.y, theme, { inverse: true, axisLabel: { color: theme.text } });
    option.dataZoom = [{ type: "slider", bottom: 4, height: 18, brushSelect: false, filterMode: "weakFilter", labelFormatter: tick }];
    option.grid.bottom = 66;
    option.tooltip.trigger = "item";
    option.tooltip.formatter = (one) => tip(one.seriesName, [
      line(one.color, spec.y.label, spec.y.categories[one.value[1]]),
      line("", spec.x.label, `${number(one.value[0])} to ${number(one.value[2])}`),
    ]);
    option.series = spec.series.map((one) => ({
      type: "custom",
      name: one.name,
      data: one.data,
      clip: true,
      encode: { x: [0, 2], y: 1 },
      itemStyle: { color: colourOf(theme, one.slot) },
      renderItem(params, api) {
        const [begin, end] = [api.coord([api.value(0), api.value(1)]), api.coord([api.value(2), api.value(1)])];
        const height = 0.7 * api.size([0, 1])[1];
        const room = params.coordSys;
        const left = Math.max(begin[0], room.x);
        const right = Math.min(Math.max(end[0], begin[0] + 1), room.x + room.width);
        if (right <= left) return null;
        const shape = { x: left, y: begin[1] - height / 2, width: right - left, height };
        return { type: "rect", shape, style: { fill: api.visual("color"), stroke: theme.page, lineWidth: right - left > 4 ? 0.5 : 0 } };
      },
    }));
    return option;
  }

  // Energy ------------------------------------------------------------------------------------------------------------

  function sankey(spec, state, theme, patterns, width) {
    const option = base(spec, theme, patterns);
    const value = (joules) => `${number(joules)} ${spec.unit}, ${percent(joules / spec.total)}`;
    option.tooltip.trigger = "item";
    option.tooltip.formatter = (one) => one.dataType === "edge"
      ? tip("", [line(one.color, `${one.data.source} → ${one.data.target}`, value(one.value))])
      : tip("", [line(one.color, one.name, value(one.value))]);
    const depth = (name) => {
      const above = spec.links.find((link) => link.target === name);
      return above ? 1 + depth(above.source) : 0;
    };
    // On a narrow page there is room for one column of labels: all that is no sum of others ends at the right.
    const narrow = width < 560;
    const isSum = (name) => spec.links.some((link) => link.source === name);
    const deepest = Math.max(...spec.nodes.map(depth));
    const longest = Math.max(...spec.nodes.filter((name) => depth(name) === deepest).map((name) => name.length)) + 12;
    const place = (name) => (narrow && !isSum(name) ? deepest : depth(name));
    const colour = (name) => {
      const above = spec.links.find((link) => link.target === name);
      if (!above) return theme.muted;
      return above.source === "device" ? colourOf(theme, spec.slots[name]) : colour(above.source);
    };
    option.series = [{
      type: "sankey",
      left: narrow ? 4 : 12, right: narrow ? 168 : Math.max(190, 6.6 * longest), top: 8, bottom: 8,
      nodeGap: 15, nodeWidth: 14, nodeAlign: "left", draggable: false,
      emphasis: { focus: "adjacency" },
      data: spec.nodes.map((name) => ({ name, depth: place(name), itemStyle: { color: colour(name), borderWidth: 0 }, label: { show: !narrow || !isSum(name) } })),
      links: spec.links,
      lineStyle: { color: "target", opacity: 0.3, curveness: 0.5 },
      label: { color: theme.text, fontSize: narrow ? 11 : 12, width: narrow ? 160 : undefined, overflow: narrow ? "truncate" : "none", formatter: (one) => `${one.name}  ${percent(one.value / spec.total)}` },
    }];
    return option;
  }

  // Latency -----------------------------------------------------------------------------------------------------------

  function cdf(spec, state, theme, patterns) {
    const option = base(spec, theme, patterns);
    const up = state.tail ? nines : (share) => share;
    option.legend = { show: false, data: spec.series.map((one) => one.name), selected: {} };
    for (const one of spec.series) option.legend.selected[one.name] = !state.off.has(one.name);
    option.xAxis = logAxis(spec.x, theme, spec.series.flatMap((one) => [...one.data, ...one.marks].map((point) => point[0])), { nameGap: NAME_GAP });
    const at = (value) => (value === 0 ? "0 %" : percent(1 - 10 ** -value));
    option.yAxis = axis(spec.y, theme, state.tail
      ? { min: 0, max: 5, interval: 1, axisLabel: { color: theme.muted, formatter: at } }
      : { min: 0, max: 1, axisLabel: { color: theme.muted, formatter: percent } });
    option.tooltip.trigger = "item";
    option.tooltip.formatter = (one) => tip(one.seriesName, [
      line(one.color, one.data.mark ? "percentile" : "share no slower", percent(one.data.raw)),
      line("", "latency", `${number(one.value[0])} us`),
    ]);
    option.series = spec.series.flatMap((one) => {
      const colour = colourOf(theme, one.slot);
      const dash = DASHES[Math.floor(one.slot / SLOTS) % DASHES.length];
      const item = ([x, share], mark) => ({ value: [x, up(share)], raw: share, mark });
      return [
        // Its points are there to be pointed at, not to be seen.
        { type: "line", name: one.name, symbol: "circle", symbolSize: 7, data: one.data.map((point) => item(point, false)),
          lineStyle: { color: colour, width: 2, type: dash }, itemStyle: { color: colour, opacity: 0 } },
        { type: "scatter", name: one.name, symbol: SYMBOLS[one.slot % SYMBOLS.length], symbolSize: 9, z: 5,
          data: one.marks.map((point) => item(point, true)), itemStyle: { color: colour } },
      ];
    });
    return option;
  }

  // Sweeps ------------------------------------------------------------------------------------------------------------

  /** Indices of the points that no other is better than in both axes. */
  function front(xs, ys, xBest, yBest) {
    const sign = (best) => (best === "max" ? -1 : 1);
    const all = xs.map((x, n) => [sign(xBest) * x, sign(yBest) * ys[n], n]).filter((p) => xs[p[2]] !== null && ys[p[2]] !== null);
    all.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    let least = Infinity;
    return all.filter((point) => point[1] < least && ((least = point[1]), true)).map((point) => point[2]);
  }

  function pareto(spec, state, theme, patterns) {
    const x = state.x || spec.x.label;
    const y = state.y || spec.y.label;
    const usable = (values, log) => values.map((value) => (value === null || (log && value <= 0) ? null : value));
    const xs = usable(spec.columns[x], state.xLog);
    const ys = usable(spec.columns[y], state.yLog);
    const best = [spec.objectives[x], spec.objectives[y]];
    const on = best[0] && best[1] && x !== y ? front(xs, ys, ...best) : [];
    const inFront = new Set(on);
    const option = base(spec, theme, patterns);
    const name = (column, which) => ({ label: which ? `${column} (${which === "max" ? "more" : "less"} is better)` : column });
    option.xAxis = logAxis({ ...name(x, best[0]), type: state.xLog ? "log" : "value" }, theme, xs, { scale: true, nameGap: NAME_GAP });
    option.yAxis = logAxis({ ...name(y, best[1]), type: state.yLog ? "log" : "value" }, theme, ys, { scale: true });
    option.tooltip.trigger = "item";
    option.tooltip.formatter = (one) => one.data.point === undefined ? "" : tip(spec.points[one.data.point], [
      line(one.color, x, number(one.value[0])), line(one.color, y, number(one.value[1])),
    ]);
    const item = (n) => ({ value: [xs[n], ys[n]], point: n });
    const rest = xs.map((_, n) => n).filter((n) => !inFront.has(n) && xs[n] !== null && ys[n] !== null);
    option.series = [
      { type: "scatter", name: "points", symbolSize: 6, data: rest.map(item), itemStyle: { color: colourOf(theme, 0), opacity: 0.55 } },
      { type: "line", name: "Pareto front", step: "end", symbol: "rect", symbolSize: 9, data: on.map(item),
        lineStyle: { color: colourOf(theme, 1), width: 2 }, itemStyle: { color: colourOf(theme, 1) } },
    ];
    return option;
  }

  const KINDS = { line: xy, bar: xy, scatter: xy, heatmap: heat, timeline, bars: lying, sankey, cdf, pareto };

  /** The whole option of a chart. */
  function option(spec, state, theme, patterns, width) {
    return KINDS[spec.kind](spec, state, theme, patterns, width);
  }

  return { option, number, front };
})();
