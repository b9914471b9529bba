/* What the last process of a module ended of, with the evidence, and how its state changed. */

import { get } from "../api.js";
import { block, el, fill, inFrame, keyed, notice, printable, said, write } from "../dom.js";
import { ago, moment, timeOfDay } from "../format.js";
import { stateMark } from "../marks.js";
import { limitText } from "../trouble.js";

const MOST = 30;

export function ends(name, page) {
  const last = el("div", { class: "last" });
  const when = el("p", { class: "note" });
  const list = el("ol", { class: "changes", tabindex: "0", "aria-label": "Changes of state" });
  const trouble = el("div");
  const element = el(
    "section",
    { class: "panel" },
    el("h2", {}, "Last exits"),
    last,
    when,
    trouble,
    el("h3", {}, "Changes of state"),
    list,
  );
  let known = null;
  let changes = [];

  const draw = inFrame(() =>
    keyed(
      list,
      [...changes].reverse(),
      (one) => one.id,
      newChange,
      () => {},
    ),
  );
  const add = (entries) => {
    const found = entries.filter((one) => one.event === "module:state" && one.module === name);
    if (!found.length) return;
    const seen = new Set(changes.map((one) => one.id));
    // By time and not by number: a new journal begins at 1 again.
    changes = [...changes, ...found.filter((one) => !seen.has(one.id))]
      .sort((a, b) => a.ts - b.ts)
      .slice(-MOST);
    draw();
  };
  const undo = page.live.listen(add);
  get(["events"], { module: name, event: "module:state", last: MOST }, { signal: page.signal })
    .then((answer) => add(answer.events))
    .catch((error) => {
      if (page.signal.aborted) return;
      if (error.isLogin) page.fail(error);
      else fill(trouble, notice(error.message, "warn"));
    });

  function show(module) {
    const died = module.last_exit;
    if (died) write(when, `${ago(died.ts)}, ${moment(died.ts)}`);
    const text = JSON.stringify(died);
    if (text === known) return;
    known = text;
    if (!died)
      fill(last, el("p", { class: "dim" }, "No process of it has ended since the daemon started."));
    else fill(last, evidence(died));
  }
  return {
    element,
    show,
    undo: () => {
      undo();
      draw.cancel();
    },
  };
}

function evidence(died) {
  const how = died.signal
    ? `signal ${died.signal}`
    : died.exit_code === null
      ? null
      : `exit code ${died.exit_code}`;
  const pairs = [
    ["Reason", died.reason],
    ["Ended by", how],
    ["Limit", died.limit && limitText(died.limit)],
    ["Stopped by", died.stopped_by_host ? "the daemon" : null],
    ["Kept down by", died.rule],
    ["Survivors", listed(died.survivors)],
  ].filter(([, value]) => value);
  return [
    el("p", { class: "cause" }, said(died.message, 2000)),
    el(
      "dl",
      { class: "pairs" },
      pairs.map(([name, value]) =>
        el("div", {}, el("dt", {}, name), el("dd", {}, said(value, 1000))),
      ),
    ),
    died.stderr_tail?.length
      ? block(died.stderr_tail.join("\n"), { label: "The end of stderr" })
      : null,
  ];
}

function listed(some) {
  return (some ?? []).map((pid) => `pid ${pid}`).join(", ");
}

function newChange(entry) {
  const { from, to, cause, instance } = entry.data ?? {};
  return el(
    "li",
    { "data-seq": entry.seq },
    el("time", { class: "code dim" }, timeOfDay(entry.ts)),
    " ",
    el("span", { class: "dim" }, `${printable(from ?? "")} → `),
    stateMark(String(to)),
    el(
      "div",
      { class: "note" },
      said(cause ?? "", 500),
      instance ? [" · ", said(instance, 80)] : null,
    ),
  );
}
