/* The fields of a form, made of the JSON Schema of an op's args; or one field for all of it as
   JSON, where the schema is more than a list of fields, or somebody wants that. */

import { control, isFlat, typeWords } from "./field.js";
import { el, fill, printable, said, set, shortened } from "./dom.js";

export class Args {
  element = el("div", { class: "fields" });
  #schema;
  #fields = new Map();
  #byHand;

  constructor(schema) {
    this.#schema = schema;
    this.#byHand = !isFlat(schema);
    this.#show();
  }

  /** Whether it is one field for all. */
  get byHand() {
    return this.#byHand;
  }

  /** Go from fields to JSON, or back; what was typed and is good goes with it. */
  toggle() {
    const { args } = this.read();
    this.#byHand = !this.#byHand;
    this.#show();
    this.put(args);
  }

  put(args) {
    const given = (name) => (Object.hasOwn(args ?? {}, name) ? args[name] : undefined);
    for (const [name, one] of this.#fields) one.control.put(this.#byHand ? args : given(name));
  }

  /** What was typed, and whether all of it is good: a field that is not says why. */
  read() {
    let args = Object.create(null); // a field may be called __proto__
    let firstBad = null;
    for (const [name, one] of this.#fields) {
      one.fail("");
      try {
        const value = one.control.take();
        if (value === undefined && one.required) throw new Error("This is required.");
        if (this.#byHand) args = value ?? {};
        else if (value !== undefined) args[name] = value;
      } catch (error) {
        one.fail(error.message);
        firstBad ??= one;
      }
    }
    return { args, firstBad };
  }

  /** Show an error at the field that a JSON pointer leads to; returns whether there is one. */
  fail(pointer, words) {
    const [, step, ...deeper] = pointer.split("/");
    const name = (step ?? "").replaceAll("~1", "/").replaceAll("~0", "~");
    const found = this.#fields.get(this.#byHand ? "" : name);
    if (!found) return false;
    // The words name the args and the place in them, which the field does already.
    const [, about = words] = words.split(`${pointer}: `);
    found.fail(deeper.length || this.#byHand ? `${pointer}: ${about}` : about);
    return true;
  }

  #show() {
    const { required = [], properties = {} } = this.#schema ?? {};
    this.#fields = this.#byHand
      ? new Map([["", field("Args as JSON", {}, control({ type: "object" }, { rows: 6 }), false)]])
      : new Map(
          Object.entries(properties).map(([name, of]) => [
            name,
            field(name, of, control(of), required.includes(name)),
          ]),
        );
    const none = this.#fields.size ? null : el("p", { class: "dim" }, "It takes no args.");
    fill(
      this.element,
      [...this.#fields.values()].map((one) => one.element),
      none,
    );
  }
}

let numbered = 0;

function field(label, schema, made, required) {
  const id = `field-${(numbered += 1)}`;
  const error = el("p", { class: "error", id: `${id}-error` });
  const words = schema?.description;
  const help = words ? el("p", { class: "note", id: `${id}-help` }, said(words, 1000)) : null;
  set(made.element, "id", id);
  set(made.element, "aria-required", required ? "true" : null);
  set(made.element, "aria-describedby", `${help ? `${id}-help ` : ""}${id}-error`);
  const type = [shortened(printable(typeWords(schema)), 120), required ? "required" : ""];
  const element = el(
    "div",
    { class: "field" },
    el(
      "label",
      { for: id },
      el("span", { class: "name" }, said(label, 100)),
      " ",
      el("span", { class: "note" }, type.filter(Boolean).join(" · ")),
    ),
    made.element,
    help,
    error,
  );
  const fail = (why) => {
    fill(error, why ? said(why, 1000) : null);
    set(made.element, "aria-invalid", why ? "true" : null);
  };
  return { element, control: made, required, fail };
}
