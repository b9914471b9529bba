/* `status`, asked for again and again while somebody listens and looks, and figures of the time
   between two answers: rates, quantiles, trends. As in `stdiod top`: the time is the daemon's own.

   What changes its state is known sooner, by the journal; `stateOf` has that. */

import { get } from "./api.js";
import { inFrame } from "./dom.js";

const PACE_MS = 2000;
/** What takes the daemon long to answer is asked for more rarely: a tenth of the time at most. */
const SHARE = 10;
export const TREND_LENGTH = 60;

export class Figures {
  status = null;
  /** Why there is no newer status, if there is none. */
  error = null;
  #live;
  #listeners = new Set();
  #modules = new Map();
  #states = new Map();
  #timer = 0;
  #nextAt = 0;
  #asking = false;
  #stopped = false;
  #tell = inFrame(() => {
    for (const listener of this.#listeners) listener(this);
  });

  constructor(live) {
    this.#live = live;
    live.listen((entries) => this.#hear(entries));
    live.watch((state) => {
      if (state === "live") this.#askIn(0);
    });
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.#askIn(0);
    });
  }

  /** Call `listener(figures)` in a frame in which something is new. */
  listen(listener) {
    this.#listeners.add(listener);
    if (this.status !== null) this.#tell();
    this.#askIn(0);
    return () => this.#listeners.delete(listener);
  }

  /** What a module did in the time: see `compared`, and `trends`; null before it is known. */
  of(name) {
    return this.#modules.get(name) ?? null;
  }

  /** The newest state of a module that is known. */
  stateOf(module) {
    return this.#states.get(module.name)?.state ?? module.state;
  }

  /** Ask now. */
  refresh() {
    this.#askIn(0);
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /** What is new beyond states is not asked for sooner: under a flood of news that would be all the
      time, and trends would be of another length. */
  #hear(entries) {
    if (!this.#listeners.size) return; // nobody asks for the status then, which ends each of these
    const changes = entries.filter((one) => one.event === "module:state");
    const at = performance.now();
    for (const { module, data } of changes)
      this.#states.set(module, { state: String(data?.to), at });
    if (changes.length) this.#tell();
  }

  #askIn(ms) {
    if (this.#stopped || document.hidden || !this.#listeners.size) return;
    const at = performance.now() + ms;
    if (this.#timer && this.#nextAt <= at) return;
    clearTimeout(this.#timer);
    this.#nextAt = at;
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      this.#ask();
    }, ms);
  }

  async #ask() {
    if (this.#asking) return;
    this.#asking = true;
    const begun = performance.now();
    try {
      this.#take(await get(["status"], { histogram: true }), begun);
      this.error = null;
      if (this.#live.state === "away") this.#live.retry();
    } catch (error) {
      this.error = error;
      if (error.isLogin) this.stop();
    }
    this.#asking = false;
    this.#tell();
    this.#askIn(Math.max(PACE_MS, (performance.now() - begun) * SHARE));
  }

  /** `begun` is when it was asked for: what was heard since may be newer. */
  #take(status, begun) {
    const before = this.status;
    const daemon = status.daemon;
    const same = before !== null && before.daemon.pid === daemon.pid;
    const interval = same ? daemon.uptime_s - before.daemon.uptime_s : 0;
    if (same && interval <= 0) return;
    const earlier = new Map(same ? before.modules.map((one) => [one.name, one]) : []);
    const modules = new Map();
    for (const module of status.modules) {
      const figures = compared(earlier.get(module.name), module, interval);
      figures.trends = extended(this.#modules.get(module.name)?.trends, figures);
      modules.set(module.name, figures);
    }
    this.#modules = modules;
    for (const [name, { at }] of this.#states) if (at < begun) this.#states.delete(name);
    this.status = status;
  }
}

const TRENDS = ["rate", "p99", "memory"];

function extended(before, figures) {
  return Object.fromEntries(
    TRENDS.map((name) => [name, [...(before?.[name] ?? []), figures[name]].slice(-TREND_LENGTH)]),
  );
}

/** Figures of a time (s) between two entries of `status`; null where there are none. */
export function compared(before, after, interval) {
  const memory = after.instances.map((one) => one.rss_bytes).filter((one) => one !== null);
  const came = before
    ? between(before.latency_ms.histogram_us, after.latency_ms.histogram_us)
    : null;
  const longest = after.latency_ms.max ?? 0;
  return {
    rate: rateOf("invocations", before, after, interval),
    failures: rateOf("failures", before, after, interval),
    p50: quantileMs(came, 0.5, longest),
    p99: quantileMs(came, 0.99, longest),
    cpu: cpuPercent(before, after, interval),
    memory: memory.length ? memory.reduce((sum, one) => sum + one, 0) : null,
  };
}

function rateOf(counter, before, after, interval) {
  if (!before) return null;
  const counted = after.counters[counter] - before.counters[counter];
  return counted < 0 ? null : counted / interval;
}

function cpuPercent(before, after, interval) {
  if (!before) return null;
  const earlier = new Map(before.instances.map((one) => [one.id, one.cpu_s]));
  const used = after.instances
    .filter((one) => one.cpu_s !== null)
    .map((one) => one.cpu_s - (earlier.get(one.id) ?? 0));
  if (!used.length) return null;
  return (
    (100 *
      Math.max(
        0,
        used.reduce((sum, one) => sum + one, 0),
      )) /
    interval
  );
}

/** What was counted between two readings of a histogram; null if there was another one meanwhile. */
function between(before, after) {
  const counts = new Map(after);
  for (const [least, number] of before) {
    const left = (counts.get(least) ?? 0) - number;
    if (left < 0) return null;
    counts.set(least, left);
  }
  return [...counts].filter(([, number]) => number);
}

/** As `supervisor.policy.latency`: the middle of the bucket of the nearest rank. */
function quantileMs(reading, fraction, longestMs) {
  if (!reading?.length) return null;
  let rank = Math.ceil(fraction * reading.reduce((sum, [, number]) => sum + number, 0));
  for (const [least, number] of reading) {
    rank -= number;
    if (rank > 0) continue;
    const middle = least < 8 ? least : least + (2 ** (Math.floor(Math.log2(least)) - 2) - 1) / 2;
    return Math.min(middle / 1000, longestMs);
  }
  return null;
}
