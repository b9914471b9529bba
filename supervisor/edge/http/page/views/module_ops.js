/* What a module can be asked: its ops with their schemas, a form to ask one, and what comes. */

import { ApiError, ask, read, request } from "../api.js";
import { el, fill, json, notice, printable } from "../dom.js";
import { argsForm } from "../form.js";
import { invocation } from "../invocation.js";

/** So many ops are listed; of more, the name is typed. */
const MOST = 256;
const AGAIN_MS = 2000;

export function ops(name, page) {
  const content = el("div");
  const trouble = el("div");
  const whole = description(name, page);
  const element = el(
    "section",
    { class: "panel" },
    el("h2", {}, "Invoke"),
    trouble,
    content,
    whole,
  );
  const run = invocation(name, page);
  let known = null;
  let shown = null;
  let asked = -Infinity;

  async function learn() {
    asked = performance.now();
    try {
      const { ops: found } = await ask(
        "status",
        { module: name, inputs: true },
        { signal: page.signal },
      );
      fill(trouble);
      // What somebody has typed is not to go because its process was another one for a while.
      const text = JSON.stringify([found?.names, found?.inputs]);
      if (text !== shown) fill(content, form(found));
      shown = text;
    } catch (error) {
      known = null; // it is asked for again with the next figures
      if (error.isLogin) page.fail(error);
      else if (!page.signal.aborted) fill(trouble, notice(error.message, "warn"));
    }
  }

  function form(found) {
    if (found === null || !found.names.length) {
      const words =
        found === null ? "Nobody knows its ops before it has run." : "It says that it has no ops.";
      return [el("p", { class: "dim" }, words), run.element];
    }
    const names = found.names.slice(0, MOST);
    const wanted = page.query.get("op");
    const chosen = el(
      "select",
      {},
      names.map((one) =>
        el("option", { value: one, selected: one === wanted }, printable(one).slice(0, 100)),
      ),
    );
    const place = el("div");
    const show = () => {
      const schema = found.inputs?.[chosen.value] ?? null;
      fill(
        place,
        argsForm(schema, {
          disabled: page.may("invoke") ? null : page.why("invoke"),
          submit: (args, options, report) => run.begin(chosen.value, args, options, report),
          busy: run,
        }),
      );
    };
    chosen.addEventListener("change", show);
    show();
    return [
      el("div", { class: "field" }, el("label", {}, el("span", { class: "name" }, "Op"), chosen)),
      found.remembered
        ? el("p", { class: "note" }, "This is what it said when it ran last.")
        : null,
      place,
      run.element,
    ];
  }

  function show(module) {
    // What it offers may be another thing once another process, or version, of it is ready.
    const now = JSON.stringify([module.version, module.ops]);
    if (now === known || performance.now() < asked + AGAIN_MS) return;
    known = now;
    learn();
  }
  return { element, show, undo: run.cancel };
}

/** All that the module says it is, asked for when somebody wants to see it. */
function description(name, page) {
  const place = el("div");
  const details = el("details", {}, el("summary", {}, "What it says it is"), place);
  details.addEventListener("toggle", async () => {
    if (!details.open) return;
    fill(place, el("p", { class: "dim" }, "Asking …"));
    try {
      fill(place, json(await describe(name, page.signal), { label: "Description" }));
    } catch (error) {
      if (error.isLogin) page.fail(error);
      else if (!page.signal.aborted) fill(place, notice(error.message, "warn"));
    }
  });
  return details;
}

async function describe(name, signal) {
  const where = `modules/${encodeURIComponent(name)}/describe`;
  const answer = await read(await request("POST", where, { body: {}, signal }));
  if (answer.ok === false) throw new ApiError(String(answer.error?.message), { status: 200 });
  return answer;
}
