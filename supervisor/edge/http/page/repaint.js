/* Draw what changes often at a calm pace: on a slow machine, too, it takes a fifth of the time at
   the most. */

import { inFrame } from "./dom.js";

const EVERY_MS = 250;
const SHARE = 5;

/** Return a function that has `draw` run soon, however often it is called; `now` and `cancel` are
    functions of it. */
export function repainting(draw) {
  let timer = 0;
  let nextAt = 0;
  const now = inFrame(() => {
    const begun = performance.now();
    clearTimeout(timer); // it may be late, and would have the same drawn again
    timer = 0;
    nextAt = begun + EVERY_MS;
    draw();
    // What is laid out and painted for it is done once this runs.
    setTimeout(() => {
      nextAt = begun + Math.max(EVERY_MS, SHARE * (performance.now() - begun));
    });
  });
  const soon = () => {
    const waitMs = nextAt - performance.now();
    if (waitMs <= 0) now();
    else timer ||= setTimeout(() => ((timer = 0), soon()), waitMs);
  };
  soon.now = now;
  soon.cancel = () => {
    clearTimeout(timer);
    now.cancel();
  };
  return soon;
}
