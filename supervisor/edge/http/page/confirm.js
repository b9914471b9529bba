/* Ask before something is ended that cannot be had back. */

import { el } from "./dom.js";

/** Show what it is about; resolves to whether somebody said yes. */
export function confirmed(title, words, verb) {
  return new Promise((resolve) => {
    const close = (value) => () => dialog.close(value);
    const dialog = el(
      "dialog",
      {
        "aria-labelledby": "confirm-title",
        on: {
          close: () => {
            dialog.remove();
            resolve(dialog.returnValue === "yes");
          },
        },
      },
      el("h2", { id: "confirm-title" }, title),
      el("p", {}, words),
      el(
        "div",
        { class: "actions" },
        el("button", { type: "button", autofocus: true, on: { click: close("no") } }, "Keep it"),
        el("button", { type: "button", class: "danger", on: { click: close("yes") } }, verb),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}
