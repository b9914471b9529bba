/* The page: which view is shown, by the hash of the location, and what all views share.

   A view is a file in views/ with one function, and a line in `VIEWS` below:

       export function render(into, page) { ...; return undo; }

   `into` is an empty <section>; `undo` (if any) takes back what the view has begun: timers,
   listeners, streams. The hash `#/modules/dice?op=roll` is the view with the path `modules/:name`.
   `page` has

       parameters   {name: "dice"}, the segments of the hash that vary, decoded
       query        URLSearchParams of what stands behind the `?` of the hash
       signal       an AbortSignal for requests, aborted when another view is shown
       live         the journal as it is written (live.js): listen(entries => ...), watch(state => ...)
       figures      `status`, asked for again and again while somebody listens (figures.js)
       may(scope)   whether who has logged in has "read", "invoke" or "admin"; page.may("admin", module)
                    also looks at its modules. `why(scope)` has the words for a disabled button
       announce(t)  say something to a screen reader, politely; what happens often is not announced
       title(t)     the title of the document
       fail(error)  show an error that ends the view; one of a 401 shows how to log in

   Make elements by dom.js only (`el`, `said` for whatever a module said), ask by api.js. */

import { ask, request } from "./api.js";
import { el, fill, notice, printable, set, write } from "./dom.js";
import { Figures } from "./figures.js";
import { Live } from "./live.js";
import { logout } from "./logout.js";
import { questionBadge } from "./question_badge.js";
import { may } from "./principal.js";
import { shortcuts } from "./shortcuts.js";
import { theme } from "./theme.js";
import { render as approvals } from "./views/approvals.js";
import { render as assets } from "./views/assets.js";
import { render as events } from "./views/events.js";
import { render as module } from "./views/module.js";
import { render as modules } from "./views/modules.js";
import { render as session } from "./views/session.js";
import { render as sessions } from "./views/sessions.js";

const VIEWS = [
  { path: "modules", label: "Modules", render: modules },
  { path: "modules/:name", label: "Module", render: module },
  { path: "sessions", label: "Sessions", render: sessions },
  { path: "sessions/:id", label: "Session", render: session },
  { path: "assets", label: "Assets", render: assets },
  { path: "approvals", label: "Approvals", render: approvals },
  { path: "events", label: "Events", render: events },
];

const main = document.getElementById("main");
const announcer = document.getElementById("announcer");
const live = new Live();
const figures = new Figures(live);
let principal = null;
let leave = () => {};

function hrefOf(view) {
  return `#/${view.path}`;
}

/** Find the view of a hash, and what of it varies. */
function find(hash) {
  const [where, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const segments = (where || VIEWS[0].path).split("/");
  for (const view of VIEWS) {
    const parts = view.path.split("/");
    if (parts.length !== segments.length) continue;
    if (!parts.every((part, at) => part.startsWith(":") || part === segments[at])) continue;
    const varying = parts
      .map((part, at) => [part, segments[at]])
      .filter(([part]) => part[0] === ":");
    const parameters = Object.fromEntries(
      varying.map(([part, value]) => [part.slice(1), decoded(value)]),
    );
    return { view, parameters, query: new URLSearchParams(query) };
  }
  return null;
}

function decoded(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

function show() {
  if (location.hash && !location.hash.startsWith("#/")) return; // a place in the document
  leave();
  const found = find(location.hash);
  const into = el("section", { class: "view" });
  fill(main, into);
  title(found?.view.label ?? "Not found");
  markViews(found?.view);
  if (found === null) {
    into.append(notice("There is no such view.", "calm"));
    return;
  }
  const gone = new AbortController();
  const undo = found.view.render(into, pageFor(found, gone.signal, into));
  leave = () => {
    gone.abort();
    undo?.();
    leave = () => {};
  };
}

function pageFor({ parameters, query }, signal, into) {
  const fail = (error) => {
    if (signal.aborted) return;
    if (error.isLogin) loggedOut();
    else into.append(notice(error.message));
  };
  const its = (scope, module) => may(principal, scope, module);
  return {
    parameters,
    query,
    signal,
    live,
    figures,
    may: its,
    why,
    announce,
    title,
    fail,
    principal,
  };
}

function why(scope) {
  return `You are ${printable(principal.name)}, and have no scope ${scope} for this.`;
}

function announce(text) {
  write(announcer, printable(text));
}

function title(text) {
  document.title = text ? `${printable(text).slice(0, 100)} · stdiod` : "stdiod";
}

function markViews(current) {
  const family = current?.path.split("/")[0];
  for (const link of document.querySelectorAll("#views a")) {
    set(link, "aria-current", link.dataset.family === family ? "page" : null);
  }
}

function loggedOut() {
  leave();
  title("Log in");
  figures.stop();
  const shown = [
    el("h1", {}, "You are not logged in"),
    el("p", {}, "Type this in a terminal of the machine that the daemon runs on:"),
    el("pre", {}, "stdiod page"),
    el("p", {}, "It opens this page, logged in."),
    tokenForm(),
    el("button", { type: "button", on: { click: () => location.reload() } }, "Try again"),
  ];
  fill(main, el("section", { class: "view login" }, shown));
}

/** Takes a token where nobody on the way can read it, or says why not. */
function tokenForm() {
  if (!isSecureContext)
    return el("p", {}, "A token is taken over https or at localhost only: others could read it here.");
  const input = el("input", { type: "password", autocomplete: "off", required: true });
  const outcome = el("div");
  const submit = (event) => {
    event.preventDefault();
    request("POST", "login", { body: { token: input.value.trim() } })
      .then(() => location.reload(), (error) => fill(outcome, notice(error.message)));
  };
  const label = el("label", {}, "Or a token, of ", el("code", {}, "stdiod token new"), ": ", input);
  return el("form", { on: { submit } }, label, " ", el("button", {}, "Log in"), outcome);
}

const LINK_WORDS = {
  connecting: "connecting",
  live: "live",
  away: "the daemon is away",
  paused: "paused",
  refused: "no events",
};

function showLink() {
  const link = document.getElementById("link");
  live.watch((state, words) => {
    set(link, "data-state", state);
    set(link, "title", words || null);
    write(link, LINK_WORDS[state]);
    set(document.documentElement, "data-stream", state === "live" ? "live" : "lost");
  });
}

async function begin() {
  theme(document.getElementById("theme"));
  const named = VIEWS.filter((view) => view.label && !view.path.includes("/"));
  fill(
    document.getElementById("views"),
    named.map((view) =>
      el("li", {}, el("a", { href: hrefOf(view), "data-family": view.path }, view.label)),
    ),
  );
  shortcuts(
    document.getElementById("help"),
    named.map((view) => [view.label, hrefOf(view)]),
  );
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  fill(main);
  for (let waitMs = 500; principal === null; waitMs = Math.min(5000, waitMs * 2)) {
    try {
      principal = await ask("narrow");
    } catch (error) {
      if (error.isLogin) return loggedOut();
      fill(main, notice(error.message));
      await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
  }
  logout(document.getElementById("logout"), principal, () => location.reload());
  questionBadge(document.querySelector('#views a[data-family="approvals"]'), live);
  showLink();
  addEventListener("hashchange", () => {
    show();
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  });
  show();
  await live.run();
  loggedOut();
}

begin();
