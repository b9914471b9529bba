/* The figures of a module, its facts and its processes. */

import { el, fill, keyed, said, write } from "../dom.js";
import { TREND_LENGTH } from "../figures.js";
import { duration, latency, NONE, percent, rate, size } from "../format.js";
import { sparkline, stateMark } from "../marks.js";
import { traced } from "../trouble.js";

const NO_VALUES = [];

export function now() {
  const figures = {
    rate: figure("Calls/s"),
    p50: figure("p50", false),
    p99: figure("p99"),
    memory: figure("Memory"),
    cpu: figure("CPU", false),
    restarts: figure("Restarts", false),
    open: figure("Open", false),
  };
  const facts = el("dl", { class: "pairs" });
  const instances = el("tbody");
  const table = el(
    "div",
    { class: "wide" },
    el(
      "table",
      {},
      el("caption", { class: "unseen" }, "Processes"),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          ["Process", "State", "pid", "Up", "CPU time", "Memory", "Open"].map((one, at) =>
            el("th", { scope: "col", class: at > 1 ? "figure" : null }, one),
          ),
        ),
      ),
      instances,
    ),
  );
  const element = el(
    "div",
    {},
    el(
      "dl",
      { class: "figures" },
      Object.values(figures).map((one) => one.element),
    ),
    el(
      "details",
      { class: "panel" },
      el("summary", {}, el("h2", {}, "Details and processes")),
      facts,
      table,
    ),
  );
  let known = "";

  function show(module, of) {
    const trends = of?.trends ?? {};
    figures.rate.show(
      rate(of?.rate),
      trends.rate,
      of?.failures ? `${rate(of.failures)} not ok` : "",
    );
    figures.p50.show(latency(of?.p50));
    figures.p99.show(latency(of?.p99), trends.p99);
    figures.memory.show(size(of?.memory), trends.memory);
    figures.cpu.show(percent(of?.cpu));
    figures.restarts.show(String(module.restarts));
    figures.open.show(
      String(module.in_flight),
      null,
      module.queued ? `${module.queued} queued` : "",
    );
    const pairs = factsOf(module);
    const text = JSON.stringify(pairs);
    if (text !== known) {
      known = text;
      fill(
        facts,
        pairs.map(([name, value]) =>
          el("div", {}, el("dt", {}, name), el("dd", {}, said(value, 2000))),
        ),
      );
    }
    table.hidden = !module.instances.length;
    keyed(instances, module.instances, (one) => one.id, newRow, showRow);
  }
  return { element, show };
}

function figure(label, hasTrend = true) {
  const text = el("span", { class: "number" });
  const more = el("span", { class: "note" });
  const spark = hasTrend ? sparkline(TREND_LENGTH) : null;
  const element = el("div", {}, el("dt", {}, label), el("dd", {}, text, more, spark));
  return {
    element,
    show(value, trend, words = "") {
      write(text, value);
      write(more, words);
      spark?.show(trend ?? NO_VALUES);
    },
  };
}

function factsOf(module) {
  const { counters, latency_ms: times } = module;
  const odd = [
    [counters.late_lines, "late lines"],
    [counters.quarantined_lines, "lines that are not the protocol"],
    [counters.left_out_log_lines, "log lines left out"],
  ].filter(([number]) => number);
  return [
    ["Protocol", `${module.protocol}, ${module.url ? "service" : module.lifecycle}`],
    ["Wanted", `${module.wanted} (${module.start} start)`],
    ["Answered", `${counters.invocations}, ${counters.failures} of them failed`],
    [
      "Since the start",
      times.count
        ? `p50 ${latency(times.p50)}, p99 ${latency(times.p99)}, longest ${latency(times.max)}`
        : NONE,
    ],
    ["Service", module.url],
    ["MCP", module.mcp && `${module.mcp.revision} (${module.mcp.era})`],
    ["Waits for", module.waits_for.join(", ")],
    ["Runs without", module.missing.join(", ")],
    ["Descriptor", module.descriptor],
    ["Quarantined", module.quarantined],
    ...module.misfits.map((one) => [
      "Does not fit",
      typeof one === "string" ? one : JSON.stringify(one),
    ]),
    ...odd.map(([number, what]) => ["Odd", `${number} ${what}`]),
    ...module.instances
      .filter((one) => one.warning)
      .map((one) => ["Warning", `${one.id}: ${one.warning}`]),
    ...module.instances
      .map(traced)
      .filter(Boolean)
      .map((words) => ["Traced", words]),
  ].filter(([, value]) => value);
}

function newRow(one) {
  const mark = stateMark(one.state);
  const cells = Array.from({ length: 5 }, () => el("td", { class: "figure" }));
  const row = el("tr", {}, el("th", { scope: "row" }, said(one.id, 80)), el("td", {}, mark), cells);
  row.parts = { mark, cells };
  return row;
}

function showRow(row, one) {
  row.parts.mark.show(one.state);
  const texts = [
    one.pid ?? NONE,
    duration(one.uptime_s),
    one.cpu_s === null ? NONE : `${one.cpu_s.toFixed(1)}s`,
    size(one.rss_bytes),
    one.in_flight,
  ];
  texts.forEach((text, at) => write(row.parts.cells[at], text));
}
