/* Work that news ask for, at a pace: floods of news do not become floods of requests. */

import { fill, notice } from "./dom.js";

/** Return a function that has `work` (which may be async) run soon, never twice at a time, and at
    most every `ms`; `cancel()` of it ends that. */
export function paced(work, ms) {
  let timer = 0;
  let busy = false;
  let again = false;
  let ended = false;
  let last = -Infinity;
  const run = async () => {
    timer = 0;
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    last = performance.now();
    try {
      await work();
    } finally {
      busy = false; // what failed once may go well the next time
    }
    if (again) {
      again = false;
      soon();
    }
  };
  const soon = () => {
    if (!ended) timer ||= setTimeout(run, Math.max(0, last + ms - performance.now()));
  };
  soon.cancel = () => {
    ended = true;
    clearTimeout(timer);
  };
  return soon;
}

/** Have `ask` run now, whenever `concerns(entry)` of the journal, and when the daemon is back.
    What fails is shown in `trouble`. Returns what ends it. */
export function followed(page, trouble, ask, concerns, ms = 500) {
  const soon = paced(async () => {
    try {
      await ask();
      fill(trouble);
    } catch (error) {
      if (error.isLogin) page.fail(error);
      else if (!page.signal.aborted) fill(trouble, notice(error.message, "warn"));
    }
  }, ms);
  const unlisten = page.live.listen((entries) => {
    if (entries.some(concerns)) soon();
  });
  const unwatch = page.live.watch((state) => {
    if (state === "live") soon();
  });
  soon();
  const undo = () => {
    soon.cancel();
    unlisten();
    unwatch();
  };
  undo.soon = soon;
  return undo;
}
