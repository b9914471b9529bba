/* Start, stop and restart a module, if whoever looks may. */

import { send } from "../api.js";
import { confirmed } from "../confirm.js";
import { count, el, fill, notice, printable } from "../dom.js";

const HAS_PROCESS = new Set(["ready", "degraded", "starting", "preparing", "stopping"]);
const DOING = { start: "Starting", stop: "Stopping", restart: "Restarting" };

export function actions(name, page) {
  const outcome = el("div");
  const may = page.may("admin", name);
  let module = null;
  let busy = false;

  const button = (verb, label, kind) =>
    el(
      "button",
      { type: "button", class: kind, disabled: true, on: { click: () => act(verb) } },
      label,
    );
  const buttons = {
    start: button("start", "Start", null),
    restart: button("restart", "Restart", "danger"),
    stop: button("stop", "Stop", "danger"),
  };

  async function act(verb) {
    if (
      verb !== "start" &&
      !(await confirmed(`${label(verb)} ${printable(name)}?`, warningOf(verb, module), label(verb)))
    )
      return;
    busy = true;
    show(module);
    fill(outcome, notice(`${DOING[verb]} ${name} …`, "calm"));
    try {
      const now = await send("POST", ["modules", name, verb], {}, { signal: page.signal });
      fill(outcome);
      page.announce(`${name} is ${now.state}`);
    } catch (error) {
      if (error.isLogin) page.fail(error);
      else if (!page.signal.aborted) fill(outcome, notice(error.message));
    }
    busy = false;
    page.figures.refresh();
    show(module);
  }

  function show(now) {
    module = now;
    if (module === null) return;
    const none = !may || busy || module.state === "disabled";
    const running = HAS_PROCESS.has(module.state);
    buttons.start.disabled = none || running;
    buttons.restart.disabled = none || module.state === "down";
    buttons.stop.disabled = none || (module.state === "down" && module.wanted === "down");
  }

  const element = el(
    "div",
    { class: "acting", hidden: true },
    el("div", { class: "actions" }, buttons.start, buttons.restart, buttons.stop),
    may ? null : el("p", { class: "note" }, page.why("admin")),
    outcome,
  );
  return { element, show };
}

function label(verb) {
  return verb[0].toUpperCase() + verb.slice(1);
}

function warningOf(verb, module) {
  const open = module.in_flight + module.queued;
  const lost = open ? ` ${count(open, "open request")} may fail.` : "";
  if (verb === "restart") return `Its process is ended, and another one started.${lost}`;
  return `Its process is ended, and it stays down until somebody starts it.${lost}`;
}
