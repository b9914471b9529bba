/* The fields of a question's form (supervisor/policy/form.py): texts, numbers, yes or no, choices.

   What is typed is sent as text, and the daemon says what is wrong with it: there is one judge. */

import { el, printable, said, shortened } from "./dom.js";

const TYPES = { email: "email", uri: "url", date: "date" };
const FIELDS = 64;
const CHOICES = 200;

let numbers = 0;

/** Return the fields as elements, and `content()`, what they are filled in with. */
export function fieldsOf(form) {
  const required = new Set(form.required ?? []);
  const made = Object.entries(form.properties ?? {}).slice(0, FIELDS)
    .map(([name, field]) => fieldOf(name, field, required.has(name)));
  const content = () => Object.fromEntries(
    made.map((one) => [one.name, one.value()]).filter(([, value]) => value !== undefined),
  );
  return { elements: made.map((one) => one.element), content };
}

function fieldOf(name, field, isRequired) {
  const options = choicesOf(field);
  const id = `answer-${++numbers}`;
  const about = field.description ? el("span", { class: "note", id: `${id}-about` }, said(field.description, 500)) : null;
  const common = { id, "aria-describedby": about && `${id}-about`, required: isRequired };
  const words = [said(field.title || name, 100), isRequired ? el("span", { class: "dim" }, " (needed)") : null];
  if (field.type === "array") return several(name, field, options ?? [], words, about);
  if (field.type === "boolean") {
    const box = el("input", { type: "checkbox", id, "aria-describedby": common["aria-describedby"], checked: field.default === true });
    return { name, value: () => box.checked, element: el("div", { class: "field" }, el("label", { class: "check" }, box, words), about) };
  }
  const input = options ? chooser(options, field, common) : typed(field, common);
  const value = () => (input.value === "" ? undefined : input.value);
  return { name, value, element: el("div", { class: "field" }, el("label", { for: id }, words), input, about) };
}

function chooser(options, field, common) {
  const chosen = options.some((one) => one.value === field.default) ? field.default : null;
  return el("select", common,
    el("option", { value: "" }, "Choose one"),
    options.map(({ value, title }) => el("option", { value, selected: value === chosen }, printable(shortened(title, 100)))),
  );
}

function typed(field, common) {
  const isNumber = field.type === "number" || field.type === "integer";
  const limits = isNumber
    ? { min: field.minimum ?? null, max: field.maximum ?? null, step: field.type === "integer" ? 1 : "any" }
    : { minlength: field.minLength ?? null, maxlength: field.maxLength ?? null };
  const type = isNumber ? "number" : TYPES[field.format] ?? "text";
  const input = el("input", { ...common, ...limits, type, autocomplete: "off" });
  if (field.default !== undefined) input.value = String(field.default);
  return input;
}

function several(name, field, options, words, about) {
  const before = Array.isArray(field.default) ? field.default : [];
  const boxes = options.map(({ value, title }) => {
    const box = el("input", { type: "checkbox", checked: before.includes(value) });
    return { box, value, label: el("label", { class: "check" }, box, said(title, 100)) };
  });
  const element = el("fieldset", { class: "field" }, el("legend", {}, words), boxes.map((one) => one.label), about);
  return { name, element, value: () => boxes.filter((one) => one.box.checked).map((one) => one.value) };
}

/** What a field lets one choose from, null if it does not (`policy.form.choices_of`). */
function choicesOf(field) {
  const holder = field.type === "array" ? field.items ?? {} : field;
  const titled = holder.oneOf ?? holder.anyOf;
  const found = Array.isArray(holder.enum)
    ? holder.enum.map((value) => ({ value, title: value }))
    : (Array.isArray(titled) ? titled : []).map((one) => ({ value: one?.const, title: one?.title ?? one?.const }));
  const texts = found.filter((one) => typeof one.value === "string").slice(0, CHOICES);
  return texts.length ? texts : null;
}
