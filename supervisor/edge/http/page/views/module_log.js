/* The log of a module, live: the last lines, and each that follows. Of a flood the last ones. */

import { lines as streamed } from "../api.js";
import { el, fill, inFrame, notice, set, unfolding, write } from "../dom.js";
import { timeOfDay } from "../format.js";

const FIRST = 200;
const MOST = 1000;
const AGAIN_MS = 2000;
/** After a refusal: it will be the same for a while. */
const LATER_MS = 15_000;
const LINE_CHARS = 2000;
/** So near its end somebody reads along. */
const NEAR_PX = 40;

export function log(name, page) {
  const list = el("div", {
    class: "log code",
    role: "log",
    "aria-live": "off",
    "aria-label": "Log",
    tabindex: "0",
  });
  const state = el("span", { class: "note" });
  const trouble = el("div");
  const element = el("section", { class: "panel" }, el("h2", {}, "Log ", state), trouble, list);
  let waiting = [];
  let follows = true;
  let restarted = false;
  let gone = false;
  let stream = null;

  list.addEventListener("scroll", () => {
    follows = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR_PX;
  });
  const draw = inFrame(() => {
    if (restarted) list.replaceChildren();
    restarted = false;
    list.append(...waiting.slice(-MOST).map(newLine));
    waiting = [];
    while (list.childElementCount > MOST) list.firstChild.remove();
    if (follows) list.scrollTop = list.scrollHeight;
  });

  async function follow() {
    stream = new AbortController();
    const signal = AbortSignal.any([page.signal, stream.signal]);
    restarted = true;
    waiting = [];
    for await (const line of streamed("GET", ["modules", name, "logs"], {
      query: { lines: FIRST },
      signal,
    })) {
      if (line.message === undefined) continue;
      fill(trouble);
      write(state, "live");
      waiting.push(line);
      if (waiting.length > MOST) waiting.shift();
      draw();
    }
  }

  async function run() {
    while (!gone && !page.signal.aborted) {
      let waitMs = AGAIN_MS;
      let words = "away";
      if (!document.hidden) {
        try {
          await follow();
        } catch (error) {
          if (page.signal.aborted || gone) return;
          if (error.isLogin) return page.fail(error);
          if (error.status) {
            fill(trouble, notice(error.message, "warn"));
            waitMs = LATER_MS;
            words = "";
          }
        }
        write(state, document.hidden ? "paused" : words);
      }
      await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
  }
  const look = () => {
    if (document.hidden) stream?.abort();
  };
  document.addEventListener("visibilitychange", look);
  run();
  return {
    element,
    undo() {
      gone = true;
      stream?.abort();
      draw.cancel();
      document.removeEventListener("visibilitychange", look);
    },
  };
}

function newLine(line) {
  const item = el(
    "div",
    {},
    el("time", { class: "dim" }, line.ts === undefined ? "" : timeOfDay(line.ts)),
    " ",
    unfolding(line.message, LINE_CHARS),
  );
  set(item, "data-stream", line.stream ?? null);
  return item;
}
