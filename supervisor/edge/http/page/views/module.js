/* One module: how it is, what it died of, what it can be asked, and what it says. */

import { el, fill, inFrame, notice, said, set } from "../dom.js";
import { stateMark } from "../marks.js";
import { inTrouble, note } from "../trouble.js";
import { actions } from "./module_actions.js";
import { ends } from "./module_ends.js";
import { log } from "./module_log.js";
import { now } from "./module_now.js";
import { ops } from "./module_ops.js";

export function render(into, page) {
  const { name } = page.parameters;
  const main = into.parentNode;
  page.title(name);
  const mark = stateMark("down");
  const kind = el("span", { class: "kind" });
  const description = el("p", { class: "dim" });
  const trouble = el("div");
  const parts = [
    actions(name, page),
    now(name, page),
    ends(name, page),
    ops(name, page),
    log(name, page),
  ];
  const [buttons, figures, deaths, asked, lines] = parts;
  const body = el(
    "div",
    { class: "of-module", hidden: true },
    trouble,
    figures.element,
    el(
      "div",
      { class: "columns" },
      asked.element,
      el("div", { class: "stack" }, deaths.element, lines.element),
    ),
  );
  const missing = el("div");
  into.append(
    el("p", { class: "path" }, el("a", { href: "#/modules" }, "Modules"), " /"),
    el(
      "header",
      { class: "titled" },
      el(
        "div",
        { class: "head" },
        el("h1", {}, said(name, 120)),
        el("p", { class: "under" }, mark, kind),
        description,
      ),
      buttons.element,
    ),
    missing,
    body,
  );
  set(main, "data-module", name);

  const shown = { trouble: null, state: null };
  const draw = () => {
    const { status, error } = page.figures;
    if (status === null) {
      fill(missing, error ? notice(error.message) : null);
      return;
    }
    const found = status.modules.find((one) => one.name === name);
    body.hidden = buttons.element.hidden = found === undefined;
    if (found === undefined) {
      fill(
        missing,
        notice(`There is no module ${name}, or it is not one that you may see.`, "calm"),
      );
      mark.hidden = true;
      return;
    }
    mark.hidden = false;
    const module = { ...found, state: page.figures.stateOf(found) };
    fill(missing, error ? notice(`${error.message} These are the last figures.`, "warn") : null);
    mark.show(module.state);
    set(main, "data-state", module.state);
    fill(kind, [module.kind, module.version].join(" "));
    fill(description, said(module.description, 2000));
    const words = inTrouble(module) ? note(module) : "";
    if (words !== shown.trouble) {
      shown.trouble = words;
      fill(trouble, words ? notice(words, module.state === "failed" ? "worst" : "warn") : null);
    }
    if (shown.state !== null && shown.state !== module.state)
      page.announce(`${name} is ${module.state}`);
    shown.state = module.state;
    for (const part of parts) part.show?.(module, page.figures.of(name));
  };
  const soon = inFrame(draw);
  const undo = page.figures.listen(soon);
  return () => {
    undo();
    soon.cancel();
    for (const part of parts) part.undo?.();
    set(main, "data-module", null);
    set(main, "data-state", null);
  };
}
