/* All sessions, the newest first. */

import { get } from "../api.js";
import { count, el, fill, inFrame, keyed, said, set, write } from "../dom.js";
import { ago, moment } from "../format.js";
import { followed } from "../pace.js";
import { statusMark } from "../session_words.js";

const PAGE = 100;
const MOST = 1000;
const COLUMNS = ["Status", "Session", "Served by", "Invocations", "Revision", "Changed"];

export function render(into, page) {
  const summary = el("p", { class: "summary" });
  const trouble = el("div", {});
  const filter = el("input", { type: "search", placeholder: "title, id, agent or owner", "data-filter": true, spellcheck: "false", autocomplete: "off" });
  const ended = el("input", { type: "checkbox" });
  const rows = el("tbody");
  const table = el("table", { class: "sessions" },
    el("caption", { class: "unseen" }, "Sessions, the newest first"),
    el("thead", {}, el("tr", {}, COLUMNS.map((one, at) => el("th", { scope: "col", class: at > 2 ? "figure" : null }, one)))),
    rows,
  );
  const empty = el("p", { class: "empty", hidden: true });
  const more = el("button", { type: "button", hidden: true }, "Show older ones");
  into.append(
    el("header", { class: "head" }, el("h1", {}, "Sessions"), summary), trouble,
    el("div", { class: "tools", role: "search" },
      el("label", {}, el("span", {}, "Filter"), filter),
      el("label", { class: "check" }, ended, "ended ones, too"),
    ),
    el("div", { class: "wide" }, table), empty, el("p", { class: "older" }, more),
  );

  let listed = null;
  let limit = PAGE;
  const draw = inFrame(() => {
    if (listed === null) return;
    const shown = chosen(listed.sessions, filter.value);
    keyed(rows, shown, (one) => one.session_id, newRow, showRow);
    table.hidden = !shown.length;
    empty.hidden = Boolean(shown.length);
    write(empty, listed.sessions.length ? "No session fits the filter." : "No sessions. `stdiod session new` begins one.");
    write(summary, `${count(listed.live, "session")}, ${listed.busy} busy, ${listed.ended} ended`);
    more.hidden = !listed.next || limit >= MOST;
  });
  const ask = async () => {
    listed = await get(["sessions"], { limit, ended: ended.checked || undefined }, { signal: page.signal });
    draw();
  };
  const follow = followed(page, trouble, ask, (entry) => Boolean(entry.session_id));
  const clock = setInterval(draw, 10_000);
  filter.addEventListener("input", draw);
  ended.addEventListener("change", follow.soon);
  more.addEventListener("click", () => {
    limit = Math.min(MOST, limit * 2);
    follow.soon();
  });
  return () => {
    follow();
    clearInterval(clock);
    draw.cancel();
  };
}

function chosen(sessions, words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return sessions.filter((one) => {
    const text = `${one.session_id} ${one.title ?? ""} ${one.agent_name ?? ""} ${one.owner ?? ""} ${one.status}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

function newRow(session) {
  const parts = { mark: statusMark(), title: el("a", { href: `#/sessions/${encodeURIComponent(session.session_id)}` }), note: el("div", { class: "note" }), agent: el("td"), invocations: figure(), revision: figure(), changed: figure() };
  const row = el("tr", { "data-session": session.session_id },
    el("td", { class: "of-state" }, parts.mark),
    el("th", { scope: "row" }, parts.title, parts.note),
    parts.agent, parts.invocations, parts.revision, parts.changed,
  );
  row.parts = parts;
  return row;
}

function figure() {
  return el("td", { class: "figure" });
}

function showRow(row, session) {
  const { parts } = row;
  parts.mark.show(session);
  const words = JSON.stringify([session.title, session.agent_name, session.owner, session.parent]);
  if (row.words !== words) {
    row.words = words;
    fill(parts.title, said(session.title || session.session_id, 100));
    fill(parts.note, session.title ? [said(session.session_id, 80), " · "] : null, "of ", said(session.owner ?? "nobody", 80), session.parent ? [" · a fork of ", said(session.parent, 80)] : null);
    fill(parts.agent, said(session.agent_name ?? session.roles?.orchestrator ?? "–", 80));
  }
  write(parts.invocations, session.in_flight ? `${session.invocations} + ${session.in_flight}` : session.invocations);
  write(parts.revision, session.revision);
  write(parts.changed, ago(session.updated));
  set(parts.changed, "title", moment(session.updated));
}
