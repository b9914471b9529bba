/* The questions that wait for a person, each with what answers it. */

import { get, send } from "../api.js";
import { count, el, fill, keyed, notice, printable, said, set, write } from "../dom.js";
import { duration, timeOfDay } from "../format.js";
import { followed } from "../pace.js";
import { fieldsOf } from "../question_form.js";

const ANSWERED = 20;
const WORDS = { allow: "Allow", deny: "Deny" };
const ALLOWS = /^[\s,]*(allow|approve|yes)(?=[\s,]|$)/iu;

/** Whether an option allows, as the daemon decides it (`supervisor.policy.approval`). */
export function allows(option) {
  return ALLOWS.test(option);
}

export function render(into, page) {
  const summary = el("p", { class: "summary" });
  const trouble = el("div", {});
  const questions = el("div", { class: "questions" });
  const empty = el("p", { class: "empty", hidden: true }, "Nobody asks anything.");
  const answered = el("ul", { class: "facts" });
  const past = el("section", { class: "panel", hidden: true }, el("h2", {}, "Answered since you came"), answered);
  const heading = el("h1", { tabindex: "-1" }, "Approvals");
  into.append(el("header", { class: "head" }, heading, summary), trouble, questions, empty, past);

  const known = new Map();
  let waiting = null;
  const context = { page, after: () => (questions.querySelector("button:enabled, input, select") ?? heading).focus() };
  const draw = () => {
    if (waiting === null) return;
    for (const one of waiting) known.set(one.id, one.prompt);
    keyed(questions, waiting, (one) => one.id, (one) => question(one, context), (element, one) => element.show(one));
    empty.hidden = Boolean(waiting.length);
    write(summary, waiting.length ? `${count(waiting.length, "question")} wait${waiting.length === 1 ? "s" : ""} for an answer` : "");
  };
  const ask = async () => {
    const before = waiting?.length ?? 0;
    waiting = (await get(["approvals"], {}, { signal: page.signal })).approvals;
    if (waiting.length > before) page.announce(`${count(waiting.length, "question")} to answer`);
    draw();
  };
  const follow = followed(page, trouble, ask, (entry) => String(entry.event).startsWith("approval:"), 250);
  const unlisten = page.live.listen((entries) => {
    for (const entry of entries) {
      if (entry.event !== "approval:decision") continue;
      past.hidden = false;
      answered.prepend(decided(entry, known));
      known.delete(entry.data?.id);
      if (answered.children.length > ANSWERED) answered.lastChild.remove();
    }
  });
  const clock = setInterval(() => {
    for (const one of questions.children) one.tick();
  }, 1000);
  return () => {
    follow();
    unlisten();
    clearInterval(clock);
  };
}

function question(asked, { page, after }) {
  const left = el("span", {});
  const problem = el("div", {});
  const fields = asked.form ? fieldsOf(asked.form) : null;
  const may = page.may("invoke");
  const button = (words, answer, kind) => el("button", {
    type: kind === "main" ? "submit" : "button", class: kind, value: answer, disabled: !may, title: may ? null : page.why("invoke"),
    on: kind === "main" ? {} : { click: () => reply(answer) },
  }, said(words, 100));
  const answers = fields
    ? [button("Answer", "allow", "main"), button("Decline", "deny", "danger")]
    : asked.options.map((one, at) => button(WORDS[one] ?? one, one, at === 0 && allows(one) ? "main" : allows(one) ? null : "danger"));
  const first = fields ? "allow" : asked.options[0];
  const form = el("form", { class: "panel question", "data-question": asked.id, "aria-labelledby": `prompt-${asked.id}`, novalidate: true,
    on: { submit: (event) => { event.preventDefault(); reply(first); } } },
  el("h2", { id: `prompt-${asked.id}` }, said(asked.prompt, 2000)),
  el("p", { class: "daemon" }, "asked by ", said(asked.asked_by, 80), " about ",
    el("a", { href: `#/modules/${encodeURIComponent(asked.module)}` }, said(asked.module, 80)), ".", said(asked.op, 80),
    asked.session_id ? [" in ", el("a", { href: `#/sessions/${encodeURIComponent(asked.session_id)}` }, said(asked.session_id, 80))] : null,
    " · ", said(asked.id, 40), " · ", left),
  fields ? el("div", { class: "fields" }, fields.elements) : null,
  problem, el("div", { class: "answers" }, answers));

  let ends = 0;
  form.show = (now) => {
    ends = performance.now() + now.left_s * 1000;
    form.tick();
  };
  form.tick = () => {
    const words = asked.default === "allow" ? "allowed" : "denied";
    write(left, `${words} in ${duration(Math.max(0, Math.round((ends - performance.now()) / 1000)))}`);
  };
  const reply = async (answer) => {
    const isDenial = !allows(answer);
    const body = fields && !isDenial ? { answer, content: fields.content() } : { answer };
    set(form, "aria-busy", "true");
    for (const one of form.querySelectorAll("button")) one.disabled = true;
    try {
      const told = await send("POST", ["approvals", asked.id], body);
      page.announce(told.allowed ? "Allowed" : "Denied");
      form.remove();
      after();
    } catch (error) {
      if (error.isLogin) page.fail(error);
      fill(problem, notice(error.message));
      for (const one of form.querySelectorAll("button")) one.disabled = !may;
    }
    set(form, "aria-busy", null);
  };
  return form;
}

const BY = { timeout: "nobody answered in time", withdrawn: "its request has ended", daemon_restart: "the daemon was restarted" };

function decided(entry, known) {
  const data = entry.data ?? {};
  const prompt = known.get(data.id);
  const allowed = entry.status === "allowed";
  const who = BY[data.by] ?? (entry.by ? `by ${printable(entry.by.name)}` : "");
  return el("li", {},
    el("span", { class: "verdict", "data-ok": allowed ? "yes" : "no" }, allowed ? "allowed" : "denied"), " ",
    said(prompt ?? `${entry.module ?? ""}`, 200),
    el("div", { class: "note" }, timeOfDay(entry.ts), who ? `, ${who}` : ""),
  );
}
