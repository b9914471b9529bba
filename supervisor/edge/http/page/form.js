/* The form that invokes an op: its args, a session and a deadline if somebody wants them. */

import { Args } from "./args.js";
import { isFlat } from "./field.js";
import { el, fill, json, notice, said, set } from "./dom.js";

const MOST_EXAMPLES = 8;

/** `submit(args, options, report)` begins; `report(pointer, words)` shows an error beside the field
    that it is about. `disabled` has the words for why nothing may be sent, or is null; `busy` has
    `watch(running => ...)` and `cancel()`. */
export function argsForm(schema, { submit, disabled, busy }) {
  const args = new Args(schema);
  const options = optionFields();
  const trouble = el("div");
  const invoke = el("button", { type: "submit", class: "main" }, "Invoke");
  const cancel = el("button", { type: "button", on: { click: () => busy.cancel() } }, "Cancel");
  busy.watch((running) => {
    cancel.hidden = !running;
    invoke.disabled = running || disabled !== null;
  });
  const report = (pointer, words) => {
    if (!args.fail(pointer, words)) fill(trouble, notice(words));
  };
  const begin = (event) => {
    event.preventDefault();
    if (invoke.disabled) return;
    fill(trouble);
    const { args: typed, firstBad } = args.read();
    const { chosen, bad } = options.read();
    if (bad) fill(trouble, notice(bad));
    if (firstBad) firstBad.control.element.focus();
    if (!bad && !firstBad) submit(typed, chosen, report);
  };
  return el(
    "form",
    { novalidate: true, on: { submit: begin } },
    schema?.description ? el("p", { class: "dim" }, said(schema.description, 2000)) : null,
    args.element,
    trouble,
    el(
      "details",
      { class: "more" },
      el("summary", {}, "Session, deadline and schema"),
      options.element,
      schema ? json(schema, { label: "Schema" }) : null,
    ),
    el("div", { class: "actions" }, invoke, cancel, examples(schema, args), toggle(schema, args)),
    disabled ? el("p", { class: "note" }, disabled) : null,
  );
}

function examples(schema, args) {
  return (schema?.examples ?? []).slice(0, MOST_EXAMPLES).map((example, at) => {
    const put = () => args.put(example);
    return el(
      "button",
      { type: "button", class: "small", on: { click: put } },
      `Example ${at + 1}`,
    );
  });
}

/** A button that has fields be JSON and back, where there are fields. */
function toggle(schema, args) {
  if (!isFlat(schema)) return null;
  const change = () => {
    args.toggle();
    set(button, "aria-pressed", String(args.byHand));
  };
  const button = el(
    "button",
    { type: "button", class: "small", "aria-pressed": "false", on: { click: change } },
    "As JSON",
  );
  return button;
}

function optionFields() {
  const session = el("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const timeout = el("input", { type: "text", inputmode: "decimal", autocomplete: "off" });
  const element = el(
    "div",
    { class: "fields" },
    el("label", { class: "field" }, el("span", {}, "Session"), session),
    el("label", { class: "field" }, el("span", {}, "Deadline (s)"), timeout),
  );
  const read = () => {
    const chosen = {};
    if (session.value.trim()) chosen.session_id = session.value.trim();
    if (!timeout.value.trim()) return { chosen, bad: "" };
    chosen.timeout_s = Number(timeout.value);
    return {
      chosen,
      bad: chosen.timeout_s > 0 ? "" : "The deadline is a number of seconds above 0.",
    };
  };
  return { element, read };
}
