/* A form made of the JSON Schema of an op's args; what is left empty is not sent. */

import { el, fill, json, notice, printable, said, set, shortened } from "./dom.js";
import { control, isFlat, typeWords } from "./field.js";

/** `submit(args, {session_id, timeout_s}, report)` begins; `report(pointer, words)` shows an error
    beside the field that it is about. `disabled` has the words for why nothing may be sent; `busy`
    has `watch(running)` and `cancel()`. */
export function argsForm(schema, { submit, disabled, busy }) {
  const fields = new Map();
  const trouble = el("div");
  const simple = isFlat(schema);
  let byHand = !simple;

  const body = el("div", { class: "fields" });
  const text = control({ type: "object" }, { rows: 6 });
  const showFields = () => {
    fill(trouble);
    fields.clear();
    if (byHand) {
      fields.set("", field("args", "Args as JSON", {}, text, false));
    } else {
      const required = new Set(schema.required ?? []);
      for (const [name, of] of Object.entries(schema.properties ?? {})) {
        fields.set(name, field(name, name, of, control(of), required.has(name)));
      }
    }
    fill(body, [...fields.values()].map((one) => one.element),
      fields.size ? null : el("p", { class: "dim" }, "It takes no args."));
  };

  const give = (args) => {
    if (byHand) text.put(args);
    else for (const [name, one] of fields) one.control.put(args?.[name]);
  };
  const examples = (schema?.examples ?? []).slice(0, 8).map((example, at) =>
    el("button", { type: "button", class: "small", on: { click: () => give(example) } }, `Example ${at + 1}`));
  const toggle = simple ? el("button", { type: "button", class: "small", on: { click: () => {
    const { args } = read(fields, byHand);
    byHand = !byHand;
    showFields();
    give(args);
    set(toggle, "aria-pressed", String(byHand));
  } }, "aria-pressed": "false" }, "As JSON") : null;

  const invoke = el("button", { type: "submit", class: "main", disabled: disabled !== null }, "Invoke");
  const cancel = el("button", { type: "button", hidden: true, on: { click: () => busy.cancel() } }, "Cancel");
  busy.watch((running) => {
    cancel.hidden = !running;
    invoke.disabled = running || disabled !== null;
  });
  const session = el("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const timeout = el("input", { type: "text", inputmode: "decimal", autocomplete: "off" });

  const report = (pointer, words) => {
    const name = pointer === undefined ? null : unescaped(pointer.split("/")[1] ?? "");
    const found = fields.get(byHand ? "" : name);
    // The words name the args and the place in them, which the field does already.
    const [, about = words] = pointer === undefined ? [] : words.split(`${pointer}: `);
    if (!found || name === null) fill(trouble, notice(words));
    else found.fail(pointer.split("/").length > 2 || byHand ? `${pointer}: ${about}` : about);
  };
  const form = el("form", { novalidate: true, on: { submit: (event) => {
    event.preventDefault();
    if (invoke.disabled) return;
    fill(trouble);
    for (const one of fields.values()) one.fail("");
    const { args, bad } = read(fields, byHand);
    const options = optionsOf(session.value, timeout.value, bad);
    if (bad.length) {
      for (const [one, words] of bad) one ? one.fail(words) : fill(trouble, notice(words));
      bad.find(([one]) => one)?.[0].control.element.focus();
      return;
    }
    submit(args, options, report);
  } } },
  schema?.description ? el("p", { class: "dim" }, said(schema.description, 2000)) : null,
  body, trouble,
  el("details", { class: "more" }, el("summary", {}, "Session, deadline and schema"),
    el("div", { class: "fields" },
      el("label", { class: "field" }, el("span", {}, "Session"), session),
      el("label", { class: "field" }, el("span", {}, "Deadline (s)"), timeout)),
    schema ? json(schema, { label: "Schema" }) : null),
  el("div", { class: "actions" }, invoke, cancel, examples, toggle),
  disabled ? el("p", { class: "note" }, disabled) : null);
  showFields();
  return form;
}

function read(fields, byHand) {
  const args = {};
  const bad = [];
  let whole = {};
  for (const [name, one] of fields) {
    try {
      const value = one.control.take();
      if (value === undefined && one.required) throw new Error("This is required.");
      if (byHand) whole = value ?? {};
      else if (value !== undefined) args[name] = value;
    } catch (error) {
      bad.push([one, error.message]);
    }
  }
  return { args: byHand ? whole : args, bad };
}

function optionsOf(session, timeout, bad) {
  const options = {};
  if (session.trim()) options.session_id = session.trim();
  if (timeout.trim()) {
    const seconds = Number(timeout);
    if (seconds > 0) options.timeout_s = seconds;
    else bad.push([null, "The deadline is a number of seconds above 0."]);
  }
  return options;
}

let numbered = 0;

function field(name, label, schema, made, required) {
  const id = `field-${(numbered += 1)}`;
  const error = el("p", { class: "error", id: `${id}-error` });
  const help = schema.description ? el("p", { class: "note", id: `${id}-help` }, said(schema.description, 1000)) : null;
  set(made.element, "id", id);
  set(made.element, "aria-required", required ? "true" : null);
  set(made.element, "aria-describedby", [help ? `${id}-help` : "", `${id}-error`].join(" ").trim());
  const element = el("div", { class: "field" },
    el("label", { for: id }, el("span", { class: "name" }, said(label, 100)), " ",
      el("span", { class: "note" }, shortened(printable(typeWords(schema)), 120), required ? " · required" : "")),
    made.element, help, error);
  const fail = (words) => {
    fill(error, words ? said(words, 1000) : null);
    set(made.element, "aria-invalid", words ? "true" : null);
  };
  return { element, control: made, required, fail, name };
}

function unescaped(step) {
  return step.replaceAll("~1", "/").replaceAll("~0", "~");
}
