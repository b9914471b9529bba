/* One field of a form, by its JSON Schema: an element, what it says (`take`), and `put` to fill it.

   `take` returns undefined for what is left empty, and throws an Error with words for what is not
   what the schema asks for. Whatever is more than a number, a text or a choice is written as JSON. */

import { el, printable, shortened } from "./dom.js";
import { parse } from "./exact.js";

const MOST_FIELDS = 64;
const MOST_CHOICES = 200;

/** Whether a schema is an object whose members can be fields. */
export function isFlat(schema) {
  if (typeof schema !== "object" || schema === null) return false;
  if (schema.type !== undefined && schema.type !== "object") return false;
  const apart = ["$ref", "anyOf", "oneOf", "allOf", "if", "patternProperties", "dependentSchemas"];
  if (apart.some((key) => key in schema)) return false;
  const names = Object.keys(schema.properties ?? {});
  // Without any, what it takes is open, unless it says that there is nothing more.
  return names.length <= MOST_FIELDS && (names.length > 0 || schema.additionalProperties === false);
}

/** What a value has to be, in few words. */
export function typeWords(schema) {
  if (typeof schema !== "object" || schema === null) return "";
  const words = [];
  if (schema.enum) words.push("choice");
  else if (schema.const !== undefined) words.push(`always ${JSON.stringify(schema.const)}`);
  else if (schema.type) words.push([schema.type].flat().join(" or "));
  if (schema.format) words.push(schema.format);
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, minLength, maxLength } = schema;
  if (minimum !== undefined && maximum !== undefined) words.push(`${minimum} to ${maximum}`);
  else if (minimum !== undefined) words.push(`${minimum} or more`);
  else if (maximum !== undefined) words.push(`at most ${maximum}`);
  if (exclusiveMinimum !== undefined) words.push(`above ${exclusiveMinimum}`);
  if (exclusiveMaximum !== undefined) words.push(`below ${exclusiveMaximum}`);
  if (minLength !== undefined) words.push(`${minLength} characters or more`);
  if (maxLength !== undefined) words.push(`at most ${maxLength} characters`);
  if (schema.default !== undefined) words.push(`default ${JSON.stringify(schema.default)}`);
  return words.join(" · ");
}

export function control(schema, { rows = 3 } = {}) {
  const types = [schema?.type ?? []].flat();
  if (Array.isArray(schema?.enum) && schema.enum.length <= MOST_CHOICES) return choice(schema.enum);
  if (schema?.const !== undefined) return choice([schema.const]);
  if (types.length === 1) {
    if (types[0] === "boolean") return choice([true, false]);
    if (types[0] === "integer" || types[0] === "number") return number(types[0]);
    if (types[0] === "string") return text();
  }
  const scalar = types.length > 0 && !types.includes("array") && !types.includes("object");
  return document_(types, scalar ? 1 : rows);
}

/** A value of a few; the first option is not to give any. */
function choice(values) {
  const label = (value) =>
    shortened(printable(typeof value === "string" ? value : JSON.stringify(value)), 100);
  const element = el(
    "select",
    {},
    el("option", { value: "" }, "not given"),
    values.map((value, at) => el("option", { value: String(at) }, label(value))),
  );
  return {
    element,
    take: () => (element.value === "" ? undefined : values[Number(element.value)]),
    put(value) {
      const at = values.findIndex((one) => JSON.stringify(one) === JSON.stringify(value));
      element.value = at < 0 ? "" : String(at);
    },
  };
}

function number(type) {
  const element = el("input", {
    type: "text",
    inputmode: type === "integer" ? "numeric" : "decimal",
    autocomplete: "off",
  });
  return {
    element,
    take() {
      const said = element.value.trim();
      if (said === "") return undefined;
      const value = /^[-+\d.eE]+$/.test(said) ? Number(said) : NaN;
      if (!Number.isFinite(value)) throw new Error("This is no number.");
      if (type === "integer" && !Number.isInteger(value))
        throw new Error("This is no whole number.");
      const isRounded = Number.isInteger(value) && !Number.isSafeInteger(value);
      return isRounded ? parse(said.replace(/^\+/, ""), refuse) : value;
    },
    put: (value) => (element.value = value === undefined ? "" : String(value)),
  };
}

function refuse() {
  throw new RangeError("This browser cannot send so large a number exactly.");
}

/** Enter sends the form, as in a line; Shift and Enter is a line break. */
function text() {
  const element = el("textarea", {
    rows: 1,
    class: "line",
    spellcheck: "false",
    on: {
      keydown: (event) => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        element.form?.requestSubmit();
      },
    },
  });
  let given = false;
  element.addEventListener("input", () => (given = element.value !== ""));
  return {
    element,
    take: () => (element.value === "" && !given ? undefined : element.value),
    put(value) {
      given = value !== undefined;
      element.value = value === undefined ? "" : String(value);
    },
  };
}

/** JSON; where a string will do, too, what is no JSON is one. Control and Enter sends it. */
function document_(types, rows) {
  const isText = types.includes("string");
  const hint =
    types.length === 1 && types[0] === "array"
      ? "[…]"
      : types.length === 1 && types[0] === "object"
        ? "{…}"
        : "JSON";
  const element = el("textarea", {
    rows,
    placeholder: isText ? `${hint}, or text` : hint,
    spellcheck: "false",
    on: {
      keydown: (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey))
          element.form?.requestSubmit();
      },
    },
  });
  return {
    element,
    take() {
      if (element.value.trim() === "") return undefined;
      try {
        return parse(element.value, refuse);
      } catch (error) {
        if (error instanceof RangeError) throw error;
        if (isText) return element.value;
        throw new Error(`This is not JSON: ${error.message}`);
      }
    },
    put: (value) => (element.value = value === undefined ? "" : JSON.stringify(value, null, 2)),
  };
}
