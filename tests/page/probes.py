"""What is looked up in the page: bodies of JavaScript functions."""

from __future__ import annotations

from typing import Final

IS_LIVE: Final = "return document.querySelector('[role=status]')?.innerText.trim() === 'live'"
"""Whether the page gets each event as it is written."""

NAMED: Final = """
const [role, name] = arguments;
const tags = {
  button: "button, summary, [role=button]", link: "a[href]", heading: "h1",
  field: "input, textarea, select",
};
for (const one of document.querySelectorAll(tags[role])) {
  const labels = [...(one.labels ?? [])].map((label) => label.textContent);
  const said = [one.getAttribute("aria-label"), ...labels, one.textContent, one.title];
  const isSeen = one.checkVisibility() && !one.closest("[inert]");
  if (isSeen && said.some((text) => text && new RegExp(name, "i").test(text.trim()))) return one;
}
return null;
"""
"""The first element of a role that is called so."""

FOCUSED: Final = """
const one = document.activeElement;
return (one.getAttribute("aria-label") || one.labels?.[0]?.textContent || one.textContent || "")
  .trim();
"""
"""What the element is called that has the focus."""

REACHABLE: Final = """
const tags = "a[href], button, input, select, textarea, summary, [tabindex='0']";
return [...document.querySelectorAll(tags)].filter((one) =>
  one.checkVisibility() && !one.disabled && one.tabIndex >= 0
  && !one.closest("dialog:not([open])") && !(one.type === "radio" && !one.checked)).length;
"""
"""How many elements the Tab key has to reach."""

REACHED: Final = """
const one = document.activeElement;
if (one === document.body) return "end";
if (one.matches("audio, video") && one.dataset.reached) return "inside";  // its own controls
if (one.dataset.reached) return "again";
one.dataset.reached = "yes";
const style = getComputedStyle(one);
const isShown = style.outlineStyle !== "none" || style.boxShadow !== "none";
return isShown ? "shown" : `the focus is not seen on ${one.outerHTML.slice(0, 200)}`;
"""
"""Whether what has the focus now shows that, and had it before."""

MARKUP: Final = """
const odd = [
  "script:not([src])", "iframe", "object", "embed", "base", "meta[http-equiv]",
  "[onload]", "[onerror]", "[srcdoc]",
];
const leads = [...document.querySelectorAll("[href], [src]")].filter((one) =>
  /^(javascript|data):/i.test(one.getAttribute("href") ?? one.getAttribute("src")));
return [...document.querySelectorAll(odd.join()), ...leads]
  .map((one) => one.outerHTML.slice(0, 200));
"""
"""Elements that the page itself never has."""

UNSEEN: Final = r"""
const controls = "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f";
const turns = "\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069";
const piles = "\\p{M}{9}";
const unseen = new RegExp(`[${controls}${turns}]|${piles}`, "u");
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const found = [];
while (walker.nextNode()) {
  const text = walker.currentNode.data;
  if (unseen.test(text)) found.push(JSON.stringify(text.slice(0, 100)));
}
return found;
"""
"""Texts with characters that cannot be seen, that turn what is around them, or lie over it."""

SIZE: Final = """
return [document.getElementsByTagName("*").length, document.body.textContent.length];
"""
"""How many elements and characters the document has."""

SETTLED: Final = """
return new Promise((then) =>
  requestAnimationFrame(() => requestAnimationFrame(() => then(true))));
"""
"""True when two frames were drawn."""

REPAINTS: Final = """
const [frames, least] = arguments;
const main = document.querySelector("main");
for (const row of main.querySelectorAll("tbody tr")) row.wasThere = true;
return new Promise((then) => {
  const begun = performance.now();
  let left = frames, drawn = 0;
  const count = (records) => {
    const summaries = records.filter((one) => one.target.matches?.(".summary"));
    drawn += Math.max(1, summaries.length);
  };
  const observer = new MutationObserver(count);
  observer.observe(main, { subtree: true, childList: true, characterData: true, attributes: true });
  const next = () => {
    left -= 1;
    if (left > 0 || drawn < least) return requestAnimationFrame(next);
    observer.disconnect();
    const rows = [...main.querySelectorAll("tbody tr")];
    then([drawn, performance.now() - begun, rows.filter((one) => !one.wasThere).length]);
  };
  requestAnimationFrame(next);
});
"""
"""How often the view is drawn in so many frames, or until it was drawn that often; in how many
milliseconds of the page; and how many rows there are then that were not there before."""

DRAWN_DESPITE_A_LATE_TIMER: Final = """
return import("/page/repaint.js").then(({ repainting }) => {
  const { setTimeout, clearTimeout, requestAnimationFrame } = window;
  let at = 1000, made = 0;
  const timers = new Map(), frames = [], drawn = [];
  const frame = () => frames.splice(0).forEach((run) => run());
  const fire = () => {
    for (const [id, timer] of [...timers])
      if (timer.at <= at && timers.delete(id)) timer.run();
  };
  // Nothing else of the page runs until they are as they were.
  window.setTimeout = (run, ms = 0) => (timers.set(++made, { run, at: at + ms }), made);
  window.clearTimeout = (id) => timers.delete(id);
  window.requestAnimationFrame = (run) => frames.push(run);
  performance.now = () => at;
  try {
    const soon = repainting(() => drawn.push(at));
    soon(); frame(); fire();
    soon(); at = 1260; soon(); frame(); // 10 ms after the timer was due
    at = 1270; fire(); frame();
    soon(); at = 1510; fire(); frame();
  } finally {
    Object.assign(window, { setTimeout, clearTimeout, requestAnimationFrame });
    delete performance.now;
  }
  return drawn;
});
"""
"""When something is drawn that begins at 1000 ms, and whose timer comes 20 ms late once, after the
frame in which it was drawn for other news."""

HEADING_AFTER_CLICK: Final = """
const [selector] = arguments;
return new Promise((then) => {
  let frames = 0, asked = 0;
  const next = () => {
    frames += 1;
    asked = requestAnimationFrame(next);
  };
  const look = () => {
    cancelAnimationFrame(asked);
    then([document.querySelector("main h1")?.innerText, frames]);
  };
  addEventListener("hashchange", look, { once: true });
  document.querySelector(selector).click();
  asked = requestAnimationFrame(next);
});
"""
"""The heading in the moment in which the page has heard of a click on a link to a view, and how
many frames it drew before that."""

LONGEST_TREND: Final = """
const points = (one) => (one.getAttribute("d") ?? "").split("L").length;
return Math.max(0, ...[...document.querySelectorAll("path.trend")].map(points));
"""
"""How many points the longest line has."""

OVERFLOW: Final = """
return document.documentElement.scrollWidth - document.documentElement.clientWidth;
"""
"""By how many pixels the page is wider than the window."""
