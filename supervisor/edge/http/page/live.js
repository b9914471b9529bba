/* The journal as it is written: one stream for the whole page, which comes back by itself.

   state        what it means
   connecting   it has not been there yet, or a moment ago
   live         each entry comes when it is written
   away         nothing answers; it is tried again, less and less often
   paused       nobody looks at the page: the tab is hidden
   refused      the daemon answered something else; `words` has what

   It resumes behind the last entry that it saw, even if the daemon was restarted meanwhile. */

import { path, request, texts } from "./api.js";
import { inFrame } from "./dom.js";
import { parse } from "./exact.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;
/** The daemon says something every 15 s, if only that it is there. */
const SILENCE_MS = 40_000;
/** What waits to be drawn; of more, the first are left out and counted. */
const MOST_WAITING = 2000;

export class Live {
  state = "connecting";
  words = "";
  #listeners = new Set();
  #watchers = new Set();
  #waiting = [];
  #leftOut = 0;
  #seen = null;
  /** Whose numbers the entries have. */
  journal = null;
  #stream = null;
  #wake = () => {};
  #deliver = inFrame(() => this.#tell());

  constructor() {
    document.addEventListener("visibilitychange", () => this.#look());
    addEventListener("online", () => this.#wake());
  }

  /** Call `listener(entries, leftOut)` in a frame in which there are new ones. */
  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Call `watcher(state, words)` now and whenever it changes. */
  watch(watcher) {
    this.#watchers.add(watcher);
    watcher(this.state, this.words);
    return () => this.#watchers.delete(watcher);
  }

  /** Begin; returns when somebody has to log in. */
  async run() {
    let waitMs = FIRST_WAIT_MS;
    for (;;) {
      if (document.hidden) {
        this.#become("paused");
        await new Promise((resolve) => (this.#wake = resolve));
        this.#become("connecting");
        continue;
      }
      try {
        await this.#follow(() => (waitMs = FIRST_WAIT_MS));
        if (!document.hidden) this.#become("away");
      } catch (error) {
        if (error.isLogin) return;
        if (error.status) this.#become("refused", error.message);
        else if (!document.hidden) this.#become("away");
      }
      if (document.hidden) continue;
      await new Promise((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, waitMs);
      });
      waitMs = Math.min(LONGEST_WAIT_MS, waitMs * 2);
    }
  }

  /** Try again now. */
  retry() {
    this.#wake();
  }

  #look() {
    if (document.hidden) this.#stream?.abort();
    else this.#wake();
  }

  async #follow(began) {
    const stream = (this.#stream = new AbortController());
    let silence = 0;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => stream.abort(), SILENCE_MS);
    };
    heard();
    try {
      const headers = { Accept: "text/event-stream" };
      if (this.#seen !== null) headers["Last-Event-ID"] = String(this.#seen);
      const query = this.#seen === null ? { last: 0 } : { journal: this.journal };
      const where = path(["events"], query);
      const response = await request("GET", where, { headers, signal: stream.signal });
      let data = "";
      for await (const line of texts(response)) {
        heard();
        if (line.startsWith("data: ")) data += line.slice(6);
        else if (line === "" && data) {
          this.#take(parse(data));
          data = "";
          began();
        }
      }
    } finally {
      clearTimeout(silence);
      this.#stream = null;
    }
  }

  #take(entry) {
    this.#become("live");
    if (entry.journal !== undefined && entry.seq === undefined) {
      if (entry.journal !== this.journal) this.#leaveOut(); // of another one
      this.journal = entry.journal;
      this.#seen = entry.since;
      return;
    }
    if (typeof entry.seq !== "number") return;
    this.#seen = entry.seq;
    this.#waiting.push(entry);
    if (this.#waiting.length > MOST_WAITING) {
      this.#waiting.shift();
      this.#leftOut += 1;
    }
    this.#deliver();
  }

  #leaveOut() {
    this.#leftOut += this.#waiting.length;
    this.#waiting = [];
  }

  #tell() {
    const entries = this.#waiting;
    const leftOut = this.#leftOut;
    this.#waiting = [];
    this.#leftOut = 0;
    for (const listener of this.#listeners) listener(entries, leftOut);
  }

  #become(state, words = "") {
    if (state === this.state && words === this.words) return;
    this.state = state;
    this.words = words;
    for (const watcher of this.#watchers) watcher(state, words);
  }
}
