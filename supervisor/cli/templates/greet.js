// A module: it reads requests from stdin, line by line, and answers each with a line on stdout.
// What is for people goes to stderr (console.error): stdiod keeps it in the module's log.
"use strict";

const ops = {
  greet: ({ name }) => `hello ${name}`,
};

const failure = (code, message) => ({ ok: false, error: { code, message } });

function answer({ operation, input }) {
  if (operation === "health") return { status: "ok" };
  if (operation === "describe") return {}; // all there is to say stands in module.json
  if (operation !== "invoke" || !Object.hasOwn(ops, input.op)) {
    return failure("unsupported_op", "there is no such op");
  }
  try {
    return { ok: true, result: ops[input.op](input.args) };
  } catch (error) {
    return failure("internal", String(error));
  }
}

// Not by readline: that splits at U+2028, too, which may stand in JSON.
let rest = "";
process.stdin.setEncoding("utf8");
process.stdin.on("data", (text) => {
  const lines = (rest + text).split("\n");
  rest = lines.pop();
  for (const line of lines) {
    const request = JSON.parse(line);
    const reply = { requestId: request.requestId, ...answer(request) };
    process.stdout.write(JSON.stringify(reply) + "\n");
  }
});
