/* What a session does, as a mark and a word. */

import { el, printable, set, write } from "./dom.js";

/** An element; `show(session)` of it shows the status. */
export function statusMark() {
  const mark = el("span", { class: "status" });
  mark.show = (session) => {
    const word = session.ended ? "ended" : session.in_flight ? "busy" : session.status;
    set(mark, "data-status", word);
    write(mark, printable(word) + (session.queued ? `, ${session.queued} wait` : ""));
  };
  return mark;
}
