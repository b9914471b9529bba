// pingpong.js COUNT WINDOW PROGRAM: ask a persistent module COUNT times, WINDOW requests open at once,
// as a careful Node host does: requests are built and answers parsed as JSON, each answer finds its
// request by its id, and all requests of a tick leave in one write. Prints the seconds it took,
// and those of its own CPU, once a quarter as many were answered.
"use strict";
const { spawn } = require("node:child_process");

const [asked, window] = process.argv.slice(2, 4).map(Number);
const warm = Math.floor(asked / 4), count = asked + warm;
const child = spawn(process.argv[4], process.argv.slice(5), { stdio: ["pipe", "pipe", "inherit"] });
const open = new Map();
let sent = 0, answered = 0, outgoing = "", rest = "";

function flush() {
  child.stdin.write(outgoing);
  outgoing = "";
}

function ask() {
  if (sent === count) return;
  const requestId = `r${++sent}`;
  open.set(requestId, settle);
  if (!outgoing) queueMicrotask(flush);
  const input = { op: "echo", args: { n: 1 } };
  outgoing += JSON.stringify({ requestId, tool: "primes", operation: "invoke", input }) + "\n";
}

function settle(answer) {
  if (!answer.ok) throw new Error(JSON.stringify(answer));
  if (++answered === warm) start();
  if (answered < count) return ask();
  const seconds = Number(process.hrtime.bigint() - begin) / 1e9;
  const { user, system } = process.cpuUsage(before);
  child.stdin.end();
  child.on("exit", () => console.log(seconds.toFixed(9), ((user + system) / 1e6).toFixed(9)));
}

child.stdout.setEncoding("utf8").on("data", (chunk) => {
  const lines = (rest + chunk).split("\n");
  rest = lines.pop();
  for (const line of lines) {
    const answer = JSON.parse(line);
    const waiting = open.get(answer.requestId);
    open.delete(answer.requestId);
    waiting(answer);
  }
});
let begin, before;
function start() {
  begin = process.hrtime.bigint();
  before = process.cpuUsage();
}

child.on("spawn", () => {
  start();
  for (let i = 0; i < window; i++) ask();
});
