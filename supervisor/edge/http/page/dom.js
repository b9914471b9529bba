/* Elements, made of text only.

   What a module says is never markup: whatever stands here as a child is a text node, and an
   attribute that could run something is an error. `said` is for all that a module, a client or a
   file said: it cannot turn the text around it, and shows what could not be seen. */

const SVG = "http://www.w3.org/2000/svg";
const RUNS = /^(on|style$|srcdoc$|srcset$|formaction$|action$|ping$)/i;
const LEADS = new Set(["href", "src"]);
const OURS = /^(#|api\/|page\/)/;

/** Make an element. `on: {click}` has listeners; true and false are for attributes without a
    value, null leaves one out. Children are nodes, texts, numbers, arrays of them, or nothing. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [type, listener] of Object.entries(value)) made.addEventListener(type, listener);
    } else {
      set(made, name, value);
    }
  }
  made.append(...flat(children));
  return made;
}

/** Set an attribute if it is another one; null and false take it away. */
export function set(element, name, value) {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (RUNS.test(name) || (LEADS.has(name) && !OURS.test(text))) {
    throw new Error(`${name} may not be set to ${text}`);
  }
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

/** Show a text in place of what an element has, if it is another one. */
export function write(element, text) {
  const shown = String(text ?? "");
  if (element.textContent !== shown) element.textContent = shown;
}

/** Put children in place of what an element has. */
export function fill(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

function flat(children) {
  return children
    .flat(Infinity)
    .filter((one) => one !== null && one !== undefined && one !== false)
    .map((one) => (one instanceof Node ? one : document.createTextNode(String(one))));
}

/* As `protocol.problem.printable` in the daemon: controls, formats (among them what turns the
   direction of text), what has no meaning, and white space other than the blank. */
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;
const UNSEEN_BUT_BREAKS = /(?![\n\t])[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

/* Marks above and below one letter. No script needs so many, and a pile of thousands would lie over
   whatever else the page shows. */
const PILE = /(\p{M}{8})\p{M}+/gu;

/** Write what cannot be seen as escapes, so that a text is what it looks like. */
export function printable(text, { lines = false } = {}) {
  return String(text)
    .replace(lines ? UNSEEN_BUT_BREAKS : UNSEEN, escaped)
    .replace(PILE, "$1…");
}

function escaped(char) {
  const number = char.codePointAt(0);
  const short = { "\n": "\\n", "\r": "\\r", "\t": "\\t" }[char];
  if (short) return short;
  if (number < 0x100) return `\\x${number.toString(16).padStart(2, "0")}`;
  if (number < 0x10000) return `\\u${number.toString(16).padStart(4, "0")}`;
  return `\\U${number.toString(16).padStart(8, "0")}`;
}

export function shortened(text, limit) {
  const whole = String(text);
  return whole.length <= limit ? whole : `${whole.slice(0, limit - 1)}…`;
}

/** Show what somebody said, in a line of its own direction; the rest of a long one is a title. */
export function said(text, limit = 300) {
  const whole = String(text ?? "");
  const isCut = whole.length > limit;
  const title = isCut ? printable(shortened(whole, 2000)) : null;
  return el("bdi", { title }, printable(shortened(whole, limit)));
}

/** Show what somebody said in a line; all of a long one only if somebody asks. */
export function unfolding(text, limit = 1000) {
  const whole = String(text ?? "");
  if (whole.length <= limit) return said(whole, limit);
  const shown = said(whole, limit);
  const over = whole.length - MOST_CHARS;
  const open = (event) => {
    write(shown, printable(shortened(whole, MOST_CHARS)));
    if (over > 0)
      fill(event.target.parentNode, shown, ` ${count(over, "character")} more are not shown.`);
    else event.target.remove();
  };
  const button = el(
    "button",
    { type: "button", class: "small", on: { click: open } },
    `Show all ${count(whole.length, "character")}`,
  );
  return el("span", {}, shown, " ", button);
}

/** How much of a long text stands there, before and after somebody asked for all of it. */
export const SHORT_CHARS = 4000;
export const MOST_CHARS = 200_000;

/** Show a text of several lines; all of a long one only if somebody asks, and never too much. */
export function block(text, { label = null, short = SHORT_CHARS } = {}) {
  const whole = String(text ?? "");
  const shown = el("pre", { tabindex: "0", role: label ? "group" : null, "aria-label": label });
  if (whole.length <= short) {
    write(shown, printable(whole, { lines: true }));
    return shown;
  }
  write(shown, printable(whole.slice(0, short), { lines: true }));
  const rest = el("p", { class: "rest" });
  const button = el(
    "button",
    {
      type: "button",
      class: "small",
      on: {
        click: () => {
          write(shown, printable(whole.slice(0, MOST_CHARS), { lines: true }));
          const over = whole.length - MOST_CHARS;
          if (over > 0) fill(rest, `${count(over, "character")} more are not shown.`);
          else rest.remove();
          shown.focus();
        },
      },
    },
    "Show all",
  );
  fill(rest, `${count(whole.length - short, "character")} more. `, button);
  return el("div", { class: "block" }, shown, rest);
}

/** A JSON value as somebody reads it. */
export function json(value, options) {
  return block(typeof value === "string" ? value : JSON.stringify(value, null, 2), options);
}

/** Say that something went wrong, or is as somebody would not expect it. */
export function notice(words, kind = "bad") {
  return el(
    "p",
    { class: `notice ${kind}`, role: kind === "bad" ? "alert" : null },
    said(words, 2000),
  );
}

/** Have `parent` show one element for each item, in order, and leave alone what did not change.
    `make(item)` returns an element, `update(element, item)` has it show an item. */
export function keyed(parent, items, key, make, update) {
  const before = parent.keyedElements ?? new Map();
  const after = new Map();
  for (const item of items) {
    const name = key(item);
    const element = before.get(name) ?? make(item);
    after.set(name, element);
    update(element, item);
  }
  for (const [name, element] of before) if (after.get(name) !== element) element.remove();
  let at = parent.firstChild;
  for (const element of after.values()) {
    if (element === at) at = at.nextSibling;
    else parent.insertBefore(element, at);
  }
  parent.keyedElements = after;
}

/** Return a function that has `draw` run in the next frame, however often it is called. */
export function inFrame(draw) {
  let asked = 0;
  const soon = () => {
    asked ||= requestAnimationFrame(() => {
      asked = 0;
      draw();
    });
  };
  soon.cancel = () => {
    cancelAnimationFrame(asked);
    asked = 0;
  };
  return soon;
}

export function count(number, noun) {
  return number === 1 ? `1 ${noun}` : `${number.toLocaleString("en")} ${noun}s`;
}
