/* Keys for what is done often, and the dialog that names them. */

import { el } from "./dom.js";

/** `views` are pairs of a label and a hash: the keys 1 to 9 show them. */
export function shortcuts(button, views) {
  const keys = new Map(
    views.map(([label, href], at) => [
      String(at + 1),
      { label, act: () => (location.hash = href) },
    ]),
  );
  keys.set("/", { label: "Filter", act: focusFilter });
  keys.set("?", { label: "This help", act: () => dialog.showModal() });
  const rows = [...keys].map(([key, { label }]) =>
    el("div", {}, el("dt", {}, el("kbd", {}, key)), el("dd", {}, label)),
  );
  const dialog = el(
    "dialog",
    { "aria-labelledby": "help-title" },
    el("h2", { id: "help-title" }, "Keys"),
    el("dl", { class: "keys" }, rows),
    el("p", {}, "Esc closes this, and leaves the filter."),
    el("button", { type: "button", on: { click: () => dialog.close() } }, "Close"),
  );
  document.body.append(dialog);
  button.addEventListener("click", () => dialog.showModal());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || dialog.open) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const found = keys.get(event.key);
    if (found === undefined) return;
    event.preventDefault();
    found.act();
  });
}

function focusFilter() {
  document.querySelector("[data-filter]")?.focus();
}
