/* A row of the list of modules. */

import { el, fill, said, set, write } from "../dom.js";
import { TREND_LENGTH } from "../figures.js";
import { latency, percent, rate, size } from "../format.js";
import { sparkline, stateMark } from "../marks.js";
import { inTrouble, note } from "../trouble.js";

export const COLUMNS = [
  ["State", null],
  ["Module", null],
  ["Calls/s", "figure"],
  ["p99", "figure"],
  ["Memory", "figure"],
  ["CPU", "figure"],
  ["Restarts", "figure"],
  ["Open", "figure"],
];

const NO_VALUES = [];

export function newRow(module) {
  const mark = stateMark(module.state);
  const words = el("div", { class: "note" });
  const [calls, p99, memory] = [trendCell(), trendCell(), trendCell()];
  const [cpu, restarts, open] = [plainCell(), plainCell(), plainCell()];
  const href = `#/modules/${encodeURIComponent(module.name)}`;
  const row = el(
    "tr",
    { "data-module": module.name },
    el("td", { class: "of-state" }, mark),
    el(
      "th",
      { scope: "row" },
      el("a", { href }, said(module.name, 60)),
      " ",
      el("span", { class: "kind" }, module.kind),
      words,
    ),
    calls.td,
    p99.td,
    memory.td,
    cpu,
    restarts,
    open,
  );
  row.parts = { mark, words, calls, p99, memory, cpu, restarts, open, note: null };
  return row;
}

function trendCell() {
  const text = el("span", {});
  const spark = sparkline(TREND_LENGTH);
  const td = el("td", { class: "figure" }, el("div", { class: "trendy" }, spark, text));
  return { text, spark, td };
}

function plainCell() {
  return el("td", { class: "figure" });
}

/** Have a row show a module as it is now, and its figures if there are any. */
export function showRow(row, module, figures) {
  const { parts } = row;
  parts.mark.show(module.state);
  set(row, "data-state", module.state);
  showWords(parts, module);
  for (const [trend, cell, text] of [
    ["rate", parts.calls, rate(figures?.rate)],
    ["p99", parts.p99, latency(figures?.p99)],
    ["memory", parts.memory, size(figures?.memory)],
  ]) {
    cell.spark.show(figures?.trends[trend] ?? NO_VALUES);
    write(cell.text, text);
  }
  set(parts.calls.td, "data-bad", Boolean(figures?.failures));
  write(parts.cpu, percent(figures?.cpu));
  write(parts.restarts, module.restarts);
  write(parts.open, module.queued ? `${module.in_flight} + ${module.queued}` : module.in_flight);
}

function showWords(parts, module) {
  const why = note(module);
  const words = why || module.description;
  set(parts.words, "data-bad", inTrouble(module) && why !== "");
  if (words === parts.note) return;
  parts.note = words;
  fill(parts.words, said(words, 160));
}
