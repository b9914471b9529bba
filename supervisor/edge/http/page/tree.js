/* A JSON value as a tree that can be opened and closed. What is another value than before is marked
   for a while. Only what is open is made, and of a long list its beginning. */

import { block, el, fill, keyed, said, set, write } from "./dom.js";

const MOST_CHILDREN = 200;
const OPEN_DEPTH = 2;
const OPEN_CHILDREN = 30;
const TEXT_CHARS = 300;
const MARKED_MS = 3000;

/** Return an element; `show(value)` of it shows a value, and tells which paths have changed. */
export function tree(label) {
  const root = el("ul", { class: "tree", "aria-label": label });
  let before;
  root.show = (value) => {
    const changed = [];
    if (before === undefined || !same(before, value)) showChildren(root, value, 0, before === undefined ? null : changed, []);
    before = value;
    return changed;
  };
  return root;
}

function isBranch(value) {
  return typeof value === "object" && value !== null;
}

/** Show the children of a value in `list`; `changed` takes the paths of those that are new, null
    if all are. */
function showChildren(list, value, depth, changed, path) {
  const all = isBranch(value) ? Object.entries(value) : [["", value]];
  list.most ??= MOST_CHILDREN;
  keyed(
    list,
    all.slice(0, list.most),
    ([key]) => key,
    ([key]) => newNode(key, depth, path, changed),
    (node, [, one]) => node.show(one, changed),
  );
  if (list.rest) list.rest.remove();
  if (all.length > list.most) {
    const more = () => {
      list.most += MOST_CHILDREN;
      showChildren(list, value, depth, null, path);
    };
    const left = `${(all.length - list.most).toLocaleString("en")} more. `;
    list.append((list.rest = el("li", { class: "dim" }, left, el("button", { type: "button", class: "small", on: { click: more } }, "Show some"))));
  }
  if (!all.length) list.append((list.rest = el("li", { class: "dim" }, "nothing")));
}

function newNode(key, depth, above, since) {
  const node = el("li", {});
  const path = [...above, key];
  const isNew = since !== null;
  let kind = null;
  let before;
  node.show = (value, changed) => {
    if (before !== undefined && same(before, value)) return;
    const now = isBranch(value) ? "branch" : "leaf";
    if (now !== kind) {
      kind = now;
      fill(node, now === "branch" ? branch(key, depth, path) : leaf(key));
    }
    const first = before === undefined;
    before = value;
    if (changed !== null && (!first || isNew)) {
      if (now === "leaf" || !node.firstChild.open || first) changed.push(path);
      mark(node);
    }
    node.firstChild.show(value, changed);
  };
  return node;
}

function leaf(key) {
  const text = el("span", {});
  const made = el("div", { class: "leaf" }, name(key), text);
  made.show = (value) => {
    const isLong = typeof value === "string" && value.length > TEXT_CHARS;
    set(text, "class", value === null ? "null" : typeof value);
    fill(text, isLong ? block(value, { short: TEXT_CHARS }) : said(typeof value === "string" ? JSON.stringify(value) : String(value), 2 * TEXT_CHARS));
  };
  return made;
}

function branch(key, depth, path) {
  const size = el("span", { class: "dim" });
  const list = el("ul", {});
  const made = el("details", {}, el("summary", {}, name(key), size), list);
  let value;
  let isShown = false;
  made.show = (now, changed) => {
    value = now;
    const length = Object.keys(now).length;
    write(size, Array.isArray(now) ? `[${length}]` : `{${length}}`);
    if (!isShown && depth < OPEN_DEPTH && length <= OPEN_CHILDREN) made.open = true;
    if (made.open) open(changed);
  };
  const open = (changed) => {
    isShown = true;
    showChildren(list, value, depth + 1, changed, path);
  };
  made.addEventListener("toggle", () => {
    if (made.open) open(null);
  });
  return made;
}

function name(key) {
  return key === "" ? null : [el("span", { class: "key" }, said(key, 100)), ": "];
}

function mark(node) {
  clearTimeout(node.unmark);
  set(node, "data-changed", null);
  void node.offsetWidth; // so that the animation begins anew
  set(node, "data-changed", true);
  node.unmark = setTimeout(() => set(node, "data-changed", null), MARKED_MS);
}

export function same(one, other) {
  if (one === other) return true;
  if (!isBranch(one) || !isBranch(other) || Array.isArray(one) !== Array.isArray(other)) return false;
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length
    && keys.every((key) => Object.hasOwn(other, key) && same(one[key], other[key]));
}
