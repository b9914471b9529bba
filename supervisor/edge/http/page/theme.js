/* Light or dark: as the system has it, until somebody chooses; remembered in this browser. */

import { set, write } from "./dom.js";

const KEY = "stdiod.theme";
const NEXT = { system: "light", light: "dark", dark: "system" };

export function theme(button) {
  let chosen = remembered();
  const show = () => {
    set(document.documentElement, "data-theme", chosen === "system" ? null : chosen);
    write(button, `Theme: ${chosen}`);
  };
  button.addEventListener("click", () => {
    chosen = NEXT[chosen];
    try {
      localStorage.setItem(KEY, chosen);
    } catch {
      // Kept for as long as the page is shown.
    }
    show();
  });
  show();
}

function remembered() {
  try {
    const found = localStorage.getItem(KEY);
    return found in NEXT ? found : "system";
  } catch {
    return "system";
  }
}
