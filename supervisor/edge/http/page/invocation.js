/* One invocation of a module's op: what streams from it while it runs, and how it ended. */

import { lines } from "./api.js";
import { block, count, el, fill, inFrame, json, notice, said, unfolding, write } from "./dom.js";
import { duration, size } from "./format.js";

/** Of more events the first are left out. */
const MOST = 500;
const LINE_CHARS = 2000;

export function invocation(module, page) {
  const list = el("div", {
    class: "log code",
    "aria-label": "Events",
    role: "log",
    "aria-live": "off",
    tabindex: "0",
  });
  const state = el("p", { class: "note" });
  const output = el(
    "section",
    { "aria-label": "Output", hidden: true },
    el("h3", {}, "Output"),
    state,
    list,
  );
  const result = el("section", { "aria-label": "Result", hidden: true });
  const watchers = new Set();
  let running = null;
  let waiting = [];
  let seen = 0;

  const draw = inFrame(() => {
    list.append(...waiting.map(([at, event]) => newEvent(at, event)));
    waiting = [];
    while (list.childElementCount > MOST) list.firstChild.remove();
    list.hidden = !list.childElementCount;
    const over = seen - list.childElementCount;
    write(
      state,
      over > 0
        ? `${count(seen, "event")}; the last ${MOST} are shown`
        : seen
          ? count(seen, "event")
          : "",
    );
    list.scrollTop = list.scrollHeight;
  });

  function become(now) {
    running = now;
    for (const watcher of watchers) watcher(now !== null);
  }

  async function begin(op, args, options, report) {
    running?.abort();
    const mine = new AbortController();
    become(mine);
    list.replaceChildren();
    waiting = [];
    seen = 0;
    output.hidden = false;
    result.hidden = true;
    write(state, "Running …");
    const begun = performance.now();
    const signal = AbortSignal.any([page.signal, mine.signal]);
    let response = null;
    try {
      const body = { op, args, ...options };
      for await (const event of lines("POST", ["modules", module, "invoke"], { body, signal })) {
        if (event.type === undefined && "ok" in event) {
          response = event;
          continue;
        }
        seen += 1;
        waiting.push([(performance.now() - begun) / 1000, event]);
        if (waiting.length > MOST) waiting.shift();
        draw();
      }
      if (response === null) end(notice("The daemon went away before the answer came."));
      else if (response.ok) end(succeeded(response), `${op} is done`);
      else failed(response.error, response.duration_ms, report);
    } catch (error) {
      if (page.signal.aborted) return;
      if (error.isLogin) page.fail(error);
      else if (mine.signal.aborted)
        end(notice(`Cancelled after ${duration((performance.now() - begun) / 1000)}.`, "calm"));
      else failed(error, null, report);
    }
    if (running === mine) become(null);
    if (!seen) output.hidden = true;
  }

  function failed(error, durationMs, report) {
    const { code, message, details = {} } = error;
    const isArgs = details.reason === "invalid_args" && details.pointer !== undefined;
    if (isArgs) report(details.pointer, message);
    end(failure(code, message, details, durationMs), "It failed");
  }

  function end(shown, words = "") {
    fill(result, el("h3", {}, "Result"), shown);
    result.hidden = false;
    if (words) page.announce(words);
  }

  return {
    element: el("div", { class: "invocation" }, output, result),
    begin,
    cancel: () => running?.abort(),
    /** Call `watcher(running)` now and whenever that changes. */
    watch(watcher) {
      watchers.clear();
      watchers.add(watcher);
      watcher(running !== null);
    },
  };
}

function newEvent(at, event) {
  const { type, version, timestamp, requestId, ...rest } = event;
  const shown =
    type === "log"
      ? { level: event.level, words: event.message }
      : type === "error"
        ? { level: "error", words: `${event.errorCode}: ${event.errorMessage}` }
        : { level: null, words: null };
  if (type === "asset") {
    const known = event.registered;
    const name = [event.assetId, event.mediaType, known && size(known.bytes)]
      .filter(Boolean)
      .join(" · ");
    return row(
      at,
      "asset",
      known
        ? el("a", { href: `#/assets/${encodeURIComponent(known.id)}` }, said(name))
        : said(name),
    );
  }
  if (shown.words === null) return row(at, type, unfolding(JSON.stringify(rest), LINE_CHARS));
  const fields = event.fields ?? event.details;
  return row(at, shown.level, [
    unfolding(shown.words, LINE_CHARS),
    fields
      ? [" ", el("span", { class: "dim" }, unfolding(JSON.stringify(fields), LINE_CHARS))]
      : null,
  ]);
}

function row(at, kind, content) {
  return el(
    "div",
    { "data-kind": kind },
    el("span", { class: "dim" }, `+${duration(at)}`),
    " ",
    el("span", { class: "of-kind" }, said(kind, 40)),
    " ",
    content,
  );
}

function succeeded(response) {
  return [
    el(
      "p",
      { class: "outcome good" },
      "ok",
      el("span", { class: "note" }, ` in ${duration(response.duration_ms / 1000)}`),
    ),
    response.summary ? el("p", {}, said(response.summary, 2000)) : null,
    response.result === undefined || response.result === null
      ? null
      : json(response.result, { label: "Result" }),
    warnings(response.warnings),
  ];
}

function failure(code, message, details, durationMs) {
  const { stderr_tail: tail, origin, ...rest } = details;
  const known = Object.entries(rest).filter(([, value]) => value !== null);
  return [
    el(
      "p",
      { class: "outcome bad" },
      said([code, rest.reason].filter(Boolean).join("/") || "failed", 200),
      el(
        "span",
        { class: "note" },
        [
          origin === "module" ? " reported by the module" : "",
          durationMs === null ? "" : ` after ${duration(durationMs / 1000)}`,
        ].join(""),
      ),
    ),
    el("p", {}, unfolding(message, LINE_CHARS)),
    known.length
      ? el(
          "dl",
          { class: "pairs" },
          known.map(([name, value]) =>
            el(
              "div",
              {},
              el("dt", {}, said(name, 60)),
              el(
                "dd",
                {},
                unfolding(typeof value === "object" ? JSON.stringify(value) : value, 1000),
              ),
            ),
          ),
        )
      : null,
    Array.isArray(tail) && tail.length
      ? block(tail.join("\n"), { label: "The end of stderr" })
      : null,
  ];
}

function warnings(some) {
  if (!some?.length) return null;
  return el(
    "ul",
    {},
    some
      .slice(0, 20)
      .map((one) =>
        el("li", { class: "note" }, said(typeof one === "string" ? one : JSON.stringify(one), 500)),
      ),
  );
}
