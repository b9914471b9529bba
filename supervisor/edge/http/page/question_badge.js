/* How many questions wait for a person, beside the name of the view that answers them. */

import { get } from "./api.js";
import { el, write } from "./dom.js";
import { paced } from "./pace.js";

const EVERY_MS = 1000;

export function questionBadge(link, live) {
  const number = el("span", {});
  const badge = el("span", { class: "badge", hidden: true }, number, el("span", { class: "unseen" }, " waiting"));
  link.append(badge);
  const ask = paced(async () => {
    try {
      const waiting = (await get(["approvals"])).approvals.length;
      write(number, waiting);
      badge.hidden = !waiting;
    } catch {
      badge.hidden = true; // the view itself says what is wrong
    }
  }, EVERY_MS);
  live.watch((state) => {
    if (state === "live") ask();
  });
  live.listen((entries) => {
    if (entries.some((entry) => String(entry.event).startsWith("approval:"))) ask();
  });
}
