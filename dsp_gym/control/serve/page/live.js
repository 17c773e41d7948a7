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

// Since when, by the clock of the process: "for 1 h 20 min, since 14:02", with the day if it is another one.
function since(then, now) {
  const long = `for ${lasting(now - then)}, since`;
  if (then < UNIX_S) return `${long} ${moment(then)}`;
  const from = new Date(then * 1000), clock = from.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const day = now - then < 43200 ? "" : `${from.toLocaleDateString([], { day: "numeric", month: "short" })}, `;
  return `${long} ${day}${clock}`;
}
function lasting(seconds) {
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
  if (minutes < 1) return `${Math.max(0, Math.round(seconds))} s`;
  if (hours < 1) return `${minutes} min`;
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}
const percent = share => share === null || share === undefined ? "–" : `${number(100 * share)} %`;
const counted = (count, word) => `${count.toLocaleString("en-US")} ${word}${count === 1 ? "" : "s"}`;

// The policy that the page of a job shows: the one that acts, or else the one that the verdict names.
const ACTS = ["canary", "active"];
function leads(s, line) {
  const best = line && line.verdict ? line.verdict.policy : null;
  return best !== null && best in s.policies && !ACTS.includes(s.mode) ? best : s.acting;
}
const ledBy = (all, shown) => Object.entries(all).sort(([one], [other]) => (other === shown) - (one === shown));

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

// What the shown policy wants, and why, once.
function wish(s, shown) {
  const acting = s.policies[shown] || {};
  const moves = s.vertices.map(v => [v, v.policies[shown]]).filter(([v, p]) => p && changes(v, p));
  const what = moves.map(([v, p]) => `${v.name} ` + (p.target_memory_level === v.current.memory_level
    ? `${v.current.parallelism} → ${p.target}`
    : `${level(v.current.parallelism, v.current.memory_level)} → ${level(p.target, p.target_memory_level)}`)).join(", ");
  const why = [...new Set(moves.map(([, p]) => p.sentence))].join("; ") || acting.reason;  // a guardrail's, if it moves
  at("wish").textContent = !s.vertices.length || !acting.reason ? ""
    : `${shown} ${what ? `recommends ${what}` : "keeps the running configuration"}: ${why}`;
}
function changes(v, p) {
  return p.target !== v.current.parallelism || p.target_memory_level !== v.current.memory_level;
}

function vertices(s, shown) {
  const rows = [];
  for (const v of s.vertices) {
    let first = true;
    for (const [policy, p] of ledBy(v.policies, shown)) {
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
      ], [policy === shown ? "acting" : "", changes(v, p) ? "change" : ""].join(" "));
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

function policies(s, shown) {
  fill("policies", ledBy(s.policies, shown).map(([name, p]) => {
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
    ], name === shown ? "acting" : "");
    made.dataset.policy = name;
    return made;
  }));
}

function decisions(s, shown) {
  fill("decisions", s.decisions.slice(0, 20).map(d => {
    const own = d.policies[shown];
    return row([cell(moment(d.t_s)), cell(shown),
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
function graph(s, shown) {
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
  for (const v of all) drawn.append(vertex(v, v.policies[shown], place.get(v.name)));
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
function put(parts, title, value, about, feel, name) {
  const box = document.createElement("div"), dd = cell(value, feel, "dd");
  if (about) dd.append(" ", cell(about, "", "small"));
  if (name) box.className = name;
  box.append(cell(title, "", "dt"), dd);
  parts.push(box);
}
function figures(h, line) {
  const last = name => h.curves[name].at(-1) ?? null;
  const parts = [], now = line.now, verdict = line.verdict, saved = verdict && verdict.saving;
  const both = (now, wanted) => now === wanted || wanted === "–" ? now : `${now} → ${wanted}`;
  put(parts, "costs a month", money(now.cost_per_month, h.currency), "of 730 hours", "", "first");
  const range = saved ? `${number(saved.low)} to ${number(saved.high)}, by ${verdict.policy}` : "no verdict yet";
  put(parts, "saves a month", saved ? money(saved.value, h.currency) : "–", range, "", "first");
  const share = verdict ? verdict.late : now.late_share, then = verdict ? verdict.late_then : null;
  put(parts, "late", both(percent(share), percent(then)), "of the time", "", "first");
  if (h.today) {
    put(parts, "cost today", money(h.today.running, h.currency), `since ${moment(h.today.since_s)}`);
    put(parts, `today as ${h.policy} recommends`, money(h.today.recommended, h.currency));
  }
  put(parts, "cost per hour", both(number(last("running_cost_per_h")), number(last("recommended_cost_per_h"))), h.currency);
  put(parts, "tasks", both(number(last("running_tasks")), number(last("recommended_tasks"))));
  put(parts, "load", number(last("load_per_s")), "records/s");
  const slo = h.slo_latency_s, late = slo !== null && last("latency_p95_s") > slo;
  put(parts, "latency p95", number(last("latency_p95_s")), slo === null ? "s" : `s, SLO ${number(slo)} s`, late ? "bad" : "");
  put(parts, "backlog", number(last("lag_s")), "s of arrivals");
  at("figures").replaceChildren(...parts);
}
function curves(h) {
  const box = at("curves"), c = h.curves;
  const line = (name, values, style) => ({ name, values, style: style || "line" });
  const wanted = `${h.policy} recommends`;
  const panel = (title, unit, lines, bound) => ({ title, unit, lines, bound: bound ?? null, height: 130 });
  const chart = {
    x: c.t_s, time: c.t_s.length && c.t_s[0] < UNIX_S ? "elapsed" : "local", hidden: [],
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
async function hours(s, line, shown) {
  const key = `${s.job} ${s.decisions_made} ${shown} ${line.verdict ? line.verdict.sentence : ""}`;
  if (key === drawn || !s.decisions_made) return;
  const found = await ask(`v1/history?job=${encodeURIComponent(s.job)}&policy=${encodeURIComponent(shown)}`);
  if (found === null) return;
  drawn = key;
  figures(found, line);
  curves(found);
}

// ---- what policies did with twins of the job: another process drives them, see `dsp-gym backtest --follow` ----
const PERIODS = { start: "since the start", today: "today" };
let twinned = "", asked = 0;
async function twins(s, shown) {
  const key = `${s.job} ${s.decisions_made}`;
  if (key === twinned && ++asked < 5) return; // they are behind, and answer when they are done
  twinned = key; asked = 0;
  const found = await ask(`v1/twins?job=${encodeURIComponent(s.job)}`);
  const periods = found === null ? [] : Object.entries(found.periods);
  at("twins").hidden = !periods.length;
  if (!periods.length) return;
  at("twins-said").textContent = twinsSaid(found, s);
  fill("twin-figures", periods.flatMap(([period, p]) => ledBy(p.policies, shown).map(([name, one]) => {
    const made = row([cell(name, "", "th"), cell(PERIODS[period]), cell(money(one.cost, found.currency), "number"),
      cell(money(one.saved, found.currency), "number"), cell(number(one.late_s), "number"),
      cell(number(one.later_s), "number"), cell(number(one.rescales), "number")], name === shown ? "acting" : "");
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
    x: c.t_s, time: c.t_s.length && c.t_s[0] < UNIX_S ? "elapsed" : "local", hidden: [],
    colours: Object.fromEntries(names.map((name, k) => [name, k])),
    panels: [panel("Cost of the twins", `${found.currency} per hour`, "cost_per_h", "step"), panel("Tasks of the twins", "", "tasks", "step"),
      panel("Late", "% of the interval", "late", "line", 100), panel("Backlog of the twins", "s of arrivals", "lag_s")],
    marks: [],
  });
  if (!box.matches(":hover")) box.dispatchEvent(new Event("redraw", { bubbles: true }));
}

function show(s, line, shown) {
  at("job").textContent = (s.namespace ? s.namespace + "/" : "") + s.job;
  document.title = `${s.job} · dsp-gym shadow`;
  at("mode").textContent = `mode ${s.mode}, job ${s.job_status || "not seen"}`;
  const age = s.data.age_s === null ? "unknown" : `${s.data.age_s.toFixed(0)} s`;
  const full = s.data.window_fill === null ? "–" : `${Math.round(100 * s.data.window_fill)} %`;
  const labels = s.data.folded.join(", ");
  const once = labels ? `; series that differ in ${labels} alone are counted once` : "";
  at("seen").textContent = `decision ${s.decisions_made} at ${moment(s.t_s)}; age of data ${age}, window ${full} full${once}`;
  at("notice").textContent = s.held ? `Held: ${s.held}` : "";
  at("alarm").textContent = line.now.late_since_s === null ? "" : capital(`${lateness(line)}.`);
  at("verdict").textContent = line.verdict ? line.verdict.sentence : !s.decisions_made ? ""
    : "No verdict yet: dsp-gym backtest --follow on the journals reaches it beside this process.";
  wish(s, shown); conditions(s); graph(s, shown); vertices(s, shown); policies(s, shown); decisions(s, shown);
  document.body.dataset.decision = s.decisions_made;
  document.body.dataset.policy = shown;
}
const capital = text => text.charAt(0).toUpperCase() + text.slice(1);
function lateness(line) {
  const { late_since_s: from, latency_p95_s: latency, slo_latency_s: slo, lag_s: lag } = line.now;
  const why = latency > slo ? `p95 latency ${number(latency)} s, SLO ${number(slo)} s` : `${number(lag)} s of work wait`;
  return `late ${since(from, line.t_s)}: ${why}`;
}

// ---- all jobs: what is spent, what can be saved, what is wrong ----
const JUDGED = { promote: ["✓ promote", "good"], rescue: ["✓ rescue", "good"],
  "keep watching": ["… keep watching", "warn"], reject: ["✗ reject", "bad"] };
const HEADS = ["", "", "costs", "late", "saves", "by", "verdict", ""];
const STATES = { RUNNING: ["in time", "good"], SAVEPOINTING: ["takes a savepoint", "warn"],
  RESTARTING: ["restarts", "warn"], FAILED: ["has failed", "bad"] };
function state(line) {
  if (!line.watched) return [`not watched: ${line.held}`, "bad"];
  if (line.now.late_since_s !== null) return [lateness(line), "bad"];
  if (line.trouble !== null) return [line.trouble, "bad"];
  return STATES[line.job_status] || ["not looked at yet", "soft"];
}
function saves(line) {
  const found = line.saving, range = line.verdict && line.verdict.saving;
  if (!found) return "–";
  const about = range && range.low !== range.high ? ` (${number(range.low)} to ${number(range.high)})` : "";
  return `${line.verdict ? "" : "≈ "}${money(found.per_month, found.currency)}${about}`;
}
function whyNot(line) {
  if (!line.watched || !line.cause) return "";
  const [first, ...others] = line.verdict && line.verdict.policy && line.trouble === null ? line.verdict.blocks : [];
  const found = first ? `: ${first.found} (${first.needed} needed)` : "";
  return `${line.cause}${found}${others.length ? `, and ${others.length} more` : ""}`;
}
function jobRow(line) {
  const verdict = line.verdict, now = line.now || {}, [text, feel] = state(line);
  const [word, how] = verdict && JUDGED[verdict.word] || ["–", "soft"];
  const share = verdict ? verdict.late : now.late_share, then = verdict ? verdict.late_then : null;
  const policy = !line.saving ? null : verdict ? verdict.policy : `${line.saving.policy}, as it advises`;
  const link = cell(line.job, "", "a"), first = cell("", "", "th");
  link.href = `?job=${encodeURIComponent(line.job)}`;
  first.append(link);
  const cells = [first, cell(text, feel), cell(money(now.cost_per_month, now.currency), "number"),
    cell(then === null || then === undefined ? percent(share) : `${percent(share)} → ${percent(then)}`, "number"),
    cell(saves(line), "number"), cell(policy), cell(word, how), cell(whyNot(line))];
  cells.forEach((one, k) => { if (HEADS[k]) one.dataset.label = HEADS[k]; else one.classList.add("across"); });
  if (verdict) cells[7].title = verdict.sentence;
  const made = row(cells, feel === "bad" ? "late" : "");
  made.dataset.job = line.job;
  return made;
}
function fleet(found) {
  const said = found.fleet, lines = new Map(found.jobs.map(line => [line.job, line]));
  const late = said.late.map(name => lines.get(name)), parts = [];
  at("fleet-title").textContent = counted(found.jobs.length, "job");
  document.title = `${found.jobs.length} jobs · dsp-gym shadow`;
  const [first] = said.order.map(name => lines.get(name)).filter(line => late.includes(line));
  at("fleet-alarm").textContent = !late.length ? ""
    : late.length === 1 ? `${first.job} has been ${lateness(first)}.` : `${late.length} jobs are late; ${first.job} has been ${lateness(first)}.`;
  at("fleet-headline").textContent = said.headline;
  for (const one of said.totals) {
    put(parts, "spent a month", money(rounded(one.spent), one.currency), counted(one.jobs, "job"));
    put(parts, "can be saved, certain", money(rounded(one.claimed), one.currency),
      `a month, on ${counted(one.claimed_jobs, "job")}`, one.claimed > 0 ? "good" : "");
    put(parts, "likely, not certain yet", money(rounded(one.likely), one.currency),
      one.likely_jobs ? `${number(one.likely_low)} to ${number(one.likely_high)} a month, on ${counted(one.likely_jobs, "job")}` : "a month");
  }
  put(parts, "late now", `${late.length} of ${found.jobs.length}`, "jobs", late.length ? "bad" : "good");
  at("fleet-figures").replaceChildren(...parts);
  fill("jobs", said.order.map(name => jobRow(lines.get(name))));
  document.body.dataset.jobs = found.jobs.length;
}
const rounded = value => Math.abs(value) >= 10 ? Math.round(value) : value;
function absent(name, job) {
  at("job").textContent = name || "no job";
  for (const part of ["mode", "seen", "alarm", "verdict", "wish"]) at(part).textContent = "";
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
async function job(name, all) {
  const line = all.find(j => j.job === name), status = name === null ? null : await ask(`v1/status?job=${encodeURIComponent(name)}`);
  if (status === null || !line || !line.watched) { absent(name, line); return; }
  const shown = leads(status, line);
  show(status, line, shown);
  await hours(status, line, shown);
  await twins(status, shown);
}
async function poll() {
  try {
    const found = await ask("v1/jobs"), all = found.jobs, named = new URLSearchParams(location.search).get("job");
    const one = named !== null || all.length < 2;
    at("fleet").hidden = one;
    at("one").hidden = !one;
    at("back").hidden = all.length < 2;
    if (one) await job(named ?? (all.length ? all[0].job : null), all); else { at("notice").textContent = ""; fleet(found); }
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
