// doorkeeper: a hook that stands in the door. Before a call is made, the host shows it the arguments
// (op on_event, event tool:pre), and it answers with a HookResult: continue, deny, or ask_user.
//
//   echo '{"operation":"invoke","input":{"op":"on_event","args":{"event":"tool:pre","data":{"tool_name":"shell","op":"run","tool_input":{"line":"rm -rf /"}}}}}' | node doorkeeper.js
"use strict";
const { readFileSync } = require("node:fs");
const { join } = require("node:path");

// `describe` repeats the descriptor, so the two cannot come to disagree.
const { name, version, kind, capabilities, inputs, outputs } =
  JSON.parse(readFileSync(join(__dirname, "module.json"), "utf8"));

// Regular expressions of the operator's, or these. One that is wrong ends us here, at the start, with
// its words on stderr: a door without a keeper stays closed.
const { DOORKEEPER_DENY, DOORKEEPER_ASK, DOORKEEPER_WAIT_S } = process.env;
const DENY = new RegExp(DOORKEEPER_DENY || String.raw`\brm\s+-\w*[rf]|\bdrop\s+table\b|/etc/shadow`, "i");
const ASK = new RegExp(DOORKEEPER_ASK || String.raw`\bsudo\b|--force\b|\bproduction\b`, "i");
const WAIT_S = Number(DOORKEEPER_WAIT_S) || 300;

const say = (requestId, body) =>
  process.stdout.write(JSON.stringify(requestId === undefined ? body : { requestId, ...body }) + "\n");

// Every text in a value, wherever it is; keys too, for they can be somebody's path.
function* texts(value) {
  if (typeof value === "string") yield value;
  else if (value !== null && typeof value === "object")
    for (const [key, inner] of Object.entries(value)) { yield key; yield* texts(inner); }
}

function judge(event, { tool_name: tool, op, tool_input: given } = {}) {
  if (event !== "tool:pre") return { action: "continue" };
  const found = (rule) => [...texts(given)].find((text) => rule.test(text));
  const dangerous = found(DENY);
  if (dangerous !== undefined)
    return { action: "deny", reason: `${tool}.${op} is not let through with ${JSON.stringify(dangerous.slice(0, 80))}` };
  const doubtful = found(ASK);
  if (doubtful === undefined) return { action: "continue" };
  return {
    action: "ask_user",
    approval_prompt: `${tool}.${op} wants ${JSON.stringify(doubtful.slice(0, 80))}. Allow it?`,
    approval_timeout: WAIT_S,
    approval_default: "deny",
    reason: "nobody allowed it",
  };
}

function serve(line) {
  let request;
  try {
    request = JSON.parse(line);
    if (request === null || typeof request !== "object" || Array.isArray(request)) throw Error("not an object");
  } catch (fault) {
    return console.error(`doorkeeper: ignored a malformed line: ${fault.message}`);
  }
  const { requestId, operation, input } = request;
  const fail = (message) => say(requestId, { ok: false, error: { code: "unsupported_op", message } });
  if (operation === "health") return say(requestId, { status: "ok" });
  if (operation === "describe") return say(requestId, { name, version, kind, capabilities, inputs, outputs });
  if (operation !== "invoke") return fail(`doorkeeper has no operation ${operation}`);
  if (input?.op !== "on_event") return fail(`doorkeeper has no op ${input?.op}`);
  say(requestId, { ok: true, result: judge(input.args?.event, input.args?.data) });
}

// We split on \n ourselves because node:readline also splits on U+2028, which JSON strings may contain.
let rest = "";
process.stdin.setEncoding("utf8").on("data", (chunk) => {
  const lines = chunk.split("\n");
  lines[0] = rest + lines[0];
  rest = lines.pop();
  lines.filter((line) => line.trim()).forEach(serve);
}).on("end", () => rest.trim() && serve(rest));
process.stdout.on("error", () => process.exit(0)); // nobody is left to read them
