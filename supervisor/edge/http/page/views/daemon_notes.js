/* What `status` says of the daemon that somebody should know: quarantined descriptors, survivors,
   and whatever it could not do. */

import { count, el, fill, keyed, said } from "../dom.js";
import { duration, latency, size } from "../format.js";

const NOTICED_STALL_MS = 50;
const NOTICED_HELD_BYTES = 1 << 20;
const NEARLY_ALL = 0.75;
const MOST = 50;

/** Show them in `into`; what did not change is left alone, so that it can be read and selected. */
export function daemonNotes(into, status) {
  const parts = [
    ["Quarantined descriptors", status.quarantined.map((one) => [one.descriptor, one.reason])],
    ["Containers left over", status.daemon.left_containers.map((command) => [command, ""])],
    ["Leaving: its descriptor is gone", status.daemon.leaving.map((one) => [one.name, one.state])],
    ["Of the daemon", [...troubles(status.daemon)].map((words) => [words, ""])],
  ].filter(([, items]) => items.length);
  keyed(
    into,
    parts,
    ([title]) => title,
    ([title]) =>
      el("section", { class: "panel" }, el("h2", {}, title), el("ul", { class: "facts" })),
    (panel, [, items]) => {
      const text = JSON.stringify(items);
      if (panel.shown === text) return;
      panel.shown = text;
      const rows = items
        .slice(0, MOST)
        .map(([what, why]) =>
          el("li", {}, said(what), why ? el("div", { class: "note" }, said(why, 1000)) : null),
        );
      if (items.length > MOST) rows.push(el("li", {}, `${count(items.length - MOST, "more")}`));
      fill(panel.querySelector("ul"), rows);
    },
  );
}

function* troubles(daemon) {
  const journal = daemon.journal ?? {};
  if (journal.problem) yield `the journal cannot be written: ${journal.problem}`;
  for (const aside of journal.set_aside ?? [])
    yield `a journal was set aside as ${aside.path}: ${aside.why}`;
  if (daemon.policy?.problem)
    yield `the policy is bad, and the last good one in use: ${daemon.policy.problem}`;
  const stall = daemon.longest_stall;
  if (stall && stall.ms >= NOTICED_STALL_MS) {
    yield `longest stall ${latency(stall.ms)}${stall.culprit ? `, by ${stall.culprit} (${stall.doing})` : ""}`;
  }
  for (const one of daemon.stuck ?? []) yield `stuck for ${duration(one.for_s)}: ${one.doing}`;
  if (daemon.own_log?.lost_lines)
    yield `the daemon's own log has lost ${count(daemon.own_log.lost_lines, "line")}`;
  if (daemon.log_error) yield `a module's log could not be written: ${daemon.log_error}`;
  const files = daemon.open_files;
  if (files && files.used > files.limit * NEARLY_ALL)
    yield `${files.used} of ${files.limit} files are open`;
  const held = daemon.held_bytes;
  if (held && held.total >= NOTICED_HELD_BYTES) {
    const most = held.parties?.[0];
    yield `holds ${size(held.total)} of ${size(held.limit)} for others${most ? `, most for ${most.party}` : ""}`;
  }
  if (daemon.connections?.refused)
    yield `${count(daemon.connections.refused, "client")} refused: there was no room for more`;
  if (daemon.guardian_problem) yield daemon.guardian_problem;
  if (daemon.data_dir_problem) yield daemon.data_dir_problem;
}
