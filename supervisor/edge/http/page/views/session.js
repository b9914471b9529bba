/* One session: its state as a tree, its plan, its last invocations, as they change. */

import { get } from "../api.js";
import { count, el, fill, keyed, printable, said, set, write } from "../dom.js";
import { ago, duration, moment, timeOfDay } from "../format.js";
import { followed } from "../pace.js";
import { statusMark } from "../session_words.js";
import { tree } from "../tree.js";

/** A change of the state is told to a screen reader, but not each of many. */
const TOLD_EVERY_MS = 5000;
const NAMED = 5;

export function render(into, page) {
  const id = page.parameters.id;
  const heading = el("h1", {}, said(id, 100));
  const status = statusMark();
  const facts = el("p", { class: "daemon" });
  const trouble = el("div", {});
  const revision = el("span", { class: "dim" });
  const state = tree("State");
  const plan = tree("Plan");
  const planPanel = el("section", { class: "panel", hidden: true }, el("h2", {}, "Plan"), plan);
  const rows = el("tbody");
  const none = el("p", { class: "dim" }, "Nothing was invoked in it yet.");
  const table = el("table", { class: "history" },
    el("caption", { class: "unseen" }, "The last invocations, the newest first"),
    el("thead", {}, el("tr", {}, ["When", "Op", "Outcome", "Took", "Request"].map((one) => el("th", { scope: "col", class: one === "Took" ? "figure" : null }, one)))),
    rows,
  );
  const links = el("p", { class: "links" },
    el("a", { href: `#/assets?session=${encodeURIComponent(id)}` }, "Its assets"),
    el("a", { href: `#/events?session=${encodeURIComponent(id)}` }, "Its events"),
  );
  into.append(
    el("p", { class: "back" }, el("a", { href: "#/sessions" }, "Sessions")),
    el("header", { class: "head" }, heading, el("p", { class: "summary" }, status), facts, links), trouble,
    el("section", { class: "panel" }, el("h2", {}, "State ", revision), state),
    planPanel,
    el("section", { class: "panel" }, el("h2", {}, "Invocations"), none, el("div", { class: "scrolled" }, table)),
  );
  page.title(id);

  let toldAt = -Infinity;
  const tell = (changed, session) => {
    if (!changed.length || performance.now() - toldAt < TOLD_EVERY_MS) return;
    toldAt = performance.now();
    const names = changed.slice(0, NAMED).map((path) => path.join("."));
    page.announce(printable(`State ${session.revision}: ${names.join(", ")} changed`));
  };
  const ask = async () => {
    const session = await get(["sessions", id], {}, { signal: page.signal });
    if (session.title) fill(heading, said(session.title, 100));
    page.title(session.title || id);
    status.show(session);
    fill(facts, factsOf(session, id));
    write(revision, `revision ${session.revision}`);
    tell(state.show(session.state), session);
    planPanel.hidden = session.plan === null;
    if (session.plan !== null) plan.show(session.plan);
    const history = [...session.history].reverse();
    keyed(rows, history, (one) => `${one.request_id} ${one.ts}`, newRow, () => {});
    none.hidden = Boolean(history.length);
    table.hidden = !history.length;
  };
  return followed(page, trouble, ask, (entry) => entry.session_id === id, 300);
}

function factsOf(session, id) {
  const parts = [
    session.title ? said(id, 100) : null,
    session.agent_name ? ["served by ", said(session.agent_name, 80)] : null,
    ["of ", said(session.owner ?? "nobody", 80)],
    session.parent ? ["a fork of ", el("a", { href: `#/sessions/${encodeURIComponent(session.parent)}` }, said(session.parent, 80))] : null,
    session.cwd ? ["in ", said(session.cwd, 200)] : null,
    `begun ${moment(session.created)}`,
    count(session.invocations, "invocation"),
  ].filter(Boolean);
  return parts.flatMap((one, at) => (at ? [" · ", one] : [one]));
}

function newRow(one) {
  const outcome = el("span", { class: "verdict" }, one.ok ? "ok" : said(one.code ?? "not ok", 60));
  set(outcome, "data-ok", one.ok ? "yes" : "no");
  return el("tr", {},
    el("td", { title: `${moment(one.ts)}, ${ago(one.ts)}` }, timeOfDay(one.ts)),
    el("th", { scope: "row" }, el("a", { href: `#/modules/${encodeURIComponent(one.module)}` }, said(one.module, 60)), ".", said(one.op, 60)),
    el("td", {}, outcome),
    el("td", { class: "figure" }, one.duration_ms === null ? "" : duration(one.duration_ms / 1000)),
    el("td", { class: "dim" }, said(one.request_id ?? "", 40)),
  );
}
