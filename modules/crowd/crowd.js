// crowd: a persistent module that serves many requests at once, each as a stream of Spec 001 events.
// Every line it writes carries the requestId of its request: that alone keeps the streams apart.
//
//   echo '{"requestId":"a","operation":"invoke","input":{"op":"complete","args":{"prompt":"Hi"}}}' | node crowd.js
"use strict";
const { readFileSync } = require("node:fs");
const { join } = require("node:path");

// `describe` repeats the descriptor, so the two cannot come to disagree; it adds that we heed `cancel`.
const { name, version, kind, capabilities, inputs, outputs } =
  JSON.parse(readFileSync(join(__dirname, "module.json"), "utf8"));
const description = { name, version, kind, capabilities, inputs, outputs, features: ["cancel"] };

const LORE = `the river carries the light of the lamp to the sea and the sea keeps it until morning
  a story begins where the road ends and the road ends at the door of a quiet house
  every question opens a door and every door leads to the river or to a longer question
  in the morning the house remembers the story and the lamp forgets the sea`.split(/\s+/);
const open = new Map(); // requestId -> what ends that request early

const say = (requestId, body) => process.stdout.write(JSON.stringify({ requestId, ...body }) + "\n");
const fail = (requestId, code, message) => say(requestId, { ok: false, error: { code, message } });
const emit = (requestId, type, fields) => say(requestId, { version: "0", type, ...fields });

// A chain of words: whatever followed a word in the lore or in the prompt may follow it again. The dice
// are seeded with the prompt (FNV-1a, then xorshift), so the same prompt always gets the same answer.
function* words(prompt) {
  const asked = prompt.toLowerCase().match(/[\p{L}\p{M}\p{N}'’-]+/gu) ?? [];
  const text = [...LORE, ...asked, LORE[0]];
  const followers = new Map();
  text.slice(1).forEach((word, i) => followers.set(text[i], [...(followers.get(text[i]) ?? []), word]));
  let dice = 2166136261;
  for (const byte of Buffer.from(prompt)) dice = Math.imul(dice ^ byte, 16777619);
  for (let word = asked.at(-1) ?? LORE[0]; ; ) {
    dice ^= dice << 13; dice ^= dice >>> 17; dice ^= dice << 5;
    const choice = followers.get(word);
    yield (word = choice[(dice >>> 0) % choice.length]);
  }
}

function complete(requestId, { prompt, delay_ms: delay = 10, max_words: most = 24 }) {
  if (typeof prompt !== "string") return fail(requestId, "bad_request", "prompt must be a string");
  const source = words(prompt);
  let text = "", count = 0;
  const next = () => {
    const content = (count ? " " : "") + source.next().value;
    text += content;
    count += 1;
    emit(requestId, "ui_event", { event: "message.chunk", payload: { content } });
    if (count < most) return void (timer = setTimeout(next, delay));
    open.delete(requestId);
    emit(requestId, "done", { ok: true, summary: `${count} words`, result: { text, words: count } });
  };
  let timer = setTimeout(next, delay); // between two words, all the other requests have their turn
  open.set(requestId, () => {
    clearTimeout(timer);
    const error = { code: "cancelled", message: `stopped after ${count} words` };
    emit(requestId, "done", { ok: false, summary: error.message, error });
  });
}

function cancel(requestId) {
  open.get(requestId)?.(); // unknown or already answered: nothing to stop, and nobody waits for a reply
  open.delete(requestId);
}

function serve(line) {
  let request;
  try {
    request = JSON.parse(line);
    if (request === null || typeof request !== "object" || Array.isArray(request)) throw Error("not an object");
  } catch (fault) {
    return console.error(`crowd: ignored a malformed line: ${fault.message}`);
  }
  const { requestId, operation, input } = request;
  if (operation === "health") return say(requestId, { status: "ok" });
  if (operation === "describe") return say(requestId, description);
  if (operation === "cancel") return cancel(requestId);
  if (operation !== "invoke") return fail(requestId, "unsupported_op", `crowd has no operation ${operation}`);
  if (input?.op !== "complete") return fail(requestId, "unsupported_op", `crowd has no op ${input?.op}`);
  complete(requestId, input.args ?? {});
}

// setEncoding keeps a character whole that arrives in two chunks. We split on \n ourselves because
// node:readline also splits on U+2028, which JSON strings may contain. Only the new chunk is searched.
let rest = "";
process.stdin.setEncoding("utf8").on("data", (chunk) => {
  const lines = chunk.split("\n");
  lines[0] = rest + lines[0];
  rest = lines.pop();
  lines.filter((line) => line.trim()).forEach(serve);
}).on("end", () => rest.trim() && serve(rest)); // then node exits 0 once the open answers are complete
process.stdout.on("error", () => process.exit(0)); // nobody is left to read them
