/* All modules, those in trouble first: how each is, and what it does. */

import { el, fill, inFrame, keyed, count, notice, printable, said, set, write } from "../dom.js";
import { TREND_LENGTH } from "../figures.js";
import { duration, latency, percent, rate, size } from "../format.js";
import { sparkline, stateMark } from "../marks.js";
import { inTrouble, note, severity, urgency } from "../trouble.js";
import { daemonNotes } from "./daemon_notes.js";

/** How often rows are drawn at the most, however fast modules change; and what it takes to draw
    them is a fifth of the time at the most, on a slow machine, too. */
const DRAWN_EVERY_MS = 250;
const SHARE = 5;
/** How often a screen reader is told how many are in trouble, at the most. */
const ANNOUNCED_EVERY_MS = 5000;
const NO_VALUES = [];

const COLUMNS = [
  ["State", ""], ["Module", ""], ["Calls/s", "figure"], ["p99", "figure"], ["Memory", "figure"],
  ["CPU", "figure"], ["Restarts", "figure"], ["Open", "figure"],
];

export function render(into, page) {
  const summary = el("p", { class: "summary" });
  const daemon = el("p", { class: "daemon" });
  const filter = el("input", {
    type: "search", placeholder: "name, kind, state or words", "data-filter": true, spellcheck: "false",
    autocomplete: "off", value: page.query.get("filter") ?? "",
  });
  const only = el("input", { type: "checkbox" });
  const rows = el("tbody");
  const table = el("table", { class: "modules" },
    el("caption", { class: "unseen" }, "Modules, those in trouble first"),
    el("colgroup", {}, COLUMNS.map(() => el("col"))),
    el("thead", {}, el("tr", {}, COLUMNS.map(([name, kind]) => el("th", { scope: "col", class: kind || null }, name)))),
    rows,
  );
  const empty = el("p", { class: "empty", hidden: true });
  const notes = el("div", { class: "notes" });
  const troubled = el("div", { class: "notes" });
  into.append(
    el("header", { class: "head" }, el("h1", {}, "Modules"), summary, daemon),
    troubled,
    el("div", { class: "tools", role: "search" },
      el("label", {}, el("span", {}, "Filter"), filter),
      el("label", { class: "check" }, only, "only trouble"),
    ),
    el("div", { class: "wide" }, table), empty, notes,
  );

  const draw = () => {
    const { status, error } = page.figures;
    fill(troubled, error && status ? notice(`${error.message} These are the last figures.`, "warn") : null,
      error && !status ? notice(error.message) : null);
    if (!status) return;
    const modules = status.modules.map((one) => ({ ...one, state: page.figures.stateOf(one) }));
    const shown = inOrder(status, modules);
    write(summary, printable(summaryOf(modules, status, page.figures)));
    fill(daemon, daemonLine(status.daemon));
    keyed(rows, shown, (one) => one.name, newRow, (row, one) => showRow(row, one, page.figures.of(one.name)));
    table.hidden = !shown.length;
    empty.hidden = Boolean(shown.length);
    if (!shown.length) fill(empty, modules.length ? "No module fits the filter." : noModules(status.daemon));
    daemonNotes(notes, status);
    tellTrouble(modules.filter(inTrouble).length);
  };

  // Rows change places when there is a new status, and not with each change of a state: somebody
  // may be about to click on one.
  const ordered = { status: null, wanted: null, names: [] };
  const inOrder = (status, modules) => {
    const wanted = `${only.checked} ${filter.value}`;
    if (ordered.status !== status || ordered.wanted !== wanted) {
      const names = chosen(modules, filter.value, only.checked).map((one) => one.name);
      Object.assign(ordered, { status, wanted, names });
    }
    const byName = new Map(modules.map((one) => [one.name, one]));
    return ordered.names.map((name) => byName.get(name));
  };
  const told = { number: null, at: -Infinity };
  const tellTrouble = (number) => {
    const now = performance.now();
    if (number === told.number || now < told.at + ANNOUNCED_EVERY_MS) return;
    if (told.number !== null) page.announce(number ? `${count(number, "module")} in trouble` : "no module is in trouble");
    Object.assign(told, { number, at: now });
  };

  let timer = 0;
  let nextAt = 0;
  const inAFrame = inFrame(() => {
    const begun = performance.now();
    draw();
    nextAt = begun + DRAWN_EVERY_MS;
    // What is laid out and painted for it is done once this runs.
    setTimeout(() => (nextAt = begun + Math.max(DRAWN_EVERY_MS, SHARE * (performance.now() - begun))));
  });
  const soon = () => {
    const wait = nextAt - performance.now();
    if (wait <= 0) inAFrame();
    else timer ||= setTimeout(() => { timer = 0; inAFrame(); }, wait);
  };
  filter.addEventListener("input", () => {
    const query = filter.value ? `?${new URLSearchParams({ filter: filter.value })}` : "";
    history.replaceState(null, "", `#/modules${query}`);
    inAFrame();
  });
  only.addEventListener("change", inAFrame);
  const undo = page.figures.listen(soon);
  return () => {
    undo();
    clearTimeout(timer);
    inAFrame.cancel();
  };
}

function chosen(modules, words, onlyTrouble) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (one) => {
    if (onlyTrouble && !inTrouble(one)) return false;
    if (!wanted.length) return true;
    const text = `${one.name} ${one.kind} ${one.state} ${one.description} ${note(one)}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  };
  return modules.filter(fits).sort((a, b) => urgency(a) - urgency(b) || (a.name < b.name ? -1 : 1));
}

function summaryOf(modules, status, figures) {
  const states = new Map();
  for (const { state } of modules) states.set(state, (states.get(state) ?? 0) + 1);
  const parts = [...states].sort(([a], [b]) => severity(a) - severity(b)).map(([state, number]) => `${number} ${state}`);
  if (status.quarantined.length) parts.push(`${count(status.quarantined.length, "descriptor")} quarantined`);
  const all = modules.map((one) => figures.of(one.name)).filter(Boolean);
  const sum = (name) => all.reduce((total, one) => total + (one[name] ?? 0), 0);
  const known = all.some((one) => one.rate !== null);
  const rates = known ? ` · ${rate(sum("rate"))} calls/s, ${rate(sum("failures"))} not ok/s` : "";
  const text = count(modules.length, "module");
  return `${parts.length ? `${text}: ${parts.join(", ")}` : text}${rates}`;
}

function daemonLine(daemon) {
  const facts = [
    `stdiod ${daemon.version}`, `pid ${daemon.pid}`, `up ${duration(daemon.uptime_s)}`,
    `${size(daemon.rss_bytes)} of memory`, `containment ${daemon.containment}`,
  ];
  return [facts.join(" · "), daemon.project ? [" · of ", said(daemon.project)] : null];
}

function noModules(daemon) {
  const where = daemon.directories.length ? said(daemon.directories.join(", ")) : "its directories";
  return ["No modules: there is no usable descriptor in ", where, ". ", el("code", {}, "stdiod new NAME"), " begins one."];
}

function newRow(module) {
  const cell = () => {
    const text = el("span", {});
    const spark = sparkline(TREND_LENGTH);
    return { text, spark, td: el("td", { class: "figure" }, el("div", { class: "trendy" }, spark, text)) };
  };
  const plain = () => el("td", { class: "figure" });
  const row = el("tr", { "data-module": module.name });
  const mark = stateMark(module.state);
  const words = el("div", { class: "note" });
  const [calls, p99, memory] = [cell(), cell(), cell()];
  const [cpu, restarts, open] = [plain(), plain(), plain()];
  const link = el("a", { href: `#/modules/${encodeURIComponent(module.name)}` }, said(module.name, 60));
  row.append(
    el("td", { class: "of-state" }, mark),
    el("th", { scope: "row" }, link, " ", el("span", { class: "kind" }, module.kind), words),
    calls.td, p99.td, memory.td, cpu, restarts, open,
  );
  row.parts = { mark, words, calls, p99, memory, cpu, restarts, open, note: null };
  return row;
}

function showRow(row, module, figures) {
  const { parts } = row;
  parts.mark.show(module.state);
  set(row, "data-state", module.state);
  const why = note(module);
  const words = why || module.description;
  set(parts.words, "data-bad", inTrouble(module) && why !== "");
  if (words !== parts.note) {
    parts.note = words;
    fill(parts.words, said(words, 160));
  }
  const trends = figures?.trends;
  for (const [name, cell, text] of [
    ["rate", parts.calls, rate(figures?.rate)],
    ["p99", parts.p99, latency(figures?.p99)],
    ["memory", parts.memory, size(figures?.memory)],
  ]) {
    cell.spark.show(trends?.[name] ?? NO_VALUES);
    write(cell.text, text);
  }
  set(parts.calls.td, "data-bad", figures?.failures ? true : null);
  write(parts.cpu, percent(figures?.cpu));
  write(parts.restarts, module.restarts);
  write(parts.open, module.queued ? `${module.in_flight} + ${module.queued}` : module.in_flight);
}
