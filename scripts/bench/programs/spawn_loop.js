// spawn_loop.js COUNT PROGRAM: run a tool COUNT times, one after the other, with child_process.spawn:
// a request written, both outputs read to their end. Prints the seconds it took.
"use strict";
const { spawn } = require("node:child_process");

const count = Number(process.argv[2]);
const request = JSON.stringify({ requestId: "r1", tool: "done", operation: "run", input: {} }) + "\n";
let ended = 0;

function run() {
  const child = spawn(process.argv[3], process.argv.slice(4));
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (chunk) => { said += chunk; });
  child.stderr.resume();
  child.stdin.on("error", () => {}); // it may end without having read
  child.stdin.end(request);
  child.on("close", (code) => {
    if (code !== 0 || !JSON.parse(said).ok) throw new Error("the tool failed");
    if (++ended < count) return run();
    console.log((Number(process.hrtime.bigint() - begin) / 1e9).toFixed(9));
  });
}

const begin = process.hrtime.bigint();
run();
