"use strict";
// The live page: asks for the status every two seconds, for the curves after every decision.
const POLL_MS = 2000, UNIX_S = 315360000;
const at = id => document.getElementById(id);

// What an operator reads and feels for each condition: [text, class] by status.
const CONDITIONS = {
  Ready: { True: ["Job seen", "good"], False: ["Job not seen", "bad"] },
  DataFresh: { True: ["Metrics fresh", "good"], False: ["Metrics not usable", "bad"],
    WindowFilling: ["Metrics window filling", "warn"] },
  InDistribution: { True: ["Job like the training", "good"], False: ["Job unlike the training", "warn"],
    Unknown: ["No training to compare with", "soft"] },
  Limited: { True: ["Limited by a guardrail", "warn"], False: ["Not limited", "good"] },
  FallbackActive: { True: ["Fallback decides", "bad"], False: ["Policy decides itself", "good"] },
  Journaling: { True: ["Journal written", "good"], False: ["Journal cannot be written", "bad"],
    NotAsked: ["No journal kept", "soft"] },
  ManagedByBuiltin: { True: ["Flink's own autoscaler acts too", "bad"], False: ["Flink's autoscaler off", "good"] },
  Paused: { True: ["Paused", "warn"], False: ["Not paused", "good"] },
  Behind: { True: ["Job behind", "warn"], False: ["Job in time", "good"], Unknown: ["Not known whether the job is behind", "soft"] },
};

// Three digits that matter, thousands by commas.
const number = value => value === null || value === undefined ? "–"
  : Math.abs(value) >= 999.5 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(3)));
const money = (value, currency) => value === null || value === undefined ? "–" : `${number(value)} ${currency}`;

function cell(text, name, tag) {
  const made = document.createElement(tag || "td");
  made.textContent = text === null || text === undefined ? "–" : text;
  if (name) made.className = name;
  return made;
}
function row(cells, name) {
  const made = document.createElement("tr");
  made.append(...cells);
  if (name) made.className = name;
  return made;
}
function fill(table, rows) { at(table).querySelector("tbody").replaceChildren(...rows); }
function level(tasks, memory) { return memory >= 0 ? `${tasks} @${memory}` : `${tasks}`; }
function moment(t) {
  if (t === null) return "–";
  if (t < UNIX_S) return `${(t / 60).toFixed(1)} min`;
  return new Date(t * 1000).toLocaleTimeString();
}

function conditions(s) {
  at("conditions").replaceChildren(...s.conditions.map(c => {
    const names = CONDITIONS[c.type] || {};
    const [text, feel] = names[c.reason] || names[c.status] || [`${c.type}: ${c.reason}`, "soft"];
    const told = feel === "bad" || feel === "warn" ? `${text}: ${c.message}` : text;
    const made = cell(told, feel, "li");
    made.title = c.message;
    made.dataset.condition = c.type;
    made.dataset.status = c.status;
    return made;
  }));
}

// What the acting policy wants, and why, once.
function wish(s) {
  const acting = s.policies[s.acting] || {};
  const moves = s.vertices.map(v => [v, v.policies[s.acting]]).filter(([v, p]) => p && changes(v, p));
  const what = moves.map(([v, p]) => `${v.name} ` + (p.target_memory_level === v.current.memory_level
    ? `${v.current.parallelism} → ${p.target}`
    : `${level(v.current.parallelism, v.current.memory_level)} → ${level(p.target, p.target_memory_level)}`)).join(", ");
  const why = [...new Set(moves.map(([, p]) => p.sentence))].join("; ") || acting.reason;  // a guardrail's, if it moves
  at("wish").textContent = !s.vertices.length || !acting.reason ? ""
    : `${s.acting} ${what ? `recommends ${what}` : "keeps the running configuration"}: ${why}`;
}
function changes(v, p) {
  return p.target !== v.current.parallelism || p.target_memory_level !== v.current.memory_level;
}

function vertices(s) {
  const rows = [];
  for (const v of s.vertices) {
    let first = true;
    for (const [policy, p] of Object.entries(v.policies)) {
      const because = cell(p.reason);
      because.title = p.sentence;
      const made = row([
        cell(first ? v.name : "", "", "th"),
        cell(first ? level(v.current.parallelism, v.current.memory_level) : "", "number"),
        cell(policy),
        cell(level(p.uncapped, p.uncapped_memory_level), "number"),
        cell(level(p.target, p.target_memory_level), "number target"),
        cell(policy === "incumbent" ? null : `${p.lower}–${p.upper}`, "number"),
        cell(p.confidence === null ? null : `${Math.round(100 * p.confidence)} %`, "number"),
        because,
      ], [policy === s.acting ? "acting" : "", changes(v, p) ? "change" : ""].join(" "));
      made.dataset.vertex = v.name;
      made.dataset.policy = policy;
      rows.push(made);
      first = false;
    }
    if (first) rows.push(row([cell(v.name, "", "th"),
      cell(level(v.current.parallelism, v.current.memory_level), "number"), cell(null)]));
  }
  fill("vertices", rows);
}

function policies(s) {
  fill("policies", Object.entries(s.policies).map(([name, p]) => {
    const made = row([
      cell(name + (name === s.acting ? " (acting)" : "")),
      cell(p.failure || (p.fallback_active ? "the fallback decides" : "itself"), p.fallback_active ? "bad" : "good"),
      cell(money(p.cost_per_hour, p.currency), "number"),
      cell(money(p.cost_per_month, p.currency), "number"),
      cell(p.seconds === undefined ? null : (1000 * p.seconds).toFixed(1), "number"),
      cell(p.failures, "number"),
      cell(p.reason),
      cell([...(p.interventions || []).map(i => `${i.guardrail}: ${i.reason}`),
        ...(p.validity ? p.validity.sentences : [])].join("; ") || null),
    ], name === s.acting ? "acting" : "");
    made.dataset.policy = name;
    return made;
  }));
}

function decisions(s) {
  fill("decisions", s.decisions.slice(0, 20).map(d => {
    const own = d.policies[s.acting];
    return row([cell(moment(d.t_s)), cell(s.acting),
      cell(own ? `${own.changes ? "" : "keeps "}${own.configuration} (${own.reason})` : null),
      cell(d.held ? `held: ${d.held}` : d.asked ? "asked of the job" : "shown only", d.held ? "warn" : "")]);
  }));
}

// ---- the job as a graph: a layer is as far from the sources as its longest way ----
const WIDE = 168, HIGH = 74, GAP = 44;
function svg(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
function layers(all) {
  const of = new Map(all.map(v => [v.name, 0]));
  for (let turn = 0; turn < all.length; turn++) { // as many turns as the longest way can have
    for (const v of all) for (const from of v.inputs) of.set(v.name, Math.max(of.get(v.name), of.get(from) + 1));
  }
  const found = [];
  for (const v of all) (found[of.get(v.name)] ||= []).push(v);
  return found;
}
const short = text => text.length > 20 ? `${text.slice(0, 19)}…` : text;
function graph(s) {
  const all = s.vertices;
  if (!all.length) { at("graph").replaceChildren(); return; }
  const found = layers(all), most = Math.max(...found.map(one => one.length));
  const across = found.length * (WIDE + GAP) - GAP <= at("graph").parentElement.clientWidth - 32;
  const step = (along, beside) => across
    ? [along * (WIDE + GAP), beside * (HIGH + GAP / 2)] : [beside * (WIDE + GAP / 2), along * (HIGH + GAP)];
  const place = new Map();
  found.forEach((one, along) => one.forEach((v, k) => place.set(v.name, step(along, k + (most - one.length) / 2))));
  const [x, y] = step(found.length - 1, most - 1);
  const width = x + WIDE + 4, height = y + HIGH + 4;
  const drawn = svg("svg", { viewBox: `-2 -2 ${width} ${height}`, width, height, role: "img",
    "aria-label": "The job's vertices with their tasks, coloured by how busy they are" });
  const head = svg("marker", { id: "head", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" });
  head.append(svg("path", { class: "head", d: "M0,0 L8,4 L0,8 z" }));
  drawn.append(head);
  for (const v of all) for (const from of v.inputs) {
    const [fromX, fromY] = place.get(from), [toX, toY] = place.get(v.name);
    drawn.append(svg("path", { class: "edge", "marker-end": "url(#head)", d: across
      ? `M${fromX + WIDE},${fromY + HIGH / 2} C${toX - GAP / 2},${fromY + HIGH / 2} ${fromX + WIDE + GAP / 2},${toY + HIGH / 2} ${toX},${toY + HIGH / 2}`
      : `M${fromX + WIDE / 2},${fromY + HIGH} C${fromX + WIDE / 2},${toY - GAP / 2} ${toX + WIDE / 2},${fromY + HIGH + GAP / 2} ${toX + WIDE / 2},${toY}` }));
  }
  for (const v of all) drawn.append(vertex(v, v.policies[s.acting], place.get(v.name)));
  at("graph").replaceChildren(drawn);
}
function vertex(v, wanted, [x, y]) {
  const moves = wanted && changes(v, wanted);
  const busy = v.busy_ms_per_s === null ? null : v.busy_ms_per_s / 1000;
  const made = svg("g", { class: moves ? "changes" : "", transform: `translate(${x},${y})` });
  made.dataset.vertex = v.name;
  const box = svg("rect", { class: "vertex", width: WIDE, height: HIGH, rx: 8 });
  box.style.setProperty("--heat", busy === null ? 0 : Math.min(1, busy).toFixed(2));
  const { parallelism, memory_level: memory } = v.current;
  const tasks = !moves || wanted.target === parallelism ? `${parallelism}` : `${parallelism} → ${wanted.target}`;
  const memories = !moves || wanted.target_memory_level === memory ? "" : `, memory ${memory} → ${wanted.target_memory_level}`;
  const rate = v.records_in_per_s === null ? "" : `, ${number(v.records_in_per_s)}/s`;
  made.append(svg("title", {}, wanted ? `${v.name}: ${wanted.sentence}` : v.name), box,
    svg("text", { class: "name", x: 12, y: 22 }, short(v.name)),
    svg("text", { class: "tasks", x: 12, y: 42 }, `${tasks} ${tasks === "1" ? "task" : "tasks"}${memories}`),
    svg("text", { x: 12, y: 62 }, busy === null ? "busy: unknown" : `${Math.round(100 * busy)} % busy${rate}`));
  return made;
}

// ---- the last hours ----
function figures(h) {
  const last = name => h.curves[name].at(-1) ?? null;
  const parts = [];
  const put = (title, value, unit, feel) => {
    const box = document.createElement("div"), dd = cell(value, feel, "dd");
    if (unit) dd.append(" ", cell(unit, "", "small"));
    box.append(cell(title, "", "dt"), dd);
    parts.push(box);
  };
  const both = (now, wanted) => now === wanted || wanted === "–" ? now : `${now} → ${wanted}`;
  if (h.today) {
    put("cost today", money(h.today.running, h.currency), `since ${moment(h.today.since_s)}`);
    put(`today as ${h.acting} recommends`, money(h.today.recommended, h.currency));
  }
  put("cost per hour", both(number(last("running_cost_per_h")), number(last("recommended_cost_per_h"))), h.currency);
  put("tasks", both(number(last("running_tasks")), number(last("recommended_tasks"))));
  put("load", number(last("load_per_s")), "records/s");
  const slo = h.slo_latency_s, late = slo !== null && last("latency_p95_s") > slo;
  put("latency p95", number(last("latency_p95_s")), slo === null ? "s" : `s, SLO ${number(slo)} s`, late ? "bad" : "");
  put("backlog", number(last("lag_s")), "s of arrivals");
  at("figures").replaceChildren(...parts);
}
function curves(h) {
  const box = at("curves"), c = h.curves;
  const line = (name, values, style) => ({ name, values, style: style || "line" });
  const wanted = `${h.acting} recommends`;
  const panel = (title, unit, lines, bound) => ({ title, unit, lines, bound: bound ?? null, height: 130 });
  const chart = {
    x: c.t_s, time: c.t_s.length && c.t_s[0] < UNIX_S ? "elapsed" : "date", hidden: [],
    colours: { "the job": 0, [wanted]: 1 },
    panels: [
      panel("Load", "records/s", [line("the job", c.load_per_s)]),
      panel("Tasks", "running, and recommended", [line("the job", c.running_tasks, "step"), line(wanted, c.recommended_tasks, "step")]),
      panel("Cost", `${h.currency || ""} per hour`, [line("the job", c.running_cost_per_h, "step"), line(wanted, c.recommended_cost_per_h, "step")]),
      panel("Latency, 95th percentile", "s; green: within the SLO", [line("the job", c.latency_p95_s)], h.slo_latency_s),
      panel("Backlog", "s of arrivals", [line("the job", c.lag_s)]),
    ],
    marks: h.changes.map(one => ({ x: one.t_s, line: wanted, text: one.text })),
  };
  box.querySelector("script").textContent = JSON.stringify(chart);
  if (!box.matches(":hover")) box.dispatchEvent(new Event("redraw", { bubbles: true })); // nobody reads it
}

let drawn = "";
async function hours(s) {
  const key = `${s.job} ${s.decisions_made}`;
  if (key === drawn || !s.decisions_made) return;
  const found = await ask(`v1/history?job=${encodeURIComponent(s.job)}`);
  if (found === null) return;
  drawn = key;
  figures(found);
  curves(found);
}

// ---- what policies did with twins of the job: another process drives them, see `dsp-gym backtest --follow` ----
const PERIODS = { start: "since the start", today: "today" };
let twinned = "", asked = 0;
async function twins(s) {
  const key = `${s.job} ${s.decisions_made}`;
  if (key === twinned && ++asked < 5) return; // they are behind, and answer when they are done
  twinned = key; asked = 0;
  const found = await ask(`v1/twins?job=${encodeURIComponent(s.job)}`);
  const periods = found === null ? [] : Object.entries(found.periods);
  at("twins").hidden = !periods.length;
  if (!periods.length) return;
  at("twins-said").textContent = twinsSaid(found, s);
  fill("twin-figures", periods.flatMap(([period, p]) => Object.entries(p.policies).map(([name, one]) => {
    const made = row([cell(name, "", "th"), cell(PERIODS[period]), cell(money(one.cost, found.currency), "number"),
      cell(money(one.saved, found.currency), "number"), cell(number(one.late_s), "number"),
      cell(number(one.later_s), "number"), cell(number(one.rescales), "number")], name === s.acting ? "acting" : "");
    made.dataset.policy = name;
    made.dataset.period = period;
    return made;
  })));
  at("twin-curves").hidden = found.curves === null;
  if (found.curves !== null) twinCurves(found);
}
function twinsSaid(found, s) {
  const { start, today } = found.periods, [cost, seen] = start.error.cost_per_h, [late, was] = start.error.slo_share;
  const percent = value => value === null ? "–" : `${number(100 * value)} %`;
  const wrong = [["since the start", start], ["today", today]].filter(([, p]) => p && p.distrust.length)
    .map(([when, p]) => `No figures ${when}: ${p.distrust.join("; ")}.`);
  return [`Each policy drives the model under the observed load since ${moment(start.since_s)}, until ${moment(found.until_s)}.`,
    `The model of the deployed configurations: ${number(cost)} of ${money(seen, found.currency)} per hour observed,`,
    `late ${percent(late)} of the time, observed ${percent(was)}.`, ...wrong,
    ...Object.entries(found.failures).map(([name, why]) => `${name} has no twin: ${why}`)].join(" ");
}
function twinCurves(found) {
  const box = at("twin-curves"), c = found.curves, names = Object.keys(c.policies);
  const panel = (title, unit, key, style, scale) => ({ title, unit, bound: null, height: 130, lines: names.map(name =>
    ({ name, style: style || "line", values: c.policies[name][key].map(v => v === null ? null : (scale || 1) * v) })) });
  box.querySelector("script").textContent = JSON.stringify({
    x: c.t_s, time: c.t_s.length && c.t_s[0] < UNIX_S ? "elapsed" : "date", hidden: [],
    colours: Object.fromEntries(names.map((name, k) => [name, k])),
    panels: [panel("Cost of the twins", `${found.currency} per hour`, "cost_per_h", "step"), panel("Tasks of the twins", "", "tasks", "step"),
      panel("Late", "% of the interval", "late", "line", 100), panel("Backlog of the twins", "s of arrivals", "lag_s")],
    marks: [],
  });
  if (!box.matches(":hover")) box.dispatchEvent(new Event("redraw", { bubbles: true }));
}

function show(s) {
  at("job").textContent = (s.namespace ? s.namespace + "/" : "") + s.job;
  document.title = `${s.job} · dsp-gym shadow`;
  at("mode").textContent = `mode ${s.mode}, job ${s.job_status || "not seen"}`;
  const age = s.data.age_s === null ? "unknown" : `${s.data.age_s.toFixed(0)} s`;
  const full = s.data.window_fill === null ? "–" : `${Math.round(100 * s.data.window_fill)} %`;
  const labels = s.data.folded.join(", ");
  const once = labels ? `; series that differ in ${labels} alone are counted once` : "";
  at("seen").textContent = `decision ${s.decisions_made} at ${moment(s.t_s)}; age of data ${age}, window ${full} full${once}`;
  at("notice").textContent = s.held ? `Held: ${s.held}` : "";
  wish(s); conditions(s); graph(s); vertices(s); policies(s); decisions(s);
  document.body.dataset.decision = s.decisions_made;
}
function jobs(all, chosen) {
  at("jobs").hidden = all.length < 2;
  fill("jobs", all.length < 2 ? [] : all.map(j => {
    const seen = j.watched && j.conditions.Ready !== "False", saves = j.saving;
    const link = cell(j.job, seen ? "" : "bad", "a"), first = cell("", "", "th");
    link.href = `?job=${encodeURIComponent(j.job)}`;
    link.title = j.held || "";
    if (j.job === chosen) link.setAttribute("aria-current", "page");
    first.append(link);
    return row([first, cell(saves ? money(saves.per_month, saves.currency) : null, "number"),
      cell(saves ? `${saves.policy}${saves.by === "twin" ? "" : ", as it advises now"}` : null),
      cell(j.watched ? j.held || j.job_status || "not seen" : "not watched", seen ? "" : "bad")]);
  }));
}
// Those that could save most come first.
function sorted(all) {
  const worth = j => j.saving ? j.saving.per_month : -Infinity;
  return [...all].sort((one, other) => worth(other) === worth(one) ? 0 : worth(other) - worth(one));
}
function absent(name, job) {
  at("job").textContent = name || "no job";
  at("mode").textContent = at("seen").textContent = at("wish").textContent = "";
  at("notice").textContent = job ? `Not watched: ${job.held}` : "There is no such job to be watched.";
  at("twins").hidden = true;
  for (const part of ["conditions", "graph", "figures"]) at(part).replaceChildren();
  for (const table of ["vertices", "policies", "decisions"]) fill(table, []);
}
function token() {  // given once, behind the address: #token=...
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return given || sessionStorage.getItem("token");
}
class Refused extends Error {}
async function ask(path) {
  const known = token();
  const headers = known ? { Authorization: `Bearer ${known}` } : {};
  const answer = await fetch(path, { cache: "no-store", headers, signal: AbortSignal.timeout(5000) });
  if (answer.status === 401 || answer.status === 403) throw new Refused((await answer.json()).error);
  if (!answer.ok && answer.status !== 404) throw new Error(`status ${answer.status}`);
  return answer.ok ? answer.json() : null;
}
async function poll() {
  try {
    const all = sorted((await ask("v1/jobs")).jobs);
    const chosen = new URLSearchParams(location.search).get("job") || (all.length ? all[0].job : null);
    jobs(all, chosen);
    const status = chosen === null ? null : await ask(`v1/status?job=${encodeURIComponent(chosen)}`);
    if (status === null) absent(chosen, all.find(j => j.job === chosen)); else { show(status); await hours(status); await twins(status); }
    document.body.dataset.connected = "true";
  } catch (error) {
    at("notice").textContent = error instanceof Refused
      ? `The process shows nothing: ${error.message}. With a token, add #token=... to this address.`
      : `The process does not answer: ${error.message}. What stands here may be old.`;
    document.body.dataset.connected = "false";
  }
  setTimeout(poll, POLL_MS);
}
poll();
