/* The journal as it is written, the newest entry first, and the last ones that were there before. */

import { get } from "../api.js";
import { count, el, fill, json, keyed, notice, printable, said, shortened, write } from "../dom.js";
import { duration, moment, timeOfDay } from "../format.js";
import { paced } from "../pace.js";

/** How many rows there are at the most, and how many of the last entries are asked for. */
const SHOWN = 200;
/** What is kept of those that came, for who looks for something in them. */
const KEPT = 2000;
const DRAWN_EVERY_MS = 200;
const ASKED_AFTER_MS = 300;
const FIELDS = ["event", "module", "session"];
const HINTS = { event: "module:*", module: "all", session: "all" };

export function render(into, page) {
  const inputs = Object.fromEntries(FIELDS.map((name) => [name, el("input", {
    type: "search", placeholder: HINTS[name], value: page.query.get(name) ?? "", spellcheck: "false", autocomplete: "off",
  })]));
  const text = el("input", { type: "search", placeholder: "anywhere in an entry", "data-filter": true, spellcheck: "false", autocomplete: "off", value: page.query.get("text") ?? "" });
  const pause = el("button", { type: "button", "aria-pressed": "false" }, "Pause");
  const summary = el("p", { class: "summary" });
  const trouble = el("div", {});
  const rows = el("tbody");
  const table = el("table", { class: "events" },
    el("caption", { class: "unseen" }, "Entries of the journal, the newest first"),
    el("thead", {}, el("tr", {}, ["Number", "Time", "Event", "Module", "What"].map((one) => el("th", { scope: "col" }, one)))),
    rows,
  );
  const empty = el("p", { class: "empty", hidden: true }, "No entry fits.");
  into.append(
    el("header", { class: "head" }, el("h1", {}, "Events"), summary), trouble,
    el("div", { class: "tools filters", role: "search" },
      FIELDS.map((name) => el("label", {}, el("span", {}, name[0].toUpperCase() + name.slice(1)), inputs[name])),
      el("label", {}, el("span", {}, "Text"), text), pause,
    ),
    el("div", { class: "wide" }, table), empty,
  );

  let kept = new Map();
  let journal = null;
  let paused = null;
  let leftOut = 0;
  const wanted = () => ({
    event: pattern(inputs.event.value.trim()), module: inputs.module.value.trim(), session: inputs.session.value.trim(), words: text.value.toLowerCase(),
  });
  const take = (entries) => {
    if (journal !== null && page.live.journal !== journal) {
      // A new one may begin at 1 again: what is kept of the other would stand above it for ever.
      kept = new Map();
      if (paused !== null) paused = 0;
    }
    journal = page.live.journal;
    for (const entry of entries) kept.set(entry.seq, entry);
    for (const seq of kept.keys()) {
      if (kept.size <= KEPT) break;
      kept.delete(seq);
    }
  };
  const draw = paced(() => {
    const filter = wanted();
    const all = [...kept.values()].filter((entry) => fits(entry, filter)).sort((a, b) => b.seq - a.seq);
    const shown = (paused === null ? all : all.filter((one) => one.seq <= paused)).slice(0, SHOWN);
    keyed(rows, shown, (one) => one.id, row, () => {});
    table.hidden = !shown.length;
    empty.hidden = Boolean(shown.length);
    const held = paused === null ? 0 : all.filter((one) => one.seq > paused).length;
    const words = [all.length > SHOWN ? `the last ${SHOWN} of ${all.length}` : count(all.length, "entry").replace("entrys", "entries")];
    if (held) words.push(`${held} new while paused`);
    if (leftOut) words.push(`${leftOut} came too fast to be shown`);
    write(summary, words.join(" · "));
  }, DRAWN_EVERY_MS);

  const ask = paced(async () => {
    const { event, module, session } = Object.fromEntries(FIELDS.map((name) => [name, inputs[name].value.trim()]));
    try {
      const told = await get(["events"], { last: SHOWN, event, module, session_id: session }, { signal: page.signal });
      take(told.events);
      kept = new Map([...kept].sort(([a], [b]) => a - b));
      fill(trouble);
    } catch (error) {
      if (error.isLogin) page.fail(error);
      else if (!page.signal.aborted) fill(trouble, notice(error.message, "warn"));
    }
    draw();
  }, ASKED_AFTER_MS);

  const unlisten = page.live.listen((entries, missed) => {
    leftOut += missed;
    take(entries);
    draw();
  });
  // Asked for once the stream is there, so that nothing is missed between the two.
  const unwatch = page.live.watch((state) => {
    if (state === "live" || state === "refused") ask();
  });
  for (const name of FIELDS) inputs[name].addEventListener("input", () => { draw(); ask(); });
  text.addEventListener("input", draw);
  pause.addEventListener("click", () => {
    paused = paused === null ? Math.max(0, ...kept.keys()) : null;
    pause.setAttribute("aria-pressed", String(paused !== null));
    write(pause, paused === null ? "Pause" : "Resume");
    draw();
  });
  return () => {
    unlisten();
    unwatch();
    ask.cancel();
    draw.cancel();
  };
}

/** A pattern as the daemon reads it: *, ? and [...]; a text without these is looked for anywhere. */
function pattern(glob) {
  if (!glob) return null;
  const parts = glob.match(/\[[^\]]+\]|[\s\S]/g).map((one) => {
    if (one === "*") return ".*";
    if (one === "?") return ".";
    if (one.length > 2 && one[0] === "[") return `[${one.slice(1, -1).replace(/^!/, "^").replace(/[\\\]]/g, "\\$&")}]`;
    return one.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  });
  try {
    return new RegExp(`^${parts.join("")}$`, "s");
  } catch {
    return /^\b$/; // a range the wrong way round: nothing fits
  }
}

function fits(entry, { event, module, session, words }) {
  if (event && !event.test(entry.event)) return false;
  if (module && entry.module !== module) return false;
  if (session && entry.session_id !== session) return false;
  if (!words) return true;
  entry.text ??= JSON.stringify(entry).slice(0, 20_000).toLowerCase();
  return entry.text.includes(words);
}

function row(entry) {
  const details = el("details", {}, el("summary", {}, said(summaryOf(entry), 300)));
  details.addEventListener("toggle", () => {
    const { text: _, ...plain } = entry;
    if (details.open && details.children.length === 1) details.append(json(plain));
  });
  const failed = entry.error || ["error", "failed", "denied"].includes(entry.status);
  return el("tr", { "data-seq": entry.seq, class: failed ? "failed" : null },
    el("td", { class: "dim" }, entry.seq),
    el("td", { class: "dim", title: moment(entry.ts) }, timeOfDay(entry.ts)),
    el("th", { scope: "row" }, said(entry.event, 60)),
    el("td", {}, entry.module ? el("a", { href: `#/modules/${encodeURIComponent(entry.module)}` }, said(entry.module, 60)) : ""),
    el("td", { class: "what" }, details),
  );
}

function summaryOf(entry) {
  const data = entry.data ?? {};
  const parts = [];
  if (entry.event === "module:state") parts.push(`${data.from} → ${data.to}${data.cause ? `, ${data.cause}` : ""}`);
  else if (data.op) parts.push(data.op);
  if (entry.status) parts.push(entry.status);
  if (typeof entry.duration_ms === "number") parts.push(duration(entry.duration_ms / 1000));
  if (entry.error) parts.push(`${entry.error.code}: ${entry.error.message}`);
  if (entry.session_id) parts.push(`session ${entry.session_id}`);
  if (!parts.length || entry.event === "session:patch") parts.push(shortened(JSON.stringify(data), 300));
  return parts.map((one) => printable(one)).join(" · ");
}
