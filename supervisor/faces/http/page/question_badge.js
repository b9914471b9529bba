/* How many questions wait for a person, beside the name of the view that answers them. */

import { get } from "./api.js";
import { el, set, write } from "./dom.js";
import { paced } from "./pace.js";

const EVERY_MS = 1000;

export function questionBadge(link, live) {
  const number = el("span", { class: "badge", hidden: true });
  link.append(number);
  const ask = paced(async () => {
    try {
      const waiting = (await get(["approvals"])).approvals.length;
      write(number, waiting);
      number.hidden = !waiting;
      set(link, "aria-label", waiting ? `Approvals, ${waiting} waiting` : null);
    } catch {
      number.hidden = true; // the view itself says what is wrong
    }
  }, EVERY_MS);
  live.watch((state) => {
    if (state === "live") ask();
  });
  live.listen((entries) => {
    if (entries.some((entry) => String(entry.event).startsWith("approval:"))) ask();
  });
}
