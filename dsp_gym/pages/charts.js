"use strict";
// Draws every element of class "chart" from the JSON inside it, with uPlot.
(() => {
  const root = document.documentElement;
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const colour = (place) => css(`--line-${place % 8}`);
  const FONT = "12px system-ui, sans-serif";

  // Three digits that matter, thousands by commas.
  const number = (value) =>
    value == null ? "–"
    : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en-US")
    : String(Number(value.toPrecision(3)));

  const clock = (seconds) => {
    const minutes = Math.round(seconds / 60);
    const two = (n) => String(n).padStart(2, "0");
    const days = Math.floor(minutes / 1440);
    const text = `${two(Math.floor(minutes / 60) % 24)}:${two(minutes % 60)}`;
    return days ? `day ${days + 1}, ${text}` : text;
  };
  const date = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC";
  const local = (seconds) =>
    new Date(seconds * 1000).toLocaleString([], { dateStyle: "short", timeStyle: "short" });

  // How x is written. Dates of a report are in UTC; the page of a running process tells "local" ones,
  // by the reader's clock. Other numbers are written as they are.
  const WRITTEN = { date, local, elapsed: clock };
  const inUtc = (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC");

  // Ticks of elapsed time stand at whole minutes, hours or days.
  const STEPS = [60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

  function axes(chart) {
    const shared = {
      stroke: css("--ink"), font: FONT,
      grid: { stroke: css("--faint"), width: 1 }, ticks: { stroke: css("--faint"), width: 1 },
    };
    const x = { ...shared, space: 70, size: 30 };
    if (chart.time === "elapsed") {
      x.incrs = STEPS;
      x.values = (_, ticks) => ticks.map(clock);
    } else if (chart.time === "number") {
      x.values = (_, ticks) => ticks.map((tick) => number(tick) + (chart.unit || ""));
    }
    return [x, { ...shared, size: 64, values: (_, ticks) => ticks.map(number) }];
  }

  function element(tag, kind, text) {
    const made = document.createElement(tag);
    if (kind) made.className = kind;
    if (text) made.textContent = text;
    return made;
  }

  // One button per line, over all panels: it hides and shows the line.
  function legend(box, chart, hidden, redraw) {
    const row = element("div", "legend");
    for (const [name, place] of Object.entries(chart.colours)) {
      const button = element("button", "key", name);
      button.style.setProperty("--key", colour(place));
      button.setAttribute("aria-pressed", String(!hidden.has(name)));
      button.onclick = () => {
        if (!hidden.delete(name)) hidden.add(name);
        button.setAttribute("aria-pressed", String(!hidden.has(name)));
        redraw();
      };
      row.append(button);
    }
    box.append(row);
  }

  function band(plot, panel) {
    if (panel.bound == null) return;
    const { ctx } = plot, { left, top, width, height } = plot.bbox;
    const y = Math.min(Math.max(plot.valToPos(panel.bound, "y", true), top), top + height);
    ctx.save();
    ctx.fillStyle = css("--good");
    ctx.fillRect(left, y, width, top + height - y);
    ctx.restore();
  }

  function marks(plot, chart, hidden) {
    const { ctx } = plot, { left, top, width, height } = plot.bbox;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    ctx.globalAlpha = 0.55;
    for (const mark of chart.marks) {
      const x = plot.valToPos(mark.x, "x", true);
      if (hidden.has(mark.line) || x < left || x > left + width) continue;
      ctx.strokeStyle = colour(chart.colours[mark.line] || 0);
      ctx.beginPath();
      ctx.moveTo(x, top);
      ctx.lineTo(x, top + 0.14 * height);
      ctx.stroke();
    }
    ctx.restore();
  }

  // What is drawn last lies in front: the line that is named first.
  const front = (panel) => [...panel.lines].reverse();

  function curves(box, chart) {
    const hidden = box.hiddenLines ||= new Set(chart.hidden), plots = [], sync = uPlot.sync(Symbol());
    let zooming = false;
    const several = Object.keys(chart.colours).length > 1;
    if (several) {
      legend(box, chart, hidden, () => {
        for (const { plot, panel } of plots) {
          front(panel).forEach((line, i) => plot.setSeries(i + 1, { show: !hidden.has(line.name) }));
        }
      });
    }
    const said = element("p", "said");
    chart.panels.forEach((panel, place) => {
      const title = element("div", "panel");
      const values = element("span", "values");
      title.append(element("b", "", panel.title), element("span", "unit", panel.unit), values);
      const room = element("div");
      box.append(title, room);
      const say = (plot) => {
        const at = plot.cursor.idx;
        const shown = panel.lines.filter((line) => !hidden.has(line.name));
        values.textContent = at == null ? "" : shown
          .map((line) => `${several ? line.name + " " : ""}${number(line.values[at])}`).join("   ");
        if (place === 0) tell(plot, at);
      };
      const options = {
        width: Math.max(280, box.clientWidth), height: panel.height,
        legend: { show: false },
        cursor: { sync: { key: sync.key }, drag: { x: true, y: false }, points: { size: 6 } },
        tzDate: chart.time === "date" ? inUtc : undefined,
        scales: { x: { time: chart.time === "date" || chart.time === "local" }, y: { range: (_, low, high) => range(panel, low, high) } },
        axes: axes(chart),
        series: [{}, ...front(panel).map((line) => ({
          label: line.name, show: !hidden.has(line.name), stroke: colour(chart.colours[line.name]),
          width: line.style === "dashed" ? 1.25 : 1.75,
          dash: line.style === "dashed" ? [6, 4] : undefined,
          paths: line.style === "step" ? uPlot.paths.stepped({ align: -1 }) : undefined,
          points: { show: false },
        }))],
        hooks: {
          drawClear: [(plot) => band(plot, panel)],
          draw: [(plot) => marks(plot, chart, hidden)],
          setCursor: [say],
          setScale: [(plot, key) => {
            if (key !== "x" || zooming) return;
            zooming = true;
            const { min, max } = plot.scales.x;
            for (const other of plots) if (other.plot !== plot) other.plot.setScale("x", { min, max });
            zooming = false;
          }],
        },
      };
      const plot = new uPlot(options, [chart.x, ...front(panel).map((line) => line.values)], room);
      sync.sub(plot);
      plots.push({ plot, panel });
    });
    box.append(said);

    // The moment under the cursor, and the reason of the decision nearest to it.
    function tell(plot, at) {
      if (at == null) { said.textContent = ""; return; }
      const x = chart.x[at], reach = 8 * (plot.scales.x.max - plot.scales.x.min) / plot.width;
      const near = chart.marks.filter((m) => !hidden.has(m.line) && Math.abs(m.x - x) <= reach);
      near.sort((one, other) => Math.abs(one.x - x) - Math.abs(other.x - x));
      const moment = (WRITTEN[chart.time] || number)(x);
      said.textContent = [moment, ...near.slice(0, 3).map((m) => `${m.line}: ${m.text}`)].join(" — ");
    }
    return () => plots.forEach(({ plot, panel }) =>
      plot.setSize({ width: Math.max(280, box.clientWidth), height: panel.height }));
  }

  function range(panel, low, high) {
    if (low == null) return [0, 1];
    let top = panel.bound == null ? high : Math.max(high, 1.15 * panel.bound);
    if (panel.bound != null) top = Math.min(top, 20 * panel.bound);
    const bottom = Math.min(0, low);
    return [bottom, top > bottom ? bottom + 1.06 * (top - bottom) : bottom + 1];
  }

  function scatter(box, chart) {
    const points = chart.points, xs = [...new Set(points.flatMap((p) => p.x).concat(chart.front.map((p) => p[0])))];
    xs.sort((one, other) => one - other);
    const at = new Map(xs.map((x, i) => [x, i]));
    const column = (pairs) => {
      const found = new Array(xs.length).fill(null);
      for (const [x, y] of pairs) found[at.get(x)] = y;
      return found;
    };
    const line = (point) => column(point.x.map((x, i) => [x, point.y[i]]));
    const said = element("p", "said");
    const room = element("div");
    box.append(room, said);
    const plot = new uPlot({
      width: Math.max(280, box.clientWidth), height: chart.height, legend: { show: false },
      cursor: { drag: { x: true, y: true }, points: { show: false } },
      scales: {
        x: { time: false, range: (_, low, high) => [low > xs[0] ? low : 0, high < xs.at(-1) ? high : 1.12 * Math.max(high, chart.bound || 0)] },
        y: { range: (_, low, high) => [Math.max(0, low - 0.15 * (high - low)), high + 0.12 * (high - low) || 1] },
      },
      axes: [
        { ...axes({ time: "number", unit: " %" })[0], label: chart.xLabel, labelSize: 20, labelFont: FONT },
        { ...axes({ time: "number" })[1], label: chart.yLabel, labelSize: 20, labelFont: FONT },
      ],
      series: [{},
        { stroke: css("--grey"), width: 1.5, dash: [2, 4], spanGaps: true, points: { show: false } },
        ...points.map((point) => ({
          stroke: colour(point.colour), width: point.x.length > 1 ? 1.5 : 0, spanGaps: true,
          dash: point.dashed ? [6, 4] : undefined,
          points: { show: true, size: point.own ? 11 : 8, fill: colour(point.colour) },
        }))],
      hooks: {
        drawClear: [(u) => {
          if (chart.bound == null) return;
          const x = u.valToPos(chart.bound, "x", true), { left, top, height } = u.bbox;
          u.ctx.save();
          u.ctx.fillStyle = css("--good");
          u.ctx.fillRect(left, top, x - left, height);
          u.ctx.restore();
        }],
        draw: [(u) => {
          u.ctx.save();
          u.ctx.textAlign = "left";
          u.ctx.textBaseline = "alphabetic";
          u.ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
          const taken = [];
          for (const point of points) {
            const last = point.x.findLastIndex((x) => x <= u.scales.x.max);
            if (last < 0) continue;
            const wide = u.ctx.measureText(point.name).width;
            const high = 14 * devicePixelRatio;
            let x = u.valToPos(point.x[last], "x", true) + 8 * devicePixelRatio;
            if (x + wide > u.bbox.left + u.bbox.width) x -= wide + 16 * devicePixelRatio;
            let y = u.valToPos(point.y[last], "y", true) + 4 * devicePixelRatio;
            const meets = (other) => x < other.x + other.wide && other.x < x + wide && Math.abs(y - other.y) < high;
            for (let tries = 0; tries < 8 && taken.some(meets); tries++) y -= high;
            taken.push({ x, y, wide });
            u.ctx.fillStyle = colour(point.colour);
            u.ctx.fillText(point.name, x, y);
          }
          u.ctx.restore();
        }],
        setCursor: [(u) => {
          let best = null, least = 40;
          for (const point of points) {
            point.x.forEach((x, i) => {
              const far = Math.hypot(u.valToPos(x, "x") - u.cursor.left, u.valToPos(point.y[i], "y") - u.cursor.top);
              if (far < least) { least = far; best = point.texts[i]; }
            });
          }
          said.textContent = best || "";
        }],
      },
    }, [xs, column(chart.front), ...points.map(line)], room);
    if (chart.xMost && chart.xMost < xs.at(-1)) plot.setScale("x", { min: xs[0], max: chart.xMost });
    return () => plot.setSize({ width: Math.max(280, box.clientWidth), height: chart.height });
  }

  // Pairs of values, with the line where both are equal.
  function against(box, chart) {
    const hidden = new Set(), plotted = chart.pairs.flatMap((group, place) =>
      group.x.map((x, i) => ({ x, y: group.y[i], text: group.texts[i], place, name: group.name })));
    plotted.sort((one, other) => one.x - other.x);
    const pad = 0.06 * (chart.most - chart.least) || 0.06 * Math.abs(chart.most) || 1;
    const ends = chart.log
      ? [chart.least / 1.2, chart.most * 1.2]
      : [chart.least >= 0 ? Math.max(0, chart.least - pad) : chart.least - pad, chart.most + pad];
    if (chart.pairs.length > 1) {
      legend(box, chart, hidden, () =>
        chart.pairs.forEach((group, i) => plot.setSeries(i + 1, { show: !hidden.has(group.name) })));
    }
    const room = element("div"), said = element("p", "said");
    box.append(room, said);
    const axis = (label, place) => ({
      ...axes({ time: "number" })[place], label, labelSize: 20, labelFont: FONT,
      size: place ? 76 : 30,
      values: (_, ticks) => ticks.map((tick) => tick == null ? "" : number(tick)),
    });
    const plot = new uPlot({
      width: Math.max(280, box.clientWidth), height: chart.height, legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: Object.fromEntries(["x", "y"].map((key) =>
        [key, { time: false, distr: chart.log ? 3 : 1, range: () => ends }])),
      axes: [axis(chart.xLabel, 0), axis(chart.yLabel, 1)],
      series: [{}, ...chart.pairs.map((group) => ({
        stroke: colour(chart.colours[group.name]), width: 0, paths: () => null,
        points: { show: true, size: 7, fill: colour(chart.colours[group.name]) },
      }))],
      hooks: {
        drawAxes: [(u) => {
          const [low, high] = ends;
          u.ctx.save();
          u.ctx.strokeStyle = css("--grey");
          u.ctx.lineWidth = devicePixelRatio;
          u.ctx.beginPath();
          u.ctx.moveTo(u.valToPos(low, "x", true), u.valToPos(low, "y", true));
          u.ctx.lineTo(u.valToPos(high, "x", true), u.valToPos(high, "y", true));
          u.ctx.stroke();
          u.ctx.restore();
        }],
        setCursor: [(u) => {
          let best = null, least = 30;
          for (const point of plotted) {
            if (hidden.has(point.name)) continue;
            const far = Math.hypot(u.valToPos(point.x, "x") - u.cursor.left, u.valToPos(point.y, "y") - u.cursor.top);
            if (far < least) { least = far; best = point; }
          }
          said.textContent = best ? `${best.text}: ${number(best.x)} and ${number(best.y)}` : "";
        }],
      },
    }, [plotted.map((point) => point.x), ...chart.pairs.map((_, place) =>
      plotted.map((point) => point.place === place ? point.y : null))], room);
    return () => plot.setSize({ width: Math.max(280, box.clientWidth), height: chart.height });
  }

  const drawn = new Map();
  function draw(box) {
    const data = box.querySelector("script");
    if (!box.clientWidth || !data.textContent) return; // folded away, or empty so far: drawn later
    [...box.children].forEach((child) => { if (child !== data) child.remove(); });
    const chart = JSON.parse(data.textContent);
    drawn.set(box, (chart.points ? scatter : chart.pairs ? against : curves)(box, chart));
  }
  const all = () => document.querySelectorAll(".chart").forEach(draw);
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) drawn.has(target) ? drawn.get(target)() : draw(target);
  });
  const scheme = (name) => { name ? root.dataset.scheme = name : delete root.dataset.scheme; all(); };

  addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("select.choice").forEach((select) => {
      const parts = [...select.parentElement.parentElement.querySelectorAll(":scope > .chosen")];
      const show = () => parts.forEach((part, i) => { part.hidden = i !== select.selectedIndex; });
      select.onchange = show;
      show();
    });
    document.querySelectorAll(".chart").forEach((box) => resized.observe(box));
    addEventListener("redraw", (event) => draw(event.target)); // its numbers are others now
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
    addEventListener("beforeprint", () => scheme("light"));
    addEventListener("afterprint", () => scheme(""));
  });
})();
