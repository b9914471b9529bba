/* All modules, those in trouble first: how each is, and what it does. */

import { count, el, fill, keyed, notice, printable, said, write } from "../dom.js";
import { duration, rate, size } from "../format.js";
import { repainting } from "../repaint.js";
import { inTrouble, note, severity, urgency } from "../trouble.js";
import { daemonNotes } from "./daemon_notes.js";
import { COLUMNS, newRow, showRow } from "./module_row.js";

/** How often a screen reader is told how many are in trouble, at the most. */
const ANNOUNCED_EVERY_MS = 5000;
/** So that `worker-2` stands before `worker-10`. */
const NAMES = new Intl.Collator("en", { numeric: true });

export function render(into, page) {
  const parts = frame(page.query.get("filter") ?? "");
  into.append(...parts.elements);
  const inOrder = ordering(parts);
  const tellTrouble = announcer(page);
  const draw = () => {
    const { status, error } = page.figures;
    fill(
      parts.trouble,
      error
        ? notice(
            status ? `${error.message} These are the last figures.` : error.message,
            status ? "warn" : "bad",
          )
        : null,
    );
    if (!status) return;
    const modules = status.modules.map((one) => ({ ...one, state: page.figures.stateOf(one) }));
    write(parts.summary, printable(summaryOf(modules, status, page.figures)));
    fill(parts.daemon, daemonLine(status.daemon));
    const shown = inOrder(status, modules);
    keyed(
      parts.rows,
      shown,
      (one) => one.name,
      newRow,
      (row, one) => showRow(row, one, page.figures.of(one.name)),
    );
    parts.table.hidden = !shown.length;
    parts.empty.hidden = Boolean(shown.length);
    if (!shown.length)
      fill(parts.empty, modules.length ? "No module fits the filter." : noModules(status.daemon));
    daemonNotes(parts.notes, status);
    tellTrouble(modules.filter(inTrouble).length);
  };
  const soon = repainting(draw);
  parts.filter.addEventListener("input", () => {
    const query = parts.filter.value
      ? `?${new URLSearchParams({ filter: parts.filter.value })}`
      : "";
    history.replaceState(null, "", `#/modules${query}`);
    soon.now();
  });
  parts.only.addEventListener("change", soon.now);
  const undo = page.figures.listen(soon);
  return () => {
    undo();
    soon.cancel();
  };
}

/** All that stands there, whatever the modules are. */
function frame(words) {
  const parts = {
    summary: el("p", { class: "summary" }),
    daemon: el("p", { class: "daemon" }),
    filter: el("input", {
      type: "search",
      placeholder: "name, kind, state or words",
      "data-filter": true,
      spellcheck: "false",
      autocomplete: "off",
      value: words,
    }),
    only: el("input", { type: "checkbox" }),
    rows: el("tbody"),
    empty: el("p", { class: "empty", hidden: true }),
    notes: el("div", { class: "notes" }),
    trouble: el("div"),
  };
  parts.table = el(
    "table",
    { class: "modules" },
    el("caption", { class: "unseen" }, "Modules, those in trouble first"),
    el(
      "colgroup",
      {},
      COLUMNS.map(() => el("col")),
    ),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        COLUMNS.map(([name, kind]) => el("th", { scope: "col", class: kind }, name)),
      ),
    ),
    parts.rows,
  );
  parts.elements = [
    el("header", { class: "head" }, el("h1", {}, "Modules"), parts.summary, parts.daemon),
    parts.trouble,
    el(
      "div",
      { class: "tools", role: "search" },
      el("label", {}, el("span", {}, "Filter"), parts.filter),
      el("label", { class: "check" }, parts.only, "only trouble"),
    ),
    el("div", { class: "wide" }, parts.table),
    parts.empty,
    parts.notes,
  ];
  return parts;
}

/** Rows change places when there is a new status, and not with each change of a state: somebody
    may be about to click on one. */
function ordering({ filter, only }) {
  let known = { status: null, wanted: null, names: [] };
  return (status, modules) => {
    const wanted = `${only.checked} ${filter.value}`;
    if (known.status !== status || known.wanted !== wanted) {
      const names = chosen(modules, filter.value, only.checked).map((one) => one.name);
      known = { status, wanted, names };
    }
    const byName = new Map(modules.map((one) => [one.name, one]));
    return known.names.map((name) => byName.get(name));
  };
}

function announcer(page) {
  let told = null;
  let at = -Infinity;
  return (number) => {
    const now = performance.now();
    if (number === told || now < at + ANNOUNCED_EVERY_MS) return;
    if (told !== null)
      page.announce(number ? `${count(number, "module")} in trouble` : "no module is in trouble");
    told = number;
    at = now;
  };
}

function chosen(modules, words, onlyTrouble) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (one) => {
    if (onlyTrouble && !inTrouble(one)) return false;
    if (!wanted.length) return true;
    const text =
      `${one.name} ${one.kind} ${one.state} ${one.description} ${note(one)}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  };
  return modules
    .filter(fits)
    .sort((a, b) => urgency(a) - urgency(b) || NAMES.compare(a.name, b.name));
}

function summaryOf(modules, status, figures) {
  const states = new Map();
  for (const { state } of modules) states.set(state, (states.get(state) ?? 0) + 1);
  const parts = [...states]
    .sort(([a], [b]) => severity(a) - severity(b))
    .map(([state, number]) => `${number} ${state}`);
  if (status.quarantined.length)
    parts.push(`${count(status.quarantined.length, "descriptor")} quarantined`);
  const all = modules.map((one) => figures.of(one.name)).filter(Boolean);
  const sum = (name) => all.reduce((total, one) => total + (one[name] ?? 0), 0);
  const known = all.some((one) => one.rate !== null);
  const rates = known ? ` · ${rate(sum("rate"))} calls/s, ${rate(sum("failures"))} failures/s` : "";
  const text = count(modules.length, "module");
  return `${parts.length ? `${text}: ${parts.join(", ")}` : text}${rates}`;
}

function daemonLine(daemon) {
  const facts = [
    `stdiod ${daemon.version}`,
    `pid ${daemon.pid}`,
    `up ${duration(daemon.uptime_s)}`,
    `${size(daemon.rss_bytes)} of memory`,
    `containment ${daemon.containment}`,
  ];
  return [facts.join(" · "), daemon.project ? [" · of ", said(daemon.project)] : null];
}

function noModules(daemon) {
  const where = daemon.directories.length ? said(daemon.directories.join(", ")) : "its directories";
  return [
    "No modules: there is no usable descriptor in ",
    where,
    ". ",
    el("code", {}, "stdiod new NAME"),
    " begins one.",
  ];
}
