/* Durations, sizes, rates and times for people, as `stdiod status` and `top` write them. */

const MINUTE_S = 60;
const HOUR_S = 60 * MINUTE_S;
const DAY_S = 24 * HOUR_S;

export const NONE = "–";

/** 40ms, 3.2s, 47s, 3m05s, 2h05m, 3d04h. */
export function duration(seconds) {
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)}ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)}s`;
  const whole = Math.round(seconds);
  const two = (number) => String(number).padStart(2, "0");
  if (whole < MINUTE_S) return `${whole}s`;
  if (whole < HOUR_S) return `${Math.floor(whole / MINUTE_S)}m${two(whole % MINUTE_S)}s`;
  if (whole < DAY_S)
    return `${Math.floor(whole / HOUR_S)}h${two(Math.floor((whole % HOUR_S) / MINUTE_S))}m`;
  return `${Math.floor(whole / DAY_S)}d${two(Math.floor((whole % DAY_S) / HOUR_S))}h`;
}

/** 0.21ms, 3.4ms, 250ms, 3.2s. */
export function latency(ms) {
  if (ms === null || ms === undefined) return NONE;
  if (ms < 0.995) return `${ms.toFixed(2)}ms`;
  if (ms < 99.95) return `${ms.toFixed(1)}ms`;
  return duration(ms / 1000);
}

/** 640 B, 12.3 MiB. */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return NONE;
  if (bytes < 1024) return `${Math.round(bytes)} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let shown = bytes / 1024;
  while (shown >= 1024 && units.length > 1) {
    shown /= 1024;
    units.shift();
  }
  return `${shown.toFixed(1)} ${units[0]}`;
}

/** 0, 0.25, 12.3, 1234: so that a small rate is not 0. */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return NONE;
  if (perSecond === 0) return "0";
  if (perSecond < 9.995) return perSecond.toFixed(2);
  if (perSecond < 999.95) return perSecond.toFixed(1);
  return perSecond.toFixed(0);
}

export function percent(share) {
  return share === null || share === undefined ? NONE : `${share.toFixed(0)}%`;
}

/** The time of day of a Unix time (s), in the reader's zone: 14:03:05.250. */
export function timeOfDay(unixS) {
  const when = new Date(unixS * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const ms = String(when.getMilliseconds()).padStart(3, "0");
  return `${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}.${ms}`;
}

/** Day and time of a Unix time (s). */
export function moment(unixS) {
  return new Date(unixS * 1000).toLocaleString();
}

export function ago(unixS) {
  return `${duration(Math.max(0, Date.now() / 1000 - unixS))} ago`;
}
