/* Which modules somebody should look at, and what to say of one: as `stdiod status` does. */

import { duration, size } from "./format.js";

const WORST_FIRST = [
  "failed",
  "backoff",
  "degraded",
  "stopping",
  "preparing",
  "starting",
  "down",
  "ready",
];
const BAD = new Set(["failed", "backoff", "degraded"]);
const NOT_UP = new Set(["down", "preparing", "starting"]);
const CAUSE_CHARS = 300;

export function inTrouble(module) {
  if (BAD.has(module.state) || module.quarantined) return true;
  if (!NOT_UP.has(module.state)) return false;
  const died = module.last_exit;
  if (module.state === "down" && module.wanted === "up" && module.waits_for.length) return true;
  return died !== null && died.reason !== "stopped" && died.exit_code !== 0;
}

/** The place of a state among all, the worst first. */
export function severity(state) {
  const at = WORST_FIRST.indexOf(state);
  return at < 0 ? WORST_FIRST.length : at;
}

/** For sorting: those in trouble before all others, the worst first. */
export function urgency(module) {
  return inTrouble(module) ? severity(module.state) : WORST_FIRST.length + 1;
}

/** Why a module is not ready, what it died of, what of its output was odd: hostile text. */
export function note(module) {
  const bad = module.quarantined ? `its descriptor is no good now: ${module.quarantined}` : "";
  return joined(bad, noteOfState(module));
}

function noteOfState(module) {
  const isOld = module.state === "ready" && Date.now() / 1000 - module.last_exit?.ts >= 3600;
  const died = isOld || module.last_exit?.reason === "stopped" ? null : module.last_exit;
  const cause = died === null ? "" : causeOf(died);
  switch (module.state) {
    case "down":
      if (module.wanted === "up" && module.waits_for.length)
        return `waits for ${module.waits_for.join(", ")}`;
      if (module.start === "lazy" && module.last_exit === null)
        return "lazy: starts with its first request";
      return cause || "stopped";
    case "backoff":
    case "failed":
      return joined(
        cause,
        module.next_retry_s === null ? "" : `next try in ${duration(module.next_retry_s)}`,
      );
    case "preparing": {
      const [one] = module.instances;
      return one ? [`for ${duration(one.uptime_s)}`, one.last_line].filter(Boolean).join(": ") : "";
    }
    default: {
      const ago =
        died === null ? "" : `${cause}, ${duration(Math.max(0, Date.now() / 1000 - died.ts))} ago`;
      const missing = module.missing.length ? `runs without ${module.missing.join(", ")}` : "";
      return joined(...module.instances.map(traced), missing, ago, ...warnings(module).slice(0, 1));
    }
  }
}

export function traced(instance) {
  const tracer = instance.traced_by;
  return tracer ? `pid ${instance.pid} is traced by ${tracer.name} (pid ${tracer.pid})` : "";
}

export function warnings(module) {
  return module.instances.map((one) => one.warning).filter(Boolean);
}

function causeOf(died) {
  if (died.limit) return `ended: ${limitText(died.limit)}`;
  const spoken = (died.stderr_tail ?? []).filter((line) => line.trim());
  return [died.message, spoken.at(-1)].filter(Boolean).join(": ").slice(0, CAUSE_CHARS);
}

export function limitText({ limit, used, allowed, share }) {
  if (limit === "memory_bytes") return `memory ${size(used)} of ${size(allowed)}`;
  if (limit === "memory_ceiling_bytes") {
    const own = share === null || share === undefined ? "" : `, ${size(share)} of it this one's`;
    return `memory of all modules ${size(used)} of ${size(allowed)}${own}`;
  }
  return `${limit} ${used} of ${allowed}`;
}

function joined(...parts) {
  return parts.filter(Boolean).join("; ");
}
