// spawn_loop.js COUNT PROGRAM: run a tool COUNT times, one after the other, with child_process.spawn:
// a request written, both outputs read to their end. Prints the seconds it took, and those of its own
// CPU, after a quarter as many.
"use strict";
const { spawn } = require("node:child_process");

const asked = Number(process.argv[2]);
const warm = Math.floor(asked / 4), count = asked + warm;
const request = JSON.stringify({ requestId: "r1", tool: "done", operation: "run", input: {} }) + "\n";
let ended = 0, begin, before;

function run() {
  const child = spawn(process.argv[3], process.argv.slice(4));
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (chunk) => { said += chunk; });
  child.stderr.resume();
  child.stdin.on("error", () => {}); // it may end without having read
  child.stdin.end(request);
  child.on("close", (code) => {
    if (code !== 0 || !JSON.parse(said).ok) throw new Error("the tool failed");
    if (++ended === warm) start();
    if (ended < count) return run();
    const seconds = Number(process.hrtime.bigint() - begin) / 1e9;
    const { user, system } = process.cpuUsage(before);
    console.log(seconds.toFixed(9), ((user + system) / 1e6).toFixed(9));
  });
}

function start() {
  begin = process.hrtime.bigint();
  before = process.cpuUsage();
}

start();
run();
