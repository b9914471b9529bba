// relay.js SOCKET PROGRAM...: serve a module to the clients of a socket, as a careful Node host does: each
// request is parsed and written anew with an id of its own, each event and answer finds its client by that, and
// all that one chunk leads to leaves in one write. It reads no more than its clients do, and ends with its stdin.
"use strict";
const { spawn } = require("node:child_process");
const { createServer } = require("node:net");

const child = spawn(process.argv[3], process.argv.slice(4), { stdio: ["pipe", "pipe", "inherit"] });
const open = new Map();
let last = 0;

function lines(stream, each, done) {
  let rest = "";
  stream.setEncoding("utf8").on("data", (chunk) => {
    const found = (rest + chunk).split("\n");
    rest = found.pop();
    for (const line of found) each(JSON.parse(line));
    done();
  });
}

const written = new Map();
lines(child.stdout, (answer) => {
  const { client, requestId } = open.get(answer.requestId);
  if (answer.type === undefined || answer.type === "done") open.delete(answer.requestId);
  const line = JSON.stringify({ version: "0", type: "done", ...answer, requestId }) + "\n";
  written.set(client, (written.get(client) ?? "") + line);
}, () => {
  for (const [client, text] of written) {
    if (client.write(text)) continue;
    child.stdout.pause();
    client.once("drain", () => child.stdout.resume());
  }
  written.clear();
});

createServer((client) => {
  let outgoing = "";
  lines(client, (request) => {
    const requestId = `r${++last}`;
    open.set(requestId, { client, requestId: request.requestId });
    outgoing += JSON.stringify({ ...request, requestId }) + "\n";
  }, () => {
    child.stdin.write(outgoing);
    outgoing = "";
  });
}).listen(process.argv[2], () => console.log("ready"));
process.stdin.on("end", () => child.stdin.end()).resume();
child.on("exit", () => process.exit());
